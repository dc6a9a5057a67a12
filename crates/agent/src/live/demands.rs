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
//! - *New connections* have no demand yet. If their peer uses its limit ([`PeerDemand`]), each starts at the rate of a connection without
//!   a limited demand. Measured connections get what new ones are not expected to send.
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

use super::peer_demand::{PeerDemand, StartKey, to_rate};
use crate::lease::{ApplicationPeer, MAX_LEASE};
use crate::traffic::{
    ApplicationId, Connection, ConnectionEnds, ConnectionEvent, EventKind, MIN_PACING_RATE, monotonic_now,
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
    /// The address of the other host, which can be another one than that of the socket ([`crate::conntrack`]).
    pub peer: IpAddr,
    /// Its state. The application is the one whose class its packets have.
    pub state: Connection,
}

/// Limits that have changed or have to be renewed.
#[derive(Debug, Default, PartialEq)]
pub struct LimitChanges {
    /// Limits of connections in bytes of payload per second, or none to remove them.
    pub connections: Vec<(ConnectionEnds, Option<Rate>)>,
    /// The rates at which connections start, in bytes of payload per second, or none to remove them.
    pub starts: Vec<(StartKey, Option<Rate>)>,
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
        let rate = is_full_period.then_some(added_bytes / period_secs);
        match rate {
            Some(rate) => self.estimator.add_measurement(to_rate(rate), limit, is_backlogged),
            None => peer.add_bytes(added_bytes, false),
        }
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
    starts: BTreeMap<StartKey, (Rate, Instant)>,
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

    /// Records that a connection of an application with this name to the host at `peer` has opened or closed.
    pub fn record_event(
        &mut self,
        event: &ConnectionEvent,
        application: Arc<str>,
        peer: IpAddr,
        now: Instant,
    ) {
        let ConnectionEvent { kind, ends, connection, .. } = event;
        if is_local(ends, peer) {
            return;
        }
        let key = (application, peer);
        if self.peers.len() >= MAX_OBSERVED && !self.peers.contains_key(&key) {
            return;
        }
        let peer = self.peers.entry(key.clone()).or_insert_with(PeerDemand::new);
        peer.see((connection.application, ends.remote.ip()), now);
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
        let (period_secs, clock) = (self.last_period.as_secs_f64(), monotonic_now());
        (self.last_measurement, self.has_changed) = (Some(now), true);
        let mut previous = std::mem::take(&mut self.connections);
        self.peers.values_mut().for_each(PeerDemand::begin_measurement);
        for OpenConnection { application, ends, peer, state } in connections {
            // Traffic inside the host uses no link.
            if is_local(ends, *peer) {
                continue;
            }
            let Some(name) = application_name(state.application) else { continue };
            let key = (name, *peer);
            let peer = self.peers.entry(key.clone()).or_insert_with(PeerDemand::new);
            peer.see_open((*application, ends.remote.ip()), now);
            // The event of its start may follow.
            let new = || {
                let is_new = clock.saturating_sub(state.opened_at) < self.last_period;
                let new = MeasuredConnection::open(key.clone(), state);
                is_new.then_some(MeasuredConnection { arrived_bytes: 0, ..new })
            };
            let known = previous.remove(ends).filter(|known| known.socket == state.socket);
            let known = match known.or_else(new) {
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
            match limits {
                Some(limits) => measured.set_limit(limits.get(peer).copied()),
                None => measured.remove_limit(),
            }
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
        let limited = self.peers.iter().filter(|(_, measured)| measured.is_limited());
        let divide = |(peer, measured): (&ApplicationPeer, &PeerDemand)| {
            let mut open = demands.remove(peer).unwrap_or_default();
            open.new_count = open.new_count.max(measured.max_new_count());
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

    /// Sets the start rates. Returns those that changed or have to be renewed.
    fn change_starts(
        &mut self,
        divisions: &BTreeMap<ApplicationPeer, Division>,
        now: Instant,
    ) -> Vec<(StartKey, Option<Rate>)> {
        let renewal_interval = self.renewal_interval();
        let mut rates: BTreeMap<StartKey, Option<Rate>> = BTreeMap::new();
        for (key, peer) in &self.peers {
            let division = divisions.get(key).filter(|_| peer.needs_start_rate());
            let rate = division.map(|division| to_pacing_rate(division.start));
            for start in peer.start_keys() {
                // Connections of a cgroup to one address can belong to several applications, by their ports, and go to several hosts, if it
                // is that of a service. The kernel has one rate for all of them: none unless each needs one, and then the highest.
                let entry = rates.entry(start).or_insert(rate);
                *entry = entry.zip(rate).map(|(other, rate)| if other > rate { other } else { rate });
            }
        }
        let current: BTreeMap<StartKey, Rate> =
            rates.into_iter().filter_map(|(key, rate)| Some((key, rate?))).collect();
        let mut changed_starts = Vec::new();
        self.starts.retain(|key, _| {
            let is_kept = current.contains_key(key);
            if !is_kept {
                changed_starts.push((*key, None));
            }
            is_kept
        });
        for (key, rate) in current {
            let is_same = self.starts.get(&key).is_some_and(|(last, since)| {
                is_near(rate.get(), last.get()) && now.saturating_duration_since(*since) < renewal_interval
            });
            if !is_same {
                self.starts.insert(key, (rate, now));
                changed_starts.push((key, Some(rate)));
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
    /// The number of other connections: the highest of the last periods.
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
        let new_demands = std::iter::repeat_n(f64::INFINITY, self.new_count.max(1));
        let (remaining_rate, count) =
            max_min_share(rate, self.measured.into_iter().chain(new_demands)).unwrap_or((rate, 1));
        Division { level, start: remaining_rate / f64::from(count) }
    }
}

/// How a limit is divided, in bytes of packets with headers per second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Division {
    /// The limit of each measured connection.
    level: f64,
    /// The rate of each other connection.
    start: f64,
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
fn is_local(ends: &ConnectionEnds, peer: IpAddr) -> bool {
    peer.is_loopback() || peer == ends.local.ip()
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

    use super::super::peer_demand::RECENT_PERIODS;
    use super::*;

    /// An idle connection without a limit.
    const CONNECTION: Connection = Connection {
        application: ApplicationId(1),
        socket: 1,
        opened_at: Duration::ZERO,
        sent: 0,
        received: 0,
        sacked: 0,
        pacing_rate: None,
        backlogged_since: None,
    };

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
        OpenConnection { application: state.application, ends, peer: ends.remote.ip(), state }
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
                socket: index as u64,
                sent: self.sent_bytes[index] as u64,
                backlogged_since: self.backlogged_since,
                ..CONNECTION
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
        let connection = |socket, sent| Connection { socket, sent, ..CONNECTION };
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
                sent: (limit * PAYLOAD_RATE / 1e6 * ms as f64 / 1e3) as u64,
                pacing_rate: Some((limit * PAYLOAD_RATE / 1e6) as u32),
                ..CONNECTION
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
        let connection = CONNECTION;
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
    fn start_rate_is_that_of_connections_without_a_limited_demand() {
        let start = |measured: &[f64], new_count| {
            OpenDemands { measured: measured.into(), new_count }.divide(6.0, 0.0).start
        };
        assert_eq!(start(&[], 0), 6.0);
        assert_eq!(start(&[], 3), 2.0);
        assert_eq!(start(&[9.0], 3), 1.5);
        assert_eq!(start(&[1.0], 0), 5.0);
        assert_eq!(start(&[5.0], 0), 3.0);
    }

    /// Programs that open connections, send at the rate at which each starts, and close them, all within a period.
    struct ShortConnections {
        demands: Demands,
        began: Instant,
        periods: u32,
        next_socket: u64,
        start: Option<Rate>,
    }

    impl ShortConnections {
        fn new() -> ShortConnections {
            let (demands, began) = (Demands::default(), Instant::now());
            ShortConnections { demands, began, periods: 0, next_socket: 1, start: None }
        }

        /// The start rate in bytes of packets with headers per second.
        fn start_rate(&self) -> Option<f64> {
            self.start.map(|start| start.get() / PAYLOAD_RATE * 1e6)
        }

        /// Simulates a period with some connections of `bytes` each, and the limit of the next order. Returns the demand, which is none
        /// for a forgotten peer.
        fn simulate_period(&mut self, count: u32, bytes: u64, limit: Option<u64>) -> Option<Demand> {
            self.periods += 1;
            let now = self.began + Demands::period() * self.periods;
            for _ in 0..count {
                let socket = self.next_socket;
                self.next_socket += 1;
                for (kind, sent) in [(EventKind::Opened, 0), (EventKind::Closed, bytes)] {
                    let connection = Connection { socket, sent, ..CONNECTION };
                    let event =
                        ConnectionEvent { time: Duration::ZERO, kind, ends: ends(socket as u16), connection };
                    self.demands.record_event(&event, "web".into(), peer().1, now);
                }
            }
            self.demands.measure(&[], |_| Some("web".into()), now);
            // The last order names no other limit.
            let limits = limit.map(|limit| (peer(), limit)).into_iter().collect();
            let changes = self.demands.divide_limits(Some(&limits), now);
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
        // They demand more than the limit once they have used it for five periods, and start within it.
        for _ in 0..4 {
            let demand = connections.simulate_period(4, bytes, Some(1_500_000));
            assert!(matches!(demand, Some(Demand::Rate(_))), "{demand:?}");
            assert_eq!(connections.start, None);
        }
        assert_eq!(connections.simulate_period(4, bytes, Some(1_500_000)), Some(Demand::Unlimited));
        let start = connections.start_rate().expect("new connections have a rate");
        assert!((start / 1.5e6 - 1.0).abs() < LIMIT_TOLERANCE, "{start}");
        // Without a limit, they demand their rate.
        for _ in 0..5 {
            connections.simulate_period(2, bytes, None);
        }
        assert_eq!(connections.start, None);
        let Some(Demand::Rate(rate)) = connections.simulate_period(2, bytes, None) else {
            panic!("short connections have a rate as demand")
        };
        assert!(rate.abs_diff(1_000_000) < 100, "{rate}");
    }

    /// The limit of a peer that is mostly quiet is its lower bound, and says nothing of the link.
    #[test]
    fn connections_of_a_peer_below_its_limit_start_unpaced() {
        let (mut connections, limit) = (ShortConnections::new(), 1_250_000);
        for period in 0..100 {
            // An answer of 200 kB in 50 ms, three times the limit, each half a second.
            let bytes = if period % 10 == 0 { 200_000 } else { 0 };
            connections.simulate_period(1, bytes, Some(limit));
            assert_eq!(connections.start, None, "{period}");
        }
    }

    #[test]
    fn quiet_peer_has_no_demand() {
        let mut connections = ShortConnections::new();
        // The connections of a crawler: each closes at once, and has another peer.
        assert_eq!(connections.simulate_period(1, 100_000, None), Some(Demand::Unknown));
        assert_eq!(connections.simulate_period(0, 0, None), Some(Demand::Unknown));
        // A peer with some connections in a row.
        for _ in 0..2 {
            connections.simulate_period(1, 1000, Some(1_500_000));
        }
        for _ in 0..4 {
            let demand = connections.simulate_period(0, 0, Some(1_500_000));
            assert!(matches!(demand, Some(Demand::Rate(_))), "{demand:?}");
        }
        for _ in 0..14 {
            assert_eq!(connections.simulate_period(0, 0, Some(1_500_000)), Some(Demand::Unknown));
        }
        assert_eq!(connections.simulate_period(0, 0, Some(1_500_000)), Some(Demand::Unknown));
        assert_eq!(connections.simulate_period(0, 0, Some(1_500_000)), None);
    }

    #[test]
    fn quiet_peer_keeps_its_limit_until_its_bucket_is_full() {
        let (mut connections, limit) = (ShortConnections::new(), 200_000);
        let keep_sending = |connections: &mut ShortConnections| {
            for _ in 0..10 {
                connections.simulate_period(4, period_bytes(1e6), Some(limit));
            }
            let start = connections.start_rate().expect("the peer is in debt");
            assert!((start / (0.1 * limit as f64) - 1.0).abs() < 0.02, "{start}");
        };
        keep_sending(&mut connections);
        // When the coordinator knows no demand, it orders no limit. At 200 kB/s, the debt of 180 kB drains in 0.9 s, and the bucket of
        // 86 kB is full 0.43 s later.
        for period in 1..=26 {
            connections.simulate_period(0, 0, Some(limit).filter(|_| period <= RECENT_PERIODS));
            assert!(connections.start.is_some());
        }
        connections.simulate_period(0, 0, None);
        assert_eq!(connections.start, None);
        // The limit stays when connections open again, until the coordinator has had the time to order one.
        keep_sending(&mut connections);
        for period in 1..=10 {
            connections.simulate_period(0, 0, Some(limit).filter(|_| period <= RECENT_PERIODS));
        }
        for period in 1..=10 {
            connections.simulate_period(1, 1000, None);
            assert_eq!(connections.start.is_some(), period < RECENT_PERIODS, "{period}");
        }
        // The lease of orders ends all limits.
        keep_sending(&mut connections);
        connections.demands.mark_limits_changed();
        let changes = connections.demands.divide_limits(None, connections.began);
        assert_eq!(changes.starts, [(start_key(), None)]);
    }

    /// The kernel sends the first packets of a connection without pacing.
    #[test]
    fn excess_of_short_connections_over_their_start_rate_comes_off() {
        let (mut connections, limit) = (ShortConnections::new(), 3e6);
        connections.simulate_period(1, period_bytes(limit), None);
        let mut sent = Vec::new();
        for _ in 0..200 {
            // They send twice their start rate, which is unlimited at first.
            let rate = connections.start_rate().map_or(3.0 * limit, |start| 2.0 * start);
            sent.push(rate);
            connections.simulate_period(4, period_bytes(rate) / 4, Some(limit as u64));
        }
        // After the burst and the first excess they send at the limit, in each second.
        let seconds: Vec<f64> = sent[60..].chunks(20).map(|rates| rates.iter().sum::<f64>() / 20.0).collect();
        assert!(seconds.iter().all(|rate| (rate / limit - 1.0).abs() < 0.02), "{seconds:?}");
        // They send less, and then start without a rate again.
        for _ in 0..60 {
            connections.simulate_period(4, period_bytes(0.5 * limit) / 4, Some(limit as u64));
        }
        assert_eq!(connections.start, None);
    }

    #[test]
    fn bytes_sent_before_a_lower_limit_are_no_excess() {
        let mut connections = SimulatedConnections::new();
        let limits = |connections: &SimulatedConnections| connections.limits.map(|limit| limit.round());
        for _ in 0..10 {
            connections.simulate_period([100.0, 0.0], None);
        }
        connections.simulate_period([100.0, 0.0], Some(2_000_000));
        assert_eq!(limits(&connections), [2.0; 2]);
        // Bytes in flight still arrive.
        for _ in 0..2 {
            connections.limits = [f64::INFINITY; 2];
            connections.simulate_period([100.0, 0.0], Some(2_000_000));
        }
        connections.limits = [2.0; 2];
        for _ in 0..10 {
            connections.simulate_period([100.0, 0.0], Some(2_000_000));
            assert_eq!(limits(&connections), [2.0; 2]);
        }
    }

    #[test]
    fn start_rate_applies_only_if_all_applications_of_a_cgroup_need_one() {
        let (mut demands, began) = (Demands::default(), Instant::now());
        let batch = ("batch".into(), peer().1);
        let limits = BTreeMap::from([(batch, 1_000_000)]);
        let mut is_paced = Vec::new();
        for period in 0..30 {
            let now = began + Demands::period() * period;
            // From the tenth period on, another application has a connection of the same cgroup to the same host for a second.
            let numbers: &[u64] = if (10..20).contains(&period) { &[1, 2] } else { &[1] };
            let connection = |&socket: &u64| {
                let sent = if socket == 1 { period_bytes(2e6) * u64::from(period) } else { 0 };
                let state = Connection { application: ApplicationId(socket), socket, sent, ..CONNECTION };
                let ends = ends(socket as u16);
                OpenConnection { application: ApplicationId(1), ends, peer: peer().1, state }
            };
            let list: Vec<OpenConnection> = numbers.iter().map(connection).collect();
            let name = |id: ApplicationId| Some(if id.0 == 1 { "batch".into() } else { "jobs".into() });
            demands.measure(&list, name, now);
            demands.divide_limits(Some(&limits), now);
            is_paced.push(demands.starts.contains_key(&start_key()));
        }
        assert!(is_paced[9] && !is_paced[10..=19].contains(&true), "{is_paced:?}");
    }

    #[test]
    fn level_uses_the_most_new_connections_of_the_last_periods() {
        let mut peer = PeerDemand::new();
        let mut counts = Vec::new();
        for new_count in [0, 3, 1, 0, 0, 0, 0] {
            peer.begin_measurement();
            (0..new_count).for_each(|_| peer.add_connection(None, &DemandEstimator::new(), false));
            peer.end_measurement(0.05);
            counts.push(peer.max_new_count());
        }
        assert_eq!(counts, [0, 3, 3, 3, 3, 3, 1]);
    }

    #[test]
    fn backlog_of_a_measured_connection_is_not_that_of_its_peer() {
        let demand = |is_measured: bool| {
            let (mut peer, mut estimator) = (PeerDemand::new(), DemandEstimator::new());
            if is_measured {
                estimator.add_measurement(to_rate(1e6), None, false);
            }
            for _ in 0..7 {
                peer.begin_measurement();
                peer.see_open(start_key(), Instant::now());
                peer.set_limit(Some(10_000_000));
                peer.add_connection(is_measured.then_some(1e6), &estimator, true);
                peer.add_bytes(1e3, false);
                peer.end_measurement(0.05);
            }
            peer.demand()
        };
        assert_eq!(demand(false), Demand::Unlimited);
        let Demand::Rate(rate) = demand(true) else { panic!("the peer is not backlogged") };
        assert!(rate.abs_diff(1_020_000) < 100, "{rate}");
    }

    #[test]
    fn connection_before_its_event_is_new() {
        let (mut demands, began) = (Demands::default(), Instant::now());
        let connection = Connection {
            opened_at: monotonic_now(),
            sent: period_bytes(1e6),
            pacing_rate: Some(1_000_000),
            ..CONNECTION
        };
        let measure = |demands: &mut Demands, list: &[OpenConnection], period| {
            // Long periods, of which the test takes a small part.
            demands.measure(list, |_| Some("web".into()), began + Duration::from_secs(3600) * period);
        };
        measure(&mut demands, &[], 0);
        measure(&mut demands, &[open_connection(ends(1), Connection { socket: 2, ..connection })], 1);
        measure(&mut demands, &[open_connection(ends(0), connection)], 2);
        let known = &demands.connections[&ends(0)];
        assert_eq!((known.limit, known.inherited_until), (None, None));
        assert_eq!(demands.peers[&peer()].max_new_count(), 1);
    }

    #[test]
    fn event_of_an_earlier_agent_does_not_make_a_connection_new() {
        let (mut demands, began) = (Demands::default(), Instant::now());
        let connection = |sent| Connection { sent, pacing_rate: Some(3_000_000), ..CONNECTION };
        let event = ConnectionEvent {
            time: Duration::ZERO,
            kind: EventKind::Opened,
            ends: ends(0),
            connection: connection(0),
        };
        demands.record_event(&event, "web".into(), peer().1, began);
        for period in 0..3 {
            let list = [open_connection(ends(0), connection(1_000_000_000))];
            let now = began + Demands::period() * period;
            demands.measure(&list, |_| Some("web".into()), now);
            // The connection keeps its limit.
            assert_eq!(demands.divide_limits(None, now), LimitChanges::default());
            assert!(demands.connections[&ends(0)].limit.is_some());
        }
        assert_eq!(demands.by_peer()[&peer()], Demand::Rate(0));
    }

    #[test]
    fn bytes_of_a_measured_connection_count_until_it_closes() {
        let (mut demands, began) = (Demands::default(), Instant::now());
        let connection = |sent| Connection { sent, ..CONNECTION };
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
        demands.record_event(&event, "web".into(), peer().1, time(5));
        demands.measure(&[], |_| Some("web".into()), time(5));
        // The rates of the last five periods are 1, 1, 1, 0 and 2 MB/s, the line through which is at 1.3 MB/s in the next period.
        let Demand::Rate(rate) = demands.by_peer()[&peer()] else { panic!("the demand is a rate") };
        assert!(rate.abs_diff(1_300_000) < 1_000, "{rate}");
    }
}
