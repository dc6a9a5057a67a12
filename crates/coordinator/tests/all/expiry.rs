//! Tests of connections whose certificates expire.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::HandshakeKind;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use weir_agent::live::endpoint::endpoint;
use weir_proto::wire::AgentMessage;
use weir_proto::wire::control_client::ControlClient;

use crate::certificates::{Authority, CertifiedKey, client_config};
use crate::roles::SecureServer;

/// Longer than any step of these tests takes.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The end of validity of a short certificate, from now on, and a second for the connection to close.
const EXPIRED: Duration = Duration::from_secs(4);

const REQUEST: &[u8] = b"GET /v1/coflows HTTP/1.1\r\nhost: x\r\n\r\n";
const EVENTS: &[u8] = b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n";

/// Sends a request over a new connection of this client, and reads until the server closes the connection. Returns the answer,
/// and how long the connection was open.
fn read_until_closed(
    server: &SecureServer,
    client: &Arc<rustls::ClientConfig>,
    request: &[u8],
) -> (String, Duration) {
    let began = Instant::now();
    let mut stream = server.connect(client);
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    // The server may close without an alert.
    let end = stream.read_to_end(&mut answer);
    let is_timeout = end.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(!is_timeout, "the connection stays open");
    (String::from_utf8(answer).unwrap(), began.elapsed())
}

#[test]
fn keep_alive_connections_and_event_streams_end_with_the_clients_certificate() {
    let server = SecureServer::new();
    for request in [REQUEST, EVENTS] {
        let pair = server.authority().short_certificate(&["weir://operator/ann"]);
        let client = Arc::new(client_config(server.authority(), Some(pair)));
        let (answer, time) = read_until_closed(&server, &client, request);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(time < EXPIRED, "{time:?}");
        // The client's configuration could resume the session.
        let mut stream = server.connect(&client);
        let refused = stream.write_all(REQUEST).and_then(|()| stream.read_to_end(&mut Vec::new()));
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("CertificateExpired"), "{error}");
    }
}

#[test]
fn connections_end_with_the_certificate_of_the_coordinator() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    authority.write_short_server_files(folder.path());
    let server = SecureServer::start_with(authority, folder, "");
    let client = server.client_with_identity("weir://operator/ann");
    let (answer, time) = read_until_closed(&server, &client, REQUEST);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(time < EXPIRED, "{time:?}");
}

#[test]
fn sessions_are_not_resumed() {
    let server = SecureServer::new();
    let client = server.client_with_identity("weir://operator/ann");
    for _ in 0..3 {
        let mut stream = server.connect(&client);
        stream.write_all(&crate::api::request_bytes("GET", "/livez", b"")).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.starts_with(b"HTTP/1.1 200 "));
        assert_eq!(stream.conn.handshake_kind(), Some(HandshakeKind::Full));
        assert_eq!(stream.conn.tls13_tickets_received(), 0);
    }
}

/// Files of an agent's certificate, its key and the authority.
fn write_agent_files(folder: &TempDir, pair: &CertifiedKey, authority: &Authority) -> [PathBuf; 3] {
    [("agent.pem", &pair.certificate), ("agent.key", &pair.key), ("agent-authority.pem", &authority.pem())]
        .map(|(name, text)| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        })
}

#[tokio::test]
async fn agent_streams_end_with_the_certificate_and_begin_again_with_a_new_one() {
    let (server, folder) = (SecureServer::new(), tempfile::tempdir().unwrap());
    let address = format!("localhost:{}", server.server().agents.port());
    let open = async |pair: CertifiedKey| {
        let [certificate, key, authority] = write_agent_files(&folder, &pair, server.authority());
        let endpoint = endpoint(&address, Some([&certificate, &key, &authority])).unwrap();
        let mut control = ControlClient::new(endpoint.connect().await.unwrap());
        let (reports, receiver) = mpsc::channel(1);
        reports.send(AgentMessage::hello(0, vec![125_000_000])).await.unwrap();
        let answer = control.stream_orders(ReceiverStream::new(receiver)).await?;
        Ok::<_, tonic::Status>((reports, answer.into_inner()))
    };
    let short = server.authority().short_certificate(&["weir://agent/a"]);
    let again = CertifiedKey { certificate: short.certificate.clone(), key: short.key.clone() };
    let began = Instant::now();
    let (reports, mut orders) = open(short).await.unwrap();
    // The agent reports, so the stream does not end because of silence.
    let keep = tokio::spawn(async move {
        while reports.send(AgentMessage::report(&weir_proto::Report::default())).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let end = timeout(TIMEOUT, async { while let Ok(Some(_)) = orders.message().await {} }).await;
    end.expect("the stream ends");
    let time = began.elapsed();
    assert!(time > Duration::from_secs(1) && time < EXPIRED, "{time:?}");
    timeout(TIMEOUT, keep).await.unwrap().unwrap();
    open(again).await.map(drop).unwrap_err();
    open(server.authority().client_certificate(&["weir://agent/a"])).await.map(drop).unwrap();
}
