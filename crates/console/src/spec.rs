//! Builds policies from their command-line form: a name with parameters, or a file with a policy tree.

use std::path::Path;

use weir_core::model::Names;
use weir_core::policy::{self, AnyPolicy, ParamsError, TABLE};
use weir_core::wide_area::{self, Scheme};

use crate::failure::Failure;

/// The prefix of a policy tree.
pub const TREE: &str = "tree:";

/// The part of `spec` after [`TREE`]; none if `spec` is not a tree.
pub fn tree(spec: &str) -> Option<&str> {
    spec.strip_prefix(TREE).or((spec == "tree").then_some(""))
}

/// Builds the policy that `spec` names: `NAME[:KEY=VALUE...]`, or `tree:FILE`. With `names`, a tree must have a leaf for each name of the
/// trace.
///
/// # Errors
/// An unknown name or parameter, an invalid tree file, or a tree that does not fit these names.
pub fn build(spec: &str, names: Option<&Names>) -> Result<AnyPolicy, Failure> {
    match tree(spec) {
        Some(file) => Ok(AnyPolicy::Tree(weir_trace::tree::read(named(file)?, names)?)),
        None => policy::build(spec).map_err(|error| match error {
            ParamsError::UnknownPolicy { name, .. } => unknown(&name),
            error @ ParamsError::NotForSwitch { .. } => Failure::input(format_args!(
                "{error}; `weir sim`, `weir compare` and `weir sweep` take --wide-area FILE"
            )),
            other => Failure::input(other),
        }),
    }
}

/// Builds a policy for a wide area, or a tree of such policies.
///
/// # Errors
/// As [`build`].
pub fn build_wide(spec: &str, names: &Names) -> Result<Scheme, Failure> {
    match tree(spec) {
        Some(file) => {
            let plan = weir_trace::tree::read_wide(named(file)?, Some(names))?;
            Scheme::tree(&plan, names).map_err(Failure::input)
        }
        None => wide_area::build(spec).map_err(Failure::input),
    }
}

/// The file of a tree. It is read once for the check, and once for each replay.
fn named(file: &str) -> Result<&Path, Failure> {
    match file {
        "" | "-" => Err(Failure::input("a policy tree: expected `tree:FILE`, with the name of a file")),
        file => Ok(Path::new(file)),
    }
}

/// Checks that `spec` is a policy for one switch or for a wide area.
///
/// # Errors
/// An unknown name or parameter, or an invalid tree file.
pub fn check(spec: &str) -> Result<(), Failure> {
    let name = spec.split(':').next().unwrap_or_default().trim();
    let Err(failure) = build(spec, None) else { return Ok(()) };
    if let Some(file) = tree(spec) {
        let wide = named(file).is_ok_and(|file| weir_trace::tree::read_wide(file, None).is_ok());
        return if wide { Ok(()) } else { Err(failure) };
    }
    let wide = wide_area::TABLE.iter().any(|entry| entry.name == name);
    if !wide {
        return Err(failure);
    }
    match wide_area::build(spec) {
        Ok(_) => Ok(()),
        // For a policy of both kinds, the error of the one for a switch is reported.
        Err(_) if TABLE.iter().any(|entry| entry.name == name) => Err(failure),
        Err(error) => Err(Failure::input(error)),
    }
}

/// The failure for an unknown policy name.
pub fn unknown(name: &str) -> Failure {
    let mut known: Vec<&str> = TABLE.iter().map(|entry| entry.name).collect();
    let wide = wide_area::TABLE.iter().map(|entry| entry.name);
    known.extend(wide.filter(|name| !TABLE.iter().any(|entry| entry.name == *name)));
    Failure::input(format_args!("unknown policy `{name}`; expected one of {}, {TREE}FILE", known.join(", ")))
}

/// The policies to compare if none are named: all in the table. With only one application, policies that divide bandwidth between
/// applications are left out, since they equal `fair`.
pub fn all(names: &Names) -> Vec<String> {
    let shares = |name: &str| matches!(policy::build(name), Ok(AnyPolicy::Tree(_)));
    let listed = TABLE.iter().map(|entry| entry.name).filter(|name| names.count() > 1 || !shares(name));
    listed.map(str::to_owned).collect()
}
