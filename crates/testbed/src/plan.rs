//! Computes the nodes, addresses and routes of a bed from a topology, without changing the system.
//!
//! Each node has one address, on its loopback interface. Cables need no addresses, since routes name the interface. Both ends of a cable
//! have the same hardware address, and ARP is off: no ARP request can be lost in a full queue, and the first packet is not delayed.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use weir_core::model::{LinkId, NodeId, Routes, Topology};
use weir_core::units::Rate;

/// The name of a bed, whose namespaces are named `weir-NAME-...`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// The maximum length, in bytes.
    pub const MAX: usize = 32;

    /// The prefix of the names of this bed's namespaces.
    pub fn prefix(&self) -> String {
        format!("{FAMILY}{}-", self.0)
    }

    /// The name of the bed that a namespace belongs to; none if it belongs to none.
    pub fn of_namespace(namespace: &str) -> Option<Name> {
        namespace.strip_prefix(FAMILY)?.split_once('-')?.0.parse().ok()
    }
}

/// The prefix of the namespaces of all beds.
const FAMILY: &str = "weir-";

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if (1..=Name::MAX).contains(&text.len()) && text.chars().all(plain) {
            return Ok(Name(text.to_owned()));
        }
        Err(format!("`{text}` is no name of a bed: expected 1 to {} letters, digits or `_`", Name::MAX))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a topology cannot become a bed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// There are more nodes than [`Plan::MAX_NODES`].
    #[error("{0} hosts and switches: expected at most {most} on one machine", most = Plan::MAX_NODES)]
    Nodes(usize),
    /// The name of a node contains characters that are not allowed in a namespace's name.
    #[error("a node is named `{0}`: on a bed, expected letters, digits, `.`, `_` and `-` only")]
    Node(String),
    /// The rate of a link is outside the range that Linux can shape.
    #[error("the link from `{from}` to `{to}` has rate {rate}: on a bed, expected {min} to {max}",
        min = Plan::rates().0, max = Plan::rates().1)]
    Rate {
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
    pub to: Option<Ipv4Addr>,
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
    pub name: Name,
    /// Hosts, then switches, by their numbers in the topology.
    pub nodes: Vec<Node>,
    /// By their numbers in the topology.
    pub cables: Vec<Cable>,
    /// The rate of the slowest link.
    pub slowest: Rate,
}

impl Plan {
    /// The maximum number of hosts and switches. Each is a network namespace with separate tables.
    pub const MAX_NODES: usize = 1_000;

    /// The next hop of all routes. It is never on the wire: with ARP off, no host asks for it.
    pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 1);

    /// The minimum and maximum rate of a link. At the minimum, a frame takes a second and a half.
    fn rates() -> (Rate, Rate) {
        let rate = |bits: f64| Rate::new(bits / 8.0).expect("8 kbit/s and 100 Gbit/s are valid rates");
        (rate(8e3), rate(1e11))
    }

    /// Plans a bed of this topology. O(nodes x hosts x ports of a node).
    ///
    /// # Errors
    /// If the topology is too large, or a name or rate is not allowed.
    pub fn new(name: Name, topology: &Topology) -> Result<Plan, PlanError> {
        if topology.nodes() > Plan::MAX_NODES {
            return Err(PlanError::Nodes(topology.nodes()));
        }
        let (least, most) = Plan::rates();
        for link in topology.links() {
            if !(least..=most).contains(&link.rate) {
                let name = |node| topology.name(node).to_owned();
                return Err(PlanError::Rate { from: name(link.from), to: name(link.to), rate: link.rate });
            }
        }
        let mut routes = Routes::new(topology.clone(), 0);
        let nodes = (0..topology.nodes() as u32).map(NodeId);
        let nodes = nodes.map(|id| node(&name, &mut routes, id)).collect::<Result<Vec<Node>, PlanError>>()?;
        let cables = (0..topology.links().len() as u32).step_by(2).map(|first| {
            let end = |link: LinkId| {
                let from = topology.link(link).from;
                let port = topology.out(from).iter().position(|&out| out == link);
                (from.index(), port.expect("the links out of a node have those that begin there"))
            };
            let [.., a, b] = (first / 2).to_be_bytes();
            // Locally administered, by the first byte 02.
            let mac = [0x02, 0x57, 0x45, 0x52, a, b];
            Cable { ends: [end(LinkId(first)), end(LinkId(first + 1))], mac }
        });
        let slowest =
            topology.links().iter().map(|link| link.rate).fold(most, |a, b| if b < a { b } else { a });
        Ok(Plan { cables: cables.collect(), name, nodes, slowest })
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

fn node(bed: &Name, routes: &mut Routes, id: NodeId) -> Result<Node, PlanError> {
    let topology = routes.topology();
    let name = topology.name(id).to_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !name.chars().all(plain) {
        return Err(PlanError::Node(name));
    }
    let out = topology.out(id).to_vec();
    let ports = out.iter().enumerate().map(|(number, &link)| Port {
        interface: format!("eth{number}"),
        link,
        rate: topology.link(link).rate,
    });
    let (is_switch, own, hosts) = (!topology.is_host(id), address(topology, id), topology.hosts() as u32);
    let ports = ports.collect();
    let addresses: Vec<Ipv4Addr> = (0..hosts).map(|host| address(topology, NodeId(host))).collect();
    let mut table = Vec::new();
    let mut hops = Vec::new();
    for (to, &address) in (0..hosts).map(NodeId).zip(&addresses) {
        routes.hops(id, to, &mut hops);
        let port = |link: &LinkId| {
            out.iter().position(|o| o == link).expect("`Routes::hops` yields links out of the node")
        };
        let ports: Vec<usize> = hops.iter().map(port).collect();
        // The list is empty for the host itself, and for a host that the node cannot reach.
        if !ports.is_empty() {
            table.push(Route { to: Some(address), ports });
        }
    }
    // A host with the same ports to all hosts, such as one with one cable, needs only a default route.
    if !is_switch && table.windows(2).all(|pair| pair[0].ports == pair[1].ports) {
        table.truncate(1);
        table.iter_mut().for_each(|route| route.to = None);
    }
    let namespace = format!("{}{name}", bed.prefix());
    Ok(Node { name, namespace, address: own, is_switch, ports, routes: table })
}
