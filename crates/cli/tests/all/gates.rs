//! Tests senders of the library with a coordinator and an agent that stops, exits or returns, as processes on loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weir_client::{
    Agent, AgentError, Coflow, Coordinator, Flow, FlowReceiver, FlowSender, Registration, Route,
    UnscheduledReason, send_flow,
};

use crate::client::{CONFIG, ConnectedAgent, TIMEOUT};
use crate::common::serving::CoordinatorProcess;
use crate::common::{TestDir, wait_for};

const LEASE: Duration = Duration::from_secs(1);

/// The rate of a link, in bytes per second.
const LINK_RATE: f64 = 2e6;

/// A flow that sends until it is dropped, and the bytes that have arrived.
struct EndlessFlow {
    received: Arc<AtomicU64>,
    canceller: weir_client::SendCanceller,
    threads: Vec<thread::JoinHandle<()>>,
}

impl EndlessFlow {
    fn start(agent: &Arc<Agent>, coflow: &str) -> EndlessFlow {
        EndlessFlow::with_writes(agent, coflow, 1 << 16, Duration::ZERO)
    }

    /// A flow that waits after each write.
    fn with_writes(agent: &Arc<Agent>, coflow: &str, length: usize, pause: Duration) -> EndlessFlow {
        let receiver = FlowReceiver::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let route = Route::direct(receiver.address()).unwrap();
        let received = Arc::new(AtomicU64::new(0));
        let (agent, count) = (Arc::clone(agent), Arc::clone(&received));
        let (name, sender_name) = (coflow.to_owned(), coflow.to_owned());
        let (give_canceller, canceller) = mpsc::channel();
        let send = move || {
            let mut sender = FlowSender::new(&sender_name, 0, route).unwrap().with_agent(&agent);
            give_canceller.send(sender.canceller()).unwrap();
            while sender.write_all(&vec![0; length]).is_ok() {
                if !pause.is_zero() {
                    // The library collects data of a chunk.
                    let _ = sender.flush();
                    thread::sleep(pause);
                }
            }
        };
        let receive = move || {
            let mut flow = receiver.receive(&name, 0, TIMEOUT).unwrap();
            flow.set_reconnect_timeout(Duration::from_millis(1));
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length @ 1..) = flow.read(&mut buffer) {
                count.fetch_add(length as u64, Ordering::Relaxed);
            }
        };
        let threads = vec![thread::spawn(send), thread::spawn(receive)];
        EndlessFlow { received, canceller: canceller.recv().unwrap(), threads }
    }

    fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for EndlessFlow {
    fn drop(&mut self) {
        self.canceller.cancel();
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Processes, and three coflows of one flow each.
struct Bed {
    dir: TestDir,
    coordinator_process: CoordinatorProcess,
    coordinator: Coordinator,
    agent_process: ConnectedAgent,
    agent: Arc<Agent>,
}

impl Bed {
    fn start() -> Bed {
        let dir = TestDir::new();
        dir.write("serve.toml", &CONFIG.replace("20s", &format!("{}s", LEASE.as_secs())));
        let coordinator_process = CoordinatorProcess::start(&dir.path("serve.toml"));
        let agent_process = ConnectedAgent::start(&dir, &coordinator_process);
        let coordinator = Coordinator::local(&coordinator_process.api_address).unwrap();
        let agent = Arc::new(Agent::connect(&agent_process.local_socket).unwrap());
        let bed = Bed { dir, coordinator_process, coordinator, agent_process, agent };
        for coflow in ["first", "second", "third"] {
            bed.register(coflow, None);
        }
        bed
    }

    /// Registers a coflow of one flow, and waits for its order.
    fn register(&self, coflow: &str, bytes: Option<u64>) {
        let flow = Flow { from: "a".to_owned(), to: "b".to_owned(), bytes };
        let registration = Registration { flows: vec![flow], ..Registration::default() };
        Coflow::register(&self.coordinator, coflow, &registration).unwrap();
        wait_for("an order", || !self.rate_of(coflow).is_null());
    }

    fn rate_of(&self, coflow: &str) -> serde_json::Value {
        self.coordinator.get(&format!("/v1/coflows/{coflow}")).unwrap()["flows"][0]["rate"].clone()
    }

    /// Starts flow `first`, which takes the link, and a flow of coflow `second`, which then waits.
    fn start_flows(&self) -> (EndlessFlow, EndlessFlow) {
        self.start_flows_of("first", "second")
    }

    /// Starts a flow of a coflow, and one of a later coflow, which then waits.
    fn start_flows_of(&self, earlier: &'static str, later: &'static str) -> (EndlessFlow, EndlessFlow) {
        let first = EndlessFlow::start(&self.agent, earlier);
        wait_for("data of the first flow", || first.received_bytes() > 100_000);
        let second = EndlessFlow::start(&self.agent, later);
        wait_for("a pause", || self.rate_of(later)["bytes_per_second"] == 0.0);
        (first, second)
    }
}

/// A program that writes a tenth of the rate of its flow leaves the rest to the next coflow, and its flow is not paused.
#[test]
fn slow_sender_leaves_the_rest_of_its_link_to_the_next_coflow() {
    let bed = Bed::start();
    let slow = EndlessFlow::with_writes(&bed.agent, "first", 800, Duration::from_millis(4));
    wait_for("data of the slow flow", || slow.received_bytes() > 10_000);
    let busy = EndlessFlow::start(&bed.agent, "second");
    let rate = |coflow: &str| bed.rate_of(coflow)["bytes_per_second"].as_f64().unwrap_or(f64::INFINITY);
    wait_for("rates of both flows", || {
        let rates = [rate("first"), rate("second")];
        (1.0..0.2 * LINK_RATE).contains(&rates[0]) && (0.7 * LINK_RATE..LINK_RATE).contains(&rates[1])
    });
    wait_for("bytes at these rates", || {
        let before = [slow.received_bytes(), busy.received_bytes()];
        thread::sleep(Duration::from_secs(1));
        let [slow, busy] = [slow.received_bytes() - before[0], busy.received_bytes() - before[1]];
        eprintln!("{slow} bytes/s of the slow sender, and {busy} of the other one");
        slow > 100_000 && busy as f64 > 0.7 * LINK_RATE
    });
}

#[test]
fn paused_sender_writes_freely_a_lease_after_its_agent_is_stopped_and_waits_again_when_it_continues() {
    let bed = Bed::start();
    let (_first, second) = bed.start_flows();
    thread::sleep(LEASE / 5);
    let before = second.received_bytes();
    thread::sleep(2 * LEASE);
    assert_eq!(second.received_bytes(), before, "the pause is renewed");
    let process = Pid::from_raw(bed.agent_process.child.id() as i32);
    kill(process, Signal::SIGSTOP).unwrap();
    let stop = Instant::now();
    wait_for("data of the paused flow", || second.received_bytes() > before + 1_000_000);
    // The last renewal was sent at most a quarter of the lease before the stop.
    assert!(stop.elapsed() > LEASE / 2, "{:?}", stop.elapsed());
    kill(process, Signal::SIGCONT).unwrap();
    wait_for("a pause", || {
        let before = second.received_bytes();
        thread::sleep(LEASE / 5);
        second.received_bytes() == before
    });
}

#[test]
fn senders_write_freely_after_their_agent_is_killed_and_follow_the_next_one() {
    let mut bed = Bed::start();
    let (first, second) = bed.start_flows();
    let before = second.received_bytes();
    bed.agent_process.child.kill().unwrap();
    bed.agent_process.child.wait().unwrap();
    wait_for("data of the paused flow", || second.received_bytes() > before + 1_000_000);
    bed.agent_process = ConnectedAgent::start(&bed.dir, &bed.coordinator_process);
    let received = || first.received_bytes() + second.received_bytes();
    let mut rate = f64::INFINITY;
    wait_for("the rate of the link", || {
        let (before, start) = (received(), Instant::now());
        thread::sleep(LEASE / 2);
        rate = (received() - before) as f64 / start.elapsed().as_secs_f64();
        rate < 1.2 * LINK_RATE
    });
    assert!(rate > 0.5 * LINK_RATE, "{rate}");
    // The program's own requests use the next agent, too.
    let refused = bed.agent.mark_done("unknown", 0).unwrap_err();
    assert!(matches!(refused, AgentError::Refused(_)), "{refused}");
}

#[test]
fn unscheduled_flow_has_a_reason() {
    let bed = Bed::start();
    let flow = |from: &str, to: &str| Flow { from: from.to_owned(), to: to.to_owned(), bytes: None };
    let flows = vec![flow("a", "b"), flow("b", "a")];
    Coflow::register(&bed.coordinator, "reversed", &Registration { flows, ..Registration::default() })
        .unwrap();
    let flows = vec![flow("b", "a")];
    Coflow::register(&bed.coordinator, "foreign", &Registration { flows, ..Registration::default() })
        .unwrap();
    for (coflow, flow, expected, help) in [
        ("unregistered", 0, UnscheduledReason::UnknownCoflow, "register the coflow"),
        ("reversed", 2, UnscheduledReason::UnknownFlow, "beyond the flows of the registration"),
        ("reversed", 1, UnscheduledReason::ForeignFlow, "another host"),
        ("foreign", 0, UnscheduledReason::ForeignFlow, "another host"),
        ("foreign", 1, UnscheduledReason::UnknownFlow, "beyond the flows of the registration"),
    ] {
        let receiver = FlowReceiver::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let route = Route::direct(receiver.address()).unwrap();
        let reader = thread::spawn(move || {
            receiver.receive(coflow, flow, TIMEOUT).unwrap().read_to_end(&mut Vec::new()).unwrap()
        });
        let mut sender = FlowSender::new(coflow, flow, route).unwrap().with_agent(&bed.agent);
        sender.write_all(&[1; 1000]).unwrap();
        sender.flush().unwrap();
        // The agent reports the flow within an interval, and the coordinator answers within another one.
        thread::sleep(Duration::from_millis(200));
        let sent = sender.finish().unwrap();
        assert_eq!(reader.join().unwrap(), 1000);
        let Some(AgentError::Unscheduled { reason, message }) = sent.unpaced else { panic!("{sent:?}") };
        assert_eq!(reason, expected, "flow {flow} of coflow {coflow}: {message}");
        assert!(message.contains(help), "{message}");
    }
}

/// Forwards connections to a receiver. The first one is cut after a number of bytes.
fn cut_first_connection(receiver: SocketAddr, bytes: u64) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for limit in [bytes, u64::MAX] {
            let (input, output) = (listener.accept().unwrap().0, TcpStream::connect(receiver).unwrap());
            let (mut answers, mut back) = (output.try_clone().unwrap(), input.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut answers, &mut back));
            thread::spawn(move || {
                let _ = std::io::copy(&mut (&input).take(limit), &mut &output);
                let _ = (input.shutdown(Shutdown::Both), output.shutdown(Shutdown::Both));
            });
        }
    });
    address
}

#[test]
fn sender_whose_connection_is_cut_is_scheduled_over_the_next_one() {
    const BYTES: usize = 3_000_000;
    let bed = Bed::start();
    // If a busy machine reports in bursts, the coordinator refuses bytes beyond the link's rate, unless a size limits them.
    bed.register("cut", Some(BYTES as u64));
    // Flows of later coflows compete with this one, so it has a rate.
    for coflow in ["fourth", "fifth"] {
        bed.register(coflow, None);
    }
    let _competitors = bed.start_flows_of("fourth", "fifth");
    let receiver = FlowReceiver::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let route = Route::direct(cut_first_connection(receiver.address(), BYTES as u64 / 10)).unwrap();
    let reader = thread::spawn(move || {
        receiver.receive("cut", 0, TIMEOUT).unwrap().read_to_end(&mut Vec::new()).unwrap()
    });
    let start = Instant::now();
    let sent = send_flow(&*bed.agent, "cut", 0, route, &mut &vec![7; BYTES][..]).unwrap();
    let elapsed = start.elapsed().as_secs_f64();
    assert_eq!((reader.join().unwrap(), sent.bytes), (BYTES, BYTES as u64));
    assert!(sent.unpaced.is_none(), "{sent:?}");
    // Without a rate, loopback carries the data in milliseconds.
    assert!(elapsed > 0.6 * BYTES as f64 / LINK_RATE, "{elapsed} s");
    let state = || bed.coordinator.get("/v1/coflows/cut").unwrap();
    wait_for("the end of the coflow", || state()["completed"] == true);
    assert_eq!(state()["flows"][0]["sent_bytes"], BYTES as f64);
}
