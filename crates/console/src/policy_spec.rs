//! Builds policies from their command-line form: a name with parameters, or a file with a policy tree.

use std::path::Path;

use weir_core::model::ServiceNames;
use weir_core::policy::{self, AnyPolicy, ParamsError};
use weir_core::saba::Sensitivity;
use weir_core::suggestion::did_you_mean;
use weir_core::tree::TreeSpec;

use crate::failure::Failure;

/// The prefix of a policy tree.
pub const TREE_PREFIX: &str = "tree:";

/// The part of `spec` after [`TREE_PREFIX`]; none if `spec` is not a tree.
pub fn tree_file(spec: &str) -> Option<&str> {
    spec.strip_prefix(TREE_PREFIX).or((spec == "tree").then_some(""))
}

/// The specification with the name of a tree's file instead of its path.
pub fn without_folder(spec: &str) -> String {
    let name = tree_file(spec).and_then(|file| Path::new(file).file_name());
    name.map_or_else(|| spec.to_owned(), |name| format!("{TREE_PREFIX}{}", name.to_string_lossy()))
}

/// Builds the policy that `spec` names: `NAME[:KEY=VALUE...]`, or `tree:FILE`. With `names`, a tree must have a leaf for each name of the
/// trace. With `sensitivities` of all applications, `saba` without slowdowns uses them.
///
/// # Errors
/// An unknown name or parameter, an invalid tree file, or a tree that does not fit these names.
pub fn build_policy(
    spec: &str,
    names: Option<&ServiceNames>,
    sensitivities: &[Sensitivity],
) -> Result<AnyPolicy, Failure> {
    match tree_file(spec) {
        Some(file) => Ok(AnyPolicy::Tree(weir_trace::tree::read(tree_path(file)?, names)?)),
        None => match policy::build(spec) {
            Ok(AnyPolicy::Tree(TreeSpec::Saba { models, limits })) if models.is_empty() => {
                Ok(AnyPolicy::Tree(TreeSpec::Saba { models: sensitivities.to_vec(), limits }))
            }
            Ok(policy) => Ok(policy),
            Err(ParamsError::UnknownPolicy { name, .. }) => Err(unknown_policy(&name)),
            Err(other) => Err(other.into()),
        },
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

/// The failure for an unknown policy name.
pub fn unknown_policy(name: &str) -> Failure {
    let known: Vec<&str> = policy::all().map(|entry| entry.name).collect();
    let expected = format!("one of {}, {TREE_PREFIX}FILE", known.join(", "));
    let similar = did_you_mean(name, known.iter().copied());
    let message = format!("unknown policy `{name}`; expected {expected}{similar}");
    Failure::invalid_value("policies", name, Some(&expected), message)
}

/// How to write a specification in which a comma or a colon is missing: two policies, or a policy and a parameter, without it.
pub fn missing_separator(spec: &str) -> Option<String> {
    let is_known = |name: &str| policy::all().any(|entry| entry.name == name);
    let ends = spec.char_indices().map(|(at, _)| at).filter(|&at| at > 0);
    // From the right, since `aalo+` starts with `aalo`.
    let mut splits = ends.rev().map(|at| spec.split_at(at));
    splits.find_map(|(policy, rest)| {
        let (policy, rest) = (policy.trim_end(), rest.trim_start());
        let name = policy.split(':').next().unwrap_or_default();
        let entry = policy::all().find(|entry| entry.name == name)?;
        if is_known(rest.split(':').next().unwrap_or_default()) && policy::build(policy).is_ok() {
            return Some(format!("{policy},{rest}"));
        }
        let (key, _) = rest.split_once('=')?;
        let has_key = entry.params.iter().any(|(param, _)| param.split('=').next() == Some(key));
        (has_key && policy::build(policy).is_ok()).then(|| format!("{policy}:{rest}"))
    })
}

/// The policies of Siphon's evaluation. They order coflows by past bandwidth, which differs from the present one between regions only.
const REGION_POLICIES: [&str; 2] = ["siphon", "mrtf"];

/// The default policies to compare: all in the table, but those of Siphon's evaluation between regions only. With only one
/// application, policies that divide bandwidth between applications are omitted, since they equal `fair`.
pub fn default_policies(names: &ServiceNames, has_regions: bool) -> Vec<String> {
    let divides_bandwidth = |name: &str| matches!(policy::build(name), Ok(AnyPolicy::Tree(_)));
    let listed = policy::all()
        .map(|entry| entry.name)
        .filter(|name| names.application_count() > 1 || !divides_bandwidth(name))
        .filter(|name| has_regions || !REGION_POLICIES.contains(name));
    listed.map(str::to_owned).collect()
}
