//! The policy with known sizes (`sizes=known`): the order of BSSI, MADD and backfilling, and turns.
//!
//! The order of Sincronia lets small coflows at a congested link go before others, and MADD shares the links of a coflow as Varys does.

use super::super::coflow_order::{SortedCoflows, assign_madd_or_backfill};
use super::super::sincronia::compute_order;
use super::super::{Event, Params, ParamsError, Policy};
use super::Constants;
use super::turns::{Turns, serve_turn, take_turn_fraction};
use crate::allocation::Allocation;
use crate::model::{SizesKnown, Slot, View};
use crate::solve::ResidualCapacity;

/// Weir's own policy with knowledge of sizes.
pub struct WeirKnown {
    constants: Constants,
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
            constants: Constants { turn_fraction: take_turn_fraction(params)?, ..Constants::default() },
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
        if Turns::new(&self.constants, view).is_turn(view.now()) {
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
        if self.order.len() > 1 {
            Turns::new(&self.constants, view).next_change(view.now())
        } else {
            f64::INFINITY
        }
    }
}
