//! A network of this machine's own: the hosts and switches of a [`Topology`](weir_core::model::Topology) as network namespaces
//! of Linux, its cables as veth pairs whose ends carry what the links carry, and real traffic over them.
//!
//! - [`Plan`] says what there will be: names, addresses, routes. It needs no privileges.
//! - [`queues`] has the numbers of the links: bursts, buffers, weights.
//! - [`batch`] turns both into scripts for `ip` and `tc`, and into a shell script for people.
//! - [`bed`] makes a bed by these scripts, finds it again, and takes it away.
//! - [`run()`] sends what a scenario says through it, and measures what arrives.
//! - [`incast`] measures what too many connections at once cost.
//! - [`namespace`] has code run inside its hosts.
//! - [`probe`] finds out what this machine lacks for that.
//!
//! Links carry frames: rates count all bytes from the Ethernet header on. Everything here is on Linux only.

#![cfg(target_os = "linux")]

pub mod batch;
pub mod bed;
mod command;
pub mod incast;
mod lock;
pub mod namespace;
mod plan;
pub mod probe;
mod run;

pub use bed::{Bed, BedError};
pub use command::CommandError;
pub use plan::{Cable, Name, Node, Plan, PlanError, Port, Route};
pub use run::{Phase, RunError, Unsupported, check, run};
pub use weir_agent::htb as queues;
