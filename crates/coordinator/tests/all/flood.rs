//! Tests of health checks under a flood of idle connections.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};

use crate::api::{TestServer, get};
use crate::certificates::Authority;
use crate::roles::SecureServer;

/// Number of connections in the flood.
const CONNECTIONS: usize = 5000;

/// Number of connections in the flood between two health checks.
const CONNECTIONS_PER_CHECK: usize = 50;

/// A health check of the flooded server takes at most this many times as long as one of a server without a flood.
const MAX_SLOWDOWN: u32 = 4;

/// Timeout that ends a hanging test; longer than any step takes.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Sends a health check over a new connection, and returns the time to its answer.
fn time_health_check(server: &TestServer) -> Duration {
    let began = Instant::now();
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    began.elapsed()
}

/// Opens a connection with an incomplete request head.
fn half_open_request(server: &TestServer) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    // The server may have closed the connection already.
    let _ = stream.write_all(b"GET /v1/coflows HTTP/1.1\r\nho");
    stream
}

/// Whether the server has not closed a connection.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Each health check is answered, and no idle connection delays it. An idle server in the same process answers a
/// health check right after each of them, so that other programs on the machine delay both.
#[test]
fn half_open_requests_do_not_delay_health_checks() {
    let (files, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if files < 2 * CONNECTIONS as u64 {
        eprintln!(
            "half_open_requests_do_not_delay_health_checks skipped: fewer than {} open files are allowed",
            2 * CONNECTIONS
        );
        return;
    }
    let (server, idle_server) = (TestServer::start(), TestServer::start());
    let (mut flood, mut times, mut idle_times) = (Vec::new(), Vec::new(), Vec::new());
    while flood.len() < CONNECTIONS {
        flood.extend((0..CONNECTIONS_PER_CHECK).map(|_| half_open_request(&server)));
        // Meanwhile the server accepts the connections, and closes those over the limit.
        for _ in 0..5 {
            time_health_check(&server);
        }
        times.push(time_health_check(&server));
        idle_times.push(time_health_check(&idle_server));
    }
    // The server has closed the connections beyond its limits for newer connections.
    let open_count = flood.iter().filter(|stream| is_open(stream)).count();
    let (time, idle_time) = (median(times), median(idle_times));
    eprintln!("health checks: {time:?} with {open_count} open connections, {idle_time:?} without (medians)");
    assert!(open_count < CONNECTIONS / 2, "{open_count}");
    assert!(time <= MAX_SLOWDOWN * idle_time, "{time:?}; without a flood {idle_time:?}");
    drop(flood);
    // The server answers other requests again.
    let deadline = Instant::now() + TIMEOUT;
    while get(&server, "/v1/coflows").0 != 200 {
        assert!(Instant::now() < deadline, "requests are still refused");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn half_open_requests_of_two_frameworks_do_not_refuse_other_identities() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    authority.write_server_files(folder.path());
    let limits = "connections = 32\nconnections-per-identity = 16\nconnections-per-address = 16\n";
    let server = SecureServer::start_with(authority, folder, limits);
    let mut flood = Vec::new();
    for name in ["weir://framework/ads", "weir://framework/default"] {
        let client = server.client_with_identity(name);
        flood.extend((0..40).map(|_| {
            let mut stream = server.connect(&client);
            // The server may have closed the connection already.
            let _ = stream.write_all(b"GET /v1/coflows HTTP/1.1\r\nho");
            stream
        }));
    }
    // Connections whose handshake does not begin.
    let silent: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(server.server().address).unwrap()).collect();
    for (name, path) in [
        ("weir://operator/ann", "/v1/coflows"),
        ("weir://operator/ann", "/metrics"),
        ("weir://reader/prometheus", "/metrics"),
        ("weir://framework/search", "/v1/coflows"),
        // A probe.
        ("weir://framework/ads", "/livez"),
        ("weir://framework/ads", "/metrics"),
    ] {
        let client = server.client_with_identity(name);
        let (status, text) = server.request(&client, "GET", path, "").unwrap();
        assert_eq!(status, 200, "{name} {path}: {text}");
    }
    let client = server.client_with_identity("weir://framework/ads");
    assert_eq!(server.request(&client, "GET", "/v1/coflows", "").unwrap().0, 503);
    drop((flood, silent));
}
