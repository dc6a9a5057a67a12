//! SCF: shortest coflow first, by the size of a coflow at arrival.
//!
//! Saath (CoNEXT '17, section 2.4) calls "SCF based on the total bytes" the de-facto policy derived from shortest job
//! first: `by=size`, the default. Varys (SIGCOMM '14) and CoflowSim order coflows by the length of their longest
//! flow: `by=length`.

use super::coflow_order::{CoflowOrder, OrderedPolicy};
use super::{Params, ParamsError};
use crate::model::{SizesKnown, Slot, View};

/// The order of SCF.
pub struct Scf {
    by_length: bool,
}

impl Scf {
    pub(super) fn from_params(params: &mut Params) -> Result<OrderedPolicy<Scf>, ParamsError> {
        Ok(OrderedPolicy::new(Scf {
            by_length: params.take_choice("by", &[("size", false), ("length", true)])?,
        }))
    }
}

impl CoflowOrder for Scf {
    fn sort_key(&self, slot: Slot, view: &View<'_, SizesKnown>) -> f64 {
        if self.by_length { view.longest_flow_bytes(slot) } else { view.total_bytes(slot) }
    }
}
