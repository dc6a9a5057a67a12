//! Tests of minimum and maximum bandwidths of services, of services that share a queue, and of weights of connections, as limits of the
//! control plane.

use std::sync::Arc;

use weir_coordinator::control_plane::{
    ControlPlane, Demand, FlowPeer, ServiceWeights, Settings, UdpControl, UdpMeasurement,
};
use weir_coordinator::service_bandwidth::ServiceBandwidth;
use weir_core::model::ServiceNames;
use weir_core::policy::build;
use weir_core::units::Rate;

use crate::reported_flows::{self, ReportedFlow, report_flows, report_udp};
use crate::small_cluster::{HOSTS, LINK_RATE, address, equal_links};

/// What services divide of each link, as a fraction: the shaped rate without the part of control.
const ALLOCATABLE: f64 = 0.99 * 0.99;

/// Time between two computations of limits.
const PERIOD: f64 = 0.06;

fn fraction(fraction: f64) -> Option<Rate> {
    Rate::new(fraction * LINK_RATE)
}

fn max(total: f64) -> ServiceBandwidth {
    ServiceBandwidth { max: fraction(total), ..ServiceBandwidth::default() }
}

fn max_per_host(rate: f64) -> ServiceBandwidth {
    ServiceBandwidth { max_per_host: fraction(rate), ..ServiceBandwidth::default() }
}

fn min(total: f64) -> ServiceBandwidth {
    ServiceBandwidth { min: fraction(total), ..ServiceBandwidth::default() }
}

/// What the control plane divides.
#[derive(Clone, Copy, PartialEq)]
enum Divided {
    Links,
    MaximaOnly,
}

fn plane(divided: Divided, services: ServiceWeights) -> ControlPlane {
    let plane = ControlPlane::new(
        equal_links(),
        build("fair").unwrap(),
        ServiceNames::default(),
        Settings::default(),
        1,
    )
    .unwrap();
    let addresses = (0..HOSTS).map(|host| (address(host).into(), host)).collect();
    let mut plane = match divided {
        Divided::Links => plane.with_allocation(addresses),
        Divided::MaximaOnly => plane.with_maxima(addresses),
    };
    plane.set_services(services);
    plane
}

/// Services with these weights; application `s0` belongs to the first service, and so on.
fn services(weights: &[f64], excess: Option<&[f64]>, bandwidths: &[ServiceBandwidth]) -> ServiceWeights {
    let service_of_application =
        (0..weights.len()).map(|service| (format!("s{service}").into(), service as u32)).collect();
    ServiceWeights::new(weights.to_vec(), excess, service_of_application)
        .unwrap()
        .with_bandwidths(bandwidths.to_vec())
}

/// A service, its sender and receiver, and its demand as a fraction of a link.
type Flow = (usize, u32, u32, Option<f64>);

/// Hosts report these flows. Returns the limit of each flow as a fraction of a link; infinite without one.
fn limits(plane: &mut ControlPlane, flows: &[Flow], now: f64) -> Vec<f64> {
    let to_reported = |&(service, from, to, demand): &Flow| {
        let demand = demand.map_or(Demand::Unlimited, |demand| Demand::Rate((demand * LINK_RATE) as u64));
        (service, from, to, demand)
    };
    let reported: Vec<ReportedFlow> = flows.iter().map(to_reported).collect();
    let limits = report_flows(plane, &reported, now);
    let limit_of = |&(service, from, to, _): &Flow| {
        let limit = limits.get(&(from, format!("s{service}").into(), address(to).into()));
        limit.map_or(f64::INFINITY, |&limit| limit as f64 / LINK_RATE)
    };
    flows.iter().map(limit_of).collect()
}

/// Limits are whole numbers of bytes per second.
fn assert_limits(found: &[f64], expected: &[f64]) {
    let is_near = |(a, b): (&f64, &f64)| a == b || (a - b).abs() <= 2.0 / LINK_RATE;
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(is_near),
        "{found:?}, not {expected:?}"
    );
}

#[test]
fn maximum_in_sum_is_divided_among_hosts_by_demand() {
    let mut plane = plane(Divided::MaximaOnly, services(&[1.0, 1.0], None, &[max(0.4)]));
    let flows = |demand| [(0, 0, 2, None), (0, 1, 3, demand), (1, 0, 1, None)];
    // The second service has no maximum, so it has no limit.
    assert_limits(&limits(&mut plane, &flows(None), 0.0), &[0.2, 0.2, f64::INFINITY]);
    // The second host demands a tenth. Its limit is its part of the maximum, so that it can grow; the first host uses the rest.
    assert_limits(&limits(&mut plane, &flows(Some(0.1)), PERIOD), &[0.3, 0.2, f64::INFINITY]);
    // A maximum above what hosts demand limits nothing below it.
    assert_limits(&limits(&mut plane, &[(0, 0, 2, Some(0.05))], 2.0 * PERIOD), &[0.4]);
}

#[test]
fn maximum_of_a_host_holds_for_sending_and_for_receiving() {
    let mut plane = plane(Divided::MaximaOnly, services(&[1.0], None, &[max_per_host(0.3)]));
    let mut limits_of = |flows: &[Flow], at: f64| limits(&mut plane, flows, at * PERIOD);
    assert_limits(&limits_of(&[(0, 0, 2, None), (0, 1, 3, None)], 0.0), &[0.3, 0.3]);
    assert_limits(&limits_of(&[(0, 0, 2, None), (0, 1, 2, None)], 1.0), &[0.15, 0.15]);
    assert_limits(&limits_of(&[(0, 0, 2, None), (0, 0, 3, None)], 2.0), &[0.15, 0.15]);
    // The second flow is limited at its receiver, so the first one uses the rest of its sender.
    let flows = [(0, 0, 2, None), (0, 0, 3, None), (0, 1, 3, None), (0, 2, 3, None)];
    assert_limits(&limits_of(&flows, 3.0), &[0.2, 0.1, 0.1, 0.1]);
}

#[test]
fn both_maxima_of_a_service_hold() {
    let both = ServiceBandwidth { max: fraction(0.5), ..max_per_host(0.3) };
    let mut plane = plane(Divided::MaximaOnly, services(&[1.0], None, &[both]));
    assert_limits(&limits(&mut plane, &[(0, 0, 2, None)], 0.0), &[0.3]);
    let flows = [(0, 0, 2, None), (0, 1, 3, None)];
    assert_limits(&limits(&mut plane, &flows, PERIOD), &[0.25, 0.25]);
}

#[test]
fn bandwidth_that_a_maximum_leaves_goes_to_other_services() {
    for excess in [None, Some(&[1.0, 1.0][..])] {
        let mut plane = plane(Divided::Links, services(&[1.0, 1.0], excess, &[max(0.2)]));
        let flows = [(0, 0, 2, None), (1, 0, 2, None)];
        assert_limits(&limits(&mut plane, &flows, 0.0), &[0.2, ALLOCATABLE - 0.2]);
        // The maximum is above what the link has for the service.
        let flows = [(0, 0, 2, None), (0, 1, 3, None)];
        assert_limits(&limits(&mut plane, &flows, PERIOD), &[0.1, 0.1]);
    }
}

#[test]
fn removed_maximum_ends_limits() {
    let mut plane = plane(Divided::MaximaOnly, services(&[1.0], None, &[max(0.4)]));
    assert_limits(&limits(&mut plane, &[(0, 0, 2, None)], 0.0), &[0.4]);
    plane.set_services(services(&[1.0], None, &[]));
    assert_limits(&limits(&mut plane, &[(0, 0, 2, None)], PERIOD), &[f64::INFINITY]);
}

#[test]
fn minimum_is_guaranteed_on_each_link_and_free_while_it_is_unused() {
    let mut plane = plane(Divided::Links, services(&[1.0, 9.0], None, &[min(0.5)]));
    let mut limits_of = |flows: &[Flow], at: f64| limits(&mut plane, flows, at * PERIOD);
    let rest = ALLOCATABLE - 0.5;
    assert_limits(&limits_of(&[(0, 0, 2, None), (1, 0, 2, None)], 0.0), &[0.5, rest]);
    // Two flows of the service at a receiver share its minimum.
    let flows = [(0, 0, 2, None), (0, 1, 2, None), (1, 3, 2, None)];
    assert_limits(&limits_of(&flows, 1.0), &[0.25, 0.25, rest]);
    // Unused bandwidth goes to the other service; the service can grow to its minimum at once.
    let flows = [(0, 0, 2, Some(0.1)), (1, 0, 2, None)];
    assert_limits(&limits_of(&flows, 2.0), &[0.5, ALLOCATABLE - 0.1]);
    assert_limits(&limits_of(&[(1, 0, 2, None)], 3.0), &[ALLOCATABLE]);
}

#[test]
fn minimum_below_the_weighted_share_changes_nothing() {
    for bandwidths in [vec![], vec![min(0.1)]] {
        let mut plane = plane(Divided::Links, services(&[1.0, 3.0], None, &bandwidths));
        let found = limits(&mut plane, &[(0, 0, 2, None), (1, 0, 2, None)], 0.0);
        assert_limits(&found, &[0.25 * ALLOCATABLE, 0.75 * ALLOCATABLE]);
    }
}

#[test]
fn minimum_of_idle_services_is_free_with_excess_weights() {
    // The first service has no part of unused bandwidth: it gets its guaranteed rate, which is the higher one of minimum and share.
    let excess = [0.0, 1.0, 1.0];
    let mut plane = plane(Divided::Links, services(&[1.0, 1.0, 2.0], Some(&excess), &[min(0.4)]));
    let found = limits(&mut plane, &[(0, 0, 2, None), (1, 0, 2, None)], 0.0);
    assert_limits(&found, &[0.4, ALLOCATABLE - 0.4]);
}

#[test]
fn weights_of_connections_divide_the_share_of_a_service() {
    let mut plane = plane(Divided::Links, services(&[1.0, 1.0], None, &[]));
    let key = |host: u32, to: u32| (host, Arc::from("s0"), FlowPeer::Host(to));
    let flows = [(0, 0, 2, None), (0, 1, 2, None), (1, 3, 2, None)];
    let mut at = 0.0;
    let mut assert_parts = |plane: &mut ControlPlane, parts: [f64; 2]| {
        let expected = [parts[0], parts[1], 0.5].map(|part| part * ALLOCATABLE);
        assert_limits(&limits(plane, &flows, at), &expected);
        at += PERIOD;
    };
    assert_parts(&mut plane, [0.25, 0.25]);
    plane.set_flow_weight(key(1, 2), Some(3000));
    assert_parts(&mut plane, [0.125, 0.375]);
    plane.set_flow_weight(key(0, 2), Some(500));
    plane.set_flow_weight(key(1, 2), Some(1500));
    assert_parts(&mut plane, [0.125, 0.375]);
    plane.set_flow_weight(key(0, 2), None);
    plane.set_flow_weight(key(1, 2), None);
    assert_parts(&mut plane, [0.25, 0.25]);
}

#[test]
fn weights_of_connections_keep_demands_and_maxima() {
    let mut plane = plane(Divided::MaximaOnly, services(&[1.0], None, &[max(0.4)]));
    plane.set_flow_weight((1, "s0".into(), FlowPeer::Host(3)), Some(3000));
    let flows = |demand| [(0, 0, 2, None), (0, 1, 3, demand)];
    assert_limits(&limits(&mut plane, &flows(None), 0.0), &[0.1, 0.3]);
    // The limit is the part of the flow by weight.
    assert_limits(&limits(&mut plane, &flows(Some(0.2)), PERIOD), &[0.2, 0.3]);
}

/// A measurement of UDP with this mark, as a fraction of a link.
fn udp(mark: u8, from: u32, to: u32, rate: f64) -> UdpMeasurement {
    reported_flows::udp(mark, from, to, (rate * LINK_RATE) as u64)
}

/// The limits of UDP in the next orders as fractions of a link, by source and mark.
fn udp_limits(plane: &mut ControlPlane, measured: &[UdpMeasurement], now: f64) -> Vec<(u32, u8, f64)> {
    let limits = report_udp(plane, measured, now).into_iter();
    limits.map(|(host, limit)| (host, limit.flow.mark.get(), limit.rate as f64 / LINK_RATE)).collect()
}

#[test]
fn udp_of_services_with_a_maximum_is_limited_without_throttling() {
    let mut plane = plane(Divided::MaximaOnly, services(&[1.0, 1.0], None, &[]));
    assert_eq!((plane.udp_control(), plane.wants_demands()), (None, false));
    plane.set_services(services(&[1.0, 1.0], None, &[max(0.4)]));
    assert_eq!((plane.udp_control(), plane.wants_demands()), (Some(UdpControl::Allocation), true));
    let measured = [udp(1, 0, 2, 0.9), udp(1, 1, 3, 0.9), udp(2, 0, 1, 0.9)];
    let found = udp_limits(&mut plane, &measured, 0.0);
    let places: Vec<_> = found.iter().map(|&(host, mark, _)| (host, mark)).collect();
    assert_eq!(places, [(0, 1), (1, 1)]);
    assert_limits(&found.iter().map(|limit| limit.2).collect::<Vec<_>>(), &[0.2, 0.2]);
}

#[test]
fn udp_in_a_class_of_several_services_has_no_limit_by_the_allocator() {
    let with_shared_class = services(&[1.0; 3], None, &[]).with_service_of_class(vec![Some(0), None]);
    let addresses = (0..HOSTS).map(|host| (address(host).into(), host)).collect();
    let mut plane = plane(Divided::Links, with_shared_class).with_throttling(addresses);
    let found = udp_limits(&mut plane, &[udp(1, 0, 2, 0.9), udp(2, 1, 2, 0.9)], 0.0);
    let places: Vec<_> = found.iter().map(|&(host, mark, _)| (host, mark)).collect();
    assert_eq!(places, [(0, 1)]);
}
