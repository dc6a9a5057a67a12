//! Sincronia: an order of coflows by Bottleneck-Select-Scale-Iterate (BSSI), and work-conserving rates that follow
//! the order.
//!
//! Source: Agarwal et al., "Sincronia: Near-Optimal Network Design for Coflows", SIGCOMM '18. [`bssi`] is
//! Algorithm 1. The rates are the greedy ones of section 3: in the order of coflows, each flow takes the residual
//! capacity of both of its ports.
//!
//! - *Online*: the order is recomputed from the remaining bytes when a coflow is released or completes, when data of a
//!   flow appears or is lost, and when the capacity of a port changes. (The authors' simulator orders by original
//!   sizes.)
//! - *Links* between switches count as ports do. The order leaves out links without capacity.
//! - *Ties* between bottleneck ports go to the sending side, and on one side to the highest port. Ties between
//!   coflows go to the one that arrived last: BSSI places it last.
//! - *Tolerance*: numbers tie if they differ by less than one part in 10^9. The ratios of weight to time also tie
//!   within 10^-12 of the larger initial ratio, because scaled weights are differences with that rounding error.
//! - *Flows* of one coflow are served in the order of ports. The paper leaves this order open, although the mean
//!   depends on it: in Fig. 1 of the paper the mean is 2.6 or 2.8.

use super::{Event, Params, ParamsError, Policy, Reaction, Timing};
use crate::allocation::{Allocation, Rule};
use crate::model::{CoflowKey, LinkKind, SizesKnown, Slot, View};
use crate::rounding;
use crate::solve::ResidualCapacity;

/// The load of one coflow on links. Sending sides of ports come first in the numbering, then receiving sides, then
/// trunks.
#[derive(Debug, Clone, Default)]
pub struct CoflowDemand {
    /// Weight of the coflow.
    pub weight: f64,
    /// Link, and the time in seconds that the coflow's bytes take there; above zero.
    pub link_seconds: Vec<(usize, f64)>,
}

/// Computes the order of BSSI, first to last, as positions in `demands`, over `links` links. Of links of one kind, ties
/// go to the last one; of different kinds, to the first one. O(n (links + n) + demands) for n coflows.
pub fn bssi(demands: &[CoflowDemand], links: usize, kind: impl Fn(usize) -> usize) -> Vec<usize> {
    let is_tie = |a: f64, b: f64| (a - b).abs() <= rounding::TIE * a.abs().max(b.abs());
    let mut totals = vec![0.0; links];
    let mut at_link = vec![Vec::new(); links];
    for (coflow, demand) in demands.iter().enumerate() {
        for &(link, time) in &demand.link_seconds {
            totals[link] += time;
            at_link[link].push((coflow, time));
        }
    }
    let mut unordered_counts = vec![0usize; links];
    for (link, coflows) in at_link.iter().enumerate() {
        unordered_counts[link] = coflows.len();
    }
    let mut weights: Vec<f64> = demands.iter().map(|d| d.weight).collect();
    let mut is_unordered = vec![true; demands.len()];
    let mut order = Vec::with_capacity(demands.len());
    while order.len() < demands.len() {
        let mut bottleneck: Option<usize> = None;
        for link in (0..links).filter(|&p| unordered_counts[p] > 0) {
            let better = bottleneck.is_none_or(|best| {
                if is_tie(totals[link], totals[best]) {
                    kind(link) == kind(best)
                } else {
                    totals[link] > totals[best]
                }
            });
            if better {
                bottleneck = Some(link);
            }
        }
        let Some(link) = bottleneck else {
            // The remaining coflows have no bytes and delay no other coflow.
            let remaining: Vec<usize> = (0..demands.len()).filter(|&c| is_unordered[c]).rev().collect();
            order.extend(remaining);
            break;
        };
        let mut last: Option<(usize, f64)> = None;
        for &(coflow, time) in at_link[link].iter().filter(|(coflow, _)| is_unordered[*coflow]) {
            let ratio = weights[coflow] / time;
            let better = last.is_none_or(|(best, best_time)| {
                let other = weights[best] / best_time;
                // A scaled weight is a difference: its error is relative to the initial weight.
                let tolerance = rounding::PARTS
                    * f64::max(demands[coflow].weight / time, demands[best].weight / best_time);
                is_tie(ratio, other) || ratio < other + tolerance
            });
            if better {
                last = Some((coflow, time));
            }
        }
        let (last, time) =
            last.expect("`unordered` counts the open coflows of the link, of which there is one");
        let scale = weights[last] / time;
        for &(coflow, time) in at_link[link].iter().filter(|(coflow, _)| is_unordered[*coflow]) {
            weights[coflow] = (weights[coflow] - scale * time).max(0.0);
        }
        is_unordered[last] = false;
        order.push(last);
        for &(link, time) in &demands[last].link_seconds {
            unordered_counts[link] -= 1;
            totals[link] = if unordered_counts[link] == 0 { 0.0 } else { totals[link] - time };
        }
    }
    order.reverse();
    order
}

/// BSSI with greedy rates.
#[derive(Default)]
pub struct Sincronia {
    order_valid: bool,
    order: Vec<Slot>,
    residual: ResidualCapacity,
}

impl Sincronia {
    pub(super) fn from_params(_: &mut Params) -> Result<Sincronia, ParamsError> {
        Ok(Sincronia::default())
    }
}

/// The order of BSSI by remaining bytes, first to last.
pub(super) fn compute_order(view: &View<'_, SizesKnown>) -> Vec<Slot> {
    let fabric = view.fabric();
    let capacities = fabric.capacities();
    let demands: Vec<CoflowDemand> = view
        .active_coflows()
        .iter()
        .map(|&slot| {
            let links = view.remaining_loads(slot).by_link();
            let seconds = links.map(|(link, bytes)| (link, bytes / capacities[link]));
            let needed = seconds.filter(|(_, t)| t.is_finite() && *t > 0.0);
            CoflowDemand { weight: view.coflow(slot).weight, link_seconds: needed.collect() }
        })
        .collect();
    let kind = |link: usize| match fabric.kind(link) {
        LinkKind::Sender(_) => 0,
        LinkKind::Receiver(_) => 1,
        LinkKind::Trunk(_) => 2,
    };
    let order = bssi(&demands, capacities.len(), kind);
    order.into_iter().map(|coflow| view.active_coflows()[coflow]).collect()
}

impl Policy for Sincronia {
    type Knowledge = SizesKnown;

    fn uses(&self, key: CoflowKey) -> bool {
        key == CoflowKey::Weight
    }

    fn on_event(&mut self, event: Event, _: &mut View<'_, SizesKnown>) {
        self.order_valid &= matches!(event, Event::FlowCompleted(..));
        if let Event::CoflowCompleted(slot) = event {
            self.order.retain(|&other| other != slot);
        }
    }

    fn timing(&self) -> Timing {
        Timing {
            start: Reaction::AtInterval,
            completion: Reaction::AtOnce,
            at_interval: "the order",
            source: "section 4: the coordinator orders coflows, hosts and switches serve flows by priority",
        }
    }

    /// O(coflows x (rows of flows)), except for the schedules that recompute the order.
    fn schedule(&mut self, view: &mut View<'_, SizesKnown>, out: &mut Allocation) {
        if !self.order_valid {
            // The active coflows no longer include a coflow that left since the event.
            self.order = compute_order(view);
            self.order_valid = true;
        }
        self.reassign(view, out);
    }

    /// O(coflows x (rows of flows)).
    fn reassign(&mut self, view: &mut View<'_, SizesKnown>, out: &mut Allocation) {
        self.residual.reset(view.fabric());
        for (class, &slot) in self.order.iter().enumerate() {
            let coflow = view.coflow(slot);
            out.set_class(slot, class);
            out.set_rule(slot, if coflow.live_count() == 0 { Rule::WaitingForData } else { Rule::InOrder });
            if !self.residual.is_exhausted() {
                self.residual.fill_flows(coflow, |flow, rate| out.add_flow_rate(slot, flow, rate));
            }
        }
    }
}
