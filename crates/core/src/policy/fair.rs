//! FAIR: per-flow max-min fairness, as TCP shares links.
//!
//! This policy is UC-TCP in Saath (section 6.1): no queues, no coordination, all flows scheduled upon arrival. All
//! flows are in one class, and the transport shares the ports.

use super::{LinkService, Params, ParamsError, Policy, Routing, Timing, TrunkSupport};
use crate::allocation::{
    Allocation, InterQueueSharing, IntraQueueSharing, QueueDiscipline, ReceiverMode, Rule,
};
use crate::model::{SizesUnknown, View};

/// Max-min fairness between all flows.
pub struct Fair {
    detours: bool,
}

impl Fair {
    pub(super) fn from_params(params: &mut Params) -> Result<Fair, ParamsError> {
        Ok(Fair { detours: params.take_switch("detours", false)? })
    }
}

impl Policy for Fair {
    type Knowledge = SizesUnknown;

    fn trunk_support(&self) -> TrunkSupport {
        TrunkSupport::Transport
    }

    fn link_service(&self) -> LinkService {
        LinkService::MaxMin
    }

    fn timing(&self) -> Timing {
        Timing::local("TCP has no coordinator; Saath 6.1: \"scheduled upon arrival\"")
    }

    fn routing(&self) -> Routing {
        Routing { detours: self.detours, separate_receivers: true }
    }

    fn schedule(&mut self, view: &mut View<'_, SizesUnknown>, out: &mut Allocation) {
        if out.queue_discipline().is_none() {
            out.set_queue_discipline(QueueDiscipline {
                inter_queue: InterQueueSharing::Weighted(vec![1.0]),
                intra_queue: IntraQueueSharing::MaxMin,
                receiver_mode: ReceiverMode::Transport,
            });
        }
        for &slot in view.active_coflows() {
            out.set_rule(slot, Rule::Transport);
        }
    }
}
