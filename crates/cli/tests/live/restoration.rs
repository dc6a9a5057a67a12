//! Tests that an agent restores the objects that other processes remove from its interfaces and from the kernel.
//! Each test covers a row of the table "What the agent restores" of `docs/agent.md`. The tests skip without the
//! privileges.

use std::cell::RefCell;
use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{TestDir, wait_within};
use crate::group::TestCgroup;
use crate::host_pair::{HostPair, Process};

/// The documented time to restore an object is 1 s. The check without notifications runs after 5 s.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(3);

/// The agent and each check of a test start processes. On a busy machine, the agent gets the time of this many checks.
const RESTORE_CHECKS: u32 = 300;

const START_TIMEOUT: Duration = Duration::from_secs(20);

const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\nqueues = \"services\"\n\
                      [listen]\nagents = \"127.0.0.1:7700\"\napi = \"127.0.0.1:7701\"\n\
                      [host]\na = \"40Mbit\"\nb = \"40Mbit\"\n[service.web]\nweight = 3\n[service.batch]\n";

/// A host with a coordinator and an agent that has configured its queues. Fields are dropped in this order.
struct AgentSetup {
    agent: Process,
    _coordinator: Process,
    group: TestCgroup,
    dir: TestDir,
    hosts: HostPair,
}

impl AgentSetup {
    /// Starts the coordinator and the agent. Returns `None`, and prints a message, if this machine cannot run the test.
    fn up(test: &str) -> Option<AgentSetup> {
        AgentSetup::up_prepared(test, |_| ())
    }

    /// Like `up`; calls `prepare` before the agent starts.
    fn up_prepared(test: &str, prepare: impl FnOnce(&HostPair)) -> Option<AgentSetup> {
        AgentSetup::up_with_interfaces(test, &["e0"], prepare)
    }

    fn up_with_interfaces(
        test: &str,
        interfaces: &[&str],
        prepare: impl FnOnce(&HostPair),
    ) -> Option<AgentSetup> {
        let hosts = HostPair::up(test)?;
        let (dir, group) = (TestDir::new(), TestCgroup::new(test));
        if !hosts.has_bpf_programs(test, &group.path) {
            return None;
        }
        dir.write("serve.toml", CONFIG);
        prepare(&hosts);
        let coordinator = hosts.start_coordinator(&dir.path("serve.toml"));
        let mut command = hosts.command_on_host(env!("CARGO_BIN_EXE_weir"));
        command.args(["agent", "run", "--name", "a", "--rate", "40Mbit"]);
        command.args(interfaces.iter().flat_map(|interface| ["--interface", interface]));
        command.arg("--socket").arg(dir.path("local_socket"));
        command.arg("--application").arg(format!("web={}:1", group.path.display()));
        let agent = Process(command.stderr(File::create(dir.path("log")).unwrap()).spawn().unwrap());
        let setup = AgentSetup { agent, _coordinator: coordinator, group, dir, hosts };
        // For half a second after their setup, queues send a tenth less.
        let has_full_rate =
            |interface: &&str| setup.classes(interface).iter().any(|class| class.contains("ceil 39600Kbit"));
        wait_within(START_TIMEOUT, "queues", || interfaces.iter().all(has_full_rate));
        Some(setup)
    }

    fn ip(&self, line: &str) {
        self.run("ip", line);
    }

    fn tc(&self, line: &str) {
        self.run("tc", line);
    }

    fn run(&self, program: &str, line: &str) {
        let output = self.hosts.command_on_host(program).args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "{program} {line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The agent's classes at an interface, as `tc` prints them.
    fn classes(&self, interface: &str) -> Vec<String> {
        let output = self
            .hosts
            .command_on_host("tc")
            .args(["-d", "class", "show", "dev", interface])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<String> =
            text.lines().filter(|line| line.contains("7765:")).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    fn filters(&self) -> usize {
        let output = self
            .hosts
            .command_on_host("tc")
            .args(["filter", "show", "dev", "e0", "parent", "7765:"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().matches("flowid").count()
    }

    /// Waits until the agent has restored an object, and prints the time.
    fn assert_restored(&self, object: &str, is_done: impl Fn() -> bool) {
        let (start_time, mut checks) = (Instant::now(), 0);
        wait_within(RESTORE_TIMEOUT * 20, object, || {
            checks += 1;
            assert!(
                start_time.elapsed() < RESTORE_TIMEOUT || checks <= RESTORE_CHECKS,
                "{object}: not within {RESTORE_TIMEOUT:?} and {RESTORE_CHECKS} checks"
            );
            is_done()
        });
        eprintln!("{object}: restored after {:.0} ms", start_time.elapsed().as_secs_f64() * 1e3);
    }

    fn wait_for_log(&self, text: &str) {
        wait_within(START_TIMEOUT, &format!("`{text}` in the agent's log"), || {
            self.dir.read("log").contains(text)
        });
    }

    /// The host's conflicts, as `weir ctl hosts` prints them.
    fn conflicts(&self) -> Vec<String> {
        let mut ctl = self.hosts.command_on_host(env!("CARGO_BIN_EXE_weir"));
        let output = ctl.args(["ctl", "hosts", "--format", "json"]).output().unwrap();
        let hosts: Value = serde_json::from_slice(&output.stdout).unwrap();
        let list = hosts[0]["conflicts"].as_array().unwrap();
        list.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    fn wait_for_conflicts(&self, expected: &[&str]) {
        wait_within(START_TIMEOUT, &format!("conflicts {expected:?}"), || self.conflicts() == expected);
    }

    /// The value of a metric, given with its labels.
    fn metric(&self, name: &str) -> u64 {
        let text = self.hosts.request("GET", "/metrics", "");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} is missing in {text}")).trim().parse().unwrap()
    }

    fn wait_for_restored_count(&self, kind: &str) {
        let name = format!("weir_restored_objects_total{{kind=\"{kind}\"}}");
        wait_within(START_TIMEOUT, &name, || self.metric(&name) > 0);
    }

    fn bpf_files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.hosts.bpf_folder()).into_iter().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Whether a packet from the application's cgroup leaves the interface with its mark, so that the BPF
    /// programs are attached.
    fn packets_are_marked(&self) -> bool {
        self.hosts.sent_tos(&self.group) == Some(1 << 2)
    }

    /// Stops the agent, and asserts that it has removed its classes and BPF files.
    fn stop(mut self, interface: &str) {
        self.agent.interrupt();
        assert_eq!(self.classes(interface), Vec::<String>::new());
        assert_eq!(self.bpf_files(), Vec::<String>::new());
    }
}

/// Python functions that call bpf(2): many machines have no `bpftool`.
const BPF_FUNCTIONS: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
NR = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
def bpf(command, *attributes):
    data = ctypes.create_string_buffer(b"".join(attributes), 128)
    result = libc.syscall(NR, command, data, 128)
    if result < 0:
        sys.exit("bpf: " + os.strerror(ctypes.get_errno()))
    return result
def u32(*values): return struct.pack("%dI" % len(values), *values)
def u64(*values): return struct.pack("%dQ" % len(values), *values)
"#;

/// Runs a Python script with these functions, and with the descriptor `fd` of a file in the BPF file system. Returns false without Python.
fn run_bpf_script(script: &str, path: &str) -> bool {
    let open = "path = ctypes.create_string_buffer(sys.argv[1].encode())\nfd = bpf(7, u64(ctypes.addressof(path)), u32(0, 0))\n";
    let script = format!("{BPF_FUNCTIONS}{open}{script}");
    let Ok(output) = Command::new("python3").args(["-c", &script, path]).output() else {
        eprintln!("a part of the test skips, since python3 is missing");
        return false;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

#[test]
fn agent_restores_a_deleted_root_queue() {
    let Some(setup) = AgentSetup::up("root") else { return };
    let (before, filters) = (setup.classes("e0"), setup.filters());
    for _ in 0..3 {
        setup.tc("qdisc del dev e0 root");
        setup.assert_restored("queues after their root was deleted", || {
            setup.classes("e0") == before && setup.filters() == filters
        });
    }
    setup.wait_for_log("e0: restored ");
    setup.wait_for_restored_count("queues");
    assert_eq!(setup.conflicts(), Vec::<String>::new());
    setup.stop("e0");
}

#[test]
fn agent_restores_a_changed_class_and_a_deleted_filter() {
    let Some(setup) = AgentSetup::up("class") else { return };
    let (before, filters) = (setup.classes("e0"), setup.filters());
    setup.tc("class change dev e0 parent 7765:1 classid 7765:100 htb rate 1Mbit ceil 1Mbit");
    setup.assert_restored("a class after it was changed", || setup.classes("e0") == before);
    setup.tc("filter del dev e0 parent 7765: protocol ip pref 30565");
    setup.assert_restored("filters after they were deleted", || setup.filters() == filters);
    setup.wait_for_restored_count("queues");
    setup.stop("e0");
}

#[test]
fn foreign_root_qdisc_stays_and_is_a_conflict_until_it_is_deleted() {
    let Some(setup) = AgentSetup::up("foreign") else { return };
    let before = setup.classes("e0");
    setup.tc("qdisc replace dev e0 root handle 5: pfifo limit 77");
    setup.wait_for_conflicts(&["e0: foreign-qdisc (pfifo)"]);
    assert_eq!(setup.metric("weir_interface_conflicts{reason=\"foreign-qdisc\"}"), 1);
    setup.wait_for_log("conflict: e0: foreign-qdisc (pfifo); the queueing discipline stays");
    // The foreign queue remains over two checks.
    std::thread::sleep(Duration::from_millis(3200));
    assert_eq!(setup.dir.read("log").matches("foreign-qdisc").count(), 1);
    assert!(setup.hosts.tc("qdisc").contains("qdisc pfifo 5: root"), "{}", setup.hosts.tc("qdisc"));
    setup.tc("qdisc del dev e0 root");
    setup.assert_restored("queues after the foreign root was deleted", || setup.classes("e0") == before);
    setup.wait_for_conflicts(&[]);
    setup.wait_for_log("conflict resolved: e0: foreign-qdisc (pfifo)");
    assert_eq!(setup.metric("weir_interface_conflicts{reason=\"foreign-qdisc\"}"), 0);
    setup.stop("e0");
}

#[test]
fn stopped_agent_restores_the_administrators_queue_after_a_repair() {
    let prepare = |hosts: &HostPair| {
        let line = ["qdisc", "replace", "dev", "e0", "root", "handle", "5:", "pfifo", "limit", "77"];
        assert!(hosts.command_on_host("tc").args(line).status().unwrap().success());
    };
    let Some(setup) = AgentSetup::up_prepared("before", prepare) else { return };
    let before = setup.classes("e0");
    setup.tc("qdisc del dev e0 root");
    setup.assert_restored("queues after their root was deleted", || setup.classes("e0") == before);
    let AgentSetup { mut agent, hosts: pair, .. } = setup;
    agent.interrupt();
    assert!(pair.tc("qdisc").contains("qdisc pfifo 5: root refcnt"), "{}", pair.tc("qdisc"));
    assert!(pair.tc("qdisc").contains("limit 77p"), "{}", pair.tc("qdisc"));
}

#[test]
fn stopped_agent_restores_the_administrators_mq_and_a_later_one_is_a_conflict() {
    let qdiscs = |hosts: &HostPair| {
        let output =
            hosts.command_on_host("tc").args(["qdisc", "show", "dev", "m0"]).output().unwrap().stdout;
        let mut lines: Vec<String> = String::from_utf8(output).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = RefCell::default();
    let prepare = |hosts: &HostPair| {
        let ip = "link add m0 numtxqueues 4 type veth peer name m1 numrxqueues 4\nlink set m0 up\nlink set m1 up\n";
        hosts.network.run_ip("a", ip).unwrap();
        let tc = "qdisc add dev m0 root handle 1: mq\nqdisc add dev m0 parent 1:3 handle 5: pfifo limit 77\n";
        hosts.network.run_tc("a", tc).unwrap();
        before.replace(qdiscs(hosts));
    };
    let Some(setup) = AgentSetup::up_with_interfaces("mq", &["e0", "m0"], prepare) else { return };
    let classes = setup.classes("m0");
    setup.tc("qdisc replace dev m0 root handle 1: mq");
    setup.wait_for_conflicts(&["m0: foreign-qdisc (mq)"]);
    setup.tc("qdisc add dev m0 parent 1:3 handle 6: htb");
    setup.wait_for_conflicts(&["m0: foreign-qdisc (mq with htb)"]);
    assert!(qdiscs(&setup.hosts).iter().any(|line| line.contains("htb 6: parent 1:3")));
    setup.tc("qdisc del dev m0 root");
    setup.assert_restored("queues after the foreign root was deleted", || setup.classes("m0") == classes);
    setup.wait_for_conflicts(&[]);
    let AgentSetup { mut agent, hosts, .. } = setup;
    agent.interrupt();
    assert_eq!(qdiscs(&hosts), before.take());
}

#[test]
fn refused_tc_command_is_reported_as_conflict_and_retried() {
    let Some(setup) = AgentSetup::up("refused") else { return };
    let before = setup.classes("e0");
    // Another process adds a class below one of the agent's classes. The kernel then refuses a queue for the
    // agent's class.
    setup.tc("class add dev e0 parent 7765:100 classid 7765:900 htb rate 1Mbit");
    wait_within(START_TIMEOUT, "a conflict", || {
        setup.conflicts().iter().any(|text| text.starts_with("e0: refused ("))
    });
    assert_eq!(setup.metric("weir_interface_conflicts{reason=\"refused\"}"), 1);
    setup.wait_for_log("the agent tries again after 1 s to 60 s");
    setup.tc("class del dev e0 classid 7765:900");
    wait_within(START_TIMEOUT, "queues after the class was deleted", || setup.classes("e0") == before);
    setup.wait_for_conflicts(&[]);
    setup.stop("e0");
}

/// An interface that takes the name of an agent's interface gets no second set of queues.
#[test]
fn interface_renamed_to_a_missing_interface_keeps_its_own_queues() {
    let prepare = |hosts: &HostPair| {
        for line in ["link add e1 type veth peer name peer1", "link set peer1 up", "link set e1 up"] {
            assert!(hosts.command_on_host("ip").args(line.split(' ')).status().unwrap().success(), "{line}");
        }
    };
    let Some(setup) = AgentSetup::up_with_interfaces("swap", &["e0", "e1"], prepare) else { return };
    wait_within(START_TIMEOUT, "queues of both", || setup.classes("e1").len() == setup.classes("e0").len());
    let before = setup.classes("e1");
    setup.ip("link del e1");
    setup.wait_for_conflicts(&["e1: missing"]);
    setup.ip("link set e0 down");
    setup.ip("link set e0 name e1");
    setup.ip("link set e1 up");
    setup.wait_for_log("e0: renamed from e0 to e1");
    std::thread::sleep(RESTORE_TIMEOUT);
    setup.wait_for_conflicts(&["e1: missing"]);
    assert_eq!(setup.metric("weir_restored_objects_total{kind=\"queues\"}"), 0);
    assert_eq!(setup.classes("e1"), before);
    setup.stop("e1");
}

#[test]
fn agent_reattaches_detached_bpf_programs() {
    let Some(setup) = AgentSetup::up("detach") else { return };
    wait_within(START_TIMEOUT, "marks", || setup.packets_are_marked());
    let (restored, mut count) = ("weir_restored_objects_total{kind=\"programs\"}", 0);
    // The pinned files of the programs at the cgroup and at the interface.
    for file in setup.bpf_files().iter().filter(|name| name.contains('-')) {
        let path = setup.hosts.bpf_folder().join(file);
        if !run_bpf_script("bpf(34, u32(fd))", path.to_str().unwrap()) {
            return;
        }
        count += 1;
        setup.assert_restored(&format!("programs after {file} was detached"), || {
            setup.metric(restored) == count && setup.packets_are_marked()
        });
    }
    assert_eq!(count, 2);
    setup.wait_for_log("restored 1 BPF programs");
    setup.stop("e0");
}

#[test]
fn agent_attaches_its_program_again_before_one_that_ends_the_chain() {
    let Some(setup) = AgentSetup::up("overtaken") else { return };
    wait_within(START_TIMEOUT, "marks", || setup.packets_are_marked());
    // A program that accepts all packets, before all others at the egress (BPF_TCX_EGRESS, BPF_F_BEFORE).
    let script = r#"
import socket
code = ctypes.create_string_buffer(bytes.fromhex("b7000000000000009500000000000000"))
text = ctypes.create_string_buffer(b"GPL")
program = bpf(5, u32(3, 2), u64(ctypes.addressof(code), ctypes.addressof(text)))
bpf(8, u32(socket.if_nametoindex(sys.argv[1]), program, 47, 8))
"#;
    if Command::new("python3").arg("--version").output().is_err() {
        return eprintln!("overtaken skips, since python3 is missing");
    }
    let mut python = setup.hosts.command_on_host("python3");
    let output = python.args(["-c", &format!("{BPF_FUNCTIONS}{script}"), "e0"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    setup.wait_for_log("attached 1 BPF programs again before those of other owners");
    wait_within(START_TIMEOUT, "marks, again", || setup.packets_are_marked());
    setup.stop("e0");
}

#[test]
fn agent_restores_deleted_bpf_files_and_map_entries() {
    let Some(setup) = AgentSetup::up("maps") else { return };
    wait_within(START_TIMEOUT, "marks", || setup.packets_are_marked());
    let before = setup.bpf_files();
    assert!(before.len() >= 8, "{before:?}");
    for file in &before {
        fs::remove_file(setup.hosts.bpf_folder().join(file)).unwrap();
    }
    setup.assert_restored("files after they were deleted", || setup.bpf_files() == before);
    assert!(setup.packets_are_marked());
    setup.wait_for_restored_count("maps");
    setup.wait_for_restored_count("programs");
    for file in &before {
        fs::remove_file(setup.hosts.bpf_folder().join(file)).unwrap();
    }
    fs::remove_dir(setup.hosts.bpf_folder()).unwrap();
    setup.assert_restored("files after their folder was deleted", || setup.bpf_files() == before);
    assert!(setup.packets_are_marked());
    // Deletes all entries of the map of classes: gets the first key, deletes it, and repeats.
    let script = "
key = ctypes.create_string_buffer(8)
bpf(4, u32(fd, 0), u64(0, ctypes.addressof(key)))
bpf(3, u32(fd, 0), u64(ctypes.addressof(key)))
";
    if run_bpf_script(script, setup.hosts.bpf_folder().join("priorities").to_str().unwrap()) {
        setup.assert_restored("marks after the application's class was deleted", || {
            setup.packets_are_marked()
        });
    }
    // Deletes an entry of the map of applications, and waits until it exists again.
    let script = "
import time
key, value = ctypes.create_string_buffer(8), ctypes.create_string_buffer(1)
bpf(4, u32(fd, 0), u64(0, ctypes.addressof(key)))
bpf(3, u32(fd, 0), u64(ctypes.addressof(key)))
lookup = ctypes.create_string_buffer(u32(fd, 0) + u64(ctypes.addressof(key), ctypes.addressof(value)), 128)
end = time.time() + 60
while libc.syscall(NR, 1, lookup, 128) < 0:
    if time.time() > end:
        sys.exit('the application was not restored')
    time.sleep(0.02)
";
    run_bpf_script(script, setup.hosts.bpf_folder().join("applications").to_str().unwrap());
    setup.stop("e0");
}

#[test]
fn interface_that_goes_down_and_up_keeps_its_queues() {
    let Some(setup) = AgentSetup::up("updown") else { return };
    let before = setup.classes("e0");
    setup.ip("link set e0 down");
    setup.wait_for_conflicts(&["e0: down"]);
    assert_eq!(setup.metric("weir_interface_conflicts{reason=\"down\"}"), 1);
    setup.wait_for_log("e0: down");
    setup.ip("link set e0 up");
    setup.wait_for_conflicts(&[]);
    setup.wait_for_log("e0: up");
    assert_eq!(setup.classes("e0"), before);
    assert!(setup.packets_are_marked());
    setup.stop("e0");
}

#[test]
fn renamed_interface_keeps_its_queues_and_is_still_restored() {
    let Some(setup) = AgentSetup::up("rename") else { return };
    let before = setup.classes("e0");
    setup.ip("link set e0 down");
    setup.ip("link set e0 name lan0");
    setup.ip("link set lan0 up");
    setup.wait_for_log("e0: renamed from e0 to lan0");
    assert_eq!(setup.classes("lan0"), before);
    setup.tc("qdisc del dev lan0 root");
    setup.assert_restored("queues of a renamed interface", || setup.classes("lan0") == before);
    assert!(setup.packets_are_marked());
    setup.wait_for_conflicts(&[]);
    setup.stop("lan0");
}

#[test]
fn classes_follow_the_mtu_of_an_interface_without_offload() {
    let Some(setup) = AgentSetup::up("mtu") else { return };
    let before = setup.classes("e0");
    setup.ip("link set e0 gso_max_segs 1");
    // The kernel does not report this change.
    wait_within(START_TIMEOUT, "bursts of one packet", || setup.classes("e0") != before);
    let before_mtu_change = setup.classes("e0");
    setup.ip("link set e0 mtu 9000");
    setup.assert_restored("bursts of larger packets", || setup.classes("e0") != before_mtu_change);
    setup.wait_for_log("e0: MTU changed from 1500 to 9000");
    // No other process changed the queues.
    assert_eq!(setup.metric("weir_restored_objects_total{kind=\"queues\"}"), 0);
    setup.stop("e0");
}

#[test]
fn recreated_interface_gets_queues_and_programs() {
    let Some(setup) = AgentSetup::up("recreate") else { return };
    let (before, files) = (setup.classes("e0"), setup.bpf_files().len());
    setup.ip("link del e0");
    setup.wait_for_conflicts(&["e0: missing"]);
    assert_eq!(setup.metric("weir_interface_conflicts{reason=\"missing\"}"), 1);
    let other_namespace = setup.hosts.network.namespace("b");
    setup.ip(&format!("link add e0 type veth peer name e0 netns {other_namespace}"));
    for (end, address) in [("a", 1), ("b", 2)] {
        let name = setup.hosts.network.namespace(end);
        setup.ip(&format!("-n {name} addr add 10.9.0.{address}/24 dev e0"));
        setup.ip(&format!("-n {name} link set e0 up"));
    }
    setup.assert_restored("queues of a recreated interface", || setup.classes("e0") == before);
    setup.assert_restored("marks at a recreated interface", || setup.packets_are_marked());
    setup.wait_for_conflicts(&[]);
    assert_eq!(setup.bpf_files().len(), files);
    setup.wait_for_log("e0: appeared as interface");
    setup.stop("e0");
}

/// The test sets the speed of a TAP device. The agent reads the speed from the namespace's `/sys`, which
/// exists under `ip netns exec` only; there the agent sees no cgroups, so the test has no applications.
#[test]
fn queues_share_the_speed_of_an_interface_that_becomes_slower_than_its_link() {
    let test = "speed";
    let Some(hosts) = HostPair::up(test) else { return };
    let dir = TestDir::new();
    dir.write("serve.toml", &CONFIG.replace("a = \"40Mbit\"", "a = \"5Gbit\""));
    if !hosts
        .command_on_host("ip")
        .args(["tuntap", "add", "dev", "t0", "mode", "tap"])
        .status()
        .unwrap()
        .success()
    {
        eprintln!("{test} skips, since this machine cannot create TAP devices");
        return;
    }
    assert!(hosts.command_on_host("ip").args(["link", "set", "t0", "up"]).status().unwrap().success());
    // A TAP device has a carrier while a program has it open.
    let hold_script = "
import fcntl, struct, time
device = open('/dev/net/tun', 'rb+', buffering=0)
fcntl.ioctl(device, 0x400454ca, struct.pack('16sH22x', b't0', 0x1002))
time.sleep(600)
";
    let holder = hosts.command_on_host("python3").args(["-c", hold_script]).spawn();
    let Ok(_holder) = holder.map(Process) else {
        eprintln!("{test} skips, since python3 is missing");
        return;
    };
    let set_speed = |megabits: u32| {
        let script = "
import array, fcntl, socket, struct, sys
command = array.array('B', struct.pack('I', 1) + bytes(40))
def ethtool():
    request = struct.pack('16sP', b't0', command.buffer_info()[0])
    fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8946, request)
ethtool()
struct.pack_into('I', command, 0, 2)
struct.pack_into('H', command, 12, int(sys.argv[1]))
ethtool()
";
        let status = hosts.command_on_host("python3").args(["-c", script, &megabits.to_string()]).status();
        status.is_ok_and(|status| status.success())
    };
    if !set_speed(10_000) {
        eprintln!("{test} skips, since python3 cannot set the speed of a TAP device");
        return;
    }
    let _coordinator = hosts.start_coordinator(&dir.path("serve.toml"));
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &hosts.network.namespace("a"), env!("CARGO_BIN_EXE_weir")]);
    command.args(["agent", "run", "--name", "a", "--rate", "5Gbit", "--interface", "t0", "--socket"]);
    command.arg(dir.path("local_socket")).stderr(File::create(dir.path("log")).unwrap());
    let mut agent = Process(command.spawn().unwrap());
    let has_root_rate = |rate: &str| {
        let output = hosts.command_on_host("tc").args(["class", "show", "dev", "t0"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .any(|line| line.starts_with("class htb 7765:1 ") && line.contains(&format!("rate {rate} ")))
    };
    let hosts_state = || hosts.request("GET", "/v1/hosts", "");
    wait_within(START_TIMEOUT, "queues of 5 Gbit/s", || has_root_rate("4950Mbit"));
    assert!(set_speed(1000));
    wait_within(START_TIMEOUT, "queues of 1 Gbit/s", || has_root_rate("990Mbit"));
    let metrics = || hosts.request("GET", "/metrics", "");
    wait_within(START_TIMEOUT, "a metric", || {
        metrics().contains("weir_interface_conflicts{reason=\"slow\"} 1\n")
    });
    wait_within(START_TIMEOUT, "a conflict", || hosts_state().contains("t0: slow (1Gbit)"));
    assert!(set_speed(10_000));
    wait_within(START_TIMEOUT, "queues of 5 Gbit/s again", || has_root_rate("4950Mbit"));
    wait_within(START_TIMEOUT, "the end of the conflict", || !hosts_state().contains("t0: slow"));
    let log = dir.read("log");
    assert!(log.contains("t0: speed changed from 10Gbit to 1Gbit"), "{log}");
    agent.interrupt();
}

/// The rate of a link differs between the agent's options and the coordinator's configuration.
#[test]
fn lower_rate_of_a_link_counts_and_the_difference_is_a_conflict() {
    let test = "differ";
    let Some(hosts) = HostPair::up(test) else { return };
    let dir = TestDir::new();
    dir.write("serve.toml", CONFIG);
    let _coordinator = hosts.start_coordinator(&dir.path("serve.toml"));
    for (rate, class_rate, detail) in [
        ("20Mbit", "19800Kbit", "e0: rate (40Mbit at the coordinator, 20Mbit in this agent's options)"),
        ("1Gbit", "39600Kbit", "e0: rate (40Mbit at the coordinator, 1Gbit in this agent's options)"),
    ] {
        let mut command = hosts.command_on_host(env!("CARGO_BIN_EXE_weir"));
        command.args(["agent", "run", "--name", "a", "--interface", "e0", "--rate", rate, "--socket"]);
        command.arg(dir.path("local_socket")).stderr(File::create(dir.path("log")).unwrap());
        let mut agent = Process(command.spawn().unwrap());
        let root_rate = format!("rate {class_rate} ceil {class_rate} ");
        wait_within(START_TIMEOUT, &root_rate, || hosts.tc("class").contains(&root_rate));
        wait_within(START_TIMEOUT, detail, || hosts.request("GET", "/v1/hosts", "").contains(detail));
        let metric = "weir_interface_conflicts{reason=\"rate\"} 1\n";
        wait_within(START_TIMEOUT, metric, || hosts.request("GET", "/metrics", "").contains(metric));
        let log = dir.read("log");
        assert!(log.contains(&format!("conflict: {detail}; the lower one counts")), "{log}");
        agent.interrupt();
    }
}

/// After SIGTERM, queues and marks stay for the next agent, and a process removes them if none follows.
#[test]
fn queues_stay_after_sigterm_until_the_next_agent_or_their_time() {
    let Some(mut setup) = AgentSetup::up("keep") else { return };
    let before = setup.hosts.tc("class");
    setup.agent.send_signal("TERM");
    assert!(setup.agent.0.wait().unwrap().success());
    assert!(setup.dir.read("log").contains("queues and marks stay for 60s"), "{}", setup.dir.read("log"));
    assert_eq!(setup.hosts.tc("class"), before);
    let mut command = setup.hosts.command_on_host(env!("CARGO_BIN_EXE_weir"));
    command.args([
        "agent",
        "run",
        "--name",
        "a",
        "--rate",
        "40Mbit",
        "--interface",
        "e0",
        "--keep-queues",
        "2s",
    ]);
    command.arg("--socket").arg(setup.dir.path("local_socket"));
    command.arg("--application").arg(format!("web={}:1", setup.group.path.display()));
    setup.agent = Process(command.stderr(File::create(setup.dir.path("log")).unwrap()).spawn().unwrap());
    wait_within(START_TIMEOUT, "a coordinator", || setup.dir.read("log").contains("has a coordinator"));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(setup.hosts.tc("class"), before);
    setup.agent.send_signal("TERM");
    assert!(setup.agent.0.wait().unwrap().success());
    assert_eq!(setup.hosts.tc("class"), before);
    wait_within(START_TIMEOUT, "the removal of queues", || setup.hosts.tc("class").is_empty());
    assert!(setup.hosts.tc("qdisc").starts_with("qdisc noqueue"), "{}", setup.hosts.tc("qdisc"));
}

/// Two agents at one interface would undo each other's queues, and the exit of one would remove those of the other.
#[test]
fn second_agent_at_an_interface_is_refused_with_the_holders_name() {
    let Some(mut setup) = AgentSetup::up("second") else { return };
    let before = setup.hosts.tc("class");
    let run = |words: &str| {
        let mut command = setup.hosts.command_on_host(env!("CARGO_BIN_EXE_weir"));
        let output = command.arg("agent").args(words.split(' ')).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let agent_run =
        format!("run --name b --rate 40Mbit --interface e0 --socket {}", setup.dir.path("other").display());
    let holder = format!("the queues of e0 are kept by process {} (", setup.agent.0.id());
    // `cleanup` begins with the traffic of applications, which only one agent of a network namespace observes.
    let (code, stderr) = run("cleanup");
    assert!(code == Some(1) && stderr.contains("another agent runs in this network namespace"), "{stderr}");
    for words in [&*agent_run, "queues --interface e0 --rate 40Mbit --weights 1:1"] {
        let (code, stderr) = run(words);
        assert!(code == Some(1) && stderr.contains(&holder), "{words}: {code:?} {stderr}");
        assert!(stderr.contains(" agent run --name a "), "{words}: {stderr}");
    }
    assert_eq!(setup.hosts.tc("class"), before);
    // The kernel frees the lock of a killed agent.
    setup.agent.0.kill().unwrap();
    setup.agent.0.wait().unwrap();
    assert_eq!(run("cleanup").0, Some(0));
}
