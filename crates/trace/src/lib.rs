//! Coflow traces: reading, writing, describing and generating them.
//!
//! Two formats are understood. [`coflow_benchmark`] is the public one that most published evaluations
//! use; [`mod@format`] is Weir's own, which also says what the public one cannot: weights, deadlines,
//! dependencies, flows that become available late, and things that happen to the fabric. [`read`] tells
//! them apart by their first line.
//!
//! [`sensitivity`] is for another file, Saba's table of how applications depend on the bandwidth.
//!
//! Whatever the input, a reader ends with a [`Workload`] that holds together or with a [`TraceError`] that
//! names the line, the field, the value and what was expected; memory stays within [`Limits`].
//!
//! [`topology`] reads and writes networks, in TOML; [`scenario`] reads services that share one, [`tree`] policies for services and
//! applications, [`mod@wide_area`] regions and the links between them, [`incast`] what too many
//! connections cost. [`fields`] is how files in TOML are taken apart.

pub mod coflow_benchmark;
pub mod describe;
pub mod fields;
pub mod format;
pub mod generate;
pub mod incast;
pub mod jobs;
pub mod scenario;
pub mod sensitivity;
pub mod topology;
pub mod tree;
pub mod wide_area;

mod bounds;
mod dag;
mod error;
mod lines;
mod number;
mod shuffle;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use weir_core::model::Workload;

pub use bounds::{Limits, MAX_BYTES, MAX_FACTOR, MAX_SECONDS, MAX_WEIGHT, MIN_MEGABYTES, MIN_WEIGHT};
pub use coflow_benchmark::TraceUnit;
pub use error::{TraceError, WriteError};
pub use number::quoted;

use lines::Lines;

/// A workload, and the format that it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// What the trace says.
    pub workload: Workload,
    /// How it said so.
    pub format: Format,
}

/// The formats that [`read`] understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The public format, its sizes in this unit.
    CoflowBenchmark(TraceUnit),
    /// Weir's own.
    Weir,
}

/// Reads the trace at `path`, in either format; `-` is the standard input.
///
/// The `unit` is that of a coflow-benchmark trace; Weir's own format carries its units.
///
/// # Errors
/// The first thing that keeps it from being read, with its place.
pub fn read(path: &Path, unit: TraceUnit, limits: &Limits) -> Result<Trace, TraceError> {
    if path == Path::new("-") {
        return read_from(io::stdin().lock(), "standard input", unit, limits);
    }
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => read_from(BufReader::with_capacity(1 << 16, file), &name, unit, limits),
        Err(source) => Err(TraceError::Io { file: name, source }),
    }
}

/// Reads a trace in either format from `input`, which errors call `name`.
///
/// # Errors
/// The first thing that keeps it from being read, with its place.
pub fn read_from<R: BufRead>(
    input: R,
    name: &str,
    unit: TraceUnit,
    limits: &Limits,
) -> Result<Trace, TraceError> {
    let mut lines = Lines::new(input, name, limits);
    let own = lines.peek()?.is_some_and(|line| line.text.starts_with(format::MAGIC));
    if own {
        let workload = format::parse(&mut lines, limits)?;
        Ok(Trace { workload, format: Format::Weir })
    } else {
        let workload = coflow_benchmark::parse(&mut lines, unit, limits)?;
        Ok(Trace { workload, format: Format::CoflowBenchmark(unit) })
    }
}
