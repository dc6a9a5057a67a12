//! The engine of Weir: model, policies, solvers, and [`allocation::Allocation`], the output of policies.
//!
//! The crate is pure: it uses no clock, socket or file. A driver passes events and times to the [`engine::Engine`]
//! and requests schedules. Some solvers can use threads until they return; their results do not depend on the number
//! of threads.

pub mod allocation;
mod capacity_limit;
pub mod django;
pub mod engine;
mod host_service;
pub mod model;
pub mod netshare;
pub mod ordered_f64;
pub mod policy;
pub mod rounding;
pub mod saba;
pub mod solve;
pub mod suggestion;
pub mod timestamp;
mod transport;
pub mod tree;
pub mod units;
pub mod wide_area;
pub mod wide_area_policy;
