//! Max-min rates between flows, with one queue at every port: plain TCP.
//!
//! All flows with the same bottleneck have the same rate, the bottleneck's level. Each side of a port therefore counts the
//! bytes that one such flow has sent. A flow ends when that count has grown by the flow's remaining bytes. The flows
//! between two ports move together when their bottleneck changes to the other port.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use weir_core::allocation::Allocation;
use weir_core::model::{CompletedFlow, Fabric, Goodput, Network, Slot};
use weir_core::ordered_f64::OrderedF64;
use weir_core::solve::SwitchMaxMin;

use super::{SentProgress, Transport};

/// Flows from one port to another.
#[derive(Debug)]
struct PortPair {
    src: u32,
    dst: u32,
    /// The side whose count applies to the flows: sending sides, then receiving sides.
    limiting_side: u32,
    /// The difference between the pair's count and the link's. The pair's count is continuous when the link changes.
    offset: f64,
    /// Flows by the count of the pair at which they end.
    flows: BinaryHeap<Reverse<(OrderedF64, Slot, u32)>>,
}

/// One side of a port.
#[derive(Debug, Default)]
struct PortSideState {
    /// Bytes that a flow limited here has sent until the last update.
    sent_bytes: f64,
    /// Pairs by the count at which their first flow ends; entries of pairs that moved are stale.
    pairs: BinaryHeap<Reverse<(OrderedF64, u32)>>,
}

/// Max-min rates between flows.
pub(super) struct PortMaxMin {
    levels: SwitchMaxMin,
    fabric: Fabric,
    sides: Vec<PortSideState>,
    pairs: Vec<PortPair>,
    pair_by_ports: Vec<u32>,
    last_time: f64,
    changed_pairs: Vec<(usize, usize)>,
    goodput: Option<Arc<Goodput>>,
    /// The capacity of receivers, if a goodput model applies.
    receiver_capacities: Vec<f64>,
}

/// A pair that does not exist.
const NONE: u32 = u32::MAX;

impl PortMaxMin {
    pub(super) fn new(fabric: &Fabric, goodput: Option<Arc<Goodput>>) -> PortMaxMin {
        let ports = fabric.ports();
        PortMaxMin {
            levels: SwitchMaxMin::new(fabric.send_capacities(), fabric.recv_capacities()),
            fabric: fabric.clone(),
            sides: std::iter::repeat_with(PortSideState::default).take(2 * ports).collect(),
            pairs: Vec::new(),
            pair_by_ports: vec![NONE; ports * ports],
            last_time: 0.0,
            changed_pairs: Vec::new(),
            goodput,
            receiver_capacities: Vec::new(),
        }
    }

    /// Computes the capacity of receivers from the number of their flows whose senders have capacity. O(pairs).
    fn limit_to_goodput(&mut self) {
        let Some(goodput) = &self.goodput else { return };
        let mut connections = vec![0; self.fabric.ports()];
        for pair in &self.pairs {
            if self.fabric.send_capacities()[pair.src as usize] > 0.0 {
                connections[pair.dst as usize] += pair.flows.len();
            }
        }
        let recv = self.fabric.recv_capacities().iter().zip(connections);
        let carried: Vec<f64> = recv.map(|(capacity, flows)| capacity * goodput.utilization(flows)).collect();
        if self.receiver_capacities != carried {
            self.levels.set_capacities(self.fabric.send_capacities(), &carried);
            self.receiver_capacities = carried;
        }
    }

    fn find_or_add_pair(&mut self, src: u32, dst: u32) -> u32 {
        let index = src as usize * self.fabric.ports() + dst as usize;
        if self.pair_by_ports[index] == NONE {
            self.pair_by_ports[index] = self.pairs.len() as u32;
            self.pairs.push(PortPair { src, dst, limiting_side: src, offset: 0.0, flows: BinaryHeap::new() });
        }
        self.pair_by_ports[index]
    }

    /// The count of a pair at `now`.
    fn sent_bytes_at(&self, pair: u32, now: f64) -> f64 {
        let p = &self.pairs[pair as usize];
        let level = self.levels.level(p.limiting_side as usize);
        let since = if level.is_finite() { level * (now - self.last_time) } else { 0.0 };
        self.sides[p.limiting_side as usize].sent_bytes + p.offset + since
    }

    /// Adds the first flow of a pair to its link's heap.
    fn enqueue_pair(&mut self, pair: u32) {
        let p = &self.pairs[pair as usize];
        if let Some(&Reverse((OrderedF64(end), ..))) = p.flows.peek() {
            self.sides[p.limiting_side as usize].pairs.push(Reverse((OrderedF64(end - p.offset), pair)));
        }
    }

    /// The pair whose flow is the next to end at a link, and the count at which it ends.
    fn find_first_pair(&mut self, link: usize) -> Option<(f64, u32)> {
        while let Some(&Reverse((OrderedF64(end), pair))) = self.sides[link].pairs.peek() {
            let p = &self.pairs[pair as usize];
            let first = p.flows.peek().map(|Reverse((OrderedF64(end), ..))| end - p.offset);
            if p.limiting_side as usize == link && first == Some(end) {
                return Some((end, pair));
            }
            self.sides[link].pairs.pop();
        }
        None
    }

    /// The end of the first flow of a link.
    fn first_completion(&mut self, link: usize) -> f64 {
        let level = self.levels.level(link);
        if !(level > 0.0 && level.is_finite()) {
            return f64::INFINITY;
        }
        let count = self.sides[link].sent_bytes;
        self.find_first_pair(link)
            .map_or(f64::INFINITY, |(end, _)| self.last_time + (end - count).max(0.0) / level)
    }

    /// Moves a pair to its bottleneck.
    fn move_pair(&mut self, pair: u32) {
        let p = &mut self.pairs[pair as usize];
        if p.flows.is_empty() {
            return;
        }
        let link = self.levels.bottleneck_link(p.src as usize, p.dst as usize) as u32;
        if link != p.limiting_side {
            p.offset +=
                self.sides[p.limiting_side as usize].sent_bytes - self.sides[link as usize].sent_bytes;
            p.limiting_side = link;
            self.enqueue_pair(pair);
        }
    }

    /// Adds the bytes sent until `now` to the counts.
    fn advance(&mut self, now: f64) {
        for (link, level) in self.sides.iter_mut().zip(self.levels.levels()) {
            if level.is_finite() {
                link.sent_bytes += level * (now - self.last_time);
            }
        }
        self.last_time = now;
    }
}

impl Transport for PortMaxMin {
    fn start_flow(&mut self, slot: Slot, flow: u32, remaining_bytes: f64, network: &Network, now: f64) {
        let (src, dst) = network.coflow(slot).flow_ports(flow);
        let pair = self.find_or_add_pair(src, dst);
        let count = self.sent_bytes_at(pair, now);
        let p = &mut self.pairs[pair as usize];
        let end = OrderedF64(count + remaining_bytes);
        let first = p.flows.peek().is_none_or(|Reverse((first, ..))| end < *first);
        p.flows.push(Reverse((end, slot, flow)));
        if first {
            self.enqueue_pair(pair);
        }
        self.levels.add_flow(src as usize, dst as usize);
    }

    fn stop_flow(&mut self, slot: Slot, flow: u32, network: &Network, now: f64) -> f64 {
        let (src, dst) = network.coflow(slot).flow_ports(flow);
        let pair = self.find_or_add_pair(src, dst);
        let count = self.sent_bytes_at(pair, now);
        let p = &mut self.pairs[pair as usize];
        let mut left = 0.0;
        p.flows.retain(|&Reverse((OrderedF64(end), s, f))| {
            let is_stopped = (s, f) == (slot, flow);
            if is_stopped {
                left = (end - count).max(0.0);
            }
            !is_stopped
        });
        self.enqueue_pair(pair);
        self.levels.remove_flow(src as usize, dst as usize);
        left
    }

    fn update_rates(&mut self, network: &Network, _: &Allocation, now: f64) {
        self.advance(now);
        if self.fabric != *network.fabric() {
            self.fabric.clone_from(network.fabric());
            self.levels.set_capacities(self.fabric.send_capacities(), self.fabric.recv_capacities());
            self.receiver_capacities.clear();
        }
        self.limit_to_goodput();
        let mut changed_pairs = std::mem::take(&mut self.changed_pairs);
        changed_pairs.clear();
        if self.levels.solve(&mut changed_pairs) {
            for pair in 0..self.pairs.len() as u32 {
                self.move_pair(pair);
            }
        } else {
            for &(src, dst) in &changed_pairs {
                let pair = self.find_or_add_pair(src as u32, dst as u32);
                self.move_pair(pair);
            }
        }
        self.changed_pairs = changed_pairs;
    }

    fn next_completion(&mut self) -> f64 {
        (0..self.sides.len()).map(|link| self.first_completion(link)).fold(f64::INFINITY, f64::min)
    }

    fn complete_flows_until(&mut self, until: f64, _: &Network, completed: &mut Vec<CompletedFlow>) {
        for link in 0..self.sides.len() {
            loop {
                let at = self.first_completion(link);
                if at > until {
                    break;
                }
                let Some((_, pair)) = self.find_first_pair(link) else { break };
                let p = &mut self.pairs[pair as usize];
                let Some(Reverse((_, slot, flow))) = p.flows.pop() else { break };
                completed.push(CompletedFlow { slot, flow, completed_at: at });
                let (src, dst) = (p.src as usize, p.dst as usize);
                self.enqueue_pair(pair);
                self.levels.remove_flow(src, dst);
            }
        }
    }

    fn flow_rate(&self, slot: Slot, flow: u32, network: &Network) -> f64 {
        let (src, dst) = network.coflow(slot).flow_ports(flow);
        self.levels.level(self.levels.bottleneck_link(src as usize, dst as usize))
    }

    fn coflow_progress(&self, _: Slot) -> Option<SentProgress> {
        None
    }
}
