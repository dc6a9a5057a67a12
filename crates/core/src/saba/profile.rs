//! The offline profiler (sections 4 and 7.1): runs a job with less and less bandwidth, and fits its sensitivity.
//!
//! It does not know what a job is. A job is asked to run at a part of its bandwidth and says how long it took: a simulated one,
//! a table of numbers, or a command on hosts whose interfaces are throttled meanwhile.
//!
//! What the paper leaves open:
//!
//! - *The order of the runs.* From all bandwidth down: the run that all others are compared with comes first, and a job that
//!   does not work at all is found out by its shortest run.
//! - *Repetitions.* None, as in the paper. A job may repeat itself and answer with what it makes of that.
//! - *A failed run* ends the profile. A model with a hole where the job suffers most would look better than the job.
//! - *A job that takes no time* with all bandwidth has no slowdown, and is refused.

use super::sensitivity::{Fraction, Sensitivity};
use crate::solve::polynomial::{self, Degree, PolynomialError};
use crate::units::Time;

/// The parts of the bandwidth that the paper profiles at (section 7.1).
pub const FRACTIONS: [Fraction; 7] = [
    Fraction::of(0.05),
    Fraction::of(0.10),
    Fraction::of(0.25),
    Fraction::of(0.50),
    Fraction::of(0.75),
    Fraction::of(0.90),
    Fraction::ALL,
];

/// Something that can be run with less bandwidth. Closures are jobs.
pub trait Job {
    /// Why a run failed.
    type Error;

    /// Runs once with this part of the bandwidth, and says how long that took.
    ///
    /// # Errors
    /// Whatever kept it from ending.
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
pub struct Sample {
    /// The part of the bandwidth that it had.
    pub bandwidth: Fraction,
    /// How long it took.
    pub time: Time,
    /// That over the time with all bandwidth.
    pub slowdown: f64,
}

/// All runs of a job, from little bandwidth to all.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    samples: Vec<Sample>,
}

/// A sensitivity and how well it explains the profile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// The model.
    pub sensitivity: Sensitivity,
    /// The part of the slowdowns' variance that it explains (section 4.2): 1 is all of it.
    pub r2: f64,
}

/// Why there is no profile.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProfileError<E> {
    /// The job did not end well.
    #[error("the run at {} of the bandwidth failed: {source}", .bandwidth.get())]
    Run {
        /// The part of the bandwidth that it had.
        bandwidth: Fraction,
        /// What it said.
        source: E,
    },
    /// There is nothing to compare with.
    #[error("the run with all bandwidth took `{time}`: expected more than no time")]
    NoTime {
        /// What it took.
        time: Time,
    },
    /// A run took so much longer that the slowdown is no number to calculate with.
    #[error("slowdown at {} of the bandwidth: `{slowdown}`: expected {} at most", .bandwidth.get(), polynomial::MAX_COEFFICIENT)]
    TooSlow {
        /// The part of the bandwidth that it had.
        bandwidth: Fraction,
        /// How much slower it was.
        slowdown: f64,
    },
}

impl Profile {
    /// Runs `job` with all bandwidth and at each of `fractions`, whose order does not matter, once each.
    ///
    /// # Errors
    /// The first run that fails, or that no slowdown can be calculated from.
    pub fn of<J: Job>(job: &mut J, fractions: &[Fraction]) -> Result<Profile, ProfileError<J::Error>> {
        let mut wanted = fractions.to_vec();
        wanted.push(Fraction::ALL);
        wanted.sort_by(|a, b| b.get().total_cmp(&a.get()));
        wanted.dedup();
        let mut samples: Vec<Sample> = Vec::with_capacity(wanted.len());
        for bandwidth in wanted {
            let time = job.run(bandwidth).map_err(|source| ProfileError::Run { bandwidth, source })?;
            let all = samples.first().map_or(time, |first| first.time);
            if all == Time::ZERO {
                return Err(ProfileError::NoTime { time });
            }
            let slowdown = time.get() / all.get();
            if slowdown > polynomial::MAX_COEFFICIENT {
                return Err(ProfileError::TooSlow { bandwidth, slowdown });
            }
            samples.push(Sample { bandwidth, time, slowdown });
        }
        samples.reverse();
        Ok(Profile { samples })
    }

    /// The runs, from little bandwidth to all.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The sensitivity that fits best among those of this degree.
    ///
    /// # Errors
    /// Fewer runs than the degree needs, or a fit that is too steep.
    pub fn fit(&self, degree: Degree) -> Result<Fit, PolynomialError> {
        let fit = polynomial::fit(&self.points(), degree)?;
        Ok(Fit { sensitivity: Sensitivity::new(fit.polynomial), r2: fit.r2 })
    }

    /// How well another sensitivity explains these runs: one of a profile with other data or nodes (section 4.2).
    pub fn r2(&self, sensitivity: &Sensitivity) -> f64 {
        polynomial::determination(sensitivity.model(), &self.points())
    }

    fn points(&self) -> Vec<(f64, f64)> {
        self.samples.iter().map(|s| (s.bandwidth.get(), s.slowdown)).collect()
    }
}
