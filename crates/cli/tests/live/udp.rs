//! UDP flows at ordered rates: programs hand their sockets over, and the agent limits them at the interface.
//! The test skips without the privileges for namespaces.

use std::net::UdpSocket;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Place, wait_within};
use crate::kernel::{Reading, Speed, sent_by};
use crate::pair::{Pair, Process};
use nix::sys::socket::{setsockopt, sockopt};
use weir_client::Agent;

/// The capacity of the link, in bytes per second.
const LINE: f64 = 5e6;

/// The bytes of a datagram, and of its packet.
const DATAGRAM: usize = 1400;
const PACKET: u64 = 1442;

/// The receive buffer in bytes: the bytes that arrive while a reader thread is not scheduled.
const WAITING: usize = 8 << 20;

/// The timeout of each step.
const SOON: Duration = Duration::from_secs(20);

/// The lease is longer than a busy machine delays a report.
const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fifo\"\nlease = \"2s\"\n\
                      [listen]\nagents = \"127.0.0.1:7700\"\napi = \"127.0.0.1:7701\"\n\
                      [host]\na = \"40Mbit\"\nb = \"40Mbit\"\n";

/// A flow that sends until `stop` is set.
struct Flow {
    socket: UdpSocket,
    arrived: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Flow {
    fn new(pair: &Pair) -> Flow {
        let sink = pair.inside("b", || UdpSocket::bind("10.9.0.2:0").unwrap());
        setsockopt(&sink, sockopt::RcvBufForce, &WAITING).unwrap();
        let to = sink.local_addr().unwrap();
        let socket = pair.inside("a", || {
            let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
            socket.connect(to).unwrap();
            socket
        });
        let flow = Flow { socket, arrived: Arc::default(), stop: Arc::default() };
        let (arrived, stop) = (Arc::clone(&flow.arrived), Arc::clone(&flow.stop));
        sink.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        thread::spawn(move || {
            let mut buffer = [0; DATAGRAM];
            while !stop.load(Ordering::Relaxed) {
                if sink.recv(&mut buffer).is_ok() {
                    arrived.fetch_add(PACKET, Ordering::Relaxed);
                }
            }
        });
        flow
    }

    /// Sends at twice the link's capacity.
    fn send(&self) {
        let (socket, stop) = (self.socket.try_clone().unwrap(), Arc::clone(&self.stop));
        thread::spawn(move || {
            let (began, mut sent) = (Instant::now(), 0.0);
            while !stop.load(Ordering::Relaxed) {
                // The interface drops packets beyond its queue.
                let _ = socket.send(&[0; DATAGRAM]);
                sent += PACKET as f64;
                let due = Duration::from_secs_f64(sent / (2.0 * LINE));
                thread::sleep(due.saturating_sub(began.elapsed()));
            }
        });
    }
}

/// Waits until a counter grows by `low` to `high` of the link's capacity for 1.5 s. A wrong rate never
/// passes. A right rate can fail while the sending or counting thread stalls, so the test tries again.
fn comes_to(what: &str, low: f64, high: f64, count: impl Fn() -> u64) {
    let share = || -> Speed {
        let before = Reading::of(&count);
        thread::sleep(Duration::from_millis(1500));
        Reading::of(&count).since(&before).of(LINE)
    };
    wait_within(SOON, what, || {
        let share = share();
        eprintln!("{what}: {share:.4?} of the line");
        share.is_within(low, high)
    });
}

#[test]
fn udp_flows_send_at_ordered_rates_and_are_unlimited_after_the_lease() {
    let Some(pair) = Pair::up() else {
        eprintln!("udp skips, since this machine makes no namespaces");
        return;
    };
    let place = Place::new();
    place.write("serve.toml", CONFIG);
    let mut serve = pair.host(env!("CARGO_BIN_EXE_weir"));
    serve.args(["serve", "--config"]).arg(place.path("serve.toml")).stderr(Stdio::null());
    let mut serving = Process(serve.spawn().unwrap());
    let local_socket = place.path("local_socket");
    let agent = |interface: &[&str]| {
        let mut agent = pair.host(env!("CARGO_BIN_EXE_weir"));
        agent
            .args(["agent", "run", "--host", "0", "--rate", "40Mbit"])
            .args(interface)
            .arg("--socket")
            .arg(&local_socket);
        let running = Process(agent.spawn().unwrap());
        wait_within(SOON, "the agent's local socket", || Agent::connect(&local_socket).is_ok());
        running
    };
    wait_within(SOON, "the coordinator", || {
        pair.inside("a", || std::net::TcpStream::connect("127.0.0.1:7701").is_ok())
    });
    for id in ["first", "second"] {
        let flows = "{\"flows\": [{\"from\": \"a\", \"to\": \"b\", \"bytes\": 1000000000000}]}";
        pair.put(&format!("/v1/coflows/{id}"), flows);
    }
    let (first, second) = (Flow::new(&pair), Flow::new(&pair));

    // An agent without an interface refuses UDP sockets.
    let mut bare = agent(&[]);
    let refused =
        Agent::connect(&local_socket).unwrap().open("first", 0, &first.socket).unwrap_err().to_string();
    assert!(refused.contains("UDP needs an agent with --interface"), "{refused}");
    bare.end();

    let mut running = agent(&["--interface", "e0"]);
    let program = Agent::connect(&local_socket).unwrap();
    program.open("first", 0, &first.socket).unwrap();
    program.open("second", 0, &second.socket).unwrap();
    let unconnected = pair.inside("a", || UdpSocket::bind("10.9.0.1:0").unwrap());
    let refused = program.open("second", 1, &unconnected).unwrap_err().to_string();
    assert!(refused.contains("that is connected"), "{refused}");
    let has = |class: &str| pair.tc("class").contains(&format!("class htb 7765:{class} "));
    wait_within(SOON, "classes", || has("1000") && has("1001"));
    for flow in [&first, &second] {
        flow.send();
    }
    // The first coflow gets the link without the reserve.
    let sent = |class: &str| sent_by(&pair.tc_counts("class"), class);
    let arrived = |flow: &Flow| flow.arrived.load(Ordering::Relaxed);
    comes_to("what the first sends", 0.95, 1.0, || sent("7765:1000"));
    comes_to("what the second sends", 0.005, 0.015, || sent("7765:1001"));
    comes_to("what comes of the first", 0.95, 1.0, || arrived(&first));
    comes_to("what comes of the second", 0.005, 0.015, || arrived(&second));

    // When the first flow is done, the second gets the link.
    first.stop.store(true, Ordering::Relaxed);
    program.done("first", 0).unwrap();
    wait_within(SOON, "one class", || !has("1000"));
    comes_to("what the second sends alone", 0.95, 1.0, || sent("7765:1001"));
    comes_to("what comes of it", 0.95, 1.0, || arrived(&second));

    // Kill the agent: its watchdog removes the filters when the lease ends, and the next agent limits the
    // flow again.
    let filters = || {
        let output =
            pair.host("tc").args(["filter", "show", "dev", "e0", "parent", "7765:"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains("pref 30563")
    };
    assert!(filters());
    running.kill();
    wait_within(SOON, "no filters", || !filters());
    running = agent(&["--interface", "e0"]);
    let program = Agent::connect(&local_socket).unwrap();
    program.open("second", 0, &second.socket).unwrap();
    wait_within(SOON, "filters again", filters);
    comes_to("what the second sends again", 0.95, 1.0, || {
        sent(if has("1000") { "7765:1000" } else { "7765:1001" })
    });

    // Without a coordinator, the limit ends with the lease.
    serving.kill();
    wait_within(SOON, "no class", || !has("1000") && !has("1001"));
    comes_to("what comes of it without a lease", 0.95, 1.05, || arrived(&second));
    second.stop.store(true, Ordering::Relaxed);
    running.end();
    assert!(!pair.tc("qdisc").contains("7765:"), "{}", pair.tc("qdisc"));
}
