//! Jobs as a source: their coflows, the ten calibrated workloads, and profiles (Saba, EuroSys '23, sections 2, 4 and 8).

use crate::common::{coflow, replay_with, time, workload};
use weir_core::model::{ServiceNames, Stage, Workload as Trace};
use weir_core::saba::profile::{PROFILED_FRACTIONS, ProfileError};
use weir_core::solve::polynomial::Degree;
use weir_core::units::{Bytes, Rate};
use weir_sim::NoObserver;
use weir_sim::jobs::calibration::{Quantity, StageShape, fit_shape};
use weir_sim::jobs::workload::{PUBLISHED_FITS, Workload};
use weir_sim::jobs::{AddJobsError, Job, SERVICE, add_jobs, profile};

fn stage(compute: f64, overlapped: f64, bytes: f64, patience: Option<f64>) -> Stage {
    Stage {
        compute: time(compute),
        overlapped_compute: time(overlapped),
        bytes: Bytes::new(bytes).unwrap(),
        max_transfer_time: patience.map(time),
    }
}

fn job(name: &str, stages: &[Stage], hosts: &[u32], start: f64) -> Job {
    Job { name: name.to_owned(), stages: stages.to_vec(), hosts: hosts.to_vec(), start: time(start) }
}

fn empty_trace() -> Trace {
    Trace { ports: 1, coflows: Vec::new(), events: Vec::new(), names: ServiceNames::empty() }
}

fn with_jobs(jobs: &[Job]) -> Trace {
    let mut trace = empty_trace();
    assert_eq!(add_jobs(&mut trace, jobs, 1000), Ok(0));
    trace.check().unwrap();
    trace
}

#[test]
fn job_alone_lasts_as_long_as_the_sum_of_its_stages() {
    let stages = [
        stage(2.0, 1.0, 30.0, None),
        stage(0.0, 9.0, 30.0, None),
        stage(1.0, 2.0, 0.0, None),
        stage(1.0, 0.0, 90.0, Some(4.0)),
        stage(0.5, 0.0, 0.0, None),
    ];
    let formula: f64 = stages.iter().map(|stage| stage.duration_alone(Rate::new(10.0).unwrap())).sum();
    assert_eq!(formula, 5.0 + 9.0 + 3.0 + 5.0 + 0.5);
    let trace = with_jobs(&[job("one", &stages, &[0, 1, 3], 7.0), job("alone", &stages, &[2], 1.0)]);
    // Policies that decide for each flow alone, such as `pfp`, leave ports idle.
    for policy in ["fair", "saath", "varys", "aalo", "netshare", "saba"] {
        let outcome = replay_with(&trace, policy, 10.0, 0.0, &mut NoObserver).unwrap();
        let durations: Vec<f64> = outcome.jobs.iter().map(|job| job.end - job.arrival).collect();
        assert!((durations[0] - formula).abs() < 1e-9, "{policy}: {durations:?}");
        // One host computes for 2 + 1, 9, 3, 1 and 0.5 s, and sends nothing.
        assert!((durations[1] - 16.5).abs() < 1e-9, "{policy}: {durations:?}");
        assert_eq!(outcome.jobs.iter().map(|job| job.arrival).collect::<Vec<_>>(), [7.0, 1.0], "{policy}");
    }
}

#[test]
fn jobs_follow_the_numbers_and_names_of_the_trace() {
    let mut first = coflow(5, 0.0, &[(0, 1, 1.0)]);
    first.job = Some(3);
    let mut trace = workload(2, vec![first]);
    let stages = [stage(0.0, 0.0, 6.0, None), stage(0.0, 0.0, 6.0, None)];
    let jobs = [job("a", &stages, &[0, 2], 0.0), job("b", &stages, &[1, 3, 2], 0.0)];
    assert_eq!(add_jobs(&mut trace, &jobs, 100), Ok(4));
    trace.check().unwrap();
    assert_eq!(trace.ports, 4);
    let numbers: Vec<_> = trace.coflows.iter().map(|c| (c.id, c.job, c.stage, c.parents.clone())).collect();
    let of_job = |id, job, stage, parents: &[usize]| (id, Some(job), stage, parents.to_vec());
    assert_eq!(
        numbers,
        [
            of_job(5, 3, None, &[]),
            of_job(6, 4, Some(0), &[]),
            of_job(7, 4, Some(1), &[1]),
            of_job(8, 5, Some(0), &[]),
            of_job(9, 5, Some(1), &[3]),
        ]
    );
    assert_eq!(
        trace.names.find(SERVICE, "b"),
        Some((trace.coflows[3].service, trace.coflows[3].application))
    );
    assert!(trace.coflows[3].flows.iter().all(|flow| flow.bytes.get() == 3.0 && flow.src != flow.dst));
}

#[test]
fn jobs_that_do_not_fit_leave_the_trace_unchanged() {
    let mut trace = workload(2, vec![coflow(u64::MAX, 0.0, &[(0, 1, 1.0)])]);
    let before = trace.clone();
    let stages = [stage(0.0, 0.0, 6.0, None)];
    let one = [job("a", &stages, &[0, 1], 0.0)];
    assert_eq!(add_jobs(&mut trace, &one, 100), Err(AddJobsError::NumbersUsedUp));
    assert_eq!(add_jobs(&mut trace, &one, 2), Err(AddJobsError::TooManyFlows { max: 2 }));
    assert_eq!(trace, before);
    let many: Vec<Job> = (0..=ServiceNames::MAX_APPLICATIONS)
        .map(|number| job(&format!("job-{number}"), &stages, &[0], 0.0))
        .collect();
    let mut trace = empty_trace();
    assert_eq!(add_jobs(&mut trace, &many, 10_000), Err(AddJobsError::TooManyApplications));
    assert_eq!(
        add_jobs(&mut trace, &[job("a", &stages, &[], 0.0)], 100),
        Err(AddJobsError::NoHosts("a".to_owned()))
    );
    assert_eq!(trace, empty_trace());
}

#[test]
fn stages_without_time_have_no_profile() {
    let idle = [stage(0.0, 0.0, 0.0, None)];
    assert!(matches!(profile(&idle, Rate::GBIT), Err(ProfileError::ZeroTime { .. })));
    let endless = [stage(0.0, 0.0, 1.0, None)];
    assert!(matches!(profile(&endless, Rate::ZERO), Err(ProfileError::RunFailed { .. })));
}

#[test]
fn simulated_profiles_match_the_formula() {
    // Section 7.1's seven bandwidths, on the 8 servers of section 2.1.
    for workload in Workload::all() {
        let profile = workload.profile().unwrap();
        assert_eq!(profile.runs().len(), PROFILED_FRACTIONS.len());
        for (sample, (_, slowdown)) in profile.runs().iter().zip(workload.shape.samples()) {
            assert!((sample.slowdown / slowdown - 1.0).abs() < 1e-9, "{}: {sample:?}", workload.name);
        }
    }
}

#[test]
fn simulated_slowdowns_match_the_paper_within_a_few_percent() {
    // Fig. 1, 2, 5 and 6 with the numbers of the text. docs/results/saba.md also lists deviations above 4 %.
    for workload in Workload::all() {
        for target in workload.targets.iter().filter(|target| target.source.is_some()) {
            let measured = workload.shape.value_of(target.quantity);
            let (miss, most) = match target.quantity {
                Quantity::ModelR2(_) => ((measured - target.value).abs(), 0.03),
                _ => ((measured / target.value - 1.0).abs(), 0.02),
            };
            assert!(
                miss < most,
                "{}: {:?}: {measured} instead of {}",
                workload.name,
                target.quantity,
                target.value
            );
        }
    }
}

#[test]
fn slowdowns_at_a_quarter_average_as_published() {
    // Section 2.1: from 1.1 (Sort) to 3.4 (LR), 2.1 on average.
    let all = Workload::all();
    let quarters: Vec<f64> = all.iter().map(|w| w.shape.slowdown(0.25)).collect();
    let mean = quarters.iter().sum::<f64>() / 10.0;
    assert!((mean - 2.1).abs() < 0.02, "{mean}");
    let (least, most) = (
        quarters.iter().copied().fold(f64::INFINITY, f64::min),
        quarters.iter().copied().fold(0.0, f64::max),
    );
    assert_eq!(quarters.iter().position(|q| *q == least), all.iter().position(|w| w.name == "Sort"));
    assert_eq!(quarters.iter().position(|q| *q == most), all.iter().position(|w| w.name == "LR"));
}

#[test]
fn calibration_ends_at_a_local_optimum() {
    let workloads = Workload::all();
    let lr = &workloads[0];
    let least = lr.shape.squared_error(&lr.targets);
    for factor in [0.99, 1.01] {
        let others = [
            StageShape { transfer: lr.shape.transfer * factor, ..lr.shape },
            StageShape { max_transfer_time: lr.shape.max_transfer_time * factor, ..lr.shape },
            StageShape { second_transfer: lr.shape.second_transfer * factor, ..lr.shape },
        ];
        for other in others {
            assert!(other.squared_error(&lr.targets) > least, "{other:?}");
        }
    }
    assert_eq!(fit_shape(lr.shape, &[], &lr.targets), lr.shape, "no free parameters");
}

#[test]
fn r2_drops_for_other_data_sizes_and_node_counts_as_published() {
    // Section 4.2: each drifted setting has an R^2 below that of the profiled setting.
    let all = Workload::all();
    for drift in &PUBLISHED_FITS {
        let workload = all.iter().find(|w| w.name == drift.name).unwrap();
        let own = workload.model_r2(Degree::Cubic, 1.0, 1.0);
        assert!(workload.model_r2(Degree::Cubic, drift.data_scale, drift.node_scale) < own, "{drift:?}");
    }
    for workload in &all {
        assert_eq!(
            workload.scaled_shape(1.0, 1.0).slowdown(0.25),
            workload.shape.slowdown(0.25),
            "{}",
            workload.name
        );
    }
}
