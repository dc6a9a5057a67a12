//! Weights of the applications at a port: Eq. 2 (section 5.1), each application with its own profiled model.
//!
//! Priority levels and queues do not affect these weights: the weight of a queue is the sum of its applications'
//! weights (5.3.2).
//!
//! Choices that the paper leaves open:
//!
//! - *Minimum weight.* Eq. 2 may give an application the weight 0, because its polynomial is finite at 0. Section 5.2
//!   says that no application starves under WFQ, but a weight of 0 would starve it. Here every application gets at
//!   least a part of an even share, [`FLOOR`] by default. Such a minimum is feasible with any number of applications.
//! - *Accuracy if Eq. 2 is not convex.* The possible loss is known ([`Shares::gap`]). With few applications, where
//!   the loss can be large, the search continues until it proves the optimum. With many applications the loss is
//!   negligible.

use super::ids::AppId;
use super::sensitivity::Fraction;
use crate::solve::Polynomial;
use crate::solve::separable::{Problem, Solver};

/// The default minimum weight of an application, as a part of an even share.
pub const FLOOR: Fraction = Fraction::of(0.1);

/// Maximum number of splits of the search, times the number of applications at the port. So the maximum cost of the
/// search is equal at all ports.
const SEARCH: usize = 4000;

/// The applications at a port, and their weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares {
    /// Weight by application, as a part of the port's capacity. The weights add up to C_saba.
    pub apps: Vec<(AppId, f64)>,
    /// Sum of the slowdowns that the models predict.
    pub slowdown: f64,
    /// Upper bound of the distance from `slowdown` to the optimum.
    pub gap: f64,
}

impl Shares {
    /// Solves Eq. 2 for one or more applications with these models.
    ///
    /// Each application gets at least the part `floor` of an even share.
    pub fn of(
        solver: &mut Solver,
        apps: &[AppId],
        models: &[Polynomial],
        c_saba: Fraction,
        floor: Fraction,
    ) -> Shares {
        let count = models.len();
        let total = c_saba.get();
        let problem =
            Problem { costs: models, total, lower: floor.get() * total / count as f64, upper: total };
        let found = solver
            .minimise(&problem, SEARCH / count)
            .expect("lower bounds of at most an even share add up to at most the total");
        let gap = found.gap();
        Shares { apps: apps.iter().copied().zip(found.weights).collect(), slowdown: found.value, gap }
    }
}
