//! Statistics of policies over the workloads of a family.

use weir_console::confidence_interval::ConfidenceInterval;
use weir_sim::Outcome;
use weir_sim::outcome::{mean, percentile};

use super::RIVALS;
use super::families::Timed;
use super::goal::Yardstick;

/// The times of one replay, in seconds.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// By coflow, or by job.
    pub times: Vec<f64>,
    /// The share of the coflows with deadlines that met them, if there are any.
    pub met_share: Option<f64>,
}

impl Times {
    /// The times of coflows or of jobs.
    pub fn new(outcome: &Outcome, timed: Timed) -> Times {
        let times = match timed {
            Timed::Coflows => outcome.ccts(),
            Timed::Jobs => outcome.jobs.iter().map(|job| job.end - job.arrival).collect(),
        };
        let deadlines: Vec<f64> = outcome
            .coflows
            .iter()
            .filter_map(|coflow| Some(if coflow.met_deadline()? { 1.0 } else { 0.0 }))
            .collect();
        Times { times, met_share: (!deadlines.is_empty()).then(|| mean(&deadlines)) }
    }
}

/// A statistic of the times of one replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Statistic {
    /// The mean.
    Mean,
    /// A percentile.
    Percentile(f64),
}

impl Statistic {
    fn value(self, times: &Times) -> f64 {
        match self {
            Statistic::Mean => mean(&times.times),
            Statistic::Percentile(percentage) => percentile(&times.times, percentage),
        }
    }
}

/// The times of policies over the workloads of a family.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Names of the policies.
    policies: Vec<String>,
    /// By policy and workload.
    times: Vec<Vec<Times>>,
    /// Lower bounds of the mean by workload, if all are known.
    min_means: Vec<f64>,
}

impl Figures {
    /// No policies yet. `min_means` are lower bounds of the mean by workload; empty if they are not known.
    pub fn new(min_means: Vec<f64>) -> Figures {
        Figures { min_means, ..Figures::default() }
    }

    /// Adds a policy with its times by workload.
    pub fn add(&mut self, policy: &str, times: Vec<Times>) {
        self.policies.push(policy.to_owned());
        self.times.push(times);
    }

    fn times(&self, policy: &str) -> &[Times] {
        let at = self.policies.iter().position(|name| name == policy);
        &self.times[at.expect("the caller names a measured policy")]
    }

    /// By workload: a statistic of one policy divided by that of another.
    pub fn ratios(&self, policy: &str, other: &str, statistic: Statistic) -> Vec<f64> {
        let pairs = self.times(policy).iter().zip(self.times(other));
        pairs.map(|(own, other)| statistic.value(own) / statistic.value(other)).collect()
    }

    /// The mean of [`Figures::ratios`].
    pub fn ratio(&self, policy: &str, other: &str, statistic: Statistic) -> f64 {
        mean(&self.ratios(policy, other, statistic))
    }

    /// The policy that a goal compares with. The best rival has the lowest mean next to that of `weir`.
    pub fn yardstick(&self, against: Yardstick) -> &'static str {
        match against {
            Yardstick::Policy(name) => name,
            Yardstick::BestRival => {
                let ratio = |rival| self.ratio("weir", rival, Statistic::Mean);
                let best = RIVALS.into_iter().max_by(|a, b| ratio(a).total_cmp(&ratio(b)));
                best.expect("there are rivals")
            }
        }
    }

    /// The share of coflows that take more than twice as long as under `other`.
    pub fn late_share(&self, policy: &str, other: &str) -> f64 {
        let shares: Vec<f64> = self
            .times(policy)
            .iter()
            .zip(self.times(other))
            .map(|(own, other)| {
                let late = own.times.iter().zip(&other.times).filter(|(own, other)| **own > 2.0 * **other);
                late.count() as f64 / own.times.len() as f64
            })
            .collect();
        mean(&shares)
    }

    /// The share of deadlines that are met, if there are deadlines.
    pub fn met_share(&self, policy: &str) -> Option<f64> {
        let shares: Option<Vec<f64>> = self.times(policy).iter().map(|times| times.met_share).collect();
        shares.map(|shares| mean(&shares))
    }

    /// The mean divided by the lower bound, if the bound is known.
    pub fn over_bound(&self, policy: &str) -> Option<f64> {
        let ratios: Vec<f64> = self
            .times(policy)
            .iter()
            .zip(&self.min_means)
            .map(|(times, min)| Statistic::Mean.value(times) / min)
            .collect();
        (!ratios.is_empty()).then(|| mean(&ratios))
    }
}

/// The mean of ratios, with a confidence interval if there are several.
pub fn interval(ratios: &[f64]) -> String {
    match ratios {
        [only] => format!("{only:.3}"),
        _ => ConfidenceInterval::from_values(ratios).format_ratio(),
    }
}

/// Whether a ratio, at the precision of the page, exceeds its maximum.
pub fn exceeds(ratio: f64, max: f64) -> bool {
    (ratio * 1000.0).round() > (max * 1000.0).round()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(times: &[f64]) -> Vec<Times> {
        vec![Times { times: times.to_vec(), met_share: None }]
    }

    #[test]
    fn figures_are_ratios_by_workload() {
        let mut figures = Figures::new(vec![1.5]);
        figures.add("own", times(&[1.0, 5.0]));
        figures.add("other", times(&[1.0, 2.0]));
        // Means 3 and 1.5; medians 3 and 1.5.
        assert_eq!(figures.ratios("own", "other", Statistic::Mean), [2.0]);
        assert_eq!(figures.ratio("own", "other", Statistic::Percentile(50.0)), 2.0);
        assert_eq!(figures.over_bound("own"), Some(2.0));
        // The second coflow takes more than twice as long.
        assert_eq!(figures.late_share("own", "other"), 0.5);
        assert_eq!(figures.met_share("own"), None);
    }

    #[test]
    fn best_rival_has_the_lowest_mean() {
        let mut figures = Figures::default();
        figures.add("weir", times(&[2.0]));
        for rival in RIVALS {
            figures.add(rival, times(&[if rival == "aalo" { 1.0 } else { 3.0 }]));
        }
        assert_eq!(figures.yardstick(Yardstick::BestRival), "aalo");
        assert_eq!(figures.yardstick(Yardstick::Policy("varys")), "varys");
    }

    #[test]
    fn goal_is_compared_at_the_precision_of_the_page() {
        assert!(!exceeds(1.0004, 1.0) && exceeds(1.0006, 1.0));
    }
}
