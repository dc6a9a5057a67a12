//! Receives the sockets of flows from programs, over a Unix socket that preserves messages (`SOCK_SEQPACKET`).
//!
//! | Message | Ancillary data (`SCM_RIGHTS`) | Meaning |
//! |---|---|---|
//! | `open COFLOW FLOW` | the socket | Pace this connection as that flow |
//! | `open COFLOW FLOW gated` | the socket | The same, and the program writes to the socket only while it may |
//! | `data COFLOW FLOW` | | The program of a gated flow has data that the kernel does not have |
//! | `idle COFLOW FLOW` | | It has no such data |
//! | `done COFLOW FLOW` | | The program writes no more data to this flow |
//!
//! The answer to `open` and `done` is `ok`, or `no:` and the reason. Before the `ok` to `open COFLOW FLOW gated`, and later when it
//! changes, the agent pushes what the program may do:
//!
//! | Message | Meaning |
//! |---|---|
//! | `pause COFLOW FLOW LEASE_MS` | Write nothing. This holds for LEASE_MS milliseconds, for all paused flows of the program |
//! | `renew LEASE_MS` | All pauses hold for LEASE_MS milliseconds from now on |
//! | `go COFLOW FLOW RATE` | Write, at RATE bytes of packets per second |
//! | `go COFLOW FLOW free` | Write, without a rate. A reason follows if the flow is not scheduled |
//!
//! When a program closes the connection, its flows that have not ended are lost once their written data has arrived.
//! Coflows and flows have the names of the coflow's registration. A socket belongs to the newest registration that orders name when
//! it is handed over, or to the next one that an order names, and stays with it: if the coflow is removed and registered again, the
//! socket does not count for the new registration.

use std::fs;
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, recvmsg, send, socket_with,
};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use weir_proto::{MAX_ID_LENGTH, is_id};

use super::SharedState;
use super::flows::HandedOver;

/// The maximum number of connected programs. Further programs wait.
const MAX_PROGRAMS: usize = 256;

/// The maximum length of a message: two words, an id, a number, and the spaces between.
const MAX_MESSAGE_BYTES: usize = MAX_ID_LENGTH + 32;

/// An open local socket.
pub struct LocalSocketServer {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for LocalSocketServer {
    fn drop(&mut self) {
        // Another process may have removed the file.
        let _ = fs::remove_file(&self.path);
    }
}

fn open_seqpacket_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

impl LocalSocketServer {
    /// Opens a local socket at a path, and removes the file of an agent that was killed.
    ///
    /// # Errors
    /// If another agent listens there, or the socket cannot be created.
    pub fn open(path: &Path) -> io::Result<LocalSocketServer> {
        let to_error = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: cannot listen: {error}", path.display()))
        };
        let address = SocketAddrUnix::new(path).map_err(|error| to_error(error.into()))?;
        let listener = open_seqpacket_socket().map_err(to_error)?;
        if path.exists() {
            match connect(open_seqpacket_socket().map_err(to_error)?, &address) {
                Err(rustix::io::Errno::CONNREFUSED) => fs::remove_file(path).map_err(to_error)?,
                Ok(()) => {
                    return Err(to_error(io::Error::new(
                        ErrorKind::AddrInUse,
                        "another agent listens on this socket",
                    )));
                }
                Err(error) => return Err(to_error(error.into())),
            }
        }
        bind(&listener, &address)
            .and_then(|()| listen(&listener, 64))
            .map_err(|error| to_error(error.into()))?;
        // Tokio does not check the type of a Unix socket, so its listener accepts `SOCK_SEQPACKET`.
        let listener = UnixListener::from_std(listener.into()).map_err(to_error)?;
        Ok(LocalSocketServer { listener, path: path.to_owned() })
    }

    /// Accepts programs until the task is cancelled.
    pub(super) async fn serve(&self, shared: SharedState) -> io::Result<()> {
        let permits = Arc::new(Semaphore::new(MAX_PROGRAMS));
        for id in 0.. {
            let permit = Arc::clone(&permits).acquire_owned().await.expect("the semaphore is never closed");
            match self.listener.accept().await {
                Ok((socket, _)) => {
                    let program = Program { id, shared: shared.clone() };
                    tokio::spawn(async move {
                        let _permit = permit;
                        program.serve(&socket).await;
                    });
                }
                Err(error) => {
                    // File descriptors may be available again later.
                    tracing::warn!("connection of a program cannot be accepted: {error}");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
        Ok(())
    }
}

/// A connected program.
struct Program {
    id: u64,
    shared: SharedState,
}

impl Drop for Program {
    fn drop(&mut self) {
        self.shared.lock().flows.end_program(self.id);
    }
}

impl Program {
    /// Answers the messages of the program, and pushes the permissions of its flows. Ends when the program closes the connection, or the
    /// kernel reports an error.
    async fn serve(&self, socket: &UnixStream) {
        let wake = self.shared.lock().flows.gates.add_program(self.id);
        loop {
            let result = tokio::select! {
                message = socket.async_io(Interest::READABLE, || receive(socket)) => match message {
                    Ok(Some((text, handed_over))) => self.answer(socket, &text, handed_over).await,
                    Ok(None) | Err(_) => return,
                },
                () = wake.notified() => self.push(socket).await,
            };
            if result.is_err() {
                return;
            }
        }
    }

    /// Sends a message, and waits while the program does not read. Its flows' newest permissions wait meanwhile.
    async fn send(socket: &UnixStream, text: &str) -> io::Result<()> {
        let send = || Ok(send(socket, text.as_bytes(), SendFlags::NOSIGNAL)?);
        socket.async_io(Interest::WRITABLE, send).await.map(drop)
    }

    /// Pushes changed permissions.
    async fn push(&self, socket: &UnixStream) -> io::Result<()> {
        loop {
            let Some(text) = self.shared.lock().next_push(self.id) else { return Ok(()) };
            Program::send(socket, &text).await?;
        }
    }

    async fn answer(&self, socket: &UnixStream, text: &str, handed_over: Option<OwnedFd>) -> io::Result<()> {
        let answer = match self.handle_message(text, handed_over) {
            Ok(false) => return Ok(()),
            Ok(true) => "ok".to_owned(),
            Err(reason) => format!("no: {reason}"),
        };
        // The program of a new gated flow gets the permission before the answer.
        self.push(socket).await?;
        Program::send(socket, &answer).await
    }

    /// Returns whether the message gets the answer `ok`.
    fn handle_message(&self, text: &str, handed_over: Option<OwnedFd>) -> Result<bool, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let (command, coflow, flow, is_gated) = match words[..] {
            ["open", coflow, flow, "gated"] => ("open", coflow, flow, true),
            [command, coflow, flow] => (command, coflow, flow, false),
            _ => {
                return Err(
                    "malformed message; expected `open COFLOW FLOW`, `open COFLOW FLOW gated` or `done COFLOW FLOW`"
                        .to_owned(),
                );
            }
        };
        if !is_id(coflow) {
            return Err(format!(
                "coflow id is invalid; expected 1 to {MAX_ID_LENGTH} printable characters without spaces"
            ));
        }
        let flow = flow.parse().map_err(|_| format!("flow `{flow}` is invalid; expected a whole number"))?;
        let coflow: Arc<str> = coflow.into();
        let mut host = self.shared.lock();
        match (command, handed_over) {
            ("open", Some(socket)) => {
                let rates = host.limited_rates(&socket);
                let handed_over = HandedOver { program_id: self.id, socket, is_gated, rates };
                host.open_flow(coflow, flow, handed_over).map_err(|reason| reason.to_string())?;
            }
            ("open", None) => {
                return Err("`open` has no socket, or more than one; expected one socket as ancillary data (SCM_RIGHTS)"
                    .to_owned());
            }
            ("data" | "idle", None) => {
                host.set_data(&coflow, flow, self.id, command == "data");
                return Ok(false);
            }
            ("done", None) => {
                host.mark_done(&coflow, flow, self.id).map_err(|reason| reason.to_string())?;
            }
            ("done" | "data" | "idle", Some(_)) => {
                return Err(format!("`{command}` has a socket; expected none"));
            }
            _ => return Err(format!("unknown command `{command}`; expected open, data, idle or done")),
        }
        Ok(true)
    }
}

/// Reads a message and the socket passed with it; none at the end. More than one socket counts as none.
fn receive(socket: &UnixStream) -> io::Result<Option<(String, Option<OwnedFd>)>> {
    let mut text = [0; MAX_MESSAGE_BYTES];
    let mut ancillary_buffer = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut ancillary_buffer);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, flags)?;
    if message.bytes == 0 {
        return Ok(None);
    }
    let rights = |item| match item {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    };
    let mut sockets: Vec<OwnedFd> = ancillary.drain().filter_map(rights).flatten().collect();
    let is_truncated = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    let handed_over = if is_truncated || sockets.len() > 1 { None } else { sockets.pop() };
    // A malformed or truncated message becomes an empty one, which is refused.
    let text =
        if is_truncated { "" } else { std::str::from_utf8(&text[..message.bytes]).unwrap_or_default() };
    Ok(Some((text.to_owned(), handed_over)))
}
