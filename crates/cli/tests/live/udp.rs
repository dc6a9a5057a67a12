//! Tests UDP flows at ordered rates: programs hand their sockets over, and the agent limits the flows at the
//! interface.
//! The test skips without the privileges for namespaces.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{TestDir, wait_within};
use crate::host_pair::{HostPair, Process};
use crate::kernel::{CounterReading, sent_by_class};
use nix::sys::socket::{setsockopt, sockopt};
use weir_client::Agent;

/// The capacity of the link, in bytes per second.
const LINK_BYTES_PER_SEC: f64 = 5e6;

/// The bytes of a datagram, and of its packet over IPv6. A packet over IPv4 has 20 fewer.
const DATAGRAM_BYTES: usize = 1400;
const PACKET_BYTES: u64 = 1462;

/// The receive buffer in bytes. It has to hold the bytes that arrive while a reader thread is not scheduled.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// The timeout of each step, and of the wait for a rate.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
const RATE_TIMEOUT: Duration = Duration::from_secs(60);

/// The lease is longer than a busy machine delays a report.
const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fifo\"\nlease = \"2s\"\n\
                      [listen]\nagents = \"127.0.0.1:7700\"\napi = \"127.0.0.1:7701\"\n\
                      [host]\na = \"40Mbit\"\nb = \"40Mbit\"\n";

/// A flow that sends until `stop` is set.
struct UdpFlow {
    socket: UdpSocket,
    received: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl UdpFlow {
    /// A flow from an address of the first host to one of the second.
    fn new(hosts: &HostPair, source: &'static str, destination: &'static str) -> UdpFlow {
        let bind = |node, address: &'static str| {
            hosts.network.run_inside(node, move || UdpSocket::bind((address, 0)).unwrap()).unwrap()
        };
        let (socket, sink) = (bind("a", source), bind("b", destination));
        setsockopt(&sink, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES).unwrap();
        let receiver = sink.local_addr().unwrap();
        let packet_bytes = PACKET_BYTES - if receiver.is_ipv6() { 0 } else { 20 };
        socket.connect(receiver).unwrap();
        let flow = UdpFlow { socket, received: Arc::default(), stop: Arc::default() };
        let (received, stop) = (Arc::clone(&flow.received), Arc::clone(&flow.stop));
        sink.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        thread::spawn(move || {
            let mut buffer = [0; DATAGRAM_BYTES];
            while !stop.load(Ordering::Relaxed) {
                if sink.recv(&mut buffer).is_ok() {
                    received.fetch_add(packet_bytes, Ordering::Relaxed);
                }
            }
        });
        flow
    }

    /// Sends at twice the link's capacity.
    fn send(&self) {
        let (socket, stop) = (self.socket.try_clone().unwrap(), Arc::clone(&self.stop));
        thread::spawn(move || {
            let (start_time, mut sent) = (Instant::now(), 0.0);
            while !stop.load(Ordering::Relaxed) {
                // The interface drops packets beyond its queue.
                let _ = socket.send(&[0; DATAGRAM_BYTES]);
                sent += PACKET_BYTES as f64;
                let due = Duration::from_secs_f64(sent / (2.0 * LINK_BYTES_PER_SEC));
                thread::sleep(due.saturating_sub(start_time.elapsed()));
            }
        });
    }
}

/// Waits until a counter has grown by `low` to `high` of the link's capacity since some time. Readings take longer on a
/// busy machine, so the measured time grows until the rate is certain. It starts again after a second with another rate.
fn wait_for_rate(description: &str, low: f64, high: f64, count: impl Fn() -> u64) {
    let mut start = CounterReading::read(&count);
    let mut last = start;
    wait_within(RATE_TIMEOUT, description, || {
        thread::sleep(Duration::from_secs(1));
        let now = CounterReading::read(&count);
        let [total, latest] =
            [start, last].map(|earlier| now.rate_since(&earlier).relative_to(LINK_BYTES_PER_SEC));
        eprintln!("{description}: {total:.4?} of the link");
        last = now;
        if !latest.may_be_over(low) || !latest.may_be_under(high) {
            start = now;
        }
        total.is_within(low, high)
    });
}

#[test]
fn udp_flows_send_at_ordered_rates_and_are_unlimited_after_the_lease() {
    let Some(hosts) = HostPair::up("udp") else { return };
    let dir = TestDir::new();
    dir.write("serve.toml", CONFIG);
    let mut coordinator = hosts.start_coordinator(&dir.path("serve.toml"));
    let local_socket = dir.path("local_socket");
    let start_agent = |interface: &[&str]| {
        let mut agent = hosts.command_on_host(env!("CARGO_BIN_EXE_weir"));
        agent
            .args(["agent", "run", "--name", "a", "--rate", "40Mbit"])
            .args(interface)
            .arg("--socket")
            .arg(&local_socket);
        let agent_process = Process(agent.spawn().unwrap());
        wait_within(STEP_TIMEOUT, "the agent's local socket", || Agent::connect(&local_socket).is_ok());
        agent_process
    };
    for id in ["first", "second"] {
        let flows = "{\"flows\": [{\"from\": \"a\", \"to\": \"b\", \"bytes\": 1000000000000}]}";
        hosts.put(&format!("/v1/coflows/{id}"), flows);
    }
    for (node, number) in [("a", 1), ("b", 2)] {
        hosts.network.run_ip(node, &format!("addr add fd09::{number}/64 dev e0 nodad\n")).unwrap();
    }
    let first = UdpFlow::new(&hosts, "10.9.0.1", "10.9.0.2");
    let second = UdpFlow::new(&hosts, "fd09::1", "fd09::2");

    // An agent without an interface refuses UDP sockets.
    let mut agent_without_interface = start_agent(&[]);
    let refused =
        Agent::connect(&local_socket).unwrap().hand_over("first", 0, &first.socket).unwrap_err().to_string();
    assert!(refused.contains("UDP sockets need an agent with an interface"), "{refused}");
    agent_without_interface.interrupt();

    let mut agent_process = start_agent(&["--interface", "e0"]);
    let program = Agent::connect(&local_socket).unwrap();
    program.hand_over("first", 0, &first.socket).unwrap();
    program.hand_over("second", 0, &second.socket).unwrap();
    let unconnected = hosts.network.run_inside("a", || UdpSocket::bind("10.9.0.1:0").unwrap()).unwrap();
    let refused = program.hand_over("second", 1, &unconnected).unwrap_err().to_string();
    assert!(refused.contains("expected a connected socket"), "{refused}");
    let has_class = |class: &str| hosts.tc("class").contains(&format!("class htb 7765:{class} "));
    wait_within(STEP_TIMEOUT, "classes", || has_class("1000") && has_class("1001"));
    for flow in [&first, &second] {
        flow.send();
    }
    // The first coflow gets the link without the reserve.
    let sent_bytes = |class: &str| sent_by_class(&hosts.tc_counts("class"), class);
    let received_bytes = |flow: &UdpFlow| flow.received.load(Ordering::Relaxed);
    wait_for_rate("the sending rate of the first flow", 0.95, 1.0, || sent_bytes("7765:1000"));
    wait_for_rate("the sending rate of the second flow", 0.005, 0.015, || sent_bytes("7765:1001"));
    wait_for_rate("the receiving rate of the first flow", 0.95, 1.0, || received_bytes(&first));
    wait_for_rate("the receiving rate of the second flow", 0.005, 0.015, || received_bytes(&second));

    // When the first flow is done, the second gets the link.
    first.stop.store(true, Ordering::Relaxed);
    program.mark_done("first", 0).unwrap();
    wait_within(STEP_TIMEOUT, "the end of the first flow's class", || !has_class("1000"));
    wait_for_rate("the sending rate of the second flow alone", 0.95, 1.0, || sent_bytes("7765:1001"));
    wait_for_rate("the receiving rate of the second flow alone", 0.95, 1.0, || received_bytes(&second));

    // Kill the agent: its watchdog removes the filters when the lease ends, and the next agent limits the
    // flow again.
    let has_filters = || {
        let output = hosts
            .command_on_host("tc")
            .args(["filter", "show", "dev", "e0", "parent", "7765:"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().contains("pref 30564")
    };
    assert!(has_filters());
    agent_process.kill();
    wait_within(STEP_TIMEOUT, "the end of the filters", || !has_filters());
    agent_process = start_agent(&["--interface", "e0"]);
    let program = Agent::connect(&local_socket).unwrap();
    program.hand_over("second", 0, &second.socket).unwrap();
    wait_within(STEP_TIMEOUT, "filters of the next agent", has_filters);
    wait_for_rate("the sending rate of the second flow under the next agent", 0.95, 1.0, || {
        sent_bytes(if has_class("1000") { "7765:1000" } else { "7765:1001" })
    });

    // Without a coordinator, the limit ends with the lease.
    coordinator.kill();
    wait_within(STEP_TIMEOUT, "the end of the classes", || !has_class("1000") && !has_class("1001"));
    wait_for_rate("the receiving rate of the second flow without a lease", 0.95, 1.05, || {
        received_bytes(&second)
    });
    second.stop.store(true, Ordering::Relaxed);
    agent_process.interrupt();
    assert!(!hosts.tc("qdisc").contains("7765:"), "{}", hosts.tc("qdisc"));
}
