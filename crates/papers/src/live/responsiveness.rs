//! Measures how soon the rates of services follow a change of weight or of demand, next to Table 1 of NetShare.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde_json::json;
use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_console::testbed;
use weir_sim::outcome::{mean, percentile};
use weir_testbed::{Bed, BedName, Node, namespace};

use super::cluster::Process;
use super::hosted_coordinator::{HostedCoordinator, LISTEN};
use super::{LINK_BYTES_PER_SEC, link_rate};
use crate::markdown::{format_cell, table};

/// The services. Each has one sender.
const SERVICES: [&str; 2] = ["one", "two"];

/// The hosts: a sender of each service, the receiver, and the coordinator.
const HOSTS: u32 = 4;
const RECEIVER: usize = 2;
const COORDINATOR: usize = 3;

/// The port at which the first service receives; the second service has the next one.
const FIRST_PORT: u16 = 5001;

/// The number of TCP connections of each service.
const CONNECTIONS: usize = 4;

/// The size of a datagram.
const DATAGRAM_BYTES: usize = 1400;

/// The number of repetitions.
const REPETITIONS: usize = 5;

/// The time between two samples of the received bytes, the time over which a rate is measured, and the time of a measurement.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(2);
const WINDOW: Duration = Duration::from_millis(50);
const MEASUREMENT: Duration = Duration::from_secs(4);

/// The part at the end of a measurement that has the final rates.
const FINAL: Duration = Duration::from_secs(1);

/// The greatest distance from the final rate, as a part of it, and the time for which it has to hold.
const TOLERANCE: f64 = 0.1;
const HOLD: Duration = Duration::from_millis(300);

/// A mechanism: its name and published responsiveness, whether its traffic is UDP, whether the switch has queues by service, and the
/// configuration.
struct Mechanism {
    name: &'static str,
    published: &'static str,
    is_udp: bool,
    has_switch_agent: bool,
    settings: &'static str,
}

const MECHANISMS: [Mechanism; 3] = [
    Mechanism {
        name: "group allocation (queues)",
        published: "< 1",
        is_udp: false,
        has_switch_agent: true,
        settings: "",
    },
    Mechanism {
        name: "rate throttling (UDP)",
        published: "10 to 50",
        is_udp: true,
        has_switch_agent: true,
        settings: "throttling = true\n",
    },
    Mechanism {
        name: "centralized allocation",
        published: "10 to 100",
        is_udp: false,
        has_switch_agent: false,
        settings: "allocator = true\n",
    },
];

/// A change, and the weights and activity of the services from then on.
struct Change {
    name: &'static str,
    weight_of_one: f64,
    is_two_active: bool,
}

/// The changes in their order. The last one restores the first state.
const CHANGES: [Change; 4] = [
    Change { name: "weight 1 to 3", weight_of_one: 3.0, is_two_active: true },
    Change { name: "other service stops", weight_of_one: 3.0, is_two_active: false },
    Change { name: "other service starts", weight_of_one: 3.0, is_two_active: true },
    Change { name: "weight 3 to 1", weight_of_one: 1.0, is_two_active: true },
];

impl Change {
    /// The fraction of the link that the first service gets.
    fn share_of_one(&self) -> f64 {
        if self.is_two_active { self.weight_of_one / (self.weight_of_one + 1.0) } else { 1.0 }
    }
}

/// Samples of the received bytes of both services, from a change on, with the time since the change.
type Samples = Vec<(Duration, [u64; 2])>;

/// What followed a change: the time until the first service has its final rate, if it keeps one, and its final share.
#[derive(Debug, Clone, Copy)]
struct Response {
    time: Option<Duration>,
    share: f64,
}

/// The section of the page.
pub(super) fn section(bed: &BedName, progress: &Progress) -> Result<String, Failure> {
    let bar = progress.add_step_bar("changes", MECHANISMS.len() * REPETITIONS);
    let responses = testbed::with_bed(bed, &super::big_switch(HOSTS, link_rate()), |bed| {
        let measure = |mechanism| {
            let measured = measure(bed, mechanism, &bar);
            bed.set_queues(None).map_err(|error| testbed::failure(&error))?;
            measured
        };
        MECHANISMS.iter().map(measure).collect::<Result<Vec<_>, Failure>>()
    })?;
    bar.finish_and_clear();
    Ok(text(&responses))
}

/// The responses of a mechanism, by change.
fn measure(bed: &Bed, mechanism: &Mechanism, bar: &ProgressBar) -> Result<Vec<Vec<Response>>, Failure> {
    let nodes = &bed.plan().nodes;
    let coordinator = HostedCoordinator::start(&nodes[COORDINATOR], &configuration(nodes, mechanism))?;
    for service in SERVICES {
        coordinator.api.put(&format!("/v1/applications/{service}"), &json!({ "service": service }))?;
    }
    let _agents = start_agents(nodes, &coordinator, mechanism)?;
    coordinator.wait_for_agents(COORDINATOR, usize::from(mechanism.has_switch_agent))?;
    let traffic = Traffic::start(nodes, mechanism.is_udp)?;
    thread::sleep(MEASUREMENT);
    let mut responses = vec![Vec::new(); CHANGES.len()];
    for _ in 0..REPETITIONS {
        for (change, responses) in CHANGES.iter().zip(&mut responses) {
            Failure::check_interrupt()?;
            let changed = Instant::now();
            traffic.is_two_active.store(change.is_two_active, Ordering::Relaxed);
            let weight = json!({ "weight": change.weight_of_one });
            coordinator.api.put(&format!("/v1/services/{}", SERVICES[0]), &weight)?;
            let samples = traffic.sample(changed);
            let begin = if change.is_two_active { Duration::ZERO } else { last_arrival(&samples, 1) };
            responses.push(response(&samples, begin));
        }
        bar.inc(1);
    }
    Ok(responses)
}

fn configuration(nodes: &[Node], mechanism: &Mechanism) -> String {
    let lines = |value: fn(&Node) -> String| -> String {
        nodes[..=COORDINATOR].iter().map(|node| format!("{} = {}\n", node.name, value(node))).collect()
    };
    let switch = if mechanism.has_switch_agent {
        let hosts: Vec<String> =
            nodes[..COORDINATOR].iter().map(|node| format!("\"{}\"", node.name)).collect();
        format!("[switch]\nswitch = [{}]\n", hosts.join(", "))
    } else {
        String::new()
    };
    format!(
        "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\nqueues = \"services\"\n{}{LISTEN}\
         [host]\n{}[address]\n{}{switch}[service.one]\n[service.two]\n",
        mechanism.settings,
        lines(|node| format!("\"{}\"", node.ports[0].rate)),
        lines(|node| format!("[\"{}\"]", node.address)),
    )
}

fn start_agents(
    nodes: &[Node],
    coordinator: &HostedCoordinator,
    mechanism: &Mechanism,
) -> Result<Vec<Process>, Failure> {
    let start = |node: &Node| {
        let mut command = coordinator.agent_command(node)?;
        for (service, port) in SERVICES.iter().zip(FIRST_PORT..) {
            command.arg("--application").arg(format!("{service}=port/{port}"));
        }
        Process::start(&format!("agent of {}", node.name), command)
    };
    let mut agents = nodes[..COORDINATOR].iter().map(start).collect::<Result<Vec<_>, Failure>>()?;
    if mechanism.has_switch_agent {
        // The port to the coordinator has no queues, so that orders are not delayed.
        agents.push(coordinator.start_switch_agent(&nodes[HOSTS as usize], COORDINATOR)?);
    }
    Ok(agents)
}

/// Senders and receivers of both services, which run until this is dropped.
struct Traffic {
    received: [Arc<AtomicU64>; 2],
    is_two_active: Arc<AtomicBool>,
    is_stopped: Arc<AtomicBool>,
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

impl Traffic {
    fn start(nodes: &[Node], is_udp: bool) -> Result<Traffic, Failure> {
        let received: [Arc<AtomicU64>; 2] = Default::default();
        let (is_stopped, is_two_active) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        let traffic = Traffic { received, is_two_active, is_stopped };
        for (service, port) in (0..SERVICES.len()).zip(FIRST_PORT..) {
            let to = SocketAddr::from((nodes[RECEIVER].address, port));
            let (from, receiver) = (&nodes[service].namespace, &nodes[RECEIVER].namespace);
            let is_active: Arc<AtomicBool> = if service == 0 {
                Arc::new(AtomicBool::new(true))
            } else {
                Arc::clone(&traffic.is_two_active)
            };
            let is_sending = Sending { is_active, is_stopped: Arc::clone(&traffic.is_stopped) };
            let count = &traffic.received[service];
            if is_udp {
                let socket = namespace::run_inside(receiver, || UdpSocket::bind(to)).flatten();
                count_datagrams(&socket.map_err(Failure::runtime)?, count, &is_sending)?;
                let any = SocketAddr::from((nodes[service].address, 0));
                let socket = namespace::run_inside(from, || UdpSocket::bind(any)).flatten();
                send_datagrams(socket.map_err(Failure::runtime)?, to, is_sending);
                continue;
            }
            let listener = namespace::run_inside(receiver, || TcpListener::bind(to)).flatten();
            let listener = listener.map_err(Failure::runtime)?;
            for _ in 0..CONNECTIONS {
                let stream = namespace::run_inside(from, || TcpStream::connect(to)).flatten();
                let (accepted, _) = listener.accept().map_err(Failure::runtime)?;
                count_bytes(accepted, Arc::clone(count));
                send_bytes(stream.map_err(Failure::runtime)?, is_sending.clone());
            }
        }
        Ok(traffic)
    }

    /// Samples of received bytes during a measurement that began at `changed`.
    fn sample(&self, changed: Instant) -> Samples {
        let mut samples = Samples::new();
        while changed.elapsed() < MEASUREMENT {
            let counts = self.received.each_ref().map(|count| count.load(Ordering::Relaxed));
            samples.push((changed.elapsed(), counts));
            thread::sleep(SAMPLE_INTERVAL);
        }
        samples
    }
}

/// Whether a program sends.
#[derive(Clone)]
struct Sending {
    is_active: Arc<AtomicBool>,
    is_stopped: Arc<AtomicBool>,
}

impl Sending {
    /// Waits while the program is paused. Returns `false` at the end.
    fn wait(&self) -> bool {
        while !self.is_active.load(Ordering::Relaxed) && !self.is_stopped() {
            thread::sleep(Duration::from_micros(200));
        }
        !self.is_stopped()
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

fn send_bytes(mut stream: TcpStream, sending: Sending) {
    thread::spawn(move || while sending.wait() && stream.write_all(&[0; 1 << 13]).is_ok() {});
}

fn count_bytes(mut stream: TcpStream, count: Arc<AtomicU64>) {
    thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(length @ 1..) = std::io::Read::read(&mut stream, &mut buffer) {
            count.fetch_add(length as u64, Ordering::Relaxed);
        }
    });
}

fn send_datagrams(socket: UdpSocket, to: SocketAddr, sending: Sending) {
    thread::spawn(move || {
        while sending.wait() {
            // A full queue blocks the program. A refused datagram is one that a limit drops.
            let _ = socket.send_to(&[0; DATAGRAM_BYTES], to);
        }
    });
}

fn count_datagrams(socket: &UdpSocket, count: &Arc<AtomicU64>, sending: &Sending) -> Result<(), Failure> {
    let (socket, count, sending) =
        (socket.try_clone().map_err(Failure::runtime)?, Arc::clone(count), sending.clone());
    socket.set_read_timeout(Some(Duration::from_millis(100))).map_err(Failure::runtime)?;
    thread::spawn(move || {
        let mut buffer = [0; DATAGRAM_BYTES];
        while !sending.is_stopped() {
            if let Ok(length) = socket.recv(&mut buffer) {
                count.fetch_add(length as u64, Ordering::Relaxed);
            }
        }
    });
    Ok(())
}

/// When the last bytes of a service arrived.
fn last_arrival(samples: &Samples, service: usize) -> Duration {
    let last = samples.last().map_or(0, |sample| sample.1[service]);
    samples[samples.partition_point(|sample| sample.1[service] < last).min(samples.len() - 1)].0
}

/// How long after `begin` the first service has its final rate, and its final share.
fn response(samples: &Samples, begin: Duration) -> Response {
    let end = samples.last().map_or(Duration::ZERO, |last| last.0);
    // The first sample at or after a time.
    let at =
        |time: Duration| samples[samples.partition_point(|sample| sample.0 < time).min(samples.len() - 1)];
    let (first, last) = (at(end.saturating_sub(FINAL)), at(end));
    let bytes = |service: usize| last.1[service].saturating_sub(first.1[service]) as f64;
    let final_rate = bytes(0) / (last.0 - first.0).as_secs_f64();
    let is_final = |sample: &(Duration, [u64; 2])| {
        let window = at(sample.0 + WINDOW);
        let rate = window.1[0].saturating_sub(sample.1[0]) as f64 / (window.0 - sample.0).as_secs_f64();
        (rate - final_rate).abs() <= TOLERANCE * final_rate
    };
    let candidates = samples.iter().take_while(|sample| sample.0 + HOLD + WINDOW < end);
    let (mut begun, mut time) = (None, None);
    for sample in candidates {
        if !is_final(sample) {
            begun = None;
        } else if sample.0 - *begun.get_or_insert(sample.0) >= HOLD {
            time = begun.map(|time: Duration| time.saturating_sub(begin));
            break;
        }
    }
    Response { time, share: bytes(0) / (bytes(0) + bytes(1)) }
}

fn text(responses: &[Vec<Vec<Response>>]) -> String {
    let mut lines = Vec::new();
    for (mechanism, by_change) in MECHANISMS.iter().zip(responses) {
        for (change, responses) in CHANGES.iter().zip(by_change) {
            let times: Vec<f64> =
                responses.iter().filter_map(|response| Some(response.time?.as_secs_f64() * 1e3)).collect();
            let share = mean(&responses.iter().map(|response| response.share).collect::<Vec<_>>());
            let time = if times.is_empty() {
                "-".to_owned()
            } else {
                let [min, median, max] =
                    [0.0, 50.0, 100.0].map(|p| format_cell(percentile(&times, p).round()));
                format!("{median} ({min} to {max})")
            };
            let shares = [change.share_of_one(), share].map(|share| format_cell(100.0 * share));
            let mut line =
                vec![mechanism.name.to_owned(), change.name.to_owned(), mechanism.published.to_owned(), time];
            line.push(format!("{} of {}", times.len(), responses.len()));
            line.extend(shares);
            lines.push(line);
        }
    }
    let head = [
        "mechanism",
        "change",
        "published, ms",
        "measured, ms",
        "reached",
        "expected share, %",
        "measured share, %",
    ];
    format!(
        "Two services send from a host each to a third host under one switch, over links of {} Mbit/s: {CONNECTIONS} connections of TCP \
         each, or, under throttling, a flood of UDP. Queues by service are at hosts and, for the first two mechanisms, at the switch. An \
         operator changes the weight of the first service from 1 to 3 and back, and the second one stops and starts again. The time \
         begins with the operator's request, with the last byte of the second service that arrives, or with the first one that it writes \
         again. It ends when the received rate of the first service comes within {} % of its final one and stays there for {} ms. Rates \
         are those of windows of {} ms. The cells have the median of {REPETITIONS} repetitions, the minimum and the maximum. Times \
         include packets in queues, the adaptation of TCP, and the request; those of Table 1 are estimates of the mechanisms alone.\n\n{}",
        format_cell(LINK_BYTES_PER_SEC * 8e-6),
        format_cell(100.0 * TOLERANCE),
        HOLD.as_millis(),
        WINDOW.as_millis(),
        table(&head, 2, &lines),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_the_begin_of_the_final_rate() {
        // 1000 bytes/ms of both services; after 200 ms, the first has three quarters.
        let sample = |ms: u64| {
            let (before, after) = (ms.min(200), ms.saturating_sub(200));
            (Duration::from_millis(ms), [1000 * before + 1500 * after, 1000 * before + 500 * after])
        };
        let samples: Samples = (0..4000).map(sample).collect();
        let found = response(&samples, Duration::from_millis(5));
        // A window of 50 ms that begins 15 ms earlier has 30 % of its bytes at the old rate: within 10 % of the new one.
        assert_eq!(found.time, Some(Duration::from_millis(180)));
        assert!((found.share - 0.75).abs() < 1e-9, "{found:?}");
    }
}
