//! Senders that an agent pauses.

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use weir_client::{
    Agent, AgentError, FlowReceiver, FlowSender, Route, SentFlow, UnscheduledReason, send_flow,
};

use crate::fake_agent::{FakeAgent, bind_socket, socket_path};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A lease that no test reaches the end of.
const LONG: &str = "60000";

static DATA: [u8; 300_000] = [7; 300_000];

/// Sends [`DATA`] as flow 0 of coflow `c` in a thread.
fn send(agent: Agent, receiver: &FlowReceiver) -> thread::JoinHandle<std::io::Result<SentFlow>> {
    let route = Route::direct(receiver.address()).unwrap();
    thread::spawn(move || send_flow(&agent, "c", 0, route, &mut &DATA[..]))
}

/// Reads in a thread. Returns the received data and the time of its end.
fn receive(receiver: FlowReceiver) -> thread::JoinHandle<(Vec<u8>, Instant)> {
    thread::spawn(move || {
        let mut data = Vec::new();
        receiver.receive("c", 0, TIMEOUT).unwrap().read_to_end(&mut data).unwrap();
        (data, Instant::now())
    })
}

/// A receiver, and an agent that lets a program do `state` at first.
fn start(state: &'static str) -> (FlowReceiver, FakeAgent, Agent) {
    let path = socket_path();
    let listener = bind_socket(&path);
    let agent = Agent::connect(&path).unwrap();
    (FlowReceiver::bind("127.0.0.1:0").unwrap(), FakeAgent::accept(&path, &listener, state), agent)
}

#[test]
fn paused_sender_writes_nothing_until_go() {
    let (receiver, fake, agent) = start("pause 60000");
    let sender = send(agent, &receiver);
    fake.wait_for("data c 0");
    let mut flow = receiver.receive("c", 0, TIMEOUT).unwrap();
    let reader = thread::spawn(move || {
        let mut data = Vec::new();
        flow.read_exact(&mut [0]).unwrap();
        let first_byte = Instant::now();
        flow.read_to_end(&mut data).unwrap();
        (data.len(), first_byte)
    });
    thread::sleep(Duration::from_millis(150));
    let go = Instant::now();
    fake.push("go c 0 125000000");
    let (length, first_byte) = reader.join().unwrap();
    assert!(first_byte > go, "data arrived during the pause");
    assert_eq!(length, DATA.len() - 1);
    assert!(sender.join().unwrap().unwrap().unpaced.is_none());
    fake.wait_for("done c 0");
    assert_eq!((fake.count("open c 0 gated"), fake.count("data c 0")), (1, 1));
}

#[test]
fn pause_ends_with_its_lease_unless_renewed() {
    let (receiver, fake, agent) = start("pause 60000");
    let sender = send(agent, &receiver);
    let reader = receive(receiver);
    fake.wait_for("data c 0");
    let start = Instant::now();
    for _ in 0..20 {
        fake.push("renew 200");
        thread::sleep(Duration::from_millis(20));
    }
    let last_renewal = Instant::now();
    let (data, end) = reader.join().unwrap();
    assert!(data == DATA);
    assert!(end > last_renewal, "the sender wrote {:?} after the start", end - start);
    let unpaced = sender.join().unwrap().unwrap().unpaced.unwrap();
    assert!(unpaced.to_string().contains("not renewed"), "{unpaced}");
}

#[test]
fn pause_ends_with_the_agents_connection_and_returns_with_the_next_one() {
    let path = socket_path();
    let listener = bind_socket(&path);
    let agent = Agent::connect(&path).unwrap();
    let first = FakeAgent::accept(&path, &listener, "go 1000000");
    let receiver = FlowReceiver::bind("127.0.0.1:0").unwrap();
    let route = Route::direct(receiver.address()).unwrap();
    let mut sender = FlowSender::new("c", 0, route).unwrap().with_agent(&agent);
    sender.write_all(b"a").unwrap();
    sender.flush().unwrap();
    first.wait_for("open c 0 gated");
    // Another agent listens at the path when this one exits.
    drop((first, listener));
    sender.write_all(b"b").unwrap();
    sender.flush().unwrap();
    let listener = bind_socket(&path);
    let second = FakeAgent::accept(&path, &listener, "pause 60000");
    second.wait_for("open c 0 gated");
    // Requests succeed again when all sockets are handed over.
    let start = Instant::now();
    while agent.mark_done("other", 0).is_err() {
        assert!(start.elapsed() < TIMEOUT);
        thread::sleep(Duration::from_millis(1));
    }
    let reader = receive(receiver);
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            sender.write_all(b"c").unwrap();
            sender.finish().unwrap()
        });
        second.wait_for("data c 0");
        second.push("go c 0 free no reason but this");
        assert_eq!(reader.join().unwrap().0, b"abc");
        let unpaced = sending.join().unwrap().unpaced.unwrap().to_string();
        assert!(unpaced.contains("no reason but this"), "{unpaced}");
    });
}

#[test]
fn short_flow_has_the_last_answer_of_the_coordinator_or_none() {
    let unanswered = "go free unanswered: no answer yet";
    for (answer, expected, message) in [
        (None, UnscheduledReason::Unanswered, "no answer yet"),
        (Some("go c 0 free foreign-flow: another host"), UnscheduledReason::ForeignFlow, "another host"),
    ] {
        let (receiver, fake, agent) = start(unanswered);
        let sender = send(agent, &receiver);
        if let Some(answer) = answer {
            fake.wait_for("open c 0 gated");
            fake.push(answer);
        }
        assert!(receive(receiver).join().unwrap().0 == DATA);
        match sender.join().unwrap().unwrap().unpaced {
            Some(AgentError::Unscheduled { reason, message: text }) => {
                assert_eq!((reason, text.as_str()), (expected, message));
            }
            unpaced => panic!("{unpaced:?}"),
        }
        fake.wait_for("done c 0");
    }
}

#[test]
fn absent_agent_does_not_delay_and_is_the_reason() {
    let (receiver, fake, agent) = start("go 1000");
    drop(fake);
    let sender = send(agent, &receiver);
    assert!(receive(receiver).join().unwrap().0 == DATA);
    assert!(sender.join().unwrap().unwrap().unpaced.is_some());
}

#[test]
fn sender_with_little_data_reports_data_and_idleness() {
    let (receiver, fake, agent) = start("go 1000000");
    let route = Route::direct(receiver.address()).unwrap();
    let mut sender = FlowSender::new("c", 0, route).unwrap().with_agent(&agent);
    let reader = receive(receiver);
    for _ in 0..50 {
        sender.write_all(b"x").unwrap();
        sender.flush().unwrap();
        thread::sleep(Duration::from_millis(2));
    }
    let (idle, data) = (fake.count("idle c 0"), fake.count("data c 0"));
    // The sender limits these messages: at most one pair in 5 ms.
    assert!((1..=25).contains(&idle) && idle.abs_diff(data) <= 1, "{idle} {data}");
    // Paused again, each data counts.
    fake.push(&format!("pause c 0 {LONG}"));
    thread::sleep(Duration::from_millis(20));
    let before = fake.count("data c 0");
    thread::scope(|scope| {
        let sending = scope.spawn(move || {
            sender.write_all(b"x").unwrap();
            sender.finish().unwrap()
        });
        let start = Instant::now();
        while fake.count("data c 0") == before {
            assert!(start.elapsed() < TIMEOUT);
            thread::sleep(Duration::from_millis(1));
        }
        fake.push("go c 0 free");
        assert!(sending.join().unwrap().unpaced.is_none());
    });
    assert_eq!(reader.join().unwrap().0.len(), 51);
}

#[test]
fn calls_of_a_paused_sender_end_in_time_or_when_cancelled() {
    let (receiver, _fake, agent) = start("pause 60000");
    let route = Route::direct(receiver.address()).unwrap();
    let limit = Duration::from_millis(50);
    let mut sender = FlowSender::new("c", 0, route).unwrap().with_agent(&agent).with_timeout(limit);
    sender.write_all(b"hello").unwrap();
    let start = Instant::now();
    let error = sender.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("flow 0 of coflow `c`"), "{error}");
    assert!(start.elapsed() >= limit);
    let canceller = sender.canceller();
    let mut sender = sender.with_timeout(TIMEOUT);
    thread::scope(|scope| {
        let flushing = scope.spawn(|| sender.flush());
        thread::sleep(limit);
        canceller.cancel();
        assert_eq!(flushing.join().unwrap().unwrap_err().kind(), ErrorKind::ConnectionAborted);
    });
    assert_eq!(sender.write(b"more").unwrap_err().kind(), ErrorKind::ConnectionAborted);
}
