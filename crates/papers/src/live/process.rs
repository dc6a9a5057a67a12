//! Processes of this program, and agents among them.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use weir_client::Agent;
use weir_testbed::Node;

use weir_console::failure::Failure;

/// How long a process may take to be there.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that ends with this.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// One that says nothing. Ctrl-C is for this process, which then ends it.
    pub fn begin(command: Command) -> io::Result<Process> {
        Process::heard(command, Stdio::null())
    }

    /// One whose complaints go there.
    pub fn heard(mut command: Command, complaints: Stdio) -> io::Result<Process> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
        Ok(Process(command.process_group(0).spawn()?))
    }
}

/// What a command inside a host begins with. It sees the cgroups, which `ip netns exec` would hide.
pub fn inside(node: &Node) -> Vec<String> {
    vec!["nsenter".to_owned(), format!("--net=/run/netns/{}", node.namespace)]
}

/// A command of these words.
pub fn command<S: AsRef<str>>(words: &[S]) -> Command {
    let mut command = Command::new(words[0].as_ref());
    command.args(words[1..].iter().map(AsRef::as_ref));
    command
}

/// Waits for an agent's Unix socket.
///
/// # Errors
/// If it does not come, or somebody asks to stop.
pub fn find(door: &Path, began: Instant) -> Result<Agent, Failure> {
    loop {
        match Agent::connect(door) {
            Ok(agent) => return Ok(agent),
            Err(error) => pause(began, &error.to_string())?,
        }
    }
}

/// Waits a moment for what is not there yet.
///
/// # Errors
/// If that has been long enough, or somebody asks to stop.
pub fn pause(began: Instant, why: &str) -> Result<(), Failure> {
    Failure::unless_asked()?;
    if began.elapsed() > PATIENCE {
        return Err(Failure::undone(format_args!("not within {} s: {why}", PATIENCE.as_secs())));
    }
    thread::sleep(Duration::from_millis(10));
    Ok(())
}
