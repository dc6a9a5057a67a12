//! Writes results for other programs, as JSON or CSV in full precision.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use crate::table::format_optional;

/// An ordered list of names and values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record(Vec<(Cow<'static, str>, Value)>);

impl Record {
    /// Adds a value.
    pub fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push((name.into(), value.into()));
    }

    /// Adds several values.
    pub fn add_all<const N: usize>(&mut self, names: [&'static str; N], values: [impl Into<Value>; N]) {
        names.into_iter().zip(values).for_each(|(name, value)| self.add(name, value));
    }

    /// Adds a value under a computed name.
    pub fn add_named(&mut self, name: String, value: impl Into<Value>) {
        self.0.push((name.into(), value.into()));
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// The names in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_ref())
    }

    /// Sets all values to null, except for those of `kept`.
    pub fn clear_values(&mut self, kept: &[&str]) {
        let cleared = self.0.iter_mut().filter(|(name, _)| !kept.contains(&name.as_ref()));
        cleared.for_each(|(_, value)| *value = Value::Null);
    }

    /// The value of a name, if it is a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64()
    }

    /// The value of a name for people: a count with all digits, another number rounded, and `-` without a number.
    pub fn format_cell(&self, name: &str) -> String {
        match self.get(name) {
            Some(Value::Number(count)) if count.is_u64() => count.to_string(),
            value => format_optional(value.and_then(Value::as_f64)),
        }
    }

    /// Appends the names and values of `other`.
    pub fn append(&mut self, mut other: Record) {
        self.0.append(&mut other.0);
    }
}

impl From<Record> for Value {
    /// A JSON object.
    fn from(record: Record) -> Value {
        Value::Object(record.0.into_iter().map(|(name, value)| (name.into_owned(), value)).collect())
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Indented JSON with a final newline.
pub fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value);
    text.expect("records have strings as keys and finite numbers as values") + "\n"
}

/// A line of names, then a line of values for each record. All records have the same names. Null becomes an empty cell.
pub fn csv(records: &[Record]) -> String {
    const IN_MEMORY: &str = "lines of equal length in memory are always written";
    let mut out = csv::Writer::from_writer(Vec::new());
    if let Some(first) = records.first() {
        out.write_record(first.0.iter().map(|(name, _)| name.as_ref())).expect(IN_MEMORY);
    }
    for record in records {
        out.write_record(record.0.iter().map(|(_, value)| format_cell(value))).expect(IN_MEMORY);
    }
    String::from_utf8(out.into_inner().expect(IN_MEMORY)).expect("cells are strings, so the file is UTF-8")
}

fn format_cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
        }
        // The same digits as in JSON: the fewest that parse to the same number.
        other => other.to_string(),
    }
}
