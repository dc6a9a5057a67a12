//! What a scenario says, sent through a bed by real sockets.
//!
//! Every connection has a thread at either end, which enters its host's namespace and opens its sockets there. Those that are elastic
//! or capped are TCP, with the congestion control of the bed's hosts; unresponsive ones are UDP. Connections begin
//! anew with each interval of their demand, and are cut off at its end: what is still waiting to be sent is not sent any more.
//!
//! What is measured is what receivers read, as what it took on the wire ([`wire`]), since that is what links carry and
//! what the simulator's rates are. Acknowledgements and what is lost on the way are not in it. What a queue holds when a phase
//! ends is read in the next one.

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

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// More threads than a machine should carry.
    #[error("{0} connections: expected at most {MAX_CONNECTIONS} over real sockets")]
    Connections(u64),
    /// A connection that cannot be.
    #[error("from `{from}` to `{to}`: {error}")]
    Socket {
        /// Its source.
        from: String,
        /// Its destination.
        to: String,
        /// Why.
        error: io::Error,
    },
    /// Somebody asked to stop.
    #[error("interrupted at {at}")]
    Interrupted {
        /// When, in the scenario.
        at: Time,
    },
}

/// Why a testbed cannot run a scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// Queues for more services than the DSCP distinguishes.
    #[error("queues: {0} services: expected at most {MAX_SERVICES} (DSCP)")]
    Services(usize),
    /// Events of cables.
    #[error("event: {0} of them: expected none: the cables of a testbed do not change")]
    Events(usize),
}

/// Checks that a testbed can run a scenario, with a queue for each service if `queues`.
///
/// # Errors
/// If the testbed lacks what the scenario needs.
pub fn check(scenario: &Scenario, queues: bool) -> Result<(), Unsupported> {
    match (scenario.services.len(), scenario.events.len()) {
        (services, _) if queues && services > MAX_SERVICES => Err(Unsupported::Services(services)),
        (_, 0) => Ok(()),
        (_, events) => Err(Unsupported::Events(events)),
    }
}

/// The most connections of a scenario.
pub const MAX_CONNECTIONS: u64 = 1_000;

/// A time in which nobody began or ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Its begin.
    pub from: Time,
    /// Its end.
    pub to: Time,
    /// Bytes per second on the wire that arrived of each demand, on average.
    pub mean: Vec<f64>,
    /// The same over the phase's second half, when TCP has had time to settle.
    pub late: Vec<f64>,
}

/// From the last thread's start to the scenario's begin.
const LEAD: Duration = Duration::from_millis(200);

/// How long threads wait at most before they look whether to stop.
const GLANCE: Duration = Duration::from_millis(100);

/// A thread's stack. What is large is elsewhere.
const STACK: usize = 256 << 10;

/// A connection of a demand.
struct Connection<'a> {
    demand: usize,
    from: &'a Node,
    to: &'a Node,
    mark: u8,
    sending: Sending,
    active: &'a [(Time, Time)],
    /// Bytes of payload that arrived.
    arrived: AtomicU64,
}

/// What all threads see.
struct Common {
    stop: AtomicBool,
    failure: Mutex<Option<RunError>>,
    /// The most segments of a packet.
    segments: u32,
    /// See [`run`].
    throttle: Option<Throttle>,
}

impl Common {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Keeps the first failure, and stops all. When all is over, one end may see that the other has gone.
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

/// Sends what `scenario` says over the bed of `plan`, in real time, and measures what arrives in each of `phases`. `go_on` is
/// asked several times a second, with the time in the scenario; `false` ends it. With a `throttle`, each unresponsive
/// connection begins with it, and its host follows it (NetShare, 3.2).
///
/// # Panics
/// If the plan is not of the scenario's topology.
///
/// # Errors
/// If there are too many connections, one of them cannot be, or somebody asks to stop.
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
    // A connection's failure is why the rest stopped.
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

/// Starts all threads, receivers first; the answer is when the scenario begins.
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
        // If it failed, it said why.
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

/// Waits for the phases, and notes what has arrived when they begin, are half over, and end.
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

/// Bytes of each demand, as on the wire, that arrived until a time.
struct Mark {
    at: f64,
    arrived: Vec<f64>,
}

impl Mark {
    /// Bytes per second from here to `later`.
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

/// How many packets of a rate make up a millisecond, but at least one and at most as many as one packet of the kernel has.
fn chunk(rate: Rate, segments: u32) -> u32 {
    crate::queues::segments(rate).min(segments)
}
