//! Tests the changes from actual to desired queues, on a model of the kernel that refuses the same changes as the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::common::config_with_cases;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use weir_agent::htb::{HtbClass, MAX_SERVICES, dscp};
use weir_agent::queues::{
    ActualClass, ActualQueues, Change, DesiredClass, DesiredError, DesiredQueues, Fifo, Filter, FilterHandle,
    Interface, LeafQueue, LimitedFlow, Mq, RootQdisc, Shares, U32Match, changes, ids,
};
use weir_core::units::Rate;
use weir_proto::RateBounds;

fn empty_queues() -> ActualQueues {
    ActualQueues {
        root: RootQdisc::KernelDefault,
        has_fq: false,
        classes: BTreeMap::new(),
        leaves: BTreeMap::new(),
        filters: BTreeMap::new(),
    }
}

/// The burst that `tc` prints after it has set one, in bytes. It passes a time in 32 bits of 64 ns, and reads whole microseconds.
fn printed_burst(burst: u32, rate: u64) -> u64 {
    const TICKS_PER_US: f64 = 15.625;
    let bytes_per_us = rate as f64 / 8e6;
    let ticks = (f64::from(burst) / bytes_per_us * TICKS_PER_US) as u64 as u32;
    ((f64::from(ticks) / TICKS_PER_US).floor() * bytes_per_us) as u64
}

/// Applies a change as the kernel does. The number of a filter's hash table depends on the preference.
fn apply_change(kernel: &mut ActualQueues, change: &Change) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("{change:?}: {why}"));
    if matches!(change, Change::AddRoot | Change::ReplaceRoot) {
        if kernel.root == RootQdisc::Agent {
            return refuse("HTB does not change as a whole");
        }
        *kernel = ActualQueues { root: RootQdisc::Agent, ..empty_queues() };
        return Ok(());
    }
    if kernel.root != RootQdisc::Agent {
        return refuse("no such parent");
    }
    match change {
        Change::AddRoot | Change::ReplaceRoot => unreachable!("handled above"),
        Change::SetSegments(_) => return refuse("not a queueing object"),
        Change::AddClass(minor, desired_class) | Change::SetClass(minor, desired_class) => {
            let is_new = matches!(change, Change::AddClass(..));
            if kernel.classes.contains_key(minor) == is_new {
                return refuse("the class exists already, or does not exist");
            }
            if desired_class.parent.is_some_and(|parent| !kernel.classes.contains_key(&parent)) {
                return refuse("no such parent");
            }
            let class = desired_class.class;
            let found = ActualClass {
                parent: desired_class.parent,
                rate: class.rate,
                ceil: class.ceil,
                burst: printed_burst(class.bursts()[0], class.rate),
                cburst: printed_burst(class.bursts()[1], class.ceil),
                // `tc` prints no quantum for classes with inner classes.
                quantum: desired_class.parent.map(|_| u64::from(class.quantum)),
            };
            if !is_new && kernel.classes[minor].parent != desired_class.parent {
                return refuse("classes do not move");
            }
            kernel.classes.insert(*minor, found);
        }
        Change::DeleteClass(minor) => {
            if kernel.filters.values().any(|filter| filter.class == *minor) {
                return refuse("a filter refers to the class");
            }
            if kernel.classes.values().any(|class| class.parent == Some(*minor)) {
                return refuse("the class has inner classes");
            }
            if kernel.classes.remove(minor).is_none() {
                return refuse("does not exist");
            }
            kernel.leaves.remove(minor);
        }
        Change::SetLeafQueue(minor, bytes) => {
            if !kernel.classes.contains_key(minor) {
                return refuse("no such parent");
            }
            kernel
                .leaves
                .insert(*minor, LeafQueue { handle: ids::leaf_handle(*minor), limit_bytes: Some(*bytes) });
        }
        Change::AddFilter(pref, node, filter) => {
            let table = 0x800 + (pref % 16);
            let handle = FilterHandle { pref: *pref, table, bucket: 0, node: *node };
            if !kernel.classes.contains_key(&filter.class) {
                return refuse("its class does not exist");
            }
            if kernel.filters.insert(handle, filter.clone()).is_some() {
                return refuse("exists already");
            }
        }
        Change::DeleteFilter(handle) => {
            if kernel.filters.remove(handle).is_none() {
                return refuse("does not exist");
            }
        }
    }
    Ok(())
}

/// Checks that the kernel has all desired objects, and no other ones of the agent.
fn check_queues(kernel: &ActualQueues, desired: &DesiredQueues) -> Result<(), TestCaseError> {
    prop_assert_eq!(&kernel.root, &RootQdisc::Agent);
    let classes: Vec<u16> =
        kernel.classes.keys().copied().filter(|&minor| ids::is_agent_class(minor)).collect();
    prop_assert_eq!(&classes, &desired.classes().keys().copied().collect::<Vec<_>>());
    for (minor, desired_class) in desired.classes() {
        let found = kernel.classes[minor];
        prop_assert_eq!(
            (found.parent, found.rate, found.ceil),
            (desired_class.parent, desired_class.class.rate, desired_class.class.ceil)
        );
        prop_assert_eq!(found.quantum, desired_class.parent.map(|_| u64::from(desired_class.class.quantum)));
        for (found, desired) in [found.burst, found.cburst].into_iter().zip(desired_class.class.bursts()) {
            let ratio = found as f64 / f64::from(desired);
            prop_assert!((0.98..=1.02).contains(&ratio), "burst of {minor:x}: {found} of {desired}");
        }
        if *minor != ids::LINK_CLASS {
            let leaf = LeafQueue {
                handle: ids::leaf_handle(*minor),
                limit_bytes: Some(desired_class.class.queue_limit),
            };
            prop_assert_eq!(kernel.leaves.get(minor), Some(&leaf));
        }
    }
    let agent_filters = kernel.filters.iter().filter(|(handle, _)| ids::is_agent_filter_pref(handle.pref));
    let filters: Vec<_> =
        agent_filters.map(|(handle, filter)| ((handle.pref, handle.node), filter)).collect();
    let desired_filters: Vec<_> = desired.filters().iter().map(|(&name, filter)| (name, filter)).collect();
    let sorted = |list: Vec<((u16, u16), &Filter)>| {
        list.into_iter().map(|(name, f)| (name, f.clone())).collect::<BTreeMap<_, _>>()
    };
    prop_assert_eq!(filters.len(), desired_filters.len());
    prop_assert_eq!(sorted(filters), sorted(desired_filters));
    Ok(())
}

/// The objects below the agent's root that are not the agent's.
fn foreign_objects(
    kernel: &ActualQueues,
) -> (BTreeMap<u16, ActualClass>, BTreeMap<u16, LeafQueue>, BTreeMap<FilterHandle, Filter>) {
    let mut all = kernel.clone();
    all.classes.retain(|&minor, _| !ids::is_agent_class(minor));
    all.leaves.retain(|&minor, _| !ids::is_agent_class(minor));
    all.filters.retain(|handle, _| !ids::is_agent_filter_pref(handle.pref));
    (all.classes, all.leaves, all.filters)
}

fn limited_flows() -> impl Strategy<Value = BTreeMap<u16, LimitedFlow>> {
    let ipv4 = any::<[u8; 4]>().prop_map(|ip| (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(ip)));
    let ipv6 = any::<[u8; 16]>().prop_map(|ip| (Ipv6Addr::LOCALHOST.into(), ip.into()));
    let hosts = prop_oneof![ipv4, ipv6];
    let flow =
        (hosts, any::<u16>(), any::<u16>(), 1e3..1e5).prop_map(|((source, destination), from, to, rate)| {
            LimitedFlow {
                source: SocketAddr::new(source, from),
                destination: SocketAddr::new(destination, to),
                rate: Rate::new(rate).unwrap(),
            }
        });
    btree_map(0..ids::MAX_LIMITED_FLOWS, flow, 0..4)
}

fn desired_queues() -> impl Strategy<Value = DesiredQueues> {
    let link = prop_oneof![Just(12.5e6), 1e6..12.5e9];
    // A small set of weights, so that two configurations often share some.
    let weights = vec(prop_oneof![Just(1.0), Just(3.0), Just(1e-4), 0.01..100.0], 1..6);
    let coordinators = [
        None,
        Some("127.0.0.1:7700".parse().unwrap()),
        Some("10.0.0.9:7700".parse().unwrap()),
        Some("[fd09::5]:7701".parse().unwrap()),
    ];
    let coordinator = prop::sample::select(coordinators.to_vec());
    (link, prop_oneof![Just(1u32), Just(46)], weights, limited_flows(), coordinator).prop_map(
        |(link, segments, weights, limited, coordinator)| {
            let link = Rate::new(link).unwrap();
            DesiredQueues::new(link, segments, &Shares::by_weight(&weights), &limited)
                .unwrap()
                .with_coordinator(coordinator)
        },
    )
}

/// A change that another process makes to the kernel's objects.
#[derive(Debug, Clone)]
enum ForeignChange {
    DeleteFilter(prop::sample::Index),
    RedirectFilter(prop::sample::Index),
    ChangeRate(prop::sample::Index),
    RemoveQueueLimit(prop::sample::Index),
    ChangeHandle(prop::sample::Index),
    ResetQuantum(prop::sample::Index),
    DuplicateFilter(prop::sample::Index),
    AddClass(u16),
    AddForeignFilter(u16),
    AddForeignClass(u16),
}

fn foreign_change() -> impl Strategy<Value = ForeignChange> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        index().prop_map(ForeignChange::DeleteFilter),
        index().prop_map(ForeignChange::RedirectFilter),
        index().prop_map(ForeignChange::ChangeRate),
        index().prop_map(ForeignChange::RemoveQueueLimit),
        index().prop_map(ForeignChange::ChangeHandle),
        index().prop_map(ForeignChange::ResetQuantum),
        index().prop_map(ForeignChange::DuplicateFilter),
        (ids::FIRST_QUEUE_CLASS..ids::DEFAULT_CLASS).prop_map(ForeignChange::AddClass),
        (1u16..5).prop_map(ForeignChange::AddForeignFilter),
        (0x300u16..0x305).prop_map(ForeignChange::AddForeignClass),
    ]
}

fn apply_foreign_change(kernel: &mut ActualQueues, change: &ForeignChange) {
    let nth_filter = |index: &prop::sample::Index, kernel: &ActualQueues| {
        kernel.filters.keys().nth(index.index(kernel.filters.len())).copied().unwrap()
    };
    let nth_class = |index: &prop::sample::Index, kernel: &ActualQueues| {
        kernel.leaves.keys().nth(index.index(kernel.leaves.len())).copied().unwrap()
    };
    let new = ActualClass {
        parent: Some(ids::LINK_CLASS),
        rate: 8,
        ceil: 8,
        burst: 1,
        cburst: 1,
        quantum: Some(1),
    };
    let has_filters = !kernel.filters.is_empty();
    match change {
        ForeignChange::DeleteFilter(at) if has_filters => {
            drop(kernel.filters.remove(&nth_filter(at, kernel)))
        }
        ForeignChange::RedirectFilter(at) if has_filters => {
            let handle = nth_filter(at, kernel);
            kernel.filters.get_mut(&handle).unwrap().class = ids::DEFAULT_CLASS;
        }
        ForeignChange::DuplicateFilter(at) if has_filters => {
            let old = nth_filter(at, kernel);
            let filter = kernel.filters[&old].clone();
            kernel.filters.insert(FilterHandle { table: 0x7ff, ..old }, filter);
        }
        ForeignChange::ChangeRate(at) => kernel.classes.get_mut(&nth_class(at, kernel)).unwrap().rate += 8,
        ForeignChange::ResetQuantum(at) => {
            kernel.classes.get_mut(&nth_class(at, kernel)).unwrap().quantum = Some(0)
        }
        ForeignChange::RemoveQueueLimit(at) => {
            kernel.leaves.get_mut(&nth_class(at, kernel)).unwrap().limit_bytes = None
        }
        ForeignChange::ChangeHandle(at) => {
            kernel.leaves.get_mut(&nth_class(at, kernel)).unwrap().handle ^= 0x8000
        }
        ForeignChange::AddClass(minor) => drop(kernel.classes.entry(*minor).or_insert(new)),
        ForeignChange::AddForeignClass(minor) => drop(kernel.classes.insert(*minor, new)),
        ForeignChange::AddForeignFilter(node) => {
            let filter = Filter {
                matches: vec![U32Match { offset: 0, value: 1, mask: 1 }],
                class: ids::DEFAULT_CLASS,
            };
            kernel.filters.insert(FilterHandle { pref: 7, table: 0x800, bucket: 0, node: *node }, filter);
        }
        ForeignChange::DeleteFilter(_)
        | ForeignChange::RedirectFilter(_)
        | ForeignChange::DuplicateFilter(_) => {}
    }
}

fn apply_changes(kernel: &mut ActualQueues, desired: &DesiredQueues) -> Result<Vec<Change>, TestCaseError> {
    let list = changes(desired, kernel);
    for change in &list {
        apply_change(kernel, change).map_err(TestCaseError::fail)?;
    }
    Ok(list)
}

proptest! {
    #![proptest_config(config_with_cases(512))]

    #[test]
    fn changes_lead_from_any_state_to_the_desired_state(
        steps in vec((desired_queues(), vec(foreign_change(), 0..4)), 1..4),
    ) {
        let mut kernel = empty_queues();
        for (desired, foreign_changes) in &steps {
            let before = foreign_objects(&kernel);
            let previous = kernel.clone();
            let list = apply_changes(&mut kernel, desired)?;
            check_queues(&kernel, desired)?;
            prop_assert_eq!(foreign_objects(&kernel), before);
            prop_assert_eq!(changes(desired, &kernel), vec![]);
            if previous.root == RootQdisc::Agent {
                // Correct objects are not changed.
                for change in &list {
                    match change {
                        Change::AddRoot | Change::ReplaceRoot => prop_assert!(false, "the agent replaces its own root"),
                        Change::SetClass(minor, _) => prop_assert_ne!(previous.classes.get(minor), kernel.classes.get(minor)),
                        Change::SetSegments(_) => prop_assert!(false, "segments are not a queueing object"),
                        Change::SetLeafQueue(minor, _) => prop_assert_ne!(previous.leaves.get(minor), kernel.leaves.get(minor)),
                        Change::AddClass(minor, _) => prop_assert!(!previous.classes.contains_key(minor)),
                        Change::DeleteClass(minor) => prop_assert!(!kernel.classes.contains_key(minor)),
                        Change::AddFilter(..) => {}
                        Change::DeleteFilter(handle) => prop_assert_ne!(previous.filters.get(handle), kernel.filters.get(handle)),
                    }
                }
                // One line per object.
                let texts: BTreeSet<String> = list.iter().map(|change| format!("{change:?}")).collect();
                prop_assert_eq!(texts.len(), list.len());
            }
            foreign_changes.iter().for_each(|drift| apply_foreign_change(&mut kernel, drift));
        }
    }

    #[test]
    fn guaranteed_rates_fit_the_link(desired in desired_queues()) {
        let link_class = desired.classes()[&ids::LINK_CLASS].class;
        let guaranteed: u64 = desired.classes().iter().filter(|(minor, _)| **minor != ids::LINK_CLASS).map(|(_, desired_class)| desired_class.class.rate).sum();
        // Rates are rounded to four or more digits, that of the link as well.
        prop_assert!(guaranteed as f64 <= link_class.rate as f64 * 1.001, "{guaranteed} of {}", link_class.rate);
        for (minor, desired_class) in desired.classes() {
            prop_assert!(desired_class.class.rate >= 8 && desired_class.class.ceil <= link_class.ceil, "{minor:x}: {desired_class:?}");
            prop_assert!(desired_class.class.quantum >= link_class.quantum, "{minor:x}: {desired_class:?}");
        }
    }

    #[test]
    fn parser_does_not_panic_on_any_text(text in "[ -~\n]{0,200}", class in "class htb 7765:[0-9a-f]{0,5}( (rate|ceil|quantum|parent) [0-9a-zA-Z:]{0,30}){0,5}") {
        let agent_root = r#"[{"kind":"htb","handle":"7765:","root":true,"options":{}}]"#;
        let _ = ActualQueues::parse(&text, &text, &text);
        let _ = ActualQueues::parse(agent_root, &class, &format!("filter pref {text}\nmatch {text}"));
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
    let actual = ActualQueues::parse(QDISCS, CLASSES, FILTERS).unwrap();
    assert_eq!(actual.root, RootQdisc::Agent);
    let found = ActualClass {
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
    assert_eq!(
        actual.leaves,
        BTreeMap::from([(0x100, LeafQueue { handle: 0x7800, limit_bytes: Some(1_024_000) })])
    );
    let key = |at, value, mask| U32Match { offset: at, value, mask };
    let flow = [key(8, 0x0011_0000, 0x00ff_0000), key(16, 0x0a00_0001, u32::MAX)];
    let filters = [
        (
            FilterHandle { pref: 30563, table: 0x802, bucket: 0, node: 7 },
            Filter { matches: flow.to_vec(), class: 0x100 },
        ),
        (
            FilterHandle { pref: 30566, table: 0x801, bucket: 0, node: 5 },
            Filter { matches: vec![key(0, 0x0200_0000, 0x0fc0_0000)], class: 0x100 },
        ),
    ];
    assert_eq!(actual.filters, BTreeMap::from(filters));
    let root = |text: &str| ActualQueues::parse(text, "", "").unwrap().root;
    assert_eq!(
        root(r#"[{"kind":"noqueue","handle":"0:","root":true,"options":{}}]"#),
        RootQdisc::KernelDefault
    );
    assert_eq!(
        root(
            r#"[{"kind":"mq","handle":"0:","root":true},{"kind":"fq_codel","handle":"0:","parent":":1","options":{"limit":10240}}]"#
        ),
        RootQdisc::KernelDefault
    );
    assert_eq!(root("[]"), RootQdisc::KernelDefault);
    // Of an administrator, which the agent could not restore.
    for kind in ["fq", "mqprio", "fq_codel"] {
        let text = format!(r#"[{{"kind":"{kind}","handle":"8001:","root":true,"refcnt":2,"options":{{}}}}]"#);
        assert_eq!(root(&text), RootQdisc::Other(kind.to_owned()));
    }
    // `mq` of an administrator: some queues are FIFOs, the others are the kernel's default.
    let queues = r#"{"kind":"mq","handle":"8001:","root":true,"options":{}},
        {"kind":"fq_codel","handle":"0:","parent":"8001:2","options":{"limit":10240}},
        {"kind":"bfifo","handle":"a:","parent":"8001:1f","options":{"limit":9000}},
        {"kind":"clsact","handle":"ffff:","parent":"ffff:fff1","options":{}}"#;
    let fifos = BTreeMap::from([(0x1f, Fifo { kind: "bfifo".to_owned(), handle: 10, limit: 9000 })]);
    assert_eq!(root(&format!("[{queues}]")), RootQdisc::Mq(Mq { handle: 0x8001, fifos }));
    let fq = r#"{"kind":"fq","handle":"b:","parent":"8001:3","options":{"limit":10000}}"#;
    assert_eq!(root(&format!("[{queues},{fq}]")), RootQdisc::Other("mq with fq".to_owned()));
    // The kernel's default where `net.core.default_qdisc` is `fq`: the root of a card with one queue, or a child of `mq`.
    let has_fq = |text: &str| {
        let actual = ActualQueues::parse(text, "", "").unwrap();
        (actual.root, actual.has_fq)
    };
    let fq = r#"{"kind":"fq","handle":"0:","root":true,"refcnt":2,"options":{"limit":10000,"flow_limit":100,"buckets":1024}}"#;
    assert_eq!(has_fq(&format!("[{fq}]")), (RootQdisc::KernelDefault, true));
    let child = fq.replace(r#""root":true,"refcnt":2"#, r#""parent":":1""#);
    let mq = format!(r#"[{{"kind":"mq","handle":"0:","root":true,"options":{{}}}},{child}]"#);
    assert_eq!(has_fq(&mq), (RootQdisc::KernelDefault, true));
    assert!(!has_fq(&mq.replace(r#""fq""#, r#""fq_codel""#)).1);
    let fifo = RootQdisc::Fifo(Fifo { kind: "pfifo".to_owned(), handle: 5, limit: 77 });
    assert_eq!(root(r#"[{"kind":"pfifo","handle":"5:","root":true,"options":{"limit":77}}]"#), fifo);
    assert_eq!(
        root(r#"[{"kind":"htb","handle":"1:","root":true,"options":{}}]"#),
        RootQdisc::Other("htb".to_owned())
    );
    let broken = CLASSES.replace("76923Kbit", "76923xbit");
    let error = ActualQueues::parse(QDISCS, &broken, "").unwrap_err();
    assert!(error.to_string().contains("a rate such as 10Mbit after `rate`"), "{error}");
}

/// Queues of a link of 100 Mbit/s next to a limited flow, with a coordinator.
fn limited_queues(weights: &[f64], flow: LimitedFlow) -> DesiredQueues {
    let limited = BTreeMap::from([(2, flow)]);
    DesiredQueues::new("100Mbit".parse().unwrap(), 1, &Shares::by_weight(weights), &limited)
        .unwrap()
        .with_coordinator(Some("10.0.0.9:7700".parse().unwrap()))
}

#[test]
fn changes_format_as_tc_lines() {
    let from = "10.0.0.1:5000".parse().unwrap();
    let flow = LimitedFlow {
        source: from,
        destination: "10.0.0.2:6000".parse().unwrap(),
        rate: "20Mbit".parse().unwrap(),
    };
    let desired = limited_queues(&[1.0, 3.0], flow);
    let lines: Vec<String> =
        changes(&desired, &empty_queues()).iter().map(|c| c.line("eth0").to_string()).collect();
    // 1 % is the margin, 1 % of the rest for the coordinator's streams, and 5 % of what then remains for packets without a class. The
    // limited flow leaves 73.1 Mbit of 93.1 Mbit to the queues.
    let expected = "\
qdisc add dev eth0 root handle 7765: htb default 0x1ff
class add dev eth0 parent 7765: classid 7765:1 htb rate 99000000bit ceil 99000000bit burst 16384 cburst 16384 quantum 1514
class add dev eth0 parent 7765:1 classid 7765:100 htb rate 18277000bit ceil 99000000bit burst 16384 cburst 16384 quantum 1514
qdisc replace dev eth0 parent 7765:100 handle 7800: bfifo limit 247500
class add dev eth0 parent 7765:1 classid 7765:101 htb rate 54832000bit ceil 99000000bit burst 16384 cburst 16384 quantum 4542
qdisc replace dev eth0 parent 7765:101 handle 7801: bfifo limit 247500
class add dev eth0 parent 7765:1 classid 7765:1fe htb rate 990000bit ceil 99000000bit burst 16384 cburst 16384 quantum 1514
qdisc replace dev eth0 parent 7765:1fe handle 78fe: bfifo limit 247500
class add dev eth0 parent 7765:1 classid 7765:1ff htb rate 4900000bit ceil 99000000bit burst 16384 cburst 16384 quantum 1514
qdisc replace dev eth0 parent 7765:1ff handle 78ff: bfifo limit 247500
class add dev eth0 parent 7765:1 classid 7765:1002 htb rate 20000000bit ceil 20000000bit burst 16384 cburst 16384 quantum 1514
qdisc replace dev eth0 parent 7765:1002 handle 6002: bfifo limit 247500
filter add dev eth0 parent 7765: protocol ip prio 30561 handle ::1 u32 match u32 0x00060000 0x00ff0000 at 8 match u32 0x0a000009 0xffffffff at 16 match u32 0x00001e14 0x0000ffff at 20 flowid 7765:1fe
filter add dev eth0 parent 7765: protocol ip prio 30561 handle ::2 u32 match u32 0x00060000 0x00ff0000 at 8 match u32 0x0a000009 0xffffffff at 12 match u32 0x1e140000 0xffff0000 at 20 flowid 7765:1fe
filter add dev eth0 parent 7765: protocol ip prio 30563 handle ::3 u32 match u32 0x00110000 0x00ff0000 at 8 match u32 0x0a000001 0xffffffff at 12 match u32 0x0a000002 0xffffffff at 16 match u32 0x13881770 0xffffffff at 20 flowid 7765:1002
filter add dev eth0 parent 7765: protocol ip prio 30565 handle ::1 u32 match u32 0x00040000 0x00fc0000 at 0 flowid 7765:100
filter add dev eth0 parent 7765: protocol ip prio 30565 handle ::2 u32 match u32 0x00080000 0x00fc0000 at 0 flowid 7765:101
filter add dev eth0 parent 7765: protocol ipv6 prio 30566 handle ::1 u32 match u32 0x00400000 0x0fc00000 at 0 flowid 7765:100
filter add dev eth0 parent 7765: protocol ipv6 prio 30566 handle ::2 u32 match u32 0x00800000 0x0fc00000 at 0 flowid 7765:101";
    assert_eq!(lines, expected.lines().collect::<Vec<_>>());
    // Other weights change the parameters of classes only.
    let mut kernel = empty_queues();
    changes(&desired, &empty_queues()).iter().for_each(|change| apply_change(&mut kernel, change).unwrap());
    let swapped = limited_queues(&[3.0, 1.0], flow);
    let lines: Vec<String> = changes(&swapped, &kernel).iter().map(|c| c.line("eth0").to_string()).collect();
    let class = |minor, rate, quantum| {
        format!(
            "class change dev eth0 parent 7765:1 classid 7765:{minor} htb rate {rate}bit ceil 99000000bit burst 16384 cburst 16384 quantum {quantum}"
        )
    };
    assert_eq!(lines, [class("100", 54_832_000, 4542), class("101", 18_277_000, 1514)]);
}

#[test]
fn filters_of_limited_flows_match_both_ends_over_ipv6() {
    let flow = LimitedFlow {
        source: "[fd09::1]:5000".parse().unwrap(),
        destination: "[fd09::2]:6000".parse().unwrap(),
        rate: "20Mbit".parse().unwrap(),
    };
    let lines = changes(&limited_queues(&[1.0], flow), &empty_queues());
    let lines = lines.iter().map(|change| change.line("eth0").to_string());
    let filters: Vec<String> = lines.filter(|line| line.contains("flowid 7765:1002")).collect();
    let address = |last: u8, offset: u8| {
        format!(
            "match u32 0xfd090000 0xffffffff at {offset} match u32 0x00000000 0xffffffff at {} match u32 0x00000000 0xffffffff at {} \
             match u32 0x{last:08x} 0xffffffff at {}",
            offset + 4,
            offset + 8,
            offset + 12
        )
    };
    let expected = format!(
        "filter add dev eth0 parent 7765: protocol ipv6 prio 30564 handle ::3 u32 match u32 0x00001100 0x0000ff00 at 4 {} {} \
         match u32 0x13881770 0xffffffff at 40 flowid 7765:1002",
        address(1, 8),
        address(2, 24)
    );
    assert_eq!(filters, [expected]);
}

/// A queue of a tiny weight gets a burst that the kernel can count, so that the agent finds no difference after it has set it.
#[test]
fn burst_of_a_tiny_weight_is_read_back_unchanged() {
    // The kernel keeps the remainder of 16 KiB: it takes 431 s at 304 bit/s and 1489 s at 88 bit/s.
    assert_eq!([304, 88].map(|rate| printed_burst(16_384, rate)), [5938, 1265]);
    let desired =
        DesiredQueues::new("100Mbit".parse().unwrap(), 1, &Shares::by_weight(&[3.0, 1e-5]), &BTreeMap::new())
            .unwrap();
    let tiny = desired.classes()[&0x101].class;
    assert_eq!((tiny.rate, tiny.burst, tiny.bursts()), (304, 16_384, [9728, 16_384]));
    assert!(tiny.to_string().contains(" burst 9728 cburst 16384 "), "{tiny}");
    let mut kernel = empty_queues();
    changes(&desired, &kernel).iter().for_each(|change| apply_change(&mut kernel, change).unwrap());
    let repairs = changes(&desired, &kernel);
    assert!(repairs.is_empty(), "{repairs:?}");
    for rate in [8, 88, 304, 472, 480, 512, 520] {
        let [burst, _] = HtbClass { rate, ..tiny }.bursts();
        assert!(printed_burst(burst, rate).abs_diff(burst.into()) <= 1, "{rate}: {burst}");
    }
}

/// The guaranteed and maximum rate of each queue of a link of 1 Gbit/s, in Mbit/s, and its length in bytes.
fn bounded_queues(bounds: &[(f64, Option<f64>)], limited: Option<&str>) -> Vec<(f64, f64, u32)> {
    let bytes = |mbit: f64| (mbit * 125e3) as u64;
    let rate_bounds: Vec<RateBounds> =
        bounds.iter().map(|&(min, max)| RateBounds { min: bytes(min), max: max.map(bytes) }).collect();
    let weights = [1.0, 3.0];
    let shares = Shares { rate_bounds: &rate_bounds, ..Shares::by_weight(&weights) };
    let end = "10.0.0.1:1".parse().unwrap();
    let flow = |rate: &str| LimitedFlow { source: end, destination: end, rate: rate.parse().unwrap() };
    let limited = limited.map(|rate| (0, flow(rate))).into_iter().collect();
    let desired = DesiredQueues::new("1Gbit".parse().unwrap(), 43, &shares, &limited).unwrap();
    let queue = |(_, desired): (&u16, &DesiredClass)| {
        let class = desired.class;
        (class.rate as f64 / 1e6, class.ceil as f64 / 1e6, class.queue_limit)
    };
    desired.classes().range(0x100..0x102).map(queue).collect()
}

fn assert_queues(found: &[(f64, f64, u32)], expected: [(f64, f64); 2]) {
    let is_near = |a: f64, b: f64| (a - b).abs() < 0.01;
    let is_expected = |(found, expected): (&(f64, f64, u32), (f64, f64))| {
        is_near(found.0, expected.0) && is_near(found.1, expected.1)
    };
    assert!(found.len() == 2 && found.iter().zip(expected).all(is_expected), "{found:?}, not {expected:?}");
}

#[test]
fn queues_are_guaranteed_their_minimum_and_do_not_exceed_their_maximum() {
    // Services divide 931.095 Mbit/s of 990.
    let unbounded = bounded_queues(&[], None);
    assert_queues(&unbounded, [(232.77, 990.0), (698.32, 990.0)]);
    assert_queues(&bounded_queues(&[(400.0, None), (0.0, None)], None), [(400.0, 990.0), (531.09, 990.0)]);
    // The queue is as long as that of a link of its maximum rate.
    let limited = bounded_queues(&[(100.0, Some(200.0)), (0.0, None)], None);
    assert_queues(&limited, [(200.0, 200.0), (698.32, 990.0)]);
    assert_eq!((unbounded[0].2, limited[0].2, limited[1].2), (2_475_000, 500_000, 2_475_000));
    // A link that is slower than the minima is divided in proportion to them.
    assert_queues(
        &bounded_queues(&[(1500.0, None), (500.0, None)], None),
        [(698.32, 990.0), (232.77, 990.0)],
    );
}

#[test]
fn limited_flows_take_only_what_queues_have_above_their_minimum() {
    let bounds = [(400.0, None), (0.0, None)];
    // Without the minimum, the flow takes a quarter of its rate from the first queue.
    assert_queues(&bounded_queues(&[], Some("400Mbit")), [(132.77, 990.0), (398.32, 990.0)]);
    assert_queues(&bounded_queues(&bounds, Some("400Mbit")), [(400.0, 990.0), (131.09, 990.0)]);
    // It borrows the rest.
    assert_queues(&bounded_queues(&bounds, Some("900Mbit")), [(400.0, 990.0), (10.62, 990.0)]);
}

#[test]
fn invalid_queue_configurations_are_refused() {
    let try_new = |link: &str, weights: &[f64], limited: &[(u16, &str)]| {
        let end = "10.0.0.1:1".parse().unwrap();
        let flow = |rate: &str| LimitedFlow { source: end, destination: end, rate: rate.parse().unwrap() };
        let limited = limited.iter().map(|&(number, rate)| (number, flow(rate))).collect();
        DesiredQueues::new(link.parse().unwrap(), 1, &Shares::by_weight(weights), &limited).map(drop)
    };
    assert_eq!(try_new("1Gbit", &[1.0, 1e6], &[(0, "500Mbit"), (1, "900Mbit")]), Ok(()));
    assert!(matches!(try_new("7kbit", &[1.0], &[]), Err(DesiredError::LinkRate(_))));
    let error = try_new("200Gbit", &[1.0], &[]).unwrap_err();
    let expected = "link rate 200Gbit is out of range; expected 8kbit to 100Gbit; help: `--rate 100Gbit`, ";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert_eq!(try_new("1Gbit", &[], &[]), Err(DesiredError::QueueCount(0)));
    assert_eq!(try_new("1Gbit", &[1.0; 63], &[]), Ok(()));
    assert_eq!(try_new("1Gbit", &[1.0; 64], &[]), Err(DesiredError::QueueCount(64)));
    for (weight, queue) in [(0.0, 1), (-1.0, 1), (f64::INFINITY, 1), (1e7, 1), (1e-7, 0)] {
        let refused = try_new("1Gbit", &[1.0, weight], &[]);
        assert!(
            matches!(refused, Err(DesiredError::Weight { queue: of, .. }) if of == queue),
            "{weight}: {refused:?}"
        );
    }
    assert!(matches!(try_new("1Gbit", &[f64::NAN], &[]), Err(DesiredError::Weight { queue: 0, .. })));
    assert_eq!(try_new("1Gbit", &[1.0], &[(1000, "1Mbit")]), Err(DesiredError::FlowNumber(1000)));
    assert!(matches!(
        try_new("1Gbit", &[1.0], &[(0, "500Mbit"), (7, "1001Mbit")]),
        Err(DesiredError::FlowRate { flow: 7, .. })
    ));
    assert!(matches!(try_new("1Gbit", &[1.0], &[(0, "1bit")]), Err(DesiredError::FlowRate { flow: 0, .. })));
    for name in ["", "-eth0", "a/b", "a b", "sixteen-letters-", "eth0\nqdisc"] {
        assert!(name.parse::<Interface>().is_err(), "{name}");
    }
    for name in ["eth0", "eth0.100", "br-lan", "_x", "fifteen-letters"] {
        assert_eq!(name.parse::<Interface>().unwrap().to_string(), name);
    }
    assert_eq!((dscp(0), dscp(62), MAX_SERVICES), (1, 63, 63));
}
