//! Policy trees in the simulator.

use proptest::prelude::*;
use weir_core::model::{Change, CoflowSpec, Names, Workload};
use weir_core::policy::{AnyPolicy, TABLE, build};
use weir_core::tree::{Application, Between, Plan, Service, check_leaf};
use weir_sim::{NoObserver, Observer, Options, Outcome, Snapshot, replay};

use crate::common::{Kinds, cases, options, workloads};

fn service(name: &str, weight: f64, policy: &str) -> Service {
    let other = Application { name: name.to_owned(), weight: 1.0, model: None, policy: policy.to_owned() };
    let between = Between::Whole(policy.to_owned());
    Service { name: name.to_owned(), weight, between, applications: vec![], other }
}

/// Two services; the second has no coflows.
fn with_an_idle_service(mut workload: Workload) -> Workload {
    let mut names = Names::empty();
    names.number("busy", "a").unwrap();
    names.number("idle", "a").unwrap();
    workload.names = names;
    workload
}

fn run(workload: &Workload, policy: AnyPolicy, options: &Options) -> Outcome {
    let mut outcome = replay(workload, policy, options, &mut NoObserver).unwrap();
    (outcome.wall, outcome.schedule_ns) = (0.0, Vec::new());
    outcome
}

fn tree(busy: &str, idle: &str) -> AnyPolicy {
    let services = vec![service("busy", 2.0, busy), service("idle", 1.0, idle)];
    AnyPolicy::Tree(Plan::Services(services, None))
}

/// Spreads coflows over two services of two applications.
fn spread(mut workload: Workload, owners: &[usize]) -> Workload {
    let mut names = Names::empty();
    for (coflow, owner) in workload.coflows.iter_mut().zip(owners) {
        let service = ["busy", "idle"][owner % 2];
        let application = ["a", "b"][owner / 2 % 2];
        (coflow.service, coflow.application) = names.number(service, application).unwrap();
    }
    workload.names = names;
    workload
}

/// Checks that no port exceeds its capacity.
struct Capacity(Result<(), String>);

impl Observer for Capacity {
    fn scheduled(&mut self, moment: &Snapshot<'_>) -> bool {
        let fabric = moment.fabric();
        let mut left: Vec<f64> = fabric.send().iter().chain(fabric.recv()).copied().collect();
        for &slot in moment.active() {
            let coflow = moment.coflow(slot);
            for flow in coflow.live_flows() {
                let (src, dst) = coflow.ends_of(flow);
                left[src as usize] -= moment.rate(slot, flow);
                left[fabric.ports() + dst as usize] -= moment.rate(slot, flow);
            }
        }
        if let Some(side) = left.iter().position(|&left| left < -1e-7) {
            self.0 = Err(format!("side {side} at {}: {} too much", moment.now(), -left[side]));
        }
        self.0.is_ok()
    }
}

/// The duration of each coflow alone on the network, with all ports at their highest rates.
fn alone(w: &Workload) -> Vec<f64> {
    let best = w.events.iter().filter_map(|event| match event.what {
        Change::PortRate { factor, .. } => Some(factor),
        _ => None,
    });
    let best = best.fold(1.0, f64::max);
    let time = |coflow: &CoflowSpec| {
        let mut loads = vec![[0.0; 2]; w.ports as usize];
        for flow in &coflow.flows {
            loads[flow.src as usize][0] += flow.bytes.get();
            loads[flow.dst as usize][1] += flow.bytes.get();
        }
        loads.into_iter().flatten().fold(0.0, f64::max) / best
    };
    w.coflows.iter().map(time).collect()
}

fn leaf_policies() -> impl Strategy<Value = Vec<&'static str>> {
    let known: Vec<&str> =
        TABLE.iter().map(|entry| entry.name).filter(|name| check_leaf(name).is_ok()).collect();
    prop::collection::vec(prop::sample::select(known), 4)
}

proptest! {
    #![proptest_config(cases(60))]

    /// A leaf alone on the network makes bit-identical decisions to its policy without a tree, for any policy
    /// in the idle leaf (of the same kind of knowledge, which determines the simulator's rounding). `fair`
    /// adds the same rates in another order.
    #[test]
    fn tree_with_one_leaf_equals_its_policy(
        w in workloads(Kinds::ALL),
        interval in prop::sample::select(vec![0.0, 0.7]),
    ) {
        let w = with_an_idle_service(w);
        let options = options(1.0, interval);
        for entry in TABLE.iter().filter(|entry| check_leaf(entry.name).is_ok()) {
            let plain = run(&w, build(entry.name).unwrap(), &options);
            for idle in ["fair", "varys"] {
                let inside = run(&w, tree(entry.name, idle), &options);
                if entry.name != "fair" && (entry.name != "saath" || idle == "fair") {
                    prop_assert_eq!(&inside, &plain, "{} beside {}", entry.name, idle);
                }
                for (a, b) in inside.ccts().iter().zip(plain.ccts()) {
                    prop_assert!((a - b).abs() <= 1e-6 * b.max(1.0), "{} beside {}: {a} {b}", entry.name, idle);
                }
            }
        }
    }

    /// Trees of any policies complete every workload, with failing ports, late data and restarted flows. No
    /// port exceeds its capacity, no coflow is faster than alone, and a repeated run gives the same result.
    #[test]
    fn trees_complete_every_workload(
        w in workloads(Kinds::ALL),
        owners in prop::collection::vec(0..4usize, 8),
        policies in leaf_policies(),
        weights in prop::collection::vec(0.1..10.0f64, 2),
        interval in prop::sample::select(vec![0.0, 0.7]),
    ) {
        let w = spread(w, &owners);
        let options = options(1.0, interval);
        let application = |name: &str, policy: &str| {
            Application { name: name.to_owned(), weight: 1.0, model: None, policy: policy.to_owned() }
        };
        let plan = || {
            let services = ["busy", "idle"].iter().enumerate().map(|(at, name)| Service {
                between: Between::Weights,
                applications: vec![
                    application("a", policies[2 * at]),
                    application("b", policies[2 * at + 1]),
                ],
                ..service(name, weights[at], "fair")
            });
            AnyPolicy::Tree(Plan::Services(services.collect(), None))
        };
        let mut capacity = Capacity(Ok(()));
        let first = replay(&w, plan(), &options, &mut capacity);
        prop_assert_eq!(&capacity.0, &Ok(()), "{:?}", policies);
        let first = first.map_err(|error| TestCaseError::fail(format!("{policies:?}: {error}")))?;
        prop_assert_eq!(first.ccts(), run(&w, plan(), &options).ccts());
        prop_assert_eq!(first.coflows.len(), w.coflows.len());
        for (cct, alone) in first.ccts().into_iter().zip(alone(&w)) {
            prop_assert!(cct >= alone * (1.0 - 1e-9), "{:?}: {} s, alone {} s", policies, cct, alone);
        }
    }

    #[test]
    fn flat_sharing_completes_every_workload(w in workloads(Kinds::ALL), owners in prop::collection::vec(0..4usize, 8)) {
        let w = spread(w, &owners);
        for policy in ["netshare:weights=3/1", "saba:slowdown=4/1.1"] {
            let mut capacity = Capacity(Ok(()));
            let outcome = replay(&w, build(policy).unwrap(), &options(1.0, 0.0), &mut capacity);
            prop_assert_eq!(&capacity.0, &Ok(()), "{}", policy);
            prop_assert!(outcome.is_ok(), "{policy}: {:?}", outcome.err());
        }
    }
}
