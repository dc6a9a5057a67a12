//! The connections with other relays: establishes them, notices failures and measures paths.
//!
//! Two relays have a bulk and an express connection. The relay with the lower number dials both, and begins each with a
//! [first line](crate::hello). The other one answers with the same line, from its side. A link is up when both connections are
//! established, and fails with either. Each relay may dial [additional connections](super::parallel) for its data.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_tls::{HandshakeFailure, LogLimit, is_plain_text, is_tls_record, relay_name};

use super::congestion;
use super::lane::Lane;
use super::link::{Link, LinkStatus, MIN_WAIT, RoundTrip, Unidentified};
use super::pacer::Pacer;
use super::parallel::{Parallel, UNSENT_BYTES};
use super::reverse_queue::ReverseQueue;
use super::server::Server;
use super::socket::{connection_info, set_congestion_control, set_unsent_limit, start_connect};
use super::token::{Kind, Token};
use super::transport::Transport;
use crate::hello::{Hello, MAX_LINE_BYTES, Role, VERSION};
use crate::message::RelayId;
use crate::overlay::Overlay;
use crate::relay::PathCounters;

/// How long it may take to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time between two heartbeats on links with data.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// The same on links without data, and the time between measurements of their paths: each of n relays has n - 1 links, most of them without
/// data.
const IDLE_HEARTBEAT: Duration = Duration::from_secs(1);

/// A relay that has sent nothing for this long has failed.
const SILENCE: Duration = Duration::from_secs(4);

/// The maximum wait after a failed attempt: it doubles with each one.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The maximum of the bytes in the kernel that it has not sent, on the express connection: control messages wait behind these bytes.
const EXPRESS_UNSENT_BYTES: u32 = 16 << 10;

/// The maximum number of accepted connections that have not sent their first line.
const MAX_UNIDENTIFIED: usize = 256;

/// The same from one address, so that one host cannot keep others out.
const MAX_UNIDENTIFIED_OF_HOST: usize = 16;

impl Server {
    /// Adapts the links to the relays of the overlay.
    pub(super) fn set_links(&mut self, overlay: &Overlay) {
        let own = self.settings.id;
        let stale: Vec<RelayId> = self
            .links
            .iter()
            .filter(|(id, link)| {
                let relay = overlay.relays.get(id);
                !relay.is_some_and(|relay| relay.address == link.address && relay.name == link.name)
            })
            .map(|(&id, _)| id)
            .collect();
        for id in stale {
            self.fail_link(id);
            self.links.remove(&id);
        }
        for (&id, relay) in overlay.relays.iter().filter(|(id, _)| **id != own) {
            let new = || Link::new(Arc::clone(&relay.name), relay.address);
            self.links.entry(id).or_insert_with(new);
        }
        self.step_links();
    }

    /// Dials, sends heartbeats, and closes silent connections.
    pub(super) fn step_links(&mut self) {
        let now = self.now;
        self.unidentified.retain(|_, new| now < new.deadline);
        let ids: Vec<RelayId> = self.links.keys().copied().collect();
        for id in ids {
            self.step_link(id);
        }
    }

    fn step_link(&mut self, id: RelayId) {
        let now = self.now;
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.is_up {
            if now > link.last_heard + SILENCE {
                tracing::warn!(relay = %link.name, "relay is silent; closing its connections");
                return self.fail_link(id);
            }
            let is_backlogged = link.parallel.is_backlogged;
            let is_active = link.update_activity(self.relay.payload_bytes(id), is_backlogged, now);
            let is_silent = link.is_silent(now);
            // The heartbeats of a link without data are too rare to find a silent relay. One that was found stays until it is heard.
            if is_active || !is_silent {
                match self.relay.set_silent(id, is_silent) {
                    true if is_silent => {
                        tracing::info!(relay = %link.name, "relay is silent; detours avoid it");
                    }
                    true => tracing::info!(relay = %link.name, "relay is heard again"),
                    false => {}
                }
            }
            let is_heartbeat = now >= link.next_heartbeat;
            if is_heartbeat {
                link.next_heartbeat = now + if is_active { HEARTBEAT } else { IDLE_HEARTBEAT };
                self.relay.ping(id, now.as_micros() as u64);
            }
            if is_active || is_heartbeat {
                self.adapt_to_path(id);
            }
        } else if self.settings.id < id && now >= link.next_dial {
            link.next_dial = now + CONNECT_TIMEOUT;
            self.dial(id);
        }
    }

    /// Adapts congestion control, pacing, the length of messages and the number of connections to the measurements of the path.
    fn adapt_to_path(&mut self, id: RelayId) {
        self.adapt_congestion_control(id);
        let Some(info) = self.links.get(&id).and_then(|link| self.data_info(link)) else { return };
        let Some(link) = self.links.get_mut(&id) else { return };
        let queues = link.round_trip.smoothed.saturating_sub(link.round_trip.min);
        let reverse_queue = link.reverse_queue.delay().min(queues);
        let pacing_rate = link.pacer.step(self.now, &info, reverse_queue, link.parallel.is_backlogged);
        let rate = link.pacer.smoothed_rate();
        self.adapt_connections(id, &info);
        self.set_limits(id, pacing_rate, rate);
    }

    /// Selects the congestion control of long paths, once a path turns out to be long.
    fn adapt_congestion_control(&mut self, id: RelayId) {
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.is_long) else { return };
        let Some((bulk, express)) = link.lanes() else { return };
        let info = self.lanes.get(&bulk).and_then(|lane| connection_info(&lane.transport.stream));
        if !info.is_some_and(|info| congestion::is_long(&info)) {
            return;
        }
        link.is_long = true;
        if self.settings.congestion_control.is_none() {
            let tokens = [bulk, express].into_iter().chain(link.parallel.additional());
            for lane in tokens.filter_map(|token| self.lanes.get(&token)) {
                set_congestion_control(&lane.transport.stream, congestion::LONG_PATH);
            }
        }
        let bears_loss =
            self.lanes.get(&bulk).is_some_and(|lane| congestion::bears_loss(&lane.transport.stream));
        link.parallel.is_useful = !bears_loss;
    }

    fn dial(&mut self, id: RelayId) {
        self.close_lanes(id);
        self.unidentified.retain(|_, new| new.dialed.is_none_or(|hello| hello.to != id));
        // Only has to differ from those before a restart.
        let session = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let Some(link) = self.links.get_mut(&id) else { return };
        link.session = session;
        let address = link.address;
        for role in [Role::Bulk, Role::Express] {
            let hello = Hello { from: self.settings.id, to: id, role, session, version: VERSION };
            if let Err(error) = self.dial_lane(address, hello) {
                self.note_failure(hello, &error);
            }
        }
    }

    /// The number of connections with a relay that are being established.
    pub(super) fn dialed_connections(&self, id: RelayId) -> usize {
        self.unidentified.values().filter(|new| new.dialed.is_some_and(|hello| hello.to == id)).count()
    }

    pub(super) fn dial_lane(&mut self, address: SocketAddr, hello: Hello) -> io::Result<()> {
        let tls = self.settings.tls.as_ref().map(|tls| tls.relays.connect()).transpose()?;
        let stream = start_connect(address, self.settings.initial_congestion_control())?;
        self.add_unidentified(Transport::new(stream, tls), Some(hello))
    }

    /// Notes why a dialed connection failed, logs a reason that is new, and dials again after a wait.
    fn note_failure(&mut self, dialed: Hello, error: &io::Error) {
        if dialed.role == Role::Additional {
            return self.note_dial_failure(dialed.to, error);
        }
        let Some(link) = self.links.get_mut(&dialed.to).filter(|link| !link.is_up) else { return };
        if self.now + link.wait < link.next_dial {
            link.next_dial = self.now + link.wait;
            link.wait = (link.wait * 2).min(MAX_WAIT);
        }
        let reason = error.to_string();
        if link.logged_failures.permits("", &reason, self.now) {
            tracing::warn!(relay = %link.name, address = %link.address, %reason, "cannot connect to relay");
        }
        link.failure = Some(reason);
    }

    /// Counts a failed handshake. A dialed connection also fails if no relay listens or the path is down.
    fn note_handshake_failure(&mut self, error: &io::Error, is_accepted: bool) {
        let failure = HandshakeFailure::of(error);
        let is_path_failure = matches!(failure, HandshakeFailure::Incomplete | HandshakeFailure::Other);
        if self.settings.tls.is_some() && (is_accepted || !is_path_failure) {
            self.handshake_failures.add(failure);
        }
    }

    /// Logs why an accepted connection is refused. Connections without a message, such as those of port scans, are not logged.
    fn note_refusal(&mut self, address: SocketAddr, error: &io::Error) {
        let is_empty = matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset);
        let reason = error.to_string();
        if !is_empty && self.logged_refusals.permits(&address.ip().to_string(), &reason, self.now) {
            tracing::warn!(%address, %reason, "connection of a relay is refused");
        }
    }

    fn add_unidentified(&mut self, transport: Transport, dialed: Option<Hello>) -> io::Result<()> {
        Server::configure(&transport.stream, dialed.map(|hello| hello.role));
        let mut lane = Lane::new(transport);
        if let Some(hello) = &dialed {
            lane.push(hello.encode().as_bytes());
        }
        let token = self.register(&lane.transport.stream, Kind::Unidentified)?;
        let (is_connected, deadline) = (dialed.is_none(), self.now + CONNECT_TIMEOUT);
        self.unidentified.insert(token, Unidentified { lane, dialed, is_connected, deadline });
        Ok(())
    }

    fn configure(stream: &TcpStream, role: Option<Role>) {
        // Messages must not wait for the acknowledgement of earlier ones.
        let _ = stream.set_nodelay(true);
        match role {
            Some(Role::Bulk | Role::Additional) => set_unsent_limit(stream, UNSENT_BYTES),
            Some(Role::Express) => set_unsent_limit(stream, EXPRESS_UNSENT_BYTES),
            None => {}
        }
    }

    pub(super) fn accept_relays(&mut self) {
        while let Some(stream) = self.accept_relay() {
            let Ok(address) = stream.peer_addr() else { continue };
            let accepted =
                self.unidentified.values().filter_map(|new| new.lane.transport.stream.peer_addr().ok());
            let of_host = accepted.filter(|other| other.ip() == address.ip()).count();
            if self.unidentified.len() >= MAX_UNIDENTIFIED || of_host >= MAX_UNIDENTIFIED_OF_HOST {
                continue;
            }
            let tls = self.settings.tls.as_ref().map(|tls| tls.relays.accept()).transpose();
            // A connection that cannot be registered is closed.
            let _ = tls.and_then(|tls| self.add_unidentified(Transport::new(stream, tls), None));
        }
    }

    pub(super) fn handle_unidentified(&mut self, token: Token) {
        let Some(mut new) = self.unidentified.remove(&token) else { return };
        match self.identify(&mut new) {
            Ok(None) => drop(self.unidentified.insert(token, new)),
            Ok(Some((relay, hello))) => {
                let address = new.lane.transport.stream.peer_addr().ok();
                let Err(error) = self.add_lane(relay, hello, new.lane, new.dialed.is_some()) else { return };
                match (hello.role, new.dialed, address) {
                    (Role::Additional, Some(_), _) => self.note_dial_failure(relay, &error),
                    (Role::Additional, None, Some(address)) => self.note_refusal(address, &error),
                    _ => tracing::warn!(relay = relay.0, %error, "cannot use the connection of a relay"),
                }
            }
            Err(error) => {
                let address = new.lane.transport.stream.peer_addr().ok();
                tracing::debug!(?address, %error, "connection with a relay failed");
                self.note_handshake_failure(&error, new.dialed.is_none());
                match (new.dialed, address) {
                    (Some(dialed), _) => self.note_failure(dialed, &error),
                    (None, Some(address)) => self.note_refusal(address, &error),
                    (None, None) => {}
                }
            }
        }
    }

    /// Reads the first line, and answers it. Returns the other relay once it is known.
    fn identify(&mut self, new: &mut Unidentified) -> io::Result<Option<(RelayId, Hello)>> {
        if !new.is_connected {
            if let Some(error) = new.lane.transport.stream.take_error()? {
                return Err(error);
            }
            new.is_connected = true;
        }
        let is_dialed = new.dialed.is_some();
        new.lane.flush().map_err(|error| explain(error, &new.lane, is_dialed))?;
        let line = loop {
            let buffered = new.lane.buffered();
            if is_tls_record(buffered) {
                let problem = if is_dialed { "expects TLS" } else { "uses TLS; expected plain text" };
                let help = "help: give this relay --certificate, --key and --authority";
                return Err(io::Error::other(format!("the other relay {problem}; {help}")));
            }
            if let Some(end) = buffered.iter().position(|&byte| byte == b'\n') {
                let line = buffered[..end].to_vec();
                new.lane.consume(end + 1);
                break line;
            }
            if buffered.len() > MAX_LINE_BYTES {
                return Err(io::Error::other("the first line is too long"));
            }
            let read = new.lane.read_more().map_err(|error| explain(error, &new.lane, is_dialed))?;
            match read {
                None => {
                    new.lane.flush()?;
                    return Ok(None);
                }
                Some(0) => {
                    let error =
                        io::Error::new(ErrorKind::UnexpectedEof, "the other relay closed the connection");
                    return Err(explain(error, &new.lane, is_dialed));
                }
                Some(_) => {}
            }
        };
        let hello = Hello::parse(&line).map_err(io::Error::other)?;
        let is_expected = match new.dialed {
            Some(dialed) => {
                hello == Hello { from: dialed.to, to: dialed.from, version: hello.version, ..dialed }
            }
            None => {
                let is_dialer = hello.from < self.settings.id || hello.role == Role::Additional;
                hello.to == self.settings.id && is_dialer
            }
        };
        let Some(link) = self.links.get(&hello.from).filter(|_| is_expected) else {
            return Err(io::Error::other(format!("relay {} is not expected here", hello.from.0)));
        };
        new.lane.transport.check_peer(&relay_name(&link.name))?;
        tracing::debug!(relay = %link.name, role = ?hello.role, "connected with relay");
        Ok(Some((hello.from, hello)))
    }

    fn add_lane(&mut self, relay: RelayId, hello: Hello, mut lane: Lane, is_dialed: bool) -> io::Result<()> {
        let session = self.links.get(&relay).map(|link| link.session);
        if hello.role == Role::Additional {
            // Before the answer: the other relay sends data after it, and loses the link with the connection.
            self.check_additional(relay, hello.session, is_dialed)?;
        } else if session != Some(hello.session) {
            if is_dialed {
                return Err(io::Error::other("the connection belongs to an earlier attempt"));
            }
            // The other relay has started again, or noticed a failure first.
            self.fail_link(relay);
        }
        if !is_dialed {
            Server::configure(&lane.transport.stream, Some(hello.role));
            lane.push(Hello { from: self.settings.id, to: relay, ..hello }.encode().as_bytes());
        }
        lane.is_writable = true;
        lane.flush()?;
        let token = self.register_again(&lane.transport.stream, Kind::Lane)?;
        if !self.links.contains_key(&relay) {
            return Ok(());
        }
        self.lanes.insert(token, lane);
        self.lane_owners.insert(token, relay);
        if hello.role == Role::Additional {
            self.add_additional(relay, token, is_dialed);
            return Ok(());
        }
        self.add_base_lane(relay, &hello, token)
    }

    /// Adds the bulk or the express connection. With both, the link is up.
    fn add_base_lane(&mut self, relay: RelayId, hello: &Hello, token: Token) -> io::Result<()> {
        let Some(link) = self.links.get_mut(&relay) else { return Ok(()) };
        (link.session, link.version) = (hello.session, hello.version);
        let place = if hello.role == Role::Bulk { &mut link.bulk } else { &mut link.express };
        if place.replace(token).is_some() {
            self.fail_link(relay);
            return Err(io::Error::other("the relay has opened a second connection of a kind"));
        }
        self.bring_up(relay);
        Ok(())
    }

    fn bring_up(&mut self, relay: RelayId) {
        let now = self.now;
        let Some(link) = self.links.get_mut(&relay) else { return };
        let Some((bulk, express)) = link.lanes().filter(|_| !link.is_up) else { return };
        link.is_up = true;
        link.failure = None;
        link.logged_failures = LogLimit::default();
        link.wait = MIN_WAIT;
        link.last_heard = now;
        link.next_heartbeat = now;
        link.round_trip = RoundTrip::default();
        link.reverse_queue = ReverseQueue::default();
        link.pacer = Pacer::default();
        link.is_long = false;
        link.parallel = Parallel::default();
        tracing::info!(relay = %link.name, "relay is connected");
        self.relay.connect_peer(relay);
        self.unread.extend([bulk, express]);
        self.handle_events();
    }

    /// Closes the connections with a relay. Its flows are reset.
    pub(super) fn fail_link(&mut self, relay: RelayId) {
        self.close_lanes(relay);
        let Some(link) = self.links.get_mut(&relay) else { return };
        if std::mem::take(&mut link.is_up) {
            tracing::warn!(relay = %link.name, "relay is disconnected");
            link.failures += 1;
            link.next_dial = self.now + MIN_WAIT;
            self.relay.disconnect_peer(relay);
            self.handle_events();
        }
    }

    fn close_lanes(&mut self, relay: RelayId) {
        let Some(link) = self.links.get_mut(&relay) else { return };
        self.unidentified.retain(|_, new| {
            new.dialed.is_none_or(|hello| hello.to != relay || hello.role != Role::Additional)
        });
        let parallel = std::mem::take(&mut link.parallel);
        let tokens = [link.bulk.take(), link.express.take()].into_iter().flatten().chain(parallel.tokens());
        for token in tokens {
            self.lane_owners.remove(&token);
            if let Some(lane) = self.lanes.remove(&token) {
                self.abandon_message(lane);
            }
        }
    }

    pub(super) fn receive_ping(&mut self, relay: RelayId, sent_us: u64) {
        let now = self.start.elapsed();
        if let Some(link) = self.links.get_mut(&relay) {
            link.reverse_queue.add(sent_us, now);
        }
    }

    pub(super) fn receive_pong(&mut self, relay: RelayId, sent_us: u64) {
        // The event loop's time may be older than the message.
        let now = self.start.elapsed();
        if let Some(link) = self.links.get_mut(&relay) {
            link.round_trip.add(now.saturating_sub(Duration::from_micros(sent_us)), now);
        }
    }

    /// The states of all links. `is_report`: rates count from now on.
    pub(super) fn link_statuses(&mut self, is_report: bool) -> BTreeMap<RelayId, LinkStatus> {
        let counters: BTreeMap<RelayId, PathCounters> =
            self.relay.paths().map(|(id, _, counters)| (id, counters)).collect();
        let infos: BTreeMap<RelayId, (u64, u64)> =
            self.links.iter().map(|(&id, link)| (id, self.sent_segments(link))).collect();
        let status = |(&id, link): (&RelayId, &mut Link)| {
            let (segments, retransmitted_segments) = infos.get(&id).copied().unwrap_or_default();
            let status = LinkStatus {
                name: Arc::clone(&link.name),
                is_up: link.is_up,
                rate: if is_report { link.pacer.take_rate() } else { 0 },
                smoothed_rate: link.pacer.smoothed_rate(),
                failures: link.failures,
                min_round_trip: link.round_trip.min,
                round_trip: link.round_trip.smoothed,
                segments,
                retransmitted_segments,
                counters: counters.get(&id).copied().unwrap_or_default(),
                connections: if link.is_up { link.parallel.len() } else { 0 },
                pacing_rate: link.parallel.pacing_rate,
                failure: link.failure.clone(),
            };
            (id, status)
        };
        self.links.iter_mut().map(status).collect()
    }

    /// The segments that were sent over the connections with a relay, and those of them that were sent again.
    fn sent_segments(&self, link: &Link) -> (u64, u64) {
        let express = link.express.and_then(|token| self.lanes.get(&token));
        let express = express.and_then(|lane| connection_info(&lane.transport.stream));
        [express, self.data_info(link)]
            .iter()
            .flatten()
            .fold((0, 0), |sum, info| (sum.0 + info.segments, sum.1 + info.retransmitted_segments))
    }
}

/// Adds the cause and the remedy to a connection error if one relay uses TLS and the other one plain text.
fn explain(error: io::Error, lane: &Lane, is_dialed: bool) -> io::Error {
    let is_closed =
        matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    let problem = if is_plain_text(&error) {
        "uses plain text; expected TLS"
    } else if is_dialed && is_closed && lane.transport.is_handshaking() {
        "closed the connection during the handshake; expected TLS"
    } else {
        return error;
    };
    io::Error::other(format!(
        "the other relay {problem}; help: give the other relay --certificate, --key and --authority"
    ))
}
