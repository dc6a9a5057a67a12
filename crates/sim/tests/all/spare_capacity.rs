//! Trunks that limit no flow: every policy decides as on one switch.

use std::sync::Arc;

use crate::common::{
    POLICIES, WorkloadFeatures, any_workload, assert_near, cases, coflow, is_near, leaf_spine, options,
    workload,
};
use crate::tree::{any_leaf_policies, assign_services, tree_of_applications};
use proptest::prelude::*;
use weir_core::engine::DecidesOver;
use weir_core::model::{Trunks, Workload};
use weir_core::policy::{self, AnyPolicy};
use weir_core::tree::TreeSpec;
use weir_sim::{NetworkModel, NoObserver, Observer, Outcome, ReplayOptions, Snapshot, replay};

const INTERVAL: f64 = 0.5;

/// A policy with one other value for each of its parameters in turn, in addition to the variants of [`POLICIES`].
fn variants() -> Vec<String> {
    let mut variants: Vec<String> = POLICIES.iter().map(|&name| name.to_owned()).collect();
    for entry in policy::POLICIES {
        variants.push(entry.name.to_owned());
        for &(parameter, description) in entry.params {
            let (key, default) = parameter.split_once('=').expect("a default value");
            if key == "detours" {
                // Detours need regions.
                continue;
            }
            let others: Vec<String> = other_values(default, description)
                .flat_map(|value| with_others(entry.name, key, &value))
                .filter(|variant| policy::build(variant).is_ok())
                .collect();
            assert!(!others.is_empty(), "{}: {key} has another value than {default}", entry.name);
            variants.extend(others);
        }
    }
    variants
}

/// Values that a parameter may have instead of its default: the words of its description, and other numbers.
fn other_values(default: &str, description: &str) -> impl Iterator<Item = String> {
    let words = description.split('`').skip(1).step_by(2).chain(["on", "off", "3/1", "2.3/1.1", "300ms"]);
    let digits = default.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(default.len());
    let (number, unit) = default.split_at(digits);
    let less = number.parse().into_iter().flat_map(|n: f64| [n / 2.0, (n / 2.0).floor(), 0.9 * n, 2.0 * n]);
    let numbers = less.filter(|&less| less > 0.0).map(move |less| format!("{less}{unit}"));
    // A default without a number, or of 0.
    let others: &[&str] = if matches!(default, "" | "0") { &["2", "0.05"] } else { &[] };
    let words = words.chain(others.iter().copied());
    let words: Vec<String> = words.filter(|word| *word != default).map(str::to_owned).collect();
    words.into_iter().chain(numbers)
}

/// The policy with this value; with queues whose thresholds the few bytes of these workloads reach, and short simulations. Some
/// parameters require another one.
fn with_others(name: &str, key: &str, value: &str) -> Vec<String> {
    let small: &[(&str, &str)] = match name {
        "aalo" | "aalo+" | "saath" => &[("start", "2B"), ("growth", "2"), ("queues", "4")],
        "siphon" => &[("samples", "20")],
        _ => &[],
    };
    let small = small.iter().filter(|(other, _)| *other != key);
    let small: String = small.map(|(other, value)| format!(":{other}={value}")).collect();
    ["", ":sharing=turns", ":queues=3"]
        .map(|required| format!("{name}:{key}={value}{small}{required}"))
        .into()
}

/// Whether the order of coflows counts those that share a trunk, so that a trunk which ports could fill has an influence.
fn counts_contention(policy: &str) -> bool {
    match policy.split(':').next() {
        Some("saath") => !policy.contains("lcof=off"),
        Some("philae") => !policy.contains("order=size"),
        name => name == Some("lwtf"),
    }
}

/// Finds schedules that fill a trunk.
#[derive(Default)]
struct FullTrunks {
    found: bool,
}

impl Observer for FullTrunks {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        let first = 2 * snapshot.fabric().ports();
        let mut residuals: Vec<f64> = snapshot.link_capacities().collect();
        for &slot in snapshot.active() {
            for flow in snapshot.coflow(slot).live_flows() {
                let rate = snapshot.rate(slot, flow);
                snapshot.flow_links(slot, flow).for_each(|link| residuals[link] -= rate);
            }
        }
        self.found |= residuals[first..].iter().any(|&residual| residual <= 1e-6);
        true
    }
}

/// Leaves with `hosts` hosts each, over which the ports of a workload are spread.
fn spread_ports(ports: u32, spines: u32, leaves: u32, hosts: u32, oversubscription: f64) -> Trunks {
    let trunks = Trunks::new(leaf_spine(spines, leaves, hosts, oversubscription), 0).unwrap();
    let host = |port: u32| port % leaves * hosts + port / leaves;
    let unused = (0..leaves * hosts).filter(|&other| (0..ports).all(|port| host(port) != other));
    let order: Vec<u32> = (0..ports).map(host).chain(unused).collect();
    trunks.with_port_order(order)
}

fn replay_over(all: &Workload, policy: AnyPolicy, network: NetworkModel) -> (Outcome, bool) {
    let mut full_trunks = FullTrunks::default();
    let options = ReplayOptions { network, ..options(1.0, INTERVAL) };
    (replay(all, policy, &options, &mut full_trunks).unwrap(), full_trunks.found)
}

/// Compares the replays of a policy on one switch and over trunks that never limit its flows.
fn check_policy(all: &Workload, name: &str, build: impl Fn() -> AnyPolicy) -> Result<(), TestCaseError> {
    let plain = replay(all, build(), &options(1.0, INTERVAL), &mut NoObserver).unwrap().ccts();
    let compare = |network: &str, found: &[f64]| {
        let is_equal = plain.iter().zip(found).all(|(&a, &b)| is_near(a, b, 1e-9));
        prop_assert!(is_equal, "{name} over {network}: {found:?}, but {plain:?} on one switch");
        Ok(())
    };
    let per_leaf = all.ports.div_ceil(2);
    let over = |trunks: Trunks| NetworkModel { trunks: Some(Arc::new(trunks)), ..NetworkModel::default() };
    let wide = over(spread_ports(all.ports, 2, 2, per_leaf, 0.01));
    compare("wide trunks", &replay_over(all, build(), wide.clone()).0.ccts())?;
    let at_ports = NetworkModel { decides_over: DecidesOver::Ports, ..wide };
    compare("wide trunks, decided over ports", &replay_over(all, build(), at_ports).0.ccts())?;
    if name.contains("at=both") {
        // With the same queues at all links, a trunk divides its capacity evenly among flows, also if some use less than their share.
        // Only wide trunks limit no flow.
        return Ok(());
    }
    let equal = over(spread_ports(all.ports, 1, 2, per_leaf, 1.0));
    compare("trunks as fast as their hosts", &replay_over(all, build(), equal).0.ccts())?;
    if !counts_contention(name) {
        // Two hosts of three are idle.
        let light = over(spread_ports(all.ports, 1, 2, 3 * per_leaf, 1.05));
        let (outcome, is_full) = replay_over(all, build(), light);
        prop_assert!(!is_full, "{name}: a trunk was full");
        compare("trunks that ports could fill", &outcome.ccts())?;
    }
    Ok(())
}

#[test]
fn leaves_over_a_trunk_as_fast_as_its_hosts_share_a_port_by_weight() {
    // The second and third coflow share the sender 1 evenly. Their service has a hundredth of the trunk's weight.
    let flows = [(5, 2, 5.0), (1, 6, 1.0), (1, 0, 1.0)];
    let coflows = (1..).zip(flows).map(|(id, flow)| coflow(id, 0.0, &[flow])).collect();
    let all = assign_services(workload(8, coflows), &[0, 1, 3]);
    let tree = || AnyPolicy::Tree(TreeSpec::Services(tree_of_applications(&["fifo"; 4], &[10.0, 0.1]), None));
    check_policy(&all, "a tree", tree).unwrap();
    let network =
        NetworkModel { trunks: Some(Arc::new(spread_ports(8, 1, 2, 4, 1.0))), ..NetworkModel::default() };
    assert_near(&replay_over(&all, tree(), network).0.ccts(), &[5.0, 2.0, 2.0], 1e-9, "tree");
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn trunks_with_spare_capacity_change_no_replay(
        all in any_workload(WorkloadFeatures::ALL),
        owners in prop::collection::vec(0..4usize, 8),
        policies in any_leaf_policies(),
        weights in prop::collection::vec(0.1..10.0f64, 2),
    ) {
        let all = assign_services(all, &owners);
        for variant in variants() {
            check_policy(&all, &variant, || policy::build(&variant).unwrap())?;
        }
        let tree = || AnyPolicy::Tree(TreeSpec::Services(tree_of_applications(&policies, &weights), None));
        check_policy(&all, &format!("tree of {policies:?}"), tree)?;
    }
}
