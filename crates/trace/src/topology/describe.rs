//! A network in numbers: tiers, rates, oversubscription, bisection, paths between hosts.

use std::collections::{BTreeMap, VecDeque};

use weir_core::model::{NodeId, Topology};

use super::cut;

/// Cables between two tiers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cables {
    /// The lower tier.
    pub low: u8,
    /// The upper tier.
    pub high: u8,
    /// How many.
    pub count: usize,
    /// The least rate, in bytes per second each way.
    pub least: f64,
    /// The greatest.
    pub most: f64,
    /// The sum of the rates.
    pub total: f64,
}

/// Switches of one tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tier {
    /// The tier, as the topology has it.
    pub tier: u8,
    /// How many switches.
    pub switches: usize,
    /// The rates of the cables down over those of the cables up, of the switch where that is the most; none if none of them
    /// has a cable up.
    pub oversubscription: Option<f64>,
}

/// Pairs of hosts, one way, that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pairs {
    /// Links of the shortest path.
    pub hops: u32,
    /// How many paths are as short.
    pub paths: u64,
    /// How many pairs.
    pub count: u64,
}

/// A network in numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Hosts.
    pub hosts: usize,
    /// Switches.
    pub switches: usize,
    /// Cables; each is two links.
    pub cables: usize,
    /// By tier, from below.
    pub tiers: Vec<Tier>,
    /// By the tiers of their ends, from below.
    pub between: Vec<Cables>,
    /// What the first half of the hosts, in their order, can send to the other half at once, over any paths: a cut with the
    /// least capacity. None if finding it took too long.
    pub bisection: Option<f64>,
    /// What the links of that half could send.
    pub half: f64,
    /// Pairs of hosts by the length and the number of their shortest paths. None if there are too many to look at.
    pub pairs: Option<Vec<Pairs>>,
}

/// Steps that counting paths may take.
const MAX_STEPS: u64 = 4_000_000_000;

impl Description {
    /// The numbers of a network with all its links up.
    pub fn new(topology: &Topology) -> Description {
        let half = topology.hosts() / 2;
        let out = |host: u32| topology.out(NodeId(host)).iter().map(|&link| topology.link(link).rate.get());
        Description {
            hosts: topology.hosts(),
            switches: topology.nodes() - topology.hosts(),
            cables: topology.links().len() / 2,
            tiers: tiers(topology),
            between: between(topology),
            bisection: cut::between_halves(topology),
            half: (0..half as u32).flat_map(out).sum(),
            pairs: pairs(topology),
        }
    }
}

fn tiers(topology: &Topology) -> Vec<Tier> {
    let mut tiers: BTreeMap<u8, Tier> = BTreeMap::new();
    for switch in (topology.hosts() as u32..topology.nodes() as u32).map(NodeId) {
        let own = topology.tier(switch);
        let (mut up, mut down) = (0.0, 0.0);
        for &link in topology.out(switch) {
            let link = topology.link(link);
            let other = topology.tier(link.to);
            if topology.is_host(link.to) || other < own {
                down += link.rate.get();
            } else if other > own {
                up += link.rate.get();
            }
        }
        let tier = tiers.entry(own).or_insert(Tier { tier: own, switches: 0, oversubscription: None });
        tier.switches += 1;
        if up > 0.0 {
            tier.oversubscription = Some(tier.oversubscription.unwrap_or(0.0).max(down / up));
        }
    }
    tiers.into_values().collect()
}

fn between(topology: &Topology) -> Vec<Cables> {
    let mut between: BTreeMap<(u8, u8), Cables> = BTreeMap::new();
    for link in topology.links().iter().step_by(2) {
        let (a, b) = (topology.tier(link.from), topology.tier(link.to));
        let (low, high) = (a.min(b), a.max(b));
        let none = Cables { low, high, count: 0, least: f64::INFINITY, most: 0.0, total: 0.0 };
        let cables = between.entry((low, high)).or_insert(none);
        let rate = link.rate.get();
        cables.count += 1;
        cables.least = cables.least.min(rate);
        cables.most = cables.most.max(rate);
        cables.total += rate;
    }
    between.into_values().collect()
}

/// Hosts with the same switches have the same paths, so one search for each set of switches is enough.
fn pairs(topology: &Topology) -> Option<Vec<Pairs>> {
    let hosts = topology.hosts();
    let mut groups: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
    for host in (0..hosts as u32).map(NodeId) {
        let mut heads: Vec<u32> = topology.out(host).iter().map(|&l| topology.link(l).to.0).collect();
        heads.sort_unstable();
        *groups.entry(heads).or_default() += 1;
    }
    let heads: u64 = groups.keys().map(|heads| heads.len() as u64).sum();
    if groups.len() as u64 * (topology.links().len() as u64 + heads) > MAX_STEPS {
        return None;
    }
    let mut found: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for (to, &receivers) in &groups {
        let near = search(topology, to);
        for (from, &senders) in &groups {
            let at = |head: &u32| near[*head as usize - hosts];
            let hops = from.iter().map(|head| at(head).0).min().expect("every host has a cable to a switch");
            let paths = from.iter().map(at).filter(|near| near.0 == hops);
            let paths = paths.fold(0u64, |sum, near| sum.saturating_add(near.1));
            let count = if from == to { senders * (senders - 1) } else { senders * receivers };
            if count > 0 {
                *found.entry((hops + 1, paths)).or_default() += count;
            }
        }
    }
    Some(found.into_iter().map(|((hops, paths), count)| Pairs { hops, paths, count }).collect())
}

/// Of every switch: the links to hosts at these switches, and the number of shortest paths, at most `u64::MAX`.
fn search(topology: &Topology, heads: &[u32]) -> Vec<(u32, u64)> {
    let hosts = topology.hosts();
    let mut near = vec![(u32::MAX, 0u64); topology.nodes() - hosts];
    let mut reached = VecDeque::new();
    for &head in heads {
        near[head as usize - hosts] = (1, 1);
        reached.push_back(head);
    }
    while let Some(switch) = reached.pop_front() {
        let (hops, paths) = near[switch as usize - hosts];
        for &link in topology.out(NodeId(switch)) {
            let Some(next) = topology.link(link).to.index().checked_sub(hosts) else { continue };
            let (other, count) = &mut near[next];
            if *other == u32::MAX {
                *other = hops + 1;
                reached.push_back((hosts + next) as u32);
            }
            if *other == hops + 1 {
                *count = count.saturating_add(paths);
            }
        }
    }
    near
}
