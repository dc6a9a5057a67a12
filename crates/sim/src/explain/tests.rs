//! Tests explanations with hand-computed examples, and that their parts add up under every policy.

use super::*;
use std::sync::Arc;

use weir_core::engine::DecidesOver;
use weir_core::model::topology::{CableChange, CableEvent};
use weir_core::model::wide_area::LinkMeasurement;
use weir_core::model::{
    CoflowSpec, FlowSpec, Incast, IncastRun, PortSide, ServiceNames, TimedEvent, Topology, TopologyTemplate,
    Trunks, WideArea, Workload,
};
use weir_core::policy::{self, POLICIES};
use weir_core::units::{Bytes, Rate, Time};

use crate::regions::RegionLinks;
use crate::replay::{NetworkModel, ReplayOptions, replay};

fn time(seconds: f64) -> Time {
    Time::new(seconds).unwrap()
}

fn coflow(id: u64, arrival: f64, flows: &[(u32, u32, f64)]) -> CoflowSpec {
    let flows = flows.iter().map(|&(s, d, b)| FlowSpec::new(s, d, Bytes::new(b).unwrap())).collect();
    CoflowSpec::new(id, time(arrival), flows)
}

fn explain(workload: &Workload, spec: &str, index: usize, interval: f64) -> Explanation {
    explain_over(workload, spec, index, interval, NetworkModel::default())
}

fn explain_over(
    workload: &Workload,
    spec: &str,
    index: usize,
    interval: f64,
    network: NetworkModel,
) -> Explanation {
    let rate = Rate::new(1.0).unwrap();
    let options =
        ReplayOptions { port_rate: rate, interval: time(interval), network, ..ReplayOptions::default() };
    let mut explainer = Explainer::new(index);
    let outcome = replay(workload, policy::build(spec).unwrap(), &options, &mut explainer);
    assert!(outcome.is_ok(), "{spec}, interval {interval}: {outcome:?}");
    explainer.finish().unwrap()
}

/// Checks that segments have no gaps, and that times and bytes sum to the coflow's.
fn check_sums(found: &Explanation) {
    let (first, last) = match (found.segments.first(), found.segments.last()) {
        (Some(first), Some(last)) => (first, last),
        _ => return assert_eq!(found.outcome.cct(), 0.0),
    };
    assert_eq!(first.start, found.outcome.released_at);
    assert_eq!(last.end, found.outcome.end);
    assert!(found.segments.windows(2).all(|pair| pair[0].end == pair[1].start));
    let bytes: f64 = found.segments.iter().map(|s| s.bytes).sum();
    let expected = found.outcome.bytes + found.lost_bytes;
    assert!((bytes - expected).abs() <= 1e-9 * expected.max(1.0), "{bytes} of {expected}");
    let states = [ProgressState::Waiting, ProgressState::Slowed, ProgressState::FullPace];
    let times: f64 = states.into_iter().map(|state| found.seconds_in_state(state)).sum();
    assert!((times - found.outcome.cct()).abs() <= 1e-9 * times.max(1.0));
    let (cct, lost): (f64, f64) =
        (found.outcome.cct(), found.segments.iter().map(Segment::lost_seconds).sum());
    let accounted = found.alone_seconds + lost - cct;
    // Repeating lost progress costs additional time.
    assert!(accounted.abs() <= 1e-9 * cct || (found.lost_bytes > 0.0 && accounted < 0.0), "{accounted}");
    for segment in &found.segments {
        assert!(segment.state != ProgressState::Waiting || segment.bytes == 0.0);
        let is_near = |a: f64, b: f64| (a - b).abs() < 1e-9 * segment.duration_seconds().max(1.0);
        let lost: f64 = segment.losses.iter().map(|(_, lost)| lost).sum();
        assert!(is_near(lost, segment.lost_seconds()), "{lost} of {}: {segment:?}", segment.lost_seconds());
        let to_others = |(cause, _): &&(SlowdownCause, f64)| matches!(cause, SlowdownCause::ContendedLink(_));
        let contended: f64 = segment.losses.iter().filter(to_others).map(|(_, lost)| lost).sum();
        let charged: f64 = segment.holders.iter().map(|h| h.lost_seconds).sum();
        assert!(is_near(charged, contended), "{charged} of {contended}: {segment:?}");
    }
}

/// A workload with contending coflows and all kinds of events.
fn contended_workload() -> Workload {
    let mut state = 7_u64;
    let mut random_below = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut coflows = Vec::new();
    for id in 0..30 {
        let width = 1 + random_below(8);
        let flows: Vec<(u32, u32, f64)> = (0..width)
            .map(|_| (random_below(5) as u32, random_below(5) as u32, random_below(20) as f64))
            .collect();
        coflows.push(coflow(id, random_below(60) as f64, &flows));
    }
    coflows[3].flows[0].data_delay = time(2.5);
    coflows[9].parents = vec![2, 3];
    let rate = |at, factor| TimedEvent {
        time: time(at),
        change: WorkloadChange::PortRate { port: 1, side: PortSide::Both, factor },
    };
    let mut events = vec![rate(10.3, 0.5), rate(40.1, 0.0), rate(50.0, 1.0)];
    for tenth in 1..200 {
        let coflow = random_below(30) as usize;
        let flow = random_below(coflows[coflow].flows.len() as u64) as usize;
        let what = WorkloadChange::RestartFlow { coflow, flow };
        events.push(TimedEvent { time: time(f64::from(tenth) * 0.9), change: what });
    }
    events.sort_by(|a, b| a.time.get().total_cmp(&b.time.get()));
    Workload { ports: 5, coflows, events, names: ServiceNames::default() }
}

#[test]
fn segments_add_up_to_the_coflow_under_every_policy() {
    let workload = contended_workload();
    for entry in POLICIES {
        for interval in [0.0, 0.7] {
            for index in 0..workload.coflows.len() {
                check_sums(&explain(&workload, entry.name, index, interval));
            }
            // Three hosts at each leaf.
            let rate = Rate::new(1.0).unwrap();
            let plan =
                TopologyTemplate::LeafSpine { spines: 2, leaves: 2, hosts: 3, rate, oversubscription: 2.0 };
            let network = over(plan.build().unwrap(), &[]);
            for index in [0, 5, 9, 20] {
                check_sums(&explain_over(&workload, entry.name, index, interval, network.clone()));
            }
        }
    }
}

/// Two leaves of two hosts at 1 byte/s, and one spine with half of that for each leaf.
fn leaf_spine() -> Topology {
    let rate = Rate::new(1.0).unwrap();
    let plan = TopologyTemplate::LeafSpine { spines: 1, leaves: 2, hosts: 2, rate, oversubscription: 4.0 };
    plan.build().unwrap()
}

fn over(topology: Topology, cable_events: &[CableEvent]) -> NetworkModel {
    let trunks = Some(Arc::new(Trunks::new(topology, 0).unwrap()));
    NetworkModel { trunks, cable_events: cable_events.into(), ..NetworkModel::default() }
}

#[test]
fn names_the_trunk_that_another_coflow_uses() {
    // The first coflow has the uplink of 0.5 byte/s for 4 s. The second one, from another port to another port, waits.
    let coflows = vec![coflow(7, 0.0, &[(0, 2, 2.0)]), coflow(8, 1.0, &[(1, 3, 3.0)])];
    let workload = Workload { ports: 4, coflows, events: Vec::new(), names: ServiceNames::default() };
    for policy in ["fifo", "saath", "mrtf", "sincronia"] {
        let found = explain_over(&workload, policy, 1, 0.0, over(leaf_spine(), &[]));
        check_sums(&found);
        assert_eq!((found.alone_seconds, found.outcome.cct()), (6.0, 9.0), "{policy}");
        let [(SlowdownCause::ContendedLink(Link::Trunk(_)), lost)] = found.lost_seconds_by_cause()[..] else {
            panic!("{policy}: {:?}", found.lost_seconds_by_cause())
        };
        assert_eq!((lost, found.lost_seconds_by_coflow()), (3.0, vec![(7, 3.0)]), "{policy}");
        assert_eq!(found.segments[0].holders[0].rate_share, 1.0);
    }
    // Decisions over ports: both send, and share the uplink.
    let at_ports = NetworkModel { decides_over: DecidesOver::Ports, ..over(leaf_spine(), &[]) };
    let found = explain_over(&workload, "saath", 1, 0.0, at_ports);
    assert!(matches!(found.lost_seconds_by_cause()[..], [(SlowdownCause::ContendedLink(Link::Trunk(_)), _)]));
    assert_eq!(found.lost_seconds_by_coflow()[0].0, 7);
}

#[test]
fn names_the_port_that_the_policy_assigned_to_a_flow_that_a_trunk_limits() {
    // The policy gives port 0 to the first coflow for 4 s, and decides over ports only. The uplink carries 0.5 byte/s.
    let coflows = vec![coflow(7, 0.0, &[(0, 2, 2.0)]), coflow(8, 1.0, &[(0, 1, 1.0)])];
    let workload = Workload { ports: 4, coflows, events: Vec::new(), names: ServiceNames::default() };
    let at_ports = NetworkModel { decides_over: DecidesOver::Ports, ..over(leaf_spine(), &[]) };
    for policy in ["fifo", "saath"] {
        let found = explain_over(&workload, policy, 1, 0.0, at_ports.clone());
        check_sums(&found);
        // The port sends 1.5 bytes meanwhile. The policy assigns the other half of the time to the flow that does not use it.
        let port = SlowdownCause::ContendedLink(Link::Sender(0));
        let mut causes = found.lost_seconds_by_cause();
        causes.sort_unstable_by_key(|(cause, _)| *cause);
        assert_eq!(causes, [(port, 1.5), (SlowdownCause::Policy, 1.5)], "{policy}");
        let holder = found.segments[0].holders[0];
        assert_eq!((holder.rate_share, holder.lost_seconds), (1.0, 1.5), "{policy}");
    }
}

#[test]
fn names_the_receiving_port_that_incast_slows_down() {
    // Two senders leave half of a port.
    let run =
        |buffer, connections, goodput| IncastRun { buffer, connections, bytes: 1.0, loss: 0.0, goodput };
    let incast = Incast::new(&[run(1, 1, 1.0), run(1, 2, 0.5), run(2, 1, 1.0), run(2, 2, 1.0)]).unwrap();
    let goodput = incast.goodput(1, Rate::new(1.0).unwrap()).unwrap();
    let network = NetworkModel { goodput: Some(Arc::new(goodput)), ..NetworkModel::default() };
    let coflows = vec![coflow(7, 0.0, &[(0, 3, 2.0), (1, 3, 2.0)]), coflow(8, 0.0, &[(2, 3, 1.0)])];
    let workload = Workload { ports: 4, coflows, events: Vec::new(), names: ServiceNames::default() };
    let found = explain_over(&workload, "fifo", 0, 0.0, network.clone());
    let port = Link::Receiver(3);
    assert_eq!((found.alone_seconds, found.outcome.cct()), (4.0, 8.0));
    assert_eq!(found.lost_seconds_by_cause(), [(SlowdownCause::SlowLink(port), 4.0)]);
    let found = explain_over(&workload, "fifo", 1, 0.0, network);
    assert_eq!((found.alone_seconds, found.outcome.cct()), (1.0, 9.0));
    assert_eq!(found.lost_seconds_by_cause(), [(SlowdownCause::ContendedLink(port), 8.0)]);
    let holder = found.segments[0].holders[0];
    assert_eq!((holder.coflow, holder.rate_share), (7, 0.5));
}

/// Two regions of two ports, with these bandwidths from the first to the second.
fn two_regions(samples: &[f64]) -> NetworkModel {
    let link = |from, to, samples: &[f64]| LinkMeasurement {
        from,
        to,
        samples: samples.iter().map(|&rate| Rate::new(rate).unwrap()).collect(),
    };
    let links = vec![link(0, 1, samples), link(1, 0, &[1.0])];
    let area = WideArea::new(vec!["a".into(), "b".into()], links, time(1.0), 0.0).unwrap();
    let regions = Some(RegionLinks { area: Arc::new(area), bandwidth_seed: 1 });
    NetworkModel { regions, ..NetworkModel::default() }
}

#[test]
fn names_the_link_between_regions() {
    // The first coflow has the link of 0.5 byte/s for 4 s. A flow inside a region takes no time.
    let coflows = vec![
        coflow(7, 0.0, &[(0, 2, 1.0), (1, 3, 1.0)]),
        coflow(8, 1.0, &[(0, 1, 5.0), (0, 2, 0.5), (0, 3, 0.5)]),
    ];
    let workload = Workload { ports: 4, coflows, events: Vec::new(), names: ServiceNames::default() };
    for policy in ["fifo", "saath"] {
        let found = explain_over(&workload, policy, 1, 0.0, two_regions(&[0.5]));
        assert_eq!((found.alone_seconds, found.outcome.cct()), (2.0, 5.0), "{policy}");
        let link = SlowdownCause::ContendedLink(Link::Trunk(0));
        assert_eq!(found.lost_seconds_by_cause(), [(link, 3.0)], "{policy}");
        assert_eq!(found.lost_seconds_by_coflow(), [(7, 3.0)], "{policy}");
        assert_eq!(found.segments[0].holders[0].rate_share, 1.0, "{policy}");
    }
}

#[test]
fn links_between_regions_can_exceed_their_mean_bandwidth() {
    let workload = Workload {
        ports: 4,
        coflows: vec![coflow(7, 0.0, &[(0, 2, 20.0)])],
        events: Vec::new(),
        names: ServiceNames::default(),
    };
    let found = explain_over(&workload, "saath", 0, 0.0, two_regions(&[0.5, 1.5]));
    assert_eq!(found.alone_seconds, 20.0);
    let causes: Vec<SlowdownCause> = found.segments.iter().map(|segment| segment.cause).collect();
    let slow = SlowdownCause::SlowLink(Link::Trunk(0));
    assert!(causes.contains(&SlowdownCause::None) && causes.contains(&slow), "{causes:?}");
    let paces: Vec<f64> = found.segments.iter().map(Segment::pace).collect();
    assert!(paces.iter().all(|pace| [0.5, 1.5].iter().any(|rate| (pace - rate).abs() < 1e-12)), "{paces:?}");
}

#[test]
fn names_the_trunk_that_became_slower() {
    let topology = leaf_spine();
    let [uplink, _] = [("leaf0", "spine0"), ("spine0", "leaf1")].map(|(from, to)| {
        topology.link_between(topology.find_node(from).unwrap(), topology.find_node(to).unwrap()).unwrap()
    });
    let half = CableChange::Rate(Rate::new(0.25).unwrap());
    let events = [CableEvent { time: time(2.0), cable: uplink, change: half }];
    let coflows = vec![coflow(7, 0.0, &[(0, 2, 2.0)])];
    let workload = Workload { ports: 4, coflows, events: Vec::new(), names: ServiceNames::default() };
    // A byte in 2 s, and the other one in 4 s.
    let found = explain_over(&workload, "saath", 0, 0.0, over(topology, &events));
    assert_eq!((found.alone_seconds, found.outcome.cct()), (4.0, 6.0));
    let causes: Vec<SlowdownCause> = found.segments.iter().map(|segment| segment.cause).collect();
    assert!(
        matches!(causes[..], [SlowdownCause::None, SlowdownCause::SlowLink(Link::Trunk(_))]),
        "{causes:?}"
    );
}

#[test]
fn coflow_alone_loses_no_time() {
    let workload = Workload {
        ports: 2,
        coflows: vec![coflow(5, 1.0, &[(0, 1, 3.0)])],
        events: Vec::new(),
        names: ServiceNames::default(),
    };
    let found = explain(&workload, "saath", 0, 0.0);
    assert_eq!((found.alone_seconds, found.outcome.cct()), (3.0, 3.0));
    assert_eq!(found.segments.len(), 1);
    assert_eq!(
        (found.segments[0].state, found.segments[0].cause),
        (ProgressState::FullPace, SlowdownCause::None)
    );
    assert!(found.lost_seconds_by_cause().is_empty() && found.lost_seconds_by_coflow().is_empty());
}

#[test]
fn names_limiting_port_and_holders() {
    let coflows = vec![coflow(7, 0.0, &[(0, 1, 2.0)]), coflow(8, 0.5, &[(0, 2, 3.0)])];
    let workload = Workload { ports: 3, coflows, events: Vec::new(), names: ServiceNames::default() };
    let found = explain(&workload, "fifo", 1, 0.0);
    let port = Link::Sender(0);
    let wait = &found.segments[0];
    assert_eq!((wait.start, wait.end, wait.state), (0.5, 2.0, ProgressState::Waiting));
    assert_eq!(wait.cause, SlowdownCause::ContendedLink(port));
    assert_eq!((wait.holders[0].coflow, wait.holders[0].rate_share), (7, 1.0));
    assert_eq!(found.lost_seconds_by_cause(), [(SlowdownCause::ContendedLink(port), 1.5)]);
    assert_eq!(found.lost_seconds_by_coflow(), [(7, 1.5)]);
    assert_eq!(found.seconds_in_state(ProgressState::FullPace), 3.0);
}

#[test]
fn names_contention_and_deadlines_that_have_passed() {
    // Coflow 1 contends with two others at a time, which contend only with it. At its release it is alone in its queue, whose
    // 4 bytes take 4 s, so its deadline is at 1.5 x 4 s = 6 s.
    let mut coflows = vec![coflow(1, 0.0, &[(0, 1, 1.0), (2, 3, 1.0)])];
    for second in 0..10 {
        for (port, to) in [(0, 4), (2, 5)] {
            coflows.push(coflow(10 * (second + 1) + u64::from(port), second as f64, &[(port, to, 1.0)]));
        }
    }
    let workload = Workload { ports: 6, coflows, events: Vec::new(), names: ServiceNames::default() };
    let found = explain(&workload, "saath:start=4B:d=1.5", 0, 0.0);
    let standings: Vec<OrderCriterion> = found.segments.iter().map(|s| s.order_criterion).collect();
    let (last, before) = standings.split_last().unwrap();
    assert!(before.iter().all(|standing| *standing == OrderCriterion::Contention(2)), "{standings:?}");
    assert_eq!(*last, OrderCriterion::DeadlineExpired);
    assert_eq!((found.segments.last().unwrap().start, found.outcome.end), (6.0, 7.0));
    assert_eq!(found.segments[0].holders[0].order_criterion, OrderCriterion::Contention(1));
}

#[test]
fn names_a_slow_port_and_the_wait_for_a_schedule() {
    let mut workload = Workload {
        ports: 2,
        coflows: vec![coflow(1, 0.25, &[(0, 1, 3.0)])],
        events: Vec::new(),
        names: ServiceNames::default(),
    };
    let what = WorkloadChange::PortRate { port: 1, side: PortSide::Receive, factor: 0.5 };
    workload.events.push(TimedEvent { time: time(0.0), change: what });
    let found = explain(&workload, "saath", 0, 1.0);
    let causes: Vec<SlowdownCause> = found.segments.iter().map(|s| s.cause).collect();
    let port = Link::Receiver(1);
    assert_eq!(causes, [SlowdownCause::NextSchedule, SlowdownCause::SlowLink(port)]);
    assert_eq!(found.segments[1].pace(), 0.5);
    assert_eq!(
        found.lost_seconds_by_cause(),
        [(SlowdownCause::SlowLink(port), 3.0), (SlowdownCause::NextSchedule, 0.75)]
    );
}

/// Two coflows of one byte each from port 0, which has a tenth of its rate.
fn coflows_at_a_slow_port() -> Workload {
    let coflows = vec![coflow(1, 0.0, &[(0, 1, 1.0)]), coflow(2, 0.0, &[(0, 2, 1.0)])];
    let change = WorkloadChange::PortRate { port: 0, side: PortSide::Both, factor: 0.1 };
    let events = vec![TimedEvent { time: time(0.0), change }];
    Workload { ports: 3, coflows, events, names: ServiceNames::default() }
}

#[track_caller]
fn assert_near(found: &[(SlowdownCause, f64)], expected: &[(SlowdownCause, f64)], context: &str) {
    let is_near =
        |(a, b): (&(SlowdownCause, f64), &(SlowdownCause, f64))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-9;
    let are_near = found.len() == expected.len() && found.iter().zip(expected).all(is_near);
    assert!(are_near, "{context}: found {found:?}, expected {expected:?}");
}

#[test]
fn slow_port_is_not_charged_to_the_coflow_that_shares_it() {
    let workload = coflows_at_a_slow_port();
    let slow = SlowdownCause::SlowLink(Link::Sender(0));
    let shared = SlowdownCause::ContendedLink(Link::Sender(0));
    for policy in ["fair", "netshare", "saba", "saath", "varys", "aalo", "pfp", "weir"] {
        let found = [0, 1].map(|index| explain(&workload, policy, index, 0.0));
        for explanation in &found {
            check_sums(explanation);
        }
        let last = found.iter().max_by(|a, b| a.outcome.end.total_cmp(&b.outcome.end)).unwrap();
        // The other coflow and the own one take 10 s each; at its nominal rate, the port takes 1 s.
        assert!((last.outcome.cct() - 20.0).abs() < 1e-9, "{policy}: {}", last.outcome.cct());
        assert_near(&last.lost_seconds_by_cause(), &[(shared, 10.0), (slow, 9.0)], policy);
        let [(_, charged)] = last.lost_seconds_by_coflow()[..] else { panic!("{policy}: {last:?}") };
        assert!((charged - 10.0).abs() < 1e-9, "{policy}: {charged}");
    }
}

#[test]
fn slow_sending_port_is_the_cause_although_others_fill_the_receiving_port() {
    // The other coflow takes what the slow port leaves at port 2.
    let mut workload = coflows_at_a_slow_port();
    workload.coflows = vec![coflow(1, 0.0, &[(0, 2, 1.0)]), coflow(2, 0.0, &[(1, 2, 9.0)])];
    for policy in ["fair", "netshare", "saba"] {
        let found = explain(&workload, policy, 0, 0.0);
        check_sums(&found);
        let slow = SlowdownCause::SlowLink(Link::Sender(0));
        assert_near(&found.lost_seconds_by_cause(), &[(slow, 9.0)], policy);
        assert!(found.lost_seconds_by_coflow().is_empty(), "{policy}");
    }
}

#[test]
fn link_that_is_idle_until_the_next_schedule_is_charged_to_no_coflow() {
    // Coflow 7 ends after 1 s, and coflow 8 starts at the next schedule.
    let coflows = vec![coflow(7, 0.0, &[(0, 1, 1.0)]), coflow(8, 0.0, &[(0, 2, 3.0)])];
    let workload = Workload { ports: 3, coflows, events: Vec::new(), names: ServiceNames::default() };
    let found = explain(&workload, "fifo", 1, 1.5);
    check_sums(&found);
    let port = SlowdownCause::ContendedLink(Link::Sender(0));
    assert_eq!(found.lost_seconds_by_cause(), [(port, 1.0), (SlowdownCause::NextSchedule, 0.5)]);
    assert_eq!(found.lost_seconds_by_coflow(), [(7, 1.0)]);
    // Coflow 7 uses the link in 1 s of 1.5 s.
    assert!((found.segments[0].holders[0].rate_share - 2.0 / 3.0).abs() < 1e-9, "{found:?}");
}

#[test]
fn wide_coflow_of_weir_waits_for_its_first_schedule() {
    // Hosts serve coflow 2, which starts and ends meanwhile, but not the 1,056 flows of coflow 1.
    let flows: Vec<_> = (0..33).flat_map(|src| (33..65).map(move |dst| (src, dst, 1.0))).collect();
    let coflows = vec![coflow(1, 0.25, &flows), coflow(2, 0.5, &[(0, 33, 0.125)])];
    let workload = Workload { ports: 65, coflows, events: Vec::new(), names: ServiceNames::default() };
    let found = explain(&workload, "weir", 0, 1.0);
    check_sums(&found);
    let wait = &found.segments[0];
    assert_eq!((wait.start, wait.end), (0.25, 1.0));
    assert_eq!((wait.state, wait.cause), (ProgressState::Waiting, SlowdownCause::NextSchedule));
    assert_eq!(wait.rule, found.segments[1].rule);
    assert_ne!(wait.rule, Rule::Unexplained);
    assert!(found.lost_seconds_by_cause().contains(&(SlowdownCause::NextSchedule, 0.75)), "{found:?}");
}

#[test]
fn names_missing_data_at_the_bottleneck() {
    let mut late = coflow(1, 0.0, &[(0, 1, 1.0), (2, 3, 4.0)]);
    late.flows[1].data_delay = time(5.0);
    // Another coflow uses the first flow's port meanwhile, which has no effect.
    let coflows = vec![late, coflow(2, 0.0, &[(0, 4, 2.0)])];
    let workload = Workload { ports: 5, coflows, events: Vec::new(), names: ServiceNames::default() };
    for policy in ["fair", "saath", "varys", "aalo"] {
        let found = explain(&workload, policy, 0, 0.0);
        check_sums(&found);
        assert_eq!(found.lost_seconds_by_cause(), [(SlowdownCause::NoData, 5.0)], "{policy}");
        assert!(found.lost_seconds_by_coflow().is_empty(), "{policy}");
    }
}

#[test]
fn coflow_without_bytes_has_no_segments() {
    let workload = Workload {
        ports: 2,
        coflows: vec![coflow(1, 2.0, &[(0, 1, 0.0)])],
        events: Vec::new(),
        names: ServiceNames::default(),
    };
    let found = explain(&workload, "saath", 0, 0.008);
    assert!(found.segments.is_empty());
    assert_eq!((found.alone_seconds, found.outcome.cct()), (0.0, 0.0));
}
