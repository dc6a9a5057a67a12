//! A leaf without a policy: max-min fairness between its flows, as TCP shares, but with set rates.
//!
//! Outside a tree, `fair` leaves this sharing to the transport. In a tree, other leaves need the bandwidth that the
//! leaf uses while they decide, and the division of sides needs the bandwidth that the leaf can use
//! ([`MaxMin::claim`]).

use crate::allocation::{Allocation, Rule};
use crate::model::{Network, Slot};
use crate::solve::maxmin::{Class, max_min};

/// The flows between two ports.
#[derive(Debug)]
struct Pair {
    /// Sending side and receiving side.
    links: [u32; 2],
    /// Position of the first of these flows in the list of flows.
    first: u32,
    count: f64,
}

/// The flows of the leaf.
#[derive(Debug, Default)]
pub(super) struct MaxMin {
    /// Whether flows or their states changed.
    pub(super) stale: bool,
    /// Sender, receiver, slot of the coflow, and number of each flow; sorted.
    flows: Vec<(u32, u32, Slot, u32)>,
    pairs: Vec<Pair>,
    /// By side: start of the side's pairs in `members`.
    starts: Vec<u32>,
    members: Vec<u32>,
    /// By side: upper bound of the rate of a flow there; then the lower bound.
    pub(super) above: Vec<f64>,
    pub(super) below: Vec<f64>,
    /// A copy of `above`.
    pub(super) kept: Vec<f64>,
}

/// The two bounds of the offers of sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    Above,
    Below,
}

impl MaxMin {
    /// Collects the live flows, if flows changed. O(flows log flows).
    pub(super) fn collect(&mut self, active: &[Slot], network: &Network) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        self.flows.clear();
        for &slot in active {
            let coflow = network.coflow(slot);
            self.flows.extend(coflow.live_flows().map(|flow| {
                let (src, dst) = coflow.ends_of(flow);
                (src, dst, slot, flow)
            }));
        }
        self.flows.sort_unstable();
        let ports = network.fabric().ports() as u32;
        self.pairs.clear();
        for (at, &(src, dst, ..)) in self.flows.iter().enumerate() {
            let links = [src, ports + dst];
            match self.pairs.last_mut() {
                Some(pair) if pair.links == links => pair.count += 1.0,
                _ => self.pairs.push(Pair { links, first: at as u32, count: 1.0 }),
            }
        }
        self.index(2 * ports as usize);
    }

    /// Lists the pairs of each side.
    fn index(&mut self, sides: usize) {
        self.starts.clear();
        self.starts.resize(sides + 1, 0);
        for link in self.pairs.iter().flat_map(|pair| pair.links) {
            self.starts[link as usize + 1] += 1;
        }
        for side in 0..sides {
            self.starts[side + 1] += self.starts[side];
        }
        self.members.clear();
        self.members.resize(2 * self.pairs.len(), 0);
        let mut next = self.starts.clone();
        for (at, pair) in self.pairs.iter().enumerate() {
            for link in pair.links {
                self.members[next[link as usize] as usize] = at as u32;
                next[link as usize] += 1;
            }
        }
        for bound in [&mut self.above, &mut self.below] {
            bound.clear();
            bound.resize(sides, f64::INFINITY);
        }
    }

    /// Sets both bounds to their mean.
    pub(super) fn halve(&mut self) {
        for (above, below) in self.above.iter_mut().zip(&mut self.below) {
            if above != below {
                *above = (*above + *below) / 2.0;
                *below = *above;
            }
        }
    }

    /// For each pair of a side: its number of flows, and the bound of a flow's rate at the other side.
    fn limits(&self, side: usize, bound: Bound) -> impl Iterator<Item = (f64, f64)> + Clone {
        let offers = if bound == Bound::Above { &self.above } else { &self.below };
        let members = &self.members[self.starts[side] as usize..self.starts[side + 1] as usize];
        members.iter().map(move |&at| {
            let pair = &self.pairs[at as usize];
            let [send, recv] = pair.links;
            let other = if send as usize == side { recv } else { send };
            (pair.count, offers[other as usize])
        })
    }

    /// The capacity of a side that the leaf could use if its flows got their bounds at their other sides.
    pub(super) fn claim(&self, side: usize, bound: Bound) -> f64 {
        self.limits(side, bound).map(|(count, limit)| count * limit).sum()
    }

    /// The maximum rate of a flow at a side of which the leaf has `part`.
    ///
    /// It is the level to which flows fill the side that cannot get more at their other sides. Flows with the highest
    /// limit count as unlimited. O(pairs of the side) for each step; few steps are needed.
    pub(super) fn level(&self, side: usize, part: f64, bound: Bound) -> f64 {
        let limits = self.limits(side, bound);
        let most = limits.clone().map(|(_, limit)| limit).fold(0.0, f64::max);
        let mut level = 0.0;
        let mut last = usize::MAX;
        loop {
            let (mut limited, mut taken, mut open) = (0, 0.0, 0.0);
            for (count, limit) in limits.clone() {
                if limit <= level && limit < most {
                    limited += 1;
                    taken += count * limit;
                } else {
                    open += count;
                }
            }
            if limited == last {
                return level;
            }
            last = limited;
            level = f64::max(level, (part - taken) / open);
        }
    }

    /// Computes the rates of the flows for these capacities, and the used capacity of each side. O(flows + pairs +
    /// sides log sides).
    pub(super) fn decide(&self, active: &[Slot], capacities: &[f64], out: &mut Allocation, used: &mut [f64]) {
        let classes: Vec<Class<'_>> =
            self.pairs.iter().map(|pair| Class { links: &pair.links, flows: pair.count }).collect();
        let rates = max_min(capacities, &classes);
        for (pair, rate) in self.pairs.iter().zip(rates) {
            if rate <= 0.0 {
                continue;
            }
            for link in pair.links {
                used[link as usize] += rate * pair.count;
            }
            let first = pair.first as usize;
            for &(_, _, slot, flow) in &self.flows[first..first + pair.count as usize] {
                out.add_flow(slot, flow, rate);
            }
        }
        for &slot in active {
            out.set_rule(slot, Rule::Transport);
        }
    }
}
