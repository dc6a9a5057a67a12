//! Relays on loopback addresses with real sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::spawn;
use std::time::{Duration, Instant};

use weir_flow::Reason;
use weir_proto::relay::{RegionPair, RelayCoflow, RelayMatch, RelayOrder, RelayPath, RelayRule, RuleScope};
use weir_relay::io::{Command, ServerSettings};
use weir_relay::message::RelayId;
use weir_relay::reason_counts::ReasonCounts;
use weir_relay::relay::GroupProgress;

use crate::test_relay::{
    TIMEOUT, TestRelay, accept, accept_flow, connect_relays_with, open, overlay, random_bytes, read_flow,
    refusal, settings, start_relays, transfer, transfer_to, wait_until,
};

/// How long a relay waits for an order that names the coflow of a flow.
const ORDER_WAIT: Duration = Duration::from_millis(100);

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
    let paths =
        vec![RelayPath { next_region: 2, fraction: 0.75 }, RelayPath { next_region: 3, fraction: 0.25 }];
    let scope = RuleScope::Pair(RegionPair { source: 1, destination: 2 });
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
fn flows_of_several_priorities_arrive_over_parallel_connections() {
    let rule = |flow, priority| {
        let scope = RuleScope::Flows { pair: None, first: flow, last: flow };
        RelayRule { flows: RelayMatch { coflow: 7, scope }, priority, weight: 1.0, paths: vec![] }
    };
    let rules = vec![rule(0, 3), rule(1, 2), rule(2, 1), rule(3, 0)];
    let settings = (1..=2).map(|id| ServerSettings { connections: Some(4), ..settings(id) }).collect();
    let relays = connect_relays_with(settings, rules);
    let connections =
        |relay: &TestRelay| relay.status().links.values().map(|link| link.connections).sum::<usize>();
    wait_until(|| relays.iter().all(|relay| connections(relay) == 4));
    std::thread::scope(|scope| {
        // Relay 1 dials the connections of the link, and each relay those for its own data.
        scope.spawn(|| transfer_to(&relays[0], 2, &[30_000_000, 10_000_000, 100, 2_000_000, 40_000]));
        scope.spawn(|| transfer_to(&relays[1], 1, &[30_000_000, 1, 5_000_000]));
    });
    wait_until(|| relays.iter().all(|relay| relay.status().flow_counts == (0, 0, 0)));
    for relay in &relays {
        let status = relay.status();
        assert_eq!(status.used_bytes, (0, 0));
        assert!(status.links.values().all(|link| link.failures == 0 && link.connections == 4), "{status:?}");
    }
}

#[test]
fn relay_refuses_what_it_cannot_forward() {
    let relays = start_relays(2, vec![]);
    let refusal = |line: &str| refusal(&relays[0], line);
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
    spawn(move || {
        let answer = |stream: TcpStream| (&stream).write_all(b"ack 0\n").map(|()| stream);
        listener.incoming().flatten().map(answer).collect::<Vec<_>>()
    });
    // The order follows the request at once. If other programs delay it, the relay may refuse the flow, but not early.
    let is_opened = |&number: &u32| {
        let mut named = overlay(&relays, vec![]);
        named.apply(&RelayOrder {
            coflows: vec![RelayCoflow {
                number,
                name: format!("late-{number}").into(),
                service: "default".into(),
            }],
            ..RelayOrder::default()
        });
        // The relay of the receivers knows the coflow, and would reset its flow otherwise.
        relays[1].handle.send(Command::SetOverlay(named.clone()));
        relays[1].status();
        let start = Instant::now();
        let mut stream = TcpStream::connect(relays[0].programs).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(format!("weir-flow/2 late-{number} 0 0 0 {receiver}\n").as_bytes()).unwrap();
        // The first command finds the request, the second one names its coflow.
        relays[0].status();
        relays[0].handle.send(Command::SetOverlay(named));
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        let is_refused_late = line == "reset unknown-coflow\n" && start.elapsed() >= ORDER_WAIT;
        assert!(line == "ack 0\n" || is_refused_late, "{line} after {:?}", start.elapsed());
        line == "ack 0\n"
    };
    let opened = (8..18).filter(is_opened).count();
    assert!(opened > 0, "no order came within {ORDER_WAIT:?}");
}

#[test]
fn completed_flows_count_no_reset_and_aborted_programs_do() {
    let relays = start_relays(2, vec![]);
    // Resets at the senders' relay, and those that the receivers' relay sent.
    let resets = || {
        let count = |counts: ReasonCounts| counts.iter().map(|(_, count)| count).sum::<u64>();
        (count(relays[0].status().resets.flows), count(relays[1].status().resets.sent))
    };
    // Receivers close their connections after the last acknowledgement, as libraries do: before the senders.
    let listener = TcpListener::bind("127.2.0.1:0").unwrap();
    for flow in 0..20 {
        let mut stream = open(&relays[0], flow, listener.local_addr().unwrap());
        let receiver = accept(&listener);
        stream.write_all(b"data").unwrap();
        let mut reader = BufReader::new(&receiver);
        let (mut line, mut data) = (String::new(), [0; 4]);
        reader.read_line(&mut line).unwrap();
        reader.read_exact(&mut data).unwrap();
        (&receiver).write_all(b"ack 0\nack 4\n").unwrap();
        drop(receiver);
        let mut answers = BufReader::new(&stream);
        while line != "ack 4\n" {
            line.clear();
            assert!(answers.read_line(&mut line).unwrap() > 0);
        }
        if flow % 2 == 0 {
            wait_until(|| relays[1].status().flow_counts.1 == 1);
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(stream);
        wait_until(|| relays.iter().all(|relay| relay.status().flow_counts == (0, 0, 0)));
    }
    assert_eq!(resets(), (0, 0));
    assert_eq!(relays[1].status().used_bytes, (0, 0));
    // A receiver that is killed has unacknowledged data, or receives further data.
    for (flow, is_acknowledged) in [(20, false), (21, true)] {
        let mut stream = open(&relays[0], flow, listener.local_addr().unwrap());
        let receiver = accept(&listener);
        stream.write_all(b"data").unwrap();
        let mut line = String::new();
        BufReader::with_capacity(1, &receiver).read_line(&mut line).unwrap();
        (&receiver).read_exact(&mut [0; 4]).unwrap();
        (&receiver).write_all(if is_acknowledged { b"ack 0\nack 4\n" } else { b"ack 0\nack 3\n" }).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        while !["ack 4\n", "ack 3\n"].contains(&line.as_str()) {
            line.clear();
            assert!(answers.read_line(&mut line).unwrap() > 0);
        }
        drop(receiver);
        if is_acknowledged {
            std::thread::sleep(Duration::from_millis(20));
            stream.write_all(b"more").unwrap();
        }
        let mut rest = String::new();
        answers.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with("reset lost\n"), "{rest}");
    }
    assert_eq!(resets(), (2, 2));
    assert_eq!(relays[1].status().resets.sent.get(Reason::Lost), 2);
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
    // The receiver has all bytes, so the failure loses none.
    let has_all = |progress: &GroupProgress| progress.acked_bytes == 1000;
    wait_until(|| relays[0].status().groups.get(&(7, RelayId(2))).is_some_and(has_all));
    let address = relays[1].relays;
    drop(relays.pop());
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("reset lost\n"), "{answer}");
    assert_eq!(reader.join().unwrap().1, [7; 1000]);
    let restarted = TestRelay::start(2, address, None);
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

#[test]
fn draining_relay_refuses_new_flows_and_completes_open_ones() {
    // The relay of the senders, then that of the receivers.
    for draining in [0, 1] {
        let relays = start_relays(2, vec![]);
        let listener = TcpListener::bind("127.2.0.1:0").unwrap();
        let receiver = listener.local_addr().unwrap();
        let mut stream = open(&relays[0], 1, receiver);
        let accepted = accept(&listener);
        relays[draining].handle.send(Command::Drain);
        let answer = refusal(&relays[0], &format!("weir-flow/2 shuffle 2 0 0 {receiver}\n"));
        assert_eq!(answer, "reset busy\n");
        let reader = spawn(move || read_flow(accepted));
        stream.write_all(b"open").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        assert!(!answers.contains("reset"), "{answers}");
        assert_eq!(reader.join().unwrap(), (1, b"open".to_vec()));
        wait_until(|| relays.iter().all(|relay| relay.status().flow_counts == (0, 0, 0)));
    }
}

#[test]
fn flow_ends_if_its_program_closes_right_after_its_data() {
    let relays = start_relays(2, vec![]);
    let listener = TcpListener::bind("127.2.0.1:0").unwrap();
    let receiver = listener.local_addr().unwrap();
    for flow in 0..20 {
        let mut stream = TcpStream::connect(relays[0].programs).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(format!("weir-flow/2 shuffle {flow} 0 0 {receiver}\ndata").as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(accept_flow(&listener), (flow, b"data".to_vec()));
        wait_until(|| relays.iter().all(|relay| relay.status().flow_counts == (0, 0, 0)));
    }
}
