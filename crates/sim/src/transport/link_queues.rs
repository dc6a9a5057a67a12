//! Queues with FIFO by coflow inside, at senders, over trunks: Aalo on a fabric.
//!
//! As [`super::sender_queues`], which is faster and for one switch only. Every sending port shares its rate among its queues,
//! and each queue's share goes to its first coflow, evenly over that coflow's flows at the port. The other links share their
//! capacity max-min between flows, at most at the offered rates. The residual capacity goes to the coflows in the order of
//! queues.
//!
//! Every update visits all flows with a rate.

use std::sync::Arc;

use weir_core::allocation::{Allocation, InterQueueSharing, QueueDiscipline};
use weir_core::model::{BitSet, Coflow, CompletedFlow, Goodput, Network, Slot};
use weir_core::solve::{CappedFlow, ResidualCapacity, max_min_capped};

use super::{SentProgress, Transport, order_by_class};

/// Flows of one coflow, in the coflow's order.
#[derive(Debug, Default)]
struct CoflowFlows {
    /// The coflow's sequence number, because slots are reused.
    seq: Option<u64>,
    remaining_bytes: Vec<f64>,
    rates: Vec<f64>,
    /// Bytes sent by all flows until the last update, and their rate since.
    sent_bytes: f64,
    total_rate: f64,
}

impl CoflowFlows {
    /// Adds to the rate of a flow. Returns whether the flow had no rate.
    fn add_rate(&mut self, flow: u32, rate: f64) -> bool {
        let had_none = self.rates[flow as usize] == 0.0;
        self.rates[flow as usize] += rate;
        self.total_rate += rate;
        had_none
    }
}

/// The first coflow of a queue of a sender.
#[derive(Debug, Clone, Copy)]
struct QueueHead {
    src: u32,
    slot: Slot,
    class: usize,
    flow_count: u32,
}

/// The rate that a sender offers to a flow.
#[derive(Debug, Clone, Copy)]
struct Offer {
    slot: Slot,
    flow: u32,
    rate: f64,
}

/// A transport with queues over links.
pub(super) struct LinkQueues {
    weights: InterQueueSharing,
    coflows: Vec<CoflowFlows>,
    /// Flows with a rate.
    flows_with_rate: Vec<(Slot, u32)>,
    last_time: f64,
    next_end: f64,
    /// Coflows by class, then by release.
    coflow_order: Vec<(usize, Slot)>,
    /// By link: capacity that no flow uses.
    residuals: Vec<f64>,
    /// The ports of a coflow with remaining capacity.
    open_senders: BitSet,
    open_receivers: BitSet,
    residual_capacity: ResidualCapacity,
    goodput: Option<Arc<Goodput>>,
}

impl LinkQueues {
    pub(super) fn new(queues: &QueueDiscipline, goodput: Option<Arc<Goodput>>) -> LinkQueues {
        LinkQueues {
            weights: queues.inter_queue.clone(),
            coflows: Vec::new(),
            flows_with_rate: Vec::new(),
            last_time: 0.0,
            next_end: f64::INFINITY,
            coflow_order: Vec::new(),
            residuals: Vec::new(),
            open_senders: BitSet::default(),
            open_receivers: BitSet::default(),
            residual_capacity: ResidualCapacity::default(),
            goodput,
        }
    }

    /// Reduces rates to what receivers carry with so many flows. O(flows with a rate).
    fn limit_to_goodput(&mut self, network: &Network) {
        let Some(goodput) = &self.goodput else { return };
        let mut receivers = vec![(0, 0.0); network.fabric().ports()];
        for &(slot, flow) in &self.flows_with_rate {
            let (count, total_rate) = &mut receivers[network.coflow(slot).flow_ports(flow).1 as usize];
            *count += 1;
            *total_rate += self.coflows[slot as usize].rates[flow as usize];
        }
        for &(slot, flow) in &self.flows_with_rate {
            let dst = network.coflow(slot).flow_ports(flow).1 as usize;
            let (count, total_rate) = receivers[dst];
            let goodput_fraction = goodput.utilization(count);
            let capacity = network.fabric().recv_capacities()[dst] * goodput_fraction;
            // Without a loss of capacity, the rates exceed the capacity by rounding at most.
            if goodput_fraction < 1.0 && total_rate > capacity {
                let flows = &mut self.coflows[slot as usize];
                let rate = &mut flows.rates[flow as usize];
                flows.total_rate -= *rate * (1.0 - capacity / total_rate);
                *rate *= capacity / total_rate;
            }
        }
    }

    /// Adds the bytes sent until `now`, and resets the rates.
    fn advance(&mut self, now: f64) {
        let time = now - self.last_time;
        for &(slot, flow) in &self.flows_with_rate {
            let flows = &mut self.coflows[slot as usize];
            flows.remaining_bytes[flow as usize] -= flows.rates[flow as usize] * time;
            flows.rates[flow as usize] = 0.0;
        }
        for flows in &mut self.coflows {
            flows.sent_bytes += flows.total_rate * time;
            flows.total_rate = 0.0;
        }
        self.flows_with_rate.clear();
        self.last_time = now;
    }

    /// Opens the ports of a coflow whose links satisfy `is_open`.
    fn open_ports(&mut self, coflow: &Coflow, ports: usize, is_open: impl Fn(usize) -> bool) {
        self.open_senders.reset(ports);
        self.open_receivers.reset(ports);
        for port in coflow.senders().iter().map(|load| load.link as usize).filter(|&port| is_open(port)) {
            self.open_senders.insert(port);
        }
        for port in coflow.receivers().iter().map(|load| load.link as usize) {
            if is_open(ports + port) {
                self.open_receivers.insert(port);
            }
        }
    }

    /// Sets the rates that senders offer and the other links carry, and then, in the order of coflows, reassigns the residual
    /// capacity.
    fn serve_sender_queues(&mut self, network: &Network, tolerance: f64) {
        let offers = self.offer_rates(network);
        let rates = carried_rates(&offers, network, tolerance);
        let ports = network.fabric().ports();
        for (offer, rate) in offers.iter().zip(rates).filter(|(_, rate)| *rate > 0.0) {
            self.add_rate(offer.slot, offer.flow, rate);
            for link in network.coflow(offer.slot).flow_links(offer.flow, ports) {
                self.residuals[link] -= rate;
            }
        }
        let mut residual = std::mem::take(&mut self.residual_capacity);
        residual.set_residuals(network.fabric(), &self.residuals);
        for at in 0..self.coflow_order.len() {
            let slot = self.coflow_order[at].1;
            if residual.is_exhausted() {
                break;
            }
            residual.fill_flows(network.coflow(slot), |flow, rate| self.add_rate(slot, flow, rate));
        }
        self.residual_capacity = residual;
    }

    fn add_rate(&mut self, slot: Slot, flow: u32, rate: f64) {
        if self.coflows[slot as usize].add_rate(flow, rate) {
            self.flows_with_rate.push((slot, flow));
        }
    }

    /// The rates that senders offer to the flows of the first coflow of each queue.
    fn offer_rates(&mut self, network: &Network) -> Vec<Offer> {
        let send = network.fabric().send_capacities();
        let heads = self.find_queue_heads(network);
        let weight = |class: usize| match &self.weights {
            InterQueueSharing::Weighted(weights) => weights[class],
            InterQueueSharing::StrictPriority(_) => 1.0,
        };
        let mut totals = vec![0.0; send.len()];
        heads.iter().for_each(|head| totals[head.src as usize] += weight(head.class));
        let rate_of = |head: &QueueHead| {
            let src = head.src as usize;
            send[src] * weight(head.class) / totals[src] / f64::from(head.flow_count)
        };
        let rates: Vec<f64> = heads.iter().map(rate_of).collect();
        let mut offers = Vec::new();
        let mut flow_rates = vec![0.0; send.len()];
        let mut rates = rates.into_iter();
        for heads in heads.chunk_by(|a, b| a.slot == b.slot) {
            let slot = heads[0].slot;
            let coflow = network.coflow(slot);
            for (head, rate) in heads.iter().zip(&mut rates) {
                flow_rates[head.src as usize] = rate;
            }
            self.open_ports(coflow, send.len(), |link| link >= send.len() || flow_rates[link] > 0.0);
            coflow.visit_open_flows(&mut self.open_senders, &mut self.open_receivers, |flow, src, _| {
                offers.push(Offer { slot, flow, rate: flow_rates[src] });
                (false, false)
            });
            heads.iter().for_each(|head| flow_rates[head.src as usize] = 0.0);
        }
        offers
    }

    /// The first coflow of each queue of each sender; with strict priority, of the first queue only. Entries of one coflow
    /// are adjacent.
    fn find_queue_heads(&self, network: &Network) -> Vec<QueueHead> {
        let is_strict = matches!(self.weights, InterQueueSharing::StrictPriority(_));
        let mut last_class = vec![None; network.fabric().ports()];
        let mut heads = Vec::new();
        for &(class, slot) in &self.coflow_order {
            let senders = network.coflow(slot).senders().iter();
            for load in senders.filter(|load| load.live_flow_count > 0) {
                let last = &mut last_class[load.link as usize];
                if last.is_none() || (!is_strict && *last != Some(class)) {
                    *last = Some(class);
                    heads.push(QueueHead { src: load.link, slot, class, flow_count: load.live_flow_count });
                }
            }
        }
        heads
    }
}

/// The rates of offered flows over the links after the senders: max-min, at most the offered rates.
fn carried_rates(offers: &[Offer], network: &Network, tolerance: f64) -> Vec<f64> {
    let ports = network.fabric().ports();
    let links = |offer: &Offer| network.coflow(offer.slot).flow_links(offer.flow, ports).skip(1);
    let capacities: Vec<f64> = network.fabric().link_capacities().collect();
    let mut loads = vec![0.0; capacities.len()];
    for offer in offers {
        links(offer).for_each(|link| loads[link] += offer.rate);
    }
    let is_overloaded: Vec<bool> =
        loads.iter().zip(&capacities).map(|(load, capacity)| *load > capacity + tolerance).collect();
    let mut rates: Vec<f64> = offers.iter().map(|offer| offer.rate).collect();
    let (mut limited, mut flow_links, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for (at, offer) in offers.iter().enumerate() {
        let first = flow_links.len();
        flow_links.extend(links(offer).filter(|&link| is_overloaded[link]).map(|link| link as u32));
        if flow_links.len() > first {
            ends.push(flow_links.len());
            limited.push(at);
        }
    }
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let links = starts.zip(&ends).map(|(from, &to)| &flow_links[from..to]);
    let flows: Vec<CappedFlow<'_>> =
        links.zip(&limited).map(|(links, &at)| CappedFlow { links, cap: offers[at].rate }).collect();
    for (at, rate) in limited.iter().zip(max_min_capped(&capacities, &flows)) {
        rates[*at] = rate;
    }
    rates
}

impl Transport for LinkQueues {
    fn start_flow(&mut self, slot: Slot, flow: u32, remaining_bytes: f64, network: &Network, _: f64) {
        if slot as usize >= self.coflows.len() {
            self.coflows.resize_with(slot as usize + 1, CoflowFlows::default);
        }
        let coflow = network.coflow(slot);
        let flows = &mut self.coflows[slot as usize];
        if flows.seq != Some(coflow.seq) {
            let none = vec![0.0; coflow.width()];
            *flows = CoflowFlows {
                seq: Some(coflow.seq),
                remaining_bytes: none.clone(),
                rates: none,
                sent_bytes: 0.0,
                total_rate: 0.0,
            };
        }
        flows.remaining_bytes[flow as usize] = remaining_bytes;
    }

    fn stop_flow(&mut self, slot: Slot, flow: u32, _: &Network, now: f64) -> f64 {
        let flows = &mut self.coflows[slot as usize];
        let rate = std::mem::take(&mut flows.rates[flow as usize]);
        flows.sent_bytes += rate * (now - self.last_time);
        flows.total_rate -= rate;
        (flows.remaining_bytes[flow as usize] - rate * (now - self.last_time)).max(0.0)
    }

    fn update_rates(&mut self, network: &Network, allocation: &Allocation, now: f64) {
        self.advance(now);
        let fabric = network.fabric();
        let tolerance = 1e-9 * fabric.nominal_rate();
        self.residuals.clear();
        self.residuals.extend(fabric.link_capacities());
        order_by_class(&mut self.coflow_order, network, allocation);
        self.serve_sender_queues(network, tolerance);
        self.limit_to_goodput(network);
        self.next_end = f64::INFINITY;
        for &(slot, flow) in &self.flows_with_rate {
            let flows = &self.coflows[slot as usize];
            let end = now + flows.remaining_bytes[flow as usize].max(0.0) / flows.rates[flow as usize];
            self.next_end = self.next_end.min(end);
        }
    }

    fn next_completion(&mut self) -> f64 {
        self.next_end
    }

    fn complete_flows_until(&mut self, until: f64, _: &Network, completed: &mut Vec<CompletedFlow>) {
        if self.next_end > until {
            return;
        }
        self.next_end = f64::INFINITY;
        let (coflows, since) = (&mut self.coflows, self.last_time);
        self.flows_with_rate.retain(|&(slot, flow)| {
            let flows = &mut coflows[slot as usize];
            let rate = flows.rates[flow as usize];
            let at = since + flows.remaining_bytes[flow as usize].max(0.0) / rate;
            if at > until {
                return true;
            }
            // Count the bytes at the end of this flow; the next count may be later.
            flows.sent_bytes += flows.remaining_bytes[flow as usize];
            flows.total_rate -= rate;
            flows.remaining_bytes[flow as usize] = 0.0;
            flows.rates[flow as usize] = 0.0;
            completed.push(CompletedFlow { slot, flow, completed_at: at });
            false
        });
        for &(slot, flow) in &self.flows_with_rate {
            let flows = &self.coflows[slot as usize];
            let end =
                self.last_time + flows.remaining_bytes[flow as usize].max(0.0) / flows.rates[flow as usize];
            self.next_end = self.next_end.min(end);
        }
    }

    fn flow_rate(&self, slot: Slot, flow: u32, _: &Network) -> f64 {
        self.coflows.get(slot as usize).map_or(0.0, |flows| flows.rates[flow as usize])
    }

    fn visit_remaining_bytes(&self, network: &Network, at: f64, visit: &mut dyn FnMut(Slot, u32, f64)) {
        for &slot in network.active_coflows() {
            for flow in network.coflow(slot).live_flows() {
                let CoflowFlows { remaining_bytes, rates, .. } = &self.coflows[slot as usize];
                let sent_bytes = rates[flow as usize] * (at - self.last_time);
                visit(slot, flow, (remaining_bytes[flow as usize] - sent_bytes).max(0.0));
            }
        }
    }

    fn coflow_progress(&self, slot: Slot) -> Option<SentProgress> {
        let flows = self.coflows.get(slot as usize)?;
        Some(SentProgress { sent_bytes: flows.sent_bytes, rate: flows.total_rate, time: self.last_time })
    }
}
