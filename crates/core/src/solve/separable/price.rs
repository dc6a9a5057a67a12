//! The price at which the cheapest parts sum to the total.
//!
//! The sum of the cheapest parts grows with what a unit earns. Newton's method finds where it crosses the total; where
//! that does not halve what is missing, a bisection does at least that for the bracket. Jumps lie at the slopes of chords, which
//! are known, so the bisection tries the one that is next to the middle instead of closing in on it.

use super::envelope::Envelope;
use crate::solve::Polynomial;

/// A missing part of the total that counts as none while the price is searched. [`fill`] gives it out.
const CLOSE: f64 = 1e-12;

/// Steps that a search can take: two for each bit of a bracket from -1e13 to 1e13, and far more than it does take.
const STEPS: usize = 400;

/// The answer for the envelopes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Relaxed {
    /// What a unit earns, which is the slope of all envelopes that are not at an end.
    pub(super) price: f64,
    /// No parts cost less.
    pub(super) bound: f64,
}

/// Room to work in.
#[derive(Debug, Clone, Default)]
pub(super) struct Scratch {
    jumps: Vec<f64>,
    /// The parts that could be larger at the same cost, and by how much.
    room: Vec<(usize, f64)>,
}

/// Sums over all parts of what is cheapest at a price.
struct Sums {
    least: f64,
    most: f64,
    growth: f64,
}

fn sums(envelopes: &[Envelope], price: f64) -> Sums {
    let mut sums = Sums { least: 0.0, most: 0.0, growth: 0.0 };
    for envelope in envelopes {
        let cheapest = envelope.cheapest(price);
        sums.least += cheapest.least;
        sums.most += cheapest.most;
        sums.growth += cheapest.growth;
    }
    sums
}

/// Finds the price, starting from a guess, and the parts, which sum to `total` and lie within their ranges.
///
/// The ranges have to allow that.
pub(super) fn relax(
    costs: &[Polynomial],
    envelopes: &[Envelope],
    total: f64,
    start: f64,
    scratch: &mut Scratch,
    parts: &mut Vec<f64>,
) -> Relaxed {
    let (low, high) = bracket(envelopes, total, start, &mut scratch.jumps);
    parts.clear();
    scratch.room.clear();
    let mut bound = low * total;
    let mut left = total;
    for (at, (cost, envelope)) in costs.iter().zip(envelopes).enumerate() {
        // Where two prices are next to each other, what lies between the parts at both is equally good.
        let below = envelope.cheapest(low);
        let (part, top) =
            if low == high { (below.least, below.most) } else { (below.most, envelope.cheapest(high).least) };
        parts.push(part);
        if part < top {
            scratch.room.push((at, top - part));
        }
        bound += cost.at(part) - low * part;
        left -= part;
    }
    fill(envelopes, total, left, &mut scratch.room, parts);
    Relaxed { price: low, bound }
}

/// Two prices, equal or next to each other, between which the sum of the cheapest parts crosses the total.
fn bracket(envelopes: &[Envelope], total: f64, start: f64, jumps: &mut Vec<f64>) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    jumps.clear();
    for envelope in envelopes {
        let (least, most) = envelope.slopes();
        (low, high) = (low.min(least), high.max(most));
        jumps.extend(envelope.jump());
    }
    // Here all parts are at their ends, and all jumps are inside.
    (low, high) = (low.next_down(), high.next_up());
    let mut price = start;
    let mut missing_before = f64::INFINITY;
    let mut bisect = !(low < price && price < high);
    for _ in 0..STEPS {
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
        let sums = sums(envelopes, price);
        if sums.least <= total && total <= sums.most {
            return (price, price);
        }
        let missing = if sums.most < total { total - sums.most } else { total - sums.least };
        if missing.abs() <= CLOSE * total {
            return (price, price);
        }
        if missing > 0.0 {
            low = price;
        } else {
            high = price;
        }
        let newton = price + missing / sums.growth;
        bisect = missing.abs() > 0.5 * missing_before || !(low < newton && newton < high);
        missing_before = missing.abs();
        price = newton;
    }
    (low, high)
}

/// Gives out what is `left` of the total to parts that have room at the same cost, and what rounding leaves to any.
fn fill(envelopes: &[Envelope], total: f64, mut left: f64, room: &mut [(usize, f64)], parts: &mut [f64]) {
    // Whole jumps first: between its two sides a part costs more than its envelope says.
    for (at, room) in &mut *room {
        if !envelopes[*at].straight && *room <= left {
            parts[*at] += *room;
            left -= *room;
            *room = 0.0;
        }
    }
    // Then lines, each as much of what it can take as any other.
    let is_straight = |room: &&mut (usize, f64)| envelopes[room.0].straight;
    let straight: f64 = room.iter_mut().filter(is_straight).map(|(_, room)| *room).sum();
    if left > 0.0 && straight > 0.0 {
        let share = (left / straight).min(1.0);
        for (at, room) in room.iter_mut().filter(is_straight) {
            parts[*at] += share * *room;
            left -= share * *room;
            *room = 0.0;
        }
    }
    // Then a part of a jump.
    for &(at, room) in &*room {
        let more = room.min(left).max(0.0);
        parts[at] += more;
        left -= more;
    }
    // Each pass leaves the rounding of a sum, so the second leaves next to nothing.
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
