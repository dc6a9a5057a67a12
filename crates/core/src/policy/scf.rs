//! SCF: shortest coflow first, by the size of a coflow at arrival.
//!
//! Saath (CoNEXT '17, section 2.4) calls "SCF based on the total bytes" the de-facto policy derived from shortest job
//! first: `by=size`, the default. Varys (SIGCOMM '14) and CoflowSim order coflows by the length of their longest
//! flow: `by=length`.

use super::ordered::{Order, Ordered};
use super::{Params, ParamsError};
use crate::model::{Sizes, Slot, View};

/// The order of SCF.
pub struct Scf {
    by_length: bool,
}

impl Scf {
    pub(super) fn read(params: &mut Params) -> Result<Ordered<Scf>, ParamsError> {
        Ok(Ordered::new(Scf { by_length: params.choice("by", &[("size", false), ("length", true)])? }))
    }
}

impl Order for Scf {
    fn key(&self, slot: Slot, view: &View<'_, Sizes>) -> f64 {
        if self.by_length { view.longest(slot) } else { view.bytes(slot) }
    }
}
