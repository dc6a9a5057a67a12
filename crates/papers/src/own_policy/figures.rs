//! Statistics of a policy over workloads, relative to other policies.

use weir_sim::outcome::{mean, percentile};

use crate::confidence_interval::ConfidenceInterval;

/// By workload: ratios of completion times.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Means over those of `varys`.
    pub over_varys: Vec<f64>,
    /// Means over those of `saath:requeue=off`.
    pub over_requeue_off: Vec<f64>,
    /// Medians, 90th and 99th percentiles over those of `saath`.
    percentiles: [Vec<f64>; 3],
    /// Means over the lower bound, if it is known.
    over_bound: Vec<f64>,
    /// Shares of coflows that take more than twice as long as under `saath`.
    late: Vec<f64>,
}

impl Figures {
    /// Adds the completion times of a workload under this policy and others.
    pub fn add(&mut self, own: &[f64], varys: &[f64], saath: &[f64], requeue_off: &[f64]) {
        self.over_varys.push(mean(own) / mean(varys));
        self.over_requeue_off.push(mean(own) / mean(requeue_off));
        for (ratios, percentage) in self.percentiles.iter_mut().zip([50.0, 90.0, 99.0]) {
            ratios.push(percentile(own, percentage) / percentile(saath, percentage));
        }
        let late = own.iter().zip(saath).filter(|(own, saath)| **own > 2.0 * **saath).count();
        self.late.push(late as f64 / own.len() as f64);
    }

    /// Adds the lower bound of the mean.
    pub fn add_bound(&mut self, own: &[f64], min_mean: f64) {
        self.over_bound.push(mean(own) / min_mean);
    }

    /// The line of a table.
    pub fn line(&self, policy: &str) -> Vec<String> {
        let late = format!("{:.1} %", 100.0 * mean(&self.late));
        let bound = if self.over_bound.is_empty() {
            "-".to_owned()
        } else {
            format!("{:.2}", mean(&self.over_bound))
        };
        let means = [&self.over_varys, &self.over_requeue_off].map(|ratios| interval(ratios));
        let percentiles = self.percentiles.each_ref().map(|ratios| format!("{:.3}", mean(ratios)));
        [format!("`{policy}`")].into_iter().chain(means).chain(percentiles).chain([bound, late]).collect()
    }
}

/// The mean of ratios, with a confidence interval if there are several.
pub fn interval(ratios: &[f64]) -> String {
    match ratios {
        [only] => format!("{only:.3}"),
        _ => ConfidenceInterval::from_values(ratios).format_ratio(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_ratios_by_workload() {
        let mut figures = Figures::default();
        figures.add(&[1.0, 5.0], &[2.0, 2.0], &[1.0, 2.0], &[6.0, 6.0]);
        figures.add_bound(&[1.0, 5.0], 1.5);
        assert_eq!((figures.over_varys[0], figures.over_requeue_off[0]), (1.5, 0.5));
        // The second coflow takes more than twice as long as under `saath`.
        assert_eq!(
            figures.line("own"),
            ["`own`", "1.500", "0.500", "2.000", "2.421", "2.492", "2.00", "50.0 %"]
        );
    }
}
