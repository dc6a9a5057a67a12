//! Indexes the classes of one problem by path and by queue.

use super::{FlowCounts, MAX_VALUE, MIN_VALUE, Queue, QueuedClass, Source, WfqError};

/// A class in one of its queues, with the data that a visit of the queue needs in one place.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueueMember {
    pub(super) class: u32,
    pub(super) flows: f64,
    /// The maximum demand of a flow.
    pub(super) max_demand: f64,
    /// Start and end of the class's queues in `ClassIndex::path_queues`.
    start: u32,
    end: u32,
}

/// The classes of one problem.
#[derive(Debug, Clone, Default)]
pub(super) struct ClassIndex {
    /// The queues of each class, class by class.
    path_queues: Vec<u32>,
    /// The number of flows in each of these queues.
    path_flows: Vec<f64>,
    starts: Vec<u32>,
    /// The maximum demand of a flow.
    pub(super) max_demands: Vec<f64>,
    pub(super) unresponsive: Vec<bool>,
    /// The classes in each queue, queue by queue: the elastic ones up to the queue's middle, then the unresponsive ones.
    members: Vec<QueueMember>,
    member_starts: Vec<u32>,
    unresponsive_starts: Vec<u32>,
    /// By link, the last class that crossed it, plus one.
    last_class_by_link: Vec<u32>,
    /// By queue, the index of its next member.
    next: Vec<u32>,
}

impl ClassIndex {
    /// Loads a problem, and checks it. O(links of all classes + queues).
    pub(super) fn load_classes(
        &mut self,
        classes: &[QueuedClass<'_>],
        queues: &[Queue],
        links: usize,
    ) -> Result<(), WfqError> {
        self.path_queues.clear();
        self.path_flows.clear();
        self.starts.clear();
        self.max_demands.clear();
        self.unresponsive.clear();
        self.starts.push(0);
        self.last_class_by_link.clear();
        self.last_class_by_link.resize(links, 0);
        for (number, class) in classes.iter().enumerate() {
            let (ask, unresponsive) = match class.source {
                Source::Elastic => (f64::INFINITY, false),
                Source::Capped(rate) => (rate, false),
                Source::Unresponsive(rate) => (rate, true),
            };
            if class.source != Source::Elastic && !(0.0..=MAX_VALUE).contains(&ask) {
                return Err(WfqError::InvalidRate { class: number, rate: ask });
            }
            for &queue in class.queues {
                let Some(&Queue { link, .. }) = queues.get(queue as usize) else {
                    return Err(WfqError::UnknownQueue { class: number, queue, queues: queues.len() });
                };
                if std::mem::replace(&mut self.last_class_by_link[link as usize], number as u32 + 1)
                    == number as u32 + 1
                {
                    return Err(WfqError::RepeatedLink { class: number, link });
                }
            }
            self.path_queues.extend_from_slice(class.queues);
            self.add_flow_counts(number, class)?;
            self.starts.push(self.path_queues.len() as u32);
            self.max_demands.push(ask);
            self.unresponsive.push(unresponsive);
        }
        self.sort_members(queues.len());
        Ok(())
    }

    /// Adds the numbers of flows of a class.
    fn add_flow_counts(&mut self, number: usize, class: &QueuedClass<'_>) -> Result<(), WfqError> {
        let first = self.path_flows.len();
        match class.flows {
            FlowCounts::Equal(flows) => self.path_flows.resize(first + class.queues.len(), flows),
            FlowCounts::ByLink(flows) => self.path_flows.extend_from_slice(flows),
        }
        // A missing number counts as 0.
        self.path_flows.resize(first + class.queues.len(), 0.0);
        let is_valid = |flows: &f64| (MIN_VALUE..=MAX_VALUE).contains(flows);
        match self.path_flows[first..].iter().find(|flows| !is_valid(flows)) {
            Some(&flows) => Err(WfqError::InvalidFlowCount { class: number, flows }),
            None => Ok(()),
        }
    }

    fn sort_members(&mut self, queues: usize) {
        self.member_starts.clear();
        self.member_starts.resize(queues + 1, 0);
        self.unresponsive_starts.clear();
        self.unresponsive_starts.resize(queues, 0);
        for &queue in &self.path_queues {
            self.member_starts[queue as usize + 1] += 1;
        }
        for queue in 0..queues {
            self.member_starts[queue + 1] += self.member_starts[queue];
        }
        self.members.clear();
        self.members.resize(self.path_queues.len(), QueueMember::default());
        self.next.clone_from(&self.member_starts);
        for unresponsive in [false, true] {
            for class in 0..self.max_demands.len() {
                if self.unresponsive[class] != unresponsive {
                    continue;
                }
                let (start, end, max_demand) =
                    (self.starts[class], self.starts[class + 1], self.max_demands[class]);
                for hop in start as usize..end as usize {
                    let place = &mut self.next[self.path_queues[hop] as usize];
                    let flows = self.path_flows[hop];
                    self.members[*place as usize] =
                        QueueMember { class: class as u32, flows, max_demand, start, end };
                    *place += 1;
                }
            }
            if !unresponsive {
                self.unresponsive_starts.copy_from_slice(&self.next[..queues]);
            }
        }
    }

    pub(super) fn class_queues(&self, class: u32) -> &[u32] {
        let class = class as usize;
        &self.path_queues[self.starts[class] as usize..self.starts[class + 1] as usize]
    }

    /// The queues of a class, and its number of flows in each.
    pub(super) fn class_hops(&self, class: u32) -> impl Iterator<Item = (u32, f64)> {
        let hops = self.starts[class as usize] as usize..self.starts[class as usize + 1] as usize;
        self.path_queues[hops.clone()].iter().copied().zip(self.path_flows[hops].iter().copied())
    }

    /// The queues of a member's class.
    pub(super) fn member_queues(&self, member: &QueueMember) -> &[u32] {
        &self.path_queues[member.start as usize..member.end as usize]
    }

    pub(super) fn elastic_members(&self, queue: u32) -> &[QueueMember] {
        &self.members
            [self.member_starts[queue as usize] as usize..self.unresponsive_starts[queue as usize] as usize]
    }

    pub(super) fn unresponsive_members(&self, queue: u32) -> &[QueueMember] {
        &self.members[self.unresponsive_starts[queue as usize] as usize
            ..self.member_starts[queue as usize + 1] as usize]
    }
}
