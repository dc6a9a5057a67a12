//! Tests of which flows have a rate: those that compete with another coflow or with a service, and those over UDP.

use weir_coordinator::control_plane::{
    ControlPlane, Demand, FlowProgress, ObservedConnections, OrderedRate, Registration, Report, SenderState,
    Settings,
};
use weir_core::model::ServiceNames;
use weir_core::policy::build;

use crate::small_cluster::{
    HOSTS, INTERVAL, address, control_plane, equal_links, flow_key, oversubscribed_links, registration,
};

/// All hosts report that flow 0 of these coflows has data, and confirm their orders. Returns the rates of the next orders.
fn rates_of<const N: usize>(plane: &mut ControlPlane, ids: [&str; N], now: f64) -> [OrderedRate; N] {
    let applied: Vec<u64> = plane.host_statuses().iter().map(|host| host.ordered_seq).collect();
    for host in 0..HOSTS {
        let sends = |id: &&&str| plane.coflow_status(id).unwrap().registration.flows[0].src == host;
        let flows =
            ids.iter().filter(sends).map(|id| FlowProgress::new(flow_key(id, 0), 0, SenderState::Ready));
        let report =
            Report { applied: (1, applied[host as usize]), flows: flows.collect(), ..Report::default() };
        plane.report(host, &report, now);
    }
    plane.tick(now);
    ids.map(|id| plane.coflow_status(id).unwrap().flows[0].ordered_rate.unwrap())
}

const FULL_RATE: OrderedRate = OrderedRate::Rate(959_192);
const RESERVE_RATE: OrderedRate = OrderedRate::Reserve(9_688);

#[test]
fn coflows_have_rates_while_they_compete() {
    for policy in ["saath", "varys", "aalo", "sincronia", "weir", "fifo"] {
        let mut plane = control_plane(policy, 1);
        plane.register("a", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
        plane.register("b", registration(&[(2, 3, 1e6)]), 0.0).unwrap();
        assert_eq!(rates_of(&mut plane, ["a", "b"], 0.0), [OrderedRate::Unlimited; 2], "{policy}");
        // Its first flow competes with the one coflow, and its second flow with the other one.
        plane.register("c", registration(&[(0, 2, 1e6), (1, 3, 1e6)]), INTERVAL).unwrap();
        let rates = rates_of(&mut plane, ["a", "b", "c"], INTERVAL);
        assert!(!rates.contains(&OrderedRate::Unlimited), "{policy}: {rates:?}");
        plane.deregister("c", 2.0 * INTERVAL).unwrap();
        assert_eq!(rates_of(&mut plane, ["a", "b"], 2.0 * INTERVAL), [OrderedRate::Unlimited; 2], "{policy}");
    }
}

/// Hosts 0 and 1 are under one leaf, whose uplinks carry half as much as both.
#[test]
fn coflows_compete_at_links_between_switches() {
    let policy = build("saath").unwrap();
    let links = oversubscribed_links();
    let mut plane =
        ControlPlane::new(links, policy, ServiceNames::default(), Settings::default(), 1).unwrap();
    plane.register("a", registration(&[(0, 2, 1e6)]), 0.0).unwrap();
    plane.register("b", registration(&[(1, 3, 1e6)]), 0.0).unwrap();
    let rates = rates_of(&mut plane, ["a", "b"], 0.0);
    assert!(!rates.contains(&OrderedRate::Unlimited), "{rates:?}");
}

/// Services share a link by weight while both send. The low weight of one is no limit while the other one sends nothing.
#[test]
fn coflow_of_a_service_with_a_low_weight_is_unlimited_while_it_is_alone() {
    let mut names = ServiceNames::empty();
    names.intern("ads", "default").unwrap();
    names.intern("web", "default").unwrap();
    names.set_weight(0, 3.0);
    let policy = build("netshare").unwrap();
    let mut plane = ControlPlane::new(equal_links(), policy, names, Settings::default(), 1).unwrap();
    let of_service =
        |service: &str| Registration { service: service.to_owned(), ..registration(&[(0, 1, 1e6)]) };
    plane.register("web", of_service("web"), 0.0).unwrap();
    assert_eq!(rates_of(&mut plane, ["web"], 0.0), [OrderedRate::Unlimited]);
    plane.register("ads", of_service("ads"), INTERVAL).unwrap();
    let rates = rates_of(&mut plane, ["web", "ads"], INTERVAL);
    assert_eq!(rates, [OrderedRate::Rate(239_798), OrderedRate::Rate(719_394)]);
}

/// The kernel does not adapt UDP to congestion, and the coordinator estimates its progress from the rate.
#[test]
fn udp_flow_has_a_rate_without_competition() {
    let mut plane = control_plane("saath", 1);
    plane.register("a", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
    let mut report_and_tick = |udp, now| {
        let progress = FlowProgress { udp, ..FlowProgress::new(flow_key("a", 0), 0, SenderState::Ready) };
        plane.report(0, &Report { applied: (1, 0), flows: vec![progress], ..Report::default() }, now);
        plane.tick(now);
        plane.coflow_status("a").unwrap().flows[0].ordered_rate.unwrap()
    };
    assert_eq!(report_and_tick(false, 0.0), OrderedRate::Unlimited);
    assert_eq!(report_and_tick(true, INTERVAL), FULL_RATE);
}

/// An idle flow waits for nothing. It gets its share of the reserve, and a rate when it has data again.
#[test]
fn idle_flows_do_not_limit_others() {
    let mut plane = control_plane("saath", 1);
    plane.register("idle", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
    plane.register("busy", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
    assert_eq!(rates_of(&mut plane, ["idle", "busy"], 0.0), [FULL_RATE, RESERVE_RATE]);
    let idle = FlowProgress::new(flow_key("idle", 0), 0, SenderState::Idle);
    plane.report(0, &Report { applied: (1, 1), flows: vec![idle], ..Report::default() }, INTERVAL);
    assert_eq!(rates_of(&mut plane, ["busy"], INTERVAL), [OrderedRate::Unlimited]);
    assert_eq!(plane.coflow_status("idle").unwrap().flows[0].ordered_rate, Some(RESERVE_RATE));
    assert_eq!(rates_of(&mut plane, ["idle", "busy"], 2.0 * INTERVAL), [FULL_RATE, RESERVE_RATE]);
}

/// The rates of coflows come off what services divide, so coflows next to observed connections have rates.
#[test]
fn coflows_next_to_observed_connections_have_rates() {
    let addresses = (0..HOSTS).map(|host| (address(host).into(), host)).collect();
    let mut plane = control_plane("saath", 1).with_allocation(addresses);
    plane.register("a", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
    plane.register("b", registration(&[(2, 3, 1e6)]), 0.0).unwrap();
    assert_eq!(rates_of(&mut plane, ["a", "b"], 0.0), [OrderedRate::Unlimited; 2]);
    let observed = |to: u32, open_connections| ObservedConnections {
        application: "web".into(),
        peer: address(to).into(),
        open_connections,
        sent_bytes: 1,
        demand: Demand::Unknown,
    };
    let cases = [
        // At the host of the sender, of the receiver, and from another host to that of the receiver.
        (0, 2, [FULL_RATE, OrderedRate::Unlimited]),
        (1, 0, [FULL_RATE, OrderedRate::Unlimited]),
        (0, 3, [FULL_RATE, FULL_RATE]),
    ];
    for (step, (host, to, expected)) in (1..).step_by(2).zip(cases) {
        let now = step as f64 * INTERVAL;
        plane.report(host, &Report { observed: vec![observed(to, 1)], ..Report::default() }, now);
        assert_eq!(rates_of(&mut plane, ["a", "b"], now), expected, "host {host} to {to}");
        plane.report(host, &Report { observed: vec![observed(to, 0)], ..Report::default() }, now);
        assert_eq!(rates_of(&mut plane, ["a", "b"], now + INTERVAL), [OrderedRate::Unlimited; 2]);
    }
}
