//! Probability distributions of generated workloads, as text and as samples.

use std::fmt;
use std::str::FromStr;

use weir_core::units::Time;

use super::{SeededRng, WorkloadSpecError};
use crate::number;

/// The maximum value of a parameter.
const MAX_PARAMETER: f64 = 1e12;

/// A distribution of numbers. Its text is the name, a colon, and the parameters in the order below, such as
/// `pareto:1.2,1,150`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distribution {
    /// `constant:V`: always V.
    Constant(f64),
    /// `uniform:MIN,MAX`: uniform between the two.
    Uniform {
        /// The minimum.
        min: f64,
        /// The maximum.
        max: f64,
    },
    /// `exponential:MEAN`.
    Exponential {
        /// The mean.
        mean: f64,
    },
    /// `pareto:SHAPE,MIN,MAX`: a Pareto distribution truncated at the maximum.
    Pareto {
        /// The shape, from 0.01 to 100. A lower value gives a heavier tail.
        shape: f64,
        /// The minimum; above 0.
        min: f64,
        /// The maximum.
        max: f64,
    },
    /// `lognormal:MEDIAN,SIGMA,MIN,MAX`: values outside the bounds are set to the bound.
    LogNormal {
        /// The median; above 0.
        median: f64,
        /// The standard deviation of the logarithm; up to 100.
        sigma: f64,
        /// The minimum.
        min: f64,
        /// The maximum.
        max: f64,
    },
}

/// The expected value in errors about distributions.
const EXPECTED_DISTRIBUTION: &str = "constant:V, uniform:MIN,MAX, exponential:MEAN, pareto:SHAPE,MIN,MAX or \
                    lognormal:MEDIAN,SIGMA,MIN,MAX";

impl Distribution {
    /// Checks the ranges of the parameters.
    pub(super) fn check(&self, field: &str) -> Result<(), WorkloadSpecError> {
        let is_valid_range = |min: f64, max: f64| 0.0 <= min && min <= max && max <= MAX_PARAMETER;
        let (is_valid, expected) = match *self {
            Distribution::Constant(value) => (is_valid_range(0.0, value), "a value from 0 to 1e12"),
            Distribution::Uniform { min, max } => (is_valid_range(min, max), "0 <= MIN <= MAX <= 1e12"),
            Distribution::Exponential { mean } => (is_valid_range(0.0, mean), "a mean from 0 to 1e12"),
            Distribution::Pareto { shape, min, max } => (
                (0.01..=100.0).contains(&shape) && min > 0.0 && is_valid_range(min, max),
                "a shape from 0.01 to 100, and 0 < MIN <= MAX <= 1e12",
            ),
            Distribution::LogNormal { median, sigma, min, max } => (
                median > 0.0
                    && is_valid_range(0.0, median)
                    && (0.0..=100.0).contains(&sigma)
                    && is_valid_range(min, max),
                "a median above 0, a sigma from 0 to 100, and 0 <= MIN <= MAX <= 1e12",
            ),
        };
        if is_valid { Ok(()) } else { Err(WorkloadSpecError::new(field, self, expected)) }
    }

    /// A sample; finite and at least 0 if the parameters are in their ranges.
    pub(super) fn sample(&self, rng: &mut SeededRng) -> f64 {
        match *self {
            Distribution::Constant(value) => value,
            Distribution::Uniform { min, max } => min + (max - min) * rng.uniform(),
            Distribution::Exponential { mean } => -mean * libm::log(1.0 - rng.uniform()),
            Distribution::Pareto { shape, min, max } => {
                let tail_probability = libm::pow(min / max, shape);
                let value = min * libm::pow(1.0 - rng.uniform() * (1.0 - tail_probability), -1.0 / shape);
                value.clamp(min, max)
            }
            Distribution::LogNormal { median, sigma, min, max } => {
                (median * libm::exp(sigma * rng.standard_normal())).clamp(min, max)
            }
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Constant(value) => write!(f, "constant:{value}"),
            Distribution::Uniform { min, max } => write!(f, "uniform:{min},{max}"),
            Distribution::Exponential { mean } => write!(f, "exponential:{mean}"),
            Distribution::Pareto { shape, min, max } => write!(f, "pareto:{shape},{min},{max}"),
            Distribution::LogNormal { median, sigma, min, max } => {
                write!(f, "lognormal:{median},{sigma},{min},{max}")
            }
        }
    }
}

impl FromStr for Distribution {
    type Err = WorkloadSpecError;

    fn from_str(text: &str) -> Result<Distribution, WorkloadSpecError> {
        let parse_error = || WorkloadSpecError::new("distribution", text, EXPECTED_DISTRIBUTION);
        let (name, parameters) = text.split_once(':').ok_or_else(parse_error)?;
        let parameters: Option<Vec<f64>> = parameters.split(',').take(5).map(number::parse_decimal).collect();
        let distribution = match (name, parameters.ok_or_else(parse_error)?.as_slice()) {
            ("constant", &[value]) => Distribution::Constant(value),
            ("uniform", &[min, max]) => Distribution::Uniform { min, max },
            ("exponential", &[mean]) => Distribution::Exponential { mean },
            ("pareto", &[shape, min, max]) => Distribution::Pareto { shape, min, max },
            ("lognormal", &[median, sigma, min, max]) => Distribution::LogNormal { median, sigma, min, max },
            _ => return Err(parse_error()),
        };
        distribution.check("distribution")?;
        Ok(distribution)
    }
}

/// A distribution of the gaps between arrivals. As text: `poisson:7s`, `every:7s`, `lognormal:3s,1.3` or `burst`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ArrivalProcess {
    /// `poisson:MEAN`: exponential gaps.
    Poisson {
        /// The mean gap.
        mean: Time,
    },
    /// `every:GAP`: constant gaps.
    Every {
        /// The gap.
        gap: Time,
    },
    /// `lognormal:MEDIAN,SIGMA`: heavier-tailed than Poisson, with bursts and idle periods as in the public trace.
    LogNormal {
        /// The median gap.
        median: Time,
        /// The standard deviation of the gap's logarithm; up to 5.
        sigma: f64,
    },
    /// `burst`: all arrivals at time 0.
    Burst,
}

impl ArrivalProcess {
    pub(super) fn check(&self) -> Result<(), WorkloadSpecError> {
        match *self {
            ArrivalProcess::LogNormal { sigma, .. } if !(0.0..=5.0).contains(&sigma) => {
                Err(WorkloadSpecError::new("arrival", self, "a sigma from 0 to 5"))
            }
            _ => Ok(()),
        }
    }

    /// A sample of the gap to the next arrival, in seconds.
    pub(super) fn sample_gap(&self, rng: &mut SeededRng) -> f64 {
        match *self {
            ArrivalProcess::Poisson { mean } => -mean.get() * libm::log(1.0 - rng.uniform()),
            ArrivalProcess::Every { gap } => gap.get(),
            ArrivalProcess::LogNormal { median, sigma } => {
                median.get() * libm::exp(sigma * rng.standard_normal())
            }
            ArrivalProcess::Burst => 0.0,
        }
    }
}

impl fmt::Display for ArrivalProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ArrivalProcess::Poisson { mean } => write!(f, "poisson:{}", number::format_time(mean)),
            ArrivalProcess::Every { gap } => write!(f, "every:{}", number::format_time(gap)),
            ArrivalProcess::LogNormal { median, sigma } => {
                write!(f, "lognormal:{},{sigma}", number::format_time(median))
            }
            ArrivalProcess::Burst => f.write_str("burst"),
        }
    }
}

impl FromStr for ArrivalProcess {
    type Err = WorkloadSpecError;

    fn from_str(text: &str) -> Result<ArrivalProcess, WorkloadSpecError> {
        let parse_error = || {
            let expected =
                "poisson:MEAN, every:GAP, lognormal:MEDIAN,SIGMA (such as lognormal:3s,1.3) or burst";
            WorkloadSpecError::new("arrival", text, expected)
        };
        let time = |time: &str| {
            time.parse().map_err(|_| match number::parse_decimal(time) {
                Some(_) => {
                    let expected = format!(
                        "a time with a unit; help: write `{}`",
                        text.replacen(time, &format!("{time}s"), 1)
                    );
                    WorkloadSpecError::new("arrival", text, expected)
                }
                None => parse_error(),
            })
        };
        let arrival = match text.split_once(':') {
            None if text == "burst" => ArrivalProcess::Burst,
            Some(("poisson", mean)) => ArrivalProcess::Poisson { mean: time(mean)? },
            Some(("every", gap)) => ArrivalProcess::Every { gap: time(gap)? },
            Some(("lognormal", parameters)) => {
                let (median, sigma) = parameters.split_once(',').ok_or_else(parse_error)?;
                let sigma = number::parse_decimal(sigma).ok_or_else(parse_error)?;
                ArrivalProcess::LogNormal { median: time(median)?, sigma }
            }
            _ => return Err(parse_error()),
        };
        arrival.check()?;
        Ok(arrival)
    }
}

/// The differences between the sizes of a coflow's reducers. As text: `none`, `spread:0.8` or `zipf:1.2`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Skew {
    /// `none`: all sizes are equal.
    None,
    /// `spread:PART`: uniform between `1 - PART` and `1 + PART` times the mean.
    Spread(f64),
    /// `zipf:EXPONENT`: the k-th largest size is proportional to `1 / k^EXPONENT`.
    Zipf(f64),
}

impl Skew {
    pub(super) fn check(&self) -> Result<(), WorkloadSpecError> {
        let (is_valid, expected) = match self {
            Skew::None => (true, ""),
            Skew::Spread(part) => ((0.0..=1.0).contains(part), "a fraction from 0 to 1"),
            Skew::Zipf(exponent) => ((0.0..=10.0).contains(exponent), "an exponent from 0 to 10"),
        };
        if is_valid { Ok(()) } else { Err(WorkloadSpecError::new("skew", self, expected)) }
    }

    /// For each of `count` reducers, the factor of its size relative to the mean.
    pub(super) fn factors(&self, count: usize, rng: &mut SeededRng) -> Vec<f64> {
        match *self {
            Skew::None => vec![1.0; count],
            Skew::Spread(part) => (0..count).map(|_| 1.0 - part + 2.0 * part * rng.uniform()).collect(),
            Skew::Zipf(exponent) => {
                let zipf_weight = |k: usize| libm::pow(k as f64, -exponent);
                let mean = (1..=count).map(zipf_weight).sum::<f64>() / count as f64;
                (1..=count).map(|k| zipf_weight(k) / mean).collect()
            }
        }
    }
}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Skew::None => f.write_str("none"),
            Skew::Spread(part) => write!(f, "spread:{part}"),
            Skew::Zipf(exponent) => write!(f, "zipf:{exponent}"),
        }
    }
}

impl FromStr for Skew {
    type Err = WorkloadSpecError;

    fn from_str(text: &str) -> Result<Skew, WorkloadSpecError> {
        let parse_error = || WorkloadSpecError::new("skew", text, "none, spread:PART or zipf:EXPONENT");
        let skew = match text.split_once(':') {
            None if text == "none" => Skew::None,
            Some(("spread", part)) => Skew::Spread(number::parse_decimal(part).ok_or_else(parse_error)?),
            Some(("zipf", exponent)) => Skew::Zipf(number::parse_decimal(exponent).ok_or_else(parse_error)?),
            _ => return Err(parse_error()),
        };
        skew.check()?;
        Ok(skew)
    }
}
