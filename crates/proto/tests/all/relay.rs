//! Tests that messages of relays are equal after encoding and decoding, and that invalid ones are refused.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use prost::Message;
use weir_proto::Network;
use weir_proto::relay::wire::{self, controller_message, relay_message};
use weir_proto::relay::{
    GroupProgress, MAX_RELAY_COFLOWS, MAX_RELAY_NETWORKS, MAX_RELAY_ORDER_BYTES, MAX_RELAY_REPORT_BYTES,
    MAX_RELAY_RULES, MAX_RELAYS, MAX_REPORTED_GROUPS, MAX_RULE_PATHS, MAX_UNRULED_FLOWS, PathSample,
    RegionPair, RelayCoflow, RelayHello, RelayMatch, RelayOrder, RelayPath, RelayPeer, RelayReport,
    RelayRule, RelayWelcome, RuleScope, UnruledFlow,
};
use weir_proto::{MAX_ID_LENGTH, MAX_LEASE, MessageError};

fn any_match() -> impl Strategy<Value = RelayMatch> {
    let pair = || (0..3u16, 0..3u16).prop_map(|(source, destination)| RegionPair { source, destination });
    let numbers = any::<(u32, u32)>().prop_map(|(a, b)| (a.min(b), a.max(b)));
    let flows = (prop::option::of(pair()), numbers).prop_map(|(pair, (first, last))| RuleScope::Flows {
        pair,
        first,
        last,
    });
    let scope = prop_oneof![Just(RuleScope::Coflow), pair().prop_map(RuleScope::Pair), flows];
    (0..4u32, scope).prop_map(|(coflow, scope)| RelayMatch { coflow, scope })
}

/// The matches that do not overlap with earlier ones.
fn without_overlaps(matches: impl IntoIterator<Item = RelayMatch>) -> Vec<RelayMatch> {
    let mut kept: Vec<RelayMatch> = Vec::new();
    for flows in matches {
        let is_free = kept.last().is_none_or(|former| match (former.scope, flows.scope) {
            (RuleScope::Flows { pair, last, .. }, RuleScope::Flows { pair: other, first, .. }) => {
                former.coflow != flows.coflow || pair != other || last < first
            }
            _ => true,
        });
        if is_free {
            kept.push(flows);
        }
    }
    kept
}

fn any_paths() -> impl Strategy<Value = Vec<RelayPath>> {
    btree_map(any::<u16>(), 1..100u32, 0..4).prop_map(|parts| {
        let sum: u32 = parts.values().sum();
        let path = |(next, part)| RelayPath { next_region: next, fraction: f64::from(part) / f64::from(sum) };
        parts.into_iter().map(path).collect()
    })
}

fn any_networks() -> impl Strategy<Value = Vec<Network>> {
    let network = prop_oneof![
        (any::<u8>(), 8..=32u8).prop_map(|(byte, length)| format!("{byte}.0.0.0/{length}")),
        (any::<u16>(), 16..=128u8).prop_map(|(group, length)| format!("{group:x}::/{length}")),
    ];
    vec(network.prop_map(|text| text.parse().unwrap()), 0..4)
}

fn any_peer() -> impl Strategy<Value = RelayPeer> {
    let address = any::<(IpAddr, u16)>().prop_map(SocketAddr::from);
    (any::<u16>(), "[!-~]{1,9}", address, any_networks(), any::<u16>()).prop_map(
        |(id, name, address, networks, region)| RelayPeer {
            id,
            name: name.into(),
            address,
            networks,
            region,
        },
    )
}

fn any_relay_order() -> impl Strategy<Value = RelayOrder> {
    let head = (any::<(u64, u64, bool)>(), 1..=60_000_000u64);
    let coflow = (any::<u32>(), ("[!-~]{1,9}", "[!-~]{1,9}"));
    let rule = (any_match(), (any::<u16>(), 1e-3..1e3, any_paths()));
    let lists = (
        vec(any_peer(), 0..4),
        btree_map(coflow.0, coflow.1, 0..4),
        btree_set(any::<u32>(), 0..4),
        btree_map(rule.0, rule.1, 0..9),
        btree_set(any_match(), 0..4),
    );
    (head, lists).prop_map(
        |(((epoch, seq, is_full), lease), (peers, coflows, removed, rules, removed_rules))| {
            let peers: BTreeMap<u16, RelayPeer> = peers.into_iter().map(|peer| (peer.id, peer)).collect();
            let coflow = |(number, (name, service)): (u32, (String, String))| RelayCoflow {
                number,
                name: name.into(),
                service: service.into(),
            };
            let rule = |flows: RelayMatch| {
                let (priority, weight, paths) = rules[&flows].clone();
                RelayRule { flows, priority, weight, paths }
            };
            RelayOrder {
                epoch,
                seq,
                lease: Duration::from_micros(lease),
                is_full,
                peers: peers.into_values().collect(),
                coflows: coflows.into_iter().map(coflow).collect(),
                removed_coflows: removed.into_iter().collect(),
                rules: without_overlaps(rules.keys().copied()).into_iter().map(rule).collect(),
                removed_rules: without_overlaps(removed_rules),
            }
        },
    )
}

fn any_path_sample() -> impl Strategy<Value = PathSample> {
    let known = |micros: u32| (micros > 0).then(|| Duration::from_micros(micros.into()));
    (any::<(u16, bool, u64)>(), any::<(u32, u32)>(), any::<[u64; 4]>()).prop_map(
        move |((peer, is_connected, rate), (min_rtt, rtt), counts)| PathSample {
            peer,
            is_connected,
            rate: (rate > 0).then_some(rate),
            min_rtt: known(min_rtt),
            rtt: known(rtt),
            segments: counts[0],
            retransmitted_segments: counts[1],
            sent_bytes: counts[2],
            detoured_bytes: counts[3],
        },
    )
}

fn any_relay_report() -> impl Strategy<Value = RelayReport> {
    let groups = btree_map((0..3u32, any::<u16>(), any::<u16>()), any::<(u64, u32, u64)>(), 0..9);
    let unruled = btree_map((0..3u32, any::<u32>()), any::<u16>(), 0..9);
    (any::<(u64, u64)>(), vec(any_path_sample(), 0..9), groups, unruled, any::<(u64, bool)>()).prop_map(
        |(applied, paths, groups, unruled, (refused_orders, is_draining))| {
            let paths: BTreeMap<u16, PathSample> = paths.into_iter().map(|path| (path.peer, path)).collect();
            let group = |((coflow, source, destination), (acked_bytes, open_flows, detoured_bytes))| {
                GroupProgress { coflow, source, destination, acked_bytes, open_flows, detoured_bytes }
            };
            let flow = |((coflow, flow), destination)| UnruledFlow { coflow, flow, destination };
            RelayReport {
                applied,
                paths: paths.into_values().collect(),
                groups: groups.into_iter().map(group).collect(),
                unruled_flows: unruled.into_iter().map(flow).collect(),
                refused_orders,
                is_draining,
            }
        },
    )
}

fn decode_order(bytes: &[u8]) -> Option<Result<RelayOrder, MessageError>> {
    match wire::ControllerMessage::decode(bytes).ok()?.body? {
        controller_message::Body::Order(order) => Some(order.try_into()),
        controller_message::Body::Welcome(_) => None,
    }
}

fn decode_report(bytes: &[u8]) -> Option<Result<RelayReport, MessageError>> {
    match wire::RelayMessage::decode(bytes).ok()?.body? {
        relay_message::Body::Report(report) => Some(report.try_into()),
        relay_message::Body::Hello(_) => None,
    }
}

fn damage(bytes: &mut [u8], at: prop::sample::Index, byte: u8) {
    if !bytes.is_empty() {
        bytes[at.index(bytes.len())] = byte;
    }
}

proptest! {
    #[test]
    fn relay_orders_survive_encoding(order in any_relay_order()) {
        let bytes = wire::ControllerMessage::from(&order).encode_to_vec();
        prop_assert_eq!(decode_order(&bytes), Some(Ok(order)));
    }

    #[test]
    fn relay_reports_survive_encoding(report in any_relay_report()) {
        let bytes = wire::RelayMessage::from(&report).encode_to_vec();
        prop_assert_eq!(decode_report(&bytes), Some(Ok(report)));
    }

    #[test]
    fn damaged_relay_messages_are_refused_or_valid(
        order in any_relay_order(), report in any_relay_report(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        garbage in vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = wire::ControllerMessage::from(&order).encode_to_vec();
        damage(&mut bytes, at, byte);
        for bytes in [&bytes, &garbage] {
            let Some(Ok(order)) = decode_order(bytes) else { continue };
            prop_assert!(order.rules.windows(2).all(|pair| pair[0].flows < pair[1].flows));
            for rule in &order.rules {
                let sum: f64 = rule.paths.iter().map(|path| path.fraction).sum();
                prop_assert!(rule.paths.is_empty() || (sum - 1.0).abs() < 1e-5);
            }
            prop_assert!(!order.lease.is_zero() && order.lease <= MAX_LEASE);
        }
        let mut bytes = wire::RelayMessage::from(&report).encode_to_vec();
        damage(&mut bytes, at, byte);
        for bytes in [&bytes, &garbage] {
            let Some(Ok(report)) = decode_report(bytes) else { continue };
            prop_assert!(report.paths.windows(2).all(|pair| pair[0].peer < pair[1].peer));
        }
    }
}

#[test]
fn relay_hello_and_welcome_survive_encoding() {
    let hello = RelayHello::new("eu-1");
    let Some(relay_message::Body::Hello(encoded)) = wire::RelayMessage::from(&hello).body else { panic!() };
    assert_eq!(RelayHello::try_from(encoded.clone()), Ok(hello));
    let nameless = wire::RelayHello { name: String::new(), ..encoded };
    assert_eq!(RelayHello::try_from(nameless), Err(MessageError::Id));
    let welcome = RelayWelcome { id: 7, report_interval: Duration::from_millis(100), version: 1 };
    let Some(controller_message::Body::Welcome(encoded)) = wire::ControllerMessage::from(&welcome).body
    else {
        panic!()
    };
    assert_eq!(RelayWelcome::try_from(encoded), Ok(welcome));
    for invalid in [
        wire::RelayWelcome { id: 65_536, ..encoded },
        wire::RelayWelcome { report_interval_us: 0, ..encoded },
        wire::RelayWelcome { version: 2, ..encoded },
    ] {
        assert!(RelayWelcome::try_from(invalid).is_err(), "{invalid:?}");
    }
    let later = RelayWelcome::try_from(wire::RelayWelcome { version: 2, ..encoded });
    assert_eq!(later.unwrap_err().to_string(), "version is invalid; expected a version of the hello");
}

#[test]
fn relay_versions_need_an_overlap() {
    let common_version = |min_version, max_version| {
        RelayHello { min_version, max_version, ..RelayHello::new("a") }.common_version()
    };
    assert_eq!(common_version(1, 1), Some(1));
    assert_eq!(common_version(0, 9), Some(1));
    assert_eq!(common_version(2, 3), None);
    assert_eq!(common_version(0, 0), None);
    assert_eq!(common_version(1, 0), None);
}

fn rule(paths: &[(u32, f64)]) -> wire::RelayRule {
    let path = |&(next, fraction): &(u32, f64)| wire::RelayPath { next_region: next, fraction };
    wire::RelayRule {
        r#match: Some(wire::RelayMatch::default()),
        priority: 0,
        weight: 1.0,
        paths: paths.iter().map(path).collect(),
    }
}

#[test]
fn malformed_relay_orders_are_refused() {
    let order = wire::RelayOrder { lease_us: 1, ..wire::RelayOrder::default() };
    let with_rules = |rules| wire::RelayOrder { rules, ..order.clone() };
    let with_match = |found| with_rules(vec![wire::RelayRule { r#match: found, ..rule(&[]) }]);
    let peer = wire::RelayPeer {
        id: 0,
        name: "a".to_owned(),
        address: "10.0.0.1:1".to_owned(),
        networks: vec!["10.0.0.0/8".to_owned()],
        region: 0,
    };
    let with_peer = |peer| wire::RelayOrder { peers: vec![peer], ..order.clone() };
    let coflow = wire::RelayCoflow { number: 1, name: "a".to_owned(), service: "b".to_owned() };
    let with_coflows = |coflows| wire::RelayOrder { coflows, ..order.clone() };
    let split = wire::RelayMatch { source_region: Some(1), ..wire::RelayMatch::default() };
    let unbounded = wire::RelayMatch { first_flow: Some(1), ..wire::RelayMatch::default() };
    let range = |first, last| wire::RelayMatch {
        first_flow: Some(first),
        last_flow: Some(last),
        ..wire::RelayMatch::default()
    };
    let between = |flows| wire::RelayMatch { source_region: Some(1), destination_region: Some(2), ..flows };
    let with_matches = |matches: &[wire::RelayMatch]| {
        let rule = |&flows| wire::RelayRule { r#match: Some(flows), ..rule(&[]) };
        with_rules(matches.iter().map(rule).collect())
    };
    let too_many_paths: Vec<(u32, f64)> =
        (0..=MAX_RULE_PATHS as u32).map(|next| (next, 1.0 / (MAX_RULE_PATHS as f64 + 1.0))).collect();
    for valid in [
        with_rules(vec![rule(&[(1, 0.25), (2, 0.75)])]),
        with_peer(peer.clone()),
        with_coflows(vec![coflow.clone()]),
        with_matches(&[range(0, 0), range(1, u32::MAX), between(range(0, 7)), between(range(8, 8))]),
    ] {
        assert!(RelayOrder::try_from(valid).is_ok());
    }
    for invalid in [
        wire::RelayOrder::default(),
        wire::RelayOrder { lease_us: 60_000_001, ..order.clone() },
        with_match(None),
        with_match(Some(split)),
        with_match(Some(unbounded)),
        with_match(Some(range(2, 1))),
        with_match(Some(wire::RelayMatch { source_region: Some(65_536), ..between(range(0, 1)) })),
        with_matches(&[range(0, 5), range(5, 6)]),
        with_matches(&[between(range(0, 5)), between(range(5, 6))]),
        with_matches(&[between(range(0, 5)), range(6, 6)]),
        wire::RelayOrder { removed_rules: vec![range(0, 5), range(5, 6)], ..order.clone() },
        with_rules(vec![rule(&[]), rule(&[])]),
        with_rules(vec![wire::RelayRule { priority: 65_536, ..rule(&[]) }]),
        with_rules(vec![wire::RelayRule { weight: f64::NAN, ..rule(&[]) }]),
        with_rules(vec![wire::RelayRule { weight: 0.0, ..rule(&[]) }]),
        with_rules(vec![rule(&[(1, 0.5)])]),
        with_rules(vec![rule(&[(1, 0.5), (2, 0.6)])]),
        with_rules(vec![rule(&[(1, 0.5), (1, 0.5)])]),
        with_rules(vec![rule(&[(2, 0.5), (1, 0.5)])]),
        with_rules(vec![rule(&[(1, f64::NAN)])]),
        with_rules(vec![rule(&[(1, -1.0), (2, 2.0)])]),
        with_rules(vec![rule(&[(65_536, 1.0)])]),
        with_rules(vec![rule(&too_many_paths)]),
        with_rules(vec![rule(&[]); MAX_RELAY_RULES + 1]),
        with_peer(wire::RelayPeer { id: 65_536, ..peer.clone() }),
        with_peer(wire::RelayPeer { name: "a b".to_owned(), ..peer.clone() }),
        with_peer(wire::RelayPeer { address: "10.0.0.1".to_owned(), ..peer.clone() }),
        with_peer(wire::RelayPeer { networks: vec!["10.0.0.1/8".to_owned()], ..peer.clone() }),
        with_peer(wire::RelayPeer { region: 65_536, ..peer.clone() }),
        wire::RelayOrder { peers: vec![peer.clone(), peer], ..order.clone() },
        with_coflows(vec![wire::RelayCoflow { name: String::new(), ..coflow.clone() }]),
        with_coflows(vec![wire::RelayCoflow { service: "x".repeat(MAX_ID_LENGTH + 1), ..coflow.clone() }]),
        with_coflows(vec![coflow.clone(), coflow]),
        wire::RelayOrder { removed_coflows: vec![2, 1], ..order },
    ] {
        assert!(RelayOrder::try_from(invalid.clone()).is_err(), "{invalid:?}");
    }
}

#[test]
fn invalid_rules_are_refused_with_their_field() {
    let error = |rule| {
        let rules = vec![rule];
        let order = wire::RelayOrder { lease_us: 1, rules, ..wire::RelayOrder::default() };
        RelayOrder::try_from(order).unwrap_err().to_string()
    };
    let fractions = "fractions of a rule is invalid; expected a sum of 1";
    let fraction = "fraction of a path is invalid; expected a number above 0 and at most 1";
    assert_eq!(error(rule(&[(1, 0.5), (2, 0.6)])), fractions);
    assert_eq!(error(rule(&[(1, 0.25), (2, 0.25)])), fractions);
    assert_eq!(error(rule(&[(1, -1.0), (2, 2.0)])), fraction);
    assert_eq!(error(rule(&[(1, f64::NAN)])), fraction);
    let twice = "paths of a rule: not sorted; expected increasing entries, each once";
    assert_eq!(error(rule(&[(1, 0.5), (1, 0.5)])), twice);
    let weight = "weight is invalid; expected a finite number above 0";
    assert_eq!(error(wire::RelayRule { weight: f64::INFINITY, ..rule(&[]) }), weight);
    let priority = "priority is invalid; expected a number of at most 65535";
    assert_eq!(error(wire::RelayRule { priority: 65_536, ..rule(&[]) }), priority);
}

/// Appends fields of a later version to an encoded message: a number, and text.
fn with_unknown_fields(mut bytes: Vec<u8>) -> Vec<u8> {
    // Field 100 with the type 0, and field 101 with the type 2.
    bytes.extend([0xa0, 0x06, 7, 0xaa, 0x06, 3, b'n', b'e', b'w']);
    bytes
}

#[test]
fn fields_of_later_versions_are_ignored() {
    let peer = wire::RelayPeer {
        id: 1,
        name: "a".to_owned(),
        address: "10.0.0.1:1".to_owned(),
        networks: vec![],
        region: 0,
    };
    let order = wire::RelayOrder { lease_us: 1, peers: vec![peer], ..wire::RelayOrder::default() };
    let report = wire::RelayReport { refused_orders: 3, ..wire::RelayReport::default() };
    let hello = wire::RelayHello { name: "a".to_owned(), min_version: 1, max_version: 2 };
    let decoded = wire::RelayOrder::decode(&with_unknown_fields(order.encode_to_vec())[..]).unwrap();
    assert_eq!(RelayOrder::try_from(decoded), RelayOrder::try_from(order));
    let decoded = wire::RelayReport::decode(&with_unknown_fields(report.encode_to_vec())[..]).unwrap();
    assert_eq!(RelayReport::try_from(decoded), RelayReport::try_from(report));
    let decoded = wire::RelayHello::decode(&with_unknown_fields(hello.encode_to_vec())[..]).unwrap();
    assert_eq!(RelayHello::try_from(decoded).unwrap().common_version(), Some(1));
    // Earlier versions have rules by relays in other fields: one that is set, one that is removed.
    let old_rules = [0x42, 4, 0x0a, 2, 0x10, 7, 0x4a, 2, 0x10, 7];
    let mut bytes = wire::RelayOrder { lease_us: 1, ..wire::RelayOrder::default() }.encode_to_vec();
    bytes.extend(old_rules);
    let decoded = RelayOrder::try_from(wire::RelayOrder::decode(&bytes[..]).unwrap()).unwrap();
    assert!(decoded.rules.is_empty() && decoded.removed_rules.is_empty());
    // A report without the fields of this version.
    let old = wire::GroupProgress { acked_bytes: 5, ..wire::GroupProgress::default() };
    assert_eq!(old.detoured_bytes, 0);
    // A message of a kind of a later version has no body.
    let message = wire::ControllerMessage::decode(&with_unknown_fields(vec![])[..]).unwrap();
    assert_eq!(message.body, None);
}

#[test]
fn malformed_relay_reports_are_refused() {
    let path = wire::PathSample { peer: 1, ..wire::PathSample::default() };
    let group = wire::GroupProgress { coflow: 1, ..wire::GroupProgress::default() };
    let flow = wire::UnruledFlow { coflow: 1, ..wire::UnruledFlow::default() };
    let none = wire::RelayReport::default();
    for invalid in [
        wire::RelayReport { paths: vec![path, path], ..none.clone() },
        wire::RelayReport { paths: vec![wire::PathSample { peer: 65_536, ..path }], ..none.clone() },
        wire::RelayReport { groups: vec![group, group], ..none.clone() },
        wire::RelayReport { groups: vec![wire::GroupProgress { source: 65_536, ..group }], ..none.clone() },
        wire::RelayReport { unruled_flows: vec![flow, flow], ..none.clone() },
        wire::RelayReport { paths: vec![path; MAX_RELAYS + 1], ..none.clone() },
        wire::RelayReport { groups: vec![group; MAX_REPORTED_GROUPS + 1], ..none.clone() },
        wire::RelayReport { unruled_flows: vec![flow; MAX_UNRULED_FLOWS + 1], ..none },
    ] {
        assert!(RelayReport::try_from(invalid).is_err());
    }
}

/// The largest messages are within the length limits.
#[test]
fn largest_relay_messages_fit_their_limits() {
    let id: std::sync::Arc<str> = "x".repeat(MAX_ID_LENGTH).into();
    let network: Network = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128".parse().unwrap();
    let peer = |id_number: usize| RelayPeer {
        id: id_number as u16,
        name: id.clone(),
        address: "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap(),
        networks: vec![network; MAX_RELAY_NETWORKS],
        region: u16::MAX,
    };
    let number = |at: usize| u32::MAX - at as u32;
    let flows = |at| RelayMatch {
        coflow: number(at),
        scope: RuleScope::Flows {
            pair: Some(RegionPair { source: u16::MAX, destination: u16::MAX }),
            first: u32::MAX,
            last: u32::MAX,
        },
    };
    let path = RelayPath { next_region: u16::MAX, fraction: 1.0 };
    let rule = |at| RelayRule {
        flows: flows(at),
        priority: u16::MAX,
        weight: 1.0,
        paths: vec![path; MAX_RULE_PATHS],
    };
    let coflow = |at| RelayCoflow { number: number(at), name: id.clone(), service: id.clone() };
    let order = RelayOrder {
        epoch: u64::MAX,
        seq: u64::MAX,
        lease: MAX_LEASE,
        is_full: true,
        peers: (0..MAX_RELAYS).map(peer).collect(),
        coflows: (0..MAX_RELAY_COFLOWS).map(coflow).collect(),
        removed_coflows: (0..MAX_RELAY_COFLOWS).map(number).collect(),
        rules: (0..MAX_RELAY_RULES).map(rule).collect(),
        removed_rules: (0..MAX_RELAY_RULES).map(flows).collect(),
    };
    let length = wire::ControllerMessage::from(&order).encoded_len();
    assert!(length <= MAX_RELAY_ORDER_BYTES, "{length} bytes");
    let time = Some(Duration::from_micros(u32::MAX.into()));
    let path = PathSample {
        peer: u16::MAX,
        is_connected: true,
        rate: Some(u64::MAX),
        min_rtt: time,
        rtt: time,
        segments: u64::MAX,
        retransmitted_segments: u64::MAX,
        sent_bytes: u64::MAX,
        detoured_bytes: u64::MAX,
    };
    let (coflow, destination) = (u32::MAX, u16::MAX);
    let group = GroupProgress {
        coflow,
        source: u16::MAX,
        destination,
        acked_bytes: u64::MAX,
        open_flows: u32::MAX,
        detoured_bytes: u64::MAX,
    };
    let report = RelayReport {
        applied: (u64::MAX, u64::MAX),
        paths: vec![path; MAX_RELAYS],
        groups: vec![group; MAX_REPORTED_GROUPS],
        unruled_flows: vec![UnruledFlow { coflow, flow: u32::MAX, destination }; MAX_UNRULED_FLOWS],
        refused_orders: u64::MAX,
        is_draining: true,
    };
    let length = wire::RelayMessage::from(&report).encoded_len();
    assert!(length <= MAX_RELAY_REPORT_BYTES, "{length} bytes");
}
