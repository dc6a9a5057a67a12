//! Divides one link at minimum total cost: Saba's Eq. 2.
//!
//! Katebzadeh et al., "Saba: Rethinking Datacenter Network Allocation from Application's Perspective", EuroSys '23,
//! section 5.1: minimize sum D_i(w_i) subject to sum w_i = C.
//!
//! The paper uses SLSQP (section 7.2), a general solver that takes O(n^3) a step and stops at the first local optimum.
//! But only the sum couples the applications. Give each unit of bandwidth a reward, the Lagrange multiplier of the sum
//! (`price` in the code). Each application then has a cheapest share in closed form, since D_i is a cubic. Shares grow
//! with the reward, so one number remains to be found: the reward at which shares sum to C (`price.rs`).
//!
//! A cubic need not be convex, so a share can jump at some reward. The shares on both sides of the jump lie on the convex
//! envelope of the cubic (`envelope.rs`), and between them the envelope is a line. The minimum sum of the envelopes is a
//! lower bound of Eq. 2 (its Lagrangian dual), and every solution contains this bound as a certificate. At most one share
//! ends between the two sides of a jump. The bound therefore differs from the solution by at most one application's
//! distance to its envelope (Shapley, Folkman), for any number of applications.
//!
//! If that gap is too large, branch and bound splits that application's range at its share, which makes both envelopes
//! exact there, and solves the two halves; the half with the lowest bound is split next. The search ends with a proof of
//! optimality, or after the caller's maximum number of splits, with the remaining gap.
//!
//! Choices that the paper leaves open:
//!
//! - *Bounds of a share* are the caller's. SLSQP needs some, because D has no meaning below 0 or above 1.
//! - *Sign of the multiplier*: any. D need not fall (a fit may rise, [`Polynomial::is_decreasing`]), and the sum is an equation.
//! - *Ties*: applications whose D is the same line share evenly. Where D is concave an even share is the worst, so the
//!   earlier application gets more.

mod envelope;
mod price;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Polynomial;
use crate::ordered_f64::OrderedF64;
use crate::rounding;
use envelope::Envelope;
use price::{Relaxation, Scratch, solve_relaxation};

/// Gaps up to this fraction of the value, or of 1 if the value is smaller, count as 0.
const TOLERANCE: f64 = 1e-9;

/// A total to divide into parts.
#[derive(Debug, Clone, Copy)]
pub struct SeparableProblem<'a> {
    /// The cost of each part, as a function of its size.
    pub costs: &'a [Polynomial],
    /// The sum of the parts.
    pub total: f64,
    /// The minimum size of a part; at least 0.
    pub lower: f64,
    /// The maximum size of a part; at most 1.
    pub upper: f64,
}

/// The parts, their cost, and a lower bound of the cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// The sizes of the parts, in the order of the costs.
    pub weights: Vec<f64>,
    /// The sum of their costs.
    pub cost: f64,
    /// A lower bound of the cost of any parts, up to rounding.
    pub lower_bound: f64,
}

/// An invalid problem.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SeparableError {
    /// The problem has no parts.
    #[error("no costs; expected at least one")]
    NoCosts,
    /// The bounds of a part are not a range in 0 to 1.
    #[error("bounds of a part are {lower} and {upper}; expected 0 <= lower <= upper <= 1")]
    InvalidBounds {
        /// The minimum size.
        lower: f64,
        /// The maximum size.
        upper: f64,
    },
    /// No parts within the bounds sum to the total.
    #[error("total {total} is out of range; expected {min} to {max}, the range of the sum of {count} parts")]
    InfeasibleTotal {
        /// The total.
        total: f64,
        /// The sum of the minimum sizes.
        min: f64,
        /// The sum of the maximum sizes.
        max: f64,
        /// Number of parts.
        count: usize,
    },
}

impl Solution {
    /// The cost above the bound: the solution costs at most this much more than the optimum.
    pub fn gap(&self) -> f64 {
        (self.cost - self.lower_bound).max(0.0)
    }

    /// Whether the solution is optimal, up to rounding.
    pub fn is_proven(&self) -> bool {
        self.gap() <= tolerance(self.cost)
    }
}

fn tolerance(value: f64) -> f64 {
    TOLERANCE * value.abs().max(1.0)
}

/// A solver that reuses its memory.
#[derive(Debug, Clone, Default)]
pub struct SeparableSolver {
    envelopes: Vec<Envelope>,
    narrowed_envelopes: Vec<Envelope>,
    scratch: Scratch,
    weights: Vec<f64>,
}

/// A node of branch and bound: narrowed ranges of some parts, and the solution of that relaxation.
#[derive(Debug)]
struct Node {
    narrowed_ranges: Vec<(usize, f64, f64)>,
    relaxed: Relaxation,
    /// The part that is farthest from its envelope, and its size.
    widest_gap: (usize, f64),
}

impl SeparableSolver {
    /// The cheapest parts, with at most `splits` splits if costs are not convex.
    ///
    /// O(parts) for each price that Newton's method tries, which are few. Each split solves two more problems.
    ///
    /// # Errors
    /// [`SeparableError::NoCosts`] without costs; [`SeparableError::InvalidBounds`] if the bounds are not a range in 0 to 1;
    /// [`SeparableError::InfeasibleTotal`] if no parts within the bounds sum to the total.
    pub fn minimize(
        &mut self,
        problem: &SeparableProblem<'_>,
        splits: usize,
    ) -> Result<Solution, SeparableError> {
        problem.check_feasible()?;
        let &SeparableProblem { costs, total, lower, upper } = problem;
        self.envelopes.clear();
        self.envelopes.extend(costs.iter().map(|cost| Envelope::new(cost, lower, upper)));
        let even = total / costs.len() as f64;
        let start = costs.iter().map(|cost| cost.slope(even)).sum::<f64>() / costs.len() as f64;
        let root =
            solve_relaxation(costs, &self.envelopes, total, start, &mut self.scratch, &mut self.weights);
        let mut solution = Solution {
            weights: self.weights.clone(),
            cost: total_cost(costs, &self.weights),
            lower_bound: root.lower_bound,
        };
        if !solution.is_proven() && splits > 0 {
            self.branch_and_bound(problem, root, splits, &mut solution);
        }
        solution.lower_bound = solution.lower_bound.min(solution.cost);
        Ok(solution)
    }

    /// Branch and bound, by lowest bound; of equal bounds the earliest node first.
    fn branch_and_bound(
        &mut self,
        problem: &SeparableProblem<'_>,
        root: Relaxation,
        splits: usize,
        solution: &mut Solution,
    ) {
        let &SeparableProblem { costs, total, .. } = problem;
        let gap = widest_gap(costs, &self.envelopes, &self.weights);
        let mut nodes = vec![Node { narrowed_ranges: Vec::new(), relaxed: root, widest_gap: gap }];
        let mut open = BinaryHeap::from([Reverse((OrderedF64(root.lower_bound), 0))]);
        for _ in 0..splits {
            let Some(&Reverse((OrderedF64(bound), index))) = open.peek() else { break };
            if bound >= solution.cost - tolerance(solution.cost) {
                break;
            }
            let Node { narrowed_ranges: ref cuts, relaxed, widest_gap: (part, at) } = nodes[index];
            let cuts = cuts.clone();
            let range = cuts.iter().rev().find(|cut| cut.0 == part);
            let (low, high) = range.map_or((problem.lower, problem.upper), |&(_, low, high)| (low, high));
            if !(low < at && at < high) {
                // The distance between the part and its envelope is only rounding.
                break;
            }
            open.pop();
            for (low, high) in [(low, at), (at, high)] {
                let mut cuts = cuts.clone();
                cuts.push((part, low, high));
                self.narrowed_envelopes.clone_from(&self.envelopes);
                for &(part, low, high) in &cuts {
                    self.narrowed_envelopes[part] = Envelope::new(&costs[part], low, high);
                }
                let min_total: f64 = self.narrowed_envelopes.iter().map(|e| e.low).sum();
                let max_total: f64 = self.narrowed_envelopes.iter().map(|e| e.high).sum();
                if total < min_total || max_total < total {
                    continue;
                }
                let child = solve_relaxation(
                    costs,
                    &self.narrowed_envelopes,
                    total,
                    relaxed.price,
                    &mut self.scratch,
                    &mut self.weights,
                );
                let cost = total_cost(costs, &self.weights);
                if cost < solution.cost {
                    solution.cost = cost;
                    solution.weights.clone_from(&self.weights);
                }
                let relaxed = Relaxation { lower_bound: child.lower_bound.max(relaxed.lower_bound), ..child };
                let gap = widest_gap(costs, &self.narrowed_envelopes, &self.weights);
                open.push(Reverse((OrderedF64(relaxed.lower_bound), nodes.len())));
                nodes.push(Node { narrowed_ranges: cuts, relaxed, widest_gap: gap });
            }
        }
        // The open nodes cover all remaining solutions, so their lowest bound holds.
        if let Some(&Reverse((OrderedF64(bound), _))) = open.peek() {
            solution.lower_bound = bound;
        }
    }
}

impl SeparableProblem<'_> {
    fn check_feasible(&self) -> Result<(), SeparableError> {
        let &SeparableProblem { costs, total, lower, upper } = self;
        if costs.is_empty() {
            return Err(SeparableError::NoCosts);
        }
        if !(0.0 <= lower && lower <= upper && upper <= 1.0) {
            return Err(SeparableError::InvalidBounds { lower, upper });
        }
        let count = costs.len();
        let (min, max) = (count as f64 * lower, count as f64 * upper);
        if !(min * (1.0 - rounding::PARTS) <= total && total <= max * (1.0 + rounding::PARTS)) {
            return Err(SeparableError::InfeasibleTotal { total, min, max, count });
        }
        Ok(())
    }
}

/// The cost of parts of these sizes.
pub fn total_cost(costs: &[Polynomial], weights: &[f64]) -> f64 {
    costs.iter().zip(weights).map(|(cost, &weight)| cost.evaluate(weight)).sum()
}

/// The part that is farthest above its envelope, and its size; the first if several are equal.
fn widest_gap(costs: &[Polynomial], envelopes: &[Envelope], weights: &[f64]) -> (usize, f64) {
    let mut widest = (0, weights[0]);
    let mut max_gap = f64::NEG_INFINITY;
    for (part, ((cost, envelope), &weight)) in costs.iter().zip(envelopes).zip(weights).enumerate() {
        let gap = cost.evaluate(weight) - envelope.evaluate(cost, weight);
        if gap > max_gap {
            (widest, max_gap) = ((part, weight), gap);
        }
    }
    widest
}
