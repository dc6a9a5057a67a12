//! Max-min rates of flows over links, maintained while flows start and end and capacities change.
//!
//! Flows over the same links form a *class*. The *bottleneck* of a class is the first link of the class in an order of links.
//! The *level* of a link is the rate of the flows whose bottleneck it is. Progressive filling fixes links by rising level,
//! and the level of a link depends only on the links before it. After a change at some links, the links before them
//! therefore keep their levels. The solver computes the other levels again in the old order. If a level is lower than the
//! one before it, the two links swap places, and the classes over both links change their bottleneck. If all levels rise
//! along the order, the allocation is max-min: every flow has a full link on which no flow has a higher rate.
//!
//! A *slack* link limits no flow. It needs attention only if its load may exceed its capacity. Its load grows at most by the
//! factor by which levels have risen since the last computation of the load, so most slack links cost one comparison.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::crossing_flows::CrossingFlows;
use crate::ordered_f64::OrderedF64;
use crate::rounding;

/// The position of a link that is not in the order: it carries no flows, or is slack.
const NOT_IN_ORDER: u32 = u32::MAX;

/// If a larger part of the flows has started since the last solution, the solver starts from scratch.
const MAX_STARTED_FRACTION: f64 = 0.25;

/// Flows over the same links.
#[derive(Debug, Clone)]
struct Class {
    /// The links, as a range of [`LinkMaxMin::class_links`].
    links: Range<u32>,
    flow_count: u32,
    /// The link that limits the flows. Without flows, the last such link.
    bottleneck: u32,
    /// Position among the classes that the bottleneck limits.
    member_index: u32,
}

/// The state of a link outside of the order.
#[derive(Debug, Clone, Copy)]
struct SlackState {
    /// Whether the link is in [`LinkMaxMin::slack_links`].
    is_listed: bool,
    /// An upper bound of the load, divided by [`LinkMaxMin::level_growth`].
    scaled_load: f64,
}

/// Max-min rates over links. Rates and capacities are in bytes per second.
#[derive(Debug, Clone)]
pub struct LinkMaxMin {
    capacities: Vec<f64>,
    classes: Vec<Class>,
    class_links: Vec<u32>,
    /// By link: all classes over the link.
    classes_of_link: Vec<Vec<u32>>,
    /// By link: the classes with flows that the link limits.
    limited_classes: Vec<Vec<u32>>,
    flow_counts: Vec<f64>,
    limited_flow_counts: Vec<f64>,
    /// By link and bottleneck: the flows over the link that another link limits.
    crossing: CrossingFlows,
    levels: Vec<f64>,
    /// Links that limit flows, in the order in which they are fixed.
    order: Vec<u32>,
    positions: Vec<u32>,
    /// Levels of the links before the current one; 0 for the others.
    earlier_levels: Vec<f64>,
    slack_links: Vec<u32>,
    slack: Vec<SlackState>,
    /// Product of the highest factors by which the rate of a flow has risen, of all solutions.
    level_growth: f64,
    /// The levels before the present solution.
    previous_levels: Vec<f64>,
    first_dirty: usize,
    /// Number of flows that started since the last solution, and of all flows.
    started_flows: usize,
    flow_total: usize,
    needs_full_solve: bool,
    changed_classes: Vec<u32>,
}

impl LinkMaxMin {
    /// Links with these capacities, without flows.
    pub fn new(capacities: Vec<f64>) -> LinkMaxMin {
        let links = capacities.len();
        LinkMaxMin {
            classes: Vec::new(),
            class_links: Vec::new(),
            classes_of_link: vec![Vec::new(); links],
            limited_classes: vec![Vec::new(); links],
            flow_counts: vec![0.0; links],
            limited_flow_counts: vec![0.0; links],
            crossing: CrossingFlows::new(links),
            levels: vec![f64::INFINITY; links],
            order: Vec::new(),
            positions: vec![NOT_IN_ORDER; links],
            earlier_levels: vec![0.0; links],
            slack_links: Vec::new(),
            slack: vec![SlackState { is_listed: false, scaled_load: f64::INFINITY }; links],
            level_growth: 1.0,
            previous_levels: Vec::new(),
            first_dirty: usize::MAX,
            started_flows: 0,
            flow_total: 0,
            needs_full_solve: true,
            changed_classes: Vec::new(),
            capacities,
        }
    }

    /// Adds a class without flows. It needs at least one link, and each link at most once.
    pub fn add_class(&mut self, links: &[u32]) -> u32 {
        let class = self.classes.len() as u32;
        let first = self.class_links.len() as u32;
        self.class_links.extend_from_slice(links);
        let range = first..self.class_links.len() as u32;
        self.classes.push(Class { links: range, flow_count: 0, bottleneck: links[0], member_index: 0 });
        for &link in links {
            self.classes_of_link[link as usize].push(class);
        }
        class
    }

    /// The links of a class.
    pub fn links(&self, class: u32) -> &[u32] {
        let Range { start, end } = self.classes[class as usize].links;
        &self.class_links[start as usize..end as usize]
    }

    /// Number of flows of a class.
    pub fn flow_count(&self, class: u32) -> u32 {
        self.classes[class as usize].flow_count
    }

    /// The link that limits the flows of a class, as of the last solution.
    #[inline]
    pub fn bottleneck(&self, class: u32) -> u32 {
        self.classes[class as usize].bottleneck
    }

    /// The rate of the flows that a link limits; infinite if it limits none.
    #[inline]
    pub fn level(&self, link: usize) -> f64 {
        self.levels[link]
    }

    /// The levels of all links.
    pub fn levels(&self) -> &[f64] {
        &self.levels
    }

    /// Changes the capacity of a link.
    pub fn set_capacity(&mut self, link: usize, capacity: f64) {
        if self.capacities[link] != capacity {
            self.capacities[link] = capacity;
            self.mark_dirty(link as u32);
        }
    }

    /// Lets the next solution start at the position of a link.
    fn mark_dirty(&mut self, link: u32) {
        // Each solution checks the slack links.
        let position = (self.positions[link as usize] as usize).min(self.order.len());
        self.first_dirty = self.first_dirty.min(position);
    }

    /// Adds a flow. O(links of the class).
    pub fn add_flow(&mut self, class: u32) {
        self.flow_total += 1;
        self.started_flows += 1;
        let is_idle = self.classes[class as usize].flow_count == 0;
        if is_idle {
            let first = self.links(class).iter().min_by_key(|&&link| self.positions[link as usize]);
            let bottleneck = *first.expect("a class has at least one link");
            self.classes[class as usize].bottleneck = bottleneck;
            self.add_member(bottleneck, class);
            self.changed_classes.push(class);
        }
        self.classes[class as usize].flow_count += 1;
        self.change_counts(class, 1.0);
    }

    /// Removes a flow of a class with flows. O(links of the class).
    pub fn remove_flow(&mut self, class: u32) {
        self.flow_total -= 1;
        self.change_counts(class, -1.0);
        self.classes[class as usize].flow_count -= 1;
        if self.classes[class as usize].flow_count == 0 {
            self.remove_member(self.classes[class as usize].bottleneck, class);
        }
    }

    fn change_counts(&mut self, class: u32, change: f32) {
        let Class { links, bottleneck, .. } = self.classes[class as usize].clone();
        for at in links {
            let link = self.class_links[at as usize];
            self.flow_counts[link as usize] += f64::from(change);
            if change > 0.0 && self.positions[link as usize] == NOT_IN_ORDER {
                self.list_as_slack(link);
            }
        }
        self.count_by_bottleneck(class, change);
        self.mark_dirty(bottleneck);
    }

    /// Adds flows of a class to the numbers of flows by link and bottleneck.
    fn count_by_bottleneck(&mut self, class: u32, flows: f32) {
        let Class { links, bottleneck, .. } = self.classes[class as usize].clone();
        for at in links {
            let link = self.class_links[at as usize];
            if link == bottleneck {
                self.limited_flow_counts[link as usize] += f64::from(flows);
            } else {
                self.crossing.add(link as usize, bottleneck, flows);
            }
        }
    }

    /// Lets the next check compute the load of a link that is not in the order.
    fn list_as_slack(&mut self, link: u32) {
        let state = &mut self.slack[link as usize];
        state.scaled_load = f64::INFINITY;
        if !std::mem::replace(&mut state.is_listed, true) {
            self.slack_links.push(link);
        }
    }

    fn add_member(&mut self, link: u32, class: u32) {
        let members = &mut self.limited_classes[link as usize];
        self.classes[class as usize].member_index = members.len() as u32;
        members.push(class);
    }

    fn remove_member(&mut self, link: u32, class: u32) {
        let at = self.classes[class as usize].member_index as usize;
        let members = &mut self.limited_classes[link as usize];
        members.swap_remove(at);
        if let Some(&moved) = members.get(at) {
            self.classes[moved as usize].member_index = at as u32;
        }
    }

    /// Computes the levels, and moves the classes whose bottleneck may have changed to `changed`. Returns true if the solver
    /// started from scratch; any bottleneck may have changed then, and `changed` does not list the changes.
    ///
    /// From scratch: O(n log links) for the n links of all classes. Otherwise O(links) for each limiting link from the first
    /// change on, and O(classes) for each swap of two links with common flows.
    pub fn solve(&mut self, changed: &mut Vec<u32>) -> bool {
        changed.clear();
        if self.started_flows as f64 > MAX_STARTED_FRACTION * self.flow_total as f64 {
            self.needs_full_solve = true;
        }
        let from_scratch = std::mem::take(&mut self.needs_full_solve);
        if from_scratch {
            self.solve_from_scratch();
            self.changed_classes.clear();
        } else if self.first_dirty != usize::MAX {
            self.update_levels(self.first_dirty);
        }
        (self.first_dirty, self.started_flows) = (usize::MAX, 0);
        std::mem::swap(changed, &mut self.changed_classes);
        from_scratch
    }

    // Update.

    fn update_levels(&mut self, first: usize) {
        for &link in &self.order[first..] {
            self.earlier_levels[link as usize] = 0.0;
        }
        let mut at = first;
        loop {
            self.previous_levels.clone_from(&self.levels);
            while at < self.order.len() {
                at = self.fix_link(at);
            }
            self.record_growth();
            at = self.order.len();
            if !self.append_slack_links_with_limits() && !self.append_overloaded_links() {
                return;
            }
        }
    }

    /// Records the highest factor by which the rate of a flow has risen.
    ///
    /// A class moves to a link with a lower level than its former bottleneck, unless the bottleneck became slack. The rate of
    /// a flow is at most the highest level.
    fn record_growth(&mut self) {
        let Some(&last) = self.order.last() else { return };
        let max_level = self.levels[last as usize];
        let mut growth = 1.0f64;
        for (&level, &before) in self.levels.iter().zip(&self.previous_levels) {
            if before.is_finite() && level > before {
                let level = if level.is_finite() { level } else { max_level };
                growth = growth.max(if before > 0.0 { level / before } else { f64::INFINITY });
            }
        }
        self.level_growth *= growth;
        if self.level_growth > 1e100 {
            self.forget_slack_loads();
        }
    }

    /// Lets the next check compute the load of every slack link.
    fn forget_slack_loads(&mut self) {
        self.level_growth = 1.0;
        self.slack.iter_mut().for_each(|state| state.scaled_load = f64::INFINITY);
    }

    /// Computes the level of the link at a position, and moves the link forward if its level is lower than those before
    /// it. Returns the position to continue at.
    fn fix_link(&mut self, mut at: usize) -> usize {
        let link = self.order[at] as usize;
        if self.flow_counts[link] == 0.0 {
            self.remove_from_order(at);
            return at;
        }
        let mut left = self.capacities[link] - self.crossing.used_capacity(link, &self.earlier_levels);
        if self.limited_flow_counts[link] == 0.0 && left >= -rounding::CAPACITY * self.capacities[link] {
            self.remove_from_order(at);
            self.list_as_slack(link as u32);
            return at;
        }
        let share = |left: f64, flows: f64| if flows > 0.0 { left / flows } else { f64::NEG_INFINITY };
        let mut level = share(left, self.limited_flow_counts[link]);
        let first_at = at;
        while at > 0 {
            let other = self.order[at - 1] as usize;
            if level >= self.levels[other] * (1.0 - rounding::ORDER) {
                break;
            }
            left += f64::from(self.crossing.flows(link, other as u32)) * self.levels[other];
            self.earlier_levels[other] = 0.0;
            self.move_common_classes(other as u32, link as u32);
            self.order.swap(at - 1, at);
            self.positions[link] = at as u32 - 1;
            self.positions[other] = at as u32;
            at -= 1;
            level = share(left, self.limited_flow_counts[link]);
        }
        if at < first_at {
            // Without the rounding errors of the sums above.
            left = self.capacities[link] - self.crossing.used_capacity(link, &self.earlier_levels);
            level = share(left, self.limited_flow_counts[link]);
        }
        self.levels[link] = level.max(0.0);
        self.earlier_levels[link] = self.levels[link];
        at + 1
    }

    fn remove_from_order(&mut self, at: usize) {
        let link = self.order.remove(at) as usize;
        self.positions[link] = NOT_IN_ORDER;
        self.levels[link] = f64::INFINITY;
        self.earlier_levels[link] = 0.0;
        for (position, &link) in self.order.iter().enumerate().skip(at) {
            self.positions[link as usize] = position as u32;
        }
    }

    /// Changes the bottleneck of the classes that both links carry, from `from` to `to`. O(1) if there are none.
    fn move_common_classes(&mut self, from: u32, to: u32) {
        let mut common = self.crossing.flows(to as usize, from);
        if common == 0.0 {
            return;
        }
        let mut at = 0;
        while common > 0.0 && at < self.limited_classes[from as usize].len() {
            let class = self.limited_classes[from as usize][at];
            if !self.links(class).contains(&to) {
                at += 1;
                continue;
            }
            let flows = self.classes[class as usize].flow_count as f32;
            common -= flows;
            self.remove_member(from, class);
            self.count_by_bottleneck(class, -flows);
            self.classes[class as usize].bottleneck = to;
            self.count_by_bottleneck(class, flows);
            self.add_member(to, class);
            self.changed_classes.push(class);
        }
    }

    /// Appends slack links to the order that are the bottleneck of new flows. Returns whether there are any.
    fn append_slack_links_with_limits(&mut self) -> bool {
        self.append_slack_links(|solver, link| solver.limited_flow_counts[link] > 0.0)
    }

    /// Appends slack links to the order whose load exceeds their capacity. Returns whether there are any. O(1) for each slack
    /// link whose load cannot exceed its capacity.
    fn append_overloaded_links(&mut self) -> bool {
        self.append_slack_links(|solver, link| {
            let limit = solver.capacities[link] * (1.0 + rounding::CAPACITY);
            if solver.slack[link].scaled_load * solver.level_growth <= limit {
                return false;
            }
            let load = solver.crossing.used_capacity(link, &solver.earlier_levels);
            solver.slack[link].scaled_load = load / solver.level_growth;
            load > limit
        })
    }

    /// Moves slack links for which `is_limiting` returns true to the end of the order, and drops links without flows.
    fn append_slack_links(&mut self, mut is_limiting: impl FnMut(&mut LinkMaxMin, usize) -> bool) -> bool {
        let first_new = self.order.len();
        let mut listed = std::mem::take(&mut self.slack_links);
        listed.retain(|&link| {
            let l = link as usize;
            let has_flows = self.flow_counts[l] > 0.0;
            let appends = has_flows && is_limiting(self, l);
            if appends {
                self.positions[l] = self.order.len() as u32;
                self.order.push(link);
            }
            self.slack[l].is_listed = has_flows && !appends;
            self.slack[l].is_listed
        });
        self.slack_links = listed;
        first_new < self.order.len()
    }

    // Solution from scratch.

    /// Progressive filling. Links that limit no flow become slack.
    fn solve_from_scratch(&mut self) {
        self.order.clear();
        self.positions.fill(NOT_IN_ORDER);
        self.levels.fill(f64::INFINITY);
        self.earlier_levels.fill(0.0);
        self.limited_flow_counts.fill(0.0);
        self.crossing.clear();
        self.limited_classes.iter_mut().for_each(Vec::clear);
        let mut residuals = self.capacities.clone();
        let mut open_flows = self.flow_counts.clone();
        let mut is_fixed = vec![false; self.classes.len()];
        let share = |residual: f64, flows: f64| (residual / flows).max(0.0);
        // Fixing flows at a lower level elsewhere only raises a link's share, so an old entry is a lower bound.
        let mut shares: BinaryHeap<Reverse<(OrderedF64, u32)>> = (0..self.capacities.len())
            .filter(|&link| open_flows[link] > 0.0)
            .map(|link| Reverse((OrderedF64(share(residuals[link], open_flows[link])), link as u32)))
            .collect();
        while let Some(Reverse((OrderedF64(lower_bound), link))) = shares.pop() {
            let l = link as usize;
            if open_flows[l] == 0.0 {
                continue;
            }
            let level = share(residuals[l], open_flows[l]);
            if level > lower_bound {
                shares.push(Reverse((OrderedF64(level), link)));
                continue;
            }
            self.positions[l] = self.order.len() as u32;
            self.order.push(link);
            self.levels[l] = level;
            self.earlier_levels[l] = level;
            for at in 0..self.classes_of_link[l].len() {
                let class = self.classes_of_link[l][at];
                let flows = self.classes[class as usize].flow_count;
                if flows == 0 || std::mem::replace(&mut is_fixed[class as usize], true) {
                    continue;
                }
                self.classes[class as usize].bottleneck = link;
                self.add_member(link, class);
                self.count_by_bottleneck(class, flows as f32);
                for &other in self.links(class) {
                    residuals[other as usize] -= level * f64::from(flows);
                    open_flows[other as usize] -= f64::from(flows);
                }
            }
        }
        self.slack_links.clear();
        for link in 0..self.capacities.len() {
            self.slack[link].is_listed = false;
            if self.flow_counts[link] > 0.0 && self.positions[link] == NOT_IN_ORDER {
                self.list_as_slack(link as u32);
            }
        }
        self.forget_slack_loads();
    }
}
