//! Decides which tests run concurrently. Tests that send at the rates of their own networks leave most
//! processors idle, and may overlap. Tests that use all processors, that measure times which a busy machine
//! exceeds, or that use a resource of which a machine has only one, run alone.
//! Tests start in the order of module names: `abuse`, whose tests run alone, is first, before the long tests of
//! `evaluations`.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TEST_LOCK: RwLock<()> = RwLock::new(());

/// A shared lock: tests that hold one run concurrently. A failed test does not block other tests.
pub type SharedLock = RwLockReadGuard<'static, ()>;

/// An exclusive lock: the test that holds it runs alone.
pub type ExclusiveLock = RwLockWriteGuard<'static, ()>;

/// Either lock, until it is dropped.
#[expect(dead_code, reason = "held, not read")]
pub enum TestLock {
    Shared(SharedLock),
    Exclusive(ExclusiveLock),
}

/// Takes a shared lock, once no test holds the exclusive lock.
pub fn lock_shared() -> SharedLock {
    TEST_LOCK.read().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the exclusive lock, once no test holds a lock.
pub fn lock_exclusive() -> ExclusiveLock {
    TEST_LOCK.write().unwrap_or_else(PoisonError::into_inner)
}
