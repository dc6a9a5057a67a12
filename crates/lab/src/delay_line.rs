//! A delay line: a link between two network namespaces with delay, loss, a rate and a queue in each direction.
//!
//! Either end is a TUN device. A thread reads packets from both, decides when they leave (`path`), and writes them to the other
//! device at that time. Packets of many TCP segments (GSO) pass as a whole; if some of their segments are lost, the others pass one by
//! one. The kernel's netem needs no process, but is not part of every kernel.
//!
//! The thread asks for real-time priority, since it would otherwise be late by milliseconds while programs use all processors.

mod packet;
mod path;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tun_rs::{DeviceBuilder, SyncDevice};
use weir_agent::batch::run_batch;
use weir_testbed::namespace;
use weir_testbed::network::{Network, NetworkError};

pub use path::{PathCounters, PathSettings, Schedule};

use crate::LabError;
use packet::Layout;
use path::Path;

/// The maximum number of packets that are read from a device before due packets are written.
const READ_BATCH: usize = 16;

/// The maximum time between two checks whether to stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The queue of a device: packets wait there until the thread reads them.
const DEVICE_QUEUE_PACKETS: u32 = 4_000;

/// The segments that a packet may always consist of, since single segments would take too much processor time.
const MIN_PACKET_SEGMENTS: u32 = 8;

/// The real-time priority of the thread: above programs of the default policy.
const PRIORITY: &str = "10";

/// One end of a delay line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The namespace, as `ip netns` names it.
    pub namespace: String,
    /// The TUN device, which the delay line creates.
    pub device: String,
    /// The address of the device.
    pub address: Ipv4Addr,
    /// The length of the prefix that is reached over the device.
    pub prefix: u8,
}

/// What a delay line did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    /// The segments of the path from the first end, and of the path to it.
    pub paths: [PathCounters; 2],
    /// The mean time by which packets left late.
    pub mean_lateness: Duration,
    /// The maximum of this time.
    pub max_lateness: Duration,
    /// The processor time of the thread, without the kernel's work for the programs at the ends.
    pub cpu: Duration,
}

/// A running delay line. Dropping the value stops it and removes its devices.
#[derive(Debug)]
pub struct DelayLine {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Report>>>,
}

impl DelayLine {
    /// Creates the devices and starts forwarding. `paths` are the one from the first end and the one to it.
    ///
    /// # Errors
    /// If a namespace does not exist, or a device cannot be created.
    pub fn start(ends: [&End; 2], paths: [PathSettings; 2]) -> Result<DelayLine, LabError> {
        let segments = paths.each_ref().map(max_segments);
        let [first, second] = [0, 1].map(|index| open(ends[index], segments[index]));
        let devices = [first?, second?];
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("delay-line".to_owned()).spawn({
            let stop = Arc::clone(&stop);
            move || Forwarder::new(devices, paths).run(&stop)
        });
        let thread = thread.map_err(LabError::system("a thread"))?;
        Ok(DelayLine { stop, thread: Some(thread) })
    }

    /// Whether the delay line forwards packets: until a device fails, such as when it is removed.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops the delay line.
    ///
    /// # Errors
    /// If it stopped early because a device failed.
    pub fn stop(mut self) -> Result<Report, LabError> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("the thread is joined only here, which consumes the value");
        let report = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        report.map_err(LabError::system("delay line"))
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // An error has no receiver here, and a panic has printed its message.
            let _ = thread.join();
        }
    }
}

/// The maximum number of segments of a packet, at which the packet takes at most a millisecond. The kernel splits larger packets.
fn max_segments(path: &PathSettings) -> u32 {
    let rates = path.rate.values().iter().copied();
    let slowest = rates.min_by(|a, b| a.get().total_cmp(&b.get())).expect("a schedule has a value");
    weir_agent::htb::max_segments(slowest).max(MIN_PACKET_SEGMENTS)
}

/// Creates and configures a TUN device in a namespace.
fn open(end: &End, segments: u32) -> Result<SyncDevice, LabError> {
    let End { namespace, device, address, prefix } = end;
    let create = || {
        let tun = DeviceBuilder::new().name(device).offload(true).inherit_enable_state().build_sync()?;
        tun.set_nonblocking(true)?;
        Ok(tun)
    };
    let tun = namespace::run_inside(namespace, create)
        .flatten()
        .map_err(LabError::system(format!("TUN device {device} in {namespace}")))?;
    let lines = format!(
        "addr add {address}/{prefix} dev {device}\n\
         link set {device} txqueuelen {DEVICE_QUEUE_PACKETS} gso_max_segs {segments} up\n"
    );
    let mut command = Command::new("ip");
    command.args(["-n", namespace]);
    run_batch(command, "ip", || format!(" in {namespace}"), &lines)?;
    Ok(tun)
}

/// Lets buffers of sockets grow to the bandwidth-delay product of long paths: to 32 MiB.
pub(crate) fn set_long_path_options(network: &Network, node: &str) -> Result<(), NetworkError> {
    network.set(node, "ipv4/tcp_wmem", "4096 65536 33554432")?;
    network.set(node, "ipv4/tcp_rmem", "4096 131072 33554432")?;
    // The same for all relays: otherwise a connection starts slowly after each pause.
    network.set(node, "ipv4/tcp_slow_start_after_idle", "0")
}

/// A packet on its way.
struct InFlight {
    exit: Duration,
    packet: Vec<u8>,
}

/// Moves packets between two devices.
struct Forwarder {
    devices: [SyncDevice; 2],
    paths: [Path; 2],
    in_flight: [VecDeque<InFlight>; 2],
    started: Instant,
    buffer: Vec<u8>,
    late_packets: u32,
    total_lateness: Duration,
    max_lateness: Duration,
}

impl Forwarder {
    fn new(devices: [SyncDevice; 2], paths: [PathSettings; 2]) -> Forwarder {
        Forwarder {
            devices,
            paths: paths.map(Path::new),
            in_flight: Default::default(),
            started: Instant::now(),
            buffer: vec![0; packet::MAX_BYTES],
            late_packets: 0,
            total_lateness: Duration::ZERO,
            max_lateness: Duration::ZERO,
        }
    }

    fn run(mut self, stop: &AtomicBool) -> io::Result<Report> {
        request_precise_wakeups();
        while !stop.load(Ordering::Relaxed) {
            let next_exit = self.write_due();
            let readable = self.wait(next_exit)?;
            for (direction, readable) in readable.into_iter().enumerate() {
                if readable {
                    self.read(direction)?;
                }
            }
        }
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Ok(Report {
            paths: [self.paths[0].counters(), self.paths[1].counters()],
            mean_lateness: self.total_lateness / self.late_packets.max(1),
            max_lateness: self.max_lateness,
            cpu: cpu.try_into().unwrap_or_default(),
        })
    }

    /// Writes all packets that are due. Returns when the next one is.
    fn write_due(&mut self) -> Option<Duration> {
        for (direction, queue) in self.in_flight.iter_mut().enumerate() {
            while let Some(first) = queue.front() {
                let Some(lateness) = self.started.elapsed().checked_sub(first.exit) else { break };
                self.late_packets += 1;
                self.total_lateness += lateness;
                self.max_lateness = self.max_lateness.max(lateness);
                // A device that is down, or has no memory, loses packets, as an interface would.
                let _ = self.devices[1 - direction].send(&first.packet);
                queue.pop_front();
            }
        }
        self.in_flight.iter().filter_map(|queue| queue.front()).map(|first| first.exit).min()
    }

    /// Waits until a packet is due or can be read, and returns which devices are readable.
    fn wait(&self, next_exit: Option<Duration>) -> io::Result<[bool; 2]> {
        let until_exit = next_exit.map(|exit| exit.saturating_sub(self.started.elapsed()));
        let timeout = until_exit.unwrap_or(STOP_CHECK_INTERVAL).min(STOP_CHECK_INTERVAL);
        let timeout = Timespec::try_from(timeout).expect("a tenth of a second fits");
        let [first, second] = &self.devices;
        let mut devices = [PollFd::new(first, PollFlags::IN), PollFd::new(second, PollFlags::IN)];
        match poll(&mut devices, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok([0, 1].map(|direction| !devices[direction].revents().is_empty()))
    }

    /// Reads packets from a device, and schedules when they leave.
    fn read(&mut self, direction: usize) -> io::Result<()> {
        for _ in 0..READ_BATCH {
            let length = match self.devices[direction].recv(&mut self.buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            self.admit(direction, length);
        }
        Ok(())
    }

    /// Schedules the packet in the buffer: as a whole, unless some of its segments are lost.
    fn admit(&mut self, direction: usize, length: usize) {
        let now = self.started.elapsed();
        let packet = &self.buffer[..length];
        let (path, queue) = (&mut self.paths[direction], &mut self.in_flight[direction]);
        let Some(layout) = Layout::of(packet) else {
            let exit = path.admit(now, packet::ip_bytes(packet));
            queue.extend(exit.map(|exit| InFlight { exit, packet: packet.to_vec() }));
            return;
        };
        let exits: Vec<_> =
            (0..layout.segments()).map(|index| path.admit(now, layout.segment_bytes(index))).collect();
        if exits.iter().all(Option::is_some) {
            let exit = exits.last().copied().flatten();
            queue.extend(exit.map(|exit| InFlight { exit, packet: packet.to_vec() }));
            return;
        }
        let kept = exits.iter().enumerate().filter_map(|(index, exit)| Some((index, (*exit)?)));
        queue.extend(kept.map(|(index, exit)| InFlight { exit, packet: layout.copy_segment(packet, index) }));
    }
}

/// Asks for real-time priority and timers without slack. Without the privilege, the thread has the default priority.
fn request_precise_wakeups() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut chrt = Command::new("chrt");
    chrt.args(["--rr", "--pid", PRIORITY, &thread]);
    let _ = chrt.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}
