//! Reads the policy, or the file of a policy tree.

use std::path::Path;

use weir_core::model::ServiceNames;
use weir_core::policy::ParamsError;
use weir_fields::{FileError, TableFields, Value};
use weir_trace::{sensitivity, tree};

use crate::policy::{PolicyError, PolicySpec, ValidatedPolicy};

/// Prefix of the file of a policy tree.
const TREE_PREFIX: &str = "tree:";

const EXPECTED_POLICY: &str = "a policy with its parameters, such as \"saath:d=4\", or \"tree:FILE\"";

/// Reads the policy, which is required if the configuration has hosts: an overlay has its own policy.
pub(super) fn read_policy(
    fields: &TableFields<'_>,
    value: Option<Value<'_>>,
    folder: &Path,
    names: &ServiceNames,
    has_hosts: bool,
    interval: f64,
) -> Result<ValidatedPolicy, FileError> {
    let value = match &value {
        Some(value) => value,
        None if has_hosts => return Err(fields.key_error("policy", "nothing", EXPECTED_POLICY)),
        None => return Ok(ValidatedPolicy::without_hosts()),
    };
    let spec = fields.read_string(value, EXPECTED_POLICY)?;
    let tables = |file: &str| sensitivity::read(&folder.join(file));
    let policy = match spec.strip_prefix(TREE_PREFIX) {
        None => ValidatedPolicy::new(PolicySpec::Policy(spec.to_owned()), "policy", &tables, names, interval),
        Some("" | "-") => return Err(fields.value_error(value, "a file name after `tree:`")),
        Some(file) => {
            let path = folder.join(file);
            let text = weir_fields::read_file(&path, |input, name| {
                weir_fields::read_text(input, name, tree::MAX_FILE_BYTES)
            });
            let text = fields.referenced(value, text)?;
            // Sensitivity tables of a tree are relative to the tree's folder.
            let tree_folder = path.parent().unwrap_or(folder);
            let name = path.display().to_string();
            let tables = |file: &str| tree::read_named_table(tree_folder, file, &name);
            ValidatedPolicy::new(PolicySpec::Tree(text), &name, &tables, names, interval)
        }
    };
    policy.map_err(|error| match error {
        PolicyError::Params(ParamsError::UnknownPolicy { name, known }) => {
            let known = format!("{known}, {TREE_PREFIX}FILE");
            fields.value_error(value, &weir_fields::expectation(ParamsError::UnknownPolicy { name, known }))
        }
        PolicyError::Params(error) => fields.value_error(value, &weir_fields::expectation(error)),
        PolicyError::NotEnforceable(error) => fields.value_error(value, &weir_fields::expectation(error)),
        PolicyError::Tree(error) => error,
    })
}
