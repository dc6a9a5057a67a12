//! Exceptions of policies.

use std::cell::RefCell;

use pyo3::prelude::*;

thread_local! {
    /// The last exception of a policy in this thread.
    static LAST_ERROR: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Keeps the exception of a policy for the driver of the replay, which runs in the same thread.
pub(super) fn keep_python_error(error: PyErr) {
    LAST_ERROR.replace(Some(error));
}

/// The exception of a policy that caused a failure with this message in this thread. Returns the exception once.
pub fn take_python_error(py: Python<'_>, message: &str) -> Option<PyErr> {
    // Policies are also built to list those that a tree can have. Their exceptions cause no failure.
    LAST_ERROR.take().filter(|error| message.contains(&describe(py, error)))
}

/// An exception as one line: its type, and its text if it has one.
pub(super) fn describe(py: Python<'_>, error: &PyErr) -> String {
    let kind = error.get_type(py).name().map_or_else(|_| "an exception".to_owned(), |name| name.to_string());
    let text =
        error.value(py).str().map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() { kind } else { format!("{kind}: {text}") }
}
