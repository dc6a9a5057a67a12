//! The native module `weir._native`: the simulator for Python. The package `weir` gives it the interface that users see.

use pyo3::prelude::*;
use weir_console::confidence_interval::ConfidenceInterval;

mod argument;
mod comparison;
mod error;
mod explanation;
mod fabric;
mod frame;
mod generation;
mod network;
mod policy;
mod reading;
mod replays;
mod table;
mod trace;
mod workload_table;

/// The native module.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::comparison::{Comparison, compare};
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

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
