//! Tests the counts and limits of UDP by the BPF programs, in a pair of namespaces. Without the privileges or the compiler, these tests
//! print that and skip.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use crate::group::Group;
use crate::kernel::{Reading, Speed};
use crate::pair::{Pair, interface};
use crate::programs::{Python, rules, start, there};
use crate::wait::wait_for;
use weir_agent::traffic::Traffic;
use weir_core::units::Rate;
use weir_proto::{Mark, Way};

/// The sending rate, in bytes per second.
const SENT: f64 = 5e6;

const LONG: Duration = Duration::from_secs(60);

/// The packets from this end to the other with a mark.
fn way(mark: u8) -> Way {
    Way { from: [10, 9, 0, 1].into(), to: [10, 9, 0, 2].into(), mark: Mark::new(mark).unwrap() }
}

fn rate(bytes: f64) -> Rate {
    Rate::new(bytes).unwrap()
}

/// Starts counting at the other end, and opens a port there.
fn counting(pair: &Pair) -> (Traffic, UdpSocket) {
    let started = pair.there(|| {
        let mut traffic = Traffic::start(&[], &[interface()]).unwrap();
        assert!(traffic.throttling().is_none());
        traffic.throttle(true).unwrap();
        (traffic, UdpSocket::bind("10.9.0.2:0").unwrap())
    });
    started.join().unwrap()
}

/// The bytes that have arrived.
fn arrived(counting: &mut Traffic, way: Way) -> u64 {
    let list = counting.throttling().unwrap().arrived().unwrap();
    list.iter().find(|arrived| arrived.way == way).map_or(0, |arrived| arrived.bytes)
}

/// Waits until the arriving fraction of the sent bytes is within bounds.
fn comes_to(what: &str, counting: &mut Traffic, low: f64, high: f64) {
    let mut share = || -> Speed {
        let before = Reading::of(|| arrived(counting, way(1)));
        thread::sleep(Duration::from_secs(1));
        Reading::of(|| arrived(counting, way(1))).since(&before).of(SENT)
    };
    wait_for(what, || {
        let share = share();
        eprintln!("{what}: {share:.3?} of what is sent");
        share.is_within(low, high)
    });
}

#[test]
fn packets_count_as_they_are_on_the_wire() {
    let test = "arrivals";
    let group = Group::new(test);
    if !there(test, "python3") {
        return;
    }
    let Some((pair, traffic)) = start(test, &[(&group, 1)]) else { return };
    let (mut counting, sink) = counting(&pair);
    // Single packets, batches of ten that the card splits, and datagrams in three fragments; then packets that do not count.
    let text = "
import socket, sys
port = int(sys.argv[1])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(('10.9.0.2', port))
for _ in range(50):
    s.send(bytes(1400))
for _ in range(50):
    s.send(bytes(4000))
s.setsockopt(socket.IPPROTO_UDP, 103, 1400)
for _ in range(50):
    s.send(bytes(14000))
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.sendto(bytes(1400), ('fd09::2', port))
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
s.connect_ex(('10.9.0.2', port))
";
    let port = [sink.local_addr().unwrap().port().to_string()];
    Python::start(&group, text, &port).end();
    let expected = 50 * (1442 + (2 * 1514 + 1082) + 14_420);
    wait_for("all packets", || arrived(&mut counting, way(1)) >= expected);
    let throttling = counting.throttling().unwrap();
    let all = throttling.arrived().unwrap();
    assert_eq!((all.len(), all[0].way, all[0].bytes), (1, way(1), expected));

    // A removed count starts again at zero. Removing a count that does not exist is no error.
    throttling.forget(way(1)).unwrap();
    throttling.forget(way(2)).unwrap();
    assert_eq!(throttling.arrived().unwrap(), []);
    // Packets without a class are not counted.
    let own = UdpSocket::bind("10.9.0.1:0").unwrap();
    own.send_to(&[0; 1400], sink.local_addr().unwrap()).unwrap();
    let text = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(bytes(1400), ('10.9.0.2', int(sys.argv[1])))
";
    Python::start(&group, text, &port).end();
    wait_for("a packet", || arrived(&mut counting, way(1)) > 0);
    let all = counting.throttling().unwrap().arrived().unwrap();
    assert_eq!((all.len(), all[0].bytes), (1, 1442));
    counting.stop().unwrap();
    traffic.stop().unwrap();
}

#[test]
fn udp_limit_holds_for_its_lease_and_path() {
    let test = "limits";
    let group = Group::new(test);
    if !there(test, "python3") {
        return;
    }
    let Some((pair, mut traffic)) = start(test, &[(&group, 1)]) else { return };
    let (mut counting, sink) = counting(&pair);
    let text = "
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(('10.9.0.2', int(sys.argv[1])))
due = time.monotonic()
while True:
    for _ in range(5):
        try:
            s.send(bytes(1400))
        except OSError:
            pass # nobody is there any more
    due = max(due + 5 * 1442 / 5e6, time.monotonic() - 0.05)
    time.sleep(max(0, due - time.monotonic()))
";
    let _python = Python::start(&group, text, &[sink.local_addr().unwrap().port().to_string()]);
    traffic.throttle(true).unwrap();
    traffic.throttle(true).unwrap();
    let limits = traffic.throttling().unwrap();
    // Limits for other packets.
    limits.limit(way(2), rate(1e3), LONG).unwrap();
    limits.limit(Way { to: [10, 9, 0, 3].into(), ..way(1) }, rate(1e3), LONG).unwrap();
    comes_to("free", &mut counting, 0.9, 1.05);
    limits.limit(way(1), rate(0.4 * SENT), LONG).unwrap();
    comes_to("limited", &mut counting, 0.38, 0.41);
    // Repeating a limit does not let more packets through.
    for _ in 0..100 {
        limits.limit(way(1), rate(0.2 * SENT), LONG).unwrap();
    }
    comes_to("limited to less", &mut counting, 0.19, 0.205);
    // A packet that takes minutes at such a limit does not delay packets under the next limit.
    limits.limit(way(1), rate(1.0), LONG).unwrap();
    comes_to("limited to nothing", &mut counting, 0.0, 0.01);
    limits.limit(way(1), rate(0.4 * SENT), LONG).unwrap();
    comes_to("limited to more", &mut counting, 0.38, 0.41);
    limits.free(way(1)).unwrap();
    limits.free(way(1)).unwrap();
    comes_to("free again", &mut counting, 0.9, 1.05);

    // The agent is killed: the limit ends with its lease.
    let lease = Duration::from_secs(4);
    limits.limit(way(1), rate(0.1 * SENT), lease).unwrap();
    let limited = Instant::now();
    drop(traffic);
    let before = Reading::of(|| arrived(&mut counting, way(1)));
    thread::sleep(Duration::from_secs(1));
    let share = Reading::of(|| arrived(&mut counting, way(1))).since(&before).of(SENT);
    assert!(limited.elapsed() > lease || share.may_be_under(0.15), "{share:?}");
    comes_to("after its lease", &mut counting, 0.9, 1.05);

    // The next agent has no limit until it sets one.
    let mut traffic = Traffic::start(&rules(&[(&group, 1)]), &[interface()]).unwrap();
    assert!(traffic.throttling().is_none());
    traffic.throttle(true).unwrap();
    traffic.throttling().unwrap().limit(way(1), rate(0.4 * SENT), LONG).unwrap();
    comes_to("limited by the next agent", &mut counting, 0.38, 0.41);
    traffic.throttle(false).unwrap();
    assert!(traffic.throttling().is_none());
    comes_to("not wanted", &mut counting, 0.9, 1.05);
    counting.stop().unwrap();
    traffic.stop().unwrap();
}
