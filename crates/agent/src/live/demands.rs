//! What the connections of applications ask for, and what each may send of what the coordinator allows all that an application has with
//! another host (NetShare, section 3.3). Each period every connection is measured, and what it asks for in the next is predicted
//! ([`Predicted`]). What the paper leaves open:
//!
//! - *Offered traffic.* What a program would hand to TCP is not seen, only what TCP sends. So a connection that has sent as much as it may
//!   for as long as measurements count asks for all that it can have. If it asked for what it sends, nobody would ever have more
//!   than the queues of switches let through, whatever the allocator wants (`docs/results/netshare.md`, Fig. 5 in the loop).
//! - *Who is limited.* A connection is free until it was measured. What an application may send to a host its connections share max-min by
//!   what they ask for, and none is held below what the largest has: it may grow up to that at once.
//! - *After a restart* the kernel still paces connections by the limits of the agent before, so the next one measures against these, and
//!   leaves them until it has limits of its own or the kernel ends them.
//! - *When limits end*: with the order's lease, and with the agent [`HOLD`] after it has gone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::netshare::{Demand as Predicted, PERIOD};
use weir_core::units::Rate;
use weir_proto::{Demand, FRAME, PAYLOAD};

use crate::lease::{LONGEST, Peer};
use crate::traffic::{ApplicationId, Connection, Ends, MIN_PACE};

/// How long the kernel holds a limit without a renewal: an agent that is restarted within this time leaves no connection without its
/// limit. Longer where measuring takes longer.
pub const HOLD: Duration = Duration::from_secs(3);

/// How often limits are renewed at least: an entry that another process deleted is back by then.
const RENEW: Duration = Duration::from_millis(500);

/// How many periods count: as many as for the prediction.
const PERIODS: usize = 5;

/// Who sends such a part of what it may has sent all of it. It is above what is left of a tenth more, which those have that ask for less.
const ALL: f64 = 0.95;

/// Limits that differ by less are the same, as a part.
const SAME: f64 = 0.01;

/// A connection.
#[derive(Debug)]
struct Known {
    peer: Peer,
    /// The number of its socket: another one may have the same ends.
    socket: u64,
    sent: u64,
    predicted: Predicted,
    /// What it sent in the last periods, and what it might have; bytes of packets with their headers per second.
    recent: VecDeque<[f64; 2]>,
    /// What it may send, and since when the kernel knows.
    limit: Option<(f64, Instant)>,
    /// Until when the kernel may still hold a limit of the agent before.
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
    /// When they were measured last.
    measured: Option<Instant>,
    /// How long that was after the time before.
    passed: Duration,
    /// Whether something changed since limits were divided, and whether there were any then.
    changed: bool,
    limited: bool,
}

impl Demands {
    /// For how long the kernel is to hold limits now.
    pub fn hold(&self) -> Duration {
        HOLD.max(4 * self.passed).min(LONGEST)
    }

    /// How often to measure.
    pub fn period() -> Duration {
        Duration::from_secs_f64(PERIOD.get())
    }

    /// Takes in what connections have sent by now; those that are not among them are over.
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
            // What does not leave the host passes no link.
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

    /// What connections ask for, by application and other host: as many as were measured once.
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

    /// Limits came, or changed.
    pub fn change(&mut self) {
        self.changed = true;
    }

    /// What connections may send from now on, in bytes of data per second, of those where it is something else, or has to be renewed; none
    /// if they are free. `limits` are of packets with their headers.
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

    /// Forgets all; the answer is which connections have a limit.
    pub fn forget(&mut self) -> Vec<Ends> {
        let known = std::mem::take(self).known;
        known.into_iter().filter(|(_, known)| known.limit.is_some()).map(|(ends, _)| ends).collect()
    }
}

/// What each may have, so that all together have `limit` if they ask for that much.
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

/// What is data of a rate of full packets, at least what any connection has.
fn data(rate: f64) -> Rate {
    let data = rate * f64::from(PAYLOAD) / f64::from(FRAME);
    Rate::new(data.max(f64::from(MIN_PACE))).expect("a finite rate times a fraction is a rate")
}

/// The rate of full packets that have data at such a rate.
fn frames(data: u32) -> f64 {
    f64::from(data) * f64::from(FRAME) / f64::from(PAYLOAD)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// Bytes of data per second whose packets have a megabyte per second.
    const DATA: f64 = 1e6 * PAYLOAD as f64 / FRAME as f64;

    fn ends(number: u16) -> Ends {
        let local: SocketAddr = ([10, 0, 0, 1], number).into();
        Ends { local, remote: ([10, 0, 0, 2], 80).into() }
    }

    fn peer() -> Peer {
        ("web".into(), [10, 0, 0, 2].into())
    }

    /// Connections that send at rates of their own, in MB/s, or as fast as they may.
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

        /// A period; the answer is what both ask for.
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
    fn who_sends_all_that_it_may_asks_for_all() {
        let mut world = World::new();
        // It is free until it was measured, and then asks for what it sends.
        assert_eq!(world.pass([5.0, 0.0], Some(3_000_000)), Demand::Unknown);
        assert_eq!(world.limits, [f64::INFINITY; 2]);
        let Demand::Rate(first) = world.pass([5.0, 0.0], Some(3_000_000)) else { panic!("it was measured") };
        assert!(first.abs_diff(5_000_000) < 100, "{first}");
        // The other one asks for nothing, and may have what all may.
        assert_eq!(world.limits.map(|limit| (limit * 100.0).round() / 100.0), [3.0, 3.0]);
        for _ in 0..4 {
            assert!(matches!(world.pass([5.0, 0.0], Some(3_000_000)), Demand::Rate(_)));
        }
        assert_eq!(world.pass([5.0, 0.0], Some(3_000_000)), Demand::All);
        // It wants less again.
        assert!(matches!(world.pass([1.0, 0.0], Some(3_000_000)), Demand::Rate(_)));
        for _ in 0..5 {
            world.pass([1.0, 0.0], Some(3_000_000));
        }
        let Demand::Rate(rate) = world.pass([1.0, 0.0], Some(3_000_000)) else { panic!("it sends less") };
        assert!(rate.abs_diff(1_000_000) < 100, "{rate}");
    }

    #[test]
    fn a_limit_is_shared_max_min_and_ends() {
        let mut world = World::new();
        let limits = |world: &World| world.limits.map(|limit| (limit * 10.0).round() / 10.0);
        for _ in 0..10 {
            world.pass([9.0, 1.0], Some(5_000_000));
        }
        // Whoever asks for more has what the other leaves, and the other may have as much.
        assert_eq!(limits(&world), [4.0, 4.0]);
        for _ in 0..10 {
            world.pass([9.0, 9.0], Some(5_000_000));
        }
        assert_eq!(limits(&world), [2.5, 2.5]);
        // The lease is over.
        world.pass([9.0, 9.0], None);
        assert_eq!(world.limits, [f64::INFINITY; 2]);
        // Nobody has less than the least there is.
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
        // It sends all that it may, which one measurement shows, and is not freed before the coordinator has answered.
        assert_eq!(pass(&mut demands, 50, None), (Demand::All, vec![]));
        let (demand, told) = pass(&mut demands, 100, Some(4_000_000));
        assert_eq!(demand, Demand::All);
        assert_eq!(told.len(), 1);
        assert!((told[0].unwrap().get() - 4.0 * DATA).abs() < 1.0, "{told:?}");
        // Without an answer the kernel has ended it by then, and nobody renews it.
        let mut demands = Demands::default();
        pass(&mut demands, 0, None);
        assert_eq!(pass(&mut demands, 2950, None).1, vec![]);
        assert_eq!(pass(&mut demands, 3050, None).1, vec![None]);
    }

    #[test]
    fn what_stays_at_the_host_is_not_limited() {
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
    fn levels_are_what_all_together_have() {
        assert_eq!(level(6.0, vec![9.0, 1.0, 9.0]), 2.5);
        assert_eq!(level(6.0, vec![1.0, 2.0]), 6.0);
        assert_eq!(level(6.0, vec![f64::INFINITY; 3]), 2.0);
        assert_eq!(level(6.0, vec![0.0]), 6.0);
    }
}
