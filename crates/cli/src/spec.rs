//! Policies as they are asked for: one of the table, or a tree in a file.

use std::path::Path;

use weir_core::model::Names;
use weir_core::policy::{self, AnyPolicy, ParamsError, TABLE};

use crate::failure::Failure;

/// What a policy begins with that is a tree.
pub const TREE: &str = "tree:";

/// What `spec` has after [`TREE`], if it is to be a tree.
pub fn tree(spec: &str) -> Option<&str> {
    spec.strip_prefix(TREE).or((spec == "tree").then_some(""))
}

/// Builds the policy that `spec` names: `NAME[:KEY=VALUE...]`, or `tree:FILE`. A tree has to have a place for the names of
/// the trace that it is for, if it is known which.
///
/// # Errors
/// An unknown name or parameter, or a file that is no tree, or none for these names.
pub fn build(spec: &str, names: Option<&Names>) -> Result<AnyPolicy, Failure> {
    match tree(spec) {
        // It is read once to be checked and once for each replay.
        Some("" | "-") => Err(Failure::input("a policy tree: expected `tree:FILE`, with the name of a file")),
        Some(file) => Ok(AnyPolicy::Tree(weir_trace::tree::read(Path::new(file), names)?)),
        None => policy::build(spec).map_err(|error| match error {
            ParamsError::UnknownPolicy { name, .. } => unknown(&name),
            other => Failure::input(other),
        }),
    }
}

/// No policy has this name.
pub fn unknown(name: &str) -> Failure {
    let known: Vec<&str> = TABLE.iter().map(|entry| entry.name).collect();
    Failure::input(format_args!(
        "no policy is called `{name}`: expected one of {}, {TREE}FILE",
        known.join(", ")
    ))
}

/// The policies to compare if none are named: all of the table. Those that share between applications are left out where
/// there is only one, which they leave to `fair`.
pub fn all(names: &Names) -> Vec<String> {
    let shares = |name: &str| matches!(policy::build(name), Ok(AnyPolicy::Tree(_)));
    let listed = TABLE.iter().map(|entry| entry.name).filter(|name| names.count() > 1 || !shares(name));
    listed.map(str::to_owned).collect()
}
