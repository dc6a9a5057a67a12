//! Which tests run side by side. Those that send at the rates of their own networks leave most of the processors idle and may overlap;
//! those that take all processors, or look at something of which a machine has one, run alone. Tests begin in the order of their
//! names: those that run alone are in `abuse`, before the longest in `evaluations`.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURN: RwLock<()> = RwLock::new(());

/// The right to run next to others that have such a right, until it is dropped. A test that failed does not take it from others.
pub type Turn = RwLockReadGuard<'static, ()>;

/// The right to run alone.
pub type Alone = RwLockWriteGuard<'static, ()>;

/// Waits for a test that runs alone.
pub fn take() -> Turn {
    TURN.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for all tests that run now.
pub fn take_alone() -> Alone {
    TURN.write().unwrap_or_else(PoisonError::into_inner)
}
