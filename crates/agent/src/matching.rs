//! The receiving side of Django: decides which flows to this host send, and asks the coordinator for senders.
//!
//! [`weir_core::django::Receiver`] decides. Orders name the flows to this host, with their progress by the reports of their senders, so the
//! programs that receive need no agent. What the links leave is measured at the interfaces, where all traffic counts. Sans-I/O, like
//! [`crate::lease`].

use std::collections::BTreeMap;
use std::time::Duration;

use weir_core::django::{Change, FlowKey, Params, Receiver, ReducerKey, Request, Uplink};
use weir_core::units::Rate;
use weir_proto::{
    ConnectionChange, FRAME_BYTES, MAX_FLOWS_PER_HOST, MAX_REPORTED_FLOWS, MatchedFlow, MatchingOrder,
    MatchingReport, PAYLOAD_BYTES, Question,
};

/// The part of a link by which its unused bandwidth has to change for a report without other news.
const MIN_CHANGE: f64 = 0.1;

/// The part of this host in matching senders and receivers.
#[derive(Debug)]
pub struct Matching {
    /// The rate of the host's link, in bytes per second.
    link: f64,
    /// The rate at which it may send, in bytes per second: less during a profile of its programs.
    uplink_rate: f64,
    links: LinkUse,
    receiver: Option<Receiver>,
    /// The remaining bytes of each flow, and the time of the order with them.
    progress: BTreeMap<FlowKey, (u64, Duration)>,
    /// The newest questions and changes that no report has.
    questions: BTreeMap<ReducerKey, Question>,
    changes: BTreeMap<FlowKey, u32>,
    /// The unused bandwidth of the links in the last report, from and to the network.
    reported: [f64; 2],
    /// The remaining bytes of the coflows of flows from or to this host.
    coflow_bytes: BTreeMap<u64, u64>,
    /// The flows that this host sends.
    sending: BTreeMap<weir_proto::FlowKey, SendingFlow>,
    uplink: Uplink,
}

/// A flow that this host sends.
#[derive(Debug, Clone, Copy)]
struct SendingFlow {
    sent_bytes: u64,
    measured_at: Duration,
    /// The average of about [`AVERAGING_TIME`], in bytes of packets per second.
    rate: f64,
}

/// The time in seconds over which a sending flow's rate is averaged: acknowledgements arrive in bursts.
const AVERAGING_TIME: f64 = 0.03;

fn reducer_key(coflow: u64) -> ReducerKey {
    // The reducers of one coflow at a host are one reducer: registrations do not tell them apart.
    ReducerKey { coflow, reducer: 0 }
}

fn flow_key(coflow: u64, flow: u32) -> FlowKey {
    FlowKey { reducer: reducer_key(coflow), flow }
}

impl Matching {
    /// For a host with a link of this rate, before the first order.
    pub fn new(link: Rate) -> Matching {
        Matching {
            link: link.get(),
            uplink_rate: link.get(),
            links: LinkUse::default(),
            receiver: None,
            progress: BTreeMap::new(),
            questions: BTreeMap::new(),
            changes: BTreeMap::new(),
            reported: [0.0; 2],
            coflow_bytes: BTreeMap::new(),
            sending: BTreeMap::new(),
            uplink: Uplink::default(),
        }
    }

    /// Applies an order. `lease` is its lease, after which a message without an answer is repeated; `now` counts from the start.
    pub fn apply(&mut self, order: Option<MatchingOrder>, is_full: bool, lease: Duration, now: Duration) {
        let Some(order) = order else {
            if is_full {
                self.receiver = None;
                self.progress.clear();
                self.questions.clear();
                self.changes.clear();
                self.coflow_bytes.clear();
            }
            return;
        };
        let MatchingOrder { max_connections, alpha, beta, eta, flows, coflows, answers } = order;
        let params = Params { alpha, beta, eta, ..Params::default() };
        let connections = max_connections as usize;
        let mut receiver = self
            .receiver
            .take()
            .unwrap_or_else(|| Receiver::new(params, connections, self.link, lease.as_secs_f64()));
        receiver.set_limits(params, connections);
        let has_new_reducer = self.apply_flows(&mut receiver, &flows, is_full, now);
        self.apply_coflow_bytes(&mut receiver, coflows, is_full);
        let mut requests = Vec::new();
        let vacant = self.vacant()[1];
        for answer in answers {
            let reducer = reducer_key(answer.coflow);
            let (number, candidates) = (answer.number, &answer.candidates);
            receiver.on_candidates(reducer, number, candidates, vacant, now.as_secs_f64(), &mut requests);
        }
        self.receiver = Some(receiver);
        self.queue(requests);
        // Section 3: "When a new reducer arrived, the local scheduler will update the priority list". Otherwise it decides once in each
        // interval, when it has measured the links.
        if has_new_reducer {
            self.schedule(now);
        }
    }

    /// Applies the flows of an order. Returns whether one of them belongs to a new reducer.
    fn apply_flows(
        &mut self,
        receiver: &mut Receiver,
        flows: &[MatchedFlow],
        is_full: bool,
        now: Duration,
    ) -> bool {
        let versions: BTreeMap<FlowKey, u32> =
            flows.iter().map(|flow| (flow_key(flow.coflow, flow.flow), flow.version)).collect();
        if is_full {
            receiver.retain(|flow| versions.contains_key(&flow));
            self.progress.retain(|flow, _| versions.contains_key(flow));
        }
        let has_reducer = |known: &BTreeMap<FlowKey, _>, coflow| {
            known.range(flow_key(coflow, 0)..=flow_key(coflow, u32::MAX)).next().is_some()
        };
        let has_new_reducer =
            flows.iter().any(|flow| flow.remaining_bytes > 0 && !has_reducer(&self.progress, flow.coflow));
        for &flow in flows {
            self.apply_flow(receiver, flow, now);
        }
        if is_full {
            // The coordinator may have restarted.
            let is_newer =
                |change: &Change| versions.get(&change.flow).is_some_and(|&version| version < change.version);
            let changes = receiver.changes().filter(is_newer);
            self.changes.extend(changes.map(|change| (change.flow, change.version)));
        }
        has_new_reducer
    }

    fn apply_coflow_bytes(&mut self, receiver: &mut Receiver, coflows: Vec<(u64, u64)>, is_full: bool) {
        if is_full {
            self.coflow_bytes.clear();
        }
        for (coflow, bytes) in coflows {
            if bytes == 0 {
                self.coflow_bytes.remove(&coflow);
            } else if self.coflow_bytes.len() < MAX_FLOWS_PER_HOST || self.coflow_bytes.contains_key(&coflow)
            {
                self.coflow_bytes.insert(coflow, bytes);
            }
        }
        // The receiver forgets those of coflows without a flow to this host, which may have one again.
        for (&coflow, &bytes) in &self.coflow_bytes {
            receiver.set_coflow_bytes(coflow, bytes as f64);
        }
    }

    fn apply_flow(&mut self, receiver: &mut Receiver, flow: MatchedFlow, now: Duration) {
        let MatchedFlow { coflow, flow, remaining_bytes, version } = flow;
        let key = flow_key(coflow, flow);
        if remaining_bytes == 0 {
            receiver.remove_flow(key);
            self.progress.remove(&key);
            self.changes.remove(&key);
            return;
        }
        let change = Change { flow: key, version };
        // A coordinator names no more.
        if self.progress.len() >= MAX_FLOWS_PER_HOST && !self.progress.contains_key(&key) {
            return;
        }
        receiver.add_flow(key, remaining_bytes as f64);
        receiver.take_over(change);
        receiver.on_acknowledged(change);
        let (before, since) =
            self.progress.insert(key, (remaining_bytes, now)).unwrap_or((remaining_bytes, now));
        let seconds = now.saturating_sub(since).as_secs_f64();
        let bytes = before.saturating_sub(remaining_bytes) as f64;
        let rate = if seconds > 0.0 { bytes / seconds } else { 0.0 };
        receiver.record_progress(key, remaining_bytes as f64, rate, now.as_secs_f64());
    }

    /// Whether the host takes part.
    pub fn is_active(&self) -> bool {
        self.receiver.is_some()
    }

    /// Records what the host's interfaces have sent and received so far, in bytes, and the rate at which its link may send now; and lets
    /// the receiver decide. Once in each interval.
    pub fn update(&mut self, bytes: [u64; 2], uplink: f64, now: Duration) {
        self.uplink_rate = uplink;
        self.links.measure(bytes, now);
        self.schedule(now);
    }

    /// What each flow that this host sends may use of its uplink; flows without an entry have no limit. `flows` are those that may send,
    /// with the bytes that they have sent.
    pub fn residual_rates<'a>(
        &mut self,
        flows: impl Iterator<Item = (&'a weir_proto::FlowKey, u64)>,
        now: Duration,
    ) -> BTreeMap<weir_proto::FlowKey, u64> {
        let mut sending = BTreeMap::new();
        for (key, sent_bytes) in flows.filter(|(key, _)| self.coflow_bytes.contains_key(&key.generation)) {
            let new = SendingFlow { sent_bytes, measured_at: now, rate: 0.0 };
            let mut flow = self.sending.remove(key).unwrap_or(new);
            let seconds = now.saturating_sub(flow.measured_at).as_secs_f64();
            if seconds > 0.0 {
                let payload_rate = sent_bytes.saturating_sub(flow.sent_bytes) as f64 / seconds;
                let rate = payload_rate * f64::from(FRAME_BYTES) / f64::from(PAYLOAD_BYTES);
                flow.rate += (seconds / AVERAGING_TIME).min(1.0) * (rate - flow.rate);
            }
            (flow.sent_bytes, flow.measured_at) = (sent_bytes, now);
            sending.insert(key.clone(), flow);
        }
        self.sending = sending;
        let mut coflows: BTreeMap<u64, (f64, u64)> = BTreeMap::new();
        for (key, flow) in &self.sending {
            let coflow = coflows.entry(key.generation).or_default();
            *coflow = (coflow.0 + flow.rate, coflow.1 + 1);
        }
        let mut order: Vec<u64> = coflows.keys().copied().collect();
        order.sort_by_key(|coflow| (self.coflow_bytes[coflow], *coflow));
        let rates: Vec<(u64, f64)> = order.iter().map(|&coflow| (coflow, coflows[&coflow].0)).collect();
        let limits = self.uplink.divide(self.uplink_rate, &rates);
        let limit_of: BTreeMap<u64, u64> = order
            .into_iter()
            .zip(limits)
            .filter_map(|(coflow, limit)| Some((coflow, (limit? / coflows[&coflow].1 as f64) as u64)))
            .collect();
        let limited =
            self.sending.keys().filter_map(|key| Some((key.clone(), *limit_of.get(&key.generation)?)));
        limited.collect()
    }

    fn schedule(&mut self, now: Duration) {
        let vacant = self.vacant()[1];
        let mut requests = Vec::new();
        if let Some(receiver) = &mut self.receiver {
            receiver.schedule(vacant, now.as_secs_f64(), &mut requests);
        }
        self.queue(requests);
    }

    fn queue(&mut self, requests: Vec<Request>) {
        for request in requests {
            match request {
                Request::Candidates(request) => {
                    let (coflow, number) = (request.reducer.coflow, request.number);
                    let question = Question { coflow, number, is_prioritized: request.is_prioritized };
                    if question.is_prioritized {
                        self.questions.values_mut().for_each(|earlier| earlier.is_prioritized = false);
                    }
                    self.questions.insert(request.reducer, question);
                }
                Request::Change(change) => {
                    self.changes.insert(change.flow, change.version);
                }
            }
        }
    }

    /// What the links leave, from and to the network, in bytes per second.
    fn vacant(&self) -> [f64; 2] {
        let [sent, received] = self.links.rates;
        [(self.uplink_rate - sent).max(0.0), (self.link - received).max(0.0)]
    }

    /// Whether a report has to be sent at once.
    pub fn has_requests(&self) -> bool {
        !self.questions.is_empty() || !self.changes.is_empty()
    }

    /// Whether a report has news.
    pub fn has_news(&self) -> bool {
        let differs = |(vacant, reported): (f64, f64)| (vacant - reported).abs() > MIN_CHANGE * self.link;
        self.has_requests()
            || self.receiver.is_some() && self.vacant().into_iter().zip(self.reported).any(differs)
    }

    /// The part of a report, without what flows have sent; none if the host takes no part.
    pub fn report(&self) -> Option<MatchingReport> {
        self.receiver.as_ref()?;
        let [vacant_uplink, vacant_downlink] = self.vacant().map(|vacant| vacant as u64);
        let to_change = |(flow, &version): (&FlowKey, &u32)| ConnectionChange {
            coflow: flow.reducer.coflow,
            flow: flow.flow,
            version,
        };
        Some(MatchingReport {
            vacant_uplink,
            vacant_downlink,
            questions: self.questions.values().copied().take(MAX_REPORTED_FLOWS).collect(),
            changes: self.changes.iter().map(to_change).take(MAX_REPORTED_FLOWS).collect(),
            segments: Vec::new(),
        })
    }

    /// Records that the last [`Matching::report`] is sent.
    pub fn confirm_report(&mut self) {
        self.reported = self.vacant();
        for _ in 0..MAX_REPORTED_FLOWS {
            if self.questions.pop_first().is_none() & self.changes.pop_first().is_none() {
                break;
            }
        }
    }
}

/// What the host's links carry.
#[derive(Debug, Default)]
struct LinkUse {
    /// The time of the last measurement, and the bytes that had been sent and received.
    last: Option<(Duration, [u64; 2])>,
    /// Bytes per second that were sent and received between the last two measurements.
    rates: [f64; 2],
}

impl LinkUse {
    fn measure(&mut self, bytes: [u64; 2], now: Duration) {
        let Some((since, before)) = self.last.replace((now, bytes)) else { return };
        let seconds = now.saturating_sub(since).as_secs_f64();
        if seconds > 0.0 {
            self.rates = [0, 1].map(|at| bytes[at].saturating_sub(before[at]) as f64 / seconds);
        }
    }
}
