//! Keys of a TOML table, each taken once, and errors that say where they are.

use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};
use weir_core::model::TopologyError;
use weir_core::units::Rate;

use super::expected;
use crate::error::{TraceError, shown};

/// A file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// An error at a byte of the text.
    pub(super) fn error(&self, at: usize, field: &str, value: &str, expected: &str) -> TraceError {
        let before = self.text.as_bytes().iter().take(at);
        TraceError::Field {
            file: self.file.to_owned(),
            line: 1 + before.filter(|&&byte| byte == b'\n').count(),
            field: field.to_owned(),
            value: shown(value),
            expected: expected.to_owned(),
        }
    }
}

/// A value, and the key that it was found under.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value<'a> {
    key: &'static str,
    value: &'a Spanned<DeValue<'a>>,
}

/// The keys of one table.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    source: Source<'a>,
    /// What errors put before a key: nothing, or `link 3 `.
    place: String,
    /// Where the table begins.
    at: usize,
    table: &'a DeTable<'a>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(source: Source<'a>, place: String, at: usize, table: &'a DeTable<'a>) -> Fields<'a> {
        Fields { source, place, at, table, known: Vec::new() }
    }

    /// The value of a key that has to be there.
    pub(super) fn need(&mut self, key: &'static str, expected: &str) -> Result<Value<'a>, TraceError> {
        self.known.push(key);
        let Some(value) = self.table.get(key) else {
            let field = format!("{}{key}", self.place);
            return Err(self.source.error(self.at, &field, "nothing", expected));
        };
        Ok(Value { key, value })
    }

    /// Whether all keys were asked for.
    pub(super) fn finish(&self) -> Result<(), TraceError> {
        let unknown = |key: &&Spanned<DeString<'_>>| !self.known.contains(&key.get_ref().as_ref());
        let first = self.table.keys().filter(unknown).min_by_key(|key| key.span().start);
        first.map_or(Ok(()), |key| {
            let expected = format!("one of {}", self.known.join(", "));
            let field = format!("{}key", self.place);
            Err(self.source.error(key.span().start, &field, key.get_ref(), &expected))
        })
    }

    /// The error for a value that is not what it should be.
    pub(super) fn wrong(&self, value: &Value<'_>, expected: &str) -> TraceError {
        let span = value.value.span();
        let text = self.source.text.get(span.clone()).unwrap_or("");
        self.source.error(span.start, &format!("{}{}", self.place, value.key), text, expected)
    }

    /// The error for a value that the topology refuses.
    pub(super) fn refused(&self, value: &Value<'_>, error: &TopologyError) -> TraceError {
        self.wrong(value, &expected(error))
    }

    pub(super) fn text(&self, value: &Value<'a>, expected: &str) -> Result<&'a str, TraceError> {
        value.value.get_ref().as_str().ok_or_else(|| self.wrong(value, expected))
    }

    pub(super) fn whole(&self, value: &Value<'_>, what: &str) -> Result<u32, TraceError> {
        let integer = value.value.get_ref().as_integer();
        let whole = integer.and_then(|integer| u32::from_str_radix(integer.as_str(), integer.radix()).ok());
        whole.ok_or_else(|| self.wrong(value, what))
    }

    pub(super) fn list(&self, value: &Value<'a>, expected: &str) -> Result<Vec<Value<'a>>, TraceError> {
        let array = value.value.get_ref().as_array().ok_or_else(|| self.wrong(value, expected))?;
        Ok(array.iter().map(|item| Value { key: value.key, value: item }).collect())
    }

    pub(super) fn table(&self, value: &Value<'a>, place: String) -> Result<Fields<'a>, TraceError> {
        let table = value.value.get_ref().as_table().ok_or_else(|| self.wrong(value, "a table"))?;
        Ok(Fields::new(self.source, place, value.value.span().start, table))
    }

    /// A key's whole number.
    pub(super) fn count(&mut self, key: &'static str) -> Result<u32, TraceError> {
        const COUNT: &str = "a whole number from 0 to 4294967295";
        let value = self.need(key, COUNT)?;
        self.whole(&value, COUNT)
    }

    /// A key's number, with a fraction or without.
    pub(super) fn number(&mut self, key: &'static str) -> Result<f64, TraceError> {
        const NUMBER: &str = "a number such as 2 or 1.5";
        let value = self.need(key, NUMBER)?;
        if let Some(float) = value.value.get_ref().as_float() {
            return f64::from_str(float.as_str()).map_err(|_| self.wrong(&value, NUMBER));
        }
        self.whole(&value, NUMBER).map(f64::from)
    }

    /// A key's rate, with its unit.
    pub(super) fn rate(&mut self, key: &'static str) -> Result<Rate, TraceError> {
        const RATE: &str = "a rate with a unit such as \"10Gbit\"";
        let value = self.need(key, RATE)?;
        let text = self.text(&value, RATE)?;
        text.parse().map_err(|error: weir_core::units::UnitError| self.wrong(&value, error.expected))
    }
}
