//! Records of the store that do not fit the configuration.

use std::collections::BTreeMap;
use std::fmt::Display;

use tracing::warn;

/// Records of the store that do not fit the configuration. They stay in the store, for a later configuration, and have no effect.
#[derive(Debug, Default)]
pub struct UnfitRecords(BTreeMap<String, String>);

impl UnfitRecords {
    /// Notes a record of a kind, such as `coflow`, and why it does not fit.
    pub(super) fn note(&mut self, kind: &str, name: &str, reason: impl Display) {
        self.0.insert(format!("{kind} `{name}`"), reason.to_string());
    }

    /// Logs all records.
    pub(super) fn log(&self) {
        for (record, reason) in &self.0 {
            warn!(record, reason, "stored record ignored: it does not fit the configuration");
        }
    }

    /// The records, each with its reason, that fit the configuration of `former`.
    pub fn since<'a>(&'a self, former: &'a UnfitRecords) -> impl Iterator<Item = (&'a str, &'a str)> {
        let is_new = |record: &String| !former.0.contains_key(record);
        self.0
            .iter()
            .filter(move |(record, _)| is_new(record))
            .map(|(record, reason)| (record.as_str(), reason.as_str()))
    }
}
