//! Tests the rates at which connections of unmodified programs start, in a pair of namespaces. Without the privileges or the compiler,
//! these tests print that and skip.

use std::io::Write;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use weir_agent::traffic::{
    ApplicationId, ConnectionEnds, MIN_PACING_RATE, Rule, SocketRates, Traffic, TrafficError, cleanup,
};
use weir_core::units::Rate;

use crate::kernel::acked_bytes;
use crate::namespace_pair::{NamespacePair, create_pair, interface};
use crate::programs::start_receiver;
use crate::socket_leases::{rate, set_rate};
use crate::wait::wait_for;

const LEASE: Duration = Duration::from_secs(30);

/// The address of the other end.
const PEER: &str = "10.9.0.2";

/// A pair, the port of a receiver at its other end, and the traffic of the application of that port; none if this machine does not support
/// it.
fn start(test: &str) -> Option<(NamespacePair, u16, Traffic)> {
    let pair = create_pair(test)?;
    let port = start_receiver(&pair, 0).0.port();
    match Traffic::start(&rules(&[port]), &[interface()]) {
        Err(TrafficError::NotBuilt(why)) => {
            eprintln!("{test} skips, since the programs were not built: {why}");
            None
        }
        traffic => Some((pair, port, traffic.unwrap())),
    }
}

fn rules(ports: &[u16]) -> Vec<Rule> {
    ports.iter().map(|port| format!("p{port}=port/{port}").parse().unwrap()).collect()
}

fn application(traffic: &Traffic) -> ApplicationId {
    traffic.applications().next().unwrap().1
}

fn start_rate(bytes_per_second: u64) -> Option<Rate> {
    Some(Rate::new(bytes_per_second as f64).unwrap())
}

fn peer() -> IpAddr {
    PEER.parse().unwrap()
}

/// Sends some data, and waits until the connection has a pacing rate: the kernel applies a changed rate at an acknowledgement.
fn wait_for_rate(stream: &mut TcpStream, expected: u64) {
    wait_for(&format!("a rate of {expected}"), || {
        stream.write_all(&[0; 100]).unwrap();
        rate(stream) == expected
    });
}

#[test]
fn connections_without_another_rate_have_the_start_rate() {
    let Some((_pair, port, mut traffic)) = start("startown") else { return };
    let id = application(&traffic);
    let connect = || TcpStream::connect((PEER, port)).unwrap();
    traffic.set_start_rate(id, peer(), start_rate(2_000_000), LEASE).unwrap();
    let mut first = connect();
    wait_for_rate(&mut first, 2_000_000);
    wait_for_rate(&mut connect(), 2_000_000);
    // A connection before its first data has no rate: the start rate of that time could have ended when it sends.
    let mut idle = connect();
    assert_eq!(rate(&idle), u64::MAX);
    traffic.set_start_rate(id, peer(), start_rate(5_000_000), LEASE).unwrap();
    wait_for_rate(&mut idle, 5_000_000);
    // Another address has another rate.
    let mut other = TcpStream::connect(("fd09::2", port)).unwrap();
    other.write_all(&[0; 100]).unwrap();
    wait_for("an acknowledgement", || acked_bytes(&other) >= 100);
    assert_eq!(rate(&other), u64::MAX);

    // The rate of one connection replaces the start rate, until it is removed.
    let ends = ConnectionEnds { local: first.local_addr().unwrap(), remote: first.peer_addr().unwrap() };
    assert!(traffic.set_pacing_rate(ends, start_rate(3_000_000), LEASE).unwrap());
    wait_for_rate(&mut first, 3_000_000);
    assert!(traffic.set_pacing_rate(ends, None, LEASE).unwrap());
    wait_for_rate(&mut first, 5_000_000);

    // No rate is below the minimum.
    traffic.set_start_rate(id, peer(), start_rate(1), LEASE).unwrap();
    wait_for_rate(&mut first, u64::from(MIN_PACING_RATE));
    traffic.set_start_rate(id, peer(), None, LEASE).unwrap();
    wait_for_rate(&mut first, u64::MAX);
    let refused = traffic.set_start_rate(id, peer(), start_rate(1), Duration::ZERO);
    assert!(matches!(refused, Err(TrafficError::InvalidLease(_))), "{refused:?}");
    assert_eq!(traffic.stop().unwrap(), 0);
}

#[test]
fn accepted_connections_start_at_the_start_rate() {
    let test = "startaccept";
    let Some(pair) = create_pair(test) else { return };
    let listener = TcpListener::bind("10.9.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut traffic = match Traffic::start(&rules(&[address.port()]), &[interface()]) {
        Err(TrafficError::NotBuilt(why)) => {
            return eprintln!("{test} skips, since the programs were not built: {why}");
        }
        traffic => traffic.unwrap(),
    };
    let id = application(&traffic);
    traffic.set_start_rate(id, peer(), start_rate(2_000_000), LEASE).unwrap();
    let _client = pair.run_at_peer(move || TcpStream::connect(address).unwrap()).join().unwrap();
    wait_for_rate(&mut listener.accept().unwrap().0, 2_000_000);
    assert_eq!(traffic.stop().unwrap(), 0);
}

#[test]
fn start_rate_ends_with_its_lease_and_keeps_the_rate_of_the_program() {
    let Some((_pair, port, mut traffic)) = start("startlease") else { return };
    let id = application(&traffic);
    let lease = Duration::from_secs(1);
    traffic.set_start_rate(id, peer(), start_rate(2_000_000), lease).unwrap();
    let mut stream = TcpStream::connect((PEER, port)).unwrap();
    wait_for_rate(&mut stream, 2_000_000);
    wait_for_rate(&mut stream, u64::MAX);
    // The program sets its rate after the connection has started: a lower one counts, and a higher one is its own at the end.
    for (own_rate, ordered_rate) in [(1_000_000, 1_000_000), (5_000_000, 3_000_000)] {
        traffic.set_start_rate(id, peer(), start_rate(2_000_000), LEASE).unwrap();
        let mut stream = TcpStream::connect((PEER, port)).unwrap();
        wait_for_rate(&mut stream, 2_000_000);
        set_rate(&stream, own_rate);
        traffic.set_start_rate(id, peer(), start_rate(3_000_000), LEASE).unwrap();
        wait_for_rate(&mut stream, ordered_rate);
        traffic.set_start_rate(id, peer(), None, LEASE).unwrap();
        wait_for_rate(&mut stream, own_rate);
    }
    assert_eq!(traffic.stop().unwrap(), 0);
}

/// The program sets a rate while the ordered rate does not change.
#[test]
fn end_of_all_rates_keeps_the_rates_of_programs() {
    let Some((_pair, port, mut traffic)) = start("startrelease") else { return };
    let id = application(&traffic);
    traffic.set_start_rate(id, peer(), start_rate(2_000_000), LEASE).unwrap();
    let mut streams = [1_000_000, 5_000_000, u64::MAX].map(|own_rate| {
        let mut stream = TcpStream::connect((PEER, port)).unwrap();
        wait_for_rate(&mut stream, 2_000_000);
        (stream, own_rate)
    });
    for (stream, own_rate) in &mut streams[..2] {
        set_rate(stream, *own_rate);
    }
    assert_eq!(traffic.stop().unwrap(), 0);
    for (stream, own_rate) in &streams {
        assert_eq!(rate(stream), *own_rate);
    }
}

/// A program hands over a socket whose connection is observed.
#[test]
fn own_rate_of_a_limited_socket_is_known() {
    let Some((_pair, port, mut traffic)) = start("startsocket") else { return };
    let id = application(&traffic);
    traffic.set_start_rate(id, peer(), start_rate(2_000_000), LEASE).unwrap();
    for own_rate in [u64::MAX, 1_000_000, 5_000_000] {
        let mut stream = TcpStream::connect((PEER, port)).unwrap();
        let rates = |stream: &TcpStream| traffic.socket_rates(&stream.try_clone().unwrap().into());
        assert_eq!(rates(&stream), None);
        set_rate(&stream, own_rate);
        let applied = own_rate.min(2_000_000);
        wait_for("a rate", || {
            stream.write_all(&[0; 100]).unwrap();
            rates(&stream) == Some(SocketRates { applied, own: own_rate })
        });
        assert_eq!(rate(&stream), applied);
    }
    assert_eq!(traffic.stop().unwrap(), 0);
}

/// As after an upgrade from a version without start rates, whose agent was killed.
#[test]
fn cleanup_ends_rates_where_the_map_of_start_rates_is_missing() {
    let Some((_pair, port, mut traffic)) = start("startupgrade") else { return };
    let mut stream = TcpStream::connect((PEER, port)).unwrap();
    let ends = ConnectionEnds { local: stream.local_addr().unwrap(), remote: stream.peer_addr().unwrap() };
    assert!(traffic.set_pacing_rate(ends, Some(Rate::new(2e6).unwrap()), LEASE).unwrap());
    wait_for_rate(&mut stream, 2_000_000);
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    let map = format!("/sys/fs/bpf/weir/{namespace}-2/starts");
    drop(traffic);
    std::fs::remove_file(&map).unwrap();
    // The next agent creates the map, and keeps the connection.
    let traffic = Traffic::start(&rules(&[port]), &[interface()]).unwrap();
    assert!(std::fs::exists(&map).unwrap());
    assert_eq!(traffic.connections().unwrap()[0].1.pacing_rate, Some(2_000_000));
    drop(traffic);
    std::fs::remove_file(&map).unwrap();
    assert!(cleanup().unwrap());
    assert_eq!(rate(&stream), u64::MAX);
}
