//! Serves flows without rates between two schedules, as hosts do without the coordinator.
//!
//! A policy whose flows start at once, but whose completions wait for the coordinator, leaves the time between two schedules to the hosts:
//! see [`Timing`](crate::policy::Timing). Flows with rates of the last schedule keep them. The other live flows of fresh coflows are in a
//! lower class of traffic: they share the capacity that scheduled flows leave, or no longer need, as under TCP. Otherwise, coflows that
//! need less than an interval would wait for one another at a rate of one for each interval and link.
//!
//! A coflow is *fresh* until the schedule after the first one that gives it rates. Later, an unused part of an interval is small compared
//! to the time that the coflow takes, and a reaction of hosts to each of its completions would make simulations much slower.

use crate::allocation::{Allocation, CommonRate, Rule};
use crate::model::{Coflow, FlowState, Network, Slot};
use crate::solve::{FlowClass, max_min};

/// The maximum number of flows of a fresh coflow. It bounds the time of simulations, as hosts react to each completion.
const MAX_WIDTH: usize = 1024;

/// The flows that hosts serve.
#[derive(Debug, Default)]
pub(crate) struct HostService {
    /// Flows with a rate that is not of the last schedule, in order.
    served: Vec<(Slot, u32)>,
    /// The number of the first coflow that was released after the last schedule.
    first_unscheduled: u64,
    /// The number of schedules until now.
    schedules: u64,
    /// By slot: the number of its coflow, and of the first schedule that gave it rates.
    first_rates: Vec<Option<(u64, u64)>>,
    /// By link, in bytes per second.
    residuals: Vec<f64>,
}

impl HostService {
    /// Records a schedule, whose rates apply. O(coflows).
    pub fn on_schedule(&mut self, allocation: &Allocation, network: &mut Network) {
        self.served.clear();
        self.first_unscheduled = network.released_count();
        self.schedules += 1;
        self.first_rates.resize(network.slots(), None);
        for &slot in network.active_coflows() {
            let seq = network.coflow(slot).seq;
            let first = &mut self.first_rates[slot as usize];
            let has_rates = allocation.common(slot) != CommonRate::None || network.has_own_rates(slot);
            if has_rates && first.is_none_or(|(former, _)| former != seq) {
                *first = Some((seq, self.schedules));
            }
        }
        network.forget_host_service();
    }

    /// Whether a coflow is fresh.
    pub fn is_fresh(&self, slot: Slot, network: &Network) -> bool {
        let coflow = network.coflow(slot);
        let first = self.first_rates.get(slot as usize).copied().flatten();
        let was_scheduled =
            first.is_some_and(|(seq, schedule)| seq == coflow.seq && schedule < self.schedules);
        !was_scheduled && coflow.width() <= MAX_WIDTH
    }

    /// The time at which the next flow of a fresh coflow completes. O(coflows + flows of fresh coflows).
    pub fn next_completion(&self, network: &mut Network) -> f64 {
        let mut next = f64::INFINITY;
        for at in 0..network.active_coflows().len() {
            let slot = network.active_coflows()[at];
            if self.is_fresh(slot, network) {
                next = next.min(network.next_completion_of(slot));
            }
        }
        next
    }

    /// Continues the last schedule, and shares the capacity that it leaves between the other live flows of fresh coflows. `is_limited`:
    /// rates in force differ from those of the schedule. O(links of all coflows + flows with own rates + flows of fresh coflows), and
    /// max-min fairness of the flows served; O(flows) if rates are limited.
    pub fn serve(&mut self, allocation: &mut Allocation, is_limited: bool, network: &mut Network, now: f64) {
        // A coflow that was released after the schedule may have the slot of one that has completed.
        let is_live = |coflow: &Coflow, flow| {
            coflow.seq < self.first_unscheduled && coflow.flow_state(flow) == FlowState::Live
        };
        let is_scheduled = |slot, flow| {
            self.served.binary_search(&(slot, flow)).is_err()
                && network.get(slot).is_some_and(|coflow| is_live(coflow, flow))
        };
        allocation.retain_flow_rates(is_scheduled);
        allocation.forget_decisions(network.slots(), network.coflows_since(self.first_unscheduled));
        keep_rates(allocation, is_limited, network, now);
        let residuals = &mut self.residuals;
        residuals.clear();
        residuals.extend_from_slice(network.fabric().capacities());
        let subtract = |_, link: usize, rate: f64| residuals[link] = (residuals[link] - rate).max(0.0);
        allocation.visit_link_rates(network.active_coflows(), network, now, subtract);
        let tolerance = network.fabric().rounding_tolerance();
        residuals.iter_mut().filter(|residual| **residual <= tolerance).for_each(|residual| *residual = 0.0);
        self.share_as_tcp(network, allocation);
    }

    /// Gives live flows of fresh coflows without rates max-min fair rates over links with the residual capacities.
    fn share_as_tcp(&mut self, network: &mut Network, out: &mut Allocation) {
        let is_open = |link: usize| self.residuals[link] > 0.0;
        let mut scheduled: Vec<(Slot, u32)> =
            out.flow_rates().iter().map(|own| (own.slot, own.flow)).collect();
        scheduled.sort_unstable();
        let (mut links, mut starts) = (Vec::new(), vec![0]);
        self.served.clear();
        for &slot in network.active_coflows() {
            if out.common(slot) != CommonRate::None || !self.is_fresh(slot, network) {
                continue;
            }
            let coflow = network.coflow(slot);
            let own = &scheduled[scheduled.partition_point(|own| own.0 < slot)..];
            if own.first().is_none_or(|own| own.0 != slot) {
                out.set_rule(
                    slot,
                    if coflow.live_count() > 0 { Rule::Transport } else { Rule::WaitingForData },
                );
            }
            if !coflow.reaches(is_open) {
                continue;
            }
            for flow in coflow.live_flows() {
                let flow_links = coflow.flow_links(flow);
                if flow_links.clone().all(is_open) && own.binary_search(&(slot, flow)).is_err() {
                    links.extend(flow_links.map(|link| link as u32));
                    starts.push(links.len());
                    self.served.push((slot, flow));
                }
            }
        }
        let class = |range: &[usize]| FlowClass { links: &links[range[0]..range[1]], flows: 1.0 };
        let rates = max_min(&self.residuals, &starts.windows(2).map(class).collect::<Vec<_>>());
        for (&(slot, flow), rate) in self.served.iter().zip(rates) {
            if rate.is_finite() && rate > network.fabric().rounding_tolerance() {
                out.add_flow_rate(slot, flow, rate);
                network.note_host_service(slot);
            }
        }
        self.served.sort_unstable();
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
