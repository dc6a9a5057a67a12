//! Sends flows over a relay or directly, and over further connections when one fails.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use socket2::SockRef;
use weir_flow::{Attempt, BackLine, FirstLine, LineReader, Offset, Path, SendError, SendState};

use crate::agent::{Agent, GatedSocket};
use crate::agent_error::AgentError;
use crate::flow_connection::FlowConnection;
use crate::flow_tls::{FlowTls, check_relay, is_certificate_refused};
use crate::gate::Permission;
use crate::wake::Wake;

/// The environment variable with the addresses of the region's relays.
const RELAY_VARIABLE: &str = "WEIR_RELAY";

/// How long a relay or a receiver may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of bytes of lines that are read at a time.
const READ_BYTES: usize = 16 << 10;

/// The maximum wait at the end of a short flow for the coordinator's answer about it.
const MAX_ANSWER_WAIT: Duration = Duration::from_millis(50);

/// The limits of data that the kernel has not sent (`TCP_NOTSENT_LOWAT`), in bytes: a paused sender cannot take this data back. At a
/// rate, the limit is what the flow sends in `UNSENT_TIME`, and at least the minimum.
const MIN_UNSENT_BYTES: u64 = 24 << 10;
const FREE_UNSENT_BYTES: u64 = 256 << 10;
const UNSENT_TIME: Duration = Duration::from_millis(1);

/// Where a flow goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The relay of this region; none to send directly.
    pub relay: Option<SocketAddr>,
    /// The receiver.
    pub receiver: SocketAddr,
}

impl Route {
    /// The direct route to a receiver, at the first address of its name.
    ///
    /// # Errors
    /// If the name has no address.
    pub fn direct(receiver: impl ToSocketAddrs) -> io::Result<Route> {
        let first = receiver.to_socket_addrs()?.next();
        let receiver = first.ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidInput, "receiver: the name has no address; expected HOST:PORT")
        })?;
        Ok(Route { relay: None, receiver })
    }

    /// The route over the relay in the environment variable `WEIR_RELAY`, for example `10.0.0.1:7711` or `relay.example:7711`; direct
    /// without the variable. Of several relays, separated by commas, each call returns the next one.
    ///
    /// # Errors
    /// If the receiver's or the relay's name has no address, or the variable is no list of addresses.
    pub fn from_environment(receiver: impl ToSocketAddrs) -> io::Result<Route> {
        // Programs that send one flow each must not all use the first relay.
        static NEXT_RELAY: LazyLock<AtomicUsize> = LazyLock::new(|| AtomicUsize::new(random_number()));
        let text = std::env::var_os(RELAY_VARIABLE).unwrap_or_default();
        let relay = match &*text.to_string_lossy() {
            "" => None,
            relays => Some(resolve_relay(relays, NEXT_RELAY.fetch_add(1, Ordering::Relaxed))?),
        };
        Ok(Route { relay, ..Route::direct(receiver)? })
    }
}

/// A random number. Only the standard library's hash keys are random.
fn random_number() -> usize {
    RandomState::new().build_hasher().finish() as usize
}

/// The address of the relay at a place in a list that continues at its start. All parts of the list have to be addresses or names.
fn resolve_relay(relays: &str, place: usize) -> io::Result<SocketAddr> {
    let refused = |relay: &str, problem: &str| {
        let message =
            format!("{RELAY_VARIABLE}: `{relay}` {problem}; expected HOST:PORT, for example 10.0.0.1:7711");
        io::Error::new(ErrorKind::InvalidInput, message)
    };
    let is_address = |relay: &&str| {
        let parts = relay.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        parts.is_some_and(|(host, port)| {
            !host.is_empty() && port != 0 && !host.contains(|c: char| c.is_whitespace())
        })
    };
    if let Some(wrong) = relays.split(',').find(|relay| !is_address(relay)) {
        return Err(refused(wrong, "is no address"));
    }
    let relay = relays.split(',').nth(place % relays.split(',').count()).unwrap_or_default();
    let mut addresses =
        relay.to_socket_addrs().map_err(|error| refused(relay, &format!("has no address ({error})")))?;
    addresses.next().ok_or_else(|| refused(relay, "has no address"))
}

/// The result of a flow that was sent.
#[derive(Debug)]
pub struct SentFlow {
    /// The number of data bytes sent.
    pub bytes: u64,
    /// Why the last direct connection was plain TCP without a rate at its end; none if the flow was scheduled, or if relays forwarded it.
    pub unpaced: Option<AgentError>,
}

/// The sender of a flow. If a connection fails, the sender sends what the receiver has not acknowledged over another one.
///
/// Holds at most 8 MiB of unacknowledged data; [`Write::write`] waits while there is no room. All work occurs in calls of `write`,
/// `flush` and `finish`. Without `finish`, the flow has no end, and its receiver gets an error.
///
/// With an agent, the sender writes to its connection only while the agent lets it. While an agent is absent, or does not answer, the
/// sender writes freely.
#[derive(Debug)]
pub struct FlowSender<'a> {
    state: SendState,
    route: Route,
    agent: Option<&'a Agent>,
    tls: Option<FlowTls>,
    sent: SentFlow,
    connection: Option<Connection<'a>>,
    start: Instant,
    wake: Arc<Wake>,
    /// The maximum time of a call, and the end of the current one.
    timeout: Option<Duration>,
    call_end: Option<Instant>,
    /// Why the last connection failed.
    last_error: Option<io::Error>,
    failure: Option<SendError>,
}

/// Cancels a [`FlowSender`] from another thread.
#[derive(Debug, Clone)]
pub struct SendCanceller(Arc<Wake>);

impl SendCanceller {
    /// Makes the current call of the sender and all later ones fail with [`ErrorKind::ConnectionAborted`]. The receiver gets an error.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

#[derive(Debug)]
struct Connection<'a> {
    transport: FlowConnection,
    lines: LineReader,
    /// The gate of a direct connection of a sender with an agent, and its last state.
    gate: Option<GatedSocket<'a>>,
    permission: Option<Permission>,
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        // The agent may hold a duplicate of the socket, so closing the stream would not close the connection.
        self.transport.shutdown();
    }
}

impl<'a> FlowSender<'a> {
    /// A sender of flow `flow` of a coflow. It connects with the first data.
    ///
    /// # Errors
    /// If the name of the coflow is invalid.
    pub fn new(coflow: &str, flow: u32, route: Route) -> io::Result<FlowSender<'a>> {
        let coflow = coflow.parse().map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let first_line =
            FirstLine { coflow, flow, generation: 0, offset: Offset::default(), receiver: route.receiver };
        Ok(FlowSender {
            state: SendState::new(first_line, route.relay.is_some(), Duration::ZERO),
            route,
            agent: None,
            tls: None,
            sent: SentFlow { bytes: 0, unpaced: None },
            connection: None,
            start: Instant::now(),
            wake: Arc::new(Wake::new()?),
            timeout: None,
            call_end: None,
            last_error: None,
            failure: None,
        })
    }

    /// Limits the time of each call of `write`, `flush` and `finish`. A call that takes longer fails with [`ErrorKind::TimedOut`]; the
    /// next call of `write` or `flush` continues. Without this, calls wait as long as the receiver acknowledges, or the agent pauses
    /// the flow.
    pub fn with_timeout(mut self, timeout: Duration) -> FlowSender<'a> {
        self.timeout = Some(timeout);
        self
    }

    /// A handle by which another thread cancels the flow.
    pub fn canceller(&self) -> SendCanceller {
        SendCanceller(Arc::clone(&self.wake))
    }

    /// Hands direct connections over to an agent, which paces them.
    pub fn with_agent(mut self, agent: &'a Agent) -> FlowSender<'a> {
        self.agent = Some(agent);
        self
    }

    /// Uses TLS, except inside a host by default.
    pub fn with_tls(mut self, tls: FlowTls) -> FlowSender<'a> {
        self.tls = Some(tls);
        self
    }

    /// Ends the flow, and waits until the receiver has read all data.
    ///
    /// # Errors
    /// If the receiver cannot be reached or refuses the flow.
    pub fn finish(mut self) -> io::Result<SentFlow> {
        self.begin_call();
        self.state.finish();
        while !self.state.is_complete() {
            self.drive(true)?;
        }
        if let Some(gate) = self.connection.as_mut().and_then(|connection| connection.gate.as_mut()) {
            wait_for_answer(gate, &self.wake, self.call_end);
            // Without this, the end of the connection would be a failure of the flow to the agent.
            gate.mark_done();
            self.sent.unpaced = gate.unscheduled();
        }
        Ok(self.sent)
    }

    fn begin_call(&mut self) {
        self.call_end = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    }

    /// The time until the current call fails; none without a limit.
    fn until_call_end(&self) -> Option<Duration> {
        self.call_end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Checks whether the current call may continue to wait.
    fn check_call(&mut self, may_wait: bool) -> io::Result<()> {
        let first_line = self.state.first_line();
        let subject = format_args!("flow {} of coflow `{}`", first_line.flow, first_line.coflow);
        if self.wake.is_cancelled() {
            let error =
                io::Error::new(ErrorKind::ConnectionAborted, format!("{subject}: the sender was cancelled"));
            self.connection = None;
            return Err(error);
        }
        match self.timeout {
            Some(timeout) if may_wait && self.until_call_end().is_some_and(|left| left.is_zero()) => {
                Err(io::Error::new(
                    ErrorKind::TimedOut,
                    format!("{subject}: the call did not end within {timeout:?}"),
                ))
            }
            _ => Ok(()),
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Connects, sends and receives as far as possible. If `may_wait`, waits until something is possible.
    fn drive(&mut self, may_wait: bool) -> io::Result<()> {
        if let Some(failure) = self.failure {
            return Err(self.failed(failure));
        }
        self.check_call(may_wait)?;
        let next = match self.connection.take() {
            None => self.connect(may_wait),
            Some(connection) => self.exchange(connection, may_wait),
        };
        next.map_err(|failure| {
            self.failure = Some(failure);
            self.failed(failure)
        })
    }

    fn failed(&self, failure: SendError) -> io::Error {
        let kind = match failure {
            SendError::Reset(_) => ErrorKind::ConnectionReset,
            SendError::Unreachable => ErrorKind::TimedOut,
            SendError::TooManyConnections => ErrorKind::ConnectionAborted,
            SendError::ReceiverRefused => ErrorKind::PermissionDenied,
        };
        let first_line = self.state.first_line();
        let mut message = format!("flow {} of coflow `{}`: {failure}", first_line.flow, first_line.coflow);
        // A reset already has a reason.
        if let Some(error) = self.last_error.as_ref().filter(|_| !matches!(failure, SendError::Reset(_))) {
            let subject =
                if failure == SendError::ReceiverRefused { "" } else { "; the last connection failed" };
            message += &format!("{subject}: {error}");
        }
        io::Error::new(kind, message)
    }

    /// The other end of the current or the next connection.
    fn address(&self) -> SocketAddr {
        let relay = self.route.relay.filter(|_| self.state.attempt().path == Path::Relay);
        relay.unwrap_or(self.route.receiver)
    }

    fn connect(&mut self, may_wait: bool) -> Result<(), SendError> {
        let wait = self.state.attempt().at.saturating_sub(self.now());
        if !wait.is_zero() {
            if !may_wait {
                return Ok(());
            }
            self.wake.reset();
            self.wake.wait(self.until_call_end().map_or(wait, |left| left.min(wait)));
            if self.state.attempt().at > self.now() {
                return Ok(());
            }
        }
        match self.open_connection() {
            Ok(connection) => {
                self.connection = Some(connection);
                self.state.on_connected(self.now());
            }
            Err(error) => {
                // Another connection to this receiver would have the same certificate.
                let is_refused = self.state.attempt().path == Path::Direct && is_certificate_refused(&error);
                self.last_error = Some(error);
                if is_refused {
                    return Err(SendError::ReceiverRefused);
                }
                self.state.on_lost(self.now())?;
            }
        }
        Ok(())
    }

    fn open_connection(&mut self) -> io::Result<Connection<'a>> {
        let first_line = self.state.first_line();
        let is_direct = self.state.attempt().path == Path::Direct;
        let stream = TcpStream::connect_timeout(&self.address(), CONNECT_TIMEOUT)?;
        let gate = match self.agent.filter(|_| is_direct) {
            Some(agent) => {
                let wake = Arc::clone(&self.wake);
                Some(agent.open_gate(first_line.coflow.as_str(), first_line.flow, &stream, wake)?)
            }
            None => None,
        };
        let transport = FlowConnection::connect(stream, self.tls.as_ref())?;
        transport.finish_handshake(CONNECT_TIMEOUT)?;
        transport.check_peer(|name| match &self.tls {
            Some(tls) if is_direct => tls.check_program(name),
            _ => check_relay(name),
        })?;
        // The buffer of a new socket has room for a line.
        transport.send_line(&first_line.encode())?;
        Ok(Connection { transport, lines: LineReader::default(), gate, permission: None })
    }

    /// Whether the kernel does not have all bytes.
    fn has_unsent(&self, connection: &Connection<'a>) -> bool {
        !self.state.unsent().is_empty() || connection.transport.has_output()
    }

    /// Sends chunks and processes lines. Keeps the connection unless it has ended.
    fn exchange(&mut self, mut connection: Connection<'a>, may_wait: bool) -> Result<(), SendError> {
        if may_wait {
            self.wake.reset();
            let has_unsent = self.has_unsent(&connection);
            connection.tell_agent(has_unsent);
            let until_lost = self.state.deadline().map(|deadline| deadline.saturating_sub(self.now()));
            let max_wait = until_lost.into_iter().chain(self.until_call_end()).min();
            let has_output = has_unsent && connection.may_write();
            connection.transport.wait_with(has_output, max_wait, Some(&self.wake));
        }
        // A reset may have arrived before the connection failed.
        let sent = connection.send_chunks(&mut self.state);
        connection.tell_agent(self.has_unsent(&connection));
        let now = self.now();
        if !connection.may_write() {
            self.state.on_pause(now);
        }
        let next = match connection.read_lines(&mut self.state, now)? {
            Ok(next) => next,
            Err(error) => {
                self.last_error = Some(error);
                Some(self.state.on_lost(now)?)
            }
        };
        if next.is_some() {
            return Ok(());
        }
        if let Err(error) = sent {
            self.last_error = Some(error);
            self.state.on_lost(now)?;
        } else if self.state.deadline().is_some_and(|deadline| deadline <= now) {
            self.last_error = Some(io::Error::new(ErrorKind::TimedOut, "no acknowledgement arrived"));
            self.state.on_lost(now)?;
        } else {
            self.connection = Some(connection);
        }
        Ok(())
    }
}

/// Waits until the coordinator has answered whether it schedules a flow, which may have ended before. The flow has arrived in any case.
fn wait_for_answer(gate: &GatedSocket<'_>, wake: &Wake, call_end: Option<Instant>) {
    let end = Instant::now() + MAX_ANSWER_WAIT;
    let end = call_end.map_or(end, |call_end| call_end.min(end));
    loop {
        wake.reset();
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || wake.is_cancelled() || !gate.is_unanswered() {
            return;
        }
        wake.wait(left);
    }
}

impl Connection<'_> {
    fn may_write(&self) -> bool {
        self.gate.as_ref().is_none_or(GatedSocket::is_open)
    }

    /// Tells the agent whether the kernel lacks data of the flow: it sees only data that the kernel has.
    fn tell_agent(&self, has_unsent: bool) {
        if let Some(gate) = &self.gate {
            gate.tell(has_unsent);
        }
    }

    /// Limits the data that the kernel has not sent, by what the agent lets the sender do.
    fn limit_unsent(&mut self) -> io::Result<()> {
        let Some(permission) = self.gate.as_ref().map(GatedSocket::permission) else { return Ok(()) };
        if self.permission.as_ref() == Some(&permission) {
            return Ok(());
        }
        let bytes = match permission {
            Permission::Rate(rate) => MIN_UNSENT_BYTES.max((rate as f64 * UNSENT_TIME.as_secs_f64()) as u64),
            Permission::Free(None) => FREE_UNSENT_BYTES,
            // 0 stands for the default of the kernel.
            Permission::Free(Some(_)) => 0,
            Permission::Paused => MIN_UNSENT_BYTES,
        };
        let socket = SockRef::from(self.transport.stream());
        socket.set_tcp_notsent_lowat(u32::try_from(bytes).unwrap_or(u32::MAX))?;
        self.permission = Some(permission);
        Ok(())
    }

    /// Sends chunks until the kernel's buffer is full, or the agent pauses the flow.
    fn send_chunks(&mut self, state: &mut SendState) -> io::Result<()> {
        self.limit_unsent()?;
        while !state.unsent().is_empty() {
            if !self.may_write() {
                return Ok(());
            }
            match self.transport.write(state.unsent()) {
                Ok(length) => state.on_sent(length),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.may_write() { self.transport.flush().map(drop) } else { Ok(()) }
    }

    /// Processes lines that have arrived. Returns the next connection if this one was reset, or why this one failed.
    fn read_lines(
        &mut self,
        state: &mut SendState,
        now: Duration,
    ) -> Result<io::Result<Option<Attempt>>, SendError> {
        let mut buffer = [0; READ_BYTES];
        let length = match self.transport.read(&mut buffer) {
            Ok(0) if state.is_complete() => return Ok(Ok(None)),
            Ok(0) => return Ok(Err(ErrorKind::UnexpectedEof.into())),
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(Ok(None));
            }
            Err(error) => return Ok(Err(error)),
        };
        let mut input = &buffer[..length];
        loop {
            let line = match self.lines.read_line(&mut input) {
                Ok(None) => return Ok(Ok(None)),
                Ok(Some(line)) => BackLine::parse(&line),
                Err(error) => Err(error),
            };
            let line = match line {
                Ok(line) => line,
                Err(error) => return Ok(Err(io::Error::new(ErrorKind::InvalidData, error))),
            };
            let next = state.on_line(line, now)?;
            if next.is_some() {
                return Ok(Ok(next));
            }
        }
    }
}

impl Write for FlowSender<'_> {
    /// Takes data; waits while the window has no room.
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.begin_call();
        loop {
            let taken = self.state.write(data);
            let is_blocked = taken == 0 && !data.is_empty();
            if is_blocked || !self.state.unsent().is_empty() {
                self.drive(is_blocked)?;
            }
            if !is_blocked {
                self.sent.bytes += taken as u64;
                return Ok(taken);
            }
        }
    }

    /// Waits until the kernel has all data. The receiver may not have it yet.
    fn flush(&mut self) -> io::Result<()> {
        self.begin_call();
        self.state.flush();
        let has_output = |sender: &Self| sender.connection.as_ref().is_some_and(|c| sender.has_unsent(c));
        while !self.state.unsent().is_empty() || has_output(self) {
            self.drive(true)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn first_relays_of_programs_differ() {
        let firsts: HashSet<usize> = (0..64).map(|_| random_number() % 2).collect();
        assert_eq!(firsts.len(), 2);
    }

    #[test]
    fn relays_are_addresses_or_names() {
        let parse = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(resolve_relay("[fd00::1]:7710", 5).unwrap(), parse("[fd00::1]:7710"));
        let resolved = [0, 1, 2].map(|place| resolve_relay("10.0.0.1:7710,10.0.0.2:7711", place).unwrap());
        assert_eq!(resolved, ["10.0.0.1:7710", "10.0.0.2:7711", "10.0.0.1:7710"].map(parse));
        let named = resolve_relay("localhost:7711", 0).unwrap();
        assert!(named.ip().is_loopback() && named.port() == 7711, "{named}");
        for text in ["10.0.0.1", "relay", "relay:0", ":7710", " ", "10.0.0.1:1,", "10.0.0.1:1, 10.0.0.2:1"] {
            assert_eq!(resolve_relay(text, 0).unwrap_err().kind(), ErrorKind::InvalidInput, "{text}");
        }
    }
}
