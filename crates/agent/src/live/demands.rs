//! Predicts the demands of connections, and divides the limits of the coordinator between them (NetShare, section 3.3).
//!
//! Each period, every connection is measured, and its demand in the next period is predicted ([`DemandPredictor`]). The
//! coordinator limits all connections of an application with another host together. Where the paper is silent:
//!
//! - *Offered traffic* is backlog: [`DemandEstimator`] decides the demand of each connection. A connection is backlogged in a period if all
//!   its acknowledgements found data that waited to be sent, and the receiver's window was open (`bpf/application.c`).
//! - *Applications and peers.* The demand of an application with another host is the sum of its connections, or unlimited. A second
//!   [`BottleneckDetector`] finds out whether all of them together are limited elsewhere.
//! - *Limited connections.* A connection has no limit before its first measurement. The connections of an application with a host
//!   share their limit max-min by demand. Each connection may use as much as the largest share, so that it can grow at once.
//! - *After a restart* the kernel still paces connections by the limits of the earlier agent. The next agent measures against
//!   these limits, and keeps them until it has limits from the coordinator or the kernel ends them.
//! - *When limits end*: with the lease of the order, and [`LIMIT_LEASE`] after the agent has exited.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::netshare::{BottleneckDetector, DemandEstimator, FlowDemand, MEASUREMENT_PERIOD};
use weir_core::units::Rate;
use weir_proto::{Demand, FRAME_BYTES, PAYLOAD_BYTES};

use crate::lease::{ApplicationPeer, MAX_LEASE};
use crate::traffic::{ApplicationId, Connection, ConnectionEnds, MIN_PACING_RATE};

/// How long the kernel keeps a limit without renewal: an agent that restarts within this time keeps its limits. The time is longer if
/// measurements take longer ([`Demands::limit_lease`]).
pub const LIMIT_LEASE: Duration = Duration::from_secs(3);

/// How often limits are renewed. This also restores an entry that another process has deleted.
const RENEWAL_INTERVAL: Duration = Duration::from_millis(500);

/// Limits that differ by a smaller fraction are equal.
const LIMIT_TOLERANCE: f64 = 0.01;

/// A connection.
#[derive(Debug)]
struct MeasuredConnection {
    peer: ApplicationPeer,
    /// The number (cookie) of its socket: a later connection may have the same ends.
    socket: u64,
    arrived_bytes: u64,
    /// The rate in the last period, in bytes of packets with headers per second.
    rate: f64,
    /// The start of its backlog at the last measurement.
    backlogged_since: Option<Duration>,
    estimator: DemandEstimator,
    /// The limit, and the time at which the kernel received it.
    limit: Option<(f64, Instant)>,
    /// The time until which the kernel may keep a limit of the earlier agent.
    inherited_until: Option<Instant>,
}

impl MeasuredConnection {
    fn new(peer: ApplicationPeer, connection: &Connection, now: Instant) -> MeasuredConnection {
        let pacing_rate = connection.pacing_rate;
        MeasuredConnection {
            peer,
            socket: connection.socket,
            arrived_bytes: connection.sent + u64::from(connection.sacked),
            rate: 0.0,
            backlogged_since: connection.backlogged_since,
            estimator: DemandEstimator::new(),
            limit: pacing_rate.map(|rate| (to_frame_rate(rate), now)),
            inherited_until: pacing_rate.map(|_| now + LIMIT_LEASE),
        }
    }

    fn measure(&mut self, connection: &Connection, period_secs: f64) {
        let arrived_bytes = connection.sent + u64::from(connection.sacked);
        let added_bytes = arrived_bytes.saturating_sub(self.arrived_bytes) as f64;
        self.rate = added_bytes / period_secs * f64::from(FRAME_BYTES) / f64::from(PAYLOAD_BYTES);
        self.arrived_bytes = self.arrived_bytes.max(arrived_bytes);
        // A backlog that ended meanwhile has another start, or none.
        let is_backlogged =
            connection.backlogged_since.is_some() && connection.backlogged_since == self.backlogged_since;
        self.backlogged_since = connection.backlogged_since;
        let limit = self.limit.and_then(|(limit, _)| Rate::new(limit));
        self.estimator.add_measurement(to_rate(self.rate), limit, is_backlogged);
    }

    fn is_measured(&self) -> bool {
        self.estimator.demand().is_some()
    }
}

/// The connections of an application with a host.
#[derive(Debug, Default)]
struct MeasuredPeer {
    /// The rate of the connections in the last period.
    rate: f64,
    /// The sum of the limited demands of connections. None if no connection has been measured.
    demand: Option<f64>,
    /// Whether a connection wants to send more.
    wants_more: bool,
    /// The limit of the coordinator.
    limit: Option<u64>,
    bottleneck: BottleneckDetector,
}

impl MeasuredPeer {
    fn add(&mut self, connection: &MeasuredConnection) {
        let Some(demand) = connection.estimator.demand() else { return };
        self.rate += connection.rate;
        self.wants_more |= connection.estimator.wants_more();
        let limited_demand = self.demand.get_or_insert_default();
        if let FlowDemand::Rate(rate) = demand {
            *limited_demand += rate.get();
        }
    }

    fn demand(&self) -> Demand {
        match (self.demand, self.bottleneck.demand()) {
            (None, _) => Demand::Unknown,
            (Some(demand), _) if !self.wants_more => Demand::Rate(demand as u64),
            (_, FlowDemand::Rate(rate)) => Demand::Rate(rate.get().max(self.rate) as u64),
            (_, FlowDemand::Unlimited) => Demand::Unlimited,
        }
    }
}

/// The connections of all applications.
#[derive(Debug, Default)]
pub struct Demands {
    connections: BTreeMap<ConnectionEnds, MeasuredConnection>,
    peers: BTreeMap<ApplicationPeer, MeasuredPeer>,
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

    /// Measures the bytes that the open connections have sent. Known connections that are not in `connections` have closed.
    pub fn measure(
        &mut self,
        connections: &[(ConnectionEnds, Connection)],
        application_name: impl Fn(ApplicationId) -> Option<Arc<str>>,
        now: Instant,
    ) {
        self.last_period =
            self.last_measurement.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let period_secs = self.last_period.as_secs_f64();
        (self.last_measurement, self.has_changed) = (Some(now), true);
        let mut previous = std::mem::take(&mut self.connections);
        for (ends, connection) in connections {
            // Traffic inside the host uses no link.
            if ends.remote.ip().is_loopback() || ends.remote.ip() == ends.local.ip() {
                continue;
            }
            let Some(application) = application_name(connection.application) else { continue };
            let known = previous.remove(ends).filter(|known| known.socket == connection.socket);
            let known = match known {
                Some(mut known) => {
                    if period_secs > 0.0 {
                        known.measure(connection, period_secs);
                    }
                    known
                }
                None => {
                    let peer = (application, ends.remote.ip().to_canonical());
                    MeasuredConnection::new(peer, connection, now)
                }
            };
            self.connections.insert(*ends, known);
        }
        self.measure_peers();
    }

    /// Adds up the connections of each application with another host.
    fn measure_peers(&mut self) {
        let mut previous = std::mem::take(&mut self.peers);
        for known in self.connections.values() {
            let peer = match self.peers.entry(known.peer.clone()) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let last = previous.remove(entry.key()).unwrap_or_default();
                    let MeasuredPeer { limit, bottleneck, .. } = last;
                    entry.insert(MeasuredPeer { limit, bottleneck, ..MeasuredPeer::default() })
                }
            };
            peer.add(known);
        }
        for peer in self.peers.values_mut().filter(|peer| peer.demand.is_some()) {
            let limit = peer.limit.map(|limit| to_rate(limit as f64));
            peer.bottleneck.add_period(to_rate(peer.rate), limit, peer.wants_more);
        }
    }

    /// The demands by application and other host, of connections that have been measured.
    pub fn by_peer(&self) -> BTreeMap<&ApplicationPeer, Demand> {
        self.peers.iter().map(|(peer, measured)| (peer, measured.demand())).collect()
    }

    /// Records that limits have changed.
    pub fn mark_limits_changed(&mut self) {
        self.has_changed = true;
    }

    /// Divides limits between connections. Returns the connections whose limit has changed or has to be renewed, with the limit in bytes of
    /// payload per second, or none to remove it. `limits` are in bytes of packets with headers per second.
    pub fn divide_limits(
        &mut self,
        limits: Option<&BTreeMap<ApplicationPeer, u64>>,
        now: Instant,
    ) -> Vec<(ConnectionEnds, Option<Rate>)> {
        let is_limited = limits.is_some_and(|limits| !limits.is_empty());
        if !std::mem::take(&mut self.has_changed) && is_limited == self.had_limits {
            return Vec::new();
        }
        self.had_limits = is_limited;
        let renewal_interval = (self.limit_lease() / 2).min(RENEWAL_INTERVAL);
        for (peer, measured) in &mut self.peers {
            measured.limit = limits.and_then(|limits| limits.get(peer).copied());
        }
        let mut by_peer: BTreeMap<&ApplicationPeer, Vec<f64>> = BTreeMap::new();
        for known in self.connections.values() {
            let max_rate = match known.estimator.demand() {
                Some(FlowDemand::Rate(rate)) => rate.get(),
                Some(FlowDemand::Unlimited) => f64::INFINITY,
                None => continue,
            };
            by_peer.entry(&known.peer).or_default().push(max_rate);
        }
        let peer_level = |(peer, demands): (&ApplicationPeer, Vec<f64>)| {
            let limit = *limits?.get(peer)? as f64;
            Some((peer.clone(), max_min_level(limit, demands)))
        };
        let levels: BTreeMap<ApplicationPeer, f64> = by_peer.into_iter().filter_map(peer_level).collect();
        let mut changed_limits = Vec::new();
        for (ends, known) in &mut self.connections {
            let is_measured = known.is_measured();
            let has_level = is_measured && levels.contains_key(&known.peer);
            if !has_level && known.inherited_until.is_some_and(|until| now < until) {
                continue;
            }
            known.inherited_until = None;
            let limit = levels.get(&known.peer).copied().filter(|_| is_measured);
            let is_same = match (limit, known.limit) {
                (Some(new), Some((old, since))) => {
                    (new - old).abs() <= LIMIT_TOLERANCE * old
                        && now.saturating_duration_since(since) < renewal_interval
                }
                (None, None) => true,
                _ => false,
            };
            if !is_same {
                known.limit = limit.map(|limit| (limit, now));
                changed_limits.push((*ends, limit.map(to_payload_rate)));
            }
        }
        changed_limits
    }

    /// Forgets all connections, and returns those that have a limit.
    pub fn forget(&mut self) -> Vec<ConnectionEnds> {
        let known = std::mem::take(self).connections;
        known.into_iter().filter(|(_, known)| known.limit.is_some()).map(|(ends, _)| ends).collect()
    }
}

/// The max-min level: each demand gets at most this rate, and all together get `limit` if they demand that much.
fn max_min_level(limit: f64, mut demands: Vec<f64>) -> f64 {
    demands.sort_unstable_by(f64::total_cmp);
    let (mut remaining, mut count) = (limit, demands.len() as f64);
    for demand in demands {
        if demand >= remaining / count {
            return remaining / count;
        }
        (remaining, count) = (remaining - demand, count - 1.0);
    }
    limit
}

fn to_rate(rate: f64) -> Rate {
    Rate::new(rate).unwrap_or(Rate::ZERO)
}

/// The payload rate of a rate of full packets, at least [`MIN_PACING_RATE`].
fn to_payload_rate(rate: f64) -> Rate {
    let payload_rate = rate * f64::from(PAYLOAD_BYTES) / f64::from(FRAME_BYTES);
    Rate::new(payload_rate.max(f64::from(MIN_PACING_RATE))).expect("a finite rate times a fraction is a rate")
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
            let list: Vec<(ConnectionEnds, Connection)> =
                (0..2).map(|at| (ends(at as u16), connection(at))).collect();
            let now = self.now();
            self.demands.measure(&list, |_| Some("web".into()), now);
            let limits = limit.map(|limit| BTreeMap::from([(peer(), limit)]));
            for (ends, rate) in self.demands.divide_limits(limits.as_ref(), now) {
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
        assert_eq!(connections.demands.forget().len(), 2);
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
            assert_eq!(connections.demands.divide_limits(Some(&limits), connections.now()), []);
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
            let list = [(ends(0), connection(socket, sent))];
            demands.measure(&list, |_| Some("web".into()), began + Duration::from_millis(ms));
            demands.by_peer()[&peer()]
        };
        assert_eq!(measure_demand(1, 0, 0), Demand::Unknown);
        assert_eq!(measure_demand(1, 0, 50), Demand::Rate(0));
        assert_eq!(measure_demand(2, 1_000_000, 100), Demand::Unknown);
        assert_eq!(measure_demand(2, 1_000_000, 150), Demand::Rate(0));
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
            demands.measure(&[(ends(0), connection)], |_| Some("web".into()), now);
            let limits = allowed.map(|limit| BTreeMap::from([(peer(), limit)]));
            let changed_limits = demands.divide_limits(limits.as_ref(), now);
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
            .map(|to| (ConnectionEnds { remote: to.parse().unwrap(), ..ends(0) }, connection));
        for period in 0..2 {
            demands.measure(&list, |_| Some("web".into()), began + Demands::period() * period);
        }
        let peers: Vec<String> = demands.by_peer().keys().map(|(_, peer)| peer.to_string()).collect();
        assert_eq!(peers, ["10.0.0.3"]);
    }

    #[test]
    fn level_divides_the_limit_max_min() {
        assert_eq!(max_min_level(6.0, vec![9.0, 1.0, 9.0]), 2.5);
        assert_eq!(max_min_level(6.0, vec![1.0, 2.0]), 6.0);
        assert_eq!(max_min_level(6.0, vec![f64::INFINITY; 3]), 2.0);
        assert_eq!(max_min_level(6.0, vec![0.0]), 6.0);
    }
}
