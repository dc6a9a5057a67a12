//! The sensitivity model: how much slower an application is with a part of the bandwidth (section 4.1, Eq. 1).
//!
//! D(b) is the completion time with the part b of the bandwidth over that with all of it. The model is a polynomial of b.
//!
//! What the paper leaves open:
//!
//! - *Below the least bandwidth that was profiled* (5 %), which is where most shares of a busy link are: the polynomial as
//!   it is. Eq. 2 takes it so, and nothing is known there. Work conservation softens what it gets wrong.
//! - *D(1) = 1* is true of the measurements, but a fit need not keep it, and is not made to.
//! - *Fits that rise or are not convex.* A cubic through a true, falling, convex profile often does both; in the paper's
//!   Fig. 5 already, by the text's numbers. So neither is an error. [`Shape`] says it, for a person to judge.
//! - *A model below 1*, or below 0. No job is faster with less bandwidth: where a cubic says so it misses the profile, and what it
//!   predicts there is not to be read as a speedup. Sums of predictions can so be less than one for each application. Only differences
//!   of D matter to Eq. 2, so a cubic that is too low everywhere does no harm; one that dips and rises does, for its slope is wrong.

use crate::solve::Polynomial;

/// A part of the bandwidth, above 0 and up to 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Fraction(f64);

/// What is not a part of the bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("`{value}` is not a part of the bandwidth: expected a number above 0 and up to 1")]
pub struct FractionError {
    /// What was given.
    pub value: f64,
}

/// The slowdown of an application by the part of the bandwidth that it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sensitivity {
    model: Polynomial,
}

/// What a slowdown should do from no bandwidth to all of it, and whether a model does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// More bandwidth never slows it down.
    pub falls: bool,
    /// The more bandwidth there is, the less more of it helps.
    pub convex: bool,
}

impl Fraction {
    /// All of the bandwidth.
    pub const ALL: Fraction = Fraction(1.0);

    /// This part of the bandwidth.
    ///
    /// # Errors
    /// A number that is not above 0, or is above 1.
    pub fn new(value: f64) -> Result<Fraction, FractionError> {
        if value > 0.0 && value <= 1.0 { Ok(Fraction(value)) } else { Err(FractionError { value }) }
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// A part that the caller knows to be one.
    pub(crate) const fn of(value: f64) -> Fraction {
        Fraction(value)
    }
}

impl Sensitivity {
    /// The sensitivity that is modelled so.
    pub const fn new(model: Polynomial) -> Sensitivity {
        Sensitivity { model }
    }

    /// The polynomial.
    pub const fn model(&self) -> &Polynomial {
        &self.model
    }

    /// The slowdown that the model predicts. Below 1 it says nothing but that the fit misses there.
    pub fn slowdown(&self, bandwidth: Fraction) -> f64 {
        self.model.at(bandwidth.get())
    }

    /// Whether it falls and is convex from 0 to 1, the range of the shares of Eq. 2.
    pub fn shape(&self) -> Shape {
        Shape { falls: self.model.falls(0.0, 1.0), convex: self.model.is_convex(0.0, 1.0) }
    }
}
