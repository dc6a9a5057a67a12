//! Policy trees in the simulator.

use proptest::prelude::*;
use weir_core::model::{CoflowSpec, ServiceNames, Workload, WorkloadChange};
use weir_core::policy::{AnyPolicy, POLICIES, build};
use weir_core::tree::{Application, ApplicationSharing, Service, TreeSpec, check_leaf_policy};
use weir_sim::{NoObserver, Outcome, ReplayOptions, replay};

use crate::common::{
    CapacityChecker, SHARED_QUEUES, WorkloadFeatures, any_workload, cases, coflow, options, workload,
};

fn service(name: &str, weight: f64, policy: &str) -> Service {
    let other = Application { name: name.to_owned(), weight: 1.0, model: None, policy: policy.to_owned() };
    let between = ApplicationSharing::SingleLeaf(policy.to_owned());
    Service {
        name: name.to_owned(),
        weight,
        application_sharing: between,
        applications: vec![],
        default_application: other,
    }
}

/// Two services; the second has no coflows.
fn with_an_idle_service(mut workload: Workload) -> Workload {
    let mut names = ServiceNames::empty();
    names.intern("busy", "a").unwrap();
    names.intern("idle", "a").unwrap();
    workload.names = names;
    workload
}

fn replay_policy(workload: &Workload, policy: AnyPolicy, options: &ReplayOptions) -> Outcome {
    let mut outcome = replay(workload, policy, options, &mut NoObserver).unwrap();
    (outcome.wall_seconds, outcome.processor_seconds, outcome.schedule_ns) = (0.0, 0.0, Vec::new());
    outcome
}

pub fn tree_of_two_services(busy: &str, idle: &str) -> AnyPolicy {
    let services = vec![service("busy", 2.0, busy), service("idle", 1.0, idle)];
    AnyPolicy::Tree(TreeSpec::Services(services, None))
}

/// Spreads coflows over two services of two applications.
pub fn assign_services(mut workload: Workload, owners: &[usize]) -> Workload {
    let mut names = ServiceNames::empty();
    for (coflow, owner) in workload.coflows.iter_mut().zip(owners) {
        let service = ["busy", "idle"][owner % 2];
        let application = ["a", "b"][owner / 2 % 2];
        (coflow.service, coflow.application) = names.intern(service, application).unwrap();
    }
    workload.names = names;
    workload
}

/// The services of [`assign_services`], with these weights and policies of their applications.
pub fn tree_of_applications(policies: &[&str], weights: &[f64]) -> Vec<Service> {
    let application = |name: &str, policy: &str| Application {
        name: name.to_owned(),
        weight: 1.0,
        model: None,
        policy: policy.to_owned(),
    };
    let service = |(at, name): (usize, &&str)| Service {
        application_sharing: ApplicationSharing::Weighted,
        applications: vec![application("a", policies[2 * at]), application("b", policies[2 * at + 1])],
        ..service(name, weights[at], "fair")
    };
    ["busy", "idle"].iter().enumerate().map(service).collect()
}

/// The duration of each coflow alone on the network, with all ports at their highest rates.
fn isolated_ccts(w: &Workload) -> Vec<f64> {
    let best = w.events.iter().filter_map(|event| match event.change {
        WorkloadChange::PortRate { factor, .. } => Some(factor),
        _ => None,
    });
    let best = best.fold(1.0, f64::max);
    let isolated_cct = |coflow: &CoflowSpec| {
        let mut loads = vec![[0.0; 2]; w.ports as usize];
        for flow in &coflow.flows {
            loads[flow.src as usize][0] += flow.bytes.get();
            loads[flow.dst as usize][1] += flow.bytes.get();
        }
        loads.into_iter().flatten().fold(0.0, f64::max) / best
    };
    w.coflows.iter().map(isolated_cct).collect()
}

pub fn any_leaf_policies() -> impl Strategy<Value = Vec<&'static str>> {
    let known: Vec<&str> =
        POLICIES.iter().map(|entry| entry.name).filter(|name| check_leaf_policy(name).is_ok()).collect();
    prop::collection::vec(prop::sample::select(known), 4)
}

proptest! {
    #![proptest_config(cases(60))]

    /// A leaf alone on the network makes the decisions of its policy without a tree, for any policy in the idle leaf. They are
    /// bit-identical if the idle leaf's policy has the same kind of knowledge and reacts to completions at the same times, which
    /// determine the simulator's rounding. `fair` adds the same rates in another order.
    #[test]
    fn tree_with_one_leaf_equals_its_policy(
        w in any_workload(WorkloadFeatures::ALL),
        interval in prop::sample::select(vec![0.0, 0.7]),
    ) {
        let w = with_an_idle_service(w);
        let options = options(1.0, interval);
        // Hosts serve fresh coflows outside a tree only.
        let waits = |name: &str| interval == 0.0 || !build(name).unwrap().timing().hosts_serve_between_schedules();
        let leaves = POLICIES.iter().filter(|entry| check_leaf_policy(entry.name).is_ok());
        for entry in leaves.filter(|entry| waits(entry.name)) {
            let plain = replay_policy(&w, build(entry.name).unwrap(), &options);
            let completion_of = |name: &str| build(name).unwrap().timing().completion;
            for idle in ["fair", "varys", "saath"] {
                let inside = replay_policy(&w, tree_of_two_services(entry.name, idle), &options);
                let has_unknown_sizes = ["saath", "philae", "gittins"].contains(&entry.name);
                let has_same_knowledge = idle == "fair" || has_unknown_sizes == (idle == "saath");
                if entry.name != "fair" && has_same_knowledge && completion_of(entry.name) == completion_of(idle) {
                    prop_assert_eq!(&inside, &plain, "{} next to {}", entry.name, idle);
                }
                for (a, b) in inside.ccts().iter().zip(plain.ccts()) {
                    prop_assert!((a - b).abs() <= 1e-6 * b.max(1.0), "{} next to {}: {a} {b}", entry.name, idle);
                }
            }
        }
    }

    /// Trees of any policies complete every workload, with failing ports, late data and restarted flows. No
    /// port exceeds its capacity, no coflow is faster than alone, and a repeated run gives the same result.
    #[test]
    fn trees_complete_every_workload(
        w in any_workload(WorkloadFeatures::ALL),
        owners in prop::collection::vec(0..4usize, 8),
        policies in any_leaf_policies(),
        weights in prop::collection::vec(0.1..10.0f64, 2),
        interval in prop::sample::select(vec![0.0, 0.7]),
    ) {
        let w = assign_services(w, &owners);
        let options = options(1.0, interval);
        let plan = || AnyPolicy::Tree(TreeSpec::Services(tree_of_applications(&policies, &weights), None));
        let mut capacity = CapacityChecker::default();
        let first = replay(&w, plan(), &options, &mut capacity);
        prop_assert_eq!(&capacity.violation, &None, "{:?}", policies);
        let first = first.map_err(|error| TestCaseError::fail(format!("{policies:?}: {error}")))?;
        prop_assert_eq!(first.ccts(), replay_policy(&w, plan(), &options).ccts());
        prop_assert_eq!(first.coflows.len(), w.coflows.len());
        for (cct, alone) in first.ccts().into_iter().zip(isolated_ccts(&w)) {
            prop_assert!(cct >= alone * (1.0 - 1e-9), "{:?}: {} s, alone {} s", policies, cct, alone);
        }
    }

    #[test]
    fn flat_sharing_completes_every_workload(
        w in any_workload(WorkloadFeatures::ALL),
        owners in prop::collection::vec(0..4usize, 8),
        interval in prop::sample::select(vec![0.0, 0.7]),
    ) {
        let w = assign_services(w, &owners);
        for policy in ["netshare:weights=3/1", "saba:slowdown=4/1.1", SHARED_QUEUES] {
            let mut capacity = CapacityChecker::default();
            let outcome = replay(&w, build(policy).unwrap(), &options(1.0, interval), &mut capacity);
            prop_assert_eq!(&capacity.violation, &None, "{}", policy);
            prop_assert!(outcome.is_ok(), "{policy}: {:?}", outcome.err());
        }
    }
}

/// A workload of one service: application, arrival and bytes of coflows of one flow each, from port 0 to other ports.
fn applications_at_a_port(coflows: &[(u32, f64, f64)]) -> Workload {
    let mut all = Vec::new();
    for (id, &(application, arrival, size)) in (0..).zip(coflows) {
        all.push(CoflowSpec { application, ..coflow(id, arrival, &[(0, 1 + id as u32, size)]) });
    }
    let mut workload = workload(4, all);
    let mut names = ServiceNames::empty();
    for name in ["a", "b", "c"] {
        names.intern("one", name).unwrap();
    }
    workload.names = names;
    workload
}

/// Hosts know the level of their application, and switches know the queue of each level.
#[test]
fn new_application_uses_the_queue_of_its_level_until_the_next_schedule() {
    let run = |coflows: &[(u32, f64, f64)]| {
        let policy = build("saba:slowdown=3/1.5/1.25:queues=2").unwrap();
        replay_policy(&applications_at_a_port(coflows), policy, &options(1.0, 100.0)).ccts()
    };
    // Eq. 2 gives the first two applications 0.8 and 0.2. The third one shares the queue of the second one.
    let ccts = run(&[(0, 0.0, 8.0), (1, 0.0, 1.0), (2, 1.0, 0.1)]);
    assert!((ccts[2] - 1.0).abs() < 1e-6, "{ccts:?}");
    // If the queue was unused at the last schedule, it has the mean weight of the others: half of the port for the new one.
    let ccts = run(&[(0, 0.0, 8.0), (2, 1.0, 0.1)]);
    assert!((ccts[1] - 0.2).abs() < 1e-6, "{ccts:?}");
}
