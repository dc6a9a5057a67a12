//! Keys of a TOML table, each taken once, and errors that say where they are.
//!
//! Every file in TOML that Weir reads is read by these, so that all are refused in the same words.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};
use weir_core::units::{Bytes, Rate, Time, UnitError};

use crate::error::{TraceError, shown};

/// A file.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// What errors call it.
    pub file: &'a str,
    /// All of it.
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at a byte of the text.
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

    /// An error at a place, which shows what stands there.
    pub fn here(&self, at: Range<usize>, field: &str, expected: &str) -> TraceError {
        self.error(at.start, field, self.text.get(at).unwrap_or_default(), expected)
    }
}

/// A value, and the key that it was found under.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    key: &'a str,
    value: &'a Spanned<DeValue<'a>>,
}

/// The keys of one table.
#[derive(Debug)]
pub struct Fields<'a> {
    source: Source<'a>,
    /// What errors put before a key: nothing, or `link 3 `.
    place: String,
    /// Where the table begins.
    at: usize,
    table: &'a DeTable<'a>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// Those of a table that begins at a byte of the source; errors put `place` before a key.
    pub fn new(source: Source<'a>, place: String, at: usize, table: &'a DeTable<'a>) -> Fields<'a> {
        Fields { source, place, at, table, known: Vec::new() }
    }

    /// The value of a key that has to be there.
    ///
    /// # Errors
    /// If it is not there.
    pub fn need(&mut self, key: &'static str, expected: &str) -> Result<Value<'a>, TraceError> {
        self.maybe(key).ok_or_else(|| self.wrong_at(key, "nothing", expected))
    }

    /// The value of a key that may be there.
    pub fn maybe(&mut self, key: &'static str) -> Option<Value<'a>> {
        self.known.push(key);
        self.table.get(key).map(|value| Value { key, value })
    }

    /// Whether there is such a key.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Whether all keys were asked for.
    ///
    /// # Errors
    /// The first that nobody asked for.
    pub fn finish(&self) -> Result<(), TraceError> {
        let unknown = |key: &&Spanned<DeString<'_>>| !self.known.contains(&key.get_ref().as_ref());
        let first = self.table.keys().filter(unknown).min_by_key(|key| key.span().start);
        first.map_or(Ok(()), |key| {
            let expected = format!("one of {}", self.known.join(", "));
            let field = format!("{}key", self.place);
            Err(self.source.error(key.span().start, &field, key.get_ref(), &expected))
        })
    }

    /// The error for a value that is not what it should be.
    pub fn wrong(&self, value: &Value<'_>, expected: &str) -> TraceError {
        self.source.here(value.value.span(), &format!("{}{}", self.place, value.key), expected)
    }

    /// The error for a key's value, or where it should be.
    pub fn wrong_at(&self, key: &str, value: &str, expected: &str) -> TraceError {
        let at = self.table.get(key).map_or(self.at, |found| found.span().start);
        self.source.error(at, &format!("{}{key}", self.place), value, expected)
    }

    /// A text.
    ///
    /// # Errors
    /// Anything else.
    pub fn text(&self, value: &Value<'a>, expected: &str) -> Result<&'a str, TraceError> {
        value.value.get_ref().as_str().ok_or_else(|| self.wrong(value, expected))
    }

    /// A whole number that is not negative.
    ///
    /// # Errors
    /// Anything else, which should have been `what`.
    pub fn whole(&self, value: &Value<'_>, what: &str) -> Result<u32, TraceError> {
        let integer = value.value.get_ref().as_integer();
        let whole = integer.and_then(|integer| u32::from_str_radix(integer.as_str(), integer.radix()).ok());
        whole.ok_or_else(|| self.wrong(value, what))
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// Anything else.
    pub fn truth(&self, value: &Value<'_>) -> Result<bool, TraceError> {
        value.value.get_ref().as_bool().ok_or_else(|| self.wrong(value, "true or false"))
    }

    /// The values of a list.
    ///
    /// # Errors
    /// Anything else.
    pub fn list(&self, value: &Value<'a>, expected: &str) -> Result<Vec<Value<'a>>, TraceError> {
        let array = value.value.get_ref().as_array().ok_or_else(|| self.wrong(value, expected))?;
        Ok(array.iter().map(|item| Value { key: value.key, value: item }).collect())
    }

    /// The keys of a table, before which errors put `place`.
    ///
    /// # Errors
    /// Anything else.
    pub fn table(&self, value: &Value<'a>, place: String) -> Result<Fields<'a>, TraceError> {
        let table = value.value.get_ref().as_table().ok_or_else(|| self.wrong(value, "a table"))?;
        Ok(Fields::new(self.source, place, value.value.span().start, table))
    }

    /// The keys of a table inside this one, before which errors put this one's place and `place`.
    ///
    /// # Errors
    /// Anything else.
    pub fn nested(&self, value: &Value<'a>, place: &str) -> Result<Fields<'a>, TraceError> {
        self.table(value, format!("{}{place}", self.place))
    }

    /// The values of a table whose keys are names, in the order of the file.
    pub fn named(&self) -> Vec<(&'a str, Value<'a>)> {
        let mut keys: Vec<_> = self.table.iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        let each = keys.into_iter().map(|(key, value)| (key.get_ref().as_ref(), value));
        each.map(|(key, value)| (key, Value { key, value })).collect()
    }

    /// The tables of a table and their keys, in the order of the file.
    ///
    /// # Errors
    /// Anything else.
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

    /// A key's whole number.
    ///
    /// # Errors
    /// Anything else.
    pub fn count(&mut self, key: &'static str) -> Result<u32, TraceError> {
        const COUNT: &str = "a whole number from 0 to 4294967295";
        let value = self.need(key, COUNT)?;
        self.whole(&value, COUNT)
    }

    /// A key's number, with a fraction or without.
    ///
    /// # Errors
    /// Anything else.
    pub fn number(&mut self, key: &'static str) -> Result<f64, TraceError> {
        let value = self.need(key, NUMBER)?;
        self.float(&value)
    }

    /// A number, with a fraction or without.
    ///
    /// # Errors
    /// Anything else.
    pub fn float(&self, value: &Value<'_>) -> Result<f64, TraceError> {
        if let Some(float) = value.value.get_ref().as_float() {
            return f64::from_str(float.as_str()).map_err(|_| self.wrong(value, NUMBER));
        }
        let integer = value.value.get_ref().as_integer();
        let whole = integer.and_then(|integer| i64::from_str_radix(integer.as_str(), integer.radix()).ok());
        whole.map(|whole| whole as f64).ok_or_else(|| self.wrong(value, NUMBER))
    }

    /// A key's rate, with its unit.
    ///
    /// # Errors
    /// Anything else.
    pub fn rate(&mut self, key: &'static str) -> Result<Rate, TraceError> {
        let value = self.need(key, RATE)?;
        self.read_rate(&value)
    }

    /// A rate with its unit.
    ///
    /// # Errors
    /// Anything else.
    pub fn read_rate(&self, value: &Value<'a>) -> Result<Rate, TraceError> {
        self.text(value, RATE)?.parse().map_err(|error: UnitError| self.wrong(value, error.expected))
    }

    /// A size with its unit.
    ///
    /// # Errors
    /// Anything else.
    pub fn read_bytes(&self, value: &Value<'a>) -> Result<Bytes, TraceError> {
        self.text(value, BYTES)?.parse().map_err(|error: UnitError| self.wrong(value, error.expected))
    }

    /// A time with its unit.
    ///
    /// # Errors
    /// Anything else.
    pub fn read_time(&self, value: &Value<'a>) -> Result<Time, TraceError> {
        self.text(value, TIME)?.parse().map_err(|error: UnitError| self.wrong(value, error.expected))
    }

    /// A value's table, if it is one.
    pub fn is_table(value: &Value<'_>) -> bool {
        value.value.get_ref().is_table()
    }
}

const NUMBER: &str = "a number such as 2 or 1.5";
const RATE: &str = "a rate with a unit such as \"10Gbit\"";
const BYTES: &str = "a size with a unit such as \"4MiB\"";
const TIME: &str = "a time with a unit such as \"5s\"";

/// Reads the file at `path` by `read`, which is told what errors call it; `-` is the standard input.
///
/// # Errors
/// If there is none, or those of `read`.
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

/// As [`open`], for files that name others: `read` is told which folder these are looked for in.
///
/// # Errors
/// As [`open`].
pub fn open_in_folder<T>(
    path: &Path,
    read: impl FnOnce(&mut dyn Read, &str, &Path) -> Result<T, TraceError>,
) -> Result<T, TraceError> {
    // Beside the standard input is where the program runs.
    let folder = if path == Path::new("-") { None } else { path.parent() };
    open(path, |input, name| read(input, name, folder.unwrap_or(Path::new(""))))
}

/// The keys under which files in TOML name others.
const NAMES: [&str; 2] = ["fabric", "sensitivity"];

/// The longest file that is looked through for names of others, in bytes: no reader of these takes a longer one.
const MAX_NAMING_BYTES: usize = 16 << 20;

/// The files that a file in TOML names, by whichever format; none if it is something else.
pub fn named_files(path: &Path) -> Vec<PathBuf> {
    let read = |input: &mut dyn Read, name: &str, folder: &Path| {
        let text = read_text(input, name, MAX_NAMING_BYTES)?;
        let table = parse(Source { file: name, text: &text })?;
        let mut found = Vec::new();
        name_files(table.get_ref(), folder, &mut found);
        Ok(found)
    };
    // Pipes can be read only once, and are for their reader.
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

/// Reads all of a file of at most `most` bytes.
///
/// # Errors
/// If there are more, or they are no text.
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

/// The keys of a whole file, whose version has to be this one.
///
/// # Errors
/// If it is not.
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

/// The table that a file is.
///
/// # Errors
/// What TOML does not allow.
pub fn parse<'a>(source: Source<'a>) -> Result<Spanned<DeTable<'a>>, TraceError> {
    DeTable::parse(source.text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = source.text.get(at..).and_then(|rest| rest.lines().next()).unwrap_or("");
        source.error(at, "TOML", line, &format!("valid TOML: {}", error.message()))
    })
}
