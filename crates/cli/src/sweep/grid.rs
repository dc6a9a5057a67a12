//! Computes the points of a sweep, and the policies at each point.

use weir_console::failure::Failure;
use weir_console::policy_spec;
use weir_core::policy::{self, ParamsError};

use crate::args::{VariedParameter, VariedSetting};
use crate::network::Network;

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
/// If there are more than two keys, a key is repeated, or a parameter does not exist on the network.
pub fn grid(vary: &[VariedParameter], network: &Network) -> Result<Vec<Point>, Failure> {
    match vary {
        [] | [_] => {}
        [first, second] if first.key != second.key => {}
        [first, _] => {
            return Err(Failure::input(format_args!(
                "--vary: `{}` is given twice; expected two different parameters",
                first.key
            )));
        }
        _ => return Err(Failure::input("--vary: expected one or two parameters, or several traces")),
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
                setting if point.network.set_parameter(setting)? => {}
                _ => {
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
}

/// Adds to a policy the parameters that it supports. Policy trees support none. A key `NAME:KEY` is that of one policy only.
///
/// # Errors
/// If the policy refuses a value.
pub fn add_supported_params(policy: &str, params: &[(String, String)]) -> Result<PolicySpec, Failure> {
    let mut spec = PolicySpec { spec_text: policy.to_owned(), supports_param: Vec::new() };
    let is_tree = policy_spec::tree_file(policy).is_some();
    for (key, value) in params {
        let (owner, key) = key.split_once(':').map_or((None, key.as_str()), |(name, key)| (Some(name), key));
        let is_owner = owner.is_none_or(|name| policy.split(':').next() == Some(name));
        let extended = format!("{}:{key}={value}", spec.spec_text);
        let is_supported = !is_tree
            && is_owner
            && match policy::build(&extended) {
                Ok(_) => true,
                Err(ParamsError::UnknownKey { .. } | ParamsError::HasNoEffect { .. }) => false,
                Err(error) => return Err(Failure::input(format_args!("--vary: {error}"))),
            };
        if is_supported {
            spec.spec_text = extended;
        }
        spec.supports_param.push(is_supported);
    }
    Ok(spec)
}

/// Checks that at least one policy supports each parameter.
///
/// # Errors
/// If no policy supports a parameter.
pub fn check_params(
    params: &[(String, String)],
    specs: &[PolicySpec],
    network: &Network,
) -> Result<(), Failure> {
    let unsupported =
        params.iter().zip(0..).find(|(_, index)| !specs.iter().any(|spec| spec.supports_param[*index]));
    let Some(((key, _), _)) = unsupported else { return Ok(()) };
    Err(Failure::input(format_args!(
        "--vary: no policy has a parameter `{key}`; expected {}, or a parameter of a policy (`weir policies NAME`)",
        network.sweep_parameters()
    )))
}
