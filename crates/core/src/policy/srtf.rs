//! SRTF: shortest remaining time first (Saath, CoNEXT '17, section 2.4: shortest job first with preemption).
//!
//! The paper does not define the remaining time of a coflow:
//!
//! - `time=bottleneck` (default): the time in which the remaining bytes complete on idle ports, set by the bottleneck
//!   port. Varys's SEBF uses the same key, so `srtf` and `varys` without deadlines give the same schedule.
//! - `time=flow`: the longest remaining flow at the full port rate, as in the estimate of section 4.3 (m_c). A coflow
//!   with many flows at one port then appears shorter than it is.

use super::ordered::{Order, Ordered};
use super::{Params, ParamsError};
use crate::model::{Sizes, Slot, View};

/// The order of SRTF.
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
