//! Aalo+: Aalo with known coflow sizes, the baseline of Django's evaluation.
//!
//! Zheng et al., JPDC '21, section 6.1, gives no more than this: "a modified version of [...] Aalo. Here we assume
//! all the size information are known a priori". Aalo selects the queue by the bytes sent, because it does not know
//! the size. Aalo+ here selects the queue by the size of the coflow, and never changes it. The rest is as in
//! `aalo.rs`.

use super::aalo::{self, PortSharing};
use super::thresholds::Thresholds;
use super::{Params, ParamsError, Policy, Timing, TrunkSupport};
use crate::allocation::{Allocation, QueueDiscipline, Rule};
use crate::model::{SizesKnown, View};

/// Queues by coflow size.
pub struct AaloPlus {
    thresholds: Thresholds,
    queue_discipline: QueueDiscipline,
}

impl AaloPlus {
    pub(super) fn from_params(params: &mut Params) -> Result<AaloPlus, ParamsError> {
        let thresholds = Thresholds::from_params(params)?;
        let sharing = params.take_choice(
            "sharing",
            &[("weighted", PortSharing::Weighted), ("strict", PortSharing::Strict)],
        )?;
        let queue_discipline = aalo::queue_discipline(thresholds.queue_count(), sharing, params)?;
        Ok(AaloPlus { thresholds, queue_discipline })
    }
}

impl Policy for AaloPlus {
    type Knowledge = SizesKnown;

    fn timing(&self) -> Timing {
        Timing::local("the queue follows from the size, which is known at the start")
    }

    fn trunk_support(&self) -> TrunkSupport {
        TrunkSupport::Transport
    }

    /// O(coflows).
    fn schedule(&mut self, view: &mut View<'_, SizesKnown>, out: &mut Allocation) {
        if out.queue_discipline().is_none() {
            out.set_queue_discipline(self.queue_discipline.clone());
        }
        for &slot in view.active_coflows() {
            out.set_class(slot, self.thresholds.queue_by_remaining_bytes(view.total_bytes(slot)));
            out.set_rule(slot, Rule::Transport);
        }
    }
}
