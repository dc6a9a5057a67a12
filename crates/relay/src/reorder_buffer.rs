//! The bytes of a flow at its destination: puts messages in order that arrive over several paths.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

/// The length up to which adjacent payloads are joined: few pieces need little memory in addition to the bytes.
const PIECE_BYTES: usize = 64 << 10;

/// The maximum number of pieces. A source that sends in order on each path needs few.
const MAX_PIECES: usize = 4096;

/// The bytes of a flow that have arrived and cannot be delivered yet.
///
/// Memory is bounded: bytes beyond the limit are refused. An insertion is O(log messages).
#[derive(Debug)]
pub struct ReorderBuffer {
    /// All bytes before this offset have been delivered.
    delivered: u64,
    /// The source may send the bytes before this offset.
    limit: u64,
    end: Option<u64>,
    /// Waiting payloads by offset; they do not overlap.
    waiting: BTreeMap<u64, BytesMut>,
}

/// Why a message contradicts earlier ones. The flow cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReorderError {
    /// The message ends beyond the limit.
    #[error("data up to {end}; expected at most {max}, the limit")]
    BeyondLimit {
        /// The end of the message.
        end: u64,
        /// The limit.
        max: u64,
    },
    /// Too many payloads wait that are not adjacent.
    #[error("more than {MAX_PIECES} gaps in the data")]
    Pieces,
    /// The message continues after the end of the flow, or the end moved.
    #[error("data or an end at {found}; expected the end of the flow at {expected}")]
    BeyondEnd {
        /// The end of the message, or the second end.
        found: u64,
        /// The end of the flow, or of the data that has arrived.
        expected: u64,
    },
}

impl ReorderBuffer {
    /// A stream that begins at `start`.
    pub fn new(start: u64, limit: u64) -> ReorderBuffer {
        ReorderBuffer { delivered: start, limit, end: None, waiting: BTreeMap::new() }
    }

    /// Raises the offset before which the source may send.
    pub fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Checks a message.
    ///
    /// # Errors
    /// [`ReorderError`].
    pub fn check(&self, end: u64) -> Result<(), ReorderError> {
        if end > self.limit {
            return Err(ReorderError::BeyondLimit { end, max: self.limit });
        }
        if self.waiting.len() >= MAX_PIECES {
            return Err(ReorderError::Pieces);
        }
        match self.end {
            Some(expected) if end > expected => Err(ReorderError::BeyondEnd { found: end, expected }),
            _ => Ok(()),
        }
    }

    /// Whether a message at this offset can be delivered at once: it is the next one, and nothing waits.
    pub fn is_next(&self, offset: u64) -> bool {
        self.waiting.is_empty() && offset == self.delivered
    }

    /// Counts bytes as delivered that the caller delivered at once.
    pub fn advance(&mut self, bytes: u64) {
        self.delivered += bytes;
    }

    /// Accepts a payload that [`ReorderBuffer::check`] allows. Bytes that have arrived before are dropped.
    pub fn insert(&mut self, offset: u64, payload: Bytes) {
        let end = offset + payload.len() as u64;
        let mut start = offset.max(self.delivered);
        // The part before the first waiting payload that begins later, then between the following ones.
        if let Some((&before, waiting)) = self.waiting.range(..=start).next_back() {
            start = start.max(before + waiting.len() as u64);
        }
        while start < end {
            let next = self.waiting.range(start..).next().map_or(end, |(&at, _)| at.min(end));
            if start < next {
                self.insert_piece(start, payload.slice((start - offset) as usize..(next - offset) as usize));
            }
            // The piece may be a part of the waiting payload by now.
            let covering = self.waiting.range(..=next).next_back();
            start = covering.map_or(next, |(&at, waiting)| next.max(at + waiting.len() as u64));
        }
    }

    fn insert_piece(&mut self, start: u64, piece: Bytes) {
        let before = self.waiting.range_mut(..start).next_back();
        let at = match before.filter(|(at, before)| {
            **at + before.len() as u64 == start && before.len() + piece.len() <= PIECE_BYTES
        }) {
            Some((&at, before)) => {
                before.extend_from_slice(&piece);
                at
            }
            None => {
                self.waiting.insert(start, BytesMut::from(piece));
                start
            }
        };
        self.join_with_next(at);
    }

    /// Joins the piece at this offset with the next one, if they are adjacent and short.
    fn join_with_next(&mut self, start: u64) {
        let Some(length) = self.waiting.get(&start).map(BytesMut::len) else { return };
        let next = start + length as u64;
        if self.waiting.get(&next).is_none_or(|after| length + after.len() > PIECE_BYTES) {
            return;
        }
        let after = self.waiting.remove(&next);
        if let (Some(piece), Some(after)) = (self.waiting.get_mut(&start), after) {
            piece.extend_from_slice(&after);
        }
    }

    /// The start of a stream whose first messages came before it was known.
    ///
    /// # Errors
    /// [`ReorderError::BeyondLimit`] if bytes before the start or beyond the limit have arrived.
    pub fn begin(&mut self, start: u64, limit: u64) -> Result<(), ReorderError> {
        let end = self.waiting.last_key_value().map_or(start, |(at, bytes)| at + bytes.len() as u64);
        if end > limit || self.waiting.keys().next().is_some_and(|&first| first < start) {
            return Err(ReorderError::BeyondLimit { end, max: limit });
        }
        (self.delivered, self.limit) = (start, limit);
        Ok(())
    }

    /// The bytes that wait.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting.values().map(|piece| piece.len() as u64).sum()
    }

    /// Sets the end of the flow.
    ///
    /// # Errors
    /// [`ReorderError::BeyondEnd`] if bytes after it have arrived, or if another end is known. The state is unchanged.
    pub fn set_end(&mut self, end: u64) -> Result<(), ReorderError> {
        let arrived =
            self.waiting.last_key_value().map_or(self.delivered, |(at, bytes)| at + bytes.len() as u64);
        let expected = self.end.unwrap_or(end.max(arrived));
        if end != expected {
            return Err(ReorderError::BeyondEnd { found: end, expected });
        }
        self.end = Some(end);
        Ok(())
    }

    /// Removes the next payload in order, if it has arrived.
    pub fn pop_next(&mut self) -> Option<Bytes> {
        let payload = self.waiting.remove(&self.delivered)?;
        self.delivered += payload.len() as u64;
        Some(payload.freeze())
    }

    /// Returns the rest of a payload that [`ReorderBuffer::pop_next`] removed and the receiver did not accept.
    pub fn push_back(&mut self, rest: Bytes) {
        self.delivered -= rest.len() as u64;
        if !rest.is_empty() {
            self.waiting.insert(self.delivered, BytesMut::from(rest));
        }
    }

    /// The offset of the first byte that has not been delivered.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Whether all bytes up to the end of the stream have been delivered.
    pub fn is_complete(&self) -> bool {
        self.end == Some(self.delivered)
    }

    /// The source may send the bytes before this offset.
    pub fn limit(&self) -> u64 {
        self.limit
    }
}
