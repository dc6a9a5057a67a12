//! The offline profiler (sections 4 and 7.1): runs a job with less and less bandwidth, and fits its sensitivity.
//!
//! The profiler works with any [`Job`] that runs with a fraction of its bandwidth and returns the time: a simulated job,
//! a table of numbers, or a command on hosts with throttled interfaces.
//!
//! Choices that the paper leaves open:
//!
//! - *Order of runs.* From all bandwidth down. All runs are compared with the first one, and a broken job fails in the
//!   shortest run.
//! - *Repetitions.* None, as in the paper. A job may repeat itself and return a combined time.
//! - *A failed run* rejects the whole profile. A model without the runs in which the job suffers most would show the
//!   job as less sensitive than it is.
//! - *A job that takes no time* with all bandwidth has no slowdown, and is rejected.

use super::sensitivity::{Fraction, Sensitivity};
use crate::solve::polynomial::{self, Degree, PolynomialError};
use crate::units::Time;

/// The fractions of the bandwidth that the paper profiles (section 7.1).
pub const PROFILED_FRACTIONS: [Fraction; 7] = [
    Fraction::from_valid(0.05),
    Fraction::from_valid(0.10),
    Fraction::from_valid(0.25),
    Fraction::from_valid(0.50),
    Fraction::from_valid(0.75),
    Fraction::from_valid(0.90),
    Fraction::ALL,
];

/// A workload that can run with less bandwidth. Closures are jobs.
pub trait Job {
    /// Why a run failed.
    type Error;

    /// Runs once with this fraction of the bandwidth, and returns the time of the run.
    ///
    /// # Errors
    /// Any error that prevented the run from completing.
    fn run(&mut self, bandwidth: Fraction) -> Result<Time, Self::Error>;
}

impl<E, F: FnMut(Fraction) -> Result<Time, E>> Job for F {
    type Error = E;

    fn run(&mut self, bandwidth: Fraction) -> Result<Time, E> {
        self(bandwidth)
    }
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProfiledRun {
    /// Fraction of the bandwidth that the run used.
    pub bandwidth: Fraction,
    /// Time of the run.
    pub time: Time,
    /// The time divided by the time with all bandwidth.
    pub slowdown: f64,
}

/// All runs of a job, from the least bandwidth to all bandwidth.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    runs: Vec<ProfiledRun>,
}

/// A sensitivity, and the quality of its fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SensitivityFit {
    /// The model.
    pub sensitivity: Sensitivity,
    /// Coefficient of determination (section 4.2): the fraction of the slowdowns' variance that the model explains, 1 for
    /// all of it.
    pub r2: f64,
}

/// Why no profile exists.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProfileError<E> {
    /// A run failed.
    #[error("the run at {} of the bandwidth failed: {source}", .bandwidth.get())]
    RunFailed {
        /// Fraction of the bandwidth that the run used.
        bandwidth: Fraction,
        /// The error of the job.
        source: E,
    },
    /// The run with all bandwidth took no time.
    #[error("the run with all bandwidth took {time}; expected a time above 0")]
    ZeroTime {
        /// Time of the run.
        time: Time,
    },
    /// The slowdown of a run is too large for the model.
    #[error("slowdown at {} of the bandwidth is {slowdown}; expected at most {}", .bandwidth.get(), polynomial::MAX_COEFFICIENT)]
    TooSlow {
        /// Fraction of the bandwidth that the run used.
        bandwidth: Fraction,
        /// The slowdown.
        slowdown: f64,
    },
}

impl Profile {
    /// Runs `job` once with all bandwidth, and once at each of `fractions`, in the order of falling bandwidth.
    ///
    /// # Errors
    /// [`ProfileError`] for the first run that fails, takes no time with all bandwidth, or is too slow.
    pub fn measure<J: Job>(job: &mut J, fractions: &[Fraction]) -> Result<Profile, ProfileError<J::Error>> {
        let mut bandwidths = fractions.to_vec();
        bandwidths.push(Fraction::ALL);
        bandwidths.sort_by(|a, b| b.get().total_cmp(&a.get()));
        bandwidths.dedup();
        let mut samples: Vec<ProfiledRun> = Vec::with_capacity(bandwidths.len());
        for bandwidth in bandwidths {
            let time = job.run(bandwidth).map_err(|source| ProfileError::RunFailed { bandwidth, source })?;
            let full_bandwidth_time = samples.first().map_or(time, |first| first.time);
            if full_bandwidth_time == Time::ZERO {
                return Err(ProfileError::ZeroTime { time });
            }
            let slowdown = time.get() / full_bandwidth_time.get();
            if slowdown > polynomial::MAX_COEFFICIENT {
                return Err(ProfileError::TooSlow { bandwidth, slowdown });
            }
            samples.push(ProfiledRun { bandwidth, time, slowdown });
        }
        samples.reverse();
        Ok(Profile { runs: samples })
    }

    /// The runs, from the least bandwidth to all bandwidth.
    pub fn runs(&self) -> &[ProfiledRun] {
        &self.runs
    }

    /// Fits the sensitivity of this degree.
    ///
    /// # Errors
    /// [`PolynomialError`] if the degree needs more runs, or if the fit is too steep.
    pub fn fit(&self, degree: Degree) -> Result<SensitivityFit, PolynomialError> {
        let fit = polynomial::fit_polynomial(&self.points(), degree)?;
        Ok(SensitivityFit { sensitivity: Sensitivity::new(fit.polynomial), r2: fit.r2 })
    }

    /// The coefficient of determination of another sensitivity for these runs, for example from a profile with other
    /// data or nodes (section 4.2).
    pub fn r2(&self, sensitivity: &Sensitivity) -> f64 {
        polynomial::r_squared(sensitivity.model(), &self.points())
    }

    fn points(&self) -> Vec<(f64, f64)> {
        self.runs.iter().map(|s| (s.bandwidth.get(), s.slowdown)).collect()
    }
}
