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

use weir_core::model::{CoflowSpec, FlowSpec, Names, Workload};
use weir_core::units::{Bytes, Time};

use crate::bounds::{self, Limits, MAX_BYTES, MAX_SECONDS, MIN_MEGABYTES};
use crate::error::{TraceError, WriteError};
use crate::lines::{Line, Lines};
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
) -> Result<Workload, TraceError> {
    parse(&mut Lines::new(input, name, limits), unit, limits)
}

/// The state of reading.
struct Reader<'a> {
    unit: TraceUnit,
    limits: &'a Limits,
    ports: u32,
    /// Numbers of flows and bytes so far.
    flows: usize,
    bytes: f64,
    /// The line of each id so far.
    ids: HashMap<u64, usize>,
    /// Mappers and reducers of the current line; reused to save allocations.
    mappers: Vec<u32>,
    reducers: Vec<(u32, Bytes)>,
}

pub(crate) fn parse<R: BufRead>(
    lines: &mut Lines<'_, R>,
    unit: TraceUnit,
    limits: &Limits,
) -> Result<Workload, TraceError> {
    let Some(line) = lines.next()? else {
        return Err(lines.ended("ports", "`<ports> <coflows>` or `weir-trace 1`"));
    };
    let (ports, count) = header(line, limits)?;
    let (mappers, reducers, ids) = (Vec::new(), Vec::new(), HashMap::new());
    let mut reader = Reader { unit, limits, ports, flows: 0, bytes: 0.0, ids, mappers, reducers };
    // Not `with_capacity(count)`: the header is not trustworthy enough to allocate memory for.
    let mut coflows = Vec::new();
    for number in 1..=count {
        let Some(line) = lines.next()? else {
            let field = format!("coflow {number} of {count}");
            return Err(lines.ended(field, COFLOW));
        };
        coflows.push(reader.coflow(line)?);
    }
    while let Some(line) = lines.next()? {
        if !line.text.is_empty() {
            let expected = format!("no more lines: the first line says how many coflows there are, {count}");
            return Err(line.error("after the last coflow", line.text, expected));
        }
    }
    let workload = Workload { ports, coflows, events: Vec::new(), names: Names::default() };
    match workload.check() {
        Ok(()) => Ok(workload),
        Err(error) => Err(lines.error_at(1, "trace", error, "a trace that holds together")),
    }
}

/// The numbers of ports and of coflows.
fn header(line: Line<'_>, limits: &Limits) -> Result<(u32, usize), TraceError> {
    let mut fields = line.fields();
    let expected = format!(
        "a number of ports from 1 to {} (a trace starts with `<ports> <coflows>` or `weir-trace 1`)",
        Workload::MAX_PORTS
    );
    let text = fields.required("ports", &expected)?;
    let ports = number::whole(text)
        .filter(|ports| (1..=Workload::MAX_PORTS).contains(ports))
        .ok_or_else(|| line.error("ports", text, &expected))?;
    let expected = "a whole number of coflows";
    let text = fields.required("coflows", expected)?;
    let count = number::whole(text).ok_or_else(|| line.error("coflows", text, expected))?;
    if count > limits.max_flows {
        return Err(line.error(
            "coflows",
            count,
            limits.expected("flows, of which a coflow has one or more"),
        ));
    }
    fields.finish()?;
    Ok((ports, count))
}

impl Reader<'_> {
    fn coflow(&mut self, line: Line<'_>) -> Result<CoflowSpec, TraceError> {
        let mut fields = line.fields();
        let expected = "a whole number that no other coflow has";
        let text = fields.required("id", format_args!("{COFLOW}"))?;
        let id: u64 = number::whole(text).ok_or_else(|| line.error("id", text, expected))?;
        if let Some(other) = self.ids.insert(id, line.number) {
            let expected = format!("{expected} (line {other} has it)");
            return Err(line.error("id", id, expected));
        }

        let expected = format!("a time of 0 to {:e} milliseconds", MAX_SECONDS * 1e3);
        let text = fields.required("arrival", &expected)?;
        let arrival = number::decimal(text)
            .and_then(|ms| Time::new(ms / 1e3))
            .filter(|time| time.get() <= MAX_SECONDS)
            .ok_or_else(|| line.error("arrival", text, &expected))?;

        let left = self.limits.max_flows - self.flows;
        let too_many = |field: &str, m: usize, r: usize| {
            let value = format!("{m} x {r} flows after {}", self.flows);
            line.error(field, value, self.limits.expected("flows"))
        };
        let expected = "a number of mappers of 1 or more";
        let text = fields.required("mappers", expected)?;
        let m = number::whole(text)
            .filter(|&m: &usize| m > 0)
            .ok_or_else(|| line.error("mappers", text, expected))?;
        if m > left {
            return Err(too_many("mappers", m, 1));
        }
        let expected = number::port_expected(self.ports);
        self.mappers.clear();
        for position in 1..=m {
            let text = fields.required(format_args!("mapper {position}"), &expected)?;
            let port = number::port(text, self.ports)
                .ok_or_else(|| line.error(format_args!("mapper {position}"), text, &expected))?;
            self.mappers.push(port);
        }

        let expected = "a number of reducers of 1 or more";
        let text = fields.required("reducers", expected)?;
        let r = number::whole(text)
            .filter(|&r: &usize| r > 0)
            .ok_or_else(|| line.error("reducers", text, expected))?;
        let flows = m.checked_mul(r).filter(|&flows| flows <= left);
        let flows = flows.ok_or_else(|| too_many("reducers", m, r))?;
        self.reducers.clear();
        for position in 1..=r {
            let text = fields.required(format_args!("reducer {position}"), "`<port>:<MB>`")?;
            let reducer = self.reducer(line, position, text, m)?;
            self.reducers.push(reducer);
        }
        fields.finish()?;

        // Safe to allocate: the number of flows is within the limit, and the line contained all ports.
        let mut specs = Vec::with_capacity(flows);
        shuffle::push(&mut specs, &self.mappers, &self.reducers, Time::ZERO);
        let coflow = CoflowSpec::new(id, arrival, specs);
        self.flows += flows;
        self.bytes += coflow.bytes();
        if self.bytes >= MAX_BYTES {
            let value = format!("{:e} bytes up to here", self.bytes);
            return Err(line.error("reducer sizes", value, "a trace of less than 2^53 bytes"));
        }
        Ok(coflow)
    }

    /// A reducer's port, and the bytes of its flow from each of `m` mappers.
    fn reducer(
        &self,
        line: Line<'_>,
        position: usize,
        text: &str,
        m: usize,
    ) -> Result<(u32, Bytes), TraceError> {
        let Some((port, size)) = text.split_once(':') else {
            return Err(line.error(format_args!("reducer {position}"), text, "`<port>:<MB>`"));
        };
        let port = number::port(port, self.ports).ok_or_else(|| {
            let expected = number::port_expected(self.ports);
            line.error(format_args!("reducer {position} port"), port, expected)
        })?;
        let refused = |expected: &str| line.error(format_args!("reducer {position} size"), size, expected);
        let megabytes = number::decimal(size).ok_or_else(|| refused("a size of 0 or more megabytes"))?;
        if megabytes != 0.0 && megabytes < MIN_MEGABYTES {
            return Err(refused("a size of 0, or of 1e-12 megabytes or more"));
        }
        let bytes = megabytes * self.unit.bytes();
        let part = Bytes::new(bytes / m as f64).filter(|_| bytes < MAX_BYTES);
        Ok((port, part.ok_or_else(|| refused("a size of less than 2^53 bytes"))?))
    }
}

/// Writes `workload` so that [`read`] with the same unit returns an equal one.
///
/// # Errors
/// If the format cannot express the workload: the flows of a coflow are not all pairs of some mappers and reducers with
/// sizes that depend on the reducer only, or the workload contains more than flows and arrivals. The output then contains
/// the coflows before the one that the error names. Also if `out` fails.
pub fn write<W: Write>(workload: &Workload, unit: TraceUnit, mut out: W) -> Result<(), WriteError> {
    bounds::check(workload)?;
    if !workload.events.is_empty() {
        return Err(inexpressible("the trace", "it has events"));
    }
    if workload.names != Names::default() {
        let own = |c: &&CoflowSpec| {
            let (service, applications) =
                (workload.names.service(c.service), workload.names.applications(c.service));
            service != Names::DEFAULT || applications[c.application as usize] != Names::DEFAULT
        };
        return Err(match workload.coflows.iter().find(own) {
            Some(coflow) => {
                inexpressible(format!("coflow {}", coflow.id), "it has a service or an application")
            }
            None => inexpressible("the trace", "it has services or applications without coflows"),
        });
    }
    writeln!(out, "{} {}", workload.ports, workload.coflows.len())?;
    for coflow in &workload.coflows {
        let line =
            coflow_line(coflow, unit).map_err(|what| inexpressible(format!("coflow {}", coflow.id), what))?;
        out.write_all(line.as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

fn inexpressible(place: impl Into<String>, what: impl Into<String>) -> WriteError {
    WriteError::Inexpressible { place: place.into(), what: what.into() }
}

/// The line of a coflow, or the reason why the format cannot express the coflow.
fn coflow_line(coflow: &CoflowSpec, unit: TraceUnit) -> Result<String, String> {
    for (there, what) in [
        (coflow.weight != 1.0, "it has a weight"),
        (coflow.deadline.is_some(), "it has a deadline"),
        (coflow.job.is_some(), "it belongs to a job"),
        (coflow.stage.is_some(), "it has a stage"),
        (coflow.wave.is_some(), "it has a wave"),
        (!coflow.parents.is_empty(), "it has parents"),
        (coflow.compute_before != Time::ZERO, "it computes before its flows"),
        (coflow.compute_after != Time::ZERO, "it computes after its flows"),
        (coflow.flows.iter().any(|f| f.release != Time::ZERO), "a flow is released later than it"),
    ] {
        if there {
            return Err(what.to_owned());
        }
    }
    let arrival = number::unsplit(coflow.arrival.get(), 1e3, 1.0)
        .ok_or_else(|| format!("{} s is no exact number of milliseconds", coflow.arrival.get()))?;
    let mut line = format!("{} {}", coflow.id, number::exact(arrival));
    push_flows(&mut line, &coflow.flows, unit)?;
    line.push('\n');
    Ok(line)
}

fn push_flows(line: &mut String, flows: &[FlowSpec], unit: TraceUnit) -> Result<(), String> {
    let mut why = "its flows are not those from every mapper to every reducer, in mapper-major order and \
                   with sizes that depend on the reducer only"
        .to_owned();
    for shuffle in shuffle::factor(flows) {
        let sizes: Result<Vec<f64>, f64> = shuffle
            .reducers
            .iter()
            .map(|&(_, part)| {
                number::unsplit(part, shuffle.mappers.len() as f64, unit.bytes())
                    .filter(|&megabytes| megabytes == 0.0 || megabytes >= MIN_MEGABYTES)
                    .ok_or(part)
            })
            .collect();
        match sizes {
            Err(part) => why = format!("a flow's {part} bytes are no exact part of a number of {unit}"),
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
    Err(why)
}
