//! Tests of what the control plane does with the states of flows at their senders.

use weir_coordinator::control_plane::{
    ControlPlane, FlowKey, FlowProgress, OrderedRate, Registration, Report, SenderState, Transfer,
    UnscheduledReason,
};

use crate::small_cluster::{HOSTS, INTERVAL, LINK_RATE, control_plane, flow_key, registration};

/// What a host reports about flow 0 of a coflow.
fn report(
    plane: &mut ControlPlane,
    host: u32,
    coflow: &str,
    sent: u64,
    state: SenderState,
    gated: bool,
    now: f64,
) {
    let progress = FlowProgress { gated, ..FlowProgress::new(flow_key(coflow, 0), sent, state) };
    let applied = (1, plane.host_statuses()[host as usize].ordered_seq);
    plane.report(host, &Report { applied, flows: vec![progress], ..Report::default() }, now);
}

/// A control plane with coflows of one flow from host 0 to host 1, in their order, which all have data.
fn plane_with_coflows(ids: &[&str], bytes: f64) -> ControlPlane {
    let mut plane = control_plane("saath", 1);
    for host in 0..HOSTS {
        plane.report(host, &Report::default(), 0.0);
    }
    for id in ids {
        plane.register(id, registration(&[(0, 1, bytes)]), 0.0).unwrap();
        report(&mut plane, 0, id, 0, SenderState::Ready, false, 0.0);
    }
    plane
}

fn ordered_rates<const N: usize>(plane: &ControlPlane, ids: [&str; N]) -> [Option<OrderedRate>; N] {
    ids.map(|id| plane.coflow_status(id).unwrap().flows[0].ordered_rate)
}

#[test]
fn next_order_says_why_a_reported_gated_flow_is_not_scheduled() {
    let mut plane = plane_with_coflows(&[], 1e6);
    plane.register("a", registration(&[(0, 1, 1e6), (1, 0, 1e6), (0, 2, 1e6)]), 0.0).unwrap();
    plane.register("b", Registration { generation: 2, ..registration(&[(0, 1, 1e6)]) }, 0.0).unwrap();
    plane.tick(0.0);
    let key = |coflow: &str, generation, flow| FlowKey { coflow: coflow.into(), generation, flow };
    let report = |plane: &mut ControlPlane, keys: &[FlowKey], state, gated, now| {
        let progress = |key: &FlowKey| FlowProgress {
            key: key.clone(),
            sent: 0,
            state,
            gated,
            ..FlowProgress::new(key.clone(), 0, state)
        };
        let applied = (1, plane.host_statuses()[0].ordered_seq);
        let flows = keys.iter().map(progress).collect();
        plane.report(0, &Report { applied, flows, ..Report::default() }, now);
    };
    let unscheduled = |plane: &mut ControlPlane, now| {
        let orders = plane.tick(now).into_iter();
        orders.filter(|(host, _)| *host == 0).flat_map(|(_, order)| order.unscheduled).collect::<Vec<_>>()
    };
    report(&mut plane, &[key("a", 1, 2)], SenderState::Completed, false, 0.001);
    let reasons = [
        (key("a", 0, 1), UnscheduledReason::ForeignFlow),
        (key("a", 0, 3), UnscheduledReason::UnknownFlow),
        (key("a", 1, 2), UnscheduledReason::Completed),
        (key("b", 1, 0), UnscheduledReason::FormerRegistration),
        (key("c", 0, 0), UnscheduledReason::UnknownCoflow),
    ];
    let keys: Vec<FlowKey> = reasons.iter().map(|(key, _)| key.clone()).collect();
    // Flows of this host join the registration by the next order, and programs of other flows receive no reasons.
    report(&mut plane, &[key("a", 0, 0), key("a", 1, 0)], SenderState::Ready, true, INTERVAL);
    report(&mut plane, &keys, SenderState::Ready, false, INTERVAL);
    report(&mut plane, &keys, SenderState::Lost, true, INTERVAL);
    assert_eq!(unscheduled(&mut plane, INTERVAL), []);
    report(&mut plane, &keys, SenderState::Ready, true, 1.5 * INTERVAL);
    assert!(plane.has_changed_flows(), "an early schedule answers");
    assert_eq!(unscheduled(&mut plane, 1.6 * INTERVAL), reasons);
    assert_eq!(unscheduled(&mut plane, 2.6 * INTERVAL), []);
}

const FULL_RATE: OrderedRate = OrderedRate::Rate(959_192);
/// The payload of [`FULL_RATE`] in full packets.
const CARRIED_PAYLOAD: f64 = 959_192.0 * 1_448.0 / 1_514.0;

const RESERVE_RATE: OrderedRate = OrderedRate::Reserve(9_688);

/// Varys gives the second flow the rate with which it ends together with the first one: 10,000 times less. Its socket would send the next
/// packet seconds after a raise, so a gated flow is paused, and another one shares the reserve.
#[test]
fn gated_flow_with_a_very_low_rate_is_paused() {
    let rate_of_second_flow = |gated| {
        let mut plane = control_plane("varys", 1);
        plane.register("a", registration(&[(0, 1, 1e8), (0, 2, 1e4)]), 0.0).unwrap();
        plane.register("waiting", registration(&[(3, 1, 1e9)]), 0.0).unwrap();
        let progress =
            |flow| FlowProgress { gated, ..FlowProgress::new(flow_key("a", flow), 0, SenderState::Ready) };
        plane.report(0, &Report { flows: vec![progress(0), progress(1)], ..Report::default() }, 0.0);
        plane.report(3, &Report::default(), 0.0);
        plane.tick(0.0);
        plane.coflow_status("a").unwrap().flows[1].ordered_rate.unwrap()
    };
    assert_eq!(rate_of_second_flow(true), OrderedRate::Paused);
    // The first flow leaves 96 B/s, which come on top of the reserve.
    assert_eq!(rate_of_second_flow(false), OrderedRate::Reserve(9_784));
}

/// A gated flow without a rate is paused, and leaves the reserve to flows that are not gated.
#[test]
fn gated_flows_are_paused_instead_of_sharing_the_reserve() {
    let mut plane = plane_with_coflows(&["a", "b", "c"], 1e6);
    let rates = |plane: &mut ControlPlane, now| {
        plane.tick(now);
        ordered_rates(plane, ["a", "b", "c"]).map(Option::unwrap)
    };
    // Both waiting flows share the reserve.
    assert_eq!(rates(&mut plane, 0.0), [FULL_RATE, OrderedRate::Reserve(4_844), OrderedRate::Reserve(4_844)]);
    report(&mut plane, 0, "b", 0, SenderState::Ready, true, INTERVAL);
    assert_eq!(rates(&mut plane, INTERVAL), [FULL_RATE, OrderedRate::Paused, OrderedRate::Reserve(9_688)]);
    report(&mut plane, 0, "a", 0, SenderState::Ready, true, 2.0 * INTERVAL);
    report(&mut plane, 0, "b", 0, SenderState::Ready, false, 2.0 * INTERVAL);
    assert_eq!(
        rates(&mut plane, 2.0 * INTERVAL),
        [FULL_RATE, OrderedRate::Reserve(4_844), OrderedRate::Reserve(4_844)]
    );
}

/// Saath, 4.3: a flow without data leaves its ports to others, and gets them back with new data.
/// Flows that cannot send do not reduce the share of those that can.
#[test]
fn flows_without_a_connection_share_no_reserve() {
    let mut plane = plane_with_coflows(&["busy", "waiting", "lost"], 1e6);
    let ids: Vec<String> = (0..20).map(|number| format!("absent{number}")).collect();
    ids.iter().for_each(|id| assert!(plane.register(id, registration(&[(0, 1, 1e6)]), 0.0).unwrap()));
    plane.tick(0.0);
    let shared_with_all = ordered_rates(&plane, ["waiting"])[0];
    // The grace period is one lease.
    let now = 1.0;
    report(&mut plane, 0, "busy", 0, SenderState::Ready, false, now);
    report(&mut plane, 0, "waiting", 0, SenderState::Ready, false, now);
    report(&mut plane, 0, "lost", 0, SenderState::Lost, false, now);
    for host in 0..HOSTS {
        plane.report(host, &Report::default(), now);
    }
    plane.tick(now);
    let shared = ordered_rates(&plane, ["waiting"])[0];
    assert_eq!((shared_with_all, shared), (Some(OrderedRate::Reserve(403)), Some(RESERVE_RATE)));
}

#[test]
fn idle_flow_leaves_its_ports_to_others_until_it_has_data() {
    let mut plane = plane_with_coflows(&["a", "b"], 1e9);
    let rates = |plane: &mut ControlPlane, now| {
        plane.tick(now);
        ordered_rates(plane, ["a", "b"]).map(Option::unwrap)
    };
    assert_eq!(rates(&mut plane, 0.0), [FULL_RATE, RESERVE_RATE]);
    let mut now = INTERVAL;
    for (state, expected) in [
        (SenderState::Idle, [RESERVE_RATE, OrderedRate::Unlimited]),
        (SenderState::Ready, [FULL_RATE, RESERVE_RATE]),
        (SenderState::Lost, [RESERVE_RATE, OrderedRate::Unlimited]),
        (SenderState::Ready, [FULL_RATE, RESERVE_RATE]),
    ] {
        report(&mut plane, 0, "a", 5_000, state, false, now);
        assert_eq!(rates(&mut plane, now), expected, "{state:?}");
        // An idle flow makes no estimated progress.
        if state != SenderState::Ready {
            assert_eq!(plane.coflow_status("a").unwrap().flows[0].sent_bytes, 5_000.0);
        }
        now += INTERVAL;
    }
}

/// A flow that has not been reported since its registration has data until its grace period ends, unless its first report says otherwise.
#[test]
fn first_report_of_an_idle_flow_ends_its_grace_period() {
    let mut plane = plane_with_coflows(&["a", "b"], 1e9);
    plane.register("c", registration(&[(2, 1, 1e9)]), 0.0).unwrap();
    for id in ["a", "b"] {
        report(&mut plane, 0, id, 0, SenderState::Idle, false, INTERVAL);
    }
    report(&mut plane, 2, "c", 0, SenderState::Idle, false, INTERVAL);
    plane.tick(INTERVAL);
    // If one of them had data, the others would share the reserve.
    let unlimited = [Some(OrderedRate::Unlimited); 3];
    assert_eq!(ordered_rates(&plane, ["a", "b", "c"]), unlimited);
}

/// An agent whose reports show no progress, although it says that the flow has data, holds no link.
#[test]
fn flow_without_reported_progress_counts_as_idle() {
    let mut plane = plane_with_coflows(&["a", "b"], 1e9);
    let (mut now, mut progress) = (0.0, 0);
    let mut run_until = |plane: &mut ControlPlane, end: f64, sent| {
        while now < end {
            now += INTERVAL;
            progress += 1;
            report(plane, 0, "a", sent, SenderState::Ready, false, now);
            report(plane, 0, "b", progress, SenderState::Ready, false, now);
            plane.tick(now);
        }
        ordered_rates(plane, ["a", "b"]).map(Option::unwrap)
    };
    assert_eq!(run_until(&mut plane, 2.9, 5_000), [FULL_RATE, RESERVE_RATE]);
    assert_eq!(run_until(&mut plane, 3.1, 5_000), [RESERVE_RATE, OrderedRate::Unlimited]);
    assert_eq!(run_until(&mut plane, 9.0, 5_000), [RESERVE_RATE, OrderedRate::Unlimited]);
    assert_eq!(run_until(&mut plane, 9.01, 5_001), [FULL_RATE, RESERVE_RATE]);
    // Half a minute later it is tried again: a paused program cannot make progress.
    assert_eq!(run_until(&mut plane, 12.2, 5_001), [RESERVE_RATE, OrderedRate::Unlimited]);
    assert_eq!(run_until(&mut plane, 41.9, 5_001), [RESERVE_RATE, OrderedRate::Unlimited]);
    assert_eq!(run_until(&mut plane, 42.2, 5_001), [FULL_RATE, RESERVE_RATE]);
}

/// The same holds for a flow without competition, whose agent has no rate to compare with: the next coflow at its links is not delayed.
#[test]
fn unlimited_flow_without_reported_progress_counts_as_idle() {
    for (end, expected) in [(2.9, [FULL_RATE, RESERVE_RATE]), (3.1, [RESERVE_RATE, OrderedRate::Unlimited])] {
        let mut plane = plane_with_coflows(&["a"], 1e9);
        let mut now = 0.0;
        while now < end {
            now += INTERVAL;
            report(&mut plane, 0, "a", 0, SenderState::Ready, false, now);
            plane.tick(now);
        }
        assert_eq!(ordered_rates(&plane, ["a"]), [Some(OrderedRate::Unlimited)]);
        plane.register("b", registration(&[(0, 1, 1e9)]), now).unwrap();
        plane.tick(now);
        assert_eq!(ordered_rates(&plane, ["a", "b"]).map(Option::unwrap), expected);
    }
}

/// A flow without a rate on a link that is faster than configured sends more than is plausible. Its bytes do not count, but it has data.
#[test]
fn unlimited_flow_above_the_rate_of_its_link_counts_as_sending() {
    let mut plane = plane_with_coflows(&["a"], 1e12);
    let (mut now, mut sent) = (0.0, 0);
    while now < 3.5 {
        now += INTERVAL;
        sent += 1_000_000;
        report(&mut plane, 0, "a", sent, SenderState::Ready, false, now);
        plane.tick(now);
    }
    assert!(plane.rejected_entries().above_link_rate > 0);
    plane.register("b", registration(&[(0, 1, 1e9)]), now).unwrap();
    plane.tick(now);
    assert_eq!(ordered_rates(&plane, ["a", "b"]).map(Option::unwrap), [FULL_RATE, RESERVE_RATE]);
}

/// A broken connection ends no coflow. The next connection continues with the bytes so far.
#[test]
fn lost_flow_does_not_complete_its_coflow_and_continues_with_its_bytes() {
    let mut plane = plane_with_coflows(&["a", "b"], 1e6);
    plane.tick(0.0);
    report(&mut plane, 0, "a", 4_000, SenderState::Lost, false, INTERVAL);
    plane.tick(INTERVAL);
    assert_eq!(plane.is_completed("a"), Some(false));
    assert_eq!(ordered_rates(&plane, ["a", "b"]).map(Option::unwrap), [RESERVE_RATE, OrderedRate::Unlimited]);
    report(&mut plane, 0, "a", 4_500, SenderState::Ready, false, 2.0 * INTERVAL);
    plane.tick(2.0 * INTERVAL);
    assert_eq!(plane.coflow_status("a").unwrap().flows[0].sent_bytes, 4_500.0);
    assert_eq!(ordered_rates(&plane, ["a", "b"]).map(Option::unwrap), [FULL_RATE, RESERVE_RATE]);
    report(&mut plane, 0, "a", 5_000, SenderState::Completed, false, 3.0 * INTERVAL);
    assert_eq!(plane.is_completed("a"), Some(true));
}

/// All registered bytes are acknowledged, so a connection that breaks afterwards completes its flow.
#[test]
fn lost_flow_with_all_registered_bytes_completes() {
    let mut plane = plane_with_coflows(&["a"], 5_000.0);
    report(&mut plane, 0, "a", 4_999, SenderState::Lost, false, INTERVAL);
    assert_eq!(plane.is_completed("a"), Some(false));
    report(&mut plane, 0, "a", 5_000, SenderState::Lost, false, 2.0 * INTERVAL);
    assert_eq!(plane.is_completed("a"), Some(true));
    let flows = vec![Transfer { src: 0, dst: 1, bytes: None }];
    plane.register("unsized", Registration { flows, ..registration(&[(0, 1, 1.0)]) }, 0.0).unwrap();
    report(&mut plane, 0, "unsized", 5_000, SenderState::Lost, false, 3.0 * INTERVAL);
    assert_eq!(plane.is_completed("unsized"), Some(false));
}

/// A framework that registers a coflow again sends its lost flows again, from their first byte.
#[test]
fn lost_flows_start_again_when_their_coflow_is_registered_again() {
    let mut plane = plane_with_coflows(&["a", "b"], 1e6);
    report(&mut plane, 0, "a", 4_000, SenderState::Lost, false, INTERVAL);
    report(&mut plane, 0, "b", 3_000, SenderState::Ready, false, INTERVAL);
    plane.tick(INTERVAL);
    for id in ["a", "b"] {
        assert_eq!(plane.register(id, registration(&[(0, 1, 1e6)]), INTERVAL), Ok(false));
    }
    let sent_bytes = |plane: &ControlPlane, id| plane.coflow_status(id).unwrap().flows[0].sent_bytes;
    assert_eq!((sent_bytes(&plane, "a"), sent_bytes(&plane, "b")), (0.0, 3_000.0));
    // It counts as a flow with data until its grace period ends, and from its next connection on.
    plane.tick(2.0 * INTERVAL);
    assert_eq!(ordered_rates(&plane, ["a", "b"]).map(Option::unwrap), [FULL_RATE, RESERVE_RATE]);
    // The agent counts the bytes of both connections.
    report(&mut plane, 0, "a", 9_000, SenderState::Ready, false, 3.0 * INTERVAL);
    assert_eq!(sent_bytes(&plane, "a"), 5_000.0);
}

/// What host 0 reports about flow 0 of a coflow with data whose program writes this many bytes per second, if less than it may.
fn report_demand(plane: &mut ControlPlane, coflow: &str, demand: Option<u64>, now: f64) {
    let progress =
        FlowProgress { demand, ..FlowProgress::new(flow_key(coflow, 0), 5_000, SenderState::Ready) };
    let applied = (1, plane.host_statuses()[0].ordered_seq);
    plane.report(0, &Report { applied, flows: vec![progress], ..Report::default() }, now);
}

/// The ordered rates without headers, as fractions of what the link carries of coflows.
fn rate_fractions<const N: usize>(plane: &ControlPlane, ids: [&str; N]) -> [f64; N] {
    let OrderedRate::Rate(full) = FULL_RATE else { unreachable!("it is a rate") };
    ordered_rates(plane, ids).map(|rate| match rate {
        Some(OrderedRate::Rate(rate) | OrderedRate::Reserve(rate)) => rate as f64 / full as f64,
        other => panic!("{other:?}"),
    })
}

/// A program that writes a tenth of its rate keeps a tenth more than that, and the next coflow gets the rest. When the program writes as
/// fast as it may, its flow gets the whole link in an early schedule.
#[test]
fn flow_with_a_demand_leaves_the_rest_to_the_next_coflow() {
    for policy in ["saath", "aalo", "fifo", "weir"] {
        let mut plane = control_plane(policy, 1);
        for id in ["a", "b", "c"] {
            plane.register(id, registration(&[(0, 1, 1e9)]), 0.0).unwrap();
            report(&mut plane, 0, id, 5_000, SenderState::Ready, false, 0.1);
        }
        plane.tick(0.1);
        let rates = |plane: &ControlPlane| rate_fractions(plane, ["a", "b", "c"]);
        assert!(rates(&plane)[0] > 0.999, "{policy}");
        let mut now = 0.1;
        for (demand, limited) in [(100_000, 0.11), (50_000, 0.055), (0, 0.005)] {
            now += INTERVAL;
            let had_limit = rates(&plane)[0] < 0.9;
            report_demand(&mut plane, "a", Some(demand), now);
            assert_eq!(plane.has_changed_flows(), !had_limit, "{policy}: only the first demand is urgent");
            plane.tick(now);
            // Rates are fractions of 95 % of the link.
            let [a, b, c] = rates(&plane);
            let expected = limited * LINK_RATE / CARRIED_PAYLOAD;
            assert!((a - expected).abs() < 1e-3, "{policy}: {a} instead of {expected}");
            assert!(b > 0.999 * (1.0 - a) && a + b < 1.0001 && c < 0.02, "{policy}: {:?}", [a, b, c]);
        }
        now += INTERVAL;
        report_demand(&mut plane, "a", None, now);
        assert!(plane.has_changed_flows(), "{policy}");
        plane.tick(now);
        assert!(rates(&plane)[0] > 0.999 && rates(&plane)[1] < 0.02, "{policy}: {:?}", rates(&plane));
    }
}

/// A flow without data, and one whose coflow gets other flows or another policy, keep or lose their limits with their states.
#[test]
fn demand_of_a_flow_ends_with_its_data_and_outlives_updates() {
    let mut plane = plane_with_coflows(&["a", "b"], 1e9);
    let rates = |plane: &mut ControlPlane, now| {
        plane.tick(now);
        rate_fractions(plane, ["a", "b"])
    };
    report_demand(&mut plane, "a", Some(100_000), INTERVAL);
    assert!(rates(&mut plane, INTERVAL)[0] < 0.2);
    plane.update("a", &registration(&[(0, 1, 1e9), (2, 3, 1e9)]).flows, 2.0 * INTERVAL).unwrap();
    assert!(rates(&mut plane, 2.0 * INTERVAL)[0] < 0.2);
    plane.set_policy(weir_core::policy::build("fifo").unwrap(), 3.0 * INTERVAL).unwrap();
    let [a, b] = rates(&mut plane, 3.0 * INTERVAL);
    assert!(a < 0.2 && b > 0.8, "{a}, {b}");
    report(&mut plane, 0, "a", 5_000, SenderState::Idle, false, 4.0 * INTERVAL);
    report(&mut plane, 0, "a", 5_000, SenderState::Ready, false, 5.0 * INTERVAL);
    assert!(rates(&mut plane, 5.0 * INTERVAL)[0] > 0.999);
}

/// A gated flow whose program writes very little is not paused: its program would have to wait for the next schedule.
#[test]
fn gated_flow_with_a_low_demand_is_not_paused() {
    let mut plane = plane_with_coflows(&["a", "b"], 1e9);
    let key = flow_key("a", 0);
    let progress =
        FlowProgress { gated: true, demand: Some(1), ..FlowProgress::new(key, 0, SenderState::Ready) };
    plane.report(0, &Report { flows: vec![progress], ..Report::default() }, INTERVAL);
    plane.tick(INTERVAL);
    let [a, b] = rate_fractions(&plane, ["a", "b"]);
    assert!(a < 0.01 && b > 0.99, "{a}, {b}");
}
