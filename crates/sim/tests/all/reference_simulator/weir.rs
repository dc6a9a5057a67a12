//! Weir (crates/core/src/policy/weir.rs): shortest estimated remaining time first, with sizes of flows estimated from completed ones.

use std::collections::BTreeMap;

use super::gittins::{self, Record};
use super::max_min::share_max_min;
use super::{FlowPhase, Policy, RATE_TOLERANCE, ReferenceSimulator, TOLERANCE, Variant};
use proptest::prelude::*;

/// The size of a flow of which nothing is known: the bytes of 10^4 seconds.
pub(super) const DEFAULT_ESTIMATE: f64 = 1e4;

/// A turn takes the time of 2.5 MB, or four intervals.
const TURN_BYTES: f64 = 2.5e6 / gittins::BYTE_SCALE;
const TURN_INTERVALS: f64 = 4.0;

/// A flow has sent its estimate if this part remains.
const OUTGROWN_PART: f64 = 1e-6;

/// The weights of the prior of all coflows, and of the prior of a class of widths, in coflows.
const PRIOR_WEIGHT: f64 = 1.0;
const WIDTH_WEIGHT: f64 = 4.0;

#[derive(Debug, Clone)]
pub(super) struct WeirParameters {
    /// The fraction of the time in turns.
    turns: f64,
    sizes: Sizes,
}

#[derive(Debug, Clone)]
enum Sizes {
    Known,
    Estimated { prior: bool },
}

/// The sizes of a coflow by those of earlier coflows.
#[derive(Debug, Clone, Copy)]
struct Prior {
    mean: f64,
    variance: f64,
    max_size: f64,
}

/// What completed coflows say about the next one, in natural logarithms of bytes.
#[derive(Debug, Clone, Copy)]
struct Learned {
    count: f64,
    log_mean: f64,
    error: f64,
    variance: f64,
}

#[derive(Debug, Clone, Default)]
struct CoflowState {
    is_released: bool,
    is_learned: bool,
    prior: Option<Prior>,
    /// By receiver: the mean size of flows, and their relative variance; at the last refresh.
    models: BTreeMap<usize, (f64, f64)>,
    /// Number of completed flows, and of their receivers, at the last refresh.
    refreshed: (usize, usize),
    needs_estimates: bool,
    attained_seconds: f64,
    level: i32,
    /// Known coflows: estimated time of the bottleneck.
    known_seconds: f64,
    /// Bounds of the growth of attained service, in seconds a second.
    growth: f64,
    /// The first schedule that gave it rates.
    first_rates: Option<usize>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct WeirState {
    coflows: Vec<CoflowState>,
    schedules: usize,
    /// By class of widths, at the last update.
    indices: Vec<Vec<f64>>,
    has_new_sizes: bool,
    learned: Option<Learned>,
    /// Number of coflows in the last order.
    ordered: usize,
}

/// Completed flows of a coflow, as described by the mean over receivers, the relative variance inside receivers, and the
/// variance between receivers.
struct Summary {
    by_receiver: BTreeMap<usize, Vec<f64>>,
    mean: f64,
    within: f64,
    between: f64,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl Summary {
    fn new(by_receiver: BTreeMap<usize, Vec<f64>>) -> Summary {
        let means: Vec<f64> = by_receiver.values().map(|sizes| mean(sizes)).collect();
        let all = mean(&means);
        let degrees: usize = by_receiver.values().map(|sizes| sizes.len() - 1).sum();
        let squares =
            |sizes: &[f64]| -> f64 { sizes.iter().map(|size| (size / mean(sizes) - 1.0).powi(2)).sum() };
        let within = match degrees {
            0 => 0.0,
            _ => by_receiver.values().map(|sizes| squares(sizes)).sum::<f64>() / degrees as f64,
        };
        let count = means.len() as f64;
        let between = if means.len() < 2 {
            0.0
        } else {
            let observed = means.iter().map(|mean| (mean - all).powi(2)).sum::<f64>() / (count - 1.0);
            let noise =
                by_receiver.values().map(|sizes| within * all * all / sizes.len() as f64).sum::<f64>();
            (observed - noise / count).max(0.0)
        };
        Summary { by_receiver, mean: all, within, between }
    }

    /// The mean size of flows to a receiver, and their relative variance.
    fn model(&self, receiver: usize) -> (f64, f64) {
        let Some(sizes) = self.by_receiver.get(&receiver) else {
            return (self.mean, self.relative_variance());
        };
        let noise = self.within * self.mean * self.mean / sizes.len() as f64;
        let weight = if noise == 0.0 { 1.0 } else { self.between / (self.between + noise) };
        (weight * mean(sizes) + (1.0 - weight) * self.mean, self.within)
    }

    fn relative_variance(&self) -> f64 {
        self.within + self.between / (self.mean * self.mean)
    }
}

/// The probability that a standard normal variable exceeds `x`, by Simpson's rule.
fn upper_tail(x: f64) -> f64 {
    if x < 0.0 {
        return 1.0 - upper_tail(-x);
    }
    const STEPS: usize = 4000;
    // Beyond 12, the density counts for nothing.
    let width = 12.0 / STEPS as f64;
    let density = |step: usize| (-(x + width * step as f64).powi(2) / 2.0).exp();
    let weight = |step: usize| if step == 0 || step == STEPS { 1.0 } else { 2.0 + 2.0 * (step % 2) as f64 };
    let sum: f64 = (0..=STEPS).map(|step| weight(step) * density(step)).sum();
    sum * width / 3.0 / (2.0 * std::f64::consts::PI).sqrt()
}

/// The expected size of a flow that has sent `sent`, of lognormal sizes.
fn expected_size((mean, variance): (f64, f64), sent: f64) -> f64 {
    let mut size = mean;
    if sent > 0.0 && variance > 0.0 {
        let log_variance = variance.ln_1p();
        let distance = ((sent / mean).ln() + log_variance / 2.0) / log_variance.sqrt();
        let survival = upper_tail(distance);
        if survival > 1e-9 {
            size = mean * upper_tail(distance - log_variance.sqrt()) / survival;
        }
    }
    if sent > mean {
        size = size.max(2.0 * sent - mean);
    }
    if sent < 0.98 * size { size } else { 1.1 * sent }
}

impl Learned {
    fn add(former: Option<Learned>, sizes: &Summary) -> Learned {
        let (log_mean, variance) = (sizes.mean.ln(), sizes.relative_variance());
        let Some(former) = former else { return Learned { count: 1.0, log_mean, error: 0.25, variance } };
        let difference = log_mean - former.log_mean;
        let count = former.count + 1.0;
        let rate = f64::max(0.2, 1.0 / count);
        let error = former.error + rate * ((difference * difference).min(4.0) - former.error);
        if difference.abs() > 3.0 * former.error.max(0.01).sqrt() {
            return Learned { count: 1.0, log_mean, error, variance };
        }
        let move_to = |from: f64, to: f64| from + rate * (to - from);
        Learned {
            count,
            log_mean: move_to(former.log_mean, log_mean),
            error,
            variance: move_to(former.variance, variance),
        }
    }

    fn prior(self) -> Option<Prior> {
        let log_variance = self.error.max(0.01) + self.variance.ln_1p();
        let mean = self.log_mean.exp();
        let max_size = mean * (3.0 * log_variance.sqrt()).exp();
        (self.error <= 1.0).then_some(Prior { mean, variance: log_variance.exp_m1(), max_size })
    }
}

/// The class of a width: 1, 2 to 3, 4 to 15, 16 to 63, 64 to 255, and more.
fn width_class(width: usize) -> usize {
    [2, 4, 16, 64, 256].iter().filter(|&&first| width >= first).count()
}

impl WeirState {
    pub(super) fn new(coflows: usize) -> WeirState {
        WeirState { coflows: vec![CoflowState::default(); coflows], ..WeirState::default() }
    }
}

impl WeirParameters {
    pub(super) fn has_turns(&self) -> bool {
        self.turns > 0.0
    }

    pub(super) fn knows_sizes(&self) -> bool {
        matches!(self.sizes, Sizes::Known)
    }
}

impl ReferenceSimulator<'_> {
    /// The time from one turn to the next.
    fn turn_period(&self, weir: &WeirParameters) -> f64 {
        TURN_BYTES.max(TURN_INTERVALS * self.clock.interval) / weir.turns
    }

    fn is_turn(&self, weir: &WeirParameters) -> bool {
        let periods = (self.now + RATE_TOLERANCE) / self.turn_period(weir);
        weir.turns > 0.0 && periods.fract() < weir.turns
    }

    pub(super) fn schedule_weir(&mut self, weir: &WeirParameters, left: &mut [f64]) {
        self.weir.coflows.iter_mut().for_each(|state| state.growth = 0.0);
        self.weir.schedules += 1;
        match weir.sizes {
            Sizes::Known => {
                if self.flows_changed || self.links_changed {
                    self.order = self.order_by_bottlenecks();
                }
            }
            Sizes::Estimated { .. } => self.update_estimates(),
        }
        let mut order = self.active();
        order.retain(|&c| self.coflows[c].live_flows().count() > 0);
        self.weir.ordered = order.len();
        if !self.is_turn(weir) {
            match weir.sizes {
                Sizes::Known => order.sort_by_key(|&c| self.order.iter().position(|&other| other == c)),
                Sizes::Estimated { .. } => self.sort_by_expected_time(&mut order),
            }
            for &c in &order {
                self.assign_madd(c, 0.0, left);
            }
        }
        order.iter().for_each(|&c| self.backfill(c, left));
        for c in order {
            self.weir.coflows[c].growth = self.max_weir_growth(c);
        }
    }

    /// Records which coflows have rates. Coflows that had rates in an earlier schedule are no longer fresh.
    pub(super) fn record_rates(&mut self) {
        for (state, coflow) in self.weir.coflows.iter_mut().zip(&mut self.coflows) {
            let has_rates = coflow.live_flows().any(|flow| flow.rate > 0.0);
            if has_rates && state.first_rates.is_none() {
                state.first_rates = Some(self.weir.schedules);
            }
            coflow.flows.iter_mut().for_each(|flow| flow.scheduled_rate = flow.rate);
        }
    }

    /// Whether hosts serve the flows of a coflow between two schedules.
    pub(super) fn is_fresh(&self, c: usize) -> bool {
        let first = self.weir.coflows.get(c).and_then(|state| state.first_rates);
        self.clock.hosts_serve() && first.is_none_or(|first| first == self.weir.schedules)
    }

    /// Between two schedules, flows of fresh coflows without rates share the capacity that scheduled flows leave, as under TCP.
    pub(super) fn serve_as_hosts(&mut self) {
        let mut left = self.links.clone();
        for flow in self.coflows.iter_mut().flat_map(|c| &mut c.flows) {
            flow.rate = if flow.phase == FlowPhase::Live { flow.scheduled_rate } else { 0.0 };
            flow.links().for_each(|link| left[link] -= flow.rate);
        }
        left.iter_mut().filter(|left| **left <= TOLERANCE).for_each(|left| *left = 0.0);
        let has_common_rate = |c: usize| self.coflows[c].live_flows().any(|flow| flow.madd_rate > 0.0);
        let served: Vec<bool> =
            (0..self.coflows.len()).map(|c| self.is_fresh(c) && !has_common_rate(c)).collect();
        let coflows = self.coflows.iter_mut().zip(served).filter(|(_, served)| *served);
        let flows = coflows.flat_map(|(coflow, _)| &mut coflow.flows).filter(|flow| {
            flow.phase == FlowPhase::Live && flow.rate == 0.0 && flow.links().all(|link| left[link] > 0.0)
        });
        let offers = flows.map(|flow| (f64::INFINITY, flow)).collect();
        share_max_min(offers, left, 0);
    }

    /// Records released and completed coflows, before capacities change.
    pub(super) fn record_coflows(&mut self) {
        let Policy::Weir(WeirParameters { sizes: Sizes::Estimated { prior: has_prior }, .. }) = self.policy
        else {
            return;
        };
        let mut events: Vec<(f64, bool, usize)> = Vec::new();
        for (c, (state, coflow)) in self.weir.coflows.iter().zip(&self.coflows).enumerate() {
            if coflow.release_number.is_some() && !state.is_released {
                events.push((coflow.arrival, true, c));
            }
            events.extend(coflow.end.filter(|_| !state.is_learned).map(|end| (end, false, c)));
        }
        // Of events at the same time, completions come first.
        events.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, is_release, c) in events {
            if is_release {
                let prior = self.weir.learned.filter(|_| has_prior).and_then(Learned::prior);
                let state = &mut self.weir.coflows[c];
                (state.is_released, state.needs_estimates, state.prior) = (true, true, prior);
            } else {
                self.weir.coflows[c].is_learned = true;
                let summary = self.summarize(c);
                self.weir.has_new_sizes |= !summary.by_receiver.is_empty();
                if has_prior && !summary.by_receiver.is_empty() {
                    self.weir.learned = Some(Learned::add(self.weir.learned, &summary));
                }
                let seconds = self.carried_seconds(c, false);
                self.weir.coflows[c].attained_seconds = seconds;
            }
        }
    }

    /// Steps 1 and 2: estimates, attained service and remaining times.
    fn update_estimates(&mut self) {
        for c in self.active() {
            self.estimate_flows(c);
            if self.is_known(c) {
                self.weir.coflows[c].known_seconds = self.min_completion_seconds(c, &self.links);
            } else {
                let (seconds, first) = (self.carried_seconds(c, true), self.first_level());
                let state = &mut self.weir.coflows[c];
                state.attained_seconds = state.attained_seconds.max(seconds);
                state.level = gittins::raise_level(state.level, state.attained_seconds, first);
            }
        }
    }

    fn is_known(&self, c: usize) -> bool {
        let is_sample = |flow: &super::Flow| flow.phase == FlowPhase::Completed && flow.size > 0.0;
        self.weir.coflows[c].prior.is_some() || self.coflows[c].flows.iter().any(is_sample)
    }

    /// The completed flows of a coflow.
    fn summarize(&self, c: usize) -> Summary {
        let mut by_receiver: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for flow in self.coflows[c].flows.iter().filter(|flow| flow.size > 0.0) {
            if flow.phase == FlowPhase::Completed {
                by_receiver.entry(flow.dst).or_default().push(flow.size);
            }
        }
        Summary::new(by_receiver)
    }

    /// The time that the most loaded link takes for the bytes of all flows, or of live flows, at the present capacity.
    fn carried_seconds(&self, c: usize, live: bool) -> f64 {
        let seconds = |link: usize| {
            let flows = self.coflows[c].flows.iter().filter(|flow| flow.links().any(|other| other == link));
            let flows = flows.filter(|flow| !live || flow.phase == FlowPhase::Live);
            flows.map(|flow| flow.sent_bytes).sum::<f64>() / self.links[link]
        };
        (0..self.links.len()).map(seconds).filter(|seconds| seconds.is_finite()).fold(0.0, f64::max)
    }

    /// Step 1. Estimates of all flows are refreshed if there are new flows or completions. Those of the other flows only once the flow
    /// has sent its estimate.
    fn estimate_flows(&mut self, c: usize) {
        let summary = self.summarize(c);
        let (coflow, state) = (&mut self.coflows[c], &mut self.weir.coflows[c]);
        let has_new_flow = std::mem::take(&mut coflow.has_new_flow);
        let has_moved = std::mem::take(&mut coflow.has_moved);
        if has_moved {
            (state.models, state.refreshed) = Default::default();
            state.needs_estimates = true;
        }
        let receivers = summary.by_receiver.len();
        let completed: usize = summary.by_receiver.values().map(Vec::len).sum();
        let mut all = std::mem::take(&mut state.needs_estimates) || has_new_flow;
        if completed > 0 {
            state.prior = None;
            let has_grown = completed as f64 > 1.05 * state.refreshed.0 as f64;
            if all || has_grown || receivers > state.refreshed.1 {
                state.refreshed = (completed, receivers);
                for receiver in coflow.flows.iter().map(|flow| flow.dst) {
                    let new = summary.model(receiver);
                    let old = state.models.entry(receiver).or_default();
                    // Smaller changes are rounding.
                    if (new.0 - old.0).abs() > 1e-6 * new.0 || (new.1 - old.1).abs() > 1e-6 {
                        (*old, all) = (new, true);
                    }
                }
            }
        }
        let mut max_sent = 0.0f64;
        let model = |state: &CoflowState, receiver: usize| match state.prior {
            Some(prior) => (prior.mean, prior.variance),
            None if completed > 0 => state.models[&receiver],
            None => (DEFAULT_ESTIMATE, 0.0),
        };
        let live = |coflow: &mut super::Coflow| -> Vec<usize> {
            (0..coflow.flows.len()).filter(|&f| coflow.flows[f].phase == FlowPhase::Live).collect()
        };
        for f in live(coflow) {
            let flow = &mut coflow.flows[f];
            if all || flow.sent_bytes >= flow.expected_size * (1.0 - OUTGROWN_PART) {
                flow.expected_size = expected_size(model(state, flow.dst), flow.sent_bytes);
                max_sent = max_sent.max(flow.sent_bytes);
            }
        }
        if state.prior.is_some_and(|prior| max_sent > prior.max_size) {
            state.prior = None;
            for f in live(coflow) {
                let flow = &mut coflow.flows[f];
                flow.expected_size = expected_size(model(state, flow.dst), flow.sent_bytes);
            }
        }
    }

    /// Sorts coflows by their estimated time, or by their expected service for a completion.
    fn sort_by_expected_time(&mut self, order: &mut [usize]) {
        self.update_indices();
        let key = |c: usize| {
            let state = &self.weir.coflows[c];
            match self.is_known(c) {
                true => state.known_seconds,
                false => {
                    let class = width_class(self.coflows[c].flows.len());
                    1.0 / self.weir.indices[class][state.level as usize]
                }
            }
        };
        // The sort is stable: active coflows are in order of release.
        order.sort_by(|&a, &b| key(a).total_cmp(&key(b)));
        let is_tie = |pair: &[usize]| {
            let (a, b) = (key(pair[0]), key(pair[1]));
            a != b && b - a < RATE_TOLERANCE * b
        };
        self.has_ties |= order.windows(2).any(is_tie);
    }

    /// Computes the indices of all classes, if coflows have completed since the last time.
    fn update_indices(&mut self) {
        if !self.weir.indices.is_empty() && !self.weir.has_new_sizes {
            return;
        }
        let first = self.first_level();
        let is_first = self.weir.indices.is_empty() && !self.weir.has_new_sizes;
        self.weir.has_new_sizes = false;
        let records = |class: Option<usize>| -> Vec<Record> {
            let coflows = self.weir.coflows.iter().zip(&self.coflows).filter(|(state, coflow)| {
                let has_bytes = coflow.flows.iter().any(|flow| flow.size > 0.0);
                let width = width_class(coflow.flows.len());
                !is_first && state.is_released && has_bytes && class.is_none_or(|class| class == width)
            });
            let size = |state: &CoflowState| state.is_learned.then_some(state.attained_seconds);
            coflows.map(|(state, _)| Record { passed: state.level, size: size(state) }).collect()
        };
        let all = gittins::outcomes(&records(None), PRIOR_WEIGHT, &gittins::prior_outcomes(first), first);
        let of_class = |class| gittins::outcomes(&records(Some(class)), WIDTH_WEIGHT, &all, first);
        self.weir.indices = (0..6).map(|class| gittins::indices(&of_class(class))).collect();
    }

    /// How fast the attained service of a coflow can grow if all rates that are not MADD's cross the same link.
    fn max_weir_growth(&self, c: usize) -> f64 {
        let coflow = &self.coflows[c];
        let rates: f64 = coflow.live_flows().map(|flow| flow.rate - flow.madd_rate).sum();
        let live = || coflow.live_flows().flat_map(super::Flow::links).filter(|&link| self.links[link] > 0.0);
        let madd = |link: usize| {
            let flows = coflow.live_flows().filter(|flow| flow.links().any(|other| other == link));
            flows.map(|flow| flow.madd_rate).sum::<f64>() / self.links[link]
        };
        let lowest = live().map(|link| self.links[link]).fold(f64::INFINITY, f64::min);
        // A sum of rates that are equal but for rounding is no rate.
        let own = if rates > TOLERANCE { rates / lowest } else { 0.0 };
        (live().map(madd).fold(0.0, f64::max) + own).min(1.0)
    }

    /// The next level or outgrown estimate, or the next start or end of a turn.
    pub(super) fn next_weir_wakeup(&self, weir: &WeirParameters) -> f64 {
        let mut next = f64::INFINITY;
        if weir.turns > 0.0 && self.weir.ordered > 1 {
            let period = self.turn_period(weir);
            let phase = if self.is_turn(weir) { weir.turns } else { 1.0 };
            next = next.min((((self.now + RATE_TOLERANCE) / period).floor() + phase) * period);
        }
        if !weir.knows_sizes() {
            for c in self.active() {
                next = next.min(self.now + self.time_to_other_order(c));
            }
        }
        next.max(self.now + gittins::MIN_WAKEUP_SECONDS)
    }

    /// The time until a coflow can reach its next level, or one of its flows has sent its estimate.
    fn time_to_other_order(&self, c: usize) -> f64 {
        let state = &self.weir.coflows[c];
        if self.is_known(c) {
            let sending = self.coflows[c].live_flows().filter(|flow| flow.rate > 0.0);
            return sending.map(|flow| flow.remaining() / flow.rate).fold(f64::INFINITY, f64::min);
        }
        let level = gittins::level_start(state.level + 1, self.first_level());
        let seconds = (level - state.attained_seconds) / state.growth;
        if state.growth > 0.0 { seconds.max(gittins::MIN_WAIT * level) } else { f64::INFINITY }
    }
}

/// With known sizes. Turns rarely start or end at a multiple of the interval, where rounding decides.
pub(super) fn any_known_variants() -> impl Strategy<Value = Vec<Variant>> {
    prop::sample::select(vec![0.0, 0.01, 0.2914]).prop_map(|turns| {
        let parameters = WeirParameters { turns, sizes: Sizes::Known };
        vec![(format!("weir:sizes=known:turns={turns}"), Policy::Weir(parameters))]
    })
}

/// Without pilots, which coflows of fewer than 10 flows do not have.
pub(super) fn any_estimated_variants() -> impl Strategy<Value = Vec<Variant>> {
    let turns = prop::sample::select(vec![0.0, 0.01, 0.2914]);
    (turns, any::<bool>()).prop_map(|(turns, prior)| {
        let switch = if prior { "on" } else { "off" };
        let parameters = WeirParameters { turns, sizes: Sizes::Estimated { prior } };
        vec![(format!("weir:turns={turns}:prior={switch}"), Policy::Weir(parameters))]
    })
}
