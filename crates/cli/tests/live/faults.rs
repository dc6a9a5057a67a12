//! Killed processes and network partitions, with `weir serve`, `weir agent run` and real flows on a testbed.
//! All connections use TLS.
//! The tests skip without the privileges for a testbed.

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bed::{Bed, Flow, LINE, PORT, Process, Wire, address, in_namespace, shares};
use crate::campaign::campaign;
use crate::certificates::{Authority, Pair, client};
use crate::common::wait_for;
use crate::kernel::{Speed, pace};
use crate::turn;
use rustix::net;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tokio_stream::StreamExt;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use weir_client::Agent;
use weir_proto::wire::control_client::ControlClient;
use weir_proto::wire::{Down, Up, down::What};
use weir_proto::{Arrival, Demand, FlowKey, FlowProgress, Found, Mark, Order, Pace, Refusals, Report, Way};

/// The last host runs the coordinator.
const HOSTS: u32 = 7;
const COORDINATOR: u32 = HOSTS - 1;

/// Longer than a partition of a second and the transport's recovery after it.
const LEASE: Duration = Duration::from_secs(4);

/// Two pairs of flows, each pair from one sender. The second flow of a pair waits for the first: no coflow
/// sends enough bytes for a lower priority.
const FLOWS: [Flow; 4] =
    [("a", 0, 0, 2, 1e12), ("b", 0, 0, 3, 1e12), ("c", 0, 1, 4, 1e12), ("d", 0, 1, 5, 1e12)];

/// A testbed, and the certificate authority of its processes.
struct World {
    bed: Bed,
    authority: Authority,
}

impl World {
    fn up(test: &str) -> Option<World> {
        let bed = Bed::up(test, HOSTS)?;
        let authority = Authority::new();
        let here = address(COORDINATOR).to_string();
        authority.server_at(&bed.place.path(""), &[&here]);
        let mut config = format!(
            "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"saath:start=1TB\"\nlease = \"{}s\"\n\
             [listen]\nagents = \"{here}:{PORT}\"\napi = \"{here}:{}\"\n\
             [tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nclients = \"authority.pem\"\n[host]\n",
            LEASE.as_secs(),
            PORT + 1,
        );
        (0..HOSTS).for_each(|host| config += &format!("h{host} = \"40Mbit\"\n"));
        bed.place.write("serve.toml", &config);
        Some(World { bed, authority })
    }

    /// Starts a coordinator, and registers the coflows of these flows.
    fn serve(&self, flows: &[Flow]) -> Process {
        let mut command = self.bed.inside(COORDINATOR, Path::new(env!("CARGO_BIN_EXE_weir")));
        command.args(["serve", "--config"]).arg(self.bed.place.path("serve.toml")).stderr(Stdio::null());
        let process = Process(command.spawn().unwrap());
        wait_for("the coordinator", || self.ask("GET", "/readyz", "").is_some());
        for (coflow, _, src, dst, _) in flows {
            let body = format!("{{\"flows\": [{{\"from\": \"h{src}\", \"to\": \"h{dst}\"}}]}}");
            let answer = self.ask("PUT", &format!("/v1/coflows/{coflow}"), &body).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        process
    }

    /// The answer to an operator's request; none without a coordinator.
    fn ask(&self, method: &str, path: &str, body: &str) -> Option<String> {
        let config = client(&self.authority, Some(self.authority.signed(&["weir://operator/test"])));
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        in_namespace(&self.bed.namespace(COORDINATOR), move || {
            let here = address(COORDINATOR);
            let socket = TcpStream::connect((here, PORT + 1)).ok()?;
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let name = ServerName::try_from(here.to_string()).unwrap();
            let connection = ClientConnection::new(Arc::new(config), name).unwrap();
            let mut stream = StreamOwned::new(connection, socket);
            stream.write_all(request.as_bytes()).ok()?;
            let mut answer = Vec::new();
            // The server may close the connection without a TLS close_notify.
            let _ = stream.read_to_end(&mut answer);
            (!answer.is_empty()).then(|| String::from_utf8(answer).unwrap())
        })
    }

    /// Whether two hosts have applied an order of the running coordinator.
    fn obey(&self, hosts: [usize; 2]) -> bool {
        let answer = self.ask("GET", "/v1/hosts", "").unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let found: serde_json::Value = serde_json::from_str(body).unwrap();
        hosts.iter().all(|host| found[host]["applied"].as_u64().unwrap() > 0)
    }

    /// Starts the agent of `host` with a certificate for `certified`, and logs to a file.
    fn agent(&self, host: u32, certified: u32) -> Process {
        let Pair { certificate, key } = self.authority.signed(&[&format!("weir://agent/h{certified}")]);
        self.bed.place.write(&format!("{host}.pem"), &certificate);
        self.bed.place.write(&format!("{host}.key"), &key);
        let mut command = self.bed.agent(host);
        let file = |name: String| self.bed.place.path(&name);
        command.arg("--certificate").arg(file(format!("{host}.pem")));
        command.arg("--key").arg(file(format!("{host}.key")));
        command.arg("--authority").arg(file("authority.pem".to_owned()));
        command.stderr(fs::File::create(file(format!("said{host}"))).unwrap());
        let process = Process(command.spawn().unwrap());
        // An agent that was killed leaves its local socket behind, without a listener.
        wait_for("the agent's local socket", || Agent::connect(self.bed.local_socket(host)).is_ok());
        process
    }

    /// The log of a host's agent.
    fn said(&self, host: u32) -> String {
        self.bed.place.read(&format!("said{host}"))
    }

    /// Starts two agents and all flows, and waits until rates match the orders.
    fn under_way(&self) -> ([Process; 2], Vec<Wire>) {
        let agents = [self.agent(0, 0), self.agent(1, 1)];
        let wires = self.bed.connect(&FLOWS);
        wires.iter().for_each(Wire::send);
        wait_for("orders", || both_ordered(&wires, Duration::from_millis(400)));
        (agents, wires)
    }

    /// Partitions both agents from the coordinator: one host loses the path to it, another the path from it.
    fn cuts(&self) -> [Cut; 2] {
        [self.cut(0, COORDINATOR), self.cut(COORDINATOR, 1)]
    }

    /// Drops all packets from one host to another until the cut is dropped.
    fn cut(&self, from: u32, to: u32) -> Cut {
        let cut = Cut { namespace: self.bed.namespace(from), to: address(to) };
        cut.rule("add");
        cut
    }
}

/// A `blackhole` rule for packets to an address.
struct Cut {
    namespace: String,
    to: Ipv4Addr,
}

impl Cut {
    fn rule(&self, what: &str) {
        let to = self.to.to_string();
        let words = ["-n", &self.namespace, "rule", what, "to", &to, "blackhole"];
        assert!(Command::new("ip").args(words).status().unwrap().success(), "ip {words:?}");
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.rule("del");
    }
}

/// Whether one of two flows on the same link uses it and the other waits, as ordered.
fn ordered(shares: &[Speed]) -> bool {
    shares.iter().any(|share| share.most < 0.05) && shares.iter().any(|share| share.least > 0.85)
}

/// Whether the measurement is consistent with `ordered`, given the uncertainty of its readings. For
/// measurements that the test cannot repeat.
fn may_be_ordered(shares: &[Speed]) -> bool {
    shares.iter().any(|share| share.may_be_under(0.05)) && shares.iter().any(|share| share.may_be_over(0.85))
}

fn both_ordered(wires: &[Wire], time: Duration) -> bool {
    shares(wires, time).chunks(2).all(ordered)
}

/// One host loses the path to the coordinator, another the path from it.
#[test]
fn short_partition_keeps_rates_and_a_long_one_ends_in_plain_tcp() {
    let Some(world) = World::up("cut") else { return };
    let _serving = world.serve(&FLOWS);
    let (_agents, wires) = world.under_way();
    let cuts = world.cuts();
    let during = shares(&wires, Duration::from_secs(1));
    drop(cuts);
    let after = shares(&wires, Duration::from_secs(1));
    eprintln!("parts of a link while cut off for a second: {during:.3?}, and then: {after:.3?}");
    assert!(during.chunks(2).all(may_be_ordered), "{during:?}");
    assert!(after.chunks(2).all(may_be_ordered), "{after:?}");
    // The next order arrives before the lease of the last order ends.
    wait_for("orders again", || both_ordered(&wires, LEASE));

    let cuts = world.cuts();
    let mut flow = vec![shares(&wires, LEASE + Duration::from_millis(500))];
    flow.extend((0..5).map(|_| shares(&wires, Duration::from_millis(300))));
    eprintln!("parts of a link while cut off for longer: {flow:.3?}");
    for both in [0..2, 2..4] {
        // No flow stops, and both share the link as TCP does.
        assert!(
            flow.iter().all(|all| all[both.clone()].iter().map(|share| share.most).sum::<f64>() > 0.6),
            "{flow:?}"
        );
        for one in both {
            let late = flow[1..].iter().map(|all| all[one].most).sum::<f64>() / 5.0;
            assert!(late > 0.15, "flow {one}: {flow:?}");
        }
    }
    drop(cuts);
    wait_for("orders after all", || both_ordered(&wires, Duration::from_millis(400)));
    assert!(wires.iter().all(|wire| !wire.ended()));
}

/// The paths between agents and coordinator fail repeatedly for 20 to 50 ms.
#[test]
fn flows_keep_ordered_rates_while_routes_flap() {
    let Some(world) = World::up("flap") else { return };
    let _serving = world.serve(&FLOWS);
    let (_agents, wires) = world.under_way();
    let during = thread::scope(|scope| {
        let flapping = scope.spawn(|| {
            let began = Instant::now();
            for number in 0u64.. {
                if began.elapsed() > Duration::from_secs(5) {
                    return number;
                }
                let cuts = world.cuts();
                // 20 to 50 ms, varying from cut to cut.
                thread::sleep(Duration::from_millis(20 + number * 7 % 31));
                drop(cuts);
                thread::sleep(Duration::from_millis(20 + number * 11 % 31));
            }
            unreachable!("there is no end to numbers");
        });
        let during: Vec<Vec<Speed>> = (0..4).map(|_| shares(&wires, Duration::from_secs(1))).collect();
        eprintln!("parts of a link while its way was cut {} times: {during:.3?}", flapping.join().unwrap());
        during
    });
    assert!(during.iter().all(|all| all.chunks(2).all(may_be_ordered)), "{during:?}");
    wait_for("orders again", || both_ordered(&wires, Duration::from_millis(400)));
    // The coordinator reassigns the link when a flow ends.
    wires[0].stream.shutdown(Shutdown::Both).unwrap();
    wait_for("the second flow", || shares(&wires[1..2], Duration::from_millis(300))[0].least > 0.85);
}

/// The next coordinator reads coflows from the store of the killed coordinator, and their progress from
/// reports.
#[test]
fn restarted_coordinator_reads_coflows_from_its_store() {
    let Some(world) = World::up("store") else { return };
    let serving = world.serve(&FLOWS);
    let (_agents, wires) = world.under_way();
    drop(serving);
    let without = shares(&wires, Duration::from_secs(1));
    eprintln!("parts of a link without a coordinator: {without:.3?}");
    assert!(without.chunks(2).all(may_be_ordered), "{without:?}");
    // No program registers a coflow again.
    let _serving = world.serve(&[]);
    wait_for("orders of the next", || world.obey([0, 1]));
    wait_for("the rates of these orders", || both_ordered(&wires, Duration::from_millis(400)));
    wires[0].stream.shutdown(Shutdown::Both).unwrap();
    wait_for("the second flow", || shares(&wires[1..2], Duration::from_millis(300))[0].least > 0.85);
    assert!(wires[1..].iter().all(|wire| !wire.ended()));
}

/// The next agent uses the socket path of the killed agent, and programs hand their sockets over again.
#[test]
fn rates_hold_for_their_lease_after_an_agent_is_killed_and_the_next_agent_continues() {
    let Some(world) = World::up("kill") else { return };
    let _serving = world.serve(&FLOWS[..2]);
    let first = world.agent(0, 0);
    let mut wires = world.bed.connect(&FLOWS[..2]);
    wires.iter().for_each(Wire::send);
    wait_for("orders", || both_ordered(&wires, Duration::from_millis(400)));
    drop(first);
    let without = shares(&wires, Duration::from_secs(1));
    eprintln!("parts of a link without an agent: {without:.3?}");
    assert!(may_be_ordered(&without), "{without:?}");
    assert!(wires[0].agent.done("a", 0).is_err());

    let began = Instant::now();
    let _second = world.agent(0, 0);
    for (wire, (coflow, flow, ..)) in wires.iter_mut().zip(FLOWS) {
        wire.agent = Agent::connect(world.bed.local_socket(0)).unwrap();
        wire.agent.open(coflow, flow, &wire.stream).unwrap();
    }
    wait_for("a coordinator", || world.said(0).contains("has a coordinator"));
    // Printed, not asserted: the time includes key generation and process starts, and depends on the machine.
    eprintln!("the next agent has sockets and coordinator after {:?}", began.elapsed());
    // After the lease of the first agent, its watchdog frees both sockets, and the second agent sets their
    // rates again.
    thread::sleep(LEASE);
    wait_for("orders of the second agent", || both_ordered(&wires, Duration::from_millis(400)));
    // The second agent reports that the first flow has ended, and receives the order that gives the second
    // flow the link.
    wires[0].stream.shutdown(Shutdown::Both).unwrap();
    wait_for("the second flow", || shares(&wires[1..], Duration::from_millis(300))[0].least > 0.85);
}

/// One flow is handed over by the client library, the other by messages alone, as by a program in another
/// language.
#[test]
fn flows_are_plain_tcp_a_lease_after_an_agent_is_killed_without_a_successor() {
    let Some(world) = World::up("alone") else { return };
    let _serving = world.serve(&FLOWS[..2]);
    let agent = world.agent(0, 0);
    let mut wires = world.bed.connect(&FLOWS[..1]);
    let (wire, _socket) = hand_over_without_library(&world.bed, FLOWS[1], 9100);
    wires.push(wire);
    wires.iter().for_each(Wire::send);
    wait_for("orders", || both_ordered(&wires, Duration::from_millis(400)));
    drop(agent);
    let killed = Instant::now();
    let within = shares(&wires, Duration::from_secs(1));
    eprintln!("parts of a link within the lease: {within:.3?}");
    assert!(may_be_ordered(&within), "{within:?}");
    thread::sleep((LEASE + Duration::from_millis(200)).saturating_sub(killed.elapsed()));
    let paced: Vec<Option<u64>> = wires.iter().map(|wire| pace(&wire.stream)).collect();
    assert_eq!(paced, [None; 2], "rates {:?} after the agent was killed", killed.elapsed());
    wait_for("plain TCP", || shares(&wires, Duration::from_secs(1)).iter().all(|share| share.least > 0.15));
    eprintln!("both flows share the link {:?} after the agent was killed", killed.elapsed());
    assert!(wires.iter().all(|wire| !wire.ended()));
}

/// A stopped process keeps its sockets open, but renews no lease.
#[test]
fn rates_end_with_their_lease_while_an_agent_hangs() {
    let Some(world) = World::up("hang") else { return };
    let _serving = world.serve(&FLOWS[..2]);
    let agent = world.agent(0, 0);
    let wires = world.bed.connect(&FLOWS[..2]);
    wires.iter().for_each(Wire::send);
    wait_for("orders", || both_ordered(&wires, Duration::from_millis(400)));
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &agent.0.id().to_string()]).status().unwrap().success());
    };
    signal("-STOP");
    thread::sleep(LEASE + Duration::from_millis(200));
    let paced: Vec<Option<u64>> = wires.iter().map(|wire| pace(&wire.stream)).collect();
    signal("-CONT");
    assert_eq!(paced, [None; 2]);
    wait_for("orders again", || both_ordered(&wires, Duration::from_millis(400)));
}

/// Opens a connection, and hands it over to the agent with the messages of `docs/live.md`. Returns the
/// connection and the socket to the agent.
fn hand_over_without_library(bed: &Bed, (coflow, flow, src, dst, bytes): Flow, port: u16) -> (Wire, OwnedFd) {
    let to = SocketAddr::from((address(dst), port));
    let listener = in_namespace(&bed.namespace(dst), move || TcpListener::bind(to).unwrap());
    let stream = in_namespace(&bed.namespace(src), move || TcpStream::connect(to).unwrap());
    let socket = net::socket(net::AddressFamily::UNIX, net::SocketType::SEQPACKET, None).unwrap();
    net::connect(&socket, &net::SocketAddrUnix::new(bed.local_socket(src)).unwrap()).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = net::SendAncillaryBuffer::new(&mut space);
    let handed = [stream.as_fd()];
    assert!(rights.push(net::SendAncillaryMessage::ScmRights(&handed)));
    let text = format!("open {coflow} {flow}");
    net::sendmsg(&socket, &[IoSlice::new(text.as_bytes())], &mut rights, net::SendFlags::empty()).unwrap();
    let mut answer = [0; 64];
    let (length, _) = net::recv(&socket, &mut answer, net::RecvFlags::empty()).unwrap();
    assert_eq!(&answer[..length], b"ok");
    let unused = Agent::connect(bed.local_socket(src)).unwrap();
    (Wire::new(stream, listener.accept().unwrap().0, bytes, unused), socket)
}

/// A host with a valid certificate misreports its own flows, other hosts' flows, observed connections and UDP
/// measurements. Other hosts' flows keep their ordered rates, and orders to the misreporting host stay below
/// its link's capacity.
#[test]
fn misreporting_agent_on_a_bed_does_not_stop_other_flows() {
    const LIAR: u32 = 5;
    let Some(world) = World::up("liar") else { return };
    // The flow to the misreporting host comes from host 0; no other flow has that destination.
    let flows: Vec<Flow> = FLOWS.into_iter().chain([("e", 0, LIAR, 1, 1e12)]).collect();
    let _serving = world.serve(&flows);
    let (_agents, wires) = world.under_way();
    let Pair { certificate, key } = world.authority.signed(&[&format!("weir://agent/h{LIAR}")]);
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(world.authority.pem()))
        .identity(Identity::from_pem(certificate, key));
    let to = format!("https://{}:{PORT}", address(COORDINATOR));
    let stop = Arc::new(AtomicBool::new(false));
    let (ended, space) = (Arc::clone(&stop), world.bed.namespace(LIAR));
    let lying = thread::spawn(move || {
        in_namespace(&space, move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(lie(Endpoint::from_shared(to).unwrap().tls_config(tls).unwrap(), ended))
        })
    });
    let during = shares(&wires, Duration::from_secs(3));
    stop.store(true, Ordering::Relaxed);
    let (told, most) = lying.join().unwrap();
    eprintln!(
        "parts of a link beside a liar: {during:.3?}; it had {told} orders, of at most {most} bytes per second"
    );
    assert!(during.chunks(2).all(may_be_ordered), "{during:?}");
    assert!(told > 0 && most as f64 <= LINE, "{told} orders, {most}");
    assert!(wires.iter().all(|wire| !wire.ended()));
}

/// Sends false reports until `stop`. Returns the number of received orders, and the highest rate in them.
async fn lie(to: Endpoint, stop: Arc<AtomicBool>) -> (u32, u64) {
    let mut control = ControlClient::new(to.connect().await.unwrap());
    let report = |turn: u64| {
        let key = |coflow: &str| FlowKey { coflow: coflow.into(), flow: 0 };
        let seen = |coflow| FlowProgress {
            key: key(coflow),
            sent: [0, u64::MAX][turn as usize % 2],
            closed: coflow != "e",
        };
        let found = |to: u8| Found {
            application: "x".into(),
            peer: [10, 0, 0, to].into(),
            open: u32::MAX,
            sent: u64::MAX,
            demand: Demand::All,
        };
        let way = Way { from: address(0), to: address(2), mark: Mark::new(1).unwrap() };
        Report {
            obeys: (u64::MAX, turn),
            flows: ["a", "b", "c", "d", "e"].map(seen).to_vec(),
            found: (1..7).map(found).collect(),
            arrivals: vec![Arrival { way, rate: u64::MAX }],
            refusals: Refusals { rate: turn, ..Refusals::default() },
            ..Report::default()
        }
    };
    let (said, reports) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        for turn in 0.. {
            if said.send(Up::report(&report(turn))).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
    });
    let reports = tokio_stream::wrappers::ReceiverStream::new(reports);
    let mut orders =
        control.attend(tokio_stream::once(Up::hello(5)).chain(reports)).await.unwrap().into_inner();
    let (mut told, mut most) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let Ok(Some(Down { what: Some(What::Order(order)) })) = orders.message().await else { continue };
        let order = Order::try_from(order).unwrap();
        told += 1;
        let rates = order.flows.iter().filter_map(|(_, pace)| match pace {
            Pace::Rate(rate) => Some(*rate),
            _ => None,
        });
        most = rates.fold(most, u64::max);
    }
    (told, most)
}

#[test]
fn agent_reports_for_its_own_host_only() {
    let Some(world) = World::up("own") else { return };
    let _serving = world.serve(&[]);
    let _liar = world.agent(4, 3);
    wait_for("a refusal", || world.said(4).contains("host 4: the connection is another host's"));
    let _own = world.agent(3, 3);
    wait_for("a coordinator", || world.said(3).contains("host 3 has a coordinator"));
    assert!(!world.said(4).contains("has a coordinator"), "{}", world.said(4));
}

/// A process that configures queues is killed at varying times. Its queues remain, the next run completes
/// them, and `weir agent cleanup` removes all of them.
#[test]
fn cleanup_removes_queues_of_killed_queue_configurations() {
    let _turn = turn::take();
    let space = format!("weirkills{}", std::process::id());
    let ip = |line: &str| Command::new("ip").args(line.split(' ')).output().unwrap();
    let made = ip(&format!("netns add {space}"));
    if !made.status.success() {
        eprintln!("cleanup_removes_queues_of_killed_queue_configurations skips: {made:?}");
        return;
    }
    let space = Space(space);
    assert!(ip(&format!("-n {} link add e0 type veth peer name e1", space.0)).status.success());
    let weir = |line: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &space.0, env!("CARGO_BIN_EXE_weir"), "agent"]);
        command.args(line.split(' ')).stdout(Stdio::null());
        command
    };
    let queues = || {
        let output = ip(&format!("netns exec {} tc qdisc show", space.0));
        // The kernel lists queues in no fixed order.
        let mut lines: Vec<String> =
            String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = queues();
    assert!(weir("queues --interface e0 --rate 1Gbit --weights 1:3:9").status().unwrap().success());
    let made = queues();
    assert!(weir("cleanup").status().unwrap().success());
    let began = Instant::now();
    let cycles = campaign(40, 200);
    let (mut cut_short, mut took) = (0, Vec::new());
    for cycle in 0..cycles {
        let apply = format!("queues --interface e0 --rate 1Gbit --weights 1:{}:9", cycle % 5 + 1);
        let mut first = weir(&apply).spawn().unwrap();
        // From before the process reads anything to after its last change.
        thread::sleep(Duration::from_micros(cycle * 7919 % 40_000));
        cut_short += u32::from(first.try_wait().unwrap().is_none());
        first.kill().unwrap();
        first.wait().unwrap();
        let again = Instant::now();
        assert!(weir(&apply).status().unwrap().success());
        took.push(again.elapsed());
        if cycle % 20 == 0 {
            assert_eq!(queues(), made);
        }
        assert!(weir("cleanup").status().unwrap().success());
    }
    took.sort();
    let (median, slowest) = (took[took.len() / 2], took[took.len() - 1]);
    eprintln!(
        "{cycles} cycles in {:?}, {cut_short} killed before they were done; reconciled in {median:?}, and within {slowest:?}",
        began.elapsed()
    );
    assert!(u64::from(cut_short) > cycles / 10, "{cut_short}");
    // The median tolerates runs in which the machine stalls.
    assert!(median < Duration::from_secs(1), "{median:?}");
    assert_eq!(queues(), before);
}

/// A network namespace, which is deleted when dropped.
struct Space(String);

impl Drop for Space {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}
