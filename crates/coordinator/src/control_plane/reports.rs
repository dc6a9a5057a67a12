//! Applies reports of agents: checks their entries, updates the progress of flows, and estimates the progress of flows
//! without a report.

use weir_core::model::{FlowState, Slot};
use weir_core::units::Bytes;
use weir_proto::{
    CounterTotals, FlowKey, FlowProgress, MAX_REPORTED_FLOWS, Report, SenderState, UnscheduledReason,
};

use super::udp_measurements::{MAX_PACKET_BYTES, RATE_TOLERANCE};
use super::{ControlPlane, Flow, UNKNOWN_SIZE_BYTES};

/// Tolerated difference between the engine's bytes of a flow and the sent bytes, as a fraction of the bytes that the link
/// sends in an interval. Frequent updates of the engine cost more than this error.
const SYNC_TOLERANCE: f64 = 0.1;

/// The difference above which the policy decides without another event. With small differences, policies that set rates by
/// remaining bytes would change the rates of all flows at every interval.
const MAX_DIFFERENCE: f64 = 10.0;

/// Flows whose bytes in the engine differ from the sent bytes.
#[derive(Debug, Default)]
pub(super) struct Deviations {
    /// Slot, index in the engine, and the sent bytes.
    pub flows: Vec<(Slot, u32, f64)>,
    /// Whether a difference exceeds [`MAX_DIFFERENCE`].
    pub are_large: bool,
}

/// The flow with the key that a host reports, of the flows of a coflow's registration `generation`.
///
/// # Errors
/// Why the flow is not scheduled.
fn reported_flow<'a>(
    flows: &'a mut [Flow],
    generation: u64,
    host: u32,
    key: &FlowKey,
) -> Result<&'a mut Flow, UnscheduledReason> {
    // A socket without a generation joins the registration that the next order names.
    if key.generation != 0 && key.generation != generation {
        return Err(UnscheduledReason::FormerRegistration);
    }
    match flows.get_mut(key.flow as usize) {
        None => Err(UnscheduledReason::UnknownFlow),
        Some(flow) if flow.transfer.src != host => Err(UnscheduledReason::ForeignFlow),
        Some(flow) if flow.is_completed => Err(UnscheduledReason::Completed),
        Some(flow) => Ok(flow),
    }
}

impl ControlPlane {
    /// Applies the report of a host or switch. Hosts report the flows that they send.
    pub fn report(&mut self, host: u32, report: &Report, now: f64) {
        self.advance_to(now);
        let Some(host_state) = self.hosts.get_mut(host as usize) else {
            self.rejected_entries.unknown_host +=
                (report.flows.len() + report.observed.len() + report.udp_measurements.len()) as u64;
            return;
        };
        host_state.last_report_at = Some(self.now);
        // Reports contain totals, so a lost report loses no count.
        self.refused_orders = self.refused_orders.add(report.refused_orders.since(host_state.refused_orders));
        host_state.refused_orders = report.refused_orders;
        self.restored_objects =
            self.restored_objects.add(report.restored_objects.since(host_state.restored_objects));
        host_state.restored_objects = report.restored_objects;
        host_state.conflicts.clone_from(&report.conflicts);
        if host_state.links_down != report.links_down {
            host_state.links_down.clone_from(&report.links_down);
            self.has_new_link_reports = true;
        }
        host_state.bandwidth.reported = report.bandwidth_limit;
        let timeout = self.settings.confirmation_timeout();
        host_state.orders.confirm(report.applied, self.epoch, timeout, self.now);
        host_state.orders.needs_full_order |= report.applied.0 != self.epoch;
        if host as usize >= self.links.hosts.len() {
            // Switches run no programs.
            self.rejected_entries.foreign_flow += report.observed.len() as u64;
        } else {
            let rejected_observed =
                report.observed.iter().filter(|entry| !host_state.observed.apply(entry)).count();
            let rejected_demands = self.store_demands(host, &report.observed);
            self.rejected_entries.too_many += (rejected_observed + rejected_demands) as u64;
        }
        let host_state = &mut self.hosts[host as usize];
        if !host_state.present {
            host_state.present = true;
            self.set_has_data(host, true);
        }
        // Completions first: a flow that has completed as scheduled is not overdue.
        let is_completed = |progress: &&FlowProgress| progress.state == SenderState::Completed;
        let (completed, others): (Vec<_>, Vec<_>) = report.flows.iter().partition(is_completed);
        completed.into_iter().chain(others).for_each(|progress| self.apply_progress(host, progress));
        self.store_udp_measurements(host, &report.udp_measurements);
        if let Some((matching, report)) = self.matching.as_mut().zip(report.matching.as_ref())
            && let Some(&link) = self.links.hosts.get(host as usize)
        {
            self.has_changed_flows |= matching.report(host, link, report, self.now);
        }
    }

    /// Checks the progress of one flow, and applies it to the coflow and the engine.
    fn apply_progress(&mut self, host: u32, progress: &FlowProgress) {
        let Some(coflow) = self.coflows.get_mut(&progress.key.coflow) else {
            return self.refuse_flow(host, progress, UnscheduledReason::UnknownCoflow);
        };
        let generation = coflow.registration.generation;
        let flow = match reported_flow(&mut coflow.flows, generation, host, &progress.key) {
            Ok(flow) => flow,
            Err(reason) => return self.refuse_flow(host, progress, reason),
        };
        let Some(slot) = coflow.slot.filter(|_| progress.key.generation != 0) else { return };
        let has_new_data = progress.state == SenderState::Ready && flow.state != SenderState::Ready;
        (flow.grace_end, flow.state) = (None, progress.state);
        (flow.is_gated, flow.is_udp) = (progress.gated, progress.udp);
        flow.demand = progress.demand.filter(|_| flow.state == SenderState::Ready);
        let link_rate = self.link_rates.unlimited_send_rate(host);
        // An agent that has restarted does not know the bytes before a restart of the flow.
        flow.sent_before_restart = flow.sent_before_restart.min(progress.sent);
        let sent = (progress.sent - flow.sent_before_restart) as f64;
        // Programs may hand over sockets shortly before the registration, and reports may be late by two intervals.
        let (last_sent, sends_since) =
            flow.last_report.unwrap_or((0.0, coflow.registered_at - self.settings.lease));
        let max_sent = last_sent
            + link_rate * (RATE_TOLERANCE * (self.now - sends_since) + 2.0 * self.settings.interval)
            + MAX_PACKET_BYTES;
        // Rejected bytes change nothing. That the flow has a connection, or had one, and that it sends, is plausible, and applies: links
        // may be faster than configured.
        let has_progress = flow.last_report.is_none() || progress.sent > flow.reported_bytes;
        flow.reported_bytes = progress.sent;
        // Its registered size limits the bytes of a flow that has completed.
        let is_limited = progress.state == SenderState::Completed && flow.transfer.bytes.is_some();
        if sent > max_sent && !is_limited {
            self.rejected_entries.above_link_rate += 1;
            flow.last_report = Some((last_sent, sends_since));
        } else if sent < last_sent {
            self.rejected_entries.decreasing += 1;
            flow.last_report = Some((last_sent, self.now));
        } else {
            let sent = sent.min(flow.transfer.bytes.map_or(UNKNOWN_SIZE_BYTES, Bytes::get));
            flow.advance_estimate(self.now);
            coflow.sent_bytes += sent - flow.sent_bytes;
            (flow.last_report, flow.sent_bytes) = (Some((sent, self.now)), sent);
        }
        if has_new_data || has_progress {
            flow.confirm_progress();
        }
        let is_all_acked =
            flow.transfer.bytes.zip(flow.last_report).is_some_and(|(size, (sent, _))| sent >= size.get());
        if flow.state == SenderState::Completed || flow.state == SenderState::Lost && is_all_acked {
            flow.is_completed = true;
            self.has_changed_flows = true;
            self.engine.record_coflow_report(slot, coflow.sent_bytes, 0.0, self.now);
            self.engine.close_flow(slot, flow.engine_index, flow.sent_bytes, self.now);
            self.remove_if_completed(&progress.key.coflow.clone());
            return;
        }
        let (index, sends) = (flow.engine_index, flow.sends(self.now));
        let max_rate = flow.max_rate(&self.links, &self.settings);
        // The receiver of a flow with new data learns of it.
        self.has_changed_flows |= has_new_data && self.matching.is_some();
        self.set_flow_sends(slot, index, sends);
        self.set_max_rate(slot, index, max_rate);
    }

    /// Counts a reported flow that is not scheduled. The program of a gated flow receives the reason.
    fn refuse_flow(&mut self, host: u32, progress: &FlowProgress, reason: UnscheduledReason) {
        match reason {
            UnscheduledReason::UnknownCoflow | UnscheduledReason::UnknownFlow => {
                self.rejected_entries.unknown_flow += 1;
            }
            UnscheduledReason::FormerRegistration => self.rejected_entries.former_generation += 1,
            UnscheduledReason::ForeignFlow => self.rejected_entries.foreign_flow += 1,
            UnscheduledReason::Completed => {}
        }
        let is_open = matches!(progress.state, SenderState::Ready | SenderState::Idle);
        let unscheduled = &mut self.hosts[host as usize].unscheduled;
        if progress.gated && is_open && unscheduled.len() < MAX_REPORTED_FLOWS {
            unscheduled.insert(progress.key.clone(), reason);
            self.has_changed_flows = true;
        }
    }

    /// Sets in the engine whether a flow has data and may send it, if that has changed.
    pub(super) fn set_flow_sends(&mut self, slot: Slot, index: u32, sends: bool) {
        let is_live = self.engine.network().coflow(slot).flow_state(index) == FlowState::Live;
        if sends == is_live {
            return;
        }
        self.has_changed_flows = true;
        self.engine.correct_overdue_flows_of(slot, self.overdue_bytes(), self.now);
        if sends {
            self.engine.set_flow_live(slot, index, UNKNOWN_SIZE_BYTES, self.now);
        } else {
            self.engine.set_flow_waiting(slot, index, self.now);
        }
    }

    /// Starts the lost flows of a coflow again, without bytes: their framework has registered them again.
    pub(super) fn restart_lost_flows(&mut self, id: &str) {
        let (grace_end, overdue_bytes) = (self.new_grace_end(), self.overdue_bytes());
        let Some(coflow) = self.coflows.get_mut(id) else { return };
        let Some(slot) = coflow.slot else { return };
        let is_lost = |flow: &&mut Flow| flow.state == SenderState::Lost && !flow.is_completed;
        for flow in coflow.flows.iter_mut().filter(is_lost) {
            coflow.sent_bytes -= flow.sent_bytes;
            let sent_before_restart = flow.sent_before_restart + flow.sent_bytes as u64;
            let (engine_index, ordered_rate) = (flow.engine_index, flow.ordered_rate);
            let (estimated_at, is_open) = (self.now, flow.is_open);
            let (pause, is_cut_off) = (flow.pause, flow.is_cut_off);
            *flow = Flow {
                engine_index,
                ordered_rate,
                estimated_at,
                sent_before_restart,
                is_open,
                pause,
                is_cut_off,
                ..Flow::new(flow.transfer, grace_end)
            };
            self.engine.correct_overdue_flows_of(slot, overdue_bytes, self.now);
            self.engine.restart_flow(slot, engine_index, self.now);
            if flow.sends(self.now) && self.hosts[flow.transfer.src as usize].present {
                self.engine.set_flow_live(slot, engine_index, UNKNOWN_SIZE_BYTES, self.now);
            }
        }
    }

    /// Adds the estimated progress of flows at their ordered rates. Updates the bytes of all coflows, and the flows without
    /// data, in the engine. Returns the flows whose bytes in the engine differ. O(flows).
    pub(super) fn estimate_progress(&mut self) -> Deviations {
        let (now, settings) = (self.now, self.settings);
        let mut deviations = Deviations::default();
        for coflow in self.coflows.values_mut() {
            let Some(slot) = coflow.slot else { continue };
            for flow in coflow.flows.iter_mut().filter(|flow| !flow.is_completed) {
                if !flow.sends(now) {
                    self.engine.set_flow_waiting(slot, flow.engine_index, now);
                }
                let estimated_bytes = flow.advance_estimate(now);
                let host = &self.hosts[flow.transfer.src as usize];
                let is_reported = flow.last_report.is_some()
                    && flow.grace_end.is_none_or(|end| now <= end)
                    && host.time_since_report(now) <= settings.lease;
                if !is_reported {
                    continue;
                }
                let size = flow.transfer.bytes.map_or(UNKNOWN_SIZE_BYTES, Bytes::get);
                let estimated_bytes = estimated_bytes.min(size - flow.sent_bytes);
                flow.sent_bytes += estimated_bytes;
                coflow.sent_bytes += estimated_bytes;
                let in_engine = self.engine.sent_bytes(slot, flow.engine_index, now);
                let link_rate = self.links.hosts[flow.transfer.src as usize].send.get();
                let intervals = (flow.sent_bytes - in_engine).abs() / (link_rate * settings.interval);
                if intervals > SYNC_TOLERANCE {
                    deviations.flows.push((slot, flow.engine_index, flow.sent_bytes));
                    deviations.are_large |= intervals > MAX_DIFFERENCE;
                }
            }
            self.engine.record_coflow_report(slot, coflow.sent_bytes, 0.0, now);
        }
        deviations
    }

    /// Sets in the engine whether the flows of a host have data. O(coflows log flows), and O(1) for each flow of the host.
    pub(super) fn set_has_data(&mut self, host: u32, has_data: bool) {
        let overdue_bytes = self.overdue_bytes();
        for coflow in self.coflows.values() {
            let Some(slot) = coflow.slot else { continue };
            let flows = coflow.flows_from(host);
            if flows.is_empty() {
                continue;
            }
            self.engine.correct_overdue_flows_of(slot, overdue_bytes, self.now);
            let flows = flows.iter().map(|&flow| &coflow.flows[flow as usize]);
            for flow in flows.filter(|flow| !flow.is_completed) {
                if !has_data {
                    self.engine.set_flow_waiting(slot, flow.engine_index, self.now);
                } else if flow.sends(self.now) {
                    self.engine.set_flow_live(slot, flow.engine_index, UNKNOWN_SIZE_BYTES, self.now);
                }
            }
        }
    }

    /// Starts a grace period of one lease for the flows of a host. Call this when its agent connects, since an agent then
    /// reports all of its flows again. A flow without a report in that time counts as a flow without data: a restarted agent
    /// has only the sockets that programs hand over again. O(coflows log flows), and O(1) for each flow of the host.
    pub fn start_grace_periods(&mut self, host: u32) {
        let grace_end = self.new_grace_end();
        for coflow in self.coflows.values_mut() {
            for index in coflow.flows_from(host).to_vec() {
                let flow = &mut coflow.flows[index as usize];
                if !flow.is_completed {
                    flow.grace_end.get_or_insert(grace_end);
                }
            }
        }
    }

    /// Makes the next order to a host a full order. Call this if earlier orders may be lost.
    pub fn require_full_order(&mut self, host: u32) {
        if let Some(host_state) = self.hosts.get_mut(host as usize) {
            host_state.orders.needs_full_order = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_core::model::ServiceNames;
    use weir_core::policy::build;
    use weir_core::units::{Bytes, Rate};
    use weir_proto::{FlowKey, FlowProgress, Report, SenderState};

    use super::super::{ControlPlane, Link, NetworkLinks, Registration, Settings, Transfer};

    /// Engine and control plane estimate the same progress of a flow without reports; neither ends a flow that
    /// continues.
    #[test]
    fn engine_and_control_plane_estimate_equal_progress() {
        let rate = Rate::new(1e7).unwrap();
        let settings = Settings::default();
        let policy = build("saath").unwrap();
        let mut control_plane = ControlPlane::new(
            NetworkLinks::one_switch(&[Link { send: rate, recv: rate }; 2]),
            policy,
            ServiceNames::default(),
            settings,
            1,
        )
        .unwrap();
        let flow = Transfer { src: 0, dst: 1, bytes: Bytes::new(9e6) };
        let registration = Registration {
            generation: 1,
            service: ServiceNames::DEFAULT.to_owned(),
            application: ServiceNames::DEFAULT.to_owned(),
            weight: 1.0,
            deadline: None,
            flows: vec![flow],
        };
        control_plane.register("a", registration, 0.0).unwrap();
        let key = FlowKey { coflow: "a".into(), generation: 1, flow: 0 };
        let progress = FlowProgress { udp: true, ..FlowProgress::new(key, 0, SenderState::Ready) };
        let first = Report { flows: vec![progress], ..Report::default() };
        control_plane.report(0, &first, 0.0);
        let (mut now, mut applied_seq) = (0.0, 0);
        for _ in 0..100 {
            now += settings.interval;
            if let Some((_, order)) = control_plane.tick(now).into_iter().find(|(host, _)| *host == 0) {
                applied_seq = order.seq;
            }
            control_plane.report(0, &Report { applied: (1, applied_seq), ..Report::default() }, now);
        }
        control_plane.estimate_progress();
        let flow = &control_plane.coflows["a"].flows[0];
        let attained = control_plane.engine.network().sent_bytes(0, flow.engine_index, now);
        assert!(flow.sent_bytes > 7e6, "{} bytes", flow.sent_bytes);
        assert!(
            (attained - flow.sent_bytes).abs() < 1e4,
            "the engine has {attained} bytes, and the control plane has {}",
            flow.sent_bytes
        );
    }
}
