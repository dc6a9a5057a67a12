//! Builds the scenarios of section 8.5: applications on a network, for which a central controller computes the weights at all
//! ports.
//!
//! The paper has 30,000 scenarios with 1 to 1,000 active applications, each with 32 instances on random servers. Choices that the
//! paper leaves open:
//!
//! - *Models*: each application has the model of a workload of [`super::synthetic`]. All models differ.
//! - *Active applications*: every set of that size is equally likely. All applications are registered; active ones have
//!   connections.
//! - *Connections*: from each instance of an application to all others, over all shortest paths (footnote 2).
//! - *Instances* of an application are on different servers.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use weir_core::model::BitSet;
use weir_core::model::topology::route::Routes;
use weir_core::model::topology::{NodeId, Topology};
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::saba::controller::{AppId, ConnectionId, ControllerError, ControllerSettings, Port};
use weir_core::saba::{Controller, Fraction};
use weir_core::solve::polynomial::Degree;

use super::random::StreamRng;
use super::synthetic::SyntheticWorkload;
use super::{LEVELS, QUEUES};

/// The number of instances of an application (section 8.5).
pub const INSTANCES: usize = 32;

/// A network and the ports between its servers. Ports are the network's links, in order.
#[derive(Debug, Clone)]
pub struct Network {
    ports: usize,
    /// For each server: its links, and the position of its switch among the switches with servers.
    servers: Vec<(Vec<Port>, usize)>,
    switches: usize,
    /// For each pair of switches with servers: the links of the shortest paths between them.
    inner_links: Vec<BitSet>,
}

/// An active application: its position among all applications, and its servers.
pub type ActiveApplication = (usize, Vec<u32>);

impl Network {
    /// Finds the ports between all pairs of switches with servers. Takes O(pairs x links of their paths) time, and a bit of memory per
    /// link and pair.
    pub fn new(topology: &Topology) -> Network {
        let mut routes = Routes::new(topology.clone(), 0);
        let mut switch_positions: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut first_servers = Vec::new();
        let mut servers = Vec::with_capacity(topology.hosts());
        for server in (0..topology.hosts() as u32).map(NodeId) {
            let links = topology.outgoing_links(server);
            let next = switch_positions.len();
            let position = *switch_positions.entry(topology.link(links[0]).to).or_insert_with(|| {
                first_servers.push(server);
                next
            });
            let own_ports = links.iter().flat_map(|link| [link.0, link.reverse().0]);
            servers.push((own_ports.collect(), position));
        }
        let mut link_shares = Vec::new();
        let mut between = Vec::with_capacity(first_servers.len() * first_servers.len());
        for &from in &first_servers {
            for &to in &first_servers {
                let mut links = BitSet::empty(topology.links().len());
                if from != to {
                    routes.compute_ecmp_shares(from, to, &mut link_shares);
                    let ends = |link| [topology.link(link).from, topology.link(link).to];
                    let inner_shares = link_shares
                        .iter()
                        .filter(|(link, _)| !ends(*link).contains(&from) && !ends(*link).contains(&to));
                    inner_shares.for_each(|(link, _)| links.insert(link.index()));
                }
                between.push(links);
            }
        }
        Network {
            ports: topology.links().len(),
            servers,
            switches: first_servers.len(),
            inner_links: between,
        }
    }

    /// The number of servers.
    pub fn servers(&self) -> usize {
        self.servers.len()
    }

    /// The number of ports.
    pub fn ports(&self) -> usize {
        self.ports
    }

    /// The ports that connections between these servers may pass, in ascending order. O(pairs of their switches x ports / 64).
    fn ports_between(&self, servers: &[u32]) -> Vec<Port> {
        let mut ports = BitSet::empty(self.ports);
        let mut switches: Vec<usize> = Vec::with_capacity(servers.len());
        for (own, switch) in servers.iter().map(|&server| &self.servers[server as usize]) {
            own.iter().for_each(|&port| ports.insert(port as usize));
            switches.push(*switch);
        }
        switches.sort_unstable();
        switches.dedup();
        for &from in &switches {
            for &to in &switches {
                ports.union_with(&self.inner_links[from * self.switches + to]);
            }
        }
        ports.iter().map(|port| port as Port).collect()
    }
}

/// Draws scenario number `index` of a seed: `active_count` of the applications, each on [`INSTANCES`] servers, or on all servers if
/// there are fewer.
pub fn draw(
    seed: u64,
    index: u64,
    servers: usize,
    applications: usize,
    active_count: usize,
) -> Vec<ActiveApplication> {
    let mut rng = StreamRng::new(seed, index);
    let active = rng.subset(applications, active_count);
    active.into_iter().map(|application| (application as usize, rng.subset(servers, INSTANCES))).collect()
}

/// A central controller with registered applications, whose models have degree `degree`. `seed` draws their workloads.
///
/// # Errors
/// If there are more applications than the controller supports.
pub fn controller(
    network: &Network,
    seed: u64,
    applications: usize,
    degree: Degree,
) -> Result<Controller, ControllerError> {
    let models = SyntheticWorkload::draw(seed, applications)
        .iter()
        .map(|workload| workload.sensitivity(degree))
        .collect();
    let levels = NonZeroU16::new(LEVELS).expect("16 is not 0");
    let settings =
        ControllerSettings { c_saba: Fraction::ALL, min_share: DEFAULT_MIN_SHARE, max_levels: levels };
    let mut controller = Controller::new_central(models, settings, &vec![QUEUES; network.ports])?;
    for application in 0..applications {
        controller.register(AppId(application as u64), application)?;
    }
    Ok(controller)
}

/// Opens one connection for each application of a scenario: weights depend on the applications at a port, not on their connections.
///
/// # Errors
/// If a connection of the scenario is already open.
pub fn open_connections(
    controller: &mut Controller,
    network: &Network,
    active: &[ActiveApplication],
) -> Result<(), ControllerError> {
    for (application, servers) in active {
        let name = *application as u64;
        controller.open_connection(ConnectionId(name), AppId(name), &network.ports_between(servers))?;
    }
    Ok(())
}

/// Closes the connections of a scenario.
///
/// # Errors
/// If a connection of the scenario is not open.
pub fn close_connections(
    controller: &mut Controller,
    active: &[ActiveApplication],
) -> Result<(), ControllerError> {
    // Closes in reverse order: the application that opened last is the last in a port's list, so no other entry moves.
    active
        .iter()
        .rev()
        .try_for_each(|(application, _)| controller.close_connection(ConnectionId(*application as u64)))
}
