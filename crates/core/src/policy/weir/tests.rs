use super::estimate::{ReceiverEstimates, Samples, expected_size};
use super::*;
use crate::engine::Engine;
use crate::model::CompletedFlow;
use crate::policy::test_engine::{self, engine, release};

/// Completed flows as (receiver, size).
fn samples(receivers: usize, sizes: &[(usize, f64)]) -> Samples {
    let mut samples = Samples::new(receivers);
    sizes.iter().for_each(|&(receiver, size)| samples.add(receiver, size));
    samples
}

fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{found} instead of {expected}");
}

/// Schedules, and returns the rates of a coflow's flows.
fn rates(engine: &mut Engine, slot: Slot, now: f64) -> Vec<f64> {
    engine.schedule(now);
    engine.next_wakeup(now);
    test_engine::rates(engine, slot)
}

/// Runs until `end` or until `slot` completes, with a coflow of `arrival` bytes from port 0 to port 1 at every second. Returns the
/// completion time of `slot`.
fn run_with_arrivals(engine: &mut Engine, slot: Slot, arrival: f64, end: f64) -> Option<f64> {
    let (mut now, mut next_arrival, mut id) = (0.0, if arrival > 0.0 { 0.0 } else { f64::INFINITY }, 100);
    while now < end {
        if arrival > 0.0 && now >= next_arrival {
            release(engine, id, &[(0, 1, arrival)], now);
            (next_arrival, id) = (next_arrival + 1.0, id + 1);
        }
        engine.schedule(now);
        now = engine.next_wakeup(now).min(engine.next_completion()).min(next_arrival);
        let mut completed: Vec<CompletedFlow> = Vec::new();
        engine.complete_flows_until(now, &mut completed);
        for done in completed {
            let coflow = engine.network().coflow(done.slot);
            if coflow.completed_count() == coflow.width() {
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
    assert_eq!(required_samples(None, 9, &Constants::default()), 1);
    assert_eq!(required_samples(Some((0.0, 0)), 9, &Constants::default()), 2);
    assert_eq!(required_samples(Some((0.0, 8)), 9, &Constants::default()), 1);
    assert_eq!(required_samples(Some((0.2, 8)), 90, &Constants::default()), 5);
    assert_eq!(required_samples(Some((1.0, 8)), 90, &Constants::default()), 10);
    assert_eq!(required_samples(Some((1.0, 8)), 9, &Constants::default()), 3);
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
    assert_near(engine.network().sent_bytes(long, 0, 10.0), 5.0);
    // After 45 s, one flow of the long coflow is reported complete at 5 bytes: the other has 0.5 s left by the estimate.
    engine.close_flow(long, 0, 5.0, 55.0);
    assert_near(rates(&mut engine, long, 55.0)[1], 1.0);
}

#[test]
fn pilots_share_one_common_rate() {
    let mut engine = engine("weir:turns=0:pilots=0s", 5);
    // Two senders, three receivers with a flow of each sender: pilots from senders 0, 1 and 0.
    let flows = [(0, 2, 9.0), (0, 3, 9.0), (0, 4, 9.0), (1, 2, 9.0), (1, 3, 9.0), (1, 4, 9.0)];
    let slot = release(&mut engine, 1, &flows, 0.0);
    // The common rate is 1/2; the residual capacity of sender 1 goes to its pilot.
    assert_eq!(rates(&mut engine, slot, 0.0), [0.5, 0.0, 0.5, 0.0, 1.0, 0.0]);
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
    // Coflows of 1 byte arrive at every second and fill the link.
    for sizes in ["estimated", "known"] {
        let mut starving = engine(&format!("weir:turns=0:sizes={sizes}"), 2);
        let slot = release(&mut starving, 1, &[(0, 1, 20.0)], 0.0);
        assert_eq!(run_with_arrivals(&mut starving, slot, 1.0, 2000.0), None, "{sizes}");
        let mut bounded = engine(&format!("weir:turns=0.1:sizes={sizes}"), 2);
        let slot = release(&mut bounded, 1, &[(0, 1, 20.0)], 0.0);
        let end = run_with_arrivals(&mut bounded, slot, 1.0, 2000.0).expect("turns serve the oldest coflow");
        // Two links, each with 20 bytes at 1 byte/s.
        assert!(end <= (20.0 + 20.0) / 0.1 + 2.0, "{sizes}: {end}");
    }
}

#[test]
fn flow_that_outgrows_its_estimate_completes() {
    let mut engine = engine("weir", 3);
    let slot = release(&mut engine, 1, &[(0, 1, 1.0), (0, 2, 60.0)], 0.0);
    assert_near(run_with_arrivals(&mut engine, slot, 0.0, 100.0).expect("both flows complete"), 61.0);
}
