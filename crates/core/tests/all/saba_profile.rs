//! The profiler and its models, against section 4 of Saba.

use proptest::prelude::*;
use weir_core::saba::profile::{PROFILED_FRACTIONS, ProfileError};
use weir_core::saba::{Fraction, Profile};
use weir_core::solve::polynomial::Degree;
use weir_core::units::Time;

fn seconds_or_error(seconds: f64) -> Result<Time, String> {
    Time::new(seconds).ok_or_else(|| format!("{seconds} s"))
}

fn fraction(value: f64) -> Fraction {
    Fraction::new(value).unwrap()
}

/// A profile with these slowdowns.
fn profile_with_slowdowns(slowdowns: &[(f64, f64)]) -> Profile {
    let fractions: Vec<Fraction> = slowdowns.iter().map(|&(b, _)| fraction(b)).collect();
    let mut job = |bandwidth: Fraction| {
        seconds_or_error(slowdowns.iter().find(|(b, _)| *b == bandwidth.get()).map_or(1.0, |(_, d)| *d))
    };
    Profile::measure(&mut job, &fractions).unwrap()
}

/// Slowdowns of LR from the text: 4.5, 3.4 and 1.3 at 10, 25 and 75 % (section 4.2), 2.26 at 50 % (section
/// 2.2).
const LR: [(f64, f64); 4] = [(0.10, 4.5), (0.25, 3.4), (0.50, 2.26), (0.75, 1.3)];

#[test]
fn profiler_runs_once_per_fraction_in_decreasing_order() {
    let mut runs = Vec::new();
    let mut job = |bandwidth: Fraction| {
        runs.push(bandwidth.get());
        // 3 s of computation, then 1 s of communication at full bandwidth.
        seconds_or_error(3.0 + 1.0 / bandwidth.get())
    };
    let profile = Profile::measure(&mut job, &PROFILED_FRACTIONS).unwrap();
    assert_eq!(runs, [1.0, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05]);
    let found: Vec<_> =
        profile.runs().iter().map(|s| (s.bandwidth.get(), s.time.get(), s.slowdown)).collect();
    assert_eq!(found[0], (0.05, 23.0, 5.75));
    assert_eq!(found[3], (0.5, 5.0, 1.25));
    assert_eq!(found[6], (1.0, 4.0, 1.0));
}

#[test]
fn profile_always_contains_the_full_bandwidth_run() {
    let profile = profile_with_slowdowns(&LR);
    assert_eq!(profile.runs().len(), 5);
    assert_eq!(profile.runs()[4].slowdown, 1.0);
}

#[test]
fn r2_of_lr_by_degree_matches_figure_6a() {
    // k = 1 explains most of the variance of LR, k = 2 far more, and k = 3 adds little.
    let profile = profile_with_slowdowns(&LR);
    let r2 = Degree::ALL.map(|degree| profile.fit(degree).unwrap().r2);
    assert!(r2[0] > 0.84, "{r2:?}");
    assert!(r2[1] - r2[0] > 5.0 * (r2[2] - r2[1]), "{r2:?}");
    // Text of 4.2: "a second-degree polynomial perfectly fits the data for LR".
    assert!(r2[1] > 0.99, "{r2:?}");
}

#[test]
fn model_accuracy_is_computed_on_another_profile() {
    // Section 4.2: the accuracy at other settings is the R^2 of the old model over the new runs.
    let small = profile_with_slowdowns(&LR);
    let large = profile_with_slowdowns(&LR.map(|(b, d)| (b, 1.5 * d)));
    let fit = small.fit(Degree::Cubic).unwrap();
    assert!((small.r2(&fit.sensitivity) - fit.r2).abs() < 1e-12);
    assert!(small.r2(&fit.sensitivity) > large.r2(&fit.sensitivity));
}

#[test]
fn job_without_communication_has_a_flat_model() {
    let profile = Profile::measure(&mut |_: Fraction| seconds_or_error(7.0), &PROFILED_FRACTIONS).unwrap();
    for degree in Degree::ALL {
        let fit = profile.fit(degree).unwrap();
        assert!((fit.sensitivity.slowdown(fraction(0.05)) - 1.0).abs() < 1e-12);
        assert_eq!(fit.r2, 1.0);
        assert!(fit.sensitivity.shape().is_decreasing && fit.sensitivity.shape().is_convex);
    }
}

#[test]
fn profile_stops_at_a_failed_run_and_names_it() {
    let mut job =
        |b: Fraction| if b.get() < 0.2 { Err("timed out".to_owned()) } else { seconds_or_error(1.0) };
    let error = Profile::measure(&mut job, &PROFILED_FRACTIONS).unwrap_err();
    assert_eq!(error.to_string(), "the run at 0.1 of the bandwidth failed: timed out");
    let error = Profile::measure(&mut |_: Fraction| seconds_or_error(0.0), &PROFILED_FRACTIONS).unwrap_err();
    assert_eq!(error.to_string(), "the run with all bandwidth took 0s; expected a time above 0");
    let mut job = |b: Fraction| seconds_or_error(if b == Fraction::ALL { 1e-300 } else { 1.0 });
    let error = Profile::measure(&mut job, &PROFILED_FRACTIONS).unwrap_err();
    assert!(matches!(error, ProfileError::TooSlow { slowdown, .. } if slowdown > 1e299));
}

#[test]
fn model_requires_enough_runs() {
    let error = profile_with_slowdowns(&[(0.5, 2.0)]).fit(Degree::Cubic).unwrap_err();
    assert_eq!(error.to_string(), "samples at 2 distinct x; expected at least 4 for degree 3");
}

#[test]
fn fraction_rejects_values_outside_zero_to_one() {
    for value in [0.0, -0.1, 1.0f64.next_up(), f64::NAN, f64::INFINITY] {
        let error = Fraction::new(value).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("`{value}` is not a fraction of the bandwidth; expected a number above 0 and up to 1")
        );
    }
}

proptest! {
    #[test]
    fn profile_model_shape_matches_a_grid(slowdowns in proptest::array::uniform6(1.0..12.0f64)) {
        // Any slowdowns, including those of non-monotone jobs.
        let samples: Vec<_> = PROFILED_FRACTIONS.iter().map(|b| b.get()).zip(slowdowns).collect();
        let fit = profile_with_slowdowns(&samples).fit(Degree::Cubic).unwrap();
        let model = fit.sensitivity.model();
        let values: Vec<f64> = (0..=1000).map(|i| model.evaluate(f64::from(i) / 1000.0)).collect();
        let shape = fit.sensitivity.shape();
        if shape.is_decreasing {
            prop_assert!(values.is_sorted_by(|a, b| *b <= a + 1e-6));
        }
        if shape.is_convex {
            prop_assert!(values.windows(3).all(|w| w[0] + w[2] >= 2.0 * w[1] - 1e-6));
        }
        // Conversely, a rising model shows on the grid unless the rise is tiny.
        if values.windows(2).any(|w| w[1] > w[0] + 1e-6) {
            prop_assert!(!shape.is_decreasing);
        }
        if values.windows(3).any(|w| w[0] + w[2] < 2.0 * w[1] - 1e-6) {
            prop_assert!(!shape.is_convex);
        }
    }

    #[test]
    fn cubic_fit_of_a_steep_monotone_profile_can_rise(
        at_5 in 2.2..6.0f64, rest in proptest::array::uniform3(0.0..0.2f64),
    ) {
        // SQL in section 4.2: 2.2 at 10 %, 1.2 at 25 %, and a value between 1 and 1.2 from 50 % on.
        let mut rest = rest;
        rest.sort_by(|a, b| b.total_cmp(a));
        let [at_50, at_75, at_90] = rest;
        let samples = [(0.05, at_5), (0.1, 2.2), (0.25, 1.2), (0.5, 1.0 + at_50), (0.75, 1.0 + at_75), (0.9, 1.0 + at_90)];
        let fit = profile_with_slowdowns(&samples).fit(Degree::Cubic).unwrap();
        prop_assert!(!fit.sensitivity.shape().is_decreasing);
        prop_assert!(!fit.sensitivity.shape().is_convex);
    }
}
