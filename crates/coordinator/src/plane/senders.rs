//! Rates for policies that assign queues at senders and leave rates to the transport, as Aalo does.
//!
//! The algorithm is that of `weir-sim`'s local transport:
//!
//! 1. Each queue of a sender gives its share to its first coflow, divided equally among that coflow's flows at the
//!    sender.
//! 2. Rates above the capacity of a receiver are reduced to max-min shares.
//! 3. Senders give the capacity that busy receivers leave unused to coflows in the order of queues.
//!
//! The coordinator computes step 3 because a socket's pacing rate is an upper bound: a sender cannot raise it.

use std::collections::BTreeMap;

use weir_core::allocation::{Queues, Weights};
use weir_core::model::{FlowState, Slot};
use weir_core::solve::Residual;

use super::{ControlPlane, Flow};

impl ControlPlane {
    /// Rates of all flows that get one, by coflow and flow index. O(flows log flows).
    pub(super) fn by_senders(&self, queues: &Queues) -> BTreeMap<(Slot, u32), f64> {
        let network = self.engine.network();
        let fabric = network.fabric();
        let first = self.first_in_queues(queues);
        let open = self.coflows.values().filter_map(|coflow| Some((coflow.slot?, &coflow.flows)));
        let live = open.flat_map(|(slot, flows)| flows.iter().map(move |flow| (slot, flow)));
        let live = live.filter(|(slot, flow)| network.coflow(*slot).state(flow.number) == FlowState::Live);
        let served: Vec<(Slot, &Flow, f64)> = live
            .filter_map(|(slot, flow)| Some((slot, flow, *first.get(&(flow.transfer.src, slot))?)))
            .collect();
        let mut wanted = vec![Vec::new(); self.links.len()];
        served.iter().for_each(|(_, flow, rate)| wanted[flow.transfer.dst as usize].push(*rate));
        let most: Vec<f64> = wanted.into_iter().zip(fabric.recv()).map(|(w, &recv)| level(w, recv)).collect();
        let (mut send, mut recv) = (fabric.send().to_vec(), fabric.recv().to_vec());
        let mut rates = BTreeMap::new();
        for (slot, flow, rate) in served {
            let (src, dst) = (flow.transfer.src as usize, flow.transfer.dst as usize);
            let rate = rate.min(most[dst]);
            rates.insert((slot, flow.number), rate);
            send[src] = (send[src] - rate).max(0.0);
            recv[dst] = (recv[dst] - rate).max(0.0);
        }
        let mut left = Residual::default();
        left.set(fabric, &send, &recv);
        // The sort is stable, so coflows of a queue stay in the order of release.
        let mut order = network.active().to_vec();
        order.sort_by_key(|&slot| self.engine.allocation().class(slot));
        for slot in order {
            left.fill(network.coflow(slot), |flow, rate| *rates.entry((slot, flow)).or_default() += rate);
        }
        rates
    }

    /// Rate of each flow of the first coflow of each queue, by sender and coflow.
    fn first_in_queues(&self, queues: &Queues) -> BTreeMap<(u32, Slot), f64> {
        let network = self.engine.network();
        let classes = match &queues.weights {
            Weights::Weighted(weights) => weights.len(),
            Weights::Strict(classes) => *classes,
        };
        let mut heads: Vec<Vec<Option<(Slot, u32)>>> = vec![vec![None; classes]; self.links.len()];
        for &slot in network.active() {
            let class = self.engine.allocation().class(slot).min(classes - 1);
            for load in network.coflow(slot).senders().iter().filter(|load| load.live > 0) {
                heads[load.port as usize][class].get_or_insert((slot, load.live));
            }
        }
        let mut rates = BTreeMap::new();
        for (src, heads) in heads.iter().enumerate() {
            let capacity = network.fabric().send()[src];
            let served = |class: usize| match &queues.weights {
                Weights::Weighted(weights) => weights[class],
                Weights::Strict(_) => f64::from(heads[..class].iter().all(Option::is_none)),
            };
            let open = || heads.iter().enumerate().filter_map(|(class, head)| Some((class, (*head)?)));
            let total: f64 = open().map(|(class, _)| served(class)).sum();
            for (class, (slot, live)) in open() {
                rates.insert((src as u32, slot), capacity * served(class) / total / f64::from(live));
            }
        }
        rates
    }
}

/// Max-min fair limit at a receiver with this capacity; infinite if all wanted rates fit.
fn level(mut wanted: Vec<f64>, capacity: f64) -> f64 {
    wanted.sort_unstable_by(f64::total_cmp);
    let mut left = capacity;
    for (before, &want) in wanted.iter().enumerate() {
        let even = left / (wanted.len() - before) as f64;
        if want > even {
            return even;
        }
        left -= want;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::level;

    #[test]
    fn demands_below_the_fair_rate_are_met() {
        assert_eq!(level(vec![1.0, 9.0, 2.0, 8.0], 11.0), 4.0);
        assert_eq!(level(vec![3.0, 8.0], 11.0), f64::INFINITY);
        assert_eq!(level(Vec::new(), 11.0), f64::INFINITY);
    }
}
