//! Networks with paths: named hosts and switches, and the links between them.
//!
//! A [`Topology`] is fixed. [`route::Routes`] tracks which links are up, and computes the paths of flows.
//! [`TopologyTemplate`] builds the topologies of the papers, and common ones.
//!
//! A cable is two links of equal rate, one in each direction. Switches may form cycles, as in a fat tree: paths
//! contain no loops, because every hop is nearer to the destination. The builder rejects these cables:
//!
//! - a cable from a node to itself,
//! - a second cable between two nodes (use one cable with the sum of the rates),
//! - a cable between two hosts.
//!
//! Hosts do not forward. So every host needs a cable to one common connected part of the switches. Other parts may
//! exist, for example if each host has a port in each of two separate networks.

pub mod cable_event;
pub mod route;
pub mod template;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::units::Rate;

pub use cable_event::{CableChange, CableEvent, CableEventError};
pub use route::Routes;
pub use template::TopologyTemplate;

/// Number of a node. Hosts come first, in the order of creation: host `i` is port `i` of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// Number of a link. The links of cable `i` are `2 i`, from the first end to the second, and `2 i + 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u32);

impl NodeId {
    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The other link of the cable.
    pub const fn reverse(self) -> LinkId {
        LinkId(self.0 ^ 1)
    }
}

/// One direction of a cable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Node that sends.
    pub from: NodeId,
    /// Node that receives.
    pub to: NodeId,
    /// Rate of the link when it is up; above zero.
    pub rate: Rate,
}

/// Why a topology is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TopologyError {
    /// A name of a node cannot be printed in a table, or is too long.
    #[error("node name {0:?} is invalid; expected 1 to 64 characters without blanks and control characters")]
    InvalidName(String),
    /// Two nodes have the same name.
    #[error("two nodes are named `{0}`; expected distinct names")]
    DuplicateName(String),
    /// A cable refers to a node that does not exist.
    #[error(
        "cable from `{from}` to `{to}`: node `{unknown}` does not exist; expected a host or switch of the file"
    )]
    UnknownNode {
        /// First end of the cable.
        from: String,
        /// Second end of the cable.
        to: String,
        /// The end that does not exist.
        unknown: String,
    },
    /// A cable leads from a node to itself.
    #[error("cable from `{0}` to itself; expected two different nodes")]
    SelfLink(String),
    /// Two cables connect the same two nodes.
    #[error(
        "second cable between `{0}` and `{1}`; expected one; help: use one cable with the sum of the rates"
    )]
    DuplicateCable(String, String),
    /// A cable connects two hosts.
    #[error(
        "cable between the hosts `{0}` and `{1}`; expected a switch at one end, because hosts do not forward"
    )]
    HostToHost(String, String),
    /// The rate of a cable is out of bounds.
    #[error("cable between `{from}` and `{to}`: rate {rate} is out of range; expected {min} to {max}",
        min = Topology::MIN_RATE, max = Topology::MAX_RATE)]
    Rate {
        /// First end of the cable.
        from: String,
        /// Second end of the cable.
        to: String,
        /// Rate of the cable.
        rate: Rate,
    },
    /// A node has no cable.
    #[error("node `{0}` has no cable; expected at least one")]
    Unconnected(String),
    /// No path over switches connects two hosts.
    #[error("no path over switches from host `{0}` to host `{1}`; expected a path between all hosts")]
    Unreachable(String, String),
    /// A count is out of bounds.
    #[error("{count} {kind}; expected {min} to {max}")]
    Count {
        /// The counted objects: `hosts`, `switches` or `cables`.
        kind: &'static str,
        /// The count.
        count: u64,
        /// Minimum count.
        min: u64,
        /// Maximum count.
        max: u64,
    },
    /// A parameter of a [`TopologyTemplate`] is invalid.
    #[error("{template}: `{parameter}` is {value}; expected {expected}")]
    Parameter {
        /// Name of the template.
        template: &'static str,
        /// Name of the parameter.
        parameter: &'static str,
        /// The rejected value.
        value: String,
        /// The accepted values.
        expected: &'static str,
    },
}

/// A valid network of hosts, switches and links.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Names of hosts, then of switches.
    names: Vec<String>,
    /// Tier by switch.
    tiers: Vec<u8>,
    host_count: u32,
    links: Vec<Link>,
    /// Outgoing links by node, in the order of their numbers, concatenated.
    outgoing_links: Vec<LinkId>,
    outgoing_starts: Vec<u32>,
    /// Nodes by name.
    by_name: BTreeMap<String, NodeId>,
}

impl Topology {
    /// Maximum number of hosts, equal to the maximum number of ports of a workload.
    pub const MAX_HOSTS: usize = 65_536;

    /// Maximum number of switches. With all distances between switches, routes use at most 128 MiB.
    pub const MAX_SWITCHES: usize = 8_192;

    /// Maximum number of cables.
    pub const MAX_CABLES: usize = 1 << 20;

    /// Maximum length of a node's name, in characters.
    pub const MAX_NAME_CHARS: usize = 64;

    /// Minimum rate of a link: 1 bit/s.
    pub const MIN_RATE: Rate = Rate::from_valid(0.125);

    /// Maximum rate of a link: 1 PB/s. Sums of such rates keep all their digits.
    pub const MAX_RATE: Rate = Rate::from_valid(1e15);

    /// Number of hosts.
    pub fn hosts(&self) -> usize {
        self.host_count as usize
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.names.len()
    }

    /// All links, by number.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// One link.
    pub fn link(&self, link: LinkId) -> Link {
        self.links[link.index()]
    }

    /// Name of a node.
    pub fn name(&self, node: NodeId) -> &str {
        &self.names[node.index()]
    }

    /// The node of this name.
    pub fn find_node(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// Whether a node is a host.
    pub fn is_host(&self, node: NodeId) -> bool {
        node.0 < self.host_count
    }

    /// Whether one end of a link is a host.
    pub fn is_host_link(&self, link: Link) -> bool {
        self.is_host(link.from) || self.is_host(link.to)
    }

    /// Tier of a switch, 1 next to the hosts; 0 for hosts. For display only: routes do not use it.
    pub fn tier(&self, node: NodeId) -> u8 {
        if self.is_host(node) { 0 } else { self.tiers[node.index() - self.hosts()] }
    }

    /// Outgoing links of a node, in the order of their numbers. The incoming links are their reverses.
    pub fn outgoing_links(&self, node: NodeId) -> &[LinkId] {
        let (start, end) = (self.outgoing_starts[node.index()], self.outgoing_starts[node.index() + 1]);
        &self.outgoing_links[start as usize..end as usize]
    }

    /// The same network with more hosts, after the others, each with a cable of this rate to a switch. They have the names `+1`, `+2` and
    /// so on. Links keep their numbers, and those of the new cables follow.
    ///
    /// # Errors
    /// If a rate is out of range, a node has one of these names, or there are too many hosts or cables.
    ///
    /// # Panics
    /// If one of the nodes is not a switch.
    pub fn with_hosts(&self, cables: &[(NodeId, Rate)]) -> Result<Topology, TopologyError> {
        let mut builder = TopologyBuilder::new();
        let names: Vec<String> = (1..=cables.len()).map(|number| format!("+{number}")).collect();
        (0..self.hosts()).try_for_each(|host| builder.add_host(&self.names[host]))?;
        names.iter().try_for_each(|name| builder.add_host(name))?;
        for (name, &tier) in self.names[self.hosts()..].iter().zip(&self.tiers) {
            builder.add_switch(name, tier)?;
        }
        for link in self.links.iter().step_by(2) {
            builder.add_cable(self.name(link.from), self.name(link.to), link.rate)?;
        }
        for (name, &(switch, rate)) in names.iter().zip(cables) {
            assert!(!self.is_host(switch), "node {} is a switch", switch.0);
            builder.add_cable(name, self.name(switch), rate)?;
        }
        builder.build()
    }

    /// By host: its *site*, the set of switches that it has cables to. By site: its first host. Hosts of a site have the same paths.
    pub(crate) fn sites(&self) -> (Vec<u32>, Vec<NodeId>) {
        let mut site_by_switches: BTreeMap<Vec<NodeId>, u32> = BTreeMap::new();
        let mut host_of_site = Vec::new();
        let site_of = |host: NodeId| {
            let cables = self.outgoing_links(host).iter();
            let mut switches: Vec<NodeId> = cables.map(|&cable| self.link(cable).to).collect();
            switches.sort_unstable();
            *site_by_switches.entry(switches).or_insert_with(|| {
                host_of_site.push(host);
                host_of_site.len() as u32 - 1
            })
        };
        let site_by_host = (0..self.host_count).map(NodeId).map(site_of).collect();
        (site_by_host, host_of_site)
    }

    /// The link from one node to another, if it exists. At most one exists. O(links of the node with fewer).
    pub fn link_between(&self, from: NodeId, to: NodeId) -> Option<LinkId> {
        let find =
            |from, to| self.outgoing_links(from).iter().copied().find(|&link| self.link(link).to == to);
        if self.outgoing_links(from).len() <= self.outgoing_links(to).len() {
            find(from, to)
        } else {
            find(to, from).map(LinkId::reverse)
        }
    }
}

/// Position of a node in a list of a [`TopologyBuilder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NodePosition {
    Host(u32),
    Switch(u32),
}

/// Builds a topology from nodes and then cables, and rejects invalid ones.
#[derive(Debug, Clone, Default)]
pub struct TopologyBuilder {
    hosts: Vec<String>,
    switches: Vec<(String, u8)>,
    positions: BTreeMap<String, NodePosition>,
    cables: Vec<(NodePosition, NodePosition, Rate)>,
    connected_pairs: BTreeSet<(NodePosition, NodePosition)>,
}

impl TopologyBuilder {
    /// Creates an empty builder.
    pub fn new() -> TopologyBuilder {
        TopologyBuilder::default()
    }

    /// Adds a host.
    ///
    /// # Errors
    /// If the name is invalid or already in use, or if the maximum number of hosts is reached.
    pub fn add_host(&mut self, name: &str) -> Result<(), TopologyError> {
        check_count("hosts", self.hosts.len() + 1, Topology::MAX_HOSTS)?;
        self.add_node(name, NodePosition::Host(self.hosts.len() as u32))?;
        self.hosts.push(name.to_owned());
        Ok(())
    }

    /// Adds a switch in tier `tier`.
    ///
    /// # Errors
    /// If the name is invalid or already in use, or if the maximum number of switches is reached.
    pub fn add_switch(&mut self, name: &str, tier: u8) -> Result<(), TopologyError> {
        check_count("switches", self.switches.len() + 1, Topology::MAX_SWITCHES)?;
        self.add_node(name, NodePosition::Switch(self.switches.len() as u32))?;
        self.switches.push((name.to_owned(), tier));
        Ok(())
    }

    fn add_node(&mut self, name: &str, place: NodePosition) -> Result<(), TopologyError> {
        let printable = |c: char| !c.is_whitespace() && !c.is_control();
        let length = name.chars().take(Topology::MAX_NAME_CHARS + 1).count();
        if length == 0 || length > Topology::MAX_NAME_CHARS || !name.chars().all(printable) {
            return Err(TopologyError::InvalidName(name.chars().take(Topology::MAX_NAME_CHARS).collect()));
        }
        if self.positions.contains_key(name) {
            return Err(TopologyError::DuplicateName(name.to_owned()));
        }
        self.positions.insert(name.to_owned(), place);
        Ok(())
    }

    /// Adds a cable between two existing nodes, with `rate` in each direction.
    ///
    /// # Errors
    /// - [`TopologyError::Count`] if the maximum number of cables is reached.
    /// - [`TopologyError::UnknownNode`] if an end does not exist.
    /// - [`TopologyError::SelfLink`], [`TopologyError::HostToHost`] or [`TopologyError::DuplicateCable`] for the
    ///   cables that the module documentation excludes.
    /// - [`TopologyError::Rate`] if the rate is not from [`Topology::MIN_RATE`] to [`Topology::MAX_RATE`].
    pub fn add_cable(&mut self, from: &str, to: &str, rate: Rate) -> Result<(), TopologyError> {
        check_count("cables", self.cables.len() + 1, Topology::MAX_CABLES)?;
        let unknown = |unknown: &str| TopologyError::UnknownNode {
            from: from.to_owned(),
            to: to.to_owned(),
            unknown: unknown.to_owned(),
        };
        let a = *self.positions.get(from).ok_or_else(|| unknown(from))?;
        let b = *self.positions.get(to).ok_or_else(|| unknown(to))?;
        if a == b {
            return Err(TopologyError::SelfLink(from.to_owned()));
        }
        if matches!((a, b), (NodePosition::Host(_), NodePosition::Host(_))) {
            return Err(TopologyError::HostToHost(from.to_owned(), to.to_owned()));
        }
        if !(Topology::MIN_RATE..=Topology::MAX_RATE).contains(&rate) {
            return Err(TopologyError::Rate { from: from.to_owned(), to: to.to_owned(), rate });
        }
        if !self.connected_pairs.insert((a.min(b), a.max(b))) {
            return Err(TopologyError::DuplicateCable(from.to_owned(), to.to_owned()));
        }
        self.cables.push((a, b, rate));
        Ok(())
    }

    /// Builds the topology. O(nodes + cables), times a logarithm.
    ///
    /// # Errors
    /// If no host exists, if a node has no cable, or if no path connects two hosts.
    pub fn build(self) -> Result<Topology, TopologyError> {
        check_count("hosts", self.hosts.len(), Topology::MAX_HOSTS)?;
        let hosts = self.hosts.len() as u32;
        let id = |place: NodePosition| match place {
            NodePosition::Host(h) => NodeId(h),
            NodePosition::Switch(s) => NodeId(hosts + s),
        };
        let by_name = self.positions.into_iter().map(|(name, place)| (name, id(place))).collect();
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
        let topology = Topology {
            names,
            tiers,
            host_count: hosts,
            links,
            outgoing_links: out,
            outgoing_starts: starts,
            by_name,
        };
        topology.check_connected()?;
        Ok(topology)
    }
}

/// Checks a count against its maximum.
fn check_count(kind: &'static str, count: usize, max: usize) -> Result<(), TopologyError> {
    if (1..=max).contains(&count) {
        return Ok(());
    }
    Err(TopologyError::Count { kind, count: count as u64, min: 1, max: max as u64 })
}

impl Topology {
    /// Checks that every node has a cable, and that one connected part of the switches reaches all hosts.
    fn check_connected(&self) -> Result<(), TopologyError> {
        let nodes = || (0..self.nodes() as u32).map(NodeId);
        if let Some(alone) = nodes().find(|&node| self.outgoing_links(node).is_empty()) {
            return Err(TopologyError::Unconnected(self.name(alone).to_owned()));
        }
        let components = self.connected_components();
        let component = |link: LinkId| components[self.link(link).to.index() - self.hosts()] as usize;
        let hosts = || (0..self.host_count).map(NodeId);
        // By connected part: number of hosts that it reaches, and the last of these hosts.
        let mut reach = vec![(0u32, None); components.len()];
        for host in hosts() {
            for &link in self.outgoing_links(host) {
                let (count, last) = &mut reach[component(link)];
                if *last != Some(host) {
                    *count += 1;
                    *last = Some(host);
                }
            }
        }
        let largest = (0..reach.len())
            .min_by_key(|&part| Reverse(reach[part].0))
            .expect("there are hosts, and every host has a cable to a switch");
        let touches =
            |host: &NodeId| self.outgoing_links(*host).iter().any(|&link| component(link) == largest);
        match (hosts().find(touches), hosts().find(|host| !touches(host))) {
            (Some(inside), Some(outside)) => {
                Err(TopologyError::Unreachable(self.name(inside).to_owned(), self.name(outside).to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// By switch: its connected part, as the number of the part's first switch.
    fn connected_components(&self) -> Vec<u32> {
        const NONE: u32 = u32::MAX;
        let switches = self.nodes() - self.hosts();
        let mut components = vec![NONE; switches];
        let mut reached = Vec::new();
        for first in 0..switches {
            if components[first] != NONE {
                continue;
            }
            components[first] = first as u32;
            reached.push(first);
            while let Some(switch) = reached.pop() {
                for &link in self.outgoing_links(NodeId((self.hosts() + switch) as u32)) {
                    let to = self.link(link).to;
                    if self.is_host(to) {
                        continue;
                    }
                    let other = to.index() - self.hosts();
                    if components[other] == NONE {
                        components[other] = first as u32;
                        reached.push(other);
                    }
                }
            }
        }
        components
    }
}
