//! The comparisons: every policy on every kind of network.

use super::incast::any_curve;
use super::network::TestNetwork;
use super::regions::any_regions;
use super::{Policy, Variant};
use std::collections::{BTreeMap, BTreeSet};

use crate::cables::any_failures;
use crate::common::{WorkloadFeatures, any_reducers, any_workload, cases, with_reducers};
use crate::trunks::any_workload_with_trunks;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use weir_core::model::Workload;
use weir_core::policy::POLICIES;

/// No sum of sizes and no two times are equal, so rounding rarely decides an order.
const FEATURES: WorkloadFeatures = WorkloadFeatures::ALL.with_distinct_values();

type Case = BoxedStrategy<(Workload, TestNetwork)>;

fn on_one_switch() -> Case {
    any_workload(FEATURES).prop_map(|workload| (workload, TestNetwork::default())).boxed()
}

fn on_one_switch_without_events() -> Case {
    let plain = WorkloadFeatures::PLAIN.with_distinct_values();
    any_workload(plain).prop_map(|workload| (workload, TestNetwork::default())).boxed()
}

fn over_trunks() -> Case {
    let network = |trunks| TestNetwork { trunks: Some(trunks), ..TestNetwork::default() };
    any_workload_with_trunks(FEATURES).prop_map(move |(workload, trunks)| (workload, network(trunks))).boxed()
}

fn while_cables_fail() -> Case {
    any_failures(WorkloadFeatures { restarts: false, ..FEATURES }).boxed()
}

fn between_regions() -> Case {
    let network =
        any_regions().prop_map(|regions| TestNetwork { regions: Some(regions), ..TestNetwork::default() });
    (any_workload(FEATURES), network).boxed()
}

fn add_incast(cases: Case) -> Case {
    (cases, any_curve())
        .prop_map(|((workload, network), curve)| (workload, TestNetwork { goodput: Some(curve), ..network }))
        .boxed()
}

fn with_incast() -> Case {
    add_incast(on_one_switch())
}

fn over_trunks_with_incast() -> Case {
    add_incast(over_trunks())
}

fn while_cables_fail_with_incast() -> Case {
    add_incast(while_cables_fail())
}

/// Adds reducers, for the policy that tells the reducers of a coflow at a port apart.
fn add_reducers(cases: Case) -> Case {
    (cases, any_reducers())
        .prop_map(|((workload, network), reducers)| (with_reducers(workload, &reducers), network))
        .boxed()
}

fn on_one_switch_with_reducers() -> Case {
    add_reducers(on_one_switch())
}

fn over_trunks_with_reducers() -> Case {
    add_reducers(over_trunks())
}

fn while_cables_fail_with_reducers() -> Case {
    add_reducers(while_cables_fail())
}

fn with_incast_and_reducers() -> Case {
    add_reducers(with_incast())
}

/// A policy without parameters.
fn only(name: &str, policy: Policy) -> BoxedStrategy<Vec<Variant>> {
    Just(vec![(name.to_owned(), policy)]).boxed()
}

/// Each row is a policy, a strategy for its variants, and its networks with their numbers of cases. The test of a row and a network
/// is `policy::network`.
macro_rules! comparisons {
    ($($policy:ident($variants:expr): $($network:ident $cases:literal),+;)+) => {
        mod rows {
            use crate::reference_simulator::*;
            use proptest::prelude::*;

            /// Strategies of variants, and the names of their networks.
            pub(super) fn all() -> Vec<(BoxedStrategy<Vec<Variant>>, Vec<&'static str>)> {
                vec![$(($variants.boxed(), vec![$(stringify!($network)),+])),+]
            }
        }

        $(
        mod $policy {
            use crate::reference_simulator::*;
            use super::cases;
            use proptest::prelude::*;

            $(proptest! {
                #![proptest_config(cases($cases))] #[test]
                fn $network((workload, network) in super::$network(), variants in $variants) {
                    network.compare(&workload, &variants)?;
                }
            })+
        }
        )+
    };
}

/// The networks of every policy but those between regions.
const NETWORKS: &[&str] =
    &["on_one_switch", "over_trunks", "while_cables_fail", "with_incast", "over_trunks_with_incast"];

/// Policies and parameters without a comparison. The core's tests check them against definitions: policy trees in `tree.rs`, orders that
/// depend on random bandwidths in `montecarlo.rs`, detours in `detour.rs`, and pilots in `weir/tests.rs`.
const NOT_COMPARED: &[(&str, &[&str])] = &[
    ("netshare", &["weights"]),
    ("saba", &["slowdown", "share", "levels", "queues", "min-weight"]),
    (
        "siphon",
        &[
            "depth",
            "breadth",
            "samples",
            "confidence",
            "choose",
            "reuse",
            "seed",
            "threads",
            "detours",
            "groups",
        ],
    ),
    ("fair", &["detours"]),
    ("weir", &["pilots"]),
    ("mrtf", &["detours"]),
];

#[test]
fn every_policy_and_parameter_has_a_comparison_on_every_network() {
    let mut runner = TestRunner::deterministic();
    let mut compared: BTreeMap<String, (BTreeSet<&str>, BTreeSet<String>)> = BTreeMap::new();
    for (variants, networks) in rows::all() {
        for _ in 0..50 {
            for (spec, _) in variants.new_tree(&mut runner).unwrap().current() {
                let mut parts = spec.split(':');
                let (of, keys) = compared.entry(parts.next().unwrap().to_owned()).or_default();
                of.extend(&networks);
                keys.extend(parts.filter_map(|part| Some(part.split_once('=')?.0.to_owned())));
            }
        }
    }
    for entry in POLICIES {
        let (networks, keys) = compared.remove(entry.name).unwrap_or_default();
        let excepted = NOT_COMPARED.iter().find(|(name, _)| *name == entry.name);
        for (param, _) in entry.params {
            let key = param.split('=').next().unwrap();
            let is_excepted = excepted.is_some_and(|(_, keys)| keys.contains(&key));
            assert_ne!(keys.contains(key), is_excepted, "{}:{key}", entry.name);
        }
        let required = match entry.name {
            "netshare" | "saba" | "siphon" => &[],
            "mrtf" => &["between_regions"][..],
            _ => NETWORKS,
        };
        let missing = required.iter().find(|network| !networks.contains(*network));
        assert_eq!(missing, None, "{}", entry.name);
    }
}

comparisons! {
    saath(saath::any_variants()):
        on_one_switch_without_events 600, on_one_switch 600, over_trunks 600, while_cables_fail 600, between_regions 100,
        with_incast 60, over_trunks_with_incast 20, while_cables_fail_with_incast 20;
    varys(super::only("varys", Policy::Varys { deadlines: false })):
        on_one_switch 300, over_trunks 300, while_cables_fail 600, between_regions 50,
        with_incast 60, over_trunks_with_incast 60, while_cables_fail_with_incast 60;
    varys_with_deadlines(super::only("varys:deadlines=on", Policy::Varys { deadlines: true })):
        on_one_switch 300, over_trunks 300, between_regions 50, with_incast 60, over_trunks_with_incast 60;
    ordered(Just(ordered::variants())):
        on_one_switch 600, over_trunks 600, while_cables_fail 600, between_regions 100,
        with_incast 60, over_trunks_with_incast 60, while_cables_fail_with_incast 20;
    fair(super::only("fair", Policy::Fair)):
        on_one_switch 600, over_trunks 600, while_cables_fail 600, between_regions 100,
        with_incast 60, over_trunks_with_incast 60, while_cables_fail_with_incast 60;
    aalo(aalo::any_variants("aalo")):
        on_one_switch 1200, over_trunks 600, while_cables_fail 1200, between_regions 100,
        with_incast 120, over_trunks_with_incast 120, while_cables_fail_with_incast 120;
    aalo_plus(aalo::any_variants("aalo+")):
        on_one_switch 100, over_trunks 100, while_cables_fail 100, between_regions 100,
        with_incast 20, over_trunks_with_incast 20, while_cables_fail_with_incast 20;
    sincronia(super::only("sincronia", Policy::Sincronia)):
        on_one_switch 60, over_trunks 60, while_cables_fail 60, between_regions 100,
        with_incast 20, over_trunks_with_incast 20, while_cables_fail_with_incast 20;
    pfp(super::only("pfp", Policy::Pfp)):
        on_one_switch 60, over_trunks 60, while_cables_fail 60,
        with_incast 60, over_trunks_with_incast 20, while_cables_fail_with_incast 20;
    django(django::any_variants()):
        on_one_switch 60, over_trunks 60, while_cables_fail 20,
        with_incast 20, over_trunks_with_incast 20, while_cables_fail_with_incast 60,
        on_one_switch_with_reducers 300, over_trunks_with_reducers 60, while_cables_fail_with_reducers 20,
        with_incast_and_reducers 20;
    gittins(gittins::any_variants()):
        on_one_switch 100, over_trunks 100, while_cables_fail 100,
        with_incast 20, over_trunks_with_incast 20, while_cables_fail_with_incast 20;
    philae(philae::any_variants()):
        on_one_switch 150, over_trunks 150, while_cables_fail 150, between_regions 150,
        with_incast 20, over_trunks_with_incast 20, while_cables_fail_with_incast 20;
    weir_with_known_sizes(weir::any_known_variants()):
        on_one_switch 150, over_trunks 150, while_cables_fail 150,
        with_incast 60, over_trunks_with_incast 60, while_cables_fail_with_incast 60;
    weir(weir::any_estimated_variants()):
        on_one_switch 100, over_trunks 60, while_cables_fail 60;
    mrtf(Just(regions::mrtf_variants())):
        between_regions 100;
}
