//! Demands of UDP for the allocator (NetShare, section 3.3): "unresponsive flows".
//!
//! Agents measure what programs send before any limit, so a measured rate is offered traffic, and the least-squares prediction of the paper
//! is the demand. UDP of one service between two addresses is one flow.

use std::collections::BTreeMap;

use weir_core::netshare::DemandPredictor;
use weir_core::units::Rate;
use weir_proto::{MAX_UDP_FLOWS, UdpFlow, UdpMeasurement};

use super::ControlPlane;
use super::service_flow::MAX_FLOWS;

/// Time after the last measurement of a flow after which it has no demand, in seconds: as long as agents keep a limit.
const DEMAND_LIFETIME: f64 = 1.0;

/// The measurements of a flow.
#[derive(Debug)]
struct UdpDemand {
    predictor: DemandPredictor,
    measured_at: f64,
}

/// The measurements of all flows, by sending host.
#[derive(Debug, Default)]
pub(super) struct UdpDemands {
    by_host: BTreeMap<u32, BTreeMap<UdpFlow, UdpDemand>>,
    flow_count: usize,
}

impl UdpDemands {
    /// Stores a measurement. Returns `false` if a maximum number of flows is reached.
    fn store(&mut self, host: u32, &UdpMeasurement { flow, rate }: &UdpMeasurement, now: f64) -> bool {
        let of_host = self.by_host.entry(host).or_default();
        if !of_host.contains_key(&flow) {
            if of_host.len() == MAX_UDP_FLOWS || self.flow_count == MAX_FLOWS {
                return false;
            }
            self.flow_count += 1;
        }
        let new_demand = || UdpDemand { predictor: DemandPredictor::new(), measured_at: now };
        let demand = of_host.entry(flow).or_insert_with(new_demand);
        demand.measured_at = now;
        let rate = Rate::new(rate as f64).expect("a whole number is a finite rate, not negative");
        demand.predictor.add_measurement(rate);
        true
    }

    /// Removes flows without a recent measurement.
    pub fn remove_outdated(&mut self, now: f64) {
        for of_host in self.by_host.values_mut() {
            of_host.retain(|_, demand| now - demand.measured_at <= DEMAND_LIFETIME);
        }
        self.by_host.retain(|_, of_host| !of_host.is_empty());
        self.flow_count = self.by_host.values().map(BTreeMap::len).sum();
    }

    /// Removes all flows of a host.
    pub fn remove_host(&mut self, host: u32) {
        let removed = self.by_host.remove(&host);
        self.flow_count -= removed.map_or(0, |of_host| of_host.len());
    }

    /// The sending host, the flow and its demand in bytes per second, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (u32, UdpFlow, u64)> {
        self.by_host.iter().flat_map(|(&host, of_host)| {
            of_host.iter().filter_map(move |(&flow, demand)| {
                Some((host, flow, demand.predictor.predict_rate()?.get() as u64))
            })
        })
    }
}

impl ControlPlane {
    /// Number of limits of UDP in orders since the start.
    pub fn ordered_udp_limits(&self) -> u64 {
        self.ordered_udp_limits
    }

    /// Checks the UDP measurements of a sender and stores them as demands. A host's measurements are accepted for its own addresses.
    /// Multicast, and UDP to addresses that are not in the configuration, has no limit.
    pub(super) fn store_udp_demands(&mut self, host: u32, measurements: &[UdpMeasurement]) {
        let Some(allocator) = &mut self.allocator else { return };
        for measurement in measurements {
            let UdpFlow { src, dst, .. } = measurement.flow;
            if self.addresses.owner_of(src) != Some(host) {
                self.rejected_entries.foreign_flow += 1;
            } else if self.addresses.owner_of(dst).is_some()
                && !allocator.udp_demands.store(host, measurement, self.now)
            {
                self.rejected_entries.too_many += 1;
            }
        }
    }
}
