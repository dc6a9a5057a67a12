//! Predicts the demands of connections, and divides the limits of the coordinator between them (NetShare, section 3.3).
//!
//! Each period, every connection is measured, and its demand in the next period is predicted ([`DemandPredictor`]). The
//! coordinator limits all connections of an application with another host together. Where the paper is silent:
//!
//! - *Offered traffic.* The agent observes the bytes that TCP sends, not those that a program hands to TCP. A connection that has
//!   sent at its limit in all measured periods therefore demands all bandwidth. If it demanded the rate that it sends, the queues
//!   of switches would limit every connection, regardless of the allocator (`docs/results/netshare.md`, Fig. 5 in the loop).
//! - *Limited connections.* A connection has no limit before its first measurement. The connections of an application with a host
//!   share their limit max-min by demand. Each connection may use as much as the largest share, so that it can grow at once.
//! - *After a restart* the kernel still paces connections by the limits of the earlier agent. The next agent measures against
//!   these limits, and keeps them until it has limits from the coordinator or the kernel ends them.
//! - *When limits end*: with the lease of the order, and [`LIMIT_LEASE`] after the agent has exited.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::netshare::{DemandPredictor, MEASUREMENT_PERIOD};
use weir_core::units::Rate;
use weir_proto::{Demand, FRAME_BYTES, PAYLOAD_BYTES};

use crate::lease::{ApplicationPeer, MAX_LEASE};
use crate::traffic::{ApplicationId, Connection, ConnectionEnds, MIN_PACING_RATE};

/// How long the kernel keeps a limit without renewal: an agent that restarts within this time keeps its limits. The time is longer if
/// measurements take longer ([`Demands::limit_lease`]).
pub const LIMIT_LEASE: Duration = Duration::from_secs(3);

/// How often limits are renewed. This also restores an entry that another process has deleted.
const RENEWAL_INTERVAL: Duration = Duration::from_millis(500);

/// The number of recent periods that are compared with their limits, as many as the prediction uses.
const HISTORY_PERIODS: usize = 5;

/// A connection that has sent this fraction of its limit has used all of it. The value is above 1 / 1.1: a connection with a lower
/// demand may have a limit of a tenth more than that demand.
const FULL_USE_FRACTION: f64 = 0.95;

/// Limits that differ by a smaller fraction are equal.
const LIMIT_TOLERANCE: f64 = 0.01;

/// A connection.
#[derive(Debug)]
struct MeasuredConnection {
    peer: ApplicationPeer,
    /// The number (cookie) of its socket: a later connection may have the same ends.
    socket: u64,
    sent_bytes: u64,
    predictor: DemandPredictor,
    /// The rates sent in the last periods and their limits, in bytes of packets with headers per second.
    recent_rates: VecDeque<[f64; 2]>,
    /// The limit, and the time at which the kernel received it.
    limit: Option<(f64, Instant)>,
    /// The time until which the kernel may keep a limit of the earlier agent.
    inherited_until: Option<Instant>,
}

impl MeasuredConnection {
    fn demand(&self) -> Demand {
        let Some(rate) = self.predictor.predict_rate() else { return Demand::Unknown };
        let [sent, limits] =
            [0, 1].map(|column| self.recent_rates.iter().map(|period| period[column]).sum::<f64>());
        if sent >= FULL_USE_FRACTION * limits { Demand::Unlimited } else { Demand::Rate(rate.get() as u64) }
    }
}

/// The connections of all applications.
#[derive(Debug, Default)]
pub struct Demands {
    connections: BTreeMap<ConnectionEnds, MeasuredConnection>,
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
            let Connection { socket, sent, pacing_rate, .. } = *connection;
            let known = previous.remove(ends).filter(|known| known.socket == socket);
            let Some(mut known) = known else {
                let peer = (application, ends.remote.ip().to_canonical());
                let limit = pacing_rate.map(|rate| (to_frame_rate(rate), now));
                let inherited_until = pacing_rate.map(|_| now + LIMIT_LEASE);
                self.connections.insert(
                    *ends,
                    MeasuredConnection {
                        peer,
                        socket,
                        sent_bytes: sent,
                        predictor: DemandPredictor::new(),
                        recent_rates: VecDeque::new(),
                        limit,
                        inherited_until,
                    },
                );
                continue;
            };
            if period_secs > 0.0 {
                let added_bytes = sent.saturating_sub(known.sent_bytes) as f64;
                let rate = added_bytes / period_secs * f64::from(FRAME_BYTES) / f64::from(PAYLOAD_BYTES);
                known.sent_bytes = known.sent_bytes.max(sent);
                known.predictor.add_measurement(Rate::new(rate).unwrap_or(Rate::ZERO));
                known.recent_rates.push_back([rate, known.limit.map_or(f64::INFINITY, |(limit, _)| limit)]);
                if known.recent_rates.len() > HISTORY_PERIODS {
                    known.recent_rates.pop_front();
                }
            }
            self.connections.insert(*ends, known);
        }
    }

    /// The demands by application and other host, of connections that have been measured.
    pub fn by_peer(&self) -> BTreeMap<&ApplicationPeer, Demand> {
        let mut by_peer: BTreeMap<&ApplicationPeer, Demand> = BTreeMap::new();
        for known in self.connections.values() {
            let sum = by_peer.entry(&known.peer).or_default();
            *sum = match (*sum, known.demand()) {
                (some, Demand::Unknown) | (Demand::Unknown, some) => some,
                (Demand::Rate(a), Demand::Rate(b)) => Demand::Rate(a.saturating_add(b)),
                (Demand::Unlimited, _) | (_, Demand::Unlimited) => Demand::Unlimited,
            };
        }
        by_peer
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
        let mut by_peer: BTreeMap<&ApplicationPeer, Vec<f64>> = BTreeMap::new();
        for known in self.connections.values() {
            let max_rate = match known.demand() {
                Demand::Rate(rate) => rate as f64,
                Demand::Unknown => continue,
                Demand::Unlimited => f64::INFINITY,
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
            let is_measured = !known.recent_rates.is_empty();
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
                pacing_rate: None,
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
            pacing_rate: None,
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
                pacing_rate: Some((limit * PAYLOAD_RATE / 1e6) as u32),
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
            pacing_rate: None,
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
