//! What NetShare's hosts and allocator keep for each flow: pure state, fed with measurements.
//!
//! NetShare (UCSD 2010): [`Throttle`] is rate throttling (3.2, Algorithm 1), [`Demand`] the predictor of the central
//! allocator (3.3), [`enforced`] the limit that hosts set from its rates. The allocator itself is
//! [`crate::solve::hierarchy`]. Both measure every [`PERIOD`].

mod demand;
mod throttle;

pub use demand::Demand;
pub use throttle::Throttle;

use crate::units::{Rate, Time};

/// Between two measurements: 50 ms (3.2). What the central allocator's was the paper does not say, only that it should be tens
/// of milliseconds at least (3.3); here it is the same.
pub const PERIOD: Time = Time::of(0.05);

/// What flows may have above what was measured or computed, so that they can grow: 10 % (3.2, 3.3).
const HEADROOM: f64 = 1.1;

/// The limit that a host sets for a rate of the central allocator: 10 % more, so that the flow can grow (3.3, step 4).
pub fn enforced(rate: Rate) -> Rate {
    scaled(rate, HEADROOM)
}

/// The limit that a host sets for a flow whose whole demand is known: no headroom if the allocation is below the demand.
/// Headroom lets a flow show a rising demand, and this demand is visible without it; on a link that is allocated completely, headroom
/// only lets the queues decide instead of the allocator.
pub fn enforced_for(rate: Rate, demand: Rate) -> Rate {
    if rate < demand { rate } else { enforced(rate) }
}

/// A rate so many times as high; the highest there is if that is none.
fn scaled(rate: Rate, factor: f64) -> Rate {
    Rate::new(rate.get() * factor).unwrap_or(rate)
}
