//! Per-flow state of NetShare's hosts and allocator: pure state machines with measurements as input.
//!
//! NetShare (UCSD 2010): [`Throttle`] is rate throttling (3.2, Algorithm 1), [`Demand`] the demand predictor of the
//! central allocator (3.3), and [`enforced`] the limit that hosts set from the allocator's rates.
//! [`crate::solve::hierarchy`] is the allocator. Both measure every [`PERIOD`].

mod demand;
mod throttle;

pub use demand::Demand;
pub use throttle::Throttle;

use crate::units::{Rate, Time};

/// Time between two measurements: 50 ms (3.2). For the central allocator, the paper only requires tens of
/// milliseconds or more (3.3); the same value is used.
pub const PERIOD: Time = Time::of(0.05);

/// Factor by which limits exceed measured or computed rates, so that flows can grow: 10 % (3.2, 3.3).
const HEADROOM: f64 = 1.1;

/// The limit that a host sets for a rate of the central allocator: 10 % more, so that the flow can grow (3.3, step
/// 4).
pub fn enforced(rate: Rate) -> Rate {
    scaled(rate, HEADROOM)
}

/// The limit that a host sets for a flow with a known total demand: no headroom if the allocation is below the
/// demand.
///
/// Headroom lets a flow show a rising demand, but a known demand needs no such signal. On a fully allocated link,
/// headroom would let the queues decide instead of the allocator.
pub fn enforced_for(rate: Rate, demand: Rate) -> Rate {
    if rate < demand { rate } else { enforced(rate) }
}

/// Multiplies a rate. Returns `rate` unchanged if the product is not finite.
fn scaled(rate: Rate, factor: f64) -> Rate {
    Rate::new(rate.get() * factor).unwrap_or(rate)
}
