//! Flows that have ended at this relay a short time ago. Control messages overtake data, so data of such flows may still arrive.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::message::FlowId;

/// How long data may arrive after the end of its flow.
const MAX_AGE: Duration = Duration::from_secs(10);

/// The maximum number of flows; the oldest are forgotten first.
const MAX_FLOWS: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct ClosedFlows {
    generations: BTreeMap<FlowId, (u16, Duration)>,
    /// Times of insertion with their flows, the oldest first.
    times: VecDeque<(Duration, FlowId)>,
}

impl ClosedFlows {
    pub(crate) fn insert(&mut self, flow: FlowId, generation: u16, now: Duration) {
        if self.times.len() >= MAX_FLOWS {
            self.remove_oldest();
        }
        self.generations.insert(flow, (generation, now));
        self.times.push_back((now, flow));
    }

    /// The flow begins again.
    pub(crate) fn remove(&mut self, flow: FlowId) {
        self.generations.remove(&flow);
    }

    /// Whether data of this generation comes after the end of its flow.
    pub(crate) fn is_late(&self, flow: FlowId, generation: u16) -> bool {
        self.generations.get(&flow).is_some_and(|&(closed, _)| generation <= closed)
    }

    pub(crate) fn expire(&mut self, now: Duration) {
        while self.times.front().is_some_and(|&(time, _)| time.saturating_add(MAX_AGE) <= now) {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        let Some((time, flow)) = self.times.pop_front() else { return };
        // The flow may have ended again since then.
        if self.generations.get(&flow).is_some_and(|&(_, last)| last == time) {
            self.generations.remove(&flow);
        }
    }
}
