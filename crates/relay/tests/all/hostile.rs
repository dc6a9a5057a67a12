//! Relays whose peers and programs violate the protocol: each violation has one stated effect, on the violator only.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_flow::Reason;
use weir_proto::relay::{RegionPair, RelayMatch, RelayPath, RelayRule, RuleScope};
use weir_relay::io::{Command, ServerSettings};
use weir_relay::message::{
    FlowId, HEADER_BYTES, Header, Kind, MAX_HOPS, RelayId, decode_reason, encode_address, encode_reason,
};
use weir_relay::relay::{Incoming, Relay};

use crate::test_relay::{
    TIMEOUT, TestRelay, accept, open, overlay, refusal, settings, start_relays, transfer, wait_until,
};

/// Relay 2, and in place of relay 1 a program that has established both connections.
struct HostilePeer {
    relays: Vec<TestRelay>,
    bulk: TcpStream,
    express: BufReader<TcpStream>,
}

fn connect(address: SocketAddr, line: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(line.as_bytes()).unwrap();
    stream
}

/// Relays 1 and 2 that know each other. Relay 1 has stopped.
fn start_second_relay(memory_bytes: u64) -> Vec<TestRelay> {
    let any = |id: u16| format!("127.{id}.0.1:0").parse().unwrap();
    let relays: Vec<TestRelay> = (1..=2)
        .map(|id| TestRelay::start_with(any(id), ServerSettings { memory_bytes, ..settings(id) }))
        .collect();
    relays[1].handle.send(Command::SetOverlay(overlay(&relays, vec![])));
    relays[0].handle.send(Command::Stop);
    relays
}

impl HostilePeer {
    fn connect(memory_bytes: u64) -> HostilePeer {
        let relays = start_second_relay(memory_bytes);
        let line = |lane| format!("weir-relay 1 1 1 2 {lane} 7\n");
        let bulk = connect(relays[1].relays, &line("bulk"));
        let mut express = BufReader::new(connect(relays[1].relays, &line("express")));
        let mut answer = String::new();
        express.read_line(&mut answer).unwrap();
        assert_eq!(answer, "weir-relay 1 2 2 1 express 7\n");
        let peer = HostilePeer { relays, bulk, express };
        wait_until(|| peer.is_up());
        peer
    }

    fn is_up(&self) -> bool {
        self.relays[1].status().links[&RelayId(1)].is_up
    }

    fn send(&mut self, header: &Header, payload: &[u8]) {
        self.bulk.write_all(&header.encode()).unwrap();
        self.bulk.write_all(payload).unwrap();
    }

    fn open(&mut self, flow: u32, offset: u64, receiver: SocketAddr) {
        let payload = encode_address(receiver);
        self.send(&message(Kind::Open, flow, offset, payload.len()), &payload);
    }

    /// The next reset for a flow. Skips other messages.
    fn read_reset(&mut self) -> (u32, Reason) {
        loop {
            let mut bytes = [0; HEADER_BYTES];
            self.express.read_exact(&mut bytes).unwrap();
            let header = Header::decode(&bytes).unwrap();
            let mut payload = vec![0; header.length as usize];
            self.express.read_exact(&mut payload).unwrap();
            if header.kind == Kind::Reset {
                return (header.flow.flow, decode_reason(header.offset));
            }
        }
    }
}

/// A message of a flow from relay 1 to relay 2.
fn message(kind: Kind, flow: u32, offset: u64, length: usize) -> Header {
    Header {
        kind,
        hops: MAX_HOPS,
        generation: 0,
        length: length as u32,
        flow: FlowId { coflow: 7, flow },
        offset,
        source: RelayId(1),
        destination: RelayId(2),
    }
}

/// A header with a valid checksum, whose fields may be invalid.
fn forged_header(change: impl FnOnce(&mut [u8; HEADER_BYTES])) -> [u8; HEADER_BYTES] {
    let mut bytes = message(Kind::Data, 1, 0, 1).encode();
    change(&mut bytes);
    let checksum = crc32c::crc32c(&bytes[..28]);
    bytes[28..].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

#[test]
fn headers_with_invalid_fields_are_refused_with_the_reason() {
    let length = |kind: u8, length: u32| {
        forged_header(|bytes| {
            bytes[0] = kind;
            bytes[4..8].copy_from_slice(&length.to_be_bytes());
        })
    };
    let error = |bytes: &[u8; HEADER_BYTES]| Header::decode(bytes).unwrap_err().to_string();
    for (bytes, reason) in [
        (
            forged_header(|bytes| bytes[0] = 8),
            "header: kind 8; expected 0 to 7; help: relays may differ by one version at most",
        ),
        (forged_header(|bytes| bytes[1] = 4), "header: 4 hops; expected at most 3"),
        (length(0, 17), "header: payload of 17 bytes; expected 18 for Open"),
        (length(1, 0), "header: payload of 0 bytes; expected 1 to 1048576 for Data"),
        (length(1, (1 << 20) + 1), "header: payload of 1048577 bytes; expected 1 to 1048576 for Data"),
        (length(1, u32::MAX), "header: payload of 4294967295 bytes; expected 1 to 1048576 for Data"),
        (length(2, 1), "header: payload of 1 bytes; expected 0 for End"),
        (length(4, 9), "header: payload of 9 bytes; expected 8 for Ack"),
        (
            forged_header(|bytes| bytes[16] = 0x80),
            "header: offset 9223372036854775808; expected at most 2^62",
        ),
    ] {
        assert_eq!(error(&bytes), reason);
    }
    let mut bytes = message(Kind::Data, 1, 0, 1).encode();
    bytes[31] ^= 1;
    assert!(error(&bytes).starts_with("header: checksum 0x"), "{}", error(&bytes));
}

#[test]
fn peer_with_an_invalid_header_is_disconnected() {
    for bytes in [[0xff; HEADER_BYTES], forged_header(|bytes| bytes[0] = 200)] {
        let mut peer = HostilePeer::connect(64 << 20);
        peer.bulk.write_all(&bytes).unwrap();
        wait_until(|| !peer.is_up());
        let status = peer.relays[1].status();
        assert_eq!((status.links[&RelayId(1)].failures, status.flow_counts), (1, (0, 0, 0)));
    }
}

#[test]
fn sequence_jumps_reset_the_flow_as_lost() {
    let mut peer = HostilePeer::connect(64 << 20);
    let listener = TcpListener::bind("127.2.0.1:0").unwrap();
    let receiver = listener.local_addr().unwrap();
    peer.open(1, 0, receiver);
    let _receiver = accept(&listener);
    // Beyond the credit.
    peer.send(&message(Kind::Data, 1, 1 << 40, 4), b"jump");
    assert_eq!(peer.read_reset(), (1, Reason::Lost));
    // A second, different end.
    peer.open(2, 0, receiver);
    let _receiver = accept(&listener);
    peer.send(&message(Kind::End, 2, 100, 0), &[]);
    peer.send(&message(Kind::End, 2, 99, 0), &[]);
    assert_eq!(peer.read_reset(), (2, Reason::Lost));
    // Data after the end.
    peer.open(3, 0, receiver);
    let _receiver = accept(&listener);
    peer.send(&message(Kind::End, 3, 2, 0), &[]);
    peer.send(&message(Kind::Data, 3, 0, 4), b"long");
    assert_eq!(peer.read_reset(), (3, Reason::Lost));
    // More than the initial credit before the flow is open.
    for part in 0..3u64 {
        let bytes = vec![0; 1 << 18];
        peer.send(&message(Kind::Data, 4, part << 18, bytes.len()), &bytes);
    }
    assert_eq!(peer.read_reset(), (4, Reason::Lost));
    // A start after data that has arrived.
    peer.send(&message(Kind::Data, 5, 0, 4), b"late");
    peer.open(5, 2, receiver);
    assert_eq!(peer.read_reset(), (5, Reason::Lost));
    assert!(peer.is_up());
    assert_eq!(peer.relays[1].status().resets.sent.get(Reason::Lost), 5);
}

#[test]
fn flood_of_opened_flows_is_refused_beyond_the_memory() {
    // Half of the memory has room for 4 flows of 512 KiB.
    let mut peer = HostilePeer::connect(4 << 20);
    let listener = TcpListener::bind("127.2.0.1:0").unwrap();
    let receiver = listener.local_addr().unwrap();
    for flow in 0..1000 {
        peer.open(flow, 0, receiver);
    }
    for flow in 4..1000 {
        assert_eq!(peer.read_reset(), (flow, Reason::Busy));
    }
    let status = peer.relays[1].status();
    assert_eq!((status.flow_counts, status.used_bytes), ((0, 4, 0), (0, 2 << 20)));
    // Data without its beginning needs the same memory.
    peer.send(&message(Kind::Data, 2000, 0, 1), b"x");
    assert_eq!(peer.read_reset(), (2000, Reason::Busy));
}

#[test]
fn flows_of_unknown_coflows_and_foreign_receivers_are_refused() {
    let mut peer = HostilePeer::connect(64 << 20);
    let payload = encode_address("127.2.0.1:9".parse().unwrap());
    let header = message(Kind::Open, 1, 0, payload.len());
    peer.send(&Header { flow: FlowId { coflow: 8, flow: 1 }, ..header }, &payload);
    assert_eq!(peer.read_reset(), (1, Reason::UnknownCoflow));
    peer.open(2, 0, "192.0.2.1:22".parse().unwrap());
    assert_eq!(peer.read_reset(), (2, Reason::Unreachable));
    // This relay is not connected with relay 9.
    peer.send(&Header { destination: RelayId(9), ..message(Kind::Open, 3, 0, payload.len()) }, &payload);
    assert_eq!(peer.read_reset(), (3, Reason::Lost));
}

#[test]
fn peer_that_does_not_read_is_disconnected_and_its_flows_are_reset() {
    let peer = HostilePeer::connect(64 << 20);
    let mut stream = open(&peer.relays[1], 1, "127.1.0.1:9".parse().unwrap());
    stream.set_nonblocking(true).unwrap();
    let bytes = vec![0; 1 << 20];
    let mut written = 0;
    // A relay that sends nothing for 4 s has failed.
    wait_until(|| {
        written += stream.write(&bytes).unwrap_or(0);
        !peer.is_up()
    });
    assert!(written < 32 << 20, "{written} bytes were accepted");
    stream.set_nonblocking(false).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "reset lost\n");
}

#[test]
fn answers_to_a_flood_of_heartbeats_are_bounded() {
    let mut relay = Relay::new(RelayId(2), 64 << 20);
    relay.connect_peer(RelayId(1));
    let ping = Header { flow: FlowId { coflow: 0, flow: 0 }, ..message(Kind::Ping, 0, 5, 0) };
    for _ in 0..200_000 {
        assert_eq!(relay.receive(RelayId(1), &ping), Incoming::Discard);
    }
    let answers = std::iter::from_fn(|| relay.next_control(RelayId(1))).count();
    assert_eq!(answers, 65_536);
}

#[test]
fn detour_without_memory_resets_the_flow_as_lost() {
    // Half of the memory is for detours, divided between both peers: one message of 1 MiB has room.
    let mut relay = Relay::new(RelayId(2), 6 << 20);
    [RelayId(1), RelayId(3)].iter().for_each(|&id| relay.connect_peer(id));
    relay.set_overlay(overlay(&start_relays(3, vec![]), vec![]));
    let bytes = vec![0; 1 << 20];
    for (offset, expected) in [(0, Incoming::Store), (1 << 20, Incoming::Discard)] {
        let header = Header { destination: RelayId(3), ..message(Kind::Data, 1, offset, bytes.len()) };
        assert_eq!(relay.receive(RelayId(1), &header), expected);
        if expected == Incoming::Store {
            relay.receive_payload(RelayId(1), &header, Bytes::from(bytes.clone()));
        }
    }
    let (reset, _) = relay.next_control(RelayId(1)).unwrap();
    assert_eq!((reset.kind, decode_reason(reset.offset)), (Kind::Reset, Reason::Lost));
    assert_eq!(relay.used_bytes(), (0, 0));
}

#[test]
fn messages_without_hops_are_not_forwarded() {
    let mut relay = Relay::new(RelayId(2), 64 << 20);
    let relays = [RelayId(1), RelayId(3)];
    relays.iter().for_each(|&id| relay.connect_peer(id));
    let running = start_relays(3, vec![]);
    relay.set_overlay(overlay(&running, vec![]));
    let mut forward = |hops| {
        let header = Header { hops, destination: RelayId(3), ..message(Kind::Data, 1, 0, 4) };
        let incoming = relay.receive(RelayId(1), &header);
        if incoming == Incoming::Store {
            relay.receive_payload(RelayId(1), &header, Bytes::from_static(b"data"));
        }
        incoming
    };
    // Relays that send a flow in a circle use up its hops.
    assert_eq!(
        [3, 2, 1, 0].map(&mut forward),
        [Incoming::Store, Incoming::Store, Incoming::Store, Incoming::Discard]
    );
    // A reset from a relay that is not on the path changes nothing.
    let reset = Header { offset: encode_reason(Reason::Lost), ..message(Kind::Reset, 9, 0, 0) };
    assert_eq!(relay.receive(RelayId(3), &Header { source: RelayId(2), ..reset }), Incoming::Discard);
}

#[test]
fn rules_with_a_loop_deliver_all_bytes() {
    let rule = |scope, paths: &[(u16, f64)]| RelayRule {
        flows: RelayMatch { coflow: 7, scope },
        priority: 1,
        weight: 1.0,
        paths: paths.iter().map(|&(next, fraction)| RelayPath { next_region: next, fraction }).collect(),
    };
    let pair = |source, destination| RuleScope::Pair(RegionPair { source, destination });
    // Relay 1 sends to itself and over relay 3, and relay 3 back to relay 1.
    let relays =
        start_relays(3, vec![rule(pair(1, 2), &[(1, 0.5), (3, 0.5)]), rule(pair(3, 2), &[(1, 1.0)])]);
    transfer(&relays, &[3_000_000, 10]);
    let links = relays[0].status().links;
    assert_eq!(links[&RelayId(3)].counters.sent_bytes, 3_000_010);
}

#[test]
fn half_open_connections_are_closed_after_five_seconds() {
    let start = Instant::now();
    let relays = start_second_relay(64 << 20);
    let silent = |address| {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    };
    let mut all = vec![silent(relays[1].programs)];
    all.extend((0..300).map(|_| silent(relays[1].relays)));
    for mut stream in all {
        // The last ones are closed at once: 256 may be without a first line.
        let mut answer = Vec::new();
        let closed = stream.read_to_end(&mut answer).map_err(|error| error.kind());
        assert!(matches!(closed, Ok(0) | Err(ErrorKind::ConnectionReset)), "{closed:?}, {answer:?}");
    }
    assert!(start.elapsed() >= Duration::from_secs(5), "{:?}", start.elapsed());
    // Then relays and programs can connect again.
    let mut stream = connect(relays[1].relays, "weir-relay 1 1 1 2 bulk 7\n");
    let mut answer = [0; 26];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"weir-relay 1 2 2 1 bulk 7\n");
    assert_eq!(refusal(&relays[1], "weir-flow/2 other 0 0 0 127.1.0.1:9\n"), "reset unknown-coflow\n");
}

#[test]
fn first_lines_of_other_versions_are_refused() {
    let relays = start_second_relay(64 << 20);
    for version in ["weir-flow/1", "weir-flow/3", "weir-flow/02"] {
        let line = format!("{version} shuffle 0 0 0 127.1.0.1:9\n");
        assert_eq!(refusal(&relays[1], &line), "reset invalid\n", "{version}");
    }
    for (session, (versions, answer)) in [
        ("1 1", "weir-relay 1 2 2 1 bulk 0\n"),
        ("0 9", "weir-relay 1 2 2 1 bulk 1\n"),
        ("2 3", "weir-relay 1 2 2 1 bulk 2\n"),
        ("3 4", ""),
        ("0 0", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let mut stream = connect(relays[1].relays, &format!("weir-relay {versions} 1 2 bulk {session}\n"));
        let mut answered = vec![0; answer.len().max(1)];
        let read = stream.read(&mut answered).unwrap();
        assert_eq!(std::str::from_utf8(&answered[..read]), Ok(answer), "{versions}");
    }
}
