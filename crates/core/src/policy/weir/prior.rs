//! Sizes learned from earlier coflows of the same application (`prior=on`).
//!
//! Jobs that run every hour have similar coflows. The mean size of a coflow's flows predicts that of the next coflow of the application.
//! That coflow then is *known* from its release on: its key is its estimated Γ, and it needs no pilots. Its prior ends with its first
//! completed flow, which says more.
//!
//! Two guards protect against wrong priors:
//!
//! - *Of a coflow*: the prior ends once a flow has sent far more than the prior expects. The coflow is then unknown.
//! - *Of an application*: priors are not used while the mean squared error of their logarithms is too large. Errors are also learned
//!   while priors are not used, so priors are used again once sizes have become predictable.
//!
//! Constants were chosen on generated workloads, with other seeds than those of the evaluation (`weir reproduce weir --priors`); other
//! learning rates, maximum errors and numbers of deviations changed the mean little. Without guards, narrow coflows are slower if
//! applications exchange their sizes, or if each application has two very different sizes; wide coflows are not, since their first
//! completed flow soon replaces the prior. Not adopted, since the mean was the same or worse: a prior that counts as one or three
//! receivers next to completed flows, and pilots of coflows with a prior.
//!
//! Limits: a coflow that is withdrawn counts with the bytes that it sent. Coflows without an application belong to one application.

use std::collections::BTreeMap;

use super::estimate::Summary;

/// The maximum number of applications. Coflows of further applications have no prior.
const MAX_APPLICATIONS: usize = 4096;

/// The weight of the last coflow in averages, once an application has completed `1 / LEARNING_RATE` coflows.
const LEARNING_RATE: f64 = 0.2;

/// The squared error that is assumed of an application with one completed coflow. Errors are differences of natural logarithms.
const INITIAL_ERROR: f64 = 0.25;

/// The minimum of the learned squared error: sizes never agree exactly.
const MIN_ERROR: f64 = 0.01;

/// The maximum squared error of one coflow. Without it, one very different coflow would rule out priors for a long time.
const MAX_COFLOW_ERROR: f64 = 4.0;

/// The mean squared error above which priors of an application are not used.
const MAX_USED_ERROR: f64 = 1.0;

/// The distance from the expected logarithm, in standard deviations, from which on a size contradicts the prior.
const MAX_DEVIATIONS: f64 = 3.0;

/// Sizes of the flows of a coflow, by those of earlier coflows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prior {
    /// The mean size in bytes, and the variance relative to its square.
    pub mean: f64,
    pub relative_variance: f64,
    /// A flow that has sent more contradicts the prior.
    pub max_size: f64,
}

/// What the completed coflows of one application say about its next one.
#[derive(Debug, Clone, Copy)]
struct Application {
    /// Number of coflows that the averages are of.
    count: u32,
    /// Average logarithm of the mean size of a coflow's flows.
    log_mean: f64,
    /// Mean squared error of the predicted logarithm.
    error: f64,
    /// Average variance of sizes inside a coflow, relative to the square of their mean.
    within: f64,
}

impl Application {
    /// An application with one completed coflow.
    fn new(log_mean: f64, within: f64) -> Application {
        Application { count: 1, log_mean, error: INITIAL_ERROR, within }
    }

    /// Adds a completed coflow.
    fn add(&mut self, log_mean: f64, within: f64) {
        self.count = self.count.saturating_add(1);
        let error = log_mean - self.log_mean;
        let rate = LEARNING_RATE.max(1.0 / f64::from(self.count));
        let is_surprise = error * error > MAX_DEVIATIONS * MAX_DEVIATIONS * self.error.max(MIN_ERROR);
        self.error += rate * ((error * error).min(MAX_COFLOW_ERROR) - self.error);
        if is_surprise {
            // The application has changed, so its earlier coflows say nothing about the next one.
            (self.count, self.log_mean, self.within) = (1, log_mean, within);
        } else {
            self.log_mean += rate * error;
            self.within += rate * (within - self.within);
        }
    }

    /// The prior of the next coflow, unless the error is too large.
    fn prior(&self) -> Option<Prior> {
        if self.error > MAX_USED_ERROR {
            return None;
        }
        let log_variance = self.error.max(MIN_ERROR) + libm::log1p(self.within);
        let mean = libm::exp(self.log_mean);
        Some(Prior {
            mean,
            relative_variance: libm::exp(log_variance) - 1.0,
            max_size: mean * libm::exp(MAX_DEVIATIONS * log_variance.sqrt()),
        })
    }
}

/// The learned sizes of all applications.
#[derive(Debug, Default)]
pub(super) struct Priors {
    /// By the numbers of service and application.
    applications: BTreeMap<(u32, u32), Application>,
}

impl Priors {
    /// The prior of the next coflow of an application, if its priors are used.
    pub fn find(&self, application: (u32, u32)) -> Option<Prior> {
        self.applications.get(&application)?.prior()
    }

    /// Adds a completed coflow with completed flows of these sizes. O(log applications).
    pub fn learn(&mut self, application: (u32, u32), sizes: &Summary) {
        let (log_mean, within) = (libm::log(sizes.mean), sizes.relative_variance());
        let count = self.applications.len();
        match self.applications.get_mut(&application) {
            Some(application) => application.add(log_mean, within),
            None if count < MAX_APPLICATIONS => {
                self.applications.insert(application, Application::new(log_mean, within));
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(mean: f64) -> Summary {
        Summary { mean, within: 0.0, between: 0.0, degrees: 0 }
    }

    /// Priors after coflows of one application with these mean sizes.
    fn learned(means: &[f64]) -> Priors {
        let mut priors = Priors::default();
        means.iter().for_each(|&mean| priors.learn((0, 1), &summary(mean)));
        priors
    }

    #[test]
    fn prior_is_the_geometric_mean_of_the_first_coflows() {
        assert_eq!(learned(&[]).find((0, 1)), None);
        let prior = learned(&[100.0]).find((0, 1)).unwrap();
        assert!((prior.mean - 100.0).abs() < 1e-9);
        // Three deviations of 0.5.
        assert!((prior.max_size - 100.0 * libm::exp(1.5)).abs() < 1e-6);
        let prior = learned(&[100.0, 144.0]).find((0, 1)).unwrap();
        assert!((prior.mean - 120.0).abs() < 1e-9);
        assert_eq!(learned(&[100.0]).find((0, 2)), None);
    }

    #[test]
    fn equal_sizes_make_the_accepted_range_narrow() {
        let prior = learned(&[100.0; 50]).find((0, 1)).unwrap();
        assert!((prior.max_size - 100.0 * libm::exp(0.3)).abs() < 1e-6, "{prior:?}");
    }

    #[test]
    fn application_that_changes_is_learned_again_from_its_last_coflow() {
        let mut means = [100.0; 20].to_vec();
        means.push(1e4);
        let prior = learned(&means).find((0, 1)).unwrap();
        assert!((prior.mean - 1e4).abs() < 1e-6, "{prior:?}");
    }

    #[test]
    fn priors_that_were_wrong_repeatedly_are_not_used_until_sizes_agree() {
        let mut means = vec![100.0, 1e4, 100.0, 1e4, 100.0];
        assert_eq!(learned(&means).find((0, 1)), None);
        means.extend([100.0; 20]);
        assert!(learned(&means).find((0, 1)).is_some());
    }

    #[test]
    fn number_of_applications_is_bounded() {
        let mut priors = Priors::default();
        (0..=MAX_APPLICATIONS as u32).for_each(|application| priors.learn((0, application), &summary(1.0)));
        assert!(priors.find((0, MAX_APPLICATIONS as u32 - 1)).is_some());
        assert_eq!(priors.find((0, MAX_APPLICATIONS as u32)), None);
    }
}
