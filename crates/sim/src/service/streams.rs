//! Groups connections by path, and computes their steady-state rates.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::model::scenario::{
    CableChange, CableEvent, Demand, Guarantee, NetworkQueues, Scenario, SendMode,
};
use weir_core::model::{LinkId, Routes};
use weir_core::solve::wfq::{FlowCounts, Queue, QueuedClass, Rates, Source, WfqSolver, WfqStats};
use weir_core::units::{Rate, Time};

use super::mechanism::Mechanism;

/// Connections of one demand on one path.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// The index of the demand in the scenario.
    pub demand: usize,
    /// Its service.
    pub service: usize,
    /// The links of the path.
    pub links: Vec<u32>,
}

/// All connections of a scenario, and the queues that they go through.
pub(super) struct Streams {
    routes: Routes,
    /// For every path that connections have or had; a stream is never forgotten.
    streams: Vec<Stream>,
    /// Of each stream, how many connections it has now.
    connections: Vec<u32>,
    sending: Vec<SendMode>,
    /// Of each stream, one queue after the other.
    queues: Vec<Vec<u32>>,
    /// Of each demand, its streams by their paths, and how many connections have no path.
    known: Vec<BTreeMap<Vec<u32>, usize>>,
    stranded: Vec<u32>,
    /// Which queues links have, and the first of each.
    queueing: NetworkQueues,
    first: Vec<u32>,
    /// Links whose queues have weights by the guarantees there, with these.
    reserved: BTreeMap<LinkId, Vec<Guarantee>>,
    wfq: WfqSolver,
    active: Vec<usize>,
    started: Vec<usize>,
    /// Of each connection of the active streams.
    rates: Vec<Rates>,
}

impl Streams {
    /// With paths over all links.
    pub(super) fn new(scenario: &Scenario, mechanism: Mechanism) -> Streams {
        let topology = &scenario.topology;
        let queueing = if mechanism.has_service_queues() {
            scenario.network_queues()
        } else {
            NetworkQueues::single_queue(topology, scenario.services.len())
        };
        let mut queues = Vec::new();
        let mut first = Vec::with_capacity(topology.links().len());
        for link in 0..topology.links().len() as u32 {
            first.push(queues.len() as u32);
            queues.extend(queueing.table(LinkId(link)).weights.iter().map(|&weight| Queue { link, weight }));
        }
        let capacities: Vec<f64> = topology.links().iter().map(|link| link.rate.get()).collect();
        let mut streams = Streams {
            routes: Routes::new(topology.clone(), scenario.seed),
            streams: Vec::new(),
            connections: Vec::new(),
            sending: Vec::new(),
            queues: Vec::new(),
            known: vec![BTreeMap::new(); scenario.demands.len()],
            stranded: vec![0; scenario.demands.len()],
            queueing,
            first,
            reserved: BTreeMap::new(),
            wfq: WfqSolver::new(&capacities, &queues)
                .expect("`Scenario::check` accepted the rates and weights"),
            active: Vec::new(),
            started: Vec::new(),
            rates: Vec::new(),
        };
        if mechanism.has_service_queues() && mechanism.has_allocator() {
            streams.reserve(scenario);
        }
        streams.find_paths(scenario);
        streams
    }

    /// Sets the weights of queues at ports with guarantees. A port that the scenario describes keeps the weights given there, and
    /// a host's own port keeps its one queue.
    fn reserve(&mut self, scenario: &Scenario) {
        let described: BTreeSet<LinkId> =
            scenario.ports.iter().flat_map(|port| &port.links).copied().collect();
        let topology = &scenario.topology;
        for guarantee in &scenario.guarantees {
            let link = guarantee.link;
            if !topology.is_host(topology.link(link).from) && !described.contains(&link) {
                self.reserved.entry(link).or_default().push(*guarantee);
            }
        }
        for link in self.reserved.keys().copied().collect::<Vec<_>>() {
            self.set_weights(scenario, link, topology.link(link).rate);
        }
    }

    /// Sets the weights of a link's queues by the guarantees on it, if there are any, for this rate of the link.
    fn set_weights(&mut self, scenario: &Scenario, link: LinkId, rate: Rate) {
        let Some(guarantees) = self.reserved.get(&link) else { return };
        let weights = scenario.guaranteed_weights(guarantees, rate);
        for (queue, weight) in (self.first[link.index()]..).zip(weights) {
            let set = self.wfq.set_weight(queue as usize, weight);
            set.expect("guarantees and rates of links are in the range of weights");
        }
    }

    /// Applies an event to its cable. Paths are updated by [`Streams::find_paths`].
    pub(super) fn change(&mut self, scenario: &Scenario, event: &CableEvent) {
        for link in [event.cable, event.cable.reverse()] {
            match event.change {
                CableChange::Down => drop(self.routes.fail_link(link)),
                CableChange::Up => drop(self.routes.restore_link(link)),
                CableChange::Rate(rate) => {
                    let set = self.wfq.set_capacity(link.index(), rate.get());
                    set.expect("`Scenario::check` accepted the rate");
                    self.set_weights(scenario, link, rate);
                }
            }
        }
    }

    /// Finds the path of every connection by hash over the links that are up, and puts those of one demand on one path
    /// together. O(connections x links out of the nodes of a path).
    pub(super) fn find_paths(&mut self, scenario: &Scenario) {
        let mut path: Vec<LinkId> = Vec::new();
        self.connections.fill(0);
        self.stranded.fill(0);
        for (at, demand) in scenario.demands.iter().enumerate() {
            let mut by_path: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
            for &from in &demand.sources {
                for &to in demand.destinations.iter().filter(|&&to| to != from) {
                    for connection in 0..u64::from(demand.connections) {
                        if self.routes.compute_path(from, to, (at as u64) << 32 | connection, &mut path) {
                            *by_path.entry(path.iter().map(|link| link.0).collect()).or_default() += 1;
                        } else {
                            self.stranded[at] += 1;
                        }
                    }
                }
            }
            for (links, connections) in by_path {
                let stream = self.stream(at, demand, links);
                self.connections[stream] = connections;
            }
        }
    }

    /// The stream of a demand over a path, created if it does not exist.
    fn stream(&mut self, at: usize, demand: &Demand, links: Vec<u32>) -> usize {
        if let Some(&stream) = self.known[at].get(&links) {
            return stream;
        }
        let queue = |&link: &u32| {
            self.first[link as usize] + self.queueing.table(LinkId(link)).queue_by_service[demand.service]
        };
        self.queues.push(links.iter().map(queue).collect());
        self.sending.push(demand.send_mode);
        self.connections.push(0);
        self.known[at].insert(links.clone(), self.streams.len());
        self.streams.push(Stream { demand: at, service: demand.service, links });
        self.streams.len() - 1
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// How many links the paths of all streams have together.
    pub(super) fn hops(&self) -> usize {
        self.streams.iter().map(|stream| stream.links.len()).sum()
    }

    pub(super) fn get(&self, stream: usize) -> &Stream {
        &self.streams[stream]
    }

    pub(super) fn sending(&self, stream: usize) -> SendMode {
        self.sending[stream]
    }

    /// How many connections a stream has.
    pub(super) fn connections(&self, stream: usize) -> u32 {
        self.connections[stream]
    }

    /// Of each demand, how many connections have no path.
    pub(super) fn stranded(&self) -> &[u32] {
        &self.stranded
    }

    /// What is kept of the connections after the run.
    pub(super) fn into_crossed(self) -> Vec<Stream> {
        self.streams
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
        let sends = |&stream: &usize| on[self.streams[stream].demand] && self.connections[stream] > 0;
        self.active = (0..self.streams.len()).filter(sends).collect();
        self.started = self.active.iter().copied().filter(|s| before.binary_search(s).is_err()).collect();
    }

    /// Finds the rates of the active streams, with these limits in bytes per second of a connection.
    pub(super) fn solve(&mut self, limit: impl Fn(usize) -> Option<Rate>) -> WfqStats {
        let classes: Vec<QueuedClass<'_>> = self
            .active
            .iter()
            .map(|&stream| QueuedClass {
                queues: &self.queues[stream],
                flows: FlowCounts::Equal(f64::from(self.connections[stream])),
                source: limited(self.sending[stream], limit(stream)),
            })
            .collect();
        let settled = self
            .wfq
            .solve(&classes)
            .expect("rates and numbers of connections are in range, and paths cross each link once");
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
fn limited(sending: SendMode, limit: Option<Rate>) -> Source {
    let most = |rate: Rate| limit.map_or(rate, |limit| if limit < rate { limit } else { rate }).get();
    match (sending, limit) {
        (SendMode::Elastic, None) => Source::Elastic,
        (SendMode::Elastic, Some(limit)) => Source::Capped(limit.get()),
        (SendMode::Capped(rate), _) => Source::Capped(most(rate)),
        (SendMode::Unresponsive(rate), _) => Source::Unresponsive(most(rate)),
    }
}
