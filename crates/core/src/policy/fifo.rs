//! FIFO: coflows in order of arrival.
//!
//! Varys (SIGCOMM '14, section 5) and CoflowSim use this order as a baseline. MADD and backfilling set the rates
//! ([`super::ordered`]).

use super::ordered::{Order, Ordered};
use super::{Params, ParamsError};
use crate::model::{Sizes, Slot, View};

/// The order of FIFO.
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
