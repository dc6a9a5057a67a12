//! What the clairvoyant policies that order coflows share: coflow by coflow in their order, all flows at the rates at which
//! they end together (MADD), and then what is left over to whoever can use it, in the same order.
//!
//! Chowdhury et al., "Efficient Coflow Scheduling with Varys", SIGCOMM '14: MADD and backfilling. Choices: a coflow of which
//! some port has nothing left gets no MADD rates, only what backfilling finds; a coflow later in the order gets
//! MADD rates on what is left of its ports, however little; backfilling gives flow by flow, in the order of coflows and of
//! ports, all that both ports have left, on top of MADD rates. Orders are computed anew, from what is left,
//! whenever anything happens; what is left is that of flows whose data is there. Ties go to the earlier coflow.

use super::{Event, Policy};
use crate::allocation::{Allocation, Common, Rule};
use crate::model::{Sizes, Slot, View};
use crate::solve::Residual;

/// An order of coflows: lower keys first, ties in order of release.
pub trait Order: Send {
    /// Hears of a change.
    fn on(&mut self, event: Event, view: &View<'_, Sizes>) {
        let _ = (event, view);
    }

    /// Called before the keys of a schedule are asked for.
    fn prepare(&mut self, view: &View<'_, Sizes>) {
        let _ = view;
    }

    /// The key of a coflow now.
    fn key(&self, slot: Slot, view: &View<'_, Sizes>) -> f64;
}

/// MADD and backfilling in an order.
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

/// Gives a coflow the rates at which its flows end together, no sooner than after `least` seconds, if all of its ports have
/// something left; says whether they had. O(ports of the coflow).
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

/// Backfilling: gives a coflow's flows all that their ports have left.
pub(super) fn backfill(slot: Slot, residual: &mut Residual, view: &View<'_, Sizes>, out: &mut Allocation) {
    residual.fill(view.coflow(slot), |flow, rate| out.add_flow(slot, flow, rate));
}

impl<O: Order> Policy for Ordered<O> {
    type Knows = Sizes;

    fn on(&mut self, event: Event, view: &mut View<'_, Sizes>) {
        self.order.on(event, view);
    }

    /// O(coflows x their ports).
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
