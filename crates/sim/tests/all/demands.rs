//! Services as a source of coflows: rates by hand, and against the simulator of NetShare's mechanisms.

use std::path::Path;
use std::sync::Arc;

use crate::common::{POLICIES, assert_near, cases, coflow, time, timed_event, workload};
use proptest::prelude::*;
use weir_core::model::scenario::{CableChange, CableEvent, Demand, Scenario, SendMode, Service};
use weir_core::model::{NodeId, PortSide, ServiceNames, Trunks, Workload, WorkloadChange};
use weir_core::policy;
use weir_core::units::{Rate, Time};
use weir_sim::demands::{AddDemandsError, add_demands};
use weir_sim::lower_bound::LowerBounds;
use weir_sim::service::{Mechanism, run_scenario};
use weir_sim::{NetworkModel, NoObserver, Outcome, ReplayOptions, replay};

const GBIT: f64 = 125e6;
const MAX_FLOWS: usize = 10_000;

/// Services `A`, `B` and `C` with weights 1, 3 and 4 on four hosts at one switch.
const HEAD: &str = "\
weir-scenario = 1
end = \"10s\"
fabric = { kind = \"big-switch\", hosts = 4, rate = \"1Gbit\" }
service = [{ name = \"A\", weight = 1 }, { name = \"B\", weight = 3 }, { name = \"C\", weight = 4 }]
";

/// Demands (service, from, to, other keys) after [`HEAD`].
fn scenario(demands: &[(&str, &str, &str, &str)]) -> Scenario {
    let demand = |(service, from, to, rest): &(&str, &str, &str, &str)| {
        format!("[[demand]]\nservice = \"{service}\"\nfrom = \"{from}\"\nto = \"{to}\"\n{rest}\n")
    };
    let text = HEAD.to_owned() + &demands.iter().map(demand).collect::<String>();
    weir_trace::scenario::read_from(text.as_bytes(), "scenario", Path::new("")).unwrap()
}

const ELASTIC: &str = "sending = \"elastic\"";

fn replay_over(scenario: &Scenario, workload: &Workload, policy: &str) -> (Outcome, ReplayOptions) {
    let options = ReplayOptions {
        interval: Time::ZERO,
        network: NetworkModel {
            trunks: Some(Arc::new(Trunks::new(scenario.topology.clone(), scenario.seed).unwrap())),
            cable_events: scenario.events.clone().into(),
            ..NetworkModel::default()
        },
        ..ReplayOptions::default()
    };
    let built = policy::build(policy).unwrap();
    let outcome = replay(workload, built, &options, &mut NoObserver);
    (outcome.unwrap_or_else(|error| panic!("{policy}: {error}")), options)
}

/// The scenario alone; with the bytes that each endless coflow sent.
fn sent_bytes(scenario: &Scenario, policy: &str) -> Vec<f64> {
    let mut workload = Workload { names: ServiceNames::empty(), ..workload(1, Vec::new()) };
    add_demands(&mut workload, scenario, &scenario.events, MAX_FLOWS).unwrap();
    let (outcome, _) = replay_over(scenario, &workload, policy);
    assert!(outcome.coflows.is_empty());
    outcome.endless_coflows.iter().map(|coflow| coflow.sent_bytes()).collect()
}

#[test]
fn services_share_a_link_by_their_weights() {
    // NetShare, section 2: weights hold for any number of connections. B has 4 connections and A one, into host 2.
    let both =
        scenario(&[("A", "h0", "h2", ELASTIC), ("B", "h1", "h2", "connections = 4\nsending = \"elastic\"")]);
    let gbits =
        |policy: &str| sent_bytes(&both, policy).iter().map(|sent| sent / 10.0 / GBIT).collect::<Vec<_>>();
    assert_near(&gbits("netshare"), &[0.25, 0.75], 1e-9, "weights of the scenario");
    assert_near(&gbits("netshare:weights=1/1"), &[0.5, 0.5], 1e-9, "weights of the policy");
    assert_near(&gbits("fair"), &[0.2, 0.8], 1e-9, "by connection");
}

#[test]
fn capped_connections_leave_the_rest_to_others() {
    let one = "sending = \"capped\"\nrate = \"100Mbit\"\nactive = [[\"2s\", \"7s\"]]";
    let two = format!("connections = 2\n{one}");
    let both = scenario(&[("A", "h0", "h2", &two), ("B", "h1", "h2", ELASTIC)]);
    for policy in ["fair", "netshare"] {
        let expected = [2.0 * 0.1 * 5.0 * GBIT, (5.0 + 5.0 * 0.8) * GBIT];
        assert_near(&sent_bytes(&both, policy), &expected, 1e-9, policy);
    }
    // Alone, every policy serves connections up to their limit.
    for policy in POLICIES {
        let alone = scenario(&[("A", "h0", "h2", one)]);
        assert_near(&sent_bytes(&alone, policy), &[0.1 * GBIT * 5.0], 1e-9, policy);
    }
}

#[test]
fn demands_take_bandwidth_from_coflows_and_leave_their_statistics_alone() {
    let demands = scenario(&[("A", "h0", "h2", "sending = \"elastic\"\nactive = [[\"0s\", \"4s\"]]")]);
    let mut all = workload(4, vec![coflow(7, 0.0, &[(1, 2, 3.0 * GBIT)])]);
    let active = add_demands(&mut all, &demands, &[], MAX_FLOWS).unwrap();
    assert_eq!((all.coflows[1].id, active[0].coflow), (8, 1));
    assert_eq!(all.finite_coflows().len(), 1);
    let (outcome, options) = replay_over(&demands, &all, "fair");
    // Half of port 2 until 4 s, then all of it: 2 of 3 Gbit-seconds, then the third.
    assert_near(&outcome.ccts(), &[5.0], 1e-9, "fair");
    assert_eq!(outcome.coflow(1).map(|coflow| coflow.id), Some(8));
    let bounds = LowerBounds::new(&all, &options);
    assert_near(&bounds.min_ccts, &[3.0], 1e-9, "the bound ignores services");
    for policy in POLICIES {
        let (outcome, _) = replay_over(&demands, &all, policy);
        bounds.check(&outcome).unwrap();
        assert_near(&[outcome.endless_coflows[0].end], &[4.0], 1e-9, policy);
    }
}

#[test]
fn faster_ports_do_not_complete_endless_flows() {
    let demands = scenario(&[("A", "h0", "h2", ELASTIC)]);
    let mut faster = workload(4, Vec::new());
    let double = WorkloadChange::PortRate { port: 0, side: PortSide::Send, factor: 2.0 };
    let receive = WorkloadChange::PortRate { port: 2, side: PortSide::Receive, factor: 2.0 };
    faster.events = vec![timed_event(1.0, double), timed_event(1.0, receive)];
    add_demands(&mut faster, &demands, &[], MAX_FLOWS).unwrap();
    for policy in POLICIES {
        let (outcome, options) = replay_over(&demands, &faster, policy);
        LowerBounds::new(&faster, &options).check(&outcome).unwrap();
        let demand = &outcome.endless_coflows[0];
        assert_near(&[demand.end, demand.sent_bytes()], &[10.0, 19.0 * GBIT], 1e-9, policy);
    }
}

#[test]
fn policies_learn_what_services_sent_and_not_their_sizes() {
    // A limit at or above the rate of a host changes the size only.
    let interval = |start: u32| format!("[\"{}ms\", \"{}ms\"]", 100 * start, 100 * start + 50);
    let active = format!("active = [{}]", (0..20).map(interval).collect::<Vec<_>>().join(", "));
    let with_cap = |cap: &str| scenario(&[("A", "h0", "h2", &format!("{cap}\n{active}"))]);
    let coflows = |number: u64| coflow(number, 0.1 * number as f64, &[(0, 2, 1e6 * (number % 5 + 1) as f64)]);
    for policy in ["gittins", "weir:prior=on", "weir", "philae", "saath"] {
        let ccts =
            [ELASTIC, "sending = \"capped\"\nrate = \"1Gbit\"", "sending = \"capped\"\nrate = \"100Gbit\""]
                .map(|cap| {
                    let demands = with_cap(cap);
                    let mut all = workload(4, (0..30).map(coflows).collect());
                    add_demands(&mut all, &demands, &[], MAX_FLOWS).unwrap();
                    replay_over(&demands, &all, policy).0.ccts()
                });
        assert_near(&ccts[1], &ccts[0], 1e-9, policy);
        assert_near(&ccts[2], &ccts[0], 1e-9, policy);
    }
}

#[test]
fn events_of_other_files_do_not_end_services() {
    let demands = scenario(&[("A", "h0", "h2", ELASTIC)]);
    let event = |host: u32| CableEvent {
        time: time(1.0),
        cable: demands.topology.outgoing_links(NodeId(host))[0],
        change: CableChange::Rate(Rate::new(10.0 * GBIT).unwrap()),
    };
    let events = vec![event(0), event(2)];
    let mut all = workload(4, Vec::new());
    add_demands(&mut all, &demands, &events, MAX_FLOWS).unwrap();
    let with_events = Scenario { events, ..demands };
    let (outcome, options) = replay_over(&with_events, &all, "fair");
    assert_near(
        &[outcome.endless_coflows[0].sent_bytes()],
        &[91.0 * GBIT],
        1e-9,
        "1 s at 1 Gbit, 9 s at 10 Gbit",
    );
    LowerBounds::new(&all, &options).check(&outcome).unwrap();
}

#[test]
fn intervals_of_a_demand_share_their_limits() {
    let capped = "sending = \"capped\"\nrate = \"100Mbit\"\nactive = [[\"0s\", \"1s\"], [\"2s\", \"3s\"], [\"4s\", \"5s\"]]";
    let twice = scenario(&[("A", "h0", "h2", capped), ("B", "h1", "h2", capped)]);
    let mut all = workload(4, Vec::new());
    add_demands(&mut all, &twice, &[], MAX_FLOWS).unwrap();
    let trunks = Trunks::new(twice.topology.clone(), 0).unwrap();
    let links = trunks.links();
    assert_eq!(trunks.with_flow_limits(&all.coflows).capacities().len(), links + 2);
    assert_near(&sent_bytes(&twice, "fair"), &[0.1 * GBIT; 6], 1e-9, "fair");
}

#[test]
fn scenarios_that_policies_cannot_serve_are_refused() {
    let refusal =
        |scenario: &Scenario| add_demands(&mut workload(1, Vec::new()), scenario, &[], 3).unwrap_err();
    let lossy = scenario(&[("A", "h0", "h2", "sending = \"unresponsive\"\nrate = \"1Mbit\"")]);
    assert_eq!(refusal(&lossy), AddDemandsError::Unresponsive(1));
    assert_eq!(
        refusal(&scenario(&[("A", "*", "h2", ELASTIC), ("A", "h0", "h1", ELASTIC)])),
        AddDemandsError::TooManyFlows { max: 3 }
    );
    let mut named = scenario(&[("A", "h0", "h2", ELASTIC)]);
    named.services[0].name = "a/b".to_owned();
    assert_eq!(refusal(&named), AddDemandsError::InvalidName("a/b".to_owned()));
    let mut used_up = workload(1, vec![coflow(u64::MAX, 0.0, &[(0, 0, 1.0)])]);
    let one = scenario(&[("A", "h0", "h2", ELASTIC)]);
    assert_eq!(add_demands(&mut used_up, &one, &[], 9).unwrap_err(), AddDemandsError::NumbersUsedUp);
    assert_eq!(used_up.coflows.len(), 1);
}

#[test]
fn endless_coflows_need_a_limit_and_follow_all_others() {
    let mut all = workload(4, vec![coflow(1, 0.0, &[(0, 1, 1.0)])]);
    add_demands(&mut all, &scenario(&[("A", "h0", "h2", ELASTIC)]), &[], MAX_FLOWS).unwrap();
    all.check().unwrap();
    all.coflows.reverse();
    assert!(all.check().unwrap_err().to_string().starts_with("coflow 2 is endless"));
    all.coflows.reverse();
    all.coflows[1].max_transfer_time = None;
    assert!(all.check().unwrap_err().to_string().starts_with("coflow 2 is endless"));
}

const HOSTS: u32 = 12;

/// Demands of one pair of hosts each; with `own_hosts`, no host has two services.
fn any_scenario(own_hosts: bool) -> impl Strategy<Value = Scenario> {
    let send_mode = prop_oneof![
        2 => Just(SendMode::Elastic),
        1 => (1u32..900).prop_map(|mbit| SendMode::Capped(Rate::new(f64::from(mbit) * 125e3).unwrap())),
    ];
    let demand = (0usize..3, 0..4u32, 1..4u32, 1u32..4, send_mode, 0u32..10, 1u32..10);
    let change = prop_oneof![
        Just(CableChange::Down),
        (100u32..2_000).prop_map(|mbit| CableChange::Rate(Rate::new(f64::from(mbit) * 125e3).unwrap()))
    ];
    let event = prop::option::of((1u32..19, change));
    (prop::collection::vec(demand, 1..8), prop::collection::vec(1u32..10, 3), event, any::<u64>()).prop_map(
        move |(demands, weights, event, seed)| {
            let seconds = |tenths: u32| time(f64::from(tenths) / 10.0);
            let demand = |(service, from, step, connections, send_mode, start, length): (usize, u32, u32, u32, _, u32, u32)| {
                let host = |number: u32| match own_hosts {
                    true => NodeId(number % 4 * 3 + service as u32),
                    false => NodeId((number * 3 + service as u32 * 2) % HOSTS),
                };
                Demand {
                    service,
                    sources: vec![host(from)],
                    destinations: vec![host(from + step)],
                    connections,
                    send_mode,
                    active_intervals: vec![(seconds(start), seconds(start + length))],
                }
            };
            let service = |(number, weight): (usize, u32)| {
                Service { name: format!("S{number}"), weight: f64::from(weight), excess_weight: None }
            };
            let fabric = "weir-fabric = 1\nkind = \"leaf-spine\"\nspines = 2\nleaves = 3\nhosts = 4\nrate = \"1Gbit\"\noversubscription = 4.0\n";
            let topology = weir_trace::topology::read_from(fabric.as_bytes(), "fabric").unwrap();
            let cable = topology.links().iter().position(|link| !topology.is_host_link(*link)).unwrap();
            let cable = weir_core::model::LinkId(cable as u32);
            Scenario {
                topology,
                seed,
                end: time(2.0),
                min_limit: Scenario::DEFAULT_MIN_LIMIT,
                services: weights.into_iter().enumerate().map(service).collect(),
                demands: demands.into_iter().map(demand).collect(),
                guarantees: Vec::new(),
                ports: Vec::new(),
                events: event.map(|(at, change)| CableEvent { time: seconds(at), cable, change }).into_iter().collect(),
            }
        },
    )
}

/// By demand: the bytes that arrive under a mechanism of NetShare.
fn bytes_under(scenario: &Scenario, mechanism: Mechanism) -> Vec<f64> {
    let outcome = run_scenario(scenario, mechanism, |_| true).unwrap();
    let mut bytes = vec![0.0; scenario.demands.len()];
    for segment in &outcome.segments {
        let seconds = segment.end.get() - segment.start.get();
        bytes.iter_mut().zip(&segment.delivered_rates).for_each(|(bytes, rate)| *bytes += rate * seconds);
    }
    bytes
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn fair_serves_services_as_their_own_simulator_without_mechanisms(scenario in any_scenario(false)) {
        assert_near(&sent_bytes(&scenario, "fair"), &bytes_under(&scenario, Mechanism::None), 1e-9, "fair");
    }

    #[test]
    fn netshare_serves_services_as_queues_at_all_switches(scenario in any_scenario(true)) {
        assert_near(&sent_bytes(&scenario, "netshare"), &bytes_under(&scenario, Mechanism::Queues), 1e-9, "netshare");
    }
}
