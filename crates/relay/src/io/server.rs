//! The loop of a relay's thread.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Commands, Sender as CommandSender, channel};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use weir_tls::{FailureCounts, LogLimit, Tls};

use super::congestion;
use super::lane::Lane;
use super::link::{Link, LinkStatus, Unidentified};
use super::pipe::Pipe;
use super::program::{Receiver, Sender};
use super::receive_buffers::ReceiveBuffers;
use super::socket::set_congestion_control;
use super::token::{KINDS, Kind, Token};
use crate::message::{FlowId, RelayId};
use crate::overlay::Overlay;
use crate::reason_counts::ReasonCounts;
use crate::relay::{Event, FlowKey, GroupProgress, Relay, ResetCounts};

/// How long a program may take for its first line, a receiver to accept a connection, and a program to read a reset.
pub(super) const PROGRAM_TIMEOUT: Duration = Duration::from_secs(5);

/// The time between two steps of [`Server::step_time`].
const STEP: Duration = Duration::from_millis(100);

/// The maximum number of flows without a rule between two reports.
const MAX_UNRULED_FLOWS: usize = 1024;

/// The settings of a relay.
#[derive(Clone)]
pub struct ServerSettings {
    /// The number of the relay.
    pub id: RelayId,
    /// The memory for data, in bytes.
    pub memory_bytes: u64,
    /// The congestion control of connections with relays; none selects it by measurements of the path.
    pub congestion_control: Option<String>,
    /// The number of connections for the data to each relay, up to 32; none selects it by measurements of the path.
    pub connections: Option<usize>,
    /// TLS; none for plain text.
    pub tls: Option<Arc<RelayTls>>,
}

/// TLS of a relay.
#[derive(Debug, Clone)]
pub struct RelayTls {
    /// For connections with other relays, at all addresses.
    pub relays: Tls,
    /// For connections with programs, at the addresses that it applies to; none for plain text.
    pub programs: Option<Tls>,
}

impl ServerSettings {
    /// The congestion control of connections with relays at their beginning.
    pub(super) fn initial_congestion_control(&self) -> &str {
        self.congestion_control.as_deref().unwrap_or(congestion::SHORT_PATH)
    }
}

/// A relay cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address is not available.
    #[error("{address}: cannot listen: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        error: io::Error,
    },
    /// The kernel refused a call.
    #[error("relay: the kernel refused a call: {0}")]
    Kernel(#[from] io::Error),
}

/// A change of a running relay.
pub enum Command {
    /// Replaces relays, coflows and rules.
    SetOverlay(Overlay),
    /// Replaces the certificate, for connections that follow.
    SetTls(RelayTls),
    /// Refuses new flows, also of other relays. Open flows continue.
    Drain,
    /// Asks for the state since the last report.
    Report(Box<dyn FnOnce(Status) + Send>),
    /// Asks for the state. The next report is unchanged.
    Inspect(Box<dyn FnOnce(Status) + Send>),
    /// Ends the thread.
    Stop,
}

/// The state of a relay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Status {
    /// The paths to other relays.
    pub links: BTreeMap<RelayId, LinkStatus>,
    /// Bytes by coflow and relay of the receivers, for flows that begin here.
    pub groups: BTreeMap<(u32, RelayId), GroupProgress>,
    /// Flows that began without a rule since the last report.
    pub unruled_flows: BTreeMap<FlowId, RelayId>,
    /// The number of flows that begin here, that end here, and that pass through.
    pub flow_counts: (usize, usize, usize),
    /// Bytes in memory for detours, and credit that was granted.
    pub used_bytes: (u64, u64),
    /// The maximum of both sums together.
    pub memory_bytes: u64,
    /// Flows of local programs that did not begin, by reason.
    pub refused_flows: ReasonCounts,
    /// Failed handshakes with relays and programs, and certificates with the wrong name, by reason.
    pub handshake_failures: FailureCounts,
    /// The counters of resets.
    pub resets: ResetCounts,
    /// Bytes that this relay sent on a detour, by coflow. Contains only coflows with a detour.
    pub detoured_bytes: BTreeMap<Arc<str>, u64>,
    /// Whether the relay refuses new flows.
    pub is_draining: bool,
}

/// Passes commands to a relay's thread.
#[derive(Clone)]
pub struct Handle {
    commands: CommandSender<Command>,
    wake: Arc<OwnedFd>,
}

impl Handle {
    /// Passes a command. Commands to a relay that has ended are dropped.
    pub fn send(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            // If the counter is full, the thread wakes up anyway.
            let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        }
    }
}

/// A relay with its connections.
pub struct Server {
    pub(super) settings: ServerSettings,
    pub(super) relay: Relay,
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
    commands: Commands<Command>,
    pub(super) start: Instant,
    pub(super) now: Duration,
    pub(super) programs: TcpListener,
    pub(super) relays: TcpListener,
    next_serial: u64,
    pub(super) senders: HashMap<Token, Sender>,
    pub(super) sender_of: HashMap<FlowKey, Token>,
    pub(super) receivers: HashMap<Token, Receiver>,
    pub(super) receiver_of: HashMap<FlowKey, Token>,
    pub(super) unidentified: HashMap<Token, Unidentified>,
    pub(super) lanes: HashMap<Token, Lane>,
    pub(super) lane_owners: HashMap<Token, RelayId>,
    pub(super) links: BTreeMap<RelayId, Link>,
    /// Lanes that may have further input.
    pub(super) unread: VecDeque<Token>,
    pub(super) pipe: Pipe,
    pub(super) receive_buffers: ReceiveBuffers,
    unruled_flows: BTreeMap<FlowId, RelayId>,
    pub(super) refused_flows: ReasonCounts,
    pub(super) handshake_failures: FailureCounts,
    pub(super) logged_refusals: LogLimit,
    is_stopped: bool,
    /// Whether connections may wait that could not be accepted.
    pub(super) accept_again: bool,
    next_step: Duration,
}

impl Server {
    /// Listens for programs and for relays.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn bind(
        settings: ServerSettings,
        programs: SocketAddr,
        relays: SocketAddr,
    ) -> Result<(Server, Handle), ServerError> {
        let listen = |address: SocketAddr| {
            let listener = TcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener)
            });
            listener.map_err(|error| ServerError::Listen { address, error })
        };
        let (programs, relays) = (listen(programs)?, listen(relays)?);
        // Accepted connections have it from their beginning.
        set_congestion_control(&relays, settings.initial_congestion_control());
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        let wake = Arc::new(wake);
        let (sender, commands) = channel();
        let server = Server {
            relay: Relay::new(settings.id, settings.memory_bytes),
            receive_buffers: ReceiveBuffers::new(settings.memory_bytes),
            settings,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?,
            wake: Arc::clone(&wake),
            commands,
            start: Instant::now(),
            now: Duration::ZERO,
            programs,
            relays,
            next_serial: 1,
            senders: HashMap::new(),
            sender_of: HashMap::new(),
            receivers: HashMap::new(),
            receiver_of: HashMap::new(),
            unidentified: HashMap::new(),
            lanes: HashMap::new(),
            lane_owners: HashMap::new(),
            links: BTreeMap::new(),
            unread: VecDeque::new(),
            pipe: Pipe::new()?,
            unruled_flows: BTreeMap::new(),
            refused_flows: ReasonCounts::default(),
            handshake_failures: FailureCounts::default(),
            logged_refusals: LogLimit::default(),
            is_stopped: false,
            accept_again: false,
            next_step: Duration::ZERO,
        };
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let token = |kind| epoll::EventData::new_u64(kind as u64);
        for (fd, kind) in [
            (server.wake.as_fd(), Kind::Wake),
            (server.programs.as_fd(), Kind::Programs),
            (server.relays.as_fd(), Kind::Relays),
        ] {
            epoll::add(&server.epoll, fd, token(kind), flags).map_err(io::Error::from)?;
        }
        Ok((server, Handle { commands: sender, wake }))
    }

    /// The addresses for programs and for relays.
    ///
    /// # Errors
    /// If the operating system does not return them.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.programs.local_addr()?, self.relays.local_addr()?))
    }

    /// Serves until [`Command::Stop`].
    ///
    /// # Errors
    /// The kernel refused to wait for events.
    pub fn run(mut self) -> Result<(), ServerError> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
        while !self.is_stopped {
            let wait = self.next_step.saturating_sub(self.now);
            self.run_once(wait, &mut events)?;
        }
        Ok(())
    }

    /// Waits for events, and handles them.
    pub(super) fn run_once(
        &mut self,
        max_wait: Duration,
        events: &mut Vec<epoll::Event>,
    ) -> Result<(), ServerError> {
        let wait = if self.unread.is_empty() { max_wait } else { Duration::ZERO };
        let timeout = Timespec::try_from(wait).ok();
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        self.now = self.start.elapsed();
        self.relay.set_time(self.now);
        for event in events.iter() {
            self.handle(event.data.u64(), event.flags);
        }
        self.read_unread();
        if self.now >= self.next_step {
            self.next_step = self.now + STEP;
            self.step_time();
        }
        self.pump_all();
        Ok(())
    }

    fn handle(&mut self, token: Token, flags: epoll::EventFlags) {
        let is_readable =
            flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
        let is_writable =
            flags.intersects(epoll::EventFlags::OUT | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
        let Some(kind) = KINDS.get((token % 8) as usize) else { return };
        match kind {
            Kind::Wake => self.handle_commands(),
            Kind::Programs => self.accept_programs(),
            Kind::Relays => self.accept_relays(),
            Kind::Sender => {
                if let Some(sender) = self.senders.get_mut(&token) {
                    sender.has_ended |= flags.contains(epoll::EventFlags::RDHUP);
                }
                self.handle_sender(token, is_readable, is_writable);
            }
            Kind::Receiver => self.handle_receiver(token, is_readable, is_writable),
            Kind::Unidentified => self.handle_unidentified(token),
            Kind::Lane => {
                if let Some(lane) = self.lanes.get_mut(&token) {
                    lane.is_writable |= is_writable;
                    if is_readable {
                        self.unread.push_back(token);
                    }
                }
            }
        }
    }

    /// Registers a connection, for each change of its state.
    pub(super) fn register(&mut self, stream: impl AsFd, kind: Kind) -> io::Result<Token> {
        let token = self.next_serial * 8 + kind as u64;
        self.next_serial += 1;
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&self.epoll, stream, epoll::EventData::new_u64(token), flags)?;
        Ok(token)
    }

    /// Gives a registered connection a token of another kind.
    pub(super) fn register_again(&mut self, stream: impl AsFd, kind: Kind) -> io::Result<Token> {
        epoll::delete(&self.epoll, &stream)?;
        self.register(stream, kind)
    }

    fn handle_commands(&mut self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.wake, &mut count);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::SetOverlay(overlay) => {
                    self.set_links(&overlay);
                    self.relay.set_overlay(overlay);
                    self.handle_events();
                    self.open_waiting_flows();
                }
                Command::SetTls(tls) => self.settings.tls = Some(Arc::new(tls)),
                Command::Drain => self.relay.drain(),
                Command::Report(answer) => {
                    answer(self.status(true));
                    self.unruled_flows.clear();
                }
                Command::Inspect(answer) => answer(self.status(false)),
                Command::Stop => self.is_stopped = true,
            }
        }
    }

    fn status(&mut self, is_report: bool) -> Status {
        Status {
            links: self.link_statuses(is_report),
            groups: self
                .relay
                .groups()
                .map(|(coflow, relay, progress)| ((coflow, relay), progress))
                .collect(),
            unruled_flows: self.unruled_flows.clone(),
            flow_counts: self.relay.flow_counts(),
            used_bytes: self.relay.used_bytes(),
            memory_bytes: self.settings.memory_bytes,
            refused_flows: self.refused_flows,
            handshake_failures: self.handshake_failures,
            resets: self.relay.resets(),
            detoured_bytes: self.detoured_bytes(),
            is_draining: self.relay.is_draining(),
        }
    }

    fn detoured_bytes(&self) -> BTreeMap<Arc<str>, u64> {
        let mut all = BTreeMap::new();
        for (number, _, progress) in self.relay.groups().filter(|(_, _, group)| group.detoured_bytes > 0) {
            if let Some(coflow) = self.relay.overlay().coflows.get(&number) {
                *all.entry(Arc::clone(&coflow.name)).or_default() += progress.detoured_bytes;
            }
        }
        all
    }

    fn step_time(&mut self) {
        self.step_programs();
        self.close_expired();
        if std::mem::take(&mut self.accept_again) {
            self.accept_programs();
            self.accept_relays();
        }
        self.adapt_receive_buffers();
        self.step_links();
        self.relay.expire();
        self.handle_events();
    }

    /// The next connection of a relay that waits.
    pub(super) fn accept_relay(&mut self) -> Option<TcpStream> {
        accept(&self.relays, &mut self.accept_again)
    }

    /// Does what the relay decided.
    pub(super) fn handle_events(&mut self) {
        while let Some(event) = self.relay.next_event() {
            match event {
                Event::Acked(key, offset) => {
                    let sender = self.sender_of.get(&key).and_then(|token| self.senders.get_mut(token));
                    if let Some(sender) = sender {
                        sender.acknowledge(offset);
                    }
                }
                Event::CloseSender(key, reason) => {
                    let deadline = self.now + PROGRAM_TIMEOUT;
                    let token = self.sender_of.remove(&key);
                    if let Some(sender) = token.and_then(|token| self.senders.get_mut(&token)) {
                        sender.reset(reason, deadline);
                    }
                }
                Event::ConnectReceiver(key, line) => self.connect_receiver(key, &line),
                Event::Deliverable(key) => self.deliver(key),
                Event::FinishReceiver(key) => {
                    let token = self.receiver_of.get(&key);
                    let receiver = token.and_then(|token| self.receivers.get_mut(token));
                    if let Some(receiver) = receiver {
                        receiver.finish();
                    }
                }
                Event::CloseReceiver(key) => {
                    if let Some(token) = self.receiver_of.remove(&key) {
                        self.receivers.remove(&token);
                    }
                }
                Event::Unruled(flow, relay) => {
                    if self.unruled_flows.len() < MAX_UNRULED_FLOWS {
                        self.unruled_flows.insert(flow, relay);
                    }
                }
            }
        }
    }
}

/// The next connection that waits, if it can be used. Sets `again` if others may wait and no file descriptor is free.
pub(super) fn accept(listener: &TcpListener, again: &mut bool) -> Option<TcpStream> {
    loop {
        match listener.accept() {
            Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => return Some(stream),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
            Err(error) => {
                *again |= error.kind() != ErrorKind::WouldBlock;
                return None;
            }
        }
    }
}
