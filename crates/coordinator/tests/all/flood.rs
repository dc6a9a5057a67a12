//! Many idle connections, and health checks among them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};

use crate::api::{Server, get};

/// Connections of the flood.
const CONNECTIONS: usize = 5000;

/// How fast a health check has to be answered.
const SOON: Duration = Duration::from_millis(50);

/// A health check over a new connection; how long its answer takes.
fn probe(server: &Server) -> Option<Duration> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(server.address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200 ").then(|| began.elapsed())
}

/// Connections that begin a request and do not end it.
fn half_open_requests(server: &Server) -> Vec<TcpStream> {
    (0..CONNECTIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            // The server may have closed it already.
            let _ = stream.write_all(b"GET /v1/coflows HTTP/1.1\r\nho");
            stream
        })
        .collect()
}

#[test]
fn half_open_requests_do_not_delay_health_checks() {
    let (files, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if files < 2 * CONNECTIONS as u64 {
        eprintln!("half_open_requests skips: fewer than {} open files are allowed", 2 * CONNECTIONS);
        return;
    }
    let server = Server::start();
    let flooding = AtomicBool::new(true);
    let times: Vec<Option<Duration>> = thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let held = half_open_requests(&server);
            flooding.store(false, Ordering::Relaxed);
            held
        });
        let mut times = Vec::new();
        while flooding.load(Ordering::Relaxed) || times.len() < 50 {
            times.push(probe(&server));
        }
        drop(flood.join().unwrap());
        times
    });
    let late = times.iter().filter(|time| time.is_none_or(|time| time > SOON)).count();
    eprintln!("{} health checks, {late} later than {SOON:?}, at worst {:?}", times.len(), times.iter().max());
    assert!(late * 100 <= times.len(), "{late} of {} health checks", times.len());
    // Once the flood has gone, other requests are answered again.
    let ended = Instant::now() + Duration::from_secs(20);
    while get(&server, "/v1/coflows").0 != 200 {
        assert!(Instant::now() < ended, "requests are still refused");
        thread::sleep(Duration::from_millis(10));
    }
}
