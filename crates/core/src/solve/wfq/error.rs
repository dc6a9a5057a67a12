//! Errors of invalid problems.

use super::{MAX_VALUE, MIN_VALUE};

/// An invalid link, queue or class. Numbers are indices into the lists of the problem.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WfqError {
    /// A capacity is out of range.
    #[error("link {link}: capacity {capacity} B/s is out of range; expected 0 to {MAX_VALUE:e}")]
    InvalidCapacity {
        /// The link.
        link: usize,
        /// Its capacity.
        capacity: f64,
    },
    /// A weight is out of range.
    #[error("queue {queue}: weight {weight} is out of range; expected {MIN_VALUE:e} to {MAX_VALUE:e}")]
    InvalidWeight {
        /// The queue.
        queue: usize,
        /// Its weight.
        weight: f64,
    },
    /// A queue is at an unknown link.
    #[error("queue {queue}: link {link} does not exist; expected a number below {links}")]
    UnknownLink {
        /// The queue.
        queue: usize,
        /// Its link.
        link: u32,
        /// Number of links.
        links: usize,
    },
    /// A class uses an unknown queue.
    #[error("class {class}: queue {queue} does not exist; expected a number below {queues}")]
    UnknownQueue {
        /// The class.
        class: usize,
        /// The queue.
        queue: u32,
        /// Number of queues.
        queues: usize,
    },
    /// A path crosses a link twice.
    #[error("class {class}: path crosses link {link} twice; expected each link once")]
    RepeatedLink {
        /// The class.
        class: usize,
        /// The link.
        link: u32,
    },
    /// A number of flows is out of range.
    #[error("class {class}: {flows} flows is out of range; expected {MIN_VALUE:e} to {MAX_VALUE:e}")]
    InvalidFlowCount {
        /// The class.
        class: usize,
        /// Its number of flows.
        flows: f64,
    },
    /// A rate is out of range.
    #[error("class {class}: rate {rate} B/s is out of range; expected 0 to {MAX_VALUE:e}")]
    InvalidRate {
        /// The class.
        class: usize,
        /// The rate, in bytes per second.
        rate: f64,
    },
}
