//! What receivers carry of what was decided, where too many connections cost.
//!
//! Policies decide as if ports carried all of their rate, and are not told otherwise. A flow with a rate is a connection that sends. A
//! receiving port with n of them carries no more than its [`Goodput`] for n; what was decided is more? Then all its flows get
//! the same part of it. Flows of coflows with such a port get rates of their own, all others what was decided.

use std::sync::Arc;

use crate::allocation::{Allocation, Common, FlowRate};
use crate::model::{Goodput, Network, Sizes, Slot, View};

/// Turns what was decided into what is carried.
pub(crate) struct Carrier {
    goodput: Arc<Goodput>,
    carried: Allocation,
    /// Whether the rates in force are not those that were decided.
    reduced: bool,
    /// By receiver: how many connections send, and at which rate together.
    connections: Vec<usize>,
    given: Vec<f64>,
    /// What is carried of that.
    parts: Vec<f64>,
    /// The flows with rates of their own, by coflow and number.
    own: Vec<FlowRate>,
}

impl Carrier {
    pub(crate) fn new(goodput: Arc<Goodput>) -> Carrier {
        Carrier {
            goodput,
            carried: Allocation::default(),
            reduced: false,
            connections: Vec::new(),
            given: Vec::new(),
            parts: Vec::new(),
            own: Vec::new(),
        }
    }

    /// What is to be in force from `now` on. O(ports of all coflows + flows with a rate of their own); and, for coflows with a port that
    /// carries less, their flows.
    pub(crate) fn carry<'a>(
        &'a mut self,
        decided: &'a Allocation,
        network: &mut Network,
        now: f64,
    ) -> &'a Allocation {
        self.count(decided, network, now);
        let carries = network.fabric().recv().iter().zip(&self.connections);
        let part = |((&capacity, &connections), &given): ((&f64, &usize), &f64)| {
            let most = capacity * self.goodput.part(connections);
            if given > most { most / given } else { 1.0 }
        };
        self.parts.clear();
        self.parts.extend(carries.zip(&self.given).map(part));
        let reduces = self.parts.iter().any(|&part| part < 1.0);
        if !reduces && !self.reduced {
            return decided;
        }
        self.reduced = reduces;
        self.carried.clear(network.slots());
        if reduces {
            self.own.clear();
            self.own.extend_from_slice(decided.flows());
            self.own.sort_by_key(|own| (own.slot, own.flow));
            for at in 0..network.active().len() {
                self.carry_coflow(network.active()[at], decided, &View::new(network, now));
            }
        } else {
            // What the decision keeps of the one before was not in force. From the next on it may be: the order has to be the same.
            for &slot in network.active() {
                self.carried.set_common(slot, decided.common(slot));
            }
            for own in decided.flows() {
                self.carried.add_flow(own.slot, own.flow, own.rate);
            }
        }
        self.carried.seal();
        &self.carried
    }

    /// Counts connections and their rates.
    fn count(&mut self, decided: &Allocation, network: &mut Network, now: f64) {
        let ports = network.fabric().ports();
        self.connections.clear();
        self.connections.resize(ports, 0);
        self.given.clear();
        self.given.resize(ports, 0.0);
        for at in 0..network.active().len() {
            let slot = network.active()[at];
            let common = decided.common(slot);
            if !sends(common) {
                continue;
            }
            for load in network.coflow(slot).receivers() {
                self.connections[load.port as usize] += load.live as usize;
                if let Common::Each(rate) = common {
                    self.given[load.port as usize] += rate * f64::from(load.live);
                }
            }
            if let Common::Together(seconds) = common {
                for (port, left) in View::<Sizes>::new(network, now).loads(slot).recv() {
                    self.given[port] += left / seconds;
                }
            }
        }
        for own in decided.flows() {
            let dst = network.coflow(own.slot).ends_of(own.flow).1 as usize;
            self.connections[dst] += usize::from(!sends(decided.common(own.slot)));
            self.given[dst] += own.rate;
        }
    }

    fn carry_coflow(&mut self, slot: Slot, decided: &Allocation, view: &View<'_, Sizes>) {
        let (coflow, common) = (view.coflow(slot), decided.common(slot));
        let first = self.own.partition_point(|own| own.slot < slot);
        let own = &self.own[first..self.own.partition_point(|own| own.slot <= slot)];
        let whole =
            coflow.receivers().iter().all(|load| load.live == 0 || self.parts[load.port as usize] == 1.0);
        if whole || !sends(common) {
            self.carried.set_common(slot, common);
            for &FlowRate { flow, rate, .. } in own {
                let part = self.parts[coflow.ends_of(flow).1 as usize];
                self.carried.add_flow(slot, flow, rate * part);
            }
            return;
        }
        let mut own = own.iter().peekable();
        for flow in coflow.live_flows() {
            let rate = match common {
                Common::None => 0.0,
                Common::Each(rate) => rate,
                Common::Together(seconds) => view.remaining(slot, flow) / seconds,
            };
            let more = own.next_if(|own| own.flow == flow).map_or(0.0, |own| own.rate);
            let carried = (rate + more) * self.parts[coflow.ends_of(flow).1 as usize];
            if carried > 0.0 {
                self.carried.add_flow(slot, flow, carried);
            }
        }
    }
}

/// Whether the flows of a coflow send at their common rate.
fn sends(common: Common) -> bool {
    match common {
        Common::None => false,
        Common::Each(rate) => rate > 0.0,
        Common::Together(seconds) => seconds.is_finite(),
    }
}
