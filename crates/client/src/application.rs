//! Registers applications, and creates and destroys their connections (the library of Saba, section 6).

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use socket2::{Domain, SockRef, Socket, Type};

use crate::coordinator::{Coordinator, CoordinatorError, escaped};

/// How long the other end may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(30);

/// The maximum level: levels start at 0, and level n has DSCP n + 1, of six bits.
const MAX_LEVEL: u64 = 62;

/// A registered application. Several programs on several hosts may register the same id.
#[derive(Debug)]
pub struct Application {
    coordinator: Coordinator,
    id: String,
    level: AtomicU8,
}

impl Application {
    /// Registers the application `id` (1 to 128 printable characters without spaces). Repeating a registration has no effect.
    ///
    /// `model` is the name of its model in the sensitivity table, which is required unless the coordinator orders queues by service.
    /// Without a `service`, the service is that of the framework, or `default`.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the registration.
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

    /// The priority level, from 0, as of the last connection created.
    pub fn level(&self) -> u8 {
        self.level.load(Ordering::Relaxed)
    }

    /// The DSCP of the packets: the level plus 1.
    pub fn dscp(&self) -> u8 {
        self.level() + 1
    }

    /// Creates a TCP connection from the host `from`, which is this one, to `address` on the host `to`. Host names are those of the
    /// coordinator.
    ///
    /// All packets have the application's class, including the first. If the level has changed since the last connection, this connection
    /// gets the new class, after its first packets; earlier connections keep theirs.
    ///
    /// # Errors
    /// If the other end does not accept the connection within 30 s. A failed registration is no error: see [`Connection::untold`].
    pub fn connect(&self, from: &str, to: &str, address: impl ToSocketAddrs) -> io::Result<Connection> {
        let stream = self.dial(address)?;
        // Ids only have to be unique.
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
            // The packets of a mapped address are IPv4, and so is the mark.
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

    /// Deregisters the application. Destroy all its connections before, including those of programs on other hosts.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the request. The application stays registered.
    pub fn deregister(self) -> Result<(), CoordinatorError> {
        self.coordinator.delete(&path("applications", &self.id))
    }
}

/// A connection of an application. Dropping it calls [`Connection::destroy`] and ignores errors.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// The path of the connection at the coordinator, until it is deleted there.
    told: Option<(Coordinator, String)>,
    untold: Option<CoordinatorError>,
}

impl Connection {
    /// The TCP stream.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Why the connection is not registered at the coordinator, if it is not. It has the application's class, but does not count for the
    /// weights of queues.
    pub fn untold(&self) -> Option<&CoordinatorError> {
        self.untold.as_ref()
    }

    /// Closes the connection in both directions, and deletes it at the coordinator.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the request. The connection is closed.
    pub fn destroy(mut self) -> Result<(), CoordinatorError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), CoordinatorError> {
        let Some((coordinator, place)) = self.told.take() else { return Ok(()) };
        // The connection may have been closed already.
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

/// Sets the DSCP. The ECN bits are below it, and the kernel sets them.
fn mark(socket: &SockRef<'_>, to: SocketAddr, dscp: u8) -> io::Result<()> {
    let field = u32::from(dscp) << 2;
    match to.ip() {
        IpAddr::V4(_) => socket.set_tos_v4(field),
        IpAddr::V6(_) => socket.set_tclass_v6(field),
    }
}

/// A random number: `RandomState` has random keys of the system.
fn chance() -> u64 {
    RandomState::new().hash_one(())
}
