//! Policy trees: what each leaf may count on, against brute force.

mod common;

use common::cases;
use proptest::collection::vec;
use proptest::prelude::*;
use weir_core::allocation::Allocation;
use weir_core::engine::Engine;
use weir_core::model::{CoflowSpec, Fabric, FlowSpec, Names, Side};
use weir_core::policy::{self, AnyPolicy};
use weir_core::saba::Sensitivity;
use weir_core::solve::{Hierarchy, Polynomial, Shares};
use weir_core::tree::{Application, Between, Plan, Service, check_leaf};
use weir_core::units::{Bytes, Rate, Time};

/// Policies of leaves.
const ALL: [&str; 7] = ["saath", "fair", "varys", "sincronia", "scf", "pfp", "fifo"];

/// Those that leave nothing at both ends of a live flow. (Saath's equal rates may, if nobody misses all-or-none.)
const BUSY: [&str; 6] = ["fair", "varys", "sincronia", "scf", "pfp", "fifo"];

/// Rounding, where ports carry about 1.
const CLOSE: f64 = 1e-7;

fn named(name: &str) -> String {
    format!("n{name}")
}

fn names(services: usize, applications: usize) -> Names {
    let mut names = Names::empty();
    for service in 0..services {
        for application in 0..applications {
            names.number(&named(&service.to_string()), &named(&application.to_string())).unwrap();
        }
    }
    names
}

fn application(number: usize, weight: f64, policy: &str) -> Application {
    Application { name: named(&number.to_string()), weight, model: None, policy: policy.to_owned() }
}

fn service(number: usize, weight: f64, applications: Vec<Application>) -> Service {
    let other = application(0, 1.0, "fair");
    let between = Between::Weights;
    Service { name: named(&number.to_string()), weight, between, applications, other }
}

fn spec(id: u64, owner: Owner, flows: &[Ends]) -> CoflowSpec {
    let flow = |&(src, dst, size): &(u32, u32, f64)| FlowSpec::new(src, dst, Bytes::new(size).unwrap());
    let (service, application) = owner;
    let plain = CoflowSpec::new(id, Time::ZERO, flows.iter().map(flow).collect());
    CoflowSpec { service, application, ..plain }
}

fn fabric(ports: u32) -> Fabric {
    Fabric::big_switch(ports, Rate::new(1.0).unwrap())
}

fn engine(ports: u32, plan: Plan, names: &Names) -> Engine {
    Engine::new(fabric(ports), AnyPolicy::Tree(plan), names).unwrap()
}

/// A service and an application of it.
type Owner = (u32, u32);

/// A flow: from, to, bytes.
type Ends = (u32, u32, f64);

/// A leaf, and by side what it uses and its weighted part.
type Part = (Owner, Vec<f64>, Vec<f64>);

/// A tree, the coflows, and rates of ports.
#[derive(Debug, Clone)]
struct Case {
    ports: u32,
    /// By service: its weight, and the weight and policy of each application.
    services: Vec<(f64, Vec<(f64, &'static str)>)>,
    coflows: Vec<(Owner, Vec<Ends>)>,
    slow: Vec<(u32, f64)>,
}

const PORTS: u32 = 4;

fn case(policies: &'static [&'static str]) -> impl Strategy<Value = Case> {
    let weight = || prop_oneof![Just(1.0), Just(2.0), 0.1..10.0f64];
    (2..4usize, 1..3usize).prop_flat_map(move |(services, applications)| {
        let policy = prop::sample::select(policies);
        let service = (weight(), vec((weight(), policy), applications));
        let flows = vec((0..PORTS, 0..PORTS, prop_oneof![Just(1.0), 0.2..3.0f64]), 1..6);
        let coflow = ((0..services as u32, 0..applications as u32), flows);
        let slow = vec((0..PORTS, 0.2..2.0f64), 0..3);
        (vec(service, services), vec(coflow, 1..8), slow).prop_map(|(services, coflows, slow)| Case {
            ports: PORTS,
            services,
            coflows,
            slow,
        })
    })
}

impl Case {
    fn names(&self) -> Names {
        names(self.services.len(), self.services[0].1.len())
    }

    fn plan(&self) -> Plan {
        let each = self.services.iter().enumerate().map(|(at, (weight, applications))| {
            let list = applications.iter().enumerate();
            service(at, *weight, list.map(|(a, (weight, policy))| application(a, *weight, policy)).collect())
        });
        Plan::Services(each.collect(), None)
    }

    fn engine(&self) -> Engine {
        let mut engine = engine(self.ports, self.plan(), &self.names());
        for &(port, factor) in &self.slow {
            engine.scale_port(port, Side::Both, factor, 0.0);
        }
        let mut ended = Vec::new();
        for (id, (owner, flows)) in self.coflows.iter().enumerate() {
            engine.release(&spec(id as u64, *owner, flows), id, 0.0, &mut ended);
        }
        engine.schedule(0.0);
        engine
    }
}

/// A live flow: whose it is, its two sides and its rate.
type Live = (Owner, [usize; 2], f64);

/// All live flows, and what each side carries.
fn live(engine: &Engine, case: &Case) -> (Vec<Live>, Vec<f64>) {
    let network = engine.network();
    let mut flows = Vec::new();
    for &slot in network.active() {
        let coflow = network.coflow(slot);
        for flow in coflow.live_flows() {
            let (src, dst) = coflow.ends_of(flow);
            let sides = [src as usize, case.ports as usize + dst as usize];
            flows.push((case.coflows[coflow.index].0, sides, network.rate(slot, flow)));
        }
    }
    let fabric = network.fabric();
    (flows, fabric.send().iter().chain(fabric.recv()).copied().collect())
}

/// What each leaf uses of each side, and its weighted part of it among those that are there.
fn parts(case: &Case, flows: &[Live], capacities: &[f64]) -> Vec<Part> {
    let there = |leaf: (u32, u32), side: usize| flows.iter().any(|f| f.0 == leaf && f.1.contains(&side));
    let mut leaves: Vec<(u32, u32)> = flows.iter().map(|f| f.0).collect();
    leaves.sort_unstable();
    leaves.dedup();
    let part = |leaf: (u32, u32), side: usize| {
        if !there(leaf, side) {
            return 0.0;
        }
        let here: Vec<(u32, u32)> = leaves.iter().copied().filter(|&other| there(other, side)).collect();
        let mut services: Vec<u32> = here.iter().map(|l| l.0).collect();
        services.dedup();
        let outer: f64 = services.iter().map(|&s| case.services[s as usize].0).sum();
        let weight = |l: &(u32, u32)| case.services[l.0 as usize].1[l.1 as usize].0;
        let inner: f64 = here.iter().filter(|l| l.0 == leaf.0).map(weight).sum();
        capacities[side] * case.services[leaf.0 as usize].0 / outer * weight(&leaf) / inner
    };
    let used = |leaf: (u32, u32), side: usize| -> f64 {
        flows.iter().filter(|f| f.0 == leaf && f.1.contains(&side)).map(|f| f.2).sum()
    };
    let sides = 0..capacities.len();
    let row = |leaf: &(u32, u32)| {
        let leaf = *leaf;
        (leaf, sides.clone().map(|s| used(leaf, s)).collect(), sides.clone().map(|s| part(leaf, s)).collect())
    };
    leaves.iter().map(row).collect()
}

/// Runs `check` after each schedule until all flows have ended.
fn run(
    mut engine: Engine,
    mut check: impl FnMut(&Engine) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut ended = Vec::new();
    for _ in 0..200 {
        check(&engine)?;
        let now = engine.next_end();
        if now.is_infinite() {
            break;
        }
        ended.clear();
        engine.run_out(now, &mut ended);
        prop_assert!(!ended.is_empty());
        let over = |slot: &u32| {
            let coflow = engine.network().coflow(*slot);
            coflow.done() == coflow.width()
        };
        for slot in engine.network().active().iter().copied().filter(over).collect::<Vec<_>>() {
            engine.remove(slot, now);
        }
        engine.schedule(now);
    }
    prop_assert!(engine.network().active().is_empty(), "coflows are left: nothing moves");
    Ok(())
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn no_side_is_over_its_capacity_and_everything_ends(case in case(&ALL)) {
        run(case.engine(), |engine| {
            Allocation::check(engine.network()).map_err(|error| TestCaseError::fail(error.to_string()))
        })?;
    }

    /// At every side, a leaf with a flow that its part of the other side does not hold back uses its part at least: whatever
    /// the policies inside it and inside the others.
    #[test]
    fn every_leaf_gets_its_part(case in case(&BUSY)) {
        run(case.engine(), |engine| {
            let (flows, capacities) = live(engine, &case);
            for (leaf, used, part) in parts(&case, &flows, &capacities) {
                for (_, [send, recv], _) in flows.iter().filter(|f| f.0 == leaf) {
                    for (here, there) in [(*send, *recv), (*recv, *send)] {
                        prop_assert!(
                            used[there] >= part[there] - CLOSE || used[here] >= part[here] - CLOSE,
                            "leaf {leaf:?} has {} of {} at side {here} and {} of {} at side {there}",
                            used[here], part[here], used[there], part[there],
                        );
                    }
                }
            }
            Ok(())
        })?;
    }

    /// With max-min inside all leaves, every flow has a bottleneck: a full side where no flow of its leaf has more, where no
    /// leaf of its service has more for its weight, and no service has. That is weighted hierarchical max-min of three levels.
    #[test]
    fn fair_leaves_get_hierarchical_max_min(case in case(&["fair"])) {
        run(case.engine(), |engine| {
            let (flows, capacities) = live(engine, &case);
            let used = |side: usize, of: &dyn Fn((u32, u32)) -> bool| -> f64 {
                flows.iter().filter(|f| f.1.contains(&side) && of(f.0)).map(|f| f.2).sum()
            };
            for &(leaf, sides, rate) in &flows {
                let bottleneck = |side: usize| {
                    let outer = |s: u32| used(side, &|l| l.0 == s) / case.services[s as usize].0;
                    let inner = |l: (u32, u32)| {
                        used(side, &|other| other == l) / case.services[l.0 as usize].1[l.1 as usize].0
                    };
                    let here = flows.iter().filter(|f| f.1.contains(&side));
                    used(side, &|_| true) >= capacities[side] - CLOSE
                        && here.into_iter().all(|other| {
                            (other.0 != leaf || other.2 <= rate + CLOSE)
                                && (other.0.0 != leaf.0 || inner(other.0) <= inner(leaf) + CLOSE * 10.0)
                                && outer(other.0.0) <= outer(leaf.0) + CLOSE * 10.0
                        })
                };
                prop_assert!(sides.into_iter().any(bottleneck), "{leaf:?} {sides:?} at {rate}: {flows:?}");
            }
            Ok(())
        })?;
    }

    /// NetShare by name is what its allocator computes, where there is only one such allocation.
    #[test]
    fn netshare_is_the_hierarchy(case in case(&["fair"])) {
        let weights: Vec<f64> = case.services.iter().map(|s| s.0).collect();
        let text: Vec<String> = weights.iter().map(f64::to_string).collect();
        let policy = policy::build(&format!("netshare:weights={}", text.join("/"))).unwrap();
        let mut engine = Engine::new(fabric(case.ports), policy, &case.names()).unwrap();
        let mut ended = Vec::new();
        for (id, (owner, flows)) in case.coflows.iter().enumerate() {
            engine.release(&spec(id as u64, *owner, flows), id, 0.0, &mut ended);
        }
        engine.schedule(0.0);
        let (flows, capacities) = live(&engine, &case);
        let mut hierarchy = Hierarchy::new(&capacities, Shares::weighted(&weights).unwrap()).unwrap();
        let add = |(leaf, [send, recv], _): &Live| {
            hierarchy.add(leaf.0 as usize, &[*send as u32, *recv as u32], 1, f64::INFINITY).unwrap()
        };
        let ids: Vec<_> = flows.iter().map(add).collect();
        if !hierarchy.solve().settled {
            return Ok(());
        }
        for (&id, flow) in ids.iter().zip(&flows) {
            prop_assert!((hierarchy.rate(id) - flow.2).abs() <= CLOSE, "{} {flow:?}", hierarchy.rate(id));
        }
    }

    #[test]
    fn the_same_again_is_the_same(case in case(&ALL)) {
        let rates = |engine: &Engine| live(engine, &case).0;
        prop_assert_eq!(rates(&case.engine()), rates(&case.engine()));
    }
}

#[test]
fn services_then_applications() {
    // All from port 0: the first service has 3 parts of 4, and its second application 2 of 3 of those.
    let names = names(2, 2);
    for first in ALL {
        let list = vec![application(0, 1.0, first), application(1, 2.0, "saath")];
        let plan = Plan::Services(vec![service(0, 3.0, list), service(1, 1.0, vec![])], None);
        let mut engine = engine(5, plan, &names);
        let mut ended = Vec::new();
        for (id, owner) in [(0, 0), (0, 1), (1, 0)].into_iter().enumerate() {
            engine.release(&spec(id as u64, owner, &[(0, 1 + id as u32, 9.0)]), id, 0.0, &mut ended);
        }
        engine.schedule(0.0);
        let rates: Vec<f64> = (0..3).map(|slot| engine.network().rate(slot, 0)).collect();
        for (rate, expected) in rates.iter().zip([0.25, 0.5, 0.25]) {
            assert!((rate - expected).abs() < 1e-12, "{first}: {rates:?}");
        }
    }
}

#[test]
fn what_one_leaves_another_has() {
    // The first service's flow ends at port 1, which carries a tenth: the second has the rest of port 0, whatever is inside.
    let names = names(2, 1);
    for first in ALL {
        for second in ALL {
            let list = |policy| vec![application(0, 1.0, policy)];
            let plan =
                Plan::Services(vec![service(0, 1.0, list(first)), service(1, 1.0, list(second))], None);
            let mut engine = engine(3, plan, &names);
            engine.scale_port(1, Side::Receive, 0.1, 0.0);
            let mut ended = Vec::new();
            engine.release(&spec(0, (0, 0), &[(0, 1, 9.0)]), 0, 0.0, &mut ended);
            engine.release(&spec(1, (1, 0), &[(0, 2, 9.0)]), 1, 0.0, &mut ended);
            engine.schedule(0.0);
            let rates = [engine.network().rate(0, 0), engine.network().rate(1, 0)];
            assert!(
                (rates[0] - 0.1).abs() < 1e-12 && (rates[1] - 0.9).abs() < 1e-9,
                "{first} {second}: {rates:?}"
            );
        }
    }
}

#[test]
fn saba_gives_the_sensitive_one_more() {
    let model = |coefficients: &[f64]| Sensitivity::new(Polynomial::new(coefficients).unwrap());
    // Slowdowns 3 - 4 b + 2 b^2 and 1.5 - b + 0.5 b^2: their slopes meet where 4 - 4 b = 1 - (1 - b), at b = 0.8.
    let table =
        vec![("n0".to_owned(), model(&[3.0, -4.0, 2.0])), ("n1".to_owned(), model(&[1.5, -1.0, 0.5]))];
    let saba = Service { between: Between::Saba(table), ..service(0, 1.0, vec![]) };
    let mut engine = engine(4, Plan::Services(vec![saba], None), &names(1, 2));
    let mut ended = Vec::new();
    engine.release(&spec(0, (0, 0), &[(0, 1, 9.0)]), 0, 0.0, &mut ended);
    engine.release(&spec(1, (0, 1), &[(0, 2, 9.0)]), 1, 0.0, &mut ended);
    engine.schedule(0.0);
    assert!((engine.network().rate(0, 0) - 0.8).abs() < 1e-6, "{}", engine.network().rate(0, 0));
    assert!((engine.network().rate(1, 0) - 0.2).abs() < 1e-6);
}

#[test]
fn saba_by_name_goes_by_the_slowdown_with_half() {
    let names = names(2, 1);
    for (policy, expected) in [("saba", 0.5), ("saba:slowdown=1.75/1.25", 0.75)] {
        let mut engine = Engine::new(fabric(4), policy::build(policy).unwrap(), &names).unwrap();
        let mut ended = Vec::new();
        engine.release(&spec(0, (0, 0), &[(0, 1, 9.0)]), 0, 0.0, &mut ended);
        engine.release(&spec(1, (1, 0), &[(0, 2, 9.0)]), 1, 0.0, &mut ended);
        engine.schedule(0.0);
        let rates = [engine.network().rate(0, 0), engine.network().rate(1, 0)];
        assert!((rates[0] + rates[1] - 1.0).abs() < 1e-9);
        // Of 1 + k (1 - b)^2 the slopes meet where 1 - b is as 1 / k: here as 1 to 3.
        assert!((rates[0] - expected).abs() < 1e-6, "{policy}: {rates:?}");
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let refused = |plan: Plan, names: &Names| match Engine::new(fabric(2), AnyPolicy::Tree(plan), names) {
        Ok(_) => panic!("it fits"),
        Err(error) => error.to_string(),
    };
    let plan = Plan::Services(vec![service(0, 1.0, vec![])], None);
    assert!(refused(plan, &names(2, 1)).contains("no service `n1`"));
    let saba = Service { between: Between::Saba(vec![]), ..service(0, 1.0, vec![]) };
    assert!(refused(Plan::Services(vec![saba], None), &names(1, 1)).contains("no application `n0`"));
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let plan = Plan::Services(vec![service(0, weight, vec![])], None);
        assert!(refused(plan, &names(1, 1)).contains("above 0"));
    }
    for policy in ["aalo", "netshare", "saba"] {
        assert!(check_leaf(policy).unwrap_err().to_string().contains("cannot be inside a policy tree"));
    }
    assert!(check_leaf("saath:nonsense=1").is_err() && check_leaf("nonsense").is_err());
    assert!(check_leaf("saath:d=4").is_ok());
}
