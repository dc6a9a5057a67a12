//! Writes trace events: the Trace Event Format of Chrome as JSON, which Perfetto and chrome://tracing display.
//!
//! Times are in seconds, and rates in bytes per second; the file has microseconds and Gbit/s.

use std::io::{self, Write};

use serde_json::{Value, json};

/// A track. Groups of tracks are processes of the format, and tracks are their threads.
#[derive(Debug, Clone, Copy)]
pub struct Track {
    /// The number of the group.
    pub group: u32,
    /// The number in the group.
    pub number: usize,
}

/// Writes events, and keeps the first error until the end.
pub struct EventWriter<W> {
    out: W,
    is_empty: bool,
    result: io::Result<()>,
}

impl<W: Write> EventWriter<W> {
    /// A writer of one file.
    pub fn new(out: W) -> EventWriter<W> {
        EventWriter { out, is_empty: true, result: Ok(()) }
    }

    fn write(&mut self, event: &Value) {
        if self.result.is_ok() {
            let start = if self.is_empty { "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" } else { ",\n" };
            self.result = write!(self.out, "{start}{event}");
            self.is_empty = false;
        }
    }

    /// Whether all writes so far succeeded.
    pub fn is_ok(&self) -> bool {
        self.result.is_ok()
    }

    /// Names a group. Groups are displayed in the order of their numbers.
    pub fn name_group(&mut self, group: u32, name: &str) {
        self.write(&json!({ "ph": "M", "name": "process_name", "pid": group, "args": { "name": name } }));
        self.write(&json!({ "ph": "M", "name": "process_sort_index", "pid": group, "args": { "sort_index": group } }));
    }

    /// Names a track.
    pub fn name_track(&mut self, Track { group, number }: Track, name: &str) {
        let args = json!({ "name": name });
        self.write(&json!({ "ph": "M", "name": "thread_name", "pid": group, "tid": number, "args": args }));
    }

    /// Writes a slice of a track, with facts about it. Slices inside another one are displayed below it.
    pub fn slice(&mut self, track: Track, name: &str, [from, to]: [f64; 2], facts: &Value) {
        let Track { group, number } = track;
        // The difference of rounded times: with a rounded length, a slice could end after the next one starts.
        let length = (nanos(to) - nanos(from)) / 1e3;
        self.write(&json!({
            "ph": "X", "name": name, "pid": group, "tid": number, "ts": micros(from), "dur": length, "args": facts,
        }));
    }

    /// Writes an instant of a track.
    pub fn instant(&mut self, Track { group, number }: Track, name: &str, at: f64) {
        self.write(
            &json!({ "ph": "i", "s": "t", "name": name, "pid": group, "tid": number, "ts": micros(at) }),
        );
    }

    /// Writes a rate from `at` on.
    pub fn rate(&mut self, group: u32, name: &str, at: f64, rate: f64) {
        let args = json!({ "Gbit/s": rate * 8e-9 });
        self.write(&json!({ "ph": "C", "name": name, "pid": group, "ts": micros(at), "args": args }));
    }

    /// Writes the end of the file, which has at least one event.
    ///
    /// # Errors
    /// The first error in writing.
    pub fn finish(mut self) -> io::Result<()> {
        self.result?;
        self.out.write_all(b"\n]}\n")
    }
}

/// Seconds in whole nanoseconds.
fn nanos(seconds: f64) -> f64 {
    (seconds * 1e9).round()
}

/// Seconds in microseconds, to the nanosecond.
fn micros(seconds: f64) -> f64 {
    nanos(seconds) / 1e3
}
