//! Selects the flows that a report has to contain: those that deviate from the coordinator's estimate.
//!
//! The coordinator estimates the progress of a flow: it assumes that the flow sends at its ordered rate. A flow is reported only if it
//! deviates from this estimate. Sans-I/O, like [`crate::lease`]: callers pass the time, which counts from any point and is monotonic.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use weir_proto::{FlowKey, FlowProgress, MAX_SEEN, Report, estimate_sent};

/// The maximum difference between the bytes that a flow has sent and the coordinator's estimate: about one large packet (GSO), in bytes.
const SLACK: f64 = 65_536.0;

/// The maximum number of ended flows that are remembered; the oldest are dropped first.
pub const MAX_OVER: usize = 1 << 14;

/// The last reported state of a flow.
#[derive(Debug, Clone, Copy)]
struct Told {
    sent: u64,
    rate: Option<u64>,
    at: Duration,
}

impl Told {
    /// Whether the last report of a flow is out of date. It is if the rate has changed, since only the agent knows from what time on.
    fn is_old(&self, now: &Told) -> bool {
        let Some(rate) = self.rate.filter(|_| self.rate == now.rate) else {
            return (self.sent, self.rate) != (now.sent, now.rate);
        };
        let reckoned = self.sent as f64 + estimate_sent(rate, now.at.saturating_sub(self.at).as_secs_f64());
        (now.sent as f64 - reckoned).abs() > SLACK
    }
}

#[derive(Debug, Clone)]
struct Over {
    sent: u64,
    told: bool,
    /// Whether the coordinator has confirmed the end of the flow.
    settled: bool,
}

/// The reported state of a host's flows.
#[derive(Debug, Clone, Default)]
pub struct ReportDelta {
    open: BTreeMap<FlowKey, Option<Told>>,
    over: BTreeMap<FlowKey, Over>,
    /// Ended flows, in the order of their ends. A flow that has been opened again since then is still in the list.
    ended: VecDeque<FlowKey>,
}

impl ReportDelta {
    /// Adds a flow that begins, or continues over another connection. Returns the bytes that it has sent before.
    pub fn open(&mut self, key: FlowKey) -> u64 {
        let before = self.over.remove(&key).map_or(0, |over| over.sent);
        self.open.insert(key, None);
        before
    }

    /// Records the end of a flow, and the bytes that it has sent.
    pub fn end(&mut self, key: FlowKey, sent: u64) {
        self.open.remove(&key);
        self.ended.push_back(key.clone());
        self.over.insert(key, Over { sent, told: false, settled: false });
        while self.ended.len() > MAX_OVER {
            let Some(key) = self.ended.pop_front() else { break };
            // A flow that has ended again since then occurs in the list again.
            if !self.ended.contains(&key) {
                self.over.remove(&key);
            }
        }
    }

    /// Returns the flows that deviate from the last report, sorted by key, at most [`MAX_SEEN`].
    ///
    /// `flows` are the open flows, sorted by key. Each has the bytes that it has sent, and its rate in bytes per second, or none if it is
    /// not paced.
    pub fn changes<'a>(
        &mut self,
        flows: impl Iterator<Item = (&'a FlowKey, u64, Option<u64>)>,
        now: Duration,
    ) -> Vec<FlowProgress> {
        let mut seen = Vec::new();
        for (key, sent, rate) in flows {
            let Some(told) = self.open.get_mut(key) else { continue };
            let is = Told { sent, rate, at: now };
            if seen.len() < MAX_SEEN && told.is_none_or(|told| told.is_old(&is)) {
                *told = Some(is);
                seen.push(FlowProgress { key: key.clone(), sent, closed: false });
            }
        }
        for (key, over) in &mut self.over {
            if seen.len() < MAX_SEEN && !over.told {
                over.told = true;
                seen.push(FlowProgress { key: key.clone(), sent: over.sent, closed: true });
            }
        }
        seen.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        seen
    }

    /// Reports every flow again: the coordinator has changed, and knows of none.
    pub fn report_all(&mut self) {
        self.over.values_mut().for_each(|over| (over.told, over.settled) = (false, false));
        self.report_unsettled();
    }

    /// Reports again each flow whose end the coordinator has not confirmed: the report may have arrived before the flow's coflow did.
    pub fn report_unsettled(&mut self) {
        self.open.values_mut().for_each(|told| *told = None);
        self.over.values_mut().filter(|over| !over.settled).for_each(|over| over.told = false);
    }

    /// Records that the coordinator knows the end of a flow.
    pub fn settle(&mut self, key: &FlowKey) {
        if let Some(over) = self.over.get_mut(key) {
            over.settled = true;
        }
    }
}

/// The maximum time between two reports of a host. A coordinator sends orders only to agents that reported within the lease.
pub fn max_silence(lease: Duration, interval: Duration) -> Duration {
    (lease / 4).max(interval)
}

/// The last report without its flows, and its time.
#[derive(Debug, Clone, Default)]
pub struct ReportHistory(Option<(Duration, Report)>);

impl ReportHistory {
    /// Whether a report has to be sent: it contains news, or the last one was sent `most` ago. If so, the report counts as sent.
    pub fn is_due(&mut self, report: &Report, most: Duration, now: Duration) -> bool {
        let is_news = !report.flows.is_empty() || !report.found.is_empty() || !report.arrivals.is_empty();
        let silent = self.0.as_ref().is_some_and(|(at, last)| {
            (last.obeys, last.restored) == (report.obeys, report.restored)
                && last.conflicts == report.conflicts
                && now.saturating_sub(*at) < most
        });
        let is_due = is_news || !silent;
        if is_due {
            let (obeys, restored, conflicts) = (report.obeys, report.restored, report.conflicts.clone());
            self.0 = Some((now, Report { obeys, restored, conflicts, ..Report::default() }));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_at_its_ordered_rate_is_not_reported() {
        let told = |sent, rate, ms| Told { sent, rate, at: Duration::from_millis(ms) };
        // 1000 full packets a second.
        let rate = Some(1_514_000);
        let first = told(1000, rate, 0);
        let reckoned = 1000 + 144_800;
        for (sent, ms) in [(1000, 0), (reckoned, 100), (reckoned - 65_536, 100), (reckoned + 65_536, 100)] {
            assert!(!first.is_old(&told(sent, rate, ms)), "{sent} after {ms} ms");
        }
        for (sent, ms) in [(reckoned - 65_537, 100), (reckoned + 65_537, 100), (1000, 46)] {
            assert!(first.is_old(&told(sent, rate, ms)), "{sent} after {ms} ms");
        }
        assert!(first.is_old(&told(reckoned, Some(1_514_001), 100)));
        assert!(first.is_old(&told(reckoned, None, 100)));
        // For a flow that is not paced, each byte is a deviation.
        let free = told(1000, None, 0);
        assert!(free.is_old(&told(1001, None, 0)));
        assert!(!free.is_old(&told(1000, None, 1000)));
        assert!(free.is_old(&told(1000, Some(1), 0)));
    }

    #[test]
    fn empty_report_is_due_after_max_silence_and_after_a_new_order() {
        let most = Duration::from_millis(20);
        let report = |seq| Report { obeys: (1, seq), ..Report::default() };
        let mut voice = ReportHistory::default();
        let mut is_due = |report: &Report, ms| voice.is_due(report, most, Duration::from_millis(ms));
        assert!(is_due(&report(1), 0));
        assert!(!is_due(&report(1), 8));
        assert!(is_due(&report(2), 16));
        assert!(!is_due(&report(2), 35));
        assert!(is_due(&report(2), 36));
        let found = weir_proto::Found {
            application: "web".into(),
            peer: std::net::Ipv4Addr::LOCALHOST.into(),
            open: 1,
            sent: 0,
            demand: weir_proto::Demand::Unknown,
        };
        assert!(is_due(&Report { found: vec![found], ..report(2) }, 40));
        assert!(!is_due(&report(2), 48));
    }
}
