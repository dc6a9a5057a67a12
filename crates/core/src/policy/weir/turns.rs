//! Turns: the part of the time in which coflows are served in the order of release, so that none starves.

use super::super::coflow_order::SortedCoflows;
use super::super::interface::MIN_WAKEUP_SECONDS;
use super::super::{Params, ParamsError};
use super::Constants;
use crate::allocation::{Allocation, Rule};
use crate::model::{Knowledge, SizesOrEstimates, View};
use crate::solve::ResidualCapacity;

/// The minimum fraction of the time in turns. With far lower ones, periods would be infinite.
const MIN_FRACTION: f64 = 1e-6;

/// The turns of a network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turns {
    /// The fraction of each period.
    fraction: f64,
    /// The time from one turn to the next, in seconds; infinite without turns.
    period_seconds: f64,
}

impl Turns {
    /// A turn takes some intervals, or the time of some bytes on the fastest link.
    pub fn new<K: Knowledge>(constants: &Constants, view: &View<'_, K>) -> Turns {
        let fraction = constants.turn_fraction;
        let bytes_seconds = constants.turn_bytes / view.fabric().fastest_link_rate();
        let seconds = bytes_seconds.max(constants.turn_intervals * view.interval());
        Turns { fraction, period_seconds: seconds / fraction }
    }

    /// Whether `now` is in a turn.
    pub fn is_turn(self, now: f64) -> bool {
        (now / self.period_seconds).fract() < self.fraction
    }

    /// The end of the turn at `now`, or the start of the next turn; infinite without turns.
    pub fn next_change(self, now: f64) -> f64 {
        if self.fraction == 0.0 {
            return f64::INFINITY;
        }
        let periods = now / self.period_seconds;
        let phase = if periods.fract() < self.fraction { self.fraction } else { 1.0 };
        // By rounding, the change can be at `now` although it is not in effect.
        ((periods.floor() + phase) * self.period_seconds).max(now + MIN_WAKEUP_SECONDS)
    }
}

/// Takes the fraction of the time in turns.
pub(super) fn take_turn_fraction(params: &mut Params) -> Result<f64, ParamsError> {
    let is_valid = |&fraction: &f64| fraction == 0.0 || (MIN_FRACTION..1.0).contains(&fraction);
    let expected = "0, or a number from 0.000001 to below 1";
    params.take_value("turns", Constants::default().turn_fraction, is_valid, expected)
}

/// Serves a turn: coflows in the order of release, flow by flow.
pub(super) fn serve_turn<K: SizesOrEstimates>(
    order: &mut SortedCoflows,
    residual: &mut ResidualCapacity,
    view: &View<'_, K>,
    out: &mut Allocation,
) {
    order.sort(view, out, |_| 0.0);
    order.slots().for_each(|slot| out.set_rule(slot, Rule::InOrder));
    order.backfill(residual, view, out);
}
