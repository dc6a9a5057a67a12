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
//! - Keys are recomputed from the remaining bytes at every schedule. Remaining bytes count only flows whose data
//!   exists.
//! - Ties go to the coflow that was released first. Inside a coflow, backfilling serves flows in the order of ports.

use super::{Event, Policy};
use crate::allocation::{Allocation, Common, Rule};
use crate::model::{Sizes, Slot, View};
use crate::solve::Residual;

/// An order of coflows: ascending keys; ties go to the coflow that was released first.
pub trait Order: Send {
    /// Receives a change.
    fn on(&mut self, event: Event, view: &View<'_, Sizes>) {
        let _ = (event, view);
    }

    /// Called before the first [`Order::key`] of each schedule.
    fn prepare(&mut self, view: &View<'_, Sizes>) {
        let _ = view;
    }

    /// The key of a coflow at this schedule.
    fn key(&self, slot: Slot, view: &View<'_, Sizes>) -> f64;
}

/// MADD and backfilling in an order of coflows.
pub struct Ordered<O> {
    order: O,
    residual: Residual,
    turns: Vec<(f64, u64, Slot)>,
}

impl<O: Order> Ordered<O> {
    pub(super) fn new(order: O) -> Ordered<O> {
        Ordered { order, residual: Residual::default(), turns: Vec::new() }
    }
}

/// Gives a coflow the rates at which its flows complete together, after `least` seconds or later.
///
/// Sets no rates and returns false if a port of the coflow has no residual capacity. O(ports of the coflow).
pub(super) fn madd(
    slot: Slot,
    least: f64,
    residual: &mut Residual,
    view: &View<'_, Sizes>,
    out: &mut Allocation,
) -> bool {
    if !residual.admits(view.coflow(slot)) {
        return false;
    }
    let loads = view.loads(slot);
    let seconds = residual.least_time(loads).max(least);
    residual.take_together(loads, seconds);
    out.set_common(slot, Common::Together(seconds));
    true
}

/// Backfilling: each flow of the coflow takes the residual capacity of both of its ports.
pub(super) fn backfill(slot: Slot, residual: &mut Residual, view: &View<'_, Sizes>, out: &mut Allocation) {
    residual.fill(view.coflow(slot), |flow, rate| out.add_flow(slot, flow, rate));
}

impl<O: Order> Policy for Ordered<O> {
    type Knows = Sizes;

    fn on(&mut self, event: Event, view: &mut View<'_, Sizes>) {
        self.order.on(event, view);
    }

    /// O(coflows x ports of each).
    fn schedule(&mut self, view: &mut View<'_, Sizes>, out: &mut Allocation) {
        self.order.prepare(view);
        self.turns.clear();
        for &slot in view.active() {
            let coflow = view.coflow(slot);
            if coflow.live() == 0 {
                out.set_rule(slot, Rule::LacksData);
            } else {
                self.turns.push((self.order.key(slot, view), coflow.seq, slot));
            }
        }
        self.turns.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.residual.reset(view.fabric());
        for &(_, _, slot) in &self.turns {
            let rated = madd(slot, 0.0, &mut self.residual, view, out);
            out.set_rule(slot, if rated { Rule::Madd } else { Rule::Backfill });
        }
        for &(_, _, slot) in &self.turns {
            if self.residual.is_exhausted() {
                break;
            }
            backfill(slot, &mut self.residual, view, out);
        }
    }
}
