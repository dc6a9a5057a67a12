//! PFP: per-flow prioritization, shortest remaining flow first, as in PDQ (SIGCOMM '12) and pFabric (SIGCOMM '13).
//!
//! The schedule is greedy: in the order of remaining bytes, each flow takes the residual capacity of both of its
//! ports. Ties go to the earlier coflow, then to the order of ports. Of the flows between the same two ports, only
//! the shortest gets a rate, because it exhausts one of the ports.
//!
//! The schedule is therefore stable between ports and *pairs* of ports: no pair could get more by taking capacity from
//! a longer flow. A side of a port is *unsettled* if one of its pairs may be able to get more; after a change, few
//! sides are. The policy serves the best such pair of the side, and the sides of the pairs that lose capacity become
//! unsettled. If all ports are equal, the schedule is a stable matching, and a change moves a few pairs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Event, Params, ParamsError, Policy, Timing, TrunkSupport};
use crate::allocation::{Allocation, Rule};
use crate::model::{SizesKnown, Slot, View};
use crate::ordered_f64::OrderedF64;

/// A flow by rank: remaining bytes, sequence number of its coflow, number in the coflow; then its slot.
type RankedFlow = (OrderedF64, u64, u32, Slot);

/// The rank of a flow as one number: the bits of the remaining bytes, then the tie-breakers. The bits of a
/// non-negative floating-point number order as the number does.
type Rank = u128;

/// Orders after all ranks.
const LAST_RANK: Rank = Rank::MAX;

fn rank_of(&(OrderedF64(left), seq, flow, _): &RankedFlow) -> Rank {
    Rank::from(left.max(0.0).to_bits()) << 64 | Rank::from(seq << 32 | u64::from(flow))
}

/// The flows between two ports.
#[derive(Debug)]
struct PortPair {
    ports: [u32; 2],
    /// The shortest flow, which may be sending. Its remaining bytes are those at the last schedule.
    shortest_flow: Option<RankedFlow>,
    /// The other flows. Entries of flows that were held after their insertion are stale.
    other_flows: BinaryHeap<Reverse<RankedFlow>>,
    rate: f64,
    /// Positions in the lists of the two sides.
    side_positions: [u32; 2],
}

/// One side (sending or receiving) of one port.
#[derive(Debug, Default)]
struct PortSideState {
    pairs: Vec<u32>,
    /// By position: the other side of the pair, and the rank of its head if the pair could use more capacity.
    other_sides: Vec<u32>,
    ranks: Vec<Rank>,
    /// The pairs of this side with a rate.
    sending_pairs: Vec<u32>,
    is_unsettled: bool,
}

/// The scheduler of PFP.
#[derive(Default)]
pub struct Pfp {
    pairs: Vec<PortPair>,
    pair_by_ports: BTreeMap<(u32, u32), u32>,
    /// Sending sides, then receiving sides.
    sides: Vec<PortSideState>,
    /// By side: a pair gets nothing if its head does not rank before this limit. [`LAST_RANK`] if residual capacity
    /// exists.
    rank_limits: Vec<Rank>,
    /// By side, in bytes per second.
    capacities: Vec<f64>,
    /// Capacity below this value is a rounding error.
    rounding_tolerance: f64,
    port_count: usize,
    ports_changed: bool,
    /// Sending and receiving sides on which a pair may be able to get more.
    unsettled_sides: [Vec<usize>; 2],
    /// Flows that became live since the last schedule: slot, sequence number of the coflow, flow.
    new_flows: Vec<(Slot, u64, u32)>,
    /// Pairs that could get more, best first, and the side that found the pair.
    candidates: BinaryHeap<Reverse<(RankedFlow, u32, usize)>>,
}

impl Pfp {
    pub(super) fn from_params(_: &mut Params) -> Result<Pfp, ParamsError> {
        Ok(Pfp::default())
    }

    fn unsettle_side(&mut self, side: usize) {
        if !self.sides[side].is_unsettled {
            self.sides[side].is_unsettled = true;
            self.unsettled_sides[usize::from(side >= self.port_count)].push(side);
        }
    }

    fn sides_of(&self, pair: u32) -> [usize; 2] {
        let [src, dst] = self.pairs[pair as usize].ports;
        [src as usize, self.port_count + dst as usize]
    }

    fn unsettle_pair(&mut self, pair: u32) {
        for side in self.sides_of(pair) {
            self.unsettle_side(side);
        }
    }

    fn find_or_add_pair(&mut self, slot: Slot, flow: u32, view: &View<'_, SizesKnown>) -> u32 {
        let (src, dst) = view.coflow(slot).flow_ports(flow);
        if let Some(&pair) = self.pair_by_ports.get(&(src, dst)) {
            return pair;
        }
        let pair = self.pairs.len() as u32;
        let sides = [src as usize, self.port_count + dst as usize];
        let places = sides.map(|side| self.sides[side].pairs.len() as u32);
        let waiting = BinaryHeap::new();
        self.pairs.push(PortPair {
            ports: [src, dst],
            shortest_flow: None,
            other_flows: waiting,
            rate: 0.0,
            side_positions: places,
        });
        self.pair_by_ports.insert((src, dst), pair);
        for (i, side) in sides.into_iter().enumerate() {
            let list = &mut self.sides[side];
            list.pairs.push(pair);
            list.other_sides.push(sides[1 - i] as u32);
            list.ranks.push(LAST_RANK);
        }
        pair
    }

    fn add_flow(&mut self, slot: Slot, flow: u32, view: &View<'_, SizesKnown>) {
        let pair = self.find_or_add_pair(slot, flow, view);
        let entry = (OrderedF64(view.remaining_bytes(slot, flow)), view.coflow(slot).seq, flow, slot);
        let p = &mut self.pairs[pair as usize];
        match p.shortest_flow {
            None => p.shortest_flow = Some(entry),
            Some(head) => {
                p.shortest_flow = Some(entry.min(head));
                p.other_flows.push(Reverse(entry.max(head)));
            }
        }
        self.update_rank(pair);
        self.unsettle_pair(pair);
    }

    /// Updates the rank of a pair at both of its sides. A pair at the full capacity of its ports cannot use more.
    fn update_rank(&mut self, pair: u32) {
        let p = &self.pairs[pair as usize];
        let rank = match &p.shortest_flow {
            Some(head) if p.rate < self.max_rate(pair) => rank_of(head),
            _ => LAST_RANK,
        };
        let places = p.side_positions;
        for (side, place) in self.sides_of(pair).into_iter().zip(places) {
            self.sides[side].ranks[place as usize] = rank;
        }
    }

    /// The maximum rate of a pair: the smaller capacity of its two ports.
    fn max_rate(&self, pair: u32) -> f64 {
        let [send, recv] = self.sides_of(pair);
        self.capacities[send].min(self.capacities[recv])
    }

    /// Updates the limit of a side.
    fn update_limit(&mut self, side: usize) {
        let sending = &self.sides[side].sending_pairs;
        let taken: f64 = sending.iter().map(|&p| self.pairs[p as usize].rate).sum();
        let left = self.capacities[side] - taken;
        let last = sending.iter().filter_map(|&p| self.pairs[p as usize].shortest_flow).max();
        self.rank_limits[side] = match last {
            Some(last) if left <= self.rounding_tolerance => rank_of(&last),
            _ => LAST_RANK,
        };
    }

    fn remove_flow(&mut self, slot: Slot, flow: u32, view: &View<'_, SizesKnown>) {
        let ends = view.coflow(slot).flow_ports(flow);
        let Some(&pair) = self.pair_by_ports.get(&ends) else { return };
        self.unsettle_pair(pair);
        let p = &mut self.pairs[pair as usize];
        if p.shortest_flow.is_none_or(|(_, _, f, s)| (f, s) != (flow, slot)) {
            return;
        }
        p.shortest_flow = None;
        while let Some(Reverse(next)) = p.other_flows.pop() {
            let (OrderedF64(left), seq, f, s) = next;
            // The coflow may have new flows under the same numbers.
            let here = |f| view.remaining_bytes(s, f) == left && view.coflow(s).flow_ports(f) == ends;
            if (f, s) != (flow, slot) && view.is_live(s, seq, f) && here(f) {
                p.shortest_flow = Some(next);
                break;
            }
        }
        self.remove_rate(pair);
    }

    /// Removes the rate of a pair.
    fn remove_rate(&mut self, pair: u32) {
        self.pairs[pair as usize].rate = 0.0;
        for side in self.sides_of(pair) {
            self.sides[side].sending_pairs.retain(|&p| p != pair);
            self.update_limit(side);
        }
        self.update_rank(pair);
    }

    /// The capacity of `side` for a flow of this rank: the residual capacity after the flows before it.
    fn capacity_for_rank(&self, side: usize, rank: &RankedFlow) -> f64 {
        let before = self.sides[side].sending_pairs.iter().filter_map(|&p| {
            let pair = &self.pairs[p as usize];
            (pair.shortest_flow.as_ref() < Some(rank)).then_some(pair.rate)
        });
        self.capacities[side] - before.sum::<f64>()
    }

    /// The possible rate of a pair after the pairs before it. Not above the current rate if no more is possible.
    fn possible_rate(&self, pair: u32, rank: &RankedFlow) -> f64 {
        let [send, recv] = self.sides_of(pair);
        self.capacity_for_rank(send, rank).min(self.capacity_for_rank(recv, rank))
    }

    /// The best pair of a side that could get more than its rate. O(pairs of the side).
    fn best_pair(&self, side: usize) -> Option<(RankedFlow, u32)> {
        let mut best: Option<(RankedFlow, u32)> = None;
        let mut limit = self.rank_limits[side];
        let list = &self.sides[side];
        for (place, (&rank, &other)) in list.ranks.iter().zip(&list.other_sides).enumerate() {
            if rank >= limit || rank >= self.rank_limits[other as usize] {
                continue;
            }
            let p = list.pairs[place];
            let pair = &self.pairs[p as usize];
            let Some(head) = pair.shortest_flow else { continue };
            if self.possible_rate(p, &head) > pair.rate + self.rounding_tolerance {
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
    fn settle_sides(&mut self) {
        loop {
            let side = self.unsettled_sides[0].pop();
            let side = side
                .or_else(|| if self.candidates.is_empty() { self.unsettled_sides[1].pop() } else { None });
            if let Some(side) = side {
                self.sides[side].is_unsettled = false;
                if let Some((rank, pair)) = self.best_pair(side) {
                    self.candidates.push(Reverse((rank, pair, side)));
                }
                continue;
            }
            let Some(Reverse((rank, pair, side))) = self.candidates.pop() else { return };
            let rate = self.possible_rate(pair, &rank);
            let better = rate > self.pairs[pair as usize].rate + self.rounding_tolerance;
            if better {
                self.assign_rate(pair, rate);
            }
            // A full side without pairs after its best pair is settled.
            if !better || self.rank_limits[side] > rank_of(&rank) {
                self.unsettle_side(side);
            }
        }
    }

    /// Gives a pair a rate, and reduces the pairs that rank after it.
    fn assign_rate(&mut self, pair: u32, rate: f64) {
        let sides = self.sides_of(pair);
        if self.pairs[pair as usize].rate == 0.0 {
            for side in sides {
                self.sides[side].sending_pairs.push(pair);
            }
        }
        self.pairs[pair as usize].rate = rate;
        for side in sides {
            loop {
                let sending = &self.sides[side].sending_pairs;
                let total: f64 = sending.iter().map(|&p| self.pairs[p as usize].rate).sum();
                let excess_rate = total - self.capacities[side];
                if excess_rate <= self.rounding_tolerance {
                    break;
                }
                let rank = |p: &u32| self.pairs[*p as usize].shortest_flow;
                let Some(last) = sending.iter().copied().filter(|&p| p != pair).max_by_key(rank) else {
                    break;
                };
                // This side is still full. The other end of the reduced pair has residual capacity.
                let other = self.sides_of(last).into_iter().find(|&s| s != side).unwrap_or(side);
                self.unsettle_side(other);
                let reduced_rate = self.pairs[last as usize].rate - excess_rate;
                if reduced_rate > self.rounding_tolerance {
                    self.pairs[last as usize].rate = reduced_rate;
                    self.update_limit(other);
                    self.update_rank(last);
                } else {
                    self.remove_rate(last);
                }
            }
        }
        for side in sides {
            self.update_limit(side);
        }
        self.update_rank(pair);
    }

    /// Updates the remaining bytes of the sending heads. Sending shortens a flow, so the order of flows that share a
    /// port may change.
    fn update_heads(&mut self, view: &View<'_, SizesKnown>) {
        self.port_count = view.fabric().ports();
        self.sides.resize_with(2 * self.port_count, PortSideState::default);
        self.rank_limits.resize(2 * self.port_count, LAST_RANK);
        self.capacities.clear();
        self.capacities.extend(view.fabric().send_capacities().chain(view.fabric().recv_capacities()));
        self.rounding_tolerance = view.fabric().rounding_tolerance();
        for side in 0..self.port_count {
            for i in 0..self.sides[side].sending_pairs.len() {
                let pair = self.sides[side].sending_pairs[i];
                if let Some((left, _, flow, slot)) = &mut self.pairs[pair as usize].shortest_flow {
                    *left = OrderedF64(view.remaining_bytes(*slot, *flow));
                }
                self.update_rank(pair);
            }
        }
        for side in 0..2 * self.port_count {
            if !self.sides[side].sending_pairs.is_empty() {
                self.update_limit(side);
            }
            if self.sides[side].sending_pairs.len() > 1 {
                for i in 0..self.sides[side].sending_pairs.len() {
                    self.unsettle_pair(self.sides[side].sending_pairs[i]);
                }
            }
        }
    }
}

impl Policy for Pfp {
    type Knowledge = SizesKnown;

    fn timing(&self) -> Timing {
        Timing::local("pFabric: switches and hosts decide by the priority in each packet")
    }

    fn trunk_support(&self) -> TrunkSupport {
        TrunkSupport::DecidesAtPorts
    }

    fn on_event(&mut self, event: Event, view: &mut View<'_, SizesKnown>) {
        match event {
            Event::CoflowReleased(slot) => {
                let coflow = view.coflow(slot);
                self.new_flows.extend(coflow.live_flows().map(|flow| (slot, coflow.seq, flow)));
            }
            Event::FlowLive(slot, flow) => self.new_flows.push((slot, view.coflow(slot).seq, flow)),
            Event::FlowInterrupted(slot, flow) | Event::FlowCompleted(slot, flow) => {
                self.remove_flow(slot, flow, view)
            }
            Event::CoflowCompleted(_) => {}
            Event::CapacityChanged => self.ports_changed = true,
        }
    }

    /// O(unsettled sides x pairs of a side).
    fn schedule(&mut self, view: &mut View<'_, SizesKnown>, out: &mut Allocation) {
        self.update_heads(view);
        if std::mem::take(&mut self.ports_changed) {
            for pair in 0..self.pairs.len() as u32 {
                self.remove_rate(pair);
                self.unsettle_pair(pair);
            }
        }
        for (slot, seq, flow) in std::mem::take(&mut self.new_flows) {
            if view.is_live(slot, seq, flow) {
                self.add_flow(slot, flow, view);
            }
        }
        self.settle_sides();
        for side in &self.sides[..self.port_count] {
            for &pair in &side.sending_pairs {
                let pair = &self.pairs[pair as usize];
                let Some((_, _, flow, slot)) = pair.shortest_flow else { continue };
                out.add_flow_rate(slot, flow, pair.rate);
            }
        }
        for &slot in view.active_coflows() {
            out.set_rule(slot, Rule::InOrder);
        }
    }

    /// The time at which a flow overtakes another at a shared port.
    ///
    /// Overtaking requires ports of unequal capacity, or a network that reduces the rate of one of the flows.
    fn next_wakeup(&mut self, view: &mut View<'_, SizesKnown>, _: &Allocation) -> f64 {
        let mut next_wakeup = f64::INFINITY;
        let mut heads = Vec::new();
        for side in self.sides.iter().filter(|side| side.sending_pairs.len() > 1) {
            heads.clear();
            let sending =
                side.sending_pairs.iter().filter_map(|&pair| self.pairs[pair as usize].shortest_flow);
            heads.extend(sending.map(|head| (head, view.rate(head.3, head.2))));
            for (first, slower) in &heads {
                for (second, faster) in &heads {
                    if first < second && slower < faster {
                        next_wakeup =
                            next_wakeup.min(view.now() + (second.0.0 - first.0.0) / (faster - slower));
                    }
                }
            }
        }
        next_wakeup
    }
}
