//! The state of a flow at its sender.

use std::collections::VecDeque;
use std::time::Duration;

use crate::chunk::{HEADER_BYTES, MAX_CHUNK_BYTES, encode_chunk};
use crate::line::{BackLine, FirstLine, MAX_OFFSET, Offset, Reason};

/// The default limit of unacknowledged bytes.
pub const DEFAULT_WINDOW_BYTES: usize = 8 << 20;

/// The lowest limit of unacknowledged bytes. A receiver may acknowledge 256 KiB at once.
pub const MIN_WINDOW_BYTES: usize = 512 << 10;

/// The wait before a lost connection is replaced over the same path.
pub const RETRY_WAIT: Duration = Duration::from_millis(100);

/// A connection without a line from the receiver for this long is lost, if bytes wait for an acknowledgement.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection without a new acknowledgement for this long is lost, if bytes wait for one. Longer than queues of relays and slow
/// programs usually delay a flow.
pub const PROGRESS_TIMEOUT: Duration = Duration::from_secs(300);

/// How long a sender tries to establish a direct connection. It is established when the receiver has answered.
pub const DIRECT_TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum wait between two direct connections.
const MAX_DIRECT_WAIT: Duration = Duration::from_secs(5);

/// How often a connection over the relay is replaced over the relay without progress.
const MAX_RELAY_RETRIES: u32 = 3;

/// How often a direct connection is replaced without progress because its data is corrupt.
const MAX_CORRUPT_RETRIES: u32 = 16;

/// The path of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Over the relay of the sender's region.
    Relay,
    /// To the receiver.
    Direct,
}

/// The next connection of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The path.
    pub path: Path,
    /// When to connect.
    pub at: Duration,
}

/// Why a flow failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The receiver reset the flow.
    #[error("the receiver reset the flow: {0}{explanation}", explanation = explain(*.0))]
    Reset(Reason),
    /// No direct connection was established within [`DIRECT_TIMEOUT`].
    #[error("the receiver cannot be reached for {} s", DIRECT_TIMEOUT.as_secs())]
    Unreachable,
    /// The flow has used all generations.
    #[error("the flow lost {} connections", u16::MAX)]
    TooManyConnections,
    /// The sender refuses the certificate of the receiver. [`SendState`] does not return it.
    #[error("the sender refuses the receiver")]
    ReceiverRefused,
}

/// What a reset means for the sender's program.
fn explain(reason: Reason) -> &'static str {
    match reason {
        Reason::Gap => " (it lacks earlier data of the flow: the receiver was restarted)",
        Reason::Replaced => {
            " (another sender sent the flow, the receiver's program closed it, or the program received it before)"
        }
        _ => "",
    }
}

/// The state of a flow at its sender, over all its connections. Holds the chunks that the receiver has not acknowledged.
#[derive(Debug)]
pub struct SendState {
    /// The first line of the current or the next connection.
    first_line: FirstLine,
    attempt: Attempt,
    /// The number of connections that were lost on this path since the last progress.
    retries: u32,
    /// When the first of the last direct connections failed that the receiver did not answer.
    unreachable_since: Option<Duration>,
    /// The times of the last line and of the last progress on this connection, or of its start; none without a connection.
    last_heard: Option<Duration>,
    last_progress: Duration,
    max_window_bytes: usize,
    /// Encoded chunks that are unacknowledged, or acknowledged on an earlier connection and unsent on this one.
    chunks: VecDeque<Vec<u8>>,
    /// The positions of the first chunk, and of the end of the last.
    start: u64,
    end: u64,
    /// Data of a chunk that is not full.
    partial: Vec<u8>,
    is_finished: bool,
    /// The next bytes to send: a chunk, and a place in it.
    next_chunk: usize,
    next_byte: usize,
    /// The position of these bytes, and the highest such position of all connections.
    sent: u64,
    max_sent: u64,
    acked: u64,
}

impl SendState {
    /// A flow that first connects at `now`, over the relay if there is one. The `generation` and `offset` of `first_line` are 0.
    pub fn new(first_line: FirstLine, has_relay: bool, now: Duration) -> SendState {
        let path = if has_relay { Path::Relay } else { Path::Direct };
        SendState {
            first_line: FirstLine { generation: 0, offset: Offset::default(), ..first_line },
            attempt: Attempt { path, at: now },
            retries: 0,
            unreachable_since: None,
            last_heard: None,
            last_progress: now,
            max_window_bytes: DEFAULT_WINDOW_BYTES,
            chunks: VecDeque::new(),
            start: 0,
            end: 0,
            partial: Vec::new(),
            is_finished: false,
            next_chunk: 0,
            next_byte: 0,
            sent: 0,
            max_sent: 0,
            acked: 0,
        }
    }

    /// Sets the limit of unacknowledged bytes, at least [`MIN_WINDOW_BYTES`].
    pub fn set_window_bytes(&mut self, bytes: usize) {
        self.max_window_bytes = bytes.max(MIN_WINDOW_BYTES);
    }

    /// Takes data of the flow, as far as the window has room, and returns the number of taken bytes.
    pub fn write(&mut self, data: &[u8]) -> usize {
        let mut rest = data;
        while !rest.is_empty() && !self.is_finished {
            let room = self.room();
            if room == 0 {
                self.flush();
                break;
            }
            let (part, after) = rest.split_at(rest.len().min(room));
            self.partial.extend_from_slice(part);
            rest = after;
            if self.partial.len() == MAX_CHUNK_BYTES {
                self.flush();
            }
        }
        data.len() - rest.len()
    }

    /// The number of bytes that the partial chunk can take.
    fn room(&self) -> usize {
        let window_bytes = (self.end - self.start) as usize + HEADER_BYTES + self.partial.len();
        if self.end > MAX_OFFSET - DEFAULT_WINDOW_BYTES as u64 {
            return 0;
        }
        self.max_window_bytes.saturating_sub(window_bytes).min(MAX_CHUNK_BYTES - self.partial.len())
    }

    /// Makes a chunk of the data that does not fill one.
    pub fn flush(&mut self) {
        if !self.partial.is_empty() {
            let data = std::mem::take(&mut self.partial);
            self.push_chunk(&data);
        }
    }

    /// Ends the flow after the data taken so far.
    pub fn finish(&mut self) {
        self.flush();
        if !self.is_finished {
            self.is_finished = true;
            self.push_chunk(&[]);
        }
    }

    fn push_chunk(&mut self, data: &[u8]) {
        let chunk = encode_chunk(data);
        self.end += chunk.len() as u64;
        self.chunks.push_back(chunk);
    }

    /// Whether the receiver has acknowledged the end of the flow.
    pub fn is_complete(&self) -> bool {
        self.is_finished && self.acked == self.end
    }

    /// The current connection, or the next one.
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// The line that begins that connection.
    pub fn first_line(&self) -> &FirstLine {
        &self.first_line
    }

    /// Notes that the connection is established. The caller sends the first line, and then [`SendState::unsent`].
    pub fn on_connected(&mut self, now: Duration) {
        self.last_heard = Some(now);
        self.last_progress = now;
    }

    /// Bytes to send next; empty if all chunks are sent.
    pub fn unsent(&self) -> &[u8] {
        self.chunks.get(self.next_chunk).map_or(&[], |chunk| &chunk[self.next_byte..])
    }

    /// Notes that the connection has taken the first `bytes` of [`SendState::unsent`].
    pub fn on_sent(&mut self, bytes: usize) {
        let unsent = self.unsent().len();
        let bytes = bytes.min(unsent);
        self.sent += bytes as u64;
        self.max_sent = self.max_sent.max(self.sent);
        self.next_byte += bytes;
        if bytes == unsent && bytes > 0 {
            self.next_chunk += 1;
            self.next_byte = 0;
        }
        self.drop_chunks(self.acked.min(self.sent));
    }

    /// Applies a line from the receiver or a relay. Returns the next connection if this one has ended.
    ///
    /// # Errors
    /// If the flow has failed.
    pub fn on_line(&mut self, line: BackLine, now: Duration) -> Result<Option<Attempt>, SendError> {
        match line {
            // No receiver acknowledges bytes that were never sent.
            BackLine::Ack(offset) if offset.get() > self.max_sent => self.on_lost(now).map(Some),
            BackLine::Ack(offset) => {
                self.on_ack(offset.get(), now);
                Ok(None)
            }
            BackLine::Reset(reason) => self.on_reset(reason, now).map(Some),
        }
    }

    fn on_ack(&mut self, offset: u64, now: Duration) {
        self.last_heard = Some(now);
        self.unreachable_since = None;
        if offset > self.acked {
            self.acked = offset;
            self.retries = 0;
            self.last_progress = now;
            self.drop_chunks(self.acked.min(self.sent));
        } else if self.acked == self.max_sent {
            // No bytes waited.
            self.last_progress = now;
        }
    }

    /// Notes that the connection failed without a reset, or was not established. Returns the next connection.
    ///
    /// # Errors
    /// If the flow has failed.
    pub fn on_lost(&mut self, now: Duration) -> Result<Attempt, SendError> {
        self.on_reset(Reason::Lost, now)
    }

    fn on_reset(&mut self, reason: Reason, now: Duration) -> Result<Attempt, SendError> {
        let stays_on_relay = match reason {
            Reason::Gap | Reason::Replaced | Reason::Invalid => return Err(SendError::Reset(reason)),
            Reason::Busy | Reason::Unreachable | Reason::Corrupt => false,
            Reason::UnknownCoflow | Reason::Lost => self.retries < MAX_RELAY_RETRIES,
        };
        let wait = if self.attempt.path == Path::Direct {
            self.direct_wait(reason, now)?
        } else if stays_on_relay {
            RETRY_WAIT
        } else {
            self.attempt.path = Path::Direct;
            Duration::ZERO
        };
        // The first direct connection is not a retry.
        self.retries = if wait.is_zero() { 0 } else { self.retries.saturating_add(1) };
        self.attempt.at = now.saturating_add(wait);
        self.begin_generation()?;
        Ok(self.attempt)
    }

    /// The wait before the next direct connection.
    fn direct_wait(&mut self, reason: Reason, now: Duration) -> Result<Duration, SendError> {
        if reason == Reason::Corrupt && self.retries >= MAX_CORRUPT_RETRIES {
            return Err(SendError::Reset(reason));
        }
        let since = *self.unreachable_since.get_or_insert(now);
        if now.saturating_sub(since) >= DIRECT_TIMEOUT {
            return Err(SendError::Unreachable);
        }
        Ok(RETRY_WAIT.saturating_mul(1 << self.retries.min(10)).min(MAX_DIRECT_WAIT))
    }

    /// Rewinds to the first unacknowledged chunk.
    fn begin_generation(&mut self) -> Result<(), SendError> {
        let generation = self.first_line.generation.checked_add(1).ok_or(SendError::TooManyConnections)?;
        (self.next_chunk, self.next_byte) = (0, 0);
        self.drop_chunks(self.acked);
        self.sent = self.start;
        self.first_line.generation = generation;
        self.first_line.offset = Offset::new(self.start).unwrap_or_default();
        self.last_heard = None;
        Ok(())
    }

    /// Drops the chunks that end at or before a position.
    fn drop_chunks(&mut self, position: u64) {
        while let Some(length) = self.chunks.front().map(|chunk| chunk.len() as u64)
            && self.start + length <= position
        {
            self.chunks.pop_front();
            self.start += length;
            self.next_chunk = self.next_chunk.saturating_sub(1);
        }
    }

    /// Notes that the sender may not write: a connection that waits for the sender is not lost for want of progress.
    pub fn on_pause(&mut self, now: Duration) {
        self.last_progress = now;
    }

    /// When the connection counts as lost without another line; none if no bytes wait for an acknowledgement. The caller first
    /// processes the lines that have arrived, and then calls [`SendState::on_lost`].
    pub fn deadline(&self) -> Option<Duration> {
        let silence_end = self.last_heard?.saturating_add(SILENCE_TIMEOUT);
        let progress_end = self.last_progress.saturating_add(PROGRESS_TIMEOUT);
        (self.end > self.acked).then(|| silence_end.min(progress_end))
    }
}
