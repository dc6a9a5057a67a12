//! Flows that every switch divides evenly among equal-cost links, for networks whose ECMP hash is unknown.
//!
//! Hosts under the same switches have the same paths. A *link group* is the set of links between switches that flows
//! between the same hosts can cross; such as all links from a leaf to the spines, or from a pod to the core. A group is one
//! trunk. Its capacity is the highest total rate at which no link of the group exceeds its own capacity: the minimum over
//! the links of the link's capacity, divided by the largest share of a flow on this link.
//!
//! In leaf-spine fabrics and fat trees, all flows have equal shares on a link, so the capacity is exact. If shares differ,
//! as in a ring of switches, no link exceeds its capacity, but some capacity can stay unused.

use std::collections::{BTreeMap, BTreeSet};

use super::super::topology::route::splitmix64;
use super::super::topology::{CableChange, LinkId, NodeId, Routes, Topology};

/// Link groups of a topology, and the groups that flows between two hosts cross.
#[derive(Debug, Clone)]
pub(super) struct EvenSplit {
    routes: Routes,
    /// See [`Topology::sites`].
    sites: Vec<u32>,
    host_of_site: Vec<NodeId>,
    /// By link: its group; `None` for links of hosts and links on no shortest path.
    group_by_link: Vec<Option<u32>>,
    /// Sites of senders and receivers without a path, since cables have failed.
    unreachable: BTreeSet<(u32, u32)>,
    /// By sites of sender and receiver, as far as computed: the groups between them.
    paths: BTreeMap<(u32, u32), Box<[u32]>>,
    link_shares: Vec<(LinkId, f64)>,
}

/// The flows on a link.
#[derive(Debug, Clone, Copy, Default)]
struct LinkUse {
    /// Sum of the hashes of all pairs of sites whose flows cross the link. Different sets of pairs have different sums, except
    /// with negligible probability.
    pairs: u64,
    /// The largest share of a flow.
    max_share: f64,
}

impl EvenSplit {
    /// Computes the link groups after changes of cables, and their capacities in bytes per second. O(pairs of sites, times the links
    /// between two sites), and O(sites x links).
    pub(super) fn new(topology: Topology, changes: &[(LinkId, CableChange)]) -> (EvenSplit, Vec<f64>) {
        let (sites, host_of_site) = topology.sites();
        let mut rates: Vec<f64> = topology.links().iter().map(|link| link.rate.get()).collect();
        let mut routes = Routes::new(topology, 0);
        for &(cable, change) in changes {
            for link in [cable, cable.reverse()] {
                match change {
                    CableChange::Down => _ = routes.fail_link(link),
                    CableChange::Up => _ = routes.restore_link(link),
                    CableChange::Rate(rate) => rates[link.index()] = rate.get(),
                }
            }
        }
        let mut uses = vec![LinkUse::default(); routes.topology().links().len()];
        let (mut link_shares, mut unreachable) = (Vec::new(), BTreeSet::new());
        for (to, &dst) in (0u32..).zip(&host_of_site) {
            for (from, &src) in (0u32..).zip(&host_of_site) {
                if from == to {
                    continue;
                }
                if !routes.compute_ecmp_shares(src, dst, &mut link_shares) {
                    unreachable.insert((from, to));
                    continue;
                }
                let pair = splitmix64(u64::from(from) << 32 | u64::from(to));
                for &(link, share) in &link_shares {
                    let link_use = &mut uses[link.index()];
                    link_use.pairs = link_use.pairs.wrapping_add(pair);
                    link_use.max_share = link_use.max_share.max(share);
                }
            }
        }
        let (mut group_by_pairs, mut capacities) = (BTreeMap::new(), Vec::new());
        let topology = routes.topology();
        let group_of = |((&link, link_use), rate): ((_, &LinkUse), f64)| {
            if topology.is_host_link(link) || link_use.max_share == 0.0 {
                return None;
            }
            let group = *group_by_pairs.entry(link_use.pairs).or_insert_with(|| {
                capacities.push(f64::INFINITY);
                capacities.len() as u32 - 1
            });
            let capacity = &mut capacities[group as usize];
            *capacity = capacity.min(rate / link_use.max_share);
            Some(group)
        };
        let group_by_link = topology.links().iter().zip(&uses).zip(rates).map(group_of).collect();
        let paths = BTreeMap::new();
        let split = EvenSplit { routes, sites, host_of_site, group_by_link, unreachable, paths, link_shares };
        (split, capacities)
    }

    /// Whether a path leads from one host to another.
    pub(super) fn has_path(&self, from: u32, to: u32) -> bool {
        !self.unreachable.contains(&(self.sites[from as usize], self.sites[to as usize]))
    }

    /// Writes the groups that a flow between two hosts crosses to `path`, in the order of their numbers.
    pub(super) fn compute_path(&mut self, from: u32, to: u32, path: &mut Vec<u32>) {
        let pair = (self.sites[from as usize], self.sites[to as usize]);
        if pair.0 == pair.1 {
            return;
        }
        let EvenSplit { routes, host_of_site, group_by_link, paths, link_shares, .. } = self;
        let groups = paths.entry(pair).or_insert_with(|| {
            let [from, to] = [pair.0, pair.1].map(|site| host_of_site[site as usize]);
            routes.compute_ecmp_shares(from, to, link_shares);
            let groups = link_shares.iter().filter_map(|(link, _)| group_by_link[link.index()]);
            let mut groups: Vec<u32> = groups.collect();
            groups.sort_unstable();
            groups.dedup();
            groups.into()
        });
        path.extend_from_slice(groups);
    }

    /// By group: see [`Routes::max_loads`]. The links of a group have the same load.
    pub(super) fn max_loads(&mut self, rates: &[(f64, f64)]) -> Vec<f64> {
        let by_link = self.routes.max_loads(rates);
        let mut by_group = Vec::new();
        for (load, &group) in by_link.into_iter().zip(&self.group_by_link) {
            // Groups are numbered in the order of their first links.
            if group == Some(by_group.len() as u32) {
                by_group.push(load);
            }
        }
        by_group
    }

    /// The ends of the first link of a group, and the number of its other links.
    pub(super) fn group_name(&self, group: u32) -> String {
        let topology = self.routes.topology();
        let mut links =
            topology.links().iter().zip(&self.group_by_link).filter(|(_, of)| **of == Some(group));
        let first = links.next().map_or_else(String::new, |(link, _)| {
            format!("{} -> {}", topology.name(link.from), topology.name(link.to))
        });
        match links.count() {
            0 => first,
            others => format!("{first} and {others} more"),
        }
    }
}
