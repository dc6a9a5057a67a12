//! Tests that an agent reports and keeps rates while a search for interfaces of pods waits, as for a lock of the kernel. The test skips
//! without the privileges or the BPF programs.

use std::env;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{TestDir, wait_within};
use crate::group::TestCgroup;
use crate::host_pair::{HostPair, Process};

const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\nqueues = \"services\"\n\
                      [listen]\nagents = \"127.0.0.1:7700\"\napi = \"127.0.0.1:7701\"\n\
                      [host]\na = \"40Mbit\"\nb = \"40Mbit\"\n";

/// How long the search waits, and the maximum time without a report.
const WAIT: Duration = Duration::from_secs(4);
const MAX_SILENCE: f64 = 1.5;

/// Writes an `ip` that waits before it lists all interfaces, once `slow` exists, and then creates `waiting`.
fn write_slow_ip(dir: &TestDir) -> String {
    let path = env::var("PATH").unwrap();
    let folder = dir.path("bin");
    fs::create_dir(&folder).unwrap();
    let (slow, waiting) = (dir.path("slow"), dir.path("waiting"));
    let script = format!(
        "#!/bin/sh\nif [ \"$*\" = '-d -j link show' ] && [ -e {} ]; then\n: > {}\nsleep {}\nfi\nPATH={path} exec ip \"$@\"\n",
        slow.display(),
        waiting.display(),
        WAIT.as_secs(),
    );
    fs::write(folder.join("ip"), script).unwrap();
    fs::set_permissions(folder.join("ip"), Permissions::from_mode(0o755)).unwrap();
    format!("{}:{path}", folder.display())
}

#[test]
fn agent_reports_while_a_search_for_interfaces_waits() {
    let test = "slowip";
    let Some(hosts) = HostPair::up(test) else { return };
    let (dir, group) = (TestDir::new(), TestCgroup::new(test));
    if !hosts.has_bpf_programs(test, &group.path) {
        return;
    }
    dir.write("serve.toml", CONFIG);
    let _coordinator = hosts.start_coordinator(&dir.path("serve.toml"));
    let mut agent = hosts.command_on_host(env!("CARGO_BIN_EXE_weir"));
    agent.args(["agent", "run", "--name", "a", "--rate", "40Mbit", "--interface", "e0", "--socket"]);
    agent.arg(dir.path("socket")).env("PATH", write_slow_ip(&dir));
    agent.arg("--application").arg(format!("web={}", group.path.display()));
    let _agent = Process(agent.spawn().unwrap());
    let silence = || {
        let response = hosts.request("GET", "/v1/hosts", "");
        let list: Value = serde_json::from_str(response.rsplit("\r\n\r\n").next().unwrap()).unwrap();
        list[0]["seconds_since_report"].as_f64()
    };
    wait_within(Duration::from_secs(20), "a report", || silence().is_some());

    File::create(dir.path("slow")).unwrap();
    hosts.network.run_ip("a", "link add p1 type veth peer name p2\n").unwrap();
    wait_within(Duration::from_secs(20), "the search", || dir.path("waiting").exists());
    let (began, mut max_silence) = (Instant::now(), 0.0_f64);
    while began.elapsed() < WAIT {
        max_silence = max_silence.max(silence().unwrap());
        thread::sleep(Duration::from_millis(50));
    }
    eprintln!("at most {max_silence:.2} s without a report");
    assert!(max_silence < MAX_SILENCE, "{max_silence} s");
}
