//! Paths of flows: equal-cost shortest paths over the links that are up.
//!
//! All links have equal cost, and hosts do not forward. A path is computed hop by hop, as switches do in ECMP
//! (equal-cost multipath). Of the links that lead nearer to the destination, the flow takes the link with the highest
//! hash of link and flow (rendezvous hashing). Switches commonly take the hash modulo the number of links; rendezvous
//! hashing moves fewer flows. When a link fails, only the flows that crossed it change their path, as with the
//! "resilient" hashing of newer switches.
//!
//! The cache contains the distances from all switches to the switches that were destinations so far, two bytes each.
//! A path costs the links of the nodes on it. Every hop is nearer to the destination than the previous one, so no
//! path contains a loop.

use super::{LinkId, NodeId, Topology};

/// The distance of an unreachable switch.
const FAR: u16 = u16::MAX;

/// A topology, the state of its links, and the paths of flows.
#[derive(Debug, Clone)]
pub struct Routes {
    topology: Topology,
    seed: u64,
    up: Vec<bool>,
    /// By switch: distances from every switch to this one, in hops, if computed.
    distances: Vec<Option<Box<[u16]>>>,
    /// Switches with a link to the current destination.
    heads: Vec<u32>,
    /// For [`Routes::spread`]: the share of the flow at each node, and the nodes with a share above zero.
    shares: Vec<f64>,
    here: Vec<NodeId>,
    next: Vec<NodeId>,
}

impl Routes {
    /// Creates routes with all links up. Another seed selects other paths.
    pub fn new(topology: Topology, seed: u64) -> Routes {
        Routes {
            seed,
            up: vec![true; topology.links().len()],
            distances: vec![None; topology.nodes() - topology.hosts()],
            heads: Vec::new(),
            shares: vec![0.0; topology.nodes()],
            here: Vec::new(),
            next: Vec::new(),
            topology,
        }
    }

    /// The topology, including links that are down.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Whether a link is up.
    pub fn is_up(&self, link: LinkId) -> bool {
        self.up[link.index()]
    }

    /// Capacity of each link in bytes per second; 0 if the link is down.
    pub fn capacities(&self) -> Vec<f64> {
        let links = self.topology.links().iter().zip(&self.up);
        links.map(|(link, &up)| if up { link.rate.get() } else { 0.0 }).collect()
    }

    /// Takes a link down. The other link of the cable keeps its state. Returns whether the link was up.
    pub fn fail(&mut self, link: LinkId) -> bool {
        let was = std::mem::replace(&mut self.up[link.index()], false);
        if let (true, Some((from, to))) = (was, self.switches(link)) {
            // Distances change only if no other link leads from the switch nearer to the destination.
            let (topology, up) = (&self.topology, &self.up);
            let out = topology.out(topology.link(link).from);
            for kept in &mut self.distances {
                let Some(row) = kept else { continue };
                let nearer = |other: &LinkId| {
                    let to = topology.link(*other).to;
                    up[other.index()]
                        && !topology.is_host(to)
                        && row[to.index() - topology.hosts()] < row[from]
                };
                if row[to] < row[from] && !out.iter().any(nearer) {
                    *kept = None;
                }
            }
        }
        was
    }

    /// Takes a link up. Returns whether it was down.
    pub fn restore(&mut self, link: LinkId) -> bool {
        let was = std::mem::replace(&mut self.up[link.index()], true);
        if let (false, Some((from, to))) = (was, self.switches(link)) {
            for kept in &mut self.distances {
                if kept.as_ref().is_some_and(|row| row[to] != FAR && row[to] + 1 < row[from]) {
                    *kept = None;
                }
            }
        }
        !was
    }

    /// The two switches of a link; `None` if one end is a host.
    fn switches(&self, link: LinkId) -> Option<(usize, usize)> {
        let hosts = self.topology.hosts();
        let link = self.topology.link(link);
        Some((link.from.index().checked_sub(hosts)?, link.to.index().checked_sub(hosts)?))
    }

    /// Writes the path of a flow between two hosts to `path`. Returns whether a path exists.
    ///
    /// `flow` distinguishes the flows between two hosts. A flow from a host to itself crosses no link.
    ///
    /// # Panics
    /// If one of the nodes is not a host of this topology.
    pub fn path(&mut self, from: NodeId, to: NodeId, flow: u64, path: &mut Vec<LinkId>) -> bool {
        path.clear();
        self.check_host(from);
        self.aim(to);
        let key = mix(mix(mix(self.seed) ^ u64::from(from.0) << 32 ^ u64::from(to.0)) ^ flow);
        let mut node = from;
        while node != to {
            let mut best: Option<(u64, LinkId)> = None;
            self.ways(node, to, |link| {
                let score = mix(key ^ mix(u64::from(link.0)));
                if best.is_none_or(|(highest, _)| score > highest) {
                    best = Some((score, link));
                }
            });
            let Some((_, link)) = best else {
                path.clear();
                return false;
            };
            path.push(link);
            node = self.topology.link(link).to;
        }
        true
    }

    /// Writes the links that a flow between two hosts can take to `spread`, with the share of the flow on each link.
    ///
    /// Every node divides the flow evenly among the links that lead nearer to the destination. Each link occurs once.
    /// Returns whether a path exists.
    ///
    /// # Panics
    /// If one of the nodes is not a host of this topology.
    pub fn spread(&mut self, from: NodeId, to: NodeId, spread: &mut Vec<(LinkId, f64)>) -> bool {
        spread.clear();
        self.check_host(from);
        self.aim(to);
        let (mut shares, mut here, mut next) = (
            std::mem::take(&mut self.shares),
            std::mem::take(&mut self.here),
            std::mem::take(&mut self.next),
        );
        here.clear();
        here.push(from);
        shares[from.index()] = 1.0;
        // All nodes of `here` have the same distance to the destination, so their shares are complete.
        while here.first().is_some_and(|&node| node != to) {
            next.clear();
            for &node in &here {
                let share = std::mem::take(&mut shares[node.index()]);
                let first = spread.len();
                self.ways(node, to, |link| spread.push((link, 0.0)));
                let each = share / (spread.len() - first) as f64;
                for (link, share) in &mut spread[first..] {
                    *share = each;
                    let to = self.topology.link(*link).to;
                    if shares[to.index()] == 0.0 {
                        next.push(to);
                    }
                    shares[to.index()] += each;
                }
            }
            std::mem::swap(&mut here, &mut next);
        }
        shares[to.index()] = 0.0;
        let found = here.first() == Some(&to);
        (self.shares, self.here, self.next) = (shares, here, next);
        found
    }

    /// Writes the outgoing links of a node for flows to a host to `links`: the entry of a router's forwarding table.
    ///
    /// The result is empty at that host itself, and if no path exists.
    ///
    /// # Panics
    /// If `to` is not a host of this topology.
    pub fn hops(&mut self, node: NodeId, to: NodeId, links: &mut Vec<LinkId>) {
        links.clear();
        self.aim(to);
        if node != to {
            self.ways(node, to, |link| links.push(link));
        }
    }

    fn check_host(&self, node: NodeId) {
        assert!(self.topology.is_host(node), "node {} is not a host", node.0);
    }

    /// Computes the distances to a host.
    fn aim(&mut self, to: NodeId) {
        self.check_host(to);
        self.heads.clear();
        for &link in self.topology.out(to) {
            if self.up[link.reverse().index()] {
                let head = self.topology.link(link).to.index() - self.topology.hosts();
                self.heads.push(head as u32);
                if self.distances[head].is_none() {
                    self.distances[head] = Some(self.search(head));
                }
            }
        }
    }

    /// Distance from a switch to the current destination, in links.
    fn distance(&self, switch: usize) -> u16 {
        let rows = self.heads.iter().filter_map(|&head| self.distances[head as usize].as_ref());
        rows.map(|row| row[switch].saturating_add(1)).min().unwrap_or(FAR)
    }

    /// Calls `way` with the outgoing links of a node that lead nearest to the current destination.
    fn ways(&self, node: NodeId, to: NodeId, mut way: impl FnMut(LinkId)) {
        let hosts = self.topology.hosts();
        let distance = |link: LinkId| {
            let next = self.topology.link(link).to;
            if next == to {
                return 0;
            }
            match next.index().checked_sub(hosts) {
                Some(switch) if self.up[link.index()] => self.distance(switch),
                _ => FAR,
            }
        };
        let out = self.topology.out(node);
        let nearest = match node.index().checked_sub(hosts) {
            Some(switch) => self.distance(switch).saturating_sub(1),
            None => out.iter().map(|&link| distance(link)).min().unwrap_or(FAR),
        };
        for &link in out {
            if nearest < FAR - 1 && self.up[link.index()] && distance(link) == nearest {
                way(link);
            }
        }
    }

    /// Distances of all switches to one switch, by breadth-first search against the direction of links. O(links).
    fn search(&self, head: usize) -> Box<[u16]> {
        let hosts = self.topology.hosts();
        let mut row = vec![FAR; self.distances.len()].into_boxed_slice();
        let mut reached = Vec::with_capacity(row.len());
        row[head] = 0;
        reached.push(head);
        let mut at = 0;
        while let Some(&switch) = reached.get(at) {
            at += 1;
            for &link in self.topology.out(NodeId((hosts + switch) as u32)) {
                let Some(other) = self.topology.link(link).to.index().checked_sub(hosts) else { continue };
                if row[other] == FAR && self.up[link.reverse().index()] {
                    // Below `FAR`: the number of switches is at most `MAX_SWITCHES`.
                    row[other] = row[switch] + 1;
                    reached.push(other);
                }
            }
        }
        row
    }
}

/// The mixing function of SplitMix64; independent of platform and version.
pub(crate) fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
