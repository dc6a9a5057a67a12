//! Parameters of policies that a sweep varies.

use weir_console::policy_spec;
use weir_core::policy::{self, ParamsError, PolicyEntry};

/// A policy at a point.
pub struct PolicySpec {
    /// The policy with its own parameters, and those of the point that it supports.
    pub spec_text: String,
    /// For each parameter of the point, whether the policy supports it.
    pub supports_param: Vec<bool>,
    /// Why the policy does not use a parameter that it has, as a message.
    pub unused_param: Option<String>,
}

/// Adds to a policy the parameters that it supports. Policy trees support none. A key `NAME:KEY` is that of one policy only.
///
/// # Errors
/// If the policy refuses a value.
pub fn add_supported_params(policy: &str, params: &[(String, String)]) -> Result<PolicySpec, ParamsError> {
    let is_tree = policy_spec::tree_file(policy).is_some();
    let own_param = |(key, value): &(String, String)| {
        let (name, key) = key.split_once(':').map_or((None, &**key), |(name, key)| (Some(name), key));
        let is_own = !is_tree && name.is_none_or(|name| policy.split(':').next() == Some(name));
        is_own.then(|| (key.to_owned(), value.clone()))
    };
    let mut added: Vec<Option<(String, String)>> = params.iter().map(own_param).collect();
    let mut unused_param = None;
    // All of them together, since one can need another. Each round removes one that the policy does not take.
    loop {
        let text = added.iter().flatten().map(|(key, value)| format!(":{key}={value}"));
        let spec_text = policy.to_owned() + &text.collect::<String>();
        let error = match if is_tree { None } else { policy::build(&spec_text).err() } {
            None => {
                let supports_param = added.iter().map(Option::is_some).collect();
                return Ok(PolicySpec { spec_text, supports_param, unused_param });
            }
            Some(error) => error,
        };
        let refused = match &error {
            ParamsError::UnknownKey { key, .. } => Some(key),
            ParamsError::HasNoEffect { key, .. } => {
                unused_param = Some(error.to_string());
                Some(key)
            }
            _ => None,
        };
        let is_refused = |param: &&mut Option<(String, String)>| {
            param.as_ref().is_some_and(|(key, _)| Some(key) == refused)
        };
        match added.iter_mut().find(is_refused) {
            Some(param) => *param = None,
            None => return Err(error),
        }
    }
}

/// Checks that at least one policy supports each parameter. `specs` are the policies at all points, and `others` names what else can vary.
///
/// # Errors
/// If no policy supports a parameter: why, without the option.
pub fn check_params(params: &[(String, String)], specs: &[PolicySpec], others: &str) -> Result<(), String> {
    let unsupported =
        params.iter().enumerate().find(|(index, _)| !specs.iter().any(|spec| spec.supports_param[*index]));
    let Some((_, (key, _))) = unsupported else { return Ok(()) };
    Err(specs
        .iter()
        .find_map(|spec| spec.unused_param.clone())
        .unwrap_or_else(|| describe_unsupported(key, others)))
}

/// Why none of the policies supports a parameter. `others` names what else can vary.
pub fn describe_unsupported(key: &str, others: &str) -> String {
    let name = key.rsplit(':').next().unwrap_or(key);
    let has_param =
        |entry: &&PolicyEntry| entry.params.iter().any(|(param, _)| param.split('=').next() == Some(name));
    let owners: Vec<&str> = policy::all().filter(has_param).map(|entry| entry.name).collect();
    match owners.is_empty() {
        false => format!(
            "none of the policies has a parameter `{key}`; help: add one that has it: {}",
            owners.join(", ")
        ),
        true => format!(
            "no policy has a parameter `{key}`; expected {others}, or a parameter of a policy (`weir policies NAME`)"
        ),
    }
}
