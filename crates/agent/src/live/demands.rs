//! Predicts the demands of connections, and divides the limits of the coordinator between them (NetShare, section 3.3).
//!
//! Each period, every connection is measured, and its demand in the next period is predicted ([`DemandPredictor`]). The
//! coordinator limits all connections of an application with another host together. Where the paper is silent:
//!
//! - *Offered traffic* is backlog: [`DemandEstimator`] decides the demand of each connection. A connection is backlogged in a period if all
//!   its acknowledgements found data that waited to be sent, and the receiver's window was open (`bpf/application.c`).
//! - *Applications and peers.* The demand of an application with another host is the sum of its connections, or unlimited. [`PeerDemand`]
//!   adds connections that are too short to be measured, and finds out whether all of them together are limited elsewhere.
//! - *Limited connections.* The connections of an application with a host share their limit max-min by demand. Each connection may use as
//!   much as the largest share, so that it can grow at once.
//! - *New connections* have no demand yet. They start within the limit: the kernel divides what the max-min division gives to
//!   connections without a limited demand by their number, as they open and close ([`StartRate`]). Measured connections get what new ones
//!   are not expected to send.
//! - *After a restart* the kernel still paces connections by the limits of the earlier agent. The next agent measures against
//!   these limits, and keeps them until it has limits from the coordinator or the kernel ends them.
//! - *When limits end*: with the lease of the order, and [`LIMIT_LEASE`] after the agent has exited.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::netshare::{DemandEstimator, FlowDemand, MEASUREMENT_PERIOD};
use weir_core::units::Rate;
use weir_proto::{Demand, FRAME_BYTES, MAX_OBSERVED, PAYLOAD_BYTES};

use super::peer_demand::{PeerDemand, to_rate};
use crate::lease::{ApplicationPeer, MAX_LEASE};
use crate::traffic::{
    ApplicationId, Connection, ConnectionEnds, ConnectionEvent, EventKind, MIN_PACING_RATE, StartRate,
};

/// How long the kernel keeps a limit without renewal: an agent that restarts within this time keeps its limits. The time is longer if
/// measurements take longer ([`Demands::limit_lease`]).
pub const LIMIT_LEASE: Duration = Duration::from_secs(3);

/// How often limits are renewed. This also restores an entry that another process has deleted.
const RENEWAL_INTERVAL: Duration = Duration::from_millis(500);

/// Limits that differ by a smaller fraction are equal.
const LIMIT_TOLERANCE: f64 = 0.01;

/// An open connection.
#[derive(Debug, Clone, Copy)]
pub struct OpenConnection {
    /// The number by which the kernel's maps know its application.
    pub application: ApplicationId,
    pub ends: ConnectionEnds,
    /// Its state. The application is the one whose class its packets have.
    pub state: Connection,
}

/// A start rate has one entry for each of these.
pub type StartKey = (ApplicationId, IpAddr);

/// Limits that have changed or have to be renewed.
#[derive(Debug, Default, PartialEq)]
pub struct LimitChanges {
    /// Limits of connections in bytes of payload per second, or none to remove them.
    pub connections: Vec<(ConnectionEnds, Option<Rate>)>,
    /// The rates at which connections start, or none to remove them.
    pub starts: Vec<(StartKey, Option<StartRate>)>,
}

/// A connection.
#[derive(Debug)]
struct MeasuredConnection {
    peer: ApplicationPeer,
    /// The number (cookie) of its socket: a later connection may have the same ends.
    socket: u64,
    /// Whether it opened since the last measurement.
    is_new: bool,
    arrived_bytes: u64,
    /// The rate in the last period, in bytes of packets with headers per second.
    rate: f64,
    /// The start of its backlog at the last measurement.
    backlogged_since: Option<Duration>,
    estimator: DemandEstimator,
    /// The limit, and the time at which the kernel received it.
    limit: Option<(f64, Instant)>,
    /// The rate at which the kernel paced it at the last measurement.
    paced_rate: Option<f64>,
    /// The time until which the kernel may keep a limit of the earlier agent.
    inherited_until: Option<Instant>,
}

impl MeasuredConnection {
    /// A connection that opens at this time.
    fn open(peer: ApplicationPeer, connection: &Connection) -> MeasuredConnection {
        MeasuredConnection {
            peer,
            socket: connection.socket,
            is_new: true,
            arrived_bytes: connection.sent + u64::from(connection.sacked),
            rate: 0.0,
            backlogged_since: connection.backlogged_since,
            estimator: DemandEstimator::new(),
            limit: None,
            paced_rate: None,
            inherited_until: None,
        }
    }

    /// A connection that opened some time ago.
    fn found(peer: ApplicationPeer, connection: &Connection, now: Instant) -> MeasuredConnection {
        let pacing_rate = connection.pacing_rate;
        MeasuredConnection {
            is_new: false,
            limit: pacing_rate.map(|rate| (to_frame_rate(rate), now)),
            inherited_until: pacing_rate.map(|_| now + LIMIT_LEASE),
            ..MeasuredConnection::open(peer, connection)
        }
    }

    /// Takes the bytes since the last measurement, of packets with headers.
    fn take_added_bytes(&mut self, connection: &Connection) -> f64 {
        let arrived_bytes = connection.sent + u64::from(connection.sacked);
        let added_bytes = arrived_bytes.saturating_sub(self.arrived_bytes) as f64;
        self.arrived_bytes = self.arrived_bytes.max(arrived_bytes);
        added_bytes * f64::from(FRAME_BYTES) / f64::from(PAYLOAD_BYTES)
    }

    /// Measures a period, and adds it to the peer.
    fn measure(&mut self, connection: &Connection, period_secs: f64, peer: &mut PeerDemand) {
        let added_bytes = self.take_added_bytes(connection);
        // A backlog that ended meanwhile has another start, or none.
        let is_backlogged =
            connection.backlogged_since.is_some() && connection.backlogged_since == self.backlogged_since;
        self.backlogged_since = connection.backlogged_since;
        let limit = self.limit.map(|(limit, _)| limit).or(self.paced_rate).and_then(Rate::new);
        self.paced_rate = connection.pacing_rate.map(to_frame_rate);
        let is_full_period = !std::mem::take(&mut self.is_new);
        if is_full_period {
            self.rate = added_bytes / period_secs;
            self.estimator.add_measurement(to_rate(self.rate), limit, is_backlogged);
        } else {
            peer.add_bytes(added_bytes, false);
        }
        let rate = is_full_period.then_some(self.rate);
        peer.add_connection(rate, &self.estimator, connection.backlogged_since.is_some());
    }

    fn is_measured(&self) -> bool {
        self.estimator.demand().is_some()
    }
}

/// The connections of all applications.
#[derive(Debug, Default)]
pub struct Demands {
    connections: BTreeMap<ConnectionEnds, MeasuredConnection>,
    /// Connections that were missing at the last measurement: the events of their ends follow.
    closing: BTreeMap<ConnectionEnds, MeasuredConnection>,
    peers: BTreeMap<ApplicationPeer, PeerDemand>,
    /// The start rates in the kernel, and the times at which it received them.
    starts: BTreeMap<StartKey, (StartRate, Instant)>,
    /// The time of the last measurement.
    last_measurement: Option<Instant>,
    /// The time between the last two measurements.
    last_period: Duration,
    /// Whether measurements or limits changed since limits were last divided.
    has_changed: bool,
    /// Whether there were limits when limits were last divided.
    had_limits: bool,
}

impl Demands {
    /// How long the kernel should keep limits.
    pub fn limit_lease(&self) -> Duration {
        LIMIT_LEASE.max(4 * self.last_period).min(MAX_LEASE)
    }

    /// The time between two measurements.
    pub fn period() -> Duration {
        Duration::from_secs_f64(MEASUREMENT_PERIOD.get())
    }

    /// Records that a connection of an application with this name has opened or closed.
    pub fn record_event(&mut self, event: &ConnectionEvent, application: Arc<str>, now: Instant) {
        let ConnectionEvent { kind, ends, connection, .. } = event;
        if is_local(ends) {
            return;
        }
        let key = (application, ends.remote.ip().to_canonical());
        if self.peers.len() >= MAX_OBSERVED && !self.peers.contains_key(&key) {
            return;
        }
        let peer = self.peers.entry(key.clone()).or_insert_with(PeerDemand::new);
        peer.see(connection.application, now);
        peer.has_events = true;
        let is_same = |known: &mut MeasuredConnection| known.socket == connection.socket;
        match kind {
            EventKind::Opened if self.connections.get_mut(ends).is_some_and(is_same) => {}
            EventKind::Opened => {
                self.connections.insert(*ends, MeasuredConnection::open(key, connection));
            }
            EventKind::Closed => {
                let take = |connections: &mut BTreeMap<ConnectionEnds, MeasuredConnection>| {
                    let is_known = connections.get_mut(ends).is_some_and(is_same);
                    if is_known { connections.remove(ends) } else { None }
                };
                if let Some(mut known) = take(&mut self.connections).or_else(|| take(&mut self.closing)) {
                    peer.add_bytes(known.take_added_bytes(connection), known.is_measured());
                }
            }
        }
    }

    /// Measures the bytes that the open connections have sent. Known connections that are not in `connections` have closed.
    pub fn measure(
        &mut self,
        connections: &[OpenConnection],
        application_name: impl Fn(ApplicationId) -> Option<Arc<str>>,
        now: Instant,
    ) {
        self.last_period =
            self.last_measurement.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let period_secs = self.last_period.as_secs_f64();
        (self.last_measurement, self.has_changed) = (Some(now), true);
        let mut previous = std::mem::take(&mut self.connections);
        self.peers.values_mut().for_each(PeerDemand::begin_measurement);
        for OpenConnection { application, ends, state } in connections {
            // Traffic inside the host uses no link.
            if is_local(ends) {
                continue;
            }
            let Some(name) = application_name(state.application) else { continue };
            let key = (name, ends.remote.ip().to_canonical());
            let peer = self.peers.entry(key.clone()).or_insert_with(PeerDemand::new);
            peer.see(*application, now);
            let known = match previous.remove(ends).filter(|known| known.socket == state.socket) {
                Some(mut known) if period_secs > 0.0 => {
                    known.measure(state, period_secs, peer);
                    MeasuredConnection { peer: key, ..known }
                }
                // Before the first measurement, the event of its start can be one that an earlier agent has not read.
                _ => MeasuredConnection::found(key, state, now),
            };
            self.connections.insert(*ends, known);
        }
        self.closing = previous;
        self.peers.values_mut().for_each(|peer| peer.end_measurement(period_secs));
        self.peers.retain(|_, peer| peer.retain_recent(now));
    }

    /// The demands by application and other host. A peer has a demand once it has been measured for a full period.
    pub fn by_peer(&self) -> BTreeMap<&ApplicationPeer, Demand> {
        self.peers.iter().map(|(peer, measured)| (peer, measured.demand())).collect()
    }

    /// Records that limits have changed.
    pub fn mark_limits_changed(&mut self) {
        self.has_changed = true;
    }

    /// Divides limits between connections. Returns the limits that have changed or have to be renewed. `limits` are in bytes of packets
    /// with headers per second.
    pub fn divide_limits(
        &mut self,
        limits: Option<&BTreeMap<ApplicationPeer, u64>>,
        now: Instant,
    ) -> LimitChanges {
        let is_limited = limits.is_some_and(|limits| !limits.is_empty());
        if !std::mem::take(&mut self.has_changed) && is_limited == self.had_limits {
            return LimitChanges::default();
        }
        self.had_limits = is_limited;
        for (peer, measured) in &mut self.peers {
            measured.limit = limits.and_then(|limits| limits.get(peer).copied());
        }
        let divisions = self.divide();
        LimitChanges {
            connections: self.change_limits(&divisions, now),
            starts: self.change_starts(&divisions, now),
        }
    }

    /// The divisions of the limits of all peers that have one.
    fn divide(&self) -> BTreeMap<ApplicationPeer, Division> {
        let mut demands: BTreeMap<&ApplicationPeer, OpenDemands> = BTreeMap::new();
        for known in self.connections.values() {
            let open = demands.entry(&known.peer).or_default();
            match known.estimator.demand() {
                Some(FlowDemand::Rate(rate)) => open.measured.push(rate.get()),
                Some(FlowDemand::Unlimited) => open.measured.push(f64::INFINITY),
                None => open.new_count += 1,
            }
        }
        let limited = self.peers.iter().filter(|(_, measured)| measured.limit.is_some());
        let divide = |(peer, measured): (&ApplicationPeer, &PeerDemand)| {
            let open = demands.remove(peer).unwrap_or_default();
            (peer.clone(), open.divide(measured.rate_to_divide(), measured.short_demand()))
        };
        limited.map(divide).collect()
    }

    /// Sets the limits of measured connections. Returns those that changed or have to be renewed.
    fn change_limits(
        &mut self,
        divisions: &BTreeMap<ApplicationPeer, Division>,
        now: Instant,
    ) -> Vec<(ConnectionEnds, Option<Rate>)> {
        let renewal_interval = self.renewal_interval();
        let mut changed_limits = Vec::new();
        for (ends, known) in &mut self.connections {
            let limit = divisions.get(&known.peer).map(|division| division.level);
            let limit = limit.filter(|_| known.is_measured());
            if limit.is_none() && known.inherited_until.is_some_and(|until| now < until) {
                continue;
            }
            known.inherited_until = None;
            let is_same = match (limit, known.limit) {
                (Some(new), Some((old, since))) => {
                    is_near(new, old) && now.saturating_duration_since(since) < renewal_interval
                }
                (None, None) => true,
                _ => false,
            };
            if !is_same {
                known.limit = limit.map(|limit| (limit, now));
                changed_limits.push((*ends, limit.map(to_pacing_rate)));
            }
        }
        changed_limits
    }

    /// Sets the start rates. Returns those that changed or have to be renewed, or whose sharers the kernel has changed.
    fn change_starts(
        &mut self,
        divisions: &BTreeMap<ApplicationPeer, Division>,
        now: Instant,
    ) -> Vec<(StartKey, Option<StartRate>)> {
        let renewal_interval = self.renewal_interval();
        let mut current: BTreeMap<StartKey, (StartRate, bool)> = BTreeMap::new();
        for (key, division) in divisions {
            let Some(peer) = self.peers.get_mut(key) else { continue };
            let has_events = std::mem::take(&mut peer.has_events);
            for application in peer.applications() {
                let entry = current.entry((application, key.1)).or_insert((division.start, has_events));
                // Connections of a cgroup to one address can belong to several applications, by their ports.
                if division.start.per_connection() > entry.0.per_connection() {
                    entry.0 = division.start;
                }
                entry.1 |= has_events;
            }
        }
        let mut changed_starts = Vec::new();
        self.starts.retain(|key, _| {
            let is_kept = current.contains_key(key);
            if !is_kept {
                changed_starts.push((*key, None));
            }
            is_kept
        });
        for (key, (start, has_events)) in current {
            let is_same = !has_events
                && self.starts.get(&key).is_some_and(|(last, since)| {
                    last.sharers == start.sharers
                        && is_near(start.rate.get(), last.rate.get())
                        && now.saturating_duration_since(*since) < renewal_interval
                });
            if !is_same {
                self.starts.insert(key, (start, now));
                changed_starts.push((key, Some(start)));
            }
        }
        changed_starts
    }

    fn renewal_interval(&self) -> Duration {
        (self.limit_lease() / 2).min(RENEWAL_INTERVAL)
    }

    /// Forgets all connections, and returns the removal of all limits.
    pub fn forget(&mut self) -> LimitChanges {
        let Demands { connections, starts, .. } = std::mem::take(self);
        let limited = connections.into_iter().filter(|(_, known)| known.limit.is_some());
        LimitChanges {
            connections: limited.map(|(ends, _)| (ends, None)).collect(),
            starts: starts.into_keys().map(|key| (key, None)).collect(),
        }
    }
}

/// The open connections of a peer.
#[derive(Debug, Default)]
struct OpenDemands {
    /// The demands of connections that have been measured.
    measured: Vec<f64>,
    /// The number of other connections.
    new_count: usize,
}

impl OpenDemands {
    /// Divides a rate, of which new connections are expected to send `short_demand`.
    fn divide(self, rate: f64, short_demand: f64) -> Division {
        let new_count = self.new_count.max(usize::from(short_demand > 0.0));
        let new_demands = std::iter::repeat_n(short_demand / new_count.max(1) as f64, new_count);
        let level = match max_min_share(rate, self.measured.iter().copied().chain(new_demands)) {
            Some((remaining_rate, count)) => remaining_rate / count as f64,
            None => rate,
        };
        // With one more connection: the kernel counts it when it opens.
        let new_demands = std::iter::repeat_n(f64::INFINITY, self.new_count + 1);
        let (remaining_rate, count) =
            max_min_share(rate, self.measured.into_iter().chain(new_demands)).unwrap_or((rate, 1));
        Division { level, start: StartRate { rate: to_payload_rate(remaining_rate), sharers: count - 1 } }
    }
}

/// How a limit is divided.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Division {
    /// The limit of each measured connection, in bytes of packets with headers per second.
    level: f64,
    start: StartRate,
}

impl StartRate {
    /// The rate of a connection that opens next.
    fn per_connection(&self) -> f64 {
        self.rate.get() / (f64::from(self.sharers) + 1.0)
    }
}

/// Divides a rate max-min. Returns the rate that connections with a higher demand than their share have together, and their number. None if
/// there are no such connections.
fn max_min_share(rate: f64, demands: impl Iterator<Item = f64>) -> Option<(f64, u32)> {
    let mut demands: Vec<f64> = demands.collect();
    demands.sort_unstable_by(f64::total_cmp);
    let (mut remaining_rate, mut count) = (rate, demands.len() as u32);
    for demand in demands {
        if demand >= remaining_rate / f64::from(count) {
            return Some((remaining_rate, count));
        }
        (remaining_rate, count) = (remaining_rate - demand, count - 1);
    }
    None
}

/// Traffic inside the host.
fn is_local(ends: &ConnectionEnds) -> bool {
    ends.remote.ip().is_loopback() || ends.remote.ip() == ends.local.ip()
}

fn is_near(new: f64, old: f64) -> bool {
    (new - old).abs() <= LIMIT_TOLERANCE * old
}

/// The payload rate of a rate of full packets.
fn to_payload_rate(rate: f64) -> Rate {
    to_rate(rate * f64::from(PAYLOAD_BYTES) / f64::from(FRAME_BYTES))
}

/// The payload rate of a connection, at least [`MIN_PACING_RATE`].
fn to_pacing_rate(rate: f64) -> Rate {
    to_rate(to_payload_rate(rate).get().max(f64::from(MIN_PACING_RATE)))
}

/// The rate of full packets with this payload rate.
fn to_frame_rate(payload_rate: u32) -> f64 {
    f64::from(payload_rate) * f64::from(FRAME_BYTES) / f64::from(PAYLOAD_BYTES)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// The payload rate of full packets at 1 MB/s.
    const PAYLOAD_RATE: f64 = 1e6 * PAYLOAD_BYTES as f64 / FRAME_BYTES as f64;

    fn ends(number: u16) -> ConnectionEnds {
        let local: SocketAddr = ([10, 0, 0, 1], number).into();
        ConnectionEnds { local, remote: ([10, 0, 0, 2], 80).into() }
    }

    fn peer() -> ApplicationPeer {
        ("web".into(), [10, 0, 0, 2].into())
    }

    fn open_connection(ends: ConnectionEnds, state: Connection) -> OpenConnection {
        OpenConnection { application: state.application, ends, state }
    }

    /// The key of the start rate of [`peer`].
    fn start_key() -> StartKey {
        (ApplicationId(1), peer().1)
    }

    /// Connections that send at given rates, in MB/s, or at their limits.
    struct SimulatedConnections {
        demands: Demands,
        began: Instant,
        periods: u32,
        sent_bytes: [f64; 2],
        limits: [f64; 2],
        /// Since when both connections are backlogged.
        backlogged_since: Option<Duration>,
    }

    impl SimulatedConnections {
        fn new() -> SimulatedConnections {
            let (demands, began) = (Demands::default(), Instant::now());
            SimulatedConnections {
                demands,
                began,
                periods: 0,
                sent_bytes: [0.0; 2],
                limits: [f64::INFINITY; 2],
                backlogged_since: None,
            }
        }

        fn now(&self) -> Instant {
            self.began + Demands::period() * self.periods
        }

        /// Simulates a period, and returns the demand of both connections together.
        fn simulate_period(&mut self, send_rates: [f64; 2], limit: Option<u64>) -> Demand {
            self.periods += 1;
            for ((sent, send_rate), limit) in self.sent_bytes.iter_mut().zip(send_rates).zip(self.limits) {
                *sent += send_rate.min(limit) * PAYLOAD_RATE * MEASUREMENT_PERIOD.get();
            }
            let connection = |index: usize| Connection {
                application: ApplicationId(1),
                socket: index as u64,
                opened_at: Duration::ZERO,
                sent: self.sent_bytes[index] as u64,
                received: 0,
                sacked: 0,
                pacing_rate: None,
                backlogged_since: self.backlogged_since,
            };
            let list: Vec<OpenConnection> =
                (0..2).map(|at| open_connection(ends(at as u16), connection(at))).collect();
            let now = self.now();
            self.demands.measure(&list, |_| Some("web".into()), now);
            let limits = limit.map(|limit| BTreeMap::from([(peer(), limit)]));
            for (ends, rate) in self.demands.divide_limits(limits.as_ref(), now).connections {
                let index = usize::from(ends.local.port());
                self.limits[index] = rate.map_or(f64::INFINITY, |rate| rate.get() / PAYLOAD_RATE);
            }
            self.demands.by_peer()[&peer()]
        }
    }

    #[test]
    fn connection_at_its_limit_demands_all_bandwidth() {
        let mut connections = SimulatedConnections::new();
        // A connection is not limited before it was measured. It then demands the rate that it sends.
        assert_eq!(connections.simulate_period([5.0, 0.0], Some(3_000_000)), Demand::Unknown);
        assert_eq!(connections.limits, [f64::INFINITY; 2]);
        let Demand::Rate(first) = connections.simulate_period([5.0, 0.0], Some(3_000_000)) else {
            panic!("a measured connection has a rate as demand")
        };
        assert!(first.abs_diff(5_000_000) < 100, "{first}");
        // The other connection demands nothing, and may use the whole limit.
        assert_eq!(connections.limits.map(|limit| (limit * 100.0).round() / 100.0), [3.0, 3.0]);
        for _ in 0..4 {
            assert!(matches!(connections.simulate_period([5.0, 0.0], Some(3_000_000)), Demand::Rate(_)));
        }
        assert_eq!(connections.simulate_period([5.0, 0.0], Some(3_000_000)), Demand::Unlimited);
        // The connection sends less again.
        assert!(matches!(connections.simulate_period([1.0, 0.0], Some(3_000_000)), Demand::Rate(_)));
        for _ in 0..5 {
            connections.simulate_period([1.0, 0.0], Some(3_000_000));
        }
        let Demand::Rate(rate) = connections.simulate_period([1.0, 0.0], Some(3_000_000)) else {
            panic!("a connection below its limit has a rate as demand")
        };
        assert!(rate.abs_diff(1_000_000) < 100, "{rate}");
    }

    #[test]
    fn limit_is_divided_max_min_until_its_lease_ends() {
        let mut connections = SimulatedConnections::new();
        let limits = |connections: &SimulatedConnections| {
            connections.limits.map(|limit| (limit * 10.0).round() / 10.0)
        };
        for _ in 0..10 {
            connections.simulate_period([9.0, 1.0], Some(5_000_000));
        }
        // The first connection gets the bandwidth that the second does not use, and the second may send at the same rate.
        assert_eq!(limits(&connections), [4.0, 4.0]);
        for _ in 0..10 {
            connections.simulate_period([9.0, 9.0], Some(5_000_000));
        }
        assert_eq!(limits(&connections), [2.5, 2.5]);
        // The lease has ended.
        connections.simulate_period([9.0, 9.0], None);
        assert_eq!(connections.limits, [f64::INFINITY; 2]);
        // No limit is below the minimum.
        for _ in 0..10 {
            connections.simulate_period([9.0, 9.0], Some(1));
        }
        let min_limit = f64::from(MIN_PACING_RATE) / PAYLOAD_RATE;
        assert_eq!(connections.limits, [min_limit; 2]);
        let removed = connections.demands.forget();
        assert_eq!((removed.connections.len(), removed.starts), (2, vec![(start_key(), None)]));
    }

    #[test]
    fn backlog_is_demand_unless_the_connections_are_limited_elsewhere() {
        let mut connections = SimulatedConnections::new();
        connections.backlogged_since = Some(Duration::from_secs(1));
        for _ in 0..5 {
            assert_ne!(connections.simulate_period([1.0, 0.5], Some(9_000_000)), Demand::Unlimited);
        }
        // Congestion limits both.
        for _ in 0..40 {
            assert_eq!(connections.simulate_period([1.0, 0.5], Some(9_000_000)), Demand::Unlimited);
        }
        assert_eq!(connections.limits.map(|limit| (limit * 10.0).round() / 10.0), [4.5; 2]);
        // Their rates have not risen for a long time.
        for _ in 0..25 {
            connections.simulate_period([1.0, 0.5], Some(9_000_000));
        }
        let Demand::Rate(rate) = connections.simulate_period([1.0, 0.5], Some(9_000_000)) else {
            panic!("connections that are limited elsewhere have a rate as demand")
        };
        assert!(rate.abs_diff(1_575_000) < 1_000, "{rate}");
        // They send more, and so demand twice as much.
        for _ in 0..20 {
            connections.simulate_period([2.0, 1.0], Some(9_000_000));
        }
        let Demand::Rate(rate) = connections.simulate_period([2.0, 1.0], Some(9_000_000)) else {
            panic!("the connections have not reached their limit")
        };
        assert!((5_000_000..6_100_000).contains(&rate), "{rate}");
        // The backlog ends, and a later one begins.
        connections.backlogged_since = Some(Duration::from_secs(2));
        assert!(matches!(connections.simulate_period([1.0, 0.5], Some(9_000_000)), Demand::Rate(_)));
    }

    #[test]
    fn unchanged_limits_are_renewed_before_expiry() {
        let mut connections = SimulatedConnections::new();
        let limits = BTreeMap::from([(peer(), 2_000_000)]);
        let mut renewed = Vec::new();
        for period in 0..40 {
            connections.simulate_period([9.0, 0.0], Some(2_000_000));
            // Nothing changes between two measurements.
            assert_eq!(
                connections.demands.divide_limits(Some(&limits), connections.now()),
                LimitChanges::default()
            );
            connections.demands.mark_limits_changed();
            renewed.push((period, connections.demands.connections[&ends(0)].limit.map(|(_, since)| since)));
        }
        let first = renewed[1].1.expect("a measured connection has a limit");
        for (period, since) in renewed.into_iter().skip(1) {
            let since = since.expect("the connection has a limit");
            let age = (connections.began + Demands::period() * (period + 1)).duration_since(since);
            assert!(age < LIMIT_LEASE / 2, "{age:?}");
        }
        assert!(connections.demands.connections[&ends(0)].limit.unwrap().1 > first);
    }

    #[test]
    fn another_socket_with_the_same_ends_is_another_connection() {
        let (mut demands, began) = (Demands::default(), Instant::now());
        let connection = |socket, sent| Connection {
            application: ApplicationId(1),
            socket,
            opened_at: Duration::ZERO,
            sent,
            received: 0,
            sacked: 0,
            pacing_rate: None,
            backlogged_since: None,
        };
        let mut measure_demand = |socket, sent, ms| {
            let list = [open_connection(ends(0), connection(socket, sent))];
            demands.measure(&list, |_| Some("web".into()), began + Duration::from_millis(ms));
            demands.by_peer()[&peer()]
        };
        assert_eq!(measure_demand(1, 0, 0), Demand::Unknown);
        assert_eq!(measure_demand(1, 0, 50), Demand::Rate(0));
        // Its bytes of the time before it was found do not count.
        assert_eq!(measure_demand(2, 1_000_000, 100), Demand::Rate(0));
        assert_eq!(measure_demand(2, 1_000_000, 150), Demand::Rate(0));
        let Demand::Rate(rate) = measure_demand(2, 1_050_000, 200) else { panic!("the demand is known") };
        assert!(rate > 0);
    }

    /// The kernel paces a connection by the limit of an agent that was killed.
    #[test]
    fn next_agent_measures_against_inherited_limits_and_keeps_them_for_their_lease() {
        let (mut demands, began) = (Demands::default(), Instant::now());
        let limit = 3e6;
        let measure_and_divide = |demands: &mut Demands, ms: u64, allowed: Option<u64>| {
            let connection = Connection {
                application: ApplicationId(1),
                socket: 1,
                opened_at: Duration::ZERO,
                sent: (limit * PAYLOAD_RATE / 1e6 * ms as f64 / 1e3) as u64,
                received: 0,
                sacked: 0,
                pacing_rate: Some((limit * PAYLOAD_RATE / 1e6) as u32),
                backlogged_since: None,
            };
            let now = began + Duration::from_millis(ms);
            demands.measure(&[open_connection(ends(0), connection)], |_| Some("web".into()), now);
            let limits = allowed.map(|limit| BTreeMap::from([(peer(), limit)]));
            let changed_limits = demands.divide_limits(limits.as_ref(), now).connections;
            (demands.by_peer()[&peer()], changed_limits.into_iter().map(|(_, rate)| rate).collect::<Vec<_>>())
        };
        assert_eq!(measure_and_divide(&mut demands, 0, None), (Demand::Unknown, vec![]));
        // The connection sends at its limit in its first measured period, and keeps that limit until the coordinator has answered.
        assert_eq!(measure_and_divide(&mut demands, 50, None), (Demand::Unlimited, vec![]));
        let (demand, changed_limits) = measure_and_divide(&mut demands, 100, Some(4_000_000));
        assert_eq!(demand, Demand::Unlimited);
        assert_eq!(changed_limits.len(), 1);
        assert!((changed_limits[0].unwrap().get() - 4.0 * PAYLOAD_RATE).abs() < 1.0, "{changed_limits:?}");
        // Without an answer, the kernel has ended the limit by then, and the agent does not renew it.
        let mut demands = Demands::default();
        measure_and_divide(&mut demands, 0, None);
        assert_eq!(measure_and_divide(&mut demands, 2950, None).1, vec![]);
        assert_eq!(measure_and_divide(&mut demands, 3050, None).1, vec![None]);
    }

    #[test]
    fn local_connections_are_not_limited() {
        let (mut demands, began) = (Demands::default(), Instant::now());
        let connection = Connection {
            application: ApplicationId(1),
            socket: 1,
            opened_at: Duration::ZERO,
            sent: 0,
            received: 0,
            sacked: 0,
            pacing_rate: None,
            backlogged_since: None,
        };
        let list = ["127.0.0.1:80", "[::1]:80", "10.0.0.1:80", "10.0.0.3:80"]
            .map(|to| open_connection(ConnectionEnds { remote: to.parse().unwrap(), ..ends(0) }, connection));
        for period in 0..2 {
            demands.measure(&list, |_| Some("web".into()), began + Demands::period() * period);
        }
        let peers: Vec<String> = demands.by_peer().keys().map(|(_, peer)| peer.to_string()).collect();
        assert_eq!(peers, ["10.0.0.3"]);
    }

    #[test]
    fn level_divides_the_limit_max_min() {
        let level = |rate, measured: &[f64], new_count, short_demand| {
            let level = OpenDemands { measured: measured.into(), new_count }.divide(rate, short_demand).level;
            (1e6 * level).round() / 1e6
        };
        assert_eq!(level(6.0, &[9.0, 1.0, 9.0], 0, 0.0), 2.5);
        assert_eq!(level(6.0, &[1.0, 2.0], 0, 0.0), 6.0);
        assert_eq!(level(6.0, &[f64::INFINITY; 3], 0, 0.0), 2.0);
        assert_eq!(level(6.0, &[0.0], 0, 0.0), 6.0);
        // Measured connections get what new ones are not expected to send.
        assert_eq!(level(6.0, &[9.0, 9.0], 5, 0.0), 3.0);
        assert_eq!(level(6.0, &[9.0, 9.0], 5, 1.0), 2.5);
        assert_eq!(level(6.0, &[9.0, 9.0], 0, 9.0), 2.0);
    }

    #[test]
    fn start_rate_is_what_connections_without_a_limited_demand_share() {
        let start = |measured: &[f64], new_count| {
            let start = OpenDemands { measured: measured.into(), new_count }.divide(6.0, 0.0).start;
            ((start.rate.get() * 6.0 / to_payload_rate(6.0).get()).round(), start.sharers)
        };
        assert_eq!(start(&[], 0), (6.0, 0));
        assert_eq!(start(&[], 3), (6.0, 3));
        assert_eq!(start(&[9.0], 3), (6.0, 4));
        assert_eq!(start(&[1.0], 0), (5.0, 0));
        assert_eq!(start(&[5.0], 0), (6.0, 1));
    }

    /// Programs that open connections, send at the rate at which each starts, and close them, all within a period.
    struct ShortConnections {
        demands: Demands,
        began: Instant,
        periods: u32,
        next_socket: u64,
        start: Option<StartRate>,
    }

    impl ShortConnections {
        fn new() -> ShortConnections {
            let (demands, began) = (Demands::default(), Instant::now());
            ShortConnections { demands, began, periods: 0, next_socket: 1, start: None }
        }

        /// Simulates a period with some connections of `bytes` each. Returns the demand, which is none for a forgotten peer.
        fn simulate_period(&mut self, count: u32, bytes: u64, limit: Option<u64>) -> Option<Demand> {
            self.periods += 1;
            let now = self.began + Demands::period() * self.periods;
            for _ in 0..count {
                let socket = self.next_socket;
                self.next_socket += 1;
                for (kind, sent) in [(EventKind::Opened, 0), (EventKind::Closed, bytes)] {
                    let connection = Connection {
                        application: ApplicationId(1),
                        socket,
                        opened_at: Duration::ZERO,
                        sent,
                        received: 0,
                        sacked: 0,
                        pacing_rate: None,
                        backlogged_since: None,
                    };
                    let event =
                        ConnectionEvent { time: Duration::ZERO, kind, ends: ends(socket as u16), connection };
                    self.demands.record_event(&event, "web".into(), now);
                }
            }
            self.demands.measure(&[], |_| Some("web".into()), now);
            let limits = limit.map(|limit| BTreeMap::from([(peer(), limit)]));
            let changes = self.demands.divide_limits(limits.as_ref(), now);
            assert_eq!(changes.connections, []);
            for (key, start) in changes.starts {
                assert_eq!(key, start_key());
                self.start = start;
            }
            self.demands.by_peer().get(&peer()).copied()
        }
    }

    /// The bytes of payload that fill a rate in bytes of packets per second for a period.
    fn period_bytes(rate: f64) -> u64 {
        (rate / 1e6 * PAYLOAD_RATE * MEASUREMENT_PERIOD.get()) as u64
    }

    #[test]
    fn connections_between_two_measurements_have_a_demand_and_start_within_the_limit() {
        let mut connections = ShortConnections::new();
        let bytes = period_bytes(2e6) / 4;
        // The first period is not a full one.
        assert_eq!(connections.simulate_period(4, bytes, None), Some(Demand::Unknown));
        let Some(Demand::Rate(rate)) = connections.simulate_period(4, bytes, Some(1_500_000)) else {
            panic!("short connections have a rate as demand")
        };
        assert!(rate.abs_diff(2_000_000) < 100, "{rate}");
        let start = connections.start.expect("new connections have a rate");
        assert!((start.rate.get() - 1.5 * PAYLOAD_RATE).abs() < 1.0, "{start:?}");
        assert_eq!(start.sharers, 0);
        // They demand more than the limit, and without one their rate.
        for _ in 0..5 {
            connections.simulate_period(4, bytes, Some(1_500_000));
        }
        assert_eq!(connections.simulate_period(4, bytes, Some(1_500_000)), Some(Demand::Unlimited));
        for _ in 0..5 {
            connections.simulate_period(2, bytes, None);
        }
        assert_eq!(connections.start, None);
        let Some(Demand::Rate(rate)) = connections.simulate_period(2, bytes, None) else {
            panic!("short connections have a rate as demand")
        };
        assert!(rate.abs_diff(1_000_000) < 100, "{rate}");
    }

    #[test]
    fn peer_without_connections_keeps_its_start_rate_for_a_second() {
        let mut connections = ShortConnections::new();
        for _ in 0..6 {
            connections.simulate_period(4, 1000, Some(1_500_000));
        }
        for _ in 0..15 {
            assert!(connections.simulate_period(0, 0, Some(1_500_000)).is_some());
            assert!(connections.start.is_some());
        }
        assert_eq!(connections.simulate_period(0, 0, Some(1_500_000)), Some(Demand::Rate(0)));
        for _ in 0..6 {
            connections.simulate_period(0, 0, Some(1_500_000));
        }
        assert_eq!(connections.simulate_period(0, 0, Some(1_500_000)), None);
        assert_eq!(connections.start, None);
    }

    /// The kernel sends the first packets of a connection without pacing.
    #[test]
    fn excess_of_short_connections_over_their_start_rate_comes_off() {
        let (mut connections, limit) = (ShortConnections::new(), 3e6);
        connections.simulate_period(1, period_bytes(limit), None);
        let mut sent = Vec::new();
        for _ in 0..200 {
            // They send twice their start rate, which is unlimited at first.
            let rate =
                connections.start.map_or(3.0 * limit, |start| 2.0 * start.rate.get() / PAYLOAD_RATE * 1e6);
            sent.push(rate);
            connections.simulate_period(4, period_bytes(rate) / 4, Some(limit as u64));
        }
        // After the burst and the first excess they send at the limit, in each second.
        let seconds: Vec<f64> = sent[60..].chunks(20).map(|rates| rates.iter().sum::<f64>() / 20.0).collect();
        assert!(seconds.iter().all(|rate| (rate / limit - 1.0).abs() < 0.02), "{seconds:?}");
        // They send less, and then have the whole limit again.
        for _ in 0..60 {
            connections.simulate_period(4, period_bytes(0.5 * limit) / 4, Some(limit as u64));
        }
        let start = connections.start.unwrap();
        assert!((start.rate.get() / (limit / 1e6 * PAYLOAD_RATE) - 1.0).abs() < 0.011, "{start:?}");
    }

    #[test]
    fn bytes_before_the_first_measurement_do_not_count() {
        let (mut demands, began) = (Demands::default(), Instant::now());
        let connection = |sent| Connection {
            application: ApplicationId(1),
            socket: 1,
            opened_at: Duration::ZERO,
            sent,
            received: 0,
            sacked: 0,
            pacing_rate: None,
            backlogged_since: None,
        };
        // The agent before this one has not read the event.
        let event = ConnectionEvent {
            time: Duration::ZERO,
            kind: EventKind::Opened,
            ends: ends(0),
            connection: connection(0),
        };
        demands.record_event(&event, "web".into(), began);
        for period in 0..3 {
            let list = [open_connection(ends(0), connection(1_000_000_000))];
            demands.measure(&list, |_| Some("web".into()), began + Demands::period() * period);
        }
        assert_eq!(demands.by_peer()[&peer()], Demand::Rate(0));
    }

    #[test]
    fn bytes_of_a_measured_connection_count_until_it_closes() {
        let (mut demands, began) = (Demands::default(), Instant::now());
        let connection = |sent| Connection {
            application: ApplicationId(1),
            socket: 1,
            opened_at: Duration::ZERO,
            sent,
            received: 0,
            sacked: 0,
            pacing_rate: None,
            backlogged_since: None,
        };
        let time = |period| began + Demands::period() * period;
        let bytes = period_bytes(1e6);
        for period in 0..4 {
            let list = [open_connection(ends(0), connection(bytes * u64::from(period)))];
            demands.measure(&list, |_| Some("web".into()), time(period));
        }
        // The connection is missing before the event of its end is read.
        demands.measure(&[], |_| Some("web".into()), time(4));
        let event = ConnectionEvent {
            time: Duration::ZERO,
            kind: EventKind::Closed,
            ends: ends(0),
            connection: connection(bytes * 5),
        };
        demands.record_event(&event, "web".into(), time(5));
        demands.measure(&[], |_| Some("web".into()), time(5));
        // The rates of the last five periods are 1, 1, 1, 0 and 2 MB/s, the line through which is at 1.3 MB/s in the next period.
        let Demand::Rate(rate) = demands.by_peer()[&peer()] else { panic!("the demand is a rate") };
        assert!(rate.abs_diff(1_300_000) < 1_000, "{rate}");
    }
}
