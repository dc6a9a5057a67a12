//! Builds policies from their command-line form: a name with parameters, or a file with a policy tree.

use std::path::Path;

use weir_core::model::ServiceNames;
use weir_core::policy::{self, AnyPolicy, POLICIES, ParamsError};
use weir_core::suggestion::did_you_mean;
use weir_core::wide_area::{self, WideAreaPolicy};

use crate::failure::Failure;

/// The prefix of a policy tree.
pub const TREE_PREFIX: &str = "tree:";

/// The part of `spec` after [`TREE_PREFIX`]; none if `spec` is not a tree.
pub fn tree_file(spec: &str) -> Option<&str> {
    spec.strip_prefix(TREE_PREFIX).or((spec == "tree").then_some(""))
}

/// Builds the policy that `spec` names: `NAME[:KEY=VALUE...]`, or `tree:FILE`. With `names`, a tree must have a leaf for each name of the
/// trace.
///
/// # Errors
/// An unknown name or parameter, an invalid tree file, or a tree that does not fit these names.
pub fn build_policy(spec: &str, names: Option<&ServiceNames>) -> Result<AnyPolicy, Failure> {
    match tree_file(spec) {
        Some(file) => Ok(AnyPolicy::Tree(weir_trace::tree::read(tree_path(file)?, names)?)),
        None => policy::build(spec).map_err(|error| match error {
            ParamsError::UnknownPolicy { name, .. } => unknown_policy(&name),
            error @ ParamsError::NotForSwitch { .. } => Failure::input(format_args!(
                "{error}; `weir sim`, `weir compare` and `weir sweep` support --wide-area FILE"
            )),
            other => Failure::input(other),
        }),
    }
}

/// Builds a policy for a wide area, or a tree of such policies.
///
/// # Errors
/// As [`build_policy`].
pub fn build_wide_area_policy(spec: &str, names: &ServiceNames) -> Result<WideAreaPolicy, Failure> {
    match tree_file(spec) {
        Some(file) => {
            let plan = weir_trace::tree::read_wide_area(tree_path(file)?, Some(names))?;
            WideAreaPolicy::from_tree(&plan, names).map_err(Failure::input)
        }
        None => wide_area::build(spec).map_err(Failure::input),
    }
}

/// The file of a tree. It is read once for the check, and once for each replay.
fn tree_path(file: &str) -> Result<&Path, Failure> {
    match file {
        "" | "-" => {
            Err(Failure::input("policy `tree` has no file; expected `tree:FILE`, with the path of a file"))
        }
        file => Ok(Path::new(file)),
    }
}

/// Checks that `spec` is a policy for one switch or for a wide area.
///
/// # Errors
/// An unknown name or parameter, or an invalid tree file.
pub fn check_policy(spec: &str) -> Result<(), Failure> {
    let name = spec.split(':').next().unwrap_or_default().trim();
    let Err(failure) = build_policy(spec, None) else { return Ok(()) };
    if let Some(file) = tree_file(spec) {
        let is_wide_area_tree =
            tree_path(file).is_ok_and(|file| weir_trace::tree::read_wide_area(file, None).is_ok());
        return if is_wide_area_tree { Ok(()) } else { Err(failure) };
    }
    let is_wide_area_policy = wide_area::POLICIES.iter().any(|entry| entry.name == name);
    if !is_wide_area_policy {
        return Err(failure);
    }
    match wide_area::build(spec) {
        Ok(_) => Ok(()),
        // For a policy of both kinds, the error of the one for a switch is reported.
        Err(_) if POLICIES.iter().any(|entry| entry.name == name) => Err(failure),
        Err(error) => Err(Failure::input(error)),
    }
}

/// The failure for an unknown policy name.
pub fn unknown_policy(name: &str) -> Failure {
    let mut known: Vec<&str> = POLICIES.iter().map(|entry| entry.name).collect();
    let wide = wide_area::POLICIES.iter().map(|entry| entry.name);
    known.extend(wide.filter(|name| !POLICIES.iter().any(|entry| entry.name == *name)));
    Failure::input(format_args!(
        "unknown policy `{name}`; expected one of {}, {TREE_PREFIX}FILE{}",
        known.join(", "),
        did_you_mean(name, known.iter().copied())
    ))
}

/// The default policies to compare: all in the table. With only one application, policies that divide bandwidth between applications are
/// omitted, since they equal `fair`.
pub fn default_policies(names: &ServiceNames) -> Vec<String> {
    let divides_bandwidth = |name: &str| matches!(policy::build(name), Ok(AnyPolicy::Tree(_)));
    let listed = POLICIES
        .iter()
        .map(|entry| entry.name)
        .filter(|name| names.application_count() > 1 || !divides_bandwidth(name));
    listed.map(str::to_owned).collect()
}
