//! Combines the results of a sweep over traces and seeds.

use weir_console::confidence_interval::ConfidenceInterval;
use weir_console::record::Record;

use super::Row;
use crate::services;

/// The keys whose values are samples of the same experiment.
pub const SAMPLED_KEYS: [&str; 3] = ["trace", "path-seed", "bandwidth-seed"];

/// The columns with a mean and an interval.
pub const COLUMNS: [&str; 9] = [
    "mean_cct_s",
    "p50_cct_s",
    "p90_cct_s",
    "p99_cct_s",
    "over_bound",
    "speedup_p10",
    "speedup_p50",
    "speedup_p90",
    "speedup_mean",
];

/// The number of missed deadlines, which has a mean and an interval if the trace has deadlines.
pub const DEADLINES_MISSED: &str = "deadlines_missed";

/// Whether a column has a mean and an interval.
pub fn has_interval(column: &str) -> bool {
    COLUMNS.contains(&column) || column == DEADLINES_MISSED || services::is_rate_column(column)
}

/// The column with half of the width of a column's interval.
pub fn half_width_column(column: &str) -> String {
    format!("{column}_ci95")
}

/// For each combination of the other values, and each policy: the number of samples, and the mean of each column with its 95 %
/// confidence interval. In the order of first samples. The half width of a single sample is null.
pub fn combine<'a>(rows: &[Row<'a>]) -> Vec<Row<'a>> {
    let mut groups: Vec<Group<'a, '_>> = Vec::new();
    for Row { policy, values, metrics } in rows {
        let is_kept = |(key, _): &&(String, String)| !SAMPLED_KEYS.contains(&key.as_str());
        let values: Vec<(String, String)> = values.iter().filter(is_kept).cloned().collect();
        match groups.iter_mut().find(|group| group.values == values && group.policy == *policy) {
            Some(group) => group.samples.push(metrics),
            None => groups.push(Group { policy, values, samples: vec![metrics] }),
        }
    }
    groups.into_iter().map(combined_row).collect()
}

/// Results of a policy that differ in traces and seeds only. `'b` is the lifetime of the metrics.
struct Group<'a, 'b> {
    policy: &'a str,
    values: Vec<(String, String)>,
    samples: Vec<&'b Record>,
}

fn combined_row<'a>(Group { policy, values, samples }: Group<'a, '_>) -> Row<'a> {
    let mut metrics = Record::default();
    metrics.add("policy", policy);
    metrics.add("samples", samples.len());
    let has_deadlines = samples.iter().any(|record| record.get(DEADLINES_MISSED).is_some());
    let rates = samples[0].names().filter(|name| services::is_rate_column(name));
    for name in COLUMNS.into_iter().chain(has_deadlines.then_some(DEADLINES_MISSED)).chain(rates) {
        let values: Vec<f64> = samples.iter().filter_map(|record| record.number(name)).collect();
        let interval = (!values.is_empty()).then(|| ConfidenceInterval::from_values(&values));
        metrics.add_named(name.to_owned(), interval.map(|interval| interval.mean));
        let width = interval.map(|interval| interval.half_width).filter(|width| width.is_finite());
        metrics.add_named(half_width_column(name), width);
    }
    Row { policy, values, metrics }
}
