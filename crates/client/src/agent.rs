//! Hands the sockets of flows over to the agent of this host.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use crate::agent_connection::AgentConnection;
use crate::agent_error::{AgentError, UnscheduledReason};
use crate::gate::{Gate, Permission, Unscheduled};
use crate::wake::Wake;

/// A connection to the agent of this host. Any thread may use it.
///
/// If the agent is restarted, a thread connects to it again, and hands over the sockets of all [`FlowSender`](crate::FlowSender)s. A
/// program hands its own sockets over again.
#[derive(Debug)]
pub struct Agent {
    connection: Arc<AgentConnection>,
}

impl Agent {
    /// Connects to the agent by the path of its Unix socket.
    ///
    /// # Errors
    /// If no agent listens at the path.
    pub fn connect(path: impl AsRef<Path>) -> Result<Agent, AgentError> {
        Ok(Agent { connection: AgentConnection::open(path.as_ref())? })
    }

    /// Hands over the connected socket of a flow: TCP, or UDP if the agent has an interface. `flow` is the position of the
    /// flow in the registration of its coflow.
    ///
    /// # Errors
    /// If the agent refuses the socket, or does not answer. The flow is then not paced.
    pub fn hand_over(&self, coflow: &str, flow: u32, socket: &impl AsFd) -> Result<(), AgentError> {
        self.connection.request(&format!("open {coflow} {flow}"), &[socket.as_fd()])
    }

    /// Marks a flow as done: the program writes no more data. The agent closes its duplicate when all data has arrived.
    ///
    /// # Errors
    /// If the flow was not handed over by this [`Agent`] or has ended, or the agent does not answer.
    pub fn mark_done(&self, coflow: &str, flow: u32) -> Result<(), AgentError> {
        self.connection.request(&format!("done {coflow} {flow}"), &[])
    }

    /// Hands over a socket to which the program writes only while it may. The gate has its state when this returns.
    pub(crate) fn open_gate(
        &self,
        coflow: &str,
        flow: u32,
        socket: &impl AsFd,
        wake: Arc<Wake>,
    ) -> io::Result<GatedSocket<'_>> {
        let gate = Arc::new(Gate::new(coflow, flow, socket.as_fd().try_clone_to_owned()?, wake));
        let error = self.connection.open_gate(&gate).err();
        Ok(GatedSocket { agent: self, gate, error })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.connection.close();
    }
}

/// A socket that is handed over while this exists.
#[derive(Debug)]
pub(crate) struct GatedSocket<'a> {
    agent: &'a Agent,
    gate: Arc<Gate>,
    /// Why the socket could not be handed over at first. It is handed over to the next agent.
    error: Option<AgentError>,
}

impl GatedSocket<'_> {
    /// Whether the sender may write.
    pub(crate) fn is_open(&self) -> bool {
        self.gate.is_open()
    }

    pub(crate) fn permission(&self) -> Permission {
        self.gate.permission()
    }

    /// Whether the coordinator has not answered yet whether it schedules the flow.
    pub(crate) fn is_unanswered(&self) -> bool {
        let reason = UnscheduledReason::Unanswered;
        matches!(self.gate.permission(), Permission::Free(Some(unscheduled)) if unscheduled.reason == reason)
    }

    /// Tells the agent whether the sender has data that the kernel does not have, if the agent has to learn it.
    pub(crate) fn tell(&self, has_data: bool) {
        if self.gate.must_tell(has_data) {
            let command = if has_data { "data" } else { "idle" };
            self.agent.connection.notify(&format!("{command} {} {}", self.gate.coflow, self.gate.flow));
        }
    }

    /// Tells the agent that the receiver has all data. The agent may have noticed the end already.
    pub(crate) fn mark_done(&self) {
        let _ = self.agent.mark_done(&self.gate.coflow, self.gate.flow);
    }

    /// Why the flow is not scheduled; none if it is.
    pub(crate) fn unscheduled(&mut self) -> Option<AgentError> {
        match self.gate.permission() {
            Permission::Free(Some(Unscheduled { reason, message })) => {
                Some(self.error.take().unwrap_or(AgentError::Unscheduled { reason, message }))
            }
            Permission::Free(None) | Permission::Rate(_) | Permission::Paused => None,
        }
    }
}

impl Drop for GatedSocket<'_> {
    fn drop(&mut self) {
        self.agent.connection.remove_gate(&self.gate);
    }
}
