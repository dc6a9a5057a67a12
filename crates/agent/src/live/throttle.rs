//! Rate throttling between the agents of two hosts (NetShare, section 3.2): where UDP arrives its rate is measured, and where it is sent
//! it follows by Algorithm 1 ([`Throttle`]). Measures go by way of the coordinator. What the paper leaves open:
//!
//! - *What is a flow*: all UDP over IPv4 from an address to another, of one class ([`Way`]).
//! - *Only what is whole is said.* A source that begins or pauses within a period would seem slower than it is, and one that pauses for
//!   longer has nothing that could be limited.
//! - *A measure that is lost* changes nothing.
//! - *When a flow is over*: its limit ends [`LEASE`] after the last measure, whatever became of who measured, or of this agent. The next
//!   one by the same way begins without a limit.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_core::netshare::{PERIOD, Throttle};
use weir_core::units::Rate;
use weir_proto::{Arrival, MOST_WAYS, Way};

use crate::traffic::{Arrived, LEAST_PACE, Throttling, Traffic, TrafficError};

/// For how long a limit holds after a measure: twenty periods.
const LEASE: Duration = Duration::from_secs(1);

/// After so long without a packet, there is no flow any more.
const OVER: Duration = Duration::from_secs(1);

/// No limit falls below a part of the link: growth from there to all of it takes 38 periods.
const PART: f64 = 1e-3;

/// What a host measures, and what it was told.
pub struct Throttles {
    meter: Meter,
    arrivals: Vec<Arrival>,
    limits: Limits,
    measured: Option<Instant>,
    failed: Option<String>,
}

impl Throttles {
    /// For a host with a link of such a rate.
    pub fn new(link: Rate) -> Throttles {
        let floor = (link.get() * PART).max(f64::from(LEAST_PACE));
        Throttles::with(Rate::new(floor).expect("a part of a rate is one"))
    }

    fn with(floor: Rate) -> Throttles {
        let (meter, limits) = (Meter::default(), Limits { floor, known: BTreeMap::new() });
        Throttles { meter, arrivals: Vec::new(), limits, measured: None, failed: None }
    }

    /// A coordinator says whether it wants to know what arrives.
    pub fn begin(&mut self, traffic: &mut Traffic, is_wanted: bool) {
        self.arrivals.clear();
        if is_wanted != traffic.throttling().is_some() {
            *self = Throttles { failed: self.failed.take(), ..Throttles::with(self.limits.floor) };
            let done = traffic.throttle(is_wanted);
            self.note(done);
        }
    }

    /// Takes in what arrives elsewhere of what this host sends.
    pub fn heed(&mut self, traffic: &mut Traffic, arrivals: &[Arrival], now: Instant) {
        let Some(throttling) = traffic.throttling().filter(|_| !arrivals.is_empty()) else { return };
        let limits = self.limits.heed(arrivals, now);
        let done = limits.into_iter().try_for_each(|(way, rate)| throttling.limit(way, rate, LEASE));
        self.note(done);
    }

    /// Measures what has arrived, if it is time to, and ends what is over.
    pub fn look(&mut self, traffic: &mut Traffic, now: Instant) {
        let Some(throttling) = traffic.throttling() else { return };
        let period = Duration::from_secs_f64(PERIOD.get());
        if self.measured.is_some_and(|last| now.saturating_duration_since(last) < period) {
            return;
        }
        self.measured = Some(now);
        let done = self.measure(throttling, now);
        self.note(done);
    }

    fn measure(&mut self, throttling: &mut Throttling, now: Instant) -> Result<(), TrafficError> {
        // What nobody took is old by now.
        self.arrivals.clear();
        self.limits.end(now).into_iter().try_for_each(|way| throttling.free(way))?;
        let (arrivals, over) = self.meter.read(throttling.arrived()?);
        self.arrivals = arrivals;
        over.into_iter().try_for_each(|way| throttling.forget(way))
    }

    /// What has arrived since this was asked last, in order of ways.
    pub fn arrivals(&mut self) -> Vec<Arrival> {
        std::mem::take(&mut self.arrivals)
    }

    /// Says what failed, if that is something else than before.
    fn note(&mut self, done: Result<(), TrafficError>) {
        let failed = done.err().map(|error| error.to_string());
        if let Some(why) = failed.as_ref().filter(|_| self.failed != failed) {
            super::say(why);
        }
        self.failed = failed;
    }
}

/// What came by a way up to a time.
#[derive(Debug)]
struct Count {
    bytes: u64,
    at: Instant,
    /// Whether something came in the period before.
    moves: bool,
    /// When something had come last.
    last: Instant,
}

/// Rates from counts, which only rise.
#[derive(Debug, Default)]
struct Meter(BTreeMap<Way, Count>);

impl Meter {
    /// The rates since the last reading, in order of ways, and what is over.
    fn read(&mut self, arrived: Vec<Arrived>) -> (Vec<Arrival>, Vec<Way>) {
        let (mut arrivals, mut over, mut before) = (Vec::new(), Vec::new(), std::mem::take(&mut self.0));
        for Arrived { way, bytes, at } in arrived {
            // What was forgotten and came again counts from the beginning.
            let known = before.remove(&way).filter(|known| known.bytes <= bytes);
            let new = Count { bytes, at, moves: bytes > 0, last: at };
            let Some(known) = known else {
                self.0.insert(way, new);
                continue;
            };
            let (came, passed) = (bytes - known.bytes, at.saturating_duration_since(known.at).as_secs_f64());
            if came == 0 && at.saturating_duration_since(known.last) >= OVER {
                over.push(way);
                continue;
            }
            if came > 0 && known.moves && passed > 0.0 {
                arrivals.push(Arrival { way, rate: (came as f64 / passed) as u64 });
            }
            let last = if came > 0 { at } else { known.last };
            self.0.insert(way, Count { moves: came > 0, last, ..new });
        }
        arrivals.sort_unstable_by_key(|arrival| arrival.way);
        // Whatever a list of the kernel's has, which changes while it is read.
        arrivals.dedup_by_key(|arrival| arrival.way);
        arrivals.truncate(MOST_WAYS);
        (arrivals, over)
    }
}

/// The limits of a sender.
#[derive(Debug)]
struct Limits {
    floor: Rate,
    /// Each with the end of its lease.
    known: BTreeMap<Way, (Throttle, Instant)>,
}

impl Limits {
    /// The limits after these measures. Of too many ways, those that come last have none.
    fn heed(&mut self, arrivals: &[Arrival], now: Instant) -> Vec<(Way, Rate)> {
        let mut limits = Vec::new();
        for &Arrival { way, rate } in arrivals {
            if self.known.len() == MOST_WAYS && !self.known.contains_key(&way) {
                continue;
            }
            let new = || (Throttle::new(self.floor), now);
            let (throttle, until) = self.known.entry(way).or_insert_with(new);
            *until = now + LEASE;
            let rate = Rate::new(rate as f64).expect("a whole number is a rate");
            limits.extend(throttle.report(rate).map(|limit| (way, limit)));
        }
        limits
    }

    /// Those whose lease is over.
    fn end(&mut self, now: Instant) -> Vec<Way> {
        self.known.extract_if(.., |_, (_, until)| *until <= now).map(|(way, _)| way).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use weir_proto::Mark;

    use super::*;

    fn way(number: u32) -> Way {
        let mark = Mark::new(1).unwrap();
        Way { from: Ipv4Addr::from(0x0a00_0000 + number), to: Ipv4Addr::new(10, 1, 0, 0), mark }
    }

    fn after(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn rates_are_of_whole_periods() {
        let (began, mut meter) = (Instant::now(), Meter::default());
        let mut read = |bytes: u64, ms: u64| {
            let (arrivals, over) = meter.read(vec![Arrived { way: way(1), bytes, at: began + after(ms) }]);
            (arrivals.first().map(|arrival| arrival.rate), over.len())
        };
        // It began some time within the first period.
        assert_eq!(read(1000, 50), (None, 0));
        assert_eq!(read(6000, 100), (Some(100_000), 0));
        // Late: the time is what has passed.
        assert_eq!(read(16_000, 200), (Some(100_000), 0));
        // It pauses, and goes on at some time within a period.
        assert_eq!(read(16_000, 250), (None, 0));
        assert_eq!(read(17_000, 300), (None, 0));
        assert_eq!(read(22_000, 350), (Some(100_000), 0));
        // A clock that stands still says nothing.
        assert_eq!(read(22_001, 350), (None, 0));
        // Over.
        assert_eq!(read(22_001, 1300), (None, 0));
        assert_eq!(read(22_001, 1350), (None, 1));
        // The same counts anew; one that was forgotten meanwhile as well.
        assert_eq!(read(5000, 1400), (None, 0));
        assert_eq!(read(10_000, 1450), (Some(100_000), 0));
        assert_eq!(read(7000, 1500), (None, 0));
        assert_eq!(read(12_000, 1550), (Some(100_000), 0));
    }

    #[test]
    fn rates_are_in_order_and_each_once() {
        let (began, mut meter) = (Instant::now(), Meter::default());
        let arrived = |number, bytes, ms| Arrived { way: way(number), bytes, at: began + after(ms) };
        meter.read(vec![arrived(2, 1, 0), arrived(1, 1, 0), arrived(3, 1, 0)]);
        let (arrivals, over) = meter.read(vec![arrived(2, 2, 50), arrived(1, 2, 50), arrived(1, 3, 60)]);
        let ways: Vec<Way> = arrivals.iter().map(|arrival| arrival.way).collect();
        assert_eq!((ways, over), (vec![way(1), way(2)], vec![]));
        // What is there no more is not remembered.
        assert_eq!(meter.0.len(), 2);
    }

    #[test]
    fn a_limit_follows_measures_and_ends_without_them() {
        let (now, link) = (Instant::now(), Rate::new(12.5e6).unwrap());
        let mut limits = Throttles::new(link).limits;
        let mut heed = |rate: u64, ms: u64| {
            let now = now + after(ms);
            limits.heed(&[Arrival { way: way(1), rate }], now).into_iter().map(|(_, rate)| rate.get().round())
        };
        let mut limit = |rate, ms| heed(rate, ms).next();
        // 3.2: 20 % above a rate that rises, then 10 % above one that stays; never below the floor.
        assert_eq!(limit(1_000_000, 0), Some(1_200_000.0));
        assert_eq!(limit(1_000_000, 50), Some(1_100_000.0));
        assert_eq!(limit(500_000, 100), Some(550_000.0));
        assert_eq!(limit(0, 150), Some(12_500.0));
        assert_eq!(limit(1_000_000, 200), Some(1_200_000.0));
        assert!(limit(u64::MAX, 250).is_some());
        assert_eq!(limits.end(now + after(1249)), []);
        assert_eq!(limits.end(now + after(1250)), [way(1)]);
        // The next flow begins anew.
        let again = limits.heed(&[Arrival { way: way(1), rate: 500_000 }], now + after(1300));
        assert_eq!(again[0].1.get(), 600_000.0);
    }

    #[test]
    fn limits_are_not_without_end() {
        let (now, mut limits) = (Instant::now(), Throttles::new(Rate::new(1e9).unwrap()).limits);
        let all: Vec<Arrival> =
            (0..MOST_WAYS as u32 + 10).map(|number| Arrival { way: way(number), rate: 1 }).collect();
        assert_eq!(limits.heed(&all, now).len(), MOST_WAYS);
        // Those that are there go on.
        assert_eq!(limits.heed(&all, now).len(), MOST_WAYS);
        assert_eq!(limits.known.len(), MOST_WAYS);
        assert_eq!(limits.end(now + LEASE).len(), MOST_WAYS);
        assert!(limits.known.is_empty());
    }
}
