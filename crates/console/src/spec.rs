//! Policies as they are asked for: one of the table, or a tree in a file.

use std::path::Path;

use weir_core::model::Names;
use weir_core::policy::{self, AnyPolicy, ParamsError, TABLE};
use weir_core::wide_area::{self, Scheme};

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

/// The same for a wide area: a policy for one, or a tree of such policies.
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

/// The file of a tree, which is read once to be checked and once for each replay.
fn named(file: &str) -> Result<&Path, Failure> {
    match file {
        "" | "-" => Err(Failure::input("a policy tree: expected `tree:FILE`, with the name of a file")),
        file => Ok(Path::new(file)),
    }
}

/// Whether there is such a policy, for one switch or for a wide area.
///
/// # Errors
/// An unknown name or parameter, or a file that is no tree.
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
        // What is for both kinds of network is refused in the words of the switch.
        Err(_) if TABLE.iter().any(|entry| entry.name == name) => Err(failure),
        Err(error) => Err(Failure::input(error)),
    }
}

/// No policy has this name.
pub fn unknown(name: &str) -> Failure {
    let mut known: Vec<&str> = TABLE.iter().map(|entry| entry.name).collect();
    let wide = wide_area::TABLE.iter().map(|entry| entry.name);
    known.extend(wide.filter(|name| !TABLE.iter().any(|entry| entry.name == *name)));
    Failure::input(format_args!("unknown policy `{name}`; expected one of {}, {TREE}FILE", known.join(", ")))
}

/// The policies to compare if none are named: all of the table. Those that share between applications are left out where
/// there is only one, which they leave to `fair`.
pub fn all(names: &Names) -> Vec<String> {
    let shares = |name: &str| matches!(policy::build(name), Ok(AnyPolicy::Tree(_)));
    let listed = TABLE.iter().map(|entry| entry.name).filter(|name| names.count() > 1 || !shares(name));
    listed.map(str::to_owned).collect()
}
