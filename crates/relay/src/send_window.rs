//! The source's side of a flow: keeps bytes until the destination has delivered them, and sends them again after a failure.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// The bytes of a flow that the destination has not acknowledged.
///
/// Memory is bounded by the credit: [`SendWindow::free_bytes`] is 0 if the destination does not deliver, so that the relay stops
/// reading from the sending program.
#[derive(Debug)]
pub struct SendWindow {
    /// The destination has delivered the bytes before this offset.
    acked: u64,
    /// Bytes before this offset have been sent since the last [`SendWindow::rewind`].
    next: u64,
    /// The destination accepts the bytes before this offset.
    credit: u64,
    /// Bytes from `acked` on, in payloads as the program sent them.
    buffered: VecDeque<Bytes>,
    buffered_bytes: u64,
    has_ended: bool,
}

/// An acknowledgement or a credit is impossible. The flow cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{found} bytes are acknowledged; expected at most {sent}, as many as were sent")]
pub struct AckError {
    /// The acknowledged offset.
    pub found: u64,
    /// The number of bytes that have been buffered for sending.
    pub sent: u64,
}

impl SendWindow {
    /// A flow from its first byte on, with a window of `credit` bytes.
    pub fn new(credit: u64) -> SendWindow {
        SendWindow {
            acked: 0,
            next: 0,
            credit,
            buffered: VecDeque::new(),
            buffered_bytes: 0,
            has_ended: false,
        }
    }

    /// The number of bytes that the program may add.
    pub fn free_bytes(&self) -> u64 {
        self.credit.saturating_sub(self.written())
    }

    /// Adds bytes of the program: at most [`SendWindow::free_bytes`], and none after [`SendWindow::end`].
    pub fn write(&mut self, payload: Bytes) {
        debug_assert!(payload.len() as u64 <= self.free_bytes() && !self.has_ended);
        self.buffered_bytes += payload.len() as u64;
        self.buffered.push_back(payload);
    }

    /// The program adds no more bytes.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// The number of bytes that the program has added.
    pub fn written(&self) -> u64 {
        self.acked + self.buffered_bytes
    }

    /// The offset at which the flow ends, if the program has ended it.
    pub fn end_offset(&self) -> Option<u64> {
        self.has_ended.then(|| self.written())
    }

    /// The next bytes to send with their offset, at most `max`. Copies them only if they span several payloads.
    /// O(buffered payloads).
    pub fn peek(&self, max: u32) -> Option<(u64, Bytes)> {
        let max = max as usize;
        let mut skip = (self.next - self.acked) as usize;
        let mut unsent = self.buffered.iter().filter_map(|payload| {
            let start = skip.min(payload.len());
            skip -= start;
            (start < payload.len()).then(|| payload.slice(start..))
        });
        let first = unsent.next()?;
        let Some(second) = unsent.next().filter(|_| first.len() < max) else {
            return Some((self.next, first.slice(..first.len().min(max))));
        };
        let mut message = BytesMut::from(&first[..]);
        for payload in std::iter::once(second).chain(unsent) {
            message.extend_from_slice(&payload[..payload.len().min(max - message.len())]);
            if message.len() == max {
                break;
            }
        }
        Some((self.next, message.freeze()))
    }

    /// The next `length` bytes have been sent.
    pub fn mark_sent(&mut self, length: u32) {
        self.next += u64::from(length);
    }

    /// The destination has delivered the bytes before `offset`. A lower offset than before has no effect.
    ///
    /// # Errors
    /// [`AckError`] if the offset is beyond the bytes of the program. The state is unchanged.
    pub fn acknowledge(&mut self, offset: u64) -> Result<(), AckError> {
        if offset > self.written() {
            return Err(AckError { found: offset, sent: self.written() });
        }
        let window = self.credit - self.acked;
        while self.acked < offset {
            let first = self.buffered.front_mut().expect("bytes that are not acknowledged are buffered");
            let acked = (first.len() as u64).min(offset - self.acked);
            if acked == first.len() as u64 {
                self.buffered.pop_front();
            } else {
                *first = first.slice(acked as usize..);
            }
            self.acked += acked;
            self.buffered_bytes -= acked;
        }
        self.next = self.next.max(self.acked);
        self.credit = self.acked + window;
        Ok(())
    }

    /// Sends all bytes again that are not acknowledged.
    pub fn rewind(&mut self) {
        self.next = self.acked;
    }

    /// Whether the program has ended the flow and the destination has delivered all of it.
    pub fn is_complete(&self) -> bool {
        self.has_ended && self.buffered_bytes == 0
    }
}
