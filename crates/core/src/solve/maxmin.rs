//! Max-min fair rates, the model of how per-flow TCP shares links.
//!
//! An allocation is max-min fair if every flow has a bottleneck: a full link on which no other flow has a higher rate.
//! [`max_min`] computes the allocation for classes of flows over any links by progressive filling. [`Levels`] maintains
//! it for one big switch while flows end; updating it after one flow costs far less than a solution from scratch.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::order::Key;

/// A class of flows that cross the same links.
#[derive(Debug, Clone, Copy)]
pub struct Class<'a> {
    /// Links, as indices into the capacities; each at most once. A flow over no links has no limit.
    pub links: &'a [u32],
    /// Number of flows.
    pub flows: f64,
}

/// The max-min fair rate of a flow of each class. O(links of all classes + links log links).
///
/// Capacities must be at least 0 and numbers of flows above 0; other values give meaningless rates.
pub fn max_min(capacities: &[f64], classes: &[Class<'_>]) -> Vec<f64> {
    let mut left = capacities.to_vec();
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
    let mut shares: BinaryHeap<Reverse<(Key, u32)>> = (0..capacities.len())
        .filter(|&link| unfixed[link] > 0.0)
        .map(|link| Reverse((Key(left[link] / unfixed[link]), link as u32)))
        .collect();
    let mut open: Vec<u32> = starts.windows(2).map(|w| w[1] - w[0]).collect();
    while let Some(Reverse((Key(share), link))) = shares.pop() {
        let l = link as usize;
        if open[l] == 0 {
            continue;
        }
        let now = (left[l] / unfixed[l]).max(0.0);
        if now > share {
            shares.push(Reverse((Key(now), link)));
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
                left[o] -= now * class.flows;
                unfixed[o] -= class.flows;
                open[o] -= 1;
            }
        }
    }
    rates
}

/// The place of a link that carries no flows.
const NONE: u32 = u32::MAX;

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
pub struct Levels {
    ports: usize,
    capacities: Vec<f64>,
    /// Number of flows from port to port: `sent` by sender, `received` by receiver.
    sent: Vec<f32>,
    received: Vec<f32>,
    total: Vec<f64>,
    /// Number of flows whose bottleneck is the link.
    fixed_here: Vec<f64>,
    levels: Vec<f64>,
    /// Links with flows, in the order in which they are fixed. Links that limit no flow come last.
    order: Vec<u32>,
    place: Vec<u32>,
    /// Levels of the links before the current one; 0 for the others.
    before: Vec<f64>,
    dirty_from: usize,
    cold: bool,
}

impl Levels {
    /// The maximum number of ports. Memory is O(ports^2); [`Levels::new`] does not check the number.
    pub const MAX_PORTS: usize = 4096;

    /// A switch without flows. `send` and `recv` are the capacities of the ports, in bytes per second.
    pub fn new(send: &[f64], recv: &[f64]) -> Levels {
        let (ports, links) = (send.len(), 2 * send.len());
        Levels {
            ports,
            capacities: send.iter().chain(recv).copied().collect(),
            sent: vec![0.0; ports * ports],
            received: vec![0.0; ports * ports],
            total: vec![0.0; links],
            fixed_here: vec![0.0; links],
            levels: vec![f64::INFINITY; links],
            order: Vec::new(),
            place: vec![NONE; links],
            before: vec![0.0; links],
            dirty_from: usize::MAX,
            cold: false,
        }
    }

    /// Changes the capacities. The next [`Levels::solve`] starts from scratch.
    pub fn set_capacities(&mut self, send: &[f64], recv: &[f64]) {
        self.capacities.clear();
        self.capacities.extend(send.iter().chain(recv));
        self.cold = true;
    }

    /// The link that limits the flows between two ports. At least one flow between them is required.
    pub fn bottleneck(&self, src: usize, dst: usize) -> usize {
        let (send, recv) = (src, self.ports + dst);
        if self.place[send] < self.place[recv] { send } else { recv }
    }

    /// The rate of a flow that is limited by `link`, in bytes per second.
    pub fn level(&self, link: usize) -> f64 {
        self.levels[link]
    }

    /// The levels of all links; infinite for a link that limits no flow.
    pub fn levels(&self) -> &[f64] {
        &self.levels
    }

    /// Adds a flow. The next [`Levels::solve`] starts from scratch.
    pub fn add(&mut self, src: usize, dst: usize) {
        self.count(src, dst, 1.0);
        self.cold = true;
    }

    /// Removes a flow.
    pub fn remove(&mut self, src: usize, dst: usize) {
        let link = self.bottleneck(src, dst);
        self.count(src, dst, -1.0);
        self.fixed_here[link] -= 1.0;
        self.dirty_from = self.dirty_from.min(self.place[link] as usize);
    }

    fn count(&mut self, src: usize, dst: usize, change: f32) {
        self.sent[src * self.ports + dst] += change;
        self.received[dst * self.ports + src] += change;
        self.total[src] += f64::from(change);
        self.total[self.ports + dst] += f64::from(change);
    }

    fn between(&self, a: usize, b: usize) -> f64 {
        let p = self.ports;
        f64::from(match (a < p, b < p) {
            (true, false) => self.sent[a * p + b - p],
            (false, true) => self.sent[b * p + a - p],
            _ => 0.0,
        })
    }

    /// The capacity of a link that the flows fixed at links before it use. O(ports).
    fn taken(&self, link: usize) -> f64 {
        let p = self.ports;
        let (flows, before) = if link < p {
            (&self.sent[link * p..(link + 1) * p], &self.before[p..])
        } else {
            (&self.received[(link - p) * p..(link - p + 1) * p], &self.before[..p])
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

    /// Updates the levels. `moved` receives the pairs of ports whose bottleneck changed to the other port. Returns true if
    /// the solver started from scratch; any bottleneck may have changed then, and `moved` does not list the changes.
    ///
    /// From scratch: O(links^2). After flows ended: O(ports) for each link from the first change on.
    pub fn solve(&mut self, moved: &mut Vec<(usize, usize)>) -> bool {
        if self.cold {
            self.solve_cold();
            self.cold = false;
            self.dirty_from = usize::MAX;
            return true;
        }
        if self.dirty_from < self.order.len() {
            self.drop_idle();
            self.solve_from(self.dirty_from, moved);
        }
        self.dirty_from = usize::MAX;
        false
    }

    /// Removes links without flows from the order.
    fn drop_idle(&mut self) {
        let mut kept = self.dirty_from;
        for at in self.dirty_from..self.order.len() {
            let link = self.order[at];
            if self.total[link as usize] > 0.0 {
                self.order[kept] = link;
                self.place[link as usize] = kept as u32;
                kept += 1;
            } else {
                self.place[link as usize] = NONE;
                self.levels[link as usize] = f64::INFINITY;
                self.before[link as usize] = 0.0;
            }
        }
        self.order.truncate(kept);
    }

    fn solve_from(&mut self, first: usize, moved: &mut Vec<(usize, usize)>) {
        for &link in &self.order[first..] {
            self.before[link as usize] = 0.0;
        }
        let mut slack = self.order.len();
        let mut at = first;
        while at < self.order.len() {
            let link = self.order[at] as usize;
            let mut left = self.capacities[link] - self.taken(link);
            let floor = |levels: &[f64], order: &[u32], at: usize| {
                if at == 0 { 0.0 } else { levels[order[at - 1] as usize] }
            };
            if self.fixed_here[link] == 0.0 {
                if left >= -1e-9 * self.capacities[link] {
                    self.levels[link] = f64::INFINITY;
                    if at >= slack {
                        at += 1;
                    } else {
                        // The link limits no flow: move it to the end, behind the links that do.
                        slack -= 1;
                        self.order[at..].rotate_left(1);
                        for place in at..self.order.len() {
                            self.place[self.order[place] as usize] = place as u32;
                        }
                    }
                    continue;
                }
                if at >= slack {
                    // The load exceeds the capacity after all, so the link limits flows.
                    slack += 1;
                    self.order[slack - 1..=at].rotate_right(1);
                    at = slack - 1;
                    for place in at..self.order.len() {
                        self.place[self.order[place] as usize] = place as u32;
                    }
                }
            }
            let share = |left: f64, flows: f64| if flows > 0.0 { left / flows } else { f64::NEG_INFINITY };
            let mut level = share(left, self.fixed_here[link]);
            while at > 0 && level < floor(&self.levels, &self.order, at) * (1.0 - 1e-13) {
                let other = self.order[at - 1] as usize;
                let flows = self.between(link, other);
                left += flows * self.levels[other];
                self.before[other] = 0.0;
                if flows > 0.0 {
                    self.fixed_here[link] += flows;
                    self.fixed_here[other] -= flows;
                    let p = self.ports;
                    moved.push(if link < p { (link, other - p) } else { (other, link - p) });
                }
                self.order.swap(at - 1, at);
                self.place[link] = at as u32 - 1;
                self.place[other] = at as u32;
                at -= 1;
                level = share(left, self.fixed_here[link]);
            }
            self.levels[link] = level.max(0.0);
            self.before[link] = self.levels[link];
            at += 1;
        }
    }

    /// Solves from scratch by progressive filling.
    fn solve_cold(&mut self) {
        let p = self.ports;
        self.order.clear();
        self.place.fill(NONE);
        self.before.fill(0.0);
        self.levels.fill(f64::INFINITY);
        self.fixed_here.copy_from_slice(&self.total);
        let mut left = self.capacities.clone();
        let mut open: Vec<u32> = (0..2 * p as u32).filter(|&l| self.total[l as usize] > 0.0).collect();
        while !open.is_empty() {
            let share = |l: u32| {
                let flows = self.fixed_here[l as usize];
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
            self.place[link] = self.order.len() as u32;
            self.order.push(link as u32);
            self.levels[link] = level;
            if level.is_infinite() {
                continue;
            }
            self.before[link] = level;
            let (row, others) = if link < p {
                (&self.sent[link * p..(link + 1) * p], p..2 * p)
            } else {
                (&self.received[(link - p) * p..(link - p + 1) * p], 0..p)
            };
            for (&flows, other) in row.iter().zip(others) {
                if flows > 0.0 && self.place[other] == NONE {
                    left[other] -= f64::from(flows) * level;
                    self.fixed_here[other] -= f64::from(flows);
                }
            }
        }
    }
}
