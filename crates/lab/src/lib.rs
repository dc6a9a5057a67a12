//! Experiments with relays on one machine: networks of namespaces, and the traffic, delays and baselines to measure relays in them.
//!
//! - [`DelayLine`] joins two namespaces by a link with delay, loss and a rate.
//! - [`chain`] is the network in which [`relays`] are measured: Weir's and the programs that it is compared with.
//! - [`traffic`] sends and receives flows, and [`experiment`] measures a relay under a load.
//! - [`regions`] is a network of regions, for experiments with programs such as Spark.
//! - [`overlay`] runs a coordinator and a relay in each region, and [`coflows`] sends coflows through them.
//!
//! All of this needs root. This crate works on Linux only.

#![cfg(target_os = "linux")]

mod certificates;
pub mod chain;
pub mod coflows;
pub mod delay_line;
mod error;
pub mod experiment;
pub mod overlay;
mod process;
pub mod regions;
pub mod relays;
pub mod traffic;

pub use delay_line::DelayLine;
pub use error::LabError;
pub use process::Process;
