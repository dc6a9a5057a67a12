//! Rows of a table of policies, and the look-up of a policy by name.

use super::params::{Params, ParamsError};

/// A row of a table of policies; `T` is the type that the row builds.
pub struct PolicyEntry<T> {
    /// Name of the policy.
    pub name: &'static str,
    /// One-line description.
    pub description: &'static str,
    /// Parameters: `key=value` with the default value, and a description.
    pub params: &'static [(&'static str, &'static str)],
    pub(crate) build: fn(&mut Params) -> Result<T, ParamsError>,
}

/// Builds the policy that `spec` names from a table.
pub(crate) fn build_from<T>(table: &[PolicyEntry<T>], spec: &str) -> Result<T, ParamsError> {
    let mut params = Params::parse(spec)?;
    let entry = table.iter().find(|e| e.name == params.name()).ok_or_else(|| ParamsError::UnknownPolicy {
        name: params.name().to_owned(),
        known: table.iter().map(|e| e.name).collect::<Vec<_>>().join(", "),
    })?;
    let policy = (entry.build)(&mut params)?;
    params.reject_unknown()?;
    Ok(policy)
}
