//! Starts coordinators and agents as processes of this program, on this host or inside hosts of a testbed.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use weir_client::{Agent, CoordinatorError};
use weir_console::failure::Failure;
use weir_core::units::Rate;
use weir_testbed::{Node, namespace};

/// The maximum time until a process is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// The maximum time between SIGTERM and the exit of a process.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which conditions are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The unit of processor time in `/proc`, in seconds: `USER_HZ` is 100.
const TICK_SECS: f64 = 0.01;

/// A child process. Dropping it sends SIGTERM, and SIGKILL if the process does not exit in time.
pub struct Process {
    name: String,
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        // After `wait`, the process id can belong to another process.
        if let Ok(None) = self.child.try_wait() {
            let _ = kill(Pid::from_raw(self.id() as i32), Signal::SIGTERM);
        }
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts a command without input and output.
    pub fn start(name: &str, mut command: Command) -> Result<Process, Failure> {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Process::spawn(name, command)
    }

    /// Starts a command, and waits for the first line of its output for which `parse_ready` returns a value.
    pub fn start_until<T>(
        name: &str,
        mut command: Command,
        parse_ready: impl Fn(&str) -> Option<T>,
    ) -> Result<(Process, T), Failure> {
        let (output, input) = io::pipe().map_err(Failure::runtime)?;
        command.stdout(input.try_clone().map_err(Failure::runtime)?).stderr(input);
        let process = Process::spawn(name, command)?;
        let (lines, received) = mpsc::channel();
        // Reads until the process exits, because a full pipe would block the process.
        thread::spawn(move || {
            // Lines after the awaited one have no receiver.
            BufReader::new(output).lines().map_while(Result::ok).for_each(|line| drop(lines.send(line)));
        });
        let mut last = String::new();
        loop {
            Failure::check_interrupt()?;
            let line = received.recv_timeout(READY_TIMEOUT).map_err(|error| {
                Failure::runtime(format_args!("{name}: not ready: {error}; its last output: {last}"))
            })?;
            match parse_ready(&line) {
                Some(value) => return Ok((process, value)),
                None => last = line,
            }
        }
    }

    /// Starts a command in a separate process group, so that Ctrl-C does not reach it. Dropping the command closes this
    /// program's ends of its pipes.
    fn spawn(name: &str, mut command: Command) -> Result<Process, Failure> {
        match command.stdin(Stdio::null()).process_group(0).spawn() {
            Ok(child) => Ok(Process { name: name.to_owned(), child }),
            Err(error) => Err(Failure::runtime(format_args!("{name}: cannot be started: {error}"))),
        }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The processor time that the process has used, in seconds.
    pub fn processor_secs(&self) -> Result<f64, Failure> {
        let path = format!("/proc/{}/stat", self.id());
        let text = fs::read_to_string(&path)
            .map_err(|error| Failure::runtime(format_args!("{path}: cannot be read: {error}")))?;
        // The fields follow the name of the program, which may contain any character.
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
        let [Some(user), Some(system)] = [11, 12].map(ticks) else {
            return Err(Failure::runtime(format_args!("{}: has exited", self.name)));
        };
        Ok((user + system) * TICK_SECS)
    }

    /// Checks that the process still runs.
    pub fn check_running(&mut self) -> Result<(), Failure> {
        match self.child.try_wait().map_err(Failure::runtime)? {
            None => Ok(()),
            Some(status) => Err(Failure::runtime(format_args!("{}: exited early: {status}", self.name))),
        }
    }
}

/// Runs a command, which has to succeed.
pub fn run(mut command: Command) -> Result<(), Failure> {
    let output = command.output().map_err(Failure::runtime)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(Failure::runtime(format_args!("{command:?}: {}", message.trim())))
}

/// Polls a condition until it holds. For processes and queues that do not announce that they are ready.
pub fn wait_until(name: &str, mut condition: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let deadline = Instant::now() + READY_TIMEOUT;
    while !condition()? {
        Failure::check_interrupt()?;
        if Instant::now() > deadline {
            return Err(Failure::runtime(format_args!(
                "{name}: not ready within {} s",
                READY_TIMEOUT.as_secs()
            )));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// A command on this host, or inside a host of a testbed. It sees the cgroups of this host, unlike with `ip netns exec`.
pub fn command(node: Option<&Node>, program: impl AsRef<OsStr>) -> Command {
    match node {
        Some(node) => namespace::command(&node.namespace, program),
        None => Command::new(program),
    }
}

fn weir_command(node: Option<&Node>) -> Result<Command, Failure> {
    Ok(command(node, env::current_exe().map_err(Failure::runtime)?))
}

/// `weir agent run` for a host with a link of this rate. The caller may add arguments.
pub fn agent_command(
    node: Option<&Node>,
    coordinator: &str,
    name: &str,
    rate: Rate,
    socket: &Path,
) -> Result<Command, Failure> {
    let mut command = weir_command(node)?;
    command.args(["agent", "run", "--insecure", "--coordinator", coordinator]);
    command.args(["--name", name, "--rate", &rate.to_string(), "--socket"]).arg(socket);
    Ok(command)
}

/// `weir agent run` for a switch. The caller adds its ports.
pub fn switch_agent_command(node: &Node, coordinator: &str) -> Result<Command, Failure> {
    let mut command = weir_command(Some(node))?;
    command.args(["agent", "run", "--insecure", "--coordinator", coordinator, "--name", &node.name]);
    Ok(command)
}

/// Connects to the Unix socket of an agent once the agent accepts.
pub fn connect_agent(socket: &Path) -> Result<Agent, Failure> {
    let mut agent = None;
    wait_until(&format!("the agent at {}", socket.display()), || {
        agent = Agent::connect(socket).ok();
        Ok(agent.is_some())
    })?;
    Ok(agent.expect("`wait_until` returns Ok only after a connection"))
}

/// A coordinator as a process. It listens on loopback; its configuration and its store are in a temporary directory.
pub struct Coordinator {
    pub process: Process,
    namespace: Option<String>,
    /// The address for agents.
    pub agents_address: String,
    api_address: String,
    _directory: TempDir,
}

impl Coordinator {
    /// Starts a coordinator, and waits until it listens. `settings` are top-level lines of its configuration.
    pub fn start(
        node: Option<&Node>,
        settings: &str,
        hosts: impl Iterator<Item = (String, Rate)>,
    ) -> Result<Coordinator, Failure> {
        let directory = tempfile::tempdir().map_err(Failure::runtime)?;
        let mut config = format!(
            "weir-serve = 1\nstore = \"weir.redb\"\n{settings}\
             [listen]\nagents = \"127.0.0.1:0\"\napi = \"127.0.0.1:0\"\n[host]\n"
        );
        hosts.for_each(|(host, rate)| config.push_str(&format!("{host} = \"{rate}\"\n")));
        let path = directory.path().join("serve.toml");
        fs::write(&path, config).map_err(|error| Failure::output(&path, &error))?;
        let mut command = weir_command(node)?;
        command.args(["serve", "--log", "json", "--config"]).arg(&path);
        let (process, (agents, api)) = Process::start_until("coordinator", command, parse_addresses)?;
        let namespace = node.map(|node| node.namespace.clone());
        Ok(Coordinator {
            process,
            namespace,
            agents_address: agents,
            api_address: api,
            _directory: directory,
        })
    }

    /// The text at a path of the API.
    pub fn get_text(&self, path: &str) -> Result<String, Failure> {
        self.request(|api| api.get_text(path))
    }

    /// Puts a body at a path of the API.
    pub fn put(&self, path: &str, body: &str) -> Result<(), Failure> {
        self.request(|api| api.put_text(path, body)).map(drop)
    }

    fn request<T: Send>(
        &self,
        request: impl FnOnce(weir_client::Coordinator) -> Result<T, CoordinatorError> + Send,
    ) -> Result<T, Failure> {
        let request = || weir_client::Coordinator::local(&self.api_address).and_then(request);
        let response = match &self.namespace {
            Some(name) => namespace::run_inside(name, request).map_err(Failure::runtime)?,
            None => request(),
        };
        Ok(response?)
    }
}

/// The addresses for agents and for the API, from the line that a coordinator logs when it starts to listen.
fn parse_addresses(line: &str) -> Option<(String, String)> {
    let fields = serde_json::from_str::<Value>(line).ok()?["fields"].take();
    Some((fields["agents"].as_str()?.to_owned(), fields["api"].as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn process_is_ready_at_the_awaited_line_and_ends_when_dropped() {
        let ready = |line: &str| line.strip_prefix("ready ").map(str::to_owned);
        let script = "echo starting; echo ready 7 >&2; exec sleep 600";
        let (mut process, found) = Process::start_until("sh", shell(script), ready).unwrap();
        process.check_running().unwrap();
        let directory = format!("/proc/{}", process.id());
        assert!(found == "7" && Path::new(&directory).exists());
        drop(process);
        assert!(!Path::new(&directory).exists());
        let failed = Process::start_until("sh", shell("echo address in use"), ready).err().unwrap();
        assert!(failed.message.ends_with("; its last output: address in use"), "{}", failed.message);
    }

    #[test]
    fn addresses_are_read_from_the_listening_line() {
        let line =
            r#"{"level":"INFO","fields":{"message":"listening","agents":"127.0.0.1:1","api":"127.0.0.1:2"}}"#;
        assert_eq!(parse_addresses(line), Some(("127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned())));
        assert_eq!(parse_addresses(r#"{"fields":{"message":"serving"}}"#), None);
        assert_eq!(parse_addresses("panicked"), None);
    }
}
