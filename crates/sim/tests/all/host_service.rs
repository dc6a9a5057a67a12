//! Flows of `weir` without rates, which hosts serve between two schedules.

use std::sync::Arc;

use crate::cables::any_failures;
use crate::common::{
    CapacityChecker, WorkloadFeatures, any_workload, assert_near, cases, check_all_sent_bytes, coflow,
    options, replay_with, time, workload,
};
use crate::incast::goodput_of;
use crate::properties::{LEVEL_SCALE, check_invariants, scale_workload};
use crate::tree::{assign_services, tree_of_two_services};
use proptest::prelude::*;
use weir_core::engine::DecidesOver;
use weir_core::model::{CoflowSpec, Workload};
use weir_core::policy;
use weir_sim::{NoObserver, ReplayOptions, replay};

/// The interval, in seconds.
const INTERVAL: f64 = 8e-3;

/// The rate of ports, in bytes per second: 125 kB in a millisecond.
const GBIT: f64 = 1.25e8;
const KB: f64 = 1e3;
const MS: f64 = 1e-3;

/// When coflows end under `weir` without turns, in milliseconds.
fn ends(ports: u32, coflows: Vec<CoflowSpec>) -> Vec<f64> {
    let all = workload(ports, coflows);
    let outcome = replay_with(&all, "weir:turns=0", GBIT, INTERVAL, &mut NoObserver).unwrap();
    outcome.coflows.iter().map(|coflow| coflow.end / MS).collect()
}

#[test]
fn short_new_coflow_completes_before_the_next_schedule() {
    // 125 kB take 1 ms. The second coflow starts when the first one has completed, and takes 1 ms too.
    let mut coflows = vec![coflow(1, MS, &[(0, 1, 125.0 * KB)]), coflow(2, 0.0, &[(0, 1, 125.0 * KB)])];
    coflows[1].parents = vec![0];
    assert_near(&ends(2, coflows), &[2.0, 3.0], 1e-9, "ms");
}

#[test]
fn new_coflows_share_a_link_as_tcp_does() {
    // From 1 to 2 ms, the first coflow sends 125 kB of 250 kB. Then both have half of the rate: the first one sends its last 125 kB in
    // 2 ms, the second one as much. The second one has 125 kB left, which take 1 ms alone.
    let coflows = vec![coflow(1, MS, &[(0, 1, 250.0 * KB)]), coflow(2, 2.0 * MS, &[(0, 1, 250.0 * KB)])];
    assert_near(&ends(2, coflows), &[4.0, 5.0], 1e-9, "ms");
}

#[test]
fn scheduled_flows_keep_their_rates_when_a_coflow_arrives() {
    // Both flows of the first coflow have half of the rate of port 2: 1 MB each, 16 ms. The second coflow has the other half of port 0:
    // 125 kB in 2 ms.
    let coflows = vec![
        coflow(1, 0.0, &[(0, 2, 1000.0 * KB), (1, 2, 1000.0 * KB)]),
        coflow(2, MS, &[(0, 3, 125.0 * KB)]),
    ];
    assert_near(&ends(4, coflows), &[16.0, 3.0], 1e-9, "ms");
    // The first coflow has the whole port until the schedule at 8 ms. Then the second one goes first, since it has no attained service:
    // 250 kB in 2 ms. The first one has sent 1 MB of 2.5 MB, and has no rate until the schedule at 16 ms. 1.5 MB take 12 ms.
    let coflows = vec![coflow(1, 0.0, &[(0, 2, 2500.0 * KB)]), coflow(2, MS, &[(0, 1, 250.0 * KB)])];
    assert_near(&ends(3, coflows), &[28.0, 10.0], 1e-9, "ms");
}

#[test]
fn new_coflow_takes_the_capacity_of_a_flow_that_completed_between_schedules() {
    let first = coflow(1, 0.0, &[(0, 1, 1500.0 * KB)]);
    // The first coflow ends after 12 ms. One that arrives at 13 ms has the link at once: 125 kB in 1 ms.
    let later = coflow(2, 13.0 * MS, &[(0, 1, 125.0 * KB)]);
    assert_near(&ends(2, vec![first.clone(), later]), &[12.0, 14.0], 1e-9, "ms");
    // One that arrives at 10 ms has no rate. The coordinator learns of the completion with its schedule at 16 ms.
    let earlier = coflow(2, 10.0 * MS, &[(0, 1, 125.0 * KB)]);
    assert_near(&ends(2, vec![first, earlier]), &[12.0, 17.0], 1e-9, "ms");
}

#[test]
fn other_flows_of_a_fresh_coflow_take_freed_capacity_at_once() {
    // The schedule at 0 is in a turn, so one flow has the whole port. Hosts serve the seven others when it has completed: 12.5 kB take
    // 0.1 ms, and 7 x 12.5 kB take 0.7 ms.
    let flows: Vec<(u32, u32, f64)> = (1..=8).map(|dst| (0, dst, 12.5 * KB)).collect();
    let all = workload(9, vec![coflow(1, 0.0, &flows)]);
    let outcome = replay_with(&all, "weir:turns=0.3", GBIT, INTERVAL, &mut NoObserver).unwrap();
    assert_near(&[outcome.coflows[0].end / MS], &[0.8], 1e-9, "ms");
}

#[test]
fn coflow_of_more_than_1024_flows_waits_for_the_schedule() {
    let wide = |flows: u32| {
        let flows: Vec<(u32, u32, f64)> = (1..=flows).map(|dst| (0, dst, 0.78125 * KB)).collect();
        ends(1026, vec![coflow(1, MS, &flows)])
    };
    // 1,024 x 781.25 B = 800 kB take 6.4 ms from 1 ms on; 1,025 flows take 6.40625 ms from 8 ms on.
    assert_near(&wide(1024), &[7.4], 1e-9, "ms");
    assert_near(&wide(1025), &[14.40625], 1e-9, "ms");
}

#[test]
fn new_coflow_of_a_leaf_waits_for_the_schedule() {
    // 125 kB take 1 ms from 8 ms on. The other leaf has its own links.
    let coflows = vec![coflow(1, MS, &[(0, 1, 125.0 * KB)]), coflow(2, MS, &[(2, 3, 125.0 * KB)])];
    let all = assign_services(workload(4, coflows), &[0, 1]);
    let tree = tree_of_two_services("weir:turns=0", "saath");
    let outcome = replay(&all, tree, &options(GBIT, INTERVAL), &mut NoObserver).unwrap();
    assert_near(&[outcome.coflows[0].end / MS], &[9.0], 1e-9, "ms");
}

#[test]
fn flow_whose_data_comes_between_two_schedules_waits() {
    // The first flow has the whole port until the schedule at 8 ms, when it has sent 1 MB of 1.5 MB. Both flows then need 0.5 MB at half
    // of the rate, 8 ms. The estimate of both is the bytes of 10^4 s, so their remainders, and rates, differ by up to 10^-6.
    let mut late = coflow(1, 0.0, &[(0, 1, 1500.0 * KB), (0, 2, 500.0 * KB)]);
    late.flows[1].data_delay = time(MS);
    assert_near(&ends(3, vec![late]), &[16.0], 1e-6, "ms");
}

/// Variants of `weir`, also with times that these workloads reach.
const VARIANTS: [&str; 5] =
    ["weir", "weir:turns=0:pilots=0s", "weir:turns=0.3:pilots=0s", "weir:prior=on:turns=0", "weir:turns=0"];

/// Checks that all bytes arrive, and that no link carries more than its capacity.
fn check_capacities(all: &Workload, options: &ReplayOptions, goodput: bool) -> Result<(), TestCaseError> {
    for variant in VARIANTS {
        let goodput = options.network.goodput.clone().filter(|_| goodput);
        let mut checker = CapacityChecker { goodput, ..CapacityChecker::default() };
        let outcome = replay(all, policy::build(variant).unwrap(), options, &mut checker);
        prop_assert_eq!(&checker.violation, &None, "{}", variant);
        let outcome = outcome.map_err(|error| TestCaseError::fail(format!("{variant}: {error}")))?;
        if all.events.is_empty() {
            check_all_sent_bytes(all, &checker.schedules, &outcome)
                .map_err(|error| TestCaseError::fail(format!("{variant}: {error}")))?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(150))]

    /// Arrivals, late data, restarts, failures of ports and completions of parents between schedules.
    #[test]
    fn rates_are_valid_between_schedules(
        w in prop_oneof![any_workload(WorkloadFeatures::ALL), any_workload(WorkloadFeatures::ALL.with_distinct_values())],
        interval in prop::sample::select(vec![0.3, 2.0, 7.0, 30.0]),
    ) {
        let w = scale_workload(&w, LEVEL_SCALE, 1.0);
        for variant in VARIANTS {
            check_invariants(&w, variant, LEVEL_SCALE, interval).map_err(TestCaseError::fail)?;
        }
    }

    /// As above, where flows change their paths, and where links that the policy does not decide over limit rates.
    #[test]
    fn rates_are_valid_between_schedules_on_failing_and_limited_links(
        (w, network) in any_failures(WorkloadFeatures { parents: true, empty_flows: true, late_data: true, ..WorkloadFeatures::PLAIN }),
        interval in prop::sample::select(vec![0.3, 2.0, 7.0, 30.0]),
        at_ports in any::<bool>(),
        has_incast in any::<bool>(),
    ) {
        let mut options = network.options(interval);
        if at_ports {
            options.network.decides_over = DecidesOver::Ports;
        }
        if has_incast {
            options.network.goodput = Some(Arc::clone(&goodput_of(&[(1, 1.0), (2, 0.8), (3, 0.5), (6, 0.1)], 1.0)));
        }
        check_capacities(&w, &options, has_incast)?;
    }
}
