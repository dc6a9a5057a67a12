//! Reports of agents: checks their entries, updates the progress of flows, and estimates the progress of flows without
//! a report.

use weir_core::units::Bytes;
use weir_proto::{FlowProgress, Report, Totals, estimate_sent};

use super::{ControlPlane, Pace, UNKNOWN};

/// Tolerated difference between the engine's bytes of a flow and the sent bytes, as a fraction of what the link sends
/// in an interval. An update of the engine costs more than this error.
const SLACK: f64 = 0.1;

impl ControlPlane {
    /// Applies the report of a host or switch. A host reports the flows that it sends.
    pub fn report(&mut self, host: u32, report: &Report, now: f64) {
        self.pass(now);
        let Some(known) = self.hosts.get_mut(host as usize) else {
            self.doubts.absent += (report.flows.len() + report.found.len() + report.arrivals.len()) as u64;
            return;
        };
        known.heard = Some(self.now);
        // Reports carry totals, so a lost report loses no count.
        self.refusals = self.refusals.plus(report.refusals.since(known.refused));
        known.refused = report.refusals;
        self.restored = self.restored.plus(report.restored.since(known.restored));
        known.restored = report.restored;
        known.conflicts.clone_from(&report.conflicts);
        let (epoch, seq) = report.obeys;
        let obeys = if epoch == self.epoch { seq } else { 0 };
        if obeys > known.obeys {
            known.owes = self.now;
        }
        known.obeys = obeys;
        let lost = obeys < known.seq && self.now - known.owes > self.settings.answer();
        known.whole |= epoch != self.epoch || seq > known.seq || lost;
        if host as usize >= self.links.len() {
            // Switches run no programs.
            self.doubts.foreign += report.found.len() as u64;
        } else {
            let left_out = report.found.iter().filter(|found| !known.found.see(found)).count();
            let unheard = self.hear_demands(host, &report.found);
            self.doubts.crowded += (left_out + unheard) as u64;
        }
        let known = &mut self.hosts[host as usize];
        if !known.present {
            known.present = true;
            self.give_data(host, true);
        }
        for seen in &report.flows {
            self.see(host, seen);
        }
        self.arrive(host, &report.arrivals);
    }

    fn see(&mut self, host: u32, seen: &FlowProgress) {
        let Some(coflow) = self.coflows.get_mut(&seen.key.coflow) else {
            self.doubts.unknown += 1;
            return;
        };
        let Some(flow) = coflow.flows.get_mut(seen.key.flow as usize) else {
            self.doubts.unknown += 1;
            return;
        };
        if flow.transfer.src != host {
            self.doubts.foreign += 1;
            return;
        }
        let Some(slot) = coflow.slot.filter(|_| !flow.done) else { return };
        if flow.grace.take().is_some() {
            self.engine.data(slot, flow.number, UNKNOWN, self.now);
        }
        let line = self.links[host as usize].send.get();
        let mut sent = seen.sent as f64;
        // The first report may include bytes sent under an earlier coordinator, so it has no upper limit.
        if let Some((said, at)) = flow.said {
            let most = said + line * (1.05 * (self.now - at) + 2.0 * self.settings.interval) + 65536.0;
            if sent > most {
                self.doubts.beyond += 1;
                sent = most;
            }
        }
        sent = sent.min(flow.transfer.bytes.map_or(UNKNOWN, Bytes::get));
        if let Some((said, _)) = flow.said
            && sent < said
        {
            self.doubts.backward += 1;
            sent = said;
        }
        coflow.sent += sent - flow.sent;
        (flow.said, flow.sent, flow.by) = (Some((sent, self.now)), sent, self.now);
        if seen.closed {
            flow.done = true;
            self.engine.report(slot, coflow.sent, 0.0, self.now);
            self.engine.closed(slot, flow.number, sent, self.now);
            self.leave_if_over(&seen.key.coflow.clone());
            return;
        }
        flow.ahead = sent - self.engine.network().attained(slot, flow.number, self.now);
        if flow.ahead.abs() > SLACK * line * self.settings.interval {
            flow.ahead = 0.0;
            self.engine.sent(slot, flow.number, sent, self.now);
        }
    }

    /// Adds the estimated progress of flows at their ordered rates, and gives the engine the bytes of all coflows and
    /// the flows without data. O(flows).
    pub(super) fn reckon(&mut self) {
        let (now, settings) = (self.now, self.settings);
        for coflow in self.coflows.values_mut() {
            let Some(slot) = coflow.slot else { continue };
            for flow in coflow.flows.iter_mut().filter(|flow| !flow.done) {
                if flow.is_absent(now) {
                    self.engine.hold(slot, flow.number, now);
                }
                let since = std::mem::replace(&mut flow.by, now);
                let host = &self.hosts[flow.transfer.src as usize];
                let obeys =
                    flow.said.is_some() && !flow.is_absent(now) && host.silent_for(now) <= settings.lease;
                let Some(Pace::Rate(rate)) = flow.told.filter(|_| obeys) else { continue };
                let size = flow.transfer.bytes.map_or(UNKNOWN, Bytes::get);
                let more = estimate_sent(rate, now - since).min(size - flow.sent);
                flow.sent += more;
                coflow.sent += more;
                // The engine estimates flows that it gave a rate itself.
                if self.engine.network().rate(slot, flow.number) >= 1.0 {
                    continue;
                }
                flow.ahead += more;
                let line = self.links[flow.transfer.src as usize].send.get();
                if flow.ahead > SLACK * line * settings.interval {
                    flow.ahead = 0.0;
                    self.engine.sent(slot, flow.number, flow.sent, now);
                }
            }
            self.engine.report(slot, coflow.sent, 0.0, now);
        }
    }

    /// Marks the flows of a host as with or without data in the engine.
    pub(super) fn give_data(&mut self, host: u32, there: bool) {
        for coflow in self.coflows.values() {
            let Some(slot) = coflow.slot else { continue };
            for flow in coflow.flows.iter().filter(|flow| flow.transfer.src == host && !flow.done) {
                if !there {
                    self.engine.hold(slot, flow.number, self.now);
                } else if !flow.is_absent(self.now) {
                    self.engine.data(slot, flow.number, UNKNOWN, self.now);
                }
            }
        }
    }

    /// An agent connects, and reports all of its flows again. A flow that it does not report within a lease has no connection any more:
    /// a restarted agent knows only the sockets that programs hand over again. O(flows).
    pub fn reconnected(&mut self, host: u32) {
        let grace = self.grace();
        for coflow in self.coflows.values_mut() {
            let flows = coflow.flows.iter_mut().filter(|flow| flow.transfer.src == host && !flow.done);
            flows.for_each(|flow| {
                flow.grace.get_or_insert(grace);
            });
        }
    }

    /// Makes the next order to a host complete, since earlier orders may be lost.
    pub fn renew(&mut self, host: u32) {
        if let Some(known) = self.hosts.get_mut(host as usize) {
            known.whole = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_core::model::Names;
    use weir_core::policy::build;
    use weir_core::units::{Bytes, Rate};
    use weir_proto::{FlowKey, FlowProgress, Report};

    use super::super::{ControlPlane, Link, Registration, Settings, Transfer};

    /// Engine and control plane estimate the same progress of a flow without reports; neither ends a flow that
    /// continues.
    #[test]
    fn engine_and_control_plane_estimate_equal_progress() {
        let rate = Rate::new(1e7).unwrap();
        let settings = Settings::default();
        let policy = build("saath").unwrap();
        let mut plane =
            ControlPlane::new(&[Link { send: rate, recv: rate }; 2], policy, Names::default(), settings, 1)
                .unwrap();
        let flow = Transfer { src: 0, dst: 1, bytes: Bytes::new(9e6) };
        let registration = Registration {
            service: Names::DEFAULT.to_owned(),
            application: Names::DEFAULT.to_owned(),
            weight: 1.0,
            deadline: None,
            flows: vec![flow],
        };
        plane.register("a", registration, 0.0).unwrap();
        let seen = FlowProgress { key: FlowKey { coflow: "a".into(), flow: 0 }, sent: 0, closed: false };
        let first = Report { flows: vec![seen], ..Report::default() };
        plane.report(0, &first, 0.0);
        let (mut now, mut obeys) = (0.0, 0);
        for _ in 0..100 {
            now += settings.interval;
            if let Some((_, order)) = plane.tick(now).into_iter().find(|(host, _)| *host == 0) {
                obeys = order.seq;
            }
            plane.report(0, &Report { obeys: (1, obeys), ..Report::default() }, now);
        }
        plane.reckon();
        let flow = &plane.coflows["a"].flows[0];
        let attained = plane.engine.network().attained(0, flow.number, now);
        assert!(flow.sent > 7e6, "{} bytes", flow.sent);
        assert!((attained - flow.sent).abs() < 1e4, "the engine has {attained}, and hosts say {}", flow.sent);
    }
}
