//! Reads, writes, describes and generates coflow traces, and reads the other input files of Weir.
//!
//! [`read`] accepts these formats of traces, and detects most of them by the first lines:
//!
//! - [`coflow_benchmark`] is the public format of most published evaluations.
//! - [`mod@format`] is Weir's own. It adds weights, deadlines, dependencies, late data and events of the fabric.
//! - [`import`] has the formats of other programs.
//!
//! The other files:
//!
//! | Module | File |
//! |---|---|
//! | [`topology`] | networks; [`network_file`] also reads regions |
//! | [`scenario`] | services that share a network |
//! | [`jobs`] | jobs of stages on a network |
//! | [`tree`] | policies for services and applications |
//! | [`mod@wide_area`] | regions and the links between them |
//! | [`incast`] | measured goodput of many connections to one receiver (CSV) |
//! | [`sensitivity`] | Saba's table of applications' sensitivity to bandwidth |
//!
//! [`trace_events`] writes a file for other programs.
//!
//! All except [`incast`] are TOML, and all except [`incast`] and [`sensitivity`] are parsed with [`TableFields`](weir_fields::TableFields).
//!
//! For any input, a trace reader returns a consistent [`Workload`], or a [`FileError`] that names the line, the field,
//! the value and the expected value. [`Limits`] bound its memory.

pub mod coflow_benchmark;
pub mod describe;
pub mod format;
pub mod generate;
pub mod import;
pub mod incast;
pub mod jobs;
pub mod merge;
pub mod network_file;
pub mod scenario;
pub mod sensitivity;
pub mod topology;
pub mod trace_events;
pub mod tree;
pub mod wide_area;

mod bounds;
mod builder;
mod dag;
mod decompress;
mod error;
mod file_time;
mod lines;
mod number;
mod options;
mod output_format;
mod shuffle;
mod source_kind;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use weir_core::model::Workload;
use weir_core::units::Time;
use weir_fields::{FileError, FileKind};

pub use bounds::{
    Limits, MAX_BYTES, MAX_PORT_RATE_FACTOR, MAX_SECONDS, MAX_WEIGHT, MIN_REDUCER_MEGABYTES, MIN_WEIGHT,
    check_workload,
};
pub use coflow_benchmark::TraceUnit;
pub use error::WriteError;
pub use options::{InputFormat, TraceOptions};
pub use output_format::OutputFormat;
pub use source_kind::SourceKind;

use file_time::TimeShift;
pub use file_time::shift_again;
use lines::{Line, LineReader};

/// A workload and the format of its file.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The workload.
    pub workload: Workload,
    /// The format.
    pub format: Format,
    /// The duration by which all times are earlier than in the file.
    pub time_shift: Time,
    /// The names of the ports, in their order; empty if the file does not name them.
    pub port_names: Vec<String>,
    /// What the file contains that the workload does not express.
    pub warnings: Vec<String>,
}

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The public format, with sizes in this unit.
    CoflowBenchmark(TraceUnit),
    /// Weir's own format.
    Weir,
    /// Sunflow's variant of the public format, with sizes in this unit.
    Sunflow(TraceUnit),
    /// The output of Sincronia's generator, with sizes in this unit.
    Sincronia(TraceUnit),
    /// Connections of htsim.
    Htsim,
    /// The list of flows of HPCC's simulator.
    Hpcc,
    /// The event log of a Spark application.
    Spark,
    /// A table with a flow in each line.
    Flows,
}

impl Format {
    /// All formats; those whose sizes have no unit with this one.
    pub fn all(unit: TraceUnit) -> [Format; 8] {
        [
            Format::CoflowBenchmark(unit),
            Format::Weir,
            Format::Sunflow(unit),
            Format::Sincronia(unit),
            Format::Htsim,
            Format::Hpcc,
            Format::Spark,
            Format::Flows,
        ]
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Format::CoflowBenchmark(_) => "coflow-benchmark format",
            Format::Weir => "Weir's format",
            Format::Sunflow(_) => "Sunflow's format",
            Format::Sincronia(_) => "the format of Sincronia's generator",
            Format::Htsim => "htsim's format",
            Format::Hpcc => "HPCC's list of flows",
            Format::Spark => "event log of Spark, estimated",
            Format::Flows => "a table of flows",
        }
    }

    /// The unit of sizes that the caller chose; none if the format defines it.
    pub fn unit(self) -> Option<TraceUnit> {
        match self {
            Format::CoflowBenchmark(unit) | Format::Sunflow(unit) | Format::Sincronia(unit) => Some(unit),
            Format::Weir | Format::Htsim | Format::Hpcc | Format::Spark | Format::Flows => None,
        }
    }
}

/// The rule for names of ports, for messages.
pub(crate) const PORT_NAME_RULE: &str =
    "a name of 1 to 255 characters without white space, `#` and control characters";

/// Whether a text is a valid name of a port.
pub(crate) fn is_port_name(text: &str) -> bool {
    let is_allowed = |c: char| !c.is_whitespace() && !c.is_control() && c != '#';
    (1..=255).contains(&text.chars().count()) && text.chars().all(is_allowed)
}

/// What a reader returns.
pub(crate) struct Parsed {
    pub(crate) workload: Workload,
    pub(crate) shift: TimeShift,
    pub(crate) port_names: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

impl Parsed {
    pub(crate) fn new(workload: Workload, shift: TimeShift) -> Parsed {
        Parsed { workload, shift, port_names: Vec::new(), warnings: Vec::new() }
    }
}

/// Reads the trace at `path`; `-` is the standard input. The input can be compressed (gzip or Zstandard).
///
/// # Errors
/// [`FileError::Io`] if the file cannot be read; [`FileError::Field`] for the first invalid field, line or limit.
pub fn read(path: &Path, options: &TraceOptions) -> Result<Trace, FileError> {
    if path == Path::new("-") {
        return read_from(io::stdin().lock(), "standard input", options);
    }
    FileKind::check_file(path, &[FileKind::Trace, FileKind::Jobs], "a trace, jobs or services")?;
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => read_from(BufReader::with_capacity(1 << 16, file), &name, options),
        Err(source) => Err(FileError::Io { file: name, source }),
    }
}

/// As [`read`], from `input`, which errors call `name`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: BufRead>(input: R, name: &str, options: &TraceOptions) -> Result<Trace, FileError> {
    let input = decompress::open(input, &options.limits)
        .map_err(|source| FileError::Io { file: name.to_owned(), source })?;
    let mut lines = LineReader::new(input, name, &options.limits);
    lines.skip_comments()?;
    let Some(first) = lines.peek()? else {
        return Err(lines.error_at(1, "file", "empty file", "`<ports> <coflows>` or `weir-trace 1`"));
    };
    if first.text.starts_with(FileKind::Jobs.key()) {
        let expected = "a trace; jobs need a file, not a pipe or the standard input";
        return Err(first.error("line", FileKind::Jobs.key(), expected));
    }
    let format = options.format.clone().or_else(|| detect_format(first));
    let unit = options.unit;
    let (mut parsed, format) = match format {
        Some(InputFormat::Weir) => (format::parse(&mut lines, options)?, Format::Weir),
        Some(InputFormat::Sunflow) => (import::sunflow::parse(&mut lines, options)?, Format::Sunflow(unit)),
        Some(InputFormat::Htsim) => (import::htsim::parse(&mut lines, options)?, Format::Htsim),
        Some(InputFormat::Hpcc) => (import::hpcc::parse(&mut lines, options)?, Format::Hpcc),
        Some(InputFormat::Spark) => (import::spark_log::parse(&mut lines, options)?, Format::Spark),
        Some(InputFormat::Flows(columns)) => {
            (import::flow_table::parse(&mut lines, &columns, options)?, Format::Flows)
        }
        None | Some(InputFormat::CoflowBenchmark | InputFormat::Sincronia) => {
            let header = coflow_benchmark::Header::parse(&mut lines, options)?;
            lines.skip_comments()?;
            let is_sincronia = match format {
                Some(format) => format == InputFormat::Sincronia,
                None => lines.peek()?.is_some_and(import::sincronia::is_likely),
            };
            match is_sincronia {
                true => (import::sincronia::parse(&mut lines, header, options)?, Format::Sincronia(unit)),
                false => {
                    (coflow_benchmark::parse(&mut lines, header, options)?, Format::CoflowBenchmark(unit))
                }
            }
        }
    };
    let keeps_by_default = matches!(format, Format::CoflowBenchmark(_) | Format::Weir);
    if !options.keeps_local_flows.unwrap_or(keeps_by_default) {
        parsed.warnings.extend(import::drop_local_bytes(&mut parsed.workload));
    }
    let Parsed { workload, shift, port_names, warnings } = parsed;
    Ok(Trace { workload, format, time_shift: shift.duration(), port_names, warnings })
}

/// The format that a first line shows. The public format and that of Sincronia have the same first line.
fn detect_format(first: Line<'_>) -> Option<InputFormat> {
    match first {
        _ if first.text.starts_with(format::MAGIC) => Some(InputFormat::Weir),
        _ if import::htsim::is_likely(first) => Some(InputFormat::Htsim),
        _ if import::sunflow::is_likely(first) => Some(InputFormat::Sunflow),
        _ if import::spark_log::is_likely(first) => Some(InputFormat::Spark),
        _ if import::hpcc::is_likely(first) => Some(InputFormat::Hpcc),
        _ => None,
    }
}
