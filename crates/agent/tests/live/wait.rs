//! Waits for events, with a timeout that is long enough for busy machines.

use std::thread;
use std::time::{Duration, Instant};

/// Waits for an event; panics after 20 s.
pub fn wait_for(event: &str, has_occurred: impl FnMut() -> bool) {
    wait_within(Duration::from_secs(20), event, has_occurred);
}

/// Waits for an event; panics after `timeout`.
pub fn wait_within(timeout: Duration, event: &str, mut has_occurred: impl FnMut() -> bool) {
    let began = Instant::now();
    while !has_occurred() {
        assert!(began.elapsed() < timeout, "{event}: not within {timeout:?}");
        thread::sleep(Duration::from_millis(2));
    }
}
