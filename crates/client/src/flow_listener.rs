//! The thread of a [`FlowReceiver`](crate::FlowReceiver): accepts connections, reads their first lines, repeats acknowledgements, and
//! drains connections that end.

use std::io::{self, ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::SockRef;
use weir_flow::{ACK_INTERVAL, BackLine, FirstLine, LineReader, Reason};

use crate::flow_connection::FlowConnection;
use crate::flow_table::Shared;
use crate::flow_tls::{FlowTls, check_relay};

/// How long a sender may take for the first line.
const FIRST_LINE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a sender may take to close a connection after the last line to it.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the kernel sends an acknowledgement again before the connection fails.
const UNACKED_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause after a failure to accept a connection, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The maximum number of flows that wait for [`FlowReceiver::receive`](crate::FlowReceiver::receive). The thread reads nothing of a flow
/// that waits, so each takes a file descriptor and what the kernel's receive buffer holds.
const MAX_READY: usize = 16_384;

/// The maximum number of connections without a complete first line, and of those that end. Further connections wait in the kernel.
const MAX_CONNECTIONS: usize = 1024;

/// The state of the thread. It ends when the receiver is closed, or the receiver and its flows are dropped.
#[derive(Debug)]
pub(crate) struct FlowListener {
    socket: TcpListener,
    tls: Option<FlowTls>,
    /// Becomes readable when `shared` has changed or was dropped.
    wake: UnixStream,
    shared: Weak<Shared>,
    /// Connections whose first line is incomplete.
    unidentified: Vec<Unidentified>,
    /// Connections that end.
    draining: Vec<Draining>,
    ready_count: usize,
    next_ack: Instant,
    next_accept: Instant,
}

#[derive(Debug)]
struct Unidentified {
    connection: FlowConnection,
    line: LineReader,
    deadline: Instant,
}

/// A connection whose bytes are discarded, so that the kernel does not reset it before the last line has arrived.
#[derive(Debug)]
struct Draining {
    connection: Arc<FlowConnection>,
    deadline: Instant,
}

/// The result of reading a first line.
enum Identity {
    Incomplete,
    Complete(FirstLine),
    Invalid,
    Closed,
}

impl FlowListener {
    /// The listener on a socket that does not block.
    pub(crate) fn new(
        socket: TcpListener,
        tls: Option<FlowTls>,
        wake: UnixStream,
        shared: &Arc<Shared>,
    ) -> FlowListener {
        let now = Instant::now();
        FlowListener {
            socket,
            tls,
            wake,
            shared: Arc::downgrade(shared),
            unidentified: Vec::new(),
            draining: Vec::new(),
            ready_count: 0,
            next_ack: now + ACK_INTERVAL,
            next_accept: now,
        }
    }

    /// Runs until the receiver is closed, or the receiver and its flows are dropped.
    pub(crate) fn run(mut self) {
        loop {
            self.wait();
            let Some(shared) = self.shared.upgrade().filter(|shared| !shared.is_closed()) else { return };
            while matches!((&self.wake).read(&mut [0; 64]), Ok(1..)) {}
            self.accept_connections();
            self.identify_connections(&shared);
            self.drain_connections(&shared);
            if Instant::now() >= self.next_ack {
                shared.repeat_acks();
                self.next_ack = Instant::now() + ACK_INTERVAL;
            }
            self.ready_count = shared.ready_count();
        }
    }

    fn may_accept(&self) -> bool {
        self.unidentified.len() < MAX_CONNECTIONS
            && self.unidentified.len() + self.ready_count < MAX_READY
            && Instant::now() >= self.next_accept
    }

    /// Waits until a socket is readable, or for the next deadline.
    fn wait(&self) {
        let now = Instant::now();
        let deadlines = self.unidentified.iter().map(|new| new.deadline);
        let deadlines = deadlines.chain(self.draining.iter().map(|draining| draining.deadline));
        let deadlines = deadlines.chain((self.next_accept > now).then_some(self.next_accept));
        let first = deadlines.fold(self.next_ack, Instant::min);
        let timeout = Timespec::try_from(first.saturating_duration_since(now)).ok();
        let mut polled = vec![PollFd::new(&self.wake, PollFlags::IN)];
        polled
            .extend(self.unidentified.iter().map(|new| PollFd::new(new.connection.stream(), PollFlags::IN)));
        let draining = self.draining.iter().map(|draining| draining.connection.stream());
        polled.extend(draining.map(|stream| PollFd::new(stream, PollFlags::IN)));
        if self.may_accept() {
            polled.push(PollFd::new(&self.socket, PollFlags::IN));
        }
        if !matches!(poll(&mut polled, timeout.as_ref()), Ok(_) | Err(Errno::INTR)) {
            // Too little memory for the kernel's list.
            std::thread::sleep(ACCEPT_PAUSE);
        }
    }

    fn accept_connections(&mut self) {
        while self.may_accept() {
            match self.socket.accept() {
                Ok((stream, _)) => {
                    // A connection that cannot be configured is closed.
                    if let Ok(connection) = self.prepare(stream) {
                        let (line, deadline) = (LineReader::default(), Instant::now() + FIRST_LINE_TIMEOUT);
                        self.unidentified.push(Unidentified { connection, line, deadline });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client closed the connection before it was accepted.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error)
                    if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) && raise_file_limit() => {}
                Err(_) => self.next_accept = Instant::now() + ACCEPT_PAUSE,
            }
        }
    }

    fn prepare(&self, stream: TcpStream) -> io::Result<FlowConnection> {
        SockRef::from(&stream).set_tcp_user_timeout(Some(UNACKED_TIMEOUT))?;
        FlowConnection::accept(stream, self.tls.as_ref())
    }

    /// Whether the other end may send flows.
    fn is_trusted(&self, connection: &FlowConnection) -> bool {
        let check = |name: &str| {
            let check_program = |tls: &FlowTls| tls.check_program(name);
            check_relay(name).or_else(|error| self.tls.as_ref().map_or(Err(error), check_program))
        };
        connection.check_peer(check).is_ok()
    }

    /// Reads first lines, and passes complete ones to the table of flows.
    fn identify_connections(&mut self, shared: &Shared) {
        let now = Instant::now();
        for mut new in std::mem::take(&mut self.unidentified) {
            match new.read_first_line() {
                Identity::Complete(line) if self.is_trusted(&new.connection) => {
                    shared.admit(new.connection, &line);
                }
                Identity::Incomplete if now < new.deadline => self.unidentified.push(new),
                Identity::Invalid => {
                    new.connection.send_last_line(BackLine::Reset(Reason::Invalid));
                    shared.drain(Arc::new(new.connection));
                }
                Identity::Complete(_) | Identity::Incomplete | Identity::Closed => {}
            }
        }
    }

    /// Discards bytes of connections that end.
    fn drain_connections(&mut self, shared: &Shared) {
        let now = Instant::now();
        for connection in shared.take_draining() {
            if self.draining.len() < MAX_CONNECTIONS {
                self.draining.push(Draining { connection, deadline: now + DRAIN_TIMEOUT });
            }
        }
        let mut buffer = [0; 16 << 10];
        self.draining.retain(|draining| {
            let is_open = match draining.connection.stream().read(&mut buffer) {
                Ok(length) => length > 0,
                Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            };
            is_open && now < draining.deadline
        });
    }
}

/// Raises the limit of open files to the maximum: a receiver may have more senders than the default allows. Returns whether it was lower.
fn raise_file_limit() -> bool {
    let limit = getrlimit(Resource::Nofile);
    limit.current != limit.maximum
        && setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).is_ok()
}

impl Unidentified {
    /// Reads the available part of the first line, and nothing after it.
    fn read_first_line(&mut self) -> Identity {
        let mut byte = [0];
        loop {
            match self.connection.read(&mut byte) {
                Ok(0) => return Identity::Closed,
                Ok(_) => match self.line.read_line(&mut &byte[..]) {
                    Ok(None) => {}
                    Ok(Some(line)) => {
                        return FirstLine::parse(&line).map_or(Identity::Invalid, Identity::Complete);
                    }
                    Err(_) => return Identity::Invalid,
                },
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Identity::Incomplete,
                Err(_) => return Identity::Closed,
            }
        }
    }
}

impl Drop for FlowListener {
    fn drop(&mut self) {
        for draining in &self.draining {
            // A program may still hold the stream of a flow.
            draining.connection.shutdown();
        }
    }
}
