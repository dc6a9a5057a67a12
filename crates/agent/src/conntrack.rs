//! Finds the hosts at the other ends of connections whose addresses the kernel replaces (NAT): a connection to the address of a service
//! goes to one of its pods (DNAT), and one behind masquerading seems to come from a node.
//!
//! The kernel's table of connections (`conntrack`) has two entries for each: the addresses of packets in either direction, as they come
//! from their sender. Packets of the other direction have the real address of the other host as their source.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use nix::errno::Errno;
use nix::libc::{AF_INET, AF_INET6, IPPROTO_TCP};
use nix::sys::socket::SockProtocol;

use crate::netlink::{self, Attributes, encode_attribute, encode_nested};
use crate::traffic::ConnectionEnds;

/// Exists if the kernel can follow connections; the number that it follows in the network namespace of the calling thread.
const COUNT_FILE: &str = "/proc/sys/net/netfilter/nf_conntrack_count";

/// `NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET`.
const GET_CONNECTION: u16 = 0x101;

/// The size of `struct nfgenmsg`.
const HEADER_BYTES: usize = 4;

/// Attributes of a connection: the addresses of packets in the direction of its first packet, and in the other one.
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;

/// Attributes of the addresses of a direction.
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;

/// The requests in one message. Their answers fit into the default buffer of a socket, which holds about 200.
const BATCH: usize = 64;

/// The addresses that a lookup found.
#[derive(Debug)]
pub struct FoundPeers {
    /// The addresses of the hosts at the other ends, in the order of the connections; none without an answer of the kernel.
    pub addresses: Vec<Option<IpAddr>>,
    /// Why the first of the missing ones has no answer.
    pub error: Option<io::Error>,
}

/// Finds the hosts at the other ends of TCP connections. A connection that the kernel does not follow in the network namespace of the
/// calling thread has the remote address of its socket.
pub fn find_peers(connections: &[ConnectionEnds]) -> FoundPeers {
    if !follows_connections() {
        let addresses = connections.iter().map(|ends| Some(ends.remote.ip())).collect();
        return FoundPeers { addresses, error: None };
    }
    ask_in_batches(connections, |requests, visit| {
        netlink::ask(SockProtocol::NetlinkNetFilter, GET_CONNECTION, requests, visit)
    })
}

/// Receives the position of each request, and its answer or the kernel's error.
type Visit<'a> = &'a mut dyn FnMut(usize, Result<&[u8], Errno>) -> Result<(), Errno>;

/// Finds hosts with `ask`, which sends the requests of a batch. Stops after a batch that fails, or whose requests are all refused: the next
/// one would probably fail, too, and each may take a second.
fn ask_in_batches(
    connections: &[ConnectionEnds],
    mut ask: impl FnMut(&[Vec<u8>], Visit<'_>) -> io::Result<()>,
) -> FoundPeers {
    let mut addresses = vec![None; connections.len()];
    let mut first_error = None;
    for (batch, addresses) in connections.chunks(BATCH).zip(addresses.chunks_mut(BATCH)) {
        let requests: Vec<Vec<u8>> = batch.iter().map(encode_request).collect();
        let mut refusal = None;
        let result = ask(&requests, &mut |index, answer| {
            let Some((ends, address)) = batch.get(index).zip(addresses.get_mut(index)) else { return Ok(()) };
            match answer {
                Ok(entry) => *address = parse_peer(entry, ends).or(Some(ends.remote.ip())),
                // Another table (zone) may have the connection, or a rule keeps it out of all (notrack).
                Err(Errno::ENOENT) => *address = Some(ends.remote.ip()),
                Err(error) => refusal = refusal.or(Some(error)),
            }
            Ok(())
        });
        let has_failed = result.is_err() || addresses.iter().all(Option::is_none);
        first_error = first_error.or(refusal.map(io::Error::from)).or(result.err());
        if has_failed {
            break;
        }
    }
    FoundPeers { addresses, error: first_error }
}

/// Whether the kernel follows any connection here: a request to a kernel without the module would load it.
fn follows_connections() -> bool {
    let text = std::fs::read_to_string(Path::new(COUNT_FILE)).unwrap_or_default();
    text.trim().parse::<u64>().is_ok_and(|count| count > 0)
}

/// The request for the connection to which the packets of a socket belong, in either of its directions.
fn encode_request(ends: &ConnectionEnds) -> Vec<u8> {
    let (family, source, destination) = match (ends.local.ip(), ends.remote.ip()) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => (
            AF_INET,
            encode_attribute(CTA_IP_V4_SRC, &local.octets()),
            encode_attribute(CTA_IP_V4_DST, &remote.octets()),
        ),
        (local, remote) => (
            AF_INET6,
            encode_attribute(CTA_IP_V6_SRC, &to_ipv6(local).octets()),
            encode_attribute(CTA_IP_V6_DST, &to_ipv6(remote).octets()),
        ),
    };
    let protocol = [
        encode_attribute(CTA_PROTO_NUM, &[IPPROTO_TCP as u8]),
        encode_attribute(CTA_PROTO_SRC_PORT, &ends.local.port().to_be_bytes()),
        encode_attribute(CTA_PROTO_DST_PORT, &ends.remote.port().to_be_bytes()),
    ];
    let tuple = [
        encode_nested(CTA_TUPLE_IP, &[source, destination].concat()),
        encode_nested(CTA_TUPLE_PROTO, &protocol.concat()),
    ];
    let mut request = vec![family as u8, 0, 0, 0];
    request.extend(encode_nested(CTA_TUPLE_ORIG, &tuple.concat()));
    request
}

fn to_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    }
}

/// The address of the other host, from the connection's entry; none if the entry is malformed.
fn parse_peer(entry: &[u8], ends: &ConnectionEnds) -> Option<IpAddr> {
    let attributes = Attributes(entry.get(HEADER_BYTES..)?);
    let [first, other] =
        [CTA_TUPLE_ORIG, CTA_TUPLE_REPLY].map(|kind| parse_tuple(attributes.clone().find(kind)?));
    let (first, other) = (first?, other?);
    let sent = (ends.local, ends.remote);
    let opposite = if sent == (first.source, first.destination) { other } else { first };
    Some(opposite.source.ip())
}

/// The addresses of packets of one direction.
struct Tuple {
    source: SocketAddr,
    destination: SocketAddr,
}

fn parse_tuple(tuple: &[u8]) -> Option<Tuple> {
    let [addresses, protocol] = [CTA_TUPLE_IP, CTA_TUPLE_PROTO].map(|kind| Attributes(tuple).find(kind));
    let (addresses, protocol) = (Attributes(addresses?), Attributes(protocol?));
    let address = |four: u16, six: u16| {
        let four = addresses.clone().find(four).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        let six = addresses.clone().find(six).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        let four = four.map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
        four.or_else(|| six.map(|octets| IpAddr::V6(Ipv6Addr::from(octets))))
    };
    let port = |kind: u16| protocol.clone().find(kind)?.try_into().ok().map(u16::from_be_bytes);
    Some(Tuple {
        source: SocketAddr::new(address(CTA_IP_V4_SRC, CTA_IP_V6_SRC)?, port(CTA_PROTO_SRC_PORT)?),
        destination: SocketAddr::new(address(CTA_IP_V4_DST, CTA_IP_V6_DST)?, port(CTA_PROTO_DST_PORT)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(local: &str, remote: &str) -> ConnectionEnds {
        ConnectionEnds { local: local.parse().unwrap(), remote: remote.parse().unwrap() }
    }

    /// An entry with the addresses of both directions, as the kernel writes them.
    fn entry(first: &ConnectionEnds, other: &ConnectionEnds) -> Vec<u8> {
        let mut entry = encode_request(first);
        let tuple = encode_request(other);
        let tuple = Attributes(&tuple[HEADER_BYTES..]).find(CTA_TUPLE_ORIG).unwrap();
        entry.extend(encode_nested(CTA_TUPLE_REPLY, tuple));
        entry
    }

    #[test]
    fn source_of_the_other_direction_is_the_peer() {
        for [client, service, pod, node] in [
            ["10.1.0.1:40000", "10.96.0.1:80", "10.2.0.7:8080", "10.0.0.1:2000"],
            ["[fd01::1]:40000", "[fd96::1]:80", "[fd02::7]:8080", "[fd00::1]:2000"],
        ] {
            // The client's host replaces the destination, and the source by its own.
            let entry = entry(&ends(client, service), &ends(pod, node));
            let peer = |local: &str, remote: &str| parse_peer(&entry, &ends(local, remote)).unwrap();
            let ip = |text: &str| text.parse::<SocketAddr>().unwrap().ip();
            assert_eq!(peer(client, service), ip(pod));
            // A pod of the same host.
            assert_eq!(peer(pod, node), ip(client));
        }
    }

    /// A lookup of connections by their local ports, whose answers `ask` gives. Returns also the number of requests.
    fn ask_for_ports(
        ports: std::ops::Range<u16>,
        mut ask: impl FnMut(u16) -> Result<(), Errno>,
    ) -> (FoundPeers, usize) {
        let all: Vec<ConnectionEnds> =
            ports.map(|port| ends(&format!("10.1.0.1:{port}"), "10.96.0.1:80")).collect();
        let (mut rest, mut count) = (all.iter(), 0);
        let found = ask_in_batches(&all, |requests, visit| {
            count += requests.len();
            for (index, ends) in rest.by_ref().take(requests.len()).enumerate() {
                let other = ConnectionEnds { local: "10.2.0.7:8080".parse().unwrap(), remote: ends.local };
                let entry = entry(ends, &other);
                match ask(ends.local.port()) {
                    Err(Errno::EAGAIN) => return Err(Errno::EAGAIN.into()),
                    answer => visit(index, answer.map(|()| &entry[..]))?,
                }
            }
            Ok(())
        });
        (found, count)
    }

    #[test]
    fn failed_request_keeps_the_answers_to_others() {
        let (pod, service) = (Some(IpAddr::from([10, 2, 0, 7])), Some(IpAddr::from([10, 96, 0, 1])));
        let error_of = |found: &FoundPeers| found.error.as_ref().and_then(io::Error::raw_os_error);
        // The kernel refuses one request, and has no entry for another one.
        let (found, _) = ask_for_ports(0..200, |port| match port {
            70 => Err(Errno::EINVAL),
            71 => Err(Errno::ENOENT),
            _ => Ok(()),
        });
        let mut expected = vec![pod; 200];
        (expected[70], expected[71]) = (None, service);
        assert_eq!((error_of(&found), found.addresses), (Some(Errno::EINVAL as i32), expected));

        // The kernel does not answer in time.
        let (found, count) =
            ask_for_ports(0..200, |port| if port < 100 { Ok(()) } else { Err(Errno::EAGAIN) });
        let expected = [vec![pod; 100], vec![None; 100]].concat();
        assert_eq!((error_of(&found), found.addresses), (Some(Errno::EAGAIN as i32), expected));
        assert_eq!(count, 2 * BATCH);
    }

    #[test]
    fn lookup_stops_if_the_kernel_refuses_all_requests() {
        let (found, count) = ask_for_ports(0..200, |_| Err(Errno::EINVAL));
        assert_eq!((found.addresses, count), (vec![None; 200], BATCH));
    }

    #[test]
    fn malformed_entries_have_no_peer() {
        let ends = ends("10.1.0.1:1", "10.1.0.2:2");
        let complete = entry(&ends, &ends);
        assert!(parse_peer(&complete, &ends).is_some());
        for length in 0..complete.len() {
            assert_eq!(parse_peer(&complete[..length], &ends), None, "{length}");
        }
    }
}
