//! Django's predictor: predicts from the packet loss at a receiver how many concurrent connections it should have.
//!
//! Zheng et al., "Django: Bilateral coflow scheduling with predictive concurrent connections", JPDC '21, section 4.1. The
//! buffer of a switch cannot be queried, but its losses reveal it: the smaller the buffer, the higher the loss of the same
//! incast. The predictor uses three steps:
//!
//! 1. [`data`]: losses are measured at known buffers.
//! 2. [`Predictor`]: a classifier learns to predict the buffer from the loss (Algorithm 1: C-SVC, one against one), or from the
//!    loss and the number of connections, if that differs between measurements.
//! 3. [`max_connections`]: DCTCP's theorem gives the number of connections that fit into a buffer.
//!
//! [`mod@file`] stores a trained [`Model`] with its origin.
//!
//! Choices that the paper leaves open:
//!
//! - *Kernel and parameters*: the paper uses LibSVM, so LibSVM's defaults apply: a Gaussian kernel, C = 1, gamma = 1.
//! - *Scaling*: Algorithm 1 scales all records before it splits them. Here only the training records determine the losses
//!   that are scaled to -1 and 1, so that test records do not influence the predictor that they test.
//! - *Several numbers of connections*: the loss of a live host is that of the connections that it has at the time, so their
//!   number is a second feature. The paper trains for one number.
//! - *Features outside the training range* are set to its nearest end. Far from all records a Gaussian kernel carries no
//!   information, while a loss above all others still indicates the smallest buffer.
//! - *Votes*: of classes with equal votes, the smallest buffer wins, which opens fewer connections.

pub mod data;
pub mod file;

mod classifier;
mod model;
mod predictor;

pub use classifier::{
    BinaryClassifier, MAX_PARAMETER, ScaledFeatures, SupportVector, TrainingSettingError, TrainingSettings,
};
pub use data::{Loss, LossError, Record, Records};
pub use model::{BufferAccuracy, Model, Training};
pub use predictor::{FeatureScale, Prediction, Predictor, TrainError};

/// The number of connections that fit into a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimit {
    /// Number of connections, at least 1.
    pub connections: u32,
    /// Whether the theorem gives 0; `connections` is then 1, which a receiver needs to receive anything.
    pub is_clamped: bool,
}

/// Theorem 4.1, q = k + n: the number of connections `n` that fit into a buffer of `q` packets if switches mark from `k`
/// packets.
///
/// If k >= q, the buffer is full before the switch marks a packet, so any number of connections loses packets. The result
/// is then 1, which loses least.
pub fn max_connections(buffer: u32, threshold: u32) -> ConnectionLimit {
    let fit = buffer.saturating_sub(threshold);
    ConnectionLimit { connections: fit.max(1), is_clamped: fit == 0 }
}
