//! LCF: lightest coflow first, by the remaining bytes of a coflow (the name is CoflowSim's).
//!
//! The policy `scf` is the static variant: it orders by the bytes at arrival.

use super::ordered::{Order, Ordered};
use super::{Params, ParamsError};
use crate::model::{Sizes, Slot, View};

/// The order of LCF.
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
