//! Combines the results of a sweep over traces and seeds.

use weir_console::confidence_interval::ConfidenceInterval;
use weir_console::problem::Problem;
use weir_console::record::Record;
use weir_experiment::services;
use weir_sim::outcome::mean;

use super::Row;

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

/// What the samples of an interval differ in. Results of one trace under several seeds resemble each other more than results of
/// several traces, so they are no independent samples of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusteredBy {
    /// Several traces. The results of each are averaged over its seeds first.
    Trace,
    /// The seeds of one trace.
    Seed,
}

impl ClusteredBy {
    /// How the results of a sweep are clustered.
    pub fn from_rows(rows: &[Row<'_>]) -> ClusteredBy {
        match rows.iter().any(|row| trace_of(row).is_some()) {
            true => ClusteredBy::Trace,
            false => ClusteredBy::Seed,
        }
    }

    /// The name in records.
    fn name(self) -> &'static str {
        match self {
            ClusteredBy::Trace => "trace",
            ClusteredBy::Seed => "seed",
        }
    }

    /// The title of the column with the number of clusters.
    pub fn title(self) -> &'static str {
        match self {
            ClusteredBy::Trace => "traces",
            ClusteredBy::Seed => "seeds",
        }
    }
}

/// The trace of a row, if the sweep has several.
fn trace_of<'b>(row: &'b Row<'_>) -> Option<&'b str> {
    row.values.iter().find(|(key, _)| key == "trace").map(|(_, trace)| trace.as_str())
}

/// For each combination of the other values, and each policy: the numbers of samples and clusters, and the mean of each column
/// with its 95 % confidence interval over clusters. In the order of first samples. The half width of a single cluster is null. Replays
/// with a problem are no samples; the combined row has the first problem.
pub fn combine<'a>(rows: &[Row<'a>], clustered_by: ClusteredBy) -> Vec<Row<'a>> {
    let mut groups: Vec<Group<'a, '_>> = Vec::new();
    for row in rows {
        let is_kept = |(key, _): &&(String, String)| !SAMPLED_KEYS.contains(&key.as_str());
        let values: Vec<(String, String)> = row.values.iter().filter(is_kept).cloned().collect();
        match groups.iter_mut().find(|group| group.values == values && group.policy == row.policy) {
            Some(group) => group.add(row),
            None => {
                let (first, clusters) = (&row.metrics, Vec::new());
                let mut group = Group { policy: row.policy, values, first, clusters, problem: None };
                group.add(row);
                groups.push(group);
            }
        }
    }
    groups.into_iter().map(|group| combined_row(group, clustered_by)).collect()
}

/// Results of a policy that differ in traces and seeds only. `'b` is the lifetime of the metrics.
struct Group<'a, 'b> {
    policy: &'a str,
    values: Vec<(String, String)>,
    /// The metrics of the first replay.
    first: &'b Record,
    /// The samples of each trace, or each sample of one trace.
    clusters: Vec<(Option<&'b str>, Vec<&'b Record>)>,
    /// The first problem of a replay.
    problem: Option<&'b Problem>,
}

impl<'a, 'b> Group<'a, 'b> {
    fn add(&mut self, row: &'b Row<'a>) {
        if let Some(problem) = &row.problem {
            self.problem.get_or_insert(problem);
            return;
        }
        let trace = trace_of(row);
        match self.clusters.iter_mut().find(|(other, _)| trace.is_some() && *other == trace) {
            Some((_, samples)) => samples.push(&row.metrics),
            None => self.clusters.push((trace, vec![&row.metrics])),
        }
    }
}

fn combined_row<'a>(group: Group<'a, '_>, clustered_by: ClusteredBy) -> Row<'a> {
    let Group { policy, values, first, clusters, problem } = group;
    let samples = || clusters.iter().flat_map(|(_, samples)| samples);
    let mut metrics = Record::default();
    metrics.add("policy", policy);
    metrics.add("samples", samples().count());
    metrics.add("clusters", clusters.len());
    metrics.add("clustered_by", clustered_by.name());
    metrics.add("unused_keys", first.get("unused_keys").cloned());
    let has_deadlines = first.get(DEADLINES_MISSED).is_some();
    let rates = first.names().filter(|name| services::is_rate_column(name));
    for name in COLUMNS.into_iter().chain(has_deadlines.then_some(DEADLINES_MISSED)).chain(rates) {
        let cluster_mean = |(_, samples): &(Option<&str>, Vec<&Record>)| {
            let values: Vec<f64> = samples.iter().filter_map(|record| record.number(name)).collect();
            (!values.is_empty()).then(|| mean(&values))
        };
        let means: Vec<f64> = clusters.iter().filter_map(cluster_mean).collect();
        let interval = (!means.is_empty()).then(|| ConfidenceInterval::from_values(&means));
        metrics.add_named(name.to_owned(), interval.map(|interval| interval.mean));
        let width = interval.map(|interval| interval.half_width).filter(|width| width.is_finite());
        metrics.add_named(half_width_column(name), width);
    }
    Row { policy, values, metrics, problem: problem.cloned() }
}
