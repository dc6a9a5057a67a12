//! Provides two hosts in network namespaces, connected by a cable, for tests. The first runs the coordinator.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

use crate::common::{count_received_bytes, wait_within};
use crate::test_lock::{self, TestLock};

/// Two namespaces and a cable between them, which are deleted when dropped.
pub struct HostPair {
    name: String,
    _lock: TestLock,
}

fn run_ip(line: &str) -> bool {
    Command::new("ip")
        .args(line.split(' '))
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

impl HostPair {
    /// Two hosts of a test that overlaps with others; `None` without the privileges.
    pub fn up() -> Option<HostPair> {
        HostPair::up_holding(TestLock::Shared(test_lock::lock_shared()))
    }

    /// Two hosts of a test that runs alone, since it measures times which a busy machine exceeds.
    pub fn up_alone() -> Option<HostPair> {
        HostPair::up_holding(TestLock::Exclusive(test_lock::lock_exclusive()))
    }

    fn up_holding(lock: TestLock) -> Option<HostPair> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let hosts = HostPair { name: format!("weirhost{}n{number}", std::process::id()), _lock: lock };
        let [a, b] = ["a", "b"].map(|end| hosts.namespace(end));
        let cable = format!("link add e0 netns {a} type veth peer name e0 netns {b}");
        if ![format!("netns add {a}"), format!("netns add {b}"), cable].iter().all(|line| run_ip(line)) {
            return None;
        }
        for (name, address) in [(a, 1), (b, 2)] {
            for line in ["link set lo up", &format!("addr add 10.9.0.{address}/24 dev e0"), "link set e0 up"]
            {
                assert!(run_ip(&format!("-n {name} {line}")), "{line}");
            }
        }
        Some(hosts)
    }

    pub fn namespace(&self, end: &str) -> String {
        format!("{}{end}", self.name)
    }

    /// A command in the host's namespace. Unlike under `ip netns exec`, the command sees the cgroups.
    pub fn command_on_host(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace("a"))).arg(program).stdin(Stdio::null());
        command
    }

    pub fn run_in_namespace<T: Send>(&self, end: &str, action: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.namespace(end))).unwrap();
        let action_in_namespace = move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            action()
        };
        thread::scope(|scope| scope.spawn(action_in_namespace).join().unwrap())
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
            self.run_in_namespace("a", || TcpStream::connect("127.0.0.1:7701").is_ok())
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
        command.args(["agent", "run", "--host", "0", "--rate", "40Mbit", "--interface", "e0"]);
        command.arg("--socket").arg(local_socket);
        for (name, cgroup) in applications {
            command.arg("--application").arg(format!("{name}={}", cgroup.display()));
        }
        Process(command.spawn().unwrap())
    }

    /// A listener on the second host, and a counter of the bytes that arrive there.
    pub fn start_sink(&self) -> (SocketAddr, Arc<AtomicU64>) {
        let listener = self.run_in_namespace("b", || TcpListener::bind("10.9.0.2:0").unwrap());
        (listener.local_addr().unwrap(), count_received_bytes(move || listener.accept().unwrap().0))
    }

    /// Sends a request to the coordinator, which must succeed.
    pub fn put(&self, path: &str, body: &str) {
        self.request("PUT", path, body);
    }

    pub fn request(&self, method: &str, path: &str, body: &str) -> String {
        let response = self.run_in_namespace("a", || {
            let mut socket = TcpStream::connect("127.0.0.1:7701").unwrap();
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            socket.write_all(head.as_bytes()).unwrap();
            let mut response = String::new();
            socket.read_to_string(&mut response).unwrap();
            response
        });
        assert!(response.starts_with("HTTP/1.1 20"), "{path}: {response}");
        response
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
        for end in ["a", "b"] {
            run_ip(&format!("netns del {}", self.namespace(end)));
        }
    }
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
