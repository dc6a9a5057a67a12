//! Computes the mean and percentiles of the durations of the last 4,096 schedules.

use std::time::Duration;

/// Number of stored durations.
const WINDOW_LEN: usize = 4096;

/// Durations of schedules, from the start of the decision until its orders are queued. All fields except
/// [`DurationStats::count`] cover the last 4,096 schedules, and are zero before the first schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DurationStats {
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
pub(super) struct DurationWindow {
    count: u64,
    durations: Vec<Duration>,
}

impl DurationWindow {
    pub(super) fn add(&mut self, duration: Duration) {
        let index = (self.count % WINDOW_LEN as u64) as usize;
        self.count += 1;
        if self.durations.len() < WINDOW_LEN {
            self.durations.push(duration);
        } else {
            self.durations[index] = duration;
        }
    }

    pub(super) fn stats(&self) -> DurationStats {
        let mut sorted = self.durations.clone();
        sorted.sort_unstable();
        let Some(&max) = sorted.last() else { return DurationStats::default() };
        // Nearest rank: the smallest duration such that at least this percentage of durations do not exceed it.
        let percentile = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100) - 1];
        let mean = sorted.iter().sum::<Duration>() / sorted.len() as u32;
        DurationStats { count: self.count, mean, p90: percentile(90), p99: percentile(99), max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_cover_the_last_4096_schedules() {
        let mut window = DurationWindow::default();
        assert_eq!(window.stats(), DurationStats::default());
        let stats_us = |count, mean, p90, p99, max| {
            let us = Duration::from_micros;
            DurationStats { count, mean: us(mean), p90: us(p90), p99: us(p99), max: us(max) }
        };
        window.add(Duration::from_micros(7));
        assert_eq!(window.stats(), stats_us(1, 7, 7, 7, 7));
        for time in [1, 2, 3, 4, 5, 6, 8, 9, 10] {
            window.add(Duration::from_micros(time));
        }
        assert_eq!(
            window.stats(),
            DurationStats { mean: Duration::from_nanos(5500), ..stats_us(10, 0, 9, 10, 10) }
        );
        for _ in 0..WINDOW_LEN {
            window.add(Duration::from_micros(3));
        }
        assert_eq!(window.stats(), stats_us(10 + WINDOW_LEN as u64, 3, 3, 3, 3));
    }
}
