//! Errors of invalid problems.

use super::{MAX, MIN};

/// An invalid link, queue or class. Numbers are indices into the lists of the problem.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WfqError {
    /// A capacity is out of range.
    #[error("link {link} has capacity {capacity}: expected 0 to {MAX:e}")]
    InvalidCapacity {
        /// The link.
        link: usize,
        /// Its capacity.
        capacity: f64,
    },
    /// A weight is out of range.
    #[error("queue {queue} has weight {weight}: expected {MIN:e} to {MAX:e}")]
    InvalidWeight {
        /// The queue.
        queue: usize,
        /// Its weight.
        weight: f64,
    },
    /// A queue is at an unknown link.
    #[error("queue {queue} is at link {link}: expected a link below {links}")]
    UnknownLink {
        /// The queue.
        queue: usize,
        /// Its link.
        link: u32,
        /// Number of links.
        links: usize,
    },
    /// A class uses an unknown queue.
    #[error("class {class} uses queue {queue}: expected a queue below {queues}")]
    UnknownQueue {
        /// The class.
        class: usize,
        /// The queue.
        queue: u32,
        /// Number of queues.
        queues: usize,
    },
    /// A path crosses a link twice.
    #[error("class {class} crosses link {link} twice: expected once")]
    RepeatedLink {
        /// The class.
        class: usize,
        /// The link.
        link: u32,
    },
    /// A number of flows is out of range.
    #[error("class {class} has {flows} flows: expected {MIN:e} to {MAX:e}")]
    InvalidFlowCount {
        /// The class.
        class: usize,
        /// Its number of flows.
        flows: f64,
    },
    /// A rate is out of range.
    #[error("class {class} sends at {rate} bytes per second: expected 0 to {MAX:e}")]
    InvalidRate {
        /// The class.
        class: usize,
        /// The rate, in bytes per second.
        rate: f64,
    },
}
