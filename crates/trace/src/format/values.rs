//! Parses the fields of a line: `key=value` pairs and their values.

use std::fmt;
use std::str::FromStr;

use weir_core::model::{PortSide, ServiceNames};
use weir_core::units::{Bytes, Time, UnitError};
use weir_fields::FileError;

use crate::bounds::{MAX_BYTES, MAX_SECONDS};
use crate::file_time::FileTime;
use crate::lines::{END_OF_LINE, Line, LineFields};
use crate::number;

/// The `key=value` fields at the end of a line, each of the known keys at most once.
pub(super) struct KeyValueFields<'a> {
    fields: LineFields<'a>,
    known_keys: &'static [&'static str],
    seen_keys: Vec<&'a str>,
}

impl<'a> KeyValueFields<'a> {
    pub(super) fn new(fields: LineFields<'a>, known_keys: &'static [&'static str]) -> KeyValueFields<'a> {
        KeyValueFields { fields, known_keys, seen_keys: Vec::new() }
    }

    pub(super) fn next(&mut self) -> Result<Option<(&'a str, &'a str)>, FileError> {
        let Some(text) = self.fields.optional() else {
            return Ok(None);
        };
        let line = self.fields.line;
        let expected = || format!("`<key>=<value>` with a key of {}", self.known_keys.join(", "));
        let Some((key, value)) = text.split_once('=') else {
            return Err(line.error("key", text, expected()));
        };
        if !self.known_keys.contains(&key) {
            return Err(line.error("key", key, expected()));
        }
        if self.seen_keys.contains(&key) {
            return Err(line.error(key, value, format!("`{key}` once")));
        }
        self.seen_keys.push(key);
        Ok(Some((key, value)))
    }

    /// The values of all known keys, in their order; all are required.
    pub(super) fn required_values<const N: usize>(mut self) -> Result<[&'a str; N], FileError> {
        let mut values = [None; N];
        while let Some((key, value)) = self.next()? {
            let position = self.known_keys.iter().position(|known| *known == key);
            if let Some(slot) = position.and_then(|p| values.get_mut(p)) {
                *slot = Some(value);
            }
        }
        let mut all = [""; N];
        for ((slot, value), key) in all.iter_mut().zip(values).zip(self.known_keys) {
            let line = self.fields.line;
            *slot = value.ok_or_else(|| line.error(key, END_OF_LINE, format!("`{key}=...`")))?;
        }
        Ok(all)
    }
}

/// The optional release at the end of a `flow` or `shuffle` line.
pub(super) fn parse_release(fields: LineFields<'_>) -> Result<Time, FileError> {
    let line = fields.line;
    let mut keys = KeyValueFields::new(fields, &["release"]);
    let mut release = Time::ZERO;
    while let Some((key, value)) = keys.next()? {
        release = parse_time(line, key, value)?;
    }
    Ok(release)
}

pub(super) fn parse_integer<N: FromStr>(
    line: Line<'_>,
    field: impl fmt::Display,
    text: &str,
) -> Result<N, FileError> {
    number::parse_integer(text).ok_or_else(|| {
        let bits = 8 * size_of::<N>();
        line.error(field, text, format!("a whole number below 2^{bits}"))
    })
}

pub(super) fn parse_in_range(
    line: Line<'_>,
    field: &str,
    text: &str,
    min: f64,
    max: f64,
) -> Result<f64, FileError> {
    number::parse_decimal(text)
        .filter(|value| (min..=max).contains(value))
        .ok_or_else(|| line.error(field, text, format!("a number from {min:e} to {max:e}")))
}

pub(super) fn parse_name<'a>(line: Line<'_>, field: &str, text: &'a str) -> Result<&'a str, FileError> {
    if ServiceNames::is_name(text) { Ok(text) } else { Err(line.error(field, text, ServiceNames::NAME_RULE)) }
}

pub(super) fn parse_port(
    line: Line<'_>,
    field: impl fmt::Display,
    text: &str,
    ports: u32,
) -> Result<u32, FileError> {
    number::parse_port(text, ports).ok_or_else(|| line.error(field, text, number::expected_port(ports)))
}

/// A point in time, which can be up to `max_seconds`; the error for a later one ends with the `advice` about it.
pub(super) fn parse_file_time(
    line: Line<'_>,
    field: &str,
    text: &str,
    max_seconds: f64,
    advice: impl Fn(Time) -> &'static str,
) -> Result<FileTime, FileError> {
    let time: Time = text.parse().map_err(|e: UnitError| line.error(field, text, e.expected))?;
    if time.get() > max_seconds {
        let expected = format!("a time of at most {max_seconds:e} seconds{}", advice(time));
        return Err(line.error(field, text, expected));
    }
    Ok(FileTime::new(time, text, "s"))
}

/// A duration.
pub(super) fn parse_time(line: Line<'_>, field: &str, text: &str) -> Result<Time, FileError> {
    Ok(parse_file_time(line, field, text, MAX_SECONDS, |_| "")?.time)
}

pub(super) fn parse_size(line: Line<'_>, field: impl fmt::Display, text: &str) -> Result<Bytes, FileError> {
    match text.parse::<Bytes>() {
        Err(e) => Err(line.error(field, text, e.expected)),
        Ok(size) if size.get() >= MAX_BYTES => Err(line.error(field, text, "a size of less than 2^53 bytes")),
        Ok(size) => Ok(size),
    }
}

pub(super) fn parse_side(line: Line<'_>, text: &str) -> Result<PortSide, FileError> {
    match text {
        "send" => Ok(PortSide::Send),
        "receive" => Ok(PortSide::Receive),
        "both" => Ok(PortSide::Both),
        _ => Err(line.error("side", text, "send, receive or both")),
    }
}
