//! SRTF: shortest remaining time first (Saath, CoNEXT '17, section 2.4: shortest job first with preemption).
//!
//! The paper does not define the remaining time of a coflow:
//!
//! - `time=bottleneck` (default): the time in which the remaining bytes complete on idle ports, set by the bottleneck
//!   port. Varys's SEBF uses the same key, so `srtf` and `varys` without deadlines give the same schedule.
//! - `time=flow`: the longest remaining flow at the full port rate, as in the estimate of section 4.3 (m_c). A coflow
//!   with many flows at one port then appears shorter than it is.

use super::coflow_order::{CoflowOrder, OrderedPolicy};
use super::{Params, ParamsError};
use crate::model::{SizesKnown, Slot, View};

/// The order of SRTF.
pub struct Srtf {
    by_longest_flow: bool,
}

impl Srtf {
    pub(super) fn from_params(params: &mut Params) -> Result<OrderedPolicy<Srtf>, ParamsError> {
        Ok(OrderedPolicy::new(Srtf {
            by_longest_flow: params.take_choice("time", &[("bottleneck", false), ("flow", true)])?,
        }))
    }
}

impl CoflowOrder for Srtf {
    fn sort_key(&self, slot: Slot, view: &View<'_, SizesKnown>) -> f64 {
        if self.by_longest_flow { view.max_remaining_bytes(slot) } else { view.effective_bottleneck(slot) }
    }
}
