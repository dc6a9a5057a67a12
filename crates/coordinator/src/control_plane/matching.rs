//! The tracker of Django: collects which flows wait for a connection, answers reducers, and applies what receivers decide.
//!
//! Source: Zheng et al., "Django: Bilateral coflow scheduling with predictive concurrent connections", JPDC '21, sections 3, 4 and 5.1.
//!
//! Agents run the receiving side ([`weir_core::django::Receiver`]). A reducer is the part of a coflow at a receiving host, and a coflow is
//! the generation of its registration. The messages of Table 1 are parts of reports and orders:
//!
//! | Message | Here |
//! |---|---|
//! | REQ_CANDIDATE | a question in a receiver's report, which its next order answers |
//! | REPLY_CHOSEN | a change with an odd version in a receiver's report |
//! | SEND_START, SEND_RECOVERY | an order without a rate to the sender |
//! | SEND_PAUSE | a change with an even version, and then a pause in an order to the sender |
//!
//! The engine divides links evenly among the flows with a connection, as an estimate; senders get no rates. Flows over UDP take no part.
//! Flows to a host without an agent need no connection, since agents open them; neither do flows that are paused, or to a paused host.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::django::{self, CandidateRequest, Change, Params, ReducerKey, Tracker};
use weir_core::policy::AnyPolicy;
use weir_core::units::Bytes;
use weir_proto::{
    Answer, MAX_FLOWS_PER_HOST, MAX_REPORTED_FLOWS, MatchedFlow, MatchingOrder, MatchingReport, Question,
};

use super::connection_counts::{ConnectionCounts, ConnectionPredictor};
use super::{ControlPlane, Flow, Link};

/// The remaining bytes of a coflow are ordered again if they differ by this fraction: they only decide the order of coflows.
const COFLOW_BYTES_TOLERANCE: f64 = 1.0 / 32.0;

/// A policy of the live system.
pub struct LivePolicy {
    /// The policy of the engine.
    pub engine: AnyPolicy,
    /// How to match senders and receivers; none if the engine decides.
    pub matching: Option<django::Settings>,
}

impl LivePolicy {
    /// Receivers decide which of the flows to them send.
    pub fn matching(settings: django::Settings) -> LivePolicy {
        let engine =
            weir_core::policy::build("fair").expect("`fair` is a policy without required parameters");
        LivePolicy { engine, matching: Some(settings) }
    }
}

impl From<AnyPolicy> for LivePolicy {
    fn from(engine: AnyPolicy) -> LivePolicy {
        LivePolicy { engine, matching: None }
    }
}

/// The messages of Table 1 so far. A repeated change counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MatchingMessages {
    /// Questions of reducers.
    pub req_candidate: u64,
    /// Receivers' choices of a flow.
    pub reply_chosen: u64,
    /// First choices of a flow, for its sender.
    pub send_start: u64,
    /// Closed connections, for the sender.
    pub send_pause: u64,
    /// Later choices of a flow, for its sender.
    pub send_recovery: u64,
}

impl MatchingMessages {
    /// The messages by the name of the paper.
    pub fn by_name(&self) -> [(&'static str, u64); 5] {
        [
            ("REQ_CANDIDATE", self.req_candidate),
            ("REPLY_CHOSEN", self.reply_chosen),
            ("SEND_START", self.send_start),
            ("SEND_PAUSE", self.send_pause),
            ("SEND_RECOVERY", self.send_recovery),
        ]
    }

    fn count_change(&mut self, change: Change) {
        self.reply_chosen += u64::from(change.is_open());
        match (change.is_open(), change.version) {
            (false, _) => self.send_pause += 1,
            (true, 1) => self.send_start += 1,
            (true, _) => self.send_recovery += 1,
        }
    }
}

/// The state of the tracker.
#[derive(Debug)]
pub(super) struct Matching {
    settings: django::Settings,
    tracker: Tracker,
    /// The numbers of connections that follow the loss; none if all hosts have that of the settings.
    counts: Option<ConnectionCounts>,
    hosts: Vec<MatchedHost>,
    messages: MatchingMessages,
}

/// The part of a host.
#[derive(Debug, Default)]
struct MatchedHost {
    /// The time of the last report with its part.
    reported_at: f64,
    vacant_downlink: f64,
    /// The number of connections in the last order.
    ordered_connections: u32,
    questions: BTreeMap<u64, Question>,
    flows: OrderedState<(u64, u32), (u64, u32)>,
    coflows: OrderedState<u64, u64>,
}

/// The state that a host has to know, and the state of its last order.
#[derive(Debug)]
struct OrderedState<K, V> {
    current: BTreeMap<K, V>,
    ordered: BTreeMap<K, V>,
}

impl<K, V> Default for OrderedState<K, V> {
    fn default() -> OrderedState<K, V> {
        OrderedState { current: BTreeMap::new(), ordered: BTreeMap::new() }
    }
}

impl<K: Ord + Copy, V: Copy + PartialEq> OrderedState<K, V> {
    /// The entries that an order has to contain, with none for those that have ended. `is_close` is whether a host may keep its value.
    fn take_changes(&mut self, is_full: bool, is_close: impl Fn(V, V) -> bool) -> Vec<(K, Option<V>)> {
        if is_full {
            self.ordered.clear();
        }
        let is_known = |key: &K, value: V| self.ordered.get(key).is_some_and(|&known| is_close(known, value));
        let mut changes: BTreeMap<K, Option<V>> = self
            .current
            .iter()
            .filter(|&(key, &value)| !is_known(key, value))
            .map(|(&key, &value)| (key, Some(value)))
            .collect();
        let ended = self.ordered.keys().filter(|key| !self.current.contains_key(key));
        changes.extend(ended.map(|&key| (key, None)));
        // The next order has the others.
        while changes.len() > MAX_FLOWS_PER_HOST {
            changes.pop_last();
        }
        for (&key, &value) in &changes {
            match value {
                Some(value) => self.ordered.insert(key, value),
                None => self.ordered.remove(&key),
            };
        }
        changes.into_iter().collect()
    }
}

/// The key of a flow to a host.
fn flow_key(coflow: u64, host: u32, flow: u32) -> django::FlowKey {
    django::FlowKey { reducer: ReducerKey { coflow, reducer: host }, flow }
}

impl Matching {
    /// For hosts whose uplinks have these capacities, in bytes of packets per second. With a predictor, numbers of connections follow the
    /// loss.
    pub(super) fn new(
        settings: django::Settings,
        predictor: Option<ConnectionPredictor>,
        uplinks: &[f64],
        now: f64,
    ) -> Matching {
        let host = || MatchedHost { reported_at: now, ..MatchedHost::default() };
        let django::Settings { params, connections } = settings;
        let to_counts = |predictor| ConnectionCounts::new(predictor, params, connections, uplinks.len(), now);
        Matching {
            settings,
            counts: predictor.map(to_counts),
            tracker: Tracker::new(settings.params, settings.connections, uplinks),
            hosts: std::iter::repeat_with(host).take(uplinks.len()).collect(),
            messages: MatchingMessages::default(),
        }
    }

    /// The number of connections that a host may have.
    fn connections(&self, host: u32) -> u32 {
        self.counts.as_ref().map_or(self.settings.connections as u32, |counts| counts.get(host))
    }

    /// Applies the report of a host with this link. Returns whether a sender or the host waits for an order.
    pub(super) fn report(&mut self, host: u32, link: Link, report: &MatchingReport, now: f64) -> bool {
        let Some(matched) = self.hosts.get_mut(host as usize) else { return false };
        if let Some(counts) = &mut self.counts {
            counts.record_segments(host, &report.segments);
        }
        let vacant_downlink = link.recv.get().min(report.vacant_downlink as f64);
        (matched.reported_at, matched.vacant_downlink) = (now, vacant_downlink);
        let known =
            report.questions.iter().filter(|asked| matched.coflows.current.contains_key(&asked.coflow));
        let questions = matched.questions.len();
        matched.questions.extend(known.map(|question| (question.coflow, *question)));
        self.messages.req_candidate += (matched.questions.len() - questions) as u64;
        self.tracker.record_vacant_uplink(host, link.send.get().min(report.vacant_uplink as f64));
        let mut unclaimed_downlink = vacant_downlink;
        for change in &report.changes {
            let change = Change { flow: flow_key(change.coflow, host, change.flow), version: change.version };
            if self.tracker.sender(change.flow).is_some()
                && self.tracker.version(change.flow) < change.version
            {
                self.messages.count_change(change);
            }
            self.tracker.forward(change, &mut unclaimed_downlink);
        }
        matched.vacant_downlink = unclaimed_downlink;
        !report.questions.is_empty() || !report.changes.is_empty()
    }

    /// The part of a host's order; none if nothing has changed.
    pub(super) fn take_order(
        &mut self,
        host: u32,
        downlink: f64,
        is_full: bool,
        receives_orders: bool,
    ) -> Option<MatchingOrder> {
        let max_connections = self.hosts.get(host as usize).map(|_| self.connections(host))?;
        let matched = self.hosts.get_mut(host as usize).filter(|_| receives_orders)?;
        let flows = matched.flows.take_changes(is_full, |known, value| known == value);
        let is_close = |known: u64, bytes: u64| {
            known == bytes || known.abs_diff(bytes) as f64 <= COFLOW_BYTES_TOLERANCE * known as f64
        };
        let coflows = matched.coflows.take_changes(is_full, is_close);
        let to_flow = |((coflow, flow), state): ((u64, u32), Option<(u64, u32)>)| {
            let (remaining_bytes, version) = state.unwrap_or_default();
            MatchedFlow { coflow, flow, remaining_bytes, version }
        };
        // The next order answers the others.
        let questions = std::iter::from_fn(|| matched.questions.pop_first()).take(MAX_REPORTED_FLOWS);
        let questions: Vec<Question> = questions.map(|(_, question)| question).collect();
        let vacant_downlink = matched.vacant_downlink;
        let has_new_count =
            std::mem::replace(&mut matched.ordered_connections, max_connections) != max_connections;
        self.tracker.set_max_candidates(max_connections as usize);
        let answers: Vec<Answer> = questions
            .into_iter()
            .map(|Question { coflow, number, is_prioritized }| {
                let reducer = ReducerKey { coflow, reducer: host };
                let request = CandidateRequest { reducer, number, is_prioritized, downlink, vacant_downlink };
                Answer { coflow, number, candidates: self.tracker.candidates(&request) }
            })
            .collect();
        if !is_full && !has_new_count && flows.is_empty() && coflows.is_empty() && answers.is_empty() {
            return None;
        }
        let Params { alpha, beta, eta, .. } = self.settings.params;
        Some(MatchingOrder {
            max_connections,
            alpha,
            beta,
            eta,
            flows: flows.into_iter().map(to_flow).collect(),
            coflows: coflows.into_iter().map(|(coflow, bytes)| (coflow, bytes.unwrap_or(0))).collect(),
            answers,
        })
    }
}

impl ControlPlane {
    /// Lets receivers decide which flows send, by these settings, or no longer.
    pub(super) fn start_matching(&mut self, settings: Option<django::Settings>) {
        let uplinks: Vec<f64> = self.links.hosts.iter().map(|link| link.send.get()).collect();
        let has_changed = self.matching.is_some() || settings.is_some();
        let predictor = &self.connection_predictor;
        self.matching =
            settings.map(|settings| Matching::new(settings, predictor.clone(), &uplinks, self.now));
        // A full order begins a host's part, and ends it.
        self.hosts.iter_mut().for_each(|host| host.orders.needs_full_order |= has_changed);
        let flows = self.coflows.values_mut().flat_map(|coflow| &mut coflow.flows);
        flows.for_each(|flow| flow.is_open = settings.is_none());
    }

    /// Lets the number of connections of each host follow the loss of the flows to it, whenever the policy is `django`.
    pub fn with_connection_predictor(mut self, predictor: ConnectionPredictor) -> ControlPlane {
        self.connection_predictor = Some(predictor);
        let settings = self.matching.as_ref().map(|matching| matching.settings);
        self.start_matching(settings);
        self
    }

    /// Begins the part of a host again, after the start or end of its pause: with a full order.
    pub(super) fn restart_matching_of(&mut self, host: u32) {
        let matched = self.matching.as_mut().and_then(|matching| matching.hosts.get_mut(host as usize));
        if let Some(matched) = matched {
            *matched = MatchedHost { reported_at: self.now, ..MatchedHost::default() };
        }
    }

    /// The number of connections that each host may have, by host number, if the numbers follow the loss.
    pub fn connection_counts(&self) -> Option<Vec<u32>> {
        Some(self.matching.as_ref()?.counts.as_ref()?.all())
    }

    /// The messages of Django so far; none if another policy decides.
    pub fn matching_messages(&self) -> Option<MatchingMessages> {
        self.matching.as_ref().map(|matching| matching.messages)
    }

    /// Brings the tracker up to date with the coflows, and lets the flows send whose connections are open. O(flows log flows).
    pub(super) fn match_flows(&mut self) {
        let Some(mut matching) = self.matching.take() else { return };
        let has_changed_flows = self.has_changed_flows;
        let (now, lease) = (self.now, self.settings.lease);
        for host in &mut matching.hosts {
            host.flows.current.clear();
            host.coflows.current.clear();
        }
        if let Some(counts) = &mut matching.counts {
            counts.clear_flows();
        }
        let mut toggled = Vec::new();
        let mut active = BTreeSet::new();
        for coflow in self.coflows.values_mut() {
            let Some(slot) = coflow.slot else { continue };
            let generation = coflow.registration.generation;
            let mut coflow_bytes: u64 = 0;
            let mut coflow_hosts = BTreeSet::new();
            for (index, flow) in (0u32..).zip(&mut coflow.flows).filter(|(_, flow)| !flow.is_completed) {
                let (src, dst) = (flow.transfer.src, flow.transfer.dst);
                let is_paused = flow.pause.is_some() || self.hosts[dst as usize].pause.is_some();
                let is_recent = now - matching.hosts[dst as usize].reported_at <= 2.0 * lease;
                let is_matched = !flow.is_udp && !is_paused && is_recent;
                let key = flow_key(generation, dst, index);
                let has_data = flow.has_data(now);
                let remaining_bytes = flow.remaining_bytes();
                active.insert(key);
                // An update of the coflow can replace the sender.
                if matching.tracker.sender(key) != Some(src) {
                    matching.tracker.add_flow(key, src, remaining_bytes as f64);
                }
                matching.tracker.record_remaining_bytes(key, remaining_bytes as f64);
                matching.tracker.set_has_data(key, has_data && is_matched);
                let version = matching.tracker.version(key);
                if has_data && is_matched {
                    let state = (remaining_bytes, version);
                    matching.hosts[dst as usize].flows.current.insert((generation, index), state);
                }
                // Registered sizes can be as high as a count of bytes.
                coflow_bytes = coflow_bytes.saturating_add(remaining_bytes);
                // Senders divide their uplinks between the coflows that orders name.
                if flow.pause.is_none() {
                    coflow_hosts.extend([src, dst]);
                }
                let is_open = !is_matched || matching.tracker.is_open(key);
                if let Some(counts) = matching.counts.as_mut().filter(|_| !flow.is_udp) {
                    counts.add_flow((generation, index), src, dst, is_open && has_data);
                }
                if std::mem::replace(&mut flow.is_open, is_open) != is_open {
                    toggled.push((slot, flow.engine_index, flow.sends(now)));
                }
            }
            for host in coflow_hosts {
                matching.hosts[host as usize].coflows.current.insert(generation, coflow_bytes);
            }
        }
        matching.tracker.retain(|flow| active.contains(&flow));
        if let Some(counts) = &mut matching.counts {
            counts.update(now);
        }
        self.matching = Some(matching);
        for (slot, index, sends) in toggled {
            self.set_flow_sends(slot, index, sends);
        }
        // The orders of this schedule have these changes.
        self.has_changed_flows = has_changed_flows;
    }
}

impl Flow {
    /// The bytes that the flow has still to send, rounded up; at least one.
    fn remaining_bytes(&self) -> u64 {
        let size = self.transfer.bytes.map_or(0.0, Bytes::get);
        ((size - self.sent_bytes).ceil() as u64).max(1)
    }
}
