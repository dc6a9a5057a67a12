//! Siphon's inter-coflow scheduling (Liu, Chen and Li, ATC '18, section 3.1.3): the order of coflows that is most often best
//! if links are as fast as they were in the past.
//!
//! [`montecarlo`] implements a single search. About repeated searches ("online incremental simulation") the paper says that
//! "existing useful simulation results (or partial results) can be preserved" when coflows arrive and end, but not which.
//! Choices:
//!
//! - *When*: at every arrival and end of a coflow. The order stays constant in between, since the present bandwidth is
//!   unknown.
//! - *Draws* of a flow stay the same during its lifetime, for any number of remaining bytes: they depend on the seed.
//! - *Closed branches* stay closed while none of their coflows has moved a byte. When the first coflow of the order ends, the
//!   branches that began with it stay closed without it. The others are discarded, because they were compared with orders
//!   that begin with the ended coflow. When another coflow ends, all are discarded. Branches with a coflow that arrived or
//!   moved bytes are open. `reuse=off` discards all closed branches each time.
//! - *Coflows after the branch* follow by minimum remaining time. Most links serve a coflow that is not the first.

use std::collections::{BTreeMap, BTreeSet};

use super::WaitingCoflow;
use crate::model::LinkHistory;
use crate::policy::params::{Params, ParamsError};
use crate::solve::montecarlo::{
    self, MAX_BREADTH, MAX_DEPTH, Objective, SearchCoflow, SearchParams, SearchResult,
};

/// Monte Carlo simulation over orders of coflows.
#[derive(Debug, Clone)]
pub struct Siphon {
    search: SearchParams,
    reuse: bool,
    /// What each coflow had left when it was asked last.
    left: BTreeMap<u64, Vec<(u32, f64)>>,
    /// Beginnings of orders that are not worth a look, by the numbers of their coflows.
    closed: BTreeSet<Vec<u64>>,
    /// Who went first.
    first: Option<u64>,
}

impl Siphon {
    /// A policy without results of earlier searches.
    pub fn new(search: SearchParams, reuse: bool) -> Siphon {
        Siphon { search, reuse, left: BTreeMap::new(), closed: BTreeSet::new(), first: None }
    }

    pub(crate) fn from_params(params: &mut Params) -> Result<Siphon, ParamsError> {
        let mut whole = |key, default: usize, most: usize| {
            let expected = format!("a whole number from 1 to {most}");
            params.take_value(key, default, |value| (1..=most).contains(value), &expected)
        };
        let search = SearchParams {
            depth: whole("depth", 3, MAX_DEPTH)?,
            breadth: whole("breadth", 10, MAX_BREADTH)?,
            max_rounds: whole("samples", 1000, 100_000)?,
            threads: whole("threads", 1, 64)?,
            confidence: params.take_value(
                "confidence",
                0.95,
                |level| (0.5..=1.0).contains(level),
                "a number from 0.5 to 1",
            )?,
            objective: params.take_choice(
                "choose",
                &[("wins", Objective::MostWins), ("mean", Objective::LowestMeanCost)],
            )?,
            seed: params.take_value("seed", 1, |_| true, "a whole number of 0 or more")?,
        };
        Ok(Siphon::new(search, params.take_switch("reuse", true)?))
    }

    /// Searches again, and returns the complete result.
    pub fn search_order(&mut self, waiting: &[WaitingCoflow], past: &LinkHistory) -> SearchResult {
        let coflows: Vec<SearchCoflow<'_>> = waiting.iter().map(WaitingCoflow::for_search).collect();
        self.forget(waiting);
        let numbers = |places: &[usize]| places.iter().map(|&place| waiting[place].seq).collect::<Vec<u64>>();
        let closed = |places: &[usize]| {
            let branch = numbers(places);
            !self.closed.is_empty()
                && (1..=branch.len()).any(|length| self.closed.contains(&branch[..length]))
        };
        let found = montecarlo::search_order(past, &coflows, &self.search, closed);
        if self.reuse {
            self.closed.extend(found.closed_branches.iter().map(|branch| numbers(branch)));
            self.first = found.order.first().map(|&place| waiting[place].seq);
            self.left = waiting.iter().map(|coflow| (coflow.seq, coflow.remaining_bytes.clone())).collect();
        }
        found
    }

    /// Brings closed branches up to what has happened since.
    fn forget(&mut self, waiting: &[WaitingCoflow]) {
        let stays: BTreeSet<u64> = waiting
            .iter()
            .filter(|coflow| self.left.get(&coflow.seq).is_some_and(|left| *left == coflow.remaining_bytes))
            .map(|coflow| coflow.seq)
            .collect();
        let gone: Vec<u64> = self
            .left
            .keys()
            .filter(|seq| !waiting.iter().any(|coflow| coflow.seq == **seq))
            .copied()
            .collect();
        let kept = std::mem::take(&mut self.closed).into_iter().filter_map(|branch| {
            let branch = match gone[..] {
                [] => branch,
                [only] if self.first == Some(only) && branch[0] == only => branch[1..].to_vec(),
                _ => return None,
            };
            (!branch.is_empty() && branch.iter().all(|seq| stays.contains(seq))).then_some(branch)
        });
        self.closed = kept.collect();
    }
}
