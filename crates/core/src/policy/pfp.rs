//! PFP: per-flow prioritization, shortest remaining flow first, as PDQ (SIGCOMM '12) and pFabric (SIGCOMM '13) do it.
//!
//! The schedule is the greedy one: flow by flow, shortest remaining first (ties to the earlier coflow, then in the
//! order of ports), each gets all that its two ports have left. Of the flows between the same two ports only the shortest can
//! get anything, since it leaves one of the ports empty. So the schedule is a stable one between ports and *pairs* of
//! ports: no pair could get more by taking it from a longer flow. A change unsettles few ports; each is settled by
//! letting its best pair that could get more have it, and whoever had it before looks for something else. Where
//! all ports are alike this is a stable matching, and one change moves a handful of pairs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Event, Params, ParamsError, Policy};
use crate::allocation::{Allocation, Rule};
use crate::model::{Sizes, Slot, View};
use crate::order::Key;

/// A flow with its rank: bytes left, order of its coflow, place in it; and where it is.
type Flow = (Key, u64, u32, Slot);

/// A flow's rank as one number: bytes left (the bits of a number that is not negative order as the number does), and then
/// what decides between equals.
type Rank = u128;

/// After all ranks.
const LAST: Rank = Rank::MAX;

fn rank_of(&(Key(left), seq, flow, _): &Flow) -> Rank {
    Rank::from(left.max(0.0).to_bits()) << 64 | Rank::from(seq << 32 | u64::from(flow))
}

/// The flows between two ports.
#[derive(Debug)]
struct Pair {
    ends: [u32; 2],
    /// The shortest, which may be sending; its bytes left are those of the last schedule.
    head: Option<Flow>,
    /// The others. Entries of flows that were held since are stale.
    waiting: BinaryHeap<Reverse<Flow>>,
    rate: f64,
    /// Its places in the lists of its two sides.
    places: [u32; 2],
}

/// One side of one port.
#[derive(Debug, Default)]
struct Side {
    pairs: Vec<u32>,
    /// By place: the other side of the pair, and the rank of its head if that could want more.
    others: Vec<u32>,
    ranks: Vec<Rank>,
    /// Those of its pairs that have a rate.
    sending: Vec<u32>,
    unsettled: bool,
}

/// Shortest remaining flow first.
#[derive(Default)]
pub struct Pfp {
    pairs: Vec<Pair>,
    by_ends: BTreeMap<(u32, u32), u32>,
    /// Sending sides, then receiving sides.
    sides: Vec<Side>,
    /// By side: a pair whose head is not before this gets nothing there. [`LAST`] where capacity is left.
    limits: Vec<Rank>,
    /// By side.
    capacities: Vec<f64>,
    /// What rounding leaves of a port is not capacity.
    dust: f64,
    ports: usize,
    ports_changed: bool,
    /// Sending and receiving sides to look for better pairs at.
    unsettled: [Vec<usize>; 2],
    /// Flows that went live since the last schedule: coflow, its number, flow.
    added: Vec<(Slot, u64, u32)>,
    /// Pairs that could have more, best first, and the side that found them.
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

    /// Brings the rank that others see of a pair up to date. One that has all that its ports carry wants nothing.
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

    /// What the ports of a pair carry.
    fn carry(&self, pair: u32) -> f64 {
        let [send, recv] = self.sides_of(pair);
        self.capacities[send].min(self.capacities[recv])
    }

    /// Brings the limit of a side up to date.
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
            // A coflow may have been given other flows under the same numbers.
            let here = |f| view.remaining(s, f) == left && view.coflow(s).ends_of(f) == ends;
            if (f, s) != (flow, slot) && view.is_live(s, seq, f) && here(f) {
                p.head = Some(next);
                break;
            }
        }
        self.stop(pair);
    }

    /// Takes a pair's rate away.
    fn stop(&mut self, pair: u32) {
        self.pairs[pair as usize].rate = 0.0;
        for side in self.sides_of(pair) {
            self.sides[side].sending.retain(|&p| p != pair);
            self.limit(side);
        }
        self.show(pair);
    }

    /// What `side` has for a flow of this rank: what flows before it do not take.
    fn for_rank(&self, side: usize, rank: &Flow) -> f64 {
        let before = self.sides[side].sending.iter().filter_map(|&p| {
            let pair = &self.pairs[p as usize];
            (pair.head.as_ref() < Some(rank)).then_some(pair.rate)
        });
        self.capacities[side] - before.sum::<f64>()
    }

    /// How much a pair could have, given what goes before it; no more than it has if that is all.
    fn possible(&self, pair: u32, rank: &Flow) -> f64 {
        let [send, recv] = self.sides_of(pair);
        self.for_rank(send, rank).min(self.for_rank(recv, rank))
    }

    /// The best pair of a side that could have more than it has. O(pairs of the side).
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

    /// Settles all sides that are not. Among sending sides the best pair goes first, so that little of what is given is taken
    /// again; receiving sides come after them, when what they could have from unsettled senders is known.
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
            // A side that is full, with nobody after its best pair, has found what it can.
            if !better || self.limits[side] > rank_of(&rank) {
                self.unsettle(side);
            }
        }
    }

    /// Gives a pair a rate, at the expense of those after it.
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
                // This side has lost nothing; the other end of that pair is free for somebody else.
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

    /// Brings the heads that send up to date: sending shortens a flow, so that flows that share a port may pass each other.
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

    /// When a flow that shares a port passes another, which only unlike ports let happen, or a network that carries less of one than was
    /// decided.
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
