//! Rows of the demands of services.

use weir_console::table::BITS_PER_BYTE;

use crate::results::Results;
use crate::rows::ValueType::{Integer, Number, Text};
use crate::rows::{Column, RowWriter};
use crate::services::ServedDemand;

/// The columns.
pub(super) const COLUMNS: [Column; 9] = [
    ("policy", Text),
    ("service", Text),
    ("demand", Integer),
    ("coflow", Integer),
    ("from_s", Number),
    ("to_s", Number),
    ("connections", Integer),
    ("bytes", Number),
    ("mean_bit_per_s", Number),
];

/// Writes a row for each policy and active interval of a demand.
pub(super) fn write<W: RowWriter>(results: &Results<'_>, rows: &mut W) -> Result<(), W::Error> {
    for (policy, outcome) in results.by_policy() {
        for served in results.source.services.iter().flat_map(|services| services.served(outcome)) {
            let ServedDemand { service, demand, coflow, from, to, connections, bytes } = served;
            let mean = served.mean_rate() * BITS_PER_BYTE;
            rows.write_row((policy, service, demand, coflow, from, to, connections, bytes, mean))?;
        }
    }
    Ok(())
}
