//! Multi-path routing (Siphon, ATC '18, section 3.3): a part of what the slowest link has to carry goes by way of a third region.
//!
//! The time of a link is what it has to carry over its bandwidth, t = D / B. Of the link with the largest time, a part a of the load
//! moves to the detour with the lightest load, so that D (1 - a) / B = (D a + D') / B' with D' and B' those of the detour's
//! more loaded link; and so on with the link that has the largest time then.
//!
//! What the paper leaves open, and what was chosen:
//!
//! - *B* is the median of what was measured.
//! - *Detours* have one relay, which is neither end, so nothing goes in circles.
//! - *What moves*: bytes of one pair of regions, from one way over the slowest link to another. In the first steps the way is the direct
//!   one, as in the paper. Later bytes may have to leave a detour again; without that, the first detour keeps what a second
//!   could carry.
//! - *How much*: as much as makes the slowest link as slow as the more loaded link of the new way then is. The paper's equation has one
//!   link of the detour, the more loaded one now; the other may have less bandwidth, and no link ends later than the slowest did.
//! - *The lightest detour* is the one to which most can move.
//! - *Ties*: of links that are slowest but for a part in 10^6, the first that is relieved.
//! - *When*: once, at a coflow's arrival, by its own bytes. What others have to carry then or later is not looked at, so a detour may lead into
//!   their way: for a coflow alone it is never worse than the direct way, among others it can be.
//! - *The end*: when none of them gets faster by more than that part, or after a bounded number of steps a link (`MAX_STEPS`).

use crate::model::Past;

/// The most steps of the iteration, for each link.
const MAX_STEPS: usize = 256;

/// By how much a step has to make the slowest link faster, as a part of its time.
const GAIN: f64 = 1e-6;

/// A part of what goes from one region to another, and its way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// The direct link between the two regions.
    pub pair: u32,
    /// The region that relays; none on the direct way.
    pub relay: Option<u32>,
    /// The share of the pair's bytes; all shares of a pair are above zero, and one together.
    pub share: f64,
}

/// By which ways a coflow's bytes go.
#[derive(Debug, Clone, PartialEq)]
pub struct Routes {
    /// In the order of pairs, the direct way first.
    pub parts: Vec<Part>,
    /// What each link has to carry, in bytes.
    pub loads: Vec<f64>,
}

impl Routes {
    /// The time of the slowest link, in seconds, if all are as fast as at the median.
    pub fn time(&self, past: &Past) -> f64 {
        let times = self.loads.iter().zip(0..).map(|(bytes, link)| bytes * past.median(link));
        times.fold(0.0, f64::max)
    }
}

/// The links of a way: one, or two by a relay, which is neither end.
pub fn links(past: &Past, part: &Part) -> [Option<u32>; 2] {
    match part.relay {
        None => [Some(part.pair), None],
        Some(relay) => {
            let (from, to) = past.ends(part.pair);
            [past.link(from, relay as usize), past.link(relay as usize, to)]
        }
    }
}

/// Everything on its direct way: bytes by pair of regions.
pub fn direct(past: &Past, bytes: &[(u32, f64)]) -> Routes {
    let mut loads = vec![0.0; past.links()];
    bytes.iter().for_each(|&(pair, bytes)| loads[pair as usize] += bytes);
    let pairs = (0..).zip(&loads).filter(|(_, bytes)| **bytes > 0.0);
    let parts = pairs.map(|(pair, _)| Part { pair, relay: None, share: 1.0 }).collect();
    Routes { parts, loads }
}

/// The links from one region to another by a relay; directly if the relay is where it begins.
fn way(past: &Past, from: usize, to: usize, relay: usize) -> [Option<u32>; 2] {
    [past.link(from, relay), past.link(relay, to)]
}

/// Ways by which the slowest link ends no later than if everything went directly. Each step of the iteration relieves one link by one
/// detour. O(steps x (links + regions^2)).
pub fn relieve(past: &Past, bytes: &[(u32, f64)]) -> Routes {
    let whole = direct(past, bytes).loads;
    let regions = past.regions();
    let mut loads = whole.clone();
    // By pair and relay; in the place of the region where they begin, what goes directly.
    let mut moves = vec![0.0; past.links() * regions];
    for (pair, bytes) in (0..).zip(&whole) {
        moves[pair as usize * regions + past.ends(pair).0] = *bytes;
    }
    for _ in 0..MAX_STEPS * past.links() {
        let time = |link: u32| loads[link as usize] * past.median(link);
        let most = (0..past.links() as u32).map(time).fold(0.0, f64::max);
        let slowest = (0..past.links() as u32).filter(|&link| time(link) >= most * (1.0 - GAIN));
        let step = slowest.map(|link| (link, step(past, &loads, &moves, link)));
        let gains = |(link, step): &(u32, Step)| step.bytes * past.median(*link) > most * GAIN;
        let Some((_, Step { pair, relays, bytes })) = step.into_iter().find(gains) else { break };
        let (from, to) = past.ends(pair);
        let [old, new] = relays.map(|relay| way(past, from, to, relay));
        old.into_iter().flatten().for_each(|link| loads[link as usize] -= bytes);
        new.into_iter().flatten().for_each(|link| loads[link as usize] += bytes);
        moves[pair as usize * regions + relays[0]] -= bytes;
        moves[pair as usize * regions + relays[1]] += bytes;
    }
    let mut parts = Vec::new();
    for (pair, whole) in (0..).zip(&whole) {
        let (from, _) = past.ends(pair);
        let order = std::iter::once(from).chain((0..regions).filter(|relay| *relay != from));
        for relay in order {
            let bytes = moves[pair as usize * regions + relay];
            if bytes > 0.0 {
                let relay = (relay != from).then_some(relay as u32);
                parts.push(Part { pair, relay, share: bytes / whole });
            }
        }
    }
    Routes { parts, loads }
}

/// Bytes that leave one way for another.
struct Step {
    pair: u32,
    /// The relays of the two ways.
    relays: [usize; 2],
    bytes: f64,
}

/// What relieves a link most.
fn step(past: &Past, loads: &[f64], moves: &[f64], slowest: u32) -> Step {
    let regions = past.regions();
    let time = |link: u32| loads[link as usize] * past.median(link);
    // The bytes to move at which the slowest link and one of the new way take the same time.
    let equal = |hop: u32| (time(slowest) - time(hop)) / (past.median(slowest) + past.median(hop));
    let (a, b) = past.ends(slowest);
    // What crosses it: its own pair directly, pairs from its beginning by its end, and pairs to its end by its beginning.
    let others = || (0..regions).filter(|region| *region != a && *region != b);
    let crossing = std::iter::once((a, b, a));
    let crossing = crossing.chain(others().map(|to| (a, to, b))).chain(others().map(|from| (from, b, a)));
    let mut best = Step { pair: slowest, relays: [a, a], bytes: 0.0 };
    for (from, to, old) in crossing {
        let pair =
            past.link(from, to).expect("there is a link between every two regions, and these two differ");
        let most = moves[pair as usize * regions + old];
        let old_links = way(past, from, to, old);
        for new in (0..regions).filter(|new| most > 0.0 && *new != old && *new != to) {
            let links = way(past, from, to, new)
                .into_iter()
                .flatten()
                .filter(|link| !old_links.contains(&Some(*link)));
            let bytes = links.map(equal).fold(most, f64::min);
            if bytes > best.bytes {
                best = Step { pair, relays: [old, new], bytes };
            }
        }
    }
    best
}
