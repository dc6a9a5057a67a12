//! FIFO: coflows in order of arrival.
//!
//! Varys (SIGCOMM '14, section 5) and CoflowSim use this order as a baseline. MADD and backfilling set the rates
//! ([`super::coflow_order`]).

use super::coflow_order::{CoflowOrder, OrderedPolicy};
use super::{Params, ParamsError};
use crate::model::{SizesKnown, Slot, View};

/// The order of FIFO.
pub struct Fifo;

impl Fifo {
    pub(super) fn from_params(_: &mut Params) -> Result<OrderedPolicy<Fifo>, ParamsError> {
        Ok(OrderedPolicy::new(Fifo))
    }
}

impl CoflowOrder for Fifo {
    fn sort_key(&self, slot: Slot, view: &View<'_, SizesKnown>) -> f64 {
        view.coflow(slot).seq as f64
    }
}
