//! Families of workloads: the trace, and generated ones that differ in one respect each.

mod changing;
mod recurring;

use std::f64::consts::TAU;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};
use weir_console::failure::Failure;
use weir_core::model::{TopologyTemplate, Trunks, Workload};
use weir_core::units::{Bytes, Rate, Time};
use weir_sim::{NetworkModel, ReplayOptions};
use weir_trace::generate::{
    ArrivalProcess, CoflowKind, Distribution, Preset, Resolution, WorkloadSpec, generate,
};
use weir_trace::{Limits, TraceUnit};

pub use recurring::families as recurring;

use super::{SAATH, SAATH_WITH_ESTIMATES};
use crate::Trace;

/// The first seed. Constants of the policy were chosen with smaller seeds.
const FIRST_SEED: u64 = 1001;

/// Coflows of a workload on a network with several switches.
const FABRIC_COFLOWS: usize = 60;

/// A workload and its network.
pub struct Case {
    /// The coflows.
    pub workload: Workload,
    /// The network and the schedules.
    pub options: ReplayOptions,
}

/// Workloads of one kind.
pub struct Family {
    /// The name.
    pub name: String,
    /// What the workloads are.
    pub description: String,
    /// The workloads.
    pub cases: Vec<Case>,
    /// The goals for the mean of `weir`.
    pub goals: Vec<Goal>,
}

/// A goal for the mean of `weir`.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    /// The policy that it is compared with.
    pub against: &'static str,
    /// The maximum of the mean ratio over all workloads.
    pub max_mean: f64,
    /// The maximum of the ratio of each workload, if there is one.
    pub max_each: Option<f64>,
}

/// Goals against `varys` and against Saath.
fn goals(varys: f64, saath: f64) -> Vec<Goal> {
    let goal = |against, max_mean| Goal { against, max_mean, max_each: None };
    vec![goal("varys", varys), goal(SAATH, saath)]
}

/// The goal to be no worse than Saath with re-queueing.
fn no_worse_than_saath() -> Vec<Goal> {
    vec![Goal { against: SAATH_WITH_ESTIMATES, max_mean: 1.0, max_each: None }]
}

/// All families, with `seeds` workloads of each generated one.
///
/// # Errors
/// If a workload or a network cannot be built.
pub fn all(trace: &Trace, seeds: u64) -> Result<Vec<Family>, Failure> {
    let mut families = Vec::new();
    for factor in [1.0, 2.0, 4.0] {
        families.push(Family {
            name: format!("{}, arrivals x{factor}", trace.name),
            description: match factor {
                1.0 => "Coflows arrive as in the trace.".to_owned(),
                _ => format!("Coflows of the trace arrive {factor} times as fast."),
            },
            cases: vec![case(trace.workload.with_faster_arrivals(factor))],
            goals: goals(1.02, 0.9),
        });
    }
    let preset = "Workloads of the generator's preset `facebook`";
    let mut like_trace = goals(1.02, 0.88);
    like_trace[0].max_each = Some(1.05);
    let facebook = |seed: u64| generate_workload(&Preset::Facebook.spec(seed));
    families.push(generated("Generated", &format!("{preset}."), like_trace, seeds, &|seed| {
        Ok(case(facebook(seed)?))
    })?);
    for sigma in [0.5, 1.0] {
        families.push(generated(
            &format!("Skewed sizes, sigma {sigma}"),
            &format!("{preset}; {}", skew_description(sigma)),
            goals(1.05, 0.8),
            seeds,
            &|seed| Ok(case(skew(facebook(seed)?, sigma, seed))),
        )?);
    }
    families.push(narrow_coflows(seeds)?);
    for oversubscription in [2.0, 3.0, 5.0] {
        families.push(generated(
            &format!("Leaves and spines, {oversubscription}:1"),
            &format!(
                "{FABRIC_COFLOWS} coflows of the preset `small` on 10 leaves of 5 hosts and 2 spines. The seed selects the paths too."
            ),
            goals(1.02, 0.85),
            seeds,
            &|seed| fabric_case(seed, oversubscription),
        )?);
    }
    for milliseconds in [0.0, 8.0, 32.0] {
        families.push(small_at_interval(milliseconds, seeds)?);
    }
    families.extend(changing::families(seeds)?);
    Ok(families)
}

/// The families on which variants of `weir` are compared. They are small, since there are many variants.
///
/// # Errors
/// If a workload cannot be built.
pub fn for_variants(seeds: u64) -> Result<Vec<Family>, Failure> {
    let description = format!("Workloads of the preset `small`; {}", skew_description(1.0));
    let skewed = generated("Preset `small`, sigma 1", &description, Vec::new(), seeds, &|seed| {
        Ok(case(skew(generate_workload(&Preset::Small.spec(seed))?, 1.0, seed)))
    })?;
    Ok(vec![small_at_interval(8.0, seeds)?, skewed, narrow_coflows(seeds)?])
}

/// A family with one workload by seed.
fn generated(
    name: &str,
    description: &str,
    goals: Vec<Goal>,
    seeds: u64,
    build: &dyn Fn(u64) -> Result<Case, Failure>,
) -> Result<Family, Failure> {
    let cases = (FIRST_SEED..FIRST_SEED + seeds).map(build).collect::<Result<_, _>>()?;
    Ok(Family { name: name.to_owned(), description: description.to_owned(), cases, goals })
}

fn skew_description(sigma: f64) -> String {
    format!("the size of each flow is multiplied by a lognormal factor of mean 1, with sigma {sigma}.")
}

fn narrow_coflows(seeds: u64) -> Result<Family, Failure> {
    let description = "500 coflows of one to three mappers and reducers on 50 ports; the mean sizes of reducers are lognormal.";
    let build = |seed| Ok(case(generate_workload(&narrow(seed))?));
    generated("Narrow coflows", description, goals(1.3, 0.8), seeds, &build)
}

fn small_at_interval(milliseconds: f64, seeds: u64) -> Result<Family, Failure> {
    let interval = Time::new(milliseconds / 1e3).unwrap_or(Time::ZERO);
    let build = |seed| {
        let workload = generate_workload(&Preset::Small.spec(seed))?;
        Ok(Case { workload, options: ReplayOptions { interval, ..ReplayOptions::default() } })
    };
    let description = match milliseconds {
        0.0 => "Workloads of the preset `small`, with a schedule at every event.".to_owned(),
        _ => format!("Workloads of the preset `small`, with schedules at multiples of {milliseconds} ms."),
    };
    generated(&format!("Interval {milliseconds} ms"), &description, no_worse_than_saath(), seeds, &build)
}

fn case(workload: Workload) -> Case {
    Case { workload, options: ReplayOptions::default() }
}

fn generate_workload(spec: &WorkloadSpec) -> Result<Workload, Failure> {
    Ok(generate(spec, TraceUnit::MB, &Limits::default())?)
}

/// Coflows of at most three mappers and reducers, which use about two thirds of the ports' capacity.
fn narrow(seed: u64) -> WorkloadSpec {
    let width = Distribution::Uniform { min: 1.0, max: 3.0 };
    let kind = CoflowKind { mappers: width, reducers: width, ..CoflowKind::default() };
    let arrival = ArrivalProcess::Poisson { mean: Time::new(0.015).unwrap_or(Time::ZERO) };
    WorkloadSpec {
        ports: 50,
        coflows: 500,
        seed,
        arrival,
        arrival_resolution: Resolution::PublicTrace,
        size_resolution: Resolution::PublicTrace,
        kinds: vec![kind],
    }
}

fn fabric_case(seed: u64, oversubscription: f64) -> Result<Case, Failure> {
    let template =
        TopologyTemplate::LeafSpine { spines: 2, leaves: 10, hosts: 5, rate: Rate::GBIT, oversubscription };
    let topology = template.build().map_err(Failure::runtime)?;
    let trunks = Some(Arc::new(Trunks::new(topology, seed).map_err(Failure::runtime)?));
    let workload = generate_workload(&WorkloadSpec { coflows: FABRIC_COFLOWS, ..Preset::Small.spec(seed) })?;
    let network = NetworkModel { trunks, ..NetworkModel::default() };
    Ok(Case { workload, options: ReplayOptions { network, ..ReplayOptions::default() } })
}

/// Multiplies the size of each flow by a lognormal factor of mean 1.
fn skew(mut workload: Workload, sigma: f64, seed: u64) -> Workload {
    let mut random = Random::new(seed);
    for flow in workload.coflows.iter_mut().flat_map(|coflow| &mut coflow.flows) {
        let factor = random.lognormal(sigma);
        flow.bytes = Bytes::new(flow.bytes.get() * factor).unwrap_or(flow.bytes);
    }
    workload
}

/// Random numbers that are equal on every platform.
struct Random(ChaCha8Rng);

impl Random {
    fn new(seed: u64) -> Random {
        Random(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A uniform number above 0 and up to 1.
    fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A uniform number between two.
    fn between(&mut self, min: f64, max: f64) -> f64 {
        min + (max - min) * self.uniform()
    }

    /// A lognormal number of mean 1. `sigma` is the deviation of its logarithm.
    fn lognormal(&mut self, sigma: f64) -> f64 {
        // A normal number by Box and Muller.
        let normal = (-2.0 * libm::log(self.uniform())).sqrt() * libm::cos(TAU * self.uniform());
        libm::exp(sigma * normal - sigma * sigma / 2.0)
    }

    /// Brings a list into a random order.
    fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (2..=list.len()).rev() {
            list.swap(end - 1, self.position(end));
        }
    }

    /// A uniform position in a list of this length, which is not empty.
    fn position(&mut self, length: usize) -> usize {
        ((self.uniform() * length as f64) as usize).min(length - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skew_keeps_the_mean_size_and_depends_on_the_seed_only() {
        let workload = generate_workload(&Preset::Small.spec(1)).unwrap();
        let bytes = |workload: &Workload| -> Vec<f64> {
            let flows = workload.coflows.iter().flat_map(|coflow| &coflow.flows);
            flows.map(|flow| flow.bytes.get()).collect()
        };
        let skewed = skew(workload.clone(), 0.5, 7);
        assert_eq!(skewed, skew(workload.clone(), 0.5, 7));
        let (before, after) = (bytes(&workload), bytes(&skewed));
        let ratios: Vec<f64> = before.iter().zip(&after).map(|(before, after)| after / before).collect();
        let mean = weir_sim::outcome::mean(&ratios);
        // Four standard errors.
        let tolerance = 4.0 * (libm::exp(0.25) - 1.0).sqrt() / (ratios.len() as f64).sqrt();
        assert!((mean - 1.0).abs() < tolerance, "{mean} of {} flows", ratios.len());
    }
}
