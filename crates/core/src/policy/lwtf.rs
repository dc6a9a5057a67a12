//! LWTF: least waiting time first (Saath, CoNEXT '17, section 2.4).
//!
//! Coflows are ordered by t k: the time that the coflow needs, times the number of other coflows that it delays. The
//! product is the total waiting time that the coflow adds to the other coflows.
//!
//! The paper leaves both factors open:
//!
//! - *t* is the remaining time on idle ports, as in [`super::srtf`]. With the time at arrival, a coflow that has
//!   almost completed would not move ahead.
//! - *k* counts all active coflows that share a port. A count of the coflows that wait at that moment would make the
//!   order depend on the schedule that the order produces.
//!
//! A coflow that delays no other coflow has t k = 0 and goes first.

use super::coflow_order::{CoflowOrder, OrderedPolicy};
use super::{Event, Params, ParamsError};
use crate::model::{SizesKnown, Slot, View};
use crate::solve::Contention;

/// The order of LWTF.
#[derive(Default)]
pub struct Lwtf {
    contention: Contention,
}

impl Lwtf {
    pub(super) fn from_params(_: &mut Params) -> Result<OrderedPolicy<Lwtf>, ParamsError> {
        Ok(OrderedPolicy::new(Lwtf::default()))
    }
}

impl CoflowOrder for Lwtf {
    fn on_event(&mut self, event: Event, view: &View<'_, SizesKnown>) {
        self.contention.on_event(event, view);
    }

    fn prepare(&mut self, view: &View<'_, SizesKnown>) {
        self.contention.update_overlaps(view);
    }

    fn sort_key(&self, slot: Slot, view: &View<'_, SizesKnown>) -> f64 {
        view.effective_bottleneck(slot) * self.contention.contenders(slot).iter().count() as f64
    }
}
