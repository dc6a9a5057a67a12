//! Messages from other relays, for this one or others.

use bytes::Bytes;
use weir_flow::Reason;

use super::{AVOIDANCE, Event, FlowKey, Incoming, MAX_CREDIT_BYTES, Peer, Relay, Sink, Source};
use crate::forwarding::Class;
use crate::message::{
    ADDRESS_BYTES, FlowId, Header, Kind, LIMIT_BYTES, MAX_HOPS, RelayId, decode_address, decode_reason,
    encode_reason,
};

impl Relay {
    /// The connections with a relay are established.
    pub fn connect_peer(&mut self, relay: RelayId) {
        let peer = self.peers.entry(relay).or_default();
        peer.is_connected = true;
        self.avoided.retain(|&(hop, _), _| hop != relay);
        self.reset_splitters();
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
        // What was on its way over this relay is lost. Flows that came over others continue.
        let is_orphan = |sink: &&Sink| sink.via() == relay;
        let orphans: Vec<FlowId> =
            self.sinks.iter().filter(|(_, sink)| is_orphan(sink)).map(|(&flow, _)| flow).collect();
        orphans.into_iter().for_each(|flow| self.reset_sink(flow, Reason::Lost));
        for header in self.transits.remove_hop(relay) {
            self.send_reset(&header, Reason::Lost);
        }
        for (header, next) in self.transits.remove_source(relay) {
            self.push_control(
                next,
                Header { kind: Kind::Abort, length: 0, offset: 0, ..header },
                Bytes::new(),
            );
        }
        self.reset_splitters();
        self.requeue_all();
    }

    /// Notes that a connected relay has sent nothing for a while, or is heard again. It may be slow, so flows to its programs continue.
    /// Flows on a detour over it continue over other paths: their messages may wait there. Returns whether that is news. O(flows).
    pub fn set_silent(&mut self, relay: RelayId, is_silent: bool) -> bool {
        let Some(peer) = self.peers.get_mut(&relay) else { return false };
        if !peer.is_connected || peer.is_silent == is_silent {
            return false;
        }
        peer.is_silent = is_silent;
        let is_delayed = |source: &&Source| source.used.contains(&relay) && source.destination != relay;
        let delayed: Vec<FlowId> = self
            .sources
            .iter()
            .filter(|(_, source)| is_silent && is_delayed(source))
            .map(|(&flow, _)| flow)
            .collect();
        delayed.into_iter().for_each(|flow| self.reset_source(flow, Reason::Lost));
        self.reset_splitters();
        self.requeue_all();
        true
    }

    /// Decides about a message from a relay, by its header. Messages without payload are processed.
    pub fn receive(&mut self, from: RelayId, header: &Header) -> Incoming {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.counters.received_messages += 1;
            if header.kind == Kind::Data {
                peer.counters.received_bytes += u64::from(header.length);
            }
        }
        let Some(target) = header.target() else {
            if header.kind == Kind::Ping {
                self.push_control(from, self.heartbeat(Kind::Pong, from, header.offset), Bytes::new());
            }
            return Incoming::Discard;
        };
        if target != self.id {
            return self.receive_transit(header, target);
        }
        match header.kind {
            Kind::Data => return self.receive_data(from, header),
            Kind::Open | Kind::Ack => return Incoming::Store,
            Kind::End => self.receive_end(header),
            Kind::Abort => {
                if self.sinks.get(&header.flow).is_some_and(|sink| sink.generation() <= header.generation) {
                    self.remove_sink(header.flow);
                }
            }
            Kind::Reset => self.receive_reset(from, header),
            // Those have no target.
            Kind::Ping | Kind::Pong => {}
        }
        Incoming::Discard
    }

    /// Processes the payload of a message from a relay for which [`Relay::receive`] returned [`Incoming::Store`].
    pub fn receive_payload(&mut self, from: RelayId, header: &Header, payload: Bytes) {
        let Some(target) = header.target() else { return };
        if target != self.id {
            return self.forward(header, target, payload);
        }
        match header.kind {
            Kind::Open => {
                if let Ok(address) = <&[u8; ADDRESS_BYTES]>::try_from(&payload[..]) {
                    self.receive_open(from, header, decode_address(address));
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
        let key = FlowKey::of(header);
        let Some(source) = self.source_mut(key) else { return };
        if header.offset > source.offset {
            return self.reset_source(key.flow, Reason::Invalid);
        }
        // Another version may grant more.
        let limit = limit.min(header.offset + MAX_CREDIT_BYTES);
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
        let key = FlowKey::of(header);
        let Some(source) = self.source_mut(key) else { return };
        let destination = source.destination;
        // A reset of the destination has passed the relay in between, which is not the cause.
        if from != destination && header.hops == MAX_HOPS {
            self.avoided.insert((from, destination), self.now + AVOIDANCE);
        }
        self.reset_source(key.flow, decode_reason(header.offset));
    }

    /// Sends a reset to the source of a message.
    pub(super) fn send_reset(&mut self, header: &Header, reason: Reason) {
        self.send_reset_over(header.source, header, reason);
    }

    /// The same, over a certain relay if it is connected.
    pub(super) fn send_reset_over(&mut self, via: RelayId, header: &Header, reason: Reason) {
        self.resets.sent.add(reason);
        let reset =
            Header { kind: Kind::Reset, hops: MAX_HOPS, length: 0, offset: encode_reason(reason), ..*header };
        if let Some(hop) = self.hop_for_answers(header.source, via) {
            self.push_control(hop, reset, Bytes::new());
        }
    }

    /// The next hop to a relay: direct, otherwise the way that its messages came, otherwise any.
    pub(super) fn hop_for_answers(&self, relay: RelayId, via: RelayId) -> Option<RelayId> {
        let known = [relay, via].into_iter().find(|&hop| self.is_connected(hop));
        known.or_else(|| self.peers.iter().find(|(_, peer)| peer.is_connected).map(|(&hop, _)| hop))
    }

    fn receive_transit(&mut self, header: &Header, target: RelayId) -> Incoming {
        let is_possible = header.hops > 0 && self.is_connected(target);
        let is_known = self.overlay.coflows.contains_key(&header.flow.coflow);
        let is_new = header.kind == Kind::Open && self.is_draining;
        if is_possible
            && is_known
            && !is_new
            && (header.kind != Kind::Data || self.has_memory(header, target))
        {
            if header.length > 0 {
                return Incoming::Store;
            }
            self.forward(header, target, Bytes::new());
        } else if !header.kind.is_answer() && header.hops > 0 {
            self.refuse_transit(header);
        }
        Incoming::Discard
    }

    /// Whether a message may wait for a relay: a slow one uses its share of the memory only.
    fn has_memory(&self, header: &Header, target: RelayId) -> bool {
        let share = self.memory_bytes / 2 / (self.peers.len() as u64).max(1);
        self.transits.waiting_bytes_to(target) + u64::from(header.length) <= share
    }

    fn refuse_transit(&mut self, header: &Header) {
        if self.transits.close(header) {
            self.send_reset(header, Reason::Lost);
        }
    }

    fn forward(&mut self, header: &Header, target: RelayId, payload: Bytes) {
        let onward = Header { hops: header.hops.saturating_sub(1), ..*header };
        match header.kind {
            Kind::Data => {
                let class = self.overlay.rule_for(header.flow, header.source, header.destination);
                let class = class.map_or(Class::DEFAULT, |rule| rule.class);
                if !self.transits.push(onward, payload, target, self.now) {
                    self.refuse_transit(header);
                } else if let Some(peer) = self.peers.get_mut(&target) {
                    peer.ready.insert(header.flow, class);
                }
            }
            _ => {
                match header.kind {
                    Kind::Open if !self.transits.open(onward, target, self.now) => {
                        return self.refuse_transit(header);
                    }
                    Kind::End => self.transits.end(header),
                    Kind::Abort => drop(self.transits.close(header)),
                    _ => {}
                }
                self.push_control(target, onward, payload);
            }
        }
    }
}
