//! Rate throttling: Algorithm 1 of NetShare (3.2), as written.
//!
//! The receiver reports the arriving rate. A change by 5 % or more sets the sender's limit: 20 % above the rate after a
//! rise, 10 % after a fall. The first smaller change after a rise sets the limit to 10 % above the rate; more small
//! changes do not change the limit. `L` is the last rate, and `f` is set by a rise and cleared by a small change.
//!
//! Choices that the paper leaves open, and effects of the algorithm:
//!
//! - Initially, no last rate (`L = 0`) and no limit exist. The first rate above zero is an infinite rise, so the
//!   limit becomes 20 % above this rate. Until then the flow is not limited.
//! - The example in the paper, "from 94 to 100 ... goes 20 % higher ... to roughly 114", contradicts Algorithm 1,
//!   which gives 120: 20 % above the measured 100. The following value of 110 agrees.
//! - `L` follows every report. A slow rise therefore stops at the limit. After a slow fall, the limit is far too high
//!   until the rate changes by 5 % at once. A slow rise up to a limit that a fall has set never raises the limit.
//! - A fall does not clear `f`. If `f` is set, the next small change sets the limit to 10 % above the rate again.

use super::{HEADROOM_FACTOR, scale_rate};
use crate::units::Rate;

/// Minimum change that counts, as a fraction of the last rate.
const HYSTERESIS: f64 = 0.05;
/// Factor of the limit for a rising rate.
const RISE_FACTOR: f64 = 1.2;

/// The limit of one flow's sender.
#[derive(Debug, Clone, PartialEq)]
pub struct RateThrottle {
    /// `T`: the minimum limit.
    min_limit: Rate,
    /// `L`.
    last_rate: Rate,
    /// `f`.
    has_risen: bool,
    /// `R`.
    limit: Option<Rate>,
}

impl RateThrottle {
    /// Creates the state of a flow without measurements. The limit does not fall below `min_limit`, because growth from a
    /// lower limit would take too long.
    pub fn new(min_limit: Rate) -> RateThrottle {
        RateThrottle { min_limit, last_rate: Rate::ZERO, has_risen: false, limit: None }
    }

    /// The limit; `None` before the first rate above zero.
    pub fn limit(&self) -> Option<Rate> {
        self.limit
    }

    /// Processes the rate that the receiver measured. Returns the new limit.
    pub fn update_limit(&mut self, measured_rate: Rate) -> Option<Rate> {
        let (rate, last) = (measured_rate.get(), self.last_rate.get());
        // |L - C| / L >= 5 %, without the division: L may be 0.
        if rate != last && (rate - last).abs() >= HYSTERESIS * last {
            if rate > last {
                self.limit = Some(scale_rate(measured_rate, RISE_FACTOR));
                self.has_risen = true;
            } else {
                self.limit = Some(scale_rate(measured_rate, HEADROOM_FACTOR));
            }
        } else if self.has_risen {
            self.limit = Some(scale_rate(measured_rate, HEADROOM_FACTOR));
            self.has_risen = false;
        }
        if let Some(limit) = &mut self.limit
            && *limit < self.min_limit
        {
            *limit = self.min_limit;
        }
        self.last_rate = measured_rate;
        self.limit
    }
}
