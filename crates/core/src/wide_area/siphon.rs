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

use super::{Policy, Turns, Waiting};
use crate::model::Past;
use crate::policy::params::{Params, ParamsError};
use crate::solve::montecarlo::{self, Best, Coflow, Found, MAX_BREADTH, MAX_DEPTH, Search};

/// Monte Carlo simulation over orders of coflows.
#[derive(Debug, Clone)]
pub struct Siphon {
    search: Search,
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
    pub fn new(search: Search, reuse: bool) -> Siphon {
        Siphon { search, reuse, left: BTreeMap::new(), closed: BTreeSet::new(), first: None }
    }

    pub(super) fn read(params: &mut Params) -> Result<Siphon, ParamsError> {
        let mut whole = |key, default: usize, most: usize| {
            let expected = format!("a whole number from 1 to {most}");
            params.take_with(key, default, |value| (1..=most).contains(value), &expected)
        };
        let search = Search {
            depth: whole("depth", 3, MAX_DEPTH)?,
            breadth: whole("breadth", 10, MAX_BREADTH)?,
            samples: whole("samples", 1000, 100_000)?,
            threads: whole("threads", 1, 64)?,
            confidence: params.take_with(
                "confidence",
                0.95,
                |level| (0.5..=1.0).contains(level),
                "a number from 0.5 to 1",
            )?,
            best: params.choice("choose", &[("wins", Best::MostOften), ("mean", Best::OnAverage)])?,
            seed: params.take_with("seed", 1, |_| true, "a whole number of 0 or more")?,
        };
        Ok(Siphon::new(search, params.switch("reuse", true)?))
    }

    /// Searches again, and returns the complete result.
    pub fn search(&mut self, waiting: &[Waiting], past: &Past) -> Found {
        let coflows: Vec<Coflow<'_>> =
            waiting.iter().map(|coflow| Coflow { key: coflow.seq, left: &coflow.left }).collect();
        self.forget(waiting);
        let numbers = |places: &[usize]| places.iter().map(|&place| waiting[place].seq).collect::<Vec<u64>>();
        let closed = |places: &[usize]| {
            let branch = numbers(places);
            !self.closed.is_empty()
                && (1..=branch.len()).any(|length| self.closed.contains(&branch[..length]))
        };
        let found = montecarlo::search(past, &coflows, &self.search, closed);
        if self.reuse {
            self.closed.extend(found.closed.iter().map(|branch| numbers(branch)));
            self.first = found.order.first().map(|&place| waiting[place].seq);
            self.left = waiting.iter().map(|coflow| (coflow.seq, coflow.left.clone())).collect();
        }
        found
    }

    /// Brings closed branches up to what has happened since.
    fn forget(&mut self, waiting: &[Waiting]) {
        let stays: BTreeSet<u64> = waiting
            .iter()
            .filter(|coflow| self.left.get(&coflow.seq).is_some_and(|left| *left == coflow.left))
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

impl Policy for Siphon {
    fn turns(&mut self, waiting: &[Waiting], past: &Past) -> Turns {
        Turns::InOrder(self.search(waiting, past).order)
    }
}
