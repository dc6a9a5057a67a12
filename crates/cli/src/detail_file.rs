//! Files with the rows of a table: CSV, or JSON if the name says so.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;
use weir_console::failure::Failure;
use weir_console::output::OutputFile;
use weir_experiment::rows::RowWriter;

/// A file with the rows of a table, opened before they are known.
pub struct DetailFile {
    file: OutputFile,
    is_json: bool,
}

impl DetailFile {
    /// Prepares the file `path`: JSON if its name ends in `.json`, otherwise CSV.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path) -> Result<DetailFile, Failure> {
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        Ok(DetailFile { file: OutputFile::create(path)?, is_json })
    }

    /// Begins a table with these columns.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn begin(self, columns: impl IntoIterator<Item = String>) -> Result<DetailRows, Failure> {
        let columns: Vec<String> = columns.into_iter().collect();
        if self.is_json {
            return Ok(DetailRows::Json(JsonRows { file: self.file, columns, row_count: 0 }));
        }
        let mut csv = csv::Writer::from_writer(self.file);
        match csv.write_record(&columns) {
            Ok(()) => Ok(DetailRows::Csv(Box::new(csv))),
            Err(error) => Err(csv.get_ref().failure(&csv_error(error))),
        }
    }
}

/// The rows of a table in a file.
pub enum DetailRows {
    /// Lines of CSV.
    Csv(Box<csv::Writer<OutputFile>>),
    /// A JSON array with an object in each line.
    Json(JsonRows),
}

impl DetailRows {
    /// Ends the table. The file appears when it is [finished](OutputFile::finish).
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn end(self) -> Result<OutputFile, Failure> {
        match self {
            DetailRows::Csv(mut csv) => match csv.flush() {
                Ok(()) => (*csv).into_inner().map_err(|error| Failure::runtime(error.error())),
                Err(error) => Err(csv.get_ref().failure(&error)),
            },
            DetailRows::Json(JsonRows { mut file, row_count, .. }) => {
                match file.write_all(if row_count == 0 { b"[]\n" } else { b"\n]\n" }) {
                    Ok(()) => Ok(file),
                    Err(error) => Err(file.failure(&error)),
                }
            }
        }
    }

    /// The failure for an error in writing a row.
    pub fn failure(&self, error: &io::Error) -> Failure {
        match self {
            DetailRows::Csv(csv) => csv.get_ref().failure(error),
            DetailRows::Json(rows) => rows.file.failure(error),
        }
    }
}

impl RowWriter for DetailRows {
    type Error = io::Error;

    fn write_row(&mut self, row: impl Serialize) -> io::Result<()> {
        match self {
            DetailRows::Csv(csv) => csv.serialize(row).map_err(csv_error),
            DetailRows::Json(rows) => rows.write(row),
        }
    }
}

/// Rows as objects of a JSON array.
pub struct JsonRows {
    file: OutputFile,
    columns: Vec<String>,
    row_count: u64,
}

impl JsonRows {
    fn write(&mut self, row: impl Serialize) -> io::Result<()> {
        let mut values = Vec::with_capacity(self.columns.len());
        flatten(serde_json::to_value(row)?, &mut values);
        self.file.write_all(if self.row_count == 0 { b"[\n" } else { b",\n" })?;
        serde_json::to_writer(&mut self.file, &Object { columns: &self.columns, values: &values })?;
        self.row_count += 1;
        Ok(())
    }
}

/// Adds the values of a row in their order; those of nested lists one by one.
fn flatten(value: Value, values: &mut Vec<Value>) {
    match value {
        Value::Array(items) => items.into_iter().for_each(|item| flatten(item, values)),
        value => values.push(value),
    }
}

/// A JSON object with its fields in the order of the columns.
struct Object<'a> {
    columns: &'a [String],
    values: &'a [Value],
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.columns.len()))?;
        for (column, value) in self.columns.iter().zip(self.values) {
            map.serialize_entry(column, value)?;
        }
        map.end()
    }
}

fn csv_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
