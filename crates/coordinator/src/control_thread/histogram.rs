//! Counts the durations of all schedules since the start in a histogram.

use std::time::Duration;

/// Upper bounds of the buckets, in microseconds.
const BUCKET_BOUNDS_US: [u64; 11] = [50, 100, 250, 500, 1000, 2000, 4000, 8000, 16_000, 64_000, 256_000];

/// Durations since the start, by bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Histogram {
    /// Count of each bucket; the last bucket has no upper bound.
    counts: [u64; BUCKET_BOUNDS_US.len() + 1],
    sum: Duration,
}

impl Histogram {
    pub(super) fn add(&mut self, duration: Duration) {
        let bucket = BUCKET_BOUNDS_US
            .iter()
            .position(|&end| duration <= Duration::from_micros(end))
            .unwrap_or(BUCKET_BOUNDS_US.len());
        self.counts[bucket] += 1;
        self.sum += duration;
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of all durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Upper bound of each bucket in seconds (the last one is infinite), and the count of this bucket only.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = BUCKET_BOUNDS_US.iter().map(|&end| end as f64 / 1e6).chain([f64::INFINITY]);
        bounds.zip(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_count_in_the_first_bucket_that_includes_them() {
        let mut histogram = Histogram::default();
        for micros in [0, 50, 51, 256_000, 256_001] {
            histogram.add(Duration::from_micros(micros));
        }
        let filled: Vec<(f64, u64)> = histogram.buckets().filter(|bucket| bucket.1 > 0).collect();
        assert_eq!(filled, [(0.00005, 2), (0.0001, 1), (0.256, 1), (f64::INFINITY, 1)]);
        assert_eq!((histogram.count(), histogram.sum()), (5, Duration::from_micros(512_102)));
    }
}
