//! A relay: cuts the flows of local programs into messages, forwards those of other relays, and delivers flows in order.
//!
//! Sans-I/O: the caller passes received messages and the time, and takes messages when a connection accepts them. Siphon, ATC '18,
//! section 4.2. Rules of the protocol:
//!
//! - *Known flows only.* The controller names the flows ([`Relay::register`]). Messages of others are refused with a reset.
//! - *End to end.* The source keeps bytes until the destination acknowledges them, that is, until the receiving program has
//!   accepted them. After a failure it sends them again, over the paths that remain. The destination drops repeated bytes.
//! - *Bounded memory.* A flow has at most [`Settings::window_bytes`] that are not acknowledged, at the source, at the destination
//!   and in the queues of each relay between them. A slow receiver stops its own sender, and no other flow.
//! - *Acknowledgements* travel to the source directly if it is connected, otherwise over another relay.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::forwarding::{Class, ForwardingTable, Match, Path, RelayId, Rule, Splitter};
use crate::message::{FlowId, Header, Kind, MAX_HOPS};
use crate::output_queue::OutputQueue;
use crate::receive_window::ReceiveWindow;
use crate::send_window::SendWindow;

/// Settings that all relays of an overlay share.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The maximum number of bytes of a flow that are not acknowledged: at least the bandwidth-delay product of a path.
    pub window_bytes: u64,
    /// The maximum payload of a message: 1 to [`crate::message::MAX_PAYLOAD_BYTES`].
    pub message_bytes: u32,
    /// A source without an acknowledgement for this long sends again, or for three round trips if they take longer; twice as
    /// long after each attempt, up to 16 times.
    pub retry_interval: Duration,
}

/// The relays of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoints {
    /// The relay of the sending program.
    pub source: RelayId,
    /// The relay of the receiving program.
    pub destination: RelayId,
}

/// A flow that starts at this relay.
#[derive(Debug)]
struct Source {
    window: SendWindow,
    splitter: Splitter,
    /// Next hops that lost messages of this flow, and are not used until the time.
    avoided: BTreeMap<RelayId, Duration>,
    end_sent: bool,
    next_retry: Duration,
    attempts: u32,
    /// A byte whose acknowledgement is awaited, and when it was queued: none after a retry, since an acknowledgement could be that of
    /// either copy (Karn's algorithm).
    timed: Option<(u64, Duration)>,
    /// Smoothed time from queueing to acknowledgement, over the queues of all relays.
    round_trip: Duration,
}

impl Source {
    /// The time without an acknowledgement after which bytes count as lost, for the n-th retry.
    fn timeout(&self, settings: &Settings) -> Duration {
        settings.retry_interval.max(self.round_trip * 3) * (1 << self.attempts.min(4))
    }
}

/// A flow that ends at this relay.
#[derive(Debug)]
struct Sink {
    window: ReceiveWindow,
    acked: u64,
}

/// A change of a local flow that the caller has to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// [`Relay::next_delivery`] has bytes, or the flow is complete.
    Readable(FlowId),
    /// [`Relay::free_bytes`] is above 0 again.
    Writable(FlowId),
    /// The destination has delivered the whole flow.
    Completed(FlowId),
    /// The flow cannot continue over the overlay: the program connects directly.
    Refused(FlowId),
}

/// Messages that were not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drops {
    /// Messages of flows that the controller has not named.
    pub unknown_flow: u64,
    /// Messages that had crossed [`MAX_HOPS`] relays: rules have a loop.
    pub too_many_hops: u64,
    /// Messages for a relay that is not connected.
    pub no_path: u64,
    /// Messages of a flow of which a whole window waits for the same relay.
    pub repeated: u64,
    /// Messages beyond the window, the end of a flow, or the sent bytes.
    pub invalid: u64,
}

/// What waits for a connected relay.
#[derive(Debug, Default)]
struct Peer {
    /// Acknowledgements, losses and resets are served before data. A newer one of the same flow and kind replaces the older, so
    /// their number is bounded by that of the flows.
    control: BTreeMap<(FlowId, Kind), Header>,
    data: OutputQueue<(Header, Bytes)>,
}

type Peers = BTreeMap<RelayId, Peer>;

/// A relay.
pub struct Relay {
    id: RelayId,
    settings: Settings,
    table: ForwardingTable,
    flows: BTreeMap<FlowId, Endpoints>,
    sources: BTreeMap<FlowId, Source>,
    sinks: BTreeMap<FlowId, Sink>,
    /// Connected relays, and the messages that wait for them.
    peers: Peers,
    /// Each at most once, so their number is bounded by that of the flows.
    events: BTreeSet<Event>,
    /// Flows that used a default path since the last [`Relay::take_unruled`].
    unruled: BTreeSet<FlowId>,
    drops: Drops,
}

impl Relay {
    /// A relay without flows and peers.
    pub fn new(id: RelayId, settings: Settings) -> Relay {
        Relay {
            id,
            settings,
            table: ForwardingTable::default(),
            flows: BTreeMap::new(),
            sources: BTreeMap::new(),
            sinks: BTreeMap::new(),
            peers: BTreeMap::new(),
            events: BTreeSet::new(),
            unruled: BTreeSet::new(),
            drops: Drops::default(),
        }
    }

    /// Sets rules, or removes them (`None`). New classes apply to waiting messages, too. O(peers x flows).
    pub fn change_rules(&mut self, changes: impl IntoIterator<Item = (Match, Option<Rule>)>) {
        for (target, rule) in changes {
            match rule {
                Some(rule) => self.table.insert(target, rule),
                None => self.table.remove(target),
            }
        }
        for peer in self.peers.values_mut() {
            for &flow in self.flows.keys() {
                peer.data.set_class(flow, self.table.class(flow));
            }
        }
    }

    /// Names a flow that may use the overlay.
    pub fn register(&mut self, flow: FlowId, ends: Endpoints) {
        self.flows.insert(flow, ends);
        if ends.destination == self.id {
            let window = ReceiveWindow::new(self.settings.window_bytes);
            self.sinks.entry(flow).or_insert(Sink { window, acked: 0 });
        }
    }

    /// Removes a flow and its messages.
    pub fn unregister(&mut self, flow: FlowId) {
        self.flows.remove(&flow);
        self.sources.remove(&flow);
        self.sinks.remove(&flow);
        self.unruled.remove(&flow);
        self.drop_waiting(flow);
    }

    /// A local program opens a flow. False if the controller has not named it, or not with this relay as its source: the
    /// program connects directly.
    pub fn open(&mut self, flow: FlowId, now: Duration) -> bool {
        let is_source = self.flows.get(&flow).is_some_and(|ends| ends.source == self.id);
        if is_source {
            self.sources.entry(flow).or_insert_with(|| Source {
                window: SendWindow::new(self.settings.window_bytes),
                splitter: Splitter::default(),
                avoided: BTreeMap::new(),
                end_sent: false,
                next_retry: now + self.settings.retry_interval,
                attempts: 0,
                timed: None,
                round_trip: Duration::ZERO,
            });
        }
        is_source
    }

    /// The number of bytes that [`Relay::write`] accepts for a flow.
    pub fn free_bytes(&self, flow: FlowId) -> u64 {
        self.sources.get(&flow).map_or(0, |source| source.window.free_bytes())
    }

    /// Sends bytes of a local program, at most [`Relay::free_bytes`].
    pub fn write(&mut self, flow: FlowId, payload: Bytes, now: Duration) {
        if let Some(source) = self.sources.get_mut(&flow) {
            source.window.write(payload);
            self.send(flow, now);
        }
    }

    /// The local program has ended a flow.
    pub fn end(&mut self, flow: FlowId, now: Duration) {
        if let Some(source) = self.sources.get_mut(&flow) {
            source.window.end();
            self.send(flow, now);
        }
    }

    /// A connection to another relay is established.
    pub fn connect(&mut self, peer: RelayId, now: Duration) {
        self.peers.insert(peer, Peer::default());
        self.send_all(now);
    }

    /// The connection to another relay has failed. Flows that used it send their unacknowledged bytes again.
    pub fn disconnect(&mut self, peer: RelayId, now: Duration) {
        self.peers.remove(&peer);
        let used = self.sources.iter().filter(|(_, source)| source.splitter.has_used(peer));
        for flow in used.map(|(&flow, _)| flow).collect::<Vec<_>>() {
            self.resend(flow, now);
        }
    }

    /// A message from another relay. Its payload has the length of the header.
    pub fn receive(&mut self, from: RelayId, header: Header, payload: Bytes, now: Duration) {
        let flow = header.flow;
        let Some(&ends) = self.flows.get(&flow) else {
            self.drops.unknown_flow += 1;
            if header.kind.is_for_destination() {
                self.push_control(from, Header { kind: Kind::Reset, hops: MAX_HOPS, length: 0, ..header });
            }
            return;
        };
        let is_forward = header.kind.is_for_destination();
        let target = if is_forward { ends.destination } else { ends.source };
        if target != self.id {
            self.forward(target, header, payload);
        } else if is_forward {
            self.accept(header, payload);
        } else {
            self.react(header, from, now);
        }
    }

    /// The next message for a connected relay, in the order of service.
    pub fn next_message(&mut self, peer: RelayId) -> Option<(Header, Bytes)> {
        let peer = self.peers.get_mut(&peer)?;
        peer.control.pop_first().map(|(_, header)| (header, Bytes::new())).or_else(|| peer.data.pop())
    }

    /// The next bytes for a local program. Taking them acknowledges them, so call it when the program accepts bytes.
    pub fn next_delivery(&mut self, flow: FlowId) -> Option<Bytes> {
        let sink = self.sinks.get_mut(&flow)?;
        let payload = sink.window.pop_next()?;
        if sink.window.is_complete() || sink.window.delivered() - sink.acked >= self.settings.window_bytes / 4
        {
            self.acknowledge(flow);
        }
        Some(payload)
    }

    /// Whether a local program has received a flow as a whole.
    pub fn is_delivered(&self, flow: FlowId) -> bool {
        self.sinks.get(&flow).is_some_and(|sink| sink.window.is_complete())
    }

    /// The next event of a local flow.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_first()
    }

    /// Sends bytes again whose acknowledgement is overdue, and acknowledges delivered bytes. Call it at least every
    /// [`Settings::retry_interval`].
    pub fn tick(&mut self, now: Duration) {
        let is_due = |source: &Source| !source.window.is_complete() && source.next_retry <= now;
        let due = self.sources.iter().filter(|(_, source)| is_due(source));
        for flow in due.map(|(&flow, _)| flow).collect::<Vec<_>>() {
            self.resend(flow, now);
        }
        let has_news = |sink: &Sink| sink.window.delivered() > sink.acked;
        let unacked = self.sinks.iter().filter(|(_, sink)| has_news(sink));
        for flow in unacked.map(|(&flow, _)| flow).collect::<Vec<_>>() {
            self.acknowledge(flow);
        }
    }

    /// Flows that used the direct path without a rule, since the last call.
    pub fn take_unruled(&mut self) -> BTreeSet<FlowId> {
        std::mem::take(&mut self.unruled)
    }

    /// The maximum of bytes of one flow that wait for one relay.
    pub fn max_waiting_bytes(&self) -> u64 {
        let waiting =
            |peer: &Peer| self.flows.keys().map(|&flow| peer.data.waiting_bytes(flow)).max().unwrap_or(0);
        self.peers.values().map(waiting).max().unwrap_or(0)
    }

    /// Messages that were not forwarded, since the start.
    pub fn drops(&self) -> Drops {
        self.drops
    }

    fn send_all(&mut self, now: Duration) {
        for flow in self.sources.keys().copied().collect::<Vec<_>>() {
            self.send(flow, now);
        }
    }

    /// Queues the bytes of a source that have not been sent, over its paths that are usable.
    fn send(&mut self, flow: FlowId, now: Duration) {
        let (Some(source), Some(ends)) = (self.sources.get_mut(&flow), self.flows.get(&flow)) else { return };
        let rule = self.table.lookup(flow);
        let direct = [Path { next: ends.destination, fraction: 1.0 }];
        let (class, paths) = rule.map_or((Class::DEFAULT, &direct[..]), |rule| (rule.class(), rule.paths()));
        if rule.is_none() {
            self.unruled.insert(flow);
        }
        source.avoided.retain(|_, until| *until > now);
        let Source { window, splitter, avoided, end_sent, timed, .. } = source;
        while let Some((offset, payload)) = window.peek(self.settings.message_bytes) {
            let length = payload.len() as u32;
            let Some(next) = choose_hop(splitter, [paths, &direct], length, &self.peers, avoided) else {
                return;
            };
            window.mark_sent(length);
            timed.get_or_insert((offset, now));
            let header = Header { kind: Kind::Data, hops: MAX_HOPS, length, flow, offset };
            let peer = self.peers.get_mut(&next).expect("a usable next hop is connected");
            peer.data.push(flow, class, length, (header, payload));
        }
        if let (Some(offset), false) = (window.end_offset(), *end_sent)
            && let Some(next) = choose_hop(splitter, [paths, &direct], 0, &self.peers, avoided)
        {
            *end_sent = true;
            let header = Header { kind: Kind::End, hops: MAX_HOPS, length: 0, flow, offset };
            let peer = self.peers.get_mut(&next).expect("a usable next hop is connected");
            peer.data.push(flow, class, 1, (header, Bytes::new()));
        }
    }

    /// Sends all unacknowledged bytes of a source again.
    fn resend(&mut self, flow: FlowId, now: Duration) {
        let Some(source) = self.sources.get_mut(&flow) else { return };
        source.window.rewind();
        source.end_sent = false;
        source.splitter.reset();
        source.next_retry = now + source.timeout(&self.settings);
        source.attempts += 1;
        source.timed = None;
        self.drop_waiting(flow);
        self.send(flow, now);
    }

    /// Drops the messages of a flow that wait for other relays. O(peers x log flows), and their messages.
    fn drop_waiting(&mut self, flow: FlowId) {
        for peer in self.peers.values_mut() {
            drop(peer.data.remove(flow));
        }
    }

    /// Forwards a message of another relay towards its target.
    fn forward(&mut self, target: RelayId, header: Header, payload: Bytes) {
        if header.hops == 0 {
            self.drops.too_many_hops += 1;
            return self.report_loss(header);
        }
        let header = Header { hops: header.hops - 1, ..header };
        if !header.kind.is_for_destination() {
            return self.push_towards(target, header);
        }
        let class = self.table.class(header.flow);
        match self.peers.get_mut(&target) {
            // A source that sends again while its messages still wait here gains nothing from a second copy.
            Some(peer) if peer.data.waiting_bytes(header.flow) >= self.settings.window_bytes => {
                self.drops.repeated += 1
            }
            Some(peer) => peer.data.push(header.flow, class, header.length.max(1), (header, payload)),
            None => {
                self.drops.no_path += 1;
                self.report_loss(header);
            }
        }
    }

    /// Accepts a message for a local program.
    fn accept(&mut self, header: Header, payload: Bytes) {
        let Some(sink) = self.sinks.get_mut(&header.flow) else { return };
        let result = match header.kind {
            Kind::Data => sink.window.insert(header.offset, payload),
            _ => sink.window.set_end(header.offset),
        };
        if result.is_err() {
            self.drops.invalid += 1;
            return;
        }
        // The end of a flow without bytes to deliver completes it at once. Data that was acknowledged before shows that the
        // acknowledgement was lost.
        if sink.window.is_complete() || header.end() <= sink.acked {
            self.acknowledge(header.flow);
        }
        self.events.insert(Event::Readable(header.flow));
    }

    /// Reacts to an acknowledgement, a loss or a reset of a local source.
    fn react(&mut self, header: Header, from: RelayId, now: Duration) {
        let Some(source) = self.sources.get_mut(&header.flow) else { return };
        match header.kind {
            Kind::Ack => {
                if source.window.acknowledge(header.offset).is_err() {
                    self.drops.invalid += 1;
                    return;
                }
                for peer in self.peers.values_mut() {
                    peer.data.drop_while(header.flow, |(data, _)| {
                        data.kind == Kind::Data && data.end() <= header.offset
                    });
                }
                if let Some((_, since)) = source.timed.take_if(|(byte, _)| *byte < header.offset) {
                    let sample = now.saturating_sub(since);
                    let is_first = source.round_trip.is_zero();
                    source.round_trip = if is_first { sample } else { (source.round_trip * 7 + sample) / 8 };
                }
                source.attempts = 0;
                source.next_retry = now + source.timeout(&self.settings);
                if source.window.is_complete() {
                    self.events.insert(Event::Completed(header.flow));
                } else {
                    self.events.insert(Event::Writable(header.flow));
                }
            }
            Kind::Lost => {
                source.avoided.insert(from, now + self.settings.retry_interval);
                self.resend(header.flow, now);
            }
            _ => {
                self.events.insert(Event::Refused(header.flow));
            }
        }
    }

    fn acknowledge(&mut self, flow: FlowId) {
        let (Some(sink), Some(ends)) = (self.sinks.get_mut(&flow), self.flows.get(&flow)) else { return };
        let offset = sink.window.delivered();
        sink.acked = offset;
        let source = ends.source;
        self.push_towards(source, Header { kind: Kind::Ack, hops: MAX_HOPS, length: 0, flow, offset });
    }

    fn report_loss(&mut self, header: Header) {
        let Some(ends) = self.flows.get(&header.flow) else { return };
        let lost = Header { kind: Kind::Lost, hops: MAX_HOPS, length: 0, ..header };
        if header.kind.is_for_destination() {
            self.push_towards(ends.source, lost);
        }
    }

    /// Queues a control message for a relay: directly if it is connected, otherwise over the first other one.
    fn push_towards(&mut self, target: RelayId, header: Header) {
        let next =
            if self.peers.contains_key(&target) { Some(target) } else { self.peers.keys().next().copied() };
        match next {
            Some(next) => self.push_control(next, header),
            None => self.drops.no_path += 1,
        }
    }

    fn push_control(&mut self, peer: RelayId, header: Header) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            let waiting = peer.control.entry((header.flow, header.kind)).or_insert(header);
            // The highest acknowledgement and the first loss contain the others.
            if header.kind != Kind::Ack || header.offset > waiting.offset {
                *waiting = header;
            }
        }
    }
}

/// The next hop of a message: one of the first paths that is connected and not avoided, otherwise one of the second.
fn choose_hop(
    splitter: &mut Splitter,
    paths: [&[Path]; 2],
    length: u32,
    peers: &Peers,
    avoided: &BTreeMap<RelayId, Duration>,
) -> Option<RelayId> {
    let is_usable = |hop: RelayId| peers.contains_key(&hop) && !avoided.contains_key(&hop);
    paths.into_iter().find_map(|paths| splitter.choose(paths, length, is_usable))
}
