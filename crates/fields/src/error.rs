//! Errors of reading files.

use std::io;

/// An error while reading a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file could not be opened or read.
    #[error("{file}: cannot be read: {source}")]
    Io {
        /// The path, or the name that the caller gave.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The file has another kind than its option expects.
    #[error("{file}: this is {found}; expected {expected}; help: {usage}")]
    WrongKind {
        /// The path, or the name that the caller gave.
        file: String,
        /// The kind of the file.
        found: &'static str,
        /// The expected kind.
        expected: &'static str,
        /// How to use the file.
        usage: &'static str,
    },
    /// A field has an invalid value.
    #[error("{file}:{line}: field `{field}`: `{value}`: expected {expected}")]
    Field {
        /// The path, or the name that the caller gave.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The field; `mapper 3` is the third mapper of the line.
        field: String,
        /// The value, shortened and with control characters escaped.
        value: String,
        /// The expected value.
        expected: String,
    },
}

/// `value` for an error message: at most 60 characters, on one line.
pub fn format_value(value: &str) -> String {
    const MAX_CHARS: usize = 60;
    let mut out = String::new();
    for (position, c) in value.chars().enumerate() {
        if position == MAX_CHARS {
            out.push('…');
            break;
        }
        if c.is_control() || c == '\u{feff}' {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}
