//! Django's predictor: how many connections a receiver should have, by the part of its packets that is lost.
//!
//! Zheng et al., "Django: Bilateral coflow scheduling with predictive concurrent connections", JPDC '21, section 4.1. A switch's buffer
//! cannot be asked for, but its losses show it: the smaller the buffer, the more is lost of the same incast. So losses are measured at known
//! buffers ([`data`]), a classifier learns to tell the buffers apart (Algorithm 1: C-SVC, one against one, [`Predictor`]), and the theorem
//! of DCTCP says how many connections fit into a buffer ([`connections`]).
//!
//! What the paper leaves open:
//!
//! - *The kernel and its parameters.* It uses LibSVM, so those are LibSVM's where nothing else is said: Gaussian, C = 1, gamma = 1.
//! - *Scaling.* Algorithm 1 scales all records before it divides them. Here the training records alone say what -1 and 1 are, so that those
//!   that test have no part in what they test.
//! - *Losses beyond those of training* are taken as the nearest of them: far from all records a Gaussian kernel says nothing, and a
//!   loss above all others still means the smallest buffer.
//! - *Votes.* Of classes with as many votes the smallest buffer wins, which opens fewer connections.
//!
//! [`mod@file`] keeps a trained [`Model`] with where it comes from.

pub mod data;
pub mod file;

mod machine;
mod model;
mod predictor;

pub use data::{Loss, LossError, Record, Records};
pub use machine::{MAX_PARAMETER, Machine, SettingError, Settings, Vector};
pub use model::{BufferAccuracy, Model, Training};
pub use predictor::{Answer, Predictor, Scale, TrainError};

/// How many connections fit into a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// How many, at least 1.
    pub connections: u32,
    /// Whether the theorem says none, and 1 is what a receiver needs to get anything.
    pub least: bool,
}

/// Theorem 4.1, q = k + n: how many connections `n` fit into a buffer of `q` packets if switches mark from `k` packets on.
///
/// With k >= q the buffer is full before a packet is marked, so no number of connections is without losses. Then one is the answer, which
/// loses least.
pub fn connections(buffer: u32, threshold: u32) -> Fit {
    let fit = buffer.saturating_sub(threshold);
    Fit { connections: fit.max(1), least: fit == 0 }
}
