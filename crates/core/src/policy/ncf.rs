//! NCF: narrowest coflow first, by the number of flows that it had when it arrived (Varys, SIGCOMM '14, section 5.3:
//! width). CoflowSim takes the smaller number of endpoints instead: `by=endpoints`. Then a coflow of one mapper and many reducers
//! is as narrow as a single flow, and goes ahead of those with a few flows between pairs of ports.

use super::ordered::{Order, Ordered};
use super::{Params, ParamsError};
use crate::model::{Sizes, Slot, View};

/// Narrowest coflow first.
pub struct Ncf {
    by_endpoints: bool,
}

impl Ncf {
    pub(super) fn read(params: &mut Params) -> Result<Ordered<Ncf>, ParamsError> {
        let by_endpoints = params.choice("by", &[("flows", false), ("endpoints", true)])?;
        Ok(Ordered::new(Ncf { by_endpoints }))
    }
}

impl Order for Ncf {
    fn key(&self, slot: Slot, view: &View<'_, Sizes>) -> f64 {
        let coflow = view.coflow(slot);
        if self.by_endpoints {
            coflow.senders().len().min(coflow.receivers().len()) as f64
        } else {
            coflow.width() as f64
        }
    }
}
