//! The weights of the applications at a port: Eq. 2 (section 5.1), each application with the model that was profiled for it.
//!
//! Priority levels and queues have no part in this: they only add the weights up (5.3.2).
//!
//! What the paper leaves open:
//!
//! - *The least weight.* Eq. 2 may give an application nothing, for the polynomial is finite at 0. But nobody starves under WFQ, says
//!   section 5.2, and a weight of 0 would starve. Here every application gets at least a part of an even share, [`FLOOR`] unless
//!   the settings say otherwise. As a part of the even share it is feasible with any number of applications.
//! - *How good is good enough where Eq. 2 is not convex.* All that is lost is known ([`Shares::gap`]). With few applications,
//!   where it can be much, the search goes on to a proof; with many it is next to nothing.

use super::ids::AppId;
use super::sensitivity::Fraction;
use crate::solve::Polynomial;
use crate::solve::separable::{Problem, Solver};

/// The least weight of an application, as a part of an even share, where nothing else is asked for.
pub const FLOOR: Fraction = Fraction::of(0.1);

/// How many splits the search may take, times the applications at the port: so its cost has the same limit everywhere.
const SEARCH: usize = 4000;

/// The applications at a port and their weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares {
    /// Each application's weight, as a part of the port's capacity; C_saba in all.
    pub apps: Vec<(AppId, f64)>,
    /// The sum of the slowdowns that the models predict.
    pub slowdown: f64,
    /// How far below that any other weights could come.
    pub gap: f64,
}

impl Shares {
    /// Solves Eq. 2 for applications with these models, of which there is at least one.
    ///
    /// Each gets at least the part `floor` of an even share.
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
