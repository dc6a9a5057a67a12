//! Queues at the senders, FIFO by coflow inside, and max-min at the receivers: the ports that Aalo's agents control, and TCP.
//!
//! - Every sending port shares its rate among its queues with data. A queue's share goes to its first coflow, evenly over
//!   that coflow's flows at the port.
//! - A receiving port whose arrivals exceed its capacity shares the capacity max-min, as TCP would.
//! - Senders reassign the capacity that overloaded receivers do not accept, in the order of their queues: in the order of
//!   coflows and ports, each flow gets the smaller residual capacity of its two ports.
//!
//! Before the reassignment, a flow's rate is the smaller of two levels: that of its *row* (the flows of one coflow that one
//! queue of one sender serves) and that of its receiver. As in [`super::shared`], rows and receivers count the bytes that a
//! flow limited by them has sent, and a flow uses the count of the one that limits it. A schedule visits only the flows
//! whose limit changes, those of rows that begin or end, and those with reassigned capacity, at most two a port.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use weir_core::allocation::{Allocation, Queues, Weights};
use weir_core::model::{Ended, Fabric, Goodput, Mask, Network, Slot};
use weir_core::order::Key;

use super::{Progress, Transport};

mod level;
mod passing;

use level::{below, cut_off, sums};
use passing::Passing;

/// No group, or no entry.
const NONE: u32 = u32::MAX;

/// One flow.
#[derive(Debug, Clone, Copy)]
struct Flow {
    /// The group that limits it: a row or, numbered after all rows, a receiver; or [`NONE`].
    group: u32,
    /// The count of its group at which it ends; without a group, its remaining bytes.
    end: f64,
    /// Its entry among the flows with reassigned capacity, or [`NONE`].
    passed: u32,
    /// Its index in the offers of its receiver, or [`NONE`].
    offer: u32,
}

/// The flows of one coflow.
#[derive(Debug, Default)]
struct Flows {
    /// The coflow's sequence number, because slots are reused.
    seq: Option<u64>,
    flows: Vec<Flow>,
    class: usize,
    /// Bytes sent by all flows until the last `settle`, and their rate since.
    sent: f64,
    sending: f64,
}

/// A *group* of flows with one rate: a row or a receiver.
#[derive(Debug)]
struct Group {
    /// Flows by the count at which they end; entries of flows that left are stale.
    ends: BinaryHeap<Reverse<(Key, Slot, u32)>>,
    /// The count at which the first of them ends, or a lower one if a flow has left since; infinite without flows.
    first: f64,
    /// Whether `first` may be too low.
    left: bool,
}

impl Group {
    fn new() -> Group {
        Group { ends: BinaryHeap::new(), first: f64::INFINITY, left: false }
    }

    /// Adds a flow; returns whether it is the first to end.
    fn enter(&mut self, end: f64, slot: Slot, flow: u32) -> bool {
        self.ends.push(Reverse((Key(end), slot, flow)));
        let first = end < self.first;
        if first {
            self.first = end;
        }
        first
    }

    /// Removes a flow; returns whether it may have been the first to end.
    fn leave(&mut self, end: f64) -> bool {
        self.left |= end <= self.first;
        end <= self.first
    }

    fn clear(&mut self) {
        self.ends.clear();
        (self.first, self.left) = (f64::INFINITY, false);
    }
}

/// The flows that one queue of one sender serves.
#[derive(Debug, Default, Clone)]
struct Row {
    /// The coflow and its sequence number, and the number of its flows that are served.
    head: Option<(Slot, u64)>,
    flows: u32,
    /// The number of its flows that their receivers limit, and the sum of those receivers' levels.
    limited: u32,
    levels: f64,
}

impl Row {
    fn limit(&mut self, level: f64) {
        self.limited += 1;
        self.levels += level;
    }

    fn free(&mut self, level: f64) {
        self.limited -= 1;
        self.levels = if self.limited == 0 { 0.0 } else { self.levels - level };
    }
}

/// The first coflow in a queue of a sender: its slot and sequence number, the sender's index in it, and the queue's share of
/// the port.
#[derive(Debug, Clone, Copy)]
struct Head {
    slot: Slot,
    seq: u64,
    index: usize,
    share: f64,
}

/// A flow offered to a receiver.
#[derive(Debug, Clone, Copy)]
struct Offer {
    row: u32,
    slot: Slot,
    flow: u32,
    /// Whether the receiver limits the flow.
    limited: bool,
}

/// A transport with queues at the senders.
pub(super) struct Local {
    weights: Weights,
    classes: usize,
    ports: usize,
    /// The version of the fabric at the last `settle`.
    fabric: Option<u64>,
    coflows: Vec<Flows>,
    /// By sender and class.
    rows: Vec<Row>,
    /// Rows, then receivers.
    groups: Vec<Group>,
    /// By group: bytes that one of its flows has sent until the last `settle`, and the rate since.
    counts: Vec<f64>,
    rates: Vec<f64>,
    /// Groups whose rate is above 0.
    running: Mask,
    /// By group: the last computed end of its first flow; infinite if the rate is 0.
    next: Vec<f64>,
    /// Groups whose end must be computed again if their rate is above 0.
    moved: Mask,
    /// By receiver: the offered flows, their total rate, and whether it exceeds the capacity.
    offers: Vec<Vec<Offer>>,
    offered: Vec<f64>,
    busy: Vec<bool>,
    /// Coflows by class, then by release.
    order: Vec<(usize, Slot)>,
    dirty_send: Mask,
    dirty_recv: Mask,
    since: f64,
    left_send: Vec<f64>,
    left_recv: Vec<f64>,
    heads: Vec<Option<Head>>,
    moving: Vec<(u32, u32)>,
    wanted: Vec<f64>,
    passing: Passing,
    goodput: Option<Arc<Goodput>>,
}

impl Local {
    pub(super) fn new(queues: &Queues, fabric: &Fabric, goodput: Option<Arc<Goodput>>) -> Local {
        let classes = match &queues.weights {
            Weights::Weighted(weights) => weights.len(),
            Weights::Strict(classes) => *classes,
        };
        let ports = fabric.ports();
        let groups = ports * classes + ports;
        Local {
            weights: queues.weights.clone(),
            classes,
            ports,
            fabric: None,
            coflows: Vec::new(),
            rows: vec![Row::default(); ports * classes],
            groups: std::iter::repeat_with(Group::new).take(groups).collect(),
            counts: vec![0.0; groups],
            rates: vec![0.0; groups],
            running: Mask::empty(groups),
            next: vec![f64::INFINITY; groups],
            moved: Mask::empty(groups),
            offers: vec![Vec::new(); ports],
            offered: vec![0.0; ports],
            busy: vec![false; ports],
            order: Vec::new(),
            dirty_send: Mask::empty(ports),
            dirty_recv: Mask::empty(ports),
            since: 0.0,
            left_send: Vec::new(),
            left_recv: Vec::new(),
            heads: Vec::new(),
            moving: Vec::new(),
            wanted: Vec::new(),
            passing: Passing::default(),
            goodput,
        }
    }

    /// Prepares the state of the coflow in a slot, unless the slot still contains the same coflow.
    fn enter(&mut self, slot: Slot, network: &Network) {
        if slot as usize >= self.coflows.len() {
            self.coflows.resize_with(slot as usize + 1, Flows::default);
        }
        let coflow = network.coflow(slot);
        let flows = &mut self.coflows[slot as usize];
        if flows.seq != Some(coflow.seq) {
            let none = Flow { group: NONE, end: 0.0, passed: NONE, offer: NONE };
            *flows = Flows {
                seq: Some(coflow.seq),
                flows: vec![none; coflow.width()],
                class: usize::MAX,
                sent: 0.0,
                sending: 0.0,
            };
        }
    }

    fn receiver(&self, port: usize) -> usize {
        self.ports * self.classes + port
    }

    fn set_rate(&mut self, group: usize, rate: f64) {
        if self.rates[group] == rate {
            return;
        }
        self.rates[group] = rate;
        self.moved.insert(group);
        if rate > 0.0 {
            self.running.insert(group);
        } else {
            self.running.remove(group);
            self.next[group] = f64::INFINITY;
        }
    }

    /// A flow's remaining bytes at `now`, which is not before the last `settle`.
    fn left(&self, slot: Slot, flow: u32, now: f64) -> f64 {
        let f = &self.coflows[slot as usize].flows[flow as usize];
        let group = f.group as usize;
        let count = match self.counts.get(group) {
            Some(count) => count + self.rates[group] * (now - self.since),
            None => 0.0,
        };
        (f.end - count - self.passing.got(f.passed, now)).max(0.0)
    }

    fn base_rate(&self, slot: Slot, flow: u32) -> f64 {
        let f = &self.coflows[slot as usize].flows[flow as usize];
        self.rates.get(f.group as usize).copied().unwrap_or(0.0)
    }

    /// Moves a flow to another group, or to none, at the time of the last count.
    fn regroup(&mut self, slot: Slot, flow: u32, group: u32) {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        let before = f.group as usize;
        if let Some(count) = self.counts.get(before) {
            if self.groups[before].leave(f.end) {
                self.moved.insert(before);
            }
            f.end -= count;
        }
        f.group = group;
        self.passing.regroup(f.passed, group);
        let group = group as usize;
        if let Some(count) = self.counts.get(group) {
            f.end += count;
            if f.passed == NONE && self.groups[group].enter(f.end, slot, flow) {
                self.moved.insert(group);
            }
        }
    }

    /// Adds the bytes sent until `now` to the counts.
    fn advance(&mut self, now: f64) {
        let time = now - self.since;
        for group in self.running.iter() {
            self.counts[group] += self.rates[group] * time;
        }
        for flows in &mut self.coflows {
            flows.sent += flows.sending * time;
        }
        self.since = now;
    }

    /// Computes the first coflow and the rate of each queue of a sender. O(coflows + flows of rows that begin or end).
    fn settle_sender(&mut self, src: usize, capacity: f64, network: &Network) {
        let rows = src * self.classes..(src + 1) * self.classes;
        let mut heads = std::mem::take(&mut self.heads);
        heads.clear();
        heads.resize(self.classes, None);
        for &(class, slot) in &self.order {
            if heads[class].is_some() {
                continue;
            }
            let coflow = network.coflow(slot);
            if coflow.send_mask().contains(src) {
                let index = coflow.senders().partition_point(|load| (load.port as usize) < src);
                heads[class] = Some(Head { slot, seq: coflow.seq, index, share: 0.0 });
            }
        }
        match &self.weights {
            Weights::Weighted(weights) => {
                let waiting = heads.iter().zip(weights).filter(|(head, _)| head.is_some());
                let total: f64 = waiting.map(|(_, weight)| weight).sum();
                for (head, weight) in heads.iter_mut().zip(weights) {
                    head.iter_mut().for_each(|head| head.share = capacity * weight / total);
                }
            }
            Weights::Strict(_) => {
                let served = heads.iter().position(Option::is_some);
                for (class, head) in heads.iter_mut().enumerate() {
                    *head = head.filter(|_| Some(class) == served);
                    head.iter_mut().for_each(|head| head.share = capacity);
                }
            }
        }
        // All ends come before all beginnings, because a coflow can move from one row to another.
        for (class, row) in rows.clone().enumerate() {
            if self.rows[row].head != heads[class].map(|head| (head.slot, head.seq)) {
                self.end_row(row, src, network);
            }
        }
        for (class, row) in rows.enumerate() {
            let Some(Head { slot, seq, index, share }) = heads[class] else {
                self.set_rate(row, 0.0);
                continue;
            };
            if self.rows[row].head.is_none() {
                self.begin_row(row, (slot, seq), index, network);
            }
            let coflow = network.coflow(slot);
            let flows = coflow.senders()[index].live;
            self.rows[row].flows = flows;
            let rate = share / f64::from(flows.max(1));
            if self.rates[row] != rate {
                let more = rate - self.rates[row];
                self.set_rate(row, rate);
                coflow.visit_sender(index, coflow.recv_mask(), |flow, dst| {
                    self.change_offer(row as u32, slot, flow, dst as usize, more, network);
                });
            }
        }
        self.heads = heads;
    }

    /// Changes the rate that a flow offers to its receiver by `more`. If no flow's limit changes, the receiver's other flows
    /// need no visit.
    fn change_offer(&mut self, row: u32, slot: Slot, flow: u32, dst: usize, more: f64, network: &Network) {
        if self.dirty_recv.contains(dst) {
            return;
        }
        let limited = self.coflows[slot as usize].flows[flow as usize].group != row;
        let capacity = network.fabric().recv()[dst];
        let still = limited && self.rates[row as usize] > self.rates[self.receiver(dst)];
        if still && self.goodput.is_none() {
            return;
        }
        // With a goodput model, the number of flows changes the receiver's capacity.
        if limited || self.busy[dst] || self.offered[dst] + more > capacity || self.goodput.is_some() {
            self.dirty_recv.insert(dst);
        } else {
            self.offered[dst] += more;
            self.left_recv[dst] = capacity - self.offered[dst];
        }
    }

    fn begin_row(&mut self, row: usize, head: (Slot, u64), index: usize, network: &Network) {
        let coflow = network.coflow(head.0);
        self.rows[row].head = Some(head);
        let mut began = std::mem::take(&mut self.moving);
        coflow.visit_sender(index, coflow.recv_mask(), |flow, dst| began.push((flow, dst)));
        for (flow, dst) in began.drain(..) {
            let dst = dst as usize;
            self.coflows[head.0 as usize].flows[flow as usize].offer = self.offers[dst].len() as u32;
            self.offers[dst].push(Offer { row: row as u32, slot: head.0, flow, limited: false });
            self.dirty_recv.insert(dst);
            self.regroup(head.0, flow, row as u32);
        }
        self.moving = began;
    }

    /// Ends a row, and removes its live flows; ended flows have been removed already.
    fn end_row(&mut self, row: usize, src: usize, network: &Network) {
        let Some((slot, seq)) = self.rows[row].head.take() else { return };
        self.rows[row] = Row::default();
        self.groups[row].clear();
        self.moved.insert(row);
        let Some(coflow) = network.get(slot).filter(|coflow| coflow.seq == seq) else { return };
        let index = coflow.senders().partition_point(|load| (load.port as usize) < src);
        let mut over = std::mem::take(&mut self.moving);
        coflow.visit_sender(index, coflow.recv_mask(), |flow, dst| over.push((flow, dst)));
        for (flow, dst) in over.drain(..) {
            if self.withdraw(slot, flow, dst as usize).is_some() {
                self.dirty_recv.insert(dst as usize);
                self.regroup(slot, flow, NONE);
            }
        }
        self.moving = over;
    }

    /// Removes a flow from the offers of its receiver, if it is among them.
    fn withdraw(&mut self, slot: Slot, flow: u32, dst: usize) -> Option<Offer> {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        let at = std::mem::replace(&mut f.offer, NONE);
        if at == NONE {
            return None;
        }
        let offer = self.offers[dst].swap_remove(at as usize);
        if let Some(moved) = self.offers[dst].get(at as usize) {
            self.coflows[moved.slot as usize].flows[moved.flow as usize].offer = at;
        }
        Some(offer)
    }

    /// The number of flows that send to a receiver at a rate above 0 from their rows. O(offers).
    fn connections(&self, dst: usize) -> usize {
        self.offers[dst].iter().filter(|offer| self.rates[offer.row as usize] > 0.0).count()
    }

    /// Computes the level of a receiver and the flows that it limits. O(offers) for each rise of the even share.
    fn settle_receiver(&mut self, dst: usize, mut capacity: f64) {
        if let Some(goodput) = &self.goodput {
            capacity *= goodput.part(self.connections(dst));
        }
        let group = self.receiver(dst);
        let mut offers = std::mem::take(&mut self.offers[dst]);
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.clear();
        wanted.extend(offers.iter().map(|offer| self.rates[offer.row as usize]));
        let before = self.rates[group];
        // One pass computes the offered rate and, from the last level, the start of the search for the new one.
        let [offered, known, taken] = sums(&wanted, |rate| {
            let [one, taken] = below(rate, before);
            [rate, one, taken]
        });
        // Rounding must not mark a receiver as overloaded if it is offered exactly its capacity.
        let busy = offered > capacity * (1.0 + 1e-12);
        let level = if busy { cut_off(&wanted, capacity, [known, taken]) } else { f64::INFINITY };
        self.set_rate(group, if busy { level } else { 0.0 });
        for (offer, &rate) in offers.iter_mut().zip(&wanted) {
            let limited = rate > level;
            let row = &mut self.rows[offer.row as usize];
            match (offer.limited, limited) {
                (false, false) => continue,
                (true, true) => {
                    row.levels += level - before;
                    continue;
                }
                (false, true) => row.limit(level),
                (true, false) => row.free(before),
            }
            offer.limited = limited;
            let limit = if limited { group as u32 } else { offer.row };
            self.regroup(offer.slot, offer.flow, limit);
        }
        self.wanted = wanted;
        self.offers[dst] = offers;
        self.offered[dst] = offered;
        self.busy[dst] = busy;
        self.left_recv[dst] = if busy { 0.0 } else { (capacity - offered).max(0.0) };
    }

    /// Computes the senders' residual capacity, and the rate of each coflow before the reassignment. O(rows).
    fn count_left(&mut self, network: &Network) {
        for flows in &mut self.coflows {
            flows.sending = 0.0;
        }
        self.left_send.clear();
        self.left_send.extend_from_slice(network.fabric().send());
        let mut src = 0;
        for group in self.running.iter().take_while(|&group| group < self.rows.len()) {
            let row = &self.rows[group];
            let Some((slot, _)) = row.head else { continue };
            while group >= (src + 1) * self.classes {
                src += 1;
            }
            let served = f64::from(row.flows - row.limited);
            let rate = self.rates[group] * served + row.levels;
            self.coflows[slot as usize].sending += rate;
            self.left_send[src] = (self.left_send[src] - rate).max(0.0);
        }
    }

    /// The flow of a group that ends first, and the count at which it ends.
    fn first(&mut self, group: usize) -> Option<(f64, Slot, u32)> {
        let Group { ends, first, left, .. } = &mut self.groups[group];
        *left = false;
        while let Some(&Reverse((Key(end), slot, flow))) = ends.peek() {
            let f = self.coflows[slot as usize].flows.get(flow as usize);
            if f.is_some_and(|f| f.group == group as u32 && f.end == end) {
                *first = end;
                return Some((end, slot, flow));
            }
            ends.pop();
        }
        *first = f64::INFINITY;
        None
    }

    /// The end of the first flow of a group whose rate is above 0.
    fn first_end(&mut self, group: usize) -> f64 {
        if self.groups[group].left {
            self.first(group);
        }
        self.since + (self.groups[group].first - self.counts[group]).max(0.0) / self.rates[group]
    }

    /// Removes a flow that ended or lost its data at `at`.
    fn take_out(&mut self, slot: Slot, flow: u32, at: f64, network: &Network) {
        let (src, dst) = network.coflow(slot).ends_of(flow);
        let rate = Transport::rate(self, slot, flow, network);
        self.drop_passed(slot, flow);
        let group = self.coflows[slot as usize].flows[flow as usize].group as usize;
        let offer = self.withdraw(slot, flow, dst as usize);
        if group == self.receiver(dst as usize)
            && let Some(Offer { row, .. }) = offer
        {
            self.rows[row as usize].free(self.rates[group]);
        }
        if group < self.rows.len() {
            let less = -self.rates[group];
            self.change_offer(group as u32, slot, flow, dst as usize, less, network);
        } else {
            self.dirty_recv.insert(dst as usize);
        }
        let flows = &mut self.coflows[slot as usize];
        flows.sent += rate * (at - self.since);
        flows.sending -= rate;
        let f = &mut flows.flows[flow as usize];
        if self.groups.get_mut(group).is_some_and(|group| group.leave(f.end)) {
            self.moved.insert(group);
        }
        f.group = NONE;
        self.dirty_send.insert(src as usize);
    }
}

impl Transport for Local {
    fn start(&mut self, slot: Slot, flow: u32, left: f64, network: &Network, _: f64) {
        self.enter(slot, network);
        let flows = &mut self.coflows[slot as usize];
        flows.flows[flow as usize].end = left;
        // `settle` rebuilds the sender's rows with this flow.
        flows.class = usize::MAX;
    }

    fn stop(&mut self, slot: Slot, flow: u32, network: &Network, now: f64) -> f64 {
        let left = self.left(slot, flow, now);
        self.take_out(slot, flow, now, network);
        left
    }

    fn settle(&mut self, network: &Network, allocation: &Allocation, now: f64) {
        self.advance(now);
        if self.fabric != Some(network.fabric().version()) {
            self.fabric = Some(network.fabric().version());
            for port in 0..self.ports {
                self.dirty_send.insert(port);
                self.dirty_recv.insert(port);
            }
            self.left_recv.resize(self.ports, 0.0);
        }
        self.order.clear();
        for &slot in network.active() {
            let class = allocation.class(slot);
            self.order.push((class, slot));
            self.enter(slot, network);
            let before = std::mem::replace(&mut self.coflows[slot as usize].class, class);
            if before != class {
                for load in network.coflow(slot).senders() {
                    let src = load.port as usize;
                    self.dirty_send.insert(src);
                    let row = src * self.classes + class;
                    if before == usize::MAX && self.rows[row].head.is_some_and(|(s, _)| s == slot) {
                        self.end_row(row, src, network);
                    }
                }
            }
        }
        // The active coflows are in the order of release, and the sort is stable.
        self.order.sort_by_key(|&(class, _)| class);
        let mut dirty = std::mem::take(&mut self.dirty_send);
        for src in dirty.iter() {
            self.settle_sender(src, network.fabric().send()[src], network);
        }
        dirty.clear();
        self.dirty_send = dirty;
        let mut dirty = std::mem::take(&mut self.dirty_recv);
        for dst in dirty.iter() {
            self.settle_receiver(dst, network.fabric().recv()[dst]);
        }
        dirty.clear();
        self.dirty_recv = dirty;
        self.count_left(network);
        self.pass_on(network);
    }

    fn next_end(&mut self) -> f64 {
        // If a rate is constant, so is the end.
        let mut moved = std::mem::take(&mut self.moved);
        for group in moved.iter() {
            if self.rates[group] > 0.0 {
                self.next[group] = self.first_end(group);
            }
        }
        moved.clear();
        self.moved = moved;
        self.running.iter().fold(self.passing.next_end(), |next, group| next.min(self.next[group]))
    }

    fn run_out(&mut self, limit: f64, network: &Network, ended: &mut Vec<Ended>) {
        if self.passing.next_end() <= limit {
            for at in 0..self.passing.len() {
                if let Some((slot, flow, end)) = self.passing.end(at)
                    && end <= limit
                {
                    self.take_out(slot, flow, end, network);
                    ended.push(Ended { slot, flow, at: end });
                }
            }
        }
        let running = std::mem::take(&mut self.running);
        for group in running.iter() {
            while self.next[group] <= limit {
                let known = self.groups[group].first;
                let Some((end, slot, flow)) = self.first(group) else {
                    self.next[group] = f64::INFINITY;
                    break;
                };
                // The known end is valid while nothing has moved. Computing it again can make it later by a rounding error each
                // time, and the flow would never end.
                if end != known || self.moved.contains(group) {
                    self.moved.remove(group);
                    self.next[group] = self.first_end(group);
                    continue;
                }
                let at = self.next[group];
                self.take_out(slot, flow, at, network);
                ended.push(Ended { slot, flow, at });
            }
        }
        self.running = running;
    }

    fn rate(&self, slot: Slot, flow: u32, _: &Network) -> f64 {
        let Some(flows) = self.coflows.get(slot as usize) else { return 0.0 };
        self.base_rate(slot, flow) + self.passing.rate(flows.flows[flow as usize].passed)
    }

    fn progress(&self, slot: Slot) -> Option<Progress> {
        let flows = self.coflows.get(slot as usize)?;
        Some(Progress { sent: flows.sent, rate: flows.sending, at: self.since })
    }
}
