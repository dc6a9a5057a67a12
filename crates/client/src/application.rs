//! Registers applications, and creates and destroys their connections (the library of Saba, section 6).

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use socket2::{Domain, SockRef, Socket, Type};

use crate::coordinator::{Coordinator, CoordinatorError, percent_encode};

/// How long the other end may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

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
        let answer = coordinator.put(&resource_path("applications", id), &body)?;
        let level = AtomicU8::new(parse_level(&answer)?);
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

    /// Creates a TCP connection from the host `src`, which is this host, to `address` on the host `dst`. Host names are those of the
    /// coordinator.
    ///
    /// All packets have the application's class, including the first. If the level has changed since the last connection, the new
    /// connection gets the new class after its first packets. Earlier connections keep their class.
    ///
    /// # Errors
    /// If no address accepts the connection within 30 s. A failed registration is no error: see
    /// [`Connection::registration_error`].
    pub fn connect(&self, src: &str, dst: &str, address: impl ToSocketAddrs) -> io::Result<Connection> {
        let stream = self.connect_to_any(address)?;
        // The id only has to be unique.
        let id = format!("{:016x}{:016x}", random_u64(), random_u64());
        let path = resource_path("connections", &id);
        let body = json!({ "application": self.id, "from": src, "to": dst });
        let answer = self.coordinator.put(&path, &body);
        let mut connection = Connection { stream, registration: None, registration_error: None };
        match answer.and_then(|answer| parse_level(&answer)) {
            Ok(level) => {
                connection.registration = Some((self.coordinator.clone(), path));
                if self.level.swap(level, Ordering::Relaxed) != level {
                    set_dscp(
                        &SockRef::from(&connection.stream),
                        connection.stream.peer_addr()?,
                        self.dscp(),
                    )?;
                }
            }
            Err(error) => connection.registration_error = Some(error),
        }
        Ok(connection)
    }

    fn connect_to_any(&self, address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let mut last_error = io::Error::new(io::ErrorKind::InvalidInput, "the host name has no addresses");
        for address in address.to_socket_addrs()? {
            // Packets to a mapped address are IPv4, and need the mark of IPv4.
            let address = SocketAddr::new(address.ip().to_canonical(), address.port());
            let connect_to_one = || {
                let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
                set_dscp(&SockRef::from(&socket), address, self.dscp())?;
                socket.connect_timeout(&address.into(), CONNECT_TIMEOUT)?;
                Ok(socket.into())
            };
            match connect_to_one() {
                Ok(stream) => return Ok(stream),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    /// Deregisters the application. Destroy all its connections first, including those of programs on other hosts.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the request. The application stays registered.
    pub fn deregister(self) -> Result<(), CoordinatorError> {
        self.coordinator.delete(&resource_path("applications", &self.id))
    }
}

/// A connection of an application. Dropping it calls [`Connection::destroy`] and ignores errors.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// The path of the connection at the coordinator, until it is deleted there.
    registration: Option<(Coordinator, String)>,
    registration_error: Option<CoordinatorError>,
}

impl Connection {
    /// The TCP stream.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Why the connection is not registered at the coordinator; none if it is. A connection without registration has the
    /// application's class, but does not count for the weights of queues.
    pub fn registration_error(&self) -> Option<&CoordinatorError> {
        self.registration_error.as_ref()
    }

    /// Closes the connection in both directions, and deletes it at the coordinator.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the request. The connection is closed.
    pub fn destroy(mut self) -> Result<(), CoordinatorError> {
        self.close()
    }

    fn close(&mut self) -> Result<(), CoordinatorError> {
        let Some((coordinator, path)) = self.registration.take() else { return Ok(()) };
        // The connection may have been closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
        coordinator.delete(&path)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

fn resource_path(collection: &str, id: &str) -> String {
    format!("/v1/{collection}/{}", percent_encode(id))
}

fn parse_level(answer: &Value) -> Result<u8, CoordinatorError> {
    let level = answer["level"].as_u64().filter(|level| *level <= MAX_LEVEL);
    level.map(|level| level as u8).ok_or_else(|| CoordinatorError::UnexpectedAnswer {
        answer: answer.to_string().chars().take(200).collect(),
        expected: "an object with a `level` from 0 to 62",
    })
}

/// Sets the DSCP. The ECN bits are below it, and the kernel sets them.
fn set_dscp(socket: &SockRef<'_>, peer: SocketAddr, dscp: u8) -> io::Result<()> {
    let traffic_class = u32::from(dscp) << 2;
    match peer.ip() {
        IpAddr::V4(_) => socket.set_tos_v4(traffic_class),
        IpAddr::V6(_) => socket.set_tclass_v6(traffic_class),
    }
}

/// A random number, from the random keys of `RandomState`.
fn random_u64() -> u64 {
    RandomState::new().hash_one(())
}
