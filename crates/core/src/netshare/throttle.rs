//! Rate throttling: Algorithm 1 of NetShare (3.2), as written.
//!
//! The receiver measures what arrives; the sender's limit follows it with room to grow, 20 % after a rise and 10 %
//! otherwise. What the paper leaves open:
//!
//! - At the start there is no last rate (`L = 0`) and no limit. The first rate above zero is an endless rise, so the
//!   limit becomes 20 % more than that; until then the flow is not limited.
//! - Its example, "from 94 to 100 ... goes 20 % higher ... to roughly 114", is not what Algorithm 1 says: that is 120,
//!   20 % more than the 100 measured now. The 110 that follows agrees.
//! - `L` moves with every report, so a rate that creeps by less than 5 % each time leaves the limit where it is. That stops
//!   a rise at the limit, but a slow fall leaves a limit that is far too high until the rate changes by 5 % at once, and a slow rise
//!   up to the limit that a fall has set never lifts it.
//! - A fall does not clear `f`; at worst the next small change sets the limit to 10 % above the rate again.

use super::{HEADROOM, scaled};
use crate::units::Rate;

/// A change of this part of the last rate counts.
const HYSTERESIS: f64 = 0.05;
/// What a flow may have above a rate that rises.
const RISING: f64 = 1.2;

/// The limit of one flow's sender.
#[derive(Debug, Clone, PartialEq)]
pub struct Throttle {
    /// `T`: limits do not fall below.
    floor: Rate,
    /// `L`.
    last: Rate,
    /// `f`.
    rose: bool,
    /// `R`.
    limit: Option<Rate>,
}

impl Throttle {
    /// A flow that nothing is known of. Its limit will not fall below `floor`, from which growth would take too long.
    pub fn new(floor: Rate) -> Throttle {
        Throttle { floor, last: Rate::ZERO, rose: false, limit: None }
    }

    /// The limit; none before anything was received.
    pub fn limit(&self) -> Option<Rate> {
        self.limit
    }

    /// The receiver measured `current`. The answer is the new limit.
    pub fn report(&mut self, current: Rate) -> Option<Rate> {
        let (rate, last) = (current.get(), self.last.get());
        // |L - C| / L >= 5 %, without the division: L may be 0.
        if rate != last && (rate - last).abs() >= HYSTERESIS * last {
            if rate > last {
                self.limit = Some(scaled(current, RISING));
                self.rose = true;
            } else {
                self.limit = Some(scaled(current, HEADROOM));
            }
        } else if self.rose {
            self.limit = Some(scaled(current, HEADROOM));
            self.rose = false;
        }
        if let Some(limit) = &mut self.limit
            && *limit < self.floor
        {
            *limit = self.floor;
        }
        self.last = current;
        self.limit
    }
}
