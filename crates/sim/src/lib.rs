//! The simulator: replays a workload under a policy, and returns completion times.
//!
//! The simulation is fluid (flows have rates, not packets) and event-driven (rates are constant between two events).
//! The engine in `weir-core` decides; this crate provides virtual time and the network. [`service`] has its own simulator, for
//! services that share a network under NetShare's mechanisms.

pub mod demands;
pub mod explain;
pub mod jobs;
pub mod lower_bound;
pub mod outcome;
mod port_numbering;
pub mod regions;
pub mod replay;
pub mod service;
pub mod summary;
pub mod thread_clock;

pub use outcome::{CoflowOutcome, JobOutcome, Outcome};
pub use regions::RegionLinks;
pub use replay::{
    NetworkModel, NoObserver, Observer, ReplayError, ReplayOptions, Snapshot, replay, replay_until_stalled,
};
