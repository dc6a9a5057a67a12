//! Links between switches or regions, and the paths of flows over these links.
//!
//! If links between switches carry less than all hosts together, they can be bottlenecks as ports can. Each flow keeps
//! one path during its whole life:
//!
//! - in a topology, one of the shortest paths, selected by a hash of its hosts and its position in the workload (ECMP);
//! - in a topology whose hash is unknown, all shortest paths with even shares ([`Trunks::even_split`]);
//! - between regions, the link from one to the other, or a detour through a third region.
//!
//! When a cable of a topology fails or is repaired, flows whose path changed continue on another one
//! ([`crate::engine::Engine::change_cables`]).

mod even_shares;
mod even_split;

use std::collections::BTreeMap;

pub use even_shares::EvenShare;
use even_split::EvenSplit;

use super::bit_set::BitSet;
use super::link_history::LinkHistory;
use super::topology::{CableChange, Link, LinkId, NodeId, Routes, Topology};
use super::wide_area::{BandwidthHistory, WideArea};
use super::workload::CoflowSpec;
use crate::rounding;
use crate::units::Rate;

/// Links between switches or regions, and the paths of flows.
#[derive(Debug, Clone)]
pub struct Trunks {
    paths: Paths,
    /// By port: its host, or its region.
    ends: Vec<u32>,
    port_rates: Vec<Rate>,
    /// Capacities in bytes per second: of the links, of the trunk without capacity, and of the maximum rates of flows.
    capacities: Vec<f64>,
    /// Number of links, or groups of links.
    links: usize,
    /// By position of a coflow in the workload: the number of a trunk that only its first flow crosses at a time; those of its other
    /// flows follow.
    flow_limits: BTreeMap<usize, u32>,
}

/// How flows find their paths.
#[derive(Debug, Clone)]
enum Paths {
    Shortest {
        routes: Box<Routes>,
        /// By link of the topology: position among the capacities; `None` for links of hosts.
        trunk_by_link: Vec<Option<u32>>,
        /// By link of the topology: its rate if it is up, in bytes per second.
        link_rates: Vec<f64>,
        /// A trunk without capacity, which flows without a path cross; none if no cable fails.
        dead_end: Option<u32>,
        path: Vec<LinkId>,
    },
    EvenSplit(Box<EvenSplit>),
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
        let link_rates = topology.links().iter().map(|link| link.rate.get()).collect();
        let routes = Box::new(Routes::new(topology, seed));
        let paths = Paths::Shortest { routes, trunk_by_link, link_rates, dead_end: None, path: Vec::new() };
        Ok(Trunks::from_parts(paths, (0..hosts).collect(), port_rates, capacities))
    }

    /// Creates the trunks of a topology in which every switch divides each flow evenly among equal-cost links. A trunk is a
    /// group of links that flows between the same hosts cross. If no trunk exceeds its capacity, no link does. The rate
    /// of a port is the sum of the host's cables.
    ///
    /// For networks whose ECMP hash is unknown: a link's load is then its expected load. Cables cannot change later
    /// ([`Trunks::even_split_after`]).
    pub fn even_split(topology: Topology) -> Trunks {
        Trunks::even_split_after(topology, &[])
    }

    /// As [`Trunks::even_split`], after changes of cables between switches, each by one of its links. Not all hosts may have a path
    /// then: a flow without one crosses no link ([`Trunks::has_path`]).
    pub fn even_split_after(topology: Topology, changes: &[(LinkId, CableChange)]) -> Trunks {
        let hosts = topology.hosts() as u32;
        let rate_of = |host: NodeId| {
            let cables = topology.outgoing_links(host).iter().map(|&cable| topology.link(cable).rate.get());
            Rate::new(cables.sum()).expect("a host has at most 2^20 cables of at most 1e15 B/s")
        };
        let port_rates = (0..hosts).map(NodeId).map(rate_of).collect();
        let (paths, capacities) = EvenSplit::new(topology, changes);
        Trunks::from_parts(Paths::EvenSplit(Box::new(paths)), (0..hosts).collect(), port_rates, capacities)
    }

    fn from_parts(paths: Paths, ends: Vec<u32>, port_rates: Vec<Rate>, capacities: Vec<f64>) -> Trunks {
        let links = capacities.len();
        Trunks { paths, ends, port_rates, capacities, links, flow_limits: BTreeMap::new() }
    }

    /// Scales the rates of all ports, and the capacities of all links, by a factor.
    ///
    /// # Panics
    /// If the factor is negative or not finite, or a rate too high.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Trunks {
        for rate in &mut self.port_rates {
            *rate = Rate::new(rate.get() * factor).expect("a rate times the factor is a rate");
        }
        if let Paths::Shortest { link_rates, .. } = &mut self.paths {
            link_rates.iter_mut().for_each(|rate| *rate *= factor);
        }
        self.capacities.iter_mut().for_each(|capacity| *capacity *= factor);
        self
    }

    /// The trunks with the paths of another seed. Other paths than those of [`Trunks::new`] have no seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Trunks {
        if let Paths::Shortest { routes, .. } = &mut self.paths {
            routes.set_seed(seed);
        }
        self
    }

    /// Adds a trunk without capacity, which flows without a path cross. Required before cables fail.
    pub fn with_dead_end(mut self) -> Trunks {
        if let Paths::Shortest { dead_end: dead_end @ None, .. } = &mut self.paths {
            *dead_end = Some(self.capacities.len() as u32);
            self.capacities.push(0.0);
        }
        self
    }

    /// Creates the links between regions, numbered as in `area`, with the mean bandwidth as capacity. The `ports` ports are
    /// divided evenly among the regions and limit no flow. A flow with an entry in `relays` takes a detour: the key is the
    /// position of its coflow in the workload and its own in the coflow, the value a region that is neither of its ends.
    pub fn between_regions(area: &WideArea, ports: u32, relays: BTreeMap<(usize, u32), u32>) -> Trunks {
        Trunks::from_parts(
            Paths::BetweenRegions { history: area.bandwidth_history(), relays },
            (0..ports).map(|port| area.region_of_port(port, ports) as u32).collect(),
            vec![area.unlimited_port_rate(); ports as usize],
            (0..area.links() as u32).map(|link| area.mean_bandwidth(link)).collect(),
        )
    }

    /// The links between regions with their median bandwidth as capacity, and one port in each region, which limits no flow.
    pub(crate) fn between_measured_regions(past: &BandwidthHistory) -> Trunks {
        let links = 0..past.links() as u32;
        let capacities: Vec<f64> = links.map(|link| past.median_seconds_per_byte(link).recip()).collect();
        let port_rate = Rate::from_valid(2.0 * capacities.iter().sum::<f64>());
        Trunks::from_parts(
            Paths::BetweenRegions { history: past.clone(), relays: BTreeMap::new() },
            (0..past.regions() as u32).collect(),
            vec![port_rate; past.regions()],
            capacities,
        )
    }

    /// Limits the flows of coflows with [`CoflowSpec::max_flow_rate`]: each of them crosses a separate trunk with that capacity. A
    /// coflow that begins after the end of the one before it, with the same rate and number of flows, uses the same trunks.
    #[must_use]
    pub fn with_flow_limits(mut self, coflows: &[CoflowSpec]) -> Trunks {
        let mut before: Option<(&CoflowSpec, u32)> = None;
        for (position, coflow) in coflows.iter().enumerate() {
            let Some(rate) = coflow.max_flow_rate else { continue };
            let has_ended = |former: &CoflowSpec| {
                let end = former.max_transfer_time.map(|limit| former.arrival.get() + limit.get());
                end.is_some_and(|end| former.is_endless && end <= coflow.arrival.get())
            };
            let reused = before.filter(|(former, _)| {
                former.max_flow_rate == Some(rate)
                    && former.flows.len() == coflow.flows.len()
                    && has_ended(former)
            });
            let first = reused.map_or(self.capacities.len() as u32, |(_, first)| first);
            if reused.is_none() {
                self.capacities.extend(coflow.flows.iter().map(|_| rate.get()));
            }
            self.flow_limits.insert(position, first);
            before = Some((coflow, first));
        }
        self
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

    /// Whether a path leads from a port to another. Only an even split computes paths in advance; in other networks, flows without a path
    /// cross a trunk without capacity ([`Trunks::with_dead_end`]).
    pub fn has_path(&self, src: u32, dst: u32) -> bool {
        match &self.paths {
            Paths::EvenSplit(split) => split.has_path(self.ends[src as usize], self.ends[dst as usize]),
            Paths::Shortest { .. } | Paths::BetweenRegions { .. } => true,
        }
    }

    /// By port: the rate of the host's cable. Between regions, more than any port needs.
    pub fn port_rates(&self) -> &[Rate] {
        &self.port_rates
    }

    /// Whether ports can limit flows. They do not between regions.
    pub fn has_limiting_ports(&self) -> bool {
        !matches!(self.paths, Paths::BetweenRegions { .. })
    }

    /// Between regions: the region of each port.
    pub(crate) fn regions(&self) -> Option<&[u32]> {
        (!self.has_limiting_ports()).then_some(&self.ends[..])
    }

    /// Past measurements of the links, if their bandwidth is unknown in advance.
    pub fn measured(&self) -> Option<&LinkHistory> {
        match &self.paths {
            Paths::Shortest { .. } | Paths::EvenSplit(_) => None,
            Paths::BetweenRegions { history, .. } => Some(history),
        }
    }

    /// The ends of a link of a topology, as in `leaf0 -> spine1`, by its position in [`Trunks::capacities`], or what limits flows
    /// there. Between regions, use [`WideArea::link_name`].
    pub fn link_name(&self, trunk: usize) -> String {
        match &self.paths {
            Paths::Shortest { dead_end, .. } if trunk >= self.links && *dead_end != Some(trunk as u32) => {
                "maximum rate of a flow".to_owned()
            }
            Paths::Shortest { routes, trunk_by_link, .. } => {
                let topology = routes.topology();
                let is_trunk = |number: &Option<u32>| *number == Some(trunk as u32);
                trunk_by_link.iter().position(is_trunk).map_or("no path".to_owned(), |link| {
                    let link = topology.link(LinkId(link as u32));
                    format!("{} -> {}", topology.name(link.from), topology.name(link.to))
                })
            }
            Paths::EvenSplit(split) => split.group_name(trunk as u32),
            Paths::BetweenRegions { .. } => format!("link {trunk}"),
        }
    }

    /// Number of links, or groups of links, between switches or regions.
    pub fn links(&self) -> usize {
        self.links
    }

    /// By port: the rates of its cable for sending and for receiving, in bytes per second; 0 if the cable is down.
    pub fn cable_rates(&self) -> impl Iterator<Item = (f64, f64)> {
        let of_port = |(&end, rate): (&u32, &Rate)| match &self.paths {
            Paths::Shortest { routes, link_rates, .. } => {
                let cable = routes.topology().outgoing_links(NodeId(end))[0];
                let rate = |link: LinkId| if routes.is_up(link) { link_rates[link.index()] } else { 0.0 };
                (rate(cable), rate(cable.reverse()))
            }
            Paths::EvenSplit(_) | Paths::BetweenRegions { .. } => (rate.get(), rate.get()),
        };
        self.ends.iter().zip(&self.port_rates).map(of_port)
    }

    /// Changes cables, each by one of its links. Returns whether paths of flows may change.
    ///
    /// # Panics
    /// If flows are divided evenly: their link groups would change.
    pub fn change_cables(&mut self, changes: &[(LinkId, CableChange)]) -> bool {
        let Paths::Shortest { routes, trunk_by_link, link_rates, dead_end, .. } = &mut self.paths else {
            assert!(!matches!(self.paths, Paths::EvenSplit(_)), "cables of an even split do not change");
            return false;
        };
        debug_assert!(dead_end.is_some(), "`with_dead_end` is called before cables change");
        let mut paths_change = false;
        for &(cable, change) in changes {
            for link in [cable, cable.reverse()] {
                match change {
                    CableChange::Down => paths_change |= routes.fail_link(link),
                    CableChange::Up => paths_change |= routes.restore_link(link),
                    CableChange::Rate(rate) => link_rates[link.index()] = rate.get(),
                }
                if let Some(trunk) = trunk_by_link[link.index()] {
                    let rate = if routes.is_up(link) { link_rates[link.index()] } else { 0.0 };
                    self.capacities[trunk as usize] = rate;
                }
            }
        }
        paths_change
    }

    /// The trunks that coflows contend for: those that the ports behind them can exceed. Between regions, all links; never the
    /// maximum rate of a flow, which no other flow uses. O(sites x links x sites / 64) for the hosts under the same switches, the sites.
    pub fn contended_trunks(&mut self) -> BitSet {
        let mut rates = vec![(0.0, 0.0); self.ends.iter().max().map_or(0, |&last| last as usize + 1)];
        for (&end, rate) in self.ends.iter().zip(self.cable_rates()) {
            rates[end as usize] = rate;
        }
        let loads = match &mut self.paths {
            Paths::Shortest { routes, trunk_by_link, .. } => {
                let by_link = routes.max_loads(&rates);
                // Trunks are numbered in the order of their links.
                by_link
                    .into_iter()
                    .zip(trunk_by_link)
                    .filter(|(_, trunk)| trunk.is_some())
                    .map(|(load, _)| load)
                    .collect()
            }
            Paths::EvenSplit(split) => split.max_loads(&rates),
            Paths::BetweenRegions { .. } => vec![f64::INFINITY; self.links],
        };
        let mut contended = BitSet::empty(self.capacities.len());
        let exceeds =
            |(_, (load, capacity)): &(usize, (f64, &f64))| *load > *capacity * (1.0 + rounding::CAPACITY);
        loads
            .into_iter()
            .zip(&self.capacities)
            .enumerate()
            .filter(exceeds)
            .for_each(|(trunk, _)| contended.insert(trunk));
        if let Paths::Shortest { dead_end: Some(dead_end), .. } = self.paths {
            contended.insert(dead_end as usize);
        }
        contended
    }

    /// Capacities of the links, in bytes per second; then those of [`Trunks::with_dead_end`] and [`Trunks::with_flow_limits`].
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
        if src != dst {
            self.add_links(src, dst, coflow, flow, path);
        }
        path.extend(self.flow_limits.get(&coflow).map(|first| first + flow));
    }

    fn add_links(&mut self, src: u32, dst: u32, coflow: usize, flow: u32, path: &mut Vec<u32>) {
        let (from, to) = (self.ends[src as usize], self.ends[dst as usize]);
        match &mut self.paths {
            Paths::Shortest { routes, trunk_by_link, dead_end, path: links, .. } => {
                let number = (coflow as u64) << 32 | u64::from(flow);
                if routes.compute_path(NodeId(from), NodeId(to), number, links) {
                    path.extend(links.iter().filter_map(|link| trunk_by_link[link.index()]));
                } else {
                    path.extend(*dead_end);
                }
            }
            Paths::EvenSplit(split) => split.compute_path(from, to, path),
            Paths::BetweenRegions { history, relays } => {
                let relay = relays.get(&(coflow, flow)).copied().unwrap_or(to);
                for (from, to) in [(from, relay), (relay, to)] {
                    path.extend(history.link_between(from as usize, to as usize));
                }
            }
        }
    }
}
