//! Selects the flows that a report has to contain, and decides whether a report is due.
//!
//! The coordinator estimates the progress of a flow: it assumes that the flow sends at its ordered rate. A report contains a flow
//! if the flow deviates from this estimate, if its rate has changed, or if it has begun or ended.
//! [`ReportDelta::report_unconfirmed`] adds all open flows, and ended ones without a confirmation. A flow that no order names is
//! reported once: its coflow is not registered, or was removed. It is reported again when an order names it. Sans-I/O, like
//! [`crate::lease`]: callers pass the time, which counts from any point and is monotonic.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use weir_proto::{FlowKey, FlowProgress, MAX_REPORTED_FLOWS, Report, SenderState, estimate_sent_bytes};

use crate::lease::FlowLimit;

/// The maximum difference between the bytes that a flow has sent and the coordinator's estimate: about one large packet (GSO), in bytes.
const MAX_DEVIATION_BYTES: f64 = 65_536.0;

/// The maximum number of ended flows that are remembered; the oldest are dropped first.
pub const MAX_ENDED_FLOWS: usize = 1 << 14;

/// An open flow at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFlow {
    /// The bytes that the flow has sent.
    pub sent: u64,
    /// What the flow may send.
    pub limit: FlowLimit,
    /// Whether it has data to send.
    pub state: SenderState,
    /// Whether it can be paused.
    pub is_gated: bool,
    /// Whether it uses UDP.
    pub is_udp: bool,
    /// What its program writes, in bytes per second, if that is less than the rate of the flow, or a rate that the program has set.
    pub demand: Option<u64>,
}

/// The last reported state of a flow, and the time of the report.
#[derive(Debug, Clone, Copy)]
struct ReportedState {
    flow: OpenFlow,
    time: Duration,
}

impl ReportedState {
    /// Whether the last report of a flow is out of date. It is out of date after a change of the rate, since only the agent knows the time
    /// of the change.
    fn is_outdated(&self, current: &ReportedState) -> bool {
        let (last, flow) = (&self.flow, &current.flow);
        let (FlowLimit::Rate(rate) | FlowLimit::Reserve(rate)) = last.limit else { return last != flow };
        if (OpenFlow { sent: flow.sent, ..*last }) != *flow {
            return true;
        }
        let estimated = last.sent as f64
            + estimate_sent_bytes(rate, current.time.saturating_sub(self.time).as_secs_f64());
        (flow.sent as f64 - estimated).abs() > MAX_DEVIATION_BYTES
    }
}

#[derive(Debug, Clone)]
struct EndedFlow {
    sent: u64,
    /// Completed or lost.
    state: SenderState,
    is_reported: bool,
    /// Whether the coordinator has confirmed the end of the flow.
    is_confirmed: bool,
}

/// The reported state of a host's flows.
#[derive(Debug, Clone, Default)]
pub struct ReportDelta {
    open_flows: BTreeMap<FlowKey, Option<ReportedState>>,
    ended_flows: BTreeMap<FlowKey, EndedFlow>,
    /// Ended flows, in the order of their ends. A flow that has been opened again since then is still in the list.
    end_order: VecDeque<FlowKey>,
}

impl ReportDelta {
    /// Adds a flow that begins, or continues over another connection. Returns the bytes that it has sent before.
    pub fn open_flow(&mut self, key: FlowKey) -> u64 {
        let sent_before = self.ended_flows.remove(&key).map_or(0, |flow| flow.sent);
        self.open_flows.insert(key, None);
        sent_before
    }

    /// The keys of open and ended flows.
    pub fn keys(&self) -> impl Iterator<Item = &FlowKey> {
        self.open_flows.keys().chain(self.ended_flows.keys())
    }

    /// Moves a flow to another key, and reports it again. Returns the bytes that an open flow has sent before under the new key.
    pub fn move_flow(&mut self, key: &FlowKey, new_key: &FlowKey) -> u64 {
        if self.open_flows.remove(key).is_some() {
            return self.open_flow(new_key.clone());
        }
        if let Some(EndedFlow { sent, state, .. }) = self.ended_flows.remove(key) {
            self.end_flow(new_key.clone(), sent, state);
        }
        0
    }

    /// Records that a flow has completed or lost its connection, and the bytes that it has sent.
    pub fn end_flow(&mut self, key: FlowKey, sent: u64, state: SenderState) {
        self.open_flows.remove(&key);
        self.end_order.push_back(key.clone());
        self.ended_flows.insert(key, EndedFlow { sent, state, is_reported: false, is_confirmed: false });
        while self.end_order.len() > MAX_ENDED_FLOWS {
            let Some(key) = self.end_order.pop_front() else { break };
            // A flow that has ended again since then occurs in the list again.
            if !self.end_order.contains(&key) {
                self.ended_flows.remove(&key);
            }
        }
    }

    /// Returns the flows that deviate from the last report, sorted by key, at most [`MAX_REPORTED_FLOWS`].
    ///
    /// `flows` are the open flows, sorted by key.
    pub fn take_changes<'a>(
        &mut self,
        flows: impl Iterator<Item = (&'a FlowKey, OpenFlow)>,
        is_named: impl Fn(&FlowKey) -> bool,
        now: Duration,
    ) -> Vec<FlowProgress> {
        let mut progress = Vec::new();
        for (key, flow) in flows {
            let Some(last) = self.open_flows.get_mut(key) else { continue };
            let current = ReportedState { flow, time: now };
            let is_due = last.is_none_or(|last| last.is_outdated(&current) && is_named(key));
            if progress.len() < MAX_REPORTED_FLOWS && is_due {
                *last = Some(current);
                let OpenFlow { sent, state, is_gated: gated, is_udp: udp, demand, .. } = flow;
                progress.push(FlowProgress { key: key.clone(), sent, state, gated, udp, demand });
            }
        }
        for (key, flow) in &mut self.ended_flows {
            if progress.len() < MAX_REPORTED_FLOWS && !flow.is_reported {
                flow.is_reported = true;
                let EndedFlow { sent, state, .. } = *flow;
                progress.push(FlowProgress::new(key.clone(), sent, state));
            }
        }
        progress.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        progress
    }

    /// Reports every flow again, since a new coordinator has received no reports.
    pub fn report_all(&mut self) {
        self.ended_flows.values_mut().for_each(|flow| flow.is_confirmed = false);
        self.report_unconfirmed(|_| true);
    }

    /// Reports again all open flows that orders name, and those ended flows that the coordinator has not confirmed: it may have lost their
    /// reports.
    pub fn report_unconfirmed(&mut self, is_named: impl Fn(&FlowKey) -> bool) {
        let named = self.open_flows.iter_mut().filter(|(key, _)| is_named(key));
        named.for_each(|(_, last)| *last = None);
        let named = self.ended_flows.iter_mut().filter(|(key, flow)| !flow.is_confirmed && is_named(key));
        named.for_each(|(_, flow)| flow.is_reported = false);
    }

    /// Records that the coordinator has confirmed the end of a flow.
    pub fn confirm_end(&mut self, key: &FlowKey) {
        if let Some(flow) = self.ended_flows.get_mut(key) {
            flow.is_confirmed = true;
        }
    }
}

/// The maximum time between two reports of a host. A coordinator sends orders only to agents that reported within the lease.
pub fn max_report_interval(lease: Duration, interval: Duration) -> Duration {
    (lease / 4).max(interval)
}

/// The last report without its flows, and its time.
#[derive(Debug, Clone, Default)]
pub struct ReportHistory(Option<(Duration, Report)>);

impl ReportHistory {
    /// Whether a report has to be sent: it contains changes, or the last one was sent `max_interval` ago. If
    /// so, the report counts as sent.
    pub fn is_due(&mut self, report: &Report, max_interval: Duration, now: Duration) -> bool {
        let has_changes =
            !report.flows.is_empty() || !report.observed.is_empty() || !report.udp_measurements.is_empty();
        let is_redundant = self.0.as_ref().is_some_and(|(time, last)| {
            (last.applied, last.restored_objects) == (report.applied, report.restored_objects)
                && (&last.conflicts, &last.links_down) == (&report.conflicts, &report.links_down)
                && now.saturating_sub(*time) < max_interval
        });
        let is_due = has_changes || !is_redundant;
        if is_due {
            let (applied, restored_objects) = (report.applied, report.restored_objects);
            let (conflicts, links_down) = (report.conflicts.clone(), report.links_down.clone());
            self.0 =
                Some((now, Report { applied, restored_objects, conflicts, links_down, ..Report::default() }));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_at_its_ordered_rate_is_not_reported() {
        let state = |sent, limit, ms| ReportedState {
            flow: OpenFlow {
                sent,
                limit,
                state: SenderState::Ready,
                is_gated: false,
                is_udp: false,
                demand: None,
            },
            time: Duration::from_millis(ms),
        };
        // 1000 full packets a second.
        let rate = FlowLimit::Rate(1_514_000);
        let first = state(1000, rate, 0);
        let estimated = 1000 + 144_800;
        for (sent, ms) in [(1000, 0), (estimated, 100), (estimated - 65_536, 100), (estimated + 65_536, 100)]
        {
            assert!(!first.is_outdated(&state(sent, rate, ms)), "{sent} after {ms} ms");
        }
        for (sent, ms) in [(estimated - 65_537, 100), (estimated + 65_537, 100), (1000, 46)] {
            assert!(first.is_outdated(&state(sent, rate, ms)), "{sent} after {ms} ms");
        }
        assert!(first.is_outdated(&state(estimated, FlowLimit::Rate(1_514_001), 100)));
        assert!(first.is_outdated(&state(estimated, FlowLimit::Unlimited, 100)));
        // For a flow without a rate, each byte is a deviation.
        for limit in [FlowLimit::Unlimited, FlowLimit::Paused] {
            let without_rate = state(1000, limit, 0);
            assert!(without_rate.is_outdated(&state(1001, limit, 0)));
            assert!(!without_rate.is_outdated(&state(1000, limit, 1000)));
            assert!(without_rate.is_outdated(&state(1000, FlowLimit::Rate(1), 0)));
        }
    }

    #[test]
    fn flow_that_becomes_idle_gated_or_limited_is_reported() {
        let flow = OpenFlow {
            sent: 1000,
            limit: FlowLimit::Rate(1_514_000),
            state: SenderState::Ready,
            is_gated: false,
            is_udp: false,
            demand: None,
        };
        let at_start = |flow| ReportedState { flow, time: Duration::ZERO };
        assert!(!at_start(flow).is_outdated(&at_start(flow)));
        assert!(at_start(flow).is_outdated(&at_start(OpenFlow { state: SenderState::Idle, ..flow })));
        assert!(at_start(flow).is_outdated(&at_start(OpenFlow { is_gated: true, ..flow })));
        assert!(at_start(flow).is_outdated(&at_start(OpenFlow { demand: Some(5), ..flow })));
    }

    #[test]
    fn flows_that_no_order_names_are_reported_once() {
        let key = |flow| FlowKey { coflow: "a".into(), generation: 1, flow };
        let mut report_delta = ReportDelta::default();
        let open_flow = |sent| OpenFlow {
            sent,
            limit: FlowLimit::Unlimited,
            state: SenderState::Ready,
            is_gated: false,
            is_udp: false,
            demand: None,
        };
        report_delta.open_flow(key(0));
        report_delta.open_flow(key(1));
        report_delta.end_flow(key(2), 5, SenderState::Completed);
        report_delta.end_flow(key(3), 5, SenderState::Lost);
        let is_named = |key: &FlowKey| key.flow % 2 == 1;
        let mut reported_after = |repeats: bool, sent| {
            if repeats {
                report_delta.report_unconfirmed(is_named);
            }
            let flows = [(key(0), open_flow(sent)), (key(1), open_flow(sent))];
            let changes = report_delta.take_changes(
                flows.iter().map(|(key, flow)| (key, *flow)),
                is_named,
                Duration::ZERO,
            );
            changes.iter().map(|progress| progress.key.flow).collect::<Vec<_>>()
        };
        assert_eq!(reported_after(false, 1), [0, 1, 2, 3]);
        assert!(reported_after(false, 1).is_empty());
        assert_eq!(reported_after(false, 2), [1]);
        assert_eq!(reported_after(true, 2), [1, 3]);
        // A new coordinator knows none of them.
        report_delta.report_all();
        let flows = [(key(0), open_flow(2)), (key(1), open_flow(2))];
        let changes =
            report_delta.take_changes(flows.iter().map(|(key, flow)| (key, *flow)), is_named, Duration::ZERO);
        assert_eq!(changes.len(), 4);
    }

    #[test]
    fn empty_report_is_due_after_max_silence_and_after_a_new_order() {
        let max_interval = Duration::from_millis(20);
        let report = |seq| Report { applied: (1, seq), ..Report::default() };
        let mut history = ReportHistory::default();
        let mut is_due =
            |report: &Report, ms| history.is_due(report, max_interval, Duration::from_millis(ms));
        assert!(is_due(&report(1), 0));
        assert!(!is_due(&report(1), 8));
        assert!(is_due(&report(2), 16));
        assert!(!is_due(&report(2), 35));
        assert!(is_due(&report(2), 36));
        let observed = weir_proto::ObservedConnections {
            application: "web".into(),
            peer: std::net::Ipv4Addr::LOCALHOST.into(),
            open_connections: 1,
            sent_bytes: 0,
            demand: weir_proto::Demand::Unknown,
        };
        assert!(is_due(&Report { observed: vec![observed], ..report(2) }, 40));
        assert!(!is_due(&report(2), 48));
    }
}
