//! Sincronia: an order of coflows by Bottleneck-Select-Scale-Iterate, and any work-conserving rates that keep to it.
//!
//! Agarwal et al., "Sincronia: Near-Optimal Network Design for Coflows", SIGCOMM '18: Algorithm 1 (BSSI) is [`bssi`]; rates are
//! the greedy ones of section 3: flow by flow in the order of coflows, each gets all that its two ports have left.
//!
//! - *Online*: the order is computed anew, from the bytes that are left, when a coflow arrives or ends, data comes or goes,
//!   or a port changes. (The authors' simulator orders by original sizes.)
//! - *Ties* between bottleneck ports go to the sending side, there to the highest port; ties between coflows to the
//!   one that arrived last (it is put behind). Two numbers tie if they differ by less than a part in 10^9, or, as weights are
//!   differences, by a part in 10^12 of what the first weights make of them: in exact arithmetic they would be equal
//!   or the schedules the same.
//! - *Flows* of one coflow go in the order of ports. The paper leaves that open, and the mean depends on it: in its
//!   Fig. 1 it is 2.6 or 2.8.

use super::{Event, Params, ParamsError, Policy};
use crate::allocation::{Allocation, Rule};
use crate::model::{Sizes, Slot, View};
use crate::solve::Residual;

/// Bytes of one coflow at ports; sending ports come first, receiving ports follow.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    /// The coflow's weight.
    pub weight: f64,
    /// Port and seconds that the coflow's bytes need there; above zero.
    pub ports: Vec<(usize, f64)>,
}

/// The order of BSSI, first to last, as positions in `demands`. O(n (ports + n) + demands).
pub fn bssi(demands: &[Demand], ports: usize) -> Vec<usize> {
    let tie = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    let mut totals = vec![0.0; ports];
    let mut at_port = vec![Vec::new(); ports];
    for (coflow, demand) in demands.iter().enumerate() {
        for &(port, time) in &demand.ports {
            totals[port] += time;
            at_port[port].push((coflow, time));
        }
    }
    let mut unordered = vec![0usize; ports];
    for (port, coflows) in at_port.iter().enumerate() {
        unordered[port] = coflows.len();
    }
    let mut weights: Vec<f64> = demands.iter().map(|d| d.weight).collect();
    let mut open = vec![true; demands.len()];
    let mut order = Vec::with_capacity(demands.len());
    while order.len() < demands.len() {
        let mut bottleneck: Option<usize> = None;
        for port in (0..ports).filter(|&p| unordered[p] > 0) {
            let better = bottleneck.is_none_or(|best| {
                let side = (port < ports / 2) == (best < ports / 2);
                if tie(totals[port], totals[best]) { side } else { totals[port] > totals[best] }
            });
            if better {
                bottleneck = Some(port);
            }
        }
        let Some(port) = bottleneck else {
            // Only coflows without bytes are left: they delay nobody.
            let rest: Vec<usize> = (0..demands.len()).filter(|&c| open[c]).rev().collect();
            order.extend(rest);
            break;
        };
        let mut last: Option<(usize, f64)> = None;
        for &(coflow, time) in at_port[port].iter().filter(|(coflow, _)| open[*coflow]) {
            let ratio = weights[coflow] / time;
            let better = last.is_none_or(|(best, best_time)| {
                let other = weights[best] / best_time;
                // What is left of a weight is as exact as the weight was in the beginning.
                let dust = 1e-12 * f64::max(demands[coflow].weight / time, demands[best].weight / best_time);
                tie(ratio, other) || ratio < other + dust
            });
            if better {
                last = Some((coflow, time));
            }
        }
        let (last, time) =
            last.expect("`unordered` counts the open coflows of the port, of which there is one");
        let scale = weights[last] / time;
        for &(coflow, time) in at_port[port].iter().filter(|(coflow, _)| open[*coflow]) {
            weights[coflow] = (weights[coflow] - scale * time).max(0.0);
        }
        open[last] = false;
        order.push(last);
        for &(port, time) in &demands[last].ports {
            unordered[port] -= 1;
            totals[port] = if unordered[port] == 0 { 0.0 } else { totals[port] - time };
        }
    }
    order.reverse();
    order
}

/// The policy.
#[derive(Default)]
pub struct Sincronia {
    ordered: bool,
    order: Vec<Slot>,
    residual: Residual,
}

impl Sincronia {
    pub(super) fn read(_: &mut Params) -> Result<Sincronia, ParamsError> {
        Ok(Sincronia::default())
    }

    fn reorder(&mut self, view: &View<'_, Sizes>) {
        let ports = view.fabric().ports();
        let (send, recv) = (view.fabric().send(), view.fabric().recv());
        let demands: Vec<Demand> = view
            .active()
            .iter()
            .map(|&slot| {
                let loads = view.loads(slot);
                let senders = loads.send().map(|(p, bytes)| (p, bytes / send[p]));
                let receivers = loads.recv().map(|(p, bytes)| (ports + p, bytes / recv[p]));
                let needed = senders.chain(receivers).filter(|(_, t)| t.is_finite() && *t > 0.0);
                Demand { weight: view.coflow(slot).weight, ports: needed.collect() }
            })
            .collect();
        self.order = bssi(&demands, 2 * ports).into_iter().map(|c| view.active()[c]).collect();
        self.ordered = true;
    }
}

impl Policy for Sincronia {
    type Knows = Sizes;

    fn on(&mut self, event: Event, _: &mut View<'_, Sizes>) {
        self.ordered &= matches!(event, Event::FlowDone(..));
    }

    /// O(coflows x (rows of flows)) in all but the schedules that order anew.
    fn schedule(&mut self, view: &mut View<'_, Sizes>, out: &mut Allocation) {
        if !self.ordered {
            // The slot of a coflow that is gone since the event is not among the active ones any more.
            self.reorder(view);
        }
        self.residual.reset(view.fabric());
        for (class, &slot) in self.order.iter().enumerate() {
            let coflow = view.coflow(slot);
            out.set_class(slot, class);
            out.set_rule(slot, if coflow.live() == 0 { Rule::LacksData } else { Rule::InOrder });
            if !self.residual.is_exhausted() {
                self.residual.fill(coflow, |flow, rate| out.add_flow(slot, flow, rate));
            }
        }
    }
}
