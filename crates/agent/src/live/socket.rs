//! What TCP of the kernel takes and says, and what a socket of UDP is.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::sockopt::{GetStruct, Linger, SetStruct, SockType};
use nix::sys::socket::{getsockopt, setsockopt};

use crate::htb::{FRAME, PAYLOAD};

/// Bytes of a full packet on the wire beside its payload.
const HEADERS: u64 = (FRAME - PAYLOAD) as u64;

#[derive(Clone, Copy)]
struct MaxPacing;

nix::setsockopt_impl!(MaxPacing, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, u64, SetStruct<u64>);

/// The beginning of `struct tcp_info`, up to and with `tcpi_notsent_bytes` (Linux 4.6).
type Raw = [u8; 148];

#[derive(Clone, Copy)]
struct TcpInfo;

nix::getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, Raw, GetStruct<Raw>);

/// What TCP says of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// Bytes that the other end has said it got. The kernel counts the first and the last packet's mark as a byte each.
    pub acked: u64,
    /// Whether all that was written has been acknowledged.
    pub drained: bool,
    /// Whether both ends may still write.
    pub open: bool,
    /// Whether this end has said that it writes no more, and the other knows.
    pub shut: bool,
    /// Whether the connection is gone.
    pub gone: bool,
    /// The pacing rate that was set, in bytes per second; `u64::MAX` if none was.
    pub max_pacing: u64,
    /// The most payload of a packet.
    segment: u32,
}

/// Raises the limit of open files to the maximum: the default is below the number of sockets that an agent accepts.
pub fn raise_file_limit() {
    if let Ok((_, max)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Without it the agent accepts fewer sockets.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, max, max);
    }
}

/// Closes a duplicate of a program's socket. Where the program has set SO_LINGER, closing the last one waits, so it gets a thread.
pub fn close(socket: OwnedFd) {
    if getsockopt(&socket, Linger).is_ok_and(|linger| linger.l_onoff != 0) {
        // Without a thread it is closed here.
        let _ = std::thread::Builder::new().spawn(move || drop(socket));
    }
}

/// Asks a socket.
///
/// # Errors
/// If it is none of TCP.
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

/// The two ends of a socket of UDP over IPv4 that is connected; none if it is something else.
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

/// Lets a socket send so many bytes of packets per second at most; whatever it can, if there is no rate. The kernel counts payload; the
/// answer is the pacing rate that it was given.
///
/// # Errors
/// If it is no socket.
pub fn pace(socket: &impl AsFd, rate: Option<u64>) -> io::Result<u64> {
    let Some(rate) = rate else {
        setsockopt(socket, MaxPacing, &u64::MAX)?;
        return Ok(u64::MAX);
    };
    let segment = u64::from(info(socket)?.segment.max(1));
    let payload = u128::from(rate) * u128::from(segment) / u128::from(segment + HEADERS);
    // None at all would be a connection that stops.
    let pacing = u64::try_from(payload).unwrap_or(u64::MAX).max(1);
    setsockopt(socket, MaxPacing, &pacing)?;
    Ok(pacing)
}
