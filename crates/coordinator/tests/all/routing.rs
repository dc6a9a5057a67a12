//! Tests of the links that a connection can cross, compared with shortest paths of another algorithm.

use std::collections::BTreeSet;

use proptest::prelude::*;
use weir_coordinator::config::{CableEnd, Switch};
use weir_coordinator::registry::routing::{MAX_LINK_GROUPS, PortMap};
use weir_core::saba::controller::PortLimits;

/// Switches with these numbers of hosts, numbered from 0, and cables between the switches.
fn network(hosts: &[usize], cables: &[(usize, usize)]) -> Vec<Switch> {
    let mut next_host = 0;
    let mut switches: Vec<Switch> = Vec::new();
    for (index, &count) in hosts.iter().enumerate() {
        let ports = (next_host..next_host + count as u32).map(CableEnd::Host).collect();
        next_host += count as u32;
        switches.push(Switch { name: format!("s{index}"), ports, limits: None });
    }
    for &(from, to) in cables {
        switches[from].ports.push(CableEnd::Switch(to as u32));
        switches[to].ports.push(CableEnd::Switch(from as u32));
    }
    switches
}

/// The ports at both ends of those cables of a [`network`] that are in `failed`.
fn failed_ports(hosts: &[usize], cables: &[(usize, usize)], failed: &[bool]) -> BTreeSet<(u32, u32)> {
    let mut next_ports = hosts.to_vec();
    let mut ports = BTreeSet::new();
    for (&(from, to), &has_failed) in cables.iter().zip(failed) {
        for switch in [from, to] {
            if has_failed {
                ports.insert((switch as u32, next_ports[switch] as u32));
            }
            next_ports[switch] += 1;
        }
    }
    ports
}

/// All distances without these ports, by the Floyd-Warshall algorithm.
fn distances(switches: &[Switch], failed_ports: &BTreeSet<(u32, u32)>) -> Vec<Vec<usize>> {
    let count = switches.len();
    let mut distances = vec![vec![usize::MAX / 4; count]; count];
    for (index, switch) in switches.iter().enumerate() {
        distances[index][index] = 0;
        for (port, end) in (0u32..).zip(&switch.ports) {
            if let CableEnd::Switch(other) = *end
                && !failed_ports.contains(&(index as u32, port))
            {
                distances[index][other as usize] = 1;
            }
        }
    }
    for middle in 0..count {
        for from in 0..count {
            for to in 0..count {
                distances[from][to] =
                    distances[from][to].min(distances[from][middle] + distances[middle][to]);
            }
        }
    }
    distances
}

fn switch_of(switches: &[Switch], host: u32) -> Option<usize> {
    switches.iter().position(|switch| switch.ports.contains(&CableEnd::Host(host)))
}

/// Switches and ports on shortest paths from `from` to `to`: those of `port_map`, and the expected ones.
fn actual_and_expected_links(
    switches: &[Switch],
    (port_map, failed_ports): (&PortMap, &BTreeSet<(u32, u32)>),
    from: u32,
    to: u32,
) -> [BTreeSet<(u32, u32)>; 2] {
    let distances = distances(switches, failed_ports);
    let mut expected = BTreeSet::new();
    if let (Some(source), Some(target)) = (switch_of(switches, from), switch_of(switches, to)) {
        for (index, switch) in switches.iter().enumerate() {
            for (port, end) in (0u32..).zip(&switch.ports) {
                let &CableEnd::Switch(other) = end else { continue };
                if failed_ports.contains(&(index as u32, port)) {
                    continue;
                }
                if distances[source][index] + 1 + distances[other as usize][target]
                    == distances[source][target]
                {
                    expected.insert((index as u32, port));
                }
            }
        }
    }
    let path = port_map.path(from, Some(to));
    if from == to {
        assert!(path.is_empty() && port_map.both_directions(from, Some(to)).is_empty());
        return [BTreeSet::new(), BTreeSet::new()];
    }
    assert_eq!(path[..2], [2 * from, 2 * to + 1]);
    let links: Vec<(u32, u32)> = path.iter().flat_map(|&port| port_map.group_links(port)).copied().collect();
    let actual: BTreeSet<(u32, u32)> = links.iter().copied().collect();
    assert_eq!(actual.len(), links.len(), "a link occurs twice in {path:?}");
    [actual, expected]
}

proptest! {
    #[test]
    fn paths_contain_the_links_of_all_shortest_paths(
        hosts in prop::collection::vec(0..3usize, 1..9),
        cables in prop::collection::vec((0..9usize, 0..9usize), 0..16),
        failed in prop::collection::vec(any::<bool>(), 0..16),
    ) {
        let count = hosts.len();
        let cables: Vec<(usize, usize)> =
            cables.iter().map(|(one, other)| (one % count, other % count)).filter(|(a, b)| a != b).collect();
        let switches = network(&hosts, &cables);
        // One host more than the switches have.
        let host_count = hosts.iter().sum::<usize>() as u32 + 1;
        let port_map = PortMap::new(host_count as usize, &switches, &BTreeSet::new());
        for failed in [BTreeSet::new(), failed_ports(&hosts, &cables, &failed)] {
            let without_failed = PortMap::new(host_count as usize, &switches, &failed);
            for (from, to) in (0..host_count).flat_map(|from| (0..host_count).map(move |to| (from, to))) {
                let [actual, expected] = actual_and_expected_links(&switches, (&without_failed, &failed), from, to);
                prop_assert_eq!(actual, expected, "{} to {} in {:?} without {:?}", from, to, switches, failed);
            }
        }
        (0..host_count).for_each(|from| assert_eq!(port_map.path(from, None), [2 * from]));
        // Each port of a switch and each host's link out gets queues exactly once.
        let targets: Vec<(u32, u32)> = (0..port_map.port_count() as u32).flat_map(|port| port_map.order_targets(port)).collect();
        let host_links = (0..host_count).map(|host| (host, 0));
        let ports = switches.iter().zip(host_count..);
        let ports = ports.flat_map(|(switch, number)| (0..switch.ports.len() as u32).map(move |port| (number, port)));
        prop_assert_eq!(targets.len(), targets.iter().collect::<BTreeSet<_>>().len());
        prop_assert_eq!(targets.into_iter().collect::<BTreeSet<_>>(), host_links.chain(ports).collect::<BTreeSet<_>>());
    }
}

/// Links that the same connections can cross are one port for the controller, so a path has few ports in a large
/// network.
#[test]
fn fat_tree_path_has_four_link_groups() {
    const HALF: usize = 8;
    let pods = 2 * HALF;
    let (edges, first_core) = (pods * HALF, 2 * pods * HALF);
    let mut hosts = vec![HALF; edges];
    hosts.resize(first_core + HALF * HALF, 0);
    let mut cables = Vec::new();
    for pod in 0..pods {
        for up in 0..HALF {
            let aggregation = edges + pod * HALF + up;
            cables.extend((0..HALF).map(|edge| (pod * HALF + edge, aggregation)));
            cables.extend((0..HALF).map(|core| (aggregation, first_core + up * HALF + core)));
        }
    }
    let switches = network(&hosts, &cables);
    let port_map = PortMap::new(edges * HALF, &switches, &BTreeSet::new());
    // One link group up and one down at each edge switch and each pod.
    assert_eq!(port_map.port_count() - 2 * edges * HALF, 2 * edges + 2 * pods);
    let last = (edges * HALF) as u32 - 1;
    assert_eq!(port_map.path(0, Some(last)).len(), 2 + 4);
    // All ports up of the edge switch and of all aggregation switches of the pod, and the same ports down.
    let [actual, expected] = actual_and_expected_links(&switches, (&port_map, &BTreeSet::new()), 0, last);
    assert_eq!(actual.len(), 2 * (HALF + HALF * HALF));
    assert_eq!(actual, expected);
    assert_eq!(port_map.path(0, Some(HALF as u32 - 1)).len(), 2, "hosts of one switch");
}

/// All ports of a link group have the same queues, so the strictest limits of its switches apply to it.
#[test]
fn link_group_has_the_strictest_limits_of_its_switches() {
    let limits = |queues, min_weight| PortLimits { queues, min_weight };
    // Leaves 0 and 1 with two hosts each, spines 2 and 3, and a host that is at no switch.
    let mut switches = network(&[2, 2, 0, 0], &[(0, 2), (0, 3), (1, 2), (1, 3)]);
    switches[0].limits = Some(limits(2, 0.3));
    switches[2].limits = Some(limits(4, 0.05));
    switches[3].limits = Some(limits(6, 0.1));
    let port_map = PortMap::new(5, &switches, &BTreeSet::new());
    let default = limits(8, 0.0);
    let found = port_map.port_limits(&switches, default);
    assert_eq!(found.len(), port_map.port_count());
    let port_limits = |port: u32| found[port as usize];
    for host in 0..5 {
        assert_eq!(port_limits(2 * host), default, "out of host {host}");
        let expected = if host < 2 { limits(2, 0.3) } else { default };
        assert_eq!(port_limits(2 * host + 1), expected, "into host {host}");
    }
    // From a leaf up, and from the spines down.
    for (from, to, [up, down]) in
        [(0, 2, [limits(2, 0.3), limits(4, 0.1)]), (2, 0, [default, limits(4, 0.1)])]
    {
        let groups = &port_map.path(from, Some(to))[2..];
        assert_eq!(groups.iter().map(|&port| port_limits(port)).collect::<Vec<_>>(), [up, down]);
    }
}

/// Layers of switches with all cables between neighbouring layers. Each switch has a host, so no two switches are of
/// one kind.
fn layered_network(width: usize, depth: usize) -> Vec<Switch> {
    let cable = |at: usize| (0..width).map(move |other| (at, (at / width + 1) * width + other));
    network(&vec![1; width * depth], &(0..width * (depth - 1)).flat_map(cable).collect::<Vec<_>>())
}

#[test]
fn paths_above_max_link_groups_use_host_links_only() {
    // A path from one switch over two layers of this width to one switch.
    for (wide, groups) in [(31, 31 + 31 * 31 + 31), (32, 0)] {
        let switches = layered_network(wide, 4);
        let hosts = switches.len();
        let path = PortMap::new(hosts, &switches, &BTreeSet::new()).path(0, Some(hosts as u32 - 1));
        assert!(groups <= MAX_LINK_GROUPS);
        assert_eq!(path.len(), 2 + groups, "{wide} wide");
    }
}
