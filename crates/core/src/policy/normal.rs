//! The standard normal distribution.

use std::f64::consts::SQRT_2;

/// The probability that a standard normal variable exceeds `x`.
pub(super) fn upper_tail(x: f64) -> f64 {
    0.5 * libm::erfc(x / SQRT_2)
}
