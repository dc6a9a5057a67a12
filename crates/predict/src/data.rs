//! Reads measurements of incast: the fraction of packets that is lost with each buffer.
//!
//! The file is the output of `weir testbed incast --format csv`, one run a line (Algorithm 1, lines 1 to 4). The reader uses
//! the columns `buffer_packets`, `connections`, `bytes`, `loss` and, if present, `congestion` and `marks_packets`, in any
//! order, and ignores others. All runs must have the same size, congestion control and marking threshold, since the loss
//! depends on them as well as on the buffer. If the number of connections differs between runs, it is a second feature. Runs
//! without loss are then left out: connections that fit into one buffer fit into all larger ones, so such a run is one of any
//! of them.

use std::cmp::Ordering;
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use csv::StringRecord;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use weir_fields::congestion_control::{EXPECTED_CONGESTION_CONTROL, is_congestion_control_name};
use weir_fields::{FileError, FileKind, SourceText};

/// The maximum length of a file, in bytes.
pub const MAX_DATA_BYTES: usize = 4 << 20;

/// The maximum number of records. The time to train a machine grows with its square.
pub const MAX_RECORDS: usize = 2_000;

/// The maximum number of classes. Each pair of classes has a machine.
pub const MAX_CLASSES: usize = 16;

/// The maximum buffer, in packets: the maximum number of connections that a policy accepts.
pub const MAX_BUFFER: u32 = 65_536;

/// The fraction of packets that is lost, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Loss(f64);

/// A number or text that is not a [`Loss`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}`: expected {LOSS}")]
pub struct LossError {
    /// The number or text.
    pub value: String,
}

const LOSS: &str = "a fraction of the packets, from 0 to 1";

impl Loss {
    /// Creates a loss.
    ///
    /// # Errors
    /// If `value` is not from 0 to 1.
    pub fn new(value: f64) -> Result<Loss, LossError> {
        if (0.0..=1.0).contains(&value) {
            Ok(Loss(value))
        } else {
            Err(LossError { value: value.to_string() })
        }
    }

    /// The fraction.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl FromStr for Loss {
    type Err = LossError;

    fn from_str(text: &str) -> Result<Loss, LossError> {
        let value = text.parse().ok().and_then(|value| Loss::new(value).ok());
        value.ok_or_else(|| LossError { value: text.to_owned() })
    }
}

/// A run: the measured loss, and the buffer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record {
    /// The buffer, in packets: the class.
    pub buffer: u32,
    /// The loss: a feature.
    pub loss: Loss,
    /// The number of concurrent connections: a feature if it differs between runs.
    pub connections: u32,
}

impl Record {
    /// Orders records by buffer, then by loss and connections.
    pub(crate) fn compare(&self, other: &Record) -> Ordering {
        let by_loss = || self.loss.0.total_cmp(&other.loss.0);
        self.buffer.cmp(&other.buffer).then_with(by_loss).then(self.connections.cmp(&other.connections))
    }
}

/// The parameters that all runs share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conditions {
    /// Number of concurrent connections; none if it differs between runs.
    pub connections: Option<u32>,
    /// Bytes that each connection sent.
    pub bytes_per_connection: u32,
    /// The congestion control, by its name in the kernel; none if the file does not state it.
    pub congestion_control: Option<String>,
    /// The queue length from which the switch marked packets, in packets; none if it did not mark.
    pub marking_threshold_packets: Option<u32>,
}

/// Runs with the same parameters and at least two buffers. The order of the file has no effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Records {
    conditions: Conditions,
    /// Sorted by buffer, then by loss and connections.
    records: Vec<Record>,
    left_out: usize,
}

impl Records {
    /// The parameters that all runs share.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// The number of runs that are left out, since they have no loss and the number of connections differs between runs.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The runs, sorted by buffer, then by loss and connections.
    pub fn as_slice(&self) -> &[Record] {
        &self.records
    }

    /// The buffers, in ascending order.
    pub fn classes(&self) -> Vec<u32> {
        self.records.chunk_by(|a, b| a.buffer == b.buffer).map(|class| class[0].buffer).collect()
    }

    /// The runs at the buffers in `classes`, in a random order given by `seed`. Every prefix contains each class in
    /// proportion to its number of runs, so a prefix can train and the rest can test (Algorithm 1, line 6).
    pub fn shuffled(&self, classes: &[u32], seed: u32) -> Vec<Record> {
        let mut rng = ChaCha8Rng::seed_from_u64(u64::from(seed));
        let mut positioned = Vec::new();
        for class in self.records.chunk_by(|a, b| a.buffer == b.buffer) {
            let mut class = class.to_vec();
            class.shuffle(&mut rng);
            if classes.contains(&class[0].buffer) {
                let count = class.len() as f64;
                positioned
                    .extend((0..).zip(class).map(|(at, record)| ((f64::from(at) + 0.5) / count, record)));
            }
        }
        // A stable sort: of equal positions, the smaller buffer is first.
        positioned.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        positioned.into_iter().map(|(_, record)| record).collect()
    }
}

/// Reads the measurements at `path`; `-` is the standard input.
///
/// # Errors
/// [`FileError::Io`] if the file cannot be read; [`FileError::Field`] for the first invalid field, for too many or no
/// records, and if there are fewer than 2 or more than [`MAX_CLASSES`] buffers.
pub fn read(path: &Path) -> Result<Records, FileError> {
    FileKind::check_file(path, &[FileKind::Incast], "incast measurements")?;
    weir_fields::read_file(path, |input, name| read_from(input, name))
}

/// Reads measurements from `input`, which errors call `name`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: Read>(input: R, name: &str) -> Result<Records, FileError> {
    let text = weir_fields::read_text(input, name, MAX_DATA_BYTES)?;
    let source = SourceText { file: name, text: &text };
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| malformed_line_error(source, &error))?.clone();
    let columns = ColumnIndices::from_header(source, &header)?;
    let mut conditions: Option<Conditions> = None;
    let mut records = Vec::new();
    for line in reader.records() {
        let line = line.map_err(|error| malformed_line_error(source, &error))?;
        let byte_offset = line_start(source, line.position());
        if records.len() == MAX_RECORDS {
            return Err(source.error(
                byte_offset,
                "file",
                "more records",
                &format!("at most {MAX_RECORDS} records"),
            ));
        }
        let run = Row { source, byte_offset, line: &line };
        let connections = run.parse_integer(columns.connections, "connections", u32::MAX)?;
        let run_conditions = Conditions {
            connections: Some(connections),
            bytes_per_connection: run.parse_integer(columns.bytes, "bytes", u32::MAX)?,
            congestion_control: columns
                .congestion
                .map(|column| run.parse_congestion_control(column))
                .transpose()?,
            marking_threshold_packets: columns
                .marks
                .map_or(Ok(None), |column| run.parse_marking_threshold(column))?,
        };
        let first = conditions.get_or_insert_with(|| run_conditions.clone());
        let format_marks =
            |marks: Option<u32>| marks.map_or_else(|| "nothing".to_owned(), |marks| marks.to_string());
        run.check_same(
            columns.bytes,
            "bytes",
            &run_conditions.bytes_per_connection,
            &first.bytes_per_connection,
        )?;
        if let (Some(column), Some(own), Some(all)) =
            (columns.congestion, &run_conditions.congestion_control, &first.congestion_control)
        {
            run.check_same(column, "congestion", own, all)?;
        }
        if let Some(column) = columns.marks {
            run.check_same(
                column,
                "marks_packets",
                &format_marks(run_conditions.marking_threshold_packets),
                &format_marks(first.marking_threshold_packets),
            )?;
        }
        let buffer = run.parse_integer(columns.buffer, "buffer_packets", MAX_BUFFER)?;
        let loss = run.cell(columns.loss).parse().map_err(|_| run.cell_error(columns.loss, "loss", LOSS))?;
        records.push(Record { buffer, loss, connections });
    }
    let Some(conditions) = conditions else {
        return Err(source.error(text.len(), "file", "no records", "a line for each run"));
    };
    to_records(source, conditions, records)
}

/// Sorts the records. With several numbers of connections, leaves those without loss out. `conditions` are those of the first record.
fn to_records(
    source: SourceText<'_>,
    mut conditions: Conditions,
    mut records: Vec<Record>,
) -> Result<Records, FileError> {
    let (read_count, mut lines) = (records.len(), "all lines");
    if records.iter().any(|record| Some(record.connections) != conditions.connections) {
        lines = "the lines with loss";
        records.retain(|record| record.loss.0 > 0.0);
        let are_equal = records.windows(2).all(|pair| pair[0].connections == pair[1].connections);
        conditions.connections = records.first().filter(|_| are_equal).map(|record| record.connections);
    }
    records.sort_by(Record::compare);
    let records = Records { conditions, left_out: read_count - records.len(), records };
    let classes = records.classes().len();
    if !(2..=MAX_CLASSES).contains(&classes) {
        let (found, expected) =
            (format!("{classes} in {lines}"), format!("2 to {MAX_CLASSES} different buffers"));
        return Err(source.error(source.text.len(), "buffer_packets", &found, &expected));
    }
    Ok(records)
}

fn malformed_line_error(source: SourceText<'_>, error: &csv::Error) -> FileError {
    let at = line_start(source, error.position());
    source.error(at, "line", &error.to_string(), "as many cells as the first line has")
}

/// The byte at which a line begins. The CSV reader's position precedes line ends and blank lines before it.
fn line_start(source: SourceText<'_>, position: Option<&csv::Position>) -> usize {
    let at = position.map_or(0, |position| position.byte() as usize);
    let rest = source.text.as_bytes().iter().skip(at);
    at + rest.take_while(|byte| matches!(byte, b'\r' | b'\n')).count()
}

/// The indices of the columns.
struct ColumnIndices {
    buffer: usize,
    connections: usize,
    bytes: usize,
    /// Missing in older measurements.
    congestion: Option<usize>,
    marks: Option<usize>,
    loss: usize,
}

impl ColumnIndices {
    fn from_header(source: SourceText<'_>, header: &StringRecord) -> Result<ColumnIndices, FileError> {
        let index_of = |name: &str| {
            header.iter().position(|cell| cell == name).ok_or_else(|| {
                let found = header.iter().collect::<Vec<&str>>().join(",");
                source.error(0, "columns", &found, &format!("a column `{name}`"))
            })
        };
        Ok(ColumnIndices {
            buffer: index_of("buffer_packets")?,
            connections: index_of("connections")?,
            bytes: index_of("bytes")?,
            congestion: header.iter().position(|cell| cell == "congestion"),
            marks: header.iter().position(|cell| cell == "marks_packets"),
            loss: index_of("loss")?,
        })
    }
}

/// A line, and its position for errors.
struct Row<'a> {
    source: SourceText<'a>,
    byte_offset: usize,
    line: &'a StringRecord,
}

impl Row<'_> {
    fn cell(&self, column: usize) -> &str {
        self.line.get(column).expect("the CSV reader refuses lines with fewer cells than the first")
    }

    fn cell_error(&self, column: usize, field: &str, expected: &str) -> FileError {
        self.source.error(self.byte_offset, field, self.cell(column), expected)
    }

    /// An integer from 1 to `max`.
    fn parse_integer(&self, column: usize, field: &str, max: u32) -> Result<u32, FileError> {
        let value = self.cell(column).parse().ok().filter(|value| (1..=max).contains(value));
        value.ok_or_else(|| self.cell_error(column, field, &format!("a whole number from 1 to {max}")))
    }

    /// The name of a congestion control.
    fn parse_congestion_control(&self, column: usize) -> Result<String, FileError> {
        let name = self.cell(column);
        if is_congestion_control_name(name) {
            Ok(name.to_owned())
        } else {
            Err(self.cell_error(column, "congestion", EXPECTED_CONGESTION_CONTROL))
        }
    }

    /// The marking threshold, in packets; none for an empty cell.
    fn parse_marking_threshold(&self, column: usize) -> Result<Option<u32>, FileError> {
        match self.cell(column) {
            "" => Ok(None),
            _ => self.parse_integer(column, "marks_packets", MAX_BUFFER).map(Some),
        }
    }

    fn check_same<T: PartialEq + fmt::Display>(
        &self,
        column: usize,
        field: &str,
        value: &T,
        first: &T,
    ) -> Result<(), FileError> {
        if value == first {
            return Ok(());
        }
        Err(self.cell_error(
            column,
            field,
            &format!("{first}, as in the first line; runs are comparable only with equal parameters"),
        ))
    }
}
