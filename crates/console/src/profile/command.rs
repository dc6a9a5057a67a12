//! Runs a command and measures its duration.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::target::ProfileTarget;
use crate::failure::Failure;
use crate::interrupt;

/// The maximum time between two checks for a signal.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The time between SIGTERM and SIGKILL.
const KILL_DELAY: Duration = Duration::from_secs(2);

/// A command, and the settings of its runs.
pub struct TimedCommand {
    /// The program and its arguments; not empty.
    pub command_line: Vec<OsString>,
    /// Environment variables in addition to those of this process.
    pub environment: Vec<(&'static str, String)>,
    /// The maximum duration.
    pub timeout: Duration,
    /// The file for the command's output; none to discard the output.
    pub output_file: Option<File>,
}

impl TimedCommand {
    /// Runs the command once, and returns its duration. Calls `on_wait` repeatedly meanwhile. Kills the processes that the command leaves
    /// in its process group.
    ///
    /// # Errors
    /// If the command cannot be started, fails or exceeds the timeout, or a signal arrives.
    pub fn run(&self, target: &ProfileTarget<'_>, on_wait: impl Fn()) -> Result<Duration, Failure> {
        Failure::check_interrupt()?;
        let began = Instant::now();
        let mut child = self.start(target)?;
        let ended = self.wait(&child, began, on_wait);
        // The group is killed before the child is reaped: its number could be reused afterwards.
        let _ = killpg(pid(&child), Signal::SIGKILL);
        let status = child.wait().map_err(Failure::runtime)?;
        let ended = ended?;
        if !status.success() {
            let hint = if self.output_file.is_some() { "" } else { "; help: --log FILE keeps its output" };
            return Err(Failure::runtime(format_args!("{status}{hint}")));
        }
        Ok(ended - began)
    }

    fn start(&self, target: &ProfileTarget<'_>) -> Result<Child, Failure> {
        let program = &self.command_line[0];
        let output = || match &self.output_file {
            Some(file) => file.try_clone().map(Stdio::from),
            None => Ok(Stdio::null()),
        };
        let mut command = Command::new(program);
        command
            .args(&self.command_line[1..])
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        // Ctrl-C is for this process, which then stops the command.
        command.stdin(Stdio::null()).process_group(0);
        let started = output()
            .and_then(|out| Ok((out, output()?)))
            .and_then(|(out, errors)| target.spawn(command.stdout(out).stderr(errors)));
        started.map_err(|error: io::Error| {
            let program = program.to_string_lossy();
            Failure::input(format_args!("`{program}` cannot be run: {error}"))
        })
    }

    fn timeout_failure(&self) -> Failure {
        Failure::runtime(format_args!("not completed within {} s (--timeout)", self.timeout.as_secs_f64()))
    }

    /// Waits for the command, and returns the time of its end.
    fn wait(&self, child: &Child, began: Instant, on_wait: impl Fn()) -> Result<Instant, Failure> {
        let (exit_sender, exit_receiver) = mpsc::channel();
        let pid = pid(child);
        thread::scope(|scope| {
            scope.spawn(move || {
                // The receiver has been dropped if the command was killed.
                let _ = exit_sender.send(wait_for_exit(pid));
            });
            loop {
                match exit_receiver.recv_timeout(SIGNAL_CHECK_INTERVAL) {
                    // The timeout may have passed just before this check.
                    Ok(Ok(ended)) if ended - began > self.timeout => return Err(self.timeout_failure()),
                    Ok(ended) => return ended.map_err(Failure::runtime),
                    Err(RecvTimeoutError::Disconnected) => {
                        unreachable!("the thread sends the exit before it ends")
                    }
                    Err(RecvTimeoutError::Timeout) => on_wait(),
                }
                if interrupt::is_requested() {
                    terminate_group(pid, &exit_receiver);
                    return Err(Failure::interrupted("interrupted; nothing was written"));
                }
                if began.elapsed() > self.timeout {
                    terminate_group(pid, &exit_receiver);
                    return Err(self.timeout_failure());
                }
            }
        })
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32)
}

/// Waits for the end of a process without reaping it.
fn wait_for_exit(pid: Pid) -> nix::Result<Instant> {
    loop {
        match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Err(Errno::EINTR) => {}
            ended => return ended.map(|_| Instant::now()),
        }
    }
}

/// Stops a process and its group: SIGTERM, then SIGKILL.
fn terminate_group(pid: Pid, exit_receiver: &Receiver<nix::Result<Instant>>) {
    let _ = killpg(pid, Signal::SIGTERM);
    if exit_receiver.recv_timeout(KILL_DELAY).is_err() {
        let _ = killpg(pid, Signal::SIGKILL);
        // The process may have moved to another group.
        let _ = kill(pid, Signal::SIGKILL);
    }
}
