//! Transports: set the rates of flows that a policy leaves open, by sharing ports among queues and queues among flows.
//!
//! A policy that sets all rates needs no transport. A transport computes the steady-state rates and the bytes sent.

mod coordinated;
mod local;
mod routed;
mod shared;

use weir_core::allocation::{Allocation, Inside, Queues, Receivers};
use weir_core::model::{Ended, Network, Slot, Trunks};
use weir_core::solve::Levels;

use crate::replay::error::ReplayError;
use crate::replay::options::NetworkModel;
use coordinated::Coordinated;
use local::Local;
use routed::Routed;
use shared::Shared;

/// Progress of a coflow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    /// Bytes sent by all its flows until `at`.
    pub sent: f64,
    /// Their rate from `at` on, in bytes per second.
    pub rate: f64,
    /// The time, in seconds.
    pub at: f64,
}

/// Moves flows whose rates the policy leaves open.
pub(crate) trait Transport {
    /// Starts a flow at `now`, with `left` bytes to send.
    fn start(&mut self, slot: Slot, flow: u32, left: f64, network: &Network, now: f64);

    /// Stops a flow. Returns the bytes that it has left.
    fn stop(&mut self, slot: Slot, flow: u32, network: &Network, now: f64) -> f64;

    /// Computes the rates for a new decision at `now`.
    fn settle(&mut self, network: &Network, allocation: &Allocation, now: f64);

    /// The end of the next flow; infinite if no flow ends.
    fn next_end(&mut self) -> f64;

    /// Ends the flows that end until `limit` at the present rates.
    fn run_out(&mut self, limit: f64, network: &Network, ended: &mut Vec<Ended>);

    /// The rate of a live flow, in bytes per second.
    fn rate(&self, slot: Slot, flow: u32, network: &Network) -> f64;

    /// The progress of a coflow; `None` if no policy needs it.
    fn progress(&self, slot: Slot) -> Option<Progress>;
}

/// Creates the transport for these queues on a network with an optional limit in addition to ports.
///
/// # Errors
/// [`ReplayError::Ports`] if max-min does not support so many ports; [`ReplayError::Queues`] for FIFO queues on a network
/// with links between switches.
pub(crate) fn realise(
    queues: &Queues,
    network: &Network,
    behind: Option<&NetworkModel>,
) -> Result<Box<dyn Transport>, ReplayError> {
    let fabric = network.fabric();
    let goodput = match behind {
        Some(NetworkModel::Trunks(trunks)) => {
            return match queues.inside {
                Inside::MaxMin => Ok(Box::new(Routed::new(fabric, Trunks::clone(trunks)))),
                Inside::Fifo => Err(ReplayError::Queues),
            };
        }
        Some(NetworkModel::Goodput(goodput)) => Some(goodput.clone()),
        None => None,
    };
    Ok(match (queues.inside, queues.receivers) {
        (Inside::MaxMin, _) if fabric.ports() > Levels::MAX_PORTS => {
            return Err(ReplayError::Ports(fabric.ports()));
        }
        (Inside::MaxMin, _) => Box::new(Shared::new(fabric, goodput)),
        (Inside::Fifo, Receivers::Transport) => Box::new(Local::new(queues, fabric, goodput)),
        (Inside::Fifo, Receivers::Queues) => Box::new(Coordinated::new(queues, fabric, goodput)),
    })
}
