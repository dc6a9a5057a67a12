//! FIFO: coflows in order of arrival.
//!
//! Varys (SIGCOMM '14, section 5) and CoflowSim use this order as a baseline. MADD and backfilling set the rates
//! ([`super::coflow_order`]).

use super::coflow_order::{CoflowOrder, OrderedPolicy};
use super::{Params, ParamsError};

/// The order of FIFO.
pub struct Fifo;

impl Fifo {
    pub(super) fn from_params(_: &mut Params) -> Result<OrderedPolicy<Fifo>, ParamsError> {
        Ok(OrderedPolicy::new(Fifo))
    }
}

// The order of release is the default.
impl CoflowOrder for Fifo {
    fn is_constant(&self) -> bool {
        true
    }
}
