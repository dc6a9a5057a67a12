//! Tolerances for rounding, and the comparisons of times that use them: those of the engine, the policies, the solvers and the simulator.
//! The loop of `weir share` has others until the engine replaces it.
//!
//! One operation on doubles has a relative error of 1e-16. A schedule adds and subtracts the rates of up to a million flows at a link,
//! so the residual capacity of a link is exact to about 1e-10 of its capacity. Smaller tolerances are for shorter computations, and
//! larger ones for results of iterations. Thresholds with a meaning, such as the minimum weight of a service, stay where they are used.

/// A rate, residual capacity or excess up to this part of a link's capacity is the rounding of sums of rates.
pub const CAPACITY: f64 = 1e-9;

/// A sum of few parts that were computed from their whole differs from it by up to this part.
pub const PARTS: f64 = 1e-12;

/// Guarantees are parsed from decimals; their sum may exceed a link by this part. It is half of [`PARTS`], the allocator's own
/// tolerance, so that the allocator accepts the accepted sums in any order of addition.
pub const GUARANTEES: f64 = 0.5 * PARTS;

/// Bytes that a flow or coflow has sent, and the time that it needs, are products and quotients of few numbers: they reach a size, a
/// threshold or a deadline up to this part.
pub const PROGRESS: f64 = 1e-12;

/// Attained service is a difference of sums over the links of flows with the default estimate, which are exact to about a byte.
pub const ATTAINED: f64 = 1e-6;

/// Quotients of sums over the links of different coflows tie up to this part.
pub const TIE: f64 = 1e-9;

/// Levels of links, and factors of rates, are in order up to this part: above the error of one level, so that swaps and repairs end.
pub const ORDER: f64 = 1e-13;

/// Bounds of rates that two computations approach from both sides are equal if they differ by this part, or by this part of a port.
pub const BOUNDS: f64 = 1e-10;

/// An offer of a hierarchy's bounds is a product and a quotient; smaller differences are ties. The resulting error can be much larger:
/// when most flows have stopped, the residual capacity is a small fraction of the link.
pub const OFFER: f64 = 1e-15;

/// A rate of weighted queues has converged if a round changes it by at most this part.
pub const QUEUE_RATE: f64 = 1e-12;

/// A change of the load of weighted queues up to this part of the capacity is rounding.
pub const QUEUE_LOAD: f64 = 2e-15;

/// The level of connections at a link has not moved if it differs by at most this part of the capacity.
pub const LEVEL: f64 = 1e-12;

/// Slopes and curvatures of a polynomial up to this part of the sum of all absolute coefficients are rounding.
pub const SLOPE: f64 = 1e-9;

/// A duration: policies treat a billionth of a link's capacity as none.
pub const DURATION: f64 = 1e-9;

/// A time since the start.
pub const CLOCK: f64 = 1e-14;

/// A wake-up can be early by this many seconds, in which a flow sends a negligible number of bytes.
const EARLY_SECONDS: f64 = 1e-9;

/// Whether a duration is below another one by more than rounding. The later of them ends at `end`. Times are in seconds.
pub fn is_shorter(duration: f64, other: f64, end: f64) -> bool {
    duration + CLOCK * end < other * (1.0 - DURATION)
}

/// Whether `time` has come at `now`, or comes within rounding. Times are in seconds.
pub fn is_due(time: f64, now: f64) -> bool {
    time <= now * (1.0 + CLOCK) + EARLY_SECONDS
}
