//! The state of a port: the applications that pass it, and the plan of its queues (section 5.3.2).

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::app_weights::AppWeights;
use super::mapping::LevelMapping;
use super::sensitivity::Fraction;
use super::set_hash::SetHash;
use crate::model::BitSet;

/// The queues of a port, their weights, and their priority levels.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuePlan {
    /// Queue by priority level.
    pub queue_by_level: Vec<u16>,
    /// Weight by queue, as a fraction of the port's capacity. The weights add up to 1.
    pub weights: Vec<f64>,
    /// The chosen level of the hierarchy, from 1.
    pub hierarchy_level: usize,
    /// The weights of applications from which the weights of queues are computed.
    pub app_weights: Arc<AppWeights>,
}

/// The change at a port since its plan was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StaleReason {
    /// No change.
    UpToDate,
    /// The mapping from levels to queues changed.
    MappingChanged,
    /// The set of applications changed.
    AppsChanged,
}

/// The controller's state of a port.
#[derive(Debug, Clone)]
pub(super) struct PortState {
    pub(super) queue_count: u16,
    /// Slots of applications, and the number of connections of each at this port, sorted by slot. Memory is exhausted
    /// before a `u32` overflows.
    pub(super) app_connections: Vec<(u32, u32)>,
    pub(super) stale_reason: StaleReason,
    pub(super) plan: Option<Arc<QueuePlan>>,
    /// The hash of the set of slots in `app_connections`.
    pub(super) app_set_hash: SetHash,
}

impl PortState {
    pub(super) fn new(queues: u16) -> PortState {
        PortState {
            queue_count: queues,
            app_connections: Vec::new(),
            stale_reason: StaleReason::UpToDate,
            plan: None,
            app_set_hash: SetHash::default(),
        }
    }

    /// Adds a connection. Returns whether the application is new at this port.
    pub(super) fn add_connection(&mut self, slot: u32) -> bool {
        if self.app_connections.last().is_none_or(|last| last.0 < slot) {
            // Usually the newest application enters, which needs no search.
            self.app_connections.push((slot, 1));
            self.app_set_hash.add(slot);
            return true;
        }
        match self.app_connections.binary_search_by_key(&slot, |member| member.0) {
            Ok(place) => {
                self.app_connections[place].1 += 1;
                false
            }
            Err(place) => {
                self.app_connections.insert(place, (slot, 1));
                self.app_set_hash.add(slot);
                true
            }
        }
    }

    /// Removes a connection. Returns whether it was the last one of the application at this port.
    pub(super) fn remove_connection(&mut self, slot: u32) -> bool {
        let Ok(place) = self.app_connections.binary_search_by_key(&slot, |member| member.0) else {
            return false;
        };
        self.app_connections[place].1 -= 1;
        let last = self.app_connections[place].1 == 0;
        if last {
            self.app_connections.remove(place);
            self.app_set_hash.remove(slot);
        }
        last
    }
}

impl QueuePlan {
    /// Assigns the applications of `app_weights`, with the priority levels `levels`, to the queues of a port.
    pub(super) fn new(
        app_weights: Arc<AppWeights>,
        levels: &[u16],
        mapping: &LevelMapping,
        c_saba: Fraction,
        queues: u16,
    ) -> QueuePlan {
        let mut present = BitSet::default();
        for &level in levels {
            present.insert(usize::from(level));
        }
        let reserved = c_saba < Fraction::ALL;
        let saba_queue_count = usize::from(queues) - usize::from(reserved);
        let cut = mapping.queue_by_level(
            &present,
            NonZeroUsize::new(saba_queue_count)
                .expect("`Controller::new` refuses ports without a queue for Saba"),
        );
        let mut weights = vec![0.0; usize::from(queues)];
        for (&(_, weight), &level) in app_weights.weights.iter().zip(levels) {
            weights[cut.cluster_by_point[usize::from(level)]] += weight;
        }
        if reserved {
            weights[saba_queue_count] = 1.0 - c_saba.get();
        }
        // The number of clusters is at most the number of queues, a `u16`.
        let queue_by_level = cut.cluster_by_point.iter().map(|&queue| queue as u16).collect();
        QueuePlan { queue_by_level, weights, hierarchy_level: cut.level, app_weights }
    }

    /// Whether both plans are equal. The comparison is cheap if both plans share `app_weights`.
    pub(super) fn are_equal(a: Option<&QueuePlan>, b: Option<&QueuePlan>) -> bool {
        match (a, b) {
            (Some(a), Some(b)) => {
                let shares = Arc::ptr_eq(&a.app_weights, &b.app_weights) || a.app_weights == b.app_weights;
                shares
                    && a.hierarchy_level == b.hierarchy_level
                    && a.queue_by_level == b.queue_by_level
                    && a.weights == b.weights
            }
            (None, None) => true,
            _ => false,
        }
    }
}
