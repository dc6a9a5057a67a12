//! Reads files and the standard input as text or TOML.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{FileError, format_value};

/// The text of a file.
#[derive(Debug, Clone, Copy)]
pub struct SourceText<'a> {
    /// The file's name in errors.
    pub file: &'a str,
    /// The complete text.
    pub text: &'a str,
}

impl SourceText<'_> {
    /// The line of byte `byte_offset`, from 1.
    pub(crate) fn line(&self, byte_offset: usize) -> usize {
        1 + self.text.as_bytes().iter().take(byte_offset).filter(|&&byte| byte == b'\n').count()
    }

    /// An error at byte `byte_offset` of the text.
    pub fn error(&self, byte_offset: usize, field: &str, value: &str, expected: &str) -> FileError {
        FileError::Field {
            file: self.file.to_owned(),
            line: self.line(byte_offset),
            field: field.to_owned(),
            value: format_value(value),
            expected: expected.to_owned(),
        }
    }

    /// An error at a range of the text, whose content it shows as the value.
    pub fn error_at_range(&self, range: Range<usize>, field: &str, expected: &str) -> FileError {
        self.error(range.start, field, self.text.get(range).unwrap_or_default(), expected)
    }
}

/// Opens the file at `path` and calls `read` with its content and its name for errors; `-` is the standard input.
///
/// # Errors
/// [`FileError::Io`] if the file cannot be opened, and the errors of `read`.
pub fn read_file<T>(
    path: &Path,
    read: impl FnOnce(&mut dyn Read, &str) -> Result<T, FileError>,
) -> Result<T, FileError> {
    if path == Path::new("-") {
        return read(&mut io::stdin().lock(), "standard input");
    }
    let name = path.display().to_string();
    match File::open(path) {
        Ok(mut file) => read(&mut file, &name),
        Err(source) => Err(FileError::Io { file: name, source }),
    }
}

/// Opens a file that can name other files: as [`read_file`], and passes the folder of the file to `read`.
///
/// # Errors
/// As for [`read_file`].
pub fn read_file_in_folder<T>(
    path: &Path,
    read: impl FnOnce(&mut dyn Read, &str, &Path) -> Result<T, FileError>,
) -> Result<T, FileError> {
    // For the standard input, file names are relative to the working directory.
    let folder = if path == Path::new("-") { None } else { path.parent() };
    read_file(path, |input, name| read(input, name, folder.unwrap_or(Path::new(""))))
}

/// The keys of TOML files that name other files.
const FILE_NAME_KEYS: [&str; 2] = ["fabric", "sensitivity"];

/// The maximum length of a file that is searched for names of other files, in bytes. No reader of such files accepts a
/// longer file.
const MAX_REFERRING_FILE_BYTES: usize = 16 << 20;

/// The files that a TOML file names, in any of the formats; none if it is not TOML.
pub fn referenced_files(path: &Path) -> Vec<PathBuf> {
    let read = |input: &mut dyn Read, name: &str, folder: &Path| {
        let text = read_text(input, name, MAX_REFERRING_FILE_BYTES)?;
        let table = parse_toml(SourceText { file: name, text: &text })?;
        let mut found = Vec::new();
        collect_referenced_files(table.get_ref(), folder, &mut found);
        Ok(found)
    };
    // Only regular files: a pipe can be read once, by its actual reader.
    let is_regular_file = std::fs::metadata(path).is_ok_and(|file| file.is_file());
    if is_regular_file { read_file_in_folder(path, read).unwrap_or_default() } else { Vec::new() }
}

fn collect_referenced_files(table: &DeTable<'_>, folder: &Path, found: &mut Vec<PathBuf>) {
    for (key, value) in table {
        match value.get_ref() {
            DeValue::String(name) if FILE_NAME_KEYS.contains(&key.get_ref().as_ref()) => {
                found.push(folder.join(name.as_ref()));
            }
            DeValue::Table(inner) => collect_referenced_files(inner, folder, found),
            _ => {}
        }
    }
}

/// Reads a file of at most `max_bytes` bytes.
///
/// # Errors
/// If the file is longer, cannot be read, or is not UTF-8.
pub fn read_text<R: Read>(input: R, file: &str, max_bytes: usize) -> Result<String, FileError> {
    let mut bytes = Vec::new();
    let read = input.take(max_bytes as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|source| FileError::Io { file: file.to_owned(), source })?;
    if bytes.len() > max_bytes {
        let source = SourceText { file, text: "" };
        return Err(source.error(0, "file", "longer file", &format!("at most {max_bytes} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid_bytes = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(&error.as_bytes()[..valid_bytes]);
        SourceText { file, text: &text }.error(valid_bytes, "text", "a byte that is not UTF-8", "UTF-8")
    })
}

/// Parses TOML.
///
/// # Errors
/// If the text is not valid TOML.
pub fn parse_toml<'a>(source: SourceText<'a>) -> Result<Spanned<DeTable<'a>>, FileError> {
    DeTable::parse(source.text).map_err(|error| {
        let byte_offset = error.span().map_or(0, |span| span.start);
        let line = source.text.get(byte_offset..).and_then(|rest| rest.lines().next()).unwrap_or("");
        let expected = match error.message().split_once(", expected ") {
            Some((problem, expected)) => format!("{expected} ({problem})"),
            None => format!("valid TOML ({})", error.message()),
        };
        source.error(byte_offset, "TOML", line, &expected)
    })
}
