//! Runs `weir serve` as a process on loopback, for tests.

#![allow(dead_code, reason = "each test program uses some of the helpers")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

pub fn run_weir(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(args).output().unwrap()
}

/// A running coordinator, and the addresses at which it listens.
pub struct CoordinatorProcess {
    pub child: Child,
    pub agents_address: String,
    pub api_address: String,
    pub log: BufReader<std::process::ChildStderr>,
    /// The timestamp of the first log line, by the clock of the process.
    pub first_timestamp: String,
}

impl CoordinatorProcess {
    pub fn start(config: &Path) -> CoordinatorProcess {
        CoordinatorProcess::start_with_env(config, &[])
    }

    pub fn start_with_env(config: &Path, environment: &[(&str, &str)]) -> CoordinatorProcess {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .envs(environment.iter().copied())
            .args(["serve", "--log", "json", "--config"])
            .arg(config)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        // From here on, the process is killed when `coordinator_process` is dropped.
        let mut coordinator_process = CoordinatorProcess {
            child,
            agents_address: String::new(),
            api_address: String::new(),
            log,
            first_timestamp: String::new(),
        };
        while coordinator_process.api_address.is_empty() {
            let mut line = String::new();
            assert!(coordinator_process.log.read_line(&mut line).unwrap() > 0, "the coordinator exited");
            let line: Value = serde_json::from_str(&line).unwrap();
            if coordinator_process.first_timestamp.is_empty() {
                coordinator_process.first_timestamp =
                    line["timestamp"].as_str().unwrap_or_default().to_owned();
            }
            let address = |name: &str| line["fields"][name].as_str().unwrap_or_default().to_owned();
            (coordinator_process.agents_address, coordinator_process.api_address) =
                (address("agents"), address("api"));
        }
        coordinator_process
    }

    pub fn ctl(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = run_weir(&[&["ctl", "--coordinator", &self.api_address], args].concat());
        let text = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    /// The body of the answer to GET, which must have status 200.
    pub fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(&self.api_address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").expect("an HTTP response has a head");
        assert!(head.starts_with("HTTP/1.1 200 "), "GET {path}: {response}");
        body.to_owned()
    }

    /// The answer of `/v1/hosts`.
    pub fn hosts(&self) -> Value {
        serde_json::from_str(&self.get("/v1/hosts")).unwrap()
    }

    /// The process's peak memory, in bytes.
    pub fn peak_memory_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .expect("the kernel reports the peak memory of each process");
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for CoordinatorProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
