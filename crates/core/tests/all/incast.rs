//! Incast measurements against results by hand.

use weir_core::model::{Incast, IncastError, IncastRun};
use weir_core::units::Rate;

fn incast_run(buffer: u32, connections: u32, goodput: f64, loss: f64) -> IncastRun {
    IncastRun { buffer, connections, bytes: 100.0, loss, goodput }
}

fn rate(value: f64) -> Rate {
    Rate::new(value).unwrap()
}

/// Runs with this buffer and number of connections on a link of 10 bytes/s, whose first 20 bytes take no
/// time.
fn run_with_stall(buffer: u32, connections: u32, stall: f64, loss: f64) -> IncastRun {
    let bytes = 100.0 * f64::from(connections);
    incast_run(buffer, connections, bytes / ((bytes - 20.0) / 10.0 + stall), loss)
}

fn grid_of_runs() -> Vec<IncastRun> {
    vec![
        run_with_stall(10, 1, 0.0, 0.0),
        run_with_stall(10, 2, 0.0, 0.0),
        run_with_stall(10, 4, 20.0, 0.2),
        run_with_stall(10, 8, 120.0, 0.4),
        run_with_stall(20, 1, 0.0, 0.0),
        run_with_stall(20, 2, 0.0, 0.0),
        run_with_stall(20, 4, 0.0, 0.0),
        run_with_stall(20, 8, 40.0, 0.2),
    ]
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-12, "{found} instead of {expected}");
}

#[test]
fn incast_stall_duration_is_independent_of_the_link_rate() {
    let incast = Incast::new(&grid_of_runs()).unwrap();
    // The link rate is exact although the free first bytes raise all goodputs.
    assert_near(incast.link_rate(), 10.0);
    let same = incast.goodput(10, rate(10.0)).unwrap();
    for (connections, part) in
        [(0, 1.0), (1, 1.0), (2, 1.0), (3, 5.0 / 6.0), (4, 2.0 / 3.0), (8, 0.4), (99, 0.4)]
    {
        assert_near(same.utilization(connections), part);
    }
    // On a link that is ten times as fast, 400 bytes take 4 s, and the stall still 20 s.
    let fast = incast.goodput(10, rate(100.0)).unwrap();
    assert_near(fast.utilization(4), 4.0 / 24.0);
    assert_near(fast.utilization(8), 8.0 / 128.0);
    assert_near(fast.loss(8), 0.4);
    assert_near(fast.loss(6), 0.3);
    assert_eq!((same.best_connections(), fast.best_connections()), (2, 2));
    assert!(same.has_reduction());
}

#[test]
fn incast_costs_nothing_on_a_zero_rate_link() {
    let stopped = Incast::new(&grid_of_runs()).unwrap().goodput(10, Rate::ZERO).unwrap();
    assert_eq!((stopped.utilization(8), stopped.best_connections()), (1.0, 8));
    assert!(!stopped.has_reduction());
}

#[test]
fn goodput_is_interpolated_between_measured_buffers() {
    let incast = Incast::new(&grid_of_runs()).unwrap();
    let between = incast.goodput(15, rate(10.0)).unwrap();
    assert_near(between.utilization(4), 5.0 / 6.0);
    assert_near(between.loss(4), 0.1);
    assert!(incast.goodput(9, rate(10.0)).is_none() && incast.goodput(21, rate(10.0)).is_none());
    assert_eq!(incast.goodput(20, rate(10.0)).unwrap().best_connections(), 4);
    // Cross-validation needs a third buffer size.
    assert_eq!(incast.interpolation_error(rate(10.0)), None);
}

#[test]
fn goodput_fit_never_rises_with_the_number_of_connections() {
    // Goodput fractions of 1, 0.2 and 0.6 by connections: the estimate is in the middle of the feasible
    // range. The other buffer size gives the link rate.
    let medians = [(5, 1, 10.0), (5, 2, 2.0), (5, 4, 6.0), (6, 1, 10.0), (6, 2, 10.0), (6, 4, 10.0)];
    let incast =
        Incast::new(&medians.map(|(buffer, n, goodput)| incast_run(buffer, n, goodput, 0.0))).unwrap();
    let goodput = incast.goodput(5, rate(10.0)).unwrap();
    assert_near(goodput.utilization(1), 1.0);
    assert_near(goodput.utilization(2), 0.4);
    assert_near(goodput.utilization(4), 0.4);
    assert_near(incast.goodput(6, rate(10.0)).unwrap().utilization(4), 1.0);
    // The median counts: one outlier of three runs has no effect.
    let bad = [10.0, 10.0, 0.1].map(|goodput| incast_run(5, 1, goodput, 0.0));
    assert_near(Incast::new(&bad).unwrap().goodput(5, rate(10.0)).unwrap().utilization(1), 1.0);
}

#[test]
fn interpolation_error_is_measured_on_held_out_buffers() {
    let error = |middle: f64| {
        let mut runs = Vec::new();
        for (buffer, part) in [(10, 0.5), (20, middle), (30, 1.0)] {
            runs.push(incast_run(buffer, 1, 10.0, 0.0));
            runs.push(incast_run(buffer, 2, 10.0 * part, 0.1));
        }
        Incast::new(&runs).unwrap().interpolation_error(rate(10.0)).unwrap()
    };
    // Halfway between its neighbours, and 0.1 below that for one of the two connection counts.
    assert_near(error(0.75), 0.0);
    assert_near(error(0.65), 0.05);
}

#[test]
fn incast_rejects_empty_incomplete_and_out_of_range_runs() {
    let refused = |runs: &[IncastRun]| Incast::new(runs).unwrap_err();
    assert_eq!(refused(&[]), IncastError::NoRuns);
    assert_eq!(refused(&grid_of_runs()[..7]), IncastError::MissingRuns { buffer: 20, connections: 8 });
    let other = IncastRun { bytes: 101.0, ..incast_run(10, 2, 10.0, 0.0) };
    assert_eq!(refused(&[incast_run(10, 1, 10.0, 0.0), other]), IncastError::UnequalBytes(1));
    let good = incast_run(10, 1, 10.0, 0.0);
    for (bad, what) in [
        (IncastRun { buffer: 0, ..good }, "buffer"),
        (IncastRun { connections: Incast::MAX_CONNECTIONS + 1, ..good }, "connections"),
        (IncastRun { bytes: f64::NAN, ..good }, "bytes"),
        (IncastRun { loss: 1.0, ..good }, "loss"),
        (IncastRun { goodput: 0.0, ..good }, "goodput"),
        (IncastRun { goodput: f64::INFINITY, ..good }, "goodput"),
    ] {
        assert_eq!(refused(&[good, bad]), IncastError::OutOfBounds { run: 1, field: what });
    }
}
