//! Jobs as sequences of stages: compute, then move bytes between all servers of the job.
//!
//! Katebzadeh et al., "Saba: Rethinking Datacenter Network Allocation from Application's Perspective", EuroSys '23, sections 2.3
//! and 8.1: jobs alternate between computation and communication, partly overlapped, and how much of each there is makes them
//! sensitive to bandwidth or not. [`workload`] has the ten of Table 1, [`calibration`] fits them to the published slowdowns,
//! [`cluster`] runs jobs side by side on shared links, [`sharing`] says how those are shared. On a network with paths a job is a
//! number of flows on each link ([`fabric`]).
//!
//! What the paper leaves open:
//!
//! - *The pattern* of a transfer: all servers of the job to all others, in equal parts, as in a shuffle.
//! - *Patience.* Logistic regression is 3.4 times slower at 25 % of the bandwidth and 4.5 times at 10 % (section 4.2). A job that moves
//!   the same bytes in both cases cannot be so, for its transfers take 2.5 times as long. So a stage may have a
//!   limit: what has not arrived after it is had otherwise (computed anew, or read from a copy). The paper does not say
//!   what happens; the limit is ours, and only where the published numbers ask for it.

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

use cluster::{ClusterError, Coupling, Options, Placed};
use sharing::Sharing;

/// A part of a job, the same on each of its servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// What has to be computed before anything is sent.
    pub compute: Time,
    /// What is computed while bytes move; the stage lasts until both are done.
    pub beside: Time,
    /// What each server sends to the others in all, and receives from them.
    pub bytes: Bytes,
    /// After so long, bytes that have not arrived are not waited for.
    pub patience: Option<Time>,
}

impl Stage {
    /// How long the stage takes if each server sends and receives at `rate`.
    pub fn alone(&self, rate: Rate) -> f64 {
        let patience = self.patience.map_or(f64::INFINITY, Time::get);
        let moving = self.bytes.get() / rate.get();
        self.compute.get() + self.beside.get().max(moving.min(patience))
    }
}

/// A job that can be profiled: its stages, on servers of their own.
#[derive(Debug, Clone, PartialEq)]
pub struct Profiled {
    /// Its stages, in order.
    pub stages: Vec<Stage>,
    /// How many servers it has.
    pub servers: u32,
    /// What each server sends, and receives, with all bandwidth.
    pub rate: Rate,
}

impl profile::Job for Profiled {
    type Error = ClusterError;

    /// Runs it alone in the simulator, with all links throttled.
    fn run(&mut self, bandwidth: Fraction) -> Result<Time, ClusterError> {
        let rate = Rate::new(self.rate.get() * bandwidth.get()).unwrap_or(Rate::ZERO);
        let job = Placed {
            stages: self.stages.clone(),
            servers: (0..self.servers).collect(),
            model: None,
            start: Time::ZERO,
        };
        let options = Options { servers: self.servers, rate, coupling: Coupling::Lockstep };
        let ends = cluster::run(&[job], &options, &Sharing::Flows)?;
        Ok(ends[0])
    }
}
