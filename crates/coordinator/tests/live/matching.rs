//! Real flows under `policy = "django"`: receivers decide which of them send.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use weir_agent::batch::run_batch;
use weir_client::{Agent, FlowReceiver, FlowSender, Route};
use weir_coordinator::control_plane::{ConnectionPredictor, LivePolicy};
use weir_core::django::{BufferPredictor, CountSettings};
use weir_core::policy::{build, django_settings};
use weir_testbed::network::{CableEnd, Network};
use weir_testbed::{namespace, testing};

use crate::live::{Coordinator, RunningAgent, lock_tests};
use crate::wait::wait_for;

/// Above what loopback carries on a busy machine, so that no link fills.
const LINK_RATE: f64 = 1e9;

fn start_coordinator(policy: &str) -> (Coordinator, SocketAddr) {
    let policy = LivePolicy::matching(django_settings(policy).unwrap().unwrap());
    Coordinator::start_with("127.0.0.1:0".parse().unwrap(), 1, LINK_RATE, policy)
}

/// The bytes of a flow: no two flows have the same.
fn data(flow: u32, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add(flow as u8)).collect()
}

/// Sends all flows of a coflow to one receiver at the same time, from the agent of the sender of each. Returns the received data of each
/// flow, and the most flows that received data in a window of 20 ms.
fn shuffle(
    coflow: &str,
    address: &str,
    agents: &BTreeMap<u32, Agent>,
    flows: &[(u32, Vec<u8>)],
) -> (Vec<Vec<u8>>, usize) {
    shuffle_to(FlowReceiver::bind((address, 0)).unwrap(), coflow, agents, flows)
}

/// As [`shuffle`], to a receiver that listens already.
fn shuffle_to(
    receiver: FlowReceiver,
    coflow: &str,
    agents: &BTreeMap<u32, Agent>,
    flows: &[(u32, Vec<u8>)],
) -> (Vec<Vec<u8>>, usize) {
    let received: Vec<AtomicU64> = flows.iter().map(|_| AtomicU64::new(0)).collect();
    let timeout = Duration::from_secs(60);
    let mut most = 0;
    let result = thread::scope(|scope| {
        let readers: Vec<_> = (0u32..)
            .zip(&received)
            .map(|(flow, count)| {
                let receiver = &receiver;
                scope.spawn(move || {
                    let mut incoming = receiver.receive(coflow, flow, timeout).unwrap();
                    let (mut all, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
                    while let Ok(length @ 1..) = incoming.read(&mut buffer) {
                        all.extend_from_slice(&buffer[..length]);
                        count.fetch_add(length as u64, Ordering::Relaxed);
                    }
                    all
                })
            })
            .collect();
        for (flow, (src, sent)) in (0u32..).zip(flows) {
            let (agent, route) = (&agents[src], Route::direct(receiver.address()).unwrap());
            scope.spawn(move || {
                let sender = FlowSender::new(coflow, flow, route).unwrap().with_timeout(timeout);
                let mut sender = sender.with_agent(agent);
                sender.write_all(sent).unwrap();
                sender.finish().unwrap();
            });
        }
        let mut before = vec![0; flows.len()];
        let start = Instant::now();
        while readers.iter().any(|reader| !reader.is_finished()) {
            thread::sleep(Duration::from_millis(20));
            let counts: Vec<u64> = received.iter().map(|count| count.load(Ordering::Relaxed)).collect();
            most = most.max(counts.iter().zip(&before).filter(|(now, before)| now > before).count());
            before = counts;
            assert!(start.elapsed() < timeout, "flows wait for ever");
        }
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    (result, most)
}

#[test]
fn receivers_open_no_more_connections_than_they_may() {
    let _turn = lock_tests();
    let (coordinator, address) = start_coordinator("django:connections=2");
    let running: Vec<RunningAgent> =
        (0..4).map(|host| RunningAgent::start_with_link(address, host, LINK_RATE)).collect();
    wait_for("the hosts", || coordinator.present_host_count() == 4);
    let connect = |host: u32| Agent::connect(running[host as usize].local_socket()).unwrap();
    let agents: BTreeMap<u32, Agent> = (0..3).map(|host| (host, connect(host))).collect();
    let flows: Vec<(u32, Vec<u8>)> = (0..9).map(|flow| (flow % 3, data(flow, 10_000_000))).collect();
    let spec: Vec<(u32, u32, f64)> = flows.iter().map(|(src, sent)| (*src, 3, sent.len() as f64)).collect();
    coordinator.register("shuffle", &spec);
    let (received, most) = shuffle("shuffle", "127.0.0.1", &agents, &flows);
    assert!(received.iter().zip(&flows).all(|(bytes, (_, sent))| bytes == sent), "the received data differs");
    // In a window, a flow can end, and the next one begin.
    eprintln!("at most {most} of {} flows send at a time", flows.len());
    assert!((1..=4).contains(&most), "{most} flows send at a time");
    wait_for("the completion", || coordinator.sent_bytes_and_completion("shuffle").1);
}

#[test]
fn flows_go_on_without_the_agent_of_their_receiver() {
    let _turn = lock_tests();
    let (coordinator, address) = start_coordinator("django:connections=1");
    let mut running: Vec<RunningAgent> =
        (0..4).map(|host| RunningAgent::start_with_link(address, host, LINK_RATE)).collect();
    wait_for("the hosts", || coordinator.present_host_count() == 4);
    let agents = BTreeMap::from([(0, Agent::connect(running[0].local_socket()).unwrap())]);
    let flows: Vec<(u32, Vec<u8>)> = (0..6).map(|flow| (0, data(flow, 10_000_000))).collect();
    coordinator.register("shuffle", &[(0, 3, 10e6); 6]);
    thread::scope(|scope| {
        let sent = scope.spawn(|| shuffle("shuffle", "127.0.0.1", &agents, &flows));
        thread::sleep(Duration::from_millis(100));
        drop(running.pop());
        let (received, _) = sent.join().unwrap();
        assert!(
            received.iter().zip(&flows).all(|(bytes, (_, sent))| bytes == sent),
            "the received data differs"
        );
    });
}

/// Moves the calling thread, and those that it starts, to a network namespace whose loopback carries `rate` to 127.0.0.2.
fn enter_namespace_with_slow_address(rate: &str) -> bool {
    let queues = format!(
        "qdisc add dev lo root handle 1: htb default 1
         class add dev lo parent 1: classid 1:1 htb rate 10gbit quantum 60000
         class add dev lo parent 1: classid 1:2 htb rate {rate} quantum 60000
         qdisc add dev lo parent 1:2 pfifo limit 200
         filter add dev lo parent 1: protocol ip u32 match ip dst 127.0.0.2 flowid 1:2\n"
    );
    namespace::enter_new().is_ok()
        && run_batch(Command::new("ip"), "ip", String::new, "link set lo mtu 1500 gso_max_segs 1\n").is_ok()
        && run_batch(Command::new("tc"), "tc", String::new, &queues).is_ok()
}

/// A sender throttles the coflow with more remaining bytes when its uplink is the bottleneck: the coflows have different receivers.
#[test]
fn smaller_coflow_gets_the_uplink() {
    let _turn = lock_tests();
    if !enter_namespace_with_slow_address("160mbit") {
        eprintln!("skips: a network namespace needs root, ip and tc");
        return;
    }
    let policy = || LivePolicy::matching(django_settings("django:connections=4").unwrap().unwrap());
    let tcp = || build("fair").unwrap().into();
    // The time of the smaller coflow as a part of that of both.
    let part = |policy: LivePolicy| {
        let (coordinator, address) = Coordinator::start_with("127.0.0.1:0".parse().unwrap(), 1, 20e6, policy);
        let running: Vec<RunningAgent> =
            (0..3).map(|host| RunningAgent::start_with_link(address, host, 20e6)).collect();
        wait_for("the hosts", || coordinator.present_host_count() == 3);
        let agents = BTreeMap::from([(0, Agent::connect(running[0].local_socket()).unwrap())]);
        coordinator.register("large", &[(0, 1, 12e6); 4]);
        coordinator.register("small", &[(0, 2, 4e6); 2]);
        let begin = Barrier::new(2);
        thread::scope(|scope| {
            let send = |coflow: &'static str, count: u32, length: usize| {
                let (agents, begin) = (&agents, &begin);
                scope.spawn(move || {
                    let flows: Vec<_> = (0..count).map(|flow| (0, data(flow, length))).collect();
                    begin.wait();
                    let start = Instant::now();
                    shuffle(coflow, "127.0.0.2", agents, &flows);
                    start.elapsed().as_secs_f64()
                })
            };
            let (large, small) = (send("large", 4, 12_000_000), send("small", 2, 4_000_000));
            small.join().unwrap() / large.join().unwrap()
        })
    };
    // Alone it would take 8 of 56 MB, a seventh of the time; next to four other connections, three sevenths. Other load can delay
    // programs.
    let is_faster = |_| {
        let (with, without) = (part(policy()), part(tcp()));
        eprintln!("the smaller coflow takes {with:.2} of the time, and {without:.2} as plain TCP");
        with < 0.7 * without
    };
    assert!((0..3).any(is_faster), "the smaller coflow has no priority");
}

/// Senders `a`, a switch `s` and receivers `b`. The switch has a port of 40 Mbit/s to each receiver, whose queue holds 8 packets for
/// 10.9.2.2, and 1000 for 10.9.2.3. The calling thread moves to the senders. None if the test skips.
fn switched_network(test: &str) -> Option<Network> {
    let network = testing::network(test, &["a", "s", "b"])?;
    let end = |node, interface, subnet, host| CableEnd {
        node,
        interface,
        address: Ipv4Addr::new(10, 9, subnet, host),
        prefix: 24,
    };
    network.add_cable([end("a", "a0", 1, 1), end("s", "s0", 1, 2)]).unwrap();
    network.add_cable([end("b", "b0", 2, 2), end("s", "s1", 2, 1)]).unwrap();
    // The queues count packets, not those of segmentation offload.
    network.run_ip("a", "link set a0 gso_max_segs 1\nroute add default via 10.9.1.2\n").unwrap();
    network.run_ip("b", "address add 10.9.2.3/24 dev b0\nroute add default via 10.9.2.1\n").unwrap();
    let queues = "\
        qdisc add dev s1 root handle 1: htb default 1
        class add dev s1 parent 1: classid 1:1 htb rate 10gbit quantum 60000
        class add dev s1 parent 1: classid 1:2 htb rate 40mbit quantum 6000
        class add dev s1 parent 1: classid 1:3 htb rate 40mbit quantum 6000
        qdisc add dev s1 parent 1:2 pfifo limit 8
        qdisc add dev s1 parent 1:3 pfifo limit 1000
        filter add dev s1 parent 1: protocol ip u32 match ip dst 10.9.2.2 flowid 1:2
        filter add dev s1 parent 1: protocol ip u32 match ip dst 10.9.2.3 flowid 1:3\n";
    network.run_tc("s", queues).unwrap();
    // All windows together fit into the long queue.
    network.set("a", "ipv4/tcp_wmem", "4096 65536 65536").unwrap();
    namespace::enter(&network.namespace("a")).unwrap();
    Some(network)
}

/// Every loss is that of a buffer of 22 packets.
#[derive(Debug)]
struct ShortBuffer;

impl BufferPredictor for ShortBuffer {
    fn predict_buffer(&self, loss: f64, connections: u32) -> u32 {
        eprintln!("{connections} connections lose {:.1} % of the packets", 100.0 * loss);
        22
    }
}

#[test]
fn host_behind_a_short_queue_gets_fewer_connections() {
    let _turn = lock_tests();
    let Some(network) = switched_network("shortqueue") else { return };
    let settings = CountSettings {
        window: 0.3,
        min_segments: 100,
        min_loss: 0.001,
        growth_windows: 2,
        marking_threshold: 20,
        max_connections: 20,
    };
    let predictor = ConnectionPredictor { buffers: Arc::new(ShortBuffer), settings };
    let policy = LivePolicy::matching(django_settings("django:connections=6").unwrap().unwrap());
    let address = "127.0.0.1:0".parse().unwrap();
    let (coordinator, address) = Coordinator::start_with_plane(address, 1, LINK_RATE, policy, |plane| {
        plane.with_connection_predictor(predictor)
    });
    let running: Vec<RunningAgent> =
        (0..4).map(|host| RunningAgent::start_with_link(address, host, LINK_RATE)).collect();
    wait_for("the hosts", || coordinator.present_host_count() == 4);
    let connect = |host: u32| Agent::connect(running[host as usize].local_socket()).unwrap();
    let flows: Vec<(u32, Vec<u8>)> = (0..8).map(|flow| (flow % 2, data(flow, 2_000_000))).collect();
    let receiver = |address| network.run_inside("b", || FlowReceiver::bind((address, 0)).unwrap()).unwrap();
    let shuffles = [(2, "short", receiver("10.9.2.2")), (3, "long", receiver("10.9.2.3"))];
    let mut fewest = u32::MAX;
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (host, coflow, receiver) in shuffles {
            let spec: Vec<_> = flows.iter().map(|(src, sent)| (*src, host, sent.len() as f64)).collect();
            coordinator.register(coflow, &spec);
            let agents = BTreeMap::from([(0, connect(0)), (1, connect(1))]);
            let flows = &flows;
            running.push(scope.spawn(move || shuffle_to(receiver, coflow, &agents, flows).0));
        }
        while running.iter().any(|shuffle| !shuffle.is_finished()) {
            fewest = fewest.min(coordinator.connections(2).unwrap());
            thread::sleep(Duration::from_millis(20));
        }
        for received in running.into_iter().map(|shuffle| shuffle.join().unwrap()) {
            assert!(received.iter().zip(&flows).all(|(bytes, (_, sent))| bytes == sent));
        }
    });
    let most = coordinator.connections(3).unwrap();
    eprintln!("at least {fewest} connections behind the short queue, {most} behind the long one");
    assert_eq!(fewest, 2);
    assert!(most > 6, "{most} connections");
}
