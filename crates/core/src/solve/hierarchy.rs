//! Computes weighted hierarchical max-min rates: links divide capacity between services by weight, and a service's share
//! between its flows equally.
//!
//! NetShare (UCSD 2010), section 2 and the central allocator of 3.3, with the guarantees and excess weights of Fig. 5.
//!
//! # Definition
//!
//! **Lower bounds.** Each link has an *offer* for each service: the maximum rate of one flow of that service on it. It
//! depends on the *limits* of the link's flows: the limit of a flow is the minimum of its demand and of the offers at
//! its other links.
//!
//! - With `d` the sum of a service's limits, `m` its guarantee and `x` its excess weight on the link, every service
//!   gets `min(d, m + x * level)`, with the level at which the link is full. Without guarantees, `x` is the service's
//!   weight.
//! - Inside the service, flows share that rate max-min: each gets the lower of its limit and the offer.
//! - If the service gets all of its limits, its offer is the rate that one flow with the highest limit would get if that
//!   flow alone had no limit.
//!
//! Higher offers at other links never raise an offer. If demands are the only limits, these rules therefore give lower
//! bounds of all offers. Limits from those bounds give upper bounds, limits from these give higher lower bounds, and so
//! on. The solver computes three rounds of lower bounds, with two rounds of upper bounds between them (five *stages*).
//! The lower bound of a flow is the minimum of the last lower bounds on its path, or its demand if that is less. The
//! first round alone gives each flow the rate that weights and guarantees ensure if all other demands are infinite, so
//! no flow has less.
//!
//! **Residual capacity.** All rates rise from their lower bounds by the same factor. A flow stops at its demand, when one
//! of its links is full, or when its service reaches its guarantee on a link where it has no excess weight; the others
//! continue. No link exceeds its capacity, and every flow below its demand stops at a full link or at such a guarantee.
//! Flows whose lower bound is 0, because guarantees take all of a link, follow at the end and share the residual
//! capacity max-min.
//!
//! If lower and upper bounds are equal, no residual capacity can be used, and the rates are the only ones at which every
//! flow below its demand has a bottleneck: a full link on which no flow of its service has a higher rate, and no service
//! has more in proportion to its weight. [`HierarchyStats::bounds_met`] reports this case. The definition depends neither on the
//! order of links, services and classes nor on the unit of rates, and small changes of the input cause small changes of
//! the rates.
//!
//! # Why bottlenecks do not define the rates
//!
//! Bottlenecks do not determine the rates: the tests have a network of nine links with three solutions, and one of three
//! links where the bounds never meet, because changes return undiminished around a loop. If all links are full of flows
//! that are limited at one end or the other, bounds approach each other by some percent a round, and need hundreds of
//! passes over all classes. Three rounds settle the shares of services where they depend on a few links; flows share the
//! remainder between the bounds in proportion.
//!
//! If bounds do not meet, the rates therefore differ from those defined by bottlenecks. `make allocator` measures the
//! difference on a fabric with random flows (docs/results/allocator.md). It is negligible for most flows if links carry
//! few flows. With a hundred thousand flows on 4,096 links, a rate differs by a tenth on average, some rates by half,
//! and the sum of all rates by a thousandth.
//!
//! # Differences from the paper
//!
//! The paper's allocator takes the link with the minimum `B / (sum of weights)`, gives each service with open flows there
//! the share of its weight, and subtracts these rates from the other links. The results are equal on all of the paper's
//! examples.
//!
//! In the paper, the rates of flows that were fixed earlier do not count towards a service's share: its weight counts in
//! full while one flow is open. The `B / (sum of weights)` of another link can therefore *fall*. A heap with old entries
//! then assigns more than links carry. With the true minimum in each step, a service with flows over many slow links gets
//! nearly all of a fast link that they share, which breaks the guarantee of section 6. Here, shares apply to the
//! service's total on a link. The tests show both.
//!
//! # Cost
//!
//! A stage of bounds visits every class at most once at each of its links. From the third stage on it visits a class
//! only if its limits differ from those of two stages before. Newton's method finds an offer in a few passes over a
//! service's limits on the link. The factors at which flows stop are found by filling: the link with the lowest factor
//! is fixed first. The factors of other links only rise, so a heap of links with old entries is correct, and each class
//! stops once. The total is O(classes x links of a path + links log links) for a fixed number of stages, for any
//! demands. A class stores no rate: its rate follows from the levels of its services on its links, so a level can
//! change without a visit to its classes.
//!
//! After changes, [`HierarchicalMaxMin::solve`] propagates changed offers through the stages, and then updates factors
//! until none moves; the rates equal those of a solution from scratch. The network determines how far changes
//! propagate. If links carry few flows, a change affects a few links. If all edges send to all others, one additional
//! flow moves every level among the links that flows connect to its own, often by millionths only, because each link
//! divides the change among hundreds of flows. If updates of factors visit more than 0.5 % of all classes at their
//! links, the solver computes the factors of these connected links from scratch.
//!
//! # Rounding
//!
//! A rounding error at a link can affect a single flow, and bounds propagate it. The limits of many flows are therefore
//! not summed one by one, but as their number times the minimum, plus the sum of the differences to the minimum. With a
//! plain sum, 1e-13 of a service's share of a link became 2e-9 of a rate if a service has 3,175 flows there.
//! `benches/hierarchy.rs` checks that rates after changes equal those from scratch to 1e-9 of each.

mod bounds;
mod class_network;
mod link_division;
mod residual_fill;
mod service_shares;
mod zero_bound;

use crate::rounding;
use bounds::{Bounds, SolverInputs};
use class_network::ClassNetwork;
use residual_fill::ResidualFill;
pub use service_shares::{Guarantee, HierarchyError, ServiceShares};

/// Three rounds of lower bounds, with upper bounds between them.
const STAGE_COUNT: usize = 5;

/// A class of flows: one service, one path, one demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(u32);

/// Counters and convergence of a solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HierarchyStats {
    /// Whether lower and upper bounds of all rates are equal: no other rates are hierarchical max-min. After changes it can
    /// be false although a solution from scratch would set it.
    pub bounds_met: bool,
    /// Whether the solver started from scratch.
    pub from_scratch: bool,
    /// Number of visits of classes, counted once for each link and visit.
    pub visits: u64,
    /// Visits for bounds.
    pub bound_visits: u64,
    /// Visits for computing all factors of connected links from scratch. The other visits follow factors that move.
    pub sweep_visits: u64,
    /// Number of limits read to compute offers from shares, counted once for each pass.
    pub limits_read: u64,
    /// Number of classes examined to mark or check dependent values, counted once for each link.
    pub classes_marked: u64,
}

/// Counters of a solution.
#[derive(Debug, Clone, Copy, Default)]
struct WorkCounters {
    visits: u64,
    /// Visits by sweeps.
    sweep_visits: u64,
    limits_read: u64,
    classes_marked: u64,
}

/// Services on links, their classes of flows, and the rates of the flows.
#[derive(Debug, Clone)]
pub struct HierarchicalMaxMin {
    capacities: Vec<f64>,
    shares: ServiceShares,
    /// By cell.
    guarantees: Vec<f64>,
    network: ClassNetwork,
    bounds: Bounds,
    residual_fill: ResidualFill,
    /// Rates of classes whose lower bound is 0, sorted by class; usually empty.
    zero_bound_rates: Vec<(u32, f64)>,
    /// Classes that changed since the last solution; empty before the first one.
    changed_classes: Vec<u32>,
    /// Classes that lost their last flow since the last solution.
    emptied_classes: Vec<u32>,
    /// Links whose capacity changed since the last solution.
    resized_links: Vec<u32>,
    is_solved: bool,
    bounds_met: bool,
}

impl HierarchicalMaxMin {
    /// Creates links without flows. Capacities are in bytes per second.
    ///
    /// # Errors
    /// [`HierarchyError::InvalidCapacity`] for a capacity that is not from 0 to 1e30;
    /// [`HierarchyError::GuaranteesExceedCapacity`] if a link's guarantees exceed its capacity;
    /// [`HierarchyError::UnknownLink`] for a guarantee on an unknown link; [`HierarchyError::TooMany`] if links times
    /// services reach 2^31.
    pub fn new(capacities: &[f64], shares: ServiceShares) -> Result<HierarchicalMaxMin, HierarchyError> {
        let network = ClassNetwork::new(capacities.len(), shares.service_count())?;
        let guarantees = shares.guarantee_table(capacities)?;
        let (links, cells) = (network.links, network.cells.len());
        let capped = (0..network.services).any(|service| shares.excess_weight(service) == 0.0);
        Ok(HierarchicalMaxMin {
            capacities: capacities.to_vec(),
            shares,
            guarantees,
            network,
            bounds: Bounds::new(cells, links),
            residual_fill: ResidualFill::new(links, cells, capped),
            zero_bound_rates: Vec::new(),
            changed_classes: Vec::new(),
            emptied_classes: Vec::new(),
            resized_links: Vec::new(),
            is_solved: false,
            bounds_met: true,
        })
    }

    /// Adds a class: `flows` flows of a service, each over all of `links`, with a demand of `demand` bytes per second for
    /// each flow, which can be infinite. `flows` can be 0.
    ///
    /// # Errors
    /// If the service or a link is unknown, the path has no links or a link twice, the demand is negative or NaN, or there
    /// are too many classes.
    pub fn add_class(
        &mut self,
        service: usize,
        links: &[u32],
        flows: u32,
        demand: f64,
    ) -> Result<ClassId, HierarchyError> {
        let class = self.network.add_class(service, links, flows, demand)?;
        self.mark_changed(class);
        Ok(class)
    }

    /// Adds one flow to the class of single flows with the same service, path and demand, and returns the class. O(links
    /// of the path).
    ///
    /// # Errors
    /// The errors of [`HierarchicalMaxMin::add_class`]; [`HierarchyError::TooMany`] if a class would have 2^32 flows.
    pub fn add_flow(
        &mut self,
        service: usize,
        links: &[u32],
        demand: f64,
    ) -> Result<ClassId, HierarchyError> {
        let class = self.network.find_or_add_class(service, links, demand)?;
        let more = self.flow_count(class).checked_add(1);
        let more = more.ok_or(HierarchyError::TooMany { counted: "flows of a class", max: u32::MAX })?;
        self.set_flows(class, more);
        Ok(class)
    }

    /// Removes one flow of a class; has no effect on a class without flows. O(links of the path).
    ///
    /// A class from [`HierarchicalMaxMin::add_flow`] ends with its last flow. After the next solution its number can be
    /// reused for other flows over as many links, which bounds the number of these classes by the maximum that existed at
    /// one time.
    pub fn remove_flow(&mut self, class: ClassId) {
        let flows = self.flow_count(class);
        self.set_flows(class, flows.saturating_sub(1));
        if flows == 1 {
            self.emptied_classes.push(class.0);
        }
    }

    /// Sets the number of flows of a class.
    pub fn set_flows(&mut self, class: ClassId, flows: u32) {
        self.network.set_flows(class, flows);
        self.mark_changed(class);
    }

    /// Sets the demand of each flow of a class, in bytes per second.
    ///
    /// # Errors
    /// [`HierarchyError::InvalidDemand`] if the demand is negative or NaN.
    pub fn set_demand(&mut self, class: ClassId, demand: f64) -> Result<(), HierarchyError> {
        self.network.set_demand(class, demand)?;
        self.mark_changed(class);
        Ok(())
    }

    /// Changes a link's capacity, and with it the guarantees that are fractions of the link. If guaranteed rates sum to
    /// more than the capacity, all are reduced by the factor at which their sum equals it. A later call with a capacity
    /// that covers the sum restores them.
    ///
    /// # Errors
    /// [`HierarchyError::UnknownLink`] for an unknown link; [`HierarchyError::InvalidCapacity`] for a capacity that is not
    /// from 0 to 1e30. Nothing changes then.
    pub fn set_capacity(&mut self, link: u32, capacity: f64) -> Result<(), HierarchyError> {
        let (at, links) = (link as usize, self.network.links);
        if at >= links {
            return Err(HierarchyError::UnknownLink { link, links });
        }
        let cells = self.network.cells_of_link(at);
        self.shares.update_link_guarantees(at, capacity, &mut self.guarantees[cells.clone()])?;
        self.capacities[at] = capacity;
        self.bounds.mark_link(at);
        self.resized_links.push(link);
        Ok(())
    }

    fn mark_changed(&mut self, class: ClassId) {
        if self.is_solved {
            self.changed_classes.push(class.0);
        }
    }

    /// Number of classes, including ended classes whose numbers have not been reused.
    pub fn class_count(&self) -> usize {
        self.network.classes()
    }

    /// Number of flows of a class.
    pub fn flow_count(&self, class: ClassId) -> u32 {
        self.network.flows(class.0)
    }

    /// The rate of each flow of a class in the last solution, in bytes per second. Computed from the levels on its path:
    /// O(links of the path).
    pub fn rate(&self, class: ClassId) -> f64 {
        match self.zero_bound_rates.binary_search_by_key(&class.0, |&(class, _)| class) {
            Ok(at) => self.zero_bound_rates[at].1,
            Err(_) => self.rate_without_residual(class.0),
        }
    }

    /// The rate without the share of the residual capacity for classes whose lower bound is 0.
    fn rate_without_residual(&self, class: u32) -> f64 {
        let demand = self.network.demand(class);
        let path_min = |list: &[f64]| {
            let path = self.network.path(class).iter();
            path.map(|&(cell, _)| list[cell as usize]).fold(f64::INFINITY, f64::min)
        };
        let lower_bound = path_min(self.bounds.lower()).min(demand);
        if lower_bound == 0.0 {
            0.0
        } else {
            (lower_bound * path_min(self.residual_fill.cell_factors())).min(demand)
        }
    }

    /// Updates the rates after the changes since the last solution.
    pub fn solve(&mut self) -> HierarchyStats {
        if !self.is_solved {
            return self.solve_full();
        }
        self.bounds.counters = WorkCounters::default();
        self.residual_fill.counters = WorkCounters::default();
        let HierarchicalMaxMin {
            capacities, shares, guarantees, network, bounds, residual_fill: fill, ..
        } = self;
        let rules = SolverInputs { capacities, shares, guarantees };
        self.changed_classes.sort_unstable();
        self.changed_classes.dedup();
        for &class in &self.changed_classes {
            for &(cell, _) in network.path(class) {
                bounds.mark_cell(network, cell as usize);
            }
        }
        let (mut low, mut high) = (Vec::new(), Vec::new());
        bounds.propagate_marks(network, &rules, &mut low, &mut high);
        let moved = || low.iter().chain(&high).map(|&(cell, _)| &network.cells[cell as usize].classes);
        self.bounds_met = self.bounds_met
            && self.changed_classes.iter().all(|&class| bounds_meet(network, bounds, class))
            && moved().flatten().all(|&class| bounds_meet(network, bounds, class));
        if self.bounds_met {
            fill.reset_factors();
        } else {
            for &class in &self.changed_classes {
                network
                    .path(class)
                    .iter()
                    .for_each(|&(cell, _)| fill.mark_stops_of_cell(network, cell as usize));
            }
            for &link in &self.resized_links {
                network.cells_of_link(link as usize).for_each(|cell| fill.mark_stops_of_cell(network, cell));
            }
            low.iter().for_each(|&moved| fill.mark_dependents(network, bounds.lower(), moved));
            if !fill.propagate_marks(network, &rules, bounds.lower(), network.total_path_len() / 200) {
                let touched =
                    self.changed_classes.iter().flat_map(|&class| network.path(class)).map(|&(cell, _)| cell);
                let touched = touched.chain(low.iter().map(|&(cell, _)| cell));
                let links = network.connected_links(
                    touched
                        .map(|cell| network.link_of_cell(cell as usize))
                        .chain(self.resized_links.iter().map(|&link| link as usize)),
                );
                fill.recompute_factors(network, &rules, bounds.lower(), &links);
            }
        }
        self.finish_solution(false)
    }

    /// Solves from scratch, without the last solution.
    pub fn solve_full(&mut self) -> HierarchyStats {
        self.bounds.counters = WorkCounters::default();
        self.residual_fill.counters = WorkCounters::default();
        let HierarchicalMaxMin {
            capacities, shares, guarantees, network, bounds, residual_fill: fill, ..
        } = self;
        let rules = SolverInputs { capacities, shares, guarantees };
        bounds.compute_all(network, &rules);
        let apart = |&cell: &usize| bounds.upper()[cell] > bounds.lower()[cell] * (1.0 + rounding::BOUNDS);
        let apart = (0..network.cells.len()).filter(apart).flat_map(|cell| &network.cells[cell].classes);
        self.bounds_met = apart.into_iter().all(|&class| bounds_meet(network, bounds, class));
        if self.bounds_met {
            fill.reset_factors();
        } else {
            let links: Vec<u32> = (0..network.links as u32).collect();
            fill.recompute_factors(network, &rules, bounds.lower(), &links);
        }
        self.is_solved = true;
        self.finish_solution(true)
    }

    fn finish_solution(&mut self, full: bool) -> HierarchyStats {
        self.changed_classes.clear();
        self.resized_links.clear();
        self.emptied_classes.drain(..).for_each(|class| self.network.release_class(class));
        if self.shares.has_guarantees() {
            self.share_residual_among_zero_bound_flows();
        }
        let (bounds, fill) = (self.bounds.counters, self.residual_fill.counters);
        HierarchyStats {
            bounds_met: self.bounds_met,
            from_scratch: full,
            visits: bounds.visits + fill.visits,
            bound_visits: bounds.visits,
            sweep_visits: fill.sweep_visits,
            limits_read: bounds.limits_read + fill.limits_read,
            classes_marked: bounds.classes_marked + fill.classes_marked,
        }
    }
}

/// Whether both bounds give a class the same rate.
fn bounds_meet(network: &ClassNetwork, bounds: &Bounds, class: u32) -> bool {
    let rate = |list: &[f64]| {
        let path = network.path(class).iter();
        path.map(|&(cell, _)| list[cell as usize]).fold(network.demand(class), f64::min)
    };
    network.flows(class) == 0 || rate(bounds.upper()) <= rate(bounds.lower()) * (1.0 + rounding::BOUNDS)
}
