//! Saba's library (section 6): an application registers, creates and destroys connections, and deregisters.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use socket2::{Domain, SockRef, Socket, Type};

use crate::coordinator::{Coordinator, CoordinatorError, escaped};

/// How long the other end may take to take a connection.
const CONNECT: Duration = Duration::from_secs(30);

/// Levels are from 0, and DSCPs have six bits, of which 0 is nobody's: level 0 is DSCP 1.
const MAX_LEVEL: u64 = 62;

/// An application that is registered. It may be so from several programs on several hosts, by the same id.
#[derive(Debug)]
pub struct Application {
    coordinator: Coordinator,
    id: String,
    level: AtomicU8,
}

impl Application {
    /// Registers the application `id` (1 to 128 printable characters without spaces), whose sensitivity the table has as `model`, which
    /// only a coordinator whose queues go by services does without. The service is a framework's own, or `default`, if there is none given.
    /// The same again changes nothing.
    ///
    /// # Errors
    /// Why it is not registered.
    pub fn register(
        coordinator: &Coordinator,
        id: &str,
        service: Option<&str>,
        model: Option<&str>,
    ) -> Result<Application, CoordinatorError> {
        let body = json!({ "service": service, "model": model });
        let answer = coordinator.put(&path("applications", id), &body)?;
        let level = AtomicU8::new(level_of(&answer)?);
        Ok(Application { coordinator: coordinator.clone(), id: id.to_owned(), level })
    }

    /// Its priority level, from 0, as far as it was heard of: each connection that is created asks anew.
    pub fn level(&self) -> u8 {
        self.level.load(Ordering::Relaxed)
    }

    /// What its packets are marked with: level 0 is DSCP 1, level 1 is DSCP 2 and so on.
    pub fn dscp(&self) -> u8 {
        self.level() + 1
    }

    /// Creates a connection: TCP, from the host `from`, which is this one, to `address` on the host `to`. Hosts are called as the
    /// coordinator calls them. Its packets have the application's class, the first one included. If that is another one by
    /// now, as others came and went, it has that from then on; connections that were there before keep theirs.
    ///
    /// # Errors
    /// If the other end does not take it within 30 s. That the coordinator was not told is no error: see [`Connection::untold`].
    pub fn connect(&self, from: &str, to: &str, address: impl ToSocketAddrs) -> io::Result<Connection> {
        let stream = self.dial(address)?;
        // Ids only have to be different from each other.
        let id = format!("{:016x}{:016x}", chance(), chance());
        let place = path("connections", &id);
        let body = json!({ "application": self.id, "from": from, "to": to });
        let answer = self.coordinator.put(&place, &body);
        let mut connection = Connection { stream, told: None, untold: None };
        match answer.and_then(|answer| level_of(&answer)) {
            Ok(level) => {
                connection.told = Some((self.coordinator.clone(), place));
                if self.level.swap(level, Ordering::Relaxed) != level {
                    mark(&SockRef::from(&connection.stream), connection.stream.peer_addr()?, self.dscp())?;
                }
            }
            Err(error) => connection.untold = Some(error),
        }
        Ok(connection)
    }

    fn dial(&self, address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name has no addresses");
        for address in address.to_socket_addrs()? {
            // An address of IPv4 in one of IPv6 is marked as IPv4.
            let address = SocketAddr::new(address.ip().to_canonical(), address.port());
            let dial = || {
                let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
                mark(&SockRef::from(&socket), address, self.dscp())?;
                socket.connect_timeout(&address.into(), CONNECT)?;
                Ok(socket.into())
            };
            match dial() {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Deregisters it. Connections have to be destroyed before, also those of its programs on other hosts.
    ///
    /// # Errors
    /// Why it is still registered.
    pub fn deregister(self) -> Result<(), CoordinatorError> {
        self.coordinator.delete(&path("applications", &self.id))
    }
}

/// A connection of an application. Dropping it is as [`Connection::destroy`], but errors are lost.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Where the coordinator has it, until it is told that it has ended.
    told: Option<(Coordinator, String)>,
    untold: Option<CoordinatorError>,
}

impl Connection {
    /// The connection itself.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Why the coordinator does not know of it, if so. It has the application's class all the same, but does not count for
    /// the weights of queues.
    pub fn untold(&self) -> Option<&CoordinatorError> {
        self.untold.as_ref()
    }

    /// Ends the connection both ways, and tells the coordinator.
    ///
    /// # Errors
    /// If the coordinator was not told; the connection has ended.
    pub fn destroy(mut self) -> Result<(), CoordinatorError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), CoordinatorError> {
        let Some((coordinator, place)) = self.told.take() else { return Ok(()) };
        // It may have ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
        coordinator.delete(&place)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn path(room: &str, id: &str) -> String {
    format!("/v1/{room}/{}", escaped(id))
}

fn level_of(answer: &Value) -> Result<u8, CoordinatorError> {
    let level = answer["level"].as_u64().filter(|level| *level <= MAX_LEVEL);
    level.map(|level| level as u8).ok_or_else(|| CoordinatorError::Answer {
        found: answer.to_string().chars().take(200).collect(),
        expected: "an object with a `level` from 0 to 62",
    })
}

/// The bits of ECN are below those of DSCP, and the kernel's own.
fn mark(socket: &SockRef<'_>, to: SocketAddr, dscp: u8) -> io::Result<()> {
    let field = u32::from(dscp) << 2;
    match to.ip() {
        IpAddr::V4(_) => socket.set_tos_v4(field),
        IpAddr::V6(_) => socket.set_tclass_v6(field),
    }
}

/// A number that nobody else has: hashers begin with keys that the system gave by chance.
fn chance() -> u64 {
    RandomState::new().hash_one(())
}
