//! Receives the flows of coflows (`docs/flow-protocol.md`).

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use weir_flow::{BackLine, Chunk, CoflowName, Reason};

use crate::flow_connection::FlowConnection;
use crate::flow_listener::FlowListener;
use crate::flow_table::{Flow, FlowKey, Shared, lock};
use crate::flow_tls::FlowTls;

/// How long a flow waits for the next connection when one has failed.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(120);

/// The maximum number of connections in the kernel that the thread has not accepted. All senders of a stage may connect at once.
const BACKLOG: i32 = 4096;

/// The number of bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// A port at which a program receives flows. Over plain text, any program that can reach the port can send any flow. With TLS, only
/// relays and programs of the same service can.
///
/// A thread accepts connections. The port closes when the receiver and its flows are dropped.
#[derive(Debug)]
pub struct FlowReceiver {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl FlowReceiver {
    /// Listens at an address; port 0 selects a free port.
    ///
    /// # Errors
    /// If the address is not available, or the thread cannot be started.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<FlowReceiver> {
        FlowReceiver::bind_with_tls(address, None)
    }

    /// As [`FlowReceiver::bind`]. With `tls`, connections use it, except inside a host by default.
    ///
    /// # Errors
    /// As for [`FlowReceiver::bind`].
    pub fn bind_with_tls(address: impl ToSocketAddrs, tls: Option<FlowTls>) -> io::Result<FlowReceiver> {
        let socket = TcpListener::bind(address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let shared = Arc::new(Shared::new(wake));
        let listener = FlowListener::new(socket, tls, woken, &shared);
        std::thread::Builder::new().name("flow-receiver".to_owned()).spawn(move || listener.run())?;
        Ok(FlowReceiver { shared, address })
    }

    /// The address for senders.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a flow. Flows can be received in any order: other flows wait. A flow is received once.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] if the flow does not arrive within `timeout`; [`ErrorKind::AlreadyExists`] if the flow was received before;
    /// [`ErrorKind::ConnectionAborted`] if the receiver is closed; [`ErrorKind::InvalidInput`] if the coflow's name is invalid.
    pub fn receive(&self, coflow: &str, flow: u32, timeout: Duration) -> io::Result<IncomingFlow> {
        let name: CoflowName =
            coflow.parse().map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let key = (name, flow);
        let flow = self.shared.take_flow(&key, timeout)?;
        Ok(IncomingFlow::new(Arc::clone(&self.shared), key, flow))
    }

    /// Closes the port and all connections of waiting flows. Calls of [`FlowReceiver::receive`] in other threads fail. Flows that a program
    /// reads keep their connection, and get no other one.
    pub fn close(&self) {
        self.shared.close();
    }
}

/// A flow that a program reads. Reading continues over the sender's next connection if one fails, and ends after all data.
///
/// Dropping the flow before its end makes the sender fail.
#[derive(Debug)]
pub struct IncomingFlow {
    shared: Arc<Shared>,
    key: FlowKey,
    flow: Arc<Flow>,
    reconnect_timeout: Duration,
    /// The connection that `input` was read from.
    connection: Option<Arc<FlowConnection>>,
    /// Bytes of the connection, and the range of those that are not decoded.
    input: Box<[u8]>,
    undecoded: Range<usize>,
    /// Data of a chunk, and how much of it the program has read.
    data: Vec<u8>,
    read: usize,
    has_ended: bool,
}

impl IncomingFlow {
    fn new(shared: Arc<Shared>, key: FlowKey, flow: Arc<Flow>) -> IncomingFlow {
        IncomingFlow {
            shared,
            key,
            flow,
            reconnect_timeout: RECONNECT_TIMEOUT,
            connection: None,
            input: vec![0; READ_BYTES].into_boxed_slice(),
            undecoded: 0..0,
            data: Vec::new(),
            read: 0,
            has_ended: false,
        }
    }

    /// Sets how long a read waits for the sender's next connection when one has failed. Default: 120 s.
    pub fn set_reconnect_timeout(&mut self, timeout: Duration) {
        self.reconnect_timeout = timeout;
    }

    /// Waits for a connection, and discards undecoded bytes of an earlier one.
    fn wait_connected(&mut self) -> io::Result<Arc<FlowConnection>> {
        let start = Instant::now();
        let mut progress = lock(&self.flow.progress);
        let connection = loop {
            if let Some(connection) = &progress.connection {
                break Arc::clone(connection);
            }
            if progress.is_last {
                let (coflow, flow) = &self.key;
                let message =
                    format!("flow {flow} of coflow `{coflow}` lost its sender, and the receiver was closed");
                return Err(io::Error::new(ErrorKind::ConnectionAborted, message));
            }
            let remaining = self.reconnect_timeout.saturating_sub(start.elapsed());
            if remaining.is_zero() {
                let (timeout, (coflow, flow)) = (self.reconnect_timeout, &self.key);
                let message = format!(
                    "flow {flow} of coflow `{coflow}` lost its sender, which did not connect again within {timeout:?}"
                );
                return Err(io::Error::new(ErrorKind::TimedOut, message));
            }
            let waited = self.flow.connected.wait_timeout(progress, remaining);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(progress);
        if !self.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, &connection)) {
            self.undecoded = 0..0;
            self.connection = Some(Arc::clone(&connection));
        }
        Ok(connection)
    }

    /// Reads until a chunk may be complete.
    fn read_connection(&mut self) -> io::Result<()> {
        let connection = self.wait_connected()?;
        if self.undecoded.is_empty() {
            connection.wait(false, None);
            match connection.read(&mut self.input) {
                Ok(length) if length > 0 => self.undecoded = 0..length,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // The sender connects again.
                Ok(_) | Err(_) => self.lose(&connection),
            }
        }
        self.decode(&connection)
    }

    fn lose(&self, connection: &Arc<FlowConnection>) {
        let mut progress = lock(&self.flow.progress);
        progress.connection.take_if(|current| Arc::ptr_eq(current, connection));
    }

    /// Decodes a chunk, unless another connection has replaced this one.
    fn decode(&mut self, connection: &Arc<FlowConnection>) -> io::Result<()> {
        let mut progress = lock(&self.flow.progress);
        if !progress.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            return Ok(());
        }
        let mut input = &self.input[self.undecoded.clone()];
        let chunk = progress.state.receive(&mut input);
        self.undecoded.start = self.undecoded.end - input.len();
        match chunk {
            Ok(None) => {}
            Ok(Some(Chunk::Data(data))) => (self.data, self.read) = (data, 0),
            Ok(Some(Chunk::End)) => {
                progress.state.mark_read();
                let ack = progress.state.ack();
                drop(progress);
                self.has_ended = true;
                self.shared.end_flow(&self.key, &self.flow, ack);
            }
            Err(reason) => {
                progress.connection = None;
                drop(progress);
                connection.send_last_line(BackLine::Reset(reason));
                self.shared.drain(Arc::clone(connection));
                self.shared.wake();
                if reason != Reason::Corrupt {
                    let (coflow, flow) = &self.key;
                    let message = format!("flow {flow} of coflow `{coflow}` is malformed");
                    return Err(io::Error::new(ErrorKind::InvalidData, message));
                }
            }
        }
        Ok(())
    }

    /// Notes that the program has read all data of a chunk.
    fn acknowledge(&self) {
        let mut progress = lock(&self.flow.progress);
        if let Some(line) = progress.state.mark_read()
            && let Some(connection) = &progress.connection
            && connection.send_line(&line.encode()).is_err()
        {
            // The next read finds the failure.
            connection.shutdown();
        }
    }
}

impl Read for IncomingFlow {
    /// Reads data of the flow; 0 bytes at its end only.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] if the sender does not connect again after a failure; [`ErrorKind::ConnectionAborted`] if it cannot, since
    /// the receiver was closed; [`ErrorKind::InvalidData`] if the sender does not
    /// follow the protocol.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.data.len() {
            if self.has_ended || buffer.is_empty() {
                return Ok(0);
            }
            self.read_connection()?;
        }
        let length = (&self.data[self.read..]).read(buffer)?;
        self.read += length;
        if self.read == self.data.len() {
            self.acknowledge();
        }
        Ok(length)
    }
}

impl Drop for IncomingFlow {
    fn drop(&mut self) {
        if !self.has_ended {
            lock(&self.flow.progress).state.close();
            self.shared.end_flow(&self.key, &self.flow, BackLine::Reset(Reason::Replaced));
        }
    }
}
