//! Max-min rates between flows over ports and links between switches: plain TCP on a network with paths.
//!
//! Flows over the same links have the same rate. They form a class with one count of the bytes that such a flow has sent.
//! Whenever a flow starts or ends, the next update computes the rates of all classes again: O(classes x links of a path).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use weir_core::allocation::Allocation;
use weir_core::model::{CompletedFlow, Fabric, Network, Slot, Trunks};
use weir_core::ordered_f64::OrderedF64;
use weir_core::solve::{self, max_min};

use super::{SentProgress, Transport};

/// Flows over the same links.
struct PathClass {
    /// Links: sending sides of ports, then receiving sides, then links between switches.
    links: Box<[u32]>,
    /// Bytes that a flow of the class has sent until `last_time`, and its rate from then on.
    sent_bytes: f64,
    rate: f64,
    /// Flows by the count at which they end.
    flows: BinaryHeap<Reverse<(OrderedF64, Slot, u32)>>,
}

/// Max-min rates between flows over links.
pub(super) struct RoutedMaxMin {
    trunks: Trunks,
    fabric: Fabric,
    classes: Vec<PathClass>,
    class_by_path: BTreeMap<Box<[u32]>, u32>,
    /// The class of each live flow.
    class_of_flow: BTreeMap<(Slot, u32), u32>,
    last_time: f64,
    rates_stale: bool,
}

impl RoutedMaxMin {
    pub(super) fn new(fabric: &Fabric, trunks: Trunks) -> RoutedMaxMin {
        RoutedMaxMin {
            trunks,
            fabric: fabric.clone(),
            classes: Vec::new(),
            class_by_path: BTreeMap::new(),
            class_of_flow: BTreeMap::new(),
            last_time: 0.0,
            rates_stale: true,
        }
    }

    fn find_or_add_class(&mut self, slot: Slot, flow: u32, network: &Network) -> u32 {
        let coflow = network.coflow(slot);
        let ((src, dst), ports) = (coflow.flow_ports(flow), self.fabric.ports() as u32);
        let mut links = Vec::new();
        self.trunks.compute_path(src, dst, coflow.workload_index, coflow.spec_index(flow), &mut links);
        links.iter_mut().for_each(|link| *link += 2 * ports);
        links.extend([src, ports + dst]);
        if let Some(&known) = self.class_by_path.get(links.as_slice()) {
            return known;
        }
        let next = self.classes.len() as u32;
        let links: Box<[u32]> = links.into();
        self.class_by_path.insert(links.clone(), next);
        self.classes.push(PathClass { links, sent_bytes: 0.0, rate: 0.0, flows: BinaryHeap::new() });
        next
    }

    fn sent_bytes_at(&self, class: u32, now: f64) -> f64 {
        let class = &self.classes[class as usize];
        class.sent_bytes + class.rate * (now - self.last_time)
    }

    /// The end of the first flow of a class.
    fn first_completion(&self, class: &PathClass) -> f64 {
        match class.flows.peek() {
            Some(&Reverse((OrderedF64(end), ..))) if class.rate > 0.0 => {
                self.last_time + (end - class.sent_bytes).max(0.0) / class.rate
            }
            _ => f64::INFINITY,
        }
    }
}

impl Transport for RoutedMaxMin {
    fn start_flow(&mut self, slot: Slot, flow: u32, remaining_bytes: f64, network: &Network, now: f64) {
        let class = self.find_or_add_class(slot, flow, network);
        let end = OrderedF64(self.sent_bytes_at(class, now) + remaining_bytes);
        self.classes[class as usize].flows.push(Reverse((end, slot, flow)));
        self.class_of_flow.insert((slot, flow), class);
        self.rates_stale = true;
    }

    fn stop_flow(&mut self, slot: Slot, flow: u32, _: &Network, now: f64) -> f64 {
        let Some(class) = self.class_of_flow.remove(&(slot, flow)) else { return 0.0 };
        let count = self.sent_bytes_at(class, now);
        let mut left = 0.0;
        self.classes[class as usize].flows.retain(|&Reverse((OrderedF64(end), s, f))| {
            let is_stopped = (s, f) == (slot, flow);
            if is_stopped {
                left = (end - count).max(0.0);
            }
            !is_stopped
        });
        self.rates_stale = true;
        left
    }

    fn update_rates(&mut self, network: &Network, _: &Allocation, now: f64) {
        for class in &mut self.classes {
            class.sent_bytes += class.rate * (now - self.last_time);
        }
        self.last_time = now;
        if self.fabric != *network.fabric() {
            self.fabric.clone_from(network.fabric());
            self.rates_stale = true;
        }
        if !std::mem::take(&mut self.rates_stale) {
            return;
        }
        let ports = self.fabric.send_capacities().iter().chain(self.fabric.recv_capacities());
        let capacities: Vec<f64> = ports.chain(self.trunks.capacities()).copied().collect();
        let active_classes = || self.classes.iter().filter(|class| !class.flows.is_empty());
        let classes: Vec<solve::FlowClass<'_>> = active_classes()
            .map(|class| solve::FlowClass { links: &class.links, flows: class.flows.len() as f64 })
            .collect();
        let mut rates = max_min(&capacities, &classes).into_iter();
        for class in &mut self.classes {
            let rate = if class.flows.is_empty() { None } else { rates.next() };
            class.rate = rate.unwrap_or(0.0);
        }
    }

    fn next_completion(&mut self) -> f64 {
        self.classes.iter().map(|class| self.first_completion(class)).fold(f64::INFINITY, f64::min)
    }

    fn complete_flows_until(&mut self, until: f64, _: &Network, completed: &mut Vec<CompletedFlow>) {
        for class in 0..self.classes.len() {
            loop {
                let at = self.first_completion(&self.classes[class]);
                if at > until {
                    break;
                }
                let Some(Reverse((_, slot, flow))) = self.classes[class].flows.pop() else { break };
                self.class_of_flow.remove(&(slot, flow));
                self.rates_stale = true;
                completed.push(CompletedFlow { slot, flow, completed_at: at });
            }
        }
    }

    fn flow_rate(&self, slot: Slot, flow: u32, _: &Network) -> f64 {
        self.class_of_flow.get(&(slot, flow)).map_or(0.0, |&class| self.classes[class as usize].rate)
    }

    fn coflow_progress(&self, _: Slot) -> Option<SentProgress> {
        None
    }
}
