//! Tests that measure rates run one at a time: each one needs the processors, and some use fixed addresses.

use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// The exclusive right to run, until it is dropped. A test that failed does not prevent others from getting it.
pub type Turn = MutexGuard<'static, ()>;

/// Waits for the tests that run now.
pub fn take() -> Turn {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
