//! Transports: set the rates of flows that a policy leaves open, by sharing ports among queues and queues among flows.
//!
//! A policy that sets all rates needs no transport. A transport computes the steady-state rates and the bytes sent.

mod coordinated_queues;
mod limited_queues;
mod max_min;
mod sender_queues;

use std::sync::Arc;

use crate::allocation::{Allocation, IntraQueueSharing, QueueDiscipline, ReceiverMode};
use crate::model::{CompletedFlow, Goodput, Network, Slot};

use coordinated_queues::CoordinatedQueues;
pub(crate) use limited_queues::limited_queue_rates;
use max_min::MaxMin;
use sender_queues::SenderQueues;

/// Progress of a coflow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentProgress {
    /// Bytes sent by all its flows until `time`.
    pub sent_bytes: f64,
    /// Their rate from `time` on, in bytes per second.
    pub rate: f64,
    /// The time, in seconds.
    pub time: f64,
}

impl SentProgress {
    /// Bytes sent until `at`, which is not before `time`.
    pub(crate) fn sent_bytes_at(&self, at: f64) -> f64 {
        self.sent_bytes + self.rate * (at - self.time)
    }
}

/// Moves flows whose rates the policy leaves open.
pub(crate) trait Transport: Send {
    /// Adds a flow with `remaining_bytes` bytes to send, which gets a rate at the next update.
    fn start_flow(&mut self, slot: Slot, flow: u32, remaining_bytes: f64, network: &Network);

    /// Stops a flow. Returns the bytes that it has left.
    fn stop_flow(&mut self, slot: Slot, flow: u32, network: &Network, now: f64) -> f64;

    /// Computes the rates for a new decision at `now`.
    fn update_rates(&mut self, network: &Network, allocation: &Allocation, now: f64);

    /// The end of the next flow; infinite if no flow ends.
    fn next_completion(&mut self) -> f64;

    /// Ends the flows that end until `until` at the present rates.
    fn complete_flows_until(&mut self, until: f64, network: &Network, completed: &mut Vec<CompletedFlow>);

    /// The rate of a live flow, in bytes per second.
    fn flow_rate(&self, slot: Slot, flow: u32) -> f64;

    /// The bytes that a live flow has left at `at`, which is between the last update and the next.
    fn remaining_bytes(&self, slot: Slot, flow: u32, at: f64) -> f64;

    /// The progress of a coflow; `None` if no policy needs it.
    fn coflow_progress(&self, slot: Slot) -> Option<SentProgress>;
}

/// Writes the active coflows to `order`, with their classes: by class, then by release.
fn order_by_class(order: &mut Vec<(usize, Slot)>, network: &Network, allocation: &Allocation) {
    order.clear();
    order.extend(network.active_coflows().iter().map(|&slot| (allocation.class(slot), slot)));
    // The active coflows are in the order of release, and the sort is stable.
    order.sort_by_key(|&(class, _)| class);
}

/// Creates the transport for these queues. `goodput` is the capacity of receiving ports by their number of senders.
pub(crate) fn build_transport(
    queues: &QueueDiscipline,
    network: &Network,
    goodput: Option<Arc<Goodput>>,
) -> Box<dyn Transport> {
    let fabric = network.fabric();
    match (queues.intra_queue, queues.receiver_mode) {
        (IntraQueueSharing::MaxMin, _) => Box::new(MaxMin::new(fabric, goodput)),
        (IntraQueueSharing::Fifo, ReceiverMode::Transport) => {
            Box::new(SenderQueues::new(queues, fabric, goodput))
        }
        (IntraQueueSharing::Fifo, ReceiverMode::SameQueues) => {
            Box::new(CoordinatedQueues::new(queues.inter_queue.clone(), goodput))
        }
    }
}
