//! LCF: lightest coflow first, by the bytes that a coflow has left (CoflowSim's name for it).
//!
//! `scf` is its static sister: the same bytes, as they were on arrival.

use super::ordered::{Order, Ordered};
use super::{Params, ParamsError};
use crate::model::{Sizes, Slot, View};

/// Lightest coflow first.
pub struct Lcf;

impl Lcf {
    pub(super) fn read(_: &mut Params) -> Result<Ordered<Lcf>, ParamsError> {
        Ok(Ordered::new(Lcf))
    }
}

impl Order for Lcf {
    fn key(&self, slot: Slot, view: &View<'_, Sizes>) -> f64 {
        view.left(slot)
    }
}
