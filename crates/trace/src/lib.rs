//! Reads, writes, describes and generates coflow traces, and reads the other input files of Weir.
//!
//! [`read`] accepts two trace formats and detects the format by the first line:
//!
//! - [`coflow_benchmark`] is the public format of most published evaluations.
//! - [`mod@format`] is Weir's own. It adds weights, deadlines, dependencies, late data and events of the fabric.
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
pub mod incast;
pub mod jobs;
pub mod network_file;
pub mod scenario;
pub mod sensitivity;
pub mod topology;
pub mod trace_events;
pub mod tree;
pub mod wide_area;

mod bounds;
mod dag;
mod decompress;
mod error;
mod file_time;
mod lines;
mod number;
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
pub use source_kind::SourceKind;

use lines::LineReader;

/// A workload and the format of its file.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The workload.
    pub workload: Workload,
    /// The format.
    pub format: Format,
    /// The duration by which all times are earlier than in the file.
    pub time_shift: Time,
}

/// The formats that [`read`] accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The public format, with sizes in this unit.
    CoflowBenchmark(TraceUnit),
    /// Weir's own format.
    Weir,
}

/// Reads the trace at `path`, in either format; `-` is the standard input.
///
/// `unit` applies to coflow-benchmark traces; sizes in Weir's own format have units.
///
/// # Errors
/// [`FileError::Io`] if the file cannot be read; [`FileError::Field`] for the first invalid field, line or limit.
pub fn read(path: &Path, unit: TraceUnit, limits: &Limits) -> Result<Trace, FileError> {
    read_with_shift(path, unit, limits, None)
}

/// As [`read`]. If all coflows without parents arrive after 10^6 s, as at Unix times, all times are earlier by the largest
/// multiple of `step` that leaves no arrival negative.
///
/// # Errors
/// As for [`read`].
pub fn read_with_shift(
    path: &Path,
    unit: TraceUnit,
    limits: &Limits,
    step: Option<Time>,
) -> Result<Trace, FileError> {
    if path == Path::new("-") {
        return read_trace(io::stdin().lock(), "standard input", unit, limits, step);
    }
    FileKind::check_file(path, &[FileKind::Trace, FileKind::Jobs], "a trace, jobs or services")?;
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => read_trace(BufReader::with_capacity(1 << 16, file), &name, unit, limits, step),
        Err(source) => Err(FileError::Io { file: name, source }),
    }
}

/// Reads a trace in either format from `input`, which errors call `name`. The input can be compressed (gzip or Zstandard).
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: BufRead>(
    input: R,
    name: &str,
    unit: TraceUnit,
    limits: &Limits,
) -> Result<Trace, FileError> {
    read_trace(input, name, unit, limits, None)
}

fn read_trace<R: BufRead>(
    input: R,
    name: &str,
    unit: TraceUnit,
    limits: &Limits,
    step: Option<Time>,
) -> Result<Trace, FileError> {
    let input =
        decompress::open(input, limits).map_err(|source| FileError::Io { file: name.to_owned(), source })?;
    let mut lines = LineReader::new(input, name, limits);
    if lines.peek()?.is_none() {
        return Err(lines.error_at(1, "file", "empty file", "`<ports> <coflows>` or `weir-trace 1`"));
    }
    if let Some(line) = lines.peek()?.filter(|line| line.text.starts_with(FileKind::Jobs.key())) {
        return Err(line.error(
            "line",
            FileKind::Jobs.key(),
            "a trace; jobs need a file, not a pipe or the standard input",
        ));
    }
    let is_weir_format = lines.peek()?.is_some_and(|line| line.text.starts_with(format::MAGIC));
    let (workload, format, shift) = if is_weir_format {
        let (workload, shift) = format::parse(&mut lines, limits, step)?;
        (workload, Format::Weir, shift)
    } else {
        let (workload, shift) = coflow_benchmark::parse(&mut lines, unit, limits, step)?;
        (workload, Format::CoflowBenchmark(unit), shift)
    };
    Ok(Trace { workload, format, time_shift: shift.duration() })
}
