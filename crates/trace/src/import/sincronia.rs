//! Reads the output of Sincronia's generator of coflows.
//!
//! ```text
//! <ports> <coflows>
//! <id> <arrival ms> <flows> <sources> <destinations> <source> <destination> <MB>...
//! ```
//!
//! The header is that of [`crate::coflow_benchmark`]; a line has three fields for each flow.

use std::collections::BTreeSet;
use std::io::BufRead;

use weir_core::model::{CoflowSpec, FlowSpec};
use weir_core::units::Time;
use weir_fields::FileError;

use crate::Parsed;
use crate::builder::{TimeUnit, WorkloadBuilder, parse_count, parse_size};
use crate::coflow_benchmark::{Header, parse_port};
use crate::lines::{Line, LineReader};
use crate::number;
use crate::options::TraceOptions;

/// The expected value in errors about the line of a coflow.
const COFLOW: &str =
    "`<id> <arrival ms> <flows> <sources> <destinations>`, and `<source> <destination> <MB>` for each flow";

/// Whether the line of a first coflow has the fields of this format.
pub(crate) fn is_likely(line: Line<'_>) -> bool {
    let mut fields = line.text.split_ascii_whitespace();
    let flows = fields.nth(2).and_then(number::parse_integer::<usize>);
    let rest = fields.clone().count();
    flows.is_some_and(|flows| flows > 0 && flows.checked_mul(3) == rest.checked_sub(2))
        && !fields.any(|field| field.contains(':'))
}

pub(crate) fn parse<R: BufRead>(
    lines: &mut LineReader<'_, R>,
    header: Header,
    options: &TraceOptions,
) -> Result<Parsed, FileError> {
    let mut builder = WorkloadBuilder::new(options);
    header.parse_coflows(lines, COFLOW, |line| parse_coflow(line, header.ports, &mut builder))?;
    let (workload, shift) = builder.finish(header.ports, lines)?;
    Ok(Parsed::new(workload, shift))
}

fn parse_coflow(line: Line<'_>, ports: u32, builder: &mut WorkloadBuilder<'_>) -> Result<(), FileError> {
    let mut fields = line.fields();
    let id = builder.parse_id(line, fields.required("id", COFLOW)?)?;
    let arrival = builder.parse_time(line, "arrival", fields.required("arrival", COFLOW)?, TimeUnit::MS)?;
    let mut count_of = |field| parse_count(&mut fields, field, COFLOW);
    let count = count_of("flows")?;
    let stated = [("sources", count_of("sources")?), ("destinations", count_of("destinations")?)];
    builder.reserve_flows(line, "flows", Some(count), count)?;
    let mut flows = Vec::new();
    for position in 1..=count {
        let mut next = |part: &str| {
            let field = format!("flow {position} {part}");
            fields.required(&field, COFLOW).map(|text| (field.clone(), text))
        };
        let (field, text) = next("source")?;
        let src = parse_port(line, field, text, ports)?;
        let (field, text) = next("destination")?;
        let dst = parse_port(line, field, text, ports)?;
        let (field, text) = next("size")?;
        flows.push(FlowSpec::new(src, dst, parse_size(line, &field, text, builder.options.unit.bytes())?));
    }
    fields.finish()?;
    let sources: BTreeSet<u32> = flows.iter().map(|flow| flow.src).collect();
    let destinations: BTreeSet<u32> = flows.iter().map(|flow| flow.dst).collect();
    for ((field, stated), found) in stated.into_iter().zip([sources.len(), destinations.len()]) {
        if stated != found {
            return Err(line.error(field, stated, format!("{found}, the number of {field} of the flows")));
        }
    }
    let coflow = CoflowSpec::new(id, Time::ZERO, flows);
    builder.add_bytes(line, "flow sizes", coflow.total_bytes())?;
    builder.push(coflow, arrival);
    Ok(())
}
