//! Moves messages between programs and the connections with relays.

use std::io;
use std::ops::Bound::{Excluded, Unbounded};

use weir_flow::Reason;

use super::lane::{COPY_BYTES, Lane, PartialMessage, Source};
use super::pipe::Filled;
use super::program::Receiver;
use super::server::Server;
use super::token::Token;
use crate::message::{Kind, RelayId};
use crate::relay::{FlowKey, Incoming, Lane as LaneKind, Outgoing};

/// The bytes that are read from the bulk connections of one relay before the others get their turn, and the minimum of each connection.
const READ_BUDGET_BYTES: usize = 4 << 20;
const MIN_READ_BYTES: usize = 64 << 10;

/// The number of messages that are written to one connection before the others get their turn.
const WRITE_BUDGET: usize = 32;

/// Control messages are written in batches of about this length.
const CONTROL_BATCH_BYTES: usize = 64 << 10;

/// A message of this length counts as long.
const BULK_BYTES: usize = 64 << 10;

/// The state of a connection with a relay after it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneState {
    Open,
    /// The other relay has closed it after a complete message.
    Ended,
}

impl Server {
    // Output.

    /// Writes as much to each relay as it accepts.
    pub(super) fn pump_all(&mut self) {
        let mut next = self.links.keys().next().copied();
        while let Some(relay) = next {
            let is_up = self.links.get(&relay).is_some_and(|link| link.is_up);
            if is_up && self.pump(relay).is_err() {
                self.fail_link(relay);
            }
            next = self.links.range((Excluded(relay), Unbounded)).next().map(|(&id, _)| id);
        }
    }

    fn pump(&mut self, relay: RelayId) -> io::Result<()> {
        let Some((bulk, express)) = self.links.get(&relay).and_then(|link| link.lanes()) else {
            return Ok(());
        };
        self.pump_control(relay, express)?;
        let is_backlogged = self.pump_bulk(relay, bulk)?;
        if is_backlogged {
            self.pump_data(relay, express, LaneKind::Express)?;
        }
        self.close_unused(relay)?;
        // Reading from programs may have ended flows.
        self.pump_control(relay, express)
    }

    /// Writes data to the bulk connections. A connection gets messages until it accepts no more, so that few gaps wait at the receiver.
    /// Returns whether none of them accepts more.
    fn pump_bulk(&mut self, relay: RelayId, bulk: Token) -> io::Result<bool> {
        let (mut is_backlogged, mut index, mut next) = (true, 0, Some(bulk));
        while let Some(token) = next {
            self.pump_data(relay, token, LaneKind::Bulk)?;
            is_backlogged &= self.lanes.get(&token).is_some_and(|lane| !lane.is_writable);
            next = self.links.get(&relay).and_then(|link| link.parallel.get(index));
            index += 1;
        }
        if let Some(link) = self.links.get_mut(&relay) {
            link.parallel.is_backlogged = is_backlogged;
        }
        Ok(is_backlogged)
    }

    fn pump_control(&mut self, relay: RelayId, token: Token) -> io::Result<()> {
        let Some(lane) = self.lanes.get_mut(&token) else { return Ok(()) };
        while lane.is_writable && lane.flush()? {
            while lane.waiting_bytes() < CONTROL_BATCH_BYTES {
                let Some((header, payload)) = self.relay.next_control(relay) else { break };
                lane.push_message(&header, &payload);
            }
            if lane.waiting_bytes() == 0 {
                break;
            }
        }
        Ok(())
    }

    fn pump_data(&mut self, relay: RelayId, token: Token, kind: LaneKind) -> io::Result<()> {
        for _ in 0..WRITE_BUDGET {
            let Some(lane) = self.lanes.get_mut(&token) else { return Ok(()) };
            if !(lane.is_writable && lane.flush()?) {
                return Ok(());
            }
            match self.relay.next_data(relay, kind) {
                None => return Ok(()),
                Some(Outgoing::Stored(header, payload)) => lane.push_message(&header, &payload),
                Some(Outgoing::Local { key, max }) => self.send_local(relay, token, kind, key, max),
            }
        }
        // The next round continues at once.
        self.unread.push_back(token);
        Ok(())
    }

    /// Moves a message from a program to a connection with a relay.
    fn send_local(&mut self, relay: RelayId, token: Token, kind: LaneKind, key: FlowKey, max: u32) {
        let sender = self.sender_of.get(&key).and_then(|token| self.senders.get_mut(token));
        let (Some(lane), Some(sender)) = (self.lanes.get_mut(&token), sender) else {
            return self.relay.abort(key);
        };
        let (bytes, source) = match lane.fill(&mut sender.transport, max, sender.is_bulk) {
            Ok(filled) => filled,
            Err(_) => {
                self.relay.abort(key);
                return self.remove_sender(key);
            }
        };
        let is_closing = bytes > 0 && sender.has_ended && source == Source::Drained;
        let source = if is_closing { Source::HasMore } else { source };
        sender.is_bulk = bytes >= if lane.can_splice(&sender.transport) { BULK_BYTES } else { COPY_BYTES };
        let header = self.relay.take_local(relay, kind, key, bytes as u32, source != Source::HasMore);
        if bytes > 0 {
            lane.set_header(&header, bytes);
        }
        if source == Source::Ended {
            self.relay.end(key);
            self.remove_sender(key);
        }
        self.handle_events();
    }

    // Input.

    /// Reads from the connections with relays that have input.
    pub(super) fn read_unread(&mut self) {
        // Connections with further input are appended, for the next turn.
        for _ in 0..self.unread.len() {
            let Some(token) = self.unread.pop_front() else { return };
            let Some(&relay) = self.lane_owners.get(&token) else { continue };
            // Relays send messages once all connections are established.
            if !self.links.get(&relay).is_some_and(|link| link.is_up) {
                continue;
            }
            let read = match self.read_lane(relay, token) {
                Ok(LaneState::Ended) if !self.end_lane(relay, token) => {
                    Err(io::ErrorKind::UnexpectedEof.into())
                }
                other => other,
            };
            match read {
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(relay = relay.0, %error, "connection with a relay failed");
                    self.fail_link(relay);
                }
            }
            self.handle_events();
        }
    }

    fn read_lane(&mut self, relay: RelayId, token: Token) -> io::Result<LaneState> {
        let connections = self.links.get(&relay).map_or(1, |link| link.parallel.receiving());
        let (mut read, budget) = (0, (READ_BUDGET_BYTES / connections).max(MIN_READ_BYTES));
        while read < budget {
            let Some(lane) = self.lanes.get_mut(&token) else { return Ok(LaneState::Open) };
            if let Some(message) = lane.message.take() {
                let key = message.delivered_flow();
                let result = self.read_payload(token, message);
                if let (Err(_), Some(key)) = (&result, key) {
                    // What follows the delivered part is lost.
                    self.relay.close_receiver(key, Reason::Lost);
                }
                let (bytes, message) = result?;
                if let Some(lane) = self.lanes.get_mut(&token) {
                    lane.message = message;
                }
                let Some(bytes) = bytes else { return Ok(LaneState::Open) };
                self.hear(relay);
                read += bytes;
                continue;
            }
            match lane.next_header().map_err(io::Error::other)? {
                Some(header) => {
                    match header.kind {
                        Kind::Ping => self.receive_ping(relay, header.offset),
                        Kind::Pong => self.receive_pong(relay, header.offset),
                        _ => {}
                    }
                    let incoming = self.relay.receive(relay, &header);
                    let message = PartialMessage::new(header, incoming);
                    if header.length > 0
                        && let Some(lane) = self.lanes.get_mut(&token)
                    {
                        lane.message = Some(message);
                    }
                    self.handle_events();
                }
                None => match lane.read_more()? {
                    None => return Ok(LaneState::Open),
                    Some(0) if lane.buffered().is_empty() => return Ok(LaneState::Ended),
                    Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Some(bytes) => {
                        read += bytes;
                        self.hear(relay);
                    }
                },
            }
        }
        self.unread.push_back(token);
        Ok(LaneState::Open)
    }

    fn hear(&mut self, relay: RelayId) {
        if let Some(link) = self.links.get_mut(&relay) {
            link.last_heard = self.now;
        }
    }

    /// Reads a part of a payload. Returns the number of bytes, or none if there are no bytes at the moment, and the message unless it is
    /// complete.
    fn read_payload(
        &mut self,
        token: Token,
        mut message: PartialMessage,
    ) -> io::Result<(Option<usize>, Option<PartialMessage>)> {
        let Some(lane) = self.lanes.get_mut(&token) else { return Ok((None, None)) };
        let receiver = match message.incoming {
            Incoming::Deliver(key) => self
                .receiver_of
                .get(&key)
                .and_then(|token| self.receivers.get_mut(token))
                .filter(|open| open.is_open()),
            _ => None,
        };
        let buffered = lane.buffered().len().min(message.remaining);
        let progress = if buffered > 0 {
            take_buffered(lane, &mut message, receiver, buffered);
            Some(buffered)
        } else if message.kept.is_empty()
            && let Some(receiver) = receiver.filter(|receiver| lane.can_splice(&receiver.transport))
        {
            match self.pipe.fill(&lane.transport.stream, message.remaining)? {
                Filled::Ended if self.pipe.len == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ if self.pipe.len == 0 => None,
                _ => {
                    let bytes = self.pipe.len;
                    message.remaining -= bytes;
                    // After an error, the rest is kept, and the receiver's end is reported when it is read.
                    let _ = self.pipe.drain(&receiver.transport.stream);
                    self.pipe.read_to(&mut message.kept)?;
                    Some(bytes)
                }
            }
        } else {
            match lane.read_to(&mut message.kept, message.remaining)? {
                None => None,
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(bytes) => {
                    message.remaining -= bytes;
                    if message.incoming == Incoming::Discard {
                        message.kept.clear();
                    }
                    Some(bytes)
                }
            }
        };
        if message.remaining > 0 {
            return Ok((progress, Some(message)));
        }
        self.finish_message(token, message);
        Ok((progress, None))
    }

    fn finish_message(&mut self, token: Token, message: PartialMessage) {
        let Some(&from) = self.lane_owners.get(&token) else { return };
        let (header, incoming) = (message.header, message.incoming);
        match incoming {
            Incoming::Discard => {}
            Incoming::Store => self.relay.receive_payload(from, &header, message.into_kept()),
            Incoming::Deliver(key) => {
                self.relay.receive_rest(key, message.into_kept());
                self.deliver(key);
            }
        }
        self.handle_events();
    }

    /// A connection with a relay failed in the middle of a message: what follows the delivered part is lost.
    pub(super) fn abandon_message(&mut self, lane: Lane) {
        if let Some(key) = lane.message.as_ref().and_then(PartialMessage::delivered_flow) {
            self.relay.close_receiver(key, Reason::Lost);
        }
    }
}

/// Uses bytes of a payload that have been read with its header.
fn take_buffered(
    lane: &mut Lane,
    message: &mut PartialMessage,
    receiver: Option<&mut Receiver>,
    bytes: usize,
) {
    let part = &lane.buffered()[..bytes];
    match (message.incoming, receiver) {
        (Incoming::Discard, _) => {}
        (Incoming::Deliver(_), Some(receiver)) if message.kept.is_empty() => {
            // The receiver's end is reported when it is read.
            let accepted = receiver.write(part).unwrap_or(0);
            message.kept.extend_from_slice(&part[accepted..]);
        }
        _ => message.kept.extend_from_slice(part),
    }
    message.remaining -= bytes;
    lane.consume(bytes);
}
