//! The tracker: proposes mappers to reducers (Algorithm 4), and forwards changes of connections to their senders.

use std::collections::BTreeMap;

use super::candidates::{PendingFlow, balanced_capacity};
use super::local_scheduler::Downlink;
use super::micro_scheduler::choose_in_turn;
use super::{CandidateRequest, Change, FlowKey, Params, ReducerKey, is_open};

/// A host that sends.
#[derive(Debug)]
struct SendingHost {
    /// The capacity of the uplink, in bytes per second.
    capacity: f64,
    /// Its residual capacity at the last measurement, less the expected rates of connections that opened since.
    vacant: f64,
    /// The number of flows with data of each coflow that the host sends.
    coflows: BTreeMap<u64, usize>,
}

#[derive(Debug, Clone, Copy)]
struct TrackedFlow {
    sender: u32,
    remaining_bytes: f64,
    /// Whether its sender has data for it.
    has_data: bool,
    /// The newest change that has arrived.
    version: u32,
}

/// The state of all hosts according to the messages that have arrived.
#[derive(Debug)]
pub struct Tracker {
    params: Params,
    /// The maximum number of candidates of a prioritized reducer.
    max_candidates: usize,
    hosts: Vec<SendingHost>,
    flows: BTreeMap<FlowKey, TrackedFlow>,
    /// The remaining bytes of each coflow.
    remaining_bytes: BTreeMap<u64, f64>,
}

impl Tracker {
    /// A tracker of hosts with idle uplinks of these capacities, in bytes per second.
    pub fn new(params: Params, max_candidates: usize, uplinks: &[f64]) -> Tracker {
        let host = |&capacity: &f64| SendingHost { capacity, vacant: capacity, coflows: BTreeMap::new() };
        let hosts = uplinks.iter().map(host).collect();
        Tracker { params, max_candidates, hosts, flows: BTreeMap::new(), remaining_bytes: BTreeMap::new() }
    }

    /// Sets the maximum number of candidates of a prioritized reducer.
    pub fn set_max_candidates(&mut self, max_candidates: usize) {
        self.max_candidates = max_candidates;
    }

    /// Adds a flow from a host, without a connection. A flow that is already known is replaced: its receiver has restarted.
    pub fn add_flow(&mut self, flow: FlowKey, sender: u32, bytes: f64) {
        self.remove_flow(flow);
        let coflow = flow.reducer.coflow;
        self.flows.insert(flow, TrackedFlow { sender, remaining_bytes: bytes, has_data: true, version: 0 });
        self.count_at_sender(flow, sender, true);
        *self.remaining_bytes.entry(coflow).or_insert(0.0) += bytes;
    }

    /// Removes a flow that has completed.
    pub fn remove_flow(&mut self, flow: FlowKey) {
        let Some(tracked) = self.flows.remove(&flow) else { return };
        let coflow = flow.reducer.coflow;
        if tracked.has_data {
            self.count_at_sender(flow, tracked.sender, false);
        }
        let next = self.flows.range(first_flow(coflow)..).next();
        if next.is_none_or(|(key, _)| key.reducer.coflow != coflow) {
            self.remaining_bytes.remove(&coflow);
        } else if let Some(bytes) = self.remaining_bytes.get_mut(&coflow) {
            *bytes = (*bytes - tracked.remaining_bytes).max(0.0);
        }
    }

    /// Removes the flows for which `is_kept` is false.
    pub fn retain(&mut self, is_kept: impl Fn(FlowKey) -> bool) {
        let ended: Vec<FlowKey> = self.flows.keys().copied().filter(|&flow| !is_kept(flow)).collect();
        ended.into_iter().for_each(|flow| self.remove_flow(flow));
    }

    /// The sender of a flow; none if the flow was not added, or was removed.
    pub fn sender(&self, flow: FlowKey) -> Option<u32> {
        self.flows.get(&flow).map(|tracked| tracked.sender)
    }

    /// Records whether the sender of a flow has data for it. A flow without data is no candidate, and its connection closes.
    pub fn set_has_data(&mut self, flow: FlowKey, has_data: bool) {
        let Some(tracked) = self.flows.get_mut(&flow) else { return };
        if !has_data && is_open(tracked.version) {
            tracked.version += 1;
        }
        if std::mem::replace(&mut tracked.has_data, has_data) != has_data {
            let sender = tracked.sender;
            self.count_at_sender(flow, sender, has_data);
        }
    }

    /// Adds a flow with data to the count of its sender, or removes it.
    fn count_at_sender(&mut self, flow: FlowKey, sender: u32, is_added: bool) {
        let coflows = &mut self.hosts[sender as usize].coflows;
        let count = coflows.entry(flow.reducer.coflow).or_insert(0);
        *count = if is_added { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            coflows.remove(&flow.reducer.coflow);
        }
    }

    /// The version of the newest change of a flow's connection that has arrived; 0 before the first.
    pub fn version(&self, flow: FlowKey) -> u32 {
        self.flows.get(&flow).map_or(0, |tracked| tracked.version)
    }

    /// Whether the connection of a flow sends.
    pub fn is_open(&self, flow: FlowKey) -> bool {
        is_open(self.version(flow))
    }

    /// Records a report of the remaining bytes of a flow.
    pub fn record_remaining_bytes(&mut self, flow: FlowKey, bytes: f64) {
        if let Some(tracked) = self.flows.get_mut(&flow)
            && let Some(total) = self.remaining_bytes.get_mut(&flow.reducer.coflow)
        {
            *total = (*total + bytes - tracked.remaining_bytes).max(0.0);
            tracked.remaining_bytes = bytes;
        }
    }

    /// Records a host's measurement of the residual capacity of its uplink, in bytes per second.
    pub fn record_vacant_uplink(&mut self, host: u32, vacant: f64) {
        self.hosts[host as usize].vacant = vacant;
    }

    /// The remaining bytes of a coflow, as reported.
    pub fn remaining_bytes(&self, coflow: u64) -> f64 {
        self.remaining_bytes.get(&coflow).copied().unwrap_or(0.0)
    }

    /// Records a change. Returns the sender of its flow, to which the caller sends the change; none if a newer change has
    /// arrived, and if the flow has completed.
    ///
    /// An opened connection occupies the residual capacity of both of its ends until they are measured again: that of the sender, and
    /// `vacant_downlink`, which the changes of a receiver share.
    pub fn forward(&mut self, change: Change, vacant_downlink: &mut f64) -> Option<u32> {
        let flow = self.flows.get_mut(&change.flow).filter(|flow| flow.version <= change.version)?;
        if flow.version < change.version {
            flow.version = change.version;
            if change.is_open() {
                let host = &mut self.hosts[flow.sender as usize];
                let rate = host.vacant.min(*vacant_downlink);
                host.vacant -= rate;
                *vacant_downlink -= rate;
            }
        }
        Some(flow.sender)
    }

    /// Algorithm 4: the flows that a reducer may open, in the order in which Algorithm 3 chooses from them. The paper's reducers request
    /// a list for each connection, which would take a message to the tracker and back for each; here they may open several.
    ///
    /// O(n log n) for n flows of the reducer, O(n) for each of their senders, and for a prioritized one the coflows of its senders.
    pub fn candidates(&self, request: &CandidateRequest) -> Vec<u32> {
        let reducer = request.reducer;
        let range = FlowKey { reducer, flow: 0 }..=FlowKey { reducer, flow: u32::MAX };
        let pending =
            self.flows.range(range).filter(|(_, tracked)| tracked.has_data && !is_open(tracked.version));
        // Several flows of a reducer can have the same sender.
        let mut prioritized: BTreeMap<u32, Option<u64>> = BTreeMap::new();
        let pending: Vec<PendingFlow> = pending
            .map(|(key, &TrackedFlow { sender, remaining_bytes, .. })| {
                let SendingHost { vacant, capacity, .. } = self.hosts[sender as usize];
                let mut prioritized_coflow =
                    || *prioritized.entry(sender).or_insert_with(|| self.prioritized_coflow(sender));
                let is_matched = request.is_prioritized && prioritized_coflow() == Some(reducer.coflow);
                let balanced = balanced_capacity(&self.params, vacant, capacity, is_matched);
                PendingFlow { flow: key.flow, sender, remaining_bytes, vacant, balanced }
            })
            .collect();
        let downlink = Downlink { capacity: request.downlink, vacant: request.vacant_downlink };
        choose_in_turn(&self.params, request.is_prioritized, downlink, self.max_candidates, pending)
    }

    /// Line 6: the coflow with the fewest remaining bytes among those that a host sends. O(coflows of the host).
    fn prioritized_coflow(&self, host: u32) -> Option<u64> {
        let coflows = self.hosts[host as usize].coflows.keys().copied();
        coflows.min_by(|a, b| self.remaining_bytes(*a).total_cmp(&self.remaining_bytes(*b)).then(a.cmp(b)))
    }
}

fn first_flow(coflow: u64) -> FlowKey {
    FlowKey { reducer: ReducerKey { coflow, reducer: 0 }, flow: 0 }
}
