//! Reads the state of the control plane: coflows, rates, hosts and counters.

use std::ops::Bound;
use std::sync::Arc;

use weir_core::allocation::Allocation;
use weir_proto::{BandwidthLimit, Conflict, FlowKey, OrderedRate, RefusedOrders, RestoredObjects};

use super::{Coflow, CoflowOutline, ControlPlane, PauseMode, Registration, RejectedEntries, Transfer};
use crate::coflow_status::{CoflowSummary, Phase, WideAreaFields};
use crate::quota::{CoflowQuota, UsageByService};

/// Current state of a coflow.
#[derive(Debug, Clone, PartialEq)]
pub struct CoflowStatus {
    /// The last registration or update.
    pub registration: Registration,
    /// The flows of the first registration, if an update replaced them.
    pub first_flows: Option<Vec<Transfer>>,
    /// The same facts as in a list of coflows.
    pub summary: CoflowSummary,
    /// Its flows, by flow index.
    pub flows: Vec<FlowStatus>,
}

/// Progress of a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowStatus {
    /// Bytes sent.
    pub sent_bytes: f64,
    /// Whether the flow has completed.
    pub is_completed: bool,
    /// The last ordered rate; `None` after completion, or if the host receives no orders.
    pub ordered_rate: Option<OrderedRate>,
    /// The pause that applies to it.
    pub pause: Option<PauseMode>,
    /// The rate that it would have, in shadow mode.
    pub shadow_rate: Option<OrderedRate>,
}

/// The ordered rate of a flow.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowAllocation {
    /// Coflow id and flow index.
    pub key: FlowKey,
    /// Hosts and size of the flow.
    pub transfer: Transfer,
    /// The last ordered rate.
    pub ordered_rate: OrderedRate,
    /// The rate that it would have, in shadow mode.
    pub shadow_rate: Option<OrderedRate>,
}

/// Current state of a host or switch.
#[derive(Debug, Clone, PartialEq)]
pub struct HostStatus {
    /// Seconds since its last report; `None` before the first.
    pub seconds_since_report: Option<f64>,
    /// Whether schedules include it.
    pub present: bool,
    /// Sequence number of the last order sent to it.
    pub ordered_seq: u64,
    /// Sequence number of the last order that it reported as applied; 0 if that order was of another coordinator.
    pub applied_seq: u64,
    /// The interfaces that differ from the orders, by the last report.
    pub conflicts: Vec<Conflict>,
    /// The limit of what a host sends, as a fraction of its link.
    pub bandwidth_fraction: Option<f64>,
    /// The limit that its interfaces have, by the last report.
    pub applied_bandwidth_fraction: Option<f64>,
    /// The number of connections that a host may have, if it follows the loss.
    pub max_connections: Option<u32>,
    /// The pause that applies to it.
    pub pause: Option<PauseMode>,
}

impl ControlPlane {
    /// Number of rejected report entries since the start.
    pub fn rejected_entries(&self) -> RejectedEntries {
        self.rejected_entries
    }

    /// Number of orders that agents have refused, by their reports. Includes orders that they refused before the start of
    /// this coordinator.
    pub fn refused_orders(&self) -> RefusedOrders {
        self.refused_orders
    }

    /// Number of kernel objects that agents have restored, by their reports.
    pub fn restored_objects(&self) -> RestoredObjects {
        self.restored_objects
    }

    /// The last decision of the policy.
    pub fn allocation(&self) -> &Allocation {
        self.engine.allocation()
    }

    /// Number of active coflows.
    pub fn active_coflow_count(&self) -> usize {
        self.engine.network().active_coflows().len()
    }

    /// Number of known coflows, active or completed, and the number of their flows.
    pub fn coflow_and_flow_counts(&self) -> (usize, usize) {
        (self.coflows.len(), self.usage.total().flows)
    }

    /// Whether a coflow has completed; `None` if it is not registered.
    pub fn is_completed(&self, id: &str) -> Option<bool> {
        self.coflows.get(id).map(|coflow| coflow.completed_at.is_some())
    }

    /// Ids of the coflows that completed since the last call, in order of completion. Completed coflows are kept for
    /// [`Settings::keep_completed`].
    ///
    /// [`Settings::keep_completed`]: super::Settings::keep_completed
    pub fn take_completed(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.completed)
    }

    /// At most `max` coflows in order of ids, after the id `after` or from the first one.
    pub fn coflow_summaries(&self, after: Option<&str>, max: usize) -> Vec<CoflowSummary> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let coflows = self.coflows.range::<str, _>((from, Bound::Unbounded));
        coflows.take(max).map(|(id, coflow)| self.summary(id, coflow)).collect()
    }

    /// The service and the phase of a coflow; `None` if it is not registered.
    pub fn service_and_phase(&self, id: &str) -> Option<(String, Phase)> {
        self.coflows.get(id).map(|coflow| (coflow.registration.service.clone(), coflow.phase()))
    }

    /// A coflow without its list of flows; `None` if it is not registered.
    pub fn coflow_outline(&self, id: &str) -> Option<CoflowOutline> {
        self.coflows.get(id).map(|coflow| CoflowOutline::from(&coflow.registration))
    }

    fn summary(&self, id: &Arc<str>, coflow: &Coflow) -> CoflowSummary {
        CoflowSummary {
            id: id.to_string(),
            service: coflow.registration.service.clone(),
            application: coflow.registration.application.clone(),
            state: coflow.phase(),
            flow_count: coflow.flows.len(),
            completed_flow_count: coflow.flows.iter().filter(|flow| flow.is_completed).count(),
            sent_bytes: coflow.sent_bytes,
            class: coflow.slot.map(|slot| self.engine.allocation().class(slot)),
            pause: coflow.flows.iter().filter(|flow| !flow.is_completed).filter_map(|flow| flow.pause).max(),
            wide_area: WideAreaFields::default(),
        }
    }

    /// State of a coflow; `None` if it is not registered.
    pub fn coflow_status(&self, id: &str) -> Option<CoflowStatus> {
        let (id, coflow) = self.coflows.get_key_value(id)?;
        let to_flow_status = |flow: &super::Flow| FlowStatus {
            sent_bytes: flow.sent_bytes,
            is_completed: flow.is_completed,
            ordered_rate: flow.applied_rate(&self.hosts),
            pause: flow.pause,
            shadow_rate: flow.shadow_rate.filter(|_| flow.applied_rate(&self.hosts).is_some()),
        };
        Some(CoflowStatus {
            registration: coflow.registration.clone(),
            first_flows: coflow.first_flows.clone(),
            summary: self.summary(id, coflow),
            flows: coflow.flows.iter().map(to_flow_status).collect(),
        })
    }

    /// At most `max` ordered rates in order of keys, after the flow `after` (coflow id and flow index) or from the first one.
    pub fn flow_allocations(&self, after: Option<(&str, u32)>, max: usize) -> Vec<FlowAllocation> {
        let from = after.map_or(Bound::Unbounded, |(id, _)| Bound::Included(id));
        let coflows = self.coflows.range::<str, _>((from, Bound::Unbounded));
        let allocations = coflows.flat_map(|(id, coflow)| {
            (0u32..).zip(&coflow.flows).filter_map(move |(index, flow)| {
                Some(FlowAllocation {
                    key: coflow.flow_key(id, index),
                    transfer: flow.transfer,
                    ordered_rate: flow.applied_rate(&self.hosts)?,
                    shadow_rate: flow.shadow_rate,
                })
            })
        });
        let is_after =
            |flow: &FlowAllocation| after.is_none_or(|after| (&*flow.key.coflow, flow.key.flow) > after);
        allocations.filter(is_after).take(max).collect()
    }

    /// State of all hosts and then of all switches, by number.
    pub fn host_statuses(&self) -> Vec<HostStatus> {
        let counts = self.connection_counts();
        let max_connections = |number: usize| counts.as_ref()?.get(number).copied();
        let to_status = |(number, host): (usize, &super::Host)| HostStatus {
            seconds_since_report: host.last_report_at.map(|reported_at| self.now - reported_at),
            present: host.present,
            ordered_seq: host.orders.ordered_seq,
            applied_seq: host.orders.applied_seq,
            conflicts: host.conflicts.clone(),
            bandwidth_fraction: host.bandwidth.limit().map(BandwidthLimit::fraction),
            applied_bandwidth_fraction: host.bandwidth.reported.map(BandwidthLimit::fraction),
            max_connections: max_connections(number),
            pause: host.pause_mode(),
        };
        self.hosts.iter().enumerate().map(to_status).collect()
    }
}

impl CoflowQuota for ControlPlane {
    fn usage_by_service(&self) -> &UsageByService {
        &self.usage
    }

    fn service_and_flow_count(&self, id: &str) -> Option<(&str, usize)> {
        self.coflows.get(id).map(|coflow| (&*coflow.registration.service, coflow.flows.len()))
    }
}
