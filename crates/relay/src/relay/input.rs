//! Messages from other relays, for this one or others.

use bytes::Bytes;
use weir_flow::Reason;

use super::{AVOIDANCE, Event, FlowKey, Incoming, MAX_CREDIT_BYTES, Peer, Relay, Sink, Source};
use crate::forwarding::{Class, RelayId};
use crate::message::{
    ADDRESS_BYTES, FlowId, Header, Kind, LIMIT_BYTES, MAX_HOPS, decode_address, decode_reason, encode_reason,
};

impl Relay {
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
            Kind::Data => return self.receive_data(header),
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

    /// Processes the payload of a message for which [`Relay::receive`] returned [`Incoming::Store`].
    pub fn receive_payload(&mut self, header: &Header, payload: Bytes) {
        let Some(target) = header.target() else { return };
        if target != self.id {
            return self.forward(header, target, payload);
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
        let key = FlowKey::of(header);
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
        let key = FlowKey::of(header);
        let Some(source) = self.source_mut(key) else { return };
        let destination = source.destination;
        if from != destination {
            self.avoided.insert((from, destination), self.now + AVOIDANCE);
        }
        self.reset_source(key.flow, decode_reason(header.offset));
    }

    /// Sends a reset to the source of a message.
    pub(super) fn send_reset(&mut self, header: &Header, reason: Reason) {
        let reset =
            Header { kind: Kind::Reset, hops: MAX_HOPS, length: 0, offset: encode_reason(reason), ..*header };
        if let Some(hop) = self.hop_to(header.source) {
            self.push_control(hop, reset, Bytes::new());
        }
    }

    /// The next hop to a relay: direct, or over any other one.
    pub(super) fn hop_to(&self, relay: RelayId) -> Option<RelayId> {
        if self.is_connected(relay) {
            return Some(relay);
        }
        self.peers.iter().find(|(_, peer)| peer.is_connected).map(|(&hop, _)| hop)
    }

    fn receive_transit(&mut self, header: &Header, target: RelayId) -> Incoming {
        let is_possible = header.hops > 0 && self.is_connected(target);
        let is_known = self.overlay.coflows.contains_key(&header.flow.coflow);
        let has_memory = self.transits.waiting_bytes() + u64::from(header.length) <= self.memory_bytes / 2;
        if is_possible && is_known && has_memory {
            if header.length > 0 {
                return Incoming::Store;
            }
            self.forward(header, target, Bytes::new());
        } else if !header.kind.is_answer() && header.hops > 0 {
            self.transits.remove(header.flow);
            self.send_reset(header, Reason::Lost);
        }
        Incoming::Discard
    }

    fn forward(&mut self, header: &Header, target: RelayId, payload: Bytes) {
        let onward = Header { hops: header.hops.saturating_sub(1), ..*header };
        match header.kind {
            Kind::Data => {
                let class = self.overlay.rules.lookup(header.flow, header.source, header.destination);
                let class = class.map_or(Class::DEFAULT, |rule| rule.class);
                if self.transits.push(onward, payload, target, self.now)
                    && let Some(peer) = self.peers.get_mut(&target)
                {
                    peer.ready.insert(header.flow, class);
                }
            }
            _ => {
                if header.kind == Kind::Open {
                    self.transits.open(onward, target, self.now);
                }
                self.push_control(target, onward, payload);
            }
        }
    }
}
