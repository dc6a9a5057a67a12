//! What is known of sets of applications, looked up by the set.
//!
//! A set goes by its mark, a sum of 128 scrambled bits for each member, which whoever keeps the set adds to and takes from.
//! Two different sets have one mark with a chance of 2^-128, which is taken as never: sets are not compared.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;

use super::port::Plan;
use super::share::Shares;
use crate::model::topology::route::mix;

/// A set of slots of applications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct SetMark(u128);

impl SetMark {
    /// A slot joins, which was not in the set.
    pub(super) fn add(&mut self, slot: u32) {
        self.0 = self.0.wrapping_add(bits(slot));
    }

    /// A slot leaves, which was in the set.
    pub(super) fn remove(&mut self, slot: u32) {
        self.0 = self.0.wrapping_sub(bits(slot));
    }
}

fn bits(slot: u32) -> u128 {
    let slot = u64::from(slot);
    u128::from(mix(slot)) << 64 | u128::from(mix(!slot))
}

/// What is known of a set of applications.
#[derive(Debug, Clone)]
pub(super) struct Solved {
    pub(super) shares: Arc<Shares>,
    /// The plans of ports, by their number of queues.
    pub(super) plans: SmallVec<[(u16, Arc<Plan>); 1]>,
}

/// All sets of which something is known. Only looked up, never walked through.
pub(super) type Sets = HashMap<SetMark, Solved, BuildHasherDefault<AsIs>>;

/// A hash of numbers that are scrambled already: some of their bits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("marks are whole numbers")
    }

    fn write_u128(&mut self, number: u128) {
        self.0 = number as u64;
    }
}
