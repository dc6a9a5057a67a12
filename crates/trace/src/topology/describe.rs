//! Computes statistics of a network: tiers, rates, oversubscription, bisection, and paths between hosts.

use std::collections::{BTreeMap, VecDeque};

use weir_core::model::{NodeId, Topology};

use super::bisection;

/// Statistics of the cables between two tiers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CableStatistics {
    /// The lower tier.
    pub lower_tier: u8,
    /// The upper tier.
    pub upper_tier: u8,
    /// Number of cables.
    pub count: usize,
    /// The minimum rate, in bytes per second in each direction.
    pub min_bytes_per_sec: f64,
    /// The maximum rate, in bytes per second in each direction.
    pub max_bytes_per_sec: f64,
    /// The sum of the rates, in bytes per second in each direction.
    pub total_bytes_per_sec: f64,
}

/// Statistics of the switches of one tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TierStatistics {
    /// The tier's number in the topology.
    pub tier: u8,
    /// Number of switches.
    pub switches: usize,
    /// The oversubscription: the rates of a switch's cables to lower tiers divided by those to upper tiers. The maximum over
    /// the tier's switches; none if no switch of the tier has a cable to an upper tier.
    pub oversubscription: Option<f64>,
}

/// Ordered pairs of hosts with equal distance and number of shortest paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPairs {
    /// Number of links of the shortest path.
    pub hops: u32,
    /// Number of shortest paths.
    pub paths: u64,
    /// Number of pairs.
    pub count: u64,
}

/// Statistics of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct TopologyStatistics {
    /// Number of hosts.
    pub hosts: usize,
    /// Number of switches.
    pub switches: usize,
    /// Number of cables; each is two links.
    pub cables: usize,
    /// By tier, from the lowest.
    pub tiers: Vec<TierStatistics>,
    /// By the tiers of the cables' ends, from the lowest.
    pub cables_between_tiers: Vec<CableStatistics>,
    /// The capacity from the first half of the hosts, in their order, to the other half, over any paths, in bytes per
    /// second: a minimum cut. None if the search takes too many steps.
    pub bisection_bytes_per_sec: Option<f64>,
    /// The sum of the sending rates of that half's links, in bytes per second.
    pub half_send_bytes_per_sec: f64,
    /// Pairs of hosts by length and number of their shortest paths. None if the search takes too many steps.
    pub host_pairs: Option<Vec<HostPairs>>,
}

/// The maximum number of steps for counting paths.
const MAX_STEPS: u64 = 4_000_000_000;

impl TopologyStatistics {
    /// Computes the statistics of a network with all links up.
    pub fn new(topology: &Topology) -> TopologyStatistics {
        let half = topology.hosts() / 2;
        let out = |host: u32| {
            topology.outgoing_links(NodeId(host)).iter().map(|&link| topology.link(link).rate.get())
        };
        TopologyStatistics {
            hosts: topology.hosts(),
            switches: topology.nodes() - topology.hosts(),
            cables: topology.links().len() / 2,
            tiers: tier_statistics(topology),
            cables_between_tiers: cable_statistics(topology),
            bisection_bytes_per_sec: bisection::bisection_bytes_per_sec(topology),
            half_send_bytes_per_sec: (0..half as u32).flat_map(out).sum(),
            host_pairs: count_host_pairs(topology),
        }
    }
}

/// The statistics of the tiers of switches, from the lowest.
pub fn tier_statistics(topology: &Topology) -> Vec<TierStatistics> {
    let mut tiers: BTreeMap<u8, TierStatistics> = BTreeMap::new();
    for switch in (topology.hosts() as u32..topology.nodes() as u32).map(NodeId) {
        let own_tier = topology.tier(switch);
        let (mut up, mut down) = (0.0, 0.0);
        for &link in topology.outgoing_links(switch) {
            let link = topology.link(link);
            let other = topology.tier(link.to);
            if topology.is_host(link.to) || other < own_tier {
                down += link.rate.get();
            } else if other > own_tier {
                up += link.rate.get();
            }
        }
        let tier = tiers.entry(own_tier).or_insert(TierStatistics {
            tier: own_tier,
            switches: 0,
            oversubscription: None,
        });
        tier.switches += 1;
        if up > 0.0 {
            tier.oversubscription = Some(tier.oversubscription.unwrap_or(0.0).max(down / up));
        }
    }
    tiers.into_values().collect()
}

/// The statistics of the cables between tiers, from the lowest.
pub fn cable_statistics(topology: &Topology) -> Vec<CableStatistics> {
    let mut between: BTreeMap<(u8, u8), CableStatistics> = BTreeMap::new();
    for link in topology.links().iter().step_by(2) {
        let (a, b) = (topology.tier(link.from), topology.tier(link.to));
        let (low, high) = (a.min(b), a.max(b));
        let none = CableStatistics {
            lower_tier: low,
            upper_tier: high,
            count: 0,
            min_bytes_per_sec: f64::INFINITY,
            max_bytes_per_sec: 0.0,
            total_bytes_per_sec: 0.0,
        };
        let cables = between.entry((low, high)).or_insert(none);
        let rate = link.rate.get();
        cables.count += 1;
        cables.min_bytes_per_sec = cables.min_bytes_per_sec.min(rate);
        cables.max_bytes_per_sec = cables.max_bytes_per_sec.max(rate);
        cables.total_bytes_per_sec += rate;
    }
    between.into_values().collect()
}

/// Groups the ordered pairs of hosts by distance and number of shortest paths. Hosts with the same switches have the same
/// paths, so one search for each set of switches suffices.
fn count_host_pairs(topology: &Topology) -> Option<Vec<HostPairs>> {
    let hosts = topology.hosts();
    let mut groups: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
    for host in (0..hosts as u32).map(NodeId) {
        let mut edge_switches: Vec<u32> =
            topology.outgoing_links(host).iter().map(|&l| topology.link(l).to.0).collect();
        edge_switches.sort_unstable();
        *groups.entry(edge_switches).or_default() += 1;
    }
    let edge_switch_count: u64 = groups.keys().map(|heads| heads.len() as u64).sum();
    if groups.len() as u64 * (topology.links().len() as u64 + edge_switch_count) > MAX_STEPS {
        return None;
    }
    let mut pair_counts: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for (to, &receivers) in &groups {
        let hops_and_paths = count_shortest_paths(topology, to);
        for (from, &senders) in &groups {
            let at = |head: &u32| hops_and_paths[*head as usize - hosts];
            let hops = from.iter().map(|head| at(head).0).min().expect("every host has a cable to a switch");
            let paths = from.iter().map(at).filter(|near| near.0 == hops);
            let paths = paths.fold(0u64, |sum, near| sum.saturating_add(near.1));
            let count = if from == to { senders * (senders - 1) } else { senders * receivers };
            if count > 0 {
                *pair_counts.entry((hops + 1, paths)).or_default() += count;
            }
        }
    }
    Some(pair_counts.into_iter().map(|((hops, paths), count)| HostPairs { hops, paths, count }).collect())
}

/// For every switch, the number of links to hosts at the switches `edge_switches`, and the number of shortest paths, at most
/// `u64::MAX`.
fn count_shortest_paths(topology: &Topology, edge_switches: &[u32]) -> Vec<(u32, u64)> {
    let hosts = topology.hosts();
    let mut hops_and_paths = vec![(u32::MAX, 0u64); topology.nodes() - hosts];
    let mut queue = VecDeque::new();
    for &head in edge_switches {
        hops_and_paths[head as usize - hosts] = (1, 1);
        queue.push_back(head);
    }
    while let Some(switch) = queue.pop_front() {
        let (hops, paths) = hops_and_paths[switch as usize - hosts];
        for &link in topology.outgoing_links(NodeId(switch)) {
            let Some(next) = topology.link(link).to.index().checked_sub(hosts) else { continue };
            let (other, count) = &mut hops_and_paths[next];
            if *other == u32::MAX {
                *other = hops + 1;
                queue.push_back((hosts + next) as u32);
            }
            if *other == hops + 1 {
                *count = count.saturating_add(paths);
            }
        }
    }
    hops_and_paths
}
