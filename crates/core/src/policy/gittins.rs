//! Gittins: coflows in the order of the Gittins index of their attained service.
//!
//! Source: Gittins, "Multi-armed Bandit Allocation Indices", 1989; Aalto, Ayesta and Righter, "On the Gittins index in the M/G/1 queue",
//! Queueing Systems 63, 2009. The order of attained service (`index=las`) is the one of Aalo (SIGCOMM '15) with levels as queues.
//!
//! # Problem
//!
//! A scheduler knows how much service each job has attained, and the distribution of sizes, but not the size of any job. Which job should
//! it serve so that the mean time of jobs is the lowest?
//!
//! # Idea
//!
//! Serve the job with the best ratio of the probability that it completes to the expected service until it completes or is given up. On
//! one machine with Poisson arrivals, no policy without knowledge of sizes has a lower mean. A network of links is not one machine: here
//! the index is a heuristic, and a rival that shows what flows of the same coflow tell (`weir`) beyond the distribution of sizes.
//!
//! # Algorithm
//!
//! - The *attained service* of a coflow is the maximum over its links of the time that the bytes which the link has carried take at full
//!   capacity, rounded down to a level. The first level is an interval long, or the time of 16 kB on the fastest link; each later one
//!   ends at 1.25 times its start. The *size* of a coflow is its attained service when it completes.
//! - Coflows are served by descending index of their level; [`index_table`](super::index_table) computes it from the sizes of earlier
//!   coflows. Rates are those of `weir` for coflows without completed flows: equal rates if every link of the coflow has residual
//!   capacity, then backfilling in the same order. Only the order differs.
//!
//! # Choices
//!
//! - *Distribution*: the sizes of the coflows that have completed, and a prior that counts as `prior` coflows at each level and has no
//!   scale. No trace was used for it.
//! - `index=las`: the order of the prior alone, least attained service.
//! - *Ties* go to the coflow that was released first. Coflows on one level are thus FIFO, and do not alternate.
//! - *Capacity* of a link for the attained service is the highest one so far. With the present one, a slow port would make bytes that were
//!   sent before count for more. Attained service never decreases, also if flows restart or move to another path. The bytes
//!   of a flow count on the links of its present path.
//!
//! # Limits
//!
//! - Nothing is learned from the sizes of a coflow's completed flows: a coflow that is almost complete does not go before others, unless
//!   coflows have similar sizes.
//! - A coflow of much attained service can wait without limit while small coflows continue to arrive.

use super::attained_service::{AttainedService, CarriedBytes, FIRST_LEVEL_BYTES, LEVEL_GROWTH, Levels};
use super::coflow_order::{SortedCoflows, assign_equal_rates};
use super::index_table::IndexTable;
use super::interface::MIN_WAKEUP_SECONDS;
use super::{Event, Params, ParamsError, Policy};
use crate::allocation::{Allocation, CommonRate};
use crate::model::{SizesUnknown, Slot, View};
use crate::solve::ResidualCapacity;

/// The default weight of the prior, in coflows.
pub(super) const DEFAULT_WEIGHT: f64 = 1.0;

/// State of one coflow.
#[derive(Debug, Default)]
struct CoflowState {
    attained: AttainedService,
    /// An upper bound of the attained service at `bound_time`, and its growth since then, in seconds a second.
    bound_seconds: f64,
    bound_time: f64,
    growth: f64,
}

/// The order of the Gittins index.
#[derive(Default)]
pub struct Gittins {
    /// Empty before the first coflow.
    table: IndexTable,
    /// The weight of the prior, in coflows.
    weight: f64,
    learns: bool,
    /// Sizes of coflows in seconds that are known from the start.
    given_sizes: Vec<f64>,
    states: Vec<CoflowState>,
    /// By descending index.
    order: SortedCoflows,
    residual: ResidualCapacity,
    /// By slot: total of the own rates of flows, in bytes per second.
    own_rates: Vec<f64>,
    carried: CarriedBytes,
    /// By link: the highest capacity so far.
    capacities: Vec<f64>,
}

impl Gittins {
    pub(super) fn from_params(params: &mut Params) -> Result<Gittins, ParamsError> {
        let is_las = params.take_choice("index", &[("gittins", false), ("las", true)])?;
        let is_weight = |weight: &f64| weight.is_finite() && *weight > 0.0;
        let weight = params.take_value("prior", DEFAULT_WEIGHT, is_weight, "a number above 0")?;
        Ok(Gittins { weight, learns: !is_las, ..Gittins::default() })
    }

    /// The order by the distribution of these sizes in seconds, without learning.
    pub(super) fn with_sizes(sizes: &[f64]) -> Gittins {
        Gittins { given_sizes: sizes.to_vec(), ..Gittins::default() }
    }

    /// The levels of attained service.
    fn levels(view: &View<'_, SizesUnknown>) -> Levels {
        Levels::new(view, FIRST_LEVEL_BYTES, LEVEL_GROWTH)
    }

    /// Computes the attained service of a coflow. O(links of all flows).
    fn compute_attained(&mut self, slot: Slot, view: &View<'_, SizesUnknown>) {
        let seconds = self.carried.attained_seconds(slot, &self.capacities, view);
        let state = &mut self.states[slot as usize];
        state.attained.raise(seconds, Gittins::levels(view));
        state.bound_seconds = state.attained.seconds();
    }

    /// Computes the level of a coflow, if it may have changed.
    fn update_level(&mut self, slot: Slot, view: &View<'_, SizesUnknown>) {
        let state = &mut self.states[slot as usize];
        state.bound_seconds += state.growth * (view.now() - state.bound_time);
        state.bound_time = view.now();
        if state.attained.is_next_level(state.bound_seconds) {
            self.compute_attained(slot, view);
        }
    }

    /// How fast the attained service of a coflow can grow if its live flows have a common rate, and `own_rate` bytes per second in total on
    /// top of it; in seconds a second. O(links of the coflow).
    fn max_growth(
        &self,
        slot: Slot,
        common: CommonRate,
        own_rate: f64,
        view: &View<'_, SizesUnknown>,
    ) -> f64 {
        let rate = if let CommonRate::Equal(rate) = common { rate } else { 0.0 };
        if rate + own_rate == 0.0 {
            return 0.0;
        }
        let mut growth = 0.0;
        for load in view.coflow(slot).links().iter().filter(|load| load.live_flow_count > 0) {
            let (capacity, used) =
                (self.capacities[load.link as usize], rate * f64::from(load.live_flow_count) + own_rate);
            // A product is cheaper than a quotient.
            if used > growth * capacity {
                growth = used / capacity;
                if growth >= 1.0 {
                    return 1.0;
                }
            }
        }
        growth
    }
}

impl Policy for Gittins {
    type Knowledge = SizesUnknown;

    fn on_event(&mut self, event: Event, view: &mut View<'_, SizesUnknown>) {
        match event {
            Event::CoflowReleased(slot) => {
                if self.table.is_empty() {
                    self.table = IndexTable::new(Gittins::levels(view), self.weight);
                    self.given_sizes.iter().for_each(|&seconds| self.table.add_size(0, seconds));
                    self.table.update();
                }
                self.states.resize_with(view.slots(), CoflowState::default);
                let coflow = view.coflow(slot);
                let is_replaced = coflow.released_at < view.now();
                let state = &mut self.states[slot as usize];
                if !is_replaced {
                    let attained = AttainedService::new(Gittins::levels(view));
                    *state = CoflowState { attained, bound_time: view.now(), ..CoflowState::default() };
                }
                if is_replaced || coflow.completed_count() > 0 {
                    // The bytes sent so far may be on other links than before. The next schedule counts them.
                    state.bound_seconds = f64::INFINITY;
                }
            }
            Event::CoflowCompleted(slot) => {
                if !view.coflow(slot).is_completed() {
                    // The flows are about to be replaced. The coflow has no size yet.
                    return;
                }
                if self.learns {
                    self.compute_attained(slot, view);
                    // Levels are recorded at the end only.
                    self.table.learn_size(0, self.states[slot as usize].attained.seconds());
                }
                self.states[slot as usize] = CoflowState::default();
            }
            Event::FlowCompleted(..)
            | Event::FlowLive(..)
            | Event::FlowInterrupted(..)
            | Event::CapacityChanged => {}
        }
    }

    /// O(coflows x links of each), O(flows) of coflows whose levels may have changed, and O(levels) after a coflow has completed.
    fn schedule(&mut self, view: &mut View<'_, SizesUnknown>, out: &mut Allocation) {
        if self.table.is_stale() {
            self.table.update();
        }
        self.capacities.resize(view.fabric().links(), 0.0);
        for (highest, &capacity) in self.capacities.iter_mut().zip(view.fabric().capacities()) {
            *highest = highest.max(capacity);
        }
        for &slot in view.active_coflows() {
            self.update_level(slot, view);
        }
        let (table, states) = (&self.table, &self.states);
        self.order.sort(view, out, |slot| table.seconds(states[slot as usize].attained.level()));
        self.residual.reset(view.fabric());
        for slot in self.order.slots() {
            assign_equal_rates(slot, &mut self.residual, view, out);
        }
        self.order.backfill(&mut self.residual, view, out);
    }

    /// The earliest time at which a coflow can reach its next level.
    fn next_wakeup(&mut self, view: &mut View<'_, SizesUnknown>, allocation: &Allocation) -> f64 {
        self.own_rates.clear();
        self.own_rates.resize(view.slots(), 0.0);
        for own in allocation.flow_rates() {
            self.own_rates[own.slot as usize] += own.rate;
        }
        let levels = Gittins::levels(view);
        for state in &mut self.states {
            state.growth = 0.0;
        }
        let mut next = f64::INFINITY;
        for slot in self.order.slots() {
            let growth = self.max_growth(slot, allocation.common(slot), self.own_rates[slot as usize], view);
            let state = &mut self.states[slot as usize];
            state.growth = growth;
            if growth > 0.0 {
                next = next.min(state.attained.time_to_next_level(state.bound_seconds, growth, levels));
            }
        }
        view.now() + next.max(MIN_WAKEUP_SECONDS)
    }
}

#[cfg(test)]
mod tests;
