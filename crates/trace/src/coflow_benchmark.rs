//! Reads and writes the public coflow-benchmark format.
//!
//! ```text
//! <ports> <coflows>
//! <id> <arrival ms> <mappers> <port>... <reducers> <port>:<MB>...
//! ```
//!
//! Each coflow is one line. Ports are numbered from 0. A size is the megabytes that one reducer receives, in equal parts
//! from the mappers. The format does not define whether a megabyte is 10^6 or 2^20 bytes, so the caller does
//! ([`TraceUnit`]). Arrivals and sizes can have fractions.
//!
//! Every pair of a mapper and a reducer is a flow, in mapper-major order: with `r` reducers, the flow of mapper `i` and
//! reducer `j` has index `i * r + j`. This also holds for these pairs:
//!
//! - Both are on one port: the flow crosses that port's sending and its receiving side.
//! - A port is listed twice: two tasks of one rack are two flows.
//! - A size is 0: the flow has no bytes, and completes when it is released.
//!
//! White space at the ends of lines (including CRLF) and blank lines at the end of the file are ignored.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, Write};
use std::str::FromStr;

use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames, Workload};
use weir_core::units::{Bytes, Time};
use weir_fields::FileError;

use crate::bounds::{self, Limits, MAX_BYTES, MAX_SECONDS, MIN_REDUCER_MEGABYTES};
use crate::error::WriteError;
use crate::file_time::{FileTime, TimeShift};
use crate::lines::{Line, LineReader};
use crate::number;
use crate::shuffle;

/// The expected value in errors about the line of a coflow.
const COFLOW: &str = "`<id> <arrival ms> <mappers> <port>... <reducers> <port>:<MB>...`";

/// The size of the format's megabyte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TraceUnit {
    /// 10^6 bytes.
    #[default]
    MB,
    /// 2^20 bytes, as in CoflowSim.
    MiB,
}

impl TraceUnit {
    /// Bytes of a megabyte.
    pub const fn bytes(self) -> f64 {
        match self {
            TraceUnit::MB => 1e6,
            TraceUnit::MiB => 1_048_576.0,
        }
    }
}

impl fmt::Display for TraceUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TraceUnit::MB => "MB",
            TraceUnit::MiB => "MiB",
        })
    }
}

/// A text that is not a [`TraceUnit`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a trace unit: expected MB (10^6 bytes) or MiB (2^20 bytes)")]
pub struct TraceUnitError(pub String);

impl FromStr for TraceUnit {
    type Err = TraceUnitError;

    fn from_str(text: &str) -> Result<TraceUnit, TraceUnitError> {
        match text {
            "MB" => Ok(TraceUnit::MB),
            "MiB" => Ok(TraceUnit::MiB),
            _ => Err(TraceUnitError(text.to_owned())),
        }
    }
}

/// Reads a trace from `input`, which errors call `name`.
///
/// # Errors
/// For the first invalid field or line, the first value beyond a bound, and if `input` fails.
pub fn read<R: BufRead>(
    input: R,
    name: &str,
    unit: TraceUnit,
    limits: &Limits,
) -> Result<Workload, FileError> {
    Ok(parse(&mut LineReader::new(input, name, limits), unit, limits, None)?.0)
}

/// The state of reading.
struct Reader<'a> {
    unit: TraceUnit,
    limits: &'a Limits,
    ports: u32,
    /// Numbers of flows and bytes so far.
    flow_count: usize,
    total_bytes: f64,
    /// The line of each id so far.
    line_of_id: HashMap<u64, usize>,
    /// The step of the shift of times, and the arrivals so far.
    step: Option<Time>,
    arrivals: Vec<FileTime>,
    /// Mappers and reducers of the current line; reused to save allocations.
    mappers: Vec<u32>,
    reducers: Vec<(u32, Bytes)>,
}

pub(crate) fn parse<R: BufRead>(
    lines: &mut LineReader<'_, R>,
    unit: TraceUnit,
    limits: &Limits,
    step: Option<Time>,
) -> Result<(Workload, TimeShift), FileError> {
    let Some(line) = lines.next()? else {
        return Err(lines.end_of_file_error("ports", "`<ports> <coflows>` or `weir-trace 1`"));
    };
    let (ports, count) = parse_header(line, limits)?;
    let mut reader = Reader {
        unit,
        limits,
        ports,
        flow_count: 0,
        total_bytes: 0.0,
        line_of_id: HashMap::new(),
        step,
        arrivals: Vec::new(),
        mappers: Vec::new(),
        reducers: Vec::new(),
    };
    // Not `with_capacity(count)`: the header is not trustworthy enough to allocate memory for.
    let mut coflows = Vec::new();
    for number in 1..=count {
        let Some(line) = lines.next()? else {
            let field = format!("coflow {number} of {count}");
            return Err(lines.end_of_file_error(field, COFLOW));
        };
        coflows.push(reader.parse_coflow(line)?);
    }
    while let Some(line) = lines.next()? {
        if !line.text.is_empty() {
            let expected =
                format!("no more lines, because the number of coflows in the first line is {count}");
            return Err(line.error("after the last coflow", line.text, expected));
        }
    }
    let mut workload = Workload { ports, coflows, events: Vec::new(), names: ServiceNames::default() };
    let shift = TimeShift::new(step, &workload.coflows, &reader.arrivals);
    for (coflow, arrival) in workload.coflows.iter_mut().zip(&reader.arrivals) {
        coflow.arrival = shift.apply(*arrival).ok_or_else(|| {
            let line = reader.line_of_id[&coflow.id];
            lines.error_at(line, "arrival", arrival.time, shift.expected())
        })?;
    }
    match workload.check() {
        Ok(()) => Ok((workload, shift)),
        Err(error) => Err(lines.error_at(1, "trace", error, "a consistent trace")),
    }
}

/// The numbers of ports and of coflows.
fn parse_header(line: Line<'_>, limits: &Limits) -> Result<(u32, usize), FileError> {
    let mut fields = line.fields();
    let expected = format!(
        "a number of ports from 1 to {} (a trace starts with `<ports> <coflows>` or `weir-trace 1`)",
        Workload::MAX_PORTS
    );
    let text = fields.required("ports", &expected)?;
    let ports = number::parse_integer(text)
        .filter(|ports| (1..=Workload::MAX_PORTS).contains(ports))
        .ok_or_else(|| line.error("ports", text, &expected))?;
    let expected = "a whole number of coflows";
    let text = fields.required("coflows", expected)?;
    let count = number::parse_integer(text).ok_or_else(|| line.error("coflows", text, expected))?;
    if count > limits.max_flows {
        return Err(line.error(
            "coflows",
            count,
            limits.expected_at_most("flows, of which a coflow has one or more"),
        ));
    }
    fields.finish()?;
    Ok((ports, count))
}

impl Reader<'_> {
    fn parse_coflow(&mut self, line: Line<'_>) -> Result<CoflowSpec, FileError> {
        let mut fields = line.fields();
        let expected = "a whole number that no other coflow has";
        let text = fields.required("id", format_args!("{COFLOW}"))?;
        let id: u64 = number::parse_integer(text).ok_or_else(|| line.error("id", text, expected))?;
        if let Some(other) = self.line_of_id.insert(id, line.number) {
            let expected = format!("{expected} (line {other} has it)");
            return Err(line.error("id", id, expected));
        }

        let expected = format!("a time of 0 to {:e} milliseconds", MAX_SECONDS * 1e3);
        let text = fields.required("arrival", &expected)?;
        let arrival = number::parse_decimal(text)
            .and_then(|ms| Time::new(ms / 1e3))
            .filter(|time| time.get() <= TimeShift::max_seconds(self.step))
            .ok_or_else(|| line.error("arrival", text, &expected))?;
        self.arrivals.push(FileTime::new(arrival, text, "ms"));

        let remaining_flows = self.limits.max_flows - self.flow_count;
        let too_many = |field: &str, m: usize, r: usize| {
            let value = format!("{m} x {r} flows after {}", self.flow_count);
            line.error(field, value, self.limits.expected_at_most("flows"))
        };
        let expected = "a number of mappers of 1 or more";
        let text = fields.required("mappers", expected)?;
        let m = number::parse_integer(text)
            .filter(|&m: &usize| m > 0)
            .ok_or_else(|| line.error("mappers", text, expected))?;
        if m > remaining_flows {
            return Err(too_many("mappers", m, 1));
        }
        let expected = number::expected_port(self.ports);
        self.mappers.clear();
        for position in 1..=m {
            let text = fields.required(format_args!("mapper {position}"), &expected)?;
            let port = number::parse_port(text, self.ports)
                .ok_or_else(|| line.error(format_args!("mapper {position}"), text, &expected))?;
            self.mappers.push(port);
        }

        let expected = "a number of reducers of 1 or more";
        let text = fields.required("reducers", expected)?;
        let r = number::parse_integer(text)
            .filter(|&r: &usize| r > 0)
            .ok_or_else(|| line.error("reducers", text, expected))?;
        let flows = m.checked_mul(r).filter(|&flows| flows <= remaining_flows);
        let flows = flows.ok_or_else(|| too_many("reducers", m, r))?;
        self.reducers.clear();
        for position in 1..=r {
            let text = fields.required(format_args!("reducer {position}"), "`<port>:<MB>`")?;
            let reducer = self.parse_reducer(line, position, text, m)?;
            self.reducers.push(reducer);
        }
        fields.finish()?;

        // Safe to allocate: the number of flows is within the limit, and the line contained all ports.
        let mut flow_specs = Vec::with_capacity(flows);
        shuffle::push_flows(&mut flow_specs, &self.mappers, &self.reducers, Time::ZERO);
        let coflow = CoflowSpec::new(id, arrival, flow_specs);
        self.flow_count += flows;
        self.total_bytes += coflow.total_bytes();
        if self.total_bytes >= MAX_BYTES {
            let value = format!("{:e} bytes up to here", self.total_bytes);
            return Err(line.error("reducer sizes", value, "a trace of less than 2^53 bytes"));
        }
        Ok(coflow)
    }

    /// A reducer's port, and the bytes of its flow from each of `m` mappers.
    fn parse_reducer(
        &self,
        line: Line<'_>,
        position: usize,
        text: &str,
        m: usize,
    ) -> Result<(u32, Bytes), FileError> {
        let Some((port, size)) = text.split_once(':') else {
            return Err(line.error(format_args!("reducer {position}"), text, "`<port>:<MB>`"));
        };
        let port = number::parse_port(port, self.ports).ok_or_else(|| {
            let expected = number::expected_port(self.ports);
            line.error(format_args!("reducer {position} port"), port, expected)
        })?;
        let size_error = |expected: &str| line.error(format_args!("reducer {position} size"), size, expected);
        let megabytes =
            number::parse_decimal(size).ok_or_else(|| size_error("a size of 0 or more megabytes"))?;
        if megabytes != 0.0 && megabytes < MIN_REDUCER_MEGABYTES {
            return Err(size_error("a size of 0, or of 1e-12 megabytes or more"));
        }
        let bytes = megabytes * self.unit.bytes();
        let bytes_per_mapper = Bytes::new(bytes / m as f64).filter(|_| bytes < MAX_BYTES);
        Ok((port, bytes_per_mapper.ok_or_else(|| size_error("a size of less than 2^53 bytes"))?))
    }
}

/// Writes `workload` so that [`read`] with the same unit returns an equal one.
///
/// # Errors
/// If the format cannot express the workload: the flows of a coflow are not all pairs of some mappers and reducers with
/// sizes that depend on the reducer only, or the workload contains more than flows and arrivals. The output then contains
/// the coflows before the one that the error names. Also if `out` fails.
pub fn write<W: Write>(workload: &Workload, unit: TraceUnit, mut out: W) -> Result<(), WriteError> {
    bounds::check_workload(workload)?;
    if !workload.events.is_empty() {
        return Err(inexpressible_error("the trace", "it has events"));
    }
    if workload.names != ServiceNames::default() {
        let has_names = |c: &&CoflowSpec| {
            let (service, applications) =
                (workload.names.service(c.service), workload.names.applications(c.service));
            service != ServiceNames::DEFAULT || applications[c.application as usize] != ServiceNames::DEFAULT
        };
        return Err(match workload.coflows.iter().find(has_names) {
            Some(coflow) => {
                inexpressible_error(format!("coflow {}", coflow.id), "it has a service or an application")
            }
            None => {
                inexpressible_error("the trace", "it has services or applications, which contain no coflows")
            }
        });
    }
    writeln!(out, "{} {}", workload.ports, workload.coflows.len())?;
    for coflow in &workload.coflows {
        let line = format_coflow(coflow, unit)
            .map_err(|what| inexpressible_error(format!("coflow {}", coflow.id), what))?;
        out.write_all(line.as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

fn inexpressible_error(subject: impl Into<String>, reason: impl Into<String>) -> WriteError {
    WriteError::Inexpressible { subject: subject.into(), reason: reason.into() }
}

/// The line of a coflow, or the reason why the format cannot express the coflow.
fn format_coflow(coflow: &CoflowSpec, unit: TraceUnit) -> Result<String, String> {
    for (is_present, reason) in [
        (coflow.weight != 1.0, "it has a weight"),
        (coflow.deadline.is_some(), "it has a deadline"),
        (coflow.job.is_some(), "it belongs to a job"),
        (coflow.stage.is_some(), "it has a stage"),
        (coflow.wave.is_some(), "it has a wave"),
        (!coflow.parents.is_empty(), "it has parents"),
        (coflow.compute_before != Time::ZERO, "it computes before its flows"),
        (coflow.overlapped_compute != Time::ZERO, "it computes during its flows"),
        (coflow.compute_after != Time::ZERO, "it computes after its flows"),
        (coflow.max_transfer_time.is_some(), "it limits the time of its flows"),
        (coflow.is_endless || coflow.max_flow_rate.is_some(), "it belongs to a service"),
        (coflow.flows.iter().any(|f| f.data_delay != Time::ZERO), "a flow is released later than it"),
    ] {
        if is_present {
            return Err(reason.to_owned());
        }
    }
    let arrival = number::total_from_part(coflow.arrival.get(), 1e3, 1.0).ok_or_else(|| {
        format!("its arrival {} s cannot be written exactly in milliseconds", coflow.arrival.get())
    })?;
    let mut line = format!("{} {}", coflow.id, number::format_exact(arrival));
    append_flows(&mut line, &coflow.flows, unit)?;
    line.push('\n');
    Ok(line)
}

fn append_flows(line: &mut String, flows: &[FlowSpec], unit: TraceUnit) -> Result<(), String> {
    let mut reason = "its flows are not those from every mapper to every reducer, in mapper-major order and \
                   with sizes that depend on the reducer only"
        .to_owned();
    for shuffle in shuffle::shuffles_of_flows(flows) {
        let sizes: Result<Vec<f64>, f64> = shuffle
            .reducers
            .iter()
            .map(|&(_, part)| {
                number::total_from_part(part, shuffle.mappers.len() as f64, unit.bytes())
                    .filter(|&megabytes| megabytes == 0.0 || megabytes >= MIN_REDUCER_MEGABYTES)
                    .ok_or(part)
            })
            .collect();
        match sizes {
            Err(part) => {
                reason =
                    format!("a flow's {part} bytes cannot be written exactly as a part of a size in {unit}")
            }
            Ok(sizes) => {
                *line += &format!(" {}", shuffle.mappers.len());
                shuffle.mappers.iter().for_each(|port| *line += &format!(" {port}"));
                *line += &format!(" {}", sizes.len());
                let reducers = shuffle.reducers.iter().zip(sizes);
                // `{:?}` keeps the decimal of `65.0`, as in the public trace.
                reducers.for_each(|((port, _), size)| *line += &format!(" {port}:{size:?}"));
                return Ok(());
            }
        }
    }
    Err(reason)
}
