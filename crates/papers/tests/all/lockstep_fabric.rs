//! Jobs on networks with paths, and the alternatives of Saba's section 8.4.

use std::num::NonZeroU16;

use weir_core::model::Stage;
use weir_core::model::topology::TopologyTemplate;
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::{Degree, Polynomial};
use weir_core::units::{Bytes, Rate, Time};
use weir_papers::saba::lockstep::cluster::{
    ClusterError, ClusterOptions, Coupling, PlacedJob, run, run_on_fabric,
};
use weir_papers::saba::lockstep::fabric::{JobLinks, PathSelection};
use weir_papers::saba::lockstep::sharing::{
    ConnectionLifetime, ControllerKind, SabaParameters, SharingError, SharingRule, equal_bytes_cutoffs,
};
use weir_sim::jobs::workload::{Workload, testbed_link_rate};

fn transfer_stage(bytes: f64) -> Stage {
    Stage {
        compute: Time::ZERO,
        overlapped_compute: Time::ZERO,
        bytes: Bytes::new(bytes).unwrap(),
        max_transfer_time: None,
    }
}

fn job(stages: &[Stage], servers: &[u32], model: usize) -> PlacedJob {
    PlacedJob { stages: stages.to_vec(), servers: servers.to_vec(), model: Some(model), start: Time::ZERO }
}

fn fabric(plan: TopologyTemplate, jobs: &[PlacedJob], paths: PathSelection) -> JobLinks {
    let servers: Vec<Vec<u32>> = jobs.iter().map(|job| job.servers.clone()).collect();
    JobLinks::new(&plan.build().unwrap(), &servers, paths).unwrap()
}

fn job_ends(jobs: &[PlacedJob], fabric: &JobLinks, sharing: &SharingRule) -> Vec<f64> {
    let ended = run_on_fabric(jobs, fabric, sharing, |_| true).unwrap();
    assert!(ended.rate_computations > 0 && ended.unsettled_computations == 0, "{ended:?}");
    ended.ends.into_iter().map(Time::get).collect()
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
fn big_switch_fabric_matches_the_single_switch_simulator() {
    let workloads = Workload::all();
    let servers = [&[0, 1, 2, 3][..], &[2, 3, 4], &[0, 4, 5, 6, 7], &[1, 6], &[3, 5, 7]];
    let jobs: Vec<PlacedJob> =
        workloads.iter().zip(servers).enumerate().map(|(n, (w, s))| job(&w.stages(1.0, 1.0), s, n)).collect();
    let plan = TopologyTemplate::BigSwitch { hosts: 8, rate: testbed_link_rate() };
    let options = ClusterOptions { servers: 8, rate: testbed_link_rate(), coupling: Coupling::Lockstep };
    let flows =
        [SharingRule::PerFlow, SharingRule::PerApplication, SharingRule::Saba(saba(models(&workloads)))];
    for sharing in flows {
        let other: Vec<f64> = run(&jobs, &options, &sharing).unwrap().into_iter().map(Time::get).collect();
        for paths in [PathSelection::EvenSplit, PathSelection::Hashed(3)] {
            let found = job_ends(&jobs, &fabric(plan, &jobs, paths), &sharing);
            for (a, b) in found.iter().zip(&other) {
                assert!((a / b - 1.0).abs() < 1e-6, "{sharing:?}: {a} {b}");
            }
        }
    }
    let refused = run(&jobs, &options, &SharingRule::CoflowOrder).unwrap_err();
    assert_eq!(refused, ClusterError::Sharing(SharingError::PrioritiesUnsupported));
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
    let even = fabric(plan, &jobs, PathSelection::EvenSplit);
    // Host links carry 3 flows each, links between switches 2.
    assert_eq!(even.link_counts(), (8 + 8, 2));
    let alone = job_ends(&jobs, &even, &SharingRule::PerFlow)[0];
    assert!((alone - 1e12 / testbed_link_rate().get()).abs() < 1e-9);
    // With hashing, up to 4 flows share a link between switches; the job is then 4 / 3 as slow.
    let hashed = job_ends(&jobs, &fabric(plan, &jobs, PathSelection::Hashed(1)), &SharingRule::PerFlow)[0];
    assert!([1.0, 4.0 / 3.0].iter().any(|slow| (hashed / alone - slow).abs() < 1e-9), "{hashed} {alone}");
}

#[test]
fn coflow_and_size_priorities_are_strict() {
    let rate = Rate::new(10.0).unwrap();
    let plan = TopologyTemplate::BigSwitch { hosts: 3, rate };
    // Two jobs on the same servers, with 20 and 40 bytes per server.
    let jobs = [job(&[transfer_stage(40.0)], &[0, 1], 0), job(&[transfer_stage(20.0)], &[0, 1], 0)];
    let fabric = fabric(plan, &jobs, PathSelection::EvenSplit);
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

#[test]
fn fabric_rejects_unknown_servers_and_mismatched_jobs() {
    let topology = TopologyTemplate::BigSwitch { hosts: 3, rate: testbed_link_rate() }.build().unwrap();
    let refused = JobLinks::new(&topology, &[vec![0, 3]], PathSelection::EvenSplit).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "job 0: server 3 does not exist or occurs twice; expected each once, from 0 to 2"
    );
    let fabric = JobLinks::new(&topology, &[vec![0, 1]], PathSelection::EvenSplit).unwrap();
    let refused = run_on_fabric(&[], &fabric, &SharingRule::PerFlow, |_| true).unwrap_err();
    assert_eq!(refused, ClusterError::WrongJobCount { jobs: 0, expected: 1 });
}

#[test]
fn jobs_start_at_their_arrival_times() {
    let plan = TopologyTemplate::BigSwitch { hosts: 2, rate: Rate::new(10.0).unwrap() };
    let late = |start, bytes| PlacedJob {
        start: Time::new(start).unwrap(),
        ..job(&[transfer_stage(bytes)], &[0, 1], 0)
    };
    // 40 bytes from 0, 10 from 2: alone for 2 s, half of the link each for 2 s, and alone for the last
    // second.
    let jobs = [late(0.0, 40.0), late(2.0, 10.0)];
    let fabric = fabric(plan, &jobs, PathSelection::EvenSplit);
    assert_eq!(job_ends(&jobs, &fabric, &SharingRule::PerFlow), [5.0, 4.0]);
    // Only active coflows have a priority.
    assert_eq!(job_ends(&jobs, &fabric, &SharingRule::CoflowOrder), [5.0, 3.0]);
    let saba = SharingRule::Saba(saba(models(&Workload::all()[..1])));
    assert_eq!(job_ends(&jobs, &fabric, &saba), [5.0, 4.0], "the same model");
    let stopped = run_on_fabric(&jobs, &fabric, &SharingRule::PerFlow, |now| now < 2.0).unwrap_err();
    assert_eq!(stopped, ClusterError::Interrupted { seconds: 2.0 });
}

/// Section 5.3.2: a job that does not use Saba uses a separate queue, with the capacity outside C_saba.
#[test]
fn job_without_saba_uses_the_reserved_queue() {
    let plan = TopologyTemplate::BigSwitch { hosts: 2, rate: Rate::new(10.0).unwrap() };
    let own = |bytes| PlacedJob { model: None, ..job(&[transfer_stage(bytes)], &[0, 1], 0) };
    let jobs =
        [job(&[transfer_stage(20.0)], &[0, 1], 0), job(&[transfer_stage(30.0)], &[0, 1], 1), own(60.0)];
    let fabric = fabric(plan, &jobs, PathSelection::EvenSplit);
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
    let refused = run_on_fabric(&jobs, &fabric, &all, |_| true).unwrap_err();
    assert_eq!(refused, ClusterError::Sharing(SharingError::NoQueueForJob { job: 2 }));
    // With a single queue no capacity can be reserved.
    let one =
        SharingRule::Saba(SabaParameters { queues_per_port: 1, ..with(0.5, ConnectionLifetime::Transfer) });
    let refused = run_on_fabric(&jobs, &fabric, &one, |_| true).unwrap_err().to_string();
    assert!(refused.contains("too few queues (1); expected at least 2"), "{refused}");
}

#[test]
fn oversized_fabric_is_rejected_before_allocation() {
    let topology = TopologyTemplate::BigSwitch { hosts: 10_001, rate: testbed_link_rate() }.build().unwrap();
    let all: Vec<u32> = (0..10_001).collect();
    let refused = |jobs: &[Vec<u32>], paths| JobLinks::new(&topology, jobs, paths).unwrap_err().to_string();
    let pairs = refused(std::slice::from_ref(&all), PathSelection::Hashed(1));
    assert_eq!(
        pairs,
        "too many pairs of servers that are hashed to paths (100020001); expected at most 100000000"
    );
    let links = refused(&vec![vec![0]; 2_500], PathSelection::EvenSplit);
    assert_eq!(links, "too many jobs times links of the network (50005000); expected at most 50000000");
}

/// Section 5.3.1: a registration may move other applications to other levels, and with that to other queues,
/// at once.
#[test]
fn late_registration_changes_rates_immediately() {
    let plan = TopologyTemplate::BigSwitch { hosts: 2, rate: Rate::new(10.0).unwrap() };
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
    let fabric = fabric(plan, &jobs, PathSelection::EvenSplit);
    let with = |levels, jobs: &[PlacedJob], fabric: &JobLinks| {
        let saba =
            SabaParameters { priority_levels: NonZeroU16::new(levels).unwrap(), ..saba(models.clone()) };
        job_ends(jobs, fabric, &SharingRule::Saba(saba))
    };
    // With two levels and the far one registered, the three share one level. Without it, the steepest of the
    // three has its own.
    let before = with(2, &jobs[..3], &self::fabric(plan, &jobs[..3], PathSelection::EvenSplit));
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
