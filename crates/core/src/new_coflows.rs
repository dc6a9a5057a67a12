//! Serves new coflows between two schedules, as hosts do without the coordinator.
//!
//! A policy whose flows start at once, but whose completions wait for the coordinator, leaves its new coflows to the hosts: see
//! [`Timing`](crate::policy::Timing). The hosts know the rates of the last schedule. All live flows that they serve share the capacity
//! which these rates leave, as under TCP. A coflow is new until the second schedule after its release; from the first one on, the hosts
//! serve it only if that schedule gave it no rates. Otherwise, coflows that need less than an interval would wait for one another at a
//! rate of one for each interval and link. Coflows of many flows wait for the coordinator: they take far longer than an interval.

use crate::allocation::{Allocation, CommonRate, Rule};
use crate::model::{Coflow, FlowState, Network, Slot};
use crate::solve::{FlowClass, max_min};

/// The maximum number of flows of a coflow that hosts serve.
const MAX_WIDTH: usize = 64;

/// The coflows that hosts serve.
#[derive(Debug, Default)]
pub(crate) struct NewCoflows {
    /// The number of the first coflow that was released after the last schedule but one.
    first: u64,
    /// The number of the first coflow that was released after the last schedule.
    first_unscheduled: u64,
    /// The new coflows to which the last schedule gave no rates, by number.
    waiting: Vec<u64>,
}

impl NewCoflows {
    /// Records a schedule, whose rates apply. O(new coflows).
    pub fn on_schedule(&mut self, allocation: &Allocation, network: &Network) {
        self.first = self.first_unscheduled;
        self.first_unscheduled = network.released_count();
        let is_waiting =
            |slot: &&Slot| allocation.common(**slot) == CommonRate::None && !network.has_own_rates(**slot);
        let waiting = network.coflows_since(self.first).iter().filter(is_waiting);
        self.waiting.clear();
        self.waiting.extend(waiting.map(|&slot| network.coflow(slot).seq));
    }

    /// Whether the completions of a coflow's flows take effect at once.
    pub fn contains(&self, coflow: &Coflow) -> bool {
        coflow.seq >= self.first && coflow.width() <= MAX_WIDTH
    }

    /// The time at which the next flow of these coflows completes. O(their flows).
    pub fn next_completion(&self, network: &mut Network) -> f64 {
        let mut next = f64::INFINITY;
        let mut at = network.active_coflows().len() - network.coflows_since(self.first).len();
        while let Some(&slot) = network.active_coflows().get(at) {
            if self.contains(network.coflow(slot)) {
                next = next.min(network.next_completion_of(slot));
            }
            at += 1;
        }
        next
    }

    /// Continues the last schedule, and shares the capacity that it leaves between the flows that hosts serve. `is_limited`: rates in
    /// force may be below those of the schedule. O(links of all coflows + flows with own rates + flows of the new coflows); O(flows) if
    /// rates are limited.
    pub fn serve(&self, allocation: &mut Allocation, is_limited: bool, network: &mut Network, now: f64) {
        let is_served = |seq: u64| seq >= self.first_unscheduled || self.waiting.binary_search(&seq).is_ok();
        let mut served = network.coflows_since(self.first).to_vec();
        served.retain(|&slot| is_served(network.coflow(slot).seq));
        let is_scheduled = |slot, flow| {
            network
                .get(slot)
                .is_some_and(|coflow| !is_served(coflow.seq) && coflow.flow_state(flow) == FlowState::Live)
        };
        allocation.retain_flow_rates(is_scheduled);
        allocation.forget_decisions(network.slots(), &served);
        keep_rates(allocation, is_limited, network, now);
        let mut residuals: Vec<f64> = network.fabric().link_capacities().collect();
        let subtract = |_, link: usize, rate: f64| residuals[link] = (residuals[link] - rate).max(0.0);
        allocation.visit_link_rates(network.active_coflows(), network, now, subtract);
        served.retain(|&slot| self.contains(network.coflow(slot)));
        share_as_tcp(&served, &residuals, network, allocation);
    }
}

/// Lets all flows of an allocation keep the rates that they have had until now.
fn keep_rates(allocation: &mut Allocation, is_limited: bool, network: &mut Network, now: f64) {
    // Rates in proportion to remaining bytes do not continue if limits reduced them flow by flow, or once flows have sent their estimates.
    let has_fixed_rates = |slot: &Slot| is_limited || network.has_spent_estimates(*slot, now);
    let mut fixed: Vec<Slot> = network.active_coflows().iter().copied().filter(has_fixed_rates).collect();
    let outgrown =
        allocation.flow_rates().iter().filter(|own| network.has_outgrown_estimate(own.slot, own.flow, now));
    fixed.extend(outgrown.map(|own| own.slot));
    fixed.retain(|&slot| allocation.common(slot) != CommonRate::None);
    fixed.sort_unstable();
    fixed.dedup();
    let fixed_rates = network.flow_rates(&fixed);
    allocation.retain_flow_rates(|slot, _| fixed.binary_search(&slot).is_err());
    let rates = allocation.flow_rates().iter().map(|own| network.rate(own.slot, own.flow));
    let rates: Vec<f64> = rates.collect();
    network.update_progress(now);
    allocation.keep_rates(&rates, network, now);
    allocation.replace_common_rates(&fixed, fixed_rates);
}

/// Gives the live flows of coflows max-min fair rates over links with these residual capacities.
fn share_as_tcp(slots: &[Slot], residuals: &[f64], network: &Network, out: &mut Allocation) {
    let (mut flows, mut links, mut starts) = (Vec::new(), Vec::new(), vec![0]);
    for &slot in slots {
        let coflow = network.coflow(slot);
        out.set_rule(slot, if coflow.live_count() > 0 { Rule::Transport } else { Rule::WaitingForData });
        for flow in coflow.live_flows() {
            flows.push((slot, flow));
            links.extend(coflow.flow_links(flow, network.fabric().ports()).map(|link| link as u32));
            starts.push(links.len());
        }
    }
    let class = |range: &[usize]| FlowClass { links: &links[range[0]..range[1]], flows: 1.0 };
    let rates = max_min(residuals, &starts.windows(2).map(class).collect::<Vec<_>>());
    for ((slot, flow), rate) in flows.into_iter().zip(rates) {
        if rate.is_finite() && rate > network.fabric().rounding_tolerance() {
            out.add_flow_rate(slot, flow, rate);
        }
    }
}
