//! The policy with known sizes (`sizes=known`): the order of BSSI, MADD and backfilling, and turns.
//!
//! The order of Sincronia lets small coflows at a congested link go before others, and MADD shares the links of a coflow as Varys does.

use super::super::coflow_order::{SortedCoflows, assign_madd_or_backfill};
use super::super::sincronia::compute_order;
use super::super::{Event, Params, ParamsError, Policy};
use super::{Turns, serve_turn};
use crate::allocation::Allocation;
use crate::model::{SizesKnown, Slot, View};
use crate::solve::ResidualCapacity;

/// Weir's own policy with knowledge of sizes.
pub struct WeirKnown {
    turns: Turns,
    order: SortedCoflows,
    residual: ResidualCapacity,
    order_valid: bool,
    /// By slot: position in the order of BSSI.
    ranks: Vec<f64>,
}

impl WeirKnown {
    pub(in super::super) fn from_params(params: &mut Params) -> Result<WeirKnown, ParamsError> {
        let (order, residual) = (SortedCoflows::default(), ResidualCapacity::default());
        Ok(WeirKnown {
            turns: Turns::from_params(params)?,
            order,
            residual,
            order_valid: false,
            ranks: Vec::new(),
        })
    }

    fn rank_coflows(&mut self, view: &View<'_, SizesKnown>) {
        let order: Vec<Slot> = compute_order(view);
        self.ranks.resize(view.slots(), 0.0);
        order.into_iter().enumerate().for_each(|(rank, slot)| self.ranks[slot as usize] = rank as f64);
        self.order_valid = true;
    }
}

impl Policy for WeirKnown {
    type Knowledge = SizesKnown;

    fn on_event(&mut self, event: Event, _: &mut View<'_, SizesKnown>) {
        self.order_valid &= matches!(event, Event::FlowCompleted(..));
    }

    /// O(coflows x links of each), except for the schedules that recompute the order.
    fn schedule(&mut self, view: &mut View<'_, SizesKnown>, out: &mut Allocation) {
        if !self.order_valid {
            self.rank_coflows(view);
        }
        self.residual.reset(view.fabric());
        if self.turns.is_turn(view.now()) {
            serve_turn(&mut self.order, &mut self.residual, view, out);
            return;
        }
        let ranks = &self.ranks;
        self.order.sort(view, out, |slot| ranks[slot as usize]);
        for slot in self.order.slots() {
            assign_madd_or_backfill(slot, &mut self.residual, view, out);
        }
        self.order.backfill(&mut self.residual, view, out);
    }

    fn next_wakeup(&mut self, view: &mut View<'_, SizesKnown>, _: &Allocation) -> f64 {
        if self.order.len() > 1 { self.turns.next_change(view.now()) } else { f64::INFINITY }
    }
}
