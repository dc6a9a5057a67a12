//! Queues with FIFO by coflow inside, at all links: Aalo with coordinated links (`at=both`).
//!
//! Coflow by coflow, each flow gets the minimum of its even shares of its links. Each queue first divides its weighted share
//! of every link; then all coflows, in the order of queues, divide the residual capacity. Under strict priority, only the
//! second step applies.
//!
//! A change at one link changes the residual capacity of many others, so an update computes all rates.

use crate::allocation::InterQueueSharing;
use crate::model::{Network, Slot};

use super::row_transport::{LiveFlows, RowRates};
use super::rows::CoflowFlows;

/// A link while the flows of one coflow divide its capacity.
#[derive(Debug, Clone, Copy, Default)]
struct LinkShare {
    /// Number of flows that divide the capacity.
    flow_count: u32,
    /// The even share of each flow; 0 without capacity.
    rate: f64,
    /// The sum of the rates of the flows.
    used: f64,
}

/// Counts the flows of a row to receivers with capacity, at each receiver and in total.
// Separate functions keep the sums of the inner loops in registers.
#[inline(never)]
fn count_open_receivers(links: &[u32], shares: &mut [LinkShare]) -> u32 {
    let mut count = 0;
    for link in links {
        let receiver = &mut shares[*link as usize];
        let is_open = u32::from(receiver.rate > 0.0);
        receiver.flow_count += is_open;
        count += is_open;
    }
    count
}

/// Adds to the rate of each flow of a row the share of its receiver, at most `limit`. Returns the sum of the added rates.
#[inline(never)]
fn add_row_rates(rates: &mut [f64], links: &[u32], limit: f64, shares: &mut [LinkShare]) -> f64 {
    let mut sum = 0.0;
    for (rate, link) in rates.iter_mut().zip(links) {
        let receiver = &mut shares[*link as usize];
        let share = if receiver.rate < limit { receiver.rate } else { limit };
        *rate += share;
        receiver.used += share;
        sum += share;
    }
    sum
}

/// Counts, by link, the flows whose links all have capacity. Returns whether there are any.
fn count_open_flows(flows: &CoflowFlows, shares: &mut [LinkShare]) -> bool {
    let mut total = 0;
    for row in &flows.rows {
        let links = &flows.row_links[row.links.clone()];
        if links.iter().any(|&link| shares[link as usize].rate == 0.0) {
            continue;
        }
        let row_count = count_open_receivers(&flows.receiver_links[row.entries.clone()], shares);
        links.iter().for_each(|&link| shares[link as usize].flow_count += row_count);
        total += row_count;
    }
    total > 0
}

/// Adds the minimum of the even shares of a flow's links to its rate.
fn add_rates(flows: &mut CoflowFlows, shares: &mut [LinkShare]) {
    for row in &flows.rows {
        let links = &flows.row_links[row.links.clone()];
        let limit = links.iter().map(|&link| shares[link as usize].rate).fold(f64::INFINITY, f64::min);
        if limit == 0.0 {
            continue;
        }
        let rates = &mut flows.rates[row.entries.clone()];
        let row_rate = add_row_rates(rates, &flows.receiver_links[row.entries.clone()], limit, shares);
        flows.total_rate += row_rate;
        links.iter().for_each(|&link| shares[link as usize].used += row_rate);
    }
}

/// The same queues at all links.
pub(super) struct CoordinatedQueues {
    weights: InterQueueSharing,
    /// By link: capacity that no flow uses, infinite at ports that limit no flow, while a queue's share is divided. Empty while
    /// the residual capacity itself is divided.
    residuals: Vec<f64>,
    /// By link.
    shares: Vec<LinkShare>,
}

impl CoordinatedQueues {
    pub(super) fn new(weights: InterQueueSharing) -> CoordinatedQueues {
        CoordinatedQueues { weights, residuals: Vec::new(), shares: Vec::new() }
    }

    /// Gives each flow of a coflow the minimum of its even shares of its links' remaining `capacities`. O(flows of rows with
    /// capacity + links); receivers without capacity are not skipped.
    fn share_evenly(
        &mut self,
        slot: Slot,
        capacities: &mut [f64],
        network: &Network,
        tolerance: f64,
        flows: &mut LiveFlows,
    ) {
        let coflow = network.coflow(slot);
        let loads = || coflow.links().iter().map(|load| (load.link as usize, load));
        let links = || loads().map(|(link, _)| link);
        let is_open = loads().all(|(link, load)| load.live_flow_count == 0 || capacities[link] > tolerance);
        for (link, load) in loads() {
            let rate = if capacities[link] > tolerance { f64::INFINITY } else { 0.0 };
            let flow_count = if is_open { load.live_flow_count } else { 0 };
            self.shares[link] = LinkShare { flow_count, rate, used: 0.0 };
        }
        let has_counts = is_open && coflow.live_count() > 0;
        if !has_counts && !count_open_flows(flows.coflow(slot), &mut self.shares) {
            return;
        }
        for link in links().filter(|&link| capacities[link] > tolerance) {
            self.shares[link].rate = capacities[link] / f64::from(self.shares[link].flow_count);
        }
        add_rates(flows.coflow_with_rate(slot), &mut self.shares);
        for link in links() {
            let used = self.shares[link].used;
            capacities[link] -= used;
            // A queue's share is also part of the residual capacity.
            if let Some(residual) = self.residuals.get_mut(link) {
                *residual -= used;
            }
        }
    }
}

impl RowRates for CoordinatedQueues {
    /// Divides each queue's weighted share of every link, and then, in the order of coflows, the residual capacity.
    fn set_rates(
        &mut self,
        order: &[(usize, Slot)],
        network: &Network,
        tolerance: f64,
        flows: &mut LiveFlows,
    ) {
        self.residuals.clear();
        self.residuals.extend(network.fabric().limits());
        self.shares.resize(self.residuals.len(), LinkShare::default());
        if let InterQueueSharing::Weighted(weights) = self.weights.clone() {
            let totals = total_weights(order, &weights, network);
            for coflows in order.chunk_by(|a, b| a.0 == b.0) {
                let weight = weights[coflows[0].0];
                let share = |(capacity, total): (f64, &f64)| {
                    if *total > 0.0 { capacity * weight / total } else { 0.0 }
                };
                let mut shares: Vec<f64> = network.fabric().limits().zip(&totals).map(share).collect();
                for &(_, slot) in coflows {
                    self.share_evenly(slot, &mut shares, network, tolerance, flows);
                }
            }
        }
        let mut residuals = std::mem::take(&mut self.residuals);
        for &(_, slot) in order {
            self.share_evenly(slot, &mut residuals, network, tolerance, flows);
        }
        self.residuals = residuals;
    }
}

/// By link: the total weight of the queues with a coflow at the link.
fn total_weights(order: &[(usize, Slot)], weights: &[f64], network: &Network) -> Vec<f64> {
    let mut totals = vec![0.0; network.fabric().links()];
    let mut counted = vec![usize::MAX; totals.len()];
    for &(class, slot) in order {
        let live = network.coflow(slot).links().iter().filter(|load| load.live_flow_count > 0);
        for link in live.map(|load| load.link as usize) {
            if std::mem::replace(&mut counted[link], class) != class {
                totals[link] += weights[class];
            }
        }
    }
    totals
}
