//! FAIR: per-flow max-min fairness, as TCP shares links.
//!
//! This policy is UC-TCP in Saath (section 6.1): no queues, no coordination, all flows scheduled upon arrival. All
//! flows are in one class, and the transport shares the ports.
//!
//! As under all policies, flows that arrive between two schedules wait for the next schedule. TCP would start these
//! flows at once, but then a coflow would finish up to one interval earlier under `fair` than under the compared
//! policy. `--interval 0` removes the wait.

use super::{Params, ParamsError, Policy};
use crate::allocation::{Allocation, Inside, Queues, Receivers, Rule, Weights};
use crate::model::{Blind, View};

/// Max-min fairness between all flows.
pub struct Fair;

impl Fair {
    pub(super) fn read(_: &mut Params) -> Result<Fair, ParamsError> {
        Ok(Fair)
    }
}

impl Policy for Fair {
    type Knows = Blind;

    fn schedule(&mut self, view: &mut View<'_, Blind>, out: &mut Allocation) {
        if out.queues().is_none() {
            out.set_queues(Queues {
                weights: Weights::Weighted(vec![1.0]),
                inside: Inside::MaxMin,
                receivers: Receivers::Transport,
            });
        }
        for &slot in view.active() {
            out.set_rule(slot, Rule::Transport);
        }
    }
}
