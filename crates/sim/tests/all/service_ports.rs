//! Ports with individual queue configurations, against rates by hand, a plain search and the solver itself.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::cases;
use proptest::prelude::*;
use weir_core::model::scenario::{Demand, PortQueues, Queue, Scenario, SendMode, Service};
use weir_core::model::{LinkId, NodeId, Routes, TopologyTemplate};
use weir_core::solve::wfq::{self, FlowCounts, QueuedClass, Source, WfqSolver};
use weir_core::units::{Rate, Time};
use weir_sim::service::{Mechanism, run_scenario};

const GBIT: f64 = 125e6;

/// Three switches in a row. Services A, B and C have a host each at either end, and C one at the middle
/// switch.
const CHAIN: &str = r#"
weir-scenario = 1
end = "10s"
fabric = { kind = "links", hosts = ["a", "b", "c", "d", "x", "y", "z"], switch = [
    { name = "L", tier = 1 }, { name = "M", tier = 1 }, { name = "R", tier = 1 } ], link = [
    { ends = ["a", "L"], rate = "40Gbit" }, { ends = ["b", "L"], rate = "40Gbit" },
    { ends = ["c", "L"], rate = "40Gbit" }, { ends = ["d", "M"], rate = "40Gbit" },
    { ends = ["L", "M"], rate = "10Gbit" }, { ends = ["M", "R"], rate = "10Gbit" },
    { ends = ["R", "x"], rate = "40Gbit" }, { ends = ["R", "y"], rate = "40Gbit" },
    { ends = ["R", "z"], rate = "40Gbit" } ] }
service = [ { name = "A", weight = 4 }, { name = "B", weight = 1 }, { name = "C", weight = 1 } ]
"#;

const ELASTIC_SENDING: &str = "sending = \"elastic\"";

/// The chain with these demands (service, from, to, remaining fields), ports (from, to, queues) and further
/// text.
fn chain_scenario(
    demands: &[(&str, &str, &str, &str)],
    ports: &[(&str, &str, &str)],
    rest: &str,
) -> Scenario {
    let mut text = format!("{CHAIN}{rest}\n");
    for (service, from, to, rest) in demands {
        text += &format!(
            "[[demand]]\nservice = \"{service}\"\nfrom = \"{from}\"\nto = \"{to}\"\n{}\n",
            rest.replace(", ", "\n")
        );
    }
    for (from, to, queues) in ports {
        text += &format!("[[port]]\nfrom = \"{from}\"\nto = \"{to}\"\nqueues = [{queues}]\n");
    }
    weir_trace::scenario::read_from(text.as_bytes(), "scenario", Path::new("")).unwrap()
}

/// Received rate of each demand at the end of each phase, in Gbit/s.
fn final_rates(scenario: &Scenario, mechanism: Mechanism) -> Vec<Vec<f64>> {
    let shared = run_scenario(scenario, mechanism, |_| true).unwrap();
    assert_eq!(shared.convergence_error, 0.0, "{mechanism}");
    shared.phases.iter().map(|phase| phase.final_rates.iter().map(|rate| rate / GBIT).collect()).collect()
}

fn assert_final_rates(scenario: &Scenario, mechanism: Mechanism, expected: &[&[f64]]) {
    let found = final_rates(scenario, mechanism);
    assert_eq!(found.len(), expected.len(), "{mechanism}");
    for (found, expected) in found.iter().zip(expected) {
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.max(1.0);
        let all = found.len() == expected.len() && found.iter().zip(*expected).all(near);
        assert!(all, "{mechanism}: {found:?} instead of {expected:?}");
    }
}

/// A in its own queue; B and C share one.
const TWO_QUEUES: &str = "{ weight = 3, services = [\"A\"] }, { weight = 1, services = [\"B\", \"C\"] }";

/// Checks the rates with queues, with and without throttling.
fn assert_queues(scenario: &Scenario, expected: &[&[f64]]) {
    for mechanism in [Mechanism::Queues, Mechanism::QueuesThrottling] {
        assert_final_rates(scenario, mechanism, expected);
    }
}

#[test]
fn services_in_one_queue_share_it_by_connections() {
    let demands = |a: &'static str, b: &'static str| {
        [("A", "a", "x", a), ("B", "b", "y", b), ("C", "c", "z", "sending = \"elastic\", connections = 3")]
    };
    let port = [("L", "M", TWO_QUEUES), ("M", "R", TWO_QUEUES)];
    let elastic = chain_scenario(&demands(ELASTIC_SENDING, ELASTIC_SENDING), &port, "");
    // 3:1; the second queue is divided over four connections.
    assert_queues(&elastic, &[&[7.5, 2.5 / 4.0, 7.5 / 4.0]]);
    assert_final_rates(&elastic, Mechanism::None, &[&[2.0, 2.0, 6.0]]);
    // Default queues per service, without tables: 4:1:1.
    let default_ports = chain_scenario(&demands(ELASTIC_SENDING, ELASTIC_SENDING), &[], "");
    assert_queues(&default_ports, &[&[40.0 / 6.0, 10.0 / 6.0, 10.0 / 6.0]]);
    // The other queue gets the unused bandwidth of a queue; the other connections of a queue get that of a
    // connection.
    let small = "sending = \"capped\", rate = \"1Gbit\"";
    let capped = chain_scenario(&demands(small, ELASTIC_SENDING), &port, "");
    assert_queues(&capped, &[&[1.0, 9.0 / 4.0, 27.0 / 4.0]]);
    let small = "sending = \"capped\", rate = \"300Mbit\"";
    let capped = chain_scenario(&demands(ELASTIC_SENDING, small), &port, "");
    assert_queues(&capped, &[&[7.5, 0.3, 2.2]]);
}

#[test]
fn udp_is_confined_to_the_rate_of_its_queue() {
    let udp = "sending = \"unresponsive\", rate = \"10Gbit\"";
    let demands = [("A", "a", "x", ELASTIC_SENDING), ("B", "b", "y", udp), ("C", "c", "z", ELASTIC_SENDING)];
    let with_queues = chain_scenario(&demands, &[("L", "M", TWO_QUEUES)], "");
    assert_final_rates(&with_queues, Mechanism::Queues, &[&[7.5, 2.5, 0.0]]);
}

#[test]
fn queue_weights_can_differ_between_ports() {
    let demands = [
        ("A", "a", "x", ELASTIC_SENDING),
        ("B", "b", "y", ELASTIC_SENDING),
        ("C", "d", "z", ELASTIC_SENDING),
    ];
    let at_first = "{ weight = 1, services = [\"A\"] }, { weight = 3, services = [\"B\", \"C\"] }";
    let slow = "event = [{ at = \"5s\", cable = [\"L\", \"M\"], change = \"rate\", rate = \"4Gbit\" }]";
    // Between M and R, 4:1:1 by services; then L passes 4 in the ratio 1:3, and C gets the rest.
    let scenario = chain_scenario(&demands, &[("L", "M", at_first)], slow);
    let sixth = 10.0 / 6.0;
    assert_queues(&scenario, &[&[4.0 * sixth, sixth, sixth], &[1.0, 3.0, 6.0]]);
    let usual = chain_scenario(&demands, &[], slow);
    assert_queues(&usual, &[&[4.0 * sixth, sixth, sixth], &[3.2, 0.8, 6.0]]);
    // The second port decides if it is the slower one: half of 4 for A and B together.
    let at_second = "{ weight = 2, services = [\"A\", \"B\"] }, { weight = 2, services = [\"C\"] }";
    let scenario = chain_scenario(
        &demands,
        &[("L", "M", at_first), ("M", "R", at_second)],
        &slow.replace("\"L\"", "\"R\""),
    );
    assert_queues(&scenario, &[&[2.5, 2.5, 5.0], &[1.0, 1.0, 2.0]]);
}

#[test]
fn host_port_can_have_queues() {
    let udp = "sending = \"unresponsive\", rate = \"40Gbit\"";
    let fast = "event = [{ at = \"0s\", cable = [\"a\", \"L\"], change = \"rate\", rate = \"5Gbit\" }]";
    let queues = "{ weight = 4, services = [\"A\"] }, { weight = 1, services = [\"B\"] }, { weight = 1, services = [\"C\"] }";
    for (b, with, without) in [(ELASTIC_SENDING, [4.0, 1.0], [2.5, 2.5]), (udp, [4.0, 1.0], [0.0, 5.0])] {
        let demands = [("A", "a", "x", ELASTIC_SENDING), ("B", "a", "y", b)];
        let set = chain_scenario(&demands, &[("a", "*", queues)], fast);
        assert_final_rates(&set, Mechanism::Queues, &[&with]);
        assert_final_rates(&set, Mechanism::None, &[&without]);
        assert_final_rates(&chain_scenario(&demands, &[], fast), Mechanism::Queues, &[&without]);
        // `*` for all ports of switches does not include host ports.
        assert_final_rates(
            &chain_scenario(&demands, &[("*", "*", TWO_QUEUES)], fast),
            Mechanism::Queues,
            &[&without],
        );
    }
}

#[test]
fn queues_follow_their_port_through_link_failure() {
    let demands = [("A", "a", "x", ELASTIC_SENDING), ("B", "b", "y", ELASTIC_SENDING)];
    let events = r#"event = [ { at = "2s", cable = ["M", "L"], change = "down" },
        { at = "4s", cable = ["L", "M"], change = "up" },
        { at = "6s", cable = ["L", "M"], change = "rate", rate = "4Gbit" } ]"#;
    let scenario = chain_scenario(&demands, &[("L", "M", TWO_QUEUES)], events);
    // Both queues 3:1 where both services have 4:1.
    let expected: [&[f64]; 4] = [&[7.5, 2.5], &[0.0, 0.0], &[7.5, 2.5], &[3.0, 1.0]];
    let scenario = Scenario {
        ports: [scenario.ports.clone(), chain_scenario(&demands, &[("M", "R", TWO_QUEUES)], "").ports]
            .concat(),
        ..scenario
    };
    assert_queues(&scenario, &expected);
}

#[test]
fn central_allocation_divides_by_services_not_queues() {
    let udp = "sending = \"unresponsive\", rate = \"10Gbit\"";
    let demands = [("A", "a", "x", udp), ("B", "b", "y", udp)];
    let halves = "{ weight = 1, services = [\"A\"] }, { weight = 1, services = [\"B\", \"C\"] }";
    let ports = [("L", "M", halves), ("M", "R", halves)];
    let [set, usual] = [chain_scenario(&demands, &ports, ""), chain_scenario(&demands, &[], "")];
    // Hosts limit both to 4:1 of 10, so that the queues do not matter.
    assert_final_rates(&set, Mechanism::QueuesCentral, &[&[8.0, 2.0]]);
    assert_final_rates(&usual, Mechanism::QueuesCentral, &[&[8.0, 2.0]]);
    for mechanism in [Mechanism::None, Mechanism::Throttling, Mechanism::Central] {
        let run = |scenario: &Scenario| run_scenario(scenario, mechanism, |_| true).unwrap();
        assert_eq!(run(&set), run(&usual), "{mechanism} has one queue at every port");
    }
}

#[test]
fn programmatic_port_queues_are_validated() {
    let good = chain_scenario(&[("A", "a", "x", ELASTIC_SENDING)], &[("L", "M", TWO_QUEUES)], "");
    let message = |change: &dyn Fn(&mut PortQueues)| {
        let mut scenario = good.clone();
        change(&mut scenario.ports[0]);
        run_scenario(&scenario, Mechanism::Queues, |_| true).unwrap_err().to_string()
    };
    let links = message(&|port| port.links.clear());
    assert_eq!(links, "field `port 1 to`: `nothing`: expected a link of the fabric");
    let links = message(&|port| port.links.push(LinkId(18)));
    assert_eq!(links, "field `port 1 to`: `18`: expected a link of the fabric");
    let links = message(&|port| port.links.push(port.links[0]));
    assert_eq!(links, "field `port 1 to`: `L to M`: expected a port whose queues are not set above");
    let service = message(&|port| port.queues[1].services.push(3));
    assert_eq!(service, "field `port 1 queue 2 services`: `3`: expected services below 3");
    let weight = message(&|port| port.queues[1].weight = f64::NAN);
    assert_eq!(weight, "field `port 1 queue 2 weight`: `NaN`: expected a number from 1e-9 to 1e9");
}

/// Two spines and two leaves with three hosts each, at 1 Gbit/s; 750 Mbit/s from a leaf to a spine.
fn leaf_spine() -> TopologyTemplate {
    let rate = Rate::new(GBIT).unwrap();
    TopologyTemplate::LeafSpine { spines: 2, leaves: 2, hosts: 3, rate, oversubscription: 2.0 }
}

const LINKS: usize = 20;
const HOSTS: u32 = 6;

/// For each service its weight, and the index of its queue.
type RandomQueues = (Vec<u32>, Vec<usize>);

fn build_queues(drawn: &RandomQueues, services: usize) -> Vec<Queue> {
    let (weights, of) = drawn;
    let mut queues = BTreeMap::new();
    for service in 0..services {
        let weight = f64::from(weights[of[service]]);
        let queue = queues.entry(of[service]).or_insert(Queue { weight, services: Vec::new() });
        queue.services.push(service);
    }
    queues.into_values().collect()
}

fn any_send_mode() -> impl Strategy<Value = SendMode> {
    let rate = |mbit: u32| Rate::new(f64::from(mbit) * 125e3).unwrap();
    prop_oneof![
        3 => Just(SendMode::Elastic),
        1 => (1u32..900).prop_map(move |mbit| SendMode::Capped(rate(mbit))),
        1 => (1u32..900).prop_map(move |mbit| SendMode::Unresponsive(rate(mbit))),
    ]
}

fn any_queues(services: usize) -> impl Strategy<Value = RandomQueues> {
    (prop::collection::vec(1u32..10, services), prop::collection::vec(0..services, services))
}

/// Demands of up to four services, and tables for some of the links.
fn any_scenario() -> impl Strategy<Value = Scenario> {
    let of = |services: usize| {
        let weights = prop::collection::vec(1u32..10, services);
        let demand = (0..services, 0..HOSTS, 1..HOSTS, 1u32..4, any_send_mode());
        let demands = prop::collection::vec(demand, 1..8);
        let ports = prop::collection::vec(prop::option::of(any_queues(services)), LINKS);
        (weights, demands, ports, any::<u64>())
    };
    (1usize..5).prop_flat_map(of).prop_map(|(weights, demands, ports, seed)| {
        let services = weights.len();
        let end = Time::new(1.0).unwrap();
        let demand = |(service, from, step, connections, sending): (usize, u32, u32, u32, SendMode)| Demand {
            service,
            sources: vec![NodeId(from)],
            destinations: vec![NodeId((from + step) % HOSTS)],
            connections,
            send_mode: sending,
            active_intervals: vec![(Time::ZERO, end)],
        };
        let port = |(link, drawn): (u32, Option<RandomQueues>)| {
            let queues = build_queues(&drawn?, services);
            Some(PortQueues { links: vec![LinkId(link)], queues })
        };
        let service = |(number, &weight): (usize, &u32)| Service {
            name: format!("S{number}"),
            weight: f64::from(weight),
            excess_weight: None,
        };
        Scenario {
            topology: leaf_spine().build().unwrap(),
            seed,
            end,
            min_limit: Scenario::DEFAULT_MIN_LIMIT,
            services: weights.iter().enumerate().map(service).collect(),
            demands: demands.into_iter().map(demand).collect(),
            guarantees: Vec::new(),
            ports: (0..).zip(ports).filter_map(port).collect(),
            events: Vec::new(),
        }
    })
}

/// Received rate of each demand and load of each link, from the solver alone. Connections of a demand on one
/// path are one class, because rates in a cycle of bottlenecks need not be unique and may depend on the
/// classes.
fn solve_rates(scenario: &Scenario) -> (Vec<f64>, Vec<f64>) {
    let topology = &scenario.topology;
    let mut queues = Vec::new();
    let mut at = BTreeMap::new();
    for (number, link) in (0..).zip(topology.links()) {
        let port = scenario.ports.iter().find(|port| port.links.contains(&LinkId(number)));
        let set: Vec<Queue> = match port {
            Some(port) => port.queues.clone(),
            None if topology.is_host(link.from) => {
                vec![Queue { weight: 1.0, services: (0..scenario.services.len()).collect() }]
            }
            None => (0..scenario.services.len())
                .map(|service| Queue { weight: scenario.services[service].weight, services: vec![service] })
                .collect(),
        };
        for Queue { weight, services } in set {
            at.extend(services.into_iter().map(|service| ((number, service), queues.len() as u32)));
            queues.push(wfq::Queue { link: number, weight });
        }
    }
    let capacities: Vec<f64> = topology.links().iter().map(|link| link.rate.get()).collect();
    let mut routes = Routes::new(topology.clone(), scenario.seed);
    let (mut paths, mut sources) = (Vec::new(), Vec::new());
    for (number, demand) in scenario.demands.iter().enumerate() {
        let mut by_path: BTreeMap<Vec<LinkId>, f64> = BTreeMap::new();
        for connection in 0..u64::from(demand.connections) {
            let mut path = Vec::new();
            assert!(routes.compute_path(
                demand.sources[0],
                demand.destinations[0],
                (number as u64) << 32 | connection,
                &mut path
            ));
            *by_path.entry(path).or_default() += 1.0;
        }
        let source = match demand.send_mode {
            SendMode::Elastic => Source::Elastic,
            SendMode::Capped(rate) => Source::Capped(rate.get()),
            SendMode::Unresponsive(rate) => Source::Unresponsive(rate.get()),
        };
        for (path, flows) in by_path {
            sources.push((number, flows, source));
            paths.push(path.iter().map(|link| at[&(link.0, demand.service)]).collect::<Vec<u32>>());
        }
    }
    let classes: Vec<QueuedClass<'_>> = paths
        .iter()
        .zip(&sources)
        .map(|(path, &(_, flows, source))| QueuedClass {
            queues: path,
            flows: FlowCounts::Equal(flows),
            source,
        })
        .collect();
    let mut wfq = WfqSolver::new(&capacities, &queues).unwrap();
    wfq.solve(&classes).unwrap();
    let (mut of_demand, mut of_link) = (vec![0.0; scenario.demands.len()], vec![0.0; LINKS]);
    for ((path, &(demand, flows, _)), rates) in paths.iter().zip(&sources).zip(wfq.rates()) {
        of_demand[demand] += rates.delivered_rate * flows;
        for &queue in path {
            of_link[queues[queue as usize].link as usize] += rates.delivered_rate * flows;
        }
    }
    (of_demand, of_link)
}

/// Rates of the connections of one queue: unresponsive ones first, in proportion to their arrivals; then
/// max-min by bisection.
fn rates_of_queue(capacity: f64, connections: &[SendMode]) -> Vec<f64> {
    let udp: f64 =
        connections.iter().map(|c| if let SendMode::Unresponsive(r) = c { r.get() } else { 0.0 }).sum();
    let pass = if udp > capacity { capacity / udp } else { 1.0 };
    let left = capacity - udp * pass;
    let at = |level: f64| -> Vec<f64> {
        connections
            .iter()
            .map(|connection| match connection {
                SendMode::Elastic => level,
                SendMode::Capped(rate) => rate.get().min(level),
                SendMode::Unresponsive(rate) => rate.get() * pass,
            })
            .collect()
    };
    let elastic = |level: f64| at(level).iter().sum::<f64>() - udp * pass;
    at(bisect(|level| elastic(level) <= left))
}

/// The largest feasible level, up to slightly above a link's rate.
fn bisect(fits: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1e12);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn random_port_tables_match_the_queue_solver(scenario in any_scenario()) {
        let shared = run_scenario(&scenario, Mechanism::Queues, |_| true).unwrap();
        for (link, of) in (0..).map(LinkId).zip(scenario.topology.links()) {
            let load: f64 = shared.mean_rates_on_link(&shared.phases[0], link).iter().sum();
            prop_assert!(load <= of.rate.get() * (1.0 + 1e-9), "{load} over {link:?}");
        }
        let (of_demand, of_link) = solve_rates(&scenario);
        let near = 1e-9 * GBIT;
        for (found, expected) in shared.phases[0].final_rates.iter().zip(&of_demand) {
            prop_assert!((found - expected).abs() <= near, "{found} instead of {expected}");
        }
        for (link, expected) in (0..).map(LinkId).zip(&of_link) {
            let load: f64 = shared.mean_rates_on_link(&shared.phases[0], link).iter().sum();
            prop_assert!((load - expected).abs() <= near, "{load} instead of {expected}");
        }
    }

    /// All flows send to one host, so only the port to it is a bottleneck.
    #[test]
    fn single_bottleneck_port_matches_a_plain_search(
        (services, table, connections) in (1usize..6).prop_flat_map(|services| {
            (Just(services), any_queues(services), prop::collection::vec((0..services, any_send_mode()), 1..12))
        }),
    ) {
        let mut scenario = chain_scenario(&[("A", "a", "x", ELASTIC_SENDING)], &[], "");
        let topology = TopologyTemplate::BigSwitch { hosts: 13, rate: Rate::new(GBIT).unwrap() }.build().unwrap();
        let to = NodeId(0);
        let port = topology.outgoing_links(to)[0].reverse();
        scenario.topology = topology;
        let service = |number| Service { name: format!("S{number}"), weight: 1.0, excess_weight: None };
        scenario.services = (0..services).map(service).collect();
        let active = vec![(Time::ZERO, scenario.end)];
        scenario.demands = (1..).zip(&connections).map(|(from, &(service, sending))| Demand {
            service, sources: vec![NodeId(from)], destinations: vec![to], connections: 1, send_mode: sending, active_intervals: active.clone(),
        }).collect();
        let queues = build_queues(&table, services);
        scenario.ports = vec![PortQueues { links: vec![port], queues: queues.clone() }];
        let shared = run_scenario(&scenario, Mechanism::Queues, |_| true).unwrap();

        let connections_of = |queue: &Queue| -> Vec<usize> {
            (0..connections.len()).filter(|&at| queue.services.contains(&connections[at].0)).collect()
        };
        // At most the rate of the host's own link.
        let demand_of = |at: usize| match connections[at].1 {
            SendMode::Elastic => GBIT,
            SendMode::Capped(rate) | SendMode::Unresponsive(rate) => rate.get(),
        };
        let asked: Vec<f64> = queues.iter().map(|queue| connections_of(queue).into_iter().map(demand_of).sum()).collect();
        let queue_rates = |level: f64| -> Vec<f64> {
            queues.iter().zip(&asked).map(|(queue, asked)| asked.min(queue.weight * level)).collect()
        };
        let gets = queue_rates(bisect(|level| queue_rates(level).iter().sum::<f64>() <= GBIT));
        for (queue, gets) in queues.iter().zip(gets) {
            let members = connections_of(queue);
            let kinds: Vec<SendMode> = members.iter().map(|&at| connections[at].1).collect();
            for (at, expected) in members.into_iter().zip(rates_of_queue(gets, &kinds)) {
                let found = shared.phases[0].final_rates[at];
                prop_assert!((found - expected).abs() <= 1e-6 * GBIT, "{at}: {found} instead of {expected}");
            }
        }
        let total: f64 = shared.phases[0].final_rates.iter().sum();
        let most = GBIT.min(asked.iter().sum());
        prop_assert!((total - most).abs() <= 1e-6 * GBIT, "expected all demand up to the capacity: {total} of {most}");
    }
}
