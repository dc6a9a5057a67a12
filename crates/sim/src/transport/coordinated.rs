//! Queues at both ends of every flow, FIFO by coflow inside: Aalo with full coordination of senders and receivers.
//!
//! Coflow by coflow, each flow gets the smaller of its even shares of both ports. Each queue first divides the share of
//! every port that its weight gives, and then, in the order of coflows, the residual capacity of all ports.

use std::sync::Arc;

use weir_core::allocation::{Allocation, Queues, Weights};
use weir_core::model::{Ended, Fabric, Goodput, Mask, Network, Slot};

use super::{Progress, Transport};

/// Flows of one coflow, in the coflow's order.
#[derive(Debug, Default)]
struct Flows {
    /// The coflow's sequence number, because slots are reused.
    seq: Option<u64>,
    left: Vec<f64>,
    rate: Vec<f64>,
    /// Bytes sent by all flows until `since`, and their rate since.
    sent: f64,
    sending: f64,
}

/// A sender's offer to a flow.
#[derive(Debug, Clone, Copy)]
struct Offer {
    flow: u32,
    src: u32,
    dst: u32,
    rate: f64,
}

/// A transport with queues at both ends.
pub(super) struct Coordinated {
    weights: Weights,
    coflows: Vec<Flows>,
    /// Flows with a rate.
    rated: Vec<(Slot, u32)>,
    since: f64,
    next_end: f64,
    /// Coflows by class, then by release.
    order: Vec<(usize, Slot)>,
    left_send: Vec<f64>,
    left_recv: Vec<f64>,
    open_recv: Mask,
    offers: Vec<Offer>,
    offered: Vec<f64>,
    goodput: Option<Arc<Goodput>>,
}

impl Coordinated {
    pub(super) fn new(queues: &Queues, fabric: &Fabric, goodput: Option<Arc<Goodput>>) -> Coordinated {
        Coordinated {
            weights: queues.weights.clone(),
            coflows: Vec::new(),
            rated: Vec::new(),
            since: 0.0,
            next_end: f64::INFINITY,
            order: Vec::new(),
            left_send: Vec::new(),
            left_recv: Vec::new(),
            open_recv: Mask::empty(fabric.ports()),
            offers: Vec::new(),
            offered: vec![0.0; fabric.ports()],
            goodput,
        }
    }

    /// Reduces rates to what receivers carry with so many flows. O(flows with a rate).
    fn carry(&mut self, network: &Network) {
        let Some(goodput) = &self.goodput else { return };
        let mut receivers = vec![(0, 0.0); network.fabric().ports()];
        for &(slot, flow) in &self.rated {
            let (count, given) = &mut receivers[network.coflow(slot).ends_of(flow).1 as usize];
            *count += 1;
            *given += self.coflows[slot as usize].rate[flow as usize];
        }
        for &(slot, flow) in &self.rated {
            let dst = network.coflow(slot).ends_of(flow).1 as usize;
            let (count, given) = receivers[dst];
            let part = goodput.part(count);
            let most = network.fabric().recv()[dst] * part;
            // Without a loss of capacity, the rates exceed the capacity by rounding at most.
            if part < 1.0 && given > most {
                let flows = &mut self.coflows[slot as usize];
                let rate = &mut flows.rate[flow as usize];
                flows.sending -= *rate * (1.0 - most / given);
                *rate *= most / given;
            }
        }
    }

    /// Adds the bytes sent until `now`, and resets the rates.
    fn advance(&mut self, now: f64) {
        let time = now - self.since;
        for &(slot, flow) in &self.rated {
            let flows = &mut self.coflows[slot as usize];
            flows.left[flow as usize] -= flows.rate[flow as usize] * time;
            flows.rate[flow as usize] = 0.0;
        }
        for flows in &mut self.coflows {
            flows.sent += flows.sending * time;
            flows.sending = 0.0;
        }
        self.rated.clear();
        self.since = now;
    }

    /// Divides each queue's weighted share of every port, and then, in the order of coflows, the residual capacity.
    fn coordinate(&mut self, network: &Network, dust: f64) {
        let order = std::mem::take(&mut self.order);
        if let Weights::Weighted(weights) = self.weights.clone() {
            let ports = network.fabric().ports();
            let (mut send, mut recv) = (vec![0.0; ports], vec![0.0; ports]);
            let mut counted = vec![(usize::MAX, usize::MAX); ports];
            for &(class, slot) in &order {
                let coflow = network.coflow(slot);
                for load in coflow.senders().iter().filter(|l| l.live > 0) {
                    let port = load.port as usize;
                    if counted[port].0 != class {
                        counted[port].0 = class;
                        send[port] += weights[class];
                    }
                }
                for load in coflow.receivers().iter().filter(|l| l.live > 0) {
                    let port = load.port as usize;
                    if counted[port].1 != class {
                        counted[port].1 = class;
                        recv[port] += weights[class];
                    }
                }
            }
            for coflows in order.chunk_by(|a, b| a.0 == b.0) {
                let weight = weights[coflows[0].0];
                let fabric = network.fabric();
                let share = |rates: &[f64], totals: &[f64]| -> Vec<f64> {
                    rates
                        .iter()
                        .zip(totals)
                        .map(|(c, t)| if *t > 0.0 { c * weight / t } else { 0.0 })
                        .collect()
                };
                let mut shares = (share(fabric.send(), &send), share(fabric.recv(), &recv));
                for &(_, slot) in coflows {
                    self.share_evenly(slot, &mut shares, network, dust);
                }
            }
        }
        let mut left = (std::mem::take(&mut self.left_send), std::mem::take(&mut self.left_recv));
        for &(_, slot) in &order {
            self.share_evenly(slot, &mut left, network, dust);
        }
        (self.left_send, self.left_recv) = left;
        self.order = order;
    }

    /// Gives each flow of a coflow the smaller of its even shares of its ports' capacities in `left`. O(flows of the coflow).
    fn share_evenly(&mut self, slot: Slot, left: &mut (Vec<f64>, Vec<f64>), network: &Network, dust: f64) {
        let coflow = network.coflow(slot);
        self.open_recv.clear();
        for load in coflow.receivers() {
            if left.1[load.port as usize] > dust {
                self.open_recv.insert(load.port as usize);
            }
        }
        self.offers.clear();
        self.offered.fill(0.0);
        for (index, load) in coflow.senders().iter().enumerate() {
            let src = load.port;
            if load.live == 0 || left.0[src as usize] <= dust {
                continue;
            }
            let flows = coflow.count_sender(index, &self.open_recv);
            let rate = left.0[src as usize] / f64::from(flows.max(1));
            coflow.visit_sender(index, &self.open_recv, |flow, dst| {
                self.offers.push(Offer { flow, src, dst, rate });
                self.offered[dst as usize] += 1.0;
            });
        }
        for (offered, left) in self.offered.iter_mut().zip(&left.1) {
            *offered = left / *offered;
        }
        for offer in &self.offers {
            let rate = offer.rate.min(self.offered[offer.dst as usize]);
            let flows = &mut self.coflows[slot as usize];
            if flows.rate[offer.flow as usize] == 0.0 {
                self.rated.push((slot, offer.flow));
            }
            flows.rate[offer.flow as usize] += rate;
            flows.sending += rate;
            for (sums, port) in [(&mut left.0, offer.src), (&mut left.1, offer.dst)] {
                sums[port as usize] -= rate;
            }
            // A queue's share is also part of the ports' residual capacity.
            if !self.left_send.is_empty() {
                self.left_send[offer.src as usize] -= rate;
                self.left_recv[offer.dst as usize] -= rate;
            }
        }
    }
}

impl Transport for Coordinated {
    fn start(&mut self, slot: Slot, flow: u32, left: f64, network: &Network, _: f64) {
        if slot as usize >= self.coflows.len() {
            self.coflows.resize_with(slot as usize + 1, Flows::default);
        }
        let coflow = network.coflow(slot);
        let flows = &mut self.coflows[slot as usize];
        if flows.seq != Some(coflow.seq) {
            let none = vec![0.0; coflow.width()];
            *flows = Flows { seq: Some(coflow.seq), left: none.clone(), rate: none, sent: 0.0, sending: 0.0 };
        }
        flows.left[flow as usize] = left;
    }

    fn stop(&mut self, slot: Slot, flow: u32, _: &Network, now: f64) -> f64 {
        let flows = &mut self.coflows[slot as usize];
        let rate = std::mem::take(&mut flows.rate[flow as usize]);
        flows.sent += rate * (now - self.since);
        flows.sending -= rate;
        (flows.left[flow as usize] - rate * (now - self.since)).max(0.0)
    }

    fn settle(&mut self, network: &Network, allocation: &Allocation, now: f64) {
        self.advance(now);
        let fabric = network.fabric();
        let dust = 1e-9 * fabric.nominal();
        self.left_send.clear();
        self.left_send.extend_from_slice(fabric.send());
        self.left_recv.clear();
        self.left_recv.extend_from_slice(fabric.recv());
        self.order.clear();
        self.order.extend(network.active().iter().map(|&slot| (allocation.class(slot), slot)));
        // The active coflows are in the order of release, and the sort is stable.
        self.order.sort_by_key(|&(class, _)| class);
        self.coordinate(network, dust);
        self.carry(network);
        self.next_end = f64::INFINITY;
        for &(slot, flow) in &self.rated {
            let flows = &self.coflows[slot as usize];
            let end = now + flows.left[flow as usize].max(0.0) / flows.rate[flow as usize];
            self.next_end = self.next_end.min(end);
        }
    }

    fn next_end(&mut self) -> f64 {
        self.next_end
    }

    fn run_out(&mut self, limit: f64, _: &Network, ended: &mut Vec<Ended>) {
        if self.next_end > limit {
            return;
        }
        self.next_end = f64::INFINITY;
        let (coflows, since) = (&mut self.coflows, self.since);
        self.rated.retain(|&(slot, flow)| {
            let flows = &mut coflows[slot as usize];
            let rate = flows.rate[flow as usize];
            let at = since + flows.left[flow as usize].max(0.0) / rate;
            if at > limit {
                return true;
            }
            // Count the bytes at the end of this flow; the next count may be later.
            flows.sent += flows.left[flow as usize];
            flows.sending -= rate;
            flows.left[flow as usize] = 0.0;
            flows.rate[flow as usize] = 0.0;
            ended.push(Ended { slot, flow, at });
            false
        });
        for &(slot, flow) in &self.rated {
            let flows = &self.coflows[slot as usize];
            let end = self.since + flows.left[flow as usize].max(0.0) / flows.rate[flow as usize];
            self.next_end = self.next_end.min(end);
        }
    }

    fn rate(&self, slot: Slot, flow: u32, _: &Network) -> f64 {
        self.coflows.get(slot as usize).map_or(0.0, |flows| flows.rate[flow as usize])
    }

    fn progress(&self, slot: Slot) -> Option<Progress> {
        let flows = self.coflows.get(slot as usize)?;
        Some(Progress { sent: flows.sent, rate: flows.sending, at: self.since })
    }
}
