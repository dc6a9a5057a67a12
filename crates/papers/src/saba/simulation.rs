//! Runs the synthetic workloads on the 1,944 servers of section 8.1 under a policy.

use crate::saba::lockstep::fabric::JobLinks;
use crate::saba::lockstep::sharing::{ControllerKind, SharingRule, equal_bytes_cutoffs};
use crate::saba::lockstep::{self, LockstepError, PlacedJob};
use weir_console::failure::Failure;
use weir_console::interrupt::InterruptObserver;
use weir_console::run::run_concurrently;
use weir_core::model::topology::{NodeId, Topology, TopologyBuilder, TopologyError, TopologyTemplate};
use weir_core::saba::Fraction;
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::solve::polynomial::Degree;
use weir_core::units::{Rate, Time};
use weir_sim::ReplayError;

use super::curve::{self, ConvexCurve};
use super::synthetic::{INSTANCES, SyntheticWorkload, WORKLOADS, place_jobs};
use super::{QUEUES, geometric_mean, saba_sharing};
use crate::RunContext;

/// The number of priorities of a switch. Homa uses all of them.
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
    /// Saba with this number of queues, or a queue per workload if `None`. The minimum weight is a fraction of an equal share.
    Saba(Option<u16>, Fraction, ControllerKind),
    /// A queue per workload, weighted by Eq. 2 with the workload's simulated slowdown in place of a polynomial.
    SimulatedSlowdowns,
}

/// Saba as in study 4.
pub const SABA: Policy = Policy::Saba(Some(QUEUES), DEFAULT_MIN_SHARE, ControllerKind::Central);

/// Saba as in study 7.
pub const DISTRIBUTED: Policy = Policy::Saba(Some(QUEUES), DEFAULT_MIN_SHARE, ControllerKind::Distributed);

/// The conditions of a run.
#[derive(Debug, Clone, Copy)]
pub struct Conditions {
    /// The rate of links between switches divided by that in the paper.
    pub trunk_factor: f64,
    /// A further factor on the rates of all links.
    pub link_factor: f64,
}

/// The paper's conditions.
pub const PAPER_CONDITIONS: Conditions = Conditions { trunk_factor: 1.0, link_factor: 1.0 };

/// Links between switches at a quarter of their rate, so that workloads compete for them.
pub const QUARTER_TRUNKS: Conditions = Conditions { trunk_factor: 0.25, ..PAPER_CONDITIONS };

/// The simulated cluster.
pub struct Simulation<'a> {
    workloads: Vec<SyntheticWorkload>,
    /// The seed of the workloads and of their servers.
    pub seed: u64,
    run_context: &'a RunContext<'a>,
}

/// Times under one policy.
struct RunResult {
    /// The end of each workload, in seconds.
    ends_secs: Vec<f64>,
    /// The number of computations of rates, and the number of those that did not converge.
    solution_counts: [u64; 2],
}

/// Speedups under one policy.
pub struct Speedups {
    /// By workload.
    pub workloads: Vec<f64>,
    /// Their geometric mean.
    pub mean: f64,
}

/// The speedups of policies over the baseline.
pub struct Comparison {
    /// The time under the baseline divided by the time with all bandwidth, as a geometric mean over workloads.
    pub slowdown: f64,
    /// In the order of the policies.
    pub policies: Vec<Speedups>,
    /// The number of computations of rates, and the number of those that did not converge.
    pub solution_counts: [u64; 2],
}

impl<'a> Simulation<'a> {
    /// Draws the workloads of `seed`.
    pub fn new(seed: u64, run_context: &'a RunContext<'a>) -> Simulation<'a> {
        Simulation { workloads: SyntheticWorkload::draw(seed, WORKLOADS), seed, run_context }
    }

    /// Runs `policies` under `conditions`, and the baseline under `baseline_conditions`. The two may differ only in the link factor.
    pub fn compare(
        &self,
        baseline_conditions: Conditions,
        conditions: Conditions,
        policies: &[Policy],
    ) -> Result<Comparison, Failure> {
        let cluster = self.cluster(conditions)?;
        let runs = run_concurrently(policies.len() + 1, self.run_context.jobs, |index| match index {
            0 if baseline_conditions.link_factor != conditions.link_factor => {
                run(&self.workloads, &self.cluster(baseline_conditions)?, Policy::Baseline)
            }
            0 => run(&self.workloads, &cluster, Policy::Baseline),
            at => run(&self.workloads, &cluster, policies[at - 1]),
        })?;
        let solutions = [0, 1].map(|index| runs.iter().map(|run| run.solution_counts[index]).sum());
        let (baseline, runs) = runs.split_first().expect("the baseline is among the policies that run");
        let secs_alone = self.workloads.iter().map(|workload| workload.seconds);
        let slowdowns: Vec<f64> =
            baseline.ends_secs.iter().zip(secs_alone).map(|(end, alone)| (end / alone).ln()).collect();
        let speedups = |run: &RunResult| {
            let ratios: Vec<f64> =
                baseline.ends_secs.iter().zip(&run.ends_secs).map(|(base, end)| base / end).collect();
            let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
            Speedups { workloads: ratios, mean: geometric_mean(&logarithms) }
        };
        let policies = runs.iter().map(speedups).collect();
        Ok(Comparison { slowdown: geometric_mean(&slowdowns), policies, solution_counts: solutions })
    }

    /// The servers of each workload and the links that they use.
    fn cluster(&self, conditions: Conditions) -> Result<(Vec<Vec<u32>>, JobLinks), Failure> {
        let topology =
            scaled_topology(conditions.link_factor, conditions.trunk_factor * conditions.link_factor)
                .map_err(Failure::runtime)?;
        let servers = place_jobs(self.seed, topology.hosts(), WORKLOADS, INSTANCES);
        let fabric = JobLinks::new(&topology, &servers).map_err(Failure::runtime)?;
        Ok((servers, fabric))
    }
}

fn run(
    workloads: &[SyntheticWorkload],
    (servers, fabric): &(Vec<Vec<u32>>, JobLinks),
    policy: Policy,
) -> Result<RunResult, Failure> {
    Failure::check_interrupt()?;
    let to_placed = |(model, (workload, servers)): (usize, (&SyntheticWorkload, &Vec<u32>))| PlacedJob {
        stages: workload.stages.clone(),
        servers: servers.clone(),
        model: Some(model),
        start: Time::ZERO,
    };
    let jobs: Vec<PlacedJob> = workloads.iter().zip(servers).enumerate().map(to_placed).collect();
    let sharing = match policy {
        Policy::Baseline => SharingRule::PerFlow,
        Policy::IdealMaxMin => SharingRule::PerApplication,
        Policy::Homa => {
            let flows: Vec<_> = jobs.iter().map(|job| (job.stages.as_slice(), job.servers.len())).collect();
            SharingRule::SizePriorities(equal_bytes_cutoffs(&flows, PRIORITIES))
        }
        Policy::Sincronia => SharingRule::CoflowOrder,
        Policy::SimulatedSlowdowns => {
            let curve =
                |workload: &SyntheticWorkload| ConvexCurve::lower_hull(|weight| workload.slowdown(weight));
            curve::curve_sharing(workloads.iter().map(curve).collect(), DEFAULT_MIN_SHARE)
        }
        Policy::Saba(queues, floor, controllers) => {
            let models = workloads.iter().map(|workload| workload.sensitivity(Degree::Cubic)).collect();
            saba_sharing(models, queues, jobs.len(), floor, controllers)
        }
    };
    let result = lockstep::run(&jobs, fabric, &sharing, &mut InterruptObserver);
    let ended = result.map_err(|error| failure(&error))?;
    Ok(RunResult {
        ends_secs: ended.ends.into_iter().map(Time::get).collect(),
        solution_counts: [ended.rate_computations, ended.unsettled_computations],
    })
}

fn failure(error: &LockstepError) -> Failure {
    match error {
        LockstepError::Replay(ReplayError::Interrupted { .. }) => {
            Failure::interrupted(format_args!("{error}; nothing was written"))
        }
        _ => Failure::runtime(error),
    }
}

/// The topology of section 8.1, with the rates of servers' links multiplied by `servers` and those between switches by `trunks`.
fn scaled_topology(servers: f64, trunks: f64) -> Result<Topology, TopologyError> {
    let unscaled = TopologyTemplate::SabaTiers { oversubscription: 1.0 }.build()?;
    let mut builder = TopologyBuilder::new();
    for node in (0..unscaled.nodes() as u32).map(NodeId) {
        match unscaled.is_host(node) {
            true => builder.add_host(unscaled.name(node))?,
            false => builder.add_switch(unscaled.name(node), unscaled.tier(node))?,
        }
    }
    for cable in unscaled.links().chunks_exact(2) {
        let factor = if unscaled.is_host_link(cable[0]) { servers } else { trunks };
        let rate = Rate::new(cable[0].rate.get() * factor).unwrap_or(cable[0].rate);
        builder.add_cable(unscaled.name(cable[0].from), unscaled.name(cable[0].to), rate)?;
    }
    builder.build()
}
