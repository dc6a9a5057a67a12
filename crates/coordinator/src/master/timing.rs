//! Statistics of the durations of the last schedules.

use std::time::Duration;

/// Number of durations that are kept.
const KEPT: usize = 4096;

/// Duration of schedules, from the start of the decision until its orders are queued. All fields but [`Timing::count`]
/// cover the last 4,096 schedules, and are zero before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    /// Number of schedules since the start.
    pub count: u64,
    /// Mean duration.
    pub mean: Duration,
    /// 90th percentile (nearest rank).
    pub p90: Duration,
    /// 99th percentile (nearest rank).
    pub p99: Duration,
    /// Maximum.
    pub max: Duration,
}

/// Ring buffer of the last durations.
#[derive(Debug, Default)]
pub(super) struct Window {
    count: u64,
    last: Vec<Duration>,
}

impl Window {
    pub(super) fn add(&mut self, time: Duration) {
        let at = (self.count % KEPT as u64) as usize;
        self.count += 1;
        if self.last.len() < KEPT {
            self.last.push(time);
        } else {
            self.last[at] = time;
        }
    }

    pub(super) fn timing(&self) -> Timing {
        let mut sorted = self.last.clone();
        sorted.sort_unstable();
        let Some(&max) = sorted.last() else { return Timing::default() };
        // Nearest rank: the smallest duration that at least this percentage of durations do not exceed.
        let within = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100) - 1];
        let mean = sorted.iter().sum::<Duration>() / sorted.len() as u32;
        Timing { count: self.count, mean, p90: within(90), p99: within(99), max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_cover_the_last_4096_schedules() {
        let mut window = Window::default();
        assert_eq!(window.timing(), Timing::default());
        let of = |count, mean, p90, p99, max| {
            let us = Duration::from_micros;
            Timing { count, mean: us(mean), p90: us(p90), p99: us(p99), max: us(max) }
        };
        window.add(Duration::from_micros(7));
        assert_eq!(window.timing(), of(1, 7, 7, 7, 7));
        for time in [1, 2, 3, 4, 5, 6, 8, 9, 10] {
            window.add(Duration::from_micros(time));
        }
        assert_eq!(window.timing(), Timing { mean: Duration::from_nanos(5500), ..of(10, 0, 9, 10, 10) });
        for _ in 0..KEPT {
            window.add(Duration::from_micros(3));
        }
        assert_eq!(window.timing(), of(10 + KEPT as u64, 3, 3, 3, 3));
    }
}
