//! A command that is run and timed.

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

/// How long to wait at most before looking whether to stop.
const GLANCE: Duration = Duration::from_millis(100);

/// How long a command may take to end once it is told to.
const GRACE: Duration = Duration::from_secs(2);

/// A command and how it is run.
pub struct Timed {
    /// The program and its arguments; there is a program.
    pub words: Vec<OsString>,
    /// Variables of its environment, besides those that this process has.
    pub environment: Vec<(&'static str, String)>,
    /// How long it may take.
    pub timeout: Duration,
    /// Where what it prints goes; nowhere if there is none.
    pub log: Option<File>,
}

impl Timed {
    /// Runs it once, and says how long it took. `glance` is called now and then meanwhile. What it leaves behind in its process
    /// group is killed.
    ///
    /// # Errors
    /// If it cannot be started, fails, takes too long, or somebody asks to stop.
    pub fn run(&self, place: &Place<'_>, glance: impl Fn()) -> Result<Duration, Failure> {
        Failure::unless_asked()?;
        let began = Instant::now();
        let mut child = self.start(place)?;
        let ended = self.wait(&child, began, glance);
        // Before its number is free for others.
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
        // Ctrl-C is for this process, which then ends the command.
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

    /// When it ended.
    fn wait(&self, child: &Child, began: Instant, glance: impl Fn()) -> Result<Instant, Failure> {
        let (tell, told) = mpsc::channel();
        let pid = pid(child);
        thread::scope(|scope| {
            scope.spawn(move || {
                // Nobody listens any more if it had to be killed.
                let _ = tell.send(end_of(pid));
            });
            loop {
                match told.recv_timeout(GLANCE) {
                    // It may have taken too long just before it was looked.
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

/// Waits for the end of a process, which can be asked for its status still.
fn end_of(pid: Pid) -> nix::Result<Instant> {
    loop {
        match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Err(Errno::EINTR) => {}
            ended => return ended.map(|_| Instant::now()),
        }
    }
}

/// Ends a process and those in its group: it is asked first.
fn end(pid: Pid, told: &Receiver<nix::Result<Instant>>) {
    let _ = killpg(pid, Signal::SIGTERM);
    if told.recv_timeout(GRACE).is_err() {
        let _ = killpg(pid, Signal::SIGKILL);
        // It may have gone to another group.
        let _ = kill(pid, Signal::SIGKILL);
    }
}
