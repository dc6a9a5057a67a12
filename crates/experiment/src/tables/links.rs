//! Rows of links, as a whole and over time.

use weir_sim::Outcome;

use crate::results::Results;
use crate::rows::ValueType::{Number, Text};
use crate::rows::{Column, RowWriter};

/// The columns of links.
pub(super) const COLUMNS: [Column; 5] =
    [("policy", Text), ("kind", Text), ("link", Text), ("utilization", Number), ("peak_utilization", Number)];

/// The columns of links over time.
pub(super) const TIME_COLUMNS: [Column; 6] = [
    ("policy", Text),
    ("kind", Text),
    ("link", Text),
    ("from_s", Number),
    ("to_s", Number),
    ("utilization", Number),
];

/// A link with its utilization during the replay, and in parts of the time.
struct UsedLink<'a> {
    kind: &'static str,
    name: String,
    utilization: f64,
    parts: &'a [f64],
}

fn used_links<'a>(results: &Results<'_>, outcome: &'a Outcome) -> Vec<UsedLink<'a>> {
    let parts = outcome.link_use.as_ref();
    let sides = [
        ("send", &outcome.send_utilization, parts.map(|parts| &parts.send)),
        ("receive", &outcome.recv_utilization, parts.map(|parts| &parts.recv)),
        ("trunk", &outcome.trunk_utilization, parts.map(|parts| &parts.trunks)),
    ];
    let of_side = |(kind, used, parts): (&'static str, &'a Vec<f64>, Option<&'a Vec<Vec<f64>>>)| {
        used.iter().enumerate().map(move |(number, &utilization)| {
            let parts = parts.map_or(&[][..], |parts| &parts[number]);
            let name = if kind == "trunk" { results.network.trunk_name(number) } else { number.to_string() };
            UsedLink { kind, name, utilization, parts }
        })
    };
    sides.into_iter().flat_map(of_side).collect()
}

/// Writes a row for each policy and link.
pub(super) fn write<W: RowWriter>(results: &Results<'_>, rows: &mut W) -> Result<(), W::Error> {
    for (policy, outcome) in results.by_policy() {
        for UsedLink { kind, name, utilization, parts } in used_links(results, outcome) {
            let peak = parts.iter().copied().max_by(f64::total_cmp);
            rows.write_row((policy, kind, name, utilization, peak))?;
        }
    }
    Ok(())
}

/// Writes a row for each policy, link and part of the time.
pub(super) fn write_over_time<W: RowWriter>(results: &Results<'_>, rows: &mut W) -> Result<(), W::Error> {
    for (policy, outcome) in results.by_policy() {
        let part_seconds = outcome.link_use.as_ref().map_or(0.0, |used| used.part_seconds);
        for UsedLink { kind, name, parts, .. } in used_links(results, outcome) {
            for (part, utilization) in parts.iter().enumerate() {
                let end_of = |part: usize| {
                    if part == parts.len() { outcome.makespan } else { part as f64 * part_seconds }
                };
                rows.write_row((policy, kind, &name, end_of(part), end_of(part + 1), utilization))?;
            }
        }
    }
    Ok(())
}
