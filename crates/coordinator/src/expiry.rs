//! Notices that the certificates of a connection have expired.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, Sleep, sleep};
use weir_tls::ConnectionExpired;

/// Maximum time between two looks at the clock, which may be corrected while a connection is open.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The end of a connection, as a time of the system's clock.
pub struct Expiry {
    at: SystemTime,
    timer: Pin<Box<Sleep>>,
}

impl Expiry {
    /// A connection that ends at this time.
    pub fn new(at: SystemTime) -> Expiry {
        Expiry { at, timer: Box::pin(sleep(remaining(at))) }
    }

    /// Fails once the time has passed, and wakes the task then.
    ///
    /// # Errors
    /// [`ConnectionExpired`].
    pub fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.timer.as_mut().poll(cx) == Poll::Ready(()) {
            let remaining = remaining(self.at);
            if remaining.is_zero() {
                return Err(io::Error::other(ConnectionExpired));
            }
            self.timer.as_mut().reset(Instant::now() + remaining);
        }
        Ok(())
    }
}

fn remaining(at: SystemTime) -> Duration {
    at.duration_since(SystemTime::now()).unwrap_or_default().min(MAX_WAIT)
}
