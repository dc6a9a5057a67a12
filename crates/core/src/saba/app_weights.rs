//! Weights of the applications at a port: Eq. 2 (section 5.1), each application with its own profiled model.
//!
//! Priority levels and queues do not affect these weights: the weight of a queue is the sum of its applications'
//! weights (5.3.2).
//!
//! Choices that the paper leaves open:
//!
//! - *Minimum weight.* Eq. 2 may give an application the weight 0, because its polynomial is finite at 0. Section 5.2 says
//!   that no application starves under WFQ, but a weight of 0 would starve it. Here every application gets at least a
//!   fraction of an even share, [`DEFAULT_MIN_SHARE`] by default. Such a minimum is feasible with any number of
//!   applications.
//! - *Accuracy if Eq. 2 is not convex.* The possible loss is known ([`AppWeights::optimality_gap`]). With few
//!   applications, where the loss can be large, the search usually proves the optimum within `MAX_SPLITS`. With many
//!   applications the loss is negligible.

use super::ids::AppId;
use super::sensitivity::Fraction;
use crate::solve::Polynomial;
use crate::solve::separable::{SeparableProblem, SeparableSolver};

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
        let count = models.len();
        let total = c_saba.get();
        let problem = SeparableProblem {
            costs: models,
            total,
            lower: min_share.get() * total / count as f64,
            upper: total,
        };
        let found = solver
            .minimize(&problem, MAX_SPLITS / count)
            .expect("lower bounds of at most an even share add up to at most the total");
        let gap = found.gap();
        AppWeights {
            weights: apps.iter().copied().zip(found.weights).collect(),
            total_slowdown: found.cost,
            optimality_gap: gap,
        }
    }
}
