//! The constants of the policy.

use super::super::attained_service::{FIRST_LEVEL_BYTES, LEVEL_GROWTH};
use super::super::gittins::DEFAULT_WEIGHT;

/// The constants of the policy. The evaluation halves and doubles each of them (docs/results/weir.md).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constants {
    /// The time of a coflow from which on it serves pilots, as a multiple of the median of earlier coflows.
    pub pilot_medians: f64,
    /// The minimum number of flows of a coflow with pilots.
    pub pilot_flows: f64,
    /// The relative variance inside receivers above which one completed flow does not stand for the others.
    pub low_variance: f64,
    /// The relative variance of the mean of a receiver's completed flows that is low enough.
    pub target_variance: f64,
    /// The maximum number of completed flows that a receiver needs.
    pub max_samples: f64,
    /// The same, as a share of the flows to the receiver.
    pub max_sampled_share: f64,
    /// Degrees of freedom from which on the variance inside receivers is trusted.
    pub trusted_degrees: f64,
    /// A flow that lacks only this part of its estimated size has no useful estimate.
    pub credible_remainder: f64,
    /// The part by which the estimate of such a flow exceeds the bytes that it has sent.
    pub exceeded_growth: f64,
    /// The estimated remainder of a flow that has sent more than the mean, as a multiple of the excess.
    pub outlier_growth: f64,
    /// The growth of the number of completed flows after which estimates are refreshed.
    pub refresh_growth: f64,
    /// The bytes of the first level of attained service on the fastest link, if the interval is shorter.
    pub first_level_bytes: f64,
    /// The growth from the start of each level to its end.
    pub level_growth: f64,
    /// The number of coflows that the prior without a scale counts as.
    pub prior_weight: f64,
    /// The number of coflows of similar width that the sizes of all coflows count as.
    pub width_weight: f64,
    /// The fraction of the time in turns.
    pub turn_fraction: f64,
    /// The time of a turn in intervals.
    pub turn_intervals: f64,
    /// The bytes of a turn on the fastest link, if that is longer.
    pub turn_bytes: f64,
}

impl Default for Constants {
    fn default() -> Constants {
        Constants {
            pilot_medians: 2.0,
            pilot_flows: 10.0,
            low_variance: 0.01,
            target_variance: 0.04,
            max_samples: 10.0,
            max_sampled_share: 1.0 / 3.0,
            trusted_degrees: 8.0,
            credible_remainder: 0.02,
            exceeded_growth: 0.1,
            outlier_growth: 1.0,
            refresh_growth: 0.05,
            first_level_bytes: FIRST_LEVEL_BYTES,
            level_growth: LEVEL_GROWTH,
            prior_weight: DEFAULT_WEIGHT,
            width_weight: 4.0,
            turn_fraction: 0.01,
            turn_intervals: 4.0,
            turn_bytes: 2.5e6,
        }
    }
}

impl Constants {
    /// All constants with their names.
    pub fn by_name(&mut self) -> [(&'static str, &mut f64); 18] {
        [
            ("pilot_medians", &mut self.pilot_medians),
            ("pilot_flows", &mut self.pilot_flows),
            ("low_variance", &mut self.low_variance),
            ("target_variance", &mut self.target_variance),
            ("max_samples", &mut self.max_samples),
            ("max_sampled_share", &mut self.max_sampled_share),
            ("trusted_degrees", &mut self.trusted_degrees),
            ("credible_remainder", &mut self.credible_remainder),
            ("exceeded_growth", &mut self.exceeded_growth),
            ("outlier_growth", &mut self.outlier_growth),
            ("refresh_growth", &mut self.refresh_growth),
            ("first_level_bytes", &mut self.first_level_bytes),
            ("level_growth", &mut self.level_growth),
            ("prior_weight", &mut self.prior_weight),
            ("width_weight", &mut self.width_weight),
            ("turn_fraction", &mut self.turn_fraction),
            ("turn_intervals", &mut self.turn_intervals),
            ("turn_bytes", &mut self.turn_bytes),
        ]
    }
}
