//! Gittins (crates/core/src/policy/gittins.rs): coflows by the index of their attained service, with equal rates and backfilling.

use super::lognormal::LogNormal;
use super::{Flow, Policy, ReferenceSimulator, Variant};
use proptest::prelude::*;

/// The first level of attained service above 0, in seconds, and the ratio of two levels.
const FIRST_LEVEL: f64 = 0.008;
const LEVEL_RATIO: f64 = 1.25;

/// Attained service this close to a level has reached the level.
const LEVEL_TOLERANCE: f64 = 1e-6;

/// The minimum time until the next schedule for a level, as a part of the level, and in seconds.
const MIN_WAIT: f64 = 0.02;
const MIN_WAKEUP_SECONDS: f64 = 1e-6;

/// Beyond the level that this part of sizes exceeds, the index decreases with the inverse of the level.
const MIN_SURVIVAL: f64 = 1e-9;

/// What determines the index of a level.
#[derive(Debug, Clone)]
pub(super) enum GittinsIndex {
    LeastAttained,
    /// A lognormal distribution, which counts as `prior` coflows; infinite does not learn. By level: the probability of a size
    /// above the level, up to the next one, and the mean service between the two.
    Sizes {
        levels: Vec<(f64, f64)>,
        prior: f64,
    },
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
    /// Sizes of the coflows that have completed.
    sizes: Vec<f64>,
}

fn level_start(level: i32) -> f64 {
    if level == 0 { 0.0 } else { FIRST_LEVEL * LEVEL_RATIO.powi(level - 1) }
}

impl GittinsIndex {
    fn with_lognormal(sizes: LogNormal, prior: f64) -> GittinsIndex {
        let starts = (0..).map(|level| (level_start(level), level_start(level + 1)));
        let likely = starts.take_while(|&(start, _)| sizes.survival(start) > MIN_SURVIVAL);
        let levels = likely
            .map(|(start, end)| (sizes.probability_between(start, end), sizes.service_between(start, end)));
        GittinsIndex::Sizes { levels: levels.collect(), prior }
    }

    /// Completions per second of service up to the best later level, for coflows on a level.
    fn index_at_level(&self, level: i32, learned: &[f64]) -> f64 {
        let GittinsIndex::Sizes { levels, prior } = self else { return -f64::from(level) };
        let last = levels.len() as i32 - 1;
        if level > last {
            return self.index_at_level(last, learned) * level_start(last) / level_start(level);
        }
        let (weight, learned) = if prior.is_finite() { (*prior, learned) } else { (1.0, &[][..]) };
        let (mut completions, mut service, mut best) = (0.0, 0.0, 0.0f64);
        for (here, (probability, mean_service)) in (0..).zip(levels).skip(level as usize) {
            let (start, end) = (level_start(here), level_start(here + 1));
            completions += weight * probability;
            completions += learned.iter().filter(|&&size| start < size && size <= end).count() as f64;
            service += weight * mean_service;
            service += learned.iter().map(|size| size.clamp(start, end) - start).sum::<f64>();
            best = best.max(completions / service);
        }
        best
    }
}

impl ReferenceSimulator<'_> {
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
        let mut indices: Vec<f64> = Vec::new();
        for attained in &self.gittins.attained {
            indices.push(index.index_at_level(attained.level, &self.gittins.sizes));
        }
        // The sort is stable: active coflows are in order of release.
        order.sort_by(|&a, &b| indices[b].total_cmp(&indices[a]));
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
        let seconds = self.attained_seconds(c);
        let now = self.now;
        let has_moved = std::mem::take(&mut self.coflows[c].has_moved);
        let attained = &mut self.gittins.attained[c];
        attained.bound += attained.growth * (now - attained.bound_at);
        attained.bound_at = now;
        if !has_moved && attained.bound < level_start(attained.level + 1) * (1.0 - LEVEL_TOLERANCE) {
            return;
        }
        attained.seconds = attained.seconds.max(seconds);
        attained.bound = attained.seconds;
        while attained.seconds >= level_start(attained.level + 1) * (1.0 - LEVEL_TOLERANCE) {
            attained.level += 1;
        }
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
        let mut next = f64::INFINITY;
        for attained in self.gittins.attained.iter().filter(|attained| attained.growth > 0.0) {
            let level = level_start(attained.level + 1);
            let seconds = (level - attained.bound) / attained.growth;
            next = next.min(seconds.max(MIN_WAIT * level));
        }
        self.now + next.max(MIN_WAKEUP_SECONDS)
    }
}

pub(super) fn any_variants() -> impl Strategy<Value = Vec<Variant>> {
    let prior = prop::sample::select(vec![0.1, 3.0, 100.0, f64::INFINITY]);
    (0.05f64..4.0, 0.3f64..3.0, prior, prop::bool::weighted(0.25)).prop_map(
        |(median, sigma, prior, is_las)| {
            if is_las {
                return vec![("gittins:index=las".to_owned(), Policy::Gittins(GittinsIndex::LeastAttained))];
            }
            let name = format!("gittins:median={median}s:sigma={sigma}:prior={prior}");
            let index = GittinsIndex::with_lognormal(LogNormal { median, sigma }, prior);
            vec![(name, Policy::Gittins(index))]
        },
    )
}
