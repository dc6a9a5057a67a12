//! An agent restores the objects that other processes remove from its interfaces and from the kernel. Each
//! test covers a row of the table "What the agent restores" of `docs/agent.md`. The tests skip without the
//! privileges.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Place, wait_within};
use crate::group::Group;
use crate::pair::{Pair, Process};

/// The documented time to restore an object is 1 s. A busy machine gets 3 s; the check without notifications
/// runs after 5 s.
const SOON: Duration = Duration::from_secs(3);

const START: Duration = Duration::from_secs(20);

const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\nqueues = \"services\"\n\
                      [listen]\nagents = \"127.0.0.1:7700\"\napi = \"127.0.0.1:7701\"\n\
                      [host]\na = \"40Mbit\"\nb = \"40Mbit\"\n[service.web]\nweight = 3\n[service.batch]\n";

/// A host with a coordinator and an agent that has configured its queues. Fields are dropped in this order.
struct World {
    agent: Process,
    _coordinator: Process,
    group: Group,
    place: Place,
    pair: Pair,
}

impl World {
    /// None if this machine cannot run the test, with a message.
    fn up(test: &str) -> Option<World> {
        World::prepared(test, |_| ())
    }

    /// Like `up`, with a function that prepares the pair before the agent starts.
    fn prepared(test: &str, prepare: impl FnOnce(&Pair)) -> Option<World> {
        World::with(test, &["e0"], prepare)
    }

    fn with(test: &str, interfaces: &[&str], prepare: impl FnOnce(&Pair)) -> Option<World> {
        let Some(pair) = Pair::up() else {
            eprintln!("{test} skips, since this machine makes no namespaces");
            return None;
        };
        let (place, group) = (Place::new(), Group::new(test));
        if !pair.finds(test, &group.path) {
            return None;
        }
        place.write("serve.toml", CONFIG);
        prepare(&pair);
        let coordinator = pair.serve(&place.path("serve.toml"));
        let mut command = pair.host(env!("CARGO_BIN_EXE_weir"));
        command.args(["agent", "run", "--host", "0", "--rate", "40Mbit"]);
        command.args(interfaces.iter().flat_map(|interface| ["--interface", interface]));
        command.arg("--socket").arg(place.path("local_socket"));
        command.arg("--application").arg(format!("web={}:1", group.path.display()));
        let agent = Process(command.stderr(File::create(place.path("log")).unwrap()).spawn().unwrap());
        let world = World { agent, _coordinator: coordinator, group, place, pair };
        wait_within(START, "queues", || world.classes("e0").len() >= 4);
        Some(world)
    }

    fn ip(&self, line: &str) {
        self.run("ip", line);
    }

    fn tc(&self, line: &str) {
        self.run("tc", line);
    }

    fn run(&self, program: &str, line: &str) {
        let output = self.pair.host(program).args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "{program} {line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The agent's classes at an interface, as `tc` prints them.
    fn classes(&self, interface: &str) -> Vec<String> {
        let output = self.pair.host("tc").args(["-d", "class", "show", "dev", interface]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<String> =
            text.lines().filter(|line| line.contains("7765:")).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    fn filters(&self) -> usize {
        let output =
            self.pair.host("tc").args(["filter", "show", "dev", "e0", "parent", "7765:"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().matches("flowid").count()
    }

    /// Waits until the agent has restored an object, and prints the time.
    fn soon(&self, what: &str, is_done: impl Fn() -> bool) {
        let began = Instant::now();
        wait_within(SOON, what, is_done);
        eprintln!("{what}: after {:.0} ms", began.elapsed().as_secs_f64() * 1e3);
    }

    fn logs(&self, text: &str) {
        wait_within(START, &format!("`{text}` in the agent's log"), || self.place.read("log").contains(text));
    }

    /// The host's conflicts, as `weir ctl hosts` prints them.
    fn conflicts(&self) -> Vec<String> {
        let mut ctl = self.pair.host(env!("CARGO_BIN_EXE_weir"));
        let output = ctl.args(["ctl", "hosts", "--format", "json"]).output().unwrap();
        let hosts: Value = serde_json::from_slice(&output.stdout).unwrap();
        let list = hosts[0]["conflicts"].as_array().unwrap();
        list.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    fn has_conflicts(&self, expected: &[&str]) {
        wait_within(START, &format!("conflicts {expected:?}"), || self.conflicts() == expected);
    }

    /// The value of a metric, given with its labels.
    fn metric(&self, name: &str) -> u64 {
        let text = self.pair.ask("GET", "/metrics", "");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().parse().unwrap()
    }

    fn counts(&self, kind: &str) {
        let name = format!("weir_restored_objects_total{{kind=\"{kind}\"}}");
        wait_within(START, &name, || self.metric(&name) > 0);
    }

    /// The agent's folder in the BPF file system.
    fn folder(&self) -> PathBuf {
        let number = fs::metadata(format!("/run/netns/{}", self.pair.name("a"))).unwrap().ino();
        PathBuf::from(format!("/sys/fs/bpf/weir/{number}-1"))
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder()).into_iter().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Whether a packet from the application's cgroup leaves the interface with its mark, so that the BPF
    /// programs are attached.
    fn packets_are_marked(&self) -> bool {
        let capture = self.pair.inside("b", || {
            let socket = std::net::UdpSocket::bind("10.9.0.2:0").unwrap();
            nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::IpRecvTos, &true).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            socket
        });
        let mut command = self.group.command("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.pair.name("a")));
        let port = capture.local_addr().unwrap().port();
        command.args(["bash", "-c", &format!("echo x > /dev/udp/10.9.0.2/{port}")]).stderr(Stdio::null());
        command.status().unwrap();
        received_tos(&capture) == Some(1 << 2)
    }

    /// Stops the agent, and asserts that nothing of it is left.
    fn stop(mut self, interface: &str) {
        self.agent.end();
        assert_eq!(self.classes(interface), Vec::<String>::new());
        assert_eq!(self.files(), Vec::<String>::new());
    }
}

/// The type-of-service byte of the next packet.
fn received_tos(socket: &std::net::UdpSocket) -> Option<u8> {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg};
    use std::io::IoSliceMut;
    use std::os::fd::AsRawFd;
    let mut bytes = [0; 16];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let mut space = nix::cmsg_space!(u8);
    let fd = socket.as_raw_fd();
    // `recvmsg` on a socket with a timeout waits like `recv`.
    let message = recvmsg::<SockaddrIn>(fd, &mut parts, Some(&mut space), MsgFlags::empty()).ok()?;
    message.cmsgs().ok()?.find_map(|part| match part {
        ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
        _ => None,
    })
}

/// Runs a Python script that calls bpf(2): many machines have no `bpftool`. Returns false without Python.
fn bpf(script: &str, path: &str) -> bool {
    const HEAD: &str = r#"
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
path = ctypes.create_string_buffer(sys.argv[1].encode())
fd = bpf(7, u64(ctypes.addressof(path)), u32(0, 0))
"#;
    let Ok(output) = Command::new("python3").args(["-c", &format!("{HEAD}{script}"), path]).output() else {
        eprintln!("this part skips, since there is no python3");
        return false;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

#[test]
fn agent_restores_a_deleted_root_queue() {
    let Some(world) = World::up("root") else { return };
    let (before, filters) = (world.classes("e0"), world.filters());
    for _ in 0..3 {
        world.tc("qdisc del dev e0 root");
        world.soon("queues after their root was deleted", || {
            world.classes("e0") == before && world.filters() == filters
        });
    }
    world.logs("e0: restored ");
    world.counts("queues");
    assert_eq!(world.conflicts(), Vec::<String>::new());
    world.stop("e0");
}

#[test]
fn agent_restores_a_changed_class_and_a_deleted_filter() {
    let Some(world) = World::up("class") else { return };
    let (before, filters) = (world.classes("e0"), world.filters());
    world.tc("class change dev e0 parent 7765:1 classid 7765:100 htb rate 1Mbit ceil 1Mbit");
    world.soon("a class after it was changed", || world.classes("e0") == before);
    world.tc("filter del dev e0 parent 7765: protocol ip pref 30565");
    world.soon("filters after they were deleted", || world.filters() == filters);
    world.counts("queues");
    world.stop("e0");
}

#[test]
fn foreign_root_qdisc_stays_and_is_a_conflict_until_it_is_deleted() {
    let Some(world) = World::up("foreign") else { return };
    let before = world.classes("e0");
    world.tc("qdisc replace dev e0 root handle 5: pfifo limit 77");
    world.has_conflicts(&["e0: foreign-qdisc (pfifo)"]);
    assert_eq!(world.metric("weir_interface_conflicts{reason=\"foreign-qdisc\"}"), 1);
    world.logs("conflict: e0: foreign-qdisc (pfifo); it stays");
    // The foreign queue remains over two checks.
    std::thread::sleep(Duration::from_millis(3200));
    assert_eq!(world.place.read("log").matches("foreign-qdisc").count(), 1);
    assert!(world.pair.tc("qdisc").contains("qdisc pfifo 5: root"), "{}", world.pair.tc("qdisc"));
    world.tc("qdisc del dev e0 root");
    world.soon("queues after the foreign root was deleted", || world.classes("e0") == before);
    world.has_conflicts(&[]);
    world.logs("conflict resolved: e0: foreign-qdisc (pfifo)");
    assert_eq!(world.metric("weir_interface_conflicts{reason=\"foreign-qdisc\"}"), 0);
    world.stop("e0");
}

#[test]
fn stopped_agent_restores_the_administrators_queue_after_a_repair() {
    let prepare = |pair: &Pair| {
        let line = ["qdisc", "replace", "dev", "e0", "root", "handle", "5:", "pfifo", "limit", "77"];
        assert!(pair.host("tc").args(line).status().unwrap().success());
    };
    let Some(world) = World::prepared("before", prepare) else { return };
    let before = world.classes("e0");
    world.tc("qdisc del dev e0 root");
    world.soon("queues after their root was deleted", || world.classes("e0") == before);
    let World { mut agent, pair, .. } = world;
    agent.end();
    assert!(pair.tc("qdisc").contains("qdisc pfifo 5: root refcnt"), "{}", pair.tc("qdisc"));
    assert!(pair.tc("qdisc").contains("limit 77p"), "{}", pair.tc("qdisc"));
}

#[test]
fn refused_tc_command_is_reported_as_conflict_and_retried() {
    let Some(world) = World::up("refused") else { return };
    let before = world.classes("e0");
    // Another process adds a class below one of the agent's classes. The kernel then refuses a queue for the
    // agent's class.
    world.tc("class add dev e0 parent 7765:100 classid 7765:900 htb rate 1Mbit");
    wait_within(START, "a conflict", || {
        world.conflicts().iter().any(|text| text.starts_with("e0: refused ("))
    });
    assert_eq!(world.metric("weir_interface_conflicts{reason=\"refused\"}"), 1);
    world.logs("the agent tries again after 1 s to 60 s");
    world.tc("class del dev e0 classid 7765:900");
    wait_within(START, "queues after the class was deleted", || world.classes("e0") == before);
    world.has_conflicts(&[]);
    world.stop("e0");
}

/// An interface that takes the name of an agent's interface gets no second set of queues.
#[test]
fn interface_renamed_to_a_missing_interface_keeps_its_own_queues() {
    let prepare = |pair: &Pair| {
        for line in ["link add e1 type veth peer name peer1", "link set peer1 up", "link set e1 up"] {
            assert!(pair.host("ip").args(line.split(' ')).status().unwrap().success(), "{line}");
        }
    };
    let Some(world) = World::with("swap", &["e0", "e1"], prepare) else { return };
    wait_within(START, "queues of both", || world.classes("e1").len() == world.classes("e0").len());
    let before = world.classes("e1");
    world.ip("link del e1");
    world.has_conflicts(&["e1: missing"]);
    world.ip("link set e0 down");
    world.ip("link set e0 name e1");
    world.ip("link set e1 up");
    world.logs("e0: renamed from e0 to e1");
    std::thread::sleep(SOON);
    world.has_conflicts(&["e1: missing"]);
    assert_eq!(world.metric("weir_restored_objects_total{kind=\"queues\"}"), 0);
    assert_eq!(world.classes("e1"), before);
    world.stop("e1");
}

#[test]
fn agent_reattaches_detached_bpf_programs() {
    let Some(world) = World::up("detach") else { return };
    wait_within(START, "marks", || world.packets_are_marked());
    let (restored, mut count) = ("weir_restored_objects_total{kind=\"programs\"}", 0);
    // The pinned files of the programs at the cgroup and at the interface.
    for file in world.files().iter().filter(|name| name.contains('-')) {
        let path = world.folder().join(file);
        if !bpf("bpf(34, u32(fd))", path.to_str().unwrap()) {
            return;
        }
        count += 1;
        world.soon(&format!("programs after {file} was detached"), || {
            world.metric(restored) == count && world.packets_are_marked()
        });
    }
    assert_eq!(count, 3);
    world.logs("restored 1 BPF programs");
    world.stop("e0");
}

#[test]
fn agent_restores_deleted_bpf_files_and_map_entries() {
    let Some(world) = World::up("maps") else { return };
    wait_within(START, "marks", || world.packets_are_marked());
    let before = world.files();
    assert!(before.len() >= 8, "{before:?}");
    for file in &before {
        fs::remove_file(world.folder().join(file)).unwrap();
    }
    world.soon("files after they were deleted", || world.files() == before);
    assert!(world.packets_are_marked());
    world.counts("maps");
    world.counts("programs");
    for file in &before {
        fs::remove_file(world.folder().join(file)).unwrap();
    }
    fs::remove_dir(world.folder()).unwrap();
    world.soon("files after their folder was deleted", || world.files() == before);
    assert!(world.packets_are_marked());
    // Deletes all entries of the map of classes: gets the first key, deletes it, and repeats.
    let script = "
key = ctypes.create_string_buffer(16)
bpf(4, u32(fd, 0), u64(0, ctypes.addressof(key)))
bpf(3, u32(fd, 0), u64(ctypes.addressof(key)))
";
    if bpf(script, world.folder().join("classes").to_str().unwrap()) {
        world.soon("marks after the application's class was deleted", || world.packets_are_marked());
    }
    world.stop("e0");
}

#[test]
fn interface_that_goes_down_and_up_keeps_its_queues() {
    let Some(world) = World::up("updown") else { return };
    let before = world.classes("e0");
    world.ip("link set e0 down");
    world.has_conflicts(&["e0: down"]);
    assert_eq!(world.metric("weir_interface_conflicts{reason=\"down\"}"), 1);
    world.logs("e0: down");
    world.ip("link set e0 up");
    world.has_conflicts(&[]);
    world.logs("e0: up");
    assert_eq!(world.classes("e0"), before);
    assert!(world.packets_are_marked());
    world.stop("e0");
}

#[test]
fn renamed_interface_keeps_its_queues_and_is_still_restored() {
    let Some(world) = World::up("rename") else { return };
    let before = world.classes("e0");
    world.ip("link set e0 down");
    world.ip("link set e0 name lan0");
    world.ip("link set lan0 up");
    world.logs("e0: renamed from e0 to lan0");
    assert_eq!(world.classes("lan0"), before);
    world.tc("qdisc del dev lan0 root");
    world.soon("queues of a renamed interface", || world.classes("lan0") == before);
    assert!(world.packets_are_marked());
    world.has_conflicts(&[]);
    world.stop("lan0");
}

#[test]
fn classes_follow_the_mtu_of_an_interface_without_offload() {
    let Some(world) = World::up("mtu") else { return };
    let before = world.classes("e0");
    world.ip("link set e0 gso_max_segs 1");
    // The kernel does not report this change.
    wait_within(START, "bursts of one packet", || world.classes("e0") != before);
    let small = world.classes("e0");
    world.ip("link set e0 mtu 9000");
    world.soon("bursts of larger packets", || world.classes("e0") != small);
    world.logs("e0: MTU changed from 1500 to 9000");
    // No other process changed the queues.
    assert_eq!(world.metric("weir_restored_objects_total{kind=\"queues\"}"), 0);
    world.stop("e0");
}

#[test]
fn recreated_interface_gets_queues_and_programs() {
    let Some(world) = World::up("recreate") else { return };
    let (before, files) = (world.classes("e0"), world.files().len());
    world.ip("link del e0");
    world.has_conflicts(&["e0: missing"]);
    assert_eq!(world.metric("weir_interface_conflicts{reason=\"missing\"}"), 1);
    let other = world.pair.name("b");
    world.ip(&format!("link add e0 type veth peer name e0 netns {other}"));
    for (end, address) in [("a", 1), ("b", 2)] {
        let name = world.pair.name(end);
        world.ip(&format!("-n {name} addr add 10.9.0.{address}/24 dev e0"));
        world.ip(&format!("-n {name} link set e0 up"));
    }
    world.soon("queues of a recreated interface", || world.classes("e0") == before);
    world.soon("marks at a recreated interface", || world.packets_are_marked());
    world.has_conflicts(&[]);
    assert_eq!(world.files().len(), files);
    world.logs("e0: appeared as interface");
    world.stop("e0");
}

/// The test sets the speed of a TAP device. The agent reads the speed from the namespace's `/sys`, which
/// exists under `ip netns exec` only; there the agent sees no cgroups, so the test has no applications.
#[test]
fn queues_share_the_speed_of_an_interface_that_becomes_slower_than_its_link() {
    let test = "speed";
    let Some(pair) = Pair::up() else {
        eprintln!("{test} skips, since this machine makes no namespaces");
        return;
    };
    let place = Place::new();
    place.write("serve.toml", &CONFIG.replace("a = \"40Mbit\"", "a = \"5Gbit\""));
    if !pair.host("ip").args(["tuntap", "add", "dev", "t0", "mode", "tap"]).status().unwrap().success() {
        eprintln!("{test} skips, since this machine makes no TAP devices");
        return;
    }
    assert!(pair.host("ip").args(["link", "set", "t0", "up"]).status().unwrap().success());
    // A TAP device has a carrier while a program has it open.
    let hold = "
import fcntl, struct, time
device = open('/dev/net/tun', 'rb+', buffering=0)
fcntl.ioctl(device, 0x400454ca, struct.pack('16sH22x', b't0', 0x1002))
time.sleep(600)
";
    let holder = pair.host("python3").args(["-c", hold]).spawn();
    let Ok(_holder) = holder.map(Process) else {
        eprintln!("{test} skips, since there is no python3");
        return;
    };
    let set = |megabits: u32| {
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
        let done = pair.host("python3").args(["-c", script, &megabits.to_string()]).status();
        done.is_ok_and(|status| status.success())
    };
    if !set(10_000) {
        eprintln!("{test} skips, since there is no python3 that sets the speed of a TAP device");
        return;
    }
    let _coordinator = pair.serve(&place.path("serve.toml"));
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &pair.name("a"), env!("CARGO_BIN_EXE_weir")]);
    command.args(["agent", "run", "--host", "0", "--rate", "5Gbit", "--interface", "t0", "--socket"]);
    command.arg(place.path("local_socket")).stderr(File::create(place.path("log")).unwrap());
    let mut agent = Process(command.spawn().unwrap());
    let whole = |rate: &str| {
        let output = pair.host("tc").args(["class", "show", "dev", "t0"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .any(|line| line.starts_with("class htb 7765:1 ") && line.contains(&format!("rate {rate} ")))
    };
    let hosts = || pair.ask("GET", "/v1/hosts", "");
    wait_within(START, "queues of 5 Gbit/s", || whole("5Gbit"));
    assert!(set(1000));
    wait_within(START, "queues of 1 Gbit/s", || whole("1Gbit"));
    let metrics = || pair.ask("GET", "/metrics", "");
    wait_within(START, "a metric", || metrics().contains("weir_interface_conflicts{reason=\"slow\"} 1\n"));
    wait_within(START, "a conflict", || hosts().contains("t0: slow (1Gbit)"));
    assert!(set(10_000));
    wait_within(START, "queues of 5 Gbit/s again", || whole("5Gbit"));
    wait_within(START, "the end of the conflict", || !hosts().contains("t0: slow"));
    let log = place.read("log");
    assert!(log.contains("t0: speed changed from 10Gbit to 1Gbit"), "{log}");
    agent.end();
}
