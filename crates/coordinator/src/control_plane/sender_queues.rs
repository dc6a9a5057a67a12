//! Computes rates for policies that assign coflows to queues at senders and no rates to flows, as Aalo does.
//!
//! The algorithm is that of the transport `sender_queues` of `weir-sim`:
//!
//! 1. Each queue of a sender gives its share to its first coflow, divided equally among the flows of that coflow at the
//!    sender.
//! 2. At a receiver or trunk whose rates exceed its capacity, rates are reduced to max-min shares.
//! 3. The capacity of senders that step 2 frees goes to coflows in the order of queues.
//!
//! A flow with a maximum rate ([`weir_core::engine::Engine::set_flow_max_rate`]) gets no more in steps 1 and 3.
//!
//! The coordinator computes step 3 because a pacing rate is an upper bound, which a sender cannot exceed.

use std::collections::BTreeMap;

use weir_core::allocation::{InterQueueSharing, QueueDiscipline};
use weir_core::model::{FlowState, Slot};
use weir_core::solve::{CappedFlow, ResidualCapacity, max_min_capped};

use super::{ControlPlane, Flow};

impl ControlPlane {
    /// Rates of all flows that get one, by slot and engine index. O(flows log flows).
    pub(super) fn sender_queue_rates(&self, queues: &QueueDiscipline) -> BTreeMap<(Slot, u32), f64> {
        let network = self.engine.network();
        let fabric = network.fabric();
        let head_rates = self.head_coflow_rates(queues);
        let active = self.coflows.values().filter_map(|coflow| Some((coflow.slot?, &coflow.flows)));
        let live = active.flat_map(|(slot, flows)| flows.iter().map(move |flow| (slot, flow)));
        let live = live
            .filter(|(slot, flow)| network.coflow(*slot).flow_state(flow.engine_index) == FlowState::Live);
        let served: Vec<(Slot, &Flow, f64)> = live
            .filter_map(|(slot, flow)| Some((slot, flow, *head_rates.get(&(flow.transfer.src, slot))?)))
            .collect();
        let links = |slot, flow: &Flow| network.coflow(slot).flow_links(flow.engine_index);
        let (mut links_after_sender, mut ends) = (Vec::new(), vec![0]);
        for (slot, flow, _) in &served {
            links_after_sender.extend(links(*slot, flow).skip(1).map(|link| link as u32));
            ends.push(links_after_sender.len());
        }
        let max_rate = |slot: Slot, flow: u32| self.engine.flow_max_rate(slot, flow).unwrap_or(f64::INFINITY);
        let capped = |((slot, flow, rate), ends): (&(Slot, &Flow, f64), &[usize])| CappedFlow {
            links: &links_after_sender[ends[0]..ends[1]],
            cap: rate.min(max_rate(*slot, flow.engine_index)),
        };
        let flows: Vec<CappedFlow<'_>> = served.iter().zip(ends.windows(2)).map(capped).collect();
        let mut residuals = fabric.capacities().to_vec();
        let carried_rates = max_min_capped(&residuals, &flows);
        let mut rates = BTreeMap::new();
        for ((slot, flow, _), rate) in served.into_iter().zip(carried_rates) {
            rates.insert((slot, flow.engine_index), rate);
            links(slot, flow).for_each(|link| residuals[link] = (residuals[link] - rate).max(0.0));
        }
        let mut residual = ResidualCapacity::default();
        residual.set_residuals(fabric, &residuals);
        // The sort is stable, so coflows of a queue stay in the order of release.
        let mut order = network.active_coflows().to_vec();
        order.sort_by_key(|&slot| self.engine.allocation().class(slot));
        let mut added = Vec::new();
        for slot in order {
            let (coflow, add) = (network.coflow(slot), |flow: u32, rate: f64| added.push((flow, rate)));
            if self.engine.has_max_rates() {
                let rate = |flow: u32| rates.get(&(slot, flow)).copied().unwrap_or(0.0);
                residual.fill_limited_flows(coflow, |flow| max_rate(slot, flow) - rate(flow), add);
            } else {
                residual.fill_flows(coflow, add);
            }
            added.drain(..).for_each(|(flow, rate)| *rates.entry((slot, flow)).or_default() += rate);
        }
        rates
    }

    /// Rate of each flow of the first coflow of each queue, by sender and coflow.
    fn head_coflow_rates(&self, queues: &QueueDiscipline) -> BTreeMap<(u32, Slot), f64> {
        let network = self.engine.network();
        let classes = match &queues.inter_queue {
            InterQueueSharing::Weighted(weights) => weights.len(),
            InterQueueSharing::StrictPriority(classes) => *classes,
        };
        let mut heads: Vec<Vec<Option<(Slot, u32)>>> = vec![vec![None; classes]; self.links.hosts.len()];
        for &slot in network.active_coflows() {
            let class = self.engine.allocation().class(slot).min(classes - 1);
            let coflow = network.coflow(slot);
            let senders = coflow.sending_ports().iter().zip(coflow.senders());
            for (&port, load) in senders.filter(|(_, load)| load.live_flow_count > 0) {
                heads[port as usize][class].get_or_insert((slot, load.live_flow_count));
            }
        }
        let mut rates = BTreeMap::new();
        for (src, heads) in (0..).zip(&heads) {
            let capacity = network.fabric().send_capacity(src);
            let queue_share = |class: usize| match &queues.inter_queue {
                InterQueueSharing::Weighted(weights) => weights[class],
                InterQueueSharing::StrictPriority(_) => f64::from(heads[..class].iter().all(Option::is_none)),
            };
            let nonempty = || heads.iter().enumerate().filter_map(|(class, head)| Some((class, (*head)?)));
            let total: f64 = nonempty().map(|(class, _)| queue_share(class)).sum();
            for (class, (slot, live)) in nonempty() {
                rates.insert((src, slot), capacity * queue_share(class) / total / f64::from(live));
            }
        }
        rates
    }
}
