//! The engine of Weir: model, policies, solvers, and the [`allocation::Allocation`] boundary.
//!
//! Everything here is pure: no clock, thread, socket or file. A driver tells the [`engine::Engine`] what
//! happens and when, and asks it for schedules. (A solver that is told to may borrow threads until it returns; its answer does
//! not depend on how many.)

pub mod allocation;
mod carry;
pub mod engine;
pub mod model;
pub mod netshare;
pub mod order;
pub mod policy;
pub mod saba;
pub mod solve;
pub mod tree;
pub mod units;
pub mod wide_area;
