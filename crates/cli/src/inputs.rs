//! Reads the coflows of a command.

use std::path::PathBuf;

use weir_console::failure::Failure;
use weir_experiment::source::Source;
use weir_trace::{TraceOptions, TraceUnit};

/// Reads a trace, jobs, services, or several of these, and prints what the trace contains that its workload does not express. `unit` is
/// that which the user requested.
///
/// # Errors
/// As for [`Source::read`], and if the unit has no effect.
pub fn read_source(
    files: &[PathBuf],
    options: &TraceOptions,
    unit: Option<TraceUnit>,
    per_stage: bool,
) -> Result<Source, Failure> {
    let source = Source::read(files, options, per_stage)?;
    source.warnings.iter().for_each(|warning| eprintln!("weir: {warning}"));
    source.check_unit(unit)?;
    Ok(source)
}
