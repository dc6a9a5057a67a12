//! Queues of ports: their number and weights, and the queue of each service.

use super::{ErrorLocation, Scenario, ScenarioError, scenario_error};
use crate::model::topology::{LinkId, Topology};

/// A queue of a port.
#[derive(Debug, Clone, PartialEq)]
pub struct Queue {
    /// Weight, relative to the other queues of the port.
    pub weight: f64,
    /// Positions of the services in the queue.
    pub services: Vec<usize>,
}

/// The queues of one port, or of several equal ports. Every service is in one of the queues.
#[derive(Debug, Clone, PartialEq)]
pub struct PortQueues {
    /// The links that leave these ports.
    pub links: Vec<LinkId>,
    /// The queues.
    pub queues: Vec<Queue>,
}

/// The queues of a port, and the queue of each service.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueTable {
    /// Weight by queue.
    pub weights: Vec<f64>,
    /// Position of the queue, by service.
    pub queue_by_service: Vec<u32>,
}

/// The queues of all ports of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkQueues {
    tables: Vec<QueueTable>,
    /// Position of the table, by link.
    table_by_link: Vec<u32>,
}

impl QueueTable {
    /// One queue for all services.
    fn single_queue(services: usize) -> QueueTable {
        QueueTable { weights: vec![1.0], queue_by_service: vec![0; services] }
    }

    /// One queue for each service, with the service's weight.
    pub fn by_service(weights: &[f64]) -> QueueTable {
        QueueTable { weights: weights.to_vec(), queue_by_service: (0..weights.len() as u32).collect() }
    }

    fn from_port(port: &PortQueues, services: usize) -> QueueTable {
        let mut queue_of = vec![0; services];
        for (number, queue) in (0..).zip(&port.queues) {
            for &service in &queue.services {
                queue_of[service] = number;
            }
        }
        QueueTable {
            weights: port.queues.iter().map(|queue| queue.weight).collect(),
            queue_by_service: queue_of,
        }
    }
}

impl NetworkQueues {
    /// One queue at every port, for all services.
    pub fn single_queue(topology: &Topology, services: usize) -> NetworkQueues {
        NetworkQueues {
            tables: vec![QueueTable::single_queue(services)],
            table_by_link: vec![0; topology.links().len()],
        }
    }

    /// One queue for each service at every port of a switch, and one queue at the ports of hosts. `ports` replaces
    /// these queues at single ports.
    ///
    /// # Panics
    /// If `ports` refers to services or links that do not exist.
    pub fn by_service(topology: &Topology, weights: &[f64], ports: &[PortQueues]) -> NetworkQueues {
        let services = weights.len();
        let mut tables = vec![QueueTable::single_queue(services), QueueTable::by_service(weights)];
        let default = |at: usize| u32::from(!topology.is_host(topology.links()[at].from));
        let mut table_by_link: Vec<u32> = (0..topology.links().len()).map(default).collect();
        for port in ports {
            for link in &port.links {
                table_by_link[link.index()] = tables.len() as u32;
            }
            tables.push(QueueTable::from_port(port, services));
        }
        NetworkQueues { tables, table_by_link }
    }

    /// The queues of the port that a link leaves from.
    pub fn table(&self, link: LinkId) -> &QueueTable {
        &self.tables[self.table_by_link[link.index()] as usize]
    }
}

impl Scenario {
    /// Maximum number of queues of a port.
    pub const MAX_PORT_QUEUES: usize = 64;

    /// The queues of all ports, if services have queues. The scenario has to be valid.
    pub fn network_queues(&self) -> NetworkQueues {
        let weights: Vec<f64> = self.services.iter().map(|service| service.weight).collect();
        NetworkQueues::by_service(&self.topology, &weights, &self.ports)
    }

    /// O(links + ports x services).
    pub(super) fn check_ports(&self) -> Result<(), ScenarioError> {
        let mut configured = vec![false; self.topology.links().len()];
        for (number, port) in self.ports.iter().enumerate() {
            let place = ErrorLocation::Port(number);
            if port.links.is_empty() {
                return Err(scenario_error(place, "to", "nothing", "a link of the fabric"));
            }
            for link in &port.links {
                let Some(set) = configured.get_mut(link.index()) else {
                    return Err(scenario_error(place, "to", link.0, "a link of the fabric"));
                };
                if std::mem::replace(set, true) {
                    let ends = self.topology.link(*link);
                    let [from, to] = [ends.from, ends.to].map(|end| self.topology.name(end));
                    let value = format!("{from} to {to}");
                    return Err(scenario_error(place, "to", value, "a port whose queues are not set above"));
                }
            }
            self.check_queues(number, &port.queues)?;
        }
        Ok(())
    }

    fn check_queues(&self, port: usize, queues: &[Queue]) -> Result<(), ScenarioError> {
        let most = Scenario::MAX_PORT_QUEUES;
        if !(1..=most).contains(&queues.len()) {
            return Err(scenario_error(
                ErrorLocation::Port(port),
                "queues",
                queues.len(),
                format!("1 to {most} queues"),
            ));
        }
        let mut seen = vec![false; self.services.len()];
        for (number, Queue { weight, services }) in queues.iter().enumerate() {
            let place = ErrorLocation::Queue { port, queue: number };
            let range = Scenario::WEIGHT_RANGE;
            if !range.contains(weight) {
                let expected = format!("a number from {:e} to {:e}", range.start(), range.end());
                return Err(scenario_error(place, "weight", weight, expected));
            }
            if services.is_empty() {
                return Err(scenario_error(place, "services", "nothing", "at least one service"));
            }
            for &service in services {
                let Some(seen) = seen.get_mut(service) else {
                    let expected = format!("services below {}", self.services.len());
                    return Err(scenario_error(place, "services", service, expected));
                };
                if std::mem::replace(seen, true) {
                    let name = &self.services[service].name;
                    return Err(scenario_error(
                        place,
                        "services",
                        name,
                        "each service in one queue of a port",
                    ));
                }
            }
        }
        match self.services.iter().zip(&seen).find(|&(_, &seen)| !seen) {
            Some((service, _)) => {
                let value = format!("none with {}", service.name);
                Err(scenario_error(
                    ErrorLocation::Port(port),
                    "queues",
                    value,
                    "every service in one of the port's queues",
                ))
            }
            None => Ok(()),
        }
    }
}
