//! The network in which relays are measured: a source, an ingress relay, an egress relay and a sink, one namespace each.
//!
//! ```text
//! source 10.9.0.2 --- 10.9.0.1 ingress 10.9.1.1 === link === 10.9.1.2 egress 10.9.2.1 --- 10.9.2.2 sink
//! ```
//!
//! The sink has an address for each peer of the ingress relay, 10.9.10.1 and up. All peers are at the egress node.

use std::net::{Ipv4Addr, SocketAddrV4};

use weir_core::units::Rate;
use weir_testbed::network::{CableEnd, Network};

use crate::delay_line::{End, PathSettings, set_long_path_options};
use crate::{DelayLine, LabError};

/// The node of the sending programs.
pub const SOURCE: &str = "source";
/// The node of the ingress relay.
pub const INGRESS: &str = "ingress";
/// The node of the egress relays.
pub const EGRESS: &str = "egress";
/// The node of the receiving programs.
pub const SINK: &str = "sink";

/// The ingress relay's address for programs.
pub const INGRESS_LAN: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
/// The ingress relay's address for other relays.
pub const INGRESS_WAN: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 1);
/// The egress relays' address for other relays.
pub const EGRESS_WAN: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 2);
/// The egress relays' address for programs.
pub const EGRESS_LAN: Ipv4Addr = Ipv4Addr::new(10, 9, 2, 1);
const SOURCE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const SINK_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 2, 2);

/// The maximum number of egress relays.
pub const MAX_PEERS: u8 = 64;

/// The routes of each node, which carry the congestion control of its connections: those of connections between a program and a relay,
/// and those of connections across the link.
const ROUTES: [(&str, &[&str], &[&str]); 4] = [
    (SOURCE, &["10.9.0.0/24 dev lan"], &["default via 10.9.0.1"]),
    (INGRESS, &["10.9.0.0/24 dev lan"], &["10.9.1.0/24 dev wan", "default via 10.9.1.2"]),
    (
        EGRESS,
        &["10.9.2.0/24 dev lan", "default via 10.9.2.2"],
        &["10.9.1.0/24 dev wan", "10.9.0.0/24 via 10.9.1.1"],
    ),
    (SINK, &["10.9.2.0/24 dev lan"], &["default via 10.9.2.1"]),
];

/// The congestion control of connections between a program and a relay.
const LOCAL_CONGESTION_CONTROL: &str = "cubic";

/// The queue of a link with a rate: a link to another region with a buffer of moderate size.
const QUEUE: &str = "10ms";

/// The link between the relays.
#[derive(Debug, Clone, PartialEq)]
pub enum Link {
    /// As fast as the processors.
    Unlimited,
    /// A rate without delay, and a queue of 10 ms.
    Rate(Rate),
    /// A delay line with the same settings in both directions, except for the seed.
    DelayLine(PathSettings),
}

/// The network. Dropping the value removes it.
#[derive(Debug)]
pub struct Chain {
    /// Stopped before the network is removed.
    _line: Option<DelayLine>,
    network: Network,
    peers: u8,
}

impl Chain {
    /// Creates the network for a number of egress relays, from 1 to [`MAX_PEERS`].
    ///
    /// # Errors
    /// If the network cannot be created.
    pub fn create(name: &str, link: &Link, peers: u8) -> Result<Chain, LabError> {
        assert!((1..=MAX_PEERS).contains(&peers), "the number of peers is checked by the caller");
        let network = Network::create(name, &[SOURCE, INGRESS, EGRESS, SINK])?;
        let end = |node, interface, address| CableEnd { node, interface, address, prefix: 24 };
        network.add_cable([end(SOURCE, "lan", SOURCE_ADDRESS), end(INGRESS, "lan", INGRESS_LAN)])?;
        network.add_cable([end(EGRESS, "lan", EGRESS_LAN), end(SINK, "lan", SINK_ADDRESS)])?;
        let wan = [end(INGRESS, "wan", INGRESS_WAN), end(EGRESS, "wan", EGRESS_WAN)];
        let line = add_link(&network, wan, link)?;
        for peer in 0..peers {
            network.run_ip(SINK, &format!("addr add {}/32 dev lo\n", sink_address(peer)))?;
        }
        Ok(Chain { _line: line, network, peers })
    }

    /// The namespaces.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The number of egress relays.
    pub fn peers(&self) -> u8 {
        self.peers
    }

    /// Sets the congestion control of new connections across the link; none leaves it to the programs.
    ///
    /// # Errors
    /// If the kernel does not support it.
    pub fn set_congestion_control(&self, name: Option<&str>) -> Result<(), LabError> {
        for (node, local, across) in ROUTES {
            let local = local
                .iter()
                .map(|route| format!("route replace {route} congctl {LOCAL_CONGESTION_CONTROL}\n"));
            let across = across.iter().map(|route| match name {
                Some(name) => format!("route replace {route} congctl {name}\n"),
                None => format!("route replace {route}\n"),
            });
            self.network.run_ip(node, &local.chain(across).collect::<String>())?;
        }
        Ok(())
    }
}

fn add_link(network: &Network, wan: [CableEnd<'_>; 2], link: &Link) -> Result<Option<DelayLine>, LabError> {
    if let Link::DelayLine(path) = link {
        let [first, second] = wan.map(|end| End {
            namespace: network.namespace(end.node),
            device: end.interface.to_owned(),
            address: end.address,
            prefix: end.prefix,
        });
        let back = PathSettings { seed: path.seed.wrapping_add(1), ..path.clone() };
        for node in [SOURCE, INGRESS, EGRESS, SINK] {
            set_long_path_options(network, node)?;
        }
        return DelayLine::start([&first, &second], [path.clone(), back]).map(Some);
    }
    network.add_cable(wan)?;
    if let Link::Rate(rate) = link {
        let bits = rate.get() * 8.0;
        for node in [INGRESS, EGRESS] {
            let line =
                format!("qdisc replace dev wan root tbf rate {bits:.0}bit burst 128kb latency {QUEUE}\n");
            network.run_tc(node, &line)?;
        }
    }
    Ok(None)
}

/// The address of the receivers behind an egress relay.
pub fn sink_address(peer: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 10 + peer, 1)
}

/// The address of a receiver behind an egress relay.
pub fn receiver(peer: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(sink_address(peer), port)
}
