//! The sensitivity model: the slowdown of an application as a function of its fraction of the bandwidth (section 4.1,
//! Eq. 1).
//!
//! D(b) is the completion time with the fraction b of the bandwidth, divided by the completion time with all bandwidth.
//! The model is a polynomial of b.
//!
//! Choices that the paper leaves open:
//!
//! - *Below the minimum profiled bandwidth* (5 %), where most shares of a busy link are, the polynomial is used
//!   without change. Eq. 2 does the same, and no measurements exist there. Work conservation reduces the effect of
//!   errors.
//! - *D(1) = 1* holds for the measurements, but not necessarily for a fit, which is not forced to it.
//! - *Fits that rise or are not convex* are not errors. A cubic fit of a decreasing, convex profile often rises or is
//!   not convex; the paper's text gives such numbers for its Fig. 5. [`ModelShape`] reports such fits to the operator.
//! - *A model below 1*, or below 0, is not a speedup: no job is faster with less bandwidth, and a cubic with such
//!   values misses the profile. Sums of predicted slowdowns can therefore be less than the number of applications.
//!   Eq. 2 depends only on differences of D, so a cubic that is too low everywhere is harmless. A cubic that dips and
//!   rises is not, because its slope is wrong.

use crate::solve::Polynomial;

/// A fraction of the bandwidth, above 0 and up to 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Fraction(f64);

/// A number is not a fraction of the bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("`{value}` is not a fraction of the bandwidth; expected a number above 0 and up to 1")]
pub struct FractionError {
    /// The rejected number.
    pub value: f64,
}

/// The slowdown of an application, as a function of its fraction of the bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sensitivity {
    model: Polynomial,
}

/// The expected properties of a slowdown between no bandwidth and all bandwidth, and whether a model has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelShape {
    /// More bandwidth never increases the slowdown.
    pub is_decreasing: bool,
    /// Additional bandwidth helps less if the application has more.
    pub is_convex: bool,
}

impl Fraction {
    /// All bandwidth.
    pub const ALL: Fraction = Fraction(1.0);

    /// Creates a fraction of the bandwidth.
    ///
    /// # Errors
    /// [`FractionError`] if the number is not above 0, or is above 1.
    pub fn new(value: f64) -> Result<Fraction, FractionError> {
        if value > 0.0 && value <= 1.0 { Ok(Fraction(value)) } else { Err(FractionError { value }) }
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Creates a fraction of the bandwidth. The caller ensures that `value` is above 0 and at most 1.
    pub(crate) const fn from_valid(value: f64) -> Fraction {
        Fraction(value)
    }
}

impl Default for Sensitivity {
    /// The sensitivity of an application about which nothing is known: twice the time at half of the bandwidth.
    fn default() -> Sensitivity {
        Sensitivity::with_slowdown(2.0)
    }
}

impl Sensitivity {
    /// The maximum slowdown of [`Sensitivity::with_slowdown`].
    pub const MAX_SLOWDOWN: f64 = 1e6;

    /// The sensitivity model of an application with this slowdown at half of the bandwidth, from 1 to [`Sensitivity::MAX_SLOWDOWN`]:
    /// D(b) = 1 + 4 (s - 1) (1 - b)^2.
    ///
    /// # Panics
    /// If the slowdown is far outside of this range.
    pub fn with_slowdown(slowdown: f64) -> Sensitivity {
        let k = 4.0 * (slowdown - 1.0);
        let model = Polynomial::new(&[1.0 + k, -2.0 * k, k]);
        Sensitivity::new(model.expect("a slowdown of at most 1e6 has coefficients of at most 8e6"))
    }

    /// Creates a sensitivity from its model.
    pub const fn new(model: Polynomial) -> Sensitivity {
        Sensitivity { model }
    }

    /// The polynomial.
    pub const fn model(&self) -> &Polynomial {
        &self.model
    }

    /// The slowdown that the model predicts. A value below 1 only means that the fit is inaccurate there.
    pub fn slowdown(&self, bandwidth: Fraction) -> f64 {
        self.model.evaluate(bandwidth.get())
    }

    /// Whether the model decreases and is convex from 0 to 1, the range of the shares of Eq. 2.
    pub fn shape(&self) -> ModelShape {
        ModelShape {
            is_decreasing: self.model.is_decreasing(0.0, 1.0),
            is_convex: self.model.is_convex(0.0, 1.0),
        }
    }
}
