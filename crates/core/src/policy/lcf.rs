//! LCF: lightest coflow first, by the remaining bytes of a coflow (the name is CoflowSim's).
//!
//! The policy `scf` is the static variant: it orders by the bytes at arrival.

use super::coflow_order::{CoflowOrder, OrderedPolicy};
use super::{Params, ParamsError};
use crate::model::{SizesKnown, Slot, View};

/// The order of LCF.
pub struct Lcf;

impl Lcf {
    pub(super) fn from_params(_: &mut Params) -> Result<OrderedPolicy<Lcf>, ParamsError> {
        Ok(OrderedPolicy::new(Lcf))
    }
}

impl CoflowOrder for Lcf {
    fn sort_key(&self, slot: Slot, view: &View<'_, SizesKnown>) -> f64 {
        view.total_remaining_bytes(slot)
    }
}
