//! A transport that computes all rates at every update, because a change at one link changes the rates at many others.

use std::sync::Arc;

use crate::allocation::Allocation;
use crate::model::{Coflow, CompletedFlow, Goodput, Network, Slot};

use super::rows::CoflowFlows;
use super::{SentProgress, Transport, order_by_class};

/// The live flows of all coflows.
#[derive(Debug, Default)]
pub(super) struct LiveFlows {
    coflows: Vec<CoflowFlows>,
    /// Coflows with a rate, in the order in which they got it.
    coflows_with_rate: Vec<Slot>,
    last_time: f64,
    next_end: f64,
}

impl LiveFlows {
    pub(super) fn coflow(&self, slot: Slot) -> &CoflowFlows {
        &self.coflows[slot as usize]
    }

    /// The flows of a coflow that gets a rate.
    pub(super) fn coflow_with_rate(&mut self, slot: Slot) -> &mut CoflowFlows {
        let flows = &mut self.coflows[slot as usize];
        if flows.total_rate == 0.0 {
            self.coflows_with_rate.push(slot);
        }
        flows
    }

    /// The state of the coflow in a slot, which is new if the slot contained another coflow. If the flows of the coflow were replaced, its
    /// counter continues.
    fn prepare_coflow(&mut self, slot: Slot, coflow: &Coflow) -> &mut CoflowFlows {
        if slot as usize >= self.coflows.len() {
            self.coflows.resize_with(slot as usize + 1, CoflowFlows::default);
        }
        let flows = &mut self.coflows[slot as usize];
        if flows.layout != Some(coflow.layout()) {
            let former = std::mem::replace(flows, CoflowFlows::new(coflow));
            if former.seq == flows.seq {
                (flows.sent_bytes, flows.total_rate) = (former.sent_bytes, former.total_rate);
            }
        }
        flows
    }

    /// Adds the bytes sent until `now`, and resets the rates.
    fn advance(&mut self, now: f64) {
        for slot in self.coflows_with_rate.drain(..) {
            self.coflows[slot as usize].advance(now - self.last_time);
        }
        self.last_time = now;
    }

    /// Reduces rates to what receivers carry with so many flows. O(flows of coflows with a rate).
    fn limit_to_goodput(&mut self, goodput: &Goodput, network: &Network) {
        // By link, for receivers: the number of its flows, and their total rate.
        let mut arrivals = vec![(0, 0.0); network.fabric().links()];
        for &slot in &self.coflows_with_rate {
            let flows = &self.coflows[slot as usize];
            let with_rate = flows.rates.iter().zip(&flows.receiver_links).filter(|(rate, _)| **rate > 0.0);
            for (&rate, &link) in with_rate {
                let (count, total_rate) = &mut arrivals[link as usize];
                *count += 1;
                *total_rate += rate;
            }
        }
        let carried_share = |(&(count, total_rate), nominal): (&(usize, f64), &f64)| {
            let goodput_fraction = goodput.utilization(count);
            let capacity = nominal * goodput_fraction;
            // Without a loss of capacity, the rates exceed the capacity by rounding at most.
            if goodput_fraction < 1.0 && total_rate > capacity { capacity / total_rate } else { 1.0 }
        };
        let shares: Vec<f64> =
            arrivals.iter().zip(network.fabric().capacities()).map(carried_share).collect();
        for &slot in &self.coflows_with_rate {
            let CoflowFlows { rates, receiver_links, total_rate, .. } = &mut self.coflows[slot as usize];
            for (rate, &link) in rates.iter_mut().zip(&*receiver_links) {
                let share = shares[link as usize];
                *total_rate -= *rate * (1.0 - share);
                *rate *= share;
            }
        }
    }

    /// Computes the end of the first flow of each coflow, and of all.
    fn find_next_end(&mut self) {
        self.next_end = f64::INFINITY;
        for &slot in &self.coflows_with_rate {
            let flows = &mut self.coflows[slot as usize];
            flows.find_next_end(self.last_time);
            self.next_end = self.next_end.min(flows.next_end);
        }
    }
}

/// Sets the rates of flows, which are all 0 before.
pub(super) trait RowRates: Send {
    /// `order` has the active coflows, by class, then by release. A rate up to `tolerance` is rounding.
    fn set_rates(
        &mut self,
        order: &[(usize, Slot)],
        network: &Network,
        tolerance: f64,
        flows: &mut LiveFlows,
    );
}

/// A transport that computes all rates at every update, as `R` sets them.
pub(super) struct RowTransport<R> {
    rates: R,
    flows: LiveFlows,
    coflow_order: Vec<(usize, Slot)>,
    goodput: Option<Arc<Goodput>>,
}

impl<R> RowTransport<R> {
    pub(super) fn new(rates: R, goodput: Option<Arc<Goodput>>) -> RowTransport<R> {
        let flows = LiveFlows { next_end: f64::INFINITY, ..LiveFlows::default() };
        RowTransport { rates, flows, coflow_order: Vec::new(), goodput }
    }
}

impl<R: RowRates> Transport for RowTransport<R> {
    fn start_flow(&mut self, slot: Slot, flow: u32, remaining_bytes: f64, network: &Network) {
        let flows = self.flows.prepare_coflow(slot, network.coflow(slot));
        flows.started.push((flow, remaining_bytes));
    }

    fn stop_flow(&mut self, slot: Slot, flow: u32, _: &Network, now: f64) -> f64 {
        let flows = &mut self.flows.coflows[slot as usize];
        if let Some(at) = flows.started.iter().position(|&(started, _)| started == flow) {
            return flows.started.swap_remove(at).1.max(0.0);
        }
        let Some(entry) = flows.entry(flow) else { return 0.0 };
        let sent_bytes = flows.rates[entry] * (now - self.flows.last_time);
        flows.sent_bytes += sent_bytes;
        flows.total_rate -= flows.rates[entry];
        let left = (flows.remaining_bytes[entry] - sent_bytes).max(0.0);
        flows.remove_entry(entry);
        left
    }

    fn update_rates(&mut self, network: &Network, allocation: &Allocation, now: f64) {
        self.flows.advance(now);
        for &slot in network.active_coflows() {
            let coflow = network.coflow(slot);
            let flows = self.flows.prepare_coflow(slot, coflow);
            if flows.needs_new_rows(coflow) {
                flows.build_rows(coflow);
            }
        }
        order_by_class(&mut self.coflow_order, network, allocation);
        let tolerance = network.fabric().rounding_tolerance();
        self.rates.set_rates(&self.coflow_order, network, tolerance, &mut self.flows);
        if let Some(goodput) = &self.goodput {
            self.flows.limit_to_goodput(goodput, network);
        }
        self.flows.find_next_end();
    }

    fn next_completion(&mut self) -> f64 {
        self.flows.next_end
    }

    fn complete_flows_until(&mut self, until: f64, _: &Network, completed: &mut Vec<CompletedFlow>) {
        if self.flows.next_end > until {
            return;
        }
        for &slot in &self.flows.coflows_with_rate {
            let flows = &mut self.flows.coflows[slot as usize];
            if flows.next_end > until {
                continue;
            }
            let first = completed.len();
            for entry in 0..flows.flows.len() {
                let at = flows.end_of(entry, self.flows.last_time);
                if at <= until {
                    completed.push(CompletedFlow { slot, flow: flows.flows[entry], completed_at: at });
                }
            }
            for &CompletedFlow { flow, .. } in &completed[first..] {
                flows.complete_flow(flow);
            }
        }
        self.flows.find_next_end();
    }

    fn flow_rate(&self, slot: Slot, flow: u32) -> f64 {
        let flows = self.flows.coflows.get(slot as usize);
        flows.and_then(|flows| flows.entry(flow).map(|entry| flows.rates[entry])).unwrap_or(0.0)
    }

    fn remaining_bytes(&self, slot: Slot, flow: u32, at: f64) -> f64 {
        let flows = self.flows.coflow(slot);
        match flows.entry(flow) {
            Some(entry) => {
                let sent_bytes = flows.rates[entry] * (at - self.flows.last_time);
                (flows.remaining_bytes[entry] - sent_bytes).max(0.0)
            }
            None => flows.started.iter().find(|started| started.0 == flow).map_or(0.0, |started| started.1),
        }
    }

    fn coflow_progress(&self, slot: Slot) -> Option<SentProgress> {
        let flows = self.flows.coflows.get(slot as usize)?;
        Some(SentProgress {
            sent_bytes: flows.sent_bytes,
            rate: flows.total_rate,
            time: self.flows.last_time,
        })
    }
}
