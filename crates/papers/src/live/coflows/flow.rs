//! A flow of a coflow, and its end.

use std::sync::Arc;

use tokio::time::Instant;
use weir_client::Agent;
use weir_testbed::Node;

/// A flow between two hosts.
pub struct Flow {
    /// The sender and the receiver.
    pub ends: [Node; 2],
    /// Paces the flow, if any.
    pub agent: Option<Arc<Agent>>,
    pub coflow: String,
    pub flow: u32,
    pub bytes: u64,
}

/// The end of a flow: when its last byte was read, and whether the flow was scheduled then.
pub struct FlowEnd {
    pub time: Instant,
    pub is_scheduled: bool,
}
