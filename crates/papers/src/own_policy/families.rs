//! Families of workloads: the trace, and generated ones that differ in one respect each.

use std::f64::consts::TAU;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};
use weir_console::failure::Failure;
use weir_core::model::{TopologyTemplate, Trunks, Workload};
use weir_core::units::{Bytes, Rate, Time};
use weir_sim::{NetworkModel, ReplayOptions};
use weir_trace::generate::{ArrivalProcess, CoflowKind, Distribution, Preset, WorkloadSpec, generate};
use weir_trace::{Limits, TraceUnit};

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
    /// The goals for the mean of `weir` over that of `varys` and of `saath:requeue=off`, if there are any.
    pub goals: (Option<f64>, Option<f64>),
    /// Whether the page compares variants of `weir` on the family.
    pub has_variants: bool,
}

/// All families, with `seeds` workloads of each generated one.
///
/// # Errors
/// If a workload or a network cannot be built.
pub fn all(trace: &Trace, seeds: u64) -> Result<Vec<Family>, Failure> {
    let seeds = FIRST_SEED..FIRST_SEED + seeds;
    let mut families = Vec::new();
    for factor in [1.0, 2.0, 4.0] {
        families.push(Family {
            name: format!("{}, arrivals x{factor}", trace.name),
            description: format!("Coflows of the trace arrive {factor} times as fast."),
            cases: vec![case(trace.workload.with_faster_arrivals(factor))],
            goals: (Some(1.02), Some(0.9)),
            has_variants: false,
        });
    }
    let generated = |seed: u64| generate_workload(&Preset::Facebook.spec(seed));
    let mut add = |name: &str, description: &str, goals, has_variants, cases: Result<Vec<Case>, Failure>| {
        let (name, description) = (name.to_owned(), description.to_owned());
        families.push(Family { name, description, cases: cases?, goals, has_variants });
        Ok::<(), Failure>(())
    };
    let preset = "Workloads of the generator's preset `facebook`";
    let cases = seeds.clone().map(|seed| generated(seed).map(case)).collect();
    add("Generated", &format!("{preset}."), (Some(1.02), Some(0.88)), true, cases)?;
    for sigma in [0.5, 1.0] {
        let skewed = |seed| Ok(case(skew(generated(seed)?, sigma, seed)));
        let cases = seeds.clone().map(skewed).collect();
        let description = format!(
            "{preset}; the size of each flow is multiplied by a lognormal factor of mean 1, with sigma {sigma}."
        );
        let goals = (Some(1.05), Some(0.8));
        add(&format!("Skewed sizes, sigma {sigma}"), &description, goals, sigma == 1.0, cases)?;
    }
    let cases = seeds.clone().map(|seed| generate_workload(&narrow(seed)).map(case)).collect();
    let description = "500 coflows of one to three mappers and reducers on 50 ports; the mean sizes of reducers are lognormal.";
    add("Narrow coflows", description, (Some(1.3), Some(0.8)), true, cases)?;
    for oversubscription in [2.0, 3.0, 5.0] {
        let cases = seeds.clone().map(|seed| fabric_case(seed, oversubscription)).collect();
        let description = format!(
            "{FABRIC_COFLOWS} coflows of the preset `small` on 10 leaves of 5 hosts and 2 spines. The seed selects the paths too."
        );
        let goals = (Some(1.02), Some(0.85));
        add(&format!("Leaves and spines, {oversubscription}:1"), &description, goals, false, cases)?;
    }
    for (name, seconds) in [("0", 0.0), ("32 ms", 0.032)] {
        let at_interval = |seed| {
            let workload = generate_workload(&Preset::Small.spec(seed))?;
            let interval = Time::new(seconds).unwrap_or(Time::ZERO);
            Ok(Case { workload, options: ReplayOptions { interval, ..ReplayOptions::default() } })
        };
        let cases = seeds.clone().map(at_interval).collect();
        let description = format!("Workloads of the preset `small`, with schedules at multiples of {name}.");
        add(&format!("Interval {name}"), &description, (None, Some(1.0)), false, cases)?;
    }
    Ok(families)
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
    WorkloadSpec { ports: 50, coflows: 500, seed, arrival, kinds: vec![kind] }
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
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // Above 0 and up to 1.
    let mut uniform = || ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    for flow in workload.coflows.iter_mut().flat_map(|coflow| &mut coflow.flows) {
        // A normal number by Box and Muller.
        let normal = (-2.0 * libm::log(uniform())).sqrt() * libm::cos(TAU * uniform());
        let factor = libm::exp(sigma * normal - sigma * sigma / 2.0);
        flow.bytes = Bytes::new(flow.bytes.get() * factor).unwrap_or(flow.bytes);
    }
    workload
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
