//! Statistics of groups of coflows: by service, application, weight and deadline.

use std::collections::BTreeMap;

use weir_core::model::{CoflowSpec, ServiceNames};
use weir_sim::CoflowOutcome;
use weir_sim::outcome::{DeadlineOutcome, mean, percentile};

use crate::results::Results;
use crate::rows::ValueType::{Integer, Number, Text};
use crate::rows::{Column, RowWriter};

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

/// The columns.
pub(super) const COLUMNS: [Column; 10] = [
    ("policy", Text),
    ("kind", Text),
    ("group", Text),
    ("coflows", Integer),
    ("bytes", Number),
    ("mean_cct_s", Number),
    ("p50_cct_s", Number),
    ("p90_cct_s", Number),
    ("p95_cct_s", Number),
    ("p99_cct_s", Number),
];

/// Writes a row for each policy and group.
pub(super) fn write<W: RowWriter>(results: &Results<'_>, rows: &mut W) -> Result<(), W::Error> {
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
                rows.write_row((policy, kind, group, ccts.len(), bytes, mean(&ccts), percentiles))?;
            }
        }
    }
    Ok(())
}
