//! Provides two hosts in network namespaces, connected by a cable, for tests. The first runs the coordinator.

use std::fs;
use std::io::{IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt};
use weir_testbed::{Network, testing};

use crate::common::{count_received_bytes, wait_within};
use crate::group::TestCgroup;
use crate::test_lock::{self, TestLock};

/// Two hosts, which are deleted when dropped.
pub struct HostPair {
    pub network: Network,
    _lock: TestLock,
}

impl HostPair {
    /// Two hosts of a test that overlaps with others; `None`, with a message, without the privileges.
    pub fn up(test: &str) -> Option<HostPair> {
        HostPair::up_holding(TestLock::Shared(test_lock::lock_shared()), test)
    }

    /// Two hosts of a test that runs alone, since it measures times which a busy machine exceeds.
    pub fn up_alone(test: &str) -> Option<HostPair> {
        HostPair::up_holding(TestLock::Exclusive(test_lock::lock_exclusive()), test)
    }

    fn up_holding(lock: TestLock, test: &str) -> Option<HostPair> {
        Some(HostPair { network: testing::pair(test)?, _lock: lock })
    }

    /// A command in the first host's namespace.
    pub fn command_on_host(&self, program: &str) -> Command {
        self.network.command("a", program)
    }

    /// The folder of the programs and maps of the first host's agent in the BPF file system.
    pub fn bpf_folder(&self) -> PathBuf {
        let number = fs::metadata(format!("/run/netns/{}", self.network.namespace("a"))).unwrap().ino();
        PathBuf::from(format!("/sys/fs/bpf/weir/{number}-2"))
    }

    /// Whether the BPF programs can mark the traffic of a cgroup; prints a message if not.
    pub fn has_bpf_programs(&self, test: &str, cgroup: &Path) -> bool {
        let mut traffic = self.command_on_host(env!("CARGO_BIN_EXE_weir"));
        traffic.args(["agent", "traffic", "--interface", "nowhere", "--application"]);
        let stderr = traffic.arg(format!("x={}", cgroup.display())).output().unwrap().stderr;
        let is_built = !String::from_utf8_lossy(&stderr).contains("built without");
        if !is_built {
            eprintln!("{test} skips, since the BPF programs are not built");
        }
        is_built
    }

    /// Starts a coordinator on the host, and waits until it answers.
    pub fn start_coordinator(&self, config: &Path) -> Process {
        let mut command = self.command_on_host(env!("CARGO_BIN_EXE_weir"));
        let coordinator =
            Process(command.args(["serve", "--config"]).arg(config).stderr(Stdio::null()).spawn().unwrap());
        wait_within(Duration::from_secs(20), "the coordinator", || {
            self.network.run_inside("a", || TcpStream::connect("127.0.0.1:7701").is_ok()).unwrap()
        });
        coordinator
    }

    /// Starts the host's agent, with a link of 40 Mbit/s, and with applications by their names and cgroups.
    pub fn start_agent<'a>(
        &self,
        local_socket: &Path,
        applications: impl Iterator<Item = (&'a str, &'a Path)>,
    ) -> Process {
        let mut command = self.command_on_host(env!("CARGO_BIN_EXE_weir"));
        command.args(["agent", "run", "--name", "a", "--rate", "40Mbit", "--interface", "e0"]);
        command.arg("--socket").arg(local_socket);
        for (name, cgroup) in applications {
            command.arg("--application").arg(format!("{name}={}", cgroup.display()));
        }
        Process(command.spawn().unwrap())
    }

    /// A listener on the second host, and a counter of the bytes that arrive there.
    pub fn start_sink(&self) -> (SocketAddr, Arc<AtomicU64>) {
        let listener = self.network.run_inside("b", || TcpListener::bind("10.9.0.2:0").unwrap()).unwrap();
        (listener.local_addr().unwrap(), count_received_bytes(move || listener.accept().unwrap().0))
    }

    /// Sends a request to the coordinator, which must succeed.
    pub fn put(&self, path: &str, body: &str) {
        self.request("PUT", path, body);
    }

    pub fn request(&self, method: &str, path: &str, body: &str) -> String {
        let send = || {
            let mut socket = TcpStream::connect("127.0.0.1:7701").unwrap();
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            socket.write_all(head.as_bytes()).unwrap();
            let mut response = String::new();
            socket.read_to_string(&mut response).unwrap();
            response
        };
        let response = self.network.run_inside("a", send).unwrap();
        assert!(response.starts_with("HTTP/1.1 20"), "{path}: {response}");
        response
    }

    /// The type-of-service byte of a packet that an unmodified program in a cgroup sends to the second host; none if it does not arrive.
    pub fn sent_tos(&self, group: &TestCgroup) -> Option<u8> {
        let bind = || UdpSocket::bind("10.9.0.2:0").unwrap();
        let socket = self.network.run_inside("b", bind).unwrap();
        setsockopt(&socket, sockopt::IpRecvTos, &true).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let send = format!("echo x > /dev/udp/10.9.0.2/{}", socket.local_addr().unwrap().port());
        let _ = start_in_group(&self.network, group, &["bash", "-c", &send]).0.wait().unwrap();
        received_tos(&socket)
    }

    pub fn tc(&self, object: &str) -> String {
        self.tc_with(&[], object)
    }

    /// The output of `tc -s`, with the bytes sent and queued.
    pub fn tc_counts(&self, object: &str) -> String {
        self.tc_with(&["-s"], object)
    }

    fn tc_with(&self, options: &[&str], object: &str) -> String {
        let output =
            self.command_on_host("tc").args(options).args([object, "show", "dev", "e0"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for HostPair {
    fn drop(&mut self) {
        let _ = self.command_on_host(env!("CARGO_BIN_EXE_weir")).args(["agent", "cleanup"]).output();
    }
}

/// Starts a program in a cgroup at the first host of a network.
pub fn start_in_group(network: &Network, group: &TestCgroup, words: &[&str]) -> Process {
    let start = || group.command(words[0]).args(&words[1..]).spawn().unwrap();
    Process(network.run_inside("a", start).unwrap())
}

/// Starts a program in a cgroup at the first host of a network, which sends to an address at full speed.
pub fn start_sender(network: &Network, group: &TestCgroup, to: SocketAddr) -> Process {
    let send = format!("exec cat /dev/zero > /dev/tcp/{}/{}", to.ip(), to.port());
    start_in_group(network, group, &["bash", "-c", &send])
}

/// The type-of-service byte of the next packet.
fn received_tos(socket: &UdpSocket) -> Option<u8> {
    let mut bytes = [0; 16];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let mut control_buffer = nix::cmsg_space!(u8);
    let fd = socket.as_raw_fd();
    // `recvmsg` on a socket with a timeout waits like `recv`.
    let message = recvmsg::<SockaddrIn>(fd, &mut parts, Some(&mut control_buffer), MsgFlags::empty()).ok()?;
    message.cmsgs().ok()?.find_map(|control_message| match control_message {
        ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
        _ => None,
    })
}

/// A process, which is killed when dropped.
pub struct Process(pub Child);

impl Process {
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Sends a signal with `kill(1)`.
    pub fn send_signal(&self, name: &str) {
        let arguments = [&format!("-{name}"), &self.0.id().to_string()];
        assert!(Command::new("kill").args(arguments).status().unwrap().success());
    }

    /// Sends SIGINT, and waits for the exit.
    pub fn interrupt(&mut self) {
        self.send_signal("INT");
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
