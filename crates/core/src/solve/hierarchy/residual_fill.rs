//! Divides residual capacity above the lower bounds: all rates rise by the same factor until a stop limits them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::WorkCounters;
use super::bounds::{ChangedOffer, SolverInputs};
use super::class_network::ClassNetwork;
use super::link_division::{FlowLimits, LinkDivider};
use crate::ordered_f64::OrderedF64;
use crate::rounding;

/// The factors by which rates rise. A *stop* limits them: a link or, for a service without excess weight, its guarantee on
/// a link (a *cap*). Stops are numbered: links first, then caps by cell.
#[derive(Debug, Clone)]
pub(super) struct ResidualFill {
    /// By link, the factor at which it is full; infinite if other stops limit all of its flows first.
    link_factors: Vec<f64>,
    /// By cell, the factor at which the service reaches its guarantee; empty if all services have excess weight.
    cap_factors: Vec<f64>,
    /// By cell, the lower of its link's and its cap's factor; followed by infinity.
    cell_factors: Vec<f64>,
    /// Whether all factors are 1.
    all_factors_one: bool,
    divider: LinkDivider,
    /// By cell, for sweeps.
    open_cells: Vec<OpenCell>,
    marked_stops: Vec<u32>,
    is_stop_marked: Vec<bool>,
    pub counters: WorkCounters,
}

/// State of a cell during a sweep.
#[derive(Debug, Clone, Copy, Default)]
struct OpenCell {
    /// The sum of the lower bounds of flows that have not stopped: the increase of their rates for each unit of the factor.
    weight: f64,
    /// The sum of the rates of stopped flows.
    stopped_rate: f64,
    /// Members that have not stopped.
    open_members: u32,
}

impl OpenCell {
    fn stop_member(&mut self, weight: f64, rate: f64) {
        self.weight -= weight;
        self.stopped_rate += rate;
        self.open_members -= 1;
    }
}

impl ResidualFill {
    pub fn new(links: usize, cells: usize, capped: bool) -> ResidualFill {
        let mut levels = vec![1.0; cells + 1];
        levels[cells] = f64::INFINITY;
        ResidualFill {
            link_factors: vec![1.0; links],
            cap_factors: vec![f64::INFINITY; if capped { cells } else { 0 }],
            cell_factors: levels,
            all_factors_one: true,
            divider: LinkDivider::default(),
            open_cells: vec![OpenCell::default(); cells],
            marked_stops: Vec::new(),
            is_stop_marked: vec![false; links + if capped { cells } else { 0 }],
            counters: WorkCounters::default(),
        }
    }

    /// By cell, the factor at which its flows stop; followed by infinity.
    pub fn cell_factors(&self) -> &[f64] {
        &self.cell_factors
    }

    /// Sets all factors to 1.
    pub fn reset_factors(&mut self) {
        if !self.all_factors_one {
            self.link_factors.fill(1.0);
            // The links stop all flows; a cap is computed when its link moves.
            self.cap_factors.fill(f64::INFINITY);
            let cells = self.cell_factors.len() - 1;
            self.cell_factors[..cells].fill(1.0);
            self.all_factors_one = true;
        }
        self.clear_marks();
    }

    fn clear_marks(&mut self) {
        self.marked_stops.drain(..).for_each(|stop| self.is_stop_marked[stop as usize] = false);
    }

    /// Computes all factors at `links` from scratch; their flows must cross no other links. The stop with the lowest factor
    /// is fixed first. Stopping flows below another stop only raises its factor, so an old factor is a lower bound.
    pub fn recompute_factors(
        &mut self,
        network: &ClassNetwork,
        rules: &SolverInputs<'_>,
        low: &[f64],
        links: &[u32],
    ) {
        let before = self.counters.visits;
        self.all_factors_one = false;
        self.clear_marks();
        let cells = || links.iter().flat_map(|&link| network.cells_of_link(link as usize));
        links.iter().for_each(|&link| self.link_factors[link as usize] = f64::INFINITY);
        for cell in cells() {
            self.cell_factors[cell] = f64::INFINITY;
            if let Some(cap) = self.cap_factors.get_mut(cell) {
                *cap = f64::INFINITY;
            }
        }
        let mut open = std::mem::take(&mut self.open_cells);
        cells().for_each(|index| open[index] = OpenCell::default());
        for index in cells().filter(|&index| network.cells[index].flows > 0) {
            let cell = &network.cells[index];
            self.counters.visits += cell.members.len() as u64;
            let own_bound = low[index];
            for (place, &member) in cell.members.iter().enumerate() {
                let lower_bound =
                    network.min_over_other_cells(index, member, low).min(own_bound).min(cell.demand(place));
                open[index].weight += f64::from(member.flows) * lower_bound;
            }
            open[index].open_members = cell.members.iter().filter(|member| member.flows > 0).count() as u32;
        }
        let mut heap: BinaryHeap<Reverse<(OrderedF64, u32)>> = BinaryHeap::new();
        let estimate = |stop: usize, open: &[OpenCell]| {
            let mut total = OpenCell::default();
            for cell in &open[cells_of_stop(network, stop)] {
                total.weight += cell.weight;
                total.stopped_rate += cell.stopped_rate;
                total.open_members += cell.open_members;
            }
            // If the weights that remain are rounding, any lower bound suffices.
            let level = (stop_capacity(network, rules, stop) - total.stopped_rate)
                / total.weight.max(f64::MIN_POSITIVE);
            if total.open_members > 0 { level.clamp(0.0, f64::MAX) } else { f64::INFINITY }
        };
        let capped = |cell: &usize| rules.shares.excess_weight(cell % network.services) == 0.0;
        let caps = cells().filter(capped).map(|cell| network.links + cell);
        for stop in links.iter().map(|&link| link as usize).chain(caps) {
            let key = estimate(stop, &open);
            if key.is_finite() {
                heap.push(Reverse((OrderedF64(key), stop as u32)));
            }
        }
        while let Some(Reverse((OrderedF64(key), stop))) = heap.pop() {
            let stop = stop as usize;
            let now = estimate(stop, &open);
            if now > key * (1.0 + rounding::ORDER) {
                if now.is_finite() {
                    heap.push(Reverse((OrderedF64(now), stop as u32)));
                }
                continue;
            }
            let level = self.evaluate_stop(network, rules, low, stop, key);
            // Estimates contain rounding errors; the order is that of the exact factors.
            if heap.peek().is_some_and(|Reverse((next, _))| level > next.0) {
                if level.is_finite() {
                    heap.push(Reverse((OrderedF64(level), stop as u32)));
                }
            } else if level.is_finite() {
                self.stop_open_flows(network, low, stop, level, &mut open);
                self.set_factor(network, stop, level);
            }
        }
        self.open_cells = open;
        self.counters.sweep_visits += self.counters.visits - before;
    }

    /// Stops all open flows at a stop, at `level` or at their demand.
    fn stop_open_flows(
        &mut self,
        network: &ClassNetwork,
        low: &[f64],
        stop: usize,
        level: f64,
        open: &mut [OpenCell],
    ) {
        for index in cells_of_stop(network, stop) {
            // A cap that was reached earlier.
            if self.cell_factors[index].is_finite() {
                continue;
            }
            let cell = &network.cells[index];
            self.counters.visits += cell.members.len() as u64;
            for (place, &member) in cell.members.iter().enumerate() {
                if member.flows == 0
                    || network.min_over_other_cells(index, member, &self.cell_factors).is_finite()
                {
                    continue;
                }
                let demand = cell.demand(place);
                let lower_bound =
                    network.min_over_other_cells(index, member, low).min(low[index]).min(demand);
                let (weight, rate) =
                    (f64::from(member.flows) * lower_bound, f64::from(member.flows) * demand);
                let rate = rate.min(weight * level);
                network.visit_other_cells(index, member, |other| {
                    open[other].stop_member(weight, rate);
                });
                open[index].stop_member(weight, rate);
            }
        }
    }

    /// The factor at which a stop is reached if the other factors stay; infinite if these stop all of its flows first.
    /// `guess` is a number near it, or infinite.
    fn evaluate_stop(
        &mut self,
        network: &ClassNetwork,
        rules: &SolverInputs<'_>,
        low: &[f64],
        stop: usize,
        guess: f64,
    ) -> f64 {
        let mut divider = std::mem::take(&mut self.divider);
        divider.clear();
        let mut all = FlowLimits::default();
        for index in cells_of_stop(network, stop) {
            let cell = &network.cells[index];
            if cell.flows == 0 {
                continue;
            }
            self.counters.visits += cell.members.len() as u64;
            let own = low[index];
            let other_stop_factor = if stop >= network.links {
                self.link_factors[network.link_of_cell(index)]
            } else {
                self.cap_factors.get(index).copied().unwrap_or(f64::INFINITY)
            };
            let assured = |member| network.min_over_other_cells(index, member, low).min(own);
            let level = |member| {
                network.min_over_other_cells(index, member, &self.cell_factors).min(other_stop_factor)
            };
            let gathered = if cell.is_elastic() {
                let limits = cell
                    .members
                    .iter()
                    .map(|&member| (level(member), f64::from(member.flows) * assured(member)));
                divider.gather_limits(limits)
            } else {
                let limits = cell.members.iter().enumerate().map(|(place, &member)| {
                    let demand = cell.demand(place);
                    let assured = assured(member).min(demand);
                    (level(member).min(demand / assured), f64::from(member.flows) * assured)
                });
                divider.gather_limits(limits)
            };
            all = all.merge(gathered);
        }
        let room = stop_capacity(network, rules, stop);
        let level = if all.limit_sum <= room {
            f64::INFINITY
        } else {
            divider.compute_offer(&all, room, guess, &mut self.counters.limits_read)
        };
        self.divider = divider;
        level
    }

    fn set_factor(&mut self, network: &ClassNetwork, stop: usize, level: f64) {
        if stop < network.links {
            self.link_factors[stop] = level;
        } else {
            self.cap_factors[stop - network.links] = level;
        }
        for cell in cells_of_stop(network, stop) {
            let cap = self.cap_factors.get(cell).copied().unwrap_or(f64::INFINITY);
            self.cell_factors[cell] = cap.min(self.link_factors[network.link_of_cell(cell)]);
        }
    }

    /// Marks the stops that depend on a cell whose lower bounds or flows changed; `least` is the minimum of the old and new
    /// bounds.
    pub fn mark_dependents(&mut self, network: &ClassNetwork, low: &[f64], (cell, least): ChangedOffer) {
        let cell = cell as usize;
        self.mark_stops_of_cell(network, cell);
        self.counters.classes_marked += network.cells[cell].members.len() as u64;
        for &member in &network.cells[cell].members {
            network.visit_other_cells(cell, member, |other| {
                if low[other] > least {
                    self.mark_stops_of_cell(network, other);
                }
            });
        }
    }

    pub fn mark_stop(&mut self, link: usize) {
        if !self.is_stop_marked[link] {
            self.is_stop_marked[link] = true;
            self.marked_stops.push(link as u32);
        }
    }

    pub fn mark_stops_of_cell(&mut self, network: &ClassNetwork, cell: usize) {
        self.mark_stop(network.link_of_cell(cell));
        if !self.cap_factors.is_empty() {
            self.mark_stop(network.links + cell);
        }
    }

    /// Recomputes marked factors from the present ones until none moves. Max-min rates are the only ones at which every
    /// flow has a bottleneck, so the result equals that of a sweep. Returns false if it stops after `max_visits` visits.
    pub fn propagate_marks(
        &mut self,
        network: &ClassNetwork,
        rules: &SolverInputs<'_>,
        low: &[f64],
        max_visits: u64,
    ) -> bool {
        self.all_factors_one = false;
        let end = self.counters.visits + max_visits;
        let mut todo = Vec::new();
        while !self.marked_stops.is_empty() {
            std::mem::swap(&mut todo, &mut self.marked_stops);
            todo.sort_unstable();
            for stop in todo.drain(..) {
                let stop = stop as usize;
                self.is_stop_marked[stop] = false;
                if self.counters.visits > end {
                    continue;
                }
                self.recompute_stop(network, rules, low, stop);
            }
            if self.counters.visits > end {
                return false;
            }
        }
        true
    }

    fn recompute_stop(&mut self, network: &ClassNetwork, rules: &SolverInputs<'_>, low: &[f64], stop: usize) {
        if stop >= network.links
            && rules.shares.excess_weight((stop - network.links) % network.services) > 0.0
        {
            return;
        }
        let old = match stop.checked_sub(network.links) {
            None => self.link_factors[stop],
            Some(cell) => self.cap_factors[cell],
        };
        let new = self.evaluate_stop(network, rules, low, stop, old);
        if new == old || (old.is_finite() && (new - old).abs() <= rounding::ORDER * old) {
            return;
        }
        self.set_factor(network, stop, new);
        let least = new.min(old);
        for cell in cells_of_stop(network, stop) {
            self.counters.classes_marked += network.cells[cell].members.len() as u64;
            for &member in &network.cells[cell].members {
                network.visit_other_cells(cell, member, |other| {
                    if self.cell_factors[other] >= least {
                        self.mark_stops_of_cell(network, other);
                    }
                });
            }
            if !self.cap_factors.is_empty() {
                self.mark_stops_of_cell(network, cell);
            }
        }
    }
}

/// The cells whose flows a stop limits.
fn cells_of_stop(network: &ClassNetwork, stop: usize) -> std::ops::Range<usize> {
    match stop.checked_sub(network.links) {
        None => network.cells_of_link(stop),
        Some(cell) => cell..cell + 1,
    }
}

/// The capacity of a stop: of a link, or a guarantee.
fn stop_capacity(network: &ClassNetwork, rules: &SolverInputs<'_>, stop: usize) -> f64 {
    match stop.checked_sub(network.links) {
        None => rules.capacities[stop],
        Some(cell) => rules.guarantees[cell],
    }
}
