//! Defines the messages between a coordinator and its agents, and those between a coordinator and its [relays](relay).
//!
//! Coordinators and agents use [`Order`] and [`Report`]. [`wire`] is the encoding, generated from `proto/weir/agent.proto`; a
//! decoded message becomes an [`Order`] or [`Report`] only if it is valid. Lengths are checked before memory is allocated: a
//! message of [`MAX_REPORT_BYTES`] or [`MAX_ORDER_BYTES`] bytes takes at most about twenty times its length in memory while it is
//! decoded.

mod conflict;
mod encoding;
mod matching;
mod network;
mod order;
pub mod relay;
mod totals;
mod traffic;

use std::ops::RangeInclusive;
use std::time::Duration;

pub use conflict::{ALL_INTERFACES, Conflict, ConflictReason};
pub use encoding::{MessageError, is_label_part};
pub use matching::{
    Answer, ConnectionChange, FlowSegments, MatchedFlow, MatchingOrder, MatchingReport, Question,
};
pub use network::{InvalidNetwork, Network, NetworkTable};
pub use order::{
    BandwidthLimit, Demand, FlowKey, FlowProgress, Limit, Mark, ObservedConnections, Order, OrderedRate,
    Queues, RateBounds, Report, SenderState, UdpControl, UdpFlow, UdpLimit, UdpMeasurement,
    UnclassifiedShare, UnscheduledReason, estimate_sent_bytes, is_id,
};
pub use totals::CounterTotals;
pub use traffic::{
    ApplicationTraffic, CgroupPattern, EXPECTED_POD, cgroup_patterns, matches_component, pod_rule,
};
pub use weir_core::model::link_budget::{FRAME_BYTES, PAYLOAD_BYTES};
pub use wire::{RefusedOrders, RestoredObjects};

/// The encoded messages, generated from `proto/weir/agent.proto`.
pub mod wire {
    #![allow(missing_docs, reason = "agent.proto documents the messages")]
    #![allow(clippy::large_enum_variant, reason = "most messages are of the large variant")]
    include!("generated/weir.agent.rs");
}

/// The maximum lease of an order.
pub const MAX_LEASE: Duration = Duration::from_secs(60);

/// Why a coordinator ends the streams of agents when the rates that they have to report change: the welcome of the next stream names them.
pub const NEW_MEASUREMENTS: &str = "the coordinator requests other measurements";

/// Why a coordinator ends the streams of agents and relays when it has reloaded its configuration: they have to connect again.
pub const NEW_CONFIGURATION: &str = "the coordinator has loaded another configuration";

/// The maximum length of the id of a coflow or an application, in bytes.
pub const MAX_ID_LENGTH: usize = 128;

/// The maximum number of active flows of a host, and of flows in an order.
pub const MAX_FLOWS_PER_HOST: usize = 1 << 20;

/// The maximum number of flows in a report. The next report contains further flows.
pub const MAX_REPORTED_FLOWS: usize = 1 << 14;

/// The maximum number of flows whose sent packets a report has. The next report contains further flows.
pub const MAX_REPORTED_SEGMENTS: usize = 1 << 11;

/// The maximum number of pairs of an application and a peer that a host observes, and of such pairs in a report or with a limit.
pub const MAX_OBSERVED: usize = 1 << 12;

/// The maximum number of [`UdpFlow`]s that a host measures or limits, of measurements in a report or order, and of limits in an order.
pub const MAX_UDP_FLOWS: usize = 1 << 10;

/// The minimum rate at which agents pace a connection, in bytes of payload per second: 100 kbit/s. A lower rate is raised to it, so that
/// no connection stops.
pub const MIN_PACING_RATE: u32 = 12_500;

/// The maximum number of networks and addresses of interfaces in the first message of an agent. An agent leaves out the other addresses.
pub const MAX_HOST_NETWORKS: usize = 64;

/// The maximum number of labels of a host.
pub const MAX_LABELS: usize = 16;

/// The maximum number of conflicts in a report. An agent leaves out the others.
pub const MAX_CONFLICTS: usize = 64;

/// The maximum length of an encoded report, in bytes: [`MAX_REPORTED_FLOWS`] flows and [`MAX_OBSERVED`] observed pairs, each with an id
/// of [`MAX_ID_LENGTH`], and [`MAX_UDP_FLOWS`] measurements.
pub const MAX_REPORT_BYTES: usize = 5 << 20;

/// The maximum length of an encoded order, in bytes.
pub const MAX_ORDER_BYTES: usize = 32 << 20;

/// The maximum number of ports of a switch.
pub const MAX_SWITCH_PORTS: usize = 1 << 10;

/// The lowest and highest rate of a link with queues, in bytes per second: 8 kbit/s and 100 Gbit/s. A faster card needs several HTB roots
/// behind `mq`, which do not share the link by weight (`docs/link-capacity.md`).
pub const QUEUED_LINK_RATES: RangeInclusive<f64> = 1e3..=12.5e9;

/// The maximum number of classes of packets: marks (DSCP) 1 to 63.
pub const MAX_CLASSES: usize = 63;

/// The maximum number of interfaces in an order, and of all queues and of all classes in it.
pub const MAX_QUEUES: usize = MAX_SWITCH_PORTS * (MAX_CLASSES + 1);

/// The maximum number of applications, and of applications with classes in an order.
pub const MAX_APPLICATIONS: usize = 1 << 12;

/// The maximum number of cgroups and ports of all applications ([`ApplicationTraffic`]) in an order.
pub const MAX_TRAFFIC_RULES: usize = 256;
