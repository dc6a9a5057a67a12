//! Tests that messages are equal after encoding and decoding, and that invalid ones are refused.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use prost::Message;
use weir_proto::{
    Answer, ApplicationTraffic, BandwidthLimit, Conflict, ConflictReason, ConnectionChange, Demand, FlowKey,
    FlowProgress, FlowSegments, Limit, MAX_CONFLICTS, MAX_HOST_NETWORKS, MAX_ID_LENGTH, MAX_OBSERVED,
    MAX_REPORT_BYTES, MAX_REPORTED_FLOWS, MAX_REPORTED_SEGMENTS, MAX_SWITCH_PORTS, MAX_TRAFFIC_RULES,
    MAX_UDP_FLOWS, Mark, MatchedFlow, MatchingOrder, MatchingReport, MessageError, Network,
    ObservedConnections, Order, OrderedRate, Question, Queues, RateBounds, RefusedOrders, Report,
    RestoredObjects, SenderState, UdpControl, UdpFlow, UdpLimit, UdpMeasurement, UnclassifiedShare,
    UnscheduledReason, wire,
};

fn any_flow_key() -> impl Strategy<Value = FlowKey> {
    ("[!-~]{1,3}", prop_oneof![1..3u64, 1..=u64::MAX], prop_oneof![0..4u32, any::<u32>()])
        .prop_map(|(coflow, generation, flow)| FlowKey { coflow: coflow.into(), generation, flow })
}

fn any_ordered_rate() -> impl Strategy<Value = OrderedRate> {
    prop_oneof![
        Just(OrderedRate::Removed),
        Just(OrderedRate::Unlimited),
        Just(OrderedRate::Paused),
        (1..u64::MAX - 1).prop_map(OrderedRate::Rate)
    ]
}

fn any_flow_rate() -> impl Strategy<Value = OrderedRate> {
    prop_oneof![4 => any_ordered_rate(), 1 => (1..u64::MAX - 1).prop_map(OrderedRate::Reserve)]
}

fn any_unscheduled() -> impl Strategy<Value = Vec<(FlowKey, UnscheduledReason)>> {
    let reason = prop_oneof![
        Just(UnscheduledReason::UnknownCoflow),
        Just(UnscheduledReason::UnknownFlow),
        Just(UnscheduledReason::ForeignFlow),
        Just(UnscheduledReason::FormerRegistration),
        Just(UnscheduledReason::Completed)
    ];
    btree_map(any_flow_key(), reason, 0..20).prop_map(|flows| flows.into_iter().collect())
}

fn any_queues() -> impl Strategy<Value = Queues> {
    let at = any::<prop::sample::Index>;
    let classes = btree_map("[!-~]{1,3}", at(), 0..4);
    let unclassified = (0.001..=0.999, 1e-3..1e3);
    let bounds = vec((0..3u64, prop_oneof![Just(None), (1..9u64).prop_map(Some)]), 3);
    let bounds = prop_oneof![Just(Vec::new()), bounds];
    (vec(1e-3..1e3, 1..4), vec(at(), 1..5), classes, any::<bool>(), unclassified, bounds).prop_map(
        |(weights, queue_of, classes, guaranteed, (fraction, weight), bounds)| {
            let queue_of: Vec<u32> = queue_of.into_iter().map(|at| at.index(weights.len()) as u32).collect();
            let class = |(name, at): (String, prop::sample::Index)| {
                (name.into(), at.index(queue_of.len() + 1) as u32)
            };
            let classes = classes.into_iter().map(class).collect();
            let unclassified = UnclassifiedShare { fraction, weight };
            let bounds = bounds.into_iter().take(weights.len());
            let rate_bounds: Vec<RateBounds> = bounds.map(|(min, max)| RateBounds { min, max }).collect();
            let has_bounds = rate_bounds.iter().any(|bounds| *bounds != RateBounds::default());
            Queues {
                weights,
                queue_of_class: queue_of,
                class_of_application: classes,
                guaranteed,
                unclassified,
                rate_bounds: if has_bounds { rate_bounds } else { Vec::new() },
            }
        },
    )
}

fn any_udp_measurements() -> impl Strategy<Value = Vec<UdpMeasurement>> {
    let to_flow =
        |(src, dst, mark): (IpAddr, IpAddr, u8)| UdpFlow { src, dst, mark: Mark::new(mark).unwrap() };
    let few_sources = (0..3u32).prop_map(|bits| IpAddr::from(Ipv4Addr::from(bits)));
    let flows = (prop_oneof![few_sources, any_peer()], any_peer(), 1..=63u8).prop_map(to_flow);
    btree_map(flows, any::<u64>(), 0..20).prop_map(|measurements| {
        measurements.into_iter().map(|(flow, rate)| UdpMeasurement { flow, rate }).collect()
    })
}

fn any_udp_limits() -> impl Strategy<Value = Vec<UdpLimit>> {
    let limit = |UdpMeasurement { flow, rate }| UdpLimit { flow, rate: rate.max(1) };
    any_udp_measurements().prop_map(move |rates| rates.into_iter().map(limit).collect())
}

fn any_peer() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::from(Ipv4Addr::from(bits))),
        any::<u128>().prop_map(|bits| Ipv6Addr::from(bits).to_canonical()),
    ]
}

fn any_limits() -> impl Strategy<Value = Vec<Limit>> {
    let limit = |((application, peer), rate): ((String, IpAddr), OrderedRate)| Limit {
        application: application.into(),
        peer,
        rate,
    };
    let rate = any_ordered_rate().prop_filter("limits are not paused", |rate| *rate != OrderedRate::Paused);
    btree_map(("[!-~]{1,3}", any_peer()), rate, 0..20)
        .prop_map(move |limits| limits.into_iter().map(limit).collect())
}

fn any_demand() -> impl Strategy<Value = Demand> {
    prop_oneof![Just(Demand::Unknown), Just(Demand::Unlimited), (0..u64::MAX - 1).prop_map(Demand::Rate)]
}

fn any_bandwidth_limit() -> impl Strategy<Value = Option<BandwidthLimit>> {
    (0.0..=1.0).prop_map(BandwidthLimit::new)
}

fn any_traffic() -> impl Strategy<Value = Option<Vec<ApplicationTraffic>>> {
    let rules = (vec("[!-~]{1,9}", 0..3), vec(1..=u16::MAX, 0..3));
    let traffic = |(application, (cgroups, ports)): (String, _)| ApplicationTraffic {
        application: application.into(),
        cgroups,
        ports,
    };
    let list = btree_map("[!-~]{1,3}", rules, 0..4);
    prop::option::of(list.prop_map(move |list| list.into_iter().map(traffic).collect()))
}

fn any_matching_order() -> impl Strategy<Value = MatchingOrder> {
    let parameters = (1..=u32::MAX, 0.0..=1.0, 0.0..=1.0, 0.0..=1.0);
    let flows = btree_map((0..4u64, 0..4u32), (any::<u64>(), 0..=u32::MAX / 2), 0..9);
    let to_flow =
        |((coflow, flow), (remaining_bytes, version))| MatchedFlow { coflow, flow, remaining_bytes, version };
    let answers = btree_map(any::<u64>(), (any::<u32>(), vec(any::<u32>(), 0..4)), 0..4);
    let to_answer = |(coflow, (number, candidates))| Answer { coflow, number, candidates };
    (parameters, flows, btree_map(any::<u64>(), any::<u64>(), 0..4), answers).prop_map(
        move |((max_connections, alpha, beta, eta), flows, coflows, answers)| MatchingOrder {
            max_connections,
            alpha,
            beta,
            eta,
            flows: flows.into_iter().map(to_flow).collect(),
            coflows: coflows.into_iter().collect(),
            answers: answers.into_iter().map(to_answer).collect(),
        },
    )
}

fn any_matching_report() -> impl Strategy<Value = MatchingReport> {
    let questions = (btree_map(any::<u64>(), any::<u32>(), 0..5), any::<prop::sample::Index>());
    let changes = btree_map((0..4u64, 0..4u32), 1..=u32::MAX / 2, 0..9);
    let to_change = |((coflow, flow), version)| ConnectionChange { coflow, flow, version };
    let sending = btree_map((0..4u64, 0..4u32), any::<(u32, u32)>(), 0..9);
    let to_segments = |((coflow, flow), (a, b)): (_, (u32, u32))| FlowSegments {
        coflow,
        flow,
        segments: a.max(b),
        retransmitted: a.min(b),
    };
    let parts = (any::<(u64, u64)>(), questions, changes, sending);
    parts.prop_map(move |((uplink, downlink), asked, changes, sending)| {
        let (questions, prioritized) = asked;
        // The last position stands for no reducer with priority.
        let prioritized = prioritized.index(questions.len() + 1);
        let to_question = |(at, (coflow, number))| {
            let is_prioritized = at == prioritized;
            Question { coflow, number, is_prioritized }
        };
        MatchingReport {
            vacant_uplink: uplink,
            vacant_downlink: downlink,
            questions: questions.into_iter().enumerate().map(to_question).collect(),
            changes: changes.into_iter().map(to_change).collect(),
            segments: sending.into_iter().map(to_segments).collect(),
        }
    })
}

#[test]
fn malformed_matching_is_refused() {
    let change = |coflow, version| ConnectionChange { coflow, flow: 1, version };
    let report = |changes| MatchingReport { changes, ..MatchingReport::default() };
    let decode = |report: &MatchingReport| MatchingReport::try_from(wire::MatchingReport::from(report));
    assert_eq!(
        decode(&report(vec![change(2, 1), change(1, 1)])),
        Err(MessageError::Unsorted("changed connections"))
    );
    assert_eq!(
        decode(&report(vec![change(1, 1), change(1, 2)])),
        Err(MessageError::Unsorted("changed connections"))
    );
    assert!(matches!(decode(&report(vec![change(1, 0)])), Err(MessageError::Invalid { .. })));
    assert!(matches!(decode(&report(vec![change(1, u32::MAX)])), Err(MessageError::Invalid { .. })));
    let sent = |flow, segments, retransmitted| FlowSegments { coflow: 1, flow, segments, retransmitted };
    let sending = |segments| MatchingReport { segments, ..MatchingReport::default() };
    assert_eq!(
        decode(&sending(vec![sent(2, 1, 1), sent(1, 1, 1)])),
        Err(MessageError::Unsorted("sending flows"))
    );
    assert!(matches!(decode(&sending(vec![sent(2, 1, 2)])), Err(MessageError::Invalid { .. })));
    let good = wire::MatchingReport {
        sending_coflows: vec![1],
        sending_flows: vec![1],
        segments: vec![2],
        retransmitted: vec![1],
        ..wire::MatchingReport::from(&report(vec![change(1, 1)]))
    };
    assert!(MatchingReport::try_from(good.clone()).is_ok());
    for bad in [
        wire::MatchingReport { sending_coflows: vec![1, 2], ..good.clone() },
        wire::MatchingReport { sending_flows: Vec::new(), ..good.clone() },
        wire::MatchingReport { segments: vec![2, 2], ..good.clone() },
        wire::MatchingReport { retransmitted: Vec::new(), ..good.clone() },
        wire::MatchingReport { versions: vec![1, 2], ..good.clone() },
        wire::MatchingReport { changed_flows: Vec::new(), ..good.clone() },
        wire::MatchingReport { asking_coflows: vec![1], ..good.clone() },
        wire::MatchingReport { prioritized: 1, ..good.clone() },
        wire::MatchingReport { asking_coflows: vec![2, 2], question_numbers: vec![1, 1], ..good },
    ] {
        assert!(MatchingReport::try_from(bad.clone()).is_err(), "{bad:?}");
    }
    let order = MatchingOrder {
        max_connections: 11,
        answers: vec![Answer { coflow: 3, number: 1, candidates: vec![4, 2] }],
        coflows: vec![(1, 5), (3, 0)],
        ..MatchingOrder::default()
    };
    let good = wire::MatchingOrder::from(&order);
    assert_eq!(MatchingOrder::try_from(good.clone()), Ok(order));
    for bad in [
        wire::MatchingOrder { max_connections: 0, ..good.clone() },
        wire::MatchingOrder { alpha: f64::NAN, ..good.clone() },
        wire::MatchingOrder { eta: 1.5, ..good.clone() },
        wire::MatchingOrder { candidate_counts: vec![1], ..good.clone() },
        wire::MatchingOrder { candidate_counts: vec![u32::MAX], ..good.clone() },
        wire::MatchingOrder { answer_numbers: Vec::new(), ..good.clone() },
        wire::MatchingOrder { coflow_bytes: vec![1], ..good.clone() },
        wire::MatchingOrder { versions: vec![1], ..good },
    ] {
        assert!(MatchingOrder::try_from(bad.clone()).is_err(), "{bad:?}");
    }
}

fn any_order() -> impl Strategy<Value = Order> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u32>(), any::<bool>(), any::<bool>());
    let queues = btree_map(any::<u32>(), any_queues(), 0..4);
    (
        numbers,
        btree_map(any_flow_key(), any_flow_rate(), 0..20),
        queues,
        any_udp_measurements(),
        (
            any_limits(),
            any_udp_limits(),
            any_unscheduled(),
            any_traffic(),
            any_bandwidth_limit(),
            any::<bool>(),
        ),
        proptest::option::of(any_matching_order()),
    )
        .prop_map(
            |((epoch, seq, lease, is_full, is_early), flows, queues, udp_measurements, changes, matching)| {
                let (limits, udp_limits, unscheduled, traffic, bandwidth_limit, without_queues) = changes;
                Order {
                    epoch,
                    seq,
                    lease: Duration::from_micros(u64::from(lease)),
                    is_full,
                    is_early,
                    flows: flows.into_iter().collect(),
                    queues: queues.into_iter().collect(),
                    udp_measurements,
                    udp_limits,
                    limits,
                    unscheduled,
                    traffic,
                    bandwidth_limit,
                    matching,
                    without_queues,
                }
            },
        )
}

fn any_report() -> impl Strategy<Value = Report> {
    let to_progress =
        |(key, (sent, state, gated, udp, demand))| FlowProgress { key, sent, state, gated, udp, demand };
    let state = prop_oneof![
        Just(SenderState::Ready),
        Just(SenderState::Idle),
        Just(SenderState::Lost),
        Just(SenderState::Completed)
    ];
    let flow = (any::<u64>(), state, any::<bool>(), any::<bool>(), any::<Option<u64>>());
    let flows = btree_map(any_flow_key(), flow, 0..20);
    let observed = btree_map(("[!-~]{1,3}", any_peer()), (any::<(u32, u64)>(), any_demand()), 0..20);
    let to_observed = |((application, peer), (counts, demand)): ((String, IpAddr), ((u32, u64), Demand))| {
        let (application, (open_connections, sent_bytes)) = (application.into(), counts);
        ObservedConnections { application, peer, open_connections, sent_bytes, demand }
    };
    let refused_orders =
        prop_oneof![Just([0; 4]), any::<[u64; 4]>()].prop_map(|[stale_epoch, gap, flows, classes]| {
            RefusedOrders { stale_epoch, gap, flows, classes, ..RefusedOrders::default() }
        });
    let restored_objects =
        any::<[u64; 3]>().prop_map(|[queues, programs, maps]| RestoredObjects { queues, programs, maps });
    let reason = (0..ConflictReason::ALL.len()).prop_map(|at| ConflictReason::ALL[at]);
    let conflict = ("[a-z]{1,15}", reason, ".{0,60}")
        .prop_map(|(name, reason, text)| Conflict::new(&name, reason, &text));
    let conflicts = prop::collection::vec(conflict, 0..4);
    let matching = proptest::option::of(any_matching_report());
    let links_down = prop::collection::btree_set(any::<u32>(), 0..4);
    let agent = (refused_orders, restored_objects, conflicts, any_bandwidth_limit(), matching, links_down);
    (any::<(u64, u64)>(), flows, observed, any_udp_measurements(), agent).prop_map(
        move |(applied, flows, observed, udp_measurements, agent): (
            _,
            BTreeMap<_, _>,
            BTreeMap<_, _>,
            _,
            _,
        )| {
            let (refused_orders, restored_objects, conflicts, bandwidth_limit, matching, links_down) = agent;
            Report {
                applied,
                flows: flows.into_iter().map(to_progress).collect(),
                observed: observed.into_iter().map(to_observed).collect(),
                udp_measurements,
                refused_orders,
                restored_objects,
                conflicts,
                bandwidth_limit,
                matching,
                links_down: links_down.into_iter().collect(),
            }
        },
    )
}

proptest! {
    #[test]
    fn orders_survive_encoding(order in any_order()) {
        let bytes = wire::Order::from(&order).encode_to_vec();
        prop_assert_eq!(Order::try_from(wire::Order::decode(&bytes[..]).unwrap()), Ok(order));
    }

    #[test]
    fn reports_survive_encoding(report in any_report()) {
        let bytes = wire::Report::from(&report).encode_to_vec();
        prop_assert_eq!(Report::try_from(wire::Report::decode(&bytes[..]).unwrap()), Ok(report));
    }

    /// A damaged message is refused, or its lists are sorted and unique.
    #[test]
    fn damaged_reports_are_refused_or_sorted(report in any_report(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = wire::Report::from(&report).encode_to_vec();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let Ok(damaged) = wire::Report::decode(&bytes[..]) else { return Ok(()) };
        let Ok(report) = Report::try_from(damaged) else { return Ok(()) };
        prop_assert!(report.flows.windows(2).all(|pair| pair[0].key < pair[1].key));
        let key = |entry: &ObservedConnections| (entry.application.clone(), entry.peer);
        prop_assert!(report.observed.windows(2).all(|pair| key(&pair[0]) < key(&pair[1])));
        prop_assert!(report.udp_measurements.windows(2).all(|pair| pair[0].flow < pair[1].flow));
    }
}

fn encoded_flow_keys(coflows: &str, counts: &[u32], flow_indices: &[u32]) -> Option<wire::FlowKeys> {
    Some(wire::FlowKeys {
        coflows: coflows.to_owned(),
        flow_counts: counts.to_vec(),
        flow_indices: flow_indices.to_vec(),
        generations: vec![1; counts.len()],
    })
}

#[test]
fn malformed_reports_are_refused() {
    let report = |coflows, counts: &[u32], flow_indices: &[u32]| {
        let sent_bytes = vec![0; flow_indices.len()];
        wire::Report {
            flows: encoded_flow_keys(coflows, counts, flow_indices),
            sent_bytes,
            ..wire::Report::default()
        }
    };
    let observed_report = |applications: &str, peers: &[u32], addresses: usize, open: &[u32]| wire::Report {
        observed_applications: applications.to_owned(),
        observed_peer_counts: peers.to_vec(),
        observed_addresses: vec![1; 16 * addresses],
        observed_connections: open.to_vec(),
        observed_sent_bytes: vec![0; open.len()],
        ..wire::Report::default()
    };
    let long = "x".repeat(MAX_ID_LENGTH + 1);
    let of_generations = |coflows, generations: &[u64]| {
        let mut report = report(coflows, &vec![1; generations.len()], &vec![0; generations.len()]);
        report.flows.as_mut().unwrap().generations = generations.to_vec();
        report
    };
    let too_many = MAX_REPORTED_FLOWS + 1;
    let all: Vec<u32> = (0..too_many as u32).collect();
    let length_mismatch = |list, count, expected| MessageError::LengthMismatch { list, count, expected };
    let cases = [
        (report("a b", &[1], &[0]), length_mismatch("flow counts", 1, 2)),
        (report("", &[1], &[0]), length_mismatch("flow counts", 1, 0)),
        (report("a", &[2], &[0]), length_mismatch("flow indices", 1, 2)),
        (report("a", &[u32::MAX], &[0]), length_mismatch("flow indices", 1, u32::MAX as usize)),
        (wire::Report { sent_bytes: vec![], ..report("a", &[1], &[0]) }, length_mismatch("sent bytes", 0, 1)),
        (report("a ", &[1, 1], &[0, 0]), MessageError::Id),
        (report("a\u{7}", &[1], &[0]), MessageError::Id),
        (report(&long, &[1], &[0]), MessageError::Id),
        (report("b a", &[1, 1], &[0, 0]), MessageError::Unsorted("coflows")),
        (report("a a", &[1, 1], &[0, 1]), MessageError::Unsorted("coflows")),
        (report("a b", &[0, 1], &[0]), MessageError::Unsorted("coflows")),
        (of_generations("a a", &[2, 1]), MessageError::Unsorted("coflows")),
        (
            {
                let mut report = report("a", &[1], &[0]);
                report.flows.as_mut().unwrap().generations.clear();
                report
            },
            length_mismatch("generations", 0, 1),
        ),
        (report("a", &[2], &[1, 1]), MessageError::Unsorted("flow indices")),
        (
            wire::Report { completed_flows: vec![1, 0], ..report("a", &[2], &[0, 1]) },
            MessageError::Unsorted("completed flows"),
        ),
        (
            wire::Report { lost_flows: vec![1], ..report("a", &[1], &[0]) },
            MessageError::IndexOutOfRange { list: "lost flows", index: 1, count: 1 },
        ),
        (
            wire::Report { gated_flows: vec![1], ..report("a", &[1], &[0]) },
            MessageError::IndexOutOfRange { list: "gated flows", index: 1, count: 1 },
        ),
        (
            wire::Report { udp_flows: vec![1], ..report("a", &[1], &[0]) },
            MessageError::IndexOutOfRange { list: "flows over UDP", index: 1, count: 1 },
        ),
        (
            wire::Report { limited_flows: vec![1], demands: vec![5], ..report("a", &[1], &[0]) },
            MessageError::IndexOutOfRange { list: "limited flows", index: 1, count: 1 },
        ),
        (
            wire::Report { limited_flows: vec![0], ..report("a", &[1], &[0]) },
            MessageError::LengthMismatch { list: "demands of flows", count: 0, expected: 1 },
        ),
        (
            wire::Report { idle_flows: vec![1], lost_flows: vec![1], ..report("a", &[2], &[0, 1]) },
            MessageError::Invalid {
                field: "state of a reported flow",
                expected: "at most one of completed, idle and lost",
            },
        ),
        (observed_report("a", &[1], 1, &[]), length_mismatch("observed connections", 0, 1)),
        (observed_report("a", &[1], 0, &[1]), length_mismatch("bytes of addresses", 0, 16)),
        (observed_report("a", &[], 0, &[]), length_mismatch("peer counts", 0, 1)),
        (observed_report("\u{7}", &[1], 1, &[1]), MessageError::Id),
        (observed_report("a", &[2], 2, &[1, 1]), MessageError::Unsorted("observed connections")),
        (observed_report("b a", &[1, 1], 2, &[1, 1]), MessageError::Unsorted("observed connections")),
        (
            observed_report("a", &[MAX_OBSERVED as u32 + 1], MAX_OBSERVED + 1, &vec![1; MAX_OBSERVED + 1]),
            MessageError::TooMany {
                list: "observed connections",
                count: MAX_OBSERVED + 1,
                max: MAX_OBSERVED,
            },
        ),
        (
            report("a", &[too_many as u32], &all),
            MessageError::TooMany { list: "flows", count: too_many, max: MAX_REPORTED_FLOWS },
        ),
        (
            wire::Report { observed_demands: vec![1, 1], ..observed_report("a", &[1], 1, &[1]) },
            length_mismatch("demands", 2, 1),
        ),
    ];
    for (report, error) in cases {
        assert_eq!(Report::try_from(report.clone()), Err(error), "{:?}", report.flows.map(|f| f.coflows));
    }
}

#[test]
fn malformed_udp_rates_are_refused() {
    let encoded_measurements = |addresses: &[u8], marks: &[u8], rates: &[u64]| wire::UdpRates {
        addresses: addresses.iter().flat_map(|&byte| [byte; 32]).collect(),
        marks: marks.to_vec(),
        rates: rates.to_vec(),
    };
    let length_mismatch = |list, count, expected| MessageError::LengthMismatch { list, count, expected };
    let too_many = MAX_UDP_FLOWS + 1;
    let cases = [
        (encoded_measurements(&[1], &[1], &[]), length_mismatch("bytes of addresses", 32, 0)),
        (
            wire::UdpRates { addresses: vec![1; 31], ..encoded_measurements(&[], &[1], &[1]) },
            length_mismatch("bytes of addresses", 31, 32),
        ),
        (encoded_measurements(&[1], &[], &[1]), length_mismatch("marks", 0, 1)),
        (encoded_measurements(&[1], &[0], &[1]), MessageError::Mark(0)),
        (encoded_measurements(&[1], &[64], &[1]), MessageError::Mark(64)),
        (encoded_measurements(&[1, 1], &[1, 1], &[1, 2]), MessageError::Unsorted("UDP measurements")),
        (encoded_measurements(&[2, 1], &[1, 1], &[1, 2]), MessageError::Unsorted("UDP measurements")),
        (
            encoded_measurements(&vec![1; too_many], &vec![1; too_many], &vec![1; too_many]),
            MessageError::TooMany { list: "UDP measurements", count: too_many, max: MAX_UDP_FLOWS },
        ),
    ];
    for (measurements, error) in cases {
        let udp_measurements = Some(measurements.clone());
        let report = wire::Report { udp_measurements, ..wire::Report::default() };
        assert_eq!(Report::try_from(report), Err(error), "{measurements:?}");
        let udp_measurements = Some(measurements.clone());
        let order = wire::Order { udp_measurements, ..wire::Order::default() };
        assert_eq!(Order::try_from(order), Err(error), "{measurements:?}");
    }
    let order_with_limit = |rate| {
        let udp_limits = Some(encoded_measurements(&[1], &[1], &[rate]));
        Order::try_from(wire::Order { udp_limits, ..wire::Order::default() })
    };
    let error = MessageError::Invalid { field: "limit of UDP", expected: "a rate above 0" };
    assert_eq!(order_with_limit(0), Err(error));
    assert_eq!(order_with_limit(1).unwrap().udp_limits.len(), 1);
}

#[test]
fn malformed_orders_are_refused() {
    let order_with_queues = |interfaces: &[u32], queue_counts: &[u32], weights: &[f64]| wire::Order {
        interfaces: interfaces.to_vec(),
        queue_counts: queue_counts.to_vec(),
        weights: weights.to_vec(),
        application_counts: vec![0; interfaces.len()],
        class_counts: vec![0; interfaces.len()],
        unclassified_shares: vec![0.05; interfaces.len()],
        unclassified_weights: vec![1.0; interfaces.len()],
        ..wire::Order::default()
    };
    let order_with_applications =
        |application_counts: &[u32], applications: &str, classes: &[u32]| wire::Order {
            application_counts: application_counts.to_vec(),
            applications: applications.to_owned(),
            application_classes: classes.to_vec(),
            class_counts: vec![3],
            queue_of_class: vec![0, 1, 1],
            ..order_with_queues(&[0], &[2], &[1.0, 3.0])
        };
    let order_with_classes = |class_counts: &[u32], queue_of_class: &[u32]| wire::Order {
        class_counts: class_counts.to_vec(),
        queue_of_class: queue_of_class.to_vec(),
        ..order_with_applications(&[0], "", &[])
    };
    let order_with_limits = |names: &str, peers: &[u32], addresses: usize, limits: usize| wire::Order {
        limited_applications: names.to_owned(),
        limited_peer_counts: peers.to_vec(),
        limited_addresses: vec![1; 16 * addresses],
        limit_rates: vec![1; limits],
        ..wire::Order::default()
    };
    let too_many = MAX_OBSERVED + 1;
    let order_with_guarantees = |indices: &[u32]| wire::Order {
        guaranteed_interfaces: indices.to_vec(),
        ..order_with_queues(&[0], &[1], &[1.0])
    };
    let order_with_unclassified = |share: f64, weight: f64| wire::Order {
        unclassified_shares: vec![share],
        unclassified_weights: vec![weight],
        ..order_with_applications(&[0], "", &[])
    };
    let length_mismatch = |list, count, expected| MessageError::LengthMismatch { list, count, expected };
    let mut flows = encoded_flow_keys("a", &[1], &[0]);
    flows.as_mut().unwrap().generations = vec![0];
    let without_generation = wire::Order { flows, rates: vec![1], ..wire::Order::default() };
    let order_with_reserve = |reserve_flows: &[u32]| wire::Order {
        flows: encoded_flow_keys("a", &[2], &[0, 1]),
        rates: vec![7, 1],
        reserve_flows: reserve_flows.to_vec(),
        ..wire::Order::default()
    };
    let order_with_unscheduled = |reasons: &[i32]| wire::Order {
        unscheduled_flows: encoded_flow_keys("a", &[1], &[0]),
        unscheduled_reasons: reasons.to_vec(),
        ..wire::Order::default()
    };
    let unknown_reason = MessageError::Invalid {
        field: "reason of an unscheduled flow",
        expected: "a reason of the enumeration, not unspecified",
    };
    let surplus_rate = wire::Order { rates: vec![1], ..wire::Order::default() };
    let cases = [
        (surplus_rate, length_mismatch("rates", 1, 0)),
        (without_generation, MessageError::Generation),
        (order_with_queues(&[0, 1], &[1], &[1.0]), length_mismatch("queue counts", 1, 2)),
        (order_with_queues(&[0], &[2], &[1.0]), length_mismatch("weights", 1, 2)),
        (order_with_queues(&[1, 0], &[1, 1], &[1.0, 1.0]), MessageError::Unsorted("interfaces")),
        (order_with_queues(&[0], &[1], &[f64::NAN]), MessageError::Weight),
        (order_with_queues(&[0], &[1], &[0.0]), MessageError::Weight),
        (order_with_queues(&[0], &[1], &[f64::INFINITY]), MessageError::Weight),
        (order_with_applications(&[], "", &[]), length_mismatch("application counts", 0, 1)),
        (order_with_applications(&[2], "a b", &[1]), length_mismatch("application classes", 1, 2)),
        (
            order_with_applications(&[u32::MAX], "a", &[1]),
            length_mismatch("application classes", 1, u32::MAX as usize),
        ),
        (order_with_applications(&[2], "a", &[1, 1]), length_mismatch("application names", 1, 2)),
        (order_with_applications(&[1], "", &[1]), length_mismatch("application names", 0, 1)),
        (order_with_applications(&[2], "b a", &[1, 1]), MessageError::Unsorted("applications")),
        (order_with_applications(&[2], "a a", &[1, 1]), MessageError::Unsorted("applications")),
        (order_with_applications(&[1], "\u{7}", &[1]), MessageError::Id),
        (order_with_applications(&[1], "a", &[4]), MessageError::Class { class: 4, class_count: 3 }),
        (order_with_classes(&[], &[]), length_mismatch("class counts", 0, 1)),
        (order_with_classes(&[2], &[0]), length_mismatch("queues of classes", 1, 2)),
        (order_with_classes(&[u32::MAX], &[0]), length_mismatch("queues of classes", 1, u32::MAX as usize)),
        (order_with_classes(&[1], &[2]), MessageError::Queue { queue: 2, queue_count: 2 }),
        (order_with_unclassified(0.0, 1.0), MessageError::UnclassifiedShare),
        (order_with_unclassified(1.0, 1.0), MessageError::UnclassifiedShare),
        (order_with_unclassified(f64::NAN, 1.0), MessageError::UnclassifiedShare),
        (order_with_unclassified(0.05, 0.0), MessageError::UnclassifiedShare),
        (order_with_unclassified(0.05, f64::INFINITY), MessageError::UnclassifiedShare),
        (
            wire::Order { unclassified_shares: vec![], ..order_with_unclassified(0.05, 1.0) },
            length_mismatch("unclassified shares", 0, 1),
        ),
        (order_with_limits("a", &[], 1, 1), length_mismatch("peer counts", 0, 1)),
        (order_with_limits("a", &[1], 1, 2), length_mismatch("limits", 2, 1)),
        (order_with_limits("a", &[1], 0, 1), length_mismatch("bytes of addresses", 0, 16)),
        (order_with_limits("\u{7}", &[1], 1, 1), MessageError::Id),
        (order_with_limits("a", &[2], 2, 2), MessageError::Unsorted("limits")),
        (
            order_with_limits("a", &[too_many as u32], too_many, too_many),
            MessageError::TooMany { list: "limits", count: too_many, max: MAX_OBSERVED },
        ),
        (
            wire::Order { limit_rates: vec![2], ..order_with_limits("a", &[1], 1, 1) },
            MessageError::Invalid { field: "rate of a limit", expected: "a rate, unlimited or removed" },
        ),
        (
            order_with_reserve(&[2]),
            MessageError::IndexOutOfRange { list: "flows of the reserve", index: 2, count: 2 },
        ),
        (
            order_with_reserve(&[1]),
            MessageError::Invalid { field: "share of the reserve", expected: "a rate" },
        ),
        (order_with_unscheduled(&[]), length_mismatch("reasons of unscheduled flows", 0, 1)),
        (order_with_unscheduled(&[0]), unknown_reason),
        (order_with_unscheduled(&[6]), unknown_reason),
        (order_with_guarantees(&[0, 0]), MessageError::Unsorted("guaranteed interfaces")),
        (
            order_with_guarantees(&[1]),
            MessageError::IndexOutOfRange { list: "guaranteed interfaces", index: 1, count: 1 },
        ),
    ];
    for (order, error) in cases {
        assert_eq!(Order::try_from(order.clone()), Err(error), "{order:?}");
    }
}

#[test]
fn labels_of_a_host_are_names_and_occur_once() {
    let labels = |pairs: &[(&str, &str)]| -> std::collections::BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let hello = |labels: &std::collections::BTreeMap<String, String>| {
        let message = wire::AgentMessage::hello("h", Vec::new(), &[]).with_labels(labels);
        let Some(wire::agent_message::Body::Hello(hello)) = message.body else { panic!("a hello") };
        hello
    };
    let two = labels(&[("rack", "leaf-1"), ("zone", "z.2")]);
    assert_eq!(hello(&two).labels_by_name(), Ok(two));
    for (name, value) in [("", "x"), ("rack", ""), ("a rack", "x"), ("rack", "x=y")] {
        assert_eq!(hello(&labels(&[(name, value)])).labels_by_name(), Err(MessageError::Label), "{name}");
    }
    let mut repeated = hello(&labels(&[("rack", "x")]));
    repeated.labels.push(wire::Label { name: "rack".to_owned(), value: "y".to_owned() });
    assert_eq!(repeated.labels_by_name(), Err(MessageError::Label));
    let many = (0..17).map(|number| (format!("l{number}"), "x".to_owned())).collect();
    assert!(matches!(hello(&many).labels_by_name(), Err(MessageError::TooMany { .. })));
}

#[test]
fn links_that_are_down_are_rising_numbers_of_ports() {
    let decode = |links_down| Report::try_from(wire::Report { links_down, ..wire::Report::default() });
    assert_eq!(decode(vec![0, 7]).map(|report| report.links_down), Ok(vec![0, 7]));
    for unsorted in [vec![7, 0], vec![7, 7]] {
        assert_eq!(decode(unsorted), Err(MessageError::Unsorted("links that are down")));
    }
    let all: Vec<u32> = (0..MAX_SWITCH_PORTS as u32 + 1).collect();
    assert!(matches!(decode(all), Err(MessageError::TooMany { .. })));
}

#[test]
fn bandwidth_limits_are_fractions_of_the_link() {
    let limit = |fraction| BandwidthLimit::new(fraction).map(BandwidthLimit::fraction);
    assert_eq!([1.0, 0.05, 1e-9].map(limit), [Some(1.0), Some(0.05), Some(1e-6)]);
    assert_eq!([0.0, -0.1, 1.1, f64::NAN].map(limit), [None; 4]);
    let error = MessageError::Invalid { field: "limit of bandwidth", expected: "0 to 1,000,000 millionths" };
    let order = wire::Order { bandwidth_limit: 1_000_001, ..wire::Order::default() };
    assert_eq!(Order::try_from(order), Err(error));
    let report = wire::Report { bandwidth_limit: 1_000_001, ..wire::Report::default() };
    assert_eq!(Report::try_from(report), Err(error));
}

#[test]
fn invalid_traffic_of_applications_is_refused() {
    let rules = |names: &str, cgroup_counts: &[u32], cgroups: &str, port_counts: &[u32], ports: &[u32]| {
        let (applications, cgroups) = (names.to_owned(), cgroups.to_owned());
        let (cgroup_counts, port_counts) = (cgroup_counts.to_vec(), port_counts.to_vec());
        wire::TrafficRules { applications, cgroup_counts, cgroups, port_counts, ports: ports.to_vec() }
    };
    let length_mismatch = |list, count, expected| MessageError::LengthMismatch { list, count, expected };
    let port = MessageError::Invalid { field: "port of an application", expected: "1 to 65535" };
    let too_many = MAX_TRAFFIC_RULES + 1;
    let cases = [
        (rules("a", &[], "", &[0], &[]), length_mismatch("cgroup counts", 0, 1)),
        (rules("a", &[0], "", &[], &[]), length_mismatch("port counts", 0, 1)),
        (rules("a", &[2], "x", &[0], &[]), length_mismatch("cgroups", 1, 2)),
        (rules("a", &[0], "", &[1], &[]), length_mismatch("ports", 0, 1)),
        (rules("a", &[u32::MAX], "x", &[0], &[]), length_mismatch("cgroups", 1, u32::MAX as usize)),
        (rules("a", &[0], "", &[1], &[0]), port),
        (rules("a", &[0], "", &[1], &[65_536]), port),
        (rules("\u{7}", &[0], "", &[0], &[]), MessageError::Id),
        (rules("b a", &[0, 0], "", &[0, 0], &[]), MessageError::Unsorted("applications with traffic")),
        (rules("a a", &[0, 0], "", &[0, 0], &[]), MessageError::Unsorted("applications with traffic")),
        (
            rules("a", &[0], "", &[too_many as u32], &vec![1; too_many]),
            MessageError::TooMany { list: "cgroups and ports", count: too_many, max: MAX_TRAFFIC_RULES },
        ),
    ];
    for (traffic, error) in cases {
        let order = wire::Order { traffic: Some(traffic.clone()), ..wire::Order::default() };
        assert_eq!(Order::try_from(order), Err(error), "{traffic:?}");
    }
    // An agent reports paths that it does not understand, and applies the rest of the order.
    let unknown = rules("a", &[2], "../b [x]", &[1], &[80]);
    let order = Order::try_from(wire::Order { traffic: Some(unknown), ..wire::Order::default() }).unwrap();
    assert_eq!(order.traffic.unwrap()[0].cgroups, ["../b", "[x]"]);
}

/// A report without refused orders does not encode their counts.
#[test]
fn reports_without_refused_orders_are_accepted() {
    let encoded = wire::Report { applied_epoch: 3, applied_seq: 5, ..wire::Report::default() };
    let report = Report { applied: (3, 5), ..Report::default() };
    assert_eq!(Report::try_from(encoded), Ok(report.clone()));
    assert_eq!(wire::Report::from(&report).refused_orders, None);
}

/// The largest report is within the length limit.
#[test]
fn largest_report_fits_max_report() {
    let id = |at: usize| format!("{at:0>MAX_ID_LENGTH$}");
    let to_progress = |at| FlowProgress {
        key: FlowKey { coflow: id(at).into(), generation: u64::MAX, flow: u32::MAX },
        sent: u64::MAX,
        state: SenderState::Completed,
        gated: true,
        udp: true,
        demand: Some(u64::MAX),
    };
    let observed_entry = |at| ObservedConnections {
        application: id(at).into(),
        peer: Ipv6Addr::from(u128::MAX).into(),
        open_connections: u32::MAX,
        sent_bytes: u64::MAX,
        demand: Demand::Rate(u64::MAX - 2),
    };
    let (flows, observed) =
        ((0..MAX_REPORTED_FLOWS).map(to_progress).collect(), (0..MAX_OBSERVED).map(observed_entry).collect());
    let measurement = |at: usize| UdpMeasurement {
        flow: UdpFlow {
            src: Ipv6Addr::from(at as u128).into(),
            dst: Ipv6Addr::from(u128::MAX).into(),
            mark: Mark::new(63).unwrap(),
        },
        rate: u64::MAX,
    };
    let udp_measurements = (0..MAX_UDP_FLOWS).map(measurement).collect();
    let max = u64::MAX;
    let refused_orders = RefusedOrders {
        stale_epoch: max,
        duplicate: max,
        gap: max,
        lease: max,
        unsorted: max,
        flows: max,
        interface: max,
        rate: max,
        weights: max,
        classes: max,
        limits: max,
    };
    let restored_objects = RestoredObjects { queues: max, programs: max, maps: max };
    let long = "x".repeat(200);
    let conflicts = vec![Conflict::new(&long, ConflictReason::Refused, &long); MAX_CONFLICTS];
    let report = Report {
        applied: (max, max),
        flows,
        observed,
        udp_measurements,
        refused_orders,
        restored_objects,
        conflicts,
        bandwidth_limit: BandwidthLimit::new(1.0),
        matching: Some(MatchingReport {
            vacant_uplink: max,
            vacant_downlink: max,
            questions: (0..MAX_REPORTED_FLOWS as u64)
                .map(|at| Question { coflow: max - at, number: u32::MAX, is_prioritized: at == 0 })
                .collect(),
            changes: (0..MAX_REPORTED_FLOWS as u64)
                .map(|at| ConnectionChange { coflow: max - at, flow: u32::MAX, version: u32::MAX })
                .collect(),
            segments: (0..MAX_REPORTED_SEGMENTS as u64)
                .map(|at| FlowSegments {
                    coflow: max - at,
                    flow: u32::MAX,
                    segments: u32::MAX,
                    retransmitted: u32::MAX,
                })
                .collect(),
        }),
        links_down: (0..MAX_SWITCH_PORTS as u32).collect(),
    };
    let length = wire::AgentMessage::report(&report).encoded_len();
    assert!(length <= MAX_REPORT_BYTES, "{length} bytes");
}

#[test]
fn welcome_names_how_udp_is_limited() {
    for control in [None, Some(UdpControl::Throttling), Some(UdpControl::Allocation)] {
        let message =
            wire::CoordinatorMessage::welcome(Duration::from_millis(8), 1, 7, vec![], control, false);
        let Some(wire::coordinator_message::Body::Welcome(welcome)) = message.body else {
            panic!("{message:?}")
        };
        assert_eq!(welcome.control_of_udp(), control);
    }
}

#[test]
fn networks_of_hosts_survive_encoding_and_are_limited() {
    let texts = ["10.0.0.1/32", "10.244.1.0/24", "0.0.0.0/0", "fd00::1/128", "fd00:1::/64"];
    let networks: Vec<Network> = texts.map(|text| text.parse().unwrap()).to_vec();
    let hello = |networks: &[Network]| match wire::AgentMessage::hello("a", vec![1], networks).body {
        Some(wire::agent_message::Body::Hello(hello)) => hello,
        other => panic!("{other:?}"),
    };
    assert_eq!(hello(&networks).networks(), Ok(networks));
    let address = Network::from(IpAddr::from([10, 0, 0, 1]));
    let most = vec![address; MAX_HOST_NETWORKS + 1];
    assert_eq!(hello(&most).networks().unwrap().len(), MAX_HOST_NETWORKS);
    let with_bytes = |bytes: usize, lengths: Vec<u8>| {
        wire::Hello { addresses: vec![1; bytes], prefix_lengths: lengths, ..hello(&[]) }.networks()
    };
    assert!(with_bytes(16, vec![128]).is_ok());
    for (bytes, lengths) in [
        (15, vec![128]),
        (16, vec![]),
        (16, vec![129]),
        (16 * (MAX_HOST_NETWORKS + 1), vec![128; MAX_HOST_NETWORKS + 1]),
    ] {
        assert!(with_bytes(bytes, lengths).is_err(), "{bytes}");
    }
    let ipv4 = wire::Hello { prefix_lengths: vec![33], ..hello(&[address]) };
    assert_eq!(ipv4.networks(), Err(MessageError::PrefixLength(33)));
}
