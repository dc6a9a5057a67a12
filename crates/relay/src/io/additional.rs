//! Dials, accepts and closes the [additional connections](super::parallel) for the data to another relay.

use std::io;
use std::time::Duration;

use super::congestion;
use super::connection_count::PathState;
use super::link::Link;
use super::parallel::{MAX_ACCEPTED, UNSENT_BYTES, add, max_connections, message_bytes, part_bytes, sum};
use super::server::Server;
use super::socket::{
    ConnectionInfo, connection_info, set_congestion_control, set_pacing_rate, set_send_timeout,
    set_unsent_limit,
};
use super::token::Token;
use crate::hello::{ADDITIONAL_VERSION, Hello, Role, VERSION};
use crate::message::RelayId;

/// The wait after an additional connection could not be established.
const DIAL_WAIT: Duration = Duration::from_secs(1);

/// If the other relay acknowledges nothing for this long, a connection fails. Heartbeats do not use additional connections.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

impl Server {
    /// The state of the connections over which this relay sends or has sent data; none if the bulk one is closed.
    pub(super) fn data_info(&self, link: &Link) -> Option<ConnectionInfo> {
        let bulk = link.bulk?;
        let parallel = &link.parallel;
        let info = |token: Token| connection_info(&self.lanes.get(&token)?.transport.stream);
        let used = sum([bulk].into_iter().chain(parallel.additional.iter().copied()).filter_map(info));
        let closing = sum(parallel.closing.iter().filter_map(|&(token, _)| info(token)));
        Some(add(&add(&used, &closing), &parallel.closed))
    }

    /// Adapts the number of connections to the measurements of the path.
    pub(super) fn adapt_connections(&mut self, id: RelayId, info: &ConnectionInfo) {
        let (now, fixed) = (self.now, self.settings.connections);
        let Some(link) = self.links.get_mut(&id).filter(|link| link.version >= ADDITIONAL_VERSION) else {
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
        let (address, session) = (link.address, link.session);
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
        tracing::debug!(relay = %link.name, %error, "cannot open an additional connection");
    }

    /// Whether a connection can be added. `is_dialed`: by this relay, which sends data over it.
    ///
    /// # Errors
    /// The link is down or has other connections, or there are too many.
    pub(super) fn check_additional(&self, relay: RelayId, session: u64, is_dialed: bool) -> io::Result<()> {
        let link = self.links.get(&relay).filter(|link| link.is_up && link.session == session);
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
            if link.is_long && self.settings.congestion_control.is_none() {
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
        let bulk = link.bulk;
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
        while !servers.iter().all(|server| server.links.values().any(|link| link.is_up)) {
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
        assert!(servers.iter().all(|server| server.links.values().all(|link| link.is_up)));
    }
}
