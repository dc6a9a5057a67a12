//! Queues with FIFO by coflow inside, at senders, over trunks: Aalo on a fabric.
//!
//! As [`super::sender_queues`], which is faster and for one switch only. Every sending port shares its rate among its queues,
//! and each queue's share goes to its first coflow, evenly over that coflow's flows at the port. The other links share their
//! capacity max-min between flows, at most at the offered rates. The residual capacity goes to the coflows in the order of
//! queues.

use crate::allocation::InterQueueSharing;
use crate::model::{Network, Slot};
use crate::solve::ResidualCapacity;

use super::row_transport::{LiveFlows, RowRates};

mod row_max_min;

use row_max_min::{OfferedRow, RowMaxMin};

/// The first coflow of a queue of a sender.
#[derive(Debug, Clone, Copy)]
struct QueueHead {
    /// The sending link.
    src: u32,
    slot: Slot,
    weight: f64,
    flow_count: u32,
}

/// Queues at senders, and max-min shares of the links after them.
pub(super) struct LinkQueues {
    weights: InterQueueSharing,
    heads: Vec<QueueHead>,
    max_min: RowMaxMin,
    /// By sending link: the class of its last head.
    last_class: Vec<Option<usize>>,
    /// By sending link: the total weight of its heads.
    total_weights: Vec<f64>,
    /// By link: capacity that no flow uses.
    residuals: Vec<f64>,
    residual_capacity: ResidualCapacity,
}

impl LinkQueues {
    pub(super) fn new(weights: InterQueueSharing) -> LinkQueues {
        LinkQueues {
            weights,
            heads: Vec::new(),
            max_min: RowMaxMin::default(),
            last_class: Vec::new(),
            total_weights: Vec::new(),
            residuals: Vec::new(),
            residual_capacity: ResidualCapacity::default(),
        }
    }

    /// Finds the first coflow of each queue of each sender; with strict priority, of the first queue only. O(senders of all
    /// coflows).
    fn find_queue_heads(&mut self, order: &[(usize, Slot)], network: &Network) {
        self.heads.clear();
        self.last_class.clear();
        self.last_class.resize(network.fabric().links(), None);
        for &(class, slot) in order {
            let (weight, is_strict) = match &self.weights {
                InterQueueSharing::Weighted(weights) => (weights[class], false),
                InterQueueSharing::StrictPriority(_) => (1.0, true),
            };
            let senders = network.coflow(slot).senders().iter();
            for load in senders.filter(|load| load.live_flow_count > 0) {
                let last = &mut self.last_class[load.link as usize];
                if last.is_none() || (!is_strict && *last != Some(class)) {
                    *last = Some(class);
                    let flow_count = load.live_flow_count;
                    self.heads.push(QueueHead { src: load.link, slot, weight, flow_count });
                }
            }
        }
    }

    /// Offers each head its queue's share of the sender. O(heads log rows + their rows).
    fn offer_rates(&mut self, network: &Network, flows: &LiveFlows) {
        let capacities = network.fabric().capacities();
        self.total_weights.clear();
        self.total_weights.resize(capacities.len(), 0.0);
        for head in &self.heads {
            self.total_weights[head.src as usize] += head.weight;
        }
        self.max_min.clear();
        for &QueueHead { src, slot, weight, flow_count } in &self.heads {
            let rate = if network.fabric().has_limiting_ports() {
                capacities[src as usize] * weight / self.total_weights[src as usize] / f64::from(flow_count)
            } else {
                // More than all links of a region carry: no queue waits for the share of another.
                capacities[src as usize]
            };
            if rate > 0.0 {
                self.max_min.offer(slot, flows.coflow(slot).sender_rows(src), rate);
            }
        }
    }

    /// Adds the rates of the offered rows to those of their coflows, and subtracts them from their links. O(flows of the rows).
    fn count_rates(&mut self, flows: &mut LiveFlows) {
        for OfferedRow { slot, row, .. } in self.max_min.rows() {
            let coflow = flows.coflow(*slot);
            let mut row_rate = 0.0;
            let entries = row.entries.clone();
            for (&rate, &receiver) in
                coflow.rates[entries.clone()].iter().zip(&coflow.receiver_links[entries])
            {
                self.residuals[receiver as usize] -= rate;
                row_rate += rate;
            }
            for &link in &coflow.row_links[row.links.clone()] {
                self.residuals[link as usize] -= row_rate;
            }
            if row_rate > 0.0 {
                flows.coflow_with_rate(*slot).total_rate += row_rate;
            }
        }
    }

    /// Gives the residual capacity to the coflows in the order of queues.
    fn reassign_residual(&mut self, order: &[(usize, Slot)], network: &Network, flows: &mut LiveFlows) {
        self.residual_capacity.set_residuals(network.fabric(), &self.residuals);
        for &(_, slot) in order {
            if self.residual_capacity.is_exhausted() {
                break;
            }
            self.residual_capacity.fill_flows(network.coflow(slot), |flow, rate| {
                flows.coflow_with_rate(slot).add_rate(flow, rate);
            });
        }
    }
}

impl RowRates for LinkQueues {
    fn set_rates(
        &mut self,
        order: &[(usize, Slot)],
        network: &Network,
        tolerance: f64,
        flows: &mut LiveFlows,
    ) {
        self.find_queue_heads(order, network);
        self.offer_rates(network, flows);
        self.residuals.clear();
        self.residuals.extend_from_slice(network.fabric().capacities());
        self.max_min.set_rates(&self.residuals, tolerance, flows);
        self.count_rates(flows);
        self.reassign_residual(order, network, flows);
    }
}
