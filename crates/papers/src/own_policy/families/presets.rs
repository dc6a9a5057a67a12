//! Families of the generator's presets `facebook` and `small`, and of narrow coflows: sizes, networks and intervals.

use std::sync::Arc;

use weir_console::failure::Failure;
use weir_core::model::{TopologyTemplate, Trunks, Workload};
use weir_core::units::{Bytes, Rate};
use weir_sim::{NetworkModel, ReplayOptions};
use weir_trace::generate::{
    ArrivalProcess, CoflowKind, Distribution, Preset, Resolution, WorkloadSpec, generate,
};
use weir_trace::{Limits, TraceUnit};

use super::random::Random;
use super::{Case, Family, Goal, SAATH_WITH_ESTIMATES, format_interval, goals, seconds, single_flows};

/// Coflows of a workload on a network with several switches.
const FABRIC_COFLOWS: usize = 60;

/// All of these families.
pub fn families<'a>() -> Vec<Family<'a>> {
    let preset = "Workloads of the generator's preset `facebook`";
    let mut like_trace = goals(1.02, 0.88);
    like_trace[0].max_each = Some(1.05);
    let generated =
        Family::generated("Generated", format!("{preset}."), |seed| Ok(Case::from(facebook(seed)?)));
    let skewed = |sigma| {
        Family::generated(
            format!("Skewed sizes, sigma {sigma}"),
            format!("{preset}; {}", skew_description(sigma)),
            move |seed| Ok(Case::from(skew(facebook(seed)?, sigma, seed))),
        )
        .with_goals(goals(1.05, 0.8))
    };
    let fabric = |oversubscription| {
        Family::generated(
            format!("Leaves and spines, {oversubscription}:1"),
            format!(
                "{FABRIC_COFLOWS} coflows of the preset `small` on 10 leaves of 5 hosts and 2 spines. The seed selects the paths too."
            ),
            move |seed| fabric_case(seed, oversubscription),
        )
        .with_goals(goals(1.03, 0.85))
    };
    let mut families = vec![generated.with_goals(like_trace)];
    families.extend([0.5, 1.0].map(skewed));
    families.push(narrow_coflows());
    families.extend([2.0, 3.0, 5.0].map(fabric));
    families.extend([0.0, 8e-3, 32e-3].map(small_at_interval));
    families
}

/// The families on which variants of `weir` are compared. They are small, since there are many variants.
pub fn for_variants<'a>() -> Vec<Family<'a>> {
    let description = format!("Workloads of the preset `small`; {}", skew_description(1.0));
    let skewed = Family::generated("Preset small, sigma 1", description, |seed| {
        Ok(Case::from(skew(generate_workload(&Preset::Small.spec(seed))?, 1.0, seed)))
    });
    vec![small_at_interval(8e-3), skewed, narrow_coflows(), single_flows::for_variants()]
}

/// The workload of a specification.
///
/// # Errors
/// If the specification is invalid.
pub fn generate_workload(spec: &WorkloadSpec) -> Result<Workload, Failure> {
    Ok(generate(spec, TraceUnit::MB, &Limits::default())?)
}

fn facebook(seed: u64) -> Result<Workload, Failure> {
    generate_workload(&Preset::Facebook.spec(seed))
}

fn skew_description(sigma: f64) -> String {
    format!("the size of each flow is multiplied by a lognormal factor of mean 1, with sigma {sigma}.")
}

fn narrow_coflows<'a>() -> Family<'a> {
    let description = "500 coflows of one to three mappers and reducers on 50 ports; the mean sizes of reducers are lognormal.";
    let build = |seed| Ok(Case::from(generate_workload(&narrow(seed))?));
    Family::generated("Narrow coflows", description, build).with_goals(goals(1.12, 0.8))
}

fn small_at_interval<'a>(interval: f64) -> Family<'a> {
    let description = match interval {
        0.0 => "Workloads of the preset `small`, with a schedule at every event.".to_owned(),
        _ => format!(
            "Workloads of the preset `small`, with schedules at multiples of {}.",
            format_interval(interval)
        ),
    };
    let build = move |seed| {
        let workload = generate_workload(&Preset::Small.spec(seed))?;
        Ok(Case {
            workload,
            options: ReplayOptions { interval: seconds(interval), ..ReplayOptions::default() },
        })
    };
    let name = format!("Preset small, interval {}", format_interval(interval));
    Family::generated(name, description, build)
        .with_goals(vec![Goal::over("varys", 1.03), Goal::over(SAATH_WITH_ESTIMATES, 1.0)])
}

/// Coflows of at most three mappers and reducers, which use about two thirds of the ports' capacity.
pub fn narrow(seed: u64) -> WorkloadSpec {
    let width = Distribution::Uniform { min: 1.0, max: 3.0 };
    let kind = CoflowKind { mappers: width, reducers: width, ..CoflowKind::default() };
    WorkloadSpec {
        ports: 50,
        coflows: 500,
        seed,
        arrival: ArrivalProcess::Poisson { mean: seconds(0.015) },
        arrival_resolution: Resolution::PublicTrace,
        size_resolution: Resolution::PublicTrace,
        kinds: vec![kind],
        ..WorkloadSpec::default()
    }
}

fn fabric_case(seed: u64, oversubscription: f64) -> Result<Case, Failure> {
    let template =
        TopologyTemplate::LeafSpine { spines: 2, leaves: 10, hosts: 5, rate: Rate::GBIT, oversubscription };
    let workload = generate_workload(&WorkloadSpec { coflows: FABRIC_COFLOWS, ..Preset::Small.spec(seed) })?;
    let network = network(template, seed)?;
    Ok(Case { workload, options: ReplayOptions { network, ..ReplayOptions::default() } })
}

/// A network of several switches with paths by the seed.
///
/// # Errors
/// If the network cannot be built.
pub fn network(template: TopologyTemplate, seed: u64) -> Result<NetworkModel, Failure> {
    let topology = template.build().map_err(Failure::runtime)?;
    let trunks = Some(Arc::new(Trunks::new(topology, seed).map_err(Failure::runtime)?));
    Ok(NetworkModel { trunks, ..NetworkModel::default() })
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
