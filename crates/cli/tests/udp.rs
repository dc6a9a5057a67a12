//! Flows of UDP as a coordinator lets them: sockets that a program hands over, limited at the interface. Without the privileges for
//! namespaces the test says so and skips.

#![cfg(target_os = "linux")]

mod common;
mod pair;

use std::net::UdpSocket;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Place, wait_within};
use pair::{Pair, Process};
use weir_client::Agent;

/// What the link carries, in bytes per second.
const LINE: f64 = 5e6;

/// The bytes of a datagram, and of its packet.
const DATAGRAM: usize = 1400;
const PACKET: u64 = 1442;

const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fifo\"\n\
                      [listen]\nagents = \"127.0.0.1:7700\"\napi = \"127.0.0.1:7701\"\n\
                      [host]\na = \"40Mbit\"\nb = \"40Mbit\"\n";

/// A flow that sends as fast as it can until it is told to stop.
struct Flow {
    socket: UdpSocket,
    arrived: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Flow {
    fn new(pair: &Pair) -> Flow {
        let sink = pair.inside("b", || UdpSocket::bind("10.9.0.2:0").unwrap());
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

    /// At twice what the link carries.
    fn send(&self) {
        let (socket, stop) = (self.socket.try_clone().unwrap(), Arc::clone(&self.stop));
        thread::spawn(move || {
            let (began, mut sent) = (Instant::now(), 0.0);
            while !stop.load(Ordering::Relaxed) {
                // What the interface has no room for is lost.
                let _ = socket.send(&[0; DATAGRAM]);
                sent += PACKET as f64;
                let due = Duration::from_secs_f64(sent / (2.0 * LINE));
                thread::sleep(due.saturating_sub(began.elapsed()));
            }
        });
    }
}

/// The parts of the line that flows have for a second and a half.
fn shares(flows: &[&Flow; 2]) -> [f64; 2] {
    let read = || flows.map(|flow| flow.arrived.load(Ordering::Relaxed));
    let (began, before) = (Instant::now(), read());
    thread::sleep(Duration::from_millis(1500));
    let (after, time) = (read(), began.elapsed().as_secs_f64());
    let shares = [0, 1].map(|at| (after[at] - before[at]) as f64 / time / LINE);
    eprintln!("{shares:.4?} of the line");
    shares
}

#[test]
fn flows_of_udp_have_their_rates() {
    let Some(pair) = Pair::up() else {
        eprintln!("udp skips, since this machine makes no namespaces");
        return;
    };
    let place = Place::new();
    place.write("serve.toml", CONFIG);
    let mut serve = pair.host(env!("CARGO_BIN_EXE_weir"));
    serve.args(["serve", "--config"]).arg(place.path("serve.toml")).stderr(Stdio::null());
    let mut serving = Process(serve.spawn().unwrap());
    let door = place.path("door");
    let agent = |interface: &[&str]| {
        let mut agent = pair.host(env!("CARGO_BIN_EXE_weir"));
        agent
            .args(["agent", "run", "--host", "0", "--rate", "40Mbit"])
            .args(interface)
            .arg("--socket")
            .arg(&door);
        let running = Process(agent.spawn().unwrap());
        wait_within(Duration::from_secs(20), "the agent's door", || door.exists());
        running
    };
    wait_within(Duration::from_secs(20), "the coordinator", || {
        pair.inside("a", || std::net::TcpStream::connect("127.0.0.1:7701").is_ok())
    });
    for id in ["first", "second"] {
        let flows = "{\"flows\": [{\"from\": \"a\", \"to\": \"b\", \"bytes\": 1000000000000}]}";
        pair.put(&format!("/v1/coflows/{id}"), flows);
    }
    let (first, second) = (Flow::new(&pair), Flow::new(&pair));

    // Without an interface there is no place to limit them.
    let mut bare = agent(&[]);
    let refused = Agent::connect(&door).unwrap().open("first", 0, &first.socket).unwrap_err().to_string();
    assert!(refused.contains("UDP needs an agent with --interface"), "{refused}");
    bare.end();

    let mut running = agent(&["--interface", "e0"]);
    let program = Agent::connect(&door).unwrap();
    program.open("first", 0, &first.socket).unwrap();
    program.open("second", 0, &second.socket).unwrap();
    let unconnected = pair.inside("a", || UdpSocket::bind("10.9.0.1:0").unwrap());
    let refused = program.open("second", 1, &unconnected).unwrap_err().to_string();
    assert!(refused.contains("that is connected"), "{refused}");
    let has = |class: &str| pair.tc("class").contains(&format!("class htb 7765:{class} "));
    wait_within(Duration::from_secs(5), "classes", || has("1000") && has("1001"));
    for flow in [&first, &second] {
        flow.send();
    }
    thread::sleep(Duration::from_millis(300));
    // Whoever came first has all but the reserve.
    let [most, least] = shares(&[&first, &second]);
    assert!((0.95..1.0).contains(&most) && (0.005..0.015).contains(&least), "{most} and {least}");

    // It is over, and the next one's turn comes.
    first.stop.store(true, Ordering::Relaxed);
    program.done("first", 0).unwrap();
    wait_within(Duration::from_secs(5), "one class", || !has("1000"));
    thread::sleep(Duration::from_millis(300));
    let [none, all] = shares(&[&first, &second]);
    assert!(none == 0.0 && (0.95..1.0).contains(&all), "{none} and {all}");

    // Without a coordinator it is free when the lease is over.
    serving.kill();
    wait_within(Duration::from_secs(5), "no class", || !has("1001"));
    let [_, free] = shares(&[&first, &second]);
    assert!((0.95..1.05).contains(&free), "{free}");
    second.stop.store(true, Ordering::Relaxed);
    running.end();
    assert!(!pair.tc("qdisc").contains("7765:"), "{}", pair.tc("qdisc"));
}
