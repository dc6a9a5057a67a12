//! A leaf without a policy: max-min fairness between its flows, as TCP shares, but with set rates.
//!
//! Outside a tree, `fair` leaves this sharing to the transport. In a tree, other leaves need the bandwidth that the
//! leaf uses while they decide, and the division of sides needs the bandwidth that the leaf can use
//! ([`MaxMinLeaf::claimed_capacity`]).

use std::ops::Range;

use crate::allocation::{Allocation, Rule};
use crate::model::{Network, Slot};
use crate::solve::maxmin::{FlowClass, max_min};

/// The flows over the same links.
#[derive(Debug)]
struct PathClass {
    /// The links, as a range of [`MaxMinLeaf::class_links`].
    links: Range<usize>,
    /// Position of the first of these flows in the list of flows.
    first_flow: u32,
    flow_count: f64,
}

/// The flows of the leaf.
#[derive(Debug, Default)]
pub(super) struct MaxMinLeaf {
    /// Whether flows or their states changed.
    pub(super) stale: bool,
    /// Slot of the coflow and number of each flow, in the order of their links.
    flows: Vec<(Slot, u32)>,
    classes: Vec<PathClass>,
    /// The links of the classes, one class after the other: sending side, receiving side, trunks.
    class_links: Vec<u32>,
    /// By side: start of the side's classes in `side_classes`.
    side_starts: Vec<u32>,
    side_classes: Vec<u32>,
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
            self.flows.extend(network.coflow(slot).live_flows().map(|flow| (slot, flow)));
        }
        let trunks = |&(slot, flow): &(Slot, u32)| network.coflow(slot).flow_trunks(flow);
        let ends = |&(slot, flow): &(Slot, u32)| network.coflow(slot).flow_ports(flow);
        self.flows.sort_unstable_by(|a, b| {
            ends(a).cmp(&ends(b)).then_with(|| trunks(a).cmp(trunks(b))).then_with(|| a.cmp(b))
        });
        self.classes.clear();
        self.class_links.clear();
        for (at, &(slot, flow)) in self.flows.iter().enumerate() {
            let links = network.coflow(slot).flow_links(flow).map(|link| link as u32);
            match self.classes.last_mut() {
                Some(class) if self.class_links[class.links.clone()].iter().copied().eq(links.clone()) => {
                    class.flow_count += 1.0;
                }
                _ => {
                    let first = self.class_links.len();
                    self.class_links.extend(links);
                    let links = first..self.class_links.len();
                    self.classes.push(PathClass { links, first_flow: at as u32, flow_count: 1.0 });
                }
            }
        }
        self.index_classes(network.fabric().links());
    }

    /// The links of a class.
    fn links(&self, class: &PathClass) -> &[u32] {
        &self.class_links[class.links.clone()]
    }

    /// Lists the classes of each side.
    fn index_classes(&mut self, sides: usize) {
        self.side_starts.clear();
        self.side_starts.resize(sides + 1, 0);
        for &link in &self.class_links {
            self.side_starts[link as usize + 1] += 1;
        }
        for side in 0..sides {
            self.side_starts[side + 1] += self.side_starts[side];
        }
        self.side_classes.clear();
        self.side_classes.resize(self.class_links.len(), 0);
        let mut next = self.side_starts.clone();
        for (at, class) in self.classes.iter().enumerate() {
            for &link in &self.class_links[class.links.clone()] {
                self.side_classes[next[link as usize] as usize] = at as u32;
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

    /// For each class of a side: its number of flows, and the bound of a flow's rate at its other sides.
    fn limits_at_side(&self, side: usize, bound: Bound) -> impl Iterator<Item = (f64, f64)> + Clone {
        let offers = if bound == Bound::Upper { &self.upper_bounds } else { &self.lower_bounds };
        let members =
            &self.side_classes[self.side_starts[side] as usize..self.side_starts[side + 1] as usize];
        members.iter().map(move |&at| {
            let class = &self.classes[at as usize];
            let others = self.links(class).iter().filter(|&&link| link as usize != side);
            (class.flow_count, others.map(|&link| offers[link as usize]).fold(f64::INFINITY, f64::min))
        })
    }

    /// The capacity of a side that the leaf could use if its flows got their bounds at their other sides.
    pub(super) fn claimed_capacity(&self, side: usize, bound: Bound) -> f64 {
        self.limits_at_side(side, bound).map(|(count, limit)| count * limit).sum()
    }

    /// The maximum rate of a flow at a side of which the leaf has `part`.
    ///
    /// It is the level of [`fill_level`] for its flows.
    pub(super) fn max_flow_rate(&self, side: usize, part: f64, bound: Bound) -> f64 {
        fill_level_of(part, self.limits_at_side(side, bound))
    }

    /// Appends the number of flows and the limit of a flow at a side to `out`, for each class of flows. Without a bound, no
    /// flow has a limit.
    pub(super) fn add_limits(&self, side: usize, bound: Option<Bound>, out: &mut Vec<(f64, f64)>) {
        let limits = self.limits_at_side(side, bound.unwrap_or(Bound::Upper));
        out.extend(limits.map(|(count, limit)| (count, if bound.is_some() { limit } else { f64::INFINITY })));
    }

    /// Computes the rates of the flows for these capacities, and the used capacity of each side. O(flows + links of all
    /// classes + sides log sides).
    pub(super) fn compute_rates(
        &self,
        active: &[Slot],
        capacities: &[f64],
        out: &mut Allocation,
        used: &mut [f64],
    ) {
        let to_class = |class: &PathClass| FlowClass {
            links: &self.class_links[class.links.clone()],
            flows: class.flow_count,
        };
        let classes: Vec<FlowClass<'_>> = self.classes.iter().map(to_class).collect();
        let rates = max_min(capacities, &classes);
        for (class, rate) in self.classes.iter().zip(rates) {
            if rate <= 0.0 {
                continue;
            }
            for &link in self.links(class) {
                used[link as usize] += rate * class.flow_count;
            }
            let first = class.first_flow as usize;
            for &(slot, flow) in &self.flows[first..first + class.flow_count as usize] {
                out.add_flow_rate(slot, flow, rate);
            }
        }
        for &slot in active {
            out.set_rule(slot, Rule::Transport);
        }
    }
}

/// The level to which flows fill `part` of a side. `limits` has the number of flows of each class, and the rate that limits a
/// flow at its other sides. Flows with the highest limit count as unlimited. O(classes) for each step; few steps are needed.
pub(super) fn fill_level(part: f64, limits: &[(f64, f64)]) -> f64 {
    fill_level_of(part, limits.iter().copied())
}

fn fill_level_of(part: f64, limits: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
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

/// The sum of the rates of flows with these limits at a level, where `max_limit` is the highest limit of all flows of the
/// level.
pub(super) fn part_at_level(level: f64, max_limit: f64, limits: &[(f64, f64)]) -> f64 {
    let rate = |limit: f64| if limit < max_limit { limit.min(level) } else { level };
    limits.iter().map(|&(count, limit)| count * rate(limit)).sum()
}

#[cfg(test)]
mod tests {
    use super::{fill_level, part_at_level};

    #[test]
    fn flows_of_several_leaves_fill_a_queue() {
        let all = f64::INFINITY;
        // Two flows of the first leaf, one of which is limited to 1; one flow of the second.
        let (first, second) = ([(1.0, 1.0), (1.0, all)], [(1.0, all)]);
        let level = fill_level(7.0, &[&first[..], &second].concat());
        assert_eq!(level, 3.0);
        assert_eq!([&first[..], &second].map(|leaf| part_at_level(level, all, leaf)), [4.0, 3.0]);
        // Below all limits, flows share evenly.
        assert_eq!(fill_level(1.5, &[(1.0, 1.0), (2.0, all)]), 0.5);
        // Capacity beyond all limits belongs to the flows with the highest limit.
        let level = fill_level(10.0, &[(1.0, 1.0), (2.0, 3.0)]);
        assert_eq!(level, 4.5);
        assert_eq!(part_at_level(level, 3.0, &[(2.0, 3.0)]), 9.0);
    }
}
