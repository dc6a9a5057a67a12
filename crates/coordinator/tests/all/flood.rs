//! Tests of health checks under a flood of idle connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};

use crate::api::{TestServer, get};

/// Number of connections in the flood.
const CONNECTIONS: usize = 5000;

/// Maximum time for the answer to a health check.
const MAX_ANSWER_TIME: Duration = Duration::from_millis(50);

/// Sends a health check over a new connection, and returns the time to its answer.
fn time_health_check(server: &TestServer) -> Option<Duration> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(server.address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200 ").then(|| began.elapsed())
}

/// Opens connections with an incomplete request head.
fn half_open_requests(server: &TestServer) -> Vec<TcpStream> {
    (0..CONNECTIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            // The server may have closed the connection already.
            let _ = stream.write_all(b"GET /v1/coflows HTTP/1.1\r\nho");
            stream
        })
        .collect()
}

/// The times of health checks while a flood of incomplete requests begins and remains.
fn time_health_checks_under_flood(server: &TestServer) -> Vec<Option<Duration>> {
    let flooding = AtomicBool::new(true);
    thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let connections = half_open_requests(server);
            flooding.store(false, Ordering::Relaxed);
            connections
        });
        let mut times = Vec::new();
        while flooding.load(Ordering::Relaxed) || times.len() < 50 {
            times.push(time_health_check(server));
        }
        drop(flood.join().unwrap());
        times
    })
}

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
    let server = TestServer::start();
    // Other tests use the processors too and can delay a run; the server itself would delay every run.
    let is_on_time = (0..3).any(|_| {
        let times = time_health_checks_under_flood(&server);
        let late_count = times.iter().filter(|time| time.is_none_or(|time| time > MAX_ANSWER_TIME)).count();
        eprintln!(
            "{} health checks, {late_count} later than {MAX_ANSWER_TIME:?}, at worst {:?}",
            times.len(),
            times.iter().max()
        );
        late_count * 100 <= times.len()
    });
    assert!(is_on_time, "more than 1 % of the health checks of three floods were late");
    // After the connections of the flood are closed, the server answers other requests again.
    let deadline = Instant::now() + Duration::from_secs(20);
    while get(&server, "/v1/coflows").0 != 200 {
        assert!(Instant::now() < deadline, "requests are still refused");
        thread::sleep(Duration::from_millis(10));
    }
}
