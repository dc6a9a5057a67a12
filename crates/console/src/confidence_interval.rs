//! Computes the mean over seeds and its confidence interval.

use statrs::distribution::{ContinuousCDF, StudentsT};
use weir_sim::outcome::mean;

/// The part of the distribution below the upper end of the interval.
const UPPER_END: f64 = 0.975;

/// Values that differ from their mean by less than this part of it differ by round-off only.
const ROUND_OFF: f64 = 1e-9;

/// A mean with its 95 % confidence interval.
#[derive(Debug, Clone, Copy)]
pub struct ConfidenceInterval {
    /// The mean of the values.
    pub mean: f64,
    /// The distance from the mean to each end of the interval; infinite for one value, 0 for equal values.
    pub half_width: f64,
}

impl ConfidenceInterval {
    /// Computes the interval of the mean of `values`, of which there is at least one.
    pub fn from_values(values: &[f64]) -> ConfidenceInterval {
        let (mean, count) = (mean(values), values.len());
        if count < 2 {
            return ConfidenceInterval { mean, half_width: f64::INFINITY };
        }
        if values.iter().all(|value| (value - mean).abs() <= ROUND_OFF * mean.abs()) {
            return ConfidenceInterval { mean, half_width: 0.0 };
        }
        let degrees_of_freedom = (count - 1) as f64;
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / degrees_of_freedom;
        let students_t =
            StudentsT::new(0.0, 1.0, degrees_of_freedom).expect("the degrees of freedom are at least 1");
        let half_width = students_t.inverse_cdf(UPPER_END) * (variance / count as f64).sqrt();
        ConfidenceInterval { mean, half_width }
    }

    /// The mean and half of the width with three decimals, for ratios near 1: `1.030 ± 0.021`.
    pub fn format_ratio(&self) -> String {
        format!("{:.3} ± {:.3}", self.mean, self.half_width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_interval_uses_students_t() {
        // The percentiles with 2 and 40 degrees of freedom, times the standard error.
        let intervals =
            [(vec![1.0, 2.0, 3.0], 4.302_653, 1.0), ((0..41).map(f64::from).collect(), 2.021_075, 143.5)];
        for (values, percentile, variance) in intervals {
            let interval = ConfidenceInterval::from_values(&values);
            assert_eq!(interval.mean, mean(&values));
            let expected = percentile * (variance / values.len() as f64).sqrt();
            assert!((interval.half_width / expected - 1.0).abs() < 1e-6, "{}", interval.half_width);
        }
        assert_eq!(ConfidenceInterval::from_values(&[1.0]).half_width, f64::INFINITY);
    }

    #[test]
    fn interval_of_values_that_differ_by_round_off_has_no_width() {
        for values in [[0.1; 3], [0.3, 0.1 + 0.2, 0.3], [12.5, 12.5 + 1e-9, 12.5], [0.0; 3]] {
            assert_eq!(ConfidenceInterval::from_values(&values).half_width, 0.0, "{values:?}");
        }
        assert!(ConfidenceInterval::from_values(&[12.5, 12.5 + 1e-6, 12.5]).half_width > 0.0);
    }
}
