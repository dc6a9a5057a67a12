//! Sends the traffic of a scenario over a bed by real sockets, and measures what arrives.
//!
//! Each connection has a thread at either end, which enters its host's namespace and opens sockets there. Elastic and capped connections
//! are TCP, with the congestion control of the bed's hosts; unresponsive ones are UDP. A demand opens a new connection in each of its
//! intervals, and aborts it at the end of the interval: queued data is discarded.
//!
//! The measured rate is the payload that receivers read, converted to bytes on the wire ([`wire`]), as the rates of links and of the
//! simulator count. It does not include acknowledgements and lost packets. Bytes that are in a queue at the end of a phase count in the
//! next phase.

mod receive;
mod send;
mod throttle;
mod wire;

use std::io;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use weir_core::model::scenario::{Scenario, Sending};
use weir_core::netshare::Throttle;
use weir_core::units::{Rate, Time};

use crate::command::UNPOISONED;
use crate::plan::{Node, Plan};
use crate::queues::{MAX_SERVICES, dscp, segments};

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The scenario has more than 1,000 connections, each of which needs a thread at either end.
    #[error("{0} connections: expected at most {MAX_CONNECTIONS} over real sockets")]
    Connections(u64),
    /// A connection failed.
    #[error("from `{from}` to `{to}`: {error}")]
    Socket {
        /// The source.
        from: String,
        /// The destination.
        to: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A signal stopped the measurement.
    #[error("interrupted at {at}")]
    Interrupted {
        /// The time in the scenario.
        at: Time,
    },
}

/// Why a testbed cannot run a scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// There are more services than DSCPs for their queues.
    #[error("queues: {0} services: expected at most {MAX_SERVICES} (DSCP)")]
    Services(usize),
    /// The scenario has events of cables.
    #[error("event: {0} of them: expected none: the cables of a testbed do not change")]
    Events(usize),
}

/// Checks that a testbed can run a scenario, with a queue for each service if `queues`.
///
/// # Errors
/// If the testbed does not support the scenario.
pub fn check(scenario: &Scenario, queues: bool) -> Result<(), Unsupported> {
    match (scenario.services.len(), scenario.events.len()) {
        (services, _) if queues && services > MAX_SERVICES => Err(Unsupported::Services(services)),
        (_, 0) => Ok(()),
        (_, events) => Err(Unsupported::Events(events)),
    }
}

/// The maximum number of connections of a scenario.
pub const MAX_CONNECTIONS: u64 = 1_000;

/// A period in which no connection starts or ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// The start.
    pub from: Time,
    /// The end.
    pub to: Time,
    /// The average rate at which each demand arrived, in bytes on the wire per second.
    pub mean: Vec<f64>,
    /// The same over the second half of the phase, after TCP has converged.
    pub late: Vec<f64>,
}

/// The time from the start of the threads to the start of the scenario.
const LEAD: Duration = Duration::from_millis(200);

/// The maximum time between two checks of a thread whether to stop.
const GLANCE: Duration = Duration::from_millis(100);

/// The stack size of a thread, in bytes. Buffers are on the heap.
const STACK: usize = 256 << 10;

/// A connection of a demand.
struct Connection<'a> {
    demand: usize,
    from: &'a Node,
    to: &'a Node,
    mark: u8,
    sending: Sending,
    active: &'a [(Time, Time)],
    /// Bytes of payload that have arrived.
    arrived: AtomicU64,
}

/// The state shared by all threads.
struct Common {
    stop: AtomicBool,
    failure: Mutex<Option<RunError>>,
    /// The maximum number of segments of a packet.
    segments: u32,
    /// See [`run`].
    throttle: Option<Throttle>,
}

impl Common {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Keeps the first failure, and stops all threads. After the stop, a connection may fail because its other end has closed.
    fn check(&self, connection: &Connection<'_>, done: io::Result<()>) {
        let Err(error) = done else { return };
        if self.stopped() {
            return;
        }
        let mut failure = self.failure.lock().expect(UNPOISONED);
        let (from, to) = (connection.from.name.clone(), connection.to.name.clone());
        failure.get_or_insert(RunError::Socket { from, to, error });
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Sends the traffic of `scenario` over the bed of `plan`, in real time, and measures what arrives in each of `phases`.
///
/// Calls `go_on` several times a second with the time in the scenario, and stops if it returns false. With a `throttle`, each unresponsive
/// connection starts with a copy of it, and its host applies its limits (NetShare, 3.2).
///
/// # Panics
/// If the plan is not of the scenario's topology.
///
/// # Errors
/// If there are too many connections, a connection fails, or `go_on` returns false.
pub fn run(
    plan: &Plan,
    scenario: &Scenario,
    phases: &[(Time, Time)],
    throttle: Option<&Throttle>,
    go_on: impl FnMut(Time) -> bool,
) -> Result<Vec<Phase>, RunError> {
    assert_eq!(plan.nodes.len(), scenario.topology.nodes(), "the plan is of the topology of the scenario");
    let count = scenario.demands.iter().map(|demand| demand.count()).sum();
    if count > MAX_CONNECTIONS {
        return Err(RunError::Connections(count));
    }
    let connections = connections(plan, scenario);
    let segments = segments(plan.slowest);
    let common = Common {
        stop: AtomicBool::new(false),
        failure: Mutex::new(None),
        segments,
        throttle: throttle.cloned(),
    };
    let measured = thread::scope(|scope| {
        let measured = start(scope, &connections, &common)
            .and_then(|start| watch(&connections, &common, scenario, phases, start, go_on));
        common.stop.store(true, Ordering::Relaxed);
        measured
    });
    // If a connection failed, its failure is the reason for the stop.
    common.failure.into_inner().expect(UNPOISONED).map_or(measured, Err)
}

fn connections<'a>(plan: &'a Plan, scenario: &'a Scenario) -> Vec<Connection<'a>> {
    let mut connections = Vec::new();
    for (number, demand) in scenario.demands.iter().enumerate() {
        for &from in &demand.from {
            for &to in demand.to.iter().filter(|&&to| to != from) {
                connections.extend((0..demand.connections).map(|_| Connection {
                    demand: number,
                    from: plan.node(from),
                    to: plan.node(to),
                    mark: dscp(demand.service),
                    sending: demand.sending,
                    active: &demand.active,
                    arrived: AtomicU64::new(0),
                }));
            }
        }
    }
    connections
}

/// Starts all threads, receivers first. Returns the start time of the scenario.
fn start<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    connections: &'scope [Connection<'_>],
    common: &'scope Common,
) -> Result<Instant, RunError> {
    let failed = |connection: &Connection<'_>, error| RunError::Socket {
        from: connection.from.name.clone(),
        to: connection.to.name.clone(),
        error,
    };
    let spawn = |work: Box<dyn FnOnce() + Send + 'scope>| {
        thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).map(drop)
    };
    let mut addresses: Vec<SocketAddrV4> = Vec::new();
    for connection in connections {
        let (ready, port) = mpsc::channel();
        let receiver = move || common.check(connection, receive::run(connection, common, &ready));
        spawn(Box::new(receiver)).map_err(|error| failed(connection, error))?;
        // A receiver that failed has recorded the failure.
        let Ok(port) = port.recv() else { return Err(RunError::Interrupted { at: Time::ZERO }) };
        addresses.push(SocketAddrV4::new(connection.to.address, port));
    }
    let begin = Instant::now() + LEAD;
    for (connection, to) in connections.iter().zip(addresses) {
        let sender = move || common.check(connection, send::run(connection, common, to, begin));
        spawn(Box::new(sender)).map_err(|error| failed(connection, error))?;
    }
    Ok(begin)
}

/// Waits for the phases, and reads the bytes arrived at the start, the middle and the end of each.
fn watch(
    connections: &[Connection<'_>],
    common: &Common,
    scenario: &Scenario,
    phases: &[(Time, Time)],
    begin: Instant,
    mut go_on: impl FnMut(Time) -> bool,
) -> Result<Vec<Phase>, RunError> {
    let mut until = |time: f64| -> Result<Mark, RunError> {
        loop {
            let left = (begin + Duration::from_secs_f64(time)).saturating_duration_since(Instant::now());
            let now = begin.elapsed().as_secs_f64();
            let at = Time::new(now).expect("a duration is finite and not negative");
            if common.stopped() || !go_on(at) {
                return Err(RunError::Interrupted { at });
            }
            if left.is_zero() {
                return Ok(Mark { at: now, arrived: by_demand(connections, scenario) });
            }
            thread::sleep(left.min(GLANCE));
        }
    };
    let mut measured = Vec::new();
    for &(from, to) in phases {
        let marks = [from.get(), f64::midpoint(from.get(), to.get()), to.get()];
        let [first, half, last] = [until(marks[0])?, until(marks[1])?, until(marks[2])?];
        measured.push(Phase { from, to, mean: first.rates(&last), late: half.rates(&last) });
    }
    Ok(measured)
}

/// The bytes of each demand, as on the wire, that arrived up to a time.
struct Mark {
    at: f64,
    arrived: Vec<f64>,
}

impl Mark {
    /// The rates from this mark to `later`, in bytes per second.
    fn rates(&self, later: &Mark) -> Vec<f64> {
        let bytes = self.arrived.iter().zip(&later.arrived).map(|(before, after)| after - before);
        bytes.map(|bytes| bytes / (later.at - self.at)).collect()
    }
}

fn by_demand(connections: &[Connection<'_>], scenario: &Scenario) -> Vec<f64> {
    let mut sums = vec![0.0; scenario.demands.len()];
    for connection in connections {
        let payload = connection.arrived.load(Ordering::Relaxed) as f64;
        sums[connection.demand] += payload * wire::factor(connection.sending);
    }
    sums
}

/// The number of packets that a rate sends in a millisecond, from one to the maximum number of segments of a packet.
fn chunk(rate: Rate, segments: u32) -> u32 {
    crate::queues::segments(rate).min(segments)
}
