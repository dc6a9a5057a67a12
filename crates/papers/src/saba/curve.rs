//! Solves Eq. 2 with any curve in place of a polynomial.
//!
//! Saba's controller uses cubics (`weir_core::saba`). Curves show the effect of better models, up to the simulated slowdown of a
//! workload. A curve is the lower convex hull of a function at a number of points. A bisection over prices (slopes of the cost)
//! therefore finds the weights that sum to 1. For a function that is not convex, the weights are those of its hull. They differ
//! from the optimum for at most one application (Shapley, Folkman).

use std::sync::Arc;

use crate::saba::lockstep::sharing::{PortWeights, SharingRule};
use weir_core::saba::Fraction;

/// The minimum weight of a curve, far below equal shares.
const MIN_WEIGHT: f64 = 1.0 / 1024.0;

/// The number of points of a curve, evenly spaced on a logarithmic scale from [`MIN_WEIGHT`] to 1.
const POINT_COUNT: u32 = 161;

/// The number of steps of the bisection over prices. Prices reach about 10^6, so 40 steps resolve about 10^-6.
const BISECTION_STEPS: u32 = 40;

/// A convex, piecewise linear cost as a function of a weight up to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvexCurve {
    /// The ends of the pieces, from [`MIN_WEIGHT`] to 1.
    breakpoints: Vec<f64>,
    /// The slope of each piece, in ascending order; one fewer than breakpoints.
    slopes: Vec<f64>,
}

impl ConvexCurve {
    /// The lower convex hull of a cost function that is finite for weights above 0.
    pub fn lower_hull(cost: impl Fn(f64) -> f64) -> ConvexCurve {
        let breakpoint = |point| libm::pow(MIN_WEIGHT, 1.0 - f64::from(point) / f64::from(POINT_COUNT - 1));
        let mut hull: Vec<(f64, f64)> = Vec::new();
        for (x, y) in (0..POINT_COUNT).map(breakpoint).map(|x| (x, cost(x))) {
            while let [.., a, b] = hull[..]
                && (b.1 - a.1) * (x - b.0) >= (y - b.1) * (b.0 - a.0)
            {
                hull.pop();
            }
            hull.push((x, y));
        }
        let slope = |pair: &[(f64, f64)]| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0);
        ConvexCurve {
            slopes: hull.windows(2).map(slope).collect(),
            breakpoints: hull.into_iter().map(|(x, _)| x).collect(),
        }
    }

    /// The maximum weight up to which each unit of weight changes the cost by at most `price`. Prices are slopes of the cost, so they
    /// are negative where weight reduces the cost.
    fn weight_at_price(&self, price: f64) -> f64 {
        self.breakpoints[self.slopes.partition_point(|slope| *slope <= price)]
    }
}

/// The weights with the minimum sum of costs among those that are at least `min_weight` and sum to 1. Each of at most 40 bisection steps
/// takes O(curves x log(points)).
///
/// `min_weight` times the number of curves has to be at most 1, and `min_weight` at least the minimum weight of the curves.
pub fn optimal_weights<'a>(
    curves: impl Iterator<Item = &'a ConvexCurve> + Clone,
    min_weight: f64,
) -> Vec<f64> {
    let weights_at =
        |price: f64| curves.clone().map(move |curve| curve.weight_at_price(price).max(min_weight));
    let slopes = curves.clone().flat_map(|curve| [curve.slopes[0], curve.slopes[curve.slopes.len() - 1]]);
    let (mut low, mut high) =
        slopes.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), s| (low.min(s), high.max(s)));
    low = low.next_down();
    for _ in 0..BISECTION_STEPS {
        let middle = low + 0.5 * (high - low);
        if !(low < middle && middle < high) {
            break;
        }
        if weights_at(middle).sum::<f64>() <= 1.0 { low = middle } else { high = middle }
    }
    // All weights between those at two adjacent prices have the same cost.
    let mut weights: Vec<f64> = weights_at(low).collect();
    let (sum_below, sum_above) = (weights.iter().sum::<f64>(), weights_at(high).sum::<f64>());
    let fraction = if sum_above > sum_below { (1.0 - sum_below) / (sum_above - sum_below) } else { 0.0 };
    for (weight, high) in weights.iter_mut().zip(weights_at(high)) {
        *weight += fraction * (high - *weight);
    }
    weights
}

#[derive(Debug)]
struct CurveWeights {
    curves: Vec<ConvexCurve>,
    floor: Fraction,
}

/// A queue per job, weighted by Eq. 2 with a curve per job. `floor` is the minimum weight as a fraction of an equal share.
pub fn curve_sharing(curves: Vec<ConvexCurve>, floor: Fraction) -> SharingRule {
    SharingRule::Weights(Arc::new(CurveWeights { curves, floor }))
}

impl PortWeights for CurveWeights {
    fn weights_at_port(&self, jobs: &[usize]) -> Vec<f64> {
        optimal_weights(jobs.iter().map(|&job| &self.curves[job]), self.floor.get() / jobs.len() as f64)
    }
}
