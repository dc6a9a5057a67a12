//! Tests the client library with a coordinator and an agent as processes on loopback. The tests of the Python
//! module check the marks of packets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::serving::CoordinatorProcess;
use crate::common::{TestDir, interrupt_and_wait, wait_for};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{Ipv4Tos, Ipv6TClass};
use weir_client::{
    Agent, Application, Coflow, Coordinator, CoordinatorError, Flow, FlowReceiver, Registration, Route,
    send_flow,
};

/// A link of 2 MB/s. When a lease ends, loopback carries the remaining bytes at once, so the lease is longer
/// than a busy machine stalls.
pub const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"saath\"\nlease = \"20s\"\n\
                      [listen]\nagents = \"127.0.0.1:0\"\napi = \"127.0.0.1:0\"\n\
                      [host]\na = \"16Mbit\"\nb = \"16Mbit\"\n[service.default]\n[service.ads]\n";

const TABLE: &str = "version = 1\n[[application]]\nname = \"LR\"\ncoefficients = [5.231, -7.966, 3.723]\n\
                     [[application]]\nname = \"flat\"\ncoefficients = [1.13, -0.13]\n";

pub const TIMEOUT: Duration = Duration::from_secs(20);

fn start_coordinator(dir: &TestDir) -> CoordinatorProcess {
    dir.write("serve.toml", CONFIG);
    CoordinatorProcess::start(&dir.path("serve.toml"))
}

/// An agent of host `a` that is connected to its coordinator.
pub struct ConnectedAgent {
    pub child: Child,
    pub local_socket: PathBuf,
    /// Keeps the pipe of the agent's log open.
    _log: BufReader<ChildStderr>,
}

impl ConnectedAgent {
    pub fn start(dir: &TestDir, coordinator_process: &CoordinatorProcess) -> ConnectedAgent {
        let local_socket = dir.path("local_socket");
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args([
                "agent",
                "run",
                "--name",
                "a",
                "--rate",
                "16Mbit",
                "--coordinator",
                &coordinator_process.agents_address,
            ])
            .arg("--socket")
            .arg(&local_socket)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut text = String::new();
        while !text.contains("has a coordinator") {
            assert!(log.read_line(&mut text).unwrap() > 0, "{text}");
        }
        ConnectedAgent { child, local_socket, _log: log }
    }
}

impl Drop for ConnectedAgent {
    fn drop(&mut self) {
        interrupt_and_wait(&mut self.child);
    }
}

fn refused_status(error: CoordinatorError) -> u16 {
    match error {
        CoordinatorError::Refused { status, .. } => status,
        other => panic!("{other}"),
    }
}

#[test]
fn connections_are_registered_with_their_weight() {
    let dir = TestDir::new();
    let coordinator_process = start_coordinator(&dir);
    let coordinator = Coordinator::local(&coordinator_process.api_address).unwrap();
    coordinator.put_text("/v1/sensitivity", TABLE).unwrap();
    let application = Application::register(&coordinator, "lr", None, Some("LR")).unwrap();
    let weights = || -> Vec<Option<f64>> {
        let connections = coordinator.get("/v1/connections").unwrap()["connections"].take();
        connections.as_array().unwrap().iter().map(|connection| connection["weight"].as_f64()).collect()
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connection = application.connect("a", "b", address).unwrap();
    assert_eq!(weights(), [None]);
    connection.destroy().unwrap();
    let connection = application.connect_with_weight("a", "b", address, 2.5).unwrap();
    assert!(connection.registration_error().is_none());
    assert_eq!(weights(), [Some(2.5)]);
    connection.destroy().unwrap();
    let connection = application.connect_with_weight("a", "b", address, 0.0).unwrap();
    assert!(connection.registration_error().unwrap().to_string().contains("0.001"));
    connection.destroy().unwrap();
    // The first waiting connection is one of those above, which have ended.
    let accepted = application.accept_with_weight("b", &listener, 4.0).unwrap();
    assert_eq!(weights(), [Some(4.0)]);
    accepted.destroy().unwrap();
}

#[test]
fn application_connections_carry_their_class() {
    let dir = TestDir::new();
    let mut coordinator_process = start_coordinator(&dir);
    let coordinator = Coordinator::local(&coordinator_process.api_address).unwrap();
    assert_eq!(refused_status(Application::register(&coordinator, "lr", None, Some("LR")).unwrap_err()), 422);
    coordinator.put_text("/v1/sensitivity", TABLE).unwrap();

    let application = Application::register(&coordinator, "lr", None, Some("LR")).unwrap();
    let level = coordinator.get("/v1/applications/lr").unwrap()["level"].as_u64().unwrap();
    assert_eq!((u64::from(application.level()), u64::from(application.dscp())), (level, level + 1));
    let field = i32::from(application.dscp()) << 2;
    let ports = || coordinator.get("/v1/queues").unwrap().as_array().unwrap().len();
    let ipv4_listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = application.connect("a", "b", ipv4_listener.local_addr().unwrap()).unwrap();
    assert!(connection.registration_error().is_none());
    assert_eq!((getsockopt(connection.stream(), Ipv4Tos).unwrap(), ports()), (field, 4));
    connection.stream().write_all(b"abc").unwrap();
    let mut received = [0; 3];
    let mut accepted = ipv4_listener.accept().unwrap().0;
    accepted.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"abc");
    // The same over IPv6, if the machine supports it.
    if let Ok(ipv6_listener) = TcpListener::bind("[::1]:0") {
        let connection = application.connect("a", "b", ipv6_listener.local_addr().unwrap()).unwrap();
        assert_eq!(getsockopt(connection.stream(), Ipv6TClass).unwrap(), field);
    }
    assert_eq!(refused_status(coordinator.delete("/v1/applications/lr").unwrap_err()), 409);
    connection.destroy().unwrap();
    assert_eq!((accepted.read(&mut received).unwrap(), ports()), (0, 0));
    drop(application.connect("a", "b", ipv4_listener.local_addr().unwrap()).unwrap());
    assert_eq!(ports(), 0);
    // The connection opens even if the coordinator refuses a host name.
    let connection = application.connect("a", "nowhere", ipv4_listener.local_addr().unwrap()).unwrap();
    assert!(connection.registration_error().unwrap().to_string().contains("`nowhere`"));
    connection.destroy().unwrap();

    coordinator_process.child.kill().unwrap();
    coordinator_process.child.wait().unwrap();
    let connection = application.connect("a", "b", ipv4_listener.local_addr().unwrap()).unwrap();
    assert!(
        matches!(connection.registration_error(), Some(CoordinatorError::Unreachable { .. })),
        "{connection:?}"
    );
    assert_eq!(getsockopt(connection.stream(), Ipv4Tos).unwrap(), field);
    assert!(matches!(application.deregister(), Err(CoordinatorError::Unreachable { .. })));
}

#[test]
fn accepted_connections_have_the_class_and_follow_the_level() {
    let dir = TestDir::new();
    let coordinator_process = start_coordinator(&dir);
    let coordinator = Coordinator::local(&coordinator_process.api_address).unwrap();
    coordinator.put_text("/v1/sensitivity", TABLE).unwrap();
    let ends = || {
        let connection = &coordinator.get("/v1/connections").unwrap()["connections"][0];
        (connection["from"].clone(), connection["to"].clone())
    };
    let mut moved = false;
    for (first, second) in [("LR", "flat"), ("flat", "LR")] {
        let application = Application::register(&coordinator, first, None, Some(first)).unwrap();
        let before = application.level();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let connection = application.accept("a", &listener).unwrap();
        assert!(connection.registration_error().is_none());
        let mark = || getsockopt(connection.stream(), Ipv4Tos).unwrap();
        assert_eq!(mark(), i32::from(application.dscp()) << 2);
        assert_eq!(ends(), ("a".into(), "127.0.0.1".into()));
        // Traffic inside a host crosses no link.
        assert_eq!(coordinator.get("/v1/queues").unwrap(), serde_json::json!([]));
        let other = Application::register(&coordinator, second, None, Some(second)).unwrap();
        let level = coordinator.get(&format!("/v1/applications/{first}")).unwrap()["level"].as_u64().unwrap();
        wait_for("the level", || mark() == (level as i32 + 1) << 2);
        moved |= u64::from(before) != level;
        connection.destroy().unwrap();
        drop(reader);
        application.deregister().unwrap();
        other.deregister().unwrap();
    }
    assert!(moved);
}

/// A connection on loopback whose socket is handed over as flow 0 of a coflow.
fn hand_over_connection(agent: &Agent, coflow: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    agent.hand_over(coflow, 0, &stream).unwrap();
    (stream, listener.accept().unwrap().0)
}

#[test]
fn socket_of_a_removed_coflow_does_not_count_for_the_next_one_with_its_id() {
    let dir = TestDir::new();
    let coordinator_process = start_coordinator(&dir);
    let agent = ConnectedAgent::start(&dir, &coordinator_process);
    let coordinator = Coordinator::local(&coordinator_process.api_address).unwrap();
    let [first_program, second_program] = [(); 2].map(|()| Agent::connect(&agent.local_socket).unwrap());
    let flow = Flow { from: "a".to_owned(), to: "b".to_owned(), bytes: None };
    let registration = Registration { flows: vec![flow], ..Registration::default() };
    let register = || Coflow::register(&coordinator, "job", &registration).unwrap();
    let state = || coordinator.get("/v1/coflows/job").unwrap()["flows"][0].clone();
    let wait_for_rate = || wait_for("a rate", || !state()["rate"].is_null());
    let sent_bytes = || state()["sent_bytes"].as_f64().unwrap();
    let send = |(sender, receiver): &mut (TcpStream, TcpStream), bytes: usize| {
        sender.write_all(&vec![1; bytes]).unwrap();
        receiver.read_exact(&mut vec![0; bytes]).unwrap();
    };

    // This socket is handed over before the registration, and belongs to it.
    let mut first = hand_over_connection(&first_program, "job");
    send(&mut first, 200_000);
    let has_rejected = |reason: &str| {
        let metrics = coordinator_process.get("/metrics");
        let counter = format!("weir_report_entries_rejected_total{{reason=\"{reason}\"}} ");
        metrics.lines().any(|line| line.strip_prefix(&counter).is_some_and(|count| count != "0"))
    };
    wait_for("a report of the unknown coflow", || has_rejected("unknown-flow"));
    let former = register();
    wait_for("the bytes of the first socket", || sent_bytes() >= 200_000.0);
    former.deregister().unwrap();
    let renewed = register();
    wait_for_rate();
    send(&mut first, 200_000);
    // Many intervals. The agent knows from the orders that the socket's registration is gone, and reports it no more.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(sent_bytes(), 0.0);

    // The flow has no socket of this registration yet. The first one ends, which does not complete the flow.
    let mut second = hand_over_connection(&second_program, "job");
    drop((first, first_program));
    send(&mut second, 50_000);
    wait_for("the bytes of the second socket", || sent_bytes() >= 50_000.0);
    assert_eq!(state()["done"], false);
    second_program.mark_done("job", 0).unwrap();
    wait_for("the end of the flow", || state()["done"] == true);
    assert_eq!(sent_bytes(), 50_000.0);
    renewed.deregister().unwrap();
}

/// The program hands over a socket as soon as the coflow is registered again, while its former sockets are open.
#[test]
fn socket_that_follows_a_registration_at_once_belongs_to_it() {
    let dir = TestDir::new();
    let coordinator_process = start_coordinator(&dir);
    let agent = ConnectedAgent::start(&dir, &coordinator_process);
    let coordinator = Coordinator::local(&coordinator_process.api_address).unwrap();
    let program = Agent::connect(&agent.local_socket).unwrap();
    let flow = Flow { from: "a".to_owned(), to: "b".to_owned(), bytes: None };
    let registration = Registration { flows: vec![flow], ..Registration::default() };
    let sent_bytes =
        || coordinator.get("/v1/coflows/job").unwrap()["flows"][0]["sent_bytes"].as_f64().unwrap();
    let mut former = Vec::new();
    for round in 1..=20 {
        let coflow = Coflow::register(&coordinator, "job", &registration).unwrap();
        let (mut sender, mut receiver) = hand_over_connection(&program, "job");
        let bytes = 1000 * round;
        sender.write_all(&vec![1; bytes]).unwrap();
        receiver.read_exact(&mut vec![0; bytes]).unwrap();
        wait_for("the bytes of this socket", || sent_bytes() >= bytes as f64);
        former.push((sender, receiver));
        coflow.deregister().unwrap();
    }
}

#[test]
fn coflow_transfer_is_paced_with_an_agent_and_unpaced_without() {
    let dir = TestDir::new();
    let coordinator_process = start_coordinator(&dir);
    let agent = ConnectedAgent::start(&dir, &coordinator_process);
    let coordinator = Coordinator::local(&coordinator_process.api_address).unwrap();
    let data: Vec<u8> = (0..2 << 20).map(|at: u32| at.to_le_bytes()[at as usize % 3]).collect();
    let flow = |bytes| Flow { from: "a".to_owned(), to: "b".to_owned(), bytes };
    let registration = Registration {
        service: Some("ads".to_owned()),
        deadline: Some(Duration::from_millis(30_500)),
        flows: vec![flow(Some(data.len() as u64)), flow(None)],
        ..Registration::default()
    };
    let coflow = Coflow::register(&coordinator, "job/7", &registration).unwrap();
    Coflow::register(&coordinator, "job/7", &registration).unwrap();
    let other = Registration { service: None, ..registration.clone() };
    assert_eq!(refused_status(Coflow::register(&coordinator, "job/7", &other).unwrap_err()), 409);
    let state = || coordinator.get("/v1/coflows/job%2F7").unwrap();
    assert_eq!((&state()["service"], &state()["deadline"]), (&"ads".into(), &"30.5s".into()));
    coflow.update(&[flow(Some(data.len() as u64)), flow(Some(3))]).unwrap();
    assert_eq!(state()["flows"][1]["bytes"], 3.0);

    let inbox = FlowReceiver::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let route = Route::direct(inbox.address()).unwrap();
    let receiver = thread::spawn(move || {
        [1, 0].map(|flow| {
            let mut all = Vec::new();
            inbox.receive("job/7", flow, TIMEOUT).unwrap().read_to_end(&mut all).unwrap();
            all
        })
    });
    let agent_client = Agent::connect(&agent.local_socket).unwrap();
    // The agent has received an order that names the flows.
    wait_for("a rate", || !state()["flows"][1]["rate"].is_null());
    let sent = send_flow(&agent_client, "job/7", 1, route, &mut &b"abc"[..]).unwrap();
    assert!(sent.bytes == 3 && sent.unpaced.is_none(), "{sent:?}");
    // A competing coflow, which counts as one with data for a lease.
    let competitor = Registration { flows: vec![flow(None)], ..registration.clone() };
    let competitor = Coflow::register(&coordinator, "waiting", &competitor).unwrap();
    wait_for("a rate", || state()["flows"][0]["rate"].is_object());
    let start_time = Instant::now();
    let sent = send_flow(&agent_client, "job/7", 0, route, &mut &data[..]).unwrap();
    assert!(sent.bytes == data.len() as u64 && sent.unpaced.is_none(), "{sent:?}");
    let received = receiver.join().unwrap();
    let elapsed_secs = start_time.elapsed().as_secs_f64();
    assert!(received[0] == b"abc" && received[1] == data);
    // The kernel's first burst shortens the transfer by much less than 30 %.
    assert!(elapsed_secs > 0.7 * data.len() as f64 / 2e6, "{elapsed_secs} s");
    let end = coflow.wait(TIMEOUT).unwrap();
    assert!(end.is_completed && end.flows.iter().all(|flow| flow.is_done), "{end:?}");
    coflow.deregister().unwrap();
    competitor.deregister().unwrap();

    // Without an agent, the transfer succeeds unpaced.
    let inbox = FlowReceiver::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let route = Route::direct(inbox.address()).unwrap();
    drop(agent);
    let sender = thread::spawn(move || send_flow(&agent_client, "c", 0, route, &mut &b"abc"[..]).unwrap());
    let mut text = String::new();
    inbox.receive("c", 0, TIMEOUT).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "abc");
    assert!(sender.join().unwrap().unpaced.is_some());
}
