//! The connections with other relays: establishes them, notices failures and measures paths.
//!
//! Two relays have a bulk and an express connection. The relay with the lower number dials both, and begins each with a line
//! `weir-relay MIN MAX FROM TO LANE SESSION`: the versions that it speaks, both relays, and the attempt that both connections belong
//! to. The other one answers with the same line, from its side. A link is up when both connections are established, and fails
//! with either.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use super::congestion;
use super::lane::{Lane, Transport};
use super::pacer::Pacer;
use super::server::{Kind, Server, Token, accept};
use super::socket::{
    ConnectionInfo, connection_info, set_congestion_control, set_pacing_rate, set_unsent_limit, start_connect,
};
use crate::forwarding::RelayId;
use crate::message::MAX_PAYLOAD_BYTES;
use crate::overlay::Overlay;
use crate::relay::{Lane as LaneKind, PathCounters};

/// The version of the protocol between relays.
const VERSION: u32 = 1;

/// The first word of the first line.
const WORD: &str = "weir-relay";

/// The maximum length of the first line.
const MAX_LINE_BYTES: usize = 128;

/// How long it may take to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time between two heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// A relay that has sent nothing for this long has failed.
const SILENCE: Duration = Duration::from_secs(4);

/// The wait after a failed attempt: it doubles up to the maximum.
const MIN_WAIT: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The maximum of the bytes in the kernel that it has not sent, on the bulk connection. Less would need more calls per byte.
const UNSENT_BYTES: u32 = 256 << 10;

/// The same on the express connection: control messages wait behind these bytes.
const EXPRESS_UNSENT_BYTES: u32 = 16 << 10;

/// On slow paths, messages and unsent bytes of the bulk connection take at most this time, since data of a higher priority waits for them.
const MAX_MESSAGE_TIME: Duration = Duration::from_millis(20);

/// The lowest limit of messages and unsent bytes.
const MIN_MESSAGE_BYTES: u32 = 16 << 10;

/// The maximum number of accepted connections that have not sent their first line.
const MAX_UNIDENTIFIED: usize = 256;

/// How long a lowest round-trip time counts: a path may change. As long as the kernel's (`tcp_min_rtt_wlen`), since a path may have a queue
/// for minutes.
const MIN_ROUND_TRIP_AGE: Duration = Duration::from_secs(300);

/// TLS between relays.
pub struct PeerTls {
    /// For connections that this relay accepts. It has to require certificates.
    pub server: Arc<ServerConfig>,
    /// For connections that this relay dials.
    pub client: Arc<ClientConfig>,
    /// The name of the relay in a verified certificate.
    pub relay_name: fn(&CertificateDer<'_>) -> Option<String>,
}

/// Round-trip times of heartbeats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RoundTrip {
    /// The lowest time.
    pub(crate) min: Duration,
    min_time: Duration,
    /// The lowest time of the last heartbeats.
    pub(crate) recent: Duration,
    /// The smoothed time.
    pub(crate) smoothed: Duration,
}

impl RoundTrip {
    fn add(&mut self, sample: Duration, now: Duration) {
        if self.smoothed.is_zero() || sample <= self.min || now > self.min_time + MIN_ROUND_TRIP_AGE {
            (self.min, self.min_time) = (sample, now);
        }
        self.smoothed = if self.smoothed.is_zero() { sample } else { (self.smoothed * 7 + sample) / 8 };
        self.recent = sample;
    }

    /// The state after a lowest and a recent time.
    #[cfg(test)]
    pub(super) fn with_times(min: Duration, recent: Duration) -> RoundTrip {
        RoundTrip { min, recent, ..RoundTrip::default() }
    }
}

/// The state of the path to another relay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStatus {
    /// Whether all connections are established.
    pub is_up: bool,
    /// The bytes per second that the path delivered while data waited, since the last report; 0 if data never waited.
    pub rate: u64,
    /// The lowest round-trip time; 0 if unknown.
    pub min_round_trip: Duration,
    /// The smoothed round-trip time; 0 if unknown.
    pub round_trip: Duration,
    /// Segments sent since the connections began.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Bytes of messages since the relay started.
    pub counters: PathCounters,
    /// The pacing rate of the bulk connection, in bytes per second; none if it is not limited.
    pub pacing_rate: Option<u64>,
}

/// The connections with another relay.
pub(super) struct Link {
    name: Arc<str>,
    address: SocketAddr,
    session: u64,
    bulk: Option<Token>,
    express: Option<Token>,
    is_up: bool,
    pub(super) last_heard: Duration,
    next_dial: Duration,
    wait: Duration,
    next_heartbeat: Duration,
    round_trip: RoundTrip,
    pacer: Pacer,
    pacing_rate: Option<u64>,
    is_long: bool,
    /// The maximum length of a message on the bulk connection.
    message_bytes: u32,
}

impl Link {
    fn new(name: Arc<str>, address: SocketAddr) -> Link {
        Link {
            name,
            address,
            session: 0,
            bulk: None,
            express: None,
            is_up: false,
            last_heard: Duration::ZERO,
            next_dial: Duration::ZERO,
            wait: MIN_WAIT,
            next_heartbeat: Duration::ZERO,
            round_trip: RoundTrip::default(),
            pacer: Pacer::default(),
            pacing_rate: None,
            is_long: false,
            message_bytes: MAX_PAYLOAD_BYTES,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up
    }

    /// The bulk and the express connection.
    pub(super) fn lanes(&self) -> Option<(Token, Token)> {
        Some((self.bulk?, self.express?))
    }
}

/// A connection whose first line has not been read.
pub(super) struct Unidentified {
    lane: Lane,
    /// What this relay dialed; none for an accepted connection.
    dialed: Option<Hello>,
    is_connected: bool,
    deadline: Duration,
}

/// The first line of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hello {
    from: RelayId,
    to: RelayId,
    lane: LaneKind,
    session: u64,
}

impl Hello {
    fn encode(&self) -> String {
        let lane = if self.lane == LaneKind::Bulk { "bulk" } else { "express" };
        format!("{WORD} {VERSION} {VERSION} {} {} {lane} {}\n", self.from.0, self.to.0, self.session)
    }

    /// Parses a line without its end; none if it is malformed, or no version is common.
    fn parse(line: &[u8]) -> Option<Hello> {
        let mut words = std::str::from_utf8(line).ok()?.split(' ');
        let mut next = || words.next();
        if next()? != WORD {
            return None;
        }
        let versions = next()?.parse::<u32>().ok()?..=next()?.parse::<u32>().ok()?;
        let (from, to) = (RelayId(next()?.parse().ok()?), RelayId(next()?.parse().ok()?));
        let lane = match next()? {
            "bulk" => LaneKind::Bulk,
            "express" => LaneKind::Express,
            _ => return None,
        };
        let session = next()?.parse().ok()?;
        (versions.contains(&VERSION) && next().is_none()).then_some(Hello { from, to, lane, session })
    }
}

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
            if now >= link.next_heartbeat {
                link.next_heartbeat = now + HEARTBEAT;
                self.relay.ping(id, now.as_micros() as u64);
            }
            self.adapt_to_path(id);
        } else if self.settings.id < id && now >= link.next_dial {
            link.next_dial = now + CONNECT_TIMEOUT.min(link.wait + MIN_WAIT);
            link.wait = (link.wait * 2).min(MAX_WAIT);
            self.dial(id);
        }
    }

    /// Adapts congestion control, pacing and the length of messages to the measurements of the path.
    fn adapt_to_path(&mut self, id: RelayId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(lane) = link.bulk.and_then(|token| self.lanes.get(&token)) else { return };
        let Some(info) = connection_info(&lane.transport.stream) else { return };
        if self.settings.congestion_control.is_none() && !link.is_long && congestion::is_long(&info) {
            link.is_long = true;
            for lane in
                [link.bulk, link.express].into_iter().flatten().filter_map(|token| self.lanes.get(&token))
            {
                set_congestion_control(&lane.transport.stream, congestion::LONG_PATH);
            }
        }
        let is_backlogged = !lane.is_writable;
        let rate = link.pacer.step(self.now, &info, is_backlogged, &link.round_trip);
        if rate != link.pacing_rate {
            set_pacing_rate(&lane.transport.stream, rate);
            link.pacing_rate = rate;
        }
        let message_bytes = message_bytes(link.pacer.smoothed_rate());
        // Small changes are not worth a call.
        if message_bytes < link.message_bytes / 4 * 3 || message_bytes > link.message_bytes / 4 * 5 {
            link.message_bytes = message_bytes;
            set_unsent_limit(&lane.transport.stream, message_bytes.min(UNSENT_BYTES));
            self.relay.set_max_message(id, message_bytes);
        }
    }

    fn dial(&mut self, id: RelayId) {
        self.close_lanes(id);
        // Only has to differ from those before a restart.
        let session = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let Some(link) = self.links.get_mut(&id) else { return };
        link.session = session;
        let (address, name) = (link.address, Arc::clone(&link.name));
        for lane in [LaneKind::Bulk, LaneKind::Express] {
            let hello = Hello { from: self.settings.id, to: id, lane, session };
            if let Err(error) = self.dial_lane(address, &name, hello) {
                tracing::debug!(relay = %name, %address, %error, "cannot connect to relay");
            }
        }
    }

    fn dial_lane(&mut self, address: SocketAddr, name: &str, hello: Hello) -> io::Result<()> {
        let stream = start_connect(address, self.settings.initial_congestion_control())?;
        let tls = match &self.settings.tls {
            None => None,
            Some(tls) => {
                let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
                let client =
                    ClientConnection::new(Arc::clone(&tls.client), name).map_err(io::Error::other)?;
                Some(Box::new(client.into()))
            }
        };
        self.add_unidentified(Transport { stream, tls }, Some(hello))
    }

    fn add_unidentified(&mut self, transport: Transport, dialed: Option<Hello>) -> io::Result<()> {
        Server::configure(&transport.stream, dialed.map(|hello| hello.lane));
        let mut lane = Lane::new(transport)?;
        if let Some(hello) = &dialed {
            lane.push(hello.encode().as_bytes());
        }
        let token = self.register(&lane.transport.stream, Kind::Unidentified)?;
        let (is_connected, deadline) = (dialed.is_none(), self.now + CONNECT_TIMEOUT);
        self.unidentified.insert(token, Unidentified { lane, dialed, is_connected, deadline });
        Ok(())
    }

    fn configure(stream: &TcpStream, lane: Option<LaneKind>) {
        // Messages must not wait for the acknowledgement of earlier ones.
        let _ = stream.set_nodelay(true);
        match lane {
            Some(LaneKind::Bulk) => set_unsent_limit(stream, UNSENT_BYTES),
            Some(LaneKind::Express) => set_unsent_limit(stream, EXPRESS_UNSENT_BYTES),
            None => {}
        }
    }

    pub(super) fn accept_relays(&mut self) {
        while let Some(stream) = accept(&self.relays) {
            if self.unidentified.len() >= MAX_UNIDENTIFIED {
                continue;
            }
            let tls = match &self.settings.tls {
                None => None,
                Some(tls) => match ServerConnection::new(Arc::clone(&tls.server)) {
                    Ok(server) => Some(Box::new(server.into())),
                    Err(_) => continue,
                },
            };
            // A connection that cannot be registered is closed.
            let _ = self.add_unidentified(Transport { stream, tls }, None);
        }
    }

    pub(super) fn handle_unidentified(&mut self, token: Token) {
        let Some(mut new) = self.unidentified.remove(&token) else { return };
        match self.identify(&mut new) {
            Ok(None) => drop(self.unidentified.insert(token, new)),
            Ok(Some((relay, hello))) => {
                if let Err(error) = self.add_lane(relay, hello, new.lane) {
                    tracing::warn!(relay = relay.0, %error, "cannot use the connection of a relay");
                }
            }
            Err(error) => {
                let address = new.lane.transport.stream.peer_addr().ok();
                tracing::debug!(?address, %error, "connection with a relay failed");
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
        new.lane.flush()?;
        let line = loop {
            let buffered = new.lane.buffered();
            if let Some(end) = buffered.iter().position(|&byte| byte == b'\n') {
                let line = buffered[..end].to_vec();
                new.lane.consume(end + 1);
                break line;
            }
            if buffered.len() > MAX_LINE_BYTES {
                return Err(io::Error::other("the first line is too long"));
            }
            match new.lane.read_more()? {
                None => {
                    new.lane.flush()?;
                    return Ok(None);
                }
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(_) => {}
            }
        };
        let hello = Hello::parse(&line).ok_or_else(|| {
            io::Error::other(format!("the first line is malformed; expected `{WORD}` and version {VERSION}"))
        })?;
        let is_expected = match new.dialed {
            Some(dialed) => hello == Hello { from: dialed.to, to: dialed.from, ..dialed },
            None => hello.to == self.settings.id && hello.from < self.settings.id,
        };
        let link = self.links.get(&hello.from).filter(|_| is_expected);
        let Some(link) = link.filter(|link| self.has_name(&new.lane.transport, &link.name)) else {
            return Err(io::Error::other(format!("relay {} is not expected here", hello.from.0)));
        };
        tracing::debug!(relay = %link.name, lane = ?hello.lane, "connected with relay");
        Ok(Some((hello.from, hello)))
    }

    /// Whether the certificate of the other end has the name of a relay. The name in a server's certificate was verified before.
    fn has_name(&self, transport: &Transport, name: &str) -> bool {
        let (Some(tls), Some(connection)) = (&self.settings.tls, &transport.tls) else { return true };
        let certificate = connection.peer_certificates().and_then(|chain| chain.first());
        certificate.and_then(|certificate| (tls.relay_name)(certificate)).is_some_and(|found| found == name)
    }

    fn add_lane(&mut self, relay: RelayId, hello: Hello, mut lane: Lane) -> io::Result<()> {
        let own = self.settings.id;
        let is_dialer = own < relay;
        let session = self.links.get(&relay).map(|link| link.session);
        if !is_dialer {
            if session != Some(hello.session) {
                // The other relay has started again, or noticed a failure first.
                self.fail_link(relay);
            }
            Server::configure(&lane.transport.stream, Some(hello.lane));
            lane.push(Hello { from: own, to: relay, ..hello }.encode().as_bytes());
        } else if session != Some(hello.session) {
            return Err(io::Error::other("the connection belongs to an earlier attempt"));
        }
        lane.is_writable = true;
        lane.flush()?;
        let token = self.register_again(&lane.transport.stream, Kind::Lane)?;
        let Some(link) = self.links.get_mut(&relay) else { return Ok(()) };
        link.session = hello.session;
        let place = if hello.lane == LaneKind::Bulk { &mut link.bulk } else { &mut link.express };
        let replaced = place.replace(token);
        self.lanes.insert(token, lane);
        self.lane_owners.insert(token, relay);
        if replaced.is_some() {
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
        link.wait = MIN_WAIT;
        link.last_heard = now;
        link.next_heartbeat = now;
        link.round_trip = RoundTrip::default();
        link.pacer = Pacer::default();
        link.pacing_rate = None;
        link.is_long = false;
        link.message_bytes = MAX_PAYLOAD_BYTES;
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
            link.next_dial = self.now + MIN_WAIT;
            self.relay.disconnect_peer(relay);
            self.handle_events();
        }
    }

    fn close_lanes(&mut self, relay: RelayId) {
        let Some(link) = self.links.get_mut(&relay) else { return };
        for token in [link.bulk.take(), link.express.take()].into_iter().flatten() {
            self.lane_owners.remove(&token);
            if let Some(lane) = self.lanes.remove(&token) {
                self.abandon_message(lane);
            }
        }
    }

    pub(super) fn receive_pong(&mut self, relay: RelayId, sent_us: u64) {
        // The event loop's time may be older than the message.
        let now = self.start.elapsed();
        if let Some(link) = self.links.get_mut(&relay) {
            link.round_trip.add(now.saturating_sub(Duration::from_micros(sent_us)), now);
        }
    }

    pub(super) fn link_statuses(&mut self) -> BTreeMap<RelayId, LinkStatus> {
        let counters: BTreeMap<RelayId, PathCounters> =
            self.relay.paths().map(|(id, _, counters)| (id, counters)).collect();
        let lanes = &self.lanes;
        let status = |(&id, link): (&RelayId, &mut Link)| {
            let infos = [link.bulk, link.express].into_iter().flatten().filter_map(|token| {
                lanes.get(&token).and_then(|lane| connection_info(&lane.transport.stream))
            });
            let total = infos.fold(ConnectionInfo::default(), |sum, info| ConnectionInfo {
                segments: sum.segments + info.segments,
                retransmitted_segments: sum.retransmitted_segments + info.retransmitted_segments,
                ..sum
            });
            let status = LinkStatus {
                is_up: link.is_up,
                rate: link.pacer.take_rate(),
                min_round_trip: link.round_trip.min,
                round_trip: link.round_trip.smoothed,
                segments: total.segments,
                retransmitted_segments: total.retransmitted_segments,
                counters: counters.get(&id).copied().unwrap_or_default(),
                pacing_rate: link.pacing_rate,
            };
            (id, status)
        };
        self.links.iter_mut().map(status).collect()
    }
}

/// The maximum length of a message on a path with this rate, in bytes per second; 0 if it is unknown.
fn message_bytes(rate: u64) -> u32 {
    if rate == 0 {
        return MAX_PAYLOAD_BYTES;
    }
    let bytes = rate as f64 * MAX_MESSAGE_TIME.as_secs_f64();
    (bytes as u32).clamp(MIN_MESSAGE_BYTES, MAX_PAYLOAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_short_on_slow_paths() {
        assert_eq!(message_bytes(0), MAX_PAYLOAD_BYTES);
        assert_eq!(message_bytes(125_000_000), MAX_PAYLOAD_BYTES);
        assert_eq!(message_bytes(5_000_000), 100_000);
        assert_eq!(message_bytes(1_000), MIN_MESSAGE_BYTES);
    }

    #[test]
    fn first_lines_are_parsed_and_bounded() {
        let hello =
            Hello { from: RelayId(1), to: RelayId(65535), lane: LaneKind::Express, session: u64::MAX };
        let line = hello.encode();
        assert!(line.len() <= MAX_LINE_BYTES);
        assert_eq!(Hello::parse(line.trim_end().as_bytes()), Some(hello));
        assert!(Hello::parse(b"weir-relay 1 2 1 2 bulk 7").is_some());
        for line in
            ["", "weir-relay 2 3 1 2 bulk 7", "weir-relay 1 1 1 2 slow 7", "weir-relay 1 1 1 2 bulk 7 8"]
        {
            assert_eq!(Hello::parse(line.as_bytes()), None, "{line}");
        }
    }
}
