//! Reads and writes Weir's own trace format, which expresses every property of a [`Workload`].
//!
//! ```text
//! weir-trace 1
//! ports 150
//! coflow 7 arrival=10.833s weight=2 deadline=1.5s parents=4,5
//! flow 2 140 48MB release=10ms
//! shuffle 2,104 140:48MB,141:10MB
//! event 5s port=3 side=send rate=0.5
//! ```
//!
//! `docs/trace-format.md` is the reference. Sizes and times have units. [`read()`] of the output of [`write()`] gives
//! an equal workload, to the last bit of every number; [`write()`] refuses values beyond the format's bounds.

mod read;
mod values;
mod write;

use std::io::{BufRead, Write};
use std::sync::Arc;

use weir_core::model::Workload;
use weir_fields::{FileError, FileKind};

use crate::error::WriteError;
use crate::lines::LineReader;
use crate::options::TraceOptions;

pub(crate) use read::parse;

/// The first word of a trace in this format.
pub const MAGIC: &str = FileKind::Trace.key();

/// The version of the format.
pub const VERSION: u32 = 1;

/// Reads a trace from `input`, which errors call `name`.
///
/// # Errors
/// For the first invalid line or field, the first value beyond a bound, and if `input` fails.
pub fn read<R: BufRead>(input: R, name: &str, options: &TraceOptions) -> Result<Workload, FileError> {
    Ok(parse(&mut LineReader::new(input, name, &options.limits), options)?.workload)
}

/// Writes `workload` so that [`read()`] returns an equal one, with a name for each of the first ports.
///
/// # Errors
/// If the workload is inconsistent, is beyond the format's bounds, names a parent twice or has names in another order than
/// its coflows; and if `out` fails.
pub fn write<W: Write>(workload: &Workload, port_names: &[String], out: W) -> Result<(), WriteError> {
    write::write_workload(workload, port_names, &Comments::default(), out)
}

/// Comments of a written trace, each without a line break.
#[derive(Debug, Default)]
pub struct Comments {
    /// Those after the header.
    pub head: Vec<String>,
    /// A comment before each coflow, in the order of the coflows; none for those after the last comment.
    pub coflows: Vec<Arc<str>>,
}

/// As [`write()`], with comments.
///
/// # Errors
/// As for [`write()`].
pub fn write_with_comments<W: Write>(
    workload: &Workload,
    port_names: &[String],
    comments: &Comments,
    out: W,
) -> Result<(), WriteError> {
    write::write_workload(workload, port_names, comments, out)
}
