//! What lower bounds leave of links: all rates rise by the same factor until something stops them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Count;
use super::bounds::{Moved, Rules};
use super::divide::{Divider, Limits};
use super::network::Network;
use crate::order::Key;

/// Factors that differ by less than this part are the same: more than rounding, so that repairs end.
const SAME: f64 = 1e-13;
/// By how much rates may rise. Something that stops them is a link or, where a service gets no excess, its guarantee on
/// a link: a *cap*. Stops are numbered: links first, then caps by cell.
#[derive(Debug, Clone)]
pub(super) struct Fill {
    /// By link, the factor at which it is full; infinity if other things stop all of its flows before.
    links: Vec<f64>,
    /// By cell, the factor at which the service has its guarantee; empty if all services get excess.
    caps: Vec<f64>,
    /// By cell, the lower of its link's and its cap's factor; and infinity.
    levels: Vec<f64>,
    /// Whether all factors are 1.
    held: bool,
    divider: Divider,
    /// By cell, for sweeps.
    open: Vec<Open>,
    queue: Vec<u32>,
    queued: Vec<bool>,
    pub count: Count,
}

/// Of a cell, while factors are found.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    /// What it takes more for each one that the factor rises.
    weight: f64,
    /// What stopped flows take.
    gone: f64,
    /// Members that have not stopped.
    members: u32,
}

impl Open {
    fn stop(&mut self, weight: f64, rate: f64) {
        self.weight -= weight;
        self.gone += rate;
        self.members -= 1;
    }
}

impl Fill {
    pub fn new(links: usize, cells: usize, capped: bool) -> Fill {
        let mut levels = vec![1.0; cells + 1];
        levels[cells] = f64::INFINITY;
        Fill {
            links: vec![1.0; links],
            caps: vec![f64::INFINITY; if capped { cells } else { 0 }],
            levels,
            held: true,
            divider: Divider::default(),
            open: vec![Open::default(); cells],
            queue: Vec::new(),
            queued: vec![false; links + if capped { cells } else { 0 }],
            count: Count::default(),
        }
    }

    /// By cell, the factor that stops its flows, and infinity.
    pub fn levels(&self) -> &[f64] {
        &self.levels
    }

    /// Nothing rises.
    pub fn hold(&mut self) {
        if !self.held {
            self.links.fill(1.0);
            // Links hold them; a cap is found when its link moves.
            self.caps.fill(f64::INFINITY);
            let cells = self.levels.len() - 1;
            self.levels[..cells].fill(1.0);
            self.held = true;
        }
        self.clear_queue();
    }

    fn clear_queue(&mut self) {
        self.queue.drain(..).for_each(|stop| self.queued[stop as usize] = false);
    }

    /// Finds all factors at `links` from the start; their flows cross no others. The stop with the lowest factor is the first to be fixed. Factors of others only rise
    /// as flows are stopped below them, so an old one is a lower bound.
    pub fn sweep(&mut self, network: &Network, rules: &Rules<'_>, low: &[f64], links: &[u32]) {
        let before = self.count.visits;
        self.held = false;
        self.clear_queue();
        let cells = || links.iter().flat_map(|&link| network.cells_of(link as usize));
        links.iter().for_each(|&link| self.links[link as usize] = f64::INFINITY);
        for cell in cells() {
            self.levels[cell] = f64::INFINITY;
            if let Some(cap) = self.caps.get_mut(cell) {
                *cap = f64::INFINITY;
            }
        }
        let mut open = std::mem::take(&mut self.open);
        cells().for_each(|index| open[index] = Open::default());
        for index in cells().filter(|&index| network.cells[index].flows > 0) {
            let cell = &network.cells[index];
            self.count.visits += cell.members.len() as u64;
            let own = low[index];
            for (place, &member) in cell.members.iter().enumerate() {
                let assured = network.least_elsewhere(index, member, low).min(own).min(cell.demand(place));
                open[index].weight += f64::from(member.flows) * assured;
            }
            open[index].members = cell.members.iter().filter(|member| member.flows > 0).count() as u32;
        }
        let mut heap: BinaryHeap<Reverse<(Key, u32)>> = BinaryHeap::new();
        let estimate = |stop: usize, open: &[Open]| {
            let mut all = Open::default();
            for cell in &open[cells_at(network, stop)] {
                all.weight += cell.weight;
                all.gone += cell.gone;
                all.members += cell.members;
            }
            // Where only rounding is left of the weights, some bound will do.
            let level = (room(network, rules, stop) - all.gone) / all.weight.max(f64::MIN_POSITIVE);
            if all.members > 0 { level.clamp(0.0, f64::MAX) } else { f64::INFINITY }
        };
        let capped = |cell: &usize| rules.shares.excess(cell % network.services) == 0.0;
        let caps = cells().filter(capped).map(|cell| network.links + cell);
        for stop in links.iter().map(|&link| link as usize).chain(caps) {
            let key = estimate(stop, &open);
            if key.is_finite() {
                heap.push(Reverse((Key(key), stop as u32)));
            }
        }
        while let Some(Reverse((Key(key), stop))) = heap.pop() {
            let stop = stop as usize;
            let now = estimate(stop, &open);
            if now > key * (1.0 + SAME) {
                if now.is_finite() {
                    heap.push(Reverse((Key(now), stop as u32)));
                }
                continue;
            }
            let level = self.evaluate(network, rules, low, stop, key);
            // Estimates are off by rounding; the order is that of the factors themselves.
            if heap.peek().is_some_and(|Reverse((next, _))| level > next.0) {
                if level.is_finite() {
                    heap.push(Reverse((Key(level), stop as u32)));
                }
            } else if level.is_finite() {
                self.stop_open(network, low, stop, level, &mut open);
                self.set(network, stop, level);
            }
        }
        self.open = open;
        self.count.swept += self.count.visits - before;
    }

    /// All open flows at a stop get `level`, or their demand.
    fn stop_open(&mut self, network: &Network, low: &[f64], stop: usize, level: f64, open: &mut [Open]) {
        for index in cells_at(network, stop) {
            // A cap that was reached before.
            if self.levels[index].is_finite() {
                continue;
            }
            let cell = &network.cells[index];
            self.count.visits += cell.members.len() as u64;
            for (place, &member) in cell.members.iter().enumerate() {
                if member.flows == 0 || network.least_elsewhere(index, member, &self.levels).is_finite() {
                    continue;
                }
                let demand = cell.demand(place);
                let assured = network.least_elsewhere(index, member, low).min(low[index]).min(demand);
                let (weight, rate) = (f64::from(member.flows) * assured, f64::from(member.flows) * demand);
                let rate = rate.min(weight * level);
                network.for_others(index, member, |other| {
                    open[other].stop(weight, rate);
                });
                open[index].stop(weight, rate);
            }
        }
    }

    /// The factor at which a stop is reached if others stand; infinity if they stop all of its flows before. `guess` is a
    /// number near it, or infinite.
    fn evaluate(
        &mut self,
        network: &Network,
        rules: &Rules<'_>,
        low: &[f64],
        stop: usize,
        guess: f64,
    ) -> f64 {
        let mut divider = std::mem::take(&mut self.divider);
        divider.clear();
        let mut all = Limits::default();
        for index in cells_at(network, stop) {
            let cell = &network.cells[index];
            if cell.flows == 0 {
                continue;
            }
            self.count.visits += cell.members.len() as u64;
            let own = low[index];
            let beside = if stop >= network.links {
                self.links[network.link_of(index)]
            } else {
                self.caps.get(index).copied().unwrap_or(f64::INFINITY)
            };
            let assured = |member| network.least_elsewhere(index, member, low).min(own);
            let level = |member| network.least_elsewhere(index, member, &self.levels).min(beside);
            let gathered = if cell.elastic() {
                let limits = cell
                    .members
                    .iter()
                    .map(|&member| (level(member), f64::from(member.flows) * assured(member)));
                divider.gather(limits)
            } else {
                let limits = cell.members.iter().enumerate().map(|(place, &member)| {
                    let demand = cell.demand(place);
                    let assured = assured(member).min(demand);
                    (level(member).min(demand / assured), f64::from(member.flows) * assured)
                });
                divider.gather(limits)
            };
            all = all.and(gathered);
        }
        let room = room(network, rules, stop);
        let level = if all.wanted <= room {
            f64::INFINITY
        } else {
            divider.offer(&all, room, guess, &mut self.count.limits)
        };
        self.divider = divider;
        level
    }

    fn set(&mut self, network: &Network, stop: usize, level: f64) {
        if stop < network.links {
            self.links[stop] = level;
        } else {
            self.caps[stop - network.links] = level;
        }
        for cell in cells_at(network, stop) {
            let cap = self.caps.get(cell).copied().unwrap_or(f64::INFINITY);
            self.levels[cell] = cap.min(self.links[network.link_of(cell)]);
        }
    }

    /// Assured rates moved at a cell, or flows came or went; they are `least` at least, now or before.
    pub fn mark(&mut self, network: &Network, low: &[f64], (cell, least): Moved) {
        let cell = cell as usize;
        self.mark_cell(network, cell);
        self.count.marks += network.cells[cell].members.len() as u64;
        for &member in &network.cells[cell].members {
            network.for_others(cell, member, |other| {
                if low[other] > least {
                    self.mark_cell(network, other);
                }
            });
        }
    }

    pub fn mark_link(&mut self, link: usize) {
        if !self.queued[link] {
            self.queued[link] = true;
            self.queue.push(link as u32);
        }
    }

    pub fn mark_cell(&mut self, network: &Network, cell: usize) {
        self.mark_link(network.link_of(cell));
        if !self.caps.is_empty() {
            self.mark_link(network.links + cell);
        }
    }

    /// Makes marked factors anew from those in force until none moves. Max-min rates are the only ones where every flow has
    /// a bottleneck, so these are what a sweep finds. False if it gives up after so many visits.
    pub fn repair(&mut self, network: &Network, rules: &Rules<'_>, low: &[f64], most: u64) -> bool {
        self.held = false;
        let end = self.count.visits + most;
        let mut todo = Vec::new();
        while !self.queue.is_empty() {
            std::mem::swap(&mut todo, &mut self.queue);
            todo.sort_unstable();
            for stop in todo.drain(..) {
                let stop = stop as usize;
                self.queued[stop] = false;
                if self.count.visits > end {
                    continue;
                }
                self.renew(network, rules, low, stop);
            }
            if self.count.visits > end {
                return false;
            }
        }
        true
    }

    fn renew(&mut self, network: &Network, rules: &Rules<'_>, low: &[f64], stop: usize) {
        if stop >= network.links && rules.shares.excess((stop - network.links) % network.services) > 0.0 {
            return;
        }
        let old = match stop.checked_sub(network.links) {
            None => self.links[stop],
            Some(cell) => self.caps[cell],
        };
        let new = self.evaluate(network, rules, low, stop, old);
        if new == old || (old.is_finite() && (new - old).abs() <= SAME * old) {
            return;
        }
        self.set(network, stop, new);
        let least = new.min(old);
        for cell in cells_at(network, stop) {
            self.count.marks += network.cells[cell].members.len() as u64;
            for &member in &network.cells[cell].members {
                network.for_others(cell, member, |other| {
                    if self.levels[other] >= least {
                        self.mark_cell(network, other);
                    }
                });
            }
            if !self.caps.is_empty() {
                self.mark_cell(network, cell);
            }
        }
    }
}

/// The cells whose flows a stop stops.
fn cells_at(network: &Network, stop: usize) -> std::ops::Range<usize> {
    match stop.checked_sub(network.links) {
        None => network.cells_of(stop),
        Some(cell) => cell..cell + 1,
    }
}

/// What a stop lets through.
fn room(network: &Network, rules: &Rules<'_>, stop: usize) -> f64 {
    match stop.checked_sub(network.links) {
        None => rules.capacities[stop],
        Some(cell) => rules.guarantees[cell],
    }
}
