//! Runs cluster setups under one way of sharing or another.

use std::num::NonZeroU16;

use weir_core::saba::profile::FRACTIONS;
use weir_core::saba::share::FLOOR;
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::Degree;
use weir_core::units::{Rate, Time};
use weir_sim::outcome::mean;
use weir_sim::stage::cluster::{self, Coupling, Options, Placed};
use weir_sim::stage::curve::Curve;
use weir_sim::stage::setup::{self, Drawn};
use weir_sim::stage::sharing::{Connections, Controllers, Saba, Sharing};
use weir_sim::stage::workload::{NODES, Workload, link};

use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_console::run;

/// How links are shared in a world.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    /// Max-min between flows: the baseline.
    Flows,
    /// Max-min between applications.
    Applications,
    /// Saba with models of this degree, so many queues, and this least weight.
    Saba(Degree, u16, Fraction, Connections),
    /// A queue for each job, weighted by Eq. 2 with this in place of the polynomial, and the usual least weight.
    Queues(Model),
    /// A queue for each job, weighted by one over the square of the bytes that each of its servers moves.
    Small,
    /// Each job has all links to itself.
    Alone,
}

/// What can be put in place of Eq. 2's polynomial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Model {
    /// The cubic.
    Cubic,
    /// The cubic at the places that were profiled, but never above what it is with less bandwidth; straight lines between and beyond.
    Falling,
    /// The slowdowns that were profiled, and straight lines between and beyond.
    Profile,
    /// The slowdown that the workload has with the data and nodes of the profiler.
    Profiled,
    /// The slowdown that the job has with its own data and nodes.
    Own,
    /// The logarithm of that: the least sum is the least geometric mean of slowdowns.
    Logarithm,
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
        let workloads = self.of(world);
        let jobs = self.placed(world, drawn);
        let sharing = match way {
            Way::Alone => {
                let alone = |job: &Placed| job.stages.iter().map(|stage| stage.alone(rate(world))).sum();
                return Ok(jobs.iter().map(alone).collect());
            }
            Way::Small => by_size(&jobs),
            Way::Queues(model) => {
                let curve = |job: &Drawn| curve(model, &workloads[job.workload], job);
                Sharing::Curves(drawn.iter().map(curve).collect(), FLOOR)
            }
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
                c_saba: Fraction::ALL,
                floor,
                connections,
                controllers: Controllers::Central,
            }),
        };
        simulate(world, &jobs, &sharing)
    }

    /// The workloads of a world.
    fn of(&self, world: World) -> &[Workload] {
        if world.limited { &self.limited } else { &self.workloads }
    }

    /// Jobs as they run in a world.
    fn placed(&self, world: World, drawn: &[Drawn]) -> Vec<Placed> {
        let slower = |time: Time| Time::new(time.get() * world.compute).unwrap_or(time);
        let mut jobs: Vec<Placed> = drawn.iter().map(|job| job.placed(self.of(world))).collect();
        for stage in jobs.iter_mut().flat_map(|job| &mut job.stages) {
            (stage.compute, stage.beside) = (slower(stage.compute), slower(stage.beside));
        }
        if world.small {
            for job in &mut jobs {
                job.servers = quarter(&job.servers);
            }
        }
        jobs
    }

    /// The best weights that a search finds for the first `count` setups, the same for all jobs of a workload in all of them: the
    /// average speed-up over the baseline.
    pub fn best_by_workload(&self, world: World, count: usize) -> Result<f64, Failure> {
        let setups: Vec<Rated<'_>> =
            run::pool(count, self.jobs, |at| Rated::new(self, world, &self.setups[at]))?;
        let jobs: usize = setups.iter().map(|setup| setup.jobs.len()).sum();
        let best = climb(self.workloads.len(), |weights| {
            let sum = |at: usize| -> Result<f64, Failure> {
                let of = |job: &Drawn| weights[job.workload];
                setups[at].logs(&setups[at].drawn.iter().map(of).collect::<Vec<_>>())
            };
            Ok(run::pool(count, self.jobs, sum)?.iter().sum::<f64>() / jobs as f64)
        })?;
        Ok(best.exp())
    }

    /// The best weights that a search finds for the jobs of each of the first `count` setups: the average speed-up over the baseline.
    pub fn best_by_job(&self, world: World, count: usize) -> Result<f64, Failure> {
        let bar = self.progress.steps("searches", count);
        let found = run::pool(count, self.jobs, |at| {
            let best = self.best(world, &self.setups[at])?;
            bar.inc(1);
            Ok(best)
        });
        bar.finish_and_clear();
        Ok(mean(&found?).exp())
    }

    /// The best weights that a search finds for these jobs: the mean logarithm of speed-ups over the baseline.
    pub fn best(&self, world: World, drawn: &[Drawn]) -> Result<f64, Failure> {
        let rated = Rated::new(self, world, drawn)?;
        climb(drawn.len(), |weights| Ok(rated.logs(weights)? / drawn.len() as f64))
    }
}

/// Jobs and how the baseline does with them.
struct Rated<'a> {
    world: World,
    drawn: &'a [Drawn],
    jobs: Vec<Placed>,
    base: Vec<f64>,
}

impl<'a> Rated<'a> {
    fn new(lab: &Lab<'_>, world: World, drawn: &'a [Drawn]) -> Result<Rated<'a>, Failure> {
        Ok(Rated { world, drawn, jobs: lab.placed(world, drawn), base: lab.run(world, Way::Flows, drawn)? })
    }

    /// The sum of the logarithms of speed-ups with these weights.
    fn logs(&self, weights: &[f64]) -> Result<f64, Failure> {
        let ends = simulate(self.world, &self.jobs, &Sharing::Weights(weights.to_vec()))?;
        Ok(self.base.iter().zip(ends).map(|(base, end)| (base / end).ln()).sum())
    }
}

/// The first and the last factor by which a search changes weights.
const STEPS: (f64, f64) = (8.0, 2.0);

/// What a round of a search has to gain before the next goes by the same steps.
const GAIN: f64 = 0.01;

/// Weights with a value that no single change by a factor makes much greater, and that value: from even weights, one weight after the other goes up
/// or down if that is better, by ever smaller factors.
fn climb(count: usize, value: impl Fn(&[f64]) -> Result<f64, Failure>) -> Result<f64, Failure> {
    let mut weights = vec![1.0; count];
    let mut best = value(&weights)?;
    let mut step = STEPS.0;
    while step >= STEPS.1 {
        let before = best;
        for place in 0..count {
            let old = weights[place];
            for changed in [old * step, old / step] {
                weights[place] = changed;
                let found = value(&weights)?;
                if found > best {
                    best = found;
                    break;
                }
                weights[place] = old;
            }
        }
        if best < before + GAIN {
            step = step.sqrt();
        }
    }
    Ok(best)
}

/// What links carry.
fn rate(world: World) -> Rate {
    Rate::new(link().get() * world.links).unwrap_or_else(link)
}

fn simulate(world: World, jobs: &[Placed], sharing: &Sharing) -> Result<Vec<f64>, Failure> {
    Failure::unless_asked()?;
    let options = Options { servers: setup::SERVERS, rate: rate(world), coupling: world.coupling };
    let ends = cluster::run(jobs, &options, sharing).map_err(Failure::undone)?;
    Ok(ends.into_iter().map(Time::get).collect())
}

/// What a weight costs a job by a model.
fn curve(model: Model, workload: &Workload, job: &Drawn) -> Curve {
    let cubic = workload.model(Degree::Three);
    let own = || workload.scaled(job.data, job.servers.len() as f64 / f64::from(NODES));
    match model {
        Model::Cubic => Curve::of(|w| cubic.at(w)),
        Model::Falling => {
            let mut least = f64::INFINITY;
            let points = FRACTIONS.map(|place| {
                least = least.min(cubic.at(place.get()));
                (place.get(), least)
            });
            Curve::of(|w| straight(&points, w))
        }
        Model::Profile => {
            let points = workload.shape.samples();
            Curve::of(|w| straight(&points, w))
        }
        Model::Profiled => Curve::of(|w| workload.shape.slowdown(w)),
        Model::Own => Curve::of(|w| own().slowdown(w)),
        Model::Logarithm => Curve::of(|w| own().slowdown(w).ln()),
    }
}

/// The value at `x` of straight lines through points, the first and the last of which go on.
fn straight(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.partition_point(|(at, _)| *at <= x).clamp(1, points.len() - 1);
    let ((x0, y0), (x1, y1)) = (points[after - 1], points[after]);
    y0 + (y1 - y0) / (x1 - x0) * (x - x0)
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

/// A queue for each job, with a weight of one over the square of what its servers send.
pub fn by_size(jobs: &[Placed]) -> Sharing {
    let bytes = |job: &Placed| job.stages.iter().map(|stage| stage.bytes.get()).sum::<f64>();
    Sharing::Weights(jobs.iter().map(|job| bytes(job).max(1.0).powi(-2)).collect())
}
