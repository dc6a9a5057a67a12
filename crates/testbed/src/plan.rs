//! Computes the nodes, addresses and routes of a bed from a topology, without changing the system.
//!
//! Each node has one address, on its loopback interface. Cables need no addresses, since routes name the interface. Both ends of
//! a cable have the same hardware address, and ARP is off: no ARP request can be lost in a full queue, and the first packet is
//! not delayed.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use weir_core::model::{LinkId, NodeId, Routes, Topology};
use weir_core::units::Rate;

/// The name of a bed, whose namespaces are named `weir-NAME-...`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BedName(String);

impl BedName {
    /// The maximum length, in bytes.
    pub const MAX_LENGTH: usize = 32;

    /// The prefix of the names of this bed's namespaces.
    pub fn namespace_prefix(&self) -> String {
        format!("{NAMESPACE_PREFIX}{}-", self.0)
    }

    /// The name of the bed that a namespace belongs to; none for other namespaces.
    pub fn from_namespace(namespace: &str) -> Option<BedName> {
        namespace.strip_prefix(NAMESPACE_PREFIX)?.split_once('-')?.0.parse().ok()
    }
}

/// The prefix of the namespaces of all beds.
const NAMESPACE_PREFIX: &str = "weir-";

impl FromStr for BedName {
    type Err = String;

    fn from_str(text: &str) -> Result<BedName, String> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if (1..=BedName::MAX_LENGTH).contains(&text.len()) && text.chars().all(is_allowed) {
            return Ok(BedName(text.to_owned()));
        }
        Err(format!(
            "bed name `{text}` is invalid; expected 1 to {} letters, digits or `_`",
            BedName::MAX_LENGTH
        ))
    }
}

impl fmt::Display for BedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a topology cannot be built as a bed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// There are more nodes than [`Plan::MAX_NODES`].
    #[error("the topology has {0} hosts and switches; expected at most {max} on one machine", max = Plan::MAX_NODES)]
    TooManyNodes(usize),
    /// The name of a node contains characters that are not allowed in a namespace's name.
    #[error("node name `{0}` is invalid on a bed; expected letters, digits, `.`, `_` and `-` only")]
    NodeName(String),
    /// The rate of a link is outside the range that Linux can shape.
    #[error("the link from `{from}` to `{to}` has the rate {rate}; expected {min} to {max} on a bed",
        min = Plan::rate_limits().0, max = Plan::rate_limits().1)]
    LinkRate {
        /// The start of the link.
        from: String,
        /// The end of the link.
        to: String,
        /// The rate of the link.
        rate: Rate,
    },
}

/// An end of a cable: an interface of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// The name of the interface: `eth0`, `eth1` and so on, in the order of the topology's cables.
    pub interface: String,
    /// The link that leaves here.
    pub link: LinkId,
    /// The rate of the link.
    pub rate: Rate,
}

/// A route of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// The destination host; none for the default route.
    pub destination: Option<Ipv4Addr>,
    /// Positions of the ports on shortest paths. Connections are spread over them by hash.
    pub ports: Vec<usize>,
}

/// A host or a switch.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The name in the topology.
    pub name: String,
    /// The network namespace.
    pub namespace: String,
    /// The address: from 10.0.0.1 for hosts, from 10.1.0.1 for switches, in the topology's order.
    pub address: Ipv4Addr,
    /// Whether the node is a switch, which forwards packets.
    pub is_switch: bool,
    /// Its ends of cables.
    pub ports: Vec<Port>,
    /// Its routes to all other hosts.
    pub routes: Vec<Route>,
}

/// A cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cable {
    /// The node and the port at each end, as positions.
    pub ends: [(usize, usize); 2],
    /// The hardware address of both ends.
    pub mac: [u8; 6],
}

/// The nodes, cables and addresses of a bed.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The name of the bed.
    pub name: BedName,
    /// Hosts, then switches, by their numbers in the topology.
    pub nodes: Vec<Node>,
    /// Cables, by their numbers in the topology.
    pub cables: Vec<Cable>,
    /// The rate of the slowest link.
    pub min_link_rate: Rate,
}

impl Plan {
    /// The maximum number of hosts and switches. Each is a network namespace with separate tables.
    pub const MAX_NODES: usize = 1_000;

    /// The next hop of all routes. It is never on the wire: with ARP off, no host asks for it.
    pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 1);

    /// The minimum and maximum rate of a link. At the minimum, a frame takes a second and a half.
    fn rate_limits() -> (Rate, Rate) {
        let rate = |bits: f64| Rate::new(bits / 8.0).expect("8 kbit/s and 100 Gbit/s are valid rates");
        (rate(8e3), rate(1e11))
    }

    /// Plans a bed of this topology. O(nodes x hosts x ports of a node).
    ///
    /// # Errors
    /// If the topology is too large, or a name or rate is not allowed.
    pub fn new(name: BedName, topology: &Topology) -> Result<Plan, PlanError> {
        if topology.nodes() > Plan::MAX_NODES {
            return Err(PlanError::TooManyNodes(topology.nodes()));
        }
        let (min_rate, max_rate) = Plan::rate_limits();
        for link in topology.links() {
            if !(min_rate..=max_rate).contains(&link.rate) {
                let name = |node| topology.name(node).to_owned();
                return Err(PlanError::LinkRate {
                    from: name(link.from),
                    to: name(link.to),
                    rate: link.rate,
                });
            }
        }
        let mut routes = Routes::new(topology.clone(), 0);
        let nodes = (0..topology.nodes() as u32).map(NodeId);
        let nodes = nodes.map(|id| node(&name, &mut routes, id)).collect::<Result<Vec<Node>, PlanError>>()?;
        let cables = (0..topology.links().len() as u32).step_by(2).map(|first| {
            let end = |link: LinkId| {
                let from = topology.link(link).from;
                let port = topology.outgoing_links(from).iter().position(|&out| out == link);
                (from.index(), port.expect("the outgoing links of a node include each link from it"))
            };
            let [.., a, b] = (first / 2).to_be_bytes();
            // Locally administered, by the first byte 02.
            let mac = [0x02, 0x57, 0x45, 0x52, a, b];
            Cable { ends: [end(LinkId(first)), end(LinkId(first + 1))], mac }
        });
        let min_link_rate =
            topology.links().iter().map(|link| link.rate).fold(max_rate, |a, b| if b < a { b } else { a });
        Ok(Plan { cables: cables.collect(), name, nodes, min_link_rate })
    }

    /// A host's node, by its number in the topology.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }
}

fn address(topology: &Topology, id: NodeId) -> Ipv4Addr {
    let (net, number) = match id.index().checked_sub(topology.hosts()) {
        None => (0, id.index() + 1),
        Some(switch) => (1, switch + 1),
    };
    // Below 65,536, since there are at most `MAX_NODES`.
    Ipv4Addr::new(10, net, (number >> 8) as u8, number as u8)
}

fn node(bed: &BedName, routes: &mut Routes, id: NodeId) -> Result<Node, PlanError> {
    let topology = routes.topology();
    let name = topology.name(id).to_owned();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !name.chars().all(is_allowed) {
        return Err(PlanError::NodeName(name));
    }
    let outgoing_links = topology.outgoing_links(id).to_vec();
    let ports = outgoing_links.iter().enumerate().map(|(number, &link)| Port {
        interface: format!("eth{number}"),
        link,
        rate: topology.link(link).rate,
    });
    let (is_switch, own_address, hosts) =
        (!topology.is_host(id), address(topology, id), topology.hosts() as u32);
    let ports = ports.collect();
    let addresses: Vec<Ipv4Addr> = (0..hosts).map(|host| address(topology, NodeId(host))).collect();
    let mut route_table = Vec::new();
    let mut hops = Vec::new();
    for (to, &address) in (0..hosts).map(NodeId).zip(&addresses) {
        routes.compute_next_hops(id, to, &mut hops);
        let port = |link: &LinkId| {
            outgoing_links
                .iter()
                .position(|o| o == link)
                .expect("`Routes::compute_next_hops` yields outgoing links of the node")
        };
        let ports: Vec<usize> = hops.iter().map(port).collect();
        // The list is empty for the host itself, and for a host that the node cannot reach.
        if !ports.is_empty() {
            route_table.push(Route { destination: Some(address), ports });
        }
    }
    // A host with the same ports to all hosts, such as one with one cable, needs only a default route.
    if !is_switch && route_table.windows(2).all(|pair| pair[0].ports == pair[1].ports) {
        route_table.truncate(1);
        route_table.iter_mut().for_each(|route| route.destination = None);
    }
    let namespace = format!("{}{name}", bed.namespace_prefix());
    Ok(Node { name, namespace, address: own_address, is_switch, ports, routes: route_table })
}
