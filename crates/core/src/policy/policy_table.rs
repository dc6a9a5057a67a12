//! Rows of the table of policies, and the look-up of a policy by name.

use std::sync::{PoisonError, RwLock};

use super::django::settings_from_params;
use super::params::{Params, ParamsError};
use super::{AnyPolicy, POLICIES};
use crate::django;

/// A row of the table of policies.
#[derive(Debug, Clone, Copy)]
pub struct PolicyEntry {
    /// Name of the policy.
    pub name: &'static str,
    /// One-line description.
    pub description: &'static str,
    /// Parameters: `key=value` with the default value, and a description.
    pub params: &'static [(&'static str, &'static str)],
    /// Builds the policy from the parameters that it takes. The caller rejects the others.
    pub build: fn(&mut Params) -> Result<AnyPolicy, ParamsError>,
}

/// Why policies of another crate cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The name is that of another policy, or of a policy tree.
    #[error("policy `{0}` exists; expected another name")]
    NameInUse(&'static str),
    /// The name cannot be part of a specification.
    #[error("policy name `{0}` is invalid; expected letters, digits, `+` and `-`")]
    InvalidName(&'static str),
}

/// Policies of other crates. Entries are never freed, since callers keep them.
static REGISTERED: RwLock<Vec<&'static PolicyEntry>> = RwLock::new(Vec::new());

/// Adds policies of another crate to the table for the whole process. A policy of an earlier call with the same name is replaced, such as
/// one that is defined again in a notebook; replays that run keep the former one.
///
/// # Errors
/// If a name is invalid, that of a policy of this crate, or twice in `policies`. No policy is registered then.
pub fn register(policies: Vec<PolicyEntry>) -> Result<(), RegisterError> {
    for (position, PolicyEntry { name, .. }) in policies.iter().enumerate() {
        let others = POLICIES.iter().chain(&policies[..position]);
        if others.map(|entry| entry.name).chain(["tree"]).any(|other| other == *name) {
            return Err(RegisterError::NameInUse(name));
        }
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '+' || c == '-') {
            return Err(RegisterError::InvalidName(name));
        }
    }
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    for entry in policies {
        let entry: &'static PolicyEntry = Box::leak(Box::new(entry));
        match registered.iter_mut().find(|former| former.name == entry.name) {
            Some(former) => *former = entry,
            None => registered.push(entry),
        }
    }
    Ok(())
}

/// All policies: those of this crate, and the ones that are registered now.
pub fn all() -> impl Iterator<Item = &'static PolicyEntry> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone();
    POLICIES.iter().chain(registered)
}

/// Builds a policy from its specification, `name` or `name:key=value:key=value`. Decisions of registered policies are checked.
///
/// # Errors
/// The name, a parameter or a value is unknown or invalid. The error lists the known names.
pub fn build(spec: &str) -> Result<AnyPolicy, ParamsError> {
    build_from(Params::parse(spec)?, spec)
}

/// Builds the policy of `spec` from the parameters that are left.
pub(crate) fn build_from(mut params: Params, spec: &str) -> Result<AnyPolicy, ParamsError> {
    let entry = all().find(|e| e.name == params.name()).ok_or_else(|| ParamsError::UnknownPolicy {
        name: params.name().to_owned(),
        known: all().map(|e| e.name).collect::<Vec<_>>().join(", "),
    })?;
    let is_own = POLICIES.iter().any(|own| own.name == entry.name);
    let policy = (entry.build)(&mut params)?;
    params.reject_unknown()?;
    Ok(if is_own { policy } else { policy.checked(spec) })
}

/// The settings of a specification of the policy `django`; none of another policy.
///
/// # Errors
/// As for [`build`].
pub fn django_settings(spec: &str) -> Result<Option<django::Settings>, ParamsError> {
    let mut params = Params::parse(spec)?;
    if params.name() != "django" {
        return Ok(None);
    }
    let settings = settings_from_params(&mut params)?;
    params.reject_unknown()?;
    Ok(Some(settings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fifo::Fifo;

    #[test]
    fn description_states_whether_sizes_are_known() {
        for entry in crate::policy::POLICIES {
            let needs_sizes = build(entry.name).unwrap().needs_sizes();
            let expected = if needs_sizes { "needs flow sizes" } else { "sizes unknown" };
            assert!(entry.description.contains(expected), "{}: {expected}", entry.name);
        }
    }

    /// Also the only test that registers policies.
    #[test]
    fn registered_policy_is_in_the_table() {
        let entry = |name| PolicyEntry {
            name,
            description: "",
            params: &[],
            build: |params| Fifo::from_params(params).map(AnyPolicy::from),
        };
        for (names, expected) in [
            (&["own", "saath"][..], RegisterError::NameInUse("saath")),
            (&["own", "own"], RegisterError::NameInUse("own")),
            (&["tree"], RegisterError::NameInUse("tree")),
            (&["a:b"], RegisterError::InvalidName("a:b")),
            (&[""], RegisterError::InvalidName("")),
        ] {
            assert_eq!(register(names.iter().map(|name| entry(name)).collect()), Err(expected));
        }
        assert!(build("own-fifo").is_err());
        register(vec![entry("own-fifo")]).unwrap();
        assert!(all().any(|entry| entry.name == "own-fifo"));
        assert!(build("own-fifo").is_ok());
        assert!(matches!(build("own-fifo:x=1"), Err(ParamsError::UnknownKey { .. })));

        let refused = vec![entry("own-fifo-2"), entry("a:b")];
        assert_eq!(register(refused), Err(RegisterError::InvalidName("a:b")));
        assert!(build("own-fifo-2").is_err(), "a refused call registers nothing");
        let replaced = PolicyEntry { description: "replaced", ..entry("own-fifo") };
        register(vec![entry("own-fifo-2"), replaced]).unwrap();
        let own = all().filter(|entry| entry.name.starts_with("own-fifo"));
        let listed = own.map(|entry| (entry.name, entry.description)).collect::<Vec<_>>();
        assert_eq!(listed, [("own-fifo", "replaced"), ("own-fifo-2", "")]);
    }
}
