//! Tests of the allocator's limits over links between switches and of UDP, on the networks of NetShare's figures and on leaf-spine
//! networks.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;
use weir_coordinator::control_plane::{
    ControlPlane, Demand, FlowProgress, HostPause, Link, NetworkLinks, ObservedConnections, OrderedRate,
    PauseMode, Pauses, Report, SenderState, ServiceWeights, Settings, UdpControl, UdpFlow, UdpLimit,
    UdpMeasurement,
};
use weir_core::model::{ServiceNames, Topology, TopologyTemplate};
use weir_core::policy::build;
use weir_core::units::Rate;
use weir_proto::NetworkTable;

use crate::common::config_with_cases;
use crate::reported_flows::{self, ReportedFlow, report_flows, report_udp};
use crate::small_cluster::{HOSTS, INTERVAL, LINK_RATE, address, equal_links, flow_key, registration};

/// What services divide of each link: the shaped rate without the part of control.
const ALLOCATABLE: f64 = 0.99 * 0.99;

const GBIT: f64 = 125e6;

/// Hosts with links of this rate, in bytes per second.
fn host_links(hosts: usize, rate: f64) -> Vec<Link> {
    let rate = Rate::new(rate).unwrap();
    vec![Link { send: rate, recv: rate }; hosts]
}

/// A control plane with an allocator for services with these weights; application `s0` belongs to the first service, and so on.
fn allocating_plane(links: NetworkLinks, hosts: usize, policy: &str, weights: &[f64]) -> ControlPlane {
    let policy = build(policy).unwrap();
    let plane = ControlPlane::new(links, policy, ServiceNames::default(), Settings::default(), 1).unwrap();
    let addresses = (0..hosts as u32).map(|host| (address(host).into(), host)).collect();
    let mut plane = plane.with_allocation(addresses);
    let service_of_application =
        (0..weights.len()).map(|service| (format!("s{service}").into(), service as u32)).collect();
    plane.set_services(ServiceWeights::new(weights.to_vec(), None, service_of_application).unwrap());
    plane
}

/// The limits of flows with the weights 4:1:1 on a network of NetShare's figures, in Gbit/s if services divided whole links. `topology` is
/// none for the same hosts without links between switches. A flow has the names of its hosts, and a demand in Gbit/s if that is limited.
fn figure_limits(
    template: TopologyTemplate,
    has_topology: bool,
    flows: &[(usize, &str, &str, Option<f64>)],
) -> Vec<f64> {
    let topology = template.build().unwrap();
    let hosts = host_links(topology.hosts(), 10.0 * GBIT);
    let links = if has_topology {
        NetworkLinks::with_topology(&hosts, topology.clone())
    } else {
        NetworkLinks::one_switch(&hosts)
    };
    let mut plane = allocating_plane(links, hosts.len(), "fair", &[4.0, 1.0, 1.0]);
    let host_number = |topology: &Topology, name: &str| topology.find_node(name).unwrap().0;
    let to_flow = |&(service, from, to, demand): &(usize, &str, &str, Option<f64>)| {
        let demand = demand.map_or(Demand::Unlimited, |gbit| Demand::Rate((gbit * GBIT) as u64));
        (service, host_number(&topology, from), host_number(&topology, to), demand)
    };
    let flows: Vec<ReportedFlow> = flows.iter().map(to_flow).collect();
    let limits = report_flows(&mut plane, &flows, 0.0);
    let limit_of = |(service, from, to, _): &ReportedFlow| {
        limits[&(*from, format!("s{service}").into(), address(*to).into())] as f64 / GBIT / ALLOCATABLE
    };
    flows.iter().map(limit_of).collect()
}

fn assert_limits(found: &[f64], expected: &[f64]) {
    let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6;
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(is_near),
        "{found:?}, not {expected:?}"
    );
}

/// NetShare, Fig. 1: E1 to C1 and C1 to E3 limit services whose hosts have links to themselves.
#[test]
fn limits_over_trunks_equal_netshare_fig_1() {
    let flows = |a1| {
        [
            (0, "E1-A1", "E2-A1", a1),
            (1, "E1-A2", "E2-A2", None),
            (1, "E1-A2", "E3-A2", None),
            (2, "E4-A3", "E3-A3", None),
        ]
    };
    let limits = |a1, has_topology| figure_limits(TopologyTemplate::NetShareFig1, has_topology, &flows(a1));
    assert_limits(&limits(None, true), &[8.0, 1.0, 1.0, 9.0]);
    assert_limits(&limits(None, false), &[10.0, 5.0, 5.0, 10.0]);
    // A1 needs 6. Its limit is its lower bound, 8 by its weight, so that it can grow.
    assert_limits(&limits(Some(6.0 * ALLOCATABLE), true), &[8.0, 2.0, 2.0, 8.0]);
}

/// NetShare, 3.3 on Fig. 3: "allocates 8 to service A1 and 2 to service A2", 1 to each of its flows, and 9 to H3.
#[test]
fn limits_over_trunks_equal_netshare_fig_3() {
    let flows = [(0, "H5", "H6", None), (1, "H1", "H4", None), (1, "H2", "H7", None), (2, "H3", "H8", None)];
    let limits = |has_topology| figure_limits(TopologyTemplate::NetShareFig3, has_topology, &flows);
    assert_limits(&limits(true), &[8.0, 1.0, 1.0, 9.0]);
    assert_limits(&limits(false), &[10.0; 4]);
}

/// Two leaves with this number of hosts each, and two spines.
fn leaf_spine(hosts: u32, oversubscription: f64) -> Topology {
    let rate = Rate::new(LINK_RATE).unwrap();
    let plan = TopologyTemplate::LeafSpine { spines: 2, leaves: 2, hosts, rate, oversubscription };
    plan.build().unwrap()
}

fn leaf_spine_plane(hosts: u32, oversubscription: f64, policy: &str, weights: &[f64]) -> ControlPlane {
    let topology = leaf_spine(hosts, oversubscription);
    let links = NetworkLinks::with_topology(&host_links(topology.hosts(), LINK_RATE), topology);
    allocating_plane(links, 2 * hosts as usize, policy, weights)
}

/// The capacity of the links that ECMP selects from counts as one: a flow may use more than one of them carries.
#[test]
fn services_share_the_sum_of_equal_cost_links_by_weight() {
    let mut plane = leaf_spine_plane(2, 2.0, "fair", &[3.0, 1.0]);
    let flows = |second| [(0, 0, 2, Demand::Unlimited), (1, 1, 3, second)];
    let mut limits = |second, now| {
        let limits = report_flows(&mut plane, &flows(second), now).into_values();
        limits.map(|limit| limit as f64 / LINK_RATE / ALLOCATABLE).collect::<Vec<_>>()
    };
    assert_limits_to(&limits(Demand::Unlimited, 0.0), &[0.75, 0.25]);
    // The second service demands a tenth; it may use its lower bound. The first one gets the rest.
    assert_limits_to(&limits(Demand::Rate((0.1 * LINK_RATE * ALLOCATABLE) as u64), 0.06), &[0.9, 0.25]);
    // Flows in the reverse direction cross other links.
    let reverse = [(0, 0, 2, Demand::Unlimited), (1, 3, 1, Demand::Unlimited)];
    let limits = report_flows(&mut plane, &reverse, 0.12);
    assert!(limits.values().all(|&limit| limit == (LINK_RATE * ALLOCATABLE) as u64), "{limits:?}");
}

/// Connections to pods of a host, and to the host itself, share its link; others have no limit there.
#[test]
fn pods_count_at_the_link_of_their_host() {
    let policy = build("fair").unwrap();
    let (links, names) = (equal_links(), ServiceNames::default());
    let plane = ControlPlane::new(links, policy, names, Settings::default(), 1).unwrap();
    let mut addresses: NetworkTable<u32> = (0..HOSTS).map(|host| (address(host).into(), host)).collect();
    addresses.insert("10.244.3.0/24".parse().unwrap(), 3);
    let mut plane = plane.with_allocation(addresses);
    let services = BTreeMap::from([("s0".into(), 0), ("s1".into(), 1)]);
    plane.set_services(ServiceWeights::new(vec![3.0, 1.0], None, services).unwrap());
    let pod = |last| IpAddr::from([10, 244, last, 7]);
    let mut limits = |peers: [IpAddr; 2], now| {
        for (host, peer) in (0..).zip(peers) {
            let observed = ObservedConnections {
                application: format!("s{host}").into(),
                peer,
                open_connections: 1,
                sent_bytes: 1,
                demand: Demand::Unlimited,
            };
            plane.clear_observed(host);
            plane.report(host, &Report { observed: vec![observed], ..Report::default() }, now);
        }
        plane.tick(now);
        plane.limits().into_values().map(|limit| limit as f64 / LINK_RATE / ALLOCATABLE).collect::<Vec<_>>()
    };
    assert_limits_to(&limits([address(3).into(), pod(3)], 0.0), &[0.75, 0.25]);
    assert_limits_to(&limits([pod(3), pod(3)], 0.06), &[0.75, 0.25]);
    // The node of this network is unknown.
    assert_limits_to(&limits([pod(3), pod(4)], 0.12), &[1.0, 1.0]);
}

/// Limits are whole numbers of bytes per second.
fn assert_limits_to(found: &[f64], expected: &[f64]) {
    let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= 2.0 / LINK_RATE;
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(is_near),
        "{found:?}, not {expected:?}"
    );
}

/// All of a host's cables count: the path of a flow between hosts under one leaf has no link between switches.
#[test]
fn flows_under_one_switch_cross_no_trunk() {
    let mut plane = leaf_spine_plane(3, 3.0, "fair", &[1.0, 1.0]);
    let flows = [(0, 0, 3, Demand::Unlimited), (1, 1, 2, Demand::Unlimited)];
    let limits: Vec<u64> = report_flows(&mut plane, &flows, 0.0).into_values().collect();
    assert_eq!(limits, [(LINK_RATE * ALLOCATABLE) as u64; 2]);
}

/// The rates of coflows come off what services divide of a link between switches, up to the share of a service of weight 1. The coflow
/// shares no link of a host with the services.
#[test]
fn coflows_come_off_what_services_divide_of_a_trunk() {
    let mut plane = leaf_spine_plane(3, 3.0, "saath", &[3.0, 1.0]);
    let flows = [(0, 0, 3, Demand::Unlimited), (1, 1, 4, Demand::Unlimited)];
    let shares = |limits: BTreeMap<_, u64>| {
        limits.into_values().map(|limit| limit as f64 / LINK_RATE / ALLOCATABLE).collect::<Vec<_>>()
    };
    assert_limits_to(&shares(report_flows(&mut plane, &flows, 0.0)), &[0.75, 0.25]);
    plane.register("a", registration(&[(2, 5, 1e9)]), 0.01).unwrap();
    let progress = FlowProgress::new(flow_key("a", 0), 0, SenderState::Ready);
    plane.report(2, &Report { applied: (1, 1), flows: vec![progress], ..Report::default() }, 0.01);
    plane.tick(0.02);
    // The coflow competes with the services at the trunk only, and has a rate.
    let ordered = plane.coflow_status("a").unwrap().flows[0].ordered_rate.unwrap();
    assert!(matches!(ordered, OrderedRate::Rate(_)), "{ordered:?}");
    assert_limits_to(&shares(report_flows(&mut plane, &flows, 0.06)), &[0.6, 0.2]);
    // In shadow mode, the rate of the schedule counts, and in a pause none.
    for (mode, expected) in [(PauseMode::Shadow, [0.6, 0.2]), (PauseMode::Paused, [0.75, 0.25])] {
        let pause = HostPause { mode, with_queues: false };
        plane.set_pauses(Pauses { hosts: BTreeMap::from([(2, pause)]), ..Pauses::default() }, 0.07);
        plane.tick(0.07);
        let ordered = plane.coflow_status("a").unwrap().flows[0].ordered_rate;
        assert_eq!(ordered, Some(OrderedRate::Unlimited));
        assert_limits_to(&shares(report_flows(&mut plane, &flows, 0.07 + INTERVAL)), &expected);
    }
    plane.set_pauses(Pauses::default(), 0.1);
    // Without services it competes with nothing.
    report_flows(&mut plane, &[], 0.12);
    plane.tick(0.12 + INTERVAL);
    assert_eq!(plane.coflow_status("a").unwrap().flows[0].ordered_rate, Some(OrderedRate::Unlimited));
}

/// A measurement of UDP of a service, from one host to another, in bytes per second.
fn udp(service: u8, from: u32, to: u32, rate: u64) -> UdpMeasurement {
    reported_flows::udp(service + 1, from, to, rate)
}

/// A control plane of hosts under one switch that limits UDP by the allocator.
fn udp_plane(weights: &[f64]) -> ControlPlane {
    with_udp(allocating_plane(equal_links(), HOSTS as usize, "fair", weights), HOSTS)
}

fn with_udp(plane: ControlPlane, hosts: u32) -> ControlPlane {
    plane.with_throttling((0..hosts).map(|host| (address(host).into(), host)).collect())
}

/// The limits as fractions of what services divide of a link.
fn udp_shares(limits: Vec<(u32, UdpLimit)>) -> Vec<f64> {
    limits.into_iter().map(|(_, limit)| limit.rate as f64 / LINK_RATE / ALLOCATABLE).collect()
}

/// NetShare, Fig. 3 with UDP of A2 at 10 Gbit/s, as in Fig. 4: the rates are those with TCP, and H3 gets 9 instead of 5.
#[test]
fn udp_limits_over_trunks_equal_netshare_fig_3() {
    let topology = TopologyTemplate::NetShareFig3.build().unwrap();
    let hosts = host_links(topology.hosts(), 10.0 * GBIT);
    let links = NetworkLinks::with_topology(&hosts, topology.clone());
    let plane = allocating_plane(links, hosts.len(), "fair", &[4.0, 1.0, 1.0]);
    let mut plane = with_udp(plane, hosts.len() as u32);
    assert_eq!(plane.udp_control(), Some(UdpControl::Allocation));
    let [h1, h2, h3, h4, h5, h6, h7, h8] =
        ["H1", "H2", "H3", "H4", "H5", "H6", "H7", "H8"].map(|name| topology.find_node(name).unwrap().0);
    report_flows(&mut plane, &[(0, h5, h6, Demand::Unlimited), (2, h3, h8, Demand::Unlimited)], 0.0);
    let offered = (10.0 * GBIT) as u64;
    let limits = report_udp(&mut plane, &[udp(1, h1, h4, offered), udp(1, h2, h7, offered)], 0.06);
    let senders: Vec<u32> = limits.iter().map(|(host, _)| *host).collect();
    assert_eq!(senders, [h1, h2]);
    assert_eq!((plane.ordered_udp_limits(), plane.forwarded_udp_measurements()), (2, 0));
    let gbit = |rate: u64| rate as f64 / GBIT / ALLOCATABLE;
    let udp_rates: Vec<f64> = limits.iter().map(|(_, limit)| gbit(limit.rate)).collect();
    assert_limits(&udp_rates, &[1.0, 1.0]);
    let tcp_limits = plane.limits();
    let tcp =
        |service: &str, from: u32, to: u32| gbit(tcp_limits[&(from, service.into(), address(to).into())]);
    assert_limits(&[tcp("s0", h5, h6), tcp("s2", h3, h8)], &[8.0, 9.0]);
}

/// A source that offers more than its share gets its share without headroom. One that offers less may grow to its lower bound or by a
/// tenth, and others get the rest.
#[test]
fn udp_demand_is_the_offered_rate() {
    let mut plane = udp_plane(&[1.0, 1.0]);
    let offered = |share: f64| (share * LINK_RATE * ALLOCATABLE) as u64;
    report_flows(&mut plane, &[(0, 0, 3, Demand::Unlimited)], 0.0);
    let tcp_share = |plane: &ControlPlane| {
        let limits: Vec<f64> =
            plane.limits().into_values().map(|limit| limit as f64 / LINK_RATE / ALLOCATABLE).collect();
        limits
    };
    assert_limits_to(&tcp_share(&plane), &[1.0]);
    let limits = report_udp(&mut plane, &[udp(1, 1, 3, offered(3.0))], 0.06);
    assert_limits_to(&udp_shares(limits), &[0.5]);
    assert_limits_to(&tcp_share(&plane), &[0.5]);
    // Five measurements determine the prediction.
    let mut last = Vec::new();
    for period in 2..7 {
        last = report_udp(&mut plane, &[udp(1, 1, 3, offered(0.2))], 0.06 * f64::from(period));
    }
    assert_limits_to(&udp_shares(last), &[0.5]);
    assert_limits_to(&tcp_share(&plane), &[0.8]);
    // A rising rate: 0.2, 0.2, 0.2, 0.25 and 0.3 of the link, with a slope of 0.025 and a mean of 0.23.
    report_udp(&mut plane, &[udp(1, 1, 3, offered(0.25))], 0.42);
    report_udp(&mut plane, &[udp(1, 1, 3, offered(0.3))], 0.48);
    assert_limits_to(&tcp_share(&plane), &[1.0 - 0.305]);
}

/// UDP of a service shares with the connections of the service.
#[test]
fn udp_and_tcp_of_one_service_share_equally() {
    let mut plane = udp_plane(&[2.0, 1.0]);
    report_flows(&mut plane, &[(0, 0, 3, Demand::Unlimited), (1, 2, 3, Demand::Unlimited)], 0.0);
    let limits = report_udp(&mut plane, &[udp(0, 1, 3, u64::MAX)], 0.06);
    assert_limits_to(&udp_shares(limits), &[1.0 / 3.0]);
    let tcp: Vec<f64> =
        plane.limits().into_values().map(|limit| limit as f64 / LINK_RATE / ALLOCATABLE).collect();
    assert_limits_to(&tcp, &[1.0 / 3.0; 2]);
}

/// Limits are ordered in each period, since agents keep them for a second only, and end with the measurements.
#[test]
fn udp_limits_are_renewed_until_measurements_end() {
    let mut plane = udp_plane(&[1.0, 1.0]);
    let measured = [udp(0, 0, 3, u64::MAX), udp(1, 1, 3, u64::MAX)];
    assert_limits_to(&udp_shares(report_udp(&mut plane, &measured, 0.0)), &[0.5, 0.5]);
    assert_eq!(report_udp(&mut plane, &[], INTERVAL), []);
    assert_limits_to(&udp_shares(report_udp(&mut plane, &measured[..1], 0.05)), &[0.5, 0.5]);
    // The second source has sent nothing for a second.
    assert_limits_to(&udp_shares(report_udp(&mut plane, &measured[..1], 1.02)), &[1.0]);
    assert_eq!(report_udp(&mut plane, &[], 2.1), []);
    // The agent of the first source connects again.
    report_udp(&mut plane, &measured, 2.2);
    plane.clear_observed(0);
    assert_limits_to(&udp_shares(report_udp(&mut plane, &[], 2.3)), &[1.0]);
    // The sources of a host without a recent report get no share.
    let mut last = Vec::new();
    for step in 0..60 {
        let now = 2.4 + f64::from(step) * INTERVAL;
        let applied = (1, plane.host_statuses()[0].ordered_seq);
        let report = Report { applied, udp_measurements: measured[..1].to_vec(), ..Report::default() };
        plane.report(0, &report, now);
        for (host, order) in plane.tick(now).into_iter().filter(|(_, order)| !order.udp_limits.is_empty()) {
            last = order.udp_limits.into_iter().map(|limit| (host, limit)).collect();
        }
    }
    assert_limits_to(&udp_shares(last), &[1.0]);
}

/// Measurements count for addresses of the sender. UDP to other addresses than those of hosts, inside a host, and of classes without a
/// service has no limit.
#[test]
fn implausible_udp_measurements_have_no_effect() {
    let mut plane = udp_plane(&[1.0, 1.0]).with_switches(vec![vec![Some(1)]]);
    let mut report_and_tick = |host, udp_measurements, now| {
        for present in 0..HOSTS {
            plane.report(present, &Report::default(), now);
        }
        plane.report(host, &Report { udp_measurements, ..Report::default() }, now);
        let orders = plane.tick(now).into_iter();
        let limits: Vec<UdpLimit> = orders.flat_map(|(_, order)| order.udp_limits).collect();
        (limits.len(), plane.rejected_entries().foreign_flow, plane.rejected_entries().too_many)
    };
    assert_eq!(report_and_tick(1, vec![udp(0, 0, 2, 1000)], 0.0), (0, 1, 0));
    assert_eq!(report_and_tick(HOSTS, vec![udp(0, 1, 2, 1000)], 0.06), (0, 2, 0));
    let to = |dst| UdpMeasurement { flow: UdpFlow { dst, ..udp(0, 1, 2, 1000).flow }, rate: 1000 };
    let others =
        vec![to([224, 0, 0, 1].into()), to(address(77).into()), to(address(1).into()), udp(2, 1, 2, 1000)];
    assert_eq!(report_and_tick(1, others, 0.12), (0, 2, 0));
    assert_eq!(report_and_tick(1, vec![udp(1, 1, 2, 1000)], 0.18), (1, 2, 0));
    // One host has more classes and destinations than its limits.
    let many = |mark: u8| (0..HOSTS).map(move |to| udp(mark, 3, to, 1));
    let many: Vec<UdpMeasurement> = (0..63).flat_map(many).collect();
    assert!(many.len() < weir_proto::MAX_UDP_FLOWS);
    assert_eq!(report_and_tick(3, many, 0.24), (1 + 2 * 3, 2, 0));
}

fn random_demand() -> impl Strategy<Value = Demand> {
    prop_oneof![Just(Demand::Unlimited), (0..LINK_RATE as u64).prop_map(Demand::Rate)]
}

proptest! {
    #![proptest_config(config_with_cases(100))]

    /// Links that the hosts' links cannot fill change no limit.
    #[test]
    fn trunks_that_limit_nothing_change_no_limit(
        flows in prop::collection::vec((0usize..3, 0u32..8, 0u32..8, random_demand()), 1..24),
        oversubscription in prop_oneof![Just(1.0), Just(0.5)],
    ) {
        let weights = [1.0, 2.0, 5.0];
        let limits = report_flows(&mut leaf_spine_plane(4, oversubscription, "fair", &weights), &flows, 0.0);
        let links = NetworkLinks::one_switch(&host_links(8, LINK_RATE));
        let without = report_flows(&mut allocating_plane(links, 8, "fair", &weights), &flows, 0.0);
        prop_assert_eq!(limits, without);
    }

    /// The limits of unlimited demands fit into every link, and every flow crosses a full link.
    #[test]
    fn limits_for_unlimited_demands_fit_into_trunks(
        flows in prop::collection::btree_set((0usize..3, 0u32..8, 0u32..8), 1..24),
    ) {
        let flows: Vec<ReportedFlow> = flows
            .into_iter()
            .filter(|(_, from, to)| from != to)
            .map(|(service, from, to)| (service, from, to, Demand::Unlimited))
            .collect();
        let limits = report_flows(&mut leaf_spine_plane(4, 2.0, "fair", &[1.0, 2.0, 5.0]), &flows, 0.0);
        prop_assert_eq!(limits.len(), flows.len());
        // Links of hosts in both directions, and the uplinks and downlinks of both leaves.
        let mut rates = [0.0; 20];
        let links_of = |from: u32, to: u32| {
            let mut links = vec![from as usize, 8 + to as usize];
            if from / 4 != to / 4 {
                links.extend([16 + from as usize / 4, 18 + to as usize / 4]);
            }
            links
        };
        let of_flow = |&(service, from, to, _): &ReportedFlow| {
            limits[&(from, Arc::from(format!("s{service}")), address(to).into())] as f64
        };
        for flow in &flows {
            links_of(flow.1, flow.2).into_iter().for_each(|link| rates[link] += of_flow(flow));
        }
        let capacity = |link: usize| ALLOCATABLE * LINK_RATE * if link < 16 { 1.0 } else { 2.0 };
        for (link, &rate) in rates.iter().enumerate() {
            prop_assert!(rate <= capacity(link) * (1.0 + 1e-9), "link {}: {}", link, rate);
        }
        for flow in &flows {
            let is_full = |link: usize| rates[link] >= capacity(link) - 24.0;
            prop_assert!(links_of(flow.1, flow.2).into_iter().any(is_full), "{:?} of {:?}", flow, limits);
        }
    }
}
