//! Tests killed processes and network partitions, with `weir serve`, `weir agent run` and real flows on a testbed.
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

use crate::bed::{
    Bed, COORDINATOR_PORT, ControlFlow, Flow, FlowConnection, LINK_FRAME_BYTES_PER_SEC, Process, address,
    payload_utilization, relative_utilization,
};
use crate::campaign::seeds;
use crate::certificates::{Authority, CertifiedKey, client_config};
use crate::common::{wait_for, wait_within};
use crate::examples::missing_requirement;
use crate::kernel::{RateBounds, pacing_rate};
use crate::test_lock;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rustix::net;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tokio_stream::StreamExt;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use weir_client::Agent;
use weir_proto::wire::control_client::ControlClient;
use weir_proto::wire::{AgentMessage, CoordinatorMessage, coordinator_message::Body};
use weir_proto::{
    Demand, FlowKey, FlowProgress, Mark, ObservedConnections, Order, OrderedRate, RefusedOrders, Report,
    SenderState, UdpFlow, UdpMeasurement,
};
use weir_testbed::{namespace, testing};

/// The last host runs the coordinator. The control's flow uses the links of the two hosts before it.
const HOSTS: u32 = 9;
const COORDINATOR: u32 = HOSTS - 1;
const CONTROL: [u32; 2] = [HOSTS - 3, HOSTS - 2];

/// Longer than a partition of a second, the transport's recovery after it, and the time for which a busy machine delays a
/// renewal. Coordinators renew orders once a second.
const LEASE: Duration = Duration::from_secs(8);

/// The timeout for a process to start, and for rates that hold for a lease.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Two pairs of flows, each pair from one sender. The second flow of a pair waits for the first: no coflow
/// sends enough bytes for a lower priority.
const FLOWS: [Flow; 4] =
    [("a", 0, 0, 2, 1e12), ("b", 0, 0, 3, 1e12), ("c", 0, 1, 4, 1e12), ("d", 0, 1, 5, 1e12)];

/// A testbed, and the certificate authority of its processes.
struct SecureTestbed {
    bed: Bed,
    authority: Authority,
}

impl SecureTestbed {
    fn up(test: &str) -> Option<SecureTestbed> {
        let bed = Bed::up(test, HOSTS)?;
        let authority = Authority::new();
        let coordinator_address = address(COORDINATOR).to_string();
        authority.write_server_files_for(&bed.dir.path(""), &[&coordinator_address]);
        let mut config = format!(
            "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"saath:start=1TB\"\nlease = \"{}s\"\n\
             [listen]\nagents = \"{coordinator_address}:{COORDINATOR_PORT}\"\napi = \"{coordinator_address}:{}\"\n\
             [tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nclients = \"authority.pem\"\n[host]\n",
            LEASE.as_secs(),
            COORDINATOR_PORT + 1,
        );
        (0..HOSTS).for_each(|host| config += &format!("h{host} = \"40Mbit\"\n"));
        bed.dir.write("serve.toml", &config);
        Some(SecureTestbed { bed, authority })
    }

    /// Starts a coordinator, and registers the coflows of these flows.
    fn start_coordinator(&self, flows: &[Flow]) -> Process {
        let mut command = self.bed.command_on_host(COORDINATOR, Path::new(env!("CARGO_BIN_EXE_weir")));
        command.args(["serve", "--config"]).arg(self.bed.dir.path("serve.toml")).stderr(Stdio::null());
        let process = Process(command.spawn().unwrap());
        wait_for("the coordinator", || self.request("GET", "/readyz", "").is_some());
        for (coflow, _, src, dst, _) in flows {
            let body = format!("{{\"flows\": [{{\"from\": \"h{src}\", \"to\": \"h{dst}\"}}]}}");
            let response = self.request("PUT", &format!("/v1/coflows/{coflow}"), &body).unwrap();
            assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        }
        process
    }

    /// The answer to an operator's request; `None` without a coordinator.
    fn request(&self, method: &str, path: &str, body: &str) -> Option<String> {
        let config = client_config(
            &self.authority,
            Some(self.authority.client_certificate(&["weir://operator/test"])),
        );
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.bed.run_on_host(COORDINATOR, || {
            let coordinator_address = address(COORDINATOR);
            let socket = TcpStream::connect((coordinator_address, COORDINATOR_PORT + 1)).ok()?;
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let name = ServerName::try_from(coordinator_address.to_string()).unwrap();
            let connection = ClientConnection::new(Arc::new(config), name).unwrap();
            let mut stream = StreamOwned::new(connection, socket);
            stream.write_all(request.as_bytes()).ok()?;
            let mut response = Vec::new();
            // The server may close the connection without a TLS close_notify.
            let _ = stream.read_to_end(&mut response);
            (!response.is_empty()).then(|| String::from_utf8(response).unwrap())
        })
    }

    /// Whether two hosts have applied an order of the running coordinator.
    fn have_applied_orders(&self, hosts: [usize; 2]) -> bool {
        let response = self.request("GET", "/v1/hosts", "").unwrap();
        let (_, body) = response.split_once("\r\n\r\n").unwrap();
        let found: serde_json::Value = serde_json::from_str(body).unwrap();
        hosts.iter().all(|host| found[host]["applied"].as_u64().unwrap() > 0)
    }

    /// Starts the agent of `host`, which logs to a file.
    fn start_agent(&self, host: u32) -> Process {
        self.start_agent_command(self.bed.agent_command(host), host)
    }

    /// Starts an agent by a command without the options for TLS.
    fn start_agent_command(&self, mut command: Command, host: u32) -> Process {
        self.add_certificate(&mut command, host);
        command.stderr(fs::File::create(self.bed.dir.path(&format!("log{host}"))).unwrap());
        let mut process = Process(command.spawn().unwrap());
        // A killed agent does not remove its local socket, so the file alone does not show a listener.
        wait_within(STEP_TIMEOUT, "the agent's local socket", || {
            let exit = process.0.try_wait().unwrap();
            assert!(exit.is_none(), "the agent has exited, {exit:?}: {}", self.agent_log(host));
            Agent::connect(self.bed.local_socket(host)).is_ok()
        });
        process
    }

    /// Adds the options for TLS with a certificate for a host.
    fn add_certificate(&self, command: &mut Command, host: u32) {
        let CertifiedKey { certificate, key } =
            self.authority.client_certificate(&[&format!("weir://agent/h{host}")]);
        self.bed.dir.write(&format!("{host}.pem"), &certificate);
        self.bed.dir.write(&format!("{host}.key"), &key);
        let file = |name: String| self.bed.dir.path(&name);
        command.arg("--certificate").arg(file(format!("{host}.pem")));
        command.arg("--key").arg(file(format!("{host}.key")));
        command.arg("--authority").arg(file("authority.pem".to_owned()));
    }

    /// The log of a host's agent.
    fn agent_log(&self, host: u32) -> String {
        self.bed.dir.read(&format!("log{host}"))
    }

    /// Starts two agents and all flows, and waits until rates match the orders.
    fn start_agents_and_flows(&self) -> ([Process; 2], Vec<FlowConnection>) {
        let agents = [self.start_agent(0), self.start_agent(1)];
        let connections = self.bed.connect_flow(&FLOWS);
        connections.iter().for_each(FlowConnection::send);
        wait_for("orders", || both_links_are_ordered(&connections, Duration::from_millis(400)));
        (agents, connections)
    }

    fn start_control(&self) -> ControlFlow {
        ControlFlow::start(&self.bed, CONTROL[0], CONTROL[1])
    }

    /// Partitions both agents from the coordinator: one host loses the path to it, another the path from it.
    fn partition_both_agents(&self) -> [BlackholeRoute; 2] {
        [self.block(0, COORDINATOR), self.block(COORDINATOR, 1)]
    }

    /// Drops all packets from one host to another until the returned route is dropped.
    fn block(&self, from: u32, to: u32) -> BlackholeRoute {
        let cut = BlackholeRoute { namespace: self.bed.namespace(from), destination: address(to) };
        cut.change_rule("add");
        cut
    }
}

/// A `blackhole` rule for packets to an address.
struct BlackholeRoute {
    namespace: String,
    destination: Ipv4Addr,
}

impl BlackholeRoute {
    fn change_rule(&self, action: &str) {
        let to = self.destination.to_string();
        let words = ["-n", &self.namespace, "rule", action, "to", &to, "blackhole"];
        assert!(Command::new("ip").args(words).status().unwrap().success(), "ip {words:?}");
    }
}

impl Drop for BlackholeRoute {
    fn drop(&mut self) {
        self.change_rule("del");
    }
}

/// Whether one of two flows on the same link uses it and the other waits, as ordered.
fn one_uses_the_link(shares: &[RateBounds]) -> bool {
    shares.iter().any(|share| share.max < 0.05) && shares.iter().any(|share| share.min > 0.85)
}

/// Like `one_uses_the_link`, for measurements that the test cannot repeat: allows for the uncertainty of the
/// readings. The shares are relative to a control.
fn one_may_use_the_link(shares: &[RateBounds]) -> bool {
    shares.iter().any(|share| share.may_be_under(0.05)) && shares.iter().any(|share| share.may_be_over(0.85))
}

fn both_links_are_ordered(connections: &[FlowConnection], time: Duration) -> bool {
    payload_utilization(connections, time).chunks(2).all(one_uses_the_link)
}

/// Whether no socket has a pacing rate.
fn are_unpaced(connections: &[FlowConnection]) -> bool {
    connections.iter().all(|connection| pacing_rate(&connection.stream).is_none())
}

/// One host loses the path to the coordinator, another the path from it.
#[test]
fn short_partition_keeps_rates_and_a_long_one_ends_in_plain_tcp() {
    let Some(testbed) = SecureTestbed::up("cut") else { return };
    let _coordinator_process = testbed.start_coordinator(&FLOWS);
    let (_agents, connections) = testbed.start_agents_and_flows();
    let control = testbed.start_control();
    let cuts = testbed.partition_both_agents();
    let during = relative_utilization(&connections, &control, Duration::from_secs(1));
    drop(cuts);
    let after = relative_utilization(&connections, &control, Duration::from_secs(1));
    eprintln!("utilization in a partition of a second: {during:.3?}; after it: {after:.3?}");
    assert!(during.chunks(2).all(one_may_use_the_link), "{during:?}");
    // On a machine that is busy for seconds, the lease can end before an order arrives again: both flows then share the link.
    assert!(after.chunks(2).all(|both| both.iter().map(|share| share.max).sum::<f64>() > 0.85), "{after:?}");
    // The next order arrives before the lease of the last order ends.
    wait_within(STEP_TIMEOUT, "orders again", || both_links_are_ordered(&connections, LEASE));

    let cuts = testbed.partition_both_agents();
    // Each window is longer than TCP takes to recover from a loss.
    let mut utilization_over_time =
        vec![relative_utilization(&connections, &control, LEASE + Duration::from_millis(500))];
    utilization_over_time
        .extend((0..4).map(|_| relative_utilization(&connections, &control, Duration::from_millis(500))));
    eprintln!("utilization in a longer partition: {utilization_over_time:.3?}");
    for both in [0..2, 2..4] {
        // No flow stops, and both share the link as TCP does.
        assert!(
            utilization_over_time.iter().all(|all| all[both.clone()]
                .iter()
                .map(|share| share.max)
                .sum::<f64>()
                > 0.6),
            "{utilization_over_time:?}"
        );
        for one in both {
            let mean_utilization =
                utilization_over_time[1..].iter().map(|all| all[one].max).sum::<f64>() / 4.0;
            assert!(mean_utilization > 0.15, "flow {one}: {utilization_over_time:?}");
        }
    }
    drop(cuts);
    wait_for("orders after the partition", || {
        both_links_are_ordered(&connections, Duration::from_millis(400))
    });
    assert!(connections.iter().all(|connection| !connection.has_ended()));
}

/// The paths between agents and coordinator fail repeatedly for 20 to 50 ms.
#[test]
fn flows_keep_ordered_rates_while_routes_flap() {
    let Some(testbed) = SecureTestbed::up("flap") else { return };
    let _coordinator_process = testbed.start_coordinator(&FLOWS);
    let (_agents, connections) = testbed.start_agents_and_flows();
    let control = testbed.start_control();
    let during = thread::scope(|scope| {
        let route_flaps = scope.spawn(|| {
            let start_time = Instant::now();
            for number in 0u64.. {
                if start_time.elapsed() > Duration::from_secs(5) {
                    return number;
                }
                let cuts = testbed.partition_both_agents();
                // 20 to 50 ms, different for each failure.
                thread::sleep(Duration::from_millis(20 + number * 7 % 31));
                drop(cuts);
                thread::sleep(Duration::from_millis(20 + number * 11 % 31));
            }
            unreachable!("the loop returns after 5 s");
        });
        let during: Vec<Vec<RateBounds>> =
            (0..4).map(|_| relative_utilization(&connections, &control, Duration::from_secs(1))).collect();
        eprintln!("utilization while routes failed {} times: {during:.3?}", route_flaps.join().unwrap());
        during
    });
    assert!(during.iter().all(|all| all.chunks(2).all(one_may_use_the_link)), "{during:?}");
    wait_for("orders again", || both_links_are_ordered(&connections, Duration::from_millis(400)));
    // The coordinator reassigns the link when a flow ends.
    connections[0].stream.shutdown(Shutdown::Both).unwrap();
    wait_for("the second flow with the link", || {
        payload_utilization(&connections[1..2], Duration::from_millis(300))[0].min > 0.85
    });
}

/// The next coordinator reads coflows from the store of the killed coordinator, and their progress from
/// reports.
#[test]
fn restarted_coordinator_reads_coflows_from_its_store() {
    let Some(testbed) = SecureTestbed::up("store") else { return };
    let mut coordinator_process = testbed.start_coordinator(&FLOWS);
    let (_agents, connections) = testbed.start_agents_and_flows();
    let control = testbed.start_control();
    coordinator_process.0.kill().unwrap();
    let without_coordinator = relative_utilization(&connections, &control, Duration::from_secs(1));
    // A killed process first completes its writes to the disk, which can take longer than a lease.
    drop(coordinator_process);
    eprintln!("utilization without a coordinator: {without_coordinator:.3?}");
    assert!(without_coordinator.chunks(2).all(one_may_use_the_link), "{without_coordinator:?}");
    // No program registers a coflow again.
    let _coordinator_process = testbed.start_coordinator(&[]);
    wait_for("orders of the next coordinator", || testbed.have_applied_orders([0, 1]));
    wait_for("the rates of these orders", || {
        both_links_are_ordered(&connections, Duration::from_millis(400))
    });
    connections[0].stream.shutdown(Shutdown::Both).unwrap();
    wait_for("the second flow with the link", || {
        payload_utilization(&connections[1..2], Duration::from_millis(300))[0].min > 0.85
    });
    assert!(connections[1..].iter().all(|connection| !connection.has_ended()));
}

/// The next agent uses the socket path of the killed agent, and programs hand their sockets over again.
#[test]
fn rates_hold_for_their_lease_after_an_agent_is_killed_and_the_next_agent_continues() {
    let Some(testbed) = SecureTestbed::up("kill") else { return };
    let _coordinator_process = testbed.start_coordinator(&FLOWS[..2]);
    let first = testbed.start_agent(0);
    let mut connections = testbed.bed.connect_flow(&FLOWS[..2]);
    connections.iter().for_each(FlowConnection::send);
    wait_for("orders", || both_links_are_ordered(&connections, Duration::from_millis(400)));
    let control = testbed.start_control();
    drop(first);
    let without_agent = relative_utilization(&connections, &control, Duration::from_secs(1));
    eprintln!("utilization without an agent: {without_agent:.3?}");
    assert!(one_may_use_the_link(&without_agent), "{without_agent:?}");
    assert!(connections[0].agent.mark_done("a", 0).is_err());

    let start_time = Instant::now();
    let _second = testbed.start_agent(0);
    for (connection, (coflow, flow, ..)) in connections.iter_mut().zip(FLOWS) {
        connection.agent = Agent::connect(testbed.bed.local_socket(0)).unwrap();
        connection.agent.hand_over(coflow, flow, &connection.stream).unwrap();
    }
    wait_for("a coordinator", || testbed.agent_log(0).contains("has a coordinator"));
    // Printed, not asserted: the time includes key generation and process starts, and depends on the machine.
    eprintln!("the next agent has sockets and coordinator after {:?}", start_time.elapsed());
    // After the lease of the first agent, its watchdog frees both sockets, and the second agent sets their
    // rates again.
    thread::sleep(LEASE);
    wait_for("orders of the second agent", || {
        both_links_are_ordered(&connections, Duration::from_millis(400))
    });
    // The second agent reports that the first flow has ended, and receives the order that gives the second
    // flow the link.
    connections[0].stream.shutdown(Shutdown::Both).unwrap();
    wait_for("the second flow with the link", || {
        payload_utilization(&connections[1..], Duration::from_millis(300))[0].min > 0.85
    });
}

/// One flow is handed over by the client library, the other by messages alone, as by a program in another
/// language.
#[test]
fn flows_are_plain_tcp_a_lease_after_an_agent_is_killed_without_a_successor() {
    let Some(testbed) = SecureTestbed::up("alone") else { return };
    let _coordinator_process = testbed.start_coordinator(&FLOWS[..2]);
    let agent = testbed.start_agent(0);
    let mut connections = testbed.bed.connect_flow(&FLOWS[..1]);
    let (connection, _socket) = hand_over_without_library(&testbed.bed, FLOWS[1], 9100);
    connections.push(connection);
    connections.iter().for_each(FlowConnection::send);
    wait_for("orders", || both_links_are_ordered(&connections, Duration::from_millis(400)));
    let control = testbed.start_control();
    drop(agent);
    let killed = Instant::now();
    let within_lease = relative_utilization(&connections, &control, Duration::from_secs(1));
    eprintln!("utilization within the lease: {within_lease:.3?}");
    assert!(one_may_use_the_link(&within_lease), "{within_lease:?}");
    wait_for("the end of the rates", || are_unpaced(&connections));
    wait_for("plain TCP", || {
        payload_utilization(&connections, Duration::from_secs(1)).iter().all(|share| share.min > 0.15)
    });
    eprintln!("both flows share the link {:?} after the agent was killed", killed.elapsed());
    assert!(connections.iter().all(|connection| !connection.has_ended()));
}

/// As when a container is killed, whose processes are all of one PID namespace: no process of the agent is left.
#[test]
fn kernel_ends_rates_with_their_lease_after_agent_and_watchdog_are_killed() {
    let test = "kernel_ends_rates_with_their_lease_after_agent_and_watchdog_are_killed";
    if let Some(reason) = missing_requirement(&["unshare"]) {
        eprintln!("{test} skips, since {reason}");
        return;
    }
    let Some(testbed) = SecureTestbed::up("container") else { return };
    let _coordinator_process = testbed.start_coordinator(&FLOWS[..2]);
    let mut command = testbed.bed.command_with_cgroups(0, "unshare");
    command.args(["--pid", "--kill-child", "--fork", env!("CARGO_BIN_EXE_weir")]);
    let agent = testbed.start_agent_command(testbed.bed.add_agent_options(command, 0), 0);
    let connections = testbed.bed.connect_flow(&FLOWS[..2]);
    connections.iter().for_each(FlowConnection::send);
    wait_for("orders", || both_links_are_ordered(&connections, Duration::from_millis(400)));
    // The agent lets the kernel see new sockets within a second.
    thread::sleep(Duration::from_secs(1));
    assert!(!testbed.agent_log(0).contains("cannot pause sockets"), "{}", testbed.agent_log(0));
    let control = testbed.start_control();
    drop(agent);
    let killed = Instant::now();
    let within_lease = relative_utilization(&connections, &control, Duration::from_secs(1));
    eprintln!("utilization within the lease: {within_lease:.3?}");
    assert!(one_may_use_the_link(&within_lease), "{within_lease:?}");
    wait_for("the end of the rates", || are_unpaced(&connections));
    wait_for("plain TCP", || {
        payload_utilization(&connections, Duration::from_secs(1)).iter().all(|share| share.min > 0.15)
    });
    eprintln!("the rates and pauses ended {:?} after the agent was killed", killed.elapsed());
    assert!(connections.iter().all(|connection| !connection.has_ended()));
}

/// A stopped process keeps its sockets open, but renews no lease.
#[test]
fn rates_end_with_their_lease_while_an_agent_hangs() {
    let Some(testbed) = SecureTestbed::up("hang") else { return };
    let _coordinator_process = testbed.start_coordinator(&FLOWS[..2]);
    let agent = testbed.start_agent(0);
    let connections = testbed.bed.connect_flow(&FLOWS[..2]);
    connections.iter().for_each(FlowConnection::send);
    wait_for("orders", || both_links_are_ordered(&connections, Duration::from_millis(400)));
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &agent.0.id().to_string()]).status().unwrap().success());
    };
    signal("-STOP");
    wait_for("the end of the rates", || are_unpaced(&connections));
    signal("-CONT");
    wait_for("orders again", || both_links_are_ordered(&connections, Duration::from_millis(400)));
}

/// Opens a connection, and hands it over to the agent with the messages of `docs/live.md`. Returns the
/// connection and the socket to the agent.
fn hand_over_without_library(
    bed: &Bed,
    (coflow, flow, src, dst, bytes): Flow,
    port: u16,
) -> (FlowConnection, OwnedFd) {
    let receiver = SocketAddr::from((address(dst), port));
    let listener = bed.run_on_host(dst, || TcpListener::bind(receiver).unwrap());
    let stream = bed.run_on_host(src, || TcpStream::connect(receiver).unwrap());
    let socket = net::socket(net::AddressFamily::UNIX, net::SocketType::SEQPACKET, None).unwrap();
    net::connect(&socket, &net::SocketAddrUnix::new(bed.local_socket(src)).unwrap()).unwrap();
    let mut ancillary_buffer = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = net::SendAncillaryBuffer::new(&mut ancillary_buffer);
    let sockets = [stream.as_fd()];
    assert!(rights.push(net::SendAncillaryMessage::ScmRights(&sockets)));
    let text = format!("open {coflow} {flow}");
    net::sendmsg(&socket, &[IoSlice::new(text.as_bytes())], &mut rights, net::SendFlags::empty()).unwrap();
    let mut answer = [0; 64];
    let (length, _) = net::recv(&socket, &mut answer, net::RecvFlags::empty()).unwrap();
    assert_eq!(&answer[..length], b"ok");
    let unused = Agent::connect(bed.local_socket(src)).unwrap();
    (FlowConnection::new(stream, listener.accept().unwrap().0, bytes, unused), socket)
}

/// A host with a valid certificate misreports its own flows, other hosts' flows, observed connections and UDP
/// measurements. Other hosts' flows keep their ordered rates, and orders to the misreporting host stay below
/// its link's capacity.
#[test]
fn misreporting_agent_on_a_bed_does_not_stop_other_flows() {
    const MISREPORTING_HOST: u32 = 5;
    let Some(testbed) = SecureTestbed::up("misreport") else { return };
    // The flow to the misreporting host comes from host 0; no other flow has that destination.
    let flows: Vec<Flow> = FLOWS.into_iter().chain([("e", 0, MISREPORTING_HOST, 1, 1e12)]).collect();
    let _coordinator_process = testbed.start_coordinator(&flows);
    let (_agents, connections) = testbed.start_agents_and_flows();
    let CertifiedKey { certificate, key } =
        testbed.authority.client_certificate(&[&format!("weir://agent/h{MISREPORTING_HOST}")]);
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(testbed.authority.pem()))
        .identity(Identity::from_pem(certificate, key));
    let endpoint = format!("https://{}:{COORDINATOR_PORT}", address(COORDINATOR));
    let stop = Arc::new(AtomicBool::new(false));
    let (stop_in_thread, namespace) = (Arc::clone(&stop), testbed.bed.namespace(MISREPORTING_HOST));
    let misreporting = thread::spawn(move || {
        namespace::enter(&namespace).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(send_false_reports(
            Endpoint::from_shared(endpoint).unwrap().tls_config(tls).unwrap(),
            stop_in_thread,
        ))
    });
    let during = relative_utilization(&connections, &testbed.start_control(), Duration::from_secs(3));
    stop.store(true, Ordering::Relaxed);
    let (order_count, max_rate) = misreporting.join().unwrap();
    eprintln!(
        "utilization next to a misreporting agent: {during:.3?}; the agent received {order_count} orders, of at most {max_rate} bytes per second"
    );
    assert!(during.chunks(2).all(one_may_use_the_link), "{during:?}");
    assert!(
        order_count > 0 && max_rate as f64 <= LINK_FRAME_BYTES_PER_SEC,
        "{order_count} orders, {max_rate}"
    );
    assert!(connections.iter().all(|connection| !connection.has_ended()));
}

/// Sends false reports until `stop`. Returns the number of received orders, and the highest rate in them.
async fn send_false_reports(endpoint: Endpoint, stop: Arc<AtomicBool>) -> (u32, u64) {
    let mut control = ControlClient::new(endpoint.connect().await.unwrap());
    let report = |first_generation: u64, round: u64| {
        // The coflows have been registered one after the other in a new store, from "a" on.
        let generation = |coflow: &str| first_generation + u64::from(coflow.as_bytes()[0] - b'a');
        let key = |coflow: &str| FlowKey { coflow: coflow.into(), generation: generation(coflow), flow: 0 };
        let flow_progress = |coflow| {
            FlowProgress::new(
                key(coflow),
                [0, u64::MAX][round as usize % 2],
                if coflow != "e" { SenderState::Completed } else { SenderState::Ready },
            )
        };
        let observed_connections = |host: u8| ObservedConnections {
            application: "x".into(),
            peer: [10, 0, 0, host].into(),
            open_connections: u32::MAX,
            sent_bytes: u64::MAX,
            demand: Demand::Unlimited,
        };
        let flow = UdpFlow { src: address(0).into(), dst: address(2).into(), mark: Mark::new(1).unwrap() };
        Report {
            applied: (u64::MAX, round),
            flows: ["a", "b", "c", "d", "e"].map(flow_progress).to_vec(),
            observed: (1..7).map(observed_connections).collect(),
            udp_measurements: vec![UdpMeasurement { flow, rate: u64::MAX }],
            refused_orders: RefusedOrders { rate: round, ..RefusedOrders::default() },
            ..Report::default()
        }
    };
    let (report_sender, reports) = tokio::sync::mpsc::channel(1);
    let (generation_sender, first_generation) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let Ok(first_generation) = first_generation.await else { return };
        for round in 0.. {
            if report_sender.send(AgentMessage::report(&report(first_generation, round))).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
    });
    let reports = tokio_stream::wrappers::ReceiverStream::new(reports);
    let mut orders = control
        .stream_orders(tokio_stream::once(AgentMessage::hello("h5", Vec::new(), &[])).chain(reports))
        .await
        .unwrap()
        .into_inner();
    let Some(Body::Welcome(welcome)) = orders.message().await.unwrap().unwrap().body else {
        panic!("the first message is a welcome")
    };
    generation_sender.send(welcome.first_generation).unwrap();
    let (mut order_count, mut max_rate) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let Ok(Some(CoordinatorMessage { body: Some(Body::Order(order)) })) = orders.message().await else {
            continue;
        };
        let order = Order::try_from(order).unwrap();
        order_count += 1;
        let rates = order.flows.iter().filter_map(|(_, rate)| match rate {
            OrderedRate::Rate(rate) | OrderedRate::Reserve(rate) => Some(*rate),
            _ => None,
        });
        max_rate = rates.fold(max_rate, u64::max);
    }
    (order_count, max_rate)
}

#[test]
fn agent_has_the_name_of_its_certificate() {
    let Some(testbed) = SecureTestbed::up("own") else { return };
    let _coordinator_process = testbed.start_coordinator(&[]);
    let mut foreign = testbed.bed.agent_command(4);
    testbed.add_certificate(&mut foreign, 3);
    let refused = foreign.output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert_eq!(text, "weir: --name: `h4` is not the name of --certificate; expected `h3`, or no --name\n");
    let mut command = testbed.bed.command_on_host(3, Path::new(env!("CARGO_BIN_EXE_weir")));
    command.args(["agent", "run", "--rate", "40Mbit", "--socket"]).arg(testbed.bed.local_socket(3));
    command.arg("--coordinator").arg(format!("{}:{COORDINATOR_PORT}", address(HOSTS - 1)));
    let _agent = testbed.start_agent_command(command, 3);
    wait_for("a coordinator", || testbed.agent_log(3).contains("h3 has a coordinator"));
}

/// A process that configures queues is killed at varying times. Its queues remain, the next run completes
/// them, and `weir agent cleanup` removes all of them.
#[test]
fn cleanup_removes_queues_of_killed_queue_configurations() {
    let _lock = test_lock::lock_shared();
    let Some(network) = testing::network("queuekills", &["a"]) else { return };
    network.run_ip("a", "link add e0 type veth peer name e1\n").unwrap();
    let weir = |line: &str| {
        let mut command = network.command("a", env!("CARGO_BIN_EXE_weir"));
        command.arg("agent").args(line.split(' ')).stdout(Stdio::null());
        command
    };
    let queues = || {
        let output = network.command("a", "tc").args(["qdisc", "show"]).output().unwrap();
        // The kernel lists queues in no fixed order.
        let mut lines: Vec<String> =
            String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = queues();
    assert!(weir("queues --interface e0 --rate 1Gbit --weights 1:3:9").status().unwrap().success());
    let queues_of_complete_run = queues();
    assert!(weir("cleanup").status().unwrap().success());
    let start_time = Instant::now();
    let (mut killed_early, mut reconcile_times, mut undisturbed_times) = (0, Vec::new(), Vec::new());
    for seed in seeds(40, 200) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let apply = format!("queues --interface e0 --rate 1Gbit --weights 1:{}:9", rng.next_u32() % 9 + 1);
        let time_apply = || {
            let start_time = Instant::now();
            assert!(weir(&apply).status().unwrap().success());
            start_time.elapsed()
        };
        let mut first = weir(&apply).spawn().unwrap();
        // From before the process reads anything to after its last change.
        thread::sleep(Duration::from_micros(u64::from(rng.next_u32() % 40_000)));
        killed_early += usize::from(first.try_wait().unwrap().is_none());
        first.kill().unwrap();
        first.wait().unwrap();
        reconcile_times.push(time_apply());
        assert_eq!(queues(), queues_of_complete_run, "seed {seed}");
        assert!(weir("cleanup").status().unwrap().success());
        // Other programs on the machine delay an undisturbed run as well.
        undisturbed_times.push(time_apply());
        assert!(weir("cleanup").status().unwrap().success());
    }
    let median = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let cycles = reconcile_times.len();
    let (reconciled, undisturbed) = (median(reconcile_times), median(undisturbed_times));
    eprintln!(
        "{cycles} cycles in {:?}, {killed_early} killed before their last change; reconciled in {reconciled:?}, undisturbed in {undisturbed:?} (medians)",
        start_time.elapsed()
    );
    assert!(killed_early > cycles / 10, "{killed_early}");
    assert!(reconciled < 2 * undisturbed, "{reconciled:?}, undisturbed {undisturbed:?}");
    assert_eq!(queues(), before);
}
