//! Tests `weir relay` with `weir serve`, as processes on loopback addresses.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::serving::CoordinatorProcess;
use crate::common::{TestDir, wait_for};

const CONFIG: &str = r#"weir-serve = 1
store = "weir.redb"

[listen]
agents = "127.0.0.1:0"
api = "127.0.0.1:0"

[overlay]
policy = "fifo"

[overlay.relay]
west = { region = "w", address = "127.0.5.1:WEST", networks = ["127.0.5.0/24"] }
east = { region = "e", address = "127.0.6.1:EAST", networks = ["127.0.6.0/24"] }

[overlay.link]
w = { e = "1Gbit" }
e = { w = "1Gbit" }
"#;

fn free_port(address: &str) -> u16 {
    TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port()
}

/// A relay as a process, which is killed when dropped.
struct RelayProcess {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RelayProcess {
    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The number of log lines with this text.
    fn count(&self, text: &str) -> usize {
        self.log().lines().filter(|line| line.contains(text)).count()
    }
}

/// A coordinator with the relays `west` and `east`.
struct Overlay {
    dir: TestDir,
    coordinator: CoordinatorProcess,
}

impl Overlay {
    fn new() -> Overlay {
        let dir = TestDir::new();
        let ports = [free_port("127.0.5.1"), free_port("127.0.6.1")];
        let config = CONFIG.replace("WEST", &ports[0].to_string()).replace("EAST", &ports[1].to_string());
        dir.write("serve.toml", &config);
        let coordinator = CoordinatorProcess::start(&dir.path("serve.toml"));
        Overlay { dir, coordinator }
    }

    fn start_relay(&self, name: &str, relays: &str, programs: &str) -> RelayProcess {
        let line = format!(
            "relay run --name {name} --coordinator {} --relays {relays} --programs {programs} --drain 20s",
            self.coordinator.agents_address
        );
        let mut child = self.dir.command(&line).stderr(Stdio::piped()).spawn().unwrap();
        let (stderr, log) = (child.stderr.take().unwrap(), Arc::new(Mutex::new(String::new())));
        let lines = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        RelayProcess { child, log }
    }

    /// The log of the coordinator, which ends.
    fn coordinator_log(mut self) -> String {
        self.coordinator.child.kill().unwrap();
        let mut text = String::new();
        self.coordinator.log.read_to_string(&mut text).unwrap();
        text
    }
}

#[test]
fn second_relay_with_a_name_is_refused_and_does_not_disturb_the_first() {
    let overlay = Overlay::new();
    let first = overlay.start_relay("west", "127.0.5.1:0", "127.0.5.1:0");
    wait_for("the first relay", || first.count("connected with the coordinator") == 1);
    let second = overlay.start_relay("west", "127.0.5.1:0", "127.0.5.1:0");
    wait_for("a refusal", || second.count("another relay named west is connected from 127.0.0.1:") > 0);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(second.count("help: give each relay its own --name"), 1, "{}", second.log());
    assert_eq!(second.count("connected with the coordinator"), 0, "{}", second.log());
    assert_eq!((first.count("connected with"), first.count("ended")), (1, 0), "{}", first.log());
    drop(first);
    wait_for("the second relay takes over", || second.count("connected with the coordinator") == 1);
    let log = overlay.coordinator_log();
    let warnings: Vec<Value> = log
        .lines()
        .filter(|line| line.contains("two relays have the same name"))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(warnings.len(), 1, "{log}");
    let fields = &warnings[0]["fields"];
    assert_eq!((&warnings[0]["level"], &fields["relay"]), (&"WARN".into(), &"west".into()));
    for address in ["connected", "refused"] {
        assert!(fields[address].as_str().unwrap().starts_with("127.0.0.1:"), "{log}");
    }
}
