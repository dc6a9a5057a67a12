//! Services over time against NetShare (UCSD 2010): the examples of sections 2 and 3, and the phases of
//! section 5.3.

use std::path::Path;

use weir_core::model::scenario::{Demand, Scenario, SendMode, Service};
use weir_core::model::topology::TopologyBuilder;
use weir_core::model::{NodeId, TopologyTemplate};
use weir_core::units::{Rate, Time};
use weir_sim::service::{Mechanism, Phase, ScenarioOutcome, ScenarioRunError, run_scenario};

const MBIT: f64 = 125e3;

fn run_to_end(scenario: &Scenario, mechanism: Mechanism) -> ScenarioOutcome {
    let shared = run_scenario(scenario, mechanism, |_| true).unwrap();
    assert_eq!(shared.convergence_error, 0.0, "{mechanism}");
    shared
}

fn section_5_3() -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/netshare-5.3.toml");
    weir_trace::scenario::read(&path).unwrap()
}

fn assert_close(found: &[f64], expected: &[f64], context: &str) {
    assert_eq!(found.len(), expected.len(), "{context}");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{context}: {found:?} instead of {expected:?}");
    }
}

/// Received rates at the end of each phase, in Mbit/s.
fn final_rates(shared: &ScenarioOutcome) -> Vec<Vec<f64>> {
    shared.phases.iter().map(|phase| phase.final_rates.iter().map(|rate| rate / MBIT).collect()).collect()
}

fn assert_final_rates(mechanism: Mechanism, expected: [[f64; 3]; 4]) {
    let shared = run_to_end(&section_5_3(), mechanism);
    let times: Vec<[f64; 2]> = shared.phases.iter().map(|p| [p.start.get(), p.end.get()]).collect();
    assert_eq!(times, [[5.0, 35.0], [35.0, 65.0], [65.0, 95.0], [95.0, 125.0]]);
    for (phase, (found, expected)) in final_rates(&shared).iter().zip(&expected).enumerate() {
        assert_close(found, expected, &format!("{mechanism}, phase {}", phase + 1));
    }
}

#[test]
fn fig_12_queues_and_throttling() {
    assert_final_rates(
        Mechanism::QueuesThrottling,
        [[250.0, 750.0, 0.0], [0.0, 250.0, 750.0], [1000.0, 0.0, 1000.0], [725.0, 250.0, 750.0]],
    );
    // "A2 gets rate limited at the ingress switch to 275 Mbps (250 * 1.1)".
    let shared = run_to_end(&section_5_3(), Mechanism::QueuesThrottling);
    assert_close(&[shared.phases[3].final_sent_rates[1]], &[275.0 * MBIT], "A2's limit");
}

#[test]
fn fig_13_no_mechanism() {
    // A1 "is overwhelmed by A2's UDP flow and receives zero throughput".
    assert_final_rates(
        Mechanism::None,
        [[0.0, 1000.0, 0.0], [0.0, 500.0, 500.0], [1000.0, 0.0, 1000.0], [0.0, 500.0, 500.0]],
    );
}

#[test]
fn fig_14_queues_alone() {
    assert_final_rates(
        Mechanism::Queues,
        [[250.0, 750.0, 0.0], [0.0, 250.0, 750.0], [1000.0, 0.0, 1000.0], [250.0, 250.0, 750.0]],
    );
    // "A2 continues to send greedily at 750Mbps on the E1, C link of which 500Mbps gets dropped at C".
    let shared = run_to_end(&section_5_3(), Mechanism::Queues);
    assert_close(&[shared.phases[3].final_sent_rates[1]], &[1000.0 * MBIT], "A2's source");
}

#[test]
fn fig_15_throttling_alone() {
    // In the last phase A1 gets "nearly 450-500Mbps", since A2 is limited to "a little over 500Mbps". Of two
    // flows that compete, the earlier one falls to 500 and has a limit of 550; the later one rises from zero
    // to 500 and has a limit of 600. Of these 600, 522 arrive: within 5 %, so the limit becomes 574 and stays
    // there.
    let later = 1.1 * 1000.0 * 600.0 / 1150.0;
    let parts = [1000.0 * 550.0 / (550.0 + later), 1000.0 * later / (550.0 + later)];
    assert_final_rates(
        Mechanism::Throttling,
        [
            [0.0, 1000.0, 0.0],
            [0.0, parts[0], parts[1]],
            [1000.0, 0.0, 1000.0],
            [1000.0 - later, parts[1], parts[0]],
        ],
    );
    // If both start together, both limits are 550.
    let mut together = section_5_3();
    let begin = Time::new(95.0).unwrap();
    for demand in &mut together.demands {
        demand.active_intervals = vec![(begin, together.end)];
    }
    let shared = run_to_end(&together, Mechanism::Throttling);
    assert_close(&final_rates(&shared)[0], &[450.0, 500.0, 500.0], "together");
}

#[test]
fn throttling_limits_of_the_first_periods_follow_algorithm_1() {
    // Algorithm 1 in the last phase: A2 sends 1000 until it is measured at 250, then 300, then 275.
    let shared = run_to_end(&section_5_3(), Mechanism::QueuesThrottling);
    let first: Vec<_> = shared.segments.iter().filter(|segment| segment.start.get() >= 95.0).collect();
    let sent: Vec<f64> = first.iter().map(|segment| segment.sent_rates[1] / MBIT).collect();
    assert_close(&sent, &[1000.0, 300.0, 275.0], "A2 sends");
    let a1: Vec<f64> = first.iter().map(|segment| segment.delivered_rates[0] / MBIT).collect();
    assert_close(&a1, &[250.0, 700.0, 725.0], "A1 gets");
    let until: Vec<f64> = first.iter().map(|segment| segment.end.get()).collect();
    assert_close(&until, &[95.05, 95.1, 125.0], "until");
    // The mean covers two periods and the rest of the phase.
    let mean = (250.0 * 0.05 + 700.0 * 0.05 + 725.0 * 29.9) / 30.0;
    assert_close(&[shared.phases[3].mean_rates[0] / MBIT], &[mean], "A1's mean");
}

fn service(name: &str, weight: f64) -> Service {
    Service { name: name.to_owned(), weight, excess_weight: None }
}

fn scenario(plan: TopologyTemplate, weights: &[f64]) -> Scenario {
    Scenario {
        topology: plan.build().unwrap(),
        seed: 0,
        end: Time::new(20.0).unwrap(),
        min_limit: Scenario::DEFAULT_MIN_LIMIT,
        services: (1..).zip(weights).map(|(n, &weight)| service(&format!("A{n}"), weight)).collect(),
        demands: Vec::new(),
        guarantees: Vec::new(),
        ports: Vec::new(),
        events: Vec::new(),
    }
}

fn find_hosts(scenario: &Scenario, names: &[&str]) -> Vec<NodeId> {
    names.iter().map(|name| scenario.topology.find_node(name).unwrap()).collect()
}

impl AddDemand for Scenario {
    fn with_demand(mut self, service: usize, from: &str, to: &str, sending: SendMode) -> Scenario {
        let (from, to) = (find_hosts(&self, &[from]), find_hosts(&self, &[to]));
        let active = vec![(Time::ZERO, self.end)];
        self.demands.push(Demand {
            service,
            sources: from,
            destinations: to,
            connections: 1,
            send_mode: sending,
            active_intervals: active,
        });
        self
    }
}

trait AddDemand {
    fn with_demand(self, service: usize, from: &str, to: &str, sending: SendMode) -> Scenario;
}

fn gbit(rate: f64) -> Rate {
    Rate::new(rate * 125e6).unwrap()
}

fn last_phase_rates(shared: &ScenarioOutcome) -> Vec<f64> {
    let Phase { final_rates: last, .. } = shared.phases.last().unwrap();
    last.iter().map(|rate| rate / 125e6).collect()
}

/// Fig. 1, where the first service sends as `a1`.
fn fig_1(a1: SendMode) -> Scenario {
    scenario(TopologyTemplate::NetShareFig1, &[4.0, 1.0, 1.0])
        .with_demand(0, "E1-A1", "E2-A1", a1)
        .with_demand(1, "E1-A2", "E2-A2", SendMode::Elastic)
        .with_demand(1, "E1-A2", "E3-A2", SendMode::Elastic)
        .with_demand(2, "E4-A3", "E3-A3", SendMode::Elastic)
}

#[test]
fn fig_1_on_its_fabric() {
    let shared = run_to_end(&fig_1(SendMode::Elastic), Mechanism::Queues);
    assert_close(&last_phase_rates(&shared), &[8.0, 1.0, 1.0, 9.0], "Fig. 1");
    let shared = run_to_end(&fig_1(SendMode::Capped(gbit(6.0))), Mechanism::Queues);
    assert_close(&last_phase_rates(&shared), &[6.0, 2.0, 2.0, 8.0], "Fig. 1, A1 needs 6");
    assert_eq!(shared.sum_by_service(&shared.phases[0].final_rates).len(), 3);
    // A2's two flows leave E1 with A1's.
    let topology = &fig_1(SendMode::Elastic).topology;
    let link =
        topology.link_between(topology.find_node("E1").unwrap(), topology.find_node("C1").unwrap()).unwrap();
    let load = shared.mean_rates_on_link(&shared.phases[0], link);
    assert_close(&load, &[6.0 * 125e6, 4.0 * 125e6, 0.0], "E1 to C1");
}

#[test]
fn fig_4_throttling_limits_udp_to_its_received_rate() {
    // H1 and H2 send at full rate. A3 gets 5 with queues alone (3.2). With throttling, H1 is limited to its
    // received rate plus a tenth.
    let udp = SendMode::Unresponsive(gbit(10.0));
    let flows = scenario(TopologyTemplate::NetShareFig3, &[4.0, 1.0, 1.0])
        .with_demand(0, "H5", "H6", SendMode::Elastic)
        .with_demand(1, "H1", "H4", udp)
        .with_demand(1, "H2", "H7", udp)
        .with_demand(2, "H3", "H8", SendMode::Elastic);
    let queues = last_phase_rates(&run_to_end(&flows, Mechanism::Queues));
    assert_close(&[queues[0], queues[3]], &[8.0, 5.0], "queues alone");
    let shared = run_to_end(&flows, Mechanism::QueuesThrottling);
    let throttled = last_phase_rates(&shared);
    let sent: Vec<f64> = shared.phases[0].final_sent_rates.iter().map(|rate| rate / 125e6).collect();
    assert_close(&[throttled[0], throttled[1] + throttled[2]], &[8.0, 2.0], "throttled");
    assert_close(&[throttled[3]], &[10.0 - sent[1]], "A3 gets the residual capacity");
    assert!(sent[1] <= 1.1 * throttled[1] * (1.0 + 1e-9) && throttled[3] > 8.5, "{sent:?} {throttled:?}");
}

#[test]
fn central_allocation_protects_tcp_from_udp_without_queues() {
    // Table 1: central allocation needs no queues at routers. TCP has backlog, so its demand stays, and the limit of UDP
    // is its share: its demand is known, so it needs no headroom.
    let flows = scenario(TopologyTemplate::NetShareFig6, &[1.0, 1.0])
        .with_demand(0, "H1", "H5", SendMode::Elastic)
        .with_demand(1, "H2", "H6", SendMode::Unresponsive(gbit(1.0)));
    for mechanism in [Mechanism::Central, Mechanism::QueuesCentral] {
        let rates = last_phase_rates(&run_scenario(&flows, mechanism, |_| true).unwrap());
        assert_close(&rates, &[0.5, 0.5], &mechanism.to_string());
    }
}

/// Asserts the received rates in Gbit/s at all times after one second, when demands are known: a flow with backlog has unlimited demand
/// after five periods. Rates of unlimited demands have no headroom, so the rates are those of the paper without a tolerance for it.
fn assert_steady_rates(outcome: &ScenarioOutcome, expected: &[f64], context: &str) {
    let steady: Vec<_> = outcome.segments.iter().filter(|segment| segment.end.get() > 1.0).collect();
    assert!(!steady.is_empty(), "{context}");
    for segment in steady {
        let rates: Vec<f64> = segment.delivered_rates.iter().map(|rate| rate / 125e6).collect();
        assert_close(&rates, expected, &format!("{context}, at {}", segment.start));
    }
}

#[test]
fn central_allocation_alone_gives_the_rates_of_fig_3() {
    // 3.3 on Fig. 3 with the weights 4:1:1: "allocates 8 to service A1 and 2 to service A2", of which each flow gets 1, and "the flow
    // from H3 to be allocated 9 Gbps". TCP alone gives each connection an equal share.
    let flows = scenario(TopologyTemplate::NetShareFig3, &[4.0, 1.0, 1.0])
        .with_demand(0, "H5", "H6", SendMode::Elastic)
        .with_demand(1, "H1", "H4", SendMode::Elastic)
        .with_demand(1, "H2", "H7", SendMode::Elastic)
        .with_demand(2, "H3", "H8", SendMode::Elastic);
    let third = 10.0 / 3.0;
    let tcp = last_phase_rates(&run_to_end(&flows, Mechanism::None));
    assert_close(&tcp, &[third, third, third, 2.0 * third], "TCP");
    let central = run_scenario(&flows, Mechanism::Central, |_| true).unwrap();
    assert_steady_rates(&central, &[8.0, 1.0, 1.0, 9.0], "Fig. 3");
}

#[test]
fn central_allocation_alone_gives_the_rates_of_fig_1() {
    let central = |a1| run_scenario(&fig_1(a1), Mechanism::Central, |_| true).unwrap();
    assert_steady_rates(&central(SendMode::Elastic), &[8.0, 1.0, 1.0, 9.0], "Fig. 1");
    let limited = central(SendMode::Capped(gbit(6.0)));
    assert_steady_rates(&limited, &[6.0, 2.0, 2.0, 8.0], "Fig. 1, A1 needs 6");
}

#[test]
fn central_allocation_in_the_loop_gives_the_rates_of_fig_5() {
    // Fig. 5: equal weights, excess weights 2:1:1, and an idle A3: 5.55 and 4.44. Demands are measured, not given.
    let mut flows = scenario(TopologyTemplate::NetShareFig3, &[1.0; 3])
        .with_demand(0, "H1", "H4", SendMode::Elastic)
        .with_demand(1, "H3", "H8", SendMode::Elastic);
    let central = |flows: &Scenario| run_scenario(flows, Mechanism::Central, |_| true).unwrap();
    assert_steady_rates(&central(&flows), &[5.0, 5.0], "weights alone");
    for (service, excess) in flows.services.iter_mut().zip([2.0, 1.0, 1.0]) {
        service.excess_weight = Some(excess);
    }
    assert_steady_rates(&central(&flows), &[50.0 / 9.0, 40.0 / 9.0], "excess 2:1");
}

#[test]
fn reactivated_demand_does_not_inherit_an_old_limit() {
    let mut flows = scenario(TopologyTemplate::NetShareFig6, &[1.0]).with_demand(
        0,
        "H1",
        "H5",
        SendMode::Unresponsive(gbit(1.0)),
    );
    let time = |at: f64| Time::new(at).unwrap();
    flows.demands[0].active_intervals = vec![(time(1.0), time(2.0)), (time(3.02), time(4.01))];
    for mechanism in Mechanism::ALL {
        let shared = run_to_end(&flows, mechanism);
        let phases: Vec<[f64; 2]> = shared.phases.iter().map(|p| [p.start.get(), p.end.get()]).collect();
        assert_eq!(phases, [[1.0, 2.0], [3.02, 4.01]]);
        let first: Vec<&weir_sim::service::Segment> =
            shared.segments.iter().filter(|s| s.start == time(1.0) || s.start == time(3.02)).collect();
        assert_eq!(first.len(), 2);
        assert!(first.iter().all(|segment| segment.delivered_rates == [gbit(1.0).get()]), "{mechanism}");
    }
}

#[test]
fn skipping_steady_periods_keeps_results() {
    // Another, distant service that starts and stops every 50 ms prevents the simulator from skipping any
    // period.
    let mut plain = section_5_3();
    plain.services.push(service("A4", 1.0));
    let mut busy = plain.clone();
    let hosts = find_hosts(&busy, &["H11", "H12"]);
    let active = (0..1250).map(|n| (f64::from(n) * 0.1, f64::from(n) * 0.1 + 0.05));
    let active = active.map(|(from, to)| (Time::new(from).unwrap(), Time::new(to).unwrap())).collect();
    busy.demands.push(Demand {
        service: 3,
        sources: hosts[..1].to_vec(),
        destinations: hosts[1..].to_vec(),
        connections: 1,
        send_mode: SendMode::Elastic,
        active_intervals: active,
    });
    for mechanism in [Mechanism::QueuesThrottling, Mechanism::Throttling, Mechanism::QueuesCentral] {
        let sum = |shared: &ScenarioOutcome| {
            let mut sums = [0.0; 3];
            for segment in &shared.segments {
                for (sum, rate) in sums.iter_mut().zip(&segment.delivered_rates) {
                    *sum += rate * (segment.end.get() - segment.start.get()) / 1e9;
                }
            }
            sums
        };
        assert_close(
            &sum(&run_to_end(&busy, mechanism)),
            &sum(&run_to_end(&plain, mechanism)),
            mechanism.name(),
        );
    }
}

#[test]
fn long_paths_count_towards_the_size_of_an_outcome() {
    // Over an hour, 694 demands alone are 60,000 values below the limit.
    let of_chain = |switches: usize| {
        let mut chain = TopologyBuilder::new();
        ["a", "b"].iter().for_each(|host| chain.add_host(host).unwrap());
        let names: Vec<String> = (0..switches).map(|number| format!("s{number}")).collect();
        names.iter().for_each(|name| chain.add_switch(name, 1).unwrap());
        let ends = [("a", &*names[0]), (&*names[switches - 1], "b")];
        let between = names.windows(2).map(|pair| (&*pair[0], &*pair[1]));
        between.chain(ends).for_each(|(from, to)| chain.add_cable(from, to, Rate::GBIT).unwrap());
        let mut scenario = section_5_3();
        scenario.topology = chain.build().unwrap();
        scenario.end = Scenario::MAX_DURATION;
        let demand = Demand {
            service: 0,
            sources: vec![NodeId(0)],
            destinations: vec![NodeId(1)],
            connections: 1,
            send_mode: SendMode::Elastic,
            active_intervals: vec![(Time::ZERO, Scenario::MAX_DURATION)],
        };
        scenario.demands = vec![demand; 694];
        run_scenario(&scenario, Mechanism::Central, |_| false).unwrap_err()
    };
    assert!(matches!(of_chain(2), ScenarioRunError::Interrupted { .. }));
    assert!(matches!(of_chain(100), ScenarioRunError::TooLarge { .. }));
}

#[test]
fn service_simulation_rejects_invalid_scenarios() {
    let mut flows = section_5_3();
    let error = run_scenario(&flows, Mechanism::Queues, |at| at.get() < 50.0).unwrap_err();
    assert_eq!(error, ScenarioRunError::Interrupted { time: Time::new(65.0).unwrap() });
    flows.services[1].weight = 0.0;
    let error = run_scenario(&flows, Mechanism::Queues, |_| true).unwrap_err().to_string();
    assert_eq!(error, "field `service 2 weight`: `0`: expected a number from 1e-9 to 1e9");
    let mut long = section_5_3();
    long.end = Scenario::MAX_DURATION;
    long.demands = vec![long.demands[0].clone(); 1000];
    assert!(matches!(
        run_scenario(&long, Mechanism::Central, |_| false),
        Err(ScenarioRunError::TooLarge { .. })
    ));
    assert!(matches!(
        run_scenario(&long, Mechanism::Queues, |_| false),
        Err(ScenarioRunError::Interrupted { .. })
    ));
    assert_eq!("drr".parse::<Mechanism>().unwrap_err().split(';').next(), Some("unknown mechanism `drr`"));
}
