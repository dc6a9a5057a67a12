//! Scenarios, piece by piece.

use weir_core::model::scenario::{Demand, Scenario, Sending, Service};
use weir_core::model::{NodeId, Plan, Topology};
use weir_core::units::{Rate, Time};
use weir_sim::service::{Mechanism, Shared};

use super::Making;
use weir_console::failure::Failure;
use weir_console::run::share;

/// Bytes per second of a megabit per second.
pub(in super::super) const MBIT: f64 = 125e3;

/// A rate in megabits per second.
pub(super) fn mbit(rate: f64) -> Rate {
    Rate::new(rate * MBIT).expect("a rate of the paper")
}

/// A scenario under way.
#[derive(Clone)]
pub(super) struct Scene(pub(super) Scenario);

impl Scene {
    /// Services A1, A2, ... with these weights on a plan's network, for some seconds.
    pub(super) fn new(plan: Plan, weights: &[f64], seconds: f64) -> Scene {
        let service = |(number, &weight)| Service { name: format!("A{number}"), weight, excess: None };
        Scene(Scenario {
            topology: plan.build().expect("a plan of the paper"),
            seed: 0,
            end: Time::new(seconds).expect("a time of the paper"),
            floor: Scenario::FLOOR,
            services: (1..).zip(weights).map(service).collect(),
            demands: Vec::new(),
            guarantees: Vec::new(),
            ports: Vec::new(),
            events: Vec::new(),
        })
    }

    /// One connection of a service, all the time.
    pub(super) fn flow(self, service: usize, from: &str, to: &str, sending: Sending) -> Scene {
        let host = |name: &str| vec![self.0.topology.node(name).expect("a host of the plan")];
        let (from, to) = (host(from), host(to));
        self.add(service, from, to, 1, sending)
    }

    /// Connections of a service between all pairs of hosts that it is on.
    pub(super) fn all_pairs(self, service: usize, on: impl Fn(&str) -> bool, connections: u32) -> Scene {
        let hosts: Vec<NodeId> = (0..self.0.topology.hosts() as u32)
            .map(NodeId)
            .filter(|&host| on(self.0.topology.name(host)))
            .collect();
        self.add(service, hosts.clone(), hosts, connections, Sending::Elastic)
    }

    fn add(
        mut self,
        service: usize,
        from: Vec<NodeId>,
        to: Vec<NodeId>,
        connections: u32,
        sending: Sending,
    ) -> Scene {
        let active = vec![(Time::ZERO, self.0.end)];
        self.0.demands.push(Demand { service, from, to, connections, sending, active });
        self
    }

    pub(super) fn seed(mut self, seed: u64) -> Scene {
        self.0.seed = seed;
        self
    }

    /// From when until when a demand is active, in seconds.
    pub(super) fn active(mut self, demand: usize, intervals: &[(f64, f64)]) -> Scene {
        let time = |seconds: f64| Time::new(seconds).expect("a time of the paper");
        self.0.demands[demand].active = intervals.iter().map(|&(from, to)| (time(from), time(to))).collect();
        self
    }

    /// What comes of it.
    pub(super) fn run(&self, mechanism: Mechanism, making: &Making<'_>) -> Result<Shared, Failure> {
        share(&self.0, mechanism, making.running.progress)
    }

    pub(super) fn topology(&self) -> &Topology {
        &self.0.topology
    }
}

/// What arrives of each demand at the end, in megabits per second.
pub(super) fn at_the_end(shared: &Shared) -> Vec<f64> {
    let last = shared.phases.last().expect("somebody sends");
    last.last.iter().map(|rate| rate / MBIT).collect()
}
