//! Reads tables of flows from Python: those of Arrow, such as the frames of pandas and Polars, or lists.
//!
//! A table becomes the text that `weir trace convert --columns` reads, so that both accept and refuse the same values.

use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_cast::cast;
use arrow_schema::{DataType, Schema, TimeUnit};
use pyo3::exceptions::{PyException, PyImportError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyString};
use pyo3_arrow::PyTable;
use weir_trace::import::Columns;

use crate::argument::type_error;
use crate::error::{Error, Result};

/// A field of flows, such as `bytes`, the names that its column can have, and the unit of its values.
pub type Request = (String, Vec<String>, Option<String>);

/// A field, its column, and the unit of its values.
type FieldColumn = (String, String, Option<String>);

/// The text of a table with a flow in each line, and its columns.
pub struct FrameText {
    /// CSV without a first line of names.
    pub text: Vec<u8>,
    /// The columns of the text.
    pub columns: Columns,
}

/// The text of a table in Arrow's format, or of a dictionary of lists. Errors call it `name`. If fields are `optional`, those without a
/// column are left out.
///
/// # Errors
/// If a column is missing or has values of a type that is no text, number or time, or `frame` is no table.
pub fn read(frame: &Bound<'_, PyAny>, fields: &[Request], optional: bool, name: &str) -> Result<FrameText> {
    let select = |known: &[String]| select_columns(fields, known, optional, name);
    match frame.cast::<PyDict>() {
        Ok(lists) => {
            let known: Vec<String> = lists.keys().iter().filter_map(|key| key.extract().ok()).collect();
            read_lists(lists, &select(&known)?, name)
        }
        Err(_) => {
            let (batches, schema) = extract_table(frame)?.into_inner();
            let known: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
            let fields = select(&known)?;
            frame.py().detach(|| read_arrow(&batches, &schema, &fields, name))
        }
    }
}

/// A table of Arrow. Columns alone, such as a series of pandas, have the interface of Arrow too.
fn extract_table(frame: &Bound<'_, PyAny>) -> Result<PyTable> {
    frame.extract::<PyTable>().map_err(|error: PyErr| {
        let py = frame.py();
        if error.is_instance_of::<PyImportError>(py) || !error.is_instance_of::<PyException>(py) {
            return error.into();
        }
        let wrong = type_error("frame", frame, "a table with a flow in each row");
        if let Error::Python(wrong) = &wrong {
            wrong.set_cause(py, Some(error));
        }
        wrong
    })
}

/// The columns of fields.
fn select_columns(
    fields: &[Request],
    known: &[String],
    optional: bool,
    name: &str,
) -> Result<Vec<FieldColumn>> {
    let mut found = Vec::new();
    for (field, columns, unit) in fields {
        match columns.iter().find(|column| known.contains(column)) {
            Some(column) => found.push((field.clone(), column.clone(), unit.clone())),
            None if optional && !REQUIRED.contains(&field.as_str()) => {}
            None => {
                let expected = match known.is_empty() {
                    true => "a table with columns".to_owned(),
                    false => format!("one of {}", known.join(", ")),
                };
                let columns = columns.join("` or `");
                let message = format!("{name}: no column `{columns}` for `{field}`; expected {expected}");
                return Err(Error::input_about(field, message));
            }
        }
    }
    Ok(found)
}

/// The fields that each table has.
const REQUIRED: [&str; 3] = ["src", "dst", "bytes"];

/// The fields that have a value in each row, if the table has them.
const WITHOUT_DEFAULT: [&str; 5] = ["start", "src", "dst", "bytes", "coflow"];

fn read_arrow(
    batches: &[RecordBatch],
    schema: &Schema,
    fields: &[FieldColumn],
    name: &str,
) -> Result<FrameText> {
    let position = |field: &FieldColumn| schema.index_of(&field.1).expect("the column was selected");
    let positions: Vec<usize> = fields.iter().map(position).collect();
    let units = fields.iter().zip(&positions).map(|(field, &position)| unit_of(field, schema, position));
    let units = units.collect::<Result<Vec<_>>>()?;
    let mut writer = TextWriter::new(name, fields);
    for batch in batches {
        let columns = positions.iter().map(|&position| batch.column(position));
        let texts = columns.zip(fields).map(|(column, field)| as_text(column, &field.1));
        let texts = texts.collect::<Result<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            writer.write_row(texts.iter().map(|text| value(text, row)))?;
        }
    }
    writer.finish(&units)
}

/// The unit of a column: that of its type, or the requested one.
fn unit_of(field: &FieldColumn, schema: &Schema, position: usize) -> Result<Option<String>> {
    let (_, column, unit) = field;
    let of_type = match schema.field(position).data_type() {
        DataType::Timestamp(unit, _) | DataType::Duration(unit) => match unit {
            TimeUnit::Second => "s",
            TimeUnit::Millisecond => "ms",
            TimeUnit::Microsecond => "us",
            TimeUnit::Nanosecond => "ns",
        },
        _ => return Ok(unit.clone()),
    };
    match unit {
        None => Ok(Some(of_type.to_owned())),
        Some(unit) => {
            Err(Error::parameter(column, unit, "no unit for a column of times, whose type has one"))
        }
    }
}

/// A column as text. Times are numbers in the unit of their type.
fn as_text(column: &ArrayRef, name: &str) -> Result<StringArray> {
    let wrong = |error: &dyn std::fmt::Display| {
        Error::parameter(name, column.data_type(), format_args!("text, numbers or times ({error})"))
    };
    let numbers = match column.data_type() {
        DataType::Boolean => return Err(wrong(&"truth values")),
        data_type if data_type.is_nested() => return Err(wrong(&"several values in a row")),
        // As numbers in lists: whole ones without a point, so that hosts are the same ports in every kind of frame.
        data_type if data_type.is_floating() => {
            let numbers = cast(column, &DataType::Float64).map_err(|error| wrong(&error))?;
            let numbers = numbers.as_primitive::<Float64Type>();
            return Ok(numbers.iter().map(|number| number.map(|number| number.to_string())).collect());
        }
        DataType::Timestamp(..) | DataType::Duration(_) => cast(column, &DataType::Int64),
        _ => Ok(ArrayRef::clone(column)),
    };
    let text = numbers.and_then(|numbers| cast(&numbers, &DataType::Utf8)).map_err(|error| wrong(&error))?;
    Ok(text.as_string::<i32>().clone())
}

fn value(column: &StringArray, row: usize) -> &str {
    match column.is_null(row) {
        true => "",
        false => column.value(row),
    }
}

fn read_lists(lists: &Bound<'_, PyDict>, fields: &[FieldColumn], name: &str) -> Result<FrameText> {
    let list = |column: &str| -> Result<Vec<String>> {
        let missing = || Error::parameter(column, "missing", "a column that stays in the dictionary");
        let values = lists.get_item(column)?.ok_or_else(missing)?;
        if values.is_instance_of::<PyString>() || values.try_iter().is_err() {
            return Err(type_error(column, &values, "a list with a value for each row"));
        }
        let values = (1..).zip(values.try_iter()?);
        values.map(|(row, value)| list_value((name, row, column), &value?)).collect()
    };
    let columns = fields.iter().map(|field| list(&field.1)).collect::<Result<Vec<_>>>()?;
    let rows = columns.first().map_or(0, Vec::len);
    if let Some((field, column)) = fields.iter().zip(&columns).find(|(_, column)| column.len() != rows) {
        let expected = format!("{rows} values, as in column `{}`", fields[0].1);
        return Err(Error::parameter(&field.1, format_args!("{} values", column.len()), expected));
    }
    let mut writer = TextWriter::new(name, fields);
    for row in 0..rows {
        writer.write_row(columns.iter().map(|column| column[row].as_str()))?;
    }
    let units: Vec<Option<String>> = fields.iter().map(|field| field.2.clone()).collect();
    writer.finish(&units)
}

/// A value of a list as text: a text, a number, or none. Errors name the table, the row from 1, and the column.
fn list_value((name, row, column): (&str, usize, &str), value: &Bound<'_, PyAny>) -> Result<String> {
    let wrong = || {
        let text = value.str().map_or_else(|_| "an object without text".to_owned(), |text| text.to_string());
        Error::field(name, row, column, text, "text or a number")
    };
    if value.is_none() {
        return Ok(String::new());
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_str()?.to_owned());
    }
    if value.is_instance_of::<PyBool>() {
        return Err(wrong());
    }
    // Whole numbers of other packages too, without rounding.
    if let Ok(number) = value.call_method0("__index__") {
        return Ok(number.to_string());
    }
    let number: f64 = match value.is_instance_of::<PyFloat>() || value.hasattr("__float__")? {
        true => value.extract().map_err(|_| wrong())?,
        false => return Err(wrong()),
    };
    Ok(if number.is_nan() { String::new() } else { number.to_string() })
}

/// Writes CSV.
struct TextWriter<'a> {
    name: &'a str,
    fields: &'a [FieldColumn],
    text: Vec<u8>,
    row: usize,
}

impl<'a> TextWriter<'a> {
    fn new(name: &'a str, fields: &'a [FieldColumn]) -> TextWriter<'a> {
        TextWriter { name, fields, text: Vec::new(), row: 0 }
    }

    fn write_row<'v>(&mut self, values: impl Iterator<Item = &'v str>) -> Result<()> {
        self.row += 1;
        for (position, (value, field)) in values.zip(self.fields).enumerate() {
            if value.contains('\n') {
                return Err(self.error(&field.0, value, "text on one line"));
            }
            // pandas and others have NaN in place of missing numbers.
            let value = if value == "NaN" { "" } else { value };
            if value.is_empty() && WITHOUT_DEFAULT.contains(&field.0.as_str()) {
                let expected = format!("a value in each row of column `{}`", field.1);
                return Err(self.error(&field.0, "missing value", &expected));
            }
            let separator = if position == 0 { "\"" } else { ",\"" };
            write!(self.text, "{separator}{}\"", value.replace('"', "\"\""))
                .expect("a vector can be written");
        }
        self.text.push(b'\n');
        Ok(())
    }

    fn error(&self, field: &str, value: &str, expected: &str) -> Error {
        Error::field(self.name, self.row, field, value, expected)
    }

    /// The text, whose columns have these units.
    fn finish(self, units: &[Option<String>]) -> Result<FrameText> {
        let column = |(number, ((field, ..), unit)): (usize, (&FieldColumn, &Option<String>))| {
            let unit = unit.as_ref().map(|unit| format!(":{unit}")).unwrap_or_default();
            format!("{field}={number}{unit}")
        };
        let columns = (1..).zip(self.fields.iter().zip(units)).map(column).collect::<Vec<_>>().join(",");
        let columns = columns.parse().map_err(|error: weir_trace::import::ColumnsError| {
            Error::parameter("columns", error.value, error.expected)
        })?;
        if self.row == 0 {
            return Err(self.error("flows", "no rows", "a flow in each row"));
        }
        Ok(FrameText { text: self.text, columns })
    }
}
