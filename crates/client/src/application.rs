//! Registers applications, and creates and destroys their connections (the library of Saba, section 6).
//!
//! While an application has connections, a thread follows its level over a stream of the coordinator, and marks the packets of open
//! connections with the new level. The stream also tells the coordinator that the program lives: if the program is killed, the
//! coordinator closes its connections after a lease.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use socket2::{Domain, SockRef, Socket, Type};

use crate::coordinator::{Coordinator, CoordinatorError, percent_encode};

/// How long the other end may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum level: levels start at 0, and level n has DSCP n + 1, of six bits.
const MAX_LEVEL: u64 = 62;

/// How long a stream of levels may last. The next one follows at once, so that a coordinator whose host has failed is noticed.
const MAX_STREAM_TIME: Duration = Duration::from_secs(60);

/// The coordinator closes the connections of a program without a stream for this time.
const PROGRAM_LEASE: Duration = Duration::from_secs(10);

/// The wait before the next attempt to open a stream, which doubles up to a maximum.
const MIN_RECONNECT_WAIT: Duration = Duration::from_millis(50);
const MAX_RECONNECT_WAIT: Duration = Duration::from_secs(1);

/// A registered application. Several programs on several hosts may register the same id.
#[derive(Debug)]
pub struct Application {
    shared: Arc<Shared>,
}

/// What connections, the application and its thread share.
#[derive(Debug)]
struct Shared {
    coordinator: Coordinator,
    id: String,
    /// The id of this program for the coordinator.
    program: String,
    level: AtomicU8,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    /// Open connections by their path at the coordinator.
    by_path: BTreeMap<String, OpenConnection>,
    has_thread: bool,
    /// Whether the thread has read the level from its present stream, which then has each change.
    is_followed: bool,
}

#[derive(Debug)]
struct OpenConnection {
    stream: Arc<TcpStream>,
    peer: IpAddr,
    /// The registration; none if the coordinator has refused it.
    body: Option<Value>,
    /// Whether the coordinator has answered the registration.
    is_registered: bool,
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
        let shared = Shared {
            coordinator: coordinator.clone(),
            id: id.to_owned(),
            program: random_id(),
            level: AtomicU8::new(parse_level(&answer)?),
            open: Mutex::default(),
        };
        Ok(Application { shared: Arc::new(shared) })
    }

    /// The priority level, from 0. While the application has connections, it follows the coordinator.
    pub fn level(&self) -> u8 {
        self.shared.level.load(Ordering::Relaxed)
    }

    /// The DSCP of the packets: the level plus 1.
    pub fn dscp(&self) -> u8 {
        self.level() + 1
    }

    /// Creates a TCP connection from the host `src`, which is this host, to `address` on the host `dst`. Host names are those of the
    /// coordinator.
    ///
    /// All packets that this end sends have the application's class, including the first, and follow its level. Data may flow in both
    /// directions: [`Application::accept`] marks what the other end sends.
    ///
    /// # Errors
    /// If no address accepts the connection within 30 s. A failed registration is no error: see
    /// [`Connection::registration_error`].
    pub fn connect(&self, src: &str, dst: &str, address: impl ToSocketAddrs) -> io::Result<Connection> {
        self.connect_any_weight(src, dst, address, None)
    }

    /// As [`Application::connect`], with a weight for the allocator, from 0.001 to 1,000. The weight of all connections of the application
    /// between the two hosts is the sum of those that have one, or else 1. If the other end accepts the connection by
    /// [`Application::accept`], that is a second registration: give the weight at one end only.
    ///
    /// # Errors
    /// Those of [`Application::connect`]. The coordinator refuses other weights: see [`Connection::registration_error`].
    pub fn connect_with_weight(
        &self,
        src: &str,
        dst: &str,
        address: impl ToSocketAddrs,
        weight: f64,
    ) -> io::Result<Connection> {
        self.connect_any_weight(src, dst, address, Some(weight))
    }

    fn connect_any_weight(
        &self,
        src: &str,
        dst: &str,
        address: impl ToSocketAddrs,
        weight: Option<f64>,
    ) -> io::Result<Connection> {
        let stream = self.connect_to_any(address)?;
        let peer = stream.peer_addr()?.ip();
        self.add(stream, peer, (src, dst), weight)
    }

    /// Accepts a connection of `listener` on `host`, which is this host, and registers it. What this end sends has the application's class,
    /// and follows its level; the kernel's answer to the first packet has the class at the time of the call. The coordinator finds the
    /// other host by its address (`[address]` of its configuration).
    ///
    /// # Errors
    /// If `listener` does not accept, for example because it does not block and no connection waits. A failed registration is no error:
    /// see [`Connection::registration_error`].
    pub fn accept(&self, host: &str, listener: &TcpListener) -> io::Result<Connection> {
        self.accept_any_weight(host, listener, None)
    }

    /// As [`Application::accept`], with a weight as in [`Application::connect_with_weight`].
    ///
    /// # Errors
    /// Those of [`Application::accept`]. The coordinator refuses other weights: see [`Connection::registration_error`].
    pub fn accept_with_weight(
        &self,
        host: &str,
        listener: &TcpListener,
        weight: f64,
    ) -> io::Result<Connection> {
        self.accept_any_weight(host, listener, Some(weight))
    }

    fn accept_any_weight(
        &self,
        host: &str,
        listener: &TcpListener,
        weight: Option<f64>,
    ) -> io::Result<Connection> {
        // The kernel answers the first packet of a connection with the mark of the listener.
        set_dscp(&SockRef::from(listener), listener.local_addr()?.ip(), self.dscp())?;
        let (stream, peer) = listener.accept()?;
        let peer = peer.ip().to_canonical();
        self.add(stream, peer, (host, &peer.to_string()), weight)
    }

    /// Registers a connection, and marks its packets.
    fn add(
        &self,
        stream: TcpStream,
        peer: IpAddr,
        (from, to): (&str, &str),
        weight: Option<f64>,
    ) -> io::Result<Connection> {
        let shared = &self.shared;
        let stream = Arc::new(stream);
        // The id only has to be unique.
        let path = resource_path("connections", &random_id());
        let mut body = json!({ "application": shared.id, "from": from, "to": to, "program": shared.program });
        if let Some(weight) = weight {
            body["weight"] = json!(weight);
        }
        let entry = OpenConnection { stream: Arc::clone(&stream), peer, body: None, is_registered: false };
        let mut connection =
            Connection { stream, shared: Arc::clone(shared), path, registration_error: None };
        // From here on, a new level applies to the connection too.
        let mut open = shared.lock();
        open.by_path.insert(connection.path.clone(), entry);
        let marked = set_dscp(&SockRef::from(connection.stream()), peer, self.dscp());
        drop(open);
        marked?;
        let answer = shared.coordinator.put(&connection.path, &body);
        let level = answer.and_then(|answer| parse_level(&answer));
        let mut open = shared.lock();
        if let Some(entry) = open.by_path.get_mut(&connection.path) {
            entry.body = Some(body).filter(|_| !level.as_ref().is_err_and(is_refusal));
            entry.is_registered = level.is_ok();
        }
        match level {
            Ok(level) if !open.is_followed => shared.set_level(level, &open),
            Ok(_) => {}
            Err(error) => connection.registration_error = Some(error),
        }
        // The thread also registers a connection that had no answer.
        if !std::mem::replace(&mut open.has_thread, true) {
            let weak = Arc::downgrade(shared);
            let thread = thread::Builder::new().name("weir-level".to_owned());
            let spawned = thread.spawn(move || follow_level(&weak));
            open.has_thread = spawned.is_ok();
            drop(open);
            spawned?;
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
                set_dscp(&SockRef::from(&socket), address.ip(), self.dscp())?;
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
        self.shared.coordinator.delete(&resource_path("applications", &self.shared.id))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the present level to all open connections, if it has changed.
    fn set_level(&self, level: u8, open: &OpenConnections) {
        if self.level.swap(level, Ordering::Relaxed) == level {
            return;
        }
        for connection in open.by_path.values() {
            // Marking fails only for a connection that has ended.
            let _ = set_dscp(&SockRef::from(&*connection.stream), connection.peer, level + 1);
        }
    }

    /// The registrations of all connections, or of those without an answer.
    fn registrations(&self, all: bool) -> Vec<(String, Value)> {
        let open = self.lock();
        let selected = open.by_path.iter().filter(|(_, entry)| all || !entry.is_registered);
        selected.filter_map(|(path, entry)| Some((path.clone(), entry.body.clone()?))).collect()
    }

    /// Registers connections again, because the coordinator may have closed them. Keeps those that it has not answered.
    fn register_again(&self, registrations: &mut Vec<(String, Value)>) {
        registrations.retain(|(path, body)| {
            if !self.lock().by_path.contains_key(path) {
                return false;
            }
            let answer = self.coordinator.put(path, body);
            if answer.is_ok() {
                match self.lock().by_path.get_mut(path) {
                    Some(entry) => entry.is_registered = true,
                    // It was destroyed meanwhile. If this fails, it ends with the program.
                    None => drop(self.coordinator.delete(path)),
                }
            }
            matches!(answer, Err(error) if !is_refusal(&error))
        });
    }
}

/// Whether the coordinator has refused a request, and would refuse it again.
fn is_refusal(error: &CoordinatorError) -> bool {
    matches!(error, CoordinatorError::Refused { status: 400..500, .. })
}

/// Follows the level while the application has connections.
fn follow_level(application: &Weak<Shared>) {
    let mut wait = MIN_RECONNECT_WAIT;
    let mut last_contact = Instant::now();
    // Connections to register again.
    let mut unregistered = Vec::new();
    loop {
        let Some(shared) = application.upgrade() else { return };
        if end_thread_if_idle(&shared) {
            return;
        }
        let path = resource_path("applications", &shared.id);
        let path = format!("{path}/level?program={}", percent_encode(&shared.program));
        let coordinator = shared.coordinator.clone();
        drop(shared);
        if let Ok(stream) = coordinator.get_stream(&path, Some(MAX_STREAM_TIME)) {
            let was_interrupted = last_contact.elapsed() >= PROGRAM_LEASE / 2;
            for (number, line) in BufReader::new(stream).lines().map_while(Result::ok).enumerate() {
                (last_contact, wait) = (Instant::now(), MIN_RECONNECT_WAIT);
                let Some(shared) = application.upgrade() else { return };
                if end_thread_if_idle(&shared) {
                    return;
                }
                if number == 0 {
                    unregistered = shared.registrations(was_interrupted);
                }
                shared.register_again(&mut unregistered);
                let answer =
                    line.strip_prefix("data:").map(|data| serde_json::from_str(data).unwrap_or_default());
                if let Some(Ok(level)) = answer.map(|answer| parse_level(&answer)) {
                    let mut open = shared.lock();
                    open.is_followed = true;
                    shared.set_level(level, &open);
                }
            }
        }
        if let Some(shared) = application.upgrade() {
            shared.lock().is_followed = false;
        }
        thread::sleep(wait);
        wait = MAX_RECONNECT_WAIT.min(2 * wait);
    }
}

/// Whether the application has no connections. Its next connection then starts another thread.
fn end_thread_if_idle(shared: &Shared) -> bool {
    let mut open = shared.lock();
    open.has_thread = !open.by_path.is_empty();
    open.is_followed &= open.has_thread;
    !open.has_thread
}

/// A connection of an application. Dropping it calls [`Connection::destroy`] and ignores errors.
#[derive(Debug)]
pub struct Connection {
    stream: Arc<TcpStream>,
    shared: Arc<Shared>,
    /// Its path at the coordinator.
    path: String,
    registration_error: Option<CoordinatorError>,
}

impl Connection {
    /// The TCP stream.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Why the connection was not registered when it was created; none if it was. A connection without registration has the
    /// application's class, but does not count for the weights of queues. Without an answer of the coordinator, it is registered once
    /// the coordinator answers; a refusal is final.
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
        let Some(open) = self.shared.lock().by_path.remove(&self.path) else { return Ok(()) };
        // The connection may have been closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
        if open.body.is_none() {
            return Ok(());
        }
        match self.shared.coordinator.delete(&self.path) {
            // An operator has closed it, or the coordinator did so while it heard nothing of this program.
            Err(CoordinatorError::Refused { status: 404, .. }) => Ok(()),
            // A registration without an answer may have been carried out or not.
            Err(_) if !open.is_registered => Ok(()),
            answer => answer,
        }
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

/// Sets the DSCP of packets to a peer, or of a listener's answers by its own address. The ECN bits are below it, and the kernel sets
/// them.
fn set_dscp(socket: &SockRef<'_>, address: IpAddr, dscp: u8) -> io::Result<()> {
    let traffic_class = u32::from(dscp) << 2;
    match address.to_canonical() {
        IpAddr::V4(_) => socket.set_tos_v4(traffic_class),
        // A socket that listens on all addresses may accept IPv4 too.
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            socket.set_tos_v4(traffic_class)?;
            socket.set_tclass_v6(traffic_class)
        }
        IpAddr::V6(_) => socket.set_tclass_v6(traffic_class),
    }
}

/// 128 random bits, from the random keys of `RandomState`.
fn random_id() -> String {
    let random = || RandomState::new().hash_one(());
    format!("{:016x}{:016x}", random(), random())
}
