//! Philae (crates/core/src/policy/philae.rs): pilot flows estimate the sizes of coflows, and the shortest coflow goes first.

use super::{FlowPhase, Policy, RATE_TOLERANCE, ReferenceSimulator, TOLERANCE, Variant};
use proptest::prelude::*;

#[derive(Debug, Clone)]
pub(super) struct PhilaeParameters {
    pilot_share: f64,
    /// The maximum number of flows of a coflow that is not sampled.
    thin: usize,
    by_contention: bool,
}

/// The pilots of a coflow, and its sample.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples {
    /// Positions of pilots that have not completed, in the order of choice.
    pilots: Vec<usize>,
    /// Sizes of pilots that have completed.
    sizes: Vec<f64>,
    is_sampled: bool,
}

/// What a coflow is served as. Coflows of a kind go before those of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Thin,
    Sampling,
    Sampled,
}

impl ReferenceSimulator<'_> {
    pub(super) fn schedule_philae(&mut self, philae: &PhilaeParameters, left: &mut [f64]) {
        self.philae.resize(self.coflows.len(), Samples::default());
        for c in 0..self.coflows.len() {
            if std::mem::take(&mut self.coflows[c].has_moved) {
                self.sample_completed_flows(c);
            } else {
                self.record_samples(c);
            }
        }
        let mut active = self.active();
        active.retain(|&c| self.coflows[c].live_flows().count() > 0);
        let mut order: Vec<(Kind, f64, usize)> = Vec::new();
        for c in active {
            let kind = match self.coflows[c].flows.len() <= philae.thin {
                true => Kind::Thin,
                false if self.philae[c].is_sampled => Kind::Sampled,
                false => Kind::Sampling,
            };
            if kind == Kind::Sampling {
                self.choose_pilots(c, philae.pilot_share);
            }
            let key = if kind == Kind::Sampled { self.length(c, philae.by_contention) } else { 0.0 };
            order.push((kind, key, c));
        }
        // The sort is stable: active coflows are in order of release.
        order.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let is_tie = |a: f64, b: f64| b > 0.0 && b - a < RATE_TOLERANCE;
        self.has_ties |= order.windows(2).any(|two| two[0].0 == two[1].0 && is_tie(two[0].1, two[1].1));
        for &(kind, _, c) in &order {
            if kind == Kind::Sampling {
                self.serve_pilots(c, left);
            } else {
                self.assign_equal_rates(c, left);
            }
        }
        order.iter().for_each(|&(.., c)| self.backfill(c, left));
    }

    /// Moves pilots that have completed to the sample. Pilots whose data was lost are no longer pilots.
    fn record_samples(&mut self, c: usize) {
        let (flows, samples) = (&self.coflows[c].flows, &mut self.philae[c]);
        let completed = |&f: &usize| flows[f].phase == FlowPhase::Completed;
        let count = samples.sizes.len();
        samples.sizes.extend(samples.pilots.iter().copied().filter(completed).map(|f| flows[f].size));
        samples.pilots.retain(|f| !completed(f));
        samples.is_sampled |= samples.sizes.len() > count && samples.pilots.is_empty();
        samples.pilots.retain(|&f| flows[f].phase == FlowPhase::Live);
    }

    /// The flows of a coflow have other paths: the completed flows are the sample, and there are no pilots.
    fn sample_completed_flows(&mut self, c: usize) {
        let completed = self.coflows[c].flows.iter().filter(|flow| flow.phase == FlowPhase::Completed);
        let sizes: Vec<f64> = completed.map(|flow| flow.size).filter(|&size| size > 0.0).collect();
        self.philae[c] = Samples { is_sampled: !sizes.is_empty(), sizes, pilots: Vec::new() };
    }

    /// Adds pilots until the share of flows is reached: the live flow whose sender, and then whose receiver, has the fewest
    /// pilots of all coflows.
    fn choose_pilots(&mut self, c: usize, share: f64) {
        let flows = &self.coflows[c].flows;
        let needed = (share * flows.len() as f64).ceil() as usize;
        while self.philae[c].sizes.len() + self.philae[c].pilots.len() < needed {
            let pilots_at = |link: usize| {
                let all = self.philae.iter().zip(&self.coflows);
                let all = all.flat_map(|(samples, coflow)| samples.pilots.iter().map(|&f| &coflow.flows[f]));
                all.filter(|flow| flow.src == link || flow.dst == link).count()
            };
            let others = (0..flows.len()).filter(|f| !self.philae[c].pilots.contains(f));
            let live = others.filter(|&f| flows[f].phase == FlowPhase::Live);
            let Some(pilot) = live.min_by_key(|&f| (pilots_at(flows[f].src), pilots_at(flows[f].dst))) else {
                return;
            };
            self.philae[c].pilots.push(pilot);
        }
    }

    /// The estimated remaining bytes, times the number of coflows that share a link.
    fn length(&self, c: usize, by_contention: bool) -> f64 {
        let (coflow, sizes) = (&self.coflows[c], &self.philae[c].sizes);
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        let sent: f64 = coflow.flows.iter().map(|flow| flow.sent_bytes).sum();
        let remaining = (mean * coflow.flows.len() as f64 - sent).max(0.0);
        let others = || self.active().into_iter().filter(|&other| other != c && self.contend(c, other));
        if by_contention { remaining * others().count() as f64 } else { remaining }
    }

    /// Gives each pilot the residual capacity of its links.
    fn serve_pilots(&mut self, c: usize, left: &mut [f64]) {
        for &f in &self.philae[c].pilots {
            let flow = &mut self.coflows[c].flows[f];
            let rate = flow.links().map(|link| left[link]).fold(f64::INFINITY, f64::min);
            if rate > TOLERANCE {
                flow.take_rate(rate, left);
            }
        }
    }
}

pub(super) fn any_variants() -> impl Strategy<Value = Vec<Variant>> {
    let share = prop::sample::select(vec![0.01, 0.3, 0.5, 1.0]);
    (share, 0..4usize, prop::bool::weighted(0.75)).prop_map(|(pilot_share, thin, by_contention)| {
        let order = if by_contention { "contention" } else { "size" };
        let name = format!("philae:pilots={pilot_share}:thin={thin}:order={order}");
        vec![(name, Policy::Philae(PhilaeParameters { pilot_share, thin, by_contention }))]
    })
}
