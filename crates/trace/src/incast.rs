//! Reads incast measurements from the CSV of `weir testbed incast`.
//!
//! `docs/incast-format.md` is the reference. A reader returns [`Measured`], or a [`TraceError`] that names the line, the
//! field, the value and the expected value.

use std::fmt;
use std::io::{BufReader, Read};
use std::path::Path;

use weir_core::model::{Incast, IncastError, IncastRun};

use crate::bounds::Limits;
use crate::error::TraceError;
use crate::fields;
use crate::lines::{END_OF_LINE, Line, Lines};
use crate::number::{decimal, whole};

/// The maximum number of runs in a file.
pub const MAX_RUNS: usize = 100_000;

/// The maximum length of a line, in bytes.
const MAX_LINE_BYTES: usize = 1 << 10;

/// The columns, in the required order.
const COLUMNS: [&str; 10] = [
    "buffer_packets",
    "connections",
    "bytes",
    "congestion",
    "marks_packets",
    "run",
    "loss",
    "goodput_bit_per_s",
    "mean_s",
    "last_s",
];

/// The expected value in errors about names of congestion controls.
pub const CONGESTION: &str = "a name of up to 15 letters and digits, such as cubic";

/// Whether `name` is a valid name of a congestion control for the kernel.
pub fn is_congestion(name: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=15).contains(&name.len()) && name.chars().all(letters)
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The model of incast.
    pub incast: Incast,
    /// The senders' congestion control, by its name in the kernel.
    pub congestion: String,
    /// The queue length from which the switch marks packets, in packets; none if it does not mark.
    pub marks: Option<u32>,
}

impl fmt::Display for Measured {
    /// As text: `reno, with marks from 20 packets on`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.congestion)?;
        match self.marks {
            Some(packets) => write!(f, ", with marks from {packets} packets on"),
            None => Ok(()),
        }
    }
}

/// Reads the measurements at `path`; `-` is the standard input.
///
/// # Errors
/// [`TraceError::Io`] if the file cannot be read; [`TraceError::Field`] for the first invalid field, or for a missing
/// combination of buffer and connections.
pub fn read(path: &Path) -> Result<Measured, TraceError> {
    fields::open(path, |input, name| read_from(input, name))
}

/// Reads measurements from `input`, which errors call `name`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: Read>(input: R, name: &str) -> Result<Measured, TraceError> {
    let limits = Limits { max_flows: MAX_RUNS, max_line_bytes: MAX_LINE_BYTES };
    let mut lines = Lines::new(BufReader::new(input), name, &limits);
    let head = COLUMNS.join(",");
    match lines.next()? {
        Some(line) if line.text == head => {}
        Some(line) => return Err(line.error("columns", line.text, head)),
        None => return Err(lines.ended("columns", head)),
    }
    let mut runs = Vec::new();
    let mut tcp: Option<(String, Option<u32>)> = None;
    // Errors rely on run `i` being on line `i + 2`.
    while let Some(line) = lines.next()? {
        if runs.len() == MAX_RUNS {
            return Err(line.error("line", line.text, format_args!("at most {MAX_RUNS} runs")));
        }
        runs.push(run(line, &mut tcp)?);
    }
    let incast = Incast::new(&runs).map_err(|error| {
        let value = |place: usize, what: &str| match what {
            "buffer" => (COLUMNS[0], runs[place].buffer.to_string()),
            "connections" => (COLUMNS[1], runs[place].connections.to_string()),
            "bytes" => (COLUMNS[2], runs[place].bytes.to_string()),
            "loss" => (COLUMNS[6], runs[place].loss.to_string()),
            _ => (COLUMNS[7], (runs[place].goodput * 8.0).to_string()),
        };
        match error {
            IncastError::Empty => lines.ended("run", "at least one"),
            IncastError::Bounds { run, what } => {
                let (field, value) = value(run, what);
                lines.error_at(run + 2, field, value, bounds(what))
            }
            IncastError::Bytes(run) => {
                let expected = format!("{}, as in all lines before", runs[0].bytes);
                lines.error_at(run + 2, COLUMNS[2], runs[run].bytes, expected)
            }
            IncastError::Missing { buffer, connections } => {
                let expected = "each buffer with each number of connections";
                let kind = format!("no run with a buffer of {buffer} and {connections} connections");
                lines.end().error("run", kind, expected)
            }
        }
    })?;
    let (congestion, marks) =
        tcp.expect("`Incast::new` refuses an empty list, and every run sets the congestion control");
    Ok(Measured { incast, congestion, marks })
}

/// The expected range of a number.
fn bounds(what: &str) -> String {
    match what {
        "buffer" => format!("1 to {} packets", Incast::MAX_PACKETS),
        "connections" => format!("1 to {}", Incast::MAX_CONNECTIONS),
        "bytes" => "1 to 1e15 bytes".to_owned(),
        "loss" => "a number from 0 up to, but not including, 1".to_owned(),
        _ => "8e-6 to 8e15 bits per second".to_owned(),
    }
}

/// Parses a run. The first run determines the congestion control and marks of all.
fn run(line: Line<'_>, tcp: &mut Option<(String, Option<u32>)>) -> Result<IncastRun, TraceError> {
    let mut cells = line.text.split(',');
    let mut next =
        |field: &'static str| cells.next().ok_or_else(|| line.error(field, END_OF_LINE, "a value"));
    let count =
        |field, text: &str| whole::<u32>(text).ok_or_else(|| line.error(field, text, "a whole number"));
    let number =
        |field, text: &str| decimal(text).ok_or_else(|| line.error(field, text, "a number of zero or more"));
    let [buffer, connections, bytes, congestion, marks, run, loss, goodput, mean, last] = COLUMNS;
    let first = IncastRun {
        buffer: count(buffer, next(buffer)?)?,
        connections: count(connections, next(connections)?)?,
        bytes: number(bytes, next(bytes)?)?,
        loss: 0.0,
        goodput: 0.0,
    };
    let (name, threshold) = (next(congestion)?, next(marks)?);
    if !is_congestion(name) {
        return Err(line.error(congestion, name, CONGESTION));
    }
    let packets = if threshold.is_empty() {
        None
    } else {
        let packets = count(marks, threshold)?;
        if !(1..=Incast::MAX_PACKETS).contains(&packets) {
            return Err(line.error(marks, threshold, bounds("buffer")));
        }
        Some(packets)
    };
    let (all, from) = tcp.get_or_insert_with(|| (name.to_owned(), packets));
    if all != name {
        return Err(line.error(congestion, name, format_args!("{all}, as in all lines before")));
    }
    if *from != packets {
        let expected = from.map_or_else(|| "nothing".to_owned(), |packets| packets.to_string());
        return Err(line.error(marks, threshold, format_args!("{expected}, as in all lines before")));
    }
    count(run, next(run)?)?;
    let read = IncastRun {
        loss: number(loss, next(loss)?)?,
        goodput: number(goodput, next(goodput)?)? / 8.0,
        ..first
    };
    // Only validated: both columns follow from the times of single connections.
    number(mean, next(mean)?)?;
    number(last, next(last)?)?;
    match cells.next() {
        None => Ok(read),
        Some(extra) => Err(line.error("after the last field", extra, END_OF_LINE)),
    }
}
