//! Hands the sockets of flows over to the agent of this host.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, sendmsg, socket_with,
};

/// How long an agent may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a request to the agent failed.
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
}

/// A connection to the agent of this host.
#[derive(Debug)]
pub struct Agent {
    socket: Mutex<OwnedFd>,
}

impl Agent {
    /// Connects to the agent by the path of its Unix socket.
    ///
    /// # Errors
    /// If no agent listens at the path.
    pub fn connect(path: impl AsRef<Path>) -> Result<Agent, AgentError> {
        let address = SocketAddrUnix::new(path.as_ref()).map_err(io::Error::from)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(io::Error::from)?;
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, direction, Some(ANSWER_TIMEOUT)).map_err(io::Error::from)?;
        }
        connect(&socket, &address).map_err(io::Error::from)?;
        Ok(Agent { socket: Mutex::new(socket) })
    }

    /// Hands over the connected socket of a flow: TCP, or UDP over IPv4 if the agent has an interface. `flow` is the position of the
    /// flow in the registration of its coflow.
    ///
    /// # Errors
    /// If the agent refuses the socket, or does not answer. The flow is then not paced.
    pub fn hand_over(&self, coflow: &str, flow: u32, socket: &impl AsFd) -> Result<(), AgentError> {
        self.send_request(&format!("open {coflow} {flow}"), &[socket.as_fd()])
    }

    /// Marks a flow as done: the program writes no more data. The agent closes its duplicate when all data has arrived.
    ///
    /// # Errors
    /// If the flow was not handed over by this [`Agent`] or has ended, or the agent does not answer.
    pub fn mark_done(&self, coflow: &str, flow: u32) -> Result<(), AgentError> {
        self.send_request(&format!("done {coflow} {flow}"), &[])
    }

    fn send_request(&self, text: &str, sockets: &[BorrowedFd<'_>]) -> Result<(), AgentError> {
        // An answer does not name its request, so only one request is sent at a time.
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ancillary_buffer = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut ancillary_buffer);
        if !sockets.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(sockets));
        }
        sendmsg(&*socket, &[IoSlice::new(text.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)
            .map_err(io::Error::from)?;
        let mut answer = [0; 512];
        let (length, _) = recv(&*socket, &mut answer, RecvFlags::empty()).map_err(io::Error::from)?;
        match std::str::from_utf8(&answer[..length]).unwrap_or_default() {
            "ok" => Ok(()),
            "" => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            text => Err(match text.strip_prefix("no: ") {
                Some(reason) => AgentError::Refused(reason.to_owned()),
                None => AgentError::UnexpectedAnswer(text.to_owned()),
            }),
        }
    }
}
