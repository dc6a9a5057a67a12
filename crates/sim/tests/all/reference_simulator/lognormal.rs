//! The lognormal distribution, by series and numeric integration.

use std::f64::consts::PI;

/// Intervals of Simpson's rule over one level.
const STEPS: u32 = 64;

/// A lognormal distribution of sizes, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogNormal {
    pub(super) median: f64,
    pub(super) sigma: f64,
}

impl LogNormal {
    /// The probability that a size exceeds `seconds`.
    pub(super) fn survival(self, seconds: f64) -> f64 {
        upper_tail((seconds / self.median).ln() / self.sigma)
    }

    /// The probability of a size above `start`, up to `end`.
    pub(super) fn probability_between(self, start: f64, end: f64) -> f64 {
        self.survival(start) - self.survival(end)
    }

    /// The mean service that a coflow gets between two attained services: the integral of the survival.
    pub(super) fn service_between(self, start: f64, end: f64) -> f64 {
        let step = (end - start) / f64::from(STEPS);
        let weight = |at: u32| match at {
            0 | STEPS => 1.0,
            _ if at % 2 == 1 => 4.0,
            _ => 2.0,
        };
        let values = (0..=STEPS).map(|at| weight(at) * self.survival(start + f64::from(at) * step));
        values.sum::<f64>() * step / 3.0
    }
}

/// The probability that a standard normal variable exceeds `x`: near 0 by the series x + x^3 / 3 + x^5 / (3 * 5) + ..., and far
/// from 0 by the continued fraction 1 / (x + 1 / (x + 2 / (x + 3 / ...))), both times the density.
fn upper_tail(x: f64) -> f64 {
    let density = (-x * x / 2.0).exp() / (2.0 * PI).sqrt();
    if x < -3.0 {
        return 1.0 - upper_tail(-x);
    }
    if x > 3.0 {
        if density == 0.0 {
            return 0.0;
        }
        let tail = (1..200).rev().fold(x, |tail, k| x + f64::from(k) / tail);
        return density / tail;
    }
    let (mut term, mut sum) = (x, 0.0);
    for k in 1..100 {
        sum += term;
        term *= x * x / f64::from(2 * k + 1);
    }
    0.5 - density * sum
}

#[test]
fn upper_tail_equals_published_values() {
    // Abramowitz and Stegun, Handbook of Mathematical Functions, tables 26.1 and 26.2.
    for (x, expected) in
        [(0.0, 0.5), (1.0, 0.158655253931457), (2.0, 0.022750131948179), (4.0, 3.16712418331e-5)]
    {
        assert!((upper_tail(x) / expected - 1.0).abs() < 1e-11, "{x}: {}", upper_tail(x));
        assert!((upper_tail(-x) + upper_tail(x) - 1.0).abs() < 1e-14);
    }
}
