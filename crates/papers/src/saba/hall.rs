//! Runs the synthetic workloads on the fabric of section 8.1, under one way of sharing or another.

use std::num::NonZeroU16;
use std::time::Instant;

use weir_core::model::topology::{Builder, LinkId, NodeId, Plan, Topology, TopologyError};
use weir_core::saba::profile::FRACTIONS;
use weir_core::saba::share::FLOOR;
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::{Degree, fit};
use weir_core::units::{Rate, Time};
use weir_sim::outcome::mean;
use weir_sim::stage::cluster::{self, Placed};
use weir_sim::stage::curve::Curve;
use weir_sim::stage::fabric::{Fabric, Paths};
use weir_sim::stage::sharing::{Connections, Controllers, Saba, Sharing, even_cutoffs};
use weir_sim::stage::synthetic::{INSTANCES, Synthetic, WORKLOADS, place};

use super::lab::by_size;
use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::progress::Progress;
use weir_console::run;

/// Priority levels of InfiniBand (section 7.2).
const LEVELS: u16 = 16;

/// Priorities of switches, all of which Homa uses.
const PRIORITIES: u32 = 8;

/// How links are shared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rival {
    /// Max-min between flows.
    Baseline,
    /// Max-min between workloads.
    Ideal,
    /// Priorities by size.
    Homa,
    /// Priorities by the order of coflows.
    Sincronia,
    /// Saba with so many queues, or as many as there are jobs; and this least weight.
    Saba(Option<u16>, Fraction, Controllers),
    /// A queue for each job, with a weight of one over the square of what its servers send.
    Small,
    /// A queue for each job, weighted by Eq. 2 with the workload's slowdown in place of a cubic, and the usual least weight.
    Exact,
}

impl Rival {
    /// Whether queues and weights are Saba's.
    pub fn is_saba(self) -> bool {
        matches!(self, Rival::Saba(..))
    }
}

/// Saba as in study 4.
pub const SABA: Rival = Rival::Saba(Some(8), FLOOR, Controllers::Central);

/// Saba as in study 7.
pub const DISTRIBUTED: Rival = Rival::Saba(Some(8), FLOOR, Controllers::Distributed);

/// What the workloads run in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct World {
    /// Links between switches carry this part of what they do in the paper.
    pub between: f64,
    /// All links carry this part of what they do otherwise.
    pub links: f64,
    /// How flows choose among paths.
    pub paths: Paths,
    /// How many workloads a server runs.
    pub layers: usize,
    /// After so many times as long as they take with all bandwidth bytes are not waited for.
    pub limit: Option<f64>,
    /// Models take a part of a link for so many times that part of a server's bandwidth. In the paper it is once.
    pub worth: f64,
}

/// The paper's world as far as it is known.
pub const PAPER: World =
    World { between: 1.0, links: 1.0, paths: Paths::Even, layers: 1, limit: None, worth: 1.0 };

/// The hall.
pub struct Hall<'a> {
    workloads: Vec<Synthetic>,
    /// The seed that workloads and places are drawn by.
    pub seed: u64,
    jobs: usize,
    progress: &'a Progress,
    fabrics: Vec<(Ground, Vec<Vec<u32>>, Fabric)>,
    kept: Vec<(World, Rival, Run)>,
}

/// What of a world decides which links jobs cross: between, links, paths and layers.
type Ground = (f64, f64, Paths, usize);

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Run {
    /// When each job did, in seconds. Job i is one of workload i, modulo the number of workloads.
    pub ends: Vec<f64>,
    /// The links that jobs crossed, and the different ones of those.
    pub links: (usize, usize),
    /// How often rates were found, and how often of these they had not settled.
    pub solutions: (u64, u64),
    /// How long it took, in seconds of the clock.
    took: f64,
}

/// Geometric means of speed-ups.
pub struct Speedups {
    /// By workload.
    pub workloads: Vec<f64>,
    /// Of all.
    pub all: f64,
}

impl<'a> Hall<'a> {
    /// Draws the workloads.
    pub fn new(seed: u64, jobs: usize, progress: &'a Progress) -> Hall<'a> {
        Hall {
            workloads: Synthetic::draw(seed, WORKLOADS),
            seed,
            jobs,
            progress,
            fabrics: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// The workloads.
    pub fn workloads(&self) -> &[Synthetic] {
        &self.workloads
    }

    /// Runs all that is wanted and not known yet.
    pub fn prepare(&mut self, wanted: &[(World, Rival)]) -> Result<(), Failure> {
        let mut missing: Vec<(World, Rival)> = Vec::new();
        for &(world, rival) in wanted {
            if self.known(world, rival).is_none() && !missing.contains(&(world, rival)) {
                missing.push((world, rival));
            }
        }
        for &(world, _) in &missing {
            self.lay(world)?;
        }
        let bar = self.progress.steps("fabric", missing.len());
        let found = run::pool(missing.len(), self.jobs, |at| {
            let ran = self.run(missing[at].0, missing[at].1)?;
            bar.inc(1);
            Ok(ran)
        });
        bar.finish_and_clear();
        for ((world, rival), ran) in missing.into_iter().zip(found?) {
            self.kept.push((world, rival, ran));
        }
        Ok(())
    }

    /// A run that is known.
    pub fn known(&self, world: World, rival: Rival) -> Option<&Run> {
        self.kept.iter().find(|(w, r, _)| *w == world && *r == rival).map(|(.., run)| run)
    }

    /// How many runs there were, what all took in seconds, and the longest.
    pub fn took(&self) -> (usize, f64, f64) {
        let took = || self.kept.iter().map(|(.., run)| run.took);
        (self.kept.len(), took().sum(), took().fold(0.0, f64::max))
    }

    /// The speed-ups of one run over another, which is made unless it is known.
    pub fn compared(&mut self, run: (World, Rival), over: (World, Rival)) -> Result<Speedups, Failure> {
        self.prepare(&[run, over])?;
        let ends = |(world, rival)| self.known(world, rival).map_or(&[][..], |run| &run.ends);
        let logs: Vec<f64> = ends(over).iter().zip(ends(run)).map(|(base, end)| (base / end).ln()).collect();
        let workload = |number: usize| {
            let own: Vec<f64> = logs.iter().copied().skip(number).step_by(WORKLOADS).collect();
            mean(&own).exp()
        };
        Ok(Speedups { workloads: (0..WORKLOADS).map(workload).collect(), all: mean(&logs).exp() })
    }

    /// How many times longer jobs take than with all bandwidth: the geometric mean over all jobs of a run, which is made unless it is
    /// known.
    pub fn slowdown(&mut self, run: (World, Rival)) -> Result<f64, Failure> {
        self.prepare(&[run])?;
        let ends = self.known(run.0, run.1).map_or(&[][..], |run| &run.ends);
        let alone = self.workloads.iter().cycle().map(|workload| workload.seconds);
        let logs: Vec<f64> = ends.iter().zip(alone).map(|(end, alone)| (end / alone).ln()).collect();
        Ok(mean(&logs).exp())
    }

    /// Finds the links that jobs cross in a world, which is the same however they are shared.
    fn lay(&mut self, world: World) -> Result<(), Failure> {
        let ground = (world.between, world.links, world.paths, world.layers);
        if !self.fabrics.iter().any(|(known, ..)| *known == ground) {
            let topology = scaled(world.links, world.between * world.links).map_err(Failure::undone)?;
            let servers = place(self.seed, topology.hosts() as u32, world.layers * WORKLOADS, INSTANCES);
            let fabric = Fabric::new(&topology, &servers, world.paths).map_err(Failure::undone)?;
            self.fabrics.push((ground, servers, fabric));
        }
        Ok(())
    }

    fn run(&self, world: World, rival: Rival) -> Result<Run, Failure> {
        Failure::unless_asked()?;
        let began = Instant::now();
        let workloads: Vec<Synthetic> = match world.limit {
            Some(limit) => self.workloads.iter().map(|workload| workload.limited(limit)).collect(),
            None => self.workloads.clone(),
        };
        let ground = (world.between, world.links, world.paths, world.layers);
        let laid = self.fabrics.iter().find(|(known, ..)| *known == ground);
        let (_, servers, fabric) = laid.expect("worlds are laid out before anything runs in them");
        let jobs: Vec<Placed> = servers
            .iter()
            .enumerate()
            .map(|(job, servers)| {
                let model = job % WORKLOADS;
                let stages = workloads[model].stages.clone();
                Placed { stages, servers: servers.clone(), model: Some(model), start: Time::ZERO }
            })
            .collect();
        let sharing = match rival {
            Rival::Baseline => Sharing::Flows,
            Rival::Ideal => Sharing::Applications,
            Rival::Homa => {
                let flows: Vec<_> =
                    jobs.iter().map(|job| (job.stages.as_slice(), job.servers.len())).collect();
                Sharing::Sizes(even_cutoffs(&flows, PRIORITIES))
            }
            Rival::Sincronia => Sharing::Coflows,
            Rival::Small => by_size(&jobs),
            Rival::Exact => {
                let curve = |job: usize| {
                    let workload = &workloads[job % WORKLOADS];
                    Curve::of(|w| workload.slowdown((world.worth * w).min(1.0)))
                };
                Sharing::Curves((0..jobs.len()).map(curve).collect(), FLOOR)
            }
            Rival::Saba(queues, floor, controllers) => {
                let own = jobs.len() as u16;
                let models = workloads.iter().map(|w| sensitivity(w, world.worth)).collect();
                let levels = NonZeroU16::new(queues.map_or(own, |_| LEVELS)).expect("there are jobs");
                let queues = queues.unwrap_or(own);
                let connections = Connections::Transfer;
                Sharing::Saba(Saba {
                    models,
                    queues,
                    levels,
                    c_saba: Fraction::ALL,
                    floor,
                    connections,
                    controllers,
                })
            }
        };
        let ended = cluster::run_on(&jobs, fabric, &sharing, |_| !interrupt::asked());
        let ended = ended.map_err(|error| Failure::jobs(&error))?;
        Ok(Run {
            ends: ended.ends.into_iter().map(Time::get).collect(),
            links: fabric.links(),
            solutions: (ended.solutions, ended.unsettled),
            took: began.elapsed().as_secs_f64(),
        })
    }
}

/// What Saba knows of a workload to which a part of a link is so many times that part of a server's bandwidth.
fn sensitivity(workload: &Synthetic, worth: f64) -> Sensitivity {
    if worth == 1.0 {
        return workload.sensitivity(Degree::Three);
    }
    let samples = FRACTIONS.map(Fraction::get).map(|part| (part, workload.slowdown((worth * part).min(1.0))));
    Sensitivity::new(fit(&samples, Degree::Three).expect("seven finite samples at seven places").polynomial)
}

/// What a part of a rack's links up is worth to a workload, over that part of a server's link: the links that a rack has up, over the servers
/// that a workload has there.
pub fn rack_worth() -> Result<f64, Failure> {
    let fabric = Plan::SabaTiers { oversubscription: 1.0 }.build().map_err(Failure::undone)?;
    let rack = fabric.link(fabric.out(NodeId(0))[0]).to;
    let (servers, up): (Vec<LinkId>, Vec<LinkId>) =
        fabric.out(rack).iter().partition(|link| fabric.is_host(fabric.link(**link).to));
    let own = servers.len() as f64 * INSTANCES as f64 / fabric.hosts() as f64;
    Ok(up.len() as f64 / own)
}

/// The fabric of section 8.1, whose links of servers and those between switches carry these parts of what they do there.
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
        let part = if whole.is_host_link(cable[0]) { servers } else { between };
        let rate = Rate::new(cable[0].rate.get() * part).unwrap_or(cable[0].rate);
        builder.cable(whole.name(cable[0].from), whole.name(cable[0].to), rate)?;
    }
    builder.build()
}
