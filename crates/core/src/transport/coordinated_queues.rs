//! Queues with FIFO by coflow inside, at all links: Aalo with coordinated links (`at=both`).
//!
//! Coflow by coflow, each flow gets the minimum of its even shares of its links. Each queue first divides its weighted share
//! of every link; then all coflows, in the order of queues, divide the residual capacity. Under strict priority, only the
//! second step applies.
//!
//! An update divides capacities again only among coflows whose live flows or capacities have changed since the last update. It computes
//! shares by link, and visits only the flows whose limiting link changes.

use std::sync::Arc;

use crate::allocation::{Allocation, InterQueueSharing};
use crate::model::{BitSet, CompletedFlow, Goodput, Network, Slot};

use super::{SentProgress, Transport, order_by_class};

mod flows;
mod matrix;
mod shares;

use flows::CoflowFlows;
use shares::{Buffers, Shares};

/// The same queues at all links.
pub(super) struct CoordinatedQueues {
    weights: InterQueueSharing,
    goodput: Option<Arc<Goodput>>,
    /// By slot.
    coflows: Vec<CoflowFlows>,
    /// The active coflows, by class, then by release.
    order: Vec<(usize, Slot)>,
    /// Whether the order or the links differ from those of the last update.
    is_new_order: bool,
    fabric_version: Option<u64>,
    /// By link: the limit of its flows, infinite at ports that limit no flow, and the total weight of the queues with a coflow at it.
    limits: Vec<f64>,
    totals: Vec<f64>,
    /// By link: the capacity that the flows do not use of the queues' shares.
    residuals: Vec<f64>,
    /// The links whose capacity at the present coflow differs from that at the last update, and by link this capacity.
    changed: BitSet,
    capacities: Vec<f64>,
    buffers: Buffers,
}

impl CoordinatedQueues {
    pub(super) fn new(weights: InterQueueSharing, goodput: Option<Arc<Goodput>>) -> CoordinatedQueues {
        CoordinatedQueues {
            weights,
            goodput,
            coflows: Vec::new(),
            order: Vec::new(),
            is_new_order: true,
            fabric_version: None,
            limits: Vec::new(),
            totals: Vec::new(),
            residuals: Vec::new(),
            changed: BitSet::default(),
            capacities: Vec::new(),
            buffers: Buffers::default(),
        }
    }

    /// The state of the coflow in a slot, which is new if the slot contained another coflow. If the flows of the coflow were replaced, its
    /// counter continues.
    fn prepare_coflow(&mut self, slot: Slot, network: &Network) -> &mut CoflowFlows {
        if slot as usize >= self.coflows.len() {
            self.coflows.resize_with(slot as usize + 1, CoflowFlows::default);
        }
        let (flows, coflow) = (&mut self.coflows[slot as usize], network.coflow(slot));
        if flows.layout != Some(coflow.layout()) {
            let former = std::mem::replace(flows, CoflowFlows::new(coflow));
            if former.seq == flows.seq {
                (flows.sent_bytes, flows.total_rate, flows.time) =
                    (former.sent_bytes, former.total_rate, former.time);
            }
            self.is_new_order = true;
        }
        flows
    }

    /// Begins a step in which the capacities of `changed` links differ from those of the last update.
    fn begin_step(&mut self, changed: &BitSet, capacity: impl Fn(usize) -> f64) {
        self.changed.copy_from(changed);
        changed.iter().for_each(|link| self.capacities[link] = capacity(link));
    }

    /// Divides the present capacities among the flows of a coflow, unless they and the flows are the same as at the last update. O(links),
    /// and O(rows x receivers / 64 + missing flows) if the capacities have changed.
    fn divide(&mut self, slot: Slot, step: usize, network: &Network, now: f64) {
        let (flows, links) = (&mut self.coflows[slot as usize], network.coflow(slot).links());
        if !flows.has_changed(step) && !flows.links.intersects(&self.changed) {
            return;
        }
        let mut is_stale = flows.has_changed(step);
        let changed = self.changed.words();
        for (known, load) in flows.shares[step].capacities.iter_mut().zip(links) {
            if changed[load.link as usize / 64] >> (load.link % 64) & 1 == 1 {
                let capacity = self.capacities[load.link as usize];
                is_stale |= capacity != *known;
                *known = capacity;
            }
        }
        let tolerance = network.fabric().rounding_tolerance();
        if is_stale {
            flows.divide(step, now, tolerance, &mut self.buffers);
        }
        let Shares { capacities, used, residuals, .. } = &mut flows.shares[step];
        let changed = self.changed.words_mut();
        for ((capacity, used), (known, load)) in
            capacities.iter().zip(used).zip(residuals.iter_mut().zip(links))
        {
            let (link, residual) = (load.link as usize, capacity - *used);
            let differs = self.is_new_order | (residual != *known);
            (*known, self.capacities[link]) = (residual, residual);
            let word = &mut changed[link / 64];
            *word = *word & !(1 << (link % 64)) | u64::from(differs) << (link % 64);
        }
    }

    /// Divides each queue's weighted share of every link.
    fn divide_queues(&mut self, weights: &[f64], network: &Network, now: f64) {
        let mut changed = BitSet::empty(self.limits.len());
        if self.have_live_links_changed(network) {
            let totals = total_weights(&self.order, weights, network);
            changed = self.changed_links(&self.totals, &totals);
            self.totals = totals;
        }
        let order = std::mem::take(&mut self.order);
        let (limits, totals) = (std::mem::take(&mut self.limits), std::mem::take(&mut self.totals));
        for coflows in order.chunk_by(|a, b| a.0 == b.0) {
            let weight = weights[coflows[0].0];
            let share =
                |link: usize| if totals[link] > 0.0 { limits[link] * weight / totals[link] } else { 0.0 };
            self.begin_step(&changed, share);
            coflows.iter().for_each(|&(_, slot)| self.divide(slot, 0, network, now));
        }
        (self.order, self.limits, self.totals) = (order, limits, totals);
    }

    /// Divides the residual capacity.
    fn divide_residual(&mut self, network: &Network, now: f64) {
        let mut residuals = self.limits.clone();
        for &(_, slot) in &self.order {
            let used = &self.coflows[slot as usize].shares[0].used;
            for (used, load) in used.iter().zip(network.coflow(slot).links()) {
                residuals[load.link as usize] -= used;
            }
        }
        let changed = self.changed_links(&self.residuals, &residuals);
        self.begin_step(&changed, |link| residuals[link]);
        self.residuals = residuals;
        for at in 0..self.order.len() {
            self.divide(self.order[at].1, 1, network, now);
        }
    }

    /// The links with another number than before; all in a new order.
    fn changed_links(&self, before: &[f64], present: &[f64]) -> BitSet {
        let mut changed = BitSet::empty(present.len());
        let differs = |link: &usize| self.is_new_order || before[*link] != present[*link];
        (0..present.len()).filter(differs).for_each(|link| changed.insert(link));
        changed
    }

    /// Whether a coflow has other links with live flows than at the last update.
    fn have_live_links_changed(&mut self, network: &Network) -> bool {
        let mut any = self.is_new_order;
        for &(_, slot) in &self.order {
            let (known, present) =
                (&mut self.coflows[slot as usize].live_links, network.coflow(slot).live_links());
            if known != present {
                known.copy_from(present);
                any = true;
            }
        }
        any
    }

    /// Reduces rates to what receivers carry with so many flows. O(flows).
    fn limit_to_goodput(&mut self, network: &Network, now: f64) {
        let Some(goodput) = &self.goodput else { return };
        // By link, for receivers: the number of its flows, and their total rate.
        let mut arrivals = vec![(0, 0.0); network.fabric().links()];
        for &(_, slot) in &self.order {
            let receivers = network.coflow(slot).receivers();
            for (receiver, rate) in self.coflows[slot as usize].sent_rates().filter(|(_, rate)| *rate > 0.0) {
                let (count, total_rate) = &mut arrivals[receivers[receiver].link as usize];
                (*count, *total_rate) = (*count + 1, *total_rate + rate);
            }
        }
        let carried_part = |(&(count, total_rate), nominal): (&(usize, f64), &f64)| {
            let utilization = goodput.utilization(count);
            let capacity = nominal * utilization;
            // Without a loss of capacity, the rates exceed the capacity by rounding at most.
            if utilization < 1.0 && total_rate > capacity { capacity / total_rate } else { 1.0 }
        };
        let parts: Vec<f64> = arrivals.iter().zip(network.fabric().capacities()).map(carried_part).collect();
        for &(_, slot) in &self.order {
            let links = network.coflow(slot).receivers().iter().map(|load| parts[load.link as usize]);
            self.coflows[slot as usize].set_goodputs(links, now);
        }
    }
}

impl Transport for CoordinatedQueues {
    fn start_flow(&mut self, slot: Slot, flow: u32, remaining_bytes: f64, network: &Network) {
        self.prepare_coflow(slot, network).started.push((flow, remaining_bytes));
    }

    fn stop_flow(&mut self, slot: Slot, flow: u32, _: &Network, now: f64) -> f64 {
        self.coflows[slot as usize].stop_flow(flow, now)
    }

    fn update_rates(&mut self, network: &Network, allocation: &Allocation, now: f64) {
        for &slot in network.active_coflows() {
            self.prepare_coflow(slot, network).start_flows(now);
        }
        let former_order = std::mem::take(&mut self.order);
        order_by_class(&mut self.order, network, allocation);
        self.is_new_order |= former_order != self.order;
        if self.fabric_version != Some(network.fabric().version()) {
            self.fabric_version = Some(network.fabric().version());
            self.is_new_order = true;
            self.limits = network.fabric().limits().collect();
            self.totals.resize(self.limits.len(), 0.0);
            self.capacities.resize(self.limits.len(), 0.0);
            self.residuals.resize(self.limits.len(), 0.0);
        }
        if let InterQueueSharing::Weighted(weights) = self.weights.clone() {
            self.divide_queues(&weights, network, now);
        }
        self.divide_residual(network, now);
        self.is_new_order = false;
        self.limit_to_goodput(network, now);
        for &(_, slot) in &self.order {
            self.coflows[slot as usize].update_rates();
        }
    }

    fn next_completion(&mut self) -> f64 {
        let ends = self.order.iter().map(|&(_, slot)| self.coflows[slot as usize].next_end);
        ends.fold(f64::INFINITY, f64::min)
    }

    fn complete_flows_until(&mut self, until: f64, _: &Network, completed: &mut Vec<CompletedFlow>) {
        for &(_, slot) in &self.order {
            self.coflows[slot as usize].complete_flows_until(slot, until, completed);
        }
    }

    fn flow_rate(&self, slot: Slot, flow: u32) -> f64 {
        self.coflows.get(slot as usize).map_or(0.0, |flows| flows.rate(flow))
    }

    fn remaining_bytes(&self, slot: Slot, flow: u32, at: f64) -> f64 {
        self.coflows[slot as usize].remaining_bytes(flow, at)
    }

    fn coflow_progress(&self, slot: Slot) -> Option<SentProgress> {
        let flows = self.coflows.get(slot as usize)?;
        Some(SentProgress { sent_bytes: flows.sent_bytes, rate: flows.total_rate, time: flows.time })
    }
}

/// By link: the total weight of the queues with a coflow at the link.
fn total_weights(order: &[(usize, Slot)], weights: &[f64], network: &Network) -> Vec<f64> {
    let mut totals = vec![0.0; network.fabric().links()];
    let mut counted = vec![usize::MAX; totals.len()];
    for &(class, slot) in order {
        let live = network.coflow(slot).links().iter().filter(|load| load.live_flow_count > 0);
        for link in live.map(|load| load.link as usize) {
            if std::mem::replace(&mut counted[link], class) != class {
                totals[link] += weights[class];
            }
        }
    }
    totals
}
