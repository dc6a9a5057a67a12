//! Scenarios of the paper, built step by step.

use weir_core::model::scenario::{Demand, Scenario, Sending, Service};
use weir_core::model::{NodeId, Plan};
use weir_core::units::{Rate, Time};
use weir_sim::service::{Mechanism, Shared};

use super::Context;
use weir_console::failure::Failure;
use weir_console::run::share;

/// A megabit per second, in bytes per second.
pub(in super::super) const MBIT: f64 = 125e3;

/// A rate in megabits per second.
pub(super) fn mbit(rate: f64) -> Rate {
    Rate::new(rate * MBIT).expect("the rate is finite and positive")
}

fn time(seconds: f64) -> Time {
    Time::new(seconds).expect("the time is finite and not negative")
}

/// Builds a scenario.
#[derive(Clone)]
pub(super) struct Builder(pub(super) Scenario);

impl Builder {
    /// Services A1, A2, ... with these weights on a plan's network, for a time in seconds.
    pub(super) fn new(plan: Plan, weights: &[f64], seconds: f64) -> Builder {
        let service = |(number, &weight)| Service { name: format!("A{number}"), weight, excess: None };
        Builder(Scenario {
            topology: plan.build().expect("the paper's plans are valid"),
            seed: 0,
            end: time(seconds),
            floor: Scenario::FLOOR,
            services: (1..).zip(weights).map(service).collect(),
            demands: Vec::new(),
            guarantees: Vec::new(),
            ports: Vec::new(),
            events: Vec::new(),
        })
    }

    /// Adds one connection of a service, active all the time.
    pub(super) fn flow(self, service: usize, from: &str, to: &str, sending: Sending) -> Builder {
        let hosts = [from, to]
            .map(|name| vec![self.0.topology.node(name).expect("the paper's plans have this host")]);
        self.demand(service, hosts, 1, sending)
    }

    /// Adds connections between all pairs of a service's hosts, which `on` selects by name.
    pub(super) fn all_pairs(self, service: usize, on: impl Fn(&str) -> bool, connections: u32) -> Builder {
        let all = (0..self.0.topology.hosts() as u32).map(NodeId);
        let hosts: Vec<NodeId> = all.filter(|&host| on(self.0.topology.name(host))).collect();
        self.demand(service, [hosts.clone(), hosts], connections, Sending::Elastic)
    }

    fn demand(
        mut self,
        service: usize,
        hosts: [Vec<NodeId>; 2],
        connections: u32,
        sending: Sending,
    ) -> Builder {
        let [from, to] = hosts;
        let active = vec![(Time::ZERO, self.0.end)];
        self.0.demands.push(Demand { service, from, to, connections, sending, active });
        self
    }

    /// Sets the intervals, in seconds, in which a demand is active.
    pub(super) fn active(mut self, demand: usize, intervals: &[(f64, f64)]) -> Builder {
        self.0.demands[demand].active = intervals.iter().map(|&(from, to)| (time(from), time(to))).collect();
        self
    }

    /// Simulates the scenario.
    pub(super) fn run(&self, mechanism: Mechanism, context: &Context<'_>) -> Result<Shared, Failure> {
        share(&self.0, mechanism, context.running.progress)
    }
}

/// The rate of each demand at the end, in Mbit/s.
pub(super) fn final_rates(shared: &Shared) -> Vec<f64> {
    let last = shared.phases.last().expect("at least one demand is active");
    last.last.iter().map(|rate| rate / MBIT).collect()
}
