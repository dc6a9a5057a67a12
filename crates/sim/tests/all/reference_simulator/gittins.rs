//! Gittins (crates/core/src/policy/gittins.rs): coflows by the index of their attained service, with equal rates and backfilling.

use super::{Flow, Policy, RATE_TOLERANCE, ReferenceSimulator, Variant};
use proptest::prelude::*;

/// Bytes per second in the engine for each byte per second here, and bytes for each byte. The first level of attained service is
/// thus the time of 16 kB / 2^21 = 7.6 ms.
pub(super) const BYTE_SCALE: f64 = 2_097_152.0;
const FIRST_LEVEL_BYTES: f64 = 16e3 / BYTE_SCALE;

/// The ratio of the end of a level to its start, from the second level on.
const LEVEL_RATIO: f64 = 1.25;

/// Levels start below this time, in seconds.
const LAST_START: f64 = 1e7;

/// Attained service this close to a level has reached the level.
const LEVEL_TOLERANCE: f64 = 1e-6;

/// The minimum time until the next schedule for a level, as a part of the level, and in seconds.
pub(super) const MIN_WAIT: f64 = 0.02;
pub(super) const MIN_WAKEUP_SECONDS: f64 = 1e-6;

/// Indices are computed again once the new sizes are more than this part of all.
const UPDATE_GROWTH: f64 = 0.02;

/// What determines the index of a level.
#[derive(Debug, Clone)]
pub(super) enum GittinsIndex {
    LeastAttained,
    /// The sizes of earlier coflows, and a prior that counts as this number of coflows.
    Sizes(f64),
}

/// The attained service of a coflow, in seconds.
#[derive(Debug, Clone, Default)]
struct Attained {
    seconds: f64,
    /// The number of the level: 0 starts at 0.
    level: i32,
    /// What the attained service can be at most: `bound` at the last schedule, and `growth` seconds a second since.
    bound: f64,
    bound_at: f64,
    growth: f64,
    is_learned: bool,
}

/// What the policy remembers.
#[derive(Debug, Clone, Default)]
pub(super) struct GittinsState {
    attained: Vec<Attained>,
    /// By link.
    highest_capacities: Vec<f64>,
    /// Sizes of the coflows that have completed, and the number of those that the indices include.
    sizes: Vec<f64>,
    included: usize,
}

/// A coflow that has passed the levels below `passed`, and its size if it has completed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) passed: i32,
    pub(super) size: Option<f64>,
}

/// Of a coflow that reaches a level, by level: the probability that it completes there, and its mean service there. The prior counts
/// as `weight` coflows.
pub(super) fn outcomes(records: &[Record], weight: f64, prior: &[(f64, f64)], first: f64) -> Vec<(f64, f64)> {
    // The level of a coflow, and its size there. A size can be below the recorded levels if flows have restarted or moved.
    let level_of =
        |size: f64| (0..).find(|&level| size <= level_start(level + 1, first)).expect("levels grow");
    let last = |record: &Record| match record.size {
        Some(size) => (level_of(size).max(record.passed), Some(size)),
        None => (record.passed, None),
    };
    let last: Vec<(i32, Option<f64>)> = records.iter().map(last).collect();
    let outcome = |(level, &(likely, mean)): (i32, &(f64, f64))| {
        let (start, end) = (level_start(level, first), level_start(level + 1, first));
        let (mut count, mut completed, mut service) = (weight, weight * likely, weight * mean);
        for &(last, size) in &last {
            if level < last {
                (count, service) = (count + 1.0, service + end - start);
            } else if let (true, Some(size)) = (level == last, size) {
                let here = (size.min(end) - start).max(0.0);
                (count, completed, service) = (count + 1.0, completed + 1.0, service + here);
            }
        }
        if count == 0.0 { (likely, mean) } else { (completed / count, service / count) }
    };
    (0..).zip(prior).map(outcome).collect()
}

/// The outcomes under P(X > x) = 1 / x: the mean service is the integral of start / x. The first level has the index of its end.
pub(super) fn prior_outcomes(first: f64) -> Vec<(f64, f64)> {
    let levels = (0..).take_while(|&level| level_start(level, first) < LAST_START);
    let outcome = |level| match (level_start(level, first), level_start(level + 1, first)) {
        (0.0, end) => (0.5, 0.5 * end),
        (start, end) => (1.0 - start / end, start * (end / start).ln()),
    };
    levels.map(outcome).collect()
}

/// By level: completions per second of service from the level to the best later one, of all later ones.
pub(super) fn indices(outcomes: &[(f64, f64)]) -> Vec<f64> {
    let index = |level: usize| {
        let (mut survival, mut completion, mut service, mut best) = (1.0, 0.0, 0.0, 0.0f64);
        for (completion_here, service_here) in &outcomes[level..] {
            completion += survival * completion_here;
            service += survival * service_here;
            survival *= 1.0 - completion_here;
            best = best.max(completion / service);
        }
        best
    };
    (0..outcomes.len()).map(index).collect()
}

pub(super) fn level_start(level: i32, first: f64) -> f64 {
    if level == 0 { 0.0 } else { first * LEVEL_RATIO.powi(level - 1) }
}

/// The level of this attained service, at least `level`.
pub(super) fn raise_level(level: i32, seconds: f64, first: f64) -> i32 {
    let has_ended = |&level: &i32| seconds >= level_start(level + 1, first) * (1.0 - LEVEL_TOLERANCE);
    (level..).find(|level| !has_ended(level)).expect("some level ends later")
}

impl GittinsIndex {
    /// By level.
    fn indices(&self, sizes: &[f64], first: f64) -> Vec<f64> {
        let prior = prior_outcomes(first);
        match *self {
            GittinsIndex::LeastAttained => (0..prior.len()).map(|level| -(level as f64)).collect(),
            GittinsIndex::Sizes(weight) => {
                let records: Vec<Record> =
                    sizes.iter().map(|&size| Record { passed: 0, size: Some(size) }).collect();
                indices(&outcomes(&records, weight, &prior, first))
            }
        }
    }
}

impl ReferenceSimulator<'_> {
    /// The end of the first level.
    pub(super) fn first_level(&self) -> f64 {
        self.clock.interval.max(FIRST_LEVEL_BYTES)
    }

    pub(super) fn schedule_gittins(&mut self, index: &GittinsIndex, left: &mut [f64]) {
        self.gittins.attained.resize(self.coflows.len(), Attained::default());
        self.learn_sizes();
        self.gittins.highest_capacities.resize(self.links.len(), 0.0);
        for (highest, &capacity) in self.gittins.highest_capacities.iter_mut().zip(&self.links) {
            *highest = highest.max(capacity);
        }
        let mut order = self.active();
        order.iter().for_each(|&c| self.update_level(c));
        order.retain(|&c| self.coflows[c].live_flows().count() > 0);
        let GittinsState { sizes, included, .. } = &mut self.gittins;
        if (sizes.len() - *included) as f64 > UPDATE_GROWTH * sizes.len() as f64 {
            *included = sizes.len();
        }
        let indices = index.indices(&self.gittins.sizes[..self.gittins.included], self.first_level());
        let index_of = |c: usize| indices[self.gittins.attained[c].level as usize];
        // The sort is stable: active coflows are in order of release.
        order.sort_by(|&a, &b| index_of(b).total_cmp(&index_of(a)));
        let levels =
            |pair: &[usize]| pair.iter().map(|&c| self.gittins.attained[c].level).collect::<Vec<_>>();
        let is_tie =
            |pair: &[usize]| index_of(pair[0]) - index_of(pair[1]) < RATE_TOLERANCE * index_of(pair[0]);
        self.has_ties |= order.windows(2).any(|pair| levels(pair)[0] != levels(pair)[1] && is_tie(pair));
        let common: Vec<f64> = order.iter().map(|&c| self.assign_equal_rates(c, left)).collect();
        order.iter().for_each(|&c| self.backfill(c, left));
        self.gittins.attained.iter_mut().for_each(|attained| attained.growth = 0.0);
        for (&c, &common) in order.iter().zip(&common) {
            self.gittins.attained[c].growth = self.max_growth(c, common);
        }
    }

    /// Learns the sizes of the coflows that have completed since the last schedule.
    fn learn_sizes(&mut self) {
        for c in 0..self.coflows.len() {
            if self.coflows[c].end.is_some() && !self.gittins.attained[c].is_learned {
                self.gittins.attained[c].is_learned = true;
                let size = self.attained_seconds(c).max(self.gittins.attained[c].seconds);
                self.gittins.sizes.push(size);
            }
        }
    }

    /// The time that the most loaded link takes for the bytes that it has carried, at its highest capacity.
    fn attained_seconds(&self, c: usize) -> f64 {
        let carried = |link: usize| {
            let flows = self.coflows[c].flows.iter().filter(|flow| flow.links().any(|other| other == link));
            flows.map(|flow| flow.sent_bytes).sum::<f64>()
        };
        let seconds = self.gittins.highest_capacities.iter().enumerate();
        let seconds = seconds.filter(|(_, capacity)| **capacity > 0.0);
        seconds.map(|(link, capacity)| carried(link) / capacity).fold(0.0, f64::max)
    }

    /// Raises the attained service of a coflow, if it can have reached the next level, or its flows have other paths.
    fn update_level(&mut self, c: usize) {
        let (seconds, first) = (self.attained_seconds(c), self.first_level());
        let now = self.now;
        let has_moved = std::mem::take(&mut self.coflows[c].has_moved);
        let attained = &mut self.gittins.attained[c];
        attained.bound += attained.growth * (now - attained.bound_at);
        attained.bound_at = now;
        if !has_moved && attained.bound < level_start(attained.level + 1, first) * (1.0 - LEVEL_TOLERANCE) {
            return;
        }
        attained.seconds = attained.seconds.max(seconds);
        attained.bound = attained.seconds;
        attained.level = raise_level(attained.level, attained.seconds, first);
    }

    /// How fast attained service can grow if the backfilled rates of a coflow all cross the same link, in seconds a second.
    fn max_growth(&self, c: usize, common: f64) -> f64 {
        let coflow = &self.coflows[c];
        let total: f64 = coflow.live_flows().map(|flow| flow.rate - common).sum();
        // A sum of rates that are equal but for rounding is no rate.
        let backfilled = if total > super::TOLERANCE { total } else { 0.0 };
        if common + backfilled == 0.0 {
            return 0.0;
        }
        let growth = |link: usize| {
            let rate = common * coflow.live_count_over(link) as f64 + backfilled;
            rate / self.gittins.highest_capacities[link]
        };
        coflow.live_flows().flat_map(Flow::links).map(growth).fold(0.0, f64::max).min(1.0)
    }

    /// The earliest time at which a coflow can reach its next level.
    pub(super) fn next_level_time(&self) -> f64 {
        let (mut next, first) = (f64::INFINITY, self.first_level());
        for attained in self.gittins.attained.iter().filter(|attained| attained.growth > 0.0) {
            let level = level_start(attained.level + 1, first);
            let seconds = (level - attained.bound) / attained.growth;
            next = next.min(seconds.max(MIN_WAIT * level));
        }
        self.now + next.max(MIN_WAKEUP_SECONDS)
    }
}

pub(super) fn any_variants() -> impl Strategy<Value = Vec<Variant>> {
    prop::sample::select(vec![0.01, 0.1, 1.0, 10.0]).prop_map(|prior| {
        let sizes = Policy::Gittins(GittinsIndex::Sizes(prior));
        let las = Policy::Gittins(GittinsIndex::LeastAttained);
        vec![(format!("gittins:prior={prior}"), sizes), ("gittins:index=las".to_owned(), las)]
    })
}
