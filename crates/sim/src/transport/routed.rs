//! Max-min rates between flows over ports and links between switches: plain TCP on a network with paths.
//!
//! Flows over the same links have the same rate. They form a class with one count of the bytes that such a flow has sent.
//! Whenever a flow starts or ends, the next `settle` computes the rates of all classes again: O(classes x links of a path).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use weir_core::allocation::Allocation;
use weir_core::model::{Ended, Fabric, Network, Slot, Trunks};
use weir_core::order::Key;
use weir_core::solve::{self, max_min};

use super::{Progress, Transport};

/// Flows over the same links.
struct Class {
    /// Links: sending sides of ports, then receiving sides, then links between switches.
    links: Box<[u32]>,
    /// Bytes that a flow of the class has sent until `since`, and its rate from then on.
    count: f64,
    rate: f64,
    /// Flows by the count at which they end.
    flows: BinaryHeap<Reverse<(Key, Slot, u32)>>,
}

/// Max-min rates between flows over links.
pub(super) struct Routed {
    trunks: Trunks,
    fabric: Fabric,
    classes: Vec<Class>,
    known: BTreeMap<Box<[u32]>, u32>,
    /// The class of each live flow.
    of: BTreeMap<(Slot, u32), u32>,
    since: f64,
    stale: bool,
}

impl Routed {
    pub(super) fn new(fabric: &Fabric, trunks: Trunks) -> Routed {
        Routed {
            trunks,
            fabric: fabric.clone(),
            classes: Vec::new(),
            known: BTreeMap::new(),
            of: BTreeMap::new(),
            since: 0.0,
            stale: true,
        }
    }

    fn class(&mut self, slot: Slot, flow: u32, network: &Network) -> u32 {
        let coflow = network.coflow(slot);
        let ((src, dst), ports) = (coflow.ends_of(flow), self.fabric.ports() as u32);
        let mut links = Vec::new();
        self.trunks.path(src, dst, coflow.index, coflow.original(flow), &mut links);
        links.iter_mut().for_each(|link| *link += 2 * ports);
        links.extend([src, ports + dst]);
        if let Some(&known) = self.known.get(links.as_slice()) {
            return known;
        }
        let next = self.classes.len() as u32;
        let links: Box<[u32]> = links.into();
        self.known.insert(links.clone(), next);
        self.classes.push(Class { links, count: 0.0, rate: 0.0, flows: BinaryHeap::new() });
        next
    }

    fn count(&self, class: u32, now: f64) -> f64 {
        let class = &self.classes[class as usize];
        class.count + class.rate * (now - self.since)
    }

    /// The end of the first flow of a class.
    fn first_end(&self, class: &Class) -> f64 {
        match class.flows.peek() {
            Some(&Reverse((Key(end), ..))) if class.rate > 0.0 => {
                self.since + (end - class.count).max(0.0) / class.rate
            }
            _ => f64::INFINITY,
        }
    }
}

impl Transport for Routed {
    fn start(&mut self, slot: Slot, flow: u32, left: f64, network: &Network, now: f64) {
        let class = self.class(slot, flow, network);
        let end = Key(self.count(class, now) + left);
        self.classes[class as usize].flows.push(Reverse((end, slot, flow)));
        self.of.insert((slot, flow), class);
        self.stale = true;
    }

    fn stop(&mut self, slot: Slot, flow: u32, _: &Network, now: f64) -> f64 {
        let Some(class) = self.of.remove(&(slot, flow)) else { return 0.0 };
        let count = self.count(class, now);
        let mut left = 0.0;
        self.classes[class as usize].flows.retain(|&Reverse((Key(end), s, f))| {
            let found = (s, f) == (slot, flow);
            if found {
                left = (end - count).max(0.0);
            }
            !found
        });
        self.stale = true;
        left
    }

    fn settle(&mut self, network: &Network, _: &Allocation, now: f64) {
        for class in &mut self.classes {
            class.count += class.rate * (now - self.since);
        }
        self.since = now;
        if self.fabric != *network.fabric() {
            self.fabric.clone_from(network.fabric());
            self.stale = true;
        }
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let ports = self.fabric.send().iter().chain(self.fabric.recv());
        let capacities: Vec<f64> = ports.chain(self.trunks.capacities()).copied().collect();
        let sending = || self.classes.iter().filter(|class| !class.flows.is_empty());
        let classes: Vec<solve::Class<'_>> = sending()
            .map(|class| solve::Class { links: &class.links, flows: class.flows.len() as f64 })
            .collect();
        let mut rates = max_min(&capacities, &classes).into_iter();
        for class in &mut self.classes {
            let rate = if class.flows.is_empty() { None } else { rates.next() };
            class.rate = rate.unwrap_or(0.0);
        }
    }

    fn next_end(&mut self) -> f64 {
        self.classes.iter().map(|class| self.first_end(class)).fold(f64::INFINITY, f64::min)
    }

    fn run_out(&mut self, limit: f64, _: &Network, ended: &mut Vec<Ended>) {
        for class in 0..self.classes.len() {
            loop {
                let at = self.first_end(&self.classes[class]);
                if at > limit {
                    break;
                }
                let Some(Reverse((_, slot, flow))) = self.classes[class].flows.pop() else { break };
                self.of.remove(&(slot, flow));
                self.stale = true;
                ended.push(Ended { slot, flow, at });
            }
        }
    }

    fn rate(&self, slot: Slot, flow: u32, _: &Network) -> f64 {
        self.of.get(&(slot, flow)).map_or(0.0, |&class| self.classes[class as usize].rate)
    }

    fn progress(&self, _: Slot) -> Option<Progress> {
        None
    }
}
