//! What a bed will have: pure, from a topology alone.
//!
//! Cables need no addresses of their own. Every node has one address, on its loopback interface, and routes name the
//! interface. Both ends of a cable have one hardware address and do not ask for that of the other (ARP is off), so no question is
//! lost in a full queue, and the first packet is as fast as the others.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use weir_core::model::{LinkId, NodeId, Routes, Topology};
use weir_core::units::Rate;

/// The name of a bed: all its namespaces begin with `weir-NAME-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// The longest, in bytes.
    pub const MAX: usize = 32;

    /// What the names of this bed's namespaces begin with.
    pub fn prefix(&self) -> String {
        format!("{FAMILY}{}-", self.0)
    }

    /// The bed that a namespace is of, if it is of one.
    pub fn of_namespace(namespace: &str) -> Option<Name> {
        namespace.strip_prefix(FAMILY)?.split_once('-')?.0.parse().ok()
    }
}

/// What the names of all namespaces of all beds begin with.
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

/// Why a topology cannot be a bed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// There are more nodes than a machine should carry.
    #[error("{0} hosts and switches: expected at most {most} on one machine", most = Plan::MAX_NODES)]
    Nodes(usize),
    /// A node's name cannot be that of a namespace.
    #[error("a node is named `{0}`: on a bed, expected letters, digits, `.`, `_` and `-` only")]
    Node(String),
    /// A link that Linux cannot shape.
    #[error("the link from `{from}` to `{to}` has rate {rate}: on a bed, expected {min} to {max}",
        min = Plan::rates().0, max = Plan::rates().1)]
    Rate {
        /// Where it begins.
        from: String,
        /// Where it ends.
        to: String,
        /// Its rate.
        rate: Rate,
    },
}

/// One end of a cable: an interface of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// The interface's name: `eth0`, `eth1` and so on, in order of the topology's cables.
    pub interface: String,
    /// The link that leaves here.
    pub link: LinkId,
    /// What it carries.
    pub rate: Rate,
}

/// Where packets go.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// The host that they go to; none if it is all the same.
    pub to: Option<Ipv4Addr>,
    /// Positions of the ports that lead there on shortest paths. Connections spread over them by hash.
    pub ports: Vec<usize>,
}

/// A host or a switch.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its name in the topology.
    pub name: String,
    /// Its network namespace.
    pub namespace: String,
    /// Its address: 10.0.0.1 and so on for hosts, 10.1.0.1 and so on for switches, in the topology's order.
    pub address: Ipv4Addr,
    /// Whether it forwards.
    pub is_switch: bool,
    /// Its ends of cables.
    pub ports: Vec<Port>,
    /// Where it sends what is not for itself.
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

/// What a bed will have.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The bed's name.
    pub name: Name,
    /// Hosts, then switches, by their numbers in the topology.
    pub nodes: Vec<Node>,
    /// By their numbers in the topology.
    pub cables: Vec<Cable>,
    /// The rate of the slowest link.
    pub slowest: Rate,
}

impl Plan {
    /// The most hosts and switches together. Each is a namespace of the kernel, with its own tables.
    pub const MAX_NODES: usize = 1_000;

    /// Where packets leave to, whatever the cable. Never on the wire: with ARP off nobody asks for it.
    pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 1);

    /// The slowest link, over which a frame takes a second and a half, and the fastest.
    fn rates() -> (Rate, Rate) {
        let rate = |bits: f64| Rate::new(bits / 8.0).expect("8 kbit/s and 100 Gbit/s are valid rates");
        (rate(8e3), rate(1e11))
    }

    /// What a bed of this topology has. O(nodes x hosts x ports of a node).
    ///
    /// # Errors
    /// If it is too large, or has a name or a rate that a bed cannot have.
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
            // Locally administered, as 02 at the beginning says.
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
        // None at the host itself; from a switch in a part of its own, none at all.
        if !ports.is_empty() {
            table.push(Route { to: Some(address), ports });
        }
    }
    // A host with one cable, mostly.
    if !is_switch && table.windows(2).all(|pair| pair[0].ports == pair[1].ports) {
        table.truncate(1);
        table.iter_mut().for_each(|route| route.to = None);
    }
    let namespace = format!("{}{name}", bed.prefix());
    Ok(Node { name, namespace, address: own, is_switch, ports, routes: table })
}
