//! Prints the events of a coordinator: `weir ctl events`.

use std::io::{self, BufRead, BufReader, Read, Write};

use serde_json::{Value, json};
use weir_client::Coordinator;
use weir_console::failure::Failure;
use weir_console::record::{self, Record};

use crate::args::Format;

/// The fields of an event.
const COLUMNS: [&str; 3] = ["event", "subject", "service"];

/// The maximum length of a line of the stream.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Prints events until the coordinator ends the stream, or `count` events have been printed.
pub fn follow(coordinator: &Coordinator, format: Format, count: Option<u64>) -> Result<(), Failure> {
    let mut stream = BufReader::new(coordinator.get_stream("/v1/events", None)?);
    let mut stdout = io::stdout().lock();
    if format == Format::Csv {
        writeln!(stdout, "{}", COLUMNS.join(","))?;
    }
    let mut printed = 0;
    while count.is_none_or(|count| printed < count) {
        let event = next_event(&mut stream)?;
        match format {
            Format::Json => writeln!(stdout, "{event}")?,
            Format::Csv => write!(stdout, "{}", csv_line(&event))?,
            Format::Table => {
                let fields = COLUMNS.iter().filter_map(|column| event[*column].as_str());
                writeln!(stdout, "{}", fields.collect::<Vec<_>>().join(" "))?;
            }
        }
        stdout.flush()?;
        printed += 1;
    }
    Ok(())
}

/// A line of CSV, without the heading.
fn csv_line(event: &Value) -> String {
    let mut record = Record::default();
    for column in COLUMNS {
        record.add(column, event[column].clone());
    }
    let text = record::csv(&[record]);
    text.split_inclusive('\n').skip(1).collect()
}

/// Reads until the next event. A client that is too slow receives the number of events that it missed.
fn next_event(stream: &mut impl BufRead) -> Result<Value, Failure> {
    let mut has_missed = false;
    loop {
        let mut line = String::new();
        let failed = |error: io::Error| Failure::runtime(format_args!("/v1/events: {error}"));
        let length = stream.take(MAX_LINE_BYTES).read_line(&mut line).map_err(failed)?;
        if length == 0 {
            return Err(Failure::runtime("the coordinator has ended the events"));
        }
        // Other lines are empty, or comments that keep an idle stream open.
        match line.trim_end().split_once(':').map(|(field, value)| (field, value.trim_start())) {
            Some(("event", name)) => has_missed = name == "missed",
            Some(("data", number)) if has_missed => {
                return Ok(json!({ "event": "missed", "subject": number }));
            }
            Some(("data", data)) => {
                let event = serde_json::from_str(data);
                return event.map_err(|error| failed(io::Error::other(error)));
            }
            _ => {}
        }
    }
}
