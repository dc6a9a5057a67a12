//! Defines orders to agents, and reports of agents.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_core::model::LinkBudget;

use crate::{
    ApplicationTraffic, Conflict, FRAME_BYTES, MAX_CLASSES, MAX_ID_LENGTH, MatchingOrder, MatchingReport,
    PAYLOAD_BYTES, RefusedOrders, RestoredObjects,
};

/// The identity of a flow: its coflow's id, the number of the registration, and its position in the registration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The id of the coflow.
    pub coflow: Arc<str>,
    /// The generation of the coflow: the number of its registration. A coflow that is registered again after its removal has a higher
    /// one. 0 in reports if no order has named the coflow.
    pub generation: u64,
    /// The position of the flow in the registration of its coflow.
    pub flow: u32,
}

/// The rate at which a host has to send a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderedRate {
    /// At most this many bytes of packets with headers per second; above zero.
    Rate(u64),
    /// At most this many: a share of the reserve, since the flow waits. A gated flow is paused instead.
    Reserve(u64),
    /// Without a rate: as plain TCP.
    Unlimited,
    /// Nothing. Only for flows that their last report calls gated.
    Paused,
    /// The flow has completed, or another host sends it.
    Removed,
}

/// Why the coordinator does not schedule a flow of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnscheduledReason {
    /// No coflow with this id is registered.
    UnknownCoflow,
    /// The index is beyond the flows of the registration.
    UnknownFlow,
    /// By the registration, another host sends the flow.
    ForeignFlow,
    /// The coflow was removed and registered again since the socket was handed over.
    FormerRegistration,
    /// The flow has completed.
    Completed,
}

/// The payload that a flow of full packets sends at a rate (bytes with headers per second) in a time in seconds.
pub fn estimate_sent_bytes(rate: u64, seconds: f64) -> f64 {
    rate as f64 * seconds * f64::from(PAYLOAD_BYTES) / f64::from(FRAME_BYTES)
}

/// An order to one host or switch: its changed rates, queues and limits.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Order {
    /// The epoch of the coordinator: agents refuse orders of a lower one.
    pub epoch: u64,
    /// The sequence number, which rises by one with each order to the agent.
    pub seq: u64,
    /// How long the order holds without another one. Then flows are plain TCP.
    pub lease: Duration,
    /// Whether this is a full order: it contains all flows and limits. Otherwise the flows and limits that it does not contain stay
    /// unchanged.
    pub is_full: bool,
    /// Whether it follows a schedule between two intervals, which a change of flows caused. Agents report by the times of other orders.
    pub is_early: bool,
    /// The changed rates of flows. Sorted by key, each once.
    pub flows: Vec<(FlowKey, OrderedRate)>,
    /// The changed queues by interface, sorted. Interfaces have the numbers of the host's links.
    pub queues: Vec<(u32, Queues)>,
    /// The rates at which UDP of this host arrives at others, measured since the last order. Sorted by [`UdpFlow`], each once.
    pub udp_measurements: Vec<UdpMeasurement>,
    /// The limits of UDP that this host sends, which hold for a second, and [`UdpLimit::ENDED`] limits. Sorted by [`UdpFlow`], each once.
    pub udp_limits: Vec<UdpLimit>,
    /// The changed limits of observed connections. Sorted by application and peer, each once.
    pub limits: Vec<Limit>,
    /// The gated flows of the last reports that are not scheduled. Sorted by key, each once.
    pub unscheduled: Vec<(FlowKey, UnscheduledReason)>,
    /// The traffic of applications, in place of that of earlier orders. Sorted by application, each once. None if it is unchanged; in a
    /// full order, none stands for an empty list.
    pub traffic: Option<Vec<ApplicationTraffic>>,
    /// The limit of what a host sends, for a time after this order. None: it may use its whole link. Each order has it.
    pub bandwidth_limit: Option<BandwidthLimit>,
    /// The state that the host needs to match senders and receivers. None: unchanged; in a full order, the host takes no part.
    pub matching: Option<MatchingOrder>,
    /// Whether the agent removes its queues and the classes of applications, and restores the interfaces. Each order has it.
    pub without_queues: bool,
}

/// The fraction of its link's rate at which a host may send, for a profile of its programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BandwidthLimit(u32);

impl BandwidthLimit {
    /// Millionths of the whole rate.
    const WHOLE: u32 = 1_000_000;

    /// The limit to a fraction above 0 and up to 1, rounded to millionths; none for other numbers.
    pub fn new(fraction: f64) -> Option<BandwidthLimit> {
        (fraction > 0.0 && fraction <= 1.0)
            .then(|| BandwidthLimit(((fraction * f64::from(Self::WHOLE)).round() as u32).max(1)))
    }

    /// The limit with this number of millionths; none if it is 0 or above that of the whole rate.
    pub(crate) fn from_millionths(millionths: u32) -> Option<BandwidthLimit> {
        (1..=Self::WHOLE).contains(&millionths).then_some(BandwidthLimit(millionths))
    }

    /// Millionths of the whole rate.
    pub(crate) fn millionths(self) -> u32 {
        self.0
    }

    /// The fraction, above 0 and up to 1.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }
}

impl Queues {
    /// In the place of a class: packets of the application have no mark, also if the agent's options set a class.
    pub const UNMARKED: u32 = 0;
}

/// The queues of an interface, and their classes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Queues {
    /// The weight of each queue, finite and above zero.
    pub weights: Vec<f64>,
    /// The queue of each class, from 0. Classes count from 1, and the number is the mark (DSCP) of their packets at every port.
    pub queue_of_class: Vec<u32>,
    /// The class of each application that has one, or [`Queues::UNMARKED`]. Sorted by the application's name, which is an id ([`is_id`]).
    pub class_of_application: Vec<(Arc<str>, u32)>,
    /// Whether the weights are guaranteed: they hold without a coordinator. Other weights end some time after the last order.
    pub guaranteed: bool,
    /// What packets without a class get.
    pub unclassified: UnclassifiedShare,
    /// The rates of each queue that it may not fall below or exceed; empty if no queue has one.
    pub rate_bounds: Vec<RateBounds>,
}

/// The lowest and highest rates of a queue, in bytes per second with headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateBounds {
    /// The rate that its packets are guaranteed, whatever the weights are; 0 for weights only.
    pub min: u64,
    /// The rate that its packets do not exceed; above zero.
    pub max: Option<u64>,
}

/// What packets without a class get at an interface.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnclassifiedShare {
    /// The guaranteed fraction of the link, which [`weir_core::model::LinkBudget::with_unclassified`] accepts.
    pub fraction: f64,
    /// The weight at which they borrow unused bandwidth, next to [`Queues::weights`]. Finite and above zero.
    pub weight: f64,
}

impl UnclassifiedShare {
    /// The parts of a link with this share.
    pub fn budget(&self) -> LinkBudget {
        LinkBudget::DEFAULT.with_unclassified(self.fraction).unwrap_or(LinkBudget::DEFAULT)
    }

    /// Whether both numbers are in range.
    pub fn is_valid(&self) -> bool {
        LinkBudget::DEFAULT.with_unclassified(self.fraction).is_some()
            && self.weight.is_finite()
            && self.weight > 0.0
    }
}

impl Default for UnclassifiedShare {
    /// The default part of a link, and a service of weight 1.
    fn default() -> UnclassifiedShare {
        UnclassifiedShare { fraction: LinkBudget::DEFAULT.unclassified_fraction(), weight: 1.0 }
    }
}

/// A limit for the observed connections of an application with a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// The application.
    pub application: Arc<str>,
    /// The peer's address.
    pub peer: IpAddr,
    /// The rate of all these connections together.
    pub rate: OrderedRate,
}

/// The demand of connections: the rate that they would send at without a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Demand {
    /// Not measured.
    #[default]
    Unknown,
    /// This many bytes of packets with headers per second.
    Rate(u64),
    /// All bandwidth that they can get.
    Unlimited,
}

/// A report of a host or switch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The last order that the agent applied: epoch and sequence number. Zeros before the first.
    pub applied: (u64, u64),
    /// Flows that have ended, or that deviate from [`estimate_sent_bytes`] since they were last reported. Sorted by key, each once.
    pub flows: Vec<FlowProgress>,
    /// Changed counts of observed connections. Sorted by application and peer, each once.
    pub observed: Vec<ObservedConnections>,
    /// The rates of UDP since the last report, as [`UdpControl`] defines them. Sorted by [`UdpFlow`], each once. Sent only if the
    /// coordinator asks for measurements.
    pub udp_measurements: Vec<UdpMeasurement>,
    /// The orders that the agent refused since it started.
    pub refused_orders: RefusedOrders,
    /// The kernel objects that the agent restored since it started.
    pub restored_objects: RestoredObjects,
    /// The interfaces that differ from the agent's orders now: at most [`MAX_CONFLICTS`].
    ///
    /// [`MAX_CONFLICTS`]: crate::MAX_CONFLICTS
    pub conflicts: Vec<Conflict>,
    /// The limit of all interfaces of the host; none if one of them is unlimited, or their limits differ.
    pub bandwidth_limit: Option<BandwidthLimit>,
    /// The questions and decisions of the host as a receiver; none if it takes no part in matching.
    pub matching: Option<MatchingReport>,
    /// The numbers of the links that are down now, rising: at most [`MAX_SWITCH_PORTS`].
    ///
    /// [`MAX_SWITCH_PORTS`]: crate::MAX_SWITCH_PORTS
    pub links_down: Vec<u32>,
}

/// The mark (DSCP) of a class: 1 to [`MAX_CLASSES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(u8);

impl Mark {
    /// The mark with this number; none if it is not 1 to [`MAX_CLASSES`].
    pub const fn new(mark: u8) -> Option<Mark> {
        if mark >= 1 && mark as usize <= MAX_CLASSES { Some(Mark(mark)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// The UDP packets of one class from one address to another, which throttling treats as one flow (NetShare, section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UdpFlow {
    /// The source; not an IPv4-mapped IPv6 address.
    pub src: IpAddr,
    /// The destination; not an IPv4-mapped IPv6 address.
    pub dst: IpAddr,
    /// The mark of the class.
    pub mark: Mark,
}

/// How hosts limit UDP, and which rates they measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UdpControl {
    /// Receivers measure what arrives, and senders limit UDP to slightly more (NetShare, section 3.2).
    Throttling,
    /// Senders measure what their programs send before limits, and the allocator computes the limits (section 3.3).
    Allocation,
}

/// The measured rate of a UDP flow ([`UdpControl`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpMeasurement {
    /// The measured packets.
    pub flow: UdpFlow,
    /// Bytes of packets with headers per second.
    pub rate: u64,
}

/// The limit of a UDP flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpLimit {
    /// The limited packets.
    pub flow: UdpFlow,
    /// Bytes of packets with headers per second; above zero. Or [`UdpLimit::ENDED`].
    pub rate: u64,
}

impl UdpLimit {
    /// The rate that ends the limit of a flow.
    pub const ENDED: u64 = u64::MAX;
}

/// The observed connections of an application with a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedConnections {
    /// The name of the application.
    pub application: Arc<str>,
    /// The peer's address.
    pub peer: IpAddr,
    /// The number of open connections; 0 after a time without any.
    pub open_connections: u32,
    /// The bytes that this host has sent over them, including closed connections.
    pub sent_bytes: u64,
    /// The predicted demand. Sent only if the coordinator asks for demands.
    pub demand: Demand,
}

/// The progress of a flow.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowProgress {
    /// The flow.
    pub key: FlowKey,
    /// The bytes that the flow has sent.
    pub sent: u64,
    /// The state of the flow at its sender.
    pub state: SenderState,
    /// Whether an order can pause the flow: its program writes only while it may, or the kernel keeps its data in its socket.
    pub gated: bool,
    /// Whether the flow uses UDP, so that its progress is estimated from its rate.
    pub udp: bool,
    /// What the flow's program writes, in bytes per second, if that is less than the rate of the flow.
    pub demand: Option<u64>,
}

impl FlowProgress {
    /// The progress of a TCP flow that is not gated, and whose program writes as fast as it may.
    pub fn new(key: FlowKey, sent: u64, state: SenderState) -> FlowProgress {
        FlowProgress { key, sent, state, gated: false, udp: false, demand: None }
    }
}

/// The state of a flow at its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SenderState {
    /// The flow has data to send.
    #[default]
    Ready,
    /// The flow has a connection, and no data to send.
    Idle,
    /// The flow has no connection: the last one broke, or its program exited without `done`. The next connection continues the flow.
    Lost,
    /// The receiver has acknowledged all data, and the program writes no more.
    Completed,
}

/// Whether a text is a valid id of a coflow or application: 1 to [`MAX_ID_LENGTH`] printable ASCII characters without spaces.
pub fn is_id(text: &str) -> bool {
    (1..=MAX_ID_LENGTH).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_graphic())
}
