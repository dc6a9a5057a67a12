//! Options and state of TCP sockets.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::libc;
use nix::sys::socket::sockopt::{GetStruct, RcvBuf, RcvBufForce, SetStruct};
use nix::sys::socket::{getsockopt, setsockopt};
use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

#[derive(Clone, Copy)]
struct MaxPacing;

nix::setsockopt_impl!(MaxPacing, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, u64, SetStruct<u64>);

#[derive(Clone, Copy)]
struct NotSentLowat;

nix::setsockopt_impl!(NotSentLowat, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, u32, SetStruct<u32>);

/// The first bytes of `struct tcp_info`, up to and including `tcpi_bytes_retrans` (Linux 4.19).
type TcpInfoBytes = [u8; 208];

#[derive(Clone, Copy)]
struct TcpInfo;

nix::getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, TcpInfoBytes, GetStruct<TcpInfoBytes>);

/// The state of a TCP connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ConnectionInfo {
    /// Segments sent, repetitions included.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Bytes that the other end has acknowledged.
    pub acked_bytes: u64,
    /// The smoothed round-trip time between the kernels: it includes queues of the network and none of the relays.
    pub round_trip: Duration,
    /// The lowest such time.
    pub min_round_trip: Duration,
}

/// The state of a TCP connection; none if the kernel does not return it.
pub(crate) fn connection_info(stream: &TcpStream) -> Option<ConnectionInfo> {
    let bytes = getsockopt(stream, TcpInfo).ok()?;
    let u32_at = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let u64_at = |at: usize| bytes[at..at + 8].try_into().map(u64::from_ne_bytes).unwrap_or(0);
    Some(ConnectionInfo {
        segments: u32_at(136).into(),
        retransmitted_segments: u32_at(100).into(),
        acked_bytes: u64_at(120),
        round_trip: Duration::from_micros(u32_at(68).into()),
        min_round_trip: Duration::from_micros(u32_at(148).into()),
    })
}

/// Limits the sending rate, in bytes per second; none removes the limit.
pub(crate) fn set_pacing_rate(stream: &TcpStream, rate: Option<u64>) {
    // An unpaced connection works, with longer queues.
    let _ = setsockopt(stream, MaxPacing, &rate.unwrap_or(u64::MAX));
}

/// Limits the received bytes in the kernel to about this number. Without a privilege, the maximum is `net.core.rmem_max`.
pub(crate) fn set_receive_buffer(stream: &TcpStream, bytes: usize) {
    // An unlimited buffer works: the kernel takes what its own limits permit.
    let _ = setsockopt(stream, RcvBufForce, &bytes).or_else(|_| setsockopt(stream, RcvBuf, &bytes));
}

/// Limits the bytes in the kernel that it has not sent: what a later message of a higher priority has to wait for.
pub(crate) fn set_unsent_limit(stream: &TcpStream, bytes: u32) {
    let _ = setsockopt(stream, NotSentLowat, &bytes);
}

/// Selects the congestion control, for example `bbr`, if the kernel has it and permits it to this process.
pub(crate) fn set_congestion_control(socket: impl AsFd, name: &str) {
    if let Err(error) = rustix::net::sockopt::set_tcp_congestion(socket, name) {
        tracing::debug!(%name, %error, "congestion control is not available; using the system's");
    }
}

/// The name of the congestion control; none if the kernel does not return it.
pub(crate) fn congestion_control(stream: &TcpStream) -> Option<String> {
    rustix::net::sockopt::tcp_congestion(stream).ok()
}

/// Closes the connection if the other end acknowledges no sent bytes for this long.
pub(crate) fn set_send_timeout(stream: &TcpStream, timeout: Duration) {
    // Without it, the kernel's timeout of many minutes applies.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(stream, timeout.as_millis() as u32);
}

/// Begins to connect with this congestion control. The socket becomes writable when the connection is established, or has failed.
///
/// # Errors
/// If the kernel refuses at once.
pub(crate) fn start_connect(address: SocketAddr, congestion_control: &str) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
    set_congestion_control(&socket, congestion_control);
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

/// The result of a call on a socket that does not block; none if it would block.
pub(crate) fn ready<T>(result: Result<T, Errno>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
