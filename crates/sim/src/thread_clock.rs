//! Measures the processor time of computations.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The processor time that this thread has used. Load from other threads and processes does not count.
pub fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux always has CLOCK_THREAD_CPUTIME_ID").into()
}
