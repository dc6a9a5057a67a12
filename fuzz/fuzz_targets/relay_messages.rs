//! A relay does not panic on any messages of another relay, and bounds the memory that they use.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use weir_proto::relay::{RelayCoflow, RelayOrder, RelayPeer};
use weir_relay::message::{HEADER_BYTES, Header, RelayId};
use weir_relay::overlay::Overlay;
use weir_relay::relay::{Incoming, Lane, Relay};

const MEMORY_BYTES: u64 = 4 << 20;

fn overlay() -> Overlay {
    let peer = |id: u16| RelayPeer {
        id,
        name: format!("relay-{id}").into(),
        address: ([127, 0, 0, id as u8], 7710).into(),
        networks: vec![format!("10.{id}.0.0/16").parse().expect("a network")],
        region: id,
    };
    let mut overlay = Overlay::default();
    overlay.apply(&RelayOrder {
        is_full: true,
        peers: (0..4).map(peer).collect(),
        coflows: vec![RelayCoflow { number: 0, name: "shuffle".into(), service: "default".into() }],
        ..RelayOrder::default()
    });
    overlay
}

fuzz_target!(|input: &[u8]| {
    let mut relay = Relay::new(RelayId(1), MEMORY_BYTES);
    relay.set_overlay(overlay());
    for peer in [0, 2, 3] {
        relay.connect_peer(RelayId(peer));
    }
    let mut rest = input;
    while let Some((head, tail)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let mut bytes = *head;
        // Small numbers reach existing flows.
        bytes[8..11].fill(0);
        bytes[12..15].fill(0);
        let checksum = crc32c::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&checksum.to_be_bytes());
        rest = tail;
        let Ok(header) = Header::decode(&bytes) else { continue };
        let incoming = relay.receive(RelayId(2), &header);
        let length = header.length as usize;
        let payload = Bytes::from(rest.get(..length).map_or_else(|| vec![0; length], <[u8]>::to_vec));
        match incoming {
            Incoming::Store => relay.receive_payload(RelayId(2), &header, payload),
            Incoming::Deliver(key) => {
                relay.receive_rest(key, payload);
                relay.finish_delivery(key);
            }
            Incoming::Discard => {}
        }
        while relay.next_event().is_some() {}
        let (waiting, granted) = relay.used_bytes();
        assert!(granted <= MEMORY_BYTES / 2 && waiting <= MEMORY_BYTES / 2 + (2 << 20));
    }
    for peer in [0, 2, 3].map(RelayId) {
        while relay.next_control(peer).is_some() {}
        while relay.next_data(peer, Lane::Bulk).is_some() {}
    }
});
