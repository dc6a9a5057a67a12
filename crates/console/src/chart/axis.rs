//! Places values on axes, and chooses the values that get a label.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::number;

/// How the distance on an axis depends on the value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences have equal distances.
    #[default]
    Linear,
    /// Equal ratios have equal distances. All values are above 0.
    Log,
}

/// An axis from a value to a higher one.
#[derive(Debug, Clone)]
pub struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Axis {
    /// The axis over these values; `None` without values that it can show.
    pub fn over(scale: Scale, values: impl Iterator<Item = f64>) -> Option<Axis> {
        let is_shown = |value: &f64| value.is_finite() && (scale == Scale::Linear || *value > 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(is_shown) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            return None;
        }
        Some(match scale {
            Scale::Linear => Axis { scale, low: low.min(0.0), high: high.max(low.min(0.0) + 1e-9) },
            // A single value needs a range, too.
            Scale::Log if low == high => Axis { scale, low: low / 2.0, high: high * 2.0 },
            Scale::Log => Axis { scale, low, high },
        })
    }

    /// The axis with a space at both ends, as a part of its length. A linear axis that starts at 0 keeps its start.
    pub fn with_space(self, part: f64) -> Axis {
        let Axis { scale, low, high } = self;
        match scale {
            Scale::Linear => {
                let space = part * (high - low);
                Axis { scale, low: if low == 0.0 { 0.0 } else { low - space }, high: high + space }
            }
            Scale::Log => {
                let factor = (high / low).powf(part);
                Axis { scale, low: low / factor, high: high * factor }
            }
        }
    }

    /// At most `max` values with a label, in ascending order.
    fn ticks(&self, max: usize) -> Vec<f64> {
        match self.scale {
            Scale::Linear => self.linear_ticks(max),
            Scale::Log => {
                let ticks = self.log_ticks(max);
                if ticks.len() < 3 { self.linear_ticks(max) } else { ticks }
            }
        }
    }

    /// Multiples of 1, 2 or 5 times a power of ten.
    fn linear_ticks(&self, max: usize) -> Vec<f64> {
        let length = self.high - self.low;
        let first_power = (length / max.max(1) as f64).log10().floor() as i32;
        let steps = (first_power..first_power + 3).flat_map(|power| [1, 2, 5].map(|digit| (digit, power)));
        let multiples = |(digit, power): (i64, i32)| {
            let step = decimal(digit, power);
            // Rounding must not exclude the end.
            (self.low / step).ceil() as i64..=(self.high / step + 1e-9).floor() as i64
        };
        let fits = |step: &(i64, i32)| multiples(*step).count() <= max.max(2);
        let Some(step) = steps.into_iter().find(fits) else { return Vec::new() };
        multiples(step).map(|multiple| decimal(multiple * step.0, step.1)).collect()
    }

    /// Powers of ten, with 2 and 5 times these if there is space, or some of the powers if there are many.
    fn log_ticks(&self, max: usize) -> Vec<f64> {
        let [first, last] = [self.low, self.high].map(|value| value.log10().floor() as i32);
        let ticks = |stride: i32, digits: &[i64]| -> Vec<f64> {
            let powers = (first..=last).filter(|power| power.rem_euclid(stride) == 0);
            let values = powers.flat_map(|power| digits.iter().map(move |&digit| decimal(digit, power)));
            // Rounding must not exclude an end.
            values
                .filter(|value| (self.low * (1.0 - 1e-9)..=self.high * (1.0 + 1e-9)).contains(value))
                .collect()
        };
        let choices = [(1, &[1, 2, 5][..]), (1, &[1, 3]), (1, &[1]), (2, &[1]), (3, &[1]), (6, &[1])];
        let fitting =
            choices.iter().map(|(stride, digits)| ticks(*stride, digits)).find(|ticks| ticks.len() <= max);
        fitting.unwrap_or_default()
    }
}

/// At most `max` round values from 0 to `end`, in ascending order.
pub fn round_values(end: f64, max: usize) -> Vec<f64> {
    Axis { scale: Scale::Linear, low: 0.0, high: end.max(1e-9) }.ticks(max)
}

/// `digits` times a power of ten, rounded once.
fn decimal(digits: i64, power: i32) -> f64 {
    format!("{digits}e{power}").parse().expect("the text is a number")
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    /// Values outside the axis are at its ends.
    fn map(&self, value: &f64, pixels: (i32, i32)) -> i32 {
        let value = value.clamp(self.low, self.high);
        let part = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        pixels.0 + (f64::from(pixels.1 - pixels.0) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Charts have no light lines between the labels.
        self.ticks(hint.bold_points())
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        number(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: Scale, low: f64, high: f64) -> Vec<f64> {
        Axis { scale, low, high }.ticks(10)
    }

    #[test]
    fn narrow_log_axes_have_more_labels_than_powers_of_ten() {
        assert_eq!(ticks(Scale::Log, 0.9, 60.0), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(
            ticks(Scale::Log, 0.001, 90.0),
            [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0]
        );
        assert_eq!(ticks(Scale::Log, 1e-3, 1e4), [1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4]);
        assert_eq!(ticks(Scale::Log, 1.01, 1.4), [1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35, 1.4]);
    }

    #[test]
    fn linear_axes_have_round_labels() {
        assert_eq!(ticks(Scale::Linear, 0.0, 1.0), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        assert_eq!(ticks(Scale::Linear, 0.0, 370.0), [0.0, 50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 350.0]);
        assert!(ticks(Scale::Linear, 0.0, 1e-9).len() >= 2);
    }

    #[test]
    fn values_outside_an_axis_are_at_its_ends() {
        let axis = Axis::over(Scale::Log, [1.0, 100.0, -3.0, f64::INFINITY].into_iter()).unwrap();
        assert_eq!([0.0, 1.0, 10.0, 1e9].map(|value| axis.map(&value, (50, 250))), [50, 50, 150, 250]);
        assert!(Axis::over(Scale::Log, [0.0].into_iter()).is_none());
    }
}
