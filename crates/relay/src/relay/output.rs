//! Messages to other relays.

use bytes::Bytes;

use super::{FlowKey, Lane, MAX_CONTROL_MESSAGES, MAX_EXPRESS_BYTES, MAX_SPLIT_BYTES, Outgoing, Relay};
use crate::message::{FlowId, Header, Kind, MAX_OFFSET, RelayId};

impl Relay {
    pub(super) fn push_control(&mut self, hop: RelayId, header: Header, payload: Bytes) {
        let Some(peer) = self.peers.get_mut(&hop).filter(|peer| peer.is_connected) else { return };
        if peer.control.len() < MAX_CONTROL_MESSAGES {
            peer.control.push_back((header, payload));
        }
    }

    /// Limits the length of messages with data for a relay, until the connections with it fail. Longer ones of other relays are divided.
    pub fn set_max_message(&mut self, relay: RelayId, bytes: u32) {
        if let Some(peer) = self.peers.get_mut(&relay) {
            peer.max_message = bytes;
        }
    }

    /// Queues a heartbeat, which the other relay answers with the same time.
    pub fn ping(&mut self, relay: RelayId, time: u64) {
        self.push_control(relay, self.heartbeat(Kind::Ping, relay, time), Bytes::new());
    }

    pub(super) fn heartbeat(&self, kind: Kind, relay: RelayId, time: u64) -> Header {
        let flow = FlowId { coflow: 0, flow: 0 };
        let offset = time.min(MAX_OFFSET);
        Header { kind, hops: 0, generation: 0, length: 0, flow, offset, source: self.id, destination: relay }
    }

    /// The next control message for a relay.
    pub fn next_control(&mut self, relay: RelayId) -> Option<(Header, Bytes)> {
        let peer = self.peers.get_mut(&relay)?;
        while let Some(flow) = peer.acks.pop_first() {
            if let Some(sink) = self.sinks.get(&flow) {
                peer.counters.sent_messages += 1;
                return Some(sink.ack(flow, self.id));
            }
        }
        let message = peer.control.pop_front()?;
        peer.counters.sent_messages += 1;
        Some(message)
    }

    /// The next data for a relay. Ask for the express connection while the bulk connection accepts no data.
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
                let longest = if is_split { peer.max_message.min(MAX_SPLIT_BYTES) } else { peer.max_message };
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
        let max = self.peers.get(&relay)?.max_message;
        let (header, payload) = self.transits.pop(flow, max)?;
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
        peer.counters.sent_messages += 1;
    }

    /// Counts bytes of a group that this relay sends over another relay than the destination.
    fn count_detour(&mut self, relay: RelayId, group: (u32, RelayId), bytes: u32) {
        if let Some(peer) = self.peers.get_mut(&relay) {
            peer.counters.detoured_bytes += u64::from(bytes);
        }
        if let Some(progress) = self.groups.get_mut(&group) {
            progress.detoured_bytes += u64::from(bytes);
        }
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
        let region = self.overlay.region_of(relay);
        if bytes > 0 {
            self.charge(relay, lane, key.flow, bytes);
        }
        let Some(source) = self.source_mut(key) else { return header };
        let offset = source.offset;
        source.offset += u64::from(bytes);
        source.is_readable = !is_drained;
        if bytes > 0 {
            source.used.insert(relay);
            if let Some(region) = region {
                source.splitter.charge(region, bytes);
            }
            let destination = source.destination;
            if destination != relay {
                self.count_detour(relay, (key.flow.coflow, destination), bytes);
            }
        }
        self.requeue(key.flow);
        Header { offset, ..header }
    }
}
