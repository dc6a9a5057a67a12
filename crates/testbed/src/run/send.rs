//! Sends the data of a connection.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, connect, setsockopt, socket, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weir_core::model::scenario::SendMode;
use weir_core::units::Rate;

use super::throttle::SenderLimit;
use super::{Connection, RunState, STOP_CHECK_INTERVAL, packets_per_write, wire};
use crate::namespace;
use crate::queues::FRAME_BYTES;

/// The maximum size of a write.
const MAX_WRITE_BYTES: usize = 64 << 10;

/// The maximum delay that a sender makes up for. Beyond it, catching up would cause a burst.
const MAX_CATCH_UP: Duration = Duration::from_millis(20);

/// The send buffer of a UDP socket, in bytes: more than the queue of the host's interface holds, so that packets are lost in that queue.
const SEND_BUFFER_BYTES: usize = 8 << 20;

/// Sends in every interval of the demand. `start` is the start of the scenario, which may be in the future.
pub fn run(
    connection: &Connection<'_>,
    state: &RunState,
    to: SocketAddrV4,
    start: Instant,
) -> io::Result<()> {
    namespace::enter(&connection.source.namespace)?;
    for &(from, until) in connection.active_intervals {
        let instant_of = |time: f64| start + Duration::from_secs_f64(time);
        if !wait(state, instant_of(from.get())) {
            return Ok(());
        }
        let end = instant_of(until.get());
        match connection.sending {
            SendMode::Elastic => send_tcp(connection, state, to, end, None)?,
            SendMode::Capped(rate) => send_tcp(connection, state, to, end, Some(rate))?,
            SendMode::Unresponsive(rate) => send_udp(connection, state, to, end, rate)?,
        }
    }
    Ok(())
}

/// Waits until a time. Returns whether to continue.
fn wait(state: &RunState, time: Instant) -> bool {
    while !state.is_stopped() {
        let remaining = time.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return true;
        }
        thread::sleep(remaining.min(STOP_CHECK_INTERVAL));
    }
    false
}

fn send_tcp(
    connection: &Connection<'_>,
    state: &RunState,
    to: SocketAddrV4,
    end: Instant,
    max_rate: Option<Rate>,
) -> io::Result<()> {
    let Some(mut stream) = connect_tcp(connection, state, to, end)? else { return Ok(()) };
    // Closing the socket at the end discards queued data.
    setsockopt(&stream, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
    let mut pacer = max_rate.map(Pacer::new);
    let packets = max_rate.map_or(0, |rate| packets_per_write(rate, state.segments));
    let length = if max_rate.is_some() { (packets * wire::TCP_PAYLOAD) as usize } else { MAX_WRITE_BYTES };
    let data = vec![0; length];
    let mut remaining_bytes = 0;
    while Instant::now() < end && !state.is_stopped() {
        if remaining_bytes == 0 {
            if pacer.as_mut().is_some_and(|pacer| !pacer.wait(packets, state, end)) {
                break;
            }
            remaining_bytes = length;
        }
        // A write must not block beyond the end.
        let remaining_time = end.saturating_duration_since(Instant::now());
        if remaining_time < STOP_CHECK_INTERVAL {
            stream.set_write_timeout(Some(remaining_time.max(Duration::from_millis(1))))?;
        }
        match stream.write(&data[..remaining_bytes]) {
            Ok(written) => remaining_bytes -= written,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Opens a connection with its mark on every packet, including the first; none if it is not established in time.
fn connect_tcp(
    connection: &Connection<'_>,
    state: &RunState,
    to: SocketAddrV4,
    end: Instant,
) -> io::Result<Option<TcpStream>> {
    let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, sockopt::Ipv4Tos, &i32::from(connection.mark << 2))?;
    setsockopt(&fd, sockopt::SendTimeout, &TimeVal::milliseconds(STOP_CHECK_INTERVAL.as_millis() as i64))?;
    while Instant::now() < end && !state.is_stopped() {
        match connect(fd.as_raw_fd(), &SockaddrIn::from(to)) {
            Ok(()) | Err(Errno::EISCONN) => return Ok(Some(TcpStream::from(fd))),
            Err(Errno::EINPROGRESS | Errno::EALREADY | Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn send_udp(
    connection: &Connection<'_>,
    state: &RunState,
    to: SocketAddrV4,
    end: Instant,
    rate: Rate,
) -> io::Result<()> {
    let socket = UdpSocket::bind(SocketAddrV4::new(connection.source.address, 0))?;
    setsockopt(&socket, sockopt::Ipv4Tos, &i32::from(connection.mark << 2))?;
    // GSO: the kernel splits each write into packets.
    setsockopt(&socket, sockopt::UdpGsoSegment, &(wire::UDP_PAYLOAD as i32))?;
    setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER_BYTES)
        .or_else(|_| setsockopt(&socket, sockopt::SndBuf, &SEND_BUFFER_BYTES))?;
    socket.set_nonblocking(true)?;
    socket.connect(to)?;
    let data = vec![0; (packets_per_write(rate, state.segments) * wire::UDP_PAYLOAD) as usize];
    let mut pacer = Pacer::new(rate);
    let mut limit = state.throttle.clone().map(SenderLimit::new);
    // Random sizes: two sources in step would let one of them find the queue full each time.
    let mut rng = ChaCha8Rng::seed_from_u64(u64::from(to.port()));
    loop {
        // The host drops packets that the source sends beyond the limit.
        if let Some(limit) = &mut limit {
            pacer.rate = limit.update(&socket)?.filter(|limit| *limit < rate).unwrap_or(rate);
        }
        let packets = 1 + rng.next_u32() % packets_per_write(pacer.rate, state.segments);
        if !pacer.wait(packets, state, end) {
            return Ok(());
        }
        match socket.send(&data[..(packets * wire::UDP_PAYLOAD) as usize]) {
            Ok(_) => {}
            // A packet that the host's queue drops is lost, as on any other link.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A rate on the wire, enforced by sleeping.
struct Pacer {
    rate: Rate,
    next_send: Instant,
}

impl Pacer {
    fn new(rate: Rate) -> Pacer {
        Pacer { rate, next_send: Instant::now() }
    }

    /// Waits until the next `packets` packets are due. Returns whether to send them, or to end.
    fn wait(&mut self, packets: u32, state: &RunState, end: Instant) -> bool {
        if self.next_send.elapsed() > MAX_CATCH_UP {
            self.next_send = Instant::now() - MAX_CATCH_UP;
        }
        let should_send = wait(state, self.next_send.min(end)) && Instant::now() < end;
        self.next_send += Duration::from_secs_f64(f64::from(packets * FRAME_BYTES) / self.rate.get());
        should_send
    }
}
