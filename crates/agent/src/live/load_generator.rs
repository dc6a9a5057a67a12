//! Simulates the agents of many hosts in one process, to measure the load that a coordinator can handle.
//!
//! The simulated agents use the same streams and messages as agents. They have no sockets, and their reports are simulated.
//!
//! Each host sends one flow of each of [`STEADY_COFLOWS`] coflows, and one of each of [`ENDING_COFLOWS`] coflows. The former send
//! at their ordered rates and never end; the latter end one after another. The module measures the time from the report of a
//! flow's end to the order by which the coordinator confirms it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::transport::Endpoint;
use weir_core::units::Rate;
use weir_proto::{FlowKey, Order, OrderedRate, Report, SenderState, estimate_sent_bytes};

use super::coordinator_stream::{self, AgentIdentity, StreamEvent};
use super::report_timer::ReportTimer;
use super::{DEFAULT_INTERVAL, REPEAT_INTERVAL, ticker};
use crate::lease::{FlowLimit, LeaseState};
use crate::report_delta::{OpenFlow, ReportDelta, ReportHistory, max_report_interval};

/// The number of coflows that do not end.
pub const STEADY_COFLOWS: u32 = 40;

/// The number of coflows that end.
pub const ENDING_COFLOWS: u32 = 32;

/// The time before the first flow of a host ends.
const WARMUP: Duration = Duration::from_secs(2);

/// The time between the ends of two flows of a host.
const END_INTERVAL: Duration = Duration::from_millis(250);

/// The duration of the measurement: the last orders have a second to arrive.
pub const DURATION: Duration =
    WARMUP.saturating_add(END_INTERVAL.saturating_mul(ENDING_COFLOWS)).saturating_add(Duration::from_secs(1));

/// The ids of the coflows that have to be registered. Flow N of each is sent by host N.
pub fn coflow_ids() -> impl Iterator<Item = String> {
    let steady = (0..STEADY_COFLOWS).map(|number| format!("steady-{number:02}"));
    steady.chain((0..ENDING_COFLOWS).map(ending_coflow_id))
}

fn ending_coflow_id(number: u32) -> String {
    format!("ending-{number:02}")
}

/// Runs the agents of hosts with links of a rate for [`DURATION`]. The name of host N is `hN`.
///
/// Returns the times between the report of a flow's end and the order that answers it, sorted. A missing order counts to the end of the
/// measurement.
pub async fn run_agents(coordinator: Endpoint, hosts: Range<u32>, link_rate: Rate) -> Vec<Duration> {
    let mut agents = JoinSet::new();
    for host in hosts {
        agents.spawn(run_agent(coordinator.clone(), host, link_rate));
    }
    let mut waits = agents.join_all().await.concat();
    waits.sort_unstable();
    waits
}

/// A flow that sends at its ordered rate.
struct Flow {
    key: FlowKey,
    limit: FlowLimit,
    sent_bytes: f64,
    estimated_at: Instant,
}

impl Flow {
    fn new(key: FlowKey, now: Instant) -> Flow {
        Flow { key, limit: FlowLimit::Unlimited, sent_bytes: 0.0, estimated_at: now }
    }

    fn open_flow(&self) -> OpenFlow {
        let (sent, limit) = (self.sent_bytes as u64, self.limit);
        OpenFlow { sent, limit, state: SenderState::Ready, is_gated: false, is_udp: false, demand: None }
    }

    fn advance(&mut self, now: Instant) {
        // A flow without a rate sends nothing here: no transport would decide its rate.
        if let FlowLimit::Rate(rate) | FlowLimit::Reserve(rate) = self.limit {
            self.sent_bytes += estimate_sent_bytes(rate, (now - self.estimated_at).as_secs_f64());
        }
        self.estimated_at = now;
    }
}

async fn run_agent(coordinator: Endpoint, host: u32, link_rate: Rate) -> Vec<Duration> {
    let (event_sender, events) = mpsc::channel(16);
    let coordinator = coordinator.into();
    let identity = AgentIdentity {
        name: format!("h{host}"),
        link_rates: Vec::new(),
        interfaces: Vec::new(),
        networks: Vec::new(),
        labels: BTreeMap::new(),
    };
    tokio::select! {
        () = coordinator_stream::keep_open(&coordinator, &identity, event_sender) => Vec::new(),
        waits = simulate_agent(host, link_rate, events) => waits,
    }
}

async fn simulate_agent(
    host: u32,
    link_rate: Rate,
    mut events: mpsc::Receiver<StreamEvent>,
) -> Vec<Duration> {
    let mut agent = SimulatedAgent::new(host, link_rate);
    let mut ticker = ticker(DEFAULT_INTERVAL);
    let (mut report_sender, mut report_interval, mut report_timer) =
        (None, DEFAULT_INTERVAL, ReportTimer::new(0, DEFAULT_INTERVAL));
    loop {
        tokio::select! {
            biased;
            event = events.recv() => match event {
                Some(StreamEvent::Started { number, report_interval: interval, report_sender: reports, .. }) => {
                    ticker = super::ticker(interval);
                    (report_sender, report_interval, report_timer) = (Some(reports), interval, ReportTimer::new(number, interval));
                }
                Some(StreamEvent::Order(order)) => {
                    let now = Instant::now();
                    agent.apply_order(*order, now);
                    ticker.reset_at(report_timer.record_order(now).into());
                }
                Some(StreamEvent::Ended) => report_sender = None,
                None => return agent.waits,
            },
            _ = ticker.tick() => {
                if agent.began.elapsed() > DURATION {
                    return agent.into_waits();
                }
                let Some(Ok(permit)) = report_sender.as_ref().map(mpsc::Sender::try_reserve) else { continue };
                if let Some(report) = agent.next_report(report_interval) {
                    permit.send(report);
                }
            }
        }
    }
}

/// The state of a simulated agent.
struct SimulatedAgent {
    host: u32,
    began: Instant,
    lease: LeaseState,
    report_delta: ReportDelta,
    history: ReportHistory,
    /// The flows that do not end. The first order names all flows with their generations.
    steady: Vec<Flow>,
    ended_count: u32,
    /// The ended flow whose order has not arrived, and when it ended.
    awaited_order: Option<(FlowKey, Instant)>,
    waits: Vec<Duration>,
    last_repeat: Instant,
    /// Whether rates have changed since the last report. A flow that sends at its ordered rate has nothing else to report.
    has_changes: bool,
}

impl SimulatedAgent {
    fn new(host: u32, link_rate: Rate) -> SimulatedAgent {
        let began = Instant::now();
        SimulatedAgent {
            host,
            began,
            lease: LeaseState::new(vec![link_rate]),
            report_delta: ReportDelta::default(),
            history: ReportHistory::default(),
            steady: Vec::new(),
            ended_count: 0,
            awaited_order: None,
            waits: Vec::new(),
            last_repeat: began,
            has_changes: true,
        }
    }

    /// The flow of a coflow that this host sends; none before an order names the coflow.
    fn key(&self, id: String) -> Option<FlowKey> {
        let coflow: Arc<str> = id.into();
        Some(FlowKey { generation: self.lease.newest_generation(&coflow)?, coflow, flow: self.host })
    }

    fn apply_order(&mut self, order: Order, now: Instant) {
        // A full order does not name flows that have ended.
        let is_named = |key: &FlowKey| order.flows.binary_search_by(|flow| flow.0.cmp(key)).is_ok();
        if let Some((_, ended_at)) = self.awaited_order.take_if(|(key, _)| order.is_full || is_named(key)) {
            self.waits.push(ended_at.elapsed());
        }
        let changes = order.is_full || !order.flows.is_empty();
        let ended = order.flows.iter().filter(|(_, rate)| *rate == OrderedRate::Removed);
        ended.for_each(|(key, _)| self.report_delta.confirm_end(key));
        // The next report counts a refused order.
        let _ = self.lease.accept(order, now - self.began);
        if self.steady.is_empty() {
            let ids = coflow_ids().take(STEADY_COFLOWS as usize);
            self.steady = ids.filter_map(|id| Some(Flow::new(self.key(id)?, now))).collect();
            for flow in &self.steady {
                self.report_delta.open_flow(flow.key.clone());
            }
        }
        if changes {
            self.has_changes = true;
            for flow in &mut self.steady {
                flow.advance(now);
                flow.limit = self.lease.flow_limit(&flow.key, now - self.began);
            }
        }
    }

    /// Ends the next flow if it is due and the order for the last one has arrived.
    fn end_next_flow(&mut self) {
        // The flows of different hosts end at different times.
        let first_end = WARMUP + END_INTERVAL * (self.host % ENDING_COFLOWS) / ENDING_COFLOWS;
        if self.awaited_order.is_none()
            && self.ended_count < ENDING_COFLOWS
            && self.began.elapsed() > first_end + END_INTERVAL * self.ended_count
            && let Some(ended_flow) = self.key(ending_coflow_id(self.ended_count))
        {
            self.awaited_order = Some((ended_flow.clone(), Instant::now()));
            self.report_delta.end_flow(ended_flow, 0, SenderState::Completed);
            self.ended_count += 1;
        }
    }

    /// The report to send now, if one is due.
    fn next_report(&mut self, report_interval: Duration) -> Option<Report> {
        self.end_next_flow();
        let now = Instant::now();
        let is_named = |key: &FlowKey| self.lease.names_flow(key);
        if self.last_repeat.elapsed() >= REPEAT_INTERVAL {
            (self.last_repeat, self.has_changes) = (now, true);
            self.report_delta.report_unconfirmed(is_named);
        }
        let changed = if std::mem::take(&mut self.has_changes) { &mut self.steady[..] } else { &mut [] };
        changed.iter_mut().for_each(|flow| flow.advance(now));
        let progress = changed.iter().map(|flow| (&flow.key, flow.open_flow()));
        let flows = self.report_delta.take_changes(progress, is_named, now - self.began);
        let report = Report { applied: self.lease.applied(), flows, ..Report::default() };
        let max_interval = max_report_interval(self.lease.lease(), report_interval);
        self.history.is_due(&report, max_interval, now - self.began).then_some(report)
    }

    /// The waits at the end of the measurement, with that of an order that has not arrived.
    fn into_waits(mut self) -> Vec<Duration> {
        self.waits.extend(self.awaited_order.map(|(_, ended_at)| ended_at.elapsed()));
        self.waits
    }
}
