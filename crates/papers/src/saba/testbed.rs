//! Runs jobs on the 32 servers of section 8.1 under one policy or another, and computes speedups over the baseline.

use weir_console::failure::Failure;
use weir_console::run::pool;
use weir_core::saba::share::FLOOR;
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::{self, Degree};
use weir_core::units::{Rate, Time};
use weir_sim::stage::cluster::{self, Coupling, Options, Placed};
use weir_sim::stage::sharing::{Controllers, Sharing};
use weir_sim::stage::workload::{Workload, link};

use super::curve::{self, Curve};
use super::setup::{self, Drawn};
use super::{QUEUES, geometric_mean, saba};
use crate::Running;

/// How jobs share links.
#[derive(Debug, Clone, Copy)]
pub enum Policy {
    /// Max-min between flows.
    Baseline,
    /// Max-min between applications.
    IdealMaxMin,
    /// Saba with models of this degree and this minimum weight, as a part of an equal share.
    Saba(Degree, Fraction),
    /// A queue per job, weighted by Eq. 2 with the job's simulated slowdown in place of a polynomial.
    SimulatedSlowdowns,
}

/// Saba as in section 8.2.
pub const SABA: Policy = Policy::Saba(Degree::Three, FLOOR);

/// The conditions of a run.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// Whether no workload waits longer for its bytes than LR does ([`limited`]).
    pub limited: bool,
    /// The rate of links, as a part of the paper's.
    pub links: f64,
    /// The data and the nodes of the profiler, as multiples of the paper's.
    pub profiled: (f64, f64),
}

/// The paper's conditions.
pub const PAPER: World = World { limited: false, links: 1.0, profiled: (1.0, 1.0) };

/// The testbed.
pub struct Testbed<'a> {
    workloads: Vec<Workload>,
    limited: Vec<Workload>,
    setups: Vec<Vec<Drawn>>,
    /// The seed by which the setups were drawn.
    pub seed: u64,
    running: &'a Running<'a>,
}

/// Geometric means of speedups.
pub struct Speedups {
    /// By workload; none without jobs of it.
    pub workloads: Vec<Option<f64>>,
    /// By setup, in ascending order.
    pub setups: Vec<f64>,
    /// Of all jobs.
    pub all: f64,
}

impl Speedups {
    /// Of the logarithms of speedups of the jobs of some setups.
    fn of(setups: &[Vec<Drawn>], workloads: usize, logarithms: &[&[f64]]) -> Speedups {
        let mut by_workload = vec![Vec::new(); workloads];
        for (job, &logarithm) in setups.iter().flatten().zip(logarithms.iter().copied().flatten()) {
            by_workload[job.workload].push(logarithm);
        }
        let mut by_setup: Vec<f64> = logarithms.iter().map(|jobs| geometric_mean(jobs)).collect();
        by_setup.sort_by(f64::total_cmp);
        Speedups {
            all: geometric_mean(&by_workload.concat()),
            workloads: by_workload
                .iter()
                .map(|jobs| (!jobs.is_empty()).then(|| geometric_mean(jobs)))
                .collect(),
            setups: by_setup,
        }
    }
}

impl<'a> Testbed<'a> {
    /// Draws `setups` setups of `seed`.
    pub fn new(setups: u32, seed: u64, running: &'a Running<'a>) -> Testbed<'a> {
        let workloads = Workload::all();
        Testbed {
            setups: (0..u64::from(setups)).map(|index| setup::draw(seed, index, workloads.len())).collect(),
            limited: workloads.iter().map(limited).collect(),
            workloads,
            seed,
            running,
        }
    }

    /// The ten workloads of Table 1.
    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// The position of a workload.
    pub fn workload(&self, name: &str) -> usize {
        self.workloads.iter().position(|workload| workload.name == name).expect("the name is one of Table 1")
    }

    /// The setups.
    pub fn setups(&self) -> &[Vec<Drawn>] {
        &self.setups
    }

    /// The speedups of each of `cases` over the baseline in the world `base`, over all jobs of `setups`.
    pub fn compare(
        &self,
        setups: &[Vec<Drawn>],
        base: World,
        cases: &[(World, Policy)],
    ) -> Result<Vec<Speedups>, Failure> {
        let bar = self.running.progress.steps("setups", setups.len());
        let logarithms = pool(setups.len(), self.running.jobs, |at| {
            let base = self.run(base, Policy::Baseline, &setups[at])?;
            let over_base = |&(world, policy): &(World, Policy)| {
                let ends = self.run(world, policy, &setups[at])?;
                Ok(base.iter().zip(ends).map(|(base, end)| (base / end).ln()).collect())
            };
            let found = cases.iter().map(over_base).collect::<Result<Vec<Vec<f64>>, Failure>>();
            bar.inc(1);
            found
        });
        bar.finish_and_clear();
        let logarithms = logarithms?;
        let of_case = |case: usize| {
            let of_setups: Vec<&[f64]> = logarithms.iter().map(|cases| cases[case].as_slice()).collect();
            Speedups::of(setups, self.workloads.len(), &of_setups)
        };
        Ok((0..cases.len()).map(of_case).collect())
    }

    /// The end of each job, in seconds; all start at 0.
    pub fn run(&self, world: World, policy: Policy, drawn: &[Drawn]) -> Result<Vec<f64>, Failure> {
        Failure::unless_asked()?;
        let workloads = if world.limited { &self.limited } else { &self.workloads };
        let jobs: Vec<Placed> = drawn.iter().map(|job| job.placed(workloads)).collect();
        let sharing = match policy {
            Policy::Baseline => Sharing::Flows,
            Policy::IdealMaxMin => Sharing::Applications,
            Policy::Saba(degree, floor) => {
                let models = workloads.iter().map(|workload| model(workload, degree, world.profiled));
                saba(models.collect(), Some(QUEUES), jobs.len(), floor, Controllers::Central)
            }
            Policy::SimulatedSlowdowns => {
                let curve = |job: &Drawn| {
                    let shape = workloads[job.workload].scaled(job.data, job.nodes());
                    Curve::of(|weight| shape.slowdown(weight))
                };
                curve::sharing(drawn.iter().map(curve).collect(), FLOOR)
            }
        };
        let rate = Rate::new(link().get() * world.links).unwrap_or_else(link);
        let options = Options { servers: setup::SERVERS, rate, coupling: Coupling::Lockstep };
        let ends = cluster::run(&jobs, &options, &sharing).map_err(Failure::undone)?;
        Ok(ends.into_iter().map(Time::get).collect())
    }
}

/// The model that the profiler fits to a workload with `data` times the data on `nodes` times the nodes.
fn model(workload: &Workload, degree: Degree, (data, nodes): (f64, f64)) -> Sensitivity {
    let fit = polynomial::fit(&workload.scaled(data, nodes).samples(), degree);
    Sensitivity::new(fit.expect("a shape has seven finite samples at seven bandwidths").polynomial)
}

/// LR's slowdown at 10 % of the bandwidth over its slowdown at 25 % (section 4.2).
const LR_RATIO: f64 = 4.5 / 3.4;

/// The workload with a limit on the wait for its bytes, unless the shape has one: its slowdown at 10 % of the bandwidth is at most
/// [`LR_RATIO`] times its slowdown at 25 %.
fn limited(workload: &Workload) -> Workload {
    let mut limited = workload.clone();
    if limited.shape.patience == f64::INFINITY {
        limited.shape.patience = LR_RATIO * workload.shape.slowdown(0.25) - workload.shape.compute();
    }
    limited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limited_workloads_slow_down_at_10_percent_no_more_than_lr() {
        // Section 4.2: 4.5 at 10 % where 25 % has 3.4.
        for workload in Workload::all() {
            let limited = limited(&workload).shape;
            assert_eq!(limited.slowdown(0.25), workload.shape.slowdown(0.25));
            if workload.shape.patience.is_infinite() {
                let ratio = limited.slowdown(0.10) / limited.slowdown(0.25);
                let own = workload.shape.slowdown(0.10) / workload.shape.slowdown(0.25);
                assert!((ratio - own.min(4.5 / 3.4)).abs() < 1e-9, "{}: {ratio}", workload.name);
                assert!(limited.slowdown(0.05) < workload.shape.slowdown(0.05));
            }
        }
    }
}
