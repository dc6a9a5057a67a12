//! The scenarios of Saba's section 8.5: many applications on a network, whose weights a central controller finds for all ports.
//!
//! The paper has 30,000 of them with 1 to 1,000 active applications, each with 32 instances on servers at random. What it leaves open:
//!
//! - *Models*: one for each application, that of a workload as [`super::synthetic`] draws it. No two are the same.
//! - *Which applications* are active: any set of so many, all equally likely. All are registered; those that are active have connections.
//! - *Connections*: from each instance of an application to all others, over all shortest paths (footnote 2). Instances are on different servers.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use weir_core::model::Mask;
use weir_core::model::topology::route::Routes;
use weir_core::model::topology::{NodeId, Topology};
use weir_core::saba::controller::{AppId, ConnectionId, ControllerError, Port, Settings};
use weir_core::saba::share::FLOOR;
use weir_core::saba::{Controller, Fraction};
use weir_core::solve::polynomial::Degree;

use super::synthetic::Synthetic;

/// Instances of an application (section 8.5).
pub const INSTANCES: usize = 32;

/// Queues of a port (section 8.4).
const QUEUES: u16 = 8;

/// Priority levels of InfiniBand (section 7.2).
const LEVELS: u16 = 16;

/// The ports of a network between any of its servers. Ports are the network's links, in order.
#[derive(Debug, Clone)]
pub struct Ways {
    ports: usize,
    /// For each server its links, and the place of its switch among those with servers.
    servers: Vec<(Vec<Port>, usize)>,
    switches: usize,
    /// For each pair of switches with servers the links between them.
    between: Vec<Mask>,
}

/// An active application: its place among all, and its servers.
pub type Active = (usize, Vec<u32>);

impl Ways {
    /// Finds the ports between all pairs of switches with servers. O(pairs x links of their paths), and a bit a link for each pair.
    pub fn new(topology: &Topology) -> Ways {
        let mut routes = Routes::new(topology.clone(), 0);
        let mut places: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut first = Vec::new();
        let mut servers = Vec::with_capacity(topology.hosts());
        for server in (0..topology.hosts() as u32).map(NodeId) {
            let links = topology.out(server);
            let next = places.len();
            let place = *places.entry(topology.link(links[0]).to).or_insert_with(|| {
                first.push(server);
                next
            });
            let own = links.iter().flat_map(|link| [link.0, link.reverse().0]);
            servers.push((own.collect(), place));
        }
        let mut spread = Vec::new();
        let mut between = Vec::with_capacity(first.len() * first.len());
        for &from in &first {
            for &to in &first {
                let mut links = Mask::empty(topology.links().len());
                if from != to {
                    routes.spread(from, to, &mut spread);
                    let ends = |link| [topology.link(link).from, topology.link(link).to];
                    let inner = spread
                        .iter()
                        .filter(|(link, _)| !ends(*link).contains(&from) && !ends(*link).contains(&to));
                    inner.for_each(|(link, _)| links.insert(link.index()));
                }
                between.push(links);
            }
        }
        Ways { ports: topology.links().len(), servers, switches: first.len(), between }
    }

    /// How many servers there are.
    pub fn servers(&self) -> usize {
        self.servers.len()
    }

    /// How many ports there are.
    pub fn ports(&self) -> usize {
        self.ports
    }

    /// The ports that connections between these servers may pass, in rising order. O(pairs of their switches x ports / 64).
    fn path(&self, servers: &[u32]) -> Vec<Port> {
        let mut ports = Mask::empty(self.ports);
        let mut switches: Vec<usize> = Vec::with_capacity(servers.len());
        for (own, switch) in servers.iter().map(|&server| &self.servers[server as usize]) {
            own.iter().for_each(|&port| ports.insert(port as usize));
            switches.push(*switch);
        }
        switches.sort_unstable();
        switches.dedup();
        for &from in &switches {
            for &to in &switches {
                ports.unite(&self.between[from * self.switches + to]);
            }
        }
        ports.iter().map(|port| port as Port).collect()
    }
}

/// A scenario of `size` of so many applications, each with [`INSTANCES`] servers or all that there are. `index` tells scenarios of a seed apart.
pub fn draw(seed: u64, index: u64, servers: usize, applications: usize, size: usize) -> Vec<Active> {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    chance.set_stream(index);
    let mut some = |of: usize, count: usize| {
        let mut all: Vec<u32> = (0..of as u32).collect();
        for place in 0..count.min(of) {
            let other = place + ((u128::from(chance.next_u64()) * (of - place) as u128) >> 64) as usize;
            all.swap(place, other);
        }
        all.truncate(count);
        all.sort_unstable();
        all
    };
    let active = some(applications, size);
    active.into_iter().map(|application| (application as usize, some(servers, INSTANCES))).collect()
}

/// A central controller at which so many applications with models of this degree are registered. `seed` draws their workloads.
///
/// # Errors
/// More applications than there can be.
pub fn controller(
    ways: &Ways,
    seed: u64,
    applications: usize,
    degree: Degree,
) -> Result<Controller, ControllerError> {
    let models =
        Synthetic::draw(seed, applications).iter().map(|workload| workload.sensitivity(degree)).collect();
    let levels = NonZeroU16::new(LEVELS).expect("16 is not 0");
    let settings = Settings { c_saba: Fraction::ALL, floor: FLOOR, levels };
    let mut controller = Controller::central(models, settings, &vec![QUEUES; ways.ports])?;
    for application in 0..applications {
        controller.register(AppId(application as u64), application)?;
    }
    Ok(controller)
}

/// Opens the connections of a scenario. One stands for all of an application's: weights depend on who is at a port, not how often.
///
/// # Errors
/// Connections that are open.
pub fn open(controller: &mut Controller, ways: &Ways, active: &[Active]) -> Result<(), ControllerError> {
    for (application, servers) in active {
        let name = *application as u64;
        controller.open(ConnectionId(name), AppId(name), &ways.path(servers))?;
    }
    Ok(())
}

/// Closes the connections of a scenario.
///
/// # Errors
/// Connections that are not open.
pub fn close(controller: &mut Controller, active: &[Active]) -> Result<(), ControllerError> {
    // Who came last is the last in a port's list, and leaves without moving the others.
    active.iter().rev().try_for_each(|(application, _)| controller.close(ConnectionId(*application as u64)))
}
