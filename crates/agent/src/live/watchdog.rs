//! Runs a second process that removes the rates of handed-over sockets when an agent dies or hangs.
//!
//! A socket keeps its pacing rate until some process changes it, also when the process that set the rate has died. So the agent
//! starts a watchdog, passes a duplicate of each TCP socket to it, and sends the time until which its orders hold. When that time
//! passes without a renewal, the watchdog removes the rates. After the agent's death it also removes the filters of UDP flows at
//! interfaces, and exits.
//!
//! A watchdog may free a socket that the next agent has already paced; that agent notices within its interval and sets the rate again.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::socket;
use crate::queues::Interface;
use crate::traffic::now;

/// How long the agent waits before it starts another watchdog.
const AGAIN: Duration = Duration::from_secs(1);

/// How long the agent waits for its watchdog to exit.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long a watchdog continues at most after a signal, once its agent has died.
const GRACE: Duration = Duration::from_secs(1);

/// How often a watchdog without an agent checks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// A message to the watchdog: a letter and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    /// Keep the socket that comes with this message, under this number.
    Hold(u64),
    /// Close the socket with this number.
    Release(u64),
    /// Orders hold until this time of the monotonic clock, in nanoseconds.
    Until(u64),
    /// The agent has freed all sockets itself: exit.
    Stop,
}

impl Message {
    fn pack(self) -> [u8; 9] {
        let (letter, number) = match self {
            Message::Hold(number) => (b'h', number),
            Message::Release(number) => (b'r', number),
            Message::Until(time) => (b'u', time),
            Message::Stop => (b's', 0),
        };
        let mut bytes = [letter; 9];
        bytes[1..].copy_from_slice(&number.to_ne_bytes());
        bytes
    }

    fn unpack(bytes: &[u8]) -> Option<Message> {
        let (&letter, number) = bytes.split_first()?;
        let number = u64::from_ne_bytes(number.try_into().ok()?);
        Some(match letter {
            b'h' => Message::Hold(number),
            b'r' => Message::Release(number),
            b'u' => Message::Until(number),
            b's' => Message::Stop,
            _ => return None,
        })
    }
}

/// How to start a watchdog.
#[derive(Debug, Clone)]
pub struct Start {
    /// The program, which calls [`run`] with its standard input.
    pub program: PathBuf,
    /// The first arguments. The agent appends its local socket, by which the watchdog finds a successor, and the numbers of the interfaces.
    pub args: Vec<String>,
    /// The local socket of the agent.
    pub local_socket: PathBuf,
}

/// The agent's end.
#[derive(Debug)]
pub struct Watchdog {
    start: Start,
    /// The interfaces where UDP flows have filters.
    interfaces: Vec<u32>,
    running: Option<(OwnedFd, Child)>,
    /// The end of the lease that the watchdog received last.
    until: Option<Duration>,
    tried: Option<Instant>,
    /// Since when the watchdog takes no message.
    stuck: Option<Instant>,
}

impl Watchdog {
    /// A watchdog that does not run yet; `interfaces` are those where UDP flows may have filters.
    pub fn new(start: Start, interfaces: &[Interface]) -> Watchdog {
        let interfaces = interfaces.iter().filter_map(Interface::index).collect();
        Watchdog { start, interfaces, running: None, until: None, tried: None, stuck: None }
    }

    /// Starts a watchdog if none runs. Returns whether it started one: a new watchdog holds no sockets.
    ///
    /// # Errors
    /// If the program cannot be started. Later calls try again, at most once a second.
    pub fn ensure(&mut self) -> io::Result<bool> {
        if self.running.is_some() || self.tried.is_some_and(|tried| tried.elapsed() < AGAIN) {
            return Ok(false);
        }
        self.tried = Some(Instant::now());
        let flags = SocketFlags::CLOEXEC;
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::io::ioctl_fionbio(&own, true)?;
        let mut command = Command::new(&self.start.program);
        command.args(&self.start.args).arg(&self.start.local_socket);
        command.args(self.interfaces.iter().map(u32::to_string));
        // Signals of a terminal are for the agent alone.
        command.process_group(0);
        let child = command.stdin(Stdio::from(other)).stdout(Stdio::null()).spawn()?;
        (self.running, self.until, self.stuck) = (Some((own, child)), None, None);
        Ok(true)
    }

    /// Whether a watchdog runs, as far as the agent knows.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Hands over a duplicate of a socket. Returns false if the watchdog cannot take it now; the caller tries again.
    pub fn hold(&mut self, number: u64, socket: BorrowedFd<'_>) -> bool {
        self.send(Message::Hold(number), &[socket])
    }

    /// Closes a duplicate. Returns as [`Watchdog::hold`].
    pub fn release(&mut self, number: u64) -> bool {
        self.send(Message::Release(number), &[])
    }

    /// Renews the time until which orders hold. Skips renewals by less than an eighth of the lease.
    pub fn renew(&mut self, until: Duration, lease: Duration) {
        let is_near = self.until.is_some_and(|last| last <= until && until - last < lease / 8);
        if !is_near && self.send(Message::Until(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX)), &[]) {
            self.until = Some(until);
        }
    }

    fn send(&mut self, message: Message, with: &[BorrowedFd<'_>]) -> bool {
        let Some((socket, _)) = &self.running else { return false };
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !with.is_empty() {
            beside.push(SendAncillaryMessage::ScmRights(with));
        }
        let sent = sendmsg(socket, &[io::IoSlice::new(&message.pack())], &mut beside, SendFlags::NOSIGNAL);
        match sent {
            Ok(_) => {
                self.stuck = None;
                true
            }
            Err(rustix::io::Errno::AGAIN) => {
                if self.stuck.get_or_insert_with(Instant::now).elapsed() > AGAIN {
                    self.kill();
                }
                false
            }
            Err(_) => {
                self.kill();
                false
            }
        }
    }

    /// Kills the watchdog if it still runs, and reaps it.
    fn kill(&mut self) {
        if let Some((_, mut child)) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Watchdog {
    /// The agent stops, and has freed all sockets itself.
    fn drop(&mut self) {
        if self.send(Message::Stop, &[])
            && let Some((socket, mut child)) = self.running.take()
        {
            drop(socket);
            let began = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && began.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        self.kill();
    }
}

/// Runs a watchdog until its agent has died and the last lease has ended, or the agent asks it to stop. After the agent's death the
/// lease ends within a second once `stop` returns true. `local_socket` is the agent's local socket.
///
/// # Errors
/// If the socket receives a message that is not an agent's.
pub fn run(
    agent: OwnedFd,
    local_socket: &Path,
    interfaces: &[u32],
    stop: impl Fn() -> bool,
) -> io::Result<()> {
    socket::raise_file_limit();
    let mut held: BTreeMap<u64, OwnedFd> = BTreeMap::new();
    let mut until: Option<Duration> = None;
    let mut agent = Some(agent);
    loop {
        if agent.is_none() && stop() {
            until = until.map(|until| until.min(now() + GRACE));
        }
        let left = until.map(|until| until.saturating_sub(now()));
        let is_over = left.is_none_or(|left| left.is_zero());
        let Some(open) = &agent else {
            if is_over {
                free(&held);
                return free_datagrams(local_socket, interfaces);
            }
            std::thread::sleep(left.unwrap_or(LOOK).min(LOOK));
            continue;
        };
        // A renewal that is queued counts, also if the lease has ended meanwhile. Rounded up, so that it has after the timeout.
        let left = left.map(|left| if left.is_zero() { left } else { left + Duration::from_millis(1) });
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left.min(Duration::from_secs(60))).unwrap_or(PollTimeout::MAX)
        });
        let mut wait = [PollFd::new(open.as_fd(), PollFlags::POLLIN)];
        match poll(&mut wait, timeout) {
            Ok(0) if is_over => {
                free(&held);
                until = None;
                continue;
            }
            Ok(0) | Err(nix::Error::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match receive(open)? {
            Some((Message::Hold(number), Some(socket))) => drop(held.insert(number, socket)),
            // No free file descriptor: this socket keeps its rate if the agent dies.
            Some((Message::Hold(_), None)) => {}
            Some((Message::Release(number), _)) => {
                if let Some(socket) = held.remove(&number) {
                    socket::close(socket);
                }
            }
            Some((Message::Until(time), _)) => until = Some(Duration::from_nanos(time)),
            Some((Message::Stop, _)) => return Ok(()),
            None => agent = None,
        }
    }
}

/// Removes the rates of sockets. Setting that of a closed connection fails, which does no harm.
fn free(held: &BTreeMap<u64, OwnedFd>) {
    held.values().for_each(|held| drop(socket::pace(held, None)));
}

/// Ends the rates of UDP flows, unless another agent runs, to which the interfaces belong now.
fn free_datagrams(local_socket: &Path, interfaces: &[u32]) -> io::Result<()> {
    let is_succeeded = SocketAddrUnix::new(local_socket).is_ok_and(|address| {
        let socket = net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None);
        socket.is_ok_and(|socket| net::connect(&socket, &address).is_ok())
    });
    for interface in
        interfaces.iter().filter(|_| !is_succeeded).filter_map(|&index| Interface::with_index(index))
    {
        interface.drop_flow_filters().map_err(io::Error::other)?;
    }
    Ok(())
}

/// The next message, and the socket that came with it; none after the agent's death.
fn receive(agent: &OwnedFd) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    let mut bytes = [0; 16];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(&mut bytes)];
    let length = match recvmsg(agent, &mut parts, &mut beside, RecvFlags::CMSG_CLOEXEC) {
        Ok(message) => message.bytes,
        // The agent was killed with unread messages in its queue.
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if length == 0 {
        return Ok(None);
    }
    let rights = |part| match part {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    };
    let socket = beside.drain().filter_map(rights).flatten().next();
    let message = Message::unpack(&bytes[..length]);
    let wrong =
        || io::Error::new(ErrorKind::InvalidData, "expected messages of an agent on the standard input");
    message.map(|message| Some((message, socket))).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_socket_and_others_are_refused() {
        for message in [Message::Hold(7), Message::Release(u64::MAX), Message::Until(1 << 40), Message::Stop]
        {
            assert_eq!(Message::unpack(&message.pack()), Some(message));
        }
        for bytes in [&b""[..], b"h", b"x12345678", b"h1234567", b"h123456789"] {
            assert_eq!(Message::unpack(bytes), None, "{bytes:?}");
        }
    }
}
