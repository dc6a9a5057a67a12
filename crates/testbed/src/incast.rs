//! Measures incast: connections that send to one receiver at the same time, through a switch with a small buffer.
//!
//! The measurement covers the cost of too many connections (Django, 2.3 and Algorithm 1): for a buffer and a number of connections, the
//! fraction of packets that the switch drops, and the durations of the connections. One receiver and some senders are on a
//! [`Plan::BigSwitch`] bed. The queue of the switch's port to the receiver holds `buffer` full packets. Senders emit single packets
//! (`gso_max_segs 1`): otherwise a queue would drop several at once. The port may send an HTB burst (16 KiB) at once, in addition to its
//! buffer.
//!
//! With [`Tcp::marks`], the port works like a switch for DCTCP: it marks packets (ECN) while its queue holds this number of packets or
//! more, and senders that support ECN slow down before packets are dropped.
//!
//! [`Plan::BigSwitch`]: weir_core::model::Plan::BigSwitch

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
use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, getsockopt, setsockopt, socket};
use weir_agent::congestion::Marks;
use weir_agent::traffic::TrafficError;

use crate::batch;
use crate::bed::{Bed, BedError};
use crate::namespace;
use crate::plan::Node;
use crate::queues::{Class, FRAME, segments};

/// The maximum number of connections: each has a thread.
pub const MAX_CONNECTIONS: usize = 1_000;

/// The maximum duration of a run.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time between two checks for a signal, in milliseconds.
const GLANCE: u8 = 100;

/// The stack size of a thread, in bytes.
const STACK: usize = 128 << 10;

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
    #[error("{ECN} in {namespace}: {error}")]
    Ecn {
        /// The namespace.
        namespace: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The kernel lacks the congestion control, or does not allow it for this process.
    #[error(
        "`{name}`: expected a congestion control that this kernel has ({has}) and lets this process take: {error}"
    )]
    Congestion {
        /// The name of the congestion control.
        name: String,
        /// The error of the operating system.
        error: io::Error,
        /// The available congestion controls.
        has: String,
    },
    /// The program that sets ECN marks could not be loaded.
    #[error(transparent)]
    Marks(#[from] TrafficError),
    /// The run exceeded its maximum duration.
    #[error("incast of {0} connections: not over after {limit} s", limit = PATIENCE.as_secs())]
    Slow(usize),
    /// A signal stopped the measurement.
    #[error("interrupted")]
    Interrupted,
}

/// The parameters of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incast {
    /// The limit of the queue at the switch's port to the receiver, in full packets.
    pub buffer: u32,
    /// The number of connections.
    pub connections: usize,
    /// The bytes that each connection sends.
    pub bytes: u64,
}

/// The congestion control of the connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tcp {
    /// The kernel's name of the congestion control; the system's default without.
    pub congestion: Option<String>,
    /// The queue length, in packets, from which on the switch's port sets ECN marks. Senders then support ECN. Without it, the port sets no
    /// marks.
    pub marks: Option<u32>,
}

/// The kernel setting for the use of ECN by connections.
const ECN: &str = "/proc/sys/net/ipv4/tcp_ecn";

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The packets that the switch dropped, as a fraction of those that arrived for the receiver.
    pub loss: f64,
    /// The durations from the common start to the last byte of each connection, in seconds, sorted.
    pub times: Vec<f64>,
}

impl Sample {
    /// The duration until all connections had completed, in seconds.
    pub fn last(&self) -> f64 {
        self.times.last().copied().unwrap_or(f64::INFINITY)
    }

    /// Bytes of payload per second until all connections had completed.
    pub fn goodput(&self, incast: &Incast) -> f64 {
        incast.connections as f64 * incast.bytes as f64 / self.last()
    }
}

/// A bed of one switch that is configured for incast. The first host is the receiver.
pub struct Setup<'a> {
    bed: &'a Bed,
    receiver: &'a Node,
    senders: Vec<&'a Node>,
    /// The switch's namespace, and its interface to the receiver.
    port: (&'a str, &'a str),
    /// The kernel's name of the congestion control.
    congestion: OsString,
    /// The namespaces with ECN on, and their previous settings.
    asking: Vec<(&'a str, String)>,
    marks: Option<Marks>,
}

impl<'a> Setup<'a> {
    /// Configures a bed: senders emit single packets, and use `tcp`. Dropping the value restores the bed.
    ///
    /// # Panics
    /// If the bed is not a big switch with at least two hosts.
    ///
    /// # Errors
    /// If the kernel refuses a setting.
    pub fn new(bed: &'a Bed, tcp: &Tcp) -> Result<Setup<'a>, IncastError> {
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
        assert!(switch.is_switch && !senders.is_empty(), "the bed is a big switch with at least two hosts");
        let mut lab = Setup {
            bed,
            receiver,
            senders: senders.to_vec(),
            port: (&switch.namespace, &switch.ports[port].interface),
            congestion: congestion(tcp.congestion.as_deref())?,
            asking: Vec::new(),
            marks: None,
        };
        lab.set_segments(1)?;
        if let Some(threshold) = tcp.marks {
            for host in &hosts {
                lab.asking.push((&host.namespace, ask(&host.namespace, "1")?));
            }
            lab.marks = Some(lab.mark(threshold)?);
        }
        Ok(lab)
    }

    /// The kernel's name of the congestion control.
    pub fn congestion(&self) -> String {
        self.congestion.to_string_lossy().into_owned()
    }

    /// Sets ECN marks at the switch's port.
    fn mark(&self, threshold: u32) -> Result<Marks, IncastError> {
        let (namespace, interface) = self.port;
        let interface = interface.parse().expect("`eth` and a number is the name of an interface");
        let marks = namespace::inside(namespace, || Marks::from(&interface, threshold));
        let refused = |error| TrafficError::Kernel { place: namespace.to_owned(), said: error };
        Ok(marks.map_err(|error| refused(error.to_string()))??)
    }

    fn set_segments(&self, segments: u32) -> Result<(), IncastError> {
        for sender in &self.senders {
            let interface = &sender.ports[0].interface;
            self.bed
                .links(&sender.namespace, format!("link set dev {interface} gso_max_segs {segments}\n"))?;
        }
        Ok(())
    }

    /// Runs each combination of a buffer and a number of connections `runs` times; each connection sends `bytes`. Samples are in the order
    /// of buffers, then of numbers of connections. Calls `done` after each run, and `go_on` several times a second.
    ///
    /// # Errors
    /// As of [`Setup::run`].
    pub fn run_all(
        &self,
        (buffers, connections): (&[u32], &[usize]),
        bytes: u64,
        runs: u64,
        go_on: &dyn Fn() -> bool,
        done: impl Fn(),
    ) -> Result<Vec<(Incast, u64, Sample)>, IncastError> {
        let mut samples = Vec::new();
        for (&buffer, &connections) in buffers.iter().flat_map(|b| connections.iter().map(move |c| (b, c))) {
            let incast = Incast { buffer, connections, bytes };
            for number in 1..=runs {
                samples.push((incast, number, self.run(&incast, go_on)?));
                done();
            }
        }
        Ok(samples)
    }

    /// Runs one incast. Calls `go_on` several times a second, and stops if it returns false.
    ///
    /// # Panics
    /// If there are no connections, or more than [`MAX_CONNECTIONS`].
    ///
    /// # Errors
    /// If a queue cannot be configured or read, a socket or thread fails, the run takes too long, or `go_on` returns false.
    pub fn run(&self, incast: &Incast, go_on: &dyn Fn() -> bool) -> Result<Sample, IncastError> {
        let count = incast.connections;
        assert!(
            (1..=MAX_CONNECTIONS).contains(&count),
            "{count} connections: expected 1 to {MAX_CONNECTIONS}"
        );
        self.set_buffer(incast.buffer)?;
        let before = self.counts()?;
        let times = self.send(incast, go_on)?;
        let after = self.counts()?;
        // Another process may have replaced the queue, and with it the counters.
        let (sent, dropped) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        Ok(Sample { loss: dropped as f64 / (sent + dropped).max(1) as f64, times })
    }

    /// Replaces the queue, and so resets its counters.
    fn set_buffer(&self, packets: u32) -> Result<(), IncastError> {
        let (namespace, interface) = self.port;
        let plan = self.bed.plan();
        let whole = Class::whole(plan.slowest, segments(plan.slowest));
        let lines = batch::one_queue(interface, Class { buffer: packets * FRAME, ..whole });
        Ok(self.bed.shape(namespace, lines)?)
    }

    /// The numbers of packets that the queue has sent and dropped.
    fn counts(&self) -> Result<(u64, u64), IncastError> {
        let (namespace, interface) = self.port;
        let failed = |error: &dyn std::fmt::Display| IncastError::Queue(error.to_string());
        let mut command = Command::new("tc");
        command.args(["-n", namespace, "-s", "-j", "qdisc", "show", "dev", interface]);
        let output = command.output().map_err(|error| failed(&error))?;
        let queues: Vec<Queue> = serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))?;
        let queue = queues.into_iter().find(|queue| queue.parent == batch::LINK);
        queue.map(|queue| (queue.packets, queue.drops)).ok_or_else(|| failed(&"it is not there"))
    }

    /// Sends over all connections, and returns their durations, sorted.
    fn send(&self, incast: &Incast, go_on: &dyn Fn() -> bool) -> Result<Vec<f64>, IncastError> {
        let failed = |error| IncastError::Socket { connections: incast.connections, error };
        let listen = || {
            let listener = TcpListener::bind(SocketAddrV4::new(self.receiver.address, 0))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener =
            namespace::inside(&self.receiver.namespace, listen).and_then(|done| done).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let to = SocketAddrV4::new(self.receiver.address, port);
        let gate = RwLock::new(());
        thread::scope(|scope| {
            // The listener is dropped with the gate if a thread cannot be started: the connections of earlier threads are reset.
            let listener = listener;
            let closed = gate.write();
            let (ready, all_ready) = mpsc::channel();
            let work = |number: usize| {
                let namespace = &self.senders[number % self.senders.len()].namespace;
                let (ready, gate) = (ready.clone(), &gate);
                move || sender(namespace, to, incast.bytes, &self.congestion, ready, gate)
            };
            spawn(scope, incast.connections, STACK, work).map_err(failed)?;
            drop(ready);
            let start = || {
                // The channel closes once every sender has connected or failed.
                let _ = all_ready.recv();
                drop(closed);
            };
            receive(&listener, incast, &self.congestion, start, go_on, failed)
        })
    }
}

impl Drop for Setup<'_> {
    fn drop(&mut self) {
        // Restores the bed; its next use replaces the queue. If the kernel refuses, the bed cannot be used anyway.
        let _ = self.set_segments(segments(self.bed.plan().slowest));
        for (namespace, before) in &self.asking {
            let _ = ask(namespace, before);
        }
    }
}

/// The kernel's name of the requested congestion control, or of the system's default.
fn congestion(asked: Option<&str>) -> Result<OsString, IncastError> {
    let has =
        || fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    let failed = |error: io::Error| IncastError::Congestion {
        name: asked.unwrap_or_default().to_owned(),
        error,
        has: has().trim().replace(' ', ", "),
    };
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
    let socket = socket.map_err(|error| failed(error.into()))?;
    if let Some(name) = asked {
        setsockopt(&socket, TcpCongestion, &name.into()).map_err(|error| failed(error.into()))?;
    }
    getsockopt(&socket, TcpCongestion).map_err(|error| failed(error.into()))
}

/// Sets whether connections in a namespace use ECN. Returns the previous value.
fn ask(namespace: &str, value: &str) -> Result<String, IncastError> {
    let change = || {
        let before = fs::read_to_string(ECN)?;
        fs::write(ECN, value).map(|()| before.trim().to_owned())
    };
    let done = namespace::inside(namespace, change).and_then(|done| done);
    done.map_err(|error| IncastError::Ecn { namespace: namespace.to_owned(), error })
}

/// A queue as `tc -j -s` prints it.
#[derive(serde::Deserialize)]
struct Queue {
    #[serde(default)]
    parent: String,
    packets: u64,
    drops: u64,
}

/// Starts `count` threads, each with a stack of `stack` bytes and the work that `work` returns for its number. After an error, the threads
/// started before continue.
fn spawn<'scope, F: FnOnce() + Send + 'scope>(
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
fn sender(
    namespace: &str,
    to: SocketAddrV4,
    bytes: u64,
    congestion: &OsString,
    ready: mpsc::Sender<Infallible>,
    gate: &RwLock<()>,
) {
    let connect = || {
        namespace::enter(namespace)?;
        let stream = TcpStream::connect_timeout(&to.into(), PATIENCE)?;
        setsockopt(&stream, TcpCongestion, congestion)?;
        Ok::<_, io::Error>(stream)
    };
    let connected = connect();
    drop(ready);
    drop(gate.read());
    let Ok(mut stream) = connected else { return };
    // A sender ends as well if its receiver stops reading.
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let data = [0; 16 << 10];
    let mut left = bytes;
    while left > 0 {
        let length = data.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match stream.write(&data[..length]) {
            Ok(written) => left -= written as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// An accepted connection, and the bytes that it has still to receive.
struct Stream {
    stream: TcpStream,
    left: u64,
}

fn receive(
    listener: &TcpListener,
    incast: &Incast,
    congestion: &OsString,
    start: impl FnOnce(),
    go_on: &dyn Fn() -> bool,
    failed: impl Fn(io::Error) -> IncastError,
) -> Result<Vec<f64>, IncastError> {
    // Connections inherit the listener's congestion control, which decides how the receiver answers ECN marks.
    let ready = setsockopt(listener, TcpCongestion, congestion).map_err(|error| failed(error.into()));
    let accepted = ready.and_then(|()| accept(listener, incast, go_on, &failed));
    // Senders wait for the start to end, so it is also called if connections are missing.
    start();
    let (began, mut streams) = (Instant::now(), accepted?);
    let mut times = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while !streams.is_empty() {
        check(incast, began, go_on)?;
        wait(streams.iter().map(|stream| stream.stream.as_fd())).map_err(&failed)?;
        let mut at = 0;
        while at < streams.len() {
            if read(&mut streams[at], &mut buffer).map_err(&failed)? {
                times.push(began.elapsed().as_secs_f64());
                streams.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }
    Ok(times)
}

/// Accepts all connections. None of them sends yet.
fn accept(
    listener: &TcpListener,
    incast: &Incast,
    go_on: &dyn Fn() -> bool,
    failed: impl Fn(io::Error) -> IncastError,
) -> Result<Vec<Stream>, IncastError> {
    let began = Instant::now();
    let mut streams = Vec::new();
    while streams.len() < incast.connections {
        check(incast, began, go_on)?;
        wait([listener.as_fd()]).map_err(&failed)?;
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true).map_err(&failed)?;
                streams.push(Stream { stream, left: incast.bytes });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(streams)
}

fn check(incast: &Incast, began: Instant, go_on: &dyn Fn() -> bool) -> Result<(), IncastError> {
    if !go_on() {
        return Err(IncastError::Interrupted);
    }
    if began.elapsed() > PATIENCE {
        return Err(IncastError::Slow(incast.connections));
    }
    Ok(())
}

/// Waits until a socket is readable, at most [`GLANCE`] milliseconds.
fn wait<'a>(all: impl IntoIterator<Item = BorrowedFd<'a>>) -> io::Result<()> {
    let mut waits: Vec<PollFd<'_>> = all.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    match poll(&mut waits, PollTimeout::from(GLANCE)) {
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reads the available bytes. Returns whether the connection has received all of them.
fn read(stream: &mut Stream, buffer: &mut [u8]) -> io::Result<bool> {
    loop {
        match stream.stream.read(buffer) {
            Ok(0) if stream.left > 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => stream.left = stream.left.saturating_sub(got as u64),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if stream.left == 0 {
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
        let started = thread::scope(|scope| spawn(scope, 3, stack, |_| || ()));
        assert!(started.is_err());
        assert!(thread::scope(|scope| spawn(scope, 3, STACK, |_| || ())).is_ok());
    }
}
