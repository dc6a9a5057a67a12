//! Multi-path routing (Siphon, ATC '18, section 3.3): moves part of the slowest link's load to paths through a third region.
//!
//! The time of a link is its load divided by its bandwidth, t = D / B. Of the link with the largest time, a fraction a of the
//! load moves to the detour with the lightest load, so that D (1 - a) / B = (D a + D') / B', with D' and B' those of the
//! detour's more loaded link. The step is repeated with the link that then has the largest time.
//!
//! Choices where the paper is silent:
//!
//! - *B* is the median of the measurements.
//! - *Detours* have one relay, which is neither end, so there are no loops. A region may have no relay that forwards.
//! - *What moves*: bytes of one pair of regions, from one path over the slowest link to another path. In the first steps the
//!   old path is the direct one, as in the paper. Later it can be a detour; otherwise the first detour would keep bytes that
//!   a second one could carry.
//! - *How much*: the slowest link then takes as long as the slower link of the new path. The paper's equation uses only the
//!   link of the detour that is more loaded now. The other one can have less bandwidth; here no link ends later than the
//!   slowest did.
//! - *The lightest detour* is the one to which the most bytes can move.
//! - *Ties*: of links that are the slowest up to one part in 10^6, the first one that can be relieved.
//! - *When*: once, at a coflow's arrival, for its own bytes. The load of other coflows is ignored, so a detour can add load
//!   to links that they need. For a coflow alone a detour is never worse than the direct path; among others it can be.
//! - *Shared interfaces*: all links out of a region can share the rate of its hosts' interfaces. Detours do not relieve such an
//!   interface, and load that of the relaying region.
//! - *The end*: when no step makes the slowest link faster by more than one part in 10^6, or after a maximum number of steps
//!   a link (`MAX_STEPS`).

use crate::model::BandwidthHistory;

/// The most steps of the iteration, for each link.
const MAX_STEPS: usize = 256;

/// By how much a step has to make the slowest link faster, as a part of its time.
const GAIN: f64 = 1e-6;

/// A part of the bytes from one region to another, and its path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathShare {
    /// The direct link between the two regions.
    pub direct_link: u32,
    /// The relaying region; none for the direct path.
    pub relay: Option<u32>,
    /// The fraction of the pair's bytes, above 0. The fractions of a pair sum to 1.
    pub fraction: f64,
}

/// The paths of a coflow's bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct CoflowPaths {
    /// In the order of pairs, the direct path first.
    pub path_shares: Vec<PathShare>,
    /// The load of each link, in bytes.
    pub link_bytes: Vec<f64>,
}

impl CoflowPaths {
    /// The time of the slowest link, in seconds, with all links at the median bandwidth.
    pub fn max_link_seconds(&self, past: &BandwidthHistory) -> f64 {
        let times =
            self.link_bytes.iter().zip(0..).map(|(bytes, link)| bytes * past.median_seconds_per_byte(link));
        times.fold(0.0, f64::max)
    }

    /// The same shares for other bytes of the same pairs. `bytes` is by pair of regions.
    pub fn with_bytes(&self, past: &BandwidthHistory, bytes: &[(u32, f64)]) -> CoflowPaths {
        let direct = direct_paths(past, bytes).link_bytes;
        let mut link_bytes = vec![0.0; past.links()];
        for share in &self.path_shares {
            let bytes = share.fraction * direct[share.direct_link as usize];
            let links = path_links(past, share).into_iter().flatten();
            links.for_each(|link| link_bytes[link as usize] += bytes);
        }
        CoflowPaths { path_shares: self.path_shares.clone(), link_bytes }
    }

    /// Moves bytes from detours back to direct paths, in equal proportion, until detours carry at most this fraction of the bytes.
    /// `bytes` is by pair of regions, as for [`relieve_bottlenecks`].
    pub fn limit_detours(
        mut self,
        past: &BandwidthHistory,
        bytes: &[(u32, f64)],
        max_fraction: f64,
    ) -> CoflowPaths {
        let direct = direct_paths(past, bytes);
        let whole: f64 = direct.link_bytes.iter().sum();
        let detours = || self.path_shares.iter().filter(|share| share.relay.is_some());
        let detoured: f64 =
            detours().map(|share| share.fraction * direct.link_bytes[share.direct_link as usize]).sum();
        if detoured <= max_fraction * whole {
            return self;
        }
        let kept = max_fraction * whole / detoured;
        let mut shares = Vec::new();
        for direct_share in direct.path_shares {
            let pair = direct_share.direct_link;
            let own = detours().filter(|share| share.direct_link == pair && kept > 0.0);
            let own: Vec<PathShare> =
                own.map(|share| PathShare { fraction: share.fraction * kept, ..*share }).collect();
            let fraction = 1.0 - own.iter().map(|share| share.fraction).sum::<f64>();
            if fraction > 0.0 {
                shares.push(PathShare { fraction, ..direct_share });
            }
            shares.extend(own);
        }
        self.path_shares = shares;
        self.with_bytes(past, bytes)
    }
}

/// The links of a path: one, or two with a relay, which is neither end.
pub fn path_links(past: &BandwidthHistory, part: &PathShare) -> [Option<u32>; 2] {
    match part.relay {
        None => [Some(part.direct_link), None],
        Some(relay) => {
            let (from, to) = past.link_ends(part.direct_link);
            [past.link_between(from, relay as usize), past.link_between(relay as usize, to)]
        }
    }
}

/// All bytes on their direct paths. `bytes` is by pair of regions.
pub fn direct_paths(past: &BandwidthHistory, bytes: &[(u32, f64)]) -> CoflowPaths {
    let mut loads = vec![0.0; past.links()];
    bytes.iter().for_each(|&(pair, bytes)| loads[pair as usize] += bytes);
    let pairs = (0..).zip(&loads).filter(|(_, bytes)| **bytes > 0.0);
    let parts = pairs.map(|(pair, _)| PathShare { direct_link: pair, relay: None, fraction: 1.0 }).collect();
    CoflowPaths { path_shares: parts, link_bytes: loads }
}

/// The links from one region to another by a relay; directly if the relay is where it begins.
fn way(past: &BandwidthHistory, from: usize, to: usize, relay: usize) -> [Option<u32>; 2] {
    [past.link_between(from, relay), past.link_between(relay, to)]
}

/// Paths on which the slowest link ends no later than with direct paths. Each step of the iteration relieves one link by one
/// detour. O(steps x (links + regions^2)).
pub fn relieve_bottlenecks(past: &BandwidthHistory, bytes: &[(u32, f64)]) -> CoflowPaths {
    let (interfaces, has_relay) = (vec![0.0; past.regions()], vec![true; past.regions()]);
    relieve_bottlenecks_within(past, bytes, RegionLimits { interfaces: &interfaces, has_relay: &has_relay })
}

/// What limits detours, for each region.
#[derive(Debug, Clone, Copy)]
pub struct RegionLimits<'a> {
    /// The seconds in which a byte leaves it, over all links; 0 without a limit.
    pub interfaces: &'a [f64],
    /// Whether detours can lead through it.
    pub has_relay: &'a [bool],
}

/// As [`relieve_bottlenecks`], with limits of regions.
pub fn relieve_bottlenecks_within(
    past: &BandwidthHistory,
    bytes: &[(u32, f64)],
    limits: RegionLimits<'_>,
) -> CoflowPaths {
    let RegionLimits { interfaces, .. } = limits;
    let whole = direct_paths(past, bytes).link_bytes;
    let regions = past.regions();
    let mut loads = whole.clone();
    // By pair and relay; in the place of the region where they begin, what goes directly.
    let mut moves = vec![0.0; past.links() * regions];
    for (pair, bytes) in (0..).zip(&whole) {
        moves[pair as usize * regions + past.link_ends(pair).0] = *bytes;
    }
    for _ in 0..MAX_STEPS * past.links() {
        let time = |link: u32| loads[link as usize] * past.median_seconds_per_byte(link);
        let most = (0..past.links() as u32).map(time).fold(0.0, f64::max);
        let interface_times = interface_times(past, &loads, interfaces);
        let floor = interface_times.iter().copied().fold(0.0, f64::max);
        let slowest = (0..past.links() as u32).filter(|&link| time(link) >= most * (1.0 - GAIN));
        let step = slowest.map(|link| {
            let step = step(past, &loads, &moves, (limits, &interface_times), link);
            // A link that is faster than an interface needs no detour.
            let needed = (most - floor) / past.median_seconds_per_byte(link);
            (link, Step { bytes: step.bytes.min(needed), ..step })
        });
        let gains =
            |(link, step): &(u32, Step)| step.bytes * past.median_seconds_per_byte(*link) > most * GAIN;
        let Some((_, Step { pair, relays, bytes })) = step.into_iter().find(gains) else { break };
        let (from, to) = past.link_ends(pair);
        let [old, new] = relays.map(|relay| way(past, from, to, relay));
        old.into_iter().flatten().for_each(|link| loads[link as usize] -= bytes);
        new.into_iter().flatten().for_each(|link| loads[link as usize] += bytes);
        moves[pair as usize * regions + relays[0]] -= bytes;
        moves[pair as usize * regions + relays[1]] += bytes;
    }
    let mut parts = Vec::new();
    for (pair, whole) in (0..).zip(&whole) {
        let (from, _) = past.link_ends(pair);
        let order = std::iter::once(from).chain((0..regions).filter(|relay| *relay != from));
        for relay in order {
            let bytes = moves[pair as usize * regions + relay];
            if bytes > 0.0 {
                let relay = (relay != from).then_some(relay as u32);
                parts.push(PathShare { direct_link: pair, relay, fraction: bytes / whole });
            }
        }
    }
    CoflowPaths { path_shares: parts, link_bytes: loads }
}

/// Bytes that leave one way for another.
struct Step {
    pair: u32,
    /// The relays of the two ways.
    relays: [usize; 2],
    bytes: f64,
}

/// The time in which the bytes out of each region leave its interfaces.
fn interface_times(past: &BandwidthHistory, loads: &[f64], interfaces: &[f64]) -> Vec<f64> {
    let mut times = vec![0.0; past.regions()];
    for (link, bytes) in (0..).zip(loads) {
        let (from, _) = past.link_ends(link);
        times[from] += bytes * interfaces[from];
    }
    times
}

/// What relieves a link most. `limits`: those of regions, and the times of their interfaces.
fn step(
    past: &BandwidthHistory,
    loads: &[f64],
    moves: &[f64],
    (limits, interface_times): (RegionLimits<'_>, &[f64]),
    slowest: u32,
) -> Step {
    let RegionLimits { interfaces, has_relay } = limits;
    let regions = past.regions();
    let time = |link: u32| loads[link as usize] * past.median_seconds_per_byte(link);
    // The bytes to move at which the slowest link and one of the new way take the same time.
    let equal = |hop: u32| {
        (time(slowest) - time(hop))
            / (past.median_seconds_per_byte(slowest) + past.median_seconds_per_byte(hop))
    };
    // The same for the interfaces of a relaying region.
    let interface_equal = |region: usize| {
        (time(slowest) - interface_times[region])
            / (past.median_seconds_per_byte(slowest) + interfaces[region])
    };
    let (a, b) = past.link_ends(slowest);
    // What crosses it: its own pair directly, pairs from its beginning by its end, and pairs to its end by its beginning.
    let others = || (0..regions).filter(|region| *region != a && *region != b);
    let crossing = std::iter::once((a, b, a));
    let crossing = crossing.chain(others().map(|to| (a, to, b))).chain(others().map(|from| (from, b, a)));
    let mut best = Step { pair: slowest, relays: [a, a], bytes: 0.0 };
    for (from, to, old) in crossing {
        let pair = past
            .link_between(from, to)
            .expect("there is a link between every two regions, and these two differ");
        let most = moves[pair as usize * regions + old];
        let old_links = way(past, from, to, old);
        let can_relay = |new: usize| new == from || (new != to && has_relay[new]);
        for new in (0..regions).filter(|&new| most > 0.0 && new != old && can_relay(new)) {
            let links = way(past, from, to, new)
                .into_iter()
                .flatten()
                .filter(|link| !old_links.contains(&Some(*link)));
            let bytes = links.map(equal).fold(most, f64::min);
            let bytes = if new == from { bytes } else { bytes.min(interface_equal(new)) };
            if bytes > best.bytes {
                best = Step { pair, relays: [old, new], bytes };
            }
        }
    }
    best
}
