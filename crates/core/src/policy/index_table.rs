//! The Gittins index of attained service, by the sizes of earlier coflows.
//!
//! Source: Gittins, "Multi-armed Bandit Allocation Indices", 1989; Aalto, Ayesta and Righter, "On the Gittins index in the M/G/1 queue",
//! Queueing Systems 63, 2009.
//!
//! The *size* X of a coflow is its attained service when it completes. The *index* of a level a of attained service is the maximum over
//! the later levels b of P(a < X <= b) / (E[min(X, b)] - E[min(X, a)]), given X > a: completions per second of service up to b. The order
//! of coflows changes at levels only, so the maximum over the levels is exact.
//!
//! # Distribution
//!
//! For each level, the table counts the coflows that reached it, those of them that completed inside, and the service of all inside (the
//! estimate of Kaplan and Meier by level). A coflow that is still active thus counts for the levels that it has passed. Without that,
//! the first sizes were too small, since small coflows complete early.
//!
//! The prior counts as `weight` coflows that reach each level and complete there as under P(X > x) = 1 / x: a coflow needs as much again
//! as it has taken with probability 1/2, at each scale. Its index falls with a: it is 1 / a with short levels, and 1 / (1.116 a) if a
//! level ends at 1.25 times its start a. So without sizes, and beyond the largest one, the order is that of least attained service.
//! Older sizes count less: when a coflow completes and more than `MEMORY` coflows count for the first level, all counts are halved.

use super::attained_service::Levels;

/// The end of the last level, in seconds.
const MAX_SECONDS: f64 = 1e7;

/// The number of coflows that completed in the first level or passed it, above which all counts are halved.
const MEMORY: f64 = 4096.0;

/// The growth of the number of sizes after which the indices are computed again.
const UPDATE_GROWTH: f64 = 0.02;

/// A level of attained service, and the coflows that reached it.
#[derive(Debug, Clone, Copy)]
struct Level {
    /// In seconds.
    start: f64,
    end: f64,
    /// Number of coflows that reached the level.
    reached: f64,
    /// Number of these coflows that completed inside.
    completed: f64,
    /// The service of these coflows inside, in seconds.
    service: f64,
    /// The expectation without these coflows.
    prior: Stretch,
    /// The inverse of the index: the expected service for a completion, in seconds.
    seconds: f64,
}

impl Level {
    /// A level without coflows, and with the prior P(X > x) = 1 / x.
    fn new(start: f64, end: f64) -> Level {
        // The first level has the index of its end.
        let (completion, service) = match start {
            0.0 => (0.5, 0.5 * end),
            _ => (1.0 - start / end, start * libm::log(end / start)),
        };
        let prior = Stretch { completion, survival: 1.0 - completion, service };
        Level { start, end, reached: 0.0, completed: 0.0, service: 0.0, prior, seconds: 0.0 }
    }

    /// The level alone, for a coflow that reaches it. The prior counts as `weight` coflows.
    fn stretch(&self, weight: f64) -> Stretch {
        let reached = weight + self.reached;
        if reached == 0.0 {
            return self.prior;
        }
        let completion = (weight * self.prior.completion + self.completed) / reached;
        let service = (weight * self.prior.service + self.service) / reached;
        Stretch { completion, survival: 1.0 - completion, service }
    }
}

/// A range of levels with the best rate of completions for a coflow that reaches its start.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// The probabilities of a completion inside and of none, and the expected service in seconds.
    completion: f64,
    survival: f64,
    service: f64,
}

impl Stretch {
    fn seconds(self) -> f64 {
        self.service / self.completion
    }

    /// This stretch and the one after it.
    fn then(self, next: Stretch) -> Stretch {
        Stretch {
            completion: self.completion + self.survival * next.completion,
            survival: self.survival * next.survival,
            service: self.service + self.survival * next.service,
        }
    }
}

/// The sizes of earlier coflows, and the index of each level.
#[derive(Debug, Clone, Default)]
pub(super) struct IndexTable {
    levels: Vec<Level>,
    /// The number of coflows that the prior counts as.
    weight: f64,
    /// The number of sizes that the indices lack.
    new_sizes: f64,
    stretches: Vec<Stretch>,
}

impl IndexTable {
    /// The prior, which counts as `weight` coflows.
    pub fn new(levels: Levels, weight: f64) -> IndexTable {
        let (mut all, mut start, mut end) = (Vec::new(), 0.0, levels.first_seconds);
        while start < MAX_SECONDS {
            all.push(Level::new(start, end));
            (start, end) = (end, end * (1.0 + levels.growth));
        }
        let mut table = IndexTable { levels: all, weight, ..IndexTable::default() };
        table.update();
        table
    }

    /// Whether the table has no levels yet.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Records that a coflow, which had reached level `from`, has reached level `to`. O(levels between them).
    pub fn add_passed(&mut self, from: usize, to: usize) {
        let to = to.min(self.levels.len());
        for level in &mut self.levels[from.min(to)..to] {
            level.reached += 1.0;
            level.service += level.end - level.start;
        }
    }

    /// Adds the size of a coflow that is recorded to have reached level `from`. O(levels).
    pub fn add_size(&mut self, from: usize, seconds: f64) {
        let last = self.levels.partition_point(|level| level.end < seconds).min(self.levels.len() - 1);
        let last = last.max(from.min(self.levels.len() - 1));
        self.add_passed(from, last);
        let level = &mut self.levels[last];
        level.reached += 1.0;
        level.completed += 1.0;
        level.service += (seconds.min(level.end) - level.start).max(0.0);
        self.new_sizes += 1.0;
    }

    /// As [`IndexTable::add_size`]. Earlier sizes count less once there are many.
    pub fn learn_size(&mut self, from: usize, seconds: f64) {
        self.add_size(from, seconds);
        if self.levels[0].reached > MEMORY {
            for level in &mut self.levels {
                level.reached /= 2.0;
                level.completed /= 2.0;
                level.service /= 2.0;
            }
        }
    }

    /// Whether sizes have come since the last [`IndexTable::update`], and are more than a small part of all.
    pub fn is_stale(&self) -> bool {
        self.levels.first().is_some_and(|first| self.new_sizes > UPDATE_GROWTH * first.reached)
    }

    /// Computes the indices. O(levels).
    pub fn update(&mut self) {
        self.new_sizes = 0.0;
        self.stretches.clear();
        for level in self.levels.iter_mut().rev() {
            let mut best = level.stretch(self.weight);
            // The stretches after this level have falling rates of completions. A coflow goes on as long as that improves its rate.
            while let Some(next) = self.stretches.pop_if(|next| next.seconds() < best.seconds()) {
                best = best.then(next);
            }
            level.seconds = best.seconds();
            self.stretches.push(best);
        }
    }

    /// The inverse of the index of a coflow on this level, in seconds. Lower values go first.
    pub fn seconds(&self, level: usize) -> f64 {
        self.levels[level.min(self.levels.len() - 1)].seconds
    }

    /// The size that half of the recorded coflows do not exceed, in seconds, rounded up to the end of a level; infinite before the first
    /// size. O(levels).
    pub fn median_seconds(&self) -> f64 {
        let mut survival = 1.0;
        let is_above = |level: &&Level| {
            survival *= 1.0 - if level.reached > 0.0 { level.completed / level.reached } else { 0.0 };
            survival <= 0.5
        };
        self.levels.iter().find(is_above).map_or(f64::INFINITY, |level| level.end)
    }

    /// Replaces the prior by the distribution of another table with the same levels. O(levels).
    pub fn set_prior(&mut self, other: &IndexTable) {
        for (level, other_level) in self.levels.iter_mut().zip(&other.levels) {
            level.prior = other_level.stretch(other.weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-9 * expected, "{found} instead of {expected}");
    }

    /// Levels that start at 0, 1, 2, 4, ..., and these sizes.
    fn table(weight: f64, sizes: &[f64]) -> IndexTable {
        let levels = Levels { first_seconds: 1.0, growth: 1.0, min_wait: 0.02 };
        let mut table = IndexTable::new(levels, weight);
        sizes.iter().for_each(|&size| table.add_size(0, size));
        table.update();
        table
    }

    #[test]
    fn index_is_the_best_rate_of_completions_over_all_later_levels() {
        // Sizes 1 and 9. From 0, up to 1: one completion in 1 + 1 s; up to 16: two in 1 + 9 s. From 1: one in 8 s. From 8: one in 1 s.
        let two_sizes = table(0.0, &[1.0, 9.0]);
        assert_near(two_sizes.seconds(0), 2.0);
        assert_near(two_sizes.seconds(1), 8.0);
        assert_near(two_sizes.seconds(4), 1.0);
        // Size 3 only. From 0: one completion in 3 s. From 1: one in 2 s, so the index rises with the attained service.
        let one_size = table(0.0, &[3.0]);
        assert_near(one_size.seconds(0), 3.0);
        assert_near(one_size.seconds(1), 2.0);
    }

    #[test]
    fn prior_alone_is_the_order_of_least_attained_service() {
        // Half of the coflows complete in each level. From 0: 1/2 in 1/2 s. From a: 1/2 in a ln 2.
        let table = table(1.0, &[]);
        assert_near(table.seconds(0), 1.0);
        for level in 1..20 {
            assert_near(table.seconds(level), 2.0 * 2f64.powi(level as i32 - 1) * std::f64::consts::LN_2);
        }
    }

    #[test]
    fn prior_counts_as_its_weight_in_each_level() {
        // From 2: one coflow completes after 1 s in the level, and one of the prior with probability 1/2, in 2 ln 2 s.
        let expected = (1.0 + 2.0 * std::f64::consts::LN_2) / 1.5;
        assert_near(table(1.0, &[3.0]).seconds(2), expected);
        // Beyond the largest size, the prior is alone.
        assert_near(table(1.0, &[3.0]).seconds(5), table(1.0, &[]).seconds(5));
    }

    #[test]
    fn active_coflow_counts_for_the_levels_that_it_has_passed() {
        // A coflow completes at 1, another one has reached 2 and is still active: from 0, one completion in 1 + 1 s. From 1, none is
        // seen, so only the prior of a later level counts: from 2, 1/2 in 2 ln 2.
        let mut table = table(0.0, &[1.0]);
        table.add_passed(0, 2);
        table.update();
        assert_near(table.seconds(0), 2.0);
        assert_near(table.seconds(1), 1.0 / 0.5 + 2.0 * std::f64::consts::LN_2 / 0.5);
        // Its size later counts from the recorded level on.
        table.add_size(2, 3.0);
        table.update();
        assert_near(table.seconds(1), 2.0);
    }

    #[test]
    fn other_table_is_the_prior_of_a_class() {
        let all = table(1.0, &[3.0; 100]);
        let levels = Levels { first_seconds: 1.0, growth: 1.0, min_wait: 0.02 };
        let mut class = IndexTable::new(levels, 4.0);
        class.set_prior(&all);
        class.update();
        for level in 0..20 {
            assert_near(class.seconds(level), all.seconds(level));
        }
    }

    #[test]
    fn median_is_the_end_of_its_level() {
        assert_eq!(table(1.0, &[]).median_seconds(), f64::INFINITY);
        assert_eq!(table(1.0, &[3.0]).median_seconds(), 4.0);
        assert_eq!(table(1.0, &[0.5, 0.5, 3.0]).median_seconds(), 1.0);
    }

    #[test]
    fn old_sizes_count_less_than_new_ones() {
        let mut table = table(1.0, &[]);
        (0..2 * MEMORY as usize).for_each(|_| table.learn_size(0, 3.0));
        assert!(table.levels[0].reached <= MEMORY);
        (0..MEMORY as usize).for_each(|_| table.learn_size(0, 0.5));
        assert_eq!(table.median_seconds(), 1.0);
    }

    #[test]
    fn size_beyond_the_last_level_is_in_it() {
        let mut table = table(1.0, &[1e300]);
        table.add_passed(3, 1_000_000);
        table.add_size(1_000_000, 0.0);
        table.update();
        assert!(table.seconds(usize::MAX).is_finite() && table.seconds(0) > 0.0);
    }
}
