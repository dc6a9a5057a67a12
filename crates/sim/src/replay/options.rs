//! Options of a replay.

use std::sync::Arc;

use weir_core::engine::DecidesOver;
use weir_core::model::topology::CableEvent;
use weir_core::model::{Goodput, Trunks};
use weir_core::units::{Rate, Time};

use crate::regions::RegionLinks;

/// Options of a replay.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// The rate of each port in each direction. With [`NetworkModel::trunks`], the topology's rates apply instead.
    pub port_rate: Rate,
    /// The scheduling interval δ. Schedules are computed only at its multiples, and the ports of a flow that ends between
    /// two schedules are idle until the next one. An event of the workload (a port changes its rate, a flow restarts or
    /// loses its data) triggers a schedule at once. Zero: a schedule at every change.
    pub interval: Time,
    /// Whether the outcome contains the end and the path of every flow.
    pub keep_flow_ends: bool,
    /// Whether the outcome contains the utilization of links over time. This costs O(live flows) at the end of each of at most 128
    /// parts, and of 64 more whenever their length doubles.
    pub keep_link_use: bool,
    /// The network between the ports.
    pub network: NetworkModel,
}

/// The network between the ports. The default is one switch.
#[derive(Debug, Clone, Default)]
pub struct NetworkModel {
    /// Trunks between switches. Port 0 of the workload is the first host of their topology, and ports have the rates of the
    /// hosts' cables.
    pub trunks: Option<Arc<Trunks>>,
    /// Failures, repairs and rate changes of cables of the trunks' topology, valid for [`CableEvent::check`].
    pub cable_events: Arc<[CableEvent]>,
    /// Links between regions, over which [`crate::regions`] lays out the workload. They replace the port rate and the trunks.
    pub regions: Option<RegionLinks>,
    /// The capacity of receiving ports by their number of senders, if it is not constant. Policies decide without it.
    pub goodput: Option<Arc<Goodput>>,
    /// The links that policies decide over.
    pub decides_over: DecidesOver,
}

impl ReplayOptions {
    /// Options for links between regions: a schedule at every change.
    pub fn between_regions(regions: RegionLinks) -> ReplayOptions {
        let network = NetworkModel { regions: Some(regions), ..NetworkModel::default() };
        ReplayOptions { interval: Time::ZERO, network, ..ReplayOptions::default() }
    }

    /// Events within this time, in seconds, are simultaneous: a millionth of the interval, but at most 10 ns, in which a
    /// flow sends a negligible number of bytes.
    pub(crate) fn slack_seconds(&self) -> f64 {
        (self.interval.get() * 1e-6).min(1e-8)
    }
}

impl Default for ReplayOptions {
    /// 1 Gbit/s ports and an interval of 8 ms, as in the Saath paper.
    fn default() -> ReplayOptions {
        ReplayOptions {
            port_rate: Rate::GBIT,
            interval: Time::new(8e-3).expect("8 ms is a valid time"),
            keep_flow_ends: false,
            keep_link_use: false,
            network: NetworkModel::default(),
        }
    }
}
