//! Reports of connections and of UDP, and the limits that follow, for tests of the allocator.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_coordinator::control_plane::{
    ControlPlane, Demand, Mark, ObservedConnections, Report, UdpFlow, UdpLimit, UdpMeasurement,
};

use crate::small_cluster::address;

/// A service, whose application `s0` belongs to the first one, and so on; its sender and receiver, and its demand.
pub type ReportedFlow = (usize, u32, u32, Demand);

/// All hosts report, with these flows as their only observed connections. Returns the limits of the next orders in bytes per second.
pub fn report_flows(
    plane: &mut ControlPlane,
    flows: &[ReportedFlow],
    now: f64,
) -> BTreeMap<(u32, Arc<str>, IpAddr), u64> {
    for (host, status) in (0..).zip(plane.host_statuses()) {
        let of_host = flows.iter().filter(|(_, from, ..)| *from == host);
        let observed = of_host.map(|&(service, _, to, demand)| ObservedConnections {
            application: format!("s{service}").into(),
            peer: address(to).into(),
            open_connections: 1,
            sent_bytes: 1,
            demand,
        });
        let observed = observed.collect();
        plane.clear_observed(host);
        plane.report(host, &Report { applied: (1, status.ordered_seq), observed, ..Report::default() }, now);
    }
    plane.tick(now);
    plane.limits()
}

/// A measurement of UDP with this mark, from one host to another, in bytes per second.
pub fn udp(mark: u8, from: u32, to: u32, rate: u64) -> UdpMeasurement {
    let flow = UdpFlow { src: address(from).into(), dst: address(to).into(), mark: Mark::new(mark).unwrap() };
    UdpMeasurement { flow, rate }
}

/// All hosts confirm their orders, and senders report these measurements. Returns the limits of UDP in the next orders, by host.
pub fn report_udp(
    plane: &mut ControlPlane,
    measurements: &[UdpMeasurement],
    now: f64,
) -> Vec<(u32, UdpLimit)> {
    for (host, status) in (0..).zip(plane.host_statuses()) {
        let of_host = measurements.iter().filter(|measurement| measurement.flow.src == address(host));
        let udp_measurements = of_host.copied().collect();
        let applied = (1, status.ordered_seq);
        plane.report(host, &Report { applied, udp_measurements, ..Report::default() }, now);
    }
    let orders = plane.tick(now).into_iter();
    orders.flat_map(|(host, order)| order.udp_limits.into_iter().map(move |limit| (host, limit))).collect()
}
