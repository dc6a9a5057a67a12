//! Measures incast: connections that send to one receiver at the same time, through a switch with a small buffer.
//!
//! The measurement covers the cost of too many connections (Django, 2.3 and Algorithm 1): for a buffer and a number of
//! connections, the fraction of packets that the switch drops, and the durations of the connections. One receiver and some
//! senders are on a [`Plan::BigSwitch`] bed. The queue of the switch's port to the receiver holds `buffer` full packets. Senders
//! emit single packets (`gso_max_segs 1`): otherwise a queue would drop several at once. The port may send an HTB burst (16 KiB)
//! at once, in addition to its buffer.
//!
//! Connections start together and send once, or are [steady](ConnectionStarts::Steady): their number stays constant.
//!
//! With [`TcpOptions::ecn_threshold`], the port works like a switch for DCTCP: it marks packets (ECN) while its queue holds this
//! number of packets or more, and senders that support ECN slow down before packets are dropped.
//!
//! [`Plan::BigSwitch`]: weir_core::model::topology::TopologyTemplate::BigSwitch

mod steady;

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Command;
use std::sync::{RwLock, mpsc};
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpCongestion;
use weir_agent::ecn::{EcnMarker, QueueLengths};
use weir_agent::traffic::TrafficError;

use crate::batch;
use crate::bed::{Bed, BedError};
use crate::congestion::{CongestionControl, CongestionError};
use crate::namespace;
use crate::plan::Node;
use crate::queues::{FRAME_BYTES, HtbClass, max_segments};

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
    /// The bed could not be changed.
    #[error(transparent)]
    Bed(#[from] BedError),
    /// A socket or thread failed.
    #[error("incast of {connections} connections: {error}")]
    Socket {
        /// The number of connections.
        connections: usize,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The counters of the queue could not be read from `tc`.
    #[error("the switch's queue cannot be read: {0}")]
    Queue(String),
    /// ECN could not be set for a namespace.
    #[error("{ECN_SETTING} in {namespace}: {error}")]
    Ecn {
        /// The namespace.
        namespace: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The congestion control cannot be used.
    #[error(transparent)]
    CongestionControl(#[from] CongestionError),
    /// The program that sets ECN marks could not be loaded.
    #[error(transparent)]
    EcnMarker(#[from] TrafficError),
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

/// The congestion control of the connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// The name of the congestion control, as for [`CongestionControl::new`]; the system's default without.
    pub congestion_control: Option<String>,
    /// The queue length, in packets, from which on the switch's port sets ECN marks. Senders then support ECN. Without it, the port sets no
    /// marks.
    pub ecn_threshold: Option<u32>,
}

/// The kernel setting for the use of ECN by connections.
const ECN_SETTING: &str = "/proc/sys/net/ipv4/tcp_ecn";

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

/// The packets dropped between two readings of (sent, dropped), as a fraction of those that arrived.
fn loss(before: (u64, u64), after: (u64, u64)) -> f64 {
    // Another process may have replaced the queue, and with it the counters.
    let (sent, dropped) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    dropped as f64 / (sent + dropped).max(1) as f64
}

/// A bed of one switch that is configured for incast. The first host is the receiver.
pub struct IncastBed<'a> {
    bed: &'a Bed,
    receiver: &'a Node,
    senders: Vec<&'a Node>,
    /// The switch's namespace, and its interface to the receiver.
    receiver_port: (&'a str, &'a str),
    congestion_control: CongestionControl,
    ecn_threshold: Option<u32>,
    /// The namespaces with ECN on, and their previous settings.
    previous_ecn: Vec<(&'a str, String)>,
}

impl<'a> IncastBed<'a> {
    /// Configures a bed: senders emit single packets, and use `tcp`. Dropping the value restores the bed.
    ///
    /// # Panics
    /// If the bed is not a big switch with at least two hosts.
    ///
    /// # Errors
    /// If the kernel refuses a setting.
    pub fn new(bed: &'a Bed, tcp: &TcpOptions) -> Result<IncastBed<'a>, IncastError> {
        let plan = bed.plan();
        let hosts: Vec<&Node> = plan.nodes.iter().filter(|node| !node.is_switch).collect();
        let (receiver, senders) = hosts.split_first().expect("a topology has at least one host");
        let cable = plan.cables.iter().find(|cable| cable.ends.iter().any(|&(node, _)| node == 0));
        let ends = cable.expect("every host has a cable").ends;
        let (switch, port) = ends
            .into_iter()
            .find(|&(node, _)| node != 0)
            .expect("the two ends of a cable are different nodes");
        let switch = &plan.nodes[switch];
        assert!(
            switch.is_switch && !senders.is_empty(),
            "the bed is not a big switch with at least two hosts"
        );
        let mut incast_bed = IncastBed {
            bed,
            receiver,
            senders: senders.to_vec(),
            receiver_port: (&switch.namespace, &switch.ports[port].interface),
            congestion_control: CongestionControl::new(tcp.congestion_control.as_deref())?,
            ecn_threshold: tcp.ecn_threshold,
            previous_ecn: Vec::new(),
        };
        incast_bed.set_segments(1)?;
        if tcp.ecn_threshold.is_some() {
            for host in &hosts {
                incast_bed.previous_ecn.push((&host.namespace, set_ecn(&host.namespace, "1")?));
            }
        }
        Ok(incast_bed)
    }

    /// The congestion control of the connections.
    pub fn congestion_control(&self) -> &CongestionControl {
        &self.congestion_control
    }

    /// Sets ECN marks at the switch's port, and measures its queue. Without marks, a kernel that cannot measure is accepted.
    fn attach_marker(&self) -> Result<Option<EcnMarker>, IncastError> {
        let (namespace, interface) = self.receiver_port;
        let interface = interface.parse().expect("`eth` and a number is the name of an interface");
        let attached = namespace::run_inside(namespace, || EcnMarker::attach(&interface, self.ecn_threshold));
        let kernel_error = |error| TrafficError::Kernel { object: namespace.to_owned(), message: error };
        let marker = attached.map_err(|error| kernel_error(error.to_string())).flatten();
        if self.ecn_threshold.is_none() { Ok(marker.ok()) } else { Ok(Some(marker?)) }
    }

    fn set_segments(&self, segments: u32) -> Result<(), IncastError> {
        for sender in &self.senders {
            let interface = &sender.ports[0].interface;
            self.bed
                .run_ip(&sender.namespace, format!("link set dev {interface} gso_max_segs {segments}\n"))?;
        }
        Ok(())
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
        self.set_buffer(incast.buffer_packets)?;
        let marker = self.attach_marker()?;
        let sample = match incast.starts {
            ConnectionStarts::Together => self.run_together(incast, should_continue)?,
            ConnectionStarts::Steady(times) => self.run_steady(incast, times, should_continue)?,
        };
        Ok(IncastSample { queue: marker.map(|marker| marker.queue_lengths()).transpose()?, ..sample })
    }

    fn run_together(
        &self,
        incast: &IncastParameters,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<IncastSample, IncastError> {
        let before = self.packet_counts()?;
        let times = self.send(incast, should_continue)?;
        let after = self.packet_counts()?;
        let last = times.last().copied().expect("a run has at least one connection");
        let goodput = incast.connections as f64 * incast.bytes_per_connection as f64 / last;
        Ok(IncastSample { loss: loss(before, after), queue: None, goodput, completion_secs: times })
    }

    fn run_steady(
        &self,
        incast: &IncastParameters,
        times: SteadyTimes,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<IncastSample, IncastError> {
        let to_error = |error| IncastError::Socket { connections: incast.connections, error };
        let (listener, to) = self.listen().map_err(to_error)?;
        // Connections inherit the listener's congestion control, which decides how the receiver answers ECN marks.
        setsockopt(&listener, TcpCongestion, self.congestion_control.name())
            .map_err(|error| to_error(error.into()))?;
        let hosts: Vec<&str> = self.senders.iter().map(|sender| sender.namespace.as_str()).collect();
        let senders = steady::SteadySenders {
            enter_host: |number: usize| namespace::enter(hosts[number % hosts.len()]),
            to,
            congestion_control: self.congestion_control.name(),
        };
        steady::run(listener, &senders, incast, times, &|| self.packet_counts(), should_continue)
    }

    /// A listener of the receiver that does not block, and its address.
    fn listen(&self) -> io::Result<(TcpListener, SocketAddrV4)> {
        let listen = || {
            let listener = TcpListener::bind(SocketAddrV4::new(self.receiver.address, 0))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener: TcpListener =
            namespace::run_inside(&self.receiver.namespace, listen).and_then(|done| done)?;
        let port = listener.local_addr()?.port();
        Ok((listener, SocketAddrV4::new(self.receiver.address, port)))
    }

    /// Replaces the queue, and so resets its counters.
    fn set_buffer(&self, packets: u32) -> Result<(), IncastError> {
        let (namespace, interface) = self.receiver_port;
        let plan = self.bed.plan();
        let link_class = HtbClass::for_link(plan.min_link_rate, max_segments(plan.min_link_rate));
        let lines = batch::single_queue_lines(
            interface,
            HtbClass { queue_limit: packets * FRAME_BYTES, ..link_class },
        );
        Ok(self.bed.run_tc(namespace, lines)?)
    }

    /// The numbers of packets that the queue has sent and dropped.
    fn packet_counts(&self) -> Result<(u64, u64), IncastError> {
        let (namespace, interface) = self.receiver_port;
        let to_error = |error: &dyn std::fmt::Display| IncastError::Queue(error.to_string());
        let mut command = Command::new("tc");
        command.args(["-n", namespace, "-s", "-j", "qdisc", "show", "dev", interface]);
        let output = command.output().map_err(|error| to_error(&error))?;
        let queues: Vec<QueueCounters> =
            serde_json::from_slice(&output.stdout).map_err(|error| to_error(&error))?;
        let queue = queues.into_iter().find(|queue| queue.parent == batch::LINK_CLASS_ID);
        queue
            .map(|queue| (queue.packets, queue.drops))
            .ok_or_else(|| to_error(&"`tc` lists no queue of the link's class"))
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
                let namespace = &self.senders[number % self.senders.len()].namespace;
                let (ready, gate) = (ready.clone(), &start_gate);
                move || {
                    run_sender(
                        namespace,
                        to,
                        incast.bytes_per_connection,
                        self.congestion_control.name(),
                        ready,
                        gate,
                    )
                }
            };
            spawn_threads(scope, incast.connections, STACK_BYTES, work).map_err(to_error)?;
            drop(ready);
            let start = || {
                // The channel closes once every sender has connected or failed.
                let _ = all_ready.recv();
                drop(closed_gate);
            };
            receive_all(&listener, incast, self.congestion_control.name(), start, should_continue, to_error)
        })
    }
}

impl Drop for IncastBed<'_> {
    fn drop(&mut self) {
        // The next use of the bed replaces the queue. If the kernel refuses these settings, the bed cannot be used anyway.
        let _ = self.set_segments(max_segments(self.bed.plan().min_link_rate));
        for (namespace, before) in &self.previous_ecn {
            let _ = set_ecn(namespace, before);
        }
    }
}

/// Sets whether connections in a namespace use ECN. Returns the previous value.
fn set_ecn(namespace: &str, value: &str) -> Result<String, IncastError> {
    let change = || {
        let before = fs::read_to_string(ECN_SETTING)?;
        fs::write(ECN_SETTING, value).map(|()| before.trim().to_owned())
    };
    let result = namespace::run_inside(namespace, change).and_then(|done| done);
    result.map_err(|error| IncastError::Ecn { namespace: namespace.to_owned(), error })
}

/// A queue as `tc -j -s` prints it.
#[derive(serde::Deserialize)]
struct QueueCounters {
    #[serde(default)]
    parent: String,
    packets: u64,
    drops: u64,
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
    congestion_control: &OsString,
    ready: mpsc::Sender<Infallible>,
    start_gate: &RwLock<()>,
) {
    let connected = namespace::enter(namespace).and_then(|()| connect(to, congestion_control));
    drop(ready);
    drop(start_gate.read());
    if let Ok(mut stream) = connected {
        // If the connection fails, the receiver reports an error.
        let _ = send_all(&mut stream, bytes);
    }
}

/// Connects. A write fails if the receiver does not read for [`RUN_TIMEOUT`].
fn connect(to: SocketAddrV4, congestion_control: &OsString) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to.into(), RUN_TIMEOUT)?;
    setsockopt(&stream, TcpCongestion, congestion_control)?;
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
    congestion_control: &OsString,
    open_gate: impl FnOnce(),
    should_continue: &dyn Fn() -> bool,
    to_error: impl Fn(io::Error) -> IncastError,
) -> Result<Vec<f64>, IncastError> {
    let accepted = accept_all(listener, incast, congestion_control, should_continue, &to_error);
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
    congestion_control: &OsString,
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
                // It decides how the receiver answers ECN marks. That of the listener does not count: the routes of a bed's hosts set
                // another one for new connections.
                let set = setsockopt(&stream, TcpCongestion, congestion_control);
                set.map_err(|error| to_error(error.into()))?;
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
