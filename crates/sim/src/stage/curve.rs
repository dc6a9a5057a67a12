//! Eq. 2 with any curve in place of a polynomial: what a weight costs each application, by a table of points.
//!
//! Saba's controller takes cubics (`weir_core::saba`). This is to ask what it would do with better models, up to
//! the slowdown that a workload really has. A curve is the lower convex hull of a function at some places, so the
//! weights of one price are found by halving, and sum to 1. Where a function is not convex, the weights are those of its hull, which
//! differ from the best for one application at most (Shapley, Folkman).

/// The least weight of a table; even shares are far above it.
const LEAST: f64 = 1.0 / 1024.0;

/// Places of a table, evenly on a logarithmic scale from [`LEAST`] to 1.
const POINTS: u32 = 161;

/// Halvings of the range of prices, which reaches as far as a million.
const HALVINGS: u32 = 40;

/// A convex function of a weight up to 1, in straight pieces.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Where the pieces end, from [`LEAST`] to 1.
    ends: Vec<f64>,
    /// The slope of each, in rising order; one fewer than ends.
    slopes: Vec<f64>,
}

impl Curve {
    /// The hull of a function that is finite for weights above 0.
    pub fn of(cost: impl Fn(f64) -> f64) -> Curve {
        let place = |point| libm::pow(LEAST, 1.0 - f64::from(point) / f64::from(POINTS - 1));
        let mut hull: Vec<(f64, f64)> = Vec::new();
        for (x, y) in (0..POINTS).map(place).map(|x| (x, cost(x))) {
            while let [.., a, b] = hull[..]
                && (b.1 - a.1) * (x - b.0) >= (y - b.1) * (b.0 - a.0)
            {
                hull.pop();
            }
            hull.push((x, y));
        }
        let slope = |pair: &[(f64, f64)]| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0);
        Curve {
            slopes: hull.windows(2).map(slope).collect(),
            ends: hull.into_iter().map(|(x, _)| x).collect(),
        }
    }

    /// The weight from which on more costs more than `price` a unit.
    fn cheapest(&self, price: f64) -> f64 {
        self.ends[self.slopes.partition_point(|slope| *slope <= price)]
    }
}

/// The weights with the least sum of costs among those that are at least `least` and sum to 1; put into `weights`.
/// O(curves x log(points)) for each of some tens of prices.
///
/// `least` has to fit so many times into 1, and be no less than the tables' least weight.
pub fn cheapest<'a>(curves: impl Iterator<Item = &'a Curve> + Clone, least: f64, weights: &mut Vec<f64>) {
    let at = |price: f64| curves.clone().map(move |curve| curve.cheapest(price).max(least));
    let slopes = curves.clone().flat_map(|curve| [curve.slopes[0], curve.slopes[curve.slopes.len() - 1]]);
    let (mut low, mut high) =
        slopes.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), s| (low.min(s), high.max(s)));
    low = low.next_down();
    for _ in 0..HALVINGS {
        let middle = low + 0.5 * (high - low);
        if !(low < middle && middle < high) {
            break;
        }
        if at(middle).sum::<f64>() <= 1.0 { low = middle } else { high = middle }
    }
    // Between two prices next to each other lie pieces that are equally good.
    weights.clear();
    weights.extend(at(low));
    let (below, above) = (weights.iter().sum::<f64>(), at(high).sum::<f64>());
    let part = if above > below { (1.0 - below) / (above - below) } else { 0.0 };
    for (weight, high) in weights.iter_mut().zip(at(high)) {
        *weight += part * (high - *weight);
    }
}
