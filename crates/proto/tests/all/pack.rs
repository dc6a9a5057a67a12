//! Tests that messages are equal after encoding and decoding, and that invalid ones are refused.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use prost::Message;
use weir_proto::{
    Arrival, Conflict, Demand, FlowKey, FlowProgress, Found, Limit, MAX_CONFLICTS, MAX_FOUND, MAX_ID_LENGTH,
    MAX_REPORT, MAX_SEEN, MAX_WAYS, Malformed, Mark, Order, Pace, Queues, Reason, Refusals, Report, Restored,
    Way, wire,
};

fn key() -> impl Strategy<Value = FlowKey> {
    ("[!-~]{1,3}", prop_oneof![0..4u32, any::<u32>()])
        .prop_map(|(coflow, flow)| FlowKey { coflow: coflow.into(), flow })
}

fn pace() -> impl Strategy<Value = Pace> {
    prop_oneof![Just(Pace::Gone), Just(Pace::Free), (1..u64::MAX).prop_map(Pace::Rate)]
}

fn queues() -> impl Strategy<Value = Queues> {
    let at = any::<prop::sample::Index>;
    let classes = btree_map("[!-~]{1,3}", at(), 0..4);
    (vec(1e-3..1e3, 1..4), vec(at(), 1..5), classes, any::<bool>()).prop_map(
        |(weights, queue_of, classes, guaranteed)| {
            let queue_of: Vec<u32> = queue_of.into_iter().map(|at| at.index(weights.len()) as u32).collect();
            let class = |(name, at): (String, prop::sample::Index)| {
                (name.into(), at.index(queue_of.len()) as u32 + 1)
            };
            let classes = classes.into_iter().map(class).collect();
            Queues { weights, queue_of, classes, guaranteed }
        },
    )
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let way = |(from, to, mark): (u32, u32, u8)| Way {
        from: from.into(),
        to: to.into(),
        mark: Mark::new(mark).unwrap(),
    };
    let ways = (prop_oneof![0..3u32, any::<u32>()], any::<u32>(), 1..=63u8).prop_map(way);
    btree_map(ways, any::<u64>(), 0..20)
        .prop_map(|arrivals| arrivals.into_iter().map(|(way, rate)| Arrival { way, rate }).collect())
}

fn peer() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::from(Ipv4Addr::from(bits))),
        any::<u128>().prop_map(|bits| Ipv6Addr::from(bits).to_canonical()),
    ]
}

fn limits() -> impl Strategy<Value = Vec<Limit>> {
    let limit = |((application, peer), pace): ((String, IpAddr), Pace)| Limit {
        application: application.into(),
        peer,
        pace,
    };
    btree_map(("[!-~]{1,3}", peer()), pace(), 0..20)
        .prop_map(move |limits| limits.into_iter().map(limit).collect())
}

fn demand() -> impl Strategy<Value = Demand> {
    prop_oneof![Just(Demand::Unknown), Just(Demand::All), (0..u64::MAX - 1).prop_map(Demand::Rate)]
}

fn order() -> impl Strategy<Value = Order> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u32>(), any::<bool>());
    let queues = btree_map(any::<u32>(), queues(), 0..4);
    (numbers, btree_map(key(), pace(), 0..20), queues, arrivals(), limits()).prop_map(
        |((epoch, seq, lease, whole), flows, queues, arrivals, limits)| Order {
            epoch,
            seq,
            lease: Duration::from_micros(u64::from(lease)),
            whole,
            flows: flows.into_iter().collect(),
            queues: queues.into_iter().collect(),
            arrivals,
            limits,
        },
    )
}

fn report() -> impl Strategy<Value = Report> {
    let seen = |(key, (sent, closed)): (FlowKey, (u64, bool))| FlowProgress { key, sent, closed };
    let flows = btree_map(key(), any::<(u64, bool)>(), 0..20);
    let found = btree_map(("[!-~]{1,3}", peer()), (any::<(u32, u64)>(), demand()), 0..20);
    let is = |((application, peer), ((open, sent), demand)): ((String, IpAddr), ((u32, u64), Demand))| {
        Found { application: application.into(), peer, open, sent, demand }
    };
    let refusals = prop_oneof![Just([0; 4]), any::<[u64; 4]>()].prop_map(|[older, gap, flows, classes]| {
        Refusals { older, gap, flows, classes, ..Refusals::default() }
    });
    let restored = any::<[u64; 3]>().prop_map(|[queues, programs, maps]| Restored { queues, programs, maps });
    let reason = (0..Reason::ALL.len()).prop_map(|at| Reason::ALL[at]);
    let conflict = ("[a-z]{1,15}", reason, ".{0,60}")
        .prop_map(|(name, reason, text)| Conflict::new(&name, reason, &text));
    let agent = (refusals, restored, prop::collection::vec(conflict, 0..4));
    (any::<(u64, u64)>(), flows, found, arrivals(), agent).prop_map(
        move |(obeys, flows, found, arrivals, (refusals, restored, conflicts)): (
            _,
            BTreeMap<_, _>,
            _,
            _,
            _,
        )| Report {
            obeys,
            flows: flows.into_iter().map(seen).collect(),
            found: found.into_iter().map(is).collect(),
            arrivals,
            refusals,
            restored,
            conflicts,
        },
    )
}

proptest! {
    #[test]
    fn orders_survive_encoding(order in order()) {
        let bytes = wire::Order::from(&order).encode_to_vec();
        prop_assert_eq!(Order::try_from(wire::Order::decode(&bytes[..]).unwrap()), Ok(order));
    }

    #[test]
    fn reports_survive_encoding(report in report()) {
        let bytes = wire::Report::from(&report).encode_to_vec();
        prop_assert_eq!(Report::try_from(wire::Report::decode(&bytes[..]).unwrap()), Ok(report));
    }

    /// A damaged message is refused, or its lists are sorted and unique.
    #[test]
    fn damaged_reports_are_refused_or_sorted(report in report(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = wire::Report::from(&report).encode_to_vec();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let Ok(damaged) = wire::Report::decode(&bytes[..]) else { return Ok(()) };
        let Ok(report) = Report::try_from(damaged) else { return Ok(()) };
        prop_assert!(report.flows.windows(2).all(|pair| pair[0].key < pair[1].key));
        let of = |found: &Found| (found.application.clone(), found.peer);
        prop_assert!(report.found.windows(2).all(|pair| of(&pair[0]) < of(&pair[1])));
        prop_assert!(report.arrivals.windows(2).all(|pair| pair[0].way < pair[1].way));
    }
}

fn flows(coflows: &str, counts: &[u32], places: &[u32]) -> Option<wire::Flows> {
    Some(wire::Flows { coflows: coflows.to_owned(), counts: counts.to_vec(), places: places.to_vec() })
}

#[test]
fn malformed_reports_are_refused() {
    let report = |coflows, counts: &[u32], places: &[u32]| {
        let sent = vec![0; places.len()];
        wire::Report { flows: flows(coflows, counts, places), sent, ..wire::Report::default() }
    };
    let found = |applications: &str, peers: &[u32], addresses: usize, open: &[u32]| wire::Report {
        applications: applications.to_owned(),
        peers: peers.to_vec(),
        addresses: vec![1; 16 * addresses],
        open: open.to_vec(),
        carried: vec![0; open.len()],
        ..wire::Report::default()
    };
    let long = "x".repeat(MAX_ID_LENGTH + 1);
    let many = MAX_SEEN + 1;
    let all: Vec<u32> = (0..many as u32).collect();
    let uneven = |what, found, expected| Malformed::Uneven { what, found, expected };
    let cases = [
        (report("a b", &[1], &[0]), uneven("counts of flows", 1, 2)),
        (report("", &[1], &[0]), uneven("counts of flows", 1, 0)),
        (report("a", &[2], &[0]), uneven("places of flows", 1, 2)),
        (report("a", &[u32::MAX], &[0]), uneven("places of flows", 1, u32::MAX as usize)),
        (wire::Report { sent: vec![], ..report("a", &[1], &[0]) }, uneven("counts of bytes", 0, 1)),
        (report("a ", &[1, 1], &[0, 0]), Malformed::Id),
        (report("a\u{7}", &[1], &[0]), Malformed::Id),
        (report(&long, &[1], &[0]), Malformed::Id),
        (report("b a", &[1, 1], &[0, 0]), Malformed::Unsorted("coflows")),
        (report("a a", &[1, 1], &[0, 1]), Malformed::Unsorted("coflows")),
        (report("a b", &[0, 1], &[0]), Malformed::Unsorted("coflows")),
        (report("a", &[2], &[1, 1]), Malformed::Unsorted("places of flows")),
        (
            wire::Report { closed: vec![1, 0], ..report("a", &[2], &[0, 1]) },
            Malformed::Unsorted("closed flows"),
        ),
        (
            wire::Report { closed: vec![1], ..report("a", &[1], &[0]) },
            Malformed::Many { what: "as the index of a closed flow", found: 2, most: 1 },
        ),
        (found("a", &[1], 1, &[]), uneven("hosts", 0, 1)),
        (found("a", &[1], 0, &[1]), uneven("bytes of addresses", 0, 16)),
        (found("a", &[], 0, &[]), uneven("counts of hosts", 0, 1)),
        (found("\u{7}", &[1], 1, &[1]), Malformed::Id),
        (found("a", &[2], 2, &[1, 1]), Malformed::Unsorted("connections found")),
        (found("b a", &[1, 1], 2, &[1, 1]), Malformed::Unsorted("connections found")),
        (
            found("a", &[MAX_FOUND as u32 + 1], MAX_FOUND + 1, &vec![1; MAX_FOUND + 1]),
            Malformed::Many { what: "connections found", found: MAX_FOUND + 1, most: MAX_FOUND },
        ),
        (report("a", &[many as u32], &all), Malformed::Many { what: "flows", found: many, most: MAX_SEEN }),
        (wire::Report { demands: vec![1, 1], ..found("a", &[1], 1, &[1]) }, uneven("demands", 2, 1)),
    ];
    for (report, why) in cases {
        assert_eq!(Report::try_from(report.clone()), Err(why), "{:?}", report.flows.map(|f| f.coflows));
    }
}

#[test]
fn malformed_arrivals_are_refused() {
    let arrivals = |ends: &[u8], marks: &[u8], rates: &[u64]| wire::Arrivals {
        ends: ends.iter().flat_map(|&end| [end; 8]).collect(),
        marks: marks.to_vec(),
        rates: rates.to_vec(),
    };
    let uneven = |what, found, expected| Malformed::Uneven { what, found, expected };
    let many = MAX_WAYS + 1;
    let cases = [
        (arrivals(&[1], &[1], &[]), uneven("bytes of their ends", 8, 0)),
        (
            wire::Arrivals { ends: vec![1; 7], ..arrivals(&[], &[1], &[1]) },
            uneven("bytes of their ends", 7, 8),
        ),
        (arrivals(&[1], &[], &[1]), uneven("classes of what arrives", 0, 1)),
        (arrivals(&[1], &[0], &[1]), Malformed::Mark(0)),
        (arrivals(&[1], &[64], &[1]), Malformed::Mark(64)),
        (arrivals(&[1, 1], &[1, 1], &[1, 2]), Malformed::Unsorted("arrivals")),
        (arrivals(&[2, 1], &[1, 1], &[1, 2]), Malformed::Unsorted("arrivals")),
        (
            arrivals(&vec![1; many], &vec![1; many], &vec![1; many]),
            Malformed::Many { what: "arrivals", found: many, most: MAX_WAYS },
        ),
    ];
    for (arrivals, why) in cases {
        let report = wire::Report { arrivals: Some(arrivals.clone()), ..wire::Report::default() };
        assert_eq!(Report::try_from(report), Err(why), "{arrivals:?}");
        let order = wire::Order { arrivals: Some(arrivals.clone()), ..wire::Order::default() };
        assert_eq!(Order::try_from(order), Err(why), "{arrivals:?}");
    }
}

#[test]
fn malformed_orders_are_refused() {
    let order = |interfaces: &[u32], queues: &[u32], weights: &[f64]| wire::Order {
        interfaces: interfaces.to_vec(),
        queues: queues.to_vec(),
        weights: weights.to_vec(),
        classed: vec![0; interfaces.len()],
        known: vec![0; interfaces.len()],
        ..wire::Order::default()
    };
    let classed = |classed: &[u32], applications: &str, classes: &[u32]| wire::Order {
        classed: classed.to_vec(),
        applications: applications.to_owned(),
        classes: classes.to_vec(),
        known: vec![3],
        queue_of: vec![0, 1, 1],
        ..order(&[0], &[2], &[1.0, 3.0])
    };
    let known = |known: &[u32], queue_of: &[u32]| wire::Order {
        known: known.to_vec(),
        queue_of: queue_of.to_vec(),
        ..classed(&[0], "", &[])
    };
    let limited = |names: &str, peers: &[u32], addresses: usize, limits: usize| wire::Order {
        limited: names.to_owned(),
        limited_peers: peers.to_vec(),
        limited_addresses: vec![1; 16 * addresses],
        limits: vec![1; limits],
        ..wire::Order::default()
    };
    let many = MAX_FOUND + 1;
    let guaranteed = |at: &[u32]| wire::Order { guaranteed: at.to_vec(), ..order(&[0], &[1], &[1.0]) };
    let uneven = |what, found, expected| Malformed::Uneven { what, found, expected };
    let paces = wire::Order { paces: vec![1], ..wire::Order::default() };
    let cases = [
        (paces, uneven("paces", 1, 0)),
        (order(&[0, 1], &[1], &[1.0]), uneven("counts of queues", 1, 2)),
        (order(&[0], &[2], &[1.0]), uneven("weights", 1, 2)),
        (order(&[1, 0], &[1, 1], &[1.0, 1.0]), Malformed::Unsorted("interfaces")),
        (order(&[0], &[1], &[f64::NAN]), Malformed::Weight),
        (order(&[0], &[1], &[0.0]), Malformed::Weight),
        (order(&[0], &[1], &[f64::INFINITY]), Malformed::Weight),
        (classed(&[], "", &[]), uneven("counts of applications", 0, 1)),
        (classed(&[2], "a b", &[1]), uneven("classes", 1, 2)),
        (classed(&[u32::MAX], "a", &[1]), uneven("classes", 1, u32::MAX as usize)),
        (classed(&[2], "a", &[1, 1]), uneven("names of applications", 1, 2)),
        (classed(&[1], "", &[1]), uneven("names of applications", 0, 1)),
        (classed(&[2], "b a", &[1, 1]), Malformed::Unsorted("applications")),
        (classed(&[2], "a a", &[1, 1]), Malformed::Unsorted("applications")),
        (classed(&[1], "\u{7}", &[1]), Malformed::Id),
        (classed(&[1], "a", &[0]), Malformed::Class { class: 0, most: 3 }),
        (classed(&[1], "a", &[4]), Malformed::Class { class: 4, most: 3 }),
        (known(&[], &[]), uneven("counts of classes", 0, 1)),
        (known(&[2], &[0]), uneven("queues of classes", 1, 2)),
        (known(&[u32::MAX], &[0]), uneven("queues of classes", 1, u32::MAX as usize)),
        (known(&[1], &[2]), Malformed::Queue { queue: 2, queues: 2 }),
        (limited("a", &[], 1, 1), uneven("counts of hosts", 0, 1)),
        (limited("a", &[1], 1, 2), uneven("hosts", 2, 1)),
        (limited("a", &[1], 0, 1), uneven("bytes of addresses", 0, 16)),
        (limited("\u{7}", &[1], 1, 1), Malformed::Id),
        (limited("a", &[2], 2, 2), Malformed::Unsorted("limits")),
        (
            limited("a", &[many as u32], many, many),
            Malformed::Many { what: "limits", found: many, most: MAX_FOUND },
        ),
        (guaranteed(&[0, 0]), Malformed::Unsorted("guaranteed interfaces")),
        (
            guaranteed(&[1]),
            Malformed::Many { what: "as the index of a guaranteed interface", found: 2, most: 1 },
        ),
    ];
    for (order, why) in cases {
        assert_eq!(Order::try_from(order.clone()), Err(why), "{order:?}");
    }
}

/// Reports of older agents have no refusals, and a report without refusals does not encode them.
#[test]
fn reports_without_refusals_are_accepted() {
    let before = wire::Report { epoch: 3, seq: 5, ..wire::Report::default() };
    let report = Report { obeys: (3, 5), ..Report::default() };
    assert_eq!(Report::try_from(before), Ok(report.clone()));
    assert_eq!(wire::Report::from(&report).refusals, None);
}

/// The longest possible report is within the length limit.
#[test]
fn largest_report_fits_max_report() {
    let id = |at: usize| format!("{at:0>MAX_ID_LENGTH$}");
    let seen = |at| FlowProgress {
        key: FlowKey { coflow: id(at).into(), flow: u32::MAX },
        sent: u64::MAX,
        closed: true,
    };
    let found = |at| Found {
        application: id(at).into(),
        peer: Ipv6Addr::from(u128::MAX).into(),
        open: u32::MAX,
        sent: u64::MAX,
        demand: Demand::Rate(u64::MAX - 2),
    };
    let (flows, found) = ((0..MAX_SEEN).map(seen).collect(), (0..MAX_FOUND).map(found).collect());
    let arrival = |at: usize| Arrival {
        way: Way { from: (at as u32).into(), to: u32::MAX.into(), mark: Mark::new(63).unwrap() },
        rate: u64::MAX,
    };
    let arrivals = (0..MAX_WAYS).map(arrival).collect();
    let most = u64::MAX;
    let refusals = Refusals {
        older: most,
        repeated: most,
        gap: most,
        lease: most,
        unsorted: most,
        flows: most,
        interface: most,
        rate: most,
        weights: most,
        classes: most,
        limits: most,
    };
    let restored = Restored { queues: most, programs: most, maps: most };
    let long = "x".repeat(200);
    let conflicts = vec![Conflict::new(&long, Reason::Refused, &long); MAX_CONFLICTS];
    let report = Report { obeys: (most, most), flows, found, arrivals, refusals, restored, conflicts };
    let length = wire::Up::report(&report).encoded_len();
    assert!(length <= MAX_REPORT, "{length} bytes");
}
