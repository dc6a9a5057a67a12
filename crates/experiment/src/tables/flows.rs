//! Rows of flows.

use std::collections::BTreeMap;

use weir_sim::lower_bound::min_fcts;

use super::bins::slowdown;
use super::coflows::{OWNER_COLUMNS, finite, owner};
use crate::results::Results;
use crate::rows::ValueType::{Integer, Number, Text};
use crate::rows::{Column, RowWriter};

/// The columns before [`OWNER_COLUMNS`]; the path follows them.
const COLUMNS: [Column; 9] = [
    ("policy", Text),
    ("coflow", Integer),
    ("flow", Integer),
    ("src", Integer),
    ("dst", Integer),
    ("bytes", Number),
    ("fct_s", Number),
    ("start_s", Number),
    ("end_s", Number),
];

/// The columns.
pub(super) fn columns() -> impl Iterator<Item = Column> {
    COLUMNS.into_iter().chain(OWNER_COLUMNS).chain([("path", Text)])
}

/// Writes a row for each policy and flow.
pub(super) fn write<W: RowWriter>(results: &Results<'_>, rows: &mut W) -> Result<(), W::Error> {
    let workload = &results.source.workload;
    let alone = min_fcts(workload, results.network.options());
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    let mut path_text = |links: &[u32]| {
        for &link in links {
            names.entry(link).or_insert_with(|| results.network.trunk_name(link as usize));
        }
        links.iter().map(|link| names[link].as_str()).collect::<Vec<_>>().join("; ")
    };
    for (policy, outcome) in results.by_policy() {
        for coflow in &outcome.coflows {
            let flows = &workload.coflows[coflow.index].flows;
            for (number, (flow, end)) in flows.iter().zip(&coflow.flow_ends).enumerate() {
                let (bytes, fct) = (flow.bytes.get(), end - coflow.released_at);
                let path = coflow.flow_paths.get(number).map_or_else(String::new, |links| path_text(links));
                let place = (coflow.id, number, flow.src, flow.dst);
                let (start, alone) =
                    (coflow.released_at + flow.data_delay.get(), alone[coflow.index][number]);
                let times = (start, end, finite(alone), slowdown(end - start, alone));
                rows.write_row((policy, place, bytes, fct, times, owner(workload, coflow), path))?;
            }
        }
    }
    Ok(())
}
