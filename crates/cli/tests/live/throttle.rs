//! Tests rate throttling between agents: a host sends slightly more UDP than arrives, and other traffic uses the
//! rest of its link.
//! Processes run in namespaces, with certificates. The tests skip without the privileges or the BPF programs.
//!
//! Host `a` sends UDP to `b` and TCP to `c`. The link of `a` has 100 Mbit/s, the link of `b` 20 Mbit/s. The
//! switch between them runs the coordinator.

use std::env;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::certificates::Authority;
use crate::common::{TestDir, count_received_bytes, wait_within};
use crate::group::TestCgroup;
use crate::host_pair::{Process, start_in_group, start_sender};
use crate::kernel::{CounterReading, RateBounds, sent_by_class};
use crate::test_lock::{self, SharedLock};
use weir_testbed::network::{CableEnd, Network};
use weir_testbed::testing;

/// The capacities of the links of `a` and of `b`, in bytes per second.
const FIRST_LINK_BYTES_PER_SEC: f64 = 12.5e6;
const SECOND_LINK_BYTES_PER_SEC: f64 = 2.5e6;

/// The UDP source: bytes of a datagram, bytes of its packet, and bytes per second.
const DATAGRAM_BYTES: usize = 1400;
const PACKET_BYTES: f64 = 1442.0;
const UDP_BYTES_PER_SEC: f64 = 10e6;

/// The bursty UDP source: packets of a burst, and time between bursts. The mean rate is below the capacity of
/// both links.
const BURST_PACKETS: u32 = 20;
const BURST_INTERVAL: Duration = Duration::from_millis(40);

/// The addresses that receive UDP and TCP.
const UDP_RECEIVER: &str = "10.8.2.2:9000";
const UDP_IPV6_RECEIVER: &str = "[fd08:2::2]:9000";
const TCP_RECEIVER: &str = "10.8.3.2:9000";

/// The timeout of each step.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// The lease is longer than a busy machine delays a report. Each service has half of the first link while both
/// send.
const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\nlease = \"2s\"\nqueues = \"services\"\n\
                      [listen]\nagents = \"10.8.1.1:7700\"\napi = \"127.0.0.1:7701\"\n\
                      [tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nclients = \"authority.pem\"\n\
                      [host]\na = \"100Mbit\"\nb = \"20Mbit\"\nc = \"100Mbit\"\n\
                      [address]\na = [\"10.8.1.2\", \"fd08:1::2\"]\nb = [\"10.8.2.2\", \"fd08:2::2\"]\nc = [\"10.8.3.2\"]\n\
                      [service.udp]\n[service.tcp]\n";

/// A switch `s` and three hosts, which are deleted when dropped.
struct ThrottleNetwork {
    network: Network,
    dir: TestDir,
    _lock: SharedLock,
}

impl ThrottleNetwork {
    fn up(test: &str) -> Option<ThrottleNetwork> {
        let lock = test_lock::lock_shared();
        let network = testing::network(test, &["s", "a", "b", "c"])?;
        for (number, host) in [(1, "a"), (2, "b"), (3, "c")] {
            let port = format!("to-{host}");
            let end = |node, interface, last| CableEnd {
                node,
                interface,
                address: Ipv4Addr::new(10, 8, number, last),
                prefix: 24,
            };
            network.add_cable([end(host, "e0", 2), end("s", &port, 1)]).unwrap();
            network.run_ip("s", &format!("addr add fd08:{number}::1/64 dev {port} nodad\n")).unwrap();
            let routes = format!(
                "addr add fd08:{number}::2/64 dev e0 nodad\nroute add default via 10.8.{number}.1\n\
                 route add default via fd08:{number}::1\n"
            );
            network.run_ip(host, &routes).unwrap();
        }
        network.set("s", "ipv6/conf/all/forwarding", "1").unwrap();
        // The queues of the agent of `a` limit the first link.
        let second = SECOND_LINK_BYTES_PER_SEC * 8.0;
        let queue = format!("qdisc add dev to-b root tbf rate {second}bit burst 10000 limit 50000\n");
        network.run_tc("s", &queue).unwrap();
        Some(ThrottleNetwork { network, dir: TestDir::new(), _lock: lock })
    }

    fn weir_command(&self, node: &str, line: &str) -> Command {
        let mut command = self.network.command(node, env!("CARGO_BIN_EXE_weir"));
        command.args(line.split(' ')).current_dir(self.dir.path("."));
        command
    }

    /// Runs an ignored test of this binary as a process in a cgroup of host `a`.
    fn run_test_process(&self, group: &TestCgroup, test: &str) -> Process {
        let program = env::current_exe().unwrap();
        let words = [program.to_str().unwrap(), "--exact", test, "--ignored", "--nocapture"];
        start_in_group(&self.network, group, &words)
    }

    /// Starts the coordinator, with or without throttling.
    fn start_coordinator(&self, throttling: bool) -> Process {
        self.start_coordinator_with(&format!("throttling = {throttling}"))
    }

    /// Starts the coordinator, with more keys.
    fn start_coordinator_with(&self, keys: &str) -> Process {
        self.dir.write("serve.toml", &format!("{keys}\n{CONFIG}"));
        let mut command = self.weir_command("s", "serve --config serve.toml");
        Process(command.stderr(Stdio::null()).spawn().unwrap())
    }

    /// Runs `weir ctl` as an operator.
    fn ctl(&self, line: &str) {
        let mut command = self.weir_command("s", &format!("ctl {line}"));
        command.args(["--coordinator", "127.0.0.1:7701", "--certificate", "ann.pem", "--key", "ann.key"]);
        let output = command.args(["--authority", "authority.pem"]).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts the agent of a host, with applications of given classes.
    fn start_agent(&self, host: &str, applications: &[(&TestCgroup, u8)]) -> Process {
        let rate = if host == "a" { FIRST_LINK_BYTES_PER_SEC } else { SECOND_LINK_BYTES_PER_SEC } * 8.0;
        let mut command = self.weir_command(
            host,
            &format!(
                "agent run --rate {rate}bit --interface e0 --coordinator 10.8.1.1:7700 --socket local_socket-{host} \
                 --certificate {host}.pem --key {host}.key --authority authority.pem"
            ),
        );
        for (group, class) in applications {
            command.arg("--application").arg(format!("{}={}:{class}", group.name, group.path.display()));
        }
        Process(command.spawn().unwrap())
    }

    fn bind_udp_receiver(&self, address: &'static str) -> UdpSocket {
        self.network.run_inside("b", move || UdpSocket::bind(address).unwrap()).unwrap()
    }

    /// The receivers of UDP and of TCP, and the number of bytes that arrive over TCP.
    fn start_receivers(&self, udp_receiver: &'static str) -> (UdpSocket, Arc<AtomicU64>) {
        let listen = || TcpListener::bind(TCP_RECEIVER).unwrap();
        let listener = self.network.run_inside("c", listen).unwrap();
        (self.bind_udp_receiver(udp_receiver), count_received_bytes(move || listener.accept().unwrap().0))
    }

    /// Bytes that host `a` has sent, of UDP and of TCP.
    fn sent_bytes(&self) -> [u64; 2] {
        let output =
            self.network.command("a", "tc").args(["-s", "class", "show", "dev", "e0"]).output().unwrap();
        let classes = String::from_utf8(output.stdout).unwrap();
        ["7765:100", "7765:101"].map(|class| sent_by_class(&classes, class))
    }

    /// Bytes that host `b` has received.
    fn received_bytes(&self) -> u64 {
        let mut ip = self.network.command("b", "ip");
        let output = ip.args(["-j", "-s", "link", "show", "dev", "e0"]).output().unwrap();
        let links: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        links[0]["stats64"]["rx"]["bytes"].as_u64().unwrap()
    }

    /// Whether the agent of host `a` has configured queues.
    fn has_queues(&self) -> bool {
        let output = self.network.command("a", "tc").args(["class", "show", "dev", "e0"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains("class htb 7765:101 ")
    }
}

impl Drop for ThrottleNetwork {
    fn drop(&mut self) {
        for host in ["a", "b", "c"] {
            let _ = self.weir_command(host, "agent cleanup").output();
        }
    }
}

/// The process that sends UDP at a constant rate.
#[test]
#[ignore = "runs as a process of another test"]
fn run_constant_rate_sender() {
    send_at_constant_rate(UDP_RECEIVER);
}

/// The process that sends UDP over IPv6 at a constant rate.
#[test]
#[ignore = "runs as a process of another test"]
fn run_constant_rate_ipv6_sender() {
    send_at_constant_rate(UDP_IPV6_RECEIVER);
}

fn send_at_constant_rate(receiver: &str) {
    let socket = UdpSocket::bind("[::]:0").unwrap();
    let receiver: SocketAddr = receiver.parse().unwrap();
    // A socket of IPv6 sends IPv4 to mapped addresses.
    let mapped = match receiver.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    socket.connect((mapped, receiver.port())).unwrap();
    let (mut due, packet_interval) =
        (Instant::now(), Duration::from_secs_f64(PACKET_BYTES / UDP_BYTES_PER_SEC));
    loop {
        // The interface drops packets beyond its queue.
        let _ = socket.send(&[0; DATAGRAM_BYTES]);
        // After a stall, the source catches up on at most 50 ms.
        due = (due + packet_interval).max(Instant::now() - Duration::from_millis(50));
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// The process that sends UDP in bursts.
#[test]
#[ignore = "runs as a process of another test"]
fn run_burst_sender() {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(UDP_RECEIVER).unwrap();
    let mut due = Instant::now();
    loop {
        for _ in 0..BURST_PACKETS {
            let _ = socket.send(&[0; DATAGRAM_BYTES]);
        }
        due = (due + BURST_INTERVAL).max(Instant::now() - BURST_INTERVAL);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// Bytes per second: UDP sent, UDP received, and TCP sent.
#[derive(Debug)]
struct MeasuredRates {
    udp_sent: RateBounds,
    udp_received: RateBounds,
    tcp_sent: RateBounds,
}

fn measure_rates(network: &ThrottleNetwork) -> MeasuredRates {
    let read = || {
        let mut sent = [0, 0];
        let first = CounterReading::read(|| {
            sent = network.sent_bytes();
            sent[0]
        });
        let second = CounterReading::read(|| sent[1]);
        (first, second, CounterReading::read(|| network.received_bytes()))
    };
    let before = read();
    thread::sleep(Duration::from_secs(2));
    let after = read();
    MeasuredRates {
        udp_sent: after.0.rate_since(&before.0),
        udp_received: after.2.rate_since(&before.2),
        tcp_sent: after.1.rate_since(&before.1),
    }
}

/// Measures until the measurement fulfils a condition.
fn wait_for_rates(network: &ThrottleNetwork, condition: &str, is_met: impl Fn(&MeasuredRates) -> bool) {
    wait_within(STEP_TIMEOUT, condition, || {
        let rates = measure_rates(network);
        let mbit = |speed: RateBounds| (speed.min + speed.max) / 2.0 * 8e-6;
        let [sent, arrived, others] = [rates.udp_sent, rates.udp_received, rates.tcp_sent].map(mbit);
        eprintln!(
            "{condition}: UDP sends {sent:.1} Mbit/s, of which {arrived:.1} Mbit/s arrive; TCP sends {others:.1} Mbit/s"
        );
        is_met(&rates)
    });
}

/// Without throttling, UDP and TCP each have half of the first link.
fn is_unthrottled(rates: &MeasuredRates) -> bool {
    rates.udp_sent.is_within(0.42 * FIRST_LINK_BYTES_PER_SEC, 0.58 * FIRST_LINK_BYTES_PER_SEC)
        && rates.tcp_sent.is_within(0.42 * FIRST_LINK_BYTES_PER_SEC, 0.58 * FIRST_LINK_BYTES_PER_SEC)
}

/// Algorithm 1: UDP sends 1.1 to 1.2 times the rate that arrives, and TCP uses the rest of the link.
fn is_throttled(rates: &MeasuredRates) -> bool {
    let (sent, arrived) = (rates.udp_sent, rates.udp_received);
    rates.tcp_sent.min > 0.68 * FIRST_LINK_BYTES_PER_SEC
        && sent.max > 1.05 * arrived.min
        && sent.min < 1.25 * arrived.max
        && arrived.min > 0.85 * SECOND_LINK_BYTES_PER_SEC
}

/// The allocator: UDP sends what services divide of the second link, which drops nothing. TCP uses the rest of the first link.
fn is_allocated(rates: &MeasuredRates) -> bool {
    rates.tcp_sent.min > 0.72 * FIRST_LINK_BYTES_PER_SEC
        && rates.udp_sent.is_within(0.93 * SECOND_LINK_BYTES_PER_SEC, SECOND_LINK_BYTES_PER_SEC)
        && rates.udp_received.min > 0.9 * SECOND_LINK_BYTES_PER_SEC
}

/// The network with certificates; `None` if this machine cannot run the test.
fn set_up(test: &str, udp: &TestCgroup) -> Option<ThrottleNetwork> {
    let network = ThrottleNetwork::up(test)?;
    let mut traffic = network.weir_command("a", "agent traffic --interface nowhere --application");
    let stderr = traffic.arg(format!("x={}", udp.path.display())).output().unwrap().stderr;
    if String::from_utf8_lossy(&stderr).contains("built without") {
        eprintln!("{test} skips, since the BPF programs are not built");
        return None;
    }
    let authority = Authority::new();
    authority.write_server_files_for(&network.dir.path("."), &["10.8.1.1", "127.0.0.1"]);
    for (name, role) in [("a", "agent"), ("b", "agent"), ("c", "agent"), ("ann", "operator")] {
        let pair = authority.client_certificate(&[&format!("weir://{role}/{name}")]);
        network.dir.write(&format!("{name}.pem"), &pair.certificate);
        network.dir.write(&format!("{name}.key"), &pair.key);
    }
    Some(network)
}

#[test]
fn hosts_send_at_most_slightly_more_than_arrives() {
    let test = "throttle";
    let groups = ["udp", "tcp", "sink"].map(|name| TestCgroup::new(&format!("throttle-{name}")));
    let [udp, tcp, sink] = &groups;
    let Some(network) = set_up(test, udp) else { return };
    let mut coordinator_process = network.start_coordinator(false);
    let mut sender = network.start_agent("a", &[(udp, 1), (tcp, 2)]);
    let mut receiver = network.start_agent("b", &[(sink, 1)]);
    wait_within(STEP_TIMEOUT, "queues", || network.has_queues());
    let (_udp_receiver, received) = network.start_receivers(UDP_RECEIVER);
    let _source = network.run_test_process(udp, "throttle::run_constant_rate_sender");
    let _tcp_source = start_sender(&network.network, tcp, TCP_RECEIVER.parse().unwrap());
    wait_within(STEP_TIMEOUT, "TCP", || received.load(Ordering::Relaxed) > 0);

    // UDP uses half of the first link, and the second link drops most of it.
    wait_for_rates(&network, "without throttling", |seen| {
        is_unthrottled(seen) && seen.udp_received.max < 1.05 * SECOND_LINK_BYTES_PER_SEC
    });
    coordinator_process.kill();
    coordinator_process = network.start_coordinator(true);
    wait_for_rates(&network, "with throttling", is_throttled);

    // Without the receiver's agent there are no measurements, and the limit ends. The next agent measures
    // again.
    receiver.kill();
    wait_for_rates(&network, "without the receiver's agent", is_unthrottled);
    receiver = network.start_agent("b", &[(sink, 1)]);
    wait_for_rates(&network, "with the receiver's next agent", is_throttled);

    // Without a coordinator, no measurements reach the sender.
    coordinator_process.kill();
    wait_for_rates(&network, "without a coordinator", is_unthrottled);
    coordinator_process = network.start_coordinator(true);
    wait_for_rates(&network, "with the next coordinator", is_throttled);

    // The limits end when the sender's agent is killed.
    sender.kill();
    wait_for_rates(&network, "without the sender's agent", is_unthrottled);
    sender = network.start_agent("a", &[(udp, 1), (tcp, 2)]);
    wait_for_rates(&network, "with the sender's next agent", is_throttled);

    // A tunnel of the sender's host has the source's destination port, and ends.
    let tunnel = "link add x0 type vxlan id 5 local 10.8.1.2 remote 10.8.2.2 dstport 9000 dev e0\n";
    network.network.run_ip("a", tunnel).unwrap();
    wait_for_rates(&network, "with the port of a tunnel", is_unthrottled);
    network.network.run_ip("a", "link del x0\n").unwrap();
    wait_for_rates(&network, "after the tunnel", is_throttled);

    // The limit ends when throttling is disabled in the configuration.
    coordinator_process.kill();
    let coordinator_process = network.start_coordinator(false);
    wait_for_rates(&network, "after throttling is disabled", is_unthrottled);
    drop((sender, receiver, coordinator_process));
}

#[test]
fn allocator_limits_ipv6_udp_without_the_receivers_agent() {
    let test = "udpalloc";
    let groups = ["udp", "tcp", "sink"].map(|name| TestCgroup::new(&format!("udpalloc-{name}")));
    let [udp, tcp, sink] = &groups;
    let Some(network) = set_up(test, udp) else { return };
    let allocation = "allocator = true\nthrottling = true";
    let mut coordinator_process = network.start_coordinator_with(allocation);
    let mut sender = network.start_agent("a", &[(udp, 1), (tcp, 2)]);
    wait_within(STEP_TIMEOUT, "queues", || network.has_queues());
    let (_udp_receiver, received) = network.start_receivers(UDP_IPV6_RECEIVER);
    let _source = network.run_test_process(udp, "throttle::run_constant_rate_ipv6_sender");
    let _tcp_source = start_sender(&network.network, tcp, TCP_RECEIVER.parse().unwrap());
    wait_within(STEP_TIMEOUT, "TCP", || received.load(Ordering::Relaxed) > 0);
    wait_for_rates(&network, "with the allocator", is_allocated);

    // The limits end without a coordinator, and when the sender's agent is killed.
    coordinator_process.kill();
    wait_for_rates(&network, "without a coordinator", is_unthrottled);
    coordinator_process = network.start_coordinator_with(allocation);
    wait_for_rates(&network, "with the next coordinator", is_allocated);
    sender.kill();
    wait_for_rates(&network, "without the sender's agent", is_unthrottled);
    sender = network.start_agent("a", &[(udp, 1), (tcp, 2)]);
    wait_for_rates(&network, "with the sender's next agent", is_allocated);

    // Without the allocator, the receiver's agent measures.
    coordinator_process.kill();
    coordinator_process = network.start_coordinator(true);
    let receiver = network.start_agent("b", &[(sink, 1)]);
    wait_for_rates(&network, "with throttling", is_throttled);
    coordinator_process.kill();
    let coordinator_process = network.start_coordinator_with(allocation);
    wait_for_rates(&network, "with the allocator again", is_allocated);
    drop((sender, receiver, coordinator_process));
}

/// By the allocator, and by throttling between the agents. Queues and marks stay in these pauses.
#[test]
fn udp_has_no_limit_while_its_service_or_host_is_paused() {
    let test = "udppause";
    let groups = ["udp", "tcp", "sink"].map(|name| TestCgroup::new(&format!("udppause-{name}")));
    let [udp, tcp, sink] = &groups;
    let Some(network) = set_up(test, udp) else { return };
    let mut coordinator = network.start_coordinator_with("allocator = true\nthrottling = true");
    let _agents = (network.start_agent("a", &[(udp, 1), (tcp, 2)]), network.start_agent("b", &[(sink, 1)]));
    wait_within(STEP_TIMEOUT, "queues", || network.has_queues());
    let (_udp_receiver, received) = network.start_receivers(UDP_RECEIVER);
    let _source = network.run_test_process(udp, "throttle::run_constant_rate_sender");
    let _tcp_source = start_sender(&network.network, tcp, TCP_RECEIVER.parse().unwrap());
    wait_within(STEP_TIMEOUT, "TCP", || received.load(Ordering::Relaxed) > 0);
    wait_for_rates(&network, "with the allocator", is_allocated);
    for object in ["--service udp", "--host a"] {
        network.ctl(&format!("pause {object}"));
        wait_for_rates(&network, &format!("paused: {object}"), is_unthrottled);
        network.ctl(&format!("resume {object}"));
        wait_for_rates(&network, &format!("resumed: {object}"), is_allocated);
    }
    coordinator.kill();
    let _coordinator = network.start_coordinator(true);
    wait_for_rates(&network, "with throttling", is_throttled);
    network.ctl("pause --service udp");
    wait_for_rates(&network, "paused under throttling", is_unthrottled);
    network.ctl("resume --service udp");
    wait_for_rates(&network, "resumed under throttling", is_throttled);
}

#[test]
fn throttling_passes_udp_bursts_below_link_capacity() {
    let test = "bursts";
    let groups = ["udp", "sink"].map(|name| TestCgroup::new(&format!("bursts-{name}")));
    let [udp, sink] = &groups;
    let Some(network) = set_up(test, udp) else { return };
    let _coordinator_process = network.start_coordinator(true);
    let _sender = network.start_agent("a", &[(udp, 1)]);
    let _receiver = network.start_agent("b", &[(sink, 1)]);
    let _udp_receiver = network.bind_udp_receiver(UDP_RECEIVER);
    // Throttling limits the constant source first; its limit ends before the bursty source starts.
    let mut source = network.run_test_process(udp, "throttle::run_constant_rate_sender");
    let received = || CounterReading::read(|| network.received_bytes());
    let received_fraction = |sent_rate: f64| {
        let before = received();
        thread::sleep(Duration::from_secs(2));
        let share = received().rate_since(&before).relative_to(sent_rate);
        eprintln!("{test}: {share:.3?} of the sent bytes arrive");
        share
    };
    let _ = received_fraction(UDP_BYTES_PER_SEC);
    source.kill();
    let _source = network.run_test_process(udp, "throttle::run_burst_sender");
    let sent = f64::from(BURST_PACKETS) * PACKET_BYTES / BURST_INTERVAL.as_secs_f64();
    wait_within(STEP_TIMEOUT, test, || received_fraction(sent).is_within(0.85, 1.1));
}

#[test]
fn agent_without_throttling_support_logs_it_once() {
    let test = "unsupported";
    let group = TestCgroup::new(test);
    let Some(network) = set_up(test, &group) else { return };
    let start_agent = |log_file: &str| {
        let mut command = network.weir_command(
            "c",
            "agent run --rate 100Mbit --interface e0 --coordinator 10.8.1.1:7700 --socket local_socket-c --certificate c.pem \
             --key c.key --authority authority.pem",
        );
        let file = File::create(network.dir.path(log_file)).unwrap();
        Process(command.stderr(file).spawn().unwrap())
    };
    let count = |log_file: &str, text: &str| network.dir.read(log_file).matches(text).count();
    let (connected_message, unsupported_message) =
        ("has a coordinator", "this agent does not measure or limit UDP");
    let mut coordinator_process = network.start_coordinator(false);
    let _agent = start_agent("log");
    wait_within(STEP_TIMEOUT, "a coordinator", || count("log", connected_message) == 1);
    coordinator_process.kill();
    for times in 2..4 {
        let mut coordinator_process = network.start_coordinator(true);
        wait_within(STEP_TIMEOUT, "the next coordinator", || count("log", connected_message) == times);
        wait_within(STEP_TIMEOUT, "the warning about missing support", || {
            count("log", unsupported_message) == 1
        });
        coordinator_process.kill();
    }
    assert_eq!(count("log", unsupported_message), 1);
}
