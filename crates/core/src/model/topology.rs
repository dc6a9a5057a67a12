//! Networks with paths: named hosts and switches, and the links between them.
//!
//! A [`Topology`] is what was built and does not change; [`route::Routes`] says which links are up and what paths
//! flows take. [`plan::Plan`] has the topologies of the papers, and the usual ones.
//!
//! A cable is two links, one each way, at one rate. Switches may form cycles, as they do in a fat tree: routes never
//! follow them, since every hop comes nearer to the destination. What makes no sense is an error: a
//! cable from a node to itself, a second cable between two nodes (one at the sum of the rates says the same),
//! and a cable between two hosts. Hosts do not forward, so every host has to have a cable to one and the same
//! connected part of the switches. Other parts may exist, as where each host has a port in each of two separate networks.

pub mod plan;
pub mod route;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::units::Rate;

pub use plan::Plan;
pub use route::Routes;

/// A node's number. Hosts come first, in the order in which they were named: host `i` is port `i` of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// A link's number. The links of cable `i` are `2 i`, from its first end to its second, and `2 i + 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u32);

impl NodeId {
    /// The number as a position.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    /// The number as a position.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The cable's other link.
    pub const fn reverse(self) -> LinkId {
        LinkId(self.0 ^ 1)
    }
}

/// One direction of a cable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Where it comes from.
    pub from: NodeId,
    /// Where it goes to.
    pub to: NodeId,
    /// What it carries when it is up; above zero.
    pub rate: Rate,
}

/// What is wrong with a topology.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TopologyError {
    /// A name that could not be printed in a table, or is too long for one.
    #[error("a node is named {0:?}: expected 1 to 64 characters, none of them blank or a control character")]
    Name(String),
    /// Two nodes have one name.
    #[error("two nodes are named `{0}`: expected distinct names")]
    DuplicateName(String),
    /// A cable to a node that is not there.
    #[error("the cable from `{from}` to `{to}` names `{unknown}`, which is no node")]
    UnknownNode {
        /// The cable's first end.
        from: String,
        /// Its second end.
        to: String,
        /// The end that is not there.
        unknown: String,
    },
    /// A cable from a node to itself.
    #[error("a cable from `{0}` to itself: expected two nodes")]
    SelfLink(String),
    /// A second cable between two nodes.
    #[error("a second cable between `{0}` and `{1}`: expected one, at the sum of their rates")]
    DuplicateCable(String, String),
    /// A cable between two hosts.
    #[error(
        "a cable between the hosts `{0}` and `{1}`: expected a switch at one end, since hosts do not forward"
    )]
    HostToHost(String, String),
    /// A rate that no link has.
    #[error("the cable between `{from}` and `{to}` has rate {rate}: expected {min} to {max}",
        min = Topology::MIN_RATE, max = Topology::MAX_RATE)]
    Rate {
        /// The cable's first end.
        from: String,
        /// Its second end.
        to: String,
        /// The rate.
        rate: Rate,
    },
    /// A node without a cable.
    #[error("`{0}` has no cable: expected at least one")]
    Unconnected(String),
    /// Hosts between which no switches lead.
    #[error("no switches lead from host `{0}` to host `{1}`: expected a path between all hosts")]
    Unreachable(String, String),
    /// More than there can be, or none where there has to be some.
    #[error("{count} {what}: expected {min} to {max}")]
    Count {
        /// `hosts`, `switches` or `cables`.
        what: &'static str,
        /// How many there are.
        count: u64,
        /// The fewest.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A parameter of a [`Plan`] that it cannot be built with.
    #[error("{plan}: `{parameter}` is {value}: expected {expected}")]
    Parameter {
        /// The plan's name.
        plan: &'static str,
        /// The parameter's name.
        parameter: &'static str,
        /// Its value.
        value: String,
        /// What would have been right.
        expected: &'static str,
    },
}

/// A network of hosts, switches and links that holds together.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Hosts, then switches.
    names: Vec<String>,
    /// Of each switch.
    tiers: Vec<u8>,
    hosts: u32,
    links: Vec<Link>,
    /// The links out of each node, in order of their numbers, one node after the other.
    out: Vec<LinkId>,
    starts: Vec<u32>,
    /// Nodes by their names.
    by_name: BTreeMap<String, NodeId>,
}

impl Topology {
    /// The most hosts. As many as a workload can have ports.
    pub const MAX_HOSTS: usize = 65_536;

    /// The most switches: with all distances between them, routes take at most 128 MiB.
    pub const MAX_SWITCHES: usize = 8_192;

    /// The most cables.
    pub const MAX_CABLES: usize = 1 << 20;

    /// The longest name of a node, in characters.
    pub const MAX_NAME: usize = 64;

    /// The least rate of a link: 1 bit a second.
    pub const MIN_RATE: Rate = Rate::of(0.125);

    /// The greatest rate of a link: a petabyte a second. Sums of such rates keep all their digits.
    pub const MAX_RATE: Rate = Rate::of(1e15);

    /// How many hosts there are.
    pub fn hosts(&self) -> usize {
        self.hosts as usize
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.names.len()
    }

    /// All links, by their numbers.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// One link.
    pub fn link(&self, link: LinkId) -> Link {
        self.links[link.index()]
    }

    /// A node's name.
    pub fn name(&self, node: NodeId) -> &str {
        &self.names[node.index()]
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// Whether a node is a host.
    pub fn is_host(&self, node: NodeId) -> bool {
        node.0 < self.hosts
    }

    /// Whether a link is a host's own, at either of its ends.
    pub fn is_host_link(&self, link: Link) -> bool {
        self.is_host(link.from) || self.is_host(link.to)
    }

    /// How far up a switch is, 1 next to the hosts; 0 for hosts. For people to read: routes do not go by it.
    pub fn tier(&self, node: NodeId) -> u8 {
        if self.is_host(node) { 0 } else { self.tiers[node.index() - self.hosts()] }
    }

    /// The links out of a node, in order of their numbers. The links into it are their reverses.
    pub fn out(&self, node: NodeId) -> &[LinkId] {
        let (start, end) = (self.starts[node.index()], self.starts[node.index() + 1]);
        &self.out[start as usize..end as usize]
    }

    /// The link from one node to another, if there is one. There are never two. O(links of the node with fewer).
    pub fn between(&self, from: NodeId, to: NodeId) -> Option<LinkId> {
        let find = |from, to| self.out(from).iter().copied().find(|&link| self.link(link).to == to);
        if self.out(from).len() <= self.out(to).len() {
            find(from, to)
        } else {
            find(to, from).map(LinkId::reverse)
        }
    }
}

/// Which list of a [`Builder`] a node is in, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Host(u32),
    Switch(u32),
}

/// Takes nodes and then cables, and refuses what makes no sense.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    hosts: Vec<String>,
    switches: Vec<(String, u8)>,
    places: BTreeMap<String, Place>,
    cables: Vec<(Place, Place, Rate)>,
    pairs: BTreeSet<(Place, Place)>,
}

impl Builder {
    /// Nothing yet.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Adds a host.
    ///
    /// # Errors
    /// If there can be none of this name, or no more of them.
    pub fn host(&mut self, name: &str) -> Result<(), TopologyError> {
        count("hosts", self.hosts.len() + 1, Topology::MAX_HOSTS)?;
        self.add(name, Place::Host(self.hosts.len() as u32))?;
        self.hosts.push(name.to_owned());
        Ok(())
    }

    /// Adds a switch, `tier` levels up from the hosts.
    ///
    /// # Errors
    /// If there can be none of this name, or no more of them.
    pub fn switch(&mut self, name: &str, tier: u8) -> Result<(), TopologyError> {
        count("switches", self.switches.len() + 1, Topology::MAX_SWITCHES)?;
        self.add(name, Place::Switch(self.switches.len() as u32))?;
        self.switches.push((name.to_owned(), tier));
        Ok(())
    }

    fn add(&mut self, name: &str, place: Place) -> Result<(), TopologyError> {
        let printable = |c: char| !c.is_whitespace() && !c.is_control();
        let length = name.chars().take(Topology::MAX_NAME + 1).count();
        if length == 0 || length > Topology::MAX_NAME || !name.chars().all(printable) {
            return Err(TopologyError::Name(name.chars().take(Topology::MAX_NAME).collect()));
        }
        if self.places.contains_key(name) {
            return Err(TopologyError::DuplicateName(name.to_owned()));
        }
        self.places.insert(name.to_owned(), place);
        Ok(())
    }

    /// Adds a cable between two nodes that are there, at `rate` each way.
    ///
    /// # Errors
    /// If there can be no such cable, or no more of them.
    pub fn cable(&mut self, from: &str, to: &str, rate: Rate) -> Result<(), TopologyError> {
        count("cables", self.cables.len() + 1, Topology::MAX_CABLES)?;
        let unknown = |unknown: &str| TopologyError::UnknownNode {
            from: from.to_owned(),
            to: to.to_owned(),
            unknown: unknown.to_owned(),
        };
        let a = *self.places.get(from).ok_or_else(|| unknown(from))?;
        let b = *self.places.get(to).ok_or_else(|| unknown(to))?;
        if a == b {
            return Err(TopologyError::SelfLink(from.to_owned()));
        }
        if matches!((a, b), (Place::Host(_), Place::Host(_))) {
            return Err(TopologyError::HostToHost(from.to_owned(), to.to_owned()));
        }
        if !(Topology::MIN_RATE..=Topology::MAX_RATE).contains(&rate) {
            return Err(TopologyError::Rate { from: from.to_owned(), to: to.to_owned(), rate });
        }
        if !self.pairs.insert((a.min(b), a.max(b))) {
            return Err(TopologyError::DuplicateCable(from.to_owned(), to.to_owned()));
        }
        self.cables.push((a, b, rate));
        Ok(())
    }

    /// The topology. O(nodes + cables), but for a logarithm.
    ///
    /// # Errors
    /// If there are no hosts, or one of them is cut off.
    pub fn build(self) -> Result<Topology, TopologyError> {
        count("hosts", self.hosts.len(), Topology::MAX_HOSTS)?;
        let hosts = self.hosts.len() as u32;
        let id = |place: Place| match place {
            Place::Host(h) => NodeId(h),
            Place::Switch(s) => NodeId(hosts + s),
        };
        let by_name = self.places.into_iter().map(|(name, place)| (name, id(place))).collect();
        let (switches, tiers): (Vec<String>, Vec<u8>) = self.switches.into_iter().unzip();
        let names: Vec<String> = self.hosts.into_iter().chain(switches).collect();
        let links: Vec<Link> = self
            .cables
            .iter()
            .map(|&(a, b, rate)| (id(a), id(b), rate))
            .flat_map(|(a, b, rate)| [Link { from: a, to: b, rate }, Link { from: b, to: a, rate }])
            .collect();
        let mut starts = vec![0u32; names.len() + 1];
        for link in &links {
            starts[link.from.index() + 1] += 1;
        }
        for node in 0..names.len() {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut out = vec![LinkId(0); links.len()];
        for (number, link) in links.iter().enumerate() {
            let place = &mut next[link.from.index()];
            out[*place as usize] = LinkId(number as u32);
            *place += 1;
        }
        let topology = Topology { names, tiers, hosts, links, out, starts, by_name };
        topology.check_connected()?;
        Ok(topology)
    }
}

/// Whether there may be this many.
fn count(what: &'static str, count: usize, max: usize) -> Result<(), TopologyError> {
    if (1..=max).contains(&count) {
        return Ok(());
    }
    Err(TopologyError::Count { what, count: count as u64, min: 1, max: max as u64 })
}

impl Topology {
    /// Whether every node has a cable, and one connected part of the switches leads to all hosts.
    fn check_connected(&self) -> Result<(), TopologyError> {
        let nodes = || (0..self.nodes() as u32).map(NodeId);
        if let Some(alone) = nodes().find(|&node| self.out(node).is_empty()) {
            return Err(TopologyError::Unconnected(self.name(alone).to_owned()));
        }
        let parts = self.parts();
        let part = |link: LinkId| parts[self.link(link).to.index() - self.hosts()] as usize;
        let hosts = || (0..self.hosts).map(NodeId);
        // How many hosts each part leads to, and the last of them.
        let mut reach = vec![(0u32, None); parts.len()];
        for host in hosts() {
            for &link in self.out(host) {
                let (count, last) = &mut reach[part(link)];
                if *last != Some(host) {
                    *count += 1;
                    *last = Some(host);
                }
            }
        }
        let most = (0..reach.len())
            .min_by_key(|&part| Reverse(reach[part].0))
            .expect("there are hosts, and every host has a cable to a switch");
        let touches = |host: &NodeId| self.out(*host).iter().any(|&link| part(link) == most);
        match (hosts().find(touches), hosts().find(|host| !touches(host))) {
            (Some(inside), Some(outside)) => {
                Err(TopologyError::Unreachable(self.name(inside).to_owned(), self.name(outside).to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// The connected part of each switch, by the number of its first switch.
    fn parts(&self) -> Vec<u32> {
        const NONE: u32 = u32::MAX;
        let switches = self.nodes() - self.hosts();
        let mut parts = vec![NONE; switches];
        let mut reached = Vec::new();
        for first in 0..switches {
            if parts[first] != NONE {
                continue;
            }
            parts[first] = first as u32;
            reached.push(first);
            while let Some(switch) = reached.pop() {
                for &link in self.out(NodeId((self.hosts() + switch) as u32)) {
                    let to = self.link(link).to;
                    if self.is_host(to) {
                        continue;
                    }
                    let other = to.index() - self.hosts();
                    if parts[other] == NONE {
                        parts[other] = first as u32;
                        reached.push(other);
                    }
                }
            }
        }
        parts
    }
}
