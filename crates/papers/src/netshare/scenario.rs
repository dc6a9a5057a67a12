//! Builds and simulates the scenarios of the paper.

use weir_core::model::scenario::{Demand, Scenario, SendMode, Service};
use weir_core::model::{NodeId, TopologyTemplate};
use weir_core::units::{Rate, Time};
use weir_sim::service::{Mechanism, ScenarioOutcome};

use super::Context;
use weir_console::failure::Failure;
use weir_console::run::run_scenario;

/// A megabit per second, in bytes per second.
pub(in super::super) const MBIT: f64 = 125e3;

/// A rate in megabits per second.
pub(super) fn mbit_rate(rate: f64) -> Rate {
    Rate::new(rate * MBIT).expect("the rate is finite and positive")
}

fn seconds_to_time(seconds: f64) -> Time {
    Time::new(seconds).expect("the time is finite and not negative")
}

/// Builds a scenario.
#[derive(Clone)]
pub(super) struct ScenarioBuilder(pub(super) Scenario);

impl ScenarioBuilder {
    /// Services A1, A2, ... with these weights on a plan's network, for a time in seconds.
    pub(super) fn new(plan: TopologyTemplate, weights: &[f64], seconds: f64) -> ScenarioBuilder {
        let service = |(number, &weight)| Service { name: format!("A{number}"), weight, excess_weight: None };
        ScenarioBuilder(Scenario {
            topology: plan.build().expect("the paper's plans are valid"),
            seed: 0,
            end: seconds_to_time(seconds),
            min_limit: Scenario::DEFAULT_MIN_LIMIT,
            services: (1..).zip(weights).map(service).collect(),
            demands: Vec::new(),
            guarantees: Vec::new(),
            ports: Vec::new(),
            events: Vec::new(),
        })
    }

    /// Adds one connection of a service, active all the time.
    pub(super) fn flow(self, service: usize, from: &str, to: &str, sending: SendMode) -> ScenarioBuilder {
        let hosts = [from, to]
            .map(|name| vec![self.0.topology.find_node(name).expect("the paper's plans have this host")]);
        self.demand(service, hosts, 1, sending)
    }

    /// Adds connections between all pairs of a service's hosts. `is_host_of_service` selects the hosts by name.
    pub(super) fn all_pairs(
        self,
        service: usize,
        is_host_of_service: impl Fn(&str) -> bool,
        connections: u32,
    ) -> ScenarioBuilder {
        let all = (0..self.0.topology.hosts() as u32).map(NodeId);
        let hosts: Vec<NodeId> = all.filter(|&host| is_host_of_service(self.0.topology.name(host))).collect();
        self.demand(service, [hosts.clone(), hosts], connections, SendMode::Elastic)
    }

    fn demand(
        mut self,
        service: usize,
        hosts: [Vec<NodeId>; 2],
        connections: u32,
        sending: SendMode,
    ) -> ScenarioBuilder {
        let [from, to] = hosts;
        let active = vec![(Time::ZERO, self.0.end)];
        self.0.demands.push(Demand {
            service,
            sources: from,
            destinations: to,
            connections,
            send_mode: sending,
            active_intervals: active,
        });
        self
    }

    /// Sets the intervals, in seconds, in which a demand is active.
    pub(super) fn active(mut self, demand: usize, intervals: &[(f64, f64)]) -> ScenarioBuilder {
        self.0.demands[demand].active_intervals =
            intervals.iter().map(|&(from, to)| (seconds_to_time(from), seconds_to_time(to))).collect();
        self
    }

    /// Simulates the scenario.
    pub(super) fn simulate(
        &self,
        mechanism: Mechanism,
        context: &Context<'_>,
    ) -> Result<ScenarioOutcome, Failure> {
        run_scenario(&self.0, mechanism, context.run_context.progress)
    }
}

/// The rate of each demand at the end, in Mbit/s.
pub(super) fn final_rates(outcome: &ScenarioOutcome) -> Vec<f64> {
    let last = outcome.phases.last().expect("at least one demand is active");
    last.final_rates.iter().map(|rate| rate / MBIT).collect()
}
