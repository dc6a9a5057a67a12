//! A leaf without a policy: max-min fairness between its flows, as TCP shares, but with set rates.
//!
//! Outside a tree, `fair` leaves this sharing to the transport. In a tree, other leaves need the bandwidth that the
//! leaf uses while they decide, and the division of sides needs the bandwidth that the leaf can use
//! ([`MaxMinLeaf::claimed_capacity`]).

use crate::allocation::{Allocation, Rule};
use crate::model::{Network, Slot};
use crate::solve::maxmin::{FlowClass, max_min};

/// The flows between two ports.
#[derive(Debug)]
struct PortPair {
    /// Sending side and receiving side.
    sides: [u32; 2],
    /// Position of the first of these flows in the list of flows.
    first_flow: u32,
    flow_count: f64,
}

/// The flows of the leaf.
#[derive(Debug, Default)]
pub(super) struct MaxMinLeaf {
    /// Whether flows or their states changed.
    pub(super) stale: bool,
    /// Sender, receiver, slot of the coflow, and number of each flow; sorted.
    flows: Vec<(u32, u32, Slot, u32)>,
    pairs: Vec<PortPair>,
    /// By side: start of the side's pairs in `members`.
    side_starts: Vec<u32>,
    side_pairs: Vec<u32>,
    /// By side: upper bound of the rate of a flow there; then the lower bound.
    pub(super) upper_bounds: Vec<f64>,
    pub(super) lower_bounds: Vec<f64>,
    /// A copy of `upper_bounds`.
    pub(super) saved_upper_bounds: Vec<f64>,
}

/// The two bounds of the offers of sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    Upper,
    Lower,
}

impl MaxMinLeaf {
    /// Collects the live flows, if flows changed. O(flows log flows).
    pub(super) fn collect_flows(&mut self, active: &[Slot], network: &Network) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        self.flows.clear();
        for &slot in active {
            let coflow = network.coflow(slot);
            self.flows.extend(coflow.live_flows().map(|flow| {
                let (src, dst) = coflow.flow_ports(flow);
                (src, dst, slot, flow)
            }));
        }
        self.flows.sort_unstable();
        let ports = network.fabric().ports() as u32;
        self.pairs.clear();
        for (at, &(src, dst, ..)) in self.flows.iter().enumerate() {
            let links = [src, ports + dst];
            match self.pairs.last_mut() {
                Some(pair) if pair.sides == links => pair.flow_count += 1.0,
                _ => self.pairs.push(PortPair { sides: links, first_flow: at as u32, flow_count: 1.0 }),
            }
        }
        self.index_pairs(2 * ports as usize);
    }

    /// Lists the pairs of each side.
    fn index_pairs(&mut self, sides: usize) {
        self.side_starts.clear();
        self.side_starts.resize(sides + 1, 0);
        for link in self.pairs.iter().flat_map(|pair| pair.sides) {
            self.side_starts[link as usize + 1] += 1;
        }
        for side in 0..sides {
            self.side_starts[side + 1] += self.side_starts[side];
        }
        self.side_pairs.clear();
        self.side_pairs.resize(2 * self.pairs.len(), 0);
        let mut next = self.side_starts.clone();
        for (at, pair) in self.pairs.iter().enumerate() {
            for link in pair.sides {
                self.side_pairs[next[link as usize] as usize] = at as u32;
                next[link as usize] += 1;
            }
        }
        for bound in [&mut self.upper_bounds, &mut self.lower_bounds] {
            bound.clear();
            bound.resize(sides, f64::INFINITY);
        }
    }

    /// Sets both bounds to their mean.
    pub(super) fn set_bounds_to_mean(&mut self) {
        for (above, below) in self.upper_bounds.iter_mut().zip(&mut self.lower_bounds) {
            if above != below {
                *above = (*above + *below) / 2.0;
                *below = *above;
            }
        }
    }

    /// For each pair of a side: its number of flows, and the bound of a flow's rate at the other side.
    fn limits_at_side(&self, side: usize, bound: Bound) -> impl Iterator<Item = (f64, f64)> + Clone {
        let offers = if bound == Bound::Upper { &self.upper_bounds } else { &self.lower_bounds };
        let members = &self.side_pairs[self.side_starts[side] as usize..self.side_starts[side + 1] as usize];
        members.iter().map(move |&at| {
            let pair = &self.pairs[at as usize];
            let [send, recv] = pair.sides;
            let other = if send as usize == side { recv } else { send };
            (pair.flow_count, offers[other as usize])
        })
    }

    /// The capacity of a side that the leaf could use if its flows got their bounds at their other sides.
    pub(super) fn claimed_capacity(&self, side: usize, bound: Bound) -> f64 {
        self.limits_at_side(side, bound).map(|(count, limit)| count * limit).sum()
    }

    /// The maximum rate of a flow at a side of which the leaf has `part`.
    ///
    /// It is the level to which flows fill the side that cannot get more at their other sides. Flows with the highest
    /// limit count as unlimited. O(pairs of the side) for each step; few steps are needed.
    pub(super) fn max_flow_rate(&self, side: usize, part: f64, bound: Bound) -> f64 {
        let limits = self.limits_at_side(side, bound);
        let max_limit = limits.clone().map(|(_, limit)| limit).fold(0.0, f64::max);
        let mut level = 0.0;
        let mut last = usize::MAX;
        loop {
            let (mut limited, mut taken, mut open) = (0, 0.0, 0.0);
            for (count, limit) in limits.clone() {
                if limit <= level && limit < max_limit {
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
    pub(super) fn compute_rates(
        &self,
        active: &[Slot],
        capacities: &[f64],
        out: &mut Allocation,
        used: &mut [f64],
    ) {
        let classes: Vec<FlowClass<'_>> =
            self.pairs.iter().map(|pair| FlowClass { links: &pair.sides, flows: pair.flow_count }).collect();
        let rates = max_min(capacities, &classes);
        for (pair, rate) in self.pairs.iter().zip(rates) {
            if rate <= 0.0 {
                continue;
            }
            for link in pair.sides {
                used[link as usize] += rate * pair.flow_count;
            }
            let first = pair.first_flow as usize;
            for &(_, _, slot, flow) in &self.flows[first..first + pair.flow_count as usize] {
                out.add_flow_rate(slot, flow, rate);
            }
        }
        for &slot in active {
            out.set_rule(slot, Rule::Transport);
        }
    }
}
