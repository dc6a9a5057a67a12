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
use weir_agent::live::endpoint::CoordinatorEndpoint;
use weir_client::Coordinator;
use weir_proto::wire::AgentMessage;
use weir_proto::wire::control_client::ControlClient;

use crate::certificates::{Authority, CertifiedKey, client_config};
use crate::roles::SecureServer;

/// Longer than any step of these tests takes.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The end of validity of a short certificate, from now on, and a second for the connection to close.
const EXPIRED: Duration = Duration::from_secs(6);

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

/// The coordinator closes a connection without a reason.
#[test]
fn clients_name_the_certificate_whose_expiry_has_ended_their_events() {
    let operator = "weir://operator/ann";
    for (is_server_short, expected) in [(false, "this client"), (true, "the coordinator")] {
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        if is_server_short {
            authority.write_short_server_files(folder.path());
        } else {
            authority.write_server_files(folder.path());
        }
        let server = SecureServer::start_with(authority, folder, "");
        let authority = server.authority();
        let pair = if is_server_short {
            authority.client_certificate(&[operator])
        } else {
            authority.short_certificate(&[operator])
        };
        let files = tempfile::tempdir().unwrap();
        let [certificate, key, root] =
            ["client.pem", "client.key", "root.pem"].map(|name| files.path().join(name));
        fs::write(&certificate, pair.certificate).unwrap();
        fs::write(&key, pair.key).unwrap();
        fs::write(&root, authority.pem()).unwrap();
        let address = format!("localhost:{}", server.server().address.port());
        let coordinator = Coordinator::secure(&address, &certificate, &key, &root).unwrap();
        let mut events = coordinator.get_stream("/v1/events", Some(TIMEOUT)).unwrap();
        let error = events.read_to_end(&mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains(&format!("the certificate of {expected} has expired")), "{error}");
    }
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
pub fn write_agent_files(folder: &TempDir, pair: &CertifiedKey, authority: &Authority) -> [PathBuf; 3] {
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
        let endpoint = CoordinatorEndpoint::new(&address, Some([&certificate, &key, &authority])).unwrap();
        let mut control = ControlClient::new(endpoint.current().connect().await.unwrap());
        let (reports, receiver) = mpsc::channel(1);
        reports.send(AgentMessage::hello("a", vec![125_000_000], &[])).await.unwrap();
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

/// The value of a metric; 0 if it does not exist.
fn metric(server: &SecureServer, name: &str) -> f64 {
    let reader = server.client_with_identity("weir://reader/prometheus");
    let (status, text) = server.request(&reader, "GET", "/metrics", "").unwrap();
    assert_eq!(status, 200, "{text}");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

#[test]
fn failed_handshakes_are_counted_by_reason() {
    let server = SecureServer::new();
    let (authority, other) = (server.authority(), Authority::new());
    let name = &["weir://operator/ann"][..];
    let cases = [
        ("expired", Some(authority.expired_certificate(name))),
        ("not-yet-valid", Some(authority.future_certificate(name))),
        // Both authorities have the same name.
        ("unknown-authority", Some(other.client_certificate(name))),
        ("no-certificate", None),
        ("wrong-name", Some(authority.client_certificate(&["weir://root/ann"]))),
    ];
    for (reason, pair) in cases {
        let client = Arc::new(client_config(authority, pair));
        assert_eq!(server.request(&client, "GET", "/livez", ""), None);
        let count =
            metric(&server, &format!("weir_handshakes_failed_total{{port=\"api\",reason=\"{reason}\"}}"));
        assert_eq!(count, 1.0, "{reason}");
    }
    let answer = crate::api::send_raw(server.server(), b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(!answer.starts_with("HTTP"), "{answer}");
    // The client does not trust the authority of the server.
    let client = Arc::new(client_config(&other, Some(authority.client_certificate(name))));
    assert_eq!(server.request(&client, "GET", "/livez", ""), None);
    for reason in ["plain-text", "refused-by-peer"] {
        let count =
            metric(&server, &format!("weir_handshakes_failed_total{{port=\"api\",reason=\"{reason}\"}}"));
        assert_eq!(count, 1.0, "{reason}");
    }
    let seconds = metric(&server, "weir_certificate_expiry_seconds");
    assert!(seconds > 86_400.0, "{seconds}");
    let reader = metric(&server, "weir_peer_certificate_expiry_seconds{port=\"api\",role=\"reader\"}");
    assert!(reader > 86_400.0, "{reader}");
}

#[tokio::test]
async fn certificates_of_other_roles_are_counted_at_the_port_for_agents() {
    let (server, folder) = (SecureServer::new(), tempfile::tempdir().unwrap());
    let pair = server.authority().client_certificate(&["weir://framework/ads"]);
    let [certificate, key, authority] = write_agent_files(&folder, &pair, server.authority());
    let address = format!("localhost:{}", server.server().agents.port());
    let endpoint = CoordinatorEndpoint::new(&address, Some([&certificate, &key, &authority])).unwrap();
    let mut control = ControlClient::new(endpoint.current().connect().await.unwrap());
    let (_reports, receiver) = mpsc::channel(1);
    control.stream_orders(ReceiverStream::new(receiver)).await.unwrap_err();
    let name = "weir_handshakes_failed_total{port=\"agents\",reason=\"wrong-name\"}";
    // The client may have connected again.
    assert!(tokio::task::spawn_blocking(move || metric(&server, name)).await.unwrap() >= 1.0);
}

#[test]
fn new_certificate_of_the_coordinator_is_used_without_a_restart() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    authority.write_short_server_files(folder.path());
    let path = folder.path().to_owned();
    let server = SecureServer::start_with(authority, folder, "");
    let client = server.client_with_identity("weir://operator/ann");
    assert!(server.request(&client, "GET", "/livez", "").is_some());
    std::thread::sleep(EXPIRED);
    assert_eq!(server.request(&client, "GET", "/livez", ""), None);
    server.authority().write_server_files(&path);
    let began = Instant::now();
    while server.request(&client, "GET", "/livez", "").is_none() {
        assert!(began.elapsed() < TIMEOUT, "the new certificate is not used");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(metric(&server, "weir_certificate_reloads_total"), 1.0);
}
