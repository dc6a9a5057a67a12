//! Coflows between regions that their owners deregistered as failed. They stay visible, with the reason, as long as completed coflows.
//! They are not in the store: they end with the coordinator.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};
use tracing::info;

use super::{EXPECTED_COFLOW_ID, Registry};
use crate::audit::Actor;
use crate::control_plane::CoflowOutline;
use crate::overlay::{CoflowStatus, Handle, Registration, join_flows};
use crate::problem::Problem;

/// Maximum number of failed coflows. A further one replaces the oldest one.
pub(super) const MAX_FAILED_COFLOWS: usize = 1000;

/// A coflow whose owner deregistered it as failed.
#[derive(Debug, Clone)]
pub struct FailedCoflow {
    /// Its state at that time. One flow for each pair of regions replaces its flows if there are fewer of them.
    pub status: CoflowStatus,
    /// Why it failed, in the words of its owner.
    pub reason: String,
    /// When it failed, in seconds since the start of the overlay.
    pub(super) failed_at: f64,
}

/// Failed coflows by id.
#[derive(Debug)]
pub(super) struct FailedCoflows {
    /// How long a failed coflow is kept, in seconds.
    keep: f64,
    pub(super) coflows: BTreeMap<String, FailedCoflow>,
    /// The number of coflows that have failed since the start.
    count: u64,
}

impl FailedCoflows {
    pub fn new(keep: f64) -> FailedCoflows {
        FailedCoflows { keep, coflows: BTreeMap::new(), count: 0 }
    }

    /// Forgets coflows that failed too long ago.
    pub(super) fn expire(&mut self, now: f64) {
        self.coflows.retain(|_, coflow| now - coflow.failed_at <= self.keep);
    }

    /// Adds a coflow. Beyond [`MAX_FAILED_COFLOWS`], it replaces the oldest one.
    pub(super) fn insert(&mut self, id: &str, coflow: FailedCoflow) {
        self.count += 1;
        self.coflows.insert(id.to_owned(), coflow);
        if self.coflows.len() > MAX_FAILED_COFLOWS {
            let oldest = self.coflows.iter().min_by(|(_, a), (_, b)| a.failed_at.total_cmp(&b.failed_at));
            let oldest = oldest.map(|(id, _)| id.clone());
            oldest.and_then(|id| self.coflows.remove(&id));
        }
    }
}

/// The state of a coflow that has failed, with as few flows as a completed coflow: a shuffle has thousands of flows.
fn to_failed(handle: &Handle, status: CoflowStatus) -> CoflowStatus {
    let CoflowStatus { registration, flow_progress, .. } = &status;
    let mut summary = status.summary.clone();
    (summary.is_completed, summary.measured_seconds) = (false, None);
    let Some(flows) = join_flows(&registration.flows, handle.config()) else {
        return CoflowStatus { summary, ..status };
    };
    // All flows of a pair have the same progress.
    let by_pair: BTreeMap<_, f64> =
        registration.flows.iter().map(|flow| flow.pair).zip(flow_progress.iter().copied()).collect();
    let flow_progress = flows.iter().map(|flow| by_pair[&flow.pair]).collect();
    let Registration { service, application, .. } = &**registration;
    let registration = Registration { service: service.clone(), application: application.clone(), flows };
    CoflowStatus { registration: Arc::new(registration), summary, flow_progress, ..status }
}

impl Registry {
    /// Calls the failed coflows of the present; `None` without an overlay.
    fn with_failed<T>(&self, call: impl FnOnce(&mut FailedCoflows) -> T) -> Option<T> {
        let now = self.overlay()?.call(|_, now| now);
        let mut failed = self.failed_coflows.lock().unwrap_or_else(PoisonError::into_inner);
        failed.expire(now);
        Some(call(&mut failed))
    }

    /// A failed coflow; `None` if no failed coflow has this id.
    pub fn failed_coflow(&self, id: &str) -> Option<FailedCoflow> {
        self.with_failed(|failed| failed.coflows.get(id).cloned())?
    }

    /// The number of coflows that have failed since the start.
    pub fn failed_coflow_count(&self) -> u64 {
        self.with_failed(|failed| failed.count).unwrap_or_default()
    }

    /// The first `max` failed coflows after an id, in the order of ids.
    pub fn failed_coflows_after(&self, after: Option<&str>, max: usize) -> Vec<FailedCoflow> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let coflows = self.with_failed(|failed| {
            let coflows = failed.coflows.range::<str, _>((start, Bound::Unbounded));
            coflows.take(max).map(|(_, coflow)| coflow.clone()).collect()
        });
        coflows.unwrap_or_default()
    }

    /// Keeps a coflow between regions as failed. The caller has locked the id, and deregisters the coflow.
    pub(super) fn keep_failed(&self, handle: &Handle, id: &str, reason: &str) {
        let (status, failed_at) = handle.call(|overlay, now| (overlay.coflow_status(id), now));
        let Some(status) = status else { return };
        info!(coflow = id, reason, "coflow between regions failed");
        let coflow = FailedCoflow { status: to_failed(handle, status), reason: reason.to_owned(), failed_at };
        self.with_failed(|failed| failed.insert(id, coflow));
    }

    /// Forgets that an earlier coflow with this id failed. The caller has locked the id.
    pub(super) fn forget_failed(&self, id: &str) -> Option<FailedCoflow> {
        self.with_failed(|failed| failed.coflows.remove(id))?
    }

    /// Deregisters a coflow that has failed; `is_failure`: the request repeats this. The caller has locked the id.
    pub(super) fn deregister_failed(&self, actor: &Actor, id: &str, is_failure: bool) -> Result<(), Problem> {
        let Some(failed) = self.failed_coflow(id) else {
            return Err(Problem::not_found("coflow", id, EXPECTED_COFLOW_ID));
        };
        if !is_failure {
            self.forget_failed(id);
            let outline = CoflowOutline::from(&*failed.status.registration);
            self.audit.note_accepted(actor, json!(outline), Value::Null);
        }
        Ok(())
    }
}
