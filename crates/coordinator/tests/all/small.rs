//! A control plane with four hosts, for tests.

use std::net::Ipv4Addr;

use weir_coordinator::plane::{ControlPlane, FlowKey, Link, Registration, Settings, Transfer};
use weir_core::model::Names;
use weir_core::policy::build;
use weir_core::units::{Bytes, Rate};

pub const LINE: f64 = 1e6;
pub const HOSTS: u32 = 4;
pub const STEP: f64 = 0.008;

pub fn links() -> Vec<Link> {
    let rate = Rate::new(LINE).unwrap();
    vec![Link { send: rate, recv: rate }; HOSTS as usize]
}

pub fn plane(policy: &str, epoch: u64) -> ControlPlane {
    ControlPlane::new(&links(), build(policy).unwrap(), Names::default(), Settings::default(), epoch).unwrap()
}

/// A control plane with UDP throttling, and one address for each host.
pub fn throttling(policy: &str, epoch: u64) -> ControlPlane {
    plane(policy, epoch).with_throttling((0..HOSTS).map(|host| (address(host), host)).collect())
}

/// Address of a host: 10.0.0.0 plus its number.
pub fn address(host: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + host)
}

pub fn registration(flows: &[(u32, u32, f64)]) -> Registration {
    let flow = |&(src, dst, bytes): &(u32, u32, f64)| Transfer { src, dst, bytes: Bytes::new(bytes) };
    Registration {
        service: Names::DEFAULT.to_owned(),
        application: Names::DEFAULT.to_owned(),
        weight: 1.0,
        deadline: None,
        flows: flows.iter().map(flow).collect(),
    }
}

pub fn key(coflow: &str, flow: u32) -> FlowKey {
    FlowKey { coflow: coflow.into(), flow }
}
