//! FIFO: coflows in the order in which they arrive.
//!
//! The order that Varys (SIGCOMM '14, section 5) and CoflowSim compare with; rates by MADD and backfilling as for
//! every order ([`super::ordered`]).

use super::ordered::{Order, Ordered};
use super::{Params, ParamsError};
use crate::model::{Sizes, Slot, View};

/// First in, first out.
pub struct Fifo;

impl Fifo {
    pub(super) fn read(_: &mut Params) -> Result<Ordered<Fifo>, ParamsError> {
        Ok(Ordered::new(Fifo))
    }
}

impl Order for Fifo {
    fn key(&self, slot: Slot, view: &View<'_, Sizes>) -> f64 {
        view.coflow(slot).seq as f64
    }
}
