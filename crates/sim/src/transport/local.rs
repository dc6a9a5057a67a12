//! Queues at the senders only, FIFO by coflow inside: what Aalo's agents make of their ports, and TCP of the rest.
//!
//! Every sending port shares its rate among its queues that have something to send; a queue's share goes to its first coflow,
//! evenly over that coflow's flows at the port. What arrives at a receiving port is more than it carries? Then it is shared
//! max-min, as TCP would. What busy receivers do not take, their senders pass on, in the order of their queues: flow by
//! flow in the order of coflows and ports, each gets all that both of its ports have left.
//!
//! So before passing on, a flow's rate is the smaller of two levels: that of its *row* (the flows of one coflow that one queue
//! of one sender serves) and that of its receiver. As in [`super::shared`], both count what a flow limited by them was
//! sent, and a flow goes by the count of the one that limits it. One schedule touches the flows whose limit
//! becomes the other, those of rows that begin or end, and those that get something passed on: at most two a port.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use weir_core::allocation::{Allocation, Queues, Weights};
use weir_core::model::{Ended, Fabric, Goodput, Mask, Network, Slot};
use weir_core::order::Key;
use weir_core::solve::Residual;

use super::{Progress, Transport};

mod level;

use level::{below, cut_off, sums};

/// No group, no entry.
const NONE: u32 = u32::MAX;

/// One flow.
#[derive(Debug, Clone, Copy)]
struct Flow {
    /// The group it goes by: a row or, after all rows, a receiver; or [`NONE`].
    group: u32,
    /// The count of its group at which it ends; without a group, the bytes that it has left.
    end: f64,
    /// Its entry among those that get something passed on, or [`NONE`].
    passed: u32,
    /// Its place in what its receiver is offered, or [`NONE`].
    offer: u32,
}

/// The flows of one coflow.
#[derive(Debug, Default)]
struct Flows {
    /// The coflow's number; slots are used again.
    seq: Option<u64>,
    flows: Vec<Flow>,
    class: usize,
    /// Bytes sent by all until the last settling, and their rate since.
    sent: f64,
    sending: f64,
}

/// A row or a receiver: flows with one rate.
#[derive(Debug)]
struct Group {
    /// What one of its flows was sent until the last settling.
    count: f64,
    rate: f64,
    /// Its flows by the count at which they end; entries of flows that left are stale.
    ends: BinaryHeap<Reverse<(Key, Slot, u32)>>,
    /// The count at which the first of its flows ends, or less if a flow left since; infinite if there is none.
    first: f64,
    /// Whether it may be less.
    left: bool,
    /// Whether the time at which that flow ends has to be found anew.
    moved: bool,
}

impl Group {
    fn new() -> Group {
        Group {
            count: 0.0,
            rate: 0.0,
            ends: BinaryHeap::new(),
            first: f64::INFINITY,
            left: false,
            moved: true,
        }
    }

    fn enter(&mut self, end: f64, slot: Slot, flow: u32) {
        self.ends.push(Reverse((Key(end), slot, flow)));
        if end < self.first {
            (self.first, self.moved) = (end, true);
        }
    }

    fn leave(&mut self, end: f64) {
        if end <= self.first {
            (self.left, self.moved) = (true, true);
        }
    }

    fn clear(&mut self) {
        self.ends.clear();
        (self.first, self.left, self.moved) = (f64::INFINITY, false, true);
    }
}

/// What one queue of one sender serves.
#[derive(Debug, Default, Clone)]
struct Row {
    /// The coflow and its number, and how many of its flows are served.
    head: Option<(Slot, u64)>,
    flows: u32,
    /// How many of its flows their receivers limit, and the levels of those receivers, summed.
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

/// Who is first in a queue of a sender: a coflow, its number, the sender's position in it, and the queue's share of the port.
#[derive(Debug, Clone, Copy)]
struct Head {
    slot: Slot,
    seq: u64,
    index: usize,
    share: f64,
}

/// A flow that is offered to a receiver.
#[derive(Debug, Clone, Copy)]
struct Offer {
    row: u32,
    slot: Slot,
    flow: u32,
    /// Whether the receiver limits it.
    limited: bool,
}

/// A flow that gets something passed on.
#[derive(Debug, Clone, Copy)]
struct Passed {
    slot: Slot,
    flow: u32,
    /// The flow's.
    group: u32,
    rate: f64,
    /// With that of its group.
    total: f64,
    since: f64,
    settling: u64,
    end: f64,
}

/// Queues at the senders.
pub(super) struct Local {
    weights: Weights,
    classes: usize,
    ports: usize,
    /// The version of the fabric at the last settling.
    fabric: Option<u64>,
    coflows: Vec<Flows>,
    /// By sender and class.
    rows: Vec<Row>,
    /// Rows, then receivers.
    groups: Vec<Group>,
    /// Groups whose rate is above zero.
    running: Mask,
    /// By running group: when its first flow ends, as found last.
    next: Vec<f64>,
    /// The same of the flows that get something passed on.
    passed_next: f64,
    /// The rates of the rows once more, close together.
    row_rates: Vec<f64>,
    /// By receiver: what it is offered, by whom, and whether that is more than it carries.
    offers: Vec<Vec<Offer>>,
    offered: Vec<f64>,
    busy: Vec<bool>,
    /// Coflows by class, and by release inside.
    order: Vec<(usize, Slot)>,
    dirty_send: Mask,
    dirty_recv: Mask,
    passed: Vec<Passed>,
    passed_vacant: Vec<u32>,
    /// The entries of the last settling; those of flows that ended since are vacant.
    passing: Vec<u32>,
    spare: Vec<u32>,
    settling: u64,
    since: f64,
    residual: Residual,
    left_send: Vec<f64>,
    left_recv: Vec<f64>,
    heads: Vec<Option<Head>>,
    moving: Vec<(u32, u32)>,
    rates: Vec<f64>,
    given: Vec<(Slot, u32, f64)>,
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
            running: Mask::empty(groups),
            next: vec![f64::INFINITY; groups],
            passed_next: f64::INFINITY,
            row_rates: vec![0.0; ports * classes],
            offers: vec![Vec::new(); ports],
            offered: vec![0.0; ports],
            busy: vec![false; ports],
            order: Vec::new(),
            dirty_send: Mask::empty(ports),
            dirty_recv: Mask::empty(ports),
            passed: Vec::new(),
            passed_vacant: Vec::new(),
            passing: Vec::new(),
            spare: Vec::new(),
            settling: 0,
            since: 0.0,
            residual: Residual::default(),
            left_send: Vec::new(),
            left_recv: Vec::new(),
            heads: Vec::new(),
            moving: Vec::new(),
            rates: Vec::new(),
            given: Vec::new(),
            goodput,
        }
    }

    /// Makes room for the coflow in a slot, if that holds another than before.
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
        let g = &mut self.groups[group];
        if g.rate == rate {
            return;
        }
        (g.rate, g.moved) = (rate, true);
        if rate > 0.0 {
            self.running.insert(group);
        } else {
            self.running.remove(group);
            self.next[group] = f64::INFINITY;
        }
    }

    /// Bytes a flow has left at `now`, which is not before the last settling.
    fn left(&self, slot: Slot, flow: u32, now: f64) -> f64 {
        let f = &self.coflows[slot as usize].flows[flow as usize];
        let passed = match self.passed.get(f.passed as usize) {
            Some(passed) => passed.rate * (now - passed.since),
            None => 0.0,
        };
        let count = match self.groups.get(f.group as usize) {
            Some(group) => group.count + group.rate * (now - self.since),
            None => 0.0,
        };
        (f.end - count - passed).max(0.0)
    }

    fn base_rate(&self, slot: Slot, flow: u32) -> f64 {
        let f = &self.coflows[slot as usize].flows[flow as usize];
        self.groups.get(f.group as usize).map_or(0.0, |group| group.rate)
    }

    /// Folds what was passed on to a flow until now, the time of the last count, into its end.
    fn fold_passed(&mut self, slot: Slot, flow: u32) {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        if let Some(passed) = self.passed.get_mut(f.passed as usize) {
            f.end -= passed.rate * (self.since - passed.since);
            passed.since = self.since;
        }
    }

    fn drop_passed(&mut self, slot: Slot, flow: u32) {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        if f.passed != NONE {
            let entry = std::mem::replace(&mut f.passed, NONE);
            self.passed[entry as usize].slot = NONE;
            self.passed_vacant.push(entry);
        }
    }

    /// Lets a flow go by another group, or none. At the time of the last count.
    fn regroup(&mut self, slot: Slot, flow: u32, group: u32) {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        if let Some(before) = self.groups.get_mut(f.group as usize) {
            before.leave(f.end);
            f.end -= before.count;
        }
        f.group = group;
        if let Some(passed) = self.passed.get_mut(f.passed as usize) {
            passed.group = group;
        }
        if let Some(group) = self.groups.get_mut(group as usize) {
            f.end += group.count;
            if f.passed == NONE {
                group.enter(f.end, slot, flow);
            }
        }
    }

    /// Counts what was sent until `now`.
    fn advance(&mut self, now: f64) {
        let time = now - self.since;
        for group in self.running.iter() {
            let group = &mut self.groups[group];
            group.count += group.rate * time;
        }
        for flows in &mut self.coflows {
            flows.sent += flows.sending * time;
        }
        self.since = now;
    }

    /// The queues of one sender: who is first in each, and how fast. O(coflows + flows of rows that begin or end).
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
        // First all ends, then all beginnings: a coflow may move from one row to another.
        for (class, row) in rows.clone().enumerate() {
            if self.rows[row].head != heads[class].map(|head| (head.slot, head.seq)) {
                self.end_row(row, src, network);
            }
        }
        for (class, row) in rows.enumerate() {
            let Some(Head { slot, seq, index, share }) = heads[class] else {
                self.set_rate(row, 0.0);
                self.row_rates[row] = 0.0;
                continue;
            };
            if self.rows[row].head.is_none() {
                self.begin_row(row, (slot, seq), index, network);
            }
            let coflow = network.coflow(slot);
            let flows = coflow.senders()[index].live;
            self.rows[row].flows = flows;
            let rate = share / f64::from(flows.max(1));
            if self.groups[row].rate != rate {
                let more = rate - self.row_rates[row];
                self.set_rate(row, rate);
                self.row_rates[row] = rate;
                coflow.visit_sender(index, coflow.recv_mask(), |flow, dst| {
                    self.change_offer(row as u32, slot, flow, dst as usize, more, network);
                });
            }
        }
        self.heads = heads;
    }

    /// A flow is offered `more` to its receiver. Where that changes nobody's limit, no look at the others is needed.
    fn change_offer(&mut self, row: u32, slot: Slot, flow: u32, dst: usize, more: f64, network: &Network) {
        if self.dirty_recv.contains(dst) {
            return;
        }
        let limited = self.coflows[slot as usize].flows[flow as usize].group != row;
        let capacity = network.fabric().recv()[dst];
        let still = limited && self.row_rates[row as usize] > self.groups[self.receiver(dst)].rate;
        if still && self.goodput.is_none() {
            return;
        }
        // With a goodput, one more or less changes what the receiver carries.
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

    /// Takes the live flows of a row out of it; those that ended are out already.
    fn end_row(&mut self, row: usize, src: usize, network: &Network) {
        let Some((slot, seq)) = self.rows[row].head.take() else { return };
        self.rows[row] = Row::default();
        self.groups[row].clear();
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

    /// Takes a flow off what its receiver is offered, if it is.
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

    /// How many flows their rows let send to a receiver. O(offers).
    fn connections(&self, dst: usize) -> usize {
        self.offers[dst].iter().filter(|offer| self.row_rates[offer.row as usize] > 0.0).count()
    }

    /// One receiver: who is limited by it, and to what. O(offers) for each time that the even share rises.
    fn settle_receiver(&mut self, dst: usize, mut capacity: f64) {
        if let Some(goodput) = &self.goodput {
            capacity *= goodput.part(self.connections(dst));
        }
        let group = self.receiver(dst);
        let mut offers = std::mem::take(&mut self.offers[dst]);
        let mut rates = std::mem::take(&mut self.rates);
        rates.clear();
        rates.extend(offers.iter().map(|offer| self.row_rates[offer.row as usize]));
        let before = self.groups[group].rate;
        // In one go what is offered, and the first step to the level, from where it was.
        let [offered, known, taken] = sums(&rates, |rate| {
            let [one, taken] = below(rate, before);
            [rate, one, taken]
        });
        // Rounding must not make a receiver busy that gets just what it carries.
        let busy = offered > capacity * (1.0 + 1e-12);
        let level = if busy { cut_off(&rates, capacity, [known, taken]) } else { f64::INFINITY };
        self.set_rate(group, if busy { level } else { 0.0 });
        for (offer, &rate) in offers.iter_mut().zip(&rates) {
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
        self.rates = rates;
        self.offers[dst] = offers;
        self.offered[dst] = offered;
        self.busy[dst] = busy;
        self.left_recv[dst] = if busy { 0.0 } else { (capacity - offered).max(0.0) };
    }

    /// What the senders have left after their receivers took what they take, and what each coflow sends so. O(rows).
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
            let rate = self.row_rates[group] * served + row.levels;
            self.coflows[slot as usize].sending += rate;
            self.left_send[src] = (self.left_send[src] - rate).max(0.0);
        }
    }

    /// Passes on what is left.
    fn pass_on(&mut self, network: &Network) {
        self.settling += 1;
        self.residual.set(network.fabric(), &self.left_send, &self.left_recv);
        let mut given = std::mem::take(&mut self.given);
        given.clear();
        for &(_, slot) in &self.order {
            if self.residual.is_exhausted() {
                break;
            }
            self.residual.fill(network.coflow(slot), |flow, rate| given.push((slot, flow, rate)));
        }
        self.carry(&mut given, network);
        let spare = std::mem::take(&mut self.spare);
        let before = std::mem::replace(&mut self.passing, spare);
        let mut known = before.iter();
        for &(slot, flow, rate) in &given {
            self.coflows[slot as usize].sending += rate;
            let entry = self.passed_of(slot, flow, &mut known);
            self.passing.push(entry);
            let passed = &mut self.passed[entry as usize];
            let total = rate + self.groups.get(passed.group as usize).map_or(0.0, |group| group.rate);
            passed.settling = self.settling;
            if passed.rate != rate {
                self.fold_passed(slot, flow);
                self.passed[entry as usize].rate = rate;
            }
            if self.passed[entry as usize].total != total {
                let end = self.since + self.left(slot, flow, self.since) / total;
                let passed = &mut self.passed[entry as usize];
                (passed.total, passed.end) = (total, end);
            }
        }
        self.given = given;
        for &entry in &before {
            let Passed { slot, flow, settling, .. } = self.passed[entry as usize];
            if slot != NONE && settling != self.settling {
                self.fold_passed(slot, flow);
                self.drop_passed(slot, flow);
                let f = self.coflows[slot as usize].flows[flow as usize];
                if let Some(group) = self.groups.get_mut(f.group as usize) {
                    group.enter(f.end, slot, flow);
                }
            }
        }
        self.spare = before;
        self.spare.clear();
    }

    /// Takes from what is passed on what receivers do not carry of so many flows: each flow that did not send before is one more.
    /// O(offers of receivers that get something).
    fn carry(&self, given: &mut Vec<(Slot, u32, f64)>, network: &Network) {
        let Some(goodput) = &self.goodput else { return };
        // By receiver: how many send, and what they get.
        let mut receivers: Vec<Option<(usize, f64)>> = vec![None; self.ports];
        given.retain_mut(|(slot, flow, rate)| {
            let dst = network.coflow(*slot).ends_of(*flow).1 as usize;
            let offered = || (self.connections(dst), self.offered[dst]);
            let (count, taken) = *receivers[dst].get_or_insert_with(offered);
            let count = count + usize::from(self.base_rate(*slot, *flow) == 0.0);
            let capacity = network.fabric().recv()[dst];
            *rate = rate.min(capacity * goodput.part(count) - taken);
            // Less than rounding leaves is nothing.
            let sends = *rate > 1e-9 * capacity;
            if sends {
                receivers[dst] = Some((count, taken + *rate));
            }
            sends
        });
    }

    /// The entry of a flow that gets something passed on. Mostly that is the next of those of the last settling, which are told without a look
    /// at the flow.
    fn passed_of(&mut self, slot: Slot, flow: u32, known: &mut std::slice::Iter<'_, u32>) -> u32 {
        let over = |entry: u32| {
            let passed = &self.passed[entry as usize];
            passed.slot == NONE || passed.settling == self.settling
        };
        while known.as_slice().first().is_some_and(|&entry| over(entry)) {
            known.next();
        }
        let next = known.as_slice().first().copied();
        let is = |entry: &u32| {
            let passed = &self.passed[*entry as usize];
            passed.slot == slot && passed.flow == flow
        };
        if let Some(entry) = next.filter(is) {
            known.next();
            return entry;
        }
        let entry = self.coflows[slot as usize].flows[flow as usize].passed;
        if entry == NONE {
            return self.new_passed(slot, flow);
        }
        // Some of the next may get nothing any more.
        if let Some(at) = known.as_slice().iter().take(8).position(|&next| next == entry) {
            known.nth(at);
        }
        entry
    }

    /// An entry for a flow that gets something passed on, and did not before.
    fn new_passed(&mut self, slot: Slot, flow: u32) -> u32 {
        let f = &self.coflows[slot as usize].flows[flow as usize];
        let fresh = Passed {
            slot,
            flow,
            group: f.group,
            rate: 0.0,
            total: 0.0,
            since: self.since,
            settling: 0,
            end: 0.0,
        };
        let entry = match self.passed_vacant.pop() {
            Some(entry) => {
                self.passed[entry as usize] = fresh;
                entry
            }
            None => {
                self.passed.push(fresh);
                self.passed.len() as u32 - 1
            }
        };
        self.coflows[slot as usize].flows[flow as usize].passed = entry;
        entry
    }

    /// The flow of a group that ends first by its count, and that count.
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

    /// When the first flow of a running group ends.
    fn first_end(&mut self, group: usize) -> f64 {
        if self.groups[group].left {
            self.first(group);
        }
        let Group { count, rate, first, .. } = self.groups[group];
        self.since + (first - count).max(0.0) / rate
    }

    /// Takes a flow out that ended or lost its data at `at`.
    fn take_out(&mut self, slot: Slot, flow: u32, at: f64, network: &Network) {
        let (src, dst) = network.coflow(slot).ends_of(flow);
        let mut rate = self.base_rate(slot, flow);
        if let Some(passed) =
            self.passed.get(self.coflows[slot as usize].flows[flow as usize].passed as usize)
        {
            rate += passed.rate;
        }
        self.drop_passed(slot, flow);
        let group = self.coflows[slot as usize].flows[flow as usize].group as usize;
        let offer = self.withdraw(slot, flow, dst as usize);
        if group == self.receiver(dst as usize)
            && let Some(Offer { row, .. }) = offer
        {
            self.rows[row as usize].free(self.groups[group].rate);
        }
        if group < self.row_rates.len() {
            let less = -self.row_rates[group];
            self.change_offer(group as u32, slot, flow, dst as usize, less, network);
        } else {
            self.dirty_recv.insert(dst as usize);
        }
        let flows = &mut self.coflows[slot as usize];
        flows.sent += rate * (at - self.since);
        flows.sending -= rate;
        let f = &mut flows.flows[flow as usize];
        if let Some(group) = self.groups.get_mut(group) {
            group.leave(f.end);
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
        // The sender's rows are made anew, with this flow in them.
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
        // The active coflows are in order of release, and the sort is stable.
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
        let passed = self.passing.iter().map(|&entry| &self.passed[entry as usize]);
        let ends = passed.filter(|passed| passed.slot != NONE).map(|passed| passed.end);
        self.passed_next = ends.fold(f64::INFINITY, f64::min);
        let mut next = self.passed_next;
        let running = std::mem::take(&mut self.running);
        for group in running.iter() {
            // At a rate that stands still, so does the end.
            if std::mem::take(&mut self.groups[group].moved) {
                self.next[group] = self.first_end(group);
            }
            next = next.min(self.next[group]);
        }
        self.running = running;
        next
    }

    fn run_out(&mut self, limit: f64, network: &Network, ended: &mut Vec<Ended>) {
        if self.passed_next <= limit {
            for entry in 0..self.passing.len() {
                let Passed { slot, flow, end, .. } = self.passed[self.passing[entry] as usize];
                if slot != NONE && end <= limit {
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
                // What was found before stands as long as nothing moved: found anew it may be later by a rounding error, again
                // and again, and the flow would never end.
                if end != known || std::mem::take(&mut self.groups[group].moved) {
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
        let passed = self.passed.get(flows.flows[flow as usize].passed as usize);
        self.base_rate(slot, flow) + passed.map_or(0.0, |passed| passed.rate)
    }

    fn progress(&self, slot: Slot) -> Option<Progress> {
        let flows = self.coflows.get(slot as usize)?;
        Some(Progress { sent: flows.sent, rate: flows.sending, at: self.since })
    }
}
