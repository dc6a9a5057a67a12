//! Rates that weighted queues settle at.
//!
//! Every link has queues with weights, and every class of flows uses one queue at each link of its path. Rates have settled
//! when at every link, given what arrives from elsewhere, all of this holds.
//!
//! - Between queues: a queue gets what it asks for or its weighted fair share, whichever is less. The shares are the weights
//!   times one number, the largest at which the link carries the sum (GPS: what a queue leaves, the backlogged
//!   ones share by weight).
//! - In a queue: unresponsive flows take what they send; if that is more than the queue gets, all lose the same part of
//!   it. Elastic flows share the rest max-min. The papers do not say this, but a queue of packets does it: it drops
//!   by arrivals, senders without congestion control do not mind, and those with it back off (NetShare 5.3 without
//!   mechanisms: TCP beside greedy UDP "receives zero throughput").
//! - An elastic flow asks at a link for the least that the other links of its path, and its own limit, let it have. An
//!   unresponsive one asks for what the links before have let through; what is dropped later has used them in vain
//!   (NetShare 3.2).
//!
//! Such rates exist: they are a fixed point of a continuous map of a bounded set of levels into itself. With one queue a
//! link and elastic flows, they are the max-min rates. In general they are not unique: with capacity 1 and two flows over
//! two links, weights 2:1 at one and 1:2 at the other, any split between 1/3 and 2/3 is such that each flow has a link
//! that gives it no more. Nor need queues settle at all: where each of several flows is limited by what
//! the next one leaves, rates may swing, in the map as in a network.
//!
//! The solver visits links and solves each exactly for what it is asked. It first climbs: of the links for which something
//! has changed, it takes the one with the lowest level. Where bottlenecks can be ordered (with one queue a link, they
//! always can) this is progressive filling, and ends. Circles of bottlenecks are closed in on by rounds over all links that something has
//! changed for, and by extrapolation from these rounds (`past`). What has not settled after 300 rounds is damped, and
//! after [`Wfq::MAX_ROUNDS`] the solver stops: rates are then cut to what links carry, and [`Settled::residual`]
//! says how far from settled they are. Where several answers exist, the order of visits picks one: by level, then by the link's
//! number.
//!
//! A visit of a link costs the links of the classes over it. With one queue a link there are one to three visits a link;
//! circles of bottlenecks take tens to hundreds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::order::Key;

mod classes;
mod error;
pub(super) mod filling;
mod past;

use classes::{Classes, Member};
pub use error::WfqError;
use filling::{Asked, fill, share};
use past::{Leap, Past};

/// The least weight, and the least number of flows.
pub const MIN: f64 = 1e-100;

/// The greatest weight, number of flows, capacity and rate: products of them are finite.
pub const MAX: f64 = 1e100;

/// A queue at a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Queue {
    /// The link, as a position in the list of capacities.
    pub link: u32,
    /// From [`MIN`] to [`MAX`].
    pub weight: f64,
}

/// What the flows of a class do with the bandwidth that they get.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Source {
    /// They take all there is (TCP).
    Elastic,
    /// They take all there is up to a rate, in bytes per second each.
    Capped(f64),
    /// They send at a rate, in bytes per second each, whatever arrives (UDP).
    Unresponsive(f64),
}

/// Flows that cross the same queues.
#[derive(Debug, Clone, Copy)]
pub struct Class<'a> {
    /// The queue at each link of the path, in order, as positions in the list of queues; no link twice. An elastic flow
    /// over no links has no limit.
    pub queues: &'a [u32],
    /// How many flows, from [`MIN`] to [`MAX`].
    pub flows: f64,
    /// What they send.
    pub source: Source,
}

/// What a flow of a class settles at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// What it sends, in bytes per second.
    pub sent: f64,
    /// What arrives.
    pub delivered: f64,
    /// The link that keeps it from more: the first one at which it gets the least, or loses the largest part. None if
    /// nothing but its source limits it.
    pub limit: Option<u32>,
}

/// How a solution was come by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settled {
    /// How many rounds it took.
    pub rounds: u32,
    /// How many visits of links.
    pub visits: u64,
    /// The largest change of a rate, as a part of it, in the last round. 0 if that round left no link that anything has changed
    /// for by more than rounding, so that the rates have settled.
    pub residual: f64,
}

/// Links with queues, and room to solve in.
#[derive(Debug, Clone)]
pub struct Wfq {
    capacities: Vec<f64>,
    queues: Vec<Queue>,
    /// The queues of each link, one link after the other.
    at: Vec<u32>,
    at_starts: Vec<u32>,
    classes: Classes,
    /// Of each queue: what it gives an elastic flow; infinite if that is not short.
    levels: Vec<f64>,
    /// Of each queue: the part of unresponsive flows that it lets through.
    passes: Vec<f64>,
    /// Of each link: the lowest of its levels when it was visited last.
    lowest: Vec<f64>,
    /// Links in the order of those levels, and the place of each in it.
    by_level: Vec<u32>,
    order: Vec<u32>,
    dirty: Vec<bool>,
    round: Vec<u32>,
    next: Vec<u32>,
    climbing: BinaryHeap<Reverse<(Key, u32)>>,
    visit: Visit,
    past: Past,
    rates: Vec<Rates>,
    loads: Vec<f64>,
}

/// What one visit of a link works with.
#[derive(Debug, Clone, Default)]
struct Visit {
    asked: Vec<Asked>,
    /// Of each elastic class of the queues, one queue after the other: what a flow asks for, and how many there are.
    elastic: Vec<(f64, f64)>,
}

/// Visits for each link before the rounds.
const CLIMB: u64 = 8;

/// Rounds until they are damped.
const DAMPED: u32 = 300;

/// A change of a rate below this part of it is none.
const SAME: f64 = 1e-12;

/// A change of a link's load below this part of its capacity is rounding.
const ROUNDING: f64 = 2e-15;

impl Wfq {
    /// The most rounds of one solution.
    pub const MAX_ROUNDS: u32 = 1000;

    /// Links of these capacities, in bytes per second, with these queues.
    ///
    /// # Errors
    /// If a number is out of its range.
    pub fn new(capacities: &[f64], queues: &[Queue]) -> Result<Wfq, WfqError> {
        let links = capacities.len();
        if let Some(link) = capacities.iter().position(|c| !(0.0..=MAX).contains(c)) {
            return Err(WfqError::Capacity { link, capacity: capacities[link] });
        }
        let mut at_starts = vec![0u32; links + 1];
        for (number, queue) in queues.iter().enumerate() {
            if queue.link as usize >= links {
                return Err(WfqError::Link { queue: number, link: queue.link, links });
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
        Ok(Wfq {
            capacities: capacities.to_vec(),
            queues: queues.to_vec(),
            at,
            at_starts,
            classes: Classes::default(),
            levels: vec![f64::INFINITY; queues.len()],
            passes: vec![1.0; queues.len()],
            lowest: vec![0.0; links],
            by_level: Vec::new(),
            order: vec![0; links],
            dirty: vec![false; links],
            round: Vec::new(),
            next: Vec::new(),
            climbing: BinaryHeap::new(),
            visit: Visit::default(),
            past: Past::default(),
            rates: Vec::new(),
            loads: vec![0.0; links],
        })
    }

    /// Changes what a link carries.
    ///
    /// # Errors
    /// If the capacity is below zero or beyond [`MAX`].
    pub fn set_capacity(&mut self, link: usize, capacity: f64) -> Result<(), WfqError> {
        if !(0.0..=MAX).contains(&capacity) {
            return Err(WfqError::Capacity { link, capacity });
        }
        self.capacities[link] = capacity;
        Ok(())
    }

    /// Changes a queue's weight.
    ///
    /// # Errors
    /// If the weight is not between [`MIN`] and [`MAX`].
    pub fn set_weight(&mut self, queue: usize, weight: f64) -> Result<(), WfqError> {
        check_weight(queue, weight)?;
        self.queues[queue].weight = weight;
        Ok(())
    }

    /// The rates of the last solution, by class.
    pub fn rates(&self) -> &[Rates] {
        &self.rates
    }

    /// Finds the rates of these classes. The answer does not depend on earlier ones.
    ///
    /// # Errors
    /// If a class is not what it has to be; [`Wfq::rates`] are then those of before.
    pub fn solve(&mut self, classes: &[Class<'_>]) -> Result<Settled, WfqError> {
        self.classes.fill(classes, &self.queues, self.capacities.len())?;
        self.levels.fill(f64::INFINITY);
        self.passes.fill(1.0);
        self.next.clear();
        for link in 0..self.capacities.len() as u32 {
            let flows: f64 = self
                .queues_at(link)
                .map(|queue| {
                    let members = self.classes.elastic(queue).iter().chain(self.classes.unresponsive(queue));
                    members.map(|member| member.flows).sum::<f64>()
                })
                .sum();
            self.dirty[link as usize] = flows > 0.0;
            if flows > 0.0 {
                self.lowest[link as usize] = self.capacities[link as usize] / flows;
                self.next.push(link);
            }
        }
        self.past.clear();
        let mut settled = Settled { rounds: 0, visits: 0, residual: 0.0 };
        settled.visits = self.climb();
        while !self.next.is_empty() && settled.rounds < Wfq::MAX_ROUNDS {
            settled.residual = 0.0;
            std::mem::swap(&mut self.round, &mut self.next);
            self.next.clear();
            let lowest = &self.lowest;
            self.round
                .sort_unstable_by(|&a, &b| lowest[a as usize].total_cmp(&lowest[b as usize]).then(a.cmp(&b)));
            let part = part(settled.rounds);
            for at in 0..self.round.len() {
                let link = self.round[at];
                // It may have been marked again since the round began: this visit sees that too.
                self.dirty[link as usize] = false;
                let change = self.visit(link, part);
                settled.residual = settled.residual.max(change);
                settled.visits += 1;
            }
            // A link that was marked and then visited in the same round is clean.
            let dirty = &self.dirty;
            self.next.retain(|&link| dirty[link as usize]);
            self.next.sort_unstable();
            self.next.dedup();
            settled.rounds += 1;
            if !self.next.is_empty() {
                self.leap(settled.residual);
            }
        }
        if self.next.is_empty() {
            settled.residual = 0.0;
        }
        self.conclude();
        if settled.residual > 0.0 {
            self.cut();
        }
        Ok(settled)
    }

    fn queues_at(&self, link: u32) -> impl Iterator<Item = u32> + use<'_> {
        let link = link as usize;
        self.at[self.at_starts[link] as usize..self.at_starts[link + 1] as usize].iter().copied()
    }

    /// Visits links from the lowest level up, as progressive filling does, for a number of visits. Where bottlenecks can be
    /// ordered this is nearly all there is to do. The answer is how many visits there were.
    fn climb(&mut self) -> u64 {
        let most: u64 = CLIMB * self.next.len() as u64;
        let mut visits = 0;
        loop {
            let lowest = &self.lowest;
            self.climbing.extend(self.next.drain(..).map(|link| Reverse((Key(lowest[link as usize]), link))));
            if visits == most {
                break;
            }
            let Some(Reverse((_, link))) = self.climbing.pop() else { break };
            self.dirty[link as usize] = false;
            self.visit(link, 1.0);
            visits += 1;
        }
        self.next.extend(self.climbing.drain().map(|Reverse((_, link))| link));
        // From now on links are visited in the order of the levels that they have got to.
        self.by_level.clear();
        self.by_level.extend(0..self.lowest.len() as u32);
        let lowest = &self.lowest;
        self.by_level.sort_by(|&a, &b| lowest[a as usize].total_cmp(&lowest[b as usize]));
        for (place, &link) in self.by_level.iter().enumerate() {
            self.order[link as usize] = place as u32;
        }
        visits
    }

    /// Sets the levels of a link's queues to what its classes ask for now, or goes this part of the way there, and marks the
    /// links that this changes something for. The answer is the largest change of a rate.
    fn visit(&mut self, link: u32, part: f64) -> f64 {
        let mut visit = std::mem::take(&mut self.visit);
        self.ask(link, &mut visit);
        let share = share(self.capacities[link as usize], &mut visit.asked, &self.queues);
        let mut lowest = f64::INFINITY;
        let mut change = 0.0f64;
        for asked in &visit.asked {
            let elastic = &visit.elastic[asked.from as usize..asked.to as usize];
            let gets = share * self.queues[asked.queue as usize].weight;
            let (level, pass) = match asked.short {
                false => (f64::INFINITY, 1.0),
                true if asked.unresponsive >= gets => (0.0, gets / asked.unresponsive),
                true => (fill(gets - asked.unresponsive, elastic), 1.0),
            };
            change = change.max(self.put(asked, elastic, level, pass, part));
            lowest = lowest.min(self.levels[asked.queue as usize]);
        }
        self.lowest[link as usize] = lowest;
        self.visit = visit;
        change
    }

    /// Finds out what the queues of a link are asked for.
    fn ask(&self, link: u32, visit: &mut Visit) {
        visit.asked.clear();
        visit.elastic.clear();
        for queue in self.queues_at(link) {
            let from = visit.elastic.len() as u32;
            let mut total = 0.0;
            for member in self.classes.elastic(queue) {
                let mut ask = member.ask;
                for &hop in self.classes.path(member) {
                    if hop != queue && self.levels[hop as usize] < ask {
                        ask = self.levels[hop as usize];
                    }
                }
                visit.elastic.push((ask, member.flows));
                total += ask * member.flows;
            }
            let unresponsive: f64 =
                self.classes.unresponsive(queue).iter().map(|member| self.arrives(member, queue)).sum();
            total += unresponsive;
            if visit.elastic.len() as u32 > from || !self.classes.unresponsive(queue).is_empty() {
                let to = visit.elastic.len() as u32;
                visit.asked.push(Asked { queue, from, to, unresponsive, total, short: true });
            }
        }
    }

    /// What the links before a queue let through of an unresponsive class.
    fn arrives(&self, member: &Member, queue: u32) -> f64 {
        let before = self.classes.path(member).iter().take_while(|&&hop| hop != queue);
        let passes: f64 = before.map(|&hop| self.passes[hop as usize]).product();
        member.ask * member.flows * passes
    }

    /// Gives a queue a level and a part to let through, or values this part of the way there, and marks links.
    fn put(&mut self, asked: &Asked, elastic: &[(f64, f64)], level: f64, pass: f64, part: f64) -> f64 {
        let queue = asked.queue as usize;
        let capacity = self.capacities[self.queues[queue].link as usize];
        let mut change = 0.0f64;
        let before = self.levels[queue];
        let mut after = level;
        if part < 1.0 && before.is_finite() && before != level {
            // Nobody is limited from the largest ask on.
            let largest = elastic.iter().fold(0.0, |largest, &(ask, _)| f64::max(largest, ask));
            let towards = before.min(largest) + part * (level.min(largest) - before.min(largest));
            after = if level.is_infinite() && towards >= largest { level } else { towards };
        }
        let flows: f64 = elastic.iter().map(|&(_, flows)| flows).sum();
        let differs =
            |a: f64, b: f64| (a - b).abs() > SAME * a.min(b) && (a - b).abs() * flows > ROUNDING * capacity;
        self.levels[queue] = after;
        for (member, &(ask, _)) in self.classes.elastic(asked.queue).iter().zip(elastic) {
            let (old, goal) = (ask.min(before), ask.min(level));
            if differs(old, goal) {
                change = change.max(((old - goal).abs() / old.max(goal)).min(1.0));
                mark(self.classes.path(member), asked.queue, &self.queues, &mut self.dirty, &mut self.next);
            }
        }
        let before = self.passes[queue];
        if (before - pass).abs() > SAME * before.max(pass) {
            self.passes[queue] = before + part * (pass - before);
            change = change.max((before - pass).abs());
            for member in self.classes.unresponsive(asked.queue) {
                mark(self.classes.path(member), asked.queue, &self.queues, &mut self.dirty, &mut self.next);
            }
        }
        // Half way is not there: the link has to be visited again.
        if part < 1.0 && change > 0.0 {
            mark_link(self.queues[queue].link, &mut self.dirty, &mut self.next);
        }
        change
    }

    /// After some rounds, goes where they lead to.
    fn leap(&mut self, residual: f64) {
        match self.past.after(residual, &self.levels, &self.passes) {
            Leap::Wait => return,
            Leap::To => self.past.leap(&mut self.levels, &mut self.passes),
            Leap::Back => self.past.back(&mut self.levels, &mut self.passes),
        }
        for link in 0..self.capacities.len() as u32 {
            mark_link(link, &mut self.dirty, &mut self.next);
        }
    }

    /// Rates from levels.
    fn conclude(&mut self) {
        let classes = &self.classes;
        self.rates.clear();
        self.loads.fill(0.0);
        for class in 0..classes.flows.len() as u32 {
            let (flows, ask) = (classes.flows[class as usize], classes.asks[class as usize]);
            let mut rates = Rates { sent: ask, delivered: ask, limit: None };
            if classes.unresponsive[class as usize] {
                let mut least = 1.0;
                for &hop in classes.hops(class) {
                    let Queue { link, .. } = self.queues[hop as usize];
                    rates.delivered *= self.passes[hop as usize];
                    self.loads[link as usize] += rates.delivered * flows;
                    if self.passes[hop as usize] < least {
                        least = self.passes[hop as usize];
                        rates.limit = Some(link);
                    }
                }
            } else {
                for &hop in classes.hops(class) {
                    if self.levels[hop as usize] < rates.sent {
                        rates.sent = self.levels[hop as usize];
                        rates.limit = Some(self.queues[hop as usize].link);
                    }
                }
                rates.delivered = rates.sent;
                for &hop in classes.hops(class) {
                    self.loads[self.queues[hop as usize].link as usize] += rates.sent * flows;
                }
            }
            self.rates.push(rates);
        }
    }

    /// Cuts rates that have not settled to what the links carry.
    fn cut(&mut self) {
        for (class, rates) in self.rates.iter_mut().enumerate() {
            let mut cut = 1.0f64;
            for &hop in self.classes.hops(class as u32) {
                let link = self.queues[hop as usize].link as usize;
                if self.loads[link] > self.capacities[link] {
                    cut = cut.min(self.capacities[link] / self.loads[link]);
                }
            }
            rates.delivered *= cut;
            if !self.classes.unresponsive[class] {
                rates.sent = rates.delivered;
            }
        }
    }
}

pub(super) fn check_weight(queue: usize, weight: f64) -> Result<(), WfqError> {
    if (MIN..=MAX).contains(&weight) { Ok(()) } else { Err(WfqError::Weight { queue, weight }) }
}

/// How far a round goes towards what links ask for. Half way is slower, but settles what swings.
fn part(round: u32) -> f64 {
    if round < DAMPED { 1.0 } else { 0.5 }
}

/// Marks the links of a path, but for that of one queue.
fn mark(path: &[u32], queue: u32, queues: &[Queue], dirty: &mut [bool], next: &mut Vec<u32>) {
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
