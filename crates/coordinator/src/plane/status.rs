//! What there is to see.

use std::ops::Bound;
use std::sync::Arc;

use weir_core::allocation::Allocation;
use weir_proto::{Conflict, FlowKey, Pace, Refusals, Restored};

use super::{Coflow, ControlPlane, Registration, RejectedEntries, Transfer};

/// A coflow in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Its id.
    pub id: Arc<str>,
    /// The service and the application that it belongs to.
    pub service: String,
    /// An application of that service.
    pub application: String,
    /// How many flows it has.
    pub flows: usize,
    /// How many of these are over.
    pub done: usize,
    /// Bytes that all of them have sent.
    pub sent: f64,
    /// Its class in the last schedule, from 0; none if it is over.
    pub class: Option<usize>,
}

/// A coflow as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// As it was registered or updated last.
    pub registration: Registration,
    /// The flows that it was registered with, if it was updated.
    pub first: Option<Vec<Transfer>>,
    /// Its class in the last schedule, from 0; none if it is over.
    pub class: Option<usize>,
    /// Its flows, in their places.
    pub flows: Vec<Progress>,
}

/// How far a flow is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Bytes that it has sent.
    pub sent: f64,
    /// Whether that is all.
    pub done: bool,
    /// What its host was told last; nothing if it is over, or its host is not heard of.
    pub pace: Option<Pace>,
}

/// What a flow was given.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    /// Which.
    pub key: FlowKey,
    /// From where to where.
    pub transfer: Transfer,
    /// What its host was told last.
    pub pace: Pace,
}

/// A host or switch as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct HostState {
    /// Seconds since it was heard of; none if it never was.
    pub silent: Option<f64>,
    /// Whether schedules count on it.
    pub present: bool,
    /// The number of the last order to it, and of the last that it says it obeys; 0 if that was another coordinator's.
    pub told: u64,
    /// See [`HostState::told`].
    pub obeys: u64,
    /// The interfaces that differ from the orders, by the last report.
    pub conflicts: Vec<Conflict>,
}

impl ControlPlane {
    /// What was not believed so far.
    pub fn doubts(&self) -> RejectedEntries {
        self.doubts
    }

    /// The orders that hosts and switches have refused, by what they said so far. What an agent refused before this began counts as well.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// The kernel objects that agents have restored, by their reports.
    pub fn restored(&self) -> Restored {
        self.restored
    }

    /// What was decided last.
    pub fn allocation(&self) -> &Allocation {
        self.engine.allocation()
    }

    /// How many coflows are under way.
    pub fn under_way(&self) -> usize {
        self.engine.network().active().len()
    }

    /// How many coflows are known, and how many flows of them.
    pub fn known(&self) -> (usize, usize) {
        (self.coflows.len(), self.flows)
    }

    /// Whether a coflow is over; `None` if nobody registered it.
    pub fn is_over(&self, id: &str) -> Option<bool> {
        self.coflows.get(id).map(|coflow| coflow.over.is_some())
    }

    /// Coflows that came to be over since this was last asked, in that order. They are remembered for [`Settings::keep`].
    ///
    /// [`Settings::keep`]: super::Settings::keep
    pub fn endings(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.ended)
    }

    /// Coflows in order of ids, at most so many, after an id or from the first on.
    pub fn list(&self, after: Option<&str>, most: usize) -> Vec<Summary> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let coflows = self.coflows.range::<str, _>((from, Bound::Unbounded));
        coflows.take(most).map(|(id, coflow)| self.summary(id, coflow)).collect()
    }

    /// The service of a coflow, and whether it is over; `None` if nobody registered it.
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

    /// What a flow's host was told last; nothing if it gets no orders.
    fn told(&self, flow: &super::Flow) -> Option<Pace> {
        flow.told.filter(|_| self.hosts[flow.transfer.src as usize].addressed)
    }

    /// A coflow; `None` if nobody registered it.
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

    /// What flows were given, in order of keys, at most so many, after a key or from the first on.
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

    /// All hosts and then all switches, by number.
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
