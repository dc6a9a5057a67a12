//! Least-squares fits against the definition: no other polynomial has a smaller squared error.

use proptest::prelude::*;
use weir_core::solve::polynomial::{
    Degree, MAX_COEFFICIENT, Polynomial, PolynomialError, fit_polynomial, r_squared,
};

/// Bandwidth fractions of Saba section 7.1.
const PROFILED: [f64; 7] = [0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 1.0];

fn squared_error(polynomial: &Polynomial, samples: &[(f64, f64)]) -> f64 {
    samples.iter().map(|&(x, y)| (polynomial.evaluate(x) - y).powi(2)).sum()
}

fn random_samples() -> impl Strategy<Value = Vec<(f64, f64)>> {
    proptest::collection::vec(0.5..20.0f64, 7)
        .prop_map(|values| PROFILED.iter().copied().zip(values).collect())
}

fn any_degree() -> impl Strategy<Value = Degree> {
    proptest::sample::select(Degree::ALL.to_vec())
}

proptest! {
    #[test]
    fn fit_residuals_are_orthogonal_to_every_power(samples in random_samples(), degree in any_degree()) {
        // The normal equations, which only the least-squares solution satisfies.
        let fitted = fit_polynomial(&samples, degree).unwrap();
        prop_assert!(fitted.polynomial.degree() <= degree as usize);
        for power in 0..=degree as i32 {
            let dot: f64 = samples.iter().map(|&(x, y)| (y - fitted.polynomial.evaluate(x)) * x.powi(power)).sum();
            prop_assert!(dot.abs() < 1e-9, "power {}: {}", power, dot);
        }
    }

    #[test]
    fn perturbed_coefficients_have_a_larger_squared_error(samples in random_samples(), degree in any_degree(), step in proptest::array::uniform4(-1.0..1.0f64)) {
        let fitted = fit_polynomial(&samples, degree).unwrap().polynomial;
        let mut other = *fitted.coefficients();
        for (c, step) in other.iter_mut().zip(step).take(degree as usize + 1) {
            *c += step;
        }
        let other = Polynomial::new(&other).unwrap();
        prop_assert!(squared_error(&fitted, &samples) <= squared_error(&other, &samples) * (1.0 + 1e-12));
    }

    #[test]
    fn fit_recovers_the_sampled_polynomial(c in proptest::array::uniform4(-50.0..50.0f64)) {
        let polynomial = Polynomial::new(&c).unwrap();
        let samples: Vec<_> = PROFILED.iter().map(|&x| (x, polynomial.evaluate(x))).collect();
        let fitted = fit_polynomial(&samples, Degree::Cubic).unwrap();
        for (found, c) in fitted.polynomial.coefficients().iter().zip(c) {
            prop_assert!((found - c).abs() < 1e-9, "{} {}", found, c);
        }
        prop_assert!((fitted.r2 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn r2_rises_with_the_degree(samples in random_samples()) {
        // Section 4.2: R^2 grows with the degree of the polynomial.
        let r2: Vec<f64> = Degree::ALL.iter().map(|&d| fit_polynomial(&samples, d).unwrap().r2).collect();
        prop_assert!(r2[0] >= -1e-12 && r2[2] <= 1.0);
        prop_assert!(r2.is_sorted_by(|a, b| *a <= b + 1e-12), "{:?}", r2);
    }

    #[test]
    fn decreasing_and_convex_flags_match_a_fine_grid(c in proptest::array::uniform4(-10.0..10.0f64)) {
        let polynomial = Polynomial::new(&c).unwrap();
        let grid: Vec<f64> = (0..=2000).map(|i| f64::from(i) / 2000.0).collect();
        let steepest = grid.iter().map(|&x| polynomial.slope(x)).fold(f64::NEG_INFINITY, f64::max);
        let least = grid.iter().map(|&x| polynomial.curvature(x)).fold(f64::INFINITY, f64::min);
        // The maximum of the slope may lie between two grid points.
        prop_assume!(steepest.abs() > 1e-4 && least.abs() > 1e-4);
        prop_assert_eq!(polynomial.is_decreasing(0.0, 1.0), steepest < 0.0);
        prop_assert_eq!(polynomial.is_convex(0.0, 1.0), least > 0.0);
    }
}

#[test]
fn line_fit_of_three_points_matches_hand_computation() {
    // Slope = sum (x - 1)(y - 2) / sum (x - 1)^2 = 3 / 2, R^2 = 4.5 / 6.
    let fitted = fit_polynomial(&[(0.0, 1.0), (1.0, 1.0), (2.0, 4.0)], Degree::Linear).unwrap();
    let [c0, c1, c2, c3] = *fitted.polynomial.coefficients();
    assert!((c0 - 0.5).abs() < 1e-12 && (c1 - 1.5).abs() < 1e-12);
    assert_eq!((c2, c3), (0.0, 0.0));
    assert!((fitted.r2 - 0.75).abs() < 1e-12);
}

#[test]
fn fit_of_constant_samples_is_constant_with_full_r2() {
    let samples = PROFILED.map(|x| (x, 1.0));
    for degree in Degree::ALL {
        let fitted = fit_polynomial(&samples, degree).unwrap();
        assert!((fitted.polynomial.evaluate(0.3) - 1.0).abs() < 1e-12);
        assert_eq!(fitted.r2, 1.0);
        assert!(fitted.polynomial.is_decreasing(0.0, 1.0) && fitted.polynomial.is_convex(0.0, 1.0));
    }
}

#[test]
fn r2_can_be_negative_on_other_samples() {
    let model = Polynomial::new(&[5.0]).unwrap();
    assert_eq!(r_squared(&model, &[(0.0, 1.0), (1.0, 3.0)]), 1.0 - 20.0 / 2.0);
}

#[test]
fn polynomial_rejects_invalid_coefficients() {
    let refused = |c: &[f64]| Polynomial::new(c).unwrap_err().to_string();
    assert_eq!(
        refused(&[1.0, f64::NAN]),
        "coefficient c1: NaN is out of range; expected a number from -1e12 to 1e12"
    );
    assert_eq!(
        refused(&[f64::INFINITY]),
        "coefficient c0: inf is out of range; expected a number from -1e12 to 1e12"
    );
    assert!(Polynomial::new(&[MAX_COEFFICIENT; 4]).is_ok());
    assert_eq!(refused(&[]), "coefficients: 0 given; expected 1 to 4");
    assert_eq!(refused(&[0.0; 5]), "coefficients: 5 given; expected 1 to 4");
}

#[test]
fn fit_rejects_underdetermined_samples() {
    let error = fit_polynomial(&[(0.5, 1.0), (0.5, 2.0), (1.0, 1.0)], Degree::Quadratic).unwrap_err();
    assert_eq!(error.to_string(), "samples at 2 distinct x; expected at least 3 for degree 2");
    let error = fit_polynomial(&[(0.5, f64::NAN)], Degree::Linear).unwrap_err();
    assert_eq!(error.to_string(), "sample 0: (0.5, NaN) is not finite; expected two finite numbers");
    // Two abscissas that differ in the last bit: the line through them is too steep to use.
    let steep = fit_polynomial(&[(0.5, 0.0), (0.5f64.next_up(), 1.0)], Degree::Linear).unwrap_err();
    assert!(matches!(steep, PolynomialError::InvalidCoefficient { .. }), "{steep}");
}
