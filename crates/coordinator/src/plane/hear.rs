//! What hosts say.

use weir_core::units::Bytes;
use weir_proto::{Report, Seen};

use super::{Plane, UNKNOWN};

impl Plane {
    /// A host reports. Its flows are those that it sends.
    pub fn report(&mut self, host: u32, report: &Report, now: f64) {
        self.pass(now);
        let Some(known) = self.hosts.get_mut(host as usize) else {
            self.doubts.absent += (report.flows.len() + report.found.len()) as u64;
            return;
        };
        known.heard = Some(self.now);
        let (epoch, seq) = report.obeys;
        let obeys = if epoch == self.epoch { seq } else { 0 };
        if obeys > known.obeys {
            known.owes = self.now;
        }
        known.obeys = obeys;
        let lost = obeys < known.seq && self.now - known.owes > self.settings.answer();
        known.whole |= epoch != self.epoch || seq > known.seq || lost;
        let left_out = report.found.iter().filter(|found| !known.found.see(found)).count();
        self.doubts.crowded += left_out as u64;
        if !known.present {
            known.present = true;
            self.give_data(host, true);
        }
        for seen in &report.flows {
            self.see(host, seen);
        }
    }

    fn see(&mut self, host: u32, seen: &Seen) {
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
        let line = self.hosts[host as usize].link.send.get();
        let mut sent = seen.sent as f64;
        // What is heard first may be of a time before this plane.
        if let Some(at) = flow.seen {
            let most = flow.sent + line * (1.05 * (self.now - at) + 2.0 * self.settings.interval) + 65536.0;
            if sent > most {
                self.doubts.beyond += 1;
                sent = most;
            }
        }
        sent = sent.min(flow.transfer.bytes.map_or(UNKNOWN, Bytes::get));
        if sent < flow.sent {
            self.doubts.backward += 1;
            sent = flow.sent;
        }
        coflow.sent += sent - flow.sent;
        (flow.sent, flow.seen) = (sent, Some(self.now));
        self.engine.report(slot, coflow.sent, 0.0, self.now);
        let known = self.engine.network().attained(slot, flow.number, self.now);
        if seen.closed {
            flow.done = true;
            self.engine.closed(slot, flow.number, sent, self.now);
            self.leave_if_over(&seen.key.coflow.clone());
        } else if (known - sent).abs() > 0.1 * line * self.settings.interval {
            self.engine.sent(slot, flow.number, sent, self.now);
        }
    }

    /// Gives the flows of a host their data, or takes it away.
    pub(super) fn give_data(&mut self, host: u32, there: bool) {
        for coflow in self.coflows.values() {
            let Some(slot) = coflow.slot else { continue };
            for flow in coflow.flows.iter().filter(|flow| flow.transfer.src == host && !flow.done) {
                if there {
                    self.engine.data(slot, flow.number, UNKNOWN, self.now);
                } else {
                    self.engine.hold(slot, flow.number, self.now);
                }
            }
        }
    }

    /// The next order to a host names everything: what was sent to it before may not have come.
    pub fn renew(&mut self, host: u32) {
        if let Some(known) = self.hosts.get_mut(host as usize) {
            known.whole = true;
        }
    }
}
