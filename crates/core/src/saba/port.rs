//! The state of a port: the applications that pass it, and the plan of its queues (section 5.3.2).

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::mapping::Mapping;
use super::sensitivity::Fraction;
use super::set_mark::SetMark;
use super::share::Shares;
use crate::model::Mask;

/// The queues of a port, their weights, and their priority levels.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Queue by priority level.
    pub queue_of: Vec<u16>,
    /// Weight by queue, as a part of the port's capacity. The weights add up to 1.
    pub weights: Vec<f64>,
    /// The chosen level of the hierarchy, from 1.
    pub level: usize,
    /// The shares of applications from which the weights are computed.
    pub shares: Arc<Shares>,
}

/// The change at a port since its plan was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stale {
    /// No change.
    No,
    /// The mapping from levels to queues changed.
    Queues,
    /// The set of applications changed.
    Apps,
}

/// The controller's state of a port.
#[derive(Debug, Clone)]
pub(super) struct PortState {
    pub(super) queues: u16,
    /// Slots of applications, and the number of connections of each at this port, sorted by slot. Memory is exhausted
    /// before a `u32` overflows.
    pub(super) members: Vec<(u32, u32)>,
    pub(super) stale: Stale,
    pub(super) plan: Option<Arc<Plan>>,
    /// The mark of the set of slots in `members`.
    pub(super) set: SetMark,
}

impl PortState {
    pub(super) fn new(queues: u16) -> PortState {
        PortState { queues, members: Vec::new(), stale: Stale::No, plan: None, set: SetMark::default() }
    }

    /// Adds a connection. Returns whether the application is new at this port.
    pub(super) fn enter(&mut self, slot: u32) -> bool {
        if self.members.last().is_none_or(|last| last.0 < slot) {
            // Usually the newest application enters, which needs no search.
            self.members.push((slot, 1));
            self.set.add(slot);
            return true;
        }
        match self.members.binary_search_by_key(&slot, |member| member.0) {
            Ok(place) => {
                self.members[place].1 += 1;
                false
            }
            Err(place) => {
                self.members.insert(place, (slot, 1));
                self.set.add(slot);
                true
            }
        }
    }

    /// Removes a connection. Returns whether it was the last one of the application at this port.
    pub(super) fn leave(&mut self, slot: u32) -> bool {
        let Ok(place) = self.members.binary_search_by_key(&slot, |member| member.0) else { return false };
        self.members[place].1 -= 1;
        let last = self.members[place].1 == 0;
        if last {
            self.members.remove(place);
            self.set.remove(slot);
        }
        last
    }
}

impl Plan {
    /// Assigns the applications of `shares`, with the priority levels `levels`, to the queues of a port.
    pub(super) fn new(
        shares: Arc<Shares>,
        levels: &[u16],
        mapping: &Mapping,
        c_saba: Fraction,
        queues: u16,
    ) -> Plan {
        let mut present = Mask::default();
        for &level in levels {
            present.insert(usize::from(level));
        }
        let reserved = c_saba < Fraction::ALL;
        let own = usize::from(queues) - usize::from(reserved);
        let cut = mapping.queues(
            &present,
            NonZeroUsize::new(own).expect("`Controller::new` refuses ports without a queue for Saba"),
        );
        let mut weights = vec![0.0; usize::from(queues)];
        for (&(_, weight), &level) in shares.apps.iter().zip(levels) {
            weights[cut.of[usize::from(level)]] += weight;
        }
        if reserved {
            weights[own] = 1.0 - c_saba.get();
        }
        // The number of clusters is at most the number of queues, a `u16`.
        let queue_of = cut.of.iter().map(|&queue| queue as u16).collect();
        Plan { queue_of, weights, level: cut.level, shares }
    }

    /// Whether both plans are equal. The comparison is cheap if both plans use the same shares.
    pub(super) fn same(a: Option<&Plan>, b: Option<&Plan>) -> bool {
        match (a, b) {
            (Some(a), Some(b)) => {
                let shares = Arc::ptr_eq(&a.shares, &b.shares) || a.shares == b.shares;
                shares && a.level == b.level && a.queue_of == b.queue_of && a.weights == b.weights
            }
            (None, None) => true,
            _ => false,
        }
    }
}
