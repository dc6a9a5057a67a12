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
//!   capacity, rounded down to a level a of 8 ms x 1.25^k. The *size* X of a coflow is its attained service when it completes.
//! - The *index* of a level a is the maximum over the later levels b of P(a < X <= b) / (E[min(X, b)] - E[min(X, a)]), given X > a:
//!   completions per second of service up to b. The order changes at levels only, so a search over the levels is exact.
//! - Coflows are served by descending index. Rates are those of `weir` for coflows without completed flows: equal rates if every link of
//!   the coflow has residual capacity, then backfilling in the same order. Only the order differs.
//!
//! # Choices
//!
//! - *Distribution*: a lognormal distribution with the parameters `median` and `sigma`, which counts as `prior` coflows, and the
//!   sizes of the coflows that have completed. `prior=inf` does not learn. The default median and sigma are the mean and the deviation
//!   of the logarithm of the sizes of ten generated workloads (`weir trace generate --preset facebook`, seeds 1 to 10): 0.204 s and
//!   2.55. No trace was used, but the preset resembles the public one. Learned sizes are no clear gain: with `prior=100`, the mean time
//!   is -1 %, 6 %, 5 % and -2 % higher than with `prior=inf` (`facebook`, seeds 1 and 3; `small`, seeds 1 and 2).
//! - `index=las`: the index is the negative level (least attained service), which needs no distribution. The hazard rate of the default
//!   lognormal distribution decreases from the first level on, so `prior=inf` and `index=las` order coflows equally.
//! - *Beyond the level* that one size in 10^9 of the lognormal distribution exceeds, the index decreases with the inverse of the level.
//! - *Ties* go to the coflow that was released first. Coflows on one level are thus FIFO, and do not alternate.
//! - *Capacity* of a link for the attained service is the highest one so far. With the present one, a slow port would make bytes that were
//!   sent before count for more. Attained service never decreases, also if flows restart or move to another path. The bytes
//!   of a flow count on the links of its present path.
//!
//! # Limits
//!
//! - Nothing is learned from the sizes of a coflow's completed flows: a coflow that is almost complete does not go before others.
//! - Coflows that complete early are small, so the learned distribution is too small at first.
//! - A coflow of much attained service can wait without limit while small coflows continue to arrive.

use super::attained_service::{AttainedService, Levels};
use super::coflow_order::{SortedCoflows, assign_equal_rates};
use super::interface::MIN_WAKEUP_SECONDS;
use super::normal::upper_tail;
use super::{Event, Params, ParamsError, Policy};
use crate::allocation::{Allocation, CommonRate};
use crate::model::{SizesUnknown, Slot, View};
use crate::solve::ResidualCapacity;
use crate::units::Time;

/// The levels of attained service, as for `weir`.
const LEVELS: Levels = Levels { first_seconds: 0.008, growth: 0.25, min_wait: 0.02 };

/// The default distribution of sizes: see the head of the file.
const DEFAULT_MEDIAN_SECONDS: f64 = 0.2;
const DEFAULT_SIGMA: f64 = 2.5;

/// The default weight of this distribution, in coflows.
const DEFAULT_PRIOR: f64 = 100.0;

/// The probability that a size of the lognormal distribution exceeds the last level, at most.
const MIN_SURVIVAL: f64 = 1e-9;

/// The maximum number of levels.
const MAX_LEVELS: usize = 1000;

/// A lognormal distribution of sizes, in seconds.
#[derive(Debug, Clone, Copy)]
struct LogNormal {
    median: f64,
    sigma: f64,
}

impl LogNormal {
    /// P(X > a).
    fn survival(self, a: f64) -> f64 {
        upper_tail(libm::log(a / self.median) / self.sigma)
    }

    /// E[min(X, b)] - E[min(X, a)].
    fn service_between(self, a: f64, b: f64) -> f64 {
        let mean = self.median * libm::exp(self.sigma * self.sigma / 2.0);
        let partial = |x: f64| upper_tail(libm::log(x / self.median) / self.sigma - self.sigma);
        mean * (partial(a) - partial(b)) + b * self.survival(b) - a * self.survival(a)
    }
}

/// A level of attained service.
#[derive(Debug, Clone, Copy)]
struct Level {
    /// In seconds.
    start: f64,
    end: f64,
    /// The number of coflows whose sizes are above `start` and up to `end`, and the service of all coflows between the two, in seconds.
    /// The lognormal distribution counts with its weight.
    completions: f64,
    service: f64,
    index: f64,
}

/// The distribution of sizes, and the index of each level.
#[derive(Debug, Clone, Default)]
struct IndexTable {
    levels: Vec<Level>,
    /// Whether the indices lack the last sizes.
    is_stale: bool,
}

impl IndexTable {
    /// The lognormal distribution, which counts as `weight` coflows.
    fn new(sizes: LogNormal, weight: f64) -> IndexTable {
        let (mut levels, mut start, mut end) = (Vec::new(), 0.0, LEVELS.first_seconds);
        while levels.len() < MAX_LEVELS && sizes.survival(start) > MIN_SURVIVAL {
            let completions = weight * (sizes.survival(start) - sizes.survival(end));
            let service = weight * sizes.service_between(start, end);
            levels.push(Level { start, end, completions, service, index: 0.0 });
            (start, end) = (end, end * (1.0 + LEVELS.growth));
        }
        IndexTable { levels, is_stale: true }
    }

    /// Adds the size of a coflow. O(levels).
    fn add_size(&mut self, seconds: f64) {
        for level in self.levels.iter_mut().take_while(|level| level.start < seconds) {
            level.service += seconds.min(level.end) - level.start;
            level.completions += f64::from(seconds <= level.end);
        }
        self.is_stale = true;
    }

    /// Computes the indices, if sizes were added. O(levels²).
    fn update(&mut self) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        for from in 0..self.levels.len() {
            let (mut completions, mut service, mut index) = (0.0, 0.0, 0.0f64);
            for level in &self.levels[from..] {
                completions += level.completions;
                service += level.service;
                if service > 0.0 {
                    index = index.max(completions / service);
                }
            }
            self.levels[from].index = index;
        }
    }

    /// The index of a coflow on the level that starts at this time. O(log levels).
    fn index(&self, start: f64) -> f64 {
        let after = self.levels.partition_point(|level| level.start <= start * (1.0 + 1e-9));
        let Some(level) = after.checked_sub(1).map(|at| self.levels[at]) else { return -start };
        if after == self.levels.len() && start > 0.0 {
            level.index * level.start / start
        } else {
            level.index
        }
    }
}

/// State of one coflow.
#[derive(Debug)]
struct CoflowState {
    attained: AttainedService,
    /// An upper bound of the attained service at `bound_time`, and its growth since then, in seconds a second.
    bound_seconds: f64,
    bound_time: f64,
    growth: f64,
}

impl Default for CoflowState {
    fn default() -> CoflowState {
        CoflowState {
            attained: AttainedService::new(LEVELS),
            bound_seconds: 0.0,
            bound_time: 0.0,
            growth: 0.0,
        }
    }
}

/// The order of the Gittins index.
pub struct Gittins {
    table: IndexTable,
    learns: bool,
    states: Vec<CoflowState>,
    /// By descending index.
    order: SortedCoflows,
    residual: ResidualCapacity,
    /// By slot: total of the own rates of flows, in bytes per second.
    own_rates: Vec<f64>,
    /// By link: bytes carried for one coflow, and the highest capacity so far.
    carried_bytes: Vec<f64>,
    capacities: Vec<f64>,
}

impl Gittins {
    pub(super) fn from_params(params: &mut Params) -> Result<Gittins, ParamsError> {
        let is_las = params.take_choice("index", &[("gittins", false), ("las", true)])?;
        let is_time = |time: &Time| time.get() > 0.0;
        let median = Time::from_valid(DEFAULT_MEDIAN_SECONDS);
        let median = params.take_value("median", median, is_time, "a time above 0 such as 500ms")?;
        let is_sigma = |sigma: &f64| (0.1..=10.0).contains(sigma);
        let sigma = params.take_value("sigma", DEFAULT_SIGMA, is_sigma, "a number from 0.1 to 10")?;
        let is_weight = |weight: &f64| *weight > 0.0;
        let weight = params.take_value("prior", DEFAULT_PRIOR, is_weight, "a number above 0, or `inf`")?;
        let table = if is_las {
            IndexTable::default()
        } else {
            let weight = if weight.is_finite() { weight } else { 1.0 };
            IndexTable::new(LogNormal { median: median.get(), sigma }, weight)
        };
        Ok(Gittins {
            table,
            learns: weight.is_finite(),
            states: Vec::new(),
            order: SortedCoflows::default(),
            residual: ResidualCapacity::default(),
            own_rates: Vec::new(),
            carried_bytes: Vec::new(),
            capacities: Vec::new(),
        })
    }

    /// Computes the attained service of a coflow. O(links of all flows).
    fn compute_attained(&mut self, slot: Slot, view: &View<'_, SizesUnknown>) {
        let (coflow, fabric) = (view.coflow(slot), view.fabric());
        self.carried_bytes.clear();
        self.carried_bytes.resize(fabric.links(), 0.0);
        for flow in 0..coflow.width() as u32 {
            let bytes = view.sent_bytes(slot, flow);
            coflow.flow_links(flow, fabric.ports()).for_each(|link| self.carried_bytes[link] += bytes);
        }
        let seconds = self.carried_bytes.iter().zip(&self.capacities).map(|(bytes, rate)| bytes / rate);
        let seconds = seconds.filter(|seconds| seconds.is_finite()).fold(0.0, f64::max);
        let state = &mut self.states[slot as usize];
        state.attained.raise(seconds, LEVELS);
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
        let loads = view.coflow(slot).link_loads(view.fabric().ports());
        let live = loads.filter(|(_, load)| load.live_flow_count > 0);
        let growth = live
            .map(|(link, load)| (rate * f64::from(load.live_flow_count) + own_rate) / self.capacities[link]);
        growth.fold(0.0, f64::max).min(1.0)
    }
}

impl Policy for Gittins {
    type Knowledge = SizesUnknown;

    fn on_event(&mut self, event: Event, view: &mut View<'_, SizesUnknown>) {
        match event {
            Event::CoflowReleased(slot) => {
                self.states.resize_with(view.slots(), CoflowState::default);
                let coflow = view.coflow(slot);
                let is_replaced = coflow.released_at < view.now();
                let state = &mut self.states[slot as usize];
                if !is_replaced {
                    *state = CoflowState { bound_time: view.now(), ..CoflowState::default() };
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
                    self.table.add_size(self.states[slot as usize].attained.seconds());
                }
                self.states[slot as usize] = CoflowState::default();
            }
            Event::FlowCompleted(..)
            | Event::FlowLive(..)
            | Event::FlowInterrupted(..)
            | Event::CapacityChanged => {}
        }
    }

    /// O(coflows x links of each), O(flows) of coflows whose levels may have changed, and O(levels²) after a coflow has completed.
    fn schedule(&mut self, view: &mut View<'_, SizesUnknown>, out: &mut Allocation) {
        self.table.update();
        self.capacities.resize(view.fabric().links(), 0.0);
        for (highest, capacity) in self.capacities.iter_mut().zip(view.fabric().link_capacities()) {
            *highest = highest.max(capacity);
        }
        for &slot in view.active_coflows() {
            self.update_level(slot, view);
        }
        let (table, states) = (&self.table, &self.states);
        self.order.sort(view, out, |slot| -table.index(states[slot as usize].attained.level_seconds()));
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
        for state in &mut self.states {
            state.growth = 0.0;
        }
        let mut next = f64::INFINITY;
        for slot in self.order.slots() {
            let growth = self.max_growth(slot, allocation.common(slot), self.own_rates[slot as usize], view);
            let state = &mut self.states[slot as usize];
            state.growth = growth;
            if growth > 0.0 {
                next = next.min(state.attained.time_to_next_level(state.bound_seconds, growth, LEVELS));
            }
        }
        view.now() + next.max(MIN_WAKEUP_SECONDS)
    }
}

#[cfg(test)]
mod tests;
