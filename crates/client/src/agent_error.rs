//! Why a request to the agent failed, or why a flow is not scheduled.

use std::io;

/// Why a request to the agent failed, or why a flow is not scheduled.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No agent runs, or it does not answer.
    #[error("agent: cannot be reached: {0}")]
    Io(#[from] io::Error),
    /// The agent refused the request, for this reason.
    #[error("agent: request refused: {0}")]
    Refused(String),
    /// The answer has an unexpected form.
    #[error("agent: unexpected answer `{0}`; expected `ok`, or `no: ` and a reason")]
    UnexpectedAnswer(String),
    /// The agent has the socket, but no rate for the flow.
    #[error("agent: the flow is not scheduled: {message}")]
    Unscheduled {
        /// The reason.
        reason: UnscheduledReason,
        /// The reason as a text, with what to do.
        message: String,
    },
}

/// Why a flow is not scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnscheduledReason {
    /// No coflow with this id was registered when the socket was handed over.
    UnknownCoflow,
    /// The index is beyond the flows of the registration.
    UnknownFlow,
    /// By the registration, another host sends the flow.
    ForeignFlow,
    /// The coflow was removed and registered again since the socket was handed over.
    FormerRegistration,
    /// The flow has completed.
    Completed,
    /// The coordinator no longer schedules the flow.
    Ended,
    /// The flow ended before the coordinator answered whether it schedules the flow.
    Unanswered,
    /// The agent has no valid order of a coordinator.
    NoOrder,
    /// Another reason, such as the end of the connection to the agent.
    Other,
}

impl UnscheduledReason {
    /// Parses the code before the message of an agent.
    pub(crate) fn parse(code: &str) -> Option<UnscheduledReason> {
        Some(match code {
            "unknown-coflow" => UnscheduledReason::UnknownCoflow,
            "unknown-flow" => UnscheduledReason::UnknownFlow,
            "foreign-flow" => UnscheduledReason::ForeignFlow,
            "former-registration" => UnscheduledReason::FormerRegistration,
            "completed" => UnscheduledReason::Completed,
            "ended" => UnscheduledReason::Ended,
            "unanswered" => UnscheduledReason::Unanswered,
            "no-order" => UnscheduledReason::NoOrder,
            _ => return None,
        })
    }
}
