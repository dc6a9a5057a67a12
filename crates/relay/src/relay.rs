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
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_flow::{FirstLine, Offset, Reason};

use crate::forwarding::{Class, Path, RelayId, Rule, Splitter};
use crate::message::{
    ADDRESS_BYTES, Direction, FlowId, Header, Kind, LIMIT_BYTES, MAX_HOPS, MAX_OFFSET, MAX_PAYLOAD_BYTES,
    decode_address, decode_reason, encode_address, encode_reason,
};
use crate::overlay::Overlay;
use crate::ready_queue::ReadyQueue;
use crate::sink::Sink;
use crate::transit::Transits;

/// How many bytes of a flow a source may send before the first acknowledgement.
pub const INITIAL_CREDIT_BYTES: u64 = 256 << 10;

/// The maximum credit of a flow: the bandwidth-delay product of 1 Gbit/s and 67 ms.
pub const MAX_CREDIT_BYTES: u64 = 8 << 20;

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
    /// For most data.
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
}

#[derive(Debug, Default)]
struct Peer {
    is_connected: bool,
    ready: ReadyQueue,
    control: VecDeque<(Header, Bytes)>,
    /// Flows of the peer's programs whose acknowledgements wait.
    acks: BTreeSet<FlowId>,
    /// The priority of the last message on the bulk connection.
    bulk_priority: u16,
    counters: PathCounters,
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
    /// The sum of the credits of all sinks.
    granted_bytes: u64,
    transits: Transits,
    /// Next hops that lost messages to a destination, and until when sources avoid them.
    avoided: BTreeMap<(RelayId, RelayId), Duration>,
    groups: BTreeMap<(u32, RelayId), GroupProgress>,
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
            granted_bytes: 0,
            transits: Transits::default(),
            avoided: BTreeMap::new(),
            groups: BTreeMap::new(),
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

    /// Sets the time, at least that of the last call. Time starts at 0.
    pub fn set_time(&mut self, now: Duration) {
        self.now = now;
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
            let rule = self.overlay.rules.lookup(flow, self.id, source.destination);
            if source.rule.as_ref() != rule {
                source.rule = rule.cloned();
                source.splitter.reset();
            }
        }
        self.requeue_all();
    }

    // Programs that send.

    /// Opens a flow of a local program. An earlier generation of the flow is closed.
    ///
    /// # Errors
    /// The reason for the line `reset REASON`.
    pub fn open(&mut self, request: &FirstLine) -> Result<FlowKey, Reason> {
        let coflow = *self.coflow_numbers.get(request.coflow.as_str()).ok_or(Reason::UnknownCoflow)?;
        let flow = FlowId { coflow, flow: request.flow };
        let destination = self.overlay.relay_of(request.receiver.ip()).ok_or(Reason::Unreachable)?;
        if destination == self.id || request.offset.get() > MAX_OFFSET - INITIAL_CREDIT_BYTES {
            return Err(Reason::Unreachable);
        }
        if let Some(source) = self.sources.get(&flow) {
            if source.generation >= request.generation {
                return Err(Reason::Replaced);
            }
            self.reset_source(flow, Reason::Replaced);
        }
        let rule = self.overlay.rules.lookup(flow, self.id, destination).cloned();
        if rule.is_none() {
            self.events.push_back(Event::Unruled(flow, destination));
        }
        let source = Source {
            generation: request.generation,
            destination,
            rule,
            offset: request.offset.get(),
            acked: request.offset.get(),
            limit: request.offset.get() + INITIAL_CREDIT_BYTES,
            is_readable: false,
            splitter: Splitter::default(),
            used: BTreeSet::new(),
            queued_at: None,
        };
        // The direct path is usually the fastest: data on detours should not arrive before this message.
        let direct = self.is_connected(destination).then_some(destination);
        let hop = direct.or_else(|| self.next_hop(&source)).ok_or(Reason::Unreachable)?;
        self.sources.insert(flow, source);
        self.groups.entry((coflow, destination)).or_default().open_flows += 1;
        let header = self.header(Kind::Open, flow, request.offset.get(), ADDRESS_BYTES as u32);
        self.push_control(hop, header, Bytes::copy_from_slice(&encode_address(request.receiver)));
        if let Some(source) = self.sources.get_mut(&flow) {
            source.used.insert(hop);
        }
        Ok(FlowKey { flow, generation: request.generation })
    }

    /// A message from a source of this relay.
    fn header(&self, kind: Kind, flow: FlowId, offset: u64, length: u32) -> Header {
        let (generation, destination) =
            self.sources.get(&flow).map_or((0, self.id), |source| (source.generation, source.destination));
        Header { kind, hops: MAX_HOPS, generation, length, flow, offset, source: self.id, destination }
    }

    fn source_mut(&mut self, key: FlowKey) -> Option<&mut Source> {
        self.sources.get_mut(&key.flow).filter(|source| source.generation == key.generation)
    }

    /// The program of a flow has written data.
    pub fn set_readable(&mut self, key: FlowKey) {
        if let Some(source) = self.source_mut(key).filter(|source| !source.is_readable) {
            source.is_readable = true;
            self.requeue(key.flow);
        }
    }

    /// The program of a flow has closed its connection, and all of its data was read.
    pub fn end(&mut self, key: FlowKey) {
        self.finish_source(key, Kind::End);
    }

    /// The connection with the program of a flow has failed.
    pub fn abort(&mut self, key: FlowKey) {
        self.finish_source(key, Kind::Abort);
    }

    fn finish_source(&mut self, key: FlowKey, kind: Kind) {
        let Some(source) = self.source_mut(key) else { return };
        let offset = source.offset;
        self.send_from_source(key.flow, kind, offset);
        self.remove_source(key.flow);
    }

    fn send_from_source(&mut self, flow: FlowId, kind: Kind, offset: u64) {
        let Some(source) = self.sources.get(&flow) else { return };
        if let Some(hop) = self.next_hop(source) {
            let header = self.header(kind, flow, offset, 0);
            self.push_control(hop, header, Bytes::new());
        }
    }

    fn remove_source(&mut self, flow: FlowId) {
        let Some(source) = self.sources.remove(&flow) else { return };
        if let Some(peer) = source.queued_at.and_then(|hop| self.peers.get_mut(&hop)) {
            peer.ready.remove(flow);
        }
        if let Some(group) = self.groups.get_mut(&(flow.coflow, source.destination)) {
            group.open_flows = group.open_flows.saturating_sub(1);
        }
    }

    /// Closes a flow of a local program and its other end.
    fn reset_source(&mut self, flow: FlowId, reason: Reason) {
        let Some(source) = self.sources.get(&flow) else { return };
        self.events.push_back(Event::CloseSender(FlowKey { flow, generation: source.generation }, reason));
        let offset = source.offset;
        self.send_from_source(flow, Kind::Abort, offset);
        self.remove_source(flow);
    }

    fn is_connected(&self, relay: RelayId) -> bool {
        self.peers.get(&relay).is_some_and(|peer| peer.is_connected)
    }

    /// The next hop of a source: a path of its rule, otherwise the direct one, otherwise any other relay. O(paths).
    fn next_hop(&self, source: &Source) -> Option<RelayId> {
        let destination = source.destination;
        let is_usable = |hop: RelayId| {
            let is_avoided = self.avoided.get(&(hop, destination)).is_some_and(|&until| self.now < until);
            self.is_connected(hop) && !is_avoided
        };
        let paths = source.rule.as_ref().map_or::<&[Path], _>(&[], |rule| &rule.paths);
        let by_rule = source.splitter.choose(paths, is_usable);
        let direct = || is_usable(destination).then_some(destination);
        by_rule.or_else(direct).or_else(|| self.peers.keys().copied().find(|&hop| is_usable(hop)))
    }

    /// Puts a flow into the queue of its next hop, if it has data and credit.
    fn requeue(&mut self, flow: FlowId) {
        let Some(source) = self.sources.get(&flow) else { return };
        let is_ready = source.is_readable && source.offset < source.limit;
        let hop = if is_ready { self.next_hop(source) } else { None };
        if is_ready && hop.is_none() {
            return self.reset_source(flow, Reason::Lost);
        }
        let (class, before) = (source.class(), source.queued_at);
        if before != hop
            && let Some(peer) = before.and_then(|hop| self.peers.get_mut(&hop))
        {
            peer.ready.remove(flow);
        }
        if let Some(peer) = hop.and_then(|hop| self.peers.get_mut(&hop)) {
            peer.ready.insert(flow, class);
        }
        if let Some(source) = self.sources.get_mut(&flow) {
            source.queued_at = hop;
        }
    }

    fn requeue_all(&mut self) {
        let flows: Vec<FlowId> = self.sources.keys().copied().collect();
        flows.into_iter().for_each(|flow| self.requeue(flow));
    }

    // Other relays that receive.

    fn push_control(&mut self, hop: RelayId, header: Header, payload: Bytes) {
        let Some(peer) = self.peers.get_mut(&hop).filter(|peer| peer.is_connected) else { return };
        if peer.control.len() < MAX_CONTROL_MESSAGES {
            peer.control.push_back((header, payload));
        }
    }

    /// Queues a heartbeat, which the other relay answers with the same time.
    pub fn ping(&mut self, relay: RelayId, time: u64) {
        self.push_control(relay, self.heartbeat(Kind::Ping, relay, time), Bytes::new());
    }

    fn heartbeat(&self, kind: Kind, relay: RelayId, time: u64) -> Header {
        let flow = FlowId { coflow: 0, flow: 0 };
        let offset = time.min(MAX_OFFSET);
        Header { kind, hops: 0, generation: 0, length: 0, flow, offset, source: self.id, destination: relay }
    }

    /// The next control message for a relay.
    pub fn next_control(&mut self, relay: RelayId) -> Option<(Header, Bytes)> {
        let peer = self.peers.get_mut(&relay)?;
        if let Some(flow) = peer.acks.pop_first()
            && let Some(message) = self.sinks.get(&flow).map(|sink| sink.ack(flow, self.id))
        {
            return Some(message);
        }
        self.peers.get_mut(&relay)?.control.pop_front()
    }

    /// The next data for a relay. `is_blocked`: the bulk connection accepts no data at the moment.
    ///
    /// The bulk connection gets all data. The express connection gets only messages that outrank the last one on the bulk connection.
    pub fn next_data(&mut self, relay: RelayId, lane: Lane) -> Option<Outgoing> {
        loop {
            let peer = self.peers.get_mut(&relay)?;
            let (flow, priority) = peer.ready.first()?;
            if lane == Lane::Express && priority >= peer.bulk_priority {
                return None;
            }
            let local = self.sources.get(&flow).filter(|source| source.queued_at == Some(relay));
            if let Some(source) = local.filter(|source| source.offset < source.limit) {
                let credit = u32::try_from(source.limit - source.offset).unwrap_or(u32::MAX);
                let is_split = source.rule.as_ref().is_some_and(|rule| rule.paths.len() > 1);
                let longest = if is_split { MAX_SPLIT_BYTES } else { MAX_PAYLOAD_BYTES };
                let max = credit.min(if lane == Lane::Express { MAX_EXPRESS_BYTES } else { longest });
                return Some(Outgoing::Local { key: FlowKey { flow, generation: source.generation }, max });
            }
            let Some(length) = self.transits.next_length(flow, relay) else {
                peer.ready.remove(flow);
                continue;
            };
            if lane == Lane::Express && length > MAX_EXPRESS_BYTES {
                return None;
            }
            return self.take_transit(relay, lane, flow);
        }
    }

    fn take_transit(&mut self, relay: RelayId, lane: Lane, flow: FlowId) -> Option<Outgoing> {
        let (header, payload) = self.transits.pop(flow)?;
        let has_more = self.transits.next_length(flow, relay).is_some();
        self.charge(relay, lane, flow, header.length);
        if !has_more {
            self.peers.get_mut(&relay)?.ready.remove(flow);
        }
        Some(Outgoing::Stored(header, payload))
    }

    fn charge(&mut self, relay: RelayId, lane: Lane, flow: FlowId, bytes: u32) {
        let Some(peer) = self.peers.get_mut(&relay) else { return };
        if lane == Lane::Bulk
            && let Some((_, priority)) = peer.ready.first()
        {
            peer.bulk_priority = priority;
        }
        peer.ready.charge(flow, bytes);
        peer.counters.sent_bytes += u64::from(bytes);
    }

    /// Returns the header for `bytes` bytes, at most the maximum of [`Outgoing::Local`], that the caller has read from the program.
    /// If `is_drained`, the program has no further bytes at the moment.
    pub fn take_local(
        &mut self,
        relay: RelayId,
        lane: Lane,
        key: FlowKey,
        bytes: u32,
        is_drained: bool,
    ) -> Header {
        let header = self.header(Kind::Data, key.flow, 0, bytes);
        if bytes > 0 {
            self.charge(relay, lane, key.flow, bytes);
        }
        let Some(source) = self.source_mut(key) else { return header };
        let offset = source.offset;
        source.offset += u64::from(bytes);
        source.is_readable = !is_drained;
        if bytes > 0 {
            source.used.insert(relay);
            source.splitter.charge(relay, bytes);
            let is_detour = source.destination != relay;
            if let Some(peer) = self.peers.get_mut(&relay).filter(|_| is_detour) {
                peer.counters.detoured_bytes += u64::from(bytes);
            }
        }
        self.requeue(key.flow);
        Header { offset, ..header }
    }

    // Other relays that send.

    /// The connections with a relay are established.
    pub fn connect_peer(&mut self, relay: RelayId) {
        let peer = self.peers.entry(relay).or_default();
        peer.is_connected = true;
        self.avoided.retain(|&(hop, _), _| hop != relay);
        self.requeue_all();
    }

    /// The connections with a relay have failed. O(flows).
    pub fn disconnect_peer(&mut self, relay: RelayId) {
        let Some(peer) = self.peers.get_mut(&relay).filter(|peer| peer.is_connected) else { return };
        *peer = Peer { counters: peer.counters, ..Peer::default() };
        let is_lost = |source: &&Source| source.used.contains(&relay) || source.destination == relay;
        let lost: Vec<FlowId> =
            self.sources.iter().filter(|(_, source)| is_lost(source)).map(|(&flow, _)| flow).collect();
        lost.into_iter().for_each(|flow| self.reset_source(flow, Reason::Lost));
        let is_orphan = |sink: &&Sink| sink.source() == relay;
        let orphans: Vec<FlowId> =
            self.sinks.iter().filter(|(_, sink)| is_orphan(sink)).map(|(&flow, _)| flow).collect();
        orphans.into_iter().for_each(|flow| self.remove_sink(flow));
        for header in self.transits.remove_hop(relay) {
            self.send_reset(&header, Reason::Lost);
        }
        self.requeue_all();
    }

    /// Decides about a message from a relay, by its header. Messages without payload are processed.
    pub fn receive(&mut self, from: RelayId, header: &Header) -> Incoming {
        let is_here = match header.kind.direction() {
            Direction::Destination => header.destination == self.id,
            Direction::Source => header.source == self.id,
            Direction::Neighbor => {
                if header.kind == Kind::Ping {
                    self.push_control(from, self.heartbeat(Kind::Pong, from, header.offset), Bytes::new());
                }
                return Incoming::Discard;
            }
        };
        if !is_here {
            return self.receive_transit(header);
        }
        match header.kind {
            Kind::Data => self.receive_data(header),
            Kind::Open | Kind::Ack => Incoming::Store,
            Kind::End => self.receive_end(header),
            Kind::Abort => {
                if self.sinks.get(&header.flow).is_some_and(|sink| sink.generation() <= header.generation) {
                    self.remove_sink(header.flow);
                }
                Incoming::Discard
            }
            Kind::Reset | Kind::Ping | Kind::Pong => {
                self.receive_reset(from, header);
                Incoming::Discard
            }
        }
    }

    /// Processes the payload of a message for which [`Relay::receive`] returned [`Incoming::Store`].
    pub fn receive_payload(&mut self, header: &Header, payload: Bytes) {
        let is_here = match header.kind.direction() {
            Direction::Destination => header.destination == self.id,
            _ => header.source == self.id,
        };
        if !is_here {
            return self.forward(header, payload);
        }
        match header.kind {
            Kind::Open => {
                if let Ok(address) = <&[u8; ADDRESS_BYTES]>::try_from(&payload[..]) {
                    self.receive_open(header, decode_address(address));
                }
            }
            Kind::Ack => {
                if let Ok(limit) = <[u8; LIMIT_BYTES]>::try_from(&payload[..]) {
                    self.receive_ack(header, u64::from_be_bytes(limit));
                }
            }
            Kind::Data => self.receive_stored_data(header, payload),
            _ => {}
        }
    }

    fn receive_ack(&mut self, header: &Header, limit: u64) {
        let key = FlowKey { flow: header.flow, generation: header.generation };
        let Some(source) = self.source_mut(key) else { return };
        if header.offset > source.offset || limit > header.offset + MAX_CREDIT_BYTES {
            return self.reset_source(key.flow, Reason::Invalid);
        }
        let destination = source.destination;
        let newly = header.offset.saturating_sub(source.acked);
        source.acked += newly;
        source.limit = source.limit.max(limit);
        let acked = source.acked;
        self.events.push_back(Event::Acked(key, acked));
        self.groups.entry((key.flow.coflow, destination)).or_default().acked_bytes += newly;
        self.requeue(key.flow);
    }

    fn receive_reset(&mut self, from: RelayId, header: &Header) {
        let key = FlowKey { flow: header.flow, generation: header.generation };
        let Some(source) = self.source_mut(key) else { return };
        let destination = source.destination;
        if from != destination {
            self.avoided.insert((from, destination), self.now + AVOIDANCE);
        }
        self.reset_source(key.flow, decode_reason(header.offset));
    }

    /// Sends a reset to the source of a message.
    fn send_reset(&mut self, header: &Header, reason: Reason) {
        let reset =
            Header { kind: Kind::Reset, hops: MAX_HOPS, length: 0, offset: encode_reason(reason), ..*header };
        if let Some(hop) = self.hop_to(header.source) {
            self.push_control(hop, reset, Bytes::new());
        }
    }

    /// The next hop to a relay: direct, or over any other one.
    fn hop_to(&self, relay: RelayId) -> Option<RelayId> {
        if self.is_connected(relay) {
            return Some(relay);
        }
        self.peers.iter().find(|(_, peer)| peer.is_connected).map(|(&hop, _)| hop)
    }

    // Flows that end at this relay.

    fn receive_open(&mut self, header: &Header, receiver: SocketAddr) {
        let Some(coflow) = self.overlay.coflows.get(&header.flow.coflow) else {
            return self.send_reset(header, Reason::UnknownCoflow);
        };
        let (Ok(name), Some(offset)) = (coflow.name.parse(), Offset::new(header.offset)) else {
            return self.send_reset(header, Reason::Invalid);
        };
        if self.overlay.relay_of(receiver.ip()) != Some(self.id) {
            return self.send_reset(header, Reason::Unreachable);
        }
        let request = FirstLine {
            coflow: name,
            flow: header.flow.flow,
            generation: header.generation,
            offset,
            receiver,
        };
        if !self.prepare_sink(header) {
            return;
        }
        let Some(sink) = self.sinks.get_mut(&header.flow) else { return };
        if sink.open(header.offset, INITIAL_CREDIT_BYTES).is_err() {
            return self.reset_sink(header.flow, Reason::Invalid);
        }
        let key = FlowKey { flow: header.flow, generation: header.generation };
        self.events.push_back(Event::ConnectReceiver(key, request));
    }

    /// Makes sure that there is a sink for the generation of a message. If there cannot be one, sends a reset and returns false.
    fn prepare_sink(&mut self, header: &Header) -> bool {
        if let Some(sink) = self.sinks.get(&header.flow) {
            let (known, found) = (sink.generation(), header.generation);
            let is_second_open = known == found && header.kind == Kind::Open && sink.is_open();
            if found < known || is_second_open || sink.source() != header.source && found == known {
                self.send_reset(header, Reason::Replaced);
                return false;
            }
            if found == known {
                return true;
            }
            self.remove_sink(header.flow);
        }
        if self.granted_bytes + INITIAL_CREDIT_BYTES > self.memory_bytes / 2 {
            self.send_reset(header, Reason::Busy);
            return false;
        }
        self.granted_bytes += INITIAL_CREDIT_BYTES;
        let sink = Sink::new(header.generation, header.source, INITIAL_CREDIT_BYTES, self.now);
        self.sinks.insert(header.flow, sink);
        true
    }

    fn receive_data(&mut self, header: &Header) -> Incoming {
        if !self.overlay.coflows.contains_key(&header.flow.coflow) {
            self.send_reset(header, Reason::UnknownCoflow);
            return Incoming::Discard;
        }
        if !self.prepare_sink(header) {
            return Incoming::Discard;
        }
        let Some(sink) = self.sinks.get_mut(&header.flow) else { return Incoming::Discard };
        if let Err(reason) = sink.check(header) {
            self.reset_sink(header.flow, reason);
            return Incoming::Discard;
        }
        if sink.is_next(header.offset) {
            sink.begin_delivery(header.length);
            return Incoming::Deliver(FlowKey { flow: header.flow, generation: header.generation });
        }
        Incoming::Store
    }

    fn receive_stored_data(&mut self, header: &Header, payload: Bytes) {
        let Some(sink) = self.sinks.get_mut(&header.flow) else { return };
        if sink.generation() == header.generation && sink.check(header).is_ok() {
            sink.insert(header.offset, payload);
            self.events
                .push_back(Event::Deliverable(FlowKey { flow: header.flow, generation: header.generation }));
        }
    }

    /// The receiver did not accept the last bytes of a message for which [`Relay::receive`] returned [`Incoming::Deliver`].
    pub fn receive_rest(&mut self, key: FlowKey, rest: Bytes) {
        if let Some(sink) = self.sink_mut(key) {
            sink.push_back(rest);
        }
    }

    fn receive_end(&mut self, header: &Header) -> Incoming {
        let key = FlowKey { flow: header.flow, generation: header.generation };
        if let Some(sink) = self.sink_mut(key) {
            match sink.set_end(header.offset) {
                Ok(()) => self.finish_delivery(key),
                Err(reason) => self.reset_sink(key.flow, reason),
            }
        }
        Incoming::Discard
    }

    fn sink_mut(&mut self, key: FlowKey) -> Option<&mut Sink> {
        self.sinks.get_mut(&key.flow).filter(|sink| sink.generation() == key.generation)
    }

    /// The next data for the receiver of a flow. What it does not accept has to be passed to [`Relay::receive_rest`].
    pub fn next_delivery(&mut self, key: FlowKey) -> Option<Bytes> {
        self.sink_mut(key)?.pop_next()
    }

    /// The receiver has accepted data: acknowledges bytes that it had before, and reports a complete stream.
    pub fn finish_delivery(&mut self, key: FlowKey) {
        if let Some(position) = self.sink_mut(key).and_then(|sink| sink.unsent_position()) {
            self.acknowledge(key, position);
        }
        if self.sink_mut(key).is_some_and(|sink| sink.is_complete()) {
            self.events.push_back(Event::FinishReceiver(key));
        }
    }

    /// The receiver has acknowledged the bytes before `offset`: grants further credit.
    pub fn acknowledge(&mut self, key: FlowKey, offset: u64) {
        let share = self.memory_bytes / 2 / (self.sinks.len() as u64).max(1);
        let window = share.clamp(INITIAL_CREDIT_BYTES, MAX_CREDIT_BYTES);
        let free = (self.memory_bytes / 2).saturating_sub(self.granted_bytes);
        let Some(sink) = self.sink_mut(key) else { return };
        let before = sink.credit();
        let source = sink.source();
        sink.acknowledge(offset, window, free);
        let after = sink.credit();
        self.granted_bytes = self.granted_bytes + after - before;
        if let Some(peer) = self.hop_to(source).and_then(|hop| self.peers.get_mut(&hop)) {
            peer.acks.insert(key.flow);
        }
    }

    /// The connection with the receiver has ended, or could not be established.
    pub fn close_receiver(&mut self, key: FlowKey, reason: Reason) {
        if self.sink_mut(key).is_some() {
            self.reset_sink(key.flow, reason);
        }
    }

    /// Closes a flow at its destination and its other end.
    fn reset_sink(&mut self, flow: FlowId, reason: Reason) {
        let Some(sink) = self.sinks.get(&flow) else { return };
        let (header, payload) = sink.ack(flow, self.id);
        if sink.is_open()
            && let Some(hop) = self.hop_to(sink.source())
        {
            // The last acknowledgement may still wait.
            self.push_control(hop, header, payload);
        }
        self.send_reset(&header, reason);
        self.remove_sink(flow);
    }

    fn remove_sink(&mut self, flow: FlowId) {
        let Some(sink) = self.sinks.remove(&flow) else { return };
        self.granted_bytes -= sink.credit();
        self.events.push_back(Event::CloseReceiver(FlowKey { flow, generation: sink.generation() }));
    }

    // Flows of other relays.

    fn receive_transit(&mut self, header: &Header) -> Incoming {
        let towards = match header.kind.direction() {
            Direction::Source => header.source,
            _ => header.destination,
        };
        let is_possible = header.hops > 0 && self.is_connected(towards);
        let is_known = self.overlay.coflows.contains_key(&header.flow.coflow);
        let has_memory = self.transits.waiting_bytes() + u64::from(header.length) <= self.memory_bytes / 2;
        if is_possible && is_known && has_memory {
            if header.length > 0 {
                return Incoming::Store;
            }
            self.forward(header, Bytes::new());
        } else if header.kind.direction() == Direction::Destination && header.hops > 0 {
            self.transits.remove(header.flow);
            self.send_reset(header, Reason::Lost);
        }
        Incoming::Discard
    }

    fn forward(&mut self, header: &Header, payload: Bytes) {
        let onward = Header { hops: header.hops.saturating_sub(1), ..*header };
        let towards =
            if header.kind.direction() == Direction::Source { header.source } else { header.destination };
        match header.kind {
            Kind::Data => {
                let class = self.overlay.rules.lookup(header.flow, header.source, header.destination);
                let class = class.map_or(Class::DEFAULT, |rule| rule.class);
                if self.transits.push(onward, payload, towards, self.now)
                    && let Some(peer) = self.peers.get_mut(&towards)
                {
                    peer.ready.insert(header.flow, class);
                }
            }
            _ => {
                if header.kind == Kind::Open {
                    self.transits.open(onward, towards, self.now);
                }
                self.push_control(towards, onward, payload);
            }
        }
    }

    // Maintenance and reports.

    /// Removes state that is no longer used. Call it about each second. O(flows).
    pub fn expire(&mut self) {
        let now = self.now;
        self.avoided.retain(|_, until| now < *until);
        self.transits.expire(now);
        let stale: Vec<FlowId> =
            self.sinks.iter().filter(|(_, sink)| sink.is_stale(now)).map(|(&flow, _)| flow).collect();
        stale.into_iter().for_each(|flow| self.reset_sink(flow, Reason::Lost));
    }

    /// The progress of coflows by the relay of the receivers.
    pub fn groups(&self) -> impl Iterator<Item = (u32, RelayId, GroupProgress)> {
        self.groups.iter().map(|(&(coflow, destination), &progress)| (coflow, destination, progress))
    }

    /// The counters of each path.
    pub fn paths(&self) -> impl Iterator<Item = (RelayId, bool, PathCounters)> {
        self.peers.iter().map(|(&relay, peer)| (relay, peer.is_connected, peer.counters))
    }

    /// The number of flows that begin here, that end here, and that pass through.
    pub fn flow_counts(&self) -> (usize, usize, usize) {
        (self.sources.len(), self.sinks.len(), self.transits.len())
    }

    /// The bytes in memory, and the credit that receivers have granted.
    pub fn used_bytes(&self) -> (u64, u64) {
        (self.transits.waiting_bytes(), self.granted_bytes)
    }
}
