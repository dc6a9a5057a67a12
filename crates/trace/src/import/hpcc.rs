//! Reads the list of flows of the simulator of HPCC.
//!
//! ```text
//! <flows>
//! <source> <destination> <priority group> <destination port> <bytes> <start s>
//! ```
//!
//! Each flow is a coflow; they are numbered from 1. The highest host gives the number of ports.

use std::io::BufRead;

use weir_core::model::Workload;
use weir_fields::FileError;

use super::single_flow;
use crate::Parsed;
use crate::builder::{TimeUnit, WorkloadBuilder, parse_size};
use crate::coflow_benchmark::parse_port;
use crate::lines::{Line, LineReader};
use crate::number;
use crate::options::TraceOptions;

/// The expected value in errors about the line of a flow.
const FLOW: &str = "`<source> <destination> <priority group> <destination port> <bytes> <start s>`";

/// Whether the first line of a file looks like this format.
pub(crate) fn is_likely(line: Line<'_>) -> bool {
    number::parse_integer::<u64>(line.text).is_some()
}

pub(crate) fn parse<R: BufRead>(
    lines: &mut LineReader<'_, R>,
    options: &TraceOptions,
) -> Result<Parsed, FileError> {
    let expected = "the number of flows";
    let Some(line) = lines.next_content()? else { return Err(lines.end_of_file_error("flows", expected)) };
    let count: u64 =
        number::parse_integer(line.text).ok_or_else(|| line.error("flows", line.text, expected))?;
    let mut builder = WorkloadBuilder::new(options);
    let mut ports = 1;
    for number in 1..=count {
        let Some(line) = lines.next_content()? else {
            return Err(lines.end_of_file_error(format!("flow {number} of {count}"), FLOW));
        };
        ports = ports.max(parse_flow(line, number, &mut builder)? + 1);
    }
    // The simulator ignores what follows, such as spare flows and a description of the fields.
    let rest = lines.next_content()?.map(|line| line.number);
    let warnings = rest.map(|number| {
        format!(
            "the first line states {count} flows; lines from {number} on are ignored, as by HPCC's simulator"
        )
    });
    let (workload, shift) = builder.finish(ports, lines)?;
    Ok(Parsed { warnings: warnings.into_iter().collect(), ..Parsed::new(workload, shift) })
}

/// Adds a flow, and returns its highest port.
fn parse_flow(line: Line<'_>, number: u64, builder: &mut WorkloadBuilder<'_>) -> Result<u32, FileError> {
    let mut fields = line.fields();
    let src = parse_port(line, "source", fields.required("source", FLOW)?, Workload::MAX_PORTS)?;
    let dst = parse_port(line, "destination", fields.required("destination", FLOW)?, Workload::MAX_PORTS)?;
    for field in ["priority group", "destination port"] {
        let text = fields.required(field, FLOW)?;
        number::parse_integer::<u64>(text).ok_or_else(|| line.error(field, text, "a whole number"))?;
    }
    let bytes = parse_size(line, "bytes", fields.required("bytes", FLOW)?, 1.0)?;
    let start = builder.parse_time(line, "start", fields.required("start", FLOW)?, TimeUnit::S)?;
    fields.finish()?;
    builder.reserve_flows(line, "flows", Some(1), 1)?;
    builder.add_bytes(line, "bytes", bytes.get())?;
    builder.take_id(line, number)?;
    builder.push(single_flow(number, src, dst, bytes), start);
    Ok(src.max(dst))
}
