//! Weir's own policy: shortest estimated remaining time first, with sizes estimated by pilot flows.
//!
//! # Problem
//!
//! Varys and Sincronia order coflows by their remaining bytes, and are close to the best possible mean. Operators rarely know sizes.
//! Policies that do not know sizes (Aalo, Saath) order coflows by the bytes sent. A coflow then has to send much before the policy
//! can tell that the coflow is large, and a coflow that is almost complete has the lowest priority.
//!
//! # Idea
//!
//! Flows of one coflow have similar sizes, most of all flows to one receiver: a reducer reads a similar part of the output of each
//! mapper. The first completed flows therefore estimate the sizes of the others. Flows that complete early for that purpose are
//! *pilots*, as in Philae (Jajoo et al., "A Case for Sampling Based Learning Techniques in Coflow Scheduling", ToN '23). In contrast to
//! Philae, a coflow starts without pilots, each receiver has its own pilots, and estimates follow every completion.
//!
//! A coflow of one or two flows learns nothing from its own flows. So until its first flow completes, the sizes of *earlier* coflows
//! tell how much longer it probably takes.
//!
//! # Algorithm
//!
//! A coflow is *known* once a flow with bytes has completed, or by a prior.
//!
//! 1. *Estimate* ([`estimate`]): when the completed flows say something new, or a flow has sent its whole estimate.
//! 2. *Order*: ascending key, in seconds. The key of a known coflow is its estimated Γ: the time that the bottleneck needs for the
//!    estimated remaining bytes. The key of an unknown coflow is the inverse of the Gittins index of its attained service: the service
//!    that a completion is expected to cost, by the sizes of earlier coflows of a similar width ([`sizes`]). Attained service is the
//!    maximum over the coflow's links of the bytes carried, divided by the capacity, and rounded down to a level.
//! 3. *Pilots*: a coflow of at least 10 flows whose time (Γ or attained service) is at least `pilots`, by default twice the median of
//!    earlier coflows, serves one flow to each receiver with at least two live flows and too few completed ones. All pilots of a coflow
//!    have one rate, and then use the residual capacity of their links.
//! 4. *Rates*: MADD on the estimates. Flows of an unknown coflow have one estimate, so MADD sets equal rates.
//! 5. *Backfilling*: residual capacity goes to the coflows in the same order, flow by flow.
//! 6. *Between two schedules*, simulated hosts serve flows of fresh coflows without rates over the capacity that the others leave; see
//!    [`Timing`] and `host_service.rs`. Agents of real hosts do not do so yet: their flows wait for the next schedule.
//!
//! Times follow from the network. The first level of attained service is an interval δ long, but at least the time of 16 kB on the
//! fastest link: about what TCP sends at once. Each later level ends at 1.25 times its start.
//!
//! # Starvation
//!
//! Under steps 1 to 6 alone, small coflows that continue to arrive can delay a large coflow without limit. So a fraction φ (`turns`) of
//! each period P is a *turn* in which coflows are served in the order of release, flow by flow, each flow with the residual capacity of
//! its links. A turn takes 4 δ, but at least the time of 2.5 MB on the fastest link. With 8 ms, P is 3.2 s; with δ = 0, it is 2 s at
//! 1 Gbit/s and 20 ms at 100 Gbit/s.
//!
//! Let W(l) be the bytes that remain on link l, when coflow c is released, of c and of the coflows that were released before c; let C(l)
//! be the capacity of l. Then every flow f of c completes, after its data exists, within
//!
//! ```text
//! T = (sum over the links l of f of W(l) / C(l)) / φ + P                        for δ = 0
//! T = (sum over the links l of f of W(l) / C(l) + (n + 1) δ) / (3/4 φ) + P      for δ > 0
//! ```
//!
//! where n is the number of flows of c and of earlier coflows that cross a link of f and complete while f is live.
//!
//! *Proof.* *Turn time* is the time in which the rates of a turn's schedule apply. At such a schedule, the policy reaches f after flows of
//! c and of earlier coflows only. It gives f the residual capacity of its links. Therefore, one of the links of a live f is full of bytes
//! of c or of earlier coflows, until one of their flows on this link completes. Link l is full of such bytes for at most W(l) / C(l)
//! seconds, since W(l) does not grow. With δ = 0, a schedule follows each completion at once, so f is live for at most the sum of these
//! times in turn time, and each period contains φ P of turn time. The rest of a period adds at most P. While no other coflow has live
//! flows, no turn starts, but backfilling fills a link of f too.
//!
//! With δ > 0, a schedule follows a completion at the next multiple of δ. Until then, the link may be partly idle, so each of the n
//! completions costs at most δ of turn time. Until the first schedule after its data exists, f may have no rate; this costs at most δ
//! more. A turn starts at a multiple of δ, up to δ late. A turn takes at least 4 δ, so each period contains at least 3/4 φ P of turn
//! time. ∎
//!
//! The bound does not depend on coflows that are released after c. It does not cover flows whose data, path or capacity disappears.
//!
//! Turns cost time: `docs/results/weir.md` compares values of `turns`. For a trace, run
//! `weir compare TRACE --policies weir:turns=0,weir:turns=0.01,weir:turns=0.02,weir:turns=0.05`.
//!
//! # Choices
//!
//! The constants of the estimates come from a prototype, whose traces included the public one. The others were set on generated
//! workloads of other seeds than those of the evaluation, and a look at the public trace. `docs/results/weir.md` has the mean times
//! with half and double of each constant.
//!
//! - *Attained service by link*, not by flow or in total: attained service times the number of ports was worse.
//! - *Index of earlier coflows*: least attained service alone was worse for single flows, and lets a new training step interrupt one
//!   that is almost complete.
//! - *Width*: one distribution for all coflows was worse for mixtures of single flows, training jobs and shuffles.
//! - *Pilots of wide coflows only*: pilots of coflows of few flows delay more than they tell (`pilot_flows`).
//! - *One rate for all pilots*: pilots that complete one after the other each leave a part of a scheduling interval unused.
//! - *Number of completed flows that a receiver needs*: 1 before the first estimate. If the relative variance inside receivers is above
//!   0.01, the variance / 0.04, rounded down, at most 10 and at most a third of the flows, but at least 1. If the variance is lower,
//!   2 while it has fewer than eight degrees of freedom, and then 1.
//! - *Choice of the pilot*: the pilot of the last schedule if its links have residual capacity; otherwise a flow whose sender has the
//!   fewest pilots, and of these the flow that has sent most. Without the first criterion, all receivers choose one sender.
//! - *Refresh*: estimates of all flows are computed when a receiver has its first completed flow, and when the number of completed flows
//!   has grown by 5 %. With a lower growth, estimates are better if sizes are skewed, and schedules take longer.
//! - *Turns of 4 δ*: schedules shorten turns by up to δ, so shorter turns have a worse bound.
//! - *Ties* go to the coflow that was released first.
//! - *Priors* (`prior=on`, off by default): a coflow is known from its release on, by the sizes of earlier coflows of its application,
//!   until a flow completes or contradicts them; see [`prior`]. The proof of the bound holds, since turns do not depend on estimates.
//! - *Known sizes* (`sizes=known`) replace the estimates, for comparison; see [`known`].
//!
//! # Limits
//!
//! - A narrow coflow has few flows to learn from. The first coflows of all are in the order of least attained service: training jobs that
//!   start with Weir can interrupt each other for some steps.
//! - Sizes that are skewed inside receivers make estimates worse ("Skewed sizes" in `docs/results/weir.md`). A few schedules, which
//!   estimate all flows of a large coflow, then take far longer than the others.
//! - Flows that are long outliers of their receiver delay their coflow, as the estimate of Γ is then too low.
//! - Waves of flows, of which the first have other sizes than the later ones, mislead the estimate.
//! - Bytes count with the capacities that links have at each update, not with those at which they were sent. Attained service never
//!   decreases, so a port that was slow for a while raises it for good.

mod constants;
mod estimate;
mod known;
mod pilots;
mod prior;
mod sizes;
mod turns;

use super::attained_service::{AttainedService, CarriedBytes, Levels};
use super::coflow_order::{SortedCoflows, assign_madd_or_backfill};
use super::interface::MIN_WAKEUP_SECONDS;
use super::{Event, Params, ParamsError, Policy, Reaction, Timing};
use crate::allocation::{Allocation, CommonRate, OrderCriterion};
use crate::model::{CoflowKey, SizesEstimated, Slot, View};
use crate::solve::ResidualCapacity;
pub use constants::Constants;
use estimate::{ReceiverEstimates, Samples, expected_size};
pub(super) use known::WeirKnown;
use pilots::{PilotTime, Pilots, required_samples};
use prior::{Prior, Priors};
use sizes::Sizes;
use turns::{Turns, serve_turn, take_turn_fraction};

/// State of one coflow.
#[derive(Debug, Default)]
struct CoflowState {
    width: usize,
    /// Whether its flows are about to be replaced.
    is_replaced: bool,
    samples: Samples,
    estimates: ReceiverEstimates,
    /// Sizes by earlier coflows of the application. None once a flow with bytes has completed, or has contradicted them.
    prior: Option<Prior>,
    pilots: Pilots,
    /// Whether the flows or their sizes changed since the last estimate.
    is_changed: bool,
    /// Whether a flow has become live since the last refresh. Its estimate may be the default, or below the bytes that it has sent.
    has_new_flow: bool,
    /// Whether a receiver has had its first completed flow since the last refresh.
    has_new_receiver: bool,
    /// Number of completed flows at the last refresh.
    refreshed_count: u32,
    /// Whether flows had rates since the last schedule.
    was_served: bool,
    /// Known coflows: estimated Γ, in seconds.
    known_seconds: f64,
    /// Other coflows.
    attained: AttainedService,
}

impl CoflowState {
    /// The state of a coflow that is released, or whose flows were replaced. O(flows) if flows have completed.
    fn new(
        slot: Slot,
        attained: AttainedService,
        prior: Option<Prior>,
        view: &View<'_, SizesEstimated>,
    ) -> CoflowState {
        let coflow = view.coflow(slot);
        let mut state = CoflowState {
            width: coflow.width(),
            is_changed: true,
            has_new_receiver: prior.is_some(),
            samples: Samples::new(coflow.receivers().len()),
            prior,
            attained,
            ..CoflowState::default()
        };
        if coflow.completed_count() > 0 {
            for flow in coflow.completed_flows() {
                state.add_completed(coflow.receiver_index(flow), view.sent_bytes(slot, flow));
            }
        }
        state
    }

    /// Whether sizes are estimated.
    fn is_known(&self) -> bool {
        !self.samples.is_empty() || self.prior.is_some()
    }

    fn key(&self, sizes: &Sizes) -> f64 {
        if self.is_known() { self.known_seconds } else { sizes.key(self.width, self.attained.level()) }
    }

    /// The key as an explanation.
    fn order_criterion(&self, sizes: &Sizes) -> OrderCriterion {
        // A cast of an infinite number gives the maximum.
        let microseconds = |seconds: f64| (seconds * 1e6).round() as u64;
        let needed_us = microseconds(self.key(sizes));
        if self.is_known() {
            let completed_flows = if self.prior.is_some() { 0 } else { self.samples.total() };
            OrderCriterion::EstimatedTime { needed_us, completed_flows }
        } else {
            OrderCriterion::ExpectedTime { needed_us, attained_us: microseconds(self.attained.seconds()) }
        }
    }

    /// The time of step 2, not rounded.
    fn seconds(&self) -> f64 {
        if self.is_known() { self.known_seconds } else { self.attained.seconds() }
    }

    /// Adds a completed flow.
    fn add_completed(&mut self, receiver: usize, size: f64) {
        self.is_changed = true;
        if size > 0.0 {
            self.has_new_receiver |= self.samples.count(receiver) == 0;
            self.prior = None;
        }
        self.samples.add(receiver, size);
    }

    /// Computes the estimates of the receivers, if due. Returns whether flows need other estimates. O(receivers).
    fn refresh(&mut self, growth: f64) -> bool {
        if !self.is_known() {
            return false;
        }
        let count = self.samples.total();
        let has_new_flow = std::mem::take(&mut self.has_new_flow);
        if !has_new_flow {
            let has_grown = f64::from(count) > (1.0 + growth) * f64::from(self.refreshed_count);
            if !self.has_new_receiver && !has_grown {
                return false;
            }
            self.has_new_receiver = false;
        }
        if self.prior.is_some() {
            return true;
        }
        self.refreshed_count = count;
        self.pilots.reset_candidates();
        self.estimates.update(&self.samples) || has_new_flow
    }
}

/// Weir's own policy, without knowledge of sizes.
pub struct Weir {
    constants: Constants,
    pilot_time: PilotTime,
    /// The order of unknown coflows. Empty before the first coflow.
    sizes: Sizes,
    states: Vec<CoflowState>,
    order: SortedCoflows,
    residual: ResidualCapacity,
    pilot_rates: pilots::PilotRates,
    capacity_changed: bool,
    /// By slot: total of the own rates of flows, in bytes per second.
    own_rates: Vec<f64>,
    carried: CarriedBytes,
    /// Sizes of earlier coflows, if they are used.
    priors: Option<Priors>,
    /// By receiver of one coflow: the bytes that the last flow has sent, and its estimated size.
    last_sizes: Vec<(f64, f64)>,
}

impl Weir {
    pub(super) fn from_params(params: &mut Params) -> Result<Weir, ParamsError> {
        let expected = "`median`, or a time such as 300ms";
        let pilot_time = params.take_value("pilots", PilotTime::Median, |_| true, expected)?;
        let constants = Constants { turn_fraction: take_turn_fraction(params)?, ..Constants::default() };
        let priors = params.take_switch("prior", false)?.then(Priors::default);
        Ok(Weir { pilot_time, priors, ..Weir::new(constants) })
    }

    pub(super) fn new(constants: Constants) -> Weir {
        Weir {
            constants,
            pilot_time: PilotTime::Median,
            sizes: Sizes::default(),
            states: Vec::new(),
            order: SortedCoflows::default(),
            residual: ResidualCapacity::default(),
            pilot_rates: pilots::PilotRates::default(),
            capacity_changed: false,
            own_rates: Vec::new(),
            carried: CarriedBytes::default(),
            priors: None,
            last_sizes: Vec::new(),
        }
    }

    /// Step 1. O(live flows of the coflow) if the estimates of all flows change, otherwise O(receivers, and flows that outgrew
    /// their estimates).
    fn estimate_sizes(&mut self, slot: Slot, view: &mut View<'_, SizesEstimated>) {
        let state = &mut self.states[slot as usize];
        let refreshed = state.is_changed && state.refresh(self.constants.refresh_growth);
        if !refreshed && !view.has_outgrown_flows(slot) {
            return;
        }
        state.is_changed = true;
        if !state.is_known() {
            // The attained service no longer follows from the default estimate. The level is hours.
            state.attained.keep_level();
        }
        let max_sent = self.set_sizes(slot, refreshed, view);
        let state = &mut self.states[slot as usize];
        if state.prior.is_some_and(|prior| max_sent > prior.max_size) {
            // The coflow is unknown, and its attained service follows from the default estimate again.
            state.prior = None;
            self.set_sizes(slot, true, view);
        }
    }

    /// Sets the estimated sizes of all live flows, or of those that outgrew their estimates. Returns the maximum number of bytes that
    /// one of these flows has sent.
    fn set_sizes(&mut self, slot: Slot, all: bool, view: &mut View<'_, SizesEstimated>) -> f64 {
        let state = &self.states[slot as usize];
        let coflow = view.coflow(slot);
        let common = match state.prior {
            Some(prior) => Some((prior.mean, prior.relative_variance)),
            None if state.is_known() => None,
            None => Some((coflow.default_estimate, 0.0)),
        };
        // Most flows to a receiver have sent equally much.
        let last_sizes = &mut self.last_sizes;
        last_sizes.clear();
        last_sizes.resize(coflow.receivers().len(), (f64::NAN, 0.0));
        let mut max_sent = 0.0f64;
        let estimate = |_: u32, receiver: u32, sent: f64| {
            let last = &mut last_sizes[receiver as usize];
            if last.0 != sent {
                max_sent = max_sent.max(sent);
                let (mean, variance) =
                    common.unwrap_or_else(|| state.estimates.mean_and_variance(receiver as usize));
                let size = expected_size(mean, variance, sent, &self.constants);
                *last = (sent, size);
            }
            last.1
        };
        if all {
            view.set_estimates(slot, estimate);
        } else {
            view.raise_estimates(slot, estimate);
        }
        max_sent
    }

    /// The times of step 2. O(links of the coflow) if flows may have had rates or changed.
    fn update_seconds(&mut self, slot: Slot, view: &View<'_, SizesEstimated>) {
        let state = &mut self.states[slot as usize];
        let was_served = state.was_served || view.was_served_by_hosts(slot);
        if !was_served && !std::mem::take(&mut state.is_changed) && !self.capacity_changed {
            return;
        }
        if state.is_known() {
            state.known_seconds = view.effective_bottleneck(slot);
        } else {
            let from = state.attained.level();
            state.attained.raise(attained_seconds(slot, view), levels(&self.constants, view));
            self.sizes.add_passed(state.width, from, state.attained.level());
        }
    }

    /// Steps 3 and 4 for one coflow.
    fn assign_rates(&mut self, slot: Slot, view: &View<'_, SizesEstimated>, out: &mut Allocation) {
        let state = &mut self.states[slot as usize];
        let pilot_seconds = match self.pilot_time {
            PilotTime::Median => self.constants.pilot_medians * self.sizes.median_seconds(),
            PilotTime::Fixed(time) => time.get(),
        };
        let is_wide = state.width as f64 >= self.constants.pilot_flows;
        if state.prior.is_none() && is_wide && state.seconds() >= pilot_seconds {
            let Weir { residual, pilot_rates, constants, .. } = self;
            let CoflowState { pilots, samples, estimates, .. } = state;
            let spread = estimates.spread();
            let required = |flows| required_samples(spread, flows, constants);
            pilot_rates.choose(slot, pilots, samples, required, residual, view);
            pilot_rates.assign(slot, residual, view, out);
        }
        assign_madd_or_backfill(slot, &mut self.residual, view, out);
    }
}

/// The levels of attained service.
fn levels(constants: &Constants, view: &View<'_, SizesEstimated>) -> Levels {
    Levels::new(view, constants.first_level_bytes, constants.level_growth)
}

/// The attained service of a coflow without completed flows: the maximum over its links of the time that the bytes which live flows
/// have sent take at full capacity. O(links of the coflow).
fn attained_seconds(slot: Slot, view: &View<'_, SizesEstimated>) -> f64 {
    let (coflow, capacities) = (view.coflow(slot), view.fabric().capacities());
    let live = coflow.links().iter().filter(|load| load.live_flow_count > 0);
    let seconds = live.zip(view.remaining_loads(slot).by_link()).map(|(load, (link, bytes))| {
        (f64::from(load.live_flow_count) * coflow.default_estimate - bytes) / capacities[link]
    });
    seconds.filter(|seconds| seconds.is_finite()).fold(0.0, f64::max)
}

/// How fast the attained service of a coflow can grow at its common rate and `own_rate` bytes per second of its flows in total on top of
/// it, in seconds a second. O(links of the coflow).
fn max_growth(slot: Slot, common: CommonRate, own_rate: f64, view: &View<'_, SizesEstimated>) -> f64 {
    let mut growth = 0.0;
    if own_rate > 0.0 {
        let capacities = view.fabric().capacities();
        let live = view.coflow(slot).links().iter().filter(|load| load.live_flow_count > 0);
        // Flows over a link without capacity have no rate.
        let lowest = live.map(|load| capacities[load.link as usize]).filter(|&capacity| capacity > 0.0);
        growth += own_rate / lowest.fold(f64::INFINITY, f64::min);
    }
    if let CommonRate::CompleteTogether(seconds) = common {
        growth += view.effective_bottleneck(slot) / seconds;
    }
    growth
}

impl Policy for Weir {
    type Knowledge = SizesEstimated;

    fn timing(&self) -> Timing {
        let source = "as in Aalo, hosts do not wait for the coordinator to start a coflow";
        Timing { start: Reaction::AtOnce, ..Timing::central(source) }
    }

    fn uses(&self, key: CoflowKey) -> bool {
        // Applications of equal names are distinguished by service.
        self.priors.is_some() && matches!(key, CoflowKey::Service | CoflowKey::Application)
    }

    fn on_event(&mut self, event: Event, view: &mut View<'_, SizesEstimated>) {
        match event {
            Event::CoflowReleased(slot) => {
                let levels = levels(&self.constants, view);
                if self.sizes.is_empty() {
                    self.sizes = Sizes::new(levels, &self.constants);
                }
                self.states.resize_with(view.slots(), CoflowState::default);
                let (coflow, state) = (view.coflow(slot), &mut self.states[slot as usize]);
                let (attained, prior) = if state.is_replaced {
                    // The levels that the coflow has passed are recorded, and a prior that its flows contradicted stays rejected.
                    (state.attained, state.prior)
                } else {
                    let find = |priors: &Priors| priors.find(coflow.application);
                    (AttainedService::new(levels), self.priors.as_ref().and_then(find))
                };
                *state = CoflowState::new(slot, attained, prior, view);
            }
            Event::FlowLive(slot, _) | Event::FlowInterrupted(slot, _) => {
                let state = &mut self.states[slot as usize];
                (state.is_changed, state.has_new_flow) = (true, true);
            }
            Event::FlowCompleted(slot, flow) => {
                let (size, receiver) = (view.sent_bytes(slot, flow), view.coflow(slot).receiver_index(flow));
                self.states[slot as usize].add_completed(receiver, size);
            }
            Event::CoflowCompleted(slot) => {
                let coflow = view.coflow(slot);
                if !coflow.is_completed() {
                    // The coflow has no size yet.
                    self.states[slot as usize].is_replaced = true;
                    return;
                }
                let state = std::mem::take(&mut self.states[slot as usize]);
                if state.samples.is_empty() {
                    return;
                }
                if let Some(priors) = &mut self.priors {
                    priors.learn(coflow.application, &state.samples.summarize());
                }
                let capacities = view.fabric().capacities();
                let seconds = self.carried.attained_seconds(slot, capacities, view);
                self.sizes.learn(state.width, state.attained.level(), seconds);
            }
            Event::CapacityChanged => self.capacity_changed = true,
        }
    }

    /// O(links of coflows with rates + coflows log coflows + rows of flows), and step 1.
    ///
    /// Pilots that lost their links add O(live flows to their receivers). Once sizes have grown by 2 %, the seven tables of
    /// [`Sizes`] add O(levels) each.
    fn schedule(&mut self, view: &mut View<'_, SizesEstimated>, out: &mut Allocation) {
        for i in 0..view.active_coflows().len() {
            let slot = view.active_coflows()[i];
            self.estimate_sizes(slot, view);
            self.update_seconds(slot, view);
        }
        self.capacity_changed = false;
        self.residual.reset(view.fabric());
        if Turns::new(&self.constants, view).is_turn(view.now()) {
            serve_turn(&mut self.order, &mut self.residual, view, out);
            return;
        }
        self.sizes.update();
        let (states, sizes) = (&self.states, &self.sizes);
        self.order.sort(view, out, |slot| states[slot as usize].key(sizes));
        for i in 0..self.order.len() {
            let slot = self.order.slot(i);
            out.set_order_criterion(slot, self.states[slot as usize].order_criterion(&self.sizes));
            self.assign_rates(slot, view, out);
        }
        self.order.backfill(&mut self.residual, view, out);
    }

    /// The next level or outgrown estimate, or the next start or end of a turn.
    fn next_wakeup(&mut self, view: &mut View<'_, SizesEstimated>, allocation: &Allocation) -> f64 {
        let now = view.now();
        let (turns, levels) = (Turns::new(&self.constants, view), levels(&self.constants, view));
        let mut next = if self.order.len() > 1 { turns.next_change(now) } else { f64::INFINITY };
        self.own_rates.clear();
        self.own_rates.resize(view.slots(), 0.0);
        for flows in allocation.flow_rates().chunk_by(|a, b| a.slot == b.slot) {
            let slot = flows[0].slot;
            let own_rate = &mut self.own_rates[slot as usize];
            flows.iter().for_each(|own| *own_rate += own.rate);
            if self.states[slot as usize].is_known() {
                next = next.min(now + view.time_to_estimated_end(slot, flows.iter().map(|own| own.flow)));
            }
        }
        for slot in self.order.slots() {
            let state = &mut self.states[slot as usize];
            let (common, own_rate) = (allocation.common(slot), self.own_rates[slot as usize]);
            state.was_served = common != CommonRate::None || own_rate > 0.0;
            if state.is_known() {
                let mut end = view.estimates_end_at(slot);
                if end.is_infinite() && common != CommonRate::None {
                    // The network carries less than the common rates, so each flow has its own rate.
                    end = now + view.time_to_estimated_end(slot, view.coflow(slot).live_flows());
                }
                next = next.min(end);
            } else if state.was_served {
                let growth = max_growth(slot, common, own_rate, view);
                let attained = &state.attained;
                next = next.min(now + attained.time_to_next_level(attained.seconds(), growth, levels));
            }
        }
        next.max(now + MIN_WAKEUP_SECONDS)
    }
}

#[cfg(test)]
mod tests;
