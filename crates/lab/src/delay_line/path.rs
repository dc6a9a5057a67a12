//! Decides when a segment leaves a delay line. Sans-I/O: the caller passes the time.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weir_core::units::Rate;

/// A value that changes at constant intervals, and repeats after its last value.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule<T> {
    values: Vec<T>,
    interval: Duration,
}

impl<T: Copy> Schedule<T> {
    /// A constant value.
    pub fn constant(value: T) -> Schedule<T> {
        Schedule { values: vec![value], interval: Duration::MAX }
    }

    /// One value after the other, each for `interval`; none without values or if the interval is zero.
    pub fn new(values: Vec<T>, interval: Duration) -> Option<Schedule<T>> {
        (!values.is_empty() && !interval.is_zero()).then_some(Schedule { values, interval })
    }

    /// The value at a time.
    pub fn at(&self, time: Duration) -> T {
        let step = time.as_nanos() / self.interval.as_nanos();
        self.values[(step % self.values.len() as u128) as usize]
    }

    /// All values.
    pub fn values(&self) -> &[T] {
        &self.values
    }
}

/// The link from one end of a delay line to the other.
#[derive(Debug, Clone, PartialEq)]
pub struct PathSettings {
    /// The time that a segment takes after the queue.
    pub delay: Schedule<Duration>,
    /// The rate at which the queue is emptied, in bytes of IP packets. At a rate of zero, all segments are dropped.
    pub rate: Schedule<Rate>,
    /// The maximum time that a segment waits in the queue. A segment that would wait longer is dropped.
    pub queue: Duration,
    /// The probability that a segment is lost after the queue: 0 to 1.
    pub loss: f64,
    /// Determines which segments are lost.
    pub seed: u64,
}

/// What became of the segments of a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Forwarded segments.
    pub forwarded: u64,
    /// Segments that were lost by chance.
    pub lost: u64,
    /// Segments that the full queue dropped.
    pub dropped: u64,
}

/// The state of one direction of a delay line.
#[derive(Debug)]
pub struct Path {
    settings: PathSettings,
    rng: ChaCha8Rng,
    /// When the queue is empty.
    idle_at: Duration,
    /// The latest time at which a segment leaves.
    last_exit: Duration,
    counters: PathCounters,
}

impl Path {
    /// An empty path.
    pub fn new(settings: PathSettings) -> Path {
        let rng = ChaCha8Rng::seed_from_u64(settings.seed);
        Path {
            settings,
            rng,
            idle_at: Duration::ZERO,
            last_exit: Duration::ZERO,
            counters: PathCounters::default(),
        }
    }

    /// Admits a segment, and returns when it leaves: not before earlier segments. None if the segment is lost or dropped.
    pub fn admit(&mut self, now: Duration, bytes: usize) -> Option<Duration> {
        let start = self.idle_at.max(now);
        let rate = self.settings.rate.at(start).get();
        if start - now > self.settings.queue || rate <= 0.0 {
            self.counters.dropped += 1;
            return None;
        }
        self.idle_at = start + Duration::from_secs_f64(bytes as f64 / rate);
        if self.settings.loss > 0.0 && self.rng.random_bool(self.settings.loss) {
            self.counters.lost += 1;
            return None;
        }
        self.counters.forwarded += 1;
        self.last_exit = self.last_exit.max(self.idle_at + self.settings.delay.at(self.idle_at));
        Some(self.last_exit)
    }

    /// The counts so far.
    pub fn counters(&self) -> PathCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn settings() -> PathSettings {
        PathSettings {
            delay: Schedule::constant(25 * MS),
            rate: Schedule::constant("8Mbit".parse().unwrap()),
            queue: 10 * MS,
            loss: 0.0,
            seed: 1,
        }
    }

    #[test]
    fn segments_leave_at_the_rate_and_after_the_delay() {
        let mut path = Path::new(settings());
        // 1,000 bytes take 1 ms at 8 Mbit/s.
        let exits: Vec<_> = (0..3).map(|_| path.admit(Duration::ZERO, 1_000)).collect();
        assert_eq!(exits, [Some(26 * MS), Some(27 * MS), Some(28 * MS)]);
        assert_eq!(path.admit(100 * MS, 1_000), Some(126 * MS));
    }

    #[test]
    fn full_queue_drops_segments_and_recovers() {
        let mut path = Path::new(settings());
        let admitted = (0..20).filter(|_| path.admit(Duration::ZERO, 1_000).is_some()).count();
        assert_eq!((admitted, path.counters().dropped), (11, 9));
        assert!(path.admit(5 * MS, 1_000).is_some());
    }

    #[test]
    fn equal_seeds_lose_the_same_segments_at_the_given_probability() {
        let lossy = || PathSettings { loss: 0.01, rate: Schedule::constant(Rate::GBIT), ..settings() };
        let run = |settings| {
            let mut path = Path::new(settings);
            let exits: Vec<_> = (0..100_000).map(|n| path.admit(n * MS, 1_500).is_some()).collect();
            (exits, path.counters().lost)
        };
        let (first, lost) = run(lossy());
        assert!((900..1_100).contains(&lost), "{lost} of 100,000");
        assert_eq!(run(lossy()).0, first);
        assert_ne!(run(PathSettings { seed: 2, ..lossy() }).0, first);
    }

    #[test]
    fn shorter_delay_does_not_reorder_segments() {
        let delay = Schedule::new(vec![30 * MS, 10 * MS], 5 * MS).unwrap();
        let mut path = Path::new(PathSettings { delay, ..settings() });
        let before = path.admit(3 * MS, 1_000).unwrap();
        let after = path.admit(6 * MS, 1_000).unwrap();
        assert_eq!((before, after), (34 * MS, 34 * MS));
    }

    #[test]
    fn schedule_repeats_its_values() {
        let schedule = Schedule::new(vec![1, 2, 3], MS).unwrap();
        let values: Vec<_> = (0..7).map(|n| schedule.at(n * MS)).collect();
        assert_eq!(values, [1, 2, 3, 1, 2, 3, 1]);
        assert_eq!(Schedule::constant(4).at(Duration::from_secs(1 << 40)), 4);
        assert!(Schedule::<u8>::new(vec![], MS).is_none());
    }
}
