//! Waiting for an event, with a bound that no machine reaches unless the event never comes.

use std::thread;
use std::time::{Duration, Instant};

/// Waits for an event; panics after 20 s.
pub fn wait_for(event: &str, occurred: impl FnMut() -> bool) {
    wait_within(Duration::from_secs(20), event, occurred);
}

/// Waits for an event; panics after `limit`.
pub fn wait_within(limit: Duration, event: &str, mut occurred: impl FnMut() -> bool) {
    let began = Instant::now();
    while !occurred() {
        assert!(began.elapsed() < limit, "{event}: not within {limit:?}");
        thread::sleep(Duration::from_millis(2));
    }
}
