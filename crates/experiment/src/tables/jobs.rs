//! Rows of jobs.

use crate::jobs;
use crate::results::Results;
use crate::rows::ValueType::{Number, Text};
use crate::rows::{Column, RowWriter};

/// The columns.
pub(super) const COLUMNS: [Column; 7] = [
    ("policy", Text),
    ("job", Text),
    ("start_s", Number),
    ("end_s", Number),
    ("time_s", Number),
    ("alone_s", Number),
    ("slowdown", Number),
];

/// Writes a row for each policy and job.
pub(super) fn write<W: RowWriter>(results: &Results<'_>, rows: &mut W) -> Result<(), W::Error> {
    for (policy, outcome) in results.by_policy() {
        for job in &outcome.jobs {
            let time = job.end - job.arrival;
            let jobs = results.source.jobs.as_ref();
            let alone = jobs.and_then(|jobs| jobs.position(job.id)).and_then(|index| results.alone[index]);
            let slowdown = alone.map(|alone| jobs::slowdown(time, alone));
            let name = results.source.job_name(job.id);
            rows.write_row((policy, name, job.arrival, job.end, time, alone, slowdown))?;
        }
    }
    Ok(())
}
