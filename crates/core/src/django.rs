//! Django as state machines that exchange messages, for a network whose hosts decide on their own.
//!
//! Source: Zheng et al., "Django: Bilateral coflow scheduling with predictive concurrent connections", JPDC '21,
//! sections 4 and 5.1.
//!
//! - A [`Receiver`] on each host runs the local scheduler (Algorithm 2) and a micro scheduler for each reducer (Algorithm 3).
//! - The [`Tracker`] proposes mappers (Algorithm 4), and forwards messages to senders: hosts have no channel to each other.
//! - A [`Sender`] on each host knows which flows may send. An [`Uplink`] divides its link between them: the coflow with the fewest
//!   remaining bytes has priority.
//! - A [`ConnectionCount`] follows the loss of the connections to a host, and sets their number (section 4.1).
//!
//! | Message of Table 1 | from, to | here |
//! |---|---|---|
//! | REQ_CANDIDATE | reducer, tracker | [`Request::Candidates`], answered by [`Tracker::candidates`] |
//! | REPLY_CHOSEN | reducer, tracker | [`Request::Change`] with an odd version |
//! | SEND_START | tracker, mapper | [`Change`] with version 1 |
//! | SEND_PAUSE | reducer, tracker, mapper | [`Change`] with an even version |
//! | SEND_RECOVERY | tracker, mapper | [`Change`] with an odd version above 1 |
//!
//! The simulator's policy `django` makes the same decisions with exact state: Algorithm 2 is `local_scheduler`, Algorithm 3
//! `micro_scheduler`, Algorithm 4 `candidates`.
//!
//! Messages may be late, lost, repeated and in any order. Each change of a connection has a version, and only the newest one
//! counts. A receiver repeats a change until the sender has acknowledged it, and the opening of a connection while no bytes
//! arrive, because the sender may have restarted. The state machines read no clock: times are arguments, in seconds.
//!
//! - A restarted sender has version 0 of its flows. The receiver repeats the newest change after its time-out.
//! - After a restart of the tracker, hosts add their flows again and send [`Receiver::changes`].
//! - A restarted receiver starts above the versions of its predecessor ([`Receiver::with_first_version`]). Its host adds its
//!   flows again and sends [`Receiver::changes`], which close the connections of its predecessor.

pub(crate) mod candidates;
mod connection_count;
pub(crate) mod local_scheduler;
pub(crate) mod micro_scheduler;
mod receiver;
mod sender;
mod tracker;

pub use connection_count::{BufferPredictor, ConnectionCount, CountSettings};
pub use receiver::Receiver;
pub use sender::{Sender, Uplink};
pub use tracker::Tracker;

/// A reducer: a part of a coflow at a receiving host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReducerKey {
    /// The coflow.
    pub coflow: u64,
    /// The number of the reducer in its coflow.
    pub reducer: u32,
}

/// A flow: the bytes of one mapper for a reducer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    /// The receiving reducer.
    pub reducer: ReducerKey,
    /// The number of the flow at its reducer.
    pub flow: u32,
}

/// A receiver's decision about the connection of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The flow.
    pub flow: FlowKey,
    /// Rises by one with each decision, from 1. The connection sends if it is odd.
    pub version: u32,
}

impl Change {
    /// Whether the connection sends.
    pub fn is_open(self) -> bool {
        is_open(self.version)
    }
}

fn is_open(version: u32) -> bool {
    !version.is_multiple_of(2)
}

/// A message of a receiver to the tracker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Request {
    /// A request for mappers.
    Candidates(CandidateRequest),
    /// A change, for the tracker and the sender of the flow.
    Change(Change),
}

/// A reducer's request for mappers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CandidateRequest {
    /// The reducer.
    pub reducer: ReducerKey,
    /// The number of the request. The answer repeats it.
    pub number: u32,
    /// Whether the reducer is the prioritized one of its host.
    pub is_prioritized: bool,
    /// The capacity of the host's downlink, in bytes per second.
    pub downlink: f64,
    /// The residual capacity of the downlink, in bytes per second.
    pub vacant_downlink: f64,
}

/// The parameters of Algorithms 2 and 4.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Params {
    /// Reducers without priority get more connections if more than this fraction of the downlink is residual.
    pub alpha: f64,
    /// The fraction of a host's connections that is for the prioritized reducer.
    pub beta: f64,
    /// A reducer without priority gets another connection up to this fraction of the free connections.
    pub eta: f64,
    /// The bonus of senders that prioritize the reducer's coflow, as a fraction of their uplink.
    pub lambda: f64,
    /// The tracker proposes mappers to reducers without priority if more than this fraction of the downlink is residual.
    pub theta: f64,
}

/// What the policy `django` sets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The number of connections of each host's reducers; at least 1.
    pub connections: usize,
    /// The parameters.
    pub params: Params,
}

impl Params {
    /// The number of connections for the prioritized reducer of a host: the floor of beta m, at least 1.
    pub fn reserved_connections(&self, max_connections: usize) -> usize {
        ((self.beta * max_connections as f64) as usize).max(1)
    }
}

impl Default for Params {
    /// The values of section 6.1, where the fourth one, 0.5, is eta: section 4.2 says "a half of the number of free connections" of
    /// eta. The paper gives no theta.
    fn default() -> Params {
        Params { alpha: 0.1, beta: 0.7, eta: 0.5, lambda: 0.2, theta: 0.0 }
    }
}
