//! Queues at both ends of every flow, FIFO by coflow inside: Aalo with full coordination of senders and receivers.
//!
//! Coflow by coflow, each flow gets the smaller of its even shares of both ports. Each queue first divides its weighted
//! share of every port; then all coflows, in the order of queues, divide the residual capacity. Under strict priority,
//! only the second step applies.

use std::sync::Arc;

use weir_core::allocation::{Allocation, InterQueueSharing, QueueDiscipline};
use weir_core::model::{BitSet, CompletedFlow, Fabric, Goodput, Network, Slot};

use super::{SentProgress, Transport};

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

/// The rate that a sender offers to a flow.
#[derive(Debug, Clone, Copy)]
struct Offer {
    flow: u32,
    src: u32,
    dst: u32,
    rate: f64,
}

/// A transport with queues at both ends.
pub(super) struct CoordinatedQueues {
    weights: InterQueueSharing,
    coflows: Vec<CoflowFlows>,
    /// Flows with a rate.
    flows_with_rate: Vec<(Slot, u32)>,
    last_time: f64,
    next_end: f64,
    /// Coflows by class, then by release.
    coflow_order: Vec<(usize, Slot)>,
    residual_send: Vec<f64>,
    residual_recv: Vec<f64>,
    open_receivers: BitSet,
    offers: Vec<Offer>,
    receiver_shares: Vec<f64>,
    goodput: Option<Arc<Goodput>>,
}

impl CoordinatedQueues {
    pub(super) fn new(
        queues: &QueueDiscipline,
        fabric: &Fabric,
        goodput: Option<Arc<Goodput>>,
    ) -> CoordinatedQueues {
        CoordinatedQueues {
            weights: queues.inter_queue.clone(),
            coflows: Vec::new(),
            flows_with_rate: Vec::new(),
            last_time: 0.0,
            next_end: f64::INFINITY,
            coflow_order: Vec::new(),
            residual_send: Vec::new(),
            residual_recv: Vec::new(),
            open_receivers: BitSet::empty(fabric.ports()),
            offers: Vec::new(),
            receiver_shares: vec![0.0; fabric.ports()],
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

    /// Divides each queue's weighted share of every port, and then, in the order of coflows, the residual capacity.
    fn divide_capacity(&mut self, network: &Network, tolerance: f64) {
        let order = std::mem::take(&mut self.coflow_order);
        if let InterQueueSharing::Weighted(weights) = self.weights.clone() {
            let ports = network.fabric().ports();
            let (mut send, mut recv) = (vec![0.0; ports], vec![0.0; ports]);
            let mut counted = vec![(usize::MAX, usize::MAX); ports];
            for &(class, slot) in &order {
                let coflow = network.coflow(slot);
                for load in coflow.senders().iter().filter(|l| l.live_flow_count > 0) {
                    let port = load.link as usize;
                    if counted[port].0 != class {
                        counted[port].0 = class;
                        send[port] += weights[class];
                    }
                }
                for load in coflow.receivers().iter().filter(|l| l.live_flow_count > 0) {
                    let port = load.link as usize;
                    if counted[port].1 != class {
                        counted[port].1 = class;
                        recv[port] += weights[class];
                    }
                }
            }
            for coflows in order.chunk_by(|a, b| a.0 == b.0) {
                let weight = weights[coflows[0].0];
                let fabric = network.fabric();
                let weighted_shares = |rates: &[f64], totals: &[f64]| -> Vec<f64> {
                    rates
                        .iter()
                        .zip(totals)
                        .map(|(c, t)| if *t > 0.0 { c * weight / t } else { 0.0 })
                        .collect()
                };
                let mut shares = (
                    weighted_shares(fabric.send_capacities(), &send),
                    weighted_shares(fabric.recv_capacities(), &recv),
                );
                for &(_, slot) in coflows {
                    self.share_evenly(slot, &mut shares, network, tolerance);
                }
            }
        }
        let mut residual = (std::mem::take(&mut self.residual_send), std::mem::take(&mut self.residual_recv));
        for &(_, slot) in &order {
            self.share_evenly(slot, &mut residual, network, tolerance);
        }
        (self.residual_send, self.residual_recv) = residual;
        self.coflow_order = order;
    }

    /// Gives each flow of a coflow the smaller of its even shares of its ports' remaining `capacities`. O(flows of the coflow).
    fn share_evenly(
        &mut self,
        slot: Slot,
        capacities: &mut (Vec<f64>, Vec<f64>),
        network: &Network,
        tolerance: f64,
    ) {
        let coflow = network.coflow(slot);
        self.open_receivers.clear();
        for load in coflow.receivers() {
            if capacities.1[load.link as usize] > tolerance {
                self.open_receivers.insert(load.link as usize);
            }
        }
        self.offers.clear();
        self.receiver_shares.fill(0.0);
        for (index, load) in coflow.senders().iter().enumerate() {
            let src = load.link;
            if load.live_flow_count == 0 || capacities.0[src as usize] <= tolerance {
                continue;
            }
            let flows = coflow.count_flows_of_sender(index, &self.open_receivers);
            let rate = capacities.0[src as usize] / f64::from(flows.max(1));
            coflow.visit_flows_of_sender(index, &self.open_receivers, |flow, dst| {
                self.offers.push(Offer { flow, src, dst, rate });
                self.receiver_shares[dst as usize] += 1.0;
            });
        }
        for (offered, left) in self.receiver_shares.iter_mut().zip(&capacities.1) {
            *offered = left / *offered;
        }
        for offer in &self.offers {
            let rate = offer.rate.min(self.receiver_shares[offer.dst as usize]);
            let flows = &mut self.coflows[slot as usize];
            if flows.rates[offer.flow as usize] == 0.0 {
                self.flows_with_rate.push((slot, offer.flow));
            }
            flows.rates[offer.flow as usize] += rate;
            flows.total_rate += rate;
            for (capacities, port) in [(&mut capacities.0, offer.src), (&mut capacities.1, offer.dst)] {
                capacities[port as usize] -= rate;
            }
            // A queue's share is also part of the ports' residual capacity.
            if !self.residual_send.is_empty() {
                self.residual_send[offer.src as usize] -= rate;
                self.residual_recv[offer.dst as usize] -= rate;
            }
        }
    }
}

impl Transport for CoordinatedQueues {
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
        self.residual_send.clear();
        self.residual_send.extend_from_slice(fabric.send_capacities());
        self.residual_recv.clear();
        self.residual_recv.extend_from_slice(fabric.recv_capacities());
        self.coflow_order.clear();
        self.coflow_order.extend(network.active_coflows().iter().map(|&slot| (allocation.class(slot), slot)));
        // The active coflows are in the order of release, and the sort is stable.
        self.coflow_order.sort_by_key(|&(class, _)| class);
        self.divide_capacity(network, tolerance);
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

    fn coflow_progress(&self, slot: Slot) -> Option<SentProgress> {
        let flows = self.coflows.get(slot as usize)?;
        Some(SentProgress { sent_bytes: flows.sent_bytes, rate: flows.total_rate, time: self.last_time })
    }
}
