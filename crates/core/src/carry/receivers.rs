//! Limits receiving ports that lose capacity if many connections send to them (incast).
//!
//! A flow with a rate is a sending connection. A receiving port with n connections carries at most its [`Goodput`] for n. If
//! the decided rates exceed it, all flows to the port keep the same fraction of their rates. Flows of coflows with such a
//! port get individual rates; all others keep the decided ones.

use std::sync::Arc;

use super::{Carry, Decided, common_rate, rates};
use crate::allocation::{Allocation, Common};
use crate::model::{Goodput, Network};

/// The receiving ports of the fabric.
pub(crate) struct Receivers {
    goodput: Arc<Goodput>,
    /// By receiver: how many connections send, and at which rate together.
    connections: Vec<usize>,
    given: Vec<f64>,
    /// What is carried of that.
    parts: Vec<f64>,
}

impl Receivers {
    pub(crate) fn new(goodput: Arc<Goodput>) -> Receivers {
        Receivers { goodput, connections: Vec::new(), given: Vec::new(), parts: Vec::new() }
    }

    /// Counts connections and their rates.
    fn count(&mut self, decided: &Allocation, network: &Network, now: f64) {
        let ports = network.fabric().ports();
        self.connections.clear();
        self.connections.resize(ports, 0);
        self.given.clear();
        self.given.resize(ports, 0.0);
        for &slot in network.active() {
            let (coflow, common) = (network.coflow(slot), decided.common(slot));
            match common {
                Common::None => {}
                Common::Each(rate) => {
                    for load in coflow.receivers().iter().filter(|_| rate > 0.0) {
                        self.connections[load.port as usize] += load.live as usize;
                        self.given[load.port as usize] += rate * f64::from(load.live);
                    }
                }
                Common::Together(_) => {
                    for flow in coflow.live_flows() {
                        let rate = common_rate(coflow, common, flow, now);
                        let dst = coflow.ends_of(flow).1 as usize;
                        self.connections[dst] += usize::from(rate > 0.0);
                        self.given[dst] += rate;
                    }
                }
            }
        }
        for own in decided.flows() {
            let coflow = network.coflow(own.slot);
            let alone = common_rate(coflow, decided.common(own.slot), own.flow, now) == 0.0;
            let dst = coflow.ends_of(own.flow).1 as usize;
            self.connections[dst] += usize::from(alone);
            self.given[dst] += own.rate;
        }
    }
}

impl Carry for Receivers {
    /// O(ports of all coflows + flows with a rate of their own or with one that ends them together).
    fn is_short(&mut self, decided: &Allocation, network: &Network, now: f64) -> bool {
        self.count(decided, network, now);
        let carries = network.fabric().recv().iter().zip(&self.connections);
        let part = |((&capacity, &connections), &given): ((&f64, &usize), &f64)| {
            let part = self.goodput.part(connections);
            // A port that carries all of its rate is given no more than that, but for rounding.
            if part < 1.0 && given > capacity * part { capacity * part / given } else { 1.0 }
        };
        self.parts.clear();
        self.parts.extend(carries.zip(&self.given).map(part));
        self.parts.iter().any(|&part| part < 1.0)
    }

    /// For coflows with a port that carries less, their flows.
    fn reduce(&mut self, decided: &Decided<'_>, network: &Network, now: f64, carried: &mut Allocation) {
        for &slot in network.active() {
            let (coflow, (common, own)) = (network.coflow(slot), decided.of(slot));
            let part = |flow: u32| self.parts[coflow.ends_of(flow).1 as usize];
            let whole =
                coflow.receivers().iter().all(|load| load.live == 0 || self.parts[load.port as usize] == 1.0);
            if whole || common == Common::None {
                carried.set_common(slot, common);
                own.iter().for_each(|own| carried.add_flow(slot, own.flow, own.rate * part(own.flow)));
                continue;
            }
            for (flow, rate) in rates(coflow, common, own, now) {
                let less = rate * part(flow);
                if less > 0.0 {
                    carried.add_flow(slot, flow, less);
                }
            }
        }
    }
}
