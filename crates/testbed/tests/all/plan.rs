//! Tests plans and scripts of beds, without creating a bed.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;

use crate::common::config_with_cases;
use proptest::prelude::*;
use weir_core::model::LinkBudget;
use weir_core::model::scenario::{NetworkQueues, PortQueues, Queue};
use weir_core::model::topology::TopologyBuilder;
use weir_core::model::{NodeId, Routes, Topology, TopologyTemplate as Fabric};
use weir_core::saba::Fraction;
use weir_core::units::Rate;
use weir_testbed::queues::{FRAME_BYTES, HtbClass, MAX_SERVICES, dscp, max_segments};
use weir_testbed::{BedName, Plan, PlanError, batch};

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn plan(topology: &Topology) -> Plan {
    Plan::new("t".parse().unwrap(), topology).unwrap()
}

/// The node and port at the other end of a cable.
fn opposite_end(plan: &Plan, node: usize, port: usize) -> (usize, usize) {
    let cable = plan.cables.iter().find(|cable| cable.ends.contains(&(node, port))).unwrap();
    if cable.ends[0] == (node, port) { cable.ends[1] } else { cable.ends[0] }
}

/// Follows all routes from a node to an address, and collects the lengths of the paths. Panics at a loop.
fn follow_routes(plan: &Plan, from: usize, to: Ipv4Addr, lengths: &mut BTreeSet<usize>, length: usize) {
    assert!(length <= plan.nodes.len(), "the routes to {to} have a loop");
    let node = &plan.nodes[from];
    if node.address == to {
        lengths.insert(length);
        return;
    }
    assert!(length == 0 || node.is_switch, "{} is a host, and hosts do not forward", node.name);
    let route = node.routes.iter().find(|route| route.destination.is_none_or(|other| other == to));
    let route = route.unwrap_or_else(|| panic!("{} has no route to {to}", node.name));
    for &port in &route.ports {
        follow_routes(plan, opposite_end(plan, from, port).0, to, lengths, length + 1);
    }
}

/// Checks that every host reaches every other, only over the simulator's shortest paths.
fn check_routes(topology: &Topology) {
    let plan = plan(topology);
    let mut routes = Routes::new(topology.clone(), 0);
    let hosts = || (0..topology.hosts() as u32).map(NodeId);
    for (from, to) in hosts().flat_map(|a| hosts().map(move |b| (a, b))).filter(|(a, b)| a != b) {
        let (mut path, mut lengths) = (Vec::new(), BTreeSet::new());
        assert!(routes.compute_path(from, to, 0, &mut path));
        follow_routes(&plan, from.index(), plan.node(to).address, &mut lengths, 0);
        assert_eq!(lengths, BTreeSet::from([path.len()]), "{from:?} to {to:?}");
    }
    let distinct =
        |what: fn(&weir_testbed::Node) -> String| plan.nodes.iter().map(what).collect::<BTreeSet<String>>();
    assert_eq!(distinct(|node| node.namespace.clone()).len(), topology.nodes());
    assert_eq!(distinct(|node| node.address.to_string()).len(), topology.nodes());
    for node in &plan.nodes {
        assert!(node.namespace.starts_with("weir-t-") && node.namespace.len() < 255);
        assert_eq!(BedName::from_namespace(&node.namespace), Some(plan.name.clone()));
        let interfaces: BTreeSet<&str> = node.ports.iter().map(|port| port.interface.as_str()).collect();
        assert_eq!(interfaces.len(), node.ports.len());
        assert!(interfaces.iter().all(|interface| interface.len() <= 15), "{interfaces:?}");
    }
    // The link of each end of a cable is the reverse of the other's.
    let macs: BTreeSet<[u8; 6]> = plan.cables.iter().map(|cable| cable.mac).collect();
    assert_eq!(macs.len(), topology.links().len() / 2);
    for cable in &plan.cables {
        let [a, b] = cable.ends.map(|(node, port)| plan.nodes[node].ports[port].link);
        assert_eq!(a, b.reverse());
    }
}

#[test]
fn hosts_reach_each_other_by_shortest_paths() {
    let leaf_spine =
        Fabric::LeafSpine { spines: 3, leaves: 4, hosts: 4, rate: rate("100Mbit"), oversubscription: 2.0 };
    for fabric in [
        Fabric::NetShareFig6,
        Fabric::NetShareFig7,
        Fabric::NetShareFig16 { services: 2 },
        Fabric::FatTree { ports: 4, rate: rate("1Gbit"), oversubscription: 2.0 },
        leaf_spine,
    ] {
        check_routes(&fabric.build().unwrap());
    }
}

#[test]
fn example_topologies_can_be_planned() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fabrics");
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let topology = weir_trace::topology::read(&path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "saba-tiers" {
            let refused = Plan::new("t".parse().unwrap(), &topology);
            assert_eq!(
                refused,
                Err(PlanError::TooManyNodes(2_208)),
                "the example has more nodes than one machine supports"
            );
        } else {
            check_routes(&topology);
        }
        found.insert((name, topology.hosts()));
    }
    let expected = [
        ("fat-tree-4", 16),
        ("five-regions", 15),
        ("leaf-spine-16", 16),
        ("netshare-fig6", 12),
        ("netshare-fig7", 12),
        ("saba-tiers", 1_944),
    ];
    assert_eq!(found, expected.map(|(name, hosts)| (name.to_owned(), hosts)).into());
}

fn two_hosts() -> Topology {
    let mut builder = TopologyBuilder::new();
    for host in ["a", "b"] {
        builder.add_host(host).unwrap();
    }
    builder.add_switch("s", 1).unwrap();
    builder.add_cable("a", "s", rate("10Mbit")).unwrap();
    builder.add_cable("s", "b", rate("100Mbit")).unwrap();
    builder.build().unwrap()
}

#[test]
fn script_of_a_small_bed_matches_exactly() {
    let topology = two_hosts();
    let plan = plan(&topology);
    let stages = batch::creation_stages(&plan);
    assert_eq!(
        batch::to_shell_script(&stages[..1]),
        "ip -batch - <<'END'\nnetns add weir-t-a\nnetns add weir-t-b\nnetns add weir-t-s\nEND\n"
    );
    let switch = "\
nsenter --net=/run/netns/weir-t-s sh <<'END'
echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
echo 0 > /proc/sys/net/ipv4/conf/default/rp_filter
[ ! -e /proc/sys/net/ipv6/conf/all/disable_ipv6 ] || echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
[ ! -e /proc/sys/net/ipv6/conf/default/disable_ipv6 ] || echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
[ ! -e /proc/sys/net/ipv4/fib_multipath_hash_policy ] || echo 1 > /proc/sys/net/ipv4/fib_multipath_hash_policy
[ ! -e /proc/sys/net/ipv4/fib_multipath_hash_seed ] || echo 3 > /proc/sys/net/ipv4/fib_multipath_hash_seed
echo 1 > /proc/sys/net/ipv4/ip_forward
END
";
    assert!(
        batch::to_shell_script(&stages[1..2]).ends_with(switch),
        "{}",
        batch::to_shell_script(&stages[1..2])
    );
    let host = batch::to_shell_script(&stages[1..2]);
    for (file, value) in [("tcp_no_metrics_save", 1), ("tcp_tso_rtt_log", 0), ("tcp_min_tso_segs", 1)] {
        assert_eq!(host.matches(&format!("echo {value} > /proc/sys/net/ipv4/{file}\n")).count(), 2, "{host}");
    }
    let cables = "\
ip -batch - <<'END'
link add eth0 netns weir-t-a address 02:57:45:52:00:00 arp off gso_max_segs 1 numtxqueues 1 numrxqueues 1 \
type veth peer name eth0 netns weir-t-s address 02:57:45:52:00:00 arp off gso_max_segs 1 numtxqueues 1 numrxqueues 1
link add eth1 netns weir-t-s address 02:57:45:52:00:01 arp off gso_max_segs 1 numtxqueues 1 numrxqueues 1 \
type veth peer name eth0 netns weir-t-b address 02:57:45:52:00:01 arp off gso_max_segs 1 numtxqueues 1 numrxqueues 1
END
";
    assert_eq!(batch::to_shell_script(&stages[2..3]), cables);
    let inside = "\
ip -n weir-t-a -batch - <<'END'
link set lo up
addr add 10.0.0.1/32 dev lo
link set eth0 up
route add default src 10.0.0.1 congctl cubic via 169.254.0.1 dev eth0 onlink
END
ip -n weir-t-b -batch - <<'END'
link set lo up
addr add 10.0.0.2/32 dev lo
link set eth0 up
route add default src 10.0.0.2 congctl cubic via 169.254.0.1 dev eth0 onlink
END
ip -n weir-t-s -batch - <<'END'
link set lo up
addr add 10.1.0.1/32 dev lo
link set eth0 up
link set eth1 up
route add 10.0.0.1 src 10.1.0.1 via 169.254.0.1 dev eth0 onlink
route add 10.0.0.2 src 10.1.0.1 via 169.254.0.1 dev eth1 onlink
END
";
    assert_eq!(batch::to_shell_script(&stages[3..4]), inside);
    let queues = "\
tc -n weir-t-a -batch - <<'END'
qdisc replace dev eth0 root bfifo limit 25000
qdisc replace dev eth0 root handle 1: htb default 1
class add dev eth0 parent 1: classid 1:1 htb rate 10000000bit ceil 10000000bit burst 16384 cburst 16384 quantum 1514
qdisc add dev eth0 parent 1:1 bfifo limit 25000
END
";
    assert!(
        batch::to_shell_script(&stages[4..]).starts_with(queues),
        "{}",
        batch::to_shell_script(&stages[4..])
    );
    let weighted = batch::to_shell_script(&[batch::queue_stage(
        &plan,
        Some(&NetworkQueues::by_service(&topology, &[1.0, 3.0], &[])),
    )]);
    assert!(weighted.starts_with(queues), "a host's own link has one queue: {weighted}");
    let to_b = "\
qdisc replace dev eth1 root bfifo limit 250000
qdisc replace dev eth1 root handle 1: htb default 12
class add dev eth1 parent 1: classid 1:1 htb rate 100000000bit ceil 100000000bit burst 16384 cburst 16384 quantum 1514
class add dev eth1 parent 1:1 classid 1:10 htb rate 24975000bit ceil 100000000bit burst 16384 cburst 16384 quantum 1514
qdisc add dev eth1 parent 1:10 bfifo limit 250000
filter add dev eth1 parent 1: protocol ip prio 1 u32 match ip dsfield 0x04 0xfc flowid 1:10
class add dev eth1 parent 1:1 classid 1:11 htb rate 74925000bit ceil 100000000bit burst 16384 cburst 16384 quantum 4542
qdisc add dev eth1 parent 1:11 bfifo limit 250000
filter add dev eth1 parent 1: protocol ip prio 1 u32 match ip dsfield 0x08 0xfc flowid 1:11
class add dev eth1 parent 1:1 classid 1:12 htb rate 100000bit ceil 100000000bit burst 16384 cburst 16384 quantum 1514
qdisc add dev eth1 parent 1:12 bfifo limit 250000
END
";
    assert!(weighted.ends_with(to_b), "{weighted}");
    let everywhere = batch::to_shell_script(&[batch::service_queue_stage(&plan, &[1.0, 3.0])]);
    assert!(everywhere.ends_with(to_b) && !everywhere.starts_with(queues), "{everywhere}");
    assert_eq!(
        everywhere.matches("classid 1:11 htb").count(),
        4,
        "queues are at both ends of both cables: {everywhere}"
    );
}

#[test]
fn port_queues_follow_queueing() {
    let topology = two_hosts();
    let plan = plan(&topology);
    let port_with_queues = |from: &str, to: &str, queues: &[(f64, &[usize])]| {
        let [from, to] = [from, to].map(|name| topology.find_node(name).unwrap());
        let queue = |&(weight, services): &(f64, &[usize])| Queue { weight, services: services.to_vec() };
        let links = vec![topology.link_between(from, to).unwrap()];
        PortQueues { links, queues: queues.iter().map(queue).collect() }
    };
    let ports = [
        port_with_queues("a", "s", &[(2.0, &[1]), (3.0, &[0, 2])]),
        port_with_queues("s", "b", &[(1.0, &[0, 1, 2])]),
    ];
    let queueing = NetworkQueues::by_service(&topology, &[1.0, 1.0, 2.0], &ports);
    let script = batch::to_shell_script(&[batch::queue_stage(&plan, Some(&queueing))]);
    let a_to_s = "\
tc -n weir-t-a -batch - <<'END'
qdisc replace dev eth0 root bfifo limit 25000
qdisc replace dev eth0 root handle 1: htb default 12
class add dev eth0 parent 1: classid 1:1 htb rate 10000000bit ceil 10000000bit burst 16384 cburst 16384 quantum 1514
class add dev eth0 parent 1:1 classid 1:10 htb rate 3996000bit ceil 10000000bit burst 16384 cburst 16384 quantum 1514
qdisc add dev eth0 parent 1:10 bfifo limit 25000
filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dsfield 0x08 0xfc flowid 1:10
class add dev eth0 parent 1:1 classid 1:11 htb rate 5994000bit ceil 10000000bit burst 16384 cburst 16384 quantum 2271
qdisc add dev eth0 parent 1:11 bfifo limit 25000
filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dsfield 0x04 0xfc flowid 1:11
filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dsfield 0x0c 0xfc flowid 1:11
class add dev eth0 parent 1:1 classid 1:12 htb rate 10000bit ceil 10000000bit burst 16384 cburst 16384 quantum 1514
qdisc add dev eth0 parent 1:12 bfifo limit 25000
END
";
    assert!(script.starts_with(a_to_s), "{script}");
    // One queue needs only the class of the link, and the switch's other port is unchanged.
    assert_eq!(script.matches("dev eth1").count(), 4, "{script}");
    assert_eq!(script.matches("-n weir-t-s ").count(), 1);
    let switch = script.split("-n weir-t-s ").nth(1).unwrap();
    assert_eq!(switch.matches("class add dev eth0 parent 1:1 ").count(), 3 + 1, "{switch}");
}

#[test]
fn throttle_limits_both_directions() {
    let plan = plan(&two_hosts());
    let node_index = plan.nodes.iter().position(|node| node.name == "b").unwrap();
    let throttled = "\
tc -n weir-t-b -batch - <<'END'
class change dev eth0 parent 1: classid 1:1 htb rate 25000000bit ceil 25000000bit burst 16384 cburst 16384 quantum 1514
qdisc change dev eth0 parent 1:1 bfifo limit 62500
END
tc -n weir-t-s -batch - <<'END'
class change dev eth1 parent 1: classid 1:1 htb rate 25000000bit ceil 25000000bit burst 16384 cburst 16384 quantum 1514
qdisc change dev eth1 parent 1:1 bfifo limit 62500
END
";
    let stage = batch::throttle_stage(&plan, &[node_index], Fraction::new(0.25).unwrap());
    assert_eq!(batch::to_shell_script(&[stage]), throttled);
}

#[test]
fn invalid_topologies_are_refused() {
    let name = || "t".parse::<BedName>().unwrap();
    let try_plan = |host: &str, text: &str| {
        let mut builder = TopologyBuilder::new();
        builder.add_host(host).unwrap();
        builder.add_switch("s", 1).unwrap();
        builder.add_cable(host, "s", rate(text)).unwrap();
        Plan::new(name(), &builder.build().unwrap()).map(drop)
    };
    assert_eq!(try_plan("a.b_c-d", "8kbit"), Ok(()));
    assert_eq!(try_plan("../h", "1Gbit"), Err(PlanError::NodeName("../h".to_owned())));
    let slow = try_plan("h", "7kbit").unwrap_err().to_string();
    assert_eq!(slow, "the link from `h` to `s` has the rate 7kbit; expected 8kbit to 100Gbit on a bed");
    assert!(try_plan("h", "101Gbit").is_err());
    let many = Fabric::BigSwitch { hosts: 1_000, rate: rate("1Gbit") }.build().unwrap();
    assert_eq!(Plan::new(name(), &many), Err(PlanError::TooManyNodes(1_001)));
    for text in ["", "a-b", "a/b", "a b", "é", &"x".repeat(33)] {
        assert!(text.parse::<BedName>().is_err(), "{text}");
    }
    for text in ["weir-a", "weir--a", "weir-a.b-c", "other-a-b", ""] {
        assert_eq!(BedName::from_namespace(text), None, "{text}");
    }
}

#[test]
fn segments_keep_packets_within_1_ms_of_the_slowest_link() {
    for (link, expected) in [("8kbit", 1), ("10Mbit", 1), ("100Mbit", 8), ("1Gbit", 43), ("100Gbit", 43)] {
        assert_eq!(max_segments(rate(link)), expected, "{link}");
    }
    assert_eq!((dscp(0), dscp(MAX_SERVICES - 1), dscp(999)), (1, 63, 63));
}

proptest! {
    #![proptest_config(config_with_cases(300))]

    /// Rates are proportional to weights, and add up to the link's. Quanta are proportional as well, and at least one packet.
    #[test]
    fn classes_are_in_proportion(
        weights in prop::collection::vec(1u32..100, 1..MAX_SERVICES),
        mbit in 1u32..10_000,
        unclassified in 0.001..0.999,
    ) {
        let link = rate(&format!("{mbit}Mbit"));
        let packets = max_segments(link);
        let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
        let budget = LinkBudget::DEFAULT.with_unclassified(unclassified).unwrap();
        let classes = HtbClass::weighted(link, packets, &budget, &weights, 1.0);
        let (unmarked, services) = classes.split_last().unwrap();
        prop_assert_eq!(services.len(), weights.len());
        let sum: f64 = weights.iter().sum();
        for (class, weight) in services.iter().zip(&weights) {
            prop_assert!((class.rate as f64 - 8.0 * budget.services(link).get() * weight / sum).abs() <= 8.0);
            let quantum = f64::from(packets * FRAME_BYTES) * weight;
            prop_assert!((f64::from(class.quantum) - quantum).abs() <= 1.0);
        }
        let shaped = (8.0 * budget.shaped(link).get()).round() as u64;
        for class in &classes {
            prop_assert!(class.ceil == shaped && class.rate <= class.ceil);
            prop_assert!(class.quantum >= packets * FRAME_BYTES && class.burst >= packets * FRAME_BYTES);
            prop_assert!(class.queue_limit >= 2 * packets * FRAME_BYTES && class.queue_limit >= 10 * FRAME_BYTES);
        }
        let control = HtbClass::control(link, packets, &budget);
        let total: u64 = classes.iter().chain([&control]).map(|class| class.rate).sum();
        prop_assert!(total.abs_diff(shaped) <= 8 * classes.len() as u64);
        prop_assert!((unmarked.rate as f64 - 8.0 * budget.unclassified(link).get()).abs() <= 8.0);
    }
}
