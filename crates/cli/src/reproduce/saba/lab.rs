//! Runs cluster setups under one way of sharing or another.

use std::num::NonZeroU16;

use weir_core::saba::share::FLOOR;
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::Degree;
use weir_core::units::{Rate, Time};
use weir_sim::stage::cluster::{self, Coupling, Options, Placed};
use weir_sim::stage::setup::{self, Drawn};
use weir_sim::stage::sharing::{Connections, Controllers, Saba, Sharing};
use weir_sim::stage::workload::{Workload, link};

use crate::failure::Failure;
use crate::interrupt;
use crate::progress::Progress;
use crate::run;

/// How links are shared in a world.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    /// Max-min between flows: the baseline.
    Flows,
    /// Max-min between applications.
    Applications,
    /// Saba with models of this degree, so many queues, and this least weight.
    Saba(Degree, u16, Fraction, Connections),
}

/// Saba as in section 8.2.
pub const SABA: Way = Way::Saba(Degree::Three, 8, FLOOR, Connections::Transfer);

/// What setups are run in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct World {
    /// Whether all workloads have a limit as LR does ([`Workload::limited`]).
    pub limited: bool,
    /// Everything that is computed takes so many times as long.
    pub compute: f64,
    /// Links carry this part of what they do in the paper.
    pub links: f64,
    /// Whether everything is a quarter as wide: 8 servers, of which each job has a quarter as many as were drawn.
    pub small: bool,
    /// How the flows of a transfer depend on each other.
    pub coupling: Coupling,
    /// The profiler has so many times the data and the nodes that it has in the paper.
    pub profiled: (f64, f64),
}

/// The paper's world as far as it is known.
pub const PLAIN: World = World {
    limited: false,
    compute: 1.0,
    links: 1.0,
    small: false,
    coupling: Coupling::Lockstep,
    profiled: (1.0, 1.0),
};

/// When each job of each setup ends, in seconds.
pub type Ends = Vec<Vec<f64>>;

/// The laboratory.
pub struct Lab<'a> {
    workloads: Vec<Workload>,
    limited: Vec<Workload>,
    setups: Vec<Vec<Drawn>>,
    /// The seed that setups are drawn by.
    pub seed: u64,
    jobs: usize,
    progress: &'a Progress,
    kept: Vec<(World, Way, usize, Ends)>,
}

impl<'a> Lab<'a> {
    /// Draws the setups.
    pub fn new(setups: u32, seed: u64, jobs: usize, progress: &'a Progress) -> Lab<'a> {
        let workloads = Workload::all();
        let limited = workloads.iter().map(Workload::limited).collect();
        let draw = |index| setup::draw(seed, index, workloads.len());
        Lab {
            setups: (0..u64::from(setups)).map(draw).collect(),
            workloads,
            limited,
            seed,
            jobs,
            progress,
            kept: Vec::new(),
        }
    }

    /// The ten workloads.
    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// The setups.
    pub fn setups(&self) -> &[Vec<Drawn>] {
        &self.setups
    }

    /// Runs the first `count` setups, or takes what an earlier run found.
    pub fn ends(&mut self, world: World, way: Way, count: usize) -> Result<Ends, Failure> {
        let known = self.kept.iter().find(|(w, s, c, _)| *w == world && *s == way && *c >= count);
        if let Some((.., ends)) = known {
            return Ok(ends[..count].to_vec());
        }
        let bar = self.progress.steps("setups", count);
        let found = run::pool(count, self.jobs, |at| {
            let ends = self.run(world, way, &self.setups[at])?;
            bar.inc(1);
            Ok(ends)
        });
        bar.finish_and_clear();
        let found = found?;
        self.kept.push((world, way, count, found.clone()));
        Ok(found)
    }

    /// Runs jobs together.
    pub fn run(&self, world: World, way: Way, drawn: &[Drawn]) -> Result<Vec<f64>, Failure> {
        if interrupt::asked() {
            return Err(Failure::interrupted("interrupted; nothing was written"));
        }
        let workloads = if world.limited { &self.limited } else { &self.workloads };
        let slower = |time: Time| Time::new(time.get() * world.compute).unwrap_or(time);
        let mut jobs: Vec<Placed> = drawn.iter().map(|job| job.placed(workloads)).collect();
        for stage in jobs.iter_mut().flat_map(|job| &mut job.stages) {
            (stage.compute, stage.beside) = (slower(stage.compute), slower(stage.beside));
        }
        if world.small {
            for job in &mut jobs {
                job.servers = quarter(&job.servers);
            }
        }
        let sharing = match way {
            Way::Flows => Sharing::Flows,
            Way::Applications => Sharing::Applications,
            Way::Saba(degree, queues, floor, connections) => Sharing::Saba(Saba {
                models: workloads
                    .iter()
                    .map(|w| w.model_at(degree, world.profiled.0, world.profiled.1))
                    .map(Sensitivity::new)
                    .collect(),
                queues,
                levels: NonZeroU16::new(16).expect("16 is not 0"),
                floor,
                connections,
                controllers: Controllers::Central,
            }),
        };
        let rate = Rate::new(link().get() * world.links).unwrap_or_else(link);
        let options = Options { servers: setup::SERVERS, rate, coupling: world.coupling };
        let ends = cluster::run(&jobs, &options, &sharing).map_err(Failure::undone)?;
        Ok(ends.into_iter().map(Time::get).collect())
    }
}

/// A quarter as many servers out of a quarter as many, at least two.
fn quarter(servers: &[u32]) -> Vec<u32> {
    let mut fewer: Vec<u32> = Vec::new();
    for server in servers.iter().map(|server| server % (setup::SERVERS / 4)) {
        if !fewer.contains(&server) {
            fewer.push(server);
        }
    }
    fewer.truncate((servers.len() / 4).max(2));
    fewer
}
