//! Families of applications that recur, for priors (`weir:prior=on`): with sizes that priors predict, and with sizes that they do not.

use weir_core::model::{CoflowSpec, ServiceNames, Workload};
use weir_core::units::Bytes;
use weir_trace::generate::{Preset, WorkloadSpec};

use super::presets::{generate_workload, narrow};
use super::random::Random;
use super::{Case, Family};

/// Coflows of an application, and of a workload of the preset.
const RUNS: usize = 20;
const SMALL_COFLOWS: usize = 400;

/// The deviation of the logarithm of an application's mean size from run to run.
const RUN_SIGMA: f64 = 0.25;

const SMALL: &str = "400 coflows of the preset `small`.";
const NARROW: &str = "500 coflows of one to three mappers and reducers on 50 ports.";
const RECURRENCE: &str = "They are sorted by their mean flow sizes and divided into applications of 20. Coflows of an application have the \
    same mean flow size, times a lognormal factor with sigma 0.25.";

const EXCHANGED: &str =
    " In the second half of the coflows, each application has the sizes of another one, chosen at random.";
const TWO_SIZES: &str = " Then the first application also gets the coflows of the last one, the second those of the last but \
    one, and so on: priors are wrong.";

/// The specification of a workload by its seed.
type Spec = fn(u64) -> WorkloadSpec;

/// A change of a workload whose applications recur.
type Change = fn(&mut Workload, &mut Random);

/// All of these families.
pub fn families<'a>() -> Vec<Family<'a>> {
    let kinds: [(&str, &str, &str, Spec, Change); 7] = [
        ("Recurring applications", SMALL, "", small, |_, _| {}),
        ("Recurring narrow coflows", NARROW, "", narrow, |_, _| {}),
        (
            "Recurring applications, skewed sizes",
            SMALL,
            " The size of each flow is multiplied by a lognormal factor, with sigma 0.5.",
            small,
            |workload, random| multiply_flows(workload, 0.5, random),
        ),
        ("Sizes exchanged at half-time", SMALL, EXCHANGED, small, exchange_applications),
        ("Sizes exchanged at half-time, narrow coflows", NARROW, EXCHANGED, narrow, exchange_applications),
        ("Two sizes in each application", SMALL, TWO_SIZES, small, merge_applications),
        ("Two sizes in each application, narrow coflows", NARROW, TWO_SIZES, narrow, merge_applications),
    ];
    let build = |(name, description, detail, spec, change): (&str, &str, &str, Spec, Change)| {
        let description = format!("{description} {RECURRENCE}{detail}");
        Family::generated(name, description, move |seed| {
            let mut workload = generate_workload(&spec(seed))?;
            let mut random = Random::new(seed);
            set_applications(&mut workload, &mut random);
            change(&mut workload, &mut random);
            Ok(Case::from(workload))
        })
    };
    kinds.into_iter().map(build).collect()
}

fn small(seed: u64) -> WorkloadSpec {
    WorkloadSpec { coflows: SMALL_COFLOWS, ..Preset::Small.spec(seed) }
}

/// The mean size of a coflow's flows.
fn mean_size(coflow: &CoflowSpec) -> f64 {
    coflow.total_bytes() / coflow.flows.len() as f64
}

fn multiply(coflow: &mut CoflowSpec, mut factor: impl FnMut() -> f64) {
    for flow in &mut coflow.flows {
        flow.bytes = Bytes::new(flow.bytes.get() * factor()).unwrap_or(flow.bytes);
    }
}

/// Divides coflows with similar mean sizes into applications, and makes the means of each application equal but for noise.
fn set_applications(workload: &mut Workload, random: &mut Random) {
    workload.names = ServiceNames::default();
    let mut by_size: Vec<usize> = (0..workload.coflows.len()).collect();
    by_size.sort_by(|&a, &b| mean_size(&workload.coflows[a]).total_cmp(&mean_size(&workload.coflows[b])));
    for (number, runs) in by_size.chunks(RUNS).enumerate() {
        let name = format!("application-{number}");
        let numbers = workload.names.intern(ServiceNames::DEFAULT, &name);
        let (service, application) = numbers.expect("there are few applications");
        let mean = runs.iter().map(|&run| mean_size(&workload.coflows[run])).sum::<f64>() / runs.len() as f64;
        for &run in runs {
            let coflow = &mut workload.coflows[run];
            (coflow.service, coflow.application) = (service, application);
            let factor = mean * random.lognormal(RUN_SIGMA) / mean_size(coflow);
            multiply(coflow, || factor);
        }
    }
}

fn multiply_flows(workload: &mut Workload, sigma: f64, random: &mut Random) {
    workload.coflows.iter_mut().for_each(|coflow| multiply(coflow, || random.lognormal(sigma)));
}

/// Exchanges the applications of the second half of the coflows.
fn exchange_applications(workload: &mut Workload, random: &mut Random) {
    let mut exchanged: Vec<u32> = (0..workload.names.application_count() as u32).collect();
    // The default application, number 0, has no coflows.
    random.shuffle(&mut exchanged[1..]);
    let half = workload.coflows.len() / 2;
    let second_half = &mut workload.coflows[half..];
    second_half.iter_mut().for_each(|coflow| coflow.application = exchanged[coflow.application as usize]);
}

/// Makes one application of the smallest and the largest coflows, one of the next ones, and so on.
fn merge_applications(workload: &mut Workload, _: &mut Random) {
    // The default application, number 0, has no coflows.
    let count = workload.names.application_count() as u32;
    let coflows = workload.coflows.iter_mut();
    coflows.for_each(|coflow| coflow.application = coflow.application.min(count - coflow.application));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 1;

    #[test]
    fn all_recurring_workloads_are_valid_and_name_applications() {
        for family in families() {
            let workload = &family.cases(&(SEED..SEED + 1)).unwrap()[0].workload;
            assert_eq!(workload.check(), Ok(()), "{}", family.name);
            assert!(workload.coflows.iter().all(|coflow| coflow.application > 0), "{}", family.name);
        }
    }

    #[test]
    fn exchange_changes_applications_of_the_second_half_only() {
        let mut workload = generate_workload(&Preset::Small.spec(SEED)).unwrap();
        set_applications(&mut workload, &mut Random::new(SEED));
        let applications =
            |workload: &Workload| workload.coflows.iter().map(|c| c.application).collect::<Vec<u32>>();
        let before = applications(&workload);
        exchange_applications(&mut workload, &mut Random::new(SEED));
        let (after, half) = (applications(&workload), before.len() / 2);
        assert_eq!(before[..half], after[..half]);
        assert_ne!(before[half..], after[half..]);
    }

    #[test]
    fn coflows_of_an_application_have_similar_mean_sizes() {
        let mut workload = generate_workload(&Preset::Small.spec(SEED)).unwrap();
        set_applications(&mut workload, &mut Random::new(SEED));
        let mut sizes = vec![Vec::new(); workload.names.application_count()];
        workload.coflows.iter().for_each(|c| sizes[c.application as usize].push(mean_size(c)));
        for sizes in sizes.iter().filter(|sizes| !sizes.is_empty()) {
            let (min, max) =
                sizes.iter().fold((f64::INFINITY, 0.0), |(a, b), &s| (f64::min(a, s), f64::max(b, s)));
            // Four deviations to each side.
            assert!(max < min * libm::exp(8.0 * RUN_SIGMA), "{min} to {max}");
        }
    }
}
