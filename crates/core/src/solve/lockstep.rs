//! Rates of groups of flows over links with weighted queues or priorities, where all flows of a group have the rate of the
//! slowest.
//!
//! A group can cross each of its links with a different number of flows, and has one rate. A few numbers therefore
//! describe a shuffle over thousands of links, instead of a hundred thousand flows. Links divide their capacity as in
//! [`super::wfq`]: a queue gets its demand or its weighted share, flows in a queue share max-min, and the demand of a
//! group at a link is the lowest rate at its other links.
//!
//! [`Lockstep::weighted`] visits the links whose demands changed, in rounds, from the lowest level up. A visit costs the
//! groups at the link. The solver damps rounds that do not settle, and in the end reduces rates to what the links carry,
//! as in [`super::wfq`]. [`Lockstep::ordered`] serves groups by rank, and groups of one rank max-min. Each step fixes at
//! least one group, and costs the links of the groups that are not fixed yet.

use super::wfq::filling::{Asked, fill, share};
use super::wfq::{Queue, WfqError};

/// Relative changes of a rate up to this one are ignored.
const SAME: f64 = 1e-10;

/// Number of rounds before damping, and the maximum number of rounds.
const DAMPED: u32 = 30;
const ROUNDS: u32 = 200;

/// A group at a link.
#[derive(Debug, Clone, Copy)]
struct Member {
    group: u32,
    link: u32,
    flows: f64,
    /// The maximum rate of each flow at this link; infinite if the link does not limit the group.
    level: f64,
}

/// The lowest level among the links of a group, the second lowest, and the members that have them.
#[derive(Debug, Clone, Copy)]
struct Least {
    level: f64,
    member: u32,
    others: f64,
    second: u32,
}

impl Least {
    const NONE: Least =
        Least { level: f64::INFINITY, member: u32::MAX, others: f64::INFINITY, second: u32::MAX };

    /// Adds a level.
    fn take(&mut self, member: u32, level: f64) {
        if level < self.level {
            *self = Least { level, member, others: self.level, second: self.member };
        } else if level < self.others {
            (self.others, self.second) = (level, member);
        }
    }
}

/// Working memory of a visit of a link.
#[derive(Debug, Clone, Default)]
struct Visit {
    /// The queue, the member and its demand.
    asks: Vec<(u32, u32, f64)>,
    asked: Vec<Asked>,
    elastic: Vec<(f64, f64)>,
}

/// Links with queues, and groups of flows over them.
#[derive(Debug, Clone)]
pub struct Lockstep {
    capacities: Vec<f64>,
    queues: Vec<Queue>,
    /// Members, link by link.
    members: Vec<Member>,
    link_starts: Vec<u32>,
    /// Indices of members, group by group.
    of_group: Vec<u32>,
    group_starts: Vec<u32>,
    least: Vec<Least>,
    rates: Vec<f64>,
    left: Vec<f64>,
    lowest: Vec<f64>,
    dirty: Vec<bool>,
    round: Vec<u32>,
    visit: Visit,
}

impl Lockstep {
    /// Creates links with these capacities, in bytes per second, and these queues. For each group, `groups` has the links
    /// that it crosses, each once, and the number of its flows there, above 0.
    ///
    /// # Errors
    /// [`WfqError::Capacity`], [`WfqError::Weight`] or [`WfqError::Flows`] if a number is out of range;
    /// [`WfqError::Link`] for an unknown link; [`WfqError::Loop`] if a group has a link twice.
    pub fn new(
        capacities: &[f64],
        queues: &[Queue],
        groups: &[Vec<(u32, f64)>],
    ) -> Result<Lockstep, WfqError> {
        // `Wfq` has the same requirements for links and queues.
        super::Wfq::new(capacities, queues)?;
        let links = capacities.len();
        let mut link_starts = vec![0u32; links + 1];
        let mut crossed = vec![u32::MAX; links];
        for (group, footprint) in groups.iter().enumerate() {
            for &(link, flows) in footprint {
                let Some(last) = crossed.get_mut(link as usize) else {
                    return Err(WfqError::Link { queue: group, link, links });
                };
                if std::mem::replace(last, group as u32) == group as u32 {
                    return Err(WfqError::Loop { class: group, link });
                }
                if !(super::wfq::MIN..=super::wfq::MAX).contains(&flows) {
                    return Err(WfqError::Flows { class: group, flows });
                }
                link_starts[link as usize + 1] += 1;
            }
        }
        for link in 0..links {
            link_starts[link + 1] += link_starts[link];
        }
        let mut next = link_starts.clone();
        let none = Member { group: 0, link: 0, flows: 0.0, level: f64::INFINITY };
        let mut members = vec![none; groups.iter().map(Vec::len).sum()];
        let (mut of_group, mut group_starts) = (Vec::with_capacity(members.len()), vec![0]);
        for (group, footprint) in groups.iter().enumerate() {
            for &(link, flows) in footprint {
                let place = &mut next[link as usize];
                members[*place as usize] = Member { group: group as u32, link, flows, ..none };
                of_group.push(*place);
                *place += 1;
            }
            group_starts.push(of_group.len() as u32);
        }
        Ok(Lockstep {
            capacities: capacities.to_vec(),
            queues: queues.to_vec(),
            members,
            link_starts,
            of_group,
            group_starts,
            least: vec![Least::NONE; groups.len()],
            rates: vec![0.0; groups.len()],
            left: Vec::new(),
            lowest: vec![0.0; links],
            dirty: vec![false; links],
            round: Vec::new(),
            visit: Visit::default(),
        })
    }

    /// Changes a queue's weight.
    ///
    /// # Errors
    /// [`WfqError::Weight`] if the weight is out of range.
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
    pub fn footprint(&self, group: usize) -> impl Iterator<Item = (u32, f64)> + '_ {
        let (from, to) = (self.group_starts[group] as usize, self.group_starts[group + 1] as usize);
        self.of_group[from..to].iter().map(|&member| {
            let Member { link, flows, .. } = self.members[member as usize];
            (link, flows)
        })
    }

    /// Computes the rates of the active groups by weights. `queue_of` returns the queue of a group at a link, as an index
    /// into the queues. Returns the largest relative change of a rate in the last round, or 0 if the rates have settled.
    pub fn weighted(&mut self, active: &[bool], queue_of: impl Fn(u32, u32) -> u32) -> f64 {
        let mut visit = std::mem::take(&mut self.visit);
        self.round.clear();
        for member in &mut self.members {
            member.level = f64::INFINITY;
        }
        self.least.fill(Least::NONE);
        for link in 0..self.capacities.len() {
            let flows: f64 = self.at(link).filter(|m| active[m.group as usize]).map(|m| m.flows).sum();
            self.dirty[link] = flows > 0.0;
            if flows > 0.0 {
                self.lowest[link] = self.capacities[link] / flows;
                self.round.push(link as u32);
            }
        }
        let mut change = 0.0;
        for number in 0..ROUNDS {
            if self.round.is_empty() {
                break;
            }
            let mut round = std::mem::take(&mut self.round);
            let lowest = &self.lowest;
            round
                .sort_unstable_by(|&a, &b| lowest[a as usize].total_cmp(&lowest[b as usize]).then(a.cmp(&b)));
            let part = if number < DAMPED { 1.0 } else { 0.5 };
            change = 0.0;
            for &link in &round {
                if std::mem::take(&mut self.dirty[link as usize]) {
                    change = f64::max(change, self.visit(link, part, active, &queue_of, &mut visit));
                }
            }
            round.clear();
            let dirty = self.dirty.iter().enumerate().filter(|(_, dirty)| **dirty);
            round.extend(dirty.map(|(link, _)| link as u32));
            self.round = round;
        }
        self.visit = visit;
        for (group, rate) in self.rates.iter_mut().enumerate() {
            *rate = if active[group] { self.least[group].level } else { 0.0 };
        }
        if self.round.is_empty() {
            return 0.0;
        }
        for &link in &self.round {
            self.dirty[link as usize] = false;
        }
        self.cut();
        change
    }

    /// Serves groups with a rank in the order of ranks; groups of higher ranks get the residual capacity. Groups of one
    /// rank share max-min between flows.
    pub fn ordered(&mut self, ranks: &[Option<u32>]) {
        let mut left = std::mem::take(&mut self.left);
        left.clone_from(&self.capacities);
        self.rates.fill(0.0);
        let mut order: Vec<(u32, usize)> =
            ranks.iter().enumerate().filter_map(|(group, rank)| Some(((*rank)?, group))).collect();
        order.sort_unstable();
        let mut flows = vec![0.0; self.capacities.len()];
        for alike in order.chunk_by(|a, b| a.0 == b.0) {
            let mut open: Vec<usize> = alike.iter().map(|&(_, group)| group).collect();
            while !open.is_empty() {
                flows.fill(0.0);
                for &group in &open {
                    for (link, n) in self.footprint(group) {
                        flows[link as usize] += n;
                    }
                }
                let level = |link: usize| left[link].max(0.0) / flows[link];
                let short = (0..flows.len()).filter(|&link| flows[link] > 0.0);
                let Some(tight) = short.min_by(|&a, &b| level(a).total_cmp(&level(b))) else { break };
                let rate = level(tight);
                let (fixed, rest): (Vec<usize>, Vec<usize>) = open
                    .iter()
                    .partition(|&&group| self.footprint(group).any(|(link, _)| link as usize == tight));
                for group in fixed {
                    self.rates[group] = rate;
                    for (link, n) in self.footprint(group) {
                        left[link as usize] -= n * rate;
                    }
                }
                open = rest;
            }
        }
        self.left = left;
    }

    fn at(&self, link: usize) -> impl Iterator<Item = &Member> + '_ {
        self.members[self.link_starts[link] as usize..self.link_starts[link + 1] as usize].iter()
    }

    /// Moves the levels of a link's queues towards the solution for the present demands, by the fraction `part` of the way.
    /// Returns the largest relative change of a rate.
    fn visit(
        &mut self,
        link: u32,
        part: f64,
        active: &[bool],
        queue_of: &impl Fn(u32, u32) -> u32,
        visit: &mut Visit,
    ) -> f64 {
        let Visit { asks, asked, elastic } = visit;
        asks.clear();
        let (from, to) = (self.link_starts[link as usize], self.link_starts[link as usize + 1]);
        for member in from..to {
            let group = self.members[member as usize].group;
            if active[group as usize] {
                let least = self.least[group as usize];
                let ask = if least.member == member { least.others } else { least.level };
                asks.push((queue_of(group, link), member, ask));
            }
        }
        asks.sort_unstable_by_key(|&(queue, member, _)| (queue, member));
        asked.clear();
        elastic.clear();
        for some in asks.chunk_by(|a, b| a.0 == b.0) {
            let from = elastic.len() as u32;
            elastic.extend(some.iter().map(|&(_, member, ask)| (ask, self.members[member as usize].flows)));
            let total = elastic[from as usize..].iter().map(|(ask, flows)| ask * flows).sum();
            let to = elastic.len() as u32;
            asked.push(Asked { queue: some[0].0, from, to, unresponsive: 0.0, total, short: true });
        }
        let share = share(self.capacities[link as usize], asked, &self.queues);
        let (mut change, mut lowest) = (0.0f64, f64::INFINITY);
        for asked in &*asked {
            let range = asked.from as usize..asked.to as usize;
            let gets = share * self.queues[asked.queue as usize].weight;
            let goal = if asked.short { fill(gets, &elastic[range.clone()]) } else { f64::INFINITY };
            for &(_, member, ask) in &asks[range] {
                let before = self.members[member as usize].level;
                // Damping is needed only below the demand: a level above it limits no flow.
                let level = if part < 1.0 && before.is_finite() && goal < ask {
                    before.min(ask) + part * (goal - before.min(ask))
                } else {
                    goal
                };
                change = change.max(self.put(member, level));
                lowest = lowest.min(level);
                if part < 1.0 && (level - goal).abs() > SAME * goal {
                    self.dirty[link as usize] = true;
                }
            }
        }
        self.lowest[link as usize] = lowest;
        change
    }

    /// Sets the level of a member, and marks the links whose demands this changes. Returns the relative change of the rate.
    fn put(&mut self, member: u32, level: f64) -> f64 {
        let Member { group, link, level: before, .. } = self.members[member as usize];
        self.members[member as usize].level = level;
        if level == before {
            return 0.0;
        }
        let old = self.least[group as usize];
        let own = self.group_starts[group as usize] as usize..self.group_starts[group as usize + 1] as usize;
        let mut new = old;
        if member == old.member && level <= old.others {
            new.level = level;
        } else if (member == old.member || member == old.second) && level > before {
            // Any other link can now have the lowest level.
            new = Least::NONE;
            for &other in &self.of_group[own.clone()] {
                new.take(other, self.members[other as usize].level);
            }
        } else if member == old.second && level >= old.level {
            new.others = level;
        } else if member == old.second {
            new = Least { level, member, others: old.level, second: old.member };
        } else {
            new.take(member, level);
        }
        self.least[group as usize] = new;
        if differ(old.level, new.level) {
            for &other in &self.of_group[own] {
                let at = self.members[other as usize].link;
                self.dirty[at as usize] |= at != link;
            }
        } else if old.member != new.member || differ(old.others, new.others) {
            for other in [old.member, new.member].into_iter().filter(|other| *other != u32::MAX) {
                let at = self.members[other as usize].link;
                self.dirty[at as usize] |= at != link;
            }
        }
        if old.level == new.level {
            0.0
        } else if old.level.is_finite() && new.level.is_finite() {
            (old.level - new.level).abs() / old.level.max(new.level)
        } else {
            1.0
        }
    }

    /// Reduces rates that have not settled to what the links carry.
    fn cut(&mut self) {
        let mut loads = vec![0.0; self.capacities.len()];
        for group in 0..self.rates.len() {
            for (link, flows) in self.footprint(group) {
                loads[link as usize] += flows * self.rates[group];
            }
        }
        for group in 0..self.rates.len() {
            let fits =
                self.footprint(group).map(|(link, _)| self.capacities[link as usize] / loads[link as usize]);
            let part = fits.fold(1.0, f64::min);
            self.rates[group] *= part;
        }
    }
}

fn differ(a: f64, b: f64) -> bool {
    (a - b).abs() > SAME * a.min(b)
}
