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
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::units::Rate;
use weir_proto::{FlowKey, FlowProgress, SenderState, UnscheduledReason, estimate_sent_bytes};

use super::end_events::EndEvents;
use super::gates::{Gate, Gates, PausedBy, Permission, Unscheduled};
use super::program_demand::{Measurement, ProgramDemand};
use super::socket;
use super::watchdog::Watchdog;
use crate::lease::{FlowLimit, LeaseState};
use crate::queues::{LimitedFlow, ids};
use crate::report_delta::{OpenFlow, ReportDelta};
use crate::traffic::{SocketLeases, Sweep, TrafficError, monotonic_now};

/// The maximum number of open sockets.
pub const MAX_SOCKETS: usize = 4096;

/// How long a new flow may wait for the first order of a coordinator that knows it.
const MAX_FIRST_WAIT: Duration = Duration::from_millis(50);

/// The part of the link that the sockets of such flows share: the default reserve of a coordinator.
const FIRST_RATE_FRACTION: f64 = 0.01;

/// A flow with data that has sent nothing for this time is idle, if its rate allows [`STUCK_BYTES`] in this time: its receiver does not
/// read. The time is longer than the shortest one after which TCP sends a lost packet again (200 ms).
const STUCK_TIME: Duration = Duration::from_millis(300);

/// The shortest time between two measurements of flows whose programs have written all data.
const MIN_END_WAIT: Duration = Duration::from_millis(1);

/// Two of the largest packets (GSO).
const STUCK_BYTES: f64 = 131_072.0;

/// Why a socket is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SocketRefusal {
    /// The agent has [`MAX_SOCKETS`] sockets.
    #[error("the agent has {MAX_SOCKETS} sockets, which is the maximum")]
    TooManySockets,
    /// The flow has a socket already.
    #[error("the flow already has a socket; expected one socket per flow")]
    Duplicate,
    /// The program has not handed over a socket of the flow.
    #[error("the flow has no socket of this program")]
    UnknownFlow,
    /// The agent has no interface at which it could limit UDP.
    #[error("UDP sockets need an agent with an interface; help: start the agent with --interface")]
    NoInterface,
    /// The socket is not connected, or neither TCP nor UDP over IPv4.
    #[error("unsupported socket; expected a connected socket of TCP, or of UDP over IPv4")]
    UnsupportedSocket,
}

/// The transport of a flow.
#[derive(Debug, Clone, Copy)]
enum Transport {
    /// `initial_acked_bytes` were acknowledged when the socket was handed over. `syn_bytes` is 1 if the kernel counts the SYN as
    /// acknowledged, else 0. `pacing_rate` is the last pacing rate set, if any; `own_rate` is that of the program, `u64::MAX` without one.
    Tcp { initial_acked_bytes: u64, syn_bytes: u64, pacing_rate: Option<u64>, own_rate: u64 },
    /// The ends, the number of the class, and the estimated bytes sent over this socket up to the time `estimated_at`.
    Udp { ends: (SocketAddrV4, SocketAddrV4), class: u16, estimated_bytes: f64, estimated_at: Instant },
}

#[derive(Debug)]
struct Flow {
    /// The number by which the watchdog identifies the socket.
    socket_id: u64,
    program_id: u64,
    socket: OwnedFd,
    transport: Transport,
    /// The ordered limit.
    limit: FlowLimit,
    /// The rate set on the socket or class.
    rate: Option<u64>,
    /// What pauses the flow; none if only a low rate can.
    gate: Option<Gate>,
    held: HeldBytes,
    first_wait: FirstWait,
    /// The bytes that the flow had sent over earlier sockets.
    earlier_bytes: u64,
    sent_bytes: u64,
    program: ProgramState,
    /// Written bytes that the receiver had not acknowledged at the last measurement.
    outstanding_bytes: u64,
    /// Whether the last measurement found no data to send.
    was_drained: bool,
    /// The last measurement at which the connection had sent bytes, or had new data to send.
    active_at: Instant,
    /// The lowest rate since then, and that between the last two such measurements: the kernel sets the times of the next two packets by
    /// the rates before a change.
    lowest_rates: [u64; 2],
    state: SenderState,
    /// Whether the receiver has not read since its flow could send.
    is_stuck: bool,
    demand: ProgramDemand,
}

/// What the program of a flow still does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgramState {
    /// It may write.
    Writes,
    /// It has said that it writes no more, or has shut its socket down for writing.
    Done,
    /// It has exited.
    Exited,
}

/// The bytes that the kernel counts as sent although pauses held them back.
#[derive(Debug, Clone, Copy, Default)]
struct HeldBytes {
    total: u64,
    /// The last count of the program that holds them.
    last_count: u64,
}

impl HeldBytes {
    /// Those of a socket that an earlier agent may have paused.
    fn new(socket: &OwnedFd, leases: &SocketLeases) -> HeldBytes {
        let last_count = leases.held_bytes(socket);
        // The count starts again with an agent that finds no maps.
        let info = socket::read_info(socket).ok().filter(|info| info.unacked_packets == 0);
        let total = info.map_or(last_count, |info| info.sent_bytes.saturating_sub(info.acked_bytes));
        HeldBytes { total, last_count }
    }

    fn add_count(&mut self, count: u64) {
        self.total += count.saturating_sub(self.last_count);
        self.last_count = count;
    }
}

/// The wait of a new flow for its first order.
#[derive(Debug, Clone, Copy)]
struct FirstWait {
    /// The wait ends with the first order that names the flow, or at this time.
    end: Duration,
    /// The rate of the socket meanwhile, unless the flow can be paused.
    rate: u64,
}

/// A socket that a program hands over.
pub struct HandedOver {
    pub program_id: u64,
    pub socket: OwnedFd,
    /// Whether the program writes only while the agent allows it.
    pub is_gated: bool,
}

/// The flows of a host.
#[derive(Default)]
pub struct Flows {
    open_flows: BTreeMap<FlowKey, Flow>,
    /// What the senders of flows may do that their programs pause.
    pub gates: Gates,
    /// The reported state of open and ended flows.
    pub report_delta: ReportDelta,
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

impl Flow {
    /// Applies a limit.
    fn set_limit(&mut self, limit: FlowLimit, leases: Option<&mut SocketLeases>) {
        self.limit = limit;
        let rate = match limit {
            FlowLimit::Unlimited => None,
            FlowLimit::Rate(rate) | FlowLimit::Reserve(rate) => Some(rate),
            // The coordinator does not know yet that the flow can no longer be paused.
            FlowLimit::Paused => Some(self.first_wait.rate),
        };
        self.lowest_rates[0] = self.lowest_rates[0].min(rate.unwrap_or(u64::MAX));
        self.set_rate(rate, leases);
    }

    fn is_tcp(&self) -> bool {
        matches!(self.transport, Transport::Tcp { .. })
    }

    /// Applies the limit of the last order: lets the sender of a gated flow know, or pauses the socket, if that is possible.
    fn apply(
        &mut self,
        key: &FlowKey,
        lease: &LeaseState,
        now: Duration,
        gates: &mut Gates,
        mut leases: Option<&mut SocketLeases>,
    ) {
        let limit = lease.flow_limit(key, now);
        let is_named = lease.names_flow(key);
        let is_waiting = now < self.first_wait.end && !is_named;
        let Some(gate) = &mut self.gate else {
            let is_limited_at_first =
                is_waiting && limit == FlowLimit::Unlimited && self.is_tcp() && lease.is_lease_valid(now);
            let first_limit = FlowLimit::Rate(self.first_wait.rate);
            return self.set_limit(if is_limited_at_first { first_limit } else { limit }, leases);
        };
        let permission = gate.permission(limit, is_named, is_waiting, lease.is_lease_valid(now));
        let former = gate.permission.replace(permission);
        if former != Some(permission) {
            match (gate.paused_by, permission) {
                (PausedBy::Program, _) => gates.set(self.program_id, &key.coflow, key.flow, permission),
                (PausedBy::Kernel, Permission::Pause) => {
                    let pause = |leases: &mut &mut SocketLeases| leases.pause(&self.socket).is_ok();
                    if !socket::may_wait_unsent(&self.socket) || !leases.as_mut().is_some_and(pause) {
                        // From now on a low rate limits the flow.
                        self.gate = None;
                        return self.set_limit(limit, leases);
                    }
                }
                (PausedBy::Kernel, _) => {}
            }
        }
        // While the flow is paused, the rest of its data in the network leaves at the former rate. A low rate would arm a timer that
        // delays the packets after the pause.
        if permission == Permission::Pause {
            self.limit = limit;
            return;
        }
        if former == Some(Permission::Pause) && gate.has_data {
            self.expect_data();
        }
        self.set_limit(limit, leases.as_deref_mut());
        if former == Some(Permission::Pause) {
            self.resume(leases);
        }
    }

    /// Ends a pause by the kernel.
    fn resume(&mut self, leases: Option<&mut SocketLeases>) {
        if self.can_be_paused_by(PausedBy::Kernel) {
            leases.into_iter().for_each(|leases| leases.resume(&self.socket));
            socket::push(&self.socket);
        }
    }

    fn is_paused(&self) -> bool {
        self.gate.is_some_and(|gate| gate.permission == Some(Permission::Pause))
    }

    fn can_be_paused_by(&self, paused_by: PausedBy) -> bool {
        self.gate.is_some_and(|gate| gate.paused_by == paused_by)
    }

    /// Sets a rate, unless it is set already. It ends with the lease if the kernel has a record.
    fn set_rate(&mut self, rate: Option<u64>, leases: Option<&mut SocketLeases>) {
        if rate == self.rate {
            return;
        }
        match &mut self.transport {
            // A socket that refuses a rate has closed; the next measurement finds this.
            Transport::Tcp { pacing_rate, own_rate, .. } => {
                // The kernel removes the record when it ends a rate.
                if let Some(leases) = leases
                    && self.rate.is_none()
                    && let Ok(recorded_rate) = leases.add(self.socket.as_fd(), *own_rate)
                {
                    *own_rate = recorded_rate;
                }
                if let Ok(new_pacing_rate) = socket::set_pacing_rate(&self.socket, rate, *own_rate) {
                    (self.rate, *pacing_rate) = (rate, Some(new_pacing_rate));
                }
            }
            Transport::Udp { .. } => {
                self.update_estimate(Instant::now());
                self.rate = rate;
            }
        }
    }

    /// Adds the estimated bytes of a UDP flow since the last call. Without a rate there is no estimate.
    fn update_estimate(&mut self, now: Instant) {
        let Transport::Udp { estimated_bytes, estimated_at, .. } = &mut self.transport else {
            return;
        };
        let elapsed_secs = now.saturating_duration_since(std::mem::replace(estimated_at, now)).as_secs_f64();
        *estimated_bytes += self.rate.map_or(0.0, |rate| estimate_sent_bytes(rate, elapsed_secs));
        self.sent_bytes = self.earlier_bytes + *estimated_bytes as u64;
    }

    /// The flow at its last measurement.
    fn open_flow(&self) -> OpenFlow {
        OpenFlow {
            sent: self.sent_bytes,
            limit: self.limit,
            state: self.state(),
            is_gated: self.gate.is_some(),
            is_udp: !self.is_tcp(),
            demand: self.demand.get(),
        }
    }

    /// The state of the flow. The kernel may have no data of a sender that waits.
    fn state(&self) -> SenderState {
        match self.gate {
            Some(Gate { has_data: true, permission: Some(Permission::Pause), .. }) if !self.is_stuck => {
                SenderState::Ready
            }
            Some(Gate { has_data: false, paused_by: PausedBy::Program, .. }) if self.was_drained => {
                SenderState::Idle
            }
            _ => self.state,
        }
    }

    /// Counts the flow as one with data until measurements show the contrary.
    fn expect_data(&mut self) {
        self.is_stuck = false;
        (self.state, self.was_drained, self.active_at) = (SenderState::Ready, false, Instant::now());
    }

    /// Decides whether the flow has data that it can send. The socket of a program that writes less than its rate is often empty, so a
    /// flow is idle only if it has neither data nor sent bytes at two measurements.
    fn update_state(&mut self, is_drained: bool, has_sent: bool, now: Instant) {
        let was_drained = std::mem::replace(&mut self.was_drained, is_drained);
        if has_sent || was_drained && !is_drained {
            self.is_stuck = false;
            self.active_at = now;
            self.lowest_rates = [self.rate.unwrap_or(u64::MAX), self.lowest_rates[0]];
            self.state = SenderState::Ready;
        }
        let inactive_time = now.saturating_duration_since(self.active_at);
        let lowest_rate = self.lowest_rates[0].min(self.lowest_rates[1]);
        let is_empty = is_drained && was_drained && !has_sent;
        let is_stuck = !is_drained
            && !self.is_paused()
            && inactive_time >= STUCK_TIME
            && estimate_sent_bytes(lowest_rate, inactive_time.as_secs_f64()) > STUCK_BYTES;
        self.is_stuck |= is_stuck;
        if is_empty || is_stuck {
            self.state = SenderState::Idle;
        }
    }

    /// Reads the bytes sent. Returns the last state of a flow that has ended: completed or lost.
    fn measure(&mut self, leases: Option<&SocketLeases>) -> Option<SenderState> {
        if let Some(leases) = leases.filter(|_| self.can_be_paused_by(PausedBy::Kernel)) {
            // Read first: bytes that are held later must not count as acknowledged.
            self.held.add_count(leases.held_bytes(&self.socket));
        }
        let Transport::Tcp { initial_acked_bytes, syn_bytes, pacing_rate, own_rate } = &mut self.transport
        else {
            self.update_estimate(Instant::now());
            return (self.program != ProgramState::Writes).then_some(SenderState::Completed);
        };
        let Ok(mut info) = socket::read_info(&self.socket) else { return Some(SenderState::Lost) };
        info.sent_bytes = info.sent_bytes.saturating_sub(self.held.total);
        // If another process has raised the rate, such as the watchdog of an earlier agent, the next call of `set_rate` sets it again. A
        // program may set a lower rate.
        if self.rate.is_some() && pacing_rate.is_some_and(|rate| info.max_pacing_rate > rate) {
            self.rate = None;
            *own_rate = info.max_pacing_rate.max(*own_rate);
        }
        if info.is_open && info.unacked_packets == 0 {
            *syn_bytes = info.acked_bytes.saturating_sub(info.sent_bytes);
        }
        let acked_bytes = info.acked_bytes.saturating_sub(*syn_bytes);
        // The kernel counts the FIN as a byte.
        let is_fin_acked = info.is_write_closed || info.is_closed && acked_bytes > info.sent_bytes;
        let socket_bytes =
            info.acked_bytes.saturating_sub(*initial_acked_bytes).saturating_sub(u64::from(is_fin_acked));
        let sent_bytes = self.earlier_bytes + socket_bytes;
        self.update_state(info.is_drained(), sent_bytes > self.sent_bytes, Instant::now());
        self.demand.add(&Measurement {
            written_bytes: info.sent_bytes + u64::from(info.unsent_bytes),
            unsent_bytes: info.unsent_bytes,
            has_more: self.gate.is_some_and(|gate| gate.has_more(info.unsent_bytes)),
            rate: self.rate,
            time: monotonic_now(),
        });
        if let Some(gate) = self.gate.as_mut().filter(|gate| gate.paused_by == PausedBy::Kernel) {
            gate.has_data = info.unsent_bytes > 0;
        }
        self.sent_bytes = self.sent_bytes.max(sent_bytes);
        self.outstanding_bytes = info.outstanding_bytes();
        // The library's sender continues over another connection unless it has said that it is done.
        let continues = self.can_be_paused_by(PausedBy::Program);
        if info.is_shut_down && !continues && self.program == ProgramState::Writes {
            self.program = ProgramState::Done;
        }
        // The acknowledgement of a FIN may be late (40 ms).
        let may_wait_for_fin = info.is_closed || info.is_shut_down && info.unacked_packets == 1;
        let is_acked = if may_wait_for_fin {
            info.unsent_bytes == 0 && acked_bytes >= info.sent_bytes
        } else {
            info.is_drained()
        };
        match self.program {
            _ if is_fin_acked && (!continues || self.program == ProgramState::Done) => {
                Some(SenderState::Completed)
            }
            ProgramState::Done if is_acked => Some(SenderState::Completed),
            // The agent's duplicate keeps the connection of an exited program open.
            ProgramState::Exited if is_acked => Some(SenderState::Lost),
            _ => (info.is_closed || is_fin_acked).then_some(SenderState::Lost),
        }
    }
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
        let HandedOver { program_id, socket, is_gated } = handed_over;
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
        let is_drained = socket::read_info(&socket).is_ok_and(|info| info.is_drained());
        let transport = self.transport(&socket, has_classes)?;
        // A flow that continues over another socket keeps its bytes.
        let earlier_bytes = self.report_delta.open_flow(key.clone());
        let socket_id = self.next_socket_id;
        self.next_socket_id += 1;
        let first_wait = self.first_wait(lease, now);
        let mut flow = Flow {
            socket_id,
            program_id,
            socket,
            transport,
            limit: FlowLimit::Unlimited,
            rate: None,
            gate: None,
            held: HeldBytes::default(),
            first_wait,
            earlier_bytes,
            sent_bytes: earlier_bytes,
            program: ProgramState::Writes,
            outstanding_bytes: 0,
            was_drained: is_drained,
            active_at: Instant::now(),
            lowest_rates: [u64::MAX; 2],
            state: SenderState::Ready,
            is_stuck: false,
            demand: ProgramDemand::default(),
        };
        let kernel = self.leases.as_mut().filter(|leases| leases.can_pause() && flow.is_tcp());
        if is_gated && flow.is_tcp() {
            flow.gate = Some(Gate::new(PausedBy::Program));
        } else if let Some(leases) = kernel {
            flow.gate = Some(Gate::new(PausedBy::Kernel));
            // An earlier agent may have paused the socket.
            leases.resume(&flow.socket);
            flow.held = HeldBytes::new(&flow.socket, leases);
        }
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

    /// The wait of a new flow for its first order.
    fn first_wait(&self, lease: &LeaseState, now: Duration) -> FirstWait {
        // Without limited flows, no flow waits at this host, and a limit would delay the first packets of this one.
        let wait =
            if lease.has_limited_flows(now) { MAX_FIRST_WAIT.min(lease.lease()) } else { Duration::ZERO };
        let waiting = self.open_flows.values().filter(|flow| now < flow.first_wait.end).count();
        let rate = FIRST_RATE_FRACTION * lease.max_link_rate() / (waiting + 1) as f64;
        FirstWait { end: now + wait, rate: (rate as u64).max(1) }
    }

    /// The transport of a new socket.
    fn transport(&self, socket: &OwnedFd, has_classes: bool) -> Result<Transport, SocketRefusal> {
        match socket::read_info(socket) {
            Ok(info) if info.is_open => {
                // Without records, the rate may be that of an earlier agent's order.
                let own_rate = if self.leases.is_some() { info.max_pacing_rate } else { u64::MAX };
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
    fn udp_flows(&self) -> impl Iterator<Item = (u16, (SocketAddrV4, SocketAddrV4), Option<u64>)> {
        self.open_flows.values().filter_map(|flow| match flow.transport {
            Transport::Udp { ends, class, .. } => Some((class, ends, flow.rate)),
            Transport::Tcp { .. } => None,
        })
    }

    /// The classes of UDP flows.
    pub fn limited_flows(&self) -> BTreeMap<u16, LimitedFlow> {
        let paced = self.udp_flows().filter_map(|(class, ends, rate)| Some((class, ends, rate?)));
        let to_limited_flow =
            |(class, (source, destination), rate): (u16, (SocketAddrV4, SocketAddrV4), u64)| {
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

    /// Removes the rates of all sockets. Senders write freely when their program's connection closes.
    pub fn remove_rates(&mut self) {
        for flow in self.open_flows.values_mut() {
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

#[cfg(test)]
mod tests;
