//! Figure 14: sweeps of S, E, the interval, the arrival rate and d.

use weir_core::units::Time;
use weir_sim::outcome::percentile;

use super::published::Comparison;
use super::replays::{Replays, Setting, mean_cct, speedup};
use crate::doc::{n, table};

/// Values other than the default, and policy parameters.
const STARTS: [(&str, &str); 4] =
    [("1 MB", ":start=1MB"), ("100 MB", ":start=100MB"), ("1 GB", ":start=1GB"), ("10 GB", ":start=10GB")];
/// K follows E: the queues reach at least the last threshold of E = 10 and K = 10.
const GROWTHS: [(&str, &str); 3] = [
    ("2 (K = 31)", ":growth=2:queues=31"),
    ("5 (K = 14)", ":growth=5:queues=14"),
    ("32 (K = 7)", ":growth=32:queues=7"),
];
const INTERVALS_MS: [u32; 4] = [2, 40, 100, 400];
const SPEEDS: [f64; 4] = [0.25, 0.5, 2.0, FASTEST];
const FASTEST: f64 = 4.0;
const DEADLINES: [(&str, &str); 3] = [("1", D_1), ("4", ":d=4"), ("16", ":d=16")];
const D_1: &str = ":d=1";

/// A value of a sweep: the settings of both policies.
struct Point {
    figure: &'static str,
    value: String,
    saath: Setting,
    aalo: Setting,
}

fn points() -> Vec<Point> {
    let point = |figure, value: &str, saath: &str, aalo: &str| Point {
        figure,
        value: value.to_owned(),
        saath: Setting::new(format!("saath{saath}")),
        aalo: Setting::new(format!("aalo{aalo}")),
    };
    let mut points = vec![point("default", "-", "", "")];
    points.extend(STARTS.map(|(value, parameters)| point("(a) S", value, parameters, parameters)));
    points.extend(GROWTHS.map(|(value, parameters)| point("(b) E", value, parameters, parameters)));
    for ms in INTERVALS_MS {
        let mut point = point("(c) interval", &format!("{ms} ms"), "", "");
        let interval = Time::new(f64::from(ms) * 1e-3);
        (point.saath.interval, point.aalo.interval) = (interval, interval);
        points.push(point);
    }
    for speed in SPEEDS {
        let mut point = point("(d) A", &speed.to_string(), "", "");
        (point.saath, point.aalo) = (arriving("saath", speed), arriving("aalo", speed));
        points.push(point);
    }
    points.extend(DEADLINES.map(|(value, parameters)| point("(e) d", value, parameters, "")));
    points
}

/// Coflows that arrive `speed` times as fast as in the trace.
fn arriving(policy: &str, speed: f64) -> Setting {
    Setting { speed, ..Setting::new(policy) }
}

pub fn settings() -> Vec<Setting> {
    points().into_iter().flat_map(|point| [point.saath, point.aalo]).collect()
}

/// The numbers of section 6.3.
pub fn published(replays: &Replays) -> Vec<Comparison> {
    let p50 =
        |saath: &Setting, aalo: &Setting| percentile(&speedup(replays.at(saath), replays.at(aalo)), 50.0);
    let fastest = p50(&arriving("saath", FASTEST), &arriving("aalo", FASTEST));
    let d_1 = p50(&Setting::new(format!("saath{D_1}")), &Setting::new("aalo"));
    vec![
        Comparison::number(
            "Saath over Aalo at the highest A, P50",
            "6.3, Fig. 14d: \"to 1.9x\"",
            1.9,
            fastest,
        ),
        Comparison::number(
            "Saath over Aalo at d = 1, P50",
            "6.3, Fig. 14e: \"median speedup of 1.5x\"",
            1.5,
            d_1,
        ),
    ]
}

/// The section of Fig. 14.
pub fn section(replays: &Replays) -> String {
    let default = replays.of("aalo");
    let line = |point: &Point| {
        let (saath, aalo) = (replays.at(&point.saath), replays.at(&point.aalo));
        let p50 = |outcome, baseline| n(percentile(&speedup(outcome, baseline), 50.0));
        vec![
            point.figure.to_owned(),
            point.value.clone(),
            p50(saath, default),
            p50(aalo, default),
            p50(saath, aalo),
            n(mean_cct(saath)),
            n(mean_cct(aalo)),
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
        "\n## Fig. 14: sensitivity\n\nThe paper prints curves; its text (6.3) says the following. S = 10 MB, E = 10, A = 1, d = 2 and the \
         interval of the page are the default.\n\n\
         - (a) Start threshold S: \"Aalo is highly sensitive to S\"; Saath is \"relatively insensitive\".\n\
         - (b) Growth E: both are \"insensitive to E\"; \"as E grows, the number of queues decreases\". K follows E here.\n\
         - (c) Scheduling interval: as it grows, \"the speedup in Aalo and SAATH both diminish\".\n\
         - (d) Arrivals A times as fast: \"the overall speedup in both SAATH and Aalo decreases\", and that of Saath over \
         Aalo grows \"from 1.53x to 1.9x\".\n\
         - (e) Deadline factor d: Saath is \"insensitive to d\".\n{}",
        table(&head, 2, &points().iter().map(line).collect::<Vec<_>>())
    )
}
