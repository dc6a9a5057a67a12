//! The connections of programs: one that sends a flow to this relay, or one over which this relay delivers a flow.

use std::io;
use std::time::Duration;

use rustix::net::RecvFlags;
use weir_flow::{BackLine, FirstLine, LineReader, MAX_LINE_BYTES, Offset, Reason};
use weir_tls::{HandshakeFailure, is_tls_record};

use super::socket::ready;
use super::transport::Transport;
use crate::relay::FlowKey;

/// What a sending program is at.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Its first line is incomplete until this time.
    FirstLine(Duration),
    /// Its coflow is unknown. It waits for an order that names the coflow, until this time.
    UnknownCoflow(FirstLine, Duration),
    /// It sends a flow.
    Flow(FlowKey),
    /// It was reset, and gets until this time to read the reason.
    Reset(Duration),
}

/// A program that sends a flow.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) transport: Transport,
    pub(crate) stage: Stage,
    /// Whether the last message was long.
    pub(crate) is_bulk: bool,
    /// Whether the program has closed its direction: no event follows when its last bytes have been read.
    pub(crate) has_ended: bool,
    /// Why the handshake failed, or TLS is missing at one end.
    pub(crate) failure: Option<(HandshakeFailure, String)>,
    /// The first line, if it cannot be peeked at.
    line: LineReader,
    acked: Option<u64>,
    /// A line that the program has not accepted.
    output: Vec<u8>,
}

impl Sender {
    pub(crate) fn new(transport: Transport, deadline: Duration) -> Sender {
        Sender {
            transport,
            stage: Stage::FirstLine(deadline),
            is_bulk: false,
            has_ended: false,
            failure: None,
            line: LineReader::default(),
            acked: None,
            output: Vec::new(),
        }
    }

    /// Reads the first line and nothing after it; none if it is incomplete.
    ///
    /// # Errors
    /// [`Reason::Invalid`] if it is malformed, [`Reason::Lost`] if the program has closed the connection, or its certificate is refused.
    pub(crate) fn read_first_line(&mut self) -> Result<Option<FirstLine>, Reason> {
        let line = if self.transport.is_plain() { self.peek_line() } else { self.read_line() };
        line?.map(|line| FirstLine::parse(&line).map_err(|_| Reason::Invalid)).transpose()
    }

    fn peek_line(&mut self) -> Result<Option<Vec<u8>>, Reason> {
        let stream = &self.transport.stream;
        let mut bytes = [0; MAX_LINE_BYTES];
        let peeked = ready(rustix::net::recv(stream, &mut bytes, RecvFlags::PEEK));
        let length = match peeked.map_err(|_| Reason::Lost)? {
            None => return Ok(None),
            Some((0, _)) => return Err(Reason::Lost),
            Some((length, _)) => length,
        };
        if is_tls_record(&bytes[..length]) {
            let reason = "the program uses TLS; expected plain text; help: start the relay with --certificate, --key and --authority";
            self.failure = Some((HandshakeFailure::Other, reason.to_owned()));
            return Err(Reason::Invalid);
        }
        let Some(end) = bytes[..length].iter().position(|&byte| byte == b'\n') else {
            return if length < MAX_LINE_BYTES { Ok(None) } else { Err(Reason::Invalid) };
        };
        let read = rustix::io::read(stream, &mut bytes[..=end]);
        if read == Ok(end + 1) { Ok(Some(bytes[..end].to_vec())) } else { Err(Reason::Lost) }
    }

    fn read_line(&mut self) -> Result<Option<Vec<u8>>, Reason> {
        loop {
            let mut byte = [0];
            let is_handshaking = self.transport.is_handshaking();
            let read = self.transport.read(&mut byte).map_err(|error| {
                if is_handshaking {
                    self.failure = Some(handshake_failure(&error));
                }
                Reason::Lost
            });
            match read? {
                None => return Ok(None),
                Some(0) => return Err(Reason::Lost),
                Some(_) => {}
            }
            let line = self.line.read_line(&mut &byte[..]).map_err(|_| Reason::Invalid)?;
            if line.is_some() {
                return Ok(line);
            }
        }
    }

    /// Writes an acknowledgement. Of several that the program has not accepted, only the last is written.
    pub(crate) fn acknowledge(&mut self, offset: u64) {
        self.acked = Some(offset);
        self.flush();
    }

    /// Writes what waits. Errors show when the connection is read.
    pub(crate) fn flush(&mut self) {
        loop {
            while !self.output.is_empty() {
                let Ok(Some(bytes)) = self.transport.write(&self.output, false) else { return };
                self.output.drain(..bytes);
            }
            let Some(offset) = self.acked.take().and_then(Offset::new) else { break };
            self.output.extend_from_slice(BackLine::Ack(offset).encode().as_bytes());
        }
        let _ = self.transport.flush();
    }

    /// Writes the reason for a reset, and closes this direction.
    pub(crate) fn reset(&mut self, reason: Reason, deadline: Duration) {
        self.flush();
        self.output.extend_from_slice(BackLine::Reset(reason).encode().as_bytes());
        self.flush();
        // The program may have closed the connection already.
        let _ = self.transport.end();
        self.stage = Stage::Reset(deadline);
    }

    /// Skips what the program sends after a reset: if the connection were closed with unread bytes, the reason could be lost. Returns
    /// whether the program has closed its end.
    pub(crate) fn skip(&mut self) -> bool {
        let mut bytes = [0; 64 << 10];
        for _ in 0..256 {
            match ready(rustix::io::read(&self.transport.stream, &mut bytes)) {
                Ok(None) => return false,
                Ok(Some(1..)) => {}
                Ok(Some(0)) | Err(_) => return true,
            }
        }
        true
    }
}

/// The reason of a failed handshake of a program, and its text.
fn handshake_failure(error: &io::Error) -> (HandshakeFailure, String) {
    let failure = HandshakeFailure::of(error);
    let text = match failure {
        HandshakeFailure::PlainText => {
            "the program uses plain text; expected TLS; help: give the program certificates".to_owned()
        }
        _ => error.to_string(),
    };
    (failure, text)
}

/// How a receiving program has closed its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// It has closed its connection after an acknowledgement.
    Ended,
    /// Its connection has failed, or it has sent this reason.
    Reset(Reason),
}

/// A program that receives a flow.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) transport: Transport,
    pub(crate) key: FlowKey,
    /// Until when the connection has to be established; none once it is.
    pub(crate) deadline: Option<Duration>,
    /// The name that its certificate must have.
    name: String,
    /// The part of the first line that the program has not accepted.
    first_line: Vec<u8>,
    lines: LineReader,
    has_acknowledged: bool,
    is_finished: bool,
}

impl Receiver {
    pub(crate) fn new(
        transport: Transport,
        key: FlowKey,
        line: &FirstLine,
        name: String,
        deadline: Duration,
    ) -> Receiver {
        Receiver {
            transport,
            key,
            deadline: Some(deadline),
            name,
            first_line: line.encode().into_bytes(),
            lines: LineReader::default(),
            has_acknowledged: false,
            is_finished: false,
        }
    }

    /// Whether data can be written.
    pub(crate) fn is_open(&self) -> bool {
        self.deadline.is_none() && self.first_line.is_empty()
    }

    /// Continues to establish the connection, and writes the first line. Call only once the socket has connected or failed.
    ///
    /// # Errors
    /// The connection cannot be established, or the program is not that of the flow.
    pub(crate) fn establish(&mut self) -> io::Result<()> {
        if self.deadline.is_some() {
            if let Some(error) = self.transport.stream.take_error()? {
                return Err(error);
            }
            if !self.transport.handshake()? {
                return Ok(());
            }
            self.transport.check_peer(&self.name)?;
            self.deadline = None;
        }
        while !self.first_line.is_empty() {
            match self.transport.write(&self.first_line, false)? {
                Some(bytes) => drop(self.first_line.drain(..bytes)),
                None => break,
            }
        }
        Ok(())
    }

    /// Writes data and returns how much the program has accepted.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() || !self.is_open() {
            return Ok(0);
        }
        Ok(self.transport.write(bytes, false)?.unwrap_or(0))
    }

    /// The stream is complete.
    pub(crate) fn finish(&mut self) {
        if !std::mem::replace(&mut self.is_finished, true) {
            // The program may have closed the connection already.
            let _ = self.transport.end();
        }
    }

    /// Reads lines of the program: the last acknowledged offset, and whether the program has closed the flow.
    pub(crate) fn read_lines(&mut self) -> (Option<u64>, Option<Closed>) {
        let mut acked = None;
        let mut bytes = [0; 4096];
        loop {
            let mut input = match self.transport.read(&mut bytes) {
                Ok(None) => return (acked, None),
                Ok(Some(length @ 1..)) => &bytes[..length],
                Ok(Some(0)) if self.has_acknowledged => return (acked, Some(Closed::Ended)),
                Ok(Some(0)) | Err(_) => return (acked, Some(Closed::Reset(Reason::Lost))),
            };
            while !input.is_empty() {
                match self.lines.read_line(&mut input).map(|line| line.map(|line| BackLine::parse(&line))) {
                    Ok(None) => {}
                    Ok(Some(Ok(BackLine::Ack(offset)))) => {
                        acked = Some(offset.get());
                        self.has_acknowledged = true;
                    }
                    Ok(Some(Ok(BackLine::Reset(reason)))) => return (acked, Some(Closed::Reset(reason))),
                    Ok(Some(Err(_))) | Err(_) => return (acked, Some(Closed::Reset(Reason::Invalid))),
                }
            }
        }
    }
}
