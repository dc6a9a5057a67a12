//! What a problem can be refused for.

use super::{MAX, MIN};

/// What is wrong with links, queues or classes; numbers are positions in their lists.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WfqError {
    /// A capacity that is none.
    #[error("link {link} has capacity {capacity}: expected 0 to {MAX:e}")]
    Capacity {
        /// The link.
        link: usize,
        /// Its capacity.
        capacity: f64,
    },
    /// A weight that is none.
    #[error("queue {queue} has weight {weight}: expected {MIN:e} to {MAX:e}")]
    Weight {
        /// The queue.
        queue: usize,
        /// Its weight.
        weight: f64,
    },
    /// A queue at a link that is not there.
    #[error("queue {queue} is at link {link}: expected a link below {links}")]
    Link {
        /// The queue.
        queue: usize,
        /// Its link.
        link: u32,
        /// How many links there are.
        links: usize,
    },
    /// A class in a queue that is not there.
    #[error("class {class} uses queue {queue}: expected a queue below {queues}")]
    Queue {
        /// The class.
        class: usize,
        /// The queue.
        queue: u32,
        /// How many queues there are.
        queues: usize,
    },
    /// A path that comes back to a link.
    #[error("class {class} crosses link {link} twice: expected once")]
    Loop {
        /// The class.
        class: usize,
        /// The link.
        link: u32,
    },
    /// A number of flows that is none.
    #[error("class {class} has {flows} flows: expected {MIN:e} to {MAX:e}")]
    Flows {
        /// The class.
        class: usize,
        /// How many.
        flows: f64,
    },
    /// A rate that is none.
    #[error("class {class} sends at {rate} bytes per second: expected 0 to {MAX:e}")]
    Rate {
        /// The class.
        class: usize,
        /// The rate.
        rate: f64,
    },
}
