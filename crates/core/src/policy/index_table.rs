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
//! as it has taken with probability 1/2, at each scale. Its index is 1 / a. So without sizes, and beyond the largest one, the order is
//! that of least attained service. Older sizes count less: once `MEMORY` coflows have completed, all counts are halved.

use super::attained_service::Levels;

/// The end of the last level, in seconds.
const MAX_SECONDS: f64 = 1e7;

/// The number of completed coflows from which on older ones count less.
const MEMORY: f64 = 4096.0;

/// The growth of the number of sizes after which the indices are computed again.
const UPDATE_GROWTH: f64 = 0.02;

/// What is known about a level of attained service.
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
    /// What is expected without these coflows.
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
        self.new_sizes > UPDATE_GROWTH * self.levels[0].reached
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
