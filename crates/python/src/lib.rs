//! The native module `weir._native`: the simulator for Python. The package `weir` gives it the interface that users see.

use pyo3::prelude::*;

/// The native module.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
