//! Manages the flows of a host: their sockets, pacing rates and bytes sent.
//!
//! A socket here is a duplicate of the program's, which keeps the connection open. The agent closes it when the connection ends,
//! or when the program is done (or has exited) and all its data has been acknowledged. A flow is completed if its receiver has
//! acknowledged the end of the connection, or all data of a program that is done. Otherwise it is lost, and the next connection continues
//! it. The agent reads no SO_ERROR, since the program would not see the error then.
//!
//! The kernel paces TCP, pauses it if it has the program for that, and counts the bytes that the peer has acknowledged. It does none of
//! this for UDP: the packets of a UDP flow get a separate class at the interface ([`Flows::limited_flows`]). A UDP flow is assumed to send
//! at its ordered rate, and to send nothing without one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_cookie;
use weir_core::units::Rate;
use weir_proto::{
    FlowKey, FlowProgress, FlowSegments, MAX_REPORTED_SEGMENTS, SenderState, UnscheduledReason,
};

use super::end_events::EndEvents;
use super::gates::{Gates, PausedBy, Unscheduled};
use super::socket;
use super::watchdog::Watchdog;
use crate::lease::{FlowLimit, LeaseState};
use crate::queues::{LimitedFlow, ids};
use crate::report_delta::ReportDelta;
use crate::traffic::{SocketLeases, SocketRates, Sweep, TrafficError};

mod flow;

use flow::{FirstWait, Flow, ProgramState, Transport};

/// The maximum number of open sockets.
pub const MAX_SOCKETS: usize = 4096;

/// How long a new flow may wait for the first order of a coordinator that knows it.
const MAX_FIRST_WAIT: Duration = Duration::from_millis(50);

/// The part of the link that the sockets of such flows share: the default reserve of a coordinator.
const FIRST_RATE_FRACTION: f64 = 0.01;

/// The shortest time between two measurements of flows whose programs have written all data.
const MIN_END_WAIT: Duration = Duration::from_millis(1);

/// Why a socket is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SocketRefusal {
    /// The agent has [`MAX_SOCKETS`] sockets.
    #[error("the agent has {MAX_SOCKETS} sockets, which is the maximum")]
    TooManySockets,
    /// The flow has a socket already.
    #[error("the flow already has a socket; expected one socket per flow")]
    Duplicate,
    /// The socket is that of another flow whose program still writes.
    #[error("the socket is that of another flow; expected `done` for that flow first")]
    OtherFlow,
    /// The program has not handed over a socket of the flow.
    #[error("the flow has no socket of this program")]
    UnknownFlow,
    /// The agent has no interface at which it could limit UDP.
    #[error("UDP sockets need an agent with an interface; help: start the agent with --interface")]
    NoInterface,
    /// The socket is not connected, or neither TCP nor UDP.
    #[error("unsupported socket; expected a connected socket of TCP or UDP")]
    UnsupportedSocket,
}

/// A socket that a program hands over.
pub struct HandedOver {
    pub program_id: u64,
    pub socket: OwnedFd,
    /// Whether the program writes only while the agent allows it.
    pub is_gated: bool,
    /// Its rates, if its connection has one by a limit.
    pub rates: Option<SocketRates>,
}

/// The flows of a host.
#[derive(Default)]
pub struct Flows {
    open_flows: BTreeMap<FlowKey, Flow>,
    /// Whether receivers decide which flows send.
    pub is_matched: bool,
    /// What the senders of flows may do that their programs pause.
    pub gates: Gates,
    /// The reported state of open and ended flows.
    pub report_delta: ReportDelta,
    /// The data packets of ended flows that no report has, and how many of them had been sent before; by generation and flow. Also those of
    /// open flows for which the last report had no room.
    unreported_segments: BTreeMap<(u64, u32), [u32; 2]>,
    /// The flow with which the next report begins if it has no room for all.
    next_segments: (u64, u32),
    next_socket_id: u64,
    /// The records by which the kernel ends rates, if it can.
    leases: Option<SocketLeases>,
    /// The signals of ended connections, if the kernel can send them.
    end_events: Option<EndEvents>,
    /// The changes that the watchdog has not received yet, in order.
    pending_handovers: VecDeque<Handover>,
}

/// A change that the watchdog has to receive.
#[derive(Debug)]
enum Handover {
    /// The flow of this key and number got a socket.
    Hold(FlowKey, u64),
    /// The socket of this number was closed.
    Release(u64),
}

impl Flows {
    /// No flows yet.
    pub fn new(leases: Option<SocketLeases>) -> Flows {
        Flows { leases, end_events: EndEvents::new().ok(), ..Flows::default() }
    }

    /// The file that is readable when a connection has ended, if the kernel signals it.
    pub fn end_events_file(&self) -> Option<OwnedFd> {
        self.end_events.as_ref()?.file().ok()
    }

    /// The number of open sockets.
    pub fn open_sockets(&self) -> usize {
        self.open_flows.len()
    }

    /// Renews the lease of the rates, until a time of the monotonic clock, where the kernel ends them.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn renew_lease(&mut self, end: Duration) -> Result<(), TrafficError> {
        self.leases.as_mut().map_or(Ok(()), |leases| leases.renew(end))
    }

    /// The sweep that is necessary now, if any.
    pub fn take_sweep(&mut self) -> Option<Sweep> {
        self.leases.as_mut().and_then(SocketLeases::take_sweep)
    }

    /// Lets the kernel end all rates and pauses, and no later ones.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn stop_leases(&mut self) -> Result<(), TrafficError> {
        for flow in self.open_flows.values_mut().filter(|flow| flow.can_be_paused_by(PausedBy::Kernel)) {
            flow.resume(self.leases.as_mut());
            flow.gate = None;
        }
        self.leases.take().map_or(Ok(()), SocketLeases::stop)
    }

    /// Accepts a socket of a flow, and applies the limit of the last order. If the flow has a socket of the same program, or of one that
    /// writes no more, the new socket replaces it.
    ///
    /// # Errors
    /// Why the socket is refused; it is closed. A UDP socket needs `has_classes`.
    pub fn open(
        &mut self,
        key: FlowKey,
        handed_over: HandedOver,
        lease: &LeaseState,
        now: Duration,
        has_classes: bool,
    ) -> Result<(), SocketRefusal> {
        let HandedOver { program_id, socket, is_gated, rates } = handed_over;
        if let Some(flow) = self.open_flows.get_mut(&key) {
            // A program may notice before the agent that a connection has ended, and open the next one.
            let end = flow.measure(self.leases.as_ref());
            let is_closing = || socket::read_info(&flow.socket).is_ok_and(|info| !info.is_open);
            let is_replaced = || {
                flow.program == ProgramState::Exited
                    || flow.program_id == program_id
                        && (flow.can_be_paused_by(PausedBy::Program) || is_closing())
            };
            let Some(end) = end.or_else(|| is_replaced().then_some(SenderState::Lost)) else {
                return Err(SocketRefusal::Duplicate);
            };
            if let Some(flow) = self.open_flows.remove(&key) {
                self.end_flow(key.clone(), flow, end);
            }
        }
        if self.open_flows.len() == MAX_SOCKETS {
            return Err(SocketRefusal::TooManySockets);
        }
        let transport = self.transport(&socket, rates, has_classes)?;
        if self.is_of_other_flow(&socket, &key) {
            return Err(SocketRefusal::OtherFlow);
        }
        // A flow that continues over another socket keeps its bytes.
        let earlier_bytes = self.report_delta.open_flow(key.clone());
        let socket_id = self.next_socket_id;
        self.next_socket_id += 1;
        let first_wait = self.first_wait(lease, now);
        let mut flow = Flow::new(socket_id, program_id, socket, transport, first_wait, earlier_bytes);
        flow.record_own_rate(self.leases.as_mut());
        flow.choose_gate(is_gated, self.leases.as_mut());
        flow.apply(&key, lease, now, &mut self.gates, self.leases.as_mut());
        if flow.is_tcp() {
            if let Some(end_events) = &self.end_events {
                end_events.add(socket_id, flow.socket.as_fd());
            }
            self.pending_handovers.push_back(Handover::Hold(key.clone(), socket_id));
        }
        self.open_flows.insert(key, flow);
        Ok(())
    }

    /// Whether a socket is that of another flow whose program still writes: its bytes would count for both. O(sockets).
    fn is_of_other_flow(&self, socket: &OwnedFd, key: &FlowKey) -> bool {
        let Ok(cookie) = socket_cookie(socket) else { return false };
        let is_other = |other: &FlowKey| (&other.coflow, other.flow) != (&key.coflow, key.flow);
        let writing = self.open_flows.iter().filter(|(_, flow)| flow.program == ProgramState::Writes);
        let mut others = writing.filter(|(other, _)| is_other(other));
        others.any(|(_, flow)| flow.cookie == Some(cookie))
    }

    /// The wait of a new flow for its first order.
    fn first_wait(&self, lease: &LeaseState, now: Duration) -> FirstWait {
        // Without limited flows, no flow waits at this host, and a limit would delay the first packets of this one. With matching, the
        // receiver decides.
        let wait = if self.is_matched && lease.is_lease_valid(now) || lease.has_limited_flows(now) {
            MAX_FIRST_WAIT.min(lease.lease())
        } else {
            Duration::ZERO
        };
        let waiting = self.open_flows.values().filter(|flow| now < flow.first_wait.end).count();
        let rate = FIRST_RATE_FRACTION * lease.max_link_rate() / (waiting + 1) as f64;
        FirstWait { end: now + wait, rate: (rate as u64).max(1) }
    }

    /// The transport of a new socket. `rates` are those of [`HandedOver`].
    fn transport(
        &self,
        socket: &OwnedFd,
        rates: Option<SocketRates>,
        has_classes: bool,
    ) -> Result<Transport, SocketRefusal> {
        match socket::read_info(socket) {
            Ok(info) if info.is_open => {
                // Without records, the rate may be that of an earlier agent's order.
                let current_rate = if self.leases.is_some() { info.max_pacing_rate } else { u64::MAX };
                // The program may have set another rate since.
                let rates = rates.filter(|rates| rates.applied == info.max_pacing_rate);
                let own_rate = rates.map_or(current_rate, |rates| rates.own);
                let (initial_acked_bytes, syn_bytes) = (info.acked_bytes, info.acked_bytes.min(1));
                Ok(Transport::Tcp { initial_acked_bytes, syn_bytes, pacing_rate: None, own_rate })
            }
            Ok(_) => Err(SocketRefusal::UnsupportedSocket),
            Err(_) => {
                let ends = socket::udp_ends(socket).ok_or(SocketRefusal::UnsupportedSocket)?;
                if !has_classes {
                    return Err(SocketRefusal::NoInterface);
                }
                let class = self.free_class().ok_or(SocketRefusal::TooManySockets)?;
                Ok(Transport::Udp { ends, class, estimated_bytes: 0.0, estimated_at: Instant::now() })
            }
        }
    }

    /// Moves flows to the generations that they belong to by the orders of `lease`.
    pub fn join_generations(&mut self, lease: &LeaseState) {
        let new_key = |key: &FlowKey| {
            let generation = lease.new_generation(key)?;
            Some((key.clone(), FlowKey { generation, ..key.clone() }))
        };
        let moves: Vec<(FlowKey, FlowKey)> = self.report_delta.keys().filter_map(new_key).collect();
        for (key, new_key) in moves {
            if self.open_flows.contains_key(&new_key) {
                continue;
            }
            let earlier_bytes = self.report_delta.move_flow(&key, &new_key);
            let Some(mut flow) = self.open_flows.remove(&key) else { continue };
            flow.earlier_bytes += earlier_bytes;
            flow.sent_bytes += earlier_bytes;
            for handover in &mut self.pending_handovers {
                if let Handover::Hold(held, _) = handover
                    && *held == key
                {
                    *held = new_key.clone();
                }
            }
            self.open_flows.insert(new_key, flow);
        }
    }

    /// The lowest number of a class that no flow uses.
    fn free_class(&self) -> Option<u16> {
        let taken: BTreeSet<u16> = self.udp_flows().map(|(class, ..)| class).collect();
        (0..ids::MAX_LIMITED_FLOWS).find(|class| !taken.contains(class))
    }

    /// The class, ends and rate of each UDP flow.
    fn udp_flows(&self) -> impl Iterator<Item = (u16, (SocketAddr, SocketAddr), Option<u64>)> {
        self.open_flows.values().filter_map(|flow| match flow.transport {
            Transport::Udp { ends, class, .. } => Some((class, ends, flow.rate)),
            Transport::Tcp { .. } => None,
        })
    }

    /// The classes of UDP flows.
    pub fn limited_flows(&self) -> BTreeMap<u16, LimitedFlow> {
        let paced = self.udp_flows().filter_map(|(class, ends, rate)| Some((class, ends, rate?)));
        let to_limited_flow = |(class, (source, destination), rate): (u16, (SocketAddr, SocketAddr), u64)| {
            let rate = Rate::new(rate.max(1) as f64).expect("a whole number is a rate");
            (class, LimitedFlow { source, destination, rate })
        };
        paced.map(to_limited_flow).collect()
    }

    /// Records that a program will write no more to a flow: that of the newest registration, if the program handed over sockets of
    /// several ones.
    ///
    /// # Errors
    /// If the program has not handed over a socket of the flow.
    pub fn mark_done(&mut self, coflow: &Arc<str>, flow: u32, program_id: u64) -> Result<(), SocketRefusal> {
        self.find_mut(coflow, flow, program_id).ok_or(SocketRefusal::UnknownFlow)?.program =
            ProgramState::Done;
        Ok(())
    }

    /// Records whether the sender of a gated flow has data that the kernel does not have. Returns whether that changes the flow's state.
    /// Messages about other flows, such as flows that have ended, have no effect.
    pub fn set_data(&mut self, coflow: &Arc<str>, flow: u32, program_id: u64, has_data: bool) -> bool {
        let Some(flow) = self.find_mut(coflow, flow, program_id) else { return false };
        let former = flow.state();
        let Some(gate) = flow.gate.as_mut().filter(|gate| gate.paused_by == PausedBy::Program) else {
            return false;
        };
        gate.has_data = has_data;
        if has_data {
            flow.expect_data();
        }
        flow.state() != former
    }

    /// The flow of the newest registration of which a program has handed over a socket.
    fn find_mut(&mut self, coflow: &Arc<str>, flow: u32, program_id: u64) -> Option<&mut Flow> {
        let key = |generation, flow| FlowKey { coflow: Arc::clone(coflow), generation, flow };
        let open_flows = self.open_flows.range_mut(key(0, 0)..=key(u64::MAX, u32::MAX));
        open_flows
            .rev()
            .find(|(key, open)| key.flow == flow && open.program_id == program_id)
            .map(|(_, flow)| flow)
    }

    /// Records that a program has exited. Its flows are lost when their written data has arrived, except those that it has ended.
    pub fn end_program(&mut self, program_id: u64) {
        self.gates.remove_program(program_id);
        let is_of_program =
            |flow: &&mut Flow| flow.program_id == program_id && flow.program == ProgramState::Writes;
        self.open_flows
            .values_mut()
            .filter(is_of_program)
            .for_each(|flow| flow.program = ProgramState::Exited);
    }

    /// Reads the bytes sent of all flows, and closes the sockets of flows that have ended.
    pub fn measure(&mut self) {
        self.measure_flows(|_| true);
    }

    /// Measures the flows whose programs have written all data, and those whose connections have ended. Returns whether one has ended.
    pub fn measure_ending(&mut self) -> bool {
        let signalled = self.end_events.as_ref().map(EndEvents::take).unwrap_or_default();
        self.measure_flows(|flow| flow.program == ProgramState::Done || signalled.contains(&flow.socket_id))
    }

    /// Measures some flows. Returns whether one has ended.
    fn measure_flows(&mut self, is_measured: impl Fn(&Flow) -> bool) -> bool {
        let measured = self.open_flows.iter_mut().filter(|(_, flow)| is_measured(flow));
        let ended = measured.filter_map(|(key, flow)| {
            let was_writing = flow.program == ProgramState::Writes;
            let end = flow.measure(self.leases.as_ref());
            if let Some(end_events) = &self.end_events
                && was_writing
                && flow.program == ProgramState::Done
            {
                end_events.expect_end(flow.socket_id, flow.socket.as_fd());
            }
            Some((key.clone(), end?))
        });
        let ended: Vec<_> = ended.collect();
        let has_ended = !ended.is_empty();
        for (key, state) in ended {
            if let Some(flow) = self.open_flows.remove(&key) {
                self.end_flow(key, flow, state);
            }
        }
        has_ended
    }

    /// The estimated time until the first end of a flow whose program has written all data, at least [`MIN_END_WAIT`].
    pub fn next_end(&self) -> Option<Duration> {
        let is_ending = |flow: &&Flow| {
            flow.program == ProgramState::Done && flow.state == SenderState::Ready && !flow.is_paused()
        };
        let ending = self.open_flows.values().filter(is_ending);
        let remaining = |flow: &Flow| flow.outstanding_bytes as f64 / flow.rate.unwrap_or(u64::MAX) as f64;
        let first = ending.map(remaining).reduce(f64::min)?;
        Some(Duration::try_from_secs_f64(first).unwrap_or(Duration::MAX).max(MIN_END_WAIT))
    }

    /// Closes the socket of a flow that has ended.
    fn end_flow(&mut self, key: FlowKey, mut flow: Flow, state: SenderState) {
        // The program may still use the socket, so the rate is removed.
        flow.set_rate(None, None);
        if flow.is_paused() {
            flow.resume(self.leases.as_mut());
        }
        if flow.is_tcp() {
            if let Some(end_events) = &self.end_events {
                end_events.remove(flow.socket.as_fd());
            }
            if let Some(leases) = &mut self.leases {
                leases.remove(flow.socket.as_fd());
            }
            self.pending_handovers.push_back(Handover::Release(flow.socket_id));
        }
        if flow.can_be_paused_by(PausedBy::Program) {
            self.gates.remove(flow.program_id, &key.coflow, key.flow);
        }
        if self.unreported_segments.len() < MAX_SOCKETS {
            add_segments(&mut self.unreported_segments, &key, &mut flow);
        }
        self.report_delta.end_flow(key, flow.sent_bytes, state);
        socket::close(flow.socket);
    }

    /// Sends pending changes to the watchdog, until its socket is full.
    pub fn hand_over_sockets(&mut self, watchdog: Option<&mut Watchdog>) {
        // A new watchdog gets all sockets.
        let Some(watchdog) = watchdog.filter(|watchdog| watchdog.is_running()) else {
            self.pending_handovers.clear();
            return;
        };
        while let Some(next) = self.pending_handovers.front() {
            let is_sent = match next {
                Handover::Release(socket_id) => watchdog.release_socket(*socket_id),
                Handover::Hold(key, socket_id) => {
                    match self.open_flows.get(key).filter(|flow| flow.socket_id == *socket_id) {
                        Some(Flow { socket, transport: Transport::Tcp { own_rate, .. }, .. }) => {
                            watchdog.hold_socket(*socket_id, socket.as_fd(), *own_rate)
                        }
                        // The flow has ended already.
                        _ => true,
                    }
                }
            };
            if !is_sent {
                return;
            }
            self.pending_handovers.pop_front();
        }
    }

    /// Queues all sockets for a new watchdog.
    pub fn queue_all_handovers(&mut self) {
        let sockets = self.open_flows.iter().filter(|(_, flow)| flow.is_tcp());
        self.pending_handovers =
            sockets.map(|(key, flow)| Handover::Hold(key.clone(), flow.socket_id)).collect();
    }

    /// Records why the coordinator does not schedule flows that can be paused.
    pub fn set_unscheduled(&mut self, unscheduled: Vec<(FlowKey, UnscheduledReason)>) {
        for (key, reason) in unscheduled {
            if let Some(gate) = self.open_flows.get_mut(&key).and_then(|flow| flow.gate.as_mut()) {
                gate.unscheduled = Unscheduled::Refused(reason);
            }
        }
    }

    /// Reports again what the coordinator has not confirmed or answered: it may have lost the reports, and the agent its answers.
    pub fn report_unconfirmed(&mut self, lease: &LeaseState) {
        let is_unanswered = |key: &FlowKey| {
            let gate = self.open_flows.get(key).and_then(|flow| flow.gate.as_ref());
            gate.is_some_and(|gate| gate.unscheduled == Unscheduled::Unanswered)
        };
        self.report_delta.report_unconfirmed(|key| lease.names_flow(key) || is_unanswered(key));
    }

    /// Applies limits that differ, and lets the senders of gated flows know.
    pub fn apply_limits(&mut self, lease: &LeaseState, now: Duration) {
        for (key, flow) in &mut self.open_flows {
            flow.apply(key, lease, now, &mut self.gates, self.leases.as_mut());
        }
        if let Some(lease_end) = lease.lease_end() {
            self.gates.renew(lease_end, lease.lease());
        }
    }

    /// The open flows without an ordered rate that have data, with the bytes that they have sent.
    pub fn unlimited_flows<'a>(
        &'a self,
        lease: &'a LeaseState,
        now: Duration,
    ) -> impl Iterator<Item = (&'a FlowKey, u64)> {
        let is_unlimited = move |key: &FlowKey| lease.flow_limit(key, now) == FlowLimit::Unlimited;
        let flows =
            self.open_flows.iter().filter(|(_, flow)| flow.is_tcp() && flow.state() == SenderState::Ready);
        flows.filter(move |(key, _)| is_unlimited(key)).map(|(key, flow)| (key, flow.sent_bytes))
    }

    /// Takes the data packets since the last call, of at most [`MAX_REPORTED_SEGMENTS`] flows. The next call begins with the others. Flows
    /// whose generation is unknown keep theirs. The result is sorted.
    pub fn take_segments(&mut self) -> Vec<FlowSegments> {
        let mut taken = std::mem::take(&mut self.unreported_segments);
        for (key, flow) in self.open_flows.iter_mut().filter(|(key, _)| key.generation != 0) {
            add_segments(&mut taken, key, flow);
        }
        if taken.len() > MAX_REPORTED_SEGMENTS {
            let from = self.next_segments;
            let mut in_turn = taken.range(from..).chain(taken.range(..from)).map(|(&key, _)| key);
            let reported: BTreeSet<(u64, u32)> = in_turn.by_ref().take(MAX_REPORTED_SEGMENTS).collect();
            self.next_segments = in_turn.next().unwrap_or_default();
            (taken, self.unreported_segments) =
                taken.into_iter().partition(|(key, _)| reported.contains(key));
        }
        let to_segments = |((coflow, flow), [segments, retransmitted]): (_, [u32; 2])| FlowSegments {
            coflow,
            flow,
            segments,
            retransmitted,
        };
        taken.into_iter().map(to_segments).collect()
    }

    /// Forgets the data packets so far: no report needs them.
    pub fn discard_segments(&mut self) {
        self.unreported_segments.clear();
        for flow in self.open_flows.values_mut() {
            flow.take_segments();
        }
    }

    /// Sets what other coflows leave of the uplink, for the flows without an ordered rate. The next [`Flows::apply_limits`] applies it.
    pub fn set_residual_rates(&mut self, rates: &BTreeMap<FlowKey, u64>) {
        for (key, flow) in &mut self.open_flows {
            flow.residual_rate = rates.get(key).map(|&rate| rate.max(1));
        }
    }

    /// Removes the rates of all sockets. Senders write freely when their program's connection closes.
    pub fn remove_rates(&mut self) {
        for flow in self.open_flows.values_mut() {
            flow.residual_rate = None;
            flow.set_limit(FlowLimit::Unlimited, self.leases.as_mut());
            flow.resume(self.leases.as_mut());
        }
    }

    /// The flows that a report has to contain, sorted by key, at most [`weir_proto::MAX_REPORTED_FLOWS`].
    pub fn take_changes(&mut self, lease: &LeaseState, now: Duration) -> Vec<FlowProgress> {
        let flows = self.open_flows.iter().map(|(key, flow)| (key, flow.open_flow()));
        self.report_delta.take_changes(flows, |key| lease.names_flow(key), now)
    }
}

/// Adds the new packets of a flow.
fn add_segments(all: &mut BTreeMap<(u64, u32), [u32; 2]>, key: &FlowKey, flow: &mut Flow) {
    let [segments, retransmitted] = flow.take_segments();
    if segments > 0 && key.generation != 0 {
        let sum = all.entry((key.generation, key.flow)).or_default();
        *sum = [sum[0].saturating_add(segments), sum[1].saturating_add(retransmitted)];
    }
}

#[cfg(test)]
mod tests;
