//! Receives a connection, and counts its bytes.

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Instant;

use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use weir_core::model::scenario::Sending;

use super::throttle::Meter;
use super::{Common, Connection, GLANCE, wire};
use crate::namespace;

/// The maximum size of a read: the largest UDP packet.
const READ: usize = 64 << 10;

/// The receive buffer of a UDP socket, in bytes. A reader that is late must not cause losses, which would count as those of a link.
const WAITING: usize = 8 << 20;

/// Receives until the run stops. Sends the port to `ready` first.
pub fn run(connection: &Connection<'_>, common: &Common, ready: &Sender<u16>) -> io::Result<()> {
    namespace::enter(&connection.to.namespace)?;
    let any = SocketAddrV4::new(connection.to.address, 0);
    // The thread that waits for the port may have stopped; the failure is recorded.
    let tell = |address: SocketAddr| {
        let _ = ready.send(address.port());
    };
    match connection.sending {
        Sending::Elastic | Sending::Capped(_) => {
            let listener = listen(any, connection.mark)?;
            tell(listener.local_addr()?);
            tcp(&listener, connection, common)
        }
        Sending::Unresponsive(_) => {
            let socket = UdpSocket::bind(any)?;
            // GRO: one read returns several packets. Without privileges, the receive buffer is smaller.
            setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
            setsockopt(&socket, sockopt::RcvBufForce, &WAITING)
                .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &WAITING))?;
            // Throttling reports get the service's mark as well.
            setsockopt(&socket, sockopt::Ipv4Tos, &i32::from(connection.mark << 2))?;
            tell(socket.local_addr()?);
            udp(&socket, connection, common)
        }
    }
}

fn listen(address: SocketAddrV4, mark: u8) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // Acknowledgements get the service's mark as well.
    setsockopt(&listener, sockopt::Ipv4Tos, &i32::from(mark << 2))?;
    setsockopt(&listener, sockopt::ReceiveTimeout, &TimeVal::milliseconds(GLANCE.as_millis() as i64))?;
    Ok(listener)
}

fn udp(socket: &UdpSocket, connection: &Connection<'_>, common: &Common) -> io::Result<()> {
    let mut buffer = vec![0; READ];
    let mut meter = common.throttle.as_ref().map(|_| Meter::new(Instant::now()));
    socket.set_read_timeout(Some(if meter.is_some() { Meter::GLANCE } else { GLANCE }))?;
    let factor = wire::factor(connection.sending);
    while !common.stopped() {
        let got = match socket.recv_from(&mut buffer) {
            Ok((payload, from)) => {
                count(connection, payload);
                Some((from, payload as f64 * factor))
            }
            Err(error) if is_nothing(&error) => None,
            Err(error) => return Err(error),
        };
        if let Some(meter) = &mut meter {
            let now = Instant::now();
            if let Some((from, bytes)) = got {
                meter.count(from, bytes, now);
            }
            meter.report(socket, now)?;
        }
    }
    Ok(())
}

/// Receives one connection after the other. If the end of a connection is lost, the next connection replaces it.
fn tcp(listener: &TcpListener, connection: &Connection<'_>, common: &Common) -> io::Result<()> {
    let mut buffer = vec![0; READ];
    let mut stream: Option<TcpStream> = None;
    while !common.stopped() {
        let Some(now) = &mut stream else {
            stream = accept(listener)?;
            continue;
        };
        match now.read(&mut buffer) {
            Ok(0) => stream = None,
            Ok(payload) => count(connection, payload),
            // Senders end a connection by a reset.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => stream = None,
            Err(error) if is_nothing(&error) => {
                listener.set_nonblocking(true)?;
                stream = accept(listener)?.or(stream);
                listener.set_nonblocking(false)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Accepts the next connection; none if none arrives in time.
fn accept(listener: &TcpListener) -> io::Result<Option<TcpStream>> {
    match listener.accept() {
        Ok((stream, _)) => {
            stream.set_read_timeout(Some(GLANCE))?;
            Ok(Some(stream))
        }
        Err(error) if is_nothing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn count(connection: &Connection<'_>, payload: usize) {
    connection.arrived.fetch_add(payload as u64, Ordering::Relaxed);
}

/// Whether an error only means that no data arrived in time.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::Ipv4Addr;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::thread;
    use std::time::Duration;

    use weir_core::model::Plan as Fabric;
    use weir_core::units::Rate;

    use super::*;
    use crate::plan::Plan;

    #[test]
    fn next_connection_replaces_one_whose_end_was_lost() {
        let topology = Fabric::BigSwitch { hosts: 2, rate: Rate::GBIT }.build().unwrap();
        let plan = Plan::new("t".parse().unwrap(), &topology).unwrap();
        let connection = Connection {
            demand: 0,
            from: &plan.nodes[0],
            to: &plan.nodes[1],
            mark: 1,
            sending: Sending::Elastic,
            active: &[],
            arrived: AtomicU64::new(0),
        };
        let common =
            Common { stop: AtomicBool::new(false), failure: Mutex::new(None), segments: 1, throttle: None };
        let listener = listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), 1).unwrap();
        let to = listener.local_addr().unwrap();
        thread::scope(|scope| {
            let receiver = scope.spawn(|| tcp(&listener, &connection, &common));
            let send = |text: &str| {
                let before = connection.arrived.load(Ordering::Relaxed);
                let mut stream = TcpStream::connect(to).unwrap();
                stream.write_all(text.as_bytes()).unwrap();
                let started = Instant::now();
                let got = || connection.arrived.load(Ordering::Relaxed) - before;
                while got() < text.len() as u64 && started.elapsed() < Duration::from_secs(10) {
                    thread::sleep(Duration::from_millis(1));
                }
                (stream, got())
            };
            // The first connection neither sends more nor ends.
            let (silent, first) = send("12345");
            let (_, second) = send("1234567");
            common.stop.store(true, Ordering::Relaxed);
            receiver.join().unwrap().unwrap();
            drop(silent);
            assert_eq!((first, second), (5, 7));
        });
    }
}
