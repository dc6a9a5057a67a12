//! SRTF: shortest remaining time first (Saath, CoNEXT '17, section 2.4: shortest job first with preemption).
//!
//! The paper does not say what a coflow's remaining time is. Here: the time in which what it has left would end on idle
//! ports, set by its bottleneck port. That is the key of Varys's SEBF too, so without deadlines `srtf` and `varys` give the
//! same schedule. `time=flow` takes the longest flow left at the full port rate, as section 4.3 does for its
//! estimate (m_c); a coflow with many flows at one port then looks shorter than it is.

use super::ordered::{Order, Ordered};
use super::{Params, ParamsError};
use crate::model::{Sizes, Slot, View};

/// Shortest remaining time first.
pub struct Srtf {
    by_flow: bool,
}

impl Srtf {
    pub(super) fn read(params: &mut Params) -> Result<Ordered<Srtf>, ParamsError> {
        Ok(Ordered::new(Srtf { by_flow: params.choice("time", &[("bottleneck", false), ("flow", true)])? }))
    }
}

impl Order for Srtf {
    fn key(&self, slot: Slot, view: &View<'_, Sizes>) -> f64 {
        if self.by_flow { view.longest_left(slot) } else { view.bottleneck(slot) }
    }
}
