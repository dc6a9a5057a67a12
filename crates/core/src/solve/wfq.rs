//! Steady-state rates of flows over links with weighted queues.
//!
//! Every link has queues with weights, and every class of flows uses one queue at each link of its path. Rates are in
//! steady state (*settled*) if all of the following holds at every link, given the arrivals from other links.
//!
//! - Between queues: a queue gets its demand or its weighted fair share, whichever is less. The shares are the weights
//!   times one number, the largest at which the link carries the sum (GPS: the backlogged queues share, by weight, the
//!   capacity that a queue does not use).
//! - In a queue: unresponsive flows take the rate at which they send. If their sum exceeds the queue's rate, all lose the
//!   same fraction. Elastic flows share the rest max-min. The papers do not state this rule, but a packet queue behaves
//!   this way: it drops packets in proportion to arrivals, senders without congestion control ignore the drops, and
//!   senders with congestion control back off (NetShare 5.3 without mechanisms: TCP that competes with greedy UDP
//!   "receives zero throughput").
//! - The demand of an elastic flow at a link is the minimum of the rates at the other links of its path and its own
//!   limit. The demand of an unresponsive flow is the rate that passes the links before. Traffic that a later link drops
//!   wastes the capacity of the links before it (NetShare 3.2).
//!
//! Flows in lockstep, which all have the rate of the slowest, are one class with a number of flows at each link. A few numbers then
//! describe a shuffle over thousands of links, instead of a hundred thousand flows.
//!
//! Such rates exist: they are a fixed point of a continuous map of a bounded set of levels into itself. With one queue a
//! link and elastic flows, they are the max-min rates. In general they are not unique. Example: two flows over two links
//! of capacity 1, with weights 2:1 at one link and 1:2 at the other. Any split between 1/3 and 2/3 is a fixed point,
//! because each flow has a link that limits it. Queues need not settle either: if each of several flows is limited by
//! the residual capacity that the next flow leaves, rates can oscillate, in the map as in a network.
//!
//! # Algorithm
//!
//! The solver visits links and solves each link exactly for its present demands. The *level* of a queue is the rate to
//! which it limits an elastic flow; the level of a link is the lowest level of its queues.
//!
//! 1. *Climb.* Of the links whose demands changed, it visits the one with the lowest level. If bottlenecks have an order
//!    (with one queue a link they always have), this is progressive filling, and terminates.
//! 2. *Rounds.* Cyclic dependencies between bottlenecks converge by rounds over all links whose demands changed, and by
//!    extrapolation from these rounds (`extrapolation`).
//! 3. *Damping.* The solver damps rounds after the first 300.
//! 4. *Stop.* After [`WfqSolver::MAX_ROUNDS`] the solver stops, reduces rates to what the links carry, and reports the distance
//!    from steady state in [`WfqStats::residual`].
//!
//! If several solutions exist, the order of visits selects one: by level, then by the link's number.
//!
//! A visit of a link costs the classes over it, and the links of classes whose rate changes. With one queue a link, the
//! solver visits each link one to three times; cyclic bottlenecks take tens to hundreds of visits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ordered_f64::OrderedF64;
use crate::rounding;

mod classes;
mod error;
mod extrapolation;
mod lowest_levels;
mod queue_filling;

use classes::{ClassIndex, QueueMember};
pub use error::WfqError;
use extrapolation::{Extrapolation, ExtrapolationAction};
use lowest_levels::LowestLevels;
use queue_filling::{QueueDemand, fill_level, unit_share};

/// The minimum weight, and the minimum number of flows.
pub const MIN_VALUE: f64 = 1e-100;

/// The maximum weight, number of flows, capacity and rate. Products of them are finite.
pub const MAX_VALUE: f64 = 1e100;

/// A queue at a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Queue {
    /// The link, as an index into the capacities.
    pub link: u32,
    /// The weight, from [`MIN_VALUE`] to [`MAX_VALUE`].
    pub weight: f64,
}

/// How the flows of a class use bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Source {
    /// Flows use all available bandwidth (TCP).
    Elastic,
    /// Flows use all available bandwidth up to this rate, in bytes per second for each flow.
    Capped(f64),
    /// Flows send at this rate, in bytes per second for each flow, independent of losses (UDP).
    Unresponsive(f64),
}

/// The numbers of flows of a class, each from [`MIN_VALUE`] to [`MAX_VALUE`].
#[derive(Debug, Clone, Copy)]
pub enum FlowCounts<'a> {
    /// Every flow crosses all links of the path.
    Equal(f64),
    /// The number of flows at each link of the path: flows in lockstep, which all have the rate of the slowest.
    ByLink(&'a [f64]),
}

/// Flows that cross the same queues, or flows in lockstep.
#[derive(Debug, Clone, Copy)]
pub struct QueuedClass<'a> {
    /// The queue at each link of the path, in order, as indices into the queues; no link twice. An elastic flow over no
    /// links has no limit.
    pub queues: &'a [u32],
    /// Number of flows.
    pub flows: FlowCounts<'a>,
    /// How the flows send.
    pub source: Source,
}

/// Rates of a flow of a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// The sending rate, in bytes per second.
    pub sending_rate: f64,
    /// The rate of arrival at the destination, in bytes per second.
    pub delivered_rate: f64,
    /// The link that limits the flow: the first link with the lowest rate for an elastic flow, or with the largest loss
    /// for an unresponsive one. None if only its source limits the flow.
    pub limiting_link: Option<u32>,
}

/// Counters and accuracy of a solution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WfqStats {
    /// Number of rounds.
    pub rounds: u32,
    /// Number of visits of links.
    pub visits: u64,
    /// The largest relative change of a rate in the last round. 0 if that round changed no demand by more than rounding:
    /// the rates have settled.
    pub residual: f64,
}

/// Links with queues, and working memory.
#[derive(Debug, Clone)]
pub struct WfqSolver {
    capacities: Vec<f64>,
    queues: Vec<Queue>,
    /// The queues of each link, link by link.
    link_queues: Vec<u32>,
    link_queue_starts: Vec<u32>,
    classes: ClassIndex,
    /// By class, if it is elastic.
    lowest_levels: Vec<LowestLevels>,
    /// By queue: the rate of an elastic flow; infinite if the queue limits no elastic flow.
    levels: Vec<f64>,
    /// By queue: the fraction of unresponsive traffic that passes.
    pass_fractions: Vec<f64>,
    /// By link: the lowest level of its queues at the last visit.
    link_min_levels: Vec<f64>,
    /// Links in the order of those levels, and the place of each link in that order.
    links_by_level: Vec<u32>,
    level_positions: Vec<u32>,
    is_link_dirty: Vec<bool>,
    round_links: Vec<u32>,
    next_round_links: Vec<u32>,
    climb_heap: BinaryHeap<Reverse<(OrderedF64, u32)>>,
    visit_buffers: VisitBuffers,
    extrapolation: Extrapolation,
    rates: Vec<Rates>,
    loads: Vec<f64>,
}

/// Working memory of a visit of a link.
#[derive(Debug, Clone, Default)]
struct VisitBuffers {
    queue_demands: Vec<QueueDemand>,
    /// For each elastic class, queue by queue: the demand of a flow, and the number of flows.
    elastic_demands: Vec<(f64, f64)>,
}

/// Visits for each link before the rounds start.
const CLIMB_VISITS_PER_LINK: u64 = 8;

/// Number of rounds before damping.
const UNDAMPED_ROUNDS: u32 = 300;

impl WfqSolver {
    /// The maximum number of rounds of a solution.
    pub const MAX_ROUNDS: u32 = 1000;

    /// Creates links with these capacities, in bytes per second, and these queues.
    ///
    /// # Errors
    /// [`WfqError::InvalidCapacity`] or [`WfqError::InvalidWeight`] if a number is out of range; [`WfqError::UnknownLink`]
    /// if a queue is at an unknown link.
    pub fn new(capacities: &[f64], queues: &[Queue]) -> Result<WfqSolver, WfqError> {
        let links = capacities.len();
        if let Some(link) = capacities.iter().position(|c| !(0.0..=MAX_VALUE).contains(c)) {
            return Err(WfqError::InvalidCapacity { link, capacity: capacities[link] });
        }
        let mut at_starts = vec![0u32; links + 1];
        for (number, queue) in queues.iter().enumerate() {
            if queue.link as usize >= links {
                return Err(WfqError::UnknownLink { queue: number, link: queue.link, links });
            }
            check_weight(number, queue.weight)?;
            at_starts[queue.link as usize + 1] += 1;
        }
        for link in 0..links {
            at_starts[link + 1] += at_starts[link];
        }
        let mut next = at_starts.clone();
        let mut at = vec![0u32; queues.len()];
        for (number, queue) in queues.iter().enumerate() {
            let place = &mut next[queue.link as usize];
            at[*place as usize] = number as u32;
            *place += 1;
        }
        Ok(WfqSolver {
            capacities: capacities.to_vec(),
            queues: queues.to_vec(),
            link_queues: at,
            link_queue_starts: at_starts,
            classes: ClassIndex::default(),
            lowest_levels: Vec::new(),
            levels: vec![f64::INFINITY; queues.len()],
            pass_fractions: vec![1.0; queues.len()],
            link_min_levels: vec![0.0; links],
            links_by_level: Vec::new(),
            level_positions: vec![0; links],
            is_link_dirty: vec![false; links],
            round_links: Vec::new(),
            next_round_links: Vec::new(),
            climb_heap: BinaryHeap::new(),
            visit_buffers: VisitBuffers::default(),
            extrapolation: Extrapolation::default(),
            rates: Vec::new(),
            loads: vec![0.0; links],
        })
    }

    /// Changes the capacity of a link, in bytes per second.
    ///
    /// # Errors
    /// [`WfqError::InvalidCapacity`] if the capacity is below 0 or above [`MAX_VALUE`].
    pub fn set_capacity(&mut self, link: usize, capacity: f64) -> Result<(), WfqError> {
        if !(0.0..=MAX_VALUE).contains(&capacity) {
            return Err(WfqError::InvalidCapacity { link, capacity });
        }
        self.capacities[link] = capacity;
        Ok(())
    }

    /// Changes a queue's weight.
    ///
    /// # Errors
    /// [`WfqError::InvalidWeight`] if the weight is not between [`MIN_VALUE`] and [`MAX_VALUE`].
    pub fn set_weight(&mut self, queue: usize, weight: f64) -> Result<(), WfqError> {
        check_weight(queue, weight)?;
        self.queues[queue].weight = weight;
        Ok(())
    }

    /// The rates of the last solution, by class.
    pub fn rates(&self) -> &[Rates] {
        &self.rates
    }

    /// Computes the rates of these classes, independent of earlier solutions.
    ///
    /// # Errors
    /// If a number of flows or a rate is out of range, a queue is unknown, or a path crosses a link twice. [`WfqSolver::rates`]
    /// then keeps the rates of the last solution.
    pub fn solve(&mut self, classes: &[QueuedClass<'_>]) -> Result<WfqStats, WfqError> {
        self.classes.load_classes(classes, &self.queues, self.capacities.len())?;
        self.levels.fill(f64::INFINITY);
        self.lowest_levels.clear();
        self.lowest_levels.resize(classes.len(), LowestLevels::NONE);
        self.pass_fractions.fill(1.0);
        self.next_round_links.clear();
        for link in 0..self.capacities.len() as u32 {
            let flows: f64 = self
                .queues_at(link)
                .map(|queue| {
                    let members = self
                        .classes
                        .elastic_members(queue)
                        .iter()
                        .chain(self.classes.unresponsive_members(queue));
                    members.map(|member| member.flows).sum::<f64>()
                })
                .sum();
            self.is_link_dirty[link as usize] = flows > 0.0;
            if flows > 0.0 {
                self.link_min_levels[link as usize] = self.capacities[link as usize] / flows;
                self.next_round_links.push(link);
            }
        }
        self.extrapolation.clear();
        let mut settled = WfqStats { rounds: 0, visits: 0, residual: 0.0 };
        settled.visits = self.climb_levels();
        while !self.next_round_links.is_empty() && settled.rounds < WfqSolver::MAX_ROUNDS {
            settled.residual = 0.0;
            std::mem::swap(&mut self.round_links, &mut self.next_round_links);
            self.next_round_links.clear();
            let lowest = &self.link_min_levels;
            self.round_links
                .sort_unstable_by(|&a, &b| lowest[a as usize].total_cmp(&lowest[b as usize]).then(a.cmp(&b)));
            let part = step_fraction(settled.rounds);
            for at in 0..self.round_links.len() {
                let link = self.round_links[at];
                // A visit earlier in this round may have marked the link again; this visit covers that mark.
                self.is_link_dirty[link as usize] = false;
                let change = self.visit_link(link, part);
                settled.residual = settled.residual.max(change);
                settled.visits += 1;
            }
            // A link that was marked and then visited in the same round is clean.
            let dirty = &self.is_link_dirty;
            self.next_round_links.retain(|&link| dirty[link as usize]);
            self.next_round_links.sort_unstable();
            self.next_round_links.dedup();
            settled.rounds += 1;
            if !self.next_round_links.is_empty() {
                self.extrapolate_levels(settled.residual);
            }
        }
        if self.next_round_links.is_empty() {
            settled.residual = 0.0;
        }
        self.compute_rates();
        if settled.residual > 0.0 {
            self.reduce_to_capacity();
        }
        Ok(settled)
    }

    fn queues_at(&self, link: u32) -> impl Iterator<Item = u32> + use<'_> {
        let link = link as usize;
        self.link_queues[self.link_queue_starts[link] as usize..self.link_queue_starts[link + 1] as usize]
            .iter()
            .copied()
    }

    /// Visits links from the lowest level up, as progressive filling does, at most [`CLIMB_VISITS_PER_LINK`] times the
    /// number of links. If bottlenecks have an order, little work remains after it. Returns the number of visits.
    fn climb_levels(&mut self) -> u64 {
        let max_visits: u64 = CLIMB_VISITS_PER_LINK * self.next_round_links.len() as u64;
        let mut visits = 0;
        loop {
            let lowest = &self.link_min_levels;
            self.climb_heap.extend(
                self.next_round_links
                    .drain(..)
                    .map(|link| Reverse((OrderedF64(lowest[link as usize]), link))),
            );
            if visits == max_visits {
                break;
            }
            let Some(Reverse((_, link))) = self.climb_heap.pop() else { break };
            self.is_link_dirty[link as usize] = false;
            self.visit_link(link, 1.0);
            visits += 1;
        }
        self.next_round_links.extend(self.climb_heap.drain().map(|Reverse((_, link))| link));
        // From now on, order links by the levels that the climb computed.
        self.links_by_level.clear();
        self.links_by_level.extend(0..self.link_min_levels.len() as u32);
        let lowest = &self.link_min_levels;
        self.links_by_level.sort_by(|&a, &b| lowest[a as usize].total_cmp(&lowest[b as usize]));
        for (place, &link) in self.links_by_level.iter().enumerate() {
            self.level_positions[link as usize] = place as u32;
        }
        visits
    }

    /// Moves the levels of a link's queues towards the solution for the present demands, by the fraction
    /// `step_fraction` of the way, and marks the links whose demands this changes. Returns the largest relative change of a rate.
    fn visit_link(&mut self, link: u32, step_fraction: f64) -> f64 {
        let mut visit = std::mem::take(&mut self.visit_buffers);
        self.collect_demands(link, &mut visit);
        let share = unit_share(self.capacities[link as usize], &mut visit.queue_demands, &self.queues);
        let mut lowest = f64::INFINITY;
        let mut change = 0.0f64;
        for demand in &visit.queue_demands {
            let elastic = &visit.elastic_demands[demand.start as usize..demand.end as usize];
            let queue_rate = share * self.queues[demand.queue as usize].weight;
            let (level, pass_fraction) = match demand.is_limited {
                false => (f64::INFINITY, 1.0),
                true if demand.unresponsive_rate >= queue_rate => {
                    (0.0, queue_rate / demand.unresponsive_rate)
                }
                true => (fill_level(queue_rate - demand.unresponsive_rate, elastic), 1.0),
            };
            change = change.max(self.set_level(demand, elastic, level, pass_fraction, step_fraction));
            lowest = lowest.min(self.levels[demand.queue as usize]);
        }
        self.link_min_levels[link as usize] = lowest;
        self.visit_buffers = visit;
        change
    }

    /// Collects the demands at the queues of a link.
    fn collect_demands(&self, link: u32, visit: &mut VisitBuffers) {
        visit.queue_demands.clear();
        visit.elastic_demands.clear();
        for queue in self.queues_at(link) {
            let from = visit.elastic_demands.len() as u32;
            let mut total = 0.0;
            for member in self.classes.elastic_members(queue) {
                let lowest = self.lowest_levels[member.class as usize].without(queue);
                let demand = member.max_demand.min(lowest);
                visit.elastic_demands.push((demand, member.flows));
                total += demand * member.flows;
            }
            let unresponsive: f64 = self
                .classes
                .unresponsive_members(queue)
                .iter()
                .map(|member| self.arriving_rate(member, queue))
                .sum();
            total += unresponsive;
            if visit.elastic_demands.len() as u32 > from
                || !self.classes.unresponsive_members(queue).is_empty()
            {
                let to = visit.elastic_demands.len() as u32;
                visit.queue_demands.push(QueueDemand {
                    queue,
                    start: from,
                    end: to,
                    unresponsive_rate: unresponsive,
                    total_rate: total,
                    is_limited: true,
                });
            }
        }
    }

    /// The traffic of an unresponsive class that passes the queues before `queue`.
    fn arriving_rate(&self, member: &QueueMember, queue: u32) -> f64 {
        let before = self.classes.member_queues(member).iter().take_while(|&&hop| hop != queue);
        let passes: f64 = before.map(|&hop| self.pass_fractions[hop as usize]).product();
        member.max_demand * member.flows * passes
    }

    /// Moves a queue's level and pass fraction towards the target level and fraction, by the fraction `step_fraction` of the
    /// way, and marks links.
    fn set_level(
        &mut self,
        queue_demand: &QueueDemand,
        elastic: &[(f64, f64)],
        level: f64,
        pass_fraction: f64,
        step_fraction: f64,
    ) -> f64 {
        let queue = queue_demand.queue as usize;
        let capacity = self.capacities[self.queues[queue].link as usize];
        let mut change = 0.0f64;
        let before = self.levels[queue];
        let mut after = level;
        if step_fraction < 1.0 && before.is_finite() && before != level {
            // A level at or above the largest demand limits no flow.
            let largest = elastic.iter().fold(0.0, |largest, &(demand, _)| f64::max(largest, demand));
            let next_level = before.min(largest) + step_fraction * (level.min(largest) - before.min(largest));
            after = if level.is_infinite() && next_level >= largest { level } else { next_level };
        }
        let flows: f64 = elastic.iter().map(|&(_, flows)| flows).sum();
        let differs = |a: f64, b: f64| {
            (a - b).abs() > rounding::QUEUE_RATE * a.min(b)
                && (a - b).abs() * flows > rounding::QUEUE_LOAD * capacity
        };
        self.levels[queue] = after;
        if after != before {
            for member in self.classes.elastic_members(queue_demand.queue) {
                self.lowest_levels[member.class as usize].update(
                    queue_demand.queue,
                    self.classes.member_queues(member),
                    &self.levels,
                );
            }
        }
        for (member, &(demand, _)) in self.classes.elastic_members(queue_demand.queue).iter().zip(elastic) {
            let (old, target) = (demand.min(before), demand.min(level));
            if differs(old, target) {
                change = change.max(((old - target).abs() / old.max(target)).min(1.0));
                mark_path(
                    self.classes.member_queues(member),
                    queue_demand.queue,
                    &self.queues,
                    &mut self.is_link_dirty,
                    &mut self.next_round_links,
                );
            }
        }
        let before = self.pass_fractions[queue];
        if (before - pass_fraction).abs() > rounding::QUEUE_RATE * before.max(pass_fraction) {
            self.pass_fractions[queue] = before + step_fraction * (pass_fraction - before);
            change = change.max((before - pass_fraction).abs());
            for member in self.classes.unresponsive_members(queue_demand.queue) {
                mark_path(
                    self.classes.member_queues(member),
                    queue_demand.queue,
                    &self.queues,
                    &mut self.is_link_dirty,
                    &mut self.next_round_links,
                );
            }
        }
        // A damped step stops short of its target, so the link needs another visit.
        if step_fraction < 1.0 && change > 0.0 {
            mark_link(self.queues[queue].link, &mut self.is_link_dirty, &mut self.next_round_links);
        }
        change
    }

    /// Extrapolates after some rounds.
    fn extrapolate_levels(&mut self, residual: f64) {
        match self.extrapolation.record_round(residual, &self.levels, &self.pass_fractions) {
            ExtrapolationAction::Wait => return,
            ExtrapolationAction::Extrapolate => {
                self.extrapolation.extrapolate(&mut self.levels, &mut self.pass_fractions)
            }
            ExtrapolationAction::Revert => {
                self.extrapolation.revert(&mut self.levels, &mut self.pass_fractions)
            }
        }
        for (class, lowest_levels) in (0..).zip(&mut self.lowest_levels) {
            *lowest_levels = LowestLevels::new(self.classes.class_queues(class), &self.levels);
        }
        for link in 0..self.capacities.len() as u32 {
            mark_link(link, &mut self.is_link_dirty, &mut self.next_round_links);
        }
    }

    /// Computes rates from levels.
    fn compute_rates(&mut self) {
        let classes = &self.classes;
        self.rates.clear();
        self.loads.fill(0.0);
        for class in 0..classes.max_demands.len() as u32 {
            let max_demand = classes.max_demands[class as usize];
            let mut rates =
                Rates { sending_rate: max_demand, delivered_rate: max_demand, limiting_link: None };
            if classes.unresponsive[class as usize] {
                let mut min_pass = 1.0;
                for (hop, flows) in classes.class_hops(class) {
                    let Queue { link, .. } = self.queues[hop as usize];
                    rates.delivered_rate *= self.pass_fractions[hop as usize];
                    self.loads[link as usize] += rates.delivered_rate * flows;
                    if self.pass_fractions[hop as usize] < min_pass {
                        min_pass = self.pass_fractions[hop as usize];
                        rates.limiting_link = Some(link);
                    }
                }
            } else {
                for &hop in classes.class_queues(class) {
                    if self.levels[hop as usize] < rates.sending_rate {
                        rates.sending_rate = self.levels[hop as usize];
                        rates.limiting_link = Some(self.queues[hop as usize].link);
                    }
                }
                rates.delivered_rate = rates.sending_rate;
                for (hop, flows) in classes.class_hops(class) {
                    self.loads[self.queues[hop as usize].link as usize] += rates.sending_rate * flows;
                }
            }
            self.rates.push(rates);
        }
    }

    /// Reduces rates that have not settled to what the links carry.
    fn reduce_to_capacity(&mut self) {
        for (class, rates) in self.rates.iter_mut().enumerate() {
            let mut cut = 1.0f64;
            for &hop in self.classes.class_queues(class as u32) {
                let link = self.queues[hop as usize].link as usize;
                if self.loads[link] > self.capacities[link] {
                    cut = cut.min(self.capacities[link] / self.loads[link]);
                }
            }
            rates.delivered_rate *= cut;
            if !self.classes.unresponsive[class] {
                rates.sending_rate = rates.delivered_rate;
            }
        }
    }
}

fn check_weight(queue: usize, weight: f64) -> Result<(), WfqError> {
    if (MIN_VALUE..=MAX_VALUE).contains(&weight) {
        Ok(())
    } else {
        Err(WfqError::InvalidWeight { queue, weight })
    }
}

/// The fraction of a step that a round takes. Half steps are slower, but damp oscillations.
fn step_fraction(round: u32) -> f64 {
    if round < UNDAMPED_ROUNDS { 1.0 } else { 0.5 }
}

/// Marks the links of a path, except the link of `queue`.
fn mark_path(path: &[u32], queue: u32, queues: &[Queue], dirty: &mut [bool], next: &mut Vec<u32>) {
    for &hop in path {
        if hop != queue {
            mark_link(queues[hop as usize].link, dirty, next);
        }
    }
}

fn mark_link(link: u32, dirty: &mut [bool], next: &mut Vec<u32>) {
    if !std::mem::replace(&mut dirty[link as usize], true) {
        next.push(link);
    }
}
