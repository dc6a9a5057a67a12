//! Receives the flows of coflows. A connection starts with the line `weir-flow COFLOW FLOW`, which is not part of the data.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The first word of a connection.
const WORD: &str = "weir-flow";

/// The maximum length of an id, and of a first line: the word, an id, a number of ten digits, and separators.
const MAX_ID_LENGTH: usize = 128;
const LONGEST: usize = WORD.len() + MAX_ID_LENGTH + 13;

/// How long a sender may take for the first line.
const PATIENCE: Duration = Duration::from_secs(5);

/// The maximum number of connections that wait for [`Inbox::get`], including those without a complete first line. Others wait in the
/// kernel.
const MAX: usize = 1024;

/// The first line of a connection.
pub(crate) fn head(coflow: &str, flow: u32) -> io::Result<String> {
    if !is_id(coflow) {
        let expected = format!("coflow: expected 1 to {MAX_ID_LENGTH} printable characters without spaces");
        return Err(io::Error::new(ErrorKind::InvalidInput, expected));
    }
    Ok(format!("{WORD} {coflow} {flow}\n"))
}

fn is_id(text: &str) -> bool {
    (1..=MAX_ID_LENGTH).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Parses a first line, without its line end.
fn flow_of(line: &[u8]) -> Option<(String, u32)> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (word, coflow, flow) = (words.next()?, words.next()?, words.next()?);
    let known = word == WORD && is_id(coflow) && words.next().is_none();
    Some((coflow.to_owned(), flow.parse().ok().filter(|_| known)?))
}

/// A port at which a program receives flows. Any program that can reach the port can send any flow: it is as safe as its network.
#[derive(Debug)]
pub struct Inbox {
    listener: TcpListener,
    /// Connections whose first line is incomplete.
    new: Vec<New>,
    waiting: BTreeMap<(String, u32), TcpStream>,
}

#[derive(Debug)]
struct New {
    stream: TcpStream,
    line: Vec<u8>,
    until: Instant,
}

/// The result of reading a first line.
enum Heard {
    Nothing,
    Flow(String, u32),
    Gone,
}

impl New {
    /// Reads the available part of the first line, and nothing after it.
    fn hear(&mut self) -> Heard {
        let mut byte = [0];
        while self.line.len() < LONGEST {
            match self.stream.read(&mut byte) {
                Ok(0) => return Heard::Gone,
                Ok(_) if byte == *b"\n" => {
                    return match flow_of(&self.line) {
                        Some((coflow, flow)) if self.stream.set_nonblocking(false).is_ok() => {
                            Heard::Flow(coflow, flow)
                        }
                        _ => Heard::Gone,
                    };
                }
                Ok(_) => self.line.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Heard::Nothing,
                Err(_) => return Heard::Gone,
            }
        }
        Heard::Gone
    }
}

impl Inbox {
    /// Listens at an address; port 0 selects a free port.
    ///
    /// # Errors
    /// If the address is not available.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Inbox> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Inbox { listener, new: Vec::new(), waiting: BTreeMap::new() })
    }

    /// The address for senders.
    ///
    /// # Errors
    /// If the operating system does not return it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits for the connection of a flow, whose bytes are the flow's data. Flows can be requested in any order, and others wait. If a
    /// sender connects twice before, the later connection counts.
    ///
    /// The end of the stream means only that the sender has closed it, even by being killed: compare the length if the size is known.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] if the flow does not arrive within `patience`.
    pub fn get(&mut self, coflow: &str, flow: u32, patience: Duration) -> io::Result<TcpStream> {
        let began = Instant::now();
        let wanted = (coflow.to_owned(), flow);
        loop {
            if let Some(stream) = self.waiting.remove(&wanted) {
                return Ok(stream);
            }
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                let why = format!("flow {flow} of coflow `{coflow}` did not come within {patience:?}");
                return Err(io::Error::new(ErrorKind::TimedOut, why));
            }
            self.wait(left)?;
            self.take()?;
        }
    }

    /// Waits until a socket is readable, or until the next time limit.
    fn wait(&self, most: Duration) -> io::Result<()> {
        let ends = self.new.iter().map(|new| new.until.saturating_duration_since(Instant::now()));
        let most = ends.fold(most, Duration::min);
        // A time that the kernel cannot represent means no limit.
        let time = Timespec::try_from(most).ok();
        let mut polled: Vec<PollFd<'_>> =
            self.new.iter().map(|new| PollFd::new(&new.stream, PollFlags::IN)).collect();
        if self.has_room() {
            polled.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        match poll(&mut polled, time.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn has_room(&self) -> bool {
        self.new.len() + self.waiting.len() < MAX
    }

    /// Accepts connections, and reads their first lines.
    fn take(&mut self) -> io::Result<()> {
        while self.has_room() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    self.new.push(New { stream, line: Vec::new(), until: Instant::now() + PATIENCE });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // A connection that was closed before it was accepted.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => return Err(error),
            }
        }
        let now = Instant::now();
        for mut new in std::mem::take(&mut self.new) {
            match new.hear() {
                Heard::Flow(coflow, flow) => {
                    self.waiting.insert((coflow, flow), new.stream);
                }
                Heard::Nothing if now < new.until => self.new.push(new),
                Heard::Nothing | Heard::Gone => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn say(inbox: &Inbox, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(inbox.address().unwrap()).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }

    #[test]
    fn flows_come_in_any_order_and_data_begins_after_the_line() {
        let mut inbox = Inbox::bind("127.0.0.1:0").unwrap();
        let silent = say(&inbox, b"");
        let mut slow = say(&inbox, b"weir-fl");
        drop(say(&inbox, b"weir-flow a 0\nhello\nyou"));
        drop(say(&inbox, b"weir-flow a 4294967295\n"));
        slow.write_all(b"ow b 0\nslow").unwrap();
        drop(slow);
        for (coflow, flow, expected) in [("b", 0, "slow"), ("a", u32::MAX, ""), ("a", 0, "hello\nyou")] {
            let mut text = String::new();
            inbox.get(coflow, flow, SOON).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, expected);
        }
        let error = inbox.get("a", 0, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!((inbox.new.len(), inbox.waiting.len()), (1, 0));
        drop(silent);
    }

    #[test]
    fn connections_with_malformed_first_lines_are_closed() {
        let mut inbox = Inbox::bind("127.0.0.1:0").unwrap();
        let long = format!("weir-flow {} 0\n", "x".repeat(MAX_ID_LENGTH + 1));
        let longest = "x".repeat(MAX_ID_LENGTH);
        let mut sent = vec![say(&inbox, long.as_bytes()), say(&inbox, &[b'x'; 4096])];
        for line in
            ["weir-flow a\n", "weir-flow a 0 0\n", "weir-flow a -1\n", "weir-flow a 4294967296\n", "\n"]
        {
            sent.push(say(&inbox, line.as_bytes()));
        }
        let last = say(&inbox, head(&longest, u32::MAX).unwrap().as_bytes());
        inbox.get(&longest, u32::MAX, SOON).unwrap();
        // The earlier connections were processed before this one.
        assert_eq!((inbox.new.len(), inbox.waiting.len()), (0, 0));
        drop((sent, last));
        for id in ["", "a b", "a\n", &"x".repeat(MAX_ID_LENGTH + 1)] {
            assert_eq!(head(id, 0).unwrap_err().kind(), ErrorKind::InvalidInput, "{id:?}");
        }
    }

    #[test]
    fn second_connection_of_a_flow_replaces_the_first() {
        let mut inbox = Inbox::bind("127.0.0.1:0").unwrap();
        let first = say(&inbox, b"weir-flow a 0\nfirst");
        drop(say(&inbox, b"weir-flow a 0\nsecond"));
        let mut text = String::new();
        inbox.get("a", 0, SOON).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "second");
        drop(first);
    }
}
