//! Probability distributions of generated workloads, as text and as samples.

use std::fmt;
use std::str::FromStr;

use weir_core::units::Time;

use super::{SeededRng, SpecError};
use crate::number;

/// The maximum value of a parameter.
const MAX: f64 = 1e12;

/// A distribution of numbers. Its text is the name, a colon, and the parameters in the order below, such as
/// `pareto:1.2,1,150`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Law {
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
const LAWS: &str = "constant:V, uniform:MIN,MAX, exponential:MEAN, pareto:SHAPE,MIN,MAX or \
                    lognormal:MEDIAN,SIGMA,MIN,MAX";

impl Law {
    /// Checks the ranges of the parameters.
    pub(super) fn check(&self, field: &str) -> Result<(), SpecError> {
        let ordered = |min: f64, max: f64| 0.0 <= min && min <= max && max <= MAX;
        let (right, expected) = match *self {
            Law::Constant(value) => (ordered(0.0, value), "a value from 0 to 1e12"),
            Law::Uniform { min, max } => (ordered(min, max), "0 <= MIN <= MAX <= 1e12"),
            Law::Exponential { mean } => (ordered(0.0, mean), "a mean from 0 to 1e12"),
            Law::Pareto { shape, min, max } => (
                (0.01..=100.0).contains(&shape) && min > 0.0 && ordered(min, max),
                "a shape from 0.01 to 100, and 0 < MIN <= MAX <= 1e12",
            ),
            Law::LogNormal { median, sigma, min, max } => (
                median > 0.0 && ordered(0.0, median) && (0.0..=100.0).contains(&sigma) && ordered(min, max),
                "a median above 0, a sigma from 0 to 100, and 0 <= MIN <= MAX <= 1e12",
            ),
        };
        if right { Ok(()) } else { Err(SpecError::new(field, self, expected)) }
    }

    /// A sample; finite and at least 0 if the parameters are in their ranges.
    pub(super) fn sample(&self, dice: &mut SeededRng) -> f64 {
        match *self {
            Law::Constant(value) => value,
            Law::Uniform { min, max } => min + (max - min) * dice.unit(),
            Law::Exponential { mean } => -mean * libm::log(1.0 - dice.unit()),
            Law::Pareto { shape, min, max } => {
                let beyond = libm::pow(min / max, shape);
                let value = min * libm::pow(1.0 - dice.unit() * (1.0 - beyond), -1.0 / shape);
                value.clamp(min, max)
            }
            Law::LogNormal { median, sigma, min, max } => {
                (median * libm::exp(sigma * dice.normal())).clamp(min, max)
            }
        }
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Law::Constant(value) => write!(f, "constant:{value}"),
            Law::Uniform { min, max } => write!(f, "uniform:{min},{max}"),
            Law::Exponential { mean } => write!(f, "exponential:{mean}"),
            Law::Pareto { shape, min, max } => write!(f, "pareto:{shape},{min},{max}"),
            Law::LogNormal { median, sigma, min, max } => {
                write!(f, "lognormal:{median},{sigma},{min},{max}")
            }
        }
    }
}

impl FromStr for Law {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Law, SpecError> {
        let wrong = || SpecError::new("law", text, LAWS);
        let (name, parameters) = text.split_once(':').ok_or_else(wrong)?;
        let parameters: Option<Vec<f64>> = parameters.split(',').take(5).map(number::decimal).collect();
        let law = match (name, parameters.ok_or_else(wrong)?.as_slice()) {
            ("constant", &[value]) => Law::Constant(value),
            ("uniform", &[min, max]) => Law::Uniform { min, max },
            ("exponential", &[mean]) => Law::Exponential { mean },
            ("pareto", &[shape, min, max]) => Law::Pareto { shape, min, max },
            ("lognormal", &[median, sigma, min, max]) => Law::LogNormal { median, sigma, min, max },
            _ => return Err(wrong()),
        };
        law.check("law")?;
        Ok(law)
    }
}

/// A distribution of the gaps between arrivals. As text: `poisson:7s`, `every:7s`, `lognormal:3s,1.3` or `burst`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrival {
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

impl Arrival {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        match *self {
            Arrival::LogNormal { sigma, .. } if !(0.0..=5.0).contains(&sigma) => {
                Err(SpecError::new("arrival", self, "a sigma from 0 to 5"))
            }
            _ => Ok(()),
        }
    }

    /// A sample of the gap to the next arrival, in seconds.
    pub(super) fn gap(&self, dice: &mut SeededRng) -> f64 {
        match *self {
            Arrival::Poisson { mean } => -mean.get() * libm::log(1.0 - dice.unit()),
            Arrival::Every { gap } => gap.get(),
            Arrival::LogNormal { median, sigma } => median.get() * libm::exp(sigma * dice.normal()),
            Arrival::Burst => 0.0,
        }
    }
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Arrival::Poisson { mean } => write!(f, "poisson:{}", number::time(mean)),
            Arrival::Every { gap } => write!(f, "every:{}", number::time(gap)),
            Arrival::LogNormal { median, sigma } => {
                write!(f, "lognormal:{},{sigma}", number::time(median))
            }
            Arrival::Burst => f.write_str("burst"),
        }
    }
}

impl FromStr for Arrival {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Arrival, SpecError> {
        let wrong = || {
            let expected =
                "poisson:MEAN, every:GAP, lognormal:MEDIAN,SIGMA (such as lognormal:3s,1.3) or burst";
            SpecError::new("arrival", text, expected)
        };
        let time = |text: &str| text.parse().map_err(|_| wrong());
        let arrival = match text.split_once(':') {
            None if text == "burst" => Arrival::Burst,
            Some(("poisson", mean)) => Arrival::Poisson { mean: time(mean)? },
            Some(("every", gap)) => Arrival::Every { gap: time(gap)? },
            Some(("lognormal", parameters)) => {
                let (median, sigma) = parameters.split_once(',').ok_or_else(wrong)?;
                let sigma = number::decimal(sigma).ok_or_else(wrong)?;
                Arrival::LogNormal { median: time(median)?, sigma }
            }
            _ => return Err(wrong()),
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
    pub(super) fn check(&self) -> Result<(), SpecError> {
        let (right, expected) = match self {
            Skew::None => (true, ""),
            Skew::Spread(part) => ((0.0..=1.0).contains(part), "a part from 0 to 1"),
            Skew::Zipf(exponent) => ((0.0..=10.0).contains(exponent), "an exponent from 0 to 10"),
        };
        if right { Ok(()) } else { Err(SpecError::new("skew", self, expected)) }
    }

    /// For each of `count` reducers, the factor of its size relative to the mean.
    pub(super) fn factors(&self, count: usize, dice: &mut SeededRng) -> Vec<f64> {
        match *self {
            Skew::None => vec![1.0; count],
            Skew::Spread(part) => (0..count).map(|_| 1.0 - part + 2.0 * part * dice.unit()).collect(),
            Skew::Zipf(exponent) => {
                let rank = |k: usize| libm::pow(k as f64, -exponent);
                let mean = (1..=count).map(rank).sum::<f64>() / count as f64;
                (1..=count).map(|k| rank(k) / mean).collect()
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
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Skew, SpecError> {
        let wrong = || SpecError::new("skew", text, "none, spread:PART or zipf:EXPONENT");
        let skew = match text.split_once(':') {
            None if text == "none" => Skew::None,
            Some(("spread", part)) => Skew::Spread(number::decimal(part).ok_or_else(wrong)?),
            Some(("zipf", exponent)) => Skew::Zipf(number::decimal(exponent).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        };
        skew.check()?;
        Ok(skew)
    }
}
