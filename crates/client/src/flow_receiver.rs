//! Receives the flows of coflows (`docs/flow-protocol.md`).

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_flow::{BackLine, Chunk, CoflowName, FirstLine, Reason, ReceiveState};

use crate::flow_connection::FlowConnection;
use crate::flow_listener::FlowListener;
use crate::flow_tls::FlowTls;

/// How long a flow waits for the next connection when one has failed.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(120);

/// How many ended flows a receiver remembers. The sender of such a flow may ask again for the last acknowledgement.
const MAX_ENDED_FLOWS: usize = 16_384;

/// The maximum number of connections in the kernel that the thread has not accepted. All senders of a stage may connect at once.
const BACKLOG: i32 = 4096;

/// The number of bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

type FlowKey = (CoflowName, u32);

/// The state of the receiver, of its flows, and of its thread. A flow's lock is taken after that of the table.
#[derive(Debug)]
pub(crate) struct Shared {
    table: Mutex<Table>,
    /// Signals a flow that is ready.
    arrived: Condvar,
    /// Wakes the thread.
    wake: UnixStream,
}

#[derive(Debug, Default)]
struct Table {
    flows: BTreeMap<FlowKey, (Arc<Flow>, Stage)>,
    ready_count: usize,
    /// Ended flows, the oldest first.
    ended: VecDeque<FlowKey>,
    /// Connections that end, for the thread.
    draining: Vec<Arc<FlowConnection>>,
    is_closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The flow waits for [`FlowReceiver::receive`].
    Ready,
    /// A program reads the flow.
    Taken,
    /// The flow has ended, or the program has dropped it.
    Ended,
}

#[derive(Debug, Default)]
struct Flow {
    progress: Mutex<Progress>,
    /// Signals a connection.
    connected: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    state: ReceiveState,
    connection: Option<Arc<FlowConnection>>,
    /// Whether no other connection can arrive.
    is_last: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn wake(&self) {
        // If the buffer is full, the thread wakes up anyway.
        let _ = (&self.wake).write(&[0]);
    }

    /// Closes the port, and wakes all waiting calls.
    fn close(&self) {
        let mut table = lock(&self.table);
        table.is_closed = true;
        for (flow, stage) in table.flows.values() {
            let mut progress = lock(&flow.progress);
            match stage {
                // The sender finds that the connection has failed.
                Stage::Ready => drop(progress.connection.take()),
                Stage::Taken | Stage::Ended => progress.is_last = true,
            }
            flow.connected.notify_all();
        }
        table.flows.retain(|_, (_, stage)| *stage != Stage::Ready);
        table.ready_count = 0;
        self.arrived.notify_all();
        self.wake();
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.table).is_closed
    }

    /// Passes a connection to its flow, which may be new, or refuses it.
    pub(crate) fn admit(&self, connection: FlowConnection, line: &FirstLine) {
        let mut table = lock(&self.table);
        if table.is_closed {
            return;
        }
        let key = (line.coflow.clone(), line.flow);
        let known = table.flows.get(&key).map(|(flow, _)| Arc::clone(flow));
        let is_new = known.is_none();
        let flow = known.unwrap_or_default();
        let mut progress = lock(&flow.progress);
        let connection = Arc::new(connection);
        let answer = match progress.state.accept(line) {
            Ok(answer) if !progress.state.has_ended() => answer,
            Ok(answer) => {
                connection.send_last_line(answer);
                return table.draining.push(connection);
            }
            Err(reason) => {
                connection.send_last_line(BackLine::Reset(reason));
                return table.draining.push(connection);
            }
        };
        // The program's next read finds a failure.
        let _ = connection.send_line(&answer.encode());
        if let Some(earlier) = progress.connection.replace(connection) {
            earlier.send_last_line(BackLine::Reset(Reason::Replaced));
            // The program may wait for this connection.
            earlier.shutdown();
            table.draining.push(earlier);
        }
        drop(progress);
        flow.connected.notify_all();
        if is_new {
            table.flows.insert(key, (flow, Stage::Ready));
            table.ready_count += 1;
            self.arrived.notify_all();
        }
    }

    /// Sends the last acknowledgement of every flow again.
    pub(crate) fn repeat_acks(&self) {
        for (flow, _) in lock(&self.table).flows.values() {
            let mut progress = lock(&flow.progress);
            let line = progress.state.ack();
            if let Some(connection) = &progress.connection
                && connection.send_line(&line.encode()).is_err()
            {
                // The program's next read finds the failure.
                connection.shutdown();
            }
        }
    }

    /// Leaves a connection to the thread, which discards what arrives.
    pub(crate) fn drain(&self, connection: Arc<FlowConnection>) {
        lock(&self.table).draining.push(connection);
    }

    pub(crate) fn take_draining(&self) -> Vec<Arc<FlowConnection>> {
        std::mem::take(&mut lock(&self.table).draining)
    }

    pub(crate) fn ready_count(&self) -> usize {
        lock(&self.table).ready_count
    }

    /// Takes a flow that is ready.
    fn take_flow(&self, key: &FlowKey, timeout: Duration) -> io::Result<Arc<Flow>> {
        let start = Instant::now();
        let mut table = lock(&self.table);
        let error = loop {
            if table.is_closed {
                break (
                    ErrorKind::ConnectionAborted,
                    "cannot be received: the receiver was closed".to_owned(),
                );
            }
            match table.flows.get_mut(key) {
                None => {}
                Some((flow, stage @ Stage::Ready)) => {
                    *stage = Stage::Taken;
                    let flow = Arc::clone(flow);
                    table.ready_count -= 1;
                    self.wake();
                    return Ok(flow);
                }
                Some((_, Stage::Taken | Stage::Ended)) => {
                    let text = "was received before; expected one call of `receive` for each flow";
                    break (ErrorKind::AlreadyExists, text.to_owned());
                }
            }
            let remaining = timeout.saturating_sub(start.elapsed());
            if remaining.is_zero() {
                break (ErrorKind::TimedOut, format!("did not arrive within {timeout:?}"));
            }
            let waited = self.arrived.wait_timeout(table, remaining);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        let ((kind, text), (coflow, flow)) = (error, key);
        Err(io::Error::new(kind, format!("flow {flow} of coflow `{coflow}` {text}")))
    }

    /// Marks a flow as ended. Its last connection ends with `line`.
    fn end_flow(&self, key: &FlowKey, flow: &Flow, line: BackLine) {
        let mut table = lock(&self.table);
        if let Some((_, stage)) = table.flows.get_mut(key) {
            *stage = Stage::Ended;
            table.ended.push_back(key.clone());
        }
        if table.ended.len() > MAX_ENDED_FLOWS
            && let Some(oldest) = table.ended.pop_front()
        {
            table.flows.remove(&oldest);
        }
        if let Some(connection) = lock(&flow.progress).connection.take() {
            connection.send_last_line(line);
            table.draining.push(connection);
        }
        self.wake();
    }
}

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
        let shared = Arc::new(Shared { table: Mutex::default(), arrived: Condvar::new(), wake });
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
