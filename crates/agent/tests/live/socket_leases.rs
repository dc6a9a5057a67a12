//! Tests that the kernel ends the rates of sockets after their lease, without a process. Without the privileges or the compiler, these
//! tests print that and skip.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::socket::sockopt::{GetStruct, SetStruct};
use nix::sys::socket::{getsockopt, setsockopt};
use weir_agent::traffic::{
    ConnectionEnds, Rule, SocketLeases, Traffic, TrafficError, cleanup, monotonic_now,
};
use weir_core::units::Rate;

use crate::kernel::acked_bytes;
use crate::namespace_pair::{NamespacePair, create_pair, interface};
use crate::programs::start_receiver;
use crate::wait::wait_for;

#[derive(Clone, Copy)]
struct MaxPacing;

nix::getsockopt_impl!(MaxPacing, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, u64, GetStruct<u64>);
nix::setsockopt_impl!(MaxPacing, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, u64, SetStruct<u64>);

/// A destination option for each packet.
#[derive(Clone, Copy)]
struct DestinationOptions;

nix::setsockopt_impl!(
    DestinationOptions,
    libc::IPPROTO_IPV6,
    libc::IPV6_DSTOPTS,
    [u8; 8],
    SetStruct<[u8; 8]>
);

/// Padding (RFC 8200, section 4.2).
const PADDING: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];

/// The rates of the program and of the order, in bytes per second.
const OWN_RATE: u64 = 5_000_000;
const ORDERED_RATE: u64 = 50_000;

const LEASE: Duration = Duration::from_millis(700);

fn start_leases(test: &str) -> Option<(NamespacePair, SocketLeases)> {
    let pair = create_pair(test)?;
    match SocketLeases::start() {
        Err(TrafficError::NotBuilt(why)) => {
            eprintln!("{test} skips, since the programs were not built: {why}");
            None
        }
        leases => Some((pair, leases.unwrap())),
    }
}

fn connect(pair: &NamespacePair) -> TcpStream {
    TcpStream::connect(("10.9.0.2", start_receiver(pair, 0).0.port())).unwrap()
}

/// The pacing rate of a socket in bytes per second; `u64::MAX` without one.
pub fn rate(stream: &TcpStream) -> u64 {
    getsockopt(stream, MaxPacing).unwrap()
}

pub fn set_rate(stream: &TcpStream, rate: u64) {
    setsockopt(stream, MaxPacing, &rate).unwrap();
}

/// Gives a socket the ordered rate, with a record.
fn order_rate(leases: &mut SocketLeases, stream: &TcpStream) {
    assert_eq!(leases.add(stream.as_fd(), rate(stream)).unwrap(), OWN_RATE);
    set_rate(stream, ORDERED_RATE);
}

/// Writes to a connection until it is closed.
fn keep_sending(stream: &TcpStream) {
    let mut stream = stream.try_clone().unwrap();
    thread::spawn(move || while stream.write_all(&[0; 1 << 14]).is_ok() {});
}

#[test]
fn kernel_ends_rates_of_busy_sockets_with_the_lease() {
    let Some((pair, mut leases)) = start_leases("leaseend") else { return };
    let [recorded, foreign] = [connect(&pair), connect(&pair)];
    set_rate(&recorded, OWN_RATE);
    order_rate(&mut leases, &recorded);
    set_rate(&foreign, ORDERED_RATE);
    leases.renew(monotonic_now() + LEASE).unwrap();
    leases.take_sweep().expect("a new record").run().unwrap();
    assert!(leases.take_sweep().is_none());
    let began = Instant::now();
    [&recorded, &foreign].into_iter().for_each(keep_sending);
    // No process of the agent is left: the maps and programs stay.
    drop(leases);
    while began.elapsed() < LEASE - Duration::from_millis(100) {
        assert_eq!(rate(&recorded), ORDERED_RATE);
        thread::sleep(Duration::from_millis(20));
    }
    while rate(&recorded) != OWN_RATE {
        assert!(began.elapsed() < LEASE + Duration::from_secs(2), "the rate did not end");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(rate(&foreign), ORDERED_RATE, "a socket without a record has changed");
    [recorded, foreign].iter().for_each(|stream| stream.shutdown(Shutdown::Both).unwrap());
}

#[test]
fn next_agent_and_cleanup_end_rates_of_idle_sockets() {
    let Some((pair, mut leases)) = start_leases("leaseidle") else { return };
    let streams = [(); 3].map(|()| connect(&pair));
    let [handed_over, forgotten, last] = &streams;
    streams.iter().for_each(|stream| set_rate(stream, OWN_RATE));
    [handed_over, forgotten].into_iter().for_each(|stream| order_rate(&mut leases, stream));
    leases.renew(monotonic_now() + LEASE).unwrap();
    drop(leases);
    assert_eq!(rate(forgotten), ORDERED_RATE);

    let mut leases = SocketLeases::start().unwrap();
    // A program hands one of the sockets over to the next agent, which finds the program's own rate in the record.
    assert_eq!(leases.add(handed_over.as_fd(), ORDERED_RATE).unwrap(), OWN_RATE);
    leases.renew(monotonic_now() + Duration::from_secs(30)).unwrap();
    leases.take_sweep().expect("a new agent").run().unwrap();
    assert_eq!([rate(handed_over), rate(forgotten)], [ORDERED_RATE; 2]);
    thread::sleep(LEASE);
    leases.take_sweep().expect("the lease of the first agent has ended").run().unwrap();
    assert_eq!([rate(handed_over), rate(forgotten)], [ORDERED_RATE, OWN_RATE]);
    order_rate(&mut leases, last);
    assert!(matches!(cleanup(), Err(TrafficError::Busy)));
    drop(leases);
    assert!(cleanup().unwrap());
    assert_eq!([rate(handed_over), rate(last)], [OWN_RATE; 2]);
    assert!(!cleanup().unwrap());
}

/// A paused socket sends no new data until its pause or its lease ends, and its connection stays alive.
#[test]
fn paused_sockets_hold_their_data_until_they_resume_or_the_lease_ends() {
    let Some((pair, mut leases)) = start_leases("leasepause") else { return };
    for (host, has_extension) in [("10.9.0.2", false), ("fd09::2", false), ("fd09::2", true)] {
        let [paused, free] =
            [(); 2].map(|()| TcpStream::connect((host, start_receiver(&pair, 0).0.port())).unwrap());
        if has_extension {
            for stream in [&paused, &free] {
                setsockopt(stream, DestinationOptions, &PADDING).unwrap();
            }
        }
        leases.renew(monotonic_now() + Duration::from_secs(60)).unwrap();
        leases.pause(&paused.as_fd().try_clone_to_owned().unwrap()).unwrap();
        [&paused, &free].into_iter().for_each(keep_sending);
        // The kernel tries again after 0.2, 0.6, 1.4 and 3 s. The first packet and that after 3 s pass.
        wait_for("a second packet", || acked_bytes(&paused) > 2000);
        let packets = acked_bytes(&paused);
        assert!(packets < 5000, "{packets} bytes of a paused socket");
        assert!(acked_bytes(&free) > 1_000_000);

        let socket = paused.as_fd().try_clone_to_owned().unwrap();
        let held = leases.held_bytes(&socket);
        assert!(held > 0 && leases.held_bytes(&free.as_fd().try_clone_to_owned().unwrap()) == 0);
        leases.resume(&socket);
        rustix::net::sockopt::set_tcp_cork(&socket, false).unwrap();
        let resumed = Instant::now();
        wait_for("data", || acked_bytes(&paused) > 100_000);
        eprintln!("data arrives after {:?}", resumed.elapsed());
        leases.pause(&socket).unwrap();
        thread::sleep(Duration::from_millis(100));
        let before = acked_bytes(&paused);
        thread::sleep(Duration::from_millis(500));
        assert!(acked_bytes(&paused) - before < 2000);
        leases.renew(monotonic_now() + LEASE).unwrap();
        let renewed = Instant::now();
        // No process wakes the socket.
        wait_for("data after the lease", || acked_bytes(&paused) > before + 100_000);
        assert!(renewed.elapsed() > LEASE);
        assert!(renewed.elapsed() < LEASE + Duration::from_secs(4), "{:?}", renewed.elapsed());
        [paused, free].iter().for_each(|stream| stream.shutdown(Shutdown::Both).unwrap());
    }
}

/// Data that arrives at a paused socket is acknowledged.
#[test]
fn paused_sockets_acknowledge_what_they_receive() {
    let Some((pair, mut leases)) = start_leases("leaseack") else { return };
    let listener = pair.run_at_peer(|| TcpListener::bind("10.9.0.2:0").unwrap()).join().unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut server = listener.accept().unwrap().0;
    leases.renew(monotonic_now() + Duration::from_secs(60)).unwrap();
    leases.pause(&client.as_fd().try_clone_to_owned().unwrap()).unwrap();
    keep_sending(&client);
    let sent = Instant::now();
    server.write_all(&[0; 100_000]).unwrap();
    client.read_exact(&mut [0; 100_000]).unwrap();
    wait_for("acknowledgements", || acked_bytes(&server) >= 100_000);
    eprintln!("all data is acknowledged after {:?}", sent.elapsed());
    assert!(acked_bytes(&client) < 100_000, "the client is not paused");
    client.shutdown(Shutdown::Both).unwrap();
}

/// An observed connection whose program writes nothing more, so that its peer acknowledges nothing more.
#[test]
fn cleanup_ends_the_rate_of_an_idle_observed_connection() {
    let test = "leaseobserved";
    let Some(pair) = create_pair(test) else { return };
    let port = start_receiver(&pair, 0).0.port();
    let rule: Rule = format!("web=port/{port}").parse().unwrap();
    let mut traffic = match Traffic::start(&[rule], &[interface()]) {
        Err(TrafficError::NotBuilt(why)) => {
            return eprintln!("{test} skips, since the programs were not built: {why}");
        }
        traffic => traffic.unwrap(),
    };
    for host in ["10.9.0.2", "fd09::2"] {
        let mut stream = TcpStream::connect((host, port)).unwrap();
        set_rate(&stream, OWN_RATE);
        let ends =
            ConnectionEnds { local: stream.local_addr().unwrap(), remote: stream.peer_addr().unwrap() };
        let ordered = Rate::new(ORDERED_RATE as f64).unwrap();
        wait_for("the connection", || {
            traffic.set_pacing_rate(ends, Some(ordered), Duration::from_secs(30)).unwrap()
        });
        wait_for("the rate", || {
            stream.write_all(&[0; 100]).unwrap();
            rate(&stream) == ORDERED_RATE
        });
        drop(traffic);
        assert_eq!(rate(&stream), ORDERED_RATE);
        assert!(cleanup().unwrap());
        assert_eq!(rate(&stream), OWN_RATE, "{host}");
        traffic = Traffic::start(&[format!("web=port/{port}").parse().unwrap()], &[interface()]).unwrap();
    }
    assert_eq!(traffic.stop().unwrap(), 0);
}
