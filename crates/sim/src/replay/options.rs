//! How to replay a workload, and on what.

use std::sync::Arc;

use weir_core::model::{Goodput, Trunks};
use weir_core::units::{Rate, Time};

/// How to replay.
#[derive(Debug, Clone)]
pub struct Options {
    /// The rate of each port, each way, except with [`NetworkModel::Trunks`], which has the rates of ports.
    pub port_rate: Rate,
    /// The scheduling interval δ. Schedules are computed at multiples of it only, and the ports of a flow that ends in between are
    /// idle until the next schedule. An event of the workload (a port changes its rate, a flow restarts or loses its data) is
    /// scheduled at once. Zero: a schedule at every change.
    pub interval: Time,
    /// Whether to keep the end of every flow.
    pub keep_flows: bool,
    /// The bottleneck other than ports, if there is one. Policies do not see it.
    pub behind: Option<NetworkModel>,
}

/// A bottleneck other than ports.
#[derive(Debug, Clone)]
pub enum NetworkModel {
    /// Receiving ports to which many flows send.
    Goodput(Arc<Goodput>),
    /// Links between switches. Port 0 of the workload is the first host of their topology, and ports have the rates of the cables of
    /// hosts.
    Trunks(Arc<Trunks>),
}

impl Options {
    /// Events this close together, in seconds, are simultaneous: a millionth of the interval, but at most 10 ns, in which a flow sends
    /// next to nothing.
    pub(super) fn slack(&self) -> f64 {
        (self.interval.get() * 1e-6).min(1e-8)
    }
}

impl Default for Options {
    /// 1 Gbit/s ports and 8 ms, as in the Saath paper.
    fn default() -> Options {
        Options {
            port_rate: Rate::GBIT,
            interval: Time::new(8e-3).expect("8 ms is a valid time"),
            keep_flows: false,
            behind: None,
        }
    }
}
