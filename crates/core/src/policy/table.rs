//! Rows of tables of policies, and how a policy is found by its name.

use super::params::{Params, ParamsError};

/// Policies of [`crate::wide_area::TABLE`] that the table for one switch does not have.
pub(crate) const WIDE_AREA_ONLY: [&str; 2] = ["siphon", "mrtf"];

/// A row of a table of policies, which are built as `T`.
pub struct Entry<T> {
    /// Its name.
    pub name: &'static str,
    /// A line about it.
    pub about: &'static str,
    /// Its parameters: `key=value` with the default value, and the meaning.
    pub params: &'static [(&'static str, &'static str)],
    pub(crate) build: fn(&mut Params) -> Result<T, ParamsError>,
}

/// Builds the policy of a table that `spec` names.
pub(crate) fn build_from<T>(table: &[Entry<T>], spec: &str) -> Result<T, ParamsError> {
    let mut params = Params::parse(spec)?;
    let entry = table.iter().find(|e| e.name == params.name()).ok_or_else(|| ParamsError::UnknownPolicy {
        name: params.name().to_owned(),
        known: table.iter().map(|e| e.name).collect::<Vec<_>>().join(", "),
    })?;
    let policy = (entry.build)(&mut params)?;
    params.finish()?;
    Ok(policy)
}
