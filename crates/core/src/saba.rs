//! Saba: bandwidth allocation by the sensitivity of applications.
//!
//! Source: Katebzadeh et al., "Saba: Rethinking Datacenter Network Allocation from Application's Perspective",
//! EuroSys '23.
//!
//! - [`profile`] measures the slowdown of an application with less bandwidth (section 4); [`sensitivity`] is the
//!   model of the slowdown.
//! - [`mapping`] assigns applications to priority levels, and priority levels to queues (5.3).
//! - [`app_weights`] computes the weights of the applications at a port (5.1); [`port`] computes the weights of the port's
//!   queues.
//! - [`controller`] maintains these results for a fabric (5.4). In simulations, [`crate::tree`] computes them for each
//!   link from the applications with flows there; [`SabaLimits`] has the limits of levels and queues.

pub mod app_weights;
pub mod controller;
mod ids;
mod limits;
pub mod mapping;
pub mod port;
pub mod profile;
pub mod sensitivity;
mod set_hash;
mod settings;
mod solution_cache;

pub use controller::Controller;
pub use limits::SabaLimits;
pub use mapping::LevelMapping;
pub use port::QueuePlan;
pub use profile::Profile;
pub use sensitivity::{Fraction, Sensitivity};
