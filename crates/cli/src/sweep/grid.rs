//! Computes the points of a sweep, and the policies at each point.

use weir_console::failure::Failure;
use weir_console::policy_spec;
use weir_core::policy::{self, ParamsError, PolicyEntry};
use weir_experiment::comparison::first_repeated;
use weir_experiment::network::Network;

use super::combined::SAMPLED_KEYS;
use crate::args::{VariedParameter, VariedSetting};

/// A combination of one value per varied parameter.
#[derive(Clone)]
pub struct Point {
    /// The values as given, in the order of their keys.
    pub values: Vec<String>,
    /// The network with the values of its parameters.
    pub network: Network,
    /// The factor by which coflows arrive faster than in the trace.
    pub arrival_factor: f64,
    /// The keys and values of varied policy parameters.
    pub params: Vec<(String, String)>,
}

/// All combinations of values. The value of the last key changes fastest.
///
/// # Errors
/// If there are more than two keys other than seeds, a key is repeated, or a parameter does not exist on the network.
pub fn grid(vary: &[VariedParameter], network: &Network) -> Result<Vec<Point>, Failure> {
    let keys: Vec<String> = vary.iter().map(|parameter| parameter.key.clone()).collect();
    if let Some(key) = first_repeated(&keys) {
        return Err(Failure::input(format_args!(
            "--vary: `{key}` is given twice; expected different parameters"
        )));
    }
    if keys.iter().filter(|key| !SAMPLED_KEYS.contains(&key.as_str())).count() > 2 {
        return Err(Failure::input(
            "--vary: expected one or two parameters in addition to seeds, or several traces",
        ));
    }
    let start =
        Point { values: Vec::new(), network: network.clone(), arrival_factor: 1.0, params: Vec::new() };
    let mut points = vec![start];
    for VariedParameter { key, values } in vary {
        let mut extended = Vec::new();
        for (point, (value, setting)) in
            points.iter().flat_map(|point| values.iter().map(move |v| (point, v)))
        {
            let mut point = point.clone();
            point.values.push(value.clone());
            match *setting {
                VariedSetting::Policy => point.params.push((key.clone(), value.clone())),
                VariedSetting::Arrival(factor) => point.arrival_factor = factor,
                VariedSetting::Network(parameter) if point.network.set_parameter(parameter)? => {}
                VariedSetting::Network(_) => {
                    return Err(Failure::input(format_args!(
                        "--vary: `{key}` does not exist on this network; expected {}, or a parameter of a policy",
                        network.sweep_parameters()
                    )));
                }
            }
            extended.push(point);
        }
        points = extended;
    }
    Ok(points)
}

/// A policy at a point.
pub struct PolicySpec {
    /// The policy with its own parameters, and those of the point that it supports.
    pub spec_text: String,
    /// For each parameter of the point, whether the policy supports it.
    supports_param: Vec<bool>,
    /// Why the policy does not use a parameter that it has, as a message.
    unused_param: Option<String>,
}

/// Adds to a policy the parameters that it supports. Policy trees support none. A key `NAME:KEY` is that of one policy only.
///
/// # Errors
/// If the policy refuses a value.
pub fn add_supported_params(policy: &str, params: &[(String, String)]) -> Result<PolicySpec, Failure> {
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
            None => return Err(Failure::input(format_args!("--vary: {error}"))),
        }
    }
}

/// Checks that at least one policy supports each parameter at one of the points. `specs` are the policies at each point.
///
/// # Errors
/// If no policy supports a parameter.
pub fn check_params(
    params: &[(String, String)],
    specs: &[Vec<PolicySpec>],
    network: &Network,
) -> Result<(), Failure> {
    let all = || specs.iter().flatten();
    let unsupported =
        params.iter().enumerate().find(|(index, _)| !all().any(|spec| spec.supports_param[*index]));
    let Some((_, (key, _))) = unsupported else { return Ok(()) };
    if let Some(reason) = all().find_map(|spec| spec.unused_param.as_ref()) {
        return Err(Failure::input(format_args!("--vary: {reason}")));
    }
    let name = key.rsplit(':').next().unwrap_or(key);
    let has_param =
        |entry: &&PolicyEntry| entry.params.iter().any(|(param, _)| param.split('=').next() == Some(name));
    let owners: Vec<&str> = policy::all().filter(has_param).map(|entry| entry.name).collect();
    if !owners.is_empty() {
        return Err(Failure::input(format_args!(
            "--vary: no policy of --policies has a parameter `{key}`; help: add one that has it: {}",
            owners.join(", ")
        )));
    }
    Err(Failure::input(format_args!(
        "--vary: no policy has a parameter `{key}`; expected {}, or a parameter of a policy (`weir policies NAME`)",
        network.sweep_parameters()
    )))
}
