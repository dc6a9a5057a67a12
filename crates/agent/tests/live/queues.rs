//! Tests queues of a real kernel, in a pair of namespaces with real traffic. Without the privileges, these tests print that and skip.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::campaign::seeds;
use crate::kernel::CounterReading;
use crate::namespace_pair::{NamespacePair, create_pair, interface};
use crate::wait::wait_for;
use nix::sys::socket::{setsockopt, sockopt};
use weir_agent::batch::{run_batch, run_tool};
use weir_agent::htb::{dscp, max_segments};
use weir_agent::queues::{DesiredQueues, Device, LimitedFlow, QueueError, ReplaceableRoots, Shares, cleanup};

const LINK_MBIT: f64 = 50.0;

/// The receive buffer, in bytes: enough for the data that arrives while a reading thread is delayed.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

fn desired_queues(weights: &[f64], limited_flows: &BTreeMap<u16, LimitedFlow>) -> DesiredQueues {
    let link = format!("{LINK_MBIT}Mbit").parse().unwrap();
    let segments = Device::read(&interface()).unwrap().segments;
    DesiredQueues::new(link, segments, &Shares::by_weight(weights), limited_flows).unwrap()
}

/// TCP connections to the other end, one for each queue, that send at full speed.
pub struct TcpSenders {
    received_bytes: Vec<Arc<AtomicU64>>,
    stop: Arc<AtomicBool>,
}

fn start_senders(pair: &NamespacePair, queues: &[usize]) -> TcpSenders {
    start_senders_with(pair, queues, "cubic")
}

fn start_senders_with(pair: &NamespacePair, queues: &[usize], control: &'static str) -> TcpSenders {
    start_senders_to(pair, "10.9.0.2:0", queues, control)
}

/// As `start_senders`, to listeners at an address of the other end.
pub fn start_senders_to(
    pair: &NamespacePair,
    address: &'static str,
    queues: &[usize],
    control: &'static str,
) -> TcpSenders {
    let stop = Arc::new(AtomicBool::new(false));
    let connect = |&queue: &usize| {
        let received_bytes = Arc::new(AtomicU64::new(0));
        let listener = pair.run_at_peer(move || TcpListener::bind(address).unwrap()).join().unwrap();
        let address = listener.local_addr().unwrap();
        let (count, stop_flag) = (Arc::clone(&received_bytes), Arc::clone(&stop));
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut buffer = vec![0; 1 << 16];
            while !stop_flag.load(Ordering::Relaxed) {
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(bytes) => count.fetch_add(bytes as u64, Ordering::Relaxed),
                };
            }
        });
        let mut stream = TcpStream::connect(address).unwrap();
        setsockopt(&stream, sockopt::TcpCongestion, &control.into()).unwrap();
        setsockopt(&stream, sockopt::Ipv4Tos, &i32::from(dscp(queue) << 2)).unwrap();
        let stop_flag = Arc::clone(&stop);
        thread::spawn(move || {
            let data = vec![0; 1 << 16];
            while !stop_flag.load(Ordering::Relaxed) && stream.write_all(&data).is_ok() {}
        });
        received_bytes
    };
    TcpSenders { received_bytes: queues.iter().map(connect).collect(), stop }
}

impl TcpSenders {
    /// The payload that arrives in the next `seconds`, in Mbit/s.
    pub fn measure_mbit(&self, seconds: f64) -> Vec<f64> {
        let read_counts = || -> Vec<u64> {
            self.received_bytes.iter().map(|count| count.load(Ordering::Relaxed)).collect()
        };
        let (before, started) = (read_counts(), Instant::now());
        thread::sleep(Duration::from_secs_f64(seconds));
        let (after, elapsed_secs) = (read_counts(), started.elapsed().as_secs_f64());
        before
            .iter()
            .zip(after)
            .map(|(before, after)| (after - before) as f64 * 8e-6 / elapsed_secs)
            .collect()
    }
}

impl Drop for TcpSenders {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The length of the next datagram; none after a timeout. A system call with a timeout returns EINTR if the process was stopped meanwhile.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Option<usize> {
    loop {
        match socket.recv(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return received.ok(),
        }
    }
}

fn read_qdiscs() -> String {
    run_tool("tc", &["qdisc", "show"]).unwrap()
}

#[test]
fn shares_follow_changed_weights() {
    let Some(pair) = create_pair("turn") else { return };
    let before = read_qdiscs();
    interface()
        .reconcile(&desired_queues(&[1.0, 3.0], &BTreeMap::new()), ReplaceableRoots::Restorable)
        .unwrap();
    let senders = start_senders(&pair, &[0, 1]);
    let wait_for_share = |expected: f64| {
        // A busy machine may disturb one measurement. A wrong rate never fits.
        wait_for(&format!("a share of {expected}"), || {
            let found = senders.measure_mbit(1.0);
            let total: f64 = found.iter().sum();
            eprintln!("{found:.2?} Mbit of payload, share {:.4}, expected {expected}", found[0] / total);
            let is_link_full = (total * 1514.0 / 1448.0 / LINK_MBIT - 1.0).abs() < 0.04;
            is_link_full && (found[0] / total - expected).abs() < 0.03
        });
    };
    wait_for_share(0.25);
    let list = interface()
        .reconcile(&desired_queues(&[3.0, 1.0], &BTreeMap::new()), ReplaceableRoots::Restorable)
        .unwrap();
    assert_eq!(list.len(), 2, "{list:?}");
    wait_for_share(0.75);
    assert!(
        interface()
            .reconcile(&desired_queues(&[3.0, 1.0], &BTreeMap::new()), ReplaceableRoots::Restorable)
            .unwrap()
            .is_empty()
    );
    drop(senders);
    assert_eq!(cleanup().unwrap(), [interface()]);
    assert_eq!(read_qdiscs(), before);
}

#[test]
fn a_change_of_weights_loses_no_packet() {
    let Some(pair) = create_pair("loss") else { return };
    interface()
        .reconcile(&desired_queues(&[1.0, 3.0], &BTreeMap::new()), ReplaceableRoots::Restorable)
        .unwrap();
    let senders = start_senders(&pair, &[1]);
    let socket = pair.run_at_peer(|| UdpSocket::bind("10.9.0.2:0").unwrap()).join().unwrap();
    let to = socket.local_addr().unwrap();
    setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let receiver = thread::spawn(move || {
        let (mut received, mut buffer) = (Vec::new(), [0; 2048]);
        while let Some(length) = receive(&socket, &mut buffer) {
            // The last packet is empty.
            if length == 0 {
                break;
            }
            assert_eq!(length, 500);
            received.push(u32::from_be_bytes(buffer[..4].try_into().unwrap()));
        }
        received
    });
    let stop = Arc::new(AtomicBool::new(false));
    let stop_flag = Arc::clone(&stop);
    let sender = thread::spawn(move || {
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        setsockopt(&socket, sockopt::Ipv4Tos, &i32::from(dscp(0) << 2)).unwrap();
        let mut sent = 0u32;
        let mut packet = [0; 500];
        while !stop_flag.load(Ordering::Relaxed) {
            packet[..4].copy_from_slice(&sent.to_be_bytes());
            socket.send_to(&packet, to).unwrap();
            sent += 1;
            thread::sleep(Duration::from_millis(1));
        }
        socket.send_to(&[], to).unwrap();
        sent
    });
    for turn in 0..100 {
        let weights = if turn % 2 == 0 { [3.0, 1.0] } else { [1.0, 3.0] };
        assert_eq!(
            interface()
                .reconcile(&desired_queues(&weights, &BTreeMap::new()), ReplaceableRoots::Restorable)
                .unwrap()
                .len(),
            2
        );
    }
    stop.store(true, Ordering::Relaxed);
    let (sent, seen) = (sender.join().unwrap(), receiver.join().unwrap());
    drop(senders);
    eprintln!("{sent} packets over 100 changes of weights, {} arrived", seen.len());
    assert!(sent > 100);
    assert_eq!(seen, (0..sent).collect::<Vec<_>>());
}

#[test]
fn limited_flow_gets_its_rate_and_queues_share_the_rest() {
    check_limited_flow("udp4", ["10.9.0.1:0", "10.9.0.2:0"], 42);
}

#[test]
fn limited_ipv6_flow_gets_its_rate_and_queues_share_the_rest() {
    check_limited_flow("udp6", ["[fd09::1]:0", "[fd09::2]:0"], 62);
}

/// A flow between two addresses, whose packets have a number of bytes of headers of UDP, IP and Ethernet.
fn check_limited_flow(test: &str, ends: [&'static str; 2], header_bytes: usize) {
    let Some(pair) = create_pair(test) else { return };
    let socket = pair.run_at_peer(move || UdpSocket::bind(ends[1]).unwrap()).join().unwrap();
    let sender = UdpSocket::bind(ends[0]).unwrap();
    setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES).unwrap();
    let (from, to) = (sender.local_addr().unwrap(), socket.local_addr().unwrap());
    let limited =
        BTreeMap::from([(3, LimitedFlow { source: from, destination: to, rate: "10Mbit".parse().unwrap() })]);
    interface().reconcile(&desired_queues(&[1.0, 3.0], &limited), ReplaceableRoots::Restorable).unwrap();
    assert!(
        interface()
            .reconcile(&desired_queues(&[1.0, 3.0], &limited), ReplaceableRoots::Restorable)
            .unwrap()
            .is_empty()
    );
    let senders = start_senders(&pair, &[0, 1]);
    let stop = Arc::clone(&senders.stop);
    let arrived = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&arrived);
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Some(length) = receive(&socket, &mut buffer) {
            count.fetch_add((length + header_bytes) as u64, Ordering::Relaxed);
        }
    });
    thread::spawn(move || {
        // About twice the limit.
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let _ = sender.send_to(&vec![0; 1514 - header_bytes], to);
            next += Duration::from_micros(600);
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    });
    wait_for("UDP's rate and the queues'", || {
        let read = || CounterReading::read(|| arrived.load(Ordering::Relaxed));
        let before = read();
        let tcp = senders.measure_mbit(1.0);
        let udp = read().rate_since(&before).relative_to(125e3);
        eprintln!("UDP {udp:.2?} Mbit of 10, TCP {tcp:.2?} Mbit of payload");
        let is_near = |(found, expected): (&f64, f64)| (found * 1514.0 / 1448.0 - expected).abs() < 2.0;
        udp.is_within(9.6, 10.4) && tcp.iter().zip([10.0, 30.0]).all(is_near)
    });
    // Without the limited flow: its class and its filter are removed, and the classes of both queues change their rates.
    let list = interface()
        .reconcile(&desired_queues(&[1.0, 3.0], &BTreeMap::new()), ReplaceableRoots::Restorable)
        .unwrap();
    assert_eq!(list.len(), 4, "{list:?}");
    assert!(
        interface()
            .reconcile(&desired_queues(&[1.0, 3.0], &BTreeMap::new()), ReplaceableRoots::Restorable)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn configure_and_restore_cycles_leave_no_objects() {
    let Some(_pair) = create_pair("cycles") else { return };
    let tc = |line: &str| run_batch(Command::new("tc"), "tc", String::new, line).unwrap();
    for setting in [
        "",
        "qdisc add dev e0 root handle 5: pfifo limit 77",
        "qdisc replace dev e0 root handle 6: bfifo limit 99999",
    ] {
        tc(setting);
        let before = read_qdiscs();
        let cycles = if setting.is_empty() { usize::MAX } else { 5 };
        for seed in seeds(40, 200).take(cycles) {
            // One to eight queues, with weights of 1 to 7.
            let weights: Vec<f64> =
                (0..=seed % 8).map(|queue| ((seed / 8 + queue * (seed / 56 + 1)) % 7 + 1) as f64).collect();
            assert!(
                !interface()
                    .reconcile(&desired_queues(&weights, &BTreeMap::new()), ReplaceableRoots::Restorable)
                    .unwrap()
                    .is_empty(),
                "seed {seed}"
            );
            assert!(interface().restore().unwrap());
        }
        assert_eq!(read_qdiscs(), before);
        assert!(!interface().restore().unwrap());
    }
    let prefix = record_prefix();
    let files = fs::read_dir("/run/weir/agent-queues").unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(files.filter(|name| name.to_str().unwrap().starts_with(&prefix)).count(), 0);
}

/// The prefix of the records of this network namespace.
fn record_prefix() -> String {
    format!("c{}-", weir_agent::namespace::cookie().unwrap())
}

#[test]
fn foreign_objects_are_not_changed() {
    let Some(_pair) = create_pair("others") else { return };
    let tc = |lines: &str| run_batch(Command::new("tc"), "tc", String::new, lines).unwrap();
    // A root that could not be restored is not replaced. Its statistics count packets without a class, and the kernel sends some of
    // its own, so all packets get a class.
    tc(
        "qdisc add dev e0 root handle 9: htb default 1\nclass add dev e0 parent 9: classid 9:1 htb rate 1mbit\n",
    );
    let before = read_qdiscs();
    let refused =
        interface().reconcile(&desired_queues(&[1.0], &BTreeMap::new()), ReplaceableRoots::Restorable);
    assert!(matches!(refused, Err(QueueError::ForeignRoot { ref kind, .. }) if kind == "htb"), "{refused:?}");
    assert_eq!((read_qdiscs(), cleanup().unwrap()), (before, vec![]));
    tc("qdisc del dev e0 root\nqdisc add dev e0 clsact\n\
        filter add dev e0 ingress protocol ip prio 1 u32 match u32 0 0 flowid 1:1\n");
    let read_clsact_filters = || run_tool("tc", &["filter", "show", "dev", "e0", "ingress"]).unwrap();
    let read_foreign_filter =
        || run_tool("tc", &["filter", "show", "dev", "e0", "parent", "7765:", "prio", "9"]).unwrap();
    let before = read_clsact_filters();
    interface()
        .reconcile(&desired_queues(&[1.0, 2.0, 3.0], &BTreeMap::new()), ReplaceableRoots::Restorable)
        .unwrap();
    tc("filter add dev e0 parent 7765: protocol ip prio 9 u32 match ip sport 22 0xffff flowid 7765:100\n\
        class add dev e0 parent 7765:1 classid 7765:2222 htb rate 1mbit\n");
    let filter = read_foreign_filter();
    // Another process damages the agent's objects: only missing, wrong and surplus ones are changed.
    tc(
        "filter del dev e0 parent 7765: protocol ip prio 30565\nclass change dev e0 parent 7765:1 classid 7765:101 htb rate 1mbit\n",
    );
    let list = interface()
        .reconcile(&desired_queues(&[1.0, 2.0], &BTreeMap::new()), ReplaceableRoots::Restorable)
        .unwrap();
    assert!(
        interface()
            .reconcile(&desired_queues(&[1.0, 2.0], &BTreeMap::new()), ReplaceableRoots::Restorable)
            .unwrap()
            .is_empty(),
        "{list:?}"
    );
    assert_eq!((read_clsact_filters(), read_foreign_filter()), (before.clone(), filter));
    assert!(interface().read_queues().unwrap().classes.contains_key(&0x2222));
    // Queues stay after the end of their process. Without a valid record, the kernel's default is restored.
    let mut damaged = 0;
    for file in fs::read_dir("/run/weir/agent-queues").unwrap() {
        let path = file.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with(&record_prefix()) {
            fs::write(path, "{").unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    assert_eq!(cleanup().unwrap(), [interface()]);
    assert_eq!(read_clsact_filters(), before);
    assert!(read_qdiscs().contains("noqueue 0: dev e0 root"), "{}", read_qdiscs());
}

/// Sends small datagrams with the mark of the first queue, and returns the longest of the times until they arrive, without the longest
/// hundredth: a busy machine delays some threads.
fn measure_waits(pair: &NamespacePair) -> Duration {
    const COUNT: usize = 300;
    let socket = pair.run_at_peer(|| UdpSocket::bind("10.9.0.2:0").unwrap()).join().unwrap();
    let to = socket.local_addr().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let began = Instant::now();
    let receiver = thread::spawn(move || {
        let (mut waits, mut buffer) = (Vec::new(), [0; 16]);
        while waits.len() < COUNT && receive(&socket, &mut buffer).is_some() {
            let sent = Duration::from_nanos(u64::from_be_bytes(buffer[..8].try_into().unwrap()));
            waits.push(began.elapsed().saturating_sub(sent));
        }
        waits
    });
    let sender = UdpSocket::bind("10.9.0.1:0").unwrap();
    setsockopt(&sender, sockopt::Ipv4Tos, &i32::from(dscp(0) << 2)).unwrap();
    for _ in 0..COUNT {
        let sent = began.elapsed().as_nanos() as u64;
        sender.send_to(&sent.to_be_bytes(), to).unwrap();
        thread::sleep(Duration::from_millis(10));
    }
    let mut waits = receiver.join().unwrap();
    assert!(waits.len() > COUNT * 9 / 10, "{} of {COUNT} datagrams arrived", waits.len());
    waits.sort();
    waits[waits.len() * 99 / 100]
}

/// Queues are bounded by delay, under both congestion controls. With packets of 64 KiB, 20 ms at 15 Mbit/s were 616 ms.
#[test]
fn small_packets_wait_at_most_40_ms_next_to_16_connections() {
    let Some(pair) = create_pair("wait") else { return };
    for (rate, control) in [("15Mbit", "cubic"), ("15Mbit", "bbr"), ("200Mbit", "cubic"), ("1Gbit", "bbr")] {
        let link = rate.parse().unwrap();
        let max_segments = max_segments(link);
        let segments = Device::read(&interface()).unwrap().limited_segments(max_segments);
        let desired = DesiredQueues::new(link, segments, &Shares::by_weight(&[1.0]), &BTreeMap::new())
            .unwrap()
            .with_max_segments(Some(max_segments));
        interface().reconcile(&desired, ReplaceableRoots::Restorable).unwrap();
        let idle = measure_waits(&pair);
        let senders = start_senders_with(&pair, &[0; 16], control);
        thread::sleep(Duration::from_secs(2));
        let mbit: f64 = senders.measure_mbit(1.0).iter().sum();
        let wait = measure_waits(&pair);
        eprintln!("{rate}, {control}: {wait:.1?} above {idle:.1?} idle, {mbit:.1} Mbit/s of payload");
        assert!(wait < idle + Duration::from_millis(40), "{rate}, {control}: {wait:?} above {idle:?}");
    }
}
