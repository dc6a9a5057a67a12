//! Saba: bandwidth to the applications that lose most without it.
//!
//! Katebzadeh et al., "Saba: Rethinking Datacenter Network Allocation from Application's Perspective", EuroSys '23.
//!
//! [`profile`] measures how an application slows down with less bandwidth (section 4) and [`sensitivity`] is the model
//! of that. [`mapping`] puts applications into priority levels and those into queues (5.3). [`share`] finds the weights of
//! the applications at a port (5.1), [`port`] those of its queues. [`controller`] keeps all that up to date for a fabric (5.4).

pub mod controller;
mod ids;
pub mod mapping;
pub mod port;
pub mod profile;
pub mod sensitivity;
mod set_mark;
pub mod share;
mod solved;

pub use controller::Controller;
pub use mapping::Mapping;
pub use port::Plan;
pub use profile::Profile;
pub use sensitivity::{Fraction, Sensitivity};
