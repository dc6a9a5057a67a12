//! A port: which applications pass it, and what its queues are to be (section 5.3.2).

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::mapping::Mapping;
use super::sensitivity::Fraction;
use super::set_mark::SetMark;
use super::share::Shares;
use crate::model::Mask;

/// The queues of a port, their weights, and who uses which.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// For each priority level its queue.
    pub queue_of: Vec<u16>,
    /// For each queue its weight, as a part of the port's capacity; they sum to 1.
    pub weights: Vec<f64>,
    /// The level of the hierarchy that was chosen, from 1.
    pub level: usize,
    /// What the weights are made of.
    pub shares: Arc<Shares>,
}

/// What has changed at a port since its plan was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stale {
    /// Nothing.
    No,
    /// How levels map to queues.
    Queues,
    /// Which applications are there.
    Apps,
}

/// What a controller knows of a port.
#[derive(Debug, Clone)]
pub(super) struct PortState {
    pub(super) queues: u16,
    /// Slots of applications and how many connections each has here, in the order of slots. So many connections that these
    /// numbers do not suffice would not fit any memory.
    pub(super) members: Vec<(u32, u32)>,
    pub(super) stale: Stale,
    pub(super) plan: Option<Arc<Plan>>,
    /// Which slots are there.
    pub(super) set: SetMark,
}

impl PortState {
    pub(super) fn new(queues: u16) -> PortState {
        PortState { queues, members: Vec::new(), stale: Stale::No, plan: None, set: SetMark::default() }
    }

    /// A connection more. Answers whether the application is new here.
    pub(super) fn enter(&mut self, slot: u32) -> bool {
        if self.members.last().is_none_or(|last| last.0 < slot) {
            // Most often the newest application, which need not be searched for.
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

    /// A connection less. Answers whether it was the application's last one here.
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
    /// Puts the applications of `shares`, whose priority levels are `levels`, into the queues of a port.
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
        // There are no more clusters than queues, whose number fits.
        let queue_of = cut.of.iter().map(|&queue| queue as u16).collect();
        Plan { queue_of, weights, level: cut.level, shares }
    }

    /// Whether both are the same, which costs little where they are made of the same shares.
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
