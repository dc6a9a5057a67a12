//! Links between switches, which may carry less than the ports on both their sides.
//!
//! Where no link is given more than it carries, what was decided is carried. Where one is, rates are max-min among what was decided: nobody
//! gets more than that, and who gets less crosses a full link on which nobody has more. That is what TCP would come to with senders
//! that hold themselves to their rates.

use std::collections::BTreeMap;

use super::{Own, copy, rates};
use crate::allocation::{Allocation, Common};
use crate::model::{Network, Slot, Trunks};
use crate::solve::{Class, max_min};

/// A link that is given so much more than it carries, as a part, is not short: that is rounding.
const ROUNDING: f64 = 1e-9;

/// A flow with a rate that crosses links.
struct Crossing {
    slot: Slot,
    flow: u32,
    rate: f64,
    path: u32,
}

/// Turns what was decided into what links between switches carry.
pub(crate) struct Crossings {
    trunks: Trunks,
    carried: Allocation,
    /// Whether the rates in force are not those that were decided.
    reduced: bool,
    /// By slot the coflow that is there, by its position in the workload, and the path of each of its flows.
    coflows: Vec<(usize, Vec<u32>)>,
    paths: Vec<Box<[u32]>>,
    known: BTreeMap<Box<[u32]>, u32>,
    crossing: Vec<Crossing>,
    given: Vec<f64>,
    own: Own,
}

impl Crossings {
    pub(crate) fn new(trunks: Trunks) -> Crossings {
        Crossings {
            trunks,
            carried: Allocation::default(),
            reduced: false,
            coflows: Vec::new(),
            paths: Vec::new(),
            known: BTreeMap::new(),
            crossing: Vec::new(),
            given: Vec::new(),
            own: Own::default(),
        }
    }

    /// O(links + flows with a rate x links of a path); where a link is short also their logarithm.
    pub(super) fn carry<'a>(
        &'a mut self,
        decided: &'a Allocation,
        network: &Network,
        now: f64,
    ) -> &'a Allocation {
        self.own.of(decided);
        self.cross(decided, network, now);
        let links = self.given.iter().zip(self.trunks.capacities());
        let reduces = links.into_iter().any(|(given, capacity)| *given > capacity * (1.0 + ROUNDING));
        if !reduces && !self.reduced {
            return decided;
        }
        self.reduced = reduces;
        self.carried.clear(network.slots());
        if reduces {
            self.reduce(decided, network, now);
        } else {
            copy(decided, network, &mut self.carried);
        }
        self.carried.seal();
        &self.carried
    }

    /// Finds the flows with a rate that cross links, in the order of coflows under way, and what links are given.
    fn cross(&mut self, decided: &Allocation, network: &Network, now: f64) {
        self.crossing.clear();
        self.given.clear();
        self.given.resize(self.trunks.capacities().len(), 0.0);
        for &slot in network.active() {
            self.route(slot, network);
            let (coflow, common, own) = (network.coflow(slot), decided.common(slot), self.own.coflow(slot));
            if common == Common::None && own.is_empty() {
                continue;
            }
            let paths = &self.coflows[slot as usize].1;
            for (flow, rate) in rates(coflow, common, own, now) {
                let path = paths[flow as usize];
                let links = &self.paths[path as usize];
                if rate > 0.0 && !links.is_empty() {
                    links.iter().for_each(|&link| self.given[link as usize] += rate);
                    self.crossing.push(Crossing { slot, flow, rate, path });
                }
            }
        }
    }

    /// Finds the paths of a coflow's flows, unless they are known.
    fn route(&mut self, slot: Slot, network: &Network) {
        let coflow = network.coflow(slot);
        if self.coflows.len() <= slot as usize {
            self.coflows.resize(slot as usize + 1, (usize::MAX, Vec::new()));
        }
        if self.coflows[slot as usize].0 == coflow.index {
            return;
        }
        let mut links = Vec::new();
        let mut path = |flow: u32| {
            let (src, dst) = coflow.ends_of(flow);
            self.trunks.path(src, dst, coflow.index, coflow.original(flow), &mut links);
            if let Some(&known) = self.known.get(links.as_slice()) {
                return known;
            }
            let next = self.paths.len() as u32;
            self.paths.push(links.as_slice().into());
            self.known.insert(links.as_slice().into(), next);
            next
        };
        let paths = (0..coflow.width() as u32).map(&mut path).collect();
        self.coflows[slot as usize] = (coflow.index, paths);
    }

    /// Finds what is carried of what the flows that cross links should have.
    fn reduce(&mut self, decided: &Allocation, network: &Network, now: f64) {
        // What was decided for a flow is as a link of its own.
        let first = self.trunks.capacities().len();
        let decisions = self.crossing.iter().map(|crossing| crossing.rate);
        let capacities: Vec<f64> = self.trunks.capacities().iter().copied().chain(decisions).collect();
        let mut links = Vec::new();
        let mut ends = Vec::with_capacity(self.crossing.len());
        for (number, crossing) in self.crossing.iter().enumerate() {
            links.extend_from_slice(&self.paths[crossing.path as usize]);
            links.push((first + number) as u32);
            ends.push(links.len());
        }
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let classes: Vec<Class<'_>> =
            starts.zip(&ends).map(|(from, &to)| Class { links: &links[from..to], flows: 1.0 }).collect();
        let carried = max_min(&capacities, &classes);
        let mut at = 0;
        for &slot in network.active() {
            let from = at;
            at += self.crossing[from..].iter().take_while(|crossing| crossing.slot == slot).count();
            let crossing = self.crossing[from..at].iter().zip(&carried[from..at]);
            let (common, own) = (decided.common(slot), self.own.coflow(slot));
            if crossing.clone().all(|(crossing, carried)| *carried >= crossing.rate * (1.0 - ROUNDING)) {
                self.carried.set_common(slot, common);
                own.iter().for_each(|own| self.carried.add_flow(slot, own.flow, own.rate));
                continue;
            }
            let mut crossing = crossing.peekable();
            for (flow, rate) in rates(network.coflow(slot), common, own, now) {
                let crosses = crossing.next_if(|(crossing, _)| crossing.flow == flow);
                let carried = crosses.map_or(rate, |(_, carried)| carried.min(rate));
                if carried > 0.0 {
                    self.carried.add_flow(slot, flow, carried);
                }
            }
        }
    }
}
