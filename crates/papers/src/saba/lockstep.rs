//! Replays jobs whose transfers advance in lockstep: all flows of a transfer have the rate of the slowest (sections 8.1 and 8.4), as in
//! a collective operation. Other jobs immediately get their unused bandwidth.
//!
//! Jobs are chains of coflows with computing times (`weir_sim::jobs`), and a policy sets the rates of their transfers. A transfer of a job
//! on 97 servers is 9,312 flows; in lockstep all have one rate, so a transfer is its number of flows on each link. A coflow
//! of the replay therefore contains the flows between two hosts only, which stand for all. Other jobs do not affect the computing time of
//! a job, because "one core is assigned to each job" (section 8.2).
//!
//! - [`fabric`] represents a job on a network by its number of flows on each link.
//! - [`sharing`] has the rules of sharing.
//! - `policy` turns these rules into rates of coflows.

mod error;
pub mod fabric;
mod policy;
pub mod sharing;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_core::model::{ServiceNames, Stage, Workload};
use weir_core::policy::AnyPolicy;
use weir_core::units::{Bytes, Rate, Time};
use weir_sim::jobs::{Job, add_jobs};
use weir_sim::{Observer, ReplayOptions, replay};

pub use error::LockstepError;
use fabric::JobLinks;
use policy::{JobPolicy, SolutionCounts};
use sharing::SharingRule;

/// A job and its servers.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedJob {
    /// Its stages, in order.
    pub stages: Vec<Stage>,
    /// Its servers, each once.
    pub servers: Vec<u32>,
    /// Its row in the sensitivity table; none for a job that is not compliant: Saba does not know its sensitivity, and it uses
    /// the reserved queue.
    pub model: Option<usize>,
    /// Its start.
    pub start: Time,
}

impl PlacedJob {
    /// The job with one flow each way between two hosts, of the same size as each of its flows.
    fn to_replayed(&self, number: usize) -> Job {
        let others = self.servers.len().saturating_sub(1).max(1) as f64;
        let with_flow_size = |stage: &Stage| Stage {
            bytes: Bytes::new(stage.bytes.get() / others).unwrap_or(stage.bytes),
            ..*stage
        };
        Job {
            name: format!("job-{number}"),
            stages: self.stages.iter().map(with_flow_size).collect(),
            hosts: (0..self.servers.len().min(2) as u32).collect(),
            start: self.start,
        }
    }
}

/// The result of jobs in lockstep.
#[derive(Debug, Clone, PartialEq)]
pub struct LockstepOutcome {
    /// The end of each job.
    pub ends: Vec<Time>,
    /// Number of computations of rates.
    pub rate_computations: u64,
    /// Number of these whose rates had not settled ([`weir_core::solve::WfqSolver`]).
    pub unsettled_computations: u64,
}

/// Runs all jobs. The same input gives the same result.
///
/// # Errors
/// If the links were made for another number of jobs, the links cannot be shared in this way, a job has no server, or the observer
/// stops the replay.
pub fn run(
    jobs: &[PlacedJob],
    links: &JobLinks,
    sharing: &SharingRule,
    observer: &mut dyn Observer,
) -> Result<LockstepOutcome, LockstepError> {
    if jobs.len() != links.footprints.len() {
        return Err(LockstepError::WrongJobCount { jobs: jobs.len(), expected: links.footprints.len() });
    }
    let replayed: Vec<Job> = jobs.iter().enumerate().map(|(number, job)| job.to_replayed(number)).collect();
    let names = ServiceNames::empty();
    let mut workload = Workload { ports: 1, coflows: Vec::new(), events: Vec::new(), names };
    add_jobs(&mut workload, &replayed, usize::MAX)?;
    let counts = Arc::new(SolutionCounts::default());
    let policy = JobPolicy::new(jobs, &workload.coflows, links, sharing, Arc::clone(&counts))?;
    // The policy knows the links. The ports of the replay limit no flow.
    let fastest = links.capacities.iter().copied().fold(0.0, f64::max);
    let options = ReplayOptions {
        port_rate: Rate::new(fastest).unwrap_or(Rate::GBIT),
        interval: Time::ZERO,
        ..ReplayOptions::default()
    };
    let outcome = replay(&workload, AnyPolicy::from(policy), &options, observer)?;
    let end = |seconds| Time::new(seconds).expect("the replay ends after a finite time");
    Ok(LockstepOutcome {
        ends: outcome.jobs.iter().map(|job| end(job.end)).collect(),
        rate_computations: counts.computed.load(Ordering::Relaxed),
        unsettled_computations: counts.unsettled.load(Ordering::Relaxed),
    })
}
