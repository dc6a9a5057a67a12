//! PFP: per-flow prioritization, shortest remaining flow first, as in PDQ (SIGCOMM '12) and pFabric (SIGCOMM '13).
//!
//! The schedule is greedy: in the order of remaining bytes, each flow takes the residual capacity of both of its
//! ports. Ties go to the earlier coflow, then to the order of ports. Of the flows between the same two ports, only
//! the shortest gets a rate, because it exhausts one of the ports.
//!
//! The schedule is therefore stable between ports and *pairs* of ports: no pair could get more by taking capacity
//! from a longer flow. After a change, few ports are unsettled. The policy settles a port by serving its best pair
//! that could get more, and unsettles the ports of the pairs that lose capacity. If all ports are equal, the schedule
//! is a stable matching, and a change moves a few pairs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Event, Params, ParamsError, Policy};
use crate::allocation::{Allocation, Rule};
use crate::model::{Sizes, Slot, View};
use crate::order::Key;

/// A flow by rank: remaining bytes, sequence number of its coflow, number in the coflow; then its slot.
type Flow = (Key, u64, u32, Slot);

/// The rank of a flow as one number: the bits of the remaining bytes, then the tie-breakers. The bits of a
/// non-negative floating-point number order as the number does.
type Rank = u128;

/// Orders after all ranks.
const LAST: Rank = Rank::MAX;

fn rank_of(&(Key(left), seq, flow, _): &Flow) -> Rank {
    Rank::from(left.max(0.0).to_bits()) << 64 | Rank::from(seq << 32 | u64::from(flow))
}

/// The flows between two ports.
#[derive(Debug)]
struct Pair {
    ends: [u32; 2],
    /// The shortest flow, which may be sending. Its remaining bytes are those at the last schedule.
    head: Option<Flow>,
    /// The other flows. Entries of flows that were held after their insertion are stale.
    waiting: BinaryHeap<Reverse<Flow>>,
    rate: f64,
    /// Positions in the lists of the two sides.
    places: [u32; 2],
}

/// One side (sending or receiving) of one port.
#[derive(Debug, Default)]
struct Side {
    pairs: Vec<u32>,
    /// By position: the other side of the pair, and the rank of its head if the pair could use more capacity.
    others: Vec<u32>,
    ranks: Vec<Rank>,
    /// The pairs of this side with a rate.
    sending: Vec<u32>,
    unsettled: bool,
}

/// The scheduler of PFP.
#[derive(Default)]
pub struct Pfp {
    pairs: Vec<Pair>,
    by_ends: BTreeMap<(u32, u32), u32>,
    /// Sending sides, then receiving sides.
    sides: Vec<Side>,
    /// By side: a pair gets nothing if its head does not rank before this limit. [`LAST`] if residual capacity
    /// exists.
    limits: Vec<Rank>,
    /// By side, in bytes per second.
    capacities: Vec<f64>,
    /// Capacity below this value is a rounding error.
    dust: f64,
    ports: usize,
    ports_changed: bool,
    /// Sending and receiving sides on which a pair may be able to get more.
    unsettled: [Vec<usize>; 2],
    /// Flows that became live since the last schedule: slot, sequence number of the coflow, flow.
    added: Vec<(Slot, u64, u32)>,
    /// Pairs that could get more, best first, and the side that found the pair.
    found: BinaryHeap<Reverse<(Flow, u32, usize)>>,
}

impl Pfp {
    pub(super) fn read(_: &mut Params) -> Result<Pfp, ParamsError> {
        Ok(Pfp::default())
    }

    fn unsettle(&mut self, side: usize) {
        if !self.sides[side].unsettled {
            self.sides[side].unsettled = true;
            self.unsettled[usize::from(side >= self.ports)].push(side);
        }
    }

    fn sides_of(&self, pair: u32) -> [usize; 2] {
        let [src, dst] = self.pairs[pair as usize].ends;
        [src as usize, self.ports + dst as usize]
    }

    fn unsettle_pair(&mut self, pair: u32) {
        for side in self.sides_of(pair) {
            self.unsettle(side);
        }
    }

    fn pair_of(&mut self, slot: Slot, flow: u32, view: &View<'_, Sizes>) -> u32 {
        let (src, dst) = view.coflow(slot).ends_of(flow);
        if let Some(&pair) = self.by_ends.get(&(src, dst)) {
            return pair;
        }
        let pair = self.pairs.len() as u32;
        let sides = [src as usize, self.ports + dst as usize];
        let places = sides.map(|side| self.sides[side].pairs.len() as u32);
        let waiting = BinaryHeap::new();
        self.pairs.push(Pair { ends: [src, dst], head: None, waiting, rate: 0.0, places });
        self.by_ends.insert((src, dst), pair);
        for (i, side) in sides.into_iter().enumerate() {
            let list = &mut self.sides[side];
            list.pairs.push(pair);
            list.others.push(sides[1 - i] as u32);
            list.ranks.push(LAST);
        }
        pair
    }

    fn add(&mut self, slot: Slot, flow: u32, view: &View<'_, Sizes>) {
        let pair = self.pair_of(slot, flow, view);
        let entry = (Key(view.remaining(slot, flow)), view.coflow(slot).seq, flow, slot);
        let p = &mut self.pairs[pair as usize];
        match p.head {
            None => p.head = Some(entry),
            Some(head) => {
                p.head = Some(entry.min(head));
                p.waiting.push(Reverse(entry.max(head)));
            }
        }
        self.show(pair);
        self.unsettle_pair(pair);
    }

    /// Updates the rank of a pair at both of its sides. A pair at the full capacity of its ports cannot use more.
    fn show(&mut self, pair: u32) {
        let p = &self.pairs[pair as usize];
        let rank = match &p.head {
            Some(head) if p.rate < self.carry(pair) => rank_of(head),
            _ => LAST,
        };
        let places = p.places;
        for (side, place) in self.sides_of(pair).into_iter().zip(places) {
            self.sides[side].ranks[place as usize] = rank;
        }
    }

    /// The maximum rate of a pair: the smaller capacity of its two ports.
    fn carry(&self, pair: u32) -> f64 {
        let [send, recv] = self.sides_of(pair);
        self.capacities[send].min(self.capacities[recv])
    }

    /// Updates the limit of a side.
    fn limit(&mut self, side: usize) {
        let sending = &self.sides[side].sending;
        let taken: f64 = sending.iter().map(|&p| self.pairs[p as usize].rate).sum();
        let left = self.capacities[side] - taken;
        let last = sending.iter().filter_map(|&p| self.pairs[p as usize].head).max();
        self.limits[side] = match last {
            Some(last) if left <= self.dust => rank_of(&last),
            _ => LAST,
        };
    }

    fn take_out(&mut self, slot: Slot, flow: u32, view: &View<'_, Sizes>) {
        let ends = view.coflow(slot).ends_of(flow);
        let Some(&pair) = self.by_ends.get(&ends) else { return };
        self.unsettle_pair(pair);
        let p = &mut self.pairs[pair as usize];
        if p.head.is_none_or(|(_, _, f, s)| (f, s) != (flow, slot)) {
            return;
        }
        p.head = None;
        while let Some(Reverse(next)) = p.waiting.pop() {
            let (Key(left), seq, f, s) = next;
            // The coflow may have new flows under the same numbers.
            let here = |f| view.remaining(s, f) == left && view.coflow(s).ends_of(f) == ends;
            if (f, s) != (flow, slot) && view.is_live(s, seq, f) && here(f) {
                p.head = Some(next);
                break;
            }
        }
        self.stop(pair);
    }

    /// Removes the rate of a pair.
    fn stop(&mut self, pair: u32) {
        self.pairs[pair as usize].rate = 0.0;
        for side in self.sides_of(pair) {
            self.sides[side].sending.retain(|&p| p != pair);
            self.limit(side);
        }
        self.show(pair);
    }

    /// The capacity of `side` for a flow of this rank: the residual capacity after the flows before it.
    fn for_rank(&self, side: usize, rank: &Flow) -> f64 {
        let before = self.sides[side].sending.iter().filter_map(|&p| {
            let pair = &self.pairs[p as usize];
            (pair.head.as_ref() < Some(rank)).then_some(pair.rate)
        });
        self.capacities[side] - before.sum::<f64>()
    }

    /// The possible rate of a pair after the pairs before it. Not above the current rate if no more is possible.
    fn possible(&self, pair: u32, rank: &Flow) -> f64 {
        let [send, recv] = self.sides_of(pair);
        self.for_rank(send, rank).min(self.for_rank(recv, rank))
    }

    /// The best pair of a side that could get more than its rate. O(pairs of the side).
    fn best(&self, side: usize) -> Option<(Flow, u32)> {
        let mut best: Option<(Flow, u32)> = None;
        let mut limit = self.limits[side];
        let list = &self.sides[side];
        for (place, (&rank, &other)) in list.ranks.iter().zip(&list.others).enumerate() {
            if rank >= limit || rank >= self.limits[other as usize] {
                continue;
            }
            let p = list.pairs[place];
            let pair = &self.pairs[p as usize];
            let Some(head) = pair.head else { continue };
            if self.possible(p, &head) > pair.rate + self.dust {
                best = Some((head, p));
                limit = rank;
            }
        }
        best
    }

    /// Settles all unsettled sides.
    ///
    /// Among sending sides, the best pair goes first, which keeps reassignments few. Receiving sides follow, when the
    /// capacity of unsettled senders is known.
    fn settle(&mut self) {
        loop {
            let side = self.unsettled[0].pop();
            let side = side.or_else(|| if self.found.is_empty() { self.unsettled[1].pop() } else { None });
            if let Some(side) = side {
                self.sides[side].unsettled = false;
                if let Some((rank, pair)) = self.best(side) {
                    self.found.push(Reverse((rank, pair, side)));
                }
                continue;
            }
            let Some(Reverse((rank, pair, side))) = self.found.pop() else { return };
            let rate = self.possible(pair, &rank);
            let better = rate > self.pairs[pair as usize].rate + self.dust;
            if better {
                self.give(pair, rate);
            }
            // A full side without pairs after its best pair is settled.
            if !better || self.limits[side] > rank_of(&rank) {
                self.unsettle(side);
            }
        }
    }

    /// Gives a pair a rate, and reduces the pairs that rank after it.
    fn give(&mut self, pair: u32, rate: f64) {
        let sides = self.sides_of(pair);
        if self.pairs[pair as usize].rate == 0.0 {
            for side in sides {
                self.sides[side].sending.push(pair);
            }
        }
        self.pairs[pair as usize].rate = rate;
        for side in sides {
            loop {
                let sending = &self.sides[side].sending;
                let total: f64 = sending.iter().map(|&p| self.pairs[p as usize].rate).sum();
                let over = total - self.capacities[side];
                if over <= self.dust {
                    break;
                }
                let rank = |p: &u32| self.pairs[*p as usize].head;
                let Some(last) = sending.iter().copied().filter(|&p| p != pair).max_by_key(rank) else {
                    break;
                };
                // This side is still full. The other end of the reduced pair has residual capacity.
                let other = self.sides_of(last).into_iter().find(|&s| s != side).unwrap_or(side);
                self.unsettle(other);
                let less = self.pairs[last as usize].rate - over;
                if less > self.dust {
                    self.pairs[last as usize].rate = less;
                    self.limit(other);
                    self.show(last);
                } else {
                    self.stop(last);
                }
            }
        }
        for side in sides {
            self.limit(side);
        }
        self.show(pair);
    }

    /// Updates the remaining bytes of the sending heads. Sending shortens a flow, so the order of flows that share a
    /// port may change.
    fn refresh(&mut self, view: &View<'_, Sizes>) {
        self.ports = view.fabric().ports();
        self.sides.resize_with(2 * self.ports, Side::default);
        self.limits.resize(2 * self.ports, LAST);
        self.capacities.clear();
        self.capacities.extend(view.fabric().send().iter().chain(view.fabric().recv()));
        self.dust = 1e-9 * view.fabric().nominal();
        for side in 0..self.ports {
            for i in 0..self.sides[side].sending.len() {
                let pair = self.sides[side].sending[i];
                if let Some((left, _, flow, slot)) = &mut self.pairs[pair as usize].head {
                    *left = Key(view.remaining(*slot, *flow));
                }
                self.show(pair);
            }
        }
        for side in 0..2 * self.ports {
            if !self.sides[side].sending.is_empty() {
                self.limit(side);
            }
            if self.sides[side].sending.len() > 1 {
                for i in 0..self.sides[side].sending.len() {
                    self.unsettle_pair(self.sides[side].sending[i]);
                }
            }
        }
    }
}

impl Policy for Pfp {
    type Knows = Sizes;

    fn on(&mut self, event: Event, view: &mut View<'_, Sizes>) {
        match event {
            Event::Released(slot) => {
                let coflow = view.coflow(slot);
                self.added.extend(coflow.live_flows().map(|flow| (slot, coflow.seq, flow)));
            }
            Event::FlowLive(slot, flow) => self.added.push((slot, view.coflow(slot).seq, flow)),
            Event::FlowHeld(slot, flow) | Event::FlowDone(slot, flow) => self.take_out(slot, flow, view),
            Event::Done(_) => {}
            Event::PortChanged => self.ports_changed = true,
        }
    }

    /// O(unsettled sides x pairs of a side).
    fn schedule(&mut self, view: &mut View<'_, Sizes>, out: &mut Allocation) {
        self.refresh(view);
        if std::mem::take(&mut self.ports_changed) {
            for pair in 0..self.pairs.len() as u32 {
                self.stop(pair);
                self.unsettle_pair(pair);
            }
        }
        for (slot, seq, flow) in std::mem::take(&mut self.added) {
            if view.is_live(slot, seq, flow) {
                self.add(slot, flow, view);
            }
        }
        self.settle();
        for side in &self.sides[..self.ports] {
            for &pair in &side.sending {
                let pair = &self.pairs[pair as usize];
                let Some((_, _, flow, slot)) = pair.head else { continue };
                out.add_flow(slot, flow, pair.rate);
            }
        }
        for &slot in view.active() {
            out.set_rule(slot, Rule::InOrder);
        }
    }

    /// The time at which a flow overtakes another at a shared port.
    ///
    /// Overtaking requires ports of unequal capacity, or a network that reduces the rate of one of the flows.
    fn wake(&mut self, view: &mut View<'_, Sizes>, _: &Allocation) -> f64 {
        let mut wake = f64::INFINITY;
        let mut heads = Vec::new();
        for side in self.sides.iter().filter(|side| side.sending.len() > 1) {
            heads.clear();
            let sending = side.sending.iter().filter_map(|&pair| self.pairs[pair as usize].head);
            heads.extend(sending.map(|head| (head, view.rate(head.3, head.2))));
            for (first, slower) in &heads {
                for (second, faster) in &heads {
                    if first < second && slower < faster {
                        wake = wake.min(view.now() + (second.0.0 - first.0.0) / (faster - slower));
                    }
                }
            }
        }
        wake
    }
}
