//! Max-min rates between flows, with one queue at every port: plain TCP.
//!
//! All flows with the same bottleneck have the same rate, the bottleneck's level. Each side of a port therefore counts the
//! bytes that one such flow has sent. A flow ends when that count has grown by the flow's remaining bytes. The flows
//! between two ports move together when their bottleneck changes to the other port.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use weir_core::allocation::Allocation;
use weir_core::model::{Ended, Fabric, Goodput, Network, Slot};
use weir_core::order::Key;
use weir_core::solve::Levels;

use super::{Progress, Transport};

/// Flows from one port to another.
#[derive(Debug)]
struct Pair {
    src: u32,
    dst: u32,
    /// The side whose count applies to the flows: sending sides, then receiving sides.
    link: u32,
    /// The difference between the pair's count and the link's. The pair's count is continuous when the link changes.
    offset: f64,
    /// Flows by the count of the pair at which they end.
    flows: BinaryHeap<Reverse<(Key, Slot, u32)>>,
}

/// One side of a port.
#[derive(Debug, Default)]
struct Link {
    /// Bytes that a flow limited here has sent until `since`.
    count: f64,
    /// Pairs by the count at which their first flow ends; entries of pairs that moved are stale.
    pairs: BinaryHeap<Reverse<(Key, u32)>>,
}

/// Max-min rates between flows.
pub(super) struct Shared {
    levels: Levels,
    fabric: Fabric,
    links: Vec<Link>,
    pairs: Vec<Pair>,
    index: Vec<u32>,
    since: f64,
    moved: Vec<(usize, usize)>,
    goodput: Option<Arc<Goodput>>,
    /// The capacity of receivers, if a goodput model applies.
    carried: Vec<f64>,
}

/// A pair that does not exist.
const NONE: u32 = u32::MAX;

impl Shared {
    pub(super) fn new(fabric: &Fabric, goodput: Option<Arc<Goodput>>) -> Shared {
        let ports = fabric.ports();
        Shared {
            levels: Levels::new(fabric.send(), fabric.recv()),
            fabric: fabric.clone(),
            links: std::iter::repeat_with(Link::default).take(2 * ports).collect(),
            pairs: Vec::new(),
            index: vec![NONE; ports * ports],
            since: 0.0,
            moved: Vec::new(),
            goodput,
            carried: Vec::new(),
        }
    }

    /// Computes the capacity of receivers from the number of their flows whose senders have capacity. O(pairs).
    fn carry(&mut self) {
        let Some(goodput) = &self.goodput else { return };
        let mut connections = vec![0; self.fabric.ports()];
        for pair in &self.pairs {
            if self.fabric.send()[pair.src as usize] > 0.0 {
                connections[pair.dst as usize] += pair.flows.len();
            }
        }
        let recv = self.fabric.recv().iter().zip(connections);
        let carried: Vec<f64> = recv.map(|(capacity, flows)| capacity * goodput.part(flows)).collect();
        if self.carried != carried {
            self.levels.set_capacities(self.fabric.send(), &carried);
            self.carried = carried;
        }
    }

    fn pair(&mut self, src: u32, dst: u32) -> u32 {
        let index = src as usize * self.fabric.ports() + dst as usize;
        if self.index[index] == NONE {
            self.index[index] = self.pairs.len() as u32;
            self.pairs.push(Pair { src, dst, link: src, offset: 0.0, flows: BinaryHeap::new() });
        }
        self.index[index]
    }

    /// The count of a pair at `now`.
    fn count(&self, pair: u32, now: f64) -> f64 {
        let p = &self.pairs[pair as usize];
        let level = self.levels.level(p.link as usize);
        let since = if level.is_finite() { level * (now - self.since) } else { 0.0 };
        self.links[p.link as usize].count + p.offset + since
    }

    /// Adds the first flow of a pair to its link's heap.
    fn list(&mut self, pair: u32) {
        let p = &self.pairs[pair as usize];
        if let Some(&Reverse((Key(end), ..))) = p.flows.peek() {
            self.links[p.link as usize].pairs.push(Reverse((Key(end - p.offset), pair)));
        }
    }

    /// The pair whose flow is the next to end at a link, and the count at which it ends.
    fn first(&mut self, link: usize) -> Option<(f64, u32)> {
        while let Some(&Reverse((Key(end), pair))) = self.links[link].pairs.peek() {
            let p = &self.pairs[pair as usize];
            let first = p.flows.peek().map(|Reverse((Key(end), ..))| end - p.offset);
            if p.link as usize == link && first == Some(end) {
                return Some((end, pair));
            }
            self.links[link].pairs.pop();
        }
        None
    }

    /// The end of the first flow of a link.
    fn first_end(&mut self, link: usize) -> f64 {
        let level = self.levels.level(link);
        if !(level > 0.0 && level.is_finite()) {
            return f64::INFINITY;
        }
        let count = self.links[link].count;
        self.first(link).map_or(f64::INFINITY, |(end, _)| self.since + (end - count).max(0.0) / level)
    }

    /// Moves a pair to its bottleneck.
    fn move_pair(&mut self, pair: u32) {
        let p = &mut self.pairs[pair as usize];
        if p.flows.is_empty() {
            return;
        }
        let link = self.levels.bottleneck(p.src as usize, p.dst as usize) as u32;
        if link != p.link {
            p.offset += self.links[p.link as usize].count - self.links[link as usize].count;
            p.link = link;
            self.list(pair);
        }
    }

    /// Adds the bytes sent until `now` to the counts.
    fn advance(&mut self, now: f64) {
        for (link, level) in self.links.iter_mut().zip(self.levels.levels()) {
            if level.is_finite() {
                link.count += level * (now - self.since);
            }
        }
        self.since = now;
    }
}

impl Transport for Shared {
    fn start(&mut self, slot: Slot, flow: u32, left: f64, network: &Network, now: f64) {
        let (src, dst) = network.coflow(slot).ends_of(flow);
        let pair = self.pair(src, dst);
        let count = self.count(pair, now);
        let p = &mut self.pairs[pair as usize];
        let end = Key(count + left);
        let first = p.flows.peek().is_none_or(|Reverse((first, ..))| end < *first);
        p.flows.push(Reverse((end, slot, flow)));
        if first {
            self.list(pair);
        }
        self.levels.add(src as usize, dst as usize);
    }

    fn stop(&mut self, slot: Slot, flow: u32, network: &Network, now: f64) -> f64 {
        let (src, dst) = network.coflow(slot).ends_of(flow);
        let pair = self.pair(src, dst);
        let count = self.count(pair, now);
        let p = &mut self.pairs[pair as usize];
        let mut left = 0.0;
        p.flows.retain(|&Reverse((Key(end), s, f))| {
            let found = (s, f) == (slot, flow);
            if found {
                left = (end - count).max(0.0);
            }
            !found
        });
        self.list(pair);
        self.levels.remove(src as usize, dst as usize);
        left
    }

    fn settle(&mut self, network: &Network, _: &Allocation, now: f64) {
        self.advance(now);
        if self.fabric != *network.fabric() {
            self.fabric.clone_from(network.fabric());
            self.levels.set_capacities(self.fabric.send(), self.fabric.recv());
            self.carried.clear();
        }
        self.carry();
        let mut moved = std::mem::take(&mut self.moved);
        moved.clear();
        if self.levels.solve(&mut moved) {
            for pair in 0..self.pairs.len() as u32 {
                self.move_pair(pair);
            }
        } else {
            for &(src, dst) in &moved {
                let pair = self.pair(src as u32, dst as u32);
                self.move_pair(pair);
            }
        }
        self.moved = moved;
    }

    fn next_end(&mut self) -> f64 {
        (0..self.links.len()).map(|link| self.first_end(link)).fold(f64::INFINITY, f64::min)
    }

    fn run_out(&mut self, limit: f64, _: &Network, ended: &mut Vec<Ended>) {
        for link in 0..self.links.len() {
            loop {
                let at = self.first_end(link);
                if at > limit {
                    break;
                }
                let Some((_, pair)) = self.first(link) else { break };
                let p = &mut self.pairs[pair as usize];
                let Some(Reverse((_, slot, flow))) = p.flows.pop() else { break };
                ended.push(Ended { slot, flow, at });
                let (src, dst) = (p.src as usize, p.dst as usize);
                self.list(pair);
                self.levels.remove(src, dst);
            }
        }
    }

    fn rate(&self, slot: Slot, flow: u32, network: &Network) -> f64 {
        let (src, dst) = network.coflow(slot).ends_of(flow);
        self.levels.level(self.levels.bottleneck(src as usize, dst as usize))
    }

    fn progress(&self, _: Slot) -> Option<Progress> {
        None
    }
}
