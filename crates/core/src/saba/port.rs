//! The state of a port: the applications that pass it, and the plan of its queues (section 5.3.2).

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::app_weights::AppWeights;
use super::mapping::LevelMapping;
use super::sensitivity::Fraction;
use super::set_hash::SetHash;
use super::settings::ControllerSettings;
use crate::model::BitSet;
use crate::rounding;
use crate::solve::{Polynomial, SeparableSolver};

/// The queues that the switch of a port supports (section 5.3.2: switches differ).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PortLimits {
    /// Number of queues. If C_saba is below 1, the last one is reserved.
    pub queues: u16,
    /// The minimum weight of a queue with applications, as a fraction of the port's capacity. 0: no minimum.
    pub min_weight: f64,
}

impl PortLimits {
    /// The largest feasible [`PortLimits::min_weight`] with this number of queues, where applications get `c_saba` of
    /// the port: all queues together have the whole port, and the reserved queue has the rest.
    pub fn max_min_weight(queues: u16, c_saba: Fraction) -> f64 {
        if c_saba < Fraction::ALL {
            (c_saba.get() / f64::from(queues.saturating_sub(1))).min(1.0 - c_saba.get())
        } else {
            1.0 / f64::from(queues)
        }
    }

    /// [`PortLimits::max_min_weight`] for messages: rounded down to six digits, so that the shown value is valid.
    pub fn rounded_max_min_weight(queues: u16, c_saba: Fraction) -> f64 {
        ((PortLimits::max_min_weight(queues, c_saba) + rounding::PARTS) * 1e6).floor() / 1e6
    }

    /// Whether the minimum weight is from 0 to [`PortLimits::max_min_weight`], up to rounding.
    pub fn is_feasible(&self, c_saba: Fraction) -> bool {
        let max = PortLimits::max_min_weight(self.queues, c_saba);
        (0.0..=max * (1.0 + rounding::CAPACITY)).contains(&self.min_weight)
    }
}

impl From<u16> for PortLimits {
    /// This number of queues, without a minimum weight.
    fn from(queues: u16) -> PortLimits {
        PortLimits { queues, min_weight: 0.0 }
    }
}

/// The applications at a port: their models and priority levels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortApps<'a> {
    pub(crate) models: &'a [Polynomial],
    pub(crate) levels: &'a [u16],
}

/// The queues of a port, their weights, and their priority levels.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuePlan {
    /// Queue by priority level.
    pub queue_by_level: Vec<u16>,
    /// Weight by queue, as a fraction of the port's capacity. The weights add up to 1.
    pub weights: Vec<f64>,
    /// The chosen level of the hierarchy, from 1.
    pub hierarchy_level: usize,
    /// The weights of applications from which the weights of queues are computed. With a minimum weight of queues, they
    /// can differ from those at other ports with the same applications.
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
    pub(super) limits: PortLimits,
    /// Slots of applications, and the number of connections of each at this port, sorted by slot. Memory is exhausted
    /// before a `u32` overflows.
    pub(super) app_connections: Vec<(u32, u32)>,
    pub(super) stale_reason: StaleReason,
    pub(super) plan: Option<Arc<QueuePlan>>,
    /// The hash of the set of slots in `app_connections`.
    pub(super) app_set_hash: SetHash,
}

impl PortState {
    pub(super) fn new(limits: PortLimits) -> PortState {
        PortState {
            limits,
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
    /// Assigns the applications `apps`, with the solution of Eq. 2 `app_weights`, to the queues of a port.
    pub(crate) fn new(
        app_weights: Arc<AppWeights>,
        apps: PortApps<'_>,
        mapping: &LevelMapping,
        settings: &ControllerSettings,
        limits: PortLimits,
        solver: &mut SeparableSolver,
    ) -> QueuePlan {
        let PortApps { models, levels } = apps;
        let PortLimits { queues, min_weight } = limits;
        let c_saba = settings.c_saba;
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
        let queue_of_app: Vec<usize> =
            levels.iter().map(|&level| cut.cluster_by_point[usize::from(level)]).collect();
        let raised =
            app_weights.with_min_queue_weight(solver, models, &queue_of_app, settings.min_share, min_weight);
        let app_weights = raised.map_or(app_weights, Arc::new);
        let mut weights = vec![0.0; usize::from(queues)];
        for (&(_, weight), &queue) in app_weights.weights.iter().zip(&queue_of_app) {
            weights[queue] += weight;
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
