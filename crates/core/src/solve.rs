//! Solvers that policies share. Pure functions of capacities and demands.

pub mod contention;
pub mod hierarchy;
pub mod maxmin;
pub mod residual;
pub mod wfq;

pub use contention::Contention;
pub use hierarchy::{ClassId, Guarantee, Hierarchy, HierarchyError, Shares, Solved};
pub use maxmin::{Class, Levels, max_min};
pub use residual::Residual;
pub use wfq::Wfq;
