//! Decides which tests run concurrently. Tests that send at the rates of their own networks leave most
//! processors idle, and may overlap. Tests that use all processors, or a resource of which a machine has only
//! one, run alone.
//! Tests start in the order of their names: those that run alone are in `abuse`, before the longest ones in
//! `evaluations`.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TEST_LOCK: RwLock<()> = RwLock::new(());

/// A shared turn: tests that hold one run concurrently. A failed test does not block other tests.
pub type SharedLock = RwLockReadGuard<'static, ()>;

/// An exclusive turn.
pub type ExclusiveLock = RwLockWriteGuard<'static, ()>;

/// Takes a shared turn, once no test holds an exclusive turn.
pub fn lock_shared() -> SharedLock {
    TEST_LOCK.read().unwrap_or_else(PoisonError::into_inner)
}

/// Takes an exclusive turn, once no test holds any turn.
pub fn lock_exclusive() -> ExclusiveLock {
    TEST_LOCK.write().unwrap_or_else(PoisonError::into_inner)
}
