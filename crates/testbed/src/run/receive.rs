//! The receiving end of a connection: reads whatever comes, and counts it.

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddrV4, TcpListener, UdpSocket};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use weir_core::model::scenario::Sending;

use super::{Common, Connection, GLANCE};
use crate::namespace;

/// What one read takes at most: the largest packet of UDP.
const READ: usize = 64 << 10;

/// Bytes of UDP that wait for being read. A reader that is late is no loss on a link.
const WAITING: usize = 8 << 20;

/// Receives until all is over, having told `ready` the port.
pub fn run(connection: &Connection<'_>, common: &Common, ready: &Sender<u16>) -> io::Result<()> {
    namespace::enter(&connection.to.namespace)?;
    let any = SocketAddrV4::new(connection.to.address, 0);
    // Whoever waits for the port has the error if nobody else does.
    let tell = |address: std::net::SocketAddr| {
        let _ = ready.send(address.port());
    };
    match connection.sending {
        Sending::Elastic | Sending::Capped(_) => {
            let listener = TcpListener::bind(any)?;
            // What answers is marked as well: acknowledgements are of the service.
            setsockopt(&listener, sockopt::Ipv4Tos, &i32::from(connection.mark << 2))?;
            setsockopt(
                &listener,
                sockopt::ReceiveTimeout,
                &TimeVal::milliseconds(GLANCE.as_millis() as i64),
            )?;
            tell(listener.local_addr()?);
            tcp(&listener, connection, common)
        }
        Sending::Unresponsive(_) => {
            let socket = UdpSocket::bind(any)?;
            // Several packets in one read, as they came; without privileges, fewer may wait.
            setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
            setsockopt(&socket, sockopt::RcvBufForce, &WAITING)
                .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &WAITING))?;
            socket.set_read_timeout(Some(GLANCE))?;
            tell(socket.local_addr()?);
            let mut buffer = vec![0; READ];
            read(connection, common, || socket.recv(&mut buffer).map(Some))
        }
    }
}

/// Takes one connection after the other.
fn tcp(listener: &TcpListener, connection: &Connection<'_>, common: &Common) -> io::Result<()> {
    let mut buffer = vec![0; READ];
    while !common.stopped() {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if is_nothing(&error) => continue,
            Err(error) => return Err(error),
        };
        stream.set_read_timeout(Some(GLANCE))?;
        read(connection, common, || match stream.read(&mut buffer) {
            Ok(0) => Ok(None),
            // That is how senders end.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(None),
            got => got.map(Some),
        })?;
    }
    Ok(())
}

/// Counts what `next` reads, until it says none or all is over.
fn read(
    connection: &Connection<'_>,
    common: &Common,
    mut next: impl FnMut() -> io::Result<Option<usize>>,
) -> io::Result<()> {
    while !common.stopped() {
        match next() {
            Ok(None) => break,
            Ok(Some(payload)) => {
                connection.arrived.fetch_add(payload as u64, Ordering::Relaxed);
            }
            Err(error) if is_nothing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether nothing came in time.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
