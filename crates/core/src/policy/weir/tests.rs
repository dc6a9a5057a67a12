use std::ops::Range;

use super::estimate::{ReceiverEstimates, Samples, expected_size};
use super::*;
use crate::engine::Engine;
use crate::model::{CoflowSpec, CompletedFlow, FlowSpec, PortSide};
use crate::policy::build;
use crate::policy::test_engine::{GB, fast_engine as engine, rates_gb, release_gb as release};
use crate::units::{Bytes, Time};

/// Completed flows as (receiver, size).
fn samples(receivers: usize, sizes: &[(usize, f64)]) -> Samples {
    let mut samples = Samples::new(receivers);
    sizes.iter().for_each(|&(receiver, size)| samples.add(receiver, size));
    samples
}

fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{found} instead of {expected}");
}

/// Schedules, and returns the rates of a coflow's flows, in GB/s.
fn rates(engine: &mut Engine, slot: Slot, now: f64) -> Vec<f64> {
    engine.schedule(now).unwrap();
    engine.next_wakeup(now).unwrap();
    rates_gb(engine, slot)
}

/// Runs until `end` or until `slot` completes, with a coflow of `arrival` GB from port 0 to port 1 at every second. Returns the
/// completion time of `slot`.
fn run_with_arrivals(engine: &mut Engine, slot: Slot, arrival: f64, end: f64) -> Option<f64> {
    let (mut now, mut next_arrival, mut id) = (0.0, if arrival > 0.0 { 0.0 } else { f64::INFINITY }, 100);
    while now < end {
        if arrival > 0.0 && now >= next_arrival {
            release(engine, id, &[(0, 1, arrival)], now);
            (next_arrival, id) = (next_arrival + 1.0, id + 1);
        }
        engine.schedule(now).unwrap();
        now = engine.next_wakeup(now).unwrap().min(engine.next_completion()).min(next_arrival);
        let mut completed: Vec<CompletedFlow> = Vec::new();
        engine.complete_flows_until(now, &mut completed);
        for done in completed {
            let coflow = engine.network().coflow(done.slot);
            if coflow.is_completed() {
                engine.remove_coflow(done.slot, now);
                if done.slot == slot {
                    return Some(now);
                }
            }
        }
    }
    None
}

#[test]
fn receiver_without_spread_keeps_its_mean() {
    let samples = samples(3, &[(0, 2.0), (0, 2.0), (1, 6.0)]);
    let summary = samples.summarize();
    assert_near(summary.receiver_mean(&samples, 0), 2.0);
    assert_near(summary.receiver_mean(&samples, 1), 6.0);
    // No completed flow: the mean of the receivers' means, not of the flows.
    assert_near(summary.receiver_mean(&samples, 2), 4.0);
}

#[test]
fn receiver_mean_shrinks_by_the_variances() {
    // Receiver 0: mean 2, squares 2, relative 0.5. Receiver 1: mean 6. One degree of freedom: within = 0.5. M = 4.
    // Noise of the means: 0.5 * 16 / 2 = 4 and 0.5 * 16 / 1 = 8; their mean is 6. Variance of the means: 8. So between = 2.
    let samples = samples(2, &[(0, 1.0), (0, 3.0), (1, 6.0)]);
    let summary = samples.summarize();
    assert_near(summary.within, 0.5);
    assert_near(summary.between, 2.0);
    assert_eq!(summary.degrees, 1);
    // Weights 2 / (2 + 4) and 2 / (2 + 8).
    assert_near(summary.receiver_mean(&samples, 0), 2.0 / 3.0 + 4.0 * 2.0 / 3.0);
    assert_near(summary.receiver_mean(&samples, 1), 6.0 * 0.2 + 4.0 * 0.8);
}

#[test]
fn estimates_change_only_with_new_sizes() {
    let mut estimates = ReceiverEstimates::default();
    let mut samples = samples(2, &[(0, 5.0)]);
    assert!(estimates.update(&samples));
    samples.add(0, 5.0);
    assert!(!estimates.update(&samples));
    samples.add(1, 7.0);
    assert!(estimates.update(&samples));
}

#[test]
fn flow_past_the_mean_is_expected_to_exceed_it_twice() {
    assert_near(expected_size(10.0, 0.0, 0.0, &Constants::default()), 10.0);
    assert_near(expected_size(10.0, 0.0, 9.0, &Constants::default()), 10.0);
    // At 98 % of the estimate: 1.1 times the bytes sent.
    assert_near(expected_size(10.0, 0.0, 9.9, &Constants::default()), 10.89);
    // 5 past the mean: 5 more.
    assert_near(expected_size(10.0, 0.0, 15.0, &Constants::default()), 20.0);
}

#[test]
fn expected_size_follows_the_lognormal_tail() {
    // Relative variance e - 1: the logarithm has deviation 1. At the median, mean * Phi(1) / (1 / 2).
    let mean = 100.0;
    let median = mean * (-0.5f64).exp();
    let expected = expected_size(mean, std::f64::consts::E - 1.0, median, &Constants::default());
    assert!((expected - mean * 2.0 * 0.841_344_746_068_543).abs() < 1e-6, "{expected}");
}

#[test]
fn required_samples_grow_with_the_variance() {
    let required = |spread, flows| required_samples(spread, flows, &Constants::default());
    assert_eq!(required(None, 9), 1);
    assert_eq!(required(Some((0.0, 0)), 9), 2);
    assert_eq!(required(Some((0.0, 8)), 9), 1);
    assert_eq!(required(Some((0.02, 8)), 90), 1);
    assert_eq!(required(Some((0.2, 8)), 90), 5);
    assert_eq!(required(Some((1.0, 8)), 90), 10);
    assert_eq!(required(Some((1.0, 8)), 9), 3);
    // A third of two flows is less than one.
    assert_eq!(required(Some((1.0, 8)), 2), 1);
}

#[test]
fn flows_of_an_unknown_coflow_have_equal_rates() {
    let mut engine = engine("weir:turns=0", 4);
    let slot = release(&mut engine, 1, &[(0, 2, 10.0), (0, 3, 20.0), (1, 3, 30.0)], 0.0);
    rates(&mut engine, slot, 0.0).into_iter().for_each(|rate| assert_near(rate, 0.5));
}

#[test]
fn known_coflow_goes_before_one_with_more_estimated_time() {
    let mut engine = engine("weir:turns=0", 3);
    let long = release(&mut engine, 1, &[(0, 1, 50.0), (0, 2, 50.0)], 0.0);
    assert_eq!(rates(&mut engine, long, 0.0), [0.5, 0.5]);
    // The long coflow has used its sender for 10 s; a new one goes first, although it is larger.
    let new = release(&mut engine, 2, &[(0, 1, 500.0)], 10.0);
    assert_near(rates(&mut engine, new, 10.0)[0], 1.0);
    assert_near(engine.network().sent_bytes(long, 0, 10.0) / GB, 5.0);
    // After 45 s, one flow of the long coflow is reported complete at 5 bytes: the other has 0.5 s left by the estimate.
    engine.close_flow(long, 0, 5.0 * GB, 55.0);
    assert_near(rates(&mut engine, long, 55.0)[1], 1.0);
}

/// Flows of `bytes` GB from each sender to each receiver.
fn shuffle(senders: Range<u32>, receivers: Range<u32>, bytes: f64) -> Vec<(u32, u32, f64)> {
    senders.flat_map(|src| receivers.clone().map(move |dst| (src, dst, bytes))).collect()
}

#[test]
fn pilots_share_one_common_rate() {
    let mut engine = engine("weir:turns=0:pilots=0s", 7);
    // Two senders, five receivers with a flow of each sender: pilots from senders 0, 1, 0, 1 and 0.
    let slot = release(&mut engine, 1, &shuffle(0..2, 2..7, 9.0), 0.0);
    // The common rate is 1/3; the residual capacity of sender 1 goes to its first pilot.
    let third = 1.0 / 3.0;
    let expected = [third, 0.0, third, 0.0, third, 0.0, 2.0 * third, 0.0, third, 0.0];
    rates(&mut engine, slot, 0.0)
        .into_iter()
        .zip(expected)
        .for_each(|(rate, expected)| assert_near(rate, expected));
}

#[test]
fn coflow_of_nine_flows_has_no_pilots() {
    let mut engine = engine("weir:turns=0:pilots=0s", 6);
    let slot = release(&mut engine, 1, &shuffle(0..3, 3..6, 9.0), 0.0);
    rates(&mut engine, slot, 0.0).into_iter().for_each(|rate| assert_near(rate, 1.0 / 3.0));
}

#[test]
fn pilots_start_at_twice_the_median_of_earlier_coflows() {
    let mut engine = engine("weir:turns=0", 7);
    let pilot_rates = |engine: &mut Engine, slot: Slot, now: f64| {
        let rates = rates(engine, slot, now);
        rates.contains(&0.0)
    };
    let wide = release(&mut engine, 1, &shuffle(0..2, 2..7, 90.0), 0.0);
    assert!(!pilot_rates(&mut engine, wide, 0.0), "no coflow has completed");
    // A coflow of 3 GB completes at other ports' expense: the wide one then has used its senders for 10 s.
    let other = release(&mut engine, 2, &[(2, 0, 3.0)], 10.0);
    engine.close_flow(other, 0, 3.0 * GB, 10.0);
    engine.remove_coflow(other, 10.0);
    assert!(
        pilot_rates(&mut engine, wide, 10.0),
        "10 s are more than twice 3 s, at most 3.75 s by the level"
    );
}

#[test]
fn newcomer_interrupts_a_coflow_that_is_almost_complete_only_briefly() {
    // Coflows of one flow with 10 GB complete, and the next one has sent 9 GB when another is released.
    let mut engine = engine("weir:turns=0", 2);
    let mut now = 0.0;
    for id in 0..20 {
        let slot = release(&mut engine, id, &[(0, 1, 10.0)], now);
        rates(&mut engine, slot, now);
        now += 10.0;
        engine.complete_flows_until(now, &mut Vec::new());
        engine.remove_coflow(slot, now);
    }
    let old = release(&mut engine, 30, &[(0, 1, 10.0)], now);
    rates(&mut engine, old, now);
    // By the prior, which counts as one of 21 coflows, a new coflow may be tiny. After 0.1 s, it probably needs 10 s as the others.
    let new = release(&mut engine, 31, &[(0, 1, 10.0)], now + 9.0);
    assert_near(rates(&mut engine, new, now + 9.0)[0], 1.0);
    assert_near(rates(&mut engine, old, now + 9.1)[0], 1.0);
    assert_near(rates(&mut engine, new, now + 9.1)[0], 0.0);
}

#[test]
fn turns_follow_from_the_interval() {
    let mut engine = engine("weir:turns=0.1", 2);
    engine.set_interval(1.0);
    // Turns take 4 intervals of 1 s, and the second one starts after 40 s.
    let large = release(&mut engine, 1, &[(0, 1, 1000.0)], 0.0);
    assert_near(rates(&mut engine, large, 0.0)[0], 1.0);
    // The large coflow has used the link for 3.9 s, so outside of turns, a new one goes first.
    let new = release(&mut engine, 2, &[(0, 1, 1000.0)], 3.9);
    assert_near(rates(&mut engine, large, 3.9)[0], 1.0);
    assert_near(engine.next_wakeup(3.9).unwrap(), 4.0);
    assert_near(rates(&mut engine, new, 4.0)[0], 1.0);
    engine.withdraw_coflow(new, 5.0);
    assert_near(rates(&mut engine, large, 5.0)[0], 1.0);
    let new = release(&mut engine, 3, &[(0, 1, 1000.0)], 39.9);
    assert_near(rates(&mut engine, new, 39.9)[0], 1.0);
    assert_near(engine.next_wakeup(39.9).unwrap(), 40.0);
    assert_near(rates(&mut engine, large, 40.0)[0], 1.0);
    assert_near(engine.next_wakeup(40.0).unwrap(), 44.0);
    assert_near(rates(&mut engine, new, 44.0)[0], 1.0);
    assert_near(rates(&mut engine, large, 44.0)[0], 0.0);
}

#[test]
fn turns_parameter_has_a_lower_bound() {
    for policy in ["weir", "weir:sizes=known"] {
        for valid in ["0", "0.000001", "0.99"] {
            assert!(build(&format!("{policy}:turns={valid}")).is_ok(), "{policy} {valid}");
        }
        for invalid in ["1e-320", "9e-7", "-0.1", "1", "NaN"] {
            let error = build(&format!("{policy}:turns={invalid}")).err().expect(invalid).to_string();
            assert!(error.ends_with("expected 0, or a number from 0.000001 to below 1"), "{error}");
        }
    }
}

#[test]
fn next_wakeup_follows_the_slowest_link_of_a_coflow() {
    let mut engine = engine("weir", 2);
    engine.set_interval(1.0);
    engine.scale_port(0, PortSide::Send, 0.1, 0.0);
    let slot = release(&mut engine, 1, &[(0, 1, 1000.0)], 0.0);
    assert_near(rates(&mut engine, slot, 0.0)[0], 0.1);
    // The first level of attained service ends after an interval.
    assert_near(engine.next_wakeup(0.0).unwrap(), 1.0);
}

#[test]
fn replaced_flows_keep_the_attained_service_of_their_coflow() {
    let mut engine = engine("weir:turns=0", 3);
    let old = release(&mut engine, 1, &[(0, 1, 100.0)], 0.0);
    rates(&mut engine, old, 0.0);
    rates(&mut engine, old, 10.0);
    // The new flow has sent nothing yet. A new coflow still goes first.
    let flow = FlowSpec::new(0, 2, Bytes::new(100.0 * GB).unwrap());
    engine.replace_flows(old, &CoflowSpec::new(1, Time::ZERO, vec![flow]), 10.0);
    let new = release(&mut engine, 2, &[(0, 1, 100.0)], 10.0);
    assert_near(rates(&mut engine, new, 10.0)[0], 1.0);
    assert_near(rates(&mut engine, old, 10.0)[0], 0.0);
}

#[test]
fn backfilling_uses_links_that_the_first_coflow_leaves() {
    let mut engine = engine("weir:turns=0", 4);
    let first = release(&mut engine, 1, &[(0, 2, 10.0)], 0.0);
    let second = release(&mut engine, 2, &[(0, 3, 10.0), (1, 3, 10.0)], 0.0);
    assert_near(rates(&mut engine, first, 0.0)[0], 1.0);
    assert_eq!(rates(&mut engine, second, 0.0), [0.0, 1.0]);
}

#[test]
fn turns_bound_the_completion_time_of_a_starved_coflow() {
    // Coflows of 1 GB arrive at every second and fill the link.
    for option in ["sizes=estimated", "sizes=known", "prior=on"] {
        let mut starving = engine(&format!("weir:turns=0:{option}"), 2);
        let slot = release(&mut starving, 1, &[(0, 1, 20.0)], 0.0);
        assert_eq!(run_with_arrivals(&mut starving, slot, 1.0, 2000.0), None, "{option}");
        let mut bounded = engine(&format!("weir:turns=0.1:{option}"), 2);
        let slot = release(&mut bounded, 1, &[(0, 1, 20.0)], 0.0);
        let end = run_with_arrivals(&mut bounded, slot, 1.0, 2000.0).expect("turns serve the oldest coflow");
        // 20 GB at 1 GB/s, and a period of 2.5 MB / 1 GB/s / 0.1. All flows cross the same two links, which are full at the same times,
        // so the links count once.
        assert!(end <= 20.0 / 0.1 + 0.025, "{option}: {end}");
    }
}

#[test]
fn completions_inside_intervals_cost_turn_time() {
    let mut engine = engine("weir:turns=0.1", 4);
    engine.set_interval(1.0);
    // 30 small flows on the contended links, and a large one elsewhere, so that the coflow goes last outside of turns.
    let flows: Vec<_> = (0..30).map(|_| (0, 1, 0.1)).chain([(2, 3, 5000.0)]).collect();
    let slot = release(&mut engine, 1, &flows, 0.0);
    let (mut now, mut small_flows_end) = (0.0, None);
    while small_flows_end.is_none() && now < 1000.0 {
        // A coflow that fills the link arrives at every second.
        release(&mut engine, 100 + now as u64, &[(0, 1, 1.0)], now);
        engine.schedule(now).unwrap();
        now += 1.0;
        let mut completed: Vec<CompletedFlow> = Vec::new();
        engine.complete_flows_until(now, &mut completed);
        for done in completed.iter().filter(|done| done.slot != slot) {
            engine.remove_coflow(done.slot, now);
        }
        let last = completed.iter().rfind(|done| done.slot == slot).map(|done| done.completed_at);
        small_flows_end = last.filter(|_| engine.network().coflow(slot).completed_count() == 30);
    }
    let end = small_flows_end.expect("turns serve the oldest coflow");
    // Each of the two links carries 3 GB of these flows. A second for each completion does not suffice outside of the turn time.
    let too_early = (3.0 + 3.0) / (0.75 * 0.1) + 40.0 + 30.0;
    let bound = (3.0 + 3.0 + 31.0) / (0.75 * 0.1) + 40.0;
    assert!(end > too_early && end <= bound, "{end}");
}

#[test]
fn flow_that_outgrows_its_estimate_completes() {
    let mut engine = engine("weir", 3);
    let slot = release(&mut engine, 1, &[(0, 1, 1.0), (0, 2, 60.0)], 0.0);
    assert_near(run_with_arrivals(&mut engine, slot, 0.0, 100.0).expect("both flows complete"), 61.0);
}

/// Releases a coflow of an application, with flows (src, dst, GB).
fn release_of(engine: &mut Engine, application: u32, flows: &[(u32, u32, f64)], now: f64) -> Slot {
    let flow =
        |&(src, dst, bytes): &(u32, u32, f64)| FlowSpec::new(src, dst, Bytes::new(bytes * GB).unwrap());
    let spec = CoflowSpec::new(0, Time::new(now).unwrap(), flows.iter().map(flow).collect());
    engine.release_coflow(&CoflowSpec { application, ..spec }, 0, now, &mut Vec::new())
}

/// An engine in which a coflow of application 1 with a flow of 50 GB and one of application 2 with 5 GB have completed, at 55 s.
fn engine_with_history(policy: &str) -> Engine {
    let mut engine = engine(policy, 3);
    for (application, bytes, start) in [(1, 50.0, 0.0), (2, 5.0, 50.0)] {
        let slot = release_of(&mut engine, application, &[(0, 1, bytes)], start);
        engine.schedule(start).unwrap();
        engine.close_flow(slot, 0, bytes * GB, start + bytes);
        engine.remove_coflow(slot, start + bytes);
    }
    engine
}

#[test]
fn coflow_with_a_prior_is_ordered_by_it_from_its_release() {
    // Two new coflows; the first one is of the application with large coflows.
    let rates_of = |policy: &str| {
        let mut engine = engine_with_history(policy);
        let large = release_of(&mut engine, 1, &[(0, 1, 50.0)], 55.0);
        let small = release_of(&mut engine, 2, &[(0, 1, 5.0)], 55.0);
        (rates(&mut engine, large, 55.0)[0], rates(&mut engine, small, 55.0)[0])
    };
    let (large, small) = rates_of("weir:turns=0:prior=on");
    assert_near(large, 0.0);
    assert_near(small, 1.0);
    // By default, neither is known, and the first one goes first.
    let (large, small) = rates_of("weir:turns=0");
    assert_near(large, 1.0);
    assert_near(small, 0.0);
}

#[test]
fn coflow_of_a_new_application_is_unknown() {
    let mut engine = engine_with_history("weir:turns=0:prior=on");
    let small = release_of(&mut engine, 2, &[(0, 1, 5.0)], 55.0);
    let new = release_of(&mut engine, 3, &[(0, 1, 500.0)], 55.0);
    assert_near(rates(&mut engine, new, 55.0)[0], 1.0);
    assert_near(rates(&mut engine, small, 55.0)[0], 0.0);
}

#[test]
fn wrong_prior_ends_when_a_flow_has_sent_far_more() {
    let mut engine = engine_with_history("weir:turns=0:prior=on");
    let slot = release_of(&mut engine, 2, &[(0, 1, 500.0), (0, 2, 500.0)], 55.0);
    // One flow has sent 18 bytes, the other none: the prior of 5 bytes expects more of the first one.
    rates(&mut engine, slot, 55.0);
    engine.set_flow_sent_bytes(slot, 0, 18.0 * GB, 56.0);
    engine.set_flow_sent_bytes(slot, 1, 0.0 * GB, 56.0);
    let with_prior = rates(&mut engine, slot, 56.0);
    assert!(with_prior[0] > 2.0 * with_prior[1], "{with_prior:?}");
    // Three deviations of 0.5 above 5 bytes are 22.4 bytes. Beyond, the coflow is unknown, and its flows have equal rates.
    engine.set_flow_sent_bytes(slot, 0, 23.0 * GB, 57.0);
    let without = rates(&mut engine, slot, 57.0);
    assert!((without[0] - without[1]).abs() < 0.01, "{without:?}");
}

#[test]
fn first_completed_flow_replaces_the_prior() {
    let mut engine = engine_with_history("weir:turns=0:prior=on");
    let slot = release_of(&mut engine, 1, &[(0, 1, 2.0), (0, 2, 2.0)], 55.0);
    rates(&mut engine, slot, 55.0);
    engine.close_flow(slot, 0, 2.0 * GB, 59.0);
    // By the completed flow, less than 2 s are left; by the prior, more than 40 s.
    let other = release_of(&mut engine, 2, &[(0, 1, 5.0)], 59.0);
    assert_near(rates(&mut engine, other, 59.0)[0], 0.0);
    assert_near(rates(&mut engine, slot, 59.0)[1], 1.0);
}
