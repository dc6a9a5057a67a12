//! Experiments with relays on one machine: networks of namespaces, and the traffic, delays and baselines to measure relays in them.
//!
//! - [`Network`] creates namespaces and removes them with all processes inside.
//! - [`DelayLine`] joins two namespaces by a link with delay, loss and a rate.
//!
//! All of this needs root. This crate works on Linux only.

#![cfg(target_os = "linux")]

pub mod delay_line;
mod error;
mod network;

pub use delay_line::DelayLine;
pub use error::LabError;
pub use network::{CableEnd, Network, Process};
