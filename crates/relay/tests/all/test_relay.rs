//! Starts relays on loopback addresses, and programs that use them over plain text.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weir_proto::relay::{RelayCoflow, RelayOrder, RelayPeer, RelayRule};
use weir_relay::io::{Command, Handle, RelayTls, Server, ServerSettings, Status};
use weir_relay::message::RelayId;
use weir_relay::overlay::Overlay;

pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A relay on 127.ID.0.1, which serves receivers in 127.ID.0.0/16.
pub struct TestRelay {
    pub handle: Handle,
    pub programs: SocketAddr,
    pub relays: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl TestRelay {
    pub fn start(id: u16, relays: SocketAddr, tls: Option<RelayTls>) -> TestRelay {
        TestRelay::start_with(relays, ServerSettings { tls: tls.map(Arc::new), ..settings(id) })
    }

    pub fn start_with(relays: SocketAddr, settings: ServerSettings) -> TestRelay {
        let id = settings.id.0;
        let programs = format!("127.{id}.0.1:0").parse().unwrap();
        let (server, handle) = Server::bind(settings, programs, relays).unwrap();
        let (programs, relays) = server.addresses().unwrap();
        let thread = Some(spawn(move || server.run().unwrap()));
        TestRelay { handle, programs, relays, thread }
    }

    pub fn status(&self) -> Status {
        let (sender, answer) = channel();
        self.handle.send(Command::Report(Box::new(move |status| drop(sender.send(status)))));
        answer.recv_timeout(TIMEOUT).unwrap()
    }
}

/// The settings of a relay with plain text.
pub fn settings(id: u16) -> ServerSettings {
    ServerSettings {
        id: RelayId(id),
        memory_bytes: 64 << 20,
        congestion_control: None,
        connections: None,
        tls: None,
    }
}

impl Drop for TestRelay {
    fn drop(&mut self) {
        self.handle.send(Command::Stop);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Relays 1 to `count` that know coflow 7 with the name `shuffle`, after all have connected.
pub fn start_relays(count: u16, rules: Vec<RelayRule>) -> Vec<TestRelay> {
    connect_relays((1..=count).map(|_| None).collect(), rules)
}

/// As [`start_relays`], with TLS.
pub fn connect_relays(tls: Vec<Option<RelayTls>>, rules: Vec<RelayRule>) -> Vec<TestRelay> {
    let settings = |(id, tls): (_, Option<_>)| ServerSettings { tls: tls.map(Arc::new), ..settings(id) };
    connect_relays_with((1..).zip(tls).map(settings).collect(), rules)
}

/// As [`start_relays`], with these settings.
pub fn connect_relays_with(settings: Vec<ServerSettings>, rules: Vec<RelayRule>) -> Vec<TestRelay> {
    let start = |settings: ServerSettings| {
        let address = format!("127.{}.0.1:0", settings.id.0).parse().unwrap();
        TestRelay::start_with(address, settings)
    };
    let relays: Vec<TestRelay> = settings.into_iter().map(start).collect();
    let overlay = overlay(&relays, rules);
    relays.iter().for_each(|relay| relay.handle.send(Command::SetOverlay(overlay.clone())));
    wait_until(|| relays.iter().all(|relay| relay.status().links.values().all(|link| link.is_up)));
    relays
}

pub fn overlay(relays: &[TestRelay], rules: Vec<RelayRule>) -> Overlay {
    let peer = |(index, relay): (usize, &TestRelay)| RelayPeer {
        id: index as u16 + 1,
        name: format!("relay-{}", index + 1).into(),
        address: relay.relays,
        networks: vec![format!("127.{}.0.0/16", index + 1).parse().unwrap()],
        region: index as u16 + 1,
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

pub fn wait_until(mut is_done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < TIMEOUT, "the condition does not become true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Connects to a relay, and asks for a flow.
pub fn open(relay: &TestRelay, flow: u32, receiver: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(relay.programs).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(format!("weir-flow/2 shuffle {flow} 0 0 {receiver}\n").as_bytes()).unwrap();
    stream
}

/// Sends bytes to a relay, and returns its answer.
pub fn refusal(relay: &TestRelay, line: &str) -> String {
    let mut stream = TcpStream::connect(relay.programs).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(line.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Accepts a flow, returns its number and its bytes, and acknowledges them.
pub fn accept_flow(listener: &TcpListener) -> (u32, Vec<u8>) {
    read_flow(accept(listener))
}

pub fn accept(listener: &TcpListener) -> TcpStream {
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

pub fn read_flow(stream: TcpStream) -> (u32, Vec<u8>) {
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

pub fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Writes a flow, and waits for its last acknowledgement.
pub fn send(mut stream: TcpStream, bytes: &[u8]) -> String {
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

pub fn transfer(relays: &[TestRelay], sizes: &[usize]) {
    transfer_to(&relays[0], 2, sizes);
}

/// Sends flows of these sizes from programs of a relay to those of the relay `id`, and compares their bytes.
pub fn transfer_to(relay: &TestRelay, id: u16, sizes: &[usize]) {
    let listener = TcpListener::bind(format!("127.{id}.0.1:0")).unwrap();
    let receiver = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        for (flow, &size) in sizes.iter().enumerate() {
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
