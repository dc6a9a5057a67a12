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
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a request to the agent failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No agent runs, or it does not answer.
    #[error("the agent cannot be asked: {0}")]
    Io(#[from] io::Error),
    /// The agent refused the request, for this reason.
    #[error("the agent says no: {0}")]
    Refused(String),
    /// The answer has an unexpected form.
    #[error("the agent answered `{0}`: expected ok, or no and a reason")]
    Answer(String),
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
    /// If no agent listens there.
    pub fn connect(path: impl AsRef<Path>) -> Result<Agent, AgentError> {
        let address = SocketAddrUnix::new(path.as_ref()).map_err(io::Error::from)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(io::Error::from)?;
        for which in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, which, Some(PATIENCE)).map_err(io::Error::from)?;
        }
        connect(&socket, &address).map_err(io::Error::from)?;
        Ok(Agent { socket: Mutex::new(socket) })
    }

    /// Hands over the connected socket of a flow: TCP, or UDP over IPv4 if the agent has an interface. `flow` is the flow's position in the
    /// coflow's registration.
    ///
    /// # Errors
    /// If the agent refuses the socket, or does not answer. The flow is not paced then.
    pub fn open(&self, coflow: &str, flow: u32, socket: &impl AsFd) -> Result<(), AgentError> {
        self.ask(&format!("open {coflow} {flow}"), &[socket.as_fd()])
    }

    /// Marks a flow as done: the program will write no more. The agent closes its duplicate when all data has arrived.
    ///
    /// # Errors
    /// If the flow was not handed over by this [`Agent`] or has ended, or the agent does not answer.
    pub fn done(&self, coflow: &str, flow: u32) -> Result<(), AgentError> {
        self.ask(&format!("done {coflow} {flow}"), &[])
    }

    fn ask(&self, text: &str, with: &[BorrowedFd<'_>]) -> Result<(), AgentError> {
        // One request at a time: an answer does not name its request.
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !with.is_empty() {
            beside.push(SendAncillaryMessage::ScmRights(with));
        }
        sendmsg(&*socket, &[IoSlice::new(text.as_bytes())], &mut beside, SendFlags::NOSIGNAL)
            .map_err(io::Error::from)?;
        let mut answer = [0; 512];
        let (length, _) = recv(&*socket, &mut answer, RecvFlags::empty()).map_err(io::Error::from)?;
        match std::str::from_utf8(&answer[..length]).unwrap_or_default() {
            "ok" => Ok(()),
            "" => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            text => Err(match text.strip_prefix("no: ") {
                Some(why) => AgentError::Refused(why.to_owned()),
                None => AgentError::Answer(text.to_owned()),
            }),
        }
    }
}
