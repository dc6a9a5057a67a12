//! Read access to the control plane: coflows, rates, hosts and counters.

use std::ops::Bound;
use std::sync::Arc;

use weir_core::allocation::Allocation;
use weir_proto::{Conflict, FlowKey, Pace, Refusals, Restored};

use super::{Coflow, ControlPlane, Registration, RejectedEntries, Transfer};

/// A coflow in a list of coflows.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Id of the coflow.
    pub id: Arc<str>,
    /// The service that it belongs to.
    pub service: String,
    /// An application of that service.
    pub application: String,
    /// Number of flows.
    pub flows: usize,
    /// Number of completed flows.
    pub done: usize,
    /// Bytes sent, summed over all flows.
    pub sent: f64,
    /// Its class in the last schedule, from 0; `None` after completion.
    pub class: Option<usize>,
}

/// Current state of a coflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// The last registration or update.
    pub registration: Registration,
    /// The flows of the first registration, if an update replaced them.
    pub first: Option<Vec<Transfer>>,
    /// Its class in the last schedule, from 0; `None` after completion.
    pub class: Option<usize>,
    /// Its flows, by flow index.
    pub flows: Vec<Progress>,
}

/// Progress of a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Bytes sent.
    pub sent: f64,
    /// Whether the flow has completed.
    pub done: bool,
    /// The last ordered pace; `None` after completion, or if the host receives no orders.
    pub pace: Option<Pace>,
}

/// The ordered pace of a flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    /// Coflow id and flow index.
    pub key: FlowKey,
    /// Hosts and size of the flow.
    pub transfer: Transfer,
    /// The last ordered pace.
    pub pace: Pace,
}

/// Current state of a host or switch.
#[derive(Debug, Clone, PartialEq)]
pub struct HostState {
    /// Seconds since its last report; `None` before the first.
    pub silent: Option<f64>,
    /// Whether schedules include it.
    pub present: bool,
    /// Sequence number of the last order sent to it.
    pub told: u64,
    /// Sequence number of the last order that it reported as applied; 0 if that order was another coordinator's.
    pub obeys: u64,
    /// The interfaces that differ from the orders, by the last report.
    pub conflicts: Vec<Conflict>,
}

impl ControlPlane {
    /// Rejected report entries.
    pub fn doubts(&self) -> RejectedEntries {
        self.doubts
    }

    /// Orders that agents of hosts and switches have refused, by their reports. Refusals before the start of this
    /// coordinator are included.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// The kernel objects that agents have restored, by their reports.
    pub fn restored(&self) -> Restored {
        self.restored
    }

    /// The last decision of the policy.
    pub fn allocation(&self) -> &Allocation {
        self.engine.allocation()
    }

    /// Number of active coflows.
    pub fn under_way(&self) -> usize {
        self.engine.network().active().len()
    }

    /// Number of known coflows, active or completed, and the number of their flows.
    pub fn known(&self) -> (usize, usize) {
        (self.coflows.len(), self.flows)
    }

    /// Whether a coflow has completed; `None` if it is not registered.
    pub fn is_over(&self, id: &str) -> Option<bool> {
        self.coflows.get(id).map(|coflow| coflow.over.is_some())
    }

    /// Ids of the coflows that completed since the last call, in order of completion. Completed coflows are kept for
    /// [`Settings::keep`].
    ///
    /// [`Settings::keep`]: super::Settings::keep
    pub fn endings(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.ended)
    }

    /// At most `most` coflows in order of ids, after an id or from the first one.
    pub fn list(&self, after: Option<&str>, most: usize) -> Vec<Summary> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let coflows = self.coflows.range::<str, _>((from, Bound::Unbounded));
        coflows.take(most).map(|(id, coflow)| self.summary(id, coflow)).collect()
    }

    /// The service of a coflow, and whether it has completed; `None` if it is not registered.
    pub fn belongs(&self, id: &str) -> Option<(String, bool)> {
        self.coflows.get(id).map(|coflow| (coflow.registration.service.clone(), coflow.slot.is_none()))
    }

    fn summary(&self, id: &Arc<str>, coflow: &Coflow) -> Summary {
        Summary {
            id: Arc::clone(id),
            service: coflow.registration.service.clone(),
            application: coflow.registration.application.clone(),
            flows: coflow.flows.len(),
            done: coflow.flows.iter().filter(|flow| flow.done).count(),
            sent: coflow.sent,
            class: self.class(coflow),
        }
    }

    fn class(&self, coflow: &Coflow) -> Option<usize> {
        coflow.slot.map(|slot| self.engine.allocation().class(slot))
    }

    /// The last ordered pace of a flow; `None` if its host receives no orders.
    fn told(&self, flow: &super::Flow) -> Option<Pace> {
        flow.told.filter(|_| self.hosts[flow.transfer.src as usize].addressed)
    }

    /// State of a coflow; `None` if it is not registered.
    pub fn show(&self, id: &str) -> Option<Standing> {
        let coflow = self.coflows.get(id)?;
        let progress =
            |flow: &super::Flow| Progress { sent: flow.sent, done: flow.done, pace: self.told(flow) };
        Some(Standing {
            registration: coflow.registration.clone(),
            first: coflow.first.clone(),
            class: self.class(coflow),
            flows: coflow.flows.iter().map(progress).collect(),
        })
    }

    /// At most `most` ordered paces in order of keys, after a key or from the first one.
    pub fn shares(&self, after: Option<&FlowKey>, most: usize) -> Vec<Share> {
        let from = after.map_or(Bound::Unbounded, |key| Bound::Included(&*key.coflow));
        let coflows = self.coflows.range::<str, _>((from, Bound::Unbounded));
        let shares = coflows.flat_map(|(id, coflow)| {
            (0u32..).zip(&coflow.flows).filter_map(move |(at, flow)| {
                let key = FlowKey { coflow: Arc::clone(id), flow: at };
                Some(Share { key, transfer: flow.transfer, pace: self.told(flow)? })
            })
        });
        shares.filter(|share| after.is_none_or(|after| share.key > *after)).take(most).collect()
    }

    /// State of all hosts and then of all switches, by number.
    pub fn hosts(&self) -> Vec<HostState> {
        let state = |host: &super::Host| HostState {
            silent: host.heard.map(|heard| self.now - heard),
            present: host.present,
            told: host.seq,
            obeys: host.obeys,
            conflicts: host.conflicts.clone(),
        };
        self.hosts.iter().map(state).collect()
    }
}
