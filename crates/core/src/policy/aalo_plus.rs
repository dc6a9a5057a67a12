//! Aalo+: Aalo with known coflow sizes, the baseline of Django's evaluation.
//!
//! Zheng et al., JPDC '21, section 6.1, gives no more than this: "a modified version of [...] Aalo. Here we assume
//! all the size information are known a priori". Aalo selects the queue by the bytes sent, because it does not know
//! the size. Aalo+ here selects the queue by the size of the coflow, and never changes it. The rest is as in
//! `aalo.rs`.

use super::aalo::{self, Sharing};
use super::thresholds::Thresholds;
use super::{Params, ParamsError, Policy};
use crate::allocation::{Allocation, Queues, Rule};
use crate::model::{Sizes, View};

/// Queues by coflow size.
pub struct AaloPlus {
    thresholds: Thresholds,
    queues: Queues,
}

impl AaloPlus {
    pub(super) fn read(params: &mut Params) -> Result<AaloPlus, ParamsError> {
        let thresholds = Thresholds::read(params)?;
        let sharing =
            params.choice("sharing", &[("weighted", Sharing::Weighted), ("strict", Sharing::Strict)])?;
        let queues = aalo::queues(thresholds.queues(), sharing, params)?;
        Ok(AaloPlus { thresholds, queues })
    }
}

impl Policy for AaloPlus {
    type Knows = Sizes;

    /// O(coflows).
    fn schedule(&mut self, view: &mut View<'_, Sizes>, out: &mut Allocation) {
        if out.queues().is_none() {
            out.set_queues(self.queues.clone());
        }
        for &slot in view.active() {
            out.set_class(slot, self.thresholds.by_left(view.bytes(slot)));
            out.set_rule(slot, Rule::Transport);
        }
    }
}
