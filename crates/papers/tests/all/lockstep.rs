//! Jobs in lockstep: the rules of sharing, networks with paths, and the alternatives of section 8.4 (Saba, EuroSys '23, sections 2 and 8).

use std::num::NonZeroU16;

use weir_core::model::topology::TopologyTemplate;
use weir_core::model::{ServiceNames, Stage, Workload as Trace};
use weir_core::policy;
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::{Degree, Polynomial};
use weir_core::units::{Bytes, Rate, Time};
use weir_papers::saba::lockstep::fabric::JobLinks;
use weir_papers::saba::lockstep::sharing::{
    ConnectionLifetime, ControllerKind, SabaParameters, SharingError, SharingRule, equal_bytes_cutoffs,
};
use weir_papers::saba::lockstep::{LockstepError, PlacedJob, run};
use weir_sim::jobs::workload::{Workload, testbed_link_rate};
use weir_sim::jobs::{Job, add_jobs};
use weir_sim::{NoObserver, Observer, ReplayError, ReplayOptions, Snapshot, replay};

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

fn transfer_stage(bytes: f64) -> Stage {
    stage(0.0, 0.0, bytes, None)
}

fn switch(hosts: u32, rate: f64) -> TopologyTemplate {
    TopologyTemplate::BigSwitch { hosts, rate: Rate::new(rate).unwrap() }
}

fn fabric(plan: TopologyTemplate, jobs: &[PlacedJob]) -> JobLinks {
    let servers: Vec<Vec<u32>> = jobs.iter().map(|job| job.servers.clone()).collect();
    JobLinks::new(&plan.build().unwrap(), &servers).unwrap()
}

fn job_ends(jobs: &[PlacedJob], fabric: &JobLinks, sharing: &SharingRule) -> Vec<f64> {
    let ended = run(jobs, fabric, sharing, &mut NoObserver).unwrap();
    assert_eq!(ended.unsettled_computations, 0, "{ended:?}");
    ended.ends.into_iter().map(Time::get).collect()
}

fn switch_job_ends(jobs: &[PlacedJob], plan: TopologyTemplate, sharing: &SharingRule) -> Vec<f64> {
    job_ends(jobs, &fabric(plan, jobs), sharing)
}

fn run_error(jobs: &[PlacedJob], fabric: &JobLinks, sharing: &SharingRule) -> LockstepError {
    run(jobs, fabric, sharing, &mut NoObserver).unwrap_err()
}

fn saba(models: Vec<Sensitivity>) -> SabaParameters {
    SabaParameters {
        models,
        queues_per_port: 8,
        priority_levels: NonZeroU16::new(16).unwrap(),
        c_saba: Fraction::ALL,
        min_share: DEFAULT_MIN_SHARE,
        connection_lifetime: ConnectionLifetime::Transfer,
        controller_kind: ControllerKind::Central,
    }
}

fn models(workloads: &[Workload]) -> Vec<Sensitivity> {
    workloads.iter().map(|workload| Sensitivity::new(workload.fit_model(Degree::Cubic))).collect()
}

#[test]
fn single_job_duration_is_the_sum_of_its_stages() {
    let stages = [stage(2.0, 1.0, 30.0, None), stage(0.0, 9.0, 30.0, None), stage(1.0, 0.0, 90.0, Some(4.0))];
    let end = switch_job_ends(&[job(&stages, &[0, 1, 3], 0)], switch(4, 10.0), &SharingRule::PerFlow)[0];
    let formula: f64 = stages.iter().map(|stage| stage.duration_alone(Rate::new(10.0).unwrap())).sum();
    assert_eq!(formula, 2.0 + 3.0 + 9.0 + 1.0 + 4.0);
    assert!((end - formula).abs() < 1e-9, "{end}");
}

#[test]
fn flow_sharing_is_per_flow_and_application_sharing_is_even() {
    // Three servers have two flows in each direction at a port, two servers have one. 100 bytes at a
    // contended port.
    let (three, two) = (
        job(&[stage(0.0, 0.0, 100.0, None)], &[0, 1, 2], 0),
        job(&[stage(0.0, 0.0, 100.0, None)], &[0, 1], 0),
    );
    let jobs = [three, two];
    let flows = switch_job_ends(&jobs, switch(3, 10.0), &SharingRule::PerFlow);
    // 2/3 and 1/3: the first ends at 15. The other has 50 bytes left and then uses the whole port.
    assert!((flows[0] - 15.0).abs() < 1e-9 && (flows[1] - 20.0).abs() < 1e-9, "{flows:?}");
    let apps = switch_job_ends(&jobs, switch(3, 10.0), &SharingRule::PerApplication);
    assert!((apps[0] - 20.0).abs() < 1e-9 && (apps[1] - 20.0).abs() < 1e-9, "{apps:?}");
}

#[test]
fn saba_gives_more_bandwidth_to_the_more_sensitive_job() {
    let model = |slope: f64| Sensitivity::new(Polynomial::new(&[1.0 + slope, -2.0 * slope, slope]).unwrap());
    let stages = [stage(0.0, 0.0, 100.0, None)];
    let jobs = [job(&stages, &[0, 1], 0), job(&stages, &[0, 1], 1)];
    for connections in [ConnectionLifetime::Transfer, ConnectionLifetime::Job] {
        // D = 1 + s (1 - b)^2: Eq. 2 makes s (1 - b) equal, so with s of 3 and 1 the shares are 3/4 and 1/4.
        let parameters =
            SabaParameters { connection_lifetime: connections, ..saba(vec![model(3.0), model(1.0)]) };
        let found = switch_job_ends(&jobs, switch(2, 10.0), &SharingRule::Saba(parameters));
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
    let plan = switch(8, testbed_link_rate().get());
    let fair = switch_job_ends(&jobs, plan, &SharingRule::PerFlow)[0] / lr.seconds;
    assert!((fair / lr.shape.slowdown(0.5) - 1.0).abs() < 1e-9, "{fair}");
    let skewed = switch_job_ends(&jobs, plan, &SharingRule::Saba(saba(models(&all))))[0] / lr.seconds;
    assert!(skewed < 0.9 * fair, "{skewed} {fair}");
}

#[test]
fn invalid_jobs_are_rejected_and_empty_ones_take_no_time() {
    let stages = [transfer_stage(1.0)];
    let topology = switch(2, 10.0).build().unwrap();
    for servers in [vec![0, 2], vec![1, 1]] {
        let error = JobLinks::new(&topology, &[servers]).unwrap_err();
        assert!(matches!(error, LockstepError::InvalidServer { job: 0, servers: 2, .. }), "{error}");
    }
    let links = JobLinks::new(&topology, &[vec![0, 1]]).unwrap();
    let error = run_error(&[job(&stages, &[0, 1], 5)], &links, &SharingRule::Saba(saba(Vec::new())));
    assert!(error.to_string().contains("model 5 is not a row"), "{error}");
    let error = run_error(&[], &links, &SharingRule::PerFlow);
    assert_eq!(error, LockstepError::WrongJobCount { jobs: 0, expected: 1 });
    assert_eq!(switch_job_ends(&[], switch(2, 10.0), &SharingRule::PerFlow), Vec::<f64>::new());
    // Empty stages take no time, however many there are.
    let empty = vec![transfer_stage(0.0); 100_000];
    assert_eq!(job_ends(&[job(&empty, &[0, 1], 0)], &links, &SharingRule::PerFlow), [0.0]);
    // So do the transfers of a job with one server.
    assert_eq!(switch_job_ends(&[job(&stages, &[1], 0)], switch(2, 10.0), &SharingRule::PerFlow), [0.0]);
}

#[test]
fn transfers_that_reach_their_limit_without_a_byte_are_over() {
    // Each transfer opens the connections of its job. A former transfer that stayed open would be in the way of the next.
    let stages = vec![stage(1.0, 0.0, 30.0, Some(0.0)); 3];
    let jobs = [job(&stages, &[0, 1], 0), job(&[transfer_stage(30.0)], &[0, 1], 1)];
    let ends = switch_job_ends(&jobs, switch(2, 10.0), &SharingRule::Saba(saba(models(&Workload::all()))));
    assert!((ends[0] - 3.0).abs() < 1e-9 && (ends[1] - 3.0).abs() < 1e-9, "{ends:?}");
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
    let ends = switch_job_ends(&placed, switch(5, 10.0), &SharingRule::PerFlow);

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

#[test]
fn flows_are_counted_on_every_link_of_their_paths() {
    // Two leaves of two hosts, two spines, all links equal. The job uses all four hosts. Of each host's three
    // flows two leave the leaf, so each of the leaf's two uplinks carries 2 of 4.
    let plan = TopologyTemplate::LeafSpine {
        spines: 2,
        leaves: 2,
        hosts: 2,
        rate: testbed_link_rate(),
        oversubscription: 1.0,
    };
    let jobs = [job(&[transfer_stage(1e12)], &[0, 1, 2, 3], 0)];
    let even = fabric(plan, &jobs);
    // Host links carry 3 flows each, links between switches 2.
    assert_eq!(even.link_counts(), (8 + 8, 2));
    let alone = job_ends(&jobs, &even, &SharingRule::PerFlow)[0];
    assert!((alone - 1e12 / testbed_link_rate().get()).abs() < 1e-9);
}

#[test]
fn coflow_and_size_priorities_are_strict() {
    let plan = switch(3, 10.0);
    // Two jobs on the same servers, with 20 and 40 bytes per server.
    let jobs = [job(&[transfer_stage(40.0)], &[0, 1], 0), job(&[transfer_stage(20.0)], &[0, 1], 0)];
    let fabric = fabric(plan, &jobs);
    assert_eq!(job_ends(&jobs, &fabric, &SharingRule::PerFlow), [6.0, 4.0]);
    assert_eq!(
        job_ends(&jobs, &fabric, &SharingRule::CoflowOrder),
        [6.0, 2.0],
        "Sincronia: the smaller one first"
    );
    assert_eq!(job_ends(&jobs, &fabric, &SharingRule::SizePriorities(vec![20.0])), [6.0, 2.0]);
    assert_eq!(
        job_ends(&jobs, &fabric, &SharingRule::SizePriorities(vec![40.0])),
        [6.0, 4.0],
        "one priority for both"
    );
}

#[test]
fn even_cutoffs_divide_bytes_evenly_over_priorities() {
    let (small, large) =
        ([transfer_stage(10.0), transfer_stage(30.0)], [transfer_stage(20.0), transfer_stage(60.0)]);
    // Flows of 10, 30, 20 and 60 bytes of two servers each: 240 bytes, of which 120 are in flows of up to 30.
    let jobs = [(&small[..], 2), (&large[..], 2)];
    assert_eq!(equal_bytes_cutoffs(&jobs, 2), [30.0]);
    assert_eq!(equal_bytes_cutoffs(&jobs, 1), [0.0; 0]);
    // With three servers, each flow is half of a server's bytes.
    assert_eq!(equal_bytes_cutoffs(&[(&small[..], 3), (&large[..], 3)], 2), [15.0]);
}

struct StopAtSecond2;

impl Observer for StopAtSecond2 {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        snapshot.now() < 2.0
    }
}

#[test]
fn jobs_start_at_their_arrival_times() {
    let plan = switch(2, 10.0);
    let late = |start, bytes| PlacedJob {
        start: Time::new(start).unwrap(),
        ..job(&[transfer_stage(bytes)], &[0, 1], 0)
    };
    // 40 bytes from 0, 10 from 2: alone for 2 s, half of the link each for 2 s, and alone for the last
    // second.
    let jobs = [late(0.0, 40.0), late(2.0, 10.0)];
    let fabric = fabric(plan, &jobs);
    assert_eq!(job_ends(&jobs, &fabric, &SharingRule::PerFlow), [5.0, 4.0]);
    // Only active coflows have a priority.
    assert_eq!(job_ends(&jobs, &fabric, &SharingRule::CoflowOrder), [5.0, 3.0]);
    let saba = SharingRule::Saba(saba(models(&Workload::all()[..1])));
    assert_eq!(job_ends(&jobs, &fabric, &saba), [5.0, 4.0], "the same model");
    let stopped = run(&jobs, &fabric, &SharingRule::PerFlow, &mut StopAtSecond2).unwrap_err();
    assert_eq!(stopped, LockstepError::Replay(ReplayError::Interrupted { completed: 0, total: 2 }));
}

/// Section 5.3.2: a job that does not use Saba uses a separate queue, with the capacity outside C_saba.
#[test]
fn job_without_saba_uses_the_reserved_queue() {
    let plan = switch(2, 10.0);
    let own = |bytes| PlacedJob { model: None, ..job(&[transfer_stage(bytes)], &[0, 1], 0) };
    let jobs =
        [job(&[transfer_stage(20.0)], &[0, 1], 0), job(&[transfer_stage(30.0)], &[0, 1], 1), own(60.0)];
    let fabric = fabric(plan, &jobs);
    let workloads = Workload::all();
    let with = |c_saba: f64, connections| {
        let c_saba = Fraction::new(c_saba).unwrap();
        SabaParameters { c_saba, connection_lifetime: connections, ..saba(models(&workloads)) }
    };
    for connections in [ConnectionLifetime::Transfer, ConnectionLifetime::Job] {
        for c_saba in [0.25, 0.5, 0.75] {
            let found = job_ends(&jobs, &fabric, &SharingRule::Saba(with(c_saba, connections)));
            // Saba's two jobs together get C_saba of the link until the last of them ends, however they
            // divide it.
            let last = found[0].max(found[1]);
            let theirs = 50.0 / (10.0 * c_saba);
            let alone = 60.0 / (10.0 * (1.0 - c_saba));
            if theirs <= alone {
                assert!((last - theirs).abs() < 1e-6, "{c_saba}: {found:?}");
            } else {
                assert!((found[2] - alone).abs() < 1e-6, "{c_saba}: {found:?}");
            }
            // The other jobs use the unused bandwidth: 110 bytes in 11 s.
            assert!((last.max(found[2]) - 11.0).abs() < 1e-6, "{c_saba}: {found:?}");
        }
    }
    let all = SharingRule::Saba(with(1.0, ConnectionLifetime::Transfer));
    let refused = run_error(&jobs, &fabric, &all);
    assert_eq!(refused, LockstepError::Sharing(SharingError::NoQueueForJob { job: 2 }));
    // With a single queue no capacity can be reserved.
    let one =
        SharingRule::Saba(SabaParameters { queues_per_port: 1, ..with(0.5, ConnectionLifetime::Transfer) });
    let refused = run_error(&jobs, &fabric, &one).to_string();
    assert!(refused.contains("too few queues (1); expected at least 2"), "{refused}");
}

#[test]
fn oversized_fabric_is_rejected_before_allocation() {
    let topology = switch(10_001, 10.0).build().unwrap();
    let jobs = vec![vec![0]; 2_500];
    let refused = JobLinks::new(&topology, &jobs).unwrap_err().to_string();
    assert_eq!(refused, "too many jobs times links of the network (50005000); expected at most 50000000");
}

/// Section 5.3.1: a registration may move other applications to other levels, and with that to other queues,
/// at once.
#[test]
fn late_registration_changes_rates_immediately() {
    let plan = switch(2, 10.0);
    let long = [transfer_stage(1000.0)];
    // The last job computes for long, so nothing starts or ends when it registers. Its model is far from all
    // others.
    let last = [Stage { compute: Time::new(1e4).unwrap(), ..transfer_stage(0.0) }];
    let jobs: Vec<PlacedJob> = (0..4)
        .map(|model| match model {
            3 => PlacedJob { start: Time::new(5.0).unwrap(), ..job(&last, &[0, 1], 3) },
            model => job(&long, &[0, 1], model),
        })
        .collect();
    let line = |slope: f64| Sensitivity::new(Polynomial::new(&[1.0 + slope, -slope]).unwrap());
    let models: Vec<Sensitivity> = [0.5, 1.0, 3.0, 90.0].map(line).to_vec();
    let fabric = fabric(plan, &jobs);
    let with = |levels, jobs: &[PlacedJob], fabric: &JobLinks| {
        let saba =
            SabaParameters { priority_levels: NonZeroU16::new(levels).unwrap(), ..saba(models.clone()) };
        job_ends(jobs, fabric, &SharingRule::Saba(saba))
    };
    // With two levels and the far one registered, the three share one level. Without it, the steepest of the
    // three has its own.
    let before = with(2, &jobs[..3], &self::fabric(plan, &jobs[..3]));
    let after = with(2, &jobs, &fabric);
    // At 5 s all rates become the rates with four jobs from the start.
    let from_start: Vec<PlacedJob> =
        jobs.iter().map(|job| PlacedJob { start: Time::ZERO, ..job.clone() }).collect();
    let whole = with(2, &from_start, &fabric);
    let first = (0..3).min_by(|&a, &b| after[a].total_cmp(&after[b])).unwrap();
    let (old, new) = (1000.0 / before[first], 1000.0 / whole[first]);
    assert!((old / new - 1.0).abs() > 0.1, "{before:?} {whole:?}");
    let expected = 5.0 + (1000.0 - 5.0 * old) / new;
    assert!((after[first] - expected).abs() < 1e-6 * expected, "{after:?} {expected}");
}
