//! Computes lower and upper bounds of the offers of links to services, in stages: the bounds of one limit those of the
//! next.

use super::class_network::ClassNetwork;
use super::link_division::{FlowLimits, LinkDivider, ServiceClaim, surplus};
use super::{STAGE_COUNT, ServiceShares, WorkCounters};
use crate::rounding;

/// The inputs of a cell's offer.
#[derive(Debug, Clone, Copy, Default)]
struct OfferInputs {
    /// The sum of the limits of the service's flows on the link.
    limit_sum: f64,
    /// The rate that the service can have on the link.
    service_rate: f64,
    /// The highest limit of its flows.
    max_limit: f64,
}

/// Offers of all cells, with limits from the stage before.
#[derive(Debug, Clone)]
struct Stage {
    /// Offers by cell, followed by infinity for [`ClassNetwork::min_over_other_cells`].
    offers: Vec<f64>,
    offer_inputs: Vec<OfferInputs>,
    /// Whether limits of the cell's flows changed since the cell's last visit.
    stale_cells: Vec<bool>,
    /// Links to divide again.
    marked_links: Vec<u32>,
    is_link_marked: Vec<bool>,
}

impl Stage {
    fn mark_link(&mut self, link: usize) {
        if !self.is_link_marked[link] {
            self.is_link_marked[link] = true;
            self.marked_links.push(link as u32);
        }
    }

    fn mark_all(&mut self) {
        self.stale_cells.fill(true);
        self.is_link_marked.fill(true);
        self.marked_links.clear();
        self.marked_links.extend(0..self.is_link_marked.len() as u32);
    }

    fn copy_from(&mut self, other: &Stage) {
        self.offers.copy_from_slice(&other.offers);
        self.offer_inputs.copy_from_slice(&other.offer_inputs);
        self.stale_cells.fill(false);
        self.is_link_marked.fill(false);
        self.marked_links.clear();
    }
}

/// Capacities, shares and guarantees.
pub(super) struct SolverInputs<'a> {
    pub capacities: &'a [f64],
    pub shares: &'a ServiceShares,
    /// By cell.
    pub guarantees: &'a [f64],
}

/// A cell whose offer changed, and the lower of its old and new offer.
pub(super) type ChangedOffer = (u32, f64);

#[derive(Debug, Clone)]
pub(super) struct Bounds {
    stages: Vec<Stage>,
    /// Limits before the first stage: infinite.
    unlimited: Vec<f64>,
    divider: LinkDivider,
    links_to_divide: Vec<u32>,
    changed_offers: Vec<ChangedOffer>,
    pub counters: WorkCounters,
}

impl Bounds {
    pub fn new(cells: usize, links: usize) -> Bounds {
        let stage = Stage {
            offers: vec![f64::INFINITY; cells + 1],
            offer_inputs: vec![OfferInputs::default(); cells],
            stale_cells: vec![false; cells],
            marked_links: Vec::new(),
            is_link_marked: vec![false; links],
        };
        Bounds {
            unlimited: stage.offers.clone(),
            stages: vec![stage; STAGE_COUNT],
            divider: LinkDivider::default(),
            links_to_divide: Vec::new(),
            changed_offers: Vec::new(),
            counters: WorkCounters::default(),
        }
    }

    /// The last lower bounds, by cell, followed by infinity.
    pub fn lower(&self) -> &[f64] {
        &self.stages[STAGE_COUNT - 1].offers
    }

    /// The upper bounds from which the last lower bounds follow.
    pub fn upper(&self) -> &[f64] {
        &self.stages[STAGE_COUNT - 2].offers
    }

    /// Marks a cell whose flows or demands changed.
    pub fn mark_cell(&mut self, network: &ClassNetwork, cell: usize) {
        let link = network.link_of_cell(cell);
        for stage in &mut self.stages {
            stage.stale_cells[cell] = true;
            stage.mark_link(link);
        }
    }

    /// Marks a link whose capacity changed.
    pub fn mark_link(&mut self, link: usize) {
        self.stages.iter_mut().for_each(|stage| stage.mark_link(link));
    }

    /// Computes all stages from scratch. From the third on, a stage differs from the one two before only where its limits
    /// do.
    pub fn compute_all(&mut self, network: &ClassNetwork, rules: &SolverInputs<'_>) {
        for stage in 0..STAGE_COUNT {
            if stage < 2 {
                self.stages[stage].offers.fill(f64::INFINITY);
                self.stages[stage].mark_all();
            } else {
                let (before, rest) = self.stages.split_at_mut(stage);
                rest[0].copy_from(&before[stage - 2]);
                let earlier = if stage == 2 { &self.unlimited } else { &before[stage - 3].offers };
                let highest = max_offer_by_service(network, &rest[0].offers);
                for cell in 0..network.cells.len() {
                    let (new, old) = (before[stage - 1].offers[cell], earlier[cell]);
                    if new != old && highest[cell % network.services] > with_tolerance(new.min(old)) {
                        self.counters.classes_marked +=
                            mark_other_cells(network, &mut rest[0], cell, new.min(old));
                    }
                }
            }
            self.divide_marked_links(stage, network, rules);
            self.changed_offers.clear();
        }
    }

    /// Propagates marks through all stages. Adds cells whose last lower and upper bounds changed to `lower` and `upper`.
    pub fn propagate_marks(
        &mut self,
        network: &ClassNetwork,
        rules: &SolverInputs<'_>,
        lower: &mut Vec<ChangedOffer>,
        upper: &mut Vec<ChangedOffer>,
    ) {
        for stage in 0..STAGE_COUNT {
            self.divide_marked_links(stage, network, rules);
            if stage + 1 < STAGE_COUNT {
                for &(cell, least) in &self.changed_offers {
                    let next = &mut self.stages[stage + 1];
                    self.counters.classes_marked += mark_other_cells(network, next, cell as usize, least);
                }
            }
            match STAGE_COUNT - stage {
                1 => lower.append(&mut self.changed_offers),
                2 => upper.append(&mut self.changed_offers),
                _ => self.changed_offers.clear(),
            }
        }
    }

    /// Divides all links that are marked in a stage.
    fn divide_marked_links(&mut self, stage: usize, network: &ClassNetwork, rules: &SolverInputs<'_>) {
        let mut divider = std::mem::take(&mut self.divider);
        let mut todo = std::mem::take(&mut self.links_to_divide);
        // A division can mark its own link again.
        while !self.stages[stage].marked_links.is_empty() {
            std::mem::swap(&mut todo, &mut self.stages[stage].marked_links);
            for link in todo.drain(..) {
                self.stages[stage].is_link_marked[link as usize] = false;
                self.divide_link(stage, network, rules, link as usize, &mut divider);
            }
        }
        (self.divider, self.links_to_divide) = (divider, todo);
    }

    fn divide_link(
        &mut self,
        stage: usize,
        network: &ClassNetwork,
        rules: &SolverInputs<'_>,
        link: usize,
        divider: &mut LinkDivider,
    ) {
        let (before, rest) = self.stages.split_at_mut(stage);
        let limits = before.last().map_or(&self.unlimited, |before| &before.offers);
        let stage = &mut rest[0];
        let cells = network.cells_of_link(link);
        divider.clear();
        for (service, cell) in cells.clone().enumerate() {
            if network.cells[cell].flows == 0 {
                // No flow uses this offer; adding a flow marks the cell.
                stage.offers[cell] = f64::INFINITY;
                stage.stale_cells[cell] = false;
                continue;
            }
            let mut gathered = None;
            if stage.stale_cells[cell] {
                let found = gather_limits(
                    network,
                    divider,
                    cell,
                    limits,
                    before.is_empty(),
                    &mut self.counters.visits,
                );
                let state = &mut stage.offer_inputs[cell];
                (state.limit_sum, state.max_limit) = (found.limit_sum, found.max_limit);
                gathered = Some(found);
            }
            divider.claims.push(ServiceClaim {
                service: service as u32,
                limit_sum: stage.offer_inputs[cell].limit_sum,
                guarantee: rules.guarantees[cell],
                excess_weight: rules.shares.excess_weight(service),
                service_rate: 0.0,
                limits: gathered,
            });
        }
        divider.divide_link(rules.capacities[link]);
        for at in 0..divider.claims.len() {
            let claim = divider.claims[at];
            let cell = cells.start + claim.service as usize;
            let state = &mut stage.offer_inputs[cell];
            let part_before = std::mem::replace(&mut state.service_rate, claim.service_rate);
            let stale = std::mem::take(&mut stage.stale_cells[cell]);
            if !stale && (claim.service_rate - part_before).abs() <= rounding::OFFER * part_before {
                state.service_rate = part_before;
                continue;
            }
            let old = stage.offers[cell];
            // If the offer is above the highest limit, all changed limits have marked the cell.
            let known = claim.limits.is_none() && old > with_tolerance(with_tolerance(state.max_limit));
            let new = if known && claim.limit_sum <= claim.service_rate {
                state.max_limit + surplus(claim.service_rate, claim.limit_sum)
            } else {
                let limits = claim.limits.unwrap_or_else(|| {
                    gather_limits(
                        network,
                        divider,
                        cell,
                        limits,
                        before.is_empty(),
                        &mut self.counters.visits,
                    )
                });
                if limits.limit_sum != claim.limit_sum {
                    // Limits above the old offer changed without a mark; the new offer may be above them.
                    stage.stale_cells[cell] = true;
                    stage.mark_link(link);
                }
                divider.compute_offer(&limits, claim.service_rate, old, &mut self.counters.limits_read)
            };
            if new != old && (old.is_infinite() || (new - old).abs() > rounding::OFFER * old) {
                stage.offers[cell] = new;
                self.changed_offers.push((cell as u32, new.min(old)));
            }
        }
    }
}

/// Adds the limits of a cell's flows to the divider. Before the first stage only demands limit flows.
fn gather_limits(
    network: &ClassNetwork,
    divider: &mut LinkDivider,
    index: usize,
    limits: &[f64],
    first: bool,
    visits: &mut u64,
) -> FlowLimits {
    let cell = &network.cells[index];
    if first && cell.is_elastic() {
        return FlowLimits::unlimited(cell.flows as f64);
    }
    *visits += cell.members.len() as u64;
    let limit = |&member| network.min_over_other_cells(index, member, limits);
    let flows = cell.members.iter().map(|member| f64::from(member.flows));
    if cell.is_elastic() {
        return divider.gather_limits(cell.members.iter().map(limit).zip(flows));
    }
    let limit = |(place, member)| cell.demand(place).min(limit(member));
    divider.gather_limits(cell.members.iter().enumerate().map(limit).zip(flows))
}

/// The value above which an offer counts as higher than a limit.
fn with_tolerance(limit: f64) -> f64 {
    limit * (1.0 + rounding::OFFER)
}

/// The highest offer of each service at any link.
fn max_offer_by_service(network: &ClassNetwork, offer: &[f64]) -> Vec<f64> {
    let mut highest = vec![0.0f64; network.services];
    for index in (0..network.cells.len()).filter(|&index| network.cells[index].flows > 0) {
        let highest = &mut highest[index % network.services];
        *highest = highest.max(offer[index]);
    }
    highest
}

/// Marks the other cells of a cell's flows whose offers in `stage` are above `least`, the lower of the old and new limit: a
/// limit has an effect only below the offer. Returns the number of classes examined.
fn mark_other_cells(network: &ClassNetwork, stage: &mut Stage, cell: usize, lower_limit: f64) -> u64 {
    let Stage { offers, stale_cells, marked_links, is_link_marked, .. } = stage;
    let above = with_tolerance(lower_limit);
    let cells = &network.cells[cell];
    for (place, &member) in cells.members.iter().enumerate() {
        if member.flows == 0 || (!cells.is_elastic() && cells.demand(place) <= lower_limit) {
            continue;
        }
        network.visit_other_cells(cell, member, |other| {
            if offers[other] > above && !stale_cells[other] {
                stale_cells[other] = true;
                let link = network.link_of_cell(other);
                if !is_link_marked[link] {
                    is_link_marked[link] = true;
                    marked_links.push(link as u32);
                }
            }
        });
    }
    cells.members.len() as u64
}
