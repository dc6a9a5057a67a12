//! Sends the traffic of a scenario over a bed by real sockets, and measures the arriving rates.
//!
//! Each connection has a thread at either end, which enters its host's namespace and opens sockets there. Elastic and capped
//! connections are TCP, with the congestion control of the bed's hosts; unresponsive ones are UDP. A demand opens a new
//! connection in each of its intervals, and aborts it at the end of the interval: queued data is discarded.
//!
//! The measured rate is the payload that receivers read, converted to bytes on the wire ([`wire`]), as the rates of links and of
//! the simulator count. It does not include acknowledgements and lost packets. Bytes that are in a queue at the end of a phase
//! count in the next phase.

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

use weir_core::model::scenario::{Scenario, SendMode};
use weir_core::netshare::RateThrottle;
use weir_core::units::{Rate, Time};

use crate::command::UNPOISONED;
use crate::plan::{Node, Plan};
use crate::queues::{MAX_SERVICES, dscp, max_segments};

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The scenario has more than 1,000 connections, each of which needs a thread at either end.
    #[error("the scenario has {0} connections; expected at most {MAX_CONNECTIONS} over real sockets")]
    Connections(u64),
    /// A connection failed.
    #[error("connection from `{from}` to `{to}`: {error}")]
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
    #[error(
        "the scenario has {0} services; expected at most {MAX_SERVICES} for queues by service, since each needs its own mark (DSCP)"
    )]
    Services(usize),
    /// The scenario has events of cables.
    #[error("the scenario has events ({0}); expected none, since the cables of a testbed do not change")]
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
    pub start: Time,
    /// The end.
    pub end: Time,
    /// The average rate at which each demand arrived, in bytes on the wire per second.
    pub mean_rates: Vec<f64>,
    /// The same over the second half of the phase, after TCP has converged.
    pub second_half_rates: Vec<f64>,
}

/// The time from the start of the threads to the start of the scenario.
const START_DELAY: Duration = Duration::from_millis(200);

/// The maximum time between two checks of a thread whether to stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The stack size of a thread, in bytes. Buffers are on the heap.
const STACK_BYTES: usize = 256 << 10;

/// A connection of a demand.
struct Connection<'a> {
    demand_index: usize,
    source: &'a Node,
    destination: &'a Node,
    mark: u8,
    sending: SendMode,
    active_intervals: &'a [(Time, Time)],
    /// Bytes of payload that have arrived.
    arrived_bytes: AtomicU64,
}

/// The state shared by all threads.
struct RunState {
    stop: AtomicBool,
    failure: Mutex<Option<RunError>>,
    /// The maximum number of segments of a packet.
    segments: u32,
    /// See [`run`].
    throttle: Option<RateThrottle>,
}

impl RunState {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Keeps the first failure, and stops all threads. After the stop, a connection may fail because its other end has closed.
    fn record_failure(&self, connection: &Connection<'_>, result: io::Result<()>) {
        let Err(error) = result else { return };
        if self.is_stopped() {
            return;
        }
        let mut failure = self.failure.lock().expect(UNPOISONED);
        let (from, to) = (connection.source.name.clone(), connection.destination.name.clone());
        failure.get_or_insert(RunError::Socket { from, to, error });
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Sends the traffic of `scenario` over the bed of `plan`, in real time, and measures the arriving rates in each of `phases`.
///
/// Calls `should_continue` several times a second with the time in the scenario, and stops if it returns false. With a `throttle`, each
/// unresponsive connection starts with a copy of it, and its host applies the copy's limits (NetShare, 3.2).
///
/// # Panics
/// If the plan is not of the scenario's topology.
///
/// # Errors
/// If there are too many connections, a connection fails, or `should_continue` returns false.
pub fn run(
    plan: &Plan,
    scenario: &Scenario,
    phases: &[(Time, Time)],
    throttle: Option<&RateThrottle>,
    should_continue: impl FnMut(Time) -> bool,
) -> Result<Vec<Phase>, RunError> {
    assert_eq!(plan.nodes.len(), scenario.topology.nodes(), "the plan is of the topology of the scenario");
    let count = scenario.demands.iter().map(|demand| demand.connection_count()).sum();
    if count > MAX_CONNECTIONS {
        return Err(RunError::Connections(count));
    }
    let connections = connections(plan, scenario);
    let segments = max_segments(plan.min_link_rate);
    let state = RunState {
        stop: AtomicBool::new(false),
        failure: Mutex::new(None),
        segments,
        throttle: throttle.cloned(),
    };
    let measured = thread::scope(|scope| {
        let measured = start_threads(scope, &connections, &state)
            .and_then(|start| measure_phases(&connections, &state, scenario, phases, start, should_continue));
        state.stop.store(true, Ordering::Relaxed);
        measured
    });
    // If a connection failed, its failure is the reason for the stop.
    state.failure.into_inner().expect(UNPOISONED).map_or(measured, Err)
}

fn connections<'a>(plan: &'a Plan, scenario: &'a Scenario) -> Vec<Connection<'a>> {
    let mut connections = Vec::new();
    for (number, demand) in scenario.demands.iter().enumerate() {
        for &from in &demand.sources {
            for &to in demand.destinations.iter().filter(|&&to| to != from) {
                connections.extend((0..demand.connections).map(|_| Connection {
                    demand_index: number,
                    source: plan.node(from),
                    destination: plan.node(to),
                    mark: dscp(demand.service),
                    sending: demand.send_mode,
                    active_intervals: &demand.active_intervals,
                    arrived_bytes: AtomicU64::new(0),
                }));
            }
        }
    }
    connections
}

/// Starts all threads, receivers first. Returns the start time of the scenario.
fn start_threads<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    connections: &'scope [Connection<'_>],
    state: &'scope RunState,
) -> Result<Instant, RunError> {
    let to_error = |connection: &Connection<'_>, error| RunError::Socket {
        from: connection.source.name.clone(),
        to: connection.destination.name.clone(),
        error,
    };
    let spawn = |work: Box<dyn FnOnce() + Send + 'scope>| {
        thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work).map(drop)
    };
    let mut addresses: Vec<SocketAddrV4> = Vec::new();
    for connection in connections {
        let (port_sender, port_receiver) = mpsc::channel();
        let receiver =
            move || state.record_failure(connection, receive::run(connection, state, &port_sender));
        spawn(Box::new(receiver)).map_err(|error| to_error(connection, error))?;
        // A receiver that failed has recorded the failure.
        let Ok(port) = port_receiver.recv() else { return Err(RunError::Interrupted { at: Time::ZERO }) };
        addresses.push(SocketAddrV4::new(connection.destination.address, port));
    }
    let start = Instant::now() + START_DELAY;
    for (connection, to) in connections.iter().zip(addresses) {
        let sender = move || state.record_failure(connection, send::run(connection, state, to, start));
        spawn(Box::new(sender)).map_err(|error| to_error(connection, error))?;
    }
    Ok(start)
}

/// Waits for the phases, and reads the bytes arrived at the start, the middle and the end of each.
fn measure_phases(
    connections: &[Connection<'_>],
    state: &RunState,
    scenario: &Scenario,
    phases: &[(Time, Time)],
    start: Instant,
    mut should_continue: impl FnMut(Time) -> bool,
) -> Result<Vec<Phase>, RunError> {
    let mut wait_until = |time: f64| -> Result<ArrivalSnapshot, RunError> {
        loop {
            let remaining = (start + Duration::from_secs_f64(time)).saturating_duration_since(Instant::now());
            let now = start.elapsed().as_secs_f64();
            let at = Time::new(now).expect("a duration is finite and not negative");
            if state.is_stopped() || !should_continue(at) {
                return Err(RunError::Interrupted { at });
            }
            if remaining.is_zero() {
                return Ok(ArrivalSnapshot {
                    time: now,
                    arrived_bytes: bytes_by_demand(connections, scenario),
                });
            }
            thread::sleep(remaining.min(STOP_CHECK_INTERVAL));
        }
    };
    let mut measured = Vec::new();
    for &(from, to) in phases {
        let times = [from.get(), f64::midpoint(from.get(), to.get()), to.get()];
        let [first, half, last] = [wait_until(times[0])?, wait_until(times[1])?, wait_until(times[2])?];
        measured.push(Phase {
            start: from,
            end: to,
            mean_rates: first.rates_until(&last),
            second_half_rates: half.rates_until(&last),
        });
    }
    Ok(measured)
}

/// The bytes of each demand, as on the wire, that arrived up to a time.
struct ArrivalSnapshot {
    time: f64,
    arrived_bytes: Vec<f64>,
}

impl ArrivalSnapshot {
    /// The rates from this snapshot to `later`, in bytes per second.
    fn rates_until(&self, later: &ArrivalSnapshot) -> Vec<f64> {
        let bytes = self.arrived_bytes.iter().zip(&later.arrived_bytes).map(|(before, after)| after - before);
        bytes.map(|bytes| bytes / (later.time - self.time)).collect()
    }
}

fn bytes_by_demand(connections: &[Connection<'_>], scenario: &Scenario) -> Vec<f64> {
    let mut sums = vec![0.0; scenario.demands.len()];
    for connection in connections {
        let payload = connection.arrived_bytes.load(Ordering::Relaxed) as f64;
        sums[connection.demand_index] += payload * wire::header_overhead(connection.sending);
    }
    sums
}

/// The number of packets that a rate sends in a millisecond, from one to the maximum number of segments of a packet.
fn packets_per_write(rate: Rate, segments: u32) -> u32 {
    crate::queues::max_segments(rate).min(segments)
}
