//! The connections of programs: one that sends a flow to this relay, or one over which this relay delivers a flow.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags};
use weir_flow::{BackLine, FirstLine, LineReader, MAX_LINE_BYTES, Offset, Reason};

use super::socket::ready;
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
    pub(crate) stream: TcpStream,
    pub(crate) stage: Stage,
    /// Whether the last message was long.
    pub(crate) is_bulk: bool,
    acked: Option<u64>,
    /// A line that the program has not accepted.
    output: Vec<u8>,
}

impl Sender {
    pub(crate) fn new(stream: TcpStream, deadline: Duration) -> Sender {
        Sender { stream, stage: Stage::FirstLine(deadline), is_bulk: false, acked: None, output: Vec::new() }
    }

    /// Reads the first line and nothing after it; none if it is incomplete.
    ///
    /// # Errors
    /// [`Reason::Invalid`] if it is malformed, [`Reason::Lost`] if the program has closed the connection.
    pub(crate) fn read_first_line(&self) -> Result<Option<FirstLine>, Reason> {
        let mut bytes = [0; MAX_LINE_BYTES];
        let peeked = ready(rustix::net::recv(&self.stream, &mut bytes, RecvFlags::PEEK));
        let length = match peeked.map_err(|_| Reason::Lost)? {
            None => return Ok(None),
            Some((0, _)) => return Err(Reason::Lost),
            Some((length, _)) => length,
        };
        let Some(end) = bytes[..length].iter().position(|&byte| byte == b'\n') else {
            return if length < MAX_LINE_BYTES { Ok(None) } else { Err(Reason::Invalid) };
        };
        let line = FirstLine::parse(&bytes[..end]).map_err(|_| Reason::Invalid)?;
        let read = rustix::io::read(&self.stream, &mut bytes[..=end]);
        if read == Ok(end + 1) { Ok(Some(line)) } else { Err(Reason::Lost) }
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
                let sent = ready(rustix::net::send(&self.stream, &self.output, SendFlags::NOSIGNAL));
                let Ok(Some(bytes)) = sent else { return };
                self.output.drain(..bytes);
            }
            let Some(offset) = self.acked.take().and_then(Offset::new) else { return };
            self.output.extend_from_slice(BackLine::Ack(offset).encode().as_bytes());
        }
    }

    /// Writes the reason for a reset, and closes this direction.
    pub(crate) fn reset(&mut self, reason: Reason, deadline: Duration) {
        self.flush();
        self.output.extend_from_slice(BackLine::Reset(reason).encode().as_bytes());
        self.flush();
        // The program may have closed the connection already.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        self.stage = Stage::Reset(deadline);
    }

    /// Skips what the program sends after a reset: if the connection were closed with unread bytes, the reason could be lost. Returns
    /// whether the program has closed its end.
    pub(crate) fn skip(&mut self) -> bool {
        let mut bytes = [0; 64 << 10];
        for _ in 0..256 {
            match ready(rustix::io::read(&self.stream, &mut bytes)) {
                Ok(None) => return false,
                Ok(Some(1..)) => {}
                Ok(Some(0)) | Err(_) => return true,
            }
        }
        true
    }
}

/// A program that receives a flow.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) stream: TcpStream,
    pub(crate) key: FlowKey,
    /// Until when the connection has to be established; none once it is.
    pub(crate) deadline: Option<Duration>,
    /// The part of the first line that the program has not accepted.
    first_line: Vec<u8>,
    lines: LineReader,
    pub(crate) is_finished: bool,
}

impl Receiver {
    pub(crate) fn new(stream: TcpStream, key: FlowKey, line: &FirstLine, deadline: Duration) -> Receiver {
        Receiver {
            stream,
            key,
            deadline: Some(deadline),
            first_line: line.encode().into_bytes(),
            lines: LineReader::default(),
            is_finished: false,
        }
    }

    /// Whether data can be written.
    pub(crate) fn is_open(&self) -> bool {
        self.deadline.is_none() && self.first_line.is_empty()
    }

    /// Notes that the connection is established, and writes the first line.
    ///
    /// # Errors
    /// The connection could not be established.
    pub(crate) fn establish(&mut self) -> io::Result<()> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        self.deadline = None;
        while !self.first_line.is_empty() {
            match ready(rustix::net::send(&self.stream, &self.first_line, SendFlags::NOSIGNAL))? {
                Some(bytes) => drop(self.first_line.drain(..bytes)),
                None => break,
            }
        }
        Ok(())
    }

    /// Writes data and returns how much the program has accepted.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() || !self.is_open() {
            return Ok(0);
        }
        Ok(ready(rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL))?.unwrap_or(0))
    }

    /// Reads lines of the program: the last acknowledged offset, and the reason if the flow ends.
    pub(crate) fn read_lines(&mut self) -> (Option<u64>, Option<Reason>) {
        let mut acked = None;
        let mut bytes = [0; 4096];
        loop {
            let mut input = match ready(rustix::io::read(&self.stream, &mut bytes)) {
                Ok(None) => return (acked, None),
                Ok(Some(length @ 1..)) => &bytes[..length],
                Ok(Some(0)) | Err(_) => return (acked, Some(Reason::Lost)),
            };
            while !input.is_empty() {
                match self.lines.read_line(&mut input).map(|line| line.map(|line| BackLine::parse(&line))) {
                    Ok(None) => {}
                    Ok(Some(Ok(BackLine::Ack(offset)))) => acked = Some(offset.get()),
                    Ok(Some(Ok(BackLine::Reset(reason)))) => return (acked, Some(reason)),
                    Ok(Some(Err(_))) | Err(_) => return (acked, Some(Reason::Invalid)),
                }
            }
        }
    }
}
