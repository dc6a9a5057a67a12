//! NCF: narrowest coflow first, by the number of flows at arrival (Varys, SIGCOMM '14, section 5.3: width).
//!
//! CoflowSim uses the smaller of the numbers of senders and receivers instead: `by=endpoints`. A coflow of one mapper
//! and many reducers is then as narrow as a single flow, and goes before coflows of a few flows between separate
//! pairs of ports.

use super::coflow_order::{CoflowOrder, OrderedPolicy};
use super::{Params, ParamsError};
use crate::model::{SizesKnown, Slot, View};

/// The order of NCF.
pub struct Ncf {
    by_endpoints: bool,
}

impl Ncf {
    pub(super) fn from_params(params: &mut Params) -> Result<OrderedPolicy<Ncf>, ParamsError> {
        let by_endpoints = params.take_choice("by", &[("flows", false), ("endpoints", true)])?;
        Ok(OrderedPolicy::new(Ncf { by_endpoints }))
    }
}

impl CoflowOrder for Ncf {
    fn sort_key(&self, slot: Slot, view: &View<'_, SizesKnown>) -> f64 {
        let coflow = view.coflow(slot);
        if self.by_endpoints {
            coflow.senders().len().min(coflow.receivers().len()) as f64
        } else {
            coflow.width() as f64
        }
    }
}
