//! Weighted hierarchical max-min sharing: links between services by weight, a service's part between its flows
//! equally.
//!
//! NetShare (UCSD 2010), section 2 and the central allocator of 3.3, with the guarantees and excess weights of Fig.
//! 5.
//!
//! # What is computed
//!
//! **What flows are assured.** Each link has an *offer* for each service: the most that one flow of that service may have
//! on it. It follows from what the link's flows can get elsewhere (the least of their other links' offers, and their
//! demands; a flow's *limit*):
//!
//! - With `d` the sum of a service's limits, `m` its guarantee and `x` its excess weight on the link, every service
//!   gets `min(d, m + x * level)`, with the level at which the link is full. Without guarantees, `x` is the service's
//!   weight.
//! - Inside the service, flows share that by max-min: each gets the lower of its limit and the offer.
//! - If the service can have all of its limits, its offer is what one flow with the highest limit would get if it alone
//!   had none.
//!
//! Higher offers at other links never raise an offer. So from *no limits but demands* these rules give lower bounds of all
//! offers; limits from those bounds give upper bounds; limits from these give higher lower bounds, and so on. There are
//! three rounds of lower bounds, with two of upper ones between them. The last lower bounds are what a flow is assured: the
//! least of them on its path, or its demand. The first round alone is what weights and guarantees promise if everybody else
//! wants all that there is, so no flow has less than that.
//!
//! **What is left.** All rates rise from what is assured by the same factor. A flow stops at its demand or when one of its
//! links is full, a service without excess weight on a link where it has its guarantee; the others go on. So no link is
//! over its capacity, and whoever has less than its demand has a full link. Flows that are assured nothing,
//! because guarantees take all of a link, come after that and share what is left then, max-min.
//!
//! Where the bounds meet, nothing is left, and the rates are the only ones where every flow below its demand has a
//! bottleneck: a full link where no flow of its service has more, and where no service has more in proportion to its weight.
//! [`Solved::settled`] says so. The definition depends on neither the order nor the unit of anything, and small changes of
//! what goes in make small changes of what comes out.
//!
//! # Why not bottlenecks alone
//!
//! They do not determine the rates: the tests have a network of nine links with three solutions, and one of three links
//! where bounds stay apart for ever, as changes come back undiminished around a loop. Where all links are full of flows
//! that are limited at one end or the other, bounds come closer by some percent a round, so that it takes hundreds of
//! passes over all classes. Three rounds settle what services are entitled to where a few links decide over it; what
//! remains between the bounds goes to everybody in proportion.
//!
//! So rates are not those of bottlenecks where bounds stay apart. `make allocator` measures how far they are on a fabric with random
//! flows (docs/results/allocator.md): next to nothing for most flows where links have few, a tenth on average where they have
//! a hundred thousand on 4,096 links, and half for some; all of them together get the same to a thousandth.
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
//! A stage of bounds visits every class once at each of its links at most, and from the third on only where the one two
//! before saw other limits; an offer is found by Newton's method in a few passes over a service's limits on the link.
//! The factors are found by filling: the link with the lowest is fixed first, others only rise, so a heap of links with
//! old entries is right, and each class is stopped once. That is O(classes x links of a path + links log links) for a
//! fixed number of stages, whatever the demands. A class stores no rate: it is read off the levels of its services on its
//! links, so that a level may change without a visit to its classes.
//!
//! After changes, [`Hierarchy::solve`] follows offers that move through the stages, and then the factors until none
//! moves; the rates are those from the start. How far changes go is up to the network: where links have few flows, they
//! stay with a few links. Where all edges send to all others, one flow more moves every level among the links that flows
//! connect to its own, if only by millionths: an edge's flow is one of hundreds on its link, and the change at the next link
//! one of as many again. All of these links are solved anew then, and none besides.
//!
//! What rounding takes from a link, or leaves on it, may all be one flow's, and bounds pass it on. So limits of many flows are
//! not added up one by one, but as their number times the least of them, and what each has on top: added up plainly, 1e-13
//! of a service's part on a link became 2e-9 of a rate where a service has 3,175 flows on it. The bench checks that rates after
//! changes are those from the start to 1e-9 of each.

mod bounds;
mod divide;
mod fill;
mod network;
mod rest;
mod shares;

use bounds::{Bounds, Rules};
use fill::Fill;
use network::Network;
pub use shares::{Guarantee, HierarchyError, Shares};

/// Offers that differ by less than this part are the same: rounding of a product and a quotient, so that what ties is seen to.
/// What a link has left when most flows stopped may be a small part of it, so this is much smaller than the error that it leads
/// to.
const SAME: f64 = 1e-15;
/// Bounds that are this close, as a part, have met.
const MET: f64 = 1e-10;
/// Three rounds of lower bounds, with upper ones between them.
const STAGES: usize = 5;

/// A class of flows: one service, one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(u32);

/// How a solution was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Solved {
    /// Whether the bounds of all rates met, so that no others are hierarchical max-min. After changes it may be false
    /// although a solution from the start would find that they do.
    pub settled: bool,
    /// Whether it was made from the start.
    pub full: bool,
    /// How many classes were visited, counted once for each link and visit.
    pub visits: u64,
    /// Of these, to find bounds.
    pub bounds: u64,
    /// Of these, to find all factors of a neighbourhood anew. The others follow factors that move.
    pub sweeps: u64,
    /// How many limits were read to find offers from parts, once for each pass.
    pub limits: u64,
    /// How many classes were passed to mark or to check what may have moved with them, once for each link.
    pub marks: u64,
}

/// What a solution took.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    visits: u64,
    /// Visits of sweeps.
    swept: u64,
    limits: u64,
    marks: u64,
}

/// Services on links, their classes of flows, and the rates these get.
#[derive(Debug, Clone)]
pub struct Hierarchy {
    capacities: Vec<f64>,
    shares: Shares,
    /// By cell.
    guarantees: Vec<f64>,
    network: Network,
    bounds: Bounds,
    fill: Fill,
    /// What classes get that are assured nothing, in order; most often none.
    extra: Vec<(u32, f64)>,
    /// Classes that changed since the last solution, if there was one.
    changed: Vec<u32>,
    /// Classes that lost their last flow since.
    emptied: Vec<u32>,
    /// Links whose capacity changed since.
    resized: Vec<u32>,
    solved: bool,
    settled: bool,
}

impl Hierarchy {
    /// Links without flows. Capacities are in bytes per second.
    ///
    /// # Errors
    /// A capacity that is not finite, or below zero; guarantees on a link that together exceed it.
    pub fn new(capacities: &[f64], shares: Shares) -> Result<Hierarchy, HierarchyError> {
        let network = Network::new(capacities.len(), shares.services())?;
        let guarantees = shares.table(capacities)?;
        let (links, cells) = (network.links, network.cells.len());
        let capped = (0..network.services).any(|service| shares.excess(service) == 0.0);
        Ok(Hierarchy {
            capacities: capacities.to_vec(),
            shares,
            guarantees,
            network,
            bounds: Bounds::new(cells, links),
            fill: Fill::new(links, cells, capped),
            extra: Vec::new(),
            changed: Vec::new(),
            emptied: Vec::new(),
            resized: Vec::new(),
            solved: false,
            settled: true,
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
        let class = self.network.add(service, links, flows, demand)?;
        self.mark(class);
        Ok(class)
    }

    /// Adds one flow to those of its service that want as much over the same path, and says which class they are. O(links
    /// of the path).
    ///
    /// # Errors
    /// As of [`Hierarchy::add`]; more flows in a class than a `u32` counts.
    pub fn add_flow(
        &mut self,
        service: usize,
        links: &[u32],
        demand: f64,
    ) -> Result<ClassId, HierarchyError> {
        let class = self.network.class_of(service, links, demand)?;
        let more = self.flows(class).checked_add(1);
        let more = more.ok_or(HierarchyError::TooMany { what: "flows of a class", most: u32::MAX })?;
        self.set_flows(class, more);
        Ok(class)
    }

    /// Removes one flow of a class; does nothing if it has none. O(links of the path).
    ///
    /// A class that [`Hierarchy::add_flow`] made ends with its last flow: after the next solution its number may be that of
    /// other flows over as many links, so there are never more of these classes than there were at once.
    pub fn remove_flow(&mut self, class: ClassId) {
        let flows = self.flows(class);
        self.set_flows(class, flows.saturating_sub(1));
        if flows == 1 {
            self.emptied.push(class.0);
        }
    }

    /// Changes how many flows a class has.
    pub fn set_flows(&mut self, class: ClassId, flows: u32) {
        self.network.set_flows(class, flows);
        self.mark(class);
    }

    /// Changes what each flow of a class wants.
    ///
    /// # Errors
    /// A demand that is negative or NaN.
    pub fn set_demand(&mut self, class: ClassId, demand: f64) -> Result<(), HierarchyError> {
        self.network.set_demand(class, demand)?;
        self.mark(class);
        Ok(())
    }

    /// Changes a link's capacity, and with it the guarantees that are parts of the link. Guaranteed rates that add up to more
    /// than the capacity are all reduced by the factor at which their sum equals it; a later call with a capacity that
    /// covers the sum restores them.
    ///
    /// # Errors
    /// An unknown link; a capacity that is not finite, or below zero. Nothing changes then.
    pub fn set_capacity(&mut self, link: u32, capacity: f64) -> Result<(), HierarchyError> {
        let (at, links) = (link as usize, self.network.links);
        if at >= links {
            return Err(HierarchyError::Link { link, links });
        }
        let cells = self.network.cells_of(at);
        self.shares.set_row(at, capacity, &mut self.guarantees[cells.clone()])?;
        self.capacities[at] = capacity;
        self.bounds.mark_link(at);
        self.resized.push(link);
        Ok(())
    }

    fn mark(&mut self, class: ClassId) {
        if self.solved {
            self.changed.push(class.0);
        }
    }

    /// How many classes there are, with those that ended and whose numbers nobody has yet.
    pub fn classes(&self) -> usize {
        self.network.classes()
    }

    /// How many flows a class has.
    pub fn flows(&self, class: ClassId) -> u32 {
        self.network.flows(class.0)
    }

    /// The rate of each flow of a class by the last solution, in bytes per second. It is read off its links: O(links of
    /// the path).
    pub fn rate(&self, class: ClassId) -> f64 {
        match self.extra.binary_search_by_key(&class.0, |&(class, _)| class) {
            Ok(at) => self.extra[at].1,
            Err(_) => self.rate_of(class.0),
        }
    }

    /// Without what a class gets that is assured nothing.
    fn rate_of(&self, class: u32) -> f64 {
        let demand = self.network.demand(class);
        let least = |list: &[f64]| {
            let path = self.network.path(class).iter();
            path.map(|&(cell, _)| list[cell as usize]).fold(f64::INFINITY, f64::min)
        };
        let assured = least(self.bounds.low()).min(demand);
        if assured == 0.0 { 0.0 } else { (assured * least(self.fill.levels())).min(demand) }
    }

    /// Brings the rates up to date with the changes since the last solution.
    pub fn solve(&mut self) -> Solved {
        if !self.solved {
            return self.solve_full();
        }
        self.bounds.count = Count::default();
        self.fill.count = Count::default();
        let Hierarchy { capacities, shares, guarantees, network, bounds, fill, .. } = self;
        let rules = Rules { capacities, shares, guarantees };
        self.changed.sort_unstable();
        self.changed.dedup();
        for &class in &self.changed {
            for &(cell, _) in network.path(class) {
                bounds.mark(network, cell as usize);
            }
        }
        let (mut low, mut high) = (Vec::new(), Vec::new());
        bounds.repair(network, &rules, &mut low, &mut high);
        let moved = || low.iter().chain(&high).map(|&(cell, _)| &network.cells[cell as usize].classes);
        self.settled = self.settled
            && self.changed.iter().all(|&class| met(network, bounds, class))
            && moved().flatten().all(|&class| met(network, bounds, class));
        if self.settled {
            fill.hold();
        } else {
            for &class in &self.changed {
                network.path(class).iter().for_each(|&(cell, _)| fill.mark_cell(network, cell as usize));
            }
            for &link in &self.resized {
                network.cells_of(link as usize).for_each(|cell| fill.mark_cell(network, cell));
            }
            low.iter().for_each(|&moved| fill.mark(network, bounds.low(), moved));
            if !fill.repair(network, &rules, bounds.low(), network.crossings() / 200) {
                let touched =
                    self.changed.iter().flat_map(|&class| network.path(class)).map(|&(cell, _)| cell);
                let touched = touched.chain(low.iter().map(|&(cell, _)| cell));
                let links = network.around(
                    touched
                        .map(|cell| network.link_of(cell as usize))
                        .chain(self.resized.iter().map(|&link| link as usize)),
                );
                fill.sweep(network, &rules, bounds.low(), &links);
            }
        }
        self.finish(false)
    }

    /// Solves from the start, whatever is known.
    pub fn solve_full(&mut self) -> Solved {
        self.bounds.count = Count::default();
        self.fill.count = Count::default();
        let Hierarchy { capacities, shares, guarantees, network, bounds, fill, .. } = self;
        let rules = Rules { capacities, shares, guarantees };
        bounds.make(network, &rules);
        let apart = |&cell: &usize| bounds.high()[cell] > bounds.low()[cell] * (1.0 + MET);
        let apart = (0..network.cells.len()).filter(apart).flat_map(|cell| &network.cells[cell].classes);
        self.settled = apart.into_iter().all(|&class| met(network, bounds, class));
        if self.settled {
            fill.hold();
        } else {
            let links: Vec<u32> = (0..network.links as u32).collect();
            fill.sweep(network, &rules, bounds.low(), &links);
        }
        self.solved = true;
        self.finish(true)
    }

    fn finish(&mut self, full: bool) -> Solved {
        self.changed.clear();
        self.resized.clear();
        self.emptied.drain(..).for_each(|class| self.network.release(class));
        if self.shares.guarantees_any() {
            self.hand_out_rest();
        }
        let (bounds, fill) = (self.bounds.count, self.fill.count);
        Solved {
            settled: self.settled,
            full,
            visits: bounds.visits + fill.visits,
            bounds: bounds.visits,
            sweeps: fill.swept,
            limits: bounds.limits + fill.limits,
            marks: bounds.marks + fill.marks,
        }
    }
}

/// Whether both bounds give a class the same rate.
fn met(network: &Network, bounds: &Bounds, class: u32) -> bool {
    let rate = |list: &[f64]| {
        let path = network.path(class).iter();
        path.map(|&(cell, _)| list[cell as usize]).fold(network.demand(class), f64::min)
    };
    network.flows(class) == 0 || rate(bounds.high()) <= rate(bounds.low()) * (1.0 + MET)
}
