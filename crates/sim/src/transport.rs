//! What the network makes of flows without rates: ports share among their queues, and flows among themselves.
//!
//! A policy that sets rates needs none of this. One that leaves them to the transport gets the rates that it would
//! settle at, and the bytes that were sent at them.

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

/// How far a coflow is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    /// Bytes that all its flows have sent until `at`.
    pub sent: f64,
    /// At which rate that goes on.
    pub rate: f64,
    /// When, in seconds.
    pub at: f64,
}

/// Flows on their way without rates of their own.
pub(crate) trait Transport {
    /// A flow can send from `now` on; `left` bytes of it are not sent yet.
    fn start(&mut self, slot: Slot, flow: u32, left: f64, network: &Network, now: f64);

    /// A flow cannot send any more. Answers with what it has left, in bytes.
    fn stop(&mut self, slot: Slot, flow: u32, network: &Network, now: f64) -> f64;

    /// Settles the rates anew, for a new decision at `now`.
    fn settle(&mut self, network: &Network, allocation: &Allocation, now: f64);

    /// When the next flow ends; infinite if none does.
    fn next_end(&mut self) -> f64;

    /// Ends the flows that the rates end until `limit`.
    fn run_out(&mut self, limit: f64, network: &Network, ended: &mut Vec<Ended>);

    /// The rate of a live flow in bytes per second.
    fn rate(&self, slot: Slot, flow: u32, network: &Network) -> f64;

    /// How far a coflow is; `None` where no policy asks.
    fn progress(&self, slot: Slot) -> Option<Progress>;
}

/// The transport that realises these queues on a network where besides ports that is short.
///
/// # Errors
/// If there is none for so many ports, or for these queues on such a network.
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
