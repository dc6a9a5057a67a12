//! Lines of CSV for coflows.

use std::io::Write;

use serde::Serialize;
use weir_core::model::Workload;
use weir_core::units::Time;
use weir_sim::CoflowOutcome;
use weir_sim::outcome::DeadlineOutcome;

use super::slowdowns::slowdown;
use crate::source::Source;

/// The columns of times alone and of [`Owner`], which lines of flows have too.
pub const OWNER_COLUMNS: [&str; 7] =
    ["alone_s", "slowdown", "service", "application", "weight", "deadline_s", "deadline"];

/// The columns after those that identify the replay, and before [`OWNER_COLUMNS`].
const COLUMNS: [&str; 10] = [
    "coflow",
    "job",
    "stage",
    "arrival_s",
    "released_s",
    "width",
    "bytes",
    "dropped_bytes",
    "cct_s",
    "end_s",
];

/// All columns after those that identify the replay.
pub fn columns() -> impl Iterator<Item = &'static str> {
    COLUMNS.into_iter().chain(OWNER_COLUMNS)
}

/// The service, application, weight and deadline of a coflow, and whether it met the deadline.
pub type Owner<'a> = (&'a str, &'a str, f64, Option<f64>, Option<&'static str>);

/// A line for each coflow, after the fields `head`. `alone` has the times alone of all finite coflows.
///
/// # Errors
/// If the output cannot be written.
pub fn write_lines<W: Write>(
    csv: &mut csv::Writer<W>,
    head: impl Serialize,
    (source, workload): (&Source, &Workload),
    alone: &[f64],
    coflows: &[CoflowOutcome],
) -> csv::Result<()> {
    for coflow in coflows {
        let spec = &workload.coflows[coflow.index];
        let job = spec.job.map(|number| source.job_name(number));
        let (arrival, released, cct) = (spec.arrival.get(), coflow.released_at, coflow.cct());
        let place = (coflow.id, job, spec.stage);
        let size = (coflow.width, coflow.bytes, coflow.dropped_bytes);
        let alone = alone[coflow.index];
        let times = (cct, coflow.end, finite(alone), slowdown(cct, alone));
        csv.serialize((&head, place, arrival, released, size, times, owner(workload, coflow)))?;
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
