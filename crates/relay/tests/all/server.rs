//! Relays on loopback addresses with real sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weir_proto::relay::{RelayCoflow, RelayMatch, RelayOrder, RelayPath, RelayPeer, RelayRule, RuleScope};
use weir_relay::forwarding::RelayId;
use weir_relay::io::{Command, Handle, Server, ServerSettings, Status};
use weir_relay::overlay::Overlay;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A relay on 127.ID.0.1, which serves receivers in 127.ID.0.0/16.
struct TestRelay {
    handle: Handle,
    programs: SocketAddr,
    relays: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl TestRelay {
    fn start(id: u16, relays: SocketAddr, memory_bytes: u64) -> TestRelay {
        let settings = ServerSettings { id: RelayId(id), memory_bytes, congestion_control: None, tls: None };
        let programs = format!("127.{id}.0.1:0").parse().unwrap();
        let (server, handle) = Server::bind(settings, programs, relays).unwrap();
        let (programs, relays) = server.addresses().unwrap();
        let thread = Some(spawn(move || server.run().unwrap()));
        TestRelay { handle, programs, relays, thread }
    }

    fn status(&self) -> Status {
        let (sender, answer) = channel();
        self.handle.send(Command::Report(Box::new(move |status| drop(sender.send(status)))));
        answer.recv_timeout(TIMEOUT).unwrap()
    }
}

impl Drop for TestRelay {
    fn drop(&mut self) {
        self.handle.send(Command::Stop);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Relays 1 to `count` that know coflow 7 with the name `shuffle`, after all have connected.
fn start_relays(count: u16, rules: Vec<RelayRule>) -> Vec<TestRelay> {
    let any = |id: u16| format!("127.{id}.0.1:0").parse().unwrap();
    let relays: Vec<TestRelay> = (1..=count).map(|id| TestRelay::start(id, any(id), 64 << 20)).collect();
    let overlay = overlay(&relays, rules);
    relays.iter().for_each(|relay| relay.handle.send(Command::SetOverlay(overlay.clone())));
    wait_until(|| relays.iter().all(|relay| relay.status().links.values().all(|link| link.is_up)));
    relays
}

fn overlay(relays: &[TestRelay], rules: Vec<RelayRule>) -> Overlay {
    let peer = |(index, relay): (usize, &TestRelay)| RelayPeer {
        id: index as u16 + 1,
        name: format!("relay-{}", index + 1).into(),
        address: relay.relays,
        networks: vec![format!("127.{}.0.0/16", index + 1).parse().unwrap()],
        region: index as u16,
    };
    let mut overlay = Overlay::default();
    overlay.apply(&RelayOrder {
        is_full: true,
        peers: relays.iter().enumerate().map(peer).collect(),
        coflows: vec![RelayCoflow { number: 7, name: "shuffle".into(), service: "default".into() }],
        rules,
        ..RelayOrder::default()
    });
    overlay
}

fn wait_until(mut is_done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < TIMEOUT, "the condition does not become true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Connects to a relay, and asks for a flow.
fn open(relay: &TestRelay, flow: u32, receiver: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(relay.programs).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(format!("weir-flow/2 shuffle {flow} 0 0 {receiver}\n").as_bytes()).unwrap();
    stream
}

/// Accepts a flow, returns its number and its bytes, and acknowledges them.
fn accept_flow(listener: &TcpListener) -> (u32, Vec<u8>) {
    read_flow(accept(listener))
}

fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let mut accepted = None;
    wait_until(|| {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (stream, _) = accepted.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
}

fn read_flow(stream: TcpStream) -> (u32, Vec<u8>) {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let flow = line.split(' ').nth(2).unwrap().parse().unwrap();
    let mut received = Vec::new();
    let mut bytes = vec![0; 100_000];
    writer.write_all(b"ack 0\n").unwrap();
    loop {
        match reader.read(&mut bytes).unwrap() {
            0 => return (flow, received),
            read => received.extend_from_slice(&bytes[..read]),
        }
        // The sender may have closed the flow.
        let _ = writer.write_all(format!("ack {}\n", received.len()).as_bytes());
    }
}

fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Writes a flow, and waits for its last acknowledgement.
fn send(mut stream: TcpStream, bytes: &[u8]) -> String {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let last = format!("ack {}\n", bytes.len());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            stream.write_all(bytes).unwrap();
        });
        let mut line = String::new();
        while line != last && !line.starts_with("reset") {
            line.clear();
            if reader.read_line(&mut line).unwrap() == 0 {
                break;
            }
        }
        reader.get_ref().shutdown(Shutdown::Both).unwrap();
        line
    })
}

fn transfer(relays: &[TestRelay], sizes: &[usize]) {
    let listener = TcpListener::bind("127.2.0.1:0").unwrap();
    let receiver = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        for (flow, &size) in sizes.iter().enumerate() {
            let relay = &relays[0];
            scope.spawn(move || {
                let bytes = random_bytes(flow as u64, size);
                assert_eq!(send(open(relay, flow as u32, receiver), &bytes), format!("ack {size}\n"));
            });
        }
        let receivers: Vec<_> = sizes.iter().map(|_| scope.spawn(|| accept_flow(&listener))).collect();
        for received in receivers {
            let (flow, bytes) = received.join().unwrap();
            let size = sizes[flow as usize];
            assert!(bytes == random_bytes(flow.into(), size), "flow {flow}: {} of {size} bytes", bytes.len());
        }
    });
}

#[test]
fn flows_of_all_sizes_arrive_over_the_direct_path() {
    let relays = start_relays(2, vec![]);
    transfer(&relays, &[1, 100, 20_000, 100_000, 1_000_000, 30_000_000]);
    wait_until(|| relays.iter().all(|relay| relay.status().flow_counts == (0, 0, 0)));
    let progress = relays[0].status().groups[&(7, RelayId(2))];
    assert_eq!(progress.acked_bytes, 31_120_101);
    assert_eq!(relays[1].status().used_bytes, (0, 0));
}

#[test]
fn split_flow_uses_its_paths_as_the_rule_says_and_arrives_in_order() {
    let paths = vec![RelayPath { next: 2, fraction: 0.75 }, RelayPath { next: 3, fraction: 0.25 }];
    let scope = RuleScope::Pair { source: 1, destination: 2 };
    let rule = RelayRule { flows: RelayMatch { coflow: 7, scope }, priority: 1, weight: 1.0, paths };
    let relays = start_relays(3, vec![rule]);
    transfer(&relays, &[40_000_000, 1000, 2_000_000]);
    let links = relays[0].status().links;
    let (direct, detour) = (links[&RelayId(2)].counters, links[&RelayId(3)].counters);
    assert_eq!(detour.detoured_bytes, detour.sent_bytes);
    let fraction = detour.sent_bytes as f64 / (direct.sent_bytes + detour.sent_bytes) as f64;
    assert!((fraction - 0.25).abs() < 0.02, "{fraction}");
}

#[test]
fn relay_refuses_what_it_cannot_forward() {
    let relays = start_relays(2, vec![]);
    let refusal = |line: &str| {
        let mut stream = TcpStream::connect(relays[0].programs).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert_eq!(refusal("weir-flow/2 other 0 0 0 127.2.0.1:9\n"), "reset unknown-coflow\n");
    assert_eq!(refusal("weir-flow/2 shuffle 0 0 0 10.0.0.1:9\n"), "reset unreachable\n");
    // The relay's own receivers get their flows directly.
    assert_eq!(refusal("weir-flow/2 shuffle 0 0 0 127.1.0.1:9\n"), "reset unreachable\n");
    // No program listens.
    assert_eq!(refusal("weir-flow/2 shuffle 0 0 0 127.2.0.1:9\n"), "ack 0\nreset unreachable\n");
    assert_eq!(refusal("GET / HTTP/1.1\r\n"), "reset invalid\n");
    assert_eq!(refusal(&"x".repeat(300)), "reset invalid\n");
}

#[test]
fn flow_waits_for_the_order_that_names_its_coflow() {
    let relays = start_relays(2, vec![]);
    let listener = TcpListener::bind("127.2.0.9:0").unwrap();
    let receiver = listener.local_addr().unwrap();
    // The order follows the request at once. On a busy machine, it may still be too late.
    let is_opened = |number: u32| {
        let mut stream = TcpStream::connect(relays[0].programs).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(format!("weir-flow/2 late-{number} 0 0 0 {receiver}\n").as_bytes()).unwrap();
        let mut named = overlay(&relays, vec![]);
        named.apply(&RelayOrder {
            coflows: vec![RelayCoflow {
                number,
                name: format!("late-{number}").into(),
                service: "default".into(),
            }],
            ..RelayOrder::default()
        });
        // The first command finds the request, the second one names its coflow.
        relays[0].status();
        relays.iter().for_each(|relay| relay.handle.send(Command::SetOverlay(named.clone())));
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        line == "ack 0\n"
    };
    assert!((8..18).any(is_opened));
}

#[test]
fn slow_receiver_stops_its_own_flow_only() {
    let relays = start_relays(2, vec![]);
    let listener = TcpListener::bind("127.2.0.1:0").unwrap();
    let receiver = listener.local_addr().unwrap();
    let mut slow = open(&relays[0], 9, receiver);
    let silent = accept(&listener);
    (&silent).write_all(b"ack 0\n").unwrap();
    slow.set_nonblocking(true).unwrap();
    let bytes = vec![0; 1 << 20];
    // Without acknowledgements, the program gets rid of the credit, and of what fits into sockets.
    wait_until(|| {
        let mut is_stopped = true;
        while slow.write(&bytes).is_ok() {
            is_stopped = false;
        }
        std::thread::sleep(Duration::from_millis(50));
        is_stopped
    });
    assert!(relays[1].status().used_bytes.1 <= 8 << 20);
    drop(listener);
    transfer(&relays, &[5_000_000, 100]);
    drop(silent);
    let mut answer = String::new();
    slow.set_nonblocking(false).unwrap();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("ack 0\nreset lost\n"), "{answer}");
}

#[test]
fn flows_are_reset_when_the_other_relay_fails_and_work_after_its_restart() {
    let mut relays = start_relays(2, vec![]);
    let overlay = overlay(&relays, vec![]);
    let listener = TcpListener::bind("127.2.0.1:0").unwrap();
    let mut stream = open(&relays[0], 1, listener.local_addr().unwrap());
    stream.write_all(&[7; 1000]).unwrap();
    let reader = spawn(move || accept_flow(&listener));
    wait_until(|| relays[1].status().flow_counts.1 == 1);
    let address = relays[1].relays;
    drop(relays.pop());
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("reset lost\n"), "{answer}");
    assert_eq!(reader.join().unwrap().1, [7; 1000]);
    let restarted = TestRelay::start(2, address, 64 << 20);
    restarted.handle.send(Command::SetOverlay(overlay));
    relays.push(restarted);
    wait_until(|| relays.iter().all(|relay| relay.status().links.values().all(|link| link.is_up)));
    transfer(&relays, &[1_000_000]);
}

#[test]
fn hostile_bytes_close_the_connection_and_nothing_else() {
    let relays = start_relays(2, vec![]);
    for (seed, prefix) in [&b""[..], b"weir-relay 1 1 1 2 bulk 7\n", b"weir-relay 9 9 1 2 bulk 7\n", b"\n"]
        .into_iter()
        .enumerate()
    {
        let mut stream = TcpStream::connect(relays[1].relays).unwrap();
        // The relay may close the connection early.
        let _ = stream.write_all(prefix).and_then(|()| stream.write_all(&random_bytes(seed as u64, 5000)));
        let mut answer = Vec::new();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let _ = stream.read_to_end(&mut answer);
    }
    wait_until(|| relays.iter().all(|relay| relay.status().links.values().all(|link| link.is_up)));
    transfer(&relays, &[100_000]);
}
