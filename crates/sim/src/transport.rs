//! Transports: set the rates of flows that a policy leaves open, by sharing ports among queues and queues among flows.
//!
//! A policy that sets all rates needs no transport. A transport computes the steady-state rates and the bytes sent.

mod coordinated_queues;
mod port_max_min;
mod routed_max_min;
mod sender_queues;

use weir_core::allocation::{Allocation, IntraQueueSharing, QueueDiscipline, ReceiverMode};
use weir_core::model::{CompletedFlow, Network, Slot, Trunks};
use weir_core::solve::SwitchMaxMin;

use crate::replay::error::ReplayError;
use crate::replay::options::NetworkModel;
use coordinated_queues::CoordinatedQueues;
use port_max_min::PortMaxMin;
use routed_max_min::RoutedMaxMin;
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

/// Moves flows whose rates the policy leaves open.
pub(crate) trait Transport {
    /// Starts a flow at `now`, with `remaining_bytes` bytes to send.
    fn start_flow(&mut self, slot: Slot, flow: u32, remaining_bytes: f64, network: &Network, now: f64);

    /// Stops a flow. Returns the bytes that it has left.
    fn stop_flow(&mut self, slot: Slot, flow: u32, network: &Network, now: f64) -> f64;

    /// Computes the rates for a new decision at `now`.
    fn update_rates(&mut self, network: &Network, allocation: &Allocation, now: f64);

    /// The end of the next flow; infinite if no flow ends.
    fn next_completion(&mut self) -> f64;

    /// Ends the flows that end until `until` at the present rates.
    fn complete_flows_until(&mut self, until: f64, network: &Network, completed: &mut Vec<CompletedFlow>);

    /// The rate of a live flow, in bytes per second.
    fn flow_rate(&self, slot: Slot, flow: u32, network: &Network) -> f64;

    /// The progress of a coflow; `None` if no policy needs it.
    fn coflow_progress(&self, slot: Slot) -> Option<SentProgress>;
}

/// Creates the transport for these queues on a network with an optional limit in addition to ports.
///
/// # Errors
/// [`ReplayError::TooManyPorts`] if max-min does not support so many ports; [`ReplayError::QueuesOverTrunks`] for FIFO
/// queues on a network with links between switches.
pub(crate) fn build_transport(
    queues: &QueueDiscipline,
    network: &Network,
    network_model: Option<&NetworkModel>,
) -> Result<Box<dyn Transport>, ReplayError> {
    let fabric = network.fabric();
    let goodput = match network_model {
        Some(NetworkModel::Trunks(trunks)) => {
            return match queues.intra_queue {
                IntraQueueSharing::MaxMin => Ok(Box::new(RoutedMaxMin::new(fabric, Trunks::clone(trunks)))),
                IntraQueueSharing::Fifo => Err(ReplayError::QueuesOverTrunks),
            };
        }
        Some(NetworkModel::Goodput(goodput)) => Some(goodput.clone()),
        None => None,
    };
    Ok(match (queues.intra_queue, queues.receiver_mode) {
        (IntraQueueSharing::MaxMin, _) if fabric.ports() > SwitchMaxMin::MAX_PORTS => {
            return Err(ReplayError::TooManyPorts(fabric.ports()));
        }
        (IntraQueueSharing::MaxMin, _) => Box::new(PortMaxMin::new(fabric, goodput)),
        (IntraQueueSharing::Fifo, ReceiverMode::Transport) => {
            Box::new(SenderQueues::new(queues, fabric, goodput))
        }
        (IntraQueueSharing::Fifo, ReceiverMode::SameQueues) => {
            Box::new(CoordinatedQueues::new(queues, fabric, goodput))
        }
    })
}
