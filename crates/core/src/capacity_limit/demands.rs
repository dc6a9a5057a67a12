//! Limits flows to what their programs write, and gives the capacity that becomes free to other flows.
//!
//! A driver sets a maximum rate for a flow whose program writes less than the rate of the flow. The policy decides as without it. If a
//! decided rate exceeds the maximum, the flow gets the maximum. The capacity that no flow has goes to the coflows in the order in which the
//! policy served them: each flow takes the residual capacity of its links, up to its own maximum. Coflows with the same position (those of
//! several leaves of a policy tree), and those of a policy without an order, share the residual capacity max-min.
//!
//! If the policy leaves rates to queues, these rates are [`limited_queue_rates`].

use std::collections::BTreeMap;

use super::{CapacityLimit, SortedDecision, common_rate, rates};
use crate::allocation::{Allocation, FlowRate, IntraQueueSharing, QueueDiscipline};
use crate::model::{FlowState, Network, Slot};
use crate::rounding;
use crate::solve::{CappedFlow, ResidualCapacity, max_min_capped};
use crate::transport::limited_queue_rates;

/// The rates of a limited flow.
#[derive(Debug, Clone, Copy)]
struct LimitedFlow {
    max_rate: f64,
    decided_rate: f64,
}

impl LimitedFlow {
    /// How much the decided rate exceeds the maximum.
    fn excess(&self) -> f64 {
        let excess = self.decided_rate - self.max_rate;
        if excess > self.max_rate * rounding::CAPACITY { excess } else { 0.0 }
    }

    /// How much more the flow can get.
    fn room(&self) -> f64 {
        (self.max_rate - self.decided_rate).max(0.0)
    }
}

/// The flows with a maximum rate.
#[derive(Debug, Default)]
pub(crate) struct DemandLimit {
    limited: BTreeMap<(Slot, u32), LimitedFlow>,
    residual: ResidualCapacity,
    /// By link: the residual capacity before it is given to flows.
    link_residuals: Vec<f64>,
    /// The active coflows in the order in which they take residual capacity.
    order: Vec<Slot>,
    /// The residual capacity that flows got.
    added: Vec<FlowRate>,
}

impl DemandLimit {
    /// Sets or removes the maximum rate of a flow, in bytes per second. Returns whether it differs from the last one.
    pub(crate) fn set_max_rate(&mut self, slot: Slot, flow: u32, max_rate: Option<f64>) -> bool {
        let former = match max_rate {
            Some(max_rate) => self.limited.insert((slot, flow), LimitedFlow { max_rate, decided_rate: 0.0 }),
            None => self.limited.remove(&(slot, flow)),
        };
        former.map(|limited| limited.max_rate) != max_rate
    }

    /// The maximum rate of a flow, if it has one.
    pub(crate) fn max_rate(&self, slot: Slot, flow: u32) -> Option<f64> {
        self.limited.get(&(slot, flow)).map(|limited| limited.max_rate)
    }

    /// Whether no flow has a maximum rate.
    pub(crate) fn is_empty(&self) -> bool {
        self.limited.is_empty()
    }

    /// Whether a flow of a coflow has a maximum rate.
    pub(crate) fn limits(&self, slot: Slot) -> bool {
        self.limited.range((slot, 0)..=(slot, u32::MAX)).next().is_some()
    }

    /// Whether the decision leaves rates to queues that maximum rates limit. Max-min rates of flows ignore them.
    pub(crate) fn limits_queues(&self, decided: &Allocation) -> bool {
        let is_fifo = |queues: &QueueDiscipline| queues.intra_queue == IntraQueueSharing::Fifo;
        !self.limited.is_empty() && decided.queue_discipline().is_some_and(is_fifo)
    }

    /// Computes the capacity of each link that no flow has. O(links of coflows with a rate + flows with own rates).
    fn compute_residuals(&mut self, decided: &Allocation, network: &Network, now: f64) {
        let fabric = network.fabric();
        let residuals = &mut self.link_residuals;
        residuals.clear();
        residuals.extend_from_slice(fabric.capacities());
        let subtract = |_, link: usize, rate: f64| residuals[link] -= rate;
        decided.visit_link_rates(network.active_coflows(), network, now, subtract);
        for (&(slot, flow), limited) in &self.limited {
            let excess = limited.excess();
            if excess > 0.0 {
                let links = network.coflow(slot).flow_links(flow);
                links.for_each(|link| residuals[link] += excess);
            }
        }
        // A decision may use all of a link, but for rounding.
        residuals.iter_mut().for_each(|residual| *residual = residual.max(0.0));
        self.residual.set_residuals(fabric, residuals);
    }

    /// Gives the residual capacity to flows. The result is in `added`, sorted by coflow and flow.
    fn add_residual_capacity(&mut self, decided: &Allocation, network: &Network) {
        self.added.clear();
        let position = |slot: &Slot| decided.serving_position(*slot).unwrap_or(u32::MAX);
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend_from_slice(network.active_coflows());
        order.sort_by_key(position);
        for coflows in order.chunk_by(|a, b| position(a) == position(b)) {
            match coflows {
                _ if self.residual.is_exhausted() => break,
                &[slot] if position(&slot) != u32::MAX => self.fill_coflow(slot, network),
                _ => self.share_max_min(coflows, network),
            }
        }
        self.order = order;
        self.added.sort_unstable_by_key(|added| (added.slot, added.flow));
    }

    /// Gives each flow of a coflow the residual capacity of its links.
    fn fill_coflow(&mut self, slot: Slot, network: &Network) {
        let is_limited = self.limits(slot);
        let DemandLimit { limited, residual, added, .. } = self;
        let coflow = network.coflow(slot);
        let add = |flow: u32, rate: f64| added.push(FlowRate { slot, flow, rate });
        if is_limited {
            let room = |flow: u32| limited.get(&(slot, flow)).map_or(f64::INFINITY, LimitedFlow::room);
            residual.fill_limited_flows(coflow, room, add);
        } else {
            residual.fill_flows(coflow, add);
        }
    }

    /// Divides the residual capacity between the flows of several coflows. O(n log n) for n flows over links with residual capacity.
    fn share_max_min(&mut self, coflows: &[Slot], network: &Network) {
        let fabric = network.fabric();
        let residuals = self.residual.residuals().to_vec();
        let (mut flows, mut links, mut ends) = (Vec::new(), Vec::new(), vec![0]);
        for &slot in coflows {
            let coflow = network.coflow(slot);
            for flow in coflow.live_flows() {
                let room = self.limited.get(&(slot, flow)).map_or(f64::INFINITY, LimitedFlow::room);
                let max_rate = self.residual.flow_residual(coflow, flow).min(room);
                if max_rate > fabric.rounding_tolerance() {
                    flows.push(FlowRate { slot, flow, rate: max_rate });
                    links.extend(coflow.flow_links(flow).map(|link| link as u32));
                    ends.push(links.len());
                }
            }
        }
        let capped: Vec<CappedFlow<'_>> = flows
            .iter()
            .zip(ends.windows(2))
            .map(|(flow, ends)| CappedFlow { links: &links[ends[0]..ends[1]], cap: flow.rate })
            .collect();
        for (flow, rate) in flows.iter().zip(max_min_capped(&residuals, &capped)) {
            if rate > 0.0 {
                self.residual.subtract_flow_rate(network.coflow(flow.slot), flow.flow, rate);
                self.added.push(FlowRate { rate, ..*flow });
            }
        }
    }
}

impl CapacityLimit for DemandLimit {
    /// Whether a decided rate exceeds the maximum rate of the flow. O(flows with own rates) if a flow has a maximum rate.
    fn exceeds_capacity(&mut self, decided: &Allocation, network: &Network, now: f64) -> bool {
        if self.limited.is_empty() {
            return false;
        }
        if decided.queue_discipline().is_some() {
            return self.limits_queues(decided);
        }
        for (&(slot, flow), limited) in &mut self.limited {
            let coflow = network.coflow(slot);
            limited.decided_rate = match coflow.flow_state(flow) {
                FlowState::Live => common_rate(coflow, decided.common(slot), flow, now),
                FlowState::Waiting | FlowState::Completed => 0.0,
            };
        }
        for own in decided.flow_rates() {
            if let Some(limited) = self.limited.get_mut(&(own.slot, own.flow)) {
                limited.decided_rate += own.rate;
            }
        }
        self.limited.values().any(|limited| limited.excess() > 0.0)
    }

    /// O(links and live flows of coflows with limited flows + links of other coflows + flows with own rates).
    fn reduce_rates(
        &mut self,
        decided: &SortedDecision<'_>,
        network: &Network,
        now: f64,
        carried: &mut Allocation,
    ) {
        if let Some(queues) = decided.whole.queue_discipline() {
            let max_rate = |slot, flow| self.max_rate(slot, flow).unwrap_or(f64::INFINITY);
            for FlowRate { slot, flow, rate } in limited_queue_rates(queues, decided.whole, network, max_rate)
            {
                carried.add_flow_rate(slot, flow, rate);
            }
            return;
        }
        self.compute_residuals(decided.whole, network, now);
        self.add_residual_capacity(decided.whole, network);
        for &slot in network.active_coflows() {
            let (common, own) = decided.of(slot);
            let first = self.added.partition_point(|added| added.slot < slot);
            let added = &self.added[first..self.added.partition_point(|added| added.slot <= slot)];
            let mut limited = self.limited.range((slot, 0)..=(slot, u32::MAX));
            if limited.any(|(_, limited)| limited.excess() > 0.0) {
                let mut added = added.iter().peekable();
                for (flow, rate) in rates(network.coflow(slot), common, own, now) {
                    let max_rate = self.max_rate(slot, flow).unwrap_or(f64::INFINITY);
                    let more = added.next_if(|added| added.flow == flow).map_or(0.0, |added| added.rate);
                    let rate = rate.min(max_rate) + more;
                    if rate > 0.0 {
                        carried.add_flow_rate(slot, flow, rate);
                    }
                }
                continue;
            }
            carried.set_common(slot, common);
            let find = |flows: &[FlowRate], flow: u32| {
                flows.binary_search_by_key(&flow, |own| own.flow).map_or(0.0, |at| flows[at].rate)
            };
            for own in own {
                carried.add_flow_rate(slot, own.flow, own.rate + find(added, own.flow));
            }
            for added in added.iter().filter(|added| find(own, added.flow) == 0.0) {
                carried.add_flow_rate(slot, added.flow, added.rate);
            }
        }
    }

    fn drop_flows(&mut self, slot: Slot) {
        self.limited.retain(|(limited, _), _| *limited != slot);
    }
}
