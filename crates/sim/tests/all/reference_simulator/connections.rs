//! Steady rates of connections: senders serve coflows by strict priority, and receivers share max-min, as TCP does.

use super::{RATE_TOLERANCE, TOLERANCE};

/// An open connection of a flow.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) coflow: usize,
    pub(super) flow: usize,
    pub(super) src: usize,
    pub(super) dst: usize,
    pub(super) rate: f64,
}

/// The largest change of a level that counts as none.
const LEVEL_TOLERANCE: f64 = 1e-13;

/// Sets the rates of connections. Levels of receivers start at even shares and rise to a fixed point. Returns whether they
/// reached it and it is the only one.
///
/// Two connections of different priority from one sender to one receiver have many fixed points if nothing else limits them:
/// each unit that the first gains, the second loses.
pub(super) fn steady_rates(links: &[f64], order: &[usize], open: &mut [Connection]) -> bool {
    let even_shares = (0..links.len())
        .map(|link| links[link] / open.iter().filter(|c| c.dst == link).count().max(1) as f64)
        .collect();
    let mut highest = open.to_vec();
    let is_equal = |(a, b): (&Connection, &Connection)| (a.rate - b.rate).abs() < RATE_TOLERANCE;
    move_levels(links, order, even_shares, 1.0, open)
        && move_levels(links, order, links.to_vec(), -1.0, &mut highest)
        && open.iter().zip(&highest).all(is_equal)
}

/// Moves levels up (`direction` 1) or down (-1) to a fixed point, and sets its rates. Returns whether they reached it.
fn move_levels(
    links: &[f64],
    order: &[usize],
    mut levels: Vec<f64>,
    direction: f64,
    open: &mut [Connection],
) -> bool {
    for _ in 0..20_000 {
        let offers = serve_by_priority(links, order, &levels, open);
        let mut has_moved = false;
        for link in 0..links.len() {
            let mut offered: Vec<f64> =
                open.iter().zip(&offers).filter(|(c, _)| c.dst == link).map(|(_, offer)| *offer).collect();
            if offered.is_empty() {
                continue;
            }
            let level = fill(&mut offered, links[link]).min(links[link]);
            if direction * (level - levels[link]) > LEVEL_TOLERANCE {
                levels[link] = level;
                has_moved = true;
            }
        }
        if !has_moved {
            return true;
        }
    }
    false
}

/// Sets the rates of connections if receivers accept at most their levels. Returns the rate that each connection could have if
/// its receiver accepted more.
fn serve_by_priority(links: &[f64], order: &[usize], levels: &[f64], open: &mut [Connection]) -> Vec<f64> {
    let mut left = links.to_vec();
    let mut offers = vec![0.0; open.len()];
    for &c in order {
        for (src, left) in left.iter_mut().enumerate() {
            let here: Vec<usize> =
                (0..open.len()).filter(|&at| (open[at].coflow, open[at].src) == (c, src)).collect();
            if here.is_empty() {
                continue;
            }
            let mut caps: Vec<f64> = here.iter().map(|&at| levels[open[at].dst]).collect();
            let level = fill(&mut caps, *left);
            here.iter().for_each(|&at| open[at].rate = levels[open[at].dst].min(level));
            for &at in &here {
                let mut caps: Vec<f64> = here.iter().map(|&other| levels[open[other].dst]).collect();
                caps[here.iter().position(|&other| other == at).unwrap()] = f64::INFINITY;
                offers[at] = fill(&mut caps, *left);
            }
            *left -= here.iter().map(|&at| open[at].rate).sum::<f64>();
            if *left < TOLERANCE {
                *left = 0.0;
            }
        }
    }
    offers
}

/// The level at which the minima of level and cap sum to `total`; infinite if all caps sum to less.
fn fill(caps: &mut [f64], total: f64) -> f64 {
    caps.sort_by(f64::total_cmp);
    let mut left = total;
    for (at, &cap) in caps.iter().enumerate() {
        let count = (caps.len() - at) as f64;
        if cap * count >= left {
            return left / count;
        }
        left -= cap;
    }
    f64::INFINITY
}
