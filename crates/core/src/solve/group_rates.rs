//! Rates of groups of flows over links with weighted queues or priorities, where all flows of a group have the rate of the
//! slowest.
//!
//! A group can cross each of its links with a different number of flows, and has one rate. A few numbers therefore
//! describe a shuffle over thousands of links, instead of a hundred thousand flows. Links divide their capacity as in
//! [`super::wfq`]: a queue gets its demand or its weighted share, flows in a queue share max-min, and the demand of a
//! group at a link is the lowest rate at its other links.
//!
//! [`GroupRateSolver::solve_weighted`] visits the links whose demands changed, in rounds, from the lowest level
//! ([`super::wfq`]) up. A visit costs the groups at the link. The solver damps rounds that do not settle, and in the
//! end reduces rates to what the links carry, as in [`super::wfq`]. [`GroupRateSolver::solve_ranked`] serves groups by
//! rank, and groups of one rank max-min. Each step fixes at least one group, and costs the links of the groups that are
//! not fixed yet.

use super::wfq::queue_filling::{QueueDemand, fill_level, unit_share};
use super::wfq::{Queue, WfqError};
use crate::rounding;

/// Number of rounds before damping, and the maximum number of rounds.
const UNDAMPED_ROUNDS: u32 = 30;
const MAX_ROUNDS: u32 = 200;

/// A group at a link.
#[derive(Debug, Clone, Copy)]
struct LinkMember {
    group: u32,
    link: u32,
    flows: f64,
    /// The maximum rate of each flow at this link; infinite if the link does not limit the group.
    level: f64,
}

/// The lowest level among the links of a group, the second lowest, and the members that have them.
#[derive(Debug, Clone, Copy)]
struct LowestLevels {
    lowest: f64,
    lowest_member: u32,
    second_lowest: f64,
    second_member: u32,
}

impl LowestLevels {
    const NONE: LowestLevels = LowestLevels {
        lowest: f64::INFINITY,
        lowest_member: u32::MAX,
        second_lowest: f64::INFINITY,
        second_member: u32::MAX,
    };

    /// Adds a level.
    fn add_level(&mut self, member: u32, level: f64) {
        if level < self.lowest {
            *self = LowestLevels {
                lowest: level,
                lowest_member: member,
                second_lowest: self.lowest,
                second_member: self.lowest_member,
            };
        } else if level < self.second_lowest {
            (self.second_lowest, self.second_member) = (level, member);
        }
    }
}

/// Working memory of a visit of a link.
#[derive(Debug, Clone, Default)]
struct VisitBuffers {
    /// The queue, the member and its demand.
    member_demands: Vec<(u32, u32, f64)>,
    queue_demands: Vec<QueueDemand>,
    demand_counts: Vec<(f64, f64)>,
}

/// Links with queues, and groups of flows over them.
#[derive(Debug, Clone)]
pub struct GroupRateSolver {
    capacities: Vec<f64>,
    queues: Vec<Queue>,
    /// Members, link by link.
    members: Vec<LinkMember>,
    link_starts: Vec<u32>,
    /// Indices of members, group by group.
    group_members: Vec<u32>,
    group_starts: Vec<u32>,
    lowest_levels: Vec<LowestLevels>,
    rates: Vec<f64>,
    residuals: Vec<f64>,
    link_min_levels: Vec<f64>,
    is_link_dirty: Vec<bool>,
    round_links: Vec<u32>,
    visit_buffers: VisitBuffers,
}

impl GroupRateSolver {
    /// Creates links with these capacities, in bytes per second, and these queues. For each group, `groups` has the links
    /// that it crosses, each once, and the number of its flows there, above 0.
    ///
    /// # Errors
    /// [`WfqError::InvalidCapacity`], [`WfqError::InvalidWeight`] or [`WfqError::InvalidFlowCount`] if a number is out of range;
    /// [`WfqError::UnknownLink`] for an unknown link; [`WfqError::RepeatedLink`] if a group has a link twice.
    pub fn new(
        capacities: &[f64],
        queues: &[Queue],
        groups: &[Vec<(u32, f64)>],
    ) -> Result<GroupRateSolver, WfqError> {
        // `WfqSolver` has the same requirements for links and queues.
        super::WfqSolver::new(capacities, queues)?;
        let links = capacities.len();
        let mut link_starts = vec![0u32; links + 1];
        let mut crossed = vec![u32::MAX; links];
        for (group, footprint) in groups.iter().enumerate() {
            for &(link, flows) in footprint {
                let Some(last) = crossed.get_mut(link as usize) else {
                    return Err(WfqError::UnknownLink { queue: group, link, links });
                };
                if std::mem::replace(last, group as u32) == group as u32 {
                    return Err(WfqError::RepeatedLink { class: group, link });
                }
                if !(super::wfq::MIN_VALUE..=super::wfq::MAX_VALUE).contains(&flows) {
                    return Err(WfqError::InvalidFlowCount { class: group, flows });
                }
                link_starts[link as usize + 1] += 1;
            }
        }
        for link in 0..links {
            link_starts[link + 1] += link_starts[link];
        }
        let mut next = link_starts.clone();
        let none = LinkMember { group: 0, link: 0, flows: 0.0, level: f64::INFINITY };
        let mut members = vec![none; groups.iter().map(Vec::len).sum()];
        let (mut of_group, mut group_starts) = (Vec::with_capacity(members.len()), vec![0]);
        for (group, footprint) in groups.iter().enumerate() {
            for &(link, flows) in footprint {
                let place = &mut next[link as usize];
                members[*place as usize] = LinkMember { group: group as u32, link, flows, ..none };
                of_group.push(*place);
                *place += 1;
            }
            group_starts.push(of_group.len() as u32);
        }
        Ok(GroupRateSolver {
            capacities: capacities.to_vec(),
            queues: queues.to_vec(),
            members,
            link_starts,
            group_members: of_group,
            group_starts,
            lowest_levels: vec![LowestLevels::NONE; groups.len()],
            rates: vec![0.0; groups.len()],
            residuals: Vec::new(),
            link_min_levels: vec![0.0; links],
            is_link_dirty: vec![false; links],
            round_links: Vec::new(),
            visit_buffers: VisitBuffers::default(),
        })
    }

    /// Changes a queue's weight.
    ///
    /// # Errors
    /// [`WfqError::InvalidWeight`] if the weight is out of range.
    pub fn set_weight(&mut self, queue: usize, weight: f64) -> Result<(), WfqError> {
        super::wfq::check_weight(queue, weight)?;
        self.queues[queue].weight = weight;
        Ok(())
    }

    /// The rate of each flow of each group in the last solution, in bytes per second; 0 for groups that were not active.
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// The links of a group, and its flows over each.
    pub fn group_links(&self, group: usize) -> impl Iterator<Item = (u32, f64)> + '_ {
        let (from, to) = (self.group_starts[group] as usize, self.group_starts[group + 1] as usize);
        self.group_members[from..to].iter().map(|&member| {
            let LinkMember { link, flows, .. } = self.members[member as usize];
            (link, flows)
        })
    }

    /// Computes the rates of the active groups by weights. `queue_of` returns the queue of a group at a link, as an index
    /// into the queues. Returns the largest relative change of a rate in the last round, or 0 if the rates have settled.
    pub fn solve_weighted(&mut self, active: &[bool], queue_of: impl Fn(u32, u32) -> u32) -> f64 {
        let mut visit = std::mem::take(&mut self.visit_buffers);
        self.round_links.clear();
        for member in &mut self.members {
            member.level = f64::INFINITY;
        }
        self.lowest_levels.fill(LowestLevels::NONE);
        for link in 0..self.capacities.len() {
            let flows: f64 =
                self.members_at(link).filter(|m| active[m.group as usize]).map(|m| m.flows).sum();
            self.is_link_dirty[link] = flows > 0.0;
            if flows > 0.0 {
                self.link_min_levels[link] = self.capacities[link] / flows;
                self.round_links.push(link as u32);
            }
        }
        let mut change = 0.0;
        for number in 0..MAX_ROUNDS {
            if self.round_links.is_empty() {
                break;
            }
            let mut round = std::mem::take(&mut self.round_links);
            let lowest = &self.link_min_levels;
            round
                .sort_unstable_by(|&a, &b| lowest[a as usize].total_cmp(&lowest[b as usize]).then(a.cmp(&b)));
            let part = if number < UNDAMPED_ROUNDS { 1.0 } else { 0.5 };
            change = 0.0;
            for &link in &round {
                if std::mem::take(&mut self.is_link_dirty[link as usize]) {
                    change = f64::max(change, self.visit_link(link, part, active, &queue_of, &mut visit));
                }
            }
            round.clear();
            let dirty = self.is_link_dirty.iter().enumerate().filter(|(_, dirty)| **dirty);
            round.extend(dirty.map(|(link, _)| link as u32));
            self.round_links = round;
        }
        self.visit_buffers = visit;
        for (group, rate) in self.rates.iter_mut().enumerate() {
            *rate = if active[group] { self.lowest_levels[group].lowest } else { 0.0 };
        }
        if self.round_links.is_empty() {
            return 0.0;
        }
        for &link in &self.round_links {
            self.is_link_dirty[link as usize] = false;
        }
        self.reduce_to_capacity();
        change
    }

    /// Serves groups with a rank in the order of ranks; groups of higher ranks get the residual capacity. Groups of one
    /// rank share max-min between flows.
    pub fn solve_ranked(&mut self, ranks: &[Option<u32>]) {
        let mut left = std::mem::take(&mut self.residuals);
        left.clone_from(&self.capacities);
        self.rates.fill(0.0);
        let mut order: Vec<(u32, usize)> =
            ranks.iter().enumerate().filter_map(|(group, rank)| Some(((*rank)?, group))).collect();
        order.sort_unstable();
        let mut flows = vec![0.0; self.capacities.len()];
        for same_rank in order.chunk_by(|a, b| a.0 == b.0) {
            let mut open: Vec<usize> = same_rank.iter().map(|&(_, group)| group).collect();
            while !open.is_empty() {
                flows.fill(0.0);
                for &group in &open {
                    for (link, n) in self.group_links(group) {
                        flows[link as usize] += n;
                    }
                }
                let level = |link: usize| left[link].max(0.0) / flows[link];
                let loaded_links = (0..flows.len()).filter(|&link| flows[link] > 0.0);
                let Some(bottleneck) = loaded_links.min_by(|&a, &b| level(a).total_cmp(&level(b))) else {
                    break;
                };
                let rate = level(bottleneck);
                let (fixed, unfixed): (Vec<usize>, Vec<usize>) = open.iter().partition(|&&group| {
                    self.group_links(group).any(|(link, _)| link as usize == bottleneck)
                });
                for group in fixed {
                    self.rates[group] = rate;
                    for (link, n) in self.group_links(group) {
                        left[link as usize] -= n * rate;
                    }
                }
                open = unfixed;
            }
        }
        self.residuals = left;
    }

    fn members_at(&self, link: usize) -> impl Iterator<Item = &LinkMember> + '_ {
        self.members[self.link_starts[link] as usize..self.link_starts[link + 1] as usize].iter()
    }

    /// Moves the levels of a link's queues towards the solution for the present demands, by the fraction `part` of the way.
    /// Returns the largest relative change of a rate.
    fn visit_link(
        &mut self,
        link: u32,
        step_fraction: f64,
        active: &[bool],
        queue_of: &impl Fn(u32, u32) -> u32,
        visit: &mut VisitBuffers,
    ) -> f64 {
        let VisitBuffers { member_demands, queue_demands, demand_counts: elastic } = visit;
        member_demands.clear();
        let (from, to) = (self.link_starts[link as usize], self.link_starts[link as usize + 1]);
        for member in from..to {
            let group = self.members[member as usize].group;
            if active[group as usize] {
                let least = self.lowest_levels[group as usize];
                let demand = if least.lowest_member == member { least.second_lowest } else { least.lowest };
                member_demands.push((queue_of(group, link), member, demand));
            }
        }
        member_demands.sort_unstable_by_key(|&(queue, member, _)| (queue, member));
        queue_demands.clear();
        elastic.clear();
        for members in member_demands.chunk_by(|a, b| a.0 == b.0) {
            let from = elastic.len() as u32;
            elastic.extend(
                members.iter().map(|&(_, member, demand)| (demand, self.members[member as usize].flows)),
            );
            let total = elastic[from as usize..].iter().map(|(demand, flows)| demand * flows).sum();
            let to = elastic.len() as u32;
            queue_demands.push(QueueDemand {
                queue: members[0].0,
                start: from,
                end: to,
                unresponsive_rate: 0.0,
                total_rate: total,
                is_limited: true,
            });
        }
        let share = unit_share(self.capacities[link as usize], queue_demands, &self.queues);
        let (mut change, mut lowest) = (0.0f64, f64::INFINITY);
        for queue_demands in &*queue_demands {
            let range = queue_demands.start as usize..queue_demands.end as usize;
            let queue_rate = share * self.queues[queue_demands.queue as usize].weight;
            let target_level = if queue_demands.is_limited {
                fill_level(queue_rate, &elastic[range.clone()])
            } else {
                f64::INFINITY
            };
            for &(_, member, demand) in &member_demands[range] {
                let before = self.members[member as usize].level;
                // Damping is needed only below the demand: a level above it limits no flow.
                let level = if step_fraction < 1.0 && before.is_finite() && target_level < demand {
                    before.min(demand) + step_fraction * (target_level - before.min(demand))
                } else {
                    target_level
                };
                change = change.max(self.set_level(member, level));
                lowest = lowest.min(level);
                if step_fraction < 1.0 && (level - target_level).abs() > rounding::GROUP_RATE * target_level {
                    self.is_link_dirty[link as usize] = true;
                }
            }
        }
        self.link_min_levels[link as usize] = lowest;
        change
    }

    /// Sets the level of a member, and marks the links whose demands this changes. Returns the relative change of the rate.
    fn set_level(&mut self, member: u32, level: f64) -> f64 {
        let LinkMember { group, link, level: before, .. } = self.members[member as usize];
        self.members[member as usize].level = level;
        if level == before {
            return 0.0;
        }
        let old = self.lowest_levels[group as usize];
        let own = self.group_starts[group as usize] as usize..self.group_starts[group as usize + 1] as usize;
        let mut new = old;
        if member == old.lowest_member && level <= old.second_lowest {
            new.lowest = level;
        } else if (member == old.lowest_member || member == old.second_member) && level > before {
            // Any other link can now have the lowest level.
            new = LowestLevels::NONE;
            for &other in &self.group_members[own.clone()] {
                new.add_level(other, self.members[other as usize].level);
            }
        } else if member == old.second_member && level >= old.lowest {
            new.second_lowest = level;
        } else if member == old.second_member {
            new = LowestLevels {
                lowest: level,
                lowest_member: member,
                second_lowest: old.lowest,
                second_member: old.lowest_member,
            };
        } else {
            new.add_level(member, level);
        }
        self.lowest_levels[group as usize] = new;
        if differs(old.lowest, new.lowest) {
            for &other in &self.group_members[own] {
                let at = self.members[other as usize].link;
                self.is_link_dirty[at as usize] |= at != link;
            }
        } else if old.lowest_member != new.lowest_member || differs(old.second_lowest, new.second_lowest) {
            for other in [old.lowest_member, new.lowest_member].into_iter().filter(|other| *other != u32::MAX)
            {
                let at = self.members[other as usize].link;
                self.is_link_dirty[at as usize] |= at != link;
            }
        }
        if old.lowest == new.lowest {
            0.0
        } else if old.lowest.is_finite() && new.lowest.is_finite() {
            (old.lowest - new.lowest).abs() / old.lowest.max(new.lowest)
        } else {
            1.0
        }
    }

    /// Reduces rates that have not settled to what the links carry.
    fn reduce_to_capacity(&mut self) {
        let mut loads = vec![0.0; self.capacities.len()];
        for group in 0..self.rates.len() {
            for (link, flows) in self.group_links(group) {
                loads[link as usize] += flows * self.rates[group];
            }
        }
        for group in 0..self.rates.len() {
            let fits = self
                .group_links(group)
                .map(|(link, _)| self.capacities[link as usize] / loads[link as usize]);
            let part = fits.fold(1.0, f64::min);
            self.rates[group] *= part;
        }
    }
}

fn differs(a: f64, b: f64) -> bool {
    (a - b).abs() > rounding::GROUP_RATE * a.min(b)
}
