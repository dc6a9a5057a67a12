//! Runs concurrent jobs on servers that share links; event-driven, with constant rates between two events.
//!
//! Every server has one link to the switch and one back, as in the testbed of Saba's section 8.1; the switch itself is never
//! a bottleneck. Other jobs do not affect the computing time of a job, because "one core is assigned to each job" (section
//! 8.2).
//!
//! Choices where the paper is silent:
//!
//! - *The dependency between the flows of a transfer* ([`Coupling`]). In lockstep, the default, all flows have the rate of
//!   the slowest, as in a collective operation, and other jobs immediately get their unused bandwidth. Otherwise each flow
//!   is as fast as possible, and the stage waits for the last.

use weir_core::units::{Rate, Time};

use super::fabric::{JobLinks, check_servers};
use super::sharing::{Ports, SharingRule};
use super::stream::Stream;
use weir_core::model::Stage;

pub use super::error::ClusterError;

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

/// The dependency between the flows of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coupling {
    /// All flows have the rate of the slowest.
    Lockstep,
    /// Each flow has an independent rate.
    Independent,
}

/// Servers and links that jobs run on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClusterOptions {
    /// Number of servers.
    pub servers: u32,
    /// The rate at which each server sends, and at which it receives.
    pub rate: Rate,
    /// The dependency between the flows of a transfer.
    pub coupling: Coupling,
}

/// The result of jobs on a network with paths.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterOutcome {
    /// The end of each job.
    pub ends: Vec<Time>,
    /// Number of computations of rates.
    pub rate_computations: u64,
    /// Number of these whose rates had not settled ([`weir_core::solve::GroupRateSolver`]).
    pub unsettled_computations: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Before the job's start, at this time.
    Waiting(f64),
    /// Computing until this time.
    Compute(f64),
    /// Sending bytes until the second time at the latest. Overlapped computing ends at the first.
    Transfer(f64, f64),
    /// After the transfer: overlapped computing until this time.
    OverlappedCompute(f64),
    Done(f64),
}

struct Running<'a> {
    job: &'a PlacedJob,
    ports: Vec<u32>,
    stage: usize,
    phase: Phase,
}

struct Cluster<'a> {
    running: Vec<Running<'a>>,
    streams: Vec<Stream>,
    ports: Ports,
    coupling: Coupling,
    servers: u32,
    now: f64,
    /// Whether rates have to be computed again.
    stale: bool,
}

/// Two times are equal if they differ by at most this fraction.
const TIME_TOLERANCE: f64 = 1e-12;

/// Runs all jobs and returns the end of each. The same input gives the same result.
///
/// # Errors
/// If a job has an invalid server or cannot end, or the links cannot be shared in this way.
pub fn run(
    jobs: &[PlacedJob],
    options: &ClusterOptions,
    sharing: &SharingRule,
) -> Result<Vec<Time>, ClusterError> {
    let capacities = vec![options.rate.get(); 2 * options.servers as usize];
    let mut ports = Vec::with_capacity(jobs.len());
    for (number, job) in jobs.iter().enumerate() {
        check_servers(number, &job.servers, options.servers)?;
        // Sending ports come first.
        let receiving = job.servers.iter().map(|server| server + options.servers);
        ports.push(job.servers.iter().copied().chain(receiving).collect());
    }
    let cluster = Cluster {
        ports: Ports::new(&capacities, jobs.len(), sharing)?,
        running: Vec::new(),
        streams: Vec::new(),
        coupling: options.coupling,
        servers: options.servers,
        now: 0.0,
        stale: true,
    };
    Ok(cluster.start_all(jobs, ports)?.run(|_| true)?.0)
}

/// Runs jobs on a network with paths; all flows of a transfer have the rate of the slowest. Calls `should_continue` before
/// every step, with the simulated time in seconds; if it returns `false`, the run stops. The same input gives the same
/// result.
///
/// # Errors
/// If the fabric was made for another number of jobs, a job cannot end, the links cannot be shared in this way, or the caller
/// stops the run.
pub fn run_on_fabric(
    jobs: &[PlacedJob],
    fabric: &JobLinks,
    sharing: &SharingRule,
    should_continue: impl FnMut(f64) -> bool,
) -> Result<ClusterOutcome, ClusterError> {
    if jobs.len() != fabric.footprints.len() {
        return Err(ClusterError::WrongJobCount { jobs: jobs.len(), expected: fabric.footprints.len() });
    }
    let links = |footprint: &Vec<(u32, f64)>| footprint.iter().map(|(link, _)| *link).collect();
    let cluster = Cluster {
        ports: Ports::for_fabric(fabric, sharing)?,
        running: Vec::new(),
        streams: Vec::new(),
        coupling: Coupling::Lockstep,
        servers: 0,
        now: 0.0,
        stale: true,
    };
    let ports = fabric.footprints.iter().map(links).collect();
    let (ends, ports) = cluster.start_all(jobs, ports)?.run(should_continue)?;
    Ok(ClusterOutcome {
        ends,
        rate_computations: ports.rate_computations,
        unsettled_computations: ports.unsettled_computations,
    })
}

impl<'a> Cluster<'a> {
    /// Adds all jobs, with the ports that each uses, and starts those with a start time of 0.
    fn start_all(mut self, jobs: &'a [PlacedJob], ports: Vec<Vec<u32>>) -> Result<Cluster<'a>, ClusterError> {
        let running = jobs.iter().zip(ports);
        let waiting = |(job, ports): (&'a PlacedJob, Vec<u32>)| {
            let phase = Phase::Waiting(job.start.get());
            Running { job, ports, stage: 0, phase }
        };
        self.running = running.map(waiting).collect();
        for number in 0..jobs.len() {
            self.advance_job(number)?;
        }
        Ok(self)
    }

    fn run(
        mut self,
        mut should_continue: impl FnMut(f64) -> bool,
    ) -> Result<(Vec<Time>, Ports), ClusterError> {
        loop {
            if !should_continue(self.now) {
                return Err(ClusterError::Interrupted { seconds: self.now });
            }
            if self.stale {
                self.ports.compute_rates(&mut self.streams)?;
                self.stale = false;
            }
            let next = self.next_event_time();
            if next == f64::INFINITY {
                break;
            }
            self.advance_time(next);
            for number in 0..self.running.len() {
                self.advance_job(number)?;
            }
        }
        let mut ends = Vec::with_capacity(self.running.len());
        for (job, running) in self.running.iter().enumerate() {
            match running.phase {
                Phase::Done(at) if at.is_finite() => ends.push(Time::new(at).unwrap_or(Time::ZERO)),
                _ => return Err(ClusterError::Stalled { job, seconds: self.now }),
            }
        }
        Ok((ends, self.ports))
    }

    /// Time of the next event; infinite without one.
    fn next_event_time(&self) -> f64 {
        let phases = self.running.iter().map(|running| match running.phase {
            Phase::Waiting(until) | Phase::Compute(until) | Phase::OverlappedCompute(until) => until,
            Phase::Transfer(_, transfer_deadline) => transfer_deadline,
            Phase::Done(_) => f64::INFINITY,
        });
        let ends = self.streams.iter().map(|stream| self.now + stream.left / stream.rate);
        phases.chain(ends).fold(f64::INFINITY, f64::min).max(self.now)
    }

    /// Sends until `next`, and removes streams that have ended.
    fn advance_time(&mut self, next: f64) {
        let passed = next - self.now;
        let limit = next + TIME_TOLERANCE * next;
        let (now, before) = (self.now, self.streams.len());
        self.streams.retain_mut(|stream| {
            let over = now + stream.left / stream.rate <= limit;
            stream.left = (stream.left - stream.rate * passed).max(0.0);
            !over
        });
        self.stale |= self.streams.len() < before;
        self.now = next;
    }

    /// Moves a job to its phase at the current time. It can pass several stages that take no time.
    fn advance_job(&mut self, number: usize) -> Result<(), ClusterError> {
        let limit = self.now + TIME_TOLERANCE * self.now;
        loop {
            match self.running[number].phase {
                Phase::Waiting(until) if until <= limit => {
                    let Running { job, ports, .. } = &self.running[number];
                    self.ports.add_job(number, job.model, ports)?;
                    // A registration can move other jobs to other queues.
                    self.stale = true;
                    self.start_stage(number)?;
                }
                Phase::Compute(until) if until <= limit => self.start_transfer(number)?,
                Phase::Transfer(compute_end, transfer_deadline) => {
                    if transfer_deadline > limit && self.streams.iter().any(|stream| stream.job == number) {
                        return Ok(());
                    }
                    self.streams.retain(|stream| stream.job != number);
                    self.ports.end_transfer(number, &self.running[number].ports)?;
                    self.stale = true;
                    self.running[number].phase = Phase::OverlappedCompute(compute_end);
                }
                Phase::OverlappedCompute(until) if until <= limit => {
                    self.running[number].stage += 1;
                    self.start_stage(number)?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Starts the next stage, or ends the job after its last.
    fn start_stage(&mut self, number: usize) -> Result<(), ClusterError> {
        let running = &mut self.running[number];
        match running.job.stages.get(running.stage) {
            Some(stage) => running.phase = Phase::Compute(self.now + stage.compute.get()),
            None => {
                running.phase = Phase::Done(self.now);
                self.stale = true;
                self.ports.remove_job(number)?;
            }
        }
        Ok(())
    }

    /// Starts the transfer of a stage.
    fn start_transfer(&mut self, number: usize) -> Result<(), ClusterError> {
        let running = &mut self.running[number];
        let stage = &running.job.stages[running.stage];
        let compute_end = self.now + stage.overlapped_compute.get();
        let servers = &running.job.servers;
        if stage.bytes.get() == 0.0 || servers.len() < 2 {
            running.phase = Phase::OverlappedCompute(compute_end);
            return Ok(());
        }
        let transfer_deadline = stage.max_transfer_time.map_or(f64::INFINITY, |limit| self.now + limit.get());
        running.phase = Phase::Transfer(compute_end, transfer_deadline);
        let others = (servers.len() - 1) as f64;
        let left = stage.bytes.get() / others;
        self.ports.start_transfer(number, &running.ports, left)?;
        let stream = |ports, flows| Stream { job: number, ports, flows, left, rate: 0.0 };
        match self.coupling {
            Coupling::Lockstep => self.streams.push(stream(running.ports.clone(), others)),
            Coupling::Independent => {
                for &from in servers {
                    let to = servers.iter().filter(|to| **to != from);
                    self.streams.extend(to.map(|to| stream(vec![from, to + self.servers], 1.0)));
                }
            }
        }
        self.stale = true;
        Ok(())
    }
}
