//! The gate of a sender: whether the agent lets it write.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::agent_error::UnscheduledReason;
use crate::wake::Wake;

/// The minimum time between the messages `data` and `idle`. The agent also measures how much data the kernel has.
const MIN_IDLE_INTERVAL: Duration = Duration::from_millis(5);

/// What the agent lets a sender do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Permission {
    /// The sender does not write. This holds for the lease of the agent's connection.
    Paused,
    /// The sender writes, at this rate in bytes of packets per second.
    Rate(u64),
    /// The sender writes without a rate. The reason why the flow is not scheduled, unless it is.
    Free(Option<Unscheduled>),
}

/// Why a flow is not scheduled, and the message with what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unscheduled {
    pub(crate) reason: UnscheduledReason,
    pub(crate) message: String,
}

impl Permission {
    /// Writing without a rate, for a reason that is no answer of an agent.
    pub(crate) fn unscheduled(message: impl Into<String>) -> Permission {
        Permission::Free(Some(Unscheduled::other(message)))
    }
}

impl Unscheduled {
    /// A reason that is no answer of an agent.
    pub(crate) fn other(message: impl Into<String>) -> Unscheduled {
        Unscheduled { reason: UnscheduledReason::Other, message: message.into() }
    }
}

/// What a sender has told the agent about its data.
#[derive(Debug, Clone, Copy)]
struct ToldState {
    has_data: bool,
    at: Instant,
}

/// The gate of a flow. The thread of the agent's connection sets it.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) coflow: String,
    pub(crate) flow: u32,
    /// A duplicate of the flow's socket, for an agent that was restarted.
    pub(crate) socket: OwnedFd,
    wake: Arc<Wake>,
    state: Mutex<GateState>,
}

#[derive(Debug)]
struct GateState {
    permission: Permission,
    /// None if the agent may not know whether the sender has data.
    told: Option<ToldState>,
    /// Whether the lease of the agent's connection has ended, which ends pauses.
    has_lease_ended: bool,
    /// The number of the agent's connection over which the socket was handed over last.
    connection: u64,
}

impl Gate {
    /// A gate that is open until the agent has the socket.
    pub(crate) fn new(coflow: &str, flow: u32, socket: OwnedFd, wake: Arc<Wake>) -> Gate {
        let permission = Permission::unscheduled("the agent does not have the socket");
        let state = Mutex::new(GateState { permission, told: None, has_lease_ended: false, connection: 0 });
        Gate { coflow: coflow.to_owned(), flow, socket, wake, state }
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what the sender may do, and wakes it if that has changed.
    pub(crate) fn set(&self, permission: Permission) {
        let mut state = self.lock();
        if state.permission == permission {
            return;
        }
        if permission == Permission::Paused {
            state.told = None;
        }
        state.permission = permission;
        self.wake.signal();
    }

    /// Ends or renews the pause.
    pub(crate) fn set_lease_ended(&self, has_ended: bool) {
        self.lock().has_lease_ended = has_ended;
        self.wake.signal();
    }

    /// What the sender may do now.
    pub(crate) fn permission(&self) -> Permission {
        let state = self.lock();
        match state.permission {
            Permission::Paused if state.has_lease_ended => {
                Permission::unscheduled("the agent has not renewed the pause in time")
            }
            _ => state.permission.clone(),
        }
    }

    /// Whether the sender may write.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.lock();
        state.permission != Permission::Paused || state.has_lease_ended
    }

    /// Whether the agent has to learn whether the sender has data. If so, the caller tells it.
    pub(crate) fn must_tell(&self, has_data: bool) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        let must_tell = match state.told {
            None => has_data,
            Some(told) if told.has_data == has_data => false,
            Some(told) => has_data || now.duration_since(told.at) >= MIN_IDLE_INTERVAL,
        };
        if must_tell {
            state.told = Some(ToldState { has_data, at: now });
        }
        must_tell
    }

    /// Records that the socket is handed over over a connection of the agent. The flow then counts as one with data.
    pub(crate) fn begin_connection(&self, connection: u64) {
        let mut state = self.lock();
        state.connection = connection;
        state.told = Some(ToldState { has_data: true, at: Instant::now() });
    }

    pub(crate) fn connection(&self) -> u64 {
        self.lock().connection
    }
}

impl AsFd for Gate {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
