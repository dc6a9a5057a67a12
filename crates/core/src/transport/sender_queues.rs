//! Computes rates for queues at the senders (FIFO by coflow, as Aalo's agents enforce) and max-min at the receivers (TCP).
//!
//! - Every sending port shares its rate among its queues with data. A queue's share goes to its first coflow, evenly over
//!   that coflow's flows at the port.
//! - A receiving port whose arrivals exceed its capacity shares the capacity max-min, as TCP would.
//! - Senders reassign the capacity that overloaded receivers do not accept, in the order of their queues: in the order of
//!   coflows and ports, each flow gets the smaller residual capacity of its two ports.
//!
//! Before the reassignment, a flow's rate is the smaller of two levels: that of its *sender queue* (the flows of one coflow
//! that one queue of one sender serves) and that of its receiver. As in [`super::port_max_min`], queues and receivers count
//! the bytes that a flow limited by them has sent, and a flow uses the count of the one that limits it. A schedule visits
//! only the flows whose limit changes, those of queues that begin or end, and those with reassigned capacity, at most two a
//! port.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::allocation::{Allocation, InterQueueSharing, QueueDiscipline};
use crate::model::{BitSet, CompletedFlow, Fabric, Goodput, Network, Slot};
use crate::ordered_f64::OrderedF64;
use crate::rounding;

use super::{SentProgress, Transport};

mod level;
mod reassignment;

use level::{count_and_rate_below, lane_sums, max_min_level};
use reassignment::Reassignment;

/// No group, or no entry.
const NONE: u32 = u32::MAX;

/// One flow.
#[derive(Debug, Clone, Copy)]
struct Flow {
    /// The group that limits it: a sender queue or, numbered after all queues, a receiver; or [`NONE`].
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
    /// The coflow's sequence number, because slots are reused.
    seq: Option<u64>,
    flows: Vec<Flow>,
    class: usize,
    /// Bytes sent by all flows until the last update, and their rate since.
    sent_bytes: f64,
    total_rate: f64,
}

/// A *group* of flows with one rate: a sender queue or a receiver.
#[derive(Debug)]
struct RateGroup {
    /// Flows by the count at which they end; entries of flows that left are stale.
    end_counts: BinaryHeap<Reverse<(OrderedF64, Slot, u32)>>,
    /// The count at which the first of them ends, or a lower one if a flow has left since; infinite without flows.
    first_end_count: f64,
    /// Whether `first_end_count` may be too low.
    is_first_stale: bool,
}

impl RateGroup {
    fn new() -> RateGroup {
        RateGroup { end_counts: BinaryHeap::new(), first_end_count: f64::INFINITY, is_first_stale: false }
    }

    /// Adds a flow; returns whether it is the first to end.
    fn add_flow(&mut self, end: f64, slot: Slot, flow: u32) -> bool {
        self.end_counts.push(Reverse((OrderedF64(end), slot, flow)));
        let is_first = end < self.first_end_count;
        if is_first {
            self.first_end_count = end;
        }
        is_first
    }

    /// Removes a flow; returns whether it may have been the first to end.
    fn remove_flow(&mut self, end: f64) -> bool {
        self.is_first_stale |= end <= self.first_end_count;
        end <= self.first_end_count
    }

    fn clear(&mut self) {
        self.end_counts.clear();
        (self.first_end_count, self.is_first_stale) = (f64::INFINITY, false);
    }
}

/// The flows that one queue of one sender serves.
#[derive(Debug, Default, Clone)]
struct SenderQueue {
    /// The coflow and its sequence number, and the number of its flows that are served.
    coflow: Option<(Slot, u64)>,
    flow_count: u32,
    /// The number of its flows that their receivers limit, and the sum of those receivers' levels.
    limited_count: u32,
    limit_sum: f64,
}

impl SenderQueue {
    fn add_limited(&mut self, level: f64) {
        self.limited_count += 1;
        self.limit_sum += level;
    }

    fn remove_limited(&mut self, level: f64) {
        self.limited_count -= 1;
        self.limit_sum = if self.limited_count == 0 { 0.0 } else { self.limit_sum - level };
    }
}

/// The first coflow in a queue of a sender: its slot and sequence number, the sender's index in it, and the queue's share of
/// the port.
#[derive(Debug, Clone, Copy)]
struct QueueHead {
    slot: Slot,
    seq: u64,
    sender_index: usize,
    rate: f64,
}

/// A flow offered to a receiver.
#[derive(Debug, Clone, Copy)]
struct Offer {
    queue: u32,
    slot: Slot,
    flow: u32,
    /// Whether the receiver limits the flow.
    is_limited: bool,
}

/// A transport with queues at the senders.
pub(super) struct SenderQueues {
    weights: InterQueueSharing,
    class_count: usize,
    port_count: usize,
    /// The version of the fabric at the last update.
    fabric_version: Option<u64>,
    coflows: Vec<CoflowFlows>,
    /// By sender and class.
    queues: Vec<SenderQueue>,
    /// Sender queues, then receivers.
    groups: Vec<RateGroup>,
    /// By group: bytes that one of its flows has sent until the last update, and the rate since.
    sent_counts: Vec<f64>,
    rates: Vec<f64>,
    /// Groups whose rate is above 0.
    active_groups: BitSet,
    /// By group: the last computed end of its first flow; infinite if the rate is 0.
    group_ends: Vec<f64>,
    /// Groups whose end must be computed again if their rate is above 0.
    stale_ends: BitSet,
    /// By receiver: the offered flows, their total rate, and whether it exceeds the capacity.
    offers_by_receiver: Vec<Vec<Offer>>,
    offered_rates: Vec<f64>,
    overloaded: Vec<bool>,
    /// Coflows by class, then by release.
    coflow_order: Vec<(usize, Slot)>,
    stale_senders: BitSet,
    stale_receivers: BitSet,
    last_time: f64,
    /// By side of a port, sending sides first: residual capacity.
    residuals: Vec<f64>,
    queue_heads: Vec<Option<QueueHead>>,
    flow_buffer: Vec<(u32, u32)>,
    rate_buffer: Vec<f64>,
    reassignment: Reassignment,
    goodput: Option<Arc<Goodput>>,
}

impl SenderQueues {
    pub(super) fn new(
        queues: &QueueDiscipline,
        fabric: &Fabric,
        goodput: Option<Arc<Goodput>>,
    ) -> SenderQueues {
        let classes = match &queues.inter_queue {
            InterQueueSharing::Weighted(weights) => weights.len(),
            InterQueueSharing::StrictPriority(classes) => *classes,
        };
        let ports = fabric.ports();
        let groups = ports * classes + ports;
        SenderQueues {
            weights: queues.inter_queue.clone(),
            class_count: classes,
            port_count: ports,
            fabric_version: None,
            coflows: Vec::new(),
            queues: vec![SenderQueue::default(); ports * classes],
            groups: std::iter::repeat_with(RateGroup::new).take(groups).collect(),
            sent_counts: vec![0.0; groups],
            rates: vec![0.0; groups],
            active_groups: BitSet::empty(groups),
            group_ends: vec![f64::INFINITY; groups],
            stale_ends: BitSet::empty(groups),
            offers_by_receiver: vec![Vec::new(); ports],
            offered_rates: vec![0.0; ports],
            overloaded: vec![false; ports],
            coflow_order: Vec::new(),
            stale_senders: BitSet::empty(ports),
            stale_receivers: BitSet::empty(ports),
            last_time: 0.0,
            residuals: vec![0.0; 2 * ports],
            queue_heads: Vec::new(),
            flow_buffer: Vec::new(),
            rate_buffer: Vec::new(),
            reassignment: Reassignment::default(),
            goodput,
        }
    }

    /// Prepares the state of the coflow in a slot, unless the slot still contains the same coflow.
    fn prepare_coflow(&mut self, slot: Slot, network: &Network) {
        if slot as usize >= self.coflows.len() {
            self.coflows.resize_with(slot as usize + 1, CoflowFlows::default);
        }
        let coflow = network.coflow(slot);
        let flows = &mut self.coflows[slot as usize];
        if flows.seq != Some(coflow.seq) {
            let none = Flow { group: NONE, end_count: 0.0, reassignment_entry: NONE, offer_index: NONE };
            *flows = CoflowFlows {
                seq: Some(coflow.seq),
                flows: vec![none; coflow.width()],
                class: usize::MAX,
                sent_bytes: 0.0,
                total_rate: 0.0,
            };
        }
    }

    fn receiver_group(&self, port: usize) -> usize {
        self.port_count * self.class_count + port
    }

    fn set_rate(&mut self, group: usize, rate: f64) {
        if self.rates[group] == rate {
            return;
        }
        self.rates[group] = rate;
        self.stale_ends.insert(group);
        if rate > 0.0 {
            self.active_groups.insert(group);
        } else {
            self.active_groups.remove(group);
            self.group_ends[group] = f64::INFINITY;
        }
    }

    /// A flow's remaining bytes at `now`, which is not before the last update.
    fn remaining_bytes(&self, slot: Slot, flow: u32, now: f64) -> f64 {
        let f = &self.coflows[slot as usize].flows[flow as usize];
        let group = f.group as usize;
        let count = match self.sent_counts.get(group) {
            Some(count) => count + self.rates[group] * (now - self.last_time),
            None => 0.0,
        };
        (f.end_count - count - self.reassignment.pending_bytes(f.reassignment_entry, now)).max(0.0)
    }

    fn base_rate(&self, slot: Slot, flow: u32) -> f64 {
        let f = &self.coflows[slot as usize].flows[flow as usize];
        self.rates.get(f.group as usize).copied().unwrap_or(0.0)
    }

    /// Moves a flow to another group, or to none, at the time of the last count.
    fn move_to_group(&mut self, slot: Slot, flow: u32, group: u32) {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        let previous_group = f.group as usize;
        if let Some(count) = self.sent_counts.get(previous_group) {
            if self.groups[previous_group].remove_flow(f.end_count) {
                self.stale_ends.insert(previous_group);
            }
            f.end_count -= count;
        }
        f.group = group;
        self.reassignment.set_group(f.reassignment_entry, group);
        let group = group as usize;
        if let Some(count) = self.sent_counts.get(group) {
            f.end_count += count;
            if f.reassignment_entry == NONE && self.groups[group].add_flow(f.end_count, slot, flow) {
                self.stale_ends.insert(group);
            }
        }
    }

    /// Adds the bytes sent until `now` to the counts.
    fn advance(&mut self, now: f64) {
        let time = now - self.last_time;
        for group in self.active_groups.iter() {
            self.sent_counts[group] += self.rates[group] * time;
        }
        for flows in &mut self.coflows {
            flows.sent_bytes += flows.total_rate * time;
        }
        self.last_time = now;
    }

    /// Computes the first coflow and the rate of each queue of a sender. O(coflows + flows of queues that begin or end).
    fn update_sender(&mut self, src: usize, capacity: f64, network: &Network) {
        let queue_range = src * self.class_count..(src + 1) * self.class_count;
        let mut queue_heads = std::mem::take(&mut self.queue_heads);
        queue_heads.clear();
        queue_heads.resize(self.class_count, None);
        for &(class, slot) in &self.coflow_order {
            if queue_heads[class].is_some() {
                continue;
            }
            let coflow = network.coflow(slot);
            if coflow.live_links().contains(src) {
                let sender_index = coflow.senders().partition_point(|load| (load.link as usize) < src);
                queue_heads[class] = Some(QueueHead { slot, seq: coflow.seq, sender_index, rate: 0.0 });
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
        // All ends come before all beginnings, because a coflow can move from one queue to another.
        for (class, queue) in queue_range.clone().enumerate() {
            if self.queues[queue].coflow != queue_heads[class].map(|head| (head.slot, head.seq)) {
                self.end_queue(queue, src, network);
            }
        }
        for (class, queue) in queue_range.enumerate() {
            let Some(QueueHead { slot, seq, sender_index, rate: queue_rate }) = queue_heads[class] else {
                self.set_rate(queue, 0.0);
                continue;
            };
            if self.queues[queue].coflow.is_none() {
                self.begin_queue(queue, (slot, seq), sender_index, network);
            }
            let coflow = network.coflow(slot);
            let flows = coflow.senders()[sender_index].live_flow_count;
            self.queues[queue].flow_count = flows;
            let rate = queue_rate / f64::from(flows.max(1));
            if self.rates[queue] != rate {
                let increase = rate - self.rates[queue];
                self.set_rate(queue, rate);
                coflow.visit_flows_of_sender(sender_index, |flow, receiver| {
                    let dst = receiver as usize - self.port_count;
                    self.change_offer(queue as u32, slot, flow, dst, increase, network);
                });
            }
        }
        self.queue_heads = queue_heads;
    }

    /// Changes the rate that a flow offers to its receiver by `increase`. If no flow's limit changes, the receiver's other flows
    /// need no visit.
    fn change_offer(
        &mut self,
        queue: u32,
        slot: Slot,
        flow: u32,
        dst: usize,
        increase: f64,
        network: &Network,
    ) {
        if self.stale_receivers.contains(dst) {
            return;
        }
        let limited = self.coflows[slot as usize].flows[flow as usize].group != queue;
        let capacity = network.fabric().recv_capacity(dst as u32);
        let stays_limited = limited && self.rates[queue as usize] > self.rates[self.receiver_group(dst)];
        if stays_limited && self.goodput.is_none() {
            return;
        }
        // With a goodput model, the number of flows changes the receiver's capacity.
        if limited
            || self.overloaded[dst]
            || self.offered_rates[dst] + increase > capacity
            || self.goodput.is_some()
        {
            self.stale_receivers.insert(dst);
        } else {
            self.offered_rates[dst] += increase;
            self.residuals[self.port_count + dst] = capacity - self.offered_rates[dst];
        }
    }

    fn begin_queue(&mut self, queue: usize, head: (Slot, u64), index: usize, network: &Network) {
        let coflow = network.coflow(head.0);
        self.queues[queue].coflow = Some(head);
        let mut flows = std::mem::take(&mut self.flow_buffer);
        coflow.visit_flows_of_sender(index, |flow, receiver| flows.push((flow, receiver)));
        for (flow, receiver) in flows.drain(..) {
            let dst = receiver as usize - self.port_count;
            self.coflows[head.0 as usize].flows[flow as usize].offer_index =
                self.offers_by_receiver[dst].len() as u32;
            self.offers_by_receiver[dst].push(Offer {
                queue: queue as u32,
                slot: head.0,
                flow,
                is_limited: false,
            });
            self.stale_receivers.insert(dst);
            self.move_to_group(head.0, flow, queue as u32);
        }
        self.flow_buffer = flows;
    }

    /// Ends the service of a queue's coflow, and removes its live flows; ended flows have been removed already.
    fn end_queue(&mut self, queue: usize, src: usize, network: &Network) {
        let Some((slot, seq)) = self.queues[queue].coflow.take() else { return };
        self.queues[queue] = SenderQueue::default();
        self.groups[queue].clear();
        self.stale_ends.insert(queue);
        let Some(coflow) = network.get(slot).filter(|coflow| coflow.seq == seq) else { return };
        let index = coflow.senders().partition_point(|load| (load.link as usize) < src);
        let mut flows = std::mem::take(&mut self.flow_buffer);
        coflow.visit_flows_of_sender(index, |flow, receiver| flows.push((flow, receiver)));
        for (flow, receiver) in flows.drain(..) {
            let dst = receiver as usize - self.port_count;
            if self.remove_offer(slot, flow, dst).is_some() {
                self.stale_receivers.insert(dst);
                self.move_to_group(slot, flow, NONE);
            }
        }
        self.flow_buffer = flows;
    }

    /// Removes a flow from the offers of its receiver, if it is among them.
    fn remove_offer(&mut self, slot: Slot, flow: u32, dst: usize) -> Option<Offer> {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        let offer_index = std::mem::replace(&mut f.offer_index, NONE);
        if offer_index == NONE {
            return None;
        }
        let offer = self.offers_by_receiver[dst].swap_remove(offer_index as usize);
        if let Some(moved) = self.offers_by_receiver[dst].get(offer_index as usize) {
            self.coflows[moved.slot as usize].flows[moved.flow as usize].offer_index = offer_index;
        }
        Some(offer)
    }

    /// The number of flows that send to a receiver at a rate above 0 from their queues. O(offers).
    fn connection_count(&self, dst: usize) -> usize {
        self.offers_by_receiver[dst].iter().filter(|offer| self.rates[offer.queue as usize] > 0.0).count()
    }

    /// Computes the level of a receiver and the flows that it limits. O(offers) for each rise of the even share.
    fn update_receiver(&mut self, dst: usize, mut capacity: f64) {
        if let Some(goodput) = &self.goodput {
            capacity *= goodput.utilization(self.connection_count(dst));
        }
        let group = self.receiver_group(dst);
        let mut offers = std::mem::take(&mut self.offers_by_receiver[dst]);
        let mut wanted = std::mem::take(&mut self.rate_buffer);
        wanted.clear();
        wanted.extend(offers.iter().map(|offer| self.rates[offer.queue as usize]));
        let previous_level = self.rates[group];
        // One pass computes the offered rate and, from the last level, the start of the search for the new one.
        let [offered, below_count, below_sum] = lane_sums(&wanted, |rate| {
            let [one, taken] = count_and_rate_below(rate, previous_level);
            [rate, one, taken]
        });
        // Rounding must not mark a receiver as overloaded if it is offered exactly its capacity.
        let is_overloaded = offered > capacity * (1.0 + rounding::PARTS);
        let level = if is_overloaded {
            max_min_level(&wanted, capacity, [below_count, below_sum])
        } else {
            f64::INFINITY
        };
        self.set_rate(group, if is_overloaded { level } else { 0.0 });
        for (offer, &rate) in offers.iter_mut().zip(&wanted) {
            let limited = rate > level;
            let queue = &mut self.queues[offer.queue as usize];
            match (offer.is_limited, limited) {
                (false, false) => continue,
                (true, true) => {
                    queue.limit_sum += level - previous_level;
                    continue;
                }
                (false, true) => queue.add_limited(level),
                (true, false) => queue.remove_limited(previous_level),
            }
            offer.is_limited = limited;
            let limit = if limited { group as u32 } else { offer.queue };
            self.move_to_group(offer.slot, offer.flow, limit);
        }
        self.rate_buffer = wanted;
        self.offers_by_receiver[dst] = offers;
        self.offered_rates[dst] = offered;
        self.overloaded[dst] = is_overloaded;
        self.residuals[self.port_count + dst] =
            if is_overloaded { 0.0 } else { (capacity - offered).max(0.0) };
    }

    /// Computes the senders' residual capacity, and the rate of each coflow before the reassignment. O(queues).
    fn compute_residuals(&mut self, network: &Network) {
        for flows in &mut self.coflows {
            flows.total_rate = 0.0;
        }
        self.residuals[..self.port_count].copy_from_slice(&network.fabric().capacities()[..self.port_count]);
        let mut src = 0;
        for group in self.active_groups.iter().take_while(|&group| group < self.queues.len()) {
            let queue = &self.queues[group];
            let Some((slot, _)) = queue.coflow else { continue };
            while group >= (src + 1) * self.class_count {
                src += 1;
            }
            let unlimited_count = f64::from(queue.flow_count - queue.limited_count);
            let rate = self.rates[group] * unlimited_count + queue.limit_sum;
            self.coflows[slot as usize].total_rate += rate;
            self.residuals[src] = (self.residuals[src] - rate).max(0.0);
        }
    }

    /// The flow of a group that ends first, and the count at which it ends.
    fn find_first_flow(&mut self, group: usize) -> Option<(f64, Slot, u32)> {
        let RateGroup { end_counts, first_end_count, is_first_stale, .. } = &mut self.groups[group];
        *is_first_stale = false;
        while let Some(&Reverse((OrderedF64(end), slot, flow))) = end_counts.peek() {
            let f = self.coflows[slot as usize].flows.get(flow as usize);
            if f.is_some_and(|f| f.group == group as u32 && f.end_count == end) {
                *first_end_count = end;
                return Some((end, slot, flow));
            }
            end_counts.pop();
        }
        *first_end_count = f64::INFINITY;
        None
    }

    /// The end of the first flow of a group whose rate is above 0.
    fn first_completion(&mut self, group: usize) -> f64 {
        if self.groups[group].is_first_stale {
            self.find_first_flow(group);
        }
        self.last_time
            + (self.groups[group].first_end_count - self.sent_counts[group]).max(0.0) / self.rates[group]
    }

    /// Removes a flow that ended or lost its data at `at`.
    fn remove_flow(&mut self, slot: Slot, flow: u32, at: f64, network: &Network) {
        let (src, dst) = network.coflow(slot).flow_ports(flow);
        let rate = Transport::flow_rate(self, slot, flow, network);
        self.remove_reassigned(slot, flow);
        let group = self.coflows[slot as usize].flows[flow as usize].group as usize;
        let offer = self.remove_offer(slot, flow, dst as usize);
        if group == self.receiver_group(dst as usize)
            && let Some(Offer { queue, .. }) = offer
        {
            self.queues[queue as usize].remove_limited(self.rates[group]);
        }
        if group < self.queues.len() {
            let decrease = -self.rates[group];
            self.change_offer(group as u32, slot, flow, dst as usize, decrease, network);
        } else {
            self.stale_receivers.insert(dst as usize);
        }
        let flows = &mut self.coflows[slot as usize];
        flows.sent_bytes += rate * (at - self.last_time);
        flows.total_rate -= rate;
        let f = &mut flows.flows[flow as usize];
        if self.groups.get_mut(group).is_some_and(|group| group.remove_flow(f.end_count)) {
            self.stale_ends.insert(group);
        }
        f.group = NONE;
        self.stale_senders.insert(src as usize);
    }
}

impl Transport for SenderQueues {
    fn start_flow(&mut self, slot: Slot, flow: u32, remaining_bytes: f64, network: &Network, _: f64) {
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
        if self.fabric_version != Some(network.fabric().version()) {
            self.fabric_version = Some(network.fabric().version());
            for port in 0..self.port_count {
                self.stale_senders.insert(port);
                self.stale_receivers.insert(port);
            }
        }
        self.coflow_order.clear();
        for &slot in network.active_coflows() {
            let class = allocation.class(slot);
            self.coflow_order.push((class, slot));
            self.prepare_coflow(slot, network);
            let previous_class = std::mem::replace(&mut self.coflows[slot as usize].class, class);
            if previous_class != class {
                for load in network.coflow(slot).senders() {
                    let src = load.link as usize;
                    self.stale_senders.insert(src);
                    let queue = src * self.class_count + class;
                    if previous_class == usize::MAX
                        && self.queues[queue].coflow.is_some_and(|(s, _)| s == slot)
                    {
                        self.end_queue(queue, src, network);
                    }
                }
            }
        }
        // The active coflows are in the order of release, and the sort is stable.
        self.coflow_order.sort_by_key(|&(class, _)| class);
        let mut stale = std::mem::take(&mut self.stale_senders);
        for src in stale.iter() {
            self.update_sender(src, network.fabric().send_capacity(src as u32), network);
        }
        stale.clear();
        self.stale_senders = stale;
        let mut stale = std::mem::take(&mut self.stale_receivers);
        for dst in stale.iter() {
            self.update_receiver(dst, network.fabric().recv_capacity(dst as u32));
        }
        stale.clear();
        self.stale_receivers = stale;
        self.compute_residuals(network);
        self.reassign_residual(network);
    }

    fn next_completion(&mut self) -> f64 {
        // If a rate is constant, so is the end.
        let mut moved = std::mem::take(&mut self.stale_ends);
        for group in moved.iter() {
            if self.rates[group] > 0.0 {
                self.group_ends[group] = self.first_completion(group);
            }
        }
        moved.clear();
        self.stale_ends = moved;
        self.active_groups
            .iter()
            .fold(self.reassignment.next_completion(), |next, group| next.min(self.group_ends[group]))
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
        let running = std::mem::take(&mut self.active_groups);
        for group in running.iter() {
            while self.group_ends[group] <= until {
                let known_end = self.groups[group].first_end_count;
                let Some((end, slot, flow)) = self.find_first_flow(group) else {
                    self.group_ends[group] = f64::INFINITY;
                    break;
                };
                // The known end is valid while nothing has moved. Computing it again can make it later by a rounding error each
                // time, and the flow would never end.
                if end != known_end || self.stale_ends.contains(group) {
                    self.stale_ends.remove(group);
                    self.group_ends[group] = self.first_completion(group);
                    continue;
                }
                let at = self.group_ends[group];
                self.remove_flow(slot, flow, at, network);
                completed.push(CompletedFlow { slot, flow, completed_at: at });
            }
        }
        self.active_groups = running;
    }

    fn flow_rate(&self, slot: Slot, flow: u32, _: &Network) -> f64 {
        let Some(flows) = self.coflows.get(slot as usize) else { return 0.0 };
        self.base_rate(slot, flow) + self.reassignment.rate(flows.flows[flow as usize].reassignment_entry)
    }

    fn visit_remaining_bytes(&self, network: &Network, at: f64, visit: &mut dyn FnMut(Slot, u32, f64)) {
        for &slot in network.active_coflows() {
            for flow in network.coflow(slot).live_flows() {
                visit(slot, flow, self.remaining_bytes(slot, flow, at));
            }
        }
    }

    fn coflow_progress(&self, slot: Slot) -> Option<SentProgress> {
        let flows = self.coflows.get(slot as usize)?;
        Some(SentProgress { sent_bytes: flows.sent_bytes, rate: flows.total_rate, time: self.last_time })
    }
}
