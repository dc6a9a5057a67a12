//! Scenarios of services that share a network: hosts, connections, rates and times.
//!
//! A [`Scenario`] describes the experiments of NetShare (UCSD 2010, section 5). Services have weights. Connections
//! send at the available rate, up to a maximum rate, or at a fixed rate independent of goodput. Connections have no
//! sizes, so they end only at fixed times. Cables may fail during the scenario ([`CableEvent`]).

mod event;
mod guarantee;
mod port;

use std::collections::BTreeSet;

use super::topology::{NodeId, Topology};
use crate::units::{Rate, Time};

pub use super::topology::{CableChange, CableEvent};
pub use guarantee::{Guarantee, Reduction};
pub use port::{NetworkQueues, PortQueues, Queue, QueueTable};

/// A service (an application, a tenant): connections that share links by one weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Name of the service.
    pub name: String,
    /// Weight on every link, relative to the weights of other services.
    pub weight: f64,
    /// Weight for unused or unguaranteed bandwidth, if it differs from `weight` (NetShare, Fig. 5). Only a central
    /// allocator applies it.
    pub excess_weight: Option<f64>,
}

/// How a connection uses its bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SendMode {
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
    pub sources: Vec<NodeId>,
    /// Destinations. A host does not send to itself.
    pub destinations: Vec<NodeId>,
    /// Number of connections between two hosts. Each connection has its own path.
    pub connections: u32,
    /// How each connection sends.
    pub send_mode: SendMode,
    /// Start and end of each active interval, sorted and disjoint.
    pub active_intervals: Vec<(Time, Time)>,
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
    pub min_limit: Rate,
    /// The services.
    pub services: Vec<Service>,
    /// The connections of the services.
    pub demands: Vec<Demand>,
    /// Guaranteed rates of services on links.
    pub guarantees: Vec<Guarantee>,
    /// Ports whose queues differ from the default.
    pub ports: Vec<PortQueues>,
    /// Changes of cables, in order of time.
    pub events: Vec<CableEvent>,
}

/// The part of a scenario that contains an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorLocation {
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

impl std::fmt::Display for ErrorLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ErrorLocation::Scenario => Ok(()),
            ErrorLocation::Service(at) => write!(f, "service {} ", at + 1),
            ErrorLocation::Demand(at) => write!(f, "demand {} ", at + 1),
            ErrorLocation::Guarantee(at) => write!(f, "guarantee {} ", at + 1),
            ErrorLocation::Port(at) => write!(f, "port {} ", at + 1),
            ErrorLocation::Queue { port, queue } => write!(f, "port {} queue {} ", port + 1, queue + 1),
            ErrorLocation::Event(at) => write!(f, "event {} ", at + 1),
        }
    }
}

/// An error in a scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field `{location}{field}`: `{value}`: expected {expected}")]
pub struct ScenarioError {
    /// The part that contains the error.
    pub location: ErrorLocation,
    /// The field.
    pub field: &'static str,
    /// The rejected value.
    pub value: String,
    /// The accepted values.
    pub expected: String,
}

impl Scenario {
    /// Default of the threshold `T`: 1 Mbit. The paper gives no value.
    pub const DEFAULT_MIN_LIMIT: Rate = Rate::from_valid(125_000.0);

    /// Maximum length of a scenario: one hour.
    pub const MAX_DURATION: Time = Time::from_valid(3600.0);

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
    pub const WEIGHT_RANGE: std::ops::RangeInclusive<f64> = 1e-9..=1e9;

    /// Checks limits, references and values.
    ///
    /// # Errors
    /// The first [`ScenarioError`] found.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.check_limits()?;
        (0..self.services.len()).try_for_each(|at| self.check_service(at))?;
        let mut names = BTreeSet::new();
        for (at, service) in self.services.iter().enumerate() {
            if !names.insert(&service.name) {
                return Err(scenario_error(
                    ErrorLocation::Service(at),
                    "name",
                    &service.name,
                    "a distinct name",
                ));
            }
        }
        (0..self.demands.len()).try_for_each(|at| self.check_demand(at))?;
        let (mut connections, mut intervals) = (0u64, 0);
        for (at, demand) in self.demands.iter().enumerate() {
            connections = connections.saturating_add(demand.connection_count());
            if connections > Scenario::MAX_CONNECTIONS as u64 {
                let most = format!("at most {} connections in total", Scenario::MAX_CONNECTIONS);
                return Err(scenario_error(
                    ErrorLocation::Demand(at),
                    "connections",
                    demand.connections,
                    most,
                ));
            }
            intervals += demand.active_intervals.len();
            if intervals > Scenario::MAX_INTERVALS {
                let most = format!("at most {} intervals in total", Scenario::MAX_INTERVALS);
                return Err(scenario_error(
                    ErrorLocation::Demand(at),
                    "active",
                    demand.active_intervals.len(),
                    most,
                ));
            }
        }
        self.check_ports()?;
        self.check_guarantees()?;
        self.check_events(connections)
    }

    fn check_limits(&self) -> Result<(), ScenarioError> {
        let place = ErrorLocation::Scenario;
        if !(self.end > Time::ZERO && self.end <= Scenario::MAX_DURATION) {
            let most = format!("a time above 0 and up to {}", Scenario::MAX_DURATION);
            return Err(scenario_error(place, "end", self.end, most));
        }
        if self.min_limit > Topology::MAX_RATE {
            return Err(scenario_error(
                place,
                "min-limit",
                self.min_limit,
                format!("at most {}", Topology::MAX_RATE),
            ));
        }
        let (services, demands) = (self.services.len(), self.demands.len());
        if !(1..=Scenario::MAX_SERVICES).contains(&services) {
            let most = format!("1 to {} services", Scenario::MAX_SERVICES);
            return Err(scenario_error(place, "service", services, most));
        }
        if !(1..=Scenario::MAX_DEMANDS).contains(&demands) {
            return Err(scenario_error(
                place,
                "demand",
                demands,
                format!("1 to {} demands", Scenario::MAX_DEMANDS),
            ));
        }
        let most = Scenario::MAX_QUEUES / self.topology.links().len();
        if services > most {
            let most = format!("at most {most} services on that many links");
            return Err(scenario_error(place, "service", services, most));
        }
        Ok(())
    }

    fn check_service(&self, at: usize) -> Result<(), ScenarioError> {
        let Service { name, weight, excess_weight: excess } = &self.services[at];
        let place = ErrorLocation::Service(at);
        let long = name.chars().count() > Topology::MAX_NAME_CHARS;
        if name.is_empty() || long || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            let expected = format!("1 to {} characters without blanks", Topology::MAX_NAME_CHARS);
            return Err(scenario_error(place, "name", name, expected));
        }
        let range = Scenario::WEIGHT_RANGE;
        let expected = || format!("a number from {:e} to {:e}", range.start(), range.end());
        if !range.contains(weight) {
            return Err(scenario_error(place, "weight", weight, expected()));
        }
        match excess {
            Some(excess) if *excess != 0.0 && !range.contains(excess) => {
                Err(scenario_error(place, "excess", excess, format!("0 or {}", expected())))
            }
            _ => Ok(()),
        }
    }

    fn check_demand(&self, at: usize) -> Result<(), ScenarioError> {
        let demand = &self.demands[at];
        let place = ErrorLocation::Demand(at);
        if demand.service >= self.services.len() {
            let expected = format!("a service below {}", self.services.len());
            return Err(scenario_error(place, "service", demand.service, expected));
        }
        for (field, hosts) in [("from", &demand.sources), ("to", &demand.destinations)] {
            if hosts.is_empty() {
                return Err(scenario_error(place, field, "[]", "at least one host"));
            }
            let mut seen = BTreeSet::new();
            for &host in hosts {
                if !self.topology.is_host(host) {
                    return Err(scenario_error(place, field, host.0, "a host of the fabric"));
                }
                if !seen.insert(host) {
                    return Err(scenario_error(place, field, self.topology.name(host), "each host once"));
                }
            }
        }
        if demand.host_pairs() == 0 {
            return Err(scenario_error(
                place,
                "to",
                "only its own source",
                "a destination other than its source",
            ));
        }
        if demand.connections == 0 {
            return Err(scenario_error(place, "connections", 0, "at least 1"));
        }
        if let SendMode::Capped(rate) | SendMode::Unresponsive(rate) = demand.send_mode
            && !(Topology::MIN_RATE..=Topology::MAX_RATE).contains(&rate)
        {
            let expected = format!("{} to {}", Topology::MIN_RATE, Topology::MAX_RATE);
            return Err(scenario_error(place, "rate", rate, expected));
        }
        if demand.active_intervals.is_empty() {
            return Err(scenario_error(
                place,
                "active",
                "nothing",
                "at least one interval, such as [[\"5s\", \"35s\"]]",
            ));
        }
        let mut last = None;
        for &(from, to) in &demand.active_intervals {
            if from >= to || to > self.end || last.is_some_and(|last| from <= last) {
                let value = format!("{from} to {to}");
                let expected = format!("disjoint intervals in order, up to {}", self.end);
                return Err(scenario_error(place, "active", value, expected));
            }
            last = Some(to);
        }
        Ok(())
    }
}

impl Demand {
    /// Number of pairs of hosts.
    fn host_pairs(&self) -> u64 {
        let to: BTreeSet<NodeId> = self.destinations.iter().copied().collect();
        let same = self.sources.iter().filter(|host| to.contains(host)).count();
        (self.sources.len() as u64).saturating_mul(self.destinations.len() as u64) - same as u64
    }

    /// Number of connections.
    pub fn connection_count(&self) -> u64 {
        self.host_pairs().saturating_mul(u64::from(self.connections))
    }

    /// Whether the connections are active at a time.
    pub fn is_active(&self, at: Time) -> bool {
        self.active_intervals.iter().any(|&(from, to)| from <= at && at < to)
    }
}

fn scenario_error(
    location: ErrorLocation,
    field: &'static str,
    value: impl ToString,
    expected: impl Into<String>,
) -> ScenarioError {
    ScenarioError { location, field, value: value.to_string(), expected: expected.into() }
}
