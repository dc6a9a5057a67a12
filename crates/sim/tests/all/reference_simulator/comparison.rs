//! The comparison on one switch, and over trunks whose cables can fail.

use super::Policy;
use super::aalo::{AaloParameters, ControlledPorts};
use super::network::{compare_over_trunks, compare_with_replay};
use super::ordered::ORDERED_POLICIES;
use super::saath::SaathParameters;
use crate::cables::any_failures;
use crate::common::{WorkloadFeatures, any_workload, cases};
use crate::trunks::any_workload_with_trunks;
use proptest::prelude::*;

/// Random combinations of all Saath options. No sum of sizes equals a threshold.
pub(super) fn any_saath_policy() -> impl Strategy<Value = (String, Policy)> {
    let switches = prop::collection::vec(prop::bool::weighted(0.75), 10);
    (switches, prop::sample::select(vec![0.31, 1.07, 2.03, f64::INFINITY]), 0.9f64..4.0).prop_map(
        |(on, d, start)| {
            let start = (start * 1e6).round() / 1e6;
            let on_off = |on: bool| if on { "on" } else { "off" };
            let name = format!(
                "saath:start={start}B:growth=2:queues=4:d={d}:all-or-none={}:per-flow={}:lcof={}:requeue={}:\
                 work-conservation={}:contention={}:available={}:time={}:backfill={}",
                on_off(on[0]),
                on_off(on[1]),
                on_off(on[2]),
                on_off(on[3]),
                on_off(on[4]),
                if on[5] { "queue" } else { "all" },
                if on[6] { "any" } else { "full" },
                if on[7] { "total" } else { "flow" },
                if on[8] { "missed" } else { "all" },
            );
            let saath = SaathParameters {
                start,
                growth: 2.0,
                queues: 4,
                d,
                all_or_none: on[0],
                per_flow: on[1],
                lcof: on[2],
                requeue: on[3],
                conserve_work: on[4],
                backfill_all: !on[8],
                contention_all: !on[5],
                require_full_ports: !on[6],
                time_per_flow: !on[7],
            };
            (name, Policy::Saath(saath))
        },
    )
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn saath_matches_the_reference_simulator(w in any_workload(WorkloadFeatures::PLAIN.with_distinct_values()), (name, policy) in any_saath_policy()) {
        compare_with_replay(&w, &name, &policy)?;
    }

    #[test]
    fn saath_matches_the_reference_simulator_under_events(
        w in any_workload(WorkloadFeatures::ALL.with_distinct_values()),
        (name, policy) in any_saath_policy(),
    ) {
        compare_with_replay(&w, &name, &policy)?;
    }

    #[test]
    fn saath_over_trunks_matches_the_reference_simulator(
        (w, trunks) in any_workload_with_trunks(WorkloadFeatures::ALL.with_distinct_values()),
        (name, policy) in any_saath_policy(),
    ) {
        compare_over_trunks(&w, &trunks, &name, &policy)?;
    }

    #[test]
    fn saath_matches_the_reference_simulator_while_cables_fail(
        case in any_failures(WorkloadFeatures { restarts: false, ..WorkloadFeatures::ALL }.with_distinct_values()),
        (name, policy) in any_saath_policy(),
    ) {
        case.network().compare(&case.workload, &name, &policy)?;
    }

    #[test]
    fn varys_over_trunks_matches_the_reference_simulator(
        (w, trunks) in any_workload_with_trunks(WorkloadFeatures::ALL.with_distinct_values()),
        deadlines in prop::bool::ANY,
    ) {
        let name = if deadlines { "varys:deadlines=on" } else { "varys" };
        compare_over_trunks(&w, &trunks, name, &Policy::Varys { deadlines })?;
    }

    #[test]
    fn policies_match_the_reference_simulator_while_cables_fail(
        case in any_failures(WorkloadFeatures { restarts: false, ..WorkloadFeatures::ALL }.with_distinct_values()),
        start in 0.9f64..4.0,
    ) {
        let compare = |name: &str, policy: &Policy| case.network().compare(&case.workload, name, policy);
        compare("varys", &Policy::Varys { deadlines: false })?;
        compare("fair", &Policy::Fair)?;
        for (name, key) in ORDERED_POLICIES {
            compare(name, &Policy::Ordered(key))?;
        }
        let name = format!("aalo:start={start}B:growth=2:queues=4:at=both:sharing=strict");
        let at = ControlledPorts::All { strict: true };
        compare(&name, &Policy::Aalo(AaloParameters { start, growth: 2.0, queues: 4, at, known_sizes: false }))?;
    }

    #[test]
    fn ordered_policies_and_fair_match_the_reference_simulator(
        w in any_workload(WorkloadFeatures::ALL.with_distinct_values()),
    ) {
        compare_with_replay(&w, "fair", &Policy::Fair)?;
        for (name, key) in ORDERED_POLICIES {
            compare_with_replay(&w, name, &Policy::Ordered(key))?;
        }
    }

    #[test]
    fn ordered_policies_and_fair_over_trunks_match_the_reference_simulator(
        (w, trunks) in any_workload_with_trunks(WorkloadFeatures::ALL.with_distinct_values()),
    ) {
        compare_over_trunks(&w, &trunks, "fair", &Policy::Fair)?;
        for (name, key) in ORDERED_POLICIES {
            compare_over_trunks(&w, &trunks, name, &Policy::Ordered(key))?;
        }
    }

    #[test]
    fn varys_matches_the_reference_simulator(w in any_workload(WorkloadFeatures::ALL.with_distinct_values()), deadlines in prop::bool::ANY) {
        let name = if deadlines { "varys:deadlines=on" } else { "varys" };
        compare_with_replay(&w, name, &Policy::Varys { deadlines })?;
    }

    #[test]
    fn coordinated_aalo_matches_the_reference_simulator(w in any_workload(WorkloadFeatures::ALL.with_distinct_values()), start in 0.9f64..4.0) {
        for (sharing, strict) in [(":sharing=strict", true), ("", false)] {
            let name = format!("aalo:start={start}B:growth=2:queues=4:at=both{sharing}");
            let at = ControlledPorts::All { strict };
            compare_with_replay(&w, &name, &Policy::Aalo(AaloParameters { start, growth: 2.0, queues: 4, at, known_sizes: false }))?;
        }
    }

    #[test]
    fn aalo_over_trunks_matches_the_reference_simulator(
        (w, trunks) in any_workload_with_trunks(WorkloadFeatures::ALL.with_distinct_values()),
        start in 0.9f64..4.0,
        strict in prop::bool::ANY,
    ) {
        for (name, policy) in AaloParameters::variants("aalo", start, strict) {
            compare_over_trunks(&w, &trunks, &name, &policy)?;
        }
    }

    #[test]
    fn aalo_matches_the_reference_simulator(
        w in any_workload(WorkloadFeatures::ALL.with_distinct_values()),
        start in 0.9f64..4.0,
        queues in 1usize..=5,
        strict in prop::bool::ANY,
    ) {
        let sharing = if strict { ":sharing=strict" } else { "" };
        let name = format!("aalo:start={start}B:growth=2:queues={queues}{sharing}");
        let at = ControlledPorts::Senders { strict };
        compare_with_replay(&w, &name, &Policy::Aalo(AaloParameters { start, growth: 2.0, queues, at, known_sizes: false }))?;
    }
}
