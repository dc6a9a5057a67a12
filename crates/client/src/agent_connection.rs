//! The connection to an agent. Its thread reads the agent's messages, ends pauses whose lease has ended, and connects again.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, sendmsg, shutdown, socket_with,
};

use crate::agent_error::AgentError;
use crate::agent_messages::AgentMessage;
use crate::gate::{Gate, Permission};
use crate::wake::Wake;

/// How long an agent may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The wait before the next attempt to connect again, which doubles up to a maximum.
const MIN_RECONNECT_WAIT: Duration = Duration::from_millis(50);
const MAX_RECONNECT_WAIT: Duration = Duration::from_secs(1);

/// The maximum length of a message of the agent.
const MAX_MESSAGE_BYTES: usize = 1024;

/// A connection that programs, senders and its thread share.
#[derive(Debug)]
pub(crate) struct AgentConnection {
    path: PathBuf,
    /// Held during a request, since an answer does not name its request.
    request: Mutex<()>,
    state: Mutex<State>,
    /// Signals an answer, or the end of the connection.
    changed: Condvar,
    /// Wakes the thread when the program closes the connection.
    wake: Wake,
}

#[derive(Debug)]
struct State {
    /// None while no agent is connected.
    socket: Option<Arc<OwnedFd>>,
    /// The number of the connection, from 1.
    connection: u64,
    answer: Option<String>,
    gates: BTreeMap<(String, u32), Arc<Gate>>,
    /// When pauses end; none without a pause.
    lease_end: Option<Instant>,
}

impl State {
    /// Begins or renews the lease of pauses.
    fn renew(&mut self, lease: Duration) {
        if self.lease_end.replace(Instant::now() + lease).is_none() {
            self.gates.values().for_each(|gate| gate.set_lease_ended(false));
        }
    }
}

fn open_socket(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, direction, Some(ANSWER_TIMEOUT))?;
    }
    connect(&socket, &address)?;
    Ok(socket)
}

fn send_message(socket: &OwnedFd, text: &str, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut ancillary_buffer = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut ancillary_buffer);
    if !sockets.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(sockets));
    }
    sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Reads a message that has arrived; none at the end of the connection.
fn receive_message(socket: &OwnedFd) -> io::Result<Option<String>> {
    let mut buffer = [0; MAX_MESSAGE_BYTES];
    let (length, _) = recv(socket, &mut buffer, RecvFlags::DONTWAIT)?;
    Ok((length > 0).then(|| String::from_utf8_lossy(&buffer[..length]).into_owned()))
}

fn check_answer(text: &str) -> Result<(), AgentError> {
    match text.strip_prefix("no: ") {
        _ if text == "ok" => Ok(()),
        Some(reason) => Err(AgentError::Refused(reason.to_owned())),
        None => Err(AgentError::UnexpectedAnswer(text.to_owned())),
    }
}

fn disconnected() -> AgentError {
    io::Error::new(ErrorKind::NotConnected, "the agent has closed the connection").into()
}

impl AgentConnection {
    /// Connects, and starts the thread.
    pub(crate) fn open(path: &Path) -> Result<Arc<AgentConnection>, AgentError> {
        let socket = Some(Arc::new(open_socket(path)?));
        let state = State { socket, connection: 1, answer: None, gates: BTreeMap::new(), lease_end: None };
        let connection = Arc::new(AgentConnection {
            path: path.to_owned(),
            request: Mutex::new(()),
            state: Mutex::new(state),
            changed: Condvar::new(),
            wake: Wake::new()?,
        });
        let shared = Arc::clone(&connection);
        std::thread::Builder::new().name("weir-agent".to_owned()).spawn(move || shared.run())?;
        Ok(connection)
    }

    /// Closes the connection, which ends the flows of the program.
    pub(crate) fn close(&self) {
        self.wake.cancel();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, and waits for its answer.
    pub(crate) fn request(&self, text: &str, sockets: &[BorrowedFd<'_>]) -> Result<(), AgentError> {
        let _request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = {
            let mut state = self.lock();
            state.answer = None;
            state.socket.clone().ok_or_else(disconnected)?
        };
        send_message(&socket, text, sockets).inspect_err(|_| {
            let _ = shutdown(&*socket, Shutdown::Both);
        })?;
        let has_no_answer = |state: &mut State| {
            state.answer.is_none()
                && state.socket.as_ref().is_some_and(|current| Arc::ptr_eq(current, &socket))
        };
        let waited = self.changed.wait_timeout_while(self.lock(), ANSWER_TIMEOUT, has_no_answer);
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.answer.take() {
            Some(answer) => check_answer(&answer),
            None if timeout.timed_out() => {
                // A late answer would be read as the answer to the next request.
                let _ = shutdown(&*socket, Shutdown::Both);
                Err(io::Error::from(ErrorKind::TimedOut).into())
            }
            None => Err(disconnected()),
        }
    }

    /// Sends a message that has no answer.
    pub(crate) fn notify(&self, text: &str) {
        let socket = self.lock().socket.clone();
        if let Some(socket) = socket {
            // The thread finds a failure.
            let _ = send_message(&socket, text, &[]);
        }
    }

    /// Hands over the socket of a gate, now and after each restart of the agent.
    pub(crate) fn open_gate(&self, gate: &Arc<Gate>) -> Result<(), AgentError> {
        let mut state = self.lock();
        gate.begin_connection(state.connection);
        let replaced = state.gates.insert((gate.coflow.clone(), gate.flow), Arc::clone(gate));
        drop(state);
        if let Some(replaced) = replaced {
            replaced.set(Permission::unscheduled("another sender of this program replaced it"));
        }
        self.request(&open_message(gate), &[gate.as_fd()])
            .inspect_err(|error| gate.set(Permission::unscheduled(error.to_string())))
    }

    /// Forgets a gate.
    pub(crate) fn remove_gate(&self, gate: &Arc<Gate>) {
        let mut state = self.lock();
        let key = (gate.coflow.clone(), gate.flow);
        if state.gates.get(&key).is_some_and(|known| Arc::ptr_eq(known, gate)) {
            state.gates.remove(&key);
        }
    }

    /// Runs until the program closes the connection.
    fn run(&self) {
        let mut wait = MIN_RECONNECT_WAIT;
        while !self.wake.is_cancelled() {
            let socket = self.lock().socket.clone();
            if let Some(socket) = socket {
                self.read_messages(&socket);
                self.disconnect();
                wait = MIN_RECONNECT_WAIT;
            } else if self.reconnect().is_err() {
                self.disconnect();
                self.wait_for(None, Some(wait));
                wait = (wait * 2).min(MAX_RECONNECT_WAIT);
            }
        }
        self.disconnect();
    }

    /// Waits for a message, a time, or the end of the program's connection.
    fn wait_for(&self, socket: Option<&OwnedFd>, timeout: Option<Duration>) {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut polled = vec![PollFd::new(&self.wake, PollFlags::IN)];
        polled.extend(socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
        let _ = poll(&mut polled, timeout.as_ref());
    }

    /// Reads and applies messages until the connection ends.
    fn read_messages(&self, socket: &OwnedFd) {
        while let Ok(text) = self.next_message(socket, None) {
            self.apply(&text);
        }
    }

    /// Waits for the next message, and meanwhile ends pauses whose lease has ended.
    fn next_message(&self, socket: &OwnedFd, deadline: Option<Instant>) -> io::Result<String> {
        while !self.wake.is_cancelled() {
            match receive_message(socket) {
                Ok(message) => return message.ok_or_else(|| ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let remaining = deadline.map(|end| end.saturating_duration_since(Instant::now()));
                    if remaining.is_some_and(|remaining| remaining.is_zero()) {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    let until_lease_end = self.end_pauses();
                    self.wait_for(Some(socket), remaining.into_iter().chain(until_lease_end).min());
                }
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::Interrupted.into())
    }

    /// Lets all paused senders write if the lease has ended. Returns the time until it ends.
    fn end_pauses(&self) -> Option<Duration> {
        let mut state = self.lock();
        let remaining = state.lease_end?.saturating_duration_since(Instant::now());
        if !remaining.is_zero() {
            return Some(remaining);
        }
        state.lease_end = None;
        state.gates.values().for_each(|gate| gate.set_lease_ended(true));
        None
    }

    /// Applies a message of the agent.
    fn apply(&self, text: &str) {
        let mut state = self.lock();
        match AgentMessage::parse(text) {
            AgentMessage::Permission { coflow, flow, permission, lease } => {
                if let Some(lease) = lease {
                    state.renew(lease);
                }
                if let Some(gate) = state.gates.get(&(coflow.to_owned(), flow)) {
                    gate.set(permission);
                }
            }
            AgentMessage::Renewal(lease) => state.renew(lease),
            AgentMessage::Answer(answer) => {
                state.answer = Some(answer.to_owned());
                self.changed.notify_all();
            }
        }
    }

    /// Lets all senders write, and refuses requests until an agent is connected.
    fn disconnect(&self) {
        let mut state = self.lock();
        (state.socket, state.lease_end) = (None, None);
        for gate in state.gates.values() {
            gate.set(Permission::unscheduled("the agent has closed the connection"));
        }
        self.changed.notify_all();
    }

    /// Connects again, and hands over the sockets of all gates.
    fn reconnect(&self) -> Result<(), AgentError> {
        let socket = Arc::new(open_socket(&self.path)?);
        let connection = {
            let mut state = self.lock();
            state.connection += 1;
            state.connection
        };
        while let Some(gate) = self.next_gate(connection, &socket) {
            gate.begin_connection(connection);
            send_message(&socket, &open_message(&gate), &[gate.as_fd()])?;
            let deadline = Instant::now() + ANSWER_TIMEOUT;
            let answer = loop {
                let text = self.next_message(&socket, Some(deadline))?;
                match AgentMessage::parse(&text) {
                    AgentMessage::Answer(answer) => break check_answer(answer),
                    _ => self.apply(&text),
                }
            };
            if let Err(error) = answer {
                gate.set(Permission::unscheduled(error.to_string()));
            }
        }
        Ok(())
    }

    /// The next gate whose socket was not handed over over a connection. Without one, requests use this connection from now on.
    fn next_gate(&self, connection: u64, socket: &Arc<OwnedFd>) -> Option<Arc<Gate>> {
        let mut state = self.lock();
        let next = state.gates.values().find(|gate| gate.connection() != connection).cloned();
        if next.is_none() {
            state.socket = Some(Arc::clone(socket));
        }
        next
    }
}

fn open_message(gate: &Gate) -> String {
    format!("open {} {} gated", gate.coflow, gate.flow)
}
