//! Cache of solutions of Eq. 2 and of the plans based on them, by the hash of a set of applications.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;

use super::app_weights::AppWeights;
use super::port::{PortLimits, QueuePlan};
use super::set_hash::SetHash;

/// The cached results for one set of applications.
#[derive(Debug, Clone)]
pub(super) struct CachedSolution {
    pub(super) app_weights: Arc<AppWeights>,
    /// Plans of ports, by their limits.
    pub(super) plan_by_limits: SmallVec<[(PortLimits, Arc<QueuePlan>); 1]>,
}

/// All cached sets. The map is never iterated, so its order does not matter.
pub(super) type SolutionCache = HashMap<SetHash, CachedSolution, BuildHasherDefault<IdentityHasher>>;

/// A hasher for numbers that are pseudo-random already: it uses some of their bits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("`SetHash` hashes to one u128")
    }

    fn write_u128(&mut self, number: u128) {
        self.0 = number as u64;
    }
}
