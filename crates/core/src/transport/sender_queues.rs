//! Computes rates for queues at the senders (FIFO by coflow, as Aalo's agents enforce) and max-min at the links after them (TCP).
//!
//! - Every sending port shares its rate among its queues with data. A queue's share goes to its first coflow, evenly over
//!   that coflow's flows at the port.
//! - A receiving port or trunk whose arrivals exceed its capacity shares the capacity max-min, as TCP would.
//! - Senders reassign the capacity that overloaded links do not accept, in the order of their queues: in the order of
//!   coflows and ports, each flow gets the smallest residual capacity of its links.
//!
//! Before the reassignment, a flow's rate is the smallest of the levels of its *sender queue* (the flows of one coflow
//! that one queue of one sender serves), of its overloaded trunks and of its receiver. As in [`super::max_min`], queues and links
//! count the bytes that a flow limited by them has sent, and a flow uses the count of the one that limits it. A schedule visits
//! only the flows whose limit changes, those of queues that begin or end, and those with reassigned capacity, at most one a
//! link.
//!
//! The level of a link depends on the rates that it is offered, which other links limit. A link is computed again until the rates of
//! its flows at the other links stay. Flows of a queue over the same trunks, a *row*, are offered to trunks together.
//!
//! The parts of an update are not inlined into one function, whose inner loops would then keep few values in registers.

use std::sync::Arc;

use crate::allocation::{Allocation, InterQueueSharing, QueueDiscipline};
use crate::model::{BitSet, CompletedFlow, Fabric, Goodput, Network, Slot};
use crate::solve::crossing_flows::CrossingFlows;

use super::{SentProgress, Transport, order_by_class};

mod level;
mod links;
mod rate_groups;
mod reassignment;
mod rows;

use rate_groups::{FirstFlow, RateGroups};
use reassignment::Reassignment;
use rows::{Row, TrunkRow};

/// No group, entry or link.
const NONE: u32 = u32::MAX;

/// One flow.
#[derive(Debug, Clone, Copy)]
struct Flow {
    /// The group that limits it: a sender queue or a link; or [`NONE`].
    group: u32,
    /// The count of its group at which it ends; without a group, its remaining bytes.
    end_count: f64,
    /// Its entry among the flows with reassigned capacity, or [`NONE`].
    reassignment_entry: u32,
    /// Its index in the offers of its receiver, or [`NONE`].
    offer_index: u32,
}

/// The flows of one coflow.
#[derive(Debug, Default)]
struct CoflowFlows {
    /// The coflow's sequence number, because slots are reused, and the layout of its flows.
    seq: Option<u64>,
    layout: Option<u64>,
    flows: Vec<Flow>,
    class: usize,
    /// Bytes sent by all flows until the last update, and their rate since.
    sent_bytes: f64,
    total_rate: f64,
}

/// Whether an entry of a group is that of a flow in the group.
fn is_current(coflows: &[CoflowFlows], group: u32, (end, slot, flow): FirstFlow) -> bool {
    let f = coflows[slot as usize].flows.get(flow as usize);
    f.is_some_and(|f| f.group == group && f.end_count == end)
}

/// The flows that one queue of one sender serves.
#[derive(Debug, Default, Clone)]
struct SenderQueue {
    /// The coflow and the layout of its flows.
    coflow: Option<(Slot, u64)>,
    rows: Vec<u32>,
}

/// The first coflow in a queue of a sender: its slot and layout, the sender's index in it, and the queue's share of the port.
#[derive(Debug, Clone, Copy)]
struct QueueHead {
    slot: Slot,
    layout: u64,
    sender_index: usize,
    rate: f64,
}

/// A flow offered to a receiver.
#[derive(Debug, Clone, Copy)]
struct Offer {
    row: u32,
    /// The group of the row's queue.
    queue: u32,
    slot: Slot,
    flow: u32,
    /// Whether the receiver limits the flow.
    is_limited: bool,
}

/// A transport with queues at the senders. A group is a queue of a sender, or a link after the senders.
pub(super) struct SenderQueues {
    weights: InterQueueSharing,
    class_count: usize,
    /// The group of the first link; those of queues come before.
    first_link_group: usize,
    /// The version of the fabric at the last update.
    fabric_version: Option<u64>,
    coflows: Vec<CoflowFlows>,
    /// By group.
    queues: Vec<SenderQueue>,
    /// By group of a queue: the rate of all flows, unless it is stale.
    sent_rates: Vec<f64>,
    stale_sent_rates: BitSet,
    groups: RateGroups,
    /// Rows by number, and their rates.
    rows: Vec<Row>,
    row_rates: Vec<f64>,
    /// By row: the sum of the levels of receivers that limit flows of it.
    limit_sums: Vec<f64>,
    /// By row: the trunk with the row's rate, or [`NONE`] if it is the queue's.
    limiting_trunks: Vec<u32>,
    vacant_rows: Vec<u32>,
    /// By link, for receivers: the offered flows.
    offers_by_receiver: Vec<Vec<Offer>>,
    /// By link, for trunks: the rows over it. Empty on one switch.
    rows_by_trunk: Vec<Vec<TrunkRow>>,
    /// By link, for trunks: flows over it that their receivers limit.
    limited_counts: Vec<u32>,
    first_trunk: usize,
    /// By trunk and link: flows over both that the trunk limits.
    crossing: CrossingFlows,
    /// By link after the senders: the total offered rate, and the level if it exceeds the capacity; infinite otherwise, as for senders.
    loads: Vec<f64>,
    levels: Vec<f64>,
    capacities: Vec<f64>,
    /// By link: the capacities of senders, and the residual capacities of the other links; 0 for others.
    sender_capacities: Vec<f64>,
    link_residuals: Vec<f64>,
    /// By link: residual capacity.
    residuals: Vec<f64>,
    /// Coflows by class, then by release.
    coflow_order: Vec<(usize, Slot)>,
    /// Sending links whose queues must be computed again.
    stale_senders: BitSet,
    /// Links after the senders whose levels must be computed again.
    stale_links: BitSet,
    queue_heads: Vec<Option<QueueHead>>,
    flow_buffer: Vec<(u32, u32)>,
    group_buffer: BitSet,
    rate_buffer: Vec<f64>,
    count_buffer: Vec<f64>,
    reassignment: Reassignment,
    goodput: Option<Arc<Goodput>>,
}

impl SenderQueues {
    pub(super) fn new(
        queues: &QueueDiscipline,
        fabric: &Fabric,
        goodput: Option<Arc<Goodput>>,
    ) -> SenderQueues {
        let class_count = match &queues.inter_queue {
            InterQueueSharing::Weighted(weights) => weights.len(),
            InterQueueSharing::StrictPriority(classes) => *classes,
        };
        let links = fabric.links();
        let first_link_group = fabric.senders().iter().last().map_or(0, |link| link + 1) * class_count;
        let groups = first_link_group + links;
        SenderQueues {
            weights: queues.inter_queue.clone(),
            class_count,
            first_link_group,
            fabric_version: None,
            coflows: Vec::new(),
            queues: vec![SenderQueue::default(); first_link_group],
            sent_rates: vec![0.0; first_link_group],
            stale_sent_rates: BitSet::empty(first_link_group),
            groups: RateGroups::new(groups),
            rows: Vec::new(),
            row_rates: Vec::new(),
            limit_sums: Vec::new(),
            limiting_trunks: Vec::new(),
            vacant_rows: Vec::new(),
            offers_by_receiver: vec![Vec::new(); links],
            rows_by_trunk: if fabric.trunk_links().is_empty() { Vec::new() } else { vec![Vec::new(); links] },
            limited_counts: vec![0; links],
            first_trunk: fabric.trunk_links().start,
            crossing: CrossingFlows::new(if fabric.trunk_links().is_empty() { 0 } else { links }),
            loads: vec![0.0; links],
            levels: vec![f64::INFINITY; links],
            capacities: Vec::new(),
            sender_capacities: vec![0.0; links],
            link_residuals: vec![0.0; links],
            residuals: vec![0.0; links],
            coflow_order: Vec::new(),
            stale_senders: BitSet::empty(links),
            stale_links: BitSet::empty(links),
            queue_heads: Vec::new(),
            flow_buffer: Vec::new(),
            group_buffer: BitSet::default(),
            rate_buffer: Vec::new(),
            count_buffer: Vec::new(),
            reassignment: Reassignment::default(),
            goodput,
        }
    }

    /// The group of a sender's queue.
    fn queue_group(&self, src: usize, class: usize) -> usize {
        src * self.class_count + class
    }

    /// The group of the flows that a link limits.
    #[inline]
    fn link_group(&self, link: usize) -> u32 {
        (self.first_link_group + link) as u32
    }

    fn is_trunk(&self, link: usize) -> bool {
        link >= self.first_trunk
    }

    /// Prepares the state of the coflow in a slot, unless the slot still contains the same flows. If the flows of the coflow were replaced,
    /// its counter continues.
    fn prepare_coflow(&mut self, slot: Slot, network: &Network) {
        if slot as usize >= self.coflows.len() {
            self.coflows.resize_with(slot as usize + 1, CoflowFlows::default);
        }
        let coflow = network.coflow(slot);
        let flows = &mut self.coflows[slot as usize];
        if flows.layout != Some(coflow.layout()) {
            let none = Flow { group: NONE, end_count: 0.0, reassignment_entry: NONE, offer_index: NONE };
            let is_same = flows.seq == Some(coflow.seq);
            *flows = CoflowFlows {
                seq: Some(coflow.seq),
                layout: Some(coflow.layout()),
                flows: vec![none; coflow.width()],
                class: usize::MAX,
                sent_bytes: if is_same { flows.sent_bytes } else { 0.0 },
                total_rate: if is_same { flows.total_rate } else { 0.0 },
            };
        }
    }

    fn base_rate(&self, slot: Slot, flow: u32) -> f64 {
        self.groups.rate(self.coflows[slot as usize].flows[flow as usize].group)
    }

    /// Moves a flow to another group, or to none, at the time of the last count.
    fn move_to_group(&mut self, slot: Slot, flow: u32, group: u32) {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        let now = self.groups.last_time();
        self.groups.remove_flow(f.group, f.end_count);
        f.end_count += self.groups.sent_count(group, now) - self.groups.sent_count(f.group, now);
        f.group = group;
        self.reassignment.set_group(f.reassignment_entry, group);
        if f.reassignment_entry == NONE {
            self.groups.add_flow(group, (f.end_count, slot, flow));
        }
    }

    /// Adds the bytes sent until `now` to the counts.
    #[inline(never)]
    fn advance(&mut self, now: f64) {
        let time = now - self.groups.last_time();
        for flows in &mut self.coflows {
            flows.sent_bytes += flows.total_rate * time;
        }
        self.groups.advance(now);
    }

    /// Finds the first coflow of each queue of a sender, and the queue's rate. O(coflows).
    fn find_queue_heads(&mut self, src: usize, network: &Network) {
        let (queue_heads, capacity) = (&mut self.queue_heads, self.capacities[src]);
        queue_heads.clear();
        queue_heads.resize(self.class_count, None);
        for &(class, slot) in &self.coflow_order {
            if queue_heads[class].is_some() {
                continue;
            }
            let coflow = network.coflow(slot);
            if coflow.live_links().contains(src) {
                let sender_index = coflow.senders().partition_point(|load| (load.link as usize) < src);
                queue_heads[class] =
                    Some(QueueHead { slot, layout: coflow.layout(), sender_index, rate: 0.0 });
            }
        }
        match &self.weights {
            InterQueueSharing::Weighted(weights) => {
                let waiting = queue_heads.iter().zip(weights).filter(|(head, _)| head.is_some());
                let total: f64 = waiting.map(|(_, weight)| weight).sum();
                for (head, weight) in queue_heads.iter_mut().zip(weights) {
                    head.iter_mut().for_each(|head| head.rate = capacity * weight / total);
                }
            }
            InterQueueSharing::StrictPriority(_) => {
                let served_class = queue_heads.iter().position(Option::is_some);
                for (class, head) in queue_heads.iter_mut().enumerate() {
                    *head = head.filter(|_| Some(class) == served_class);
                    head.iter_mut().for_each(|head| head.rate = capacity);
                }
            }
        }
    }

    /// Computes the first coflow and the rate of each queue of a sender. O(coflows + flows of queues that begin or end).
    #[inline(never)]
    fn update_sender(&mut self, src: usize, network: &Network) {
        self.find_queue_heads(src, network);
        let queue_heads = std::mem::take(&mut self.queue_heads);
        // All ends come before all beginnings, because a coflow can move from one queue to another.
        for (class, head) in queue_heads.iter().enumerate() {
            let queue = self.queue_group(src, class);
            if self.queues[queue].coflow != head.map(|head| (head.slot, head.layout)) {
                self.end_queue(queue);
            }
        }
        for (class, head) in queue_heads.iter().enumerate() {
            let queue = self.queue_group(src, class);
            let Some(QueueHead { slot, layout, sender_index, rate }) = *head else {
                self.groups.set_rate(queue, 0.0);
                continue;
            };
            let begins = self.queues[queue].coflow.is_none();
            if begins {
                self.begin_queue(queue, (slot, layout), sender_index, network);
            }
            let rate = match network.fabric().has_limiting_ports() {
                true => rate / f64::from(network.coflow(slot).senders()[sender_index].live_flow_count.max(1)),
                // More than all links of a region carry: no queue waits for the share of another.
                false => self.capacities[src],
            };
            if begins || self.groups.rate(queue as u32) != rate {
                self.groups.set_rate(queue, rate);
                for at in 0..self.queues[queue].rows.len() {
                    self.update_row(self.queues[queue].rows[at], NONE);
                }
            }
        }
        self.queue_heads = queue_heads;
    }

    /// Computes the residual capacity of all links, and the rate of each coflow before the reassignment. O(links + queues).
    #[inline(never)]
    fn compute_residuals(&mut self) {
        for queue in self.stale_sent_rates.iter() {
            let rate_of = |&row: &u32| {
                let row = row as usize;
                self.rows[row].total_rate(self.row_rates[row], self.limit_sums[row])
            };
            self.sent_rates[queue] = self.queues[queue].rows.iter().map(rate_of).sum();
        }
        self.stale_sent_rates.clear();
        for flows in &mut self.coflows {
            flows.total_rate = 0.0;
        }
        let links = self.sender_capacities.iter().zip(&self.link_residuals);
        for (residual, (capacity, after_sender)) in self.residuals.iter_mut().zip(links) {
            *residual = capacity + after_sender;
        }
        let (mut src, mut end) = (0, self.class_count);
        for group in self.groups.active().iter().take_while(|&group| group < self.first_link_group) {
            let Some((slot, _)) = self.queues[group].coflow else { continue };
            while group >= end {
                (src, end) = (src + 1, end + self.class_count);
            }
            let rate = self.sent_rates[group];
            self.coflows[slot as usize].total_rate += rate;
            self.residuals[src] = (self.residuals[src] - rate).max(0.0);
        }
    }

    /// Marks the queues whose coflow has another class, or flows that started, for a new computation.
    fn update_classes(&mut self, network: &Network, allocation: &Allocation) {
        for &slot in network.active_coflows() {
            self.prepare_coflow(slot, network);
            let class = allocation.class(slot);
            let previous_class = std::mem::replace(&mut self.coflows[slot as usize].class, class);
            if previous_class == class {
                continue;
            }
            for load in network.coflow(slot).senders() {
                let src = load.link as usize;
                self.stale_senders.insert(src);
                let queue = self.queue_group(src, class);
                if previous_class == usize::MAX && self.queues[queue].coflow.is_some_and(|(s, _)| s == slot) {
                    self.end_queue(queue);
                }
            }
        }
    }

    /// Removes a flow that ended or lost its data at `at`.
    fn remove_flow(&mut self, slot: Slot, flow: u32, at: f64, network: &Network) {
        let (src, receiver) = network.coflow(slot).flow_port_links(flow);
        let rate = self.flow_rate(slot, flow);
        self.remove_reassigned(slot, flow);
        let Flow { group, end_count, .. } = self.coflows[slot as usize].flows[flow as usize];
        if let Some(Offer { row, .. }) = self.remove_offer(slot, flow, receiver) {
            let base_rate = self.groups.rate(group);
            if group == self.link_group(receiver) {
                self.remove_from_row(row, receiver as u32, Some(base_rate));
                self.stale_links.insert(receiver);
            } else {
                self.remove_from_row(row, receiver as u32, None);
                self.change_offer(receiver, -base_rate, None);
            }
        }
        let flows = &mut self.coflows[slot as usize];
        flows.sent_bytes += rate * (at - self.groups.last_time());
        flows.total_rate -= rate;
        self.groups.remove_flow(group, end_count);
        flows.flows[flow as usize].group = NONE;
        self.stale_senders.insert(src);
    }
}

impl Transport for SenderQueues {
    fn start_flow(&mut self, slot: Slot, flow: u32, remaining_bytes: f64, network: &Network) {
        self.prepare_coflow(slot, network);
        let flows = &mut self.coflows[slot as usize];
        flows.flows[flow as usize].end_count = remaining_bytes;
        // The next update rebuilds the sender's queues with this flow.
        flows.class = usize::MAX;
    }

    fn stop_flow(&mut self, slot: Slot, flow: u32, network: &Network, now: f64) -> f64 {
        let left = self.remaining_bytes(slot, flow, now);
        self.remove_flow(slot, flow, now, network);
        left
    }

    fn update_rates(&mut self, network: &Network, allocation: &Allocation, now: f64) {
        self.advance(now);
        let fabric = network.fabric();
        if self.fabric_version != Some(fabric.version()) {
            self.fabric_version = Some(fabric.version());
            self.capacities.clear();
            self.capacities.extend_from_slice(fabric.capacities());
            for link in fabric.senders().iter() {
                self.stale_senders.insert(link);
                self.sender_capacities[link] = self.capacities[link];
            }
            let links = fabric.receivers().iter().chain(fabric.trunk_links());
            links.for_each(|link| self.stale_links.insert(link));
        }
        self.update_classes(network, allocation);
        order_by_class(&mut self.coflow_order, network, allocation);
        let mut stale = std::mem::take(&mut self.stale_senders);
        for src in stale.iter() {
            self.update_sender(src, network);
        }
        stale.clear();
        self.stale_senders = stale;
        self.settle_links();
        self.compute_residuals();
        self.reassign_residual(network);
    }

    fn next_completion(&mut self) -> f64 {
        let coflows = &self.coflows;
        let next = self.groups.next_completion(|group, first| is_current(coflows, group, first));
        next.min(self.reassignment.next_completion())
    }

    fn complete_flows_until(&mut self, until: f64, network: &Network, completed: &mut Vec<CompletedFlow>) {
        if self.reassignment.next_completion() <= until {
            for at in 0..self.reassignment.len() {
                if let Some((slot, flow, end)) = self.reassignment.flow_completion(at)
                    && end <= until
                {
                    self.remove_flow(slot, flow, end, network);
                    completed.push(CompletedFlow { slot, flow, completed_at: end });
                }
            }
        }
        // Rates, and with them the active groups, stay until the next update.
        let mut active = std::mem::take(&mut self.group_buffer);
        active.copy_from(self.groups.active());
        for group in active.iter() {
            loop {
                let coflows = &self.coflows;
                let is_current = |group, first| is_current(coflows, group, first);
                let Some((slot, flow, at)) = self.groups.first_completion(group, until, is_current) else {
                    break;
                };
                self.remove_flow(slot, flow, at, network);
                completed.push(CompletedFlow { slot, flow, completed_at: at });
            }
        }
        self.group_buffer = active;
    }

    fn flow_rate(&self, slot: Slot, flow: u32) -> f64 {
        let Some(flows) = self.coflows.get(slot as usize) else { return 0.0 };
        self.base_rate(slot, flow) + self.reassignment.rate(flows.flows[flow as usize].reassignment_entry)
    }

    fn remaining_bytes(&self, slot: Slot, flow: u32, at: f64) -> f64 {
        let f = &self.coflows[slot as usize].flows[flow as usize];
        let count = self.groups.sent_count(f.group, at);
        (f.end_count - count - self.reassignment.pending_bytes(f.reassignment_entry, at)).max(0.0)
    }

    fn coflow_progress(&self, slot: Slot) -> Option<SentProgress> {
        let flows = self.coflows.get(slot as usize)?;
        Some(SentProgress {
            sent_bytes: flows.sent_bytes,
            rate: flows.total_rate,
            time: self.groups.last_time(),
        })
    }
}
