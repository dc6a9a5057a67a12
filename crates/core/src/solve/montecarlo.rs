//! Finds the order of coflows that is most often best under random bandwidth: Siphon's Monte Carlo simulation (ATC '18,
//! section 3.1.3).
//!
//! A *branch* is the beginning of an order: its first [`SearchParams::depth`] coflows. A *round* draws the duration of every
//! flow as if it used its link alone, and evaluates all branches. Each link serves coflows one after the other, a coflow
//! ends with its last flow, and the cost is the sum of the coflows' ends. The cheapest branch of a round gets a point.
//! Coflows after the branch follow by minimum remaining time, with durations at the median.
//!
//! Choices that the paper leaves open:
//!
//! - *A draw* belongs to a flow and a round, not to a node of the tree. All branches of a round see the same bandwidth
//!   ("the particular instance of available bandwidth"), so their differences contain less noise. A draw is a function of
//!   the seed, the coflow, the link and the round, so changes of other coflows do not affect it.
//! - *Ties* in a round (costs equal to the bit) and ties of points go to the first branch in lexicographic order, where
//!   coflows are ranked by minimum remaining time.
//! - *Candidates* for a branch: the first [`SearchParams::breadth`] coflows by minimum remaining time. The paper has all of
//!   them, n^d branches, which are millions in a busy hour.
//! - *Early termination* of branches whose "performances are always significantly worse": every [`ROUNDS_PER_CHECK`]
//!   rounds, a branch without points is closed if the leader is ahead of it at the confidence level.
//! - *Confidence*: rounds end before [`SearchParams::max_rounds`] if the leader is ahead of the second at that level. The test is
//!   Hoeffding's bound for fair coins: with w and v points, (w - v)^2 >= 2 (w + v) ln(1 / (1 - confidence)). Because the
//!   test is repeated, errors are somewhat more likely than the level states.
//!
//! A point does not depend on the margin of the cheapest branch. An order that puts a large coflow before small ones is
//! chosen if it is slightly cheaper in most rounds, even if it is much more expensive in the others. Small coflows then
//! sometimes wait much longer than they run (docs/results/siphon.md has the measurements). For comparison,
//! [`Objective::LowestMeanCost`] selects the open branch with the lowest mean cost; the rest of the search is the same.

use std::ops::Range;
use std::panic::resume_unwind;
use std::thread;

use crate::model::LinkHistory;

/// Rounds between two evaluations of the points.
pub const ROUNDS_PER_CHECK: usize = 64;

/// The maximum length of a branch.
pub const MAX_DEPTH: usize = 4;

/// The maximum number of candidates for a branch.
pub const MAX_BREADTH: usize = 16;

/// Rounds that are simulated in parallel lanes.
const LANES: usize = 8;

/// One number for each of those rounds.
#[derive(Debug, Clone, Copy)]
struct Lanes([f64; LANES]);

impl Lanes {
    const ZERO: Lanes = Lanes([0.0; LANES]);

    fn plus(self, other: Lanes) -> Lanes {
        Lanes(std::array::from_fn(|at| self.0[at] + other.0[at]))
    }

    /// The maximum of two numbers that are not NaN; it compiles to one instruction.
    fn max(self, other: Lanes) -> Lanes {
        Lanes(std::array::from_fn(|at| if self.0[at] > other.0[at] { self.0[at] } else { other.0[at] }))
    }
}

/// The ranks of a branch's coflows by minimum remaining time. Elements after the depth are unused.
type Branch = [u8; MAX_DEPTH];

/// A coflow: a constant identifier, and its remaining bytes by link, each link once.
#[derive(Debug, Clone, Copy)]
pub struct SearchCoflow<'a> {
    /// The identifier.
    pub key: u64,
    /// Links, and their remaining bytes, above 0.
    pub remaining_bytes: &'a [(u32, f64)],
}

/// The criterion for the best branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// The most points: the paper's "maximum counter value".
    MostWins,
    /// The lowest mean cost.
    LowestMeanCost,
}

/// Parameters of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchParams {
    /// d: number of coflows of a branch, 1 to [`MAX_DEPTH`].
    pub depth: usize,
    /// Number of candidates, 1 to [`MAX_BREADTH`].
    pub breadth: usize,
    /// The criterion that selects among the branches that stay open.
    pub objective: Objective,
    /// The maximum number of rounds.
    pub max_rounds: usize,
    /// The confidence level, from 0 to 1. At 1 no branch is closed, and all rounds are simulated.
    pub confidence: f64,
    /// The seed of the draws.
    pub seed: u64,
    /// Number of threads that share the rounds. It does not affect the result.
    pub threads: usize,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchResult {
    /// All coflows in the order of service, as indices into the caller's list.
    pub order: Vec<usize>,
    /// Number of coflows that the search placed; the others follow by minimum remaining time.
    pub searched_count: usize,
    /// Number of branches that were open at the start.
    pub branches: usize,
    /// Branches that were closed during the search, as indices into the caller's list.
    pub closed_branches: Vec<Vec<usize>>,
    /// Number of simulated rounds.
    pub rounds: usize,
    /// Number of rounds that the chosen branch won.
    pub wins: u32,
}

/// The order of coflows by the minimum time that each would take alone, with links at these seconds per byte; ties by identifier. As
/// indices into the list. O(n log n).
pub fn order_by_remaining_time(
    seconds_per_byte: impl Fn(u32) -> f64,
    coflows: &[SearchCoflow<'_>],
) -> Vec<usize> {
    let seconds = |coflow: &SearchCoflow<'_>| {
        let flows = coflow.remaining_bytes.iter();
        flows.map(|&(link, bytes)| bytes * seconds_per_byte(link)).fold(0.0, f64::max)
    };
    let keys: Vec<f64> = coflows.iter().map(seconds).collect();
    let mut order: Vec<usize> = (0..coflows.len()).collect();
    order.sort_unstable_by(|&a, &b| keys[a].total_cmp(&keys[b]).then(coflows[a].key.cmp(&coflows[b].key)));
    order
}

/// Searches for the best order. Leaves out branches for which `is_closed` returns true, unless that would be all of them;
/// `is_closed` receives indices into `coflows`.
///
/// With n coflows of f flows, O(breadth^depth x f + breadth choose depth x n f) a round while all branches are open.
pub fn search_order(
    past: &LinkHistory,
    coflows: &[SearchCoflow<'_>],
    params: &SearchParams,
    is_closed: impl Fn(&[usize]) -> bool,
) -> SearchResult {
    let ranks = order_by_remaining_time(|link| past.median_seconds_per_byte(link), coflows);
    let breadth = params.breadth.clamp(1, MAX_BREADTH).min(ranks.len());
    let depth = params.depth.clamp(1, MAX_DEPTH).min(breadth);
    let to_indices =
        |branch: &Branch| branch[..depth].iter().map(|&rank| ranks[rank as usize]).collect::<Vec<_>>();
    let all = all_branches(breadth, depth);
    let mut open: Vec<Branch> =
        all.iter().filter(|branch| !is_closed(&to_indices(branch))).copied().collect();
    if open.is_empty() {
        open = all;
    }
    let mut found = SearchResult {
        order: ranks.clone(),
        searched_count: depth,
        branches: open.len(),
        closed_branches: Vec::new(),
        rounds: 0,
        wins: 0,
    };
    let mut scores = vec![Score::default(); open.len()];
    let instance = SearchInstance::new(past, coflows, &ranks, breadth, depth, params.seed);
    let level = (1.0 / (1.0 - params.confidence)).max(1.0);
    let level = if level.is_finite() { 2.0 * libm::log(level) } else { f64::INFINITY };
    let is_ahead = |most_wins: u32, other: u32| {
        let (difference, sum) = (f64::from(most_wins - other), f64::from(most_wins + other));
        difference * difference >= sum * level && most_wins > other
    };
    while found.rounds < params.max_rounds && open.len() > 1 {
        let until = (found.rounds + ROUNDS_PER_CHECK).min(params.max_rounds);
        for (sum, more) in scores.iter_mut().zip(instance.score_branches(&open, found.rounds..until, params))
        {
            sum.accumulate(&more);
        }
        found.rounds = until;
        let most_wins = scores.iter().map(|score| score.wins).max().unwrap_or(0);
        if is_ahead(most_wins, 0) {
            let mut kept = 0;
            for at in 0..open.len() {
                if scores[at].wins == 0 {
                    found.closed_branches.push(to_indices(&open[at]));
                } else {
                    (open[kept], scores[kept]) = (open[at], scores[at]);
                    kept += 1;
                }
            }
            open.truncate(kept);
            scores.truncate(kept);
        }
        if second_most_wins(&scores).is_none_or(|second| is_ahead(most_wins, second)) {
            break;
        }
    }
    // The first of equal branches.
    let leader = match params.objective {
        Objective::MostWins => (0..open.len()).rev().max_by_key(|&at| scores[at].wins),
        Objective::LowestMeanCost => (0..open.len()).min_by_key(|&at| scores[at].cost),
    };
    if let Some(leader) = leader {
        let branch = &open[leader][..depth];
        found.wins = scores[leader].wins;
        let chosen: Vec<usize> = branch.iter().map(|&rank| rank as usize).collect();
        let rest = (0..ranks.len()).filter(|rank| !chosen.contains(rank));
        found.order = chosen.iter().copied().chain(rest).map(|rank| ranks[rank]).collect();
    }
    found
}

/// The score of a branch so far.
#[derive(Debug, Clone, Copy, Default)]
struct Score {
    /// Number of rounds that it won.
    wins: u32,
    /// The sum of its costs in nanoseconds, if needed: an integer, so that the sum does not depend on the order of threads.
    cost: u128,
}

impl Score {
    fn accumulate(&mut self, more: &Score) {
        self.wins += more.wins;
        self.cost += more.cost;
    }
}

/// The second-highest points; none with fewer than two branches.
fn second_most_wins(scores: &[Score]) -> Option<u32> {
    let (mut first, mut second) = (None, None);
    for value in scores.iter().map(|score| score.wins) {
        if Some(value) > first {
            (first, second) = (Some(value), first);
        } else if Some(value) > second {
            second = Some(value);
        }
    }
    second
}

/// All branches, in lexicographic order.
fn all_branches(breadth: usize, depth: usize) -> Vec<Branch> {
    let mut all = vec![Branch::default()];
    for at in 0..if breadth == 0 { 0 } else { depth } {
        let longer = all.iter().flat_map(|branch| {
            (0..breadth as u8).filter(|next| !branch[..at].contains(next)).map(|next| {
                let mut longer = *branch;
                longer[at] = next;
                longer
            })
        });
        all = longer.collect();
    }
    all
}

/// A flow of a coflow: its link, the link's index among those in use, its bytes, and its duration at the median, in seconds.
struct Flow {
    link: u32,
    link_index: usize,
    bytes: f64,
    median_seconds: f64,
    /// The seed of its draws.
    draw_seed: u64,
}

/// The input of a search, in the order of minimum remaining time.
struct SearchInstance<'a> {
    past: &'a LinkHistory,
    flows: Vec<Vec<Flow>>,
    breadth: usize,
    depth: usize,
    /// Number of links in use.
    link_count: usize,
}

impl SearchInstance<'_> {
    fn new<'a>(
        past: &'a LinkHistory,
        coflows: &[SearchCoflow<'_>],
        ranks: &[usize],
        breadth: usize,
        depth: usize,
        seed: u64,
    ) -> SearchInstance<'a> {
        let mut used: Vec<u32> =
            coflows.iter().flat_map(|coflow| coflow.remaining_bytes).map(|&(link, _)| link).collect();
        used.sort_unstable();
        used.dedup();
        let flows = ranks.iter().map(|&place| {
            let coflow = &coflows[place];
            let flow = |&(link, bytes): &(u32, f64)| Flow {
                link,
                link_index: used.binary_search(&link).expect("`used` has the links of all coflows"),
                bytes,
                median_seconds: bytes * past.median_seconds_per_byte(link),
                draw_seed: splitmix64(seed ^ splitmix64(coflow.key ^ splitmix64(u64::from(link)))),
            };
            coflow.remaining_bytes.iter().map(flow).collect()
        });
        SearchInstance { past, flows: flows.collect(), breadth, depth, link_count: used.len() }
    }

    /// The score of each branch in these rounds.
    fn score_branches(&self, open: &[Branch], rounds: Range<usize>, how: &SearchParams) -> Vec<Score> {
        let parts = how.threads.clamp(1, rounds.len().div_ceil(LANES));
        let each = rounds.len().div_ceil(LANES).div_ceil(parts) * LANES;
        let ranges: Vec<Range<usize>> =
            rounds.clone().step_by(each).map(|from| from..(from + each).min(rounds.end)).collect();
        let Some((first, others)) = ranges.split_first() else { return vec![Score::default(); open.len()] };
        thread::scope(|scope| {
            let simulate = |range: &Range<usize>| self.simulate_rounds(open, range.clone(), how.objective);
            // If the system cannot start a thread for a range, the calling thread simulates it.
            let spawn = |range| {
                let thread = thread::Builder::new().spawn_scoped(scope, move || simulate(range));
                thread.map_err(|_| range)
            };
            let parts: Vec<_> = others.iter().map(spawn).collect();
            let mut sum = simulate(first);
            for part in parts {
                let scores = match part {
                    Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                    Err(range) => simulate(range),
                };
                sum.iter_mut().zip(&scores).for_each(|(sum, more)| sum.accumulate(more));
            }
            sum
        })
    }

    fn simulate_rounds(&self, open: &[Branch], rounds: Range<usize>, objective: Objective) -> Vec<Score> {
        let mut scores = vec![Score::default(); open.len()];
        let (sets, of_branch) = self.coflow_sets(open);
        let mut state = SimulationState {
            durations: self.flows[..self.breadth]
                .iter()
                .map(|flows| vec![Lanes::ZERO; flows.len()])
                .collect(),
            link_free_at: vec![vec![Lanes::ZERO; self.link_count]; self.depth + 1],
            cost_sums: [Lanes::ZERO; MAX_DEPTH],
        };
        let mut rest = vec![None; sets];
        for first in rounds.clone().step_by(LANES) {
            self.draw_durations(first as u64, &mut state.durations);
            rest.fill(None);
            let mut best = [f64::INFINITY; LANES];
            let mut winner = [0usize; LANES];
            let mut before: Option<&Branch> = None;
            let lanes = (rounds.end - first).min(LANES);
            for (at, branch) in open.iter().enumerate() {
                let same =
                    before.map_or(0, |before| before.iter().zip(branch).take_while(|(a, b)| a == b).count());
                let last = self.depth - 1;
                for (depth, &coflow) in branch[..last].iter().enumerate().skip(same) {
                    self.extend_branch(depth, coflow as usize, &mut state);
                }
                let cost = state.cost_sums[last].plus(self.last_completion(branch[last] as usize, &state));
                // The cost of the other coflows depends on the set of the branch's coflows, not on their order.
                let rest =
                    rest[of_branch[at]].get_or_insert_with(|| self.cost_after_branch(branch, &mut state));
                let cost = cost.plus(*rest).0;
                for lane in 0..LANES {
                    if cost[lane] < best[lane] {
                        (best[lane], winner[lane]) = (cost[lane], at);
                    }
                }
                if objective == Objective::LowestMeanCost {
                    scores[at].cost +=
                        cost[..lanes].iter().map(|cost| u128::from((cost * 1e9) as u64)).sum::<u128>();
                }
                before = Some(branch);
            }
            for &at in &winner[..lanes] {
                scores[at].wins += 1;
            }
        }
        scores
    }

    /// The number of distinct sets of coflows among the branches, and the index of each branch's set.
    fn coflow_sets(&self, open: &[Branch]) -> (usize, Vec<usize>) {
        let masks: Vec<u32> = open.iter().map(|branch| self.coflow_bits(branch)).collect();
        let mut sets = masks.clone();
        sets.sort_unstable();
        sets.dedup();
        let of_branch =
            masks.iter().map(|mask| sets.binary_search(mask).expect("`sets` has the masks of all branches"));
        (sets.len(), of_branch.collect())
    }

    /// One bit for each of a branch's coflows.
    fn coflow_bits(&self, branch: &Branch) -> u32 {
        branch[..self.depth].iter().fold(0, |mask, rank| mask | 1 << rank)
    }

    /// Draws the durations of flows that use their links alone.
    fn draw_durations(&self, first: u64, durations: &mut [Vec<Lanes>]) {
        for (flows, durations) in self.flows.iter().zip(durations) {
            for (flow, lane) in flows.iter().zip(durations) {
                let slowness = self.past.seconds_per_byte(flow.link);
                for (round, seconds) in (first..).zip(&mut lane.0) {
                    let chance = splitmix64(flow.draw_seed.wrapping_add(round.wrapping_mul(GOLDEN_GAMMA)));
                    let which = ((u128::from(chance) * slowness.len() as u128) >> 64) as usize;
                    *seconds = flow.bytes * slowness[which];
                }
            }
        }
    }

    /// Serves a coflow after the branch so far, and adds its end to the cost.
    fn extend_branch(&self, depth: usize, coflow: usize, state: &mut SimulationState) {
        let end = self.serve_coflow(depth, coflow, state);
        state.cost_sums[depth + 1] = state.cost_sums[depth].plus(end);
    }

    /// Serves a coflow, and returns its end.
    fn serve_coflow(&self, depth: usize, coflow: usize, state: &mut SimulationState) -> Lanes {
        let (before, after) = state.link_free_at.split_at_mut(depth + 1);
        let loads = &mut after[0];
        loads.copy_from_slice(&before[depth]);
        let mut end = Lanes::ZERO;
        for (flow, duration) in self.flows[coflow].iter().zip(&state.durations[coflow]) {
            let load = loads[flow.link_index].plus(*duration);
            loads[flow.link_index] = load;
            end = end.max(load);
        }
        end
    }

    /// The end of the last coflow of a branch.
    fn last_completion(&self, coflow: usize, state: &SimulationState) -> Lanes {
        let loads = &state.link_free_at[self.depth - 1];
        let flows = self.flows[coflow].iter().zip(&state.durations[coflow]);
        flows.fold(Lanes::ZERO, |end, (flow, duration)| end.max(loads[flow.link_index].plus(*duration)))
    }

    /// The sum of the ends of the coflows after the branch, at the median.
    fn cost_after_branch(&self, branch: &Branch, state: &mut SimulationState) -> Lanes {
        let last = self.depth - 1;
        self.serve_coflow(last, branch[last] as usize, state);
        let loads = &mut state.link_free_at[self.depth];
        let mask = self.coflow_bits(branch);
        let mut sum = Lanes::ZERO;
        for (rank, flows) in self.flows.iter().enumerate() {
            if rank < self.breadth && mask >> rank & 1 == 1 {
                continue;
            }
            let mut end = Lanes::ZERO;
            for flow in flows {
                let load = loads[flow.link_index].plus(Lanes([flow.median_seconds; LANES]));
                loads[flow.link_index] = load;
                end = end.max(load);
            }
            sum = sum.plus(end);
        }
        sum
    }
}

/// Working memory of a simulation.
struct SimulationState {
    /// The duration of each flow of each candidate coflow, in seconds.
    durations: Vec<Vec<Lanes>>,
    /// By depth, and last for the coflows after the branch: the time at which each link is free.
    link_free_at: Vec<Vec<Lanes>>,
    /// By depth: the sum of the ends so far.
    cost_sums: [Lanes; MAX_DEPTH],
}

/// 2^64 over the golden ratio, an odd number.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64 (Steele, Lea and Flood, OOPSLA '14): maps consecutive numbers to pseudo-random numbers.
fn splitmix64(value: u64) -> u64 {
    let mut z = value.wrapping_add(GOLDEN_GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
