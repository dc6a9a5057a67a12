//! A flow with a socket: applies its limit, and decides by measurements whether it has data, and when it has ended.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_cookie;
use weir_proto::{FlowKey, SenderState, estimate_sent_bytes};

use super::super::gates::{Gate, Gates, PausedBy, Permission};
use super::super::program_demand::{Measurement, ProgramDemand};
use super::super::socket;
use crate::lease::{FlowLimit, LeaseState};
use crate::report_delta::OpenFlow;
use crate::traffic::{SocketLeases, monotonic_now};

/// A flow with data that has sent nothing for this time is idle, if its rate allows [`STUCK_BYTES`] in this time: its receiver does not
/// read. The time is longer than the shortest one after which TCP sends a lost packet again (200 ms).
const STUCK_TIME: Duration = Duration::from_millis(300);

/// Two of the largest packets (GSO).
const STUCK_BYTES: f64 = 131_072.0;

/// The transport of a flow.
#[derive(Debug, Clone, Copy)]
pub enum Transport {
    /// `initial_acked_bytes` were acknowledged when the socket was handed over. `syn_bytes` is 1 if the kernel counts the SYN as
    /// acknowledged, else 0. `pacing_rate` is the last pacing rate set, if any; `own_rate` is that of the program, `u64::MAX` without one.
    Tcp { initial_acked_bytes: u64, syn_bytes: u64, pacing_rate: Option<u64>, own_rate: u64 },
    /// The ends, the number of the class, and the estimated bytes sent over this socket up to the time `estimated_at`.
    Udp { ends: (SocketAddr, SocketAddr), class: u16, estimated_bytes: f64, estimated_at: Instant },
}

#[derive(Debug)]
pub struct Flow {
    /// The number by which the watchdog identifies the socket.
    pub socket_id: u64,
    pub program_id: u64,
    pub socket: OwnedFd,
    /// The number that the kernel has given the socket.
    pub cookie: Option<u64>,
    pub transport: Transport,
    /// The ordered limit.
    limit: FlowLimit,
    /// What other coflows leave of the uplink, for a flow without an ordered rate.
    pub residual_rate: Option<u64>,
    /// The rate set on the socket or class.
    pub rate: Option<u64>,
    /// What pauses the flow; none if only a low rate can.
    pub gate: Option<Gate>,
    held: HeldBytes,
    segments: SegmentCounter,
    pub first_wait: FirstWait,
    /// The bytes that the flow had sent over earlier sockets.
    pub earlier_bytes: u64,
    pub sent_bytes: u64,
    pub program: ProgramState,
    /// Written bytes that the receiver had not acknowledged at the last measurement.
    pub outstanding_bytes: u64,
    /// Whether the last measurement found no data to send.
    was_drained: bool,
    /// The last measurement at which the connection had sent bytes, or had new data to send.
    active_at: Instant,
    /// The lowest rate since then, and that between the last two such measurements: the kernel sets the times of the next two packets by
    /// the rates before a change.
    lowest_rates: [u64; 2],
    pub state: SenderState,
    /// Whether the receiver has not read since its flow could send.
    is_stuck: bool,
    demand: ProgramDemand,
}

/// What the program of a flow still does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramState {
    /// It may write.
    Writes,
    /// It has said that it writes no more, or has shut its socket down for writing.
    Done,
    /// It has exited.
    Exited,
}

/// The data packets of a socket since the last report.
#[derive(Debug, Clone, Copy, Default)]
struct SegmentCounter {
    /// The kernel's counts of sent and retransmitted packets at the last measurement.
    last: [u32; 2],
    unreported: [u32; 2],
}

impl SegmentCounter {
    fn measure(&mut self, counts: [u32; 2]) {
        for ((last, unreported), count) in self.last.iter_mut().zip(&mut self.unreported).zip(counts) {
            *unreported = unreported.saturating_add(count.wrapping_sub(*last));
            *last = count;
        }
    }
}

/// The bytes that the kernel counts as sent although pauses held them back.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeldBytes {
    total: u64,
    /// The last count of the program that holds them.
    last_count: u64,
}

impl HeldBytes {
    /// Those of a socket that an earlier agent may have paused.
    pub fn new(socket: &OwnedFd, leases: &SocketLeases) -> HeldBytes {
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
pub struct FirstWait {
    /// The wait ends with the first order that names the flow, or at this time.
    pub end: Duration,
    /// The rate of the socket meanwhile, unless the flow can be paused.
    pub rate: u64,
}

impl Flow {
    /// A flow without a limit, whose socket has a number for the watchdog. It sent `earlier_bytes` over earlier sockets.
    pub fn new(
        socket_id: u64,
        program_id: u64,
        socket: OwnedFd,
        transport: Transport,
        first_wait: FirstWait,
        earlier_bytes: u64,
    ) -> Flow {
        let info = socket::read_info(&socket).ok();
        let was_drained = info.is_some_and(|info| info.is_drained());
        // The socket may have sent packets before it was handed over.
        let last = info.map_or([0; 2], |info| [info.segments, info.retransmitted]);
        Flow {
            socket_id,
            program_id,
            cookie: socket_cookie(&socket).ok(),
            socket,
            transport,
            limit: FlowLimit::Unlimited,
            residual_rate: None,
            rate: None,
            gate: None,
            held: HeldBytes::default(),
            segments: SegmentCounter { last, ..SegmentCounter::default() },
            first_wait,
            earlier_bytes,
            sent_bytes: earlier_bytes,
            program: ProgramState::Writes,
            outstanding_bytes: 0,
            was_drained,
            active_at: Instant::now(),
            lowest_rates: [u64::MAX; 2],
            state: SenderState::Ready,
            is_stuck: false,
            demand: ProgramDemand::default(),
        }
    }

    /// Decides what can pause the flow: its program, or the kernel.
    pub fn choose_gate(&mut self, is_gated: bool, leases: Option<&mut SocketLeases>) {
        if !self.is_tcp() {
            return;
        }
        if is_gated {
            self.gate = Some(Gate::new(PausedBy::Program));
        } else if let Some(leases) = leases.filter(|leases| leases.can_pause()) {
            self.gate = Some(Gate::new(PausedBy::Kernel));
            // An earlier agent may have paused the socket.
            leases.resume(&self.socket);
            self.held = HeldBytes::new(&self.socket, leases);
        }
    }

    /// Applies a limit.
    pub fn set_limit(&mut self, limit: FlowLimit, leases: Option<&mut SocketLeases>) {
        self.limit = limit;
        let rate = match limit {
            FlowLimit::Unlimited => self.residual_rate,
            FlowLimit::Rate(rate) | FlowLimit::Reserve(rate) => Some(rate),
            // The coordinator does not know yet that the flow can no longer be paused.
            FlowLimit::Paused => Some(self.first_wait.rate),
        };
        self.lowest_rates[0] = self.lowest_rates[0].min(rate.unwrap_or(u64::MAX));
        self.set_rate(rate, leases);
    }

    pub fn is_tcp(&self) -> bool {
        matches!(self.transport, Transport::Tcp { .. })
    }

    /// Applies the limit of the last order: lets the sender of a gated flow know, or pauses the socket, if that is possible.
    pub fn apply(
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
        if gate.paused_by == PausedBy::Program && former != Some(permission) {
            gates.set(self.program_id, &key.coflow, key.flow, permission);
        }
        let is_socket_paused = gate.paused_by == PausedBy::Kernel && permission == Permission::Pause;
        if is_socket_paused && !self.pause_socket(former, leases.as_deref_mut()) {
            // From now on a low rate limits the flow.
            self.set_limit(limit, leases.as_deref_mut());
            self.resume(leases);
            self.gate = None;
            return;
        }
        // While the flow is paused, the rest of its data in the network leaves at the former rate. A low rate would arm a timer that
        // delays the packets after the pause.
        if permission == Permission::Pause {
            self.limit = limit;
            return;
        }
        if former == Some(Permission::Pause) && self.gate.is_some_and(|gate| gate.has_data) {
            self.expect_data();
        }
        self.set_limit(limit, leases.as_deref_mut());
        if former == Some(Permission::Pause) {
            self.resume(leases);
        }
    }

    /// Pauses the socket, unless it is paused already. Returns false if it cannot stay paused.
    fn pause_socket(&self, former: Option<Permission>, leases: Option<&mut SocketLeases>) -> bool {
        let is_suitable =
            socket::may_wait_unsent(&self.socket) && self.gate.is_some_and(|gate| !gate.is_receiving);
        let pause = |leases: &mut SocketLeases| leases.pause(&self.socket).is_ok();
        is_suitable && (former == Some(Permission::Pause) || leases.is_some_and(pause))
    }

    /// Ends a pause by the kernel.
    pub fn resume(&mut self, leases: Option<&mut SocketLeases>) {
        if self.can_be_paused_by(PausedBy::Kernel) {
            leases.into_iter().for_each(|leases| leases.resume(&self.socket));
            socket::push(&self.socket);
        }
    }

    pub fn is_paused(&self) -> bool {
        self.gate.is_some_and(|gate| gate.permission == Some(Permission::Pause))
    }

    pub fn can_be_paused_by(&self, paused_by: PausedBy) -> bool {
        self.gate.is_some_and(|gate| gate.paused_by == paused_by)
    }

    /// Lets the kernel set the program's own rate again after the lease. The kernel removes the record then.
    pub fn record_own_rate(&mut self, leases: Option<&mut SocketLeases>) {
        if let Some(leases) = leases
            && let Transport::Tcp { own_rate, .. } = &mut self.transport
            && let Ok(recorded_rate) = leases.add(self.socket.as_fd(), *own_rate)
        {
            *own_rate = recorded_rate;
        }
    }

    /// Sets a rate, unless it is set already. It ends with the lease if the kernel has a record.
    pub fn set_rate(&mut self, rate: Option<u64>, leases: Option<&mut SocketLeases>) {
        if rate == self.rate {
            return;
        }
        if self.rate.is_none() {
            self.record_own_rate(leases);
        }
        match &mut self.transport {
            // A socket that refuses a rate has closed; the next measurement finds this.
            Transport::Tcp { pacing_rate, own_rate, .. } => {
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
    pub fn open_flow(&self) -> OpenFlow {
        // The program may have set a lower rate itself.
        let own_rate = match self.transport {
            Transport::Tcp { own_rate, .. } => Some(own_rate.max(1)).filter(|&rate| rate < u64::MAX),
            Transport::Udp { .. } => None,
        };
        OpenFlow {
            sent: self.sent_bytes,
            limit: self.limit,
            state: self.state(),
            is_gated: self.gate.is_some(),
            is_udp: !self.is_tcp(),
            demand: self.demand.get().into_iter().chain(own_rate).min(),
        }
    }

    /// The state of the flow. The kernel may have no data of a sender that waits.
    pub fn state(&self) -> SenderState {
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
    pub fn expect_data(&mut self) {
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

    /// Takes the numbers of data packets that were sent since the last call, and of those that had been sent before.
    pub fn take_segments(&mut self) -> [u32; 2] {
        let [segments, retransmitted] = std::mem::take(&mut self.segments.unreported);
        // The kernel also counts retransmissions that it could not send.
        [segments, retransmitted.min(segments)]
    }

    /// Reads the bytes sent. Returns the last state of a flow that has ended: completed or lost.
    pub fn measure(&mut self, leases: Option<&SocketLeases>) -> Option<SenderState> {
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
        self.segments.measure([info.segments, info.retransmitted]);
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
            gate.measure_socket(info.unsent_bytes, info.received_bytes);
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
