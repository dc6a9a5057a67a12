//! Saba's Eq. 2 against solutions by hand, on a grid, and by SLSQP, which the paper uses.

use crate::common::config_with_cases;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use slsqp::{Func, StopTols, minimize};
use weir_core::saba::Fraction;
use weir_core::saba::app_weights::{AppWeights, DEFAULT_MIN_SHARE};
use weir_core::saba::controller::AppId;
use weir_core::solve::SeparableSolver;
use weir_core::solve::polynomial::{Degree, MAX_COEFFICIENT, Polynomial, fit_polynomial};
use weir_core::solve::separable::{SeparableError, SeparableProblem, Solution, total_cost};

/// Search budget: more splits than these tests need to prove optimality.
const SPLITS: usize = 20_000;

fn solve_separable(costs: &[Polynomial], total: f64, lower: f64, upper: f64) -> Solution {
    SeparableSolver::default().minimize(&SeparableProblem { costs, total, lower, upper }, SPLITS).unwrap()
}

fn polynomial(coefficients: &[f64]) -> Polynomial {
    Polynomial::new(coefficients).unwrap()
}

fn check_feasible(solution: &Solution, total: f64, lower: f64, upper: f64) -> Result<(), TestCaseError> {
    let sum: f64 = solution.weights.iter().sum();
    prop_assert!((sum - total).abs() <= 1e-9, "{} instead of {}", sum, total);
    for weight in &solution.weights {
        prop_assert!((lower..=upper).contains(weight), "{} is outside {}..{}", weight, lower, upper);
    }
    Ok(())
}

/// Cubics of any shape.
fn any_cubic() -> impl Strategy<Value = Polynomial> {
    proptest::array::uniform4(-5.0..5.0f64).prop_map(|c| polynomial(&c))
}

/// Models of profiled jobs with measurement noise. A job computes for 1 and communicates for `network` at
/// full bandwidth; the fraction `overlap` of the communication overlaps with computation.
fn profiled_model() -> impl Strategy<Value = Polynomial> {
    let parts = (0.05..8.0f64, 0.0..1.0f64, proptest::array::uniform7(0.97..1.03f64), 0usize..3);
    parts.prop_map(|(network, overlap, noise, degree)| {
        let time = |b: f64| 1.0f64.max(network * overlap / b) + network * (1.0 - overlap) / b;
        let samples: Vec<_> = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]
            .iter()
            .zip(noise)
            .map(|(&b, noise)| (b, noise * time(b) / time(1.0)))
            .collect();
        fit_polynomial(&samples, Degree::ALL[degree]).unwrap().polynomial
    })
}

/// The minimum over all shares that are multiples of `total / steps`.
fn grid_minimum(costs: &[Polynomial], total: f64, steps: usize) -> f64 {
    // Minimal cost of the first applications, by the number of steps that they use together.
    let mut least = vec![f64::INFINITY; steps + 1];
    least[0] = 0.0;
    for cost in costs {
        let own: Vec<f64> = (0..=steps).map(|s| cost.evaluate(total * s as f64 / steps as f64)).collect();
        least = (0..=steps)
            .map(|all| (0..=all).map(|s| least[all - s] + own[s]).fold(f64::INFINITY, f64::min))
            .collect();
    }
    least[steps]
}

proptest! {
    #![proptest_config(config_with_cases(300))]

    #[test]
    fn separable_solution_is_at_least_as_good_as_a_grid(costs in proptest::collection::vec(any_cubic(), 1..7), total in 0.1..1.0f64) {
        let solution = solve_separable(&costs, total, 0.0, 1.0);
        check_feasible(&solution, total, 0.0, 1.0)?;
        prop_assert!((total_cost(&costs, &solution.weights) - solution.cost).abs() < 1e-12);
        let best = grid_minimum(&costs, total, 60);
        prop_assert!(solution.lower_bound <= best + 1e-9, "bound {} but grid {}", solution.lower_bound, best);
        prop_assert!(solution.cost <= best + 1e-8, "{} but grid {}", solution.cost, best);
        prop_assert!(solution.is_proven(), "gap {}", solution.gap());
    }

    #[test]
    fn separable_value_is_between_its_bound_and_the_optimum(costs in proptest::collection::vec(any_cubic(), 1..30), total in 0.1..1.0f64) {
        // The dual bound alone, without a search: the gap is at most one application's distance to its convex
        // envelope.
        let problem = SeparableProblem { costs: &costs, total, lower: 0.0, upper: 1.0 };
        let quick = SeparableSolver::default().minimize(&problem, 0).unwrap();
        let exact = SeparableSolver::default().minimize(&problem, SPLITS).unwrap();
        check_feasible(&quick, total, 0.0, 1.0)?;
        prop_assert!(quick.lower_bound <= exact.cost + 1e-9 && exact.cost <= quick.cost + 1e-9);
        prop_assert!(quick.lower_bound <= exact.lower_bound + 1e-9);
        // A cubic with coefficients up to 5 exceeds a chord of it by at most that.
        prop_assert!(quick.gap() <= 20.0);
    }

    #[test]
    fn separable_convex_costs_are_solved_without_splits(c in proptest::collection::vec((-5.0..0.0f64, 0.01..5.0f64, 0.0..5.0f64), 1..60)) {
        let costs: Vec<_> = c.iter().map(|&(c1, c2, c3)| polynomial(&[1.0, c1, c2, c3])).collect();
        let problem = SeparableProblem { costs: &costs, total: 1.0, lower: 0.0, upper: 1.0 };
        let solution = SeparableSolver::default().minimize(&problem, 0).unwrap();
        prop_assert!(solution.is_proven(), "gap {}", solution.gap());
        // No application gains from bandwidth of another.
        let slopes: Vec<f64> = costs.iter().zip(&solution.weights).map(|(c, &w)| c.slope(w)).collect();
        let steepest_taker = slopes.iter().copied().fold(f64::INFINITY, f64::min);
        for (slope, &weight) in slopes.iter().zip(&solution.weights) {
            prop_assert!(weight < 1e-9 || *slope <= steepest_taker + 1e-6, "{} {}", slope, steepest_taker);
        }
    }

    #[test]
    fn extreme_coefficients_still_give_feasible_shares(
        c in proptest::collection::vec(proptest::array::uniform4(extreme_coefficient()), 1..12),
        total in prop_oneof![Just(1.0), Just(1e-6), 0.01..1.0f64],
        floor in prop_oneof![Just(0.0), Just(1.0), 0.0..1.0f64],
    ) {
        let costs: Vec<_> = c.iter().map(|c| polynomial(c)).collect();
        let lower = floor * total / costs.len() as f64;
        let problem = SeparableProblem { costs: &costs, total, lower, upper: total };
        let solution = SeparableSolver::default().minimize(&problem, 50).unwrap();
        check_feasible(&solution, total, lower, total)?;
        prop_assert!(solution.cost.is_finite() && solution.lower_bound <= solution.cost);
    }

    #[test]
    fn separable_solver_reuse_does_not_change_results(
        first in proptest::collection::vec(profiled_model(), 1..20), second in proptest::collection::vec(profiled_model(), 1..20),
    ) {
        let problem = |costs| SeparableProblem { costs, total: 1.0, lower: 0.0, upper: 1.0 };
        let mut used = SeparableSolver::default();
        used.minimize(&problem(&first[..]), 20).unwrap();
        let again = used.minimize(&problem(&second[..]), 20).unwrap();
        prop_assert_eq!(again, SeparableSolver::default().minimize(&problem(&second[..]), 20).unwrap());
    }
}

fn extreme_coefficient() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(MAX_COEFFICIENT),
        Just(-MAX_COEFFICIENT),
        Just(f64::MIN_POSITIVE),
        Just(-5e-324),
        Just(1e-200),
        Just(-1.0),
        -10.0..10.0f64,
        (-300.0..12.0f64).prop_map(|e| 10f64.powf(e)),
        (-300.0..12.0f64).prop_map(|e| -10f64.powf(e)),
    ]
}

/// SLSQP from equal shares. The last share is the remainder.
fn slsqp_cost(costs: &[Polynomial], total: f64, lower: f64, upper: f64) -> Option<f64> {
    let others = costs.len() - 1;
    let last = |x: &[f64]| total - x.iter().sum::<f64>();
    let objective = |x: &[f64], gradient: Option<&mut [f64]>, _: &mut ()| {
        if let Some(gradient) = gradient {
            for (g, (cost, &w)) in gradient.iter_mut().zip(costs.iter().zip(x)) {
                *g = cost.slope(w) - costs[others].slope(last(x));
            }
        }
        total_cost(&costs[..others], x) + costs[others].evaluate(last(x))
    };
    let too_little = |x: &[f64], gradient: Option<&mut [f64]>, _: &mut ()| {
        if let Some(gradient) = gradient {
            gradient.fill(1.0);
        }
        lower - last(x)
    };
    let too_much = |x: &[f64], gradient: Option<&mut [f64]>, _: &mut ()| {
        if let Some(gradient) = gradient {
            gradient.fill(-1.0);
        }
        last(x) - upper
    };
    let constraints: [&dyn Func<()>; 2] = [&too_little, &too_much];
    let even = vec![total / costs.len() as f64; others];
    let stop = StopTols { ftol_rel: 1e-12, ..StopTols::default() };
    let bounds = vec![(lower, upper); others];
    // A stop due to rounding counts as a failure, but still returns a point.
    let found = minimize(objective, &even, &bounds, &constraints, (), 1000, Some(stop));
    let x = found.map_or_else(|(_, x, _)| x, |(_, x, _)| x);
    // The returned point may violate the constraints.
    let inside = x.iter().chain(&[last(&x)]).all(|w| (lower - 1e-9..=upper + 1e-9).contains(w));
    inside.then(|| total_cost(&costs[..others], &x) + costs[others].evaluate(last(&x)))
}

/// Port weights with the search budget of Saba's controllers.
#[test]
fn shares_of_a_port_are_never_worse_than_slsqp() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut compared = 0;
    for case in 0..60 {
        let size = [2, 3, 5, 8, 16, 32][case % 6];
        let costs =
            proptest::collection::vec(profiled_model(), size).new_tree(&mut runner).unwrap().current();
        let Some(rival) = slsqp_cost(&costs, 1.0, DEFAULT_MIN_SHARE.get() / size as f64, 1.0) else {
            continue;
        };
        let apps: Vec<AppId> = (0..size as u64).map(AppId).collect();
        let own = AppWeights::solve(
            &mut SeparableSolver::default(),
            &apps,
            &costs,
            Fraction::ALL,
            DEFAULT_MIN_SHARE,
        );
        assert!(own.total_slowdown <= rival + 1e-6, "case {case}: {} but SLSQP {rival}", own.total_slowdown);
        assert!(
            own.total_slowdown - own.optimality_gap <= rival + 1e-6,
            "case {case}: the lower bound is above the cost of SLSQP"
        );
        compared += 1;
    }
    assert!(compared >= 55, "SLSQP converged in only {compared} cases");
}

#[test]
fn separable_solution_is_never_worse_than_slsqp() {
    // Section 7.2: the paper computes its weights with SLSQP from Eq. 2.
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut compared, mut better) = (0, 0);
    for case in 0..200 {
        let size = [2, 3, 5, 8, 16, 32][case % 6];
        let costs =
            proptest::collection::vec(profiled_model(), size).new_tree(&mut runner).unwrap().current();
        let lower = 0.05 / size as f64;
        let Some(rival) = slsqp_cost(&costs, 1.0, lower, 1.0) else { continue };
        let own = solve_separable(&costs, 1.0, lower, 1.0);
        // Tolerance for SLSQP points slightly outside the constraints: slopes stay below 100.
        assert!(own.cost <= rival + 1e-6, "case {case}: {} but SLSQP {rival}", own.cost);
        compared += 1;
        better += usize::from(own.cost < rival - 1e-4 * rival.abs());
    }
    assert!(compared >= 190, "SLSQP converged in only {compared} cases");
    assert!(better > 0, "SLSQP never had a higher cost");
}

#[test]
fn two_parabolas_are_divided_at_equal_slopes() {
    // 2 (w - 1) = 6 (v - 1) and w + v = 1 give w = 1/4 and v = 3/4.
    let solution =
        solve_separable(&[polynomial(&[1.0, -2.0, 1.0]), polynomial(&[3.0, -6.0, 3.0])], 1.0, 0.0, 1.0);
    assert!((solution.weights[0] - 0.25).abs() < 1e-9 && (solution.weights[1] - 0.75).abs() < 1e-9);
    assert!((solution.cost - (0.5625 + 0.1875)).abs() < 1e-9);
    assert!(solution.is_proven());
}

#[test]
fn steepest_line_gets_all_and_equal_lines_share() {
    // k = 1, section 4.2.
    let costs = [
        polynomial(&[2.0, -1.0]),
        polynomial(&[4.0, -3.0]),
        polynomial(&[2.0, -0.5]),
        polynomial(&[9.0, -3.0]),
    ];
    let solution = solve_separable(&costs, 1.0, 0.1, 1.0);
    for (weight, expected) in solution.weights.iter().zip([0.1, 0.4, 0.1, 0.4]) {
        assert!((weight - expected).abs() < 1e-9, "{:?}", solution.weights);
    }
    assert!(solution.is_proven());
}

#[test]
fn first_of_equal_concave_costs_gets_all() {
    let solution = solve_separable(&[polynomial(&[1.0, 0.0, -1.0]); 3], 1.0, 0.0, 1.0);
    assert_eq!(solution.weights, [1.0, 0.0, 0.0]);
    assert!(solution.is_proven());
}

#[test]
fn shares_sum_to_the_total_even_if_costs_rise() {
    let solution =
        solve_separable(&[polynomial(&[1.0, 1.0, 0.5]), polynomial(&[1.0, 1.0, 0.5])], 0.8, 0.0, 1.0);
    assert!((solution.weights[0] - 0.4).abs() < 1e-9 && (solution.weights[1] - 0.4).abs() < 1e-9);
}

#[test]
fn separable_solver_rejects_invalid_problems() {
    let costs = [polynomial(&[1.0])];
    let refused = |costs, total, lower, upper| {
        SeparableSolver::default().minimize(&SeparableProblem { costs, total, lower, upper }, 0).unwrap_err()
    };
    assert_eq!(refused(&[], 1.0, 0.0, 1.0), SeparableError::NoCosts);
    let error = refused(&costs, 0.5, f64::NAN, 1.0).to_string();
    assert_eq!(error, "bounds of a part are NaN and 1; expected 0 <= lower <= upper <= 1");
    let error = refused(&costs, 1.5, 0.0, 1.0).to_string();
    assert_eq!(error, "total 1.5 is out of range; expected 0 to 1, the range of the sum of 1 parts");
    assert!(matches!(refused(&costs, f64::NAN, 0.0, 1.0), SeparableError::InfeasibleTotal { .. }));
}
