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
use weir_core::model::scenario::Sending;
use weir_core::units::Rate;

use super::throttle::Limit;
use super::{Common, Connection, GLANCE, chunk, wire};
use crate::namespace;
use crate::queues::FRAME;

/// The maximum size of a write.
const WRITE: usize = 64 << 10;

/// The maximum delay that a sender makes up for. Beyond it, catching up would cause a burst.
const LATE: Duration = Duration::from_millis(20);

/// The send buffer of a UDP socket, in bytes: more than the queue of the host's interface holds, so that packets are lost in that queue.
const WAITING: usize = 8 << 20;

/// Sends in every interval of the demand. `begin` is the start of the scenario, which may be in the future.
pub fn run(connection: &Connection<'_>, common: &Common, to: SocketAddrV4, begin: Instant) -> io::Result<()> {
    namespace::enter(&connection.from.namespace)?;
    for &(from, until) in connection.active {
        let at = |time: f64| begin + Duration::from_secs_f64(time);
        if !wait(common, at(from.get())) {
            return Ok(());
        }
        let end = at(until.get());
        match connection.sending {
            Sending::Elastic => tcp(connection, common, to, end, None)?,
            Sending::Capped(rate) => tcp(connection, common, to, end, Some(rate))?,
            Sending::Unresponsive(rate) => udp(connection, common, to, end, rate)?,
        }
    }
    Ok(())
}

/// Waits until a time. Returns whether to continue.
fn wait(common: &Common, time: Instant) -> bool {
    while !common.stopped() {
        let left = time.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(GLANCE));
    }
    false
}

fn tcp(
    connection: &Connection<'_>,
    common: &Common,
    to: SocketAddrV4,
    end: Instant,
    most: Option<Rate>,
) -> io::Result<()> {
    let Some(mut stream) = open(connection, common, to, end)? else { return Ok(()) };
    // Closing the socket at the end discards queued data.
    setsockopt(&stream, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
    let mut pace = most.map(Pace::new);
    let packets = most.map_or(0, |rate| chunk(rate, common.segments));
    let length = if most.is_some() { (packets * wire::TCP) as usize } else { WRITE };
    let data = vec![0; length];
    let mut left = 0;
    while Instant::now() < end && !common.stopped() {
        if left == 0 {
            if pace.as_mut().is_some_and(|pace| !pace.wait(packets, common, end)) {
                break;
            }
            left = length;
        }
        // A write must not block beyond the end.
        let patience = end.saturating_duration_since(Instant::now());
        if patience < GLANCE {
            stream.set_write_timeout(Some(patience.max(Duration::from_millis(1))))?;
        }
        match stream.write(&data[..left]) {
            Ok(written) => left -= written,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Opens a connection with its mark on every packet, including the first; none if it is not established in time.
fn open(
    connection: &Connection<'_>,
    common: &Common,
    to: SocketAddrV4,
    end: Instant,
) -> io::Result<Option<TcpStream>> {
    let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, sockopt::Ipv4Tos, &i32::from(connection.mark << 2))?;
    setsockopt(&fd, sockopt::SendTimeout, &TimeVal::milliseconds(GLANCE.as_millis() as i64))?;
    while Instant::now() < end && !common.stopped() {
        match connect(fd.as_raw_fd(), &SockaddrIn::from(to)) {
            Ok(()) | Err(Errno::EISCONN) => return Ok(Some(TcpStream::from(fd))),
            Err(Errno::EINPROGRESS | Errno::EALREADY | Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn udp(
    connection: &Connection<'_>,
    common: &Common,
    to: SocketAddrV4,
    end: Instant,
    rate: Rate,
) -> io::Result<()> {
    let socket = UdpSocket::bind(SocketAddrV4::new(connection.from.address, 0))?;
    setsockopt(&socket, sockopt::Ipv4Tos, &i32::from(connection.mark << 2))?;
    // GSO: the kernel splits each write into packets.
    setsockopt(&socket, sockopt::UdpGsoSegment, &(wire::UDP as i32))?;
    setsockopt(&socket, sockopt::SndBufForce, &WAITING)
        .or_else(|_| setsockopt(&socket, sockopt::SndBuf, &WAITING))?;
    socket.set_nonblocking(true)?;
    socket.connect(to)?;
    let data = vec![0; (chunk(rate, common.segments) * wire::UDP) as usize];
    let mut pace = Pace::new(rate);
    let mut limit = common.throttle.clone().map(Limit::new);
    // Random sizes: two sources in step would let one of them find the queue full each time.
    let mut chance = ChaCha8Rng::seed_from_u64(u64::from(to.port()));
    loop {
        // The host drops what the source sends beyond the limit.
        if let Some(limit) = &mut limit {
            pace.rate = limit.update(&socket)?.filter(|limit| *limit < rate).unwrap_or(rate);
        }
        let packets = 1 + chance.next_u32() % chunk(pace.rate, common.segments);
        if !pace.wait(packets, common, end) {
            return Ok(());
        }
        match socket.send(&data[..(packets * wire::UDP) as usize]) {
            Ok(_) => {}
            // A packet that the host's queue drops is lost, as on any other link.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A rate on the wire, enforced by sleeping.
struct Pace {
    rate: Rate,
    next: Instant,
}

impl Pace {
    fn new(rate: Rate) -> Pace {
        Pace { rate, next: Instant::now() }
    }

    /// Waits until the next `packets` packets are due. Returns whether to send them, or to end.
    fn wait(&mut self, packets: u32, common: &Common, end: Instant) -> bool {
        if self.next.elapsed() > LATE {
            self.next = Instant::now() - LATE;
        }
        let go_on = wait(common, self.next.min(end)) && Instant::now() < end;
        self.next += Duration::from_secs_f64(f64::from(packets * FRAME) / self.rate.get());
        go_on
    }
}
