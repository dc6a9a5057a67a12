//! Single rules of the protocol between relays.

use std::net::SocketAddr;

use bytes::Bytes;
use weir_flow::{FirstLine, Reason};
use weir_relay::message::{Header, Kind, MAX_HOPS, RelayId, encode_reason};
use weir_relay::overlay_file;
use weir_relay::relay::{Event, Incoming, Lane, Outgoing, Relay};

/// Relays 1, 2 and 3 with the programs of 10.0.0.0/24, 10.1.0.0/24 and 10.2.0.0/24; one coflow that goes from 1 over 2 to 3.
const OVERLAY: &str = "
[[relays]]
name = \"a\"
address = \"10.0.0.1:1\"
networks = [\"10.0.0.0/24\"]
[[relays]]
name = \"b\"
address = \"10.1.0.1:1\"
networks = [\"10.1.0.0/24\"]
[[relays]]
name = \"c\"
address = \"10.2.0.1:1\"
networks = [\"10.2.0.0/24\"]
[[coflows]]
name = \"shuffle\"
[[rules]]
coflow = \"shuffle\"
priority = 0
paths = { b = 1.0 }
";

const MEMORY_BYTES: u64 = 64 << 20;

fn relay(id: u16, peers: &[u16]) -> Relay {
    let mut relay = Relay::new(RelayId(id), MEMORY_BYTES);
    relay.set_overlay(overlay_file::parse(OVERLAY, "overlay.toml").unwrap());
    peers.iter().for_each(|&peer| relay.connect_peer(RelayId(peer)));
    relay
}

/// A message of flow 7 from relay 1 to relay 3.
fn message(relay: &Relay, kind: Kind, offset: u64, length: u32) -> Header {
    let coflow = *relay.overlay().coflows.keys().next().unwrap();
    let flow = weir_relay::message::FlowId { coflow, flow: 7 };
    let (source, destination) = (RelayId(1), RelayId(3));
    Header { kind, hops: MAX_HOPS, generation: 0, length, flow, offset, source, destination }
}

fn open(relay: &mut Relay, from: u16) {
    let header = message(relay, Kind::Open, 0, 18);
    assert_eq!(relay.receive(RelayId(from), &header), Incoming::Store);
    let address = weir_relay::message::encode_address("10.2.0.9:5".parse::<SocketAddr>().unwrap());
    relay.receive_payload(RelayId(from), &header, Bytes::copy_from_slice(&address));
    let key = match relay.next_event() {
        Some(Event::ConnectReceiver(key, _)) => key,
        other => panic!("{other:?}"),
    };
    relay.acknowledge(key, 0);
}

fn kinds(relay: &mut Relay, peer: u16) -> Vec<Kind> {
    std::iter::from_fn(|| relay.next_control(RelayId(peer))).map(|(header, _)| header.kind).collect()
}

#[test]
fn flow_over_a_detour_survives_the_loss_of_the_direct_link() {
    let mut relay = relay(3, &[1, 2]);
    open(&mut relay, 2);
    relay.disconnect_peer(RelayId(1));
    assert_eq!(relay.next_event(), None);
    let data = message(&relay, Kind::Data, 0, 5);
    assert!(matches!(relay.receive(RelayId(2), &data), Incoming::Deliver(_)));
}

#[test]
fn answers_take_the_way_of_the_data_without_a_direct_link() {
    let mut relay = relay(3, &[2, 4]);
    relay.connect_peer(RelayId(1));
    open(&mut relay, 4);
    relay.disconnect_peer(RelayId(1));
    let data = message(&relay, Kind::Data, 0, 5);
    let Incoming::Deliver(key) = relay.receive(RelayId(4), &data) else { panic!("not delivered") };
    relay.receive_rest(key, Bytes::new());
    relay.acknowledge(key, 5);
    assert_eq!(kinds(&mut relay, 4), [Kind::Ack]);
    assert_eq!(kinds(&mut relay, 2), []);
}

#[test]
fn late_data_of_a_closed_flow_holds_no_credit() {
    let mut relay = relay(3, &[1, 2]);
    open(&mut relay, 1);
    let abort = message(&relay, Kind::Abort, 0, 0);
    relay.receive(RelayId(1), &abort);
    assert_eq!(relay.used_bytes(), (0, 0));
    let data = message(&relay, Kind::Data, 0, 5);
    assert_eq!(relay.receive(RelayId(1), &data), Incoming::Discard);
    assert_eq!((relay.used_bytes(), relay.flow_counts()), ((0, 0), (0, 0, 0)));
}

#[test]
fn detour_is_avoided_only_if_it_lost_messages_itself() {
    for (hops, hop_of_next) in [(MAX_HOPS, 3), (MAX_HOPS - 1, 2)] {
        let mut relay = relay(1, &[2, 3]);
        let line = |generation: u16| {
            FirstLine::parse(format!("weir-flow/2 shuffle 7 {generation} 0 10.2.0.9:5").as_bytes()).unwrap()
        };
        let key = relay.open(&line(0)).unwrap();
        let reset =
            Header { hops, generation: 0, ..message(&relay, Kind::Reset, encode_reason(Reason::Lost), 0) };
        relay.receive(RelayId(2), &reset);
        assert_eq!(relay.next_event(), Some(Event::CloseSender(key, Reason::Lost)));
        let key = relay.open(&line(1)).unwrap();
        relay.set_readable(key);
        for hop in [2, 3] {
            let next = relay.next_data(RelayId(hop), Lane::Bulk);
            assert_eq!(matches!(next, Some(Outgoing::Local { .. })), hop == hop_of_next, "{hops} {hop}");
        }
    }
}

#[test]
fn detours_avoid_a_silent_relay_until_it_is_heard() {
    let mut relay = relay(1, &[2, 3]);
    let line = |generation: u16, receiver: &str| {
        FirstLine::parse(format!("weir-flow/2 shuffle 7 {generation} 0 {receiver}").as_bytes()).unwrap()
    };
    let next_hop = |relay: &mut Relay, key| {
        relay.set_readable(key);
        let mut hops = [2, 3].into_iter();
        hops.find(|&hop| relay.next_data(RelayId(hop), Lane::Bulk).is_some())
    };
    let key = relay.open(&line(0, "10.2.0.9:5")).unwrap();
    assert_eq!(next_hop(&mut relay, key), Some(2));
    relay.take_local(RelayId(2), Lane::Bulk, key, 5, true);
    assert!(relay.set_silent(RelayId(2), true) && !relay.set_silent(RelayId(2), true));
    assert_eq!(relay.next_event(), Some(Event::CloseSender(key, Reason::Lost)));
    let key = relay.open(&line(1, "10.2.0.9:5")).unwrap();
    assert_eq!(next_hop(&mut relay, key), Some(3));
    // The flow continues, and uses the detour again.
    assert!(relay.set_silent(RelayId(2), false));
    assert_eq!((relay.next_event(), next_hop(&mut relay, key)), (None, Some(2)));
    // Flows to programs of the silent relay continue.
    let key = relay.open(&line(2, "10.1.0.9:5")).unwrap();
    while relay.next_event().is_some() {}
    assert_eq!(next_hop(&mut relay, key), Some(2));
    relay.take_local(RelayId(2), Lane::Bulk, key, 5, true);
    assert!(relay.set_silent(RelayId(2), true));
    assert_eq!((relay.next_event(), next_hop(&mut relay, key)), (None, Some(2)));
}

#[test]
fn slow_relay_uses_its_share_of_the_memory_for_detours() {
    let mut relay = relay(2, &[1, 3]);
    let length = 1 << 20;
    let mut stored: u64 = 0;
    loop {
        let data = message(&relay, Kind::Data, stored * u64::from(length), length);
        match relay.receive(RelayId(1), &data) {
            Incoming::Store => relay.receive_payload(RelayId(1), &data, vec![0; length as usize].into()),
            _ => break,
        }
        stored += 1;
    }
    assert_eq!(stored, MEMORY_BYTES / 2 / 2 / u64::from(length) - 1);
    assert_eq!(kinds(&mut relay, 1), [Kind::Reset]);
    assert_eq!(relay.used_bytes(), (0, 0));
}

#[test]
fn detoured_messages_are_divided_if_the_next_path_is_slower() {
    let mut relay = relay(2, &[1, 3]);
    let data = message(&relay, Kind::Data, 5, 10);
    assert_eq!(relay.receive(RelayId(1), &data), Incoming::Store);
    relay.receive_payload(RelayId(1), &data, Bytes::from_static(b"0123456789"));
    relay.set_max_message(RelayId(3), 4);
    let mut next = || match relay.next_data(RelayId(3), Lane::Bulk) {
        Some(Outgoing::Stored(header, payload)) => {
            Some((header.offset, header.length as usize, payload, relay.used_bytes().0))
        }
        other => {
            assert_eq!(other, None);
            None
        }
    };
    let part = |offset, bytes: &'static [u8], waiting| {
        Some((offset, bytes.len(), Bytes::from_static(bytes), waiting))
    };
    // A waiting message uses 128 bytes of memory in addition to its payload.
    assert_eq!(next(), part(5, b"0123", 128 + 6));
    assert_eq!(next(), part(9, b"4567", 128 + 2));
    assert_eq!(next(), part(13, b"89", 0));
    assert_eq!(next(), None);
}

#[test]
fn relay_ends_flows_that_it_forwarded_for_a_lost_relay() {
    let mut relay = relay(2, &[1, 3]);
    let data = message(&relay, Kind::Data, 0, 5);
    assert_eq!(relay.receive(RelayId(1), &data), Incoming::Store);
    relay.receive_payload(RelayId(1), &data, Bytes::from_static(b"bytes"));
    relay.disconnect_peer(RelayId(1));
    assert_eq!(kinds(&mut relay, 3), [Kind::Abort]);
}

#[test]
fn draining_relay_refuses_flows_of_programs_and_of_relays() {
    let mut relay = relay(3, &[1, 2]);
    relay.drain();
    let header = message(&relay, Kind::Open, 0, 18);
    assert_eq!(relay.receive(RelayId(1), &header), Incoming::Store);
    let address = weir_relay::message::encode_address("10.2.0.9:5".parse().unwrap());
    relay.receive_payload(RelayId(1), &header, Bytes::copy_from_slice(&address));
    assert_eq!(kinds(&mut relay, 1), [Kind::Reset]);
    let line = FirstLine::parse(b"weir-flow/2 shuffle 7 0 0 10.0.0.9:5").unwrap();
    assert_eq!(relay.open(&line), Err(Reason::Busy));
}

/// Relay 1 in region `a`, 2 in `b`, and 3 and 4 in `c`, which serve the same network. Half of the bytes from `a` to `b` go over `c`.
const SHARED_REGION: &str = "
[[relays]]
name = \"a\"
address = \"10.0.0.1:1\"
networks = [\"10.0.0.0/24\"]
[[relays]]
name = \"b\"
address = \"10.1.0.1:1\"
networks = [\"10.1.0.0/24\"]
[[relays]]
name = \"c-1\"
region = \"c\"
address = \"10.2.0.1:1\"
networks = [\"10.2.0.0/24\"]
[[relays]]
name = \"c-2\"
region = \"c\"
address = \"10.2.0.2:1\"
networks = [\"10.2.0.0/24\"]
[[coflows]]
name = \"shuffle\"
[[rules]]
coflow = \"shuffle\"
from = \"a\"
to = \"b\"
priority = 0
paths = { b = 0.5, c = 0.5 }
";

/// The relays to which relay 1 sends data of 100 flows, each of two messages, to a receiver. The number of flows by relays.
fn next_hops(peers: &[u16], receiver: &str) -> Vec<(Vec<u16>, usize)> {
    next_hops_of(1, SHARED_REGION, peers, receiver)
}

/// As [`next_hops`], of another relay and overlay.
fn next_hops_of(id: u16, overlay: &str, peers: &[u16], receiver: &str) -> Vec<(Vec<u16>, usize)> {
    let mut relay = Relay::new(RelayId(id), MEMORY_BYTES);
    relay.set_overlay(overlay_file::parse(overlay, "overlay.toml").unwrap());
    peers.iter().for_each(|&peer| relay.connect_peer(RelayId(peer)));
    let mut counts = std::collections::BTreeMap::new();
    for flow in 0..100 {
        let line = format!("weir-flow/2 shuffle {flow} 0 0 {receiver}");
        let key = relay.open(&FirstLine::parse(line.as_bytes()).unwrap()).unwrap();
        relay.set_readable(key);
        let mut hops = Vec::new();
        for _ in 0..2 {
            let mut ready = peers
                .iter()
                .filter_map(|&peer| relay.next_data(RelayId(peer), Lane::Bulk).map(|next| (peer, next)));
            let Some((peer, Outgoing::Local { key: next, .. })) = ready.next() else { panic!("no data") };
            drop(ready);
            assert_eq!(next, key);
            relay.take_local(RelayId(peer), Lane::Bulk, key, 1000, false);
            hops.push(peer);
        }
        relay.end(key);
        hops.sort_unstable();
        *counts.entry(hops).or_default() += 1;
    }
    counts.into_iter().collect()
}

#[test]
fn relays_of_a_region_divide_its_receivers_and_detours_by_flow() {
    // To region c: each flow goes to one of its relays, to the other one if that is not connected.
    let hops = next_hops(&[2, 3, 4], "10.2.0.9:5");
    let [(first, third), (second, fourth)] = &hops[..] else { panic!("{hops:?}") };
    assert_eq!((&first[..], &second[..]), (&[3, 3][..], &[4, 4][..]));
    assert!(third.abs_diff(*fourth) <= 20, "{hops:?}");
    assert_eq!(next_hops(&[2, 4], "10.2.0.9:5"), [(vec![4, 4], 100)]);
    // To region b: half of a flow's bytes take the direct path, and half go over one relay of region c.
    let hops = next_hops(&[2, 3, 4], "10.1.0.9:5");
    let [(first, third), (second, fourth)] = &hops[..] else { panic!("{hops:?}") };
    assert_eq!((&first[..], &second[..]), (&[2, 3][..], &[2, 4][..]));
    assert!(third.abs_diff(*fourth) <= 20, "{hops:?}");
    assert_eq!(next_hops(&[2, 3], "10.1.0.9:5"), [(vec![2, 3], 100)]);
    assert_eq!(next_hops(&[2], "10.1.0.9:5"), [(vec![2, 2], 100)]);
}

#[test]
fn path_to_the_own_region_of_a_rule_for_all_regions_is_not_used() {
    let overlay = SHARED_REGION.replace("from = \"a\"\nto = \"b\"\n", "");
    assert_eq!(next_hops_of(3, &overlay, &[1, 2, 4], "10.1.0.9:5"), [(vec![2, 2], 100)]);
    let hops = next_hops_of(1, &overlay, &[2, 3, 4], "10.1.0.9:5");
    assert!(hops.iter().all(|(hops, _)| hops[0] == 2 && hops[1] > 2), "{hops:?}");
}

#[test]
fn receiver_of_the_own_region_is_refused_if_this_relay_serves_it() {
    let mut relay = Relay::new(RelayId(3), MEMORY_BYTES);
    relay.set_overlay(overlay_file::parse(SHARED_REGION, "overlay.toml").unwrap());
    [1, 2, 4].iter().for_each(|&peer| relay.connect_peer(RelayId(peer)));
    let line = FirstLine::parse(b"weir-flow/2 shuffle 7 0 0 10.2.0.9:5").unwrap();
    assert_eq!(relay.open(&line), Err(Reason::Unreachable));
}
