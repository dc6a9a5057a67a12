use super::*;
use crate::engine::Engine;
use crate::model::{CompletedFlow, PortSide};
use crate::policy::test_engine::{engine, rates, release};

fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1e-3), "{found} instead of {expected}");
}

/// Levels that start at these times, without sizes.
fn table(starts: &[f64]) -> IndexTable {
    let level =
        |pair: &[f64]| Level { start: pair[0], end: pair[1], completions: 0.0, service: 0.0, index: 0.0 };
    IndexTable { levels: starts.windows(2).map(level).collect(), is_stale: true }
}

/// Completes flows and coflows until `now`, and schedules.
fn run_until(engine: &mut Engine, now: f64) {
    let mut completed: Vec<CompletedFlow> = Vec::new();
    engine.complete_flows_until(now, &mut completed);
    for done in completed {
        let coflow = engine.network().coflow(done.slot);
        if coflow.is_completed() {
            engine.remove_coflow(done.slot, now);
        }
    }
    engine.schedule(now).unwrap();
    engine.next_wakeup(now).unwrap();
}

#[test]
fn index_is_the_best_rate_of_completions_over_all_later_levels() {
    // Sizes 1 and 9. From 0, up to 1: one completion in 1 + 1 s; up to 9: two in 1 + 9 s. From 1: one in 8 s.
    let mut two_sizes = table(&[0.0, 1.0, 9.0]);
    two_sizes.add_size(1.0);
    two_sizes.add_size(9.0);
    two_sizes.update();
    assert_near(two_sizes.index(0.0), 1.0 / 2.0);
    assert_near(two_sizes.index(1.0), 1.0 / 8.0);
    // Size 3 only. From 0: one completion in 3 s. From 1: one in 2 s, so the index rises with the attained service.
    let mut one_size = table(&[0.0, 1.0, 3.0]);
    one_size.add_size(3.0);
    one_size.update();
    assert_near(one_size.index(0.0), 1.0 / 3.0);
    assert_near(one_size.index(1.0), 1.0 / 2.0);
}

#[test]
fn lognormal_distribution_has_its_mean_and_median() {
    // Median 2, sigma 1: P(X > 2) = 1/2, and E[X] = 2 exp(1/2).
    let sizes = LogNormal { median: 2.0, sigma: 1.0 };
    assert_near(sizes.survival(2.0), 0.5);
    assert!((sizes.service_between(0.0, 1e9) - 2.0 * 0.5f64.exp()).abs() < 1e-6);
    // Up to 2: E[X; X <= 2] + 2 P(X > 2) = 2 exp(1/2) Phi(-1) + 1.
    assert_near(sizes.service_between(0.0, 2.0), 2.0 * 0.5f64.exp() * 0.158_655_253_931_457 + 1.0);
}

#[test]
fn index_beyond_the_last_level_decreases_with_the_level() {
    let mut table = table(&[0.0, 1.0, 4.0]);
    table.add_size(3.0);
    table.update();
    // From 1: one completion in 2 s. Twice the start of the last level: half of that.
    assert_near(table.index(1.0), 0.5);
    assert_near(table.index(2.0), 0.25);
}

#[test]
fn least_attained_service_goes_first() {
    let mut engine = engine("gittins:index=las", 3);
    let old = release(&mut engine, 1, &[(0, 1, 50.0), (0, 2, 50.0)], 0.0);
    run_until(&mut engine, 0.0);
    assert_eq!(rates(&engine, old), [0.5, 0.5]);
    // After 4 s, the old coflow has used its sender for 4 s, and a new one for 0 s.
    let new = release(&mut engine, 2, &[(0, 1, 500.0)], 4.0);
    run_until(&mut engine, 4.0);
    assert_eq!((rates(&engine, new), rates(&engine, old)), (vec![1.0], vec![0.0, 0.0]));
    // After 6 s more, the new coflow has used its sender for longer.
    run_until(&mut engine, 10.0);
    assert_eq!((rates(&engine, new), rates(&engine, old)), (vec![0.0], vec![0.5, 0.5]));
}

#[test]
fn coflow_of_learned_size_continues_near_its_end() {
    // One coflow of 10 s completes. The second one has attained 5 s when the third is released.
    let second_rate = |policy: &str| {
        let mut engine = engine(policy, 2);
        release(&mut engine, 1, &[(0, 1, 10.0)], 0.0);
        run_until(&mut engine, 0.0);
        run_until(&mut engine, 10.0);
        let second = release(&mut engine, 2, &[(0, 1, 10.0)], 10.0);
        run_until(&mut engine, 10.0);
        release(&mut engine, 3, &[(0, 1, 10.0)], 15.0);
        run_until(&mut engine, 15.0);
        rates(&engine, second)[0]
    };
    // By the learned size, about 1 / 10 for a new coflow, and at least 1 / 6 for one that has attained 5 s.
    assert_eq!(second_rate("gittins:prior=0.001"), 1.0);
    assert_eq!(second_rate("gittins:index=las"), 0.0);
}

#[test]
fn slow_port_does_not_raise_the_attained_service_of_sent_bytes() {
    let mut engine = engine("gittins:index=las", 3);
    // The first coflow sends 4 bytes in 4 s.
    let first = release(&mut engine, 1, &[(0, 2, 50.0)], 0.0);
    run_until(&mut engine, 0.0);
    run_until(&mut engine, 4.0);
    // The second coflow takes port 2 until it has sent 8 bytes.
    let second = release(&mut engine, 2, &[(1, 2, 50.0)], 4.0);
    run_until(&mut engine, 4.0);
    assert_eq!((rates(&engine, first), rates(&engine, second)), (vec![0.0], vec![1.0]));
    run_until(&mut engine, 12.0);
    // At a quarter of its capacity, port 0 needs 20 s for 5 bytes. They still count for 5 s, and those of the second coflow for 8 s.
    engine.scale_port(0, PortSide::Send, 0.25, 12.0);
    run_until(&mut engine, 12.0);
    run_until(&mut engine, 16.2);
    assert_eq!(rates(&engine, first), [0.25]);
}
