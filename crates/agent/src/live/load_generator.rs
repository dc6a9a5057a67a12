//! Simulates the agents of many hosts in one process, to measure the load that a coordinator can handle.
//!
//! The simulated agents use the same streams and messages as agents. They have no sockets, and their reports are invented.
//!
//! Each host has one flow of each of [`STEADY`] coflows, and one of each of [`ENDING`] coflows. The former send at their ordered rates and
//! never end; the latter end one after another. When a flow ends, its host's order has to change, and the time to that order is measured.

use std::ops::Range;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::transport::Endpoint;
use weir_core::units::Rate;
use weir_proto::{FlowKey, Pace, Report, estimate_sent};

use super::coordinator_stream::{self, Event};
use super::report_timer::ReportTimer;
use super::{ALONE, ANEW, clock};
use crate::lease::LeaseState;
use crate::report_delta::{ReportDelta, ReportHistory, max_silence};

/// The number of coflows that do not end.
pub const STEADY: u32 = 40;

/// The number of coflows that end.
pub const ENDING: u32 = 32;

/// The time before the first flow of a host ends, and the time between two ends.
const WARM: Duration = Duration::from_secs(2);
const APART: Duration = Duration::from_millis(250);

/// The duration of the measurement: the last orders have a second to arrive.
pub const TIME: Duration =
    WARM.saturating_add(APART.saturating_mul(ENDING)).saturating_add(Duration::from_secs(1));

/// The ids of the coflows that have to be registered. Flow N of each is sent by host N.
pub fn coflows() -> impl Iterator<Item = String> {
    let steady = (0..STEADY).map(|number| format!("steady-{number:02}"));
    steady.chain((0..ENDING).map(ending))
}

fn ending(number: u32) -> String {
    format!("ending-{number:02}")
}

/// Runs the agents of hosts with links of a rate for [`TIME`].
///
/// Returns the times between the report of a flow's end and the order that answers it, sorted. A missing order counts to the end of the
/// measurement.
pub async fn attend(coordinator: Endpoint, hosts: Range<u32>, rate: Rate) -> Vec<Duration> {
    let mut all = JoinSet::new();
    for host in hosts {
        all.spawn(one(coordinator.clone(), host, rate));
    }
    let mut waits = all.join_all().await.concat();
    waits.sort_unstable();
    waits
}

/// A flow that sends at its ordered rate.
struct Flow {
    key: FlowKey,
    rate: Option<u64>,
    sent: f64,
    by: Instant,
}

impl Flow {
    fn new(key: FlowKey, now: Instant) -> Flow {
        Flow { key, rate: None, sent: 0.0, by: now }
    }

    fn go_on(&mut self, now: Instant) {
        // A flow without an order sends nothing here: no transport would decide its rate.
        self.sent += estimate_sent(self.rate.unwrap_or(0), (now - self.by).as_secs_f64());
        self.by = now;
    }
}

async fn one(coordinator: Endpoint, host: u32, rate: Rate) -> Vec<Duration> {
    let (said, events) = mpsc::channel(16);
    tokio::select! {
        () = coordinator_stream::keep(coordinator, host, said, |_| {}) => Vec::new(),
        waits = speak(host, rate, events) => waits,
    }
}

async fn speak(host: u32, rate: Rate, mut events: mpsc::Receiver<Event>) -> Vec<Duration> {
    let mut keeper = LeaseState::new(vec![rate]);
    let mut clock = clock(ALONE);
    let (mut up, mut every, mut report_timer) = (None, ALONE, ReportTimer::new(host, ALONE));
    let key = |id: String| FlowKey { coflow: id.into(), flow: host };
    let (mut ended, mut waits, mut voice, mut report_delta) =
        (0, Vec::new(), ReportHistory::default(), ReportDelta::default());
    let mut asked: Option<(FlowKey, Instant)> = None;
    // The flows of different hosts end at different times.
    let first = WARM + APART * (host % ENDING) / ENDING;
    let began = Instant::now();
    let mut steady: Vec<Flow> = coflows().take(STEADY as usize).map(|id| Flow::new(key(id), began)).collect();
    for flow in &steady {
        report_delta.open(flow.key.clone());
    }
    // A flow that sends at its ordered rate has nothing to report until its rate changes.
    let (mut anew, mut is_news) = (began, true);
    loop {
        tokio::select! {
            biased;
            event = events.recv() => match event {
                Some(Event::Begun { every: interval, up: reports, .. }) => {
                    clock = super::clock(interval);
                    (up, every, report_timer) = (Some(reports), interval, ReportTimer::new(host, interval));
                }
                Some(Event::Order(order)) => {
                    // A complete order does not name flows that have ended.
                    let named = |key: &FlowKey| order.flows.binary_search_by(|flow| flow.0.cmp(key)).is_ok();
                    if let Some((_, since)) = asked.take_if(|(key, _)| order.whole || named(key)) {
                        waits.push(since.elapsed());
                    }
                    let (now, changes) = (Instant::now(), order.whole || !order.flows.is_empty());
                    let over = order.flows.iter().filter(|(_, pace)| *pace == Pace::Gone);
                    over.for_each(|(key, _)| report_delta.settle(key));
                    // The next report counts a refused order.
                    let _ = keeper.accept(order, now - began);
                    if changes {
                        is_news = true;
                        for flow in &mut steady {
                            flow.go_on(now);
                            flow.rate = keeper.rate(&flow.key, now - began);
                        }
                    }
                    clock.reset_at(report_timer.order(now).into());
                }
                Some(Event::Ended) => up = None,
                None => return waits,
            },
            _ = clock.tick() => {
                if began.elapsed() > TIME {
                    waits.extend(asked.map(|(_, since)| since.elapsed()));
                    return waits;
                }
                let Some(Ok(place)) = up.as_ref().map(mpsc::Sender::try_reserve) else { continue };
                if asked.is_none() && ended < ENDING && began.elapsed() > first + APART * ended {
                    let over = key(ending(ended));
                    asked = Some((over.clone(), Instant::now()));
                    report_delta.end(over, 0);
                    ended += 1;
                }
                let now = Instant::now();
                if anew.elapsed() >= ANEW {
                    (anew, is_news) = (now, true);
                    report_delta.report_unsettled();
                }
                let named = if std::mem::take(&mut is_news) { &mut steady[..] } else { &mut [] };
                named.iter_mut().for_each(|flow| flow.go_on(now));
                let named = named.iter().map(|flow| (&flow.key, flow.sent as u64, flow.rate));
                let flows = report_delta.changes(named, now - began);
                let report = Report { obeys: keeper.obeys(), flows, ..Report::default() };
                if voice.is_due(&report, max_silence(keeper.lease(), every), now - began) {
                    place.send(report);
                }
            }
        }
    }
}
