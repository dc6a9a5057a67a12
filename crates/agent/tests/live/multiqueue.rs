//! Tests interfaces with several transmit queues, whose root queueing discipline is `mq`. Without the privileges, these tests print that
//! and skip.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use weir_agent::batch::run_tool;
use weir_agent::htb::{HtbClass, dscp, max_segments};
use weir_agent::queues::{DesiredQueues, Device, Interface, QueueError, ReplaceableRoots, RootQdisc, Shares};

use weir_core::model::LinkBudget;
use weir_core::units::Rate;

use crate::kernel::sent_by_class;
use crate::namespace_pair::{NamespacePair, create_pair};
use crate::queues::start_senders_to;

/// A pair whose first namespace has an interface with four transmit queues. Its default root is `mq`, as that of a card.
fn create_multiqueue(test: &str) -> Option<NamespacePair> {
    let pair = create_pair(test)?;
    pair.network().run_ip("a", "link add m0 numtxqueues 4 type ifb\nlink set m0 up\n").unwrap();
    Some(pair)
}

fn multiqueue() -> Interface {
    "m0".parse().unwrap()
}

fn read_qdiscs() -> Vec<String> {
    let text = run_tool("tc", &["qdisc", "show", "dev", "m0"]).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn reconcile(replace: ReplaceableRoots) -> Result<usize, QueueError> {
    let segments = Device::read(&multiqueue())?.segments;
    let shares = Shares::by_weight(&[1.0, 3.0]);
    let desired = DesiredQueues::new("1Gbit".parse().unwrap(), segments, &shares, &BTreeMap::new())?;
    Ok(multiqueue().reconcile(&desired, replace)?.len())
}

#[test]
fn mq_over_fifos_and_the_kernels_default_is_replaced_and_restored() {
    let Some(pair) = create_multiqueue("mq") else { return };
    for (lines, expected) in [
        ("", "qdisc mq 0: root"),
        ("qdisc add dev m0 root handle 1: mq\n", "qdisc mq 1: root"),
        (
            "qdisc add dev m0 parent 1:2 handle a: pfifo limit 77\nqdisc add dev m0 parent 1:4 bfifo limit 99999\n",
            "qdisc pfifo a: parent 1:2 limit 77p",
        ),
    ] {
        pair.network().run_tc("a", lines).unwrap();
        let before = read_qdiscs();
        assert!(before.iter().any(|line| line.trim() == expected), "{before:?}");
        assert!(reconcile(ReplaceableRoots::Restorable).unwrap() > 0);
        assert_eq!(multiqueue().read_queues().unwrap().root, RootQdisc::Agent);
        assert_eq!(reconcile(ReplaceableRoots::Restorable).unwrap(), 0);
        assert!(multiqueue().restore().unwrap());
        assert_eq!(read_qdiscs(), before);
    }
}

#[test]
fn other_queues_below_mq_and_a_later_mq_stay() {
    let Some(pair) = create_multiqueue("mqother") else { return };
    let tc = |lines: &str| pair.network().run_tc("a", lines).unwrap();
    let assert_refused = |replace, expected: &str| {
        let before = read_qdiscs();
        let refused = reconcile(replace);
        assert!(
            matches!(refused, Err(QueueError::ForeignRoot { ref kind, .. }) if kind == expected),
            "{refused:?}"
        );
        assert_eq!(read_qdiscs(), before);
    };
    tc("qdisc add dev m0 root handle 1: mq\nqdisc add dev m0 parent 1:3 handle 5: htb default 1\n");
    assert_refused(ReplaceableRoots::Restorable, "mq with htb");
    tc("qdisc del dev m0 parent 1:3\n");
    // In place of the agent's queues, it is another process's decision.
    assert_refused(ReplaceableRoots::KernelDefault, "mq");
    assert!(reconcile(ReplaceableRoots::Restorable).unwrap() > 0);
    tc("qdisc replace dev m0 root handle 2: mq\n");
    assert_refused(ReplaceableRoots::Restorable, "mq");
}

/// The link of the measurement, which the transmit queues divide equally.
const LINK_MBIT: f64 = 200.0;

/// The weights of the measurement's services.
const WEIGHTS: [f64; 2] = [1.0, 3.0];

/// The number of measurements, each with new connections, for each number of queues and connections.
const RUNS: usize = 20;

/// Connects the pair by another cable, `q0` with this number of transmit queues. With several, `mq` has an HTB root for each, at an equal
/// part of the link; a hash of its addresses and ports selects the queue of a connection.
fn set_up_roots(pair: &NamespacePair, queues: u16) {
    let peer = pair.network().namespace("b");
    let link = Rate::new(LINK_MBIT * 125e3 / f64::from(queues)).unwrap();
    let ends = format!("numtxqueues {queues} type veth peer name q0 numrxqueues {queues} netns {peer}");
    let segments = max_segments(link);
    let lines =
        format!("link add q0 {ends}\nlink set q0 gso_max_segs {segments} up\naddr add 10.9.7.1/24 dev q0\n");
    pair.network().run_ip("a", &lines).unwrap();
    pair.network().run_ip("b", "link set q0 up\naddr add 10.9.7.2/24 dev q0\n").unwrap();
    let budget = LinkBudget::DEFAULT;
    let root = HtbClass::for_link(budget.shaped(link), segments);
    let classes = HtbClass::weighted(link, segments, &budget, &WEIGHTS, 1.0);
    let mut lines = match queues {
        1 => String::new(),
        _ => "qdisc add dev q0 root handle 1: mq\n".to_owned(),
    };
    for queue in 1..=queues {
        let handle = 0x100 + queue;
        let parent = if queues == 1 { "root".to_owned() } else { format!("parent 1:{queue:x}") };
        lines += &format!("qdisc add dev q0 {parent} handle {handle:x}: htb default 3\n");
        lines += &format!("class add dev q0 parent {handle:x}: classid {handle:x}:f htb {root}\n");
        for (number, class) in classes.iter().enumerate() {
            let minor = number + 1;
            lines +=
                &format!("class add dev q0 parent {handle:x}:f classid {handle:x}:{minor} htb {class}\n");
            lines +=
                &format!("qdisc add dev q0 parent {handle:x}:{minor} bfifo limit {}\n", class.queue_limit);
        }
        for service in 0..WEIGHTS.len() {
            let dsfield = dscp(service) << 2;
            lines += &format!(
                "filter add dev q0 parent {handle:x}: protocol ip u32 match ip dsfield {dsfield:#x} 0xfc flowid {handle:x}:{}\n",
                service + 1
            );
        }
    }
    pair.network().run_tc("a", &lines).unwrap();
}

/// What each service sends in a second over all roots, in Mbit/s.
fn measure_services(queues: u16) -> [f64; 2] {
    let read = || {
        let text = run_tool("tc", &["-s", "class", "show", "dev", "q0"]).unwrap();
        let sum = |minor| {
            (1..=queues).map(|queue| sent_by_class(&text, &format!("{:x}:{minor}", 0x100 + queue))).sum()
        };
        [1, 2].map(|minor| -> u64 { sum(minor) })
    };
    let before = read();
    let began = Instant::now();
    thread::sleep(Duration::from_secs(1));
    let (after, seconds) = (read(), began.elapsed().as_secs_f64());
    [0, 1].map(|service| (after[service] - before[service]) as f64 * 8e-6 / seconds)
}

/// Prints the errors of shares of several HTB roots behind `mq`, as a card above 100 Gbit/s would need, in the table of
/// `docs/link-capacity.md`.
#[test]
#[ignore = "prints measurements of some minutes"]
fn shares_of_several_roots_behind_mq() {
    println!(
        "| Roots | Connections of each service | Error of a share, mean | Highest | Use of the link, mean |"
    );
    println!("|---|---|---|---|---|");
    for queues in [1, 2, 4, 16] {
        let Some(pair) = create_pair("roots") else { return };
        set_up_roots(&pair, queues);
        for connections in [1, 4, 64] {
            let services: Vec<usize> = (0..2 * connections).map(|number| number % 2).collect();
            let (mut errors, mut uses) = (Vec::new(), Vec::new());
            for _ in 0..RUNS {
                let senders = start_senders_to(&pair, "10.9.7.2:0", &services, "cubic");
                thread::sleep(Duration::from_millis(500));
                let measured = measure_services(queues);
                drop(senders);
                let total: f64 = WEIGHTS.iter().sum();
                let full = LINK_MBIT * 0.99;
                // Of both services, the higher deviation from the weighted share of the link.
                let error = (0..2).map(|at| (measured[at] / (full * WEIGHTS[at] / total) - 1.0).abs());
                errors.push(error.fold(0.0, f64::max));
                uses.push(measured.iter().sum::<f64>() / full);
            }
            let mean = |list: &[f64]| 100.0 * list.iter().sum::<f64>() / list.len() as f64;
            let highest = 100.0 * errors.iter().copied().fold(0.0, f64::max);
            println!(
                "| {queues} | {connections} | {:.1} % | {highest:.1} % | {:.0} % |",
                mean(&errors),
                mean(&uses)
            );
        }
    }
}
