//! Measures incast: connections that send to one receiver at the same time, through a switch with a small buffer.
//!
//! The measurement covers the cost of too many connections (Django, 2.3 and Algorithm 1): for a buffer and a number of
//! connections, the fraction of packets that the switch drops, and the durations of the connections. One receiver and some
//! senders are on a [`Plan::BigSwitch`] bed. The queue of the switch's port to the receiver holds `buffer` full packets.
//!
//! Connections start together and send once, or are [steady](ConnectionStarts::Steady): their number stays constant.
//!
//! With [`TcpOptions::ecn_threshold`], the port works like a switch for DCTCP: it marks packets (ECN) while its queue holds this
//! number of packets or more, and senders that support ECN slow down before packets are dropped.
//!
//! [`Plan::BigSwitch`]: weir_core::model::topology::TopologyTemplate::BigSwitch

mod steady;

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use weir_agent::ecn::QueueLengths;

use crate::bed::Bed;
use crate::congestion::CongestionControl;
use crate::namespace;
use crate::tcp_bed::{TcpBed, TcpBedError, TcpOptions};

pub use steady::SteadyTimes;

/// The maximum number of connections: each has a thread.
pub const MAX_CONNECTIONS: usize = 1_000;

/// The maximum duration of a run.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between two checks for a signal, in milliseconds.
const POLL_INTERVAL_MS: u8 = 100;

/// The stack size of a thread, in bytes.
const STACK_BYTES: usize = 128 << 10;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum IncastError {
    /// The bed could not be set or measured.
    #[error(transparent)]
    Bed(#[from] TcpBedError),
    /// A socket or thread failed.
    #[error("incast of {connections} connections: {error}")]
    Socket {
        /// The number of connections.
        connections: usize,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The run exceeded its maximum duration.
    #[error("incast of {0} connections: not completed within {limit} s", limit = RUN_TIMEOUT.as_secs())]
    Timeout(usize),
    /// A signal stopped the measurement.
    #[error("interrupted")]
    Interrupted,
}

/// When connections start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConnectionStarts {
    /// All connections start at once, and each sends once.
    #[default]
    Together,
    /// Connections start one after the other, and a completed connection is replaced by a new one.
    Steady(SteadyTimes),
}

/// The parameters of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IncastParameters {
    /// The limit of the queue at the switch's port to the receiver, in full packets.
    pub buffer_packets: u32,
    /// The number of connections.
    pub connections: usize,
    /// The bytes that each connection sends.
    pub bytes_per_connection: u64,
    /// When connections start.
    pub starts: ConnectionStarts,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct IncastSample {
    /// The packets that the switch dropped, as a fraction of those that arrived for the receiver.
    pub loss: f64,
    /// The lengths of the queue; none if BPF programs were not built or the kernel lacks its types (BTF).
    pub queue: Option<QueueLengths>,
    /// Bytes of payload per second: until all connections had completed, or in the window of steady connections.
    pub goodput: f64,
    /// Durations of connections up to the last byte, in seconds, sorted: from the common start, or from the start of each steady
    /// connection that completed in the window.
    pub completion_secs: Vec<f64>,
}

impl IncastSample {
    /// The longest duration of a connection, in seconds. `None` if no connection completed.
    pub fn last_completion(&self) -> Option<f64> {
        self.completion_secs.last().copied()
    }
}

/// The receiver, by its position among the hosts. All other hosts send.
const RECEIVER: usize = 0;

/// A bed of one switch that is configured for incast. Dropping the value restores the bed.
#[derive(Debug)]
pub struct IncastBed<'a>(TcpBed<'a>);

impl<'a> IncastBed<'a> {
    /// Configures a bed: its hosts use `tcp`.
    ///
    /// # Panics
    /// If the bed is not a big switch with at least two hosts.
    ///
    /// # Errors
    /// If the kernel refuses a setting.
    pub fn new(bed: &'a Bed, tcp: &TcpOptions) -> Result<IncastBed<'a>, IncastError> {
        let tcp_bed = TcpBed::new(bed, tcp)?;
        assert!(tcp_bed.hosts().len() > 1, "the bed has less than two hosts");
        Ok(IncastBed(tcp_bed))
    }

    /// The congestion control of the connections.
    pub fn congestion_control(&self) -> &CongestionControl {
        self.0.congestion_control()
    }

    /// The namespace of a sending host, by the number of its connection.
    fn sender(&self, connection: usize) -> &'a str {
        let hosts = self.0.hosts();
        let sender = RECEIVER + 1 + connection % (hosts.len() - 1);
        &hosts[sender].namespace
    }

    /// Runs each combination of a buffer and a number of connections `runs` times; each connection sends `bytes` bytes and starts as in
    /// `starts`. Samples are in the order of buffers, then of numbers of connections. Calls `on_run_completed` after each run, and
    /// `should_continue` several times a second.
    ///
    /// # Errors
    /// As of [`IncastBed::run`].
    pub fn run_all(
        &self,
        (buffers, connections): (&[u32], &[usize]),
        (bytes, starts): (u64, ConnectionStarts),
        runs: u64,
        should_continue: &dyn Fn() -> bool,
        on_run_completed: impl Fn(),
    ) -> Result<Vec<(IncastParameters, u64, IncastSample)>, IncastError> {
        let mut samples = Vec::new();
        for (&buffer, &connections) in buffers.iter().flat_map(|b| connections.iter().map(move |c| (b, c))) {
            let incast =
                IncastParameters { buffer_packets: buffer, connections, bytes_per_connection: bytes, starts };
            for number in 1..=runs {
                samples.push((incast, number, self.run(&incast, should_continue)?));
                on_run_completed();
            }
        }
        Ok(samples)
    }

    /// Runs one incast. Calls `should_continue` several times a second, and stops if it returns false.
    ///
    /// # Panics
    /// If there are no connections, or more than [`MAX_CONNECTIONS`].
    ///
    /// # Errors
    /// If a queue cannot be configured or read, a socket or thread fails, the run takes too long, or `should_continue` returns
    /// false.
    pub fn run(
        &self,
        incast: &IncastParameters,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<IncastSample, IncastError> {
        let count = incast.connections;
        assert!(
            (1..=MAX_CONNECTIONS).contains(&count),
            "{count} connections: expected 1 to {MAX_CONNECTIONS}"
        );
        self.0.set_buffer(RECEIVER, incast.buffer_packets)?;
        let marker = self.0.attach_marker(RECEIVER)?;
        let sample = match incast.starts {
            ConnectionStarts::Together => self.run_together(incast, should_continue)?,
            ConnectionStarts::Steady(times) => self.run_steady(incast, times, should_continue)?,
        };
        let queue = marker.map(|marker| marker.queue_lengths()).transpose().map_err(TcpBedError::from)?;
        Ok(IncastSample { queue, ..sample })
    }

    fn run_together(
        &self,
        incast: &IncastParameters,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<IncastSample, IncastError> {
        let before = self.0.packet_counts(RECEIVER)?;
        let times = self.send(incast, should_continue)?;
        let after = self.0.packet_counts(RECEIVER)?;
        let last = times.last().copied().expect("a run has at least one connection");
        let goodput = incast.connections as f64 * incast.bytes_per_connection as f64 / last;
        Ok(IncastSample { loss: after.loss_since(before), queue: None, goodput, completion_secs: times })
    }

    fn run_steady(
        &self,
        incast: &IncastParameters,
        times: SteadyTimes,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<IncastSample, IncastError> {
        let to_error = |error| IncastError::Socket { connections: incast.connections, error };
        let (listener, to) = self.listen().map_err(to_error)?;
        let senders =
            steady::SteadySenders { enter_host: |number: usize| namespace::enter(self.sender(number)), to };
        let packet_counts = || Ok(self.0.packet_counts(RECEIVER)?);
        steady::run(listener, &senders, incast, times, &packet_counts, should_continue)
    }

    /// A listener of the receiver that does not block, and its address.
    fn listen(&self) -> io::Result<(TcpListener, SocketAddrV4)> {
        let receiver = self.0.hosts()[RECEIVER];
        let listen = || {
            let listener = TcpListener::bind(SocketAddrV4::new(receiver.address, 0))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener: TcpListener =
            namespace::run_inside(&receiver.namespace, listen).and_then(|done| done)?;
        let port = listener.local_addr()?.port();
        Ok((listener, SocketAddrV4::new(receiver.address, port)))
    }

    /// Sends over all connections, and returns their durations, sorted.
    fn send(
        &self,
        incast: &IncastParameters,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<Vec<f64>, IncastError> {
        let to_error = |error| IncastError::Socket { connections: incast.connections, error };
        let (listener, to) = self.listen().map_err(to_error)?;
        let start_gate = RwLock::new(());
        thread::scope(|scope| {
            // The listener is dropped with the gate if a thread cannot be started: the connections of earlier threads are reset.
            let listener = listener;
            let closed_gate = start_gate.write();
            let (ready, all_ready) = mpsc::channel();
            let work = |number: usize| {
                let namespace = self.sender(number);
                let (ready, gate) = (ready.clone(), &start_gate);
                move || run_sender(namespace, to, incast.bytes_per_connection, ready, gate)
            };
            spawn_threads(scope, incast.connections, STACK_BYTES, work).map_err(to_error)?;
            drop(ready);
            let start = || {
                // The channel closes once every sender has connected or failed.
                let _ = all_ready.recv();
                drop(closed_gate);
            };
            receive_all(&listener, incast, start, should_continue, to_error)
        })
    }
}

/// Starts `count` threads, each with a stack of `stack` bytes and the work that `work` returns for its number. After an error, the threads
/// started before continue.
fn spawn_threads<'scope, F: FnOnce() + Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    count: usize,
    stack: usize,
    work: impl Fn(usize) -> F,
) -> io::Result<()> {
    (0..count).try_for_each(|number| {
        thread::Builder::new().stack_size(stack).spawn_scoped(scope, work(number)).map(drop)
    })
}

/// Connects, drops `ready`, waits until the gate opens, and sends. If it cannot connect, the receiver reports an error.
fn run_sender(
    namespace: &str,
    to: SocketAddrV4,
    bytes: u64,
    ready: mpsc::Sender<Infallible>,
    start_gate: &RwLock<()>,
) {
    let connected = namespace::enter(namespace).and_then(|()| connect(to));
    drop(ready);
    drop(start_gate.read());
    if let Ok(mut stream) = connected {
        // If the connection fails, the receiver reports an error.
        let _ = send_all(&mut stream, bytes);
    }
}

/// Connects. A write fails if the receiver does not read for [`RUN_TIMEOUT`].
fn connect(to: SocketAddrV4) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to.into(), RUN_TIMEOUT)?;
    stream.set_write_timeout(Some(RUN_TIMEOUT))?;
    Ok(stream)
}

/// Sends `bytes` bytes.
fn send_all(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    let data = [0; 16 << 10];
    let mut remaining_bytes = bytes;
    while remaining_bytes > 0 {
        let length = data.len().min(usize::try_from(remaining_bytes).unwrap_or(usize::MAX));
        match stream.write(&data[..length]) {
            Ok(written) => remaining_bytes -= written as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// An accepted connection, and the bytes that it has still to receive.
struct IncomingConnection {
    stream: TcpStream,
    remaining_bytes: u64,
}

fn receive_all(
    listener: &TcpListener,
    incast: &IncastParameters,
    open_gate: impl FnOnce(),
    should_continue: &dyn Fn() -> bool,
    to_error: impl Fn(io::Error) -> IncastError,
) -> Result<Vec<f64>, IncastError> {
    let accepted = accept_all(listener, incast, should_continue, &to_error);
    // Senders wait at the gate, so it is also opened if connections are missing.
    open_gate();
    let (began, mut streams) = (Instant::now(), accepted?);
    let mut completion_secs = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while !streams.is_empty() {
        check_deadline(incast, began, should_continue)?;
        wait_until_readable(streams.iter().map(|stream| stream.stream.as_fd())).map_err(&to_error)?;
        let mut index = 0;
        while index < streams.len() {
            if read_until_blocked(&mut streams[index], &mut buffer).map_err(&to_error)? {
                completion_secs.push(began.elapsed().as_secs_f64());
                streams.swap_remove(index);
            } else {
                index += 1;
            }
        }
    }
    Ok(completion_secs)
}

/// Accepts all connections. None of them sends yet.
fn accept_all(
    listener: &TcpListener,
    incast: &IncastParameters,
    should_continue: &dyn Fn() -> bool,
    to_error: impl Fn(io::Error) -> IncastError,
) -> Result<Vec<IncomingConnection>, IncastError> {
    let began = Instant::now();
    let mut streams = Vec::new();
    while streams.len() < incast.connections {
        check_deadline(incast, began, should_continue)?;
        wait_until_readable([listener.as_fd()]).map_err(&to_error)?;
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true).map_err(&to_error)?;
                streams.push(IncomingConnection { stream, remaining_bytes: incast.bytes_per_connection });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(to_error(error)),
        }
    }
    Ok(streams)
}

fn check_deadline(
    incast: &IncastParameters,
    began: Instant,
    should_continue: &dyn Fn() -> bool,
) -> Result<(), IncastError> {
    if !should_continue() {
        return Err(IncastError::Interrupted);
    }
    if began.elapsed() > RUN_TIMEOUT {
        return Err(IncastError::Timeout(incast.connections));
    }
    Ok(())
}

/// Waits until a socket is readable, at most [`POLL_INTERVAL_MS`] milliseconds.
fn wait_until_readable<'a>(sockets: impl IntoIterator<Item = BorrowedFd<'a>>) -> io::Result<()> {
    let mut poll_fds: Vec<PollFd<'_>> =
        sockets.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    match poll(&mut poll_fds, PollTimeout::from(POLL_INTERVAL_MS)) {
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reads the available bytes. Returns whether the connection has received all of them.
fn read_until_blocked(stream: &mut IncomingConnection, buffer: &mut [u8]) -> io::Result<bool> {
    loop {
        match stream.stream.read(buffer) {
            Ok(0) if stream.remaining_bytes > 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => stream.remaining_bytes = stream.remaining_bytes.saturating_sub(length as u64),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if stream.remaining_bytes == 0 {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_that_cannot_be_started_is_an_error() {
        // More than the kernel maps for a process.
        let stack = 1 << 46;
        let started = thread::scope(|scope| spawn_threads(scope, 3, stack, |_| || ()));
        assert!(started.is_err());
        assert!(thread::scope(|scope| spawn_threads(scope, 3, STACK_BYTES, |_| || ())).is_ok());
    }
}
