//! Rows of coflows.

use serde::Serialize;
use weir_core::model::Workload;
use weir_core::units::Time;
use weir_sim::CoflowOutcome;
use weir_sim::outcome::DeadlineOutcome;

use super::bins::slowdown;
use crate::results::Results;
use crate::rows::ValueType::{Integer, Number, Text};
use crate::rows::{Column, RowWriter};
use crate::source::Source;

/// The columns of times alone and of [`Owner`], which rows of flows have too.
pub const OWNER_COLUMNS: [Column; 7] = [
    ("alone_s", Number),
    ("slowdown", Number),
    ("service", Text),
    ("application", Text),
    ("weight", Number),
    ("deadline_s", Number),
    ("deadline", Text),
];

/// The columns after those that identify the replay, and before [`OWNER_COLUMNS`].
const COLUMNS: [Column; 10] = [
    ("coflow", Integer),
    ("job", Text),
    ("stage", Integer),
    ("arrival_s", Number),
    ("released_s", Number),
    ("width", Integer),
    ("bytes", Number),
    ("dropped_bytes", Number),
    ("cct_s", Number),
    ("end_s", Number),
];

/// All columns after those that identify the replay.
pub fn columns() -> impl Iterator<Item = Column> {
    COLUMNS.into_iter().chain(OWNER_COLUMNS)
}

/// Writes a row for each policy and coflow.
pub(super) fn write<W: RowWriter>(results: &Results<'_>, rows: &mut W) -> Result<(), W::Error> {
    let (source, workload) = (results.source, &results.source.workload);
    let alone = results.network.bounds(workload).min_ccts;
    results.by_policy().try_for_each(|(policy, outcome)| {
        write_rows(rows, policy, (source, workload), &alone, &outcome.coflows)
    })
}

/// The service, application, weight and deadline of a coflow, and whether it met the deadline.
pub type Owner<'a> = (&'a str, &'a str, f64, Option<f64>, Option<&'static str>);

/// Writes a row for each coflow, after the fields `head`. `alone` has the times alone of all finite coflows.
///
/// # Errors
/// If a row cannot be written.
pub fn write_rows<W: RowWriter>(
    rows: &mut W,
    head: impl Serialize,
    (source, workload): (&Source, &Workload),
    alone: &[f64],
    coflows: &[CoflowOutcome],
) -> Result<(), W::Error> {
    for coflow in coflows {
        let spec = &workload.coflows[coflow.index];
        let job = spec.job.map(|number| source.job_name(number));
        let (arrival, released, cct) = (spec.arrival.get(), coflow.released_at, coflow.cct());
        let place = (coflow.id, job, spec.stage);
        let size = (coflow.width, coflow.bytes, coflow.dropped_bytes);
        let alone = alone[coflow.index];
        let times = (cct, coflow.end, finite(alone), slowdown(cct, alone));
        rows.write_row((&head, place, arrival, released, size, times, owner(workload, coflow)))?;
    }
    Ok(())
}

/// A time; undefined if it is infinite.
pub fn finite(seconds: f64) -> Option<f64> {
    Some(seconds).filter(|seconds| seconds.is_finite())
}

/// The owner of a coflow.
pub fn owner<'a>(workload: &'a Workload, coflow: &CoflowOutcome) -> Owner<'a> {
    let spec = &workload.coflows[coflow.index];
    let application = &workload.names.applications(spec.service)[spec.application as usize];
    let outcome = DeadlineOutcome::ALL.iter().find(|(outcome, _)| coflow.deadline == Some(*outcome));
    let deadline = (spec.deadline.map(Time::get), outcome.map(|(_, name)| *name));
    (workload.names.service(spec.service), application, spec.weight, deadline.0, deadline.1)
}
