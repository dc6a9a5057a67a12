//! Networks of namespaces that the caller connects, for experiments and tests. Unlike a bed, a network ends with its value.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{self, Command};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::batch::{self, Setting, Step, Tool};
use crate::command::{self, CommandError};
use crate::lock::Lock;
use crate::namespace::{self, NETNS_FOLDER};

/// Why a network cannot be created or changed.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// Another process has created a network of this name.
    #[error("network `{0}` is in use by another process")]
    InUse(String),
    /// A step failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A file or folder could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// The path.
        path: String,
        /// The error of the operating system.
        error: io::Error,
    },
}

/// Network namespaces named `wlab-NAME-NODE`. Dropping the value ends all processes inside, and removes the namespaces. The next network
/// of the same name removes those of a killed process.
#[derive(Debug)]
pub struct Network {
    name: String,
    lock: Lock,
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
    pub fn create(name: &str, nodes: &[&str]) -> Result<Network, NetworkError> {
        let path = format!("/run/wlab-{name}.lock");
        let lock = Lock::acquire(Path::new(&path), Duration::ZERO)
            .map_err(|error| NetworkError::File { path, error })?
            .ok_or_else(|| NetworkError::InUse(name.to_owned()))?;
        let network = Network { name: name.to_owned(), lock };
        network.remove_namespaces()?;
        let lines = nodes.iter().map(|node| format!("netns add {}\n", network.namespace(node))).collect();
        network.run_step(&Step::Batch { tool: Tool::Ip, namespace: None, lines })?;
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

    fn run_step(&self, step: &Step) -> Result<(), NetworkError> {
        Ok(command::run_step(step, self.lock.file())?)
    }

    /// Runs `ip` with these lines at a node.
    ///
    /// # Errors
    /// If `ip` refuses a line.
    pub fn run_ip(&self, node: &str, lines: &str) -> Result<(), NetworkError> {
        self.run_lines(Tool::Ip, node, lines)
    }

    /// Runs `tc` with these lines at a node.
    ///
    /// # Errors
    /// If `tc` refuses a line.
    pub fn run_tc(&self, node: &str, lines: &str) -> Result<(), NetworkError> {
        self.run_lines(Tool::Tc, node, lines)
    }

    fn run_lines(&self, tool: Tool, node: &str, lines: &str) -> Result<(), NetworkError> {
        let namespace = Some(self.namespace(node));
        self.run_step(&Step::Batch { tool, namespace, lines: lines.to_owned() })
    }

    /// Writes a file below `/proc/sys/net` at a node.
    ///
    /// # Errors
    /// If the kernel refuses the value.
    pub fn set(&self, node: &str, file: &'static str, value: &str) -> Result<(), NetworkError> {
        let settings = vec![Setting { file, value: value.to_owned(), is_optional: false }];
        self.run_step(&Step::Settings { namespace: self.namespace(node), settings })
    }

    /// Connects two nodes by a veth pair.
    ///
    /// # Errors
    /// If an interface or address cannot be created.
    pub fn add_cable(&self, ends: [CableEnd<'_>; 2]) -> Result<(), NetworkError> {
        let [a, b] = ends;
        let other_namespace = self.namespace(b.node);
        let lines =
            format!("link add {} type veth peer name {} netns {other_namespace}\n", a.interface, b.interface);
        self.run_ip(a.node, &lines)?;
        for CableEnd { node, interface, address, prefix } in ends {
            let lines = format!("addr add {address}/{prefix} dev {interface}\nlink set {interface} up\n");
            self.run_ip(node, &lines)?;
        }
        Ok(())
    }

    /// A command that runs a program at a node, as [`namespace::command`].
    pub fn command(&self, node: &str, program: impl AsRef<OsStr>) -> Command {
        namespace::command(&self.namespace(node), program)
    }

    /// Runs `work` inside a node, in a new thread.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn run_inside<T: Send>(
        &self,
        node: &str,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, NetworkError> {
        let namespace = self.namespace(node);
        let result = namespace::run_inside(&namespace, work);
        Ok(result.map_err(|error| CommandError::Enter { namespace, error })?)
    }

    /// Ends all processes inside the namespaces of this network's name, and removes the namespaces.
    fn remove_namespaces(&self) -> Result<(), NetworkError> {
        let file_error = |path: &str, error| NetworkError::File { path: path.to_owned(), error };
        let existing = namespace::list_with_prefix(&self.prefix());
        let existing = existing.map_err(|error| file_error(NETNS_FOLDER, error))?;
        if existing.is_empty() {
            return Ok(());
        }
        end_processes(&existing).map_err(|error| file_error("/proc", error))?;
        self.run_step(&batch::deletion_step(&existing))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Err(error) = self.remove_namespaces() {
            eprintln!("network `{}` is not removed: {error}", self.name);
        }
        let _ = self.lock.remove();
    }
}

/// Ends the processes inside namespaces, except this one, which may have threads inside.
fn end_processes(namespaces: &[String]) -> io::Result<()> {
    // A namespace or process may have ended meanwhile.
    let file_number = |path: String| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let files: Vec<_> =
        namespaces.iter().filter_map(|name| file_number(format!("{NETNS_FOLDER}/{name}"))).collect();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let is_inside =
            || file_number(format!("/proc/{pid}/ns/net")).is_some_and(|file| files.contains(&file));
        if pid != process::id() && is_inside() {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
    }
    Ok(())
}
