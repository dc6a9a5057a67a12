//! Tests queues of a real kernel, in a pair of namespaces with real traffic. Without the privileges, these tests print that and skip.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::campaign::campaign;
use crate::kernel::Reading;
use crate::pair::{Pair, enter, interface, pair};
use crate::wait::wait_for;
use nix::sys::socket::{setsockopt, sockopt};
use weir_agent::batch::{ask, feed};
use weir_agent::htb::dscp;
use weir_agent::queues::{Desired, Device, Limited, QueueError, Replace, cleanup};

const LINK: f64 = 50.0;

/// The receive buffer, in bytes: enough for the data that arrives while a reading thread is delayed.
const WAITING: usize = 8 << 20;

fn desired(weights: &[f64], limited: &BTreeMap<u16, Limited>) -> Desired {
    let link = format!("{LINK}Mbit").parse().unwrap();
    Desired::new(link, Device::read(&interface()).unwrap().segments, weights, limited).unwrap()
}

/// TCP connections to the other end, one for each queue, that send at full speed.
struct Flood {
    arrived: Vec<Arc<AtomicU64>>,
    stop: Arc<AtomicBool>,
}

fn flood(pair: &Pair, queues: &[usize]) -> Flood {
    let stop = Arc::new(AtomicBool::new(false));
    let connect = |&queue: &usize| {
        let arrived = Arc::new(AtomicU64::new(0));
        let listener = pair.there(|| TcpListener::bind("10.9.0.2:0").unwrap()).join().unwrap();
        let address = listener.local_addr().unwrap();
        let (count, ending) = (Arc::clone(&arrived), Arc::clone(&stop));
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut buffer = vec![0; 1 << 16];
            while !ending.load(Ordering::Relaxed) {
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(bytes) => count.fetch_add(bytes as u64, Ordering::Relaxed),
                };
            }
        });
        let mut stream = TcpStream::connect(address).unwrap();
        setsockopt(&stream, sockopt::Ipv4Tos, &i32::from(dscp(queue) << 2)).unwrap();
        let ending = Arc::clone(&stop);
        thread::spawn(move || {
            let data = vec![0; 1 << 16];
            while !ending.load(Ordering::Relaxed) && stream.write_all(&data).is_ok() {}
        });
        arrived
    };
    Flood { arrived: queues.iter().map(connect).collect(), stop }
}

impl Flood {
    /// The payload that arrives in the next `seconds`, in Mbit/s.
    fn measure(&self, seconds: f64) -> Vec<f64> {
        let now = || -> Vec<u64> { self.arrived.iter().map(|count| count.load(Ordering::Relaxed)).collect() };
        let (before, started) = (now(), Instant::now());
        thread::sleep(Duration::from_secs_f64(seconds));
        let (after, took) = (now(), started.elapsed().as_secs_f64());
        before.iter().zip(after).map(|(before, after)| (after - before) as f64 * 8e-6 / took).collect()
    }
}

impl Drop for Flood {
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

fn queues() -> String {
    ask("tc", &["qdisc", "show"]).unwrap()
}

#[test]
fn shares_follow_changed_weights() {
    let Some(pair) = pair("turn") else { return };
    let before = queues();
    interface().reconcile(&desired(&[1.0, 3.0], &BTreeMap::new()), Replace::Restorable).unwrap();
    let flood = flood(&pair, &[0, 1]);
    let share = |expected: f64| {
        // A busy machine may disturb one measurement. A wrong rate never fits.
        wait_for(&format!("a share of {expected}"), || {
            let found = flood.measure(1.0);
            let total: f64 = found.iter().sum();
            eprintln!("{found:.2?} Mbit of payload, share {:.4}, expected {expected}", found[0] / total);
            let whole = (total * 1514.0 / 1448.0 / LINK - 1.0).abs() < 0.04;
            whole && (found[0] / total - expected).abs() < 0.03
        });
    };
    share(0.25);
    let list = interface().reconcile(&desired(&[3.0, 1.0], &BTreeMap::new()), Replace::Restorable).unwrap();
    assert_eq!(list.len(), 2, "{list:?}");
    share(0.75);
    assert!(
        interface()
            .reconcile(&desired(&[3.0, 1.0], &BTreeMap::new()), Replace::Restorable)
            .unwrap()
            .is_empty()
    );
    drop(flood);
    assert_eq!(cleanup().unwrap(), [interface()]);
    assert_eq!(queues(), before);
}

#[test]
fn a_change_of_weights_loses_no_packet() {
    let Some(pair) = pair("loss") else { return };
    interface().reconcile(&desired(&[1.0, 3.0], &BTreeMap::new()), Replace::Restorable).unwrap();
    let flood = flood(&pair, &[1]);
    let socket = pair.there(|| UdpSocket::bind("10.9.0.2:0").unwrap()).join().unwrap();
    let to = socket.local_addr().unwrap();
    setsockopt(&socket, sockopt::RcvBufForce, &WAITING).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let receiver = thread::spawn(move || {
        let (mut seen, mut buffer) = (Vec::new(), [0; 2048]);
        while let Some(length) = receive(&socket, &mut buffer) {
            // The last packet is empty.
            if length == 0 {
                break;
            }
            assert_eq!(length, 500);
            seen.push(u32::from_be_bytes(buffer[..4].try_into().unwrap()));
        }
        seen
    });
    let stop = Arc::new(AtomicBool::new(false));
    let ending = Arc::clone(&stop);
    let name = pair.names[0].clone();
    let sender = thread::spawn(move || {
        enter(&name);
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        setsockopt(&socket, sockopt::Ipv4Tos, &i32::from(dscp(0) << 2)).unwrap();
        let mut sent = 0u32;
        let mut packet = [0; 500];
        while !ending.load(Ordering::Relaxed) {
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
            interface().reconcile(&desired(&weights, &BTreeMap::new()), Replace::Restorable).unwrap().len(),
            2
        );
    }
    stop.store(true, Ordering::Relaxed);
    let (sent, seen) = (sender.join().unwrap(), receiver.join().unwrap());
    drop(flood);
    eprintln!("{sent} packets over 100 changes of weights, {} arrived", seen.len());
    assert!(sent > 100);
    assert_eq!(seen, (0..sent).collect::<Vec<_>>());
}

#[test]
fn limited_flow_gets_its_rate_and_queues_share_the_rest() {
    let Some(pair) = pair("udp") else { return };
    let socket = pair.there(|| UdpSocket::bind("10.9.0.2:0").unwrap()).join().unwrap();
    let sender = UdpSocket::bind("10.9.0.1:0").unwrap();
    let v4 = |address: SocketAddr| match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(_) => unreachable!("it was bound to another"),
    };
    setsockopt(&socket, sockopt::RcvBufForce, &WAITING).unwrap();
    let (from, to) = (v4(sender.local_addr().unwrap()), v4(socket.local_addr().unwrap()));
    let limited = BTreeMap::from([(3, Limited { from, to, rate: "10Mbit".parse().unwrap() })]);
    interface().reconcile(&desired(&[1.0, 3.0], &limited), Replace::Restorable).unwrap();
    assert!(interface().reconcile(&desired(&[1.0, 3.0], &limited), Replace::Restorable).unwrap().is_empty());
    let flood = flood(&pair, &[0, 1]);
    let stop = Arc::clone(&flood.stop);
    let arrived = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&arrived);
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Some(length) = receive(&socket, &mut buffer) {
            // With the headers of UDP, IP and Ethernet.
            count.fetch_add(length as u64 + 42, Ordering::Relaxed);
        }
    });
    thread::spawn(move || {
        // About twice the limit.
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let _ = sender.send_to(&[0; 1472], to);
            next += Duration::from_micros(600);
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    });
    wait_for("UDP's rate and the queues'", || {
        let read = || Reading::of(|| arrived.load(Ordering::Relaxed));
        let before = read();
        let tcp = flood.measure(1.0);
        let udp = read().since(&before).of(125e3);
        eprintln!("UDP {udp:.2?} Mbit of 10, TCP {tcp:.2?} Mbit of payload");
        let fits = |(found, expected): (&f64, f64)| (found * 1514.0 / 1448.0 - expected).abs() < 2.0;
        udp.is_within(9.6, 10.4) && tcp.iter().zip([10.0, 30.0]).all(fits)
    });
    // Without the limited flow: one class, one queue and one filter are removed, and two classes change their rates.
    let list = interface().reconcile(&desired(&[1.0, 3.0], &BTreeMap::new()), Replace::Restorable).unwrap();
    assert_eq!(list.len(), 5, "{list:?}");
    assert!(
        interface()
            .reconcile(&desired(&[1.0, 3.0], &BTreeMap::new()), Replace::Restorable)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn configure_and_restore_cycles_leave_no_objects() {
    let Some(_pair) = pair("cycles") else { return };
    let tc = |line: &str| feed(Command::new("tc"), "tc", String::new, line).unwrap();
    for setting in [
        "",
        "qdisc add dev e0 root handle 5: pfifo limit 77",
        "qdisc replace dev e0 root handle 6: bfifo limit 99999",
    ] {
        tc(setting);
        let before = queues();
        for cycle in 0..if setting.is_empty() { campaign(40, 200) } else { 5 } {
            let weights = [1.0, 3.0, f64::from(cycle % 7 + 1)];
            assert!(
                !interface()
                    .reconcile(&desired(&weights, &BTreeMap::new()), Replace::Restorable)
                    .unwrap()
                    .is_empty()
            );
            assert!(interface().restore().unwrap());
        }
        assert_eq!(queues(), before);
        assert!(!interface().restore().unwrap());
    }
    let own = records();
    let files = fs::read_dir("/run/weir/agent-queues").unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(files.filter(|name| name.to_str().unwrap().starts_with(&own)).count(), 0);
}

/// The prefix of the records of this network namespace.
fn records() -> String {
    format!("c{}-", weir_agent::namespace::cookie().unwrap())
}

#[test]
fn foreign_objects_are_not_changed() {
    let Some(_pair) = pair("others") else { return };
    let tc = |lines: &str| feed(Command::new("tc"), "tc", String::new, lines).unwrap();
    // A root that could not be restored is not replaced. Its statistics count packets without a class, such as those that the kernel sends
    // now and then, so all packets get a class.
    tc(
        "qdisc add dev e0 root handle 9: htb default 1\nclass add dev e0 parent 9: classid 9:1 htb rate 1mbit\n",
    );
    let before = queues();
    let refused = interface().reconcile(&desired(&[1.0], &BTreeMap::new()), Replace::Restorable);
    assert!(matches!(refused, Err(QueueError::Root { ref kind, .. }) if kind == "htb"), "{refused:?}");
    assert_eq!((queues(), cleanup().unwrap()), (before, vec![]));
    tc("qdisc del dev e0 root\nqdisc add dev e0 clsact\n\
        filter add dev e0 ingress protocol ip prio 1 u32 match u32 0 0 flowid 1:1\n");
    let clsact = || ask("tc", &["filter", "show", "dev", "e0", "ingress"]).unwrap();
    let mine = || ask("tc", &["filter", "show", "dev", "e0", "parent", "7765:", "prio", "9"]).unwrap();
    let before = clsact();
    interface().reconcile(&desired(&[1.0, 2.0, 3.0], &BTreeMap::new()), Replace::Restorable).unwrap();
    tc("filter add dev e0 parent 7765: protocol ip prio 9 u32 match ip sport 22 0xffff flowid 7765:100\n\
        class add dev e0 parent 7765:1 classid 7765:2222 htb rate 1mbit\n");
    let filter = mine();
    // Another process damages the agent's objects: only missing, wrong and surplus ones are changed.
    tc(
        "filter del dev e0 parent 7765: protocol ip prio 30565\nclass change dev e0 parent 7765:1 classid 7765:101 htb rate 1mbit\n",
    );
    let list = interface().reconcile(&desired(&[1.0, 2.0], &BTreeMap::new()), Replace::Restorable).unwrap();
    assert!(
        interface()
            .reconcile(&desired(&[1.0, 2.0], &BTreeMap::new()), Replace::Restorable)
            .unwrap()
            .is_empty(),
        "{list:?}"
    );
    assert_eq!((clsact(), mine()), (before.clone(), filter));
    assert!(interface().read().unwrap().classes.contains_key(&0x2222));
    // Queues stay after the end of their process. Without a valid record, the kernel's default is restored.
    let mut damaged = 0;
    for file in fs::read_dir("/run/weir/agent-queues").unwrap() {
        let path = file.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with(&records()) {
            fs::write(path, "{").unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    assert_eq!(cleanup().unwrap(), [interface()]);
    assert_eq!(clsact(), before);
    assert!(queues().contains("noqueue 0: dev e0 root"), "{}", queues());
}
