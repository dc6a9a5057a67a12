//! A control plane with four hosts, for tests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_coordinator::control_plane::{
    ControlPlane, FlowKey, Link, NetworkLinks, Registration, Settings, Transfer,
};
use weir_core::model::{ServiceNames, Topology, TopologyTemplate};
use weir_core::policy::build;
use weir_core::units::{Bytes, Rate};

pub const LINK_RATE: f64 = 1e6;
pub const HOSTS: u32 = 4;
pub const INTERVAL: f64 = 0.008;

pub fn equal_links() -> NetworkLinks {
    let rate = Rate::new(LINK_RATE).unwrap();
    NetworkLinks::one_switch(&[Link { send: rate, recv: rate }; HOSTS as usize])
}

/// The four hosts under two leaves and two spines. The two uplinks of a leaf together carry as much as one host.
pub fn oversubscribed_links() -> NetworkLinks {
    let rate = Rate::new(LINK_RATE).unwrap();
    let fabric = TopologyTemplate::LeafSpine { spines: 2, leaves: 2, hosts: 2, rate, oversubscription: 2.0 };
    links_of(&fabric.build().unwrap())
}

/// The links of a topology whose hosts have one cable of [`LINK_RATE`] each.
pub fn links_of(topology: &Topology) -> NetworkLinks {
    let rate = Rate::new(LINK_RATE).unwrap();
    NetworkLinks::with_topology(&vec![Link { send: rate, recv: rate }; topology.hosts()], topology.clone())
}

pub fn control_plane(policy: &str, epoch: u64) -> ControlPlane {
    plane_over(equal_links(), policy, epoch)
}

pub fn plane_over(links: NetworkLinks, policy: &str, epoch: u64) -> ControlPlane {
    ControlPlane::new(links, build(policy).unwrap(), ServiceNames::default(), Settings::default(), epoch)
        .unwrap()
}

/// A control plane with UDP throttling, and an IPv4 and an IPv6 address for each host.
pub fn throttling_plane(links: NetworkLinks, policy: &str, epoch: u64) -> ControlPlane {
    let addresses = (0..HOSTS).flat_map(|host| [(address(host).into(), host), (ipv6_address(host), host)]);
    plane_over(links, policy, epoch).with_throttling(addresses.collect())
}

/// Address of a host: 10.0.0.0 plus its number.
pub fn address(host: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + host)
}

/// IPv6 address of a host: fd00:: plus its number.
pub fn ipv6_address(host: u32) -> IpAddr {
    Ipv6Addr::from(0xfd00 << 112 | u128::from(host)).into()
}

pub fn registration(flows: &[(u32, u32, f64)]) -> Registration {
    let flow = |&(src, dst, bytes): &(u32, u32, f64)| Transfer { src, dst, bytes: Bytes::new(bytes) };
    Registration {
        generation: 1,
        service: ServiceNames::DEFAULT.to_owned(),
        application: ServiceNames::DEFAULT.to_owned(),
        weight: 1.0,
        deadline: None,
        flows: flows.iter().map(flow).collect(),
    }
}

pub fn flow_key(coflow: &str, flow: u32) -> FlowKey {
    FlowKey { coflow: coflow.into(), generation: 1, flow }
}
