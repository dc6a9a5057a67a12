//! Reads the public trace in Sunflow's variant.
//!
//! ```text
//! <id> <arrival ms> <mappers> <reducers> <port>,<port>...#<port>:<MB>,<port>:<MB>...
//! ```
//!
//! The fields have the meaning of [`crate::coflow_benchmark`]; the highest port gives the number of ports.

use std::io::BufRead;

use weir_core::model::{CoflowSpec, Workload};
use weir_core::units::Time;
use weir_fields::FileError;

use crate::Parsed;
use crate::builder::{TimeUnit, WorkloadBuilder, parse_count};
use crate::coflow_benchmark::{parse_port, parse_reducer};
use crate::lines::{Line, LineReader};
use crate::options::TraceOptions;
use crate::shuffle;

/// The expected value in errors about the line of a coflow.
const COFLOW: &str = "`<id> <arrival ms> <mappers> <reducers> <port>,...#<port>:<MB>,...`";

/// Whether the first line of a file looks like this format.
pub(crate) fn is_likely(line: Line<'_>) -> bool {
    let fields: Vec<&str> = line.text.split_ascii_whitespace().take(6).collect();
    matches!(fields[..], [_, _, _, _, ports] if ports.split_once('#').is_some_and(|(_, reducers)| reducers.contains(':')))
}

pub(crate) fn parse<R: BufRead>(
    lines: &mut LineReader<'_, R>,
    options: &TraceOptions,
) -> Result<Parsed, FileError> {
    let mut builder = WorkloadBuilder::new(options);
    let mut ports = 1;
    while let Some(line) = lines.next_content()? {
        ports = ports.max(parse_coflow(line, &mut builder)? + 1);
    }
    let (workload, shift) = builder.finish(ports, lines)?;
    Ok(Parsed::new(workload, shift))
}

/// Adds a coflow, and returns its highest port.
fn parse_coflow(line: Line<'_>, builder: &mut WorkloadBuilder<'_>) -> Result<u32, FileError> {
    let mut fields = line.fields();
    let id = builder.parse_id(line, fields.required("id", COFLOW)?)?;
    let arrival = builder.parse_time(line, "arrival", fields.required("arrival", COFLOW)?, TimeUnit::MS)?;
    let mut count_of = |field| parse_count(&mut fields, field, COFLOW);
    let (m, r) = (count_of("mappers")?, count_of("reducers")?);
    builder.reserve_flows(line, "reducers", m.checked_mul(r), format_args!("{m} x {r}"))?;
    let text = fields.required("ports", COFLOW)?;
    let (mapper_text, reducer_text) =
        text.split_once('#').ok_or_else(|| line.error("ports", text, "`<port>,...#<port>:<MB>,...`"))?;
    fields.finish()?;
    let (mut mappers, mut reducers) = (Vec::new(), Vec::new());
    for (position, text) in mapper_text.split(',').enumerate() {
        let field = format_args!("mapper {}", position + 1);
        mappers.push(parse_port(line, field, text, Workload::MAX_PORTS)?);
    }
    for (position, text) in reducer_text.split(',').enumerate() {
        let unit = builder.options.unit;
        reducers.push(parse_reducer(line, position + 1, text, m, Workload::MAX_PORTS, unit)?);
    }
    for (field, stated, found) in [("mappers", m, mappers.len()), ("reducers", r, reducers.len())] {
        if stated != found {
            return Err(line.error(
                field,
                stated,
                format!("{found}, the number of {field} in the last field"),
            ));
        }
    }
    let mut flows = Vec::with_capacity(m * r);
    shuffle::push_flows(&mut flows, &mappers, &reducers, Time::ZERO);
    let coflow = CoflowSpec::new(id, Time::ZERO, flows);
    builder.add_bytes(line, "reducer sizes", coflow.total_bytes())?;
    builder.push(coflow, arrival);
    Ok(mappers.into_iter().chain(reducers.iter().map(|&(port, _)| port)).max().unwrap_or(0))
}
