//! Reads keys of a TOML table, each at most once, with errors that name the line and the field.

use std::fmt::Display;
use std::io::Read;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};
use weir_core::suggestion::{did_you_mean, nearest};
use weir_core::units::{Bytes, Rate, Time, UnitError};

use crate::error::FileError;
use crate::file_kind::FileKind;
use crate::input::{SourceText, parse_toml, read_text};

/// A value and its key.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    key: &'a str,
    value: &'a Spanned<DeValue<'a>>,
}

/// The keys of one table.
#[derive(Debug, Clone)]
pub struct TableFields<'a> {
    source: SourceText<'a>,
    /// The prefix of keys in errors: empty, or such as `link 3 `.
    key_prefix: String,
    /// The byte at which the table begins.
    start_byte: usize,
    table: &'a DeTable<'a>,
    read_keys: Vec<&'static str>,
}

impl<'a> TableFields<'a> {
    /// The keys of a table that begins at byte `start_byte` of the source. Errors put `key_prefix` before a key.
    pub fn new(
        source: SourceText<'a>,
        key_prefix: String,
        start_byte: usize,
        table: &'a DeTable<'a>,
    ) -> TableFields<'a> {
        TableFields { source, key_prefix, start_byte, table, read_keys: Vec::new() }
    }

    /// The value of a required key.
    ///
    /// # Errors
    /// If the key is missing.
    pub fn required(&mut self, key: &'static str, expected: &str) -> Result<Value<'a>, FileError> {
        if let Some(value) = self.optional(key) {
            return Ok(value);
        }
        // A key that is similar and that the caller has not read is probably misspelled.
        let unread = self.table.keys().filter(|found| !self.read_keys.contains(&found.get_ref().as_ref()));
        let names: Vec<&str> = unread.map(|found| found.get_ref().as_ref()).collect();
        let hint = nearest(key, names).map_or_else(String::new, |found| {
            let byte_offset = self.table.get(found).map_or(0, |value| value.span().start);
            let line = self.source.line(byte_offset);
            format!("; help: line {line} has `{found}`: did you mean `{key}`?")
        });
        Err(self.key_error(key, "nothing", &format!("{expected}{hint}")))
    }

    /// The value of an optional key.
    pub fn optional(&mut self, key: &'static str) -> Option<Value<'a>> {
        self.read_keys.push(key);
        self.table.get(key).map(|value| Value { key, value })
    }

    /// Whether the table has this key.
    pub fn has_key(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Checks that the caller has read all keys.
    ///
    /// # Errors
    /// For the first key that the caller has not read.
    pub fn finish(&self) -> Result<(), FileError> {
        let unknown = |key: &&Spanned<DeString<'_>>| !self.read_keys.contains(&key.get_ref().as_ref());
        let first_unknown = self.table.keys().filter(unknown).min_by_key(|key| key.span().start);
        first_unknown.map_or(Ok(()), |key| {
            let hint = did_you_mean(key.get_ref(), self.read_keys.iter().copied());
            let expected = format!("one of {}{hint}", self.read_keys.join(", "));
            let field = format!("{}key", self.key_prefix);
            Err(self.source.error(key.span().start, &field, key.get_ref(), &expected))
        })
    }

    /// The error for an invalid value.
    pub fn value_error(&self, value: &Value<'_>, expected: &str) -> FileError {
        self.source.error_at_range(value.value.span(), &format!("{}{}", self.key_prefix, value.key), expected)
    }

    /// The error for `value` of a key, at the key's position or, if the key is missing, at the table's.
    pub fn key_error(&self, key: &str, value: &str, expected: &str) -> FileError {
        let byte_offset = self.table.get(key).map_or(self.start_byte, |found| found.span().start);
        self.source.error(byte_offset, &format!("{}{key}", self.key_prefix), value, expected)
    }

    /// The value as a string.
    ///
    /// # Errors
    /// If it is not a string.
    pub fn read_string(&self, value: &Value<'a>, expected: &str) -> Result<&'a str, FileError> {
        value.value.get_ref().as_str().ok_or_else(|| self.value_error(value, expected))
    }

    /// The result of reading a file that the value names. If the file cannot be read, the error names the value's line, too.
    ///
    /// # Errors
    /// Those of `result`.
    pub fn referenced<T>(&self, value: &Value<'_>, result: Result<T, FileError>) -> Result<T, FileError> {
        result.map_err(|error| match error {
            FileError::Io { .. } => self.value_error(value, &format!("a file that can be read ({error})")),
            other => other,
        })
    }

    /// The value as an integer from 0 to 2^32 - 1.
    ///
    /// # Errors
    /// If it is not such an integer.
    pub fn read_u32(&self, value: &Value<'_>, expected: &str) -> Result<u32, FileError> {
        let integer = value.value.get_ref().as_integer();
        let parsed = integer.and_then(|integer| u32::from_str_radix(integer.as_str(), integer.radix()).ok());
        parsed.ok_or_else(|| self.value_error(value, expected))
    }

    /// The value as `true` or `false`.
    ///
    /// # Errors
    /// If it is not a boolean.
    pub fn read_bool(&self, value: &Value<'_>) -> Result<bool, FileError> {
        value.value.get_ref().as_bool().ok_or_else(|| self.value_error(value, "true or false"))
    }

    /// The values of a list.
    ///
    /// # Errors
    /// If it is not a list.
    pub fn read_list(&self, value: &Value<'a>, expected: &str) -> Result<Vec<Value<'a>>, FileError> {
        let array = value.value.get_ref().as_array().ok_or_else(|| self.value_error(value, expected))?;
        Ok(array.iter().map(|item| Value { key: value.key, value: item }).collect())
    }

    /// The value as a table. Errors put `key_prefix` before its keys.
    ///
    /// # Errors
    /// If it is not a table.
    pub fn read_table(&self, value: &Value<'a>, key_prefix: String) -> Result<TableFields<'a>, FileError> {
        let table = value.value.get_ref().as_table().ok_or_else(|| self.value_error(value, "a table"))?;
        Ok(TableFields::new(self.source, key_prefix, value.value.span().start, table))
    }

    /// The value as a table inside this one. Errors put this table's prefix and `key_prefix` before its keys.
    ///
    /// # Errors
    /// If it is not a table.
    pub fn read_nested_table(
        &self,
        value: &Value<'a>,
        key_prefix: &str,
    ) -> Result<TableFields<'a>, FileError> {
        self.read_table(value, format!("{}{key_prefix}", self.key_prefix))
    }

    /// Keys and values of a table whose keys are names, in the order of the file.
    pub fn entries(&self) -> Vec<(&'a str, Value<'a>)> {
        let mut keys: Vec<_> = self.table.iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        let each = keys.into_iter().map(|(key, value)| (key.get_ref().as_ref(), value));
        each.map(|(key, value)| (key, Value { key, value })).collect()
    }

    /// Keys and tables of a table of tables, in the order of the file.
    ///
    /// # Errors
    /// If it is not a table of tables.
    pub fn read_tables(
        &self,
        value: &Value<'a>,
        key_prefix: impl Fn(&str) -> String,
    ) -> Result<Vec<(&'a str, TableFields<'a>)>, FileError> {
        const TABLES: &str = "a table of tables";
        let table = value.value.get_ref().as_table().ok_or_else(|| self.value_error(value, TABLES))?;
        let mut keys: Vec<_> = table.iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        let each = keys.into_iter().map(|(key, value)| {
            let name = key.get_ref().as_ref();
            let fields = self.read_table(&Value { key: "table", value }, key_prefix(name))?;
            Ok((name, TableFields { start_byte: key.span().start, ..fields }))
        });
        each.collect()
    }

    /// The value of a required key as an integer from 0 to 2^32 - 1.
    ///
    /// # Errors
    /// If the key is missing or the value is not such an integer.
    pub fn required_u32(&mut self, key: &'static str) -> Result<u32, FileError> {
        const COUNT: &str = "a whole number from 0 to 4294967295";
        let value = self.required(key, COUNT)?;
        self.read_u32(&value, COUNT)
    }

    /// The value of a required key as a number.
    ///
    /// # Errors
    /// If the key is missing or the value is not a number.
    pub fn required_number(&mut self, key: &'static str) -> Result<f64, FileError> {
        let value = self.required(key, NUMBER)?;
        self.read_number(&value)
    }

    /// The value as a number, integer or not.
    ///
    /// # Errors
    /// If it is not a number.
    pub fn read_number(&self, value: &Value<'_>) -> Result<f64, FileError> {
        if let Some(float) = value.value.get_ref().as_float() {
            return f64::from_str(float.as_str()).map_err(|_| self.value_error(value, NUMBER));
        }
        let integer = value.value.get_ref().as_integer();
        let whole = integer.and_then(|integer| i64::from_str_radix(integer.as_str(), integer.radix()).ok());
        whole.map(|whole| whole as f64).ok_or_else(|| self.value_error(value, NUMBER))
    }

    /// The value of a required key as a rate with a unit.
    ///
    /// # Errors
    /// If the key is missing or the value is not a rate.
    pub fn required_rate(&mut self, key: &'static str) -> Result<Rate, FileError> {
        let value = self.required(key, RATE)?;
        self.read_rate(&value)
    }

    /// The value as a rate with a unit.
    ///
    /// # Errors
    /// If it is not a rate.
    pub fn read_rate(&self, value: &Value<'a>) -> Result<Rate, FileError> {
        self.read_string(value, RATE)?
            .parse()
            .map_err(|error: UnitError| self.value_error(value, error.expected))
    }

    /// The value as a size with a unit.
    ///
    /// # Errors
    /// If it is not a size.
    pub fn read_bytes(&self, value: &Value<'a>) -> Result<Bytes, FileError> {
        self.read_string(value, BYTES)?
            .parse()
            .map_err(|error: UnitError| self.value_error(value, error.expected))
    }

    /// The value as a time with a unit.
    ///
    /// # Errors
    /// If it is not a time.
    pub fn read_time(&self, value: &Value<'a>) -> Result<Time, FileError> {
        self.read_string(value, TIME)?
            .parse()
            .map_err(|error: UnitError| self.value_error(value, error.expected))
    }

    /// Whether the value is a list.
    pub fn is_list(value: &Value<'_>) -> bool {
        value.value.get_ref().is_array()
    }

    /// Whether the value is a table.
    pub fn is_table(value: &Value<'_>) -> bool {
        value.value.get_ref().is_table()
    }
}

const NUMBER: &str = "a number such as 2 or 1.5";
const RATE: &str = "a rate with a unit such as \"10Gbit\"";
const BYTES: &str = "a size with a unit such as \"4MiB\"";
const TIME: &str = "a time with a unit such as \"5s\"";

/// The keys of a file of a kind, whose first key must have the value `version`.
///
/// # Errors
/// If the key is missing or has another value.
pub fn versioned_fields<'a>(
    source: SourceText<'a>,
    table: &'a DeTable<'a>,
    kind: FileKind,
    version: u32,
) -> Result<TableFields<'a>, FileError> {
    let key = kind.key();
    let mut fields = TableFields::new(source, String::new(), 0, table);
    let version_value = fields.required(key, &format!("the format's version, `{key} = {version}`"))?;
    if fields.read_u32(&version_value, "the version")? != version {
        return Err(fields.value_error(&version_value, &format!("version {version}")));
    }
    Ok(fields)
}

/// Reads a file of at most `max_bytes`, of a kind and a version, and passes its keys to `read`.
///
/// # Errors
/// If the file is too long, not UTF-8, not TOML, or of another kind or version; and the errors of `read`.
pub fn read_versioned<R: Read, T>(
    input: R,
    file: &str,
    max_bytes: usize,
    (kind, version): (FileKind, u32),
    read: impl FnOnce(TableFields<'_>) -> Result<T, FileError>,
) -> Result<T, FileError> {
    let text = read_text(input, file, max_bytes)?;
    FileKind::check(text.as_bytes(), file, &[kind], kind.noun())?;
    let source = SourceText { file, text: &text };
    let table = parse_toml(source)?;
    read(versioned_fields(source, table.get_ref(), kind, version)?)
}

/// What a message expects, for the error of a field: `EXPECTED (PROBLEM); help: ...` for `PROBLEM; expected EXPECTED; help: ...`.
pub fn expectation(message: impl Display) -> String {
    let message = message.to_string();
    let Some((problem, rest)) = message.split_once("; expected ") else { return message };
    match rest.split_once("; help: ") {
        Some((expected, help)) => format!("{expected} ({problem}); help: {help}"),
        None => format!("{rest} ({problem})"),
    }
}

/// A name as a TOML string. The name must not contain control characters.
pub fn to_toml_string(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}
