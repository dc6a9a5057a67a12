//! Policy trees over links between regions: outer shares hold for any inner policies, and links are work-conserving.

use crate::common::{cases, is_near};
use crate::regions::{area_with, on_links, replay_between, try_replay};
use proptest::prelude::*;
use weir_core::model::{ServiceNames, WideArea, Workload};
use weir_core::policy::AnyPolicy;
use weir_core::saba::{SabaLimits, Sensitivity};
use weir_core::solve::Polynomial;
use weir_core::tree::{Application, ApplicationSharing, Service, TreeSpec};
use weir_sim::{NoObserver, Outcome};

/// Bandwidth of a link, in bytes per second.
const RATE: f64 = 100.0;

fn area(samples: &[f64]) -> WideArea {
    area_with(&[samples], 0.0)
}

/// A coflow: service and application, arrival, and the bytes on links.
type Demand = (u32, u32, f64, Vec<(u32, f64)>);

fn demand(service: u32, application: u32, arrival: f64, flows: &[(u32, f64)]) -> Demand {
    (service, application, arrival, flows.to_vec())
}

fn application(name: &str, weight: f64, policy: &str) -> Application {
    Application { name: name.to_owned(), weight, model: None, policy: policy.to_owned() }
}

/// Services `s0`, `s1` and so on, with these weights, each as a single leaf of this policy.
fn tree_of_services(all: &[(f64, &str)]) -> (TreeSpec, ServiceNames) {
    let mut names = ServiceNames::empty();
    let service = |(at, &(weight, policy)): (usize, &(f64, &str))| Service {
        name: format!("s{at}"),
        weight,
        application_sharing: ApplicationSharing::SingleLeaf(policy.to_owned()),
        applications: Vec::new(),
        default_application: application("default", 1.0, policy),
    };
    let services: Vec<Service> = all.iter().enumerate().map(service).collect();
    for service in &services {
        names.intern(&service.name, ServiceNames::DEFAULT);
    }
    (TreeSpec::Services(services, None), names)
}

fn to_workload(demands: &[Demand], names: &ServiceNames) -> Workload {
    let coflows: Vec<(f64, Vec<(u32, f64)>)> =
        demands.iter().map(|(_, _, arrival, flows)| (*arrival, flows.clone())).collect();
    let mut workload = on_links(&coflows);
    for (coflow, (service, application, ..)) in workload.coflows.iter_mut().zip(demands) {
        (coflow.service, coflow.application) = (*service, *application);
    }
    workload.names = names.clone();
    workload
}

fn run_tree(demands: &[Demand], area: &WideArea, plan: &TreeSpec, names: &ServiceNames) -> Outcome {
    let workload = to_workload(demands, names);
    try_replay(&workload, area, AnyPolicy::Tree(plan.clone()), 1, &mut NoObserver).unwrap()
}

/// Completion time of each demand.
fn ends(outcome: &Outcome) -> Vec<f64> {
    outcome.coflows.iter().map(|coflow| coflow.end).collect()
}

fn assert_ends(outcome: &Outcome, expected: &[f64]) {
    let found = ends(outcome);
    let all = found.iter().zip(expected).all(|(a, b)| is_near(*a, *b, 1e-9));
    assert!(all && found.len() == expected.len(), "{found:?}, expected {expected:?}");
}

#[test]
fn services_share_a_link_by_weight() {
    let (plan, names) = tree_of_services(&[(1.0, "mrtf"), (3.0, "varys")]);
    // 25 and 75 bytes a second.
    let both = [demand(0, 0, 0.0, &[(0, 100.0)]), demand(1, 0, 0.0, &[(0, 300.0)])];
    assert_ends(&run_tree(&both, &area(&[RATE]), &plan, &names), &[4.0, 4.0]);
    // The second ends at 2 s. The first then gets the whole link for its other 50 bytes.
    let shorter = [demand(0, 0, 0.0, &[(0, 100.0)]), demand(1, 0, 0.0, &[(0, 150.0)])];
    assert_ends(&run_tree(&shorter, &area(&[RATE]), &plan, &names), &[2.5, 2.0]);
    // The second has a flow on another link, which does not affect its share of the first.
    let wide = [demand(0, 0, 0.0, &[(0, 100.0)]), demand(1, 0, 0.0, &[(0, 150.0), (1, 400.0)])];
    assert_ends(&run_tree(&wide, &area(&[RATE]), &plan, &names), &[2.5, 4.0]);
}

#[test]
fn region_tree_orders_coflows_inside_their_service() {
    let (plan, names) = tree_of_services(&[(1.0, "mrtf"), (1.0, "fair")]);
    // 50 bytes a second for each service. In the first service the shorter demand goes first; in the second
    // both share.
    let all = [
        demand(0, 0, 0.0, &[(0, 100.0)]),
        demand(0, 0, 0.0, &[(0, 50.0)]),
        demand(1, 0, 0.0, &[(0, 75.0)]),
        demand(1, 0, 0.0, &[(0, 75.0)]),
    ];
    assert_ends(&run_tree(&all, &area(&[RATE]), &plan, &names), &[3.0, 1.0, 3.0, 3.0]);
}

/// The leaf has a tenth of the first link, and the second link alone. A demand that is shorter over whole
/// links is longer over its shares.
#[test]
fn leaf_policy_orders_by_its_shares_of_links() {
    let (plan, names) = tree_of_services(&[(1.0, "mrtf"), (9.0, "fair")]);
    let all = [
        demand(0, 0, 0.0, &[(0, 100.0)]),
        demand(0, 0, 0.0, &[(0, 50.0), (1, 120.0)]),
        demand(1, 0, 0.0, &[(0, 1350.0)]),
    ];
    assert_ends(&run_tree(&all, &area(&[RATE]), &plan, &names), &[15.0, 5.0, 15.0]);
}

#[test]
fn applications_divide_the_bandwidth_of_their_service() {
    let model = Sensitivity::new(Polynomial::new(&[3.0, -2.0]).unwrap());
    let (mut plan, mut names) = tree_of_services(&[(1.0, "fair"), (1.0, "fair")]);
    names.intern("s1", "x");
    let mut ends_for = |between: ApplicationSharing| {
        let TreeSpec::Services(services, _) = &mut plan else { unreachable!() };
        (services[1].application_sharing, services[1].applications) =
            (between, vec![application("x", 3.0, "fair")]);
        let all = [
            demand(0, 0, 0.0, &[(0, 1000.0)]),
            demand(1, 0, 0.0, &[(0, 100.0)]),
            demand(1, 1, 0.0, &[(0, 100.0)]),
        ];
        ends(&run_tree(&all, &area(&[RATE]), &plan, &names))
    };
    // 12.5 and 37.5 bytes a second of the service's 50 until one ends, at 8/3 s; then the other gets all 50.
    let weighted = ends_for(ApplicationSharing::Weighted);
    assert!(is_near(weighted[2], 8.0 / 3.0, 1e-9) && is_near(weighted[1], 4.0, 1e-9), "{weighted:?}");
    // Two applications with the same model get equal rates.
    let names_of_models = ["default", "x"].map(|name| (name.to_owned(), model));
    let alike = ends_for(ApplicationSharing::Saba(names_of_models.into(), SabaLimits::default()));
    assert!(is_near(alike[1], 4.0, 1e-6) && is_near(alike[2], 4.0, 1e-6), "{alike:?}");
}

fn any_demands(services: u32) -> impl Strategy<Value = Vec<Demand>> {
    let flows = prop::collection::btree_map(0..6u32, 0.5..200.0f64, 1..6);
    prop::collection::vec((0..services, 0.0..20.0f64, flows), 1..12).prop_map(|all| {
        let one = |(service, arrival, map): (u32, f64, std::collections::BTreeMap<u32, f64>)| {
            demand(service, 0, arrival, &map.into_iter().collect::<Vec<_>>())
        };
        all.into_iter().map(one).collect()
    })
}

const LEAF_POLICIES: [&str; 4] = ["siphon:samples=50", "mrtf", "varys", "fair"];

proptest! {
    #![proptest_config(cases(60))]

    /// A tree of one leaf equals the leaf's policy.
    #[test]
    fn region_tree_with_one_leaf_equals_its_policy(all in any_demands(1), changes in any::<bool>(), detours in any::<bool>()) {
        let area = area(if changes { &[20.0, 50.0, 100.0] } else { &[RATE] });
        for policy in LEAF_POLICIES {
            let detours = if detours && policy != "varys" { ":detours=on" } else { "" };
            let policy = format!("{policy}{detours}");
            let (plan, names) = tree_of_services(&[(2.0, &policy)]);
            let alone = replay_between(&to_workload(&all, &names), &area, &policy, 1);
            prop_assert_eq!(ends(&run_tree(&all, &area, &plan, &names)), ends(&alone), "{}", policy);
        }
    }

    /// For any inner policy, an active service gets its share of each link, and links with demand are full.
    #[test]
    fn inner_policies_do_not_change_outer_shares(mut all in any_demands(3), inner in prop::collection::vec(0..4usize, 3)) {
        all.iter_mut().for_each(|demand| demand.2 = 0.0);
        let weights = [1.0, 2.0, 5.0];
        let of: Vec<(f64, &str)> = weights.iter().zip(&inner).map(|(&weight, &at)| (weight, LEAF_POLICIES[at])).collect();
        let (plan, names) = tree_of_services(&of);
        let found = run_tree(&all, &area(&[RATE]), &plan, &names);
        for link in 0..6 {
            let bytes_on_link = |service: Option<u32>| {
                let (mut bytes, mut end) = (0.0, 0.0);
                for ((of, _, _, flows), coflow) in all.iter().zip(&found.coflows) {
                    if service.is_none_or(|service| *of == service)
                        && let Some(at) = flows.iter().position(|flow| flow.0 == link)
                    {
                        bytes += flows[at].1;
                        end = f64::max(end, coflow.flow_ends[at]);
                    }
                }
                (bytes, end)
            };
            let (bytes, end) = bytes_on_link(None);
            prop_assert!(is_near(end, bytes / RATE, 1e-6), "link {} is idle: {} bytes in {} s", link, bytes, end);
            for service in 0..3 {
                let (bytes, end) = bytes_on_link(Some(service));
                let part = weights[service as usize] / weights.iter().sum::<f64>();
                prop_assert!(end <= bytes / (RATE * part) + 1e-6, "service {} on link {}", service, link);
            }
        }
    }

    /// With detours and changing bandwidth, all bytes arrive too.
    #[test]
    fn region_tree_delivers_all_bytes(all in any_demands(3)) {
        let (plan, names) = tree_of_services(&[(1.0, "siphon:samples=50:detours=on"), (2.0, "fair:detours=on"), (3.0, "mrtf")]);
        let found = run_tree(&all, &area(&[20.0, 50.0, 100.0]), &plan, &names);
        for (demand, end) in all.iter().zip(ends(&found)) {
            prop_assert!(end.is_finite() && end > demand.2);
        }
        for utilization in &found.trunk_utilization {
            prop_assert!(*utilization <= 1.0 + 1e-9);
        }
    }
}
