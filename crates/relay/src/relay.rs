//! A relay: forwards the flows of local programs to other relays, and delivers the flows of other relays to local programs.
//!
//! Sans-I/O: the caller passes received messages and the time, and takes messages when a connection accepts them. Siphon, ATC '18,
//! section 4.2. Rules of the protocol:
//!
//! - *Data waits in the sockets of programs.* When a connection with another relay accepts data, the relay names the flow to read
//!   from. So the latest order decides, and a flow without credit stops its own program only.
//! - *Credit.* The destination grants each flow an offset before which the source may send. The grants of all flows fit into the
//!   relay's memory, so a slow receiver stops its own flow and no other.
//! - *No copies.* After a failure, the relay resets the flow. The sending program keeps what the receiver has not acknowledged, and
//!   opens the next generation, over the overlay or directly.
//! - *Known coflows only.* A relay refuses flows of coflows that the controller has not named.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_flow::{FirstLine, Reason};

use crate::forwarding::{Class, Rule, Splitter};
use crate::message::{FlowId, Header, MAX_PAYLOAD_BYTES, RelayId};
use crate::overlay::Overlay;
use crate::ready_queue::ReadyQueue;
use crate::reason_counts::ReasonCounts;

mod closed_flows;
mod input;
mod output;
mod sink;
mod sinks;
mod sources;
mod transit;

use closed_flows::ClosedFlows;
use sink::Sink;
use transit::Transits;

/// How many bytes of a flow a source may send before the first acknowledgement: twice what a receiver may leave unacknowledged, so a
/// flow cannot stop.
pub const INITIAL_CREDIT_BYTES: u64 = 512 << 10;

/// The maximum credit of a flow: while a lost segment is sent again, what follows it waits, so a flow needs two to three
/// bandwidth-delay products. 1 Gbit/s and 85 ms have 10 MiB.
pub const MAX_CREDIT_BYTES: u64 = 32 << 20;

/// The maximum length of a message that may overtake others over the express connection.
pub const MAX_EXPRESS_BYTES: u32 = 16 << 10;

/// The maximum length of a message of a flow with several paths, so that all of them are used.
const MAX_SPLIT_BYTES: u32 = 256 << 10;

/// The maximum number of control messages that wait for one relay. Further ones are dropped, and the flows recover after a timeout.
const MAX_CONTROL_MESSAGES: usize = 65_536;

/// How long a source avoids a detour that lost messages.
const AVOIDANCE: Duration = Duration::from_secs(10);

/// A generation of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The flow.
    pub flow: FlowId,
    /// The number of the attempt to send it.
    pub generation: u16,
}

impl FlowKey {
    fn of(header: &Header) -> FlowKey {
        FlowKey { flow: header.flow, generation: header.generation }
    }
}

/// What the caller has to do at the connections of programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Write the line `ack OFFSET` to the sender.
    Acked(FlowKey, u64),
    /// Write the line `reset REASON` to the sender, and close the connection.
    CloseSender(FlowKey, Reason),
    /// Connect to a receiver, and write the first line.
    ConnectReceiver(FlowKey, FirstLine),
    /// [`Relay::next_delivery`] has data.
    Deliverable(FlowKey),
    /// The stream is complete: shut the connection with the receiver down for writing.
    FinishReceiver(FlowKey),
    /// Close the connection with the receiver, if it is open.
    CloseReceiver(FlowKey),
    /// A flow has no rule and uses the direct path to this relay.
    Unruled(FlowId, RelayId),
}

/// The next message for another relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outgoing {
    /// A message that the relay has.
    Stored(Header, Bytes),
    /// The caller reads at most `max` bytes of this flow from its program and calls [`Relay::take_local`].
    Local {
        /// The flow.
        key: FlowKey,
        /// The maximum length of the message.
        max: u32,
    },
}

/// What to do with the payload of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// Read all of it and pass it to [`Relay::receive_payload`].
    Store,
    /// Write it to the receiver, and pass what the receiver does not accept, or nothing, to [`Relay::receive_rest`].
    Deliver(FlowKey),
    /// Skip it.
    Discard,
}

/// The kind of connection with another relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// For most data. There may be several.
    Bulk,
    /// For control, and for short messages that outrank the data which the bulk connection still has to send.
    Express,
}

/// Counters of the path to another relay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Payload bytes sent to the relay.
    pub sent_bytes: u64,
    /// Those of flows that end at other relays.
    pub detoured_bytes: u64,
    /// Messages sent to the relay, control messages included.
    pub sent_messages: u64,
    /// Payload bytes received from the relay.
    pub received_bytes: u64,
    /// Messages received from the relay, control messages included.
    pub received_messages: u64,
}

/// Counters of resets since the relay started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResetCounts {
    /// Flows of local programs that were reset after they began.
    pub flows: ReasonCounts,
    /// Resets sent to other relays, for flows that pass through or end here.
    pub sent: ReasonCounts,
}

#[derive(Debug)]
struct Peer {
    is_connected: bool,
    /// Whether it has sent nothing for a while. Detours avoid it.
    is_silent: bool,
    /// The maximum length of a message with data.
    max_message: u32,
    ready: ReadyQueue,
    control: VecDeque<(Header, Bytes)>,
    /// Flows of the peer's programs whose acknowledgements wait.
    acks: BTreeSet<FlowId>,
    /// The priority of the last message on the bulk connection.
    bulk_priority: u16,
    counters: PathCounters,
}

impl Default for Peer {
    fn default() -> Peer {
        Peer {
            is_connected: false,
            is_silent: false,
            max_message: MAX_PAYLOAD_BYTES,
            ready: ReadyQueue::default(),
            control: VecDeque::new(),
            acks: BTreeSet::new(),
            bulk_priority: 0,
            counters: PathCounters::default(),
        }
    }
}

/// A flow that starts at this relay.
#[derive(Debug)]
struct Source {
    generation: u16,
    destination: RelayId,
    rule: Option<Rule>,
    /// The next byte to send.
    offset: u64,
    acked: u64,
    /// The destination accepts bytes before this offset.
    limit: u64,
    is_readable: bool,
    splitter: Splitter,
    /// The next hops that have messages of this generation.
    used: BTreeSet<RelayId>,
    /// The next hop in whose queue the flow is.
    queued_at: Option<RelayId>,
}

impl Source {
    fn class(&self) -> Class {
        self.rule.as_ref().map_or(Class::DEFAULT, |rule| rule.class)
    }
}

/// Bytes of a coflow's flows from this relay to another one, since the coflow is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupProgress {
    /// Bytes that receivers have acknowledged.
    pub acked_bytes: u64,
    /// Bytes that this relay sent on a detour.
    pub detoured_bytes: u64,
    /// The number of open flows.
    pub open_flows: u32,
}

/// A relay. Each call is O(log flows) unless its comment says otherwise.
#[derive(Debug)]
pub struct Relay {
    id: RelayId,
    /// Half for data that waits for receivers, half for data that waits for other relays.
    memory_bytes: u64,
    overlay: Overlay,
    coflow_numbers: BTreeMap<Arc<str>, u32>,
    peers: BTreeMap<RelayId, Peer>,
    sources: BTreeMap<FlowId, Source>,
    sinks: BTreeMap<FlowId, Sink>,
    closed_sinks: ClosedFlows,
    /// The sum of the credits of all sinks.
    granted_bytes: u64,
    transits: Transits,
    /// Next hops that lost messages to a destination, and until when sources avoid them.
    avoided: BTreeMap<(RelayId, RelayId), Duration>,
    groups: BTreeMap<(u32, RelayId), GroupProgress>,
    resets: ResetCounts,
    is_draining: bool,
    events: VecDeque<Event>,
    now: Duration,
}

impl Relay {
    /// A relay without peers that uses at most `memory_bytes` for data.
    pub fn new(id: RelayId, memory_bytes: u64) -> Relay {
        Relay {
            id,
            memory_bytes,
            overlay: Overlay::default(),
            coflow_numbers: BTreeMap::new(),
            peers: BTreeMap::new(),
            sources: BTreeMap::new(),
            sinks: BTreeMap::new(),
            closed_sinks: ClosedFlows::default(),
            granted_bytes: 0,
            transits: Transits::default(),
            avoided: BTreeMap::new(),
            groups: BTreeMap::new(),
            resets: ResetCounts::default(),
            is_draining: false,
            events: VecDeque::new(),
            now: Duration::ZERO,
        }
    }

    /// The number of this relay.
    pub fn id(&self) -> RelayId {
        self.id
    }

    /// What the relay knows of the overlay.
    pub fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// The service that owns a coflow; none if the coflow is unknown.
    pub fn service(&self, coflow: &str) -> Option<&str> {
        let number = self.coflow_numbers.get(coflow)?;
        Some(&self.overlay.coflows.get(number)?.service)
    }

    /// Sets the time, at least that of the last call. Time starts at 0.
    pub fn set_time(&mut self, now: Duration) {
        self.now = now;
    }

    /// Refuses new flows from now on, those of other relays included. Open flows continue.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Whether the relay refuses new flows.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// The next change for the connections of programs.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Replaces relays, coflows and rules. Flows continue with their new rules; those of removed coflows are reset. O(flows).
    pub fn set_overlay(&mut self, overlay: Overlay) {
        self.coflow_numbers =
            overlay.coflows.iter().map(|(&number, coflow)| (coflow.name.clone(), number)).collect();
        self.groups.retain(|&(coflow, _), _| overlay.coflows.contains_key(&coflow));
        self.overlay = overlay;
        let known = &self.overlay.coflows;
        let is_unknown = |flow: &&FlowId| !known.contains_key(&flow.coflow);
        let sources: Vec<FlowId> = self.sources.keys().filter(is_unknown).copied().collect();
        let sinks: Vec<FlowId> = self.sinks.keys().filter(is_unknown).copied().collect();
        sources.into_iter().for_each(|flow| self.reset_source(flow, Reason::UnknownCoflow));
        sinks.into_iter().for_each(|flow| self.reset_sink(flow, Reason::UnknownCoflow));
        for (&flow, source) in &mut self.sources {
            let rule = self.overlay.rule_for(flow, self.id, source.destination);
            if source.rule.as_ref() != rule {
                source.rule = rule.cloned();
                source.splitter.reset();
            }
        }
        self.requeue_all();
    }

    /// Removes state that is no longer used. Call it about each second. O(flows).
    pub fn expire(&mut self) {
        let now = self.now;
        let avoided = self.avoided.len();
        self.avoided.retain(|_, until| now < *until);
        if self.avoided.len() < avoided {
            self.reset_splitters();
        }
        self.transits.expire(now);
        self.closed_sinks.expire(now);
        let stale: Vec<FlowId> =
            self.sinks.iter().filter(|(_, sink)| sink.is_stale(now)).map(|(&flow, _)| flow).collect();
        stale.into_iter().for_each(|flow| self.reset_sink(flow, Reason::Lost));
    }

    /// Other paths can be used from now on. O(flows).
    fn reset_splitters(&mut self) {
        self.sources.values_mut().for_each(|source| source.splitter.reset());
    }

    /// The progress of coflows by the relay of the receivers.
    pub fn groups(&self) -> impl Iterator<Item = (u32, RelayId, GroupProgress)> {
        self.groups.iter().map(|(&(coflow, destination), &progress)| (coflow, destination, progress))
    }

    /// The counters of each path.
    pub fn paths(&self) -> impl Iterator<Item = (RelayId, bool, PathCounters)> {
        self.peers.iter().map(|(&relay, peer)| (relay, peer.is_connected, peer.counters))
    }

    /// The payload bytes from and to a relay since this relay knows it.
    pub fn payload_bytes(&self, relay: RelayId) -> u64 {
        self.peers.get(&relay).map_or(0, |peer| peer.counters.sent_bytes + peer.counters.received_bytes)
    }

    /// The counters of resets.
    pub fn resets(&self) -> ResetCounts {
        self.resets
    }

    /// The number of flows that begin here, that end here, and whose messages wait here for another relay. O(flows).
    pub fn flow_counts(&self) -> (usize, usize, usize) {
        (self.sources.len(), self.sinks.len(), self.transits.waiting_flows())
    }

    /// The bytes in memory, and the credit that receivers have granted.
    pub fn used_bytes(&self) -> (u64, u64) {
        (self.transits.waiting_bytes(), self.granted_bytes)
    }
}
