//! Runs the synthetic workloads on the 1,944 servers of section 8.1 under one policy or another.

use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::run::pool;
use weir_core::model::topology::{Builder, NodeId, Plan, Topology, TopologyError};
use weir_core::saba::Fraction;
use weir_core::saba::share::FLOOR;
use weir_core::solve::polynomial::Degree;
use weir_core::units::{Rate, Time};
use weir_sim::stage::cluster::{self, Placed};
use weir_sim::stage::fabric::{Fabric, Paths};
use weir_sim::stage::sharing::{Controllers, Sharing, even_cutoffs};

use super::curve::{self, Curve};
use super::synthetic::{INSTANCES, Synthetic, WORKLOADS, place};
use super::{QUEUES, geometric_mean, saba};
use crate::Running;

/// Priorities of a switch; Homa uses all of them.
const PRIORITIES: u32 = 8;

/// How jobs share links.
#[derive(Debug, Clone, Copy)]
pub enum Policy {
    /// Max-min between flows.
    Baseline,
    /// Max-min between workloads.
    IdealMaxMin,
    /// Strict priorities by the size of a flow.
    Homa,
    /// Strict priorities in Sincronia's order of the transfers.
    Sincronia,
    /// Saba with this number of queues, or a queue per workload, and this minimum weight, as a part of an equal share.
    Saba(Option<u16>, Fraction, Controllers),
    /// A queue per workload, weighted by Eq. 2 with the workload's simulated slowdown in place of a polynomial.
    SimulatedSlowdowns,
}

/// Saba as in study 4.
pub const SABA: Policy = Policy::Saba(Some(QUEUES), FLOOR, Controllers::Central);

/// Saba as in study 7.
pub const DISTRIBUTED: Policy = Policy::Saba(Some(QUEUES), FLOOR, Controllers::Distributed);

/// The conditions of a run.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// The rate of links between switches, as a part of the paper's.
    pub between: f64,
    /// A further factor on the rates of all links.
    pub links: f64,
}

/// The paper's conditions.
pub const PAPER: World = World { between: 1.0, links: 1.0 };

/// Links between switches carry a quarter, so workloads compete for them.
pub const QUARTER: World = World { between: 0.25, ..PAPER };

/// The simulated cluster.
pub struct Simulation<'a> {
    workloads: Vec<Synthetic>,
    /// The seed by which workloads and their servers were drawn.
    pub seed: u64,
    running: &'a Running<'a>,
}

/// Times under one policy.
struct Run {
    /// The end of each workload, in seconds.
    ends: Vec<f64>,
    /// The number of times that rates were computed, and of those that did not converge.
    solutions: [u64; 2],
}

/// Speedups under one policy.
pub struct Speedups {
    /// By workload.
    pub workloads: Vec<f64>,
    /// Their geometric mean.
    pub all: f64,
}

/// Some policies over the baseline.
pub struct Compared {
    /// The time under the baseline over that with all bandwidth, as a geometric mean over workloads.
    pub slowdown: f64,
    /// In the order of the policies.
    pub policies: Vec<Speedups>,
    /// The number of times that rates were computed, and of those that did not converge.
    pub solutions: [u64; 2],
}

impl<'a> Simulation<'a> {
    /// Draws the workloads of `seed`.
    pub fn new(seed: u64, running: &'a Running<'a>) -> Simulation<'a> {
        Simulation { workloads: Synthetic::draw(seed, WORKLOADS), seed, running }
    }

    /// Runs `policies` in `world` and the baseline in the world `base`.
    pub fn compare(&self, base: World, world: World, policies: &[Policy]) -> Result<Compared, Failure> {
        let cluster = self.cluster(world)?;
        let runs = pool(policies.len() + 1, self.running.jobs, |at| match at {
            0 if base.links != world.links => run(&self.workloads, &self.cluster(base)?, Policy::Baseline),
            0 => run(&self.workloads, &cluster, Policy::Baseline),
            at => run(&self.workloads, &cluster, policies[at - 1]),
        })?;
        let solutions = [0, 1].map(|at| runs.iter().map(|run| run.solutions[at]).sum());
        let (base, runs) = runs.split_first().expect("the baseline is among the policies that run");
        let alone = self.workloads.iter().map(|workload| workload.seconds);
        let slowdowns: Vec<f64> =
            base.ends.iter().zip(alone).map(|(end, alone)| (end / alone).ln()).collect();
        let speedups = |run: &Run| {
            let ratios: Vec<f64> = base.ends.iter().zip(&run.ends).map(|(base, end)| base / end).collect();
            let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
            Speedups { workloads: ratios, all: geometric_mean(&logarithms) }
        };
        let policies = runs.iter().map(speedups).collect();
        Ok(Compared { slowdown: geometric_mean(&slowdowns), policies, solutions })
    }

    /// The servers of each workload and the links that they use.
    fn cluster(&self, world: World) -> Result<(Vec<Vec<u32>>, Fabric), Failure> {
        let topology = scaled(world.links, world.between * world.links).map_err(Failure::undone)?;
        let servers = place(self.seed, topology.hosts(), WORKLOADS, INSTANCES);
        let fabric = Fabric::new(&topology, &servers, Paths::Even).map_err(Failure::undone)?;
        Ok((servers, fabric))
    }
}

fn run(
    workloads: &[Synthetic],
    (servers, fabric): &(Vec<Vec<u32>>, Fabric),
    policy: Policy,
) -> Result<Run, Failure> {
    Failure::unless_asked()?;
    let placed = |(model, (workload, servers)): (usize, (&Synthetic, &Vec<u32>))| Placed {
        stages: workload.stages.clone(),
        servers: servers.clone(),
        model: Some(model),
        start: Time::ZERO,
    };
    let jobs: Vec<Placed> = workloads.iter().zip(servers).enumerate().map(placed).collect();
    let sharing = match policy {
        Policy::Baseline => Sharing::Flows,
        Policy::IdealMaxMin => Sharing::Applications,
        Policy::Homa => {
            let flows: Vec<_> = jobs.iter().map(|job| (job.stages.as_slice(), job.servers.len())).collect();
            Sharing::Sizes(even_cutoffs(&flows, PRIORITIES))
        }
        Policy::Sincronia => Sharing::Coflows,
        Policy::SimulatedSlowdowns => {
            let curve = |workload: &Synthetic| Curve::of(|weight| workload.slowdown(weight));
            curve::sharing(workloads.iter().map(curve).collect(), FLOOR)
        }
        Policy::Saba(queues, floor, controllers) => {
            let models = workloads.iter().map(|workload| workload.sensitivity(Degree::Three)).collect();
            saba(models, queues, jobs.len(), floor, controllers)
        }
    };
    let ended = cluster::run_on(&jobs, fabric, &sharing, |_| !interrupt::asked());
    let ended = ended.map_err(|error| Failure::jobs(&error))?;
    Ok(Run {
        ends: ended.ends.into_iter().map(Time::get).collect(),
        solutions: [ended.solutions, ended.unsettled],
    })
}

/// The topology of section 8.1, with these factors on the rates of servers' links and of links between switches.
fn scaled(servers: f64, between: f64) -> Result<Topology, TopologyError> {
    let whole = Plan::SabaTiers { oversubscription: 1.0 }.build()?;
    let mut builder = Builder::new();
    for node in (0..whole.nodes() as u32).map(NodeId) {
        match whole.is_host(node) {
            true => builder.host(whole.name(node))?,
            false => builder.switch(whole.name(node), whole.tier(node))?,
        }
    }
    for cable in whole.links().chunks_exact(2) {
        let factor = if whole.is_host_link(cable[0]) { servers } else { between };
        let rate = Rate::new(cable[0].rate.get() * factor).unwrap_or(cable[0].rate);
        builder.cable(whole.name(cable[0].from), whole.name(cable[0].to), rate)?;
    }
    builder.build()
}
