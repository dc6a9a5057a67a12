//! The native module `weir._native`: the simulator for Python. The package `weir` gives it the interface that users see.

use pyo3::prelude::*;
use weir_console::confidence_interval::ConfidenceInterval;
use weir_experiment::varied_params::{add_supported_params, describe_unsupported};

mod argument;
mod comparison;
mod error;
mod explanation;
mod fabric;
mod frame;
mod generation;
mod keywords;
mod network;
mod policy;
mod reading;
mod replays;
mod table;
mod trace;
mod workload_table;

/// A specification of a policy with varied parameters, for each parameter whether the policy supports it, and why not.
type PolicyAtPoint = (String, Vec<bool>, Option<String>);

/// The native module.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::comparison::{Comparison, check, compare};
    #[pymodule_export]
    use super::explanation::Explanation;
    #[pymodule_export]
    use super::fabric::Fabric;
    #[pymodule_export]
    use super::policy::{PolicyView, register_policy};
    #[pymodule_export]
    use super::table::Table;
    #[pymodule_export]
    use super::trace::Trace;

    /// The mean of values, and the distance from it to each end of its 95 % confidence interval; none without values.
    #[pyfunction]
    fn confidence_interval(values: Vec<f64>) -> Option<(f64, f64)> {
        if values.is_empty() {
            return None;
        }
        let ConfidenceInterval { mean, half_width } = ConfidenceInterval::from_values(&values);
        Some((mean, half_width))
    }

    /// A policy at points of a sweep, which have keys and values of varied parameters. For each point: the policy with the parameters
    /// that it supports, for each parameter whether it does, and why it does not use one that it has.
    #[pyfunction]
    fn vary_policy(policy: &str, points: Vec<Vec<(String, String)>>) -> error::Result<Vec<PolicyAtPoint>> {
        let vary = |params: &Vec<(String, String)>| {
            let spec = add_supported_params(policy, params).map_err(error::Error::input)?;
            Ok((spec.spec_text, spec.supports_param, spec.unused_param))
        };
        points.iter().map(vary).collect()
    }

    /// Why none of the policies supports a parameter. `others` names what else can vary.
    #[pyfunction]
    fn describe_unsupported_parameter(key: &str, others: &str) -> String {
        describe_unsupported(key, others)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
