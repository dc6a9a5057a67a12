//! What hosts are told, and what they tell.

use std::sync::Arc;

/// A flow: its coflow's id, and its place in the registration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    /// The coflow.
    pub coflow: Arc<str>,
    /// The place.
    pub flow: u32,
}

/// What a host is to do with a flow that it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// At most so many bytes per second; above zero.
    Rate(u64),
    /// As fast as the transport goes.
    Free,
    /// Nothing any more: the flow is over, or somebody else's.
    Gone,
}

/// What one host is to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// Which coordinator decided: of two, the one with the higher number is right.
    pub epoch: u64,
    /// Which of its decisions this is; rises by one from an order to a host to the next.
    pub seq: u64,
    /// How many seconds it holds without another. After that flows go as the transport lets them.
    pub lease: f64,
    /// Whether flows that are not named are gone; otherwise they go on as they were told before.
    pub whole: bool,
    /// In order of keys.
    pub flows: Vec<(FlowKey, Pace)>,
}

/// What a host saw of flows that it sends.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The last order that it carries out: epoch and number. Zeros before the first.
    pub obeys: (u64, u64),
    /// What it says of its flows.
    pub flows: Vec<Seen>,
}

/// What a host saw of one flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Which.
    pub key: FlowKey,
    /// All bytes that it has sent.
    pub sent: u64,
    /// Whether that was all.
    pub closed: bool,
}

/// How many parts of reports were not believed, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Doubts {
    /// Flows that nobody registered.
    pub unknown: u64,
    /// Flows that another host sends.
    pub foreign: u64,
    /// Counts that went back.
    pub backward: u64,
    /// Counts beyond what the host's link carries.
    pub beyond: u64,
    /// Flows of hosts that are not there.
    pub absent: u64,
}
