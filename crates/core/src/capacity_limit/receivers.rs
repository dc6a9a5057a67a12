//! Limits receiving ports that lose capacity if many connections send to them (incast).
//!
//! A flow with a rate is a sending connection. A receiving port with n connections carries at most its [`Goodput`] for n. If
//! the decided rates exceed it, all flows to the port keep the same fraction of their rates. Flows of coflows with such a
//! port get individual rates; all others keep the decided ones.

use std::sync::Arc;

use super::{CapacityLimit, SortedDecision, common_rate, rates};
use crate::allocation::{Allocation, CommonRate};
use crate::model::{Goodput, Network};

/// The receiving sides of ports.
pub(crate) struct GoodputLimit {
    goodput: Arc<Goodput>,
    /// By link, for receivers: how many connections send, and at which rate together.
    connections: Vec<usize>,
    given: Vec<f64>,
    /// What is carried of that.
    parts: Vec<f64>,
}

impl GoodputLimit {
    pub(crate) fn new(goodput: Arc<Goodput>) -> GoodputLimit {
        GoodputLimit { goodput, connections: Vec::new(), given: Vec::new(), parts: Vec::new() }
    }

    /// Counts connections and their rates.
    fn count(&mut self, decided: &Allocation, network: &Network, now: f64) {
        let links = network.fabric().links();
        self.connections.clear();
        self.connections.resize(links, 0);
        self.given.clear();
        self.given.resize(links, 0.0);
        for &slot in network.active_coflows() {
            let (coflow, common) = (network.coflow(slot), decided.common(slot));
            match common {
                CommonRate::None => {}
                CommonRate::Equal(rate) => {
                    for load in coflow.receivers().iter().filter(|_| rate > 0.0) {
                        self.connections[load.link as usize] += load.live_flow_count as usize;
                        self.given[load.link as usize] += rate * f64::from(load.live_flow_count);
                    }
                }
                CommonRate::CompleteTogether(_) => {
                    for flow in coflow.live_flows() {
                        let rate = common_rate(coflow, common, flow, now);
                        let (_, dst) = coflow.flow_port_links(flow);
                        self.connections[dst] += usize::from(rate > 0.0);
                        self.given[dst] += rate;
                    }
                }
            }
        }
        for own in decided.flow_rates() {
            let coflow = network.coflow(own.slot);
            let alone = common_rate(coflow, decided.common(own.slot), own.flow, now) == 0.0;
            let (_, dst) = coflow.flow_port_links(own.flow);
            self.connections[dst] += usize::from(alone);
            self.given[dst] += own.rate;
        }
    }
}

impl CapacityLimit for GoodputLimit {
    /// O(ports of all coflows + flows with a rate of their own or with one that ends them together).
    fn exceeds_capacity(&mut self, decided: &Allocation, network: &Network, now: f64) -> bool {
        self.count(decided, network, now);
        let carries = network.fabric().capacities().iter().zip(&self.connections);
        let part = |((&capacity, &connections), &given): ((&f64, &usize), &f64)| {
            let part = self.goodput.utilization(connections);
            // A port that carries all of its rate is given no more than that, but for rounding.
            if part < 1.0 && given > capacity * part { capacity * part / given } else { 1.0 }
        };
        self.parts.clear();
        self.parts.extend(carries.zip(&self.given).map(part));
        self.parts.iter().any(|&part| part < 1.0)
    }

    /// For coflows with a port that carries less, their flows.
    fn reduce_rates(
        &mut self,
        decided: &SortedDecision<'_>,
        network: &Network,
        now: f64,
        carried: &mut Allocation,
    ) {
        for &slot in network.active_coflows() {
            let (coflow, (common, own)) = (network.coflow(slot), decided.of(slot));
            let part = |flow: u32| self.parts[coflow.flow_port_links(flow).1];
            let whole = coflow
                .receivers()
                .iter()
                .all(|load| load.live_flow_count == 0 || self.parts[load.link as usize] == 1.0);
            if whole || common == CommonRate::None {
                carried.set_common(slot, common);
                own.iter().for_each(|own| carried.add_flow_rate(slot, own.flow, own.rate * part(own.flow)));
                continue;
            }
            for (flow, rate) in rates(coflow, common, own, now) {
                let less = rate * part(flow);
                if less > 0.0 {
                    carried.add_flow_rate(slot, flow, less);
                }
            }
        }
    }
}
