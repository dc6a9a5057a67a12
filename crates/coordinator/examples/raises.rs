//! Measures the sending time that a flow loses when an order raises its rate: flows of one host wait, and orders let one after the
//! other send, at the rate of the link. The time after an order, less the time that the bytes take that arrived meanwhile, is the lost
//! time. The senders are those of the library, which write only while they may (`library`), or write to handed-over sockets as fast as they
//! can. The kernel pauses the sockets of waiting flows (`paused`), or they share 1 % of the link, as without root (`paced`).
//!
//! Loopback has packets of Ethernet's size here, and an agent that takes orders from this program:
//!
//! `cargo build --release -p weir-coordinator --example raises && sudo unshare -n sh -c 'ip link set lo mtu 1500 up &&
//! sysctl -qw net.ipv4.tcp_min_tso_segs=1 net.ipv4.tcp_tso_rtt_log=0 && target/release/examples/raises 30 100 paused'` prints the times of
//! 30 flows at 100 Mbit/s. 1,000 flows need `ulimit -n 16384`.

#![cfg(target_os = "linux")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::stream;
use socket2::SockRef;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use weir_agent::live::{self, Link, Settings};
use weir_client::{Agent, FlowSender, Route};
use weir_core::units::Rate;
use weir_proto::wire::control_server::{Control, ControlServer};
use weir_proto::wire::{AgentMessage, CoordinatorMessage};
use weir_proto::{FRAME_BYTES, FlowKey, Order, OrderedRate, PAYLOAD_BYTES};

type ExampleResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The coordinator's interval, and the lease of orders.
const INTERVAL: Duration = Duration::from_millis(8);
const LEASE: Duration = Duration::from_millis(80);

/// How long each flow sends after its order, twice the maximum of the lost time, and the number of measured orders.
const WINDOW: Duration = Duration::from_secs(1);
const RAISES: usize = 25;

/// How often a receiver without new data repeats its acknowledgement, as those of the library do.
const ACK_INTERVAL: Duration = Duration::from_secs(10);

/// The fraction of the link that waiting flows share which cannot be paused: the default of the coordinator.
const RESERVE: f64 = 0.01;

/// How waiting flows wait.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// In the library.
    Library,
    /// In their sockets, which the kernel pauses.
    Paused,
    /// By the pacing rates of their sockets.
    Paced,
}

fn main() -> ExampleResult<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [flows, megabits, mode] = &args[..] else {
        return Err("usage: raises FLOWS MBIT_PER_SECOND library|paused|paced".into());
    };
    let (flows, megabits): (u32, u64) = (flows.parse()?, megabits.parse()?);
    let name = mode;
    let mode = match &mode[..] {
        "library" => Mode::Library,
        "paused" => Mode::Paused,
        "paced" => Mode::Paced,
        _ => return Err(format!("mode `{mode}` is unknown; expected library, paused or paced").into()),
    };
    live::raise_file_limit();
    let raises = measure(mode, flows, megabits * 125_000)?;
    println!("{flows} flows, {name}, {megabits} Mbit/s, {} raises; lost time in ms:", raises.len());
    for (column, reference) in ["ordered rate", "flow's rate in the second half"].iter().enumerate() {
        let mut lost: Vec<f64> = raises.iter().map(|lost| lost[column]).collect();
        lost.sort_by(f64::total_cmp);
        let mean = lost.iter().sum::<f64>() / lost.len() as f64;
        let percentile = |percent: usize| lost[(lost.len() * percent).div_ceil(100).max(1) - 1];
        let (median, p90) = (percentile(50), percentile(90));
        println!("  at the {reference}: mean {mean:.1}, P50 {median:.1}, P90 {p90:.1}");
    }
    Ok(())
}

/// A coordinator whose orders are those that arrive in a channel.
struct OrderSource(Mutex<Option<mpsc::Receiver<Order>>>);

#[tonic::async_trait]
impl Control for OrderSource {
    type StreamOrdersStream =
        std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<CoordinatorMessage, Status>> + Send>>;

    async fn stream_orders(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::StreamOrdersStream>, Status> {
        let mut reports = request.into_inner();
        tokio::spawn(async move { while let Some(Ok(_)) = reports.next().await {} });
        let orders = self.0.lock().ok().and_then(|mut orders| orders.take());
        let orders = orders.ok_or_else(|| Status::unavailable("the agent has connected before"))?;
        let welcome = CoordinatorMessage::welcome(INTERVAL, 1, 0, vec![0], None, false);
        let orders = ReceiverStream::new(orders).map(|order| CoordinatorMessage::order(&order));
        Ok(Response::new(Box::pin(stream::iter([welcome]).chain(orders).map(Ok))))
    }
}

/// Runs a coordinator and an agent until the sender of orders is dropped.
fn start_agent(socket: std::path::PathBuf, rate: u64, mode: Mode) -> ExampleResult<mpsc::Sender<Order>> {
    let (orders, order_receiver) = mpsc::channel(64);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (started, has_started) = std::sync::mpsc::channel();
    let closed = orders.clone();
    thread::spawn(move || {
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
            let address = listener.local_addr().expect("a bound socket has an address");
            let service = ControlServer::new(OrderSource(Mutex::new(Some(order_receiver))));
            let incoming = TcpListenerStream::new(listener);
            tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
            let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address is an URL");
            let link = Link { rate: Rate::new(rate as f64).expect("a rate"), interfaces: Vec::new() };
            let settings = Settings {
                coordinator: endpoint.into(),
                name: "h0".to_owned(),
                links: vec![link],
                networks: Vec::new(),
                labels: std::collections::BTreeMap::new(),
                local_socket: Some(socket),
                watchdog: None,
                has_socket_programs: mode == Mode::Paused,
                dry_run: false,
            };
            let _ = started.send(());
            let (_, result) = live::run(settings, Vec::new(), None, None, closed.closed()).await;
            result.expect("the agent's socket is free");
        });
    });
    has_started.recv()?;
    Ok(orders)
}

/// Orders to one host, with their sequence numbers.
struct Orders {
    sender: mpsc::Sender<Order>,
    seq: u64,
}

impl Orders {
    fn send(&mut self, flows: Vec<(u32, OrderedRate)>) {
        self.seq += 1;
        let key = |flow| FlowKey { coflow: "c".into(), generation: 1, flow };
        let order = Order {
            epoch: 1,
            seq: self.seq,
            lease: LEASE,
            is_full: self.seq == 1,
            flows: flows.into_iter().map(|(flow, rate)| (key(flow), rate)).collect(),
            ..Order::default()
        };
        self.sender.blocking_send(order).expect("the agent runs");
    }

    /// Renews the lease for a time.
    fn hold(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while let Some(remaining) = end.checked_duration_since(Instant::now()) {
            thread::sleep(remaining.min(LEASE / 4));
            self.send(Vec::new());
        }
    }
}

/// Sends flows that end with the process. Returns the received bytes of each.
fn start_flows(
    mode: Mode,
    flows: u32,
    agent: &Arc<Agent>,
    orders: &mut Orders,
) -> ExampleResult<Vec<Arc<AtomicU64>>> {
    let handed_over = Arc::new(AtomicU64::new(0));
    let mut counts = Vec::new();
    for flow in 0..flows {
        if flow % 16 == 0 {
            orders.hold(Duration::from_millis(1));
        }
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, count) = (listener.local_addr()?, Arc::new(AtomicU64::new(0)));
        counts.push(Arc::clone(&count));
        let thread = || thread::Builder::new().stack_size(256 << 10);
        thread().spawn(move || match mode {
            Mode::Library => receive_chunks(listener.accept()?.0, &count),
            Mode::Paused | Mode::Paced => receive_bytes(listener.accept()?.0, &count),
        })?;
        let (agent, handed_over) = (Arc::clone(agent), Arc::clone(&handed_over));
        thread().spawn(move || match mode {
            Mode::Library => send_chunks(address, flow, &agent, &handed_over),
            Mode::Paused | Mode::Paced => send_bytes(address, flow, &agent, &handed_over),
        })?;
    }
    while handed_over.load(Ordering::Relaxed) < u64::from(flows) {
        orders.hold(LEASE / 4);
    }
    Ok(counts)
}

fn send_chunks(
    address: SocketAddr,
    flow: u32,
    agent: &Agent,
    handed_over: &AtomicU64,
) -> std::io::Result<()> {
    let mut sender = FlowSender::new("c", flow, Route::direct(address)?)?.with_agent(agent);
    let chunk = vec![0; 1 << 16];
    // The first chunk connects.
    sender.write_all(&chunk)?;
    handed_over.fetch_add(1, Ordering::Relaxed);
    loop {
        // Without this, each waiting flow would buffer 8 MiB.
        sender.flush()?;
        sender.write_all(&chunk)?;
    }
}

fn send_bytes(address: SocketAddr, flow: u32, agent: &Agent, handed_over: &AtomicU64) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    agent.hand_over("c", flow, &stream).map_err(std::io::Error::other)?;
    handed_over.fetch_add(1, Ordering::Relaxed);
    loop {
        stream.write_all(&[0; 1 << 14])?;
    }
}

fn receive_bytes(mut stream: TcpStream, count: &AtomicU64) -> std::io::Result<()> {
    let mut buffer = [0; 1 << 16];
    loop {
        let length = stream.read(&mut buffer)?;
        count.fetch_add(length as u64, Ordering::Relaxed);
    }
}

/// Receives a flow of the library, and acknowledges all chunks that have arrived.
fn receive_chunks(mut stream: TcpStream, count: &AtomicU64) -> std::io::Result<()> {
    const CHUNK_BYTES: u64 = 8 + (1 << 16);
    SockRef::from(&stream).set_tcp_nodelay(true)?;
    stream.set_read_timeout(Some(ACK_INTERVAL))?;
    let mut buffer = [0; 1 << 16];
    let mut byte = [0];
    while byte != *b"\n" {
        stream.read_exact(&mut byte)?;
    }
    stream.write_all(b"ack 0\n")?;
    let (mut received, mut acked) = (0, 0);
    loop {
        let length = match stream.read(&mut buffer) {
            Ok(length) => length as u64,
            // Like a receiver of the library.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                stream.write_all(format!("ack {acked}\n").as_bytes())?;
                continue;
            }
            Err(error) => return Err(error),
        };
        count.fetch_add(length, Ordering::Relaxed);
        received += length;
        let complete = received / CHUNK_BYTES * CHUNK_BYTES;
        if complete > acked + 4 * CHUNK_BYTES {
            acked = complete;
            stream.write_all(format!("ack {acked}\n").as_bytes())?;
        }
    }
}

/// The lost time of each raise in the first half of its window, in milliseconds: at the ordered rate, and at the flow's rate in the
/// second half, since the kernel's pacing may be slightly below the ordered rate.
fn measure(mode: Mode, flows: u32, rate: u64) -> ExampleResult<Vec<[f64; 2]>> {
    let socket = std::env::temp_dir().join(format!("weir-raises-{}-{}", std::process::id(), mode as u8));
    let mut orders = Orders { sender: start_agent(socket.clone(), rate, mode)?, seq: 0 };
    let waiting = match mode {
        Mode::Library | Mode::Paused => OrderedRate::Paused,
        Mode::Paced => {
            OrderedRate::Reserve(((RESERVE * rate as f64 / f64::from(flows.max(2) - 1)) as u64).max(1))
        }
    };
    orders.send((0..flows).map(|flow| (flow, waiting)).collect());
    let agent = loop {
        match Agent::connect(&socket) {
            Ok(agent) => break Arc::new(agent),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    };
    orders.hold(Duration::from_millis(200));
    let counts = start_flows(mode, flows, &agent, &mut orders)?;
    // First bursts of new sockets.
    orders.hold(Duration::from_secs(3));
    let payload_rate = rate as f64 * f64::from(PAYLOAD_BYTES) / f64::from(FRAME_BYTES);
    let mut lost = Vec::new();
    for raise in 0..RAISES {
        let flow = raise as u32 * 7 % flows;
        let bytes = || counts[flow as usize].load(Ordering::Relaxed);
        let before = bytes();
        let start = Instant::now();
        orders.send(vec![(flow, OrderedRate::Rate(rate))]);
        orders.hold(WINDOW / 2);
        let (half_time, half_bytes) = (start.elapsed().as_secs_f64(), (bytes() - before) as f64);
        orders.hold(WINDOW / 2);
        let (time, all_bytes) = (start.elapsed().as_secs_f64(), (bytes() - before) as f64);
        let later_rate = (all_bytes - half_bytes) / (time - half_time);
        let lost_at = |rate: f64| (half_time - half_bytes / rate.max(1.0)) * 1e3;
        lost.push([lost_at(payload_rate), lost_at(later_rate)]);
        orders.send(vec![(flow, waiting)]);
        // The flow waits long enough for its rate to fall.
        orders.hold(Duration::from_millis(100));
    }
    Ok(lost)
}
