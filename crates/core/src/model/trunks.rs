//! Links between switches, and the paths of flows over these links.
//!
//! Policies schedule coflows at ports: the links of hosts. If links between switches carry less than all hosts
//! together, these links can be bottlenecks too. Each flow uses one of the shortest paths during its whole life,
//! selected by a hash of its hosts and its position in the workload (ECMP).

use super::topology::{Link, LinkId, NodeId, Routes, Topology};
use crate::units::Rate;

/// Links between switches, and the paths of flows.
#[derive(Debug, Clone)]
pub struct Trunks {
    routes: Routes,
    /// By port: its host.
    hosts: Vec<NodeId>,
    /// Capacities in bytes per second.
    capacities: Vec<f64>,
    /// By link of the topology: position in `capacities`; `None` for links of hosts.
    trunk_by_link: Vec<Option<u32>>,
    path: Vec<LinkId>,
}

/// Why hosts of a topology cannot be ports.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TrunksError {
    /// A host does not have exactly one cable.
    #[error("host `{host}` has {cables} cables; expected one, which is its port")]
    CableCount {
        /// Name of the host.
        host: String,
        /// Number of cables.
        cables: usize,
    },
}

impl Trunks {
    /// Creates the trunks of a topology, with all links up. Another seed selects other paths.
    ///
    /// # Errors
    /// [`TrunksError`] if a host does not have exactly one cable.
    pub fn new(topology: Topology, seed: u64) -> Result<Trunks, TrunksError> {
        for node in (0..topology.hosts() as u32).map(NodeId) {
            let cables = topology.outgoing_links(node).len();
            if cables != 1 {
                return Err(TrunksError::CableCount { host: topology.name(node).to_owned(), cables });
            }
        }
        let mut capacities = Vec::new();
        let position = |&link: &Link| {
            (!topology.is_host_link(link)).then(|| {
                capacities.push(link.rate.get());
                capacities.len() as u32 - 1
            })
        };
        let trunk_by_link = topology.links().iter().map(position).collect();
        let hosts = (0..topology.hosts() as u32).map(NodeId).collect();
        let routes = Routes::new(topology, seed);
        Ok(Trunks { routes, hosts, capacities, trunk_by_link, path: Vec::new() })
    }

    /// Renumbers the ports: port 0 becomes the former port `ports[0]`, and so on.
    ///
    /// # Panics
    /// If a former port does not exist.
    pub fn with_port_order(self, former_ports: impl IntoIterator<Item = u32>) -> Trunks {
        let hosts = former_ports.into_iter().map(|port| self.hosts[port as usize]).collect();
        Trunks { hosts, ..self }
    }

    /// Number of ports. Port 0 is the first host, unless [`Trunks::with_port_order`] renumbered the ports.
    pub fn ports(&self) -> usize {
        self.hosts.len()
    }

    /// By port: the rate of the host's cable.
    pub fn port_rates(&self) -> Vec<Rate> {
        let topology = self.routes.topology();
        self.hosts.iter().map(|&host| topology.link(topology.outgoing_links(host)[0]).rate).collect()
    }

    /// Capacities of the links, in bytes per second.
    pub fn capacities(&self) -> &[f64] {
        &self.capacities
    }

    /// Writes the links that a flow crosses to `path`, as positions in [`Trunks::capacities`].
    ///
    /// `coflow` is the position of the coflow in the workload, and `flow` the position of the flow in the coflow.
    pub fn compute_path(&mut self, src: u32, dst: u32, coflow: usize, flow: u32, path: &mut Vec<u32>) {
        path.clear();
        if src != dst {
            let number = (coflow as u64) << 32 | u64::from(flow);
            let (from, to) = (self.hosts[src as usize], self.hosts[dst as usize]);
            self.routes.compute_path(from, to, number, &mut self.path);
            path.extend(self.path.iter().filter_map(|link| self.trunk_by_link[link.index()]));
        }
    }
}
