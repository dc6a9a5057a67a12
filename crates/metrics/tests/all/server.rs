//! Requests of real clients, over plain text and TLS.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tokio::runtime::Builder;
use weir_metrics::{MetricsSource, MetricsTls, serve};
use weir_tls::{TlsFiles, client_config};

use crate::certificates::Authority;

#[derive(Clone)]
struct Source(Option<&'static str>);

impl MetricsSource for Source {
    async fn text(&self) -> Option<String> {
        self.0.map(str::to_owned)
    }
}

/// Serves a text on a free port until the program ends.
fn start(tls: Option<MetricsTls>, text: Option<&'static str>) -> SocketAddr {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || runtime.block_on(serve(listener, tls, Source(text))));
    address
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

fn request(mut stream: impl Read + Write, line: &str) -> io::Result<String> {
    stream.write_all(format!("{line}\r\nHost: agent\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        // The server closes the connection without an end of the session.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(answer),
    }
}

fn tls_stream(address: SocketAddr, files: &TlsFiles) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("agent").unwrap();
    let connection = ClientConnection::new(client_config(files, b"http/1.1").unwrap(), name).unwrap();
    StreamOwned::new(connection, connect(address))
}

#[test]
fn plain_text_serves_metrics_at_one_path() {
    let address = start(None, Some("weir_x 1\n# EOF\n"));
    let answer = request(connect(address), "GET /metrics HTTP/1.1").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("weir_x 1\n# EOF\n"), "{answer}");
    assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"), "{answer}");
    let status = |line: &str| request(connect(address), line).unwrap()[9..12].to_owned();
    assert_eq!([status("GET / HTTP/1.1"), status("PUT /metrics HTTP/1.1")], ["404", "405"]);
    let unavailable = start(None, None);
    assert!(request(connect(unavailable), "GET /metrics HTTP/1.1").unwrap().starts_with("HTTP/1.1 503 "));
}

/// Without a limit of their number, idle connections would hold all places for seconds.
#[test]
fn idle_connections_do_not_block_requests() {
    let address = start(None, Some("weir_x 1\n# EOF\n"));
    let idle: Vec<TcpStream> = (0..100).map(|_| connect(address)).collect();
    let began = Instant::now();
    assert!(request(connect(address), "GET /metrics HTTP/1.1").unwrap().starts_with("HTTP/1.1 200 OK"));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    drop(idle);
}

#[test]
fn tls_serves_clients_with_a_certificate_of_the_authority_only() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("authority"), Authority::new("other"));
    let server = authority.write_files(folder.path(), "weir://agent/h0");
    let reader = authority.write_files(folder.path(), "weir://reader/prometheus");
    let address = start(Some(MetricsTls::read(&server).unwrap()), Some("weir_x 1\n"));
    let get = |files: &TlsFiles| request(tls_stream(address, files), "GET /metrics HTTP/1.1");
    assert!(get(&reader).unwrap().ends_with("weir_x 1\n"));
    let foreign = other.write_files_that_trust(&authority, folder.path(), "weir://reader/foreign");
    let expired = authority.write_expired_files(folder.path(), "weir://reader/expired");
    for files in [&foreign, &expired] {
        let answer = get(files);
        assert!(answer.is_err() || answer.as_ref().is_ok_and(String::is_empty), "{answer:?}");
    }
    let answer = request(connect(address), "GET /metrics HTTP/1.1");
    assert!(!answer.is_ok_and(|answer| answer.contains("weir_x")), "plain text was answered");
}
