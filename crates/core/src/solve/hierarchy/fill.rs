//! Divides residual capacity above the lower bounds: all rates rise by the same factor until a stop limits them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Count;
use super::bounds::{Moved, Rules};
use super::divide::{Divider, Limits};
use super::network::Network;
use crate::order::Key;

/// Factors with a smaller relative difference count as equal. It is above rounding, so that repairs terminate.
const SAME: f64 = 1e-13;
/// The factors by which rates rise. A *stop* limits them: a link or, for a service without excess weight, its guarantee on
/// a link (a *cap*). Stops are numbered: links first, then caps by cell.
#[derive(Debug, Clone)]
pub(super) struct Fill {
    /// By link, the factor at which it is full; infinite if other stops limit all of its flows first.
    links: Vec<f64>,
    /// By cell, the factor at which the service reaches its guarantee; empty if all services have excess weight.
    caps: Vec<f64>,
    /// By cell, the lower of its link's and its cap's factor; followed by infinity.
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

/// State of a cell during a sweep.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    /// The sum of the lower bounds of flows that have not stopped: the increase of their rates for each unit of the factor.
    weight: f64,
    /// The sum of the rates of stopped flows.
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

    /// By cell, the factor at which its flows stop; followed by infinity.
    pub fn levels(&self) -> &[f64] {
        &self.levels
    }

    /// Sets all factors to 1.
    pub fn hold(&mut self) {
        if !self.held {
            self.links.fill(1.0);
            // The links stop all flows; a cap is computed when its link moves.
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

    /// Computes all factors at `links` from scratch; their flows must cross no other links. The stop with the lowest factor
    /// is fixed first. Stopping flows below another stop only raises its factor, so an old factor is a lower bound.
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
            // If the weights that remain are rounding, any lower bound suffices.
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
            // Estimates contain rounding errors; the order is that of the exact factors.
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

    /// Stops all open flows at a stop, at `level` or at their demand.
    fn stop_open(&mut self, network: &Network, low: &[f64], stop: usize, level: f64, open: &mut [Open]) {
        for index in cells_at(network, stop) {
            // A cap that was reached earlier.
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

    /// The factor at which a stop is reached if the other factors stay; infinite if these stop all of its flows first.
    /// `guess` is a number near it, or infinite.
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

    /// Marks the stops that depend on a cell whose lower bounds or flows changed; `least` is the minimum of the old and new
    /// bounds.
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

    /// Recomputes marked factors from the present ones until none moves. Max-min rates are the only ones at which every
    /// flow has a bottleneck, so the result equals that of a sweep. Returns false if it stops after `most` visits.
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

/// The cells whose flows a stop limits.
fn cells_at(network: &Network, stop: usize) -> std::ops::Range<usize> {
    match stop.checked_sub(network.links) {
        None => network.cells_of(stop),
        Some(cell) => cell..cell + 1,
    }
}

/// The capacity of a stop: of a link, or a guarantee.
fn room(network: &Network, rules: &Rules<'_>, stop: usize) -> f64 {
    match stop.checked_sub(network.links) {
        None => rules.capacities[stop],
        Some(cell) => rules.guarantees[cell],
    }
}
