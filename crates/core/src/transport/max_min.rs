//! Max-min rates between flows over all links, with one queue at every link: plain TCP.
//!
//! All flows with the same bottleneck have the same rate, the bottleneck's level. Each link therefore counts the bytes that
//! one such flow has sent. A flow ends when that count has grown by the flow's remaining bytes. The flows of a class, which
//! cross the same links, move together when their bottleneck changes to another link.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use crate::allocation::Allocation;
use crate::model::{CompletedFlow, Fabric, Goodput, Network, Slot};
use crate::ordered_f64::OrderedF64;
use crate::solve::LinkMaxMin;

use super::{SentProgress, Transport};

/// The class of a flow that has no class before the next update.
const STARTING: u32 = u32::MAX;

/// The class of a flow that has been stopped.
const STOPPED: u32 = u32::MAX - 1;

/// One flow.
#[derive(Debug, Clone, Copy)]
struct Flow {
    class: u32,
    /// The count of its class at which it ends; without a class, its remaining bytes.
    end_count: f64,
}

/// Flows over the same links.
#[derive(Debug)]
struct FlowClass {
    /// The link whose count applies to the flows.
    limiting_link: u32,
    /// The difference between the count of the class and the link's. The count of the class is continuous when the link
    /// changes.
    offset: f64,
    /// Flows by the count of the class at which they end.
    flows: BinaryHeap<Reverse<(OrderedF64, Slot, u32)>>,
}

/// A link.
#[derive(Debug, Default)]
struct LinkState {
    /// Bytes that a flow limited here has sent until the last update.
    sent_bytes: f64,
    /// Classes by the count at which their first flow ends; entries of classes that moved are stale.
    classes: BinaryHeap<Reverse<(OrderedF64, u32)>>,
}

/// Max-min rates between flows.
pub(super) struct MaxMin {
    rates: LinkMaxMin,
    fabric_version: u64,
    links: Vec<LinkState>,
    classes: Vec<FlowClass>,
    /// By slot and flow.
    flows: Vec<Vec<Flow>>,
    /// Flows that started since the last update, and some that have been stopped again.
    started: Vec<(Slot, u32)>,
    /// By the links of a class.
    class_by_links: HashMap<Box<[u32]>, u32>,
    /// The links of the flow in question.
    flow_links: Vec<u32>,
    last_time: f64,
    changed_classes: Vec<u32>,
    goodput: Option<Arc<Goodput>>,
}

impl MaxMin {
    pub(super) fn new(fabric: &Fabric, goodput: Option<Arc<Goodput>>) -> MaxMin {
        MaxMin {
            links: std::iter::repeat_with(LinkState::default).take(fabric.links()).collect(),
            rates: LinkMaxMin::new(fabric.capacities().to_vec()),
            fabric_version: fabric.version(),
            classes: Vec::new(),
            flows: Vec::new(),
            started: Vec::new(),
            class_by_links: HashMap::new(),
            flow_links: Vec::new(),
            last_time: 0.0,
            changed_classes: Vec::new(),
            goodput,
        }
    }

    /// Sets the capacity of receivers by the number of their flows whose links all have capacity. O(links of classes).
    fn limit_to_goodput(&mut self, fabric: &Fabric) {
        let Some(goodput) = &self.goodput else { return };
        // By link, for receivers.
        let mut connections = vec![0; fabric.links()];
        let capacities = fabric.capacities();
        for class in 0..self.classes.len() as u32 {
            let links = self.rates.links(class);
            let &[_, dst, ..] = links else { continue };
            if links.iter().all(|&link| capacities[link as usize] > 0.0) {
                connections[dst as usize] += self.rates.flow_count(class) as usize;
            }
        }
        for link in fabric.receivers().iter() {
            self.rates.set_capacity(link, capacities[link] * goodput.utilization(connections[link]));
        }
    }

    fn find_or_add_class(&mut self, slot: Slot, flow: u32, network: &Network) -> u32 {
        self.flow_links.clear();
        let links = network.coflow(slot).flow_links(flow);
        self.flow_links.extend(links.map(|link| link as u32));
        if let Some(&class) = self.class_by_links.get(self.flow_links.as_slice()) {
            return class;
        }
        let class = self.rates.add_class(&self.flow_links);
        self.class_by_links.insert(self.flow_links.as_slice().into(), class);
        let limiting_link = self.rates.bottleneck(class);
        self.classes.push(FlowClass { limiting_link, offset: 0.0, flows: BinaryHeap::new() });
        class
    }

    /// The count of a class at `now`.
    fn sent_bytes_at(&self, class: u32, now: f64) -> f64 {
        let class = &self.classes[class as usize];
        let level = self.rates.level(class.limiting_link as usize);
        let since = if level.is_finite() { level * (now - self.last_time) } else { 0.0 };
        self.links[class.limiting_link as usize].sent_bytes + class.offset + since
    }

    /// Adds the first flow of a class to its link's heap.
    fn enqueue_class(&mut self, number: u32) {
        let class = &self.classes[number as usize];
        if let Some(&Reverse((OrderedF64(end), ..))) = class.flows.peek() {
            let entry = Reverse((OrderedF64(end - class.offset), number));
            self.links[class.limiting_link as usize].classes.push(entry);
        }
    }

    /// The class whose flow is the next to end at a link, and the count at which it ends.
    fn find_first_class(&mut self, link: usize) -> Option<(f64, u32)> {
        while let Some(&Reverse((OrderedF64(end), number))) = self.links[link].classes.peek() {
            let class = &self.classes[number as usize];
            let first = class.flows.peek().map(|Reverse((OrderedF64(end), ..))| end - class.offset);
            if class.limiting_link as usize == link && first == Some(end) {
                return Some((end, number));
            }
            self.links[link].classes.pop();
        }
        None
    }

    /// The end of the first flow of a link.
    fn first_completion(&mut self, link: usize) -> f64 {
        let level = self.rates.level(link);
        if !(level > 0.0 && level.is_finite()) {
            return f64::INFINITY;
        }
        let count = self.links[link].sent_bytes;
        self.find_first_class(link)
            .map_or(f64::INFINITY, |(end, _)| self.last_time + (end - count).max(0.0) / level)
    }

    /// Moves a class to its bottleneck.
    fn move_class(&mut self, number: u32) {
        let link = self.rates.bottleneck(number);
        let class = &mut self.classes[number as usize];
        if class.flows.is_empty() || link == class.limiting_link {
            return;
        }
        class.offset +=
            self.links[class.limiting_link as usize].sent_bytes - self.links[link as usize].sent_bytes;
        class.limiting_link = link;
        self.enqueue_class(number);
    }

    /// Adds a flow that has started to its class.
    fn add_to_class(&mut self, slot: Slot, flow: u32, network: &Network, now: f64) {
        let Flow { class, end_count: remaining_bytes } = self.flows[slot as usize][flow as usize];
        if class != STARTING {
            return;
        }
        let number = self.find_or_add_class(slot, flow, network);
        let end_count = self.sent_bytes_at(number, now) + remaining_bytes;
        self.flows[slot as usize][flow as usize] = Flow { class: number, end_count };
        let class = &mut self.classes[number as usize];
        let first = class.flows.peek().is_none_or(|Reverse((first, ..))| OrderedF64(end_count) < *first);
        class.flows.push(Reverse((OrderedF64(end_count), slot, flow)));
        if first {
            self.enqueue_class(number);
        }
        self.rates.add_flow(number);
    }

    /// Adds the bytes sent until `now` to the counts.
    fn advance(&mut self, now: f64) {
        for (link, level) in self.links.iter_mut().zip(self.rates.levels()) {
            if level.is_finite() {
                link.sent_bytes += level * (now - self.last_time);
            }
        }
        self.last_time = now;
    }
}

impl Transport for MaxMin {
    fn start_flow(&mut self, slot: Slot, flow: u32, remaining_bytes: f64, network: &Network) {
        if self.flows.len() <= slot as usize {
            self.flows.resize_with(slot as usize + 1, Vec::new);
        }
        let flows = &mut self.flows[slot as usize];
        if flows.len() <= flow as usize {
            let width = network.coflow(slot).width();
            flows.resize(width, Flow { class: STOPPED, end_count: 0.0 });
        }
        flows[flow as usize] = Flow { class: STARTING, end_count: remaining_bytes };
        self.started.push((slot, flow));
    }

    fn stop_flow(&mut self, slot: Slot, flow: u32, _: &Network, now: f64) -> f64 {
        let left = self.remaining_bytes(slot, flow, now);
        let stopped = Flow { class: STOPPED, end_count: left };
        let Flow { class, .. } = std::mem::replace(&mut self.flows[slot as usize][flow as usize], stopped);
        if class != STARTING {
            self.classes[class as usize].flows.retain(|&Reverse((_, s, f))| (s, f) != (slot, flow));
            self.enqueue_class(class);
            self.rates.remove_flow(class);
        }
        left
    }

    fn update_rates(&mut self, network: &Network, _: &Allocation, now: f64) {
        let mut started = std::mem::take(&mut self.started);
        started.drain(..).for_each(|(slot, flow)| self.add_to_class(slot, flow, network, now));
        self.started = started;
        self.advance(now);
        let fabric = network.fabric();
        if self.fabric_version != fabric.version() {
            self.fabric_version = fabric.version();
            for (link, &capacity) in fabric.capacities().iter().enumerate() {
                self.rates.set_capacity(link, capacity);
            }
        }
        self.limit_to_goodput(fabric);
        let mut changed_classes = std::mem::take(&mut self.changed_classes);
        if self.rates.solve(&mut changed_classes) {
            (0..self.classes.len() as u32).for_each(|class| self.move_class(class));
        } else {
            changed_classes.iter().for_each(|&class| self.move_class(class));
        }
        self.changed_classes = changed_classes;
    }

    fn next_completion(&mut self) -> f64 {
        (0..self.links.len()).map(|link| self.first_completion(link)).fold(f64::INFINITY, f64::min)
    }

    fn complete_flows_until(&mut self, until: f64, _: &Network, completed: &mut Vec<CompletedFlow>) {
        for link in 0..self.links.len() {
            loop {
                let at = self.first_completion(link);
                if at > until {
                    break;
                }
                let Some((_, number)) = self.find_first_class(link) else { break };
                let Some(Reverse((_, slot, flow))) = self.classes[number as usize].flows.pop() else { break };
                completed.push(CompletedFlow { slot, flow, completed_at: at });
                self.enqueue_class(number);
                self.rates.remove_flow(number);
            }
        }
    }

    fn flow_rate(&self, slot: Slot, flow: u32) -> f64 {
        match self.flows[slot as usize][flow as usize].class {
            STARTING => 0.0,
            class => self.rates.level(self.rates.bottleneck(class) as usize),
        }
    }

    fn remaining_bytes(&self, slot: Slot, flow: u32, at: f64) -> f64 {
        match self.flows[slot as usize][flow as usize] {
            Flow { class: STARTING, end_count: remaining_bytes } => remaining_bytes,
            Flow { class, end_count } => (end_count - self.sent_bytes_at(class, at)).max(0.0),
        }
    }

    fn coflow_progress(&self, _: Slot) -> Option<SentProgress> {
        None
    }
}
