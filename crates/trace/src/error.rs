//! Errors of writing traces.

use std::io;

use weir_core::model::WorkloadError;

/// An error while writing a workload.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Writing to the output failed.
    #[error("the trace cannot be written: {0}")]
    Io(#[from] io::Error),
    /// The workload is inconsistent.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The format cannot express the workload.
    #[error("{subject} cannot be written in this format: {reason}")]
    Inexpressible {
        /// `coflow 7`, `event 3` or `the trace`.
        subject: String,
        /// What the format cannot express.
        reason: String,
    },
}
