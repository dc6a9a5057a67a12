//! Max-min fair rates: the definition of what per-flow TCP shares are taken to be.
//!
//! An allocation is max-min fair if every flow has a bottleneck: a link with nothing left on which no other flow has
//! more. [`max_min`] finds it for classes of flows over any links by progressive filling. [`Levels`] keeps it
//! for one big switch while flows end, where a change of one flow costs far less than a solution from the start.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::order::Key;

/// Flows that cross the same links: `flows` of them, each over all of `links`.
#[derive(Debug, Clone, Copy)]
pub struct Class<'a> {
    /// Links, as positions in the list of capacities; each once. A flow over no links has no limit.
    pub links: &'a [u32],
    /// How many flows.
    pub flows: f64,
}

/// The max-min fair rate of a flow of each class. O(links of all classes + links log links).
///
/// Capacities are not negative, numbers of flows above zero; otherwise the rates mean nothing.
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
    // A link's share only grows as flows are fixed at smaller shares elsewhere, so an old entry is a lower bound.
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

/// The place of a link that carries nothing.
const NONE: u32 = u32::MAX;

/// Max-min shares on one big switch, kept while flows come and go.
///
/// Links are the sending sides of all ports and then their receiving sides. Every link has a level: the rate of the flows
/// whose bottleneck it is; a flow's rate is the lower level of its two links. Progressive filling fixes links in the order
/// of their levels, and the level of a link follows from those before it. So after a flow ends, the links before its own
/// bottleneck keep their levels; the others are computed again in the order they had. Where a level comes out
/// below the one before, the two change places. If all levels rise along the order, they are the solution:
/// every flow is fixed at a link with nothing left, on which no flow has more.
#[derive(Debug, Clone)]
pub struct Levels {
    ports: usize,
    capacities: Vec<f64>,
    /// Flows from port to port, by sender and by receiver.
    sent: Vec<f32>,
    received: Vec<f32>,
    total: Vec<f64>,
    /// Flows whose bottleneck a link is.
    fixed_here: Vec<f64>,
    levels: Vec<f64>,
    /// Links with flows, in the order in which they are fixed. Those that limit nobody come last.
    order: Vec<u32>,
    place: Vec<u32>,
    /// The levels of the links before the one at work, 0 for the others.
    before: Vec<f64>,
    dirty_from: usize,
    cold: bool,
}

impl Levels {
    /// The most ports that the table of flows between ports is made for.
    pub const MAX_PORTS: usize = 4096;

    /// An idle switch.
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

    /// Changes the capacities.
    pub fn set_capacities(&mut self, send: &[f64], recv: &[f64]) {
        self.capacities.clear();
        self.capacities.extend(send.iter().chain(recv));
        self.cold = true;
    }

    /// The link that limits the flows between two ports, which has to have some.
    pub fn bottleneck(&self, src: usize, dst: usize) -> usize {
        let (send, recv) = (src, self.ports + dst);
        if self.place[send] < self.place[recv] { send } else { recv }
    }

    /// The rate of a flow that is limited by `link`, in bytes per second.
    pub fn level(&self, link: usize) -> f64 {
        self.levels[link]
    }

    /// The levels of all links; infinite where nobody is limited.
    pub fn levels(&self) -> &[f64] {
        &self.levels
    }

    /// A flow starts.
    pub fn add(&mut self, src: usize, dst: usize) {
        self.count(src, dst, 1.0);
        self.cold = true;
    }

    /// A flow ends.
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

    /// What the links before it take of a link. O(ports).
    fn taken(&self, link: usize) -> f64 {
        let p = self.ports;
        let (flows, before) = if link < p {
            (&self.sent[link * p..(link + 1) * p], &self.before[p..])
        } else {
            (&self.received[(link - p) * p..(link - p + 1) * p], &self.before[..p])
        };
        // Eight sums, so that the additions need not wait for each other.
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

    /// Brings the levels up to date. `moved` gets the pairs of ports whose bottleneck is the other port now; the answer
    /// is whether everything was solved from the start, and so any bottleneck may be another.
    ///
    /// From the start: O(links^2). After flows ended: O(ports) for each link from the first that changes on.
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

    /// Takes links without flows out of the order.
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
                        // It limits nobody: to the end, behind those that do.
                        slack -= 1;
                        self.order[at..].rotate_left(1);
                        for place in at..self.order.len() {
                            self.place[self.order[place] as usize] = place as u32;
                        }
                    }
                    continue;
                }
                if at >= slack {
                    // More arrives than it carries after all.
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

    /// Progressive filling.
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
