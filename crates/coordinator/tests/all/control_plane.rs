//! Tests of the control plane, one call at a time.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use crate::common::config_with_cases;
use crate::small_cluster::{
    HOSTS, INTERVAL, LINK_RATE, address, control_plane, equal_links, flow_key, ipv6_address, plane_over,
    registration,
};
use proptest::collection::vec;
use proptest::prelude::*;
use weir_agent::lease::LeaseState;
use weir_coordinator::control_plane::{
    ControlPlane, Demand, FlowKey, FlowProgress, Limit, LimitTaken, Link, Mark, ObservedConnections, Order,
    OrderedRate, Queues, Refusal, RefusedOrders, Registration, Report, SenderState, ServiceWeights, Settings,
    UdpControl, UdpFlow, UdpMeasurement,
};
use weir_coordinator::quota::{CoflowQuota, CoflowUsage};
use weir_core::allocation::Allocation;
use weir_core::model::{ServiceNames, SizesUnknown, View};
use weir_core::policy::{AnyPolicy, Policy, build};
use weir_core::units::Rate;
use weir_proto::{BandwidthLimit, NetworkTable, UnclassifiedShare, estimate_sent_bytes};

/// All hosts send an empty report, which keeps them present.
fn report_all_hosts(plane: &mut ControlPlane, now: f64) {
    for host in 0..HOSTS {
        plane.report(host, &Report::default(), now);
    }
}

/// A host reports a flow that has sent nothing so far, and confirms its last order.
fn report_flow(plane: &mut ControlPlane, host: u32, key: FlowKey, now: f64) {
    let flows = vec![FlowProgress::new(key, 0, SenderState::Ready)];
    let applied = (1, plane.host_statuses()[host as usize].ordered_seq);
    plane.report(host, &Report { applied, flows, ..Report::default() }, now);
}

#[test]
fn repeated_registration_is_idempotent_and_a_different_body_is_refused() {
    let mut plane = control_plane("saath", 1);
    let requested = registration(&[(0, 1, 5e5)]);
    assert_eq!(plane.register("a", requested.clone(), 0.0), Ok(true));
    assert_eq!(plane.register("a", requested.clone(), 1.0), Ok(false));
    let other = registration(&[(0, 2, 5e5)]);
    assert_eq!(plane.register("a", other, 1.0), Err(Refusal::IdTaken("a".to_owned())));
    assert_eq!(plane.active_coflow_count(), 1);
    assert!(plane.deregister("a", 2.0).is_ok());
    assert_eq!(plane.deregister("a", 2.0), Err(Refusal::UnknownCoflow("a".to_owned())));
    assert_eq!(plane.active_coflow_count(), 0);
}

#[test]
fn decisions_end_with_the_next_one_or_with_their_coflow() {
    let mut plane = control_plane("fifo", 1);
    report_all_hosts(&mut plane, 0.0);
    for id in ["a", "b"] {
        plane.register(id, registration(&[(0, 1, 5e5)]), 0.0).unwrap();
        report_flow(&mut plane, 0, flow_key(id, 0), 0.0);
    }
    plane.tick(0.0);
    let found = |plane: &mut ControlPlane, now| -> Vec<(String, f64, Option<f64>, Option<bool>)> {
        let is_fast = |rate: f64| rate > 0.5 * LINK_RATE;
        let decisions = plane.decisions(now).into_iter();
        decisions.map(|d| (d.coflow.to_string(), d.from, d.until, d.rate.map(is_fast))).collect()
    };
    let (a, b) = ("a".to_owned(), "b".to_owned());
    assert_eq!(
        found(&mut plane, 0.0),
        [(a.clone(), 0.0, None, Some(true)), (b.clone(), 0.0, None, Some(false))]
    );
    // Without an event, nothing is decided.
    plane.tick(INTERVAL);
    assert_eq!(found(&mut plane, INTERVAL).len(), 2);
    plane.deregister("a", 2.0 * INTERVAL).unwrap();
    plane.tick(3.0 * INTERVAL);
    let ends = [
        (a, 0.0, Some(2.0 * INTERVAL), Some(true)),
        (b.clone(), 0.0, Some(3.0 * INTERVAL), Some(false)),
        // It competes with no other coflow.
        (b, 3.0 * INTERVAL, None, None),
    ];
    assert_eq!(found(&mut plane, 1.0), ends);
    assert_eq!(found(&mut plane, 400.0), ends[2..]);
}

#[test]
fn invalid_registrations_are_refused() {
    let mut plane = control_plane("varys", 1);
    let unknown_host = registration(&[(0, 1, 5e5), (0, HOSTS, 1.0)]);
    assert_eq!(
        plane.register("a", unknown_host, 0.0),
        Err(Refusal::UnknownHost { flow: 1, host: 4, last_host: 3 })
    );
    assert_eq!(plane.register("a", registration(&[]), 0.0), Err(Refusal::NoFlows));
    assert_eq!(
        plane.register("a b", registration(&[(0, 1, 1.0)]), 0.0),
        Err(Refusal::InvalidId("a b".to_owned()))
    );
    let mut unsized_flow = registration(&[(0, 1, 1.0)]);
    unsized_flow.flows[0].bytes = None;
    assert_eq!(plane.register("a", unsized_flow, 0.0), Err(Refusal::UnknownSize(0)));
    let invalid_weight = Registration { weight: f64::NAN, ..registration(&[(0, 1, 1.0)]) };
    assert!(matches!(plane.register("a", invalid_weight, 0.0), Err(Refusal::InvalidWeight(_))));
    let unknown_service = Registration { service: "x".to_owned(), ..registration(&[(0, 1, 1.0)]) };
    assert!(matches!(plane.register("a", unknown_service, 0.0), Err(Refusal::UnknownName(_))));
    assert_eq!(plane.active_coflow_count(), 0);
}

/// The number of flows of a host, which bounds an order, and of all hosts is limited.
#[test]
fn flows_per_host_and_in_all_are_limited() {
    let settings =
        Settings { max_flows: 5, max_flows_per_host: 3, keep_completed: 1.0, ..Settings::default() };
    let policy = build("saath").unwrap();
    let mut plane = ControlPlane::new(equal_links(), policy, ServiceNames::default(), settings, 1).unwrap();
    let limit_reached = |objects, max| Err(Refusal::LimitReached { objects, max });
    plane.register("a", registration(&[(0, 1, 1.0), (0, 2, 1.0)]), 0.0).unwrap();
    let two = registration(&[(0, 1, 1.0), (0, 3, 1.0)]);
    assert_eq!(plane.register("b", two.clone(), 0.0), limit_reached("flows of a host", 3));
    let four = registration(&[(1, 0, 1.0), (2, 0, 1.0), (3, 0, 1.0), (3, 1, 1.0)]);
    assert_eq!(plane.register("b", four, 0.0), limit_reached("flows", 5));
    // An update replaces the flows of a coflow, so the former flows do not count.
    plane.update("a", &registration(&[(0, 1, 1.0), (0, 2, 1.0), (0, 3, 1.0)]).flows, 0.0).unwrap();
    assert_eq!(plane.register("b", registration(&[(0, 1, 1.0)]), 0.0), limit_reached("flows of a host", 3));
    plane.update("a", &registration(&[(0, 1, 1.0)]).flows, 0.0).unwrap();
    assert_eq!(plane.register("b", two.clone(), 0.0), Ok(true));
    plane.deregister("b", 0.0).unwrap();
    // Flows of completed coflows count until the coflow is removed.
    let progress = FlowProgress::new(flow_key("a", 0), 1, SenderState::Completed);
    plane.report(0, &Report { applied: (1, 0), flows: vec![progress], ..Report::default() }, 0.1);
    let three = registration(&[(0, 1, 1.0), (0, 2, 1.0), (0, 3, 1.0)]);
    assert_eq!(plane.register("c", three.clone(), 1.0), limit_reached("flows of a host", 3));
    plane.tick(1.2);
    assert_eq!((plane.coflow_and_flow_counts(), plane.register("c", three, 1.2)), ((0, 0), Ok(true)));
    assert_eq!(plane.usage_by_service().of("default"), CoflowUsage { coflows: 1, flows: 3 });
}

/// A coflow with two flows of unknown sizes sends for 5 s, and then a coflow that is released later. When a flow of the first one
/// is reported complete, its reported bytes estimate the other flow, which then has less to send than the later coflow. The flows use UDP,
/// since TCP flows of a lone coflow have no rate.
#[test]
fn weir_estimates_sizes_from_the_reported_bytes_of_completed_flows() {
    let mut plane = control_plane("weir:turns=0", 1);
    let of_unknown_sizes = |flows: &[(u32, u32, f64)]| {
        let mut requested = registration(flows);
        requested.flows.iter_mut().for_each(|flow| flow.bytes = None);
        requested
    };
    plane.register("first", of_unknown_sizes(&[(0, 1, 1.0), (0, 2, 1.0)]), 0.0).unwrap();
    let mut flows: BTreeMap<FlowKey, (f64, u64)> = BTreeMap::new();
    flows.extend((0..2).map(|flow| (flow_key("first", flow), (0.0, 0))));
    let completed = flow_key("first", 0);
    for step in 0..=750u32 {
        let now = f64::from(step) * INTERVAL;
        if step == 625 {
            plane.register("later", of_unknown_sizes(&[(0, 3, 1.0)]), now).unwrap();
            flows.insert(flow_key("later", 0), (0.0, 0));
        }
        let progress = flows.iter_mut().map(|(key, (sent, rate))| {
            *sent += estimate_sent_bytes(*rate, INTERVAL);
            let state =
                if step == 750 && *key == completed { SenderState::Completed } else { SenderState::Ready };
            FlowProgress { udp: true, ..FlowProgress::new(key.clone(), *sent as u64, state) }
        });
        let report = Report {
            applied: (1, plane.host_statuses()[0].ordered_seq),
            flows: progress.collect(),
            ..Report::default()
        };
        plane.report(0, &report, now);
        for (key, rate) in plane.tick(now).into_iter().flat_map(|(_, order)| order.flows) {
            let (OrderedRate::Rate(rate) | OrderedRate::Reserve(rate)) = rate else { continue };
            if let Some((_, applied)) = flows.get_mut(&key) {
                *applied = rate;
            }
        }
        let rate_of = |coflow, flow| flows[&flow_key(coflow, flow)].1 as f64 / LINK_RATE;
        let expected = match step {
            0..625 => ("first", 1, 0.479),
            625..750 => ("later", 0, 0.959),
            _ => ("first", 1, 0.959),
        };
        assert!(rate_of(expected.0, expected.1) > expected.2, "step {step}: {flows:?}");
    }
}

/// Saath Fig. 4 on hosts: the first coflow gets its ports, other coflows the residual capacity, and waiting flows a
/// part of the reserve.
#[test]
fn orders_follow_the_schedule_and_carry_changes_only() {
    let mut plane = control_plane("saath", 7);
    plane.register("c1", registration(&[(0, 2, 1e6), (1, 3, 1e6)]), 0.0).unwrap();
    plane.register("c2", registration(&[(0, 3, 1e6)]), 0.0).unwrap();
    report_all_hosts(&mut plane, 0.0);
    for (host, coflow, flow) in [(0, "c1", 0), (1, "c1", 1), (0, "c2", 0)] {
        report_flow(&mut plane, host, flow_key(coflow, flow), 0.0);
    }
    let orders = plane.tick(0.0);
    let order_of =
        |orders: &[(u32, Order)], host: u32| orders.iter().find(|o| o.0 == host).unwrap().1.clone();
    let first = order_of(&orders, 0);
    assert_eq!((first.epoch, first.seq, first.is_full), (7, 1, true));
    // One flow waits, so it gets the whole reserve: a hundredth of each port.
    let full_rate = OrderedRate::Rate(959_192);
    assert_eq!(
        first.flows,
        [(flow_key("c1", 0), full_rate), (flow_key("c2", 0), OrderedRate::Reserve(9_688))]
    );
    assert_eq!(order_of(&orders, 1).flows, [(flow_key("c1", 1), full_rate)]);
    // Without changes, orders only renew leases.
    let only_renews = |order: &Order| order.flows.is_empty() && !order.is_full;
    let report_flows = |plane: &mut ControlPlane, seq, flows: Vec<FlowProgress>, now| {
        for host in 0..HOSTS {
            let mine = flows.iter().filter(|s| (host == 1) == (s.key.flow == 1)).cloned();
            let flows = if host < 2 { mine.collect() } else { Vec::new() };
            plane.report(host, &Report { applied: (7, seq), flows, ..Report::default() }, now);
        }
    };
    report_flows(&mut plane, 1, Vec::new(), 0.008);
    assert!(plane.tick(0.008).iter().all(|(_, order)| only_renews(order)));
    // While the first coflow has flows, its ports go to no other coflow. It completes on both hosts here.
    let to_progress =
        |coflow, flow, sent| FlowProgress::new(flow_key(coflow, flow), sent, SenderState::Completed);
    report_flows(
        &mut plane,
        1,
        vec![to_progress("c1", 0, 1_000_000), to_progress("c1", 1, 1_000_000)],
        0.016,
    );
    assert_eq!(plane.is_completed("c1"), Some(true));
    let orders = plane.tick(0.016);
    assert_eq!(
        order_of(&orders, 0).flows,
        [(flow_key("c1", 0), OrderedRate::Removed), (flow_key("c2", 0), OrderedRate::Unlimited)]
    );
    assert_eq!(order_of(&orders, 1).flows, [(flow_key("c1", 1), OrderedRate::Removed)]);
    // Orders that only renew a lease come last.
    assert!(orders.iter().map(|(_, order)| only_renews(order)).is_sorted());
    assert_eq!(orders.iter().filter(|(_, order)| !only_renews(order)).count(), 2);
    // Leases are renewed every three intervals (a quarter of the lease, rounded up), and each host has its own turn.
    let mut renewed = vec![Vec::new(); HOSTS as usize];
    for step in 3..12u64 {
        let now = step as f64 * INTERVAL;
        for (host, state) in plane.host_statuses().iter().enumerate() {
            plane.report(host as u32, &Report { applied: (7, state.ordered_seq), ..Report::default() }, now);
        }
        for (host, order) in plane.tick(now) {
            assert!(only_renews(&order), "{order:?}");
            renewed[host as usize].push(step);
        }
    }
    assert_eq!(renewed, [vec![5, 8, 11], vec![3, 6, 9], vec![4, 7, 10], vec![5, 8, 11]]);
}

/// Two lost orders in a row do not end a lease.
#[test]
fn two_lost_orders_in_a_row_do_not_end_a_lease() {
    for first in 2..12 {
        let mut plane = control_plane("saath", 1);
        plane.register("a", registration(&[(0, 1, 1e9)]), 0.0).unwrap();
        let mut lease_state = LeaseState::new(vec![Rate::new(LINK_RATE).unwrap()]);
        let (mut in_transit, mut orders) = (None, 0);
        for step in 0..100u64 {
            let now = step as f64 * INTERVAL;
            if let Some(order) = in_transit.take() {
                let _ = lease_state.accept(order, Duration::from_secs_f64(now));
            }
            assert!(
                step == 0 || lease_state.is_lease_valid(Duration::from_secs_f64(now)),
                "orders {first} and {} were lost, and the lease ended at step {step}",
                first + 1
            );
            plane.report(0, &Report { applied: lease_state.applied(), ..Report::default() }, now);
            if let Some((_, order)) = plane.tick(now).pop() {
                orders += 1;
                in_transit = Some(order).filter(|_| !(first..first + 2).contains(&orders));
            }
        }
        assert!((25..50).contains(&orders), "{orders} orders in ten leases");
    }
}

/// The rates of a link in the configuration and in the options of agents differ: the lower one counts. The flow uses UDP, since a TCP flow
/// without competition has no rate.
#[test]
fn lower_rate_of_a_link_counts() {
    let mut plane = control_plane("saath", 1).with_switches(vec![vec![Some(1), None]]);
    let rate_of_c1 = |plane: &mut ControlPlane, now: f64| {
        report_all_hosts(plane, now);
        let flow = FlowProgress { udp: true, ..FlowProgress::new(flow_key("c1", 0), 0, SenderState::Ready) };
        plane.report(0, &Report { flows: vec![flow], ..Report::default() }, now);
        plane.require_full_order(0);
        let orders = plane.tick(now);
        orders.into_iter().find(|(host, _)| *host == 0).map(|(_, order)| order.flows)
    };
    plane.register("c1", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
    let expected = |rate: u64| Some(vec![(flow_key("c1", 0), OrderedRate::Rate(rate))]);
    assert_eq!(rate_of_c1(&mut plane, 0.008), expected(959_192));
    // The agent of host 0 has half the rate. A higher rate has no effect.
    assert_eq!(plane.set_agent_rates(0, &[500_000], 0.008), [LINK_RATE as u64]);
    assert_eq!(rate_of_c1(&mut plane, 0.016), expected(479_596));
    plane.set_agent_rates(0, &[2_000_000], 0.016);
    assert_eq!(rate_of_c1(&mut plane, 0.024), expected(959_192));
    // The switch's port to the receiver has a quarter, and its port to another switch has no configured rate.
    assert_eq!(plane.set_agent_rates(HOSTS, &[250_000, 1, 9, 9], 0.024), [LINK_RATE as u64, 0]);
    assert_eq!(rate_of_c1(&mut plane, 0.032), expected(239_798));
    // Rates of zero and unknown agents.
    plane.set_agent_rates(HOSTS, &[0], 0.032);
    assert_eq!(plane.set_agent_rates(99, &[1], 0.032), [] as [u64; 0]);
    assert_eq!(rate_of_c1(&mut plane, 0.04), expected(959_192));
}

/// A slot has the link and the addresses of its host, and no link without one.
#[test]
fn slot_has_the_link_of_its_host() {
    let links = equal_links().with_slots(1, 4.0 * LINK_RATE);
    let mut plane = plane_over(links, "saath", 1).with_throttling(NetworkTable::default());
    let slot = HOSTS;
    let rate_to_slot = |plane: &mut ControlPlane, now: f64| {
        report_all_hosts(plane, now);
        let flow = FlowProgress { udp: true, ..FlowProgress::new(flow_key("c1", 0), 0, SenderState::Ready) };
        plane.report(0, &Report { flows: vec![flow], ..Report::default() }, now);
        plane.require_full_order(0);
        let orders = plane.tick(now);
        orders.into_iter().find(|(host, _)| *host == 0).and_then(|(_, order)| Some(order.flows.first()?.1))
    };
    let link = |rate: f64| {
        let rate = Rate::new(rate).unwrap();
        Link { send: rate, recv: rate }
    };
    plane.set_slot(slot, "node-1", link(LINK_RATE / 2.0), 0.0);
    assert_eq!(plane.agent_names().number("node-1"), Some(slot));
    plane.register("c1", registration(&[(0, slot, 1e6)]), 0.0).unwrap();
    assert_eq!(rate_to_slot(&mut plane, 0.008), Some(OrderedRate::Rate(479_596)));
    // The next agent of the host states a higher rate. That of the sender's link counts.
    plane.set_slot(slot, "node-1", link(4.0 * LINK_RATE), 0.008);
    assert_eq!(rate_to_slot(&mut plane, 0.016), Some(OrderedRate::Rate(959_192)));
    // Measurements count for addresses of their host.
    let addresses = [(address(9).into(), slot)];
    plane.set_addresses(Arc::new(addresses.into_iter().collect()));
    let flow = UdpFlow { src: address(0).into(), dst: address(9).into(), mark: Mark::new(1).unwrap() };
    let report = Report { udp_measurements: vec![UdpMeasurement { flow, rate: 1 }], ..Report::default() };
    plane.report(1, &report, 0.016);
    assert_eq!(plane.rejected_entries().foreign_flow, 1);
    plane.report(slot, &report, 0.016);
    assert_eq!(plane.rejected_entries().foreign_flow, 1);

    assert_eq!(plane.active_coflow_of_host(slot).as_deref(), Some("c1"));
    plane.leave_slot(slot, 0.02);
    plane.set_addresses(Arc::default());
    plane.report(1, &report, 0.02);
    assert_eq!(plane.rejected_entries().foreign_flow, 1);
    plane.deregister("c1", 0.02).unwrap();
    assert!(!plane.has_flows_of_host(slot) && plane.active_coflow_of_host(slot).is_none());
    plane.free_slot(slot, 0.02);
    assert_eq!(plane.agent_names().number("node-1"), None);
    plane.register("c1", registration(&[(0, slot, 1e6)]), 0.02).unwrap();
    assert_ne!(rate_to_slot(&mut plane, 0.024), Some(OrderedRate::Rate(959_192)));
}

/// A changed queue is in one order, and full orders contain all queues.
#[test]
fn orders_carry_changed_queues_once() {
    let mut plane = control_plane("saath", 1).with_switches(vec![vec![Some(1)]]);
    let queues = |weight| Queues {
        weights: vec![1.0, weight],
        queue_of_class: vec![0, 1, 1],
        class_of_application: vec![("web".into(), 3)],
        guaranteed: weight > 4.0,
        unclassified: UnclassifiedShare::default(),
        rate_bounds: Vec::new(),
    };
    let mut now = 0.0;
    let mut ordered_queues = |plane: &mut ControlPlane| {
        for (host, state) in (0..).zip(plane.host_statuses()) {
            plane.report(host, &Report { applied: (1, state.ordered_seq), ..Report::default() }, now);
        }
        now += INTERVAL;
        let mut orders = plane.tick(now);
        assert!(orders.iter().all(|(host, order)| [2, HOSTS].contains(host) || order.queues.is_empty()));
        [2, HOSTS].map(|receiver| {
            let order = orders.iter_mut().find(|(host, _)| *host == receiver);
            order.map_or(Vec::new(), |(_, order)| std::mem::take(&mut order.queues))
        })
    };
    assert_eq!(ordered_queues(&mut plane), [vec![], vec![]]);
    // The host may have connected after its queues were set.
    plane.set_queues(2, 0, queues(3.0));
    plane.set_queues(HOSTS + 1, 0, queues(3.0));
    assert_eq!(ordered_queues(&mut plane), [vec![(0, queues(3.0))], vec![]]);
    plane.set_queues(2, 0, queues(3.0));
    // A switch has several links.
    for (link, weight) in [(3, 7.0), (1, 5.0)] {
        plane.set_queues(HOSTS, link, queues(weight));
    }
    assert_eq!(ordered_queues(&mut plane), [vec![], vec![(1, queues(5.0)), (3, queues(7.0))]]);
    plane.set_queues(2, 0, queues(5.0));
    plane.set_queues(HOSTS, 3, queues(9.0));
    assert_eq!(ordered_queues(&mut plane), [vec![(0, queues(5.0))], vec![(3, queues(9.0))]]);
    plane.require_full_order(2);
    plane.require_full_order(HOSTS);
    let all = [vec![(0, queues(5.0))], vec![(1, queues(5.0)), (3, queues(9.0))]];
    assert_eq!(ordered_queues(&mut plane), all);
    assert_eq!(ordered_queues(&mut plane), [vec![], vec![]]);
}

/// A profiler limits hosts, and may be killed.
#[test]
fn bandwidth_limits_are_ordered_until_they_end_or_lapse() {
    let mut plane = control_plane("saath", 1);
    let limit = |fraction| BandwidthLimit::new(fraction).unwrap();
    let ordered = |plane: &mut ControlPlane, now: f64| {
        report_all_hosts(plane, now);
        let orders = plane.tick(now);
        orders.into_iter().find(|(host, _)| *host == 2).map(|(_, order)| order.bandwidth_limit)
    };
    assert_eq!(ordered(&mut plane, 0.0), Some(None));
    assert_eq!(plane.limit_bandwidth(2, "p1", limit(0.25), 10.0, 0.001), Ok(None));
    assert_eq!(plane.limit_bandwidth(2, "p1", limit(0.5), 10.0, 0.002), Ok(Some(limit(0.25))));
    let taken = Err(LimitTaken { owner: "p1".to_owned() });
    assert_eq!(plane.limit_bandwidth(2, "p2", limit(0.1), 10.0, 0.003), taken);
    assert_eq!(plane.end_bandwidth_limit(2, "p2", 0.003), taken);
    // The change is ordered at once.
    assert_eq!(ordered(&mut plane, 0.004), Some(Some(limit(0.5))));
    let fractions = |plane: &ControlPlane| {
        let status = &plane.host_statuses()[2];
        (status.bandwidth_fraction, status.applied_bandwidth_fraction)
    };
    assert_eq!(fractions(&plane), (Some(0.5), None));
    plane.report(2, &Report { bandwidth_limit: Some(limit(0.5)), ..Report::default() }, 0.005);
    assert_eq!(fractions(&plane), (Some(0.5), Some(0.5)));

    // Schedules count with half of the link.
    plane.register("a", registration(&[(2, 1, 5e5)]), 0.006).unwrap();
    plane.register("b", registration(&[(2, 3, 5e5)]), 0.006).unwrap();
    for id in ["a", "b"] {
        report_flow(&mut plane, 2, flow_key(id, 0), 0.006);
    }
    let rate = |plane: &mut ControlPlane, now: f64| {
        report_all_hosts(plane, now);
        plane.tick(now);
        let rates = plane.flow_allocations(None, 10).into_iter().map(|flow| u64::from(flow.ordered_rate));
        rates.sum::<u64>() as f64 / LINK_RATE
    };
    let half = rate(&mut plane, 0.007);
    assert!((0.45..0.51).contains(&half), "{half}");

    // The owner ends it, or no longer renews it.
    assert_eq!(plane.end_bandwidth_limit(2, "p1", 0.008), Ok(Some(limit(0.5))));
    assert_eq!(plane.end_bandwidth_limit(2, "p1", 0.008), Ok(None));
    let whole = rate(&mut plane, 0.009);
    assert!((0.9..1.01).contains(&whole), "{whole}");
    assert_eq!(plane.limit_bandwidth(2, "p2", limit(0.1), 10.0, 1.0), Ok(None));
    assert_eq!(ordered(&mut plane, 1.0), Some(Some(limit(0.1))));
    assert_eq!(ordered(&mut plane, 10.9), Some(Some(limit(0.1))));
    assert_eq!(ordered(&mut plane, 11.0), Some(None));
    assert_eq!(plane.limit_bandwidth(2, "p3", limit(0.1), 10.0, 11.0), Ok(None));
}

/// The host sends at the rate of its link before the limit, and after it.
#[test]
fn progress_at_the_link_rate_is_accepted_while_a_limit_starts_and_ends() {
    let mut plane = control_plane("saath", 1);
    plane.register("a", registration(&[(0, 1, 1e9)]), 0.0).unwrap();
    report_flow(&mut plane, 0, flow_key("a", 0), 0.0);
    // A report a second, of what the host has sent since then at this part of the link.
    let (mut now, mut sent) = (0.0, 0.0);
    let mut report_second = |plane: &mut ControlPlane, part: f64| {
        now += 1.0;
        sent += part * LINK_RATE;
        let flows = vec![FlowProgress::new(flow_key("a", 0), sent as u64, SenderState::Ready)];
        plane.report(0, &Report { flows, ..Report::default() }, now);
        assert_eq!(plane.coflow_status("a").unwrap().flows[0].sent_bytes, sent, "at {now} s");
    };
    let limit = BandwidthLimit::new(0.1).unwrap();
    report_second(&mut plane, 1.0);
    plane.limit_bandwidth(0, "p", limit, 60.0, 1.99).unwrap();
    report_second(&mut plane, 0.99);
    report_second(&mut plane, 0.1);
    plane.end_bandwidth_limit(0, "p", 3.0).unwrap();
    report_second(&mut plane, 1.0);
    // The host has sent at its link's rate for most of a second when the next limit starts, and is late to apply it.
    plane.limit_bandwidth(0, "p", limit, 60.0, 4.5).unwrap();
    report_second(&mut plane, 0.7);
    assert_eq!(plane.rejected_entries().above_link_rate, 0);
}

/// Flows and observed connections in reports of switches are rejected.
#[test]
fn flows_reported_by_a_switch_are_rejected() {
    let mut plane = control_plane("saath", 1).with_switches(vec![vec![Some(1)]]);
    plane.register("a", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
    let progress = FlowProgress::new(flow_key("a", 0), 5, SenderState::Completed);
    let (peer, demand) = ([10, 0, 0, 1].into(), Demand::Unknown);
    let observed =
        ObservedConnections { application: "web".into(), peer, open_connections: 1, sent_bytes: 5, demand };
    plane.report(
        HOSTS,
        &Report { flows: vec![progress], observed: vec![observed], ..Report::default() },
        0.001,
    );
    assert_eq!((plane.rejected_entries().foreign_flow, plane.is_completed("a")), (2, Some(false)));
    assert_eq!(plane.take_observed_changes(), []);
    let to_switch = plane.register("b", registration(&[(0, HOSTS, 1e6)]), 0.002);
    assert_eq!(to_switch, Err(Refusal::UnknownHost { flow: 0, host: HOSTS, last_host: HOSTS - 1 }));
}

/// Refused orders are summed over all agents, and the sum never decreases.
#[test]
fn refused_orders_are_summed_over_agents_once() {
    let mut plane = control_plane("saath", 1).with_switches(vec![vec![Some(1)]]);
    let refused_orders = |stale_epoch, gap| RefusedOrders { stale_epoch, gap, ..RefusedOrders::default() };
    let reports = [
        (0, refused_orders(3, 0)),
        (0, refused_orders(3, 0)),
        (HOSTS, refused_orders(1, 1)),
        (0, refused_orders(4, 0)),
        // The agent restarted.
        (0, refused_orders(0, 2)),
        (0, refused_orders(0, 2)),
        // A host number that does not exist.
        (HOSTS + 1, refused_orders(9, 9)),
    ];
    let mut counts = Vec::new();
    for (host, refusals) in reports {
        plane.report(host, &Report { refused_orders: refusals, ..Report::default() }, 0.001);
        counts.push((plane.refused_orders().stale_epoch, plane.refused_orders().gap));
    }
    assert_eq!(counts, [(3, 0), (3, 0), (4, 1), (5, 1), (5, 3), (5, 3), (5, 3)]);
}

/// Observed connections are limited in number, returned once, and removed some time after the host's last report.
#[test]
fn observed_connections_are_limited_and_expire() {
    let mut plane = control_plane("saath", 1);
    let observed_entry = |at: u32, open| ObservedConnections {
        application: "web".into(),
        peer: std::net::Ipv4Addr::from(at).into(),
        open_connections: open,
        sent_bytes: 1,
        demand: Demand::Unknown,
    };
    let report_observed = |plane: &mut ControlPlane, observed: Vec<ObservedConnections>, now| {
        plane.report(1, &Report { observed, ..Report::default() }, now);
        let mut all = plane.take_observed_changes();
        assert!(all.len() <= 1 && all.iter().all(|(host, _)| *host == 1));
        all.pop().map(|(_, observed)| observed.len())
    };
    assert_eq!(
        report_observed(&mut plane, (0..4095).map(|at| observed_entry(at, 1)).collect(), 0.0),
        Some(4095)
    );
    assert_eq!(report_observed(&mut plane, Vec::new(), 0.0), None);
    assert_eq!(
        report_observed(&mut plane, (5000..5003).map(|at| observed_entry(at, 1)).collect(), 0.0),
        Some(4096)
    );
    assert_eq!(plane.rejected_entries().too_many, 2);
    assert_eq!(
        report_observed(&mut plane, vec![observed_entry(0, 0), observed_entry(7000, 0)], 0.0),
        Some(4095)
    );
    assert_eq!(report_observed(&mut plane, vec![observed_entry(8000, 1)], 1.0), Some(4096));
    plane.tick(30.0);
    assert_eq!(plane.take_observed_changes(), []);
    plane.tick(32.0);
    assert_eq!(plane.take_observed_changes(), [(1, vec![])]);
}

/// Section 5: a task that moves sends from another host. The bytes that it sent before stay sent.
#[test]
fn update_replaces_flows_and_unchanged_flows_continue() {
    let mut plane = control_plane("saath", 1);
    plane.register("a", registration(&[(0, 2, 1e6), (1, 2, 1e6)]), 0.0).unwrap();
    // Without it, the other coflow would have no rates.
    plane.register("waiting", registration(&[(3, 2, 1e6)]), 0.0).unwrap();
    report_all_hosts(&mut plane, 0.0);
    plane.tick(0.0);
    let moved_flows = registration(&[(0, 2, 1e6), (3, 2, 1e6), (1, 0, 1e6)]).flows;
    assert_eq!(plane.update("b", &moved_flows, 0.004), Err(Refusal::UnknownCoflow("b".to_owned())));
    plane.update("a", &moved_flows, 0.004).unwrap();
    for host in 0..HOSTS {
        plane.report(host, &Report { applied: (1, 1), ..Report::default() }, 0.008);
    }
    let orders = plane.tick(0.008);
    let half_rate = OrderedRate::Rate(479_596);
    let ordered_flows = |host: usize| (orders[host].0, orders[host].1.flows.clone());
    // The first flow keeps its rate, so the order does not contain it. The last one competes with no other coflow.
    // Orders to the other hosts only renew leases.
    assert!(orders[2..].iter().all(|(_, order)| order.flows.is_empty()));
    assert_eq!(
        ordered_flows(0),
        (1, vec![(flow_key("a", 1), OrderedRate::Removed), (flow_key("a", 2), OrderedRate::Unlimited)])
    );
    assert_eq!(ordered_flows(1), (3, vec![(flow_key("a", 1), half_rate)]));
}

/// Section 4.3: ports report available data. A program that dies after it registered a coflow does not keep ports from
/// other coflows.
#[test]
fn flow_without_a_connection_frees_its_ports_after_a_lease() {
    let mut plane = control_plane("saath", 1);
    plane.register("dead", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
    plane.register("alive", registration(&[(0, 1, 1e9)]), 0.001).unwrap();
    let report_flow_of = |plane: &mut ControlPlane, id, now| report_flow(plane, 0, flow_key(id, 0), now);
    let ordered_rates = |plane: &mut ControlPlane, now| {
        plane.tick(now);
        ["dead", "alive"].map(|id| plane.coflow_status(id).unwrap().flows[0].ordered_rate)
    };
    let (full_rate, reserve_rate) = (Some(OrderedRate::Rate(959_192)), Some(OrderedRate::Reserve(9_688)));
    let unlimited = Some(OrderedRate::Unlimited);
    report_flow_of(&mut plane, "alive", 0.002);
    assert_eq!(ordered_rates(&mut plane, 0.002), [full_rate, reserve_rate]);
    // Within a lease, the connection could still be handed over.
    report_flow_of(&mut plane, "alive", 0.079);
    assert_eq!(ordered_rates(&mut plane, 0.079), [full_rate, reserve_rate]);
    assert_eq!(ordered_rates(&mut plane, 0.081), [reserve_rate, unlimited]);
    // Another policy gets the same state.
    plane.set_policy(build("varys").unwrap(), 0.082).unwrap();
    assert_eq!(ordered_rates(&mut plane, 0.083), [reserve_rate, unlimited]);
    plane.set_policy(build("saath").unwrap(), 0.084).unwrap();
    // A host that reconnects does not restart the grace period.
    plane.tick(0.5);
    report_flow_of(&mut plane, "alive", 0.6);
    assert_eq!(ordered_rates(&mut plane, 0.6), [reserve_rate, unlimited]);
    // The connection is handed over later.
    report_flow_of(&mut plane, "dead", 0.61);
    assert_eq!(ordered_rates(&mut plane, 0.61), [full_rate, reserve_rate]);
    // The agent restarts, and only the other program hands its connection over again.
    plane.start_grace_periods(0);
    report_flow_of(&mut plane, "alive", 0.62);
    assert_eq!(ordered_rates(&mut plane, 0.68), [full_rate, reserve_rate]);
    report_flow_of(&mut plane, "alive", 0.691);
    assert_eq!(ordered_rates(&mut plane, 0.692), [reserve_rate, unlimited]);
    let sent_bytes = |plane: &ControlPlane| plane.coflow_status("dead").unwrap().flows[0].sent_bytes;
    let before = sent_bytes(&plane);
    report_flow_of(&mut plane, "alive", 0.7);
    plane.tick(0.75);
    assert_eq!(sent_bytes(&plane), before);
    report_flow_of(&mut plane, "dead", 0.76);
    assert_eq!(ordered_rates(&mut plane, 0.76), [full_rate, reserve_rate]);
}

/// After a partition, an agent connects again and reports its flows again, in any order.
#[test]
fn flows_of_a_reconnected_agent_keep_their_order() {
    let mut plane = control_plane("saath", 1);
    for (id, time) in [("first", 0.0), ("second", 0.001)] {
        plane.register(id, registration(&[(0, 1, 1e9)]), time).unwrap();
        report_flow(&mut plane, 0, flow_key(id, 0), 0.002);
    }
    let has_order = |plane: &mut ControlPlane, now| {
        plane.tick(now);
        let rates = ["first", "second"].map(|id| plane.coflow_status(id).unwrap().flows[0].ordered_rate);
        rates == [Some(OrderedRate::Rate(959_192)), Some(OrderedRate::Reserve(9_688))]
    };
    assert!(has_order(&mut plane, 0.002));
    for reconnected_at in [0.05, 0.12, 0.2] {
        plane.require_full_order(0);
        plane.clear_observed(0);
        plane.start_grace_periods(0);
        assert!(has_order(&mut plane, reconnected_at));
        for (id, delay) in [("second", 0.01), ("first", 0.05)] {
            report_flow(&mut plane, 0, flow_key(id, 0), reconnected_at + delay);
            assert!(has_order(&mut plane, reconnected_at + delay), "{reconnected_at}: {id}");
        }
    }
}

/// Section 5: a new coordinator gets its state from reports, except registrations. Two intervals after its start, its orders
/// equal those of the former coordinator.
#[test]
fn restarted_control_plane_sends_equal_orders_within_two_intervals() {
    let ordered_rates = |plane: &ControlPlane| {
        ["long", "short"].map(|id| plane.coflow_status(id).unwrap().flows[0].ordered_rate)
    };
    let report_flows = |plane: &mut ControlPlane, applied, now| {
        let to_progress = |id, sent| FlowProgress::new(flow_key(id, 0), sent, SenderState::Ready);
        let flows = vec![to_progress("long", 20_000_000), to_progress("short", 0)];
        plane.report(0, &Report { applied, flows, ..Report::default() }, now);
    };
    let restored_plane = |epoch| {
        let mut plane = control_plane("saath", epoch);
        plane.restore("long", registration(&[(0, 1, 1e9)]), None, 0.0).unwrap();
        plane.restore("short", registration(&[(0, 2, 1e6)]), None, 0.0).unwrap();
        plane
    };
    let mut before = restored_plane(1);
    report_flow(&mut before, 0, flow_key("long", 0), 0.0);
    report_flows(&mut before, (1, 0), 30.0);
    before.tick(30.0);
    let expected_rates = [Some(OrderedRate::Reserve(9_688)), Some(OrderedRate::Rate(959_192))];
    assert_eq!(ordered_rates(&before), expected_rates);
    let mut after = restored_plane(2);
    // No host has reported yet.
    assert!(after.tick(0.0).is_empty());
    report_flows(&mut after, (1, before.host_statuses()[0].ordered_seq), INTERVAL);
    let orders = after.tick(2.0 * INTERVAL);
    assert_eq!(orders.len(), 1);
    assert!(orders[0].1.is_full && orders[0].1.epoch == 2);
    assert_eq!(ordered_rates(&after), expected_rates);
}

/// Agents refuse an order that contains a flow twice.
#[test]
fn removed_and_readded_flow_appears_once_in_an_order() {
    let mut plane = control_plane("saath", 1);
    plane.register("a", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
    report_all_hosts(&mut plane, 0.0);
    plane.tick(0.0);
    plane.deregister("a", 0.004).unwrap();
    plane.register("a", registration(&[(0, 1, 2e6)]), 0.004).unwrap();
    plane.report(0, &Report { applied: (1, 1), ..Report::default() }, 0.008);
    let orders = plane.tick(0.008);
    assert!(!orders[0].1.is_full);
    assert_eq!(orders[0].1.flows, [(flow_key("a", 0), OrderedRate::Unlimited)]);
}

#[test]
fn policy_change_keeps_the_progress_of_coflows() {
    let mut plane = control_plane("saath", 1);
    plane.register("short", registration(&[(0, 2, 5e5)]), 0.0).unwrap();
    plane.register("long", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
    let report_sent = |plane: &mut ControlPlane, sent, now| {
        let flows = vec![FlowProgress::new(flow_key("long", 0), sent, SenderState::Ready)];
        plane.report(0, &Report { applied: (1, 0), flows, ..Report::default() }, now);
    };
    report_sent(&mut plane, 0, 0.0);
    report_flow(&mut plane, 0, flow_key("short", 0), 0.0);
    report_sent(&mut plane, 900_000, 1.0);
    plane.tick(1.0);
    // Saath serves the earlier coflow first; by remaining bytes, the long coflow is the shorter one.
    plane.set_policy(build("varys").unwrap(), 1.0).unwrap();
    report_sent(&mut plane, 900_000, 1.001);
    let orders = plane.tick(1.001);
    let full_rate = OrderedRate::Rate(959_192);
    let reserve_rate = OrderedRate::Reserve(9_688);
    assert_eq!(orders[0].1.flows, [(flow_key("long", 0), full_rate), (flow_key("short", 0), reserve_rate)]);
    // A policy that needs sizes is refused while a flow has an unknown size.
    let mut unsized_flow = registration(&[(3, 2, 1.0)]);
    unsized_flow.flows[0].bytes = None;
    plane.set_policy(build("aalo").unwrap(), 1.002).unwrap();
    plane.register("unsized", unsized_flow, 1.002).unwrap();
    assert_eq!(plane.set_policy(build("varys").unwrap(), 1.003), Err(Refusal::UnknownSize(0)));
    assert_eq!(plane.active_coflow_count(), 3);
}

#[test]
fn aalo_reassigns_sender_capacity_that_a_busy_receiver_does_not_use() {
    let mut plane = control_plane("aalo", 1);
    plane.register("first", registration(&[(0, 2, 1e6), (1, 2, 1e6)]), 0.0).unwrap();
    plane.register("second", registration(&[(0, 3, 1e6)]), 0.001).unwrap();
    report_all_hosts(&mut plane, 0.002);
    let orders = plane.tick(0.002);
    let half_rate = OrderedRate::Rate(479_596);
    assert_eq!(orders[0].1.flows, [(flow_key("first", 0), half_rate), (flow_key("second", 0), half_rate)]);
    assert_eq!(orders[1].1.flows, [(flow_key("first", 1), half_rate)]);
}

#[test]
fn implausible_entries_are_rejected_and_counted() {
    let mut plane = control_plane("saath", 1);
    plane.register("a", registration(&[(0, 1, 1e9), (1, 2, 1e9)]), 0.0).unwrap();
    report_all_hosts(&mut plane, 0.0);
    plane.tick(0.0);
    let report_sent = |plane: &mut ControlPlane, host, key, sent, now| {
        let flows = vec![FlowProgress::new(key, sent, SenderState::Ready)];
        plane.report(host, &Report { applied: (1, 1), flows, ..Report::default() }, now);
    };
    report_sent(&mut plane, 0, flow_key("a", 0), 1000, 0.01);
    report_sent(&mut plane, 0, flow_key("a", 0), 900_000_000, 0.02);
    report_sent(&mut plane, 0, flow_key("a", 0), 10, 0.03);
    report_sent(&mut plane, 0, flow_key("a", 1), 10, 0.03);
    report_sent(&mut plane, 0, flow_key("a", 9), 10, 0.03);
    report_sent(&mut plane, 0, flow_key("b", 0), 10, 0.03);
    report_sent(&mut plane, 77, flow_key("a", 0), 10, 0.03);
    let rejected = plane.rejected_entries();
    assert_eq!(
        (
            rejected.above_link_rate,
            rejected.decreasing,
            rejected.foreign_flow,
            rejected.unknown_flow,
            rejected.unknown_host
        ),
        (1, 1, 1, 2, 1)
    );
}

/// A first report may not exceed what the link carries since the registration, except for a coflow of the store.
#[test]
fn first_report_is_limited_by_the_time_since_the_registration() {
    let mut plane = control_plane("saath", 1);
    let coflow = || registration(&[(0, 1, 1e15)]);
    plane.register("new", coflow(), 1.0).unwrap();
    plane.restore("stored", coflow(), None, 1.0).unwrap();
    for id in ["new", "stored"] {
        let flows = vec![FlowProgress::new(flow_key(id, 0), 900_000_000_000_000, SenderState::Ready)];
        plane.report(0, &Report { flows, ..Report::default() }, 1.1);
    }
    let sent = |plane: &ControlPlane, id| plane.coflow_status(id).unwrap().flows[0].sent_bytes;
    assert_eq!((sent(&plane, "new"), sent(&plane, "stored")), (0.0, 9e14));
    assert_eq!(plane.rejected_entries().above_link_rate, 1);
    // The bytes of a program that handed its socket over too early are accepted once the link can have carried them.
    let report_new = |plane: &mut ControlPlane, now| {
        let flows = vec![FlowProgress::new(flow_key("new", 0), 1_000_000, SenderState::Ready)];
        plane.report(0, &Report { flows, ..Report::default() }, now);
        sent(plane, "new")
    };
    assert_eq!(report_new(&mut plane, 1.2), 0.0);
    assert_eq!(report_new(&mut plane, 2.2), 1e6);
    assert_eq!(plane.rejected_entries().above_link_rate, 2);
}

/// Agents report deviations from orders only, so a flow without a report is assumed to send at its ordered rate, also
/// at a rate of the reserve.
#[test]
fn flows_without_reports_progress_at_their_ordered_rate() {
    let mut plane = control_plane("saath", 1);
    plane.register("a", registration(&[(0, 1, 1e9)]), 0.0).unwrap();
    plane.register("b", registration(&[(0, 2, 1e9)]), 0.0).unwrap();
    plane.register("c", registration(&[(3, 2, 1e9)]), 0.0).unwrap();
    let report_flows = |plane: &mut ControlPlane, host: u32, flows: &[(&str, u64)], now| {
        let to_progress =
            |&(id, sent): &(&str, u64)| FlowProgress::new(flow_key(id, 0), sent, SenderState::Ready);
        let applied = (1, plane.host_statuses()[host as usize].ordered_seq);
        let report = Report { applied, flows: flows.iter().map(to_progress).collect(), ..Report::default() };
        plane.report(host, &report, now);
    };
    report_flows(&mut plane, 0, &[("a", 0), ("b", 0)], 0.0);
    report_flows(&mut plane, 3, &[], 0.0);
    plane.tick(0.0);
    let sent_bytes = |plane: &ControlPlane, id: &str| plane.coflow_status(id).unwrap().flows[0].sent_bytes;
    let ordered_rate =
        |plane: &ControlPlane, id: &str| match plane.coflow_status(id).unwrap().flows[0].ordered_rate {
            Some(OrderedRate::Rate(rate) | OrderedRate::Reserve(rate)) => {
                weir_proto::estimate_sent_bytes(rate, 1.0)
            }
            other => panic!("{other:?}"),
        };
    // One flow at the port of host 0 gets its rate, the other the reserve. `estimate_sent_bytes` counts payload, and orders
    // count packets.
    let (first, second) = (ordered_rate(&plane, "a"), ordered_rate(&plane, "b"));
    assert!(
        (first - 959_192.0 * 1448.0 / 1514.0).abs() < 1.0 && (second - 9_688.0 * 1448.0 / 1514.0).abs() < 1.0
    );
    for step in 1..=5 {
        let now = f64::from(step) * INTERVAL;
        report_flows(&mut plane, 0, &[], now);
        plane.tick(now);
    }
    assert!((sent_bytes(&plane, "a") - first * 5.0 * INTERVAL).abs() < 1e-3);
    assert!((sent_bytes(&plane, "b") - second * 5.0 * INTERVAL).abs() < 1e-3);
    // A flow that its host has never reported has no estimated progress.
    assert_eq!(sent_bytes(&plane, "c"), 0.0);
    // A report replaces the estimate, even with fewer bytes.
    report_flows(&mut plane, 0, &[("a", 20_000)], 5.5 * INTERVAL);
    assert_eq!(sent_bytes(&plane, "a"), 20_000.0);
    assert_eq!(plane.rejected_entries(), weir_coordinator::control_plane::RejectedEntries::default());
    report_flows(&mut plane, 0, &[("a", 19_999)], 5.75 * INTERVAL);
    assert_eq!((sent_bytes(&plane, "a"), plane.rejected_entries().decreasing), (20_000.0, 1));
    plane.tick(6.0 * INTERVAL);
    assert!((sent_bytes(&plane, "a") - 20_000.0 - first * 0.5 * INTERVAL).abs() < 1e-3);
    // Flows of a host without a report for more than a lease have no estimated progress.
    let after_lease = 6.0 * INTERVAL + 2.0 * Settings::default().lease;
    plane.tick(after_lease);
    let before = sent_bytes(&plane, "a");
    plane.tick(after_lease + INTERVAL);
    assert_eq!(sent_bytes(&plane, "a"), before);
}

fn measurement(from: impl Into<IpAddr>, to: impl Into<IpAddr>, mark: u8, rate: u64) -> UdpMeasurement {
    UdpMeasurement {
        flow: UdpFlow { src: from.into(), dst: to.into(), mark: Mark::new(mark).unwrap() },
        rate,
    }
}

fn report_of(udp_measurements: Vec<UdpMeasurement>) -> Report {
    Report { udp_measurements, ..Report::default() }
}

fn throttling_plane() -> ControlPlane {
    crate::small_cluster::throttling_plane(equal_links(), "fair", 1)
}

/// UDP measurements in the orders to each host.
fn forwarded_measurements(plane: &mut ControlPlane, now: f64) -> Vec<(u32, Vec<UdpMeasurement>)> {
    let orders = plane.tick(now).into_iter().map(|(host, order)| (host, order.udp_measurements));
    let mut forwarded: Vec<(u32, Vec<UdpMeasurement>)> =
        orders.filter(|(_, measurements)| !measurements.is_empty()).collect();
    forwarded.sort_by_key(|(host, _)| *host);
    forwarded
}

#[test]
fn udp_measurements_are_forwarded_to_senders() {
    check_forwarding(|host| address(host).into());
    check_forwarding(ipv6_address);
}

/// Measurements between the addresses of hosts reach the senders.
fn check_forwarding(address: impl Fn(u32) -> IpAddr) {
    let mut plane = throttling_plane();
    assert_eq!(plane.udp_control(), Some(UdpControl::Throttling));
    report_all_hosts(&mut plane, 0.0);
    plane.tick(0.0);
    let measurement_from = |from, mark, rate| measurement(address(from), address(2), mark, rate);
    plane.report(
        2,
        &report_of(vec![
            measurement_from(0, 1, 1000),
            measurement_from(0, 2, 2000),
            measurement_from(1, 1, 3000),
        ]),
        0.001,
    );
    // Of two measurements before an order, the later one is forwarded.
    plane.report(2, &report_of(vec![measurement_from(0, 1, 1100)]), 0.002);
    plane.report(3, &report_of(vec![measurement(address(0), address(3), 1, 4000)]), 0.003);
    let to_first = vec![
        measurement_from(0, 1, 1100),
        measurement(address(0), address(3), 1, 4000),
        measurement_from(0, 2, 2000),
    ];
    let sorted = {
        let mut all = to_first;
        all.sort_by_key(|measurement| measurement.flow);
        all
    };
    assert_eq!(
        forwarded_measurements(&mut plane, INTERVAL),
        [(0, sorted), (1, vec![measurement_from(1, 1, 3000)])]
    );
    // Each measurement is sent once.
    assert_eq!(
        (forwarded_measurements(&mut plane, 2.0 * INTERVAL), plane.forwarded_udp_measurements()),
        (vec![], 4)
    );
    assert_eq!(plane.rejected_entries(), Default::default());

    // A host without a recent report gets no measurements, and measurements of that time are dropped.
    report_all_hosts(&mut plane, 1.0);
    plane.report(2, &report_of(vec![measurement_from(0, 1, 1000)]), 1.07);
    assert_eq!(forwarded_measurements(&mut plane, 1.1), []);
    report_all_hosts(&mut plane, 1.2);
    assert_eq!((forwarded_measurements(&mut plane, 1.2), plane.forwarded_udp_measurements()), (vec![], 4));
}

#[test]
fn udp_measurements_count_for_own_addresses_up_to_the_link_rate() {
    let mut plane = throttling_plane().with_switches(vec![vec![Some(1)]]);
    report_all_hosts(&mut plane, 0.0);
    plane.tick(0.0);
    let link_rate = LINK_RATE as u64;
    // Measurements of another host's address are rejected, also those of a switch. Multicast and unknown addresses are
    // ignored and not counted.
    plane.report(1, &report_of(vec![measurement(address(0), address(2), 1, 1000)]), 0.001);
    plane.report(1, &report_of(vec![measurement(address(0), address(77), 1, 1000)]), 0.001);
    let multicast = Ipv4Addr::new(224, 0, 0, 1);
    plane.report(1, &report_of(vec![measurement(address(0), multicast, 1, 1000)]), 0.001);
    plane.report(HOSTS, &report_of(vec![measurement(address(0), address(1), 1, 1000)]), 0.001);
    assert_eq!(plane.rejected_entries().foreign_flow, 2);
    // A sender outside the configuration.
    plane.report(1, &report_of(vec![measurement(address(77), address(1), 1, 1000)]), 0.001);
    assert_eq!(
        (forwarded_measurements(&mut plane, INTERVAL), plane.rejected_entries().above_link_rate),
        (vec![], 0)
    );
    // Rates above the capacity of the host's link, alone or in sum.
    let measurement_of = |mark, rate| measurement(address(0), address(1), mark, rate);
    let reported = [
        measurement_of(1, link_rate),
        measurement_of(2, 2 * link_rate),
        measurement_of(3, u64::MAX),
        measurement_of(4, link_rate),
        measurement_of(5, link_rate),
        measurement_of(6, 1000),
    ];
    plane.report(1, &report_of(reported.to_vec()), 0.01);
    let accepted = vec![measurement_of(1, link_rate), measurement_of(4, link_rate), measurement_of(6, 1000)];
    assert_eq!(
        (forwarded_measurements(&mut plane, 2.0 * INTERVAL), plane.rejected_entries().above_link_rate),
        (vec![(0, accepted)], 3)
    );
    // A host number that does not exist.
    plane.report(77, &report_of(vec![measurement_of(1, 1)]), 0.02);
    assert_eq!(plane.rejected_entries().unknown_host, 1);
}

#[test]
fn forwarded_measurements_fit_one_order() {
    let max = weir_proto::MAX_UDP_FLOWS as u32;
    // One host sends to all addresses of another host, which has more addresses than an order can contain.
    let of_receiver = (0..2 * max).map(|number| (address(1000 + number).into(), 1));
    let addresses = of_receiver.chain([(address(0).into(), 0)]).collect();
    let mut plane = control_plane("fair", 1).with_throttling(addresses);
    report_all_hosts(&mut plane, 0.0);
    plane.tick(0.0);
    let report_part = |from| {
        let measurement_of = |number| measurement(address(0), address(1000 + number), 1, 1);
        report_of((from..from + max).map(measurement_of).collect())
    };
    plane.report(1, &report_part(0), 0.001);
    plane.report(1, &report_part(10), 0.001);
    assert_eq!(plane.rejected_entries().too_many, 10);
    let forwarded = forwarded_measurements(&mut plane, INTERVAL);
    assert_eq!((forwarded.len(), forwarded[0].1.len()), (1, max as usize));
}

#[test]
fn no_measurements_are_forwarded_without_throttling() {
    let mut plane = control_plane("fair", 1);
    assert_eq!(plane.udp_control(), None);
    report_all_hosts(&mut plane, 0.0);
    plane.report(1, &report_of(vec![measurement(address(0), address(1), 1, 1000)]), 0.0);
    assert_eq!(
        (
            forwarded_measurements(&mut plane, INTERVAL),
            plane.forwarded_udp_measurements(),
            plane.rejected_entries()
        ),
        (vec![], 0, Default::default())
    );
}

/// A control plane with an allocator for services with these weights and excess weights; application `s0` belongs to
/// the first service, and so on.
fn allocating_plane(weights: &[f64], excess: Option<&[f64]>) -> ControlPlane {
    let addresses = (0..HOSTS).map(|host| (address(host).into(), host)).collect();
    let mut plane = control_plane("fair", 1).with_allocation(addresses);
    let service_of_application =
        (0..weights.len()).map(|service| (format!("s{service}").into(), service as u32)).collect();
    plane.set_services(ServiceWeights::new(weights.to_vec(), excess, service_of_application).unwrap());
    plane
}

fn observed_with_demand(application: &str, to: u32, open: u32, demand: Demand) -> ObservedConnections {
    ObservedConnections {
        application: application.into(),
        peer: address(to).into(),
        open_connections: open,
        sent_bytes: 1,
        demand,
    }
}

/// A host confirms its last order and reports observed connections.
fn report_observed(plane: &mut ControlPlane, host: u32, observed: Vec<ObservedConnections>, now: f64) {
    let applied = (1, plane.host_statuses()[host as usize].ordered_seq);
    plane.report(host, &Report { applied, observed, ..Report::default() }, now);
}

/// Limits in the next orders, in kB/s; `None` removes a limit.
fn ordered_limits(plane: &mut ControlPlane, now: f64) -> Vec<(u32, String, u32, Option<u64>)> {
    for (host, state) in (0..).zip(plane.host_statuses()) {
        plane.report(host, &Report { applied: (1, state.ordered_seq), ..Report::default() }, now);
    }
    let orders = plane.tick(now).into_iter();
    let limits = orders.flat_map(|(host, order)| order.limits.into_iter().map(move |limit| (host, limit)));
    let to_entry = |(host, Limit { application, peer, rate }): (u32, Limit)| {
        let to = (0..HOSTS).find(|&to| peer == std::net::IpAddr::from(address(to))).unwrap();
        let rate = match rate {
            OrderedRate::Rate(rate) => Some((rate as f64 / 1e3).round() as u64),
            _ => None,
        };
        (host, application.to_string(), to, rate)
    };
    let mut limits: Vec<_> = limits.map(to_entry).collect();
    limits.sort();
    limits
}

fn expected_limits(limits: &[(u32, &str, u32, Option<u64>)]) -> Vec<(u32, String, u32, Option<u64>)> {
    limits.iter().map(|&(host, application, to, rate)| (host, application.to_owned(), to, rate)).collect()
}

/// NetShare, Fig. 5 (3.3): three services with equal weights, of which the last is idle. In the second case, two thirds of
/// the unused bandwidth go to the first service. The allocator divides 980.1 kB/s of links of 1 MB/s.
#[test]
fn service_limits_equal_netshare_fig_5() {
    for (excess, expected) in [(None, [490, 490]), (Some(&[2.0, 1.0, 1.0][..]), [545, 436])] {
        let mut plane = allocating_plane(&[1.0; 3], excess);
        let observed = vec![
            observed_with_demand("s0", 1, 3, Demand::Unlimited),
            observed_with_demand("s1", 1, 1, Demand::Unlimited),
        ];
        report_observed(&mut plane, 0, observed, 0.0);
        let expected = [(0, "s0", 1, Some(expected[0])), (0, "s1", 1, Some(expected[1]))];
        assert_eq!(ordered_limits(&mut plane, 0.05), expected_limits(&expected));
        // Only full orders contain unchanged limits again.
        assert_eq!(ordered_limits(&mut plane, 0.1), []);
        plane.require_full_order(0);
        assert_eq!(ordered_limits(&mut plane, 0.108), expected_limits(&expected));
        // The third service becomes active.
        let observed = vec![observed_with_demand("s2", 2, 1, Demand::Unlimited)];
        report_observed(&mut plane, 0, observed, 0.11);
        let thirds = [(0, "s0", 1, Some(327)), (0, "s1", 1, Some(327)), (0, "s2", 2, Some(327))];
        assert_eq!(ordered_limits(&mut plane, 0.16), expected_limits(&thirds));
        // The third service becomes idle again; the application `x` is not registered, so it gets no limit.
        let observed = vec![
            observed_with_demand("s2", 2, 0, Demand::Unknown),
            observed_with_demand("x", 1, 1, Demand::Unlimited),
        ];
        report_observed(&mut plane, 0, observed, 0.17);
        let mut last = expected_limits(&expected);
        last.push((0, "s2".to_owned(), 2, None));
        assert_eq!(ordered_limits(&mut plane, 0.22), last);
    }
}

/// If the demand of a flow is below its rate, other flows get the residual capacity, and the flow may grow to its lower bound
/// or by a tenth. Links into hosts limit rates, and the number of connections does not change them.
#[test]
fn unused_bandwidth_goes_to_other_services() {
    let mut plane = allocating_plane(&[1.0, 1.0], None);
    let observed = vec![
        observed_with_demand("s0", 3, 1, Demand::Rate(100_000)),
        observed_with_demand("s1", 3, 1, Demand::Unlimited),
    ];
    report_observed(&mut plane, 0, observed, 0.0);
    assert_eq!(
        ordered_limits(&mut plane, 0.05),
        expected_limits(&[(0, "s0", 3, Some(490)), (0, "s1", 3, Some(880))])
    );
    // A second host sends to the same link. Its lower bound is half of its service's weighted share, and its demand is
    // below that.
    let observed = vec![observed_with_demand("s1", 3, 200, Demand::Rate(240_000))];
    report_observed(&mut plane, 1, observed, 0.06);
    let limits = ordered_limits(&mut plane, 0.11);
    assert_eq!(limits, expected_limits(&[(0, "s1", 3, Some(640)), (1, "s1", 3, Some(264))]));
    // Connections without a measured demand, and those inside a host, get no limit.
    let observed = vec![
        observed_with_demand("s0", 1, 1, Demand::Unlimited),
        observed_with_demand("s1", 3, 200, Demand::Unknown),
    ];
    report_observed(&mut plane, 1, observed, 0.12);
    let limits = ordered_limits(&mut plane, 0.17);
    assert_eq!(limits, expected_limits(&[(0, "s1", 3, Some(880)), (1, "s1", 3, None)]));
    assert_eq!(plane.limits().len(), 2);
    // A host without reports gets no share, so only the other host receives limits.
    report_observed(&mut plane, 1, vec![observed_with_demand("s1", 3, 1, Demand::Unlimited)], 0.18);
    assert_eq!(
        ordered_limits(&mut plane, 0.23),
        expected_limits(&[(0, "s1", 3, Some(440)), (1, "s1", 3, Some(440))])
    );
    for step in 0..60 {
        let applied = (1, plane.host_statuses()[0].ordered_seq);
        let now = 0.23 + f64::from(step) * INTERVAL;
        plane.report(0, &Report { applied, ..Report::default() }, now);
        plane.tick(now);
    }
    let limits: Vec<u64> = plane.limits().into_values().map(|limit| limit / 1000).collect();
    assert_eq!(limits, [490, 880]);
}

/// Coflows at a receiver's link count as one more service of weight 1: their rates come off the other services, up to their
/// weighted share.
#[test]
fn coflows_come_off_the_capacity_of_services() {
    let mut plane = allocating_plane(&[3.0, 1.0], None);
    let observed = vec![
        observed_with_demand("s0", 3, 1, Demand::Unlimited),
        observed_with_demand("s1", 3, 8, Demand::Unlimited),
    ];
    report_observed(&mut plane, 0, observed, 0.0);
    let without_coflows = [(0, "s0", 3, Some(735)), (0, "s1", 3, Some(245))];
    assert_eq!(ordered_limits(&mut plane, 0.05), expected_limits(&without_coflows));
    plane.register("a", registration(&[(1, 3, 1e9)]), 0.06).unwrap();
    report_flow(&mut plane, 1, flow_key("a", 0), 0.06);
    plane.tick(0.07);
    let with_coflow = [(0, "s0", 3, Some(588)), (0, "s1", 3, Some(196))];
    assert_eq!(ordered_limits(&mut plane, 0.12), expected_limits(&with_coflow));
    plane.deregister("a", 0.13).unwrap();
    assert_eq!(ordered_limits(&mut plane, 0.18), expected_limits(&without_coflows));
}

/// A host that misreports demands reduces neither other services nor flows on other links, and the number of its flows
/// is limited.
#[test]
fn misreported_demands_do_not_exceed_the_services_share() {
    let mut plane = allocating_plane(&[1.0, 1.0], None);
    report_observed(&mut plane, 0, vec![observed_with_demand("s0", 3, 1, Demand::Unlimited)], 0.0);
    let unlimited_to = |at: u32, to: u32| ObservedConnections {
        application: format!("s{}", at % 2).into(),
        peer: Ipv4Addr::from(0x0b00_0000 + at).into(),
        ..observed_with_demand("s0", to, u32::MAX, Demand::Unlimited)
    };
    let many: Vec<ObservedConnections> = (0..4000).map(|at| unlimited_to(at, 3)).collect();
    report_observed(&mut plane, 1, many, 0.0);
    assert_eq!(plane.rejected_entries().too_many, 4000 - 1024);
    report_observed(&mut plane, 1, vec![observed_with_demand("s1", 3, u32::MAX, Demand::Unlimited)], 0.0);
    plane.tick(0.05);
    let limits = plane.limits();
    assert_eq!(limits.len(), 1 + 1024);
    let own_limit = limits.iter().find(|((host, ..), _)| *host == 0).unwrap();
    assert_eq!(own_limit.1 / 1000, 980);
    // After the host disconnects, its flows are removed.
    plane.clear_observed(1);
    report_observed(&mut plane, 1, vec![observed_with_demand("s1", 3, u32::MAX, Demand::Unlimited)], 0.06);
    plane.tick(0.11);
    let limits: Vec<u64> = plane.limits().into_values().map(|limit| limit / 1000).collect();
    assert_eq!(limits, [490, 490]);
}

/// Random demands: no limit is zero, and the limits of flows with unlimited demand on a link sum to at most its
/// capacity.
#[test]
fn limits_for_unlimited_demands_fit_into_links() {
    let mut state = 7u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for round in 0..50 {
        let excess = [random(3) as f64, 1.0, 0.0];
        let mut plane = allocating_plane(&[1.0, 2.0, 5.0], Some(&excess[..]).filter(|_| round % 2 == 0));
        let mut flow_count = 0;
        for host in 0..HOSTS {
            let mut observed = Vec::new();
            for service in 0..3 {
                for to in (0..HOSTS).filter(|&to| to != host) {
                    if random(3) == 0 {
                        observed.push(observed_with_demand(
                            &format!("s{service}"),
                            to,
                            1 + random(4) as u32,
                            Demand::Unlimited,
                        ));
                        flow_count += 1;
                    }
                }
            }
            report_observed(&mut plane, host, observed, 0.0);
        }
        plane.tick(0.05);
        let (mut out, mut into) = ([0.0; HOSTS as usize], [0.0; HOSTS as usize]);
        let limits = plane.limits();
        assert_eq!(limits.len(), flow_count);
        for ((from, _, to), limit) in limits {
            assert!(limit > 0);
            out[from as usize] += limit as f64;
            let to = (0..HOSTS).find(|&host| to == std::net::IpAddr::from(address(host))).unwrap();
            into[to as usize] += limit as f64;
        }
        // Limits are at least one byte per second.
        let max_rate = 0.9801 * LINK_RATE + flow_count as f64;
        assert!(out.iter().chain(&into).all(|&sum| sum <= max_rate), "{out:?} {into:?}");
        // With weights alone, each flow crosses a link without residual capacity.
        for (from, _, to) in plane.limits().into_keys().filter(|_| round % 2 == 1) {
            let to = (0..HOSTS).find(|&host| to == std::net::IpAddr::from(address(host))).unwrap();
            let max_load = out[from as usize].max(into[to as usize]);
            assert!(max_load > 0.9801 * LINK_RATE - flow_count as f64, "{from} to {to}: {out:?} {into:?}");
        }
    }
}

/// Sets the rate of the first coflow's flow twice.
struct RateSetTwice;

impl Policy for RateSetTwice {
    type Knowledge = SizesUnknown;

    fn schedule(&mut self, view: &mut View<'_, SizesUnknown>, out: &mut Allocation) {
        for &slot in view.active_coflows() {
            out.add_flow_rate(slot, 0, 1.0);
            out.add_flow_rate(slot, 0, 1.0);
        }
    }
}

#[test]
fn tcp_divides_the_links_after_an_invalid_decision_of_a_policy() {
    let policy = || AnyPolicy::from(RateSetTwice).checked("twice");
    let settings = Settings::default();
    let mut plane = ControlPlane::new(equal_links(), policy(), ServiceNames::default(), settings, 1).unwrap();
    plane.register("a", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
    report_flow(&mut plane, 0, flow_key("a", 0), 0.0);
    let ordered = |plane: &ControlPlane, id| plane.coflow_status(id).unwrap().flows[0].ordered_rate;
    plane.tick(0.0);
    assert_eq!(ordered(&plane, "a"), Some(OrderedRate::Unlimited));
    let expected = "policy `twice` at 0s: coflow a, host h0 (sending), host h1 (receiving): two rates for one flow; expected one \
                    call of `Allocation::add_flow_rate`";
    assert_eq!(plane.take_policy_error(), Some(expected));
    assert_eq!(plane.take_policy_error(), None);
    // Later coflows are not limited either, and the error is not repeated.
    plane.register("b", registration(&[(0, 2, 1e6)]), 0.001).unwrap();
    report_flow(&mut plane, 0, flow_key("b", 0), 0.001);
    plane.tick(0.002);
    assert_eq!(["a", "b"].map(|id| ordered(&plane, id)), [Some(OrderedRate::Unlimited); 2]);
    assert_eq!(plane.take_policy_error(), None);
    // Another policy decides again.
    plane.set_policy(build("varys").unwrap(), 0.003).unwrap();
    plane.tick(0.004);
    assert_eq!(ordered(&plane, "a"), Some(OrderedRate::Rate(959_192)));
    plane.set_policy(policy(), 0.005).unwrap();
    plane.tick(0.006);
    assert!(plane.take_policy_error().is_some());
}

/// A step of a program, its framework or its agent.
#[derive(Debug, Clone, Copy)]
enum RegistrationStep {
    /// The framework registers the coflow, or removes it.
    Register,
    Deregister,
    /// The program hands over a new socket for the flow.
    HandOver,
    /// All sockets send this many bytes.
    Send(u16),
    /// The agent reports all sockets, and applies the next order.
    Interval,
}

fn registration_step() -> impl Strategy<Value = RegistrationStep> {
    prop_oneof![
        1 => Just(RegistrationStep::Register),
        1 => Just(RegistrationStep::Deregister),
        1 => Just(RegistrationStep::HandOver),
        1 => (1..100u16).prop_map(RegistrationStep::Send),
        3 => Just(RegistrationStep::Interval),
    ]
}

proptest! {
    #![proptest_config(config_with_cases(256))]

    /// A coflow with one id is registered and removed any number of times, while its program hands over sockets. The coordinator
    /// counts the bytes of sockets that joined the current registration, and no others.
    #[test]
    fn bytes_count_for_the_registration_of_their_socket(steps in vec(registration_step(), 1..80)) {
        let mut plane = control_plane("saath", 1);
        let mut lease = LeaseState::new(vec![Rate::new(LINK_RATE).unwrap()]);
        let coflow: Arc<str> = "a".into();
        // The generation of each socket (0 before an order), and its bytes.
        let mut sockets: Vec<(u64, u64)> = Vec::new();
        let (mut now, mut generation, mut is_registered) = (0.0, 1, false);
        for step in steps {
            match step {
                RegistrationStep::Register if !is_registered => {
                    generation += 1;
                    let requested = Registration { generation, ..registration(&[(0, 1, 1e12)]) };
                    prop_assert_eq!(plane.register("a", requested, now), Ok(true));
                    is_registered = true;
                    prop_assert_eq!(plane.coflow_status("a").unwrap().flows[0].sent_bytes, 0.0);
                }
                RegistrationStep::Deregister if is_registered => {
                    plane.deregister("a", now).unwrap();
                    is_registered = false;
                }
                RegistrationStep::Register | RegistrationStep::Deregister => {}
                RegistrationStep::HandOver => sockets.push((lease.newest_generation(&coflow).unwrap_or(0), 0)),
                RegistrationStep::Send(bytes) => sockets.iter_mut().for_each(|socket| socket.1 += u64::from(bytes)),
                RegistrationStep::Interval => {
                    now += INTERVAL;
                    let mut sent_bytes: BTreeMap<u64, u64> = BTreeMap::new();
                    for (generation, sent) in sockets.iter().filter(|socket| socket.0 != 0) {
                        *sent_bytes.entry(*generation).or_default() += sent;
                    }
                    let rejected = plane.rejected_entries().former_generation;
                    let progress = |(&generation, &sent)| FlowProgress::new(FlowKey { coflow: Arc::clone(&coflow), generation, flow: 0 }, sent, SenderState::Ready);
                    let flows = sent_bytes.iter().map(progress).collect();
                    plane.report(0, &Report { applied: lease.applied(), flows, ..Report::default() }, now);
                    if is_registered {
                        let counted = plane.coflow_status("a").unwrap().flows[0].sent_bytes;
                        prop_assert_eq!(counted, sent_bytes.remove(&generation).unwrap_or(0) as f64);
                        let rejected = plane.rejected_entries().former_generation - rejected;
                        prop_assert_eq!(rejected, sent_bytes.len() as u64);
                    }
                    for (_, order) in plane.tick(now).into_iter().filter(|(host, _)| *host == 0) {
                        lease.accept(order, Duration::from_secs_f64(now)).unwrap();
                    }
                    for (own, _) in &mut sockets {
                        let key = FlowKey { coflow: Arc::clone(&coflow), generation: *own, flow: 0 };
                        *own = lease.new_generation(&key).unwrap_or(*own);
                    }
                }
            }
        }
    }
}
