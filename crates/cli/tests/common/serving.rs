//! `weir serve` as a process on loopback, for tests.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

pub fn weir(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(args).output().unwrap()
}

/// A running coordinator, and the addresses at which it listens.
pub struct Serving {
    pub child: Child,
    pub agents: String,
    pub api: String,
    pub log: BufReader<std::process::ChildStderr>,
    /// The timestamp of its first log line, by its own clock.
    pub began: String,
}

impl Serving {
    pub fn start(config: &Path) -> Serving {
        Serving::start_with(config, &[])
    }

    pub fn start_with(config: &Path, environment: &[(&str, &str)]) -> Serving {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .envs(environment.iter().copied())
            .args(["serve", "--log", "json", "--config"])
            .arg(config)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        // From here on, the process is killed when `serving` is dropped.
        let (agents, api, began) = (String::new(), String::new(), String::new());
        let mut serving = Serving { child, agents, api, log, began };
        while serving.api.is_empty() {
            let mut line = String::new();
            assert!(serving.log.read_line(&mut line).unwrap() > 0, "it ended");
            let line: Value = serde_json::from_str(&line).unwrap();
            if serving.began.is_empty() {
                serving.began = line["timestamp"].as_str().unwrap_or_default().to_owned();
            }
            let address = |name: &str| line["fields"][name].as_str().unwrap_or_default().to_owned();
            (serving.agents, serving.api) = (address("agents"), address("api"));
        }
        serving
    }

    pub fn ctl(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = weir(&[&["ctl", "--coordinator", &self.api], args].concat());
        let text = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    /// The body of the answer to GET, which must have status 200.
    pub fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(&self.api).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        assert!(head.starts_with("HTTP/1.1 200 "), "GET {path}: {answer}");
        body.to_owned()
    }

    /// The answer of `/v1/hosts`.
    pub fn hosts(&self) -> Value {
        serde_json::from_str(&self.get("/v1/hosts")).unwrap()
    }

    /// The process's peak memory, in bytes.
    pub fn most_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a process has memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
