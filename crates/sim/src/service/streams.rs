//! Connections by path, and the rates that they settle at.

use std::collections::BTreeMap;

use weir_core::model::scenario::{Scenario, Sending};
use weir_core::model::{LinkId, Routes};
use weir_core::solve::wfq::{Class, Queue, Rates, Settled, Source, Wfq};
use weir_core::units::{Rate, Time};

use super::mechanism::Mechanism;

/// Connections of one demand that take one path.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// The demand, as a position in the scenario.
    pub demand: usize,
    /// Its service.
    pub service: usize,
    /// The links of the path.
    pub links: Vec<u32>,
    /// How many they are.
    pub connections: u32,
}

/// All connections of a scenario, and the queues that they go through.
pub(super) struct Streams {
    streams: Vec<Stream>,
    sending: Vec<Sending>,
    /// Of each stream, one queue after the other.
    queues: Vec<Vec<u32>>,
    wfq: Wfq,
    active: Vec<usize>,
    started: Vec<usize>,
    /// Of each connection of the active streams.
    rates: Vec<Rates>,
}

impl Streams {
    pub(super) fn new(scenario: &Scenario, mechanism: Mechanism) -> Streams {
        let streams = find_paths(scenario);
        let topology = &scenario.topology;
        let services = scenario.services.len() as u32;
        let mut queues = Vec::new();
        let mut first = Vec::with_capacity(topology.links().len());
        for (number, link) in (0..).zip(topology.links()) {
            first.push(queues.len() as u32);
            let at_switch = mechanism.queues() && !topology.is_host(link.from);
            if at_switch {
                queues.extend(scenario.services.iter().map(|s| Queue { link: number, weight: s.weight }));
            } else {
                queues.push(Queue { link: number, weight: 1.0 });
            }
        }
        let queue = |link: u32, service: usize| {
            let first = first[link as usize];
            let next = queues.get(first as usize + 1);
            let several = services > 1 && next.is_some_and(|next| next.link == link);
            first + if several { service as u32 } else { 0 }
        };
        let of = |stream: &Stream| stream.links.iter().map(|&link| queue(link, stream.service)).collect();
        let capacities: Vec<f64> = topology.links().iter().map(|link| link.rate.get()).collect();
        Streams {
            queues: streams.iter().map(of).collect(),
            sending: streams.iter().map(|stream| scenario.demands[stream.demand].sending).collect(),
            wfq: Wfq::new(&capacities, &queues).expect("rates and weights of a scenario are in range"),
            active: Vec::new(),
            started: Vec::new(),
            rates: Vec::new(),
            streams,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(super) fn get(&self, stream: usize) -> &Stream {
        &self.streams[stream]
    }

    pub(super) fn sending(&self, stream: usize) -> Sending {
        self.sending[stream]
    }

    /// What is kept of the connections after the run.
    pub(super) fn crossed(&self) -> Vec<Stream> {
        self.streams.clone()
    }

    /// The streams that send now.
    pub(super) fn active(&self) -> &[usize] {
        &self.active
    }

    /// Those of them that did not before.
    pub(super) fn started(&self) -> Vec<usize> {
        self.started.clone()
    }

    /// Takes over who sends at a time.
    pub(super) fn activate(&mut self, scenario: &Scenario, now: Time) {
        let on: Vec<bool> = scenario.demands.iter().map(|demand| demand.is_active(now)).collect();
        let before = std::mem::take(&mut self.active);
        self.active = (0..self.streams.len()).filter(|&s| on[self.streams[s].demand]).collect();
        self.started = self.active.iter().copied().filter(|s| before.binary_search(s).is_err()).collect();
    }

    /// Finds the rates of the active streams, with these limits in bytes per second of a connection.
    pub(super) fn solve(&mut self, limit: impl Fn(usize) -> Option<Rate>) -> Settled {
        let classes: Vec<Class<'_>> = self
            .active
            .iter()
            .map(|&stream| Class {
                queues: &self.queues[stream],
                flows: f64::from(self.streams[stream].connections),
                source: limited(self.sending[stream], limit(stream)),
            })
            .collect();
        let settled = self.wfq.solve(&classes).expect("classes of a scenario are in range");
        self.rates.clear();
        self.rates.extend_from_slice(self.wfq.rates());
        settled
    }

    /// The active streams, and the rates of a connection of each.
    pub(super) fn rates(&self) -> impl Iterator<Item = (usize, &Rates)> {
        self.active.iter().copied().zip(&self.rates)
    }
}

/// What a source does behind a limit.
fn limited(sending: Sending, limit: Option<Rate>) -> Source {
    let most = |rate: Rate| limit.map_or(rate, |limit| if limit < rate { limit } else { rate }).get();
    match (sending, limit) {
        (Sending::Elastic, None) => Source::Elastic,
        (Sending::Elastic, Some(limit)) => Source::Capped(limit.get()),
        (Sending::Capped(rate), _) => Source::Capped(most(rate)),
        (Sending::Unresponsive(rate), _) => Source::Unresponsive(most(rate)),
    }
}

/// The path of every connection by hash, those of one demand on one path together.
fn find_paths(scenario: &Scenario) -> Vec<Stream> {
    let mut routes = Routes::new(scenario.topology.clone(), scenario.seed);
    let mut path: Vec<LinkId> = Vec::new();
    let mut streams = Vec::new();
    for (at, demand) in scenario.demands.iter().enumerate() {
        let mut by_path: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
        for &from in &demand.from {
            for &to in demand.to.iter().filter(|&&to| to != from) {
                for connection in 0..u64::from(demand.connections) {
                    let found = routes.path(from, to, (at as u64) << 32 | connection, &mut path);
                    assert!(found, "all links are up, and then a topology has a path between all hosts");
                    *by_path.entry(path.iter().map(|link| link.0).collect()).or_default() += 1;
                }
            }
        }
        streams.extend(by_path.into_iter().map(|(links, connections)| Stream {
            demand: at,
            service: demand.service,
            links,
            connections,
        }));
    }
    streams
}
