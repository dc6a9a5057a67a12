//! Receives the flows of coflows. A connection starts with the line `weir-flow COFLOW FLOW`, which is not part of the data.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The first word of the first line.
const PROTOCOL_WORD: &str = "weir-flow";

/// The maximum length of the id of a coflow, in bytes.
const MAX_ID_LENGTH: usize = 128;

/// The maximum length of a first line, in bytes: the word, an id, a number of ten digits, and separators.
const MAX_LINE_LENGTH: usize = PROTOCOL_WORD.len() + MAX_ID_LENGTH + 13;

/// How long a sender may take for the first line.
const FIRST_LINE_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of connections that wait for [`FlowReceiver::receive`], including those without a complete first line. Further
/// connections wait in the kernel.
const MAX_CONNECTIONS: usize = 1024;

/// The first line of a connection.
pub(crate) fn first_line(coflow: &str, flow: u32) -> io::Result<String> {
    if !is_id(coflow) {
        let message = format!(
            "coflow id `{coflow}` is invalid; expected 1 to {MAX_ID_LENGTH} printable ASCII characters without spaces"
        );
        return Err(io::Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(format!("{PROTOCOL_WORD} {coflow} {flow}\n"))
}

fn is_id(text: &str) -> bool {
    (1..=MAX_ID_LENGTH).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Parses a first line, without its line end.
fn parse_first_line(line: &[u8]) -> Option<(String, u32)> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (word, coflow, flow) = (words.next()?, words.next()?, words.next()?);
    let is_valid = word == PROTOCOL_WORD && is_id(coflow) && words.next().is_none();
    Some((coflow.to_owned(), flow.parse().ok().filter(|_| is_valid)?))
}

/// A port at which a program receives flows. The port has no authentication: any program that can reach it can send any flow.
#[derive(Debug)]
pub struct FlowReceiver {
    listener: TcpListener,
    /// Connections whose first line is incomplete.
    unidentified: Vec<UnidentifiedConnection>,
    /// Connections by the coflow and flow of their first line.
    ready: BTreeMap<(String, u32), TcpStream>,
}

#[derive(Debug)]
struct UnidentifiedConnection {
    stream: TcpStream,
    line: Vec<u8>,
    deadline: Instant,
}

/// The result of reading a first line.
enum FirstLine {
    Incomplete,
    Complete(String, u32),
    Invalid,
}

impl UnidentifiedConnection {
    /// Reads the available part of the first line, and nothing after it.
    fn read_first_line(&mut self) -> FirstLine {
        let mut byte = [0];
        while self.line.len() < MAX_LINE_LENGTH {
            match self.stream.read(&mut byte) {
                Ok(0) => return FirstLine::Invalid,
                Ok(_) if byte == *b"\n" => {
                    return match parse_first_line(&self.line) {
                        Some((coflow, flow)) if self.stream.set_nonblocking(false).is_ok() => {
                            FirstLine::Complete(coflow, flow)
                        }
                        _ => FirstLine::Invalid,
                    };
                }
                Ok(_) => self.line.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return FirstLine::Incomplete,
                Err(_) => return FirstLine::Invalid,
            }
        }
        FirstLine::Invalid
    }
}

impl FlowReceiver {
    /// Listens at an address; port 0 selects a free port.
    ///
    /// # Errors
    /// If the address is not available.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<FlowReceiver> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(FlowReceiver { listener, unidentified: Vec::new(), ready: BTreeMap::new() })
    }

    /// The address for senders.
    ///
    /// # Errors
    /// If the operating system does not return it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits for the connection of a flow, whose bytes are the flow's data. Flows can be received in any order: connections of other
    /// flows wait. If two connections of the flow wait, the later one replaces the first.
    ///
    /// The stream also ends if the sender is killed: compare the length with the flow's size if the size is known.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] if the flow does not arrive within `timeout`.
    pub fn receive(&mut self, coflow: &str, flow: u32, timeout: Duration) -> io::Result<TcpStream> {
        let start = Instant::now();
        let key = (coflow.to_owned(), flow);
        loop {
            if let Some(stream) = self.ready.remove(&key) {
                return Ok(stream);
            }
            let remaining = timeout.saturating_sub(start.elapsed());
            if remaining.is_zero() {
                let message = format!("flow {flow} of coflow `{coflow}` did not arrive within {timeout:?}");
                return Err(io::Error::new(ErrorKind::TimedOut, message));
            }
            self.wait_readable(remaining)?;
            self.accept_connections()?;
        }
    }

    /// Waits until a socket is readable, or until the next deadline of a first line, at most `max_wait`.
    fn wait_readable(&self, max_wait: Duration) -> io::Result<()> {
        let deadlines =
            self.unidentified.iter().map(|new| new.deadline.saturating_duration_since(Instant::now()));
        let wait = deadlines.fold(max_wait, Duration::min);
        // A time that the kernel cannot represent means no limit.
        let timeout = Timespec::try_from(wait).ok();
        let mut polled: Vec<PollFd<'_>> =
            self.unidentified.iter().map(|new| PollFd::new(&new.stream, PollFlags::IN)).collect();
        if self.has_capacity() {
            polled.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn has_capacity(&self) -> bool {
        self.unidentified.len() + self.ready.len() < MAX_CONNECTIONS
    }

    /// Accepts connections, and reads their first lines.
    fn accept_connections(&mut self) -> io::Result<()> {
        while self.has_capacity() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    self.unidentified.push(UnidentifiedConnection {
                        stream,
                        line: Vec::new(),
                        deadline: Instant::now() + FIRST_LINE_TIMEOUT,
                    });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The client closed the connection before it was accepted.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => return Err(error),
            }
        }
        let now = Instant::now();
        for mut new in std::mem::take(&mut self.unidentified) {
            match new.read_first_line() {
                FirstLine::Complete(coflow, flow) => {
                    self.ready.insert((coflow, flow), new.stream);
                }
                FirstLine::Incomplete if now < new.deadline => self.unidentified.push(new),
                FirstLine::Incomplete | FirstLine::Invalid => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn connect_and_send(receiver: &FlowReceiver, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(receiver.address().unwrap()).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }

    #[test]
    fn flows_are_received_in_any_order_and_data_begins_after_the_line() {
        let mut receiver = FlowReceiver::bind("127.0.0.1:0").unwrap();
        let idle = connect_and_send(&receiver, b"");
        let mut slow = connect_and_send(&receiver, b"weir-fl");
        drop(connect_and_send(&receiver, b"weir-flow a 0\nhello\nyou"));
        drop(connect_and_send(&receiver, b"weir-flow a 4294967295\n"));
        slow.write_all(b"ow b 0\nslow").unwrap();
        drop(slow);
        for (coflow, flow, expected) in [("b", 0, "slow"), ("a", u32::MAX, ""), ("a", 0, "hello\nyou")] {
            let mut text = String::new();
            receiver.receive(coflow, flow, TIMEOUT).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, expected);
        }
        let error = receiver.receive("a", 0, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!((receiver.unidentified.len(), receiver.ready.len()), (1, 0));
        drop(idle);
    }

    #[test]
    fn connections_with_malformed_first_lines_are_closed() {
        let mut receiver = FlowReceiver::bind("127.0.0.1:0").unwrap();
        let long = format!("weir-flow {} 0\n", "x".repeat(MAX_ID_LENGTH + 1));
        let longest = "x".repeat(MAX_ID_LENGTH);
        let mut sent =
            vec![connect_and_send(&receiver, long.as_bytes()), connect_and_send(&receiver, &[b'x'; 4096])];
        for line in
            ["weir-flow a\n", "weir-flow a 0 0\n", "weir-flow a -1\n", "weir-flow a 4294967296\n", "\n"]
        {
            sent.push(connect_and_send(&receiver, line.as_bytes()));
        }
        let last = connect_and_send(&receiver, first_line(&longest, u32::MAX).unwrap().as_bytes());
        receiver.receive(&longest, u32::MAX, TIMEOUT).unwrap();
        // The earlier connections were processed before this one.
        assert_eq!((receiver.unidentified.len(), receiver.ready.len()), (0, 0));
        drop((sent, last));
        for id in ["", "a b", "a\n", &"x".repeat(MAX_ID_LENGTH + 1)] {
            assert_eq!(first_line(id, 0).unwrap_err().kind(), ErrorKind::InvalidInput, "{id:?}");
        }
    }

    #[test]
    fn second_connection_of_a_flow_replaces_the_first() {
        let mut receiver = FlowReceiver::bind("127.0.0.1:0").unwrap();
        let first = connect_and_send(&receiver, b"weir-flow a 0\nfirst");
        drop(connect_and_send(&receiver, b"weir-flow a 0\nsecond"));
        let mut text = String::new();
        receiver.receive("a", 0, TIMEOUT).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "second");
        drop(first);
    }
}
