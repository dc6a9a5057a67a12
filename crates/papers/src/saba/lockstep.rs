//! Simulates jobs whose transfers advance in lockstep: all flows of a transfer have the rate of the slowest (sections 8.1 and 8.4).
//!
//! The network's simulator (`weir_sim::replay`) has each flow separately: a transfer of a job on 97 servers is 9,312 flows.
//! In lockstep all flows have one rate, so a transfer is its number of flows on each link.
//!
//! - [`cluster`] runs concurrent jobs on shared links, and [`sharing`] has the rules of sharing.
//! - [`fabric`] represents a job on a network with paths by its number of flows on each link.

pub mod cluster;
mod error;
pub mod fabric;
pub mod sharing;
mod stream;
