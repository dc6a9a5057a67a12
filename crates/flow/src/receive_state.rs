//! The state of a flow at its receiver.

use std::time::Duration;

use crate::chunk::{Chunk, ChunkDecoder, ChunkError, HEADER_BYTES};
use crate::line::{BackLine, FirstLine, Offset, Reason};

/// The receiver sends an acknowledgement at least this often, also without new data.
pub const ACK_INTERVAL: Duration = Duration::from_secs(10);

/// The maximum number of read bytes without an acknowledgement.
const MAX_UNACKED_BYTES: u64 = 256 << 10;

/// The state of a flow at its receiver, over all its connections. Holds at most one chunk.
#[derive(Debug, Default)]
pub struct ReceiveState {
    /// The generation of the last connection.
    generation: Option<u16>,
    decoder: ChunkDecoder,
    /// How many bytes of the connection are left that arrived before.
    skip: u64,
    /// The end of the last valid chunk.
    position: u64,
    /// The end of the last chunk that the program has read.
    read: u64,
    /// The last acknowledged position.
    acked: u64,
    has_ended: bool,
    is_closed: bool,
}

impl ReceiveState {
    /// Accepts a connection by its first line, and returns the answer. The connection replaces the earlier one.
    ///
    /// # Errors
    /// The reason to reset the new connection. The earlier one continues.
    pub fn accept(&mut self, line: &FirstLine) -> Result<BackLine, Reason> {
        if self.is_closed || self.generation.is_some_and(|current| line.generation <= current) {
            return Err(Reason::Replaced);
        }
        self.skip = self.position.checked_sub(line.offset.get()).ok_or(Reason::Gap)?;
        self.generation = Some(line.generation);
        self.decoder = ChunkDecoder::default();
        Ok(self.ack())
    }

    /// Takes bytes of the current connection off `input` up to the end of a chunk, and returns the chunk; none if more bytes are needed.
    ///
    /// # Errors
    /// The reason to reset the connection. After [`Reason::Corrupt`], the flow continues with the next generation.
    pub fn receive(&mut self, input: &mut &[u8]) -> Result<Option<Chunk>, Reason> {
        let skipped = self.skip.min(input.len() as u64);
        *input = &input[skipped as usize..];
        self.skip -= skipped;
        if self.has_ended {
            return if input.is_empty() { Ok(None) } else { Err(Reason::Invalid) };
        }
        let chunk = self.decoder.decode(input).map_err(|error| match error {
            ChunkError::Checksum { .. } => Reason::Corrupt,
            ChunkError::TooLong(_) => Reason::Invalid,
        })?;
        let data_bytes = match &chunk {
            None => return Ok(None),
            Some(Chunk::Data(data)) => data.len(),
            Some(Chunk::End) => 0,
        };
        self.has_ended = data_bytes == 0;
        self.position += (HEADER_BYTES + data_bytes) as u64;
        Ok(chunk)
    }

    /// Notes that the program has read all returned chunks. Returns an acknowledgement if one is due.
    pub fn mark_read(&mut self) -> Option<BackLine> {
        self.read = self.position;
        let unacked = self.read - self.acked;
        let is_due = unacked > 0
            && (unacked >= MAX_UNACKED_BYTES || unacked >= self.read.div_ceil(2) || self.has_ended);
        is_due.then(|| self.ack())
    }

    /// The current acknowledgement: the answer to a first line, and every [`ACK_INTERVAL`].
    pub fn ack(&mut self) -> BackLine {
        self.acked = self.read;
        BackLine::Ack(Offset::new(self.read).unwrap_or_default())
    }

    /// Whether the end of the flow has arrived.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The number of received bytes of the stream, up to the end of the last valid chunk.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Refuses all further connections, because the program gave up the flow.
    pub fn close(&mut self) {
        self.is_closed = true;
    }
}
