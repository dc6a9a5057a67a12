//! Throttles UDP between the agents of two hosts (NetShare, section 3.2). The receiver's agent measures the rate at which UDP arrives, and
//! the sender's agent limits the rate by Algorithm 1 ([`Throttle`]). The coordinator forwards the measurements.
//!
//! Where the paper is silent:
//!
//! - *What a flow is*: all UDP over IPv4 from one address to another, of one class ([`Way`]).
//! - *Only whole periods are reported.* A source that starts or pauses within a period would seem slower than it is, and one that pauses
//!   for longer sends nothing that could be limited.
//! - *A lost measurement* changes nothing.
//! - *The end of a flow*: its limit ends [`LEASE`] after the last measurement, even if the agents of both hosts have exited. A later flow
//!   of the same addresses and class starts without a limit.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_core::netshare::{PERIOD, Throttle};
use weir_core::units::Rate;
use weir_proto::{Arrival, MAX_WAYS, Way};

use crate::htb::FRAME;
use crate::traffic::{Arrived, Throttling, Traffic, TrafficError};

/// How long a limit holds after a measurement: twenty periods.
const LEASE: Duration = Duration::from_secs(1);

/// The time without a packet after which a flow has ended.
const OVER: Duration = Duration::from_secs(1);

/// The wait before programs that the kernel refused are loaded again.
const AGAIN: Duration = Duration::from_secs(1);

/// The minimum limit, as a fraction of the link. A source that uses its limit reaches the whole link in 38 periods, if all are measured.
const PART: f64 = 1e-3;

/// The minimum limit in full packets per period: with less than one, some periods would have no packet, and would not be reported.
const PACKETS: u32 = 4;

/// The UDP measurements and limits of a host.
pub struct Throttles {
    meter: Meter,
    arrivals: Vec<Arrival>,
    limits: Limits,
    due: Due,
    /// Whether the coordinator wants throttling.
    is_wanted: bool,
    /// When the kernel last refused the programs; none if it accepted them.
    refused: Option<Instant>,
    /// The last errors of measuring and of limiting.
    failed: [Failed; 2],
}

/// The last error, if any.
#[derive(Debug, Default)]
struct Failed(Option<String>);

impl Failed {
    /// Logs an error unless it equals the last one.
    fn note(&mut self, done: Result<(), TrafficError>) {
        let failed = done.err().map(|error| error.to_string());
        if let Some(why) = failed.as_ref().filter(|_| self.0 != failed) {
            super::say(why);
        }
        self.0 = failed;
    }
}

/// Does all steps, and returns the first error.
fn all(done: impl Iterator<Item = Result<(), TrafficError>>) -> Result<(), TrafficError> {
    done.fold(Ok(()), Result::and)
}

impl Throttles {
    /// For a host with a link of this rate.
    pub fn new(link: Rate) -> Throttles {
        let floor = (link.get() * PART).max(f64::from(PACKETS * FRAME) / PERIOD.get());
        Throttles::with(Rate::new(floor).expect("a finite rate times a fraction is a rate"))
    }

    fn with(floor: Rate) -> Throttles {
        let (meter, limits) = (Meter::default(), Limits { floor, known: BTreeMap::new() });
        Throttles {
            meter,
            arrivals: Vec::new(),
            limits,
            due: Due::default(),
            is_wanted: false,
            refused: None,
            failed: Default::default(),
        }
    }

    /// Records whether a new coordinator wants throttling, and loads or removes the programs.
    pub fn begin(&mut self, traffic: &mut Traffic, is_wanted: bool, now: Instant) {
        self.arrivals.clear();
        (self.is_wanted, self.refused) = (is_wanted, None);
        let is_there = traffic.throttling().is_some();
        self.become_wanted(now, is_there, |is_wanted| traffic.throttle(is_wanted));
    }

    /// Loads or removes the programs if the coordinator's setting has changed, or after an earlier attempt was refused.
    fn become_wanted(
        &mut self,
        now: Instant,
        is_there: bool,
        throttle: impl FnOnce(bool) -> Result<(), TrafficError>,
    ) {
        let waits = self.refused.is_some_and(|last| now.saturating_duration_since(last) < AGAIN);
        if self.is_wanted == is_there || waits {
            return;
        }
        let failed = std::mem::take(&mut self.failed);
        *self = Throttles { is_wanted: self.is_wanted, failed, ..Throttles::with(self.limits.floor) };
        let done = throttle(self.is_wanted);
        self.refused = done.is_err().then_some(now);
        self.failed[0].note(done);
    }

    /// Updates the limits of this host's flows by measurements of other hosts.
    pub fn heed(&mut self, traffic: &mut Traffic, arrivals: &[Arrival], now: Instant) {
        let Some(throttling) = traffic.throttling().filter(|_| !arrivals.is_empty()) else { return };
        let limits = self.limits.heed(arrivals, now);
        let done = all(limits.into_iter().map(|(way, rate)| throttling.limit(way, rate, LEASE)));
        self.failed[1].note(done);
    }

    /// Measures the arriving rates once a period, and removes limits whose lease has ended.
    pub fn look(&mut self, traffic: &mut Traffic, now: Instant) {
        let is_there = traffic.throttling().is_some();
        self.become_wanted(now, is_there, |is_wanted| traffic.throttle(is_wanted));
        if let Some(throttling) = traffic.throttling().filter(|_| self.due.is_now(now)) {
            let done = self.measure(throttling, now);
            self.failed[0].note(done);
        }
    }

    fn measure(&mut self, throttling: &mut Throttling, now: Instant) -> Result<(), TrafficError> {
        // Measurements that were not reported are out of date.
        self.arrivals.clear();
        let freed = all(self.limits.end(now).into_iter().map(|way| throttling.free(way)));
        let (arrivals, over) = self.meter.read(throttling.arrived()?);
        self.arrivals = arrivals;
        freed.and(all(over.into_iter().map(|way| throttling.forget(way))))
    }

    /// The rates measured since the last call, sorted by [`Way`].
    pub fn arrivals(&mut self) -> Vec<Arrival> {
        std::mem::take(&mut self.arrivals)
    }
}

/// The time of the next measurement.
#[derive(Debug, Default)]
struct Due(Option<Instant>);

impl Due {
    /// Whether a measurement is due. A late measurement, as by the agent's interval, does not delay the next one.
    fn is_now(&mut self, now: Instant) -> bool {
        let period = Duration::from_secs_f64(PERIOD.get());
        let due = self.0.unwrap_or(now);
        if now < due {
            return false;
        }
        let began = if now.saturating_duration_since(due) < period { due } else { now };
        self.0 = Some(began + period);
        true
    }
}

/// The bytes of a flow up to a time.
#[derive(Debug)]
struct Count {
    bytes: u64,
    at: Instant,
    /// Whether a packet arrived in the last period.
    moves: bool,
    /// When a packet arrived last.
    last: Instant,
}

/// Computes rates from byte counts, which only increase.
#[derive(Debug, Default)]
struct Meter(BTreeMap<Way, Count>);

impl Meter {
    /// The rates since the last reading, sorted by [`Way`], and the flows that have ended.
    fn read(&mut self, arrived: Vec<Arrived>) -> (Vec<Arrival>, Vec<Way>) {
        let (mut arrivals, mut over, mut before) = (Vec::new(), Vec::new(), std::mem::take(&mut self.0));
        for Arrived { way, bytes, at } in arrived {
            // A count that was removed starts again at zero.
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
        // The kernel's map changes while it is read, so a key can occur twice.
        arrivals.dedup_by_key(|arrival| arrival.way);
        arrivals.truncate(MAX_WAYS);
        (arrivals, over)
    }
}

/// The limits of the flows that this host sends.
#[derive(Debug)]
struct Limits {
    floor: Rate,
    /// Each with the end of its lease.
    known: BTreeMap<Way, (Throttle, Instant)>,
}

impl Limits {
    /// The limits after these measurements. Beyond [`MAX_WAYS`] flows, further flows get no limit.
    fn heed(&mut self, arrivals: &[Arrival], now: Instant) -> Vec<(Way, Rate)> {
        let mut limits = Vec::new();
        for &Arrival { way, rate } in arrivals {
            if self.known.len() == MAX_WAYS && !self.known.contains_key(&way) {
                continue;
            }
            let new = || (Throttle::new(self.floor), now);
            let (throttle, until) = self.known.entry(way).or_insert_with(new);
            *until = now + LEASE;
            let rate = Rate::new(rate as f64).expect("a whole number is a finite rate, not negative");
            limits.extend(throttle.report(rate).map(|limit| (way, limit)));
        }
        limits
    }

    /// Removes the limits whose lease has ended, and returns their flows.
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
        // The flow started within the first period.
        assert_eq!(read(1000, 50), (None, 0));
        assert_eq!(read(6000, 100), (Some(100_000), 0));
        // A late reading: the rate counts the time that has passed.
        assert_eq!(read(16_000, 200), (Some(100_000), 0));
        // The flow pauses, and continues within a period.
        assert_eq!(read(16_000, 250), (None, 0));
        assert_eq!(read(17_000, 300), (None, 0));
        assert_eq!(read(22_000, 350), (Some(100_000), 0));
        // Two readings at the same time give no rate.
        assert_eq!(read(22_001, 350), (None, 0));
        // The flow has ended.
        assert_eq!(read(22_001, 1300), (None, 0));
        assert_eq!(read(22_001, 1350), (None, 1));
        // A flow that has ended starts a new count; so does one whose count was removed meanwhile.
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
        // A flow without a count is forgotten.
        assert_eq!(meter.0.len(), 2);
    }

    #[test]
    fn limit_follows_measurements_and_expires() {
        let (now, link) = (Instant::now(), Rate::new(12.5e6).unwrap());
        let mut limits = Throttles::new(link).limits;
        let mut heed = |rate: u64, ms: u64| {
            let now = now + after(ms);
            limits.heed(&[Arrival { way: way(1), rate }], now).into_iter().map(|(_, rate)| rate.get().round())
        };
        let mut limit = |rate, ms| heed(rate, ms).next();
        // Section 3.2: 20 % above a rate that rises, 10 % above one that does not, and never below the minimum.
        assert_eq!(limit(1_000_000, 0), Some(1_200_000.0));
        assert_eq!(limit(1_000_000, 50), Some(1_100_000.0));
        assert_eq!(limit(500_000, 100), Some(550_000.0));
        assert_eq!(limit(0, 150), Some(121_120.0));
        assert_eq!(limit(1_000_000, 200), Some(1_200_000.0));
        assert!(limit(u64::MAX, 250).is_some());
        assert_eq!(limits.end(now + after(1249)), []);
        assert_eq!(limits.end(now + after(1250)), [way(1)]);
        // The next flow starts from scratch.
        let again = limits.heed(&[Arrival { way: way(1), rate: 500_000 }], now + after(1300));
        assert_eq!(again[0].1.get(), 600_000.0);
    }

    #[test]
    fn min_limit_scales_with_the_link_rate() {
        assert_eq!(Throttles::new(Rate::new(1.25e9).unwrap()).limits.floor.get(), 1.25e6);
    }

    #[test]
    fn measurements_are_one_period_apart() {
        let began = Instant::now();
        let measures = |every: usize| {
            let mut due = Due::default();
            (0..8000).step_by(every).filter(|&ms| due.is_now(began + after(ms))).count()
        };
        // However often the agent checks, up to once a period.
        assert_eq!([1, 8, 30, 49, 50].map(measures), [160; 5]);
        // The agent does not make up for missed periods.
        let mut due = Due::default();
        let measures = [0, 500, 508, 549, 550].map(|ms| due.is_now(began + after(ms)));
        assert_eq!(measures, [true, true, false, false, true]);
    }

    #[test]
    fn refused_programs_are_loaded_again_after_1_s() {
        let (now, mut throttles) = (Instant::now(), Throttles::new(Rate::new(1e9).unwrap()));
        throttles.is_wanted = true;
        let mut tried = Vec::new();
        for ms in (0..2500).step_by(100) {
            throttles.become_wanted(now + after(ms), false, |is_wanted| {
                tried.push((ms, is_wanted));
                Err(TrafficError::NotBuilt("it is a test"))
            });
        }
        assert_eq!(tried, [(0, true), (1000, true), (2000, true)]);
        throttles.become_wanted(now + after(3000), false, |_| Ok(()));
        assert_eq!(throttles.refused, None);
        throttles.become_wanted(now + after(3100), true, |_| panic!("it is there"));
    }

    #[test]
    fn all_steps_run_after_an_error() {
        let mut done = 0;
        let results = [Ok(()), Err("the first"), Ok(()), Err("the second")];
        let failed = all(results.into_iter().map(|result| {
            done += 1;
            result.map_err(TrafficError::NotBuilt)
        }));
        assert_eq!(done, 4);
        assert!(matches!(failed, Err(TrafficError::NotBuilt("the first"))));
    }

    #[test]
    fn number_of_limits_is_bounded() {
        let (now, mut limits) = (Instant::now(), Throttles::new(Rate::new(1e9).unwrap()).limits);
        let all: Vec<Arrival> =
            (0..MAX_WAYS as u32 + 10).map(|number| Arrival { way: way(number), rate: 1 }).collect();
        assert_eq!(limits.heed(&all, now).len(), MAX_WAYS);
        // Existing flows keep their limits.
        assert_eq!(limits.heed(&all, now).len(), MAX_WAYS);
        assert_eq!(limits.known.len(), MAX_WAYS);
        assert_eq!(limits.end(now + LEASE).len(), MAX_WAYS);
        assert!(limits.known.is_empty());
    }
}
