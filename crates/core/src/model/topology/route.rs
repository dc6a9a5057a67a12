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

mod max_loads;

use super::{LinkId, NodeId, Topology};

/// The distance of an unreachable switch.
const UNREACHABLE: u16 = u16::MAX;

/// A topology, the state of its links, and the paths of flows.
#[derive(Debug, Clone)]
pub struct Routes {
    topology: Topology,
    seed: u64,
    link_up: Vec<bool>,
    /// By switch: distances from every switch to this one, in hops, if computed.
    distances: Vec<Option<Box<[u16]>>>,
    /// Switches with a link to the current destination.
    destination_switches: Vec<u32>,
    /// For [`Routes::compute_ecmp_shares`]: the share of the flow at each node, and the nodes with a share above zero.
    node_shares: Vec<f64>,
    frontier: Vec<NodeId>,
    next_frontier: Vec<NodeId>,
    next_hops: NextHops,
}

/// The links that lead nearer to one destination, by node, as far as computed.
#[derive(Debug, Clone, Default)]
struct NextHops {
    destination: Option<NodeId>,
    links: Vec<LinkId>,
    /// By node: the range of `links`; empty if not computed.
    ranges: Vec<(u32, u32)>,
}

impl Routes {
    /// Selects other paths.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// Creates routes with all links up. Another seed selects other paths.
    pub fn new(topology: Topology, seed: u64) -> Routes {
        Routes {
            seed,
            link_up: vec![true; topology.links().len()],
            distances: vec![None; topology.nodes() - topology.hosts()],
            destination_switches: Vec::new(),
            node_shares: vec![0.0; topology.nodes()],
            frontier: Vec::new(),
            next_frontier: Vec::new(),
            next_hops: NextHops::default(),
            topology,
        }
    }

    /// The topology, including links that are down.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Whether a link is up.
    pub fn is_up(&self, link: LinkId) -> bool {
        self.link_up[link.index()]
    }

    /// Capacity of each link in bytes per second; 0 if the link is down.
    pub fn capacities(&self) -> Vec<f64> {
        let links = self.topology.links().iter().zip(&self.link_up);
        links.map(|(link, &up)| if up { link.rate.get() } else { 0.0 }).collect()
    }

    /// Takes a link down. The other link of the cable keeps its state. Returns whether the link was up.
    pub fn fail_link(&mut self, link: LinkId) -> bool {
        self.next_hops.destination = None;
        let was_up = std::mem::replace(&mut self.link_up[link.index()], false);
        if let (true, Some((from, to))) = (was_up, self.switch_ends(link)) {
            // Distances change only if no other link leads from the switch nearer to the destination.
            let (topology, up) = (&self.topology, &self.link_up);
            let out = topology.outgoing_links(topology.link(link).from);
            for cached in &mut self.distances {
                let Some(row) = cached else { continue };
                let nearer = |other: &LinkId| {
                    let to = topology.link(*other).to;
                    up[other.index()]
                        && !topology.is_host(to)
                        && row[to.index() - topology.hosts()] < row[from]
                };
                if row[to] < row[from] && !out.iter().any(nearer) {
                    *cached = None;
                }
            }
        }
        was_up
    }

    /// Takes a link up. Returns whether it was down.
    pub fn restore_link(&mut self, link: LinkId) -> bool {
        self.next_hops.destination = None;
        let was_up = std::mem::replace(&mut self.link_up[link.index()], true);
        if let (false, Some((from, to))) = (was_up, self.switch_ends(link)) {
            for cached in &mut self.distances {
                if cached.as_ref().is_some_and(|row| row[to] != UNREACHABLE && row[to] + 1 < row[from]) {
                    *cached = None;
                }
            }
        }
        !was_up
    }

    /// The two switches of a link; `None` if one end is a host.
    fn switch_ends(&self, link: LinkId) -> Option<(usize, usize)> {
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
    pub fn compute_path(&mut self, from: NodeId, to: NodeId, flow: u64, path: &mut Vec<LinkId>) -> bool {
        path.clear();
        self.check_host(from);
        self.set_destination(to);
        let key =
            splitmix64(splitmix64(splitmix64(self.seed) ^ u64::from(from.0) << 32 ^ u64::from(to.0)) ^ flow);
        let mut node = from;
        while node != to {
            let mut best: Option<(u64, LinkId)> = None;
            self.visit_next_hops(node, to, |link| {
                let score = splitmix64(key ^ splitmix64(u64::from(link.0)));
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

    /// Writes the links that a flow between two hosts can take to `link_shares`, with the share of the flow on each link.
    ///
    /// Every node divides the flow evenly among the links that lead nearer to the destination. Each link occurs once.
    /// Returns whether a path exists. Fastest for consecutive flows to one destination.
    ///
    /// # Panics
    /// If one of the nodes is not a host of this topology.
    pub fn compute_ecmp_shares(
        &mut self,
        from: NodeId,
        to: NodeId,
        link_shares: &mut Vec<(LinkId, f64)>,
    ) -> bool {
        link_shares.clear();
        self.check_host(from);
        self.set_destination(to);
        let (mut shares, mut here, mut next, mut next_hops) = (
            std::mem::take(&mut self.node_shares),
            std::mem::take(&mut self.frontier),
            std::mem::take(&mut self.next_frontier),
            std::mem::take(&mut self.next_hops),
        );
        if next_hops.destination != Some(to) {
            next_hops.destination = Some(to);
            next_hops.links.clear();
            next_hops.ranges.clear();
            next_hops.ranges.resize(self.topology.nodes(), (0, 0));
        }
        here.clear();
        here.push(from);
        shares[from.index()] = 1.0;
        // All nodes of `here` have the same distance to the destination, so their shares are complete.
        while here.first().is_some_and(|&node| node != to) {
            next.clear();
            for &node in &here {
                let share = std::mem::take(&mut shares[node.index()]);
                let mut range = next_hops.ranges[node.index()];
                if range.0 == range.1 {
                    let first = next_hops.links.len() as u32;
                    self.visit_next_hops(node, to, |link| next_hops.links.push(link));
                    range = (first, next_hops.links.len() as u32);
                    next_hops.ranges[node.index()] = range;
                }
                let links = &next_hops.links[range.0 as usize..range.1 as usize];
                let each = share / links.len() as f64;
                for &link in links {
                    link_shares.push((link, each));
                    let to = self.topology.link(link).to;
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
        (self.node_shares, self.frontier, self.next_frontier) = (shares, here, next);
        self.next_hops = next_hops;
        found
    }

    /// Writes the outgoing links of a node for flows to a host to `links`: the entry of a router's forwarding table.
    ///
    /// The result is empty at that host itself, and if no path exists.
    ///
    /// # Panics
    /// If `to` is not a host of this topology.
    pub fn compute_next_hops(&mut self, node: NodeId, to: NodeId, links: &mut Vec<LinkId>) {
        links.clear();
        self.set_destination(to);
        if node != to {
            self.visit_next_hops(node, to, |link| links.push(link));
        }
    }

    fn check_host(&self, node: NodeId) {
        assert!(self.topology.is_host(node), "node {} is not a host", node.0);
    }

    /// Computes the distances to a host.
    fn set_destination(&mut self, to: NodeId) {
        self.check_host(to);
        self.destination_switches.clear();
        for &link in self.topology.outgoing_links(to) {
            if self.link_up[link.reverse().index()] {
                let head = self.topology.link(link).to.index() - self.topology.hosts();
                self.destination_switches.push(head as u32);
                if self.distances[head].is_none() {
                    self.distances[head] = Some(self.compute_distances(head));
                }
            }
        }
    }

    /// Distance from a switch to the current destination, in links.
    fn distance(&self, switch: usize) -> u16 {
        let rows =
            self.destination_switches.iter().filter_map(|&head| self.distances[head as usize].as_ref());
        rows.map(|row| row[switch].saturating_add(1)).min().unwrap_or(UNREACHABLE)
    }

    /// Calls `visit` with the outgoing links of a node that lead nearest to the current destination.
    fn visit_next_hops(&self, node: NodeId, to: NodeId, mut visit: impl FnMut(LinkId)) {
        let hosts = self.topology.hosts();
        let distance = |link: LinkId| {
            let next = self.topology.link(link).to;
            if next == to {
                return 0;
            }
            match next.index().checked_sub(hosts) {
                Some(switch) if self.link_up[link.index()] => self.distance(switch),
                _ => UNREACHABLE,
            }
        };
        let out = self.topology.outgoing_links(node);
        let nearest = match node.index().checked_sub(hosts) {
            Some(switch) => self.distance(switch).saturating_sub(1),
            None => out.iter().map(|&link| distance(link)).min().unwrap_or(UNREACHABLE),
        };
        for &link in out {
            if nearest < UNREACHABLE - 1 && self.link_up[link.index()] && distance(link) == nearest {
                visit(link);
            }
        }
    }

    /// Distances of all switches to one switch, by breadth-first search against the direction of links. O(links).
    fn compute_distances(&self, head: usize) -> Box<[u16]> {
        let hosts = self.topology.hosts();
        let mut row = vec![UNREACHABLE; self.distances.len()].into_boxed_slice();
        let mut reached = Vec::with_capacity(row.len());
        row[head] = 0;
        reached.push(head);
        let mut at = 0;
        while let Some(&switch) = reached.get(at) {
            at += 1;
            for &link in self.topology.outgoing_links(NodeId((hosts + switch) as u32)) {
                let Some(other) = self.topology.link(link).to.index().checked_sub(hosts) else { continue };
                if row[other] == UNREACHABLE && self.link_up[link.reverse().index()] {
                    // Below `UNREACHABLE`: the number of switches is at most `Topology::MAX_SWITCHES`.
                    row[other] = row[switch] + 1;
                    reached.push(other);
                }
            }
        }
        row
    }
}

/// The mixing function of SplitMix64; independent of platform and version.
pub(crate) fn splitmix64(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
