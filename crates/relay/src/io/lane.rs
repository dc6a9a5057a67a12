//! One connection with another relay: cuts what arrives into messages, and buffers what the connection does not accept.

use std::io;

use bytes::Bytes;

use super::pipe::{Filled, Pipe, append};
use super::transport::Transport;
use crate::message::{HEADER_BYTES, Header};
use crate::relay::{FlowKey, Incoming};

/// The bytes that one call reads where a message begins. Long messages are spliced from there on.
pub(crate) const COPY_BYTES: usize = 16 << 10;

/// The bytes that one call reads or writes if they are copied because of TLS.
const TLS_BATCH_BYTES: usize = 256 << 10;

/// A message whose payload is being read.
#[derive(Debug)]
pub(crate) struct PartialMessage {
    pub(crate) header: Header,
    pub(crate) incoming: Incoming,
    /// Bytes of the payload that have not been read.
    pub(crate) remaining: usize,
    /// Bytes that have been read and not written to the receiver.
    pub(crate) kept: Vec<u8>,
}

/// A connection with another relay.
pub(crate) struct Lane {
    pub(crate) transport: Transport,
    input: Vec<u8>,
    input_start: usize,
    pub(crate) message: Option<PartialMessage>,
    output: Vec<u8>,
    output_start: usize,
    /// Bytes that follow `output`. Only connections that send have a pipe: pipes use file descriptors, and the kernel limits their memory.
    pipe: Option<Pipe>,
    /// Whether the connection has accepted all bytes so far.
    pub(crate) is_writable: bool,
}

/// The end of reading from a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The program may have more bytes.
    HasMore,
    /// The program has no bytes at the moment.
    Drained,
    /// The program has closed its connection.
    Ended,
}

impl Lane {
    pub(crate) fn new(transport: Transport) -> Lane {
        let (input, output) = (Vec::with_capacity(HEADER_BYTES + COPY_BYTES), Vec::new());
        Lane {
            transport,
            input,
            input_start: 0,
            message: None,
            output,
            output_start: 0,
            pipe: None,
            is_writable: true,
        }
    }

    // Output.

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.output.len() - self.output_start + self.piped_bytes()
    }

    fn piped_bytes(&self) -> usize {
        self.pipe.as_ref().map_or(0, |pipe| pipe.len)
    }

    /// Appends bytes. Call only if no bytes wait in the pipe: when [`Lane::flush`] has returned true.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    pub(crate) fn push_message(&mut self, header: &Header, payload: &[u8]) {
        self.push(&header.encode());
        self.push(payload);
    }

    /// Writes what waits. Returns whether nothing waits any more.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        while self.output_start < self.output.len() {
            let has_more = self.piped_bytes() > 0;
            match self.transport.write(&self.output[self.output_start..], has_more)? {
                Some(bytes) => self.output_start += bytes,
                None => {
                    self.is_writable = false;
                    return Ok(false);
                }
            }
        }
        self.output.clear();
        self.output_start = 0;
        let is_drained = self.pipe.as_mut().map_or(Ok(true), |pipe| pipe.drain(&self.transport.stream))?;
        let is_flushed = is_drained && self.transport.flush()?;
        self.is_writable = is_flushed;
        Ok(is_flushed)
    }

    /// Whether bytes of this connection can be moved to or from a program without being copied.
    pub(crate) fn can_splice(&self, program: &Transport) -> bool {
        self.transport.is_plain() && program.is_plain()
    }

    /// Reads at most `max` bytes of a program, with space for a header before them. Returns their number.
    ///
    /// `is_bulk`: the program has written much recently, so its bytes are spliced from the first one on.
    pub(crate) fn fill(
        &mut self,
        program: &mut Transport,
        max: u32,
        is_bulk: bool,
    ) -> io::Result<(usize, Source)> {
        let start = self.output.len();
        self.output.resize(start + HEADER_BYTES, 0);
        let result = self.fill_payload(program, max as usize, is_bulk);
        if !matches!(result, Ok((1.., _))) {
            self.output.truncate(start);
        }
        result
    }

    fn fill_payload(
        &mut self,
        program: &mut Transport,
        max: usize,
        is_bulk: bool,
    ) -> io::Result<(usize, Source)> {
        let mut copied = 0;
        if self.pipe.is_none() && self.can_splice(program) {
            // Without a free file descriptor, bytes are copied.
            self.pipe = Pipe::new().ok();
        }
        let can_splice = self.pipe.is_some() && self.can_splice(program);
        if !is_bulk || !can_splice {
            let limit = max.min(if is_bulk { TLS_BATCH_BYTES } else { COPY_BYTES });
            let read = append(&mut self.output, limit, |bytes| program.read(bytes))?;
            copied = read.unwrap_or(0);
            match read {
                None => return Ok((0, Source::Drained)),
                Some(0) => return Ok((0, Source::Ended)),
                Some(_) if copied < limit => return Ok((copied, Source::Drained)),
                Some(_) if copied == max || !can_splice => return Ok((copied, Source::HasMore)),
                Some(_) => {}
            }
        }
        let Some(pipe) = &mut self.pipe else { return Ok((copied, Source::HasMore)) };
        let source = match pipe.fill(&program.stream, max - copied) {
            Ok(Filled::Ended) => Source::Ended,
            Ok(Filled::Blocked) if pipe.len == 0 => Source::Drained,
            // The pipe may be full.
            Ok(Filled::Blocked | Filled::Complete) => Source::HasMore,
            Err(error) if copied + pipe.len == 0 => return Err(error),
            // The next call returns the error.
            Err(_) => Source::HasMore,
        };
        Ok((copied + pipe.len, source))
    }

    /// Writes the header into the space before the bytes that [`Lane::fill`] has read. `bytes`: their number.
    pub(crate) fn set_header(&mut self, header: &Header, bytes: usize) {
        let start = self.output.len() - (bytes - self.piped_bytes()) - HEADER_BYTES;
        self.output[start..start + HEADER_BYTES].copy_from_slice(&header.encode());
    }

    // Input.

    /// The bytes that have been read and not used.
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.input[self.input_start..]
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.input_start += bytes;
        if self.input_start == self.input.len() {
            self.input.clear();
            self.input_start = 0;
        }
    }

    /// Reads further bytes into the buffer. None: there are no bytes at the moment; 0: the connection has ended.
    pub(crate) fn read_more(&mut self) -> io::Result<Option<usize>> {
        self.input.drain(..self.input_start);
        self.input_start = 0;
        let max = HEADER_BYTES + COPY_BYTES - self.input.len();
        append(&mut self.input, max, |bytes| self.transport.read(bytes))
    }

    /// Appends at most `max` bytes of the connection to `bytes`. Call only if no bytes are buffered.
    pub(crate) fn read_to(&mut self, bytes: &mut Vec<u8>, max: usize) -> io::Result<Option<usize>> {
        append(bytes, max.min(TLS_BATCH_BYTES), |bytes| self.transport.read(bytes))
    }

    /// The next header, if all of it has been read.
    pub(crate) fn next_header(&mut self) -> Result<Option<Header>, crate::message::HeaderError> {
        let Some(bytes) = self.buffered().first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(bytes)?;
        self.consume(HEADER_BYTES);
        Ok(Some(header))
    }
}

impl PartialMessage {
    pub(crate) fn new(header: Header, incoming: Incoming) -> PartialMessage {
        PartialMessage { header, incoming, remaining: header.length as usize, kept: Vec::new() }
    }

    /// The flow whose receiver gets the payload at once.
    pub(crate) fn delivered_flow(&self) -> Option<FlowKey> {
        match self.incoming {
            Incoming::Deliver(key) => Some(key),
            Incoming::Store | Incoming::Discard => None,
        }
    }

    pub(crate) fn into_kept(self) -> Bytes {
        Bytes::from(self.kept)
    }
}
