use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_tcp_congestion;
use weir_agent::htb::max_segments;
use weir_agent::queues::{DesiredQueues, Device, Interface, ReplaceableRoots, Shares};
use weir_core::units::Rate;
use weir_lab::DelayLine;
use weir_lab::delay_line::{End, PathSettings, Schedule};
use weir_testbed::{Network, testing};

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 1, 0, 2)];
const DELAY: Duration = Duration::from_millis(10);

fn path(rate: Rate, loss: f64) -> PathSettings {
    let (delay, rate) = (Schedule::constant(DELAY), Schedule::constant(rate));
    PathSettings { delay, rate, queue: Duration::from_millis(50), loss, seed: 7 }
}

/// Joins nodes `a` and `b`.
fn join(network: &Network, path: &PathSettings) -> DelayLine {
    let end = |node, address| End {
        namespace: network.namespace(node),
        device: "wan0".to_owned(),
        address,
        prefix: 24,
    };
    let [a, b] = [end("a", ADDRESSES[0]), end("b", ADDRESSES[1])];
    DelayLine::start([&a, &b], [path.clone(), path.clone()]).unwrap()
}

/// Sends `data` from `a` to `b`, and returns what arrived, how long connecting took, and how long connecting and the transfer took.
fn transfer(network: &Network, data: &[u8]) -> (Vec<u8>, Duration, Duration) {
    transfer_under(network, data, "cubic")
}

/// The same under a congestion control.
fn transfer_under(network: &Network, data: &[u8], control: &str) -> (Vec<u8>, Duration, Duration) {
    let listen = || TcpListener::bind((ADDRESSES[1], 0)).unwrap();
    let listener = network.run_inside("b", listen).unwrap();
    let address = listener.local_addr().unwrap();
    let started = Instant::now();
    let send = || {
        let mut stream = TcpStream::connect(address).unwrap();
        let connected = started.elapsed();
        set_tcp_congestion(&stream, control).unwrap();
        stream.write_all(data).unwrap();
        connected
    };
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut arrived = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut arrived).unwrap();
            (arrived, started.elapsed())
        });
        let connected = network.run_inside("a", send).unwrap();
        let (arrived, duration) = receiver.join().unwrap();
        (arrived, connected, duration)
    })
}

#[test]
fn delay_line_delays_and_limits_the_rate() {
    let Some(network) = testing::network("rate", &["a", "b"]) else { return };
    let line = join(&network, &path("40Mbit".parse().unwrap(), 0.0));
    let (arrived, connected, duration) = transfer(&network, &vec![1; 5_000_000]);
    assert_eq!(arrived.len(), 5_000_000);
    assert!(connected >= 2 * DELAY, "connecting took {connected:?}");
    // 5 MB take 1 s at 40 Mbit/s.
    assert!(duration >= Duration::from_millis(900), "the transfer took {duration:?}");
    let report = line.stop().unwrap();
    assert_eq!(report.paths.map(|path| path.lost), [0, 0]);
    // The segments of 5 MB, and no packet of many segments counted as one.
    assert!(report.paths[0].forwarded >= 3_400, "{report:?}");
}

/// The agent's queue (20 ms) is long enough for one connection with an RTT of 10 ms.
#[test]
fn one_connection_borrows_a_whole_link() {
    let Some(network) = testing::network("borrow", &["a", "b"]) else { return };
    let delay = Schedule::constant(Duration::from_millis(5));
    let _line = join(&network, &PathSettings { delay, ..path("4Gbit".parse().unwrap(), 0.0) });
    for (rate, bytes, control) in
        [("15Mbit", 10 << 20, "cubic"), ("15Mbit", 10 << 20, "bbr"), ("200Mbit", 160 << 20, "cubic")]
    {
        let link: Rate = rate.parse().unwrap();
        let configure = || {
            let interface: Interface = "wan0".parse().unwrap();
            let segments = Device::read(&interface).unwrap().limited_segments(max_segments(link));
            // The connection has no class, so it borrows 95 % of the link.
            let shares = Shares::by_weight(&[1.0, 1.0]);
            let desired = DesiredQueues::new(link, segments, &shares, &BTreeMap::new()).unwrap();
            interface
                .reconcile(&desired.with_max_segments(Some(max_segments(link))), ReplaceableRoots::Restorable)
                .unwrap();
        };
        network.run_inside("a", configure).unwrap();
        let (.., duration) = transfer_under(&network, &vec![1; bytes], control);
        let payload = bytes as f64 / duration.as_secs_f64() / link.get();
        eprintln!("{rate}, {control}: {payload:.3} of the link");
        assert!(payload * 1514.0 / 1448.0 > 0.95, "{rate}, {control}: {payload:.3} of the link in payload");
    }
}

#[test]
fn lost_segments_leave_the_rest_of_their_packet_intact() {
    let Some(network) = testing::network("loss", &["a", "b"]) else { return };
    let line = join(&network, &path("400Mbit".parse().unwrap(), 0.01));
    let data: Vec<u8> = (0..4_000_000u32).flat_map(u32::to_le_bytes).collect();
    let (arrived, ..) = transfer(&network, &data);
    assert!(arrived == data, "{} of {} bytes arrived unmodified", arrived.len(), data.len());
    let [forward, _] = line.stop().unwrap().paths;
    assert!(forward.lost > 50, "{forward:?}");
    // TCP would repair wrong checksums as it repairs losses.
    assert_eq!(network.run_inside("b", checksum_errors).unwrap(), 0);
}

/// The segments with a wrong checksum that arrived in the thread's namespace.
fn checksum_errors() -> u64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = statistics.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let column = names.split(' ').position(|name| name == "InCsumErrors").unwrap();
    values.split(' ').nth(column).unwrap().parse().unwrap()
}

#[test]
fn delay_line_ends_when_a_device_is_removed() {
    let Some(network) = testing::network("gone", &["a", "b"]) else { return };
    let line = join(&network, &path(Rate::GBIT, 0.0));
    assert!(line.is_running());
    network.run_ip("a", "link del wan0\n").unwrap();
    let started = Instant::now();
    while line.is_running() {
        assert!(started.elapsed() < Duration::from_secs(20), "the delay line runs");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(line.stop().is_err());
}
