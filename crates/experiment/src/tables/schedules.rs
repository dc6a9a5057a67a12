//! Rows of schedules.

use crate::results::Results;
use crate::rows::ValueType::{Integer, Text};
use crate::rows::{Column, RowWriter};

/// The columns.
pub(super) const COLUMNS: [Column; 3] = [("policy", Text), ("schedule", Integer), ("wall_ns", Integer)];

/// Writes a row for each policy and schedule, in the order of schedules.
pub(super) fn write<W: RowWriter>(results: &Results<'_>, rows: &mut W) -> Result<(), W::Error> {
    for (policy, outcome) in results.by_policy() {
        for (number, nanoseconds) in outcome.schedule_ns.iter().enumerate() {
            rows.write_row((policy, number, nanoseconds))?;
        }
    }
    Ok(())
}
