//! Topologies and routes: the papers' figures, invalid input, and paths against a plain search.

use std::collections::BTreeMap;

use crate::common::config_with_cases;
use proptest::prelude::*;
use weir_core::model::topology::{Link, TopologyBuilder};
use weir_core::model::{LinkId, NodeId, Routes, Topology, TopologyError, TopologyTemplate};
use weir_core::units::Rate;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// Number of links of a node.
fn port_count(topology: &Topology, name: &str) -> usize {
    topology.outgoing_links(topology.find_node(name).unwrap()).len()
}

fn hosts(topology: &Topology) -> impl Iterator<Item = NodeId> + use<> {
    (0..topology.hosts() as u32).map(NodeId)
}

/// Names of the nodes on a flow's path.
fn node_names_on_path(routes: &mut Routes, from: &str, to: &str, flow: u64) -> Vec<String> {
    let node = |name| routes.topology().find_node(name).unwrap();
    let (from, to) = (node(from), node(to));
    let mut path = Vec::new();
    if !routes.compute_path(from, to, flow, &mut path) {
        return Vec::new();
    }
    let topology = routes.topology();
    let steps = path.iter().map(|&link| topology.name(topology.link(link).to).to_owned());
    std::iter::once(topology.name(from).to_owned()).chain(steps).collect()
}

#[test]
fn netshare_fig1_has_10_gbit_between_edges_and_core() {
    let topology = TopologyTemplate::NetShareFig1.build().unwrap();
    assert_eq!((topology.hosts(), topology.nodes(), topology.links().len()), (12, 17, 32));
    assert!(topology.links().iter().all(|link| link.rate == rate("10Gbit")));
    let mut routes = Routes::new(topology, 0);
    assert_eq!(node_names_on_path(&mut routes, "E4-A3", "E3-A3", 0), ["E4-A3", "E4", "C1", "E3", "E3-A3"]);
}

#[test]
fn netshare_fig3_flows_share_the_links_named_in_the_text() {
    let mut routes = Routes::new(TopologyTemplate::NetShareFig3.build().unwrap(), 0);
    // H1 and H3 share E1-C1; H1, H2 and A1 (H5) share C1-E2. H1 sends to H4 (Fig. 4).
    assert_eq!(node_names_on_path(&mut routes, "H1", "H4", 0), ["H1", "E1", "C1", "E2", "H4"]);
    assert_eq!(node_names_on_path(&mut routes, "H2", "H7", 0), ["H2", "E3", "C1", "E2", "H7"]);
    assert_eq!(node_names_on_path(&mut routes, "H5", "H6", 0), ["H5", "E4", "C1", "E2", "H6"]);
    assert_eq!(node_names_on_path(&mut routes, "H3", "H8", 0), ["H3", "E1", "C1", "E4", "H8"]);
}

#[test]
fn netshare_fig6_and_fig7_have_three_pods_of_four_servers() {
    for (plan, cores) in [(TopologyTemplate::NetShareFig6, 1), (TopologyTemplate::NetShareFig7, 2)] {
        let topology = plan.build().unwrap();
        assert_eq!((topology.hosts(), topology.nodes()), (12, 15 + cores));
        assert!(topology.links().iter().all(|link| link.rate == Rate::GBIT));
        // Section 5.2: with two cores, pods are oversubscribed 2:1.
        assert!(["E1", "E2", "E3"].iter().all(|edge| port_count(&topology, edge) == 4 + cores));
    }
    // Section 5.3: A2 sends from H2 to H9, over the links E1-C and C-E3.
    let mut routes = Routes::new(TopologyTemplate::NetShareFig6.build().unwrap(), 0);
    assert_eq!(node_names_on_path(&mut routes, "H2", "H9", 0), ["H2", "E1", "C1", "E3", "H9"]);
}

#[test]
fn netshare_fig16_has_three_tiers_of_four_pods() {
    let topology = TopologyTemplate::NetShareFig16 { services: 4 }.build().unwrap();
    assert_eq!((topology.hosts(), topology.nodes()), (32, 50));
    assert_eq!(["C1", "M32", "E41"].map(|name| port_count(&topology, name)), [8, 4, 6]);
    assert_eq!(["C1", "M32", "E41"].map(|name| topology.tier(topology.find_node(name).unwrap())), [3, 2, 1]);
    let between = topology.links().iter().filter(|l| !topology.is_host(l.from) && !topology.is_host(l.to));
    assert!(between.clone().all(|link| link.rate == rate("10Mbit")));
    assert_eq!(between.count(), 2 * 32);
}

#[test]
fn saba_tiers_have_the_paper_s_counts_and_fit_36_ports() {
    let topology = TopologyTemplate::SabaTiers { oversubscription: 1.0 }.build().unwrap();
    assert_eq!((topology.hosts(), topology.nodes()), (1944, 1944 + 54 + 102 + 108));
    assert!(topology.links().iter().all(|link| link.rate == rate("56Gbit")));
    let mut count = [0; 4];
    for node in (0..topology.nodes() as u32).map(NodeId) {
        count[usize::from(topology.tier(node))] += 1;
        let ports = topology.outgoing_links(node).len();
        let expected: &[usize] = [&[1][..], &[35], &[36], &[30, 36]][usize::from(topology.tier(node))];
        assert!(expected.contains(&ports), "{} has {ports} ports", topology.name(node));
    }
    assert_eq!(count, [1944, 108, 102, 54]);
    let mut routes = Routes::new(topology, 1);
    let (mut path, mut spread) = (Vec::new(), Vec::new());
    for (to, length, ways) in [(1u32, 2, 2), (18, 4, 2 + 2 * 17), (1943, 6, 2 + 2 * 17 + 2 * 17 * 18)] {
        assert!(routes.compute_path(NodeId(0), NodeId(to), 5, &mut path));
        assert_eq!(path.len(), length);
        assert!(routes.compute_ecmp_shares(NodeId(0), NodeId(to), &mut spread));
        assert_eq!(spread.len(), ways, "to {to}");
    }
}

#[test]
fn leaf_spine_has_the_requested_oversubscription() {
    let plan = TopologyTemplate::LeafSpine {
        spines: 4,
        leaves: 3,
        hosts: 8,
        rate: rate("10Gbit"),
        oversubscription: 4.0,
    };
    let topology = plan.build().unwrap();
    assert_eq!((topology.hosts(), topology.nodes()), (24, 31));
    let leaf = topology.find_node("leaf1").unwrap();
    let (down, up): (Vec<_>, Vec<_>) = topology
        .outgoing_links(leaf)
        .iter()
        .map(|&l| topology.link(l))
        .partition(|link| topology.is_host(link.to));
    let sum = |links: Vec<Link>| links.iter().map(|l| l.rate.get()).sum::<f64>();
    assert_eq!(sum(down), 4.0 * sum(up));
}

fn fat_tree_template(ports: u32, oversubscription: f64) -> TopologyTemplate {
    TopologyTemplate::FatTree { ports, rate: Rate::GBIT, oversubscription }
}

/// Total capacity of the links from one tier to the adjacent one, in Gbit/s. Hosts are tier 0.
fn capacities_between_tiers(topology: &Topology) -> BTreeMap<(u8, u8), f64> {
    let tier = |node| if topology.is_host(node) { 0 } else { topology.tier(node) };
    let mut sums = BTreeMap::new();
    for link in topology.links() {
        *sums.entry((tier(link.from), tier(link.to))).or_default() += link.rate.get() / Rate::GBIT.get();
    }
    sums
}

#[test]
fn oversubscription_divides_the_capacity_between_tiers() {
    let assert_near = |found: &BTreeMap<(u8, u8), f64>, expected: [f64; 3]| {
        assert_eq!(found.len(), 6);
        for (low, expected) in (0u8..).zip(expected) {
            for way in [(low, low + 1), (low + 1, low)] {
                assert!((found[&way] - expected).abs() <= 1e-9 * expected, "{found:?}: {way:?}: {expected}");
            }
        }
    };
    // k^3/4 links between adjacent tiers.
    for (ports, hosts) in [(2, 2.0), (4, 16.0), (8, 128.0)] {
        for over in [0.5, 1.0, 2.0, 3.0] {
            let topology = fat_tree_template(ports, over).build().unwrap();
            assert_near(&capacities_between_tiers(&topology), [hosts, hosts / over, hosts / over]);
            let edge = topology.find_node("edge0.0").unwrap();
            let (down, up): (Vec<_>, Vec<_>) = topology
                .outgoing_links(edge)
                .iter()
                .map(|&link| topology.link(link))
                .partition(|link| topology.is_host(link.to));
            let sum = |links: &[Link]| links.iter().map(|link| link.rate.get()).sum::<f64>();
            assert!((sum(&down) / sum(&up) - over).abs() <= 1e-12 * over);
        }
    }
    // 108 racks with 18 servers and 17 uplinks each, and 102 leaf switches with 18 uplinks each.
    for over in [1.0, 2.5] {
        let topology = TopologyTemplate::SabaTiers { oversubscription: over }.build().unwrap();
        assert_near(
            &capacities_between_tiers(&topology),
            [1944.0 * 56.0, 1836.0 * 56.0 / over, 1836.0 * 56.0 / over],
        );
    }
}

#[test]
fn fat_tree_of_four_port_switches_has_sixteen_hosts() {
    let topology =
        TopologyTemplate::FatTree { ports: 4, rate: Rate::GBIT, oversubscription: 1.0 }.build().unwrap();
    assert_eq!((topology.hosts(), topology.nodes(), topology.links().len()), (16, 36, 96));
    let switches = (16..36).map(NodeId);
    assert!(switches.clone().all(|switch| topology.outgoing_links(switch).len() == 4));
    let mut routes = Routes::new(topology, 0);
    let mut spread = Vec::new();
    assert!(routes.compute_ecmp_shares(NodeId(0), NodeId(15), &mut spread));
    // Two uplinks, then two more, and the same down: each of the four cores carries a quarter.
    let mut shares: Vec<f64> = spread.iter().map(|&(_, share)| share).collect();
    shares.sort_by(f64::total_cmp);
    assert_eq!(shares, [[0.25; 8].as_slice(), &[0.5; 4], &[1.0; 2]].concat());
}

#[test]
fn topology_plans_reject_invalid_parameters() {
    let leaf_spine = |spines, leaves, hosts, oversubscription| TopologyTemplate::LeafSpine {
        spines,
        leaves,
        hosts,
        rate: Rate::GBIT,
        oversubscription,
    };
    for (plan, error) in [
        (TopologyTemplate::BigSwitch { hosts: 0, rate: Rate::GBIT }, "0 hosts; expected 1 to 65536"),
        (
            TopologyTemplate::BigSwitch { hosts: u32::MAX, rate: Rate::GBIT },
            "4294967295 hosts; expected 1 to 65536",
        ),
        (
            TopologyTemplate::BigSwitch { hosts: 1, rate: Rate::ZERO },
            "rate 0bit is out of range; expected 1bit to 8000Tbit",
        ),
        (fat_tree_template(5, 1.0), "fat-tree: `ports` is 5; expected an even number"),
        (fat_tree_template(u32::MAX - 1, 1.0), "hosts; expected 1 to 65536"),
        (fat_tree_template(4, 0.0), "fat-tree: `oversubscription` is 0; expected a finite number above 0"),
        (fat_tree_template(4, f64::INFINITY), "fat-tree: `oversubscription` is inf"),
        (fat_tree_template(4, 1e10), "expected a number that gives links between switches 1bit to 8000Tbit"),
        (TopologyTemplate::SabaTiers { oversubscription: f64::NAN }, "saba-tiers: `oversubscription` is NaN"),
        (TopologyTemplate::SabaTiers { oversubscription: 1e-300 }, "`oversubscription` is 1e-300"),
        (TopologyTemplate::NetShareFig16 { services: 0 }, "0 hosts"),
        (leaf_spine(0, 1, 1, 1.0), "leaf-spine: `spines` is 0; expected at least 1"),
        (leaf_spine(1, 2, 2, f64::NAN), "`oversubscription` is NaN; expected a finite number above 0"),
        (leaf_spine(1, 2, 2, -1.0), "`oversubscription` is -1"),
        (leaf_spine(1, 2, 2, 1e300), "`oversubscription` is 1e300; expected a number that gives links"),
        (leaf_spine(1, 2, 2, 1e-300), "`oversubscription` is 1e-300; expected a number that gives links"),
        (leaf_spine(u32::MAX, u32::MAX, u32::MAX, 1.0), "hosts; expected 1 to 65536"),
        (leaf_spine(8000, 180, 300, 1.0), "1494000 cables; expected 1 to 1048576"),
    ] {
        let message = plan.build().unwrap_err().to_string();
        assert!(message.contains(error), "{plan:?}: {message}");
    }
}

#[test]
fn topology_builder_rejects_invalid_nodes_and_links() {
    let mut builder = TopologyBuilder::new();
    assert_eq!(builder.clone().build().unwrap_err().to_string(), "0 hosts; expected 1 to 65536");
    for host in ["a", "b"] {
        builder.add_host(host).unwrap();
    }
    builder.add_switch("s", 1).unwrap();
    builder.add_cable("a", "s", Rate::GBIT).unwrap();
    assert_eq!(builder.clone().build().unwrap_err(), TopologyError::Unconnected("b".into()));
    for name in ["", "a b", "a\n", "\u{7f}", &"x".repeat(65)] {
        assert!(matches!(builder.add_host(name), Err(TopologyError::InvalidName(_))), "{name:?}");
    }
    assert_eq!(builder.add_switch("a", 1).unwrap_err(), TopologyError::DuplicateName("a".into()));
    for (from, to, error) in [
        ("a", "a", "cable from `a` to itself; expected two different nodes"),
        ("a", "x", "cable from `a` to `x`: node `x` does not exist"),
        ("y", "a", "cable from `y` to `a`: node `y` does not exist"),
        ("s", "a", "second cable between `s` and `a`"),
        ("a", "b", "cable between the hosts `a` and `b`"),
    ] {
        let message = builder.add_cable(from, to, Rate::GBIT).unwrap_err().to_string();
        assert!(message.starts_with(error), "{message}");
    }
    assert!(matches!(builder.add_cable("b", "s", Rate::ZERO), Err(TopologyError::Rate { .. })));
    // Two separate switches and a host on both: hosts do not forward.
    builder.add_switch("t", 1).unwrap();
    builder.add_cable("b", "t", Rate::GBIT).unwrap();
    assert_eq!(builder.clone().build().unwrap_err(), TopologyError::Unreachable("a".into(), "b".into()));
    builder.add_host("c").unwrap();
    for switch in ["s", "t"] {
        builder.add_cable("c", switch, Rate::GBIT).unwrap();
    }
    assert!(matches!(builder.clone().build(), Err(TopologyError::Unreachable(..))));
    builder.add_cable("a", "t", Rate::GBIT).unwrap();
    // All hosts are now on `t`, in addition to the other links of `a` and `c`.
    let mut routes = Routes::new(builder.build().unwrap(), 0);
    assert_eq!(node_names_on_path(&mut routes, "a", "b", 0), ["a", "t", "b"]);
}

#[test]
fn link_between_two_nodes_is_found_from_both_ends() {
    // Nodes with many and with few links, at both ends.
    for topology in [TopologyTemplate::NetShareFig7, fat_tree_template(4, 1.0)].map(|p| p.build().unwrap()) {
        let nodes = || (0..topology.nodes() as u32).map(NodeId);
        for (from, to) in nodes().flat_map(|from| nodes().map(move |to| (from, to))) {
            let links = (0..).map(LinkId).zip(topology.links());
            let found = links.filter(|(_, link)| (link.from, link.to) == (from, to)).map(|(id, _)| id).next();
            assert_eq!(topology.link_between(from, to), found);
        }
    }
}

#[test]
fn flows_hash_evenly_and_keep_their_path_when_others_fail() {
    let plan = TopologyTemplate::LeafSpine {
        spines: 8,
        leaves: 4,
        hosts: 4,
        rate: Rate::GBIT,
        oversubscription: 1.0,
    };
    let mut routes = Routes::new(plan.build().unwrap(), 7);
    let all: Vec<_> = (0..4000).map(|flow| node_names_on_path(&mut routes, "h0", "h15", flow)).collect();
    for spine in 0..8 {
        let over = all.iter().filter(|path| path[2] == format!("spine{spine}")).count();
        // 500 expected; five standard deviations of the binomial distribution are 105.
        assert!((395..=605).contains(&over), "spine{spine} has {over} of 4000 flows");
    }
    let topology = routes.topology();
    let node = |name| topology.find_node(name).unwrap();
    let failed = topology.link_between(node("leaf0"), node("spine3")).unwrap();
    assert!(routes.fail_link(failed) && !routes.fail_link(failed));
    for (flow, before) in all.iter().enumerate() {
        let after = node_names_on_path(&mut routes, "h0", "h15", flow as u64);
        assert_eq!(after == *before, before[2] != "spine3", "flow {flow}");
    }
    // Only this direction is down.
    assert!((0..200).any(|flow| node_names_on_path(&mut routes, "h15", "h0", flow)[2] == "spine3"));
    assert!(routes.restore_link(failed) && !routes.restore_link(failed));
    for (flow, before) in all.iter().enumerate() {
        assert_eq!(node_names_on_path(&mut routes, "h0", "h15", flow as u64), *before);
    }
}

#[test]
fn ecmp_hash_has_known_values() {
    // A change of these values changes all results over multiple paths.
    let plan = TopologyTemplate::LeafSpine {
        spines: 8,
        leaves: 2,
        hosts: 1,
        rate: Rate::GBIT,
        oversubscription: 1.0,
    };
    let mut routes = Routes::new(plan.build().unwrap(), 42);
    let spines: Vec<String> =
        (0..6).map(|flow| node_names_on_path(&mut routes, "h0", "h1", flow)[2].clone()).collect();
    assert_eq!(spines, ["spine2", "spine5", "spine1", "spine6", "spine5", "spine2"]);
}

#[test]
fn disconnected_host_has_no_route() {
    let mut routes = Routes::new(TopologyTemplate::NetShareFig7.build().unwrap(), 0);
    let node = |name: &str| routes.topology().find_node(name).unwrap();
    let up: Vec<LinkId> =
        ["C1", "C2"].map(|core| routes.topology().link_between(node("E1"), node(core)).unwrap()).to_vec();
    routes.fail_link(up[0]);
    assert_eq!(node_names_on_path(&mut routes, "H1", "H12", 3)[2], "C2");
    routes.fail_link(up[1]);
    assert!(node_names_on_path(&mut routes, "H1", "H12", 3).is_empty());
    let mut spread = vec![(LinkId(0), 1.0)];
    assert!(!routes.compute_ecmp_shares(NodeId(0), NodeId(11), &mut spread) && spread.is_empty());
    assert_eq!(node_names_on_path(&mut routes, "H1", "H2", 3), ["H1", "E1", "H2"]);
    assert_eq!(node_names_on_path(&mut routes, "H1", "H1", 3), ["H1"]);
    assert_eq!(routes.capacities()[up[1].index()], 0.0);
    assert_eq!(routes.capacities()[up[1].reverse().index()], 125e6);
    routes.restore_link(up[1]);
    assert_eq!(node_names_on_path(&mut routes, "H1", "H12", 3)[2], "C2");
}

/// A random network of switches and hosts, with links that fail and recover.
fn random_networks() -> impl Strategy<Value = (Topology, Vec<(u32, bool)>)> {
    let node = 0usize..100;
    let cables = prop::collection::vec((node.clone(), node.clone()), 0..20);
    let attached = prop::collection::vec(prop::collection::vec(node, 1..3), 2..6);
    let changes = prop::collection::vec((0u32..1000, any::<bool>()), 0..40);
    (1usize..8, cables, attached, changes).prop_map(|(switches, cables, attached, changes)| {
        let mut builder = TopologyBuilder::new();
        for switch in 0..switches {
            builder.add_switch(&format!("s{switch}"), 1).unwrap();
        }
        // A spanning tree, so that the network is connected, then random cables.
        let tree = (1..switches).map(|s| (s, cables.get(s).map_or(0, |c| c.0) % s));
        for (a, b) in tree.chain(cables.iter().map(|&(a, b)| (a % switches, b % switches))) {
            let _ = builder.add_cable(&format!("s{a}"), &format!("s{b}"), Rate::GBIT);
        }
        for (host, to) in attached.iter().enumerate() {
            builder.add_host(&format!("h{host}")).unwrap();
            for switch in to {
                let _ =
                    builder.add_cable(&format!("h{host}"), &format!("s{}", switch % switches), Rate::GBIT);
            }
        }
        (builder.build().unwrap(), changes)
    })
}

/// Number of links between two nodes, by Bellman-Ford relaxation. Hosts do not forward.
fn hop_count(routes: &Routes, from: NodeId, to: NodeId) -> Option<usize> {
    let topology = routes.topology();
    let mut distances = vec![None; topology.nodes()];
    distances[from.index()] = Some(0);
    for _ in 0..topology.nodes() {
        for (number, link) in topology.links().iter().enumerate() {
            let forwards = link.from == from || !topology.is_host(link.from);
            if let (true, true, Some(d)) =
                (forwards, routes.is_up(LinkId(number as u32)), distances[link.from.index()])
            {
                let best = distances[link.to.index()].map_or(d + 1, |other: usize| other.min(d + 1));
                distances[link.to.index()] = Some(best);
            }
        }
    }
    distances[to.index()]
}

/// Checks that the next hops of every node towards a host are exactly the links that are up and lead one link
/// closer.
fn check_next_hops(routes: &mut Routes, topology: &Topology) -> Result<(), TestCaseError> {
    let nodes = || (0..topology.nodes() as u32).map(NodeId);
    let mut hops = Vec::new();
    for to in hosts(topology) {
        let far: Vec<Option<usize>> = nodes().map(|node| hop_count(routes, node, to)).collect();
        for node in nodes() {
            let reaches = far[node.index()].is_some();
            let leads = |link: &LinkId| {
                let next = topology.link(*link).to;
                let forwards = next == to || !topology.is_host(next);
                reaches
                    && routes.is_up(*link)
                    && forwards
                    && far[node.index()] == far[next.index()].map(|far| far + 1)
            };
            let mut expected = topology.outgoing_links(node).to_vec();
            expected.retain(leads);
            routes.compute_next_hops(node, to, &mut hops);
            prop_assert_eq!(&hops, &expected, "{:?} to {:?}", node, to);
        }
    }
    Ok(())
}

fn check_routes(routes: &mut Routes) -> Result<(), TestCaseError> {
    let topology = routes.topology().clone();
    check_next_hops(routes, &topology)?;
    let (mut path, mut spread) = (Vec::new(), Vec::new());
    for (from, to) in hosts(&topology).flat_map(|from| hosts(&topology).map(move |to| (from, to))) {
        let expected = hop_count(routes, from, to);
        let split = routes.compute_ecmp_shares(from, to, &mut spread);
        prop_assert_eq!(split, expected.is_some());
        for flow in 0..4 {
            let found = routes.compute_path(from, to, flow, &mut path);
            prop_assert_eq!(found.then_some(path.len()), expected, "{:?} to {:?}", from, to);
            let mut node = from;
            for &link in &path {
                prop_assert!(routes.is_up(link));
                prop_assert!(spread.iter().any(|&(other, share)| other == link && share > 0.0));
                prop_assert_eq!(topology.link(link).from, node);
                node = topology.link(link).to;
            }
            prop_assert!(!found || node == to);
        }
        // Each node splits its incoming traffic equally over its next hops.
        for node in (0..topology.nodes() as u32).map(NodeId) {
            let mut incoming = f64::from(u8::from(node == from));
            let mut outgoing = f64::from(u8::from(node == to));
            let mut parts = Vec::new();
            for &(link, share) in &spread {
                if topology.link(link).to == node {
                    incoming += share;
                }
                if topology.link(link).from == node {
                    outgoing += share;
                    parts.push(share);
                }
            }
            prop_assert!(
                !split || (incoming - outgoing).abs() < 1e-12,
                "{} arrives at {:?}, but {} leaves it",
                incoming,
                node,
                outgoing
            );
            prop_assert!(parts.iter().all(|&part| part == parts[0]));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config_with_cases(300))]

    #[test]
    fn routes_are_shortest_paths_over_links_that_are_up((topology, changes) in random_networks()) {
        let links = topology.links().len() as u32;
        let mut routes = Routes::new(topology.clone(), 3);
        check_routes(&mut routes)?;
        for (step, &(link, up)) in changes.iter().enumerate() {
            let link = LinkId(link % links);
            if up { routes.restore_link(link) } else { routes.fail_link(link) };
            if step % 8 == 7 {
                check_routes(&mut routes)?;
            }
        }
        check_routes(&mut routes)?;
        // Routes cached on the way give the same results as fresh ones.
        let mut fresh = Routes::new(topology.clone(), 3);
        for link in (0..links).map(LinkId).filter(|&link| !routes.is_up(link)) {
            fresh.fail_link(link);
        }
        let (mut cached_path, mut fresh_path) = (Vec::new(), Vec::new());
        for (from, to) in hosts(&topology).flat_map(|from| hosts(&topology).map(move |to| (from, to))) {
            prop_assert_eq!(routes.compute_path(from, to, 9, &mut cached_path), fresh.compute_path(from, to, 9, &mut fresh_path));
            prop_assert_eq!(&cached_path, &fresh_path);
        }
    }
}
