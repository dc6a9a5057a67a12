//! NetShare's rate throttling and demand prediction against the paper.

use proptest::prelude::*;
use weir_core::netshare::{
    DemandEstimator, DemandPredictor, FlowDemand, MEASUREMENT_PERIOD, RateThrottle, limit_with_headroom,
};
use weir_core::units::Rate;

fn rate(value: f64) -> Rate {
    Rate::new(value).unwrap()
}

fn throttle_limits(floor: f64, measured: &[f64]) -> Vec<f64> {
    let mut throttle = RateThrottle::new(rate(floor));
    measured.iter().map(|&r| throttle.update_limit(rate(r)).map_or(f64::INFINITY, Rate::get)).collect()
}

fn assert_close(values: &[f64], expected: &[f64]) {
    assert_eq!(values.len(), expected.len());
    for (value, expected) in values.iter().zip(expected) {
        let same = value == expected || (value - expected).abs() <= 1e-9 * expected.abs().max(1.0);
        assert!(same, "{values:?} instead of {expected:?}");
    }
}

#[test]
fn throttle_limit_settles_ten_percent_above_the_rate() {
    // Section 3.2: the last rate is 94, the new one 100. By Algorithm 1 the limit is 120 (the text says
    // "roughly 114"), then 110.
    assert_close(&throttle_limits(1.0, &[94.0, 100.0, 100.0, 100.0]), &[112.8, 120.0, 110.0, 110.0]);
}

#[test]
fn throttle_limit_ignores_changes_below_five_percent() {
    // Changes of +4 % and -4 % after the rate has settled are ignored; a change of 5 % is not.
    assert_close(
        &throttle_limits(0.0, &[100.0, 100.0, 104.0, 100.0, 95.0, 99.75]),
        &[120.0, 110.0, 110.0, 110.0, 104.5, 119.7],
    );
    // The limit does not follow a slow decrease.
    assert_close(&throttle_limits(0.0, &[100.0, 100.0, 96.0, 93.0, 90.0, 87.0])[2..], &[110.0; 4]);
}

#[test]
fn throttle_limit_ignores_a_slow_rise() {
    // After a decrease the limit is 94.6. The measured rate rises to that in steps below 5 %, so the limit
    // stays there although the link has 100.
    let measured = [100.0, 84.0, 86.0, 90.0, 94.0, 94.6];
    assert_close(&throttle_limits(0.0, &measured)[1..], &[92.4, 94.6, 94.6, 94.6, 94.6]);
}

#[test]
fn throttle_limit_is_ten_percent_above_a_fallen_rate() {
    // The flag of the previous rise stays set, so the small change after it sets the limit again.
    assert_close(&throttle_limits(0.0, &[100.0, 50.0, 51.0, 52.0]), &[120.0, 55.0, 56.1, 56.1]);
}

#[test]
fn throttle_limit_never_falls_below_the_minimum() {
    assert_close(&throttle_limits(5.0, &[100.0, 1.0, 0.0, 0.0]), &[120.0, 5.0, 5.0, 5.0]);
}

#[test]
fn throttle_has_no_limit_before_the_first_arrival() {
    assert_close(&throttle_limits(5.0, &[0.0, 0.0, 10.0]), &[f64::INFINITY, f64::INFINITY, 12.0]);
}

/// Section 5.3: A1 (TCP, weight 1) and A2 (UDP, weight 3) share E1-C. A2 continues over C to E3, where
/// `unused_at_a3` is the bandwidth that A3 does not use. Returns the received rates of A2 and A1 under A2's limit
/// after each period.
fn run_two_links(throttle: &mut RateThrottle, unused_at_a3: f64, periods: usize) -> Vec<(f64, f64)> {
    let step = |_| {
        let sent = throttle.limit().map_or(1000.0, Rate::get).min(1000.0);
        let through = sent.min(750.0);
        throttle.update_limit(rate(through.min(unused_at_a3)));
        (through.min(unused_at_a3), 1000.0 - through)
    };
    (0..periods).map(step).collect()
}

#[test]
fn throttling_gives_a1_the_bandwidth_that_a2_cannot_use() {
    // Fig. 12, 95 to 125 s: A2 is limited to 275 (250 * 1.1), and A1 gets 725. Fig. 14: before any limit A1
    // gets 250.
    let mut throttle = RateThrottle::new(rate(1.0));
    let received = run_two_links(&mut throttle, 250.0, 4);
    assert_close(&received.iter().map(|r| r.0).collect::<Vec<_>>(), &[250.0; 4]);
    assert_close(&received.iter().map(|r| r.1).collect::<Vec<_>>(), &[250.0, 700.0, 725.0, 725.0]);
    assert_close(&[throttle.limit().unwrap().get()], &[275.0]);
    // A3 stops: the limit rises by 20 % each period and reaches 750 in the seventh (350 ms).
    let received = run_two_links(&mut throttle, 1000.0, 10);
    let growth = [275.0, 330.0, 396.0, 475.2, 570.24, 684.288, 750.0, 750.0];
    assert_close(&received[..8].iter().map(|r| r.0).collect::<Vec<_>>(), &growth);
    assert_close(&[throttle.limit().unwrap().get()], &[825.0]);
}

fn predict_demand(measured: &[f64]) -> Option<f64> {
    let mut demand = DemandPredictor::new();
    measured.iter().for_each(|&r| demand.add_measurement(rate(r)));
    demand.predict_rate().map(Rate::get)
}

#[test]
fn demand_prediction_extrapolates_a_line_through_five_samples() {
    assert_eq!(predict_demand(&[]), None);
    assert_close(&[predict_demand(&[7.0]).unwrap()], &[7.0]);
    assert_close(&[predict_demand(&[7.0, 9.0]).unwrap()], &[11.0]);
    assert_close(&[predict_demand(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap()], &[6.0]);
    // The sixth sample replaces the first.
    assert_close(&[predict_demand(&[900.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap()], &[6.0]);
    assert_close(&[predict_demand(&[10.0, 0.0, 0.0, 0.0, 0.0]).unwrap()], &[0.0]);
    // Least squares: mean 4, slope 1.2.
    assert_close(&[predict_demand(&[2.0, 3.0, 3.0, 5.0, 7.0]).unwrap()], &[7.6]);
}

/// Adds periods of one flow, and returns how many of them end with an unlimited demand.
fn add_periods(
    flow: &mut DemandEstimator,
    seconds: f64,
    sent: f64,
    limit: f64,
    is_backlogged: bool,
) -> usize {
    let periods = (seconds / MEASUREMENT_PERIOD.get()).round() as usize;
    let add_period = |_: &usize| {
        flow.add_measurement(rate(sent), Some(rate(limit)), is_backlogged);
        flow.demand() == Some(FlowDemand::Unlimited)
    };
    (0..periods).filter(add_period).count()
}

fn demanded_rate(flow: &DemandEstimator) -> f64 {
    match flow.demand() {
        Some(FlowDemand::Rate(rate)) => rate.get(),
        other => panic!("expected a rate, got {other:?}"),
    }
}

#[test]
fn backlogged_flow_demands_everything_and_an_idle_one_its_rate() {
    let mut flow = DemandEstimator::new();
    assert_eq!(flow.demand(), None);
    // A flow that congestion limits to 20 of 148, as in the first second of two services that start together.
    assert_eq!(add_periods(&mut flow, 0.2, 20.0, 148.0, true), 0);
    assert_eq!(add_periods(&mut flow, 1.0, 20.0, 148.0, true), 20);
    assert_eq!(add_periods(&mut flow, 0.05, 20.0, 148.0, false), 0);
    assert_close(&[demanded_rate(&flow)], &[20.0]);
    // Without backlog, a flow at its limit demands everything.
    assert_eq!(add_periods(&mut flow, 0.2, 20.0, 20.5, false), 0);
    assert_eq!(add_periods(&mut flow, 1.0, 20.0, 20.5, false), 20);
}

#[test]
fn flow_that_cannot_use_its_limit_demands_its_rate_with_rare_probes() {
    let mut flow = DemandEstimator::new();
    // The first second shows the rate, and two more no rise.
    add_periods(&mut flow, 3.2, 20.0, 148.0, true);
    assert_close(&[demanded_rate(&flow)], &[21.0]);
    // Probes of twice the rate for 2 s after 2, 4, 8, 16, 32 and then 60 s.
    let mut probe_time = |seconds: u32| -> f64 {
        let demands = (0..20 * seconds).map(|_| {
            assert_eq!(add_periods(&mut flow, 0.05, 20.0, 148.0, true), 0);
            demanded_rate(&flow)
        });
        let probed: Vec<f64> = demands.filter(|&demand| demand != 21.0).collect();
        assert!(probed.iter().all(|&demand| demand == 40.0), "{probed:?}");
        probed.len() as f64 * MEASUREMENT_PERIOD.get()
    };
    let times = [probe_time(72), probe_time(620)];
    assert!((10.0..12.1).contains(&times[0]) && (18.0..22.1).contains(&times[1]), "{times:?}");
    // It sends slightly more than before, and then as much as it demands, up to its limit.
    for sent in [21.0, 42.0, 84.0] {
        add_periods(&mut flow, 1.0, sent, 148.0, true);
        assert_close(&[demanded_rate(&flow)], &[2.0 * sent]);
    }
    add_periods(&mut flow, 1.0, 148.0, 148.0, true);
    assert_eq!(flow.demand(), Some(FlowDemand::Unlimited));
}

#[test]
fn flow_that_loses_what_it_gave_away_claims_its_share() {
    let mut flow = DemandEstimator::new();
    add_periods(&mut flow, 3.2, 20.0, 148.0, true);
    // Others take a part of its rate, for 2 s.
    add_periods(&mut flow, 1.0, 10.0, 148.0, true);
    assert_close(&[demanded_rate(&flow)], &[21.0]);
    add_periods(&mut flow, 1.0, 10.0, 148.0, true);
    assert_eq!(flow.demand(), Some(FlowDemand::Unlimited));
    // The claim has an effect: it holds for 4 s, and after the next loss for 8 s.
    for held in [4.0, 8.0] {
        add_periods(&mut flow, 2.0, 19.0, 148.0, true);
        assert_eq!(add_periods(&mut flow, held, 19.0, 148.0, true), (held * 20.0) as usize);
        add_periods(&mut flow, 1.0, 19.0, 148.0, true);
        assert_close(&[demanded_rate(&flow)], &[19.0 * 1.05]);
        add_periods(&mut flow, 2.0, 10.0, 148.0, true);
    }
}

#[test]
fn flow_whose_claim_has_no_effect_demands_its_lower_rate() {
    let mut flow = DemandEstimator::new();
    add_periods(&mut flow, 3.2, 20.0, 148.0, true);
    add_periods(&mut flow, 2.0, 10.0, 148.0, true);
    assert_eq!(flow.demand(), Some(FlowDemand::Unlimited));
    add_periods(&mut flow, 3.0, 11.0, 148.0, true);
    assert_close(&[demanded_rate(&flow)], &[11.0 * 1.05]);
    // At its limit, it demands everything, and the next probe is soon again.
    add_periods(&mut flow, 1.0, 10.0, 10.0, true);
    assert_eq!(flow.demand(), Some(FlowDemand::Unlimited));
    add_periods(&mut flow, 3.0, 10.0, 148.0, true);
    assert_close(&[demanded_rate(&flow)], &[10.5]);
}

#[test]
fn flow_without_a_limit_or_with_a_growing_rate_demands_everything() {
    let mut flow = DemandEstimator::new();
    for period in 0..400 {
        flow.add_measurement(rate(20.0), None, true);
        assert_eq!(flow.demand() == Some(FlowDemand::Unlimited), period >= 4, "period {period}");
    }
    // 4 % a second, as TCP over a long path.
    let mut sent = 20.0;
    for _ in 0..800 {
        flow.add_measurement(rate(sent), Some(rate(148.0)), true);
        assert_eq!(flow.demand(), Some(FlowDemand::Unlimited), "{sent}");
        sent *= 1.002;
    }
}

#[test]
fn enforced_rate_is_ten_percent_above_the_allocation() {
    assert_close(&[limit_with_headroom(rate(725.0)).get()], &[797.5]);
    assert_eq!(limit_with_headroom(rate(f64::MAX)).get(), f64::MAX);
}

proptest! {
    /// A queue or a repeated packet lets up to 12 % of a second's bytes arrive in the next second, as measured behind a queue of 120 ms.
    #[test]
    fn flow_that_is_limited_elsewhere_seldom_claims_its_share_if_its_rate_varies(
        delays in prop::collection::vec(prop_oneof![2 => Just(0.0), 1 => 0.0f64..0.12], 600),
    ) {
        let mut flow = DemandEstimator::new();
        let (mut late, mut claimed) = (0.0, 0);
        for delay in delays {
            let sent = 20.0 * (1.0 - delay) + late;
            late = 20.0 * delay;
            claimed += add_periods(&mut flow, 1.0, sent, 148.0, true);
        }
        prop_assert!(claimed <= 600, "{} of 12000 periods", claimed);
    }

    #[test]
    fn throttle_limits_follow_random_rates(floor in 0.0f64..10.0, measured in prop::collection::vec(0.0f64..1e12, 1..50)) {
        let mut throttle = RateThrottle::new(rate(floor));
        for (at, &now) in measured.iter().enumerate() {
            let last = if at == 0 { 0.0 } else { measured[at - 1] };
            let limit = throttle.update_limit(rate(now)).map(Rate::get);
            if let Some(limit) = limit {
                prop_assert!(limit >= floor);
            }
            // After a significant change, the limit is 10 or 20 % above the rate, or the minimum limit.
            if (now - last).abs() > 0.0501 * last {
                let part = if now > last { 1.2 } else { 1.1 };
                prop_assert!((limit.unwrap() - (part * now).max(floor)).abs() <= 1e-9 * now.max(1.0));
            }
        }
    }

    #[test]
    fn demand_prediction_equals_the_least_squares_line(measured in prop::collection::vec(0.0f64..1e12, 2..12)) {
        let recent = &measured[measured.len().saturating_sub(5)..];
        // The normal equations, with time counted from the first sample.
        let n = recent.len() as f64;
        let (mut t, mut y, mut tt, mut ty) = (0.0, 0.0, 0.0, 0.0);
        for (at, value) in recent.iter().enumerate() {
            let at = at as f64;
            (t, y, tt, ty) = (t + at, y + value, tt + at * at, ty + at * value);
        }
        let slope = (n * ty - t * y) / (n * tt - t * t);
        let expected = ((y - slope * t) / n + slope * n).max(0.0);
        prop_assert!((predict_demand(&measured).unwrap() - expected).abs() <= 1e-9 * 1e12);
    }

    #[test]
    fn demand_prediction_is_finite_for_any_samples(measured in prop::collection::vec(0.0f64..=f64::MAX, 1..8)) {
        prop_assert!(predict_demand(&measured).unwrap().is_finite());
    }
}
