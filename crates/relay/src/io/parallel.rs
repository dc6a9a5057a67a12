//! Several connections for the data to another relay, where BBR is not permitted.
//!
//! A link has one bulk connection. The relay at each end may dial additional ones for the data that it sends, as many as
//! [`ConnectionCount`](super::connection_count::ConnectionCount) chooses. Receivers put messages in order, since detours reorder them, too.
//!
//! A connection that is no longer needed is shut down after its last message, and closed when the other relay has read all of it. If an
//! additional connection fails otherwise, its messages are lost, so the link fails.

use std::io;
use std::time::Duration;

use super::congestion;
use super::connection_count::{ConnectionCount, MAX_CONNECTIONS, PathState};
use super::links::Link;
use super::server::{Server, Token};
use super::socket::{
    ConnectionInfo, connection_info, set_congestion_control, set_pacing_rate, set_send_timeout,
    set_unsent_limit,
};
use crate::forwarding::RelayId;
use crate::hello::{ADDITIONAL_VERSION, Hello, Role, VERSION};
use crate::message::MAX_PAYLOAD_BYTES;

/// The maximum number of connections to one relay that are being established: a relay accepts few at a time.
const MAX_DIALED: usize = 8;

/// The wait after an additional connection could not be established.
const DIAL_WAIT: Duration = Duration::from_secs(1);

/// If the other relay acknowledges nothing for this long, a connection fails. Heartbeats do not use additional connections.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of connections that the other relay may have dialed: those that it uses, and as many that it closes.
const MAX_ACCEPTED: usize = 2 * MAX_CONNECTIONS;

/// The maximum of the bytes in the kernel that it has not sent, on all bulk connections. Less would need more calls per byte.
pub(super) const UNSENT_BYTES: u32 = 256 << 10;

/// On slow paths, messages and unsent bytes of all bulk connections take at most this time, since data of a higher priority waits for
/// them.
const MAX_MESSAGE_TIME: Duration = Duration::from_millis(20);

/// The lowest limit of messages and unsent bytes on all connections, and on one of several. It bounds the number of connections.
const MIN_MESSAGE_BYTES: u32 = 16 << 10;
const MIN_PART_BYTES: u32 = 4 << 10;

/// The connections for data with another relay, next to the bulk connection.
#[derive(Debug)]
pub(super) struct Parallel {
    /// Whether this relay measures if several connections are faster.
    pub(super) is_useful: bool,
    count: ConnectionCount,
    /// This relay sends data over them.
    additional: Vec<Token>,
    /// This relay closes them after their last message. The flag: the connection is shut down for writing.
    closing: Vec<(Token, bool)>,
    /// The other relay sends data over them.
    accepted: Vec<Token>,
    /// The sums of connections that were closed.
    closed: ConnectionInfo,
    next_dial: Duration,
    /// Whether data waited for all connections when this relay last wrote.
    pub(super) is_backlogged: bool,
    /// The pacing rate of all connections in bytes per second, and the maximum length of messages on all connections.
    pub(super) pacing_rate: Option<u64>,
    message_bytes: u32,
    /// The number of connections that these limits are divided by.
    divisor: usize,
}

impl Default for Parallel {
    fn default() -> Parallel {
        Parallel {
            is_useful: false,
            count: ConnectionCount::default(),
            additional: Vec::new(),
            closing: Vec::new(),
            accepted: Vec::new(),
            closed: ConnectionInfo::default(),
            next_dial: Duration::ZERO,
            is_backlogged: false,
            pacing_rate: None,
            message_bytes: MAX_PAYLOAD_BYTES,
            divisor: 1,
        }
    }
}

impl Parallel {
    /// The number of connections over which this relay sends data.
    pub(super) fn len(&self) -> usize {
        1 + self.additional.len()
    }

    /// The connections over which this relay sends data, but the bulk one.
    pub(super) fn additional(&self) -> impl Iterator<Item = Token> {
        self.additional.iter().copied()
    }

    /// The number of connections over which data arrives.
    pub(super) fn receiving(&self) -> usize {
        1 + self.accepted.len()
    }

    /// The number of connections to dial now, if data needs `count` and `dialed` are being established. The other relay may keep those
    /// open that this one has shut down; it accepts no more than [`MAX_ACCEPTED`].
    fn missing(&self, count: usize, dialed: usize) -> usize {
        let free = MAX_ACCEPTED.saturating_sub(self.additional.len() + self.closing.len() + dialed);
        count.saturating_sub(self.len()).min(MAX_DIALED).saturating_sub(dialed).min(free)
    }

    /// An additional connection by its position.
    pub(super) fn get(&self, index: usize) -> Option<Token> {
        self.additional.get(index).copied()
    }

    /// All connections but the bulk one.
    pub(super) fn tokens(&self) -> impl Iterator<Item = Token> {
        let closing = self.closing.iter().map(|(token, _)| token);
        self.additional.iter().chain(closing).chain(&self.accepted).copied()
    }
}

/// The sums over several connections, their lowest round-trip time, and the mean of the others.
fn sum(infos: impl Iterator<Item = ConnectionInfo>) -> ConnectionInfo {
    let (mut sum, mut count) = (ConnectionInfo::default(), 0);
    for info in infos {
        let min = if count == 0 { info.min_round_trip } else { sum.min_round_trip.min(info.min_round_trip) };
        count += 1;
        sum = ConnectionInfo {
            round_trip: sum.round_trip + info.round_trip,
            min_round_trip: min,
            ..add(&sum, &info)
        };
    }
    ConnectionInfo { round_trip: sum.round_trip / count.max(1), ..sum }
}

/// Adds the counters.
fn add(first: &ConnectionInfo, second: &ConnectionInfo) -> ConnectionInfo {
    ConnectionInfo {
        segments: first.segments + second.segments,
        retransmitted_segments: first.retransmitted_segments + second.retransmitted_segments,
        acked_bytes: first.acked_bytes + second.acked_bytes,
        ..*first
    }
}

impl Server {
    /// The state of the connections over which this relay sends or has sent data; none if the bulk one is closed.
    pub(super) fn data_info(&self, link: &Link) -> Option<ConnectionInfo> {
        let bulk = link.bulk()?;
        let parallel = &link.parallel;
        let info = |token: Token| connection_info(&self.lanes.get(&token)?.transport.stream);
        let used = sum([bulk].into_iter().chain(parallel.additional.iter().copied()).filter_map(info));
        let closing = sum(parallel.closing.iter().filter_map(|&(token, _)| info(token)));
        Some(add(&add(&used, &closing), &parallel.closed))
    }

    /// Adapts the number of connections to the measurements of the path.
    pub(super) fn adapt_connections(&mut self, id: RelayId, info: &ConnectionInfo) {
        let (now, fixed) = (self.now, self.settings.connections);
        let Some(link) = self.links.get_mut(&id).filter(|link| link.version() >= ADDITIONAL_VERSION) else {
            return;
        };
        let state = PathState {
            is_backlogged: link.parallel.is_backlogged,
            is_full: link.is_full(),
            established: link.parallel.len(),
            max: max_connections(link.parallel.message_bytes),
        };
        let count = match fixed {
            Some(count) => count.clamp(1, state.max),
            None if link.parallel.is_useful => link.parallel.count.step(now, info, state),
            None => 1,
        };
        if link.parallel.len() > count {
            let unused = link.parallel.additional.split_off(count - 1);
            link.parallel.closing.extend(unused.into_iter().map(|token| (token, false)));
        } else if link.parallel.len() < count {
            self.dial_additional(id, count);
        }
    }

    /// Dials connections until there are `count` for the data to a relay.
    fn dial_additional(&mut self, id: RelayId, count: usize) {
        let Some(link) = self.links.get(&id).filter(|link| self.now >= link.parallel.next_dial) else {
            return;
        };
        let missing = link.parallel.missing(count, self.dialed_connections(id));
        let (address, session) = (link.address(), link.session());
        let hello =
            Hello { from: self.settings.id, to: id, role: Role::Additional, session, version: VERSION };
        for _ in 0..missing {
            if let Err(error) = self.dial_lane(address, hello) {
                return self.note_dial_failure(id, &error);
            }
        }
    }

    /// An additional connection could not be established: the others continue.
    pub(super) fn note_dial_failure(&mut self, id: RelayId, error: &io::Error) {
        let now = self.now;
        let Some(link) = self.links.get_mut(&id) else { return };
        link.parallel.next_dial = now + DIAL_WAIT;
        tracing::debug!(relay = %link.name(), %error, "cannot open an additional connection");
    }

    /// Whether a connection can be added. `is_dialed`: by this relay, which sends data over it.
    ///
    /// # Errors
    /// The link is down or has other connections, or there are too many.
    pub(super) fn check_additional(&self, relay: RelayId, session: u64, is_dialed: bool) -> io::Result<()> {
        let link = self.links.get(&relay).filter(|link| link.is_up() && link.session() == session);
        let Some(link) = link else {
            return Err(io::Error::other("the connection belongs to an earlier attempt"));
        };
        if !is_dialed && link.parallel.accepted.len() >= MAX_ACCEPTED {
            return Err(io::Error::other("the relay has too many connections"));
        }
        Ok(())
    }

    /// Adds an established connection that [`Server::check_additional`] permits.
    pub(super) fn add_additional(&mut self, relay: RelayId, token: Token, is_dialed: bool) {
        let Some(link) = self.links.get_mut(&relay) else { return };
        if !is_dialed {
            link.parallel.accepted.push(token);
            self.unread.push_back(token);
            return;
        }
        link.parallel.additional.push(token);
        if let Some(lane) = self.lanes.get(&token) {
            set_send_timeout(&lane.transport.stream, SEND_TIMEOUT);
            if link.is_long() && self.settings.congestion_control.is_none() {
                set_congestion_control(&lane.transport.stream, congestion::LONG_PATH);
            }
        }
        self.divide_limits(relay);
    }

    /// Applies the limits of a path. `rate`: its smoothed rate in bytes per second, 0 if it is unknown.
    pub(super) fn set_limits(&mut self, id: RelayId, pacing_rate: Option<u64>, rate: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let parallel = &mut link.parallel;
        let (former, message_bytes) = (parallel.message_bytes, message_bytes(rate));
        // Small changes are not worth a call.
        let is_changed = message_bytes < former / 4 * 3 || message_bytes > former / 4 * 5;
        if is_changed {
            parallel.message_bytes = message_bytes;
        }
        let is_paced_alike = std::mem::replace(&mut parallel.pacing_rate, pacing_rate) == pacing_rate;
        if is_changed || !is_paced_alike || parallel.divisor != parallel.len() {
            self.divide_limits(id);
        }
    }

    /// Divides the limits of a path among its connections, so that data of a higher priority waits for no more bytes than with one.
    fn divide_limits(&mut self, id: RelayId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let bulk = link.bulk();
        let parallel = &mut link.parallel;
        parallel.divisor = parallel.len();
        let (divisor, bytes) = (parallel.divisor, parallel.message_bytes);
        let unsent_bytes = part_bytes(bytes.min(UNSENT_BYTES), divisor);
        let pacing_rate = parallel.pacing_rate.map(|rate| rate / divisor as u64);
        let tokens = bulk.into_iter().chain(parallel.additional.iter().copied());
        for lane in tokens.filter_map(|token| self.lanes.get(&token)) {
            set_unsent_limit(&lane.transport.stream, unsent_bytes);
            set_pacing_rate(&lane.transport.stream, pacing_rate);
        }
        self.relay.set_max_message(id, part_bytes(bytes, divisor));
    }

    /// Writes what waits for connections that are no longer used, and shuts them down.
    pub(super) fn close_unused(&mut self, relay: RelayId) -> io::Result<()> {
        let Some(link) = self.links.get_mut(&relay) else { return Ok(()) };
        for (token, is_shut_down) in &mut link.parallel.closing {
            let Some(lane) = self.lanes.get_mut(token) else { continue };
            if lane.is_writable && lane.flush()? && !std::mem::replace(is_shut_down, true) {
                lane.transport.end()?;
            }
        }
        Ok(())
    }

    /// The other relay has closed a connection after a complete message. Returns whether the link continues: one of both relays has
    /// closed a connection that is not needed.
    pub(super) fn end_lane(&mut self, relay: RelayId, token: Token) -> bool {
        let Some(link) = self.links.get_mut(&relay) else { return false };
        let parallel = &mut link.parallel;
        if let Some(index) = parallel.accepted.iter().position(|&accepted| accepted == token) {
            parallel.accepted.swap_remove(index);
        } else if let Some(index) = parallel.closing.iter().position(|&closing| closing == (token, true)) {
            parallel.closing.swap_remove(index);
            let info = self.lanes.get(&token).and_then(|lane| connection_info(&lane.transport.stream));
            parallel.closed = add(&parallel.closed, &info.unwrap_or_default());
        } else {
            return false;
        }
        self.lanes.remove(&token);
        self.lane_owners.remove(&token);
        true
    }
}

/// The maximum length of messages on a path with this rate, in bytes per second; 0 if it is unknown.
fn message_bytes(rate: u64) -> u32 {
    if rate == 0 {
        return MAX_PAYLOAD_BYTES;
    }
    let bytes = rate as f64 * MAX_MESSAGE_TIME.as_secs_f64();
    (bytes as u32).clamp(MIN_MESSAGE_BYTES, MAX_PAYLOAD_BYTES)
}

/// The maximum number of connections on a path with this maximum length of messages.
fn max_connections(message_bytes: u32) -> usize {
    MAX_CONNECTIONS.min((message_bytes / MIN_PART_BYTES) as usize)
}

/// The limit of each of several connections.
fn part_bytes(bytes: u32, connections: usize) -> u32 {
    bytes.min((bytes / connections as u32).max(MIN_PART_BYTES))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::time::Instant;

    use weir_proto::relay::{RelayCoflow, RelayOrder, RelayPeer};
    use weir_tls::Tls;

    use super::*;
    use crate::certificates::Authority;
    use crate::io::{Command, RelayTls, ServerSettings};
    use crate::overlay::Overlay;

    #[test]
    fn messages_are_short_on_slow_paths() {
        assert_eq!(message_bytes(0), MAX_PAYLOAD_BYTES);
        assert_eq!(message_bytes(125_000_000), MAX_PAYLOAD_BYTES);
        assert_eq!(message_bytes(5_000_000), 100_000);
        assert_eq!(message_bytes(1_000), MIN_MESSAGE_BYTES);
    }

    #[test]
    fn limits_of_several_connections_together_are_those_of_one() {
        for rate in [0, 1_000, 1_250_000, 5_000_000, 30_000_000, 125_000_000] {
            let bytes = message_bytes(rate);
            let min_bytes = u64::from(MIN_MESSAGE_BYTES);
            assert!(rate == 0 || u64::from(bytes) <= (rate / 50).max(min_bytes), "{rate}: {bytes}");
            assert_eq!(part_bytes(bytes, 1), bytes);
            for connections in 1..=MAX_CONNECTIONS {
                let used = connections.min(max_connections(bytes));
                assert!(part_bytes(bytes, used) * used as u32 <= bytes, "{rate}, {connections}");
                let unsent = bytes.min(UNSENT_BYTES);
                assert!(part_bytes(unsent, used) * used as u32 <= unsent, "{rate}, {connections}");
            }
        }
        assert_eq!(part_bytes(UNSENT_BYTES, 32), 8 << 10);
        assert_eq!(
            [1_000, 1_250_000, 6_600_000, 0].map(|rate| max_connections(message_bytes(rate))),
            [4, 6, 32, 32]
        );
    }

    #[test]
    fn relay_dials_no_more_connections_than_the_other_accepts() {
        let mut parallel = Parallel::default();
        assert_eq!(parallel.missing(32, 0), MAX_DIALED);
        assert_eq!(parallel.missing(32, 3), MAX_DIALED - 3);
        assert_eq!(parallel.missing(1, 2), 0);
        // The other relay does not close connections that this one has shut down.
        let (mut token, mut most) = (0, 0);
        for _ in 0..10 {
            while parallel.missing(MAX_CONNECTIONS, 0) > 0 {
                token += 1;
                parallel.additional.push(token);
            }
            most = most.max(parallel.additional.len() + parallel.closing.len());
            let unused = std::mem::take(&mut parallel.additional);
            parallel.closing.extend(unused.into_iter().map(|token| (token, true)));
        }
        assert_eq!(most, MAX_ACCEPTED);
    }

    /// Relays 1 and 2 on loopback addresses that know each other and coflow 7. `tls`: of each relay.
    fn servers(tls: [Option<Arc<RelayTls>>; 2]) -> [Server; 2] {
        let bind = |id: u16, tls| {
            let settings = ServerSettings {
                id: RelayId(id),
                memory_bytes: 64 << 20,
                congestion_control: None,
                connections: None,
                tls,
            };
            let address = format!("127.{id}.0.2:0").parse().unwrap();
            Server::bind(settings, address, address).unwrap()
        };
        let [first, second] = tls;
        let relays = [bind(1, first), bind(2, second)];
        let peer = |id: u16, server: &Server| RelayPeer {
            id,
            name: format!("relay-{id}").into(),
            address: server.addresses().unwrap().1,
            networks: vec![format!("127.{id}.0.0/16").parse().unwrap()],
            region: id,
        };
        let mut overlay = Overlay::default();
        overlay.apply(&RelayOrder {
            is_full: true,
            peers: vec![peer(1, &relays[0].0), peer(2, &relays[1].0)],
            coflows: vec![RelayCoflow { number: 7, name: "shuffle".into(), service: "default".into() }],
            ..RelayOrder::default()
        });
        relays.map(|(server, handle)| {
            handle.send(Command::SetOverlay(overlay.clone()));
            server
        })
    }

    /// Receives a flow, acknowledges its bytes, and returns them.
    fn receive(listener: &TcpListener) -> Vec<u8> {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(&stream);
        reader.read_line(&mut String::new()).unwrap();
        (&stream).write_all(b"ack 0\n").unwrap();
        let (mut received, mut bytes) = (Vec::new(), vec![0; 100_000]);
        loop {
            match reader.read(&mut bytes).unwrap() {
                0 => return received,
                read => received.extend_from_slice(&bytes[..read]),
            }
            // The relay may have closed the connection after the last byte.
            let _ = (&stream).write_all(format!("ack {}\n", received.len()).as_bytes());
        }
    }

    #[test]
    fn changes_of_the_number_of_connections_lose_no_data() {
        change_connections([None, None]);
    }

    #[test]
    fn changes_of_the_number_of_connections_lose_no_data_with_tls() {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("own"));
        let tls = |id: u16| {
            let files = authority.write_files(folder.path(), &format!("weir://relay/relay-{id}"));
            Some(Arc::new(RelayTls { relays: Tls::read(&files, b"weir-relay").unwrap(), programs: None }))
        };
        change_connections([tls(1), tls(2)]);
    }

    /// Sends a flow while the number of connections changes, and compares its bytes.
    fn change_connections(tls: [Option<Arc<RelayTls>>; 2]) {
        let mut servers = servers(tls);
        let address = servers[0].addresses().unwrap().0;
        let sent: Vec<u8> =
            (0..20_000_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let listener = TcpListener::bind("127.2.0.2:0").unwrap();
        let line = format!("weir-flow/2 shuffle 0 0 0 {}\n", listener.local_addr().unwrap());
        let mut events = Vec::with_capacity(256);
        let mut turn = |servers: &mut [Server; 2]| {
            servers
                .iter_mut()
                .for_each(|server| server.run_once(Duration::from_millis(1), &mut events).unwrap());
        };
        while !servers.iter().all(|server| server.links.values().any(Link::is_up)) {
            turn(&mut servers);
        }
        let (mut lengths, start) = (BTreeSet::new(), Instant::now());
        let received = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&listener));
            scope.spawn(|| {
                let mut stream = TcpStream::connect(address).unwrap();
                // Slow enough for some changes.
                for part in [line.as_bytes()].into_iter().chain(sent.chunks(200_000)) {
                    stream.write_all(part).unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            while !receiver.is_finished() {
                let is_high = start.elapsed().as_millis() / 300 % 2 == 0;
                servers[0].settings.connections = Some(if is_high { 5 } else { 1 });
                turn(&mut servers);
                lengths.insert(servers[1].links[&RelayId(1)].parallel.accepted.len());
            }
            receiver.join().unwrap()
        });
        assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
        assert!(lengths.contains(&0) && lengths.contains(&4), "{lengths:?}");
        let parallel = &servers[0].links[&RelayId(2)].parallel;
        assert!(parallel.closed.acked_bytes > 0, "{parallel:?}");
        assert!(servers.iter().all(|server| server.links.values().all(Link::is_up)));
    }

    #[test]
    fn sums_have_the_lowest_round_trip_time_and_the_mean() {
        let info = |milliseconds, acked_bytes| ConnectionInfo {
            acked_bytes,
            round_trip: Duration::from_millis(2 * milliseconds),
            min_round_trip: Duration::from_millis(milliseconds),
            ..ConnectionInfo::default()
        };
        let total = sum([info(30, 1), info(10, 2)].into_iter());
        assert_eq!(total.acked_bytes, 3);
        assert_eq!(total.min_round_trip, Duration::from_millis(10));
        assert_eq!(total.round_trip, Duration::from_millis(40));
        assert_eq!(sum(std::iter::empty()), ConnectionInfo::default());
    }
}
