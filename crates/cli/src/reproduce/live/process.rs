//! Processes of an experiment.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use weir_testbed::Node;

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
    pub fn begin(mut command: Command) -> io::Result<Process> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
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
