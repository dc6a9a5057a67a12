//! Receives a connection, and counts its bytes.

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Instant;

use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use weir_core::model::scenario::SendMode;

use super::throttle::Meter;
use super::{Connection, RunState, STOP_CHECK_INTERVAL, wire};
use crate::namespace;

/// The maximum size of a read: the largest UDP packet.
const MAX_READ_BYTES: usize = 64 << 10;

/// The receive buffer of a UDP socket, in bytes. A reader that is late must not cause losses, which would count as those of a link.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// Receives until the run stops. Sends the port to `port_sender` first.
pub fn run(connection: &Connection<'_>, state: &RunState, port_sender: &Sender<u16>) -> io::Result<()> {
    namespace::enter(&connection.destination.namespace)?;
    let address = SocketAddrV4::new(connection.destination.address, 0);
    // The thread that waits for the port may have stopped; the failure is recorded.
    let send_port = |address: SocketAddr| {
        let _ = port_sender.send(address.port());
    };
    match connection.sending {
        SendMode::Elastic | SendMode::Capped(_) => {
            let listener = listen(address, connection.mark)?;
            send_port(listener.local_addr()?);
            receive_tcp(&listener, connection, state)
        }
        SendMode::Unresponsive(_) => {
            let socket = UdpSocket::bind(address)?;
            // GRO: one read returns several packets. Without privileges, the receive buffer is smaller.
            setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
            setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES)
                .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES))?;
            // Throttling reports get the service's mark as well.
            setsockopt(&socket, sockopt::Ipv4Tos, &i32::from(connection.mark << 2))?;
            send_port(socket.local_addr()?);
            receive_udp(&socket, connection, state)
        }
    }
}

fn listen(address: SocketAddrV4, mark: u8) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // Acknowledgements get the service's mark as well.
    setsockopt(&listener, sockopt::Ipv4Tos, &i32::from(mark << 2))?;
    setsockopt(
        &listener,
        sockopt::ReceiveTimeout,
        &TimeVal::milliseconds(STOP_CHECK_INTERVAL.as_millis() as i64),
    )?;
    Ok(listener)
}

fn receive_udp(socket: &UdpSocket, connection: &Connection<'_>, state: &RunState) -> io::Result<()> {
    let mut buffer = vec![0; MAX_READ_BYTES];
    let mut meter = state.throttle.as_ref().map(|_| Meter::new(Instant::now()));
    socket.set_read_timeout(Some(if meter.is_some() { Meter::READ_TIMEOUT } else { STOP_CHECK_INTERVAL }))?;
    let header_overhead = wire::header_overhead(connection.sending);
    while !state.is_stopped() {
        let datagram = match socket.recv_from(&mut buffer) {
            Ok((payload, from)) => {
                add_arrived(connection, payload);
                Some((from, payload as f64 * header_overhead))
            }
            Err(error) if is_no_data(&error) => None,
            Err(error) => return Err(error),
        };
        if let Some(meter) = &mut meter {
            let now = Instant::now();
            if let Some((from, bytes)) = datagram {
                meter.count_bytes(from, bytes, now);
            }
            meter.send_report(socket, now)?;
        }
    }
    Ok(())
}

/// Receives one connection after the other. If the end of a connection is lost, the next connection replaces it.
fn receive_tcp(listener: &TcpListener, connection: &Connection<'_>, state: &RunState) -> io::Result<()> {
    let mut buffer = vec![0; MAX_READ_BYTES];
    let mut stream: Option<TcpStream> = None;
    while !state.is_stopped() {
        let Some(current) = &mut stream else {
            stream = accept(listener)?;
            continue;
        };
        match current.read(&mut buffer) {
            Ok(0) => stream = None,
            Ok(payload) => add_arrived(connection, payload),
            // Senders end a connection by a reset.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => stream = None,
            Err(error) if is_no_data(&error) => {
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
            stream.set_read_timeout(Some(STOP_CHECK_INTERVAL))?;
            Ok(Some(stream))
        }
        Err(error) if is_no_data(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn add_arrived(connection: &Connection<'_>, payload: usize) {
    connection.arrived_bytes.fetch_add(payload as u64, Ordering::Relaxed);
}

/// Whether an error only means that no data arrived in time.
fn is_no_data(error: &io::Error) -> bool {
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

    use weir_core::model::TopologyTemplate as Fabric;
    use weir_core::units::Rate;

    use super::*;
    use crate::plan::Plan;

    #[test]
    fn new_connection_replaces_one_without_an_end_message() {
        let topology = Fabric::BigSwitch { hosts: 2, rate: Rate::GBIT }.build().unwrap();
        let plan = Plan::new("t".parse().unwrap(), &topology).unwrap();
        let connection = Connection {
            demand_index: 0,
            source: &plan.nodes[0],
            destination: &plan.nodes[1],
            mark: 1,
            sending: SendMode::Elastic,
            active_intervals: &[],
            arrived_bytes: AtomicU64::new(0),
        };
        let state =
            RunState { stop: AtomicBool::new(false), failure: Mutex::new(None), segments: 1, throttle: None };
        let listener = listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), 1).unwrap();
        let to = listener.local_addr().unwrap();
        thread::scope(|scope| {
            let receiver = scope.spawn(|| receive_tcp(&listener, &connection, &state));
            let send = |text: &str| {
                let before = connection.arrived_bytes.load(Ordering::Relaxed);
                let mut stream = TcpStream::connect(to).unwrap();
                stream.write_all(text.as_bytes()).unwrap();
                let started = Instant::now();
                let arrived_bytes = || connection.arrived_bytes.load(Ordering::Relaxed) - before;
                while arrived_bytes() < text.len() as u64 && started.elapsed() < Duration::from_secs(10) {
                    thread::sleep(Duration::from_millis(1));
                }
                (stream, arrived_bytes())
            };
            // The first connection neither sends more nor ends.
            let (first_stream, first) = send("12345");
            let (_, second) = send("1234567");
            state.stop.store(true, Ordering::Relaxed);
            receiver.join().unwrap().unwrap();
            drop(first_stream);
            assert_eq!((first, second), (5, 7));
        });
    }
}
