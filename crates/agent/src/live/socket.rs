//! Sets pacing rates of TCP sockets, reads their state (`tcp_info`), and reads the addresses of connected UDP sockets.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::sockopt::{GetStruct, Linger, SetStruct, SockType};
use nix::sys::socket::{getsockopt, setsockopt};
use rustix::net::sockopt;

use crate::htb::{FRAME_BYTES, PAYLOAD_BYTES};

/// Bytes of a full packet on the wire in addition to its payload.
const HEADER_BYTES: u64 = (FRAME_BYTES - PAYLOAD_BYTES) as u64;

#[derive(Clone, Copy)]
struct MaxPacing;

nix::setsockopt_impl!(MaxPacing, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, u64, SetStruct<u64>);

/// The first bytes of `struct tcp_info`, up to and including `tcpi_bytes_retrans` (Linux 4.19).
type TcpInfoBytes = [u8; 216];

#[derive(Clone, Copy)]
struct TcpInfo;

nix::getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, TcpInfoBytes, GetStruct<TcpInfoBytes>);

/// The state of a TCP connection.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionInfo {
    /// Bytes that the peer has acknowledged. The kernel counts the SYN and the FIN as a byte each.
    pub acked_bytes: u64,
    /// Bytes of data that have arrived.
    pub received_bytes: u64,
    /// Bytes of data that were sent, each counted once.
    pub sent_bytes: u64,
    /// The number of packets that wait for an acknowledgement; 0 for a closed connection.
    pub unacked_packets: u32,
    /// Data packets sent, and how many of them had been sent before (also a SYN). Both wrap around.
    pub segments: u32,
    pub retransmitted: u32,
    /// Written bytes that have not been sent.
    pub unsent_bytes: u32,
    /// Whether both ends may still write.
    pub is_open: bool,
    /// Whether this end has closed its direction.
    pub is_shut_down: bool,
    /// Whether this end has closed its direction, and the peer has acknowledged its FIN.
    pub is_write_closed: bool,
    /// Whether the connection is closed: both ends have closed it, or it was reset.
    pub is_closed: bool,
    /// The pacing rate that was set, in bytes per second; `u64::MAX` if none was.
    pub max_pacing_rate: u64,
    /// The maximum payload of a packet (MSS).
    mss: u32,
}

impl ConnectionInfo {
    /// Whether the peer of an open connection has acknowledged all data that was written.
    pub fn is_drained(&self) -> bool {
        self.unacked_packets == 0 && self.unsent_bytes == 0
    }

    /// Written bytes that the peer has not acknowledged, at most.
    pub fn outstanding_bytes(&self) -> u64 {
        u64::from(self.unsent_bytes) + u64::from(self.unacked_packets) * u64::from(self.mss)
    }
}

/// Raises the limit of open files to the maximum: the default is below the number of sockets that an agent accepts.
pub fn raise_file_limit() {
    if let Ok((_, max)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If this fails, the agent accepts fewer sockets.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, max, max);
    }
}

/// Closes a duplicate of a program's socket. With SO_LINGER, closing the last duplicate blocks, so a thread closes it.
pub fn close(socket: OwnedFd) {
    if getsockopt(&socket, Linger).is_ok_and(|linger| linger.l_onoff != 0) {
        // If no thread can be started, the socket is closed here.
        let _ = std::thread::Builder::new().spawn(move || drop(socket));
    }
}

/// Reads the state of a TCP connection.
///
/// # Errors
/// If the socket is not a TCP socket.
pub fn read_info(socket: &impl AsFd) -> io::Result<ConnectionInfo> {
    let raw = getsockopt(socket, TcpInfo)?;
    let u32_at =
        |offset: usize| u32::from_ne_bytes([raw[offset], raw[offset + 1], raw[offset + 2], raw[offset + 3]]);
    let u64_at = |offset: usize| {
        let (first, second) = (u64::from(u32_at(offset)), u64::from(u32_at(offset + 4)));
        if cfg!(target_endian = "little") { first | second << 32 } else { first << 32 | second }
    };
    let state = i32::from(raw[0]);
    const ESTABLISHED: i32 = 1;
    const FIN_WAIT1: i32 = 4;
    const FIN_WAIT2: i32 = 5;
    const CLOSE: i32 = 7;
    const LAST_ACK: i32 = 9;
    const CLOSING: i32 = 11;
    Ok(ConnectionInfo {
        acked_bytes: u64_at(120),
        max_pacing_rate: u64_at(112),
        received_bytes: u64_at(128),
        sent_bytes: u64_at(200).saturating_sub(u64_at(208)),
        unacked_packets: u32_at(24),
        segments: u32_at(156),
        retransmitted: u32_at(100),
        unsent_bytes: u32_at(144),
        is_open: state == ESTABLISHED,
        is_shut_down: [FIN_WAIT1, FIN_WAIT2, LAST_ACK, CLOSING].contains(&state),
        is_write_closed: state == FIN_WAIT2,
        is_closed: state == CLOSE,
        mss: u32_at(16),
    })
}

/// The two ends of a connected UDP socket; none for other sockets.
pub fn udp_ends(socket: &OwnedFd) -> Option<(SocketAddr, SocketAddr)> {
    if getsockopt(socket, SockType).ok()? != nix::sys::socket::SockType::Datagram {
        return None;
    }
    let socket = UdpSocket::from(socket.try_clone().ok()?);
    // A socket of IPv6 may send IPv4.
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    Some((canonical(socket.local_addr().ok()?), canonical(socket.peer_addr().ok()?)))
}

/// Whether the kernel keeps a TCP connection whose data waits unsent (no TCP_USER_TIMEOUT).
pub fn may_wait_unsent(socket: &impl AsFd) -> bool {
    sockopt::tcp_user_timeout(socket).is_ok_and(|timeout| timeout == 0)
}

/// Lets the kernel try at once to send the data of a TCP socket.
pub fn push(socket: &impl AsFd) {
    // Whatever the program has set, ending TCP_CORK sends what waits.
    let was_corked = sockopt::tcp_cork(socket).unwrap_or(false);
    let _ = sockopt::set_tcp_cork(socket, false);
    if was_corked {
        let _ = sockopt::set_tcp_cork(socket, true);
    }
}

/// Sets or removes the maximum rate of a socket, in bytes of packets per second. The kernel counts payload only: returns the pacing rate
/// of payload that was set. It is never above the program's `own_rate`, in bytes of payload per second.
///
/// # Errors
/// If `socket` is not a TCP socket, or not a socket.
pub fn set_pacing_rate(socket: &impl AsFd, rate: Option<u64>, own_rate: u64) -> io::Result<u64> {
    let Some(rate) = rate else {
        setsockopt(socket, MaxPacing, &own_rate)?;
        return Ok(own_rate);
    };
    let mss = u64::from(read_info(socket)?.mss.max(1));
    let payload = u128::from(rate) * u128::from(mss) / u128::from(mss + HEADER_BYTES);
    // A pacing rate of 0 would stop the connection.
    let pacing_rate = u64::try_from(payload).unwrap_or(u64::MAX).clamp(1, own_rate.max(1));
    setsockopt(socket, MaxPacing, &pacing_rate)?;
    Ok(pacing_rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_udp_sockets_have_the_family_of_their_packets() {
        let ends = |local: &str, peer: Option<&str>| {
            let socket = UdpSocket::bind(local).unwrap();
            let connected = peer.is_none_or(|peer| socket.connect(peer).is_ok());
            let (source, destination) = udp_ends(&OwnedFd::from(socket)).filter(|_| connected)?;
            Some((source.ip().to_string(), destination.to_string()))
        };
        let expected = |source: &str, destination: &str| Some((source.to_owned(), destination.to_owned()));
        assert_eq!(ends("127.0.0.1:0", Some("127.0.0.1:9")), expected("127.0.0.1", "127.0.0.1:9"));
        assert_eq!(ends("[::1]:0", Some("[::1]:9")), expected("::1", "[::1]:9"));
        // A socket of IPv6 that sends IPv4.
        let mapped = ends("[::]:0", Some("[::ffff:127.0.0.1]:9"));
        assert_eq!(mapped, expected("127.0.0.1", "127.0.0.1:9"));
        // Unconnected sockets, and those of TCP.
        assert_eq!(ends("127.0.0.1:0", None), None);
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(udp_ends(&OwnedFd::from(tcp)), None);
    }
}
