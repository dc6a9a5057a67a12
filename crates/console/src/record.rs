//! Records: what programs read, as JSON or CSV in full precision.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// Names and values, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record(Vec<(Cow<'static, str>, Value)>);

impl Record {
    /// Adds a value.
    pub fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push((name.into(), value.into()));
    }

    /// Adds a value under a name that is not known beforehand.
    pub fn add_named(&mut self, name: String, value: impl Into<Value>) {
        self.0.push((name.into(), value.into()));
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// The number that a name has, if it has one.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64()
    }

    /// Puts `other` behind what there is.
    pub fn append(&mut self, mut other: Record) {
        self.0.append(&mut other.0);
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

/// JSON, indented, with a last line end.
pub fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value)
        .expect("values have no keys but strings and no floats but finite ones");
    text.push('\n');
    text
}

/// A line of names, then one of values for each record; all have the same names. What is not there is empty.
pub fn csv(records: &[Record]) -> Vec<u8> {
    let mut out = csv::Writer::from_writer(Vec::new());
    let header = records.first().map(|r| r.0.iter().map(|(name, _)| name.as_ref()).collect::<Vec<&str>>());
    let mut lines: Vec<Vec<String>> = Vec::new();
    for record in records {
        lines.push(record.0.iter().map(|(_, value)| cell(value)).collect());
    }
    if let Some(header) = header {
        out.write_record(header).expect("memory takes all");
    }
    for line in lines {
        out.write_record(line).expect("memory takes all");
    }
    out.into_inner().expect("memory takes all")
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        // The same digits as in JSON: the fewest that are read back as the same number.
        other => other.to_string(),
    }
}
