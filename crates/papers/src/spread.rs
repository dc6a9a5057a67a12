//! A mean over seeds, and how sure it is.

use weir_sim::outcome::mean;

use crate::doc;

/// The 97.5th percentiles of Student's t distribution with 1 to 30 degrees of freedom.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The same of a normal distribution.
const NORMAL: f64 = 1.960;

/// A mean with its 95 % confidence interval.
#[derive(Clone, Copy)]
pub struct Spread {
    pub mean: f64,
    /// How far the interval goes to either side; infinite for one value.
    pub half: f64,
}

impl Spread {
    /// Of some values, at least one.
    pub fn of(values: &[f64]) -> Spread {
        let (mean, count) = (mean(values), values.len());
        let Some(free) = count.checked_sub(2) else { return Spread { mean, half: f64::INFINITY } };
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (count - 1) as f64;
        Spread { mean, half: T.get(free).unwrap_or(&NORMAL) * (variance / count as f64).sqrt() }
    }

    pub fn text(&self) -> String {
        format!("{} ± {}", doc::n(self.mean), doc::n(self.half))
    }

    /// To three digits after the point: for ratios near 1.
    pub fn ratio(&self) -> String {
        format!("{:.3} ± {:.3}", self.mean, self.half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_interval_uses_students_t() {
        let spread = Spread::of(&[1.0, 2.0, 3.0]);
        assert_eq!(spread.mean, 2.0);
        // One over the root of three, times 4.303.
        assert!((spread.half - 2.4843).abs() < 1e-3, "{}", spread.half);
        assert_eq!(Spread::of(&[1.0]).half, f64::INFINITY);
    }
}
