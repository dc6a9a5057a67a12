//! Simulates jobs as sequences of stages: each stage computes, and transfers bytes between all servers of the job.
//!
//! Katebzadeh et al., "Saba: Rethinking Datacenter Network Allocation from Application's Perspective", EuroSys '23, sections
//! 2.3 and 8.1. Jobs alternate between computation and communication, which partly overlap. The proportion of both determines
//! the sensitivity of a job to bandwidth.
//!
//! - [`workload`] has the ten workloads of Table 1, and [`calibration`] fits them to the published slowdowns.
//! - [`cluster`] runs concurrent jobs on shared links, and [`sharing`] has the rules of sharing.
//! - [`fabric`] represents a job on a network with paths by its number of flows on each link.
//!
//! Choices that the paper leaves open:
//!
//! - *The pattern* of a transfer: all servers of the job send to all others, in equal parts, as in a shuffle.
//! - *Patience.* Logistic regression is 3.4 times slower at 25 % of the bandwidth and 4.5 times at 10 % (section 4.2). A job
//!   that moves the same bytes in both cases cannot have these slowdowns, because its transfers take 2.5 times as long. A
//!   stage can therefore have a limit: bytes that have not arrived by then are obtained without the network (computed again,
//!   or read from a copy). The paper does not describe this; the limit is used only where the published numbers require it.

pub mod calibration;
pub mod cluster;
mod error;
pub mod fabric;
pub mod job_set;
pub mod sharing;
mod stream;
pub mod workload;

use weir_core::saba::Fraction;
use weir_core::saba::profile;
use weir_core::units::{Bytes, Rate, Time};

use cluster::{ClusterError, ClusterOptions, Coupling, PlacedJob};
use sharing::SharingRule;

/// A step of a job, the same on each of its servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// Computing time before the transfer starts.
    pub compute: Time,
    /// Computing time in parallel with the transfer; the stage lasts until both have ended.
    pub overlapped_compute: Time,
    /// Bytes that each server sends to the others in total, and receives from them.
    pub bytes: Bytes,
    /// The maximum time to wait for the transfer, if any.
    pub max_transfer_time: Option<Time>,
}

impl Stage {
    /// The duration of the stage, in seconds, if each server sends and receives at `rate`.
    pub fn duration_alone(&self, rate: Rate) -> f64 {
        let patience = self.max_transfer_time.map_or(f64::INFINITY, Time::get);
        let moving = self.bytes.get() / rate.get();
        self.compute.get() + self.overlapped_compute.get().max(moving.min(patience))
    }
}

/// A job that can be profiled: its stages, on servers that it does not share.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfiledJob {
    /// Its stages, in order.
    pub stages: Vec<Stage>,
    /// Number of servers.
    pub servers: u32,
    /// The rate at which each server sends and receives with full bandwidth.
    pub rate: Rate,
}

impl profile::Job for ProfiledJob {
    type Error = ClusterError;

    /// Runs it alone in the simulator, with all links throttled.
    fn run(&mut self, bandwidth: Fraction) -> Result<Time, ClusterError> {
        let rate = Rate::new(self.rate.get() * bandwidth.get()).unwrap_or(Rate::ZERO);
        let job = PlacedJob {
            stages: self.stages.clone(),
            servers: (0..self.servers).collect(),
            model: None,
            start: Time::ZERO,
        };
        let options = ClusterOptions { servers: self.servers, rate, coupling: Coupling::Lockstep };
        let ends = cluster::run(&[job], &options, &SharingRule::PerFlow)?;
        Ok(ends[0])
    }
}
