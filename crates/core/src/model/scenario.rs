//! Scenarios of services that share a network: hosts, connections, rates and times.
//!
//! A [`Scenario`] describes the experiments of NetShare (UCSD 2010, section 5). Services have weights. Connections
//! send at the available rate, up to a maximum rate, or at a fixed rate independent of goodput. Connections have no
//! sizes, so they end only at fixed times. Cables may fail during the scenario ([`Event`]).

mod event;
mod guarantee;
mod port;

use std::collections::BTreeSet;

use super::topology::{NodeId, Topology};
use crate::units::{Rate, Time};

pub use event::{Change, Event};
pub use guarantee::{Guarantee, Reduction};
pub use port::{Port, Queue, Queueing, Table};

/// A service (an application, a tenant): connections that share links by one weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Name of the service.
    pub name: String,
    /// Weight on every link, relative to the weights of other services.
    pub weight: f64,
    /// Weight for unused or unguaranteed bandwidth, if it differs from `weight` (NetShare, Fig. 5). Only a central
    /// allocator applies it.
    pub excess: Option<f64>,
}

/// How a connection uses its bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sending {
    /// The connection uses all available bandwidth (TCP with enough data).
    Elastic,
    /// The connection uses the available bandwidth up to a rate.
    Capped(Rate),
    /// The connection sends at a fixed rate, independent of goodput (UDP).
    Unresponsive(Rate),
}

/// Equal connections of one service, from every source to every other destination.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// Position of the service in the list.
    pub service: usize,
    /// Sources.
    pub from: Vec<NodeId>,
    /// Destinations. A host does not send to itself.
    pub to: Vec<NodeId>,
    /// Number of connections between two hosts. Each connection has its own path.
    pub connections: u32,
    /// How each connection sends.
    pub sending: Sending,
    /// Start and end of each active interval, sorted and disjoint.
    pub active: Vec<(Time, Time)>,
}

/// A network, its services, and their connections.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The network.
    pub topology: Topology,
    /// Seed of the path hashes. Another seed selects other paths.
    pub seed: u64,
    /// End of the scenario.
    pub end: Time,
    /// The minimum limit that a mechanism sets for a connection (the threshold `T` of NetShare's Algorithm 1).
    pub floor: Rate,
    /// The services.
    pub services: Vec<Service>,
    /// The connections of the services.
    pub demands: Vec<Demand>,
    /// Guaranteed rates of services on links.
    pub guarantees: Vec<Guarantee>,
    /// Ports whose queues differ from the default.
    pub ports: Vec<Port>,
    /// Changes of cables, in order of time.
    pub events: Vec<Event>,
}

/// The part of a scenario that contains an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The scenario as a whole.
    Scenario,
    /// The service at this position.
    Service(usize),
    /// The demand at this position.
    Demand(usize),
    /// The guarantee at this position.
    Guarantee(usize),
    /// The port at this position.
    Port(usize),
    /// A queue of a port, by positions.
    Queue {
        /// Position of the port.
        port: usize,
        /// Position of the queue.
        queue: usize,
    },
    /// The event at this position.
    Event(usize),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Scenario => Ok(()),
            Place::Service(at) => write!(f, "service {} ", at + 1),
            Place::Demand(at) => write!(f, "demand {} ", at + 1),
            Place::Guarantee(at) => write!(f, "guarantee {} ", at + 1),
            Place::Port(at) => write!(f, "port {} ", at + 1),
            Place::Queue { port, queue } => write!(f, "port {} queue {} ", port + 1, queue + 1),
            Place::Event(at) => write!(f, "event {} ", at + 1),
        }
    }
}

/// An error in a scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field `{place}{field}`: `{value}`: expected {expected}")]
pub struct ScenarioError {
    /// The part that contains the error.
    pub place: Place,
    /// The field.
    pub field: &'static str,
    /// The rejected value.
    pub value: String,
    /// The accepted values.
    pub expected: String,
}

impl Scenario {
    /// Default of the threshold `T`: 1 Mbit. The paper gives no value.
    pub const FLOOR: Rate = Rate::of(125_000.0);

    /// Maximum length of a scenario: one hour.
    pub const MAX_END: Time = Time::of(3600.0);

    /// Maximum number of services.
    pub const MAX_SERVICES: usize = 1_000;

    /// Maximum number of demands.
    pub const MAX_DEMANDS: usize = 10_000;

    /// Maximum number of connections of all demands.
    pub const MAX_CONNECTIONS: usize = 1 << 20;

    /// Maximum number of active intervals of all demands.
    pub const MAX_INTERVALS: usize = 10_000;

    /// Maximum number of queues. A service at a link counts as one queue, because ports have at most one queue for
    /// each service.
    pub const MAX_QUEUES: usize = 1 << 24;

    /// Minimum and maximum weight.
    pub const WEIGHTS: std::ops::RangeInclusive<f64> = 1e-9..=1e9;

    /// Checks limits, references and values.
    ///
    /// # Errors
    /// The first [`ScenarioError`] found.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.check_whole()?;
        (0..self.services.len()).try_for_each(|at| self.check_service(at))?;
        let mut names = BTreeSet::new();
        for (at, service) in self.services.iter().enumerate() {
            if !names.insert(&service.name) {
                return Err(wrong(Place::Service(at), "name", &service.name, "a name of its own"));
            }
        }
        (0..self.demands.len()).try_for_each(|at| self.check_demand(at))?;
        let (mut connections, mut intervals) = (0u64, 0);
        for (at, demand) in self.demands.iter().enumerate() {
            connections = connections.saturating_add(demand.count());
            if connections > Scenario::MAX_CONNECTIONS as u64 {
                let most = format!("at most {} connections in all", Scenario::MAX_CONNECTIONS);
                return Err(wrong(Place::Demand(at), "connections", demand.connections, most));
            }
            intervals += demand.active.len();
            if intervals > Scenario::MAX_INTERVALS {
                let most = format!("at most {} intervals in all", Scenario::MAX_INTERVALS);
                return Err(wrong(Place::Demand(at), "active", demand.active.len(), most));
            }
        }
        self.check_ports()?;
        self.check_guarantees()?;
        self.check_events(connections)
    }

    fn check_whole(&self) -> Result<(), ScenarioError> {
        let place = Place::Scenario;
        if !(self.end > Time::ZERO && self.end <= Scenario::MAX_END) {
            let most = format!("a time above 0 and up to {}", Scenario::MAX_END);
            return Err(wrong(place, "end", self.end, most));
        }
        if self.floor > Topology::MAX_RATE {
            return Err(wrong(place, "floor", self.floor, format!("at most {}", Topology::MAX_RATE)));
        }
        let (services, demands) = (self.services.len(), self.demands.len());
        if !(1..=Scenario::MAX_SERVICES).contains(&services) {
            let most = format!("1 to {} services", Scenario::MAX_SERVICES);
            return Err(wrong(place, "service", services, most));
        }
        if !(1..=Scenario::MAX_DEMANDS).contains(&demands) {
            return Err(wrong(place, "demand", demands, format!("1 to {} demands", Scenario::MAX_DEMANDS)));
        }
        let most = Scenario::MAX_QUEUES / self.topology.links().len();
        if services > most {
            let most = format!("at most {most} services on that many links");
            return Err(wrong(place, "service", services, most));
        }
        Ok(())
    }

    fn check_service(&self, at: usize) -> Result<(), ScenarioError> {
        let Service { name, weight, excess } = &self.services[at];
        let place = Place::Service(at);
        let long = name.chars().count() > Topology::MAX_NAME;
        if name.is_empty() || long || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            let expected = format!("1 to {} characters, none of them blank", Topology::MAX_NAME);
            return Err(wrong(place, "name", name, expected));
        }
        let range = Scenario::WEIGHTS;
        let expected = || format!("a number from {:e} to {:e}", range.start(), range.end());
        if !range.contains(weight) {
            return Err(wrong(place, "weight", weight, expected()));
        }
        match excess {
            Some(excess) if *excess != 0.0 && !range.contains(excess) => {
                Err(wrong(place, "excess", excess, format!("0 or {}", expected())))
            }
            _ => Ok(()),
        }
    }

    fn check_demand(&self, at: usize) -> Result<(), ScenarioError> {
        let demand = &self.demands[at];
        let place = Place::Demand(at);
        if demand.service >= self.services.len() {
            let expected = format!("a service below {}", self.services.len());
            return Err(wrong(place, "service", demand.service, expected));
        }
        for (field, hosts) in [("from", &demand.from), ("to", &demand.to)] {
            if hosts.is_empty() {
                return Err(wrong(place, field, "[]", "at least one host"));
            }
            let mut seen = BTreeSet::new();
            for &host in hosts {
                if !self.topology.is_host(host) {
                    return Err(wrong(place, field, host.0, "a host of the fabric"));
                }
                if !seen.insert(host) {
                    return Err(wrong(place, field, self.topology.name(host), "each host once"));
                }
            }
        }
        if demand.pairs() == 0 {
            return Err(wrong(place, "to", "nobody else", "a host that another one sends to"));
        }
        if demand.connections == 0 {
            return Err(wrong(place, "connections", 0, "at least 1"));
        }
        if let Sending::Capped(rate) | Sending::Unresponsive(rate) = demand.sending
            && !(Topology::MIN_RATE..=Topology::MAX_RATE).contains(&rate)
        {
            let expected = format!("{} to {}", Topology::MIN_RATE, Topology::MAX_RATE);
            return Err(wrong(place, "rate", rate, expected));
        }
        if demand.active.is_empty() {
            return Err(wrong(place, "active", "nothing", "an interval, such as [[\"5s\", \"35s\"]]"));
        }
        let mut last = None;
        for &(from, to) in &demand.active {
            if from >= to || to > self.end || last.is_some_and(|last| from <= last) {
                let value = format!("{from} to {to}");
                let expected = format!("intervals in order and apart, until {} at the latest", self.end);
                return Err(wrong(place, "active", value, expected));
            }
            last = Some(to);
        }
        Ok(())
    }
}

impl Demand {
    /// Number of pairs of hosts.
    fn pairs(&self) -> u64 {
        let to: BTreeSet<NodeId> = self.to.iter().copied().collect();
        let same = self.from.iter().filter(|host| to.contains(host)).count();
        (self.from.len() as u64).saturating_mul(self.to.len() as u64) - same as u64
    }

    /// Number of connections.
    pub fn count(&self) -> u64 {
        self.pairs().saturating_mul(u64::from(self.connections))
    }

    /// Whether the connections are active at a time.
    pub fn is_active(&self, at: Time) -> bool {
        self.active.iter().any(|&(from, to)| from <= at && at < to)
    }
}

fn wrong(
    place: Place,
    field: &'static str,
    value: impl ToString,
    expected: impl Into<String>,
) -> ScenarioError {
    ScenarioError { place, field, value: value.to_string(), expected: expected.into() }
}
