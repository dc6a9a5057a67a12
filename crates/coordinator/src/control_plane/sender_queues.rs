//! Computes rates for policies that assign coflows to queues at senders and no rates to flows, as Aalo does.
//!
//! The algorithm is that of the transport `sender_queues` of `weir-sim`:
//!
//! 1. Each queue of a sender gives its share to its first coflow, divided equally among the flows of that coflow at the
//!    sender.
//! 2. At a receiver whose rates exceed its capacity, rates are reduced to max-min shares.
//! 3. The capacity of senders that step 2 frees goes to coflows in the order of queues.
//!
//! The coordinator computes step 3 because a pacing rate is an upper bound, which a sender cannot exceed.

use std::collections::BTreeMap;

use weir_core::allocation::{InterQueueSharing, QueueDiscipline};
use weir_core::model::{FlowState, Slot};
use weir_core::solve::ResidualCapacity;

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
        let mut rates_by_receiver = vec![Vec::new(); self.links.len()];
        served.iter().for_each(|(_, flow, rate)| rates_by_receiver[flow.transfer.dst as usize].push(*rate));
        let receiver_limits: Vec<f64> = rates_by_receiver
            .into_iter()
            .zip(fabric.recv_capacities())
            .map(|(rates, &recv)| max_min_limit(rates, recv))
            .collect();
        let mut residuals: Vec<f64> = fabric.link_capacities().collect();
        let mut rates = BTreeMap::new();
        for (slot, flow, rate) in served {
            let (src, dst) = (flow.transfer.src as usize, flow.transfer.dst as usize);
            let rate = rate.min(receiver_limits[dst]);
            rates.insert((slot, flow.engine_index), rate);
            for link in [src, fabric.ports() + dst] {
                residuals[link] = (residuals[link] - rate).max(0.0);
            }
        }
        let mut residual = ResidualCapacity::default();
        residual.set_residuals(fabric, &residuals);
        // The sort is stable, so coflows of a queue stay in the order of release.
        let mut order = network.active_coflows().to_vec();
        order.sort_by_key(|&slot| self.engine.allocation().class(slot));
        for slot in order {
            residual.fill_flows(network.coflow(slot), |flow, rate| {
                *rates.entry((slot, flow)).or_default() += rate
            });
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
        let mut heads: Vec<Vec<Option<(Slot, u32)>>> = vec![vec![None; classes]; self.links.len()];
        for &slot in network.active_coflows() {
            let class = self.engine.allocation().class(slot).min(classes - 1);
            for load in network.coflow(slot).senders().iter().filter(|load| load.live_flow_count > 0) {
                heads[load.link as usize][class].get_or_insert((slot, load.live_flow_count));
            }
        }
        let mut rates = BTreeMap::new();
        for (src, heads) in heads.iter().enumerate() {
            let capacity = network.fabric().send_capacities()[src];
            let queue_share = |class: usize| match &queues.inter_queue {
                InterQueueSharing::Weighted(weights) => weights[class],
                InterQueueSharing::StrictPriority(_) => f64::from(heads[..class].iter().all(Option::is_none)),
            };
            let nonempty = || heads.iter().enumerate().filter_map(|(class, head)| Some((class, (*head)?)));
            let total: f64 = nonempty().map(|(class, _)| queue_share(class)).sum();
            for (class, (slot, live)) in nonempty() {
                rates.insert((src as u32, slot), capacity * queue_share(class) / total / f64::from(live));
            }
        }
        rates
    }
}

/// The max-min limit of rates at a receiver with this capacity; infinite if their sum is not above the capacity.
fn max_min_limit(mut rates: Vec<f64>, capacity: f64) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    let mut remaining = capacity;
    for (satisfied, &rate) in rates.iter().enumerate() {
        let equal_share = remaining / (rates.len() - satisfied) as f64;
        if rate > equal_share {
            return equal_share;
        }
        remaining -= rate;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::max_min_limit;

    #[test]
    fn demands_below_the_fair_rate_are_met() {
        assert_eq!(max_min_limit(vec![1.0, 9.0, 2.0, 8.0], 11.0), 4.0);
        assert_eq!(max_min_limit(vec![3.0, 8.0], 11.0), f64::INFINITY);
        assert_eq!(max_min_limit(Vec::new(), 11.0), f64::INFINITY);
    }
}
