//! Parses the records that the BPF programs write. The layout is that of `bpf/application.c`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The kernel's value for a connection without a pacing rate.
pub(super) const UNPACED: u32 = u32::MAX;

/// The two ends of a connection, seen from this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionEnds {
    /// The address and port on this host.
    pub local: SocketAddr,
    /// The address and port of the peer.
    pub remote: SocketAddr,
}

impl fmt::Display for ConnectionEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.local, self.remote)
    }
}

/// The number of an application, which is that of its cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApplicationId(pub u64);

/// The state of a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The application.
    pub application: ApplicationId,
    /// The number (cookie) of the socket, which is unique while the host runs.
    pub socket: u64,
    /// When the connection opened, or was found, by the monotonic clock.
    pub opened_at: Duration,
    /// Bytes that the peer acknowledged: up to the last sample of the round-trip time, or all once the connection is closed.
    pub sent: u64,
    /// Bytes received: up to the last sample of the round-trip time, or all once the connection is closed. The peer's FIN counts as one.
    pub received: u64,
    /// Bytes beyond `sent` that arrived after lost ones, about: the peer has acknowledged them selectively.
    pub sacked: u32,
    /// The pacing rate by an order, in bytes per second; none if the connection is not paced.
    pub pacing_rate: Option<u32>,
    /// When the backlog began, by the monotonic clock: at that sample of the round-trip time and all later ones, the program had given TCP
    /// data that waited to be sent, and the receiver's window was not what held it back. None if the last sample found no backlog, and
    /// on kernels without their types (BTF).
    pub backlogged_since: Option<Duration>,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The connection opened, or was found.
    Opened,
    /// The connection closed; its byte counts are final.
    Closed,
}

/// An event of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionEvent {
    /// The time, by the monotonic clock.
    pub time: Duration,
    /// The kind.
    pub kind: EventKind,
    /// The ends of the connection.
    pub ends: ConnectionEnds,
    /// The state of the connection at that time.
    pub connection: Connection,
}

pub(super) const ENDS_BYTES: usize = 36;
pub(super) const CONNECTION_BYTES: usize = 64;
/// Where `own_rate` is in `struct connection`.
const OWN_RATE_AT: usize = 52;
const EVENT_BYTES: usize = 8 + CONNECTION_BYTES + ENDS_BYTES + 4;

/// Takes numbers from the front of a record, in this machine's byte order. It panics at the end of the record, which cannot happen: the
/// lengths are those of the kernel's structures.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (first, rest) = self
            .0
            .split_first_chunk()
            .expect("the length of a record is the sum of the lengths of its fields");
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.bytes())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.bytes())
    }
}

/// An address as the programs write it: IPv4 addresses are ::ffff:a.b.c.d.
pub(super) fn to_ipv6_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped().octets(),
        IpAddr::V6(six) => six.octets(),
    }
}

impl ConnectionEnds {
    pub(super) fn to_bytes(self) -> [u8; ENDS_BYTES] {
        let mut bytes = [0; ENDS_BYTES];
        bytes[..16].copy_from_slice(&to_ipv6_octets(self.local.ip()));
        bytes[16..32].copy_from_slice(&to_ipv6_octets(self.remote.ip()));
        bytes[32..34].copy_from_slice(&self.local.port().to_ne_bytes());
        bytes[34..].copy_from_slice(&self.remote.port().to_ne_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; ENDS_BYTES]) -> ConnectionEnds {
        let mut reader = Reader(bytes);
        let mut ip = || Ipv6Addr::from(reader.bytes::<16>()).to_canonical();
        let (local, remote) = (ip(), ip());
        ConnectionEnds {
            local: SocketAddr::new(local, reader.u16()),
            remote: SocketAddr::new(remote, reader.u16()),
        }
    }
}

impl Connection {
    pub(super) fn parse(bytes: &[u8; CONNECTION_BYTES]) -> Connection {
        let mut reader = Reader(bytes);
        let application = ApplicationId(reader.u64());
        let [socket, opened_at, sent, received, backlogged_since] = std::array::from_fn(|_| reader.u64());
        let [pacing_rate, _own_rate, _syn, sacked] = std::array::from_fn(|_| reader.u32());
        Connection {
            application,
            socket,
            opened_at: Duration::from_nanos(opened_at),
            sent,
            received,
            sacked,
            pacing_rate: Some(pacing_rate).filter(|&rate| rate != UNPACED),
            backlogged_since: Some(backlogged_since).filter(|&since| since > 0).map(Duration::from_nanos),
        }
    }
}

/// The pacing rate that the program of a connection has set, in bytes per second; `u64::MAX` if it has set none.
pub(super) fn parse_own_rate(connection: &[u8; CONNECTION_BYTES]) -> u64 {
    match Reader(&connection[OWN_RATE_AT..]).u32() {
        UNPACED => u64::MAX,
        rate => u64::from(rate),
    }
}

impl ConnectionEvent {
    /// None if the record is malformed, which the programs never write.
    pub(super) fn parse(bytes: &[u8]) -> Option<ConnectionEvent> {
        let bytes: &[u8; EVENT_BYTES] = bytes.try_into().ok()?;
        let mut reader = Reader(bytes);
        let time = Duration::from_nanos(reader.u64());
        let connection = Connection::parse(&reader.bytes());
        let ends = ConnectionEnds::parse(&reader.bytes());
        let kind = match reader.u32() {
            1 => EventKind::Opened,
            2 => EventKind::Closed,
            _ => return None,
        };
        Some(ConnectionEvent { time, kind, ends, connection })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_survive_encoding() {
        for (local, remote) in [("10.9.0.1:40000", "10.9.0.2:80"), ("[fd00::1]:1", "[fd00::2]:65535")] {
            let ends = ConnectionEnds { local: local.parse().unwrap(), remote: remote.parse().unwrap() };
            assert_eq!(ConnectionEnds::parse(&ends.to_bytes()), ends);
        }
    }

    #[test]
    fn malformed_events_are_not_parsed() {
        assert_eq!(ConnectionEvent::parse(&[]), None);
        assert_eq!(ConnectionEvent::parse(&[0; EVENT_BYTES]), None);
        assert_eq!(ConnectionEvent::parse(&[1; EVENT_BYTES + 8]), None);
    }
}
