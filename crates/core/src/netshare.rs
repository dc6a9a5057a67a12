//! Per-flow state of NetShare's hosts and allocator: pure state machines with measurements as input.
//!
//! NetShare (UCSD 2010): [`RateThrottle`] is rate throttling (3.2, Algorithm 1), [`DemandEstimator`] the demands for the
//! central allocator (3.3), with the paper's [`DemandPredictor`], and [`limit_with_headroom`] the limit that hosts set from
//! the allocator's rates. [`shares_with_minima`] divides a link by weight with minimum rates. [`crate::solve::hierarchy`] is the
//! allocator. Callers pass one measurement every [`MEASUREMENT_PERIOD`].

mod bottleneck;
mod demand_estimator;
mod demand_predictor;
mod rate_throttle;
mod shares_with_minima;

pub use bottleneck::BottleneckDetector;
pub use demand_estimator::{DemandEstimator, FlowDemand};
pub use demand_predictor::DemandPredictor;
pub use rate_throttle::RateThrottle;
pub use shares_with_minima::shares_with_minima;

use crate::units::{Rate, Time};

/// Time between two measurements: 50 ms (3.2). For the central allocator, the paper only requires tens of
/// milliseconds or more (3.3); the same value is used.
pub const MEASUREMENT_PERIOD: Time = Time::from_valid(0.05);

/// Factor by which limits exceed measured or computed rates, so that flows can grow: 10 % (3.2, 3.3).
const HEADROOM_FACTOR: f64 = 1.1;

/// The limit that a host sets for a rate of the central allocator: 10 % more, so that the flow can grow (3.3, step
/// 4).
pub fn limit_with_headroom(rate: Rate) -> Rate {
    scale_rate(rate, HEADROOM_FACTOR)
}

/// The limit that a host sets for a flow with a known total demand: no headroom if the allocation is below the
/// demand.
///
/// Headroom lets a flow show a rising demand, but a known demand needs no such signal. On a fully allocated link,
/// headroom would let the queues decide instead of the allocator.
pub fn limit_for_demand(rate: Rate, demand: Rate) -> Rate {
    if rate < demand { rate } else { limit_with_headroom(rate) }
}

/// Multiplies a rate. Returns `rate` unchanged if the product is not finite.
fn scale_rate(rate: Rate, factor: f64) -> Rate {
    Rate::new(rate.get() * factor).unwrap_or(rate)
}
