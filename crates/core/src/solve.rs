//! Solvers that policies share: pure functions of capacities and demands.

pub mod cluster;
pub mod connections;
pub mod contention;
pub mod hierarchy;
pub mod lockstep;
pub mod maxmin;
pub mod montecarlo;
pub mod polynomial;
pub mod residual;
pub mod separable;
pub mod wfq;

pub use contention::Contention;
pub use hierarchy::{ClassId, Guarantee, Hierarchy, HierarchyError, Shares, Solved};
pub use lockstep::Lockstep;
pub use maxmin::{Class, Levels, max_min};
pub use polynomial::Polynomial;
pub use residual::Residual;
pub use separable::Solver;
pub use wfq::Wfq;
