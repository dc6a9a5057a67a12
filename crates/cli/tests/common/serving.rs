//! Coordinators as processes on loopback.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;

/// A coordinator, and where it answers.
pub struct Serving {
    pub child: Child,
    pub agents: String,
    pub api: String,
    pub log: BufReader<ChildStderr>,
}

impl Serving {
    pub fn start(config: &Path) -> Serving {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["serve", "--log", "json", "--config"])
            .arg(config)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        // From here on it is killed in the end, whatever happens.
        let mut serving = Serving { child, agents: String::new(), api: String::new(), log };
        while serving.api.is_empty() {
            let mut line = String::new();
            assert!(serving.log.read_line(&mut line).unwrap() > 0, "it ended");
            let line: Value = serde_json::from_str(&line).unwrap();
            let address = |name: &str| line["fields"][name].as_str().unwrap_or_default().to_owned();
            (serving.agents, serving.api) = (address("agents"), address("api"));
        }
        serving
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
