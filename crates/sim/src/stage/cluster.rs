//! Jobs side by side on servers that share a switch: event-driven, between two events all rates stand still.
//!
//! Every server has a link to the switch and one back, as in the testbed of Saba's section 8.1; the switch itself is never
//! short. Jobs begin together. What a job computes costs it the same time whoever else is there, for "one core is
//! assigned to each job" (section 8.2).
//!
//! What the paper leaves open:
//!
//! - *How the flows of a transfer depend on each other* ([`Coupling`]). In lockstep, which is the default, all have the rate of the
//!   slowest, as in a collective operation; what they leave of their shares is others' at once. The other way, each is as
//!   fast as it can be, and the stage waits for the last.

use weir_core::solve::wfq::{Class, Source, Wfq};
use weir_core::units::{Rate, Time};

use super::Stage;
use super::sharing::{Ports, Sharing, SharingError};

/// A job and where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// Its stages, in order.
    pub stages: Vec<Stage>,
    /// Its servers, each once.
    pub servers: Vec<u32>,
    /// Its row in the sensitivity table, if there is one.
    pub model: usize,
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

/// Why jobs could not be run to their ends.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClusterError {
    /// A server that is not there, or that a job has twice.
    #[error("job {job}: server `{server}`: expected each once, from 0 to {}", .servers.saturating_sub(1))]
    Server {
        /// The job's position.
        job: usize,
        /// The server.
        server: u32,
        /// How many there are.
        servers: u32,
    },
    /// Bytes that nothing moves.
    #[error("at {now} s nothing moves and job {job} is not done: expected links that carry something")]
    Stalled {
        /// The first of the jobs that are not done.
        job: usize,
        /// When.
        now: f64,
    },
    /// Links cannot be shared so.
    #[error(transparent)]
    Sharing(#[from] SharingError),
}

/// Flows of a job that go the same ways and are equally long.
struct Stream {
    job: usize,
    ports: Vec<u32>,
    /// How many cross each of the ports.
    flows: f64,
    /// What is left of each.
    left: f64,
    rate: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
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

/// Runs all jobs from time 0 and answers when each ends. The same input gives the same answer.
///
/// # Errors
/// A job that is not placed well, or cannot end.
pub fn run(jobs: &[Placed], options: &Options, sharing: &Sharing) -> Result<Vec<Time>, ClusterError> {
    let capacities = vec![options.rate.get(); 2 * options.servers as usize];
    let mut running = Vec::with_capacity(jobs.len());
    for (number, job) in jobs.iter().enumerate() {
        let mut sorted = job.servers.clone();
        sorted.sort_unstable();
        let twice = sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        if let Some(server) = sorted.last().copied().filter(|s| *s >= options.servers).or(twice) {
            return Err(ClusterError::Server { job: number, server, servers: options.servers });
        }
        // Sending ports come first.
        let ports = sorted.iter().copied().chain(sorted.iter().map(|server| server + options.servers));
        running.push(Running { job, ports: ports.collect(), stage: 0, phase: Phase::Done(0.0) });
    }
    let mut cluster = Cluster {
        ports: Ports::new(&capacities, jobs.len(), sharing)?,
        running,
        streams: Vec::new(),
        coupling: options.coupling,
        servers: options.servers,
        now: 0.0,
        stale: true,
    };
    for (number, job) in jobs.iter().enumerate() {
        cluster.ports.begin(number, job.model, &cluster.running[number].ports)?;
        cluster.start(number)?;
        cluster.step(number)?;
    }
    cluster.run()
}

impl Cluster<'_> {
    fn run(mut self) -> Result<Vec<Time>, ClusterError> {
        loop {
            if self.stale {
                self.share()?;
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
        Ok(ends)
    }

    /// The rates of all streams.
    fn share(&mut self) -> Result<(), ClusterError> {
        self.ports.update()?;
        let queues = |stream: &Stream| -> Vec<u32> {
            stream.ports.iter().map(|&port| self.ports.queue(stream.job, port)).collect()
        };
        let hops: Vec<Vec<u32>> = self.streams.iter().map(queues).collect();
        let classes: Vec<Class<'_>> = self
            .streams
            .iter()
            .zip(&hops)
            .map(|(stream, queues)| Class { queues, flows: stream.flows, source: Source::Elastic })
            .collect();
        let wfq: &mut Wfq = &mut self.ports.wfq;
        wfq.solve(&classes).map_err(SharingError::Rates)?;
        for (stream, rates) in self.streams.iter_mut().zip(wfq.rates()) {
            stream.rate = rates.delivered;
        }
        Ok(())
    }

    /// When something happens next; infinite if nothing does.
    fn next(&self) -> f64 {
        let phases = self.running.iter().map(|running| match running.phase {
            Phase::Compute(until) | Phase::Beside(until) => until,
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
                Phase::Compute(until) if until <= limit => self.transfer(number)?,
                Phase::Move(beside, patience) => {
                    if patience > limit && self.streams.iter().any(|stream| stream.job == number) {
                        return Ok(());
                    }
                    self.streams.retain(|stream| stream.job != number);
                    self.ports.close(number)?;
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
        self.ports.open(number, &running.ports)?;
        let others = (servers.len() - 1) as f64;
        let left = stage.bytes.get() / others;
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
