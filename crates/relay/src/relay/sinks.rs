//! Flows that end at this relay.

use std::net::SocketAddr;

use bytes::Bytes;
use weir_flow::{FirstLine, Offset, Reason};

use super::{Event, FlowKey, INITIAL_CREDIT_BYTES, Incoming, MAX_CREDIT_BYTES, Relay, Sink};
use crate::message::{FlowId, Header, Kind, RelayId};

impl Relay {
    pub(super) fn receive_open(&mut self, from: RelayId, header: &Header, receiver: SocketAddr) {
        let Some(coflow) = self.overlay.coflows.get(&header.flow.coflow) else {
            return self.send_reset(header, Reason::UnknownCoflow);
        };
        let (Ok(name), Some(offset)) = (coflow.name.parse(), Offset::new(header.offset)) else {
            return self.send_reset(header, Reason::Invalid);
        };
        if !self.overlay.relays_of(receiver.ip()).contains(&self.id) {
            return self.send_reset(header, Reason::Unreachable);
        }
        if self.is_draining {
            return self.send_reset(header, Reason::Busy);
        }
        let request = FirstLine {
            coflow: name,
            flow: header.flow.flow,
            generation: header.generation,
            offset,
            receiver,
        };
        if !self.prepare_sink(from, header) {
            return;
        }
        self.closed_sinks.remove(header.flow);
        let Some(sink) = self.sinks.get_mut(&header.flow) else { return };
        if sink.open(header.offset, INITIAL_CREDIT_BYTES).is_err() {
            return self.reset_sink(header.flow, Reason::Lost);
        }
        let key = FlowKey::of(header);
        self.events.push_back(Event::ConnectReceiver(key, request));
    }

    /// Makes sure that there is a sink for the generation of a message. If there cannot be one, sends a reset and returns false.
    fn prepare_sink(&mut self, from: RelayId, header: &Header) -> bool {
        if let Some(sink) = self.sinks.get_mut(&header.flow) {
            let (known, found) = (sink.generation(), header.generation);
            let is_second_open = known == found && header.kind == Kind::Open && sink.is_open();
            if found < known || is_second_open || sink.source() != header.source && found == known {
                self.send_reset(header, Reason::Replaced);
                return false;
            }
            if found == known {
                sink.set_via(from);
                return true;
            }
            self.remove_sink(header.flow);
        }
        if self.granted_bytes + INITIAL_CREDIT_BYTES > self.memory_bytes / 2 {
            self.send_reset(header, Reason::Busy);
            return false;
        }
        self.granted_bytes += INITIAL_CREDIT_BYTES;
        let sink = Sink::new(header, from, INITIAL_CREDIT_BYTES, self.now);
        self.sinks.insert(header.flow, sink);
        true
    }

    pub(super) fn receive_data(&mut self, from: RelayId, header: &Header) -> Incoming {
        if self.closed_sinks.is_late(header.flow, header.generation) {
            return Incoming::Discard;
        }
        if !self.overlay.coflows.contains_key(&header.flow.coflow) {
            self.send_reset(header, Reason::UnknownCoflow);
            return Incoming::Discard;
        }
        if !self.prepare_sink(from, header) {
            return Incoming::Discard;
        }
        let Some(sink) = self.sinks.get_mut(&header.flow) else { return Incoming::Discard };
        let checked = if sink.is_closed() { Err(Reason::Lost) } else { sink.check(header) };
        if let Err(reason) = checked {
            self.reset_sink(header.flow, reason);
            return Incoming::Discard;
        }
        if sink.is_next(header.offset) {
            sink.begin_delivery(header.length);
            return Incoming::Deliver(FlowKey::of(header));
        }
        Incoming::Store
    }

    pub(super) fn receive_stored_data(&mut self, header: &Header, payload: Bytes) {
        let Some(sink) = self.sinks.get_mut(&header.flow) else { return };
        if sink.generation() != header.generation {
            return;
        }
        // Messages of other connections have arrived since the check of the header.
        if sink.is_closed() || sink.check(header).is_err() {
            return self.reset_sink(header.flow, Reason::Lost);
        }
        sink.insert(header.offset, payload);
        self.events.push_back(Event::Deliverable(FlowKey::of(header)));
    }

    /// The receiver did not accept the last bytes of a message for which [`Relay::receive`] returned [`Incoming::Deliver`].
    pub fn receive_rest(&mut self, key: FlowKey, rest: Bytes) {
        if let Some(sink) = self.sink_mut(key) {
            sink.push_back(rest);
        }
    }

    pub(super) fn receive_end(&mut self, header: &Header) {
        let key = FlowKey::of(header);
        if let Some(sink) = self.sink_mut(key) {
            match sink.set_end(header.offset) {
                Ok(()) => self.finish_delivery(key),
                Err(reason) => self.reset_sink(key.flow, reason),
            }
        }
    }

    fn sink_mut(&mut self, key: FlowKey) -> Option<&mut Sink> {
        self.sinks.get_mut(&key.flow).filter(|sink| sink.generation() == key.generation)
    }

    /// The next data for the receiver of a flow. Pass the part that the receiver does not accept to [`Relay::receive_rest`].
    pub fn next_delivery(&mut self, key: FlowKey) -> Option<Bytes> {
        self.sink_mut(key)?.pop_next()
    }

    /// The receiver has accepted data: acknowledges bytes that it had before, and reports a complete stream.
    pub fn finish_delivery(&mut self, key: FlowKey) {
        if let Some(position) = self.sink_mut(key).and_then(|sink| sink.unsent_position()) {
            self.acknowledge(key, position);
        }
        let Some(sink) = self.sink_mut(key).filter(|sink| sink.is_complete()) else { return };
        if sink.is_closed() {
            self.remove_sink(key.flow);
        } else {
            self.events.push_back(Event::FinishReceiver(key));
        }
    }

    /// The receiver has acknowledged the bytes before `offset`: grants further credit.
    pub fn acknowledge(&mut self, key: FlowKey, offset: u64) {
        // A quarter is left for flows that begin: open flows return credit only as their receivers acknowledge.
        let budget = self.memory_bytes / 8 * 3;
        let share = budget / (self.sinks.len() as u64).max(1);
        let window = share.clamp(INITIAL_CREDIT_BYTES, MAX_CREDIT_BYTES);
        let free = budget.saturating_sub(self.granted_bytes);
        let Some(sink) = self.sink_mut(key) else { return };
        let before = sink.credit();
        let (source, via) = (sink.source(), sink.via());
        sink.acknowledge(offset, window, free);
        let after = sink.credit();
        self.granted_bytes = self.granted_bytes + after - before;
        if let Some(peer) = self.hop_for_answers(source, via).and_then(|hop| self.peers.get_mut(&hop)) {
            peer.acks.insert(key.flow);
        }
    }

    /// The receiver has closed its connection. A receiver that has acknowledged all data so far may have finished: the flow ends with the
    /// connection of its sender. If further data arrives, or the sender does not close its connection, the flow is lost.
    pub fn end_receiver(&mut self, key: FlowKey) {
        let now = self.now;
        match self.sink_mut(key) {
            None => {}
            Some(sink) if !sink.is_acknowledged() => self.reset_sink(key.flow, Reason::Lost),
            Some(sink) if sink.is_complete() => self.remove_sink(key.flow),
            Some(sink) => {
                sink.close(now);
                self.events.push_back(Event::CloseReceiver(key));
            }
        }
    }

    /// The connection with the receiver has failed, or could not be established.
    pub fn close_receiver(&mut self, key: FlowKey, reason: Reason) {
        if self.sink_mut(key).is_some() {
            self.reset_sink(key.flow, reason);
        }
    }

    /// Closes a flow at its destination and its other end.
    pub(super) fn reset_sink(&mut self, flow: FlowId, reason: Reason) {
        let Some(sink) = self.sinks.get(&flow) else { return };
        let (header, payload) = sink.ack(flow, self.id);
        let via = sink.via();
        if sink.is_open()
            && let Some(hop) = self.hop_for_answers(header.source, via)
        {
            // The last acknowledgement may still wait.
            self.push_control(hop, header, payload);
        }
        self.send_reset_over(via, &header, reason);
        self.remove_sink(flow);
    }

    pub(super) fn remove_sink(&mut self, flow: FlowId) {
        let Some(sink) = self.sinks.remove(&flow) else { return };
        self.granted_bytes -= sink.credit();
        self.closed_sinks.insert(flow, sink.generation(), self.now);
        self.events.push_back(Event::CloseReceiver(FlowKey { flow, generation: sink.generation() }));
    }
}
