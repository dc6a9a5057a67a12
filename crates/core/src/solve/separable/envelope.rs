//! The convex envelope of a cubic over a range, and the cheapest part of the range at a price.
//!
//! A cubic is convex on one side of its inflection and concave on the other. Its envelope is the cubic where the cubic is
//! convex, up to the point at which a line from the far end of the concave side is a tangent; that line (the chord) is
//! the rest of the envelope. A cubic minus its tangent at t has a double root at t, and its three roots sum to -c2 / c3.
//! The tangent through the cubic's point at e, an end of the range, therefore touches at t = (-c2 / c3 - e) / 2.

use crate::solve::Polynomial;

/// The convex envelope of a cubic from `low` to `high`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope {
    pub(super) low: f64,
    pub(super) high: f64,
    /// The range in which the cubic is its envelope. A chord leads from `low` to `cubic_start`, or from `cubic_end`
    /// to `high`, if they differ. If one chord is the whole envelope, `cubic_start` and `cubic_end` are `low`, and both
    /// slopes are the chord's.
    cubic_start: f64,
    cubic_end: f64,
    start_slope: f64,
    end_slope: f64,
    /// Coefficients of the slope c1 + 2 c2 w + 3 c3 w^2.
    c1: f64,
    c2: f64,
    three_c3: f64,
    /// Whether the cubic is a line, on which all points cost the same at its slope.
    pub(super) is_line: bool,
}

/// The cheapest parts at a price: all from `min_part` to `max_part`, but only these two if the cubic is above its chord.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheapestRange {
    pub(super) min_part: f64,
    pub(super) max_part: f64,
    /// The derivative of the part with respect to the price.
    pub(super) price_derivative: f64,
}

impl Envelope {
    pub(super) fn new(cost: &Polynomial, low: f64, high: f64) -> Envelope {
        let [_, c1, c2, c3] = *cost.coefficients();
        let mut envelope = Envelope {
            low,
            high,
            cubic_start: low,
            cubic_end: high,
            start_slope: 0.0,
            end_slope: 0.0,
            c1,
            c2,
            three_c3: 3.0 * c3,
            is_line: c2 == 0.0 && c3 == 0.0,
        };
        let (bends_low, bends_high) = (cost.curvature(low), cost.curvature(high));
        if bends_low < 0.0 && bends_high > 0.0 {
            envelope.cubic_start = (0.5 * (-c2 / c3 - low)).max(low);
        } else if bends_low > 0.0 && bends_high < 0.0 {
            envelope.cubic_end = (0.5 * (-c2 / c3 - high)).min(high);
        }
        let curved = (bends_low > 0.0 || bends_high > 0.0) && envelope.cubic_start < envelope.cubic_end;
        if curved {
            envelope.start_slope = cost.slope(envelope.cubic_start);
            // Rounding must not reverse the order of the slopes.
            envelope.end_slope = cost.slope(envelope.cubic_end).max(envelope.start_slope);
        } else {
            // (D(high) - D(low)) / (high - low), without the difference of two similar numbers.
            let chord = c1 + c2 * (low + high) + c3 * (low * low + low * high + high * high);
            (envelope.cubic_start, envelope.cubic_end) = (low, low);
            (envelope.start_slope, envelope.end_slope) = (chord, chord);
        }
        envelope
    }

    /// The lowest and the highest slope.
    pub(super) fn slope_range(&self) -> (f64, f64) {
        (self.start_slope, self.end_slope)
    }

    /// The slope of the chord: the price at which the cheapest part jumps.
    pub(super) fn jump_price(&self) -> Option<f64> {
        if self.low < self.cubic_start {
            Some(self.start_slope)
        } else if self.cubic_end < self.high {
            Some(self.end_slope)
        } else {
            None
        }
    }

    /// The cheapest parts w if each unit has the reward `price`: the minima of D(w) - price w.
    #[inline]
    pub(super) fn cheapest_parts(&self, price: f64) -> CheapestRange {
        if self.start_slope < price && price < self.end_slope {
            // The root of D'(w) = price at which D is convex, in the form without cancellation.
            let root = (self.c2 * self.c2 + self.three_c3 * (price - self.c1)).max(0.0).sqrt();
            let part = if self.c2 >= 0.0 {
                (price - self.c1) / (self.c2 + root)
            } else {
                (root - self.c2) / self.three_c3
            };
            // Comparisons instead of `max` and `min`, which would handle NaN: no value here is NaN.
            let part = if part < self.cubic_start { self.cubic_start } else { part };
            let part = if part > self.cubic_end { self.cubic_end } else { part };
            return CheapestRange { min_part: part, max_part: part, price_derivative: 0.5 / root };
        }
        let min_part = if price <= self.start_slope {
            self.low
        } else if price <= self.end_slope {
            self.cubic_end
        } else {
            self.high
        };
        let max_part = if price >= self.end_slope {
            self.high
        } else if price >= self.start_slope {
            self.cubic_start
        } else {
            self.low
        };
        CheapestRange { min_part, max_part, price_derivative: 0.0 }
    }

    /// The envelope's value at `w`.
    pub(super) fn evaluate(&self, cost: &Polynomial, w: f64) -> f64 {
        if w < self.cubic_start {
            cost.evaluate(self.cubic_start) - self.start_slope * (self.cubic_start - w)
        } else if w > self.cubic_end {
            cost.evaluate(self.cubic_end) + self.end_slope * (w - self.cubic_end)
        } else {
            cost.evaluate(w)
        }
    }
}
