//! Jobs as a source of coflows: sequences of stages, in which all hosts of a job compute and then send to each other.
//!
//! Katebzadeh et al., "Saba: Rethinking Datacenter Network Allocation from Application's Perspective", EuroSys '23, sections
//! 2.3 and 8.1. Jobs alternate between computation and communication, which partly overlap. The proportion of both determines
//! the sensitivity of a job to bandwidth.
//!
//! [`add_jobs`] turns each transfer into a coflow, so every policy and every network can serve jobs. [`workload`] has the ten
//! workloads of Table 1, and [`calibration`] fits them to the published slowdowns.
//!
//! Choices that the paper leaves open:
//!
//! - *The pattern* of a transfer: all hosts of the job send to all others, in equal parts, as in a shuffle.
//! - *Patience.* Logistic regression is 3.4 times slower at 25 % of the bandwidth and 4.5 times at 10 % (section 4.2). A job
//!   that moves the same bytes in both cases cannot have these slowdowns, because its transfers take 2.5 times as long. A
//!   stage can therefore have a limit: bytes that have not arrived by then are obtained without the network (computed again,
//!   or read from a copy). The paper does not describe this; the limit is used only where the published numbers require it.

pub mod calibration;
pub mod workload;

use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames, Stage, Workload};
use weir_core::saba::Fraction;
use weir_core::saba::profile::{PROFILED_FRACTIONS, Profile, ProfileError};
use weir_core::units::{Bytes, Rate, Time};

/// The service of all jobs; each job is an application of it.
pub const SERVICE: &str = "jobs";

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its name, as an application of [`SERVICE`].
    pub name: String,
    /// Its stages, in order.
    pub stages: Vec<Stage>,
    /// Its hosts, each once; at least one.
    pub hosts: Vec<u32>,
    /// Its start.
    pub start: Time,
}

/// The reason why jobs cannot be added to a workload.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AddJobsError {
    /// The workload would have too many flows.
    #[error(
        "the stages of all jobs have more than {max} flows; expected fewer hosts, stages or jobs (--max-flows raises this limit)"
    )]
    TooManyFlows {
        /// The limit.
        max: usize,
    },
    /// The workload would have too many applications.
    #[error("the trace and the jobs have more than {max} applications; expected fewer", max = ServiceNames::MAX_APPLICATIONS)]
    TooManyApplications,
    /// A number of a coflow or of a job is the largest possible one.
    #[error("the trace has a coflow or a job with the number {}; expected smaller numbers", u64::MAX)]
    NumbersUsedUp,
    /// A job has no hosts.
    #[error("job {0} has no hosts; expected at least one")]
    NoHosts(String),
}

/// Adds the coflows of `jobs` to `workload`, if all its flows are then at most `max_flows`. Returns the number of the first job;
/// the others have the next numbers.
///
/// A transfer is a coflow, and the next one of its job is its child. Stages without bytes, and those of jobs with one host, are
/// computing time of their neighbours. A job without any transfer is a coflow of one empty flow. Numbers of jobs and coflows
/// follow the largest ones of the workload.
///
/// # Errors
/// See [`AddJobsError`]. The workload is then unchanged.
pub fn add_jobs(workload: &mut Workload, jobs: &[Job], max_flows: usize) -> Result<u64, AddJobsError> {
    let flow_count = |job: &Job| {
        let pairs = job.hosts.len().saturating_mul(job.hosts.len().saturating_sub(1));
        pairs.saturating_mul(job.stages.len()).max(1)
    };
    let added = jobs.iter().map(flow_count).fold(0, usize::saturating_add);
    if workload.flow_count().saturating_add(added) > max_flows {
        return Err(AddJobsError::TooManyFlows { max: max_flows });
    }
    let next = |largest: Option<u64>| {
        largest.map_or(Some(0), |id| id.checked_add(1)).ok_or(AddJobsError::NumbersUsedUp)
    };
    let first_job = next(workload.coflows.iter().filter_map(|coflow| coflow.job).max())?;
    let first_coflow = next(workload.coflows.iter().map(|coflow| coflow.id).max())?;
    let mut names = workload.names.clone();
    let mut coflows = Vec::new();
    for (job, number) in jobs.iter().zip(first_job..) {
        if job.hosts.is_empty() {
            return Err(AddJobsError::NoHosts(job.name.clone()));
        }
        let application = names.intern(SERVICE, &job.name).ok_or(AddJobsError::TooManyApplications)?;
        let first = workload.coflows.len() + coflows.len();
        for (place, coflow) in job_coflows(job).into_iter().enumerate() {
            let id = first_coflow.checked_add(coflows.len() as u64).ok_or(AddJobsError::NumbersUsedUp)?;
            let (service, application) = application;
            let parents = if place == 0 { Vec::new() } else { vec![first + place - 1] };
            coflows.push(CoflowSpec { id, service, application, job: Some(number), parents, ..coflow });
        }
    }
    let last_port = jobs.iter().flat_map(|job| &job.hosts).max();
    workload.ports = workload.ports.max(last_port.map_or(0, |port| port.saturating_add(1)));
    workload.coflows.append(&mut coflows);
    workload.names = names;
    Ok(first_job)
}

/// The transfers of a job as coflows without numbers, in order.
fn job_coflows(job: &Job) -> Vec<CoflowSpec> {
    let mut coflows: Vec<CoflowSpec> = Vec::new();
    let mut compute_seconds = 0.0;
    for (stage, number) in job.stages.iter().zip(0..) {
        compute_seconds += stage.compute.get();
        if job.hosts.len() == 1 || stage.bytes == Bytes::ZERO {
            compute_seconds += stage.overlapped_compute.get();
            continue;
        }
        coflows.push(CoflowSpec {
            stage: Some(number),
            compute_before: seconds(compute_seconds),
            overlapped_compute: stage.overlapped_compute,
            max_transfer_time: stage.max_transfer_time,
            ..CoflowSpec::new(0, job.start, shuffle(&job.hosts, stage.bytes))
        });
        compute_seconds = 0.0;
    }
    match coflows.last_mut() {
        Some(last) => last.compute_after = seconds(compute_seconds),
        None => {
            let empty = vec![FlowSpec::new(job.hosts[0], job.hosts[0], Bytes::ZERO)];
            coflows.push(CoflowSpec {
                compute_before: seconds(compute_seconds),
                ..CoflowSpec::new(0, job.start, empty)
            });
        }
    }
    coflows
}

/// Flows from each host to each other; each host sends `bytes`.
fn shuffle(hosts: &[u32], bytes: Bytes) -> Vec<FlowSpec> {
    let bytes = Bytes::new(bytes.get() / (hosts.len() - 1) as f64).unwrap_or(bytes);
    let pairs = hosts.iter().flat_map(|&src| hosts.iter().map(move |&dst| (src, dst)));
    pairs.filter(|(src, dst)| src != dst).map(|(src, dst)| FlowSpec::new(src, dst, bytes)).collect()
}

fn seconds(value: f64) -> Time {
    Time::new(value).expect("a sum of at most 10,000 computing times is finite")
}

/// The duration of a run of stages is not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run does not end; expected a rate above 0 and finite times")]
pub struct EndlessRun;

/// Profiles stages on hosts that they do not share, whose links have the rate `rate` at full bandwidth.
///
/// # Errors
/// If a run takes no time or does not end.
pub fn profile(stages: &[Stage], rate: Rate) -> Result<Profile, ProfileError<EndlessRun>> {
    let mut run = |bandwidth: Fraction| {
        let rate = Rate::new(rate.get() * bandwidth.get()).ok_or(EndlessRun)?;
        Time::new(stages.iter().map(|stage| stage.duration_alone(rate)).sum()).ok_or(EndlessRun)
    };
    Profile::measure(&mut run, &PROFILED_FRACTIONS)
}
