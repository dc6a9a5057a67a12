//! Opens the output of a command, and renders its result in the requested format.

use std::path::Path;

use serde::Serialize;
use weir_console::failure::Failure;
use weir_console::output::{self, ResultDestination};
use weir_console::record::{self, Record};

use crate::args::{Format, Output};

/// Opens the output of a command that reads `input`.
///
/// # Errors
/// If the file cannot be created, or is the input or a file that the input refers to.
pub fn open(output: &Output, input: &Path) -> Result<ResultDestination, Failure> {
    output::check_distinct(input, &[("--out", output.out.as_deref())])?;
    ResultDestination::new(output.out.as_deref())
}

/// Renders a list of records.
pub fn list(format: Format, table: impl FnOnce() -> String, records: impl FnOnce() -> Vec<Record>) -> String {
    match format {
        Format::Table => table(),
        Format::Json => record::json(&records()),
        Format::Csv => record::csv(&records()),
    }
}

/// Renders an object or a list of objects in JSON, and lines of records in CSV.
pub fn object<J: Serialize>(
    format: Format,
    table: impl FnOnce() -> String,
    json: impl FnOnce() -> J,
    csv: impl FnOnce() -> Vec<Record>,
) -> String {
    match format {
        Format::Table => table(),
        Format::Json => record::json(&json()),
        Format::Csv => record::csv(&csv()),
    }
}
