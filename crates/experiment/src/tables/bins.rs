//! Times of coflows and flows alone on the network, and their statistics by size, width and length.

use std::collections::BTreeMap;

use weir_sim::Outcome;
use weir_sim::outcome::{mean, percentile};

use crate::results::Results;
use crate::rows::ValueType::{Integer, Number, Text};
use crate::rows::{Column, RowWriter};

/// The time of a coflow or a flow divided by its time alone: 1 if both are 0, none if only the time alone is 0 or infinite.
pub fn slowdown(time: f64, alone: f64) -> Option<f64> {
    match (time == 0.0, alone == 0.0) {
        (true, true) => Some(1.0),
        (_, false) if alone.is_finite() => Some(time / alone),
        _ => None,
    }
}

/// Times alone, in seconds.
struct TimesAlone {
    /// By finite coflow.
    coflows: Vec<f64>,
    /// By finite coflow and flow.
    flows: Vec<Vec<f64>>,
}

impl TimesAlone {
    /// The times on the network of `results`.
    fn new(results: &Results<'_>) -> TimesAlone {
        let (workload, network) = (&results.source.workload, results.network);
        TimesAlone {
            coflows: network.bounds(workload).min_ccts,
            flows: weir_sim::lower_bound::min_fcts(workload, network.options()),
        }
    }
}

/// The members of a bin.
#[derive(Default)]
struct Bin {
    bytes: f64,
    times: Vec<f64>,
    slowdowns: Vec<f64>,
}

/// The columns.
pub(super) const COLUMNS: [Column; 14] = [
    ("policy", Text),
    ("kind", Text),
    ("from", Number),
    ("to", Number),
    ("count", Integer),
    ("bytes", Number),
    ("mean_s", Number),
    ("p50_s", Number),
    ("p99_s", Number),
    ("mean_slowdown", Number),
    ("p50_slowdown", Number),
    ("p95_slowdown", Number),
    ("p99_slowdown", Number),
    ("p999_slowdown", Number),
];

/// Writes a row for each policy, kind of bin and bin.
pub(super) fn write<W: RowWriter>(results: &Results<'_>, rows: &mut W) -> Result<(), W::Error> {
    let alone = TimesAlone::new(results);
    for (policy, outcome) in results.by_policy() {
        for ((kind, exponent), bin) in bins(results, outcome, &alone) {
            let (from, to) = match exponent {
                None => (0.0, 1.0),
                Some(exponent) => (10_f64.powi(exponent), 10_f64.powi(exponent + 1)),
            };
            let Bin { bytes, times, slowdowns } = bin;
            let size = (kind, from, to, times.len(), bytes);
            let time = (mean(&times), percentile(&times, 50.0), percentile(&times, 99.0));
            let some = |value: f64| (!slowdowns.is_empty()).then_some(value);
            let percentiles = [50.0, 95.0, 99.0, 99.9].map(|p| some(percentile(&slowdowns, p)));
            rows.write_row((policy, size, time, some(mean(&slowdowns)), percentiles))?;
        }
    }
    Ok(())
}

/// The bins of an outcome: by kind, and by the power of ten at which they begin, or none for values below 1.
fn bins(
    results: &Results<'_>,
    outcome: &Outcome,
    alone: &TimesAlone,
) -> BTreeMap<(&'static str, Option<i32>), Bin> {
    let mut bins: BTreeMap<_, Bin> = BTreeMap::new();
    let mut add = |kind: &'static str, value: f64, bytes: f64, time: f64, alone: f64| {
        let bin = bins.entry((kind, decade(value))).or_default();
        bin.bytes += bytes;
        bin.times.push(time);
        bin.slowdowns.extend(slowdown(time, alone));
    };
    for coflow in &outcome.coflows {
        let flows = &results.source.workload.coflows[coflow.index].flows;
        let longest = flows.iter().map(|flow| flow.bytes.get()).fold(0.0, f64::max);
        let (time, alone_seconds) = (coflow.cct(), alone.coflows[coflow.index]);
        add("coflow-bytes", coflow.bytes, coflow.bytes, time, alone_seconds);
        add("coflow-width", coflow.width as f64, coflow.bytes, time, alone_seconds);
        add("coflow-length", longest, coflow.bytes, time, alone_seconds);
        let alone = &alone.flows[coflow.index];
        for ((flow, end), alone) in flows.iter().zip(&coflow.flow_ends).zip(alone) {
            let (bytes, start) = (flow.bytes.get(), coflow.released_at + flow.data_delay.get());
            add("flow-bytes", bytes, bytes, end - start, *alone);
        }
    }
    bins
}

/// The exponent of the highest power of ten that is at most `value`; none below 1.
fn decade(value: f64) -> Option<i32> {
    (0..=15).rev().find(|&exponent| value >= 10_f64.powi(exponent))
}
