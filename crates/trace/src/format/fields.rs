//! Parses the fields of a line: `key=value` pairs and their values.

use std::fmt;
use std::str::FromStr;

use weir_core::model::{Names, Side};
use weir_core::units::{Bytes, Time, UnitError};

use crate::bounds::{MAX_BYTES, MAX_SECONDS};
use crate::error::TraceError;
use crate::lines::{END_OF_LINE, Fields, Line};
use crate::number;

/// The `key=value` fields at the end of a line, each of the known keys at most once.
pub(super) struct Keys<'a> {
    fields: Fields<'a>,
    known: &'static [&'static str],
    seen: Vec<&'a str>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(fields: Fields<'a>, known: &'static [&'static str]) -> Keys<'a> {
        Keys { fields, known, seen: Vec::new() }
    }

    pub(super) fn next(&mut self) -> Result<Option<(&'a str, &'a str)>, TraceError> {
        let Some(text) = self.fields.optional() else {
            return Ok(None);
        };
        let line = self.fields.line;
        let known = || format!("`<key>=<value>` with a key of {}", self.known.join(", "));
        let Some((key, value)) = text.split_once('=') else {
            return Err(line.error("key", text, known()));
        };
        if !self.known.contains(&key) {
            return Err(line.error("key", key, known()));
        }
        if self.seen.contains(&key) {
            return Err(line.error(key, value, format!("`{key}` once")));
        }
        self.seen.push(key);
        Ok(Some((key, value)))
    }

    /// The values of all known keys, in their order; all are required.
    pub(super) fn all<const N: usize>(mut self) -> Result<[&'a str; N], TraceError> {
        let mut values = [None; N];
        while let Some((key, value)) = self.next()? {
            let position = self.known.iter().position(|known| *known == key);
            if let Some(slot) = position.and_then(|p| values.get_mut(p)) {
                *slot = Some(value);
            }
        }
        let mut all = [""; N];
        for ((slot, value), key) in all.iter_mut().zip(values).zip(self.known) {
            let line = self.fields.line;
            *slot = value.ok_or_else(|| line.error(key, END_OF_LINE, format!("`{key}=...`")))?;
        }
        Ok(all)
    }
}

/// The optional release at the end of a `flow` or `shuffle` line.
pub(super) fn release(fields: Fields<'_>) -> Result<Time, TraceError> {
    let line = fields.line;
    let mut keys = Keys::new(fields, &["release"]);
    let mut release = Time::ZERO;
    while let Some((key, value)) = keys.next()? {
        release = time(line, key, value)?;
    }
    Ok(release)
}

pub(super) fn whole<N: FromStr>(
    line: Line<'_>,
    field: impl fmt::Display,
    text: &str,
) -> Result<N, TraceError> {
    number::whole(text).ok_or_else(|| {
        let bits = 8 * size_of::<N>();
        line.error(field, text, format!("a whole number below 2^{bits}"))
    })
}

pub(super) fn within(
    line: Line<'_>,
    field: &str,
    text: &str,
    least: f64,
    most: f64,
) -> Result<f64, TraceError> {
    number::decimal(text)
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| line.error(field, text, format!("a number from {least:e} to {most:e}")))
}

pub(super) fn name<'a>(line: Line<'_>, field: &str, text: &'a str) -> Result<&'a str, TraceError> {
    if Names::is_name(text) { Ok(text) } else { Err(line.error(field, text, Names::RULE)) }
}

pub(super) fn port(
    line: Line<'_>,
    field: impl fmt::Display,
    text: &str,
    ports: u32,
) -> Result<u32, TraceError> {
    number::port(text, ports).ok_or_else(|| line.error(field, text, number::port_expected(ports)))
}

pub(super) fn time(line: Line<'_>, field: &str, text: &str) -> Result<Time, TraceError> {
    let time: Time = text.parse().map_err(|e: UnitError| line.error(field, text, e.expected))?;
    if time.get() > MAX_SECONDS {
        return Err(line.error(field, text, format!("a time of at most {MAX_SECONDS:e} seconds")));
    }
    Ok(time)
}

pub(super) fn size(line: Line<'_>, field: impl fmt::Display, text: &str) -> Result<Bytes, TraceError> {
    match text.parse::<Bytes>() {
        Err(e) => Err(line.error(field, text, e.expected)),
        Ok(size) if size.get() >= MAX_BYTES => Err(line.error(field, text, "a size of less than 2^53 bytes")),
        Ok(size) => Ok(size),
    }
}

pub(super) fn side_of(line: Line<'_>, text: &str) -> Result<Side, TraceError> {
    match text {
        "send" => Ok(Side::Send),
        "receive" => Ok(Side::Receive),
        "both" => Ok(Side::Both),
        _ => Err(line.error("side", text, "send, receive or both")),
    }
}
