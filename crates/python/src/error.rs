//! Failures as exceptions.

use pyo3::PyErr;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use weir_console::failure::Failure;

/// The exception for a failure: `ValueError` for invalid input, else `RuntimeError`.
pub fn to_exception(failure: Failure) -> PyErr {
    match failure.exit_code {
        2 => PyValueError::new_err(failure.message),
        _ => PyRuntimeError::new_err(failure.message),
    }
}
