//! Tests of the control plane, one call at a time.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::small::{HOSTS, LINE, STEP, address, key, links, plane, registration};
use weir_agent::lease::LeaseState;
use weir_coordinator::plane::{
    Arrival, ControlPlane, Demand, FlowKey, FlowProgress, Found, Limit, Mark, Order, Pace, Queues, Refusal,
    Refusals, Registration, Report, Services, Settings, Way,
};
use weir_core::model::Names;
use weir_core::policy::build;
use weir_core::units::Rate;

/// All hosts send an empty report, which keeps them present.
fn all_report(plane: &mut ControlPlane, now: f64) {
    for host in 0..HOSTS {
        plane.report(host, &Report::default(), now);
    }
}

/// A host reports a flow that has sent nothing so far, and confirms its last order.
fn has(plane: &mut ControlPlane, host: u32, key: FlowKey, now: f64) {
    let flows = vec![FlowProgress { key, sent: 0, closed: false }];
    let obeys = (1, plane.hosts()[host as usize].told);
    plane.report(host, &Report { obeys, flows, ..Report::default() }, now);
}

#[test]
fn repeated_registration_is_idempotent_and_a_different_body_is_refused() {
    let mut plane = plane("saath", 1);
    let asked = registration(&[(0, 1, 5e5)]);
    assert_eq!(plane.register("a", asked.clone(), 0.0), Ok(true));
    assert_eq!(plane.register("a", asked.clone(), 1.0), Ok(false));
    let other = registration(&[(0, 2, 5e5)]);
    assert_eq!(plane.register("a", other, 1.0), Err(Refusal::Taken("a".to_owned())));
    assert_eq!(plane.under_way(), 1);
    assert_eq!(plane.deregister("a", 2.0), Ok(()));
    assert_eq!(plane.deregister("a", 2.0), Err(Refusal::Unknown("a".to_owned())));
    assert_eq!(plane.under_way(), 0);
}

#[test]
fn invalid_registrations_are_refused() {
    let mut plane = plane("varys", 1);
    let host = registration(&[(0, 1, 5e5), (0, HOSTS, 1.0)]);
    assert_eq!(plane.register("a", host, 0.0), Err(Refusal::Host { flow: 1, host: 4, last: 3 }));
    assert_eq!(plane.register("a", registration(&[]), 0.0), Err(Refusal::Empty));
    assert_eq!(plane.register("a b", registration(&[(0, 1, 1.0)]), 0.0), Err(Refusal::Id("a b".to_owned())));
    let mut unsized_flow = registration(&[(0, 1, 1.0)]);
    unsized_flow.flows[0].bytes = None;
    assert_eq!(plane.register("a", unsized_flow, 0.0), Err(Refusal::Size(0)));
    let weight = Registration { weight: f64::NAN, ..registration(&[(0, 1, 1.0)]) };
    assert!(matches!(plane.register("a", weight, 0.0), Err(Refusal::Weight(_))));
    let nobody = Registration { service: "x".to_owned(), ..registration(&[(0, 1, 1.0)]) };
    assert!(matches!(plane.register("a", nobody, 0.0), Err(Refusal::Name(_))));
    assert_eq!(plane.under_way(), 0);
}

/// The number of flows of a host, which bounds an order, and of all hosts is limited.
#[test]
fn flows_per_host_and_in_all_are_limited() {
    let settings = Settings { most_flows: 5, most_of_host: 3, keep: 1.0, ..Settings::default() };
    let policy = build("saath").unwrap();
    let mut plane = ControlPlane::new(&links(), policy, Names::default(), settings, 1).unwrap();
    let full = |what, most| Err(Refusal::Full { what, most });
    plane.register("a", registration(&[(0, 1, 1.0), (0, 2, 1.0)]), 0.0).unwrap();
    let two = registration(&[(0, 1, 1.0), (0, 3, 1.0)]);
    assert_eq!(plane.register("b", two.clone(), 0.0), full("flows of a host", 3));
    let four = registration(&[(1, 0, 1.0), (2, 0, 1.0), (3, 0, 1.0), (3, 1, 1.0)]);
    assert_eq!(plane.register("b", four, 0.0), full("flows", 5));
    // An update replaces the flows of a coflow, so the former ones do not count.
    plane.update("a", &registration(&[(0, 1, 1.0), (0, 2, 1.0), (0, 3, 1.0)]).flows, 0.0).unwrap();
    assert_eq!(plane.register("b", registration(&[(0, 1, 1.0)]), 0.0), full("flows of a host", 3));
    plane.update("a", &registration(&[(0, 1, 1.0)]).flows, 0.0).unwrap();
    assert_eq!(plane.register("b", two.clone(), 0.0), Ok(true));
    plane.deregister("b", 0.0).unwrap();
    // Flows of completed coflows count until the coflow is removed.
    let seen = FlowProgress { key: key("a", 0), sent: 1, closed: true };
    plane.report(0, &Report { obeys: (1, 0), flows: vec![seen], ..Report::default() }, 0.1);
    let three = registration(&[(0, 1, 1.0), (0, 2, 1.0), (0, 3, 1.0)]);
    assert_eq!(plane.register("c", three.clone(), 1.0), full("flows of a host", 3));
    plane.tick(1.2);
    assert_eq!((plane.known(), plane.register("c", three, 1.2)), ((0, 0), Ok(true)));
}

/// Saath Fig. 4 on hosts: the first coflow gets its ports, other coflows the residual capacity, and waiting flows a
/// part of the reserve.
#[test]
fn orders_follow_the_schedule_and_carry_changes_only() {
    let mut plane = plane("saath", 7);
    plane.register("c1", registration(&[(0, 2, 1e6), (1, 3, 1e6)]), 0.0).unwrap();
    plane.register("c2", registration(&[(0, 3, 1e6)]), 0.0).unwrap();
    all_report(&mut plane, 0.0);
    for (host, coflow, flow) in [(0, "c1", 0), (1, "c1", 1), (0, "c2", 0)] {
        has(&mut plane, host, key(coflow, flow), 0.0);
    }
    let orders = plane.tick(0.0);
    let of = |orders: &[(u32, Order)], host: u32| orders.iter().find(|o| o.0 == host).unwrap().1.clone();
    let first = of(&orders, 0);
    assert_eq!((first.epoch, first.seq, first.whole), (7, 1, true));
    // One flow waits, so it gets the whole reserve: a hundredth of each port.
    let full = Pace::Rate(990_000);
    assert_eq!(first.flows, [(key("c1", 0), full), (key("c2", 0), Pace::Rate(10_000))]);
    assert_eq!(of(&orders, 1).flows, [(key("c1", 1), full)]);
    // Without changes, orders only renew leases.
    let renews = |order: &Order| order.flows.is_empty() && !order.whole;
    let reports = |plane: &mut ControlPlane, seq, flows: Vec<FlowProgress>, now| {
        for host in 0..HOSTS {
            let mine = flows.iter().filter(|s| (host == 1) == (s.key.flow == 1)).cloned();
            let flows = if host < 2 { mine.collect() } else { Vec::new() };
            plane.report(host, &Report { obeys: (7, seq), flows, ..Report::default() }, now);
        }
    };
    reports(&mut plane, 1, Vec::new(), 0.008);
    assert!(plane.tick(0.008).iter().all(|(_, order)| renews(order)));
    // While the first coflow has flows, its ports go to no other coflow. It completes on both hosts here.
    let seen = |coflow, flow, sent| FlowProgress { key: key(coflow, flow), sent, closed: true };
    reports(&mut plane, 1, vec![seen("c1", 0, 1_000_000), seen("c1", 1, 1_000_000)], 0.016);
    assert_eq!(plane.is_over("c1"), Some(true));
    let orders = plane.tick(0.016);
    assert_eq!(of(&orders, 0).flows, [(key("c1", 0), Pace::Gone), (key("c2", 0), full)]);
    assert_eq!(of(&orders, 1).flows, [(key("c1", 1), Pace::Gone)]);
    // Orders that only renew a lease come last.
    assert!(orders.iter().map(|(_, order)| renews(order)).is_sorted());
    assert_eq!(orders.iter().filter(|(_, order)| !renews(order)).count(), 2);
    // Leases are renewed every three intervals (a quarter of the lease, rounded up), and each host has its own turn.
    let mut renewed = vec![Vec::new(); HOSTS as usize];
    for step in 3..12u64 {
        let now = step as f64 * STEP;
        for (host, state) in plane.hosts().iter().enumerate() {
            plane.report(host as u32, &Report { obeys: (7, state.told), ..Report::default() }, now);
        }
        for (host, order) in plane.tick(now) {
            assert!(renews(&order), "{order:?}");
            renewed[host as usize].push(step);
        }
    }
    assert_eq!(renewed, [vec![5, 8, 11], vec![3, 6, 9], vec![4, 7, 10], vec![5, 8, 11]]);
}

/// Two lost orders in a row do not end a lease.
#[test]
fn two_lost_orders_in_a_row_do_not_end_a_lease() {
    for first in 2..12 {
        let mut plane = plane("saath", 1);
        plane.register("a", registration(&[(0, 1, 1e9)]), 0.0).unwrap();
        let mut keeper = LeaseState::new(vec![Rate::new(LINE).unwrap()]);
        let (mut under_way, mut orders) = (None, 0);
        for step in 0..100u64 {
            let now = step as f64 * STEP;
            if let Some(order) = under_way.take() {
                let _ = keeper.accept(order, Duration::from_secs_f64(now));
            }
            assert!(
                step == 0 || keeper.rate(&key("a", 0), Duration::from_secs_f64(now)).is_some(),
                "order {first} and the next were lost: the lease is over at step {step}"
            );
            plane.report(0, &Report { obeys: keeper.obeys(), ..Report::default() }, now);
            if let Some((_, order)) = plane.tick(now).pop() {
                orders += 1;
                under_way = Some(order).filter(|_| !(first..first + 2).contains(&orders));
            }
        }
        assert!((25..50).contains(&orders), "{orders} orders in ten leases");
    }
}

/// A changed queue is in one order, and complete orders have all queues.
#[test]
fn orders_carry_changed_queues_once() {
    let mut plane = plane("saath", 1).with_switches(1);
    let queues = |weight| Queues {
        weights: vec![1.0, weight],
        queue_of: vec![0, 1, 1],
        classes: vec![("web".into(), 3)],
        guaranteed: weight > 4.0,
    };
    let mut now = 0.0;
    let mut told = |plane: &mut ControlPlane| {
        for (host, state) in (0..).zip(plane.hosts()) {
            plane.report(host, &Report { obeys: (1, state.told), ..Report::default() }, now);
        }
        now += STEP;
        let mut orders = plane.tick(now);
        assert!(orders.iter().all(|(host, order)| [2, HOSTS].contains(host) || order.queues.is_empty()));
        [2, HOSTS].map(|told| {
            let order = orders.iter_mut().find(|(host, _)| *host == told);
            order.map_or(Vec::new(), |(_, order)| std::mem::take(&mut order.queues))
        })
    };
    assert_eq!(told(&mut plane), [vec![], vec![]]);
    // The host may have connected after its queues were set.
    plane.set_queues(2, 0, queues(3.0));
    plane.set_queues(HOSTS + 1, 0, queues(3.0));
    assert_eq!(told(&mut plane), [vec![(0, queues(3.0))], vec![]]);
    plane.set_queues(2, 0, queues(3.0));
    // A switch has several links.
    for (link, weight) in [(3, 7.0), (1, 5.0)] {
        plane.set_queues(HOSTS, link, queues(weight));
    }
    assert_eq!(told(&mut plane), [vec![], vec![(1, queues(5.0)), (3, queues(7.0))]]);
    plane.set_queues(2, 0, queues(5.0));
    plane.set_queues(HOSTS, 3, queues(9.0));
    assert_eq!(told(&mut plane), [vec![(0, queues(5.0))], vec![(3, queues(9.0))]]);
    plane.renew(2);
    plane.renew(HOSTS);
    let all = [vec![(0, queues(5.0))], vec![(1, queues(5.0)), (3, queues(9.0))]];
    assert_eq!(told(&mut plane), all);
    assert_eq!(told(&mut plane), [vec![], vec![]]);
}

/// Flows and observed connections in reports of switches are rejected.
#[test]
fn flows_reported_by_a_switch_are_rejected() {
    let mut plane = plane("saath", 1).with_switches(1);
    plane.register("a", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
    let seen = FlowProgress { key: key("a", 0), sent: 5, closed: true };
    let (peer, demand) = ([10, 0, 0, 1].into(), Demand::Unknown);
    let found = Found { application: "web".into(), peer, open: 1, sent: 5, demand };
    plane.report(HOSTS, &Report { flows: vec![seen], found: vec![found], ..Report::default() }, 0.001);
    assert_eq!((plane.doubts().foreign, plane.is_over("a")), (2, Some(false)));
    assert_eq!(plane.found(), []);
    let to_switch = plane.register("b", registration(&[(0, HOSTS, 1e6)]), 0.002);
    assert_eq!(to_switch, Err(Refusal::Host { flow: 0, host: HOSTS, last: HOSTS - 1 }));
}

/// Refused orders are summed over all agents, and the sum never decreases.
#[test]
fn refused_orders_are_summed_over_agents_once() {
    let mut plane = plane("saath", 1).with_switches(1);
    let refused = |older, gap| Refusals { older, gap, ..Refusals::default() };
    let says = [
        (0, refused(3, 0)),
        (0, refused(3, 0)),
        (HOSTS, refused(1, 1)),
        (0, refused(4, 0)),
        // The agent restarted.
        (0, refused(0, 2)),
        (0, refused(0, 2)),
        // A host number that does not exist.
        (HOSTS + 1, refused(9, 9)),
    ];
    let mut counts = Vec::new();
    for (host, refusals) in says {
        plane.report(host, &Report { refusals, ..Report::default() }, 0.001);
        counts.push((plane.refusals().older, plane.refusals().gap));
    }
    assert_eq!(counts, [(3, 0), (3, 0), (4, 1), (5, 1), (5, 3), (5, 3), (5, 3)]);
}

/// Observed connections are limited in number, returned once, and removed some time after the host's last report.
#[test]
fn observed_connections_are_limited_and_expire() {
    let mut plane = plane("saath", 1);
    let found = |at: u32, open| Found {
        application: "web".into(),
        peer: std::net::Ipv4Addr::from(at).into(),
        open,
        sent: 1,
        demand: Demand::Unknown,
    };
    let report = |plane: &mut ControlPlane, found: Vec<Found>, now| {
        plane.report(1, &Report { found, ..Report::default() }, now);
        let mut all = plane.found();
        assert!(all.len() <= 1 && all.iter().all(|(host, _)| *host == 1));
        all.pop().map(|(_, found)| found.len())
    };
    assert_eq!(report(&mut plane, (0..4095).map(|at| found(at, 1)).collect(), 0.0), Some(4095));
    assert_eq!(report(&mut plane, Vec::new(), 0.0), None);
    assert_eq!(report(&mut plane, (5000..5003).map(|at| found(at, 1)).collect(), 0.0), Some(4096));
    assert_eq!(plane.doubts().crowded, 2);
    assert_eq!(report(&mut plane, vec![found(0, 0), found(7000, 0)], 0.0), Some(4095));
    assert_eq!(report(&mut plane, vec![found(8000, 1)], 1.0), Some(4096));
    plane.tick(30.0);
    assert_eq!(plane.found(), []);
    plane.tick(32.0);
    assert_eq!(plane.found(), [(1, vec![])]);
}

/// Section 5: a task that moves sends from another host. The bytes that it sent before stay sent.
#[test]
fn update_replaces_flows_and_unchanged_flows_continue() {
    let mut plane = plane("saath", 1);
    plane.register("a", registration(&[(0, 2, 1e6), (1, 2, 1e6)]), 0.0).unwrap();
    all_report(&mut plane, 0.0);
    plane.tick(0.0);
    let moved = registration(&[(0, 2, 1e6), (3, 2, 1e6), (1, 0, 1e6)]).flows;
    assert_eq!(plane.update("b", &moved, 0.004), Err(Refusal::Unknown("b".to_owned())));
    plane.update("a", &moved, 0.004).unwrap();
    for host in 0..HOSTS {
        plane.report(host, &Report { obeys: (1, 1), ..Report::default() }, 0.008);
    }
    let orders = plane.tick(0.008);
    let half = Pace::Rate(495_000);
    let flows = |host: usize| (orders[host].0, orders[host].1.flows.clone());
    // The first flow keeps its rate, so the order does not contain it. Orders to the other hosts only renew leases.
    assert!(orders[2..].iter().all(|(_, order)| order.flows.is_empty()));
    assert_eq!(flows(0), (1, vec![(key("a", 1), Pace::Gone), (key("a", 2), half)]));
    assert_eq!(flows(1), (3, vec![(key("a", 1), half)]));
}

/// Section 4.3: ports report available data. A program that dies after it registered a coflow does not keep ports from
/// other coflows.
#[test]
fn flow_without_a_connection_frees_its_ports_after_a_lease() {
    let mut plane = plane("saath", 1);
    plane.register("dead", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
    plane.register("alive", registration(&[(0, 1, 1e9)]), 0.001).unwrap();
    let names = |plane: &mut ControlPlane, id, now| has(plane, 0, key(id, 0), now);
    let paces = |plane: &mut ControlPlane, now| {
        plane.tick(now);
        ["dead", "alive"].map(|id| plane.show(id).unwrap().flows[0].pace)
    };
    let (full, trickle) = (Some(Pace::Rate(990_000)), Some(Pace::Rate(10_000)));
    names(&mut plane, "alive", 0.002);
    assert_eq!(paces(&mut plane, 0.002), [full, trickle]);
    // Within a lease, the connection could still be handed over.
    names(&mut plane, "alive", 0.079);
    assert_eq!(paces(&mut plane, 0.079), [full, trickle]);
    assert_eq!(paces(&mut plane, 0.081), [trickle, full]);
    // Another policy gets the same state.
    plane.set_policy(build("varys").unwrap(), 0.082).unwrap();
    assert_eq!(paces(&mut plane, 0.083), [trickle, full]);
    plane.set_policy(build("saath").unwrap(), 0.084).unwrap();
    // A host that reconnects does not restart the grace period.
    plane.tick(0.5);
    names(&mut plane, "alive", 0.6);
    assert_eq!(paces(&mut plane, 0.6), [trickle, full]);
    // The connection is handed over later.
    names(&mut plane, "dead", 0.61);
    assert_eq!(paces(&mut plane, 0.61), [full, trickle]);
    // The agent restarts, and only the other program hands its connection over again.
    plane.reconnected(0);
    names(&mut plane, "alive", 0.62);
    assert_eq!(paces(&mut plane, 0.68), [full, trickle]);
    names(&mut plane, "alive", 0.691);
    assert_eq!(paces(&mut plane, 0.692), [trickle, full]);
    let sent = |plane: &ControlPlane| plane.show("dead").unwrap().flows[0].sent;
    let before = sent(&plane);
    names(&mut plane, "alive", 0.7);
    plane.tick(0.75);
    assert_eq!(sent(&plane), before);
    names(&mut plane, "dead", 0.76);
    assert_eq!(paces(&mut plane, 0.76), [full, trickle]);
}

/// Section 5: a new coordinator learns everything but registrations from reports. Two intervals after its start, its
/// orders equal those of the coordinator before.
#[test]
fn restarted_control_plane_sends_equal_orders_within_two_intervals() {
    let paces = |plane: &ControlPlane| ["long", "short"].map(|id| plane.show(id).unwrap().flows[0].pace);
    let says = |plane: &mut ControlPlane, obeys, now| {
        let seen = |id, sent| FlowProgress { key: key(id, 0), sent, closed: false };
        let flows = vec![seen("long", 20_000_000), seen("short", 0)];
        plane.report(0, &Report { obeys, flows, ..Report::default() }, now);
    };
    let registered = |epoch, now| {
        let mut plane = plane("saath", epoch);
        plane.register("long", registration(&[(0, 1, 1e9)]), now).unwrap();
        plane.register("short", registration(&[(0, 2, 1e6)]), now).unwrap();
        plane
    };
    let mut before = registered(1, 0.0);
    has(&mut before, 0, key("long", 0), 0.0);
    says(&mut before, (1, 0), 30.0);
    before.tick(30.0);
    let decided = [Some(Pace::Rate(10_000)), Some(Pace::Rate(990_000))];
    assert_eq!(paces(&before), decided);
    let mut after = registered(2, 0.0);
    // No host has reported yet.
    assert!(after.tick(0.0).is_empty());
    says(&mut after, (1, before.hosts()[0].told), STEP);
    let orders = after.tick(2.0 * STEP);
    assert_eq!(orders.len(), 1);
    assert!(orders[0].1.whole && orders[0].1.epoch == 2);
    assert_eq!(paces(&after), decided);
}

/// Agents refuse an order that contains a flow twice.
#[test]
fn removed_and_readded_flow_appears_once_in_an_order() {
    let mut plane = plane("saath", 1);
    plane.register("a", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
    all_report(&mut plane, 0.0);
    plane.tick(0.0);
    plane.deregister("a", 0.004).unwrap();
    plane.register("a", registration(&[(0, 1, 2e6)]), 0.004).unwrap();
    plane.report(0, &Report { obeys: (1, 1), ..Report::default() }, 0.008);
    let orders = plane.tick(0.008);
    assert!(!orders[0].1.whole);
    assert_eq!(orders[0].1.flows, [(key("a", 0), Pace::Rate(990_000))]);
}

#[test]
fn policy_change_keeps_the_progress_of_coflows() {
    let mut plane = plane("saath", 1);
    plane.register("short", registration(&[(0, 2, 5e5)]), 0.0).unwrap();
    plane.register("long", registration(&[(0, 1, 1e6)]), 0.0).unwrap();
    let sent = |plane: &mut ControlPlane, sent, now| {
        let flows = vec![FlowProgress { key: key("long", 0), sent, closed: false }];
        plane.report(0, &Report { obeys: (1, 0), flows, ..Report::default() }, now);
    };
    sent(&mut plane, 0, 0.0);
    has(&mut plane, 0, key("short", 0), 0.0);
    sent(&mut plane, 900_000, 1.0);
    plane.tick(1.0);
    // Saath serves the earlier coflow first; by remaining bytes, the long coflow is the shorter one.
    plane.set_policy(build("varys").unwrap(), 1.0).unwrap();
    sent(&mut plane, 900_000, 1.001);
    let orders = plane.tick(1.001);
    let full = Pace::Rate(990_000);
    let trickle = Pace::Rate(10_000);
    assert_eq!(orders[0].1.flows, [(key("long", 0), full), (key("short", 0), trickle)]);
    // A policy that needs sizes is refused while a flow has an unknown size.
    let mut unsized_flow = registration(&[(3, 2, 1.0)]);
    unsized_flow.flows[0].bytes = None;
    plane.set_policy(build("aalo").unwrap(), 1.002).unwrap();
    plane.register("unsized", unsized_flow, 1.002).unwrap();
    assert_eq!(plane.set_policy(build("varys").unwrap(), 1.003), Err(Refusal::Size(0)));
    assert_eq!(plane.under_way(), 3);
}

#[test]
fn aalo_reassigns_sender_capacity_that_a_busy_receiver_leaves() {
    let mut plane = plane("aalo", 1);
    plane.register("first", registration(&[(0, 2, 1e6), (1, 2, 1e6)]), 0.0).unwrap();
    plane.register("second", registration(&[(0, 3, 1e6)]), 0.001).unwrap();
    all_report(&mut plane, 0.002);
    let orders = plane.tick(0.002);
    let half = Pace::Rate(495_000);
    assert_eq!(orders[0].1.flows, [(key("first", 0), half), (key("second", 0), half)]);
    assert_eq!(orders[1].1.flows, [(key("first", 1), half)]);
}

#[test]
fn implausible_entries_are_rejected_and_counted() {
    let mut plane = plane("saath", 1);
    plane.register("a", registration(&[(0, 1, 1e9), (1, 2, 1e9)]), 0.0).unwrap();
    all_report(&mut plane, 0.0);
    plane.tick(0.0);
    let say = |plane: &mut ControlPlane, host, key, sent, now| {
        let flows = vec![FlowProgress { key, sent, closed: false }];
        plane.report(host, &Report { obeys: (1, 1), flows, ..Report::default() }, now);
    };
    say(&mut plane, 0, key("a", 0), 1000, 0.01);
    say(&mut plane, 0, key("a", 0), 900_000_000, 0.02);
    say(&mut plane, 0, key("a", 0), 10, 0.03);
    say(&mut plane, 0, key("a", 1), 10, 0.03);
    say(&mut plane, 0, key("a", 9), 10, 0.03);
    say(&mut plane, 0, key("b", 0), 10, 0.03);
    say(&mut plane, 77, key("a", 0), 10, 0.03);
    let doubts = plane.doubts();
    assert_eq!(
        (doubts.beyond, doubts.backward, doubts.foreign, doubts.unknown, doubts.absent),
        (1, 1, 1, 2, 1)
    );
}

/// Agents report deviations from orders only, so a flow without a report is assumed to send at its ordered rate, also
/// at a rate of the reserve.
#[test]
fn flows_without_reports_progress_at_their_ordered_rate() {
    let mut plane = plane("saath", 1);
    plane.register("a", registration(&[(0, 1, 1e9)]), 0.0).unwrap();
    plane.register("b", registration(&[(0, 2, 1e9)]), 0.0).unwrap();
    plane.register("c", registration(&[(3, 2, 1e9)]), 0.0).unwrap();
    let say = |plane: &mut ControlPlane, host: u32, flows: &[(&str, u64)], now| {
        let seen = |&(id, sent): &(&str, u64)| FlowProgress { key: key(id, 0), sent, closed: false };
        let obeys = (1, plane.hosts()[host as usize].told);
        let report = Report { obeys, flows: flows.iter().map(seen).collect(), ..Report::default() };
        plane.report(host, &report, now);
    };
    say(&mut plane, 0, &[("a", 0), ("b", 0)], 0.0);
    say(&mut plane, 3, &[], 0.0);
    plane.tick(0.0);
    let sent = |plane: &ControlPlane, id: &str| plane.show(id).unwrap().flows[0].sent;
    let pace = |plane: &ControlPlane, id: &str| match plane.show(id).unwrap().flows[0].pace {
        Some(Pace::Rate(rate)) => weir_proto::estimate_sent(rate, 1.0),
        other => panic!("{other:?}"),
    };
    // One flow at the port of host 0 gets its rate, the other the reserve. `reckon` counts payload, and orders count
    // packets.
    let (first, second) = (pace(&plane, "a"), pace(&plane, "b"));
    assert!(
        (first - 990_000.0 * 1448.0 / 1514.0).abs() < 1.0
            && (second - 10_000.0 * 1448.0 / 1514.0).abs() < 1.0
    );
    for step in 1..=5 {
        let now = f64::from(step) * STEP;
        say(&mut plane, 0, &[], now);
        plane.tick(now);
    }
    assert!((sent(&plane, "a") - first * 5.0 * STEP).abs() < 1e-3);
    assert!((sent(&plane, "b") - second * 5.0 * STEP).abs() < 1e-3);
    // A flow that its host has never reported has no estimated progress.
    assert_eq!(sent(&plane, "c"), 0.0);
    // A report replaces the estimate, also with fewer bytes.
    say(&mut plane, 0, &[("a", 20_000)], 5.5 * STEP);
    assert_eq!(sent(&plane, "a"), 20_000.0);
    assert_eq!(plane.doubts(), weir_coordinator::plane::RejectedEntries::default());
    say(&mut plane, 0, &[("a", 19_999)], 5.75 * STEP);
    assert_eq!((sent(&plane, "a"), plane.doubts().backward), (20_000.0, 1));
    plane.tick(6.0 * STEP);
    assert!((sent(&plane, "a") - 20_000.0 - first * 0.25 * STEP).abs() < 1e-3);
    // A host that is silent for more than a lease has no estimated progress.
    let long = 6.0 * STEP + 2.0 * Settings::default().lease;
    plane.tick(long);
    let before = sent(&plane, "a");
    plane.tick(long + STEP);
    assert_eq!(sent(&plane, "a"), before);
}

fn arrival(from: Ipv4Addr, to: Ipv4Addr, mark: u8, rate: u64) -> Arrival {
    Arrival { way: Way { from, to, mark: Mark::new(mark).unwrap() }, rate }
}

fn arriving(arrivals: Vec<Arrival>) -> Report {
    Report { arrivals, ..Report::default() }
}

fn throttling() -> ControlPlane {
    crate::small::throttling("fair", 1)
}

/// UDP measurements in the orders to each host.
fn told(plane: &mut ControlPlane, now: f64) -> Vec<(u32, Vec<Arrival>)> {
    let orders = plane.tick(now).into_iter().map(|(host, order)| (host, order.arrivals));
    let mut told: Vec<(u32, Vec<Arrival>)> = orders.filter(|(_, arrivals)| !arrivals.is_empty()).collect();
    told.sort_by_key(|(host, _)| *host);
    told
}

#[test]
fn udp_measurements_are_forwarded_to_senders() {
    let mut plane = throttling();
    assert!(plane.throttles());
    all_report(&mut plane, 0.0);
    plane.tick(0.0);
    let of = |from, mark, rate| arrival(address(from), address(2), mark, rate);
    plane.report(2, &arriving(vec![of(0, 1, 1000), of(0, 2, 2000), of(1, 1, 3000)]), 0.001);
    // The later of two measurements before an order counts.
    plane.report(2, &arriving(vec![of(0, 1, 1100)]), 0.002);
    plane.report(3, &arriving(vec![arrival(address(0), address(3), 1, 4000)]), 0.003);
    let to_first = vec![of(0, 1, 1100), arrival(address(0), address(3), 1, 4000), of(0, 2, 2000)];
    let sorted = {
        let mut all = to_first;
        all.sort_by_key(|arrival| arrival.way);
        all
    };
    assert_eq!(told(&mut plane, STEP), [(0, sorted), (1, vec![of(1, 1, 3000)])]);
    // Each measurement is sent once.
    assert_eq!((told(&mut plane, 2.0 * STEP), plane.passed_on()), (vec![], 4));
    assert_eq!(plane.doubts(), Default::default());

    // A silent host gets no measurements, and those of that time are dropped.
    all_report(&mut plane, 1.0);
    plane.report(2, &arriving(vec![of(0, 1, 1000)]), 1.07);
    assert_eq!(told(&mut plane, 1.1), []);
    all_report(&mut plane, 1.2);
    assert_eq!((told(&mut plane, 1.2), plane.passed_on()), (vec![], 4));
}

#[test]
fn udp_measurements_count_for_own_addresses_up_to_the_link_rate() {
    let mut plane = throttling().with_switches(1);
    all_report(&mut plane, 0.0);
    plane.tick(0.0);
    let line = LINE as u64;
    // Measurements of another host's address, also by a switch, are rejected. Multicast and unknown addresses are
    // ignored and not counted.
    plane.report(1, &arriving(vec![arrival(address(0), address(2), 1, 1000)]), 0.001);
    plane.report(1, &arriving(vec![arrival(address(0), address(77), 1, 1000)]), 0.001);
    let many = Ipv4Addr::new(224, 0, 0, 1);
    plane.report(1, &arriving(vec![arrival(address(0), many, 1, 1000)]), 0.001);
    plane.report(HOSTS, &arriving(vec![arrival(address(0), address(1), 1, 1000)]), 0.001);
    assert_eq!(plane.doubts().foreign, 2);
    // A sender outside the configuration.
    plane.report(1, &arriving(vec![arrival(address(77), address(1), 1, 1000)]), 0.001);
    assert_eq!((told(&mut plane, STEP), plane.doubts().beyond), (vec![], 0));
    // Rates above the capacity of the host's link, one or in sum.
    let of = |mark, rate| arrival(address(0), address(1), mark, rate);
    let said = [of(1, line), of(2, 2 * line), of(3, u64::MAX), of(4, line), of(5, line), of(6, 1000)];
    plane.report(1, &arriving(said.to_vec()), 0.01);
    let believed = vec![of(1, line), of(4, line), of(6, 1000)];
    assert_eq!((told(&mut plane, 2.0 * STEP), plane.doubts().beyond), (vec![(0, believed)], 3));
    // A host number that does not exist.
    plane.report(77, &arriving(vec![of(1, 1)]), 0.02);
    assert_eq!(plane.doubts().absent, 1);
}

#[test]
fn forwarded_measurements_fit_one_order() {
    let most = weir_proto::MAX_WAYS as u32;
    // One host sends to all addresses of another one, and there are more than an order carries.
    let many = (0..2 * most).map(|number| (address(1000 + number), 1)).chain([(address(0), 0)]).collect();
    let mut plane = plane("fair", 1).with_throttling(many);
    all_report(&mut plane, 0.0);
    plane.tick(0.0);
    let part = |from| {
        let of = |number| arrival(address(0), address(1000 + number), 1, 1);
        arriving((from..from + most).map(of).collect())
    };
    plane.report(1, &part(0), 0.001);
    plane.report(1, &part(10), 0.001);
    assert_eq!(plane.doubts().crowded, 10);
    let told = told(&mut plane, STEP);
    assert_eq!((told.len(), told[0].1.len()), (1, most as usize));
}

#[test]
fn no_measurements_are_forwarded_without_throttling() {
    let mut plane = plane("fair", 1);
    assert!(!plane.throttles());
    all_report(&mut plane, 0.0);
    plane.report(1, &arriving(vec![arrival(address(0), address(1), 1, 1000)]), 0.0);
    assert_eq!((told(&mut plane, STEP), plane.passed_on(), plane.doubts()), (vec![], 0, Default::default()));
}

/// A control plane with an allocator for services with these weights and excess weights; application `s0` belongs to
/// the first service, and so on.
fn allocating(weights: &[f64], excess: Option<&[f64]>) -> ControlPlane {
    let addresses = (0..HOSTS).map(|host| (address(host).into(), host)).collect();
    let mut plane = plane("fair", 1).with_allocation(addresses);
    let of = (0..weights.len()).map(|service| (format!("s{service}").into(), service as u32)).collect();
    plane.set_services(Services::new(weights.to_vec(), excess, of).unwrap());
    plane
}

fn asking(application: &str, to: u32, open: u32, demand: Demand) -> Found {
    Found { application: application.into(), peer: address(to).into(), open, sent: 1, demand }
}

/// A host confirms its last order and reports observed connections.
fn finds(plane: &mut ControlPlane, host: u32, found: Vec<Found>, now: f64) {
    let obeys = (1, plane.hosts()[host as usize].told);
    plane.report(host, &Report { obeys, found, ..Report::default() }, now);
}

/// Limits in the next orders, in kB/s; `None` removes a limit.
fn limited(plane: &mut ControlPlane, now: f64) -> Vec<(u32, String, u32, Option<u64>)> {
    for (host, state) in (0..).zip(plane.hosts()) {
        plane.report(host, &Report { obeys: (1, state.told), ..Report::default() }, now);
    }
    let orders = plane.tick(now).into_iter();
    let told = orders.flat_map(|(host, order)| order.limits.into_iter().map(move |limit| (host, limit)));
    let one = |(host, Limit { application, peer, pace }): (u32, Limit)| {
        let to = (0..HOSTS).find(|&to| peer == std::net::IpAddr::from(address(to))).unwrap();
        let rate = match pace {
            Pace::Rate(rate) => Some((rate as f64 / 1e3).round() as u64),
            Pace::Free | Pace::Gone => None,
        };
        (host, application.to_string(), to, rate)
    };
    let mut told: Vec<_> = told.map(one).collect();
    told.sort();
    told
}

fn named(told: &[(u32, &str, u32, Option<u64>)]) -> Vec<(u32, String, u32, Option<u64>)> {
    told.iter().map(|&(host, application, to, rate)| (host, application.to_owned(), to, rate)).collect()
}

/// NetShare, Fig. 5 (3.3): three services with equal weights, of which the last is idle; in the second case, two thirds
/// of its unused bandwidth go to the first. Links have 1 MB/s and a reserve of a hundredth.
#[test]
fn service_limits_equal_netshare_fig_5() {
    for (excess, expected) in [(None, [495, 495]), (Some(&[2.0, 1.0, 1.0][..]), [550, 440])] {
        let mut plane = allocating(&[1.0; 3], excess);
        let found = vec![asking("s0", 1, 3, Demand::All), asking("s1", 1, 1, Demand::All)];
        finds(&mut plane, 0, found, 0.0);
        let expected = [(0, "s0", 1, Some(expected[0])), (0, "s1", 1, Some(expected[1]))];
        assert_eq!(limited(&mut plane, 0.05), named(&expected));
        // Unchanged limits are sent again in complete orders only.
        assert_eq!(limited(&mut plane, 0.1), []);
        plane.renew(0);
        assert_eq!(limited(&mut plane, 0.108), named(&expected));
        // The third service becomes active.
        let found = vec![asking("s2", 2, 1, Demand::All)];
        finds(&mut plane, 0, found, 0.11);
        let thirds = [(0, "s0", 1, Some(330)), (0, "s1", 1, Some(330)), (0, "s2", 2, Some(330))];
        assert_eq!(limited(&mut plane, 0.16), named(&thirds));
        // The third service becomes idle again; the application `x` is not registered, so it gets no limit.
        let found = vec![asking("s2", 2, 0, Demand::Unknown), asking("x", 1, 1, Demand::All)];
        finds(&mut plane, 0, found, 0.17);
        let mut last = named(&expected);
        last.push((0, "s2".to_owned(), 2, None));
        assert_eq!(limited(&mut plane, 0.22), last);
    }
}

/// A flow with less demand than its rate leaves the rest to others, and may grow to its lower bound, or by a tenth.
/// Links into hosts count as well, and the number of connections does not.
#[test]
fn unused_bandwidth_goes_to_other_services() {
    let mut plane = allocating(&[1.0, 1.0], None);
    let found = vec![asking("s0", 3, 1, Demand::Rate(100_000)), asking("s1", 3, 1, Demand::All)];
    finds(&mut plane, 0, found, 0.0);
    assert_eq!(limited(&mut plane, 0.05), named(&[(0, "s0", 3, Some(495)), (0, "s1", 3, Some(890))]));
    // A second host sends to the same link. Its lower bound is half of its service's weighted share, and its demand is
    // below that.
    let found = vec![asking("s1", 3, 200, Demand::Rate(240_000))];
    finds(&mut plane, 1, found, 0.06);
    let told = limited(&mut plane, 0.11);
    assert_eq!(told, named(&[(0, "s1", 3, Some(650)), (1, "s1", 3, Some(264))]));
    // Connections without a measured demand, and those inside a host, get no limit.
    let found = vec![asking("s0", 1, 1, Demand::All), asking("s1", 3, 200, Demand::Unknown)];
    finds(&mut plane, 1, found, 0.12);
    let told = limited(&mut plane, 0.17);
    assert_eq!(told, named(&[(0, "s1", 3, Some(890)), (1, "s1", 3, None)]));
    assert_eq!(plane.limits().len(), 2);
    // A silent host gets no share, so only the other host receives limits.
    finds(&mut plane, 1, vec![asking("s1", 3, 1, Demand::All)], 0.18);
    assert_eq!(limited(&mut plane, 0.23), named(&[(0, "s1", 3, Some(445)), (1, "s1", 3, Some(445))]));
    for step in 0..60 {
        let obeys = (1, plane.hosts()[0].told);
        let now = 0.23 + f64::from(step) * STEP;
        plane.report(0, &Report { obeys, ..Report::default() }, now);
        plane.tick(now);
    }
    let limits: Vec<u64> = plane.limits().into_values().map(|limit| limit / 1000).collect();
    assert_eq!(limits, [495, 890]);
}

/// A host that misreports demands reduces neither other services nor flows on other links, and the number of its flows
/// is limited.
#[test]
fn misreported_demands_do_not_exceed_the_services_share() {
    let mut plane = allocating(&[1.0, 1.0], None);
    finds(&mut plane, 0, vec![asking("s0", 3, 1, Demand::All)], 0.0);
    let one = |at: u32, to: u32| Found {
        application: format!("s{}", at % 2).into(),
        peer: Ipv4Addr::from(0x0b00_0000 + at).into(),
        ..asking("s0", to, u32::MAX, Demand::All)
    };
    let many: Vec<Found> = (0..4000).map(|at| one(at, 3)).collect();
    finds(&mut plane, 1, many, 0.0);
    assert_eq!(plane.doubts().crowded, 4000 - 1024);
    finds(&mut plane, 1, vec![asking("s1", 3, u32::MAX, Demand::All)], 0.0);
    plane.tick(0.05);
    let limits = plane.limits();
    assert_eq!(limits.len(), 1 + 1024);
    let own = limits.iter().find(|((host, ..), _)| *host == 0).unwrap();
    assert_eq!(own.1 / 1000, 990);
    // After the host disconnects, its flows are removed.
    plane.forget_found(1);
    finds(&mut plane, 1, vec![asking("s1", 3, u32::MAX, Demand::All)], 0.06);
    plane.tick(0.11);
    let limits: Vec<u64> = plane.limits().into_values().map(|limit| limit / 1000).collect();
    assert_eq!(limits, [495, 495]);
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
        let mut plane = allocating(&[1.0, 2.0, 5.0], Some(&excess[..]).filter(|_| round % 2 == 0));
        let mut all = 0;
        for host in 0..HOSTS {
            let mut found = Vec::new();
            for service in 0..3 {
                for to in (0..HOSTS).filter(|&to| to != host) {
                    if random(3) == 0 {
                        found.push(asking(&format!("s{service}"), to, 1 + random(4) as u32, Demand::All));
                        all += 1;
                    }
                }
            }
            finds(&mut plane, host, found, 0.0);
        }
        plane.tick(0.05);
        let (mut out, mut into) = ([0.0; HOSTS as usize], [0.0; HOSTS as usize]);
        let limits = plane.limits();
        assert_eq!(limits.len(), all);
        for ((from, _, to), limit) in limits {
            assert!(limit > 0);
            out[from as usize] += limit as f64;
            let to = (0..HOSTS).find(|&host| to == std::net::IpAddr::from(address(host))).unwrap();
            into[to as usize] += limit as f64;
        }
        // Limits are at least one byte per second.
        let most = 0.99 * LINE + all as f64;
        assert!(out.iter().chain(&into).all(|&sum| sum <= most), "{out:?} {into:?}");
        // With weights alone, each flow crosses a link without residual capacity.
        for (from, _, to) in plane.limits().into_keys().filter(|_| round % 2 == 1) {
            let to = (0..HOSTS).find(|&host| to == std::net::IpAddr::from(address(host))).unwrap();
            let full = out[from as usize].max(into[to as usize]);
            assert!(full > 0.99 * LINE - all as f64, "{from} to {to}: {out:?} {into:?}");
        }
    }
}
