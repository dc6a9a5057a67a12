//! Provides a testbed of network namespaces with real processes and flows, for tests.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use weir_client::Agent;
use weir_testbed::namespace;

use crate::common::{TestDir, count_received_bytes, wait_for};
pub use crate::host_pair::Process;
use crate::kernel::{CounterReading, RateBounds};
use crate::test_lock::{self, SharedLock};

/// The capacity of each link, in bytes per second of frames.
pub const LINK_FRAME_BYTES_PER_SEC: f64 = 5e6;

/// The fraction of a frame that is payload.
pub const PAYLOAD_FRACTION: f64 = 1448.0 / 1514.0;

/// A flow: its coflow, its number in the coflow, its source and destination hosts, and its bytes.
pub type Flow = (&'static str, u32, u32, u32, f64);

/// The size of socket buffers, in bytes. A buffer has to hold the bytes that a link carries while a reader or
/// writer thread is not scheduled.
const SOCKET_BUFFER_BYTES: usize = 2 << 20;

/// The coordinator's port for agents.
pub const COORDINATOR_PORT: u16 = 7470;

pub fn address(host: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host as u8 + 1)
}

/// A testbed, which is removed when dropped.
pub struct Bed {
    pub dir: TestDir,
    pub name: String,
    hosts: u32,
    _lock: SharedLock,
}

impl Bed {
    /// Hosts under one switch. The last host runs the coordinator.
    pub fn up(test: &str, hosts: u32) -> Option<Bed> {
        let fabric = format!("weir-fabric = 1\nkind = \"big-switch\"\nhosts = {hosts}\nrate = \"40Mbit\"\n");
        let bed = Bed::with_fabric(test, hosts, &fabric)?;
        (0..hosts).for_each(|host| bed.acknowledge_at_once(host));
        Some(bed)
    }

    /// A testbed of a given network, whose hosts are named `h0`, `h1` and so on.
    pub fn with_fabric(test: &str, hosts: u32, fabric: &str) -> Option<Bed> {
        let lock = test_lock::lock_shared();
        let dir = TestDir::new();
        let check = dir.run("testbed check");
        if check.code != Some(0) {
            eprintln!("{test} skips: {}{}", check.stdout, check.stderr);
            return None;
        }
        dir.write("f.toml", fabric);
        let bed = Bed { dir, name: format!("{test}{}", std::process::id()), hosts, _lock: lock };
        bed.dir.stdout_of(&format!("testbed up f.toml --name {}", bed.name));
        Some(bed)
    }

    /// Makes the host acknowledge packets at once. If a reader thread is not scheduled, the kernel delays
    /// acknowledgements by 40 ms, and the sender does not reach its ordered rate.
    pub fn acknowledge_at_once(&self, host: u32) {
        let ip = |line: &str| {
            let output =
                Command::new("ip").args(["-n", &self.namespace(host)]).args(line.split(' ')).output();
            let output = output.unwrap();
            assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let mut route = String::new();
        wait_for("the carrier of a new link", || {
            route = ip("route show default");
            !route.contains("linkdown")
        });
        ip(&format!("route change {} quickack 1", route.trim()));
    }

    /// The prefix of the namespaces' names.
    pub fn prefix(&self) -> String {
        format!("weir-{}-", self.name)
    }

    pub fn namespace(&self, host: u32) -> String {
        format!("{}h{host}", self.prefix())
    }

    /// A command that runs a program in a host's namespace.
    pub fn command_on_host(&self, host: u32, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]).arg(program).stdin(Stdio::null());
        // Signals to the test's process group, such as Ctrl-C, do not reach the program.
        command.process_group(0);
        command
    }

    /// As [`Bed::command_on_host`], but with the machine's cgroups and BPF file system, which `ip netns exec` hides.
    pub fn command_with_cgroups(&self, host: u32, program: &str) -> Command {
        let mut command = namespace::command(&self.namespace(host), program);
        command.process_group(0);
        command
    }

    /// Runs `action` in a host's namespace, in a new thread.
    pub fn run_on_host<T: Send>(&self, host: u32, action: impl FnOnce() -> T + Send) -> T {
        namespace::run_inside(&self.namespace(host), action).unwrap()
    }

    /// The command of a host's agent, which connects to the coordinator of the last host. Callers add the
    /// options for TLS.
    pub fn agent_command(&self, host: u32) -> Command {
        self.add_agent_options(self.command_on_host(host, Path::new(env!("CARGO_BIN_EXE_weir"))), host)
    }

    /// Adds the options of [`Bed::agent_command`] to a command that runs `weir`.
    pub fn add_agent_options(&self, mut command: Command, host: u32) -> Command {
        command.args(["agent", "run", "--rate", "40Mbit", "--name", &format!("h{host}")]);
        let coordinator = format!("{}:{COORDINATOR_PORT}", address(self.hosts - 1));
        command.args(["--coordinator", &coordinator, "--socket"]).arg(self.local_socket(host));
        command
    }

    pub fn local_socket(&self, host: u32) -> PathBuf {
        self.dir.path(&format!("local_socket{host}"))
    }

    /// Opens a connection for each flow, and hands it over to the agent. `FlowConnection::send` starts the flow.
    pub fn connect_flow(&self, flows: &[Flow]) -> Vec<FlowConnection> {
        let connect = |index: usize, &(coflow, flow, src, dst, bytes): &Flow| {
            let to = SocketAddr::from((address(dst), 9000 + index as u16));
            let listener = self.run_on_host(dst, || TcpListener::bind(to).unwrap());
            setsockopt(&listener, sockopt::RcvBufForce, &SOCKET_BUFFER_BYTES).unwrap();
            let stream = self.run_on_host(src, || TcpStream::connect(to).unwrap());
            setsockopt(&stream, sockopt::SndBufForce, &SOCKET_BUFFER_BYTES).unwrap();
            let agent = Agent::connect(self.local_socket(src)).unwrap();
            agent.hand_over(coflow, flow, &stream).unwrap();
            FlowConnection::new(stream, listener.accept().unwrap().0, bytes, agent)
        };
        flows.iter().enumerate().map(|(index, flow)| connect(index, flow)).collect()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for host in 0..self.hosts {
            // Without programs in the kernel, there is nothing to remove.
            let _ = self
                .command_with_cgroups(host, env!("CARGO_BIN_EXE_weir"))
                .args(["agent", "cleanup"])
                .output();
        }
        self.dir.run(&format!("testbed down --name {}", self.name));
    }
}

/// A plain TCP connection over a link that no other flow uses. Other programs on the machine delay it like the flows of a
/// test.
pub struct ControlFlow(TcpStream);

impl ControlFlow {
    /// Starts to send, until the connection is dropped, and waits for the first acknowledged megabyte.
    pub fn start(bed: &Bed, src: u32, dst: u32) -> ControlFlow {
        let to = SocketAddr::from((address(dst), 9900));
        let listener = bed.run_on_host(dst, || TcpListener::bind(to).unwrap());
        setsockopt(&listener, sockopt::RcvBufForce, &SOCKET_BUFFER_BYTES).unwrap();
        let stream = bed.run_on_host(src, || TcpStream::connect(to).unwrap());
        setsockopt(&stream, sockopt::SndBufForce, &SOCKET_BUFFER_BYTES).unwrap();
        count_received_bytes(move || listener.accept().unwrap().0);
        let mut writer = stream.try_clone().unwrap();
        thread::spawn(move || while writer.write_all(&[0; 1 << 14]).is_ok() {});
        let control = ControlFlow(stream);
        wait_for("the control's first megabyte", || control.acked_bytes() > 1e6);
        control
    }

    /// Bytes that the receiver has acknowledged.
    pub fn acked_bytes(&self) -> f64 {
        crate::kernel::acked_bytes(&self.0) as f64
    }
}

impl Drop for ControlFlow {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// A connection, the bytes that its receiver has read, and the time of the last byte.
pub struct FlowConnection {
    pub stream: TcpStream,
    bytes: f64,
    received: Arc<AtomicU64>,
    end: Arc<OnceLock<Instant>>,
    pub agent: Agent,
}

impl FlowConnection {
    pub fn new(stream: TcpStream, mut receiver: TcpStream, bytes: f64, agent: Agent) -> FlowConnection {
        let (received, end) = (Arc::new(AtomicU64::new(0)), Arc::new(OnceLock::new()));
        let (count, completion) = (Arc::clone(&received), Arc::clone(&end));
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(read @ 1..) = receiver.read(&mut buffer) {
                count.fetch_add(read as u64, Ordering::Relaxed);
            }
            completion.set(Instant::now()).unwrap();
        });
        FlowConnection { stream, bytes, received, end, agent }
    }

    pub fn send(&self) {
        let (mut stream, mut remaining) = (self.stream.try_clone().unwrap(), self.bytes as u64);
        thread::spawn(move || {
            let buffer = vec![0; 1 << 14];
            while remaining > 0 {
                let chunk = remaining.min(buffer.len() as u64);
                if stream.write_all(&buffer[..chunk as usize]).is_err() {
                    return;
                }
                remaining -= chunk;
            }
            let _ = stream.shutdown(Shutdown::Write);
        });
    }

    pub fn received_bytes(&self) -> f64 {
        self.received.load(Ordering::Relaxed) as f64
    }

    pub fn has_ended(&self) -> bool {
        self.end().is_some()
    }

    /// The time at which the receiver had read all bytes; `None` before.
    pub fn end(&self) -> Option<Instant> {
        self.end.get().copied()
    }
}

/// The fraction of a link's payload capacity that each flow uses during `time`.
pub fn payload_utilization(connections: &[FlowConnection], time: Duration) -> Vec<RateBounds> {
    measure_utilization(&streams(connections), time)
}

/// The same, relative to the fraction that a control uses in this time if that is less than 1.
pub fn relative_utilization(
    connections: &[FlowConnection],
    control: &ControlFlow,
    time: Duration,
) -> Vec<RateBounds> {
    let mut measured = measure_utilization(&[&streams(connections)[..], &[&control.0]].concat(), time);
    let control = measured.pop().expect("the control is the last stream").max.min(1.0);
    measured.into_iter().map(|share| share.relative_to(control)).collect()
}

fn streams(connections: &[FlowConnection]) -> Vec<&TcpStream> {
    connections.iter().map(|connection| &connection.stream).collect()
}

fn measure_utilization(streams: &[&TcpStream], time: Duration) -> Vec<RateBounds> {
    let read = || -> Vec<CounterReading> {
        streams.iter().map(|stream| CounterReading::read(|| crate::kernel::acked_bytes(stream))).collect()
    };
    let before = read();
    thread::sleep(time);
    read()
        .iter()
        .zip(&before)
        .map(|(after, before)| {
            after.rate_since(before).relative_to(LINK_FRAME_BYTES_PER_SEC * PAYLOAD_FRACTION)
        })
        .collect()
}
