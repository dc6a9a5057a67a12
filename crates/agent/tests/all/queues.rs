//! Tests the changes from actual to desired queues, on a model of the kernel that refuses the same changes as the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::common::cases;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use weir_agent::htb::{MAX_SERVICES, dscp};
use weir_agent::queues::{
    Actual, Change, Desired, DesiredError, Filter, Found, Interface, Key, Leaf, Limited, Place, Root,
    changes, ids,
};
use weir_core::units::Rate;

fn none() -> Actual {
    Actual {
        root: Root::Default,
        classes: BTreeMap::new(),
        leaves: BTreeMap::new(),
        filters: BTreeMap::new(),
    }
}

/// Applies a change as the kernel does. The number of a filter's hash table depends on the preference.
fn apply(kernel: &mut Actual, change: &Change) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("{change:?}: {why}"));
    if matches!(change, Change::AddRoot | Change::ReplaceRoot) {
        if kernel.root == Root::Ours {
            return refuse("HTB does not change as a whole");
        }
        *kernel = Actual { root: Root::Ours, ..none() };
        return Ok(());
    }
    if kernel.root != Root::Ours {
        return refuse("no such parent");
    }
    match change {
        Change::AddRoot | Change::ReplaceRoot => unreachable!("done above"),
        Change::AddClass(minor, want) | Change::SetClass(minor, want) => {
            let is_new = matches!(change, Change::AddClass(..));
            if kernel.classes.contains_key(minor) == is_new {
                return refuse("there, or not");
            }
            if want.parent.is_some_and(|parent| !kernel.classes.contains_key(&parent)) {
                return refuse("no such parent");
            }
            let class = want.class;
            let found = Found {
                parent: want.parent,
                rate: class.rate,
                ceil: class.ceil,
                // The kernel rounds bursts down to ticks of 64 ns.
                burst: u64::from(class.burst) - u64::from(class.burst) / 100,
                cburst: u64::from(class.burst),
                // `tc` prints no quantum for classes with inner classes.
                quantum: want.parent.map(|_| u64::from(class.quantum)),
            };
            if !is_new && kernel.classes[minor].parent != want.parent {
                return refuse("classes do not move");
            }
            kernel.classes.insert(*minor, found);
        }
        Change::DropClass(minor) => {
            if kernel.filters.values().any(|filter| filter.to == *minor) {
                return refuse("in use by a filter");
            }
            if kernel.classes.values().any(|class| class.parent == Some(*minor)) {
                return refuse("has classes inside");
            }
            if kernel.classes.remove(minor).is_none() {
                return refuse("is not there");
            }
            kernel.leaves.remove(minor);
        }
        Change::SetLeaf(minor, bytes) => {
            if !kernel.classes.contains_key(minor) {
                return refuse("no such parent");
            }
            kernel.leaves.insert(*minor, Leaf { handle: ids::leaf(*minor), bytes: Some(*bytes) });
        }
        Change::AddFilter(pref, node, filter) => {
            let table = 0x800 + (pref % 16);
            let place = Place { pref: *pref, table, bucket: 0, node: *node };
            if !kernel.classes.contains_key(&filter.to) {
                return refuse("leads nowhere");
            }
            if kernel.filters.insert(place, filter.clone()).is_some() {
                return refuse("is there already");
            }
        }
        Change::DropFilter(place) => {
            if kernel.filters.remove(place).is_none() {
                return refuse("is not there");
            }
        }
    }
    Ok(())
}

/// Checks that the kernel has all desired objects, and no other ones of the agent.
fn agrees(kernel: &Actual, desired: &Desired) -> Result<(), TestCaseError> {
    prop_assert_eq!(&kernel.root, &Root::Ours);
    let classes: Vec<u16> = kernel.classes.keys().copied().filter(|&minor| ids::is_class(minor)).collect();
    prop_assert_eq!(&classes, &desired.classes().keys().copied().collect::<Vec<_>>());
    for (minor, want) in desired.classes() {
        let found = kernel.classes[minor];
        prop_assert_eq!(
            (found.parent, found.rate, found.ceil),
            (want.parent, want.class.rate, want.class.ceil)
        );
        prop_assert_eq!(found.quantum, want.parent.map(|_| u64::from(want.class.quantum)));
        let burst = found.burst as f64 / f64::from(want.class.burst);
        prop_assert!((0.98..=1.02).contains(&burst), "burst of {minor:x}: {burst}");
        if *minor != ids::WHOLE {
            let leaf = Leaf { handle: ids::leaf(*minor), bytes: Some(want.class.buffer) };
            prop_assert_eq!(kernel.leaves.get(minor), Some(&leaf));
        }
    }
    let ours = kernel.filters.iter().filter(|(place, _)| ids::is_filter(place.pref));
    let filters: Vec<_> = ours.map(|(place, filter)| ((place.pref, place.node), filter)).collect();
    let wanted: Vec<_> = desired.filters().iter().map(|(&name, filter)| (name, filter)).collect();
    let sorted = |list: Vec<((u16, u16), &Filter)>| {
        list.into_iter().map(|(name, f)| (name, f.clone())).collect::<BTreeMap<_, _>>()
    };
    prop_assert_eq!(filters.len(), wanted.len());
    prop_assert_eq!(sorted(filters), sorted(wanted));
    Ok(())
}

/// The objects below the agent's root that are not the agent's.
fn others(kernel: &Actual) -> (BTreeMap<u16, Found>, BTreeMap<u16, Leaf>, BTreeMap<Place, Filter>) {
    let mut all = kernel.clone();
    all.classes.retain(|&minor, _| !ids::is_class(minor));
    all.leaves.retain(|&minor, _| !ids::is_class(minor));
    all.filters.retain(|place, _| !ids::is_filter(place.pref));
    (all.classes, all.leaves, all.filters)
}

fn limited() -> impl Strategy<Value = BTreeMap<u16, Limited>> {
    let flow =
        (any::<[u8; 4]>(), any::<u16>(), any::<u16>(), 1e3..1e5).prop_map(|(ip, from, to, rate)| Limited {
            from: SocketAddrV4::new(Ipv4Addr::LOCALHOST, from),
            to: SocketAddrV4::new(ip.into(), to),
            rate: Rate::new(rate).unwrap(),
        });
    btree_map(0..ids::MAX_LIMITED, flow, 0..4)
}

fn desired() -> impl Strategy<Value = Desired> {
    let link = prop_oneof![Just(12.5e6), 1e6..12.5e9];
    // A small set of weights, so that two configurations often share some.
    let weights = vec(prop_oneof![Just(1.0), Just(3.0), 0.01..100.0], 1..6);
    (link, prop_oneof![Just(1u32), Just(46)], weights, limited()).prop_map(
        |(link, segments, weights, limited)| {
            Desired::new(Rate::new(link).unwrap(), segments, &weights, &limited).unwrap()
        },
    )
}

/// A change that another process makes to the kernel's objects.
#[derive(Debug, Clone)]
enum Drift {
    Filter(prop::sample::Index),
    Lead(prop::sample::Index),
    Rate(prop::sample::Index),
    Buffer(prop::sample::Index),
    Handle(prop::sample::Index),
    Quantum(prop::sample::Index),
    Duplicate(prop::sample::Index),
    Class(u16),
    OthersFilter(u16),
    OthersClass(u16),
}

fn drift() -> impl Strategy<Value = Drift> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        index().prop_map(Drift::Filter),
        index().prop_map(Drift::Lead),
        index().prop_map(Drift::Rate),
        index().prop_map(Drift::Buffer),
        index().prop_map(Drift::Handle),
        index().prop_map(Drift::Quantum),
        index().prop_map(Drift::Duplicate),
        (ids::QUEUES..ids::REST).prop_map(Drift::Class),
        (1u16..5).prop_map(Drift::OthersFilter),
        (0x300u16..0x305).prop_map(Drift::OthersClass),
    ]
}

fn drifted(kernel: &mut Actual, drift: &Drift) {
    let place = |index: &prop::sample::Index, kernel: &Actual| {
        kernel.filters.keys().nth(index.index(kernel.filters.len())).copied().unwrap()
    };
    let class = |index: &prop::sample::Index, kernel: &Actual| {
        kernel.leaves.keys().nth(index.index(kernel.leaves.len())).copied().unwrap()
    };
    let new = Found { parent: Some(ids::WHOLE), rate: 8, ceil: 8, burst: 1, cburst: 1, quantum: Some(1) };
    let filters = !kernel.filters.is_empty();
    match drift {
        Drift::Filter(at) if filters => drop(kernel.filters.remove(&place(at, kernel))),
        Drift::Lead(at) if filters => {
            let place = place(at, kernel);
            kernel.filters.get_mut(&place).unwrap().to = ids::REST;
        }
        Drift::Duplicate(at) if filters => {
            let old = place(at, kernel);
            let filter = kernel.filters[&old].clone();
            kernel.filters.insert(Place { table: 0x7ff, ..old }, filter);
        }
        Drift::Rate(at) => kernel.classes.get_mut(&class(at, kernel)).unwrap().rate += 8,
        Drift::Quantum(at) => kernel.classes.get_mut(&class(at, kernel)).unwrap().quantum = Some(0),
        Drift::Buffer(at) => kernel.leaves.get_mut(&class(at, kernel)).unwrap().bytes = None,
        Drift::Handle(at) => kernel.leaves.get_mut(&class(at, kernel)).unwrap().handle ^= 0x8000,
        Drift::Class(minor) => drop(kernel.classes.entry(*minor).or_insert(new)),
        Drift::OthersClass(minor) => drop(kernel.classes.insert(*minor, new)),
        Drift::OthersFilter(node) => {
            let filter = Filter { keys: vec![Key { at: 0, value: 1, mask: 1 }], to: ids::REST };
            kernel.filters.insert(Place { pref: 7, table: 0x800, bucket: 0, node: *node }, filter);
        }
        Drift::Filter(_) | Drift::Lead(_) | Drift::Duplicate(_) => {}
    }
}

fn done(kernel: &mut Actual, desired: &Desired) -> Result<Vec<Change>, TestCaseError> {
    let list = changes(desired, kernel);
    for change in &list {
        apply(kernel, change).map_err(TestCaseError::fail)?;
    }
    Ok(list)
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn changes_lead_from_any_state_to_the_desired_state(
        steps in vec((desired(), vec(drift(), 0..4)), 1..4),
    ) {
        let mut kernel = none();
        for (desired, drifts) in &steps {
            let before = others(&kernel);
            let was = kernel.clone();
            let list = done(&mut kernel, desired)?;
            agrees(&kernel, desired)?;
            prop_assert_eq!(others(&kernel), before);
            prop_assert_eq!(changes(desired, &kernel), vec![]);
            if was.root == Root::Ours {
                // Correct objects are not changed.
                for change in &list {
                    match change {
                        Change::AddRoot | Change::ReplaceRoot => prop_assert!(false, "the root was ours"),
                        Change::SetClass(minor, _) => prop_assert_ne!(was.classes.get(minor), kernel.classes.get(minor)),
                        Change::SetLeaf(minor, _) => prop_assert_ne!(was.leaves.get(minor), kernel.leaves.get(minor)),
                        Change::AddClass(minor, _) => prop_assert!(!was.classes.contains_key(minor)),
                        Change::DropClass(minor) => prop_assert!(!kernel.classes.contains_key(minor)),
                        Change::AddFilter(..) => {}
                        Change::DropFilter(place) => prop_assert_ne!(was.filters.get(place), kernel.filters.get(place)),
                    }
                }
                // One line per object.
                let texts: BTreeSet<String> = list.iter().map(|change| format!("{change:?}")).collect();
                prop_assert_eq!(texts.len(), list.len());
            }
            drifts.iter().for_each(|drift| drifted(&mut kernel, drift));
        }
    }

    #[test]
    fn guaranteed_rates_fit_the_link(desired in desired()) {
        let whole = desired.classes()[&ids::WHOLE].class;
        let promised: u64 = desired.classes().iter().filter(|(minor, _)| **minor != ids::WHOLE).map(|(_, want)| want.class.rate).sum();
        // Packets without a mark have a guaranteed thousandth in addition.
        prop_assert!(promised as f64 <= whole.rate as f64 * 1.0021, "{promised} of {}", whole.rate);
        for (minor, want) in desired.classes() {
            prop_assert!(want.class.rate >= 8 && want.class.ceil <= whole.ceil, "{minor:x}: {want:?}");
            prop_assert!(want.class.quantum >= whole.quantum, "{minor:x}: {want:?}");
        }
    }

    #[test]
    fn parser_does_not_panic_on_any_text(text in "[ -~\n]{0,200}", class in "class htb 7765:[0-9a-f]{0,5}( (rate|ceil|quantum|parent) [0-9a-zA-Z:]{0,30}){0,5}") {
        let ours = r#"[{"kind":"htb","handle":"7765:","root":true,"options":{}}]"#;
        let _ = Actual::parse(&text, &text, &text);
        let _ = Actual::parse(ours, &class, &format!("filter pref {text}\nmatch {text}"));
    }
}

/// Printed by Linux 6.18 and iproute2 6.1 for the queues 1:3 of a link of 100 Mbit and a limited flow, and for one class and filter
/// that are not the agent's.
const QDISCS: &str = r#"[{"kind":"htb","handle":"7765:","root":true,"refcnt":3,"options":{"r2q":10,"default":"0x1ff","direct_packets_stat":0,"direct_qlen":1000}},{"kind":"bfifo","handle":"7800:","parent":"7765:100","options":{"limit":1024000}},{"kind":"clsact","handle":"ffff:","parent":"ffff:fff1","options":{}}]"#;
const CLASSES: &str = "\
class htb 7765:100 parent 7765:1 leaf 7800: prio 0 quantum 6001000 rate 76923Kbit ceil 100Mbit linklayer ethernet burst 16365b/1 mpu 0b cburst 16Kb/1 mpu 0b level 0 
class htb 7765:1 root rate 12345Mbit ceil 12345Mbit linklayer ethernet burst 1540123b/1 mpu 0b cburst 1540123b/1 mpu 0b level 7 
class fq_codel 8001:1 parent 8001:
";
const FILTERS: &str = "\
filter protocol ip pref 30563 u32 chain 0 
filter protocol ip pref 30563 u32 chain 0 fh 802: ht divisor 1 
filter protocol ip pref 30563 u32 chain 0 fh 802::7 order 7 key ht 802 bkt 0 *flowid 7765:100 not_in_hw 
  match 00110000/00ff0000 at 8
  match 0a000001/ffffffff at 16
filter protocol ipv6 pref 30566 u32 chain 0 fh 801::5 order 5 key ht 801 bkt 0 flowid 7765:100 
  match 02000000/0fc00000 at 0
filter protocol all pref 49152 bpf chain 0 handle 0x1 flowid 7765:100 
";

#[test]
fn tc_output_is_parsed() {
    let actual = Actual::parse(QDISCS, CLASSES, FILTERS).unwrap();
    assert_eq!(actual.root, Root::Ours);
    let found = Found {
        parent: Some(1),
        rate: 76_923_000,
        ceil: 100_000_000,
        burst: 16365,
        cburst: 16384,
        quantum: Some(6_001_000),
    };
    assert_eq!(actual.classes[&0x100], found);
    assert_eq!(
        (actual.classes[&1].parent, actual.classes[&1].quantum, actual.classes.len()),
        (None, None, 2)
    );
    assert_eq!(actual.leaves, BTreeMap::from([(0x100, Leaf { handle: 0x7800, bytes: Some(1_024_000) })]));
    let key = |at, value, mask| Key { at, value, mask };
    let flow = [key(8, 0x0011_0000, 0x00ff_0000), key(16, 0x0a00_0001, u32::MAX)];
    let filters = [
        (Place { pref: 30563, table: 0x802, bucket: 0, node: 7 }, Filter { keys: flow.to_vec(), to: 0x100 }),
        (
            Place { pref: 30566, table: 0x801, bucket: 0, node: 5 },
            Filter { keys: vec![key(0, 0x0200_0000, 0x0fc0_0000)], to: 0x100 },
        ),
    ];
    assert_eq!(actual.filters, BTreeMap::from(filters));
    let root = |text: &str| Actual::parse(text, "", "").unwrap().root;
    assert_eq!(root(r#"[{"kind":"noqueue","handle":"0:","root":true,"options":{}}]"#), Root::Default);
    assert_eq!(
        root(
            r#"[{"kind":"mq","handle":"0:","root":true},{"kind":"fq_codel","handle":"0:","parent":":1","options":{"limit":10240}}]"#
        ),
        Root::Default
    );
    assert_eq!(root("[]"), Root::Default);
    let fifo = Root::Fifo { kind: "pfifo".to_owned(), handle: 5, limit: 77 };
    assert_eq!(root(r#"[{"kind":"pfifo","handle":"5:","root":true,"options":{"limit":77}}]"#), fifo);
    assert_eq!(
        root(r#"[{"kind":"htb","handle":"1:","root":true,"options":{}}]"#),
        Root::Other("htb".to_owned())
    );
    let broken = CLASSES.replace("76923Kbit", "76923xbit");
    let error = Actual::parse(QDISCS, &broken, "").unwrap_err();
    assert!(error.to_string().contains("a rate such as 10Mbit after `rate`"), "{error}");
}

#[test]
fn changes_format_as_tc_lines() {
    let from = "10.0.0.1:5000".parse().unwrap();
    let flow = Limited { from, to: "10.0.0.2:6000".parse().unwrap(), rate: "20Mbit".parse().unwrap() };
    let desired =
        Desired::new("100Mbit".parse().unwrap(), 1, &[1.0, 3.0], &BTreeMap::from([(2, flow)])).unwrap();
    let lines: Vec<String> = changes(&desired, &none()).iter().map(|c| c.line("eth0").to_string()).collect();
    // 80 Mbit remain. Packets without a mark get a thousandth of them.
    let expected = "\
qdisc add dev eth0 root handle 7765: htb default 0x1ff
class add dev eth0 parent 7765: classid 7765:1 htb rate 100000000bit ceil 100000000bit burst 16384 cburst 16384 quantum 1514
class add dev eth0 parent 7765:1 classid 7765:100 htb rate 20000000bit ceil 100000000bit burst 16384 cburst 16384 quantum 1514
qdisc replace dev eth0 parent 7765:100 handle 7800: bfifo limit 250000
class add dev eth0 parent 7765:1 classid 7765:101 htb rate 60000000bit ceil 100000000bit burst 16384 cburst 16384 quantum 4542
qdisc replace dev eth0 parent 7765:101 handle 7801: bfifo limit 250000
class add dev eth0 parent 7765:1 classid 7765:1ff htb rate 80000bit ceil 100000000bit burst 16384 cburst 16384 quantum 1514
qdisc replace dev eth0 parent 7765:1ff handle 78ff: bfifo limit 250000
class add dev eth0 parent 7765:1 classid 7765:1002 htb rate 20000000bit ceil 20000000bit burst 16384 cburst 16384 quantum 1514
qdisc replace dev eth0 parent 7765:1002 handle 6002: bfifo limit 250000
filter add dev eth0 parent 7765: protocol ip prio 30563 handle ::3 u32 match u32 0x00110000 0x00ff0000 at 8 match u32 0x0a000001 0xffffffff at 12 match u32 0x0a000002 0xffffffff at 16 match u32 0x13881770 0xffffffff at 20 flowid 7765:1002
filter add dev eth0 parent 7765: protocol ip prio 30565 handle ::1 u32 match u32 0x00040000 0x00fc0000 at 0 flowid 7765:100
filter add dev eth0 parent 7765: protocol ip prio 30565 handle ::2 u32 match u32 0x00080000 0x00fc0000 at 0 flowid 7765:101
filter add dev eth0 parent 7765: protocol ipv6 prio 30566 handle ::1 u32 match u32 0x00400000 0x0fc00000 at 0 flowid 7765:100
filter add dev eth0 parent 7765: protocol ipv6 prio 30566 handle ::2 u32 match u32 0x00800000 0x0fc00000 at 0 flowid 7765:101";
    assert_eq!(lines, expected.lines().collect::<Vec<_>>());
    // Other weights change the parameters of classes only.
    let mut kernel = none();
    changes(&desired, &none()).iter().for_each(|change| apply(&mut kernel, change).unwrap());
    let turned =
        Desired::new("100Mbit".parse().unwrap(), 1, &[3.0, 1.0], &BTreeMap::from([(2, flow)])).unwrap();
    let lines: Vec<String> = changes(&turned, &kernel).iter().map(|c| c.line("eth0").to_string()).collect();
    let class = |minor, rate, quantum| {
        format!(
            "class change dev eth0 parent 7765:1 classid 7765:{minor} htb rate {rate}bit ceil 100000000bit burst 16384 cburst 16384 quantum {quantum}"
        )
    };
    assert_eq!(lines, [class("100", 60_000_000, 4542), class("101", 20_000_000, 1514)]);
}

#[test]
fn what_cannot_be_is_refused() {
    let new = |link: &str, weights: &[f64], limited: &[(u16, &str)]| {
        let end = "10.0.0.1:1".parse().unwrap();
        let flow = |rate: &str| Limited { from: end, to: end, rate: rate.parse().unwrap() };
        let limited = limited.iter().map(|&(number, rate)| (number, flow(rate))).collect();
        Desired::new(link.parse().unwrap(), 1, weights, &limited).map(drop)
    };
    assert_eq!(new("1Gbit", &[1.0, 1e6], &[(0, "500Mbit"), (1, "490Mbit")]), Ok(()));
    assert!(matches!(new("7kbit", &[1.0], &[]), Err(DesiredError::Link(_))));
    assert!(matches!(new("101Gbit", &[1.0], &[]), Err(DesiredError::Link(_))));
    assert_eq!(new("1Gbit", &[], &[]), Err(DesiredError::Queues(0)));
    assert_eq!(new("1Gbit", &[1.0; 63], &[]), Ok(()));
    assert_eq!(new("1Gbit", &[1.0; 64], &[]), Err(DesiredError::Queues(64)));
    for (weight, queue) in [(0.0, 1), (-1.0, 1), (f64::INFINITY, 1), (1e7, 1), (1e-7, 0)] {
        let refused = new("1Gbit", &[1.0, weight], &[]);
        assert!(
            matches!(refused, Err(DesiredError::Weight { queue: of, .. }) if of == queue),
            "{weight}: {refused:?}"
        );
    }
    assert!(matches!(new("1Gbit", &[f64::NAN], &[]), Err(DesiredError::Weight { queue: 0, .. })));
    assert_eq!(new("1Gbit", &[1.0], &[(1000, "1Mbit")]), Err(DesiredError::Number(1000)));
    assert!(matches!(new("1Gbit", &[1.0], &[(0, "991Mbit")]), Err(DesiredError::Limits { flow: 0, .. })));
    assert!(matches!(
        new("1Gbit", &[1.0], &[(0, "500Mbit"), (7, "491Mbit")]),
        Err(DesiredError::Limits { flow: 7, .. })
    ));
    assert!(matches!(new("1Gbit", &[1.0], &[(0, "1bit")]), Err(DesiredError::Limits { flow: 0, .. })));
    for name in ["", "-eth0", "a/b", "a b", "sixteen-letters-", "eth0\nqdisc"] {
        assert!(name.parse::<Interface>().is_err(), "{name}");
    }
    for name in ["eth0", "eth0.100", "br-lan", "_x", "fifteen-letters"] {
        assert_eq!(name.parse::<Interface>().unwrap().to_string(), name);
    }
    assert_eq!((dscp(0), dscp(62), MAX_SERVICES), (1, 63, 63));
}
