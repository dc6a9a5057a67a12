//! Algorithms that policies, allocators and simulators share: rates, orders, clusters and polynomials.

pub mod cluster;
pub mod connections;
pub mod contention;
pub(crate) mod crossing_flows;
pub mod hierarchy;
pub mod link_max_min;
pub mod maxmin;
pub mod montecarlo;
pub mod polynomial;
mod ranked_rates;
pub mod residual;
pub mod separable;
pub mod wfq;

pub use contention::Contention;
pub use hierarchy::{ClassId, Guarantee, HierarchicalMaxMin, HierarchyError, HierarchyStats, ServiceShares};
pub use link_max_min::LinkMaxMin;
pub use maxmin::{CappedFlow, FlowClass, max_min, max_min_capped};
pub use polynomial::Polynomial;
pub use ranked_rates::{RankedGroup, ranked_rates};
pub use residual::ResidualCapacity;
pub use separable::SeparableSolver;
pub use wfq::WfqSolver;
