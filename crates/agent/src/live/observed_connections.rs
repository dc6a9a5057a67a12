//! Counts the connections of applications with other hosts, reports them, and sets the classes of their packets.
//!
//! Connections are counted when one opens or closes, and each second. A program with short, frequent requests must not change queues with
//! each request, so an application and a peer count as connected until [`LINGER`] after their last connection. If the coordinator wants
//! demands ([`Demands`]), connections are counted each period.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::units::Rate;
use weir_proto::{Demand, Found, MAX_FOUND, Queues, Restored, Totals};

use super::demands::{Demands, HOLD};
use super::throttle::Throttles;
use crate::lease::Peer;
use crate::traffic::{ApplicationId, Class, Event, EventKind, MIN_PACE, Rule, Traffic, TrafficError};

/// How often the agent looks for cgroups that were created again, and for programs and maps that another process removed.
const REFRESH: Duration = Duration::from_millis(250);

/// The maximum time between two counts, and the minimum time after an event.
const COUNT: Duration = Duration::from_secs(1);
const BUSY: Duration = Duration::from_millis(50);

/// Counting takes at most this part of the time: 1 in `PART`.
const PART: u32 = 10;

/// How long an application counts as connected to a peer after their last connection.
const LINGER: Duration = Duration::from_secs(1);

/// How often the bytes sent are reported.
const TELL: Duration = Duration::from_secs(1);

/// Demands that differ by a smaller fraction are equal: NetShare's hysteresis for limits (3.2).
const SAME: f64 = 0.05;

/// The connections of an application with a peer.
#[derive(Debug)]
struct Tally {
    open: u32,
    /// Bytes of closed connections, and of all connections.
    over: u64,
    sent: u64,
    demand: Demand,
    /// When there was a connection last.
    seen: Instant,
    /// The reported values, and the time of the report.
    told: Option<(u32, u64, Demand)>,
    telling: Instant,
}

/// The applications that the agent observes.
pub struct Applications {
    pub traffic: Traffic,
    /// The measurements and limits of UDP.
    pub throttles: Throttles,
    /// The rules of the options, with the classes that apply without an order.
    rules: Vec<(Arc<str>, Rule)>,
    tallies: BTreeMap<Peer, Tally>,
    /// The demands of connections, if the coordinator wants them.
    demands: Option<Demands>,
    refreshed: Instant,
    /// The objects restored so far.
    restored: Restored,
    counted: Instant,
    /// The time that the last count took.
    took: Duration,
    /// Whether a connection opened or closed since then.
    happened: bool,
    /// The last error, which is logged once.
    failed: Option<String>,
}

impl Applications {
    /// For a host with a link of this rate.
    pub fn new(traffic: Traffic, link: Rate) -> Applications {
        let rules =
            traffic.applications().map(|(rule, _)| (rule.name.as_str().into(), rule.clone())).collect();
        let now = Instant::now();
        let tallies = BTreeMap::new();
        Applications {
            traffic,
            throttles: Throttles::new(link),
            rules,
            tallies,
            demands: None,
            refreshed: now,
            restored: Restored::default(),
            counted: now,
            took: Duration::ZERO,
            // Connections that an earlier agent recorded are counted at once.
            happened: true,
            failed: None,
        }
    }

    /// Starts or stops the measurement of demands, as the coordinator wants. Without it, connections are not paced.
    pub fn begin(&mut self, demands: bool) {
        if demands {
            self.demands.get_or_insert_default();
            return;
        }
        self.tallies.values_mut().for_each(|tally| tally.demand = Demand::Unknown);
        let limited = self.demands.take().map(|mut known| known.forget()).unwrap_or_default();
        let freed = limited.into_iter().map(|ends| self.traffic.pace(ends, None, HOLD).map(drop));
        let freed = freed.fold(Ok(()), Result::and);
        self.note(freed);
    }

    /// Records that the limits of applications have changed.
    pub fn change(&mut self) {
        if let Some(demands) = &mut self.demands {
            demands.change();
        }
    }

    /// Reads events, follows cgroups that were created again, counts connections, and divides limits between them.
    pub fn look(&mut self, limits: Option<&BTreeMap<Peer, u64>>, now: Instant) {
        let before = self.counted;
        let done = self.try_look(now).and(self.limit(limits, now));
        if self.counted != before {
            self.took = now.elapsed();
        }
        self.note(done);
        self.throttles.look(&mut self.traffic, now);
    }

    /// Logs an error unless it equals the last one.
    fn note(&mut self, done: Result<(), TrafficError>) {
        let failed = done.err().map(|error| error.to_string());
        if let Some(why) = failed.as_ref().filter(|_| self.failed != failed) {
            super::say(why);
        }
        self.failed = failed;
    }

    fn limit(&mut self, limits: Option<&BTreeMap<Peer, u64>>, now: Instant) -> Result<(), TrafficError> {
        let Some(demands) = &mut self.demands else { return Ok(()) };
        let (told, hold) = (demands.divide(limits, now), demands.hold());
        let done = told.into_iter().map(|(ends, rate)| self.traffic.pace(ends, rate, hold).map(drop));
        done.fold(Ok(()), Result::and)
    }

    fn try_look(&mut self, now: Instant) -> Result<(), TrafficError> {
        while let Some(Event { what, ends, connection, .. }) = self.traffic.event() {
            self.happened = true;
            let application = self.traffic.marked(connection.application, &ends);
            if what == EventKind::Closed
                && let Some(tally) = self.tally(application, ends.remote.ip(), now)
            {
                tally.over += connection.sent;
                // A connection that closed between two counts also counts.
                tally.open = tally.open.max(1);
            }
        }
        if now.duration_since(self.refreshed) >= REFRESH {
            self.refreshed = now;
            self.traffic.refresh()?;
            let maps = self.traffic.restore_classes()?;
            self.count_restored(Restored { maps, ..Restored::default() });
        }
        let every = match &self.demands {
            Some(_) => Demands::period(),
            None if self.happened => BUSY,
            None => COUNT,
        };
        if now.duration_since(self.counted) >= every.max(self.took * PART) {
            self.count(now)?;
        }
        Ok(())
    }

    /// Restores programs and maps that another process removed.
    pub fn repair(&mut self) {
        let (restored, done) = self.traffic.repair();
        self.count_restored(restored);
        self.note(done);
    }

    fn count_restored(&mut self, restored: Restored) {
        if restored != Restored::default() {
            let (programs, maps) = (restored.programs, restored.maps);
            super::say(&format!(
                "restored {programs} BPF programs and {maps} BPF maps or entries that another process had removed"
            ));
            self.restored = self.restored.plus(restored);
        }
    }

    /// The kernel objects that were restored so far.
    pub fn restored(&self) -> Restored {
        self.restored
    }

    /// The tally of an application and a peer. None for an application that has been removed, and beyond [`MAX_FOUND`] tallies.
    fn tally(&mut self, id: ApplicationId, peer: IpAddr, now: Instant) -> Option<&mut Tally> {
        let name = self.traffic.name(id)?;
        let (name, _) = self.rules.iter().find(|(known, _)| **known == *name)?;
        let key = (Arc::clone(name), peer);
        if self.tallies.len() == MAX_FOUND && !self.tallies.contains_key(&key) {
            return None;
        }
        let demand = Demand::Unknown;
        let new = || Tally { open: 0, over: 0, sent: 0, demand, seen: now, told: None, telling: now };
        let tally = self.tallies.entry(key).or_insert_with(new);
        tally.seen = now;
        Some(tally)
    }

    fn count(&mut self, now: Instant) -> Result<(), TrafficError> {
        (self.counted, self.happened) = (now, false);
        let mut live: BTreeMap<(ApplicationId, IpAddr), (u32, u64)> = BTreeMap::new();
        let mut connections = self.traffic.connections()?;
        for (ends, connection) in &mut connections {
            connection.application = self.traffic.marked(connection.application, ends);
        }
        for (ends, connection) in &connections {
            let (open, sent) = live.entry((connection.application, ends.remote.ip())).or_default();
            (*open, *sent) = (*open + 1, *sent + connection.sent);
        }
        for tally in self.tallies.values_mut() {
            tally.sent = tally.sent.max(tally.over);
        }
        for ((id, peer), (open, sent)) in live {
            if let Some(tally) = self.tally(id, peer, now) {
                tally.open = open;
                // The bytes may include connections whose event has not been read.
                tally.sent = tally.sent.max(tally.over + sent);
            }
        }
        if let Some(demands) = &mut self.demands {
            let name = |id| {
                let name = self.traffic.name(id)?;
                self.rules.iter().find(|(known, _)| **known == *name).map(|(known, _)| Arc::clone(known))
            };
            demands.measure(&connections, name, now);
            let asked = demands.asked();
            for (peer, tally) in &mut self.tallies {
                tally.demand = asked.get(peer).copied().unwrap_or_default();
            }
        }
        self.tallies.retain(|_, tally| {
            if now.duration_since(tally.seen) >= LINGER {
                tally.open = 0;
            }
            tally.open > 0 || tally.told.is_some_and(|(open, ..)| open > 0)
        });
        Ok(())
    }

    /// The tallies that changed since the last report, sorted by application and peer.
    pub fn changes(&mut self, now: Instant) -> Vec<Found> {
        let mut found = Vec::new();
        for ((application, peer), tally) in &mut self.tallies {
            let (open, sent, demand) = (tally.open, tally.sent, tally.demand);
            let told = tally.told.unwrap_or_default();
            let is_other = told.0 != open || is_other(told.2, demand);
            if is_other || told.1 != sent && now.duration_since(tally.telling) >= TELL {
                (tally.told, tally.telling) = (Some((open, sent, demand)), now);
                let application = Arc::clone(application);
                found.push(Found { application, peer: *peer, open, sent, demand });
            }
        }
        found
    }

    /// Reports all tallies again.
    pub fn report_all(&mut self) {
        self.tallies.values_mut().for_each(|tally| tally.told = None);
    }

    /// Sets the classes of applications, as an order names them.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn classify(&mut self, queues: &Queues) -> Result<(), String> {
        for (name, Rule { class, .. }) in &self.rules {
            let ordered = queues.classes.iter().find(|(known, _)| known == name);
            // `LeaseState` refuses orders with other classes.
            let ordered = ordered.and_then(|&(_, class)| Class::new(u8::try_from(class).ok()?));
            let class = ordered.or(*class);
            self.traffic.set_class(name, class).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// Whether a demand has to be reported.
fn is_other(told: Demand, now: Demand) -> bool {
    match (told, now) {
        (Demand::Rate(told), Demand::Rate(now)) => {
            told.abs_diff(now) as f64 > (SAME * told as f64).max(f64::from(MIN_PACE))
        }
        _ => told != now,
    }
}
