//! The points of a sweep, and the policies at each of them.

use weir_console::failure::Failure;
use weir_console::spec;
use weir_core::policy::ParamsError;

use crate::args::{Setting, Vary};
use crate::network::Network;

/// A combination of values.
#[derive(Clone)]
pub struct Point {
    /// The values as given, in the order of their keys.
    pub values: Vec<String>,
    /// The network with its values set.
    pub network: Network,
    /// Arrivals are so many times as fast as in the trace.
    pub speed: f64,
    /// Values for the policies that have such parameters.
    pub params: Vec<(String, String)>,
}

/// All combinations of values, the last key changing fastest.
///
/// # Errors
/// If there are too many keys, or one does not exist on the network.
pub fn grid(vary: &[Vary], network: &Network) -> Result<Vec<Point>, Failure> {
    match vary {
        [_] => {}
        [first, second] if first.key != second.key => {}
        [first, _] => return Err(Failure::input(format_args!("--vary: `{}` is given twice", first.key))),
        _ => return Err(Failure::input("--vary: expected one or two parameters")),
    }
    let start = Point { values: Vec::new(), network: network.clone(), speed: 1.0, params: Vec::new() };
    let mut points = vec![start];
    for Vary { key, values } in vary {
        let mut extended = Vec::new();
        for (point, (value, setting)) in
            points.iter().flat_map(|point| values.iter().map(move |v| (point, v)))
        {
            let mut point = point.clone();
            point.values.push(value.clone());
            match *setting {
                Setting::Policy => point.params.push((key.clone(), value.clone())),
                Setting::Arrival(speed) => point.speed = speed,
                setting if point.network.set(setting) => {}
                _ => {
                    return Err(Failure::input(format_args!(
                        "--vary: `{key}` does not exist on this network; expected {}, or a parameter of a policy",
                        network.parameters()
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
pub struct Spec {
    /// The policy with its parameters.
    pub text: String,
    /// Which of the point's parameters it has.
    has: Vec<bool>,
}

/// A policy with those of the parameters that it has.
///
/// # Errors
/// If a value does not fit.
pub fn with_params(policy: &str, params: &[(String, String)], network: &Network) -> Result<Spec, Failure> {
    let mut spec = Spec { text: policy.to_owned(), has: Vec::new() };
    let is_tree = spec::tree(policy).is_some();
    for (key, value) in params {
        let extended = format!("{}:{key}={value}", spec.text);
        let has = !is_tree
            && match network.check_policy(&extended) {
                Ok(()) => true,
                Err(ParamsError::UnknownKey { .. }) => false,
                Err(error) => return Err(Failure::input(format_args!("--vary: {error}"))),
            };
        if has {
            spec.text = extended;
        }
        spec.has.push(has);
    }
    Ok(spec)
}

/// Refuses a parameter that no policy has.
///
/// # Errors
/// If there is one.
pub fn check_params(params: &[(String, String)], specs: &[Spec], network: &Network) -> Result<(), Failure> {
    let unknown = params.iter().zip(0..).find(|(_, at)| !specs.iter().any(|spec| spec.has[*at]));
    let Some(((key, _), _)) = unknown else { return Ok(()) };
    Err(Failure::input(format_args!(
        "--vary: no policy has a parameter `{key}`; expected {}, or a parameter of a policy (`weir policies NAME`)",
        network.parameters()
    )))
}
