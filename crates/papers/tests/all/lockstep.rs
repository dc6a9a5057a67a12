//! Jobs in lockstep: the rules of sharing (Saba, EuroSys '23, sections 2 and 8).

use std::num::NonZeroU16;

use weir_core::model::{ServiceNames, Stage, Workload as Trace};
use weir_core::policy;
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::{Degree, Polynomial};
use weir_core::units::{Bytes, Rate, Time};
use weir_papers::saba::lockstep::cluster::{ClusterError, ClusterOptions, Coupling, PlacedJob, run};
use weir_papers::saba::lockstep::sharing::{ConnectionLifetime, ControllerKind, SabaParameters, SharingRule};
use weir_sim::jobs::workload::{Workload, testbed_link_rate};
use weir_sim::jobs::{Job, add_jobs};
use weir_sim::{NoObserver, ReplayOptions, replay};

fn stage(compute: f64, overlapped: f64, bytes: f64, patience: Option<f64>) -> Stage {
    let time = |value| Time::new(value).unwrap();
    Stage {
        compute: time(compute),
        overlapped_compute: time(overlapped),
        bytes: Bytes::new(bytes).unwrap(),
        max_transfer_time: patience.map(time),
    }
}

fn job(stages: &[Stage], servers: &[u32], model: usize) -> PlacedJob {
    PlacedJob { stages: stages.to_vec(), servers: servers.to_vec(), model: Some(model), start: Time::ZERO }
}

fn options(servers: u32, rate: f64, coupling: Coupling) -> ClusterOptions {
    ClusterOptions { servers, rate: Rate::new(rate).unwrap(), coupling }
}

fn job_ends(jobs: &[PlacedJob], options: &ClusterOptions, sharing: &SharingRule) -> Vec<f64> {
    run(jobs, options, sharing).unwrap().into_iter().map(Time::get).collect()
}

fn saba_rule(models: Vec<Sensitivity>, connections: ConnectionLifetime) -> SharingRule {
    let levels = NonZeroU16::new(16).unwrap();
    SharingRule::Saba(SabaParameters {
        models,
        queues_per_port: 8,
        priority_levels: levels,
        c_saba: Fraction::ALL,
        min_share: DEFAULT_MIN_SHARE,
        connection_lifetime: connections,
        controller_kind: ControllerKind::Central,
    })
}

#[test]
fn single_job_duration_is_the_sum_of_its_stages() {
    let stages = [stage(2.0, 1.0, 30.0, None), stage(0.0, 9.0, 30.0, None), stage(1.0, 0.0, 90.0, Some(4.0))];
    for coupling in [Coupling::Lockstep, Coupling::Independent] {
        let options = options(4, 10.0, coupling);
        let end = job_ends(&[job(&stages, &[0, 1, 3], 0)], &options, &SharingRule::PerFlow)[0];
        let formula: f64 = stages.iter().map(|stage| stage.duration_alone(options.rate)).sum();
        assert_eq!(formula, 2.0 + 3.0 + 9.0 + 1.0 + 4.0);
        assert!((end - formula).abs() < 1e-9, "{coupling:?}: {end}");
    }
}

#[test]
fn flow_sharing_is_per_flow_and_application_sharing_is_even() {
    // Three servers have two flows in each direction at a port, two servers have one. 100 bytes at a
    // contended port.
    let (three, two) = (
        job(&[stage(0.0, 0.0, 100.0, None)], &[0, 1, 2], 0),
        job(&[stage(0.0, 0.0, 100.0, None)], &[0, 1], 0),
    );
    let options = options(3, 10.0, Coupling::Lockstep);
    let flows = job_ends(&[three.clone(), two.clone()], &options, &SharingRule::PerFlow);
    // 2/3 and 1/3: the first ends at 15. The other has 50 bytes left and then uses the whole port.
    assert!((flows[0] - 15.0).abs() < 1e-9 && (flows[1] - 20.0).abs() < 1e-9, "{flows:?}");
    let apps = job_ends(&[three, two], &options, &SharingRule::PerApplication);
    assert!((apps[0] - 20.0).abs() < 1e-9 && (apps[1] - 20.0).abs() < 1e-9, "{apps:?}");
}

#[test]
fn saba_gives_more_bandwidth_to_the_more_sensitive_job() {
    let model = |slope: f64| Sensitivity::new(Polynomial::new(&[1.0 + slope, -2.0 * slope, slope]).unwrap());
    let stages = [stage(0.0, 0.0, 100.0, None)];
    let jobs = [job(&stages, &[0, 1], 0), job(&stages, &[0, 1], 1)];
    for connections in [ConnectionLifetime::Transfer, ConnectionLifetime::Job] {
        // D = 1 + s (1 - b)^2: Eq. 2 makes s (1 - b) equal, so with s of 3 and 1 the shares are 3/4 and 1/4.
        let found = job_ends(
            &jobs,
            &options(2, 10.0, Coupling::Lockstep),
            &saba_rule(vec![model(3.0), model(1.0)], connections),
        );
        assert!((found[0] - 100.0 / 7.5).abs() < 1e-6, "{found:?}");
        assert!((found[1] - 20.0).abs() < 1e-6, "the rest is work-conserving: {found:?}");
    }
}

#[test]
fn lr_gets_more_than_half_against_a_permanent_pr() {
    // Section 2.2: LR's slowdown matches its profile at its bandwidth, and Saba gives LR more bandwidth than
    // max-min.
    let all = Workload::all();
    let workload_index = |name: &str| all.iter().position(|w| w.name == name).unwrap();
    let servers: Vec<u32> = (0..8).collect();
    let lr = &all[workload_index("LR")];
    let endless = [stage(0.0, 0.0, 1e4 * testbed_link_rate().get(), None)];
    let jobs = [
        job(&lr.stages(1.0, 1.0), &servers, workload_index("LR")),
        job(&endless, &servers, workload_index("PR")),
    ];
    let options = ClusterOptions { servers: 8, rate: testbed_link_rate(), coupling: Coupling::Lockstep };
    let models: Vec<Sensitivity> = all.iter().map(|w| Sensitivity::new(w.fit_model(Degree::Cubic))).collect();
    let fair = job_ends(&jobs, &options, &SharingRule::PerFlow)[0] / lr.seconds;
    assert!((fair / lr.shape.slowdown(0.5) - 1.0).abs() < 1e-9, "{fair}");
    let skewed = job_ends(&jobs, &options, &saba_rule(models, ConnectionLifetime::Transfer))[0] / lr.seconds;
    assert!(skewed < 0.9 * fair, "{skewed} {fair}");
}

#[test]
fn stage_simulation_rejects_invalid_jobs() {
    let stages = [stage(0.0, 0.0, 1.0, None)];
    let flat = options(2, 10.0, Coupling::Lockstep);
    for servers in [&[0, 2][..], &[1, 1]] {
        let error = run(&[job(&stages, servers, 0)], &flat, &SharingRule::PerFlow).unwrap_err();
        assert!(matches!(error, ClusterError::InvalidServer { job: 0, servers: 2, .. }), "{error}");
    }
    let dead = options(2, 0.0, Coupling::Lockstep);
    let error = run(&[job(&stages, &[0, 1], 0)], &dead, &SharingRule::PerFlow).unwrap_err();
    assert!(matches!(error, ClusterError::Stalled { job: 0, .. }), "{error}");
    let error =
        run(&[job(&stages, &[0, 1], 5)], &flat, &saba_rule(Vec::new(), ConnectionLifetime::Job)).unwrap_err();
    assert!(error.to_string().contains("model 5 is not a row"), "{error}");
    assert_eq!(job_ends(&[], &flat, &SharingRule::PerFlow), Vec::<f64>::new());
    // Empty stages take no time, however many there are.
    let empty = vec![stage(0.0, 0.0, 0.0, None); 100_000];
    assert_eq!(job_ends(&[job(&empty, &[0, 1], 0)], &flat, &SharingRule::PerFlow), [0.0]);
    // A job that makes no progress fails at the time limit.
    let patient = job(&[stage(0.0, 0.0, 1.0, Some(3.0))], &[0, 1], 0);
    assert_eq!(job_ends(&[patient], &dead, &SharingRule::PerFlow), [3.0]);
}

#[test]
fn symmetric_jobs_in_lockstep_last_as_long_as_with_independent_flows() {
    // If all jobs are on all servers, all flows of a transfer have one rate without lockstep too.
    let servers: Vec<u32> = (0..5).collect();
    let stages = [
        [stage(1.0, 2.0, 30.0, None), stage(0.5, 0.0, 44.0, None)],
        [stage(0.0, 0.0, 90.0, Some(7.0)), stage(3.0, 0.0, 10.0, None)],
        [stage(2.0, 0.0, 25.0, None), stage(0.0, 9.0, 25.0, Some(4.0))],
    ];
    let placed: Vec<PlacedJob> = stages.iter().map(|stages| job(stages, &servers, 0)).collect();
    let ends = job_ends(&placed, &options(5, 10.0, Coupling::Lockstep), &SharingRule::PerFlow);

    let mut trace = Trace { ports: 1, coflows: Vec::new(), events: Vec::new(), names: ServiceNames::empty() };
    let jobs = stages.iter().zip(0..).map(|(stages, number)| Job {
        name: format!("job-{number}"),
        stages: stages.to_vec(),
        hosts: servers.clone(),
        start: Time::ZERO,
    });
    add_jobs(&mut trace, &jobs.collect::<Vec<Job>>(), 1000).unwrap();
    let options = ReplayOptions {
        port_rate: Rate::new(10.0).unwrap(),
        interval: Time::ZERO,
        ..ReplayOptions::default()
    };
    let outcome = replay(&trace, policy::build("fair").unwrap(), &options, &mut NoObserver).unwrap();
    for (job, end) in outcome.jobs.iter().zip(ends) {
        assert!((job.end - end).abs() < 1e-9 * end, "{job:?}: {end}");
    }
}
