//! Predicts the demands of connections, and divides the limits of the coordinator between them (NetShare, section 3.3).
//!
//! Each period, every connection is measured, and its demand in the next period is predicted ([`Predicted`]). The coordinator limits all
//! connections of an application with another host together. Where the paper is silent:
//!
//! - *Offered traffic.* The agent does not see what a program hands to TCP, only what TCP sends. A connection that has sent at its limit
//!   in all measured periods therefore demands all bandwidth. If it demanded the rate that it sends, no connection would get more than
//!   the queues of switches let through, whatever the allocator computes (`docs/results/netshare.md`, Fig. 5 in the loop).
//! - *Which connections are limited.* A connection is not limited before its first measurement. The connections of an application with a
//!   host share their limit max-min by demand, and each may use as much as the largest share, so that it can grow at once.
//! - *After a restart* the kernel still paces connections by the limits of the earlier agent. The next agent measures against these
//!   limits, and keeps them until it has limits from the coordinator or the kernel ends them.
//! - *When limits end*: with the lease of the order, and [`HOLD`] after the agent has exited.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::netshare::{Demand as Predicted, PERIOD};
use weir_core::units::Rate;
use weir_proto::{Demand, FRAME, PAYLOAD};

use crate::lease::{LONGEST, Peer};
use crate::traffic::{ApplicationId, Connection, Ends, MIN_PACE};

/// How long the kernel keeps a limit without renewal, so that an agent can be restarted within this time. It is longer if measurements
/// take longer.
pub const HOLD: Duration = Duration::from_secs(3);

/// How often limits are renewed: an entry that another process deleted is restored by then.
const RENEW: Duration = Duration::from_millis(500);

/// The number of periods that count, as for the prediction.
const PERIODS: usize = 5;

/// A connection that has sent this fraction of its limit has used all of it. The value is above 1 / 1.1: a connection with a lower
/// demand may have a limit of a tenth more than that demand.
const ALL: f64 = 0.95;

/// Limits that differ by a smaller fraction are equal.
const SAME: f64 = 0.01;

/// A connection.
#[derive(Debug)]
struct Known {
    peer: Peer,
    /// The number (cookie) of its socket: a later connection may have the same ends.
    socket: u64,
    sent: u64,
    predicted: Predicted,
    /// The rates sent in the last periods and their limits, in bytes of packets with headers per second.
    recent: VecDeque<[f64; 2]>,
    /// The limit, and the time at which the kernel received it.
    limit: Option<(f64, Instant)>,
    /// The time until which the kernel may keep a limit of the earlier agent.
    inherited: Option<Instant>,
}

impl Known {
    fn demand(&self) -> Demand {
        let Some(rate) = self.predicted.predict() else { return Demand::Unknown };
        let [sent, limits] = [0, 1].map(|of| self.recent.iter().map(|period| period[of]).sum::<f64>());
        if sent >= ALL * limits { Demand::All } else { Demand::Rate(rate.get() as u64) }
    }
}

/// The connections of all applications.
#[derive(Debug, Default)]
pub struct Demands {
    known: BTreeMap<Ends, Known>,
    /// The time of the last measurement.
    measured: Option<Instant>,
    /// The time between the last two measurements.
    passed: Duration,
    /// Whether measurements or limits changed since limits were divided, and whether there were limits then.
    changed: bool,
    limited: bool,
}

impl Demands {
    /// How long the kernel should keep limits.
    pub fn hold(&self) -> Duration {
        HOLD.max(4 * self.passed).min(LONGEST)
    }

    /// The time between two measurements.
    pub fn period() -> Duration {
        Duration::from_secs_f64(PERIOD.get())
    }

    /// Measures the bytes that connections have sent. Connections that are not among them have closed.
    pub fn measure(
        &mut self,
        connections: &[(Ends, Connection)],
        name: impl Fn(ApplicationId) -> Option<Arc<str>>,
        now: Instant,
    ) {
        self.passed = self.measured.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let passed = self.passed.as_secs_f64();
        (self.measured, self.changed) = (Some(now), true);
        let mut before = std::mem::take(&mut self.known);
        for (ends, connection) in connections {
            // Traffic inside the host uses no link.
            if ends.remote.ip().is_loopback() || ends.remote.ip() == ends.local.ip() {
                continue;
            }
            let Some(application) = name(connection.application) else { continue };
            let Connection { socket, sent, pace, .. } = *connection;
            let known = before.remove(ends).filter(|known| known.socket == socket);
            let Some(mut known) = known else {
                let peer = (application, ends.remote.ip().to_canonical());
                let (predicted, recent) = (Predicted::new(), VecDeque::new());
                let limit = pace.map(|pace| (frames(pace), now));
                let inherited = pace.map(|_| now + HOLD);
                self.known.insert(*ends, Known { peer, socket, sent, predicted, recent, limit, inherited });
                continue;
            };
            if passed > 0.0 {
                let more = sent.saturating_sub(known.sent) as f64;
                let rate = more / passed * f64::from(FRAME) / f64::from(PAYLOAD);
                known.sent = known.sent.max(sent);
                known.predicted.measured(Rate::new(rate).unwrap_or(Rate::ZERO));
                known.recent.push_back([rate, known.limit.map_or(f64::INFINITY, |(limit, _)| limit)]);
                if known.recent.len() > PERIODS {
                    known.recent.pop_front();
                }
            }
            self.known.insert(*ends, known);
        }
    }

    /// The demands by application and other host, of connections that have been measured.
    pub fn asked(&self) -> BTreeMap<&Peer, Demand> {
        let mut asked: BTreeMap<&Peer, Demand> = BTreeMap::new();
        for known in self.known.values() {
            let sum = asked.entry(&known.peer).or_default();
            *sum = match (*sum, known.demand()) {
                (some, Demand::Unknown) | (Demand::Unknown, some) => some,
                (Demand::Rate(a), Demand::Rate(b)) => Demand::Rate(a.saturating_add(b)),
                (Demand::All, _) | (_, Demand::All) => Demand::All,
            };
        }
        asked
    }

    /// Records that limits have changed.
    pub fn change(&mut self) {
        self.changed = true;
    }

    /// Divides limits between connections. Returns the connections whose limit has changed or has to be renewed, with the limit in bytes of
    /// payload per second, or none to remove it. `limits` are in bytes of packets with headers per second.
    pub fn divide(
        &mut self,
        limits: Option<&BTreeMap<Peer, u64>>,
        now: Instant,
    ) -> Vec<(Ends, Option<Rate>)> {
        let is_limited = limits.is_some_and(|limits| !limits.is_empty());
        if !std::mem::take(&mut self.changed) && is_limited == self.limited {
            return Vec::new();
        }
        self.limited = is_limited;
        let renewed = (self.hold() / 2).min(RENEW);
        let mut by_peer: BTreeMap<&Peer, Vec<f64>> = BTreeMap::new();
        for known in self.known.values() {
            let most = match known.demand() {
                Demand::Rate(rate) => rate as f64,
                Demand::Unknown => continue,
                Demand::All => f64::INFINITY,
            };
            by_peer.entry(&known.peer).or_default().push(most);
        }
        let level = |(peer, demands): (&Peer, Vec<f64>)| {
            let limit = *limits?.get(peer)? as f64;
            Some((peer.clone(), level(limit, demands)))
        };
        let levels: BTreeMap<Peer, f64> = by_peer.into_iter().filter_map(level).collect();
        let mut told = Vec::new();
        for (ends, known) in &mut self.known {
            let is_measured = !known.recent.is_empty();
            let has_level = is_measured && levels.contains_key(&known.peer);
            if !has_level && known.inherited.is_some_and(|until| now < until) {
                continue;
            }
            known.inherited = None;
            let limit = levels.get(&known.peer).copied().filter(|_| is_measured);
            let is_same = match (limit, known.limit) {
                (Some(new), Some((old, since))) => {
                    (new - old).abs() <= SAME * old && now.saturating_duration_since(since) < renewed
                }
                (None, None) => true,
                _ => false,
            };
            if !is_same {
                known.limit = limit.map(|limit| (limit, now));
                told.push((*ends, limit.map(data)));
            }
        }
        told
    }

    /// Forgets all connections, and returns those that have a limit.
    pub fn forget(&mut self) -> Vec<Ends> {
        let known = std::mem::take(self).known;
        known.into_iter().filter(|(_, known)| known.limit.is_some()).map(|(ends, _)| ends).collect()
    }
}

/// The max-min level: each demand gets at most this rate, and all together get `limit` if they demand that much.
fn level(limit: f64, mut demands: Vec<f64>) -> f64 {
    demands.sort_unstable_by(f64::total_cmp);
    let (mut left, mut among) = (limit, demands.len() as f64);
    for demand in demands {
        if demand >= left / among {
            return left / among;
        }
        (left, among) = (left - demand, among - 1.0);
    }
    limit
}

/// The payload rate of a rate of full packets, at least [`MIN_PACE`].
fn data(rate: f64) -> Rate {
    let data = rate * f64::from(PAYLOAD) / f64::from(FRAME);
    Rate::new(data.max(f64::from(MIN_PACE))).expect("a finite rate times a fraction is a rate")
}

/// The rate of full packets with this payload rate.
fn frames(data: u32) -> f64 {
    f64::from(data) * f64::from(FRAME) / f64::from(PAYLOAD)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// The payload rate of full packets at 1 MB/s.
    const DATA: f64 = 1e6 * PAYLOAD as f64 / FRAME as f64;

    fn ends(number: u16) -> Ends {
        let local: SocketAddr = ([10, 0, 0, 1], number).into();
        Ends { local, remote: ([10, 0, 0, 2], 80).into() }
    }

    fn peer() -> Peer {
        ("web".into(), [10, 0, 0, 2].into())
    }

    /// Connections that send at given rates, in MB/s, or at their limits.
    struct World {
        demands: Demands,
        began: Instant,
        periods: u32,
        sent: [f64; 2],
        limits: [f64; 2],
    }

    impl World {
        fn new() -> World {
            let (demands, began) = (Demands::default(), Instant::now());
            World { demands, began, periods: 0, sent: [0.0; 2], limits: [f64::INFINITY; 2] }
        }

        fn now(&self) -> Instant {
            self.began + Demands::period() * self.periods
        }

        /// Simulates a period, and returns the demand of both connections together.
        fn pass(&mut self, wants: [f64; 2], limit: Option<u64>) -> Demand {
            self.periods += 1;
            for ((sent, want), limit) in self.sent.iter_mut().zip(wants).zip(self.limits) {
                *sent += want.min(limit) * DATA * PERIOD.get();
            }
            let connection = |at: usize| Connection {
                application: ApplicationId(1),
                socket: at as u64,
                opened: Duration::ZERO,
                sent: self.sent[at] as u64,
                received: 0,
                pace: None,
            };
            let list: Vec<(Ends, Connection)> = (0..2).map(|at| (ends(at as u16), connection(at))).collect();
            let now = self.now();
            self.demands.measure(&list, |_| Some("web".into()), now);
            let limits = limit.map(|limit| BTreeMap::from([(peer(), limit)]));
            for (told, rate) in self.demands.divide(limits.as_ref(), now) {
                let at = usize::from(told.local.port());
                self.limits[at] = rate.map_or(f64::INFINITY, |rate| rate.get() / DATA);
            }
            self.demands.asked()[&peer()]
        }
    }

    #[test]
    fn connection_at_its_limit_demands_all_bandwidth() {
        let mut world = World::new();
        // A connection is not limited before it was measured. It then demands the rate that it sends.
        assert_eq!(world.pass([5.0, 0.0], Some(3_000_000)), Demand::Unknown);
        assert_eq!(world.limits, [f64::INFINITY; 2]);
        let Demand::Rate(first) = world.pass([5.0, 0.0], Some(3_000_000)) else { panic!("it was measured") };
        assert!(first.abs_diff(5_000_000) < 100, "{first}");
        // The other connection demands nothing, and may use the whole limit.
        assert_eq!(world.limits.map(|limit| (limit * 100.0).round() / 100.0), [3.0, 3.0]);
        for _ in 0..4 {
            assert!(matches!(world.pass([5.0, 0.0], Some(3_000_000)), Demand::Rate(_)));
        }
        assert_eq!(world.pass([5.0, 0.0], Some(3_000_000)), Demand::All);
        // The connection sends less again.
        assert!(matches!(world.pass([1.0, 0.0], Some(3_000_000)), Demand::Rate(_)));
        for _ in 0..5 {
            world.pass([1.0, 0.0], Some(3_000_000));
        }
        let Demand::Rate(rate) = world.pass([1.0, 0.0], Some(3_000_000)) else { panic!("it sends less") };
        assert!(rate.abs_diff(1_000_000) < 100, "{rate}");
    }

    #[test]
    fn limit_is_divided_max_min_until_its_lease_ends() {
        let mut world = World::new();
        let limits = |world: &World| world.limits.map(|limit| (limit * 10.0).round() / 10.0);
        for _ in 0..10 {
            world.pass([9.0, 1.0], Some(5_000_000));
        }
        // The first connection gets what the second does not use, and the second may send at the same rate.
        assert_eq!(limits(&world), [4.0, 4.0]);
        for _ in 0..10 {
            world.pass([9.0, 9.0], Some(5_000_000));
        }
        assert_eq!(limits(&world), [2.5, 2.5]);
        // The lease has ended.
        world.pass([9.0, 9.0], None);
        assert_eq!(world.limits, [f64::INFINITY; 2]);
        // No limit is below the minimum.
        for _ in 0..10 {
            world.pass([9.0, 9.0], Some(1));
        }
        let least = f64::from(MIN_PACE) / DATA;
        assert_eq!(world.limits, [least; 2]);
        assert_eq!(world.demands.forget().len(), 2);
    }

    #[test]
    fn limits_that_stay_are_renewed_before_they_end() {
        let mut world = World::new();
        let limits = BTreeMap::from([(peer(), 2_000_000)]);
        let mut renewed = Vec::new();
        for period in 0..40 {
            world.pass([9.0, 0.0], Some(2_000_000));
            // Nothing changes between two measurements.
            assert_eq!(world.demands.divide(Some(&limits), world.now()), []);
            world.demands.change();
            renewed.push((period, world.demands.known[&ends(0)].limit.map(|(_, since)| since)));
        }
        let first = renewed[1].1.expect("it was measured");
        for (period, since) in renewed.into_iter().skip(1) {
            let since = since.expect("it has a limit");
            let age = (world.began + Demands::period() * (period + 1)).duration_since(since);
            assert!(age < HOLD / 2, "{age:?}");
        }
        assert!(world.demands.known[&ends(0)].limit.unwrap().1 > first);
    }

    #[test]
    fn another_socket_with_the_same_ends_is_another_connection() {
        let (mut demands, began) = (Demands::default(), Instant::now());
        let connection = |socket, sent| Connection {
            application: ApplicationId(1),
            socket,
            opened: Duration::ZERO,
            sent,
            received: 0,
            pace: None,
        };
        let mut see = |socket, sent, ms| {
            let list = [(ends(0), connection(socket, sent))];
            demands.measure(&list, |_| Some("web".into()), began + Duration::from_millis(ms));
            demands.asked()[&peer()]
        };
        assert_eq!(see(1, 0, 0), Demand::Unknown);
        assert_eq!(see(1, 0, 50), Demand::Rate(0));
        assert_eq!(see(2, 1_000_000, 100), Demand::Unknown);
        assert_eq!(see(2, 1_000_000, 150), Demand::Rate(0));
    }

    /// The kernel paces a connection by the limit of an agent that was killed.
    #[test]
    fn next_agent_measures_against_inherited_limits_and_keeps_them_for_their_lease() {
        let (mut demands, began) = (Demands::default(), Instant::now());
        let limit = 3e6;
        let pass = |demands: &mut Demands, ms: u64, allowed: Option<u64>| {
            let connection = Connection {
                application: ApplicationId(1),
                socket: 1,
                opened: Duration::ZERO,
                sent: (limit * DATA / 1e6 * ms as f64 / 1e3) as u64,
                received: 0,
                pace: Some((limit * DATA / 1e6) as u32),
            };
            let now = began + Duration::from_millis(ms);
            demands.measure(&[(ends(0), connection)], |_| Some("web".into()), now);
            let limits = allowed.map(|limit| BTreeMap::from([(peer(), limit)]));
            let told = demands.divide(limits.as_ref(), now);
            (demands.asked()[&peer()], told.into_iter().map(|(_, rate)| rate).collect::<Vec<_>>())
        };
        assert_eq!(pass(&mut demands, 0, None), (Demand::Unknown, vec![]));
        // The connection sends at its limit in its first measured period, and keeps that limit until the coordinator has answered.
        assert_eq!(pass(&mut demands, 50, None), (Demand::All, vec![]));
        let (demand, told) = pass(&mut demands, 100, Some(4_000_000));
        assert_eq!(demand, Demand::All);
        assert_eq!(told.len(), 1);
        assert!((told[0].unwrap().get() - 4.0 * DATA).abs() < 1.0, "{told:?}");
        // Without an answer, the kernel has ended the limit by then, and the agent does not renew it.
        let mut demands = Demands::default();
        pass(&mut demands, 0, None);
        assert_eq!(pass(&mut demands, 2950, None).1, vec![]);
        assert_eq!(pass(&mut demands, 3050, None).1, vec![None]);
    }

    #[test]
    fn local_connections_are_not_limited() {
        let (mut demands, began) = (Demands::default(), Instant::now());
        let connection = Connection {
            application: ApplicationId(1),
            socket: 1,
            opened: Duration::ZERO,
            sent: 0,
            received: 0,
            pace: None,
        };
        let list = ["127.0.0.1:80", "[::1]:80", "10.0.0.1:80", "10.0.0.3:80"]
            .map(|to| (Ends { remote: to.parse().unwrap(), ..ends(0) }, connection));
        for period in 0..2 {
            demands.measure(&list, |_| Some("web".into()), began + Demands::period() * period);
        }
        let asked: Vec<String> = demands.asked().keys().map(|(_, peer)| peer.to_string()).collect();
        assert_eq!(asked, ["10.0.0.3"]);
    }

    #[test]
    fn level_divides_the_limit_max_min() {
        assert_eq!(level(6.0, vec![9.0, 1.0, 9.0]), 2.5);
        assert_eq!(level(6.0, vec![1.0, 2.0]), 6.0);
        assert_eq!(level(6.0, vec![f64::INFINITY; 3]), 2.0);
        assert_eq!(level(6.0, vec![0.0]), 6.0);
    }
}
