//! Computes the points of a sweep.

use weir_console::failure::Failure;
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
