//! Links between switches that flows from port to port cross.
//!
//! Coflows are scheduled at ports: the hosts' own links. On a network whose links between switches carry less than all hosts together,
//! those are short as well. A flow has one of the shortest paths, by a hash of its hosts and its place in the workload (ECMP), as long as it
//! lives.

use super::topology::{Link, LinkId, NodeId, Routes, Topology};
use crate::units::Rate;

/// Links between switches, and the paths of flows over them.
#[derive(Debug, Clone)]
pub struct Trunks {
    routes: Routes,
    /// By port the host that has it.
    hosts: Vec<NodeId>,
    port_rate: Rate,
    /// In bytes per second.
    capacities: Vec<f64>,
    /// By link of the topology its position here; none if it is a host's.
    positions: Vec<Option<u32>>,
    path: Vec<LinkId>,
}

/// Why hosts of a topology cannot be ports.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TrunksError {
    /// A host with another number of cables than one.
    #[error("host `{host}` has {cables} cables: expected one, which is its port")]
    Cables {
        /// The host.
        host: String,
        /// How many.
        cables: usize,
    },
    /// A host whose cable carries something else than the first one's.
    #[error("host `{host}` has a cable of {rate}: expected {first}, as the first host has")]
    Rate {
        /// The host.
        host: String,
        /// What its cable carries.
        rate: Rate,
        /// What that of the first carries.
        first: Rate,
    },
}

impl Trunks {
    /// The links between the switches of a topology, all of them up. Another seed sends flows other ways.
    ///
    /// # Errors
    /// Hosts that do not have one cable each, all of the same rate.
    pub fn new(topology: Topology, seed: u64) -> Result<Trunks, TrunksError> {
        let mut first = None;
        for node in (0..topology.hosts() as u32).map(NodeId) {
            let host = || topology.name(node).to_owned();
            let &[link] = topology.out(node) else {
                return Err(TrunksError::Cables { host: host(), cables: topology.out(node).len() });
            };
            let rate = topology.link(link).rate;
            let first = *first.get_or_insert(rate);
            if rate != first {
                return Err(TrunksError::Rate { host: host(), rate, first });
            }
        }
        let mut capacities = Vec::new();
        let position = |&link: &Link| {
            (!topology.is_host_link(link)).then(|| {
                capacities.push(link.rate.get());
                capacities.len() as u32 - 1
            })
        };
        let positions = topology.links().iter().map(position).collect();
        let hosts = (0..topology.hosts() as u32).map(NodeId).collect();
        let port_rate = first.unwrap_or(Rate::ZERO);
        let routes = Routes::new(topology, seed);
        Ok(Trunks { routes, hosts, port_rate, capacities, positions, path: Vec::new() })
    }

    /// The same with other numbers for its ports: port 0 is what was port `ports[0]`, and so on.
    ///
    /// # Panics
    /// If there was no such port.
    pub fn plugged(self, ports: impl IntoIterator<Item = u32>) -> Trunks {
        let hosts = ports.into_iter().map(|port| self.hosts[port as usize]).collect();
        Trunks { hosts, ..self }
    }

    /// How many ports there are: port 0 is the first host, unless they are [`Trunks::plugged`] otherwise.
    pub fn ports(&self) -> usize {
        self.hosts.len()
    }

    /// What the cable of each host carries, which is what its port does.
    pub fn port_rate(&self) -> Rate {
        self.port_rate
    }

    /// What the links carry, in bytes per second.
    pub fn capacities(&self) -> &[f64] {
        &self.capacities
    }

    /// Puts the links that a flow crosses into `path`, as positions among the capacities. `coflow` is its coflow's position in the workload,
    /// `flow` its own among that one's flows.
    pub fn path(&mut self, src: u32, dst: u32, coflow: usize, flow: u32, path: &mut Vec<u32>) {
        path.clear();
        if src != dst {
            let number = (coflow as u64) << 32 | u64::from(flow);
            let (from, to) = (self.hosts[src as usize], self.hosts[dst as usize]);
            self.routes.path(from, to, number, &mut self.path);
            path.extend(self.path.iter().filter_map(|link| self.positions[link.index()]));
        }
    }
}
