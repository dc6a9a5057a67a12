//! Predefined specifications of random workloads.

use std::fmt;
use std::str::FromStr;

use weir_core::units::Time;

use super::{ArrivalProcess, CoflowKind, Distribution, Resolution, Skew, WorkloadSpec, WorkloadSpecError};

/// A predefined specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// Similar to the public coflow-benchmark trace, one hour of a MapReduce cluster that published evaluations replay: 526
    /// coflows on 150 ports, about 700,000 flows and 35 TB, almost all of them in a few coflows.
    Facebook,
    /// The same distributions scaled to 50 ports: 200 coflows in two to three minutes, about ten thousand flows.
    Small,
}

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 2] = [Preset::Facebook, Preset::Small];

    /// The specification with this seed.
    pub fn spec(self, seed: u64) -> WorkloadSpec {
        let (ports, coflows, gap, sigma) = match self {
            Preset::Facebook => (150, 526, 3.1, 1.28),
            Preset::Small => (50, 200, 0.35, 1.2),
        };
        let median = Time::new(gap).unwrap_or(Time::ZERO);
        let kinds = match self {
            Preset::Facebook => facebook(),
            Preset::Small => small(),
        };
        WorkloadSpec {
            ports,
            coflows,
            seed,
            arrival: ArrivalProcess::LogNormal { median, sigma },
            arrival_resolution: Resolution::PublicTrace,
            size_resolution: Resolution::PublicTrace,
            kinds,
            ..WorkloadSpec::default()
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Preset::Facebook => "facebook",
            Preset::Small => "small",
        })
    }
}

impl FromStr for Preset {
    type Err = WorkloadSpecError;

    fn from_str(text: &str) -> Result<Preset, WorkloadSpecError> {
        let preset = Preset::ALL.into_iter().find(|preset| preset.to_string() == text);
        preset.ok_or_else(|| WorkloadSpecError::new("preset", text, "facebook or small"))
    }
}

const fn constant(value: f64) -> Distribution {
    Distribution::Constant(value)
}

const fn uniform(min: f64, max: f64) -> Distribution {
    Distribution::Uniform { min, max }
}

const fn lognormal(median: f64, sigma: f64, min: f64, max: f64) -> Distribution {
    Distribution::LogNormal { median, sigma, min, max }
}

const fn kind(
    share: f64,
    mappers: Distribution,
    reducers: Distribution,
    size: Distribution,
    skew: Skew,
) -> CoflowKind {
    CoflowKind { share, mappers, reducers, mean_megabytes: size, skew }
}

/// The shares, widths and sizes of the public trace's coflows, by kind. The bounds of the distributions keep each kind in
/// its bin of Saath's Table 1.
fn facebook() -> Vec<CoflowKind> {
    let one = constant(1.0);
    vec![
        // Bin 1: narrow and small; about half are single flows.
        kind(0.228, one, one, lognormal(2.0, 1.6, 1.0, 94.0), Skew::None),
        kind(0.240, uniform(1.5, 8.0), one, lognormal(4.0, 1.4, 1.0, 94.0), Skew::None),
        // Bin 2: wide and small; many mappers or many reducers.
        kind(0.150, uniform(11.0, 30.0), one, lognormal(26.0, 0.5, 11.0, 94.0), Skew::None),
        kind(0.067, one, uniform(11.0, 50.0), uniform(1.1, 1.5), Skew::Spread(0.8)),
        // Bin 3: narrow and large.
        kind(0.047, uniform(0.5, 5.5), one, lognormal(200.0, 0.7, 101.0, 1200.0), Skew::None),
        // Bin 4: wide and large, from a hundred megabytes to terabytes.
        kind(
            0.066,
            lognormal(40.0, 0.8, 11.0, 147.0),
            lognormal(3.0, 1.0, 1.0, 30.0),
            lognormal(200.0, 1.0, 110.0, 5e3),
            Skew::None,
        ),
        kind(
            0.160,
            lognormal(52.0, 1.3, 1.0, 147.0),
            lognormal(50.0, 0.9, 11.0, 145.0),
            lognormal(100.0, 1.8, 12.0, 2e4),
            Skew::Spread(0.8),
        ),
        kind(
            0.008,
            uniform(20.0, 120.0),
            uniform(60.0, 145.0),
            lognormal(500.0, 1.0, 100.0, 5e3),
            Skew::Zipf(1.2),
        ),
        kind(
            0.034,
            uniform(90.0, 147.0),
            uniform(70.0, 145.0),
            lognormal(1.35e4, 0.6, 4e3, 7.2e4),
            Skew::Spread(0.5),
        ),
    ]
}

/// As [`facebook`], with widths and maximum sizes reduced to fit 50 ports and a few minutes.
fn small() -> Vec<CoflowKind> {
    let one = constant(1.0);
    vec![
        kind(0.230, one, one, lognormal(4.0, 1.5, 1.0, 94.0), Skew::None),
        kind(0.240, uniform(1.5, 8.0), one, lognormal(8.0, 1.3, 1.0, 94.0), Skew::None),
        kind(0.150, uniform(11.0, 24.0), one, lognormal(26.0, 0.5, 11.0, 94.0), Skew::None),
        kind(0.070, one, uniform(11.0, 24.0), uniform(1.2, 3.0), Skew::Spread(0.8)),
        kind(0.050, uniform(0.5, 5.5), one, lognormal(200.0, 0.7, 101.0, 1200.0), Skew::None),
        kind(
            0.070,
            lognormal(14.0, 0.5, 11.0, 36.0),
            lognormal(2.0, 0.7, 1.0, 8.0),
            lognormal(200.0, 0.8, 110.0, 2e3),
            Skew::None,
        ),
        kind(
            0.155,
            lognormal(8.0, 1.0, 3.0, 40.0),
            lognormal(16.0, 0.5, 11.0, 40.0),
            lognormal(90.0, 1.2, 12.0, 1500.0),
            Skew::Spread(0.8),
        ),
        kind(
            0.035,
            uniform(20.0, 44.0),
            uniform(16.0, 44.0),
            lognormal(1200.0, 0.5, 500.0, 3e3),
            Skew::Spread(0.5),
        ),
    ]
}
