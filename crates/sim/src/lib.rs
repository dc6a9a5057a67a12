//! The simulator: a workload and a policy go in, completion times come out.
//!
//! It is fluid (flows have rates, not packets) and event-driven (between two events all rates stand still).
//! The engine in `weir-core` decides; this crate is its clock and its network. [`service`] is another simulator: of services
//! that share a network with paths; [`wide_area`] is one of coflows between regions, [`stage`] one of jobs.

pub mod bound;
pub mod explain;
pub mod outcome;
mod ports;
pub mod replay;
pub mod service;
pub mod stage;
pub mod summary;
mod transport;
pub mod wide_area;

pub use outcome::{CoflowOutcome, JobOutcome, Outcome};
pub use replay::{NetworkModel, NoObserver, Observer, Options, ReplayError, Snapshot, replay};

/// The page on adding a policy is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/adding-a-policy.md")]
struct AddingAPolicy;
