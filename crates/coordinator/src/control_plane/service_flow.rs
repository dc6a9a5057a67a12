//! The flows that the allocator limits.

use std::net::IpAddr;
use std::sync::Arc;

use weir_proto::{Demand, UdpFlow};

/// Maximum number of flows in total, of connections and of UDP each; flows beyond it have no limit. Schedules and leases wait for the
/// computation, so it may take a few intervals at most.
pub(super) const MAX_FLOWS: usize = 1 << 14;

/// An application, and the address of the other host.
pub(super) type Peer = (Arc<str>, IpAddr);

/// What a limit applies to.
pub(super) enum LimitedTraffic {
    /// All connections of an application with another host.
    Connections(Peer),
    Udp(UdpFlow),
}

/// Traffic of a service from one host to another.
pub(super) struct ServiceFlow {
    pub host: u32,
    pub traffic: LimitedTraffic,
    pub service: usize,
    /// Positions in [`super::NetworkLinks::capacities`], and maxima of the service by [`super::service_division::MaximumLinks`]; each once.
    pub links: Vec<u32>,
    /// Its weight next to other flows of the service; above 0.
    pub weight: u32,
    pub demand: Demand,
    /// The maximum of the flow by itself, in bytes per second.
    pub max_rate: f64,
    /// The highest rate that it may have without a measured demand, by the maxima that are not among its links.
    pub max_lower_bound: f64,
}

impl ServiceFlow {
    /// The demand in bytes per second; infinite if it is unlimited.
    pub fn demand_rate(&self) -> f64 {
        match self.demand {
            Demand::Rate(rate) => rate as f64,
            Demand::Unlimited | Demand::Unknown => f64::INFINITY,
        }
    }
}
