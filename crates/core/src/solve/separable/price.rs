//! Finds the price at which the cheapest parts sum to the total.
//!
//! A price is a reward for each unit, so the sum of the cheapest parts grows with it. Newton's method finds where the
//! sum crosses the total. If a step does not halve the missing amount, a bisection follows. Parts jump at the slopes of
//! chords, which are known: if the bracket contains jumps, the bisection tries the one nearest to the middle, otherwise
//! the middle.

use super::envelope::Envelope;
use crate::rounding;
use crate::solve::Polynomial;

/// The maximum number of steps: two for each bit of a bracket from -1e13 to 1e13, far more than a search takes.
const MAX_STEPS: usize = 400;

/// The solution for the envelopes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Relaxation {
    /// The reward of a unit: the slope of all envelopes whose part is not at an end of its range.
    pub(super) price: f64,
    /// A lower bound of the cost.
    pub(super) lower_bound: f64,
}

/// Working memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Scratch {
    jumps: Vec<f64>,
    /// The parts that can grow at the same cost, and by how much.
    growth_room: Vec<(usize, f64)>,
}

/// Sums of the cheapest parts at a price.
struct PartSums {
    min_sum: f64,
    max_sum: f64,
    price_derivative: f64,
}

fn sum_parts(envelopes: &[Envelope], price: f64) -> PartSums {
    let mut sums = PartSums { min_sum: 0.0, max_sum: 0.0, price_derivative: 0.0 };
    for envelope in envelopes {
        let cheapest = envelope.cheapest_parts(price);
        sums.min_sum += cheapest.min_part;
        sums.max_sum += cheapest.max_part;
        sums.price_derivative += cheapest.price_derivative;
    }
    sums
}

/// Finds the price, starting from a guess, and the parts, which sum to `total` and lie within their ranges.
///
/// The ranges must allow that sum.
pub(super) fn solve_relaxation(
    costs: &[Polynomial],
    envelopes: &[Envelope],
    total: f64,
    initial_price: f64,
    scratch: &mut Scratch,
    parts: &mut Vec<f64>,
) -> Relaxation {
    let (low, high) = bracket_price(envelopes, total, initial_price, &mut scratch.jumps);
    parts.clear();
    scratch.growth_room.clear();
    let mut bound = low * total;
    let mut left = total;
    for (at, (cost, envelope)) in costs.iter().zip(envelopes).enumerate() {
        // Between two adjacent prices, all sizes between the parts at both prices cost the same.
        let below = envelope.cheapest_parts(low);
        let (part, top) = if low == high {
            (below.min_part, below.max_part)
        } else {
            (below.max_part, envelope.cheapest_parts(high).min_part)
        };
        parts.push(part);
        if part < top {
            scratch.growth_room.push((at, top - part));
        }
        bound += cost.evaluate(part) - low * part;
        left -= part;
    }
    distribute_remainder(envelopes, total, left, &mut scratch.growth_room, parts);
    Relaxation { price: low, lower_bound: bound }
}

/// Two prices, equal or adjacent numbers, between which the sum of the cheapest parts crosses the total.
fn bracket_price(envelopes: &[Envelope], total: f64, start: f64, jumps: &mut Vec<f64>) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    jumps.clear();
    for envelope in envelopes {
        let (least, most) = envelope.slope_range();
        (low, high) = (low.min(least), high.max(most));
        jumps.extend(envelope.jump_price());
    }
    // At these prices all parts are at the ends of their ranges, and all jumps lie between.
    (low, high) = (low.next_down(), high.next_up());
    let mut price = start;
    let mut missing_before = f64::INFINITY;
    let mut bisect = !(low < price && price < high);
    for _ in 0..MAX_STEPS {
        if bisect {
            let middle = low + 0.5 * (high - low);
            jumps.retain(|&jump| low < jump && jump < high);
            price = jumps
                .iter()
                .copied()
                .min_by(|a, b| (a - middle).abs().total_cmp(&(b - middle).abs()))
                .unwrap_or(middle);
            if !(low < price && price < high) {
                break;
            }
        }
        let sums = sum_parts(envelopes, price);
        if sums.min_sum <= total && total <= sums.max_sum {
            return (price, price);
        }
        let missing = if sums.max_sum < total { total - sums.max_sum } else { total - sums.min_sum };
        if missing.abs() <= rounding::PARTS * total {
            return (price, price);
        }
        if missing > 0.0 {
            low = price;
        } else {
            high = price;
        }
        let newton = price + missing / sums.price_derivative;
        bisect = missing.abs() > 0.5 * missing_before || !(low < newton && newton < high);
        missing_before = missing.abs();
        price = newton;
    }
    (low, high)
}

/// Distributes `left` of the total to parts that can grow at the same cost, and the rounding of sums to any part.
fn distribute_remainder(
    envelopes: &[Envelope],
    total: f64,
    mut remainder: f64,
    room: &mut [(usize, f64)],
    parts: &mut [f64],
) {
    // Whole jumps first: between the two sides of a jump a part costs more than its envelope.
    for (at, room) in &mut *room {
        if !envelopes[*at].is_line && *room <= remainder {
            parts[*at] += *room;
            remainder -= *room;
            *room = 0.0;
        }
    }
    // Then lines, each by the same fraction of its room.
    let is_straight = |room: &&mut (usize, f64)| envelopes[room.0].is_line;
    let straight: f64 = room.iter_mut().filter(is_straight).map(|(_, room)| *room).sum();
    if remainder > 0.0 && straight > 0.0 {
        let share = (remainder / straight).min(1.0);
        for (at, room) in room.iter_mut().filter(is_straight) {
            parts[*at] += share * *room;
            remainder -= share * *room;
            *room = 0.0;
        }
    }
    // Then part of a jump.
    for &(at, room) in &*room {
        let more = room.min(remainder).max(0.0);
        parts[at] += more;
        remainder -= more;
    }
    // Each pass leaves only the rounding of a sum, so two passes suffice.
    for _ in 0..2 {
        let mut left = total - parts.iter().sum::<f64>();
        for (part, envelope) in parts.iter_mut().zip(envelopes) {
            if left == 0.0 {
                break;
            }
            let wanted = (*part + left).clamp(envelope.low, envelope.high);
            left -= wanted - *part;
            *part = wanted;
        }
    }
}
