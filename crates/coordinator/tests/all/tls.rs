//! Tests of authentication, with real certificates over real sockets.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::certificates::{Authority, client_config};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use weir_coordinator::admission::{Admission, Quota};
use weir_coordinator::config::TlsFiles;
use weir_coordinator::identity::Identity;
use weir_coordinator::listener;
use weir_coordinator::peers::Peers;
use weir_coordinator::tls::{Port, ServerTls, read_certificate};

/// Longer than any step of these tests takes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Admission with this limit, and one probe.
fn admission_with_total(total: usize) -> Arc<Admission> {
    Admission::new(Quota { total, reserved: 0, per_address: total, per_identity: total, probes: 1 })
}

/// The identity that the server sees for a client with this certificate; `None` if the client is refused.
async fn identity_seen_by_server(files: &TlsFiles, config: rustls::ClientConfig) -> Option<Identity> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut peers = listener::accept_peers(
        listener,
        Some(read_certificate(files).unwrap()),
        admission_with_total(2),
        Peers::new(Port::Api),
    );
    let client = tokio::spawn(async move {
        let socket = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
        stream.write_all(b"hello").await?;
        // With TLS 1.3, a client detects its refusal when it reads.
        stream.read_u8().await
    });
    let peer = tokio::select! {
        peer = peers.recv() => peer,
        refused = client => {
            refused.unwrap().unwrap_err();
            return None;
        }
    };
    let mut peer = peer.unwrap();
    let mut bytes = [0; 5];
    timeout(TIMEOUT, peer.stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(&bytes, b"hello");
    Some(peer.identity)
}

#[tokio::test]
async fn identity_is_read_from_the_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = authority.write_server_files(folder.path());
    let name = "weir://framework/ads";
    let found = identity_seen_by_server(
        &files,
        client_config(&authority, Some(authority.client_certificate(&[name]))),
    )
    .await;
    assert_eq!(found, Some(Identity::Framework("ads".to_owned())));
    // A certificate may have names of other schemes.
    let spiffe = authority.client_certificate(&["spiffe://cluster/agent", "weir://agent/node-1"]);
    let found = identity_seen_by_server(&files, client_config(&authority, Some(spiffe))).await;
    assert_eq!(found, Some(Identity::Agent("node-1".to_owned())));
}

#[tokio::test]
async fn missing_or_untrusted_identities_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = authority.write_server_files(folder.path());
    assert_eq!(identity_seen_by_server(&files, client_config(&authority, None)).await, None);
    for names in
        [&[][..], &["weir://root/x"], &["weir://agent/a", "weir://operator/b"], &["weir://agent/a b"]]
    {
        assert_eq!(
            identity_seen_by_server(
                &files,
                client_config(&authority, Some(authority.client_certificate(names)))
            )
            .await,
            None,
            "{names:?}"
        );
    }
    let name = "weir://operator/eve";
    let other_authority = Authority::new();
    assert_eq!(
        identity_seen_by_server(
            &files,
            client_config(&authority, Some(other_authority.client_certificate(&[name])))
        )
        .await,
        None
    );
    assert_eq!(
        identity_seen_by_server(
            &files,
            client_config(&authority, Some(authority.expired_certificate(&[name])))
        )
        .await,
        None
    );
}

#[tokio::test]
async fn connections_over_the_limit_are_probes_and_a_new_one_closes_the_oldest() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut peers = listener::accept_peers(listener, None, admission_with_total(2), Peers::new(Port::Api));
    let mut clients = Vec::new();
    let mut accepted = Vec::new();
    for _ in 0..4 {
        clients.push(TcpStream::connect(address).await.unwrap());
        accepted.push(timeout(TIMEOUT, peers.recv()).await.unwrap().unwrap());
    }
    assert!(accepted.iter().all(|peer| peer.identity == Identity::Local));
    assert_eq!(
        accepted.iter().map(|peer| peer.close_signal.is_some()).collect::<Vec<_>>(),
        [false, false, true, true]
    );
    let closed = accepted[2].close_signal.clone().unwrap();
    timeout(TIMEOUT, closed.notified()).await.unwrap();
    drop(accepted);
    clients.push(TcpStream::connect(address).await.unwrap());
    assert!(timeout(TIMEOUT, peers.recv()).await.unwrap().unwrap().close_signal.is_none());
}

/// A client that opens a connection and sends nothing is disconnected.
#[tokio::test]
async fn incomplete_handshake_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let files = Authority::new().write_server_files(folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let _peers = listener::accept_peers(
        listener,
        Some(read_certificate(&files).unwrap()),
        admission_with_total(1),
        Peers::new(Port::Api),
    );
    let mut socket = TcpStream::connect(address).await.unwrap();
    let ended = timeout(listener::HANDSHAKE_TIMEOUT * 3, socket.read_u8()).await.expect("it ends");
    assert!(ended.is_err());
}

#[test]
fn errors_name_the_invalid_file() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let good = authority.write_server_files(folder.path());
    let bad = folder.path().join("bad.pem");
    fs::write(&bad, "no PEM").unwrap();
    let other = Authority::new().write_server_files(&{
        let other = folder.path().join("other");
        fs::create_dir(&other).unwrap();
        other
    });
    let cases = [
        (
            TlsFiles { certificate: bad.clone(), ..good.clone() },
            "bad.pem: cannot be used; expected certificates in PEM",
        ),
        (
            TlsFiles { key: bad.clone(), ..good.clone() },
            "bad.pem: cannot be used; expected a private key in PEM",
        ),
        (
            TlsFiles { clients: bad.clone(), ..good.clone() },
            "bad.pem: cannot be used; expected certificates of authorities",
        ),
        (
            TlsFiles { clients: folder.path().join("none"), ..good.clone() },
            "none: cannot be used; expected certificates of",
        ),
        (TlsFiles { key: other.key, ..good.clone() }, "server.key: "),
    ];
    for (files, expected) in cases {
        let error = ServerTls::read(&files).err().unwrap().to_string();
        assert!(error.contains(expected), "expected\n{expected}\nin\n{error}");
    }
}
