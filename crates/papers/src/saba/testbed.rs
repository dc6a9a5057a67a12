//! Runs jobs on the 32 servers of section 8.1 under a policy, and computes speedups over the baseline.

use crate::saba::lockstep::fabric::JobLinks;
use crate::saba::lockstep::sharing::{ControllerKind, SharingRule};
use crate::saba::lockstep::{self, PlacedJob};
use weir_console::failure::Failure;
use weir_console::run::run_concurrently;
use weir_core::model::topology::TopologyTemplate;
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::{self, Degree};
use weir_core::units::{Rate, Time};
use weir_sim::NoObserver;
use weir_sim::jobs::workload::{Workload, testbed_link_rate};

use super::curve::{self, ConvexCurve};
use super::setup::{self, SetupJob};
use super::{QUEUES, geometric_mean, saba_sharing};
use crate::RunContext;

/// How jobs share links.
#[derive(Debug, Clone, Copy)]
pub enum Policy {
    /// Max-min between flows.
    Baseline,
    /// Max-min between applications.
    IdealMaxMin,
    /// Saba with models of this degree. The minimum weight is a fraction of an equal share.
    Saba(Degree, Fraction),
    /// A queue per job, weighted by Eq. 2 with the job's simulated slowdown in place of a polynomial.
    SimulatedSlowdowns,
}

/// Saba as in section 8.2.
pub const SABA: Policy = Policy::Saba(Degree::Cubic, DEFAULT_MIN_SHARE);

/// The conditions of a run.
#[derive(Debug, Clone, Copy)]
pub struct Conditions {
    /// Whether no workload waits longer for its bytes than LR does ([`limit_wait`]).
    pub limited_wait: bool,
    /// The rate of links divided by that in the paper.
    pub link_factor: f64,
    /// The data and the nodes of the profiler, as multiples of those in the paper.
    pub profiled_factors: (f64, f64),
}

/// The paper's conditions.
pub const PAPER_CONDITIONS: Conditions =
    Conditions { limited_wait: false, link_factor: 1.0, profiled_factors: (1.0, 1.0) };

/// The testbed.
pub struct Testbed<'a> {
    workloads: Vec<Workload>,
    limited_workloads: Vec<Workload>,
    setups: Vec<Vec<SetupJob>>,
    /// The seed of the setups.
    pub seed: u64,
    run_context: &'a RunContext<'a>,
}

/// Geometric means of speedups.
pub struct Speedups {
    /// By workload; `None` for a workload without jobs.
    pub workloads: Vec<Option<f64>>,
    /// By setup, in ascending order.
    pub setups: Vec<f64>,
    /// Over all jobs.
    pub mean: f64,
}

impl Speedups {
    /// Computes the means from the logarithms of the speedups of all jobs, by setup.
    fn from_logarithms(setups: &[Vec<SetupJob>], workloads: usize, logarithms: &[&[f64]]) -> Speedups {
        let mut by_workload = vec![Vec::new(); workloads];
        for (job, &logarithm) in setups.iter().flatten().zip(logarithms.iter().copied().flatten()) {
            by_workload[job.workload].push(logarithm);
        }
        let mut by_setup: Vec<f64> = logarithms.iter().map(|jobs| geometric_mean(jobs)).collect();
        by_setup.sort_by(f64::total_cmp);
        Speedups {
            mean: geometric_mean(&by_workload.concat()),
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
    pub fn new(setups: u32, seed: u64, run_context: &'a RunContext<'a>) -> Testbed<'a> {
        let workloads = Workload::all();
        Testbed {
            setups: (0..u64::from(setups))
                .map(|index| setup::draw_setup(seed, index, workloads.len()))
                .collect(),
            limited_workloads: workloads.iter().map(limit_wait).collect(),
            workloads,
            seed,
            run_context,
        }
    }

    /// The ten workloads of Table 1.
    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// The position of a workload.
    pub fn workload_position(&self, name: &str) -> usize {
        self.workloads.iter().position(|workload| workload.name == name).expect("the name is one of Table 1")
    }

    /// The setups.
    pub fn setups(&self) -> &[Vec<SetupJob>] {
        &self.setups
    }

    /// The speedups of each of `cases` over the baseline under `baseline_conditions`, for all jobs of `setups`.
    pub fn compare(
        &self,
        setups: &[Vec<SetupJob>],
        baseline_conditions: Conditions,
        cases: &[(Conditions, Policy)],
    ) -> Result<Vec<Speedups>, Failure> {
        let bar = self.run_context.progress.add_step_bar("setups", setups.len());
        let logarithms = run_concurrently(setups.len(), self.run_context.jobs, |at| {
            let baseline_ends = self.run(baseline_conditions, Policy::Baseline, &setups[at])?;
            let log_speedups = |&(conditions, policy): &(Conditions, Policy)| {
                let ends = self.run(conditions, policy, &setups[at])?;
                Ok(baseline_ends.iter().zip(ends).map(|(base, end)| (base / end).ln()).collect())
            };
            let logarithms_of_setup =
                cases.iter().map(log_speedups).collect::<Result<Vec<Vec<f64>>, Failure>>();
            bar.inc(1);
            logarithms_of_setup
        });
        bar.finish_and_clear();
        let logarithms = logarithms?;
        let speedups_of_case = |case: usize| {
            let logarithms_of_case: Vec<&[f64]> =
                logarithms.iter().map(|cases| cases[case].as_slice()).collect();
            Speedups::from_logarithms(setups, self.workloads.len(), &logarithms_of_case)
        };
        Ok((0..cases.len()).map(speedups_of_case).collect())
    }

    /// The end of each job, in seconds; all start at 0.
    pub fn run(
        &self,
        conditions: Conditions,
        policy: Policy,
        setup: &[SetupJob],
    ) -> Result<Vec<f64>, Failure> {
        Failure::check_interrupt()?;
        let workloads = if conditions.limited_wait { &self.limited_workloads } else { &self.workloads };
        let jobs: Vec<PlacedJob> = setup.iter().map(|job| job.to_placed(workloads)).collect();
        let sharing = match policy {
            Policy::Baseline => SharingRule::PerFlow,
            Policy::IdealMaxMin => SharingRule::PerApplication,
            Policy::Saba(degree, floor) => {
                let models = workloads
                    .iter()
                    .map(|workload| fitted_model(workload, degree, conditions.profiled_factors));
                saba_sharing(models.collect(), Some(QUEUES), jobs.len(), floor, ControllerKind::Central)
            }
            Policy::SimulatedSlowdowns => {
                let curve = |job: &SetupJob| {
                    let shape = workloads[job.workload].scaled_shape(job.data_factor, job.node_factor());
                    ConvexCurve::lower_hull(|weight| shape.slowdown(weight))
                };
                curve::curve_sharing(setup.iter().map(curve).collect(), DEFAULT_MIN_SHARE)
            }
        };
        let rate =
            Rate::new(testbed_link_rate().get() * conditions.link_factor).unwrap_or_else(testbed_link_rate);
        let switch = TopologyTemplate::BigSwitch { hosts: setup::SERVERS, rate };
        let topology = switch.build().map_err(Failure::runtime)?;
        let servers: Vec<Vec<u32>> = jobs.iter().map(|job| job.servers.clone()).collect();
        let links = JobLinks::new(&topology, &servers).map_err(Failure::runtime)?;
        let ended = lockstep::run(&jobs, &links, &sharing, &mut NoObserver).map_err(Failure::runtime)?;
        Ok(ended.ends.into_iter().map(Time::get).collect())
    }
}

/// The model that the profiler fits to a workload with `data` times the data on `nodes` times the nodes.
fn fitted_model(workload: &Workload, degree: Degree, (data, nodes): (f64, f64)) -> Sensitivity {
    let fit = polynomial::fit_polynomial(&workload.scaled_shape(data, nodes).samples(), degree);
    Sensitivity::new(fit.expect("a shape has seven finite samples at seven bandwidths").polynomial)
}

/// LR's slowdown at 10 % of the bandwidth divided by its slowdown at 25 % (section 4.2).
const LR_RATIO: f64 = 4.5 / 3.4;

/// Adds a limit on the wait for bytes to a workload without such a limit. The slowdown at 10 % of the bandwidth is then at most
/// [`LR_RATIO`] times the slowdown at 25 %.
fn limit_wait(workload: &Workload) -> Workload {
    let mut limited = workload.clone();
    if limited.shape.max_transfer_time == f64::INFINITY {
        limited.shape.max_transfer_time = LR_RATIO * workload.shape.slowdown(0.25) - workload.shape.compute();
    }
    limited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limited_workloads_slow_down_at_10_percent_no_more_than_lr() {
        // Section 4.2: LR has 4.5 at 10 % and 3.4 at 25 %.
        for workload in Workload::all() {
            let limited = limit_wait(&workload).shape;
            assert_eq!(limited.slowdown(0.25), workload.shape.slowdown(0.25));
            if workload.shape.max_transfer_time.is_infinite() {
                let ratio = limited.slowdown(0.10) / limited.slowdown(0.25);
                let unlimited_ratio = workload.shape.slowdown(0.10) / workload.shape.slowdown(0.25);
                assert!((ratio - unlimited_ratio.min(4.5 / 3.4)).abs() < 1e-9, "{}: {ratio}", workload.name);
                assert!(limited.slowdown(0.05) < workload.shape.slowdown(0.05));
            }
        }
    }
}
