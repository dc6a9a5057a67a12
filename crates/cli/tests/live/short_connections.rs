//! Tests that services of short connections keep to their limits: to a share of a receiver's link next to one long connection, and to a
//! maximum bandwidth over two hosts. Short connections on a free link are as fast as without an agent.
//! The tests run on testbeds of namespaces, and skip without the privileges or the BPF programs.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bed::{Bed, COORDINATOR_PORT, LINK_FRAME_BYTES_PER_SEC, PAYLOAD_FRACTION, Process, address};
use crate::campaign::test_scale;
use crate::common::wait_within;
use crate::examples::missing_requirement;
use crate::senders::Senders;
use crate::switch::{Coordinator, credential_options, delete_testbed_queues};
use weir_testbed::namespace;

/// Two senders, two receivers, and the coordinator's host.
const HOSTS: u32 = 5;
const RECEIVERS: [u32; 2] = [2, 3];

/// The services with their ports and weights.
const ONLINE: (&str, u16, u32) = ("online", 9000, 3);
const BATCH: (&str, u16, u32) = ("batch", 9001, 1);

/// The bytes of a short connection.
const BYTES: usize = 100_000;

/// The bytes of an answer, the number of answers, and the pause after each, in which the demand becomes 0.
const ANSWER_BYTES: usize = 250_000;
const ANSWERS: u32 = 21;
const PAUSE: Duration = Duration::from_millis(400);

/// The fraction of a link that the allocator divides (`docs/link-capacity.md`).
const ALLOCATABLE: f64 = 0.9801;

/// The maximum bandwidth of batch, in Mbit/s.
const MAX: f64 = 10.0;

/// For how long rates are measured: long next to the burst and the excess over a limit below.
fn measured_time() -> Duration {
    test_scale(Duration::from_secs(20), Duration::from_secs(300))
}

/// By how much a service may exceed its limit in the measured time: by the burst of 100 ms and the largest packet of each of two hosts, and
/// by the excess that comes off in the next second (`docs/agent.md`).
fn max_excess(limit_mbit: f64) -> f64 {
    let packets_mbit = 2.0 * 65_536.0 * 8e-6;
    1.0 + (1.1 + packets_mbit / limit_mbit) / measured_time().as_secs_f64()
}

/// Programs that each open a connection, send [`BYTES`], close it, and begin again, until this is dropped.
struct ShortSenders {
    received_bytes: Arc<AtomicU64>,
    is_stopped: Arc<AtomicBool>,
}

impl ShortSenders {
    fn start(bed: &Bed, [from, to]: [u32; 2], port: u16, programs: usize) -> ShortSenders {
        let (received_bytes, is_stopped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let receiver = SocketAddr::from((address(to), port));
        let listener = bed.run_on_host(to, || TcpListener::bind(receiver).unwrap());
        let (count, stopped) = (Arc::clone(&received_bytes), Arc::clone(&is_stopped));
        thread::spawn(move || receive(&listener, &count, &stopped));
        for _ in 0..programs {
            let (namespace, stopped) = (bed.namespace(from), Arc::clone(&is_stopped));
            let send = move || {
                while !stopped.load(Ordering::Relaxed) {
                    if let Ok(mut stream) = TcpStream::connect(receiver) {
                        let _ = stream.write_all(&[0; BYTES]);
                    }
                }
            };
            thread::spawn(move || namespace::run_inside(&namespace, send).unwrap());
        }
        ShortSenders { received_bytes, is_stopped }
    }

    fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for ShortSenders {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

/// Accepts connections, and reads each to its end.
fn receive(listener: &TcpListener, received_bytes: &Arc<AtomicU64>, is_stopped: &AtomicBool) {
    listener.set_nonblocking(true).unwrap();
    while !is_stopped.load(Ordering::Relaxed) {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let count = Arc::clone(received_bytes);
        thread::spawn(move || {
            stream.set_nonblocking(false).unwrap();
            let mut buffer = vec![0; 1 << 16];
            while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
                count.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        });
    }
}

/// The configuration, with more lines for all, and for batch.
fn config(more: &str, more_of_batch: &str) -> String {
    let hosts: String = (0..HOSTS).map(|host| format!("h{host} = \"40Mbit\"\n")).collect();
    let addresses: String = (0..HOSTS).map(|host| format!("h{host} = [\"{}\"]\n", address(host))).collect();
    format!(
        "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\nlease = \"2s\"\nqueues = \"services\"\n{more}\
         [listen]\nagents = \"{}:{COORDINATOR_PORT}\"\napi = \"127.0.0.1:7701\"\n\
         [host]\n{hosts}[address]\n{addresses}\
         [service.online]\nweight = {}\n[service.batch]\nweight = {}\n{more_of_batch}\
         [tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nclients = \"authority.pem\"\n",
        address(HOSTS - 1),
        ONLINE.2,
        BATCH.2,
    )
}

/// The testbed of a test, or none if the test skips.
fn testbed(test: &str) -> Option<Bed> {
    if let Some(reason) = missing_requirement(&[]) {
        eprintln!("{test} skips, since {reason}");
        return None;
    }
    Bed::up(test, HOSTS)
}

/// Starts the coordinator, and the agents of both senders.
fn start<'a>(bed: &'a Bed, config: &str) -> (Coordinator<'a>, [Process; 2]) {
    let coordinator = Coordinator::start_with(bed, HOSTS, &["h0", "h1"], config);
    for (name, ..) in [ONLINE, BATCH] {
        assert!(coordinator.ctl(&format!("application register {name} --service {name}")).0, "{name}");
    }
    let agents = [0, 1].map(|host| {
        delete_testbed_queues(&bed.namespace(host), 1);
        let command = bed.command_with_cgroups(host, env!("CARGO_BIN_EXE_weir"));
        let mut command = bed.add_agent_options(command, host);
        command.args(["--interface", "eth0"]);
        for (name, port, _) in [ONLINE, BATCH] {
            command.args(["--application", &format!("{name}=port/{port}")]);
        }
        command.args(credential_options(&format!("h{host}"))).current_dir(bed.dir.path("."));
        Process(command.spawn().unwrap())
    });
    wait_within(Duration::from_secs(20), "the agents", || {
        let hosts = coordinator.ctl("hosts --format csv").1;
        hosts.contains("h0,true") && hosts.contains("h1,true")
    });
    (coordinator, agents)
}

/// The median time of answers, each over a new connection.
fn median_answer_time(bed: &Bed, [from, to]: [u32; 2], port: u16) -> Duration {
    let answer = move || {
        let began = Instant::now();
        let mut stream = TcpStream::connect((address(to), port)).unwrap();
        stream.write_all(&[0; ANSWER_BYTES]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // The receiver closes the connection when it has read all.
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        began.elapsed()
    };
    let mut times: Vec<Duration> = (0..ANSWERS)
        .map(|_| {
            thread::sleep(PAUSE);
            bed.run_on_host(from, answer)
        })
        .collect();
    eprintln!("{times:.1?}");
    times.sort_unstable();
    times[times.len() / 2]
}

/// The rate of each counter of payload bytes in a time, in Mbit/s of whole frames.
fn measure<const N: usize>(read: impl Fn() -> [u64; N], time: Duration) -> [f64; N] {
    let (before, began) = (read(), Instant::now());
    thread::sleep(time);
    let (after, seconds) = (read(), began.elapsed().as_secs_f64());
    std::array::from_fn(|at| (after[at] - before[at]) as f64 * 8e-6 / PAYLOAD_FRACTION / seconds)
}

/// The limit of batch at a host in Mbit/s, as `weir ctl observed` prints it; none without a limit.
fn limit_of_batch(coordinator: &Coordinator, host: &str) -> Option<f64> {
    let table = coordinator.ctl("observed --format csv").1;
    let mut lines = table.lines();
    let column = lines.next()?.split(',').position(|name| name == "limit_bytes_per_second")?;
    let line = lines.find(|line| line.starts_with(&format!("{host},batch,")))?;
    line.split(',').nth(column)?.parse::<f64>().ok().map(|rate| rate * 8e-6)
}

#[test]
fn service_of_short_connections_does_not_exceed_its_share_of_a_receivers_link() {
    let Some(bed) = &testbed("short") else { return };
    let (coordinator, _agents) = start(bed, &config("allocator = true\n", ""));
    let capacity = LINK_FRAME_BYTES_PER_SEC * 8e-6 * ALLOCATABLE;
    let share_of_batch = capacity * f64::from(BATCH.2) / f64::from(ONLINE.2 + BATCH.2);
    let to = RECEIVERS[0];
    let online = Senders::start(bed, [0, to], ONLINE.1, 1, "cubic", 0, None);
    for programs in [8, 1] {
        let batch = ShortSenders::start(bed, [1, to], BATCH.1, programs);
        let read = || [online.received_bytes(), batch.received_bytes()];
        let holds = |[online, batch]: [f64; 2]| {
            online >= 0.9 * (capacity - share_of_batch)
                && (0.9..=max_excess(share_of_batch)).contains(&(batch / share_of_batch))
        };
        wait_within(Duration::from_secs(30), "the shares", || {
            let rates = measure(read, Duration::from_secs(1));
            eprintln!(
                "{programs} programs: {rates:.2?} Mbit/s, limit {:.2?}",
                limit_of_batch(&coordinator, "h1")
            );
            holds(rates)
        });
        let rates = measure(read, measured_time());
        let limit = limit_of_batch(&coordinator, "h1").expect("short connections have a limit");
        eprintln!("{programs} programs: {rates:.2?} Mbit/s, limit {limit:.2}");
        assert!(holds(rates), "{programs} programs: {rates:.2?} Mbit/s");
        // A service that demands more than its share has no headroom.
        assert!((limit / share_of_batch - 1.0).abs() < 0.02, "{limit} Mbit/s");
        drop(batch);
        thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn short_connections_of_two_hosts_do_not_exceed_a_maximum() {
    let Some(bed) = &testbed("shortmax") else { return };
    let _running = start(bed, &config("", &format!("max-bandwidth = \"{MAX}Mbit\"\n")));
    let senders = [0, 1].map(|host| ShortSenders::start(bed, [host, RECEIVERS[host as usize]], BATCH.1, 2));
    let read = || senders.each_ref().map(ShortSenders::received_bytes);
    let holds = |rates: [f64; 2]| (0.9..=max_excess(MAX)).contains(&(rates.iter().sum::<f64>() / MAX));
    wait_within(Duration::from_secs(30), "the maximum", || {
        let rates = measure(read, Duration::from_secs(1));
        eprintln!("{rates:.2?} Mbit/s");
        holds(rates)
    });
    let rates = measure(read, measured_time());
    eprintln!("{rates:.2?} Mbit/s");
    assert!(holds(rates), "{rates:.2?} Mbit/s");
}

#[test]
fn short_connections_on_a_free_link_are_as_fast_as_without_an_agent() {
    let Some(bed) = &testbed("shortfree") else { return };
    let (from, to) = (0, RECEIVERS[0]);
    // Each host receives, and has an open connection without traffic. The lower bound of each is a quarter of the link.
    let receivers: Vec<u32> = (0..HOSTS).filter(|&host| host != from).collect();
    let _receivers: Vec<_> =
        receivers.iter().map(|&to| ShortSenders::start(bed, [from, to], BATCH.1, 0)).collect();
    let without_agent = median_answer_time(bed, [from, to], BATCH.1);
    let (coordinator, _agents) = start(bed, &config("allocator = true\n", ""));
    let connect = |&to: &u32| bed.run_on_host(from, || TcpStream::connect((address(to), BATCH.1)).unwrap());
    let _idle: Vec<TcpStream> = receivers.iter().map(connect).collect();
    let lower_bound = LINK_FRAME_BYTES_PER_SEC * 8e-6 / receivers.len() as f64;
    wait_within(Duration::from_secs(20), "the lower bound", || {
        limit_of_batch(&coordinator, "h0").is_some_and(|limit| limit <= lower_bound)
    });
    let with_agent = median_answer_time(bed, [from, to], BATCH.1);
    eprintln!("{without_agent:.1?} without an agent, {with_agent:.1?} with one");
    assert!(with_agent <= 2 * without_agent + Duration::from_millis(5), "{with_agent:?}");
}
