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

use super::Stage;
use super::fabric::{JobLinks, check_servers};
use super::sharing::{Ports, SharingRule};
use super::stream::Stream;

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
    /// Not there before that.
    Waiting(f64),
    /// Computing until then.
    Compute(f64),
    /// Moving bytes, beside what computes until the first time, and no longer than until the second.
    Move(f64, f64),
    /// Computing the rest until then.
    Beside(f64),
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

/// Two times closer than this part of them are one.
const SAME: f64 = 1e-12;

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
        ports: Ports::on(fabric, sharing)?,
        running: Vec::new(),
        streams: Vec::new(),
        coupling: Coupling::Lockstep,
        servers: 0,
        now: 0.0,
        stale: true,
    };
    let ports = fabric.footprints.iter().map(links).collect();
    let (ends, ports) = cluster.start_all(jobs, ports)?.run(should_continue)?;
    Ok(ClusterOutcome { ends, rate_computations: ports.solutions, unsettled_computations: ports.unsettled })
}

impl<'a> Cluster<'a> {
    /// Lets all jobs wait for their time, whose transfers cross these ports; those whose time is 0 begin.
    fn start_all(mut self, jobs: &'a [PlacedJob], ports: Vec<Vec<u32>>) -> Result<Cluster<'a>, ClusterError> {
        let running = jobs.iter().zip(ports);
        let waiting = |(job, ports): (&'a PlacedJob, Vec<u32>)| {
            let phase = Phase::Waiting(job.start.get());
            Running { job, ports, stage: 0, phase }
        };
        self.running = running.map(waiting).collect();
        for number in 0..jobs.len() {
            self.step(number)?;
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
                self.ports.rates(&mut self.streams)?;
                self.stale = false;
            }
            let next = self.next();
            if next == f64::INFINITY {
                break;
            }
            self.advance(next);
            for number in 0..self.running.len() {
                self.step(number)?;
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

    /// When something happens next; infinite if nothing does.
    fn next(&self) -> f64 {
        let phases = self.running.iter().map(|running| match running.phase {
            Phase::Waiting(until) | Phase::Compute(until) | Phase::Beside(until) => until,
            Phase::Move(_, patience) => patience,
            Phase::Done(_) => f64::INFINITY,
        });
        let ends = self.streams.iter().map(|stream| self.now + stream.left / stream.rate);
        phases.chain(ends).fold(f64::INFINITY, f64::min).max(self.now)
    }

    /// Lets time pass and removes streams that have ended.
    fn advance(&mut self, next: f64) {
        let passed = next - self.now;
        let limit = next + SAME * next;
        let (now, before) = (self.now, self.streams.len());
        self.streams.retain_mut(|stream| {
            let over = now + stream.left / stream.rate <= limit;
            stream.left = (stream.left - stream.rate * passed).max(0.0);
            !over
        });
        self.stale |= self.streams.len() < before;
        self.now = next;
    }

    /// Brings a job to where it should be now, through stages that take no time if there are such.
    fn step(&mut self, number: usize) -> Result<(), ClusterError> {
        let limit = self.now + SAME * self.now;
        loop {
            match self.running[number].phase {
                Phase::Waiting(until) if until <= limit => {
                    let Running { job, ports, .. } = &self.running[number];
                    self.ports.begin(number, job.model, ports)?;
                    // Who registers may move others to other queues.
                    self.stale = true;
                    self.start(number)?;
                }
                Phase::Compute(until) if until <= limit => self.transfer(number)?,
                Phase::Move(beside, patience) => {
                    if patience > limit && self.streams.iter().any(|stream| stream.job == number) {
                        return Ok(());
                    }
                    self.streams.retain(|stream| stream.job != number);
                    self.ports.close(number, &self.running[number].ports)?;
                    self.stale = true;
                    self.running[number].phase = Phase::Beside(beside);
                }
                Phase::Beside(until) if until <= limit => {
                    self.running[number].stage += 1;
                    self.start(number)?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Begins the stage that is next, if there is one.
    fn start(&mut self, number: usize) -> Result<(), ClusterError> {
        let running = &mut self.running[number];
        match running.job.stages.get(running.stage) {
            Some(stage) => running.phase = Phase::Compute(self.now + stage.compute.get()),
            None => {
                running.phase = Phase::Done(self.now);
                self.stale = true;
                self.ports.end(number)?;
            }
        }
        Ok(())
    }

    /// Begins to move the bytes of a stage.
    fn transfer(&mut self, number: usize) -> Result<(), ClusterError> {
        let running = &mut self.running[number];
        let stage = &running.job.stages[running.stage];
        let beside = self.now + stage.overlapped_compute.get();
        let servers = &running.job.servers;
        if stage.bytes.get() == 0.0 || servers.len() < 2 {
            running.phase = Phase::Beside(beside);
            return Ok(());
        }
        let patience = stage.max_transfer_time.map_or(f64::INFINITY, |patience| self.now + patience.get());
        running.phase = Phase::Move(beside, patience);
        let others = (servers.len() - 1) as f64;
        let left = stage.bytes.get() / others;
        self.ports.open(number, &running.ports, left)?;
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
