//! Sets pacing rates of TCP sockets, reads their state (`tcp_info`), and identifies UDP sockets.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::sockopt::{GetStruct, Linger, SetStruct, SockType};
use nix::sys::socket::{getsockopt, setsockopt};

use crate::htb::{FRAME, PAYLOAD};

/// Bytes of a full packet on the wire in addition to its payload.
const HEADERS: u64 = (FRAME - PAYLOAD) as u64;

#[derive(Clone, Copy)]
struct MaxPacing;

nix::setsockopt_impl!(MaxPacing, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, u64, SetStruct<u64>);

/// The first bytes of `struct tcp_info`, up to and including `tcpi_notsent_bytes` (Linux 4.6).
type Raw = [u8; 148];

#[derive(Clone, Copy)]
struct TcpInfo;

nix::getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, Raw, GetStruct<Raw>);

/// The state of a TCP connection.
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// Bytes that the peer has acknowledged. The kernel counts the SYN and the FIN as a byte each.
    pub acked: u64,
    /// Whether the peer has acknowledged all data that was written.
    pub drained: bool,
    /// Whether both ends may still write.
    pub open: bool,
    /// Whether this end has closed its direction, and the peer has acknowledged that.
    pub shut: bool,
    /// Whether the connection is closed.
    pub gone: bool,
    /// The pacing rate that was set, in bytes per second; `u64::MAX` if none was.
    pub max_pacing: u64,
    /// The maximum payload of a packet (MSS).
    segment: u32,
}

/// Raises the limit of open files to the maximum: the default is below the number of sockets that an agent accepts.
pub fn raise_file_limit() {
    if let Ok((_, max)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Without it the agent accepts fewer sockets.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, max, max);
    }
}

/// Closes a duplicate of a program's socket. With SO_LINGER, closing the last duplicate blocks, so a thread closes it.
pub fn close(socket: OwnedFd) {
    if getsockopt(&socket, Linger).is_ok_and(|linger| linger.l_onoff != 0) {
        // Without a thread, the socket is closed here.
        let _ = std::thread::Builder::new().spawn(move || drop(socket));
    }
}

/// Reads the state of a TCP connection.
///
/// # Errors
/// If the socket is not a TCP socket.
pub fn info(socket: &impl AsFd) -> io::Result<Info> {
    let raw = getsockopt(socket, TcpInfo)?;
    let u32_at = |at: usize| u32::from_ne_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
    let u64_at = |at: usize| {
        let (first, second) = (u64::from(u32_at(at)), u64::from(u32_at(at + 4)));
        if cfg!(target_endian = "little") { first | second << 32 } else { first << 32 | second }
    };
    let state = i32::from(raw[0]);
    const ESTABLISHED: i32 = 1;
    const FIN_WAIT2: i32 = 5;
    const CLOSE: i32 = 7;
    Ok(Info {
        acked: u64_at(120),
        max_pacing: u64_at(112),
        drained: u32_at(24) == 0 && u32_at(144) == 0,
        open: state == ESTABLISHED,
        shut: state == FIN_WAIT2,
        gone: state == CLOSE,
        segment: u32_at(16),
    })
}

/// The two ends of a connected UDP socket over IPv4; none for other sockets.
pub fn datagrams(socket: &OwnedFd) -> Option<(SocketAddrV4, SocketAddrV4)> {
    if getsockopt(socket, SockType).ok()? != nix::sys::socket::SockType::Datagram {
        return None;
    }
    let socket = UdpSocket::from(socket.try_clone().ok()?);
    let ipv4 = |address: SocketAddr| match address.ip().to_canonical() {
        IpAddr::V4(ip) => Some(SocketAddrV4::new(ip, address.port())),
        IpAddr::V6(_) => None,
    };
    Some((ipv4(socket.local_addr().ok()?)?, ipv4(socket.peer_addr().ok()?)?))
}

/// Sets or removes the maximum rate of a socket, in bytes of packets per second. The kernel counts payload only: returns the pacing rate
/// that it was given.
///
/// # Errors
/// If `socket` is not a TCP socket, or not a socket.
pub fn pace(socket: &impl AsFd, rate: Option<u64>) -> io::Result<u64> {
    let Some(rate) = rate else {
        setsockopt(socket, MaxPacing, &u64::MAX)?;
        return Ok(u64::MAX);
    };
    let segment = u64::from(info(socket)?.segment.max(1));
    let payload = u128::from(rate) * u128::from(segment) / u128::from(segment + HEADERS);
    // A pacing rate of 0 would stop the connection.
    let pacing = u64::try_from(payload).unwrap_or(u64::MAX).max(1);
    setsockopt(socket, MaxPacing, &pacing)?;
    Ok(pacing)
}
