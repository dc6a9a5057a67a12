//! Tests that programs in pods, behind tunnels and in cgroups inside of each other get the shares of their classes. Pods are network
//! namespaces behind that of the host. Without the privileges or the compiler, these tests print that and skip.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::UdpSocket;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use weir_agent::queues::{DesiredQueues, Device, Interface, ReplaceableRoots, Shares};
use weir_agent::traffic::{ByteCheck, EventKind, Traffic, TrafficError, read_sent_bytes};
use weir_testbed::network::CableEnd;
use weir_testbed::testing;

use crate::capture::start_capture;
use crate::group::TestCgroup;
use crate::namespace_pair::{NamespacePair, interface};
use crate::programs::{application_rules, has_program, measure_mbit, read_events, start_receiver};
use crate::wait::wait_for;

/// The address of the host, at its interface `e0`.
pub const HOST: &str = "10.9.0.1";

/// The address of its peer.
pub const PEER: &str = "10.9.0.2";

/// A host `a` with its peer `b`, and two pods `c` and `d` whose interfaces `e0` are connected to `p1` and `p2` of the host.
pub fn create_host(test: &str) -> Option<NamespacePair> {
    let network = testing::network(test, &["a", "b", "c", "d"])?;
    let ends = [("a", HOST), ("b", PEER)].map(|(node, address)| CableEnd {
        node,
        interface: "e0",
        address: address.parse().unwrap(),
        prefix: 24,
    });
    network.add_cable(ends).unwrap();
    for (pod, end) in [("c", "p1"), ("d", "p2")] {
        let pod = network.namespace(pod);
        let lines = format!("link add {end} type veth peer name e0 netns {pod}\nlink set {end} up\n");
        network.run_ip("a", &lines).unwrap();
    }
    Some(NamespacePair::enter(network))
}

pub fn run_at(pair: &NamespacePair, node: &str, lines: &str) {
    pair.network().run_ip(node, lines).unwrap();
}

/// Gives each pod a subnet, to and from which the host routes. The peer sends to them through this address.
pub fn route_pods(pair: &NamespacePair, gateway: &str) {
    for (pod, end, subnet) in [("c", "p1", "10.9.1"), ("d", "p2", "10.9.2")] {
        run_at(pair, "a", &format!("addr add {subnet}.1/24 dev {end}\n"));
        let lines =
            format!("addr add {subnet}.2/24 dev e0\nlink set e0 up\nroute add default via {subnet}.1\n");
        run_at(pair, pod, &lines);
        run_at(pair, "b", &format!("route add {subnet}.0/24 via {gateway}\n"));
    }
}

/// Connects both pods to a bridge of the host, with this interface.
fn bridge_pods(pair: &NamespacePair, interface: &str, prefix: &str) {
    let lines = "link add br0 type bridge\nlink set br0 up\nlink set p1 master br0\nlink set p2 master br0\n";
    run_at(pair, "a", &format!("{lines}link set {interface} master br0\n"));
    for (pod, number) in [("c", 3), ("d", 4)] {
        run_at(pair, pod, &format!("addr add {prefix}.{number}/24 dev e0\nlink set e0 up\n"));
    }
}

/// Adds a VXLAN tunnel between host and peer, whose ends have these addresses.
fn add_tunnel(pair: &NamespacePair, addresses: [Option<&str>; 2]) {
    for (node, local, remote, address) in [("a", HOST, PEER, addresses[0]), ("b", PEER, HOST, addresses[1])] {
        let vxlan = format!("type vxlan id 7 dstport 4789 local {local} remote {remote} dev e0");
        run_at(pair, node, &format!("link add vx0 {vxlan}\nlink set vx0 up\n"));
        if let Some(address) = address {
            run_at(pair, node, &format!("addr add {address}/24 dev vx0\n"));
        }
    }
}

/// Sets up queues of 50 Mbit/s at the host's interface, with the weights 1 and 3 for the classes 1 and 2.
pub fn set_up_queues() {
    let desired = DesiredQueues::new(
        "50Mbit".parse().unwrap(),
        Device::read(&interface()).unwrap().segments,
        &Shares::by_weight(&[1.0, 3.0]),
        &BTreeMap::new(),
    );
    interface().reconcile(&desired.unwrap(), ReplaceableRoots::Restorable).unwrap();
}

/// Observes the traffic of these applications; none if the programs were not built.
pub fn start_traffic(test: &str, groups: &[(&TestCgroup, u8)]) -> Option<Traffic> {
    match Traffic::start(&application_rules(groups), &[interface()]) {
        Err(TrafficError::NotBuilt(why)) => {
            eprintln!("{test} skips, since the programs were not built: {why}");
            None
        }
        traffic => Some(traffic.unwrap()),
    }
}

/// Starts a program in a cgroup at a node.
pub fn start_at(pair: &NamespacePair, group: &TestCgroup, node: &str, program: &str, args: &[&str]) -> Child {
    let namespace = format!("--net=/run/netns/{}", pair.network().namespace(node));
    group.command("nsenter").args([&namespace, program]).args(args).spawn().unwrap()
}

/// Lets the host's end of a pod's interface merge packets (GRO), as some container networks do.
fn enable_gro(interface: &str) {
    // SIOCETHTOOL with ETHTOOL_SGRO and 1.
    let text = format!(
        "
import array, fcntl, socket, struct
value = array.array('B', struct.pack('II', 0x2c, 1))
request = struct.pack('16sP', b'{interface}', value.buffer_info()[0])
fcntl.ioctl(socket.socket(), 0x8946, request)
"
    );
    assert!(Command::new("python3").args(["-c", &text]).status().unwrap().success());
}

/// A program that sends until this is dropped, and how much of it has arrived.
pub struct Sender {
    program: Child,
    received_bytes: Arc<AtomicU64>,
}

impl Sender {
    /// Starts a program in a cgroup at a node, which sends to an address of the peer over TCP.
    pub fn start(pair: &NamespacePair, group: &TestCgroup, node: &str, address: &str) -> Sender {
        let (receiver, received_bytes) = start_receiver(pair, 0);
        let script = format!("exec cat /dev/zero > /dev/tcp/{address}/{}", receiver.port());
        let program = start_at(pair, group, node, "bash", &["-c", &script]);
        Sender { program, received_bytes }
    }

    /// Starts a program in a cgroup at a node, which sends UDP as fast as it can.
    fn start_udp(pair: &NamespacePair, group: &TestCgroup, node: &str) -> Sender {
        let received_bytes = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&received_bytes);
        let socket = pair.run_at_peer(|| UdpSocket::bind((PEER, 0)).unwrap()).join().unwrap();
        let port = socket.local_addr().unwrap().port();
        // Ends with the test program.
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok(length) = socket.recv(&mut buffer) {
                count.fetch_add(length as u64, Ordering::Relaxed);
            }
        });
        let text = format!(
            "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(('{PEER}', {port}))
while True:
    try:
        s.send(bytes(1400))
    except OSError:
        pass
"
        );
        let program = start_at(pair, group, node, "python3", &["-c", &text]);
        Sender { program, received_bytes }
    }

    pub fn received(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Waits until the first sender has a share of a quarter. Packets without a class would have less, and without queues about half.
pub fn wait_for_quarter(senders: [&Sender; 2]) {
    wait_for("a share of 0.25", || {
        let before = senders.map(Sender::received);
        thread::sleep(Duration::from_secs(1));
        let after = senders.map(Sender::received);
        let [light, heavy] = [0, 1].map(|index| (after[index] - before[index]) as f64);
        let share = light / (light + heavy);
        eprintln!("{:.2} Mbit of payload, share {share:.4}", (light + heavy) * 8e-6);
        (share - 0.25).abs() < 0.03
    });
}

/// Starts a sender of class 1 and one of class 2, each at a node and to an address, and waits for their shares.
pub fn check_shares(test: &str, pair: &NamespacePair, light: [&str; 2], heavy: [&str; 2]) {
    let groups = [TestCgroup::new(&format!("{test}-1")), TestCgroup::new(&format!("{test}-2"))];
    let Some(traffic) = start_traffic(test, &[(&groups[0], 1), (&groups[1], 2)]) else { return };
    set_up_queues();
    let senders = [
        Sender::start(pair, &groups[0], light[0], light[1]),
        Sender::start(pair, &groups[1], heavy[0], heavy[1]),
    ];
    wait_for_quarter([&senders[0], &senders[1]]);
    drop(senders);
    assert_eq!(traffic.stop().unwrap(), 0);
}

#[test]
fn routed_pods_share_with_each_other_and_the_host_by_weight() {
    let test = "routed";
    let Some(pair) = create_host(test) else { return };
    route_pods(&pair, HOST);
    check_shares(test, &pair, ["c", PEER], ["a", PEER]);
    check_shares(test, &pair, ["c", PEER], ["d", PEER]);
    if has_program(test, "python3") {
        enable_gro("p1");
        check_shares(test, &pair, ["c", PEER], ["a", PEER]);
    }
}

#[test]
fn udp_of_a_pod_shares_with_tcp_of_the_host_by_weight() {
    let test = "udppod";
    let Some(pair) = create_host(test) else { return };
    if !has_program(test, "python3") {
        return;
    }
    route_pods(&pair, HOST);
    let groups = [TestCgroup::new(&format!("{test}-1")), TestCgroup::new(&format!("{test}-2"))];
    let Some(traffic) = start_traffic(test, &[(&groups[0], 1), (&groups[1], 2)]) else { return };
    set_up_queues();
    let udp = Sender::start_udp(&pair, &groups[0], "c");
    let tcp = Sender::start(&pair, &groups[1], "a", PEER);
    wait_for_quarter([&udp, &tcp]);
    drop([udp, tcp]);
    assert_eq!(traffic.stop().unwrap(), 0);
}

/// Programs of a pod in a cgroup without a class cannot take the mark of a class. Marks that no application has stay.
#[test]
fn pod_does_not_choose_its_class() {
    let test = "forged";
    let Some(pair) = create_host(test) else { return };
    if !has_program(test, "python3") {
        return;
    }
    route_pods(&pair, HOST);
    let groups = [TestCgroup::new(&format!("{test}-1")), TestCgroup::new(&format!("{test}-2"))];
    let Some(traffic) = start_traffic(test, &[(&groups[0], 1)]) else { return };
    let marks_of = |group: &TestCgroup, tos: u8| {
        let ((receiver, _), capture) = (start_receiver(&pair, 0), start_capture(&pair));
        let text = format!(
            "
import socket
s = socket.socket()
s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, {tos})
s.connect(('{PEER}', {}))
s.sendall(bytes(100000))
s.shutdown(socket.SHUT_WR)
s.recv(1)
",
            receiver.port()
        );
        assert!(start_at(&pair, group, "c", "python3", &["-c", &text]).wait().unwrap().success());
        let packets = capture.stop();
        // A closed socket's acknowledgement belongs to no cgroup.
        let marks = packets.iter().filter(|packet| packet.kind() != "ack").map(|packet| packet.mark);
        marks.collect::<BTreeSet<u8>>().into_iter().collect::<Vec<u8>>()
    };
    let [expedited, first] = [46, 1];
    assert_eq!(marks_of(&groups[1], expedited << 2), [expedited]);
    assert_eq!(marks_of(&groups[1], first << 2), [0]);
    assert_eq!(marks_of(&groups[0], expedited << 2), [first]);
    assert_eq!(traffic.stop().unwrap(), 0);
}

#[test]
fn programs_follow_pods_that_appear_and_disappear() {
    let test = "laterpod";
    let Some(pair) = create_host(test) else { return };
    let group = TestCgroup::new(test);
    run_at(&pair, "a", "link del p1\n");
    let Some(mut traffic) = start_traffic(test, &[(&group, 5)]) else { return };
    let pod = pair.network().namespace("c");
    let send = |pair: &NamespacePair| {
        let (receiver, received) = start_receiver(pair, 0);
        let capture = start_capture(pair);
        let script = format!("echo x > /dev/tcp/{PEER}/{}", receiver.port());
        assert!(start_at(pair, &group, "c", "bash", &["-c", &script]).wait().unwrap().success());
        wait_for("a byte", || received.load(Ordering::Relaxed) > 0);
        let packets = capture.stop();
        packets.iter().filter(|packet| packet.kind() != "ack").map(|packet| packet.mark).collect::<Vec<u8>>()
    };
    for _ in 0..2 {
        run_at(&pair, "a", &format!("link add p1 type veth peer name e0 netns {pod}\nlink set p1 up\n"));
        route_pods(&pair, HOST);
        assert_eq!(traffic.refresh().unwrap(), 0);
        let marks = send(&pair);
        assert!(!marks.is_empty() && marks.iter().all(|&mark| mark == 5), "{marks:?}");

        // Another process removes the program.
        let index = Interface::index(&"p1".parse().unwrap()).unwrap();
        let pinned = fs::read_dir("/sys/fs/bpf/weir").unwrap().map(|entry| entry.unwrap().path());
        let pinned = pinned.map(|folder| folder.join(format!("{index}-from_pod"))).find(|path| path.exists());
        let pinned = pinned.expect("the program has a file");
        fs::remove_file(&pinned).unwrap();
        let mut search = || {
            let changes = traffic.path_search().run();
            traffic.apply_paths(changes).unwrap()
        };
        assert_eq!((search(), pinned.exists(), search()), (1, true, 0));

        run_at(&pair, "a", "link del p1\n");
        assert_eq!(traffic.refresh().unwrap(), 0);
        assert!(!pinned.exists() && traffic.inspection().is_intact());
        run_at(&pair, "b", "route del 10.9.1.0/24\nroute del 10.9.2.0/24\n");
        run_at(&pair, "a", "addr del 10.9.2.1/24 dev p2\n");
        run_at(&pair, "d", "addr del 10.9.2.2/24 dev e0\n");
    }
    assert_eq!(traffic.stop().unwrap(), 0);
}

/// As if a program of a container network sent an application's packets elsewhere.
#[test]
fn packets_that_leave_in_another_queue_are_a_conflict() {
    let test = "bypass";
    let Some(pair) = create_host(test) else { return };
    let group = TestCgroup::new(test);
    let Some(traffic) = start_traffic(test, &[(&group, 1)]) else { return };
    set_up_queues();
    let _sender = Sender::start(&pair, &group, "a", PEER);
    let mut check = ByteCheck::default();
    // At 50 Mbit/s, packets of this time exceed the tolerance more than twice.
    let mut compare = || {
        thread::sleep(Duration::from_millis(500));
        let conflicts = check.compare(read_sent_bytes(traffic.marked_bytes().unwrap()).unwrap());
        conflicts.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for _ in 0..4 {
        assert_eq!(compare(), Vec::<String>::new());
    }
    // A foreign filter selects the queue of other packets.
    let filter = "filter add dev e0 parent 7765: protocol ip pref 5 u32 match u32 0 0 flowid 7765:1ff\n";
    pair.network().run_tc("a", filter).unwrap();
    let detail = "packets with mark 1 leave in another queue";
    wait_for("a conflict", || compare() == [format!("e0: unmarked ({detail})")]);
    pair.network().run_tc("a", "filter del dev e0 parent 7765: pref 5\n").unwrap();
    wait_for("no conflict", || compare().is_empty());
}

/// The pacing rate of a pod's connection applies, and ends at the next acknowledgement.
#[test]
fn connection_of_a_pod_is_paced() {
    let test = "pacedpod";
    let Some(pair) = create_host(test) else { return };
    route_pods(&pair, HOST);
    let group = TestCgroup::new(test);
    let Some(mut traffic) = start_traffic(test, &[(&group, 1)]) else { return };
    let sender = Sender::start(&pair, &group, "c", PEER);
    let ends = read_events(&mut traffic, |list| !list.is_empty())[0].ends;
    assert_eq!(ends.local.ip().to_string(), "10.9.1.2");
    wait_for("a rate above the pacing rate", || measure_mbit(&traffic, ends, 0.5).min > 100.0);
    let rate = "20Mbit".parse().unwrap();
    assert!(traffic.set_pacing_rate(ends, Some(rate), Duration::from_secs(60)).unwrap());
    wait_for("the pacing rate", || measure_mbit(&traffic, ends, 1.0).is_within(15.0, 22.0));
    assert!(traffic.set_pacing_rate(ends, None, Duration::from_secs(60)).unwrap());
    wait_for("a rate above the pacing rate, again", || measure_mbit(&traffic, ends, 0.5).min > 100.0);
    assert!(traffic.set_pacing_rate(ends, Some(rate), Duration::from_secs(60)).unwrap());
    wait_for("the pacing rate, again", || measure_mbit(&traffic, ends, 1.0).is_within(15.0, 22.0));
    assert_eq!(traffic.stop().unwrap(), 0, "the connection keeps its pacing rate");
    drop(sender);
}

#[test]
fn routed_pods_behind_a_tunnel_share_by_weight() {
    let test = "routedtunnel";
    let Some(pair) = create_host(test) else { return };
    add_tunnel(&pair, [Some("10.9.5.1"), Some("10.9.5.2")]);
    route_pods(&pair, "10.9.5.1");
    check_shares(test, &pair, ["c", "10.9.5.2"], ["a", PEER]);
    check_shares(test, &pair, ["c", "10.9.5.2"], ["d", "10.9.5.2"]);
}

#[test]
fn bridged_pod_shares_with_the_host_by_weight() {
    let test = "bridged";
    let Some(pair) = create_host(test) else { return };
    bridge_pods(&pair, "e0", "10.9.0");
    run_at(&pair, "a", &format!("addr del {HOST}/24 dev e0\naddr add {HOST}/24 dev br0\n"));
    check_shares(test, &pair, ["c", PEER], ["a", PEER]);
    check_shares(test, &pair, ["a", PEER], ["d", PEER]);
    run_at(&pair, "c", "addr add fd09::3/64 dev e0 nodad\n");
    check_shares(test, &pair, ["c", "fd09::2"], ["a", PEER]);
}

#[test]
fn bridged_pods_behind_a_tunnel_share_by_weight() {
    let test = "bridgedtunnel";
    let Some(pair) = create_host(test) else { return };
    add_tunnel(&pair, [None, Some("10.9.5.2")]);
    bridge_pods(&pair, "vx0", "10.9.5");
    check_shares(test, &pair, ["c", "10.9.5.2"], ["d", "10.9.5.2"]);
    check_shares(test, &pair, ["c", "10.9.5.2"], ["a", PEER]);
}

#[test]
fn macvlan_pod_shares_with_the_host_by_weight() {
    let test = "macvlan";
    let Some(pair) = create_host(test) else { return };
    let pod = pair.network().namespace("c");
    run_at(&pair, "a", &format!("link add link e0 name m0 netns {pod} type macvlan mode bridge\n"));
    run_at(&pair, "c", "addr add 10.9.0.3/24 dev m0\nlink set m0 up\n");
    check_shares(test, &pair, ["c", PEER], ["a", PEER]);
}

#[test]
fn program_behind_a_tunnel_shares_with_direct_traffic_by_weight() {
    let test = "tunnel";
    let Some(pair) = create_host(test) else { return };
    add_tunnel(&pair, [Some("10.9.5.1"), Some("10.9.5.2")]);
    check_shares(test, &pair, ["a", "10.9.5.2"], ["a", PEER]);
    check_shares(test, &pair, ["a", PEER], ["a", "10.9.5.2"]);
}

#[test]
fn traffic_belongs_to_the_innermost_cgroup_with_a_class() {
    let test = "nested";
    let Some(pair) = create_host(test) else { return };
    let outer = TestCgroup::new(test);
    let inner = TestCgroup::new(&format!("{test}/inner"));
    let Some(mut traffic) = start_traffic(test, &[(&outer, 1)]) else { return };
    set_up_queues();
    let first = Sender::start(&pair, &outer, "a", PEER);
    let second = Sender::start(&pair, &inner, "a", PEER);
    read_events(&mut traffic, |list| list.len() == 2);
    let names = |traffic: &Traffic| {
        let list = traffic.connections().unwrap();
        let name = |id| traffic.application_name(id).unwrap().to_owned();
        let mut names: Vec<String> = list.iter().map(|(_, known)| name(known.application)).collect();
        names.sort();
        names
    };
    assert_eq!(names(&traffic), [&*outer.name, &*outer.name]);
    drop(traffic);

    // The next agent has the inner cgroup as another application, which takes over its connection.
    let mut rules = application_rules(&[(&outer, 1), (&inner, 2)]);
    rules[1].name = "inner".to_owned();
    let mut traffic = Traffic::start(&rules, &[interface()]).unwrap();
    wait_for_quarter([&first, &second]);
    let kinds: Vec<EventKind> =
        read_events(&mut traffic, |list| list.len() == 2).iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [EventKind::Closed, EventKind::Opened]);
    assert_eq!(names(&traffic), ["inner", &*outer.name]);

    // Without a class, the inner application has that of the outer one.
    assert!(traffic.set_class("inner", None).unwrap());
    let third = TestCgroup::new(&format!("{test}-2"));
    drop(first);
    drop(traffic);
    rules[1].class = None;
    rules.extend(application_rules(&[(&third, 2)]));
    let traffic = Traffic::start(&rules, &[interface()]).unwrap();
    let heavy = Sender::start(&pair, &third, "a", PEER);
    wait_for_quarter([&second, &heavy]);
    assert_eq!(traffic.stop().unwrap(), 0);
}
