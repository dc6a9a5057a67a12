//! The convex envelope of a cubic over a range, and the cheapest part of the range at a price.
//!
//! A cubic is convex on one side of its inflection and concave on the other. Its envelope is the cubic where the cubic is
//! convex, up to the point at which a line from the far end of the concave side is a tangent; that line (the chord) is
//! the rest of the envelope. A cubic minus its tangent at t has a double root at t, and its three roots sum to -c2 / c3.
//! The tangent through the cubic's point at `end` therefore touches at t = (-c2 / c3 - end) / 2.

use crate::solve::Polynomial;

/// The convex envelope of a cubic from `low` to `high`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope {
    pub(super) low: f64,
    pub(super) high: f64,
    /// The range in which the cubic is its envelope. A chord leads from `low` to `from`, or from `to` to `high`, if they
    /// differ. If one chord is the whole envelope, `from` and `to` are `low`, and both slopes are the chord's.
    from: f64,
    to: f64,
    slope_from: f64,
    slope_to: f64,
    /// Coefficients of the slope c1 + 2 c2 w + 3 c3 w^2.
    c1: f64,
    c2: f64,
    c3x3: f64,
    /// Whether the cubic is a line, on which all points cost the same at its slope.
    pub(super) straight: bool,
}

/// The cheapest parts at a price: all from `least` to `most`, but only these two if the cubic is above its chord.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cheapest {
    pub(super) least: f64,
    pub(super) most: f64,
    /// The derivative of the part with respect to the price.
    pub(super) growth: f64,
}

impl Envelope {
    pub(super) fn new(cost: &Polynomial, low: f64, high: f64) -> Envelope {
        let [_, c1, c2, c3] = *cost.coefficients();
        let mut envelope = Envelope {
            low,
            high,
            from: low,
            to: high,
            slope_from: 0.0,
            slope_to: 0.0,
            c1,
            c2,
            c3x3: 3.0 * c3,
            straight: c2 == 0.0 && c3 == 0.0,
        };
        let (bends_low, bends_high) = (cost.curvature(low), cost.curvature(high));
        if bends_low < 0.0 && bends_high > 0.0 {
            envelope.from = (0.5 * (-c2 / c3 - low)).max(low);
        } else if bends_low > 0.0 && bends_high < 0.0 {
            envelope.to = (0.5 * (-c2 / c3 - high)).min(high);
        }
        let curved = (bends_low > 0.0 || bends_high > 0.0) && envelope.from < envelope.to;
        if curved {
            envelope.slope_from = cost.slope(envelope.from);
            // Rounding must not reverse the order of the slopes.
            envelope.slope_to = cost.slope(envelope.to).max(envelope.slope_from);
        } else {
            // (D(high) - D(low)) / (high - low), without the difference of two similar numbers.
            let chord = c1 + c2 * (low + high) + c3 * (low * low + low * high + high * high);
            (envelope.from, envelope.to) = (low, low);
            (envelope.slope_from, envelope.slope_to) = (chord, chord);
        }
        envelope
    }

    /// The lowest and the highest slope.
    pub(super) fn slopes(&self) -> (f64, f64) {
        (self.slope_from, self.slope_to)
    }

    /// The slope of the chord: the price at which the cheapest part jumps.
    pub(super) fn jump(&self) -> Option<f64> {
        if self.low < self.from {
            Some(self.slope_from)
        } else if self.to < self.high {
            Some(self.slope_to)
        } else {
            None
        }
    }

    /// The cheapest parts w if each unit has the reward `price`: the minima of D(w) - price w.
    #[inline]
    pub(super) fn cheapest(&self, price: f64) -> Cheapest {
        if self.slope_from < price && price < self.slope_to {
            // The root of D'(w) = price at which D is convex, in the form without cancellation.
            let root = (self.c2 * self.c2 + self.c3x3 * (price - self.c1)).max(0.0).sqrt();
            let part = if self.c2 >= 0.0 {
                (price - self.c1) / (self.c2 + root)
            } else {
                (root - self.c2) / self.c3x3
            };
            // Comparisons instead of `max` and `min`, which would handle NaN: no value here is NaN.
            let part = if part < self.from { self.from } else { part };
            let part = if part > self.to { self.to } else { part };
            return Cheapest { least: part, most: part, growth: 0.5 / root };
        }
        let least = if price <= self.slope_from {
            self.low
        } else if price <= self.slope_to {
            self.to
        } else {
            self.high
        };
        let most = if price >= self.slope_to {
            self.high
        } else if price >= self.slope_from {
            self.from
        } else {
            self.low
        };
        Cheapest { least, most, growth: 0.0 }
    }

    /// The envelope's value at `w`.
    pub(super) fn at(&self, cost: &Polynomial, w: f64) -> f64 {
        if w < self.from {
            cost.at(self.from) - self.slope_from * (self.from - w)
        } else if w > self.to {
            cost.at(self.to) + self.slope_to * (w - self.to)
        } else {
            cost.at(w)
        }
    }
}
