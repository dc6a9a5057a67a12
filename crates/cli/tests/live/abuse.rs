//! Tests `weir serve` and `weir agent run` under malformed input, floods, idle connections, a coordinator with a
//! stale epoch, and wrong clocks.
//! Each test runs on the loopback interface of its own network namespace, or of the host without root.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::common::serving::CoordinatorProcess;
use crate::common::wait_for;
use crate::test_lock::{self, ExclusiveLock};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::Value;
use tempfile::TempDir;
use tokio_stream::StreamExt;
use tonic::transport::Endpoint;
use weir_client::Agent;
use weir_proto::wire::AgentMessage;
use weir_proto::wire::control_client::ControlClient;
use weir_proto::{FlowKey, FlowProgress, MAX_REPORTED_FLOWS, Report, SenderState};
use weir_testbed::namespace;

/// The maximum growth in memory, in bytes, of a coordinator of four hosts under any input.
const MAX_MEMORY_GROWTH: u64 = 128 << 20;

/// The duration of each attack.
const ATTACK_DURATION: Duration = Duration::from_secs(4);

/// The lease of orders. A host without a report for two leases is disconnected.
const LEASE: Duration = Duration::from_secs(1);

/// Waits until no other test runs, and moves this thread into a new network namespace. Threads and processes
/// that the test starts inherit the namespace.
fn enter_own_namespace() -> ExclusiveLock {
    let lock = test_lock::lock_exclusive();
    if let Err(error) = namespace::enter_new() {
        eprintln!("the test uses the loopback interface of the machine: {error}");
    }
    lock
}

/// Writes a configuration of four hosts; `port` is the agents' port.
fn configure(folder: &Path, name: &str, port: u16) -> PathBuf {
    let config = folder.join(format!("{name}.toml"));
    let text = format!(
        "weir-serve = 1\nstore = \"{name}.redb\"\npolicy = \"saath\"\nlease = \"{}s\"\n\
         [listen]\nagents = \"127.0.0.1:{port}\"\napi = \"127.0.0.1:0\"\n\
         [host]\na = \"1Gbit\"\nb = \"1Gbit\"\nc = \"1Gbit\"\nd = \"1Gbit\"\n",
        LEASE.as_secs()
    );
    fs::write(&config, text).unwrap();
    config
}

/// An agent's process, and the folder with its log and local socket.
struct AgentProcess {
    child: Child,
    folder: TempDir,
}

impl AgentProcess {
    fn start(coordinator: &str, host: &str) -> AgentProcess {
        AgentProcess::start_with_env(coordinator, host, &[])
    }

    fn start_with_env(coordinator: &str, host: &str, environment: &[(&str, &str)]) -> AgentProcess {
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .envs(environment.iter().copied())
            .args(["agent", "run", "--rate", "1Gbit", "--coordinator", coordinator])
            .args(["--name", host, "--socket"])
            .arg(folder.path().join("local_socket"))
            .stderr(File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        AgentProcess { child, folder }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn local_socket(&self) -> PathBuf {
        self.folder.path().join("local_socket")
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Threads that repeat an action until the attack is dropped.
struct BackgroundAttack {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BackgroundAttack {
    fn new() -> BackgroundAttack {
        BackgroundAttack { stop: Arc::default(), threads: Vec::new() }
    }

    fn repeat(mut self, mut action: impl FnMut() + Send + 'static) -> BackgroundAttack {
        let stop = Arc::clone(&self.stop);
        self.threads.push(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                action();
            }
        }));
        self
    }
}

impl Drop for BackgroundAttack {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Sends bytes, and reads until the peer answers, the peer closes or the timeout expires.
fn send_bytes(address: &str, bytes: &[u8], timeout: Duration) {
    let Ok(mut socket) = TcpStream::connect(address) else { return };
    socket.set_read_timeout(Some(timeout)).unwrap();
    socket.set_write_timeout(Some(timeout)).unwrap();
    // The server may close the connection before it reads everything.
    if socket.write_all(bytes).is_ok() {
        let _ = socket.read(&mut [0; 1024]);
    }
}

/// Up to 4095 random bytes after the start of a TLS, HTTP/1.1 or HTTP/2 exchange, or without one.
fn random_bytes(random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = vec![0; (random.next_u32() % 4096) as usize];
    random.fill_bytes(&mut bytes);
    let head: &[u8] = match random.next_u32() % 6 {
        0 => b"",
        1 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        // A SETTINGS frame, and then a frame above the maximum length.
        2 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\xff\xff\xff\0\0\0\0\0\x01",
        3 => b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        4 => b"PUT /v1/coflows/x HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n",
        _ => b"GET /",
    };
    [head, &bytes].concat()
}

/// A coordinator and an agent that no test attacks. Other programs on the machine delay them like those under attack.
struct Control {
    coordinator_process: CoordinatorProcess,
    _agent: AgentProcess,
    _folder: TempDir,
}

impl Control {
    fn start() -> Control {
        let folder = tempfile::tempdir().unwrap();
        let coordinator_process = CoordinatorProcess::start(&configure(folder.path(), "control", 0));
        let agent = AgentProcess::start(&coordinator_process.agents_address, "a");
        wait_for("the control's agent", || has_applied_orders(&coordinator_process, 2));
        Control { coordinator_process, _agent: agent, _folder: folder }
    }

    /// Asserts that the agent of host 0 of a coordinator is connected, reports and applies orders for `time`, as that
    /// of the control does.
    fn assert_agent_undisturbed(&self, attacked: &CoordinatorProcess, time: Duration) {
        let (start_time, mut checks, mut late, mut late_controls) = (Instant::now(), 0, 0, 0);
        let mut last_ordered = 0;
        while start_time.elapsed() < time {
            let host = &attacked.hosts()[0];
            let ordered = host["ordered"].as_u64().unwrap();
            assert!(ordered >= last_ordered, "{host}");
            last_ordered = ordered;
            checks += 1;
            late += u32::from(is_late(host));
            late_controls += u32::from(is_late(&self.coordinator_process.hosts()[0]));
            thread::sleep(Duration::from_millis(20));
        }
        eprintln!("{late} of {checks} checks found a late agent, {late_controls} at the control");
        assert!(
            late <= late_controls + checks / 20,
            "{late} of {checks} checks, {late_controls} at the control"
        );
    }
}

/// Whether an agent is absent, has sent no report for a lease, or has not applied the last four orders.
fn is_late(host: &Value) -> bool {
    let count = |key: &str| host[key].as_u64().unwrap();
    host["present"] != true
        || host["seconds_since_report"].as_f64().is_none_or(|seconds| seconds > LEASE.as_secs_f64())
        || count("ordered") - count("applied") > 4
}

/// Whether the agent of host 0 has applied more than `count` orders.
fn has_applied_orders(coordinator_process: &CoordinatorProcess, count: u64) -> bool {
    coordinator_process.hosts()[0]["applied"].as_u64().unwrap() > count
}

fn connect_seqpacket(local_socket: &Path) -> OwnedFd {
    let kind = SockType::SeqPacket;
    let socket = socket(AddressFamily::Unix, kind, SockFlag::empty(), None).unwrap();
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(5, 0)).unwrap();
    setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(5, 0)).unwrap();
    connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &UnixAddr::new(local_socket).unwrap()).unwrap();
    socket
}

#[test]
fn malformed_input_and_idle_connections_do_not_disturb_other_clients() {
    let _lock = enter_own_namespace();
    let control = Control::start();
    let folder = tempfile::tempdir().unwrap();
    let coordinator_process = CoordinatorProcess::start(&configure(folder.path(), "weir", 0));
    let agent = AgentProcess::start(&coordinator_process.agents_address, "a");
    wait_for("the agent", || has_applied_orders(&coordinator_process, 2));
    let before = coordinator_process.peak_memory_bytes();
    // Idle connections: 400 with half a request, and 8 with part of the HTTP/2 preface.
    let idle_connection = |to: &str, bytes: &[u8]| {
        let mut socket = TcpStream::connect(to).unwrap();
        socket.write_all(bytes).unwrap();
        socket
    };
    let incomplete_request =
        b"PUT /v1/coflows/x HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n{\"flows\": [";
    let idle_clients: Vec<TcpStream> =
        (0..400).map(|_| idle_connection(&coordinator_process.api_address, incomplete_request)).collect();
    let idle_agents: Vec<TcpStream> =
        (0..8).map(|_| idle_connection(&coordinator_process.agents_address, b"PRI * HT")).collect();
    let attack = |to: &str, seed: u64| {
        let (to, mut random) = (to.to_owned(), ChaCha8Rng::seed_from_u64(seed));
        move || send_bytes(&to, &random_bytes(&mut random), Duration::from_millis(100))
    };
    let api_address = coordinator_process.api_address.clone();
    let local_socket = agent.local_socket();
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let attacks = BackgroundAttack::new()
        .repeat(attack(&coordinator_process.agents_address, 1))
        .repeat(attack(&coordinator_process.api_address, 2))
        .repeat(move || send_bytes(&api_address, &vec![b'x'; 8 << 20], Duration::from_millis(300)))
        .repeat(move || {
            let socket = connect_seqpacket(&local_socket);
            let mut bytes = vec![0; (random.next_u32() % 100_000) as usize];
            random.fill_bytes(&mut bytes);
            let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
            if !bytes.is_empty() && send(fd, &bytes, MsgFlags::MSG_NOSIGNAL).is_ok() {
                let mut answer = [0; 256];
                let length = recv(fd, &mut answer, MsgFlags::empty()).unwrap();
                assert!(answer[..length].starts_with(b"no: "), "{:?}", &answer[..length]);
            }
        });
    control.assert_agent_undisturbed(&coordinator_process, ATTACK_DURATION);
    // The coordinator accepts a new agent during the attack.
    let late_agent = AgentProcess::start(&coordinator_process.agents_address, "b");
    wait_for("the second agent", || coordinator_process.hosts()[1]["present"] == true);
    assert!(Agent::connect(agent.local_socket()).unwrap().mark_done("x", 0).is_err());
    drop((attacks, idle_clients, idle_agents, late_agent));
    let growth = coordinator_process.peak_memory_bytes() - before;
    eprintln!("memory grew by {} MB from {} MB", growth >> 20, before >> 20);
    assert!(growth < MAX_MEMORY_GROWTH, "{growth}");
    coordinator_process.get("/livez");
}

/// One agent sends reports of unknown flows at its maximum rate.
#[test]
fn report_flood_from_one_agent_does_not_delay_others() {
    let _lock = enter_own_namespace();
    let control = Control::start();
    let folder = tempfile::tempdir().unwrap();
    let coordinator_process = CoordinatorProcess::start(&configure(folder.path(), "weir", 0));
    let _agent = AgentProcess::start(&coordinator_process.agents_address, "a");
    wait_for("the agent", || has_applied_orders(&coordinator_process, 2));
    let before = coordinator_process.peak_memory_bytes();
    let progress = |flow| {
        FlowProgress::new(
            FlowKey { coflow: "x".repeat(100).into(), generation: 1, flow },
            u64::MAX,
            SenderState::Ready,
        )
    };
    let report =
        Report { flows: (0..MAX_REPORTED_FLOWS as u32).map(progress).collect(), ..Report::default() };
    let to = format!("http://{}", coordinator_process.agents_address);
    let flood_start = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let flood = runtime.spawn(async move {
        let channel = Endpoint::from_shared(to).unwrap().connect().await.unwrap();
        let mut control = ControlClient::new(channel);
        let reports = tokio_stream::iter(std::iter::repeat_with(move || AgentMessage::report(&report)));
        let mut orders = control
            .stream_orders(tokio_stream::once(AgentMessage::hello("b", Vec::new(), &[])).chain(reports))
            .await
            .unwrap()
            .into_inner();
        while orders.message().await.is_ok_and(|order| order.is_some()) {}
    });
    control.assert_agent_undisturbed(&coordinator_process, ATTACK_DURATION);
    assert!(!flood.is_finished());
    flood.abort();
    let metrics = coordinator_process.get("/metrics");
    let flood_duration = flood_start.elapsed();
    let unknown = metrics
        .lines()
        .find(|line| line.starts_with("weir_report_entries_rejected_total{reason=\"unknown-flow\"}"));
    let unknown: f64 = unknown.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default();
    let growth = coordinator_process.peak_memory_bytes() - before;
    eprintln!(
        "the coordinator read {} reports; memory grew by {} MB from {} MB",
        unknown / MAX_REPORTED_FLOWS as f64,
        growth >> 20,
        before >> 20
    );
    // The coordinator reads at most four reports an interval of 8 ms, and those of two intervals at once.
    let max_reports = 4.0 * (flood_duration.as_secs_f64() / 0.008 + 2.0);
    assert!((1.0..max_reports).contains(&(unknown / MAX_REPORTED_FLOWS as f64)), "{unknown}");
    assert!(growth < MAX_MEMORY_GROWTH, "{growth}");
}

/// A coordinator restarts with its old store after a newer coordinator has sent orders.
#[test]
fn agent_refuses_orders_with_a_stale_epoch() {
    let _lock = enter_own_namespace();
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (older, newer) = (configure(folder.path(), "older", port), configure(folder.path(), "newer", port));
    let first = CoordinatorProcess::start(&older);
    let agent = AgentProcess::start(&first.agents_address, "a");
    wait_for("orders of the first coordinator", || has_applied_orders(&first, 2));
    drop(first);
    let second = CoordinatorProcess::start(&newer);
    wait_for("orders of the second coordinator", || has_applied_orders(&second, 2));
    drop(second);
    // The older coordinator receives reports and sends orders.
    let first = CoordinatorProcess::start(&older);
    wait_for("orders of the older coordinator", || first.hosts()[0]["ordered"].as_u64().unwrap() > 10);
    assert_eq!(first.hosts()[0]["applied"], 0);
    assert!(agent.log().contains("is refused: the epoch is stale"), "{}", agent.log());
    // The agent reports its refusals, and the coordinator counts them.
    wait_for("a count of refused orders", || {
        let metrics = first.get("/metrics");
        let refused = metrics
            .lines()
            .find_map(|line| line.strip_prefix("weir_orders_refused_total{reason=\"stale-epoch\"} "));
        refused.unwrap().parse::<f64>().unwrap() > 0.0
    });
    drop(first);
    let second = CoordinatorProcess::start(&newer);
    wait_for("orders of the newer coordinator", || has_applied_orders(&second, 2));
}

/// Both coordinators run at the same time, and a proxy connects the agent to either.
#[test]
fn agent_refuses_the_older_of_two_running_coordinators() {
    let _lock = enter_own_namespace();
    let folder = tempfile::tempdir().unwrap();
    let older = CoordinatorProcess::start(&configure(folder.path(), "older", 0));
    // The epoch of a new store is the time of day in milliseconds.
    thread::sleep(Duration::from_millis(20));
    let newer = CoordinatorProcess::start(&configure(folder.path(), "newer", 0));
    let proxy = TcpProxy::new(&newer.agents_address);
    let agent = AgentProcess::start(&proxy.address, "a");
    let state = |coordinator_process: &CoordinatorProcess, key: &str| {
        coordinator_process.hosts()[0][key].as_u64().unwrap()
    };
    wait_for("orders of the newer coordinator", || state(&newer, "applied") > 2);
    proxy.redirect(&older.agents_address);
    wait_for("orders of the older coordinator", || state(&older, "ordered") > 10);
    assert_eq!(state(&older, "applied"), 0);
    assert!(agent.log().contains("is refused: the epoch is stale"), "{}", agent.log());
    let before = state(&newer, "applied");
    proxy.redirect(&newer.agents_address);
    wait_for("orders of the newer coordinator again", || state(&newer, "applied") > before + 2);
    assert_eq!(state(&older, "applied"), 0);
}

/// A TCP proxy to a coordinator. `redirect` closes its connections, and selects another coordinator.
struct TcpProxy {
    address: String,
    target: Arc<Mutex<(String, Vec<TcpStream>)>>,
}

impl TcpProxy {
    fn new(target: &str) -> TcpProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let to = Arc::new(Mutex::new((target.to_owned(), Vec::new())));
        let target = Arc::clone(&to);
        // The thread runs until this process exits.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (to, streams) = &mut *target.lock().unwrap();
                let Ok(server) = TcpStream::connect(to.as_str()) else { continue };
                streams.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                for (mut from, mut into) in
                    [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
                {
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut into);
                        let _ = into.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        TcpProxy { address, target: to }
    }

    fn redirect(&self, to: &str) {
        let mut target = self.target.lock().unwrap();
        target.0 = to.to_owned();
        for stream in target.1.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Source of a library for `LD_PRELOAD` that adds `WEIR_TEST_CLOCK` seconds to the time of day.
const CLOCK_LIBRARY: &str = "
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long off(void) {
    const char *text = getenv(\"WEIR_TEST_CLOCK\");
    return text ? atol(text) : 0;
}
int clock_gettime(clockid_t clock, struct timespec *time) {
    int done = syscall(SYS_clock_gettime, clock, time);
    if (!done && clock == CLOCK_REALTIME) time->tv_sec += off();
    return done;
}
int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
";

/// Two coordinators run one after the other, with clocks an hour ahead and an hour behind; the agent's clock
/// is an hour behind. The agent applies the orders of both.
#[test]
fn agent_applies_orders_from_coordinators_with_wrong_clocks() {
    let _lock = enter_own_namespace();
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("clock.c"), folder.path().join("clock.so"));
    fs::write(&source, CLOCK_LIBRARY).unwrap();
    let compiler = ["cc", "clang"].into_iter().find(|name| {
        let compiled = Command::new(name).args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
        compiled.is_ok_and(|status| status.success())
    });
    if compiler.is_none() {
        eprintln!(
            "agent_applies_orders_from_coordinators_with_wrong_clocks skips, since a C compiler is missing"
        );
        return;
    }
    let library = library.display().to_string();
    let clock = |offset: &'static str| [("LD_PRELOAD", library.as_str()), ("WEIR_TEST_CLOCK", offset)];
    // The timestamps of log lines show that the clocks differ.
    let config = configure(folder.path(), "weir", 0);
    let state = |coordinator_process: &CoordinatorProcess, key: &str| {
        coordinator_process.hosts()[0][key].as_u64().unwrap()
    };
    let first = CoordinatorProcess::start_with_env(&config, &clock("3600"));
    let proxy = TcpProxy::new(&first.agents_address);
    let agent = AgentProcess::start_with_env(&proxy.address, "a", &clock("-3600"));
    wait_for("orders", || state(&first, "applied") > 20);
    let first_timestamp = first.first_timestamp.clone();
    drop(first);
    let second = CoordinatorProcess::start_with_env(&config, &clock("-3600"));
    proxy.redirect(&second.agents_address);
    wait_for("orders of the next coordinator", || state(&second, "applied") > 20);
    assert!(!agent.log().contains("refused"), "{}", agent.log());
    assert!(
        second.first_timestamp < first_timestamp,
        "{} is not before {first_timestamp}: the clocks do not differ",
        second.first_timestamp
    );
}
