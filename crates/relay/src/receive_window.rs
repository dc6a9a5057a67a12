//! The destination's side of a flow: delivers its messages in order, from paths that reorder, repeat or lose them.

use std::collections::BTreeMap;

use bytes::Bytes;

/// The bytes of a flow that have arrived and cannot be delivered yet.
///
/// Memory is bounded: bytes beyond the window are refused. An insertion is O(log messages).
#[derive(Debug)]
pub struct ReceiveWindow {
    /// All bytes before this offset have been delivered.
    delivered: u64,
    window_bytes: u64,
    end: Option<u64>,
    /// Waiting payloads by offset; they do not overlap.
    waiting: BTreeMap<u64, Bytes>,
}

/// Why a message contradicts earlier ones. The flow cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// The message ends beyond the window: the sender exceeds its credit.
    #[error("data up to {end}; expected at most {max}, the credit")]
    BeyondCredit {
        /// The end of the message.
        end: u64,
        /// The end of the window.
        max: u64,
    },
    /// The message continues after the end of the flow, or the end moved.
    #[error("data or an end at {found}; expected the end of the flow at {expected}")]
    BeyondEnd {
        /// The end of the message, or the second end.
        found: u64,
        /// The end of the flow, or of the data that has arrived.
        expected: u64,
    },
}

impl ReceiveWindow {
    /// A flow from its first byte on, that buffers at most `window_bytes`.
    pub fn new(window_bytes: u64) -> ReceiveWindow {
        ReceiveWindow { delivered: 0, window_bytes, end: None, waiting: BTreeMap::new() }
    }

    /// Accepts a payload. Bytes that have arrived before are dropped.
    ///
    /// # Errors
    /// [`WindowError`]. The state is unchanged.
    pub fn insert(&mut self, offset: u64, payload: Bytes) -> Result<(), WindowError> {
        let end = offset + payload.len() as u64;
        if end > self.credit() {
            return Err(WindowError::BeyondCredit { end, max: self.credit() });
        }
        if let Some(expected) = self.end.filter(|&expected| end > expected) {
            return Err(WindowError::BeyondEnd { found: end, expected });
        }
        let mut start = offset.max(self.delivered);
        // The part before the first waiting payload that begins later, then between the following ones.
        if let Some((&before, waiting)) = self.waiting.range(..=start).next_back() {
            start = start.max(before + waiting.len() as u64);
        }
        while start < end {
            let next = self.waiting.range(start..).next().map_or(end, |(&at, _)| at.min(end));
            if start < next {
                let piece = payload.slice((start - offset) as usize..(next - offset) as usize);
                self.waiting.insert(start, piece);
            }
            start = self.waiting.get(&next).map_or(next, |waiting| next + waiting.len() as u64);
        }
        Ok(())
    }

    /// Sets the end of the flow.
    ///
    /// # Errors
    /// [`WindowError::BeyondEnd`] if bytes after it have arrived, or if another end is known. The state is unchanged.
    pub fn set_end(&mut self, end: u64) -> Result<(), WindowError> {
        let arrived =
            self.waiting.last_key_value().map_or(self.delivered, |(at, bytes)| at + bytes.len() as u64);
        let expected = self.end.unwrap_or(end.max(arrived));
        if end != expected {
            return Err(WindowError::BeyondEnd { found: end, expected });
        }
        self.end = Some(end);
        Ok(())
    }

    /// Removes the next payload in order, if it has arrived.
    pub fn pop_next(&mut self) -> Option<Bytes> {
        let payload = self.waiting.remove(&self.delivered)?;
        self.delivered += payload.len() as u64;
        Some(payload)
    }

    /// The number of bytes that have been removed by [`ReceiveWindow::pop_next`].
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Whether all bytes up to the end of the flow have been removed.
    pub fn is_complete(&self) -> bool {
        self.end == Some(self.delivered)
    }

    /// The source may send the bytes before this offset.
    pub fn credit(&self) -> u64 {
        self.delivered + self.window_bytes
    }
}
