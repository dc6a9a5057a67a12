//! LWTF: least waiting time first (Saath, CoNEXT '17, section 2.4).
//!
//! The key of a coflow is t k: the time that the coflow needs, times the number of other coflows that it delays. The
//! product is the total waiting time that the coflow adds to the other coflows.
//!
//! The paper leaves both factors open:
//!
//! - *t* is the remaining time on idle ports, as in [`super::srtf`]. With the time at arrival, a coflow that has
//!   almost completed would not move ahead.
//! - *k* counts all active coflows that share a port. A count of the coflows that wait at that moment would make the
//!   order depend on the schedule that the order produces.
//!
//! A coflow that delays no other coflow has the key 0 and goes first.

use super::ordered::{Order, Ordered};
use super::{Event, Params, ParamsError};
use crate::model::{Sizes, Slot, View};
use crate::solve::Contention;

/// The order of LWTF.
#[derive(Default)]
pub struct Lwtf {
    rivals: Contention,
}

impl Lwtf {
    pub(super) fn read(_: &mut Params) -> Result<Ordered<Lwtf>, ParamsError> {
        Ok(Ordered::new(Lwtf::default()))
    }
}

impl Order for Lwtf {
    fn on(&mut self, event: Event, view: &View<'_, Sizes>) {
        self.rivals.on(event, view);
    }

    fn prepare(&mut self, view: &View<'_, Sizes>) {
        self.rivals.update(view);
    }

    fn key(&self, slot: Slot, view: &View<'_, Sizes>) -> f64 {
        view.bottleneck(slot) * self.rivals.rivals(slot).iter().count() as f64
    }
}
