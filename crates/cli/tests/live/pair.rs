//! Two hosts in network namespaces, connected by a cable. The first runs the coordinator.

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

use crate::common::{counted, wait_within};
use crate::turn::{self, Turn};

/// Two namespaces and a cable between them, which are deleted when dropped.
pub struct Pair {
    name: String,
    _turn: Turn,
}

fn ip(line: &str) -> bool {
    Command::new("ip")
        .args(line.split(' '))
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

impl Pair {
    pub fn up() -> Option<Pair> {
        let turn = turn::take();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pair = Pair { name: format!("weirhost{}n{number}", std::process::id()), _turn: turn };
        let [a, b] = ["a", "b"].map(|end| pair.name(end));
        let cable = format!("link add e0 netns {a} type veth peer name e0 netns {b}");
        if ![format!("netns add {a}"), format!("netns add {b}"), cable].iter().all(|line| ip(line)) {
            return None;
        }
        for (name, address) in [(a, 1), (b, 2)] {
            for line in ["link set lo up", &format!("addr add 10.9.0.{address}/24 dev e0"), "link set e0 up"]
            {
                assert!(ip(&format!("-n {name} {line}")), "{line}");
            }
        }
        Some(pair)
    }

    pub fn name(&self, end: &str) -> String {
        format!("{}{end}", self.name)
    }

    /// A command in the host's namespace. Unlike under `ip netns exec`, the command sees the cgroups.
    pub fn host(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name("a"))).arg(program).stdin(Stdio::null());
        command
    }

    pub fn inside<T: Send>(&self, end: &str, work: impl FnOnce() -> T + Send) -> T {
        let space = File::open(format!("/run/netns/{}", self.name(end))).unwrap();
        let work = move || {
            setns(space, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    /// Whether the BPF programs can mark the traffic of a cgroup; prints a message if not.
    pub fn finds(&self, test: &str, cgroup: &Path) -> bool {
        let mut traffic = self.host(env!("CARGO_BIN_EXE_weir"));
        traffic.args(["agent", "traffic", "--interface", "nowhere", "--application"]);
        let said = traffic.arg(format!("x={}", cgroup.display())).output().unwrap().stderr;
        let built = !String::from_utf8_lossy(&said).contains("built without");
        if !built {
            eprintln!("{test} skips, since the programs were not built");
        }
        built
    }

    /// Starts a coordinator on the host, and waits until it answers.
    pub fn serve(&self, config: &Path) -> Process {
        let mut serve = self.host(env!("CARGO_BIN_EXE_weir"));
        let serving =
            Process(serve.args(["serve", "--config"]).arg(config).stderr(Stdio::null()).spawn().unwrap());
        wait_within(Duration::from_secs(20), "the coordinator", || {
            self.inside("a", || TcpStream::connect("127.0.0.1:7701").is_ok())
        });
        serving
    }

    /// Starts the host's agent, with a link of 40 Mbit/s, and with applications by their names and cgroups.
    pub fn agent<'a>(
        &self,
        local_socket: &Path,
        applications: impl Iterator<Item = (&'a str, &'a Path)>,
    ) -> Process {
        let mut command = self.host(env!("CARGO_BIN_EXE_weir"));
        command.args(["agent", "run", "--host", "0", "--rate", "40Mbit", "--interface", "e0"]);
        command.arg("--socket").arg(local_socket);
        for (name, cgroup) in applications {
            command.arg("--application").arg(format!("{name}={}", cgroup.display()));
        }
        Process(command.spawn().unwrap())
    }

    /// A listener on the second host, and a counter of the bytes that arrive there.
    pub fn sink(&self) -> (SocketAddr, Arc<AtomicU64>) {
        let listener = self.inside("b", || TcpListener::bind("10.9.0.2:0").unwrap());
        (listener.local_addr().unwrap(), counted(move || listener.accept().unwrap().0))
    }

    /// Sends a request to the coordinator, which must succeed.
    pub fn put(&self, path: &str, body: &str) {
        self.ask("PUT", path, body);
    }

    pub fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let answer = self.inside("a", || {
            let mut socket = TcpStream::connect("127.0.0.1:7701").unwrap();
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            socket.write_all(head.as_bytes()).unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).unwrap();
            answer
        });
        assert!(answer.starts_with("HTTP/1.1 20"), "{path}: {answer}");
        answer
    }

    pub fn tc(&self, what: &str) -> String {
        self.tc_with(&[], what)
    }

    /// The output of `tc -s`, with the bytes sent and queued.
    pub fn tc_counts(&self, what: &str) -> String {
        self.tc_with(&["-s"], what)
    }

    fn tc_with(&self, options: &[&str], what: &str) -> String {
        let output = self.host("tc").args(options).args([what, "show", "dev", "e0"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = self.host(env!("CARGO_BIN_EXE_weir")).args(["agent", "cleanup"]).output();
        for end in ["a", "b"] {
            ip(&format!("netns del {}", self.name(end)));
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

    /// Sends SIGTERM with `kill(1)`, and waits for the exit.
    pub fn end(&mut self) {
        assert!(Command::new("kill").arg(self.0.id().to_string()).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
