//! What can be wrong with a trace that is read, and with a workload that is to be written.

use std::io;

use weir_core::model::WorkloadError;

/// Why a trace was not read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened or read.
    #[error("{file}: cannot be read: {source}")]
    Io {
        /// The name that it was asked for by.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// Something in it is not what it has to be.
    #[error("{file}:{line}: field `{field}`: `{value}`: expected {expected}")]
    Field {
        /// The name that it was asked for by.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What was being read there; `mapper 3` is the third of its line.
        field: String,
        /// What was found, shortened and with control characters escaped.
        value: String,
        /// What would have been right.
        expected: String,
    },
}

/// Why a workload was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output did not take it.
    #[error("the trace cannot be written: {0}")]
    Io(#[from] io::Error),
    /// It does not hold together.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The format has no way to say it.
    #[error("{place} cannot be written in this format: {what}")]
    Inexpressible {
        /// `coflow 7`, `event 3` or `the trace`.
        place: String,
        /// What it is that cannot be said.
        what: String,
    },
}

/// `value` as an error shows it: of bounded length, and on one line.
pub(crate) fn shown(value: &str) -> String {
    const LONGEST: usize = 60;
    let mut out = String::new();
    for (position, c) in value.chars().enumerate() {
        if position == LONGEST {
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
