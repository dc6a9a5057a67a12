//! Queues of ports: their number and weights, and the queue of each service.

use super::{Place, Scenario, ScenarioError, wrong};
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
pub struct Port {
    /// The links that leave these ports.
    pub links: Vec<LinkId>,
    /// The queues.
    pub queues: Vec<Queue>,
}

/// The queues of a port, and the queue of each service.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Weight by queue.
    pub weights: Vec<f64>,
    /// Position of the queue, by service.
    pub queue_of: Vec<u32>,
}

/// The queues of all ports of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Queueing {
    tables: Vec<Table>,
    /// Position of the table, by link.
    of_link: Vec<u32>,
}

impl Table {
    /// One queue for all services.
    fn one(services: usize) -> Table {
        Table { weights: vec![1.0], queue_of: vec![0; services] }
    }

    /// One queue for each service, with the service's weight.
    pub fn by_service(weights: &[f64]) -> Table {
        Table { weights: weights.to_vec(), queue_of: (0..weights.len() as u32).collect() }
    }

    fn of_port(port: &Port, services: usize) -> Table {
        let mut queue_of = vec![0; services];
        for (number, queue) in (0..).zip(&port.queues) {
            for &service in &queue.services {
                queue_of[service] = number;
            }
        }
        Table { weights: port.queues.iter().map(|queue| queue.weight).collect(), queue_of }
    }
}

impl Queueing {
    /// One queue at every port, for all services.
    pub fn one(topology: &Topology, services: usize) -> Queueing {
        Queueing { tables: vec![Table::one(services)], of_link: vec![0; topology.links().len()] }
    }

    /// One queue for each service at every port of a switch, and one queue at the ports of hosts. `ports` replaces
    /// these queues at single ports.
    ///
    /// # Panics
    /// If `ports` refers to services or links that do not exist.
    pub fn by_service(topology: &Topology, weights: &[f64], ports: &[Port]) -> Queueing {
        let services = weights.len();
        let mut tables = vec![Table::one(services), Table::by_service(weights)];
        let default = |at: usize| u32::from(!topology.is_host(topology.links()[at].from));
        let mut of_link: Vec<u32> = (0..topology.links().len()).map(default).collect();
        for port in ports {
            for link in &port.links {
                of_link[link.index()] = tables.len() as u32;
            }
            tables.push(Table::of_port(port, services));
        }
        Queueing { tables, of_link }
    }

    /// The queues of the port that a link leaves from.
    pub fn at(&self, link: LinkId) -> &Table {
        &self.tables[self.of_link[link.index()] as usize]
    }
}

impl Scenario {
    /// Maximum number of queues of a port.
    pub const MAX_PORT_QUEUES: usize = 64;

    /// The queues of all ports, if services have queues. The scenario has to be valid.
    pub fn queueing(&self) -> Queueing {
        let weights: Vec<f64> = self.services.iter().map(|service| service.weight).collect();
        Queueing::by_service(&self.topology, &weights, &self.ports)
    }

    /// O(links + ports x services).
    pub(super) fn check_ports(&self) -> Result<(), ScenarioError> {
        let mut set = vec![false; self.topology.links().len()];
        for (number, port) in self.ports.iter().enumerate() {
            let place = Place::Port(number);
            if port.links.is_empty() {
                return Err(wrong(place, "to", "nothing", "a link of the fabric"));
            }
            for link in &port.links {
                let Some(set) = set.get_mut(link.index()) else {
                    return Err(wrong(place, "to", link.0, "a link of the fabric"));
                };
                if std::mem::replace(set, true) {
                    let ends = self.topology.link(*link);
                    let [from, to] = [ends.from, ends.to].map(|end| self.topology.name(end));
                    let value = format!("{from} to {to}");
                    return Err(wrong(place, "to", value, "a port whose queues are not set above"));
                }
            }
            self.check_queues(number, &port.queues)?;
        }
        Ok(())
    }

    fn check_queues(&self, port: usize, queues: &[Queue]) -> Result<(), ScenarioError> {
        let most = Scenario::MAX_PORT_QUEUES;
        if !(1..=most).contains(&queues.len()) {
            return Err(wrong(Place::Port(port), "queues", queues.len(), format!("1 to {most} queues")));
        }
        let mut seen = vec![false; self.services.len()];
        for (number, Queue { weight, services }) in queues.iter().enumerate() {
            let place = Place::Queue { port, queue: number };
            let range = Scenario::WEIGHTS;
            if !range.contains(weight) {
                let expected = format!("a number from {:e} to {:e}", range.start(), range.end());
                return Err(wrong(place, "weight", weight, expected));
            }
            if services.is_empty() {
                return Err(wrong(place, "services", "nothing", "a service at least"));
            }
            for &service in services {
                let Some(seen) = seen.get_mut(service) else {
                    let expected = format!("services below {}", self.services.len());
                    return Err(wrong(place, "services", service, expected));
                };
                if std::mem::replace(seen, true) {
                    let name = &self.services[service].name;
                    return Err(wrong(place, "services", name, "each service in one queue of a port"));
                }
            }
        }
        match self.services.iter().zip(&seen).find(|&(_, &seen)| !seen) {
            Some((service, _)) => {
                let value = format!("none with {}", service.name);
                Err(wrong(Place::Port(port), "queues", value, "every service in one of the port's queues"))
            }
            None => Ok(()),
        }
    }
}
