//! FAIR: every flow gets its max-min share, as per-flow TCP would give it (Saath's UC-TCP, section 6.1: no queues, no
//! coordination, all flows scheduled upon arrival).
//!
//! The policy decides nothing: all flows are in one class, and the transport shares the ports. Like the flows of all policies, those that arrive between
//! two schedules wait for the next: TCP would not, but then a coflow would have up to an interval less under `fair` than under whatever it is
//! compared with. `--interval 0` is without.

use super::{Params, ParamsError, Policy};
use crate::allocation::{Allocation, Inside, Queues, Receivers, Rule, Weights};
use crate::model::{Blind, View};

/// Max-min between flows.
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
