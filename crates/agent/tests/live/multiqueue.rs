//! Tests interfaces with several transmit queues, whose root queueing discipline is `mq`. Without the privileges, these tests print that
//! and skip.

use std::collections::BTreeMap;

use weir_agent::batch::run_tool;
use weir_agent::queues::{DesiredQueues, Device, Interface, QueueError, ReplaceableRoots, RootQdisc, Shares};

use crate::namespace_pair::{NamespacePair, create_pair};

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
