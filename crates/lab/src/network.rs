//! Networks of namespaces, and processes inside them.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::time::ClockId;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use weir_agent::batch::{run_batch, run_tool};
use weir_testbed::namespace;

use crate::LabError;

/// Where `ip netns` keeps network namespaces.
const NETNS_FOLDER: &str = "/run/netns";

/// Network namespaces named `wlab-NAME-NODE`. Dropping the value ends all processes inside, and removes the namespaces. The next network
/// of the same name removes those of a killed process.
#[derive(Debug)]
pub struct Network {
    name: String,
    /// Locked while this process uses the name.
    _lock: File,
    lock_path: PathBuf,
}

/// One end of a cable: a node, its interface, and its address with the length of the prefix.
#[derive(Debug, Clone, Copy)]
pub struct CableEnd<'a> {
    /// The node.
    pub node: &'a str,
    /// The interface, which is created.
    pub interface: &'a str,
    /// The address.
    pub address: Ipv4Addr,
    /// The length of the prefix.
    pub prefix: u8,
}

impl Network {
    /// Creates a network with these nodes, which are not connected yet.
    ///
    /// # Errors
    /// If another process has created a network of this name, or the namespaces cannot be created.
    pub fn create(name: &str, nodes: &[&str]) -> Result<Network, LabError> {
        let lock_path = PathBuf::from(format!("/run/wlab-{name}.lock"));
        let lock = File::create(&lock_path).map_err(LabError::system(lock_path.display().to_string()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LabError::InUse(name.to_owned())),
            Err(TryLockError::Error(error)) => return Err(LabError::system("lock")(error)),
        }
        let network = Network { name: name.to_owned(), _lock: lock, lock_path };
        network.remove_namespaces()?;
        let lines: String =
            nodes.iter().map(|node| format!("netns add {}\n", network.namespace(node))).collect();
        run_batch(Command::new("ip"), "ip", String::new, &lines)?;
        for node in nodes {
            network.run_ip(node, "link set lo up\n")?;
            // Connections must not depend on earlier ones.
            network.set(node, "ipv4/tcp_no_metrics_save", "1")?;
            network.set(node, "ipv4/ip_forward", "1")?;
        }
        Ok(network)
    }

    /// The namespace of a node.
    pub fn namespace(&self, node: &str) -> String {
        format!("{}{node}", self.prefix())
    }

    fn prefix(&self) -> String {
        format!("wlab-{}-", self.name)
    }

    /// Runs `ip` with these lines at a node.
    ///
    /// # Errors
    /// If `ip` refuses a line.
    pub fn run_ip(&self, node: &str, lines: &str) -> Result<(), LabError> {
        self.run_tool("ip", node, lines)
    }

    /// Runs `tc` with these lines at a node.
    ///
    /// # Errors
    /// If `tc` refuses a line.
    pub fn run_tc(&self, node: &str, lines: &str) -> Result<(), LabError> {
        self.run_tool("tc", node, lines)
    }

    fn run_tool(&self, tool: &'static str, node: &str, lines: &str) -> Result<(), LabError> {
        let namespace = self.namespace(node);
        let mut command = Command::new(tool);
        command.args(["-n", &namespace]).stdout(Stdio::null()).process_group(0);
        Ok(run_batch(command, tool, || format!(" in {namespace}"), lines)?)
    }

    /// Writes a file below `/proc/sys/net` at a node.
    ///
    /// # Errors
    /// If the kernel refuses the value.
    pub fn set(&self, node: &str, file: &str, value: &str) -> Result<(), LabError> {
        let write = || fs::write(format!("/proc/sys/net/{file}"), value);
        self.run_inside(node, write)?.map_err(LabError::system(format!("/proc/sys/net/{file} at {node}")))
    }

    /// Lets buffers of sockets grow to the bandwidth-delay product of long paths: to 32 MiB.
    ///
    /// # Errors
    /// If the kernel refuses the sizes.
    pub fn set_long_path_options(&self, node: &str) -> Result<(), LabError> {
        self.set(node, "ipv4/tcp_wmem", "4096 65536 33554432")?;
        self.set(node, "ipv4/tcp_rmem", "4096 131072 33554432")?;
        // The same for all relays: otherwise a connection starts slowly after each pause.
        self.set(node, "ipv4/tcp_slow_start_after_idle", "0")
    }

    /// Connects two nodes by a veth pair.
    ///
    /// # Errors
    /// If an interface or address cannot be created.
    pub fn add_cable(&self, ends: [CableEnd<'_>; 2]) -> Result<(), LabError> {
        let [a, b] = ends;
        let lines = format!(
            "link add {} type veth peer name {} netns {}\n",
            a.interface,
            b.interface,
            self.namespace(b.node)
        );
        self.run_ip(a.node, &lines)?;
        for CableEnd { node, interface, address, prefix } in ends {
            let lines = format!("addr add {address}/{prefix} dev {interface}\nlink set {interface} up\n");
            self.run_ip(node, &lines)?;
        }
        Ok(())
    }

    /// Runs `work` inside a node, in a new thread.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn run_inside<T: Send>(&self, node: &str, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        namespace::run_inside(&self.namespace(node), work)
            .map_err(LabError::system(format!("namespace {}", self.namespace(node))))
    }

    /// Starts a program inside a node.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(&self, node: &str, command: Command) -> Result<Process, LabError> {
        self.run_inside(node, || Process::spawn(command))?
    }

    /// Ends all processes inside the namespaces of this network's name, and removes the namespaces.
    fn remove_namespaces(&self) -> Result<(), LabError> {
        let entries = match fs::read_dir(NETNS_FOLDER) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(LabError::system(NETNS_FOLDER))?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        for namespace in names.filter(|name| name.starts_with(&self.prefix())) {
            for pid in run_tool("ip", &["netns", "pids", &namespace])?.split_whitespace() {
                let pid = pid.parse().ok().and_then(Pid::from_raw);
                // A process may have ended meanwhile. This one may have threads inside.
                if let Some(pid) = pid.filter(|&pid| pid != rustix::process::getpid()) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            run_tool("ip", &["netns", "del", &namespace])?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Err(error) = self.remove_namespaces() {
            eprintln!("network `{}` is not removed: {error}", self.name);
        }
        let _ = fs::remove_file(&self.lock_path);
    }
}

/// A process with its descendants, which end when this value is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a program without standard input. It is not part of this process's group, so Ctrl-C does not reach it.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(mut command: Command) -> Result<Process, LabError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child =
            command.stdin(Stdio::null()).process_group(0).spawn().map_err(LabError::system(program))?;
        Ok(Process { child })
    }

    /// The processor time of the process and its living descendants.
    pub fn cpu_time(&self) -> Duration {
        descendants(self.child.id()).into_iter().filter_map(cpu_time).sum()
    }

    /// Waits until the process exits, and returns whether it succeeded; none after the timeout.
    ///
    /// # Errors
    /// If the process cannot be waited for.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<Option<bool>> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status.success()));
            }
            if started.elapsed() >= timeout {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        // The process may have exited; its descendants stay in its group.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// A process and its living descendants.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        next += 1;
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    found
}

fn cpu_time(pid: u32) -> Option<Duration> {
    let clock = ClockId::pid_cpu_clock_id(nix::unistd::Pid::from_raw(pid as i32)).ok()?;
    Some(clock.now().ok()?.into())
}
