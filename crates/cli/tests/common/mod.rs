//! Helpers that run `weir` on small traces.

#![allow(dead_code, reason = "each test program uses some of the helpers")]

pub mod serving;
#[cfg(target_os = "linux")]
pub mod tutorial;
#[path = "../../../agent/tests/live/wait.rs"]
mod wait;

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;
pub use wait::*;

/// Coflows 1 and 2 share port 0. Coflow 7 uses other ports, and has a flow without bytes.
pub const TRACE: &str = "\
4 3
1 0 1 0 2 1:10.0 2:5.0
2 100 1 0 1 3:1.0
7 250 2 1 2 2 0:8.0 3:0.0
";

/// A job of two coflows, with a deadline and a port whose rate drops.
pub const TRACE_WITH_JOB: &str = "\
weir-trace 1
ports 3
coflow 1 job=4 deadline=1s
flow 0 1 50MB
coflow 2 job=4 parents=1 compute-before=100ms
flow 1 2 10MB
event 200ms port=0 side=send rate=0.5
";

/// Waits until a process has a handler for SIGINT or has exited.
pub fn wait_for_sigint_handler(child: &mut Child) {
    wait_for("a handler for SIGINT", || {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (2 - 1)) != 0
    });
}

/// Stops a process by SIGINT. An agent that is killed leaves its programs in the kernel.
pub fn interrupt_and_wait(child: &mut Child) {
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    let _ = child.wait();
}

/// A process, which is killed when dropped.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Sends SIGTERM, waits for the exit, and returns whether it was successful.
    pub fn stop(&mut self) -> bool {
        assert!(Command::new("kill").arg(self.0.id().to_string()).status().unwrap().success());
        self.0.wait().unwrap().success()
    }
}

/// A temporary folder with the traces.
pub struct TestDir(TempDir);

impl TestDir {
    pub fn new() -> TestDir {
        let dir = TestDir(TempDir::new().unwrap());
        dir.write("trace.txt", TRACE);
        dir.write("own.weir", TRACE_WITH_JOB);
        dir
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The names of the files in order, including hidden files.
    pub fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// A command that runs `weir` in this folder with the words of `line` as arguments.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(line.split_whitespace()).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    pub fn run(&self, line: &str) -> CommandOutput {
        CommandOutput::new(self.command(line).output().unwrap())
    }

    /// The standard output of a run that must succeed.
    pub fn stdout_of(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "weir {line}");
        ran.stdout
    }

    /// The error message of a run that must fail with `code`.
    pub fn stderr_of(&self, line: &str, code: i32) -> String {
        let ran = self.run(line);
        assert_eq!(ran.code, Some(code), "weir {line}: {}", ran.stderr);
        ran.stderr
    }

    pub fn json_of(&self, line: &str) -> Value {
        serde_json::from_str(&self.stdout_of(line)).unwrap()
    }
}

/// Counts the bytes of a connection. `accept` runs in a separate thread.
pub fn count_received_bytes(accept: impl FnOnce() -> TcpStream + Send + 'static) -> Arc<AtomicU64> {
    let received = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&received);
    thread::spawn(move || {
        let mut stream = accept();
        let mut buffer = vec![0; 1 << 16];
        while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
            count.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    });
    received
}

/// Asserts that words name a command of `weir` and options of that command.
pub fn assert_known_command(words: &[&str]) {
    let names = words.iter().take_while(|word| !word.starts_with('-'));
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(names.clone()).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{words:?}");
    let known: Vec<&str> = help.split_whitespace().collect();
    for option in words[names.count()..].iter().filter(|word| word.starts_with("--")) {
        assert!(known.contains(option), "{words:?}: {option} is not an option of the command");
    }
}

/// The exit code and the output of a run.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl CommandOutput {
    pub fn new(output: Output) -> CommandOutput {
        CommandOutput {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
