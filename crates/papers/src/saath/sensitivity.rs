//! Figure 14: the sweeps; and what schedules cost (7.3).

use std::fmt::Write;
use std::rc::Rc;

use weir_sim::outcome::percentile;

use super::claims::Bench;
use super::lab::{Lab, Summary};
use super::world::World;
use crate::doc::{n, ratio, same, table, yes};

/// What the paper varies it by is in the plots; these values span the ranges that the text names.
pub const STARTS: [&str; 5] = ["1MB", "10MB", "100MB", "1GB", "10GB"];
pub const GROWTHS: [&str; 4] = ["2", "5", "10", "32"];
/// The same, with as many queues as it takes to get from S to the last threshold of E = 10 and K = 10.
pub const SPANNING: [(&str, &str); 4] = [("2", "31"), ("5", "14"), ("10", "10"), ("32", "7")];
const INTERVALS: [(&str, f64); 5] =
    [("2 ms", 0.002), ("8 ms", 0.008), ("40 ms", 0.04), ("100 ms", 0.1), ("400 ms", 0.4)];
const SPEEDS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
const DEADLINES: [&str; 5] = ["1", "2", "4", "8", "16"];

struct Point {
    value: String,
    saath: Rc<Summary>,
    aalo: Rc<Summary>,
}

struct Curve {
    /// Medians over the default Aalo: of Saath, of Aalo.
    medians: Vec<[f64; 2]>,
    /// Median of Saath over Aalo at the same value.
    same_value: Vec<f64>,
}

/// A policy with another value of a parameter than its default.
pub fn with(policy: &str, key: &str, value: &str, default: &str) -> String {
    if value == default { policy.to_owned() } else { format!("{policy}:{key}={value}") }
}

fn curve(lab: &Lab<'_>, points: &[Point], name: &str, out: &mut String) -> Curve {
    let default = lab.plain("aalo");
    let median = |of: &Summary, base: &Summary| percentile(&of.over(base), 50.0);
    let mut curve = Curve { medians: Vec::new(), same_value: Vec::new() };
    let mut lines = Vec::new();
    for point in points {
        let both = [median(&point.saath, &default), median(&point.aalo, &default)];
        let same = median(&point.saath, &point.aalo);
        lines.push(vec![
            point.value.clone(),
            n(both[0]),
            n(both[1]),
            n(same),
            n(default.mean() / point.saath.mean()),
            n(default.mean() / point.aalo.mean()),
            n(point.saath.mean()),
            n(point.aalo.mean()),
        ]);
        curve.medians.push(both);
        curve.same_value.push(same);
    }
    let head = [
        name,
        "Saath, median over default Aalo",
        "Aalo, the same",
        "Saath over Aalo at this value, median",
        "Saath, mean CCT against default Aalo",
        "Aalo, the same",
        "mean CCT of Saath, s",
        "of Aalo, s",
    ];
    out.push_str(&table(&head, 1, &lines));
    curve
}

/// Below it the text's "insensitive" holds.
pub const INSENSITIVE: f64 = 1.25;

/// How many times the largest is the smallest.
pub fn swing(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().fold(0.0, f64::max) / values.fold(f64::INFINITY, f64::min)
}

fn swings(points: &[Point]) -> [f64; 2] {
    [swing(points.iter().map(|p| p.saath.mean())), swing(points.iter().map(|p| p.aalo.mean()))]
}

/// All of Figure 14.
pub fn fig14(lab: &Lab<'_>) -> String {
    let mut out = String::from(
        "\n## Fig. 14: sensitivity\n\nThe curves are plots; the text of 6.3 is checked below each. Speed-ups are per coflow against the default Aalo \
         (`aalo` with S = 10 MB, E = 10, 8 ms, A = 1), as the text says of (d). \"Swings by\" is the largest mean CCT over the \
         smallest; under 1.25 counts as insensitive.\n",
    );
    thresholds(lab, &mut out);
    intervals(lab, &mut out);
    arrivals(lab, &mut out);
    deadlines(lab, &mut out);
    out
}

fn thresholds(lab: &Lab<'_>, out: &mut String) {
    let sweep = |key: &str, values: &[&str], default: &str| -> Vec<Point> {
        let point = |&value: &&str| Point {
            value: value.to_owned(),
            saath: lab.plain(&with("saath", key, value, default)),
            aalo: lab.plain(&with("aalo", key, value, default)),
        };
        values.iter().map(point).collect()
    };
    out.push_str("\n### (a) Start threshold S\n");
    let points = sweep("start", &STARTS, "10MB");
    curve(lab, &points, "S", out);
    let [saath, aalo] = swings(&points);
    writeln!(
        out,
        "\"Aalo is highly sensitive to S\": {} (swings by {}). \"SAATH is relatively insensitive\": {} (swings by {}). Saath swings less than \
         Aalo: {}.",
        yes(aalo >= INSENSITIVE),
        n(aalo),
        yes(saath < INSENSITIVE),
        n(saath),
        yes(saath < aalo)
    )
    .expect("memory takes all");
    out.push_str("\n### (b) Growth E\n");
    let points = sweep("growth", &GROWTHS, "10");
    curve(lab, &points, "E", out);
    let insensitive = |points: &[Point], out: &mut String| {
        let [saath, aalo] = swings(points);
        writeln!(
            out,
            "\"SAATH and Aalo are both insensitive to E\": Saath {} (swings by {}), Aalo {} (swings by {}).",
            yes(saath < INSENSITIVE),
            n(saath),
            yes(aalo < INSENSITIVE),
            n(aalo)
        )
        .expect("memory takes all");
    };
    insensitive(&points, out);
    out.push_str(
        "\nThat was with ten queues throughout, which end at lower and lower thresholds. But \"as E grows, the number of queues decreases\" (6.3); so \
         again with as many as it takes to reach the threshold that the last of ten has with E = 10:\n",
    );
    let points: Vec<Point> = SPANNING
        .iter()
        .map(|&(growth, queues)| {
            let both = |policy| with(&with(policy, "growth", growth, "10"), "queues", queues, "10");
            Point {
                value: format!("{growth}, K = {queues}"),
                saath: lab.plain(&both("saath")),
                aalo: lab.plain(&both("aalo")),
            }
        })
        .collect();
    curve(lab, &points, "E", out);
    insensitive(&points, out);
}

fn intervals(lab: &Lab<'_>, out: &mut String) {
    out.push_str("\n### (c) Interval\n");
    let points: Vec<Point> = INTERVALS
        .iter()
        .map(|&(name, interval)| {
            let world = World { interval, ..lab.plain };
            Point { value: name.to_owned(), saath: lab.get(world, "saath"), aalo: lab.get(world, "aalo") }
        })
        .collect();
    let curve = curve(lab, &points, "interval", out);
    let falls = |which: usize| curve.medians.windows(2).all(|w| w[1][which] <= w[0][which] * 1.005);
    writeln!(
        out,
        "\"As the interval increases, the speedup in Aalo and SAATH both diminish\": Saath {}, Aalo {}.",
        yes(falls(0)),
        yes(falls(1))
    )
    .expect("memory takes all");
}

fn arrivals(lab: &Lab<'_>, out: &mut String) {
    out.push_str("\n### (d) Arrivals A times as fast\n");
    let points: Vec<Point> = SPEEDS
        .iter()
        .map(|&speed| {
            let world = World { speed, ..lab.plain };
            Point { value: format!("{speed}"), saath: lab.get(world, "saath"), aalo: lab.get(world, "aalo") }
        })
        .collect();
    let curve = curve(lab, &points, "A", out);
    let means = |pick: fn(&Point) -> &Rc<Summary>| {
        points.windows(2).all(|w| pick(&w[1]).mean() >= pick(&w[0]).mean())
    };
    writeln!(
        out,
        "\"As A increases, the overall speedup in both decreases\": by mean CCT Saath {}, Aalo {}; by medians Saath {}, Aalo {}.",
        yes(means(|p| &p.saath)),
        yes(means(|p| &p.aalo)),
        yes(curve.medians.windows(2).all(|w| w[1][0] <= w[0][0] * 1.005)),
        yes(curve.medians.windows(2).all(|w| w[1][1] <= w[0][1] * 1.005)),
    )
    .expect("memory takes all");
    let from = curve.same_value[2];
    let to = curve.same_value[4];
    let rows = [
        ("Saath over Aalo, A = 1", 1.53, from),
        ("at the highest A", 1.9, to),
        ("growth", 1.9 / 1.53, to / from),
    ];
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|&(name, published, measured)| {
            vec![
                name.to_owned(),
                n(published),
                n(measured),
                ratio(measured, published),
                yes(same(measured, published)),
            ]
        })
        .collect();
    out.push_str("\n\"When we increase A, the speedup of SAATH over Aalo increases, from 1.53x to 1.9x\":\n");
    out.push_str(&table(&["", "published", "measured", "ratio", "within 10 %"], 1, &lines));
}

fn deadlines(lab: &Lab<'_>, out: &mut String) {
    out.push_str("\n### (e) Deadline factor d\n");
    let points: Vec<Point> = DEADLINES
        .iter()
        .map(|&d| Point {
            value: d.to_owned(),
            saath: lab.plain(&with("saath", "d", d, "2")),
            aalo: lab.plain("aalo"),
        })
        .collect();
    let curve = curve(lab, &points, "d", out);
    let at = |place: usize| curve.medians[place][0];
    let rows = [
        ("d = 1, median over Aalo", 1.5, at(0)),
        ("d = 2", 1.53, at(1)),
        ("d = 1 over d = 2", 1.5 / 1.53, at(0) / at(1)),
    ];
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|&(name, published, measured)| {
            vec![
                name.to_owned(),
                n(published),
                n(measured),
                ratio(measured, published),
                yes(same(measured, published)),
            ]
        })
        .collect();
    out.push_str(&table(&["", "published", "measured", "ratio", "within 10 %"], 1, &lines));
    let [saath, _] = swings(&points);
    writeln!(out, "\"SAATH is insensitive to d\": {} (swings by {}).", yes(saath < INSENSITIVE), n(saath))
        .expect("memory takes all");
}

/// Section 7.3 and Table 2.
pub fn overhead(lab: &Lab<'_>, timing: bool) -> String {
    let mut out = String::from(
        "\n## Section 7.3: the time that a schedule takes\n\nMeasured by a clock, so by the machine and by what else ran on it; everything else in this document is the same wherever it \
         is made. The paper's coordinator is multi-threaded on four cores of 2.4 GHz and handles messages too; here one \
         thread computes, and only when something has happened.\n",
    );
    let bench = Bench::plain(lab);
    let [saath, aalo] = [bench.step(2), bench.aalo()];
    let show = |value: f64| if timing { n(value) } else { "-".to_owned() };
    let over = |value: f64, published: f64| if timing { ratio(value, published) } else { "-".to_owned() };
    let row = |name: &str, run: &Summary, published: [Option<f64>; 3]| -> Vec<String> {
        let mut cells = vec![name.to_owned(), run.schedules.to_string()];
        for (measured, published) in run.schedule_us.iter().zip(published) {
            cells.push(published.map_or("-".to_owned(), n));
            cells.push(show(*measured));
            cells.push(published.map_or("-".to_owned(), |p| over(*measured, p)));
        }
        cells
    };
    let lines = vec![
        row("`saath`, us", &saath, [Some(570.0), Some(2850.0), None]),
        row("`aalo`, us", &aalo, [Some(100.0), Some(200.0), None]),
    ];
    let head = [
        "",
        "schedules",
        "mean published",
        "measured",
        "ratio",
        "P90 published",
        "measured",
        "ratio",
        "P99 published",
        "measured",
        "ratio",
    ];
    out.push_str(&table(&head, 1, &lines));
    out
}
