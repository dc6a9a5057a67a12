//! Orders of coflows by policies that know sizes, and the rates that follow from an order: MADD, then backfilling.
//!
//! A policy implements [`CoflowOrder`], and [`OrderedPolicy`] turns the order into rates. A [`Policy`] that sets rates can use
//! the steps: [`SortedCoflows`], [`assign_madd`], [`assign_equal_rates`] and [`backfill_coflows`]. Each step takes from the same
//! [`ResidualCapacity`].
//!
//! Source: Chowdhury et al., "Efficient Coflow Scheduling with Varys", SIGCOMM '14. The module serves coflows in the
//! order of the policy:
//!
//! - *MADD*: all flows of a coflow receive the rates at which the flows complete together.
//! - *Backfilling*: residual capacity goes to the coflows in the same order, on top of MADD rates. Each flow takes
//!   the residual capacity of both of its ports.
//!
//! Choices that the paper leaves open:
//!
//! - A coflow with a port without residual capacity gets no MADD rates, only backfilling.
//! - A later coflow gets MADD rates on the residual capacity of its ports, however small this capacity is.
//! - Sort keys are recomputed from the remaining bytes at every schedule. Remaining bytes count only flows whose data
//!   exists.
//! - Ties go to the coflow that was released first. Inside a coflow, backfilling serves flows in the order of ports.

use super::{Event, LinkService, Policy};
use crate::allocation::{Allocation, CommonRate, Rule};
use crate::model::{CoflowKey, Knowledge, SizesKnown, SizesOrEstimates, SizesUnknown, Slot, View};
use crate::solve::ResidualCapacity;

/// An order of coflows: ascending queues, ascending keys inside a queue, and the order of release for equal keys.
///
/// Without a method, the order is that of release: first in, first out.
pub trait CoflowOrder: Send {
    /// Receives a change. Called once after each change, before the next schedule.
    fn on_event(&mut self, event: Event, view: &View<'_, SizesKnown>) {
        let _ = (event, view);
    }

    /// Called before the first [`CoflowOrder::queue`] of each schedule.
    fn prepare(&mut self, view: &View<'_, SizesKnown>) {
        let _ = view;
    }

    /// The queue of a coflow at this schedule, from 0. It is the coflow's class in the [`Allocation`].
    fn queue(&self, slot: Slot, view: &View<'_, SizesKnown>) -> usize {
        let _ = (slot, view);
        0
    }

    /// The key of a coflow inside its queue at this schedule.
    fn sort_key(&self, slot: Slot, view: &View<'_, SizesKnown>) -> f64 {
        let _ = (slot, view);
        0.0
    }

    /// The rule that `weir explain` reports for the coflows of a queue that get MADD rates. The others have [`Rule::Backfill`].
    fn rule(&self, queue: usize) -> Rule {
        let _ = queue;
        Rule::Madd
    }

    /// The time in seconds at which the order changes if no event occurs before; infinite if the order does not change.
    ///
    /// The returned time is after [`View::now`]. It may be too early, but never too late. Called when the rates of the schedule
    /// apply.
    fn next_wakeup(&mut self, view: &View<'_, SizesKnown>) -> f64 {
        let _ = view;
        f64::INFINITY
    }

    /// Whether the order of two coflows never changes.
    fn is_constant(&self) -> bool {
        false
    }

    /// Whether the order depends on this key of coflows.
    fn uses(&self, key: CoflowKey) -> bool {
        let _ = key;
        false
    }
}

/// A coflow with the values that order it.
#[derive(Debug, Clone, Copy)]
struct SortedCoflow {
    queue: u32,
    slot: Slot,
    key: f64,
    seq: u64,
}

/// The coflows with live flows: by queue, inside a queue by key, and in the order of their release if the keys are equal.
#[derive(Debug, Default)]
pub struct SortedCoflows {
    entries: Vec<SortedCoflow>,
}

impl SortedCoflows {
    /// Sorts the coflows. The queue of a coflow is its class in `out`, 0 unless it was set. The other coflows wait for data, and get
    /// that rule. O(coflows log coflows).
    pub fn sort<K: Knowledge>(
        &mut self,
        view: &View<'_, K>,
        out: &mut Allocation,
        key: impl Fn(Slot) -> f64,
    ) {
        self.entries.clear();
        for &slot in view.active_coflows() {
            let coflow = view.coflow(slot);
            if coflow.live_count() == 0 {
                out.set_rule(slot, Rule::WaitingForData);
            } else {
                let queue = out.class(slot) as u32;
                self.entries.push(SortedCoflow { queue, slot, key: key(slot), seq: coflow.seq });
            }
        }
        self.entries.sort_unstable_by(|a, b| {
            a.queue.cmp(&b.queue).then(a.key.total_cmp(&b.key)).then(a.seq.cmp(&b.seq))
        });
    }

    /// Number of coflows.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no coflow has live flows.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The coflow at a position.
    ///
    /// # Panics
    /// If the position is not below [`SortedCoflows::len`].
    pub fn slot(&self, position: usize) -> Slot {
        self.entries[position].slot
    }

    /// The coflows in order.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.entries.iter().map(|entry| entry.slot)
    }

    /// Backfills the coflows in order; see [`backfill_coflows`].
    pub fn backfill<K: Knowledge>(
        &self,
        residual: &mut ResidualCapacity,
        view: &View<'_, K>,
        out: &mut Allocation,
    ) {
        backfill_coflows(self.slots(), residual, view, out);
    }
}

/// MADD and backfilling in an order of coflows.
pub struct OrderedPolicy<O> {
    order: O,
    residual: ResidualCapacity,
    coflow_order: SortedCoflows,
}

impl<O: CoflowOrder> OrderedPolicy<O> {
    /// Serves coflows in `order`.
    pub fn new(order: O) -> OrderedPolicy<O> {
        OrderedPolicy { order, residual: ResidualCapacity::default(), coflow_order: SortedCoflows::default() }
    }
}

/// MADD: gives a coflow the rates at which its live flows complete together, after `min_seconds` seconds or later.
///
/// Sets no rates and returns false if a link of the coflow has no residual capacity. O(links of the coflow).
pub fn assign_madd<K: SizesOrEstimates>(
    slot: Slot,
    min_seconds: f64,
    residual: &mut ResidualCapacity,
    view: &View<'_, K>,
    out: &mut Allocation,
) -> bool {
    if !residual.admits(view.coflow(slot)) {
        return false;
    }
    let loads = view.remaining_loads(slot);
    let seconds = residual.min_completion_time(loads).max(min_seconds);
    if seconds == 0.0 {
        return false;
    }
    residual.subtract_madd_rates(loads, seconds);
    out.set_common(slot, CommonRate::CompleteTogether(seconds));
    true
}

/// MADD for one coflow as soon as possible, with [`Rule::Madd`]. Without residual capacity, the coflow has to wait for backfilling,
/// with [`Rule::Backfill`].
pub fn assign_madd_or_backfill<K: SizesOrEstimates>(
    slot: Slot,
    residual: &mut ResidualCapacity,
    view: &View<'_, K>,
    out: &mut Allocation,
) {
    let rated = assign_madd(slot, 0.0, residual, view, out);
    out.set_rule(slot, if rated { Rule::Madd } else { Rule::Backfill });
}

/// All or none: gives all live flows of a coflow the highest equal rates, or none if a link has no residual capacity. O(links of the
/// coflow).
pub fn assign_equal_rates(
    slot: Slot,
    residual: &mut ResidualCapacity,
    view: &View<'_, SizesUnknown>,
    out: &mut Allocation,
) {
    let coflow = view.coflow(slot);
    if !residual.admits(coflow) {
        out.set_rule(slot, Rule::WorkConservation);
        return;
    }
    let rate = residual.max_equal_rate(coflow);
    residual.subtract_equal_rates(coflow, rate);
    out.set_common(slot, CommonRate::Equal(rate));
    out.set_rule(slot, Rule::AllOrNone);
}

/// Backfilling: each flow takes the residual capacity of its links, in the order of coflows.
pub fn backfill_coflows<K: Knowledge>(
    slots: impl Iterator<Item = Slot>,
    residual: &mut ResidualCapacity,
    view: &View<'_, K>,
    out: &mut Allocation,
) {
    for slot in slots {
        if residual.is_exhausted() {
            return;
        }
        residual.fill_flows(view.coflow(slot), |flow, rate| out.add_flow_rate(slot, flow, rate));
    }
}

impl<O: CoflowOrder> Policy for OrderedPolicy<O> {
    type Knowledge = SizesKnown;

    fn link_service(&self) -> LinkService {
        if self.order.is_constant() { LinkService::InOrder } else { LinkService::Decisions }
    }

    fn uses(&self, key: CoflowKey) -> bool {
        self.order.uses(key)
    }

    fn on_event(&mut self, event: Event, view: &mut View<'_, SizesKnown>) {
        self.order.on_event(event, view);
    }

    /// O(coflows x links of each).
    fn schedule(&mut self, view: &mut View<'_, SizesKnown>, out: &mut Allocation) {
        self.order.prepare(view);
        let order = &self.order;
        for &slot in view.active_coflows() {
            out.set_class(slot, order.queue(slot, view));
        }
        self.coflow_order.sort(view, out, |slot| order.sort_key(slot, view));
        self.residual.reset(view.fabric());
        for slot in self.coflow_order.slots() {
            let is_rated = assign_madd(slot, 0.0, &mut self.residual, view, out);
            out.set_rule(slot, if is_rated { order.rule(out.class(slot)) } else { Rule::Backfill });
        }
        self.coflow_order.backfill(&mut self.residual, view, out);
    }

    fn next_wakeup(&mut self, view: &mut View<'_, SizesKnown>, _: &Allocation) -> f64 {
        self.order.next_wakeup(view)
    }
}
