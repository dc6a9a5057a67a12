//! Polynomials of degree 3 at most: least squares, R^2, and where they rise or bend the wrong way.
//!
//! Katebzadeh et al., "Saba: Rethinking Datacenter Network Allocation from Application's Perspective", EuroSys '23,
//! Eq. 1 and section 4.2.
//!
//! What the paper leaves open:
//!
//! - *How the polynomial is fitted.* Here: plain least squares, every sample alike, no constraint. The polynomials that
//!   are orthogonal on the samples are built by their three-term recurrence (Forsythe, 1957), so that each coefficient is
//!   one division and no ill-conditioned system is solved.
//! - *R^2 of samples that are all alike*, where its definition divides nothing by nothing: 1 if the fit goes through
//!   them, which it always does but for rounding.

/// The greatest size of a coefficient. It keeps sums of many values, and of their squares, far from overflow.
pub const MAX_COEFFICIENT: f64 = 1e12;

/// What rounding may make of a slope or a curvature that is nothing, as a part of the sum of all coefficients' sizes.
const ROUNDING: f64 = 1e-9;

/// c0 + c1 x + c2 x^2 + c3 x^3, with finite coefficients of at most [`MAX_COEFFICIENT`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Polynomial([f64; 4]);

/// The degree of a fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Degree {
    /// A line.
    One = 1,
    /// A parabola.
    Two = 2,
    /// A cubic.
    Three = 3,
}

/// A fitted polynomial and how well it fits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// The polynomial.
    pub polynomial: Polynomial,
    /// The part of the samples' variance that it explains: 1 is all of it.
    pub r2: f64,
}

/// Why there is no polynomial.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolynomialError {
    /// A coefficient that cannot be one.
    #[error(
        "coefficient c{index}: `{value}`: expected a number from -{MAX_COEFFICIENT:e} to {MAX_COEFFICIENT:e}"
    )]
    Coefficient {
        /// The power of x that it is for.
        index: usize,
        /// What was given.
        value: f64,
    },
    /// More or fewer coefficients than a polynomial has.
    #[error("coefficients: {count} given: expected 1 to 4")]
    Count {
        /// How many were given.
        count: usize,
    },
    /// A sample that cannot be one.
    #[error("sample {index}: `({x}, {y})`: expected two finite numbers")]
    Sample {
        /// Its position, from 0.
        index: usize,
        /// Where it was taken.
        x: f64,
        /// What was found there.
        y: f64,
    },
    /// The samples do not determine a polynomial.
    #[error("samples at {distinct} different places: expected at least {expected} for degree {}", .expected - 1)]
    TooFew {
        /// At how many places there are samples.
        distinct: usize,
        /// How many it takes.
        expected: usize,
    },
}

impl Degree {
    /// All of them, from low to high.
    pub const ALL: [Degree; 3] = [Degree::One, Degree::Two, Degree::Three];
}

impl Polynomial {
    /// The polynomial of these coefficients, the constant first; those that are left out are nothing.
    ///
    /// # Errors
    /// A coefficient that is not finite or too great, or none or more than four.
    pub fn new(coefficients: &[f64]) -> Result<Polynomial, PolynomialError> {
        let mut all = [0.0; 4];
        if coefficients.is_empty() || coefficients.len() > all.len() {
            return Err(PolynomialError::Count { count: coefficients.len() });
        }
        for (index, (&value, place)) in coefficients.iter().zip(&mut all).enumerate() {
            if value.is_nan() || value.abs() > MAX_COEFFICIENT {
                return Err(PolynomialError::Coefficient { index, value });
            }
            // No negative zeros: equal polynomials have equal bits.
            *place = value + 0.0;
        }
        Ok(Polynomial(all))
    }

    /// All four coefficients, the constant first.
    pub const fn coefficients(&self) -> &[f64; 4] {
        &self.0
    }

    /// The power of the last coefficient that is not nothing.
    pub fn degree(&self) -> usize {
        self.0.iter().rposition(|&c| c != 0.0).unwrap_or(0)
    }

    /// The value at `x`.
    #[inline]
    pub fn at(&self, x: f64) -> f64 {
        let [c0, c1, c2, c3] = self.0;
        c0 + x * (c1 + x * (c2 + x * c3))
    }

    /// The slope at `x`.
    #[inline]
    pub fn slope(&self, x: f64) -> f64 {
        let [_, c1, c2, c3] = self.0;
        c1 + x * (2.0 * c2 + x * (3.0 * c3))
    }

    /// How fast the slope grows at `x`.
    #[inline]
    pub fn curvature(&self, x: f64) -> f64 {
        let [_, _, c2, c3] = self.0;
        2.0 * c2 + 6.0 * c3 * x
    }

    /// Whether it rises nowhere from `low` to `high`, but for rounding.
    pub fn falls(&self, low: f64, high: f64) -> bool {
        let [_, _, c2, c3] = self.0;
        let mut steepest = self.slope(low).max(self.slope(high));
        let top = -c2 / (3.0 * c3);
        if c3 < 0.0 && low < top && top < high {
            steepest = steepest.max(self.slope(top));
        }
        steepest <= self.rounding()
    }

    /// Whether it is convex from `low` to `high`, but for rounding.
    pub fn is_convex(&self, low: f64, high: f64) -> bool {
        // The curvature is a line.
        self.curvature(low).min(self.curvature(high)) >= -self.rounding()
    }

    fn rounding(&self) -> f64 {
        ROUNDING * self.0.iter().map(|c| c.abs()).sum::<f64>()
    }
}

/// The polynomial of this degree with the least sum of squared distances to the samples `(x, y)`. O(samples).
///
/// # Errors
/// Samples that are not finite or too few for the degree, or coefficients that come out too great.
pub fn fit(samples: &[(f64, f64)], degree: Degree) -> Result<Fit, PolynomialError> {
    for (index, &(x, y)) in samples.iter().enumerate() {
        if !(x.is_finite() && y.is_finite()) {
            return Err(PolynomialError::Sample { index, x, y });
        }
    }
    let mut places: Vec<f64> = samples.iter().map(|&(x, _)| x + 0.0).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let expected = degree as usize + 1;
    if places.len() < expected {
        return Err(PolynomialError::TooFew { distinct: places.len(), expected });
    }

    // What the polynomials so far leave of y. Projecting that, and not y, keeps the rounding of one out of the next.
    let mut left: Vec<f64> = samples.iter().map(|&(_, y)| y).collect();
    let mut sum = [0.0; 4];
    // The orthogonal polynomial of this degree and of the one before: coefficients, and values at the samples.
    let (mut now, mut before) = ([1.0, 0.0, 0.0, 0.0], [0.0; 4]);
    let (mut at, mut at_before) = (vec![1.0; samples.len()], vec![0.0; samples.len()]);
    let mut norm_before = 1.0;
    for power in 0..expected {
        let norm: f64 = at.iter().map(|p| p * p).sum();
        let share = left.iter().zip(&at).map(|(y, p)| y * p).sum::<f64>() / norm;
        for (rest, p) in left.iter_mut().zip(&at) {
            *rest -= share * p;
        }
        for (total, c) in sum.iter_mut().zip(&now) {
            *total += share * c;
        }
        if power + 1 == expected {
            break;
        }
        let alpha = samples.iter().zip(&at).map(|(&(x, _), p)| x * p * p).sum::<f64>() / norm;
        let beta = if power == 0 { 0.0 } else { norm / norm_before };
        let mut next = [0.0; 4];
        for i in 0..4 {
            let raised = if i == 0 { 0.0 } else { now[i - 1] };
            next[i] = raised - alpha * now[i] - beta * before[i];
        }
        for ((p, q), &(x, _)) in at.iter().zip(&mut at_before).zip(samples) {
            *q = (x - alpha) * p - beta * *q;
        }
        std::mem::swap(&mut at, &mut at_before);
        (before, now) = (now, next);
        norm_before = norm;
    }
    let polynomial = Polynomial::new(&sum)?;
    Ok(Fit { polynomial, r2: determination(&polynomial, samples) })
}

/// R^2, the part of the variance of the samples that `polynomial` explains; below 0 if their mean does better.
/// Meant for at least one sample.
pub fn determination(polynomial: &Polynomial, samples: &[(f64, f64)]) -> f64 {
    let mean = samples.iter().map(|&(_, y)| y).sum::<f64>() / samples.len() as f64;
    let missed: f64 = samples.iter().map(|&(x, y)| (y - polynomial.at(x)).powi(2)).sum();
    let all: f64 = samples.iter().map(|&(_, y)| (y - mean).powi(2)).sum();
    let greatest = samples.iter().map(|&(_, y)| y.abs()).fold(0.0, f64::max);
    let rounding = samples.len() as f64 * (1e-12 * greatest).powi(2);
    if missed <= rounding { 1.0 } else { 1.0 - missed / all }
}
