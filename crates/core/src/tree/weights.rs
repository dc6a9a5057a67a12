//! Weights of the applications of a service that share a port, and their queues if they share queues.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use crate::policy::interface::DecidedBy;
use crate::saba::app_weights::{AppWeights, DEFAULT_MIN_SHARE};
use crate::saba::controller::{AppId, ControllerSettings, PortLimits};
use crate::saba::port::PortApps;
use crate::saba::{LevelMapping, QueuePlan, SabaLimits, Sensitivity};
use crate::solve::{Polynomial, SeparableSolver};

/// How the applications of a service share the service's part.
pub(crate) enum ApplicationWeights {
    /// By one weight each.
    Fixed(Vec<f64>),
    /// By Saba's weights for the applications that share a port.
    Saba(Box<SabaWeights>),
}

/// Saba's weights, cached by set of applications.
pub(crate) struct SabaWeights {
    models: Vec<Polynomial>,
    settings: ControllerSettings,
    /// Levels and queues; none if each application has a separate queue.
    shared_queues: Option<SharedQueues>,
    solver: SeparableSolver,
    cached_weights: BTreeMap<Vec<u32>, SetWeights>,
    /// By side: the weights of the last schedule.
    at_sides: Vec<SideWeights>,
}

/// The mapping of applications to queues (section 5.3). The levels are those of all applications of the workload, which
/// are computed in advance, as in the distributed controller (5.4).
struct SharedQueues {
    mapping: LevelMapping,
    level_by_application: Vec<u16>,
    limits: PortLimits,
}

/// The weights of a set of applications.
struct SetWeights {
    by_application: Vec<f64>,
    /// With shared queues: their plan.
    plan: Option<Arc<QueuePlan>>,
}

/// The weights of the applications at a side since the last schedule.
#[derive(Default)]
struct SideWeights {
    applications: Vec<u32>,
    weights: Vec<f64>,
    plan: Option<Arc<QueuePlan>>,
}

/// The weights of the leaves at a side, or of the queues of these leaves.
#[derive(Debug, Default)]
pub(crate) struct LeafWeights {
    /// By leaf: its weight, or that of its queue.
    pub(crate) weights: Vec<f64>,
    /// By leaf: the number of its queue; empty if each leaf has a separate queue.
    pub(crate) queues: Vec<u16>,
}

impl SideWeights {
    fn set(&mut self, applications: &[u32], set: &SetWeights) {
        if self.applications != applications {
            self.applications.clear();
            self.applications.extend_from_slice(applications);
            self.weights.clear();
            self.weights.extend_from_slice(&set.by_application);
            self.plan.clone_from(&set.plan);
        }
    }

    /// An application that is new at the side has the mean of the weights there.
    fn weights(&self, applications: &[u32], out: &mut Vec<f64>) {
        let mean = match self.weights.len() {
            0 => 1.0,
            count => self.weights.iter().sum::<f64>() / count as f64,
        };
        let weight_of = |at: &u32| {
            self.applications.iter().position(|known| known == at).map_or(mean, |i| self.weights[i])
        };
        out.extend(applications.iter().map(weight_of));
    }

    /// With shared queues, an application that is new at the side is in the queue of its level. A queue without
    /// applications at the last schedule has the mean of the weights of the others.
    fn queue_weights(&self, levels: impl Iterator<Item = u16>, out: &mut LeafWeights) {
        let Some(plan) = &self.plan else {
            out.queues.extend(levels);
            out.weights.resize(out.queues.len(), 1.0);
            return;
        };
        // Levels have no reserved queue, so its weight is not among these.
        let mut weight_by_queue = vec![0.0; plan.weights.len()];
        for &queue in &plan.queue_by_level {
            weight_by_queue[usize::from(queue)] = plan.weights[usize::from(queue)];
        }
        let used_weights = || weight_by_queue.iter().filter(|weight| **weight > 0.0);
        let mean = used_weights().sum::<f64>() / used_weights().count() as f64;
        for level in levels {
            let queue = plan.queue_by_level[usize::from(level)];
            let weight = weight_by_queue[usize::from(queue)];
            out.queues.push(queue);
            out.weights.push(if weight > 0.0 { weight } else { mean });
        }
    }
}

/// Maximum number of cached sets. The cache is cleared when it is full, which costs time but does not change results.
const MAX_CACHED_SETS: usize = 4096;

impl ApplicationWeights {
    pub(super) fn from_sensitivities(models: &[Sensitivity], limits: &SabaLimits) -> ApplicationWeights {
        let one_each = NonZeroU16::new(u16::try_from(models.len()).unwrap_or(u16::MAX));
        let max_levels = limits.max_levels.or(one_each).unwrap_or(NonZeroU16::MIN);
        let shared_queues = limits.has_shared_queues().then(|| {
            let mapping = LevelMapping::new(models, &vec![1; models.len()], max_levels);
            let level = |model| mapping.level_of_model(model).unwrap_or(0);
            SharedQueues {
                level_by_application: (0..models.len()).map(level).collect(),
                limits: limits.port_limits(mapping.level_count()),
                mapping,
            }
        });
        ApplicationWeights::Saba(Box::new(SabaWeights {
            models: models.iter().map(|sensitivity| *sensitivity.model()).collect(),
            settings: ControllerSettings { c_saba: limits.c_saba, min_share: DEFAULT_MIN_SHARE, max_levels },
            shared_queues,
            solver: SeparableSolver::default(),
            cached_weights: BTreeMap::new(),
            at_sides: Vec::new(),
        }))
    }

    /// Whether a coordinator computes the weights.
    pub(super) fn is_computed(&self) -> bool {
        matches!(self, ApplicationWeights::Saba(_))
    }

    /// Whether leaves can share a queue.
    pub(super) fn has_shared_queues(&self) -> bool {
        matches!(self, ApplicationWeights::Saba(saba) if saba.shared_queues.is_some())
    }

    /// Writes the weights and queues of `applications`, given by position in the service, at a side to `out`.
    /// O(applications), except for sets for which Eq. 2 has to be solved.
    ///
    /// The coordinator computes Saba's weights. Until its next schedule, hosts use those of the last one.
    pub(crate) fn weights(
        &mut self,
        applications: &[u32],
        side: usize,
        by: DecidedBy,
        out: &mut LeafWeights,
    ) {
        out.weights.clear();
        out.queues.clear();
        match (self, by) {
            (ApplicationWeights::Fixed(weights), _) => {
                out.weights.extend(applications.iter().map(|&at| weights[at as usize]))
            }
            (ApplicationWeights::Saba(saba), DecidedBy::Coordinator) => saba.compute(applications, side, out),
            (ApplicationWeights::Saba(saba), DecidedBy::Hosts) => saba.hold(applications, side, out),
        }
    }
}

impl SabaWeights {
    /// Computes or looks up the weights of `applications`, and stores them for [`SabaWeights::hold`].
    fn compute(&mut self, applications: &[u32], side: usize, out: &mut LeafWeights) {
        if !self.cached_weights.contains_key(applications) {
            if self.cached_weights.len() == MAX_CACHED_SETS {
                self.cached_weights.clear();
            }
            let set = self.solve(applications);
            self.cached_weights.insert(applications.to_vec(), set);
        }
        if side >= self.at_sides.len() {
            self.at_sides.resize_with(side + 1, SideWeights::default);
        }
        let set = &self.cached_weights[applications];
        self.at_sides[side].set(applications, set);
        match (&self.shared_queues, &set.plan) {
            (Some(shared), Some(plan)) => {
                let queue = |&at: &u32| plan.queue_by_level[usize::from(shared.level(at))];
                out.queues.extend(applications.iter().map(queue));
                out.weights.extend(out.queues.iter().map(|&queue| plan.weights[usize::from(queue)]));
            }
            _ => out.weights.extend_from_slice(&set.by_application),
        }
    }

    /// The weights of the last schedule.
    fn hold(&mut self, applications: &[u32], side: usize, out: &mut LeafWeights) {
        if side >= self.at_sides.len() {
            self.at_sides.resize_with(side + 1, SideWeights::default);
        }
        match &self.shared_queues {
            None => self.at_sides[side].weights(applications, &mut out.weights),
            Some(shared) => {
                let levels = applications.iter().map(|&at| shared.level(at));
                self.at_sides[side].queue_weights(levels, out);
            }
        }
    }

    fn solve(&mut self, applications: &[u32]) -> SetWeights {
        let apps: Vec<AppId> = applications.iter().map(|&at| AppId(u64::from(at))).collect();
        let models: Vec<Polynomial> = applications.iter().map(|&at| self.models[at as usize]).collect();
        let ControllerSettings { c_saba, min_share, .. } = self.settings;
        let solution = AppWeights::solve(&mut self.solver, &apps, &models, c_saba, min_share);
        let Some(shared) = &self.shared_queues else {
            let by_application = solution.weights.iter().map(|&(_, weight)| weight).collect();
            return SetWeights { by_application, plan: None };
        };
        let levels: Vec<u16> = applications.iter().map(|&at| shared.level(at)).collect();
        let apps = PortApps { models: &models, levels: &levels };
        let SharedQueues { mapping, limits, .. } = shared;
        let plan =
            QueuePlan::new(Arc::new(solution), apps, mapping, &self.settings, *limits, &mut self.solver);
        SetWeights { by_application: Vec::new(), plan: Some(Arc::new(plan)) }
    }
}

impl SharedQueues {
    /// The priority level of an application, by position in the service.
    fn level(&self, application: u32) -> u16 {
        self.level_by_application[application as usize]
    }
}
