//! TLS between relays.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::spawn;
use std::time::Duration;

use weir_client::{FlowReceiver, FlowSender, FlowTls, Route};
use weir_proto::relay::{RegionPair, RelayMatch, RelayPath, RelayRule, RuleScope};
use weir_relay::io::{Command, RelayTls, ServerSettings};
use weir_relay::message::RelayId;
use weir_tls::{HandshakeFailure, Tls, TlsFiles};

use crate::certificates::Authority;
use crate::test_relay::{
    TIMEOUT, TestRelay, connect_relays, connect_relays_with, overlay, random_bytes, settings, transfer,
    wait_until,
};

/// TLS with relays, and with programs also of this host.
fn relay_tls(files: &TlsFiles) -> RelayTls {
    let read = |protocol: &[u8]| Tls::read(files, protocol).unwrap();
    RelayTls { relays: read(b"weir-relay"), programs: Some(read(b"weir-flow").with_local(true)) }
}

fn name(relay: u16) -> String {
    format!("weir://relay/relay-{relay}")
}

/// TLS of relays 1 to `count`. Programs use plain text.
fn tls_of_relays(count: u16, authority: &Authority, folder: &Path) -> Vec<Option<RelayTls>> {
    let tls = |id| {
        let RelayTls { relays, programs } = relay_tls(&authority.write_files(folder, &name(id)));
        Some(RelayTls { relays, programs: programs.map(|tls| tls.with_local(false)) })
    };
    (1..=count).map(tls).collect()
}

#[test]
fn flows_of_all_sizes_arrive_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let relays = connect_relays(tls_of_relays(2, &Authority::new("own"), folder.path()), vec![]);
    transfer(&relays, &[1, 100, 20_000, 100_000, 1_000_000, 30_000_000]);
    wait_until(|| relays.iter().all(|relay| relay.status().flow_counts == (0, 0, 0)));
    assert_eq!(relays[1].status().used_bytes, (0, 0));
}

#[test]
fn flows_arrive_over_parallel_connections_with_tls() {
    let folder = tempfile::tempdir().unwrap();
    let tls = tls_of_relays(2, &Authority::new("own"), folder.path());
    let with_tls = |(id, tls): (_, Option<RelayTls>)| ServerSettings {
        connections: Some(3),
        tls: tls.map(Arc::new),
        ..settings(id)
    };
    let relays = connect_relays_with((1..).zip(tls).map(with_tls).collect(), vec![]);
    wait_until(|| relays[0].status().links[&RelayId(2)].connections == 3);
    transfer(&relays, &[1, 20_000, 30_000_000]);
    assert_eq!(relays[0].status().links[&RelayId(2)].failures, 0);
}

#[test]
fn split_and_prioritized_flows_arrive_over_three_relays_with_tls() {
    let paths =
        vec![RelayPath { next_region: 2, fraction: 0.5 }, RelayPath { next_region: 3, fraction: 0.5 }];
    let rule = |scope, priority, paths| RelayRule {
        flows: RelayMatch { coflow: 7, scope },
        priority,
        weight: 1.0,
        paths,
    };
    let rules = vec![
        rule(RuleScope::Pair(RegionPair { source: 1, destination: 2 }), 2, paths),
        // Overtakes the others over the express connection.
        rule(RuleScope::Flows { pair: None, first: 1, last: 1 }, 1, vec![]),
    ];
    let folder = tempfile::tempdir().unwrap();
    let relays = connect_relays(tls_of_relays(3, &Authority::new("own"), folder.path()), rules);
    transfer(&relays, &[30_000_000, 500_000, 1000]);
    let detour = relays[0].status().links[&RelayId(3)].counters;
    assert!(detour.detoured_bytes > 5_000_000, "{detour:?}");
}

/// Waits until relay 1, with these files, cannot connect to relay 2 for a reason that begins with `expected`. Attempts repeat, and relay 2
/// may close a connection before relay 1 knows the reason.
fn check_failure(first: Option<&TlsFiles>, second: Option<&TlsFiles>, expected: &str) {
    let start = |id: u16, files: Option<&TlsFiles>| {
        TestRelay::start(id, format!("127.{id}.0.1:0").parse().unwrap(), files.map(relay_tls))
    };
    let relays = [start(1, first), start(2, second)];
    let overlay = overlay(&relays, vec![]);
    relays.iter().for_each(|relay| relay.handle.send(Command::SetOverlay(overlay.clone())));
    let mut reasons = BTreeSet::new();
    wait_until(|| {
        reasons.extend(relays[0].status().links[&RelayId(2)].failure.clone());
        reasons.iter().any(|reason| reason.starts_with(expected))
    });
    assert!(!relays[0].status().links[&RelayId(2)].is_up, "{reasons:?}");
    // Relay 2 may have accepted relay 1 before relay 1 closed the connection.
    wait_until(|| !relays[1].status().links[&RelayId(1)].is_up);
}

#[test]
fn relays_with_other_certificates_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("own"), Authority::new("other"));
    let subfolder = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let [good, foreign, expired] = [subfolder("good"), subfolder("foreign"), subfolder("expired")];
    let good = |id| authority.write_files(&good, &name(id));
    let foreign = |id| other.write_files_that_trust(&authority, &foreign, &name(id));
    let expired = |id| authority.write_expired_files(&expired, &name(id));

    check_failure(Some(&good(1)), Some(&foreign(2)), "invalid peer certificate: UnknownIssuer");
    check_failure(Some(&foreign(1)), Some(&good(2)), "received fatal alert: UnknownCA");
    check_failure(Some(&good(1)), Some(&expired(2)), "invalid peer certificate: certificate expired");
    check_failure(Some(&expired(1)), Some(&good(2)), "received fatal alert: CertificateExpired");
    check_failure(
        Some(&good(1)),
        Some(&good(3)),
        "the certificate has the name weir://relay/relay-3; expected weir://relay/relay-2",
    );
    check_failure(Some(&good(3)), Some(&good(2)), "the other relay closed the connection");
    check_failure(
        Some(&good(1)),
        None,
        "the other relay closed the connection during the handshake; expected TLS; help: give the other relay \
         --certificate, --key and --authority",
    );
    check_failure(
        None,
        Some(&good(2)),
        "the other relay expects TLS; help: give this relay --certificate, --key and --authority",
    );
}

/// Forwards connections to an address. The first connection that carries `limit` bytes is cut after them.
fn start_cutting_proxy(target: SocketAddr, limit: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let cuts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&cuts);
    spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let Ok(mut output) = TcpStream::connect(target) else { continue };
            let mut answers = (output.try_clone().unwrap(), stream.try_clone().unwrap());
            spawn(move || {
                let _ = std::io::copy(&mut answers.0, &mut answers.1);
                let _ = answers.1.shutdown(Shutdown::Both);
            });
            let cuts = Arc::clone(&counted);
            spawn(move || {
                let mut limited = (&stream).take(limit as u64);
                let is_cut = std::io::copy(&mut limited, &mut output)
                    .is_ok_and(|length| length == limit as u64)
                    && cuts.fetch_add(1, Ordering::Relaxed) == 0;
                if !is_cut {
                    let _ = std::io::copy(&mut &stream, &mut output);
                }
                let _ = output.shutdown(Shutdown::Both);
                let _ = stream.shutdown(Shutdown::Both);
            });
        }
    });
    (address, cuts)
}

#[test]
fn flow_and_link_recover_from_a_cut_inside_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let mut relays = Vec::new();
    for (id, tls) in (1..).zip(tls_of_relays(2, &Authority::new("own"), folder.path())) {
        relays.push(TestRelay::start(id, format!("127.{id}.0.1:0").parse().unwrap(), tls));
    }
    // Records have up to 16 KiB of data.
    let (proxy, cuts) = start_cutting_proxy(relays[1].relays, 3_000_001);
    relays[1].relays = proxy;
    let overlay = overlay(&relays, vec![]);
    relays.iter().for_each(|relay| relay.handle.send(Command::SetOverlay(overlay.clone())));
    wait_until(|| relays.iter().all(|relay| relay.status().links.values().all(|link| link.is_up)));

    let receiver = FlowReceiver::bind("127.2.0.1:0").unwrap();
    let route = Route { relay: Some(relays[0].programs), receiver: receiver.address() };
    let bytes = random_bytes(1, 20_000_000);
    let sent = bytes.clone();
    let sender = spawn(move || {
        let mut sender = FlowSender::new("shuffle", 1, route).unwrap();
        sender.write_all(&sent).unwrap();
        sender.finish().unwrap();
    });
    let mut received = Vec::new();
    receiver.receive("shuffle", 1, TIMEOUT).unwrap().read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    assert!(received == bytes, "{} bytes", received.len());
    assert!(cuts.load(Ordering::Relaxed) > 0);
    wait_until(|| relays.iter().all(|relay| relay.status().links.values().all(|link| link.is_up)));
    transfer(&relays, &[1_000_000]);
}

#[test]
fn programs_of_the_host_may_use_plain_text_and_relays_may_not() {
    let folder = tempfile::tempdir().unwrap();
    let relays = connect_relays(tls_of_relays(2, &Authority::new("own"), folder.path()), vec![]);
    transfer(&relays, &[1000]);
    let mut stream = TcpStream::connect(relays[1].relays).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"weir-relay 1 1 1 2 bulk 7\n").unwrap();
    let mut answer = Vec::new();
    // The relay closes the connection, after an alert.
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.first(), Some(&0x15));
}

/// What a relay answers to a program with these files that asks for a flow to a port where no program listens.
fn answer(relay: &TestRelay, files: &TlsFiles) -> std::io::Result<String> {
    let socket = TcpStream::connect(relay.programs)?;
    socket.set_nonblocking(true)?;
    let mut session = Tls::read(files, b"weir-flow").unwrap().connect()?;
    let (mut is_sent, mut answer, mut bytes) = (false, Vec::new(), [0; 100]);
    let mut result = Ok(());
    wait_until(|| {
        let step = session.handshake(&socket).and_then(|_| {
            let line = b"weir-flow/2 shuffle 0 0 0 127.2.0.1:9\n";
            is_sent = is_sent || session.write(&socket, line)?.is_some();
            session.read(&socket, &mut bytes)
        });
        answer.extend_from_slice(&bytes[..step.as_ref().ok().copied().flatten().unwrap_or(0)]);
        let is_done = !matches!(step, Ok(None | Some(1..)));
        result = step.map(drop);
        is_done
    });
    result.map(|()| String::from_utf8(answer).unwrap())
}

#[test]
fn program_sends_flows_of_its_service_only() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("own"), Authority::new("other"));
    let tls = |id| Some(relay_tls(&authority.write_files(folder.path(), &name(id))));
    let relays = connect_relays(vec![tls(1), tls(2)], vec![]);
    let program = |name: &str| answer(&relays[0], &authority.write_files(folder.path(), name)).unwrap();
    assert_eq!(program("weir://framework/default"), "ack 0\nreset unreachable\n");
    for name in ["weir://framework/ads", "weir://relay/relay-1", "weir://operator/default"] {
        assert_eq!(program(name), "reset unknown-coflow\n", "{name}");
    }
    let foreign = other.write_files_that_trust(&authority, folder.path(), "weir://framework/foreign");
    let error = answer(&relays[0], &foreign).unwrap_err();
    assert_eq!(error.to_string(), "received fatal alert: UnknownCA");

    let mut plain = TcpStream::connect(relays[0].programs).unwrap();
    plain.set_read_timeout(Some(TIMEOUT)).unwrap();
    plain.write_all(b"weir-flow/2 shuffle 0 0 0 127.2.0.1:9\n").unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).unwrap();
    // An alert of TLS.
    assert_eq!(answer.first(), Some(&0x15));
}

#[test]
fn links_and_connections_of_programs_end_with_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("own");
    let long = |id| Some(relay_tls(&authority.write_files(folder.path(), &name(id))));
    let relays = connect_relays(vec![long(1), long(2)], vec![]);
    // A program that receives stays connected, and one that sends is idle.
    let program = authority.write_short_files(folder.path(), "weir://framework/default");
    let receiver = FlowReceiver::bind_with_tls("127.2.0.1:0", Some(program_tls(&program))).unwrap();
    let route = Route { relay: Some(relays[0].programs), receiver: receiver.address() };
    let mut sender = FlowSender::new("shuffle", 1, route).unwrap().with_tls(program_tls(&program));
    sender.write_all(&[7; 1000]).unwrap();
    sender.flush().unwrap();
    let mut received = [0; 1000];
    let mut flow = receiver.receive("shuffle", 1, TIMEOUT).unwrap();
    flow.read_exact(&mut received).unwrap();
    assert_eq!(relays[0].status().flow_counts.0, 1);
    wait_until(|| relays.iter().all(|relay| relay.status().flow_counts == (0, 0, 0)));
    assert!(Tls::read(&program, b"weir-flow").unwrap().expiry() <= std::time::SystemTime::now());
    assert!(relays[0].status().links[&RelayId(2)].is_up);
    drop((flow, relays));

    let short = relay_tls(&authority.write_short_files(folder.path(), &name(2)));
    let expiry = short.relays.expiry();
    let relays = connect_relays(vec![long(1), Some(short)], vec![]);
    wait_until(|| relays.iter().all(|relay| relay.status().links.values().all(|link| !link.is_up)));
    assert!(expiry <= std::time::SystemTime::now());
    let refused = "invalid peer certificate: certificate expired";
    wait_until(|| {
        let failure = relays[0].status().links[&RelayId(2)].failure.clone();
        failure.is_some_and(|failure| failure.starts_with(refused))
    });
    assert_eq!(relays[0].status().links[&RelayId(2)].failures, 1);
    let count = |relay: &TestRelay, failure| {
        relay.status().handshake_failures.iter().find(|(reason, _)| *reason == failure).unwrap().1
    };
    assert!(count(&relays[0], HandshakeFailure::Expired) > 0);
    assert!(count(&relays[1], HandshakeFailure::RefusedByPeer) > 0);
    // The new certificate is used without a restart.
    let new = relay_tls(&authority.write_files(folder.path(), &name(2)));
    relays[1].handle.send(Command::SetTls(new));
    wait_until(|| relays.iter().all(|relay| relay.status().links.values().all(|link| link.is_up)));
}

/// TLS of a program, also inside this host.
fn program_tls(files: &TlsFiles) -> FlowTls {
    FlowTls::new(&files.certificate, &files.key, &files.clients).unwrap().with_local()
}

fn send_over_tls(route: Route, flow: u32, bytes: &[u8], tls: FlowTls) -> std::io::Result<u64> {
    let mut sender = FlowSender::new("shuffle", flow, route)?.with_tls(tls);
    sender.write_all(bytes)?;
    Ok(sender.finish()?.bytes)
}

/// Relays 1 and 2 that require TLS of programs, and the files of a program of the coflow's service.
fn start_strict_relays(folder: &Path, authority: &Authority) -> (Vec<TestRelay>, TlsFiles) {
    let tls = |id| Some(relay_tls(&authority.write_files(folder, &name(id))));
    let relays = connect_relays(vec![tls(1), tls(2)], vec![]);
    (relays, authority.write_files(folder, "weir://framework/default"))
}

#[test]
fn flows_arrive_over_tls_from_program_to_program() {
    let folder = tempfile::tempdir().unwrap();
    let (relays, files) = start_strict_relays(folder.path(), &Authority::new("own"));
    let tls = program_tls(&files);
    let receiver = FlowReceiver::bind_with_tls("127.2.0.1:0", Some(tls.clone())).unwrap();
    let sizes = [0, 1, 1000, 100_000, 1_000_000, 20_000_000];
    let flows = || (0..).zip(sizes).map(|(flow, size)| (flow, random_bytes(flow.into(), size)));
    std::thread::scope(|scope| {
        for (flow, bytes) in flows() {
            let route = Route { relay: Some(relays[0].programs), receiver: receiver.address() };
            let tls = tls.clone();
            scope.spawn(move || send_over_tls(route, flow, &bytes, tls).unwrap());
        }
        for (flow, bytes) in flows() {
            let mut received = Vec::new();
            receiver.receive("shuffle", flow, TIMEOUT).unwrap().read_to_end(&mut received).unwrap();
            assert!(received == bytes, "flow {flow}: {} of {} bytes", received.len(), bytes.len());
        }
    });
    let sent = relays[0].status().links[&RelayId(2)].counters.sent_bytes;
    assert!(sent > 21_101_001, "{sent}");
}

#[test]
fn flow_over_tls_goes_directly_without_a_relay() {
    let folder = tempfile::tempdir().unwrap();
    let tls = program_tls(&Authority::new("own").write_files(folder.path(), "weir://framework/default"));
    let receiver = FlowReceiver::bind_with_tls("127.0.0.1:0", Some(tls.clone())).unwrap();
    let route = Route::direct(receiver.address()).unwrap();
    let sender = spawn(move || send_over_tls(route, 1, &random_bytes(1, 3_000_000), tls));
    let mut received = Vec::new();
    receiver.receive("shuffle", 1, TIMEOUT).unwrap().read_to_end(&mut received).unwrap();
    assert!(received == random_bytes(1, 3_000_000));
    assert_eq!(sender.join().unwrap().unwrap(), 3_000_000);
}

#[test]
fn sender_refuses_a_receiver_of_another_service_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("own");
    let own = program_tls(&authority.write_files(folder.path(), "weir://framework/default"));
    let ads = program_tls(&authority.write_files(folder.path(), "weir://framework/ads"));
    let receiver = FlowReceiver::bind_with_tls("127.0.0.1:0", Some(ads)).unwrap();
    let route = Route::direct(receiver.address()).unwrap();
    let error = send_over_tls(route, 1, b"secret", own).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert_eq!(
        error.to_string(),
        "flow 1 of coflow `shuffle`: the sender refuses the receiver: the certificate has the name \
         weir://framework/ads; expected weir://framework/default"
    );
    let other = Authority::new("other").write_files(folder.path(), "weir://framework/default");
    let receiver = FlowReceiver::bind_with_tls("127.0.0.1:0", Some(program_tls(&other))).unwrap();
    let own = program_tls(&authority.write_files(folder.path(), "weir://framework/default"));
    let error = send_over_tls(Route::direct(receiver.address()).unwrap(), 1, b"secret", own).unwrap_err();
    assert!(
        error.to_string().ends_with("refuses the receiver: invalid peer certificate: UnknownIssuer"),
        "{error}"
    );
}

#[test]
fn program_of_another_service_neither_receives_nor_sends() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("own");
    let (relays, files) = start_strict_relays(folder.path(), &authority);
    let (own, ads) =
        (program_tls(&files), program_tls(&authority.write_files(folder.path(), "weir://framework/ads")));
    for (sender_tls, receiver_tls) in
        [(Some(own.clone()), Some(ads.clone())), (Some(ads), Some(own.clone())), (None, Some(own))]
    {
        let receiver = FlowReceiver::bind_with_tls("127.2.0.1:0", receiver_tls).unwrap();
        let route = Route { relay: Some(relays[0].programs), receiver: receiver.address() };
        spawn(move || {
            let mut sender = FlowSender::new("shuffle", 1, route).unwrap();
            if let Some(tls) = sender_tls {
                sender = sender.with_tls(tls);
            }
            sender.write_all(b"secret").and_then(|()| sender.finish().map(drop))
        });
        let error = receiver.receive("shuffle", 1, Duration::from_millis(1500)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}

/// Receives flow 1, sends it back as flow 2, and prints its port before. The arguments are the files, the relay and the receiver.
const ECHO: &str = "import sys
from weir import FlowReceiver, FlowSender, FlowTls, Route
tls = FlowTls(*sys.argv[1:4], include_local=True)
address = lambda text: (text.rpartition(':')[0], int(text.rpartition(':')[2]))
with FlowReceiver(('127.2.0.1', 0), tls=tls) as receiver:
    print(receiver.address[1], flush=True)
    route = Route(address(sys.argv[5]), address(sys.argv[4]))
    with FlowSender('shuffle', 2, route, tls=tls) as sender:
        with receiver.receive('shuffle', 1, timeout=20) as flow:
            while data := flow.read(50_000):
                sender.write(data)
";

#[test]
fn rust_and_python_exchange_flows_over_relays_with_tls() {
    let version =
        Process::new("python3").args(["-c", "import sys; sys.exit(sys.version_info < (3, 10))"]).status();
    if !version.is_ok_and(|status| status.success()) {
        eprintln!("test of Python over TLS skips, since Python 3.10 is missing");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (relays, files) = start_strict_relays(folder.path(), &Authority::new("own"));
    let tls = program_tls(&files);
    let receiver = FlowReceiver::bind_with_tls("127.1.0.1:0", Some(tls.clone())).unwrap();
    let mut echo = Process::new("timeout")
        .args(["60", "python3", "-B", "-W", "error", "-c", ECHO])
        .args([&files.certificate, &files.key, &files.clients])
        .args([relays[1].programs.to_string(), receiver.address().to_string()])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(echo.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let target = format!("127.2.0.1:{}", line.trim()).parse().unwrap();
    let route = Route { relay: Some(relays[0].programs), receiver: target };
    let bytes = random_bytes(1, 3_000_000);
    let sent = bytes.clone();
    let sender = spawn(move || send_over_tls(route, 1, &sent, tls).unwrap());
    let mut received = Vec::new();
    receiver.receive("shuffle", 2, TIMEOUT).unwrap().read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    assert!(received == bytes && echo.wait().unwrap().success());
    for (from, to) in [(0, 2), (1, 1)] {
        let sent = relays[from].status().links[&RelayId(to)].counters.sent_bytes;
        assert!(sent > 3_000_000, "{sent} bytes to relay {to}");
    }
}
