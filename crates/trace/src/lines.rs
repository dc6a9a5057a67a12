//! Reads numbered lines of bounded length from a file, and splits lines into fields.

use std::fmt;
use std::io::{BufRead, Read};
use std::str::SplitAsciiWhitespace;
use weir_fields::{FileError, format_value};

use crate::bounds::Limits;

/// The value that an error shows for a missing field of a line.
pub(crate) const END_OF_LINE: &str = "end of line";

/// The value that an error shows for a missing line of a file.
const END_OF_FILE: &str = "end of file";

/// The lines of an input, one at a time.
pub(crate) struct LineReader<'n, R> {
    input: R,
    file: &'n str,
    max_line_bytes: usize,
    line_number: usize,
    buffer: Vec<u8>,
    is_peeked: bool,
}

/// A line without its terminator and trailing white space.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    pub(crate) file: &'a str,
    pub(crate) number: usize,
    pub(crate) text: &'a str,
}

/// The fields of a line from left to right, separated by white space.
#[derive(Clone)]
pub(crate) struct LineFields<'a> {
    pub(crate) line: Line<'a>,
    tokens: SplitAsciiWhitespace<'a>,
}

impl<'n, R: BufRead> LineReader<'n, R> {
    pub(crate) fn new(input: R, file: &'n str, limits: &Limits) -> LineReader<'n, R> {
        let max_line_bytes = limits.max_line_bytes;
        LineReader { input, file, max_line_bytes, line_number: 0, buffer: Vec::new(), is_peeked: false }
    }

    /// Returns the next line without consuming it.
    pub(crate) fn peek(&mut self) -> Result<Option<Line<'_>>, FileError> {
        if !self.is_peeked {
            self.read_line()?;
            self.is_peeked = true;
        }
        self.current_line()
    }

    /// Consumes and returns the next line; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Line<'_>>, FileError> {
        if !self.is_peeked {
            self.read_line()?;
        }
        self.is_peeked = false;
        self.current_line()
    }

    /// Consumes lines that begin with `#`.
    pub(crate) fn skip_comments(&mut self) -> Result<(), FileError> {
        while self.peek()?.is_some_and(|line| line.is_comment()) {
            self.next()?;
        }
        Ok(())
    }

    /// Consumes and returns the next line that is neither blank nor a comment; `None` at the end.
    pub(crate) fn next_content(&mut self) -> Result<Option<Line<'_>>, FileError> {
        while self.peek()?.is_some_and(|line| line.text.is_empty() || line.is_comment()) {
            self.next()?;
        }
        self.next()
    }

    /// The error for a file that ends before `field`.
    pub(crate) fn end_of_file_error(
        &self,
        field: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> FileError {
        self.end_of_input().error(field, END_OF_FILE, expected)
    }

    /// A line that represents the end of the input.
    pub(crate) fn end_of_input(&self) -> Line<'_> {
        Line { file: self.file, number: self.line_number.max(1), text: "" }
    }

    /// An error at an earlier line.
    pub(crate) fn error_at(
        &self,
        number: usize,
        field: impl fmt::Display,
        value: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> FileError {
        Line { file: self.file, number, text: "" }.error(field, value, expected)
    }

    /// Reads a line into the buffer. An empty buffer means the end of the input.
    fn read_line(&mut self) -> Result<(), FileError> {
        self.buffer.clear();
        self.line_number += 1;
        // Reading one byte more than allowed distinguishes a line that is too long from the longest valid one.
        let max_bytes = (self.max_line_bytes as u64).saturating_add(1);
        let read = (&mut self.input).take(max_bytes).read_until(b'\n', &mut self.buffer);
        if let Err(source) = read {
            return Err(FileError::Io { file: self.file.to_owned(), source });
        }
        if self.buffer.len() > self.max_line_bytes {
            let start = String::from_utf8_lossy(&self.buffer[..self.buffer.len().min(16)]).into_owned();
            let expected = format!("a line of at most {} bytes", self.max_line_bytes);
            self.buffer.clear();
            return Err(self.error_at(self.line_number, "line", format!("{start}…"), expected));
        }
        Ok(())
    }

    fn current_line(&self) -> Result<Option<Line<'_>>, FileError> {
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let line = Line { file: self.file, number: self.line_number, text: "" };
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(Some(Line { text: text.trim_ascii_end(), ..line })),
            Err(_) => {
                let start = &self.buffer[..self.buffer.len().min(256)];
                Err(line.error("line", String::from_utf8_lossy(start).trim_end(), "UTF-8 text"))
            }
        }
    }
}

impl<'a> Line<'a> {
    /// Whether the line begins with `#`.
    pub(crate) fn is_comment(&self) -> bool {
        self.text.starts_with('#')
    }

    /// An error on this line.
    pub(crate) fn error(
        &self,
        field: impl fmt::Display,
        value: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> FileError {
        FileError::Field {
            file: self.file.to_owned(),
            line: self.number,
            field: field.to_string(),
            value: format_value(&value.to_string()),
            expected: expected.to_string(),
        }
    }

    pub(crate) fn fields(self) -> LineFields<'a> {
        LineFields { line: self, tokens: self.text.split_ascii_whitespace() }
    }
}

impl<'a> LineFields<'a> {
    /// The next field, which is required.
    pub(crate) fn required(
        &mut self,
        field: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Result<&'a str, FileError> {
        self.tokens.next().ok_or_else(|| self.line.error(field, END_OF_LINE, expected))
    }

    /// The next field, if any.
    pub(crate) fn optional(&mut self) -> Option<&'a str> {
        self.tokens.next()
    }

    /// Checks that no field remains.
    pub(crate) fn finish(mut self) -> Result<(), FileError> {
        match self.tokens.next() {
            None => Ok(()),
            Some(extra) => Err(self.line.error("after the last field", extra, END_OF_LINE)),
        }
    }
}
