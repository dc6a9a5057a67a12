//! The rates of queues with FIFO by coflow at senders, as [`super::sender_queues`], for flows with maximum
//! rates: their programs write less than the queue serves.
//!
//! 1. Each queue of a sender offers its share to its first coflow, divided equally among the flows of that coflow at the sender. A flow
//!    takes its maximum rate at most.
//! 2. Receivers and trunks share their capacity max-min between the flows, at most at the offered rates.
//! 3. The residual capacity goes to the coflows in the order of queues, and to each flow up to its maximum rate.
//!
//! The result has no state, and costs O(flows log flows).

use std::collections::BTreeMap;

use crate::allocation::{Allocation, FlowRate, InterQueueSharing, QueueDiscipline};
use crate::model::{Network, Slot};
use crate::solve::{CappedFlow, ResidualCapacity, max_min_capped};

use super::order_by_class;

/// The rates above 0 of all flows, sorted by coflow and flow. `max_rate` is that of a flow in bytes per second; infinite without one.
pub(crate) fn limited_queue_rates(
    queues: &QueueDiscipline,
    decided: &Allocation,
    network: &Network,
    max_rate: impl Fn(Slot, u32) -> f64,
) -> impl Iterator<Item = FlowRate> {
    let mut order = Vec::new();
    order_by_class(&mut order, network, decided);
    let (mut offered, mut links, mut ends) = (Vec::new(), Vec::new(), vec![0]);
    for ((src, slot), rate) in offered_rates(&order, &queues.inter_queue, network) {
        let coflow = network.coflow(slot);
        let sender = coflow.senders().partition_point(|load| load.link < src);
        coflow.visit_flows_of_sender(sender, |flow, _| {
            offered.push(FlowRate { slot, flow, rate: rate.min(max_rate(slot, flow)) });
            links.extend(coflow.flow_links(flow).skip(1).map(|link| link as u32));
            ends.push(links.len());
        });
    }
    let capped =
        |(flow, ends): (&FlowRate, &[usize])| CappedFlow { links: &links[ends[0]..ends[1]], cap: flow.rate };
    let flows: Vec<CappedFlow<'_>> = offered.iter().zip(ends.windows(2)).map(capped).collect();
    let mut residuals = network.fabric().capacities().to_vec();
    let carried = max_min_capped(&residuals, &flows);
    let mut rates = BTreeMap::new();
    for (&FlowRate { slot, flow, .. }, rate) in offered.iter().zip(carried) {
        rates.insert((slot, flow), rate);
        let links = network.coflow(slot).flow_links(flow);
        links.for_each(|link| residuals[link] = (residuals[link] - rate).max(0.0));
    }
    let mut residual = ResidualCapacity::default();
    residual.set_residuals(network.fabric(), &residuals);
    let mut added = Vec::new();
    for (_, slot) in order {
        let room = |flow| max_rate(slot, flow) - rates.get(&(slot, flow)).copied().unwrap_or(0.0);
        residual.fill_limited_flows(network.coflow(slot), room, |flow, rate| added.push((flow, rate)));
        added.drain(..).for_each(|(flow, rate)| *rates.entry((slot, flow)).or_default() += rate);
    }
    let rates = rates.into_iter().map(|((slot, flow), rate)| FlowRate { slot, flow, rate });
    rates.filter(|flow| flow.rate > 0.0)
}

/// By sending link and first coflow of a queue: the rate that the queue offers to each flow. `order` has the coflows by class. Under strict
/// priority, only the first queue of a sender offers a rate.
fn offered_rates(
    order: &[(usize, Slot)],
    sharing: &InterQueueSharing,
    network: &Network,
) -> BTreeMap<(u32, Slot), f64> {
    // By sending link: the class of its last queue, and the total weight of its queues.
    let mut senders: BTreeMap<u32, (usize, f64)> = BTreeMap::new();
    let mut heads = Vec::new();
    for &(class, slot) in order {
        let loads = network.coflow(slot).senders().iter();
        for load in loads.filter(|load| load.live_flow_count > 0) {
            let former = senders.get(&load.link).copied();
            let weight = match (sharing, former) {
                (InterQueueSharing::StrictPriority(_), Some(_)) => continue,
                (InterQueueSharing::Weighted(_), Some((last, _))) if last == class => continue,
                (InterQueueSharing::StrictPriority(_), None) => 1.0,
                (InterQueueSharing::Weighted(weights), _) => weights[class],
            };
            senders.insert(load.link, (class, former.map_or(0.0, |(_, total)| total) + weight));
            heads.push((load.link, slot, weight / f64::from(load.live_flow_count)));
        }
    }
    let capacities = network.fabric().capacities();
    let offer = |(src, slot, weight): (u32, Slot, f64)| {
        ((src, slot), capacities[src as usize] * weight / senders[&src].1)
    };
    heads.into_iter().map(offer).collect()
}
