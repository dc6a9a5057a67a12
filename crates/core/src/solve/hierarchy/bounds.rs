//! Lower and upper bounds of the rates of services on links, in stages that each follow from the one before.

use super::divide::{Claim, Divider, Limits, beyond};
use super::network::Network;
use super::{Count, SAME, STAGES, Shares};

/// The inputs of a cell's offer.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The sum of the limits of the service's flows on the link.
    wanted: f64,
    /// The rate that the service can have on the link.
    part: f64,
    /// The highest limit of its flows.
    highest: f64,
}

/// Offers of all cells, with limits from the stage before.
#[derive(Debug, Clone)]
struct Stage {
    /// Offers by cell, followed by infinity for [`Network::least_elsewhere`].
    offer: Vec<f64>,
    states: Vec<State>,
    /// Whether limits of the cell's flows changed since the cell's last visit.
    stale: Vec<bool>,
    /// Links to divide again.
    queue: Vec<u32>,
    queued: Vec<bool>,
}

impl Stage {
    fn mark_link(&mut self, link: usize) {
        if !self.queued[link] {
            self.queued[link] = true;
            self.queue.push(link as u32);
        }
    }

    fn mark_all(&mut self) {
        self.stale.fill(true);
        self.queued.fill(true);
        self.queue.clear();
        self.queue.extend(0..self.queued.len() as u32);
    }

    fn copy_from(&mut self, other: &Stage) {
        self.offer.copy_from_slice(&other.offer);
        self.states.copy_from_slice(&other.states);
        self.stale.fill(false);
        self.queued.fill(false);
        self.queue.clear();
    }
}

/// Capacities, shares and guarantees.
pub(super) struct Rules<'a> {
    pub capacities: &'a [f64],
    pub shares: &'a Shares,
    /// By cell.
    pub guarantees: &'a [f64],
}

/// A cell whose offer changed, and the lower of its old and new offer.
pub(super) type Moved = (u32, f64);

#[derive(Debug, Clone)]
pub(super) struct Bounds {
    stages: Vec<Stage>,
    /// Limits before the first stage: infinite.
    none: Vec<f64>,
    divider: Divider,
    todo: Vec<u32>,
    moved: Vec<Moved>,
    pub count: Count,
}

impl Bounds {
    pub fn new(cells: usize, links: usize) -> Bounds {
        let stage = Stage {
            offer: vec![f64::INFINITY; cells + 1],
            states: vec![State::default(); cells],
            stale: vec![false; cells],
            queue: Vec::new(),
            queued: vec![false; links],
        };
        Bounds {
            none: stage.offer.clone(),
            stages: vec![stage; STAGES],
            divider: Divider::default(),
            todo: Vec::new(),
            moved: Vec::new(),
            count: Count::default(),
        }
    }

    /// The last lower bounds, by cell, followed by infinity.
    pub fn low(&self) -> &[f64] {
        &self.stages[STAGES - 1].offer
    }

    /// The upper bounds from which the last lower bounds follow.
    pub fn high(&self) -> &[f64] {
        &self.stages[STAGES - 2].offer
    }

    /// Marks a cell whose flows or demands changed.
    pub fn mark(&mut self, network: &Network, cell: usize) {
        let link = network.link_of(cell);
        for stage in &mut self.stages {
            stage.stale[cell] = true;
            stage.mark_link(link);
        }
    }

    /// Marks a link whose capacity changed.
    pub fn mark_link(&mut self, link: usize) {
        self.stages.iter_mut().for_each(|stage| stage.mark_link(link));
    }

    /// Computes all stages from scratch. From the third on, a stage differs from the one two before only where its limits
    /// do.
    pub fn make(&mut self, network: &Network, rules: &Rules<'_>) {
        for stage in 0..STAGES {
            if stage < 2 {
                self.stages[stage].offer.fill(f64::INFINITY);
                self.stages[stage].mark_all();
            } else {
                let (before, rest) = self.stages.split_at_mut(stage);
                rest[0].copy_from(&before[stage - 2]);
                let earlier = if stage == 2 { &self.none } else { &before[stage - 3].offer };
                let highest = highest_by_service(network, &rest[0].offer);
                for cell in 0..network.cells.len() {
                    let (new, old) = (before[stage - 1].offer[cell], earlier[cell]);
                    if new != old && highest[cell % network.services] > above(new.min(old)) {
                        self.count.marks += mark_others(network, &mut rest[0], cell, new.min(old));
                    }
                }
            }
            self.round(stage, network, rules);
            self.moved.clear();
        }
    }

    /// Propagates marks through all stages. Adds cells whose last lower and upper bounds changed to `low` and `high`.
    pub fn repair(
        &mut self,
        network: &Network,
        rules: &Rules<'_>,
        low: &mut Vec<Moved>,
        high: &mut Vec<Moved>,
    ) {
        for stage in 0..STAGES {
            self.round(stage, network, rules);
            if stage + 1 < STAGES {
                for &(cell, least) in &self.moved {
                    let next = &mut self.stages[stage + 1];
                    self.count.marks += mark_others(network, next, cell as usize, least);
                }
            }
            match STAGES - stage {
                1 => low.append(&mut self.moved),
                2 => high.append(&mut self.moved),
                _ => self.moved.clear(),
            }
        }
    }

    /// Divides all links that are marked in a stage.
    fn round(&mut self, stage: usize, network: &Network, rules: &Rules<'_>) {
        let mut divider = std::mem::take(&mut self.divider);
        let mut todo = std::mem::take(&mut self.todo);
        // A division can mark its own link again.
        while !self.stages[stage].queue.is_empty() {
            std::mem::swap(&mut todo, &mut self.stages[stage].queue);
            for link in todo.drain(..) {
                self.stages[stage].queued[link as usize] = false;
                self.divide(stage, network, rules, link as usize, &mut divider);
            }
        }
        (self.divider, self.todo) = (divider, todo);
    }

    fn divide(
        &mut self,
        stage: usize,
        network: &Network,
        rules: &Rules<'_>,
        link: usize,
        divider: &mut Divider,
    ) {
        let (before, rest) = self.stages.split_at_mut(stage);
        let limits = before.last().map_or(&self.none, |before| &before.offer);
        let stage = &mut rest[0];
        let cells = network.cells_of(link);
        divider.clear();
        for (service, cell) in cells.clone().enumerate() {
            if network.cells[cell].flows == 0 {
                // No flow uses this offer; adding a flow marks the cell.
                stage.offer[cell] = f64::INFINITY;
                stage.stale[cell] = false;
                continue;
            }
            let mut gathered = None;
            if stage.stale[cell] {
                let found = gather(network, divider, cell, limits, before.is_empty(), &mut self.count.visits);
                let state = &mut stage.states[cell];
                (state.wanted, state.highest) = (found.wanted, found.highest);
                gathered = Some(found);
            }
            divider.claims.push(Claim {
                service: service as u32,
                wanted: stage.states[cell].wanted,
                guarantee: rules.guarantees[cell],
                excess: rules.shares.excess(service),
                part: 0.0,
                limits: gathered,
            });
        }
        divider.divide(rules.capacities[link]);
        for at in 0..divider.claims.len() {
            let claim = divider.claims[at];
            let cell = cells.start + claim.service as usize;
            let state = &mut stage.states[cell];
            let part_before = std::mem::replace(&mut state.part, claim.part);
            let stale = std::mem::take(&mut stage.stale[cell]);
            if !stale && (claim.part - part_before).abs() <= SAME * part_before {
                state.part = part_before;
                continue;
            }
            let old = stage.offer[cell];
            // If the offer is above the highest limit, all changed limits have marked the cell.
            let known = claim.limits.is_none() && old > above(above(state.highest));
            let new = if known && claim.wanted <= claim.part {
                state.highest + beyond(claim.part, claim.wanted)
            } else {
                let limits = claim.limits.unwrap_or_else(|| {
                    gather(network, divider, cell, limits, before.is_empty(), &mut self.count.visits)
                });
                if limits.wanted != claim.wanted {
                    // Limits above the old offer changed without a mark; the new offer may be above them.
                    stage.stale[cell] = true;
                    stage.mark_link(link);
                }
                divider.offer(&limits, claim.part, old, &mut self.count.limits)
            };
            if new != old && (old.is_infinite() || (new - old).abs() > SAME * old) {
                stage.offer[cell] = new;
                self.moved.push((cell as u32, new.min(old)));
            }
        }
    }
}

/// Adds the limits of a cell's flows to the divider. Before the first stage only demands limit flows.
fn gather(
    network: &Network,
    divider: &mut Divider,
    index: usize,
    limits: &[f64],
    first: bool,
    visits: &mut u64,
) -> Limits {
    let cell = &network.cells[index];
    if first && cell.elastic() {
        return Limits::unlimited(cell.flows as f64);
    }
    *visits += cell.members.len() as u64;
    let limit = |&member| network.least_elsewhere(index, member, limits);
    let flows = cell.members.iter().map(|member| f64::from(member.flows));
    if cell.elastic() {
        return divider.gather(cell.members.iter().map(limit).zip(flows));
    }
    let limit = |(place, member)| cell.demand(place).min(limit(member));
    divider.gather(cell.members.iter().enumerate().map(limit).zip(flows))
}

/// The value above which an offer counts as higher than a limit.
fn above(limit: f64) -> f64 {
    limit * (1.0 + SAME)
}

/// The highest offer of each service at any link.
fn highest_by_service(network: &Network, offer: &[f64]) -> Vec<f64> {
    let mut highest = vec![0.0f64; network.services];
    for index in (0..network.cells.len()).filter(|&index| network.cells[index].flows > 0) {
        let highest = &mut highest[index % network.services];
        *highest = highest.max(offer[index]);
    }
    highest
}

/// Marks the other cells of a cell's flows whose offers in `stage` are above `least`, the lower of the old and new limit: a
/// limit has an effect only below the offer. Returns the number of classes examined.
fn mark_others(network: &Network, stage: &mut Stage, cell: usize, least: f64) -> u64 {
    let Stage { offer, stale, queue, queued, .. } = stage;
    let above = above(least);
    let cells = &network.cells[cell];
    for (place, &member) in cells.members.iter().enumerate() {
        if member.flows == 0 || (!cells.elastic() && cells.demand(place) <= least) {
            continue;
        }
        network.for_others(cell, member, |other| {
            if offer[other] > above && !stale[other] {
                stale[other] = true;
                let link = network.link_of(other);
                if !queued[link] {
                    queued[link] = true;
                    queue.push(link as u32);
                }
            }
        });
    }
    cells.members.len() as u64
}
