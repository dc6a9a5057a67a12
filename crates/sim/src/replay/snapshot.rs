//! What an observer of a replay sees.

use weir_core::allocation::{Allocation, CommonRate};
use weir_core::engine::Engine;
use weir_core::model::{Coflow, Fabric, LinkKind, Slot, Trunks, Workload};

use crate::outcome::CoflowOutcome;
use crate::port_numbering::PortNumbering;

/// The network between two schedules, for an [`Observer`].
///
/// Ports are numbered in the order in which coflows list them; [`Snapshot::workload_port`] returns the workload's number.
pub struct Snapshot<'a> {
    pub(super) workload: &'a Workload,
    pub(super) has_cable_events: bool,
    pub(super) nominal_rates: &'a [f64],
    pub(super) engine: &'a Engine,
    pub(super) ports: &'a PortNumbering,
    pub(super) now: f64,
}

impl Snapshot<'_> {
    /// The start of the time between the schedules, in seconds.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// Whether hosts and switches decided without the coordinator, whose next schedule follows.
    pub fn is_between_schedules(&self) -> bool {
        self.engine.has_new_events()
    }

    /// The ports.
    pub fn fabric(&self) -> &Fabric {
        self.engine.network().fabric()
    }

    /// The replayed workload; between regions, with the merged flows of [`crate::regions`].
    pub fn workload(&self) -> &Workload {
        self.workload
    }

    /// Whether cables change during the replay.
    pub fn has_cable_events(&self) -> bool {
        self.has_cable_events
    }

    /// The capacities at the start by link, in bytes per second. Between regions, the mean
    /// bandwidths.
    pub fn nominal_rates(&self) -> &[f64] {
        self.nominal_rates
    }

    /// The capacities of all links in bytes per second. Also contains trunks that the policy does not decide over.
    pub fn link_capacities(&self) -> impl Iterator<Item = f64> {
        self.engine.link_capacities()
    }

    /// What a link is.
    pub fn link_kind(&self, link: usize) -> LinkKind {
        self.engine.link_kind(link)
    }

    /// The links between switches or regions, also if the policy does not decide over them.
    pub fn trunks(&self) -> Option<&Trunks> {
        self.engine.trunks()
    }

    /// The links that a flow crosses.
    pub fn flow_links(&self, slot: Slot, flow: u32) -> impl Iterator<Item = usize> {
        self.engine.flow_links(slot, flow)
    }

    /// Whether rates can be below those that the policy decided.
    pub fn has_limited_rates(&self) -> bool {
        self.engine.has_capacity_limits()
    }

    /// Whether the capacity of receiving ports depends on the number of flows.
    pub fn has_incast(&self) -> bool {
        self.engine.goodput().is_some()
    }

    /// The fraction of a link's capacity that remains if this number of flows uses the link: below 1 at receiving ports with incast.
    pub fn goodput_fraction(&self, link: usize, flow_count: usize) -> f64 {
        let is_receiver = self.fabric().receivers().contains(link);
        self.engine.goodput().filter(|_| is_receiver).map_or(1.0, |goodput| goodput.utilization(flow_count))
    }

    /// The rate of a live flow by the decided common rate of its coflow, in bytes per second. Limits outside of the policy's decision
    /// can reduce it.
    pub fn decided_common_rate(&self, slot: Slot, flow: u32) -> f64 {
        match self.allocation().common(slot) {
            CommonRate::None => 0.0,
            CommonRate::Equal(rate) => rate,
            CommonRate::CompleteTogether(seconds) => {
                // By the sizes that the policy knows or estimates.
                self.engine.network().remaining_bytes(slot, flow, self.now) / seconds
            }
        }
    }

    /// The workload's number of a port.
    pub fn workload_port(&self, number: u32) -> u32 {
        self.ports.port_with_number(number)
    }

    /// The active coflows, in the order of release.
    pub fn active(&self) -> &[Slot] {
        self.engine.network().active_coflows()
    }

    /// An active coflow.
    pub fn coflow(&self, slot: Slot) -> &Coflow {
        self.engine.network().coflow(slot)
    }

    /// In a policy tree: the slices of a coflow's leaf, by side of a port; see [`Engine::slices`].
    pub fn slices(&self, slot: Slot) -> Option<&[f64]> {
        self.engine.slices(slot)
    }

    /// The rate of a flow (by its index in the coflow), in bytes per second.
    pub fn rate(&self, slot: Slot, flow: u32) -> f64 {
        self.engine.flow_rate(slot, flow)
    }

    /// The bytes that a flow has left. `None` under a transport, which changes rates whenever a flow ends.
    pub fn remaining_bytes(&self, slot: Slot, flow: u32) -> Option<f64> {
        let coflow = self.coflow(slot);
        let spec = &self.workload.coflows[coflow.workload_index].flows[coflow.spec_index(flow) as usize];
        let remaining = || (spec.bytes.get() - self.engine.sent_bytes(slot, flow, self.now)).max(0.0);
        self.allocation().queue_discipline().is_none().then(remaining)
    }

    /// The allocation of the schedule.
    pub fn allocation(&self) -> &Allocation {
        self.engine.allocation()
    }
}

/// Observes a replay.
pub trait Observer {
    /// Called after each schedule; the rates of `snapshot` apply until the next schedule. Returning `false` stops the replay.
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        let _ = snapshot;
        true
    }

    /// Called when a coflow completes.
    fn on_coflow_completed(&mut self, outcome: &CoflowOutcome) {
        let _ = outcome;
    }
}

/// An observer without any effect.
pub struct NoObserver;

impl Observer for NoObserver {}
