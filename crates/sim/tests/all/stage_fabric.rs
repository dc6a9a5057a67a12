//! Jobs on networks with paths, and the alternatives of Saba's section 8.4.

use std::num::NonZeroU16;

use weir_core::model::topology::Plan;
use weir_core::saba::share::FLOOR;
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::{Degree, Polynomial};
use weir_core::units::{Bytes, Rate, Time};
use weir_sim::stage::Stage;
use weir_sim::stage::cluster::{ClusterError, Coupling, Options, Placed, run, run_on};
use weir_sim::stage::fabric::{Fabric, Paths};
use weir_sim::stage::sharing::{Connections, Controllers, Saba, Sharing, SharingError, even_cutoffs};
use weir_sim::stage::workload::{Workload, link};

fn moving(bytes: f64) -> Stage {
    Stage { compute: Time::ZERO, beside: Time::ZERO, bytes: Bytes::new(bytes).unwrap(), patience: None }
}

fn job(stages: &[Stage], servers: &[u32], model: usize) -> Placed {
    Placed { stages: stages.to_vec(), servers: servers.to_vec(), model: Some(model), start: Time::ZERO }
}

fn fabric(plan: Plan, jobs: &[Placed], paths: Paths) -> Fabric {
    let servers: Vec<Vec<u32>> = jobs.iter().map(|job| job.servers.clone()).collect();
    Fabric::new(&plan.build().unwrap(), &servers, paths).unwrap()
}

fn ends(jobs: &[Placed], fabric: &Fabric, sharing: &Sharing) -> Vec<f64> {
    let ended = run_on(jobs, fabric, sharing, |_| true).unwrap();
    assert!(ended.solutions > 0 && ended.unsettled == 0, "{ended:?}");
    ended.ends.into_iter().map(Time::get).collect()
}

fn saba(models: Vec<Sensitivity>) -> Saba {
    Saba {
        models,
        queues: 8,
        levels: NonZeroU16::new(16).unwrap(),
        c_saba: Fraction::ALL,
        floor: FLOOR,
        connections: Connections::Transfer,
        controllers: Controllers::Central,
    }
}

fn models(workloads: &[Workload]) -> Vec<Sensitivity> {
    workloads.iter().map(|workload| Sensitivity::new(workload.model(Degree::Three))).collect()
}

#[test]
fn big_switch_fabric_matches_the_single_switch_simulator() {
    let workloads = Workload::all();
    let servers = [&[0, 1, 2, 3][..], &[2, 3, 4], &[0, 4, 5, 6, 7], &[1, 6], &[3, 5, 7]];
    let jobs: Vec<Placed> =
        workloads.iter().zip(servers).enumerate().map(|(n, (w, s))| job(&w.stages(1.0, 1.0), s, n)).collect();
    let plan = Plan::BigSwitch { hosts: 8, rate: link() };
    let options = Options { servers: 8, rate: link(), coupling: Coupling::Lockstep };
    let flows = [Sharing::Flows, Sharing::Applications, Sharing::Saba(saba(models(&workloads)))];
    for sharing in flows {
        let other: Vec<f64> = run(&jobs, &options, &sharing).unwrap().into_iter().map(Time::get).collect();
        for paths in [Paths::Even, Paths::Hashed(3)] {
            let found = ends(&jobs, &fabric(plan, &jobs, paths), &sharing);
            for (a, b) in found.iter().zip(&other) {
                assert!((a / b - 1.0).abs() < 1e-6, "{sharing:?}: {a} {b}");
            }
        }
    }
    let refused = run(&jobs, &options, &Sharing::Coflows).unwrap_err();
    assert_eq!(refused, ClusterError::Sharing(SharingError::Order));
}

#[test]
fn flows_are_counted_on_every_link_of_their_paths() {
    // Two leaves of two hosts, two spines, all links equal. The job uses all four hosts. Of each host's three
    // flows two leave the leaf, so each of the leaf's two uplinks carries 2 of 4.
    let plan = Plan::LeafSpine { spines: 2, leaves: 2, hosts: 2, rate: link(), oversubscription: 1.0 };
    let jobs = [job(&[moving(1e12)], &[0, 1, 2, 3], 0)];
    let even = fabric(plan, &jobs, Paths::Even);
    // Host links carry 3 flows each, links between switches 2.
    assert_eq!(even.links(), (8 + 8, 2));
    let alone = ends(&jobs, &even, &Sharing::Flows)[0];
    assert!((alone - 1e12 / link().get()).abs() < 1e-9);
    // With hashing, up to 4 flows share a link between switches; the job is then 4 / 3 as slow.
    let hashed = ends(&jobs, &fabric(plan, &jobs, Paths::Hashed(1)), &Sharing::Flows)[0];
    assert!([1.0, 4.0 / 3.0].iter().any(|slow| (hashed / alone - slow).abs() < 1e-9), "{hashed} {alone}");
}

#[test]
fn coflow_and_size_priorities_are_strict() {
    let rate = Rate::new(10.0).unwrap();
    let plan = Plan::BigSwitch { hosts: 3, rate };
    // Two jobs on the same servers, with 20 and 40 bytes per server.
    let jobs = [job(&[moving(40.0)], &[0, 1], 0), job(&[moving(20.0)], &[0, 1], 0)];
    let fabric = fabric(plan, &jobs, Paths::Even);
    assert_eq!(ends(&jobs, &fabric, &Sharing::Flows), [6.0, 4.0]);
    assert_eq!(ends(&jobs, &fabric, &Sharing::Coflows), [6.0, 2.0], "Sincronia: the smaller one first");
    assert_eq!(ends(&jobs, &fabric, &Sharing::Sizes(vec![20.0])), [6.0, 2.0]);
    assert_eq!(ends(&jobs, &fabric, &Sharing::Sizes(vec![40.0])), [6.0, 4.0], "one priority for both");
}

#[test]
fn even_cutoffs_divide_bytes_evenly_over_priorities() {
    let (small, large) = ([moving(10.0), moving(30.0)], [moving(20.0), moving(60.0)]);
    // Flows of 10, 30, 20 and 60 bytes of two servers each: 240 bytes, of which 120 are in flows of up to 30.
    let jobs = [(&small[..], 2), (&large[..], 2)];
    assert_eq!(even_cutoffs(&jobs, 2), [30.0]);
    assert_eq!(even_cutoffs(&jobs, 1), [0.0; 0]);
    // With three servers, each flow is half of a server's bytes.
    assert_eq!(even_cutoffs(&[(&small[..], 3), (&large[..], 3)], 2), [15.0]);
}

#[test]
fn fabric_rejects_unknown_servers_and_mismatched_jobs() {
    let topology = Plan::BigSwitch { hosts: 3, rate: link() }.build().unwrap();
    let refused = Fabric::new(&topology, &[vec![0, 3]], Paths::Even).unwrap_err();
    assert_eq!(refused.to_string(), "job 0: server `3`: expected each once, from 0 to 2");
    let fabric = Fabric::new(&topology, &[vec![0, 1]], Paths::Even).unwrap();
    let refused = run_on(&[], &fabric, &Sharing::Flows, |_| true).unwrap_err();
    assert_eq!(refused, ClusterError::Jobs { jobs: 0, expected: 1 });
}

#[test]
fn jobs_start_at_their_arrival_times() {
    let plan = Plan::BigSwitch { hosts: 2, rate: Rate::new(10.0).unwrap() };
    let late =
        |start, bytes| Placed { start: Time::new(start).unwrap(), ..job(&[moving(bytes)], &[0, 1], 0) };
    // 40 bytes from 0, 10 from 2: alone for 2 s, half of the link each for 2 s, and alone for the last
    // second.
    let jobs = [late(0.0, 40.0), late(2.0, 10.0)];
    let fabric = fabric(plan, &jobs, Paths::Even);
    assert_eq!(ends(&jobs, &fabric, &Sharing::Flows), [5.0, 4.0]);
    // Only active coflows have a priority.
    assert_eq!(ends(&jobs, &fabric, &Sharing::Coflows), [5.0, 3.0]);
    let saba = Sharing::Saba(saba(models(&Workload::all()[..1])));
    assert_eq!(ends(&jobs, &fabric, &saba), [5.0, 4.0], "the same model");
    let stopped = run_on(&jobs, &fabric, &Sharing::Flows, |now| now < 2.0).unwrap_err();
    assert_eq!(stopped, ClusterError::Interrupted { now: 2.0 });
}

/// Section 5.3.2: a job that does not use Saba uses a separate queue, with the capacity outside C_saba.
#[test]
fn job_without_saba_uses_the_reserved_queue() {
    let plan = Plan::BigSwitch { hosts: 2, rate: Rate::new(10.0).unwrap() };
    let own = |bytes| Placed { model: None, ..job(&[moving(bytes)], &[0, 1], 0) };
    let jobs = [job(&[moving(20.0)], &[0, 1], 0), job(&[moving(30.0)], &[0, 1], 1), own(60.0)];
    let fabric = fabric(plan, &jobs, Paths::Even);
    let workloads = Workload::all();
    let with = |c_saba: f64, connections| {
        let c_saba = Fraction::new(c_saba).unwrap();
        Saba { c_saba, connections, ..saba(models(&workloads)) }
    };
    for connections in [Connections::Transfer, Connections::Job] {
        for c_saba in [0.25, 0.5, 0.75] {
            let found = ends(&jobs, &fabric, &Sharing::Saba(with(c_saba, connections)));
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
    let all = Sharing::Saba(with(1.0, Connections::Transfer));
    let refused = run_on(&jobs, &fabric, &all, |_| true).unwrap_err();
    assert_eq!(refused, ClusterError::Sharing(SharingError::Reserved { job: 2 }));
    // With a single queue no capacity can be reserved.
    let one = Sharing::Saba(Saba { queues: 1, ..with(0.5, Connections::Transfer) });
    let refused = run_on(&jobs, &fabric, &one, |_| true).unwrap_err().to_string();
    assert!(refused.contains("`1` queues: expected at least 2"), "{refused}");
}

#[test]
fn oversized_fabric_is_rejected_before_allocation() {
    let topology = Plan::BigSwitch { hosts: 10_001, rate: link() }.build().unwrap();
    let all: Vec<u32> = (0..10_001).collect();
    let refused = |jobs: &[Vec<u32>], paths| Fabric::new(&topology, jobs, paths).unwrap_err().to_string();
    let pairs = refused(std::slice::from_ref(&all), Paths::Hashed(1));
    assert_eq!(pairs, "pairs of servers that are hashed to paths: 100020001: expected at most 100000000");
    let links = refused(&vec![vec![0]; 2_500], Paths::Even);
    assert_eq!(links, "jobs times links of the network: 50005000: expected at most 50000000");
}

/// Section 5.3.1: a registration may move other applications to other levels, and with that to other queues,
/// at once.
#[test]
fn late_registration_changes_rates_immediately() {
    let plan = Plan::BigSwitch { hosts: 2, rate: Rate::new(10.0).unwrap() };
    let long = [moving(1000.0)];
    // The last job computes for long, so nothing starts or ends when it registers. Its model is far from all
    // others.
    let last = [Stage { compute: Time::new(1e4).unwrap(), ..moving(0.0) }];
    let jobs: Vec<Placed> = (0..4)
        .map(|model| match model {
            3 => Placed { start: Time::new(5.0).unwrap(), ..job(&last, &[0, 1], 3) },
            model => job(&long, &[0, 1], model),
        })
        .collect();
    let line = |slope: f64| Sensitivity::new(Polynomial::new(&[1.0 + slope, -slope]).unwrap());
    let models: Vec<Sensitivity> = [0.5, 1.0, 3.0, 90.0].map(line).to_vec();
    let fabric = fabric(plan, &jobs, Paths::Even);
    let with = |levels, jobs: &[Placed], fabric: &Fabric| {
        let saba = Saba { levels: NonZeroU16::new(levels).unwrap(), ..saba(models.clone()) };
        ends(jobs, fabric, &Sharing::Saba(saba))
    };
    // With two levels and the far one registered, the three share one level. Without it, the steepest of the
    // three has its own.
    let before = with(2, &jobs[..3], &self::fabric(plan, &jobs[..3], Paths::Even));
    let after = with(2, &jobs, &fabric);
    // At 5 s all rates become the rates with four jobs from the start.
    let from_start: Vec<Placed> =
        jobs.iter().map(|job| Placed { start: Time::ZERO, ..job.clone() }).collect();
    let whole = with(2, &from_start, &fabric);
    let first = (0..3).min_by(|&a, &b| after[a].total_cmp(&after[b])).unwrap();
    let (old, new) = (1000.0 / before[first], 1000.0 / whole[first]);
    assert!((old / new - 1.0).abs() > 0.1, "{before:?} {whole:?}");
    let expected = 5.0 + (1000.0 - 5.0 * old) / new;
    assert!((after[first] - expected).abs() < 1e-6 * expected, "{after:?} {expected}");
}
