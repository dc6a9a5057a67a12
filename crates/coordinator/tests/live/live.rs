//! A coordinator, an agent and programs in one process, with real sockets over loopback.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::kernel::{CounterReading, RateBounds, acked_bytes, pacing_rate};
use crate::wait::wait_for;
use nix::sys::socket::{
    setsockopt,
    sockopt::{TcpMaxSeg, TcpUserTimeout},
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tonic::transport::Endpoint;
use weir_agent::batch::{run_batch, run_tool};
use weir_agent::live::{self, Settings as AgentSettings};
use weir_agent::queues::Interface;
use weir_agent::traffic::{SocketLeases, Traffic};
use weir_client::{Agent, AgentError};
use weir_coordinator::agents;
use weir_coordinator::control_plane::{
    ControlPlane, FlowStatus, Link, LivePolicy, NetworkLinks, OrderedRate, Registration, Settings, Transfer,
};
use weir_coordinator::control_thread::{Handle, start};
use weir_core::model::ServiceNames;
use weir_core::policy::build;
use weir_core::units::{Bytes, Rate};
use weir_proto::PAYLOAD_BYTES;
use weir_testbed::namespace;

/// Configured capacity of the hosts' links in bytes per second, far below that of loopback.
pub const LINK_RATE: f64 = 4e6;

/// Expected payload rate: without the reserve. Packets on loopback are large, so headers are negligible.
const EXPECTED_PAYLOAD_RATE: f64 = LINK_RATE * 0.99;

/// What a flow that gets all of a link sends, in bytes of payload per second, with packets as on a network.
fn full_payload_rate() -> f64 {
    let Settings { budget, reserve, .. } = Settings::default();
    LINK_RATE * budget.coflow_payload_fraction(reserve)
}

/// The tests measure rates, so only one runs at a time.
static ONE_TEST_AT_A_TIME: Mutex<()> = Mutex::new(());

pub fn lock_tests() -> MutexGuard<'static, ()> {
    ONE_TEST_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A running coordinator. Dropping it closes its connections without a message.
pub struct Coordinator {
    handle: Handle,
    runtime: Runtime,
    /// The number of registrations.
    registrations: AtomicU64,
}

impl Coordinator {
    fn start(address: SocketAddr, epoch: u64) -> (Coordinator, SocketAddr) {
        Coordinator::start_with_links(address, epoch, LINK_RATE)
    }

    fn start_with_links(address: SocketAddr, epoch: u64, link_rate: f64) -> (Coordinator, SocketAddr) {
        Coordinator::start_with(address, epoch, link_rate, build("saath:start=1TB").unwrap().into())
    }

    pub fn start_with(
        address: SocketAddr,
        epoch: u64,
        link_rate: f64,
        policy: LivePolicy,
    ) -> (Coordinator, SocketAddr) {
        Coordinator::start_with_plane(address, epoch, link_rate, policy, |plane| plane)
    }

    /// `complete` adds to the control plane what only some tests need.
    pub fn start_with_plane(
        address: SocketAddr,
        epoch: u64,
        link_rate: f64,
        policy: LivePolicy,
        complete: impl FnOnce(ControlPlane) -> ControlPlane,
    ) -> (Coordinator, SocketAddr) {
        let rate = Rate::new(link_rate).unwrap();
        let links = [Link { send: rate, recv: rate }; 4];
        let settings = Settings { lease: 1.5, ..Settings::default() };
        let plane = ControlPlane::new(
            NetworkLinks::one_switch(&links),
            policy,
            ServiceNames::default(),
            settings,
            epoch,
        )
        .unwrap();
        let (handle, _) = start(complete(plane)).unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let bound = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.set_reuseaddr(true).unwrap();
            socket.bind(address).unwrap();
            socket.listen(16).unwrap()
        });
        let address = bound.local_addr().unwrap();
        runtime.spawn(agents::serve(bound, handle.clone()));
        (Coordinator { handle, runtime, registrations: AtomicU64::new(0) }, address)
    }

    pub fn register(&self, id: &str, flows: &[(u32, u32, f64)]) {
        let flow = |&(src, dst, bytes): &(u32, u32, f64)| Transfer { src, dst, bytes: Bytes::new(bytes) };
        self.register_flows(id, flows.iter().map(flow).collect());
    }

    fn register_flows(&self, id: &str, flows: Vec<Transfer>) {
        let registration = Registration {
            generation: self.registrations.fetch_add(1, Ordering::Relaxed) + 1,
            service: ServiceNames::DEFAULT.to_owned(),
            application: ServiceNames::DEFAULT.to_owned(),
            weight: 1.0,
            deadline: None,
            flows,
        };
        let id = id.to_owned();
        let registered = self.handle.call(move |plane, now| plane.register(&id, registration, now));
        assert_eq!(self.runtime.block_on(registered), Ok(Ok(true)));
    }

    /// Removes a coflow. Returns the orders that remove it from agents.
    fn deregister(&self, id: &str) -> Vec<(u32, u64)> {
        let id = id.to_owned();
        let removed = self.handle.call(move |plane, now| plane.deregister(&id, now));
        self.runtime.block_on(removed).unwrap().unwrap()
    }

    pub fn flows(&self, id: &str) -> Vec<FlowStatus> {
        let id = id.to_owned();
        let status = self.handle.call(move |plane, _| plane.coflow_status(&id));
        self.runtime.block_on(status).unwrap().unwrap().flows
    }

    /// Bytes sent by a coflow, and whether it has completed.
    pub fn sent_bytes_and_completion(&self, id: &str) -> (f64, bool) {
        let flows = self.flows(id);
        (flows.iter().map(|flow| flow.sent_bytes).sum(), flows.iter().all(|flow| flow.is_completed))
    }

    pub fn present_host_count(&self) -> usize {
        self.runtime.block_on(self.handle.overview()).unwrap().connected_agents
    }

    /// The number of connections that a host may have, if it follows the loss.
    pub fn connections(&self, host: u32) -> Option<u32> {
        let statuses = self.handle.call(|plane, _| plane.host_statuses());
        self.runtime.block_on(statuses).unwrap()[host as usize].max_connections
    }

    /// Calls the control plane.
    pub fn call<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut ControlPlane, f64) -> T + Send + 'static,
    ) -> T {
        self.runtime.block_on(self.handle.call(request)).unwrap()
    }

    /// Number of flows in reports whose coflow is not registered.
    fn unknown_flow_entries(&self) -> u64 {
        self.runtime.block_on(self.handle.overview()).unwrap().rejected_entries.unknown_flow
    }

    fn stop(self) {
        self.runtime.shutdown_background();
    }
}

/// The agent of a host.
pub struct RunningAgent {
    folder: TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RunningAgent {
    fn start(coordinator: SocketAddr, host: u32) -> RunningAgent {
        RunningAgent::start_with_link(coordinator, host, LINK_RATE)
    }

    pub fn start_with_link(coordinator: SocketAddr, host: u32, link_rate: f64) -> RunningAgent {
        RunningAgent::start_with(coordinator, host, link_rate, false)
    }

    fn start_with(
        coordinator: SocketAddr,
        host: u32,
        link_rate: f64,
        has_socket_programs: bool,
    ) -> RunningAgent {
        RunningAgent::start_at_interfaces(coordinator, host, link_rate, has_socket_programs, &[], None)
    }

    /// The agent also keeps interfaces, and marks and observes `traffic`.
    pub fn start_at_interfaces(
        coordinator: SocketAddr,
        host: u32,
        link_rate: f64,
        has_socket_programs: bool,
        interfaces: &[Interface],
        traffic: Option<Traffic>,
    ) -> RunningAgent {
        let links = vec![live::Link { rate: Rate::new(link_rate).unwrap(), interfaces: interfaces.to_vec() }];
        RunningAgent::start_with_links(coordinator, format!("h{host}"), links, has_socket_programs, traffic)
    }

    /// The agent of a host or switch with these links.
    pub fn start_with_links(
        coordinator: SocketAddr,
        name: String,
        links: Vec<live::Link>,
        has_socket_programs: bool,
        traffic: Option<Traffic>,
    ) -> RunningAgent {
        let folder = tempfile::tempdir().unwrap();
        let settings = AgentSettings {
            watchdog: None,
            coordinator: Endpoint::from_shared(format!("http://{coordinator}")).unwrap().into(),
            name,
            links,
            networks: Vec::new(),
            labels: std::collections::BTreeMap::new(),
            local_socket: Some(folder.path().join("local_socket")),
            has_socket_programs,
            dry_run: false,
        };
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let stopped = async { stopped.await.unwrap_or_default() };
            runtime.block_on(live::run(settings, Vec::new(), traffic, None, stopped)).1.unwrap();
        });
        let running = RunningAgent { folder, stop: Some(stop), thread: Some(thread) };
        wait_for("the agent's local socket", || Agent::connect(running.local_socket()).is_ok());
        running
    }

    pub fn local_socket(&self) -> PathBuf {
        self.folder.path().join("local_socket")
    }
}

impl Drop for RunningAgent {
    fn drop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        let ended = self.thread.take().unwrap().join();
        assert!(thread::panicking() || ended.is_ok() && !self.local_socket().exists());
    }
}

/// Registers a coflow of one flow that waits for those registered before, and sends it: flows without competition have no rate.
fn send_competitor(coordinator: &Coordinator, agent: &Agent) -> MeasuredConnection {
    coordinator.register("competitor", &[(0, 1, 1e13)]);
    let competitor = MeasuredConnection::new();
    competitor.send_continuously();
    agent.hand_over("competitor", 0, &competitor.stream).unwrap();
    competitor
}

/// A coordinator with two coflows of one flow on the same ports, in their order, and the agent of their sender.
fn start_host(coflows: [&str; 2], has_socket_programs: bool) -> (Coordinator, RunningAgent, Agent) {
    let (coordinator, address) = Coordinator::start("127.0.0.1:0".parse().unwrap(), 1);
    coflows.into_iter().for_each(|id| coordinator.register(id, &[(0, 1, 1e12)]));
    let running = RunningAgent::start_with(address, 0, LINK_RATE, has_socket_programs);
    wait_for("the host", || coordinator.present_host_count() == 1);
    let agent = Agent::connect(running.local_socket()).unwrap();
    (coordinator, running, agent)
}

/// Whether a socket has the rate of its link, or none because no other flow waits.
fn has_link(stream: &TcpStream) -> bool {
    pacing_rate(stream).is_none_or(|rate| rate as f64 > 0.95 * EXPECTED_PAYLOAD_RATE)
}

/// A connection over loopback, and the number of bytes received from it.
pub struct MeasuredConnection {
    pub stream: TcpStream,
    received_bytes: Arc<AtomicU64>,
    is_closed: Arc<AtomicBool>,
    /// Its end is the end of the sending thread.
    connection: Arc<()>,
}

/// A connection over loopback: the sender's end and the receiver's.
fn connect() -> (TcpStream, TcpStream) {
    connect_to(&TcpListener::bind("127.0.0.1:0").unwrap())
}

fn connect_to(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (stream, listener.accept().unwrap().0)
}

/// Writes until this end of the connection is shut down.
fn send_continuously(stream: &TcpStream, connection: &Arc<()>) {
    let (mut stream, connection) = (stream.try_clone().unwrap(), Arc::downgrade(connection));
    thread::spawn(move || {
        let buffer = vec![0; 1 << 16];
        while connection.strong_count() > 0 && stream.write_all(&buffer).is_ok() {}
    });
}

impl MeasuredConnection {
    pub fn new() -> MeasuredConnection {
        MeasuredConnection::of(connect())
    }

    /// A connection with packets as on a network. The large packets of loopback would wait for seconds at the rate of the reserve.
    fn with_ethernet_packets() -> MeasuredConnection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // 12 bytes are the time stamp.
        setsockopt(&listener, TcpMaxSeg, &(PAYLOAD_BYTES + 12)).unwrap();
        MeasuredConnection::of(connect_to(&listener))
    }

    fn of((stream, mut other): (TcpStream, TcpStream)) -> MeasuredConnection {
        let (received_bytes, is_closed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let wire = MeasuredConnection {
            stream,
            received_bytes: Arc::clone(&received_bytes),
            is_closed: Arc::clone(&is_closed),
            connection: Arc::default(),
        };
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(read @ 1..) = other.read(&mut buffer) {
                received_bytes.fetch_add(read as u64, Ordering::Relaxed);
            }
            is_closed.store(true, Ordering::Relaxed);
        });
        wire
    }

    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    pub fn send_continuously(&self) {
        send_continuously(&self.stream, &self.connection);
    }

    /// Rate of acknowledged bytes by the kernel's counter, in bytes per second, measured over `time`.
    fn measure_rate(&self, duration: Duration) -> RateBounds {
        let read = || CounterReading::read(|| acked_bytes(&self.stream));
        let before = read();
        thread::sleep(duration);
        read().rate_since(&before)
    }
}

/// Saath serves the first coflow first: its flow gets the link, and the second flow gets the reserve.
#[test]
fn sockets_send_at_the_ordered_rate() {
    let _turn = lock_tests();
    let (coordinator, address) = Coordinator::start("127.0.0.1:0".parse().unwrap(), 1);
    coordinator.register("first", &[(0, 1, 1e12)]);
    coordinator.register("second", &[(0, 1, 1e12)]);
    let running = RunningAgent::start(address, 0);
    let agent = Agent::connect(running.local_socket()).unwrap();
    let (first, second) = (MeasuredConnection::new(), MeasuredConnection::new());
    agent.hand_over("first", 0, &first.stream).unwrap();
    agent.hand_over("second", 0, &second.stream).unwrap();
    first.send_continuously();
    second.send_continuously();
    // On a busy machine the rate may be reached late; a wrong rate is never within the bounds.
    wait_for("the rates of the orders", || {
        let (paced, waiting) = thread::scope(|scope| {
            let other = scope.spawn(|| second.measure_rate(Duration::from_secs(2)));
            (first.measure_rate(Duration::from_secs(2)), other.join().unwrap())
        });
        eprintln!(
            "{paced:.0?} bytes/s, expected {EXPECTED_PAYLOAD_RATE}; {waiting:.0?} bytes/s of the waiting flow"
        );
        paced.is_within(0.95 * EXPECTED_PAYLOAD_RATE, 1.05 * EXPECTED_PAYLOAD_RATE)
            && waiting.max < 0.03 * LINK_RATE
    });
    // Before the first order the sockets had no limit, and bytes before the hand-over was handled are not reported.
    let count = || (coordinator.sent_bytes_and_completion("first").0, first.received_bytes() as f64);
    let (reported_before, received_before) = count();
    // Tolerance for bytes in transit, and for bytes sent since the last report.
    wait_for("a report of the received bytes", || {
        let (reported, received) = count();
        let (reported, received) = (reported - reported_before, received - received_before);
        eprintln!("{reported} bytes are reported, {received} were received");
        received > LINK_RATE && (reported / received - 1.0).abs() < 0.2
    });
}

/// A program that has handed over a socket and writes nothing holds no link. It is served when it writes.
#[test]
fn idle_program_leaves_its_link_to_others_until_it_writes() {
    let _turn = lock_tests();
    let (coordinator, _running, agent) = start_host(["idle", "busy"], false);
    let (idle, busy) = (MeasuredConnection::new(), MeasuredConnection::new());
    busy.send_continuously();
    agent.hand_over("idle", 0, &idle.stream).unwrap();
    agent.hand_over("busy", 0, &busy.stream).unwrap();
    let handed_over = Instant::now();
    wait_for("the link for the busy program", || {
        let [idle_rate, busy_rate] = ["idle", "busy"].map(|id| coordinator.flows(id)[0].ordered_rate);
        busy_rate == Some(OrderedRate::Unlimited)
            && matches!(idle_rate, Some(OrderedRate::Reserve(rate)) if (rate as f64) < 0.02 * LINK_RATE)
            && pacing_rate(&busy.stream).is_none()
    });
    eprintln!("the busy program has the link after {:?}", handed_over.elapsed());
    wait_for("at least the rate of the link", || {
        busy.measure_rate(Duration::from_secs(1)).min > EXPECTED_PAYLOAD_RATE
    });
    // The fastest of several switches is that of the mechanism: another program may delay the others.
    let mut fastest = [Duration::MAX; 2];
    for round in 1..=10 {
        let wrote = Instant::now();
        (&idle.stream).write_all(&vec![0; 400_000]).unwrap();
        let is_served = || has_link(&idle.stream) && !has_link(&busy.stream);
        // On a busy machine, this thread may see the program only after its last byte. Such a round shows no time.
        while !is_served() && idle.received_bytes() < round * 400_000 {
            assert!(wrote.elapsed() < Duration::from_secs(5), "the program that writes has no link");
            thread::sleep(Duration::from_micros(200));
        }
        if !is_served() {
            continue;
        }
        fastest[0] = fastest[0].min(wrote.elapsed());
        let mut drained = None;
        while !has_link(&busy.stream) {
            assert!(wrote.elapsed() < Duration::from_secs(20), "the idle program keeps the link");
            if idle.received_bytes() == round * 400_000 {
                drained.get_or_insert_with(Instant::now);
            }
            thread::sleep(Duration::from_micros(200));
        }
        fastest[1] = fastest[1].min(drained.map_or(Duration::ZERO, |since| since.elapsed()));
    }
    eprintln!(
        "a program that writes has the link after {:?}; after its last byte, the other one after {:?}",
        fastest[0], fastest[1]
    );
    assert!(fastest[0] < Duration::from_millis(20), "{fastest:?}");
    assert!(fastest[1] < Duration::from_millis(100), "{fastest:?}");
}

/// Writes `bytes` every 4 ms until `is_slow` is unset, and then as fast as the connection takes it until it is set again.
fn send_slowly(stream: &TcpStream, bytes: usize, is_slow: &Arc<AtomicBool>) {
    let (mut stream, is_slow) = (stream.try_clone().unwrap(), Arc::clone(is_slow));
    thread::spawn(move || {
        let buffer = vec![0; 1 << 16];
        let mut next = Instant::now();
        loop {
            let length = if is_slow.load(Ordering::Relaxed) {
                next += Duration::from_millis(4);
                thread::sleep(next.saturating_duration_since(Instant::now()));
                bytes
            } else {
                next = Instant::now();
                buffer.len()
            };
            if stream.write_all(&buffer[..length]).is_err() {
                return;
            }
        }
    });
}

/// A program that writes a tenth of its rate leaves the rest of its link to others, and is served again when it writes more.
#[test]
fn slow_program_leaves_the_rest_of_its_link_to_others_until_it_writes_more() {
    let _turn = lock_tests();
    let (_coordinator, _running, agent) = start_host(["slow", "busy"], false);
    let [slow, busy] = std::array::from_fn(|_| MeasuredConnection::with_ethernet_packets());
    let is_slow = Arc::new(AtomicBool::new(true));
    let demand = 0.1 * full_payload_rate();
    send_slowly(&slow.stream, (0.004 * demand) as usize, &is_slow);
    busy.send_continuously();
    agent.hand_over("slow", 0, &slow.stream).unwrap();
    agent.hand_over("busy", 0, &busy.stream).unwrap();
    let rate =
        |flow: &MeasuredConnection| pacing_rate(&flow.stream).map_or(f64::INFINITY, |rate| rate as f64);
    let rest = full_payload_rate() - demand;
    let has_rest = || (0.95 * rest..rest).contains(&rate(&busy)) && rate(&slow) < 0.2 * LINK_RATE;
    wait_for("the rest of the link for the busy program", has_rest);
    wait_for("the rates of the programs", || {
        let (of_slow, of_busy) = thread::scope(|scope| {
            let other = scope.spawn(|| slow.measure_rate(Duration::from_secs(2)));
            let of_busy = busy.measure_rate(Duration::from_secs(2));
            (other.join().unwrap(), of_busy)
        });
        eprintln!(
            "{of_slow:.0?} bytes/s of {demand}, and {of_busy:.0?} bytes/s of {rest} of the busy program"
        );
        of_slow.is_within(0.9 * demand, 1.1 * demand) && of_busy.is_within(0.95 * rest, 1.05 * rest)
    });
    // The fastest of several switches is that of the mechanism: another program may delay the others.
    let (mut fastest, mut highest) = ([Duration::MAX; 2], 0.0f64);
    for _ in 0..10 {
        for (at, slows_down) in [(0, false), (1, true)] {
            let begin = Instant::now();
            is_slow.store(slows_down, Ordering::Relaxed);
            let is_served = || rate(&slow) > 0.95 * full_payload_rate() && rate(&busy) < 0.1 * LINK_RATE;
            while !(if slows_down { has_rest() } else { is_served() }) {
                assert!(begin.elapsed() < Duration::from_secs(20), "slow: {slows_down}");
                thread::sleep(Duration::from_micros(200));
            }
            fastest[at] = fastest[at].min(begin.elapsed());
            let of_slow = slow.measure_rate(Duration::from_millis(100));
            if !slows_down {
                highest = highest.max(of_slow.min);
            }
        }
    }
    eprintln!(
        "a program that writes more has the link after {:?}, and sends {highest:.0} bytes/s in the next 100 ms; when it writes less, the other one has the rest after {:?}",
        fastest[0], fastest[1]
    );
    assert!(fastest[0] < Duration::from_millis(100), "{fastest:?}");
    assert!(fastest[1] < Duration::from_secs(2), "{fastest:?}");
}

/// The coordinator is killed, and another one with a higher epoch starts. Traffic continues throughout, unpaced after
/// the lease.
#[test]
fn sockets_are_unpaced_a_lease_after_the_coordinator_is_killed() {
    let _turn = lock_tests();
    let (coordinator, address) = Coordinator::start("127.0.0.1:0".parse().unwrap(), 1);
    coordinator.register("a", &[(0, 1, 1e13)]);
    let running = RunningAgent::start(address, 0);
    let agent = Agent::connect(running.local_socket()).unwrap();
    let wire = MeasuredConnection::new();
    // A flow that begins without data waits for a packet at the rate of the reserve.
    wire.send_continuously();
    agent.hand_over("a", 0, &wire.stream).unwrap();
    let _competitor = send_competitor(&coordinator, &agent);
    wait_for("a paced flow", || wire.measure_rate(Duration::from_millis(200)).max < 1.1 * LINK_RATE);
    coordinator.stop();
    // The last order holds until the end of its lease. On a busy machine it may be that of a program that wrote little for a while.
    let read = || (CounterReading::read(|| acked_bytes(&wire.stream)), Instant::now());
    let ((mut begin, mut order), mut held) = ((read(), None), None);
    wait_for("the end of the lease", || {
        let (now, rate) = (read(), pacing_rate(&wire.stream));
        if rate != order {
            (begin, order) = (now, rate);
        } else if let Some(order) = order
            && now.1 - begin.1 > Duration::from_millis(500)
        {
            held = Some((order as f64, now.0.rate_since(&begin.0)));
        }
        rate.is_none()
    });
    let (order, held) = held.expect("an order for half a second of the lease");
    assert!(held.may_be_over(0.5 * order) && held.may_be_under(1.2 * order), "{held:?} of {order} bytes/s");
    wait_for("an unpaced flow", || wire.measure_rate(Duration::from_millis(100)).min > 5.0 * LINK_RATE);
    let (coordinator, _) = Coordinator::start(address, 2);
    coordinator.register("a", &[(0, 1, 1e13)]);
    coordinator.register("competitor", &[(0, 1, 1e13)]);
    wait_for("the host", || coordinator.present_host_count() == 1);
    wait_for("a paced flow", || wire.measure_rate(Duration::from_millis(200)).max < 1.1 * LINK_RATE);
    // The agent's reports include bytes sent under the first coordinator.
    wait_for("the report", || coordinator.sent_bytes_and_completion("a").0 > 5.0 * LINK_RATE * 0.1);
    // An agent that stops leaves its sockets unpaced.
    drop(running);
    wait_for("an unpaced flow", || wire.measure_rate(Duration::from_millis(100)).min > 5.0 * LINK_RATE);
    assert!(!wire.is_closed.load(Ordering::Relaxed));
}

#[test]
fn flow_completes_when_all_data_has_arrived() {
    let _turn = lock_tests();
    // Flows without a rate exceed a slow link, and their reports would be rejected.
    let link_rate = 1.25e9;
    let (coordinator, address) = Coordinator::start_with_links("127.0.0.1:0".parse().unwrap(), 1, link_rate);
    let bytes = 1_000_000u32;
    let flows: Vec<(u32, u32, f64)> = (0..3).map(|_| (0, 1, f64::from(bytes))).collect();
    coordinator.register("a", &flows);
    let running = RunningAgent::start_with_link(address, 0, link_rate);
    wait_for("the host", || coordinator.present_host_count() == 1);
    let agent = Agent::connect(running.local_socket()).unwrap();
    let other = Agent::connect(running.local_socket()).unwrap();
    let mut wires: Vec<MeasuredConnection> = (0..3).map(|_| MeasuredConnection::new()).collect();
    for (flow, wire) in (0..).zip(&mut wires) {
        let agent_of_flow = if flow == 2 { &other } else { &agent };
        agent_of_flow.hand_over("a", flow, &wire.stream).unwrap();
    }
    for wire in &mut wires {
        wire.stream.write_all(&vec![0; bytes as usize]).unwrap();
    }
    let refusal = |result: Result<(), AgentError>| match result {
        Err(AgentError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert!(refusal(other.mark_done("a", 0)).contains("no socket of this program"));
    assert!(refusal(other.hand_over("a", 1, &wires[1].stream)).contains("already has a socket"));
    // The first flow is shut down, the second is reported as done and closed, and the program of the third disconnects.
    wires[0].stream.shutdown(Shutdown::Write).unwrap();
    agent.mark_done("a", 1).unwrap();
    drop(other);
    let ended: Vec<_> = wires.into_iter().map(|wire| (wire.received_bytes, wire.is_closed)).collect();
    wait_for("the end of the coflow", || coordinator.sent_bytes_and_completion("a").1);
    assert_eq!(coordinator.sent_bytes_and_completion("a").0, 3.0 * f64::from(bytes));
    for (got, ended) in ended {
        wait_for("the end of the connection", || ended.load(Ordering::Relaxed));
        assert_eq!(got.load(Ordering::Relaxed), u64::from(bytes));
    }
}

/// A connection that breaks is not the end of its flow, whichever end fails. The next connection continues it.
#[test]
fn broken_connections_are_lost_and_the_next_one_continues_the_flow() {
    let _turn = lock_tests();
    let (coordinator, address) = Coordinator::start("127.0.0.1:0".parse().unwrap(), 1);
    let flow = Transfer { src: 0, dst: 1, bytes: None };
    coordinator.register_flows("a", vec![flow, flow]);
    let running = RunningAgent::start(address, 0);
    wait_for("the host", || coordinator.present_host_count() == 1);
    let [killed_receiver, killed_sender] = [0, 1].map(|flow| {
        let agent = Agent::connect(running.local_socket()).unwrap();
        let (mut stream, mut receiver) = connect();
        agent.hand_over("a", flow, &stream).unwrap();
        stream.write_all(&[0; 5000]).unwrap();
        receiver.read_exact(&mut [0; 4000]).unwrap();
        (agent, stream, receiver)
    });
    let flow_bytes = |flow: usize| coordinator.flows("a")[flow].sent_bytes;
    wait_for("the bytes", || (flow_bytes(0), flow_bytes(1)) == (5000.0, 5000.0));
    // A receiver that exits with unread data resets the connection.
    let (agent, mut stream, receiver) = killed_receiver;
    drop(receiver);
    wait_for("the reset", || stream.write_all(&[0; 1000]).is_err());
    // A sender that exits leaves its connection to the agent's duplicate.
    drop(killed_sender);
    // The program continues before the agent has to know that the connection has ended.
    let (mut next, mut receiver) = connect();
    agent.hand_over("a", 0, &next).unwrap();
    next.write_all(&[0; 2000]).unwrap();
    receiver.read_exact(&mut [0; 2000]).unwrap();
    wait_for("the bytes of both connections", || flow_bytes(0) == 7000.0);
    let successor = Agent::connect(running.local_socket()).unwrap();
    let (mut other, mut other_receiver) = connect();
    wait_for("the end of the killed sender's socket", || successor.hand_over("a", 1, &other).is_ok());
    other.write_all(&[0; 2000]).unwrap();
    other_receiver.read_exact(&mut [0; 2000]).unwrap();
    wait_for("the bytes of both connections", || flow_bytes(1) == 7000.0);
    assert!(coordinator.flows("a").iter().all(|flow| !flow.is_completed));
    next.shutdown(Shutdown::Write).unwrap();
    successor.mark_done("a", 1).unwrap();
    wait_for("the end of the coflow", || coordinator.sent_bytes_and_completion("a") == (14_000.0, true));
}

/// A flow with a reset connection has completed if its end was acknowledged, or its program was done and all data was acknowledged.
#[test]
fn reset_connections_complete_their_flow_if_all_data_has_arrived() {
    let _turn = lock_tests();
    let (coordinator, address) = Coordinator::start("127.0.0.1:0".parse().unwrap(), 1);
    let flow = Transfer { src: 0, dst: 1, bytes: None };
    coordinator.register_flows("a", vec![flow; 3]);
    let running = RunningAgent::start(address, 0);
    wait_for("the host", || coordinator.present_host_count() == 1);
    let agent = Agent::connect(running.local_socket()).unwrap();
    for flow in 0..3 {
        let (mut stream, receiver) = connect();
        agent.hand_over("a", flow, &stream).unwrap();
        stream.write_all(&[0; 5000]).unwrap();
        match flow {
            0 => stream.shutdown(Shutdown::Write).unwrap(),
            1 => agent.mark_done("a", flow).unwrap(),
            _ => {}
        }
        // The receiver resets the connection, since it has not read the data. It acknowledges the data at once, and the FIN after 40 ms.
        thread::sleep(Duration::from_millis(100));
        drop(receiver);
    }
    wait_for("the ends", || {
        let flows = coordinator.flows("a");
        flows.iter().all(|flow| flow.sent_bytes == 5000.0) && flows[0].is_completed && flows[1].is_completed
    });
    // The third program has not said that it is done.
    assert!(!coordinator.flows("a")[2].is_completed);
}

/// A receiver that stops reading holds no link.
#[test]
fn receiver_that_does_not_read_leaves_the_link_to_others() {
    let _turn = lock_tests();
    let (_coordinator, _running, agent) = start_host(["stuck", "busy"], false);
    let (stuck, receiver) = connect();
    let busy = MeasuredConnection::new();
    let connection = Arc::default();
    send_continuously(&stuck, &connection);
    busy.send_continuously();
    agent.hand_over("stuck", 0, &stuck).unwrap();
    agent.hand_over("busy", 0, &busy.stream).unwrap();
    wait_for("the link for the busy program", || has_link(&busy.stream) && !has_link(&stuck));
    thread::sleep(Duration::from_secs(1));
    assert!(has_link(&busy.stream) && !has_link(&stuck));
    // It gets the link again when its receiver reads.
    let mut buffer = vec![0; 1 << 16];
    wait_for("the link for the program whose receiver reads", || {
        (&receiver).read_exact(&mut buffer).unwrap();
        has_link(&stuck)
    });
}

/// The end of a flow is reported at once, and the next flow gets the link with an early schedule.
#[test]
fn next_flow_has_the_link_soon_after_the_last_byte() {
    let _turn = lock_tests();
    let (coordinator, address) = Coordinator::start("127.0.0.1:0".parse().unwrap(), 1);
    let rounds = 18;
    (0..rounds).for_each(|round| coordinator.register(&format!("a{round:02}"), &[(0, 1, 200_000.0)]));
    coordinator.register("next", &[(0, 1, 1e12)]);
    let running = RunningAgent::start(address, 0);
    wait_for("the host", || coordinator.present_host_count() == 1);
    let agent = Agent::connect(running.local_socket()).unwrap();
    let next = MeasuredConnection::new();
    next.send_continuously();
    agent.hand_over("next", 0, &next.stream).unwrap();
    let has_link = || has_link(&next.stream);
    let mut waits = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..rounds {
        let (mut stream, mut receiver) = connect();
        stream.write_all(&vec![0; 200_000]).unwrap();
        let id = format!("a{round:02}");
        agent.hand_over(&id, 0, &stream).unwrap();
        let end_kind = round % 3;
        if end_kind == 1 {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        wait_for("the link for the first flow", || !has_link() || coordinator.flows(&id)[0].is_completed);
        receiver.read_exact(&mut vec![0; 200_000]).unwrap();
        let end = Instant::now();
        match end_kind {
            0 => agent.mark_done(&id, 0).unwrap(),
            1 => {}
            _ => {
                stream.shutdown(Shutdown::Write).unwrap();
                assert_eq!(receiver.read(&mut [0]).unwrap(), 0);
                drop(receiver);
            }
        }
        while !has_link() {
            assert!(end.elapsed() < Duration::from_secs(20), "the next flow has no link");
            thread::sleep(Duration::from_micros(100));
        }
        waits[end_kind].push(end.elapsed());
    }
    waits.iter_mut().for_each(|waits| waits.sort());
    let [done, shut_down, closed] = &waits;
    eprintln!(
        "after `done`: {done:?}; after an earlier shutdown: {shut_down:?}; after a shutdown and a close: {closed:?}"
    );
    // The fastest is that of the mechanism: another program may delay the others.
    assert!(waits.iter().all(|waits| waits[0] < Duration::from_millis(3)), "{waits:?}");
}

/// Moves the calling thread, and those that it starts, to a network namespace whose loopback has packets as on a network, if the kernel
/// can pause sockets there.
fn enter_namespace_with_socket_programs() -> bool {
    let is_ready = namespace::enter_new().is_ok()
        && run_tool("ip", &["link", "set", "lo", "mtu", "1500"]).is_ok()
        && SocketLeases::start().is_ok_and(|leases| leases.stop().is_ok());
    if !is_ready {
        eprintln!("skips: sockets are paused as root only, by BPF programs");
    }
    is_ready
}

/// The kernel pauses a waiting socket. It sends as soon as its turn comes, also if its program has written nothing before.
#[test]
fn paused_sockets_send_as_soon_as_their_turn_comes() {
    const PACKET: u64 = 1500;
    let _turn = lock_tests();
    if !enter_namespace_with_socket_programs() {
        return;
    }
    let (coordinator, running, agent) = start_host(["idle", "busy"], true);
    let rounds = 10;
    let (idle, busy) = (MeasuredConnection::new(), MeasuredConnection::new());
    busy.send_continuously();
    agent.hand_over("idle", 0, &idle.stream).unwrap();
    agent.hand_over("busy", 0, &busy.stream).unwrap();
    let (mut waits, mut sent_meanwhile) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 0..rounds {
        wait_for("the link for the busy program", || {
            busy.measure_rate(Duration::from_millis(200)).min > 0.9 * full_payload_rate()
        });
        let wrote = Instant::now();
        (&idle.stream).write_all(&[0; 400_000]).unwrap();
        let written = (round + 1) * 400_000;
        wait_for("the turn of the idle program", || idle.received_bytes() > written - 350_000);
        // At its rate, these bytes take 12.5 ms.
        waits[0].push(wrote.elapsed());
        let before = acked_bytes(&busy.stream);
        wait_for("its data", || idle.received_bytes() >= written - 50_000);
        sent_meanwhile.push(acked_bytes(&busy.stream) - before);
        wait_for("the last byte", || idle.received_bytes() == written);
        let (end, before) = (Instant::now(), acked_bytes(&busy.stream));
        while acked_bytes(&busy.stream) <= before + 2 * PACKET {
            assert!(end.elapsed() < Duration::from_secs(20), "the busy program has no link");
            thread::sleep(Duration::from_micros(200));
        }
        waits[1].push(end.elapsed());
    }
    eprintln!(
        "50 kB of a program that writes arrive after {:?}; the other one sends {:?} later",
        waits[0], waits[1]
    );
    // The fastest is that of the mechanism: another program may delay the others.
    let [first, next] = waits.map(|waits| waits.into_iter().min().unwrap());
    assert!(first < Duration::from_millis(33) && next < Duration::from_millis(30), "{first:?}, {next:?}");
    // In some rounds, the first packet of the program precedes its turn, or what the other one sent before is acknowledged late.
    sent_meanwhile.sort_unstable();
    assert!(sent_meanwhile[7] <= 2 * PACKET, "bytes of a paused socket: {sent_meanwhile:?}");
    // The flow ends with all its bytes, although the kernel counts held bytes as sent.
    agent.mark_done("idle", 0).unwrap();
    idle.stream.shutdown(Shutdown::Write).unwrap();
    wait_for("the end of the flow", || coordinator.flows("idle")[0].is_completed);
    // Without a registered size, the count may include the end of the connection.
    let excess = coordinator.flows("idle")[0].sent_bytes - rounds as f64 * 400_000.0;
    assert!((0.0..=1.0).contains(&excess), "{excess} bytes");
    // An agent that stops ends pauses.
    drop(running);
    wait_for("an unpaced flow", || busy.measure_rate(Duration::from_millis(100)).min > 5.0 * LINK_RATE);
}

/// A socket that may not wait for seconds is not paused: one with a user timeout, and one to which much data arrives.
#[test]
fn sockets_that_may_not_wait_have_a_low_rate() {
    let _turn = lock_tests();
    if !enter_namespace_with_socket_programs() {
        return;
    }
    let (coordinator, address) = Coordinator::start("127.0.0.1:0".parse().unwrap(), 1);
    coordinator.register("busy", &[(0, 1, 1e12)]);
    coordinator.register("waiting", &[(0, 1, 1e12), (0, 1, 1e12)]);
    let running = RunningAgent::start_with(address, 0, LINK_RATE, true);
    wait_for("the host", || coordinator.present_host_count() == 1);
    let agent = Agent::connect(running.local_socket()).unwrap();
    let (busy, connection) = (MeasuredConnection::new(), Arc::default());
    busy.send_continuously();
    agent.hand_over("busy", 0, &busy.stream).unwrap();
    let (with_timeout, _timeout_receiver) = connect();
    let (receiving, mut peer) = connect();
    for (flow, stream) in [(0, &with_timeout), (1, &receiving)] {
        agent.hand_over("waiting", flow, stream).unwrap();
        send_continuously(stream, &connection);
    }
    thread::sleep(Duration::from_millis(500));
    assert!(pacing_rate(&with_timeout).is_none() && pacing_rate(&receiving).is_none());
    setsockopt(&with_timeout, TcpUserTimeout, &700).unwrap();
    wait_for("a low rate instead of a pause", || pacing_rate(&with_timeout).is_some());
    thread::sleep(Duration::from_secs(2));
    assert_eq!(with_timeout.take_error().unwrap().map(|error| error.to_string()), None);
    let mut receiver = receiving.try_clone().unwrap();
    let receiver = thread::spawn(move || receiver.read_exact(&mut vec![0; 5_000_000]));
    let began = Instant::now();
    peer.write_all(&vec![0; 5_000_000]).unwrap();
    receiver.join().unwrap().unwrap();
    eprintln!("5 MB arrive at a waiting socket within {:?}", began.elapsed());
    assert!(pacing_rate(&receiving).is_some());
}

/// As `receiver_that_does_not_read_leaves_the_link_to_others`, with sockets that the kernel pauses.
#[test]
fn receiver_of_a_paused_socket_that_does_not_read_leaves_the_link_to_others() {
    let _turn = lock_tests();
    if !enter_namespace_with_socket_programs() {
        return;
    }
    let (_coordinator, _running, agent) = start_host(["stuck", "busy"], true);
    let (stuck, mut receiver) = connect();
    let (busy, connection) = (MeasuredConnection::new(), Arc::default());
    send_continuously(&stuck, &connection);
    busy.send_continuously();
    agent.hand_over("stuck", 0, &stuck).unwrap();
    agent.hand_over("busy", 0, &busy.stream).unwrap();
    let has_link = || busy.measure_rate(Duration::from_secs(3)).min > 0.9 * full_payload_rate();
    wait_for("the link for the busy program", has_link);
    assert!(has_link(), "the program whose receiver does not read has the link again");
    // It gets the link again when its receiver reads.
    let acked = acked_bytes(&stuck);
    thread::spawn(move || std::io::copy(&mut receiver, &mut std::io::sink()));
    wait_for("the link for the program whose receiver reads", || {
        acked_bytes(&stuck) > acked + 2 * LINK_RATE as u64
    });
}

/// Moves the calling thread, and those that it starts, to a network namespace whose loopback carries 10 Gbit/s. Needs root.
fn enter_namespace_with_10_gbit() -> bool {
    let queues = "qdisc add dev lo root handle 1: htb default 1
                  class add dev lo parent 1: classid 1:1 htb rate 10gbit\n";
    namespace::enter_new().is_ok() && run_batch(Command::new("tc"), "tc", String::new, queues).is_ok()
}

/// Sends a coflow of four flows of 4 MB, and returns the time. `agent`, if any, paces the flows.
fn send_coflow(agent: Option<&Agent>, id: &str) -> Duration {
    let start = Instant::now();
    thread::scope(|scope| {
        for flow in 0..4 {
            scope.spawn(move || {
                let (mut stream, mut receiver) = connect();
                if let Some(agent) = agent {
                    agent.hand_over(id, flow, &stream).unwrap();
                }
                let receiver = thread::spawn(move || receiver.read_to_end(&mut Vec::new()).unwrap());
                stream.write_all(&vec![0; 4_000_000]).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                receiver.join().unwrap()
            });
        }
    });
    start.elapsed()
}

/// Coflows that never wait for another one take as long as without an agent. Other load may delay some coflows, so medians count, and the
/// best of several measurements.
#[test]
fn scheduling_costs_nothing_where_no_flow_waits() {
    let _turn = lock_tests();
    if !enter_namespace_with_10_gbit() {
        eprintln!("skips: a network namespace needs root, ip and tc");
        return;
    }
    let link_rate = 1.25e9;
    let (coordinator, address) = Coordinator::start_with_links("127.0.0.1:0".parse().unwrap(), 1, link_rate);
    let running = RunningAgent::start_with(address, 0, link_rate, true);
    wait_for("the host", || coordinator.present_host_count() == 1);
    let agent = Agent::connect(running.local_socket()).unwrap();
    let mut ratios = Vec::new();
    for round in 0..6 {
        let mut times = [Vec::new(), Vec::new()];
        for number in 0..11 {
            let id = format!("c{round}-{number}");
            coordinator.register(&id, &[(0, 1, 4e6); 4]);
            times[0].push(send_coflow(Some(&agent), &id));
            coordinator.deregister(&id);
            times[1].push(send_coflow(None, ""));
        }
        times.iter_mut().for_each(|times| times.sort());
        let [scheduled, unpaced] = times.map(|times| times[times.len() / 2]);
        eprintln!("median of 11 coflows: {unpaced:?} unpaced, {scheduled:?} scheduled");
        ratios.push(scheduled.as_secs_f64() / unpaced.as_secs_f64());
        if ratios[round] < 1.15 {
            return;
        }
    }
    panic!("scheduled coflows take {ratios:.2?} times as long as unpaced ones");
}

/// A connection over loopback whose packets are as long as those of Ethernet. The receiver reads nothing.
fn connect_with_short_packets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    nix::sys::socket::setsockopt(&listener, nix::sys::socket::sockopt::TcpMaxSeg, &1448).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (stream, listener.accept().unwrap().0)
}

/// While flows of a host wait, a socket that no order names has a limit from its hand-over on. It is free soon afterwards, since its coflow
/// may be unknown. Without waiting flows it has no limit.
#[test]
fn new_socket_next_to_waiting_flows_has_a_limit_until_its_first_order() {
    let _turn = lock_tests();
    let (coordinator, address) = Coordinator::start("127.0.0.1:0".parse().unwrap(), 1);
    let running = RunningAgent::start(address, 0);
    wait_for("the host", || coordinator.present_host_count() == 1);
    let agent = Agent::connect(running.local_socket()).unwrap();
    // A busy machine may delay a measurement beyond the end of the limit.
    let mut ids = (0..).map(|number| format!("new-{number}"));
    let connection = Arc::default();
    let mut send_new_flow = || loop {
        let ((stream, receiver), id) = (connect_with_short_packets(), ids.next().unwrap());
        let start = Instant::now();
        agent.hand_over(&id, 0, &stream).unwrap();
        let limit = pacing_rate(&stream);
        send_continuously(&stream, &connection);
        thread::sleep(Duration::from_millis(20));
        let sent = acked_bytes(&stream);
        if start.elapsed() < Duration::from_millis(45) {
            return (limit, sent, id, stream, receiver);
        }
    };
    let (limit, sent, ..) = send_new_flow();
    assert!(limit.is_none() && sent > 30 * 1448, "{limit:?}, {sent} bytes");
    coordinator.register("first", &[(0, 1, 1e13)]);
    let first = MeasuredConnection::new();
    first.send_continuously();
    agent.hand_over("first", 0, &first.stream).unwrap();
    let competitor = send_competitor(&coordinator, &agent);
    wait_for("the rates", || has_link(&first.stream) && !has_link(&competitor.stream));
    // The kernel sends ten packets at once at the begin of a connection.
    let (limit, sent, id, stream, _receiver) = send_new_flow();
    assert!(limit.is_some_and(|rate| rate as f64 <= 0.01 * LINK_RATE), "{limit:?}");
    assert!(sent < 20 * 1448, "{sent} bytes");
    wait_for("the end of the limit", || pacing_rate(&stream).is_none());
    coordinator.register(&id, &[(0, 1, 1e13)]);
    wait_for("the share of the reserve", || {
        pacing_rate(&stream).is_some_and(|rate| rate as f64 <= 0.01 * LINK_RATE)
    });
}

/// Flows that completed before their coflow was registered are reported again.
#[test]
fn flows_may_complete_before_their_coflow_is_registered() {
    let _turn = lock_tests();
    let (coordinator, address) = Coordinator::start("127.0.0.1:0".parse().unwrap(), 1);
    let running = RunningAgent::start(address, 0);
    wait_for("the host", || coordinator.present_host_count() == 1);
    let agent = Agent::connect(running.local_socket()).unwrap();
    let mut wire = MeasuredConnection::new();
    agent.hand_over("a", 0, &wire.stream).unwrap();
    wire.stream.write_all(&[0; 5000]).unwrap();
    wire.stream.shutdown(Shutdown::Write).unwrap();
    wait_for("the end of the connection", || wire.is_closed.load(Ordering::Relaxed));
    wait_for("the report", || coordinator.unknown_flow_entries() > 0);
    coordinator.register("a", &[(0, 1, 5000.0)]);
    wait_for("the end of the coflow", || coordinator.sent_bytes_and_completion("a") == (5000.0, true));
}

/// Agents stop to report flows of unknown and removed coflows, so that the coordinator rejects each once. A coflow that is registered later
/// gets its flows.
#[test]
fn flows_of_unknown_and_removed_coflows_are_reported_once() {
    let _turn = lock_tests();
    let (coordinator, address) = Coordinator::start("127.0.0.1:0".parse().unwrap(), 1);
    coordinator.register("removed", &[(0, 1, 1e12)]);
    let running = RunningAgent::start(address, 0);
    wait_for("the host", || coordinator.present_host_count() == 1);
    let agent = Agent::connect(running.local_socket()).unwrap();
    let (removed, unknown) = (MeasuredConnection::new(), MeasuredConnection::new());
    agent.hand_over("removed", 0, &removed.stream).unwrap();
    agent.hand_over("unknown", 0, &unknown.stream).unwrap();
    (&removed.stream).write_all(&[0; 5000]).unwrap();
    (&unknown.stream).write_all(&[0; 5000]).unwrap();
    wait_for("the bytes", || coordinator.sent_bytes_and_completion("removed").0 == 5000.0);
    let orders = coordinator.deregister("removed");
    coordinator.runtime.block_on(coordinator.handle.wait_until_applied(orders)).unwrap();
    thread::sleep(Duration::from_millis(100));
    let rejected = coordinator.unknown_flow_entries();
    // The agent repeats reports once a second.
    for _ in 0..25 {
        (&removed.stream).write_all(&[0; 1000]).unwrap();
        (&unknown.stream).write_all(&[0; 1000]).unwrap();
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(coordinator.unknown_flow_entries(), rejected);
    coordinator.register("unknown", &[(0, 1, 1e12)]);
    wait_for("the bytes", || coordinator.sent_bytes_and_completion("unknown").0 == 30_000.0);
}

#[test]
fn invalid_sockets_and_ids_are_refused() {
    let _turn = lock_tests();
    let (_coordinator, address) = Coordinator::start("127.0.0.1:0".parse().unwrap(), 1);
    let running = RunningAgent::start(address, 0);
    let agent = Agent::connect(running.local_socket()).unwrap();
    let wire = MeasuredConnection::new();
    let (unix, _other) = UnixDatagram::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let assert_refused = |result: Result<(), AgentError>, reason: &str| match result {
        Err(AgentError::Refused(text)) => assert!(text.contains(reason), "{text}"),
        other => panic!("{other:?}"),
    };
    assert_refused(agent.hand_over("a", 0, &unix), "expected a connected socket of TCP or UDP");
    assert_refused(agent.hand_over("a", 0, &listener), "expected a connected socket of TCP or UDP");
    assert_refused(agent.hand_over("", 0, &wire.stream), "coflow id is invalid; expected 1 to 128");
    assert_refused(agent.hand_over("a b", 0, &wire.stream), "malformed message; expected `open COFLOW FLOW`");
    assert_refused(
        agent.hand_over(&"x".repeat(129), 0, &wire.stream),
        "coflow id is invalid; expected 1 to 128",
    );
    assert_refused(
        agent.hand_over(&"x".repeat(1000), 0, &wire.stream),
        "malformed message; expected `open COFLOW FLOW`",
    );
    assert_refused(agent.mark_done("a", 0), "no socket of this program");
    agent.hand_over("a", 0, &wire.stream).unwrap();
    assert_refused(agent.hand_over("b", 0, &wire.stream), "the socket is that of another flow");
    agent.mark_done("a", 0).unwrap();
    agent.hand_over("b", 0, &wire.stream).unwrap();
    // A second agent cannot use the same local socket.
    let settings = AgentSettings {
        watchdog: None,
        coordinator: Endpoint::from_shared(format!("http://{address}")).unwrap().into(),
        name: "h1".to_owned(),
        links: vec![live::Link { rate: Rate::new(LINK_RATE).unwrap(), interfaces: Vec::new() }],
        networks: Vec::new(),
        labels: std::collections::BTreeMap::new(),
        local_socket: Some(running.local_socket()),
        has_socket_programs: false,
        dry_run: false,
    };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let taken =
        runtime.block_on(live::run(settings, Vec::new(), None, None, std::future::pending())).1.unwrap_err();
    assert!(taken.to_string().contains("another agent listens on this socket"), "{taken}");
}
