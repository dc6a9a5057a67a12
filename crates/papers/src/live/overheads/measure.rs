//! A coordinator and agents as processes, and their processor time and memory.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Builder;
use tonic::transport::Endpoint;
use weir_agent::live::load_generator;
use weir_client::Agent;
use weir_console::failure::Failure;
use weir_core::units::Rate;

use super::super::cluster::{self, Coordinator, Process};

/// The number of hosts whose agents are processes.
pub const AGENTS: u32 = 4;

/// The interval between two samples.
pub const SAMPLE: Duration = Duration::from_millis(500);

/// The rate of each host's link, in bytes per second.
const LINK: f64 = 125e6;

/// The unit of processor time in `/proc`, in seconds.
const TICK: f64 = 0.01;

/// What a process used between two samples: processors, and resident bytes.
pub struct Usage {
    pub cpu: f64,
    pub memory: f64,
}

/// The figures of a coordinator with some number of hosts.
pub struct Measured {
    pub hosts: u32,
    /// The latencies of orders, in seconds.
    pub latencies: Vec<f64>,
    /// The mean and an upper bound of the 90th percentile of schedules, in seconds.
    pub schedule: (f64, f64),
    pub coordinator: Vec<Usage>,
    /// Of all agent processes.
    pub agents: Vec<Usage>,
}

/// Measures for [`load_generator::TIME`].
pub fn measure(hosts: u32) -> Result<Measured, Failure> {
    let link = Rate::new(LINK).expect("the constant is a valid rate");
    let names = (0..hosts).map(|host| (format!("h{host}"), link));
    let coordinator = Coordinator::start(None, "policy = \"saath\"\n", names)?;
    for (number, id) in (0u32..).zip(load_generator::coflows()) {
        let to = |from: u32| (from + 1 + number % (hosts - 1)) % hosts;
        let flow = |from: u32| json!({ "from": format!("h{from}"), "to": format!("h{}", to(from)) });
        let flows: Vec<Value> = (0..hosts).map(flow).collect();
        coordinator.put(&format!("/v1/coflows/{id}"), &json!({ "flows": flows }).to_string())?;
    }
    let directory = tempfile::tempdir().map_err(Failure::undone)?;
    let start = |host| Host::start(&coordinator, host, link, &directory.path().join(format!("agent{host}")));
    let real = (0..AGENTS).map(start).collect::<Result<Vec<Host>, Failure>>()?;
    let runtime =
        Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(Failure::undone)?;
    let endpoint =
        Endpoint::from_shared(format!("http://{}", coordinator.agents)).map_err(Failure::undone)?;
    let latencies = runtime.spawn(load_generator::attend(endpoint, AGENTS..hosts, link));
    let (mut of_coordinator, mut of_agents) = (Vec::new(), Vec::new());
    let sample = || -> Result<Vec<Sample>, Failure> {
        let ids = [coordinator.process.id()].into_iter().chain(real.iter().map(|host| host.process.id()));
        ids.map(Sample::of).collect()
    };
    let mut before = sample()?;
    while !latencies.is_finished() {
        Failure::unless_asked()?;
        thread::sleep(SAMPLE);
        real.iter().for_each(Host::send);
        let now = sample()?;
        let mut used = before.iter().zip(&now).map(|(before, now)| now.since(before));
        of_coordinator.extend(used.next());
        of_agents.extend(used);
        before = now;
    }
    let latencies = runtime.block_on(latencies).map_err(Failure::undone)?;
    let latencies: Vec<f64> = latencies.iter().map(Duration::as_secs_f64).collect();
    if latencies.is_empty() {
        return Err(Failure::undone("the agents that are tasks received no orders"));
    }
    let schedule = schedules(&coordinator.get_text("/metrics")?)
        .ok_or_else(|| Failure::undone("the metrics of the coordinator have no schedules"))?;
    Ok(Measured { hosts, latencies, schedule, coordinator: of_coordinator, agents: of_agents })
}

/// A host with an agent process and with connections.
struct Host {
    process: Process,
    _agent: Agent,
    connections: Vec<TcpStream>,
}

impl Host {
    fn start(coordinator: &Coordinator, host: u32, link: Rate, socket: &Path) -> Result<Host, Failure> {
        let command = cluster::agent_command(None, &coordinator.agents, host, link, socket)?;
        let process = Process::start(&format!("agent of h{host}"), command)?;
        let agent = cluster::connect_agent(socket)?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(Failure::undone)?;
        let to = listener.local_addr().map_err(Failure::undone)?;
        let mut connections = Vec::new();
        for id in load_generator::coflows().take(load_generator::STEADY as usize) {
            let stream = TcpStream::connect(to).map_err(Failure::undone)?;
            let (mut other, _) = listener.accept().map_err(Failure::undone)?;
            thread::spawn(move || std::io::copy(&mut other, &mut std::io::sink()));
            stream.set_nonblocking(true).map_err(Failure::undone)?;
            agent.open(&id, host, &stream).map_err(Failure::undone)?;
            connections.push(stream);
        }
        Ok(Host { process, _agent: agent, connections })
    }

    /// Sends a little on all connections.
    fn send(&self) {
        for mut stream in &self.connections {
            // A connection whose buffer is full sends nothing now.
            let _ = stream.write(&[0; 4096]);
        }
    }
}

/// The processor time that a process has used so far, in seconds, and its resident bytes.
struct Sample {
    at: Instant,
    cpu: f64,
    memory: f64,
}

impl Sample {
    fn of(process: u32) -> Result<Sample, Failure> {
        let read = |name: &str| {
            let path = format!("/proc/{process}/{name}");
            let text = fs::read_to_string(&path);
            text.map_err(|error| Failure::undone(format_args!("{path}: cannot be read: {error}")))
        };
        let (stat, status) = (read("stat")?, read("status")?);
        // The fields follow the name of the program, which may contain any character.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        match (ticks(11), ticks(12), kib) {
            (Some(user), Some(system), Some(kib)) => {
                Ok(Sample { at: Instant::now(), cpu: (user + system) * TICK, memory: kib * 1024.0 })
            }
            _ => Err(Failure::undone(format_args!("process {process} has exited"))),
        }
    }

    fn since(&self, before: &Sample) -> Usage {
        let time = self.at.duration_since(before.at).as_secs_f64();
        Usage { cpu: (self.cpu - before.cpu) / time, memory: self.memory }
    }
}

/// The mean of schedules, and the upper bound of the bucket of the 90th percentile, in seconds, from the metrics of a coordinator.
fn schedules(metrics: &str) -> Option<(f64, f64)> {
    let number = |line: &str| line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
    let find = |name: &str| metrics.lines().find(|line| line.starts_with(name)).and_then(number);
    let (sum, count) = (find("weir_schedule_seconds_sum")?, find("weir_schedule_seconds_count")?);
    let mut buckets = metrics.lines().filter_map(|line| {
        let line = line.strip_prefix("weir_schedule_seconds_bucket{le=\"")?;
        let (bound, rest) = line.split_once('"')?;
        Some((bound.parse::<f64>().ok()?, number(rest)?))
    });
    let (bound, _) = buckets.find(|(_, below)| *below >= 0.9 * count)?;
    Some((sum / count, bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_times_are_read_from_the_histogram() {
        let text = "weir_schedule_seconds_sum 0.02\nweir_schedule_seconds_count 10\n\
                    weir_schedule_seconds_bucket{le=\"0.001\"} 8\nweir_schedule_seconds_bucket{le=\"0.004\"} 9\n\
                    weir_schedule_seconds_bucket{le=\"+Inf\"} 10\n";
        assert_eq!(schedules(text), Some((0.002, 0.004)));
        assert_eq!(schedules("weir_hosts 3\n"), None);
    }
}
