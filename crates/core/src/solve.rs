//! Solvers that policies share. Pure functions of capacities and demands.

pub mod contention;
pub mod maxmin;
pub mod residual;
pub mod wfq;

pub use contention::Contention;
pub use maxmin::{Class, Levels, max_min};
pub use residual::Residual;
pub use wfq::Wfq;
