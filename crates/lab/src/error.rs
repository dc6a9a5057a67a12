//! The errors of experiments.

use std::io;

use weir_agent::batch::BatchError;
use weir_testbed::network::NetworkError;

/// Why an experiment failed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// `ip` or `tc` failed.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A network of namespaces cannot be created or changed.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A call of the operating system failed.
    #[error("{action}: {error}")]
    System {
        /// The attempted action.
        action: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A signal asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// An input is invalid, or a program behaved unexpectedly.
    #[error("{0}")]
    Other(String),
}

impl LabError {
    /// A function that wraps an error of the operating system.
    pub fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        |error| LabError::System { action: action.into(), error }
    }
}
