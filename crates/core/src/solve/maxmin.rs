//! Max-min fair rates, the model of how per-flow TCP shares links.
//!
//! An allocation is max-min fair if every flow has a bottleneck: a full link on which no other flow has a higher rate.
//! [`max_min`] computes the allocation for classes of flows over any links by progressive filling. [`SwitchMaxMin`] maintains
//! it for one big switch while flows end; updating it after one flow costs far less than a solution from scratch.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ordered_f64::OrderedF64;

/// A class of flows that cross the same links.
#[derive(Debug, Clone, Copy)]
pub struct FlowClass<'a> {
    /// Links, as indices into the capacities; each at most once. A flow over no links has no limit.
    pub links: &'a [u32],
    /// Number of flows.
    pub flows: f64,
}

/// The max-min fair rate of a flow of each class. O(links of all classes + links log links).
///
/// Capacities must be at least 0 and numbers of flows above 0; other values give meaningless rates.
pub fn max_min(capacities: &[f64], classes: &[FlowClass<'_>]) -> Vec<f64> {
    let mut residuals = capacities.to_vec();
    let mut unfixed = vec![0.0f64; capacities.len()];
    let mut starts = vec![0u32; capacities.len() + 1];
    for class in classes {
        for &link in class.links {
            starts[link as usize + 1] += 1;
            unfixed[link as usize] += class.flows;
        }
    }
    for link in 0..capacities.len() {
        starts[link + 1] += starts[link];
    }
    let mut members = vec![0u32; starts[capacities.len()] as usize];
    let mut next = starts.clone();
    for (index, class) in classes.iter().enumerate() {
        for &link in class.links {
            members[next[link as usize] as usize] = index as u32;
            next[link as usize] += 1;
        }
    }
    let mut rates = vec![f64::INFINITY; classes.len()];
    // Fixing flows at a smaller share elsewhere only raises a link's share, so an old heap entry is a lower bound.
    let mut shares: BinaryHeap<Reverse<(OrderedF64, u32)>> = (0..capacities.len())
        .filter(|&link| unfixed[link] > 0.0)
        .map(|link| Reverse((OrderedF64(residuals[link] / unfixed[link]), link as u32)))
        .collect();
    let mut unfixed_classes: Vec<u32> = starts.windows(2).map(|w| w[1] - w[0]).collect();
    while let Some(Reverse((OrderedF64(share), link))) = shares.pop() {
        let l = link as usize;
        if unfixed_classes[l] == 0 {
            continue;
        }
        let now = (residuals[l] / unfixed[l]).max(0.0);
        if now > share {
            shares.push(Reverse((OrderedF64(now), link)));
            continue;
        }
        for &member in &members[starts[l] as usize..starts[l + 1] as usize] {
            let class = &classes[member as usize];
            if rates[member as usize].is_finite() {
                continue;
            }
            rates[member as usize] = now;
            for &other in class.links {
                let o = other as usize;
                residuals[o] -= now * class.flows;
                unfixed[o] -= class.flows;
                unfixed_classes[o] -= 1;
            }
        }
    }
    rates
}

/// The place of a link that carries no flows.
const NOT_IN_ORDER: u32 = u32::MAX;

/// Max-min rates on one big switch, maintained while flows start and end.
///
/// Links are the sending sides of all ports, followed by their receiving sides. The level of a link is the rate of the
/// flows whose bottleneck it is. A flow's rate is the lower level of its two links.
///
/// Progressive filling fixes links by rising level, and the level of a link depends only on the links before it. When a
/// flow ends, the links before its bottleneck therefore keep their levels. The solver computes the other levels again in
/// the old order. If a level is lower than the one before it, the two links swap places. If all levels rise along the
/// order, the allocation is max-min: every flow is fixed at a full link on which no flow has a higher rate.
#[derive(Debug, Clone)]
pub struct SwitchMaxMin {
    ports: usize,
    capacities: Vec<f64>,
    /// Number of flows from port to port: rows by sender, then the same numbers in rows by receiver.
    flows_by_sender: Vec<f32>,
    flows_by_receiver: Vec<f32>,
    flow_counts: Vec<f64>,
    /// Number of flows whose bottleneck is the link.
    bottlenecked_flows: Vec<f64>,
    levels: Vec<f64>,
    /// Links with flows, in the order in which they are fixed. Links that limit no flow come last.
    fill_order: Vec<u32>,
    order_positions: Vec<u32>,
    /// Levels of the links before the current one; 0 for the others.
    earlier_levels: Vec<f64>,
    first_dirty: usize,
    needs_full_solve: bool,
}

impl SwitchMaxMin {
    /// The maximum number of ports. Memory is O(ports^2); [`SwitchMaxMin::new`] does not check the number.
    pub const MAX_PORTS: usize = 4096;

    /// A switch without flows. `send` and `recv` are the capacities of the ports, in bytes per second.
    pub fn new(send: &[f64], recv: &[f64]) -> SwitchMaxMin {
        let (ports, links) = (send.len(), 2 * send.len());
        SwitchMaxMin {
            ports,
            capacities: send.iter().chain(recv).copied().collect(),
            flows_by_sender: vec![0.0; ports * ports],
            flows_by_receiver: vec![0.0; ports * ports],
            flow_counts: vec![0.0; links],
            bottlenecked_flows: vec![0.0; links],
            levels: vec![f64::INFINITY; links],
            fill_order: Vec::new(),
            order_positions: vec![NOT_IN_ORDER; links],
            earlier_levels: vec![0.0; links],
            first_dirty: usize::MAX,
            needs_full_solve: false,
        }
    }

    /// Changes the capacities. The next [`SwitchMaxMin::solve`] starts from scratch.
    pub fn set_capacities(&mut self, send: &[f64], recv: &[f64]) {
        self.capacities.clear();
        self.capacities.extend(send.iter().chain(recv));
        self.needs_full_solve = true;
    }

    /// The link that limits the flows between two ports. At least one flow between them is required.
    pub fn bottleneck_link(&self, src: usize, dst: usize) -> usize {
        let (send, recv) = (src, self.ports + dst);
        if self.order_positions[send] < self.order_positions[recv] { send } else { recv }
    }

    /// The rate of a flow that is limited by `link`, in bytes per second.
    pub fn level(&self, link: usize) -> f64 {
        self.levels[link]
    }

    /// The levels of all links; infinite for a link that limits no flow.
    pub fn levels(&self) -> &[f64] {
        &self.levels
    }

    /// Adds a flow. The next [`SwitchMaxMin::solve`] starts from scratch.
    pub fn add_flow(&mut self, src: usize, dst: usize) {
        self.change_count(src, dst, 1.0);
        self.needs_full_solve = true;
    }

    /// Removes a flow.
    pub fn remove_flow(&mut self, src: usize, dst: usize) {
        let link = self.bottleneck_link(src, dst);
        self.change_count(src, dst, -1.0);
        self.bottlenecked_flows[link] -= 1.0;
        self.first_dirty = self.first_dirty.min(self.order_positions[link] as usize);
    }

    fn change_count(&mut self, src: usize, dst: usize, change: f32) {
        self.flows_by_sender[src * self.ports + dst] += change;
        self.flows_by_receiver[dst * self.ports + src] += change;
        self.flow_counts[src] += f64::from(change);
        self.flow_counts[self.ports + dst] += f64::from(change);
    }

    fn flows_between(&self, a: usize, b: usize) -> f64 {
        let p = self.ports;
        f64::from(match (a < p, b < p) {
            (true, false) => self.flows_by_sender[a * p + b - p],
            (false, true) => self.flows_by_sender[b * p + a - p],
            _ => 0.0,
        })
    }

    /// The capacity of a link that the flows fixed at links before it use. O(ports).
    fn used_by_earlier_links(&self, link: usize) -> f64 {
        let p = self.ports;
        let (flows, before) = if link < p {
            (&self.flows_by_sender[link * p..(link + 1) * p], &self.earlier_levels[p..])
        } else {
            (&self.flows_by_receiver[(link - p) * p..(link - p + 1) * p], &self.earlier_levels[..p])
        };
        // Eight independent sums, so that additions do not wait for each other.
        let mut sums = [0.0f64; 8];
        let (flows8, before8) = (flows.chunks_exact(8), before.chunks_exact(8));
        let rest: f64 =
            flows8.remainder().iter().zip(before8.remainder()).map(|(n, l)| f64::from(*n) * l).sum();
        for (flows, before) in flows8.zip(before8) {
            for lane in 0..8 {
                sums[lane] += f64::from(flows[lane]) * before[lane];
            }
        }
        sums.iter().sum::<f64>() + rest
    }

    /// Updates the levels. `changed_pairs` receives the pairs of ports whose bottleneck changed to the other port. Returns
    /// true if the solver started from scratch; any bottleneck may have changed then, and `changed_pairs` does not list the
    /// changes.
    ///
    /// From scratch: O(links^2). After flows ended: O(ports) for each link from the first change on.
    pub fn solve(&mut self, changed_pairs: &mut Vec<(usize, usize)>) -> bool {
        if self.needs_full_solve {
            self.solve_from_scratch();
            self.needs_full_solve = false;
            self.first_dirty = usize::MAX;
            return true;
        }
        if self.first_dirty < self.fill_order.len() {
            self.drop_idle_links();
            self.update_levels(self.first_dirty, changed_pairs);
        }
        self.first_dirty = usize::MAX;
        false
    }

    /// Removes links without flows from the order.
    fn drop_idle_links(&mut self) {
        let mut kept = self.first_dirty;
        for at in self.first_dirty..self.fill_order.len() {
            let link = self.fill_order[at];
            if self.flow_counts[link as usize] > 0.0 {
                self.fill_order[kept] = link;
                self.order_positions[link as usize] = kept as u32;
                kept += 1;
            } else {
                self.order_positions[link as usize] = NOT_IN_ORDER;
                self.levels[link as usize] = f64::INFINITY;
                self.earlier_levels[link as usize] = 0.0;
            }
        }
        self.fill_order.truncate(kept);
    }

    fn update_levels(&mut self, first: usize, moved: &mut Vec<(usize, usize)>) {
        for &link in &self.fill_order[first..] {
            self.earlier_levels[link as usize] = 0.0;
        }
        let mut first_slack = self.fill_order.len();
        let mut at = first;
        while at < self.fill_order.len() {
            let link = self.fill_order[at] as usize;
            let mut left = self.capacities[link] - self.used_by_earlier_links(link);
            let previous_level = |levels: &[f64], order: &[u32], at: usize| {
                if at == 0 { 0.0 } else { levels[order[at - 1] as usize] }
            };
            if self.bottlenecked_flows[link] == 0.0 {
                if left >= -1e-9 * self.capacities[link] {
                    self.levels[link] = f64::INFINITY;
                    if at >= first_slack {
                        at += 1;
                    } else {
                        // The link limits no flow: move it to the end, behind the links that do.
                        first_slack -= 1;
                        self.fill_order[at..].rotate_left(1);
                        for place in at..self.fill_order.len() {
                            self.order_positions[self.fill_order[place] as usize] = place as u32;
                        }
                    }
                    continue;
                }
                if at >= first_slack {
                    // The load exceeds the capacity after all, so the link limits flows.
                    first_slack += 1;
                    self.fill_order[first_slack - 1..=at].rotate_right(1);
                    at = first_slack - 1;
                    for place in at..self.fill_order.len() {
                        self.order_positions[self.fill_order[place] as usize] = place as u32;
                    }
                }
            }
            let share = |left: f64, flows: f64| if flows > 0.0 { left / flows } else { f64::NEG_INFINITY };
            let mut level = share(left, self.bottlenecked_flows[link]);
            while at > 0 && level < previous_level(&self.levels, &self.fill_order, at) * (1.0 - 1e-13) {
                let other = self.fill_order[at - 1] as usize;
                let flows = self.flows_between(link, other);
                left += flows * self.levels[other];
                self.earlier_levels[other] = 0.0;
                if flows > 0.0 {
                    self.bottlenecked_flows[link] += flows;
                    self.bottlenecked_flows[other] -= flows;
                    let p = self.ports;
                    moved.push(if link < p { (link, other - p) } else { (other, link - p) });
                }
                self.fill_order.swap(at - 1, at);
                self.order_positions[link] = at as u32 - 1;
                self.order_positions[other] = at as u32;
                at -= 1;
                level = share(left, self.bottlenecked_flows[link]);
            }
            self.levels[link] = level.max(0.0);
            self.earlier_levels[link] = self.levels[link];
            at += 1;
        }
    }

    /// Solves from scratch by progressive filling.
    fn solve_from_scratch(&mut self) {
        let p = self.ports;
        self.fill_order.clear();
        self.order_positions.fill(NOT_IN_ORDER);
        self.earlier_levels.fill(0.0);
        self.levels.fill(f64::INFINITY);
        self.bottlenecked_flows.copy_from_slice(&self.flow_counts);
        let mut left = self.capacities.clone();
        let mut open: Vec<u32> = (0..2 * p as u32).filter(|&l| self.flow_counts[l as usize] > 0.0).collect();
        while !open.is_empty() {
            let share = |l: u32| {
                let flows = self.bottlenecked_flows[l as usize];
                if flows > 0.0 { (left[l as usize] / flows).max(0.0) } else { f64::INFINITY }
            };
            let mut best = (f64::INFINITY, 0);
            for (at, &link) in open.iter().enumerate() {
                let level = share(link);
                if level < best.0 {
                    best = (level, at);
                }
            }
            let (level, at) = best;
            let link = open.swap_remove(at) as usize;
            self.order_positions[link] = self.fill_order.len() as u32;
            self.fill_order.push(link as u32);
            self.levels[link] = level;
            if level.is_infinite() {
                continue;
            }
            self.earlier_levels[link] = level;
            let (row, others) = if link < p {
                (&self.flows_by_sender[link * p..(link + 1) * p], p..2 * p)
            } else {
                (&self.flows_by_receiver[(link - p) * p..(link - p + 1) * p], 0..p)
            };
            for (&flows, other) in row.iter().zip(others) {
                if flows > 0.0 && self.order_positions[other] == NOT_IN_ORDER {
                    left[other] -= f64::from(flows) * level;
                    self.bottlenecked_flows[other] -= f64::from(flows);
                }
            }
        }
    }
}
