//! A relay with several connections for its data, and a program in place of the other relay.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use weir_relay::io::{Command, LinkStatus, ServerSettings};
use weir_relay::message::RelayId;

use crate::test_relay::{TIMEOUT, TestRelay, accept, overlay, settings, wait_until};

/// Relay 2 with two connections for its data, and in place of relay 1 a program.
struct Peer {
    relay: TestRelay,
    /// The address of relay 1.
    listener: TcpListener,
    /// The bulk and the express connection.
    base: [TcpStream; 2],
}

impl Peer {
    /// Establishes the link. `versions`: those that relay 1 speaks.
    fn connect(versions: &str) -> Peer {
        let any = |id: u16| format!("127.{id}.0.1:0").parse().unwrap();
        let first = TestRelay::start(1, any(1), None);
        let second = TestRelay::start_with(any(2), ServerSettings { connections: Some(2), ..settings(2) });
        let mut relays = vec![first, second];
        let overlay = overlay(&relays, vec![]);
        let (relay, address) = (relays.remove(1), relays[0].relays);
        drop(relays);
        let listener = TcpListener::bind(address).unwrap();
        relay.handle.send(Command::SetOverlay(overlay));
        let base = ["bulk", "express"].map(|role| dial(relay.relays, versions, role));
        let peer = Peer { relay, listener, base };
        wait_until(|| peer.link().is_up);
        peer
    }

    fn link(&self) -> LinkStatus {
        self.relay.status().links[&RelayId(1)].clone()
    }

    /// Accepts an additional connection of relay 2, and answers its first line.
    fn accept(&self) -> TcpStream {
        let stream = accept(&self.listener);
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut line = String::new();
        BufReader::with_capacity(1, &stream).read_line(&mut line).unwrap();
        assert_eq!(line, "weir-relay 1 2 2 1 additional 7\n");
        (&stream).write_all(b"weir-relay 1 2 1 2 additional 7\n").unwrap();
        wait_until(|| self.link().connections == 2);
        stream
    }
}

/// Opens a connection to relay 2, and reads the answer to its first line.
fn dial(address: SocketAddr, versions: &str, role: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(format!("weir-relay {versions} 1 2 {role} 7\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::with_capacity(1, &stream).read_line(&mut line).unwrap();
    assert_eq!(line, format!("weir-relay 1 2 2 1 {role} 7\n"));
    stream
}

#[test]
fn relay_of_the_former_version_gets_one_connection_for_data() {
    let former = Peer::connect("1 1");
    let current = Peer::connect("1 2");
    drop(current.accept());
    // Relay 2 of the other link has dialed meanwhile.
    std::thread::sleep(Duration::from_millis(300));
    former.listener.set_nonblocking(true).unwrap();
    assert_eq!(former.listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!((former.link().is_up, former.link().connections), (true, 1));
}

#[test]
fn link_fails_with_an_additional_connection() {
    let mut peer = Peer::connect("1 2");
    let additional = peer.accept();
    assert_eq!(peer.link().failures, 0);
    drop(additional);
    wait_until(|| peer.link().failures == 1);
    // Both other connections are closed, too.
    for stream in &mut peer.base {
        let _ = stream
            .read_to_end(&mut Vec::new())
            .map_err(|error| assert_eq!(error.kind(), ErrorKind::ConnectionReset));
    }
}

#[test]
fn link_survives_the_end_of_a_connection_that_the_other_relay_does_not_need() {
    let peer = Peer::connect("1 2");
    let mut unneeded = dial(peer.relay.relays, "1 2", "additional");
    unneeded.shutdown(Shutdown::Write).unwrap();
    // Relay 2 closes its end, too.
    assert_eq!(unneeded.read(&mut [0]).unwrap(), 0);
    assert_eq!((peer.link().is_up, peer.link().failures), (true, 0));
    // A connection that ends inside a message loses it.
    let mut broken = dial(peer.relay.relays, "1 2", "additional");
    broken.write_all(&[1; 10]).unwrap();
    broken.shutdown(Shutdown::Write).unwrap();
    wait_until(|| peer.link().failures == 1);
}

#[test]
fn relay_accepts_a_bounded_number_of_connections() {
    let peer = Peer::connect("1 2");
    let accepted: Vec<TcpStream> = (0..64).map(|_| dial(peer.relay.relays, "1 2", "additional")).collect();
    let refused = || {
        let mut stream = TcpStream::connect(peer.relay.relays).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(b"weir-relay 1 2 1 2 additional 7\n").unwrap();
        stream.read(&mut [0]).unwrap()
    };
    // Without an answer, so that relay 1 uses the others.
    assert_eq!(refused(), 0);
    assert_eq!((peer.link().is_up, peer.link().failures), (true, 0));
    accepted[0].shutdown(Shutdown::Write).unwrap();
    assert_eq!((&accepted[0]).read(&mut [0]).unwrap(), 0);
    assert_eq!(refused(), 1);
}

#[test]
fn additional_connection_is_refused_before_the_link_is_up() {
    let any = |id: u16| format!("127.{id}.0.1:0").parse().unwrap();
    let relays = [1, 2].map(|id| TestRelay::start(id, any(id), None));
    let overlay = overlay(&relays, vec![]);
    relays[0].handle.send(Command::Stop);
    relays[1].handle.send(Command::SetOverlay(overlay));
    let address = relays[1].relays;
    let _bulk = dial(address, "1 2", "bulk");
    // Without an answer: after it, relay 1 would send data, and the link would fail with the connection.
    let mut early = TcpStream::connect(address).unwrap();
    early.set_read_timeout(Some(TIMEOUT)).unwrap();
    early.write_all(b"weir-relay 1 2 1 2 additional 7\n").unwrap();
    assert_eq!(early.read(&mut [0]).unwrap(), 0);
    let _express = dial(address, "1 2", "express");
    let link = || relays[1].status().links[&RelayId(1)].clone();
    wait_until(|| link().is_up);
    let _additional = dial(address, "1 2", "additional");
    assert_eq!((link().is_up, link().failures), (true, 0));
}

#[test]
fn additional_connection_of_another_attempt_is_refused() {
    let peer = Peer::connect("1 2");
    let mut stream = TcpStream::connect(peer.relay.relays).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"weir-relay 1 2 1 2 additional 8\n").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert_eq!((peer.link().is_up, peer.link().failures), (true, 0));
}
