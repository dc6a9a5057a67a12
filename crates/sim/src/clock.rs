//! Measures what a piece of work takes.

use std::time::Instant;

/// Measures seconds of a processor, which other processes' work does not add to; where the system does not tell, seconds.
///
/// Only what the thread does that started it counts.
#[derive(Debug)]
pub struct Clock {
    wall: Instant,
    busy: Option<u64>,
}

impl Clock {
    /// Starts to measure.
    pub fn start() -> Clock {
        Clock { wall: Instant::now(), busy: Clock::busy() }
    }

    /// Nanoseconds that this thread was running.
    fn busy() -> Option<u64> {
        std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
    }

    /// The seconds since the start.
    pub fn seconds(&self) -> f64 {
        match (self.busy, Clock::busy()) {
            (Some(before), Some(after)) if after > before => (after - before) as f64 / 1e9,
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }
}
