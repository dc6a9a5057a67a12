//! Reads keys of a TOML table, each at most once, with errors that name the line and the field.
//!
//! All readers of TOML files except [`crate::sensitivity`] use these functions, so equal mistakes give equal messages.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};
use weir_core::units::{Bytes, Rate, Time, UnitError};

use crate::error::{TraceError, shown};

/// The text of a file.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The file's name in errors.
    pub file: &'a str,
    /// The complete text.
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at byte `at` of the text.
    pub fn error(&self, at: usize, field: &str, value: &str, expected: &str) -> TraceError {
        let before = self.text.as_bytes().iter().take(at);
        TraceError::Field {
            file: self.file.to_owned(),
            line: 1 + before.filter(|&&byte| byte == b'\n').count(),
            field: field.to_owned(),
            value: shown(value),
            expected: expected.to_owned(),
        }
    }

    /// An error at a range of the text, whose content it shows as the value.
    pub fn here(&self, at: Range<usize>, field: &str, expected: &str) -> TraceError {
        self.error(at.start, field, self.text.get(at).unwrap_or_default(), expected)
    }
}

/// A value and its key.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    key: &'a str,
    value: &'a Spanned<DeValue<'a>>,
}

/// The keys of one table.
#[derive(Debug)]
pub struct Fields<'a> {
    source: Source<'a>,
    /// The prefix of keys in errors: empty, or such as `link 3 `.
    place: String,
    /// The byte at which the table begins.
    at: usize,
    table: &'a DeTable<'a>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The keys of a table that begins at byte `at` of the source. Errors put `place` before a key.
    pub fn new(source: Source<'a>, place: String, at: usize, table: &'a DeTable<'a>) -> Fields<'a> {
        Fields { source, place, at, table, known: Vec::new() }
    }

    /// The value of a required key.
    ///
    /// # Errors
    /// If the key is missing.
    pub fn need(&mut self, key: &'static str, expected: &str) -> Result<Value<'a>, TraceError> {
        self.maybe(key).ok_or_else(|| self.wrong_at(key, "nothing", expected))
    }

    /// The value of an optional key.
    pub fn maybe(&mut self, key: &'static str) -> Option<Value<'a>> {
        self.known.push(key);
        self.table.get(key).map(|value| Value { key, value })
    }

    /// Whether the table has this key.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Checks that the caller has read all keys.
    ///
    /// # Errors
    /// For the first key that the caller has not read.
    pub fn finish(&self) -> Result<(), TraceError> {
        let unknown = |key: &&Spanned<DeString<'_>>| !self.known.contains(&key.get_ref().as_ref());
        let first = self.table.keys().filter(unknown).min_by_key(|key| key.span().start);
        first.map_or(Ok(()), |key| {
            let expected = format!("one of {}", self.known.join(", "));
            let field = format!("{}key", self.place);
            Err(self.source.error(key.span().start, &field, key.get_ref(), &expected))
        })
    }

    /// The error for an invalid value.
    pub fn wrong(&self, value: &Value<'_>, expected: &str) -> TraceError {
        self.source.here(value.value.span(), &format!("{}{}", self.place, value.key), expected)
    }

    /// The error for `value` of a key, at the key's position or, if the key is missing, at the table's.
    pub fn wrong_at(&self, key: &str, value: &str, expected: &str) -> TraceError {
        let at = self.table.get(key).map_or(self.at, |found| found.span().start);
        self.source.error(at, &format!("{}{key}", self.place), value, expected)
    }

    /// The value as a string.
    ///
    /// # Errors
    /// If it is not a string.
    pub fn text(&self, value: &Value<'a>, expected: &str) -> Result<&'a str, TraceError> {
        value.value.get_ref().as_str().ok_or_else(|| self.wrong(value, expected))
    }

    /// The value as an integer from 0 to 2^32 - 1.
    ///
    /// # Errors
    /// If it is not; the error expects `what`.
    pub fn whole(&self, value: &Value<'_>, what: &str) -> Result<u32, TraceError> {
        let integer = value.value.get_ref().as_integer();
        let whole = integer.and_then(|integer| u32::from_str_radix(integer.as_str(), integer.radix()).ok());
        whole.ok_or_else(|| self.wrong(value, what))
    }

    /// The value as `true` or `false`.
    ///
    /// # Errors
    /// If it is not a boolean.
    pub fn truth(&self, value: &Value<'_>) -> Result<bool, TraceError> {
        value.value.get_ref().as_bool().ok_or_else(|| self.wrong(value, "true or false"))
    }

    /// The values of a list.
    ///
    /// # Errors
    /// If it is not a list.
    pub fn list(&self, value: &Value<'a>, expected: &str) -> Result<Vec<Value<'a>>, TraceError> {
        let array = value.value.get_ref().as_array().ok_or_else(|| self.wrong(value, expected))?;
        Ok(array.iter().map(|item| Value { key: value.key, value: item }).collect())
    }

    /// The value as a table. Errors put `place` before its keys.
    ///
    /// # Errors
    /// If it is not a table.
    pub fn table(&self, value: &Value<'a>, place: String) -> Result<Fields<'a>, TraceError> {
        let table = value.value.get_ref().as_table().ok_or_else(|| self.wrong(value, "a table"))?;
        Ok(Fields::new(self.source, place, value.value.span().start, table))
    }

    /// The value as a table inside this one. Errors put this table's place and `place` before its keys.
    ///
    /// # Errors
    /// If it is not a table.
    pub fn nested(&self, value: &Value<'a>, place: &str) -> Result<Fields<'a>, TraceError> {
        self.table(value, format!("{}{place}", self.place))
    }

    /// Keys and values of a table whose keys are names, in the order of the file.
    pub fn named(&self) -> Vec<(&'a str, Value<'a>)> {
        let mut keys: Vec<_> = self.table.iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        let each = keys.into_iter().map(|(key, value)| (key.get_ref().as_ref(), value));
        each.map(|(key, value)| (key, Value { key, value })).collect()
    }

    /// Keys and tables of a table of tables, in the order of the file.
    ///
    /// # Errors
    /// If it is not a table of tables.
    pub fn tables(
        &self,
        value: &Value<'a>,
        place: impl Fn(&str) -> String,
    ) -> Result<Vec<(&'a str, Fields<'a>)>, TraceError> {
        const TABLES: &str = "a table of tables";
        let table = value.value.get_ref().as_table().ok_or_else(|| self.wrong(value, TABLES))?;
        let mut keys: Vec<_> = table.iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        let each = keys.into_iter().map(|(key, value)| {
            let name = key.get_ref().as_ref();
            let fields = self.table(&Value { key: "table", value }, place(name))?;
            Ok((name, Fields { at: key.span().start, ..fields }))
        });
        each.collect()
    }

    /// The value of a required key as an integer from 0 to 2^32 - 1.
    ///
    /// # Errors
    /// If the key is missing or the value is not such an integer.
    pub fn count(&mut self, key: &'static str) -> Result<u32, TraceError> {
        const COUNT: &str = "a whole number from 0 to 4294967295";
        let value = self.need(key, COUNT)?;
        self.whole(&value, COUNT)
    }

    /// The value of a required key as a number.
    ///
    /// # Errors
    /// If the key is missing or the value is not a number.
    pub fn number(&mut self, key: &'static str) -> Result<f64, TraceError> {
        let value = self.need(key, NUMBER)?;
        self.float(&value)
    }

    /// The value as a number, integer or not.
    ///
    /// # Errors
    /// If it is not a number.
    pub fn float(&self, value: &Value<'_>) -> Result<f64, TraceError> {
        if let Some(float) = value.value.get_ref().as_float() {
            return f64::from_str(float.as_str()).map_err(|_| self.wrong(value, NUMBER));
        }
        let integer = value.value.get_ref().as_integer();
        let whole = integer.and_then(|integer| i64::from_str_radix(integer.as_str(), integer.radix()).ok());
        whole.map(|whole| whole as f64).ok_or_else(|| self.wrong(value, NUMBER))
    }

    /// The value of a required key as a rate with a unit.
    ///
    /// # Errors
    /// If the key is missing or the value is not a rate.
    pub fn rate(&mut self, key: &'static str) -> Result<Rate, TraceError> {
        let value = self.need(key, RATE)?;
        self.read_rate(&value)
    }

    /// The value as a rate with a unit.
    ///
    /// # Errors
    /// If it is not a rate.
    pub fn read_rate(&self, value: &Value<'a>) -> Result<Rate, TraceError> {
        self.text(value, RATE)?.parse().map_err(|error: UnitError| self.wrong(value, error.expected))
    }

    /// The value as a size with a unit.
    ///
    /// # Errors
    /// If it is not a size.
    pub fn read_bytes(&self, value: &Value<'a>) -> Result<Bytes, TraceError> {
        self.text(value, BYTES)?.parse().map_err(|error: UnitError| self.wrong(value, error.expected))
    }

    /// The value as a time with a unit.
    ///
    /// # Errors
    /// If it is not a time.
    pub fn read_time(&self, value: &Value<'a>) -> Result<Time, TraceError> {
        self.text(value, TIME)?.parse().map_err(|error: UnitError| self.wrong(value, error.expected))
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

/// Opens the file at `path` and calls `read` with its content and its name for errors; `-` is the standard input.
///
/// # Errors
/// [`TraceError::Io`] if the file cannot be opened, and the errors of `read`.
pub fn open<T>(
    path: &Path,
    read: impl FnOnce(&mut dyn Read, &str) -> Result<T, TraceError>,
) -> Result<T, TraceError> {
    if path == Path::new("-") {
        return read(&mut io::stdin().lock(), "standard input");
    }
    let name = path.display().to_string();
    match File::open(path) {
        Ok(mut file) => read(&mut file, &name),
        Err(source) => Err(TraceError::Io { file: name, source }),
    }
}

/// Opens a file that can name other files: as [`open`], and passes the folder of the file to `read`.
///
/// # Errors
/// As for [`open`].
pub fn open_in_folder<T>(
    path: &Path,
    read: impl FnOnce(&mut dyn Read, &str, &Path) -> Result<T, TraceError>,
) -> Result<T, TraceError> {
    // For the standard input, file names are relative to the working directory.
    let folder = if path == Path::new("-") { None } else { path.parent() };
    open(path, |input, name| read(input, name, folder.unwrap_or(Path::new(""))))
}

/// The keys of TOML files that name other files.
const NAMES: [&str; 2] = ["fabric", "sensitivity"];

/// The maximum length of a file that is searched for names of others, in bytes: no reader of such files accepts a longer one.
const MAX_NAMING_BYTES: usize = 16 << 20;

/// The files that a TOML file names, in any of the formats; none if it is not TOML.
pub fn named_files(path: &Path) -> Vec<PathBuf> {
    let read = |input: &mut dyn Read, name: &str, folder: &Path| {
        let text = read_text(input, name, MAX_NAMING_BYTES)?;
        let table = parse(Source { file: name, text: &text })?;
        let mut found = Vec::new();
        name_files(table.get_ref(), folder, &mut found);
        Ok(found)
    };
    // Only regular files: a pipe can be read once, by its actual reader.
    let plain = std::fs::metadata(path).is_ok_and(|file| file.is_file());
    if plain { open_in_folder(path, read).unwrap_or_default() } else { Vec::new() }
}

fn name_files(table: &DeTable<'_>, folder: &Path, found: &mut Vec<PathBuf>) {
    for (key, value) in table {
        match value.get_ref() {
            DeValue::String(name) if NAMES.contains(&key.get_ref().as_ref()) => {
                found.push(folder.join(name.as_ref()));
            }
            DeValue::Table(inner) => name_files(inner, folder, found),
            _ => {}
        }
    }
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// If the file is longer, cannot be read, or is not UTF-8.
pub fn read_text<R: Read>(input: R, file: &str, most: usize) -> Result<String, TraceError> {
    let mut bytes = Vec::new();
    let read = input.take(most as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|source| TraceError::Io { file: file.to_owned(), source })?;
    if bytes.len() > most {
        let source = Source { file, text: "" };
        return Err(source.error(0, "file", "more than that", &format!("at most {most} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(&error.as_bytes()[..valid]);
        Source { file, text: &text }.error(valid, "text", "a byte that is not UTF-8", "UTF-8")
    })
}

/// The keys of a file, whose key `key` must have the value `version`.
///
/// # Errors
/// If the key is missing or has another value.
pub fn versioned<'a>(
    source: Source<'a>,
    table: &'a DeTable<'a>,
    key: &'static str,
    version: u32,
) -> Result<Fields<'a>, TraceError> {
    let mut fields = Fields::new(source, String::new(), 0, table);
    let found = fields.need(key, &format!("the format's version, `{key} = {version}`"))?;
    if fields.whole(&found, "the version")? != version {
        return Err(fields.wrong(&found, &format!("version {version}")));
    }
    Ok(fields)
}

/// Reads a file of at most `max_bytes` in which the key `magic` has the value `version`, and passes its keys to `read`.
///
/// # Errors
/// If the file is too long, not UTF-8, not TOML, or of another version; and the errors of `read`.
pub fn read_versioned<R: Read, T>(
    input: R,
    file: &str,
    max_bytes: usize,
    (magic, version): (&'static str, u32),
    read: impl FnOnce(Fields<'_>) -> Result<T, TraceError>,
) -> Result<T, TraceError> {
    let text = read_text(input, file, max_bytes)?;
    let source = Source { file, text: &text };
    let table = parse(source)?;
    read(versioned(source, table.get_ref(), magic, version)?)
}

/// Parses TOML.
///
/// # Errors
/// If the text is not valid TOML.
pub fn parse<'a>(source: Source<'a>) -> Result<Spanned<DeTable<'a>>, TraceError> {
    DeTable::parse(source.text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = source.text.get(at..).and_then(|rest| rest.lines().next()).unwrap_or("");
        source.error(at, "TOML", line, &format!("valid TOML: {}", error.message()))
    })
}
