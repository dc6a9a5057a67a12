//! Polynomials of degree up to 3: least-squares fits, R^2, and tests whether they fall or are convex.
//!
//! Katebzadeh et al., "Saba: Rethinking Datacenter Network Allocation from Application's Perspective", EuroSys '23,
//! Eq. 1 and section 4.2.
//!
//! Choices that the paper leaves open:
//!
//! - *The fit*: unconstrained least squares with equal weights. The polynomials that are orthogonal on the samples are
//!   built by their three-term recurrence (Forsythe, 1957). Each coefficient is one division, and no ill-conditioned
//!   system is solved.
//! - *R^2 of equal samples*, whose definition is 0 / 0: 1 if the fit passes through the samples, which holds up to
//!   rounding.

use crate::rounding;

/// The maximum absolute value of a coefficient. It keeps sums of many values, and of their squares, far from overflow.
pub const MAX_COEFFICIENT: f64 = 1e12;

/// c0 + c1 x + c2 x^2 + c3 x^3, with finite coefficients of at most [`MAX_COEFFICIENT`] in absolute value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Polynomial([f64; 4]);

/// The degree of a fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Degree {
    /// A line.
    Linear = 1,
    /// A parabola.
    Quadratic = 2,
    /// A cubic.
    Cubic = 3,
}

/// A fitted polynomial and how well it fits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// The polynomial.
    pub polynomial: Polynomial,
    /// R^2, the fraction of the samples' variance that the polynomial explains; at most 1.
    pub r2: f64,
}

/// An invalid polynomial or an invalid fit.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolynomialError {
    /// A coefficient is NaN or out of range.
    #[error(
        "coefficient c{index}: {value} is out of range; expected a number from -{MAX_COEFFICIENT:e} to {MAX_COEFFICIENT:e}"
    )]
    InvalidCoefficient {
        /// The power of x that the coefficient belongs to.
        index: usize,
        /// The coefficient.
        value: f64,
    },
    /// Wrong number of coefficients.
    #[error("coefficients: {count} given; expected 1 to 4")]
    CoefficientCount {
        /// Number of coefficients.
        count: usize,
    },
    /// A sample is not finite.
    #[error("sample {index}: ({x}, {y}) is not finite; expected two finite numbers")]
    InvalidSample {
        /// Its index, from 0.
        index: usize,
        /// The sample's x.
        x: f64,
        /// The sample's y.
        y: f64,
    },
    /// The samples do not determine a polynomial of this degree.
    #[error("samples at {distinct} distinct x; expected at least {expected} for degree {}", .expected - 1)]
    TooFewSamples {
        /// Number of distinct values of x.
        distinct: usize,
        /// The minimum number of distinct values of x.
        expected: usize,
    },
}

impl Degree {
    /// All degrees, from low to high.
    pub const ALL: [Degree; 3] = [Degree::Linear, Degree::Quadratic, Degree::Cubic];
}

impl Polynomial {
    /// The polynomial with these coefficients, the constant first; missing ones are 0.
    ///
    /// # Errors
    /// [`PolynomialError::CoefficientCount`] for no or more than four coefficients; [`PolynomialError::InvalidCoefficient`]
    /// for one that is NaN or above [`MAX_COEFFICIENT`] in absolute value.
    pub fn new(coefficients: &[f64]) -> Result<Polynomial, PolynomialError> {
        let mut all = [0.0; 4];
        if coefficients.is_empty() || coefficients.len() > all.len() {
            return Err(PolynomialError::CoefficientCount { count: coefficients.len() });
        }
        for (index, (&value, place)) in coefficients.iter().zip(&mut all).enumerate() {
            if value.is_nan() || value.abs() > MAX_COEFFICIENT {
                return Err(PolynomialError::InvalidCoefficient { index, value });
            }
            // Adding 0 turns -0 into 0: equal polynomials have equal bits.
            *place = value + 0.0;
        }
        Ok(Polynomial(all))
    }

    /// All four coefficients, the constant first.
    pub const fn coefficients(&self) -> &[f64; 4] {
        &self.0
    }

    /// The power of the last coefficient that is not 0.
    pub fn degree(&self) -> usize {
        self.0.iter().rposition(|&c| c != 0.0).unwrap_or(0)
    }

    /// The value at `x`.
    #[inline]
    pub fn evaluate(&self, x: f64) -> f64 {
        let [c0, c1, c2, c3] = self.0;
        c0 + x * (c1 + x * (c2 + x * c3))
    }

    /// The slope at `x`.
    #[inline]
    pub fn slope(&self, x: f64) -> f64 {
        let [_, c1, c2, c3] = self.0;
        c1 + x * (2.0 * c2 + x * (3.0 * c3))
    }

    /// The second derivative at `x`.
    #[inline]
    pub fn curvature(&self, x: f64) -> f64 {
        let [_, _, c2, c3] = self.0;
        2.0 * c2 + 6.0 * c3 * x
    }

    /// Whether it rises nowhere from `low` to `high`, up to rounding.
    pub fn is_decreasing(&self, low: f64, high: f64) -> bool {
        let [_, _, c2, c3] = self.0;
        let mut steepest = self.slope(low).max(self.slope(high));
        let top = -c2 / (3.0 * c3);
        if c3 < 0.0 && low < top && top < high {
            steepest = steepest.max(self.slope(top));
        }
        steepest <= self.rounding_tolerance()
    }

    /// Whether it is convex from `low` to `high`, up to rounding.
    pub fn is_convex(&self, low: f64, high: f64) -> bool {
        // The curvature is linear, so its minimum is at an end.
        self.curvature(low).min(self.curvature(high)) >= -self.rounding_tolerance()
    }

    fn rounding_tolerance(&self) -> f64 {
        rounding::SLOPE * self.0.iter().map(|c| c.abs()).sum::<f64>()
    }
}

/// The polynomial of this degree with the least sum of squared distances to the samples `(x, y)`. O(samples log
/// samples).
///
/// # Errors
/// [`PolynomialError::InvalidSample`] for a sample that is not finite, [`PolynomialError::TooFewSamples`] for too few
/// distinct x, and [`PolynomialError::InvalidCoefficient`] if a coefficient of the result is out of range.
pub fn fit_polynomial(samples: &[(f64, f64)], degree: Degree) -> Result<Fit, PolynomialError> {
    for (index, &(x, y)) in samples.iter().enumerate() {
        if !(x.is_finite() && y.is_finite()) {
            return Err(PolynomialError::InvalidSample { index, x, y });
        }
    }
    let mut distinct_x: Vec<f64> = samples.iter().map(|&(x, _)| x + 0.0).collect();
    distinct_x.sort_by(f64::total_cmp);
    distinct_x.dedup();
    let expected = degree as usize + 1;
    if distinct_x.len() < expected {
        return Err(PolynomialError::TooFewSamples { distinct: distinct_x.len(), expected });
    }

    // The residual of y. Projecting the residual instead of y keeps the rounding of one step out of the next.
    let mut residuals: Vec<f64> = samples.iter().map(|&(_, y)| y).collect();
    let mut sum = [0.0; 4];
    // The orthogonal polynomial of this degree and of the one before: coefficients, and values at the samples.
    let (mut current, mut previous) = ([1.0, 0.0, 0.0, 0.0], [0.0; 4]);
    let (mut current_values, mut previous_values) = (vec![1.0; samples.len()], vec![0.0; samples.len()]);
    let mut norm_before = 1.0;
    for power in 0..expected {
        let norm: f64 = current_values.iter().map(|p| p * p).sum();
        let coefficient = residuals.iter().zip(&current_values).map(|(y, p)| y * p).sum::<f64>() / norm;
        for (rest, p) in residuals.iter_mut().zip(&current_values) {
            *rest -= coefficient * p;
        }
        for (total, c) in sum.iter_mut().zip(&current) {
            *total += coefficient * c;
        }
        if power + 1 == expected {
            break;
        }
        let alpha = samples.iter().zip(&current_values).map(|(&(x, _), p)| x * p * p).sum::<f64>() / norm;
        let beta = if power == 0 { 0.0 } else { norm / norm_before };
        let mut next = [0.0; 4];
        for i in 0..4 {
            let raised = if i == 0 { 0.0 } else { current[i - 1] };
            next[i] = raised - alpha * current[i] - beta * previous[i];
        }
        for ((p, q), &(x, _)) in current_values.iter().zip(&mut previous_values).zip(samples) {
            *q = (x - alpha) * p - beta * *q;
        }
        std::mem::swap(&mut current_values, &mut previous_values);
        (previous, current) = (current, next);
        norm_before = norm;
    }
    let polynomial = Polynomial::new(&sum)?;
    Ok(Fit { polynomial, r2: r_squared(&polynomial, samples) })
}

/// R^2, the fraction of the samples' variance that `polynomial` explains; below 0 if their mean is a better fit. Requires
/// at least one sample.
pub fn r_squared(polynomial: &Polynomial, samples: &[(f64, f64)]) -> f64 {
    let mean = samples.iter().map(|&(_, y)| y).sum::<f64>() / samples.len() as f64;
    let error_sum: f64 = samples.iter().map(|&(x, y)| (y - polynomial.evaluate(x)).powi(2)).sum();
    let variance_sum: f64 = samples.iter().map(|&(_, y)| (y - mean).powi(2)).sum();
    let greatest = samples.iter().map(|&(_, y)| y.abs()).fold(0.0, f64::max);
    let rounding = samples.len() as f64 * (rounding::PARTS * greatest).powi(2);
    if error_sum <= rounding { 1.0 } else { 1.0 - error_sum / variance_sum }
}
