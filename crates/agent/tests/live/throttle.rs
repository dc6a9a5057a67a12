//! Tests the counts and limits of UDP by the BPF programs, in a pair of namespaces. Without the privileges or the compiler, these tests
//! print that and skip.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::group::TestCgroup;
use crate::kernel::{CounterReading, RateBounds};
use crate::namespace_pair::{NamespacePair, interface};
use crate::programs::{PythonProgram, application_rules, has_program, start_traffic};
use crate::wait::wait_for;
use weir_agent::traffic::Traffic;
use weir_core::units::Rate;
use weir_proto::{Mark, UdpControl, UdpFlow};

/// The sending rate, in bytes per second.
const SEND_RATE: f64 = 5e6;

/// The bytes of an IPv4 packet: a datagram of 1400 bytes, and headers.
const PACKET_BYTES: f64 = 1442.0;

const LONG_LEASE: Duration = Duration::from_secs(60);

/// The addresses of both ends, and the packets between them that a test sends.
struct Family {
    name: &'static str,
    src: &'static str,
    dst: &'static str,
    /// The bytes of a packet with a datagram of 1400 bytes.
    packet_bytes: u64,
    /// The bytes of a datagram of 4000 bytes in three fragments.
    fragment_bytes: u64,
    /// The bytes of a packet with a datagram of 1400 bytes behind extension headers; none without such headers.
    extended_bytes: Option<u64>,
}

const IPV4: Family = Family {
    name: "4",
    src: "10.9.0.1",
    dst: "10.9.0.2",
    packet_bytes: 1442,
    fragment_bytes: 2 * 1514 + 1082,
    extended_bytes: None,
};

/// The header is 20 bytes longer, fragments have one of 8 more, and each of the two extension headers has 8.
const IPV6: Family = Family {
    name: "6",
    src: "fd09::1",
    dst: "fd09::2",
    packet_bytes: 1462,
    fragment_bytes: 2 * 1510 + 1174,
    extended_bytes: Some(1478),
};

impl Family {
    /// The packets from this end to the other with a mark.
    fn udp_flow(&self, mark: u8) -> UdpFlow {
        let [src, dst] = [self.src, self.dst].map(|address| address.parse().unwrap());
        UdpFlow { src, dst, mark: Mark::new(mark).unwrap() }
    }
}

/// The IPv4 packets from this end to the other with a mark.
fn udp_flow(mark: u8) -> UdpFlow {
    IPV4.udp_flow(mark)
}

fn rate(bytes: f64) -> Rate {
    Rate::new(bytes).unwrap()
}

/// Starts counting at the other end, and opens a port at an address there.
fn start_counting(pair: &NamespacePair, address: &str) -> (Traffic, UdpSocket) {
    let address: IpAddr = address.parse().unwrap();
    let started = pair.run_at_peer(move || {
        let mut traffic = Traffic::start(&[], &[interface()]).unwrap();
        assert!(traffic.throttling().is_none());
        traffic.set_udp_control(Some(UdpControl::Throttling)).unwrap();
        (traffic, UdpSocket::bind((address, 0)).unwrap())
    });
    started.join().unwrap()
}

/// The bytes that have arrived.
fn arrived_bytes(counter: &mut Traffic, flow: UdpFlow) -> u64 {
    let list = counter.throttling().unwrap().byte_counts().unwrap();
    list.iter().find(|arrived| arrived.flow == flow).map_or(0, |arrived| arrived.bytes)
}

/// Waits until the arriving fraction of the sent bytes is within bounds.
fn wait_for_fraction(condition: &str, counter: &mut Traffic, low: f64, high: f64) {
    let mut measure_fraction = || -> RateBounds {
        let before = CounterReading::read(|| arrived_bytes(counter, udp_flow(1)));
        thread::sleep(Duration::from_secs(1));
        CounterReading::read(|| arrived_bytes(counter, udp_flow(1)))
            .rate_since(&before)
            .relative_to(SEND_RATE)
    };
    wait_for(condition, || {
        let fraction = measure_fraction();
        eprintln!("{condition}: {fraction:.3?} of the sent bytes");
        fraction.is_within(low, high)
    });
}

/// The datagrams that this end has sent.
fn sent_datagrams() -> u64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = statistics.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let column = names.split(' ').position(|name| name == "OutDatagrams").unwrap();
    values.split(' ').nth(column).unwrap().parse().unwrap()
}

/// Waits until every packet that the program sends arrives, also if the program sends below its rate.
fn wait_until_unlimited(condition: &str, counter: &mut Traffic) {
    wait_for(condition, || {
        let (sent_before, arrived_before) = (sent_datagrams(), arrived_bytes(counter, udp_flow(1)));
        thread::sleep(Duration::from_secs(1));
        let sent = (sent_datagrams() - sent_before) as f64 * PACKET_BYTES;
        let arrived = (arrived_bytes(counter, udp_flow(1)) - arrived_before) as f64;
        eprintln!("{condition}: {arrived} of {sent} bytes");
        sent > 0.5 * SEND_RATE && (0.95..1.05).contains(&(arrived / sent))
    });
}

#[test]
fn packets_count_as_they_are_on_the_wire() {
    check_counted_bytes(&IPV4);
}

#[test]
fn ipv6_packets_count_as_they_are_on_the_wire() {
    check_counted_bytes(&IPV6);
}

fn check_counted_bytes(family: &Family) {
    let test = &format!("arrivals{}", family.name);
    let group = TestCgroup::new(test);
    if !has_program(test, "python3") {
        return;
    }
    let Some((pair, traffic)) = start_traffic(test, &[(&group, 1)]) else { return };
    let (mut counter, sink) = start_counting(&pair, family.dst);
    // Single packets, batches of ten that the card splits, datagrams in three fragments, and packets with extension headers (a
    // hop-by-hop and a destination option each, of padding); then packets that do not count.
    let text = "
import socket, sys
address = (sys.argv[2], int(sys.argv[1]))
family = socket.AF_INET6 if ':' in sys.argv[2] else socket.AF_INET
s = socket.socket(family, socket.SOCK_DGRAM)
s.connect(address)
for _ in range(50):
    s.send(bytes(1400))
for _ in range(50):
    s.send(bytes(4000))
s.setsockopt(socket.IPPROTO_UDP, 103, 1400)
for _ in range(50):
    s.send(bytes(14000))
if family == socket.AF_INET6:
    s.setsockopt(socket.IPPROTO_UDP, 103, 0)
    padding = bytes([0, 0, 1, 4, 0, 0, 0, 0])
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_HOPOPTS, padding)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_DSTOPTS, padding)
    for _ in range(50):
        s.send(bytes(1400))
s = socket.socket(family, socket.SOCK_STREAM)
s.connect_ex(address)
";
    let (port, flow) = (sink.local_addr().unwrap().port().to_string(), family.udp_flow(1));
    let arguments = [port, family.dst.to_owned()];
    PythonProgram::start(&group, text, &arguments).wait_for_exit();
    let of_each = 11 * family.packet_bytes + family.fragment_bytes + family.extended_bytes.unwrap_or(0);
    wait_for("all packets", || arrived_bytes(&mut counter, flow) >= 50 * of_each);
    let throttling = counter.throttling().unwrap();
    let counts = throttling.byte_counts().unwrap();
    assert_eq!((counts.len(), counts[0].flow, counts[0].bytes), (1, flow, 50 * of_each));

    // A removed count starts again at zero. Removing a count that does not exist is no error.
    throttling.remove_byte_count(flow).unwrap();
    throttling.remove_byte_count(family.udp_flow(2)).unwrap();
    assert_eq!(throttling.byte_counts().unwrap(), []);
    // Packets without a class are not counted.
    let unmarked_socket = UdpSocket::bind((flow.src, 0)).unwrap();
    unmarked_socket.send_to(&[0; 1400], sink.local_addr().unwrap()).unwrap();
    let text = "
import socket, sys
s = socket.socket(socket.AF_INET6 if ':' in sys.argv[2] else socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(bytes(1400), (sys.argv[2], int(sys.argv[1])))
";
    PythonProgram::start(&group, text, &arguments).wait_for_exit();
    wait_for("a packet", || arrived_bytes(&mut counter, flow) > 0);
    let counts = counter.throttling().unwrap().byte_counts().unwrap();
    assert_eq!((counts.len(), counts[0].bytes), (1, family.packet_bytes));
    counter.stop().unwrap();
    traffic.stop().unwrap();
}

#[test]
fn udp_limit_holds_for_its_lease_and_path() {
    let test = "limits";
    let group = TestCgroup::new(test);
    if !has_program(test, "python3") {
        return;
    }
    let Some((pair, mut traffic)) = start_traffic(test, &[(&group, 1)]) else { return };
    let (mut counter, sink) = start_counting(&pair, IPV4.dst);
    let text = "
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(('10.9.0.2', int(sys.argv[1])))
due = time.monotonic()
while True:
    for _ in range(5):
        try:
            s.send(bytes(1400))
        except OSError:
            pass # the receiver has closed its socket
    due = max(due + 5 * 1442 / 5e6, time.monotonic() - 0.05)
    time.sleep(max(0, due - time.monotonic()))
";
    let _python = PythonProgram::start(&group, text, &[sink.local_addr().unwrap().port().to_string()]);
    traffic.set_udp_control(Some(UdpControl::Throttling)).unwrap();
    traffic.set_udp_control(Some(UdpControl::Throttling)).unwrap();
    let limits = traffic.throttling().unwrap();
    // Limits for other packets.
    limits.set_limit(udp_flow(2), rate(1e3), LONG_LEASE).unwrap();
    limits.set_limit(UdpFlow { dst: [10, 9, 0, 3].into(), ..udp_flow(1) }, rate(1e3), LONG_LEASE).unwrap();
    wait_until_unlimited("free", &mut counter);
    limits.set_limit(udp_flow(1), rate(0.4 * SEND_RATE), LONG_LEASE).unwrap();
    wait_for_fraction("limited", &mut counter, 0.38, 0.41);
    // Repeating a limit does not let more packets through.
    for _ in 0..100 {
        limits.set_limit(udp_flow(1), rate(0.2 * SEND_RATE), LONG_LEASE).unwrap();
    }
    wait_for_fraction("limited to less", &mut counter, 0.19, 0.205);
    // A packet that takes minutes at such a limit does not delay packets under the next limit.
    limits.set_limit(udp_flow(1), rate(1.0), LONG_LEASE).unwrap();
    wait_for_fraction("limited to nothing", &mut counter, 0.0, 0.01);
    limits.set_limit(udp_flow(1), rate(0.4 * SEND_RATE), LONG_LEASE).unwrap();
    wait_for_fraction("limited to more", &mut counter, 0.38, 0.41);
    limits.remove_limit(udp_flow(1)).unwrap();
    limits.remove_limit(udp_flow(1)).unwrap();
    wait_until_unlimited("free again", &mut counter);

    // The agent is killed: the limit ends with its lease.
    let lease = Duration::from_secs(4);
    limits.set_limit(udp_flow(1), rate(0.1 * SEND_RATE), lease).unwrap();
    let limited_at = Instant::now();
    drop(traffic);
    let before = CounterReading::read(|| arrived_bytes(&mut counter, udp_flow(1)));
    thread::sleep(Duration::from_secs(1));
    let fraction = CounterReading::read(|| arrived_bytes(&mut counter, udp_flow(1)))
        .rate_since(&before)
        .relative_to(SEND_RATE);
    assert!(limited_at.elapsed() > lease || fraction.may_be_under(0.15), "{fraction:?}");
    wait_until_unlimited("after its lease", &mut counter);

    // The next agent has no limit until it sets one.
    let mut traffic = Traffic::start(&application_rules(&[(&group, 1)]), &[interface()]).unwrap();
    assert!(traffic.throttling().is_none());
    traffic.set_udp_control(Some(UdpControl::Throttling)).unwrap();
    traffic.throttling().unwrap().set_limit(udp_flow(1), rate(0.4 * SEND_RATE), LONG_LEASE).unwrap();
    wait_for_fraction("limited by the next agent", &mut counter, 0.38, 0.41);
    traffic.set_udp_control(None).unwrap();
    assert!(traffic.throttling().is_none());
    wait_until_unlimited("throttling disabled", &mut counter);
    counter.stop().unwrap();
    traffic.stop().unwrap();
}

#[test]
fn sent_bytes_count_before_the_limit() {
    check_offered_bytes(&IPV4);
}

#[test]
fn sent_ipv6_bytes_count_before_the_limit() {
    check_offered_bytes(&IPV6);
}

fn check_offered_bytes(family: &Family) {
    let test = &format!("offers{}", family.name);
    let group = TestCgroup::new(test);
    if !has_program(test, "python3") {
        return;
    }
    let Some((pair, mut traffic)) = start_traffic(test, &[(&group, 1)]) else { return };
    let (mut counter, sink) = start_counting(&pair, family.dst);
    let (flow, packet_bytes) = (family.udp_flow(1), family.packet_bytes);
    traffic.set_udp_control(Some(UdpControl::Allocation)).unwrap();
    let send = |packets: u32| {
        let text = "
import socket, sys
s = socket.socket(socket.AF_INET6 if ':' in sys.argv[3] else socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[3], int(sys.argv[1])))
for _ in range(int(sys.argv[2])):
    s.send(bytes(1400))
";
        let port = sink.local_addr().unwrap().port().to_string();
        PythonProgram::start(&group, text, &[port, packets.to_string(), family.dst.to_owned()])
            .wait_for_exit();
    };
    let sent_bytes = |traffic: &mut Traffic| arrived_bytes(traffic, flow);
    send(50);
    assert_eq!(sent_bytes(&mut traffic), 50 * packet_bytes);
    wait_for("all packets", || arrived_bytes(&mut counter, flow) == 50 * packet_bytes);
    // At this limit, the burst of 100 ms passes one packet.
    traffic.throttling().unwrap().set_limit(flow, rate(1e3), LONG_LEASE).unwrap();
    send(50);
    assert_eq!(sent_bytes(&mut traffic), 100 * packet_bytes);
    let arrived = arrived_bytes(&mut counter, flow) / packet_bytes;
    assert!((50..60).contains(&arrived), "{arrived} packets have arrived");
    // Arriving packets do not count here, and a change counts from zero.
    traffic.set_udp_control(Some(UdpControl::Throttling)).unwrap();
    assert_eq!(traffic.throttling().unwrap().byte_counts().unwrap(), []);
    send(10);
    assert_eq!(traffic.throttling().unwrap().byte_counts().unwrap(), []);
    counter.stop().unwrap();
    traffic.stop().unwrap();
}

/// Creates a tunnel with an unusual port between both ends: 10.7.0.1 and 10.7.0.2.
fn add_tunnel(pair: &NamespacePair) {
    let lines = |local: u8, remote: u8| {
        format!(
            "link add x0 type vxlan id 5 local 10.9.0.{local} remote 10.9.0.{remote} dstport 4444 dev e0\n\
             addr add 10.7.0.{local}/24 dev x0\nlink set x0 up\n"
        )
    };
    let run =
        |lines: String| weir_agent::batch::run_batch(Command::new("ip"), "ip", String::new, &lines).unwrap();
    run(lines(1, 2));
    pair.run_at_peer(move || run(lines(2, 1))).join().unwrap();
}

#[test]
fn tunnels_neither_count_nor_have_a_limit() {
    let test = "tunnels";
    let group = TestCgroup::new(test);
    if !has_program(test, "python3") {
        return;
    }
    // The first agent is for the programs' check only.
    let Some((pair, traffic)) = start_traffic(test, &[(&group, 1)]) else { return };
    traffic.stop().unwrap();
    add_tunnel(&pair);
    // Packets have their class at the tunnel, and keep it in the packets around them.
    let interfaces = [interface(), "x0".parse().unwrap()];
    let mut traffic = Traffic::start(&application_rules(&[(&group, 1)]), &interfaces).unwrap();
    let (mut counter, _) = start_counting(&pair, IPV4.dst);
    let sink = pair.run_at_peer(|| UdpSocket::bind("10.7.0.2:0").unwrap()).join().unwrap();
    traffic.set_udp_control(Some(UdpControl::Throttling)).unwrap();
    let limits = traffic.throttling().unwrap();
    // At this limit, the burst of 100 ms passes one packet.
    limits.set_limit(udp_flow(1), rate(1e3), LONG_LEASE).unwrap();
    let send = |packets: u32| {
        let text = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(('10.7.0.2', int(sys.argv[1])))
for _ in range(int(sys.argv[2])):
    s.send(bytes(1000))
";
        let port = sink.local_addr().unwrap().port().to_string();
        PythonProgram::start(&group, text, &[port, packets.to_string()]).wait_for_exit();
    };
    let received = || {
        sink.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        std::iter::from_fn(|| sink.recv(&mut [0; 1500]).ok()).count()
    };
    // Without its port, the tunnel is UDP like any other.
    send(50);
    let before = received();
    assert!((1..10).contains(&before), "{before} packets have arrived");
    let counted = arrived_bytes(&mut counter, udp_flow(1));
    assert!(counted > 1000, "{counted}");

    let (ports, result) = weir_agent::tunnels::read_ports();
    result.unwrap();
    assert!(ports.contains(&4444) && ports.contains(&4789), "{ports:?}");
    limits.set_tunnel_ports(&ports).unwrap();
    counter.throttling().unwrap().set_tunnel_ports(&ports).unwrap();
    send(50);
    assert_eq!((received(), arrived_bytes(&mut counter, udp_flow(1))), (50, counted));

    // The device is removed: its port has a limit again.
    let without = &ports - &BTreeSet::from([4444]);
    limits.set_tunnel_ports(&without).unwrap();
    counter.throttling().unwrap().set_tunnel_ports(&without).unwrap();
    send(50);
    assert!(received() < 10);
    assert!(arrived_bytes(&mut counter, udp_flow(1)) > counted);
    counter.stop().unwrap();
    traffic.stop().unwrap();
}
