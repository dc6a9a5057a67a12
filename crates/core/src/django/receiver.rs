//! The receiving side of a host: the local scheduler (Algorithm 2), and the micro scheduler of each reducer (Algorithm 3).

use std::collections::BTreeMap;

use super::local_scheduler::{Downlink, HostReducers, divide_connections};
use super::micro_scheduler::by_closing;
use super::{CandidateRequest, Change, FlowKey, Params, ReducerKey, Request, is_open};

/// A flow of a reducer, and its connection.
#[derive(Debug, Clone, Copy)]
struct ReceivingFlow {
    remaining_bytes: f64,
    /// The rate of arrival, in bytes per second.
    rate: f64,
    /// The version of the newest change, and of the last one that the sender has acknowledged.
    version: u32,
    acknowledged: u32,
    /// When the newest change was last sent, or when bytes last arrived, whichever is later.
    active_at: f64,
}

impl ReceivingFlow {
    fn is_open(&self) -> bool {
        is_open(self.version)
    }
}

#[derive(Debug, Default)]
struct Reducer {
    flows: BTreeMap<u32, ReceivingFlow>,
    /// The number of connections that Algorithm 2 allocates to it.
    wanted: usize,
    /// The time of the last request for mappers if its answer has not arrived; and its number.
    requested_at: Option<f64>,
    request_number: u32,
}

impl Reducer {
    fn open_count(&self) -> usize {
        self.flows.values().filter(|flow| flow.is_open()).count()
    }

    fn remaining_bytes(&self) -> f64 {
        self.flows.values().map(|flow| flow.remaining_bytes).sum()
    }
}

/// The reducers of a host.
#[derive(Debug)]
pub struct Receiver {
    params: Params,
    max_connections: usize,
    /// The capacity of the downlink, in bytes per second.
    downlink: f64,
    /// The time after which a receiver repeats a message without an answer, in seconds.
    timeout: f64,
    /// The version of flows without a change.
    first_version: u32,
    reducers: BTreeMap<ReducerKey, Reducer>,
    /// The remaining bytes of the coflows of these reducers, on all hosts, as the tracker reports them.
    coflow_bytes: BTreeMap<u64, f64>,
    prioritized: Option<ReducerKey>,
}

impl Receiver {
    /// A host with a downlink of this capacity, in bytes per second. It repeats messages without an answer after `timeout` seconds.
    pub fn new(params: Params, max_connections: usize, downlink: f64, timeout: f64) -> Receiver {
        Receiver {
            params,
            max_connections,
            downlink,
            timeout,
            first_version: 0,
            reducers: BTreeMap::new(),
            coflow_bytes: BTreeMap::new(),
            prioritized: None,
        }
    }

    /// Sets the version of flows without a change: an even number above the versions of the host's receiver before a restart.
    /// Messages in flight may have those.
    pub fn with_first_version(self, version: u32) -> Receiver {
        assert!(!is_open(version), "version {version} is odd; expected an even one, for closed connections");
        Receiver { first_version: version, ..self }
    }

    /// Sets the parameters and the number of connections. Those above it close with the next [`Receiver::schedule`].
    pub fn set_limits(&mut self, params: Params, max_connections: usize) {
        (self.params, self.max_connections) = (params, max_connections.max(1));
    }

    /// Continues from the newest change that the tracker has of a flow, for networks that keep the order of messages. It may be that of
    /// a receiver before this one: a flow without a change takes its connection over, and other changes get higher versions.
    pub fn take_over(&mut self, change: Change) {
        let reducer = self.reducers.get_mut(&change.flow.reducer);
        let Some(flow) = reducer.and_then(|reducer| reducer.flows.get_mut(&change.flow.flow)) else { return };
        if flow.version == 0 {
            flow.version = change.version;
        } else if change.version > flow.version {
            flow.version = change.version + u32::from(change.is_open() != flow.is_open());
            flow.active_at = f64::NEG_INFINITY;
        }
    }

    /// Removes the flows for which `is_kept` is false.
    pub fn retain(&mut self, is_kept: impl Fn(FlowKey) -> bool) {
        let flows = |(&reducer, state): (&ReducerKey, &Reducer)| {
            let flows: Vec<u32> = state.flows.keys().copied().collect();
            flows.into_iter().map(move |flow| FlowKey { reducer, flow })
        };
        let ended: Vec<FlowKey> =
            self.reducers.iter().flat_map(flows).filter(|&flow| !is_kept(flow)).collect();
        ended.into_iter().for_each(|flow| self.remove_flow(flow));
    }

    /// Adds a flow without a connection.
    pub fn add_flow(&mut self, flow: FlowKey, bytes: f64) {
        let flows = &mut self.reducers.entry(flow.reducer).or_default().flows;
        flows.entry(flow.flow).or_insert(ReceivingFlow {
            remaining_bytes: bytes,
            rate: 0.0,
            version: self.first_version,
            acknowledged: 0,
            active_at: f64::NEG_INFINITY,
        });
    }

    /// Removes a flow that has completed.
    pub fn remove_flow(&mut self, flow: FlowKey) {
        let Some(reducer) = self.reducers.get_mut(&flow.reducer) else { return };
        // The connection of the flow is free for other reducers.
        if reducer.flows.remove(&flow.flow).is_some_and(|state| state.is_open()) {
            reducer.wanted = reducer.wanted.saturating_sub(1);
        }
        if reducer.flows.is_empty() {
            self.reducers.remove(&flow.reducer);
        }
        if !self.has_reducer_of(flow.reducer.coflow) {
            self.coflow_bytes.remove(&flow.reducer.coflow);
        }
    }

    /// Sets the remaining bytes of a coflow on all hosts. Coflows without a value come last. No effect if the host has no reducer
    /// of the coflow.
    pub fn set_coflow_bytes(&mut self, coflow: u64, bytes: f64) {
        if self.has_reducer_of(coflow) {
            self.coflow_bytes.insert(coflow, bytes);
        }
    }

    fn has_reducer_of(&self, coflow: u64) -> bool {
        let first = ReducerKey { coflow, reducer: 0 };
        self.reducers.range(first..).next().is_some_and(|(key, _)| key.coflow == coflow)
    }

    /// Records the remaining bytes of a flow, and its rate in bytes per second.
    pub fn record_progress(&mut self, flow: FlowKey, remaining_bytes: f64, rate: f64, now: f64) {
        let Some(reducer) = self.reducers.get_mut(&flow.reducer) else { return };
        let Some(flow) = reducer.flows.get_mut(&flow.flow) else { return };
        if remaining_bytes < flow.remaining_bytes {
            flow.active_at = now;
        }
        (flow.remaining_bytes, flow.rate) = (remaining_bytes, rate);
    }

    /// Records the acknowledgement of a sender. It is older than the one before if the sender has restarted.
    pub fn on_acknowledged(&mut self, change: Change) {
        let reducer = self.reducers.get_mut(&change.flow.reducer);
        if let Some(flow) = reducer.and_then(|reducer| reducer.flows.get_mut(&change.flow.flow)) {
            flow.acknowledged = change.version;
        }
    }

    /// The newest change of each connection, after a restart of the tracker or of this receiver.
    pub fn changes(&self) -> impl Iterator<Item = Change> {
        self.reducers.iter().flat_map(|(&reducer, state)| {
            let changed = state.flows.iter().filter(|(_, state)| state.version > 0);
            changed
                .map(move |(&flow, state)| Change { flow: FlowKey { reducer, flow }, version: state.version })
        })
    }

    /// Runs Algorithm 2, and Algorithm 3 for the reducers whose number of connections differs. Repeats messages without an
    /// answer. The caller calls this once in each interval, with the residual capacity of the downlink in bytes per second.
    pub fn schedule(&mut self, vacant_downlink: f64, now: f64, out: &mut Vec<Request>) {
        let order = self.reducers_in_order();
        self.allocate_connections(&order, vacant_downlink);
        for &key in &order {
            self.close_connections(key, now, out);
        }
        for &key in &order {
            self.request_candidates(key, vacant_downlink, now, out);
        }
        self.repeat_changes(now, out);
    }

    /// Line 1: by the remaining bytes of the coflow, and of the reducer.
    fn reducers_in_order(&self) -> Vec<ReducerKey> {
        let bytes = |key: &ReducerKey, reducer: &Reducer| {
            let coflow = self.coflow_bytes.get(&key.coflow).copied().unwrap_or(f64::INFINITY);
            (coflow, reducer.remaining_bytes())
        };
        let mut order: Vec<_> =
            self.reducers.iter().map(|(&key, reducer)| (bytes(&key, reducer), key)).collect();
        order.sort_by(|(a, first), (b, second)| {
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(first.cmp(second))
        });
        order.into_iter().map(|(_, key)| key).collect()
    }

    /// Algorithm 2: sets the number of connections of each reducer.
    fn allocate_connections(&mut self, order: &[ReducerKey], vacant_downlink: f64) {
        let Some((&first, others)) = order.split_first() else { return };
        let mut used = 0;
        for reducer in self.reducers.values_mut() {
            // A reducer that waits for mappers keeps the connections that it may open.
            let count = reducer.flows.len();
            reducer.wanted = reducer.wanted.max(reducer.open_count()).min(count);
            used += reducer.wanted;
        }
        self.take_connections(order.iter().rev(), used.saturating_sub(self.max_connections));
        let free = self.max_connections.saturating_sub(used);
        let (params, max_connections) = (self.params, self.max_connections);
        let mut turn = ReceiverTurn { receiver: self, first, others, free, vacant_downlink };
        divide_connections(&params, max_connections, &mut turn);
    }

    /// Takes up to `count` connections from reducers, in turn. Returns the number taken.
    fn take_connections<'a>(&mut self, from: impl Iterator<Item = &'a ReducerKey>, count: usize) -> usize {
        let mut left = count;
        for key in from {
            // The reducer that was prioritized before may have completed.
            let Some(reducer) = self.reducers.get_mut(key) else { continue };
            let taken = left.min(reducer.wanted);
            reducer.wanted -= taken;
            left -= taken;
        }
        count - left
    }

    /// Algorithm 3, lines 1 to 4: closes the connections with the highest rates.
    fn close_connections(&mut self, key: ReducerKey, now: f64, out: &mut Vec<Request>) {
        let reducer = self.reducers.get_mut(&key).expect("the order has all reducers");
        let excess = reducer.open_count().saturating_sub(reducer.wanted);
        for _ in 0..excess {
            let open = reducer.flows.iter_mut().filter(|(_, flow)| flow.is_open());
            let next =
                open.min_by(|(a, first), (b, second)| by_closing((first.rate, **a), (second.rate, **b)));
            let Some((&flow, state)) = next else { return };
            change(FlowKey { reducer: key, flow }, state, now, out);
        }
    }

    /// Algorithm 3, line 6: requests mappers, unless an answer may be in flight.
    fn request_candidates(
        &mut self,
        key: ReducerKey,
        vacant_downlink: f64,
        now: f64,
        out: &mut Vec<Request>,
    ) {
        let (is_prioritized, timeout, downlink) =
            (self.prioritized == Some(key), self.timeout, self.downlink);
        let reducer = self.reducers.get_mut(&key).expect("the caller has the key of a reducer");
        let is_in_flight = reducer.requested_at.is_some_and(|requested_at| now < requested_at + timeout);
        if reducer.open_count() >= reducer.wanted || is_in_flight {
            return;
        }
        reducer.request_number = reducer.request_number.wrapping_add(1);
        reducer.requested_at = Some(now);
        let number = reducer.request_number;
        out.push(Request::Candidates(CandidateRequest {
            reducer: key,
            number,
            is_prioritized,
            downlink,
            vacant_downlink,
        }));
    }

    /// Algorithm 3, lines 7 to 12: opens connections to the first candidates without one, and requests mappers again if the
    /// reducer may open more. The tracker sorts candidates in the order in which the algorithm chooses from them.
    pub fn on_candidates(
        &mut self,
        key: ReducerKey,
        number: u32,
        candidates: &[u32],
        vacant_downlink: f64,
        now: f64,
        out: &mut Vec<Request>,
    ) {
        let Some(reducer) = self.reducers.get_mut(&key) else { return };
        if reducer.requested_at.is_none() || reducer.request_number != number {
            return;
        }
        reducer.requested_at = None;
        let missing = reducer.wanted.saturating_sub(reducer.open_count());
        let mut opened = 0;
        for &flow in candidates {
            if opened == missing {
                return;
            }
            let closed = reducer.flows.get_mut(&flow).filter(|state| !state.is_open());
            let Some(state) = closed else { continue };
            change(FlowKey { reducer: key, flow }, state, now, out);
            opened += 1;
        }
        if opened == 0 {
            // The connections that the reducer cannot open are free for other reducers.
            reducer.wanted = reducer.wanted.min(reducer.open_count());
        }
        self.request_candidates(key, vacant_downlink, now, out);
    }

    /// Repeats changes that senders have not acknowledged, and those of open connections on which no bytes arrive.
    fn repeat_changes(&mut self, now: f64, out: &mut Vec<Request>) {
        for (&reducer, state) in &mut self.reducers {
            for (&flow, state) in &mut state.flows {
                let needs_answer = state.is_open() || state.acknowledged < state.version;
                if needs_answer && now >= state.active_at + self.timeout {
                    state.active_at = now;
                    let flow = FlowKey { reducer, flow };
                    out.push(Request::Change(Change { flow, version: state.version }));
                }
            }
        }
    }

    /// The number of open connections.
    pub fn open_count(&self) -> usize {
        self.reducers.values().map(Reducer::open_count).sum()
    }
}

/// A receiver during Algorithm 2. The counts of connections change; the micro schedulers open and close them afterwards.
struct ReceiverTurn<'a> {
    receiver: &'a mut Receiver,
    first: ReducerKey,
    /// The other reducers, in order.
    others: &'a [ReducerKey],
    free: usize,
    vacant_downlink: f64,
}

impl ReceiverTurn<'_> {
    fn reducer(&mut self, key: ReducerKey) -> &mut Reducer {
        self.receiver.reducers.get_mut(&key).expect("the order has all reducers")
    }
}

impl HostReducers for ReceiverTurn<'_> {
    fn free_connections(&self) -> usize {
        self.free
    }

    fn is_prioritized_unchanged(&self) -> bool {
        self.receiver.prioritized == Some(self.first)
    }

    fn downlink(&self) -> Downlink {
        Downlink { capacity: self.receiver.downlink, vacant: self.vacant_downlink }
    }

    fn add_to_other(&mut self, max_count: f64) -> bool {
        let can_use = |key: &&ReducerKey| {
            let reducer = &self.receiver.reducers[*key];
            reducer.wanted < reducer.flows.len() && reducer.wanted as f64 <= max_count
        };
        let Some(&key) = self.others.iter().find(can_use) else { return false };
        self.reducer(key).wanted += 1;
        true
    }

    fn preempt(&mut self, count: usize) -> usize {
        let before = self.receiver.prioritized.replace(self.first);
        let others = self.others.iter().rev().filter(|&&key| Some(key) != before);
        self.receiver.take_connections(before.iter().chain(others), count)
    }

    fn prioritized_connections(&self) -> usize {
        self.receiver.reducers[&self.first].wanted
    }

    fn add_to_prioritized(&mut self, count: usize) {
        let reducer = self.reducer(self.first);
        reducer.wanted = (reducer.wanted + count).min(reducer.flows.len());
    }
}

/// Opens a connection that is closed, or closes one that is open.
fn change(flow: FlowKey, state: &mut ReceivingFlow, now: f64, out: &mut Vec<Request>) {
    state.version += 1;
    state.active_at = now;
    out.push(Request::Change(Change { flow, version: state.version }));
}
