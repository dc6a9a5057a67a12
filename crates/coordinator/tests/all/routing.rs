//! Tests of the links that a connection can cross, against shortest paths from another algorithm.

use std::collections::BTreeSet;

use proptest::prelude::*;
use weir_coordinator::config::{End, Switch};
use weir_coordinator::registry::routing::{MAX_TRUNKS, Ways};

/// Switches with these numbers of hosts, numbered from 0, and cables between the switches.
fn network(hosts: &[usize], cables: &[(usize, usize)]) -> Vec<Switch> {
    let mut next = 0;
    let mut switches: Vec<Switch> = Vec::new();
    for (place, &count) in hosts.iter().enumerate() {
        let ports = (next..next + count as u32).map(End::Host).collect();
        next += count as u32;
        switches.push(Switch { name: format!("s{place}"), ports });
    }
    for &(one, other) in cables {
        switches[one].ports.push(End::Switch(other as u32));
        switches[other].ports.push(End::Switch(one as u32));
    }
    switches
}

/// All distances, by the Floyd-Warshall algorithm.
fn distances(switches: &[Switch]) -> Vec<Vec<usize>> {
    let count = switches.len();
    let mut far = vec![vec![usize::MAX / 4; count]; count];
    for (place, switch) in switches.iter().enumerate() {
        far[place][place] = 0;
        for end in &switch.ports {
            if let End::Switch(other) = *end {
                far[place][other as usize] = 1;
            }
        }
    }
    for middle in 0..count {
        for from in 0..count {
            for to in 0..count {
                far[from][to] = far[from][to].min(far[from][middle] + far[middle][to]);
            }
        }
    }
    far
}

fn at(switches: &[Switch], host: u32) -> Option<usize> {
    switches.iter().position(|switch| switch.ports.contains(&End::Host(host)))
}

/// Switches and ports on shortest paths from `from` to `to`: the expected ones, and those of `ways`.
fn both(switches: &[Switch], ways: &Ways, from: u32, to: u32) -> [BTreeSet<(u32, u32)>; 2] {
    let far = distances(switches);
    let mut expected = BTreeSet::new();
    if let (Some(source), Some(target)) = (at(switches, from), at(switches, to)) {
        for (place, switch) in switches.iter().enumerate() {
            for (port, end) in (0u32..).zip(&switch.ports) {
                let &End::Switch(other) = end else { continue };
                if far[source][place] + 1 + far[other as usize][target] == far[source][target] {
                    expected.insert((place as u32, port));
                }
            }
        }
    }
    let path = ways.path(from, Some(to));
    assert_eq!(path[..2], [2 * from, 2 * to + 1]);
    let links: Vec<(u32, u32)> = path.iter().flat_map(|&port| ways.links(port)).copied().collect();
    let found: BTreeSet<(u32, u32)> = links.iter().copied().collect();
    assert_eq!(found.len(), links.len(), "each once");
    [found, expected]
}

proptest! {
    #[test]
    fn paths_contain_the_links_of_all_shortest_paths(
        hosts in prop::collection::vec(0..3usize, 1..9),
        cables in prop::collection::vec((0..9usize, 0..9usize), 0..16),
    ) {
        let count = hosts.len();
        let cables: Vec<(usize, usize)> =
            cables.iter().map(|(one, other)| (one % count, other % count)).filter(|(a, b)| a != b).collect();
        let switches = network(&hosts, &cables);
        // One host more than the switches have.
        let all = hosts.iter().sum::<usize>() as u32 + 1;
        let ways = Ways::new(all as usize, &switches);
        for from in 0..all {
            for to in 0..all {
                let [found, expected] = both(&switches, &ways, from, to);
                prop_assert_eq!(found, expected, "{} to {} in {:?}", from, to, switches);
            }
            prop_assert_eq!(ways.path(from, None), [2 * from]);
        }
        // Each port of a switch and each host's link out gets queues exactly once.
        let told: Vec<(u32, u32)> = (0..ways.ports() as u32).flat_map(|port| ways.told(port)).collect();
        let own = (0..all).map(|host| (host, 0));
        let ports = switches.iter().zip(all..);
        let ports = ports.flat_map(|(switch, number)| (0..switch.ports.len() as u32).map(move |port| (number, port)));
        prop_assert_eq!(told.len(), told.iter().collect::<BTreeSet<_>>().len());
        prop_assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), own.chain(ports).collect::<BTreeSet<_>>());
    }
}

/// Links that the same connections can cross are one port for the controller, so a path has few ports in a large
/// network.
#[test]
fn fat_tree_path_has_four_trunks() {
    const HALF: usize = 8;
    let pods = 2 * HALF;
    let (edges, middle) = (pods * HALF, 2 * pods * HALF);
    let mut hosts = vec![HALF; edges];
    hosts.resize(middle + HALF * HALF, 0);
    let mut cables = Vec::new();
    for pod in 0..pods {
        for up in 0..HALF {
            let aggregation = edges + pod * HALF + up;
            cables.extend((0..HALF).map(|edge| (pod * HALF + edge, aggregation)));
            cables.extend((0..HALF).map(|core| (aggregation, middle + up * HALF + core)));
        }
    }
    let switches = network(&hosts, &cables);
    let ways = Ways::new(edges * HALF, &switches);
    // One trunk up and one down at each edge switch and each pod.
    assert_eq!(ways.ports() - 2 * edges * HALF, 2 * edges + 2 * pods);
    let last = (edges * HALF) as u32 - 1;
    assert_eq!(ways.path(0, Some(last)).len(), 2 + 4);
    // All ports up of the edge switch and of all aggregation switches of the pod, and the same ports down.
    let [found, expected] = both(&switches, &ways, 0, last);
    assert_eq!(found.len(), 2 * (HALF + HALF * HALF));
    assert_eq!(found, expected);
    assert_eq!(ways.path(0, Some(HALF as u32 - 1)).len(), 2, "under one switch");
}

/// Layers of switches with all cables between neighbouring layers. Each switch has a host, so no two switches are of
/// one kind.
fn layers(wide: usize, deep: usize) -> Vec<Switch> {
    let cable = |at: usize| (0..wide).map(move |other| (at, (at / wide + 1) * wide + other));
    network(&vec![1; wide * deep], &(0..wide * (deep - 1)).flat_map(cable).collect::<Vec<_>>())
}

#[test]
fn paths_above_max_trunks_use_host_links_only() {
    // A path from one switch over two layers of this width to one switch.
    for (wide, trunks) in [(31, 31 + 31 * 31 + 31), (32, 0)] {
        let switches = layers(wide, 4);
        let hosts = switches.len();
        let path = Ways::new(hosts, &switches).path(0, Some(hosts as u32 - 1));
        assert!(trunks <= MAX_TRUNKS);
        assert_eq!(path.len(), 2 + trunks, "{wide} wide");
    }
}
