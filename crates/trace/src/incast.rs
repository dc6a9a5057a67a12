//! Reads incast measurements from the CSV of `weir testbed incast`.
//!
//! `docs/incast-format.md` is the reference. A reader returns [`IncastMeasurements`], or a [`FileError`] that names the
//! line, the field, the value and the expected value.

use std::fmt;
use std::io::{BufReader, Read};
use std::path::Path;

use weir_core::model::{Incast, IncastError, IncastRun};
use weir_fields::congestion_control::{EXPECTED_CONGESTION_CONTROL, is_congestion_control_name};
use weir_fields::{FileError, FileKind};

use crate::bounds::Limits;
use crate::lines::{END_OF_LINE, Line, LineReader};
use crate::number::{parse_decimal, parse_integer};

/// The maximum number of runs in a file.
pub const MAX_RUNS: usize = 100_000;

/// The maximum length of a line, in bytes.
const MAX_LINE_BYTES: usize = 1 << 10;

/// The required columns, in the required order. [`STARTS_COLUMN`] may follow.
const COLUMNS: [&str; 10] = [
    FileKind::Incast.key(),
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

/// The optional last column.
const STARTS_COLUMN: &str = "starts";

/// The values of [`STARTS_COLUMN`]: all connections start together, or are steady.
const STARTS: [&str; 2] = ["together", "steady"];

/// The content of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct IncastMeasurements {
    /// The model of incast.
    pub incast: Incast,
    /// The senders' congestion control, by its name in the kernel.
    pub congestion_control: String,
    /// The queue length from which the switch marks packets, in packets; none if it does not mark.
    pub marking_threshold_packets: Option<u32>,
    /// Whether connections are steady: a constant number of connections with different start times. If false, all connections of a
    /// run start together.
    pub is_steady: bool,
}

/// The settings that all runs of a file share, as far as lines have been read.
#[derive(Debug, Default)]
struct SharedSettings {
    /// The congestion control, and the queue length from which the switch marks packets.
    tcp: Option<(String, Option<u32>)>,
    is_steady: Option<bool>,
}

impl fmt::Display for IncastMeasurements {
    /// As text: `reno, with marks from 20 packets on`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.congestion_control)?;
        if let Some(packets) = self.marking_threshold_packets {
            write!(f, ", with marks from {packets} packets on")?;
        }
        if self.is_steady { f.write_str(", steady connections") } else { Ok(()) }
    }
}

/// Reads the measurements at `path`; `-` is the standard input.
///
/// # Errors
/// [`FileError::Io`] if the file cannot be read; [`FileError::Field`] for the first invalid field, or for a missing
/// combination of buffer and connections.
pub fn read(path: &Path) -> Result<IncastMeasurements, FileError> {
    FileKind::check_file(path, &[FileKind::Incast], "incast measurements")?;
    weir_fields::read_file(path, |input, name| read_from(input, name))
}

/// Reads measurements from `input`, which errors call `name`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: Read>(input: R, name: &str) -> Result<IncastMeasurements, FileError> {
    let limits = Limits { max_flows: MAX_RUNS, max_line_bytes: MAX_LINE_BYTES, ..Limits::default() };
    let mut lines = LineReader::new(BufReader::new(input), name, &limits);
    let header = COLUMNS.join(",");
    let mut has_starts = false;
    match lines.next()? {
        Some(line) if line.text == header => {}
        Some(line) if line.text.strip_prefix(&header) == Some(",starts") => has_starts = true,
        Some(line) => return Err(line.error("columns", line.text, header)),
        None => return Err(lines.end_of_file_error("columns", header)),
    }
    let mut runs = Vec::new();
    let mut shared = SharedSettings::default();
    // Errors rely on run `i` being on line `i + 2`.
    while let Some(line) = lines.next()? {
        if runs.len() == MAX_RUNS {
            return Err(line.error("line", line.text, format_args!("at most {MAX_RUNS} runs")));
        }
        runs.push(parse_run(line, has_starts, &mut shared)?);
    }
    let incast = Incast::new(&runs).map_err(|error| {
        let field_and_value = |run_index: usize, what: &str| match what {
            "buffer" => (COLUMNS[0], runs[run_index].buffer.to_string()),
            "connections" => (COLUMNS[1], runs[run_index].connections.to_string()),
            "bytes" => (COLUMNS[2], runs[run_index].bytes.to_string()),
            "loss" => (COLUMNS[6], runs[run_index].loss.to_string()),
            _ => (COLUMNS[7], (runs[run_index].goodput * 8.0).to_string()),
        };
        match error {
            IncastError::NoRuns => lines.end_of_file_error("run", "at least one"),
            IncastError::OutOfBounds { run, field: what } => {
                let (field, value) = field_and_value(run, what);
                lines.error_at(run + 2, field, value, expected_range(what))
            }
            IncastError::UnequalBytes(run) => {
                let expected = format!("{}, as in all lines before", runs[0].bytes);
                lines.error_at(run + 2, COLUMNS[2], runs[run].bytes, expected)
            }
            IncastError::MissingRuns { buffer, connections } => {
                let expected = "each buffer with each number of connections";
                let missing = format!("no run with a buffer of {buffer} and {connections} connections");
                lines.end_of_input().error("run", missing, expected)
            }
        }
    })?;
    let (congestion_control, marking_threshold_packets) =
        shared.tcp.expect("`Incast::new` refuses an empty list, and every run sets the congestion control");
    let is_steady = shared.is_steady.unwrap_or(false);
    Ok(IncastMeasurements { incast, congestion_control, marking_threshold_packets, is_steady })
}

/// The expected range of a number.
fn expected_range(parameter: &str) -> String {
    match parameter {
        "buffer" => format!("1 to {} packets", Incast::MAX_PACKETS),
        "connections" => format!("1 to {}", Incast::MAX_CONNECTIONS),
        "bytes" => "1 to 1e15 bytes".to_owned(),
        "loss" => "a number from 0 up to, but not including, 1".to_owned(),
        _ => "8e-6 to 8e15 bits per second".to_owned(),
    }
}

/// Parses a run. The first run determines the settings that all runs share.
fn parse_run(line: Line<'_>, has_starts: bool, shared: &mut SharedSettings) -> Result<IncastRun, FileError> {
    let mut cells = line.text.split(',');
    let mut next_cell =
        |field: &'static str| cells.next().ok_or_else(|| line.error(field, END_OF_LINE, "a value"));
    let parse_count = |field, text: &str| {
        parse_integer::<u32>(text).ok_or_else(|| line.error(field, text, "a whole number"))
    };
    let parse_number = |field, text: &str| {
        parse_decimal(text).ok_or_else(|| line.error(field, text, "a number of zero or more"))
    };
    let [buffer, connections, bytes, congestion, marks, run, loss, goodput, mean, last] = COLUMNS;
    let first = IncastRun {
        buffer: parse_count(buffer, next_cell(buffer)?)?,
        connections: parse_count(connections, next_cell(connections)?)?,
        bytes: parse_number(bytes, next_cell(bytes)?)?,
        loss: 0.0,
        goodput: 0.0,
    };
    let (name, threshold) = (next_cell(congestion)?, next_cell(marks)?);
    check_tcp_settings(&line, name, threshold, &mut shared.tcp)?;
    parse_count(run, next_cell(run)?)?;
    let read = IncastRun {
        loss: parse_number(loss, next_cell(loss)?)?,
        goodput: parse_number(goodput, next_cell(goodput)?)? / 8.0,
        ..first
    };
    // Only validated: both columns follow from the times of single connections. Of steady connections, possibly none completed.
    let times = [(mean, next_cell(mean)?), (last, next_cell(last)?)];
    let is_steady = has_starts && parse_starts(&line, next_cell(STARTS_COLUMN)?, &mut shared.is_steady)?;
    for (field, text) in times {
        if !(is_steady && text.is_empty()) {
            parse_number(field, text)?;
        }
    }
    match cells.next() {
        None => Ok(read),
        Some(extra) => Err(line.error("after the last field", extra, END_OF_LINE)),
    }
}

/// Checks the congestion control and the marking threshold of a run, which are those of the first run.
fn check_tcp_settings(
    line: &Line<'_>,
    name: &str,
    threshold: &str,
    shared: &mut Option<(String, Option<u32>)>,
) -> Result<(), FileError> {
    let [.., congestion, marks, _, _, _, _, _] = COLUMNS;
    if !is_congestion_control_name(name) {
        return Err(line.error(congestion, name, EXPECTED_CONGESTION_CONTROL));
    }
    let packets = if threshold.is_empty() {
        None
    } else {
        let packets =
            parse_integer::<u32>(threshold).ok_or_else(|| line.error(marks, threshold, "a whole number"))?;
        if !(1..=Incast::MAX_PACKETS).contains(&packets) {
            return Err(line.error(marks, threshold, expected_range("buffer")));
        }
        Some(packets)
    };
    let (expected_name, expected_packets) = shared.get_or_insert_with(|| (name.to_owned(), packets));
    if expected_name != name {
        return Err(line.error(congestion, name, format_args!("{expected_name}, as in all lines before")));
    }
    if *expected_packets != packets {
        let expected = expected_packets.map_or_else(|| "nothing".to_owned(), |packets| packets.to_string());
        return Err(line.error(marks, threshold, format_args!("{expected}, as in all lines before")));
    }
    Ok(())
}

/// Parses how the connections of a run start, which is as in the first run. Returns whether they are steady.
fn parse_starts(line: &Line<'_>, text: &str, shared: &mut Option<bool>) -> Result<bool, FileError> {
    let [together, steady] = STARTS;
    if !STARTS.contains(&text) {
        return Err(line.error(STARTS_COLUMN, text, format_args!("{together} or {steady}")));
    }
    let is_steady = text == steady;
    if *shared.get_or_insert(is_steady) != is_steady {
        let expected = if is_steady { together } else { steady };
        return Err(line.error(STARTS_COLUMN, text, format_args!("{expected}, as in all lines before")));
    }
    Ok(is_steady)
}
