//! A flow that ends at this relay.

use std::time::Duration;

use bytes::Bytes;
use weir_flow::Reason;

use crate::message::{FlowId, Header, Kind, LIMIT_BYTES, MAX_HOPS, MAX_OFFSET, RelayId};
use crate::reorder_buffer::ReorderBuffer;

/// How long data may arrive before the message that opens the flow.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the source of a flow may take to end it after the receiver has closed its connection.
const END_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Sink {
    generation: u16,
    source: RelayId,
    /// The relay that the last message came from.
    via: RelayId,
    buffer: ReorderBuffer,
    /// All bytes before this offset are acknowledged; none before the flow is open.
    acked: Option<u64>,
    /// The receiver has all bytes before this offset. It may have got them from an earlier generation.
    position: u64,
    /// The first byte of this generation.
    start: u64,
    /// The credit before the flow is open.
    initial_credit: u64,
    created: Duration,
    /// Whether the caller is delivering a message at the moment: others wait.
    is_delivering: bool,
    /// When the receiver closed its connection, after it had acknowledged all data so far.
    closed_at: Option<Duration>,
}

impl Sink {
    /// A flow whose first message came from the relay `via`.
    pub(crate) fn new(first: &Header, via: RelayId, initial_credit: u64, created: Duration) -> Sink {
        let buffer = ReorderBuffer::new(0, MAX_OFFSET);
        Sink {
            generation: first.generation,
            source: first.source,
            via,
            buffer,
            acked: None,
            position: 0,
            start: 0,
            initial_credit,
            created,
            is_delivering: false,
            closed_at: None,
        }
    }

    pub(crate) fn generation(&self) -> u16 {
        self.generation
    }

    pub(crate) fn source(&self) -> RelayId {
        self.source
    }

    pub(crate) fn via(&self) -> RelayId {
        self.via
    }

    pub(crate) fn set_via(&mut self, via: RelayId) {
        self.via = via;
    }

    pub(crate) fn is_open(&self) -> bool {
        self.acked.is_some()
    }

    pub(crate) fn is_stale(&self, now: Duration) -> bool {
        !self.is_open() && now > self.created + OPEN_TIMEOUT
            || self.closed_at.is_some_and(|closed_at| now > closed_at + END_TIMEOUT)
    }

    /// Whether the receiver has acknowledged all data that has arrived.
    pub(crate) fn is_acknowledged(&self) -> bool {
        let is_empty = !self.is_delivering && self.buffer.waiting_bytes() == 0;
        is_empty && self.acked == Some(self.buffer.delivered())
    }

    /// The receiver has closed its connection, and may have finished.
    pub(crate) fn close(&mut self, now: Duration) {
        self.closed_at = Some(now);
    }

    /// Whether the receiver has closed its connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed_at.is_some()
    }

    /// The stream begins at `start`.
    pub(crate) fn open(&mut self, start: u64, credit: u64) -> Result<(), Reason> {
        let limit = start.checked_add(credit).filter(|&limit| limit <= MAX_OFFSET).ok_or(Reason::Lost)?;
        self.buffer.begin(start, limit).map_err(|_| Reason::Lost)?;
        self.acked = Some(start);
        self.start = start;
        Ok(())
    }

    /// The bytes that the source may send beyond the acknowledged ones.
    pub(crate) fn credit(&self) -> u64 {
        self.acked.map_or(self.initial_credit, |acked| self.buffer.limit() - acked)
    }

    pub(crate) fn check(&self, header: &Header) -> Result<(), Reason> {
        let has_room =
            self.is_open() || self.buffer.waiting_bytes() + u64::from(header.length) <= self.initial_credit;
        if self.buffer.check(header.end()).is_err() || !has_room {
            return Err(Reason::Lost);
        }
        Ok(())
    }

    pub(crate) fn is_next(&self, offset: u64) -> bool {
        self.is_open() && !self.is_delivering && self.buffer.is_next(offset)
    }

    /// The caller delivers a message of this length.
    pub(crate) fn begin_delivery(&mut self, bytes: u32) {
        self.is_delivering = true;
        self.buffer.advance(u64::from(bytes));
    }

    pub(crate) fn insert(&mut self, offset: u64, payload: Bytes) {
        self.buffer.insert(offset, payload);
    }

    /// The receiver did not accept the last bytes.
    pub(crate) fn push_back(&mut self, rest: Bytes) {
        self.is_delivering = false;
        self.buffer.push_back(rest);
    }

    pub(crate) fn pop_next(&mut self) -> Option<Bytes> {
        if self.is_open() && !self.is_delivering { self.buffer.pop_next() } else { None }
    }

    pub(crate) fn set_end(&mut self, end: u64) -> Result<(), Reason> {
        self.buffer.set_end(end).map_err(|_| Reason::Lost)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.is_open() && !self.is_delivering && self.buffer.is_complete()
    }

    /// The receiver has all bytes before `position`. Raises the limit to at most `window` bytes beyond those that were also delivered
    /// here, by at most `free` bytes more than the newly acknowledged ones. Credit grows with what the flow has sent, so that idle and
    /// short flows keep the initial one.
    pub(crate) fn acknowledge(&mut self, position: u64, window: u64, free: u64) {
        let Some(before) = self.acked else { return };
        self.position = self.position.max(position);
        let acked = self.position.min(self.buffer.delivered()).max(before);
        let max = self.buffer.limit() + (acked - before) + free;
        let window = window.min(self.initial_credit + 2 * (acked - self.start));
        self.buffer.raise_limit((acked + window).min(max).min(MAX_OFFSET));
        self.acked = Some(acked);
    }

    /// The receiver's position, if more of it can be acknowledged now.
    pub(crate) fn unsent_position(&self) -> Option<u64> {
        let acked = self.acked?;
        (self.position.min(self.buffer.delivered()) > acked).then_some(self.position)
    }

    /// The message that acknowledges, from the relay `id`.
    pub(crate) fn ack(&self, flow: FlowId, id: RelayId) -> (Header, Bytes) {
        let header = Header {
            kind: Kind::Ack,
            hops: MAX_HOPS,
            generation: self.generation,
            length: LIMIT_BYTES as u32,
            flow,
            offset: self.acked.unwrap_or(0),
            source: self.source,
            destination: id,
        };
        (header, Bytes::copy_from_slice(&self.buffer.limit().to_be_bytes()))
    }
}
