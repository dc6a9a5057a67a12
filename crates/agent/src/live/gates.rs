//! Decides what flows that can be paused may do, and pushes it to the programs that pause their own flows.
//!
//! Only the newest permission of a flow waits for its program, so a program that does not read takes bounded memory. All pauses of a
//! program have one lease, that of the coordinator's orders: one message renews it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use weir_proto::UnscheduledReason;

use crate::lease::FlowLimit;

/// Why a flow sends without a rate although it is not scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unscheduled {
    /// The agent has no valid order.
    NoLease,
    /// The coordinator has not answered the report of the flow.
    Unanswered,
    /// Orders have named the flow, and no longer do.
    Ended,
    /// The answer of the coordinator.
    Refused(UnscheduledReason),
}

impl fmt::Display for Unscheduled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Unscheduled::NoLease => {
                "no-order: the agent has no valid order of a coordinator; help: check that the coordinator runs and that the agent is connected"
            }
            Unscheduled::Unanswered => {
                "unanswered: the coordinator has not answered yet whether it schedules the flow; help: `weir ctl coflows` shows its coflows"
            }
            Unscheduled::Ended => {
                "ended: the coordinator no longer schedules the flow; expected a coflow that is not removed, and a flow that has not completed"
            }
            Unscheduled::Refused(UnscheduledReason::UnknownCoflow) => {
                "unknown-coflow: no coflow with this id was registered when the socket was handed over; help: register the coflow before its flows start"
            }
            Unscheduled::Refused(UnscheduledReason::UnknownFlow) => {
                "unknown-flow: the index is beyond the flows of the registration; help: use the position of the flow in the registration, from 0"
            }
            Unscheduled::Refused(UnscheduledReason::ForeignFlow) => {
                "foreign-flow: by the registration, another host sends this flow; help: send it from the host in `from`, or register this host there"
            }
            Unscheduled::Refused(UnscheduledReason::FormerRegistration) => {
                "former-registration: the coflow was removed and registered again after the socket was handed over; help: use a new connection"
            }
            Unscheduled::Refused(UnscheduledReason::Completed) => {
                "completed: the flow has completed; help: register the coflow under another id to send it again"
            }
        })
    }
}

/// What the sender of a flow may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Write nothing while the lease holds.
    Pause,
    /// Write at this rate, in bytes of packets per second.
    Rate(u64),
    /// Write without a rate. The reason, if the flow is not scheduled.
    Free(Option<Unscheduled>),
}

/// What pauses a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PausedBy {
    /// Its program, which writes only while it may.
    Program,
    /// The kernel, which keeps new data in the socket's queue.
    Kernel,
}

/// What the agent knows of a flow that can be paused.
#[derive(Debug, Clone, Copy)]
pub struct Gate {
    pub paused_by: PausedBy,
    /// Whether data waits: in the program, or in the socket if the kernel pauses the flow.
    pub has_data: bool,
    /// Why the flow is not scheduled, if no order names it.
    pub unscheduled: Unscheduled,
    /// What the sender may do; none before the first decision.
    pub permission: Option<Permission>,
    /// The bytes that had arrived at the socket before its pause.
    received_before_pause: u64,
    /// Whether more data arrives during a pause than may wait for acknowledgements.
    pub is_receiving: bool,
}

/// The bytes that may arrive at a paused socket. A sender begins with about ten packets, and the kernel acknowledges more of them late.
const MAX_RECEIVED_IN_PAUSE: u64 = 10_000;

impl Gate {
    /// A gate before the first decision.
    pub fn new(paused_by: PausedBy) -> Gate {
        Gate {
            paused_by,
            has_data: true,
            unscheduled: Unscheduled::Unanswered,
            permission: None,
            received_before_pause: 0,
            is_receiving: false,
        }
    }

    /// Records a measurement of a socket that the kernel can pause: its unsent bytes, and those that have arrived so far.
    pub fn measure_socket(&mut self, unsent_bytes: u32, received_bytes: u64) {
        self.has_data = unsent_bytes > 0;
        if self.permission != Some(Permission::Pause) {
            self.received_before_pause = received_bytes;
        }
        self.is_receiving |= received_bytes > self.received_before_pause + MAX_RECEIVED_IN_PAUSE;
    }

    /// What the sender may do by the limit of the last order: whether orders name the flow, whether a new flow waits for its first order,
    /// and whether the lease of the orders is valid.
    pub fn permission(
        &mut self,
        limit: FlowLimit,
        is_named: bool,
        is_waiting: bool,
        is_lease_valid: bool,
    ) -> Permission {
        if is_named {
            self.unscheduled = Unscheduled::Ended;
        }
        match limit {
            FlowLimit::Rate(rate) => Permission::Rate(rate),
            // A share of the reserve is for flows that cannot be paused: the coordinator does not know yet that this one can.
            FlowLimit::Paused | FlowLimit::Reserve(_) => Permission::Pause,
            FlowLimit::Unlimited if !is_lease_valid => Permission::Free(Some(Unscheduled::NoLease)),
            FlowLimit::Unlimited if is_named => Permission::Free(None),
            FlowLimit::Unlimited if is_waiting && self.may_be_registered() => Permission::Pause,
            FlowLimit::Unlimited => Permission::Free(Some(self.unscheduled)),
        }
    }

    /// Whether the next order may name the flow. Programs may hand over a socket shortly before the registration.
    fn may_be_registered(&self) -> bool {
        let unregistered = Unscheduled::Refused(UnscheduledReason::UnknownCoflow);
        [Unscheduled::Unanswered, unregistered].contains(&self.unscheduled)
    }

    /// Whether the program has more data than its socket sends at its rate. A program that may write has data that waits only if the kernel
    /// has some, too.
    pub fn has_more(&self, unsent_bytes: u32) -> bool {
        let is_paused = self.permission == Some(Permission::Pause);
        self.has_data && (is_paused || self.paused_by == PausedBy::Program && unsent_bytes > 0)
    }
}

/// A flow as its program names it.
type FlowName = (Arc<str>, u32);

/// The programs with gated flows.
#[derive(Debug, Default)]
pub struct Gates {
    programs: BTreeMap<u64, Program>,
}

#[derive(Debug, Default)]
struct Program {
    permissions: BTreeMap<FlowName, Permission>,
    /// The flows whose permission the program has not received.
    pending: BTreeSet<FlowName>,
    /// The end of the lease that the program has received last.
    known_lease_end: Duration,
    /// Signals that a message waits.
    wake: Arc<Notify>,
}

impl Program {
    fn is_paused(&self) -> bool {
        self.permissions.values().any(|permission| *permission == Permission::Pause)
    }
}

impl Gates {
    /// Adds a program. Returns what signals that a message for it waits.
    pub fn add_program(&mut self, program_id: u64) -> Arc<Notify> {
        Arc::clone(&self.programs.entry(program_id).or_default().wake)
    }

    /// Removes a program.
    pub fn remove_program(&mut self, program_id: u64) {
        self.programs.remove(&program_id);
    }

    /// Sets what the sender of a flow may do.
    pub fn set(&mut self, program_id: u64, coflow: &Arc<str>, flow: u32, permission: Permission) {
        let Some(program) = self.programs.get_mut(&program_id) else { return };
        let name = (Arc::clone(coflow), flow);
        if program.permissions.insert(name.clone(), permission) != Some(permission) {
            program.pending.insert(name);
            program.wake.notify_one();
        }
    }

    /// Forgets a flow.
    pub fn remove(&mut self, program_id: u64, coflow: &Arc<str>, flow: u32) {
        if let Some(program) = self.programs.get_mut(&program_id) {
            let name = (Arc::clone(coflow), flow);
            program.permissions.remove(&name);
            program.pending.remove(&name);
        }
    }

    /// Renews the lease of pauses if an eighth of it has passed since the program received its end. O(flows of the programs).
    pub fn renew(&mut self, lease_end: Duration, lease: Duration) {
        for program in self.programs.values_mut() {
            if lease_end >= program.known_lease_end + lease / 8 && program.is_paused() {
                program.wake.notify_one();
            }
        }
    }

    /// Takes the next message for a program; none if it has all. Pauses hold for `remaining`, which is until `lease_end`.
    pub fn next_message(
        &mut self,
        program_id: u64,
        lease_end: Duration,
        remaining: Duration,
    ) -> Option<String> {
        let program = self.programs.get_mut(&program_id)?;
        let lease_ms = remaining.as_millis();
        let Some((coflow, flow)) = program.pending.pop_first() else {
            if lease_end <= program.known_lease_end || !program.is_paused() {
                return None;
            }
            program.known_lease_end = lease_end;
            return Some(format!("renew {lease_ms}"));
        };
        let permission = program.permissions.get(&(Arc::clone(&coflow), flow))?;
        Some(match permission {
            Permission::Pause => {
                program.known_lease_end = lease_end;
                format!("pause {coflow} {flow} {lease_ms}")
            }
            Permission::Rate(rate) => format!("go {coflow} {flow} {rate}"),
            Permission::Free(None) => format!("go {coflow} {flow} free"),
            Permission::Free(Some(reason)) => format!("go {coflow} {flow} free {reason}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn messages(gates: &mut Gates, lease_end: Duration) -> Vec<String> {
        std::iter::from_fn(|| gates.next_message(1, lease_end, SECOND)).collect()
    }

    #[test]
    fn only_the_newest_permission_of_a_flow_waits() {
        let mut gates = Gates::default();
        gates.add_program(1);
        let coflow: Arc<str> = "c".into();
        for round in 0..1000 {
            for flow in 0..3 {
                gates.set(1, &coflow, flow, Permission::Rate(round));
            }
        }
        gates.set(1, &coflow, 1, Permission::Pause);
        gates.set(1, &coflow, 2, Permission::Free(Some(Unscheduled::NoLease)));
        gates.set(2, &coflow, 0, Permission::Pause);
        let expected = ["go c 0 999", "pause c 1 1000", &format!("go c 2 free {}", Unscheduled::NoLease)];
        assert_eq!(messages(&mut gates, SECOND), expected);
        gates.set(1, &coflow, 0, Permission::Rate(999));
        assert!(messages(&mut gates, SECOND).is_empty());
        gates.set(1, &coflow, 0, Permission::Free(None));
        gates.remove(1, &coflow, 1);
        assert_eq!(messages(&mut gates, SECOND), ["go c 0 free"]);
    }

    #[test]
    fn one_message_renews_all_pauses_of_a_program() {
        let mut gates = Gates::default();
        gates.add_program(1);
        let coflow: Arc<str> = "c".into();
        (0..3).for_each(|flow| gates.set(1, &coflow, flow, Permission::Pause));
        assert_eq!(messages(&mut gates, SECOND).len(), 3);
        assert!(messages(&mut gates, SECOND).is_empty());
        assert_eq!(messages(&mut gates, 2 * SECOND), ["renew 1000"]);
        (0..3).for_each(|flow| gates.set(1, &coflow, flow, Permission::Rate(5)));
        assert_eq!(messages(&mut gates, 3 * SECOND).len(), 3);
        assert!(messages(&mut gates, 4 * SECOND).is_empty());
    }
}
