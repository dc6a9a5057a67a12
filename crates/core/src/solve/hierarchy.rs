//! Weighted hierarchical max-min sharing: links between services by weight, a service's part between its flows
//! equally.
//!
//! NetShare (UCSD 2010), section 2 and the central allocator of 3.3, with the guarantees and excess weights of Fig.
//! 5.
//!
//! # What is computed
//!
//! Each link has an *offer* for each service: the most that one flow of that service may have on it. A flow's rate is
//! the least of the offers on its path and its demand. An offer follows from what the link's flows can get elsewhere
//! (the least of their other links' offers, and their demands; a flow's *limit*):
//!
//! - With `d` the sum of a service's limits, `m` its guarantee and `x` its excess weight on the link, every service
//!   gets `min(d, m + x * level)`, with the level at which the link is full. Without guarantees, `x` is the service's
//!   weight.
//! - Inside the service, flows share that by max-min: each gets the lower of its limit and the offer.
//! - If the service can have all of its limits, its offer is what its flows with the highest limit would get if they
//!   had none.
//!
//! So every flow that has less than its demand has a bottleneck: a full link where no flow of its service has more,
//! and where no service has more in proportion to its weight. (A service with excess weight 0 stops at its
//! guarantee.)
//!
//! Over long paths there can be several such rates (the tests have a network of nine links with three). This is what is
//! chosen: higher offers at other links never raise an offer, so
//! from *no limits* the rules above give lower bounds of all offers; limits from those bounds give upper bounds;
//! limits from these give higher lower bounds, and so on. Where the bounds meet, the rates are the only ones. Where
//! they do not, every flow gets what its lower bounds assure, and what is left then goes to all flows that can have
//! more, max-min and flow by flow. The bounds depend on neither the order nor the unit of anything. On large networks
//! whose bounds close slowly, offers are settled from between them instead, link by link: every flow has its bottleneck
//! then too, but where there are several such rates, which of them may depend on the order of links and on earlier changes.
//! With paths of one or two links, bounds that do not meet take loops of links through which changes come back undiminished: the tests have
//! one, and about one in ten thousand small random networks is one.
//!
//! # Where the paper differs
//!
//! The paper's allocator takes the link with the least `B / (sum of weights)`, gives each service with open flows
//! there its weight's part, and takes these rates off the other links. It answers the same on all of the paper's
//! examples. But what a service has from flows fixed before does not count towards its part: its weight counts in
//! full as long as one flow is open. So another link's `B / (sum of weights)` may *fall*. A heap with old entries
//! then hands out more than links carry; and with the true minimum in each step a service with flows over many slow
//! links gets nearly all of a fast link that they share, which breaks what section 6 promises. Here, parts are of the
//! service's total on a link. The tests show both.
//!
//! # Cost
//!
//! A round of bounds visits every class once at each of its links, and only what changed again. Where all links are full
//! of flows that are limited at one end or the other, bounds come together slowly, by some percent a round: after a
//! number of rounds, offers from between them are made anew in turn until none moves. That settles on rates with
//! bottlenecks, but does not prove that there are no others, and it still takes a few hundred rounds. After single changes,
//! [`Hierarchy::solve`] starts at the links of the changed classes and follows the offers that move, until every flow
//! has a bottleneck again. Where the rates are the only ones, these are the same as from the start. How far changes
//! go is up to the network: many stay with a few links, but in the worst case all follow; then it solves from the
//! start.

mod divide;
mod rest;
mod shares;

use divide::{Claim, Divider};
pub use shares::{Guarantee, HierarchyError, Shares};

/// Offers that differ by less than this part are the same.
const SAME: f64 = 1e-12;
/// Bounds that are this close, as a part, have met.
const MET: f64 = 1e-10;
/// Rounds of bounds, at most. Each brings the bounds closer by some factor; this many are only needed where that is nearly one.
const ROUNDS: usize = 1000;
/// Marks the `next` of a class over three links or more.
const LONG: u32 = 1 << 31;

/// A class of flows: one service, one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(u32);

/// How a solution was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Solved {
    /// Whether every flow below its demand has a bottleneck. If not, the bounds did not meet, and what they left was
    /// handed out.
    pub settled: bool,
    /// Whether it took bounds from the start.
    pub full: bool,
    /// How many classes were visited, counted once for each link and visit.
    pub visits: u64,
}

/// A class at one of its links.
#[derive(Debug, Clone, Copy)]
struct Member {
    /// The class's cell at its other link; [`LONG`] and the class if it has several; the last cell of all if it has none.
    next: u32,
    flows: u32,
    demand: f64,
}

/// A link and a service.
#[derive(Debug, Clone, Default)]
struct Cell {
    members: Vec<Member>,
    classes: Vec<u32>,
    flows: u64,
}

/// Offers of all cells, and what they were made from.
#[derive(Debug, Clone)]
struct Offers {
    /// By cell, and infinity for [`Member::next`] of one link.
    offer: Vec<f64>,
    /// What the service's flows on the link can get elsewhere.
    wanted: Vec<f64>,
    /// What the link has for the service.
    part: Vec<f64>,
    /// Whether limits of the cell's flows changed since.
    stale: Vec<bool>,
    /// Links with such cells.
    queue: Vec<u32>,
    queued: Vec<bool>,
}

impl Offers {
    fn new(cells: usize, links: usize) -> Offers {
        Offers {
            offer: vec![f64::INFINITY; cells + 1],
            wanted: vec![0.0; cells],
            part: vec![0.0; cells],
            stale: vec![false; cells],
            queue: Vec::new(),
            queued: vec![false; links],
        }
    }

    fn forget(&mut self) {
        self.offer.fill(f64::INFINITY);
        self.mark_all();
    }

    fn mark_all(&mut self) {
        self.stale.fill(true);
        self.queued.fill(true);
        self.queue.clear();
        self.queue.extend(0..self.queued.len() as u32);
    }

    fn mark(&mut self, cell: usize, services: usize) {
        self.stale[cell] = true;
        let link = cell / services;
        if !self.queued[link] {
            self.queued[link] = true;
            self.queue.push(link as u32);
        }
    }
}

/// The lower bounds, and what is in force after a solution.
const LOW: usize = 0;
/// The upper bounds.
const HIGH: usize = 1;

/// Services on links, their classes of flows, and the rates these get.
#[derive(Debug, Clone)]
pub struct Hierarchy {
    capacities: Vec<f64>,
    shares: Shares,
    /// By cell.
    guarantees: Vec<f64>,
    services: usize,
    cells: Vec<Cell>,
    /// By class: where its path begins among `path`, and an end.
    starts: Vec<u32>,
    /// Cells, one for each link of a path, and the class's place among their members.
    path: Vec<(u32, u32)>,
    offers: [Offers; 2],
    /// By class, what it gets on top where the bounds did not meet; empty where they did.
    extra: Vec<f64>,
    /// Whether the offers were right before the changes that are marked.
    warm: bool,
    divider: Divider,
    visits: u64,
    todo: Vec<u32>,
}

impl Hierarchy {
    /// Links without flows. Capacities are in bytes per second.
    ///
    /// # Errors
    /// A capacity that is not finite, or below zero; guarantees on a link that together exceed it.
    pub fn new(capacities: &[f64], shares: Shares) -> Result<Hierarchy, HierarchyError> {
        let (links, services) = (capacities.len(), shares.services());
        let cells = links.saturating_mul(services);
        if cells >= LONG as usize {
            return Err(HierarchyError::TooMany { what: "links times services", most: LONG - 1 });
        }
        let guarantees = shares.table(capacities)?;
        Ok(Hierarchy {
            capacities: capacities.to_vec(),
            shares,
            guarantees,
            services,
            cells: vec![Cell::default(); cells],
            starts: vec![0],
            path: Vec::new(),
            offers: [Offers::new(cells, links), Offers::new(cells, links)],
            extra: Vec::new(),
            warm: false,
            divider: Divider::default(),
            visits: 0,
            todo: Vec::new(),
        })
    }

    /// Adds a class: `flows` flows of a service, each over all of `links`, and each wanting `demand` bytes per second or,
    /// if that is infinite, whatever it can get. The flows may be none yet.
    ///
    /// # Errors
    /// An unknown service or link, a path without links or with one twice, a demand that is negative or NaN.
    pub fn add(
        &mut self,
        service: usize,
        links: &[u32],
        flows: u32,
        demand: f64,
    ) -> Result<ClassId, HierarchyError> {
        if service >= self.services {
            return Err(HierarchyError::Service { service, services: self.services });
        }
        check_demand(demand)?;
        if links.is_empty() {
            return Err(HierarchyError::NoLinks);
        }
        for (at, &link) in links.iter().enumerate() {
            if link as usize >= self.capacities.len() {
                return Err(HierarchyError::Link { link, links: self.capacities.len() });
            }
            if links[..at].contains(&link) {
                return Err(HierarchyError::Twice { link });
            }
        }
        let class = self.starts.len() - 1;
        if class >= LONG as usize || self.path.len() + links.len() > u32::MAX as usize {
            return Err(HierarchyError::TooMany { what: "classes", most: LONG - 1 });
        }
        let class = class as u32;
        let cell = |link: u32| link as usize * self.services + service;
        for (at, &link) in links.iter().enumerate() {
            let next = match links.len() {
                1 => self.cells.len() as u32,
                2 => cell(links[1 - at]) as u32,
                _ => LONG | class,
            };
            let place = &mut self.cells[cell(link)];
            self.path.push((cell(link) as u32, place.members.len() as u32));
            place.members.push(Member { next, flows, demand });
            place.classes.push(class);
            place.flows += u64::from(flows);
            self.offers[LOW].mark(cell(link), self.services);
        }
        self.starts.push(self.path.len() as u32);
        Ok(ClassId(class))
    }

    /// Changes how many flows a class has.
    pub fn set_flows(&mut self, class: ClassId, flows: u32) {
        self.change(class, |cell, place| {
            let member = &mut cell.members[place];
            cell.flows = cell.flows - u64::from(member.flows) + u64::from(flows);
            member.flows = flows;
        });
    }

    /// Changes what each flow of a class wants.
    ///
    /// # Errors
    /// A demand that is negative or NaN.
    pub fn set_demand(&mut self, class: ClassId, demand: f64) -> Result<(), HierarchyError> {
        check_demand(demand)?;
        self.change(class, |cell, place| cell.members[place].demand = demand);
        Ok(())
    }

    fn change(&mut self, class: ClassId, apply: impl Fn(&mut Cell, usize)) {
        for at in self.path_of(class.0) {
            let (cell, place) = self.path[at];
            apply(&mut self.cells[cell as usize], place as usize);
            self.offers[LOW].mark(cell as usize, self.services);
        }
    }

    fn path_of(&self, class: u32) -> std::ops::Range<usize> {
        self.starts[class as usize] as usize..self.starts[class as usize + 1] as usize
    }

    /// How many classes there are.
    pub fn classes(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many flows a class has.
    pub fn flows(&self, class: ClassId) -> u32 {
        let (cell, place) = self.path[self.starts[class.0 as usize] as usize];
        self.cells[cell as usize].members[place as usize].flows
    }

    /// The rate of each flow of a class by the last solution, in bytes per second.
    pub fn rate(&self, class: ClassId) -> f64 {
        self.rate_by(LOW, class.0) + self.extra.get(class.0 as usize).copied().unwrap_or(0.0)
    }

    fn rate_by(&self, bound: usize, class: u32) -> f64 {
        let path = &self.path[self.path_of(class)];
        let demand = self.cells[path[0].0 as usize].members[path[0].1 as usize].demand;
        path.iter().map(|&(cell, _)| self.offers[bound].offer[cell as usize]).fold(demand, f64::min)
    }

    /// Brings the rates up to date with the changes since the last solution.
    pub fn solve(&mut self) -> Solved {
        self.visits = 0;
        if self.warm && self.repair() {
            return Solved { settled: true, full: false, visits: self.visits };
        }
        self.solve_full()
    }

    /// Solves from the start, whatever is known.
    pub fn solve_full(&mut self) -> Solved {
        self.visits = 0;
        self.extra.clear();
        self.offers.iter_mut().for_each(Offers::forget);
        for _ in 0..ROUNDS {
            self.round(HIGH, LOW);
            self.round(LOW, HIGH);
            if self.offers[LOW].queue.is_empty() {
                break;
            }
            if self.visits > 100_000 + 20 * self.path.len() as u64 {
                if self.approach() {
                    return Solved { settled: true, full: true, visits: self.visits };
                }
                break;
            }
        }
        let settled = self.bounds_meet();
        if settled {
            self.adopt();
        } else {
            self.warm = false;
            self.hand_out_rest();
        }
        Solved { settled, full: true, visits: self.visits }
    }

    /// From between bounds that come together slowly: makes all offers anew from those in force, over and over, until none
    /// moves. That takes half the rounds. If it does not end, the lower bounds are as they were.
    fn approach(&mut self) -> bool {
        let low = self.offers[LOW].clone();
        let (before, after) = self.offers.split_at_mut(HIGH);
        let middle = |(low, high): (&mut f64, &f64)| {
            if high.is_finite() {
                *low = (*low * high).sqrt();
            }
        };
        before[LOW].offer.iter_mut().zip(&after[0].offer).for_each(middle);
        before[LOW].mark_all();
        self.warm = self.sweep(self.visits + ROUNDS as u64 * self.path.len() as u64);
        if !self.warm {
            self.offers[LOW] = low;
        }
        self.warm
    }

    /// Whether both bounds give the same rates.
    fn bounds_meet(&self) -> bool {
        let apart = |cell: usize| {
            let (low, high) = (self.offers[LOW].offer[cell], self.offers[HIGH].offer[cell]);
            high > low * (1.0 + MET)
        };
        let same = |class: u32| self.rate_by(HIGH, class) <= self.rate_by(LOW, class) * (1.0 + MET);
        (0..self.cells.len()).filter(|&cell| apart(cell)).all(|cell| {
            let Cell { members, classes, .. } = &self.cells[cell];
            members.iter().zip(classes).all(|(member, &class)| member.flows == 0 || same(class))
        })
    }

    /// Makes the lower bounds the offers in force. Where they were made from upper bounds that differ, which limits nobody,
    /// they are made again, so that a repair can begin with them.
    fn adopt(&mut self) {
        let low = self.offers[LOW].offer.clone();
        for (cell, &low) in low.iter().enumerate().take(self.cells.len()) {
            if self.offers[HIGH].offer[cell] > low * (1.0 + 1e-12) && self.cells[cell].flows > 0 {
                self.mark_others(cell, LOW, 0.0);
            }
        }
        self.warm = true;
        if !self.repair() {
            self.offers[LOW].offer = low;
        }
    }

    /// Follows the marked changes until no offer moves. Gives up if that gets as much work as a solution from the start.
    fn repair(&mut self) -> bool {
        self.warm = self.sweep(self.visits + 2 * self.path.len() as u64 + 1000);
        self.warm
    }

    /// Makes marked offers anew from those in force until no offer moves, or gives up after so many rounds or visits.
    fn sweep(&mut self, most_visits: u64) -> bool {
        for _ in 0..ROUNDS {
            if self.offers[LOW].queue.is_empty() {
                return true;
            }
            if self.visits > most_visits {
                return false;
            }
            // In the order of links: where these come in layers, a round hands on from one layer to the next.
            self.offers[LOW].queue.sort_unstable();
            self.round(LOW, LOW);
        }
        false
    }

    /// Makes the offers `to` anew at all links that are marked, with limits by the offers `from`.
    fn round(&mut self, from: usize, to: usize) {
        let mut todo = std::mem::take(&mut self.todo);
        std::mem::swap(&mut todo, &mut self.offers[to].queue);
        for &link in &todo {
            self.offers[to].queued[link as usize] = false;
            self.divide(link as usize, from, to);
        }
        todo.clear();
        self.todo = todo;
    }

    fn divide(&mut self, link: usize, from: usize, to: usize) {
        let cells = link * self.services..(link + 1) * self.services;
        let mut divider = std::mem::take(&mut self.divider);
        divider.clear();
        for (service, cell) in cells.clone().enumerate() {
            if self.cells[cell].flows == 0 {
                // Offers to nobody; whoever comes marks the cell.
                self.offers[to].offer[cell] = f64::INFINITY;
                self.offers[to].stale[cell] = false;
                continue;
            }
            let mut limits = None;
            if self.offers[to].stale[cell] {
                let gathered = self.gather(&mut divider, cell, from);
                self.offers[to].wanted[cell] = gathered.wanted;
                limits = Some(gathered);
            }
            divider.claims.push(Claim {
                service: service as u32,
                wanted: self.offers[to].wanted[cell],
                guarantee: self.guarantees[cell],
                excess: self.shares.excess(service),
                part: 0.0,
                limits,
            });
        }
        divider.divide(self.capacities[link]);
        for at in 0..divider.claims.len() {
            let claim = divider.claims[at];
            let cell = cells.start + claim.service as usize;
            let before = std::mem::replace(&mut self.offers[to].part[cell], claim.part);
            let stale = std::mem::take(&mut self.offers[to].stale[cell]);
            if !stale && (claim.part - before).abs() <= SAME * before {
                self.offers[to].part[cell] = before;
                continue;
            }
            let limits = match claim.limits {
                Some(limits) => limits,
                None => {
                    // Limits above the offer may have moved unmarked; now that it moves, they may count.
                    let limits = self.gather(&mut divider, cell, from);
                    if limits.wanted != claim.wanted {
                        self.offers[to].mark(cell, self.services);
                    }
                    limits
                }
            };
            let old = self.offers[to].offer[cell];
            let new = divider.offer(&limits, claim.part, old);
            if new != old && (old.is_infinite() || (new - old).abs() > SAME * old) {
                self.offers[to].offer[cell] = new;
                self.mark_others(cell, from, new.min(old));
            }
        }
        self.divider = divider;
    }

    /// Puts the limits of a cell's flows by the offers `from` into the divider.
    fn gather(&mut self, divider: &mut Divider, cell: usize, from: usize) -> divide::Limits {
        let offer = &self.offers[from].offer[..];
        let members = &self.cells[cell].members;
        self.visits += members.len() as u64;
        divider.gather(members.iter().map(|member| {
            let limit = if member.next & LONG == 0 {
                offer[member.next as usize]
            } else {
                let path = &self.path[self.path_of(member.next & !LONG)];
                let others = path.iter().filter(|&&(other, _)| other as usize != cell);
                others.map(|&(other, _)| offer[other as usize]).fold(f64::INFINITY, f64::min)
            };
            (member.demand.min(limit), member.flows)
        }))
    }

    /// Marks those other cells of a cell's flows whose offers in `whose` are above `least`, the least that the limit was
    /// or is: a limit counts only below the offer.
    fn mark_others(&mut self, cell: usize, whose: usize, least: f64) {
        let Hierarchy { cells, offers, path, starts, services, .. } = self;
        let offers = &mut offers[whose];
        let mut mark = |other: usize| {
            if other != cell && offers.offer[other] >= least && !offers.stale[other] {
                offers.mark(other, *services);
            }
        };
        for member in &cells[cell].members {
            // The last cell of all stands for no link.
            if member.flows == 0 || member.demand <= least || member.next as usize == cells.len() {
                continue;
            }
            if member.next & LONG == 0 {
                mark(member.next as usize);
            } else {
                let class = (member.next & !LONG) as usize;
                let path = &path[starts[class] as usize..starts[class + 1] as usize];
                path.iter().for_each(|&(other, _)| mark(other as usize));
            }
        }
    }
}

fn check_demand(demand: f64) -> Result<(), HierarchyError> {
    if demand >= 0.0 { Ok(()) } else { Err(HierarchyError::Demand { demand }) }
}
