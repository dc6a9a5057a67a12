//! Incast: ports whose goodput falls with the number of senders. Examples by hand, and properties of every
//! policy.

use std::sync::Arc;

use crate::common::{
    CapacityChecker, POLICIES, WorkloadFeatures, any_workload, assert_near, cases, check_all_sent_bytes,
    coflow, is_near, options, replay_with_options, time, workload,
};
use proptest::prelude::*;
use weir_core::model::{Goodput, Incast, IncastRun, Workload};
use weir_core::policy;
use weir_core::units::Rate;
use weir_sim::{NetworkModel, ReplayOptions, replay};

/// Measurements with a buffer of one byte per connection, on a link of 1 byte/s. A second buffer size without
/// loss gives the link rate.
pub fn goodput_of(parts: &[(u32, f64)], rate: f64) -> Arc<Goodput> {
    let run =
        |buffer, connections, goodput| IncastRun { buffer, connections, bytes: 1.0, loss: 0.0, goodput };
    let both = parts.iter().flat_map(|&(n, part)| [run(1, n, part), run(2, n, 1.0)]);
    let incast = Incast::new(&both.collect::<Vec<IncastRun>>()).unwrap();
    Arc::new(incast.goodput(1, Rate::new(rate).unwrap()).unwrap())
}

fn options_with_goodput(goodput: &Arc<Goodput>, rate: f64, interval: f64) -> ReplayOptions {
    ReplayOptions {
        network: NetworkModel { goodput: Some(Arc::clone(goodput)), ..NetworkModel::default() },
        ..options(rate, interval)
    }
}

/// Checks the completion times of the first coflow's flows.
#[track_caller]
fn check_ends(all: &Workload, policy: &str, options: &ReplayOptions, ends: &[f64]) {
    assert_near(&replay_with_options(all, policy, options).coflows[0].flow_ends, ends, 1e-9, policy);
}

#[test]
fn two_incast_senders_halve_receiver_goodput() {
    let goodput = goodput_of(&[(1, 1.0), (2, 0.5)], 1.0);
    let one = workload(3, vec![coflow(1, 0.0, &[(0, 2, 4.0), (1, 2, 2.0)])]);
    let through = options_with_goodput(&goodput, 1.0, 0.0);
    // Both at a quarter until the shorter one ends at 8. The remaining flow then gets the whole port.
    for policy in ["fair", "aalo", "aalo+", "aalo:at=both", "saath"] {
        check_ends(&one, policy, &through, &[10.0, 8.0]);
    }
    // Both flows end together, at half of the port rate.
    check_ends(&one, "varys", &through, &[12.0, 12.0]);
    // One concurrent connection costs no goodput.
    let django = replay_with_options(&one, "django:connections=1", &through).coflows[0].cct();
    assert!(is_near(django, 6.0, 1e-9), "{django}");
}

#[test]
fn incast_stall_is_equally_long_on_a_faster_link() {
    // 2 bytes take 1 s at 2 bytes/s, and the stall stays 2 s: a third of the port rate.
    let goodput = goodput_of(&[(1, 1.0), (2, 0.5)], 2.0);
    let one = workload(3, vec![coflow(1, 0.0, &[(0, 2, 4.0), (1, 2, 4.0)])]);
    for policy in ["fair", "aalo+", "varys", "saath"] {
        check_ends(&one, policy, &options_with_goodput(&goodput, 2.0, 0.0), &[12.0, 12.0]);
    }
}

#[test]
fn incast_only_slows_the_receiver_with_several_senders() {
    let goodput = goodput_of(&[(1, 1.0), (2, 0.5)], 1.0);
    // Port 2 has two senders. Port 3 has one sender, whose port is shared.
    let one = workload(4, vec![coflow(1, 0.0, &[(0, 2, 3.0), (0, 3, 3.0), (1, 2, 3.0)])]);
    let through = options_with_goodput(&goodput, 1.0, 0.0);
    // Per-flow TCP gives the residual capacity of port 0, three quarters, to the flow to port 3.
    check_ends(&one, "fair", &through, &[12.0, 4.0, 12.0]);
    // Saath gives each flow a half; the flows to port 2 achieve half of that.
    check_ends(&one, "saath", &through, &[12.0, 6.0, 12.0]);
}

#[test]
fn unused_sender_capacity_goes_past_a_receiver_that_another_sender_would_slow_down() {
    let goodput = goodput_of(&[(1, 1.0), (2, 0.5)], 1.0);
    // Ports 0 and 1 send to port 3, a quarter each. Port 4 sends halves to ports 2 and 5.
    let first = coflow(1, 0.0, &[(0, 3, 4.0), (1, 3, 4.0), (4, 2, 4.0), (4, 5, 4.0)]);
    // With a second sender, port 2 carries no more than its half. Port 0 sends its three quarters to port 6.
    let second = coflow(2, 0.0, &[(0, 2, 1.0), (0, 6, 3.0)]);
    let all = workload(7, vec![first, second]);
    let found = replay_with_options(&all, "aalo", &options_with_goodput(&goodput, 1.0, 0.0));
    assert!(is_near(found.coflows[1].flow_ends[1], 4.0, 1e-9), "{:?}", found.coflows[1].flow_ends);
}

#[test]
fn connection_without_a_rate_costs_no_goodput() {
    let goodput = goodput_of(&[(1, 1.0), (2, 0.5)], 1.0);
    // From 1 s on, port 0 sends the second coflow only. The first coflow keeps its connection to port 2.
    let all = workload(4, vec![coflow(1, 0.0, &[(0, 2, 4.0), (0, 3, 4.0)]), coflow(2, 1.0, &[(0, 2, 1.0)])]);
    let through = options_with_goodput(&goodput, 1.0, 0.0);
    let found = replay_with_options(&all, "django:connections=2", &through).ccts();
    assert_near(&found, &[9.0, 1.0], 1e-9, "django");
}

/// At 15.5 s, a flow has sent exactly what `weir` estimates. Rates that differ by rounding, because a limit applies flow by flow, would
/// change the decision.
#[test]
fn goodput_limit_that_reduces_no_rate_leaves_the_replay_identical() {
    let mut late = coflow(1, 0.0, &[(0, 1, 3.0), (1, 1, 4.0), (0, 0, 2.0), (0, 0, 4.0), (0, 0, 1.5)]);
    late.flows[2].data_delay = time(6.0);
    late.flows[3].data_delay = time(6.0);
    let wide = [(1, 1, 1.0), (0, 0, 2.0), (1, 0, 2.0), (0, 0, 1.0), (0, 0, 1.0), (0, 0, 2.0)];
    let others = [
        coflow(2, 15.25, &[(0, 0, 1.0)]),
        coflow(3, 10.25, &[(0, 0, 1.0)]),
        coflow(4, 4.0, &[(0, 0, 1.0), (0, 0, 1.0), (0, 1, 1.0)]),
    ];
    let all = workload(2, [coflow(0, 3.5, &wide), late].into_iter().chain(others).collect());
    let far = goodput_of(&[(1, 1.0), (100, 1.0), (200, 0.1)], 1.0);
    let policy = "weir:turns=0:pilots=0s";
    let plain = replay_with_options(&all, policy, &options(1.0, 0.5)).coflows;
    let limited = replay_with_options(&all, policy, &options_with_goodput(&far, 1.0, 0.5)).coflows;
    assert_eq!(limited, plain);
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn incast_goodput_never_exceeds_port_capacity(all in any_workload(WorkloadFeatures { port_changes: true, late_data: true, ..WorkloadFeatures::PLAIN }), interval in prop::sample::select(vec![0.0, 0.5])) {
        let goodput = goodput_of(&[(1, 1.0), (2, 0.8), (3, 0.5), (6, 0.1)], 1.0);
        for policy in POLICIES {
            let mut checker = CapacityChecker { goodput: Some(Arc::clone(&goodput)), ..CapacityChecker::default() };
            let built = policy::build(policy).unwrap();
            let outcome = replay(&all, built, &options_with_goodput(&goodput, 1.0, interval), &mut checker);
            prop_assert_eq!(&checker.violation, &None, "{}", policy);
            let outcome = outcome.map_err(|error| TestCaseError::fail(format!("{policy}: {error}")))?;
            // Flows whose data became unavailable may have sent some bytes before.
            if all.events.is_empty() {
                check_all_sent_bytes(&all, &checker.schedules, &outcome)?;
            }
        }
    }

    #[test]
    fn incast_without_goodput_loss_changes_no_replay(all in any_workload(WorkloadFeatures::ALL)) {
        let free = goodput_of(&[(1, 1.0), (2, 1.0)], 1.0);
        // More connections than any port has here.
        let far = goodput_of(&[(1, 1.0), (100, 1.0), (200, 0.1)], 1.0);
        for policy in POLICIES {
            let plain = replay_with_options(&all, policy, &options(1.0, 0.5)).coflows;
            prop_assert_eq!(&replay_with_options(&all, policy, &options_with_goodput(&free, 1.0, 0.5)).coflows, &plain, "{}", policy);
            let ccts_of = |outcomes: &[weir_sim::CoflowOutcome]| outcomes.iter().map(|c| c.cct()).collect::<Vec<f64>>();
            let found = ccts_of(&replay_with_options(&all, policy, &options_with_goodput(&far, 1.0, 0.5)).coflows);
            for (found, plain) in found.into_iter().zip(ccts_of(&plain)) {
                prop_assert!(is_near(found, plain, 1e-6), "{}: {} and {}", policy, found, plain);
            }
        }
    }
}
