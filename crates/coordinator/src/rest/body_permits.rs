//! Limits the memory of concurrently read bodies.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::identity::Identity;

/// Maximum sum of the lengths of concurrently read bodies, in bytes. Half as many more are reserved for operators and readers.
const TOTAL_BYTES: usize = 64 << 20;

/// Each other identity uses at most the sum divided by this.
const IDENTITY_DIVISOR: usize = 4;

/// A permit for each byte of concurrently read bodies. A body waits for its permits.
pub(super) struct BodyPermits {
    /// For operators and readers, so that no framework delays them.
    operators: Arc<Semaphore>,
    /// For all others.
    shared: Arc<Semaphore>,
    /// The permits of identities that read bodies.
    identities: Mutex<HashMap<String, Weak<Semaphore>>>,
    identity_bytes: usize,
}

/// Permits for one body.
pub(super) struct BodyPermit {
    _identity: Option<OwnedSemaphorePermit>,
    _total: OwnedSemaphorePermit,
}

impl BodyPermits {
    /// Permits for bodies of at most `max_body` bytes.
    pub(super) fn new(max_body: usize) -> BodyPermits {
        let bytes = |bytes: usize| bytes.max(max_body).min(Semaphore::MAX_PERMITS);
        BodyPermits {
            operators: Arc::new(Semaphore::new(bytes(TOTAL_BYTES / 2))),
            shared: Arc::new(Semaphore::new(bytes(TOTAL_BYTES))),
            identities: Mutex::default(),
            identity_bytes: bytes(TOTAL_BYTES / IDENTITY_DIVISOR),
        }
    }

    /// Waits for permits for a body.
    pub(super) async fn acquire(&self, identity: &Identity, bytes: u32) -> Result<BodyPermit, AcquireError> {
        let (own, total) = match identity {
            Identity::Operator(_) | Identity::Reader(_) => (None, &self.operators),
            Identity::Local => (None, &self.shared),
            _ => (Some(self.identity_permits(identity)), &self.shared),
        };
        let own = match own {
            Some(own) => Some(own.acquire_many_owned(bytes).await?),
            None => None,
        };
        Ok(BodyPermit { _identity: own, _total: Arc::clone(total).acquire_many_owned(bytes).await? })
    }

    fn identity_permits(&self, identity: &Identity) -> Arc<Semaphore> {
        let mut identities = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        identities.retain(|_, permits| permits.strong_count() > 0);
        let name = identity.to_string();
        if let Some(permits) = identities.get(&name).and_then(Weak::upgrade) {
            return permits;
        }
        let permits = Arc::new(Semaphore::new(self.identity_bytes));
        identities.insert(name, Arc::downgrade(&permits));
        permits
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn frameworks_do_not_use_up_the_bytes_of_others_or_operators() {
        let permits = BodyPermits::new(4_000_000);
        let acquire = |identity: &str| {
            permits.acquire(&identity.parse().unwrap(), 4_000_000).now_or_never().map(Result::unwrap)
        };
        let of_ads: Vec<_> = (0..5).map(|_| acquire("weir://framework/ads")).collect();
        assert_eq!(of_ads.iter().flatten().count(), 4);
        let of_others: Vec<_> =
            (0..20).map(|number| acquire(&format!("weir://framework/other-{number}"))).collect();
        assert_eq!(of_others.iter().flatten().count(), 12);
        assert!(acquire("weir://operator/ann").is_some());
        drop(of_ads);
        assert!(acquire("weir://framework/ads").is_some());
        assert_eq!(permits.identities.lock().unwrap().len(), 13);
    }
}
