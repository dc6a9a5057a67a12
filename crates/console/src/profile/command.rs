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

use super::place::Place;
use crate::failure::Failure;
use crate::interrupt;

/// The maximum time between two checks for a signal.
const GLANCE: Duration = Duration::from_millis(100);

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// A command, and the settings of its runs.
pub struct Timed {
    /// The program and its arguments; not empty.
    pub words: Vec<OsString>,
    /// Environment variables in addition to those of this process.
    pub environment: Vec<(&'static str, String)>,
    /// The maximum duration.
    pub timeout: Duration,
    /// The file for the command's output; none to discard the output.
    pub log: Option<File>,
}

impl Timed {
    /// Runs the command once, and returns its duration. Calls `glance` repeatedly meanwhile. Kills the processes that the command leaves
    /// in its process group.
    ///
    /// # Errors
    /// If the command cannot be started, fails or exceeds the timeout, or a signal arrives.
    pub fn run(&self, place: &Place<'_>, glance: impl Fn()) -> Result<Duration, Failure> {
        Failure::unless_asked()?;
        let began = Instant::now();
        let mut child = self.start(place)?;
        let ended = self.wait(&child, began, glance);
        // The group is killed before the child is reaped: its number could be reused afterwards.
        let _ = killpg(pid(&child), Signal::SIGKILL);
        let status = child.wait().map_err(Failure::undone)?;
        let ended = ended?;
        if !status.success() {
            let hint = if self.log.is_some() { "" } else { "; --log FILE keeps what it says" };
            return Err(Failure::undone(format_args!("{status}{hint}")));
        }
        Ok(ended - began)
    }

    fn start(&self, place: &Place<'_>) -> Result<Child, Failure> {
        let program = &self.words[0];
        let output = || match &self.log {
            Some(file) => file.try_clone().map(Stdio::from),
            None => Ok(Stdio::null()),
        };
        let mut command = Command::new(program);
        command.args(&self.words[1..]).envs(self.environment.iter().map(|(name, value)| (name, value)));
        // Ctrl-C is for this process, which then stops the command.
        command.stdin(Stdio::null()).process_group(0);
        let started = output()
            .and_then(|out| Ok((out, output()?)))
            .and_then(|(out, errors)| place.spawn(command.stdout(out).stderr(errors)));
        started.map_err(|error: io::Error| {
            let program = program.to_string_lossy();
            Failure::input(format_args!("`{program}` cannot be run: {error}"))
        })
    }

    fn too_long(&self) -> Failure {
        Failure::undone(format_args!("not done within {} s (--timeout)", self.timeout.as_secs_f64()))
    }

    /// Waits for the command, and returns the time of its end.
    fn wait(&self, child: &Child, began: Instant, glance: impl Fn()) -> Result<Instant, Failure> {
        let (tell, told) = mpsc::channel();
        let pid = pid(child);
        thread::scope(|scope| {
            scope.spawn(move || {
                // The receiver has been dropped if the command was killed.
                let _ = tell.send(end_of(pid));
            });
            loop {
                match told.recv_timeout(GLANCE) {
                    // The timeout may have passed just before this check.
                    Ok(Ok(ended)) if ended - began > self.timeout => return Err(self.too_long()),
                    Ok(ended) => return ended.map_err(Failure::undone),
                    Err(RecvTimeoutError::Disconnected) => unreachable!("it tells before it ends"),
                    Err(RecvTimeoutError::Timeout) => glance(),
                }
                if interrupt::asked() {
                    end(pid, &told);
                    return Err(Failure::interrupted("interrupted; nothing was written"));
                }
                if began.elapsed() > self.timeout {
                    end(pid, &told);
                    return Err(self.too_long());
                }
            }
        })
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32)
}

/// Waits for the end of a process without reaping it.
fn end_of(pid: Pid) -> nix::Result<Instant> {
    loop {
        match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Err(Errno::EINTR) => {}
            ended => return ended.map(|_| Instant::now()),
        }
    }
}

/// Stops a process and its group: SIGTERM, then SIGKILL.
fn end(pid: Pid, told: &Receiver<nix::Result<Instant>>) {
    let _ = killpg(pid, Signal::SIGTERM);
    if told.recv_timeout(GRACE).is_err() {
        let _ = killpg(pid, Signal::SIGKILL);
        // The process may have moved to another group.
        let _ = kill(pid, Signal::SIGKILL);
    }
}
