//! Statistics of groups of coflows: by service, application, weight and deadline.

use std::collections::BTreeMap;

use weir_core::model::{CoflowSpec, ServiceNames};
use weir_sim::CoflowOutcome;
use weir_sim::outcome::{DeadlineOutcome, mean, percentile};

use super::results::Results;

/// A kind of group, and the group of a coflow.
type Grouping = (&'static str, fn(&CoflowSpec, &CoflowOutcome, &ServiceNames) -> String);

const GROUPINGS: [Grouping; 4] = [
    ("service", |spec, _, names| names.service(spec.service).to_owned()),
    ("application", |spec, _, names| {
        let (service, application) = (spec.service, spec.application as usize);
        format!("{}/{}", names.service(service), names.applications(service)[application])
    }),
    ("weight", |spec, _, _| spec.weight.to_string()),
    ("deadline", |_, outcome, _| {
        let name = DeadlineOutcome::ALL.iter().find(|(deadline, _)| outcome.deadline == Some(*deadline));
        name.map_or("none", |(_, name)| name).to_owned()
    }),
];

/// The columns of [`write_groups`].
const COLUMNS: [&str; 10] = [
    "policy",
    "kind",
    "group",
    "coflows",
    "bytes",
    "mean_cct_s",
    "p50_cct_s",
    "p90_cct_s",
    "p95_cct_s",
    "p99_cct_s",
];

/// Writes a line for each policy and group.
///
/// # Errors
/// If the output cannot be written.
pub fn write_groups<W: std::io::Write>(out: W, results: &Results<'_>) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(COLUMNS)?;
    let workload = &results.source.workload;
    for (policy, outcome) in results.by_policy() {
        for (kind, group_of) in GROUPINGS {
            let mut groups: BTreeMap<String, (f64, Vec<f64>)> = BTreeMap::new();
            for coflow in &outcome.coflows {
                let spec = &workload.coflows[coflow.index];
                let (bytes, ccts) = groups.entry(group_of(spec, coflow, &workload.names)).or_default();
                *bytes += coflow.bytes;
                ccts.push(coflow.cct());
            }
            for (group, (bytes, ccts)) in groups {
                let percentiles = [50.0, 90.0, 95.0, 99.0].map(|percentage| percentile(&ccts, percentage));
                csv.serialize((policy, kind, group, ccts.len(), bytes, mean(&ccts), percentiles))?;
            }
        }
    }
    Ok(csv.flush()?)
}
