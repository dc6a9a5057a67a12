//! Links between switches or regions, and the paths of flows over these links.
//!
//! If links between switches carry less than all hosts together, they can be bottlenecks as ports can. Each flow keeps
//! one path during its whole life:
//!
//! - in a topology, one of the shortest paths, selected by a hash of its hosts and its position in the workload (ECMP);
//! - between regions, the link from one to the other, or a detour through a third region.

use std::collections::BTreeMap;

use super::link_history::LinkHistory;
use super::topology::{Link, LinkId, NodeId, Routes, Topology};
use super::wide_area::{BandwidthHistory, WideArea};
use crate::units::Rate;

/// Links between switches or regions, and the paths of flows.
#[derive(Debug, Clone)]
pub struct Trunks {
    paths: Paths,
    /// By port: its host, or its region.
    ends: Vec<u32>,
    port_rates: Vec<Rate>,
    /// Capacities in bytes per second.
    capacities: Vec<f64>,
}

/// How flows find their paths.
#[derive(Debug, Clone)]
enum Paths {
    Shortest {
        routes: Box<Routes>,
        /// By link of the topology: position among the capacities; `None` for links of hosts.
        trunk_by_link: Vec<Option<u32>>,
        path: Vec<LinkId>,
    },
    BetweenRegions {
        history: BandwidthHistory,
        /// By position of a coflow in the workload and of a flow in the coflow: the region that relays the flow.
        relays: BTreeMap<(usize, u32), u32>,
    },
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
        let hosts = topology.hosts() as u32;
        let mut port_rates = Vec::with_capacity(hosts as usize);
        for node in (0..hosts).map(NodeId) {
            match topology.outgoing_links(node)[..] {
                [cable] => port_rates.push(topology.link(cable).rate),
                ref cables => {
                    let host = topology.name(node).to_owned();
                    return Err(TrunksError::CableCount { host, cables: cables.len() });
                }
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
        let routes = Box::new(Routes::new(topology, seed));
        let paths = Paths::Shortest { routes, trunk_by_link, path: Vec::new() };
        Ok(Trunks { paths, ends: (0..hosts).collect(), port_rates, capacities })
    }

    /// Creates the links between regions, numbered as in `area`, with the mean bandwidth as capacity. The `ports` ports are
    /// divided evenly among the regions and limit no flow. A flow with an entry in `relays` takes a detour: the key is the
    /// position of its coflow in the workload and its own in the coflow, the value a region that is neither of its ends.
    pub fn between_regions(area: &WideArea, ports: u32, relays: BTreeMap<(usize, u32), u32>) -> Trunks {
        Trunks {
            paths: Paths::BetweenRegions { history: area.bandwidth_history(), relays },
            ends: (0..ports).map(|port| area.region_of_port(port, ports) as u32).collect(),
            port_rates: vec![area.unlimited_port_rate(); ports as usize],
            capacities: (0..area.links() as u32).map(|link| area.mean_bandwidth(link)).collect(),
        }
    }

    /// Renumbers the ports: port 0 becomes the former port `ports[0]`, and so on.
    ///
    /// # Panics
    /// If a former port does not exist.
    pub fn with_port_order(self, former_ports: impl IntoIterator<Item = u32>) -> Trunks {
        let (ends, port_rates) = former_ports
            .into_iter()
            .map(|port| (self.ends[port as usize], self.port_rates[port as usize]))
            .unzip();
        Trunks { ends, port_rates, ..self }
    }

    /// Number of ports. Port 0 is the first host, unless [`Trunks::with_port_order`] renumbered the ports.
    pub fn ports(&self) -> usize {
        self.ends.len()
    }

    /// By port: the rate of the host's cable. Between regions, more than any port needs.
    pub fn port_rates(&self) -> &[Rate] {
        &self.port_rates
    }

    /// Whether ports can limit flows. They do not between regions.
    pub fn has_limiting_ports(&self) -> bool {
        matches!(self.paths, Paths::Shortest { .. })
    }

    /// Past measurements of the links, if their bandwidth is unknown in advance.
    pub fn measured(&self) -> Option<&LinkHistory> {
        match &self.paths {
            Paths::Shortest { .. } => None,
            Paths::BetweenRegions { history, .. } => Some(history),
        }
    }

    /// Capacities of the links, in bytes per second.
    pub fn capacities(&self) -> &[f64] {
        &self.capacities
    }

    /// Sets the capacities of all links, in bytes per second.
    pub(crate) fn set_capacities(&mut self, capacities: &[f64]) {
        self.capacities.copy_from_slice(capacities);
    }

    /// Writes the links that a flow crosses to `path`, as positions in [`Trunks::capacities`].
    ///
    /// `coflow` is the position of the coflow in the workload, and `flow` the position of the flow in the coflow.
    pub fn compute_path(&mut self, src: u32, dst: u32, coflow: usize, flow: u32, path: &mut Vec<u32>) {
        path.clear();
        if src == dst {
            return;
        }
        let (from, to) = (self.ends[src as usize], self.ends[dst as usize]);
        match &mut self.paths {
            Paths::Shortest { routes, trunk_by_link, path: links } => {
                let number = (coflow as u64) << 32 | u64::from(flow);
                routes.compute_path(NodeId(from), NodeId(to), number, links);
                path.extend(links.iter().filter_map(|link| trunk_by_link[link.index()]));
            }
            Paths::BetweenRegions { history, relays } => {
                let relay = relays.get(&(coflow, flow)).copied().unwrap_or(to);
                for (from, to) in [(from, relay), (relay, to)] {
                    path.extend(history.link_between(from as usize, to as usize));
                }
            }
        }
    }
}
