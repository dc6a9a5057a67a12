//! Solvers that policies share. Pure functions of capacities and demands.

pub mod residual;

pub use residual::Residual;
