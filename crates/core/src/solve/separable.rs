//! The cheapest way to share one link: Saba's Eq. 2.
//!
//! Katebzadeh et al., "Saba: Rethinking Datacenter Network Allocation from Application's Perspective", EuroSys '23,
//! section 5.1: minimise sum D_i(w_i) subject to sum w_i = C.
//!
//! The paper hands this to SLSQP (section 7.2), which knows nothing about it, takes O(n^3) a step, and stops at
//! the first local optimum. But only the sum couples the applications. Put a price on bandwidth, and each application
//! finds its own cheapest share at that price in closed form, since D_i is a cubic. The shares grow as the price of a
//! unit falls, so one number remains to be found: the price at which they sum to C (`price.rs`).
//!
//! A cubic need not be convex, and then a share can jump at a price. The shares on both sides of the jump
//! lie on the convex envelope of the cubic (`envelope.rs`), and between them the envelope is a line. The least sum of
//! the envelopes is a lower bound of Eq. 2 (its Lagrangian dual): that is the certificate which comes with
//! every answer. At most one share ends between the two sides of a jump, so the bound is never farther from the answer
//! than one application's distance to its envelope (Shapley, Folkman), however many there are.
//!
//! If that is too far, the search splits that application's range at its share, which makes both envelopes tight there,
//! and solves the two halves, always the half with the least bound next. It ends with a proof, or after so many
//! solutions as the caller allows, with what gap is left.
//!
//! What the paper leaves open:
//!
//! - *Bounds of a share.* The caller's. SLSQP needs some, for D means nothing below 0 or above 1.
//! - *Prices.* D need not fall (a fit may rise, [`Polynomial::falls`]), and the sum is an equation: a price may be negative.
//! - *Ties.* Applications whose D is the same line share evenly. Where D bends the wrong way an even share is the worst; the
//!   earlier application gets more.

mod envelope;
mod price;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Polynomial;
use crate::order::Key;
use envelope::Envelope;
use price::{Relaxed, Scratch, relax};

/// A gap that counts as none, as a part of the value or of 1, whichever is more.
const TOLERANCE: f64 = 1e-9;

/// What rounding may make of `costs.len() * lower` against the total.
const ROUNDING: f64 = 1e-12;

/// Parts of one whole to be given out.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// What each part costs, by its size.
    pub costs: &'a [Polynomial],
    /// What the parts sum to.
    pub total: f64,
    /// The least size of a part; not negative.
    pub lower: f64,
    /// The greatest size of a part; 1 at most.
    pub upper: f64,
}

/// The parts, what they cost, and how good that is.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// The sizes of the parts, in the order of the costs.
    pub weights: Vec<f64>,
    /// The sum of their costs.
    pub value: f64,
    /// No parts whatever cost less, but for rounding.
    pub bound: f64,
}

/// Why there is no solution.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SeparableError {
    /// Nothing to give anything to.
    #[error("costs: none given: expected at least one")]
    Empty,
    /// A range that is none.
    #[error("bounds of a part: `{lower}` to `{upper}`: expected 0 <= lower <= upper <= 1")]
    Bounds {
        /// The least size asked for.
        lower: f64,
        /// The greatest size asked for.
        upper: f64,
    },
    /// No parts within the bounds sum to the total.
    #[error("total: `{total}`: expected {least} to {most}, what {count} parts can sum to")]
    Total {
        /// What was asked for.
        total: f64,
        /// The sum of the least parts.
        least: f64,
        /// The sum of the greatest parts.
        most: f64,
        /// How many parts.
        count: usize,
    },
}

impl Solution {
    /// What the parts cost more than the bound: at most so much is lost to the best there is.
    pub fn gap(&self) -> f64 {
        (self.value - self.bound).max(0.0)
    }

    /// Whether nothing better exists, but for rounding.
    pub fn is_proven(&self) -> bool {
        self.gap() <= tolerance(self.value)
    }
}

fn tolerance(value: f64) -> f64 {
    TOLERANCE * value.abs().max(1.0)
}

/// Solves one problem after the other in the same memory.
#[derive(Debug, Clone, Default)]
pub struct Solver {
    envelopes: Vec<Envelope>,
    narrowed: Vec<Envelope>,
    scratch: Scratch,
    weights: Vec<f64>,
}

/// Ranges of some parts cut shorter, and what is known of the problem with those.
#[derive(Debug)]
struct Node {
    cuts: Vec<(usize, f64, f64)>,
    relaxed: Relaxed,
    /// The part that is farthest from its envelope, and its size.
    widest: (usize, f64),
}

impl Solver {
    /// The cheapest parts, with at most `splits` splits where the costs are not convex.
    ///
    /// O(parts) for each price that is tried, which Newton's method keeps few. Each split solves two halves so.
    ///
    /// # Errors
    /// Bounds that cannot be kept.
    pub fn minimise(&mut self, problem: &Problem<'_>, splits: usize) -> Result<Solution, SeparableError> {
        problem.check()?;
        let &Problem { costs, total, lower, upper } = problem;
        self.envelopes.clear();
        self.envelopes.extend(costs.iter().map(|cost| Envelope::new(cost, lower, upper)));
        let even = total / costs.len() as f64;
        let start = costs.iter().map(|cost| cost.slope(even)).sum::<f64>() / costs.len() as f64;
        let root = relax(costs, &self.envelopes, total, start, &mut self.scratch, &mut self.weights);
        let mut solution =
            Solution { weights: self.weights.clone(), value: value(costs, &self.weights), bound: root.bound };
        if !solution.is_proven() && splits > 0 {
            self.search(problem, root, splits, &mut solution);
        }
        solution.bound = solution.bound.min(solution.value);
        Ok(solution)
    }

    /// Branch and bound, the least bound first; of equal ones the one that was found first.
    fn search(&mut self, problem: &Problem<'_>, root: Relaxed, splits: usize, solution: &mut Solution) {
        let &Problem { costs, total, .. } = problem;
        let widest = widest_gap(costs, &self.envelopes, &self.weights);
        let mut nodes = vec![Node { cuts: Vec::new(), relaxed: root, widest }];
        let mut open = BinaryHeap::from([Reverse((Key(root.bound), 0))]);
        for _ in 0..splits {
            let Some(&Reverse((Key(bound), index))) = open.peek() else { break };
            if bound >= solution.value - tolerance(solution.value) {
                break;
            }
            let Node { ref cuts, relaxed, widest: (part, at) } = nodes[index];
            let cuts = cuts.clone();
            let range = cuts.iter().rev().find(|cut| cut.0 == part);
            let (low, high) = range.map_or((problem.lower, problem.upper), |&(_, low, high)| (low, high));
            if !(low < at && at < high) {
                // Only rounding is left between the part and its envelope.
                break;
            }
            open.pop();
            for (low, high) in [(low, at), (at, high)] {
                let mut cuts = cuts.clone();
                cuts.push((part, low, high));
                self.narrowed.clone_from(&self.envelopes);
                for &(part, low, high) in &cuts {
                    self.narrowed[part] = Envelope::new(&costs[part], low, high);
                }
                let least: f64 = self.narrowed.iter().map(|e| e.low).sum();
                let most: f64 = self.narrowed.iter().map(|e| e.high).sum();
                if total < least || most < total {
                    continue;
                }
                let child =
                    relax(costs, &self.narrowed, total, relaxed.price, &mut self.scratch, &mut self.weights);
                let value = value(costs, &self.weights);
                if value < solution.value {
                    solution.value = value;
                    solution.weights.clone_from(&self.weights);
                }
                let relaxed = Relaxed { bound: child.bound.max(relaxed.bound), ..child };
                let widest = widest_gap(costs, &self.narrowed, &self.weights);
                open.push(Reverse((Key(relaxed.bound), nodes.len())));
                nodes.push(Node { cuts, relaxed, widest });
            }
        }
        // Every possibility is in a half that is still open.
        if let Some(&Reverse((Key(bound), _))) = open.peek() {
            solution.bound = bound;
        }
    }
}

impl Problem<'_> {
    fn check(&self) -> Result<(), SeparableError> {
        let &Problem { costs, total, lower, upper } = self;
        if costs.is_empty() {
            return Err(SeparableError::Empty);
        }
        if !(0.0 <= lower && lower <= upper && upper <= 1.0) {
            return Err(SeparableError::Bounds { lower, upper });
        }
        let count = costs.len();
        let (least, most) = (count as f64 * lower, count as f64 * upper);
        if !(least * (1.0 - ROUNDING) <= total && total <= most * (1.0 + ROUNDING)) {
            return Err(SeparableError::Total { total, least, most, count });
        }
        Ok(())
    }
}

/// What parts of these sizes cost.
pub fn value(costs: &[Polynomial], weights: &[f64]) -> f64 {
    costs.iter().zip(weights).map(|(cost, &weight)| cost.at(weight)).sum()
}

/// The part that is farthest above its envelope, the first of equals, and its size.
fn widest_gap(costs: &[Polynomial], envelopes: &[Envelope], weights: &[f64]) -> (usize, f64) {
    let mut widest = (0, weights[0]);
    let mut most = f64::NEG_INFINITY;
    for (part, ((cost, envelope), &weight)) in costs.iter().zip(envelopes).zip(weights).enumerate() {
        let gap = cost.at(weight) - envelope.at(cost, weight);
        if gap > most {
            (widest, most) = ((part, weight), gap);
        }
    }
    widest
}
