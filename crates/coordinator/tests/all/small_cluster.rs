//! A control plane with four hosts, for tests.

use std::net::Ipv4Addr;

use weir_coordinator::control_plane::{ControlPlane, FlowKey, Link, Registration, Settings, Transfer};
use weir_core::model::ServiceNames;
use weir_core::policy::build;
use weir_core::units::{Bytes, Rate};

pub const LINK_RATE: f64 = 1e6;
pub const HOSTS: u32 = 4;
pub const INTERVAL: f64 = 0.008;

pub fn equal_links() -> Vec<Link> {
    let rate = Rate::new(LINK_RATE).unwrap();
    vec![Link { send: rate, recv: rate }; HOSTS as usize]
}

pub fn control_plane(policy: &str, epoch: u64) -> ControlPlane {
    ControlPlane::new(
        &equal_links(),
        build(policy).unwrap(),
        ServiceNames::default(),
        Settings::default(),
        epoch,
    )
    .unwrap()
}

/// A control plane with UDP throttling, and one address for each host.
pub fn throttling_plane(policy: &str, epoch: u64) -> ControlPlane {
    control_plane(policy, epoch).with_throttling((0..HOSTS).map(|host| (address(host), host)).collect())
}

/// Address of a host: 10.0.0.0 plus its number.
pub fn address(host: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + host)
}

pub fn registration(flows: &[(u32, u32, f64)]) -> Registration {
    let flow = |&(src, dst, bytes): &(u32, u32, f64)| Transfer { src, dst, bytes: Bytes::new(bytes) };
    Registration {
        service: ServiceNames::DEFAULT.to_owned(),
        application: ServiceNames::DEFAULT.to_owned(),
        weight: 1.0,
        deadline: None,
        flows: flows.iter().map(flow).collect(),
    }
}

pub fn flow_key(coflow: &str, flow: u32) -> FlowKey {
    FlowKey { coflow: coflow.into(), flow }
}
