//! What a computation takes.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Processor time of this thread, which other processes' work does not add to.
pub fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux always has CLOCK_THREAD_CPUTIME_ID").into()
}
