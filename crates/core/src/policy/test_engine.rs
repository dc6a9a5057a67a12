//! Engines for tests of policies.

use crate::engine::{Engine, Links};
use crate::model::{CoflowSpec, Fabric, FlowSpec, ServiceNames, Slot};
use crate::policy::build;
use crate::units::{Bytes, Rate, Time};

/// Ports of 1 byte/s without coflows.
pub(super) fn engine(policy: &str, ports: u32) -> Engine {
    engine_at_rate(policy, ports, 1.0)
}

/// The unit of tests of policies whose levels follow from the rates of links: on ports of 1 GB/s, levels and turns end long before the
/// seconds of these tests.
pub(super) const GB: f64 = 1e9;

/// Ports of 1 GB/s without coflows.
pub(super) fn fast_engine(policy: &str, ports: u32) -> Engine {
    engine_at_rate(policy, ports, GB)
}

fn engine_at_rate(policy: &str, ports: u32, rate: f64) -> Engine {
    let fabric = Fabric::big_switch(ports, Rate::new(rate).unwrap());
    Engine::new(Links::one_switch(fabric), build(policy).unwrap(), &ServiceNames::default()).unwrap()
}

/// Releases a coflow of flows (src, dst, bytes).
pub(super) fn release(engine: &mut Engine, id: u64, flows: &[(u32, u32, f64)], now: f64) -> Slot {
    let flow = |&(src, dst, bytes): &(u32, u32, f64)| FlowSpec::new(src, dst, Bytes::new(bytes).unwrap());
    let spec = CoflowSpec::new(id, Time::new(now).unwrap(), flows.iter().map(flow).collect());
    engine.release_coflow(&spec, id as usize, now, &mut Vec::new())
}

/// Releases a coflow of flows (src, dst, GB).
pub(super) fn release_gb(engine: &mut Engine, id: u64, flows: &[(u32, u32, f64)], now: f64) -> Slot {
    let flows: Vec<_> = flows.iter().map(|&(src, dst, size)| (src, dst, size * GB)).collect();
    release(engine, id, &flows, now)
}

/// The rates of a coflow's flows, in GB/s.
pub(super) fn rates_gb(engine: &Engine, slot: Slot) -> Vec<f64> {
    rates(engine, slot).into_iter().map(|rate| rate / GB).collect()
}

/// The rates of a coflow's flows.
pub(super) fn rates(engine: &Engine, slot: Slot) -> Vec<f64> {
    let network = engine.network();
    (0..network.coflow(slot).width() as u32).map(|flow| network.rate(slot, flow)).collect()
}
