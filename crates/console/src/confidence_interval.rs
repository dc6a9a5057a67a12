//! Computes the mean over seeds and its confidence interval.

use weir_sim::outcome::mean;

/// The 97.5th percentiles of Student's t distribution with 1 to 30 degrees of freedom.
const STUDENT_T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The 97.5th percentile of the normal distribution, for more than 30 degrees of freedom.
const NORMAL_QUANTILE: f64 = 1.960;

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
        let Some(t_index) = count.checked_sub(2) else {
            return ConfidenceInterval { mean, half_width: f64::INFINITY };
        };
        if values.iter().all(|value| (value - mean).abs() <= ROUND_OFF * mean.abs()) {
            return ConfidenceInterval { mean, half_width: 0.0 };
        }
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (count - 1) as f64;
        ConfidenceInterval {
            mean,
            half_width: STUDENT_T.get(t_index).unwrap_or(&NORMAL_QUANTILE) * (variance / count as f64).sqrt(),
        }
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
        let interval = ConfidenceInterval::from_values(&[1.0, 2.0, 3.0]);
        assert_eq!(interval.mean, 2.0);
        // 4.303 times the standard error, 1 / sqrt(3).
        assert!((interval.half_width - 2.4843).abs() < 1e-3, "{}", interval.half_width);
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
