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
//! White space at the ends of lines (including CRLF), lines that begin with `#` and blank lines at the end of the file are ignored. An id
//! can be a name that ends with a number, such as `JOB-7`. Fields after the last reducer that are no reducers are ignored with a warning.

use std::fmt;
use std::io::{BufRead, Write};
use std::str::FromStr;

use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames, Workload};
use weir_core::units::{Bytes, Time};
use weir_fields::FileError;

use crate::Parsed;
use crate::bounds::{self, MAX_BYTES, MAX_SECONDS, MIN_REDUCER_MEGABYTES};
use crate::builder::{TimeUnit, WorkloadBuilder, parse_count};
use crate::error::WriteError;
use crate::lines::{Line, LineFields, LineReader};
use crate::number;
use crate::options::TraceOptions;
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
pub fn read<R: BufRead>(input: R, name: &str, options: &TraceOptions) -> Result<Workload, FileError> {
    let mut lines = LineReader::new(input, name, &options.limits);
    let header = Header::parse(&mut lines, options)?;
    Ok(parse(&mut lines, header, options)?.workload)
}

/// The first line of a trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) ports: u32,
    pub(crate) coflow_count: usize,
}

impl Header {
    pub(crate) fn parse<R: BufRead>(
        lines: &mut LineReader<'_, R>,
        options: &TraceOptions,
    ) -> Result<Header, FileError> {
        lines.skip_comments()?;
        let Some(line) = lines.next()? else {
            return Err(lines.end_of_file_error("ports", "`<ports> <coflows>` or `weir-trace 1`"));
        };
        let mut fields = line.fields();
        let advice = header_advice(line);
        let expected = format!(
            "a number of ports from 1 to {} (a trace starts with `<ports> <coflows>` or `weir-trace 1`){advice}",
            Workload::MAX_PORTS
        );
        let text = fields.required("ports", &expected)?;
        let ports = number::parse_integer(text)
            .filter(|ports| (1..=Workload::MAX_PORTS).contains(ports))
            .ok_or_else(|| line.error("ports", text, &expected))?;
        let expected = "a whole number of coflows";
        let text = fields.required("coflows", expected)?;
        let coflow_count =
            number::parse_integer(text).ok_or_else(|| line.error("coflows", text, expected))?;
        if coflow_count > options.limits.max_flows {
            let expected = options.limits.expected_at_most("flows, of which a coflow has one or more");
            return Err(line.error("coflows", coflow_count, expected));
        }
        match fields.optional() {
            None => Ok(Header { ports, coflow_count }),
            Some(extra) => Err(line.error("after the last field", extra, format!("end of line{advice}"))),
        }
    }

    /// Reads a line for each coflow, and checks that there are no more.
    pub(crate) fn parse_coflows<R: BufRead>(
        self,
        lines: &mut LineReader<'_, R>,
        form: &str,
        mut parse_coflow: impl FnMut(Line<'_>) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let count = self.coflow_count;
        for number in 1..=count {
            lines.skip_comments()?;
            let Some(line) = lines.next()? else {
                let field = format!("coflow {number} of {count}");
                return Err(lines.end_of_file_error(field, form));
            };
            parse_coflow(line)?;
        }
        while let Some(line) = lines.next()? {
            if !line.text.is_empty() && !line.is_comment() {
                let expected =
                    format!("no more lines, because the number of coflows in the first line is {count}");
                return Err(line.error("after the last coflow", line.text, expected));
            }
        }
        Ok(())
    }
}

/// Advice about a first line that is no header: a coflow, or a line of a table.
fn header_advice(line: Line<'_>) -> &'static str {
    let fields: Vec<&str> = line.text.split_ascii_whitespace().collect();
    match fields[..] {
        [_, _, _, _, _, .., last] if last.contains(':') => {
            "; help: the line is a coflow, so add the missing header `<ports> <coflows>` above it"
        }
        // A flow has at least three fields.
        [] | [_] | [_, _] if !line.text.contains([',', ';']) => "",
        _ => "; help: `weir trace convert --columns` reads a table of flows",
    }
}

pub(crate) fn parse<R: BufRead>(
    lines: &mut LineReader<'_, R>,
    header: Header,
    options: &TraceOptions,
) -> Result<Parsed, FileError> {
    let mut reader = Reader {
        builder: WorkloadBuilder::new(options),
        ports: header.ports,
        ignored_tags: IgnoredTags::default(),
        mappers: Vec::new(),
        reducers: Vec::new(),
    };
    header.parse_coflows(lines, COFLOW, |line| reader.parse_coflow(line))?;
    let Reader { builder, ignored_tags, .. } = reader;
    let (workload, shift) = builder.finish(header.ports, lines)?;
    Ok(Parsed { warnings: ignored_tags.warning().into_iter().collect(), ..Parsed::new(workload, shift) })
}

/// Fields after the last reducer of a line, which other programs append.
#[derive(Default)]
struct IgnoredTags {
    first_line: usize,
    first: String,
    count: usize,
}

impl IgnoredTags {
    fn warning(self) -> Option<String> {
        let IgnoredTags { first_line, first, count } = self;
        let lines = if count == 1 { "1 line has".to_owned() } else { format!("{count} lines have") };
        let reason = format!("line {first_line}: `{first}`");
        (count > 0).then(|| format!("{lines} fields after the last reducer, which are ignored ({reason})"))
    }
}

/// The state of reading.
struct Reader<'a> {
    builder: WorkloadBuilder<'a>,
    ports: u32,
    ignored_tags: IgnoredTags,
    /// Mappers and reducers of the current line; reused to save allocations.
    mappers: Vec<u32>,
    reducers: Vec<(u32, Bytes)>,
}

impl Reader<'_> {
    fn parse_coflow(&mut self, line: Line<'_>) -> Result<(), FileError> {
        let mut fields = line.fields();
        let text = fields.required("id", format_args!("{COFLOW}"))?;
        // An id such as `JOB-7` is 7.
        let is_name = text.starts_with(|c: char| c.is_ascii_alphabetic());
        let number = text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let digits = if is_name && number < text.len() { &text[number..] } else { text };
        let id = self.builder.parse_id(line, digits)?;
        let expected = format!("a time of 0 to {:e} milliseconds", MAX_SECONDS * 1e3);
        let text = fields.required("arrival", &expected)?;
        let arrival = self.builder.parse_time(line, "arrival", text, TimeUnit::MS)?;

        let m = parse_count(&mut fields, "mappers", "a number of mappers of 1 or more")?;
        if m > self.builder.remaining_flows() {
            self.builder.reserve_flows(line, "mappers", None, format_args!("{m} x 1"))?;
        }
        let expected = number::expected_port(self.ports);
        self.mappers.clear();
        for position in 1..=m {
            let text = fields.required(format_args!("mapper {position}"), &expected)?;
            self.mappers.push(parse_port(line, format_args!("mapper {position}"), text, self.ports)?);
        }

        let r = parse_count(&mut fields, "reducers", "a number of reducers of 1 or more")?;
        self.builder.reserve_flows(line, "reducers", m.checked_mul(r), format_args!("{m} x {r}"))?;
        self.reducers.clear();
        for position in 1..=r {
            let text = fields.required(format_args!("reducer {position}"), "`<port>:<MB>`")?;
            let unit = self.builder.options.unit;
            self.reducers.push(parse_reducer(line, position, text, m, self.ports, unit)?);
        }
        self.parse_tags(fields)?;
        let mut flows = Vec::with_capacity(m * r);
        shuffle::push_flows(&mut flows, &self.mappers, &self.reducers, Time::ZERO);
        let coflow = CoflowSpec::new(id, Time::ZERO, flows);
        self.builder.add_bytes(line, "reducer sizes", coflow.total_bytes())?;
        self.builder.push(coflow, arrival);
        Ok(())
    }

    /// Ignores fields after the last reducer that do not look like reducers.
    fn parse_tags(&mut self, mut fields: LineFields<'_>) -> Result<(), FileError> {
        let mut tags = fields.clone();
        while let Some(tag) = tags.optional() {
            if tag.contains(':') {
                return fields.finish();
            }
        }
        if let Some(first) = fields.optional() {
            if self.ignored_tags.count == 0 {
                (self.ignored_tags.first_line, self.ignored_tags.first) =
                    (fields.line.number, weir_fields::format_value(first));
            }
            self.ignored_tags.count += 1;
        }
        Ok(())
    }
}

/// Parses a port. The error about one that is too large by 1 names the likely cause.
pub(crate) fn parse_port(
    line: Line<'_>,
    field: impl fmt::Display,
    text: &str,
    ports: u32,
) -> Result<u32, FileError> {
    number::parse_port(text, ports).ok_or_else(|| {
        let advice = match number::parse_integer(text) == Some(ports) {
            true => " (ports begin at 0: subtract 1 if those of the file begin at 1)",
            false => "",
        };
        line.error(field, text, format!("{}{advice}", number::expected_port(ports)))
    })
}

/// A reducer's port, and the bytes of its flow from each of `m` mappers.
pub(crate) fn parse_reducer(
    line: Line<'_>,
    position: usize,
    text: &str,
    m: usize,
    ports: u32,
    unit: TraceUnit,
) -> Result<(u32, Bytes), FileError> {
    let Some((port, size)) = text.split_once(':') else {
        return Err(line.error(format_args!("reducer {position}"), text, "`<port>:<MB>`"));
    };
    let port = parse_port(line, format_args!("reducer {position} port"), port, ports)?;
    let size_error = |expected: &str| line.error(format_args!("reducer {position} size"), size, expected);
    let megabytes = number::parse_decimal(size).ok_or_else(|| size_error("a size of 0 or more megabytes"))?;
    if megabytes != 0.0 && megabytes < MIN_REDUCER_MEGABYTES {
        return Err(size_error("a size of 0, or of 1e-12 megabytes or more"));
    }
    let bytes = megabytes * unit.bytes();
    let bytes_per_mapper = Bytes::new(bytes / m as f64).filter(|_| bytes < MAX_BYTES);
    Ok((port, bytes_per_mapper.ok_or_else(|| size_error("a size of less than 2^53 bytes"))?))
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
