//! Services on a network whose cables fail, recover and change their rates.

use weir_core::model::scenario::{CableChange, CableEvent, Demand, Scenario, SendMode, Service};
use weir_core::model::{LinkId, NodeId, Routes, TopologyTemplate};
use weir_core::units::{Rate, Time};
use weir_sim::service::{Mechanism, ScenarioOutcome, run_scenario};

const GBIT: f64 = 125e6;

fn time(seconds: f64) -> Time {
    Time::new(seconds).unwrap()
}

fn rate(gbit: f64) -> Rate {
    Rate::new(gbit * GBIT).unwrap()
}

/// Two leaves with two hosts each under two spines, all cables at 1 Gbit/s. Services of weight 1 and 3 have
/// one connection each from the first leaf to the second.
fn two_spines(seed: u64) -> Scenario {
    let plan = TopologyTemplate::LeafSpine {
        spines: 2,
        leaves: 2,
        hosts: 2,
        rate: rate(1.0),
        oversubscription: 1.0,
    };
    let service = |name: &str, weight| Service { name: name.to_owned(), weight, excess_weight: None };
    let demand = |service: usize| Demand {
        service,
        sources: vec![NodeId(service as u32)],
        destinations: vec![NodeId(service as u32 + 2)],
        connections: 1,
        send_mode: SendMode::Elastic,
        active_intervals: vec![(Time::ZERO, time(12.0))],
    };
    Scenario {
        topology: plan.build().unwrap(),
        seed,
        end: time(12.0),
        min_limit: Scenario::DEFAULT_MIN_LIMIT,
        services: vec![service("A1", 1.0), service("A2", 3.0)],
        demands: vec![demand(0), demand(1)],
        guarantees: Vec::new(),
        ports: Vec::new(),
        events: Vec::new(),
    }
}

/// The cables from the first leaf to the spines.
fn spine_links(scenario: &Scenario) -> [LinkId; 2] {
    let topology = &scenario.topology;
    let up = |link: LinkId| topology.link(link).to;
    let leaf = up(topology.outgoing_links(NodeId(0))[0]);
    let out = topology.outgoing_links(leaf).iter().copied().filter(|&link| !topology.is_host(up(link)));
    out.collect::<Vec<_>>().try_into().unwrap()
}

/// For each of the two connections, whether it crosses the first spine if both spines are up.
fn uses_first_spine(scenario: &Scenario) -> [bool; 2] {
    let first = spine_links(scenario)[0];
    let mut routes = Routes::new(scenario.topology.clone(), scenario.seed);
    let mut path = Vec::new();
    [0u32, 1].map(|host| {
        // Connections of demand d are numbered from d * 2^32 on.
        assert!(routes.compute_path(NodeId(host), NodeId(host + 2), u64::from(host) << 32, &mut path));
        path.contains(&first)
    })
}

/// Received rates at the end of each phase, in Gbit/s.
fn final_rates(shared: &ScenarioOutcome) -> Vec<Vec<f64>> {
    shared.phases.iter().map(|phase| phase.final_rates.iter().map(|rate| rate / GBIT).collect()).collect()
}

fn assert_close(found: &[f64], expected: &[f64], context: &str) {
    assert_eq!(found.len(), expected.len(), "{context}");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= 1e-9, "{context}: {found:?} instead of {expected:?}");
    }
}

#[test]
fn service_rates_follow_cable_failure_slowdown_and_recovery() {
    let mut met = [false; 2];
    for seed in 0..8 {
        let mut scenario = two_spines(seed);
        let [first, second] = spine_links(&scenario);
        let event = |at, cable, change| CableEvent { time: time(at), cable, change };
        scenario.events = vec![
            event(2.0, first, CableChange::Down),
            event(4.0, second.reverse(), CableChange::Rate(rate(0.5))),
            event(6.0, second, CableChange::Down),
            event(8.0, first.reverse(), CableChange::Up),
            event(10.0, second, CableChange::Up),
        ];
        let by_first = uses_first_spine(&scenario);
        met[usize::from(by_first[0] == by_first[1])] = true;
        // Expected rates with a queue per service, for these spine capacities with both spines up.
        let expected_rates = |capacities: [f64; 2]| {
            let part = |flow: usize| {
                let capacity = capacities[usize::from(!by_first[flow])];
                if by_first[0] == by_first[1] { capacity * [0.25, 0.75][flow] } else { capacity }
            };
            [part(0), part(1)]
        };
        let shared = run_scenario(&scenario, Mechanism::Queues, |_| true).unwrap();
        let times: Vec<[f64; 2]> = shared.phases.iter().map(|p| [p.start.get(), p.end.get()]).collect();
        assert_eq!(times, [[0.0, 2.0], [2.0, 4.0], [4.0, 6.0], [6.0, 8.0], [8.0, 10.0], [10.0, 12.0]]);
        let expected = [
            expected_rates([1.0, 1.0]),
            [0.25, 0.75],
            [0.125, 0.375],
            [0.0, 0.0],
            [0.25, 0.75],
            expected_rates([1.0, 0.5]),
        ];
        for (phase, (found, expected)) in final_rates(&shared).iter().zip(&expected).enumerate() {
            assert_close(found, expected, &format!("seed {seed}, phase {phase}"));
        }
        let stranded: Vec<&[u32]> =
            shared.phases.iter().map(|phase| &phase.pathless_connections[..]).collect();
        assert_eq!(stranded, [[0, 0], [0, 0], [0, 0], [1, 1], [0, 0], [0, 0]]);
        // Link loads: zero while a cable is down.
        let rates_on_link = |link| -> Vec<f64> {
            shared
                .phases
                .iter()
                .map(|phase| shared.mean_rates_on_link(phase, link).iter().sum::<f64>() / GBIT)
                .collect()
        };
        assert_close(&rates_on_link(first)[1..5], &[0.0, 0.0, 0.0, 1.0], "first spine");
        assert_close(&rates_on_link(second)[1..5], &[1.0, 0.5, 0.0, 0.0], "second spine");
    }
    assert_eq!(
        met, [true; 2],
        "expected a seed for which both use one spine, and one for which they use two"
    );
}

#[test]
fn disconnected_host_leaves_its_share_to_others() {
    for mechanism in Mechanism::ALL {
        let mut scenario = two_spines(0);
        // A single spine, which both share; then the first host's cable fails.
        let [first, _] = spine_links(&scenario);
        let host = scenario.topology.outgoing_links(NodeId(0))[0];
        let event = |at, cable, change| CableEvent { time: time(at), cable, change };
        scenario.events = vec![
            event(0.0, first, CableChange::Down),
            event(4.0, host, CableChange::Down),
            event(8.0, host, CableChange::Up),
        ];
        let shared = run_scenario(&scenario, mechanism, |_| true).unwrap();
        let found = final_rates(&shared);
        if mechanism == Mechanism::Queues {
            assert_close(&found[0], &[0.25, 0.75], "queues");
        }
        assert_close(&[found[0].iter().sum()], &[1.0], mechanism.name());
        assert_close(&found[1], &[0.0, 1.0], mechanism.name());
        assert_close(&[found[2].iter().sum()], &[1.0], mechanism.name());
        assert_eq!(shared.phases[1].pathless_connections, [1, 0], "{mechanism}");
        assert_close(&[shared.phases[1].final_sent_rates[0]], &[0.0], mechanism.name());
    }
}

#[test]
fn rerouted_connection_is_measured_from_scratch() {
    // 1 Gbit/s of UDP into a receiver's cable of 400 Mbit/s is throttled to 440. On another spine, the
    // traffic is not limited until it is measured there; the same applies once the spine recovers.
    let mut scenario = two_spines(0);
    scenario.demands.truncate(1);
    scenario.demands[0].send_mode = SendMode::Unresponsive(rate(1.0));
    let receiver = scenario.topology.outgoing_links(NodeId(2))[0];
    let mut routes = Routes::new(scenario.topology.clone(), scenario.seed);
    let mut path = Vec::new();
    assert!(routes.compute_path(NodeId(0), NodeId(2), 0, &mut path));
    let event = |at, cable, change| CableEvent { time: time(at), cable, change };
    scenario.events = vec![
        event(0.0, receiver, CableChange::Rate(rate(0.4))),
        event(2.0, path[1], CableChange::Down),
        event(4.0, path[1], CableChange::Up),
    ];
    let shared = run_scenario(&scenario, Mechanism::QueuesThrottling, |_| true).unwrap();
    let sent: Vec<(f64, f64)> =
        shared.segments.iter().map(|segment| (segment.start.get(), segment.sent_rates[0] / GBIT)).collect();
    // 1 until measured at 0.4; then 20 % above, since that is a rise; then 10 %.
    let expected_segments = |from: f64| [(from, 1.0), (from + 0.05, 0.48), (from + 0.1, 0.44)];
    let expected: Vec<(f64, f64)> = expected_segments(0.0)
        .into_iter()
        .chain(expected_segments(2.0))
        .chain(expected_segments(4.0))
        .collect();
    for (n, (from, rate)) in expected.iter().enumerate() {
        assert_close(&[sent[n].0, sent[n].1], &[*from, *rate], &format!("{sent:?}"));
    }
    assert_eq!(sent.len(), expected.len());
}
