//! The coflows since the start, for a trace of the workload.

use std::collections::VecDeque;
use std::mem::size_of;
use std::ops::Bound;
use std::sync::Arc;

use weir_core::units::{Bytes, Time};

use super::{Coflow, ControlPlane, Flow};

/// A coflow as a trace states it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCoflow {
    /// Its id, which later coflows may have too.
    pub id: Arc<str>,
    /// The generation of its registration.
    pub generation: u64,
    /// Seconds from the start of the coordinator to its registration; 0 for a coflow of the store.
    pub arrival: f64,
    /// Its weight.
    pub weight: f64,
    /// Time after its registration by which it has to complete.
    pub deadline: Option<Time>,
    /// The number of its service.
    pub service: u32,
    /// The number of its application in the service.
    pub application: u32,
    /// Its flows by the last update.
    pub flows: Box<[RecordedFlow]>,
}

/// A flow as a trace states it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecordedFlow {
    /// The host that sends, by its number.
    pub src: u32,
    /// The host that receives.
    pub dst: u32,
    /// The registered size; for a flow without one, the bytes that it has sent, in whole bytes.
    pub bytes: f64,
}

/// Part of the registered coflows.
#[derive(Debug, Default)]
pub struct RecordedPage {
    /// In the order of ids.
    pub coflows: Vec<RecordedCoflow>,
    /// The last id, if others may follow.
    pub last: Option<Arc<str>>,
}

impl RecordedCoflow {
    /// Memory that it uses, in bytes: its fields, its id and its flows, with the counters of two shared pointers.
    fn memory(&self) -> usize {
        const COUNTERS: usize = 4 * size_of::<usize>();
        size_of::<RecordedCoflow>() + COUNTERS + self.id.len() + self.flows.len() * size_of::<RecordedFlow>()
    }
}

/// Coflows that are no longer registered, within a bound of memory.
#[derive(Debug, Default)]
pub(super) struct EndedCoflows {
    /// In the order of their ends.
    coflows: VecDeque<Arc<RecordedCoflow>>,
    memory: usize,
    dropped_count: u64,
}

impl EndedCoflows {
    /// Adds a coflow, and drops the oldest ones that exceed `max_memory` bytes.
    fn add(&mut self, coflow: RecordedCoflow, max_memory: usize) {
        self.memory += coflow.memory();
        self.coflows.push_back(Arc::new(coflow));
        while self.memory > max_memory
            && let Some(oldest) = self.coflows.pop_front()
        {
            self.memory -= oldest.memory();
            self.dropped_count += 1;
        }
    }
}

impl ControlPlane {
    /// Records a coflow that is no longer registered.
    pub(super) fn record_ended(&mut self, id: &Arc<str>, coflow: &Coflow) {
        let recorded = self.to_recorded(id, coflow);
        self.ended_coflows.add(recorded, self.settings.max_workload_bytes);
    }

    /// Registered coflows in the order of ids, after the id `after` or from the first one: at least one, and no more once they have
    /// `max_flows` flows.
    pub fn recorded_page(&self, after: Option<&str>, max_flows: usize) -> RecordedPage {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut page, mut flow_count) = (RecordedPage::default(), 0);
        for (id, coflow) in self.coflows.range::<str, _>((from, Bound::Unbounded)) {
            page.coflows.push(self.to_recorded(id, coflow));
            flow_count += coflow.flows.len();
            if flow_count >= max_flows {
                page.last = Some(Arc::clone(id));
                break;
            }
        }
        page
    }

    /// The coflows that are no longer registered, by their ends, and the number of earlier ones that are dropped.
    pub fn ended_coflows(&self) -> (Vec<Arc<RecordedCoflow>>, u64) {
        let EndedCoflows { coflows, dropped_count, .. } = &self.ended_coflows;
        (coflows.iter().cloned().collect(), *dropped_count)
    }

    fn to_recorded(&self, id: &Arc<str>, coflow: &Coflow) -> RecordedCoflow {
        let registration = &coflow.registration;
        let names = self.names.find(&registration.service, &registration.application);
        let (service, application) = names.expect("registrations with other names are refused");
        let to_flow = |flow: &Flow| RecordedFlow {
            src: flow.transfer.src,
            dst: flow.transfer.dst,
            bytes: flow.transfer.bytes.map_or_else(|| flow.sent_bytes.round(), Bytes::get),
        };
        RecordedCoflow {
            id: Arc::clone(id),
            generation: registration.generation,
            arrival: coflow.registered_at.max(0.0),
            weight: registration.weight,
            deadline: registration.deadline,
            service,
            application,
            flows: coflow.flows.iter().map(to_flow).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_ended_coflows_beyond_the_bound_are_dropped_and_counted() {
        let coflow = |generation, flows| RecordedCoflow {
            id: "a".into(),
            generation,
            arrival: 0.0,
            weight: 1.0,
            deadline: None,
            service: 0,
            application: 0,
            flows: vec![RecordedFlow { src: 0, dst: 1, bytes: 1.0 }; flows].into(),
        };
        let (mut ended, max) = (EndedCoflows::default(), 2 * coflow(1, 10).memory());
        let generations = |ended: &EndedCoflows| -> Vec<u64> {
            ended.coflows.iter().map(|coflow| coflow.generation).collect()
        };
        for generation in 1..=3 {
            ended.add(coflow(generation, 10), max);
        }
        assert_eq!((generations(&ended), ended.dropped_count), (vec![2, 3], 1));
        // A coflow that exceeds the bound alone is dropped too.
        ended.add(coflow(4, 1000), max);
        assert_eq!((generations(&ended), ended.dropped_count, ended.memory), (vec![], 4, 0));
    }
}
