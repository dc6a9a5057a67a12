//! Regions in namespaces, joined by delay lines: a gateway for each region, workers behind it, and a line between each two gateways.
//!
//! ```text
//! worker 10.80.R.N --- gateway of region R, 10.80.R.254 === delay line === gateway of region S --- worker 10.80.S.N
//! ```
//!
//! Regions and workers are numbered from 1. A gateway forwards packets, and is the place for its region's relay.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use weir_core::model::WideArea;
use weir_core::units::Rate;
use weir_sim::regions::bandwidth::Bandwidth;
use weir_testbed::network::{CableEnd, Network};

use crate::delay_line::{End, PathSettings, Report, Schedule, set_long_path_options};
use crate::{DelayLine, LabError};

/// The maximum number of workers of a region.
pub const MAX_WORKERS: u8 = 50;

/// The maximum number of changes of bandwidth before they repeat.
const MAX_CHANGES: usize = 10_000;

/// The number of a gateway in the network of its region.
const GATEWAY: u8 = 254;

/// The delay and loss between two regions, in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distance {
    /// The delay in one direction.
    pub delay: Duration,
    /// The probability that a segment is lost: 0 to 1.
    pub loss: f64,
}

/// What the regions are.
#[derive(Debug, Clone)]
pub struct RegionsSettings<'a> {
    /// The regions, and the bandwidth of the links between them. Bandwidth changes as in a simulation with the same seed.
    pub wide_area: &'a WideArea,
    /// Multiplies all bandwidths.
    pub scale: f64,
    /// Determines the changes of bandwidth, and which segments are lost.
    pub seed: u64,
    /// The maximum time that a segment waits for a link.
    pub queue: Duration,
    /// The number of workers of each region, at most [`MAX_WORKERS`].
    pub workers: u8,
}

/// A namespace of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionNode {
    /// The region.
    pub region: String,
    /// The number of the worker; none for the gateway.
    pub worker: Option<u8>,
    /// The namespace, as `ip netns` names it.
    pub namespace: String,
    /// The address.
    pub address: Ipv4Addr,
}

/// Running regions. Dropping the value removes them.
#[derive(Debug)]
pub struct Regions {
    /// Stopped before the network is removed.
    lines: Vec<(String, DelayLine)>,
    network: Network,
    nodes: Vec<RegionNode>,
    bandwidth_start: Instant,
}

impl Regions {
    /// Creates the regions. `distance` returns the delay and loss between two of them, by their positions.
    ///
    /// # Errors
    /// If a region's name is not usable for a namespace, or the network cannot be created.
    pub fn create(
        name: &str,
        settings: &RegionsSettings<'_>,
        distance: impl Fn(usize, usize) -> Distance,
    ) -> Result<Regions, LabError> {
        let names = settings.wide_area.regions();
        check_names(names)?;
        let nodes = node_names(names, settings.workers);
        let network = Network::create(name, &nodes.iter().map(String::as_str).collect::<Vec<_>>())?;
        for node in &nodes {
            set_long_path_options(&network, node)?;
        }
        let schedules = bandwidth_schedules(settings);
        for (region, gateway) in names.iter().enumerate() {
            for worker in 1..=settings.workers {
                add_worker(&network, (region, gateway), worker)?;
            }
        }
        let before = Instant::now();
        let lines = add_lines(&network, settings, &schedules, distance)?;
        let bandwidth_start = before + before.elapsed() / 2;
        let nodes = region_nodes(&network, names, settings.workers);
        Ok(Regions { lines, network, nodes, bandwidth_start })
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The time 0 of the changes of bandwidth. Lines start one after the other; this is the middle of their starts.
    pub fn bandwidth_start(&self) -> Instant {
        self.bandwidth_start
    }

    /// All nodes: of each region the gateway, then its workers.
    pub fn nodes(&self) -> &[RegionNode] {
        &self.nodes
    }

    /// The gateways, in the order of the regions.
    pub fn gateways(&self) -> impl Iterator<Item = &RegionNode> {
        self.nodes.iter().filter(|node| node.worker.is_none())
    }

    /// Stops all lines, and returns their counters by the names of the regions that they join. Removes the regions.
    ///
    /// # Errors
    /// If a line stopped early because a device failed.
    pub fn stop(self) -> Result<Vec<(String, Report)>, LabError> {
        let Regions { lines, network: _network, .. } = self;
        lines.into_iter().map(|(name, line)| Ok((name, line.stop()?))).collect()
    }
}

/// Names of regions become names of namespaces.
fn check_names(names: &[String]) -> Result<(), LabError> {
    let is_valid = |name: &&String| {
        name.len() <= 32 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    match names.iter().find(|name| !is_valid(name)) {
        None => Ok(()),
        Some(name) => Err(LabError::Other(format!(
            "region `{name}`: expected at most 32 lower-case letters and digits, since the name becomes one of namespaces"
        ))),
    }
}

fn node_names(regions: &[String], workers: u8) -> Vec<String> {
    let of_region = |region: &String| {
        let workers: Vec<String> = (1..=workers).map(|worker| worker_name(region, worker)).collect();
        std::iter::once(region.clone()).chain(workers)
    };
    regions.iter().flat_map(of_region).collect()
}

fn worker_name(region: &str, worker: u8) -> String {
    format!("{region}-{worker}")
}

/// The address of a worker or the gateway ([`GATEWAY`]) of a region, by its position; 0 is the region's network.
fn address(region: usize, number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 80, region as u8 + 1, number)
}

fn region_nodes(network: &Network, regions: &[String], workers: u8) -> Vec<RegionNode> {
    let node = |(index, region): (usize, &String), worker: Option<u8>| RegionNode {
        region: region.clone(),
        worker,
        namespace: network
            .namespace(&worker.map_or_else(|| region.clone(), |worker| worker_name(region, worker))),
        address: address(index, worker.unwrap_or(GATEWAY)),
    };
    let numbers = || std::iter::once(None).chain((1..=workers).map(Some));
    regions.iter().enumerate().flat_map(|region| numbers().map(move |worker| node(region, worker))).collect()
}

/// Connects a worker to its gateway, which has a route to it.
fn add_worker(network: &Network, (region, gateway): (usize, &str), worker: u8) -> Result<(), LabError> {
    let node = worker_name(gateway, worker);
    let (own, gateway_address) = (address(region, worker), address(region, GATEWAY));
    let interface = format!("worker{worker}");
    network.add_cable([
        CableEnd { node: gateway, interface: &interface, address: gateway_address, prefix: 32 },
        CableEnd { node: &node, interface: "lan", address: own, prefix: 32 },
    ])?;
    network.run_ip(gateway, &format!("route add {own} dev {interface} src {gateway_address}\n"))?;
    let lines = format!(
        "route add {gateway_address} dev lan\n\
         route add default via {gateway_address} src {own}\n"
    );
    Ok(network.run_ip(&node, &lines)?)
}

/// The bandwidths of links over time, in the order of the wide area's links.
fn bandwidth_schedules(settings: &RegionsSettings<'_>) -> Vec<Schedule<Rate>> {
    let area = settings.wide_area;
    let mut bandwidth = Bandwidth::new(area, settings.seed);
    let mut values: Vec<Vec<Rate>> = vec![Vec::new(); area.links()];
    let changes = if area.is_variable() { MAX_CHANGES } else { 1 };
    for _ in 0..changes {
        for (values, rate) in values.iter_mut().zip(bandwidth.rates()) {
            values.push(Rate::new(rate * settings.scale).expect("a scaled rate is finite and not negative"));
        }
        bandwidth.apply_change().expect("the maximum of the simulation is larger");
    }
    let interval = Duration::from_secs_f64(area.change_interval().get());
    let schedule =
        |values| Schedule::new(values, interval).expect("a wide area changes at intervals above 0");
    values.into_iter().map(schedule).collect()
}

/// Adds a delay line between each two gateways.
fn add_lines(
    network: &Network,
    settings: &RegionsSettings<'_>,
    schedules: &[Schedule<Rate>],
    distance: impl Fn(usize, usize) -> Distance,
) -> Result<Vec<(String, DelayLine)>, LabError> {
    let area = settings.wide_area;
    let regions = area.regions();
    let mut lines = Vec::new();
    for from in 0..regions.len() {
        for to in from + 1..regions.len() {
            let Distance { delay, loss } = distance(from, to);
            let path = |from, to| {
                let link = area.link_between(from, to).expect("a wide area has a link for each pair");
                PathSettings {
                    delay: Schedule::constant(delay),
                    rate: schedules[link as usize].clone(),
                    queue: settings.queue,
                    loss,
                    seed: settings.seed.wrapping_add(u64::from(link)),
                }
            };
            let directions = [(from, to), (to, from)];
            let ends = directions.map(|(own, other)| End {
                namespace: network.namespace(&regions[own]),
                device: format!("wan{}", other + 1),
                address: address(own, GATEWAY),
                prefix: 32,
            });
            let line = DelayLine::start([&ends[0], &ends[1]], [path(from, to), path(to, from)])?;
            for ((own, other), End { device, address: source, .. }) in directions.into_iter().zip(&ends) {
                let network_address = address(other, 0);
                let route = format!("route add {network_address}/24 dev {device} src {source}\n");
                network.run_ip(&regions[own], &route)?;
            }
            lines.push((format!("{} - {}", regions[from], regions[to]), line));
        }
    }
    Ok(lines)
}
