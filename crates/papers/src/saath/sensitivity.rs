//! Writes Fig. 14: sweeps of S, E, the interval, the arrival rate and d.

use weir_console::chart::{DotPlot, DotRow, DotSeries, Scale};
use weir_core::units::Time;
use weir_sim::outcome::percentile;

use super::published::Comparison;
use super::replays::{ReplaySetting, Replays, coflow_speedups, mean_cct};
use super::speedups::PUBLISHED_OVER_AALO;
use crate::markdown::{format_cell, table};
use crate::picture::Pictures;

/// The values of S other than the default, with their policy parameters.
const START_THRESHOLDS: [(&str, &str); 4] =
    [("1 MB", ":start=1MB"), ("100 MB", ":start=100MB"), ("1 GB", ":start=1GB"), ("10 GB", ":start=10GB")];
/// The values of E. K follows E, so that the last threshold is at least that of E = 10 and K = 10.
const GROWTH_FACTORS: [(&str, &str); 3] = [
    ("2 (K = 31)", ":growth=2:queues=31"),
    ("5 (K = 14)", ":growth=5:queues=14"),
    ("32 (K = 7)", ":growth=32:queues=7"),
];
const INTERVALS_MS: [u32; 4] = [2, 40, 100, 400];
const ARRIVAL_FACTORS: [f64; 4] = [0.25, 0.5, 2.0, MAX_ARRIVAL_FACTOR];
const MAX_ARRIVAL_FACTOR: f64 = 4.0;
const DEADLINE_FACTORS: [(&str, &str); 3] = [("1", D_1), ("4", ":d=4"), ("16", ":d=16")];

/// The published median speedup of Saath over Aalo at the highest arrival rate.
const PUBLISHED_AT_HIGHEST_A: f64 = 1.9;
/// The same at d = 1.
const PUBLISHED_AT_D_1: f64 = 1.5;

const D_1: &str = ":d=1";

/// A value of a sweep, with the settings of both policies.
struct SweepPoint {
    figure: &'static str,
    value: String,
    saath: ReplaySetting,
    aalo: ReplaySetting,
}

fn points() -> Vec<SweepPoint> {
    let point = |figure, value: &str, saath: &str, aalo: &str| SweepPoint {
        figure,
        value: value.to_owned(),
        saath: ReplaySetting::new(format!("saath{saath}")),
        aalo: ReplaySetting::new(format!("aalo{aalo}")),
    };
    let mut points = vec![point("default", "-", "", "")];
    points.extend(START_THRESHOLDS.map(|(value, parameters)| point("(a) S", value, parameters, parameters)));
    points.extend(GROWTH_FACTORS.map(|(value, parameters)| point("(b) E", value, parameters, parameters)));
    for ms in INTERVALS_MS {
        let mut point = point("(c) interval", &format!("{ms} ms"), "", "");
        let interval = Time::new(f64::from(ms) * 1e-3);
        (point.saath.interval, point.aalo.interval) = (interval, interval);
        points.push(point);
    }
    for factor in ARRIVAL_FACTORS {
        let mut point = point("(d) A", &factor.to_string(), "", "");
        (point.saath, point.aalo) =
            (with_arrival_factor("saath", factor), with_arrival_factor("aalo", factor));
        points.push(point);
    }
    points.extend(DEADLINE_FACTORS.map(|(value, parameters)| point("(e) d", value, parameters, "")));
    points
}

/// A setting in which coflows arrive `arrival_factor` times as fast as in the trace.
fn with_arrival_factor(policy: &str, arrival_factor: f64) -> ReplaySetting {
    ReplaySetting { arrival_factor, ..ReplaySetting::new(policy) }
}

/// The settings of all points.
pub fn settings() -> Vec<ReplaySetting> {
    points().into_iter().flat_map(|point| [point.saath, point.aalo]).collect()
}

/// The numbers of section 6.3.
pub fn published(replays: &Replays) -> Vec<Comparison> {
    let p50 = |saath: &ReplaySetting, aalo: &ReplaySetting| {
        percentile(&coflow_speedups(replays.outcome(saath), replays.outcome(aalo)), 50.0)
    };
    let fastest = p50(
        &with_arrival_factor("saath", MAX_ARRIVAL_FACTOR),
        &with_arrival_factor("aalo", MAX_ARRIVAL_FACTOR),
    );
    let d_1 = p50(&ReplaySetting::new(format!("saath{D_1}")), &ReplaySetting::new("aalo"));
    vec![
        Comparison::number(
            "Saath over Aalo at the highest A, P50",
            "6.3, Fig. 14d: \"to 1.9x\"",
            PUBLISHED_AT_HIGHEST_A,
            fastest,
        ),
        Comparison::number(
            "Saath over Aalo at d = 1, P50",
            "6.3, Fig. 14e: \"median speedup of 1.5x\"",
            PUBLISHED_AT_D_1,
            d_1,
        ),
    ]
}

/// The section of Fig. 14.
pub fn section(replays: &Replays, pictures: &mut Pictures) -> String {
    let default = replays.outcome_of_policy("aalo");
    let line = |point: &SweepPoint| {
        let (saath, aalo) = (replays.outcome(&point.saath), replays.outcome(&point.aalo));
        let p50 = |outcome, baseline| format_cell(percentile(&coflow_speedups(outcome, baseline), 50.0));
        vec![
            point.figure.to_owned(),
            point.value.clone(),
            p50(saath, default),
            p50(aalo, default),
            p50(saath, aalo),
            format_cell(mean_cct(saath)),
            format_cell(mean_cct(aalo)),
        ]
    };
    let head = [
        "Parameter",
        "Value",
        "Saath over default Aalo, P50",
        "Aalo over default Aalo, P50",
        "Saath over Aalo, both at this value, P50",
        "Mean CCT of Saath, s",
        "Mean CCT of Aalo, s",
    ];
    format!(
        "\n\
         ## Fig. 14: sensitivity\n\n\
         The paper prints curves; the quotes below are from its text (6.3). The defaults are S = 10 MB, E = 10, A = 1, d = 2 \
         and the interval of this page.\n\n\
         - (a) Start threshold S: \"Aalo is highly sensitive to S\"; Saath is \"relatively insensitive\".\n\
         - (b) Growth E: both are \"insensitive to E\"; \"as E grows, the number of queues decreases\". K follows E here.\n\
         - (c) Scheduling interval: as it grows, \"the speedup in Aalo and SAATH both diminish\".\n\
         - (d) Arrivals A times as fast: \"the overall speedup in both SAATH and Aalo decreases\", and that of Saath over \
         Aalo grows \"from 1.53x to 1.9x\".\n\
         - (e) Deadline factor d: Saath is \"insensitive to d\".\n\
         {}{}",
        table(&head, 2, &points().iter().map(line).collect::<Vec<_>>()),
        pictures.add(
            "sensitivity",
            "Median speedups by S, E, interval, arrival rate and d, with published medians",
            "Median speedups of the table. Hollow: published medians of Saath over Aalo, both at this value (6.1, 6.3).",
            plot(replays),
        )
    )
}

/// The median speedups at all points.
fn plot(replays: &Replays) -> Option<String> {
    let default = replays.outcome_of_policy("aalo");
    let row = |point: &SweepPoint| {
        let (saath, aalo) = (replays.outcome(&point.saath), replays.outcome(&point.aalo));
        let p50 = |outcome, baseline| Some(percentile(&coflow_speedups(outcome, baseline), 50.0));
        let published = match (point.figure, &*point.value) {
            ("default", _) => Some(PUBLISHED_OVER_AALO[0]),
            ("(d) A", value) if value == MAX_ARRIVAL_FACTOR.to_string() => Some(PUBLISHED_AT_HIGHEST_A),
            ("(e) d", "1") => Some(PUBLISHED_AT_D_1),
            _ => None,
        };
        let name = if point.value == "-" {
            point.figure.to_owned()
        } else {
            format!("{} = {}", point.figure, point.value)
        };
        DotRow::new(name, &[published, p50(saath, aalo), p50(saath, default), p50(aalo, default)])
    };
    let series = vec![
        DotSeries::published("published: Saath over Aalo"),
        DotSeries::measured("Saath over Aalo, both at this value"),
        DotSeries::measured("Saath over default Aalo"),
        DotSeries::measured("Aalo over default Aalo"),
    ];
    let rows = points().iter().map(row).collect();
    DotPlot { title: "median speedup", scale: Scale::Log, reference: Some(1.0), series, rows }.to_svg()
}
