//! Cables that fail, are repaired or change their rate: examples by hand, and properties of every policy.

use crate::common::{
    CapacityChecker, POLICIES, SHARED_QUEUES, WorkloadFeatures, any_workload, assert_near, cases,
    check_all_sent_bytes, coflow, leaf_spine, options_over, replay_with_options, time, workload,
};
use crate::incast::goodput_of;
use crate::link_use::check_link_use;
use crate::reference_simulator::{Epoch, TestNetwork};
use proptest::prelude::*;
use weir_core::model::topology::{CableChange, CableEvent};
use weir_core::model::{LinkId, NodeId, Routes, Topology, TopologyTemplate, Trunks, Workload};
use weir_core::policy;
use weir_core::units::Rate;
use weir_sim::lower_bound::LowerBounds;
use weir_sim::{NoObserver, Outcome, ReplayError, ReplayOptions, replay};

fn options_with(trunks: &Trunks, events: &[CableEvent], interval: f64) -> ReplayOptions {
    let mut options = options_over(trunks, interval);
    options.network.cable_events = events.into();
    options
}

fn replay_with_events(all: &Workload, topology: &Topology, policy: &str, events: &[CableEvent]) -> Outcome {
    CableEvent::check(events, topology).unwrap();
    let trunks = Trunks::new(topology.clone(), 0).unwrap();
    replay_with_options(all, policy, &options_with(&trunks, events, 0.0))
}

fn event(at: f64, cable: LinkId, change: CableChange) -> CableEvent {
    CableEvent { time: time(at), cable, change }
}

/// The links of the path of the first flow of the first coflow, from one host to another.
fn first_path(topology: &Topology, from: u32, to: u32) -> Vec<LinkId> {
    let mut path = Vec::new();
    Routes::new(topology.clone(), 0).compute_path(NodeId(from), NodeId(to), 0, &mut path);
    path
}

/// Policies of each kind: TCP, equal rates, MADD, queues, decisions over ports, orders of links.
const KINDS: [&str; 8] = ["fair", "saath", "varys", "aalo", "aalo:at=both", "pfp", "django", "mrtf"];

#[test]
fn flow_continues_on_another_path_when_a_cable_fails() {
    let topology = leaf_spine(2, 2, 2, 1.0);
    let one = workload(4, vec![coflow(1, 0.0, &[(0, 2, 4.0)])]);
    let [_, uplink, downlink, _] = first_path(&topology, 0, 2)[..] else { panic!("four links") };
    for policy in KINDS {
        // The other spine has the same capacity, so no time is lost.
        let found = replay_with_events(&one, &topology, policy, &[event(1.0, uplink, CableChange::Down)]);
        assert_near(&found.ccts(), &[4.0], 1e-9, policy);
        // Without any path from 1 s to 3 s.
        let other_uplinks: Vec<LinkId> = topology
            .outgoing_links(topology.link(uplink).from)
            .iter()
            .copied()
            .filter(|&link| link != uplink && !topology.is_host_link(topology.link(link)))
            .collect();
        let [other] = other_uplinks[..] else { panic!("one other uplink") };
        let events = [
            event(1.0, uplink, CableChange::Down),
            event(1.0, other, CableChange::Down),
            event(3.0, other.reverse(), CableChange::Up),
        ];
        let found = replay_with_events(&one, &topology, policy, &events);
        assert_near(&found.ccts(), &[6.0], 1e-9, policy);
        // Half of the rate from 2 s on; the path stays the same.
        let slower = CableChange::Rate(Rate::new(0.5).unwrap());
        let found = replay_with_events(&one, &topology, policy, &[event(2.0, downlink, slower)]);
        assert_near(&found.ccts(), &[6.0], 1e-9, policy);
    }
}

#[test]
fn gittins_keeps_the_attained_service_of_a_coflow_on_another_path() {
    // The first level is 16 kB, so the second coflow leaves it 16 ms after its start.
    let rate = Rate::new(1e6).unwrap();
    let shape = TopologyTemplate::LeafSpine { spines: 2, leaves: 2, hosts: 2, rate, oversubscription: 1.0 };
    let topology = shape.build().unwrap();
    // The second coflow has less attained service, and goes first, also after the path of the first one has failed.
    let all = workload(4, vec![coflow(1, 0.0, &[(0, 2, 10e6)]), coflow(2, 4.0, &[(0, 3, 2e6)])]);
    let uplink = first_path(&topology, 0, 2)[1];
    let failure = [event(4.5, uplink, CableChange::Down)];
    for policy in ["gittins", "gittins:index=las"] {
        let found = replay_with_events(&all, &topology, policy, &failure);
        assert_near(&found.ccts(), &[12.0, 2.0], 1e-9, policy);
    }
}

#[test]
fn flow_waits_while_the_cable_of_its_host_is_down() {
    let topology = leaf_spine(2, 2, 2, 1.0);
    let one = workload(4, vec![coflow(1, 0.0, &[(0, 2, 4.0)])]);
    let cable = first_path(&topology, 0, 2)[0];
    let events = [event(1.0, cable.reverse(), CableChange::Down), event(2.5, cable, CableChange::Up)];
    for policy in KINDS {
        let found = replay_with_events(&one, &topology, policy, &events);
        assert_near(&found.ccts(), &[5.5], 1e-9, policy);
        // Both paths of the flow count the bytes that they carried, and all bytes are counted once.
        if !found.trunk_utilization.is_empty() {
            let carried: f64 = found.trunk_utilization.iter().map(|part| part * 5.5).sum();
            assert_near(&[carried], &[8.0], 1e-9, policy);
        }
    }
    let forever = &events[..1];
    let trunks = Trunks::new(topology, 0).unwrap();
    let built = policy::build("fair").unwrap();
    let stalled = replay(&one, built, &options_with(&trunks, forever, 0.0), &mut NoObserver).unwrap_err();
    assert!(matches!(&stalled, ReplayError::Stalled(stall) if stall.coflows[0].id == 1), "{stalled}");
}

#[test]
fn flow_without_a_path_adds_no_incast_sender() {
    let topology = leaf_spine(2, 2, 2, 1.0);
    // Port 3 is under the leaf of port 2. Port 0 has no path until 4 s; two senders would halve the goodput of port 2.
    let one = workload(4, vec![coflow(1, 0.0, &[(0, 2, 2.0), (3, 2, 4.0)])]);
    let uplink = first_path(&topology, 0, 2)[1];
    let uplinks = topology.outgoing_links(topology.link(uplink).from).iter().copied();
    let uplinks: Vec<LinkId> = uplinks.filter(|&link| !topology.is_host_link(topology.link(link))).collect();
    let change = |at, change| uplinks.iter().map(move |&link| event(at, link, change));
    let events: Vec<CableEvent> =
        change(0.0, CableChange::Down).chain(change(4.0, CableChange::Up)).collect();
    let trunks = Trunks::new(topology, 0).unwrap();
    let mut options = options_with(&trunks, &events, 0.0);
    options.network.goodput = Some(goodput_of(&[(1, 1.0), (2, 0.5)], 1.0));
    for policy in ["fair", "aalo", "saath:all-or-none=off", "varys"] {
        let found = replay_with_options(&one, policy, &options);
        assert_near(&found.coflows[0].flow_ends, &[6.0, 4.0], 1e-9, policy);
        let paths: Vec<usize> = found.coflows[0].flow_paths.iter().map(|path| path.len()).collect();
        assert_eq!(paths, [2, 0], "{policy}");
    }
}

#[test]
fn two_flows_share_the_uplink_that_is_left() {
    let topology = leaf_spine(2, 2, 2, 1.0);
    // Flows from both hosts of the first leaf. One spine fails after 2 s, the other carries both from then on.
    let both = workload(4, vec![coflow(1, 0.0, &[(0, 2, 4.0)]), coflow(2, 0.0, &[(1, 3, 4.0)])]);
    let uplink = first_path(&topology, 0, 2)[1];
    let down = [event(2.0, uplink, CableChange::Down)];
    let plain = replay_with_events(&both, &topology, "fair", &[]);
    let found = replay_with_events(&both, &topology, "fair", &down);
    // If their hashes chose the same spine, they shared it before.
    let before = plain.ccts()[0];
    let expected = if before == 4.0 { [6.0, 6.0] } else { [8.0, 8.0] };
    assert_near(&found.ccts(), &expected, 1e-9, "fair");
}

/// The paths and capacities after each event, from the routes of the topology.
fn epochs_of(topology: &Topology, seed: u64, workload: &Workload, events: &[CableEvent]) -> Vec<Epoch> {
    let mut routes = Routes::new(topology.clone(), seed);
    let mut engine_trunks = Trunks::new(topology.clone(), seed).unwrap().with_dead_end();
    let mut rates: Vec<f64> = topology.links().iter().map(|link| link.rate.get()).collect();
    let is_trunk = |link: LinkId| !topology.is_host_link(topology.link(link));
    let trunks: Vec<LinkId> =
        (0..topology.links().len() as u32).map(LinkId).filter(|&link| is_trunk(link)).collect();
    let mut epochs = Vec::new();
    for event in events {
        engine_trunks.change_cables(&[(event.cable, event.change)]);
        for link in [event.cable, event.cable.reverse()] {
            match event.change {
                CableChange::Down => drop(routes.fail_link(link)),
                CableChange::Up => drop(routes.restore_link(link)),
                CableChange::Rate(rate) => rates[link.index()] = rate.get(),
            }
        }
        let capacity = |link: &LinkId| if routes.is_up(*link) { rates[link.index()] } else { 0.0 };
        // Flows without a path cross one more trunk, which has no capacity.
        let capacities = trunks.iter().map(capacity).chain([0.0]).collect();
        let mut path = Vec::new();
        let mut paths = Vec::new();
        for (index, coflow) in workload.coflows.iter().enumerate() {
            let of_flow = (0..).zip(&coflow.flows).map(|(number, flow)| {
                let hash = (index as u64) << 32 | number;
                if flow.src == flow.dst {
                    return Vec::new();
                }
                match routes.compute_path(NodeId(flow.src), NodeId(flow.dst), hash, &mut path) {
                    true => path
                        .iter()
                        .filter_map(|link| trunks.iter().position(|trunk| trunk == link))
                        .map(|trunk| trunk as u32)
                        .collect(),
                    false => vec![trunks.len() as u32],
                }
            });
            paths.push(of_flow.collect());
        }
        let contended_trunks = engine_trunks.contended_trunks();
        epochs.push(Epoch { time: event.time.get(), capacities, contended_trunks, paths });
    }
    epochs
}

/// A workload on a network whose cables change. All cables are up in the end.
pub fn any_failures(features: WorkloadFeatures) -> impl Strategy<Value = (Workload, TestNetwork)> {
    let changes = prop::collection::vec((0..1000usize, 0.0..6.0f64, 0.05..4.0f64, 0.8..2.0f64, 0..3u8), 0..6);
    (any_workload(features), 2..4u32, 2..4u32, prop::sample::select(vec![1.0, 1.7, 2.0]), 0..100u64, changes)
        .prop_map(|(workload, spines, leaves, oversubscription, seed, changes)| {
            let hosts = workload.ports.div_ceil(leaves).max(1);
            let topology = leaf_spine(spines, leaves, hosts, oversubscription);
            let is_trunk = |&cable: &u32| !topology.is_host_link(topology.link(LinkId(cable)));
            let cables: Vec<u32> = (0..topology.links().len() as u32).step_by(2).filter(is_trunk).collect();
            let mut events = Vec::new();
            let mut used = Vec::new();
            for (choice, at, length, factor, kind) in changes {
                let cable = LinkId(cables[choice % cables.len()]);
                if used.contains(&cable) {
                    continue;
                }
                used.push(cable);
                let rate = |factor: f64| {
                    CableChange::Rate(Rate::new(topology.link(cable).rate.get() * factor).unwrap())
                };
                let (first, second) = match kind {
                    0 => (rate(factor), rate(1.0)),
                    _ => (CableChange::Down, CableChange::Up),
                };
                events.push(event(at, cable, first));
                events.push(event(at + length, cable.reverse(), second));
            }
            events.sort_by(|a, b| a.time.get().total_cmp(&b.time.get()));
            CableEvent::check(&events, &topology).unwrap();
            let epochs = epochs_of(&topology, seed, &workload, &events);
            let trunks = Some(Trunks::new(topology, seed).unwrap());
            (workload, TestNetwork { trunks, cable_events: events, epochs, ..TestNetwork::default() })
        })
}

proptest! {
    #![proptest_config(cases(40))]

    /// Under every policy, links carry at most their capacity and every flow sends its bytes, also over several paths.
    #[test]
    fn failing_cables_lose_no_bytes(
        (workload, network) in any_failures(WorkloadFeatures { deadlines: true, parents: true, empty_flows: true, ..WorkloadFeatures::PLAIN }),
        interval in prop::sample::select(vec![0.0, 0.5]),
    ) {
        let (workload, options) = (&workload, network.options(interval));
        for policy in POLICIES.iter().chain(&["netshare:weights=4/2/1", "saba:slowdown=2.3/1.1", SHARED_QUEUES]) {
            let mut checker = CapacityChecker::default();
            let outcome = replay(workload, policy::build(policy).unwrap(), &options, &mut checker);
            prop_assert_eq!(&checker.violation, &None, "{}", policy);
            let outcome = outcome.map_err(|error| TestCaseError::fail(format!("{policy}: {error}")))?;
            check_all_sent_bytes(workload, &checker.schedules, &outcome)
                .map_err(|error| TestCaseError::fail(format!("{policy}: {error}")))?;
            prop_assert_eq!(LowerBounds::new(workload, &options).check(&outcome), Ok(()), "{}", policy);
            for utilization in &outcome.trunk_utilization {
                prop_assert!(*utilization <= 1.0 + 1e-9, "{}: {}", policy, utilization);
            }
            check_link_use(&outcome, interval, false)
                .map_err(|error| TestCaseError::fail(format!("{policy}: {error}")))?;
            let again = replay_with_options(workload, policy, &options);
            prop_assert_eq!(again.coflows, outcome.coflows, "{}", policy);
        }
    }
}

#[test]
fn flow_that_is_complete_but_for_rounding_keeps_its_progress_on_a_new_path() {
    // The second coflow's flow 1 has sent its byte at 7, but for rounding, when the first coflow takes its link. The cable of its
    // flow 0 is repaired before it is served again, which replaces the flows.
    let first = coflow(100, 7.0, &[(0, 0, 1.0)]);
    let second = coflow(101, 6.0, &[(0, 1, 1.0), (0, 0, 1.0), (0, 0, 1.0)]);
    let workload = workload(2, vec![first, second]);
    let trunks = Trunks::new(leaf_spine(2, 3, 1, 1.0), 74).unwrap();
    let events = [
        event(5.963355155766268, LinkId(0), CableChange::Down),
        event(7.130839828037955, LinkId(1), CableChange::Up),
    ];
    let mut checker = CapacityChecker::default();
    let options = options_with(&trunks, &events, 0.0);
    let policy = policy::build("weir:turns=0:pilots=0s").unwrap();
    let outcome = replay(&workload, policy, &options, &mut checker).unwrap();
    check_all_sent_bytes(&workload, &checker.schedules, &outcome).unwrap();
}
