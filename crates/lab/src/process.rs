//! Processes with their descendants.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::time::ClockId;
use rustix::process::{Pid, Signal, kill_process_group};
use weir_testbed::Network;

use crate::LabError;

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

    /// Starts a program inside a node, as [`Process::spawn`].
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn_inside(network: &Network, node: &str, command: Command) -> Result<Process, LabError> {
        network.run_inside(node, || Process::spawn(command))?
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
