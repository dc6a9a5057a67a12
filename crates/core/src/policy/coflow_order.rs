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

/// MADD and backfilling in an order of coflows.
pub struct OrderedPolicy<O> {
    order: O,
    residual: ResidualCapacity,
    coflow_order: Vec<(f64, u64, Slot)>,
}

impl<O: CoflowOrder> OrderedPolicy<O> {
    pub(super) fn new(order: O) -> OrderedPolicy<O> {
        OrderedPolicy { order, residual: ResidualCapacity::default(), coflow_order: Vec::new() }
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

/// Backfilling: each flow of the coflow takes the residual capacity of both of its ports.
pub(super) fn backfill_coflow<K: Knowledge>(
    slot: Slot,
    residual: &mut ResidualCapacity,
    view: &View<'_, K>,
    out: &mut Allocation,
) {
    residual.fill_flows(view.coflow(slot), |flow, rate| out.add_flow_rate(slot, flow, rate));
}

impl<O: CoflowOrder> Policy for OrderedPolicy<O> {
    type Knowledge = SizesKnown;

    fn on_event(&mut self, event: Event, view: &mut View<'_, SizesKnown>) {
        self.order.on_event(event, view);
    }

    /// O(coflows x ports of each).
    fn schedule(&mut self, view: &mut View<'_, SizesKnown>, out: &mut Allocation) {
        self.order.prepare(view);
        self.coflow_order.clear();
        for &slot in view.active_coflows() {
            let coflow = view.coflow(slot);
            if coflow.live_count() == 0 {
                out.set_rule(slot, Rule::WaitingForData);
            } else {
                self.coflow_order.push((self.order.sort_key(slot, view), coflow.seq, slot));
            }
        }
        self.coflow_order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.residual.reset(view.fabric());
        for &(_, _, slot) in &self.coflow_order {
            let rated = assign_madd(slot, 0.0, &mut self.residual, view, out);
            out.set_rule(slot, if rated { Rule::Madd } else { Rule::Backfill });
        }
        for &(_, _, slot) in &self.coflow_order {
            if self.residual.is_exhausted() {
                break;
            }
            backfill_coflow(slot, &mut self.residual, view, out);
        }
    }
}
