//! What a coordinator and the agents of hosts say to each other.
//!
//! [`Order`] and [`Report`] are what both sides work with. [`wire`] is how they travel: made from `proto/weir/agent.proto`, and
//! turned into the former only if it can be meant. Limits on lengths hold before memory is taken: a message of [`MAX_REPORT`] or
//! [`MAX_ORDER`] bytes takes at most some twenty times that while it is read.

mod conflict;
mod order;
mod pack;
mod totals;

use std::time::Duration;

pub use conflict::{Conflict, Reason};
pub use order::{
    Arrival, Demand, FlowKey, FlowProgress, Found, Limit, Mark, Order, Pace, Queues, Report, Way,
    estimate_sent, is_id,
};
pub use pack::Malformed;
pub use totals::Totals;
pub use wire::{Refusals, Restored};

/// The bytes of a full packet: 1,500, and the Ethernet header. Links count these.
pub const FRAME: u32 = 1514;

/// What a full packet has for a program: TCP with time stamps over IPv4.
pub const PAYLOAD: u32 = 1448;

/// Messages as they are encoded: generated from `proto/weir/agent.proto`.
pub mod wire {
    #![allow(missing_docs, reason = "the description has them")]
    #![allow(clippy::large_enum_variant, reason = "nearly all messages are the large ones")]
    include!("generated/weir.agent.rs");
}

/// The longest lease of an order.
pub const MAX_LEASE: Duration = Duration::from_secs(60);

/// The longest id of a coflow or an application, in bytes.
pub const MAX_ID_LENGTH: usize = 128;

/// The most flows that a host has at a time, and so an order names.
pub const MAX_FLOWS: usize = 1 << 20;

/// The most flows in one report; the rest goes into the next.
pub const MAX_SEEN: usize = 1 << 14;

/// The most applications of a host with other hosts that are known of at a time, and so the most in a report, and of limits in force.
pub const MAX_FOUND: usize = 1 << 12;

/// The most ways by which a host measures what arrives, or limits what it sends, and so the most in a report or an order.
pub const MAX_WAYS: usize = 1 << 10;

/// The maximum number of conflicts in a report. An agent leaves out the others.
pub const MAX_CONFLICTS: usize = 64;

/// The longest report on the wire, in bytes: room for [`MAX_SEEN`] flows and [`MAX_FOUND`] others, each with the longest id, and
/// [`MAX_WAYS`].
pub const MAX_REPORT: usize = 4 << 20;

/// The longest order on the wire, in bytes.
pub const MAX_ORDER: usize = 32 << 20;

/// The most ports of a switch.
pub const MAX_PORTS: usize = 1 << 10;

/// The most classes of packets: each has one of the 63 marks (DSCP) other than none.
pub const MAX_CLASSES: usize = 63;

/// The most interfaces, and queues and classes of all of them, that an order names.
pub const MAX_QUEUES: usize = MAX_PORTS * (MAX_CLASSES + 1);

/// The most applications at once, and so the most that an order gives classes.
pub const MAX_APPLICATIONS: usize = 1 << 12;
