//! Builds a network on this machine from a [`Topology`](weir_core::model::Topology), and sends real traffic over it. Hosts and
//! switches are Linux network namespaces; cables are veth pairs that are shaped to the rates of the links.
//!
//! - [`Plan`] computes names, addresses and routes. It needs no privileges.
//! - [`queues`], from `weir-agent`, computes the parameters of links: bursts, buffers and rates.
//! - [`batch`] turns both into scripts for `ip` and `tc`, and into a shell script for users.
//! - [`bed`] creates, opens and removes beds by these scripts.
//! - [`run()`] sends the traffic of a scenario over a bed, and measures the arriving rates.
//! - [`incast`] measures the losses of many concurrent connections to one receiver.
//! - [`tcp_bed`] sets the TCP of all hosts, and the buffers and ECN marks of a switch.
//! - [`congestion`] provides congestion controls, also a reduced DCTCP on kernels without `dctcp`.
//! - [`namespace`] runs code and programs inside the network namespaces of hosts.
//! - [`network`] creates namespaces that the caller connects, and [`testing`] those of tests.
//! - [`probe`] checks the requirements of a bed on this machine.
//!
//! Link rates count whole frames, from the Ethernet header on. This crate works on Linux only.

#![cfg(target_os = "linux")]

pub mod batch;
pub mod bed;
mod command;
pub mod congestion;
pub mod incast;
mod lock;
pub mod namespace;
pub mod network;
mod plan;
pub mod probe;
mod run;
pub mod tcp_bed;
pub mod testing;

pub use bed::{Bed, BedError};
pub use command::CommandError;
pub use network::Network;
pub use plan::{BedName, Cable, Node, Plan, PlanError, Port, Route};
pub use run::{Phase, RunError, Unsupported, check, run};
pub use weir_agent::htb as queues;
