//! Rates of the policies that know sizes and order coflows: MADD, then backfilling.
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

use super::{Event, Policy};
use crate::allocation::{Allocation, CommonRate, Rule};
use crate::model::{Knowledge, SizesKnown, SizesOrEstimates, Slot, View};
use crate::solve::ResidualCapacity;

/// An order of coflows: ascending keys; ties go to the coflow that was released first.
pub trait CoflowOrder: Send {
    /// Receives a change.
    fn on_event(&mut self, event: Event, view: &View<'_, SizesKnown>) {
        let _ = (event, view);
    }

    /// Called before the first [`CoflowOrder::sort_key`] of each schedule.
    fn prepare(&mut self, view: &View<'_, SizesKnown>) {
        let _ = view;
    }

    /// The key of a coflow at this schedule.
    fn sort_key(&self, slot: Slot, view: &View<'_, SizesKnown>) -> f64;
}

/// The coflows with live flows, in the order of their keys, and of their release if the keys are equal.
#[derive(Debug, Default)]
pub(super) struct SortedCoflows {
    entries: Vec<(f64, u64, Slot)>,
}

impl SortedCoflows {
    /// Sorts the coflows. The others wait for data. O(coflows log coflows).
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
                self.entries.push((key(slot), coflow.seq, slot));
            }
        }
        self.entries.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }

    /// Number of coflows.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The coflow at a position.
    pub fn slot(&self, position: usize) -> Slot {
        self.entries[position].2
    }

    /// The coflows in order.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.entries.iter().map(|entry| entry.2)
    }

    /// Backfills the coflows in order.
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
    pub(super) fn new(order: O) -> OrderedPolicy<O> {
        OrderedPolicy { order, residual: ResidualCapacity::default(), coflow_order: SortedCoflows::default() }
    }
}

/// Gives a coflow the rates at which its flows complete together, after `min_seconds` seconds or later.
///
/// Sets no rates and returns false if a port of the coflow has no residual capacity. O(ports of the coflow).
pub(super) fn assign_madd<K: SizesOrEstimates>(
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

/// MADD for one coflow as soon as possible; without residual capacity, the coflow has to wait for backfilling.
pub(super) fn assign_madd_or_backfill<K: SizesOrEstimates>(
    slot: Slot,
    residual: &mut ResidualCapacity,
    view: &View<'_, K>,
    out: &mut Allocation,
) {
    let rated = assign_madd(slot, 0.0, residual, view, out);
    out.set_rule(slot, if rated { Rule::Madd } else { Rule::Backfill });
}

/// All or none: gives all flows of a coflow the highest equal rates, or none if a link has no residual capacity. O(links of the coflow).
pub(super) fn assign_equal_rates<K: Knowledge>(
    slot: Slot,
    residual: &mut ResidualCapacity,
    view: &View<'_, K>,
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
pub(super) fn backfill_coflows<K: Knowledge>(
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

    fn on_event(&mut self, event: Event, view: &mut View<'_, SizesKnown>) {
        self.order.on_event(event, view);
    }

    /// O(coflows x ports of each).
    fn schedule(&mut self, view: &mut View<'_, SizesKnown>, out: &mut Allocation) {
        self.order.prepare(view);
        let order = &self.order;
        self.coflow_order.sort(view, out, |slot| order.sort_key(slot, view));
        self.residual.reset(view.fabric());
        for slot in self.coflow_order.slots() {
            assign_madd_or_backfill(slot, &mut self.residual, view, out);
        }
        self.coflow_order.backfill(&mut self.residual, view, out);
    }
}
