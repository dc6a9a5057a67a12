//! `weir serve` and `weir agent run` under malformed input, floods, idle connections, a coordinator with a
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

use crate::common::serving::Serving;
use crate::common::wait_for;
use crate::turn::{self, Alone};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tempfile::TempDir;
use tokio_stream::StreamExt;
use tonic::transport::Endpoint;
use weir_client::Agent;
use weir_proto::wire::Up;
use weir_proto::wire::control_client::ControlClient;
use weir_proto::{FlowKey, FlowProgress, MAX_SEEN, Report};

/// The maximum growth in memory, in bytes, of a coordinator of four hosts under any input.
const ROOM: u64 = 128 << 20;

/// The duration of each attack.
const ATTACK: Duration = Duration::from_secs(4);

/// The lease of orders. A host without a report for two leases is disconnected; a busy machine delays reports
/// by up to a tenth of a second.
const LEASE: Duration = Duration::from_secs(1);

/// Waits until no other test runs, and moves this thread into a new network namespace. Threads and processes
/// that the test starts inherit the namespace.
fn turn() -> Alone {
    let turn = turn::take_alone();
    match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success()),
        Err(why) => eprintln!("on this machine's own loopback: {why}"),
    }
    turn
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
struct Attending {
    child: Child,
    folder: TempDir,
}

impl Attending {
    fn start(coordinator: &str, host: u32) -> Attending {
        Attending::start_with(coordinator, host, &[])
    }

    fn start_with(coordinator: &str, host: u32, environment: &[(&str, &str)]) -> Attending {
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .envs(environment.iter().copied())
            .args(["agent", "run", "--rate", "1Gbit", "--coordinator", coordinator])
            .args(["--host", &host.to_string(), "--socket"])
            .arg(folder.path().join("local_socket"))
            .stderr(File::create(folder.path().join("said")).unwrap())
            .spawn()
            .unwrap();
        Attending { child, folder }
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said")).unwrap()
    }

    fn local_socket(&self) -> PathBuf {
        self.folder.path().join("local_socket")
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Threads that repeat an action until the attack is dropped.
struct Attack {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    fn new() -> Attack {
        Attack { stop: Arc::default(), threads: Vec::new() }
    }

    fn with(mut self, mut once: impl FnMut() + Send + 'static) -> Attack {
        let stop = Arc::clone(&self.stop);
        self.threads.push(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                once();
            }
        }));
        self
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Sends bytes, and reads until the peer answers, the peer closes or the timeout expires.
fn say(to: &str, what: &[u8], patience: Duration) {
    let Ok(mut socket) = TcpStream::connect(to) else { return };
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.set_write_timeout(Some(patience)).unwrap();
    // The server may close the connection before it reads everything.
    if socket.write_all(what).is_ok() {
        let _ = socket.read(&mut [0; 1024]);
    }
}

/// Up to 4095 random bytes after the start of a TLS, HTTP/1.1 or HTTP/2 exchange, or without one.
fn nonsense(random: &mut ChaCha8Rng) -> Vec<u8> {
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

/// Asserts that a connected agent keeps reporting and applying orders for `time`.
fn undisturbed(serving: &Serving, agent: usize, time: Duration) {
    let (began, mut looks, mut late, mut told) = (Instant::now(), 0, 0, 0);
    while began.elapsed() < time {
        let host = &serving.hosts()[agent];
        assert_eq!(host["present"], true, "{host}");
        let now = host["ordered"].as_u64().unwrap();
        let silent = host["seconds_since_report"].as_f64().unwrap();
        looks += 1;
        // An agent reports every interval; a busy machine may delay a report.
        late += u32::from(silent > LEASE.as_secs_f64());
        assert!(now - host["applied"].as_u64().unwrap() <= 4, "{host}");
        assert!(now >= told, "{host}");
        told = now;
        thread::sleep(Duration::from_millis(20));
    }
    assert!(late * 20 <= looks, "of {looks} times it was not heard of for a lease {late} times");
}

fn seqpacket(local_socket: &Path) -> OwnedFd {
    let kind = SockType::SeqPacket;
    let socket = socket(AddressFamily::Unix, kind, SockFlag::empty(), None).unwrap();
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(5, 0)).unwrap();
    setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(5, 0)).unwrap();
    connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &UnixAddr::new(local_socket).unwrap()).unwrap();
    socket
}

#[test]
fn malformed_input_and_idle_connections_do_not_disturb_other_clients() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(&configure(folder.path(), "weir", 0));
    let agent = Attending::start(&serving.agents, 0);
    wait_for("the agent", || serving.hosts()[0]["applied"].as_u64().unwrap() > 2);
    let before = serving.most_memory();
    // Idle connections: 400 with half a request, and 8 with part of the HTTP/2 preface.
    let idle = |to: &str, what: &[u8]| {
        let mut socket = TcpStream::connect(to).unwrap();
        socket.write_all(what).unwrap();
        socket
    };
    let half = b"PUT /v1/coflows/x HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n{\"flows\": [";
    let slow: Vec<TcpStream> = (0..400).map(|_| idle(&serving.api, half)).collect();
    let mute: Vec<TcpStream> = (0..8).map(|_| idle(&serving.agents, b"PRI * HT")).collect();
    let attack = |to: &str, seed: u64| {
        let (to, mut random) = (to.to_owned(), ChaCha8Rng::seed_from_u64(seed));
        move || say(&to, &nonsense(&mut random), Duration::from_millis(100))
    };
    let endless = serving.api.clone();
    let local_socket = agent.local_socket();
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let attacks = Attack::new()
        .with(attack(&serving.agents, 1))
        .with(attack(&serving.api, 2))
        .with(move || say(&endless, &vec![b'x'; 8 << 20], Duration::from_millis(300)))
        .with(move || {
            let socket = seqpacket(&local_socket);
            let mut bytes = vec![0; (random.next_u32() % 100_000) as usize];
            random.fill_bytes(&mut bytes);
            let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
            if !bytes.is_empty() && send(fd, &bytes, MsgFlags::MSG_NOSIGNAL).is_ok() {
                let mut answer = [0; 256];
                let length = recv(fd, &mut answer, MsgFlags::empty()).unwrap();
                assert!(answer[..length].starts_with(b"no: "), "{:?}", &answer[..length]);
            }
        });
    undisturbed(&serving, 0, ATTACK);
    // The coordinator accepts a new agent during the attack.
    let late = Attending::start(&serving.agents, 1);
    wait_for("the second agent", || serving.hosts()[1]["present"] == true);
    assert!(Agent::connect(agent.local_socket()).unwrap().done("x", 0).is_err());
    drop((attacks, slow, mute, late));
    let more = serving.most_memory() - before;
    eprintln!("{} MB more than {} MB", more >> 20, before >> 20);
    assert!(more < ROOM, "{more}");
    serving.get("/livez");
}

/// One agent sends reports of unknown flows at its maximum rate.
#[test]
fn report_flood_from_one_agent_does_not_delay_others() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(&configure(folder.path(), "weir", 0));
    let _agent = Attending::start(&serving.agents, 0);
    wait_for("the agent", || serving.hosts()[0]["applied"].as_u64().unwrap() > 2);
    let before = serving.most_memory();
    let seen = |flow| FlowProgress {
        key: FlowKey { coflow: "x".repeat(100).into(), flow },
        sent: u64::MAX,
        closed: false,
    };
    let report = Report { flows: (0..MAX_SEEN as u32).map(seen).collect(), ..Report::default() };
    let to = format!("http://{}", serving.agents);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let flood = runtime.spawn(async move {
        let channel = Endpoint::from_shared(to).unwrap().connect().await.unwrap();
        let mut control = ControlClient::new(channel);
        let reports = tokio_stream::iter(std::iter::repeat_with(move || Up::report(&report)));
        let mut orders =
            control.attend(tokio_stream::once(Up::hello(1)).chain(reports)).await.unwrap().into_inner();
        while orders.message().await.is_ok_and(|order| order.is_some()) {}
    });
    undisturbed(&serving, 0, ATTACK);
    assert!(!flood.is_finished());
    flood.abort();
    let metrics = serving.get("/metrics");
    let unknown = metrics
        .lines()
        .find(|line| line.starts_with("weir_report_entries_rejected_total{reason=\"unknown-flow\"}"));
    let unknown: f64 = unknown.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default();
    let more = serving.most_memory() - before;
    eprintln!(
        "{} reports were read; {} MB more than {} MB",
        unknown / MAX_SEEN as f64,
        more >> 20,
        before >> 20
    );
    // The coordinator reads at most four reports an interval of 8 ms.
    let most = 4.0 * (ATTACK.as_secs_f64() + 2.0) / 0.008;
    assert!((1.0..most).contains(&(unknown / MAX_SEEN as f64)), "{unknown}");
    assert!(more < ROOM, "{more}");
}

/// A coordinator restarts with its old store after a newer coordinator has sent orders.
#[test]
fn agent_refuses_orders_with_a_stale_epoch() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (older, newer) = (configure(folder.path(), "older", port), configure(folder.path(), "newer", port));
    let obeyed = |serving: &Serving| serving.hosts()[0]["applied"].as_u64().unwrap() > 2;
    let first = Serving::start(&older);
    let agent = Attending::start(&first.agents, 0);
    wait_for("the first", || obeyed(&first));
    drop(first);
    let second = Serving::start(&newer);
    wait_for("the second", || obeyed(&second));
    drop(second);
    // The older coordinator receives reports and sends orders.
    let first = Serving::start(&older);
    wait_for("orders of the older one", || first.hosts()[0]["ordered"].as_u64().unwrap() > 10);
    assert_eq!(first.hosts()[0]["applied"], 0);
    assert!(agent.said().contains("an order was refused: an older epoch"), "{}", agent.said());
    // The agent reports its refusals, and the coordinator counts them.
    wait_for("the count of orders that were refused", || {
        let metrics = first.get("/metrics");
        let refused = metrics
            .lines()
            .find_map(|line| line.strip_prefix("weir_orders_refused_total{reason=\"stale-epoch\"} "));
        refused.unwrap().parse::<f64>().unwrap() > 0.0
    });
    drop(first);
    let second = Serving::start(&newer);
    wait_for("the newer one", || obeyed(&second));
}

/// Both coordinators run at the same time, and a proxy connects the agent to either.
#[test]
fn agent_refuses_the_older_of_two_running_coordinators() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let older = Serving::start(&configure(folder.path(), "older", 0));
    // The epoch of a new store is the time of day in milliseconds.
    thread::sleep(Duration::from_millis(20));
    let newer = Serving::start(&configure(folder.path(), "newer", 0));
    let way = Way::new(&newer.agents);
    let agent = Attending::start(&way.address, 0);
    let state = |serving: &Serving, key: &str| serving.hosts()[0][key].as_u64().unwrap();
    wait_for("the newer", || state(&newer, "applied") > 2);
    way.turn_to(&older.agents);
    wait_for("orders of the older", || state(&older, "ordered") > 10);
    assert_eq!(state(&older, "applied"), 0);
    assert!(agent.said().contains("an order was refused: an older epoch"), "{}", agent.said());
    let before = state(&newer, "applied");
    way.turn_to(&newer.agents);
    wait_for("the newer again", || state(&newer, "applied") > before + 2);
    assert_eq!(state(&older, "applied"), 0);
}

/// A TCP proxy to a coordinator. `turn_to` closes its connections and selects another coordinator.
struct Way {
    address: String,
    to: Arc<Mutex<(String, Vec<TcpStream>)>>,
}

impl Way {
    fn new(to: &str) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let to = Arc::new(Mutex::new((to.to_owned(), Vec::new())));
        let ends = Arc::clone(&to);
        // The thread runs until this process exits.
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let (to, known) = &mut *ends.lock().unwrap();
                let Ok(far) = TcpStream::connect(to.as_str()) else { continue };
                known.extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                for (mut from, mut into) in
                    [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
                {
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut into);
                        let _ = into.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Way { address, to }
    }

    fn turn_to(&self, to: &str) {
        let mut ends = self.to.lock().unwrap();
        ends.0 = to.to_owned();
        for stream in ends.1.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Source of a library for `LD_PRELOAD` that adds `WEIR_TEST_CLOCK` seconds to the time of day.
const CLOCK: &str = "
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
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("clock.c"), folder.path().join("clock.so"));
    fs::write(&source, CLOCK).unwrap();
    let compiler = ["cc", "clang"].into_iter().find(|name| {
        let made = Command::new(name).args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
        made.is_ok_and(|status| status.success())
    });
    if compiler.is_none() {
        eprintln!(
            "agent_applies_orders_from_coordinators_with_wrong_clocks skips, since there is no C compiler"
        );
        return;
    }
    let library = library.display().to_string();
    let clock = |offset: &'static str| [("LD_PRELOAD", library.as_str()), ("WEIR_TEST_CLOCK", offset)];
    // The timestamps of log lines show that the clocks differ.
    let config = configure(folder.path(), "weir", 0);
    let state = |serving: &Serving, key: &str| serving.hosts()[0][key].as_u64().unwrap();
    let first = Serving::start_with(&config, &clock("3600"));
    let way = Way::new(&first.agents);
    let agent = Attending::start_with(&way.address, 0, &clock("-3600"));
    wait_for("orders", || state(&first, "applied") > 20);
    let ahead = first.began.clone();
    drop(first);
    let second = Serving::start_with(&config, &clock("-3600"));
    way.turn_to(&second.agents);
    wait_for("orders of the next one", || state(&second, "applied") > 20);
    assert!(!agent.said().contains("refused"), "{}", agent.said());
    assert!(second.began < ahead, "{} and {ahead}: the clocks were the same", second.began);
}
