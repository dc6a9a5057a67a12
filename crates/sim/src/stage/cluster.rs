//! Jobs side by side on servers that share a switch: event-driven, between two events all rates stand still.
//!
//! Every server has a link to the switch and one back, as in the testbed of Saba's section 8.1; the switch itself is never
//! short. What a job computes costs it the same time whoever else is there, for "one core is
//! assigned to each job" (section 8.2).
//!
//! What the paper leaves open:
//!
//! - *How the flows of a transfer depend on each other* ([`Coupling`]). In lockstep, which is the default, all have the rate of the
//!   slowest, as in a collective operation; what they leave of their shares is others' at once. The other way, each is as
//!   fast as it can be, and the stage waits for the last.

use weir_core::units::{Rate, Time};

use super::Stage;
use super::fabric::{Fabric, check_servers};
use super::sharing::{Ports, Sharing};
use super::stream::Stream;

pub use super::error::ClusterError;

/// A job and where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// Its stages, in order.
    pub stages: Vec<Stage>,
    /// Its servers, each once.
    pub servers: Vec<u32>,
    /// Its row in the sensitivity table; none if it does not comply: Saba knows nothing of it, and it has the reserved queue.
    pub model: Option<usize>,
    /// When it begins.
    pub start: Time,
}

/// How the flows of a transfer depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coupling {
    /// All are as fast as the slowest.
    Lockstep,
    /// Each on its own.
    Free,
}

/// What jobs run on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// How many servers.
    pub servers: u32,
    /// What each sends and what it receives.
    pub rate: Rate,
    /// How the flows of a transfer depend on each other.
    pub coupling: Coupling,
}

/// How jobs on a network with paths ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// When each job did.
    pub ends: Vec<Time>,
    /// How often rates were found.
    pub solutions: u64,
    /// How often they had not settled ([`weir_core::solve::Lockstep`]).
    pub unsettled: u64,
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
    job: &'a Placed,
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
    /// Whether rates have to be found anew.
    stale: bool,
}

/// Two times closer than this part of them are one.
const SAME: f64 = 1e-12;

/// Runs all jobs and answers when each ends. The same input gives the same answer.
///
/// # Errors
/// A job that is not placed well, or cannot end.
pub fn run(jobs: &[Placed], options: &Options, sharing: &Sharing) -> Result<Vec<Time>, ClusterError> {
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

/// Runs jobs on a network with paths; all flows of a transfer are as fast as the slowest. `go_on` is asked before every step, with
/// its time in seconds; `false` ends it. The same input gives the same answer.
///
/// # Errors
/// Other jobs than the fabric was made for, or one that cannot end; somebody asks to stop.
pub fn run_on(
    jobs: &[Placed],
    fabric: &Fabric,
    sharing: &Sharing,
    go_on: impl FnMut(f64) -> bool,
) -> Result<Ended, ClusterError> {
    if jobs.len() != fabric.footprints.len() {
        return Err(ClusterError::Jobs { jobs: jobs.len(), expected: fabric.footprints.len() });
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
    let (ends, ports) = cluster.start_all(jobs, ports)?.run(go_on)?;
    Ok(Ended { ends, solutions: ports.solutions, unsettled: ports.unsettled })
}

impl<'a> Cluster<'a> {
    /// Lets all jobs wait for their time, whose transfers cross these ports; those whose time is 0 begin.
    fn start_all(mut self, jobs: &'a [Placed], ports: Vec<Vec<u32>>) -> Result<Cluster<'a>, ClusterError> {
        let running = jobs.iter().zip(ports);
        let waiting = |(job, ports): (&'a Placed, Vec<u32>)| {
            let phase = Phase::Waiting(job.start.get());
            Running { job, ports, stage: 0, phase }
        };
        self.running = running.map(waiting).collect();
        for number in 0..jobs.len() {
            self.step(number)?;
        }
        Ok(self)
    }

    fn run(mut self, mut go_on: impl FnMut(f64) -> bool) -> Result<(Vec<Time>, Ports), ClusterError> {
        loop {
            if !go_on(self.now) {
                return Err(ClusterError::Interrupted { now: self.now });
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
                _ => return Err(ClusterError::Stalled { job, now: self.now }),
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
        let beside = self.now + stage.beside.get();
        let servers = &running.job.servers;
        if stage.bytes.get() == 0.0 || servers.len() < 2 {
            running.phase = Phase::Beside(beside);
            return Ok(());
        }
        let patience = stage.patience.map_or(f64::INFINITY, |patience| self.now + patience.get());
        running.phase = Phase::Move(beside, patience);
        let others = (servers.len() - 1) as f64;
        let left = stage.bytes.get() / others;
        self.ports.open(number, &running.ports, left)?;
        let stream = |ports, flows| Stream { job: number, ports, flows, left, rate: 0.0 };
        match self.coupling {
            Coupling::Lockstep => self.streams.push(stream(running.ports.clone(), others)),
            Coupling::Free => {
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
