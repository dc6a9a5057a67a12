//! Both ends of a connection over real sockets.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use weir_tls::{
    ConnectionExpired, Tls, TlsFiles, TlsSession, chain_expiry, check_own_certificate, check_validity,
};

use crate::certificates::Authority;

const TIMEOUT: Duration = Duration::from_secs(20);

/// The two ends of a connection, which do not block.
fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    client.set_nonblocking(true).unwrap();
    server.set_nonblocking(true).unwrap();
    (client, server)
}

/// Calls until the result is not `None`.
fn poll<T>(mut call: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = call()? {
            return Ok(value);
        }
        assert!(start.elapsed() < TIMEOUT, "nothing happens");
        sleep(Duration::from_micros(100));
    }
}

fn handshake(session: &mut TlsSession, socket: &TcpStream) -> io::Result<()> {
    poll(|| Ok(session.handshake(socket)?.then_some(())))
}

/// The end of a handshake at the client, which learns at its first read whether the server accepted it, and at the server.
fn ends(client: &TlsFiles, server: &TlsFiles) -> (String, String) {
    let (client, server) = (Tls::read(client, b"test").unwrap(), Tls::read(server, b"test").unwrap());
    let (client_socket, server_socket) = sockets();
    let server = spawn(move || {
        let mut session = server.accept().unwrap();
        match handshake(&mut session, &server_socket) {
            Ok(()) => {
                let name = session.peer_name();
                poll(|| session.write(&server_socket, b"x")).unwrap();
                name.unwrap_or_else(|error| error.to_string())
            }
            Err(error) => error.to_string(),
        }
    });
    let mut session = client.connect().unwrap();
    let read = handshake(&mut session, &client_socket)
        .and_then(|()| poll(|| session.read(&client_socket, &mut [0])));
    let client = match read {
        Ok(_) => session.peer_name().unwrap(),
        Err(error) => error.to_string(),
    };
    (client, server.join().unwrap())
}

#[test]
fn both_ends_see_the_name_of_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("own");
    let relay = authority.write_files(folder.path(), "weir://relay/west");
    let program = authority.write_files(folder.path(), "weir://framework/ads");
    let names = ("weir://relay/west".to_owned(), "weir://framework/ads".to_owned());
    assert_eq!(ends(&program, &relay), names);
    assert_eq!(Tls::read(&program, b"test").unwrap().name(), names.1);
}

#[test]
fn unknown_authorities_and_expired_certificates_are_refused_at_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("own"), Authority::new("other"));
    let good = authority.write_files(folder.path(), "weir://relay/west");
    let foreign = other.write_files_that_trust(&authority, folder.path(), "weir://relay/foreign");
    let expired = authority.write_expired_files(folder.path(), "weir://relay/expired");
    let cases = [
        (&foreign, &good, "received fatal alert: UnknownCA", "invalid peer certificate: UnknownIssuer"),
        (&good, &foreign, "invalid peer certificate: UnknownIssuer", "received fatal alert: UnknownCA"),
        (
            &expired,
            &good,
            "received fatal alert: CertificateExpired",
            "invalid peer certificate: certificate expired",
        ),
        (
            &good,
            &expired,
            "invalid peer certificate: certificate expired",
            "received fatal alert: CertificateExpired",
        ),
    ];
    for (client, server, client_error, server_error) in cases {
        let (found_client, found_server) = ends(client, server);
        assert!(found_client.starts_with(client_error), "{found_client}");
        assert!(found_server.starts_with(server_error), "{found_server}");
    }
}

#[test]
fn own_certificate_must_be_valid_and_signed_by_the_authority() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("own"), Authority::new("other"));
    check_own_certificate(&authority.write_files(folder.path(), "weir://relay/west")).unwrap();
    let expired = authority.write_expired_files(folder.path(), "weir://relay/expired");
    let error = check_own_certificate(&expired).unwrap_err().to_string();
    let start = format!("{}: the certificate has expired; expected", expired.certificate.display());
    assert!(error.starts_with(&start), "{error}");
    let foreign = other.write_files_that_trust(&authority, folder.path(), "weir://relay/foreign");
    let error = check_own_certificate(&foreign).unwrap_err().to_string();
    let (certificate, authorities) = (foreign.certificate.display(), foreign.clients.display());
    assert!(
        error.starts_with(&format!("{certificate}: no authority in {authorities} has signed")),
        "{error}"
    );
}

#[test]
fn validity_is_checked_for_certificates_of_any_authority() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("own"), Authority::new("other"));
    check_validity(&authority.write_files(folder.path(), "weir://relay/west")).unwrap();
    check_validity(&other.write_files_that_trust(&authority, folder.path(), "weir://relay/foreign")).unwrap();
    let expired = [
        authority.write_expired_files(folder.path(), "weir://relay/expired"),
        other.write_expired_files_that_trust(&authority, folder.path(), "weir://relay/both"),
    ];
    for files in expired {
        let error = check_validity(&files).unwrap_err().to_string();
        let start = format!("{}: the certificate has expired; expected", files.certificate.display());
        assert!(error.starts_with(&start), "{error}");
    }
}

#[test]
fn plain_text_is_refused_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let tls =
        Tls::read(&Authority::new("own").write_files(folder.path(), "weir://relay/west"), b"test").unwrap();
    for mut session in [tls.accept().unwrap(), tls.connect().unwrap()] {
        let (mut client, server) = sockets();
        client.write_all(b"weir-flow/2 shuffle 0 0 0 10.0.0.3:7000\n").unwrap();
        let error = handshake(&mut session, &server).unwrap_err();
        assert_eq!(error.to_string(), "received corrupt message of type InvalidContentType");
    }
    let (client, server) = sockets();
    drop(client);
    let error = handshake(&mut tls.accept().unwrap(), &server).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn data_arrives_complete_through_full_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let tls =
        Tls::read(&Authority::new("own").write_files(folder.path(), "weir://relay/west"), b"test").unwrap();
    let sent: Vec<u8> = (0..5_000_000u32).map(|at| (at / 7) as u8).collect();
    let (client, server) = sockets();
    let (mut client_session, mut server_session) = (tls.connect().unwrap(), tls.accept().unwrap());
    let expected = sent.clone();
    let writer = spawn(move || {
        handshake(&mut client_session, &client).unwrap();
        let mut rest = &sent[..];
        while !rest.is_empty() {
            rest = &rest[poll(|| client_session.write(&client, rest)).unwrap()..];
        }
        client_session.end();
        poll(|| Ok(client_session.flush(&client)?.then_some(()))).unwrap();
    });
    let (mut received, mut bytes) = (Vec::new(), vec![0; 100_000]);
    loop {
        match poll(|| server_session.read(&server, &mut bytes)).unwrap() {
            0 => break,
            length => received.extend_from_slice(&bytes[..length]),
        }
    }
    writer.join().unwrap();
    assert!(received == expected);
}

#[test]
fn sessions_end_with_the_first_certificate_that_expires() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("own");
    let read = |files| Tls::read(&files, b"test").unwrap();
    let long = read(authority.write_files(folder.path(), "weir://relay/west"));
    let short = read(authority.write_short_files(folder.path(), "weir://relay/east"));
    assert_eq!(long.expiry(), UNIX_EPOCH + Duration::from_secs(64_060_588_800 + 1));
    let mut ends = Vec::new();
    for (client, server) in [(&long, &short), (&short, &long)] {
        let (client_socket, server_socket) = sockets();
        let (mut client, mut server) = (client.connect().unwrap(), server.accept().unwrap());
        let accepted = spawn(move || {
            handshake(&mut server, &server_socket).unwrap();
            (server, server_socket)
        });
        handshake(&mut client, &client_socket).unwrap();
        ends.extend([(client, client_socket), accepted.join().unwrap()]);
    }
    for (session, socket) in &mut ends {
        assert_eq!(session.expiry(), Some(short.expiry()));
        assert_eq!(session.write(socket, b"x").unwrap(), Some(1));
    }
    sleep(short.expiry().duration_since(SystemTime::now()).unwrap_or_default());
    for (session, socket) in &mut ends {
        for error in [session.write(socket, b"x").err(), session.read(socket, &mut [0]).err()] {
            let error = error.unwrap();
            assert!(error.get_ref().unwrap().is::<ConnectionExpired>(), "{error}");
        }
    }
}

#[test]
fn chain_ends_with_its_first_certificate_that_still_counts() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("own");
    let certificate = |files: TlsFiles| CertificateDer::from_pem_file(files.certificate).unwrap();
    let long = certificate(authority.write_files(folder.path(), "weir://relay/long"));
    let short = certificate(authority.write_short_files(folder.path(), "weir://relay/short"));
    let expired = certificate(authority.write_expired_files(folder.path(), "weir://relay/expired"));
    let expiry = |chain: &[&CertificateDer<'static>]| {
        let chain: Vec<_> = chain.iter().map(|&certificate| certificate.clone()).collect();
        chain_expiry(&chain)
    };
    let [long_end, short_end, expired_end] = [&long, &short, &expired].map(|end| expiry(&[end]));
    assert!(expired_end < SystemTime::now() && SystemTime::now() < short_end && short_end < long_end);
    assert_eq!(expiry(&[&long, &short]), short_end);
    // An expired intermediate certificate was not needed.
    assert_eq!(expiry(&[&long, &expired]), long_end);
    assert_eq!(expiry(&[&expired, &long]), expired_end);
    assert_eq!(expiry(&[&CertificateDer::from(vec![0x30, 0]), &long]), UNIX_EPOCH);
    assert_eq!(expiry(&[]), UNIX_EPOCH);
}

#[test]
fn connections_inside_a_host_are_exempt_unless_requested() {
    let folder = tempfile::tempdir().unwrap();
    let tls =
        Tls::read(&Authority::new("own").write_files(folder.path(), "weir://relay/west"), b"test").unwrap();
    let applies = |tls: &Tls, local: &str, remote: &str| {
        let address = |ip: &str| Ok(SocketAddr::new(ip.parse().unwrap(), 80));
        tls.applies_to(address(local), address(remote))
    };
    let inside = [
        ("127.0.0.1", "127.1.2.3"),
        ("10.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ];
    for (local, remote) in inside {
        assert!(!applies(&tls, local, remote), "{local} {remote}");
        assert!(applies(&tls.clone().with_local(true), local, remote), "{local} {remote}");
    }
    for (local, remote) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        assert!(applies(&tls, local, remote), "{local} {remote}");
    }
    let unknown = || Err(io::ErrorKind::NotConnected.into());
    assert!(tls.applies_to(unknown(), Ok(SocketAddr::from(([127, 0, 0, 1], 80)))));
}

#[test]
fn certificate_without_a_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = Authority::new("own").write_files(folder.path(), "spiffe://cluster/agent");
    let error = Tls::read(&files, b"test").unwrap_err().to_string();
    assert!(error.contains("expected a certificate with a name `weir://ROLE/NAME`"), "{error}");
}
