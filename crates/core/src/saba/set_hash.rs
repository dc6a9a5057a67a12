//! Hashes of sets of applications.
//!
//! The hash of a set is the sum of 128 pseudo-random bits for each member; the owner of the set adds and removes
//! members. Two different sets have the same hash with a probability of 2^-128. This case is treated as impossible:
//! sets are not compared.

use crate::model::topology::route::splitmix64;

/// The hash of a set of slots of applications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct SetHash(u128);

impl SetHash {
    /// Adds a slot, which must not be in the set.
    pub(super) fn add(&mut self, slot: u32) {
        self.0 = self.0.wrapping_add(slot_hash(slot));
    }

    /// Removes a slot, which must be in the set.
    pub(super) fn remove(&mut self, slot: u32) {
        self.0 = self.0.wrapping_sub(slot_hash(slot));
    }
}

fn slot_hash(slot: u32) -> u128 {
    let slot = u64::from(slot);
    u128::from(splitmix64(slot)) << 64 | u128::from(splitmix64(!slot))
}
