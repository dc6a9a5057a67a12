//! Weights of the applications at a port: Eq. 2 (section 5.1), each application with its own profiled model.
//!
//! Priority levels and queues do not affect these weights, except for the minimum weight of a queue: the weight of a
//! queue is the sum of its applications' weights (5.3.2).
//!
//! Choices that the paper leaves open:
//!
//! - *Minimum weight.* Eq. 2 may give an application the weight 0, because its polynomial is finite at 0. Section 5.2 says
//!   that no application starves under WFQ, but a weight of 0 would starve it. Here every application gets at least a
//!   fraction of an even share, [`DEFAULT_MIN_SHARE`] by default. Such a minimum is feasible with any number of
//!   applications.
//! - *Minimum weight of a queue.* Switches cannot enforce arbitrarily small weights, so a port can have a minimum. It is a
//!   condition of Eq. 2: the sum of the weights of a queue's applications is at least the minimum. If the queues at the
//!   minimum leave less than the applications' minimum to others, those share the rest evenly.
//! - *Accuracy if Eq. 2 is not convex.* The possible loss is known ([`AppWeights::optimality_gap`]). With few
//!   applications, where the loss can be large, the search usually proves the optimum within `MAX_SPLITS`. With many
//!   applications the loss is negligible.

use std::collections::BTreeSet;

use super::ids::AppId;
use super::sensitivity::Fraction;
use crate::rounding;
use crate::solve::Polynomial;
use crate::solve::separable::{SeparableProblem, SeparableSolver, Solution, total_cost};

/// The default minimum weight of an application, as a fraction of an even share.
pub const DEFAULT_MIN_SHARE: Fraction = Fraction::from_valid(0.1);

/// Maximum number of splits of the search, times the number of applications at the port. So the maximum cost of the
/// search is equal at all ports.
const MAX_SPLITS: usize = 4000;

/// The applications at a port, and their weights.
#[derive(Debug, Clone, PartialEq)]
pub struct AppWeights {
    /// Weight by application, as a fraction of the port's capacity. The weights add up to C_saba.
    pub weights: Vec<(AppId, f64)>,
    /// Sum of the slowdowns that the models predict.
    pub total_slowdown: f64,
    /// Upper bound of the distance from `total_slowdown` to the optimum.
    pub optimality_gap: f64,
}

impl AppWeights {
    /// Solves Eq. 2 for one or more applications with these models.
    ///
    /// Each application gets at least the fraction `min_share` of an even share.
    pub fn solve(
        solver: &mut SeparableSolver,
        apps: &[AppId],
        models: &[Polynomial],
        c_saba: Fraction,
        min_share: Fraction,
    ) -> AppWeights {
        let total = c_saba.get();
        let lower = min_share.get() * total / models.len() as f64;
        let found = minimize(solver, models, total, lower);
        let gap = found.gap();
        AppWeights {
            weights: apps.iter().copied().zip(found.weights).collect(),
            total_slowdown: found.cost,
            optimality_gap: gap,
        }
    }

    /// The weights if each queue gets at least `min_weight`, a fraction of the port's capacity; `None` if `self`, the
    /// solution without this condition, fulfils it. `queues` is the queue of each application, `min_share` as for
    /// [`AppWeights::solve`].
    ///
    /// The caller ensures that C_saba is enough for the minimum of all queues. O(queues) solutions of Eq. 2 at worst.
    ///
    /// A queue below the minimum gets exactly the minimum, and Eq. 2 is solved again for the others, until no queue is
    /// below the minimum. If the models are convex, the result is optimal: another queue's minimum only reduces a
    /// queue's weight, so a queue that is below the minimum in any round is at the minimum in the optimum.
    pub(super) fn with_min_queue_weight(
        &self,
        solver: &mut SeparableSolver,
        models: &[Polynomial],
        queues: &[usize],
        min_share: Fraction,
        min_weight: f64,
    ) -> Option<AppWeights> {
        if min_weight <= 0.0 {
            return None;
        }
        let mut weights: Vec<f64> = self.weights.iter().map(|&(_, weight)| weight).collect();
        let total: f64 = weights.iter().sum();
        let lower = min_share.get() * total / models.len() as f64;
        let (mut open_total, mut is_changed) = (total, false);
        let mut open_queues: BTreeSet<usize> = queues.iter().copied().collect();
        let mut assign = |members: &dyn Fn(usize) -> bool, total: f64, weights: &mut [f64]| {
            let apps: Vec<usize> = (0..queues.len()).filter(|&app| members(queues[app])).collect();
            let costs: Vec<Polynomial> = apps.iter().map(|&app| models[app]).collect();
            let found = minimize(solver, &costs, total, lower.min(total / costs.len() as f64));
            apps.iter().zip(found.weights).for_each(|(&app, weight)| weights[app] = weight);
        };
        while open_queues.len() > 1 {
            let weight_of_queue = |queue: usize| -> f64 {
                weights.iter().zip(queues).filter(|(_, at)| **at == queue).map(|(weight, _)| weight).sum()
            };
            let low_queues: Vec<usize> = open_queues
                .iter()
                .copied()
                .filter(|&queue| weight_of_queue(queue) < min_weight - rounding::PARTS)
                .collect();
            if low_queues.is_empty() {
                break;
            }
            is_changed = true;
            for low in low_queues {
                open_queues.remove(&low);
                open_total -= min_weight;
                assign(&|queue| queue == low, min_weight, &mut weights);
            }
            assign(&|queue| open_queues.contains(&queue), open_total, &mut weights);
        }
        is_changed.then(|| {
            let total_slowdown = total_cost(models, &weights);
            // The condition cannot reduce the minimum, so a lower bound without the condition is one with it.
            let lower_bound = self.total_slowdown - self.optimality_gap;
            AppWeights {
                weights: self.weights.iter().map(|&(app, _)| app).zip(weights).collect(),
                total_slowdown,
                optimality_gap: (total_slowdown - lower_bound).max(0.0),
            }
        })
    }
}

/// Divides `total` among one or more applications with these models; each gets at least `lower`, at most an even share.
fn minimize(solver: &mut SeparableSolver, models: &[Polynomial], total: f64, lower: f64) -> Solution {
    let problem = SeparableProblem { costs: models, total, lower, upper: total };
    solver
        .minimize(&problem, MAX_SPLITS / models.len())
        .expect("lower bounds of at most an even share add up to at most the total")
}
