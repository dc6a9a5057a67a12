//! LWTF: least waiting time first (Saath, CoNEXT '17, section 2.4): by t k, the time that a coflow needs times the
//! number of other coflows that it keeps waiting, which is what the others wait longer because of it.
//!
//! Open in the paper: *t* is the remaining time on idle ports, as in [`super::srtf`]; *k* counts all coflows under way that
//! share a port. A coflow that keeps nobody waiting has the key 0 and goes first: it costs nothing. With the time that it had on
//! arrival for *t*, a coflow that is nearly done would not move ahead; with only those of the others that wait just then for *k*,
//! the order would depend on the schedule that follows from it.

use super::ordered::{Order, Ordered};
use super::{Event, Params, ParamsError};
use crate::model::{Sizes, Slot, View};
use crate::solve::Contention;

/// Least waiting time first.
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
