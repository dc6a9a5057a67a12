//! Aalo+: Aalo with the sizes of coflows known, the rival of Django's evaluation.
//!
//! Zheng et al., JPDC '21, section 6.1: "a modified version of [...] Aalo. Here we assume all the size information are known a
//! priori". That is all the paper says. Aalo puts a coflow into a queue by what it has sent, since it does not know the whole; here the
//! queue is that of the whole from the start, and stays. All else is Aalo's: see `aalo.rs`.

use super::aalo::{self, Sharing};
use super::thresholds::Thresholds;
use super::{Params, ParamsError, Policy};
use crate::allocation::{Allocation, Queues, Rule};
use crate::model::{Sizes, View};

/// Queues by size.
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
