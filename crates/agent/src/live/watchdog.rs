//! Runs a second process that removes the rates of handed-over sockets when an agent dies or hangs.
//!
//! A socket keeps its pacing rate until some process changes it, also when the process that set the rate has died. So the agent
//! starts a watchdog, passes a duplicate of each TCP socket to it, and sends the time until which its orders hold. When that time
//! passes without a renewal, the watchdog removes the rates. If the agent has died, the watchdog then also removes the filters of
//! UDP flows at interfaces, unless another agent runs, and exits.
//!
//! A watchdog may remove a rate that the next agent has already set. That agent notices within its interval and sets the rate
//! again.

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
use crate::traffic::monotonic_now;

/// How long the agent waits before it starts another watchdog.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);

/// How long the agent waits for its watchdog to exit.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a watchdog continues at most after a signal, once its agent has died.
const SIGNAL_GRACE: Duration = Duration::from_secs(1);

/// How often a watchdog checks for a signal after its agent has died.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A message to the watchdog: a letter and two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    /// Keep the socket that this message passes, under this number, with this rate of its program.
    Hold(u64, u64),
    /// Close the socket with this number.
    Release(u64),
    /// Orders hold until this time of the monotonic clock, in nanoseconds.
    LeaseEnd(u64),
    /// The agent has removed all rates itself: exit.
    Stop,
}

impl Message {
    fn encode(self) -> [u8; 17] {
        let (letter, number, rate) = match self {
            Message::Hold(number, own_rate) => (b'h', number, own_rate),
            Message::Release(number) => (b'r', number, 0),
            Message::LeaseEnd(time) => (b'u', time, 0),
            Message::Stop => (b's', 0, 0),
        };
        let mut bytes = [letter; 17];
        bytes[1..9].copy_from_slice(&number.to_ne_bytes());
        bytes[9..].copy_from_slice(&rate.to_ne_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Message> {
        let (&letter, numbers) = bytes.split_first()?;
        let (number, rate) = numbers.split_first_chunk()?;
        let (number, rate) = (u64::from_ne_bytes(*number), u64::from_ne_bytes(rate.try_into().ok()?));
        Some(match letter {
            b'h' => Message::Hold(number, rate),
            b'r' => Message::Release(number),
            b'u' => Message::LeaseEnd(number),
            b's' => Message::Stop,
            _ => return None,
        })
    }
}

/// How to start a watchdog.
#[derive(Debug, Clone)]
pub struct WatchdogCommand {
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
    command: WatchdogCommand,
    /// The interfaces where UDP flows have filters.
    interfaces: Vec<u32>,
    process: Option<(OwnedFd, Child)>,
    /// The end of the lease that the watchdog received last.
    lease_end: Option<Duration>,
    last_attempt: Option<Instant>,
    /// Since when the watchdog's socket is full.
    stalled_since: Option<Instant>,
}

impl Watchdog {
    /// A watchdog that does not run yet; `interfaces` are those where UDP flows may have filters.
    pub fn new(command: WatchdogCommand, interfaces: &[Interface]) -> Watchdog {
        let interfaces = interfaces.iter().filter_map(Interface::index).collect();
        Watchdog {
            command,
            interfaces,
            process: None,
            lease_end: None,
            last_attempt: None,
            stalled_since: None,
        }
    }

    /// Starts a watchdog if none runs. Returns whether it started one: a new watchdog holds no sockets.
    ///
    /// # Errors
    /// If the program cannot be started. Later calls try again, at most once a second.
    pub fn ensure_running(&mut self) -> io::Result<bool> {
        if self.process.is_some() || self.last_attempt.is_some_and(|tried| tried.elapsed() < RESTART_INTERVAL)
        {
            return Ok(false);
        }
        self.last_attempt = Some(Instant::now());
        let flags = SocketFlags::CLOEXEC;
        let (agent_socket, watchdog_socket) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::io::ioctl_fionbio(&agent_socket, true)?;
        let mut command = Command::new(&self.command.program);
        command.args(&self.command.args).arg(&self.command.local_socket);
        command.args(self.interfaces.iter().map(u32::to_string));
        // Signals of a terminal are for the agent alone.
        command.process_group(0);
        let child = command.stdin(Stdio::from(watchdog_socket)).stdout(Stdio::null()).spawn()?;
        (self.process, self.lease_end, self.stalled_since) = (Some((agent_socket, child)), None, None);
        Ok(true)
    }

    /// Whether a watchdog runs, as far as the agent knows.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Hands over a duplicate of a socket, and its program's rate. Returns false if the watchdog's socket is full; the caller tries again.
    pub fn hold_socket(&mut self, socket_id: u64, socket: BorrowedFd<'_>, own_rate: u64) -> bool {
        self.send(Message::Hold(socket_id, own_rate), &[socket])
    }

    /// Closes a duplicate. Returns as [`Watchdog::hold_socket`].
    pub fn release_socket(&mut self, socket_id: u64) -> bool {
        self.send(Message::Release(socket_id), &[])
    }

    /// Renews the time until which orders hold. Skips renewals by less than an eighth of the lease, so the watchdog waits for another
    /// eighth: until then, the kernel may pause sockets.
    pub fn renew_lease(&mut self, lease_end: Duration, lease: Duration) {
        let margin = lease / 8;
        let is_near = self.lease_end.is_some_and(|last| last <= lease_end && lease_end - last < margin);
        let message = Message::LeaseEnd(u64::try_from((lease_end + margin).as_nanos()).unwrap_or(u64::MAX));
        if !is_near && self.send(message, &[]) {
            self.lease_end = Some(lease_end);
        }
    }

    fn send(&mut self, message: Message, sockets: &[BorrowedFd<'_>]) -> bool {
        let Some((socket, _)) = &self.process else { return false };
        let mut ancillary_buffer = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut ancillary_buffer);
        if !sockets.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(sockets));
        }
        let result =
            sendmsg(socket, &[io::IoSlice::new(&message.encode())], &mut ancillary, SendFlags::NOSIGNAL);
        match result {
            Ok(_) => {
                self.stalled_since = None;
                true
            }
            Err(rustix::io::Errno::AGAIN) => {
                if self.stalled_since.get_or_insert_with(Instant::now).elapsed() > RESTART_INTERVAL {
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
        if let Some((_, mut child)) = self.process.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Watchdog {
    /// The agent stops, and has removed all rates itself.
    fn drop(&mut self) {
        if self.send(Message::Stop, &[])
            && let Some((socket, mut child)) = self.process.take()
        {
            drop(socket);
            let began = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && began.elapsed() < EXIT_TIMEOUT {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        self.kill();
    }
}

/// Runs a watchdog until its agent has died and the last lease has ended, or the agent asks it to stop. After the agent's death the
/// lease ends within a second once `should_stop` returns true. `local_socket` is the agent's local socket.
///
/// # Errors
/// If the socket receives a message that is not an agent's.
pub fn run(
    agent: OwnedFd,
    local_socket: &Path,
    interfaces: &[u32],
    should_stop: impl Fn() -> bool,
) -> io::Result<()> {
    socket::raise_file_limit();
    let mut sockets: BTreeMap<u64, (OwnedFd, u64)> = BTreeMap::new();
    let mut lease_end: Option<Duration> = None;
    let mut agent = Some(agent);
    loop {
        if agent.is_none() && should_stop() {
            lease_end = lease_end.map(|until| until.min(monotonic_now() + SIGNAL_GRACE));
        }
        let remaining = lease_end.map(|until| until.saturating_sub(monotonic_now()));
        let has_lease_ended = remaining.is_none_or(|left| left.is_zero());
        let Some(open) = &agent else {
            if has_lease_ended {
                remove_rates(&sockets);
                return remove_udp_limits(local_socket, interfaces);
            }
            std::thread::sleep(remaining.unwrap_or(SIGNAL_CHECK_INTERVAL).min(SIGNAL_CHECK_INTERVAL));
            continue;
        };
        // A queued renewal is read even if the lease has ended meanwhile. The timeout is rounded up, so that the lease has ended after it.
        let remaining =
            remaining.map(|left| if left.is_zero() { left } else { left + Duration::from_millis(1) });
        let timeout = remaining.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left.min(Duration::from_secs(60))).unwrap_or(PollTimeout::MAX)
        });
        let mut poll_fds = [PollFd::new(open.as_fd(), PollFlags::POLLIN)];
        match poll(&mut poll_fds, timeout) {
            Ok(0) if has_lease_ended => {
                remove_rates(&sockets);
                lease_end = None;
                continue;
            }
            Ok(0) | Err(nix::Error::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match receive(open)? {
            Some((Message::Hold(number, own_rate), Some(socket))) => {
                sockets.insert(number, (socket, own_rate));
            }
            // No free file descriptor: this socket keeps its rate if the agent dies.
            Some((Message::Hold(..), None)) => {}
            Some((Message::Release(number), _)) => {
                if let Some((socket, _)) = sockets.remove(&number) {
                    socket::close(socket);
                }
            }
            Some((Message::LeaseEnd(time), _)) => lease_end = Some(Duration::from_nanos(time)),
            Some((Message::Stop, _)) => return Ok(()),
            None => agent = None,
        }
    }
}

/// Sets the rates of sockets that their programs had set, and sends the data of paused ones, whose pause has ended with the lease. For a
/// closed connection the calls fail, which has no effect.
fn remove_rates(sockets: &BTreeMap<u64, (OwnedFd, u64)>) {
    for (held, own_rate) in sockets.values() {
        let _ = socket::set_pacing_rate(held, None, *own_rate);
        socket::push(held);
    }
}

/// Removes the filters of UDP flows, unless another agent runs: the interfaces then belong to that agent.
fn remove_udp_limits(local_socket: &Path, interfaces: &[u32]) -> io::Result<()> {
    let has_successor = SocketAddrUnix::new(local_socket).is_ok_and(|address| {
        let socket = net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None);
        socket.is_ok_and(|socket| net::connect(&socket, &address).is_ok())
    });
    for interface in
        interfaces.iter().filter(|_| !has_successor).filter_map(|&index| Interface::from_index(index))
    {
        interface.delete_flow_filters().map_err(io::Error::other)?;
    }
    Ok(())
}

/// The next message, and the socket passed with it; none after the agent's death.
fn receive(agent: &OwnedFd) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    let mut bytes = [0; 32];
    let mut ancillary_buffer = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut ancillary_buffer);
    let mut buffers = [io::IoSliceMut::new(&mut bytes)];
    let length = match recvmsg(agent, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        Ok(message) => message.bytes,
        // The agent was killed with unread messages in its queue.
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if length == 0 {
        return Ok(None);
    }
    let rights = |item| match item {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    };
    let socket = ancillary.drain().filter_map(rights).flatten().next();
    let message = Message::decode(&bytes[..length]);
    let invalid_message = || {
        io::Error::new(
            ErrorKind::InvalidData,
            "invalid message on the standard input; expected messages of an agent",
        )
    };
    message.map(|message| Some((message, socket))).ok_or_else(invalid_message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_socket_and_others_are_refused() {
        for message in
            [Message::Hold(7, 1 << 33), Message::Release(u64::MAX), Message::LeaseEnd(1 << 40), Message::Stop]
        {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
        for bytes in [&b""[..], b"h", b"x12345678", b"h1234567", b"h123456789"] {
            assert_eq!(Message::decode(bytes), None, "{bytes:?}");
        }
    }
}
