//! Defines the messages between a coordinator and its agents.
//!
//! Coordinators and agents use [`Order`] and [`Report`]. [`wire`] is the encoding, generated from `proto/weir/agent.proto`; a decoded
//! message becomes an [`Order`] or [`Report`] only if it is valid. Lengths are checked before memory is allocated: a message of
//! [`MAX_REPORT`] or [`MAX_ORDER`] bytes takes at most about twenty times that while it is read.

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

/// The bytes of a full packet: 1,500, and the Ethernet header. Link rates count whole packets.
pub const FRAME: u32 = 1514;

/// The payload of a full packet: TCP with timestamps over IPv4, in bytes.
pub const PAYLOAD: u32 = 1448;

/// The encoded messages, generated from `proto/weir/agent.proto`.
pub mod wire {
    #![allow(missing_docs, reason = "the description has them")]
    #![allow(clippy::large_enum_variant, reason = "nearly all messages are the large ones")]
    include!("generated/weir.agent.rs");
}

/// The maximum lease of an order.
pub const MAX_LEASE: Duration = Duration::from_secs(60);

/// The maximum length of the id of a coflow or an application, in bytes.
pub const MAX_ID_LENGTH: usize = 128;

/// The maximum number of active flows of a host, and of flows in an order.
pub const MAX_FLOWS: usize = 1 << 20;

/// The maximum number of flows in a report. The next report contains further flows.
pub const MAX_SEEN: usize = 1 << 14;

/// The maximum number of pairs of an application and a peer that a host observes, and of such pairs in a report or with a limit.
pub const MAX_FOUND: usize = 1 << 12;

/// The maximum number of [`Way`]s that a host measures or limits, and of arrivals in a report or order.
pub const MAX_WAYS: usize = 1 << 10;

/// The maximum number of conflicts in a report. An agent leaves out the others.
pub const MAX_CONFLICTS: usize = 64;

/// The maximum length of an encoded report, in bytes: room for [`MAX_SEEN`] flows and [`MAX_FOUND`] observed pairs, each with the longest
/// id, and [`MAX_WAYS`] arrivals.
pub const MAX_REPORT: usize = 4 << 20;

/// The maximum length of an encoded order, in bytes.
pub const MAX_ORDER: usize = 32 << 20;

/// The maximum number of ports of a switch.
pub const MAX_PORTS: usize = 1 << 10;

/// The maximum number of classes of packets: marks (DSCP) 1 to 63.
pub const MAX_CLASSES: usize = 63;

/// The maximum number of interfaces in an order, and of all queues and of all classes in it.
pub const MAX_QUEUES: usize = MAX_PORTS * (MAX_CLASSES + 1);

/// The maximum number of applications, and of applications with classes in an order.
pub const MAX_APPLICATIONS: usize = 1 << 12;
