//! The demand of a flow for the central allocator (3.3).
//!
//! The paper predicts demands from "offered traffic". A host measures only the traffic that TCP sends, which congestion reduces: if
//! that were the demand, the queues of switches would decide instead of the allocator (`docs/results/netshare.md`, Fig. 5 in the
//! loop). Therefore *backlog* is demand, not the rate:
//!
//! - A flow that had data to send during all of the last 5 periods, or sent at its limit, wants to send more. It demands everything,
//!   unless it is [limited elsewhere](BottleneckDetector).
//! - Any other flow demands the [predicted rate](DemandPredictor), but not less than it sent in one of the last 5 periods if it had data
//!   to send during all of the last one: something held it back then, so its rate was not its demand.

use super::{BottleneckDetector, DemandPredictor};
use crate::units::Rate;

/// The number of recent periods that decide, as many as the prediction uses.
const HISTORY_PERIODS: usize = 5;

/// A flow that has sent this fraction of its limit has used all of it. The value is above 1 / 1.1: a flow with a lower demand may
/// have a limit of a tenth more than that demand.
const FULL_USE_FRACTION: f64 = 0.95;

/// What a flow can send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FlowDemand {
    /// This rate.
    Rate(Rate),
    /// All bandwidth.
    Unlimited,
}

/// The measurements of one flow.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DemandEstimator {
    predictor: DemandPredictor,
    /// The rates of the last periods, with their limits, from the oldest to the latest; the rest is unused.
    recent: [(f64, f64); HISTORY_PERIODS],
    count: usize,
    /// Consecutive periods with backlog, up to [`HISTORY_PERIODS`].
    backlogged_periods: usize,
    bottleneck: BottleneckDetector,
}

impl DemandEstimator {
    /// Creates the state of a flow without measurements.
    pub fn new() -> DemandEstimator {
        DemandEstimator::default()
    }

    /// Adds the period that ends now: the rate that the flow sent, the limit that was in force, and whether the flow was backlogged: it had
    /// data to send all the time, and neither its program nor its receiver's window held it back.
    pub fn add_measurement(&mut self, rate: Rate, limit: Option<Rate>, is_backlogged: bool) {
        self.predictor.add_measurement(rate);
        if self.count == HISTORY_PERIODS {
            self.recent.rotate_left(1);
            self.count -= 1;
        }
        self.recent[self.count] = (rate.get(), limit.map_or(f64::INFINITY, Rate::get));
        self.count += 1;
        self.backlogged_periods =
            if is_backlogged { HISTORY_PERIODS.min(self.backlogged_periods + 1) } else { 0 };
        self.bottleneck.add_period(rate, limit, self.wants_more());
    }

    /// Whether the flow would send more than it does.
    pub fn wants_more(&self) -> bool {
        let recent = &self.recent[..self.count];
        let sent: f64 = recent.iter().map(|(rate, _)| rate).sum();
        let limits: f64 = recent.iter().map(|(_, limit)| limit).sum();
        self.backlogged_periods == HISTORY_PERIODS || self.count > 0 && sent >= FULL_USE_FRACTION * limits
    }

    /// The highest rate of the last periods.
    fn max_recent_rate(&self) -> f64 {
        self.recent[..self.count].iter().map(|(rate, _)| *rate).fold(0.0, f64::max)
    }

    /// The demand in the next period. `None` without measurements.
    pub fn demand(&self) -> Option<FlowDemand> {
        let predicted_rate = self.predictor.predict_rate()?;
        Some(match self.bottleneck.demand() {
            _ if !self.wants_more() && self.backlogged_periods > 0 => {
                FlowDemand::Rate(Rate::new(self.max_recent_rate().max(predicted_rate.get()))?)
            }
            _ if !self.wants_more() => FlowDemand::Rate(predicted_rate),
            // The flow is about to rise.
            FlowDemand::Rate(rate) if rate < predicted_rate => FlowDemand::Rate(predicted_rate),
            demand => demand,
        })
    }
}
