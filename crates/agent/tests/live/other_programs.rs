//! Tests the agent next to BPF programs, queues and interfaces of other owners, as container networks set them up. The table "Next to other
//! programs" of `docs/agent.md` names the test of each row. Without the privileges or the compiler, these tests print that and skip.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::maps::Array;
use aya::programs::links::LinkOrder;
use aya::programs::tc::{NlOptions, TcAttachOptions};
use aya::programs::{Program, SchedClassifier, TcAttachType};
use weir_agent::batch::run_tool;
use weir_agent::traffic::{ByteCheck, EventKind, Traffic, read_sent_bytes};

use crate::group::TestCgroup;
use crate::namespace_pair::{NamespacePair, interface};
use crate::pods::{
    HOST, PEER, Sender, create_host, route_pods, run_at, set_up_queues, start_at, start_traffic,
    wait_for_quarter,
};
use crate::programs::{application_rules, has_program, read_events};
use crate::wait::wait_for;

/// When another owner attaches its programs or sets up its queues.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    BeforeAgent,
    AfterAgent,
}

const ORDERS: [Order; 2] = [Order::BeforeAgent, Order::AfterAgent];

/// How another owner attaches a program to a cgroup (`BPF_F_ALLOW_...`).
#[derive(Clone, Copy)]
enum CgroupMode {
    Exclusive = 0,
    Override = 1,
    Multi = 2,
}

/// A program of another owner, which counts its runs. A program at an interface is detached when this is dropped; one at a cgroup when the
/// cgroup is removed.
struct OtherProgram {
    bpf: Ebpf,
}

impl OtherProgram {
    fn load() -> OtherProgram {
        static OBJECT: OnceLock<Vec<u8>> = OnceLock::new();
        let object = OBJECT.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let object = folder.path().join("other_programs.o");
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/other_programs.c");
            let headers = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
            let mut clang = Command::new("clang");
            clang.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-idirafter", &headers, "-c"]);
            assert!(clang.arg(source).arg("-o").arg(&object).status().unwrap().success());
            std::fs::read(object).unwrap()
        });
        OtherProgram { bpf: Ebpf::load(object).unwrap() }
    }

    fn at_interface(
        name: &str,
        interface: &str,
        attach_type: TcAttachType,
        options: TcAttachOptions,
    ) -> OtherProgram {
        let mut other = OtherProgram::load();
        let program: &mut SchedClassifier = other.bpf.program_mut(name).unwrap().try_into().unwrap();
        program.load().unwrap();
        program.attach_with_options(interface, attach_type, options).unwrap();
        other
    }

    /// Attaches a program with `BPF_PROG_ATTACH`, as programs without links do. Returns the kernel's error if it refuses.
    fn at_cgroup(name: &str, group: &Path, mode: CgroupMode) -> Result<OtherProgram, String> {
        let mut other = OtherProgram::load();
        let program = other.bpf.program_mut(name).unwrap();
        let attach_type = match program {
            Program::CgroupSkb(program) => program.load().map(|()| u32::from(name == "egress")),
            Program::CgroupSockAddr(program) => program.load().map(|()| 10),
            Program::CgroupSockopt(program) => program.load().map(|()| 22),
            Program::SockOps(program) => program.load().map(|()| 3),
            _ => panic!("{name}: not a program for cgroups"),
        };
        let pin = format!("/sys/fs/bpf/weir-test-{}-{name}", std::process::id());
        program.pin(&pin).unwrap();
        let script = "
import ctypes, os, struct, sys
pin, cgroup, attach_type, flags = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
number = {'x86_64': 321, 'aarch64': 280}[os.uname().machine]
def bpf(command, attributes):
    result = libc.syscall(number, command, ctypes.create_string_buffer(attributes, 128), 128)
    if result < 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    return result
path = ctypes.create_string_buffer(pin.encode())
program = bpf(7, struct.pack('QII', ctypes.addressof(path), 0, 0))
bpf(8, struct.pack('IIII', os.open(cgroup, os.O_RDONLY), program, int(attach_type), int(flags)))
";
        let [attach_type, flags] = [attach_type.unwrap(), mode as u32].map(|number| number.to_string());
        let mut python = Command::new("python3");
        python.args(["-c", script, &pin]).arg(group).args([attach_type, flags]);
        let output = python.output().unwrap();
        std::fs::remove_file(&pin).unwrap();
        let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Ok(other) } else { Err(error) }
    }

    fn runs(&self) -> u64 {
        let runs: Array<_, u64> = self.bpf.map("runs").unwrap().try_into().unwrap();
        runs.get(&0, 0).unwrap()
    }
}

/// Whether a test can build programs and attach them to cgroups.
fn has_tools(test: &str) -> bool {
    has_program(test, "clang") && has_program(test, "python3")
}

fn clsact_options() -> TcAttachOptions {
    TcAttachOptions::Netlink(NlOptions { priority: 1, ..NlOptions::default() })
}

/// The cgroups of the classes 1 and 2.
fn create_groups(test: &str, order: Order) -> [TestCgroup; 2] {
    [1, 2].map(|class| TestCgroup::new(&format!("{test}-{order:?}-{class}")))
}

/// Waits until a pod in the cgroup of class 1 has a quarter next to the host in that of class 2.
fn check_pod_and_host(pair: &NamespacePair, groups: &[TestCgroup; 2]) {
    let pod = Sender::start(pair, &groups[0], "c", PEER);
    let host = Sender::start(pair, &groups[1], "a", PEER);
    wait_for_quarter([&pod, &host]);
}

/// Waits until all programs of another owner run, while a program of the cgroup sends from the host, and one from a pod.
fn check_that_all_run(pair: &NamespacePair, group: &TestCgroup, others: &[OtherProgram]) {
    let before: Vec<u64> = others.iter().map(OtherProgram::runs).collect();
    let _senders = ["a", "c"].map(|node| Sender::start(pair, group, node, PEER));
    wait_for("runs of all programs", || {
        others.iter().zip(&before).all(|(other, &before)| other.runs() > before)
    });
}

/// With the agent, shares are those of the weights, and the programs of the other owner run; without it, they still run.
fn check_shares_next_to(
    test: &str,
    pair: &NamespacePair,
    order: Order,
    attach: impl Fn(&[TestCgroup; 2]) -> Vec<OtherProgram>,
) {
    let groups = create_groups(test, order);
    let early = (order == Order::BeforeAgent).then(|| attach(&groups));
    let Some(traffic) = start_traffic(test, &[(&groups[0], 1), (&groups[1], 2)]) else { return };
    set_up_queues();
    let others = early.unwrap_or_else(|| attach(&groups));
    check_pod_and_host(pair, &groups);
    check_that_all_run(pair, &groups[0], &others);
    assert_eq!(traffic.stop().unwrap(), 0);
    assert!(interface().restore().unwrap());
    check_that_all_run(pair, &groups[0], &others);
}

#[test]
fn clsact_programs_of_another_owner_and_shares_coexist() {
    let test = "clsact";
    let Some(pair) = create_host(test).filter(|_| has_program(test, "clang")) else { return };
    route_pods(&pair, HOST);
    pair.network().run_tc("a", "qdisc add dev e0 clsact\nqdisc add dev p1 clsact\n").unwrap();
    for order in ORDERS {
        check_shares_next_to(test, &pair, order, |_| {
            let attach = |interface, attach_type| {
                OtherProgram::at_interface("accept", interface, attach_type, clsact_options())
            };
            let ends =
                [("e0", TcAttachType::Egress), ("e0", TcAttachType::Ingress), ("p1", TcAttachType::Ingress)];
            ends.map(|(interface, attach_type)| attach(interface, attach_type)).into()
        });
    }
    assert!(run_tool("tc", &["qdisc", "show", "dev", "e0"]).unwrap().contains("qdisc clsact ffff:"));
}

#[test]
fn tcx_programs_of_another_owner_and_shares_coexist() {
    let test = "tcx";
    let Some(pair) = create_host(test).filter(|_| has_program(test, "clang")) else { return };
    route_pods(&pair, HOST);
    for order in ORDERS {
        check_shares_next_to(test, &pair, order, |_| {
            // A program that ends the chain is the last one, also if the agent starts later.
            let ends =
                [("e0", TcAttachType::Egress), ("e0", TcAttachType::Ingress), ("p1", TcAttachType::Ingress)];
            let attach = |(interface, attach_type)| {
                let attach = |name, order| {
                    let options = TcAttachOptions::TcxOrder(order);
                    OtherProgram::at_interface(name, interface, attach_type, options)
                };
                [
                    attach("pass_on", LinkOrder::first()),
                    attach("pass_on", LinkOrder::last()),
                    attach("accept", LinkOrder::last()),
                ]
            };
            ends.into_iter().flat_map(attach).collect()
        });
    }
}

/// Waits until the comparison of bytes reports this conflict, while a program of class 1 sends.
fn wait_for_byte_conflict(traffic: &Traffic, detail: &str) {
    let mut check = ByteCheck::default();
    // At 50 Mbit/s, packets of this time exceed the tolerance more than twice.
    let mut compare = || {
        thread::sleep(Duration::from_millis(500));
        let conflicts = check.compare(read_sent_bytes(traffic.marked_bytes().unwrap()).unwrap());
        conflicts.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    wait_for(detail, || compare() == [format!("e0: unmarked ({detail})")]);
}

#[test]
fn programs_that_take_the_mark_are_a_conflict() {
    let test = "takemark";
    let Some(pair) = create_host(test).filter(|_| has_program(test, "clang")) else { return };
    let group = TestCgroup::new(test);
    let Some(traffic) = start_traffic(test, &[(&group, 1)]) else { return };
    set_up_queues();
    let _sender = Sender::start(&pair, &group, "a", PEER);
    pair.network().run_tc("a", "qdisc add dev e0 clsact\n").unwrap();
    let other = OtherProgram::at_interface("clear_mark", "e0", TcAttachType::Egress, clsact_options());
    wait_for_byte_conflict(&traffic, "packets with mark 1 leave in another queue");
    drop(other);
    // A program before the agent's that ends the chain.
    let first = TcAttachOptions::TcxOrder(LinkOrder::first());
    let other = OtherProgram::at_interface("accept", "e0", TcAttachType::Egress, first);
    wait_for_byte_conflict(
        &traffic,
        "packets do not reach the agent's program at the interface, after another one",
    );
    drop(other);
    assert_eq!(traffic.stop().unwrap(), 0);
}

#[test]
fn programs_that_others_were_attached_before_are_attached_again() {
    let test = "overtaken";
    let Some(pair) = create_host(test).filter(|_| has_program(test, "clang")) else { return };
    route_pods(&pair, HOST);
    let groups = create_groups(test, Order::AfterAgent);
    let Some(mut traffic) = start_traffic(test, &[(&groups[0], 1), (&groups[1], 2)]) else { return };
    set_up_queues();
    let restore_order = |traffic: &mut Traffic| {
        let changes = traffic.order_check().run().unwrap();
        traffic.apply_order(changes).unwrap()
    };
    assert_eq!(restore_order(&mut traffic), 0);
    let ends = [("e0", TcAttachType::Egress), ("p1", TcAttachType::Ingress)];
    let others = ends.map(|(interface, attach_type)| {
        let first = TcAttachOptions::TcxOrder(LinkOrder::first());
        OtherProgram::at_interface("accept", interface, attach_type, first)
    });
    assert_eq!((restore_order(&mut traffic), restore_order(&mut traffic)), (2, 0));
    assert!(traffic.inspection().is_intact());
    check_pod_and_host(&pair, &groups);
    check_that_all_run(&pair, &groups[0], &others);
    assert_eq!(traffic.stop().unwrap(), 0);
}

#[test]
fn cgroup_programs_of_another_owner_and_shares_coexist() {
    let test = "othercgroup";
    let Some(pair) = create_host(test).filter(|_| has_tools(test)) else { return };
    route_pods(&pair, HOST);
    for order in ORDERS {
        check_shares_next_to(test, &pair, order, |groups| {
            let attach = |name| OtherProgram::at_cgroup(name, &groups[0].path, CgroupMode::Multi).unwrap();
            let others = ["egress", "ingress", "connect4", "observe"].map(attach);
            let setsockopt = attach("setsockopt");
            let script =
                "import socket; socket.socket().setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)";
            assert!(groups[0].command("python3").args(["-c", script]).status().unwrap().success());
            assert_eq!(setsockopt.runs(), 1);
            others.into()
        });
    }
}

/// Whether a program of a cgroup that connects to the peer runs the program of another owner.
fn runs_at_connection(pair: &NamespacePair, group: &TestCgroup, other: &OtherProgram) -> bool {
    let before = other.runs();
    let sender = Sender::start(pair, group, "a", PEER);
    wait_for("data", || sender.received() > 0);
    other.runs() > before
}

#[test]
fn exclusive_sockops_programs_are_refused_or_refuse_the_agent() {
    let test = "exclusive";
    let Some(pair) = create_host(test).filter(|_| has_tools(test)) else { return };
    let (first, outer) = (TestCgroup::new(test), TestCgroup::new(&format!("{test}-outer")));
    let inner = TestCgroup::new(&format!("{test}-outer/inner"));
    // The agent first.
    let Some(mut traffic) = start_traffic(test, &[(&first, 1)]) else { return };
    let refused = OtherProgram::at_cgroup("observe", &first.path, CgroupMode::Exclusive);
    assert_eq!(refused.err().as_deref(), Some("Operation not permitted"));
    let _sender = Sender::start(&pair, &first, "a", PEER);
    assert_eq!(read_events(&mut traffic, |list| !list.is_empty())[0].kind, EventKind::Opened);
    assert_eq!(traffic.stop().unwrap(), 0);
    // The other owner first, at the cgroup or around it.
    let other = OtherProgram::at_cgroup("observe", &outer.path, CgroupMode::Exclusive).unwrap();
    for group in [&outer, &inner] {
        let refused = Traffic::start(&application_rules(&[(group, 1)]), &[interface()]).err().unwrap();
        let refused = refused.to_string();
        assert!(refused.contains(&group.path.display().to_string()), "{refused}");
        assert!(refused.contains("Operation not permitted"), "{refused}");
        assert!(weir_agent::traffic::cleanup().unwrap());
    }
    assert!(runs_at_connection(&pair, &inner, &other));
}

/// A program with `BPF_F_ALLOW_OVERRIDE` does not run in inner cgroups that have programs: its owner has allowed this.
#[test]
fn sockops_program_around_an_application_with_override_stops_there_until_the_agent_stops() {
    let test = "override";
    let Some(pair) = create_host(test).filter(|_| has_tools(test)) else { return };
    let outer = TestCgroup::new(test);
    let groups = ["inner", "inner2", "other"].map(|name| TestCgroup::new(&format!("{test}/{name}")));
    let other = OtherProgram::at_cgroup("observe", &outer.path, CgroupMode::Override).unwrap();
    let Some(traffic) = start_traffic(test, &[(&groups[0], 1), (&groups[1], 2)]) else { return };
    set_up_queues();
    let senders = [0, 1].map(|index| Sender::start(&pair, &groups[index], "a", PEER));
    wait_for_quarter([&senders[0], &senders[1]]);
    drop(senders);
    assert!(!runs_at_connection(&pair, &groups[0], &other));
    assert!(runs_at_connection(&pair, &groups[2], &other));
    assert_eq!(traffic.stop().unwrap(), 0);
    assert!(runs_at_connection(&pair, &groups[0], &other));
}

/// A program that replaces the flags of a connection takes its events from the agent, which restores them.
#[test]
fn connections_whose_events_another_program_replaces_keep_their_class_and_get_their_events_back() {
    let test = "replaceevents";
    let Some(pair) = create_host(test).filter(|_| has_tools(test)) else { return };
    let groups = create_groups(test, Order::AfterAgent);
    let Some(mut traffic) = start_traffic(test, &[(&groups[0], 1), (&groups[1], 2)]) else { return };
    set_up_queues();
    let other = OtherProgram::at_cgroup("replace_events", &groups[0].path, CgroupMode::Multi).unwrap();
    let senders = [0, 1].map(|index| Sender::start(&pair, &groups[index], "a", PEER));
    wait_for_quarter([&senders[0], &senders[1]]);
    assert!(other.runs() > 0);
    assert_eq!(read_events(&mut traffic, |list| list.len() == 2).len(), 2);
    let connections_with_bytes = || {
        let connections = traffic.connections().unwrap();
        connections.iter().filter(|(_, connection)| connection.sent > 0).count()
    };
    assert_eq!(connections_with_bytes(), 1);
    let Some(sweep) = traffic.resume_sweep() else {
        return eprintln!("a part of {test} skips before Linux 6.12");
    };
    assert_eq!((sweep.run().unwrap(), sweep.run().unwrap()), (1, 0));
    wait_for("bytes of both connections", || connections_with_bytes() == 2);
    drop(senders);
    let closed = read_events(&mut traffic, |list| list.len() == 2);
    assert!(closed.iter().all(|event| event.kind == EventKind::Closed), "{closed:?}");
}

/// What the agent must not touch: the queues and filters of a pod's interfaces at the host.
fn read_bandwidth_plugin() -> Vec<String> {
    let show = |object: &[&str]| run_tool("tc", object).unwrap();
    [
        show(&["qdisc", "show", "dev", "p1"]),
        show(&["qdisc", "show", "dev", "i1"]),
        show(&["filter", "show", "dev", "p1", "parent", "ffff:"]),
    ]
    .into()
}

/// As the bandwidth plugin of container networks limits a pod: `tbf` at its interface limits the packets to it, and `tbf` at an `ifb`
/// those from it.
#[test]
fn bandwidth_plugin_limits_a_pod_whose_share_is_its_weight_below() {
    let test = "tbf";
    let Some(pair) = create_host(test) else { return };
    route_pods(&pair, HOST);
    let tc = |lines: &str| pair.network().run_tc("a", lines).unwrap();
    let tbf = |verb: &str, interface: &str, rate: &str| {
        tc(&format!("qdisc {verb} dev {interface} root tbf rate {rate} burst 256kb latency 25ms\n"));
    };
    for order in ORDERS {
        let set_up_plugin = || {
            run_at(&pair, "a", "link add i1 type ifb\nlink set i1 up\n");
            tbf("add", "p1", "30mbit");
            tbf("add", "i1", "30mbit");
            let redirect = "u32 match u32 0 0 action mirred egress redirect dev i1";
            tc(&format!(
                "qdisc add dev p1 ingress\nfilter add dev p1 parent ffff: protocol all prio 1 {redirect}\n"
            ));
        };
        let groups = create_groups(test, order);
        if order == Order::BeforeAgent {
            set_up_plugin();
        }
        let Some(traffic) = start_traffic(test, &[(&groups[0], 1), (&groups[1], 2)]) else { return };
        set_up_queues();
        if order == Order::AfterAgent {
            set_up_plugin();
        }
        let before = read_bandwidth_plugin();
        let pod = Sender::start(&pair, &groups[0], "c", PEER);
        let host = Sender::start(&pair, &groups[1], "a", PEER);
        // A quarter of 50 Mbit/s is below the plugin's limit.
        wait_for_quarter([&pod, &host]);
        assert_eq!(read_bandwidth_plugin(), before);
        // The plugin's limit is below the quarter: the host gets the rest.
        tbf("change", "i1", "5mbit");
        wait_for("5 Mbit/s of the pod", || {
            let [pod, host] = measure_mbit_of([&pod, &host]);
            eprintln!("{pod:.2} and {host:.2} Mbit of payload");
            pod < 5.2 && pod > 4.0 && host > 40.0
        });
        drop([pod, host]);
        tbf("change", "i1", "30mbit");
        assert_eq!(traffic.stop().unwrap(), 0);
        assert!(interface().restore().unwrap());
        assert_eq!(read_bandwidth_plugin(), before);
        tc("qdisc del dev p1 root\nqdisc del dev p1 ingress\n");
        run_at(&pair, "a", "link del i1\n");
    }
}

fn measure_mbit_of(senders: [&Sender; 2]) -> [f64; 2] {
    let before = senders.map(Sender::received);
    let start_time = Instant::now();
    thread::sleep(Duration::from_secs(1));
    let elapsed_secs = start_time.elapsed().as_secs_f64();
    let after = senders.map(Sender::received);
    [0, 1].map(|index| (after[index] - before[index]) as f64 * 8e-6 / elapsed_secs)
}

/// A program that sends the packets of a tun device to the other end of its tunnel over UDP.
const TUNNEL_PROGRAM: &str = "
import fcntl, os, select, socket, struct, sys
tun = os.open('/dev/net/tun', os.O_RDWR)
# TUNSETIFF with IFF_TUN and IFF_NO_PI.
fcntl.ioctl(tun, 0x400454ca, struct.pack('16sH22x', b'tun0', 0x1001))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((sys.argv[1], 5555))
udp.connect((sys.argv[2], 5555))
while True:
    for ready in select.select([tun, udp], [], [])[0]:
        try:
            if ready is udp:
                os.write(tun, udp.recv(2048))
            else:
                udp.send(os.read(tun, 2048))
        except OSError:
            pass
";

/// The class of packets in the tunnel of a program is that of the tunnel's program, whatever the class of the program that sends them.
#[test]
fn packets_of_a_tun_device_have_the_class_of_the_program_that_reads_it() {
    let test = "tun";
    let Some(pair) = create_host(test).filter(|_| has_program(test, "python3")) else { return };
    let (groups, end) = (create_groups(test, Order::AfterAgent), TestCgroup::new(&format!("{test}-end")));
    let Some(traffic) = start_traffic(test, &[(&groups[0], 1), (&groups[1], 2)]) else { return };
    set_up_queues();
    let mut tunnel = Vec::new();
    for (node, group, local, remote, number) in [("a", &groups[0], HOST, PEER, 1), ("b", &end, PEER, HOST, 2)]
    {
        let lines = "tuntap add dev tun0 mode tun\nlink set tun0 mtu 1400 up\n";
        run_at(&pair, node, &format!("{lines}addr add 10.9.6.{number}/24 dev tun0\n"));
        tunnel.push(start_at(&pair, group, node, "python3", &["-c", TUNNEL_PROGRAM, local, remote]));
    }
    let inside = Sender::start(&pair, &groups[1], "a", "10.9.6.2");
    let direct = Sender::start(&pair, &groups[1], "a", PEER);
    wait_for("data inside the tunnel", || inside.received() > 0);
    wait_for_quarter([&inside, &direct]);
    assert_eq!(traffic.stop().unwrap(), 0);
    for mut program in tunnel {
        program.kill().unwrap();
        program.wait().unwrap();
    }
}
